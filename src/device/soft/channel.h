/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * channel -- messages one way between two processes: rings of cells in shared
 * memory, one producer, one consumer, no system call.
 *
 * A record is a head of 8 bytes (ready word, immediate) and its payload, in
 * whole cells of 64 bytes, never wrapping around the end (a record of kind PAD
 * fills up what is left there). The ready word is written last: a producer
 * that dies half-way leaves nothing visible. An 8-byte message is one cell,
 * one cache line to carry over.
 *
 * There are two rings. The short one is small enough to stay in both sides'
 * first caches, which is where most of the time of a small message goes: a line
 * that has left there takes several times as long to get at. The long one has
 * room for what a consumer does not take at once. The producer is in one of
 * them at a time and says by a record of kind SWITCH that it goes to the other:
 * to the long one when a record does not fit into the short one, back when a
 * number of small ones have gone and the consumer has given back everything.
 * So the consumer looks at one place, and finds everything in order.
 *
 * The consumer looks at the next cell's ready word, lends the payload in
 * place, and when records were released gives cells back in order: it zeroes
 * the first word of each (a record may begin at any of them next time) and
 * advances `head`. Records may be released in any order; the oldest one not
 * released holds up the rest of its ring. Giving back takes the cells' lines
 * away from the producer's cache and waits for that, so it is put off until
 * there is nothing to take, or a quarter of the cells is out: whoever waits for
 * the message that was released does not wait for it.
 *
 * At rest: in each ring, cells from the producer's tail up to head have ready
 * words 0, and in the short one a cell is free for a SWITCH.
 * A producer that found no room sets `stalled`; the consumer then tells it
 * when it has given cells back.
 * Trust: none. A producer may write what it likes, at any time. A record that
 * does not lie within the cells that are its own, or is longer or of another
 * kind than there are, is not taken: the ring is `broken`, and nothing comes
 * from it any more. What is lent can change under its reader, who reads once.
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

#define PN_SOFT_CELL	    64
#define PN_SOFT_SHORT_CELLS 128u
#define PN_SOFT_MAX_SEND    ((size_t)8 << 10) /* bytes of a record */

enum pn_soft_ring_kind { PN_SOFT_SHORT, PN_SOFT_LONG, PN_SOFT_NRINGS };

/* What stands in shared memory; the cells follow, the short ring's first. */
struct pn_soft_channel {
	_Atomic uint64_t heads[PN_SOFT_NRINGS]; /* cells given back, ever */
	_Atomic uint32_t stalled;
	char reserved[PN_CACHELINE - 20];
	char cells[];
};

enum pn_soft_record {
	PN_SOFT_SEND,
	PN_SOFT_IMM,
	PN_SOFT_PAD,
	PN_SOFT_SWITCH,
};

/* One ring, as one of the sides has it. */
struct pn_soft_cells {
	char *cells;
	uint32_t ncells; /* a power of two */
	uint64_t at;	 /* producer: cells written, ever; consumer: taken */
	uint64_t head;	 /* cells given back, ever; producer: as last seen */
};

/* The producer's side. */
struct pn_soft_tx {
	struct pn_soft_channel *channel;
	struct pn_soft_cells rings[PN_SOFT_NRINGS];
	struct pn_soft_cells *ring; /* it is in */
	unsigned nsmall; /* records in a row, in the long ring, that would fit
			  * into the short one */
	bool stalled;	 /* found no room, and has not been told of any */
};

/* The consumer's side. */
struct pn_soft_rx {
	struct pn_soft_channel *channel;
	struct pn_soft_cells rings[PN_SOFT_NRINGS];
	struct pn_soft_cells *ring;
	struct pn_soft_cells nothing; /* where it is when it is: */
	bool broken;
	unsigned nreleased; /* records, not given back */
	uint16_t *records;  /* by cell: cells of the record that starts there;
			       RELEASED set when it may go */
};

struct pn_soft_message {
	enum pn_soft_record kind;
	uint32_t imm;
	const void *data;
	size_t len;
	void *lease;
};

/* Bytes of shared memory for a channel with a long ring of ring_bytes. */
static inline size_t pn_soft_channel_bytes(size_t ring_bytes)
{
	return sizeof(struct pn_soft_channel) +
	       PN_SOFT_SHORT_CELLS * PN_SOFT_CELL + ring_bytes;
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

/* Appends a record of len bytes, gathered from the segments; there is room. */
void pn_soft_tx_put(struct pn_soft_tx *tx, enum pn_soft_record kind,
		    uint32_t imm, const struct pn_sge *sge, unsigned nsge,
		    size_t len);

/* Whether the producer has written something to take. When all cells are lent,
 * the next one is the oldest of them and says nothing new. */
static inline bool pn_soft_rx_ready(const struct pn_soft_rx *rx)
{
	const struct pn_soft_cells *ring = rx->ring;
	const char *cell =
		ring->cells + (ring->at & (ring->ncells - 1)) * PN_SOFT_CELL;

	/* Pairs with the release in pn_soft_tx_put(). */
	return atomic_load_explicit((const _Atomic uint32_t *)(const void *)
					    cell,
				    memory_order_acquire) &&
	       pn_likely(ring->at - ring->head != ring->ncells);
}

/* Takes the next record; false when there is none, or it is broken. */
bool pn_soft_rx_take(struct pn_soft_rx *rx, struct pn_soft_message *out);

/* Both true: the producer was stalled and is to be told. */
/* A record may be given back, if not now then by pn_soft_rx_tidy(). */
bool pn_soft_rx_release(struct pn_soft_rx *rx, void *lease);
/* Gives back what may be; to be called when there is nothing to take. */
bool pn_soft_rx_give_back(struct pn_soft_rx *rx);

static inline bool pn_soft_rx_tidy(struct pn_soft_rx *rx)
{
	return pn_unlikely(rx->nreleased) && pn_soft_rx_give_back(rx);
}

#endif
