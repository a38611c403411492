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

static char *cell_at(struct pn_soft_channel *channel, uint32_t ncells,
		     uint64_t index)
{
	return channel->cells + (index & (ncells - 1)) * PN_SOFT_CELL;
}

static _Atomic uint32_t *ready_of(char *cell)
{
	return (_Atomic uint32_t *)(void *)cell;
}

void pn_soft_tx_init(struct pn_soft_tx *tx, void *memory, size_t ring_bytes)
{
	*tx = (struct pn_soft_tx){
		.channel = memory,
		.ncells = (uint32_t)(ring_bytes / PN_SOFT_CELL),
	};
}

int pn_soft_rx_init(struct pn_soft_rx *rx, void *memory, size_t ring_bytes)
{
	uint32_t ncells = (uint32_t)(ring_bytes / PN_SOFT_CELL);
	uint16_t *records = calloc(ncells, sizeof(*records));

	if (!records)
		return -ENOMEM;
	*rx = (struct pn_soft_rx){ .channel = memory,
				   .ncells = ncells,
				   .records = records };
	return 0;
}

void pn_soft_rx_fini(struct pn_soft_rx *rx)
{
	free(rx->records);
	*rx = (struct pn_soft_rx){ .channel = NULL };
}

/* --- producer ------------------------------------------------------------ */

/* Cells to skip so that n cells lie in a row. */
static uint32_t pad_before(const struct pn_soft_tx *tx, uint32_t n)
{
	uint32_t left = tx->ncells - (uint32_t)(tx->tail & (tx->ncells - 1));

	return left < n ? left : 0;
}

static bool fits(struct pn_soft_tx *tx, uint32_t n)
{
	uint64_t want = tx->tail + n + pad_before(tx, n);

	if (want - tx->head <= tx->ncells)
		return true;
	/* Pairs with give_back(): the cells are zeroed before head moves. */
	tx->head = atomic_load(&tx->channel->head);
	return want - tx->head <= tx->ncells;
}

bool pn_soft_tx_room(struct pn_soft_tx *tx, size_t len)
{
	uint32_t n = cells_for(len);

	if (pn_likely(fits(tx, n)))
		return true;
	/* Sequentially consistent, as is the consumer's store of head before
	 * it looks here: one of us sees the other. */
	atomic_store(&tx->channel->stalled, 1);
	tx->stalled = !fits(tx, n);
	return !tx->stalled;
}

static void put_pad(struct pn_soft_tx *tx, uint32_t n)
{
	char *cell = cell_at(tx->channel, tx->ncells, tx->tail);

	atomic_store_explicit(ready_of(cell),
			      ready_word(PN_SOFT_PAD,
					 n * PN_SOFT_CELL - HEAD_BYTES),
			      memory_order_release);
	tx->tail += n;
}

void pn_soft_tx_put(struct pn_soft_tx *tx, enum pn_soft_record kind,
		    uint32_t imm, const struct pn_sge *sge, unsigned nsge)
{
	size_t len = 0;
	uint32_t n, pad;
	char *cell, *to;

	for (unsigned i = 0; i < nsge; i++)
		len += sge[i].len;
	n = cells_for(len);
	pad = pad_before(tx, n);
	if (pn_unlikely(pad))
		put_pad(tx, pad);
	cell = cell_at(tx->channel, tx->ncells, tx->tail);
	memcpy(cell + 4, &imm, sizeof(imm));
	to = cell + HEAD_BYTES;
	for (unsigned i = 0; i < nsge; to += sge[i].len, i++)
		if (sge[i].len)
			memcpy(to, sge[i].addr, sge[i].len);
	ordered_before_all();
	atomic_store_explicit(ready_of(cell), ready_word(kind, len),
			      memory_order_release);
	tx->tail += n;
}

/* --- consumer ------------------------------------------------------------ */

/* Gives the released records at the head back to the producer. */
static bool give_back(struct pn_soft_rx *rx)
{
	uint64_t head = rx->head;
	uint16_t *record = &rx->records[head & (rx->ncells - 1)];

	while (*record & RELEASED) {
		unsigned n = *record & COUNT_MASK;

		for (unsigned i = 0; i < n; i++)
			atomic_store_explicit(ready_of(cell_at(rx->channel,
							       rx->ncells,
							       head + i)),
					      0, memory_order_relaxed);
		*record = 0;
		head += n;
		record = &rx->records[head & (rx->ncells - 1)];
	}
	if (head == rx->head)
		return false;
	rx->head = head;
	atomic_store(&rx->channel->head, head);
	return atomic_load_explicit(&rx->channel->stalled,
				    memory_order_seq_cst) &&
	       atomic_exchange(&rx->channel->stalled, 0);
}

/* Padding goes with the record behind it, which was written at once. */
static void open_record(struct pn_soft_rx *rx, const char *cell, size_t len,
			bool released)
{
	uint32_t n = cells_for(len);
	size_t index = (size_t)(cell - rx->channel->cells) / PN_SOFT_CELL;

	rx->records[index] = (uint16_t)(n | (released ? RELEASED : 0));
	rx->next += n;
}

bool pn_soft_rx_take(struct pn_soft_rx *rx, struct pn_soft_message *out)
{
	while (pn_soft_rx_ready(rx)) {
		char *cell = cell_at(rx->channel, rx->ncells, rx->next);
		uint32_t ready = atomic_load_explicit(ready_of(cell),
						      memory_order_relaxed);

		ordered_after_all();
		out->kind = KIND(ready);
		out->len = (ready & LEN_MASK) - 1;
		out->data = cell + HEAD_BYTES;
		out->lease = cell;
		memcpy(&out->imm, cell + 4, sizeof(out->imm));
		open_record(rx, cell, out->len, out->kind == PN_SOFT_PAD);
		if (out->kind != PN_SOFT_PAD)
			return true;
	}
	return false;
}

bool pn_soft_rx_release(struct pn_soft_rx *rx, void *lease)
{
	size_t index =
		(size_t)((char *)lease - rx->channel->cells) / PN_SOFT_CELL;

	rx->records[index] |= RELEASED;
	return give_back(rx);
}
