/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * connect -- how verbs devices find each other, and notice each other's end.
 *
 * Every device listens with rdma_cm on an IP address of its port; its address
 * blob holds that, the number of the listener and a nonce. To attach is to
 * connect an out lane: resolve the address and the route, make a queue pair,
 * connect with a hello in the private data. The other side makes its half, an
 * in lane, and accepts; if the peer is new to it, it connects an out lane of
 * its own to the address in the hello. A peer is up when both lanes are there.
 * Who attached first does not matter, and nothing is negotiated: each side has
 * exactly one out lane, and a hello from a peer that has an in lane replaces
 * it (the peer's lane broke, and it made a new one).
 *
 * Queue pairs are ours, not rdma_cm's: it only says what to set (path, numbers)
 * and we add what it does not know: how soon to send again, how long to wait.
 *
 * The end: the kernel says goodbye for connections of a process that closes or
 * dies. Out lane gone: the peer is down. In lane gone and not replaced within
 * a second: as well, for goodbyes may get lost. Port or adapter gone: every
 * peer is down. Otherwise operations find out (retries exceeded).
 * On iWARP a lane is dropped, too, when the target refuses something. So the
 * service connects again at once, and the peer is down if that fails.
 *
 * Threads: all of this is the service thread's, except attach() and
 * pn_verbs_service_notify().
 */
#ifndef PN_DEVICE_VERBS_CONNECT_H
#define PN_DEVICE_VERBS_CONNECT_H

#include "device/verbs/verbs_impl.h"

#define PN_VERBS_MAGIC UINT32_C(0x70696e76) /* "pinv" */

/* Hello, in the private data of a connection; at most 56 bytes fit. The first
 * two words are the same in every version. */
struct pn_verbs_hello {
	uint32_t magic;
	uint32_t version;
	uint64_t to; /* the nonce of whom we look for */
	struct pn_verbs_address from;
};

/* On iWARP, which has room for more: which lane of its owner's this is, what
 * its owner has granted and what may be read to confirm (iwarp.h). */
struct pn_verbs_iwarp_hello {
	struct pn_verbs_hello hello;
	uint16_t lane;
	struct pn_verbs_credit grant;
	uint16_t unused;
	struct pn_verbs_confirm_byte byte;
};

/* Listens at dev->address (and sets its port). Starts nothing yet. */
int pn_verbs_listen(struct pn_verbs_device *dev);
int pn_verbs_service_start(struct pn_verbs_device *dev);
/* Ends the thread and all connections. */
void pn_verbs_service_stop(struct pn_verbs_device *dev);
void pn_verbs_listen_stop(struct pn_verbs_device *dev);

/* Makes the service look at what callers want. Any thread. */
void pn_verbs_service_notify(struct pn_verbs_device *dev);

/* Whether a hello is one; for the fuzzer, too. 0, -EPROTO (not ours at all),
 * -ECONNREFUSED (another version), -ECONNRESET (for a device that was here
 * before), -EINVAL. */
int pn_verbs_hello_check(const void *data, size_t len, uint64_t nonce,
			 struct pn_verbs_hello *out);

/* An address as a blob: of IPv4 shorter, so that names of libfabric, which have
 * 64 bytes, have room for another device's; and back: -EINVAL. */
void pn_verbs_address_put(const struct pn_verbs_address *address,
			  struct pn_address *out);
int pn_verbs_address_check(const struct pn_address *blob,
			   struct pn_verbs_address *out);

#endif
