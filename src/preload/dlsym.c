/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libc's dlsym() and dlvsym() are found in the symbol table of the file that
 * has dlinfo(), by its GNU hash table: each of the two could be asked for the
 * other only if it were not taken itself.
 *
 * A sanitizer's runtime calls dlsym() before it is set up, so this file is
 * built without instrumentation, and calls nothing that a sanitizer takes
 * before it knows that a name may be one of ours.
 */
#include "preload/dlsym.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* Read by dlsym_stub.c. Set before a stub jumps there. */
void *pn_dlsym_real, *pn_dlvsym_real;

/* Called by dlsym_stub.c. */
void *pn_dlsym_answer(void *handle, const char *name, const void *caller);
void *pn_dlvsym_answer(void *handle, const char *name, const char *version,
		       const void *caller);

/* --- libc's functions ------------------------------------------------------
 */

static const void *section_of(const struct link_map *map, ElfW(Sxword) tag)
{
	for (const ElfW(Dyn) *d = map->l_ld; d->d_tag != DT_NULL; d++)
		if (d->d_tag == tag)
			return (const void *)d->d_un.d_ptr;
	return NULL;
}

static bool is_same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static bool begins_with(const char *name, const char *prefix)
{
	while (*prefix && *name == *prefix)
		name++, prefix++;
	return !*prefix;
}

static uint32_t gnu_hash(const char *name)
{
	uint32_t hash = 5381;

	while (*name)
		hash = hash * 33 + (unsigned char)*name++;
	return hash;
}

/* The table: four words, the Bloom filter, buckets with the first symbol of
 * each, and for each symbol a hash whose lowest bit ends the bucket. All
 * versions of these two names are one function. */
static void *find_symbol(const struct link_map *map, const char *name)
{
	const uint32_t *table = section_of(map, DT_GNU_HASH);
	const ElfW(Sym) *symbols = section_of(map, DT_SYMTAB);
	const char *strings = section_of(map, DT_STRTAB);
	uint32_t hash = gnu_hash(name), i, at;
	const uint32_t *buckets;

	pn_assert(table && symbols && strings);
	buckets = table + 4 + table[2] * (sizeof(ElfW(Addr)) / 4);
	i = buckets[hash % table[0]];
	pn_assert(i >= table[1]);
	do {
		at = buckets[table[0] + i - table[1]];
		if ((at | 1) == (hash | 1) &&
		    symbols[i].st_shndx != SHN_UNDEF &&
		    is_same(strings + symbols[i].st_name, name))
			return (void *)(map->l_addr + symbols[i].st_value);
		i++;
	} while (!(at & 1));
	return NULL;
}

/* Any thread; the result is always the same. */
static void find_real(void)
{
	struct link_map *map = NULL;
	Dl_info info;
	void *sym, *vsym;

	if (pn_likely(__atomic_load_n(&pn_dlsym_real, __ATOMIC_ACQUIRE)))
		return;
	pn_assert(
		dladdr1((void *)dlinfo, &info, (void **)&map, RTLD_DL_LINKMAP));
	sym = find_symbol(map, "dlsym");
	vsym = find_symbol(map, "dlvsym");
	pn_assert(sym && vsym);
	__atomic_store_n(&pn_dlvsym_real, vsym, __ATOMIC_RELAXED);
	__atomic_store_n(&pn_dlsym_real, sym, __ATOMIC_RELEASE);
}

void *pn_dlsym_libc(const struct pn_dlsym_query *query)
{
	void *(*sym)(void *, const char *);
	void *(*vsym)(void *, const char *, const char *);

	find_real();
	*(void **)&sym = pn_dlsym_real;
	*(void **)&vsym = pn_dlvsym_real;
	return query->version ? vsym(query->handle, query->name, query->version)
			      : sym(query->handle, query->name);
}

/* --- answers ---------------------------------------------------------------
 */

static void *answer(const struct pn_dlsym_query *query)
{
	void *ours = NULL;

	find_real();
	if (!query->name || query->handle == RTLD_NEXT)
		return NULL;
	if (pn_dlsym_lookup_cuda && begins_with(query->name, "cu"))
		ours = pn_dlsym_lookup_cuda(query);
	if (pn_dlsym_lookup_verbs && begins_with(query->name, "ibv_"))
		ours = pn_dlsym_lookup_verbs(query);
	return ours;
}

void *pn_dlsym_answer(void *handle, const char *name, const void *caller)
{
	return answer(&(struct pn_dlsym_query){ handle, name, NULL, caller });
}

void *pn_dlvsym_answer(void *handle, const char *name, const char *version,
		       const void *caller)
{
	return answer(
		&(struct pn_dlsym_query){ handle, name, version, caller });
}
