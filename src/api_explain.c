/* SPDX-License-Identifier: BSD-2-Clause */
/* pinion_endpoint_explain() of pinion/message.h: the protocols that `auto`
 * considers for a message, and their predicted times. */
#include <errno.h>

#include "api_endpoint.h"
#include "base/sized.h"
#include "context.h"
#include "message/endpoint/endpoint.h"
#include "message/protocol/select.h"

/* The index-th protocol with a prediction; PN_PROTOCOL_COUNT: none. */
static int nth_weighed(const struct pn_prices *prices, int chosen,
		       unsigned index)
{
	int id;

	for (id = 0; id < PN_PROTOCOL_COUNT; id++)
		if ((id == chosen || prices->first[id] > 0) && !index--)
			break;
	return id;
}

/* A short message is sent eagerly, without a choice. */
static int explain_eager(const struct pinion_endpoint *ep,
			 const struct pinion_explain_attr *attr,
			 struct pn_prices *prices)
{
	const int id = PN_PROTOCOL_EAGER;
	double ns = pn_protocol_eager.cost(&ep->limits, &ep->device->costs,
					   attr->len, 0);

	*prices = (struct pn_prices){ 0 };
	prices->first[id] = prices->later[id] = ns;
	prices->plan[id] = ns * (double)attr->reuse;
	return id;
}

static int weigh(const struct pinion_endpoint *ep,
		 const struct pinion_explain_attr *attr,
		 struct pn_prices *prices, enum pn_trace_event_reason *reason)
{
	const struct pn_choice_input question = {
		.len = attr->len,
		.forecast.further = (double)attr->reuse - 1,
		.has_room = !(attr->flags & PINION_EXPLAIN_BUDGET_FULL),
	};

	const struct pn_predict_attr predict = {
		.limits = &ep->limits,
		.costs = &ep->device->costs,
		.len = attr->len,
		.level = (unsigned)attr->in_flight
	};

	int id;

	*reason = PN_BECAUSE_SHORT;
	if (pn_protocol_eager.applies(&ep->limits, attr->len))
		return explain_eager(ep, attr, prices);
	pn_protocol_selector_predict(&predict, prices);
	id = pn_protocol_selector_weigh(&question, &ep->device->costs, prices,
					reason);
	if (predict.level > 1)
		*reason = PN_BECAUSE_STREAM;
	return id;
}

int pinion_endpoint_explain(struct pinion_endpoint *ep,
			    const struct pinion_explain_attr *given,
			    unsigned index, struct pinion_explanation *out)
{
	struct pinion_explanation full;
	struct pinion_explain_attr attr;
	enum pn_trace_event_reason reason;
	struct pn_prices prices;
	int ret = pn_sized_copy(&attr, sizeof(attr), given);
	int chosen, id;

	if (ret)
		return ret;
	if (!pn_endpoint_usable(ep) || !out || !out->size ||
	    attr.flags & ~(uint64_t)PINION_EXPLAIN_BUDGET_FULL)
		return -EINVAL;
	attr.reuse += !attr.reuse;
	attr.in_flight += !attr.in_flight;
	if (attr.in_flight > UINT32_MAX)
		return -EINVAL;
	chosen = weigh(ep, &attr, &prices, &reason);
	id = nth_weighed(&prices, chosen, index);
	if (id == PN_PROTOCOL_COUNT)
		return -ENOENT;
	full = (struct pinion_explanation){
		.protocol = pn_protocol_name((unsigned)id),
		.chosen = id == chosen,
		.reason = id == chosen ? pn_choice_text(reason) : "",
		.first_ns = prices.first[id],
		.later_ns = prices.later[id],
		.mean_ns = prices.plan[id] / (double)attr.reuse,
	};
	pn_sized_answer(out, &full, sizeof(full));
	return 0;
}
