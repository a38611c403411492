/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion/device.h -- the adapter behind a context, and registering by hand.
 *
 * A context (pinion/pinion.h) opens one device, named by a spec:
 *
 *   soft                      software adapter between processes of one host
 *   soft:strict=yes,cost=cx5  its parameters, joined by commas
 *   sim:nodes=8,cost=ou2009   simulated adapters in virtual time
 *   verbs:mlx5_0/1            a port of an RDMA adapter
 *   fabric:tcp                a provider of libfabric
 *   soft+soft                 several, which messages use together
 *   soft/verbs:mlx5_0         alternatives: each peer over the first that
 *                             reaches it
 *
 * Most programs never need this header: they let pinion decide what to
 * register. A program that wants to decide registers memory here.
 */
#ifndef PINION_DEVICE_H
#define PINION_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <pinion/config.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a registration allows. The own adapter may always read. The values are
 * those of IBV_ACCESS_, not those of the access flags of libfabric. */
enum pinion_access {
	/* The own adapter writes: receive, get. */
	PINION_ACCESS_LOCAL_WRITE = 1 << 0,
	/* Peers put; implies LOCAL_WRITE, as atomics do. */
	PINION_ACCESS_REMOTE_WRITE = 1 << 1,
	/* Peers get. */
	PINION_ACCESS_REMOTE_READ = 1 << 2,
	PINION_ACCESS_REMOTE_ATOMIC = 1 << 3,
	/* Writes may become visible out of order. */
	PINION_ACCESS_RELAXED = 1 << 20,
};

#define PINION_ACCESS_ALL ((1 << 20) | 15)

/* What the device is and can do, see pinion_device_query(). Strings live as
 * long as the context. */
struct pinion_device_info {
	size_t size;	  /* sizeof(struct pinion_device_info), by you */
	const char *kind; /* "soft" */
	/* The cost profile in force, "none" if there is none. */
	const char *profile;
	int emulated; /* 1: a declared cost is added to the real one */
	int pins;     /* 1: registered pages are really pinned */
	size_t max_registration_bytes;
	size_t max_registrations;
	size_t max_pinned_bytes; /* SIZE_MAX: no limit known */
	size_t pinned_bytes;	 /* by live registrations */
	size_t dying_bytes; /* deregistered, but the kernel still charges them
			     */
	size_t registrations;
};

/* Fills *info, whose `size` you set. -EINVAL: NULL, or size 0. */
PINION_API int pinion_device_query(struct pinion_context *context,
				   struct pinion_device_info *info);

/* Memory registered by hand. */
struct pinion_registration;

/* What was registered, and the keys for programs that post operations
 * themselves. pinion_put() and the other one-sided calls take the key of an
 * exposure instead (pinion/onesided.h). */
struct pinion_registration_info {
	size_t size; /* sizeof(struct pinion_registration_info), by you */
	void *addr;
	size_t len;
	unsigned access; /* PINION_ACCESS_ bits */
	unsigned reserved;
	uint64_t local_key;
	uint64_t remote_key; /* 0 without remote access */
	void *handle;	     /* of a registrar (pinion/registrar.h) */
};

/* Registers [addr, addr + len) until pinion_device_deregister(). access is a
 * set of PINION_ACCESS_ bits. The memory must stay mapped until then. Slow: it
 * pins pages. Any thread.
 * -EINVAL: NULL, length 0, a range that wraps around or is over the device's
 *          limit, unknown access bits
 * -EFAULT: not mapped, or mapped in a way the device cannot pin (`soft`:
 *          read-only memory and shared mappings of disk files)
 * -ENOMEM: the limit on pinned memory (RLIMIT_MEMLOCK) or on registrations is
 *          reached
 * -EAGAIN, -EIO, -EMFILE, -ENFILE, -ENODEV, -EOPNOTSUPP, -EPERM, -ETIMEDOUT:
 *          the system or the adapter refuses what the device needs for more */
PINION_API int pinion_device_register(struct pinion_context *context,
				      void *addr, size_t len, unsigned access,
				      struct pinion_registration **out);

/* Ends a registration; its keys are invalid from now on. NULL is fine. Any
 * thread. */
PINION_API void pinion_device_deregister(struct pinion_registration *reg);

/* Fills *info, whose `size` you set. -EINVAL: NULL, or size 0. */
PINION_API int pinion_registration_query(const struct pinion_registration *reg,
					 struct pinion_registration_info *info);

#ifdef __cplusplus
}
#endif

#endif
