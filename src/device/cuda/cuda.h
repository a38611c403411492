/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cuda -- the copy engine of an NVIDIA GPU as a device: `cuda`, `cuda:1`.
 *
 * Registering is cuMemHostRegister(). The one peer is the GPU's own memory: its
 * address is the device's own, its key PN_CUDA_RKEY, and remote addresses are
 * CUdeviceptr values. Writes copy to the GPU, reads from it, on one stream of
 * the device, in order. There are no messages and no atomics: posting a send
 * is refused with -EOPNOTSUPP.
 *
 * Nouns
 *   context   the CUDA context that the device works in: the one that was
 *             current where the device was opened, if it is of the GPU that
 *             the spec names; else the primary one, which the device retains.
 *             Every call pushes it, and pops it.
 *   block     a range that was registered with the driver in one call
 *             (blocks.h). Registrations of this device that overlap share
 *             blocks, since the driver refuses to register a byte twice. A
 *             registration of the program is a block that is left alone.
 *
 * CUDA finds registrations by address in every copy of the process
 * (PN_CAP_BY_ADDRESS); doc/design/cuda.md has the rules that follow.
 *
 * Life: opening finds driver, GPU and context and creates a non-blocking
 * stream; close() waits for what was posted and leaves nothing behind. When the
 * context is destroyed under the device (cudaDeviceReset()), what was
 * registered is gone: operations fail with -ECONNRESET, and a device with a
 * primary context starts again in the new one.
 *
 * Threads: any. In calls of the device the calling thread's capture mode is
 * RELAXED: a global capture of another thread neither fails nor ends.
 * Errors are those of device.h. A context that is gone is -EFAULT when
 * registering; a line in the log says so.
 */
#ifndef PN_DEVICE_CUDA_CUDA_H
#define PN_DEVICE_CUDA_CUDA_H

#include "device/cuda/driver.h"
#include "device/device.h"

extern const struct pn_device_ops pn_cuda_ops;

#define PN_CUDA_RKEY UINT64_C(0x43554441)

/* Whether a device is of this kind. The calls below are for those only. */
bool pn_device_is_cuda(const struct pn_device *device);

const struct pn_cuda_driver *pn_cuda_driver_of(const struct pn_device *device);
pn_cu_context pn_cuda_context_of(const struct pn_device *device);
/* The id that the driver gives the context now; 0: it does not exist. Another
 * one than before: what was registered and created in the context is gone. */
unsigned long long pn_cuda_context_id(struct pn_device *device);
int pn_cuda_ordinal_of(const struct pn_device *device);
/* "0000:18:00.0" */
const char *pn_cuda_bus_id_of(const struct pn_device *device);

/* How many bytes from addr on, at most len, can be copied in one call: a copy
 * that begins in a registration may not end behind it. */
size_t pn_cuda_run(struct pn_device *device, const void *addr, size_t len);

/* What was current before pn_cuda_enter(). */
struct pn_cuda_scope {
	bool pushed;
	int capture_mode;
};

/* Makes the device's context the current one, and the thread's capture mode
 * RELAXED. -ENODEV: the context is gone. pn_cuda_leave() restores both. */
int pn_cuda_enter(struct pn_device *device, struct pn_cuda_scope *scope);
void pn_cuda_leave(struct pn_device *device, const struct pn_cuda_scope *scope);

#endif
