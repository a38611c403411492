/* SPDX-License-Identifier: BSD-2-Clause */
/* The three predictors; site.h tells what each does. */
#include "base/compiler.h"
#include "helper/site_impl.h"

/* After so many times the longest gap nobody is expected any more; with few
 * gaps the longest is yet to come. */
#define GIVE_UP	    4
#define GIVE_UP_FEW 8

static const char *const names[] = { "learned", "shortest", "periodic" };

_Static_assert(PN_ARRAY_LEN(names) == PN_PREDICTOR_COUNT, "one name each");

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
		      struct pn_verdict *verdict)
{
	const struct pn_place *place = site->place;

	if (sites->attr.predictor == PN_PREDICT_SHORTEST) {
		verdict->predicted_ns = site->period_ns;
		verdict->observed_ns = since(site->last_ns, now_ns);
	} else {
		verdict->predicted_ns = place->predicted_ns;
		verdict->observed_ns = since(place->last_ns, now_ns);
	}
	if (!verdict->predicted_ns)
		verdict->observed_ns = 0;
}

/* The real time of ns after a moment of the program's own. */
static uint64_t real_time(const struct pn_callsites *sites, uint64_t own_ns,
			  uint64_t ns)
{
	uint64_t real_ns = own_ns + sites->lag_ns + sites->pending_ns;

	return ns > UINT64_MAX - real_ns ? UINT64_MAX : real_ns + ns;
}

/* --- shortest ------------------------------------------------------------- */

static void predict_shortest(const struct pn_callsites *sites,
			     struct pn_callsite *site)
{
	struct pn_place *place = site->place;
	struct pn_list *pos;

	place->deadline_ns = 0;
	place->expiry_ns = UINT64_MAX;
	pn_list_for_each (pos, &place->sites) {
		const struct pn_callsite *s =
			pn_container_of(pos, struct pn_callsite, link);
		uint64_t deadline = real_time(sites, s->last_ns, s->period_ns);

		if (s->period_ns &&
		    (!place->deadline_ns || deadline < place->deadline_ns))
			place->deadline_ns = deadline;
	}
}

/* --- learned -------------------------------------------------------------- */

static void predict_learned(const struct pn_callsites *sites,
			    struct pn_callsite *site, uint64_t now_ns)
{
	const struct pn_costs *costs = &sites->attr.costs;
	struct pn_place *place = site->place;
	const struct pn_gaps *gaps = &site->gaps;
	double late = costs->register_ns +
		      costs->register_page_ns *
			      (double)(place->range.len >> PN_PAGE_SHIFT);

	/* Too new to have a distribution, or a rhythm that can be seen at once:
	 * that of the place, if it has one. */
	if (gaps->n < PN_GAPS_FEW && place->gaps.n >= PN_GAPS_FEW &&
	    !(gaps->n && pn_gaps_agree(gaps)))
		gaps = &place->gaps;
	place->deadline_ns = place->predicted_ns = 0;
	place->expiry_ns = UINT64_MAX;
	if (!gaps->n)
		return;
	place->predicted_ns =
		pn_gaps_deadline(gaps, late, 1 / sites->attr.patience);
	place->deadline_ns = real_time(sites, now_ns, place->predicted_ns);
	place->expiry_ns =
		real_time(sites, now_ns,
			  (gaps->n < PN_GAPS_FEW ? GIVE_UP_FEW : GIVE_UP) *
				  pn_gaps_longest(gaps));
}

/* --- periodic ------------------------------------------------------------- */

static struct pn_heard *heard(const struct pn_stream *stream, uint64_t at)
{
	return &stream->heard[at % stream->sites->attr.periodic];
}

/* Whether the window repeats itself m calls later. */
static bool repeats(const struct pn_stream *stream, unsigned m)
{
	uint64_t end = stream->nheard;

	for (uint64_t i = end - stream->sites->attr.periodic + m; i < end; i++)
		if (heard(stream, i)->what != heard(stream, i - m)->what)
			return false;
	return true;
}

/* At least half the window has to bear witness. The period found before goes
 * on if the last call fits: all calls before it did. */
static unsigned find_period(const struct pn_stream *stream)
{
	uint64_t last = stream->nheard - 1;
	unsigned m = stream->period;

	if (stream->nheard < stream->sites->attr.periodic)
		return 0;
	if (m && heard(stream, last)->what == heard(stream, last - m)->what)
		return m;
	for (m = 1; m <= stream->sites->attr.periodic / 2; m++)
		if (repeats(stream, m))
			return m;
	return 0;
}

/* The place's next call in the repetition before. */
static void predict_periodic(struct pn_stream *stream, struct pn_place *place,
			     uint64_t now_ns)
{
	const struct pn_callsites *sites = stream->sites;
	uint64_t from, next;

	stream->period = find_period(stream);
	place->deadline_ns = place->predicted_ns = 0;
	place->expiry_ns = UINT64_MAX;
	if (!stream->period)
		return;
	from = stream->nheard - 1 - stream->period;
	next = from + 1;
	while (heard(stream, next)->where != place->named.name)
		next++;
	place->predicted_ns =
		heard(stream, next)->time_ns - heard(stream, from)->time_ns;
	place->deadline_ns = real_time(sites, now_ns, place->predicted_ns);
}

/* --- all ------------------------------------------------------------------ */

static void learn(struct pn_callsite *site, uint64_t now_ns)
{
	struct pn_place *place = site->place;
	uint64_t period = since(site->last_ns, now_ns);
	uint64_t gap = since(place->last_ns, now_ns);

	if (place->last_site) {
		pn_gaps_add(&place->last_site->gaps, gap);
		pn_gaps_add(&place->gaps, gap);
	}
	if (site->ncalls++ && (!site->period_ns || period < site->period_ns))
		site->period_ns = period ? period : 1;
	site->last_ns = place->last_ns = now_ns;
	place->last_site = site;
}

void pn_predict_call(struct pn_stream *stream, struct pn_callsite *site,
		     uint64_t now_ns, uint64_t what)
{
	const struct pn_callsites *sites = stream->sites;

	learn(site, now_ns);
	switch (sites->attr.predictor) {
	case PN_PREDICT_SHORTEST:
		predict_shortest(sites, site);
		return;
	case PN_PREDICT_PERIODIC:
		*heard(stream, stream->nheard++) =
			(struct pn_heard){ what, site->place->named.name,
					   now_ns };
		predict_periodic(stream, site->place, now_ns);
		return;
	default:
		predict_learned(sites, site, now_ns);
		return;
	}
}
