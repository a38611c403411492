/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion/verbs.h -- pinion's cache under a verbs program.
 *
 * The program keeps its adapter, its protection domain and its queue pairs;
 * registering goes through pinion:
 *
 *	struct pinion_context *context;
 *	struct pinion_pin pin;
 *
 *	pinion_verbs_open(pd, NULL, &context);
 *	...
 *	pinion_pin(context, buf, len, PINION_ACCESS_LOCAL_WRITE, &pin);
 *	struct ibv_sge sge = { (uintptr_t)buf, len, pinion_verbs_lkey(&pin) };
 *	... post, and poll for the completion ...
 *	pinion_unpin(context, &pin);
 *
 * The keys of a pin are good on every queue pair of the protection domain.
 * They do not change before pinion_unpin() and may be dead after it: unpin when
 * the last work request that uses them has completed, and, with remote access,
 * when the peers will not use the key again. Memory of a heap
 * (pinion/heap.h) has the keys of its slab.
 * A context over a registrar (pinion/registrar.h) has no endpoints.
 *
 * Close the context before the protection domain: ibv_dealloc_pd() returns
 * EBUSY while memory is registered in it.
 */
#ifndef PINION_VERBS_H
#define PINION_VERBS_H

#include <stdint.h>

#include <pinion/cache.h>
#include <pinion/config.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_pd;
struct ibv_mr;
struct pinion_attr;

/* Opens a context over a protection domain of the caller; attr may be NULL, and
 * its `registrar` must be. The option `device` has no effect. The limits are
 * those of the adapter and RLIMIT_MEMLOCK.
 * pinion_pin() on such a context also returns -EOPNOTSUPP: the access asks for
 * atomics and the adapter has none.
 * -EINVAL: NULL, attr->registrar is set; -EOPNOTSUPP: pinion was built without
 * verbs; -EIO: the adapter does not answer; else as pinion_open(). */
PINION_API int pinion_verbs_open(struct ibv_pd *pd,
				 const struct pinion_attr *attr,
				 struct pinion_context **out);

/* The registration that holds the pinned buffer: it may be larger. Do not
 * deregister it. */
static inline struct ibv_mr *pinion_verbs_mr(const struct pinion_pin *pin)
{
	return (struct ibv_mr *)pin->handle;
}

/* For the segments of the program's own work requests. */
static inline uint32_t pinion_verbs_lkey(const struct pinion_pin *pin)
{
	return (uint32_t)pin->local_key;
}

/* For peers, with the buffer's address; means nothing without remote access. */
static inline uint32_t pinion_verbs_rkey(const struct pinion_pin *pin)
{
	return (uint32_t)pin->remote_key;
}

#ifdef __cplusplus
}
#endif

#endif
