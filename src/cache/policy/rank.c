/* SPDX-License-Identifier: BSD-2-Clause */
#include "cache/policy/rank.h"

#include <errno.h>
#include <stdlib.h>

/* Four children share two cache lines, and the tree is half as deep as with
 * two. */
#define CHILDREN  4
#define ROOM_MIN  64
#define ENTRY_MAX (PN_RANK_NONE - 1)

static bool before(const struct pn_rank_entry *a, const struct pn_rank_entry *b)
{
	return a->factor < b->factor ||
	       (a->factor == b->factor && a->used < b->used);
}

static struct pn_rank_entry entry_of(struct pn_policy_node *node)
{
	return (struct pn_rank_entry){ node->factor, node->used, node };
}

static void put(struct pn_rank *rank, uint32_t i, struct pn_rank_entry entry)
{
	rank->at[i] = entry;
	entry.node->heap_at = i;
}

/* Finds the place of `entry` from the hole at i towards the root. */
static void sift_up(struct pn_rank *rank, uint32_t i,
		    struct pn_rank_entry entry)
{
	while (i) {
		uint32_t parent = (i - 1) / CHILDREN;

		if (!before(&entry, &rank->at[parent]))
			break;
		put(rank, i, rank->at[parent]);
		i = parent;
	}
	put(rank, i, entry);
}

/* The smallest child of i; i itself if it has none. */
static uint32_t least_child(const struct pn_rank *rank, uint32_t i)
{
	uint64_t first = (uint64_t)i * CHILDREN + 1;
	uint64_t end = first + CHILDREN;
	uint64_t least = first;

	if (first >= rank->n)
		return i;
	if (end > rank->n)
		end = rank->n;
	for (uint64_t child = first + 1; child < end; child++) {
		if (before(&rank->at[child], &rank->at[least]))
			least = child;
	}
	return (uint32_t)least;
}

/* Finds the place of `entry` from the hole at i towards the leaves. */
static void sift_down(struct pn_rank *rank, uint32_t i,
		      struct pn_rank_entry entry)
{
	for (;;) {
		uint32_t child = least_child(rank, i);

		if (child == i || !before(&rank->at[child], &entry))
			break;
		put(rank, i, rank->at[child]);
		i = child;
	}
	put(rank, i, entry);
}

void pn_rank_init(struct pn_rank *rank)
{
	*rank = (struct pn_rank){ .at = NULL };
}

void pn_rank_fini(struct pn_rank *rank)
{
	free(rank->at);
}

static int grow(struct pn_rank *rank)
{
	uint64_t room = (uint64_t)rank->room + rank->room / 2;
	struct pn_rank_entry *at;

	if (room < ROOM_MIN)
		room = ROOM_MIN;
	if (room > ENTRY_MAX)
		room = ENTRY_MAX;
	if (room == rank->room)
		return -ENOMEM;
	at = reallocarray(rank->at, room, sizeof(*at));
	if (!at)
		return -ENOMEM;
	rank->at = at;
	rank->room = (uint32_t)room;
	return 0;
}

int pn_rank_place(struct pn_rank *rank, struct pn_policy_node *node)
{
	pn_assert(!rank->nheld);
	if (pn_rank_has(node)) {
		sift_down(rank, node->heap_at, entry_of(node));
		return 0;
	}
	if (rank->n == rank->room) {
		int ret = grow(rank);

		if (ret)
			return ret;
	}
	sift_up(rank, rank->n++, entry_of(node));
	return 0;
}

void pn_rank_remove(struct pn_rank *rank, struct pn_policy_node *node)
{
	uint32_t i = node->heap_at;
	struct pn_rank_entry last;

	pn_assert(!rank->nheld && i < rank->n);
	node->heap_at = PN_RANK_NONE;
	last = rank->at[--rank->n];
	if (i == rank->n)
		return;
	/* The last entry may come from another branch, so it may have to go
	 * either way. */
	if (i && before(&last, &rank->at[(i - 1) / CHILDREN]))
		sift_up(rank, i, last);
	else
		sift_down(rank, i, last);
}

struct pn_policy_node *pn_rank_min(struct pn_rank *rank)
{
	while (rank->n) {
		struct pn_policy_node *node = rank->at[0].node;
		struct pn_rank_entry now = entry_of(node);

		if (!before(&rank->at[0], &now))
			return node;
		sift_down(rank, 0, now);
	}
	return NULL;
}

/* Shortens the heap by the entry in front, whose place its last one takes.
 * Leaves a hole behind the heap. */
static void drop_front(struct pn_rank *rank)
{
	struct pn_rank_entry last = rank->at[--rank->n];

	if (rank->n)
		sift_down(rank, 0, last);
}

void pn_rank_pop(struct pn_rank *rank)
{
	rank->at[0].node->heap_at = PN_RANK_NONE;
	drop_front(rank);
	if (rank->nheld)
		put(rank, rank->n, rank->at[rank->n + rank->nheld]);
}

void pn_rank_hold(struct pn_rank *rank)
{
	struct pn_rank_entry front = rank->at[0];

	drop_front(rank);
	put(rank, rank->n, front);
	rank->nheld++;
}

void pn_rank_unhold(struct pn_rank *rank)
{
	for (; rank->nheld; rank->nheld--, rank->n++)
		sift_up(rank, rank->n, rank->at[rank->n]);
}

void pn_rank_check(const struct pn_rank *rank)
{
	pn_assert(!rank->nheld);
	pn_assert(rank->n <= rank->room);
	for (uint32_t i = 0; i < rank->n; i++) {
		pn_assert(rank->at[i].node->heap_at == i);
		pn_assert(!i ||
			  !before(&rank->at[i], &rank->at[(i - 1) / CHILDREN]));
	}
}
