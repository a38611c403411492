/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An unmodified libfabric program under the hook, over real providers:
 *
 *   test_hook_fabric tcp|verbs|shm [ADDRESS [count | rounds BUFFERS]]
 *
 * FI_HOOK and FI_PROVIDER_PATH name the hook; PINION_KEEP_REMOTE says whether
 * memory with remote access is kept. Two sides in one process, each with a
 * domain and an endpoint. One side writes to and reads from memory of the other
 * and registers around each transfer; every byte is compared. Without the hook
 * the program passes, too, except for what it expects to be kept.
 *
 * HOOK_COUNTER is the file of a hook provider (count_hook.c), which is put
 * below the others: it counts the registrations that reach the core provider.
 * `rounds`: registers so many buffers again and again, for check_repetition.
 */
#include "test.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../monitor/releases.h"
#include "base/clock.h"

#define KIB	    ((size_t)1 << 10)
#define MIB	    ((size_t)1 << 20)
#define PATIENCE_NS (60 * PN_NS_PER_S)
#define LOCAL	    (FI_SEND | FI_RECV | FI_READ | FI_WRITE)
#define REMOTE	    (FI_REMOTE_READ | FI_REMOTE_WRITE)

static const char *provider, *address;
static bool keeps_remote, hooked;

/* --- two sides ------------------------------------------------------------ */

struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	fi_addr_t peer;
};

struct pair {
	struct side a, b;
};

/* tcp and shm leave keys to the program, unless it asks for FI_MR_BASIC. */
static int mr_mode(void)
{
	return strncmp(provider, "verbs", 5)
		       ? 1 << 0
		       : FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
				 FI_MR_PROV_KEY;
}

static bool find(struct fi_info **out)
{
	struct fi_info *hints = fi_allocinfo();
	int ret;

	hints->caps = FI_MSG | FI_RMA;
	/* For atomics, ofi_rxm has a table of MRs by key. */
	if (strchr(provider, ';'))
		hints->caps |= FI_ATOMIC;
	hints->ep_attr->type = FI_EP_RDM;
	/* A completion of verbs implies delivery. */
	if (strncmp(provider, "verbs", 5))
		hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	hints->fabric_attr->prov_name = strdup(provider);
	hints->domain_attr->mr_mode = mr_mode();
	ret = fi_getinfo(FI_VERSION(1, 17), address, NULL,
			 address ? FI_SOURCE : 0, hints, out);
	fi_freeinfo(hints);
	return !ret;
}

static void open_domain(struct side *s)
{
	assert_true(find(&s->info));
	assert_ok(fi_fabric(s->info->fabric_attr, &s->fabric, NULL));
	assert_ok(fi_domain(s->fabric, s->info, &s->domain, NULL));
}

static void close_domain(struct side *s)
{
	assert_ok(fi_close(&s->domain->fid));
	assert_ok(fi_close(&s->fabric->fid));
	fi_freeinfo(s->info);
}

static void open_side(struct side *s)
{
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_CONTEXT };

	open_domain(s);
	assert_ok(fi_av_open(s->domain, &av, &s->av, NULL));
	assert_ok(fi_cq_open(s->domain, &cq, &s->cq, NULL));
	assert_ok(fi_endpoint(s->domain, s->info, &s->ep, NULL));
	assert_ok(fi_ep_bind(s->ep, &s->av->fid, 0));
	assert_ok(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV));
	assert_ok(fi_enable(s->ep));
}

static void close_side(struct side *s)
{
	assert_ok(fi_close(&s->ep->fid));
	assert_ok(fi_close(&s->cq->fid));
	assert_ok(fi_close(&s->av->fid));
	close_domain(s);
}

static void meet(struct side *s, struct side *other)
{
	char name[512];
	size_t len = sizeof(name);

	assert_ok(fi_getname(&other->ep->fid, name, &len));
	assert_int_equal(fi_av_insert(s->av, name, 1, &s->peer, 0, NULL), 1);
}

static void open_pair(struct pair *pair)
{
	*pair = (struct pair){ 0 };
	open_side(&pair->a);
	open_side(&pair->b);
	meet(&pair->a, &pair->b);
	meet(&pair->b, &pair->a);
}

static void close_pair(struct pair *pair)
{
	close_side(&pair->a);
	close_side(&pair->b);
}

static struct fid_mr *reg(struct side *s, void *at, size_t len, uint64_t access)
{
	struct fid_mr *mr;

	assert_ok(fi_mr_reg(s->domain, at, len, access, 0, 0, 0, &mr, NULL));
	return mr;
}

