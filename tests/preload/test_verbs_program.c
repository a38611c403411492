/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An unmodified verbs program under libpinion-verbs.so:
 *
 *   test_verbs_program ADDRESS plain|kept|auto|remote|windows [BUFFERS]
 *   test_verbs_program ADDRESS rounds BUFFERS
 *
 * ADDRESS is the IPv4 address of an adapter. `plain`: the library is not
 * preloaded, which shows what verbs does by itself; `auto`: it is; `kept`: with
 * keep_windows=no; `remote`: with the option keep_remote; `windows`: with
 * keep_windows=yes, on an adapter that has them. BUFFERS: how many are
 * registered again and again. tests/vm/suite runs it. The program is linked
 * with libibverbs and librdmacm alone.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../monitor/releases.h"
#include "cm_pair.h"
#include "test.h"

#define KIB    ((size_t)1 << 10)
#define LOCAL  IBV_ACCESS_LOCAL_WRITE
#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

/* Registrations that a domain makes to choose: some of the program's, one to
 * measure binds, one to put windows in. */
#define NCHOICE 12

static const char *address;
static bool is_preloaded, keeps_remote, has_windows, chooses;
static unsigned nbuffers = 300;

static char *map(size_t len)
{
	char *memory = mmap(NULL, len, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	return memory;
}

static struct ibv_mr *reg(struct cm_pair *pair, void *addr, size_t len,
			  int access)
{
	struct ibv_mr *mr = ibv_reg_mr(pair->pd, addr, len, access);

	assert_non_null(mr);
	assert_ptr_equal(mr->addr, addr);
	assert_int_equal(mr->length, len);
	assert_ptr_equal(mr->pd, pair->pd);
	assert_ptr_equal(mr->context, pair->adapter);
	return mr;
}

static struct ibv_sge sge(const struct ibv_mr *mr)
{
	return (struct ibv_sge){ (uintptr_t)mr->addr, (uint32_t)mr->length,
				 mr->lkey };
}

/* Registers, deregisters, n times; how many registrations the kernel made. */
static uint64_t again(struct cm_pair *pair, void *addr, size_t len, int access,
		      unsigned n)
{
	uint64_t first = cm_mr_number(pair->pd);

	for (unsigned i = 0; i < n; i++)
		assert_ok(ibv_dereg_mr(reg(pair, addr, len, access)));
	return cm_mr_number(pair->pd) - first - 1;
}

/* --- what is kept ----------------------------------------------------------
 */

static void local_memory_is_registered_once(void **state)
{
	char *memory = map(64 * KIB);
	struct cm_pair pair;
	uint64_t n;

	(void)state;
	cm_pair_open(&pair, address);
	n = again(&pair, memory + 100, 40 * KIB, LOCAL, 100);
	print_message("local: %d registrations\n", (int)n);
	assert_int_equal(n, is_preloaded ? 1 : 100);
	assert_ok(cm_pair_close(&pair));
	munmap(memory, 64 * KIB);
}

static void memory_of_peers_is_registered_once_if_asked_for(void **state)
{
	char *memory = map(64 * KIB);
	struct cm_pair pair;
	uint64_t n;

	(void)state;
	cm_pair_open(&pair, address);
	n = again(&pair, memory + 100, 40 * KIB, REMOTE, 100);
	print_message("remote: %d registrations\n", (int)n);
	if (chooses) {
		assert_in_range(n, 1, 100 + NCHOICE);
	} else {
		assert_int_equal(n, keeps_remote || has_windows ? 1 : 100);
		assert_int_equal(cm_mrs(40 * KIB).last != 0,
				 keeps_remote || has_windows);
	}
	assert_ok(cm_pair_close(&pair));
	assert_int_equal(cm_mrs(0).n, 0);
	munmap(memory, 64 * KIB);
}

struct usage {
	size_t mappings, pages;
	uint64_t number; /* the kernel's, of registrations */
};

static struct usage usage(struct cm_pair *pair)
{
	struct usage now = { .number = cm_mr_number(pair->pd) };
	FILE *maps = fopen("/proc/self/maps", "r");
	int c;

	assert_non_null(maps);
	while ((c = getc(maps)) != EOF)
		now.mappings += c == '\n';
	fclose(maps);
	now.pages = test_mapped_pages();
	return now;
}

static void register_round(struct cm_pair *pair, char *memory, unsigned n,
			   int access)
{
	for (size_t i = 0; i < n; i++)
		assert_ok(ibv_dereg_mr(
			reg(pair, memory + i * 4 * KIB, 4 * KIB, access)));
}

/* Two names, for tests/hook/check_repetition. */
#define ROUND(name)                                                          \
	__attribute__((noinline)) static void name(struct cm_pair *pair,     \
						   char *memory, unsigned n, \
						   int access)               \
	{                                                                    \
		register_round(pair, memory, n, access);                     \
		__asm__ volatile("/* " #name " */");                         \
	}

ROUND(second_round)
ROUND(last_round)

/* Registers n buffers of a page, one after the other, in 60 rounds. What the
 * process uses after the second round and after the last. */
static void register_all(struct cm_pair *pair, unsigned n, int access,
			 struct usage out[2])
{
	char *memory = map(n * 4 * KIB);

	register_round(pair, memory, n, access);
	second_round(pair, memory, n, access);
	out[0] = usage(pair);
	for (unsigned round = 3; round < 60; round++)
		register_round(pair, memory, n, access);
	last_round(pair, memory, n, access);
	out[1] = usage(pair);
	munmap(memory, n * 4 * KIB);
}

/* Neighbours are merged in the first rounds. Threads of pinion may start
 * meanwhile; a leak of one word per registration is more. */
static void repeat(struct cm_pair *pair, unsigned n, int access, bool is_kept)
{
	struct usage use[2];
	uint64_t made;

	register_all(pair, n, access, use);
	made = use[1].number - use[0].number - 1;
	print_message("%u buffers, access %x: %d registrations in 58 rounds; "
		      "%zu mappings, then %zu; %zu pages, then %zu\n",
		      n, (unsigned)access, (int)made, use[0].mappings,
		      use[1].mappings, use[0].pages, use[1].pages);
	if (chooses && access == REMOTE)
		assert_in_range(made, 0, 58 * n + NCHOICE);
	else
		assert_int_equal(made, is_kept ? 0 : 58 * n);
	assert_true(use[1].mappings <= use[0].mappings + 16);
	assert_true(use[1].pages <= use[0].pages + 512);
}

static void many_registrations_leave_nothing(void **state)
{
	bool keeps_all = keeps_remote || has_windows;
	struct cm_pair pair;

	(void)state;
	/* More would not fit. */
	if (getenv("PINION_PROCESS_MAX_BYTES"))
		nbuffers = 50;
	cm_pair_open(&pair, address);
	repeat(&pair, is_preloaded ? nbuffers : nbuffers / 10, LOCAL,
	       is_preloaded);
	repeat(&pair, keeps_all ? nbuffers : nbuffers / 10, REMOTE, keeps_all);
	assert_ok(cm_pair_close(&pair));
	assert_int_equal(cm_mrs(0).n, 0);
}

/* On iWARP a write completes when the bytes are on their way. */
static bool arrives(const char *at, char value)
{
	for (unsigned i = 0; i < 5000; i++) {
		if (*(volatile const char *)at == value)
			return true;
		usleep(1000);
	}
	return false;
}

/* The peer, which writes `value`. */
static enum ibv_wc_status peer_tries(struct cm_pair *pair, char *to, size_t len,
				     uint32_t rkey, char value)
{
	char *from = map(64 * KIB);
	struct ibv_mr *mr = reg(pair, from, len, LOCAL);
	enum ibv_wc_status status;

	memset(from, value, len);
	status = cm_pair_do(pair, IBV_WR_RDMA_WRITE, sge(mr), to, rkey);
	assert_ok(ibv_dereg_mr(mr));
	munmap(from, 64 * KIB);
	return status;
}

static void peer_writes(struct cm_pair *pair, char *to, size_t len,
			uint32_t rkey)
{
	static char value = 10;

	assert_int_equal(peer_tries(pair, to, len, rkey, ++value),
			 IBV_WC_SUCCESS);
	assert_true(arrives(to + len - 1, value));
	assert_true(arrives(to, value));
}

static void peer_is_refused(struct cm_pair *pair, char *to, size_t len,
			    uint32_t rkey)
{
	enum ibv_wc_status status;

	to[0] = to[len - 1] = 1;
	status = peer_tries(pair, to, len, rkey, 2);
	if (pair->adapter->device->transport_type == IBV_TRANSPORT_IWARP)
		usleep(300000);
	else
		assert_int_equal(status, IBV_WC_REM_ACCESS_ERR);
	assert_int_equal(((volatile char *)to)[0], 1);
	assert_int_equal(((volatile char *)to)[len - 1], 1);
}

/* A deregistration that comes soon after ibv_dereg_mr() is too late: several
 * times. */
static void a_key_that_was_given_up_is_refused(void **state)
{
	char *memory = map(64 * KIB);
	struct cm_pair pair;
	struct ibv_mr *mr;
	uint32_t rkey;

	(void)state;
	for (unsigned i = 0; i < 10; i++) {
		cm_pair_open(&pair, address);
		for (unsigned j = 0; j < 3; j++) {
			mr = reg(&pair, memory, 4 * KIB, REMOTE);
			rkey = mr->rkey;
			peer_writes(&pair, memory, 4 * KIB, rkey);
			assert_ok(ibv_dereg_mr(mr));
		}
		if (!keeps_remote)
			peer_is_refused(&pair, memory, 4 * KIB, rkey);
		assert_ok(cm_pair_close(&pair));
	}
	munmap(memory, 64 * KIB);
}

static void peers_reach_exactly_the_bytes_of_the_program(void **state)
{
	char *memory = map(64 * KIB);
	struct cm_pair pair;
	struct ibv_mr *mr;

	(void)state;
	cm_pair_open(&pair, address);
	assert_ok(ibv_dereg_mr(reg(&pair, memory, 16 * KIB, REMOTE)));
	mr = reg(&pair, memory + 100, 200, REMOTE);
	peer_writes(&pair, memory + 100, 200, mr->rkey);
	peer_is_refused(&pair, memory + 99, 100, mr->rkey);
	assert_ok(ibv_dereg_mr(mr));
	assert_ok(cm_pair_close(&pair));
	munmap(memory, 64 * KIB);
}

static void peers_have_exactly_the_rights_of_the_program(void **state)
{
	char *memory = map(64 * KIB);
	struct cm_pair pair;
	struct ibv_mr *mr;

	(void)state;
	cm_pair_open(&pair, address);
	assert_ok(ibv_dereg_mr(reg(&pair, memory, 4 * KIB, REMOTE)));
	mr = reg(&pair, memory, 4 * KIB, LOCAL | IBV_ACCESS_REMOTE_READ);
	peer_is_refused(&pair, memory, 4 * KIB, mr->rkey);
	assert_ok(ibv_dereg_mr(mr));
	assert_ok(cm_pair_close(&pair));
	/* Local memory is open to nobody, whoever had it before. */
	cm_pair_open(&pair, address);
	assert_ok(ibv_dereg_mr(reg(&pair, memory, 4 * KIB, REMOTE)));
	mr = reg(&pair, memory, 4 * KIB, LOCAL);
	peer_is_refused(&pair, memory, 4 * KIB, mr->rkey);
	assert_ok(ibv_dereg_mr(mr));
	assert_ok(cm_pair_close(&pair));
	munmap(memory, 64 * KIB);
}

/* --- windows ---------------------------------------------------------------
 */

static struct ibv_context_ops real_ops;
static unsigned nbinds;

static int count_bind(struct ibv_qp *qp, struct ibv_mw *mw,
		      struct ibv_mw_bind *bind)
{
	nbinds++;
	return real_ops.bind_mw(qp, mw, bind);
}

/* Registers 4 MiB of memory of peers; how many registrations the kernel made.
 */
static uint64_t again_large(unsigned n, bool is_released)
{
	const size_t len = 4096 * KIB;
	char *memory = map(len);
	struct cm_pair pair;
	uint64_t first, made;

	cm_pair_open(&pair, address);
	nbinds = 0;
	real_ops = pair.adapter->ops;
	pair.adapter->ops.bind_mw = count_bind;
	first = cm_mr_number(pair.pd);
	for (unsigned i = 0; i < n; i++) {
		struct ibv_mr *mr = reg(&pair, memory, len, REMOTE);

		memory[len / 2] = (char)i;
		assert_ok(ibv_dereg_mr(mr));
		if (is_released)
			assert_ok(madvise(memory, len, MADV_DONTNEED));
	}
	made = cm_mr_number(pair.pd) - first - 1;
	print_message("4 MiB, %u times%s: %d registrations, %u binds\n", n,
		      is_released ? ", released in between" : "", (int)made,
		      nbinds);
	pair.adapter->ops.bind_mw = real_ops.bind_mw;
	assert_ok(cm_pair_close(&pair));
	munmap(memory, len);
	return made;
}

static bool is_iwarp(void)
{
	struct cm_pair pair;
	bool yes;

	cm_pair_open(&pair, address);
	yes = pair.adapter->device->transport_type == IBV_TRANSPORT_IWARP;
	assert_ok(cm_pair_close(&pair));
	return yes;
}

/* Registering 4 MiB takes six times as long as two binds, in the guest. */
static void windows_are_chosen_where_they_pay(void **state)
{
	uint64_t made;

	(void)state;
	if (!is_preloaded || keeps_remote)
		skip();
	made = again_large(300, false);
	if (is_iwarp() || (!chooses && !has_windows)) {
		assert_int_equal(made, 300);
		assert_int_equal(nbinds, 0);
		return;
	}
	assert_in_range(made, 1, has_windows ? 1 : NCHOICE);
	assert_in_range(nbinds, 2 * (300 - NCHOICE), 2 * (300 + NCHOICE));
}

/* A window in memory that is registered anew each time only adds to that. */
static void memory_that_is_released_gets_fewer_and_fewer_windows(void **state)
{
	uint64_t made;

	(void)state;
	if (!chooses)
		skip();
	made = again_large(300, true);
	assert_in_range(made, 300, 300 + NCHOICE);
	assert_in_range(nbinds, is_iwarp() ? 0 : 1, 100);
}

static int refuse_bind(struct ibv_qp *qp, struct ibv_mw *mw,
		       struct ibv_mw_bind *bind)
{
	(void)qp, (void)mw, (void)bind;
	return EINVAL;
}

static int refuse_free(struct ibv_mw *mw)
{
	(void)mw;
	return EBUSY;
}

/* The key may go on working: the program is told, and may try again. */
static void a_key_that_does_not_end_fails_ibv_dereg_mr(void **state)
{
	char *memory = map(64 * KIB);
	struct cm_pair pair;
	struct ibv_mr *mr;
	uint32_t key;

	(void)state;
	if (!has_windows)
		skip();
	cm_pair_open(&pair, address);
	mr = reg(&pair, memory, 4 * KIB, REMOTE);
	key = mr->rkey;
	real_ops = pair.adapter->ops;
	pair.adapter->ops.bind_mw = refuse_bind;
	pair.adapter->ops.dealloc_mw = refuse_free;
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(ibv_dereg_mr(mr), EBUSY);
	assert_int_equal(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL,
				      NULL, 0, LOCAL),
			 IBV_REREG_MR_ERR_INPUT);
	peer_writes(&pair, memory, 4 * KIB, key);
	pair.adapter->ops.dealloc_mw = real_ops.dealloc_mw;
	assert_ok(ibv_dereg_mr(mr));
	pair.adapter->ops.bind_mw = real_ops.bind_mw;
	assert_ok(ibv_dereg_mr(reg(&pair, memory, 4 * KIB, REMOTE)));
	peer_is_refused(&pair, memory, 4 * KIB, key);
	assert_ok(cm_pair_close(&pair));
	munmap(memory, 64 * KIB);
}

/* --- released memory -------------------------------------------------------
 */

/* On iWARP a write completes when the bytes are on their way. */
static void wait_for_bytes(const struct cm_pair *pair, const char *to,
			   const char *from, size_t len)
{
	bool is_late =
		pair->adapter->device->transport_type == IBV_TRANSPORT_IWARP;

	for (unsigned i = 0; is_late && i < 5000 && memcmp(to, from, len); i++)
		usleep(1000);
	assert_memory_equal(to, from, len);
}

/* Writes the bytes at `from` to `to`, registering them. Returns what was
 * registered. */
static struct ibv_mr *put(struct cm_pair *pair, char *from, size_t len,
			  struct ibv_mr *to)
{
	struct ibv_mr *mr = reg(pair, from, len, LOCAL);

	assert_int_equal(cm_pair_do(pair, IBV_WR_RDMA_WRITE, sge(mr), to->addr,
				    to->rkey),
			 IBV_WC_SUCCESS);
	wait_for_bytes(pair, to->addr, from, len);
	return mr;
}

static bool new_bytes_arrive(struct cm_pair *pair, const struct release_case *c,
			     struct ibv_mr *to, bool late)
{
	struct scene s = { 0 };
	struct ibv_mr *mr;
	size_t len;
	bool again;

	if (!c->prepare(&s))
		return false;
	len = pn_min_size(s.len, to->length);
	memset(s.target, 1, len);
	mr = put(pair, s.target, len, to);
	if (!late)
		assert_ok(ibv_dereg_mr(mr));
	if (!c->release(&s)) {
		print_message("%s: refused by this system\n", c->name);
		if (late)
			assert_ok(ibv_dereg_mr(mr));
		return false;
	}
	if (late)
		assert_ok(ibv_dereg_mr(mr));
	again = release_map_again(c, &s);
	if (again) {
		memset(s.target, 2, len);
		assert_ok(ibv_dereg_mr(put(pair, s.target, len, to)));
	}
	release_clean(c, &s);
	return again;
}

static void after_every_kind_of_release_new_bytes_arrive(void **state)
{
	char *there = map(64 * KIB);
	struct cm_pair pair;
	struct ibv_mr *to;
	size_t n = 0;

	(void)state;
	cm_pair_open(&pair, address);
	to = reg(&pair, there, 64 * KIB, REMOTE);
	for (size_t i = 0; i < nrelease_cases; i++)
		for (int late = 0; late < 2; late++)
			n += new_bytes_arrive(&pair, &release_cases[i], to,
					      late);
	print_message("%zu releases of %zu kinds\n", n, nrelease_cases);
	assert_true(n > nrelease_cases);
	assert_ok(ibv_dereg_mr(to));
	assert_ok(cm_pair_close(&pair));
	munmap(there, 64 * KIB);
}

/* Memory that peers write to, mapped anew between two writes. */
static void peers_write_to_new_pages(void **state)
{
	char *memory = map(64 * KIB);
	struct cm_pair pair;

	(void)state;
	cm_pair_open(&pair, address);
	for (unsigned i = 0; i < 20; i++) {
		struct ibv_mr *mr = reg(&pair, memory, 8 * KIB, REMOTE);

		peer_writes(&pair, memory, 8 * KIB, mr->rkey);
		if (i % 2)
			assert_ok(ibv_dereg_mr(mr));
		assert_ptr_equal(mmap(memory, 64 * KIB, PROT_READ | PROT_WRITE,
				      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
				      -1, 0),
				 memory);
		if (!(i % 2))
			assert_ok(ibv_dereg_mr(mr));
	}
	assert_ok(cm_pair_close(&pair));
	munmap(memory, 64 * KIB);
}

/* --- processes and threads -------------------------------------------------
 */

static void wait_for_success(pid_t child)
{
	int status;

	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* The child has the memory that the parent has deregistered, and can register
 * in adapters of its own; the parent goes on. */
static void a_child_has_all_memory(void **state)
{
	char *memory = map(64 * KIB);
	struct cm_pair pair, own;
	struct ibv_mr *held;
	pid_t child;

	(void)state;
	cm_pair_open(&pair, address);
	memset(memory, 5, 64 * KIB);
	held = reg(&pair, memory + 32 * KIB, 8 * KIB, LOCAL);
	assert_ok(ibv_dereg_mr(reg(&pair, memory, 8 * KIB, LOCAL)));
	assert_int_equal(cm_mrs(0).n, is_preloaded ? 2 : 1);
	child = fork();
	if (!child) {
		bool ok = memory[100] == 5;
		char *mine;

		memory[100] = 6;
		mine = malloc(8 * KIB);
		cm_pair_open(&own, address);
		ok = ok && mine &&
		     !ibv_dereg_mr(ibv_reg_mr(own.pd, mine, 8 * KIB, LOCAL)) &&
		     !cm_pair_close(&own);
		_exit(!ok);
	}
	wait_for_success(child);
	assert_int_equal(memory[100], 5);
	assert_int_equal(cm_mrs(0).n, 1);
	assert_int_equal(again(&pair, memory, 8 * KIB, LOCAL, 10),
			 is_preloaded ? 1 : 10);
	assert_ok(ibv_dereg_mr(held));
	assert_ok(cm_pair_close(&pair));
	munmap(memory, 64 * KIB);
}

static void run_self(const char *what)
{
	pid_t child = fork();

	if (!child) {
		execl("/proc/self/exe", "test_verbs_program", address, what,
		      NULL);
		_exit(1);
	}
	wait_for_success(child);
	/* The kernel has nothing left of it. */
	assert_int_equal(cm_mrs(0).n, 0);
}

static void programs_that_are_executed_register_too(void **state)
{
	(void)state;
	run_self("child");
}

static void a_program_may_exit_with_memory_registered(void **state)
{
	(void)state;
	run_self("leave");
}

enum { NTHREADS = 8, NTIMES = 200 };

struct thread {
	pthread_t id;
	struct cm_pair *pair;
	char *memory;
	struct ibv_mr *mr; /* of the last time, for another thread */
	int nwrong;
};

static void *register_often(void *arg)
{
	struct thread *t = arg;

	for (unsigned i = 0; i < NTIMES; i++) {
		char *at = t->memory + i % 4 * 4 * KIB;
		struct ibv_mr *mr = ibv_reg_mr(t->pair->pd, at, 4 * KIB, LOCAL);

		t->nwrong += !mr || mr->addr != at || !mr->lkey;
		if (i < NTIMES - 1)
			t->nwrong += mr && ibv_dereg_mr(mr);
		else
			t->mr = mr;
	}
	return NULL;
}

static void threads_register_the_same_memory(void **state)
{
	struct thread threads[NTHREADS];
	struct cm_pair pair;
	char *memory = map(64 * KIB);
	uint64_t first, n;

	(void)state;
	cm_pair_open(&pair, address);
	first = cm_mr_number(pair.pd);
	for (unsigned i = 0; i < NTHREADS; i++) {
		threads[i] = (struct thread){ .pair = &pair, .memory = memory };
		assert_ok(pthread_create(&threads[i].id, NULL, register_often,
					 &threads[i]));
	}
	for (unsigned i = 0; i < NTHREADS; i++) {
		pthread_join(threads[i].id, NULL);
		assert_int_equal(threads[i].nwrong, 0);
	}
	n = cm_mr_number(pair.pd) - first - 1;
	print_message("%d threads: %d registrations\n", NTHREADS, (int)n);
	if (is_preloaded)
		assert_true(n <= 16);
	else
		assert_int_equal(n, NTHREADS * NTIMES);
	/* By the main thread, which registered none of them. */
	for (unsigned i = 0; i < NTHREADS; i++)
		assert_ok(ibv_dereg_mr(threads[i].mr));
	assert_ok(cm_pair_close(&pair));
	munmap(memory, 64 * KIB);
}

/* --- protection domains, adapters, other calls -----------------------------
 */

static void a_domain_in_use_is_busy(void **state)
{
	char *memory = map(64 * KIB);
	struct cm_pair pair;
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	(void)state;
	cm_pair_open(&pair, address);
	pd = ibv_alloc_pd(pair.adapter);
	mr = ibv_reg_mr(pd, memory, 4 * KIB, LOCAL);
	assert_non_null(mr);
	assert_ok(ibv_dereg_mr(ibv_reg_mr(pd, memory + 8 * KIB, 100, LOCAL)));
	assert_int_equal(ibv_dealloc_pd(pd), EBUSY);
	assert_int_equal(cm_mrs(0).n, 1);
	assert_ok(ibv_dereg_mr(mr));
	assert_ok(ibv_dealloc_pd(pd));
	assert_int_equal(cm_mrs(0).n, 0);
	assert_ok(cm_pair_close(&pair));
	munmap(memory, 64 * KIB);
}

/* An adapter that is closed with memory registered. */
static void an_adapter_is_closed(void **state)
{
	char *memory = map(64 * KIB);
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *adapter;
	struct ibv_pd *pd;

	(void)state;
	assert_true(list && list[0]);
	for (unsigned i = 0; i < 5; i++) {
		adapter = ibv_open_device(list[0]);
		assert_non_null(adapter);
		pd = ibv_alloc_pd(adapter);
		assert_non_null(ibv_reg_mr(pd, memory, 4 * KIB, LOCAL));
		assert_ok(ibv_dereg_mr(
			ibv_reg_mr(pd, memory + 8 * KIB, 4 * KIB, LOCAL)));
		assert_ok(ibv_close_device(adapter));
		assert_int_equal(cm_mrs(0).n, 0);
	}
	ibv_free_device_list(list);
	munmap(memory, 64 * KIB);
}

static void the_budget_holds_over_two_domains(void **state)
{
	static const size_t max = 1024 * KIB;
	char *memory = map(4 * max);
	struct cm_pair pair;
	struct ibv_pd *pds[2];
	size_t most = 0;

	(void)state;
	if (!is_preloaded || !getenv("PINION_PROCESS_MAX_BYTES"))
		skip();
	cm_pair_open(&pair, address);
	for (unsigned i = 0; i < 2; i++)
		pds[i] = ibv_alloc_pd(pair.adapter);
	for (unsigned i = 0; i < 64; i++) {
		struct ibv_mr *mr =
			ibv_reg_mr(pds[i % 2], memory + i * 64 * KIB, 64 * KIB,
				   LOCAL);

		assert_non_null(mr);
		assert_ok(ibv_dereg_mr(mr));
		if (i % 8 == 7 && cm_mrs(0).bytes > most)
			most = cm_mrs(0).bytes;
	}
	print_message("%zu KiB at most, the limit is %zu\n", most / KIB,
		      max / KIB);
	assert_true(most <= max && most > max / 2);
	for (unsigned i = 0; i < 2; i++)
		assert_ok(ibv_dealloc_pd(pds[i]));
	assert_ok(cm_pair_close(&pair));
	munmap(memory, 4 * max);
}

static void lookups_find_what_programs_are_linked_with(void **state)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW);
	struct ibv_mr *(*linked)(struct ibv_pd *, void *, size_t, uint64_t,
				 unsigned) = ibv_reg_mr_iova2;

	(void)state;
	assert_non_null(library);
	assert_ptr_equal(dlsym(library, "ibv_reg_mr_iova2"), (void *)linked);
	assert_ptr_equal(dlvsym(library, "ibv_reg_mr_iova2", "IBVERBS_1.8"),
			 (void *)linked);
	assert_ptr_equal(dlvsym(library, "ibv_dereg_mr", "IBVERBS_1.1"),
			 (void *)ibv_dereg_mr);
	assert_ptr_not_equal(dlvsym(library, "ibv_dereg_mr", "IBVERBS_1.0"),
			     (void *)ibv_dereg_mr);
	assert_null(dlvsym(library, "ibv_dereg_mr", "IBVERBS_9.9"));
	assert_non_null(dlsym(library, "ibv_open_device"));
}

