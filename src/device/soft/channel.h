/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * channel -- messages in one direction between two processes: rings of cells in
 * shared memory, one producer, one consumer, no system call.
 *
 * A record is a header of 8 bytes (ready word, immediate) and its payload, in
 * whole cells of 64 bytes. A record never wraps around the end of the ring (a
 * record of kind PAD fills what is left there). The ready word is written last:
 * a producer that dies half-way leaves nothing visible. An 8-byte message is
 * one cell, one cache line to transfer.
 *
 * There are two rings. The short ring fits into the first-level caches of both
 * sides: most of the time of a small message is the transfer of its cache line,
 * and a line that has left that cache takes several times as long. The long
 * ring has room for messages that the consumer does not take at once. The
 * producer writes to one ring at a time. A record of kind SWITCH announces that
 * it goes to the other: to the long ring when a record does not fit into the
 * short one (the longest never do), back when a number of small records were
 * sent and the consumer has returned all cells. So the consumer looks at one
 * place and finds all records in order.
 *
 * The consumer looks at the ready word of the next cell and lends the payload
 * in place. When records were consumed, it returns their cells in order: it
 * zeroes the first word of each (any of them may be the start of a record next
 * time) and advances `head`. Records may be consumed in any order; the oldest
 * record that is not consumed delays the return of all cells behind it.
 * Returning cells takes their cache lines from the producer's cache, and the
 * consumer waits for these. So the return is delayed until there is nothing to
 * receive, or a quarter of the cells is used: then it does not delay the answer
 * to the message that was just consumed.
 *
 * At rest: in each ring, cells from the producer's tail up to head have ready
 * words 0, and in the short ring one cell is free for a SWITCH.
 * A producer that found no room sets `stalled`; the consumer then notifies the
 * producer when it has returned cells.
 * Trust: a producer may write anything at any time. A record that does not lie
 * within the producer's cells, or has an invalid length or kind, is not taken:
 * the ring becomes `broken`, and the peer is disconnected with -EPROTO. So the
 * consumer never accesses memory outside the ring. Lent bytes stay writable by
 * their producer: headers are copied before they are looked at, but other
 * bytes may change between their check and their use. That keeps mistakes out,
 * not a hostile process of the same user (SECURITY.md).
 * Threads: one at a time on each side.
 */
#ifndef PN_DEVICE_SOFT_CHANNEL_H
#define PN_DEVICE_SOFT_CHANNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "device/device.h"

#define PN_SOFT_CELL	    64
#define PN_SOFT_SHORT_CELLS 128u
/* Bytes of a record: 16 KiB and the headers of the layers above. */
#define PN_SOFT_MAX_SEND    (((size_t)16 << 10) + 128)
/* The smallest long ring: the longest record fits wherever the ring begins. */
#define PN_SOFT_MIN_RING    ((size_t)64 << 10)

enum pn_soft_ring_kind { PN_SOFT_SHORT, PN_SOFT_LONG, PN_SOFT_NRINGS };

