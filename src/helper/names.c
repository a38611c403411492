/* SPDX-License-Identifier: BSD-2-Clause */
#include "helper/names.h"

#include <errno.h>
#include <stdlib.h>

#define FIRST_CHAINS 64

static struct pn_named **chain_of(const struct pn_names *names, uint64_t name)
{
	return &names->chains[name & (names->nchains - 1)];
}

int pn_names_init(struct pn_names *names)
{
	names->chains = calloc(FIRST_CHAINS, sizeof(struct pn_named *));
	names->nchains = FIRST_CHAINS;
	names->n = 0;
	return names->chains ? 0 : -ENOMEM;
}

void pn_names_fini(struct pn_names *names)
{
	free(names->chains);
}

struct pn_named *pn_names_find(const struct pn_names *names, uint64_t name)
{
	struct pn_named *named = *chain_of(names, name);

	while (named && named->name != name)
		named = named->next;
	return named;
}

static void put(struct pn_names *names, struct pn_named *named)
{
	struct pn_named **chain = chain_of(names, named->name);

	named->next = *chain;
	*chain = named;
}

/* Without memory chains get longer, that is all. */
static void grow(struct pn_names *names)
{
	struct pn_names wider = { .nchains = 2 * names->nchains };

	wider.chains = calloc(wider.nchains, sizeof(struct pn_named *));
	if (!wider.chains)
		return;
	for (size_t i = 0; i < names->nchains; i++) {
		struct pn_named *next, *named = names->chains[i];

		for (; named; named = next) {
			next = named->next;
			put(&wider, named);
		}
	}
	free(names->chains);
	names->chains = wider.chains;
	names->nchains = wider.nchains;
}

void pn_names_add(struct pn_names *names, struct pn_named *named)
{
	if (names->n++ == names->nchains)
		grow(names);
	put(names, named);
}

void pn_names_remove(struct pn_names *names, struct pn_named *named)
{
	struct pn_named **at = chain_of(names, named->name);

	while (*at != named)
		at = &(*at)->next;
	*at = named->next;
	names->n--;
}
