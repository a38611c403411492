/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * demo_onesided -- the part of `pinion demo` about put, get, atomics and
 * conditional writes.
 *
 * The follower exposes memory, fills, checks and grants it on the leader's
 * orders. Sizes around powers of two, at unaligned addresses, every byte
 * checked at the target; then one row per operation, warm, with a small and a
 * larger size.
 */
#ifndef PN_TOOLS_DEMO_ONESIDED_H
#define PN_TOOLS_DEMO_ONESIDED_H

#include "bench/session.h"
#include "tools/pinion/report.h"

struct pn_demo_onesided {
	struct pn_report *report;
	size_t max; /* size of the largest buffer */
	uint64_t seed;
	/* incremented: number of operations; bytes checked */
	uint64_t operations, checked;
};

/* -EBADMSG: wrong bytes (printed); or the error of an operation. */
int pn_demo_onesided(struct pn_session *session, struct pn_demo_onesided *demo);

#endif
