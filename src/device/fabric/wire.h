/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * wire -- the packets of the fabric device, as they travel. Both hosts have the
 * same byte order; the magic number of the hello checks that.
 *
 * Connecting takes three hellos, since a provider has no connections: A sends
 * its hello; B answers with its own, which repeats the tag of A's; A repeats
 * the tag of B's. A peer is up when its tag has come back: a hello that
 * belongs to an earlier connection never makes a later one come up. Two
 * devices may attach to each other at the same time.
 *
 * A packet to a connected peer holds the number that the receiver gave the peer
 * and the tag of the connection. Packets for a connection that has ended are
 * dropped.
 */
#ifndef PN_DEVICE_FABRIC_WIRE_H
#define PN_DEVICE_FABRIC_WIRE_H

#include <stdint.h>

#include "device/device.h"

#define PN_FABRIC_VERSION   2
#define PN_FABRIC_MAGIC	    UINT32_C(0x70696e66) /* "pinf" */
#define PN_FABRIC_MAX_SEND  ((size_t)8 << 10)
#define PN_FABRIC_MAX_SGE   8
#define PN_FABRIC_RAW_BYTES 100

/* The address of a device. `raw` is what fi_getname() returned. */
struct pn_fabric_address {
	uint32_t version;
	char kind[4];	   /* "fabr" */
	uint32_t provider; /* hash of the provider's name */
	uint16_t format;   /* FI_SOCKADDR_IN, ... */
	uint16_t len;	   /* of raw */
	uint64_t nonce;
	uint8_t raw[PN_FABRIC_RAW_BYTES];
};

enum pn_fabric_kind {
	PN_FABRIC_HELLO = 1,
	PN_FABRIC_REFUSE, /* answers a hello: imm is the error */
	PN_FABRIC_BYE,	  /* the sender has closed or detached; answered by
			   * another BYE */
	/* Requests. */
	PN_FABRIC_SEND,
	PN_FABRIC_WRITE,  /* access, bytes */
	PN_FABRIC_PULL,	  /* access, sources: the target reads them */
	PN_FABRIC_READ,	  /* access */
	PN_FABRIC_ATOMIC, /* access, operands */
	/* Answers; `number` is that of the request. */
	PN_FABRIC_DATA,	  /* the bytes of a READ, the old value */
	PN_FABRIC_GRANT,  /* source: of a long READ */
	PN_FABRIC_FAILED, /* imm is the error */
	/* Others. */
	PN_FABRIC_RELEASE, /* of the grant for `number` */
	PN_FABRIC_ACK,	   /* what the header says, no more */
	PN_FABRIC_PING,	   /* asks for an ACK */
};

enum pn_fabric_flag {
	PN_FABRIC_WANTS_ACK = 1 << 0, /* a completion waits for the execution */
	PN_FABRIC_HAS_IMM = 1 << 1,
};

struct pn_fabric_header {
	uint8_t kind, flags;
	uint16_t unused;
	uint32_t to;	   /* the receiver's number of the peer */
	uint32_t tag;	   /* the receiver's tag of the connection */
	uint32_t sequence; /* counts the packets of the connection */
	uint32_t executed; /* how many requests the sender has executed */
	uint32_t granted;  /* how many requests the receiver may send in all */
	uint32_t imm;
	uint32_t number; /* of the request that is answered */
};

/* HELLO, REFUSE and BYE. The first three words behind the header are the same
 * in every version. A hello of another version is refused if it has `from` at
 * the same place, in the same form; else its sender gives up after its
 * patience. */
struct pn_fabric_hello {
	struct pn_fabric_header header; /* to, tag: of the sender */
	uint32_t magic, version;
	uint64_t to_nonce;
	uint32_t echo; /* tag of the last hello of the receiver; or 0 */
	uint32_t window;
	uint64_t host; /* hash of boot and process namespace; 0: unknown */
	uint32_t pid, unused;
	struct pn_fabric_address from;
};

/* The memory at the target. */
struct pn_fabric_access {
	uint64_t addr, rkey, len;
};

/* Memory for fi_read(), in the provider's terms. */
struct pn_fabric_source {
	uint64_t addr, key, len;
};

struct pn_fabric_write {
	struct pn_fabric_header header;
	struct pn_fabric_access access;
	uint8_t data[];
};

struct pn_fabric_pull {
	struct pn_fabric_header header;
	struct pn_fabric_access access;
	uint64_t nsources;
	struct pn_fabric_source source[PN_FABRIC_MAX_SGE];
};

struct pn_fabric_atomic {
	struct pn_fabric_header header; /* imm: enum pn_op_kind */
	struct pn_fabric_access access;
	uint64_t operand, compare;
};

struct pn_fabric_grant {
	struct pn_fabric_header header;
	struct pn_fabric_source source;
};

#define PN_FABRIC_PACKET_BYTES \
	(sizeof(struct pn_fabric_write) + PN_FABRIC_MAX_SEND)

static inline bool pn_fabric_is_request(unsigned kind)
{
	return kind >= PN_FABRIC_SEND && kind <= PN_FABRIC_ATOMIC;
}

/* address.c: an address as a blob, and back. -EINVAL. */
void pn_fabric_address_put(const struct pn_fabric_address *address,
			   struct pn_address *out);
int pn_fabric_address_check(const struct pn_address *blob,
			    struct pn_fabric_address *out);

/* Checks a packet that begins as a hello. 0, -EPROTO (none of pinion),
 * -ECONNREFUSED (another version), -ECONNRESET (for a device that has closed),
 * -EINVAL. */
int pn_fabric_hello_check(const void *data, size_t len, uint64_t nonce,
			  struct pn_fabric_hello *out);

/* Whether a hello of len bytes, of any version, says who sent it: the rest of
 * `from` may be used. */
bool pn_fabric_hello_has_sender(const struct pn_fabric_hello *hello,
				size_t len);

#endif
