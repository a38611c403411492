/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/protocol/usage.h"

#include "base/pages.h"

#define NBUCKETS ((size_t)1 << PN_USAGE_BITS)
#define STEPS	 8 /* of the clock hand, to find an entry that may be replaced */

/* Normal pages: the first touch of a bucket takes 4 KiB, not 2 MiB. */
static const struct pn_pages_policy policy = { .huge = PN_PAGES_NORMAL,
					       .numa_node = -1 };

static size_t bucket_bytes(void)
{
	return NBUCKETS * sizeof(uint32_t);
}

static size_t entry_bytes(void)
{
	return (PN_USAGE_MAX + 1) * sizeof(struct pn_usage_entry);
}

static bool map(struct pn_usage *usage)
{
	void *buckets, *entries;

	if (pn_pages_map(bucket_bytes(), &policy, &buckets))
		return false;
	if (pn_pages_map(entry_bytes(), &policy, &entries)) {
		pn_pages_unmap(buckets, bucket_bytes(), &policy);
		return false;
	}
	usage->buckets = buckets;
	usage->entries = entries;
	return true;
}

void pn_usage_fini(struct pn_usage *usage)
{
	if (!usage->buckets)
		return;
	pn_pages_unmap(usage->buckets, bucket_bytes(), &policy);
	pn_pages_unmap(usage->entries, entry_bytes(), &policy);
	*usage = (struct pn_usage){ 0 };
}

static struct pn_usage_entry *chain_insert(struct pn_usage *usage, uint32_t i,
					   uintptr_t addr)
{
	uint32_t *bucket = &usage->buckets[pn_usage_bucket(addr)];
	struct pn_usage_entry *entry = &usage->entries[i];

	*entry = (struct pn_usage_entry){ .addr = addr, .next = *bucket };
	usage->nchained += *bucket != 0;
	*bucket = i;
	return entry;
}

struct pn_usage_entry *pn_usage_add(struct pn_usage *usage, uintptr_t addr)
{
	if (usage->nentries == PN_USAGE_MAX)
		return NULL;
	if (pn_unlikely(!usage->buckets) && !map(usage))
		return NULL;
	return chain_insert(usage, ++usage->nentries, addr);
}

/* An entry with others behind it is not alone in its bucket, whichever came
 * first. */
static void chain_remove(struct pn_usage *usage, uint32_t i)
{
	struct pn_usage_entry *entry = &usage->entries[i];
	uint32_t *first = &usage->buckets[pn_usage_bucket(entry->addr)];
	uint32_t *link = first;

	while (*link != i)
		link = &usage->entries[*link].next;
	usage->nchained -= *first != i || entry->next;
	*link = entry->next;
	pn_usage_mark(usage, entry, false);
}

struct pn_usage_entry *pn_usage_replace(struct pn_usage *usage, uintptr_t addr)
{
	for (unsigned n = 0; n < STEPS && usage->nentries; n++) {
		uint32_t i = 1 + usage->hand++ % usage->nentries;
		struct pn_usage_entry *entry = &usage->entries[i];

		if (entry->used) {
			entry->used = false;
			continue;
		}
		chain_remove(usage, i);
		return chain_insert(usage, i, addr);
	}
	return NULL;
}

void pn_usage_check(const struct pn_usage *usage)
{
	uint32_t nentries = 0, nchained = 0, nfrequent = 0;

	for (size_t b = 0; usage->buckets && b < NBUCKETS; b++) {
		uint32_t i = usage->buckets[b];

		nchained -= i != 0;
		for (; i; i = usage->entries[i].next) {
			pn_assert(pn_usage_bucket(usage->entries[i].addr) == b);
			nentries++;
			nchained++;
			nfrequent += usage->entries[i].frequent;
			pn_assert(nentries <= usage->nentries);
		}
	}
	pn_assert(nentries == usage->nentries);
	pn_assert(nchained == usage->nchained);
	pn_assert(nfrequent == usage->nfrequent);
}
