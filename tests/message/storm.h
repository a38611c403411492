/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * storm -- random messages between all ranks, every byte checked.
 *
 * What is sent follows from the seed, so both ends know it without talking. A
 * round is a number of messages for each pair of ranks (including a rank and
 * itself). The class of a message says how it is received:
 *
 *   EXACT   by its exact tag, not in the order of sending
 *   ORDER   by peer and class: must come in the order of sending
 *   ANY     by class from any peer: in order for each sender
 *   PROBE   probed for, then received by the probe's handle or by tag
 *   CANCEL  the sender tries to cancel it; a VERDICT says whether it could
 *   NEVER   a receive that no message matches, canceled
 *
 * Buffers lie anywhere in an arena that every round uses again, between guards.
 * The buffer of a send is overwritten as soon as its request has ended. The
 * buffer of a receive is checked then, and again at the end of the round, for
 * late writes. Receives may be too short, and then are full to the last byte.
 */
#ifndef PN_TESTS_STORM_H
#define PN_TESTS_STORM_H

#include "message/party.h"

/* All rows, and `auto`. */
#define STORM_ANY (PN_PROTOCOL_AUTO + 1)

struct storm_attr {
	uint64_t seed;
	unsigned nrounds;
	unsigned per_pair; /* messages at most, in a round */
	size_t max_len;
	int protocol;		 /* STORM_ANY: another for each message */
	size_t max_bytes;	 /* of the budget; 0: plenty */
	unsigned mortal;	 /* ranks that may die, as bits */
	size_t unexpected_limit; /* of each pair; 0: none */
	uint64_t *counter;	 /* of messages received; shared by the ranks */
};

/* What a rank does; rank->arg is a struct storm_attr. */
void storm_run(struct rank *rank);

#endif
