/* SPDX-License-Identifier: BSD-2-Clause */
#include "helper/helper.h"

#include <errno.h>
#include <stdlib.h>

#include "base/board.h"
#include "base/log.h"
#include "helper/helper_impl.h"

#define DEFAULT_THRESHOLD ((size_t)16 << 10)

/* What comparing two entries of a queue takes, and finding something in a
 * table that is not in the CPU's cache. Generous: the terms they are in are
 * small beside registering. */
#define COMPARE_NS 20
#define LOOKUP_NS  500
#define SWITCH_NS  3000

/* --- life ----------------------------------------------------------------- */

#define COUNTER(name) PN_SHOW(COUNTER, struct pn_helper, tally.name, #name)
#define GAUGE(name)   PN_SHOW(GAUGE, struct pn_helper, tally.name, #name)

static const struct pn_shown helper_fields[] = {
	COUNTER(calls),
	COUNTER(lost),
	COUNTER(first),
	COUNTER(registered),
	COUNTER(deregistered),
	COUNTER(expired),
	COUNTER(kept),
	COUNTER(in_use),
	COUNTER(in_time),
	COUNTER(late),
	COUNTER(irregular),
	COUNTER(refused),
	GAUGE(buffers),
	GAUGE(sites),
	PN_SHOW(GAUGE, struct pn_helper, resting, "idle"),
};

static const struct pn_shown_kind shown_helper = {
	"helper", sizeof(struct pn_helper), 0, helper_fields,
	PN_ARRAY_LEN(helper_fields)
};

int pn_helper_open(const struct pn_helper_attr *attr, struct pn_helper **out)
{
	struct pn_callsites_attr sites = { .predictor = attr->predictor,
					   .patience = attr->patience,
					   .costs = attr->device->costs };
	struct pn_helper *helper;
	int ret;

	if (attr->window > PN_WINDOW_MAX)
		return -EINVAL;
	helper = pn_board_alloc(&shown_helper, attr->shown_by, attr->shown_by);
	if (!helper)
		return -ENOMEM;
	helper->attr = *attr;
	if (!attr->threshold)
		helper->attr.threshold = DEFAULT_THRESHOLD;
	helper->device = attr->device;
	helper->cache = attr->cache;
	helper->virtual_time = attr->device->caps & PN_CAP_VIRTUAL_TIME;
	pn_list_init(&helper->callers);
	pn_errands_init(&helper->errands);
	pn_errands_init(&helper->leases);
	ret = pn_callsites_open(&sites, &helper->sites);
	if (ret)
		goto free_helper;
	helper->key = ret = pn_thread_key_alloc(pn_caller_ended);
	if (ret < 0)
		goto close_sites;
	pn_mutex_init(&helper->lock);
	*out = helper;
	return 0;

close_sites:
	pn_callsites_close(helper->sites);
free_helper:
	pn_board_free(helper);
	return ret;
}

void pn_helper_close(struct pn_helper *helper)
{
	if (!helper)
		return;
	if (helper->running) {
		pn_helper_stop(helper);
		pthread_join(helper->thread, NULL);
	}
	pn_thread_key_free(helper->key);
	pn_callers_free(helper);
	pn_callsites_close(helper->sites);
	pn_crew_leave(helper->crew);
	pn_mutex_fini(&helper->lock);
	pn_board_free(helper);
}

void pn_helper_share_core(struct pn_helper *helper, unsigned nhelpers,
			  uint64_t slice_ns)
{
	atomic_store(&helper->turn_ns,
		     nhelpers > 1 ? nhelpers * (slice_ns + SWITCH_NS) : 0);
}

void pn_helper_rest(struct pn_helper *helper, bool resting)
{
	atomic_store(&helper->resting, resting);
}

/* --- what things take ----------------------------------------------------- */

static uint64_t line(double fixed, double per_page, size_t bytes)
{
	double npages = (double)((bytes + PN_PAGE_BYTES - 1) >> PN_PAGE_SHIFT);

	return (uint64_t)(fixed + per_page * (npages + 1));
}

static uint64_t register_ns(const struct pn_helper *helper, size_t bytes)
{
	const struct pn_costs *costs = &helper->device->costs;

	return line(pn_cost(&costs->register_ns),
		    pn_cost(&costs->register_page_ns), bytes);
}

static uint64_t deregister_ns(const struct pn_helper *helper, size_t bytes)
{
	const struct pn_costs *costs = &helper->device->costs;

	return line(pn_cost(&costs->deregister_ns),
		    pn_cost(&costs->deregister_page_ns), bytes);
}

/* Inserting into a queue, or updating a place in it: every entry is looked at
 * in the worst case. */
static uint64_t queue_ns(const struct pn_helper *helper)
{
	return COMPARE_NS * (helper->errands.n + 1);
}

/* The other helpers' turns on this core. */
static uint64_t turn_ns(const struct pn_helper *helper)
{
	return atomic_load_explicit(&helper->turn_ns, memory_order_relaxed);
}

