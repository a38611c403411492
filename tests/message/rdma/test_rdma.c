/* SPDX-License-Identifier: BSD-2-Clause */
/* The RDMA engine alone, over a device that records operations and has room for
 * so many, and with users that record what they are told. */
#include "test.h"

#include <errno.h>

#include "message/endpoint/endpoint.h"
#include "message/rdma/rdma.h"

#define MAX_OPS 64

/* --- the device ----------------------------------------------------------- */

static struct {
	unsigned room; /* operations that it takes before -EAGAIN */
	int error;     /* what it says instead of 0 */
	unsigned nops;
	struct pn_rdma_fragment *of[MAX_OPS];
	uint64_t addr[MAX_OPS];
	size_t len[MAX_OPS];
} queue;

static int post(struct pn_device *device, struct pn_peer *peer,
		const struct pn_op *op)
{
	(void)device;
	(void)peer;
	if (queue.error)
		return queue.error;
	if (!queue.room)
		return -EAGAIN;
	queue.room--;
	assert_true(queue.nops < MAX_OPS);
	queue.of[queue.nops] = op->user;
	queue.addr[queue.nops] = op->remote_addr;
	queue.len[queue.nops++] = op->sge->len;
	return 0;
}

/* --- a user ----------------------------------------------------------------
 */

static unsigned nended, nposted_all, ndropped, nprepared;
static bool buffer_free; /* what prepare() waits for */

static int prepare(struct pn_rdma_fragment *f)
{
	(void)f;
	nprepared++;
	return buffer_free ? 0 : -EAGAIN;
}

/* Remote keys reach 3000 bytes each; beyond 9000 there is none. */
static int locate(const struct pn_rdma_fragment *f, struct pn_sge *local,
		  struct pn_wire_key *remote)
{
	*local = (struct pn_sge){ NULL, f->len - f->posted, 0 };
	*remote = (struct pn_wire_key){ 100000 + f->posted,
					3000 - f->posted % 3000, 1 };
	return f->posted < 9000 ? 0 : -EACCES;
}

static void describe(const struct pn_rdma_fragment *f, struct pn_op *op)
{
	(void)f;
	op->kind = PN_OP_WRITE;
}

static void posted_all(struct pn_rdma_fragment *f)
{
	(void)f;
	nposted_all++;
}

static void ended(struct pn_rdma_fragment *f)
{
	assert_int_equal(f->inflight, 0);
	nended++;
}

static void drop(struct pn_rdma_fragment *f)
{
	pn_list_remove(&f->link);
	ndropped++;
}

static const struct pn_rdma_ops twosided = { .user = PN_RDMA_TWOSIDED,
					     .fails_over = true,
					     .locate = locate,
					     .describe = describe,
					     .posted_all = posted_all,
					     .ended = ended,
					     .drop = drop };

static const struct pn_rdma_ops onesided = { .user = PN_RDMA_ONESIDED,
					     .prepare = prepare,
					     .locate = locate,
					     .describe = describe,
					     .posted_all = posted_all,
					     .ended = ended,
					     .drop = drop };

/* --- an endpoint with one connection ---------------------------------------
 */

struct world {
	struct pn_device_ops device_ops;
	struct pn_device device;
	struct pinion_endpoint *ep;
	struct pinion_peer peer;
	struct pn_connection *conn;
	struct pinion_request request;
};

static void world_open(struct world *w)
{
	memset(w, 0, sizeof(*w));
	memset(&queue, 0, sizeof(queue));
	nended = nposted_all = ndropped = nprepared = 0;
	buffer_free = true;
	w->device_ops.post = post;
	w->device.ops = &w->device_ops;
	w->device.limits.max_op_bytes = 2000;
	w->ep = calloc(1, sizeof(*w->ep));
	assert_non_null(w->ep);
	w->ep->nrails = 1;
	w->ep->rails[0].device = &w->device;
	pn_list_init(&w->ep->pending_peers);
	w->peer.ep = w->ep;
	pn_list_init(&w->peer.pending_link);
	w->conn = w->peer.conn = &w->peer.conns[0];
	w->conn->peer = &w->peer;
	w->conn->rail = &w->ep->rails[0];
	w->conn->up = true;
	for (unsigned user = 0; user < PN_RDMA_NUSERS; user++)
		pn_list_init(&w->conn->stalled[user]);
	w->request.ep = w->ep;
	w->request.peer = &w->peer;
}

