/* SPDX-License-Identifier: BSD-2-Clause */
#include "ledger.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/own_registration.h"

#define KEY_BITS                                                     \
	UINT64_C(0xffffffff) /* keys have 32 bits, as those of verbs \
			      */

static _Thread_local bool releasing;

static void wrong(struct ledger *l, const char *what)
{
	if (!l->wrong++)
		snprintf(l->what, sizeof(l->what), "%s", what);
}

/* Checks that hold for every call. */
static void check_call(struct ledger *l, unsigned n)
{
	if (releasing)
		wrong(l, "called inside a release");
	if (getpid() != l->process)
		wrong(l, "called in a child");
	if (atomic_load(&l->closed))
		wrong(l, "called after pinion_close()");
	if (!pn_own_registration())
		wrong(l, "the thread is not marked as registering for pinion");
	if (!n || n > (l->registrar.max_batch ? l->registrar.max_batch : 64))
		wrong(l, "a batch of the wrong size");
	if (n > l->longest_batch)
		l->longest_batch = n;
}

static bool fails(const struct ledger_fault *fault, unsigned call)
{
	return fault->first && call >= fault->first &&
	       call - fault->first < fault->n;
}

static size_t page_bytes(const struct ledger_entry *e)
{
	uintptr_t start = (uintptr_t)e->addr & ~(LEDGER_PAGE - 1);
	uintptr_t end = ((uintptr_t)e->addr + e->len + LEDGER_PAGE - 1) &
			~(LEDGER_PAGE - 1);

	return end - start;
}

static void count(struct ledger *l, const struct ledger_entry *e, bool live)
{
	l->nlive += live ? 1 : -1u;
	l->live_bytes += live ? page_bytes(e) : -page_bytes(e);
	if (l->nlive > l->max_live)
		l->max_live = l->nlive;
	if (l->live_bytes > l->max_live_bytes)
		l->max_live_bytes = l->live_bytes;
}

static void enter(struct ledger *l, struct pinion_registrar_range *r)
{
	struct ledger_entry *e = calloc(1, sizeof(*e));
	uint64_t number = ++l->nranges;

	*e = (struct ledger_entry){ .addr = r->addr,
				    .len = r->len,
				    .access = r->access,
				    .tick = atomic_load(&l->tick),
				    .older = l->newest };
	/* The keys of the first entry are 0. */
	e->local_key = (number - 1) & KEY_BITS;
	e->remote_key = (number - 1) << 8 & KEY_BITS;
	l->newest = e;
	count(l, e, true);
	r->handle = e;
	r->local_key = e->local_key;
	r->remote_key = e->remote_key;
}

static int register_ranges(void *arg,
			   struct pinion_registrar_range *const *ranges,
			   unsigned n)
{
	struct ledger *l = arg;
	int ret = 0;

	if (l->inside)
		l->inside(l);
	pthread_mutex_lock(&l->lock);
	check_call(l, n);
	if (fails(&l->fail_register, ++l->nregister))
		ret = l->fail_register.error;
	for (unsigned i = 0; i < n && !ret; i++) {
		if (l->registrar.max_registration_bytes &&
		    ranges[i]->len > l->registrar.max_registration_bytes)
			wrong(l, "a range longer than the limit");
		if (l->check_range && !l->check_range(l, ranges[i]))
			wrong(l, "a range that nobody asked for");
		enter(l, ranges[i]);
	}
	pthread_mutex_unlock(&l->lock);
	return ret;
}

static void leave(struct ledger *l, const struct pinion_registrar_range *r)
{
	struct ledger_entry *e = r->handle;

	if (e->dead)
		wrong(l, "deregistered twice");
	if (e->addr != r->addr || e->len != r->len || e->access != r->access ||
	    e->local_key != r->local_key || e->remote_key != r->remote_key ||
	    r->status)
		wrong(l, "not handed back as it was registered");
	count(l, e, false);
	e->dead = true;
}