static char *map(size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

/* --- transfers ------------------------------------------------------------ */

/* 1: a completion; -1: an error; 0: none. Both sides make progress. */
static int poll_pair(struct pair *pair)
{
	struct fi_cq_entry entry;
	struct fi_cq_err_entry error = { 0 };
	ssize_t ret = fi_cq_read(pair->a.cq, &entry, 1);

	if (ret == -FI_EAVAIL)
		assert_int_equal(fi_cq_readerr(pair->a.cq, &error, 0), 1);
	else if (ret != 1)
		fi_cq_read(pair->b.cq, &entry, 0);
	return ret == 1 ? 1 : ret == -FI_EAVAIL ? -1 : 0;
}

struct transfer {
	bool is_write;
	char *mine, *theirs;
	size_t len;
	struct fid_mr *local;
	uint64_t key;
};

static ssize_t post(const struct side *s, const struct transfer *t)
{
	void *desc = fi_mr_desc(t->local);
	uint64_t addr = (uintptr_t)t->theirs;

	return t->is_write ? fi_write(s->ep, t->mine, t->len, desc, s->peer,
				      addr, t->key, NULL)
			   : fi_read(s->ep, t->mine, t->len, desc, s->peer,
				     addr, t->key, NULL);
}

/* 1: done; -1: refused. */
static int transfer(struct pair *pair, const struct transfer *t)
{
	uint64_t until = pn_clock_ns() + PATIENCE_NS;
	int ret = 0;

	while (post(&pair->a, t) == -FI_EAGAIN) {
		assert_int_equal(poll_pair(pair), 0);
		assert_true(pn_clock_ns() < until);
	}
	while (!ret) {
		ret = poll_pair(pair);
		assert_true(pn_clock_ns() < until);
		sched_yield();
	}
	return ret;
}

static void fill(char *at, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i++)
		at[i] = (char)(seed + i * 7 + (i >> 8));
}

/* Registers on both sides, moves, compares, closes in either order. */
static void move_once(struct pair *pair, struct transfer t, unsigned seed)
{
	struct fid_mr *remote = reg(&pair->b, t.theirs, t.len, LOCAL | REMOTE);

	t.local = reg(&pair->a, t.mine, t.len, FI_READ | FI_WRITE);
	t.key = fi_mr_key(remote);
	fill(t.is_write ? t.mine : t.theirs, t.len, seed);
	memset(t.is_write ? t.theirs : t.mine, 0, t.len);
	assert_int_equal(transfer(pair, &t), 1);
	assert_memory_equal(t.mine, t.theirs, t.len);
	assert_ok(fi_close(seed % 2 ? &remote->fid : &t.local->fid));
	assert_ok(fi_close(seed % 2 ? &t.local->fid : &remote->fid));
}

/* --- the tests ------------------------------------------------------------ */

/* The hook gives local memory a key that no provider has. Whether the core
 * provider's registration is the same shows in the descriptor, where no utility
 * provider is above it. The same descriptor may stand for another registration
 * in the same storage, so the storage of a freed one is taken in between. */
static void local_memory_stays_registered(void **state)
{
	bool sees_core = hooked && !strchr(provider, ';');
	char *memory = map(64 * KIB);
	struct side s = { 0 };
	struct fid_mr *first, *second;
	void *desc, *taken[64];

	(void)state;
	open_domain(&s);
	first = reg(&s, memory, 4 * KIB, FI_READ | FI_WRITE);
	second = reg(&s, memory, 4 * KIB, FI_READ | FI_WRITE);
	assert_int_equal(fi_mr_key(first) >> 62, hooked);
	assert_int_not_equal(fi_mr_key(first), fi_mr_key(second));
	desc = fi_mr_desc(first);
	if (sees_core)
		assert_ptr_equal(fi_mr_desc(second), desc);
	assert_ok(fi_close(&second->fid));
	assert_ok(fi_close(&first->fid));
	for (unsigned i = 0; i < PN_ARRAY_LEN(taken); i++)
		taken[i] = malloc(16 * (i + 1));
	first = reg(&s, memory, 4 * KIB, FI_READ | FI_WRITE);
	if (sees_core)
		assert_ptr_equal(fi_mr_desc(first), desc);
	assert_ok(fi_close(&first->fid));
	for (unsigned i = 0; i < PN_ARRAY_LEN(taken); i++)
		free(taken[i]);
	close_domain(&s);
	munmap(memory, 64 * KIB);
}

