/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A context over a protection domain of the program's own, which writes, reads
 * and adds between two queue pairs of its own:
 *
 *   test_registrar_verbs [ADAPTER]
 *
 * Without an adapter only what is refused is tested. tests/vm/suite names one.
 */
#include "maps.h"
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include <pinion/pinion.h>
#include <pinion/verbs.h>

#include "../../examples/porting/verbs_pair.h"

#define KIB	 ((size_t)1 << 10)
#define MIB	 ((size_t)1 << 20)
#define NBUFFERS 10000

static const char *adapter;

struct world {
	struct pair pair;
	struct pinion_context *context;
};

static void open_world(struct world *w, const char *budget)
{
	const char *const options[] = { "log=none", budget, NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };

	*w = (struct world){ 0 };
	pair_open(&w->pair, adapter);
	assert_ok(pinion_verbs_open(w->pair.pd, &attr, &w->context));
}

/* Which fails if anything is registered still. */
static void close_world(struct world *w)
{
	pinion_close(w->context);
	pair_close(&w->pair);
}

static struct pinion_cache_stats query(const struct world *w)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };

	assert_ok(pinion_cache_query(w->context, &stats));
	return stats;
}

static void pin(struct world *w, void *addr, size_t len, unsigned flags,
		struct pinion_pin *out)
{
	const struct ibv_mr *mr;

	assert_ok(pinion_pin(w->context, addr, len, flags, out));
	mr = pinion_verbs_mr(out);
	assert_non_null(mr);
	assert_ptr_equal(mr->pd, w->pair.pd);
	assert_true((uintptr_t)mr->addr <= (uintptr_t)addr);
	assert_true((uintptr_t)addr + len <= (uintptr_t)mr->addr + mr->length);
	assert_int_equal(pinion_verbs_lkey(out), mr->lkey);
}

static struct ibv_sge sge_of(const struct pinion_pin *pin)
{
	return (struct ibv_sge){ (uintptr_t)pin->addr, (uint32_t)pin->len,
				 pinion_verbs_lkey(pin) };
}

static enum ibv_wc_status transfer(struct world *w, enum ibv_wr_opcode opcode,
				   const struct pinion_pin *mine,
				   const struct pinion_pin *theirs)
{
	return pair_do(&w->pair, opcode, sge_of(mine), theirs->addr,
		       pinion_verbs_rkey(theirs));
}

static void fill(char *buf, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (char)(seed + i * 31 + (i >> 8));
}

static void write_and_compare(struct world *w, char *from, char *to, size_t len,
			      uint64_t seed)
{
	struct pinion_pin mine, theirs;

	fill(from, len, seed);
	memset(to, 0, len);
	pin(w, from, len, 0, &mine);
	pin(w, to, len, PINION_ACCESS_REMOTE_WRITE, &theirs);
	pair_write(&w->pair, from, len, pinion_verbs_lkey(&mine), to,
		   pinion_verbs_rkey(&theirs));
	assert_memory_equal(from, to, len);
	pinion_unpin(w->context, &mine);
	pinion_unpin(w->context, &theirs);
}

static void read_and_compare(struct world *w, char *from, char *to, size_t len,
			     uint64_t seed)
{
	struct pinion_pin mine, theirs;

	fill(from, len, seed);
	memset(to, 0, len);
	pin(w, to, len, PINION_ACCESS_LOCAL_WRITE, &mine);
	pin(w, from, len, PINION_ACCESS_REMOTE_READ, &theirs);
	assert_int_equal(transfer(w, IBV_WR_RDMA_READ, &mine, &theirs),
			 IBV_WC_SUCCESS);
	assert_memory_equal(from, to, len);
	pinion_unpin(w->context, &mine);
	pinion_unpin(w->context, &theirs);
}

/* --- the tests ------------------------------------------------------------ */

static void pinned_memory_is_written_and_read(void **state)
{
	static const size_t lengths[] = { 1, 100, 4096, 100 * 1000, 2 << 20 };
	char *mine = map_at(NULL, 3 * MIB), *theirs = map_at(NULL, 3 * MIB);
	struct world w;

	(void)state;
	open_world(&w, NULL);
	for (unsigned i = 0; i < 2 * PN_ARRAY_LEN(lengths); i++) {
		size_t len = lengths[i / 2];

		write_and_compare(&w, mine + 13, theirs + 4000, len, i);
		read_and_compare(&w, theirs + 777, mine + 13, len, i);
	}
	assert_true(query(&w).hits > 0);
	close_world(&w);
	munmap(mine, 3 * MIB);
	munmap(theirs, 3 * MIB);
}

