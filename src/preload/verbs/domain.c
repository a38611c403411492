/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Protection domains, and the contexts of pinion over them.
 *
 * Domains are few: a list in a small hash table. It changes with `users` held
 * for writing alone, so a domain that was found stays until pn_ibv_leave().
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/lock.h"
#include "preload/verbs/preload.h"

#define NBUCKETS 256

/* Rights of peers are bits 1 to 3, or bit 4 for those of windows; bit 0 stands
 * for relaxed ordering. */
#define NKINDS 18

/* A context takes threads and memory: a program with hundreds of domains, each
 * with a registration or two, has no use for hundreds of caches. */
#define MAX_CONTEXTS 128

/* What a context registers with: the argument of its registrar. */
struct source {
	struct ibv_pd *pd;
	unsigned access; /* IBV_ACCESS_ bits of the kind */
	bool keeps;	 /* memory between uses */
	struct pn_ibv_objects *objects;
	struct pn_ibv_choice *choice; /* to tell what calls take; or NULL */
	struct pinion_context *_Atomic context;
};

/* In the order of the option's choices. */
enum windows_mode { WINDOWS_AUTO, WINDOWS_YES, WINDOWS_NO };

struct pn_ibv_domain {
	struct pn_list link; /* in a bucket */
	struct ibv_pd *pd;
	_Atomic size_t nregions;
	struct pn_mutex lock; /* opening of contexts; after `users` */
	bool refused;	      /* lock: no context could be opened */
	bool asked;	      /* lock: the options are read */
	_Atomic bool keeps_remote;
	_Atomic enum windows_mode windows_mode;
	/* Opened and closed with the context of their kind. */
	struct pn_ibv_windows *_Atomic windows;
	struct pn_ibv_choice choice;
	struct source sources[NKINDS];
};

/* Writers first: fork() must not wait for ever. */
static pthread_rwlock_t users =
	PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static struct pn_list buckets[NBUCKETS]; /* users; zero: empty */
static _Atomic unsigned ncontexts;
static _Atomic bool ended;

/* This thread holds `users` for writing, around fork(). Handlers of other
 * libraries may call us then. */
static _Thread_local bool forks;

/* How often this thread holds `users` for reading. */
static _Thread_local unsigned depth;

/* --- users -----------------------------------------------------------------
 */

void pn_ibv_enter(void)
{
	if (!forks)
		pthread_rwlock_rdlock(&users);
	depth++;
}

bool pn_ibv_inside(void)
{
	return depth || forks;
}

bool pn_ibv_ended(void)
{
	return atomic_load_explicit(&ended, memory_order_relaxed);
}

void pn_ibv_leave(void)
{
	depth--;
	if (!forks)
		pthread_rwlock_unlock(&users);
}

static void lock_all(void)
{
	if (!forks)
		pthread_rwlock_wrlock(&users);
}

static void unlock_all(void)
{
	if (!forks)
		pthread_rwlock_unlock(&users);
}

/* --- the table -------------------------------------------------------------
 */

static struct pn_list *bucket_of(const struct ibv_pd *pd)
{
	struct pn_list *bucket = &buckets[((uintptr_t)pd >> 4) % NBUCKETS];

	return bucket;
}

struct pn_ibv_domain *pn_ibv_domain_find(struct ibv_pd *pd)
{
	struct pn_list *bucket = bucket_of(pd), *pos;

	if (!bucket->next)
		return NULL;
	pn_list_for_each (pos, bucket) {
		struct pn_ibv_domain *domain =
			pn_container_of(pos, struct pn_ibv_domain, link);

		if (domain->pd == pd)
			return domain;
	}
	return NULL;
}

/* A domain without memory for its bookkeeping is one that we do not know. */
void pn_ibv_domain_add(struct ibv_pd *pd)
{
	struct pn_ibv_domain *domain;
	struct pn_list *bucket = bucket_of(pd);

	lock_all();
	domain = pn_ibv_domain_find(pd) ? NULL : calloc(1, sizeof(*domain));
	if (domain) {
		domain->pd = pd;
		pn_mutex_init(&domain->lock);
		pn_ibv_choice_init(&domain->choice);
		if (!bucket->next)
			pn_list_init(bucket);
		pn_list_append(bucket, &domain->link);
	}
	unlock_all();
}

void pn_ibv_domain_ref(struct pn_ibv_domain *domain)
{
	atomic_fetch_add(&domain->nregions, 1);
}

void pn_ibv_domain_unref(struct pn_ibv_domain *domain)
{
	atomic_fetch_sub(&domain->nregions, 1);
}

bool pn_ibv_keeps_remote(const struct pn_ibv_domain *domain)
{
	return atomic_load_explicit(&domain->keeps_remote,
				    memory_order_relaxed);
}