/* The part in shared memory; the cells follow, the short ring's first. */
struct pn_soft_channel {
	_Atomic uint64_t heads[PN_SOFT_NRINGS]; /* cells returned so far */
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

/* One ring, as one of the sides sees it. */
struct pn_soft_cells {
	char *cells;
	uint32_t ncells; /* a power of two */
	uint64_t at;	 /* cells so far; producer: written, consumer: taken */
	uint64_t head;	 /* cells returned so far; producer: as last read */
};

/* The producer's side. */
struct pn_soft_tx {
	struct pn_soft_channel *channel;
	struct pn_soft_cells rings[PN_SOFT_NRINGS];
	struct pn_soft_cells *ring; /* the ring that it writes to */
	/* records in a row in the long ring that would fit into the short one
	 */
	unsigned nsmall;
	bool stalled; /* found no room, and was not notified yet */
};

/* The consumer's side. */
struct pn_soft_rx {
	const _Atomic uint32_t *next; /* the ready word of the next record */
	struct pn_soft_cells *ring;   /* the ring of `next` */
	struct pn_soft_channel *channel;
	struct pn_soft_cells rings[PN_SOFT_NRINGS];
	struct pn_soft_cells nothing; /* empty; used once `broken` is set */
	bool broken;
	unsigned nconsumed; /* records whose cells were not returned */
	/* by cell: number of cells of the record that starts there;
	 * PN_SOFT_CONSUMED when it may be returned, PN_SOFT_MARK if it is one
	 */
	uint16_t *records;
};

struct pn_soft_message {
	enum pn_soft_record kind;
	uint32_t imm;
	const void *data;
	size_t len;
	void *lease;
};

/* The bytes of shared memory for a channel with a long ring of ring_bytes. */
static inline size_t pn_soft_channel_bytes(size_t ring_bytes)
{
	return sizeof(struct pn_soft_channel) +
	       PN_SOFT_SHORT_CELLS * PN_SOFT_CELL + ring_bytes;
}

void pn_soft_tx_init(struct pn_soft_tx *tx, void *memory, size_t ring_bytes);
int pn_soft_rx_init(struct pn_soft_rx *rx, void *memory, size_t ring_bytes);
void pn_soft_rx_fini(struct pn_soft_rx *rx);

/* Whether a record of len bytes fits now. If not, the consumer will notify when
 * it has returned cells. */
bool pn_soft_tx_room(struct pn_soft_tx *tx, size_t len);

/* Whether a producer that had found no room was given some; true once. */
static inline bool pn_soft_tx_unstalled(struct pn_soft_tx *tx)
{
	if (pn_likely(!tx->stalled) || atomic_load(&tx->channel->stalled))
		return false;
	tx->stalled = false;
	return true;
}

/* A record to append. */
struct pn_soft_record_attr {
	enum pn_soft_record kind;
	uint32_t imm;
	const struct pn_sge *sge; /* its bytes */
	unsigned nsge;
	size_t len; /* of all segments */
};

/* Appends a record; there is room. */
void pn_soft_tx_put(struct pn_soft_tx *tx,
		    const struct pn_soft_record_attr *attr);

/* --- the path of every message ------------------------------------------- */

#define PN_SOFT_HEAD_BYTES  8
#define PN_SOFT_LEN_BITS    28
#define PN_SOFT_LEN_MASK    ((UINT32_C(1) << PN_SOFT_LEN_BITS) - 1)
#define PN_SOFT_KIND(ready) ((enum pn_soft_record)((ready) >> PN_SOFT_LEN_BITS))
_Static_assert(2 * (PN_SOFT_MAX_SEND + PN_SOFT_HEAD_BYTES + PN_SOFT_CELL) <=
		       PN_SOFT_MIN_RING,
	       "a record and the cells skipped before it fit into a ring");
/* A record's entry: its cells, and bits. */
#define PN_SOFT_COUNT	 0x3fffu
#define PN_SOFT_MARK	 0x4000u
#define PN_SOFT_CONSUMED 0x8000u

/* ThreadSanitizer sees two mappings of one file as two addresses and misses
 * that a message orders the accesses of both sides. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PN_SOFT_TSAN 1
void __tsan_acquire(void *);
void __tsan_release(void *);
extern char pn_soft_tsan_order;
#endif
#endif

static inline void pn_soft_tsan_acquire(void)
{
#ifdef PN_SOFT_TSAN
	__tsan_acquire(&pn_soft_tsan_order);
#endif
}

static inline void pn_soft_tsan_release(void)
{
#ifdef PN_SOFT_TSAN
	__tsan_release(&pn_soft_tsan_order);
#endif
}

static inline uint32_t pn_soft_cells_for(size_t len)
{
	return (uint32_t)((PN_SOFT_HEAD_BYTES + len + PN_SOFT_CELL - 1) /
			  PN_SOFT_CELL);
}

static inline char *pn_soft_cell_at(const struct pn_soft_cells *ring,
				    uint64_t index)
{
	return ring->cells + (index & (ring->ncells - 1)) * PN_SOFT_CELL;
}

/* The ready word: kind and length + 1, so that it is never 0. */
static inline uint32_t pn_soft_ready(enum pn_soft_record kind, size_t len)
{
	return (uint32_t)kind << PN_SOFT_LEN_BITS | ((uint32_t)len + 1);
}

/* Makes a complete record visible by one store of its header. The ready word
 * comes first in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
	       "a record's ready word is the low half of its head");
static inline void pn_soft_tx_publish(char *cell, enum pn_soft_record kind,
				      uint32_t imm, size_t len)
{
	pn_soft_tsan_release();
	atomic_store_explicit((_Atomic uint64_t *)(void *)cell,
			      (uint64_t)imm << 32 | pn_soft_ready(kind, len),
			      memory_order_release);
}

/* The cases that pn_soft_tx_send() does not handle: the long ring, a PAD or
 * SWITCH before the record, no room. */
bool pn_soft_tx_send_slow(struct pn_soft_tx *tx,
			  const struct pn_inline_header *head, const void *body,
			  size_t len);

/* Copies word by word, as the words were written just before: a load of two
 * words at once would wait until both stores have left the store buffer. */
static inline void pn_soft_put_header(char *to,
				      const struct pn_inline_header *head)
{
	_Atomic uint64_t *words = (_Atomic uint64_t *)(void *)to;

#pragma GCC unroll 8
	for (unsigned i = 0; i < PN_ARRAY_LEN(head->words); i++)
		atomic_store_explicit(&words[i], head->words[i],
				      memory_order_relaxed);
}

/* Appends a SEND of header and body. False: there is no room, and the consumer
 * will notify. */
static inline bool pn_soft_tx_send(struct pn_soft_tx *tx,
				   const struct pn_inline_header *head,
				   const void *body, size_t len)
{
	struct pn_soft_cells *ring = &tx->rings[PN_SOFT_SHORT];
	uint32_t n = pn_soft_cells_for(sizeof(*head) + len);
	uint32_t first = ring->at & (PN_SOFT_SHORT_CELLS - 1);
	char *cell = ring->cells + (size_t)first * PN_SOFT_CELL;

	/* One cell is reserved for a SWITCH. */
	if (pn_unlikely(tx->ring != ring || first + n > PN_SOFT_SHORT_CELLS ||
			ring->at + n - ring->head >= PN_SOFT_SHORT_CELLS))
		return pn_soft_tx_send_slow(tx, head, body, len);
	pn_soft_put_header(cell + PN_SOFT_HEAD_BYTES, head);
	if (len)
		memcpy(cell + PN_SOFT_HEAD_BYTES + sizeof(*head), body, len);
	pn_soft_tx_publish(cell, PN_SOFT_SEND, 0, sizeof(*head) + len);
	ring->at += n;
	return true;
}

/* Where the next record most likely begins. */
static inline const void *pn_soft_tx_next(const struct pn_soft_tx *tx)
{
	return pn_soft_cell_at(tx->ring, tx->ring->at);
}

static inline uint16_t *pn_soft_record_at(const struct pn_soft_rx *rx,
					  const char *cell)
{
	return &rx->records[(size_t)(cell - rx->channel->cells) / PN_SOFT_CELL];
}

static inline void pn_soft_rx_set_next(struct pn_soft_rx *rx,
				       struct pn_soft_cells *ring)
{
	rx->ring = ring;
	rx->next = (const _Atomic uint32_t *)(const void *)
		pn_soft_cell_at(ring, ring->at);
}

/* Whether the producer has written a record to take. When all cells are lent,
 * the next cell is the oldest of them and holds no new record. */
static inline bool pn_soft_rx_ready(const struct pn_soft_rx *rx)
{
	/* Pairs with the release in pn_soft_tx_publish(). */
	return atomic_load_explicit(rx->next, memory_order_acquire) &&
	       pn_likely(rx->ring->at - rx->ring->head != rx->ring->ncells);
}

/* Whether a record begins and ends within the cells that belong to the
 * producer. */
static inline bool pn_soft_record_is_valid(const struct pn_soft_cells *ring,
					   size_t len, uint32_t n)
{
	uint32_t index = (uint32_t)(ring->at & (ring->ncells - 1));

	return len <= PN_SOFT_MAX_SEND && index + n <= ring->ncells &&
	       ring->at - ring->head + n <= ring->ncells;
}

/* The producer has written an invalid record: the consumer receives nothing
 * from this channel any more. */
void pn_soft_rx_disable(struct pn_soft_rx *rx);

/* Continues after a mark (a PAD or SWITCH record). True: a record is ready. */
bool pn_soft_rx_follow_mark(struct pn_soft_rx *rx, enum pn_soft_record mark);

/* Lines after the first that are prefetched as soon as their number is known:
 * they arrive while the first is handled. */
#define PN_SOFT_PREFETCH_LINES 8

static inline void pn_soft_prefetch_cells(const char *cell, uint32_t n)
{
	for (uint32_t i = 1; i < n && i <= PN_SOFT_PREFETCH_LINES; i++)
		__builtin_prefetch(cell + (size_t)i * PN_SOFT_CELL);
}

/* In a burst, lines behind the next record that are prefetched, so that they
 * arrive while that record is handled. Its writer is far ahead: it waits for
 * none of them. */
#define PN_SOFT_BURST_LINES 4

static inline void pn_soft_rx_prefetch_burst(const struct pn_soft_rx *rx)
{
	const struct pn_soft_cells *ring = rx->ring;

	__builtin_prefetch(
		pn_soft_cell_at(ring, ring->at + PN_SOFT_BURST_LINES));
}

/* Takes the next record, of n cells. */
static inline void pn_soft_rx_advance(struct pn_soft_rx *rx, const char *cell,
				      uint32_t n)
{
	*pn_soft_record_at(rx, cell) = (uint16_t)n;
	rx->ring->at += n;
	pn_soft_rx_set_next(rx, rx->ring);
}

/* Takes the next record; one is ready. False: it was a mark with nothing after
 * it, or the channel is `broken`. */
static inline bool pn_soft_rx_take(struct pn_soft_rx *rx,
				   struct pn_soft_message *out)
{
	uint32_t ready, n;
	char *cell;

