/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * soft -- a software RDMA adapter between processes of one host.
 *
 * Registering really pins: a range fills a slot of an io_uring buffer table
 * (slots.h). Puts and gets go through the target's ring into its pinned pages
 * without its CPU (move.h), so that a registration which outlives its pages
 * loses data as on hardware. Messages go through shared memory (channel.h), a
 * resident thread plays the DMA engine (engine.h), another one connects and
 * notices deaths (connect.h). Where io_uring is not permitted, mlock() and
 * checked copies stand in (fallback.h), and describe() says so.
 *
 * doc/design/soft.md tells the whole, with what it does and does not protect
 * against.
 * Caveat: after fork() the child must not touch the device; it has neither
 * threads nor mappings of it, and copies of its descriptors until exec().
 */
#ifndef PN_DEVICE_SOFT_H
#define PN_DEVICE_SOFT_H

#include "device/device.h"

extern const struct pn_device_ops pn_soft_ops;

#endif
