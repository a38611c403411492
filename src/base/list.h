/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * list -- an intrusive, circular, doubly linked list.
 *
 * The head of a list is a pn_list that no object embeds; an object embeds one
 * for each list that it can be in. An entry that is in no list points to
 * itself, so removing it twice is harmless and pn_list_empty(&entry) says
 * whether it is linked.
 */
#ifndef PN_BASE_LIST_H
#define PN_BASE_LIST_H

#include <stdbool.h>

#include "base/compiler.h"

struct pn_list {
	struct pn_list *next, *prev;
};

static inline void pn_list_init(struct pn_list *list)
{
	list->next = list->prev = list;
}

static inline bool pn_list_empty(const struct pn_list *list)
{
	return list->next == list;
}

static inline void pn_list_insert(struct pn_list *after, struct pn_list *entry)
{
	entry->prev = after;
	entry->next = after->next;
	after->next->prev = entry;
	after->next = entry;
}

static inline void pn_list_append(struct pn_list *list, struct pn_list *entry)
{
	pn_list_insert(list->prev, entry);
}

static inline void pn_list_remove(struct pn_list *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
	pn_list_init(entry);
}

/* Removes the first entry; NULL: the list is empty. */
static inline struct pn_list *pn_list_pop(struct pn_list *list)
{
	struct pn_list *first = list->next;

	if (first == list)
		return NULL;
	pn_list_remove(first);
	return first;
}

/* Moves all of list, in its order, to right behind `after`; list is empty
 * then. */
static inline void pn_list_splice(struct pn_list *after, struct pn_list *list)
{
	if (pn_list_empty(list))
		return;
	list->next->prev = after;
	list->prev->next = after->next;
	after->next->prev = list->prev;
	after->next = list->next;
	pn_list_init(list);
}

#define pn_list_for_each(pos, list) \
	for ((pos) = (list)->next; (pos) != (list); (pos) = (pos)->next)

/* As above, for bodies that remove `pos`. */
#define pn_list_for_each_safe(pos, tmp, list)                            \
	for ((pos) = (list)->next, (tmp) = (pos)->next; (pos) != (list); \
	     (pos) = (tmp), (tmp) = (pos)->next)

#endif
