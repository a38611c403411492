/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_fabric -- a fabric device with an arbitrary peer
 * (tests/device/fabric_fake.h).
 *
 * The input is a list of steps: an action and a length, and the bytes of a
 * packet where there is one. Packets arrive as they are or with a header that
 * belongs to the connection; between them the device posts operations, polls,
 * and the provider ends reads. Whatever comes, the provider writes only into
 * memory whose registration counts it, and all ends.
 */
#include "fuzz.h"

#include "fabric_fake.h"

enum action {
	DELIVER,
	DELIVER_NEXT,
	DELIVER_KEYED, /* with the key and an address of the memory */
	READ_LONG,
	READ_SHORT,
	WRITE_LONG,
	WRITE_SHORT,
	END_FETCH,
	POLL,
	ACTIONS,
};

/* The address in the input is an offset. */
static void use_key(const struct fake *f, void *packet)
{
	struct pn_fabric_access *access =
		&((struct pn_fabric_write *)packet)->access;

	access->addr = (uintptr_t)f->memory + access->addr % FAKE_MEMORY;
	access->len %= FAKE_MEMORY;
	access->rkey = f->mr.rkey;
}

static size_t deliver(struct fake *f, enum action action, size_t len,
		      const uint8_t *data, size_t size)
{
	union {
		struct pn_fabric_write write;
		uint8_t bytes[PN_FABRIC_PACKET_BYTES];
	} packet = { 0 };

	if (len > size)
		len = size;
	memcpy(packet.bytes, data, len);
	if (action == DELIVER) {
		fake_deliver(f, packet.bytes, len);
		return len;
	}
	if (action == DELIVER_KEYED)
		use_key(f, packet.bytes);
	fake_deliver_next(f, packet.bytes,
			  len < sizeof(struct pn_fabric_header)
				  ? sizeof(struct pn_fabric_header)
				  : len);
	return len;
}

/* Returns how many bytes of the input it took. */
static size_t step(struct fake *f, enum action action, size_t len,
		   const uint8_t *data, size_t size)
{
	switch (action) {
	case READ_LONG:
	case WRITE_LONG:
		fake_post(f, action == READ_LONG ? PN_OP_READ : PN_OP_WRITE,
			  FAKE_MEMORY / 2);
		return 0;
	case READ_SHORT:
	case WRITE_SHORT:
		fake_post(f, action == READ_SHORT ? PN_OP_READ : PN_OP_WRITE,
			  64);
		return 0;
	case END_FETCH:
		fake_end_fetch(f);
		return 0;
	case POLL:
		fake_poll(f);
		return 0;
	default:
		return deliver(f, action, len, data, size);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct fake f;

	fake_open(&f);
	fake_connect(&f);
	while (size >= 3) {
		enum action action = data[0] % ACTIONS;
		size_t len = data[1] | (size_t)(data[2] & 31) << 8, took;

		data += 3;
		size -= 3;
		took = step(&f, action, len, data, size);
		data += took;
		size -= took;
	}
	fake_close(&f);
	return 0;
}
