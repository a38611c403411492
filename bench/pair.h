/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pair -- two ends between which bytes are moved by a device.
 *
 * The initiator runs the given function. The target owns memory that is
 * registered for it and otherwise does nothing. On real devices the ends are
 * two processes: the target is forked before any device is opened (a device
 * does not survive fork()) and ends when the initiator does. On `sim` they are
 * tasks on two nodes of one simulation. The target performs jobs on its memory
 * on request (pn_pair_ask()), so that bytes can be checked where they arrived.
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
	struct pn_device *device; /* of the initiator */
	struct pn_peer *peer;	  /* the target, attached */
	uint64_t remote_addr, rkey;
	size_t bytes; /* size of the target's memory; pages are present */
	pid_t pid;    /* process of the target; 0 on `sim` */
	/* private to pair.c */
	int control;
	/* `sim`: device of the target, in this process */
	struct pn_device *target;
	char *memory; /* `sim`: memory of the target */
};

typedef int pn_pair_fn(struct pn_pair *pair, void *arg);

/* Runs fn between two ends on devices of spec. The target registers `bytes`, or
 * fewer if it may not pin so many (see pair->bytes). Returns the result of fn,
 * or an errno if fn did not run. May sleep. */
int pn_pair_run(const struct pn_spec *spec, size_t bytes, pn_pair_fn *fn,
		void *arg);

/* For callers that make their own two ends: the parameters of a spec of `sim`,
 * or NULL; and a simulation of two nodes with these parameters. */
struct pn_sim;
const char *pn_pair_sim(const struct pn_spec *spec);
int pn_pair_world(const char *params, struct pn_sim **out);

enum pn_pair_job {
	PN_PAIR_FILL,  /* fill the range with the pattern of seed */
	PN_PAIR_CHECK, /* find the first byte that differs from it */
	PN_PAIR_PINNED /* report the pinned bytes */
};

struct pn_pair_ask {
	enum pn_pair_job job;
	size_t offset, len;
	uint64_t seed;
};

struct pn_pair_answer {
	size_t wrong; /* CHECK: offset of the first wrong byte, or len */
	size_t vmpin; /* PINNED: bytes according to the kernel */
	/* PINNED: bytes according to the device, including registrations that
	 * are ending */
	size_t accounted;
};

/* Lets the target do a job on its memory. -ECONNRESET: the target has ended. */
int pn_pair_ask(struct pn_pair *pair, const struct pn_pair_ask *ask,
		struct pn_pair_answer *answer);

/* The same jobs at this end. */
void pn_pattern_fill(void *memory, size_t len, uint64_t seed);
size_t pn_pattern_check(const void *memory, size_t len, uint64_t seed);
void pn_pair_pinned(struct pn_device *device, struct pn_pair_answer *answer);

/* Maps and registers `bytes`, rounded up to whole normal pages that are
 * present; halves the size, down to one page, if so many bytes cannot be
 * pinned. See mr->addr and mr->len. */
int pn_pair_map(struct pn_device *device, size_t bytes, unsigned access,
		struct pn_mr *mr);
void pn_pair_unmap(struct pn_device *device, struct pn_mr *mr);

/* Moves all of local memory to or from the beginning of the target's memory. */
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
