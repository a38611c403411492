/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wire -- every format that travels between endpoints.
 *
 * A packet is one send of the device: a head, fields that depend on its kind,
 * then payload. Numbers are little-endian, as on every machine pinion runs on;
 * peers are of one job, so nothing is converted. The first byte is the version
 * of all of this: a peer that speaks another is refused with a line that says
 * so (U7).
 *
 * What may be trusted: nothing. pn_wire_parse() checks that a packet is whole
 * and of a known kind; whoever acts on it checks numbers against its own
 * state (requests by id with generation, ranges against buffers).
 *
 * The conversation (paper Pipeline, figures 1 to 4)
 *   MATCH   S -> R  tag, length, first bytes of the data; or (read) where the
 *                   source can be read
 *   ACK     R -> S  matched; how far to send by send/receive
 *   DATA    S -> R  bytes at an offset
 *   READY   R -> S  a fragment of the target is registered: its keys
 *   FIN     S -> R  the fragment has been written
 *   DONE    R -> S  (read) the source has been read
 *   GOT     R -> S  the message is here, as the MATCH wanted to be told: an
 *                   eager one with its MATCH, matched or not, any other whole
 *   CANCEL  S -> R  forget the message if it is not matched yet
 *   GONE    R -> S  forgotten, as asked
 *   FAIL    both    the other side's request cannot go on: status
 *   HELLO   both    first on every conn of an endpoint with several rails: its
 *                   address, which says whose conn this is, and names of the
 *                   conversation (peer.c)
 *   (empty) both    BYE, the last on a conn: its sender closes (close.c)
 *   DOWN    both    a rail is down for me, and what I lack of what was to come
 *                   over it I have announced again (failover.c)
 * Conditional writes (grant.c)
 *   GRANT      G -> W  a buffer may be written under a tag: its keys
 *   UNGRANT    G -> W  forget the grant if nothing has used it yet
 *   UNGRANTED  W -> G  forgotten, as asked
 *
 * Rails are numbered as the packet's sender numbers its own. Between endpoints
 * that both have several, every packet but HELLO and BYE has a sequence number,
 * from 1 on, in the immediate of its send: one that was sent over a rail that
 * failed may come twice, or too early. Between others there is one conn, over
 * whichever rails, and its number is 0.
 *
 * A key blob is what names exposed memory: it travels as the program likes.
 */
#ifndef PN_MESSAGE_WIRE_H
#define PN_MESSAGE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <pinion/message.h>

#include "device/device.h"

#define PN_WIRE_VERSION 4

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
	PN_WIRE_NKINDS,
};

/* The same for all kinds, so that there is one thing to parse: 40 bytes, which
 * leaves room for a small message in the first cache line. */
struct pn_wire {
	uint8_t version;
	uint8_t kind;
	uint8_t protocol; /* MATCH: how the sender means to send; READY, DOWN:
			   * which rail */
	uint8_t nkeys;	  /* MATCH, READY, GRANT: how many keys follow */
	uint32_t to;	  /* request at the receiver of this packet; 0: none;
			   * MATCH: the data that travels along */
	uint32_t from;	  /* request at its sender */
	int32_t status;	  /* FAIL; READY: 1 when announced before; MATCH: the
			   * space, PN_WIRE_HAS_DATA, PN_WIRE_TELL */
	uint64_t tag;	  /* MATCH, GRANT, UNGRANT; HELLO: its sender's name;
			   * READY: the immediate of the last write; ACK, DONE:
			   * 0, or what an earlier message (its request << 32)
			   * took to arrive, in 16 ns: a hint */
	uint64_t offset;  /* DATA, READY, FIN; HELLO: its receiver's name, or 0;
			   * ACK: end of send/receive; MATCH: two bits for each
			   * key: of which rail it is; GRANT: the immediate of
			   * the write */
	uint64_t len;	  /* MATCH, ACK: of the message; READY, FIN: fragment;
			   * GRANT: of the buffer */
};

_Static_assert(sizeof(struct pn_wire) == sizeof(struct pn_inline_header),
	       "one is both");

static inline struct pn_inline_header pn_wire_head(const struct pn_wire *wire)
{
	struct pn_inline_header head;

	memcpy(&head, wire, sizeof(head));
	return head;
}

