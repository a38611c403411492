/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/soft/channel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define HEAD_BYTES  8
#define LEN_BITS    28
#define LEN_MASK    ((UINT32_C(1) << LEN_BITS) - 1)
#define RELEASED    0x8000u
#define COUNT_MASK  0x7fffu
#define KIND(ready) ((enum pn_soft_record)((ready) >> LEN_BITS))

/* Two mappings of one file are two addresses to ThreadSanitizer, which then
 * misses that a message orders what both sides do. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
void __tsan_acquire(void *);
void __tsan_release(void *);
static char everywhere;
#endif
#endif

static void ordered_after_all(void)
{
#ifdef TSAN
	__tsan_acquire(&everywhere);
#endif
}

static void ordered_before_all(void)
{
#ifdef TSAN
	__tsan_release(&everywhere);
#endif
}

/* The ready word: kind and length + 1, so that it is never 0. */
static uint32_t ready_word(enum pn_soft_record kind, size_t len)
{
	return (uint32_t)kind << LEN_BITS | ((uint32_t)len + 1);
}

static uint32_t cells_for(size_t len)
{
	return (uint32_t)((HEAD_BYTES + len + PN_SOFT_CELL - 1) / PN_SOFT_CELL);
}

static char *cell_at(const struct pn_soft_cells *ring, uint64_t index)
{
	return ring->cells + (index & (ring->ncells - 1)) * PN_SOFT_CELL;
}

static _Atomic uint32_t *ready_of(char *cell)
{
	return (_Atomic uint32_t *)(void *)cell;
}

static void init_rings(struct pn_soft_cells *rings,
		       struct pn_soft_channel *channel, size_t ring_bytes)
{
	rings[PN_SOFT_SHORT] = (struct pn_soft_cells){
		.cells = channel->cells,
		.ncells = PN_SOFT_SHORT_CELLS,
	};
	rings[PN_SOFT_LONG] = (struct pn_soft_cells){
		.cells = channel->cells + PN_SOFT_SHORT_CELLS * PN_SOFT_CELL,
		.ncells = (uint32_t)(ring_bytes / PN_SOFT_CELL),
	};
}

void pn_soft_tx_init(struct pn_soft_tx *tx, void *memory, size_t ring_bytes)
{
	*tx = (struct pn_soft_tx){ .channel = memory,
				   .ring = &tx->rings[PN_SOFT_SHORT] };
	init_rings(tx->rings, memory, ring_bytes);
}

int pn_soft_rx_init(struct pn_soft_rx *rx, void *memory, size_t ring_bytes)
{
	size_t ncells = PN_SOFT_SHORT_CELLS + ring_bytes / PN_SOFT_CELL;
	uint16_t *records = calloc(ncells, sizeof(*records));

	if (!records)
		return -ENOMEM;
	*rx = (struct pn_soft_rx){ .channel = memory,
				   .ring = &rx->rings[PN_SOFT_SHORT],
				   .records = records };
	init_rings(rx->rings, memory, ring_bytes);
	return 0;
}

void pn_soft_rx_fini(struct pn_soft_rx *rx)
{
	free(rx->records);
	*rx = (struct pn_soft_rx){ .channel = NULL };
}

/* --- producer ------------------------------------------------------------ */

/* Small records in a row before it goes back to the short ring. */
#define PATIENCE 16

/* Cells to skip so that n cells lie in a row. */
static uint32_t pad_before(const struct pn_soft_cells *ring, uint32_t n)
{
	uint32_t left =
		ring->ncells - (uint32_t)(ring->at & (ring->ncells - 1));

	return left < n ? left : 0;
}

/* Pairs with pn_soft_rx_give_back(): the cells are zeroed before head moves. */
static void look_at_head(struct pn_soft_tx *tx, struct pn_soft_cells *ring)
{
	ring->head = atomic_load(&tx->channel->heads[ring - tx->rings]);
}