/* From deciding to deregister a place until it is registered again. */
static uint64_t round_trip_ns(const struct pn_helper *helper, size_t bytes)
{
	return deregister_ns(helper, bytes) + queue_ns(helper) +
	       register_ns(helper, bytes) + queue_ns(helper) + turn_ns(helper);
}

/* One record, and then this place: hash and cache are looked up, the largest
 * place is deregistered and queued. */
static uint64_t errand_ns(const struct pn_helper *helper, size_t bytes)
{
	return 2 * LOOKUP_NS + deregister_ns(helper, helper->largest) +
	       queue_ns(helper) + register_ns(helper, bytes) +
	       queue_ns(helper) + turn_ns(helper);
}

/* --- whether to act ------------------------------------------------------- */

static bool held_back(const struct pn_helper *helper)
{
	return !pn_cache_keeps(helper->cache) ||
	       (!helper->attr.no_madvise && pn_cache_told_early(helper->cache));
}

/* --- places --------------------------------------------------------------- */

static struct pn_place *place_of(struct pn_errand *errand)
{
	return pn_container_of(errand, struct pn_place, errand);
}

/* It is not planned for any more, neither to be registered nor to be dropped.
 */
static void forget_plan(struct pn_helper *helper, struct pn_place *place)
{
	if (place->held)
		pn_errands_remove(place->leased ? &helper->leases
						: &helper->errands,
				  &place->errand);
	place->held = place->leased = false;
}

/* It is registered, and used before its expiry or dropped then. */
static void lease(struct pn_helper *helper, struct pn_place *place)
{
	if (place->expiry_ns == PN_FOREVER)
		return;
	place->held = place->leased = true;
	place->errand.due_ns = place->expiry_ns;
	place->errand.work_ns = 0;
	pn_errands_add(&helper->leases, &place->errand);
}

static void plan(struct pn_helper *helper, struct pn_place *place)
{
	place->held = true;
	place->errand.due_ns = place->deadline_ns;
	place->errand.work_ns = errand_ns(helper, place->range.len);
	pn_errands_add(&helper->errands, &place->errand);
}

/* Whether the place is deregistered now. */
static bool drop(struct pn_helper *helper, struct pn_place *place)
{
	int n = pn_cache_drop(helper->cache, place->range.addr,
			      place->range.len, &place->dropped);

	if (n < 0)
		pn_count(&helper->tally.in_use, 1);
	if (n <= 0)
		return false;
	place->ready_ns = PN_FOREVER;
	if (place->range.len > helper->largest)
		helper->largest = place->range.len;
	return true;
}

/* --- the three things a step can do --------------------------------------- */

/* Whether the place is registered now. */
static bool prepare(struct pn_helper *helper, struct pn_place *place)
{
	forget_plan(helper, place);
	/* The monitor may have changed since it was planned. */
	if (held_back(helper) ||
	    pn_cache_prepare(helper->cache, place->dropped.range.addr,
			     place->dropped.range.len, place->dropped.access)) {
		pn_count(&helper->tally.refused, 1);
		return false;
	}
	place->ready_ns = pn_device_now(helper->device);
	return true;
}

/* Registers the first place of the queue unless one record can be served
 * before. */
static bool do_errand(struct pn_helper *helper, uint64_t now)
{
	struct pn_errand *errand = pn_errands_first(&helper->errands);
	struct pn_place *place;

	if (!errand || now + errand_ns(helper, place_of(errand)->range.len) <
			       errand->due_ns)
		return false;
	place = place_of(errand);
	if (prepare(helper, place)) {
		pn_count(&helper->tally.registered, 1);
		lease(helper, place);
	}
	return true;
}

/* Whether a transfer that was posted has no memory to come: its place was
 * dropped, and it is not over yet. A receive that has an errand is as early as
 * ever: its message comes later. */
static bool lacks_memory(const struct pn_call *call,
			 const struct pn_place *place)
{
	return place && place->ready_ns == PN_FOREVER &&
	       place->seen_ns < call->time_ns &&
	       !(place->held && call->kind == PN_CALL_RECEIVE);
}

/* A transfer was posted whose place is not registered: until it wants its
 * memory there may be time, or the program has others to register, too. It
 * begins with the first of them, so this one with the last. */
static bool help_out(struct pn_helper *helper)
{
	struct pn_place *place;
	struct pn_call call;

	while (helper->nposted < PN_RING_SLOTS &&
	       pn_callers_begun(helper, &call)) {
		place = pn_callsites_find(helper->sites, call.range);
		if (lacks_memory(&call, place))
			helper->posted[helper->nposted++] = call;
	}
	if (!helper->nposted)
		return false;
	call = helper->posted[--helper->nposted];
	place = pn_callsites_find(helper->sites, call.range);
	if (lacks_memory(&call, place))
		prepare(helper, place);
	return true;
}

