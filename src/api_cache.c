/* SPDX-License-Identifier: BSD-2-Clause */
/* The public calls of pinion/cache.h. */
#include <pinion/cache.h>

#include <errno.h>
#include <string.h>

#include "base/cancel.h"
#include "base/sized.h"
#include "context.h"
#include "monitor/monitor.h"

/* Why a handle cannot be used; 0: it can. */
static int unusable(const struct pinion_context *context)
{
	if (!context)
		return -EINVAL;
	return pn_context_foreign(context) ? -EPERM : 0;
}

/* The cache itself refuses a foreign context (after fork), so a hit need not
 * check. */
int pinion_pin(struct pinion_context *context, void *addr, size_t len,
	       unsigned flags, struct pinion_pin *pin)
{
	if (pn_unlikely(!context || !pin))
		return -EINVAL;
	return pn_cache_pin(context->cache, addr, len, flags, pin);
}

int pinion_pin_list(struct pinion_context *context, const struct iovec *buffers,
		    unsigned n, unsigned flags, struct pinion_pin *pins)
{
	PN_NO_CANCEL();
	int ret = unusable(context);

	if (ret)
		return ret;
	if (n && (!buffers || !pins))
		return -EINVAL;
	return pn_cache_pin_list(context->cache, buffers, n, flags, pins);
}

int pinion_pin_start(struct pinion_context *context, void *addr, size_t len,
		     unsigned flags, struct pinion_pin *pin)
{
	PN_NO_CANCEL();
	int ret = unusable(context);

	if (ret)
		return ret;
	return pin ? pn_cache_pin_start(context->cache, addr, len, flags, pin)
		   : -EINVAL;
}

int pinion_pin_test(struct pinion_context *context, struct pinion_pin *pin)
{
	PN_NO_CANCEL();
	int ret = unusable(context);

	if (ret)
		return ret;
	return pin ? pn_cache_pin_test(context->cache, pin) : -EINVAL;
}

int pinion_pin_wait(struct pinion_context *context, struct pinion_pin *pin)
{
	int ret = unusable(context);

	if (ret)
		return ret;
	return pin ? pn_cache_pin_wait(context->cache, pin) : -EINVAL;
}

int pinion_pin_segment(const struct pinion_pin *pin, unsigned index,
		       struct pinion_pin_segment *segment)
{
	if (!pin || !segment)
		return -EINVAL;
	return pn_cache_pin_segment(pin, index, segment);
}

void pinion_unpin(struct pinion_context *context, struct pinion_pin *pin)
{
	if (pn_likely(context && pin))
		pn_cache_unpin_now(context->cache, pin);
}

void pinion_invalidate(const void *addr, size_t len)
{
	pn_monitor_invalidate((uintptr_t)addr, len);
}

int pinion_cache_flush(struct pinion_context *context)
{
	PN_NO_CANCEL();
	int ret = unusable(context);

	for (unsigned r = 0; !ret && r < context->nrails; r++)
		pn_cache_flush(context->caches[r]);
	return ret;
}

int pinion_cache_revoke(struct pinion_context *context, const void *addr,
			size_t len)
{
	PN_NO_CANCEL();
	int ret = unusable(context);

	for (unsigned r = 0; !ret && r < context->nrails; r++)
		ret = pn_cache_revoke(context->caches[r], (uintptr_t)addr, len);
	return ret;
}

int pinion_cache_resize(struct pinion_context *context, size_t max_bytes,
			size_t max_regions)
{
	PN_NO_CANCEL();
	int ret = unusable(context);

	if (ret)
		return ret;
	pn_budget_resize(&context->budget, max_bytes, max_regions);
	for (unsigned r = 0; r < context->nrails; r++)
		pn_cache_trim(context->caches[r]);
	return 0;
}

/* Sums the counters of the caches of all rails. The budget is one. */
static void query_rails(struct pinion_context *context,
			struct pinion_cache_stats *out)
{
	const size_t first = offsetof(struct pinion_cache_stats, hits);
	const size_t last = offsetof(struct pinion_cache_stats, peak_bytes);

	pn_cache_query(context->cache, out);
	for (unsigned r = 1; r < context->nrails; r++) {
		struct pinion_cache_stats more;

		pn_cache_query(context->caches[r], &more);
		for (size_t at = first; at < last; at += sizeof(uint64_t)) {
			uint64_t a, b;

			memcpy(&a, (char *)out + at, sizeof(a));
			memcpy(&b, (char *)&more + at, sizeof(b));
			a += b;
			memcpy((char *)out + at, &a, sizeof(a));
		}
	}
}

int pinion_cache_query(struct pinion_context *context,
		       struct pinion_cache_stats *stats)
{
	PN_NO_CANCEL();
	struct pinion_cache_stats full;
	int ret = unusable(context);

	if (ret)
		return ret;
	if (!stats || !stats->size)
		return -EINVAL;
	query_rails(context, &full);
	pn_sized_answer(stats, &full, sizeof(full));
	return 0;
}
