/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Registrations and memory windows of the verbs device over an adapter that the
 * test plays: it completes binds late or not at all, fails its queue pair, does
 * not free windows, and poisons what is deregistered.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/log.h"
#include "device/verbs/keys.h"
#include "test.h"

#undef ibv_reg_mr

#define REMOTE                                                   \
	(PINION_ACCESS_LOCAL_WRITE | PINION_ACCESS_REMOTE_READ | \
	 PINION_ACCESS_REMOTE_WRITE)
#define POISON UINT32_C(0xdeaddead)
#define MAX_MW 8

/* --- the adapter ----------------------------------------------------------
 */

/* A bind whose completion has not been polled. */
struct pending {
	struct ibv_mw *mw;
	uint32_t key;
	unsigned polls; /* until it is there */
};

static struct {
	struct ibv_context context;
	struct ibv_pd pd;
	struct ibv_cq cq;
	struct ibv_qp qp;
	bool is_broken;	 /* the queue pair is in the error state */
	bool never_ends; /* the next bind, until the queue pair breaks */
	bool breaks;	 /* the next bind breaks the queue pair */
	bool keeps;	 /* windows are not freed */
	struct ibv_mw *kept;
	unsigned refuses;	/* the next deregistrations */
	unsigned registrations; /* before one fails; 0: none does */
	unsigned nposted, nwindows;
	struct pending pending[16];
	unsigned npending;
	_Atomic uint32_t next_lkey;
	_Atomic int nmrs;
	unsigned access; /* of the last registration */
} adapter;

static int bind(struct ibv_qp *qp, struct ibv_mw *mw, struct ibv_mw_bind *b)
{
	struct pending *p = &adapter.pending[adapter.npending];

	assert_ptr_equal(qp, &adapter.qp);
	assert_true(b->bind_info.mr->lkey != POISON);
	adapter.nposted++;
	adapter.npending++;
	mw->rkey++;
	*p = (struct pending){ mw, mw->rkey, adapter.never_ends };
	adapter.never_ends = false;
	if (adapter.breaks)
		adapter.is_broken = true;
	return 0;
}

/* The last completion of a queue pair that is late comes with the next one. */
static int poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	(void)n;
	assert_ptr_equal(cq, &adapter.cq);
	if (!adapter.npending || (adapter.npending == 1 && !adapter.is_broken &&
				  adapter.pending[0].polls))
		return 0;
	*wc = (struct ibv_wc){ .status = adapter.is_broken ? IBV_WC_WR_FLUSH_ERR
							   : IBV_WC_SUCCESS };
	adapter.npending--;
	memmove(adapter.pending, adapter.pending + 1,
		adapter.npending * sizeof(*adapter.pending));
	return 1;
}

static struct ibv_mw *alloc_window(struct ibv_pd *pd, enum ibv_mw_type type)
{
	struct ibv_mw *mw = calloc(1, sizeof(*mw));

	assert_non_null(mw);
	*mw = (struct ibv_mw){ .context = pd->context,
			       .pd = pd,
			       .type = type,
			       .rkey = 0x100 * ++adapter.nwindows };
	return mw;
}

static int free_window(struct ibv_mw *mw)
{
	if (adapter.keeps) {
		adapter.kept = mw;
		return EBUSY;
	}
	adapter.nwindows--;
	free(mw);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *arg,
			     struct ibv_comp_channel *channel, int vector)
{
	(void)context, (void)cqe, (void)arg, (void)channel, (void)vector;
	return &adapter.cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	(void)cq;
	return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	(void)pd, (void)attr;
	return &adapter.qp;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	(void)qp;
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp, (void)mask;
	adapter.is_broken = attr->qp_state == IBV_QPS_ERR;
	return 0;
}

/* Never read again by whoever looked before: the sanitizers see it. */
int ibv_dereg_mr(struct ibv_mr *mr)
{
	if (adapter.refuses) {
		adapter.refuses--;
		errno = EBUSY;
		return EBUSY;
	}
	mr->lkey = mr->rkey = POISON;
	free(mr);
	atomic_fetch_sub(&adapter.nmrs, 1);
	return 0;
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *addr, size_t len,
				uint64_t iova, unsigned access)
{
	struct ibv_mr *mr;
	uint32_t key = atomic_fetch_add(&adapter.next_lkey, 1);

	(void)iova;
	if (adapter.registrations && !--adapter.registrations) {
		errno = ENOSPC;
		return NULL;
	}
	mr = calloc(1, sizeof(*mr));
	assert_non_null(mr);
	*mr = (struct ibv_mr){ .context = pd->context,
			       .pd = pd,
			       .addr = addr,
			       .length = len,
			       .lkey = key,
			       .rkey = UINT32_C(0x80000000) | key };
	adapter.access = access;
	atomic_fetch_add(&adapter.nmrs, 1);
	return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t len, int access)
{
	return ibv_reg_mr_iova2(pd, addr, len, (uintptr_t)addr,
				(unsigned)access);
}

