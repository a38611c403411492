/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * storm -- random messages between all ranks, every byte checked.
 *
 * What is sent follows from the seed, so both ends know it without talking. A
 * round is a number of messages for each pair of ranks (a rank and itself
 * too); a message's class says how it is received:
 *
 *   EXACT   by its very tag, in an order other than it was sent in
 *   ORDER   by peer and class: must come in the order of sending
 *   ANY     by class from anybody: in order for each sender
 *   PROBE   probed for, then claimed or received
 *   CANCEL  the sender tries to take it back; a VERDICT says with what luck
 *   NEVER   a receive that nobody sends to, canceled
 *
 * Buffers lie anywhere in an arena that every round uses anew, between guards.
 * A send's buffer is overwritten as soon as its request has ended; a receive's
 * is checked then and again at the end of the round, for writes that come too
 * late. Receives may be too short, and then be full to the last byte.
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
	int protocol;	   /* STORM_ANY: another for each message */
	size_t max_bytes;  /* of the budget; 0: plenty */
	unsigned mortal;   /* ranks that may die, as bits */
	uint64_t *counter; /* of messages received; shared by the ranks */
};

/* What a rank does; rank->arg is a struct storm_attr. */
void storm_run(struct rank *rank);

#endif
