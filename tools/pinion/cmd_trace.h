/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cmd_trace -- what the commands below `pinion trace` share: opening the file
 * that they are given, walking through it with progress, and saying what is
 * wrong with it.
 */
#ifndef PN_TOOLS_CMD_TRACE_H
#define PN_TOOLS_CMD_TRACE_H

#include "tools/pinion/command.h"
#include "tools/trace/trace.h"

/* Opens the one file among the operands. PN_EXIT_OK or what to exit with. */
int pn_trace_operand(char *const *operands, struct pn_trace **out);

/* Hands events to fn, some at a time, until the end or until fn returns
 * something else than 0, which is passed on. What is wrong with the file is
 * said: PN_EXIT_FAILED. */
int pn_trace_walk(struct pn_trace *trace,
		  int (*fn)(void *arg, const struct pn_trace_event *events,
			    int n),
		  void *arg);

/* "binary recording", "CSV", ... */
const char *pn_trace_format_text(const struct pn_trace_info *info);

extern const struct pn_command pn_cmd_trace_stat;

#endif