/* --- registrations over it ------------------------------------------------
 */

static struct pn_verbs_keys keys;
static char memory[8192];

static void start(bool windows)
{
	const struct ibv_port_attr port = { .link_layer =
						    IBV_LINK_LAYER_INFINIBAND };

	memset(&adapter, 0, sizeof(adapter));
	adapter.context.ops.poll_cq = poll;
	adapter.context.ops.bind_mw = bind;
	adapter.context.ops.alloc_mw = alloc_window;
	adapter.context.ops.dealloc_mw = free_window;
	adapter.pd.context = adapter.cq.context = adapter.qp.context =
		&adapter.context;
	adapter.next_lkey = 1;
	memset(&keys, 0, sizeof(keys));
	pn_verbs_keys_init(&keys);
	keys.pd = &adapter.pd;
	keys.chunk = (size_t)1 << 30;
	keys.nthreads = 1;
	if (windows)
		assert_ok(pn_verbs_binder_open(&keys.binder, &adapter.pd, 1,
					       &port));
	pn_log_set_level(PN_LOG_NONE);
}

static void stop(void)
{
	pn_log_set_level(PN_LOG_WARN);
	pn_verbs_keys_fini(&keys);
	assert_int_equal(adapter.nmrs, 0);
	assert_int_equal(adapter.nwindows, 0);
}

static struct pn_mr reg_ok(void)
{
	struct pn_mr mr = { .addr = memory,
			    .len = sizeof(memory),
			    .access = REMOTE },
		     *one = &mr;

	assert_ok(pn_verbs_keys_register(&keys, &one, 1));
	return mr;
}

static void dereg(struct pn_mr *mr)
{
	pn_verbs_keys_deregister(&keys, &mr, 1);
}

static bool is_windows(const struct pn_mr *mr)
{
	return !((uint32_t)mr->rkey & 0x80000000);
}

/* --- what the adapter keeps -----------------------------------------------
 */

static bool is_found(const struct pn_mr *mr)
{
	struct pn_sge sge = { mr->addr, 1, mr->lkey };
	struct ibv_sge out;

	return pn_verbs_keys_resolve(&keys, &sge, 0, &out, 1) == 1;
}

static void what_the_adapter_keeps_is_still_registered(void **state)
{
	struct pn_mr mr, other;
	size_t bytes;

	(void)state;
	start(false);
	mr = reg_ok();
	bytes = keys.live_bytes;
	assert_true(is_found(&mr));
	adapter.refuses = 2;
	for (unsigned i = 0; i < 2; i++) {
		dereg(&mr);
		assert_true(pn_verbs_keys_kept(&mr));
		assert_int_equal(keys.live_bytes, bytes);
		assert_int_equal(keys.nmrs, 1);
		assert_false(is_found(&mr));
	}
	/* Its slot is not that of another. */
	other = reg_ok();
	assert_true(is_found(&other));
	assert_false(pn_verbs_keys_kept(&other));
	dereg(&mr);
	assert_false(pn_verbs_keys_kept(&mr));
	assert_true(is_found(&other));
	assert_int_equal(keys.live_bytes, bytes);
	dereg(&other);
	assert_int_equal(keys.live_bytes, 0);
	assert_int_equal(keys.nmrs, 0);
	stop();
}

/* Of three chunks the third cannot be registered, and the first not undone. */
static void what_cannot_be_undone_is_still_registered(void **state)
{
	struct pn_mr mr = { .addr = memory,
			    .len = sizeof(memory),
			    .access = PINION_ACCESS_LOCAL_WRITE },
		     *one = &mr;

	(void)state;
	start(false);
	keys.chunk = sizeof(memory) / 3 + 1;
	adapter.registrations = 3;
	adapter.refuses = 1;
	assert_true(pn_verbs_keys_register(&keys, &one, 1) < 0);
	assert_true(pn_verbs_keys_kept(&mr));
	assert_int_equal(adapter.nmrs, 1);
	assert_int_equal(keys.nmrs, 1);
	dereg(&mr);
	assert_false(pn_verbs_keys_kept(&mr));
	assert_int_equal(keys.live_bytes, 0);
	/* Without a refusal nothing is left. */
	adapter.registrations = 3;
	assert_true(pn_verbs_keys_register(&keys, &one, 1) < 0);
	assert_false(pn_verbs_keys_kept(&mr));
	assert_int_equal(keys.nmrs, 0);
	stop();
}

