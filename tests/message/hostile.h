/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hostile -- an endpoint, an honest peer and one that sends what it likes.
 *
 * Three nodes of a simulated world: the victim has sends and receives of every
 * kind under way with the hostile peer, which posts the given packets and then
 * goes away, and exchanges messages with the honest one. Whatever the packets
 * are, the honest messages arrive, every request ends, nothing stays pinned.
 */
#ifndef PN_TESTS_HOSTILE_H
#define PN_TESTS_HOSTILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOSTILE_MAX_PACKET 4096

struct hostile_packet {
	const uint8_t *data;
	size_t len;
};

/* The victim's requests with the hostile peer, in the order of their numbers,
 * which start at HOSTILE_FIRST. */
enum {
	HOSTILE_RECV,	/* 64 KiB, any tag */
	HOSTILE_SHORT,	/* 100 bytes, any tag */
	HOSTILE_CACHED, /* sends, 100,000 bytes each */
	HOSTILE_PIPELINE,
	HOSTILE_READ,
	HOSTILE_COPY,
	HOSTILE_CANCELED, /* canceled when it was out */
	HOSTILE_PUT_WHEN, /* 100,000 bytes */
	HOSTILE_GRANT,	  /* 64 KiB */
	HOSTILE_UNGRANT,  /* another, canceled when it was out */
	HOSTILE_NREQUESTS
};
#define HOSTILE_FIRST (UINT32_C(1) << 20)

struct hostile_result {
	int status[HOSTILE_NREQUESTS];
	size_t len[HOSTILE_NREQUESTS];
	uint64_t bad_packets;
	bool detached;	      /* the hostile peer saw the victim go */
	uint8_t received[64]; /* the first bytes of HOSTILE_RECV */
};

/* False: something that must hold does not (a line says what). */
bool hostile_run(const struct hostile_packet *packets, unsigned n,
		 struct hostile_result *result);

#endif
