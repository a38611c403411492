/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * soft -- a software RDMA adapter between processes of one host.
 *
 * Registering really pins: a range fills a slot of an io_uring buffer table
 * (slots.h). Puts and gets go through the target's ring into its pinned pages
 * without the target's CPU (move.h), so that a registration which outlives its
 * pages loses data as on hardware. Messages go through shared memory
 * (channel.h). One thread acts as the DMA engine (engine.h), another one
 * connects and detects deaths (service.h). Where io_uring is not permitted,
 * mlock() and checked copies replace it (fallback.h), and describe() reports
 * that.
 *
 * doc/design/soft.md describes the whole device, and what it does and does not
 * protect against.
 * Caveat: after fork() the child must not use the device. The child has neither
 * its threads nor its mappings; it has copies of its descriptors until exec().
 */
#ifndef PN_DEVICE_SOFT_H
#define PN_DEVICE_SOFT_H

#include "device/device.h"

extern const struct pn_device_ops pn_soft_ops;

#endif
