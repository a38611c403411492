/* SPDX-License-Identifier: BSD-2-Clause */
#include "helper/site.h"

#include <errno.h>
#include <stdlib.h>

#include "helper/site_impl.h"

#define DEFAULT_PLACES	 16384
#define DEFAULT_PATIENCE 2500

/* A miss weighs two predictions that came true: a site with more than a third
 * of them missed ends up irregular. */
#define MISS_WEIGHT    2
#define MISSES_MOST    16
#define MISSES_TOO_BAD 12
#define MISSES_GOOD    4

/* --- life ----------------------------------------------------------------- */

int pn_callsites_open(const struct pn_callsites_attr *attr,
		      struct pn_callsites **out)
{
	struct pn_callsites *sites;

	if (attr->periodic > PN_PERIODIC_MAX || attr->periodic == 1 ||
	    attr->predictor >= PN_PREDICTOR_COUNT)
		return -EINVAL;
	sites = calloc(1, sizeof(*sites));
	if (!sites)
		return -ENOMEM;
	sites->attr = *attr;
	if (!attr->periodic)
		sites->attr.periodic = PN_PERIODIC_DEFAULT;
	if (!attr->max_places)
		sites->attr.max_places = DEFAULT_PLACES;
	if (!(attr->patience > 0))
		sites->attr.patience = DEFAULT_PATIENCE;
	pn_list_init(&sites->places);
	if (pn_names_init(&sites->by_signature))
		goto free_sites;
	if (pn_names_init(&sites->by_range))
		goto fini_signatures;
	*out = sites;
	return 0;

fini_signatures:
	pn_names_fini(&sites->by_signature);
free_sites:
	free(sites);
	return -ENOMEM;
}

static void forget_site(struct pn_callsites *sites, struct pn_callsite *site)
{
	pn_names_remove(&sites->by_signature, &site->named);
	pn_list_remove(&site->link);
	pn_gaps_fini(&site->gaps);
	free(site);
}

static void forget_place(struct pn_callsites *sites, struct pn_place *place)
{
	struct pn_list *pos, *next;

	pn_list_for_each_safe (pos, next, &place->sites)
		forget_site(sites,
			    pn_container_of(pos, struct pn_callsite, link));
	pn_names_remove(&sites->by_range, &place->named);
	sites->bytes -= place->range.len;
	pn_list_remove(&place->link);
	pn_gaps_fini(&place->gaps);
	free(place);
}

static struct pn_place *place_of_link(struct pn_list *link)
{
	return pn_container_of(link, struct pn_place, link);
}

void pn_callsites_close(struct pn_callsites *sites)
{
	if (!sites)
		return;
	while (!pn_list_empty(&sites->places))
		forget_place(sites, place_of_link(sites->places.next));
	pn_names_fini(&sites->by_range);
	pn_names_fini(&sites->by_signature);
	free(sites);
}

void pn_callsites_learn(struct pn_callsites *sites, double register_ns,
			double register_page_ns)
{
	sites->attr.costs.register_ns = register_ns;
	sites->attr.costs.register_page_ns = register_page_ns;
}

struct pn_stream *pn_stream_alloc(struct pn_callsites *sites)
{
	struct pn_stream *stream = calloc(1, sizeof(*stream));

	if (!stream)
		return NULL;
	stream->sites = sites;
	if (sites->attr.predictor != PN_PREDICT_PERIODIC)
		return stream;
	stream->heard = calloc(sites->attr.periodic, sizeof(*stream->heard));
	if (stream->heard)
		return stream;
	free(stream);
	return NULL;
}

void pn_stream_free(struct pn_stream *stream)
{
	if (!stream)
		return;
	free(stream->heard);
	free(stream);
}

/* --- signatures ----------------------------------------------------------- */

static uint64_t name_of_range(struct pn_range range)
{
	return pn_name_mix(pn_name_mix(0, range.addr), range.len);
}

/* This call alone: where it was made, what it does, on which memory. */
static uint64_t name_of_call(const struct pn_call *call)
{
	uint64_t name = pn_name_mix(name_of_range(call->range), call->kind);

	for (unsigned i = 0; i < call->nframes; i++)
		name = pn_name_mix(name, call->frames[i]);
	return name;
}

/* --- the table ------------------------------------------------------------ */

