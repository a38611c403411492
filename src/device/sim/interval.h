/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * interval -- address ranges, which may overlap, found by address.
 *
 * An interval is embedded in the object that it belongs to. The tree is a treap
 * (Seidel and Aragon 1996): a search tree by address and a heap by a
 * pseudo-random priority, so that it is balanced with high probability. Each
 * node stores the largest end below it, so that a search skips subtrees that
 * cannot overlap. Adding and removing cost O(log n), visiting k overlapping
 * ones O(k log n).
 * Priorities come from a hash of a number that the caller counts up, never from
 * an address: the shape of the tree is the same in every run.
 * Threads: the owner's lock.
 */
#ifndef PN_DEVICE_SIM_INTERVAL_H
#define PN_DEVICE_SIM_INTERVAL_H

#include <stdint.h>

#include "base/range.h"

struct pn_interval {
	struct pn_range range;
	uint64_t id; /* unique; distinguishes intervals of one address */
	uintptr_t max_end;
	uint64_t priority;
	struct pn_interval *left, *right;
};

/* The caller sets range and id; they do not change until removed. */
void pn_interval_add(struct pn_interval **root, struct pn_interval *interval);

void pn_interval_remove(struct pn_interval **root,
			struct pn_interval *interval);

/* Calls visit for each interval that overlaps range, lowest address first.
 * visit must not change the tree. */
void pn_interval_visit(struct pn_interval *root, struct pn_range range,
		       void (*visit)(struct pn_interval *interval, void *arg),
		       void *arg);

#endif
