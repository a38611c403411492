/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * frames -- where in the program a call comes from.
 *
 * A thread may name its call site (pn_frames_set_name()); then the hash of the
 * name is the only frame. Otherwise the frames are the return addresses of the
 * calling functions, innermost first.
 * Threads: any; a name belongs to the calling thread.
 */
#ifndef PN_HELPER_FRAMES_H
#define PN_HELPER_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

/* Stores up to max frames and returns how many. walk: walk up the stack when
 * there is no name. */
unsigned pn_frames_capture(uintptr_t *frames, unsigned max, bool walk);

/* Names the calls that the calling thread makes from now on, also in trace
 * events (base/thread.h). NULL or "": no name. Only the beginning of the name
 * is kept as text. */
int pn_frames_set_name(const char *name);

#endif