/* Not those that have failed. */
static enum windows_mode mode_of(struct pn_ibv_domain *domain)
{
	const struct pn_ibv_windows *windows = pn_ibv_domain_windows(domain);

	if (pn_ibv_keeps_remote(domain) ||
	    (windows && !pn_ibv_windows_work(windows)))
		return WINDOWS_NO;
	return atomic_load_explicit(&domain->windows_mode,
				    memory_order_relaxed);
}

bool pn_ibv_wants_window(struct pn_ibv_domain *domain,
			 const struct pn_ibv_request *r)
{
	const unsigned access =
		IBV_ACCESS_MW_BIND | (r->access & IBV_ACCESS_RELAXED_ORDERING);
	enum windows_mode mode = mode_of(domain);

	if (mode != WINDOWS_AUTO)
		return mode == WINDOWS_YES;
	return pn_ibv_choice_wants(&domain->choice, r) &&
	       pn_ibv_context(domain, access) &&
	       pn_ibv_choice_pays(&domain->choice, r);
}

struct pn_ibv_choice *pn_ibv_domain_choice(struct pn_ibv_domain *domain)
{
	return mode_of(domain) == WINDOWS_AUTO ? &domain->choice : NULL;
}

struct pn_ibv_windows *pn_ibv_domain_windows(struct pn_ibv_domain *domain)
{
	return atomic_load_explicit(&domain->windows, memory_order_acquire);
}

/* --- registering for pinion ------------------------------------------------
 */

/* Memory of a GPU can be registered too, where its driver has told the kernel
 * how, but its release is not noticed, so it is not kept. Only memory of the
 * host can be read by the kernel. */
static bool is_host_memory(char *addr, size_t len)
{
	char bytes[2];
	struct iovec to = { bytes, sizeof(bytes) };
	struct iovec from[] = { { addr, 1 }, { addr + len - 1, 1 } };

	return process_vm_readv(getpid(), &to, 1, from, 2, 0) == 2;
}

/* The program gets libibverbs' own error, since its own call comes next. */
static int reg_error(int error)
{
	if (error == ENOMEM || error == EAGAIN || error == ENOSPC)
		return -ENOMEM;
	return error == EFAULT ? -EFAULT : -EIO;
}

static int register_once(const struct source *source,
			 const struct pn_ibv_request *request,
			 struct ibv_mr **out)
{
	uint64_t start = pn_clock_ns();
	struct ibv_mr *mr;

	if (!pn_ibv_object_get(source->objects))
		return -ENOMEM;
	mr = pn_ibv_real_reg(request);
	if (!mr) {
		pn_ibv_object_put(source->objects);
		return reg_error(errno);
	}
	if (source->choice)
		pn_ibv_choice_registered(source->choice, request->addr,
					 request->len, pn_clock_ns() - start);
	*out = mr;
	return 0;
}

static int register_range(void *arg,
			  struct pinion_registrar_range *const *ranges,
			  unsigned n)
{
	const struct source *source = arg;
	struct pinion_registrar_range *range = ranges[0];
	const struct pn_ibv_request request = {
		.pd = source->pd,
		.addr = range->addr,
		.len = range->len,
		.iova = (uintptr_t)range->addr,
		.access = source->access |
			  (range->access & IBV_ACCESS_LOCAL_WRITE),
	};
	struct ibv_mr *mr;
	int ret;

	pn_assert(n == 1);
	if (source->keeps && !is_host_memory(range->addr, range->len))
		return -EOPNOTSUPP;
	ret = register_once(source, &request, &mr);
	if (ret)
		return ret;
	range->handle = mr;
	range->local_key = mr->lkey;
	range->remote_key = mr->rkey;
	return 0;
}

static int deregister_range(void *arg,
			    struct pinion_registrar_range *const *ranges,
			    unsigned n)
{
	const struct source *source = arg;
	uint64_t start = pn_clock_ns();
	int ret;

	pn_assert(n == 1);
	ret = -pn_ibv_real()->ibv_dereg_mr(ranges[0]->handle);
	if (ret)
		return ret;
	pn_ibv_object_put(source->objects);
	if (source->choice)
		pn_ibv_choice_deregistered(source->choice, ranges[0]->addr,
					   ranges[0]->len,
					   pn_clock_ns() - start);
	return 0;
}

/* --- contexts --------------------------------------------------------------
 */

#define SAME(bit) ((int)PINION_ACCESS_##bit == (int)IBV_ACCESS_##bit)
_Static_assert(SAME(LOCAL_WRITE) && SAME(REMOTE_WRITE) && SAME(REMOTE_READ) &&
		       SAME(REMOTE_ATOMIC),
	       "access bits of pinion are those of verbs");

