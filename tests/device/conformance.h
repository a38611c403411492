/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * conformance -- one suite for every device: does it conform to device.h?
 *
 * A case is a function that several ranks run at once, each with a device of
 * its own: coroutines of one world on `sim`, threads or processes elsewhere
 * (ranks.h). A check that fails ends the rank; the others detect that at their
 * next exchange or wait.
 */
#ifndef PN_TESTS_CONFORMANCE_H
#define PN_TESTS_CONFORMANCE_H

#include <stdio.h>

#include "ranks.h"

#define CONF_MAX_KEPT 16

/* The state of one rank. */
struct conf {
	struct rank self;
	struct pn_peer *peers[RANKS_MAX];
	struct pn_completion
		kept[CONF_MAX_KEPT]; /* arrived while conf_do() waited */
	unsigned nkept;
};

struct conf_case {
	const char *name; /* a sentence that is true of every device */
	void (*fn)(struct conf *conf);
	unsigned nranks;
	unsigned needs; /* PN_CAP_ bits without which the case is skipped */
};

extern const struct conf_case conf_cases[];

#define CHECK(x) RANK_CHECK(&conf->self, x)

/* Attaches to every rank (itself too when `self`), waits until all are up. */
bool conf_connect(struct conf *conf, bool self);

/* The next completion that is not PEER_UP, within a minute. */
bool conf_next(struct conf *conf, struct pn_completion *out);

/* Posts, again after -EAGAIN while there is nothing else to receive. */
int conf_post(struct conf *conf, struct pn_peer *peer, const struct pn_op *op);

/* Posts one operation and waits for its end; returns its status. Messages that
 * arrive meanwhile are returned by conf_next(). */
int conf_do(struct conf *conf, struct pn_peer *peer, struct pn_op op);

#endif
