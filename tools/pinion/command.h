/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * command -- the shape of `pinion` and of everything below it.
 *
 * A command is a row: name, help, options, and either a function or commands
 * below it (`pinion bench register`). Options are tables of config/option.h,
 * so that their values are written as everywhere else ("64K", "10ms") and
 * parsing, help texts, shell completion and the man page's test all come from
 * the same row: `some_name` is --some-name, a BOOL needs no value.
 *
 * Exit status: 0 done; 1 it could not be done, a line on standard error says
 * why; 2 the command line is wrong, one line says what would be right.
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
	const char *about; /* a paragraph more, or NULL */
	const struct pn_option *options;
	size_t noptions;
	size_t values_bytes;		      /* of the struct options fill */
	const struct pn_command *const *subs; /* NULL at the end, or NULL */
	const char *operands; /* how help shows them; NULL: none are taken */
	bool passes; /* the first word that is no option of its own begins the
		      * operands, even if it looks like one */
	/* values as filled from the options; operands end with NULL. NULL when
	 * one of subs must be named. Returns enum pn_exit. */
	int (*run)(const void *values, char *const *operands);
};

/* The row that most commands have. */
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

/* Runs what argv names below root; argv[0] is not looked at. */
int pn_command_run(const struct pn_command *root, int argc, char **argv);

/* The command that words name below root, or NULL. *rest (may be NULL) is the
 * first word that is no name of a command. */
const struct pn_command *pn_command_find(const struct pn_command *root,
					 char *const *words,
					 char *const **rest);

/* The whole help text of the command that words name below root. */
void pn_command_help(FILE *file, const struct pn_command *root,
		     char *const *words);

/* Every word that may follow `words`, one per line, for completion: commands
 * and options, or the values of the option that comes last. */
void pn_command_words(FILE *file, const struct pn_command *root,
		      char *const *words);

/* Prints text in lines of 80 columns at most, each but the first indented;
 * `column` is where the cursor stands already. Ends the line. */
void pn_print_wrapped(FILE *file, int indent, int column, const char *text);

/* "pinion: ..." on standard error, and enum pn_exit to return. */
int pn_usage_error(const char *fmt, ...) PN_PRINTF(1, 2);

/* "pinion: WHAT: strerror" on standard error; returns PN_EXIT_FAILED. */
int pn_failed(const char *what, int negative_errno);

/* "pinion: WHO died of SIGSEGV" on standard error, if that is what the status
 * of waitpid() says. */
void pn_print_signal(const char *who, int status);

/* What the command is made of, one per file. */
extern const struct pn_command pn_cmd_bench;
extern const struct pn_command pn_cmd_config;
extern const struct pn_command pn_cmd_demo;
extern const struct pn_command pn_cmd_explain;
extern const struct pn_command pn_cmd_help;
extern const struct pn_command pn_cmd_info;
extern const struct pn_command pn_cmd_mpirun;
extern const struct pn_command pn_cmd_report;
extern const struct pn_command pn_cmd_reproduce;
extern const struct pn_command pn_cmd_sim;
extern const struct pn_command pn_sim_cluster; /* below it */
extern const struct pn_command pn_cmd_stat;
extern const struct pn_command pn_cmd_top;
extern const struct pn_command pn_cmd_trace;

/* The top: `pinion` itself. */
extern const struct pn_command pn_cmd_pinion;

#endif