static void heap_memory_needs_no_registration_of_its_own(void **state)
{
	struct pinion_heap_attr keep = { .size = sizeof(keep),
					 .return_us = PINION_HEAP_KEEP };
	struct pinion_heap *heap;
	struct world w;

	(void)state;
	open_world(&w, NULL);
	assert_ok(pinion_heap_open(w.context, &keep, &heap));
	for (unsigned i = 0; i < 50; i++) {
		size_t len = 100 + i * 300;
		char *from = pinion_heap_malloc(heap, len);
		char *to = pinion_heap_malloc(heap, len);
		uint64_t before;

		assert_non_null(from);
		assert_non_null(to);
		before = query(&w).registrations;
		write_and_compare(&w, from, to, len, i);
		read_and_compare(&w, to, from, len, i);
		assert_int_equal(query(&w).registrations, before);
		if (i % 3)
			pinion_heap_free(heap, to);
	}
	close_world(&w);
}

static void a_small_budget_evicts_and_no_byte_is_lost(void **state)
{
	const size_t len = 64 * KIB, n = 64;
	char *mine = map_at(NULL, n * len), *theirs = map_at(NULL, n * len);
	struct pinion_cache_stats stats;
	struct world w;

	(void)state;
	open_world(&w, "max_bytes=2M");
	for (unsigned i = 0; i < 4 * n; i++) {
		size_t at = i * 7 % n * len;

		write_and_compare(&w, mine + at, theirs + at, len, i);
	}
	stats = query(&w);
	assert_true(stats.evictions > 0);
	assert_true(stats.peak_bytes <= 2 * MIB);
	assert_true(stats.registrations > 2 * n);
	close_world(&w);
	munmap(mine, n * len);
	munmap(theirs, n * len);
}

/* A registration of the old pages would lose the bytes, or send old ones. */
static void memory_mapped_anew_is_registered_anew(void **state)
{
	const size_t len = 256 * KIB;
	char *mine = map_at(NULL, len), *theirs = map_at(NULL, len);
	struct world w;

	(void)state;
	open_world(&w, NULL);
	for (unsigned i = 0; i < 20; i++) {
		write_and_compare(&w, mine, theirs, len, i);
		remap(i % 2 ? &mine : &theirs, len);
	}
	/* The last one is noticed by the next pin. */
	assert_true(query(&w).invalidations >= 19);
	assert_int_equal(query(&w).registrations, 21);
	close_world(&w);
	munmap(mine, len);
	munmap(theirs, len);
}

/* Small ones side by side, which peers reach to the byte and no further. */
static void ten_thousand_buffers_keep_their_keys(void **state)
{
	static char *buffers[NBUFFERS];
	char from[64];
	struct pinion_cache_stats first, second;
	struct world w;

	(void)state;
	open_world(&w, NULL);
	for (unsigned i = 0; i < NBUFFERS; i++) {
		buffers[i] = malloc(1 + i % 5000);
		assert_non_null(buffers[i]);
	}
	for (unsigned i = 0; i < NBUFFERS; i++)
		write_and_compare(&w, from, buffers[i],
				  i % 5000 < 63 ? 1 + i % 5000 : 64, i);
	first = query(&w);
	for (unsigned i = 0; i < NBUFFERS; i++)
		write_and_compare(&w, from, buffers[i],
				  i % 5000 < 63 ? 1 + i % 5000 : 64, i + 1);
	second = query(&w);
	printf("%d buffers: %llu registrations, then %llu more\n", NBUFFERS,
	       (unsigned long long)first.registrations,
	       (unsigned long long)(second.registrations -
				    first.registrations));
	/* Each buffer's, and the other side's of some lengths. */
	assert_true(first.registrations >= NBUFFERS);
	if (!second.evictions)
		assert_int_equal(second.registrations, first.registrations);
	assert_true(second.regions <= second.max_regions);
	for (unsigned i = 0; i < NBUFFERS; i++)
		free(buffers[i]);
	close_world(&w);
}

