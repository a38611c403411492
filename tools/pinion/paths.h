/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * paths -- locates the parts of pinion that other programs load or run: beside
 * this command in the build tree, or as installed.
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
	char command[PN_PATH_BYTES];	  /* this command */
	char provider_dir[PN_PATH_BYTES]; /* folder of PN_PROVIDER */
	char library[PN_PATH_BYTES];	  /* needed by the provider */
	/* preloaded library that names call sites of MPI; "": built without
	 * Open MPI */
	char sites[PN_PATH_BYTES];
	/* stand-ins for libfabric's libraries of PSM adapters; "": none */
	char no_psm1[PN_PATH_BYTES];
	char no_psm2[PN_PATH_BYTES];
};

/* -ENOENT: no provider was found. */
int pn_paths_find(struct pn_paths *out);

/* The path of an internal program or preloaded library that was built with this
 * command. -ENOENT: not found. */
int pn_paths_program(const char *name, char out[PN_PATH_BYTES]);

/* Formats a path; false: too long. */
bool pn_path_print(char out[PN_PATH_BYTES], const char *fmt, ...)
	PN_PRINTF(2, 3);

/* The folder of the recorded streams that come with pinion. -ENOENT. */
int pn_paths_traces(char out[PN_PATH_BYTES]);

#endif
