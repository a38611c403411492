/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An unmodified verbs program in an RDMA cgroup that allows few objects:
 *
 *   test_verbs_objects ADDRESS MAX
 *
 * MAX is the hca_object of rdma.max. Queue pairs, completion queues and
 * registrations count together; what pinion keeps may not take the place of
 * what the program makes. tests/vm/suite runs it.
 */
#include <errno.h>
#include <sys/mman.h>

#include "cm_pair.h"
#include "test.h"

#define KIB   ((size_t)1 << 10)
#define LOCAL IBV_ACCESS_LOCAL_WRITE

enum { MAX_QPS = 1000 };

static const char *address;
static unsigned max;

/* Of buffers that do not touch: neighbours would be one registration. */
static void register_each(struct ibv_pd *pd, char *memory, unsigned n,
			  int access)
{
	for (size_t i = 0; i < n; i++) {
		struct ibv_mr *mr =
			ibv_reg_mr(pd, memory + i * 16 * KIB, 4 * KIB, access);

		assert_non_null(mr);
		assert_ok(ibv_dereg_mr(mr));
	}
}

static char *map(unsigned n)
{
	char *memory = mmap(NULL, n * 16 * KIB, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	return memory;
}

/* How many queue pairs there is room for. */
static unsigned count_qps(struct cm_pair *pair)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC,
					 .send_cq = pair->cq,
					 .recv_cq = pair->cq,
					 .cap = { .max_send_wr = 1,
						  .max_recv_wr = 1,
						  .max_send_sge = 1,
						  .max_recv_sge = 1 } };
	static struct ibv_qp *qps[MAX_QPS];
	unsigned n = 0;
	int error;

	while (n < MAX_QPS && (qps[n] = ibv_create_qp(pair->pd, &attr)))
		n++;
	error = errno;
	for (unsigned i = 0; i < n; i++)
		assert_ok(ibv_destroy_qp(qps[i]));
	assert_in_range(n, 1, MAX_QPS - 1);
	assert_int_equal(error, EAGAIN);
	return n;
}

static void what_is_kept_leaves_a_quarter(void **state)
{
	struct ibv_pd *pds[2];
	char *memory = map(4 * max);
	struct cm_pair pair;
	size_t kept;

	(void)state;
	cm_pair_open(&pair, address);
	pds[0] = pair.pd;
	pds[1] = ibv_alloc_pd(pair.adapter);
	assert_non_null(pds[1]);
	/* Two domains, and two kinds of memory: four contexts in all. */
	for (unsigned i = 0; i < 4; i++)
		register_each(pds[i % 2], memory + i * max * 16 * KIB, max,
			      i < 2 ? LOCAL
				    : LOCAL | IBV_ACCESS_RELAXED_ORDERING);
	kept = cm_mrs(0).n;
	print_message("%zu registrations of %u objects are kept\n", kept, max);
	if (getenv("LD_PRELOAD"))
		assert_in_range(kept, max / 4, max - max / 4);
	assert_ok(ibv_dealloc_pd(pds[1]));
	assert_ok(cm_pair_close(&pair));
	munmap(memory, 4 * max * 16 * KIB);
}

static void queue_pairs_take_the_place_of_what_is_kept(void **state)
{
	char *memory = map(2 * max);
	struct cm_pair pair;
	unsigned before, after;

	(void)state;
	cm_pair_open(&pair, address);
	before = count_qps(&pair);
	register_each(pair.pd, memory, 2 * max, LOCAL);
	after = count_qps(&pair);
	print_message("room for %u queue pairs, then for %u\n", before, after);
	assert_int_equal(before, after);
	/* Registering goes on, and keeps again. */
	register_each(pair.pd, memory, 2 * max, LOCAL);
	assert_ok(cm_pair_close(&pair));
	munmap(memory, 2 * max * 16 * KIB);
}

/* One kind of object each, where all but the last object is a queue pair. */
static void other_objects_take_the_place_of_what_is_kept(void **state)
{
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = 1,
						    .max_sge = 1 } };
	char *memory = map(2 * max);
	struct ibv_comp_channel *channel;
	struct ibv_pd *pds[MAX_QPS];
	struct cm_pair pair;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	unsigned n = 0;

	(void)state;
	cm_pair_open(&pair, address);
	/* The program has half of the objects, pinion gets the others. */
	for (; n < max / 2; n++) {
		pds[n] = ibv_alloc_pd(pair.adapter);
		assert_non_null(pds[n]);
	}
	register_each(pair.pd, memory, 2 * max, LOCAL);
	cq = ibv_create_cq(pair.adapter, 1, NULL, NULL, 0);
	assert_non_null(cq);
	register_each(pair.pd, memory, 2 * max, LOCAL);
	srq = ibv_create_srq(pair.pd, &attr);
	assert_non_null(srq);
	register_each(pair.pd, memory, 2 * max, LOCAL);
	channel = ibv_create_comp_channel(pair.adapter);
	assert_non_null(channel);
	register_each(pair.pd, memory, 2 * max, LOCAL);
	pds[n] = ibv_alloc_pd(pair.adapter);
	assert_non_null(pds[n++]);
	while (n)
		assert_ok(ibv_dealloc_pd(pds[--n]));
	assert_ok(ibv_destroy_comp_channel(channel));
	assert_ok(ibv_destroy_srq(srq));
	assert_ok(ibv_destroy_cq(cq));
	assert_ok(cm_pair_close(&pair));
	munmap(memory, 2 * max * 16 * KIB);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_kept_leaves_a_quarter),
		TEST(queue_pairs_take_the_place_of_what_is_kept),
		TEST(other_objects_take_the_place_of_what_is_kept),
	};

	if (argc < 3) {
		puts("skipped: name the address of an adapter, and a limit");
		return TEST_SKIP;
	}
	address = argv[1];
	max = (unsigned)strtoul(argv[2], NULL, 0);
	return RUN_TESTS(tests);
}
