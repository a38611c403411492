/* SPDX-License-Identifier: BSD-2-Clause */
#include "helper/errand.h"

static struct pn_errand *errand_of(struct pn_list *link)
{
	return pn_container_of(link, struct pn_errand, link);
}

static uint64_t before(uint64_t time_ns, uint64_t ns)
{
	return time_ns > ns ? time_ns - ns : 0;
}

/* Makes `errand` leave enough time for the one behind it. */
static void leave_time(struct pn_errand *errand, const struct pn_errand *behind)
{
	uint64_t latest = before(behind->due_ns, behind->work_ns);

	if (errand->due_ns > latest)
		errand->due_ns = latest;
}

/* The errand behind which one that is due at due_ns belongs; or the list. New
 * ones are mostly due last: look from there. */
static struct pn_list *place_for(const struct pn_errands *errands,
				 uint64_t due_ns)
{
	struct pn_list *pos = errands->list.prev;

	while (pos != &errands->list && errand_of(pos)->due_ns > due_ns)
		pos = pos->prev;
	return pos;
}

uint64_t pn_errands_start(const struct pn_errands *errands, uint64_t due_ns,
			  uint64_t work_ns)
{
	const struct pn_list *list = &errands->list;
	struct pn_list *pos = place_for(errands, due_ns);
	uint64_t start;

	if (pos->next != list) {
		const struct pn_errand *behind = errand_of(pos->next);
		uint64_t latest = before(behind->due_ns, behind->work_ns);

		due_ns = due_ns < latest ? due_ns : latest;
	}
	start = before(due_ns, work_ns);
	for (; pos != list && errand_of(pos)->due_ns > start; pos = pos->prev)
		start = before(start, errand_of(pos)->work_ns);
	return start;
}

void pn_errands_add(struct pn_errands *errands, struct pn_errand *errand)
{
	struct pn_list *list = &errands->list;
	struct pn_list *pos = place_for(errands, errand->due_ns);

	pn_list_insert(pos, &errand->link);
	errands->n++;
	if (errand->link.next != list)
		leave_time(errand, errand_of(errand->link.next));
	for (; pos != list; pos = pos->prev) {
		uint64_t asked = errand_of(pos)->due_ns;

		leave_time(errand_of(pos), errand_of(pos->next));
		if (errand_of(pos)->due_ns == asked)
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
