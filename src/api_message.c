/* SPDX-License-Identifier: BSD-2-Clause */
/* The public calls of pinion/message.h. */
#include <pinion/message.h>

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "api_endpoint.h"
#include "base/cancel.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/range.h"
#include "base/sized.h"
#include "context.h"
#include "device/measure.h"
#include "device/registrar/registrar.h"
#include "helper/cores.h"
#include "message/connection/connection.h"
#include "message/endpoint/endpoint.h"

static bool power_of_two(uint64_t n)
{
	return !(n & (n - 1));
}

static void fill_attr(struct pinion_context *context,
		      struct pn_endpoint_attr *attr)
{
	const struct pn_config *config = &context->config;

	*attr = (struct pn_endpoint_attr){
		.nrails = context->nrails,
		.either = pn_device_spec_is_alternatives(config->device),
		.budget = &context->budget,
		.helper = context->helper,
		.protocol = config->protocol,
		.limits = { .eager_bytes = config->eager_limit,
			    .match_bytes = config->match_bytes,
			    .rdma_offset = config->rdma_offset,
			    .fragment_bytes = config->fragment,
			    .segment_bytes = config->segment,
			    .depth = (unsigned)config->depth },
		.rail_timeout_ns = config->rail_timeout,
		.unexpected_limit = config->unexpected_limit,
		.reuse = { .mode = (enum pn_reuse_mode)config->reuse,
			   .share = (unsigned)config->reuse_share,
			   .min_bytes = config->reuse_min },
		.pages = pn_context_pages(context),
		.stats_owner = pn_context_stats_owner(context),
	};
	for (unsigned r = 0; r < context->nrails; r++) {
		attr->rails[r].device = context->devices[r];
		attr->rails[r].cache = context->caches[r];
	}
}

/* Costs could not be measured: protocols are chosen by typical ones. */
static void assume_costs(struct pn_device *device, int why)
{
	pn_device_assume_costs(device);
	if (why == -ENOMEM)
		pn_warn("%s: no memory can be pinned now, so costs are assumed "
			"and messages are copied: raise `ulimit -l` "
			"(RLIMIT_MEMLOCK; for soft counted over all processes "
			"of the user), give CAP_IPC_LOCK, or set max_bytes "
			"higher",
			device->ops->kind);
	else
		pn_warn("%s: costs cannot be measured (%s) and are assumed",
			device->ops->kind, strerror(-why));
}

/* The costs of the devices of a spec are measured once in a process: for a
 * thousand endpoints it would take ten seconds. */
static struct pn_mutex measured_lock = { PTHREAD_MUTEX_INITIALIZER };
static struct {
	char spec[PN_OPTION_TEXT_BYTES]; /* the last that was measured */
	struct pn_costs costs[PN_RAILS_MAX];
} measured PN_GUARDED_BY(&measured_lock);

/* pn_try_lock(), since a forked child may find the lock held for ever. */
static bool recall_costs(struct pinion_context *context, unsigned rail)
{
	struct pn_costs *costs = &context->devices[rail]->costs;

	if (!pn_try_lock(&measured_lock))
		return false;
	if (!strcmp(measured.spec, context->config.device))
		*costs = measured.costs[rail];
	pn_unlock(&measured_lock);
	return costs->put_ns > 0;
}

static void remember_costs(const struct pinion_context *context)
{
	if (!pn_try_lock(&measured_lock))
		return;
	strcpy(measured.spec, context->config.device);
	for (unsigned r = 0; r < context->nrails; r++)
		measured.costs[r] = context->devices[r]->costs;
	pn_unlock(&measured_lock);
}

/* Only before a device is first used: measuring polls the device, and would
 * take the packets of peers if an endpoint is opened again. */
static void measure_rails(struct pinion_context *context)
{
	bool any_measured = false, all_measured = true;

	for (unsigned r = 0; r < context->nrails; r++) {
		struct pn_device *device = context->devices[r];
		int ret;

		if (device->costs.put_ns > 0 || recall_costs(context, r))
			continue;
		ret = pn_device_measure(device, NULL);
		if (ret) {
			assume_costs(device, ret);
			all_measured = false;
		}
		any_measured = true;
	}
	if (any_measured && all_measured)
		remember_costs(context);
}

/* --- opening and closing -------------------------------------------------- */

/* One thread, or task in virtual time, at a time opens or closes an endpoint:
 * it measures, opens the helper, and takes the context's devices. This is not a
 * mutex, since the device is called meanwhile. */
