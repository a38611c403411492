/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sites, names of operations, caches: small tables with limits.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/trace/trace_impl.h"

/* Ids of other recorders may be no good hashes: mix them. */
static uint32_t hash_slot(const struct pn_sites *sites, uint64_t id)
{
	return (uint32_t)((id * UINT64_C(0x9e3779b97f4a7c15)) >> 32) &
	       sites->mask;
}

/* Returns the entry of id, or the free entry where it belongs. */
static struct pn_site *find_entry(const struct pn_sites *sites, uint64_t id)
{
	uint32_t at = hash_slot(sites, id);

	while (sites->table[at].id && sites->table[at].id != id)
		at = (at + 1) & sites->mask;
	return &sites->table[at];
}

const struct pn_site *pn_sites_find(const struct pn_sites *sites, uint64_t id)
{
	struct pn_site *site;

	if (!sites->table || !id)
		return NULL;
	site = find_entry(sites, id);
	return site->id ? site : NULL;
}

#define FIRST_SITES 64

static int grow_table(struct pn_sites *sites)
{
	uint32_t size = sites->table ? 2 * (sites->mask + 1) : FIRST_SITES;
	struct pn_sites larger = *sites;

	larger.mask = size - 1;
	larger.table = calloc(size, sizeof(*larger.table));
	if (!larger.table)
		return -ENOMEM;
	for (uint32_t i = 0; sites->table && i <= sites->mask; i++)
		if (sites->table[i].id)
			*find_entry(&larger, sites->table[i].id) =
				sites->table[i];
	free(sites->table);
	*sites = larger;
	return 0;
}

static int grow_frames(struct pn_sites *sites)
{
	uint32_t max = sites->max_frames ? 2 * sites->max_frames : 512;
	uint64_t *frames =
		reallocarray(sites->frames, max, sizeof(*sites->frames));

	if (!frames)
		return -ENOMEM;
	sites->frames = frames;
	sites->max_frames = max;
	return 0;
}

int pn_sites_add(struct pn_sites *sites, uint64_t id, const uint64_t *frames,
		 unsigned n)
{
	int ret = 0;

	if (sites->n >= PN_SITES_MAX || n > PN_SITE_FRAMES_MAX - sites->nframes)
		return 0;
	if (!sites->table || 2 * sites->n > sites->mask)
		ret = grow_table(sites);
	while (!ret && n > sites->max_frames - sites->nframes)
		ret = grow_frames(sites);
	if (ret)
		return ret;
	*find_entry(sites, id) = (struct pn_site){ id, sites->nframes, n };
	sites->n++;
	if (n)
		memcpy(sites->frames + sites->nframes, frames,
		       n * sizeof(*frames));
	sites->nframes += n;
	return 0;
}

void pn_sites_fini(struct pn_sites *sites)
{
	free(sites->table);
	free(sites->frames);
}

static bool fits_column(char c)
{
	return c > ' ' && c < 127 && c != ',';
}

void pn_text_sanitize(char *text, size_t bytes)
{
	text[bytes - 1] = 0;
	for (; *text; text++)
		if (!fits_column(*text))
			*text = '?';
}

static bool same_name(const char *name, const char *text, size_t len)
{
	return !strncmp(name, text, len) && !name[len];
}

int pn_ops_number(struct pn_ops *ops, const char *name, size_t len)
{
	if (!len)
		return 0;
	if (len >= PN_OP_BYTES)
		return -EBADMSG;
	if (!ops->names) {
		ops->names = calloc(PN_OPS_MAX, PN_OP_BYTES);
		if (!ops->names)
			return -ENOMEM;
	}
	if (ops->last && same_name(ops->names[ops->last - 1], name, len))
		return (int)ops->last;
	for (unsigned i = 0; i < ops->n; i++)
		if (same_name(ops->names[i], name, len))
			return (int)(ops->last = i + 1);
	for (size_t i = 0; i < len; i++)
		if (!fits_column(name[i]))
			return -EBADMSG;
	if (ops->n == PN_OPS_MAX - 1)
		strcpy(ops->names[ops->n++], "others");
	if (ops->n == PN_OPS_MAX)
		return PN_OPS_MAX;
	memcpy(ops->names[ops->n++], name, len);
	return (int)(ops->last = ops->n);
}

int pn_ops_name(struct pn_ops *ops, unsigned op, const char *name, size_t len)
{
	if (!op || op > PN_OPS_MAX || !len)
		return 0;
	if (!ops->names)
		ops->names = calloc(PN_OPS_MAX, PN_OP_BYTES);
	if (!ops->names)
		return -ENOMEM;
	if (len >= PN_OP_BYTES)
		len = PN_OP_BYTES - 1;
	memset(ops->names[op - 1], 0, PN_OP_BYTES);
	memcpy(ops->names[op - 1], name, len);
	pn_text_sanitize(ops->names[op - 1], PN_OP_BYTES);
	if (op > ops->n)
		ops->n = op;
	return 0;
}

static int grow_caches(struct pn_caches *caches, unsigned n)
{
	struct pn_trace_event_cache *table =
		reallocarray(caches->table, n, sizeof(*table));

	if (!table)
		return -ENOMEM;
	memset(table + caches->n, 0, (n - caches->n) * sizeof(*table));
	caches->table = table;
	caches->n = n;
	return 0;
}

int pn_caches_set(struct pn_caches *caches, unsigned source, const void *about,
		  size_t bytes)
{
	struct pn_trace_event_cache *cache;

	if (!source || source > PN_CACHES_MAX)
		return 0;
	if (source > caches->n && grow_caches(caches, source))
		return -ENOMEM;
	cache = &caches->table[source - 1];
	memcpy(cache, about, bytes < sizeof(*cache) ? bytes : sizeof(*cache));
	pn_text_sanitize(cache->policy, sizeof(cache->policy));
	pn_text_sanitize(cache->device, sizeof(cache->device));
	return 0;
}
