/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/recording.h"

#include <time.h>

#include "bench/talk.h"
#include "device/measure.h"
#include "helper/helper.h"
#include "message/message_impl.h"

#define ROUNDS 41
#define NOTES  20000

struct job {
	struct pn_recording *recordings;
	size_t n;
};

/* One trial: so many messages from one buffer that is registered after the
 * first. */
static int try_once(struct pn_talk *talk, struct pn_helper *helper,
		    size_t bytes, double *us)
{
	struct pn_talk_trial trial = { .protocol = PN_PROTOCOL_CACHED,
				       .bytes = bytes,
				       .buffers = 1,
				       .uses = bytes < 1 << 20 ? 200 : 20 };
	struct pn_talk_result result;
	int ret;

	talk->ep->helper = helper;
	ret = pn_talk_try(talk, &trial, &result);
	talk->ep->helper = NULL;
	*us = ret ? 0 : result.ns / 1e3;
	return ret;
}

static int measure(struct pn_talk *talk, struct pn_helper *helper,
		   struct pn_recording *out)
{
	double without[ROUNDS], with[ROUNDS], percent[ROUNDS];
	int ret = 0;

	for (int i = 0; i < ROUNDS && !ret; i++) {
		/* Whoever goes second finds the machine warmer. */
		if (i % 2)
			ret = try_once(talk, helper, out->bytes, &with[i]);
		if (!ret)
			ret = try_once(talk, NULL, out->bytes, &without[i]);
		if (!ret && !(i % 2))
			ret = try_once(talk, helper, out->bytes, &with[i]);
		percent[i] = ret ? 0 : 100 * (with[i] / without[i] - 1);
	}
	if (ret)
		return ret;
	out->without_us = pn_median(without, ROUNDS);
	out->with_us = pn_median(with, ROUNDS);
	out->percent = pn_median(percent, ROUNDS);
	return 0;
}

/* At the depth of the stack of a real message, more or less. */
static PN_NOINLINE void note_one(struct pn_helper *helper, const char *buffer)
{
	struct pn_call call;

	pn_helper_post(helper, &call, PN_CALL_SEND, buffer, 1 << 20);
	pn_helper_done(helper, &call);
}

static double note_ns(struct pn_helper *helper)
{
	struct timespec start, end;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
	for (int i = 0; i < NOTES; i++)
		note_one(helper, (const char *)helper);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
	return ((double)(end.tv_sec - start.tv_sec) * 1e9 +
		(double)(end.tv_nsec - start.tv_nsec)) /
	       NOTES;
}

static int lead(struct pn_talk *talk, void *arg)
{
	struct job *job = arg;
	struct pn_helper_attr attr = { .device = talk->device,
				       .cache = talk->context->cache,
				       .window = 2,
				       .frames = true };
	struct pn_helper *helper = NULL;
	int ret = pn_helper_open(&attr, &helper);

	for (size_t i = 0; i < job->n && !ret; i++) {
		job->recordings[i].note_ns = note_ns(helper);
		ret = measure(talk, helper, &job->recordings[i]);
	}
	pn_helper_close(helper);
	return ret;
}

int pn_recording_measure(const struct pn_spec *spec,
			 struct pn_recording *recordings, size_t n)
{
	struct job job = { recordings, n };

	return pn_talk_run(spec, lead, &job);
}
