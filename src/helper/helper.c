/* SPDX-License-Identifier: BSD-2-Clause */
#include "helper/helper.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/stats_segment.h"
#include "helper/helper_impl.h"

#define DEFAULT_THRESHOLD ((size_t)16 << 10)

/* Switching threads; generous. */
#define SWITCH_NS 3000

/* A buffer that was copied so many times in a row is not registered ahead. More
 * than the message layer needs to measure an alternative. */
#define MAX_COPIED 8

/* --- life ----------------------------------------------------------------- */

#define COUNTER(name) \
	PN_STATS_FIELD(COUNTER, struct pn_helper, stats.name, #name)
#define GAUGE(name) PN_STATS_FIELD(GAUGE, struct pn_helper, stats.name, #name)

static const struct pn_stats_field helper_fields[] = {
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
	COUNTER(copied),
	COUNTER(aside),
	GAUGE(buffers),
	GAUGE(sites),
	GAUGE(wake_ns),
	PN_STATS_FIELD(GAUGE, struct pn_helper, idle, "idle"),
};

static const struct pn_stats_kind helper_stats_kind = {
	"helper", sizeof(struct pn_helper), 0, helper_fields,
	PN_ARRAY_LEN(helper_fields)
};

static void forget_buffer(void *arg, struct pn_call_buffer *buffer)
{
	struct pn_helper *helper = arg;

	pn_losses_forgotten(&helper->losses, buffer);
}

int pn_helper_open(const struct pn_helper_attr *attr, struct pn_helper **out)
{
	struct pn_callsites_attr sites = {
		.predictor = attr->predictor,
		.patience = attr->patience,
		.max_buffers = attr->max_buffers,
		.forget = forget_buffer,
		.costs = attr->rails[0].device->costs
	};
	struct pn_helper *helper;
	int ret;

	if (attr->window > PN_WINDOW_MAX)
		return -EINVAL;
	helper = pn_stats_alloc(&helper_stats_kind, attr->stats_owner,
				attr->stats_owner);
	if (!helper)
		return -ENOMEM;
	sites.forget_arg = helper;
	helper->attr = *attr;
	if (!attr->threshold)
		helper->attr.threshold = DEFAULT_THRESHOLD;
	if (!attr->nrails)
		helper->attr.nrails = 1;
	helper->device = attr->rails[0].device;
	helper->losses.max_percent = attr->loss_percent;
	helper->virtual_time = helper->device->caps & PN_CAP_VIRTUAL_TIME;
	pn_list_init(&helper->callers);
	pn_job_queue_init(&helper->jobs);
	pn_job_queue_init(&helper->leases);
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
	pn_stats_free(helper);
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
	pn_helper_registry_leave(helper->registry);
	pn_mutex_fini(&helper->lock);
	pn_stats_free(helper);
}

void pn_helper_share_core(struct pn_helper *helper, unsigned nhelpers,
			  uint64_t slice_ns)
{
	atomic_store(&helper->turn_ns,
		     nhelpers > 1 ? nhelpers * (slice_ns + SWITCH_NS) : 0);
}

void pn_helper_set_idle(struct pn_helper *helper, bool idle)
{
	atomic_store(&helper->idle, idle);
}

/* --- whether to act ------------------------------------------------------- */

/* Whether the monitor of this process rules out registering in advance. */
static bool held_back(const struct pn_helper *helper)
{
	for (unsigned r = 0; r < helper->attr.nrails; r++) {
		const struct pn_cache *cache = helper->attr.rails[r].cache;

		if (!pn_cache_keeps(cache) ||
		    (!helper->attr.no_madvise && pn_cache_notices_early(cache)))
			return true;
	}
	return false;
}

/* --- buffers -------------------------------------------------------------- */

static struct pn_call_buffer *buffer_of(struct pn_job *job)
{
	return pn_container_of(job, struct pn_call_buffer, job);
}

/* Takes the buffer's job out of its queue: it is neither to be registered nor
 * to be deregistered at a certain time. */
static void cancel_job(struct pn_helper *helper, struct pn_call_buffer *buffer)
{
	if (buffer->queued)
		pn_job_queue_remove(buffer->leased ? &helper->leases
						   : &helper->jobs,
				    &buffer->job);
	buffer->queued = buffer->leased = false;
}

/* For a buffer that is registered: it is used before its expiry, or
 * deregistered then. */
static void lease(struct pn_helper *helper, struct pn_call_buffer *buffer)
{
	if (buffer->expiry_ns == PN_FOREVER)
		return;
	buffer->queued = buffer->leased = true;
	buffer->job.due_ns = buffer->expiry_ns;
	buffer->job.work_ns = 0;
	pn_job_queue_add(&helper->leases, &buffer->job);
}

/* For a buffer that is not: it is registered by its deadline. */
static void queue_job(struct pn_helper *helper, struct pn_call_buffer *buffer)
{
	buffer->queued = true;
	buffer->job.due_ns = buffer->deadline_ns;
	buffer->job.work_ns = pn_helper_job_ns(helper, buffer);
	pn_job_queue_add(&helper->jobs, &buffer->job);
}

/* Deregisters the buffer; false: it was not registered, or is in use. What is
 * in use on one rail alone stays there. Sets ready_ns unless it is in use. */
static bool deregister_buffer(struct pn_helper *helper,
			      struct pn_call_buffer *buffer)
{
	struct pn_dropped dropped[PN_RAILS_MAX] = { 0 };
	bool any = false, busy = false;

	for (unsigned r = 0; r < helper->attr.nrails; r++) {
		int n = pn_cache_drop(helper->attr.rails[r].cache,
				      buffer->range.addr, buffer->range.len,
				      &dropped[r]);

		any |= n > 0;
		busy |= n < 0;
	}
	if (busy)
		pn_count(&helper->stats.in_use, 1);
	if (any || !busy)
		buffer->ready_ns = PN_FOREVER;
	if (!any)
		return false;
	memcpy(buffer->dropped, dropped, sizeof(dropped));
	if (buffer->range.len > helper->largest)
		helper->largest = buffer->range.len;
	return true;
}

/* A recent maximum: it rises at once and falls slowly. */
void pn_helper_learn_delay(struct pn_helper *helper, uint64_t late_ns)
{
	uint64_t *wake_ns = &helper->wake_ns;

	*wake_ns = late_ns > *wake_ns ? late_ns
				      : *wake_ns - (*wake_ns - late_ns) / 32;
	atomic_store_explicit(&helper->stats.wake_ns, *wake_ns,
			      memory_order_relaxed);
}

/* --- the four things a step can do ---------------------------------------- */

/* A rail has refused: those before it give up what they have registered, since
 * no lease would end it. buffer->dropped stays for the next attempt. */
static void undo_prefetch(const struct pn_helper *helper,
			  const struct pn_call_buffer *buffer, unsigned nrails)
{
	struct pn_dropped ignored;

	for (unsigned r = 0; r < nrails; r++)
		if (buffer->dropped[r].range.len)
			pn_cache_drop(helper->attr.rails[r].cache,
				      buffer->dropped[r].range.addr,
				      buffer->dropped[r].range.len, &ignored);
}

/* On each rail what was dropped there; false: nothing is registered. */
static bool prefetch_buffer(const struct pn_helper *helper,
			    const struct pn_call_buffer *buffer)
{
	for (unsigned r = 0; r < helper->attr.nrails; r++) {
		const struct pn_dropped *dropped = &buffer->dropped[r];

		if (!dropped->range.len ||
		    !pn_cache_prefetch(helper->attr.rails[r].cache,
				       dropped->range.addr, dropped->range.len,
				       dropped->access))
			continue;
		undo_prefetch(helper, buffer, r);
		return false;
	}
	return true;
}

/* Registers the buffer; false: held back, or the cache refused. */
static bool register_buffer(struct pn_helper *helper,
			    struct pn_call_buffer *buffer)
{
	cancel_job(helper, buffer);
	/* The monitor's mode may have changed since the job was queued. */
	if (held_back(helper) || !prefetch_buffer(helper, buffer)) {
		pn_count(&helper->stats.refused, 1);
		return false;
	}
	buffer->ready_ns = pn_device_now(helper->device);
	return true;
}

/* Runs the first registration job, unless there is time to handle a record
 * before it. */
static bool run_job(struct pn_helper *helper, uint64_t now)
{
	struct pn_job *job = pn_job_queue_first(&helper->jobs);
	struct pn_call_buffer *buffer;

	if (!job ||
	    now + pn_helper_job_ns(helper, buffer_of(job)) < job->due_ns)
		return false;
	buffer = buffer_of(job);
	if (register_buffer(helper, buffer)) {
		uint64_t should_ns =
			now + pn_helper_register_ns(helper, buffer);

		/* It waited for a core. */
		if (buffer->ready_ns > should_ns)
			pn_helper_learn_delay(helper,
					      buffer->ready_ns - should_ns);
		pn_count(&helper->stats.registered, 1);
		lease(helper, buffer);
	}
	return true;
}

static bool was_dropped(const struct pn_helper *helper,
			const struct pn_call_buffer *buffer)
{
	for (unsigned r = 0; r < helper->attr.nrails; r++)
		if (buffer->dropped[r].range.len)
			return true;
	return false;
}

/* The message layer decides each time whether it uses a registration, by
 * whether there is one, and tries the alternatives now and then. So a transfer
 * that used none says little about the next one; several in a row do. */
static bool is_always_copied(const struct pn_helper *helper,
			     const struct pn_call_buffer *buffer)
{
	return buffer->ncopied >= MAX_COPIED ||
	       (buffer->ncopied && !was_dropped(helper, buffer));
}

/* Whether the buffer of a posted transfer is not registered and the transfer
 * has not ended. A receive whose buffer has a job can wait for it: the message
 * comes later. */
static bool needs_registration(const struct pn_helper *helper,
			       const struct pn_call *call,
			       const struct pn_call_buffer *buffer)
{
	return buffer && buffer->ready_ns == PN_FOREVER &&
	       was_dropped(helper, buffer) &&
	       !is_always_copied(helper, buffer) &&
	       buffer->last_call_ns < call->time_ns &&
	       !(buffer->queued && call->kind == PN_CALL_RECEIVE);
}

/* Registers the buffer of a posted transfer. There may be time until the
 * program needs it, or the program has several to register: it begins with the
 * first, so this function with the last. */
static bool register_posted(struct pn_helper *helper)
{
	struct pn_call_buffer *buffer;
	struct pn_call call;

	while (helper->nposted < PN_RING_SLOTS &&
	       pn_callers_take_posted(helper, &call)) {
		buffer = pn_callsites_find(helper->sites, call.range);
		if (needs_registration(helper, &call, buffer))
			helper->posted[helper->nposted++] = call;
	}
	if (!helper->nposted)
		return false;
	call = helper->posted[--helper->nposted];
	buffer = pn_callsites_find(helper->sites, call.range);
	if (needs_registration(helper, &call, buffer))
		register_buffer(helper, buffer);
	return true;
}

static void count_call(struct pn_helper *helper, const struct pn_call *call,
		       const struct pn_call_result *result)
{
	pn_count(&helper->stats.calls, 1);
	if (call->copied)
		pn_count(&helper->stats.copied, 1);
	else if (result->first)
		pn_count(&helper->stats.first, 1);
	else if (result->buffer->ready_ns > call->time_ns)
		pn_count(&helper->stats.late, 1);
	else
		pn_count(&helper->stats.in_time, 1);
	if (result->irregular)
		pn_count(&helper->stats.irregular, 1);
	atomic_store(&helper->stats.buffers,
		     pn_callsites_nbuffers(helper->sites));
	atomic_store(&helper->stats.sites, pn_callsites_nsites(helper->sites));
}

/* Whether the buffer can be deregistered and registered again by its deadline,
 * by itself and with all jobs that are queued. */
static bool can_return_in_time(const struct pn_helper *helper,
			       const struct pn_call_buffer *buffer,
			       uint64_t now)
{
	return now + pn_helper_round_trip_ns(helper, buffer) <=
		       buffer->deadline_ns &&
	       now + pn_helper_deregister_ns(helper, buffer) <=
		       pn_job_queue_start(&helper->jobs, buffer->deadline_ns,
					  pn_helper_job_ns(helper, buffer));
}

/* Whether the program may lose a registration for it. */
static bool can_afford(const struct pn_helper *helper,
		       const struct pn_call_buffer *buffer, uint64_t now)
{
	return pn_losses_allow(&helper->losses, buffer->deadline_ns,
			       pn_helper_register_ns(helper, buffer), now);
}

/* A registration would not be used. */
static void leave_copied(struct pn_helper *helper,
			 struct pn_call_buffer *buffer)
{
	if (deregister_buffer(helper, buffer))
		pn_count(&helper->stats.deregistered, 1);
}

/* What a copied transfer did not find registered is registered for the next
 * one, as it was before. */
static void drop_buffer(struct pn_helper *helper, struct pn_call_buffer *buffer)
{
	if (deregister_buffer(helper, buffer)) {
		pn_count(&helper->stats.deregistered, 1);
		pn_losses_dropped(&helper->losses, buffer,
				  pn_helper_register_ns(helper, buffer));
	} else if (!buffer->ncopied || buffer->ready_ns != PN_FOREVER) {
		return;
	}
	if (buffer->deadline_ns)
		queue_job(helper, buffer);
}

/* Decides what happens to the buffer of a transfer that has ended. */
static void decide(struct pn_helper *helper, const struct pn_call *call,
		   const struct pn_call_result *result)
{
	struct pn_call_buffer *buffer = result->buffer;
	uint64_t now = pn_device_now(helper->device);

	cancel_job(helper, buffer);
	buffer->ready_ns = 0;
	buffer->ncopied = call->copied ? buffer->ncopied + 1 : 0;
	if (is_always_copied(helper, buffer)) {
		leave_copied(helper, buffer);
		return;
	}
	if (result->irregular || held_back(helper) ||
	    atomic_load_explicit(&helper->idle, memory_order_relaxed))
		return;
	if (buffer->deadline_ns && !can_return_in_time(helper, buffer, now)) {
		pn_count(&helper->stats.kept, 1);
		lease(helper, buffer);
		return;
	}
	if (can_afford(helper, buffer, now))
		drop_buffer(helper, buffer);
	else
		pn_count(&helper->stats.aside, 1);
}

/* What a call lost because it had to register its buffer itself. */
static uint64_t delay_of(const struct pn_helper *helper,
			 const struct pn_call *call)
{
	const struct pn_call_buffer *buffer =
		pn_callsites_find(helper->sites, call->range);

	if (call->copied || (buffer && buffer->ready_ns <= call->time_ns))
		return 0;
	return buffer ? pn_helper_register_ns(helper, buffer)
		      : pn_helper_register_bytes_ns(helper, call->range.len);
}

static bool handle_done_call(struct pn_helper *helper)
{
	struct pn_call_result result;
	struct pn_caller *caller;
	struct pn_call call;

	if (!pn_callers_take_done(helper, &call, &caller))
		return false;
	if (!caller->sequence)
		caller->sequence = pn_call_sequence_alloc(helper->sites);
	pn_callsites_set_costs(
		helper->sites, pn_cost(&helper->device->costs.register_ns),
		pn_cost(&helper->device->costs.register_page_ns));
	if (!helper->losses.start_ns)
		helper->losses.start_ns = call.time_ns;
	call.delay_ns = delay_of(helper, &call);
	if (caller->sequence &&
	    !pn_callsites_add_call(caller->sequence, &call, &result)) {
		result.buffer->last_call_ns = call.time_ns;
		count_call(helper, &call, &result);
		pn_losses_used(&helper->losses, result.buffer, call.delay_ns);
		decide(helper, &call, &result);
	}
	return true;
}

static bool end_lease(struct pn_helper *helper, uint64_t now)
{
	struct pn_job *job = pn_job_queue_first(&helper->leases);
	struct pn_call_buffer *buffer;

	if (!job || now < job->due_ns)
		return false;
	buffer = buffer_of(job);
	cancel_job(helper, buffer);
	if (deregister_buffer(helper, buffer))
		pn_count(&helper->stats.expired, 1);
	return true;
}

/* When the first job has to begin or the first lease ends. */
static uint64_t next_time(struct pn_helper *helper)
{
	struct pn_job *job = pn_job_queue_first(&helper->jobs);
	struct pn_job *leased = pn_job_queue_first(&helper->leases);
	uint64_t when = leased ? leased->due_ns : PN_FOREVER, work;

	if (!job)
		return when;
	work = pn_helper_job_ns(helper, buffer_of(job));
	if (job->due_ns <= work)
		return 0;
	return job->due_ns - work < when ? job->due_ns - work : when;
}

uint64_t pn_helper_step(struct pn_helper *helper)
{
	uint64_t now = pn_device_now(helper->device);

	if (run_job(helper, now) || handle_done_call(helper) ||
	    register_posted(helper) || end_lease(helper, now)) {
		helper->active_ns = pn_device_now(helper->device);
		return helper->active_ns;
	}
	return next_time(helper);
}

void pn_helper_query(struct pn_helper *helper, struct pinion_helper_stats *out)
{
#define READ(field)                                         \
	.field = atomic_load_explicit(&helper->stats.field, \
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
		READ(copied),
		READ(aside),
		READ(wake_ns),
		READ(buffers),
		READ(sites),
		.idle = atomic_load(&helper->idle),
		.members = atomic_load(&helper->members),
		.held_back = held_back(helper),
	};
#undef READ
}