static void world_close(struct world *w)
{
	assert_int_equal(w->ep->noperations, queue.nops);
	free(w->ep);
}

static void complete(struct pn_rdma_fragment *f, unsigned n, int status)
{
	while (n--)
		pn_rdma_done(f, status);
}

static bool is_stalled(const struct pn_rdma_fragment *f)
{
	return !pn_list_empty(&f->stall_link);
}

/* --- tests ------------------------------------------------------------------
 */

static void operations_fit_the_device_and_the_keys(void **state)
{
	static const size_t lens[] = { 2000, 1000, 2000, 1000, 500 };
	struct pn_rdma_fragment f;
	struct world w;
	uint64_t at = 100000;

	(void)state;
	world_open(&w);
	queue.room = MAX_OPS;
	pn_rdma_init(&f, &twosided, &w.request, 0, 6500);
	pn_rdma_start(&f);
	assert_int_equal(queue.nops, PN_ARRAY_LEN(lens));
	for (unsigned i = 0; i < queue.nops; i++) {
		assert_int_equal(queue.len[i], lens[i]);
		assert_int_equal(queue.addr[i], at);
		at += lens[i];
	}
	assert_int_equal(nposted_all, 1);
	complete(&f, 4, 0);
	assert_int_equal(nended, 0);
	complete(&f, 1, 0);
	assert_int_equal(nended, 1);
	world_close(&w);
}

static void fragments_stall_in_order_and_go_on(void **state)
{
	struct pn_rdma_fragment a, b;
	struct world w;

	(void)state;
	world_open(&w);
	queue.room = 1;
	pn_rdma_init(&a, &twosided, &w.request, 0, 4000);
	pn_rdma_init(&b, &twosided, &w.request, 4000, 1000);
	pn_rdma_start(&a);
	pn_rdma_start(&b); /* there is no room, and `a` is first in any case */
	assert_true(is_stalled(&a) && is_stalled(&b));
	assert_false(pn_list_empty(&w.peer.pending_link));
	assert_false(pn_rdma_progress(w.conn, PN_RDMA_TWOSIDED));
	/* `a` completes what it has posted, and has not ended. */
	complete(&a, 1, 0);
	assert_int_equal(nended, 0);
	queue.room = MAX_OPS;
	assert_true(pn_rdma_progress(w.conn, PN_RDMA_TWOSIDED));
	assert_false(is_stalled(&a) || is_stalled(&b));
	assert_ptr_equal(queue.of[1], &a);
	assert_ptr_equal(queue.of[queue.nops - 1], &b);
	complete(&a, queue.nops - 2, 0);
	complete(&b, 1, 0);
	assert_int_equal(nended, 2);
	world_close(&w);
}

/* A one-sided fragment that waits for a bounce buffer holds up no message. */
static void each_user_stalls_apart(void **state)
{
	struct pn_rdma_fragment put, message;
	struct world w;

	(void)state;
	world_open(&w);
	queue.room = MAX_OPS;
	buffer_free = false;
	pn_rdma_init(&put, &onesided, &w.request, 0, 100);
	pn_rdma_init(&message, &twosided, &w.request, 0, 100);
	pn_rdma_start(&put);
	assert_true(is_stalled(&put));
	pn_rdma_start(&message);
	assert_false(is_stalled(&message));
	assert_int_equal(queue.nops, 1);
	buffer_free = true;
	assert_true(pn_rdma_progress(w.conn, PN_RDMA_ONESIDED));
	assert_int_equal(nprepared, 2);
	assert_int_equal(queue.nops, 2);
	complete(&put, 1, 0);
	complete(&message, 1, 0);
	assert_int_equal(nended, 2);
	world_close(&w);
}

