/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ranks -- runs one function in several ranks at the same time, each with its
 * own device: as coroutines of one simulation, as threads, or as processes.
 *
 * Ranks exchange data out of band through a board in shared memory. A check
 * that fails marks the board and ends the rank; the others notice at their next
 * exchange, so a failure never hangs. The device is opened before the function
 * is called, and closed after it.
 */
#ifndef PN_TESTS_RANKS_H
#define PN_TESTS_RANKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "device/device.h"

#define RANKS_MAX	 18
#define RANKS_BLOB_BYTES 768

struct rank_board {
	_Atomic bool failed;
	char why[256];
	struct {
		_Atomic uint32_t round;
		uint8_t blob[2]
			    [RANKS_BLOB_BYTES]; /* by the parity of the round */
	} rank[RANKS_MAX];
};

/* The state of one rank. */
struct rank {
	struct rank_board *board;
	struct pn_device *device; /* rails[0] */
	struct pn_device *rails[PN_RAILS_MAX];
	unsigned nrails;
	bool either; /* each peer uses one of the devices */
	unsigned rank, nranks;
	uint32_t round;
	bool virtual_time;
	bool progress_thread; /* endpoints ask for one */
	bool helper;	      /* parties have one that works */
	struct pn_sim *sim;   /* the simulation; NULL outside virtual time */
	void *arg;	      /* the same for all ranks */
	/* Called repeatedly while the rank waits for the others; or NULL. */
	void (*idle)(void *idle_arg);
	void *idle_arg;
};

struct ranks {
	/* "sim", "threads" or "processes". Behind it "+helper": parties have a
	 * helper; and "+progress", but for sim: endpoints of parties have the
	 * progress thread. */
	const char *how;
	/* Of the device. '|' separates the specs of several ranks, as in
	 * "verbs:rxe0|verbs:rxe1". With processes, "@NAME@" before a spec names
	 * the network namespace of the rank (ip-netns(8)). */
	const char *spec;
	const char *script; /* sim: faults; NULL: none */
	unsigned nranks;
	void (*fn)(struct rank *rank);
	void *arg;
};

/* True: no rank failed. Else a line says which check failed. */
bool ranks_run(const struct ranks *run);

/* The same in a child process. Ranks that die cannot clean up; the child ends
 * with what they leave. */
bool ranks_run_apart(const struct ranks *run);

/* Marks the board; only the first failure counts. */
void rank_fail(struct rank *rank, const char *what, const char *file, int line);

/* In a rank's function: checks a fact; if it is false, the rank fails and
 * returns. */
#define RANK_CHECK(r, fact)                                      \
	do {                                                     \
		if (!(fact)) {                                   \
			rank_fail(r, #fact, __FILE__, __LINE__); \
			return;                                  \
		}                                                \
	} while (0)

/* Waits for an event of any rail, until the device's clock reaches deadline_ns.
 */
void rank_wait(struct rank *rank, uint64_t deadline_ns);

/* Lets the others run for a moment. */
void rank_pause(struct rank *rank);

/* Exchanges blobs: theirs[r] is the blob of rank r. All ranks call it. False:
 * another rank failed or does not come. */
bool rank_exchange(struct rank *rank, const void *mine, size_t len,
		   void *theirs);

/* A barrier of all ranks. */
bool rank_barrier(struct rank *rank);

#endif
