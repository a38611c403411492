/* SPDX-License-Identifier: BSD-2-Clause */
#include "mover.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/pages.h"

/* Real devices answer in time or not at all. */
#define PATIENCE_NS (60 * PN_NS_PER_S)

static int next_completion(struct pn_device *device, struct pn_completion *out)
{
	uint64_t end = pn_device_now(device) + PATIENCE_NS;
	int ret = 0;

	while (!ret && !pn_device_poll(device, out, 1))
		ret = pn_device_wait(device, end);
	return ret;
}

static int attach_to_itself(struct mover *mover)
{
	struct pn_address address;
	struct pn_completion c;
	int ret;

	pn_device_address(mover->device, &address);
	ret = pn_device_attach(mover->device, &address, &mover->peer);
	if (!ret)
		ret = next_completion(mover->device, &c);
	if (ret)
		return ret;
	return c.kind == PN_COMPLETION_PEER_UP ? 0 : -ENOTCONN;
}

int mover_open(struct mover *mover, struct pn_device *device, size_t len)
{
	struct pn_mr *mr = &mover->mr;
	int ret;

	*mover = (struct mover){ .device = device, .len = len };
	ret = pn_pages_map(len, NULL, (void **)&mover->scratch);
	if (ret)
		return ret;
	*mr = (struct pn_mr){ .addr = mover->scratch,
			      .len = len,
			      .access = PINION_ACCESS_LOCAL_WRITE |
					PINION_ACCESS_REMOTE_READ |
					PINION_ACCESS_REMOTE_WRITE };
	ret = pn_device_register(device, &mr, 1);
	if (ret)
		goto unmap;
	ret = attach_to_itself(mover);
	if (!ret)
		return 0;
	pn_device_deregister(device, &mr, 1);
unmap:
	pn_pages_unmap(mover->scratch, len, NULL);
	return ret;
}

void mover_close(struct mover *mover)
{
	struct pn_mr *mr = &mover->mr;

	pn_device_deregister(mover->device, &mr, 1);
	pn_pages_unmap(mover->scratch, mover->len, NULL);
}

bool mover_may(unsigned flags, enum mover_direction direction)
{
	static const unsigned needs[] = {
		[MOVER_LOCAL_OUT] = 0,
		[MOVER_LOCAL_IN] = PINION_ACCESS_LOCAL_WRITE,
		[MOVER_REMOTE_IN] = PINION_ACCESS_REMOTE_WRITE,
		[MOVER_REMOTE_OUT] = PINION_ACCESS_REMOTE_READ,
	};

	return (flags & needs[direction]) == needs[direction];
}

static int run(struct mover *mover, const struct pn_op *op)
{
	struct pn_completion c;
	int ret = pn_device_post(mover->device, mover->peer, op);

	if (!ret)
		ret = next_completion(mover->device, &c);
	return ret ? ret : c.status;
}

int mover_move(struct mover *mover, enum mover_direction direction,
	       const struct pinion_pin_segment *segment)
{
	bool local =
		direction == MOVER_LOCAL_OUT || direction == MOVER_LOCAL_IN;
	bool out =
		direction == MOVER_LOCAL_OUT || direction == MOVER_REMOTE_OUT;
	struct pn_sge sge = { local ? segment->addr : mover->scratch,
			      segment->len,
			      local ? segment->local_key : mover->mr.lkey };
	struct pn_op op = {
		.kind = local == out ? PN_OP_WRITE : PN_OP_READ,
		.sge = &sge,
		.nsge = 1,
		.remote_addr =
			(uintptr_t)(local ? mover->scratch : segment->addr),
		.rkey = local ? mover->mr.rkey : segment->remote_key,
	};
	int ret;

	memset(out ? segment->addr : mover->scratch, ++mover->stamp,
	       segment->len);
	memset(out ? mover->scratch : segment->addr, ~mover->stamp,
	       segment->len);
	ret = run(mover, &op);
	if (ret)
		return ret;
	return memcmp(segment->addr, mover->scratch, segment->len) ? -EILSEQ
								   : 0;
}

int mover_put(struct mover *mover, const struct pinion_pin *pin)
{
	for (unsigned i = 0; i < pin->nsegments; i++) {
		struct pinion_pin_segment segment;
		int ret = pinion_pin_segment(pin, i, &segment);

		if (!ret)
			ret = mover_move(mover, MOVER_REMOTE_IN, &segment);
		if (ret)
			return ret;
	}
	return 0;
}
