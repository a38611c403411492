/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * timing -- the time that a message took, reported by the receiver to the
 * sender, whose protocol selector learns from it (select.h).
 *
 * The receiver sees the end of a message. It stores the time with its peer; the
 * next ACK or DONE to that peer carries the newest one. Times for which there
 * was no packet are overwritten. Threads: under the endpoint's lock.
 */
#ifndef PN_MESSAGE_TIMING_H
#define PN_MESSAGE_TIMING_H

#include <stdint.h>

struct pinion_peer;
struct pinion_request;

/* Sender: a request has ended. */
void pn_timing_sent(struct pinion_request *request);

/* Receiver: all of a message is here. */
void pn_timing_record(struct pinion_request *request);

/* Receiver: the newest time for a peer, as a word for a packet; 0: none. */
uint64_t pn_timing_take(struct pinion_peer *peer);

/* Sender: a packet brought such a word; 0 is ignored. */
void pn_timing_received(const struct pinion_peer *peer, uint64_t word);

#endif
