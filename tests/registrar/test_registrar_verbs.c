/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A context over a protection domain of the program, which writes, reads and
 * adds between its own two queue pairs:
 *
 *   test_registrar_verbs [ADAPTER]
 *
 * Without an adapter only refusals are tested. tests/vm/suite names an adapter.
 */
#include "transfers.h"

#include <errno.h>
#include <sys/mman.h>

#include <pinion/pinion.h>
#include <pinion/verbs.h>

#include "../../examples/porting/verbs_pair.h"

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

/* pair_close() fails if anything is still registered. */
static void close_world(struct world *w)
{
	pinion_close(w->context);
	pair_close(&w->pair);
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

static bool write_pin(void *arg, const struct pinion_pin *local,
		      const struct pinion_pin *remote)
{
	return transfer(arg, IBV_WR_RDMA_WRITE, local, remote) ==
	       IBV_WC_SUCCESS;
}

static bool read_pin(void *arg, const struct pinion_pin *local,
		     const struct pinion_pin *remote)
{
	return transfer(arg, IBV_WR_RDMA_READ, local, remote) == IBV_WC_SUCCESS;
}

/* One context plays both parts. */
static struct transport transport_of(struct world *w)
{
	return (struct transport){ .local = w->context,
				   .remote = w->context,
				   .write = write_pin,
				   .read = read_pin,
				   .arg = w };
}

/* --- the tests ------------------------------------------------------------ */

static void pinned_memory_is_written_and_read(void **state)
{
	struct transport t;
	struct world w;

	(void)state;
	open_world(&w, NULL);
	t = transport_of(&w);
	move_buffers(&t);
	assert_true(query(w.context).hits > 0);
	close_world(&w);
}

static void heap_memory_needs_no_registration_of_its_own(void **state)
{
	struct transport t;
	struct world w;

	(void)state;
	open_world(&w, NULL);
	t = transport_of(&w);
	move_heap_buffers(&t);
	close_world(&w);
}

static void a_small_budget_evicts_and_no_byte_is_lost(void **state)
{
	struct pinion_cache_stats stats;
	struct transport t;
	struct world w;

	(void)state;
	open_world(&w, "max_bytes=2M");
	t = transport_of(&w);
	write_many(&t, 64, 64 * KIB);
	stats = query(w.context);
	assert_true(stats.evictions > 0);
	assert_true(stats.peak_bytes <= 2 * MIB);
	assert_true(stats.registrations > 2 * 64);
	close_world(&w);
}

/* A registration of the old pages would lose the bytes, or send old ones. */
static void memory_mapped_anew_is_registered_anew(void **state)
{
	struct pinion_cache_stats stats;
	struct transport t;
	struct world w;

	(void)state;
	open_world(&w, NULL);
	t = transport_of(&w);
	stats = write_remapped(&t);
	/* The next pin would notice the last one. */
	assert_true(stats.invalidations >= 19);
	assert_int_equal(stats.registrations, 21);
	close_world(&w);
}

/* Small buffers side by side. Each has a registration of its own, since peers
 * must not reach the bytes around it. */
static void ten_thousand_buffers_keep_their_keys(void **state)
{
	static char *buffers[NBUFFERS];
	char from[64];
	struct pinion_cache_stats first, second;
	struct transport t;
	struct world w;

	(void)state;
	open_world(&w, NULL);
	t = transport_of(&w);
	for (unsigned i = 0; i < NBUFFERS; i++) {
		buffers[i] = malloc(1 + i % 5000);
		assert_non_null(buffers[i]);
	}
	for (unsigned i = 0; i < NBUFFERS; i++)
		write_and_compare(&t, from, buffers[i],
				  i % 5000 < 63 ? 1 + i % 5000 : 64, i);
	first = query(w.context);
	for (unsigned i = 0; i < NBUFFERS; i++)
		write_and_compare(&t, from, buffers[i],
				  i % 5000 < 63 ? 1 + i % 5000 : 64, i + 1);
	second = query(w.context);
	printf("%d buffers: %llu registrations, then %llu more\n", NBUFFERS,
	       (unsigned long long)first.registrations,
	       (unsigned long long)(second.registrations -
				    first.registrations));
	/* One for each buffer, and some for `from`. */
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

/* Two contexts over one protection domain; one is closed. */
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
	struct world w;

	(void)state;
	open_world(&w, NULL);
	expect_unpinnable_memory_refused(w.context);
	close_world(&w);
}

static void a_protection_domain_in_use_is_not_closed(void **state)
{
	char *memory = map_at(NULL, 4096);
	struct pinion_pin out;
	struct world w;

	(void)state;
	open_world(&w, NULL);
	/* The queue pairs would keep it in use, too. */
	ibv_destroy_qp(w.pair.qp[0]);
	ibv_destroy_qp(w.pair.qp[1]);
	pin(&w, memory, 4096, 0, &out);
	assert_int_equal(ibv_dealloc_pd(w.pair.pd), EBUSY);
	pinion_unpin(w.context, &out);
	/* Not pinned, but still registered. */
	assert_int_equal(ibv_dealloc_pd(w.pair.pd), EBUSY);
	pin(&w, memory + 100, 100, PINION_ACCESS_REMOTE_READ, &out);
	pinion_unpin(w.context, &out);
	pinion_close(w.context);
	assert_ok(ibv_dealloc_pd(w.pair.pd));
	ibv_destroy_cq(w.pair.cq);
	ibv_close_device(w.pair.adapter);
	munmap(memory, 4096);
}

/* Fetch-and-add on adapters that have atomics. */
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

static bool has_its_own_lkey(const struct pinion_pin *pin, unsigned flags)
{
	(void)flags;
	return pinion_verbs_mr(pin)->lkey == pinion_verbs_lkey(pin);
}

static void threads_pin_at_the_same_time(void **state)
{
	struct world w;

	(void)state;
	open_world(&w, "max_bytes=1M");
	pin_in_threads(w.context, 500, has_its_own_lkey);
	close_world(&w);
}

static void bad_arguments_are_refused(void **state)
{
	struct pinion_registrar registrar = { .size = sizeof(registrar) };
	struct pinion_attr attr = { .size = sizeof(attr),
				    .registrar = &registrar };
	struct pinion_context *context = (void *)1;
	/* Not used before the other arguments are checked. */
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
