/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lanes: streams of our own that the copies of one job go through. And marks:
 * how a participant learns that its copy has ended.
 *
 * All participants of a job share two streams. With a stream for each, the
 * order with the caller's stream would cost two calls for each of them, and
 * nothing would be faster (doc/design/cuda.md).
 *
 * A mark is a word of host memory that the GPU writes behind the copy
 * (cuStreamWriteValue32). Polling the word disturbs nobody, while polling an
 * event takes a lock of the driver that submitting needs. Without such writes a
 * mark is an event.
 */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "copy/copy_impl.h"

/* Most copies of a block end within it; after it the wait is for work that the
 * caller's stream had before. */
#define POLL_NS	 (300 * PN_NS_PER_US)
#define SLEEP_NS (20 * PN_NS_PER_US)
/* A held stream (request.c) whose copy does not move for so long, though
 * nothing is before it. */
#define STUCK_NS (2 * PN_NS_PER_S)

#define EVENT_FLAGS (PN_CU_EVENT_BLOCKING_SYNC | PN_CU_EVENT_DISABLE_TIMING)

/* --- lanes ---------------------------------------------------------------- */

static void lane_free(struct pn_copier *copier, struct pn_copy_lane *lane)
{
	for (unsigned i = 0; i < PN_COPY_NSTREAMS; i++)
		if (lane->streams[i])
			copier->cu->stream_destroy(lane->streams[i]);
	if (lane->order)
		copier->cu->event_destroy(lane->order);
	free(lane);
}

static struct pn_copy_lane *lane_alloc(struct pn_copier *copier,
				       pn_cu_result *result)
{
	const struct pn_cuda_driver *cu = copier->cu;
	struct pn_copy_lane *lane = calloc(1, sizeof(*lane));

	*result = PN_CUDA_ERROR_OUT_OF_MEMORY;
	if (!lane)
		return NULL;
	*result = cu->event_create(&lane->order, EVENT_FLAGS);
	for (unsigned i = 0; !*result && i < PN_COPY_NSTREAMS; i++)
		*result = cu->stream_create(&lane->streams[i],
					    PN_CU_STREAM_NON_BLOCKING);
	if (!*result)
		return lane;
	lane_free(copier, lane);
	return NULL;
}

/* An idle lane of the context. Lanes of an earlier context at its address are
 * forgotten: they went with it. */
static struct pn_copy_lane *find_locked(struct pn_copier *copier,
					const struct pn_copy_job *job)
	PN_REQUIRES(&copier->lock)
{
	struct pn_list *pos = copier->lanes.next;

	while (pos != &copier->lanes) {
		struct pn_copy_lane *lane =
			pn_container_of(pos, struct pn_copy_lane, link);

		pos = pos->next;
		if (lane->context != job->context)
			continue;
		pn_list_remove(&lane->link);
		if (lane->id == job->context_id)
			return lane;
		free(lane);
	}
	return NULL;
}

pn_cu_result pn_copy_lane_take(struct pn_copier *copier,
			       struct pn_copy_job *job)
{
	struct pn_copy_lane *lane;
	pn_cu_result ret = PN_CUDA_SUCCESS;

	pn_lock(&copier->lock);
	lane = find_locked(copier, job);
	pn_unlock(&copier->lock);
	if (!lane)
		lane = lane_alloc(copier, &ret);
	if (lane) {
		lane->context = job->context;
		lane->id = job->context_id;
	}
	job->lane = lane;
	return ret;
}

void pn_copy_lane_return(struct pn_copier *copier, struct pn_copy_job *job)
{
	pn_lock(&copier->lock);
	pn_list_insert(&copier->lanes, &job->lane->link);
	pn_unlock(&copier->lock);
	job->lane = NULL;
}

void pn_copy_lanes_close(struct pn_copier *copier)
{
	struct pn_list *link;

	while ((link = pn_list_pop(&copier->lanes)))
		lane_free(copier,
			  pn_container_of(link, struct pn_copy_lane, link));
}

/* --- waiting -------------------------------------------------------------- */

pn_cu_result pn_copy_event_wait(struct pn_copier *copier, pn_cu_event event)
{
	uint64_t until = pn_clock_ns() + POLL_NS;
	pn_cu_result ret;

	while ((ret = copier->cu->event_query(event)) ==
	       PN_CUDA_ERROR_NOT_READY) {
		if (pn_clock_ns() >= until)
			return copier->cu->event_synchronize(event);
		pn_relax();
	}
	return ret;
}

pn_cu_result pn_copy_mark_set(struct pn_copier *copier,
			      struct pn_copy_mark *mark, pn_cu_stream stream)
{
	const struct pn_cuda_driver *cu = copier->cu;
	pn_cu_result ret;

	mark->stream = stream;
	if (mark->at) {
		ret = cu->stream_write_value32(stream, mark->at,
					       mark->value + 1, 0);
		if (ret != PN_CUDA_ERROR_NOT_SUPPORTED) {
			mark->value += !ret;
			return ret;
		}
		mark->at = 0;
	}
	ret = cu->event_create(&mark->event, EVENT_FLAGS);
	return ret ? ret : cu->event_record(mark->event, stream);
}

static bool is_set(const struct pn_copy_mark *mark)
{
	return atomic_load_explicit(mark->word, memory_order_acquire) ==
	       mark->value;
}

/* Whether the copy waits for a stream that waits for the copy (request.c). */
static bool is_stuck(struct pn_copier *copier, const struct pn_copy_job *job,
		     uint64_t since_ns)
{
	return job->held_word && pn_clock_ns() - since_ns > STUCK_NS &&
	       (!job->order || !copier->cu->event_query(job->order));
}

static pn_cu_result sleep_for_word(struct pn_copier *copier,
				   const struct pn_copy_mark *mark,
				   const struct pn_copy_job *job)
{
	const struct timespec pause = { .tv_nsec = SLEEP_NS };
	uint64_t begin = pn_clock_ns();
	pn_cu_result ret = PN_CUDA_ERROR_NOT_READY;

	while (!is_set(mark)) {
		/* An error, or the word has just been written. */
		if (ret != PN_CUDA_ERROR_NOT_READY)
			return ret;
		nanosleep(&pause, NULL);
		ret = copier->cu->stream_query(mark->stream);
		if (is_stuck(copier, job, begin))
			return PN_COPY_STUCK;
	}
	return PN_CUDA_SUCCESS;
}

pn_cu_result pn_copy_mark_wait(struct pn_copier *copier,
			       struct pn_copy_mark *mark,
			       const struct pn_copy_job *job)
{
	uint64_t until = 0;
	pn_cu_result ret;

	if (!mark->at) {
		ret = pn_copy_event_wait(copier, mark->event);
		copier->cu->event_destroy(mark->event);
		return ret;
	}
	while (!is_set(mark)) {
		uint64_t now = pn_clock_ns();

		if (!until)
			until = now + POLL_NS;
		if (now >= until)
			return sleep_for_word(copier, mark, job);
		for (int i = 0; i < 8; i++)
			pn_relax();
	}
	return PN_CUDA_SUCCESS;
}
