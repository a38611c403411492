/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rhythm -- how much memory a program with a rhythm keeps registered on a real
 * device, and how long it takes, with the helper and without (Li and others
 * 2011).
 *
 * In each period the program uses every buffer once, with computing in between.
 * A mode is a setting of the helper; the first one leaves memory pinned, and
 * the others are compared with it. Registered bytes are sampled by a thread;
 * the first periods, in which the helper learns, do not count. `late` is the
 * share of the uses that came before the buffer was registered again.
 *
 * The user of this opens a context with the options of a mode and says what a
 * use is: a copy to a GPU, a message. Threads: none; one rhythm at a time.
 */
#ifndef PN_BENCH_RHYTHM_H
#define PN_BENCH_RHYTHM_H

#include <stddef.h>
#include <stdint.h>

#include <pinion/pinion.h>

#include "tools/pinion/report.h"

#define PN_RHYTHM_BUFFERS 64 /* at most */

struct pn_rhythm {
	unsigned buffers, periods;
	uint64_t period_ns;
	/* Opens the context with these options besides the user's own, and what
	 * a use needs. */
	int (*open)(void *arg, const char *const *options, size_t n,
		    struct pinion_context **out);
	int (*use)(void *arg, unsigned buffer);
	/* Ends what open() began, also where that failed. */
	void (*close)(void *arg);
	void *arg;
	const char *experiment;	 /* of the rows */
	const char *key, *value; /* one cell of each row: what a use is */
};

/* Runs every mode and prints a row for each. */
int pn_rhythm_run(const struct pn_rhythm *rhythm, struct pn_report *report);

/* The same of messages from a process to itself on a device, so that the helper
 * has a core on a machine of two. *report has a device and no head yet. */
int pn_rhythm_run_messages(unsigned periods, struct pn_report *report);

#endif
