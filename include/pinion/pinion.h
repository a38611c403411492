/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion/pinion.h -- automatic RDMA memory registration.
 *
 * A context is an open device with everything that pinion keeps for it. Open
 * one per process (more are allowed), and close it when done:
 *
 *	struct pinion_context *context;
 *	int ret = pinion_open(NULL, &context);
 *	if (ret)
 *		errx(1, "pinion: %s", strerror(-ret));
 *	...
 *	pinion_close(context);
 *
 * Functions return 0 or a negative errno and set their outputs on success
 * only. A line on standard error explains errors that need it (PINION_LOG=none
 * silences it). Any thread may call anything, except that nothing may run
 * concurrently with pinion_close() of its context. After fork() the child opens
 * a context of its own: calls on a context of the parent return -EPERM or
 * -EINVAL and change nothing. The same holds in a child of _Fork() or of a raw
 * clone(), which cannot open a context either (-EPERM).
 */
#ifndef PINION_PINION_H
#define PINION_PINION_H

#include <stddef.h>
#include <stdint.h>

#include <pinion/cache.h>
#include <pinion/config.h>
#include <pinion/device.h>
#include <pinion/heap.h>
#include <pinion/helper.h>
#include <pinion/message.h>
#include <pinion/onesided.h>
#include <pinion/registrar.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Structs that you fill begin with their `size`: start from zero and set it to
 * sizeof. Zero in a field means the default, choices are bits of `flags`. A
 * program built against an older header has a smaller struct: missing fields
 * are zero. One built against a newer header has a larger struct, which is
 * taken when what this library does not know is zero; else -E2BIG. A size of 0
 * is -EINVAL, as are unknown flags. Structs that a query fills begin with
 * their `size`, too: it writes what both sides know, and how much that was.
 */

/* How to open a context. */
struct pinion_attr {
	size_t size;	/* sizeof(struct pinion_attr) */
	uint64_t flags; /* none yet: 0 */
	/* Options as "name=value" strings, NULL at the end; may be NULL. They
	 * win over the environment. */
	const char *const *options;
	/* Functions that register memory, instead of a device; NULL: the device
	 * that the option `device` names. Copied. */
	const struct pinion_registrar *registrar;
};

/* Opens a context; attr may be NULL. May sleep.
 * -EINVAL: an option does not parse, attr->size is 0, or a registrar without
 * functions or with unknown flags; -E2BIG: attr or its registrar sets fields
 * that this library does not know; -ENODEV: no such device; -EACCES,
 * -EADDRNOTAVAIL, -EAGAIN, -EIO, -ENFILE, -ENOMEM, -ENOSPC, -ENOSYS,
 * -EOPNOTSUPP, -EPERM: the system refuses what the device needs; -EMFILE: too
 * many contexts or descriptors. A line on standard error says what to do. */
PINION_API int pinion_open(const struct pinion_attr *attr,
			   struct pinion_context **out);

/* Ends the context and everything registered in it. NULL is fine. */
PINION_API void pinion_close(struct pinion_context *context);

/* "0.1.0". */
PINION_API const char *pinion_version(void);

#ifdef __cplusplus
}
#endif

#endif