static void enter(struct pinion_context *context)
{
	uint32_t nobody = 0;

	while (!atomic_compare_exchange_strong(&context->entered, &nobody, 1)) {
		pn_device_futex_wait(context->device, &context->entered, 1);
		nobody = 0;
	}
}

static void leave(struct pinion_context *context)
{
	atomic_store(&context->entered, 0);
	pn_device_futex_wake(context->device, &context->entered);
}

static void close_rails(const struct pn_endpoint_attr *attr, unsigned n)
{
	while (n--)
		pn_device_close(attr->rails[n].device);
}

/* The first endpoint uses the devices of the context; a further one has its
 * own, in the same domain. */
static int share_devices(struct pinion_context *context,
			 struct pn_endpoint_attr *attr)
{
	struct pn_device_attr device = { .pages = attr->pages };

	for (unsigned r = 0; r < attr->nrails; r++) {
		int ret = pn_device_open_shared(context->devices[r], &device,
						&attr->rails[r].device);

		if (!ret)
			continue;
		close_rails(attr, r);
		if (ret == -EOPNOTSUPP)
			pn_error("devices of kind %s cannot share their "
				 "registrations: a context on them has one "
				 "endpoint; open another context for another",
				 context->devices[r]->ops->kind);
		return ret;
	}
	attr->owns_devices = true;
	return 0;
}

static int open_on_devices(struct pinion_context *context,
			   struct pn_endpoint_attr *attr,
			   struct pinion_endpoint **out)
{
	int ret = context->devices_taken ? share_devices(context, attr) : 0;

	if (ret)
		return ret;
	ret = pn_endpoint_open(attr, out);
	if (ret && attr->owns_devices)
		close_rails(attr, attr->nrails);
	if (!ret && !attr->owns_devices)
		context->devices_taken = true;
	return ret;
}

static void add_endpoint(struct pinion_context *context,
			 struct pinion_endpoint *ep)
{
	ep->context = context;
	context->nendpoints++;
	pn_lock(&context->lock);
	pn_list_append(&context->endpoints, &ep->context_link);
	pn_unlock(&context->lock);
}

/* --- who makes progress --------------------------------------------------- */

#define PROGRESS_FLAGS                                \
	((uint64_t)(PINION_ENDPOINT_PROGRESS_CALLER | \
		    PINION_ENDPOINT_PROGRESS_THREAD | \
		    PINION_ENDPOINT_PROGRESS_AUTO))
#define ENDPOINT_FLAGS \
	((uint64_t)PINION_ENDPOINT_SINGLE_THREADED | PROGRESS_FLAGS)

static enum pn_config_progress asked_progress(
	const struct pinion_context *context, uint64_t flags)
{
	if (flags & PINION_ENDPOINT_PROGRESS_CALLER)
		return PN_CONFIG_PROGRESS_CALLER;
	if (flags & PINION_ENDPOINT_PROGRESS_THREAD)
		return PN_CONFIG_PROGRESS_THREAD;
	if (flags & PINION_ENDPOINT_PROGRESS_AUTO)
		return PN_CONFIG_PROGRESS_AUTO;
	return (enum pn_config_progress)context->config.progress;
}

/* Whether a thread can serve these devices, and there is a core for it. */
static bool thread_pays(const struct pinion_context *context)
{
	struct pn_cores cores = { { 0 } };
	long nmachine = sysconf(_SC_NPROCESSORS_ONLN);

	for (unsigned r = 0; r < context->nrails; r++)
		if (!(context->devices[r]->caps & PN_CAP_FD))
			return false;
	return !pn_cores_mine(&cores) &&
	       pn_progress_has_core(pn_cores_count(&cores),
				    nmachine > 0 ? (unsigned)nmachine : 1,
				    context->budget.nprocesses);
}

static void set_progress(const struct pinion_context *context,
			 const struct pinion_endpoint_attr *given,
			 struct pn_endpoint_attr *attr)
{
	enum pn_config_progress who = asked_progress(context, given->flags);

	attr->progress_thread =
		who == PN_CONFIG_PROGRESS_THREAD ||
		(who == PN_CONFIG_PROGRESS_AUTO && thread_pays(context));
	attr->progress = given->progress;
	attr->progress_arg = given->progress_arg;
}

/* All flags are known, and at most one says who makes progress. */
static bool endpoint_flags_valid(uint64_t flags)
{
	uint64_t who = flags & PROGRESS_FLAGS;

	return !(flags & ~ENDPOINT_FLAGS) && power_of_two(who);
}

