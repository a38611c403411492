/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cmd_trace -- shared by the commands below `pinion trace`: opens the file
 * operand, reads it with progress, and reports errors of the file.
 */
#ifndef PN_TOOLS_CMD_TRACE_H
#define PN_TOOLS_CMD_TRACE_H

#include "tools/pinion/command.h"
#include "tools/trace/trace.h"

/* Opens the single file operand. Returns enum pn_exit. */
int pn_trace_operand(char *const *operands, struct pn_trace **out);

/* Calls fn with several events at a time, until the end or until fn returns a
 * value other than 0, which is returned. Errors of the file are printed:
 * PN_EXIT_FAILED. */
int pn_trace_walk(struct pn_trace *trace,
		  int (*fn)(void *arg, const struct pn_trace_event *events,
			    int n),
		  void *arg);

/* "binary recording", "CSV", ... */
const char *pn_trace_format_text(const struct pn_trace_info *info);

extern const struct pn_command pn_cmd_trace_stat;

#endif
