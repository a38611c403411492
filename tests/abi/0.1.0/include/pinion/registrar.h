/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion/registrar.h -- pinion's cache under a transport of your own.
 *
 * A transport that registers memory by itself (verbs, libfabric, UCX, a driver)
 * gives pinion two functions, one that registers and one that deregisters, and
 * pins buffers through a context over them:
 *
 *	static int my_register(void *arg,
 *			       struct pinion_registrar_range *const *ranges,
 *			       unsigned n);
 *	static int my_deregister(...);
 *
 *	struct pinion_registrar registrar = {
 *		.size = sizeof(registrar),
 *		.register_ranges = my_register,
 *		.deregister_ranges = my_deregister,
 *		.arg = my_domain,
 *	};
 *	struct pinion_attr attr = { .size = sizeof(attr),
 *				    .registrar = &registrar };
 *	pinion_open(&attr, &context);
 *	...
 *	pinion_pin(context, buf, len, access, &pin);
 *	... use pin.handle, pin.local_key, pin.remote_key ...
 *	pinion_unpin(context, &pin);
 *
 * Cache, heap, monitor, budget, helper, traces and counters work as on pinion's
 * own devices. Messages and one-sided operations do not: the calls of
 * pinion/message.h and pinion/onesided.h return -EOPNOTSUPP.
 * <pinion/verbs.h> and <pinion/fabric.h> are registrars over an ibv_pd and a
 * fid_domain.
 *
 * Pins: every pin of such a context has exactly one segment, so one handle and
 * one pair of keys. They do not change before pinion_unpin() and may be dead
 * after it. A range with remote access is exactly what a pin asked for, never
 * rounded to pages or merged with others; ranges without remote access may be
 * larger than the buffer. Memory of a heap gives its slab's handle and keys.
 *
 * The functions run on any thread, several at a time, and under no lock of
 * pinion. They may sleep, allocate, free and unmap; they must not call this
 * context. They are never called from a release of memory (munmap() and its
 * kin) nor in a forked child, and not after pinion_close() has returned.
 */
#ifndef PINION_REGISTRAR_H
#define PINION_REGISTRAR_H

#include <stddef.h>
#include <stdint.h>

#include <pinion/config.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A range to register, or registered. pinion sets the first group, the
 * register function the second; pinion hands these out with pins and back to
 * the deregister function. */
struct pinion_registrar_range {
	void *addr;
	size_t len;
	unsigned access; /* PINION_ACCESS_ bits */
	/* Deregister: not 0, this range could not be deregistered (a negative
	 * errno). 0 when the function is called. */
	int status;

	void *handle;
	uint64_t local_key;
	uint64_t remote_key;
	uint64_t reserved[4];
};

enum pinion_registrar_flag {
	/* Memory that is mapped read-only can be registered without
	 * PINION_ACCESS_LOCAL_WRITE. */
	PINION_REGISTRAR_READ_ONLY = 1 << 0,
};

/* How memory is registered. Start from zero and set `size`; zero in a field
 * means: no limit, not known. pinion_open() copies it. */
struct pinion_registrar {
	size_t size;	/* sizeof(struct pinion_registrar) */
	uint64_t flags; /* PINION_REGISTRAR_ bits */
	void *arg;	/* first argument of the functions */

	/* Registers n ranges and sets handle and keys of each: all, and returns
	 * 0; or none, and returns a negative errno, which is that of the pin.
	 * -ENOMEM: a limit is reached; pinion gives up what is not in use and
	 * tries again, and pins return -ENOBUFS when that does not help. */
	int (*register_ranges)(void *arg,
			       struct pinion_registrar_range *const *ranges,
			       unsigned n);

	/* Deregisters n ranges. 0; or a negative errno, and `status` of those
	 * ranges that are still registered is not 0 (if none is set, all n are
	 * taken to be registered still). These stay in the budget and are
	 * tried again, the last time by pinion_close(). */
	int (*deregister_ranges)(void *arg,
				 struct pinion_registrar_range *const *ranges,
				 unsigned n);

	unsigned max_batch; /* ranges in one call, at most 64; 0: 64 */
	unsigned reserved;
	size_t max_registration_bytes; /* in one range */
	size_t max_registrations;      /* at a time */
	size_t max_pinned_bytes;       /* by this process */

	/* What registering costs, in nanoseconds: fixed + per 4 KiB page. All
	 * zero: learned from the calls that are made. */
	double register_ns, register_page_ns;
	double deregister_ns, deregister_page_ns;
};

#ifdef __cplusplus
}
#endif

#endif
