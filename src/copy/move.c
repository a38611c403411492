/* SPDX-License-Identifier: BSD-2-Clause */
/* The methods of a copy of memory that is not, or not all, registered. */
#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "copy/call_impl.h"

/* --- blocks --------------------------------------------------------------- */

void pn_copy_call_job(const struct pn_copy_call *call, struct pn_copy_job *job)
{
	struct pn_copy_shape shape =
		pn_copy_shape(call->copier, call->direction, call->host.len);

	*job = (struct pn_copy_job){
		.direction = call->direction,
		.mixed = call->held && call->copier->attr.keep,
		.host = (char *)call->host.addr,
		.bytes = call->host.len,
		.gpu = call->gpu,
		.block_bytes = shape.block_bytes,
		.nontemporal = shape.nontemporal,
		.wanted = shape.participants,
		.context = call->context,
		.context_id = call->context_id,
	};
}

void pn_copy_call_count(struct pn_copier *copier, const struct pn_copy_job *job)
{
	atomic_fetch_add(&copier->bounced, 1);
	atomic_fetch_add(&copier->mixed, job->registered_bytes != 0);
	atomic_fetch_add(&copier->bounced_bytes, job->bounced_bytes);
	atomic_fetch_add(&copier->registered_bytes, job->registered_bytes);
}

/* Lets the streams of the job wait for what the stream has to do. */
pn_cu_result pn_copy_call_order(const struct pn_copy_call *call,
				struct pn_copy_job *job)
{
	const struct pn_cuda_driver *cu = call->copier->cu;
	pn_cu_result ret;

	if (call->idle)
		return PN_CUDA_SUCCESS;
	job->order = job->streams->order;
	ret = cu->event_record(job->order, call->op->stream);
	for (unsigned i = 0; !ret && i < PN_COPY_NSTREAMS; i++)
		ret = cu->stream_wait_event(job->streams->copy[i], job->order,
					    0);
	return ret;
}

/* Puts a job's streams behind what the caller's stream has to do. A copy that
 * holds the stream (request.c) needs a staging set and a worker: whoever comes
 * after it waits for it before taking any. */
static pn_cu_result order_job(const struct pn_copy_call *call,
			      struct pn_copy_job *job)
{
	pn_cu_result ret = pn_copy_call_order(call, job);

	if (!ret && job->order && pn_copy_stream_is_held())
		ret = call->copier->cu->event_synchronize(job->order);
	return ret;
}

/* Moves the blocks with the help of workers. */
static pn_cu_result move_job(struct pn_copy_call *call,
			     struct pn_copy_staging *staging,
			     struct pn_copy_job *job)
{
	struct pn_copier *copier = call->copier;

	job->joined = 1;
	if (call->direction == PN_COPY_FROM_GPU)
		pn_copy_pages_prepare(copier, job->host, job->bytes);
	if (job->wanted && pn_copy_workers_start(copier, job->wanted))
		pn_copy_job_post(copier, job);
	else
		job->wanted = 0;
	pn_copy_blocks_move(copier, staging, job);
	pn_copy_job_wait(copier, job);
	pn_copy_call_count(copier, job);
	call->status = job->status;
	return job->result;
}

/* With `staging` as the caller's own, and streams that wait for the caller's.
 */
static pn_cu_result move_blocks(struct pn_copy_call *call,
				struct pn_copy_staging *staging,
				struct pn_copy_streams *streams,
				enum pn_copy_method method)
{
	struct pn_copy_job job;

	pn_copy_call_job(call, &job);
	job.streams = streams;
	job.wanted--;
	if (method == PN_COPY_PIPELINE) {
		job.blocks = PN_BLOCKS_REGISTER;
		job.block_bytes = PN_COPY_PIPELINE_BYTES;
		job.wanted = 0;
	}
	return move_job(call, staging, &job);
}

/* Attempts, with pauses of 20 us and more, before a range counts as in use for
 * long, and before one does without a staging set. */
#define YIELDS	   200
#define NO_STAGING 10000

/* --- choosing ------------------------------------------------------------- */

struct pn_copy_question pn_copy_call_question(const struct pn_copy_call *call)
{
	struct pn_copier *copier = call->copier;
	unsigned wanted = pn_copy_shape(copier, call->direction, call->host.len)
				  .participants;

	pn_copy_staging_grow(copier, wanted);
	return (struct pn_copy_question){
		.direction = call->direction,
		.bytes = call->host.len,
		.participants = atomic_load(&copier->nfree),
		.wanted = wanted,
		.may_register = copier->attr.keep && !call->held,
		.no_driver = call->held,
		.measured = call->measured,
	};
}

