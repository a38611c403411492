/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * interval -- address ranges, which may overlap, found by address.
 *
 * An interval is embedded in what it belongs to. The tree is a treap (Seidel
 * and Aragon 1996): a search tree by address and a heap by a random-looking
 * priority, so that it is balanced with high probability; each node knows the
 * largest end below it, which lets a search skip what cannot overlap. Adding
 * and removing cost O(log n), visiting k overlapping ones O(k log n).
 * Priorities come from a hash of a number that the caller counts up, never
 * from an address: the shape of the tree is the same in every run.
 * Threads: the owner's lock.
 */
#ifndef PN_DEVICE_SIM_INTERVAL_H
#define PN_DEVICE_SIM_INTERVAL_H

#include <stdint.h>

#include "base/range.h"

struct pn_interval {
	struct pn_range range;
	uint64_t id; /* tells intervals of one address apart; unique */
	uintptr_t max_end;
	uint64_t priority;
	struct pn_interval *left, *right;
};

/* range and id are set by the caller and stay until removed. */
void pn_interval_add(struct pn_interval **root, struct pn_interval *interval);

void pn_interval_remove(struct pn_interval **root,
			struct pn_interval *interval);

/* Calls visit for each that overlaps range, lowest address first. visit must
 * not change the tree. */
void pn_interval_visit(struct pn_interval *root, struct pn_range range,
		       void (*visit)(struct pn_interval *interval, void *arg),
		       void *arg);

#endif