static bool fits(struct pn_soft_tx *tx, struct pn_soft_cells *ring, uint32_t n)
{
	/* In the short ring one is kept for a SWITCH. */
	uint64_t most = ring->ncells - (ring == &tx->rings[PN_SOFT_SHORT]);
	uint64_t want = ring->at + n + pad_before(ring, n);

	if (pn_likely(want - ring->head <= most))
		return true;
	look_at_head(tx, ring);
	return want - ring->head <= most;
}

/* A record without payload, of n cells of which it writes one. */
static void put_mark(struct pn_soft_cells *ring, enum pn_soft_record kind,
		     uint32_t n)
{
	atomic_store_explicit(ready_of(cell_at(ring, ring->at)),
			      ready_word(kind, n * PN_SOFT_CELL - HEAD_BYTES),
			      memory_order_release);
	ring->at += n;
}

static void go_to(struct pn_soft_tx *tx, enum pn_soft_ring_kind kind)
{
	put_mark(tx->ring, PN_SOFT_SWITCH, 1);
	tx->ring = &tx->rings[kind];
	tx->nsmall = 0;
}

static bool is_all_back(struct pn_soft_tx *tx, struct pn_soft_cells *ring)
{
	if (ring->head != ring->at)
		look_at_head(tx, ring);
	return ring->head == ring->at;
}

/* Whether there is room for n cells, in the ring that is then the one to write
 * to. */
static bool find_room(struct pn_soft_tx *tx, uint32_t n)
{
	struct pn_soft_cells *brief = &tx->rings[PN_SOFT_SHORT];
	struct pn_soft_cells *large = &tx->rings[PN_SOFT_LONG];

	if (pn_likely(tx->ring == brief)) {
		if (pn_likely(fits(tx, brief, n)))
			return true;
		if (!fits(tx, large, n))
			return false;
		go_to(tx, PN_SOFT_LONG);
		return true;
	}
	if (tx->nsmall >= PATIENCE && n < brief->ncells / 4 &&
	    is_all_back(tx, large) && is_all_back(tx, brief)) {
		go_to(tx, PN_SOFT_SHORT);
		return true;
	}
	return fits(tx, large, n);
}

bool pn_soft_tx_room(struct pn_soft_tx *tx, size_t len)
{
	uint32_t n = cells_for(len);

	if (pn_likely(find_room(tx, n)))
		return true;
	/* Sequentially consistent, as is the consumer's store of head before
	 * it looks here: one of us sees the other. */
	atomic_store(&tx->channel->stalled, 1);
	tx->stalled = !find_room(tx, n);
	return !tx->stalled;
}

void pn_soft_tx_put(struct pn_soft_tx *tx, enum pn_soft_record kind,
		    uint32_t imm, const struct pn_sge *sge, unsigned nsge,
		    size_t len)
{
	struct pn_soft_cells *ring = tx->ring;
	uint32_t n = cells_for(len), pad = pad_before(ring, n);
	char *cell, *to;

	if (pn_unlikely(pad))
		put_mark(ring, PN_SOFT_PAD, pad);
	tx->nsmall = n < PN_SOFT_SHORT_CELLS / 4 ? tx->nsmall + 1 : 0;
	cell = cell_at(ring, ring->at);
	memcpy(cell + 4, &imm, sizeof(imm));
	to = cell + HEAD_BYTES;
	for (unsigned i = 0; i < nsge; to += sge[i].len, i++)
		if (sge[i].len)
			memcpy(to, sge[i].addr, sge[i].len);
	ordered_before_all();
	atomic_store_explicit(ready_of(cell), ready_word(kind, len),
			      memory_order_release);
	ring->at += n;
}

/* --- consumer ------------------------------------------------------------ */

/* What kept a record's place; a mark has written one cell alone. */
static void clear_cells(const struct pn_soft_cells *ring, uint64_t at,
			unsigned n)
{
	uint32_t ready = atomic_load_explicit(ready_of(cell_at(ring, at)),
					      memory_order_relaxed);

	if (KIND(ready) >= PN_SOFT_PAD)
		n = 1;
	for (unsigned i = 0; i < n; i++)
		atomic_store_explicit(ready_of(cell_at(ring, at + i)), 0,
				      memory_order_relaxed);
}