#define PN_WIRE_SPACE	 0xff
#define PN_WIRE_HAS_DATA 0x100
#define PN_WIRE_TELL	 0x200 /* GOT is to follow */

static inline int32_t pn_wire_match_status(uint8_t space, bool has_data)
{
	return space | (has_data ? PN_WIRE_HAS_DATA : 0);
}

/* The first four bytes of a MATCH without keys, as a number. */
#define PN_WIRE_MATCH_BY(protocol) \
	(PN_WIRE_VERSION | PN_WIRE_MATCH << 8 | (unsigned)(protocol) << 16)

/* A MATCH without keys that no request is behind. Written by words, as devices
 * read it: they would wait for what is written in smaller pieces. */
static inline struct pn_inline_header pn_wire_match(unsigned protocol,
						    uint32_t data,
						    int32_t status,
						    uint64_t tag, uint64_t len)
{
	_Static_assert(offsetof(struct pn_wire, status) == 12 &&
			       offsetof(struct pn_wire, tag) == 16 &&
			       offsetof(struct pn_wire, len) == 32,
		       "these words");
	return (struct pn_inline_header){
		{ PN_WIRE_MATCH_BY(protocol) | (uint64_t)data << 32,
		  (uint64_t)(uint32_t)status << 32, tag, 0, len }
	};
}

/* Memory of the packet's sender that its receiver may write or read. */
struct pn_wire_key {
	uint64_t addr;
	uint64_t len;
	uint64_t rkey;
};

#define PN_WIRE_MAX_KEYS 32

/* The rail of a MATCH's i-th key. */
static inline unsigned pn_wire_key_rail(uint64_t rails, unsigned i)
{
	return rails >> 2 * i & 3;
}

/* An endpoint's address: the version, the number of its rails, with
 * PN_WIRE_EITHER if a peer is reached over one of them only, then length and
 * bytes of the address of each one's device. */
#define PN_WIRE_EITHER 0x80

void pn_wire_put_address(const struct pn_address *rails, unsigned nrails,
			 bool either, struct pinion_address *out);

/* -EPROTONOSUPPORT: of another version; -EINVAL: no such address. */
int pn_wire_get_address(const uint8_t *data, size_t len,
			struct pn_address *rails, unsigned *nrails);

/* Of one that pn_wire_get_address() took. */
static inline bool pn_wire_address_either(const uint8_t *data)
{
	return data[1] & PN_WIRE_EITHER;
}

#define PN_KEY_VERSION 1
#define PN_KEY_MAGIC   0x4b
#define PN_KEY_MAX     16 /* keys in a blob */

/* What a key blob begins with; `nkeys` struct pn_wire_key follow. */
struct pn_key_head {
	uint8_t version;
	uint8_t magic;
	uint8_t nkeys;
	uint8_t access; /* PINION_ACCESS_ bits */
	uint32_t check; /* of everything else: a blob cut short or mixed up */
	uint64_t len;	/* of the exposed memory */
};

#define PN_KEY_BYTES(nkeys) \
	(sizeof(struct pn_key_head) + (nkeys) * sizeof(struct pn_wire_key))

/* Writes a blob of PN_KEY_BYTES(head->nkeys), which it returns; fills in what
 * is the same in all. */
size_t pn_key_pack(struct pn_key_head *head, const struct pn_wire_key *keys,
		   void *data);

/* Checks a blob and takes it apart. -EPROTONOSUPPORT: another version;
 * -EINVAL: garbage. data need not be aligned. */
int pn_key_parse(const void *data, size_t len, struct pn_key_head *head,
		 struct pn_wire_key keys[PN_KEY_MAX]);

/* Checks a packet and says where its payload is. -EPROTONOSUPPORT: another
 * version; -EPROTO: garbage. data need not be aligned; *out is a copy. */
int pn_wire_parse(const void *data, size_t len, struct pn_wire *out,
		  const uint8_t **payload, size_t *payload_len);

/* What the FAIL of a peer means for the request that it names. Of what went
 * wrong there programs here learn what concerns both, else -EREMOTEIO. */
int pn_wire_failure(const struct pn_wire *wire);

#endif
