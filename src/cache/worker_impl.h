/* SPDX-License-Identifier: BSD-2-Clause */
/* The cache's service thread and background tasks (worker.c). */
#ifndef PN_CACHE_WORKER_IMPL_H
#define PN_CACHE_WORKER_IMPL_H

#include "cache/cache_impl.h"

/* Asks every background task that can to give up what is not in use; how many
 * pieces they gave up. */
size_t pn_tasks_shrink(struct pn_cache *cache);

/* There is work: rings the doorbell, and starts the worker if need be. Where
 * there is no worker, deregisters a batch that is due. */
void pn_worker_notify(struct pn_cache *cache);

/* The same if a region began to die under the lock. At the end of every slow
 * path. */
void pn_worker_notify_if_wanted(struct pn_cache *cache);

/* Memory is registered whose release may be reported at any time: starts the
 * worker, which acts on the notice when no call comes. */
void pn_worker_ensure(struct pn_cache *cache);

/* From a notice: wakes a worker that would sleep for long. Takes no lock. */
void pn_worker_wake_idle(struct pn_cache *cache);

void pn_worker_stop(struct pn_cache *cache);

#endif
