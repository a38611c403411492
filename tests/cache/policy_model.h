/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * policy_model -- the eviction policies once more, written from their
 * definitions with plain arrays and no thought of speed.
 *
 * A model knows items by number. An item between insert and its end stands in
 * `items`; everything else is looked up by walking them. Tests hold the real
 * policies against it.
 */
#ifndef PN_TESTS_CACHE_POLICY_MODEL_H
#define PN_TESTS_CACHE_POLICY_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cache/policy/policy.h"

#define MODEL_ITEMS 256

struct model_item {
	unsigned id;
	uint32_t npages;
	double factor; /* mre: 0 in the frequent-reference section */
	uint64_t when; /* last insert or use; mre: or when it sank */
};

struct model;

struct model_kind {
	const char *name;
	void (*use)(struct model *model, struct model_item *item, bool fresh);
	/* Appends victims to model->victims. */
	void (*evict)(struct model *model);
};

struct model {
	const struct model_kind *kind;
	struct pn_policy_attr attr;
	struct model_item items[MODEL_ITEMS];
	size_t n;
	uint64_t time;
	double level; /* mre: r; greedy: the level */
	uint64_t nhits, nmisses;
	/* One evict(). */
	size_t want_pages;
	unsigned want_regions;
	const bool *busy; /* by id */
	unsigned victims[MODEL_ITEMS];
	uint32_t victim_pages;
	unsigned nvictims;
};

void model_init(struct model *model, const char *name,
		const struct pn_policy_attr *attr);
void model_insert(struct model *model, unsigned id, uint32_t npages);
void model_access(struct model *model, unsigned id);
void model_remove(struct model *model, unsigned id);
/* Returns how many; model->victims says which, first to go first. */
unsigned model_evict(struct model *model, size_t npages, unsigned nregions,
		     const bool *busy);

#endif