/* Makes room for one more, if it can: the places held stay. */
static void forget_oldest(struct pn_callsites *sites)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &sites->places) {
		if (place_of_link(pos)->held)
			continue;
		forget_place(sites, place_of_link(pos));
		return;
	}
}

struct pn_place *pn_callsites_find(const struct pn_callsites *sites,
				   struct pn_range range)
{
	struct pn_named *named =
		pn_names_find(&sites->by_range, name_of_range(range));

	return named ? pn_container_of(named, struct pn_place, named) : NULL;
}

static struct pn_place *place_for(struct pn_callsites *sites,
				  const struct pn_call *call)
{
	struct pn_place *place = pn_callsites_find(sites, call->range);

	if (place)
		return place;
	place = calloc(1, sizeof(*place));
	if (!place)
		return NULL;
	if (sites->by_range.n >= sites->attr.max_places)
		forget_oldest(sites);
	place->named.name = name_of_range(call->range);
	place->range = call->range;
	sites->bytes += call->range.len;
	pn_list_init(&place->sites);
	pn_errand_init(&place->errand);
	pn_list_append(&sites->places, &place->link);
	pn_names_add(&sites->by_range, &place->named);
	return place;
}

static struct pn_callsite *site_for(struct pn_callsites *sites,
				    struct pn_place *place, uint64_t name)
{
	struct pn_named *named = pn_names_find(&sites->by_signature, name);
	struct pn_callsite *site;

	if (named)
		return pn_container_of(named, struct pn_callsite, named);
	site = calloc(1, sizeof(*site));
	if (!site)
		return NULL;
	site->named.name = name;
	site->place = place;
	pn_list_append(&place->sites, &site->link);
	pn_names_add(&sites->by_signature, &site->named);
	return site;
}

/* Whether what was predicted after the place's last call came true: not before
 * the deadline, not long after. */
static void keep_score(struct pn_place *place, uint64_t now_ns)
{
	struct pn_callsite *site = place->last_site;

	if (!site || !place->deadline_ns)
		return;
	if (now_ns < place->deadline_ns || now_ns > place->expiry_ns)
		site->misses += MISS_WEIGHT;
	else if (site->misses)
		site->misses--;
	if (site->misses > MISSES_MOST)
		site->misses = MISSES_MOST;
	if (site->misses >= MISSES_TOO_BAD)
		site->irregular = true;
	else if (site->misses <= MISSES_GOOD)
		site->irregular = false;
}

/* The program's own time of a call. It never goes back: what calls were held
 * up counts only as far as time has passed since, which bounds what threads
 * that were held up at the same time add. */
static uint64_t own_time(struct pn_callsites *sites, const struct pn_call *call)
{
	uint64_t passed = call->time_ns > sites->last_ns
				  ? call->time_ns - sites->last_ns
				  : 0;
	uint64_t held_up =
		sites->pending_ns < passed ? sites->pending_ns : passed;

	sites->lag_ns += held_up;
	sites->pending_ns += call->delay_ns - held_up;
	sites->last_ns += passed;
	return call->time_ns > sites->lag_ns ? call->time_ns - sites->lag_ns
					     : 0;
}

int pn_callsites_call(struct pn_stream *stream, const struct pn_call *call,
		      struct pn_verdict *verdict)
{
	struct pn_callsites *sites = stream->sites;
	uint64_t what = name_of_call(call);
	struct pn_place *place = place_for(sites, call);
	struct pn_callsite *site;
	uint64_t now_ns;

	site = place ? site_for(sites, place, pn_name_mix(what, call->context))
		     : NULL;
	if (!site)
		return -ENOMEM; /* a place without sites is forgotten in time */
	*verdict = (struct pn_verdict){ .place = place,
					.site = site,
					.first = !place->last_site };
	now_ns = own_time(sites, call);
	pn_predict_check(sites, site, now_ns, verdict);
	keep_score(place, call->time_ns);
	pn_predict_call(stream, site, now_ns, what);
	verdict->irregular = site->irregular;
	pn_list_remove(&place->link);
	pn_list_append(&sites->places, &place->link);
	return 0;
}

size_t pn_callsites_nplaces(const struct pn_callsites *sites)
{
	return sites->by_range.n;
}

uint64_t pn_callsites_bytes(const struct pn_callsites *sites)
{
	return sites->bytes;
}

size_t pn_callsites_nsites(const struct pn_callsites *sites)
{
	return sites->by_signature.n;
}
