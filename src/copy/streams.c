/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Streams of our own that the copies of one job go through, and completions:
 * how a participant learns that its copy has ended.
 *
 * All participants of a job share two streams. With a stream for each, the
 * order with the caller's stream would cost two calls for each of them, and
 * nothing would be faster (doc/design/cuda.md).
 *
 * A completion is a word of host memory that the GPU writes behind the copy
 * (cuStreamWriteValue32). Polling the word disturbs nobody, while polling an
 * event takes a lock of the driver that submitting needs. Without such writes a
 * completion is an event.
 */
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "copy/copy_impl.h"

#define SLEEP_NS (20 * PN_NS_PER_US)
/* A held stream (request.c) whose copy does not move for so long, though
 * nothing is before it. */
#define STUCK_NS (2 * PN_NS_PER_S)

#define EVENT_FLAGS (PN_CU_EVENT_BLOCKING_SYNC | PN_CU_EVENT_DISABLE_TIMING)

/* --- streams -------------------------------------------------------------- */

/* Their context is current. */
static void streams_free(struct pn_copier *copier,
			 struct pn_copy_streams *streams)
{
	for (unsigned i = 0; i < PN_COPY_NSTREAMS; i++)
		if (streams->copy[i])
			copier->cu->stream_destroy(streams->copy[i]);
	if (streams->order)
		copier->cu->event_destroy(streams->order);
	free(streams);
}

static struct pn_copy_streams *streams_alloc(struct pn_copier *copier,
					     pn_cu_result *result)
{
	const struct pn_cuda_driver *cu = copier->cu;
	struct pn_copy_streams *streams = calloc(1, sizeof(*streams));

	*result = PN_CUDA_ERROR_OUT_OF_MEMORY;
	if (!streams)
		return NULL;
	*result = cu->event_create(&streams->order, EVENT_FLAGS);
	for (unsigned i = 0; !*result && i < PN_COPY_NSTREAMS; i++)
		*result = cu->stream_create(&streams->copy[i],
					    PN_CU_STREAM_NON_BLOCKING);
	if (!*result)
		return streams;
	streams_free(copier, streams);
	return NULL;
}

/* Idle streams of the context. Those of an earlier context at its address are
 * forgotten: they went with it. */
static struct pn_copy_streams *find_locked(struct pn_copier *copier,
					   const struct pn_copy_job *job)
	PN_REQUIRES(&copier->lock)
{
	struct pn_list *pos = copier->idle_streams.next;

	while (pos != &copier->idle_streams) {
		struct pn_copy_streams *streams =
			pn_container_of(pos, struct pn_copy_streams, link);

		pos = pos->next;
		if (streams->context != job->context)
			continue;
		pn_list_remove(&streams->link);
		if (streams->id == job->context_id)
			return streams;
		free(streams);
	}
	return NULL;
}

pn_cu_result pn_copy_streams_take(struct pn_copier *copier,
				  struct pn_copy_job *job)
{
	struct pn_copy_streams *streams;
	pn_cu_result ret = PN_CUDA_SUCCESS;

	pn_lock(&copier->lock);
	streams = find_locked(copier, job);
	pn_unlock(&copier->lock);
	if (!streams)
		streams = streams_alloc(copier, &ret);
	if (streams) {
		streams->context = job->context;
		streams->id = job->context_id;
	}
	job->streams = streams;
	return ret;
}

void pn_copy_streams_return(struct pn_copier *copier, struct pn_copy_job *job)
{
	pn_lock(&copier->lock);
	pn_list_insert(&copier->idle_streams, &job->streams->link);
	pn_unlock(&copier->lock);
	job->streams = NULL;
}

/* Whether the context is still the one that they were made in. */
static bool still_exist(struct pn_copier *copier,
			const struct pn_copy_streams *streams)
{
	unsigned long long id;

	return !copier->cu->ctx_get_id ||
	       (!copier->cu->ctx_get_id(streams->context, &id) &&
		id == streams->id);
}

static void streams_end(struct pn_copier *copier,
			struct pn_copy_streams *streams)
{
	const struct pn_cuda_driver *cu = copier->cu;
	pn_cu_context popped;

