/* SPDX-License-Identifier: BSD-2-Clause */
/* The public calls of pinion/helper.h. */
#include <pinion/helper.h>

#include <errno.h>

#include "base/cancel.h"
#include "base/log.h"
#include "base/sized.h"
#include "context.h"
#include "helper/cores.h"
#include "helper/frames.h"

int pinion_site_set(const char *name)
{
	if (pn_process_is_unusable())
		return -EPERM;
	return pn_frames_set_name(name);
}

int pinion_helper_query(struct pinion_context *context,
			struct pinion_helper_stats *stats)
{
	PN_NO_CANCEL();
	struct pinion_helper_stats full = { 0 };

	if (!context || !stats || !stats->size)
		return -EINVAL;
	if (!pn_context_usable(context))
		return -EPERM;
	if (context->helper)
		pn_helper_query(context->helper, &full);
	pn_sized_answer(stats, &full, sizeof(full));
	return 0;
}

/* What the helper may cost a program. Predictions are the larger part of it. */
#define MAX_LOSS_PERCENT 1

/* The policy `own` needs no core assignment. The others look at the cores and
 * at the helper registry. If that fails, `auto` means no helper; any other
 * policy reports the error. */
static int join_registry(struct pn_helper *helper, enum pn_share_policy policy)
{
	struct pn_cores cores;
	struct pn_helper_registry *registry;
	int ret;

	if (policy == PN_SHARE_OWN)
		return 0;
	ret = pn_cores_mine(&cores);
	if (!ret)
		ret = pn_helper_registry_join(NULL, &cores, &registry);
	if (!ret)
		pn_helper_join_registry(helper, registry, policy);
	return ret;
}

int pn_context_open_helper(struct pinion_context *context)
{
	const struct pn_config *config = &context->config;
	enum pn_share_policy policy = (enum pn_share_policy)config->helper;
	struct pn_helper_attr attr = {
		.nrails = context->nrails,
		.threshold = config->helper_threshold,
		.predictor = (enum pn_predictor)config->helper_predictor,
		.window = (unsigned)config->helper_window,
		.patience = (double)config->helper_patience,
		.frames = true,
		.loss_percent = MAX_LOSS_PERCENT,
		.stats_owner = pn_context_stats_owner(context),
	};
	int ret;

	/* In virtual time the simulation runs a helper. */
	if (context->helper || policy == PN_SHARE_OFF ||
	    context->device->caps & PN_CAP_VIRTUAL_TIME)
		return 0;
	for (unsigned r = 0; r < context->nrails; r++)
		attr.rails[r] = (struct pn_helper_rail){ context->devices[r],
							 context->caches[r] };
	ret = pn_helper_open(&attr, &context->helper);
	if (ret)
		return ret;
	if (pn_cache_notices_early(context->cache))
		pn_warn("the helper holds back: userfaultfd reports madvise() "
			"before it takes effect; load pinion at program start "
			"(LD_PRELOAD)");
	if (!pn_cache_keeps(context->cache))
		pn_warn("the helper holds back: nothing stays registered "
			"between uses (%s)",
			context->device->caps & PN_CAP_BY_ADDRESS &&
					!config->cuda_keep
				? "cuda_keep is no"
				: "the monitor's mode is bypass");
	ret = join_registry(context->helper, policy);
	if (!ret)
		ret = pn_helper_start(context->helper);
	/* Last: other threads may pin, and record, from here on. */
	if (!ret)
		ret = pn_helper_pins_open(context->helper, context->cache,
					  &context->helper_pins);
	if (ret)
		pn_context_close_helper(context);
	return policy == PN_SHARE_AUTO ? 0 : ret;
}

void pn_context_close_helper(struct pinion_context *context)
{
	pn_helper_pins_close(context->helper_pins);
	context->helper_pins = NULL;
	pn_helper_close(context->helper);
	context->helper = NULL;
}
