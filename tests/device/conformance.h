/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * conformance -- one suite for every device: does it keep device.h's word?
 *
 * A case is a function that several ranks run at once, each with a device of
 * its own: coroutines of one world on `sim`, threads or processes elsewhere
 * (test_conformance.c). Ranks talk out of band through a board in shared
 * memory. A check that fails marks the board and ends the rank; the others
 * notice at their next exchange or wait, so that a failure never hangs.
 */
#ifndef PN_TESTS_CONFORMANCE_H
#define PN_TESTS_CONFORMANCE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "device/device.h"

#define CONF_MAX_RANKS	8
#define CONF_BLOB_BYTES 512
#define CONF_MAX_KEPT	16

struct conf_board {
	_Atomic bool failed;
	char why[256];
	struct {
		_Atomic uint32_t round;
		uint8_t blob[2][CONF_BLOB_BYTES]; /* by parity of the round */
	} rank[CONF_MAX_RANKS];
};

/* What one rank knows. */
struct conf {
	struct conf_board *board;
	struct pn_device *device;
	unsigned rank, nranks;
	uint32_t round;
	bool virtual_time;
	struct pn_peer *peers[CONF_MAX_RANKS];
	struct pn_completion
		kept[CONF_MAX_KEPT]; /* came while conf_do waited */
	unsigned nkept;
};

struct conf_case {
	const char *name; /* a sentence that is true of every device */
	void (*fn)(struct conf *conf);
	unsigned nranks;
	unsigned needs; /* PN_CAP_ bits without which the case is skipped */
};

extern const struct conf_case conf_cases[];

/* Marks the board; the first failure wins. */
void conf_fail(struct conf *conf, const char *what, const char *file, int line);

#define CHECK(x)                                                 \
	do {                                                     \
		if (!(x)) {                                      \
			conf_fail(conf, #x, __FILE__, __LINE__); \
			return;                                  \
		}                                                \
	} while (0)

/* Passes blobs around: theirs[r] is what rank r gave. All ranks call it. False
 * when another rank failed or does not come. */
bool conf_exchange(struct conf *conf, const void *mine, size_t len,
		   void *theirs);

/* All ranks meet. */
bool conf_barrier(struct conf *conf);

/* Attaches to every rank (itself too when `self`), waits until all are up. */
bool conf_connect(struct conf *conf, bool self);

/* The next completion that is not PEER_UP, within 10 s. */
bool conf_next(struct conf *conf, struct pn_completion *out);

/* Posts, again while -EAGAIN with nothing else to receive. */
int conf_post(struct conf *conf, struct pn_peer *peer, const struct pn_op *op);

/* Posts one operation and waits for its end; its status. Messages that arrive
 * meanwhile are kept for conf_next(). */
int conf_do(struct conf *conf, struct pn_peer *peer, struct pn_op op);

#endif
