/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Copies that the caller does not wait for.
 *
 * Through bounce buffers the bytes move later, on streams of ours. So the
 * caller's stream gets a wait for a word (cuStreamWaitValue32), which the last
 * participant writes: what the stream gets later begins after the copy. The
 * order with earlier work is an event, as for other copies.
 *
 * Registered and pinned memory is copied in the caller's stream, and an event
 * behind the copy says when it has ended. What the driver copies from unpinned
 * memory, and all copies where there are no words, end before the call returns.
 *
 * One stream at a time. Where several streams wait, the GPU's queues can be
 * full of work that waits, and our copies stand behind it (measured: four
 * streams with a copy each of the same direction behind the wait are enough).
 * So while one stream waits, copies of others block, and so do those of the
 * legacy stream, since other streams wait for it. A program can still make
 * streams wait for the stream that waits; if then the copy does not move for
 * two seconds, it ends with -EDEADLK and lets the stream go.
 *
 * A job that holds a stream needs a staging set and a worker. No copy may have
 * them that waits for that stream: blocking copies take theirs when the stream
 * has let them through (order_job() in move.c), and jobs that hold the same
 * stream are posted, hence joined, in the order of the stream.
 */
#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "copy/call_impl.h"

struct pinion_cuda_request {
	struct pn_list link; /* copier->requests */
	struct pn_copier *copier;
	uint32_t process;
	pn_cu_context context;
	/* How it ends: by a job, by an event, or it has ended. */
	enum { BY_JOB, BY_EVENT, ENDED } end;
	struct pn_copy_job job;
	_Atomic uint32_t job_ended; /* futex */
	pn_cu_event event;
	bool pinned;
	struct pinion_pin pin;
};

/* --- one stream at a time ------------------------------------------------- */

/* The stream that waits for words now, and for how many. */
static struct pn_mutex held_lock = { PTHREAD_MUTEX_INITIALIZER };
static pn_cu_stream held_stream PN_GUARDED_BY(&held_lock);
static unsigned nheld PN_GUARDED_BY(&held_lock);

/* False: another stream waits. The legacy stream makes others wait, so it is
 * never held. */
static bool begin_hold(pn_cu_stream stream)
{
	bool ok;

	if (!stream || stream == PN_CU_STREAM_LEGACY ||
	    stream == PN_CU_STREAM_PER_THREAD)
		return false;
	pn_lock(&held_lock);
	ok = !nheld || held_stream == stream;
	if (ok) {
		held_stream = stream;
		nheld++;
	}
	pn_unlock(&held_lock);
	return ok;
}

static void end_hold(void)
{
	pn_lock(&held_lock);
	nheld--;
	pn_unlock(&held_lock);
}

bool pn_copy_stream_is_held(void)
{
	bool held;

	pn_lock(&held_lock);
	held = nheld;
	pn_unlock(&held_lock);
	return held;
}

/* From before a job holds its stream until it is posted: those that come after
 * it in the stream are posted later. Taken before copier->lock. */
static struct pn_mutex posting = { PTHREAD_MUTEX_INITIALIZER };

/* --- words ---------------------------------------------------------------- */

/* Lets the stream of the call wait for a word. */
static bool wait_for_word(const struct pn_copy_call *call,
			  struct pinion_cuda_request *request)
{
	struct pn_copier *copier = call->copier;
	const struct pn_cuda_driver *cu = copier->cu;
	struct pn_copy_job *job = &request->job;
	pn_cu_deviceptr at;

	job->held_word = pn_copy_word_take(copier, &at);
	if (!job->held_word)
		return false;
	job->held_value = atomic_load(job->held_word) + 1;
	if (!cu->stream_wait_value32(call->op->stream, at, job->held_value,
				     PN_CU_STREAM_WAIT_VALUE_GEQ))
		return true;
	pn_copy_word_return(copier, job->held_word);
	return false;
}

static bool hold_stream(const struct pn_copy_call *call,
			struct pinion_cuda_request *request)
{
	if (!begin_hold(call->op->stream))
		return false;
	if (wait_for_word(call, request))
		return true;
	end_hold();
	return false;
}

/* --- jobs ----------------------------------------------------------------- */

static void futex_wait(_Atomic uint32_t *word, uint64_t timeout_ns)
{
	struct timespec timeout = {
		.tv_sec = (time_t)(timeout_ns / PN_NS_PER_S),
		.tv_nsec = (long)(timeout_ns % PN_NS_PER_S),
	};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, 0,
		timeout_ns == PN_FOREVER ? NULL : &timeout, NULL, 0);
}