/* Flags that pinion does not know go to libibverbs. */
static void other_registrations_pass(void **state)
{
	static const int flags[] = { IBV_ACCESS_MW_BIND, IBV_ACCESS_ZERO_BASED,
				     IBV_ACCESS_ON_DEMAND };
	char *memory = map(64 * KIB);
	struct cm_pair pair;
	struct ibv_mr *mr;

	(void)state;
	cm_pair_open(&pair, address);
	for (size_t i = 0; i < PN_ARRAY_LEN(flags); i++) {
		mr = ibv_reg_mr(pair.pd, memory, 4 * KIB, LOCAL | flags[i]);
		print_message("flag %x: %s\n", (unsigned)flags[i],
			      mr ? "registered" : strerror(errno));
		if (mr)
			assert_ok(ibv_dereg_mr(mr));
		assert_int_equal(cm_mrs(0).n, 0);
	}
	mr = ibv_reg_mr_iova(pair.pd, memory, 4 * KIB, 0x10000, REMOTE);
	if (mr)
		assert_ok(ibv_dereg_mr(mr));
	assert_int_equal(cm_mrs(0).n, 0);
	/* Errors are libibverbs'. */
	errno = 0;
	assert_null(ibv_reg_mr(pair.pd, (void *)4096, 4 * KIB, LOCAL));
	assert_int_equal(errno, EFAULT);
	assert_null(
		ibv_reg_mr(pair.pd, memory, 4 * KIB, IBV_ACCESS_REMOTE_WRITE));
	assert_ok(cm_pair_close(&pair));
	munmap(memory, 64 * KIB);
}

