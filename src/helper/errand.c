/* SPDX-License-Identifier: BSD-2-Clause */
#include "helper/errand.h"

static struct pn_errand *errand_of(struct pn_list *link)
{
	return pn_container_of(link, struct pn_errand, link);
}

/* Makes `errand` leave enough time for the one behind it. */
static void leave_time(struct pn_errand *errand, const struct pn_errand *behind)
{
	uint64_t latest = behind->due_ns > behind->work_ns
				  ? behind->due_ns - behind->work_ns
				  : 0;

	if (errand->due_ns > latest)
		errand->due_ns = latest;
}

/* New ones are mostly due last: look from there. */
void pn_errands_add(struct pn_errands *errands, struct pn_errand *errand)
{
	struct pn_list *list = &errands->list, *pos = list->prev;

	while (pos != list && errand_of(pos)->due_ns > errand->due_ns)
		pos = pos->prev;
	pn_list_insert(pos, &errand->link);
	errands->n++;
	if (errand->link.next != list)
		leave_time(errand, errand_of(errand->link.next));
	for (; pos != list; pos = pos->prev) {
		uint64_t before = errand_of(pos)->due_ns;

		leave_time(errand_of(pos), errand_of(pos->next));
		if (errand_of(pos)->due_ns == before)
			return; /* those before it had time enough */
	}
}

void pn_errands_remove(struct pn_errands *errands, struct pn_errand *errand)
{
	if (pn_list_empty(&errand->link))
		return;
	pn_list_remove(&errand->link);
	errands->n--;
}
