/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wire -- every format that travels between endpoints.
 *
 * A packet is one send of the device: a header of fixed size, then payload.
 * Numbers are little-endian, as on every machine that pinion runs on; peers
 * belong to one job, so nothing is converted. The first byte is the version of
 * all formats here. A peer that uses another version is refused, and the log
 * says so.
 *
 * No packet is trusted. pn_wire_parse() checks that a packet is complete and of
 * a known kind. Whoever acts on it checks its numbers against its own state:
 * requests by id with generation, ranges against buffers.
 *
 * Messages (Woodall and others 2006, figures 1 to 4); S: sender, R: receiver
 *   MATCH   S -> R  tag, length, first bytes of the data; or (read) the keys of
 *                   the source
 *   ACK     R -> S  matched; how many bytes to send by DATA
 *   DATA    S -> R  bytes at an offset
 *   READY   R -> S  a fragment of the target is registered: its keys
 *   FIN     S -> R  the fragment has been written
 *   DONE    R -> S  (read) the source has been read
 *   GOT     R -> S  the message has arrived; sent if the MATCH asks for it: for
 *                   an eager message when its MATCH arrives, matched or
 *                   not, for others when they are complete
 *   CANCEL  S -> R  drop the message if it is not matched yet
 *   GONE    R -> S  the message was dropped
 *   FAIL    both    the other side's request cannot go on: status
 *   ASK     S -> R  how much of what came from here is kept for receives to
 *                   come? Also a bit of the MATCH (allowance.h)
 *   KEPT    R -> S  the answer, in bytes
 * Connections
 *   HELLO   both    first on every connection of an endpoint with several
 *                   rails: its address, and the names of the session (peer.c)
 *   (empty) both    BYE, the last packet on a connection: its sender closes
 *                   (close.c)
 *   DOWN    both    a rail is down at the sender of this packet. The sender has
 *                   announced again all fragments that it lacks (failover.c)
 * Conditional writes (grant.c); G: granter, W: writer
 *   GRANT      G -> W  a buffer may be written under a tag: its keys
 *   UNGRANT    G -> W  drop the grant if no write has used it yet
 *   UNGRANTED  W -> G  the grant was dropped
 *
 * Rails are numbered by the sender of the packet: its own rails. Between
 * endpoints that both use several rails, every packet except HELLO and BYE has
 * a sequence number, from 1 on, in the immediate of its send, since a packet
 * sent over a rail that failed may arrive twice or out of order. Other peers
 * have one connection, and their rails have number 0.
 *
 * A key blob names exposed memory. The program transports it.
 */
#ifndef PN_MESSAGE_WIRE_H
#define PN_MESSAGE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <pinion/message.h>

#include "device/device.h"

#define PN_WIRE_VERSION 5

enum pn_wire_kind {
	PN_WIRE_MATCH = 1,
	PN_WIRE_ACK,
	PN_WIRE_DATA,
	PN_WIRE_READY,
	PN_WIRE_FIN,
	PN_WIRE_DONE,
	PN_WIRE_CANCEL,
	PN_WIRE_GONE,
	PN_WIRE_FAIL,
	PN_WIRE_GRANT,
	PN_WIRE_UNGRANT,
	PN_WIRE_UNGRANTED,
	PN_WIRE_HELLO,
	PN_WIRE_DOWN,
	PN_WIRE_GOT,
	PN_WIRE_ASK,
	PN_WIRE_KEPT,
	PN_WIRE_NKINDS,
};

/* The same for all kinds of packets, so that there is one format to parse. 40
 * bytes leave room for a small message in the first cache line. */
struct pn_wire {
	uint8_t version;
	uint8_t kind;
	uint8_t protocol; /* MATCH: the protocol; READY, DOWN: a rail */
	uint8_t nkeys;	  /* MATCH, READY, GRANT: number of keys that follow */
	uint32_t to;	  /* request id at the receiver of this packet; 0: none;
			     MATCH: the program's data word */
	uint32_t from;	  /* request id at its sender */
	int32_t status; /* FAIL; READY: 1 if announced before; MATCH: the space,
			   and PN_WIRE_ bits */
	uint64_t tag; /* MATCH, GRANT, UNGRANT; HELLO: the sender's name of the
			 session; READY: immediate of the last write; ACK, DONE:
			 0, or the time that an earlier message took (timing.h):
			 its request id << 32, and units of 16 ns */
	uint64_t offset; /* DATA, READY, FIN; HELLO: the receiver's name of the
			    session, or 0; ACK: end of DATA; MATCH: two bits for
			    each key, its rail, and with PN_WIRE_WIDE_DATA in
			    the upper half that of the data word; GRANT:
			    immediate of the write */
	uint64_t len;	 /* MATCH, ACK: of the message; READY, FIN: of the
			    fragment; GRANT: of the buffer; KEPT: the bytes */
};

_Static_assert(sizeof(struct pn_wire) == sizeof(struct pn_inline_header),
	       "one is both");

static inline struct pn_inline_header pn_wire_head(const struct pn_wire *wire)
{
	struct pn_inline_header head;

	memcpy(&head, wire, sizeof(head));
	return head;
}

