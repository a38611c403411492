/* SPDX-License-Identifier: BSD-2-Clause */
#include "helper/site.h"

#include <errno.h>
#include <stdlib.h>

#include "helper/site_impl.h"

#define DEFAULT_BUFFERS	 16384
#define DEFAULT_PATIENCE 2500

/* A missed prediction counts as much as two that came true: a site that misses
 * more than a third of its predictions ends up irregular. */
#define MISS_WEIGHT	 2
#define MAX_MISSES	 16
#define IRREGULAR_MISSES 12
#define REGULAR_MISSES	 4

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
	if (!attr->max_buffers)
		sites->attr.max_buffers = DEFAULT_BUFFERS;
	if (!(attr->patience > 0))
		sites->attr.patience = DEFAULT_PATIENCE;
	pn_list_init(&sites->buffers);
	if (pn_hash_table_init(&sites->by_signature))
		goto free_sites;
	if (pn_hash_table_init(&sites->by_range))
		goto fini_signatures;
	*out = sites;
	return 0;

fini_signatures:
	pn_hash_table_fini(&sites->by_signature);
free_sites:
	free(sites);
	return -ENOMEM;
}

static void forget_site(struct pn_callsites *sites, struct pn_callsite *site)
{
	pn_hash_table_remove(&sites->by_signature, &site->entry);
	pn_list_remove(&site->link);
	pn_gaps_fini(&site->gaps);
	free(site);
}

static void forget_buffer(struct pn_callsites *sites,
			  struct pn_call_buffer *buffer)
{
	struct pn_list *pos, *next;

	if (sites->attr.forget)
		sites->attr.forget(sites->attr.forget_arg, buffer);
	pn_list_for_each_safe (pos, next, &buffer->sites)
		forget_site(sites,
			    pn_container_of(pos, struct pn_callsite, link));
	pn_hash_table_remove(&sites->by_range, &buffer->entry);
	sites->bytes -= buffer->range.len;
	pn_list_remove(&buffer->link);
	pn_gaps_fini(&buffer->gaps);
	free(buffer);
}

static struct pn_call_buffer *buffer_of_link(struct pn_list *link)
{
	return pn_container_of(link, struct pn_call_buffer, link);
}

void pn_callsites_close(struct pn_callsites *sites)
{
	if (!sites)
		return;
	while (!pn_list_empty(&sites->buffers))
		forget_buffer(sites, buffer_of_link(sites->buffers.next));
	pn_hash_table_fini(&sites->by_range);
	pn_hash_table_fini(&sites->by_signature);
	free(sites);
}

void pn_callsites_set_costs(struct pn_callsites *sites, double register_ns,
			    double register_page_ns)
{
	sites->attr.costs.register_ns = register_ns;
	sites->attr.costs.register_page_ns = register_page_ns;
}

struct pn_call_sequence *pn_call_sequence_alloc(struct pn_callsites *sites)
{
	struct pn_call_sequence *sequence = calloc(1, sizeof(*sequence));

	if (!sequence)
		return NULL;
	sequence->sites = sites;
	if (sites->attr.predictor != PN_PREDICT_PERIODIC)
		return sequence;
	sequence->past = calloc(sites->attr.periodic, sizeof(*sequence->past));
	if (sequence->past)
		return sequence;
	free(sequence);
	return NULL;
}

void pn_call_sequence_free(struct pn_call_sequence *sequence)
{
	if (!sequence)
		return;
	free(sequence->past);
	free(sequence);
}

/* --- signatures ----------------------------------------------------------- */

static uint64_t hash_of_range(struct pn_range range)
{
	return pn_hash_mix(pn_hash_mix(0, range.addr), range.len);
}

/* Of a call without its context: where it was made, its kind, its memory. */
static uint64_t hash_of_call(const struct pn_call *call)
{
	uint64_t key = pn_hash_mix(hash_of_range(call->range), call->kind);

	for (unsigned i = 0; i < call->nframes; i++)
		key = pn_hash_mix(key, call->frames[i]);
	return key;
}

/* --- the table ------------------------------------------------------------ */

/* Makes room for one more buffer, unless all are queued. */
static void forget_oldest(struct pn_callsites *sites)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &sites->buffers) {
		if (buffer_of_link(pos)->queued)
			continue;
		forget_buffer(sites, buffer_of_link(pos));
		return;
	}
}

