/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/overhead.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "base/pages.h"
#include "bench/session.h"
#include "device/measure.h"
#include "helper/helper.h"
#include "message/endpoint/endpoint.h"

#define NOTES	  20000
#define WARMING	  20
#define TAG_TIMED 77

struct job {
	struct pn_overhead *recordings;
	size_t n;
};

/* --- a message, with notes or without ------------------------------------- */

/* One end: its helper gets records and never runs. */
struct end {
	struct pn_session *session;
	struct pn_helper *helper;
	size_t bytes;
	char *buffer;
};

static const struct pn_pages_policy present = { .numa_node = -1,
						.populate = true };

static int end_open(struct end *end, struct pn_session *session, size_t bytes)
{
	struct pn_helper_attr attr = { .rails = { { session->device,
						    session->context->cache } },
				       .window = 2,
				       .frames = true };
	void *buffer;
	int ret = pn_pages_map(bytes, &present, &buffer);

	if (ret)
		return ret;
	*end = (struct end){ .session = session,
			     .bytes = bytes,
			     .buffer = buffer };
	pn_endpoint_set_protocol(session->ep, PN_PROTOCOL_CACHED);
	ret = pn_helper_open(&attr, &end->helper);
	if (ret)
		pn_pages_unmap(buffer, bytes, &present);
	return ret;
}

static void end_close(struct end *end)
{
	end->session->ep->helper = NULL;
	pn_helper_close(end->helper);
	pn_pages_unmap(end->buffer, end->bytes, &present);
	pn_cache_flush(end->session->context->cache);
}

static unsigned messages_of(size_t bytes)
{
	return WARMING + (bytes < 1 << 20 ? 8000 : 3200);
}

/* Order: without, with, with, without, since the second of a pair finds warmer
 * caches. Both ends use the same order. */
static bool records_message(unsigned i)
{
	return (i ^ i >> 1) & 1;
}

static void run_pair(struct end *end, unsigned i)
{
	end->session->ep->helper = records_message(i) ? end->helper : NULL;
}

static int post(struct end *end, bool is_send, void *buf, size_t len,
		struct pinion_request **request)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = buf,
				    .len = len,
				    .tag = TAG_TIMED,
				    .peer = end->session->peer };

	return is_send ? pinion_send(end->session->ep, &m, request)
		       : pinion_recv(end->session->ep, &m, request);
}

/* Answers each message. The next receive is posted before the answer, so that
 * the next message is expected. */
static int answer_all(struct end *end)
{
	struct pinion_endpoint *ep = end->session->ep;
	unsigned n = messages_of(end->bytes);
	struct pinion_request *message, *answer;
	uint64_t word = 0;
	int ret;

	run_pair(end, 0);
	ret = post(end, false, end->buffer, end->bytes, &message);
	if (!ret) /* it begins */
		ret = pn_session_send(end->session, &word, sizeof(word));
	for (unsigned i = 0; i < n && !ret; i++) {
		ret = pinion_wait(ep, message, PINION_FOREVER, NULL);
		run_pair(end, i + 1);
		if (!ret && i + 1 < n)
			ret = post(end, false, end->buffer, end->bytes,
				   &message);
		if (!ret)
			ret = post(end, true, &word, sizeof(word), &answer);
		if (!ret)
			ret = pinion_wait(ep, answer, PINION_FOREVER, NULL);
	}
	return ret;
}

static int run_follower(struct pn_session *session, uint64_t bytes)
{
	struct end end;
	int ret = end_open(&end, session, bytes);

	if (ret)
		return ret;
	ret = answer_all(&end);
	end_close(&end);
	return ret;
}

static int time_one(struct end *end, unsigned i, double *us)
{
	struct pinion_endpoint *ep = end->session->ep;
	struct pinion_request *message, *answer;
	uint64_t word, start;
	int ret = post(end, false, &word, sizeof(word), &answer);

	run_pair(end, i);
	start = pn_device_now(end->session->device);
	if (!ret)
		ret = post(end, true, end->buffer, end->bytes, &message);
	if (!ret)
		ret = pinion_wait(ep, message, PINION_FOREVER, NULL);
	if (!ret)
		ret = pinion_wait(ep, answer, PINION_FOREVER, NULL);
	*us = pn_device_since(end->session->device, start) / 1e3;
	return ret;
}

static void sum_up(const double *us, unsigned n, double *samples,
		   struct pn_overhead *out)
{
	for (unsigned i = 0; i < n / 2; i++)
		samples[i] = us[2 * i + records_message(2 * i)];
	out->without_us = pn_median(samples, n / 2);
	for (unsigned i = 0; i < n / 2; i++)
		samples[i] = us[2 * i + !records_message(2 * i)];
	out->with_us = pn_median(samples, n / 2);
	for (unsigned i = 0; i < n / 2; i++)
		samples[i] = us[2 * i + !records_message(2 * i)] -
			     us[2 * i + records_message(2 * i)];
	out->percent = 100 * pn_median(samples, n / 2) / out->without_us;
}

static int time_all(struct end *end, struct pn_overhead *out)
{
	unsigned n = messages_of(out->bytes);
	double *us = calloc(n + n / 2, sizeof(*us));
	uint64_t ready;
	int ret = us ? pn_session_start_job(end->session, run_follower,
					    out->bytes)
		     : -ENOMEM;

	if (!ret)
		ret = pn_session_recv(end->session, &ready, sizeof(ready));
	for (unsigned i = 0; i < n && !ret; i++)
		ret = time_one(end, i, &us[i]);
	if (!ret)
		sum_up(us + WARMING, n - WARMING, us + n, out);
	free(us);
	return ret;
}

/* --- the notes by themselves ---------------------------------------------- */

/* At about the stack depth of a real message. */
static PN_NOINLINE void record_one(struct pn_helper *helper, const char *buffer)
{
	struct pn_call call = { .copied = false };

	pn_helper_post(helper, &call, PN_CALL_SEND, buffer, 1 << 20);
	pn_helper_done(helper, &call);
}

static double record_cost_ns(struct pn_helper *helper)
{
	struct timespec start, end;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
	for (int i = 0; i < NOTES; i++)
		record_one(helper, (const char *)helper);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
	return ((double)(end.tv_sec - start.tv_sec) * 1e9 +
		(double)(end.tv_nsec - start.tv_nsec)) /
	       NOTES;
}

static int measure(struct pn_session *session, struct pn_overhead *out)
{
	struct end end;
	int ret = end_open(&end, session, out->bytes);

	if (ret)
		return ret;
	out->record_cost_ns = record_cost_ns(end.helper);
	ret = time_all(&end, out);
	end_close(&end);
	return ret;
}

static int run_leader(struct pn_session *session, void *arg)
{
	struct job *job = arg;
	int ret = 0;

	for (size_t i = 0; i < job->n && !ret; i++)
		ret = measure(session, &job->recordings[i]);
	return ret;
}

int pn_overhead_measure(const struct pn_spec *spec,
			struct pn_overhead *recordings, size_t n)
{
	struct job job = { recordings, n };

	return pn_session_run(spec, run_leader, &job);
}