static void count_call(struct pn_helper *helper, const struct pn_call *call,
		       const struct pn_verdict *verdict)
{
	pn_count(&helper->tally.calls, 1);
	if (verdict->first)
		pn_count(&helper->tally.first, 1);
	else if (verdict->place->ready_ns > call->time_ns)
		pn_count(&helper->tally.late, 1);
	else
		pn_count(&helper->tally.in_time, 1);
	if (verdict->irregular)
		pn_count(&helper->tally.irregular, 1);
	atomic_store(&helper->tally.buffers,
		     pn_callsites_nplaces(helper->sites));
	atomic_store(&helper->tally.sites, pn_callsites_nsites(helper->sites));
}

/* Whether a place can be deregistered and registered again in time: for
 * itself, and with all that is queued already. */
static bool is_worth_it(const struct pn_helper *helper,
			const struct pn_place *place, uint64_t now)
{
	size_t bytes = place->range.len;

	return now + round_trip_ns(helper, bytes) <= place->deadline_ns &&
	       now + deregister_ns(helper, bytes) <=
		       pn_errands_start(&helper->errands, place->deadline_ns,
					errand_ns(helper, bytes));
}

/* A transfer is over: what becomes of its place? */
static void decide(struct pn_helper *helper, const struct pn_verdict *verdict)
{
	struct pn_place *place = verdict->place;
	uint64_t now = pn_device_now(helper->device);

	forget_plan(helper, place);
	place->ready_ns = 0;
	if (verdict->irregular || held_back(helper) ||
	    atomic_load_explicit(&helper->resting, memory_order_relaxed))
		return;
	if (place->deadline_ns && !is_worth_it(helper, place, now)) {
		pn_count(&helper->tally.kept, 1);
		lease(helper, place);
		return;
	}
	if (!drop(helper, place))
		return;
	pn_count(&helper->tally.deregistered, 1);
	if (place->deadline_ns)
		plan(helper, place);
}

/* What a call lost by registering its place itself. */
static uint64_t delay_of(const struct pn_helper *helper,
			 const struct pn_call *call)
{
	const struct pn_place *place =
		pn_callsites_find(helper->sites, call->range);

	if (place && place->ready_ns <= call->time_ns)
		return 0;
	return register_ns(helper, call->range.len);
}

static bool take_record(struct pn_helper *helper)
{
	struct pn_verdict verdict;
	struct pn_caller *caller;
	struct pn_call call;

	if (!pn_callers_take(helper, &call, &caller))
		return false;
	if (!caller->stream)
		caller->stream = pn_stream_alloc(helper->sites);
	pn_callsites_learn(helper->sites,
			   pn_cost(&helper->device->costs.register_ns),
			   pn_cost(&helper->device->costs.register_page_ns));
	call.delay_ns = delay_of(helper, &call);
	if (caller->stream &&
	    !pn_callsites_call(caller->stream, &call, &verdict)) {
		verdict.place->seen_ns = call.time_ns;
		count_call(helper, &call, &verdict);
		decide(helper, &verdict);
	}
	return true;
}

static bool end_lease(struct pn_helper *helper, uint64_t now)
{
	struct pn_errand *errand = pn_errands_first(&helper->leases);
	struct pn_place *place;

	if (!errand || now < errand->due_ns)
		return false;
	place = place_of(errand);
	forget_plan(helper, place);
	if (drop(helper, place))
		pn_count(&helper->tally.expired, 1);
	return true;
}

/* When the first errand can be put off no longer, or the first lease ends. */
static uint64_t next_time(struct pn_helper *helper)
{
	struct pn_errand *errand = pn_errands_first(&helper->errands);
	struct pn_errand *leased = pn_errands_first(&helper->leases);
	uint64_t when = leased ? leased->due_ns : PN_FOREVER, work;

	if (!errand)
		return when;
	work = errand_ns(helper, place_of(errand)->range.len);
	if (errand->due_ns <= work)
		return 0;
	return errand->due_ns - work < when ? errand->due_ns - work : when;
}

uint64_t pn_helper_step(struct pn_helper *helper)
{
	uint64_t now = pn_device_now(helper->device);

	if (do_errand(helper, now) || take_record(helper) || help_out(helper) ||
	    end_lease(helper, now)) {
		helper->active_ns = pn_device_now(helper->device);
		return helper->active_ns;
	}
	return next_time(helper);
}

void pn_helper_query(struct pn_helper *helper, struct pinion_helper_stats *out)
{
#define READ(field)                                         \
	.field = atomic_load_explicit(&helper->tally.field, \
				      memory_order_relaxed)
	*out = (struct pinion_helper_stats){
		READ(calls),
		READ(lost),
		READ(first),
		READ(registered),
		READ(deregistered),
		READ(expired),
		READ(kept),
		READ(in_use),
		READ(in_time),
		READ(late),
		READ(irregular),
		READ(refused),
		READ(buffers),
		READ(sites),
		.idle = atomic_load(&helper->resting),
		.members = atomic_load(&helper->members),
		.held_back = held_back(helper),
	};
#undef READ
}
