/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/soft/channel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#ifdef PN_SOFT_TSAN
char pn_soft_tsan_order;
#endif

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
	*rx = (struct pn_soft_rx){ .channel = memory, .records = records };
	init_rings(rx->rings, memory, ring_bytes);
	pn_soft_rx_set_next(rx, &rx->rings[PN_SOFT_SHORT]);
	return 0;
}

void pn_soft_rx_fini(struct pn_soft_rx *rx)
{
	free(rx->records);
	*rx = (struct pn_soft_rx){ .channel = NULL };
}

/* --- producer ------------------------------------------------------------ */

/* Consecutive small records before the producer goes back to the short ring. */
#define SMALL_BEFORE_SHORT 16

/* The cells to skip so that n cells are contiguous. */
static uint32_t pad_before(const struct pn_soft_cells *ring, uint32_t n)
{
	uint32_t left =
		ring->ncells - (uint32_t)(ring->at & (ring->ncells - 1));

	return left < n ? left : 0;
}

/* Pairs with pn_soft_rx_return_cells(): the cells are zeroed before head is
 * advanced. */
static void reload_head(struct pn_soft_tx *tx, struct pn_soft_cells *ring)
{
	ring->head = atomic_load(&tx->channel->heads[ring - tx->rings]);
}

static bool has_room(struct pn_soft_tx *tx, struct pn_soft_cells *ring,
		     uint32_t n)
{
	/* One cell of the short ring is reserved for a SWITCH. */
	uint64_t usable = ring->ncells - (ring == &tx->rings[PN_SOFT_SHORT]);
	uint64_t want = ring->at + n + pad_before(ring, n);

	if (pn_likely(want - ring->head <= usable))
		return true;
	reload_head(tx, ring);
	return want - ring->head <= usable;
}

/* Appends a record without payload, of n cells of which it writes one. */
static void put_mark(struct pn_soft_cells *ring, enum pn_soft_record kind,
		     uint32_t n)
{
	pn_soft_tx_publish(pn_soft_cell_at(ring, ring->at), kind, 0,
			   n * PN_SOFT_CELL - PN_SOFT_HEAD_BYTES);
	ring->at += n;
}

static void switch_ring(struct pn_soft_tx *tx, enum pn_soft_ring_kind kind)
{
	put_mark(tx->ring, PN_SOFT_SWITCH, 1);
	tx->ring = &tx->rings[kind];
	tx->nsmall = 0;
}

static bool is_all_back(struct pn_soft_tx *tx, struct pn_soft_cells *ring)
{
	if (ring->head != ring->at)
		reload_head(tx, ring);
	return ring->head == ring->at;
}

/* Whether there is room for n cells; tx->ring is then the ring to write to. */
static bool find_room(struct pn_soft_tx *tx, uint32_t n)
{
	struct pn_soft_cells *short_ring = &tx->rings[PN_SOFT_SHORT];
	struct pn_soft_cells *long_ring = &tx->rings[PN_SOFT_LONG];

	if (pn_likely(tx->ring == short_ring)) {
		if (pn_likely(has_room(tx, short_ring, n)))
			return true;
		if (!has_room(tx, long_ring, n))
			return false;
		switch_ring(tx, PN_SOFT_LONG);
		return true;
	}
	if (tx->nsmall >= SMALL_BEFORE_SHORT && n < short_ring->ncells / 4 &&
	    is_all_back(tx, long_ring) && is_all_back(tx, short_ring)) {
		switch_ring(tx, PN_SOFT_SHORT);
		return true;
	}
	return has_room(tx, long_ring, n);
}

bool pn_soft_tx_room(struct pn_soft_tx *tx, size_t len)
{
	uint32_t n = pn_soft_cells_for(len);

	if (pn_likely(find_room(tx, n)))
		return true;
	/* Sequentially consistent, as the consumer's store of head before it
	 * reads `stalled`: one of the two sees the other's store. */
	atomic_store(&tx->channel->stalled, 1);
	tx->stalled = !find_room(tx, n);
	return !tx->stalled;
}

void pn_soft_tx_put(struct pn_soft_tx *tx,
		    const struct pn_soft_record_attr *attr)
{
	struct pn_soft_cells *ring = tx->ring;
	const struct pn_sge *sge = attr->sge;
	uint32_t n = pn_soft_cells_for(attr->len), pad = pad_before(ring, n);
	char *cell, *to;

	if (pn_unlikely(pad))
		put_mark(ring, PN_SOFT_PAD, pad);
	tx->nsmall = n < PN_SOFT_SHORT_CELLS / 4 ? tx->nsmall + 1 : 0;
	cell = pn_soft_cell_at(ring, ring->at);
	to = cell + PN_SOFT_HEAD_BYTES;
	for (unsigned i = 0; i < attr->nsge; to += sge[i].len, i++)
		if (sge[i].len)
			memcpy(to, sge[i].addr, sge[i].len);
	pn_soft_tx_publish(cell, attr->kind, attr->imm, attr->len);
	ring->at += n;
}

bool pn_soft_tx_send_slow(struct pn_soft_tx *tx,
			  const struct pn_inline_header *head, const void *body,
			  size_t len)
{
	struct pn_sge sge[] = { { (void *)(uintptr_t)head, sizeof(*head), 0 },
				{ (void *)(uintptr_t)body, len, 0 } };
	size_t all = sizeof(*head) + len;
	struct pn_soft_record_attr attr = {
		.kind = PN_SOFT_SEND, .sge = sge, .nsge = 2, .len = all
	};

	if (!pn_soft_tx_room(tx, all))
		return false;
	pn_soft_tx_put(tx, &attr);
	return true;
}

/* --- consumer ------------------------------------------------------------ */

/* Zeroes the ready words of a record's cells. */
static void clear_cells(const struct pn_soft_cells *ring, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		atomic_store_explicit(ready_of(pn_soft_cell_at(ring,
							       ring->head + i)),
				      0, memory_order_relaxed);
}

/* Clears the consumed records at a ring's head. True: there were any. */
static bool clear_head(struct pn_soft_rx *rx, struct pn_soft_cells *ring)
{
	uint64_t before = ring->head;
	uint16_t *records = pn_soft_record_at(rx, ring->cells);
	uint32_t mask = ring->ncells - 1, record;

	while ((record = records[ring->head & mask]) & PN_SOFT_CONSUMED) {
		records[ring->head & mask] = 0;
		/* A mark has written one cell only. */
		clear_cells(ring, pn_unlikely(record & PN_SOFT_MARK)
					  ? 1
					  : record & PN_SOFT_COUNT);
		ring->head += record & PN_SOFT_COUNT;
		rx->nconsumed--;
	}
	return ring->head != before;
}

bool pn_soft_rx_return_cells(struct pn_soft_rx *rx)
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

bool pn_soft_rx_follow_mark(struct pn_soft_rx *rx, enum pn_soft_record mark)
{
	if (mark == PN_SOFT_SWITCH)
		pn_soft_rx_set_next(rx, rx->ring == rx->rings ? &rx->rings[1]
							      : &rx->rings[0]);
	return pn_soft_rx_ready(rx);
}

void pn_soft_rx_disable(struct pn_soft_rx *rx)
{
	static char never_ready[PN_SOFT_CELL] PN_ALIGNED(8);

	rx->nothing =
		(struct pn_soft_cells){ .cells = never_ready, .ncells = 1 };
	pn_soft_rx_set_next(rx, &rx->nothing);
	rx->broken = true;
}
