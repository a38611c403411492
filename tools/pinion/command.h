/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * command -- the table of `pinion` and of all its subcommands.
 *
 * A command is a struct: name, help, options, and either a function or
 * subcommands (`pinion bench register`). Options are tables of config/option.h,
 * so that values are written as everywhere else ("64K", "10ms"), and parsing,
 * help texts, shell completion and the test of the man page use the same entry:
 * `some_name` is --some-name, a BOOL needs no value.
 *
 * Exit status: 0 success; 1 failure, with a line on standard error that says
 * why; 2 wrong command line, with one line that says what would be right.
 */
#ifndef PN_TOOLS_COMMAND_H
#define PN_TOOLS_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/compiler.h"
#include "config/option.h"

enum pn_exit {
	PN_EXIT_OK = 0,
	PN_EXIT_FAILED = 1,
	PN_EXIT_USAGE = 2,
};

struct pn_command {
	const char *name;
	const char *help;  /* one line, no full stop */
	const char *about; /* a further paragraph, or NULL */
	const struct pn_option *options;
	size_t noptions;
	/* size of the struct that the options fill */
	size_t values_bytes;
	/* subcommands, terminated by NULL; or NULL */
	const struct pn_command *const *subs;
	const char *operands; /* as shown in the help; NULL: takes none */
	/* operands begin at the first word that is not an option of this
	 * command, even if it looks like an option */
	bool passes;
	/* values: filled from the options; operands: terminated by NULL. NULL
	 * if a subcommand is required. Returns enum pn_exit. */
	int (*run)(const void *values, char *const *operands);
};

/* Options of most commands. */
#define PN_COMMAND_DEVICE(type, field)                                      \
	{                                                                   \
		"device", PN_OPTION_TEXT, "",                               \
			"the device, as a spec such as soft or "            \
			"sim:cost=ou2009 (default: as PINION_DEVICE says)", \
			offsetof(type, field), 0, 0, NULL                   \
	}
#define PN_COMMAND_JSON(type, field)                                          \
	{                                                                     \
		"json", PN_OPTION_BOOL, "no", "print one JSON object a line", \
			offsetof(type, field), 0, 0, NULL                     \
	}

/* Runs the command that argv names below root; argv[0] is ignored. */
int pn_command_run(const struct pn_command *root, int argc, char **argv);

/* Returns the command that words name below root, or NULL. *rest (may be NULL)
 * is the first word that is not the name of a command. */
const struct pn_command *pn_command_find(const struct pn_command *root,
					 char *const *words,
					 char *const **rest);

/* Prints the help text of the command that words name below root. */
void pn_command_help(FILE *file, const struct pn_command *root,
		     char *const *words);

/* Prints every word that may follow `words`, one per line, for completion:
 * commands and options, or the values of the last option. */
void pn_command_words(FILE *file, const struct pn_command *root,
		      char *const *words);

/* Prints text wrapped at 80 columns, all lines but the first indented; `column`
 * is the current column. Ends the line. */
void pn_print_wrapped(FILE *file, int indent, int column, const char *text);

/* Prints "pinion: ..." on standard error; returns PN_EXIT_USAGE. */
int pn_usage_error(const char *fmt, ...) PN_PRINTF(1, 2);

/* Prints "pinion: WHAT: strerror" on standard error; returns PN_EXIT_FAILED. */
int pn_failed(const char *what, int negative_errno);

/* Prints "pinion: WHO died of SIGSEGV" on standard error if the status of
 * waitpid() says so. */
void pn_print_signal(const char *who, int status);

/* The commands, one per file. */
extern const struct pn_command pn_cmd_bench;
extern const struct pn_command pn_cmd_config;
extern const struct pn_command pn_cmd_demo;
extern const struct pn_command pn_cmd_explain;
extern const struct pn_command pn_cmd_help;
extern const struct pn_command pn_cmd_info;
extern const struct pn_command pn_cmd_mpirun;
extern const struct pn_command pn_cmd_report;
extern const struct pn_command pn_cmd_reproduce;
extern const struct pn_command pn_cmd_run;
extern const struct pn_command pn_cmd_sim;
extern const struct pn_command pn_sim_cluster; /* subcommand of pn_cmd_sim */
extern const struct pn_command pn_cmd_stat;
extern const struct pn_command pn_cmd_top;
extern const struct pn_command pn_cmd_trace;

/* The root: `pinion` itself. */
extern const struct pn_command pn_cmd_pinion;

#endif