/* Bits of a MATCH's status; the lowest eight are the space. */
#define PN_WIRE_SPACE	  0xff
#define PN_WIRE_HAS_DATA  0x100
#define PN_WIRE_TELL	  0x200 /* asks for GOT */
#define PN_WIRE_ASKS	  0x800 /* asks for KEPT */
/* The data stayed with the sender, although the protocol would send some: they
 * follow the ACK. A message of 0 bytes asks for GOT when it is matched. */
#define PN_WIRE_LATE	  0x1000
/* The data word has more than 32 bits. The rails of at most PN_WIRE_WIDE_KEYS
 * keys fit beside it. */
#define PN_WIRE_WIDE_DATA 0x400
#define PN_WIRE_WIDE_KEYS 16

static inline int32_t pn_wire_match_status(uint8_t space, bool has_data,
					   uint64_t data)
{
	return space | (has_data ? PN_WIRE_HAS_DATA : 0) |
	       (data >> 32 ? PN_WIRE_WIDE_DATA : 0);
}

static inline uint64_t pn_wire_wide_data(uint64_t data)
{
	return data & ~(uint64_t)UINT32_MAX;
}

/* The data word of a message that is sent. */
static inline uint64_t pn_message_data(const struct pinion_message *message)
{
	return message->data | (uint64_t)message->data_high << 32;
}

/* The program's data word of a MATCH. */
static inline uint64_t pn_wire_data(const struct pn_wire *wire)
{
	return wire->to | (pn_unlikely(wire->status & PN_WIRE_WIDE_DATA)
				   ? pn_wire_wide_data(wire->offset)
				   : 0);
}

/* The first four bytes of a MATCH without keys, as a number. */
#define PN_WIRE_MATCH_BY(protocol) \
	(PN_WIRE_VERSION | PN_WIRE_MATCH << 8 | (unsigned)(protocol) << 16)

/* A MATCH without keys that belongs to no request. Written in words of eight
 * bytes, as devices read it: smaller stores would stall their loads. */
static inline struct pn_inline_header pn_wire_match(unsigned protocol,
						    uint64_t data,
						    int32_t status,
						    uint64_t tag, uint64_t len)
{
	_Static_assert(offsetof(struct pn_wire, status) == 12 &&
			       offsetof(struct pn_wire, tag) == 16 &&
			       offsetof(struct pn_wire, len) == 32,
		       "these words");
	return (struct pn_inline_header){
		{ PN_WIRE_MATCH_BY(protocol) | data << 32,
		  (uint64_t)(uint32_t)status << 32, tag,
		  pn_wire_wide_data(data), len }
	};
}

/* Memory at the sender of the packet that its receiver may write or read. */
struct pn_wire_key {
	uint64_t addr;
	uint64_t len;
	uint64_t rkey;
};

#define PN_WIRE_MAX_KEYS 32

/* The rail of the i-th key of a MATCH. */
static inline unsigned pn_wire_key_rail(uint64_t rails, unsigned i)
{
	return rails >> 2 * i & 3;
}

/* An endpoint's address: the version; the number of rails, with PN_WIRE_EITHER
 * if peers are reached over one of them only; for each rail the length and the
 * bytes of its device's address. */
#define PN_WIRE_EITHER 0x80

void pn_wire_put_address(const struct pn_address *rails, unsigned nrails,
			 bool either, struct pinion_address *out);

/* -EPROTONOSUPPORT: another version; -EINVAL: not an address. */
int pn_wire_get_address(const uint8_t *data, size_t len,
			struct pn_address *rails, unsigned *nrails);

/* Of an address that pn_wire_get_address() accepted. */
static inline bool pn_wire_address_either(const uint8_t *data)
{
	return data[1] & PN_WIRE_EITHER;
}

#define PN_KEY_VERSION 1
#define PN_KEY_MAGIC   0x4b
#define PN_KEY_MAX     16 /* keys in a blob */

/* The header of a key blob; `nkeys` struct pn_wire_key follow. */
struct pn_key_head {
	uint8_t version;
	uint8_t magic;
	uint8_t nkeys;
	uint8_t access; /* PINION_ACCESS_ bits */
	uint32_t check; /* checksum of everything else */
	uint64_t len;	/* of the exposed memory */
};

#define PN_KEY_BYTES(nkeys) \
	(sizeof(struct pn_key_head) + (nkeys) * sizeof(struct pn_wire_key))

/* Writes a blob and returns its length, PN_KEY_BYTES(head->nkeys). Sets
 * version, magic and checksum of *head. */
size_t pn_key_pack(struct pn_key_head *head, const struct pn_wire_key *keys,
		   void *data);

/* Checks and parses a blob. -EPROTONOSUPPORT: another version; -EINVAL:
 * garbage. data need not be aligned. */
int pn_key_parse(const void *data, size_t len, struct pn_key_head *head,
		 struct pn_wire_key keys[PN_KEY_MAX]);

/* Checks a packet and finds its payload. -EPROTONOSUPPORT: another version;
 * -EPROTO: garbage. data need not be aligned; *out is a copy. */
int pn_wire_parse(const void *data, size_t len, struct pn_wire *out,
		  const uint8_t **payload, size_t *payload_len);

/* The status for a request that a peer's FAIL names. Errors that concern both
 * sides are passed on, others become -EREMOTEIO. */
int pn_wire_failure(const struct pn_wire *wire);

#endif