_Static_assert(IBV_ACCESS_MW_BIND == 16, "a kind of its own");

static unsigned kind_of(unsigned access)
{
	return (access & (PN_IBV_REMOTE | IBV_ACCESS_MW_BIND)) |
	       !!(access & IBV_ACCESS_RELAXED_ORDERING);
}

/* The value of an option, from the environment or by default. */
static bool option_is(struct pinion_context *context, const char *name,
		      const char *value)
{
	struct pinion_config_option option = { .size = sizeof(option) };

	for (unsigned i = 0; !pinion_config_query(context, i, &option); i++)
		if (!strcmp(option.name, name))
			return !strcmp(option.value, value);
	return false;
}

static void set_up_once(void);

static int open_context(struct source *source, struct pinion_context **out)
{
	struct ibv_device_attr device;
	struct pinion_registrar registrar = {
		.size = sizeof(registrar),
		.flags = PINION_REGISTRAR_READ_ONLY,
		.arg = source,
		.register_ranges = register_range,
		.deregister_ranges = deregister_range,
		.max_batch = 1,
	};
	struct pinion_attr attr = { .size = sizeof(attr),
				    .registrar = &registrar };
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int ret;

	if (ibv_query_device(source->pd->context, &device))
		return -EIO;
	registrar.max_registration_bytes = device.max_mr_size < SIZE_MAX / 2
						   ? device.max_mr_size
						   : SIZE_MAX / 2;
	source->objects = pn_ibv_objects_of(source->pd->context, &device);
	if (!source->objects)
		return -ENOMEM;
	registrar.max_registrations = pn_ibv_objects_max(source->objects);
	registrar.max_pinned_bytes = pn_limits_memlock();
	ret = pinion_open(&attr, out);
	/* After pinion's own handlers, which pinion_open() sets. */
	if (!ret)
		pthread_once(&once, set_up_once);
	return ret;
}

/* Where there are none, or no queue pair to bind them, nobody asks again. */
static bool open_windows_locked(struct pn_ibv_domain *domain)
	PN_REQUIRES(&domain->lock)
{
	struct pn_ibv_windows *windows = atomic_load(&domain->windows);

	if (!windows)
		windows = pn_ibv_windows_open(domain->pd,
					      pn_ibv_domain_choice(domain));
	if (!windows)
		atomic_store(&domain->windows_mode, WINDOWS_NO);
	atomic_store_explicit(&domain->windows, windows, memory_order_release);
	return windows;
}

static void read_options(struct pn_ibv_domain *domain,
			 struct pinion_context *context)
{
	if (domain->asked)
		return;
	domain->asked = true;
	if (option_is(context, "keep_remote", "yes"))
		atomic_store(&domain->keeps_remote, true);
	if (option_is(context, "keep_windows", "yes"))
		atomic_store(&domain->windows_mode, WINDOWS_YES);
	if (option_is(context, "keep_windows", "no"))
		atomic_store(&domain->windows_mode, WINDOWS_NO);
}

static void open_locked(struct pn_ibv_domain *domain, struct source *source,
			unsigned access) PN_REQUIRES(&domain->lock)
{
	struct pinion_context *context;

	if (domain->refused || atomic_load(&source->context) ||
	    (access & IBV_ACCESS_MW_BIND && !open_windows_locked(domain)))
		return;
	source->pd = domain->pd;
	source->access = access & ~(unsigned)IBV_ACCESS_LOCAL_WRITE;
	if (atomic_fetch_add(&ncontexts, 1) >= MAX_CONTEXTS ||
	    open_context(source, &context)) {
		atomic_fetch_sub(&ncontexts, 1);
		domain->refused = true;
		return;
	}
	read_options(domain, context);
	source->keeps = !(access & PN_IBV_REMOTE) || domain->keeps_remote;
	if (access & (PN_IBV_REMOTE | IBV_ACCESS_MW_BIND))
		source->choice = pn_ibv_domain_choice(domain);
	atomic_store_explicit(&source->context, context, memory_order_release);
}

struct pinion_context *pn_ibv_context(struct pn_ibv_domain *domain,
				      unsigned access)
{
	struct source *source = &domain->sources[kind_of(access)];
	struct pinion_context *context =
		atomic_load_explicit(&source->context, memory_order_acquire);

	if (pn_likely(context))
		return context;
	pn_lock(&domain->lock);
	open_locked(domain, source, access);
	pn_unlock(&domain->lock);
	return atomic_load_explicit(&source->context, memory_order_acquire);
}