/* Where the adapter has no ibv_rereg_mr(), it fails for memory of libibverbs.
 */
static void a_region_can_be_changed(void **state)
{
	char *memory = map(64 * KIB);
	struct cm_pair pair;
	struct ibv_mr *mr;

	(void)state;
	if (!is_preloaded)
		skip();
	cm_pair_open(&pair, address);
	mr = reg(&pair, memory, 4 * KIB, LOCAL);
	assert_ok(ibv_rereg_mr(mr,
			       IBV_REREG_MR_CHANGE_TRANSLATION |
				       IBV_REREG_MR_CHANGE_ACCESS,
			       NULL, memory + 8 * KIB, 4 * KIB, REMOTE));
	assert_ptr_equal(mr->addr, memory + 8 * KIB);
	peer_writes(&pair, memory + 8 * KIB, 4 * KIB, mr->rkey);
	assert_int_equal(ibv_rereg_mr(mr, 1 << 20, NULL, NULL, 0, 0),
			 IBV_REREG_MR_ERR_INPUT);
	assert_ok(ibv_dereg_mr(mr));
	assert_ok(cm_pair_close(&pair));
	munmap(memory, 64 * KIB);
}

/* --- main ------------------------------------------------------------------
 */

/* What the children of run_self() do. */
static int play(const char *what)
{
	struct cm_pair pair;
	char *memory = malloc(64 * KIB);
	struct ibv_mr *mr;

	cm_pair_open(&pair, address);
	mr = ibv_reg_mr(pair.pd, memory, 64 * KIB, LOCAL);
	if (!mr || !ibv_reg_mr(pair.pd, memory, 4 * KIB, REMOTE))
		return 1;
	return !strcmp(what, "child") && ibv_dereg_mr(mr);
}

