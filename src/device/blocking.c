/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/blocking.h"

#include <errno.h>

static bool ends_wait(const struct pn_completion *c,
		      enum pn_completion_kind kind)
{
	return c->kind == kind || c->kind == PN_COMPLETION_PEER_DOWN;
}

static int poll_until(struct pn_device *device, enum pn_completion_kind kind,
		      uint64_t deadline, struct pn_completion *out)
{
	for (;;) {
		struct pn_completion c;
		int ret;

		while (pn_device_poll(device, &c, 1) == 1) {
			if (ends_wait(&c, kind)) {
				*out = c;
				return c.kind == kind ? c.status
				       : c.status     ? c.status
						      : -ECONNRESET;
			}
			if (c.kind == PN_COMPLETION_RECV)
				pn_device_return_buffer(device, &c);
		}
		ret = pn_device_wait(device, deadline);
		if (ret)
			return ret;
	}
}

int pn_blocking_poll(struct pn_device *device, enum pn_completion_kind kind,
		     struct pn_completion *out)
{
	return poll_until(device, kind,
			  pn_device_now(device) + PN_BLOCKING_TIMEOUT_NS, out);
}

/* After -EAGAIN, waits until an operation ends or a short time has passed.
 * *ended counts the completions taken here, so that a caller that counts
 * completions misses none. */
static int wait_for_room(struct pn_device *device, uint64_t deadline,
			 unsigned *ended)
{
	struct pn_completion c;
	uint64_t soon = pn_device_now(device) + PN_NS_PER_MS;
	int ret = poll_until(device, PN_COMPLETION_OP, soon, &c);

	if (!ret)
		++*ended;
	if (ret == -ETIMEDOUT && pn_device_now(device) < deadline)
		ret = 0;
	return ret;
}

static int post_one(struct pn_device *device, struct pn_peer *peer,
		    const struct pn_op *op, unsigned *ended)
{
	uint64_t deadline = pn_device_now(device) + PN_BLOCKING_TIMEOUT_NS;

	for (;;) {
		int ret = pn_device_post(device, peer, op);

		if (ret != -EAGAIN)
			return ret;
		ret = wait_for_room(device, deadline, ended);
		if (ret)
			return ret;
	}
}

int pn_blocking_post(struct pn_device *device, struct pn_peer *peer,
		     const struct pn_op *op)
{
	unsigned ended = 0;

	return post_one(device, peer, op, &ended);
}

/* How far a transfer has come. */
struct progress {
	size_t offset;
	unsigned times;
	unsigned posted, ended;
};

static int post_next(struct pn_device *device,
		     const struct pn_blocking_transfer *move,
		     struct progress *at)
{
	size_t left = move->len - at->offset;
	size_t len = left < device->limits.max_op_bytes
			     ? left
			     : device->limits.max_op_bytes;
	struct pn_sge sge = { move->local + at->offset, len, move->lkey };
	struct pn_op op = { .kind = move->kind,
			    .sge = &sge,
			    .nsge = 1,
			    .remote_addr = move->remote_addr + at->offset,
			    .rkey = move->rkey };
	int ret = post_one(device, move->peer, &op, &at->ended);

	if (ret)
		return ret;
	at->posted++;
	at->offset += len;
	if (at->offset == move->len) {
		at->offset = 0;
		at->times++;
	}
	return 0;
}

int pn_blocking_transfer(struct pn_device *device,
			 const struct pn_blocking_transfer *move)
{
	unsigned depth = move->depth ? move->depth : device->limits.queue_depth;
	unsigned times = move->times ? move->times : 1;
	struct progress at = { 0 };
	int ret = 0;

	while (!ret && (at.times < times || at.ended < at.posted)) {
		struct pn_completion c;

		if (at.times < times && at.posted - at.ended < depth) {
			ret = post_next(device, move, &at);
			continue;
		}
		ret = pn_blocking_poll(device, PN_COMPLETION_OP, &c);
		at.ended++;
	}
	return ret;
}
