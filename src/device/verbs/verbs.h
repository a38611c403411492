/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs -- real RDMA: InfiniBand, RoCE, iWARP and the kernel's own software
 * adapters (rxe, siw), through libibverbs and librdmacm.
 *
 * A device is one port of one adapter. To each peer there are two reliable
 * connections, one for each direction of asking: what we post travels on our
 * `out` lane, what the peer posts arrives on its own, our `in` lane (lane.h).
 * So an operation that the peer refuses breaks, as RC does, only the lane of
 * the one who asked: the device makes that lane anew behind the peer, and what
 * the peer itself has under way never notices.
 *
 * Lanes are made by rdma_cm, which is the one way that works alike on
 * InfiniBand (with IPoIB), RoCE, iWARP, rxe and siw (connect.h). Each side
 * connects its own out lane, so that both may attach at the same moment and
 * still be one peer each.
 *
 * Sends arrive in buffers of the device through one shared receive queue; a
 * sender that is too fast is told to wait by the receiver's adapter (RNR) for
 * as long as it takes, and its own queue fills up. iWARP has no such waiting,
 * nor immediates, nor completions that say something was done: iwarp.h.
 *
 * Fences: rxe and siw cannot be relied on (rxe sends a fenced operation again
 * only when reads have ended that wait for it), so on software adapters and on
 * iWARP post() says -EAGAIN until the reads that a fence waits for have ended.
 *
 * Keys: an lkey of ours is a slot of a table (keys.h) besides the adapter's
 * own number, checked before posting; an rkey is the adapter's number and a
 * tag of its device, checked by whoever uses it: a key of one device that is
 * used with another is refused even if the adapters chose the same number.
 *
 * doc/design/verbs.md tells why.
 * Caveat: after fork() the child must not touch the device; the memory stays
 * the parent's (ibv_fork_init()).
 */
#ifndef PN_DEVICE_VERBS_H
#define PN_DEVICE_VERBS_H

#include "device/device.h"

extern const struct pn_device_ops pn_verbs_ops;

#endif
