/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * channel -- messages one way between two processes: a ring of cells in
 * shared memory, one producer, one consumer, no system call.
 *
 * A record is a head of 8 bytes (ready word, immediate) and its payload, in
 * whole cells of 64 bytes, never wrapping around the end (a record of kind PAD
 * fills up what is left there). The ready word is written last: a producer
 * that dies half-way leaves nothing visible. An 8-byte message is one cell,
 * one cache line to carry over.
 *
 * The consumer looks at the next cell's ready word, lends the payload in
 * place, and when records are released gives cells back in order: it zeroes
 * the first word of each (a record may begin at any of them next time) and
 * advances `head`. Records may be released in any order; the oldest one not
 * released holds up the rest.
 *
 * At rest: cells from the producer's tail up to head have ready words 0.
 * A producer that found no room sets `stalled`; the consumer then tells it
 * when it has given cells back.
 * Threads: one at a time on each side.
 */
#ifndef PN_DEVICE_SOFT_CHANNEL_H
#define PN_DEVICE_SOFT_CHANNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "device/device.h"

#define PN_SOFT_CELL 64

/* What stands in shared memory; the cells follow. */
struct pn_soft_channel {
	_Atomic uint64_t head; /* cells given back, ever */
	_Atomic uint32_t stalled;
	char reserved[PN_CACHELINE - 12];
	char cells[];
};

enum pn_soft_record { PN_SOFT_SEND, PN_SOFT_IMM, PN_SOFT_PAD };

/* The producer's side. */
struct pn_soft_tx {
	struct pn_soft_channel *channel;
	uint32_t ncells; /* a power of two */
	uint64_t tail;	 /* cells written, ever */
	uint64_t head;	 /* as last seen */
	bool stalled;	 /* found no room, and has not been told of any */
};

/* The consumer's side. */
struct pn_soft_rx {
	struct pn_soft_channel *channel;
	uint32_t ncells;
	uint64_t next;	   /* cell to look at */
	uint64_t head;	   /* cells given back */
	uint16_t *records; /* by cell: cells of the record that starts there;
			      RELEASED set when it may go */
};

struct pn_soft_message {
	enum pn_soft_record kind;
	uint32_t imm;
	const void *data;
	size_t len;
	void *lease;
};

/* Bytes of shared memory for a channel of ring_bytes of cells. */
static inline size_t pn_soft_channel_bytes(size_t ring_bytes)
{
	return sizeof(struct pn_soft_channel) + ring_bytes;
}

void pn_soft_tx_init(struct pn_soft_tx *tx, void *memory, size_t ring_bytes);
int pn_soft_rx_init(struct pn_soft_rx *rx, void *memory, size_t ring_bytes);
void pn_soft_rx_fini(struct pn_soft_rx *rx);

/* Whether a record of len bytes fits now. If not, the consumer will ring when
 * it has given something back. */
bool pn_soft_tx_room(struct pn_soft_tx *tx, size_t len);

/* Whether a producer that had found no room has been given some; says so
 * once. */
static inline bool pn_soft_tx_relieved(struct pn_soft_tx *tx)
{
	if (pn_likely(!tx->stalled) || atomic_load(&tx->channel->stalled))
		return false;
	tx->stalled = false;
	return true;
}

/* Appends a record gathered from the segments; there is room. */
void pn_soft_tx_put(struct pn_soft_tx *tx, enum pn_soft_record kind,
		    uint32_t imm, const struct pn_sge *sge, unsigned nsge);

/* Whether the producer has written something to take. When all cells are lent,
 * the next one is the oldest of them and says nothing new. */
static inline bool pn_soft_rx_ready(const struct pn_soft_rx *rx)
{
	const char *cell = rx->channel->cells +
			   (rx->next & (rx->ncells - 1)) * PN_SOFT_CELL;

	/* Pairs with the release in pn_soft_tx_put(). */
	return atomic_load_explicit((const _Atomic uint32_t *)(const void *)
					    cell,
				    memory_order_acquire) &&
	       pn_likely(rx->next - rx->head != rx->ncells);
}

/* Takes the next record; false when there is none. */
bool pn_soft_rx_take(struct pn_soft_rx *rx, struct pn_soft_message *out);

/* Gives a record back. True: the producer was stalled and is to be told. */
bool pn_soft_rx_release(struct pn_soft_rx *rx, void *lease);

#endif
