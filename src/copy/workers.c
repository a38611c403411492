/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The workers: they wait for jobs, join one that wants participants if a
 * staging set is free, and move blocks.
 *
 * A worker without a job sleeps at once. Polling for the next job spares a wake
 * of 10 us. But where all cores are busy, such as with OpenMP threads that poll
 * between parallel regions, copies were slower with it: batches of 16 MiB from
 * PyTorch's DataLoader took 1.5 ms each with workers that polled for 100 us,
 * and 0.7 ms without (H200, 16 cores, one run each). Probably a thread that has
 * polled has used up its share of the CPU when the next job comes.
 */
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/service_thread.h"
#include "copy/copy_impl.h"

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, unsigned n)
{
	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* --- jobs ----------------------------------------------------------------- */

/* Joins the first job that wants a participant, if there is a staging set. */
static struct pn_copy_job *join(struct pn_copier *copier,
				struct pn_copy_staging **staging)
{
	struct pn_copy_job *job = NULL;

	pn_lock(&copier->lock);
	if (!pn_list_empty(&copier->jobs))
		*staging = pn_copy_staging_take_locked(copier);
	if (*staging) {
		job = pn_container_of(copier->jobs.next, struct pn_copy_job,
				      link);
		job->joined++;
		if (!--job->wanted)
			pn_list_remove(&job->link);
	}
	pn_unlock(&copier->lock);
	return job;
}

/* Leaves a job of which all blocks are taken: nobody joins any more. The last
 * participant ends it; after that its storage may go. */
static void leave(struct pn_copier *copier, struct pn_copy_job *job)
{
	void (*finish)(struct pn_copy_job * job) = NULL;

	pn_lock(&copier->lock);
	if (job->wanted)
		pn_list_remove(&job->link);
	job->wanted = 0;
	if (!--job->joined) {
		finish = job->finish;
		if (!finish) {
			/* The owner takes the lock before it returns. */
			atomic_store(&job->ended, 1);
			futex_wake(&job->ended, 1);
		}
	}
	pn_unlock(&copier->lock);
	if (finish)
		finish(job);
}

static void participate(struct pn_copier *copier, struct pn_copy_job *job,
			struct pn_copy_staging *staging)
{
	pn_cu_result ret = PN_CUDA_ERROR_CONTEXT_IS_DESTROYED;

	if (pn_copy_staging_renew(copier, staging))
		ret = copier->cu->ctx_set_current(job->context);
	if (!ret)
		pn_copy_blocks_move(copier, staging, job);
	else
		pn_copy_job_fail(job, pn_cuda_errno(ret), ret);
	pn_copy_staging_return(copier, staging);
	leave(copier, job);
}

/* --- workers -------------------------------------------------------------- */

/* Until something is posted after `seen` was read. */
static void idle(struct pn_copier *copier, uint32_t seen)
{
	/* Pairs with notify(): it reads nasleep after it has counted. */
	atomic_fetch_add(&copier->nasleep, 1);
	if (atomic_load(&copier->posted) == seen)
		futex_wait(&copier->posted, seen);
	atomic_fetch_sub(&copier->nasleep, 1);
}

static void *work(void *arg)
{
	struct pn_copier *copier = arg;
	int mode = PN_CU_STREAM_CAPTURE_MODE_RELAXED;

	if (copier->has_cpus)
		pthread_setaffinity_np(pthread_self(), sizeof(copier->cpus),
				       &copier->cpus);
	copier->cu->exchange_capture_mode(&mode);
	while (!atomic_load(&copier->closing)) {
		uint32_t seen = atomic_load(&copier->posted);
		struct pn_copy_staging *staging = NULL;
		struct pn_copy_job *job = join(copier, &staging);

		if (job)
			participate(copier, job, staging);
		else
			idle(copier, seen);
	}
	return NULL;
}

static void notify(struct pn_copier *copier, unsigned n)
{
	atomic_fetch_add(&copier->posted, 1);
	if (atomic_load(&copier->nasleep))
		futex_wake(&copier->posted, n);
}

void pn_copy_workers_notify(struct pn_copier *copier)
{
	notify(copier, 1);
}

bool pn_copy_workers_start(struct pn_copier *copier, unsigned n)
{
	int ret = 0;

	if (pn_likely(atomic_load(&copier->nthreads) >= n))
		return true;
	if (n > copier->max_participants)
		n = copier->max_participants;
	if (!pn_try_lock(&copier->growing))
		return atomic_load(&copier->nthreads);
	while (!ret && copier->nthreads < n) {
		ret = pn_service_thread_start(
			&copier->threads[copier->nthreads], "pinion-copy", work,
			copier);
		if (!ret)
			atomic_fetch_add(&copier->nthreads, 1);
	}
	pn_unlock(&copier->growing);
	return atomic_load(&copier->nthreads);
}

void pn_copy_job_post(struct pn_copier *copier, struct pn_copy_job *job)
{
	unsigned wanted = job->wanted;

	pn_lock(&copier->lock);
	pn_list_append(&copier->jobs, &job->link);
	pn_unlock(&copier->lock);
	notify(copier, wanted);
}

#define POLL_NS (100 * PN_NS_PER_US)

void pn_copy_job_wait(struct pn_copier *copier, struct pn_copy_job *job)
{
	uint64_t until;

	leave(copier, job);
	until = pn_clock_ns() + POLL_NS;
	while (!atomic_load(&job->ended) && pn_clock_ns() < until)
		pn_relax();
	while (!atomic_load(&job->ended))
		futex_wait(&job->ended, 0);
	/* Whoever ended it has left the lock. */
	pn_lock(&copier->lock);
	pn_unlock(&copier->lock);
}

void pn_copy_workers_close(struct pn_copier *copier)
{
	atomic_store(&copier->closing, true);
	notify(copier, PN_COPY_MAX_PARTICIPANTS);
	for (unsigned i = 0; i < copier->nthreads; i++)
		pthread_join(copier->threads[i], NULL);
}
