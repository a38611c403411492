/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion/fabric.h -- pinion's cache under a libfabric program.
 *
 * The program keeps its domain and its endpoints; registering goes through
 * pinion:
 *
 *	struct pinion_fabric_attr fabric = { .size = sizeof(fabric),
 *					     .domain = domain,
 *					     .info = info };
 *	struct pinion_context *context;
 *	struct pinion_pin pin;
 *
 *	pinion_fabric_open(&fabric, NULL, &context);
 *	...
 *	pinion_pin(context, buf, len, PINION_ACCESS_LOCAL_WRITE, &pin);
 *	fi_send(ep, buf, len, pinion_fabric_desc(&pin), peer, NULL);
 *	... wait for the completion ...
 *	pinion_unpin(context, &pin);
 *
 * Descriptor and key of a pin do not change before pinion_unpin() and may be
 * dead after it: unpin when the last operation that uses them has completed,
 * and, with remote access, when the peers will not use the key again. Peers
 * address the buffer by pinion_fabric_addr(), whatever FI_MR_VIRT_ADDR says.
 * Memory of a heap (pinion/heap.h) has the descriptor and key of its slab.
 * A context over a registrar (pinion/registrar.h) has no pinion endpoints.
 *
 * Close the context before the domain (and before the endpoint given in the
 * attributes): fi_close() of a domain returns -FI_EBUSY while memory is
 * registered in it.
 */
#ifndef PINION_FABRIC_H
#define PINION_FABRIC_H

#include <stddef.h>
#include <stdint.h>

#include <pinion/cache.h>
#include <pinion/config.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fi_info;
struct fid_domain;
struct fid_ep;
struct fid_mr;
struct pinion_attr;

/* A domain of the caller. Start from zero and set `size`. */
struct pinion_fabric_attr {
	size_t size;	/* sizeof(struct pinion_fabric_attr) */
	uint64_t flags; /* 0: none are known */
	struct fid_domain *domain;
	/* What the domain was opened with: its mr_mode cannot be read from the
	 * domain. Only looked at during the call. */
	const struct fi_info *info;
	/* With FI_MR_ENDPOINT: the one endpoint that all memory is bound to.
	 * Enabled, and open for as long as the context. Else NULL. */
	struct fid_ep *endpoint;
};

/* Opens a context over a domain of the caller; attr may be NULL, and its
 * `registrar` must be. The option `device` has no effect.
 * Every mr_mode is taken but FI_MR_RAW (keys are 64 bits here) and
 * FI_MR_MMU_NOTIFY. Without FI_MR_PROV_KEY pinion chooses keys, in the upper
 * half of what mr_key_size allows: choose the program's own in the lower half.
 * pinion_pin() on such a context also returns -EOPNOTSUPP: the access asks for
 * atomics and info->caps has no FI_ATOMIC; -EIO: an error of libfabric that is
 * no errno.
 * -EINVAL: NULL, a wrong size, unknown flags, attr->registrar is set, an
 * endpoint without FI_MR_ENDPOINT or FI_MR_ENDPOINT without one; -E2BIG: the
 * attributes are of a newer pinion; -EOPNOTSUPP: the mr_mode, or pinion was
 * built without libfabric; else as pinion_open(). */
PINION_API int pinion_fabric_open(const struct pinion_fabric_attr *fabric,
				  const struct pinion_attr *attr,
				  struct pinion_context **out);

/* What peers give as the address (fi_write()'s addr) together with
 * pin->remote_key: the buffer's address, or its offset in the registration
 * where the domain has no FI_MR_VIRT_ADDR. Only for pins of a context that
 * pinion_fabric_open() opened. 0: NULL. */
PINION_API uint64_t pinion_fabric_addr(const struct pinion_pin *pin);

/* The registration that holds the pinned buffer: it may be larger. Do not close
 * it. */
static inline struct fid_mr *pinion_fabric_mr(const struct pinion_pin *pin)
{
	return (struct fid_mr *)pin->handle;
}

/* The descriptor for the program's own operations, as of fi_mr_desc(). */
static inline void *pinion_fabric_desc(const struct pinion_pin *pin)
{
	return (void *)(uintptr_t)pin->local_key;
}

#ifdef __cplusplus
}
#endif

#endif
