/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * demo_seen -- what a run of `pinion demo` has seen, in words.
 *
 * The demonstration notes its figures as it goes: what registering cost, what a
 * cached pin cost, what messages took under each protocol. At the end
 * pn_demo_print_summary() prints sentences about them, whether the machine was
 * too busy for them to mean anything, and commands to try next. Every figure is
 * of this run.
 *
 * Busy is a machine on which others took a good part of the processor time
 * meanwhile (/proc/stat, less what this process and its children took), or
 * whose cores changed their speed (bench/core_speed.h).
 * Threads: none. The struct may lie in memory that processes share, of which
 * one writes at a time.
 */
#ifndef PN_TOOLS_DEMO_SEEN_H
#define PN_TOOLS_DEMO_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "message/protocol/protocol.h"

#define PN_DEMO_SIZES	  8
#define PN_DEMO_REGISTERS ((size_t)4 << 20) /* bytes, unless fewer fit */

/* Processor time since some moment, in ticks. */
struct pn_demo_ticks {
	double all;    /* of all cores, idle ones too */
	double others; /* for other programs and other virtual machines */
};

/* Messages of one size. */
struct pn_demo_size {
	size_t bytes;
	double us[PN_PROTOCOL_COUNT + 1]; /* by protocol; 0: not measured */
	int chosen;			  /* by auto */
};

struct pn_demo_summary {
	bool virtual_time;
	size_t register_bytes; /* 0: nothing was registered */
	double register_us;
	double pin_us; /* of as many bytes, again; 0: not measured */
	bool kept;     /* they were still registered then */
	struct pn_demo_size sizes[PN_DEMO_SIZES];
	size_t nsizes;
	double best_pace, worst_pace; /* ns; 0: not measured */
	struct pn_demo_ticks ticks;   /* at the begin; then during the run */
};

/* Around all of it. */
void pn_demo_begin(struct pn_demo_summary *seen);
void pn_demo_end(struct pn_demo_summary *seen);

/* Before each thing that is timed. */
void pn_demo_sample_speed(struct pn_demo_summary *seen);

/* What registering that much took; the largest size up to PN_DEMO_REGISTERS
 * stays. */
void pn_demo_add_registration(struct pn_demo_summary *seen, size_t bytes,
			      double us);

/* What a message took; `chosen` is the protocol that it went by. */
void pn_demo_add_message(struct pn_demo_summary *seen, int protocol,
			 size_t bytes, double us, int chosen);

/* Prints all of it; `command` is how this program was called. */
void pn_demo_print_summary(const struct pn_demo_summary *seen,
			   const char *command, FILE *file);

#endif
