/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs -- the device over RDMA adapters: InfiniBand, RoCE, iWARP and the
 * kernel's software adapters (rxe, siw), through libibverbs and librdmacm.
 *
 * A device is one port of one adapter. Each peer has two reliable connected
 * queue pairs, one per initiator. The device posts its operations on the `tx`
 * queue pair; the peer's operations arrive on the `rx` queue pair. When the
 * peer refuses an operation, RC moves the queue pair to the error state. With
 * two queue pairs only the initiator's breaks: the device replaces its tx queue
 * pair, and the operations of the peer continue.
 *
 * rdma_cm connects the queue pairs (connect.h): it is the one interface that
 * works on InfiniBand (with IPoIB), RoCE, iWARP, rxe and siw. Each side
 * connects its own tx queue pair. Two devices may therefore attach to each
 * other at the same time.
 *
 * Sends arrive in buffers of the device through one shared receive queue. When
 * the receiver has no buffer, its adapter answers RNR; the sender's adapter
 * retries without limit, and the sender's queue fills up. iWARP has no RNR, no
 * immediate data and no completion that means "done at the target"; iwarp.h
 * adds them.
 *
 * Fences: fences of rxe and siw are not reliable (rxe resends a fenced
 * operation only when the reads that it waits for have ended). On software
 * adapters and on iWARP, post() returns -EAGAIN until the reads before a fence
 * have ended.
 *
 * Keys: an lkey holds the slot of a table (keys.h) and the adapter's lkey.
 * post() checks it. An rkey holds the adapter's rkey and a tag of the device.
 * The initiator checks the tag: a key of another device is refused even if both
 * adapters chose the same number.
 *
 * doc/design/verbs.md has the reasons.
 * Caveat: after fork() the child must not use the device. Registered memory
 * stays with the parent (ibv_fork_init()).
 */
#ifndef PN_DEVICE_VERBS_H
#define PN_DEVICE_VERBS_H

#include "device/device.h"

extern const struct pn_device_ops pn_verbs_ops;

#endif
