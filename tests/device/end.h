/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * end -- one end of a connection, for tests with a process at each: a device,
 * and memory that the other end may access. The hello tells the other end.
 */
#ifndef PN_TESTS_DEVICE_END_H
#define PN_TESTS_DEVICE_END_H

#include "test.h"

#include "base/clock.h"
#include "base/pages.h"
#include "device/device.h"

/* Far longer than anything takes: emulated and busy machines are slow. */
#define END_PATIENCE_NS (120 * PN_NS_PER_S)
#define END_EXPOSED	(PINION_ACCESS_REMOTE_WRITE | PINION_ACCESS_REMOTE_READ)

struct hello {
	struct pn_address address;
	uint64_t addr, rkey;
};

struct end {
	struct pn_device *device;
	struct pn_peer *peer;
	struct pn_mr mr;
	struct hello hello;
};

static inline void end_open(struct end *end, const char *spec, size_t bytes)
{
	struct pn_mr *mr = &end->mr;
	void *memory;

	assert_ok(pn_device_open(spec, NULL, &end->device));
	assert_ok(pn_pages_map(bytes, NULL, &memory));
	memset(memory, 0, bytes);
	*mr = (struct pn_mr){ .addr = memory,
			      .len = bytes,
			      .access = END_EXPOSED };
	assert_ok(pn_device_register(end->device, &mr, 1));
	pn_device_address(end->device, &end->hello.address);
	end->hello.addr = (uintptr_t)memory;
	end->hello.rkey = mr->rkey;
}

static inline void end_close(struct end *end)
{
	struct pn_mr *mr = &end->mr;

	pn_device_deregister(end->device, &mr, 1);
	pn_pages_unmap(end->mr.addr, end->mr.len, NULL);
	pn_device_close(end->device);
}

static inline bool next(struct end *end, struct pn_completion *out)
{
	uint64_t until = pn_device_now(end->device) + END_PATIENCE_NS;

	while (!pn_device_poll(end->device, out, 1))
		if (pn_device_wait(end->device, until))
			return false;
	return true;
}

#endif
