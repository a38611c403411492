/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * connect -- connects verbs devices, and detects the end of peers.
 *
 * Every device listens with rdma_cm on an IP address of its port. Its address
 * holds the IP address, the port number of the listener and a nonce. To attach,
 * a device connects its tx queue pair: it resolves the address and the route,
 * creates a queue pair and sends a connection request with a hello as private
 * data. The other side creates the matching rx queue pair and accepts. If the
 * peer is new to it, it connects its own tx queue pair to the address in the
 * hello. A peer is up when both queue pairs are connected. The order does not
 * matter and nothing is negotiated: each side has exactly one tx queue pair. A
 * hello of a peer that already has an rx queue pair replaces that queue pair
 * (the peer's tx broke, and the peer created a new one).
 *
 * Queue pairs are created with ibv_create_qp(), not by rdma_cm. rdma_cm
 * supplies their attributes (path, numbers); qp.c adds timeouts and retries.
 *
 * End of a peer: the kernel disconnects the queue pairs of a process that
 * closes or dies. tx disconnected: the peer is down. rx disconnected and not
 * replaced within a second: the peer is down, too, since the other disconnect
 * may be lost. Port or adapter lost: all peers are down. Otherwise operations
 * fail (retries exceeded).
 * On iWARP, a queue pair is also disconnected when the target refuses an
 * operation. The service thread therefore reconnects once; the peer is down if
 * that fails.
 *
 * Threads: the service thread (service.c), except attach().
 */
#ifndef PN_DEVICE_VERBS_CONNECT_H
#define PN_DEVICE_VERBS_CONNECT_H

#include "device/verbs/verbs_impl.h"

#define PN_VERBS_MAGIC UINT32_C(0x70696e76) /* "pinv" */

/* The hello: private data of a connection request; at most 56 bytes fit. The
 * first two words are the same in every version. */
struct pn_verbs_hello {
	uint32_t magic;
	uint32_t version;
	uint64_t to; /* nonce of the device that is addressed */
	struct pn_verbs_address from;
};

/* On iWARP, which has room for more: the generation of the sender's tx queue
 * pair, the credit that it grants and its confirming byte (iwarp.h). */
struct pn_verbs_iwarp_hello {
	struct pn_verbs_hello hello;
	uint16_t generation;
	struct pn_verbs_credit credit;
	uint16_t unused;
	struct pn_verbs_confirm_byte confirm_byte;
};

union pn_verbs_socket_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* Listens at dev->address and sets its port. Starts no thread. */
int pn_verbs_listen(struct pn_verbs_device *dev);
void pn_verbs_listen_stop(struct pn_verbs_device *dev);

/* Begins to connect tx, again if it was connected. */
void pn_verbs_peer_connect(struct pn_verbs_device *dev,
			   struct pn_verbs_peer *peer);
/* Disconnects a peer and reports, once, that it is down. */
void pn_verbs_peer_down(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
			int status);
/* Disconnects a peer; also when it is not connected. */
void pn_verbs_peer_disconnect(struct pn_verbs_peer *peer);
/* Handles the rdma_cm events that are there. */
void pn_verbs_cm_read_events(struct pn_verbs_device *dev);
bool pn_verbs_port_is_up(struct pn_verbs_device *dev);

/* address.c: checks a hello. 0, -EPROTO (no hello of pinion), -ECONNREFUSED
 * (another version), -ECONNRESET (for a device that has closed), -EINVAL. */
int pn_verbs_hello_check(const void *data, size_t len, uint64_t nonce,
			 struct pn_verbs_hello *out);

/* An address as a blob. An IPv4 address is shorter, so that libfabric's names
 * of 64 bytes have room for a second device. */
void pn_verbs_address_put(const struct pn_verbs_address *address,
			  struct pn_address *out);
/* And back. -EINVAL. */
int pn_verbs_address_check(const struct pn_address *blob,
			   struct pn_verbs_address *out);
/* port: with the port number, else 0. */
void pn_verbs_address_to_socket(const struct pn_verbs_address *from, bool port,
				union pn_verbs_socket_address *out);

#endif