static void every_byte_arrives(void **state)
{
	static const size_t lens[] = { 1, 100, 4096, 5000, 100000, MIB };
	char *mine = map(2 * MIB), *theirs = map(2 * MIB);
	struct pair pair;

	(void)state;
	open_pair(&pair);
	for (unsigned i = 0; i < 6 * PN_ARRAY_LEN(lens); i++) {
		size_t len = lens[i / 6];
		struct transfer t = { .is_write = i % 2,
				      .mine = mine + 100 * (i % 3),
				      .theirs = theirs + 300 * (i % 3),
				      .len = len };

		move_once(&pair, t, i);
	}
	close_pair(&pair);
	munmap(mine, 2 * MIB);
	munmap(theirs, 2 * MIB);
}

/* The peer keeps the key beyond fi_close(): by default the write is refused.
 * shm (libfabric 1.17) reports the error to the target only. */
static void a_key_that_was_given_up_is_refused(void **state)
{
	char *mine = map(4 * KIB), *theirs = map(4 * KIB);
	struct transfer t = {
		.is_write = true, .mine = mine, .theirs = theirs, .len = 4 * KIB
	};
	struct fid_mr *remote;
	struct pair pair;

	(void)state;
	open_pair(&pair);
	remote = reg(&pair.b, theirs, 4 * KIB, LOCAL | REMOTE);
	t.local = reg(&pair.a, mine, 4 * KIB, FI_WRITE);
	t.key = fi_mr_key(remote);
	memset(mine, 'a', 4 * KIB);
	assert_int_equal(transfer(&pair, &t), 1);
	assert_memory_equal(mine, theirs, 4 * KIB);
	assert_ok(fi_close(&remote->fid));
	memset(mine, 'b', 4 * KIB);
	if (keeps_remote && hooked) {
		/* Nothing was asked to be safe. */
	} else if (!strcmp(provider, "shm")) {
		while (post(&pair.a, &t) == -FI_EAGAIN)
			poll_pair(&pair);
		for (unsigned i = 0; i < 1000; i++)
			assert_int_equal(poll_pair(&pair), 0);
	} else {
		assert_int_equal(transfer(&pair, &t), -1);
	}
	for (size_t i = 0; i < 4 * KIB; i++)
		assert_int_equal(theirs[i], 'a');
	assert_ok(fi_close(&t.local->fid));
	close_pair(&pair);
	munmap(mine, 4 * KIB);
	munmap(theirs, 4 * KIB);
}

/* The memory is the source, or the target. */
static bool new_bytes_arrive(struct pair *pair, const struct release_case *c,
			     char *other, bool is_target)
{
	struct transfer t = { .is_write = true };
	struct scene s = { 0 };
	bool again;

	/* What is freed stays with a sanitizer's allocator. */
	if ((HOOK_SANITIZED && !c->exact) || !c->prepare(&s))
		return false;
	t.len = s.len < 64 * KIB ? s.len : 64 * KIB;
	t.mine = is_target ? other : s.target;
	t.theirs = is_target ? s.target : other;
	move_once(pair, t, 2);
	if (!c->release(&s)) {
		printf("%-28s refused by this system\n", c->name);
		return false;
	}
	again = release_map_again(c, &s);
	if (again)
		move_once(pair, t, 3);
	release_clean(c, &s);
	return again;
}

static void after_every_kind_of_release_new_bytes_arrive(void **state)
{
	char *other = map(64 * KIB);
	struct pair pair;
	size_t n = 0;

	(void)state;
	open_pair(&pair);
	for (size_t i = 0; i < 2 * nrelease_cases; i++)
		n += new_bytes_arrive(&pair, &release_cases[i / 2], other,
				      i % 2);
	assert_true(n > nrelease_cases);
	close_pair(&pair);
	munmap(other, 64 * KIB);
}

/* --- how often the provider registers --------------------------------------
 */

enum { NBUFFERS = 4, NTRANSFERS = 200 };

/* What reached the core provider so far. NULL: nobody counts. */
static unsigned long (*counted)(void);

/* Names the counter as the first hook, before libfabric reads names. */
static void add_counter(void)
{
	const char *file = getenv("HOOK_COUNTER"), *hook = getenv("FI_HOOK");
	const char *path = getenv("FI_PROVIDER_PATH");
	char text[4096];

	if (!file)
		return;
	snprintf(text, sizeof(text), "ofi_hook_count%s%s", hook ? ";" : "",
		 hook ? hook : "");
	setenv("FI_HOOK", text, 1);
	snprintf(text, sizeof(text), "%s%s%.*s", path ? path : "",
		 path ? ":" : "", (int)(strrchr(file, '/') - file), file);
	setenv("FI_PROVIDER_PATH", text, 1);
}

