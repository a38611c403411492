/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_channel -- the ring of a soft device's messages (device/soft/channel.h)
 * with an arbitrary producer.
 *
 * The input is a list of steps of four bytes: an action, an offset and a
 * number. Words are written anywhere in the shared memory, shaped like records
 * or not; between them the consumer takes messages, on loan or in place, and
 * returns them. The consumer never accesses memory outside the ring, which has
 * exactly its size; a message that it takes is inside one ring; and it
 * terminates.
 */
#include "fuzz.h"

#include "device/soft/channel.h"

#define RING_BYTES ((size_t)32 << 10)
#define NCELLS	   (PN_SOFT_SHORT_CELLS + RING_BYTES / PN_SOFT_CELL)
#define MOST_LENT  64

struct play {
	struct pn_soft_channel *channel;
	struct pn_soft_rx rx;
	void *leases[MOST_LENT];
	unsigned nlent;
	uint64_t sum; /* checksum of all taken bytes, so that they are read */
};

static void check_taken(struct play *p, const struct pn_soft_message *m)
{
	const char *from = m->data, *cells = p->channel->cells;
	size_t at = (size_t)(from - cells);
	size_t end = at < PN_SOFT_SHORT_CELLS * PN_SOFT_CELL
			     ? PN_SOFT_SHORT_CELLS * PN_SOFT_CELL
			     : NCELLS * PN_SOFT_CELL;

	FUZZ_ASSERT(from > cells && m->kind < PN_SOFT_PAD);
	FUZZ_ASSERT(m->len <= PN_SOFT_MAX_SEND && at + m->len <= end);
	for (size_t i = 0; i < m->len; i++)
		p->sum += (uint8_t)from[i];
}

static void take(struct play *p)
{
	struct pn_soft_message m;

	if (p->nlent == MOST_LENT || !pn_soft_rx_ready(&p->rx) ||
	    !pn_soft_rx_take(&p->rx, &m))
		return;
	check_taken(p, &m);
	p->leases[p->nlent++] = m.lease;
}

/* Reads the message in place, without a loan. */
static void take_there(struct play *p)
{
	struct pn_soft_message m = { .kind = PN_SOFT_SEND };

	if (!pn_soft_rx_ready(&p->rx))
		return;
	m.data = pn_soft_rx_peek(&p->rx, &m.len);
	if (!m.data)
		return;
	check_taken(p, &m);
	pn_soft_rx_consume_next(&p->rx, m.len);
}

static void release(struct play *p, unsigned which)
{
	if (!p->nlent)
		return;
	which %= p->nlent;
	pn_soft_rx_consumed(&p->rx, p->leases[which]);
	p->leases[which] = p->leases[--p->nlent];
}

/* Writes where the consumer reads next, or anywhere. */
static void write_word(struct play *p, unsigned place, uint32_t word)
{
	size_t cell =
		place ? place % NCELLS
		      : (size_t)(p->rx.ring->cells - p->channel->cells) /
					PN_SOFT_CELL +
				(p->rx.ring->at & (p->rx.ring->ncells - 1));

	if (cell < NCELLS)
		memcpy(p->channel->cells + cell * PN_SOFT_CELL, &word,
		       sizeof(word));
}

static void step(struct play *p, const uint8_t *s)
{
	unsigned n = (unsigned)s[2] << 8 | s[3];

	switch (s[0] % 8) {
	case 0:
		if (s[1] & 1)
			take_there(p);
		else
			take(p);
		break;
	case 1:
		release(p, n);
		break;
	case 2:
		pn_soft_rx_return_pending(&p->rx);
		break;
	case 3: /* any kind and length */
		write_word(p, s[1], (uint32_t)s[2] << 28 | s[3] * 33u);
		break;
	default: /* a valid record */
		write_word(p, s[1] / 16 * n,
			   (uint32_t)(s[1] & 3) << 28 | (1 + n % 9000));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct play play = { .nlent = 0 };
	size_t bytes = pn_soft_channel_bytes(RING_BYTES);
	void *memory = aligned_alloc(PN_SOFT_CELL, bytes);

	FUZZ_ASSERT(memory);
	memset(memory, 0, bytes);
	play.channel = memory;
	FUZZ_ASSERT(!pn_soft_rx_init(&play.rx, memory, RING_BYTES));
	for (size_t i = 0; i + 4 <= size; i += 4)
		step(&play, data + i);
	while (play.nlent)
		release(&play, 0);
	pn_soft_rx_return_pending(&play.rx);
	pn_soft_rx_fini(&play.rx);
	free(memory);
	return 0;
}
