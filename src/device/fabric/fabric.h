/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric -- the device over any libfabric provider with reliable datagram
 * endpoints (tcp;ofi_rxm, verbs;ofi_rxm, efa, cxi, shm, ...): hosts without an
 * adapter that `verbs` can use.
 *
 * Nouns
 *   packet    a message of libfabric with a header of ours (wire.h).
 *   request   a packet that carries or describes an operation: it uses a
 *             credit. The target executes the requests of a peer in order.
 *   window    the credits of a peer: how many of its requests the receiver has
 *             packets for. A credit returns when the caller returns the buffer.
 *   number    of a request: how many were posted to the peer before it. The
 *             header of each packet says how many requests were executed.
 *   record    of a request of ours: what completes when it has ended.
 *   answer    a packet with the result of a request: bytes, a grant, an error.
 *   pull      a request for a long WRITE: the target fetches the bytes.
 *   grant     permission to read memory of the target for a long READ, until
 *             the initiator releases it.
 *   fetch     the fi_read()s of one pull or granted READ, one for each piece
 *             (segment of memory).
 *   teardown  what is left to do for a peer that is down, before PEER_DOWN.
 *
 * How an operation runs. Each provider checks keys in its own way: shm not at
 * all (it copies by address), tcp by closing the connection, which loses the
 * messages in flight. device.h promises -EACCES and a peer that stays usable.
 * So the target's CPU executes requests and checks keys of our own (keys.h).
 *   SEND, short WRITE  the packet holds the bytes.
 *   long WRITE         the packet names the source; the target checks its key
 *                      and reads the source with fi_read().
 *   short READ, atomic the answer holds the bytes.
 *   long READ          the answer grants a provider's key; the initiator reads
 *                      with fi_read() and then releases the grant.
 * All bytes of long operations therefore move by fi_read(), which is complete
 * when the bytes are there: no order between writes and sends, no fence, no
 * FI_DELIVERY_COMPLETE and no remote CQ data is needed of a provider.
 * doc/design/fabric.md has the reasons.
 *
 * Threads: a service thread (service.c) makes progress while no caller does, so
 * that requests of peers are executed while the program computes; it sends and
 * answers heartbeats. All calls of libfabric for messages are under dev->lock,
 * also when the device is single_threaded.
 *
 * Errors: of libfabric become errno values; those that device.h does not name
 * take the peer down.
 * Caveat: libfabric is opened with dlopen() when the first device is opened: a
 * program that is itself a libfabric program, and pinion's own provider, use
 * the same library. pinion's provider is never chosen.
 */
#ifndef PN_DEVICE_FABRIC_H
#define PN_DEVICE_FABRIC_H

#include "device/device.h"

extern const struct pn_device_ops pn_fabric_ops;

#endif
