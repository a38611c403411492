/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * blocks -- the host memory that is registered with the driver.
 *
 * The driver refuses a range with a byte that is registered already (712), so
 * overlapping registrations of pinion share blocks. A block is a range of
 * bytes, registered in one call; `refs` counts the registrations that cover it.
 *
 * A registration that may be divided (pn_device.divides) has blocks of at most
 * PN_CUDA_BLOCK_BYTES, of whole pages: a call of the driver that registers
 * holds up the other calls of the process, and between blocks they get in.
 * Otherwise a range is one block of exactly its bytes: the program may copy it
 * with one call of its own, and the driver refuses a copy that begins in a
 * registration and ends behind it.
 *
 * foreign  the program has registered it. It is not ours to register or to end.
 *          Copies work, since the driver finds the registration by address.
 * stale    the program has released some of its pages. Nothing new may use it,
 *          and nothing else can be registered there until its last user is
 *          gone: registering returns -EBUSY.
 * gone     the CUDA context was destroyed, and the registration with it.
 * refused  the driver did not unregister it. It has no references, nothing may
 *          use it, and it stays held in the gate, since the driver still finds
 *          it by address. pn_cuda_blocks_retry() tries again.
 *
 * While the driver registers a block, the block is not in the table, and a
 * release has nothing to mark. So the last releases are remembered: a block
 * that enters the table is stale if its pages were released since its
 * registration began. Without that, the next registration of these pages would
 * share the block and its old pages.
 *
 * At rest: blocks are sorted and do not overlap; each has at least one
 * reference or is refused; bytes is the sum of those that are neither foreign
 * nor gone.
 * Threads: any. `calls` is held while the driver registers or unregisters: it
 * serialises what the driver serialises anyway. `lock`, a leaf taken after it,
 * protects the table.
 */
#ifndef PN_DEVICE_CUDA_BLOCKS_H
#define PN_DEVICE_CUDA_BLOCKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/lock.h"
#include "base/range.h"
#include "device/cost_estimate.h"
#include "device/cuda/driver.h"

/* Registers in 1.6 ms on an H200; pages never touched would take 13 ms and are
 * touched beforehand. A copy of registered memory takes 5 us more for each
 * block. */
#define PN_CUDA_BLOCK_BYTES ((size_t)32 << 20)

struct pn_cuda_block {
	struct pn_range range;
	unsigned refs; /* registrations that cover it */
	bool foreign, stale, gone;
	bool held; /* in the gate (gate.h) */
};

/* More releases than that during one call of the driver count as releases of
 * everything. */
#define PN_CUDA_RELEASES 64

struct pn_cuda_blocks {
	const struct pn_cuda_driver *cu;
	struct pn_mutex calls, lock;
	struct pn_cuda_block *table; /* lock */
	size_t n, room;		     /* lock */
	_Atomic size_t nrefused;     /* of n; written under both locks */
	struct pn_range releases[PN_CUDA_RELEASES]; /* lock; a ring */
	uint64_t nreleases;			    /* lock; so far */
	_Atomic size_t bytes;
	_Atomic size_t unpaused; /* bytes since the last pause */
	struct pn_cost_estimate reg, dereg;
};

/* The estimates go to costs[0..3]: those of registering and deregistering, each
 * fixed and per page. */
void pn_cuda_blocks_init(struct pn_cuda_blocks *blocks,
			 const struct pn_cuda_driver *cu,
			 double *const costs[4]);
/* Unregisters what is left; a context is current. */
void pn_cuda_blocks_fini(struct pn_cuda_blocks *blocks);

struct pn_cuda_blocks_request {
	struct pn_range range;
	bool own;    /* memory of pinion: the gate does not matter */
	bool divide; /* in blocks of PN_CUDA_BLOCK_BYTES */
};

/* Registers what is not yet, in the current context. -EBUSY: stale, or the
 * program is copying there; -EFAULT: cannot be registered; -ENOMEM; -ENODEV:
 * the context is gone. On error nothing has changed. */
int pn_cuda_blocks_get(struct pn_cuda_blocks *blocks,
		       const struct pn_cuda_blocks_request *request);
/* Ends a registration of this range. */
void pn_cuda_blocks_put(struct pn_cuda_blocks *blocks, struct pn_range range);

/* Tries again what the driver refused to unregister. False: it still refuses
 * some of the range, which is put. */
bool pn_cuda_blocks_retry(struct pn_cuda_blocks *blocks, struct pn_range range);

/* Between calls of the two above: lets other CUDA calls of the process in, if a
 * block's length was registered or unregistered since the last time. */
void pn_cuda_blocks_pause(struct pn_cuda_blocks *blocks);

/* The pages were released. Takes only the leaf lock. */
void pn_cuda_blocks_released(struct pn_cuda_blocks *blocks,
			     struct pn_range range);

/* The context is gone, and with it all that was registered in it. */
void pn_cuda_blocks_lost(struct pn_cuda_blocks *blocks);

/* How many bytes from addr on, at most len, can be copied in one call. */
size_t pn_cuda_blocks_run(struct pn_cuda_blocks *blocks, uintptr_t addr,
			  size_t len);

#endif
