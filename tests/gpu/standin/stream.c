/* SPDX-License-Identifier: BSD-2-Clause */
/* stream -- queues of operations, a thread for each; events; captures.
 *
 * The operation at the head of a queue stays there while it runs. It begins
 * when its conditions hold (ready_locked()): on the legacy stream, when no
 * blocking stream of the context has an older one; on a blocking stream, when
 * the legacy stream has no older one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "standin_impl.h"

struct CUgraph_st {
	struct op *head, **tail;
	int mode;
	pthread_t beginner;
	bool invalid, ended;
	struct CUgraph_st *next; /* captures that are under way */
};

struct CUstream_st {
	pn_cu_context context;
	unsigned flags;
	bool legacy, dying, started;
	pthread_t owner; /* of a per-thread stream */
	bool per_thread;
	pn_cu_result error; /* of an operation that ran */
	struct op *head, **tail;
	struct CUgraph_st *capture;
	struct CUstream_st *next;
};

struct CUevent_st {
	uint64_t recorded, completed; /* numbers of records */
	unsigned refs;		      /* the handle, operations */
	bool destroyed;
	struct CUgraph_st *capture; /* recorded there last */
	pn_cu_context context;
	struct CUevent_st *next; /* those that have a handle */
};

static uint64_t next_ticket = 1; /* standin_lock, as all here */
static uint64_t nstreams;	 /* that were created and not destroyed */
static struct CUgraph_st *captures;
static struct CUevent_st *events;
static __thread int thread_mode = PN_CU_STREAM_CAPTURE_MODE_GLOBAL;

static void *run_stream(void *arg);

/* --- finding streams ------------------------------------------------------ */

static struct CUstream_st *new_stream_locked(pn_cu_context context,
					     unsigned flags)
{
	struct CUstream_st *s = calloc(1, sizeof(*s));

	s->context = context;
	s->flags = flags;
	s->tail = &s->head;
	s->next = context->streams;
	context->streams = s;
	return s;
}

static struct CUstream_st *legacy_locked(pn_cu_context context)
{
	if (!context->legacy) {
		context->legacy = new_stream_locked(context, 0);
		context->legacy->legacy = true;
	}
	return context->legacy;
}

static struct CUstream_st *per_thread_locked(pn_cu_context context)
{
	struct CUstream_st *s;

	for (s = context->streams; s; s = s->next)
		if (s->per_thread && pthread_equal(s->owner, pthread_self()))
			return s;
	s = new_stream_locked(context, 0);
	s->per_thread = true;
	s->owner = pthread_self();
	return s;
}

static struct CUstream_st *find_in_locked(pn_cu_context context,
					  pn_cu_stream handle)
{
	for (struct CUstream_st *s = context->streams; s; s = s->next)
		if (s == handle && !s->dying)
			return s;
	return NULL;
}

/* NULL: no such stream of the current context. */
static struct CUstream_st *find_locked(pn_cu_stream handle)
{
	pn_cu_context context = standin_current();

	if (!handle || handle == PN_CU_STREAM_LEGACY)
		return legacy_locked(context);
	if (handle == PN_CU_STREAM_PER_THREAD)
		return per_thread_locked(context);
	return find_in_locked(context, handle);
}

/* For the calls that take streams of other contexts, too: copies, and the
 * question for the context. */
static struct CUstream_st *find_anywhere_locked(pn_cu_stream handle)
{
	struct CUstream_st *s = find_locked(handle);

	for (pn_cu_context c = standin_contexts(); !s && c; c = c->next)
		s = find_in_locked(c, handle);
	return s;
}

/* --- running -------------------------------------------------------------- */

static bool is_blocking(const struct CUstream_st *s)
{
	return !s->legacy && !(s->flags & PN_CU_STREAM_NON_BLOCKING);
}

static bool older_exists(const struct CUstream_st *s, uint64_t ticket)
{
	return s->head && s->head->ticket < ticket;
}

static bool order_allows_locked(const struct CUstream_st *s,
				const struct op *op)
{
	pn_cu_context context = s->context;

	if (is_blocking(s))
		return !context->legacy ||
		       !older_exists(context->legacy, op->ticket);
	if (!s->legacy)
		return true;
	for (struct CUstream_st *o = context->streams; o; o = o->next)
		if (is_blocking(o) && older_exists(o, op->ticket))
			return false;
	return true;
}

