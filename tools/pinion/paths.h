/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * place -- where the parts of pinion are that other programs load or run:
 * beside this command in the build tree, or as installed with it.
 *
 * Threads: any.
 */
#ifndef PN_TOOLS_PLACE_H
#define PN_TOOLS_PLACE_H

#include <stdbool.h>

#include "base/compiler.h"

#define PN_PATH_BYTES 4096

#define PN_PROVIDER "libpinion-fi.so"

struct pn_paths {
	char command[PN_PATH_BYTES];	  /* this one */
	char provider_dir[PN_PATH_BYTES]; /* where PN_PROVIDER is */
	char library[PN_PATH_BYTES];	  /* which the provider needs */
	char sites[PN_PATH_BYTES];	  /* names call sites of MPI; "": built
					   * without Open MPI */
};

/* -ENOENT: there is no provider. */
int pn_paths_find(struct pn_paths *out);

/* A program that was built with this command and is not for people.
 * -ENOENT: there is none. */
int pn_paths_program(const char *name, char out[PN_PATH_BYTES]);

/* Prints a path; false: it is too long. */
bool pn_path_print(char out[PN_PATH_BYTES], const char *fmt, ...)
	PN_PRINTF(2, 3);

#endif