static int open_endpoint(struct pinion_context *context,
			 const struct pinion_endpoint_attr *given,
			 struct pinion_endpoint **out)
{
	struct pn_endpoint_attr attr;
	int ret;

	/* The length of fragments follows from the cost of registering. */
	measure_rails(context);
	ret = pn_context_open_helper(context);
	if (ret)
		return ret;
	fill_attr(context, &attr);
	attr.single_threaded = given->flags & PINION_ENDPOINT_SINGLE_THREADED;
	set_progress(context, given, &attr);
	ret = open_on_devices(context, &attr, out);
	if (!ret)
		add_endpoint(context, *out);
	return ret;
}

int pinion_endpoint_open(struct pinion_context *context,
			 const struct pinion_endpoint_attr *given,
			 struct pinion_endpoint **out)
{
	PN_NO_CANCEL();
	struct pinion_endpoint_attr attr = { .size = sizeof(attr) };
	int ret = given ? pn_sized_copy(&attr, sizeof(attr), given) : 0;

	if (ret)
		return ret;
	if (!pn_context_usable(context) || !out ||
	    !endpoint_flags_valid(attr.flags))
		return -EINVAL;
	if (!pn_device_has_messages(context->device)) {
		pn_error("pinion_endpoint_open: this context was opened with a "
			 "%s, which has no messages: they need an adapter",
			 context->device->ops->kind);
		return -EOPNOTSUPP;
	}
	if (!power_of_two(context->config.segment)) {
		pn_error("segment is %llu; give a power of two, or 0",
			 (unsigned long long)context->config.segment);
		return -EINVAL;
	}
	enter(context);
	ret = open_endpoint(context, &attr, out);
	leave(context);
	return pn_limits_explain(ret, "open an endpoint");
}

static void close_endpoint(struct pinion_endpoint *ep)
{
	struct pinion_context *context = ep->context;
	bool has_ours = !ep->owns_devices;

	pn_lock(&context->lock);
	pn_list_remove(&ep->context_link);
	pn_unlock(&context->lock);
	/* May take a second; other endpoints may open and close meanwhile. */
	pn_endpoint_close(ep);
	enter(context);
	context->nendpoints--;
	if (has_ours)
		context->devices_taken = false;
	leave(context);
}

void pn_context_close_endpoints(struct pinion_context *context)
{
	while (!pn_list_empty(&context->endpoints))
		close_endpoint(pn_container_of(context->endpoints.next,
					       struct pinion_endpoint,
					       context_link));
}

void pinion_endpoint_close(struct pinion_endpoint *ep)
{
	PN_NO_CANCEL();
	if (pn_endpoint_usable(ep))
		close_endpoint(ep);
}

int pinion_endpoint_address(struct pinion_endpoint *ep,
			    struct pinion_address *out)
{
	if (!pn_endpoint_usable(ep) || !out)
		return -EINVAL;
	pn_endpoint_address(ep, out);
	return 0;
}

int pinion_peer_add(struct pinion_endpoint *ep,
		    const struct pinion_address *address,
		    struct pinion_peer **out)
{
	PN_NO_CANCEL();
	if (!pn_endpoint_usable(ep) || !address || !out)
		return -EINVAL;
	return pn_endpoint_peer(ep, address, out);
}

int pinion_peer_address(const struct pinion_peer *peer,
			struct pinion_address *out)
{
	if (!peer || !out)
		return -EINVAL;
	pn_peer_address(peer, out);
	return 0;
}

#define SEND_FLAGS \
	((uint64_t)(PINION_MESSAGE_DATA | PINION_MESSAGE_DELIVERY_COMPLETE))

/* The peer, if any, belongs to this endpoint, and all flags are known. */
static bool header_valid(const struct pinion_endpoint *ep,
			 const struct pinion_message *m, uint64_t flags)
{
	return pn_endpoint_usable(ep) && !(m->flags & ~flags) && !m->reserved &&
	       m->space <= UINT8_MAX && (!m->peer || m->peer->ep == ep);
}

static bool message_valid(const struct pinion_endpoint *ep,
			  const struct pinion_message *m, uint64_t flags)
{
	return header_valid(ep, m, flags) &&
	       (!m->len || pn_range_valid((uintptr_t)m->buf, m->len));
}

static bool request_valid(const struct pinion_endpoint *ep,
			  const struct pinion_request *request)
{
	return pn_endpoint_usable(ep) && request && request->ep == ep;
}

void pinion_peer_prefetch(const struct pinion_peer *peer, size_t len)
{
	if (pn_likely(peer))
		pn_peer_prefetch(peer, len);
}