static bool value_reached(const struct op *op)
{
	uint32_t now =
		__atomic_load_n((uint32_t *)op->dst.at, __ATOMIC_ACQUIRE);

	return op->flags & PN_CU_STREAM_WAIT_VALUE_EQ
		       ? now == (uint32_t)op->value
		       : (int32_t)(now - (uint32_t)op->value) >= 0;
}

static bool ready_locked(const struct CUstream_st *s, const struct op *op)
{
	if (!order_allows_locked(s, op))
		return false;
	if (op->kind == OP_WAIT)
		return op->event->completed >= op->value;
	return op->kind != OP_VALUE_WAIT || value_reached(op);
}

/* The handle is of no use any more. */
static void unlist_event_locked(struct CUevent_st *event)
{
	struct CUevent_st **at = &events;

	while (*at && *at != event)
		at = &(*at)->next;
	if (*at)
		*at = event->next;
}

static void put_event_locked(struct CUevent_st *event)
{
	if (!--event->refs)
		free(event);
}

static void free_op_locked(struct op *op)
{
	if (op->event)
		put_event_locked(op->event);
	free(op->snapshot);
	free(op);
}

static pn_cu_result run_copy(const struct op *op)
{
	pn_cu_result result = 0;

	if (op->late)
		standin_sleep_ns(standin_option(OPT_LATE_US) * 1000);
	for (size_t y = 0; !result && y < op->height; y++) {
		struct memory_end dst = op->dst, src = op->src;

		dst.at += y * op->dst_pitch;
		src.at = op->snapshot ? (uintptr_t)op->snapshot + y * op->width
				      : src.at + y * op->src_pitch;
		result = memory_copy(dst, src, op->width);
	}
	return result;
}

static pn_cu_result run_op(const struct op *op)
{
	switch (op->kind) {
	case OP_COPY:
		return run_copy(op);
	case OP_SET:
		return memory_set(op->dst.at, (unsigned char)op->value,
				  op->width);
	case OP_HOST:
		op->fn(op->arg);
		return 0;
	case OP_VALUE_WRITE:
		__atomic_store_n((uint32_t *)op->dst.at, (uint32_t)op->value,
				 __ATOMIC_RELEASE);
		return 0;
	default:
		return 0;
	}
}

static void wait_changed_locked(bool polls)
{
	struct timespec until;

	if (!polls) {
		pthread_cond_wait(&standin_changed, &standin_lock);
		return;
	}
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += 100000;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	pthread_cond_timedwait(&standin_changed, &standin_lock, &until);
}

/* After an error nothing of the stream runs any more, except what others wait
 * for. */
static void run_head_locked(struct CUstream_st *s)
{
	struct op *op = s->head;
	pn_cu_result result = 0;

	while (!ready_locked(s, op))
		wait_changed_locked(op->kind == OP_VALUE_WAIT);
	pthread_mutex_unlock(&standin_lock);
	if (!s->error || op->kind == OP_HOST || op->kind == OP_VALUE_WRITE)
		result = run_op(op);
	pthread_mutex_lock(&standin_lock);
	if (result && !s->error)
		s->error = result;
	if (op->kind == OP_RECORD && op->event->completed < op->value)
		op->event->completed = op->value;
	s->head = op->next;
	if (!s->head)
		s->tail = &s->head;
	free_op_locked(op);
	pthread_cond_broadcast(&standin_changed);
}

static void unlink_locked(struct CUstream_st *s)
{
	struct CUstream_st **at = &s->context->streams;

	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
}

static void *run_stream(void *arg)
{
	struct CUstream_st *s = arg;

	pthread_mutex_lock(&standin_lock);
	for (;;) {
		if (s->head)
			run_head_locked(s);
		else if (s->dying)
			break;
		else
			wait_changed_locked(false);
	}
	unlink_locked(s);
	pthread_mutex_unlock(&standin_lock);
	free(s);
	return NULL;
}

static void start_locked(struct CUstream_st *s)
{
	pthread_attr_t attr;
	pthread_t thread;

	if (s->started)
		return;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	s->started = !pthread_create(&thread, &attr, run_stream, s);
	pthread_attr_destroy(&attr);
}