	do {
		ready = atomic_load_explicit(rx->next, memory_order_relaxed);
		cell = (char *)(uintptr_t)rx->next;
		pn_soft_tsan_acquire();
		out->kind = PN_SOFT_KIND(ready);
		out->len = (ready & PN_SOFT_LEN_MASK) - 1;
		out->data = cell + PN_SOFT_HEAD_BYTES;
		out->lease = cell;
		memcpy(&out->imm, cell + 4, sizeof(out->imm));
		n = pn_soft_cells_for(out->len);
		if (pn_unlikely(
			    out->kind > PN_SOFT_SWITCH ||
			    !pn_soft_record_is_valid(rx->ring, out->len, n))) {
			pn_soft_rx_disable(rx);
			return false;
		}
		pn_soft_prefetch_cells(cell, n);
		pn_soft_rx_advance(rx, cell, n);
		if (pn_likely(out->kind < PN_SOFT_PAD))
			return true;
		*pn_soft_record_at(rx, cell) |= PN_SOFT_CONSUMED | PN_SOFT_MARK;
		rx->nconsumed++;
	} while (pn_soft_rx_follow_mark(rx, out->kind));
	return false;
}

/* pn_soft_rx_return_cells(), the functions pn_soft_rx_consume*() and
 * pn_soft_rx_return_pending() return true when the producer was stalled and has
 * to be notified. */

/* Returns the cells of consumed records: when there is nothing to receive, or
 * when a quarter of a ring is used. */
bool pn_soft_rx_return_cells(struct pn_soft_rx *rx);

static inline bool pn_soft_rx_consumed_in(struct pn_soft_rx *rx,
					  const struct pn_soft_cells *ring,
					  const char *cell)
{
	*pn_soft_record_at(rx, cell) |= PN_SOFT_CONSUMED;
	rx->nconsumed++;
	return pn_unlikely(ring->at - ring->head >= ring->ncells / 4) &&
	       pn_soft_rx_return_cells(rx);
}

/* A record was consumed. Its cells are returned now or by
 * pn_soft_rx_return_pending(). */
static inline bool pn_soft_rx_consumed(struct pn_soft_rx *rx, const char *lease)
{
	return pn_soft_rx_consumed_in(
		rx, &rx->rings[lease >= rx->rings[PN_SOFT_LONG].cells], lease);
}

/* Returns the bytes of the next record in place; one is ready. NULL: it is not
 * a SEND without immediate; use pn_soft_rx_take(). */
static inline const void *pn_soft_rx_peek(const struct pn_soft_rx *rx,
					  size_t *len)
{
	const char *cell = (const char *)(uintptr_t)rx->next;
	uint64_t head = atomic_load_explicit(
		(const _Atomic uint64_t *)(const void *)cell,
		memory_order_acquire);
	uint32_t n;

	pn_soft_tsan_acquire();
	*len = head - 1;
	n = pn_soft_cells_for(*len);
	if (pn_unlikely(head - 1 > PN_SOFT_MAX_SEND ||
			(n > 1 && !pn_soft_record_is_valid(rx->ring, *len, n))))
		return NULL;
	pn_soft_prefetch_cells(cell, n);
	return cell + PN_SOFT_HEAD_BYTES;
}

/* Consumes the record of len bytes that pn_soft_rx_peek() returned. */
static inline bool pn_soft_rx_consume_next(struct pn_soft_rx *rx, size_t len)
{
	char *cell = (char *)(uintptr_t)rx->next;

	pn_soft_rx_advance(rx, cell, pn_soft_cells_for(len));
	return pn_soft_rx_consumed_in(rx, rx->ring, cell);
}

static inline bool pn_soft_rx_return_pending(struct pn_soft_rx *rx)
{
	return pn_unlikely(rx->nconsumed) && pn_soft_rx_return_cells(rx);
}

#endif