/* A message struct of another size is copied into one of ours. A function of
 * its own, so that the usual case needs no stack frame for the copy. */
static PN_NOINLINE int send_other_size(struct pinion_endpoint *ep,
				       const struct pinion_message *message,
				       struct pinion_request **out)
{
	struct pinion_message own;
	int ret = pn_sized_copy(&own, sizeof(own), message);

	return ret ? ret : pinion_send(ep, &own, out);
}

int pinion_send(struct pinion_endpoint *ep,
		const struct pinion_message *message,
		struct pinion_request **out)
{
	if (pn_unlikely(!pn_sized_is(message, sizeof(*message))))
		return send_other_size(ep, message, out);
	if (!message_valid(ep, message, SEND_FLAGS) || !message->peer)
		return -EINVAL;
	return pn_endpoint_send(ep, message, out);
}

static PN_NOINLINE int inject_other_size(struct pinion_endpoint *ep,
					 const struct pinion_message *message)
{
	struct pinion_message own;
	int ret = pn_sized_copy(&own, sizeof(own), message);

	return ret ? ret : pinion_inject(ep, &own);
}

int pinion_inject(struct pinion_endpoint *ep,
		  const struct pinion_message *message)
{
	if (pn_unlikely(!pn_sized_is(message, sizeof(*message))))
		return inject_other_size(ep, message);
	if (!message_valid(ep, message, PINION_MESSAGE_DATA) || !message->peer)
		return -EINVAL;
	return pn_endpoint_inject(ep, message);
}

/* The struct is written to, so it cannot be replaced by a copy. */
static PN_NOINLINE int recv_multi(struct pinion_endpoint *ep,
				  const struct pinion_message *message,
				  struct pinion_request **out)
{
	const struct pinion_multi_recv *multi = message->multi_recv;
	struct pinion_multi_recv own;
	int ret;

	if (out || (multi->size && multi->size < sizeof(own)))
		return -EINVAL;
	ret = pn_sized_copy(&own, sizeof(own), multi);
	return ret ? ret : pn_endpoint_recv(ep, message, out);
}

static PN_NOINLINE int recv_other_size(struct pinion_endpoint *ep,
				       const struct pinion_message *message,
				       struct pinion_request **out)
{
	struct pinion_message own;
	int ret = pn_sized_copy(&own, sizeof(own), message);

	return ret ? ret : pinion_recv(ep, &own, out);
}

int pinion_recv(struct pinion_endpoint *ep,
		const struct pinion_message *message,
		struct pinion_request **out)
{
	if (pn_unlikely(!pn_sized_is(message, sizeof(*message))))
		return recv_other_size(ep, message, out);
	if (!message_valid(ep, message, 0))
		return -EINVAL;
	return pn_unlikely(message->multi_recv)
		       ? recv_multi(ep, message, out)
		       : pn_endpoint_recv(ep, message, out);
}

int pinion_probe(struct pinion_endpoint *ep,
		 const struct pinion_message *message,
		 struct pinion_completion *out,
		 struct pinion_unexpected **unexpected)
{
	struct pinion_message own;
	int ret;

	message = pn_sized_use(message, &own, sizeof(own), &ret);
	if (pn_unlikely(!message))
		return ret;
	if (!header_valid(ep, message, 0))
		return -EINVAL;
	return pn_endpoint_probe(ep, message, out, unexpected);
}

int pinion_recv_unexpected(struct pinion_endpoint *ep,
			   struct pinion_unexpected *unexpected,
			   const struct pinion_message *message,
			   struct pinion_request **out)
{
	struct pinion_message own;
	int ret;

	message = pn_sized_use(message, &own, sizeof(own), &ret);
	if (pn_unlikely(!message))
		return ret;
	if (!message_valid(ep, message, 0) || message->multi_recv ||
	    !unexpected || unexpected->peer->ep != ep)
		return -EINVAL;
	return pn_endpoint_recv_unexpected(ep, unexpected, message, out);
}

int pinion_cancel(struct pinion_endpoint *ep, struct pinion_request *request)
{
	if (!request_valid(ep, request))
		return -EINVAL;
	return pn_endpoint_cancel(ep, request);
}

int pinion_recv_cancel(struct pinion_endpoint *ep, const void *user)
{
	return pn_endpoint_usable(ep) ? pn_endpoint_cancel_user(ep, user)
				      : -EINVAL;
}

