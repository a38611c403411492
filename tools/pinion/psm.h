/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * psm -- tells whether the ranks of a job can do without the libraries of PSM
 * adapters, which take 200 ms of their start (src/provider/no_psm.h).
 *
 * The stand-ins are used only if this host has no such adapter and the dynamic
 * linker, which is asked here (LD_TRACE_LOADED_OBJECTS: nothing is executed),
 * finds in them every symbol and version that libfabric needs. A libfabric
 * that is built without PSM does not miss them and does not use them.
 *
 * Errors: none; in doubt libfabric gets the libraries of the system.
 * Threads: one.
 */
#ifndef PN_TOOLS_PSM_H
#define PN_TOOLS_PSM_H

#include "tools/pinion/paths.h"

/* Returns the stand-ins to preload into ranks, separated by colons (the caller
 * frees it); NULL: none. */
char *pn_psm_stand_ins(const struct pn_paths *place);

#endif
