/* SPDX-License-Identifier: BSD-2-Clause */
/* The device `cuda` inside (cuda.h): cuda.c opens and closes it and keeps the
 * registrations, operation.c moves bytes, context.c is about the CUDA context,
 * blocks.c about the driver's registrations. */
#ifndef PN_DEVICE_CUDA_CUDA_IMPL_H
#define PN_DEVICE_CUDA_CUDA_IMPL_H

#include <stdatomic.h>

#include "base/lock.h"
#include "device/cuda/blocks.h"
#include "device/cuda/cuda.h"

/* Operations in flight. */
#define PN_CUDA_DEPTH 64

/* A registration of the device, by its key. */
struct pn_cuda_key {
	uintptr_t addr;
	size_t len;
	uint32_t generation; /* odd: in use */
	uint32_t next_free;
};

struct pn_cuda_keys {
	struct pn_mutex lock; /* a leaf; all below */
	struct pn_cuda_key *table;
	uint32_t n, room, free; /* entry 0 is never used */
};

/* An operation that was posted. */
struct pn_cuda_op {
	pn_cu_event event; /* recorded behind its copies */
	void *user;
	int status; /* known when it was posted */
	bool silent;
	struct pn_range host; /* around its segments */
};

struct pn_cuda_device {
	struct pn_device device;
	const struct pn_cuda_driver *cu;
	int ordinal, numa_node;
	char name[96], bus_id[32];
	/* The context (context.c). */
	pn_cu_context context;
	bool is_primary; /* retained by us */
	_Atomic unsigned long long context_id;
	struct pn_mutex revive_lock;
	_Atomic bool was_logged; /* that the context is gone */
	struct pn_cuda_blocks blocks;
	struct pn_cuda_keys keys;
	_Atomic size_t live_bytes, nmrs;
	/* Operations (operation.c). `lock` is held while copies are started. */
	struct pn_mutex lock;
	unsigned long long stream_id; /* lock; of the context it belongs to */
	pn_cu_stream stream;	      /* lock */
	struct pn_cuda_op ops[PN_CUDA_DEPTH]; /* lock */
	_Atomic unsigned head, tail;	      /* lock to write; of ops */
	struct pn_peer peer;
	_Atomic bool attached, up_reported; /* PEER_UP */
	int event_fd;
	_Atomic bool woken;
};

static inline struct pn_cuda_device *pn_cuda_of(struct pn_device *device)
{
	return pn_container_of(device, struct pn_cuda_device, device);
}

/* --- context.c ------------------------------------------------------------ */

/* Chooses the context: see cuda.h. -EINVAL, -ENODEV: logged. */
int pn_cuda_context_open(struct pn_cuda_device *dev, int wanted);
void pn_cuda_context_close(struct pn_cuda_device *dev);

/* --- operation.c ---------------------------------------------------------- */

/* A context is current. */
int pn_cuda_stream_open(struct pn_cuda_device *dev);
void pn_cuda_stream_close(struct pn_cuda_device *dev);

/* Waits for operations in flight on a range; before it is deregistered. */
void pn_cuda_quiesce(struct pn_cuda_device *dev, struct pn_range range);

int pn_cuda_attach(struct pn_device *device, const struct pn_address *address,
		   struct pn_peer **out);
void pn_cuda_address(struct pn_device *device, struct pn_address *out);
int pn_cuda_post(struct pn_device *device, struct pn_peer *peer,
		 const struct pn_op *op);
int pn_cuda_poll(struct pn_device *device, struct pn_completion *out,
		 unsigned max);
int pn_cuda_wait(struct pn_device *device, uint64_t deadline_ns);
void pn_cuda_wake(struct pn_device *device);
int pn_cuda_fd(struct pn_device *device);
int pn_cuda_arm(struct pn_device *device);
int pn_cuda_scratch(struct pn_device *device, size_t bytes, uint64_t *addr,
		    uint64_t *rkey);
void pn_cuda_scratch_free(struct pn_device *device, uint64_t addr);

/* cuda.c: whether a segment lies in the registration of its key. */
bool pn_cuda_key_covers(struct pn_cuda_device *dev, const struct pn_sge *sge);

#endif