int pinion_test(struct pinion_endpoint *ep, struct pinion_request *request,
		struct pinion_completion *out)
{
	if (!request_valid(ep, request))
		return -EINVAL;
	return pn_endpoint_test(ep, request, out);
}

static uint64_t deadline_in(struct pinion_endpoint *ep, uint64_t timeout_us)
{
	uint64_t ns;

	if (timeout_us == PINION_FOREVER ||
	    __builtin_mul_overflow(timeout_us, PN_NS_PER_US, &ns) ||
	    __builtin_add_overflow(ns, pn_device_now(ep->device), &ns))
		return PN_FOREVER;
	return ns;
}

int pinion_wait(struct pinion_endpoint *ep, struct pinion_request *request,
		uint64_t timeout_us, struct pinion_completion *out)
{
	if (!request_valid(ep, request))
		return -EINVAL;
	return pn_endpoint_wait_until(ep, request, deadline_in(ep, timeout_us),
				      out);
}

/* For completions of another size, and for a caller that wants none. */
static PN_NOINLINE int poll_other_size(struct pinion_endpoint *ep, char *out,
				       size_t element_bytes, unsigned max)
{
	struct pinion_completion batch[16];
	size_t bytes =
		element_bytes < sizeof(*batch) ? element_bytes : sizeof(*batch);
	unsigned done = 0;
	int n;

	if (!pn_endpoint_usable(ep) || (max && (!out || !element_bytes)))
		return -EINVAL;
	do {
		n = pn_endpoint_poll(ep, batch,
				     max - done < PN_ARRAY_LEN(batch)
					     ? max - done
					     : PN_ARRAY_LEN(batch));
		for (int i = 0; i < n; i++, out += element_bytes) {
			memset(out, 0, element_bytes);
			memcpy(out, &batch[i], bytes);
		}
		done += (unsigned)n;
	} while (n == PN_ARRAY_LEN(batch) && done < max);
	return (int)done;
}

int pinion_poll(struct pinion_endpoint *ep, struct pinion_completion *out,
		size_t element_bytes, unsigned max)
{
	if (pn_unlikely(element_bytes != sizeof(*out) || !out ||
			!pn_endpoint_usable(ep)))
		return poll_other_size(ep, (char *)out, element_bytes, max);
	return pn_endpoint_poll(ep, out, max);
}

int pinion_endpoint_fd(struct pinion_endpoint *ep)
{
	PN_NO_CANCEL();
	return pn_endpoint_usable(ep)
		       ? pn_limits_explain(pn_endpoint_fd(ep),
					   "open a descriptor to wait on")
		       : -EINVAL;
}

int pinion_endpoint_arm(struct pinion_endpoint *ep)
{
	PN_NO_CANCEL();
	return pn_endpoint_usable(ep) ? pn_endpoint_arm(ep) : -EINVAL;
}

static void fill_stats(const struct pn_endpoint_stats *in,
		       struct pinion_endpoint_stats *out)
{
	*out = (struct pinion_endpoint_stats){
		.sent_eager = in->sent[PN_PROTOCOL_EAGER],
		.sent_copy = in->sent[PN_PROTOCOL_COPY],
		.sent_demand = in->sent[PN_PROTOCOL_DEMAND],
		.sent_cached = in->sent[PN_PROTOCOL_CACHED],
		.sent_pipeline = in->sent[PN_PROTOCOL_PIPELINE],
		.sent_caching_pipeline = in->sent[PN_PROTOCOL_CACHING_PIPELINE],
		.sent_read = in->sent[PN_PROTOCOL_READ],
		.sent_overlapped = in->sent[PN_PROTOCOL_OVERLAPPED],
		.received = in->received,
		.unexpected = in->unexpected,
		.copied_no_budget = in->copied_no_budget,
		.stalls = in->stalls,
		.explored = in->choices.explored,
		.predictions = in->choices.measured,
		.prediction_error = in->choices.mean_error,
		.sent_direct = in->direct,
		.chosen_in_flight = in->choices.in_flight,
		.protocol_changes = in->choices.changes,
	};
}

int pinion_endpoint_query(struct pinion_endpoint *ep,
			  struct pinion_endpoint_stats *stats)
{
	struct pn_endpoint_stats inner;
	struct pinion_endpoint_stats full;

	if (!pn_endpoint_usable(ep) || !stats || !stats->size)
		return -EINVAL;
	pn_endpoint_query(ep, &inner);
	fill_stats(&inner, &full);
	full.max_inject_bytes = ep->inject_below ? ep->inject_below - 1 : 0;
	pn_sized_answer(stats, &full, sizeof(full));
	return 0;
}
