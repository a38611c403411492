/* SPDX-License-Identifier: BSD-2-Clause */
/* The three predictors; site.h says what each does. */
#include "base/compiler.h"
#include "helper/site_impl.h"

/* The expiry, in multiples of the longest gap. With few gaps it is later, since
 * the longest may be yet to come. */
#define EXPIRY_GAPS	4
#define EXPIRY_GAPS_FEW 8

static const char *const names[] = { "learned", "shortest", "periodic" };

_Static_assert(PN_ARRAY_LEN(names) == PN_PREDICTOR_COUNT, "one key each");

const char *pn_predictor_name(unsigned predictor)
{
	return predictor < PN_PREDICTOR_COUNT ? names[predictor] : NULL;
}

static uint64_t since(uint64_t last_ns, uint64_t now_ns)
{
	return now_ns > last_ns ? now_ns - last_ns : 0;
}

void pn_predict_check(const struct pn_callsites *sites,
		      const struct pn_callsite *site, uint64_t now_ns,
		      struct pn_call_result *result)
{
	const struct pn_call_buffer *buffer = site->buffer;

	if (sites->attr.predictor == PN_PREDICT_SHORTEST) {
		result->predicted_ns = site->period_ns;
		result->observed_ns = since(site->last_ns, now_ns);
	} else {
		result->predicted_ns = buffer->predicted_ns;
		result->observed_ns = since(buffer->last_ns, now_ns);
	}
	if (!result->predicted_ns)
		result->observed_ns = 0;
}

/* The real time that is ns after a moment of program time. */
static uint64_t real_time(const struct pn_callsites *sites, uint64_t program_ns,
			  uint64_t ns)
{
	uint64_t real_ns = program_ns + sites->lag_ns + sites->pending_ns;

	return ns > UINT64_MAX - real_ns ? UINT64_MAX : real_ns + ns;
}

/* --- shortest ------------------------------------------------------------- */

static void predict_shortest(const struct pn_callsites *sites,
			     struct pn_callsite *site)
{
	struct pn_call_buffer *buffer = site->buffer;
	struct pn_list *pos;

	buffer->deadline_ns = 0;
	buffer->expiry_ns = UINT64_MAX;
	pn_list_for_each (pos, &buffer->sites) {
		const struct pn_callsite *s =
			pn_container_of(pos, struct pn_callsite, link);
		uint64_t deadline = real_time(sites, s->last_ns, s->period_ns);

		if (s->period_ns &&
		    (!buffer->deadline_ns || deadline < buffer->deadline_ns))
			buffer->deadline_ns = deadline;
	}
}

/* --- learned -------------------------------------------------------------- */

static void predict_learned(const struct pn_callsites *sites,
			    struct pn_callsite *site, uint64_t now_ns)
{
	const struct pn_costs *costs = &sites->attr.costs;
	struct pn_call_buffer *buffer = site->buffer;
	const struct pn_gaps *gaps = &site->gaps;
	double late = costs->register_ns +
		      costs->register_page_ns *
			      (double)(buffer->range.len >> PN_PAGE_SHIFT);

	/* A site with few gaps, unless they agree, uses the distribution of
	 * its buffer, if there is one. */
	if (gaps->n < PN_GAPS_FEW && buffer->gaps.n >= PN_GAPS_FEW &&
	    !(gaps->n && pn_gaps_consistent(gaps)))
		gaps = &buffer->gaps;
	buffer->deadline_ns = buffer->predicted_ns = 0;
	buffer->expiry_ns = UINT64_MAX;
	if (!gaps->n)
		return;
	buffer->predicted_ns =
		pn_gaps_deadline(gaps, late, 1 / sites->attr.patience);
	buffer->deadline_ns = real_time(sites, now_ns, buffer->predicted_ns);
	buffer->expiry_ns = real_time(sites, now_ns,
				      (gaps->n < PN_GAPS_FEW ? EXPIRY_GAPS_FEW
							     : EXPIRY_GAPS) *
					      pn_gaps_longest(gaps));
}

/* --- periodic ------------------------------------------------------------- */

static struct pn_past_call *past(const struct pn_call_sequence *sequence,
				 uint64_t at)
{
	return &sequence->past[at % sequence->sites->attr.periodic];
}

/* Whether each call of the window equals the call m before it. */
static bool repeats(const struct pn_call_sequence *sequence, unsigned m)
{
	uint64_t end = sequence->npast;

	for (uint64_t i = end - sequence->sites->attr.periodic + m; i < end;
	     i++)
		if (past(sequence, i)->call_hash !=
		    past(sequence, i - m)->call_hash)
			return false;
	return true;
}

/* The window has to hold at least two repetitions. The period found before
 * holds on if the last call matches: all calls before the last did. */
static unsigned find_period(const struct pn_call_sequence *sequence)
{
	uint64_t last = sequence->npast - 1;
	unsigned m = sequence->period;

	if (sequence->npast < sequence->sites->attr.periodic)
		return 0;
	if (m && past(sequence, last)->call_hash ==
			 past(sequence, last - m)->call_hash)
		return m;
	for (m = 1; m <= sequence->sites->attr.periodic / 2; m++)
		if (repeats(sequence, m))
			return m;
	return 0;
}

/* Looks for the buffer's next call in the repetition before this one. */
static void predict_periodic(struct pn_call_sequence *sequence,
			     struct pn_call_buffer *buffer, uint64_t now_ns)
{
	const struct pn_callsites *sites = sequence->sites;
	uint64_t from, next;

	sequence->period = find_period(sequence);
	buffer->deadline_ns = buffer->predicted_ns = 0;
	buffer->expiry_ns = UINT64_MAX;
	if (!sequence->period)
		return;
	from = sequence->npast - 1 - sequence->period;
	next = from + 1;
	while (past(sequence, next)->buffer_key != buffer->entry.key)
		next++;
	buffer->predicted_ns =
		past(sequence, next)->time_ns - past(sequence, from)->time_ns;
	buffer->deadline_ns = real_time(sites, now_ns, buffer->predicted_ns);
}

/* --- all three ---------------------------------------------------------------
 */

static void learn(struct pn_callsite *site, uint64_t now_ns)
{
	struct pn_call_buffer *buffer = site->buffer;
	uint64_t period = since(site->last_ns, now_ns);
	uint64_t gap = since(buffer->last_ns, now_ns);

	if (buffer->last_site) {
		pn_gaps_add(&buffer->last_site->gaps, gap);
		pn_gaps_add(&buffer->gaps, gap);
	}
	if (site->ncalls++ && (!site->period_ns || period < site->period_ns))
		site->period_ns = period ? period : 1;
	site->last_ns = buffer->last_ns = now_ns;
	buffer->last_site = site;
}

void pn_predict_call(struct pn_call_sequence *sequence,
		     struct pn_callsite *site, uint64_t now_ns,
		     uint64_t call_hash)
{
	const struct pn_callsites *sites = sequence->sites;

	learn(site, now_ns);
	switch (sites->attr.predictor) {
	case PN_PREDICT_SHORTEST:
		predict_shortest(sites, site);
		return;
	case PN_PREDICT_PERIODIC:
		*past(sequence, sequence->npast++) = (struct pn_past_call){
			call_hash, site->buffer->entry.key, now_ns
		};
		predict_periodic(sequence, site->buffer, now_ns);
		return;
	default:
		predict_learned(sites, site, now_ns);
		return;
	}
}
