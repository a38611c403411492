/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/sim/interval.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

static uintptr_t end_of(struct pn_range range)
{
	return range.addr + range.len;
}

/* splitmix64's finaliser. */
static uint64_t hash(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static bool before(const struct pn_interval *a, const struct pn_interval *b)
{
	return a->range.addr != b->range.addr ? a->range.addr < b->range.addr
					      : a->id < b->id;
}

static void update(struct pn_interval *t)
{
	t->max_end = end_of(t->range);
	if (t->left && t->left->max_end > t->max_end)
		t->max_end = t->left->max_end;
	if (t->right && t->right->max_end > t->max_end)
		t->max_end = t->right->max_end;
}

/* Intervals before `at` go to *low, the others to *high. */
static void split(struct pn_interval *t, const struct pn_interval *at,
		  struct pn_interval **low, struct pn_interval **high)
{
	if (!t) {
		*low = *high = NULL;
	} else if (before(t, at)) {
		split(t->right, at, &t->right, high);
		update(*low = t);
	} else {
		split(t->left, at, low, &t->left);
		update(*high = t);
	}
}

static struct pn_interval *merge(struct pn_interval *low,
				 struct pn_interval *high)
{
	struct pn_interval *top;

	if (!low || !high)
		return low ? low : high;
	if (low->priority > high->priority) {
		top = low;
		top->right = merge(low->right, high);
	} else {
		top = high;
		top->left = merge(low, high->left);
	}
	update(top);
	return top;
}

void pn_interval_add(struct pn_interval **root, struct pn_interval *interval)
{
	struct pn_interval *low, *high;

	interval->priority = hash(interval->id);
	interval->left = interval->right = NULL;
	update(interval);
	split(*root, interval, &low, &high);
	*root = merge(merge(low, interval), high);
}

/* The depth is O(log n), so recursion is fine. */
static struct pn_interval *removed(struct pn_interval *t,
				   struct pn_interval *interval)
{
	pn_assert(t);
	if (t == interval)
		return merge(t->left, t->right);
	if (before(interval, t))
		t->left = removed(t->left, interval);
	else
		t->right = removed(t->right, interval);
	update(t);
	return t;
}

void pn_interval_remove(struct pn_interval **root, struct pn_interval *interval)
{
	*root = removed(*root, interval);
}

void pn_interval_visit(struct pn_interval *root, struct pn_range range,
		       void (*visit)(struct pn_interval *interval, void *arg),
		       void *arg)
{
	if (!root || root->max_end <= range.addr)
		return;
	pn_interval_visit(root->left, range, visit, arg);
	if (root->range.addr >= end_of(range))
		return;
	if (pn_range_overlaps(root->range, range))
		visit(root, arg);
	pn_interval_visit(root->right, range, visit, arg);
}
