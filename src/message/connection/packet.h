/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * packet -- packets to a peer: header and payload in one send of the device.
 *
 * A packet that the device takes inline is gathered from where it lies: one
 * copy, by the device. A longer one is copied into a packet buffer, which is
 * registered. When the device's queue is full the packet waits at its peer, and
 * so do all packets behind it: messages match in the order in which they were
 * sent.
 *
 * Between endpoints that both use several rails packets are numbered and kept
 * until the device confirms them (retransmit.c). The kept copies are packet
 * buffers, too; short ones are not registered, since they are sent inline.
 *
 * Life of a packet buffer: free -> filled and posted -> its completion frees
 * it. With several rails it is in peer->unconfirmed meanwhile, and may be
 * posted again.
 *
 * Threads: under the endpoint's lock.
 */
#ifndef PN_MESSAGE_PACKET_H
#define PN_MESSAGE_PACKET_H

#include "base/list.h"
#include "message/connection/connection.h"
#include "message/connection/wire.h"
#include "message/endpoint/operation.h"
#include "message/endpoint/pool.h"

struct pinion_request;
struct pinion_unexpected;

struct pn_packet_buffer {
	struct pn_operation_context operation;
	struct pn_list link; /* in its pool, or in peer->unconfirmed */
	uint8_t *data;
	struct pinion_peer *peer; /* whose unconfirmed list it is in; or NULL */
	size_t len;
	uint32_t sequence;
	bool unregistered; /* sent inline */
	bool posted;	   /* its operation has not ended */
};

/* A packet that waits for the device's queue. */
struct pn_queued_packet {
	struct pn_list link; /* in peer->packets */
	struct pn_wire wire;
	/* The payload lies in the buffer of a request, which waits for the
	 * packet; or, without a request, in `copy`. */
	struct pinion_request *request;
	const uint8_t *payload;
	size_t len;
	uint8_t copy[PN_WIRE_MAX_KEYS * sizeof(struct pn_wire_key)];
};

/* What an endpoint has for packets. */
struct pn_endpoint_packets {
	struct pn_pool buffers;	      /* fixed; registered in `memory` */
	struct pn_pool_memory memory; /* on every rail */
	struct pn_pool unregistered;  /* for retransmission of short packets */
	size_t unregistered_bytes;    /* capacity of these */
	struct pn_pool queued;	      /* struct pn_queued_packet */
};

/* Makes the pools, and registers memory for packet buffers if a device needs
 * them. */
int pn_packets_open(struct pinion_endpoint *ep);
/* Deregisters. Operations may still point to packet buffers. */
void pn_packets_close(struct pinion_endpoint *ep);
/* Frees the pools when the endpoint is freed. */
void pn_packets_free(struct pinion_endpoint *ep);
void pn_packet_buffer_put(struct pinion_endpoint *ep,
			  struct pn_packet_buffer *buffer);

/* Sends a packet now or, when the queue is full, later and in order. With a
 * request, the payload lies in its buffer, and request->npackets counts the
 * packet while it waits. -ENOMEM, or why the peer is down. */
int pn_packet_send(struct pinion_peer *peer, const struct pn_wire *wire,
		   const void *payload, size_t len,
		   struct pinion_request *request);

/* Sends a packet now. -EAGAIN: the queue is full. For streams of DATA. */
int pn_packet_try_send(struct pinion_peer *peer, const struct pn_wire *wire,
		       const void *payload, size_t len);

/* Whether the device takes a packet with len bytes of payload inline. */
static inline bool pn_packet_is_inline(const struct pn_connection *conn,
				       size_t len)
{
	return sizeof(struct pn_wire) + len <=
	       conn->rail->device->limits.inline_bytes;
}

/* Posts such a packet. In virtual time the cost of the copy is charged here. */
static inline int pn_packet_post_inline(const struct pn_connection *conn,
					const struct pn_inline_header *header,
					const void *payload, size_t len)
{
	struct pn_device *device = conn->rail->device;
	int ret = pn_device_send_inline(device, conn->device_peer, header,
					payload, len);

	if (pn_unlikely(!ret && device->ops->consume_cpu))
		pn_device_consume_cpu(device,
				      (uint64_t)((double)len *
						 device->costs.copy_byte_ns));
	return ret;
}

/* Posts a packet on a connection, ahead of those that wait. */
int pn_packet_post(const struct pn_connection *conn, const struct pn_wire *wire,
		   const void *payload, size_t len);

/* Copies header and payload into a buffer. */
void pn_packet_fill(struct pn_packet_buffer *buffer, const struct pn_wire *wire,
		    const void *payload, size_t len, struct pn_device *device);

/* Removes the MATCH or GRANT of a request from the queue; false: it is not
 * there any more. */
bool pn_packet_withdraw(struct pinion_request *request);

/* --- retransmit queue (retransmit.c) -------------------------------------- */

/* As pn_packet_try_send(); keeps the packet until it is confirmed. */
int pn_retransmit_send(struct pinion_peer *peer, const struct pn_wire *wire,
		       const void *payload, size_t len);
/* The operation of such a packet ended. */
void pn_retransmit_done(struct pn_packet_buffer *buffer, int status);
/* Posts again what has to be; true when something was posted. */
bool pn_retransmit_progress(struct pinion_peer *peer);
/* Drops unconfirmed and out-of-order packets. */
void pn_retransmit_drop(struct pinion_peer *peer);

/* A packet with a sequence number arrived. 0: act on it; -EALREADY: it is a
 * duplicate, or is kept until its turn; -EPROTO, -ENOMEM: the peer fails. */
int pn_sequence_received(struct pinion_peer *peer, uint32_t sequence,
			 const struct pn_wire *wire, const uint8_t *payload,
			 size_t len);
/* The next packet, if it arrived out of order before; or NULL. */
struct pinion_unexpected *pn_sequence_next(struct pinion_peer *peer);

#endif