static void find_counter(void)
{
	const char *file = getenv("HOOK_COUNTER");
	void *library = file ? dlopen(file, RTLD_NOW | RTLD_NOLOAD) : NULL;

	if (!file)
		return;
	assert_non_null(library);
	*(void **)&counted = dlsym(library, "count_hook_registrations");
	assert_non_null(counted);
}

enum around { ONCE, LOCAL_AROUND, REMOTE_AROUND };

/* Writes from NBUFFERS buffers in turns; one end is registered around each
 * write, or none. Returns the time of a write. */
static double write_all(struct pair *pair, char *mine, char *theirs,
			enum around around)
{
	const size_t len = 4 * KIB;
	struct fid_mr *local =
		around == LOCAL_AROUND
			? NULL
			: reg(&pair->a, mine, NBUFFERS * len, FI_WRITE);
	struct fid_mr *remote = reg(&pair->b, theirs, len, LOCAL | REMOTE);
	uint64_t start = pn_clock_ns(), took;

	for (unsigned i = 0; i < NTRANSFERS; i++) {
		struct transfer t = { .is_write = true,
				      .mine = mine + i % NBUFFERS * len,
				      .theirs = theirs,
				      .len = len,
				      .local = local,
				      .key = fi_mr_key(remote) };
		struct fid_mr *mr = NULL;

		if (around == LOCAL_AROUND)
			mr = t.local = reg(&pair->a, t.mine, len, FI_WRITE);
		if (around == REMOTE_AROUND) {
			t.theirs += (1 + i % NBUFFERS) * len;
			mr = reg(&pair->b, t.theirs, len, LOCAL | REMOTE);
			t.key = fi_mr_key(mr);
		}
		t.mine[i] = (char)i;
		assert_int_equal(transfer(pair, &t), 1);
		assert_memory_equal(t.mine, t.theirs, len);
		if (mr)
			assert_ok(fi_close(&mr->fid));
	}
	took = pn_clock_ns() - start;
	if (local)
		assert_ok(fi_close(&local->fid));
	assert_ok(fi_close(&remote->fid));
	return (double)took / 1e3 / NTRANSFERS;
}

static void registrations_fall_to_one_per_buffer(void **state)
{
	static const char *const names[] = { "once", "around, local",
					     "around, remote" };
	const size_t bytes = (NBUFFERS + 1) * 4 * KIB;
	char *mine = map(bytes), *theirs = map(bytes);
	unsigned long n[3];
	struct pair pair;

	(void)state;
	open_pair(&pair);
	find_counter();
	/* Connects, and what is registered for that is counted here. */
	write_all(&pair, mine, theirs, ONCE);
	for (enum around i = ONCE; i <= REMOTE_AROUND; i++) {
		unsigned long before = counted ? counted() : 0;
		double us = write_all(&pair, mine, theirs, i);

		n[i] = counted ? counted() - before : 0;
		printf("%-14s %8.1f us, %lu registrations for %d writes\n",
		       names[i], us, n[i], NTRANSFERS);
	}
	if (counted) {
		unsigned most = NBUFFERS + 2;

		assert_true(n[ONCE] <= 2);
		assert_true(hooked ? n[LOCAL_AROUND] <= most
				   : n[LOCAL_AROUND] == NTRANSFERS + 1);
		assert_true(hooked && keeps_remote
				    ? n[REMOTE_AROUND] <= most
				    : n[REMOTE_AROUND] >= NTRANSFERS);
	}
	close_pair(&pair);
	munmap(mine, bytes);
	munmap(theirs, bytes);
}

static void register_all(struct side *s, char *memory, size_t n)
{
	const size_t len = 4 * KIB;

	for (size_t i = 0; i < n; i++) {
		uint64_t access = i % 2 ? FI_READ | FI_WRITE : LOCAL | REMOTE;
		struct fid_mr *mr = reg(s, memory + i * len, len, access);

		assert_ok(fi_close(&mr->fid));
	}
}

