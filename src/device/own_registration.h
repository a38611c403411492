/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * own_registration -- tells registrations that pinion makes from those of the
 * program.
 *
 * A library that takes registration calls (a preload, a hook) sees the calls
 * that pinion makes for its own regions, too, sometimes through layers of
 * libfabric. pinion marks the thread while it calls the functions that register
 * and deregister; such a library passes the calls of a marked thread on as they
 * are. Marks nest.
 * Threads: any; a mark belongs to its thread.
 */
#ifndef PN_DEVICE_OWN_REGISTRATION_H
#define PN_DEVICE_OWN_REGISTRATION_H

#include <stdbool.h>

#include <pinion/config.h>

void pn_own_registration_begin(void);
void pn_own_registration_end(void);

/* Whether this thread is marked. Exported under PINION_PRIVATE: for libraries
 * of the same build. */
PINION_API bool pn_own_registration(void);

#endif
