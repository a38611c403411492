/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim_world -- helpers that the tests of `sim` share: a small world, registered
 * buffers, peers that are up.
 *
 * Tasks must not assert (cmocka uses longjmp(), which does not work on a task's
 * stack). They CHECK(), which stores the first line that failed, and
 * run_world() asserts afterwards.
 */
#ifndef PN_TESTS_SIM_WORLD_H
#define PN_TESTS_SIM_WORLD_H

#include "test.h"

#include <errno.h>
#include <stdbool.h>

#include "base/range.h"
#include "device/sim/sim.h"

#define ALL_ACCESS (PINION_ACCESS_ALL & ~PINION_ACCESS_RELAXED)
#define PAGE	   PN_PAGE_BYTES

static int failed_line;

#define CHECK(x) ((x) || failed_line ? (void)0 : (void)(failed_line = __LINE__))

static inline struct pn_sim *open_world(const char *params, const char *script)
{
	struct pn_sim *sim;

	failed_line = 0;
	assert_ok(pn_sim_open(params, script, &sim));
	return sim;
}

static inline void run_world(struct pn_sim *sim)
{
	assert_ok(pn_sim_run(sim));
	assert_int_equal(failed_line, 0);
}

/* A buffer of whole pages, registered. */
struct buffer {
	struct pn_mr mr;
	char *bytes;
};

static inline int buffer_open(struct pn_device *device, size_t len,
			      unsigned access, struct buffer *out)
{
	struct pn_mr *mr = &out->mr;
	size_t room = pn_range_pages(0, len, PAGE).len;

	out->bytes = aligned_alloc(PAGE, room);
	memset(out->bytes, 0, room);
	out->mr = (struct pn_mr){ .addr = out->bytes,
				  .len = len,
				  .access = access };
	return pn_device_register(device, &mr, 1);
}

static inline void buffer_close(struct pn_device *device, struct buffer *buffer)
{
	struct pn_mr *mr = &buffer->mr;

	pn_device_deregister(device, &mr, 1);
	free(buffer->bytes);
}

static inline struct pn_sge whole(const struct buffer *buffer, size_t len)
{
	return (struct pn_sge){ buffer->bytes, len, buffer->mr.lkey };
}

/* Waits for the next completion, in a task or outside. */
static inline int next_completion(struct pn_device *device,
				  struct pn_completion *out)
{
	int ret = 0;

	while (!ret && !pn_device_poll(device, out, 1))
		ret = pn_device_wait(device, PN_FOREVER);
	return ret;
}

/* Connects a to b and returns the peer; both have polled their PEER_UP when
 * called outside tasks. */
static inline struct pn_peer *connect_devices(struct pn_device *a,
					      struct pn_device *b)
{
	struct pn_address address;
	struct pn_completion c;
	struct pn_peer *peer;

	pn_device_address(b, &address);
	assert_ok(pn_device_attach(a, &address, &peer));
	assert_ok(next_completion(a, &c));
	assert_int_equal(c.kind, PN_COMPLETION_PEER_UP);
	assert_ptr_equal(c.peer, peer);
	if (a != b) {
		assert_int_equal(pn_device_poll(b, &c, 1), 1);
		assert_int_equal(c.kind, PN_COMPLETION_PEER_UP);
	}
	return peer;
}

static inline struct pn_peer *connect_nodes(struct pn_sim *sim, unsigned from,
					    unsigned to)
{
	return connect_devices(pn_sim_device(sim, from),
			       pn_sim_device(sim, to));
}

/* In a task: attaches to `to` and waits until it is up. */
static inline struct pn_peer *task_connect(struct pn_sim *sim, unsigned from,
					   unsigned to)
{
	struct pn_device *device = pn_sim_device(sim, from);
	struct pn_address address;
	struct pn_completion c;
	struct pn_peer *peer = NULL;

	pn_device_address(pn_sim_device(sim, to), &address);
	CHECK(!pn_device_attach(device, &address, &peer));
	CHECK(!next_completion(device, &c));
	CHECK(c.kind == PN_COMPLETION_PEER_UP);
	return peer;
}

static inline int post_send(struct pn_device *device, struct pn_peer *peer,
			    const void *data, size_t len, uint32_t imm)
{
	struct pn_sge sge = { (void *)data, len, 0 };
	struct pn_op op = { .kind = PN_OP_SEND,
			    .flags = PN_OP_INLINE,
			    .sge = &sge,
			    .nsge = 1,
			    .imm = imm };

	return pn_device_post(device, peer, &op);
}

/* An operation on a remote buffer at offset 0. */
static inline struct pn_op remote_op(enum pn_op_kind kind,
				     const struct pn_sge *sge,
				     const struct buffer *remote)
{
	return (struct pn_op){ .kind = kind,
			       .sge = sge,
			       .nsge = 1,
			       .remote_addr = (uintptr_t)remote->bytes,
			       .rkey = remote->mr.rkey };
}

#endif