/* Two names, for check_repetition. */
#define ROUND(name)                                                        \
	__attribute__((noinline)) static void name(struct side *s,         \
						   char *memory, size_t n) \
	{                                                                  \
		register_all(s, memory, n);                                \
		__asm__ volatile("/* " #name " */");                       \
	}

ROUND(second_round)
ROUND(last_round)

static size_t nbuffers = HOOK_BUFFERS;

/* Again and again: nothing grows. */
static void many_registrations_leave_nothing(void **state)
{
	const unsigned rounds = 60;
	const size_t n = nbuffers, len = 4 * KIB;
	char *memory = map(n * len);
	struct side s = { 0 };
	size_t pages = 0;

	(void)state;
	open_domain(&s);
	register_all(&s, memory, n);
	second_round(&s, memory, n);
	pages = test_mapped_pages();
	for (unsigned round = 3; round < rounds; round++)
		register_all(&s, memory, n);
	last_round(&s, memory, n);
	printf("%zu pages after 2 rounds, %zu after %u\n", pages,
	       test_mapped_pages(), rounds);
	/* Threads of pinion may have started meanwhile; a leak of one word per
	 * registration is 1,100 pages. */
	assert_true(test_mapped_pages() < pages + 512);
	close_domain(&s);
	munmap(memory, n * len);
}

struct thread {
	struct side *s;
	char *memory;
	unsigned nwrong;
};

static void *register_in_thread(void *arg)
{
	struct thread *t = arg;

	for (unsigned i = 0; i < 1000; i++) {
		uint64_t access = i % 2 ? FI_WRITE : LOCAL | REMOTE;
		struct fid_mr *mr;

		if (fi_mr_reg(t->s->domain, t->memory + i % 16 * KIB, 8 * KIB,
			      access, 0, 0, 0, &mr, NULL) ||
		    fi_close(&mr->fid))
			t->nwrong++;
	}
	return NULL;
}

static void threads_register_the_same_memory(void **state)
{
	char *memory = map(64 * KIB);
	struct side s = { 0 };
	struct thread threads[4];
	pthread_t ids[4];

	(void)state;
	open_domain(&s);
	for (unsigned i = 0; i < 4; i++) {
		threads[i] = (struct thread){ &s, memory, 0 };
		assert_ok(pthread_create(&ids[i], NULL, register_in_thread,
					 &threads[i]));
	}
	for (unsigned i = 0; i < 4; i++) {
		pthread_join(ids[i], NULL);
		assert_int_equal(threads[i].nwrong, 0);
	}
	close_domain(&s);
	munmap(memory, 64 * KIB);
}

static void a_fork_disturbs_nothing(void **state)
{
	char *mine = map(64 * KIB), *theirs = map(64 * KIB);
	struct transfer t = { .is_write = true,
			      .mine = mine,
			      .theirs = theirs,
			      .len = 64 * KIB };
	struct pair pair;
	pid_t child;
	int status;

	(void)state;
	open_pair(&pair);
	move_once(&pair, t, 1);
	child = fork();
	if (!child)
		_exit(mine[5000] == theirs[5000] ? 0 : 1);
	/* Copy on write: the pages are others now. */
	memset(mine, 1, 64 * KIB);
	memset(theirs, 2, 64 * KIB);
	move_once(&pair, t, 2);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	close_pair(&pair);
	munmap(mine, 64 * KIB);
	munmap(theirs, 64 * KIB);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(local_memory_stays_registered),
		TEST(every_byte_arrives),
		TEST(a_key_that_was_given_up_is_refused),
		TEST(after_every_kind_of_release_new_bytes_arrive),
		TEST(registrations_fall_to_one_per_buffer),
		TEST(many_registrations_leave_nothing),
		TEST(threads_register_the_same_memory),
		TEST(a_fork_disturbs_nothing),
	};
	const struct CMUnitTest count[] = {
		TEST(registrations_fall_to_one_per_buffer),
	};
	const struct CMUnitTest repeat[] = {
		TEST(many_registrations_leave_nothing),
	};
	const char *hook = getenv("FI_HOOK");
	const char *remote = getenv("PINION_KEEP_REMOTE");
	struct fi_info *info;

	hooked = hook && strstr(hook, "pinion");
	keeps_remote = remote && !strcmp(remote, "yes");
	add_counter();
	/* Queues of rxm for more do not fit into rxe. */
	setenv("FI_UNIVERSE_SIZE", "4", 0);
	provider = argc < 2 || !strcmp(argv[1], "tcp") ? "tcp;ofi_rxm"
		   : !strcmp(argv[1], "verbs")	       ? "verbs;ofi_rxm"
						       : argv[1];
	address = argc > 2 ? argv[2] : NULL;
	if (!find(&info)) {
		printf("skipped: no provider %s here\n", provider);
		return TEST_SKIP;
	}
	fi_freeinfo(info);
	if (argc > 4) {
		nbuffers = strtoul(argv[4], NULL, 0);
		return RUN_TESTS(repeat);
	}
	return argc > 3 ? RUN_TESTS(count) : RUN_TESTS(tests);
}
