/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * demo_onesided -- the part of `pinion demo` about put, get, atomics and
 * conditional writes.
 *
 * The follower exposes memory, fills and checks it at the leader's order, and
 * grants it. Sizes around powers of two, at odd places, every byte checked
 * where it arrived; then a row for each operation, warm, of a small and a
 * larger size.
 */
#ifndef PN_TOOLS_DEMO_ONESIDED_H
#define PN_TOOLS_DEMO_ONESIDED_H

#include "bench/session.h"
#include "tools/pinion/report.h"

struct pn_demo_onesided {
	struct pn_report *report;
	size_t max; /* bytes of the largest buffer */
	uint64_t seed;
	uint64_t operations, checked; /* how many, bytes; counted up */
};

/* 0; -EBADMSG: bytes were wrong (said); or why it could not be done. */
int pn_demo_onesided(struct pn_session *session, struct pn_demo_onesided *demo);

#endif
