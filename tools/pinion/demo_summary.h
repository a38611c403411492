/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * demo_summary -- summarises a run of `pinion demo` in words.
 *
 * The demo adds its figures as it runs: cost of a registration, cost of a
 * cached pin, time of messages under each protocol. At the end
 * pn_demo_print_summary() prints sentences about them, a warning if the machine
 * was too busy for the figures to mean anything, and commands to try next.
 * Every figure is of this run.
 *
 * A machine is busy if other programs used a large share of the processor time
 * during the run (/proc/stat minus this process and its children), or if its
 * cores changed their speed (bench/core_speed.h).
 * Threads: none. The struct may be in memory shared by processes of which one
 * writes at a time.
 */
#ifndef PN_TOOLS_DEMO_SEEN_H
#define PN_TOOLS_DEMO_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "message/protocol/protocol.h"
#include "tools/pinion/busy.h"

#define PN_DEMO_SIZES 8
#define PN_DEMO_REGISTERS \
	((size_t)4 << 20) /* bytes, unless fewer can be pinned */

/* Messages of one size. */
struct pn_demo_size {
	size_t bytes;
	double us[PN_PROTOCOL_COUNT + 1]; /* by protocol; 0: not measured */
	int chosen;			  /* by auto */
	/* by auto before it was measured, and its first messages */
	uint64_t learned;
	double first_us;
};

/* Messages of one size from which `auto` learned before it was measured. */
struct pn_demo_learning {
	size_t bytes;
	uint64_t messages;
	double first_us; /* a message of the first buffer */
};

struct pn_demo_summary {
	bool virtual_time;
	size_t register_bytes; /* 0: not measured */
	double register_us;
	double pin_us; /* second pin of as many bytes; 0: not measured */
	bool kept;     /* the second pin was a hit */
	struct pn_demo_size sizes[PN_DEMO_SIZES];
	size_t nsizes;
	/* fastest and slowest loop in ns; 0: not measured */
	double best_pace, worst_pace;
	/* at the beginning; after pn_demo_end() of the run */
	struct pn_busy busy;
};

/* Begin and end of the run. */
void pn_demo_begin(struct pn_demo_summary *summary);
void pn_demo_end(struct pn_demo_summary *summary);

/* Samples the speed of the core; called before each measurement. */
void pn_demo_sample_speed(struct pn_demo_summary *summary);

/* Adds the time of a registration; the largest size up to PN_DEMO_REGISTERS is
 * kept. */
void pn_demo_add_registration(struct pn_demo_summary *summary, size_t bytes,
			      double us);

/* Adds the time of a message; `chosen` is the protocol that it used. */
void pn_demo_add_message(struct pn_demo_summary *summary, int protocol,
			 size_t bytes, double us, int chosen);

void pn_demo_add_learning(struct pn_demo_summary *summary,
			  const struct pn_demo_learning *learning);

/* Prints the summary; `command` is the name of this program. */
void pn_demo_print_summary(const struct pn_demo_summary *summary,
			   const char *command, FILE *file);

#endif
