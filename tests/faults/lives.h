/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lives -- random lives of endpoints in virtual time, against a naive model.
 *
 * A schedule is a list of steps of a few nodes: endpoints are opened, closed
 * and opened again at the same address, nodes die, rails fail, and messages are
 * sent and received in all directions meanwhile. It follows from its seed; so
 * does everything that happens.
 *
 * The model knows what was sent. A receive that ended well has got, byte for
 * byte, a message that was sent to its node, and no other receive has got it;
 * messages of one life of a sender come in order. Every request ends: those to
 * an endpoint that was closed or died within BOUND_NS, all others when they are
 * canceled or their own endpoint closes. Afterwards nothing is registered or
 * charged to a budget. The checkers run after every step.
 */
#ifndef PN_TESTS_FAULTS_LIVES_H
#define PN_TESTS_FAULTS_LIVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIVES_NODES 4
#define LIVES_STEPS 200

enum step_kind {
	STEP_OPEN, /* opens an endpoint, if none is open */
	STEP_CLOSE,
	STEP_SEND,
	STEP_RECEIVE, /* from anybody */
	STEP_RECEIVE_NAMED,
	STEP_CANCEL, /* the oldest request */
	STEP_WAIT,   /* makes progress for a while */
	STEP_DIE,
	STEP_NKINDS,
};

struct step {
	enum step_kind kind;
	unsigned node, other;
	size_t len;
	int protocol;
	uint64_t ns; /* that pass before the step */
};

struct schedule {
	uint64_t seed; /* an odd one: little may be kept for receives */
	unsigned nnodes, nrails;
	char script[256]; /* of the simulation: rails that fail */
	struct step steps[LIVES_STEPS];
	unsigned n;
	unsigned rail_setup_us; /* later than the first, rails come up */
};

void schedule_make(struct schedule *schedule, uint64_t seed);
/* As it would stand in test_random_lives.c. */
void schedule_print(const struct schedule *schedule);

/* Runs a schedule. NULL: all is well; else what is wrong. */
const char *schedule_run(const struct schedule *schedule, uint64_t *nreceived);

/* Removes steps as long as it still fails. The result is the shortest in the
 * sense that no single step can be left out. */
void schedule_shrink(struct schedule *schedule,
		     bool (*fails)(const struct schedule *schedule));

#endif