	if (!still_exist(copier, streams) ||
	    cu->ctx_push_current(streams->context)) {
		free(streams);
		return;
	}
	streams_free(copier, streams);
	cu->ctx_pop_current(&popped);
}

void pn_copy_streams_close(struct pn_copier *copier)
{
	struct pn_list *link;

	while ((link = pn_list_pop(&copier->idle_streams)))
		streams_end(copier,
			    pn_container_of(link, struct pn_copy_streams,
					    link));
}

/* --- waiting -------------------------------------------------------------- */

static pn_cu_result wait_for_event(struct pn_copier *copier,
				   const struct pn_copy_completion *completion)
{
	pn_cu_event event = completion->event;
	uint64_t until = pn_clock_ns() + completion->poll_ns;
	pn_cu_result ret;

	while ((ret = copier->cu->event_query(event)) ==
	       PN_CUDA_ERROR_NOT_READY) {
		if (pn_clock_ns() >= until)
			return copier->cu->event_synchronize(event);
		pn_relax();
	}
	return ret;
}

pn_cu_result pn_copy_completion_record(struct pn_copier *copier,
				       struct pn_copy_completion *completion,
				       pn_cu_stream stream)
{
	const struct pn_cuda_driver *cu = copier->cu;
	pn_cu_result ret;

	completion->stream = stream;
	if (completion->at) {
		ret = cu->stream_write_value32(stream, completion->at,
					       completion->value + 1, 0);
		if (ret != PN_CUDA_ERROR_NOT_SUPPORTED) {
			completion->value += !ret;
			return ret;
		}
		completion->at = 0;
	}
	ret = cu->event_create(&completion->event, EVENT_FLAGS);
	if (ret)
		return ret;
	ret = cu->event_record(completion->event, stream);
	if (ret)
		pn_copy_completion_drop(copier, completion);
	return ret;
}

void pn_copy_completion_drop(struct pn_copier *copier,
			     struct pn_copy_completion *completion)
{
	if (completion->event)
		copier->cu->event_destroy(completion->event);
	completion->event = NULL;
}

static bool is_set(const struct pn_copy_completion *completion)
{
	return atomic_load_explicit(completion->word, memory_order_acquire) ==
	       completion->value;
}

/* Whether the copy waits for a stream that waits for the copy (request.c). */
static bool is_stuck(struct pn_copier *copier, const struct pn_copy_job *job,
		     uint64_t since_ns)
{
	return job && job->held_word && pn_clock_ns() - since_ns > STUCK_NS &&
	       (!job->order || !copier->cu->event_query(job->order));
}

static pn_cu_result sleep_for_word(struct pn_copier *copier,
				   const struct pn_copy_completion *completion,
				   const struct pn_copy_job *job)
{
	const struct timespec pause = { .tv_nsec = SLEEP_NS };
	uint64_t begin = pn_clock_ns();
	pn_cu_result ret = PN_CUDA_ERROR_NOT_READY;

	while (!is_set(completion)) {
		/* An error, or the word has just been written. */
		if (ret != PN_CUDA_ERROR_NOT_READY)
			return ret;
		nanosleep(&pause, NULL);
		ret = copier->cu->stream_query(completion->stream);
		if (is_stuck(copier, job, begin))
			return PN_COPY_STUCK;
	}
	return PN_CUDA_SUCCESS;
}

pn_cu_result pn_copy_completion_wait(struct pn_copier *copier,
				     struct pn_copy_completion *completion,
				     const struct pn_copy_job *job)
{
	uint64_t until = 0;
	pn_cu_result ret;

	if (!completion->at) {
		ret = wait_for_event(copier, completion);
		pn_copy_completion_drop(copier, completion);
		return ret;
	}
	while (!is_set(completion)) {
		uint64_t now = pn_clock_ns();

		if (!until)
			until = now + completion->poll_ns;
		if (now >= until)
			return sleep_for_word(copier, completion, job);
		for (int i = 0; i < 8; i++)
			pn_relax();
	}
	return PN_CUDA_SUCCESS;
}
