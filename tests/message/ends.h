/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ends -- endpoints of this process over `soft`, made by the public calls.
 *
 * A pair is two that know each other; both are driven by one thread, in turns.
 */
#ifndef PN_TESTS_ENDS_H
#define PN_TESTS_ENDS_H

#include "test.h"

#include <errno.h>

#include <pinion/pinion.h>

#include "base/clock.h"
#include "context.h"
#include "message/message.h"

struct end {
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	struct pinion_address address;
};

static inline void end_open(struct end *end, const char *option)
{
	const char *const options[] = { "log=none", option, NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };

	assert_ok(pinion_open(&attr, &end->context));
	assert_ok(pinion_endpoint_open(end->context, NULL, &end->ep));
	assert_ok(pinion_endpoint_address(end->ep, &end->address));
}

static inline void end_close(struct end *end)
{
	pn_endpoint_check(end->ep);
	pinion_endpoint_close(end->ep);
	pinion_close(end->context);
}

/* Soon: the cache's worker may still be deregistering the last ones. */
static inline void assert_nothing_pinned(struct end *end)
{
	uint64_t deadline = pn_clock_ns() + 60 * PN_NS_PER_S;

	pn_cache_flush(end->context->cache);
	while (atomic_load(&end->context->budget.bytes))
		assert_true(pn_clock_ns() < deadline);
}

/* Two endpoints of this process that know each other. */
struct pair {
	struct end a, b;
	struct pinion_peer *to_a, *to_b;
};

static inline void pair_open(struct pair *pair, const char *option)
{
	end_open(&pair->a, option);
	end_open(&pair->b, option);
	assert_ok(pinion_peer_add(pair->a.ep, &pair->b.address, &pair->to_b));
	assert_ok(pinion_peer_add(pair->b.ep, &pair->a.address, &pair->to_a));
}

static inline void pair_close(struct pair *pair)
{
	end_close(&pair->a);
	end_close(&pair->b);
}

static inline void pair_progress(struct pair *pair)
{
	pinion_poll(pair->a.ep, NULL, 0, 0);
	pinion_poll(pair->b.ep, NULL, 0, 0);
}

/* Waits for the end of a request while the other endpoint makes progress, too.
 */
static inline struct pinion_completion finish(struct pair *pair,
					      struct pinion_endpoint *ep,
					      struct pinion_request *request)
{
	uint64_t deadline = pn_clock_ns() + 60 * PN_NS_PER_S;
	struct pinion_completion end;

	while (pinion_test(ep, request, &end) == -EAGAIN) {
		pair_progress(pair);
		assert_true(pn_clock_ns() < deadline);
	}
	pn_endpoint_check(pair->a.ep);
	pn_endpoint_check(pair->b.ep);
	return end;
}

#endif