static void kill_locked(struct CUstream_st *s)
{
	s->dying = true;
	nstreams -= !s->legacy && !s->per_thread;
	if (s->started) {
		pthread_cond_broadcast(&standin_changed);
		return;
	}
	unlink_locked(s);
	free(s);
}

/* --- captures ------------------------------------------------------------- */

/* Whether a capture forbids unsafe calls of this thread. */
static bool forbids(const struct CUgraph_st *g)
{
	bool own = pthread_equal(g->beginner, pthread_self());

	if (g->mode == PN_CU_STREAM_CAPTURE_MODE_RELAXED ||
	    thread_mode == PN_CU_STREAM_CAPTURE_MODE_RELAXED)
		return false;
	return own || (g->mode == PN_CU_STREAM_CAPTURE_MODE_GLOBAL &&
		       thread_mode == PN_CU_STREAM_CAPTURE_MODE_GLOBAL);
}

pn_cu_result stream_check_unsafe(void)
{
	pn_cu_result result = 0;

	pthread_mutex_lock(&standin_lock);
	for (struct CUgraph_st *g = captures; g; g = g->next)
		if (forbids(g)) {
			g->invalid = true;
			result = PN_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
		}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

/* The legacy stream would wait for a stream that is being captured. */
static pn_cu_result check_implicit_locked(const struct CUstream_st *s)
{
	if (!s->legacy)
		return 0;
	for (struct CUstream_st *o = s->context->streams; o; o = o->next)
		if (is_blocking(o) && o->capture) {
			o->capture->invalid = true;
			return PN_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	return 0;
}

bool stream_captures(pn_cu_stream stream)
{
	struct CUstream_st *s;
	bool captured;

	pthread_mutex_lock(&standin_lock);
	s = find_anywhere_locked(stream);
	captured = s && s->capture;
	pthread_mutex_unlock(&standin_lock);
	return captured;
}

STANDIN_API pn_cu_result cuStreamBeginCapture_v2(pn_cu_stream stream, int mode)
{
	struct CUstream_st *s;
	struct CUgraph_st *g;
	pn_cu_result result = 0;

	ENTER_CONTEXT(cuStreamBeginCapture_v2);
	pthread_mutex_lock(&standin_lock);
	s = find_locked(stream);
	if (!s || s->legacy || s->capture) {
		result = s ? PN_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
			   : PN_CUDA_ERROR_INVALID_HANDLE;
	} else {
		g = calloc(1, sizeof(*g));
		g->tail = &g->head;
		g->mode = mode;
		g->beginner = pthread_self();
		g->next = captures;
		captures = g;
		s->capture = g;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

static void end_capture_locked(struct CUgraph_st *g, pn_cu_context context)
{
	struct CUgraph_st **at = &captures;

	while (*at != g)
		at = &(*at)->next;
	*at = g->next;
	g->ended = true;
	for (struct CUstream_st *s = context->streams; s; s = s->next)
		if (s->capture == g)
			s->capture = NULL;
}

STANDIN_API pn_cu_result cuGraphDestroy(pn_cu_graph graph)
{
	ENTER(cuGraphDestroy);
	pthread_mutex_lock(&standin_lock);
	while (graph->head) {
		struct op *op = graph->head;

		graph->head = op->next;
		free_op_locked(op);
	}
	pthread_mutex_unlock(&standin_lock);
	free(graph);
	return 0;
}

STANDIN_API pn_cu_result cuStreamEndCapture(pn_cu_stream stream,
					    pn_cu_graph *out)
{
	pn_cu_result result = 0;
	struct CUgraph_st *g = NULL;
	struct CUstream_st *s;

	ENTER_CONTEXT(cuStreamEndCapture);
	pthread_mutex_lock(&standin_lock);
	s = find_locked(stream);
	if (s && s->capture) {
		g = s->capture;
		end_capture_locked(g, s->context);
		if (g->invalid)
			result = PN_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	} else {
		result = PN_CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	pthread_mutex_unlock(&standin_lock);
	if (result && g)
		cuGraphDestroy(g);
	if (out)
		*out = result ? NULL : g;
	return result;
}

STANDIN_API pn_cu_result cuStreamIsCapturing(pn_cu_stream stream, int *status)
{
	pn_cu_result result;
	struct CUstream_st *s;

	ENTER_CONTEXT(cuStreamIsCapturing);
	pthread_mutex_lock(&standin_lock);
	s = find_locked(stream);
	result = s ? check_implicit_locked(s) : PN_CUDA_ERROR_INVALID_HANDLE;
	if (!result)
		*status = !s->capture ? PN_CU_STREAM_CAPTURE_STATUS_NONE
			  : s->capture->invalid
				  ? PN_CU_STREAM_CAPTURE_STATUS_INVALIDATED
				  : PN_CU_STREAM_CAPTURE_STATUS_ACTIVE;
	pthread_mutex_unlock(&standin_lock);
	return result;
}

STANDIN_API pn_cu_result cuThreadExchangeStreamCaptureMode(int *mode)
{
	int old = thread_mode;

	ENTER(cuThreadExchangeStreamCaptureMode);
	if (*mode < 0 || *mode > PN_CU_STREAM_CAPTURE_MODE_RELAXED)
		return PN_CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = old;
	return 0;
}

/* --- adding --------------------------------------------------------------- */

static struct op *copy_op(const struct op *op)
{
	struct op *copy = malloc(sizeof(*copy));

	*copy = *op;
	copy->next = NULL;
	if (copy->event)
		copy->event->refs++;
	return copy;
}

static pn_cu_result capture_locked(struct CUgraph_st *g, const struct op *op)
{
	struct op *copy;

	if (g->invalid)
		return PN_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	copy = copy_op(op);
	*g->tail = copy;
	g->tail = &copy->next;
	return 0;
}

static uint64_t append_locked(struct CUstream_st *s, const struct op *op)
{
	struct op *copy = copy_op(op);

	copy->ticket = next_ticket++;
	*s->tail = copy;
	s->tail = &copy->next;
	start_locked(s);
	pthread_cond_broadcast(&standin_changed);
	return copy->ticket;
}

/* Until nothing of the stream is older than the ticket. The stream may be gone
 * then. */
static pn_cu_result wait_ticket_locked(struct CUstream_st *s, uint64_t ticket)
{
	while (older_exists(s, ticket + 1))
		wait_changed_locked(false);
	return s->error;
}

pn_cu_result stream_add(pn_cu_stream stream, const struct op *op, bool wait)
{
	struct CUstream_st *s;
	pn_cu_result result;
	uint64_t ticket;

	pthread_mutex_lock(&standin_lock);
	s = op->kind == OP_COPY ? find_anywhere_locked(stream)
				: find_locked(stream);
	result = s ? check_implicit_locked(s) : PN_CUDA_ERROR_INVALID_HANDLE;
	if (!result && s->capture) {
		result = capture_locked(s->capture, op);
	} else if (!result) {
		ticket = append_locked(s, op);
		result = wait ? wait_ticket_locked(s, ticket) : s->error;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

/* --- streams -------------------------------------------------------------- */

STANDIN_API pn_cu_result cuStreamCreate(pn_cu_stream *out, unsigned flags)
{
	pn_cu_result result;

	ENTER_CONTEXT(cuStreamCreate);
	if (flags & ~PN_CU_STREAM_NON_BLOCKING)
		return PN_CUDA_ERROR_INVALID_VALUE;
	result = memory_check_reserve();
	if (result)
		return result;
	pthread_mutex_lock(&standin_lock);
	*out = new_stream_locked(standin_current(), flags);
	nstreams++;
	pthread_mutex_unlock(&standin_lock);
	return 0;
}

STANDIN_API pn_cu_result cuStreamCreateWithPriority(pn_cu_stream *out,
						    unsigned flags,
						    int priority)
{
	ENTER_CONTEXT(cuStreamCreateWithPriority);
	(void)priority;
	return cuStreamCreate(out, flags);
}

STANDIN_API pn_cu_result cuStreamDestroy_v2(pn_cu_stream stream)
{
	pn_cu_result result = PN_CUDA_ERROR_INVALID_HANDLE;
	struct CUstream_st *s;

	ENTER_CONTEXT(cuStreamDestroy_v2);
	pthread_mutex_lock(&standin_lock);
	s = (uintptr_t)stream > 2 ? find_locked(stream) : NULL;
	if (s) {
		kill_locked(s);
		result = 0;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

STANDIN_API pn_cu_result cuStreamSynchronize(pn_cu_stream stream)
{
	struct CUstream_st *s;
	pn_cu_result result;

	ENTER_CONTEXT(cuStreamSynchronize);
	pthread_mutex_lock(&standin_lock);
	s = find_locked(stream);
	result = s ? check_implicit_locked(s) : PN_CUDA_ERROR_INVALID_HANDLE;
	if (!result && s->capture) {
		s->capture->invalid = true;
		result = PN_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	if (!result)
		result = wait_ticket_locked(s, next_ticket - 1);
	/* The legacy stream stands for the blocking ones, too. */
	for (struct CUstream_st *o = s ? s->context->streams : NULL;
	     !result && s->legacy && o; o = o->next)
		if (is_blocking(o))
			wait_ticket_locked(o, next_ticket - 1);
	pthread_mutex_unlock(&standin_lock);
	return result;
}

STANDIN_API pn_cu_result cuStreamQuery(pn_cu_stream stream)
{
	struct CUstream_st *s;
	pn_cu_result result;

	ENTER_CONTEXT(cuStreamQuery);
	pthread_mutex_lock(&standin_lock);
	s = find_locked(stream);
	result = s ? check_implicit_locked(s) : PN_CUDA_ERROR_INVALID_HANDLE;
	if (!result)
		result = s->head ? PN_CUDA_ERROR_NOT_READY : s->error;
	pthread_mutex_unlock(&standin_lock);
	return result;
}

STANDIN_API pn_cu_result cuStreamGetCtx(pn_cu_stream stream, pn_cu_context *out)
{
	struct CUstream_st *s;

	ENTER_CONTEXT(cuStreamGetCtx);
	pthread_mutex_lock(&standin_lock);
	s = find_anywhere_locked(stream);
	if (s)
		*out = s->context;
	pthread_mutex_unlock(&standin_lock);
	return s ? 0 : PN_CUDA_ERROR_INVALID_HANDLE;
}

STANDIN_API pn_cu_result cuStreamGetFlags(pn_cu_stream stream, unsigned *out)
{
	struct CUstream_st *s;

	ENTER_CONTEXT(cuStreamGetFlags);
	pthread_mutex_lock(&standin_lock);
	s = find_locked(stream);
	if (s)
		*out = s->flags;
	pthread_mutex_unlock(&standin_lock);
	return s ? 0 : PN_CUDA_ERROR_INVALID_HANDLE;
}

void stream_wait_idle(pn_cu_context context)
{
	struct CUstream_st *s;

	pthread_mutex_lock(&standin_lock);
	for (;;) {
		for (s = context->streams; s && !s->head; s = s->next)
			;
		if (!s)
			break;
		wait_changed_locked(false);
	}
	pthread_mutex_unlock(&standin_lock);
}

uint64_t stream_count(void)
{
	return nstreams;
}

uint64_t event_count(void)
{
	uint64_t n = 0;

	for (const struct CUevent_st *e = events; e; e = e->next)
		n++;
	return n;
}

void stream_drop_context(pn_cu_context context)
{
	struct CUstream_st *s, *next;

	for (s = context->streams; s; s = next) {
		next = s->next;
		if (!s->dying)
			kill_locked(s);
	}
	for (struct CUevent_st *e = events, *after; e; e = after) {
		after = e->next;
		if (e->context != context)
			continue;
		unlist_event_locked(e);
		put_event_locked(e);
	}
	context->legacy = NULL;
}

/* --- events, values, host functions --------------------------------------- */

STANDIN_API pn_cu_result cuEventCreate(pn_cu_event *out, unsigned flags)
{
	pn_cu_result result;

	ENTER_CONTEXT(cuEventCreate);
	(void)flags;
	result = memory_check_reserve();
	if (result)
		return result;
	*out = calloc(1, sizeof(**out));
	(*out)->refs = 1;
	(*out)->context = standin_current();
	pthread_mutex_lock(&standin_lock);
	(*out)->next = events;
	events = *out;
	pthread_mutex_unlock(&standin_lock);
	return 0;
}

STANDIN_API pn_cu_result cuEventDestroy_v2(pn_cu_event event)
{
	ENTER_CONTEXT(cuEventDestroy_v2);
	if (!event)
		return PN_CUDA_ERROR_INVALID_HANDLE;
	pthread_mutex_lock(&standin_lock);
	unlist_event_locked(event);
	put_event_locked(event);
	pthread_mutex_unlock(&standin_lock);
	return 0;
}

STANDIN_API pn_cu_result cuEventRecord(pn_cu_event event, pn_cu_stream stream)
{
	struct op op = { .kind = OP_RECORD, .event = event };
	struct CUstream_st *s;

	ENTER_CONTEXT(cuEventRecord);
	pthread_mutex_lock(&standin_lock);
	s = find_locked(stream);
	event->capture = s ? s->capture : NULL;
	if (s && !s->capture)
		op.value = ++event->recorded;
	pthread_mutex_unlock(&standin_lock);
	return stream_add(stream, &op, false);
}

STANDIN_API pn_cu_result cuStreamWaitEvent(pn_cu_stream stream,
					   pn_cu_event event, unsigned flags)
{
	struct op op = { .kind = OP_WAIT, .event = event };
	struct CUstream_st *s;

	ENTER_CONTEXT(cuStreamWaitEvent);
	(void)flags;
	pthread_mutex_lock(&standin_lock);
	op.value = event->recorded;
	s = find_locked(stream);
	/* The stream joins the capture that the event belongs to. */
	if (s && event->capture && !s->capture && !s->legacy)
		s->capture = event->capture;
	pthread_mutex_unlock(&standin_lock);
	return stream_add(stream, &op, false);
}

STANDIN_API pn_cu_result cuEventQuery(pn_cu_event event)
{
	pn_cu_result result;

	ENTER_CONTEXT(cuEventQuery);
	pthread_mutex_lock(&standin_lock);
	result = event->completed >= event->recorded ? 0
						     : PN_CUDA_ERROR_NOT_READY;
	pthread_mutex_unlock(&standin_lock);
	return result;
}

STANDIN_API pn_cu_result cuEventSynchronize(pn_cu_event event)
{
	uint64_t until;

	ENTER_CONTEXT(cuEventSynchronize);
	pthread_mutex_lock(&standin_lock);
	event->refs++;
	until = event->recorded;
	while (event->completed < until)
		wait_changed_locked(false);
	put_event_locked(event);
	pthread_mutex_unlock(&standin_lock);
	return 0;
}

STANDIN_API pn_cu_result cuLaunchHostFunc(pn_cu_stream stream, pn_cu_host_fn fn,
					  void *arg)
{
	struct op op = { .kind = OP_HOST, .fn = fn, .arg = arg };

	ENTER_CONTEXT(cuLaunchHostFunc);
	return stream_add(stream, &op, false);
}

static pn_cu_result add_value(pn_cu_stream stream, struct op op,
			      pn_cu_deviceptr at)
{
	uint64_t id;
	enum where where;

	if (!standin_option(OPT_MEMOPS))
		return PN_CUDA_ERROR_NOT_SUPPORTED;
	pthread_mutex_lock(&standin_lock);
	where = memory_where(at, sizeof(uint32_t), &id);
	pthread_mutex_unlock(&standin_lock);
	if (where != PINNED || at % sizeof(uint32_t))
		return PN_CUDA_ERROR_INVALID_VALUE;
	op.dst.at = at;
	return stream_add(stream, &op, false);
}

STANDIN_API pn_cu_result cuStreamWaitValue32_v2(pn_cu_stream stream,
						pn_cu_deviceptr at,
						uint32_t value, unsigned flags)
{
	ENTER_CONTEXT(cuStreamWaitValue32_v2);
	return add_value(stream,
			 (struct op){ .kind = OP_VALUE_WAIT,
				      .value = value,
				      .flags = flags },
			 at);
}

STANDIN_API pn_cu_result cuStreamWriteValue32_v2(pn_cu_stream stream,
						 pn_cu_deviceptr at,
						 uint32_t value, unsigned flags)
{
	ENTER_CONTEXT(cuStreamWriteValue32_v2);
	return add_value(stream,
			 (struct op){ .kind = OP_VALUE_WRITE,
				      .value = value,
				      .flags = flags },
			 at);
}