static void a_key_that_the_adapter_keeps_is_not_replaced(void **state)
{
	struct pn_mr mr;
	uint64_t before;

	(void)state;
	start(false);
	mr = reg_ok();
	before = mr.rkey;
	adapter.refuses = 1;
	assert_int_equal(pn_verbs_keys_rekey(&keys, &mr), -EBUSY);
	assert_true(mr.rkey == before);
	assert_int_equal(adapter.nmrs, 1);
	assert_true(is_found(&mr));
	assert_ok(pn_verbs_keys_rekey(&keys, &mr));
	assert_true(mr.rkey != before);
	dereg(&mr);
	stop();
}

/* At the end the device closes, whatever the adapter keeps. */
static void what_is_kept_does_not_outlive_the_keys(void **state)
{
	struct pn_mr mr;

	(void)state;
	start(false);
	mr = reg_ok();
	adapter.refuses = 1;
	dereg(&mr);
	assert_true(pn_verbs_keys_kept(&mr));
	stop();
}

/* --- windows --------------------------------------------------------------
 */

static void every_key_is_another(void **state)
{
	struct pn_mr mr;
	uint64_t before;

	(void)state;
	start(true);
	mr = reg_ok();
	for (unsigned i = 0; i < 600; i++) {
		before = mr.rkey;
		assert_ok(pn_verbs_keys_rekey(&keys, &mr));
		assert_true(mr.rkey != before);
		assert_int_equal(adapter.npending, 0);
	}
	assert_int_equal(adapter.nmrs, 1);
	dereg(&mr);
	stop();
}

/* A bind that succeeds after one that timed out has been executed: its key
 * works, and the old one does not. */
static void a_late_completion_is_not_that_of_the_next_bind(void **state)
{
	struct pn_verbs_window one = { 0 }, other = { 0 };
	struct ibv_mr *mr;

	(void)state;
	start(true);
	mr = ibv_reg_mr(&adapter.pd, memory, sizeof(memory), 0);
	assert_ok(pn_verbs_window_bind(&keys.binder, &one, mr, 0));
	adapter.never_ends = true;
	assert_int_equal(pn_verbs_window_bind(&keys.binder, &one, mr, 0),
			 -ETIMEDOUT);
	if (!pn_verbs_window_bind(&keys.binder, &other, mr, 0))
		assert_int_equal(adapter.npending, 0);
	/* Nothing more is posted. */
	assert_int_equal(adapter.nposted, 2);
	assert_true(adapter.is_broken);
	pn_verbs_window_free(&one);
	pn_verbs_window_free(&other);
	ibv_dereg_mr(mr);
	stop();
}

/* The key is replaced, whatever became of the bind, and windows are done
 * without from then on. */
static void a_key_is_replaced_where_windows_fail(void **state)
{
	struct pn_mr mr, next;
	uint64_t before;

	(void)state;
	for (unsigned how = 0; how < 2; how++) {
		start(true);
		mr = reg_ok();
		assert_true(is_windows(&mr));
		before = mr.rkey;
		adapter.never_ends = !how;
		adapter.breaks = how;
		assert_ok(pn_verbs_keys_rekey(&keys, &mr));
		assert_true(mr.rkey != before && !is_windows(&mr));
		/* The window is gone, and its key with it. */
		assert_int_equal(adapter.nwindows, 0);
		assert_int_equal(adapter.nmrs, 1);
		assert_true(adapter.access & IBV_ACCESS_REMOTE_WRITE);
		next = reg_ok();
		assert_false(is_windows(&next));
		before = next.rkey;
		assert_ok(pn_verbs_keys_rekey(&keys, &next));
		assert_true(next.rkey != before);
		assert_int_equal(adapter.nposted, 2);
		dereg(&next);
		dereg(&mr);
		stop();
	}
}

