/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * frames -- from where in the program a call comes.
 *
 * A thread may name its call site (pn_frames_set_name()); then that is its one
 * frame. Else the return addresses of the calling functions are noted,
 * innermost first, as far as asked for.
 * Threads: any; a name belongs to the calling thread's context.
 */
#ifndef PN_HELPER_FRAMES_H
#define PN_HELPER_FRAMES_H

#include <stdbool.h>
#include <stdint.h>

/* Up to max frames; how many. walk: look at the stack if there is no name. */
unsigned pn_frames_capture(uintptr_t *frames, unsigned max, bool walk);

/* Names the calling thread's next calls, for events, too (base/thread.h); NULL
 * or an empty text: no name any more. Only the beginning of the text is kept.
 */
int pn_frames_set_name(const char *name);

#endif