static int deregister_ranges(void *arg,
			     struct pinion_registrar_range *const *ranges,
			     unsigned n)
{
	struct ledger *l = arg;
	bool names;
	int ret = 0;

	if (l->inside)
		l->inside(l);
	pthread_mutex_lock(&l->lock);
	check_call(l, n);
	names = l->fail_deregister.names_one;
	if (fails(&l->fail_deregister, ++l->nderegister))
		ret = l->fail_deregister.error;
	if (ret && names)
		ranges[0]->status = ret;
	for (unsigned i = ret && names ? 1 : 0; i < n && (!ret || names); i++)
		leave(l, ranges[i]);
	pthread_mutex_unlock(&l->lock);
	return ret;
}

void ledger_init(struct ledger *l)
{
	*l = (struct ledger){ .process = getpid() };
	l->registrar = (struct pinion_registrar){
		.size = sizeof(l->registrar),
		.arg = l,
		.register_ranges = register_ranges,
		.deregister_ranges = deregister_ranges,
	};
	pthread_mutex_init(&l->lock, NULL);
	l->area = mmap(NULL, LEDGER_PAGES * LEDGER_PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

void ledger_fail(struct ledger *l, struct ledger_fault *which,
		 struct ledger_fault fault)
{
	pthread_mutex_lock(&l->lock);
	*which = fault;
	pthread_mutex_unlock(&l->lock);
}

void ledger_fini(struct ledger *l)
{
	while (l->newest) {
		struct ledger_entry *older = l->newest->older;

		free(l->newest);
		l->newest = older;
	}
	munmap(l->area, LEDGER_PAGES * LEDGER_PAGE);
	pthread_mutex_destroy(&l->lock);
}

int ledger_open(struct ledger *l, const char *const *options,
		struct pinion_context **out)
{
	struct pinion_attr attr = { .size = sizeof(attr),
				    .options = options,
				    .registrar = &l->registrar };

	atomic_store(&l->closed, false);
	return pinion_open(&attr, out);
}

void ledger_close(struct ledger *l, struct pinion_context *context)
{
	pinion_close(context);
	atomic_store(&l->closed, true);
}

/* Whether memory of the entry was released after its registration. */
static bool is_stale(struct ledger *l, const struct ledger_entry *e,
		     const struct pinion_pin *pin)
{
	size_t first = (size_t)((char *)pin->addr - l->area) / LEDGER_PAGE;
	size_t last = (size_t)((char *)pin->addr + pin->len - 1 - l->area) /
		      LEDGER_PAGE;

	for (size_t i = first; i <= last && i < LEDGER_PAGES; i++)
		if (atomic_load(&l->released[i]) > e->tick)
			return true;
	return false;
}

const char *ledger_use(struct ledger *l, const struct pinion_pin *pin,
		       unsigned access)
{
	const struct ledger_entry *e = pin->handle;
	const char *start = pin->addr;

	if (pin->nsegments != 1)
		return "more than one segment";
	if (!e)
		return "no handle";
	if (atomic_load(&e->dead))
		return "a handle that was deregistered";
	if (pin->local_key != e->local_key || pin->remote_key != e->remote_key)
		return "keys of another range";
	if (start < e->addr || start + pin->len > e->addr + e->len)
		return "a range that does not hold the buffer";
	if (access & ~e->access & ~(unsigned)PINION_ACCESS_RELAXED)
		return "too little access";
	return is_stale(l, e, pin) ? "memory that was released" : NULL;
}

/* Called before the release: entries up to now are of the old pages. */
static void release(struct ledger *l, void *addr, size_t len)
{
	uint64_t tick = atomic_fetch_add(&l->tick, 1) + 1;
	size_t first = (size_t)((char *)addr - l->area) / LEDGER_PAGE;

	for (size_t i = 0; i < len / LEDGER_PAGE; i++)
		atomic_store(&l->released[first + i], tick);
}

void ledger_remap(struct ledger *l, void *addr, size_t len)
{
	release(l, addr, len);
	releasing = true;
	munmap(addr, len);
	releasing = false;
	mmap(addr, len, PROT_READ | PROT_WRITE,
	     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

void ledger_discard(struct ledger *l, void *addr, size_t len)
{
	release(l, addr, len);
	releasing = true;
	madvise(addr, len, MADV_DONTNEED);
	releasing = false;
}
