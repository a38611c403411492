/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * names -- a hash table of things that have a 64-bit name.
 *
 * The name is a hash already, made to be unique (pn_name_mix()). Things embed
 * a pn_named; chains are short, since the table doubles when it is full.
 * Threads: the caller's.
 */
#ifndef PN_HELPER_NAMES_H
#define PN_HELPER_NAMES_H

#include <stddef.h>
#include <stdint.h>

struct pn_named {
	uint64_t name;
	struct pn_named *next; /* in its chain */
};

struct pn_names {
	struct pn_named **chains;
	size_t nchains; /* a power of two */
	size_t n;
};

/* -ENOMEM. */
int pn_names_init(struct pn_names *names);
void pn_names_fini(struct pn_names *names); /* the things are the caller's */

/* NULL: none. */
struct pn_named *pn_names_find(const struct pn_names *names, uint64_t name);

/* named->name is set and not yet in the table. */
void pn_names_add(struct pn_names *names, struct pn_named *named);
void pn_names_remove(struct pn_names *names, struct pn_named *named);

/* Folds another word into a name; 0 begins one. Two rounds of multiply and
 * shift: every bit of both reaches every bit of the result. */
static inline uint64_t pn_name_mix(uint64_t name, uint64_t word)
{
	name = (name ^ word) + UINT64_C(0x9e3779b97f4a7c15);
	name = (name ^ name >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	name = (name ^ name >> 27) * UINT64_C(0x94d049bb133111eb);
	return name ^ name >> 31;
}

#endif