struct pn_call_buffer *pn_callsites_find(const struct pn_callsites *sites,
					 struct pn_range range)
{
	struct pn_hash_entry *entry =
		pn_hash_table_find(&sites->by_range, hash_of_range(range));

	return entry ? pn_container_of(entry, struct pn_call_buffer, entry)
		     : NULL;
}

static struct pn_call_buffer *buffer_for(struct pn_callsites *sites,
					 const struct pn_call *call)
{
	struct pn_call_buffer *buffer = pn_callsites_find(sites, call->range);

	if (buffer)
		return buffer;
	buffer = calloc(1, sizeof(*buffer));
	if (!buffer)
		return NULL;
	if (sites->by_range.n >= sites->attr.max_buffers)
		forget_oldest(sites);
	buffer->entry.key = hash_of_range(call->range);
	buffer->range = call->range;
	sites->bytes += call->range.len;
	pn_list_init(&buffer->sites);
	pn_job_init(&buffer->job);
	pn_list_append(&sites->buffers, &buffer->link);
	pn_hash_table_add(&sites->by_range, &buffer->entry);
	return buffer;
}

static struct pn_callsite *site_for(struct pn_callsites *sites,
				    struct pn_call_buffer *buffer, uint64_t key)
{
	struct pn_hash_entry *entry =
		pn_hash_table_find(&sites->by_signature, key);
	struct pn_callsite *site;

	if (entry)
		return pn_container_of(entry, struct pn_callsite, entry);
	site = calloc(1, sizeof(*site));
	if (!site)
		return NULL;
	site->entry.key = key;
	site->buffer = buffer;
	pn_list_append(&buffer->sites, &site->link);
	pn_hash_table_add(&sites->by_signature, &site->entry);
	return site;
}

/* Counts whether the prediction made at the buffer's last call came true: this
 * call came between deadline and expiry. */
static void count_miss(struct pn_call_buffer *buffer, uint64_t now_ns)
{
	struct pn_callsite *site = buffer->last_site;

	if (!site || !buffer->deadline_ns)
		return;
	if (now_ns < buffer->deadline_ns || now_ns > buffer->expiry_ns)
		site->misses += MISS_WEIGHT;
	else if (site->misses)
		site->misses--;
	if (site->misses > MAX_MISSES)
		site->misses = MAX_MISSES;
	if (site->misses >= IRREGULAR_MISSES)
		site->irregular = true;
	else if (site->misses <= REGULAR_MISSES)
		site->irregular = false;
}

/* The program time of a call. It never goes back: a delay counts only as far as
 * time has passed since, which bounds the sum of the delays of threads that
 * were delayed at the same time. */
static uint64_t program_time(struct pn_callsites *sites,
			     const struct pn_call *call)
{
	uint64_t passed = call->time_ns > sites->last_ns
				  ? call->time_ns - sites->last_ns
				  : 0;
	uint64_t delayed =
		sites->pending_ns < passed ? sites->pending_ns : passed;

	sites->lag_ns += delayed;
	sites->pending_ns += call->delay_ns - delayed;
	sites->last_ns += passed;
	return call->time_ns > sites->lag_ns ? call->time_ns - sites->lag_ns
					     : 0;
}

int pn_callsites_add_call(struct pn_call_sequence *sequence,
			  const struct pn_call *call,
			  struct pn_call_result *result)
{
	struct pn_callsites *sites = sequence->sites;
	uint64_t call_hash = hash_of_call(call);
	struct pn_call_buffer *buffer = buffer_for(sites, call);
	struct pn_callsite *site;
	uint64_t now_ns;

	site = buffer ? site_for(sites, buffer,
				 pn_hash_mix(call_hash, call->context))
		      : NULL;
	if (!site)
		return -ENOMEM; /* a buffer without sites will be forgotten */
	*result = (struct pn_call_result){ .buffer = buffer,
					   .site = site,
					   .first = !buffer->last_site };
	now_ns = program_time(sites, call);
	pn_predict_check(sites, site, now_ns, result);
	count_miss(buffer, call->time_ns);
	pn_predict_call(sequence, site, now_ns, call_hash);
	result->irregular = site->irregular;
	pn_list_remove(&buffer->link);
	pn_list_append(&sites->buffers, &buffer->link);
	return 0;
}

size_t pn_callsites_nbuffers(const struct pn_callsites *sites)
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
