/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * load -- how many long messages of an endpoint are in flight at a time. The
 * protocol selector asks (select.h): a lone message is judged by its latency,
 * one among others by what it adds to the time of all.
 *
 * Nouns
 *   in flight  a long message, sent or received, from its MATCH until its
 *              request ends. Eager messages do not count.
 *   burst      the messages between two moments with none in flight, at most
 *              PN_LOAD_BURST of them.
 *   level      of the next message: the most messages in flight at a time in
 *              this burst and in the one before. So all messages of a window
 *              have the level of the window, from the second window on,
 *              although the first one is posted with none in flight. A program
 *              that goes over to single messages is noticed at the second one.
 *
 * Threads: the endpoint's lock. Nothing here calls other modules.
 */
#ifndef PN_MESSAGE_LOAD_H
#define PN_MESSAGE_LOAD_H

#include <stdbool.h>

#define PN_LOAD_BURST 128

/* All zero: nothing was sent yet. */
struct pn_load {
	unsigned inflight;
	unsigned peak, last_peak; /* of this burst, and of the one before */
	unsigned nmessages;	  /* of this burst */
};

/* Classes of levels, for which the selector learns separately: 1, 2, 3 to 4, 5
 * to 8, 9 to 16, more. */
#define PN_LOAD_CLASSES 6
unsigned pn_load_class(unsigned level);

void pn_load_begin(struct pn_load *load);
void pn_load_end(struct pn_load *load);

/* The level of a message that is about to be posted. */
unsigned pn_load_level(const struct pn_load *load);

static inline bool pn_load_is_idle(const struct pn_load *load)
{
	return !load->inflight;
}

#endif