/* By the last participant. */
static void finish_job(struct pn_copy_job *job)
{
	struct pinion_cuda_request *request =
		pn_container_of(job, struct pinion_cuda_request, job);
	struct pn_copier *copier = request->copier;

	pn_copy_call_count(copier, job);
	/* Also after an error: a stream must not wait for ever. */
	atomic_store(job->held_word, job->held_value);
	pn_copy_word_return(copier, job->held_word);
	end_hold();
	pn_copy_streams_return(copier, job);
	/* The request may go from here on; waking touches nothing. */
	atomic_store(&request->job_ended, 1);
	syscall(SYS_futex, &request->job_ended, FUTEX_WAKE_PRIVATE, INT32_MAX,
		NULL, NULL, 0);
}

static pn_cu_result record_event(const struct pn_copy_call *call,
				 struct pinion_cuda_request *request)
{
	const struct pn_cuda_driver *cu = call->copier->cu;
	pn_cu_result ret = cu->event_create(&request->event,
					    PN_CU_EVENT_BLOCKING_SYNC |
						    PN_CU_EVENT_DISABLE_TIMING);

	return ret ? ret : cu->event_record(request->event, call->op->stream);
}

/* Leaves the copy to workers; false: not possible, nothing has happened. */
static bool start_job(struct pn_copy_call *call,
		      struct pinion_cuda_request *request)
{
	struct pn_copy_question question = pn_copy_call_question(call);
	struct pn_copier *copier = call->copier;
	struct pn_copy_job *job = &request->job;
	bool ok;

	question.participants = atomic_load(&copier->nstaging);
	question.measured = false;
	if (pn_copy_times_choose(&copier->times, &question) != PN_COPY_BOUNCE ||
	    !pn_copy_workers_start(copier, question.wanted))
		return false;
	pn_copy_call_job(call, job);
	job->finish = finish_job;
	if (pn_copy_streams_take(copier, job))
		return false;
	if (call->direction == PN_COPY_FROM_GPU)
		pn_copy_pages_prepare(copier, job->host, job->bytes);
	pn_lock(&posting);
	ok = !pn_copy_call_order(call, job) && hold_stream(call, request);
	if (ok) {
		request->end = BY_JOB;
		pn_copy_job_post(copier, job);
	}
	pn_unlock(&posting);
	if (!ok)
		pn_copy_streams_return(copier, job);
	return ok;
}

/* --- starting ------------------------------------------------------------- */

/* An event behind what is now in the stream. A stream that is being captured
 * has none: the copy is part of a graph. */
static pn_cu_result end_by_event(const struct pn_copy_call *call,
				 struct pinion_cuda_request *request)
{
	int capturing = 0;

	if (call->copier->cu->stream_is_capturing(call->op->stream,
						  &capturing) ||
	    capturing)
		return PN_CUDA_SUCCESS;
	request->end = BY_EVENT;
	return record_event(call, request);
}

static pn_cu_result start_registered(struct pn_copy_call *call,
				     struct pinion_cuda_request *request)
{
	pn_cu_result ret = pn_copy_call_segments(call, &request->pin);

	if (!ret)
		ret = end_by_event(call, request);
	if (ret)
		call->copier->cu->stream_synchronize(call->op->stream);
	return ret;
}

static pn_cu_result start_call(struct pn_copy_call *call,
			       struct pinion_cuda_request *request)
{
	pn_cu_result ret;

	request->context = call->context;
	if (!pn_copy_call_is_ours(call)) {
		ret = pn_copy_call_by_driver(call);
		return ret ? ret : end_by_event(call, request);
	}
	pn_copy_call_use(call);
	request->pinned = pn_copy_call_pin(call, &request->pin);
	if (request->pinned)
		return start_registered(call, request);
	if (start_job(call, request))
		return PN_CUDA_SUCCESS;
	return pn_copy_call_move(call);
}

/* --- ending --------------------------------------------------------------- */

static void request_free(struct pinion_cuda_request *request)
{
	struct pn_copier *copier = request->copier;

	if (request->pinned)
		pn_cache_unpin(copier->attr.cache, &request->pin);
	if (request->event)
		copier->cu->event_destroy(request->event);
	pn_lock(&copier->lock);
	pn_list_remove(&request->link);
	pn_unlock(&copier->lock);
	free(request);
}