static uint16_t *record_at(const struct pn_soft_rx *rx, const char *cell)
{
	return &rx->records[(size_t)(cell - rx->channel->cells) / PN_SOFT_CELL];
}

/* Clears the released records at a ring's head; true when there were any. */
static bool clear_head(struct pn_soft_rx *rx, struct pn_soft_cells *ring)
{
	uint64_t before = ring->head;
	uint16_t *record = record_at(rx, cell_at(ring, ring->head));

	while (*record & RELEASED) {
		unsigned n = *record & COUNT_MASK;

		clear_cells(ring, ring->head, n);
		*record = 0;
		ring->head += n;
		rx->nreleased--;
		record = record_at(rx, cell_at(ring, ring->head));
	}
	return ring->head != before;
}

bool pn_soft_rx_give_back(struct pn_soft_rx *rx)
{
	bool any = false;

	for (unsigned i = 0; i < PN_SOFT_NRINGS; i++) {
		if (!clear_head(rx, &rx->rings[i]))
			continue;
		any = true;
		atomic_store(&rx->channel->heads[i], rx->rings[i].head);
	}
	return any &&
	       atomic_load_explicit(&rx->channel->stalled,
				    memory_order_seq_cst) &&
	       atomic_exchange(&rx->channel->stalled, 0);
}

/* A record begins in the cells that are the producer's, and ends there. */
static bool is_sound(const struct pn_soft_cells *ring,
		     const struct pn_soft_message *m, uint32_t n)
{
	uint32_t index = (uint32_t)(ring->at & (ring->ncells - 1));

	return m->len <= PN_SOFT_MAX_SEND && index + n <= ring->ncells &&
	       ring->at - ring->head + n <= ring->ncells &&
	       m->kind <= PN_SOFT_SWITCH;
}

static void give_up(struct pn_soft_rx *rx)
{
	static char never_ready[PN_SOFT_CELL] PN_ALIGNED(8);

	rx->nothing =
		(struct pn_soft_cells){ .cells = never_ready, .ncells = 1 };
	rx->ring = &rx->nothing;
	rx->broken = true;
}

static void open_record(struct pn_soft_rx *rx, const char *cell, uint32_t n,
			bool released)
{
	*record_at(rx, cell) = (uint16_t)(n | (released ? RELEASED : 0));
	rx->nreleased += released;
	rx->ring->at += n;
}

bool pn_soft_rx_take(struct pn_soft_rx *rx, struct pn_soft_message *out)
{
	while (pn_soft_rx_ready(rx)) {
		char *cell = cell_at(rx->ring, rx->ring->at);
		uint32_t ready = atomic_load_explicit(ready_of(cell),
						      memory_order_relaxed);
		uint32_t n;

		ordered_after_all();
		out->kind = KIND(ready);
		out->len = (ready & LEN_MASK) - 1;
		out->data = cell + HEAD_BYTES;
		out->lease = cell;
		memcpy(&out->imm, cell + 4, sizeof(out->imm));
		n = cells_for(out->len);
		if (pn_unlikely(!is_sound(rx->ring, out, n))) {
			give_up(rx);
			break;
		}
		open_record(rx, cell, n, out->kind >= PN_SOFT_PAD);
		if (pn_likely(out->kind < PN_SOFT_PAD))
			return true;
		if (out->kind == PN_SOFT_SWITCH)
			rx->ring = rx->ring == rx->rings ? &rx->rings[1]
							 : &rx->rings[0];
	}
	return false;
}

bool pn_soft_rx_release(struct pn_soft_rx *rx, void *lease)
{
	struct pn_soft_cells *ring =
		&rx->rings[(char *)lease >= rx->rings[PN_SOFT_LONG].cells];

	*record_at(rx, lease) |= RELEASED;
	rx->nreleased++;
	return pn_unlikely(ring->at - ring->head >= ring->ncells / 4) &&
	       pn_soft_rx_give_back(rx);
}