/* For check_repetition. */
static int play_rounds(unsigned n)
{
	char *memory = map(n * 4 * KIB);
	struct cm_pair pair;

	cm_pair_open(&pair, address);
	register_round(&pair, memory, n, LOCAL);
	second_round(&pair, memory, n, LOCAL);
	for (unsigned round = 3; round < 60; round++)
		register_round(&pair, memory, n, LOCAL);
	last_round(&pair, memory, n, LOCAL);
	return cm_pair_close(&pair);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(local_memory_is_registered_once),
		TEST(memory_of_peers_is_registered_once_if_asked_for),
		TEST(many_registrations_leave_nothing),
		TEST(a_key_that_was_given_up_is_refused),
		TEST(peers_reach_exactly_the_bytes_of_the_program),
		TEST(peers_have_exactly_the_rights_of_the_program),
		TEST(windows_are_chosen_where_they_pay),
		TEST(memory_that_is_released_gets_fewer_and_fewer_windows),
		TEST(a_key_that_does_not_end_fails_ibv_dereg_mr),
		TEST(after_every_kind_of_release_new_bytes_arrive),
		TEST(peers_write_to_new_pages),
		TEST(a_child_has_all_memory),
		TEST(programs_that_are_executed_register_too),
		TEST(a_program_may_exit_with_memory_registered),
		TEST(threads_register_the_same_memory),
		TEST(a_domain_in_use_is_busy),
		TEST(an_adapter_is_closed),
		TEST(the_budget_holds_over_two_domains),
		TEST(lookups_find_what_programs_are_linked_with),
		TEST(other_registrations_pass),
		TEST(a_region_can_be_changed),
	};

	if (argc < 3) {
		puts("skipped: name the address of an adapter");
		return TEST_SKIP;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	address = argv[1];
	if (!strcmp(argv[2], "rounds"))
		return play_rounds((unsigned)strtoul(argv[3], NULL, 0));
	if (!strcmp(argv[2], "child") || !strcmp(argv[2], "leave"))
		return play(argv[2]);
	is_preloaded = strcmp(argv[2], "plain");
	keeps_remote = !strcmp(argv[2], "remote");
	has_windows = !strcmp(argv[2], "windows");
	chooses = !strcmp(argv[2], "auto");
	if (argc > 3)
		nbuffers = (unsigned)strtoul(argv[3], NULL, 0);
	return RUN_TESTS(tests);
}
