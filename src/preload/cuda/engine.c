/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The copy engine of this process: one context of pinion over the GPUs,
 * opened by the first copy that is large enough and closed when a CUDA context
 * ends. The next copy opens another.
 *
 * A user of the context holds `users` for reading, whoever closes it for
 * writing. Copies wait for nothing but that.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <pinion/pinion.h>

#include "base/list.h"
#include "base/lock.h"
#include "copy/private.h"
#include "preload/cuda/preload.h"

#define PAGEABLE_MEMORY_ACCESS 88 /* a device attribute */

static pthread_rwlock_t users = PTHREAD_RWLOCK_INITIALIZER;
static struct pinion_context *context; /* users */
static _Atomic bool is_open;	       /* users, read without */
static _Atomic bool refused;	       /* never again in this process */

/* --- copies that are under way ----------------------------------------------
 */

struct under_way {
	struct pn_list link; /* copies */
	struct pn_range dst, src;
};

static struct pn_mutex copies_lock = { PTHREAD_MUTEX_INITIALIZER };
static struct pn_list copies = { &copies, &copies }; /* copies_lock */

static void begin_copy(struct under_way *copy)
{
	pn_lock(&copies_lock);
	pn_list_append(&copies, &copy->link);
	pn_unlock(&copies_lock);
}

static void end_copy(struct under_way *copy)
{
	pn_lock(&copies_lock);
	pn_list_remove(&copy->link);
	pn_unlock(&copies_lock);
}

bool pn_preload_engine_uses(struct pn_range range)
{
	struct pn_list *pos;
	bool found = false;

	pn_lock(&copies_lock);
	pn_list_for_each (pos, &copies) {
		const struct under_way *copy =
			pn_container_of(pos, struct under_way, link);

		found |= pn_range_overlaps(copy->dst, range) ||
			 pn_range_overlaps(copy->src, range);
	}
	pn_unlock(&copies_lock);
	return found;
}

/* --- closing ---------------------------------------------------------------
 */

static void close_locked(void)
{
	atomic_store(&is_open, false);
	pinion_close(context);
	context = NULL;
}

/* Registered after the driver's own handler, since the engine is opened after
 * the driver: runs before the driver shuts down. A copy of another thread that
 * never ends must not keep the process from ending. */
static void close_at_exit(void)
{
	atomic_store(&refused, true);
	if (pthread_rwlock_trywrlock(&users))
		return;
	close_locked();
	pthread_rwlock_unlock(&users);
}

/* The driver does not work in a child of a process that used it, and the
 * engine is of that process. A child whose parent did not is like any other
 * process. */
static void after_fork(void)
{
	pthread_rwlock_init(&users, NULL);
	pn_mutex_init(&copies_lock);
	pn_list_init(&copies);
	if (atomic_load(&is_open))
		atomic_store(&refused, true);
	atomic_store(&is_open, false);
	context = NULL;
}

/* --- opening ---------------------------------------------------------------
 */

static void set_up_once(void)
{
	static bool done; /* users, for writing */

	if (done)
		return;
	done = true;
	atexit(close_at_exit);
	pthread_atfork(NULL, NULL, after_fork);
}

/* Where kernels read and write unpinned memory directly (HMM, Grace), a
 * registration whose pages were replaced would show in them too, and kernels do
 * not come by here. */
static bool kernels_reach_unpinned_memory(void)
{
	int ndevices = 0, value = 0;

	if (PN_REAL(cuDeviceGetCount, &ndevices))
		return true;
	for (int i = 0; !value && i < ndevices; i++)
		PN_REAL(cuDeviceGetAttribute, &value, PAGEABLE_MEMORY_ACCESS,
			i);
	return value;
}

static int open_locked(void)
{
	const char *keep = kernels_reach_unpinned_memory() ? "cuda_keep=no"
							   : "cuda_keep=yes";
	const char *const options[] = { "device=cuda", keep, NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	int ret = context ? 0 : pinion_open(&attr, &context);

	/* pinion_open() has said why. */
	if (ret)
		atomic_store(&refused, true);
	else
		atomic_store(&is_open, true);
	set_up_once();
	return ret;
}

/* Returns with `users` held for reading and the context open, or -ENODEV. */
static int get_engine(void)
{
	while (!atomic_load_explicit(&refused, memory_order_relaxed)) {
		pthread_rwlock_rdlock(&users);
		if (pn_likely(context))
			return 0;
		pthread_rwlock_unlock(&users);
		pthread_rwlock_wrlock(&users);
		open_locked();
		pthread_rwlock_unlock(&users);
	}
	return -ENODEV;
}

static void put_engine(void)
{
	pthread_rwlock_unlock(&users);
}

/* --- what the calls need ---------------------------------------------------
 */

int pn_preload_engine_copy(const struct pn_preload_copy *copy)
{
	const struct pn_copy_op op = {
		.dst = (void *)copy->dst,
		.src = (const void *)copy->src,
		.bytes = copy->bytes,
		.stream = copy->stream,
		.unpinned_only = true,
		.blocking = copy->blocking,
	};
	struct under_way me = { .dst = { copy->dst, copy->bytes },
				.src = { copy->src, copy->bytes } };
	int ret = get_engine();

	if (ret)
		return ret;
	begin_copy(&me);
	ret = pn_cuda_copy(context, &op, NULL);
	end_copy(&me);
	put_engine();
	return ret;
}

int pn_preload_engine_hold(void *addr, size_t len)
{
	struct pinion_pin pin;
	int ret = get_engine();

	if (ret)
		return ret;
	ret = pinion_pin(context, addr, len, 0, &pin);
	if (!ret)
		pinion_unpin(context, &pin);
	put_engine();
	return ret;
}

void pn_preload_engine_settle(void)
{
	if (!atomic_load(&is_open))
		return;
	pthread_rwlock_rdlock(&users);
	if (context)
		pn_cuda_settle(context);
	pthread_rwlock_unlock(&users);
}

bool pn_preload_engine_yield(struct pn_range range)
{
	bool there;

	if (!atomic_load(&is_open))
		return false;
	pthread_rwlock_rdlock(&users);
	there = context;
	if (there && range.len)
		pn_cuda_yield(context, (void *)range.addr, range.len);
	pthread_rwlock_unlock(&users);
	return there;
}

/* --- the end of CUDA contexts ----------------------------------------------
 */

/* Everything of ours in that context goes before the context does. Copies of
 * other threads in other contexts wait, and then open the engine again. */
static void close_engine(void)
{
	if (!atomic_load(&is_open))
		return;
	pthread_rwlock_wrlock(&users);
	close_locked();
	pthread_rwlock_unlock(&users);
}

#define ENDING(symbol, type)                           \
	PN_PRELOAD_API pn_cu_result symbol(type which) \
	{                                              \
		close_engine();                        \
		return PN_REAL(symbol, which);         \
	}

ENDING(cuCtxDestroy, pn_cu_context)
ENDING(cuCtxDestroy_v2, pn_cu_context)
ENDING(cuDevicePrimaryCtxRelease, pn_cu_device)
ENDING(cuDevicePrimaryCtxRelease_v2, pn_cu_device)
ENDING(cuDevicePrimaryCtxReset, pn_cu_device)
ENDING(cuDevicePrimaryCtxReset_v2, pn_cu_device)