static void memory_is_registered_where_windows_fail(void **state)
{
	struct pn_mr mr;

	(void)state;
	start(true);
	adapter.breaks = true;
	mr = reg_ok();
	assert_false(is_windows(&mr));
	assert_true(adapter.access & IBV_ACCESS_REMOTE_WRITE);
	assert_int_equal(adapter.nmrs, 1);
	dereg(&mr);
	stop();
}

/* The adapter neither binds the window nor frees it: its key may work, so it is
 * not said to be revoked. */
static void a_key_that_does_not_end_is_not_revoked(void **state)
{
	struct pn_mr mr;
	uint64_t before;

	(void)state;
	start(true);
	mr = reg_ok();
	before = mr.rkey;
	adapter.breaks = adapter.keeps = true;
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(pn_verbs_keys_rekey(&keys, &mr), -EBUSY);
		assert_true(mr.rkey == before);
		assert_int_equal(adapter.nmrs, 1);
		assert_int_equal(adapter.nwindows, 1);
	}
	adapter.keeps = false;
	assert_ok(pn_verbs_keys_rekey(&keys, &mr));
	assert_true(mr.rkey != before && !is_windows(&mr));
	assert_int_equal(adapter.nwindows, 0);
	dereg(&mr);
	stop();
}

/* A window that is replaced before its keys come again. */
static void a_window_that_is_not_freed_keeps_its_key(void **state)
{
	struct pn_verbs_window window = { 0 };
	unsigned nfailed = 0, nbinds = 0;
	struct ibv_mr *mr;
	uint32_t before;

	(void)state;
	start(true);
	mr = ibv_reg_mr(&adapter.pd, memory, sizeof(memory), 0);
	adapter.keeps = true;
	for (; nbinds < 300 && !nfailed; nbinds++) {
		before = window.mw ? window.mw->rkey : 0;
		nfailed = pn_verbs_window_bind(&keys.binder, &window, mr, 0) ==
			  -EBUSY;
	}
	assert_true(nfailed && nbinds < 256);
	assert_int_equal(window.mw->rkey, before);
	adapter.keeps = false;
	assert_ok(pn_verbs_window_bind(&keys.binder, &window, mr, 0));
	assert_ok(pn_verbs_window_free(&window));
	/* The one that was to take its place was not freed either. */
	assert_int_equal(adapter.nwindows, 1);
	free_window(adapter.kept);
	ibv_dereg_mr(mr);
	stop();
}

/* --- posting beside a new key ---------------------------------------------
 */

#define ROUNDS 20000

struct poster {
	uint64_t lkey;
	_Atomic bool done;
	unsigned nwrong;
};

static void *post_all_the_time(void *arg)
{
	struct poster *me = arg;
	const struct pn_sge sge = { memory, 100, me->lkey };
	struct ibv_sge out;

	while (!atomic_load(&me->done))
		me->nwrong +=
			pn_verbs_keys_resolve(&keys, &sge, 0, &out, 1) != 1 ||
			out.lkey == POISON || !out.lkey;
	return NULL;
}

/* The key that posts use is not read from what was deregistered. */
static void posting_goes_on_while_the_key_is_replaced(void **state)
{
	struct poster poster = { 0 };
	pthread_t thread;
	struct pn_mr mr;

	(void)state;
	start(false);
	mr = reg_ok();
	poster.lkey = mr.lkey;
	assert_ok(pthread_create(&thread, NULL, post_all_the_time, &poster));
	for (unsigned i = 0; i < ROUNDS; i++)
		assert_ok(pn_verbs_keys_rekey(&keys, &mr));
	atomic_store(&poster.done, true);
	assert_ok(pthread_join(thread, NULL));
	assert_int_equal(poster.nwrong, 0);
	dereg(&mr);
	stop();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_the_adapter_keeps_is_still_registered),
		TEST(what_cannot_be_undone_is_still_registered),
		TEST(a_key_that_the_adapter_keeps_is_not_replaced),
		TEST(what_is_kept_does_not_outlive_the_keys),
		TEST(every_key_is_another),
		TEST(a_late_completion_is_not_that_of_the_next_bind),
		TEST(a_key_is_replaced_where_windows_fail),
		TEST(memory_is_registered_where_windows_fail),
		TEST(a_key_that_does_not_end_is_not_revoked),
		TEST(a_window_that_is_not_freed_keeps_its_key),
		TEST(posting_goes_on_while_the_key_is_replaced),
	};

	return RUN_TESTS(tests);
}