/* Without regions; windows end before the registrations that they are in. */
static void close_contexts(struct pn_ibv_domain *domain)
{
	pn_ibv_windows_close(atomic_exchange(&domain->windows, NULL));
	for (unsigned i = 0; i < NKINDS; i++) {
		struct pinion_context *context =
			atomic_exchange(&domain->sources[i].context, NULL);

		if (!context)
			continue;
		pinion_close(context);
		atomic_fetch_sub(&ncontexts, 1);
	}
}

static bool flush_contexts(struct pn_ibv_domain *domain)
{
	struct pn_ibv_windows *windows = atomic_load(&domain->windows);
	bool any = false;

	for (unsigned i = 0; i < NKINDS; i++) {
		struct pinion_context *context =
			atomic_load(&domain->sources[i].context);

		if (context)
			pinion_cache_flush(context);
		any |= context != NULL;
	}
	if (windows)
		pn_ibv_windows_flush(windows);
	return any;
}

/* --- the end of domains ----------------------------------------------------
 */

static void forget(struct pn_ibv_domain *domain)
{
	close_contexts(domain);
	pn_list_remove(&domain->link);
	pn_ibv_choice_fini(&domain->choice);
	pn_mutex_fini(&domain->lock);
	free(domain);
}

/* Calls fn for every domain, which may forget it. With `users` held. */
static void for_each_domain(void (*fn)(struct pn_ibv_domain *, void *),
			    void *arg)
{
	for (size_t i = 0; i < NBUCKETS; i++) {
		struct pn_list *pos = buckets[i].next, *next;

		for (; pos && pos != &buckets[i]; pos = next) {
			next = pos->next;
			fn(pn_container_of(pos, struct pn_ibv_domain, link),
			   arg);
		}
	}
}

bool pn_ibv_domain_remove(struct ibv_pd *pd)
{
	struct pn_ibv_domain *domain;
	bool known = false;

	lock_all();
	domain = pn_ibv_ended() ? NULL : pn_ibv_domain_find(pd);
	if (domain && atomic_load(&domain->nregions)) {
		flush_contexts(domain);
	} else if (domain) {
		forget(domain);
		known = true;
	}
	unlock_all();
	return known;
}

static void remove_from(struct pn_ibv_domain *domain, void *adapter)
{
	if (domain->pd->context != adapter)
		return;
	pn_ibv_regions_orphan(domain, true);
	forget(domain);
}

void pn_ibv_adapter_remove(struct ibv_context *adapter)
{
	lock_all();
	if (!pn_ibv_ended())
		for_each_domain(remove_from, adapter);
	unlock_all();
}

static void flush(struct pn_ibv_domain *domain, void *any)
{
	if (flush_contexts(domain))
		*(bool *)any = true;
}

bool pn_ibv_give_up(void)
{
	bool any = false;

	pn_ibv_enter();
	if (!pn_ibv_ended())
		for_each_domain(flush, &any);
	pn_ibv_leave();
	return any;
}

/* --- fork() and exit() -----------------------------------------------------
 */

/* Memory that the program has deregistered belongs to the child too: after
 * ibv_fork_init() it would lack pages that are registered. */
static void before_fork(void)
{
	bool any = false;

	pthread_rwlock_wrlock(&users);
	forks = true;
	if (!pn_ibv_ended())
		for_each_domain(flush, &any);
}

static void in_parent(void)
{
	forks = false;
	pthread_rwlock_unlock(&users);
}

/* The contexts are the parent's, and so are the registrations. The domains can
 * be used by the child: the next registration opens contexts of its own. */
static void drop(struct pn_ibv_domain *domain, void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < NKINDS; i++)
		atomic_store(&domain->sources[i].context, NULL);
	atomic_store(&domain->windows, NULL);
	atomic_store(&domain->nregions, 0);
}

static void in_child(void)
{
	static const pthread_rwlock_t unlocked =
		PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;

	pn_ibv_objects_in_child();
	pn_ibv_regions_in_child();
	pn_ibv_regions_orphan(NULL, false);
	for_each_domain(drop, NULL);
	atomic_store(&ncontexts, 0);
	memcpy(&users, &unlocked, sizeof(users));
	forks = false;
}

static void set_up_once(void)
{
	pthread_atfork(before_fork, in_parent, in_child);
}

static void close_or_flush(struct pn_ibv_domain *domain, void *arg)
{
	(void)arg;
	if (atomic_load(&domain->nregions))
		flush_contexts(domain);
	else
		close_contexts(domain);
}

/* Before libpinion.so's own destructors, and before those of librdmacm, which
 * close adapters. Regions that the program has left are the kernel's. A thread
 * that is still inside must not keep the process from ending. */
__attribute__((destructor)) static void end(void)
{
	if (pthread_rwlock_trywrlock(&users))
		return;
	for_each_domain(close_or_flush, NULL);
	atomic_store(&ended, true);
	pthread_rwlock_unlock(&users);
}