static void peers_reach_what_was_pinned_and_no_byte_more(void **state)
{
	char *mine = map_at(NULL, 4096), *theirs = map_at(NULL, 4096);
	struct pinion_pin from, to;
	struct world w;

	(void)state;
	open_world(&w, NULL);
	pin(&w, mine, 101, 0, &from);
	pin(&w, theirs + 8, 100, PINION_ACCESS_REMOTE_WRITE, &to);
	assert_int_equal(pinion_verbs_mr(&to)->length, 100);
	assert_int_equal(transfer(&w, IBV_WR_RDMA_WRITE, &from, &to),
			 IBV_WC_REM_ACCESS_ERR);
	pinion_unpin(w.context, &from);
	pinion_unpin(w.context, &to);
	close_world(&w);
	munmap(mine, 4096);
	munmap(theirs, 4096);
}

/* Two contexts over one protection domain; one ends. */
static void a_dead_key_is_refused(void **state)
{
	char *mine = map_at(NULL, 4096), *theirs = map_at(NULL, 4096);
	struct pinion_pin from, to;
	struct world w, other;

	(void)state;
	open_world(&w, NULL);
	assert_ok(pinion_verbs_open(w.pair.pd, NULL, &other.context));
	other.pair = w.pair;
	pin(&w, mine, 4096, 0, &from);
	pin(&other, theirs, 4096, PINION_ACCESS_REMOTE_WRITE, &to);
	assert_int_equal(transfer(&w, IBV_WR_RDMA_WRITE, &from, &to),
			 IBV_WC_SUCCESS);
	pinion_unpin(other.context, &to);
	pinion_close(other.context);
	assert_int_equal(transfer(&w, IBV_WR_RDMA_WRITE, &from, &to),
			 IBV_WC_REM_ACCESS_ERR);
	pinion_unpin(w.context, &from);
	close_world(&w);
	munmap(mine, 4096);
	munmap(theirs, 4096);
}

static void memory_that_cannot_be_pinned_is_refused(void **state)
{
	char *memory = map_at(NULL, 8192);
	struct pinion_pin out;
	struct world w;

	(void)state;
	open_world(&w, NULL);
	munmap(memory + 4096, 4096);
	assert_int_equal(pinion_pin(w.context, memory, 8192, 0, &out), -EFAULT);
	assert_ok(mprotect(memory, 4096, PROT_READ));
	assert_int_equal(pinion_pin(w.context, memory, 4096,
				    PINION_ACCESS_LOCAL_WRITE, &out),
			 -EFAULT);
	pin(&w, memory, 4096, 0, &out);
	assert_int_equal(pinion_verbs_rkey(&out), 0);
	pinion_unpin(w.context, &out);
	close_world(&w);
	munmap(memory, 4096);
}

static void a_protection_domain_in_use_is_not_closed(void **state)
{
	char *memory = map_at(NULL, 4096);
	struct pinion_pin out;
	struct world w;

	(void)state;
	open_world(&w, NULL);
	/* The queue pairs would keep it open, too. */
	ibv_destroy_qp(w.pair.qp[0]);
	ibv_destroy_qp(w.pair.qp[1]);
	pin(&w, memory, 4096, 0, &out);
	assert_int_equal(ibv_dealloc_pd(w.pair.pd), EBUSY);
	pinion_unpin(w.context, &out);
	/* Not in use, but registered still. */
	assert_int_equal(ibv_dealloc_pd(w.pair.pd), EBUSY);
	pin(&w, memory + 100, 100, PINION_ACCESS_REMOTE_READ, &out);
	pinion_unpin(w.context, &out);
	pinion_close(w.context);
	assert_ok(ibv_dealloc_pd(w.pair.pd));
	ibv_destroy_cq(w.pair.cq);
	ibv_close_device(w.pair.adapter);
	munmap(memory, 4096);
}

/* Adds to a number of the peer's, on adapters that can. */
static void atomics_are_granted_where_the_adapter_has_them(void **state)
{
	const unsigned atomic = PINION_ACCESS_REMOTE_ATOMIC;
	struct ibv_device_attr attr;
	uint64_t *numbers = (void *)map_at(NULL, 4096);
	struct pinion_pin old, sum;
	struct ibv_send_wr wr = { .num_sge = 1,
				  .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
				  .send_flags = IBV_SEND_SIGNALED };
	struct ibv_send_wr *bad;
	struct ibv_sge sge;
	struct ibv_wc wc;
	struct world w;

	(void)state;
	open_world(&w, NULL);
	assert_ok(ibv_query_device(w.pair.adapter, &attr));
	if (attr.atomic_cap == IBV_ATOMIC_NONE) {
		assert_int_equal(pinion_pin(w.context, numbers, 8, atomic,
					    &sum),
				 -EOPNOTSUPP);
		goto close;
	}
	pin(&w, numbers, 8, atomic, &sum);
	pin(&w, numbers + 1, 8, PINION_ACCESS_LOCAL_WRITE, &old);
	numbers[0] = 40;
	sge = sge_of(&old);
	wr.sg_list = &sge;
	wr.wr.atomic.remote_addr = (uintptr_t)numbers;
	wr.wr.atomic.rkey = pinion_verbs_rkey(&sum);
	wr.wr.atomic.compare_add = 2;
	assert_ok(ibv_post_send(w.pair.qp[0], &wr, &bad));
	while (!ibv_poll_cq(w.pair.cq, 1, &wc))
		;
	assert_int_equal(wc.status, IBV_WC_SUCCESS);
	assert_int_equal(numbers[0], 42);
	assert_int_equal(numbers[1], 40);
	pinion_unpin(w.context, &old);
	pinion_unpin(w.context, &sum);
close:
	close_world(&w);
	munmap(numbers, 4096);
}