void pn_copy_call_use(struct pn_copy_call *call)
{
	double copy_ns =
		pn_copy_cost(&call->copier->attr.device->costs.copy_byte_ns,
			     PN_COPY_BYTE_NS);
	struct pn_background_use use = {
		.range = call->host,
		.end = call->direction == PN_COPY_TO_GPU ? PN_END_SOURCE
							 : PN_END_TARGET,
		.bounce_ns = copy_ns * (double)call->host.len,
	};

	if (!call->used)
		pn_background_use(&call->copier->background, &use);
	call->used = true;
}

static void sleep_briefly(void)
{
	const struct timespec pause = { .tv_nsec = 20 * PN_NS_PER_US };

	nanosleep(&pause, NULL);
}

/* Registrations of ours make the driver refuse the range, and there is no
 * staging set to avoid the driver: gives up what is in the way. */
static pn_cu_result yield_to_driver(struct pn_copy_call *call)
{
	const struct pn_copy_op *op = call->op;
	pn_cu_result ret;
	int tries = 0;

	do {
		/* A block that is being registered ends by itself. */
		if (pn_copier_yield(call->copier, op->dst, op->bytes) ||
		    pn_copier_yield(call->copier, op->src, op->bytes))
			sleep_briefly();
		ret = pn_copy_call_driver(call);
	} while (call->held && ++tries < YIELDS);
	return call->held ? pn_copy_call_unregistered(call) : ret;
}

pn_cu_result pn_copy_call_by_driver(struct pn_copy_call *call)
{
	pn_cu_result ret = pn_copy_call_driver(call);

	return call->held ? yield_to_driver(call) : ret;
}

/* A staging set for the method. Where registrations of ours keep the driver
 * from copying, the copy waits for a staging set if there are any. */
static struct pn_copy_staging *staging_for(struct pn_copy_call *call,
					   enum pn_copy_method method)
{
	struct pn_copier *copier = call->copier;
	struct pn_copy_staging *staging = NULL;

	if (method != PN_COPY_DRIVER)
		staging = pn_copy_staging_take(copier);
	for (int i = 0; !staging && call->held &&
			atomic_load(&copier->nstaging) && i < NO_STAGING;
	     i++) {
		sleep_briefly();
		staging = pn_copy_staging_take(copier);
	}
	return staging;
}

/* By bounce buffers or the pipeline. False: there was no staging set, and
 * nothing has happened. */
static bool move_staged(struct pn_copy_call *call,
			struct pn_copy_streams *streams,
			enum pn_copy_method *method, pn_cu_result *result)
{
	struct pn_copy_staging *staging = staging_for(call, *method);

	if (!staging)
		return false;
	if (*method == PN_COPY_NMETHODS)
		*method = PN_COPY_BOUNCE;
	*result = move_blocks(call, staging, streams, *method);
	/* Memory that cannot be registered. */
	if (call->status == -EAGAIN && *method == PN_COPY_PIPELINE) {
		*method = PN_COPY_BOUNCE;
		*result = move_blocks(call, staging, streams, *method);
	}
	pn_copy_staging_return(call->copier, staging);
	return true;
}

/* With streams of our own. False: nothing has happened. A GPU without memory
 * has no streams for us; its driver can copy. */
static bool move_with_streams(struct pn_copy_call *call,
			      enum pn_copy_method *method, pn_cu_result *result)
{
	struct pn_copy_job job;
	bool done = true;

	pn_copy_call_job(call, &job);
	if (pn_copy_streams_take(call->copier, &job))
		return false;
	*result = order_job(call, &job);
	if (!*result)
		done = move_staged(call, job.streams, method, result);
	pn_copy_streams_return(call->copier, &job);
	return done;
}

static pn_cu_result move_by(struct pn_copy_call *call,
			    enum pn_copy_method *method)
{
	pn_cu_result ret;

	if ((*method != PN_COPY_DRIVER || call->held) &&
	    move_with_streams(call, method, &ret))
		return ret;
	*method = PN_COPY_DRIVER;
	return pn_copy_call_by_driver(call);
}

pn_cu_result pn_copy_call_move(struct pn_copy_call *call)
{
	struct pn_copy_question question;
	struct pinion_pin pin;
	enum pn_copy_method method;
	unsigned nthreads;
	uint64_t begin;
	pn_cu_result ret;

	if (pn_copy_call_pin(call, &pin))
		return pn_copy_call_pinned(call, &pin);
	nthreads = atomic_load(&call->copier->nthreads);
	question = pn_copy_call_question(call);
	method = pn_copy_times_choose(&call->copier->times, &question);
	begin = pn_clock_ns();
	ret = move_by(call, &method);
	/* Starting workers is not part of a copy. */
	if (!ret && call->measured &&
	    nthreads == atomic_load(&call->copier->nthreads))
		pn_copy_times_took(&call->copier->times, &question, method,
				   (double)(pn_clock_ns() - begin));
	return ret;
}
