/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * lock -- a mutex that clang's thread-safety analysis understands.
 *
 * Work under a mutex is short: pinion does not wait in a device or call back
 * while holding one. An exception is explained where it is declared, for
 * example the endpoint's lock, which is held while memory is registered
 * (message/message.h), and account->near_limit (device/account.h).
 */
#ifndef PN_BASE_LOCK_H
#define PN_BASE_LOCK_H

#include <pthread.h>
#include <stdbool.h>

#include "base/compiler.h"

struct PN_CAPABILITY("mutex") pn_mutex {
	pthread_mutex_t pthread;
};

static inline void pn_mutex_init(struct pn_mutex *mutex)
{
	pn_assert(!pthread_mutex_init(&mutex->pthread, NULL));
}

static inline void pn_mutex_fini(struct pn_mutex *mutex)
{
	pn_assert(!pthread_mutex_destroy(&mutex->pthread));
}

static inline void pn_lock(struct pn_mutex *mutex)
	PN_ACQUIRE(mutex) PN_NO_THREAD_SAFETY
{
	pn_assert(!pthread_mutex_lock(&mutex->pthread));
}

/* True: the mutex was free and is locked now. */
static inline bool pn_try_lock(struct pn_mutex *mutex)
	PN_TRY_ACQUIRE(true, mutex) PN_NO_THREAD_SAFETY
{
	return !pthread_mutex_trylock(&mutex->pthread);
}

static inline void pn_unlock(struct pn_mutex *mutex)
	PN_RELEASE(mutex) PN_NO_THREAD_SAFETY
{
	pn_assert(!pthread_mutex_unlock(&mutex->pthread));
}

#endif