struct pinner {
	struct world *world;
	uint64_t seed;
	unsigned errors;
	pthread_t thread;
};

static void *pin_much(void *arg)
{
	struct pinner *p = arg;
	char *memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (unsigned i = 0; i < 500; i++) {
		size_t len = 1 + test_below(&p->seed, 50000);
		size_t at = test_below(&p->seed, MIB - len);
		struct pinion_pin out;

		if (pinion_pin(p->world->context, memory + at, len,
			       i % 2 ? PINION_ACCESS_REMOTE_WRITE : 0, &out)) {
			p->errors++;
			continue;
		}
		p->errors +=
			pinion_verbs_mr(&out)->lkey != pinion_verbs_lkey(&out);
		pinion_unpin(p->world->context, &out);
		if (i % 50 == 0)
			madvise(memory, MIB / 2, MADV_DONTNEED);
	}
	munmap(memory, MIB);
	return NULL;
}

static void threads_pin_at_the_same_time(void **state)
{
	uint64_t seed = test_seed();
	struct pinner pinners[4];
	struct world w;

	(void)state;
	open_world(&w, "max_bytes=1M");
	for (unsigned i = 0; i < PN_ARRAY_LEN(pinners); i++) {
		pinners[i] = (struct pinner){ &w, test_mix(seed, i), 0, 0 };
		assert_ok(pthread_create(&pinners[i].thread, NULL, pin_much,
					 &pinners[i]));
	}
	for (unsigned i = 0; i < PN_ARRAY_LEN(pinners); i++) {
		pthread_join(pinners[i].thread, NULL);
		assert_int_equal(pinners[i].errors, 0);
	}
	close_world(&w);
}

static void bad_arguments_are_refused(void **state)
{
	struct pinion_registrar registrar = { .size = sizeof(registrar) };
	struct pinion_attr attr = { .size = sizeof(attr),
				    .registrar = &registrar };
	struct pinion_context *context = (void *)1;
	/* Not looked at before the rest is. */
	struct ibv_pd *pd = (void *)&attr;

	(void)state;
	assert_int_equal(pinion_verbs_open(NULL, NULL, &context), -EINVAL);
	assert_int_equal(pinion_verbs_open(pd, NULL, NULL), -EINVAL);
	assert_int_equal(pinion_verbs_open(pd, &attr, &context), -EINVAL);
	attr = (struct pinion_attr){ .size = 0 };
	assert_int_equal(pinion_verbs_open(pd, &attr, &context), -EINVAL);
	assert_ptr_equal(context, (void *)1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest refused[] = {
		TEST(bad_arguments_are_refused),
	};
	const struct CMUnitTest tests[] = {
		TEST(bad_arguments_are_refused),
		TEST(pinned_memory_is_written_and_read),
		TEST(heap_memory_needs_no_registration_of_its_own),
		TEST(a_small_budget_evicts_and_no_byte_is_lost),
		TEST(memory_mapped_anew_is_registered_anew),
		TEST(ten_thousand_buffers_keep_their_keys),
		TEST(peers_reach_what_was_pinned_and_no_byte_more),
		TEST(a_dead_key_is_refused),
		TEST(memory_that_cannot_be_pinned_is_refused),
		TEST(a_protection_domain_in_use_is_not_closed),
		TEST(atomics_are_granted_where_the_adapter_has_them),
		TEST(threads_pin_at_the_same_time),
	};

	adapter = argc > 1 ? argv[1] : NULL;
	return adapter ? RUN_TESTS(tests) : RUN_TESTS(refused);
}