/* Nothing more is posted, and the end waits for what is in flight. */
static void the_first_error_counts(void **state)
{
	struct pn_rdma_fragment f;
	struct world w;

	(void)state;
	world_open(&w);
	queue.room = 2;
	pn_rdma_init(&f, &twosided, &w.request, 0, 6000);
	pn_rdma_start(&f);
	complete(&f, 1, -EACCES);
	queue.room = MAX_OPS;
	pn_rdma_progress(w.conn, PN_RDMA_TWOSIDED);
	assert_int_equal(queue.nops, 2);
	assert_int_equal(nended, 0);
	complete(&f, 1, -ECONNRESET);
	assert_int_equal(nended, 1);
	assert_int_equal(f.status, -EACCES);
	/* Once more, from the beginning. */
	pn_rdma_restart(&f);
	assert_int_equal(f.status, 0);
	complete(&f, queue.nops - 2, 0);
	assert_int_equal(nended, 2);
	assert_int_equal(f.posted, f.len);
	world_close(&w);
}

static void an_error_of_posting_ends_the_fragment(void **state)
{
	struct pn_rdma_fragment f;
	struct world w;

	(void)state;
	world_open(&w);
	queue.room = MAX_OPS;
	pn_rdma_init(&f, &onesided, &w.request, 0, 9500); /* beyond the keys */
	pn_rdma_start(&f);
	assert_int_equal(f.status, -EACCES);
	assert_int_equal(nended, 0);
	complete(&f, queue.nops, 0);
	assert_int_equal(nended, 1);
	queue.error = -EIO;
	pn_rdma_init(&f, &onesided, &w.request, 0, 10);
	pn_rdma_start(&f);
	assert_int_equal(f.status, -EIO);
	assert_int_equal(nended, 2);
	assert_int_equal(nposted_all, 2);
	world_close(&w);
}

/* Messages move to another connection; one-sided operations have only one. */
static void a_connection_that_is_down_fails_one_sided_operations(void **state)
{
	struct pn_rdma_fragment put, message;
	struct world w;

	(void)state;
	world_open(&w);
	queue.room = MAX_OPS;
	w.conn->up = false;
	pn_rdma_init(&put, &onesided, &w.request, 0, 100);
	pn_rdma_init(&message, &twosided, &w.request, 0, 100);
	pn_rdma_start(&put);
	pn_rdma_start(&message);
	assert_true(is_stalled(&put) && is_stalled(&message));
	w.conn->down = -ECONNRESET;
	pn_rdma_progress(w.conn, PN_RDMA_TWOSIDED);
	pn_rdma_progress(w.conn, PN_RDMA_ONESIDED);
	assert_int_equal(put.status, -ECONNRESET);
	assert_int_equal(nended, 1);
	assert_true(is_stalled(&message));
	pn_rdma_unstall(&message);
	world_close(&w);
}

/* The request has failed: fragments in flight stay, and so does a write that
 * may still arrive. */
static void abandoning_spares_what_the_device_or_the_peer_has(void **state)
{
	struct pn_rdma_fragment f[4];
	struct pn_list fragments;
	struct world w;

	(void)state;
	world_open(&w);
	pn_list_init(&fragments);
	queue.room = 1;
	for (unsigned i = 0; i < 4; i++) {
		pn_rdma_init(&f[i], &twosided, &w.request, 0, 100);
		pn_list_append(&fragments, &f[i].link);
	}
	pn_rdma_start(&f[0]); /* in flight */
	pn_rdma_start(&f[1]); /* stalled */
	f[2].lost = true;
	w.request.status = -ECANCELED;
	pn_rdma_abandon(&fragments);
	assert_int_equal(ndropped, 2);
	assert_false(is_stalled(&f[1]));
	assert_ptr_equal(fragments.next, &f[0].link);
	assert_ptr_equal(fragments.prev, &f[2].link);
	w.conn->down_received = true;
	pn_rdma_abandon(&fragments);
	assert_int_equal(ndropped, 3);
	complete(&f[0], 1, 0);
	assert_int_equal(nended, 1);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(operations_fit_the_device_and_the_keys),
		TEST(fragments_stall_in_order_and_go_on),
		TEST(each_user_stalls_apart),
		TEST(the_first_error_counts),
		TEST(an_error_of_posting_ends_the_fragment),
		TEST(a_connection_that_is_down_fails_one_sided_operations),
		TEST(abandoning_spares_what_the_device_or_the_peer_has),
	};

	return RUN_TESTS(tests);
}
