/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pair -- two ends between which bytes can be moved, and their life.
 *
 * The initiator runs the given function; the target owns memory that is
 * registered for it and otherwise keeps its CPU away. On real devices the ends
 * are two processes: the target is forked before any device is opened (a
 * device does not survive fork()) and ends when the initiator does. On `sim`
 * they are tasks on two nodes of one world.
 * The target does small jobs on its memory on request (pn_pair_ask()), so that
 * what arrived can be checked where it arrived.
 * Threads: none; the calling process must have a single thread.
 */
#ifndef PN_BENCH_PAIR_H
#define PN_BENCH_PAIR_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "device/blocking.h"
#include "device/device.h"
#include "tools/pinion/spec.h"

struct pn_pair {
	struct pn_device *device; /* the initiator's */
	struct pn_peer *peer;	  /* the target, attached */
	uint64_t remote_addr, rkey;
	size_t bytes; /* of the target's memory; pages are present */
	pid_t pid;    /* the target's process; 0 on `sim` */
	/* how to reach it; pair.c's own */
	int control;
	struct pn_device *target; /* `sim`: the other end, in this process */
	char *memory;		  /* `sim`: the target's */
};

typedef int pn_pair_fn(struct pn_pair *pair, void *arg);

/* Runs fn between two ends on devices of spec; the target registers `bytes`,
 * or less when that is more than it may pin (pair->bytes says). Returns what
 * fn returned, or the errno that kept it from running. May sleep. */
int pn_pair_run(const struct pn_spec *spec, size_t bytes, pn_pair_fn *fn,
		void *arg);

/* For those that bring two ends of their own. The parameters of a spec of
 * `sim`, or NULL; a world of two nodes from them. */
struct pn_sim;
const char *pn_pair_sim(const struct pn_spec *spec);
int pn_pair_world(const char *params, struct pn_sim **out);

enum pn_pair_job {
	PN_PAIR_FILL,  /* fill the range with the pattern of seed */
	PN_PAIR_CHECK, /* find the first byte that differs from it */
	PN_PAIR_PINNED /* what is pinned there */
};

struct pn_pair_ask {
	enum pn_pair_job job;
	size_t offset, len;
	uint64_t seed;
};

struct pn_pair_answer {
	size_t wrong;	  /* CHECK: offset of the first wrong byte, or len */
	size_t vmpin;	  /* PINNED: as the kernel says, bytes */
	size_t accounted; /* PINNED: as the device says, dying ones included */
};

/* Has the target do a job on its memory. -ECONNRESET: it is gone. */
int pn_pair_ask(struct pn_pair *pair, const struct pn_pair_ask *ask,
		struct pn_pair_answer *answer);

/* The same at this end. */
void pn_pattern_fill(void *memory, size_t len, uint64_t seed);
size_t pn_pattern_check(const void *memory, size_t len, uint64_t seed);
void pn_pair_pinned(struct pn_device *device, struct pn_pair_answer *answer);

/* Maps and registers bytes, rounded up to whole pages, normal and present ones;
 * fewer (half, again and again, down to one page) when so much cannot be
 * pinned. mr->addr and mr->len say. */
int pn_pair_map(struct pn_device *device, size_t bytes, unsigned access,
		struct pn_mr *mr);
void pn_pair_unmap(struct pn_device *device, struct pn_mr *mr);

/* All of local memory, put to or got from the beginning of the target's. */
static inline struct pn_blocking_transfer pn_pair_move(
	const struct pn_pair *pair, enum pn_op_kind kind,
	const struct pn_mr *local)
{
	return (struct pn_blocking_transfer){ .kind = kind,
					      .peer = pair->peer,
					      .local = local->addr,
					      .lkey = local->lkey,
					      .remote_addr = pair->remote_addr,
					      .rkey = pair->rkey,
					      .len = local->len };
}

#endif