int pn_copier_start(struct pn_copier *copier, const struct pn_copy_op *op,
		    struct pinion_cuda_request **out)
{
	struct pn_copy_call call = { .copier = copier, .op = op };
	struct pinion_cuda_request *request = calloc(1, sizeof(*request));
	pn_cu_result ret;

	if (!request)
		return -ENOMEM;
	request->copier = copier;
	request->process = pn_process_number();
	request->end = ENDED;
	pn_lock(&copier->lock);
	pn_list_append(&copier->requests, &request->link);
	pn_unlock(&copier->lock);
	pn_cache_settle(copier->attr.cache);
	ret = op->bytes ? pn_copy_call_enter(&call) : PN_CUDA_SUCCESS;
	if (!ret && op->bytes) {
		ret = start_call(&call, request);
		pn_copy_call_leave(&call);
	}
	if (ret) {
		request_free(request);
		return pn_copy_call_error(&call, ret);
	}
	*out = request;
	return 0;
}

/* -EAGAIN: not yet. */
static int request_status(struct pinion_cuda_request *request)
{
	if (request->end == ENDED)
		return 0;
	if (request->end == BY_EVENT)
		return pn_cuda_errno(
			request->copier->cu->event_query(request->event));
	return atomic_load(&request->job_ended)
		       ? atomic_load(&request->job.status)
		       : -EAGAIN;
}

static void sleep_ns(uint64_t ns)
{
	struct timespec ts = { .tv_nsec = (long)ns };

	nanosleep(&ts, NULL);
}

/* Sleeps until it may have ended, until a deadline of pn_clock_ns(). */
static void request_sleep(struct pinion_cuda_request *request,
			  uint64_t deadline_ns)
{
	uint64_t now = pn_clock_ns();

	if (request->end == BY_JOB)
		futex_wait(&request->job_ended, deadline_ns == PN_FOREVER
							? PN_FOREVER
							: deadline_ns - now);
	else if (deadline_ns == PN_FOREVER)
		request->copier->cu->event_synchronize(request->event);
	else
		sleep_ns(50 * PN_NS_PER_US);
}

static int request_wait(struct pinion_cuda_request *request,
			uint64_t deadline_ns)
{
	int ret;

	while ((ret = request_status(request)) == -EAGAIN &&
	       pn_clock_ns() < deadline_ns)
		request_sleep(request, deadline_ns);
	if (ret == -EAGAIN)
		return -ETIMEDOUT;
	/* An error of the question says nothing about the copy, which must end
	 * before the unpin. */
	if (ret && request->end == BY_EVENT)
		request->copier->cu->event_synchronize(request->event);
	request_free(request);
	return ret;
}

/* Events are asked in their context. Where it is gone, so is the copy. Where it
 * cannot be entered for another reason nobody knows whether the copy has ended:
 * it counts as under way, and the memory stays pinned, until `last`, the close
 * of the copier. */
static int in_context(struct pinion_cuda_request *request, uint64_t deadline_ns,
		      bool last)
{
	const struct pn_cuda_driver *cu = request->copier->cu;
	pn_cu_context popped;
	int ret;

	if (!pn_process_is_current(request->process))
		return -EPERM;
	if (request->end != BY_EVENT)
		return request_wait(request, deadline_ns);
	ret = pn_cuda_errno(cu->ctx_push_current(request->context));
	if (ret == -ENODEV || (ret && last)) {
		request_free(request);
		return ret;
	}
	if (ret) {
		/* Callers ask again at once. */
		if (deadline_ns)
			sleep_ns(PN_NS_PER_MS);
		return -ETIMEDOUT;
	}
	ret = request_wait(request, deadline_ns);
	cu->ctx_pop_current(&popped);
	return ret;
}

int pn_copy_request_test(struct pinion_cuda_request *request)
{
	int ret = in_context(request, 0, false);

	return ret == -ETIMEDOUT ? -EAGAIN : ret;
}

int pn_copy_request_wait(struct pinion_cuda_request *request,
			 uint64_t timeout_us)
{
	uint64_t now = pn_clock_ns();
	uint64_t deadline = timeout_us > (PN_FOREVER - now) / PN_NS_PER_US
				    ? PN_FOREVER
				    : now + timeout_us * PN_NS_PER_US;

	return in_context(request, deadline, false);
}

void pn_copy_requests_close(struct pn_copier *copier)
{
	while (!pn_list_empty(&copier->requests))
		in_context(pn_container_of(copier->requests.next,
					   struct pinion_cuda_request, link),
			   PN_FOREVER, true);
}
