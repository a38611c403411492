/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ranks -- runs one function several times at once, each with a device of its
 * own: as coroutines of one simulated world, as threads, or as processes.
 *
 * Ranks talk out of band through a board in shared memory. A check that fails
 * marks the board and ends the rank; the others notice at their next exchange,
 * so that a failure never hangs. The device is opened before the function is
 * called and closed after it.
 */
#ifndef PN_TESTS_RANKS_H
#define PN_TESTS_RANKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "device/device.h"

#define RANKS_MAX	 8
#define RANKS_BLOB_BYTES 768

struct rank_board {
	_Atomic bool failed;
	char why[256];
	struct {
		_Atomic uint32_t round;
		uint8_t blob[2][RANKS_BLOB_BYTES]; /* by the round's parity */
	} rank[RANKS_MAX];
};

/* What one rank knows. */
struct rank {
	struct rank_board *board;
	struct pn_device *device; /* the first of: */
	struct pn_device *rails[PN_RAILS_MAX];
	unsigned nrails;
	bool either; /* each peer over one of them */
	unsigned rank, nranks;
	uint32_t round;
	bool virtual_time;
	struct pn_sim *sim; /* the world; NULL outside virtual time */
	void *arg;	    /* the same for all */
	/* Called again and again while it waits for the others; NULL: not. */
	void (*idle)(void *idle_arg);
	void *idle_arg;
};

struct ranks {
	const char *how; /* "sim", "threads" or "processes" */
	/* Of the device; of each rank's in turn when several stand in it, as
	 * in "verbs:rxe0|verbs:rxe1". */
	const char *spec;
	const char *script; /* sim: faults; NULL: none */
	unsigned nranks;
	void (*fn)(struct rank *rank);
	void *arg;
};

/* True when no rank failed; else a line says what did. */
bool ranks_run(const struct ranks *run);

/* The same in a process of its own: the dead end where they stand and cannot
 * clean up, and it takes what they leave along. */
bool ranks_run_apart(const struct ranks *run);

/* Marks the board; the first failure wins. */
void rank_fail(struct rank *rank, const char *what, const char *file, int line);

/* In a rank's function: a fact, or the rank has failed and returns. */
#define RANK_CHECK(r, fact)                                      \
	do {                                                     \
		if (!(fact)) {                                   \
			rank_fail(r, #fact, __FILE__, __LINE__); \
			return;                                  \
		}                                                \
	} while (0)

/* Waits for news of any rail, until the device's clock says deadline_ns. */
void rank_wait(struct rank *rank, uint64_t deadline_ns);

/* Lets the others run for a moment. */
void rank_pause(struct rank *rank);

/* Passes blobs around: theirs[r] is what rank r gave. All ranks call it. False
 * when another rank failed or does not come. */
bool rank_exchange(struct rank *rank, const void *mine, size_t len,
		   void *theirs);

/* All ranks meet. */
bool rank_barrier(struct rank *rank);

#endif
