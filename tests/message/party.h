/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * party -- a rank with an endpoint: budget, cache and endpoint over the rank's
 * device, and all ranks (itself too) as peers.
 *
 * The limits are small, so that short messages, too, take every turn of a
 * protocol. party_close() checks that nothing stays pinned.
 */
#ifndef PN_TESTS_PARTY_H
#define PN_TESTS_PARTY_H

#include "message/message.h"
#include "ranks.h"

struct party_attr {
	int protocol;
	size_t max_bytes; /* of the budget; 0: plenty */
	bool single_threaded;
	struct pn_reuse_attr reuse;
	uint64_t rail_timeout_ns; /* 0: for ever */
	/* The same for all parties: party_look() asserts that no more is kept
	 * of a peer; 0: no limit. */
	size_t unexpected_limit;
	bool helped;	   /* a helper is told of requests; nothing drives it */
	bool knows_nobody; /* the others become peers when they send first */
	struct pn_protocol_limits limits; /* all zero: small ones */
};

struct party {
	struct rank *rank;
	struct pn_budget budget;
	struct pn_cache *cache; /* the first of these: */
	struct pn_cache *caches[PN_RAILS_MAX];
	struct pn_helper *helper; /* or NULL */
	bool helping;		  /* its task in virtual time runs */
	struct pinion_endpoint *ep;
	struct pinion_peer *peers[RANKS_MAX];
	size_t unexpected_limit;
	size_t bounce_bytes; /* of the budget, when nothing else is pinned */
	_Atomic unsigned looks;
};

/* All ranks call it. False: the rank has failed. */
bool party_open(struct party *party, struct rank *rank,
		const struct party_attr *attr);

/* No request may be in flight. */
void party_close(struct party *party);

/* Checks the endpoint: each time in the beginning, then now and then, since a
 * check takes as long as many messages. The functions below call it. */
void party_look(struct party *party);

/* Makes progress; does not ask for completions. */
void party_poll(struct party *party);

/* All ranks meet, and make progress meanwhile. */
bool party_barrier(struct party *party);

/* Sends or receives, and waits for the end. Returns its status. */
int party_send(struct party *party, unsigned to, void *buf, size_t len,
	       uint64_t tag);
int party_recv(struct party *party, unsigned from, void *buf, size_t len,
	       uint64_t tag);

/* Writes bytes that depend on the key and the offset; and checks them. */
void pattern_fill(void *buf, size_t len, uint64_t key);
bool pattern_holds(const void *buf, size_t len, uint64_t key);

#endif
