/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages from and into heap memory: whatever the protocol, they register
 * nothing, neither the first message nor where the protocol would register for
 * each. On `sim`, which counts registrations, and between processes on `soft`.
 */
#include "test.h"

#include "heap/heap.h"
#include "message/party.h"

#define LEN ((size_t)300000)

static size_t registered(struct rank *rank)
{
	struct pn_pinned pinned;

	pn_device_pinned(rank->device, &pinned);
	return pinned.mrs;
}

/* One message there and one back. */
static bool exchange(struct party *party, uint8_t *buf, size_t len,
		     uint64_t tag)
{
	unsigned me = party->rank->rank;
	int ret;

	if (!me)
		pattern_fill(buf, len, tag);
	ret = me ? party_recv(party, 0, buf, len, tag)
		 : party_send(party, 1, buf, len, tag);
	if (!ret && me && !pattern_holds(buf, len, tag))
		return false;
	if (!ret)
		ret = me ? party_send(party, 0, buf, len, tag)
			 : party_recv(party, 1, buf, len, tag);
	return !ret && pattern_holds(buf, len, tag);
}

static void talk(struct party *party, struct pinion_heap *heap)
{
	struct rank *rank = party->rank;
	struct pinion_cache_stats stats;
	uint8_t *buf = pn_heap_alloc(heap, LEN);
	size_t before = registered(rank);

	RANK_CHECK(rank, buf);
	party_barrier(party);
	for (unsigned i = 0; i < 5; i++)
		RANK_CHECK(rank, exchange(party, buf + i, LEN - 10 * i, i));
	pn_cache_query(party->cache, &stats);
	RANK_CHECK(rank, !stats.registrations && !stats.misses);
	RANK_CHECK(rank, registered(rank) == before);
	pn_heap_free(heap, buf);
	party_barrier(party);
}

static void play(struct rank *rank)
{
	struct party_attr attr = { .protocol = *(int *)rank->arg };
	struct pn_heap_attr heap_attr = { .device = rank->device,
					  .pages = { .numa_node = -1 } };
	struct pinion_heap *heap;
	struct party party;

	if (!party_open(&party, rank, &attr))
		return;
	heap_attr.cache = party.cache;
	RANK_CHECK(rank, !pn_heap_open(&heap_attr, &heap));
	talk(&party, heap);
	pn_heap_close(heap);
	party_close(&party);
}

static void play_on(const char *how, const char *spec, int protocol)
{
	struct ranks run = {
		.how = how, .spec = spec, .nranks = 2, .fn = play, &protocol
	};

	print_message("%s, %s\n", spec,
		      pn_protocol_at((unsigned)protocol)->name);
	assert_true(ranks_run(&run));
}

static void nothing_is_registered_for_messages_on_sim(void **state)
{
	(void)state;
	for (int p = 0; p < PN_PROTOCOL_COUNT; p++)
		if (p != PN_PROTOCOL_EAGER)
			play_on("sim", "sim:cost=cx5", p);
}

static void nothing_is_registered_for_messages_on_soft(void **state)
{
	(void)state;
	for (int p = 0; p < PN_PROTOCOL_COUNT; p++)
		if (p != PN_PROTOCOL_EAGER)
			play_on("processes", "soft", p);
}

/* --- virtual time --------------------------------------------------------- */

/* Only registering costs anything. */
static void allocate_in_virtual_time(struct rank *rank)
{
	struct party_attr attr = { .protocol = PN_PROTOCOL_CACHED };
	struct pn_heap_attr heap_attr = { .device = rank->device,
					  .return_ns = 1000000,
					  .pages = { .numa_node = -1 } };
	struct pinion_heap *heap;
	struct party party;
	uint64_t start;
	void *first;

	if (!party_open(&party, rank, &attr))
		return;
	heap_attr.cache = party.cache;
	RANK_CHECK(rank, !pn_heap_open(&heap_attr, &heap));
	start = pn_device_now(rank->device);
	first = pn_heap_alloc(heap, 128);
	/* cx5: 16 us and 256 pages at 0.25 us. */
	RANK_CHECK(rank, first);
	RANK_CHECK(rank, pn_device_now(rank->device) - start == 80000);
	for (unsigned i = 0; i < 1000; i++)
		pn_heap_free(heap, pn_heap_alloc(heap, 128));
	RANK_CHECK(rank, pn_device_now(rank->device) - start == 80000);
	pn_heap_free(heap, first);
	pn_heap_trim(heap);
	RANK_CHECK(rank, pn_heap_step(heap) == PN_FOREVER);
	RANK_CHECK(rank, !pn_heap_mr(heap, first));
	pn_heap_close(heap);
	party_close(&party);
}

static void only_registering_takes_virtual_time(void **state)
{
	struct ranks run = { .how = "sim",
			     .spec = "sim:cost=cx5",
			     .nranks = 2,
			     .fn = allocate_in_virtual_time };

	(void)state;
	assert_true(ranks_run(&run));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_is_registered_for_messages_on_sim),
		TEST(nothing_is_registered_for_messages_on_soft),
		TEST(only_registering_takes_virtual_time),
	};

	return RUN_TESTS(tests);
}
