/* SPDX-License-Identifier: BSD-2-Clause */
#include "shrink.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"

static void remove_steps(const struct shrinkable *list, unsigned from,
			 unsigned n)
{
	char *at = (char *)list->steps + from * list->step_bytes;

	memmove(at, at + n * list->step_bytes,
		(*list->n - from - n) * list->step_bytes);
	*list->n -= n;
}

/* Leaves out each n steps that can be. */
static bool remove_each(const struct shrinkable *list, unsigned n, void *copy)
{
	bool removed = false;

	for (unsigned from = 0; from + n <= *list->n;) {
		unsigned before = *list->n;

		memcpy(copy, list->steps, before * list->step_bytes);
		remove_steps(list, from, n);
		if (list->fails(list->arg)) {
			removed = true;
			continue;
		}
		memcpy(list->steps, copy, before * list->step_bytes);
		*list->n = before;
		from += n;
	}
	return removed;
}

void shrink(const struct shrinkable *list)
{
	void *copy = malloc(*list->n * list->step_bytes + 1);
	bool removed;

	pn_assert(copy);
	do {
		removed = false;
		for (unsigned n = (*list->n + 1) / 2; n; n /= 2)
			removed |= remove_each(list, n, copy);
	} while (removed);
	free(copy);
}
