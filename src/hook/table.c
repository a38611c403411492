/* SPDX-License-Identifier: BSD-2-Clause */
/* Tables of functions. A provider may have been built with other headers than
 * ours: its tables may be shorter or longer than the types here. */
#include <stdlib.h>
#include <string.h>

#include "hook/hook.h"

struct table {
	void *owner;
	size_t reserved; /* keeps the copy aligned */
	char ops[];
};

static struct table *table_of(const void *ops)
{
	return pn_container_of((char *)(uintptr_t)ops, struct table, ops);
}

void *pn_hook_table(const void *real, size_t min_bytes, void *owner)
{
	size_t size = *(const size_t *)real;
	size_t bytes = size > min_bytes ? size : min_bytes;
	struct table *table = calloc(1, sizeof(*table) + bytes);

	if (!table)
		return NULL;
	table->owner = owner;
	memcpy(table->ops, real, size);
	return table->ops;
}

void *pn_hook_table_owner(const void *table)
{
	return table_of(table)->owner;
}

void pn_hook_table_free(void *table)
{
	if (table)
		free(table_of(table));
}
