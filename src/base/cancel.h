/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cancel -- pthread_cancel() of a thread that is inside the library.
 *
 * A canceled thread ends at the next cancellation point, and many system calls
 * are one: read(), write(), close(), poll(). A thread that ended there with a
 * lock, or half way through a change, would leave the object unusable for all
 * others. So:
 *
 * - Two public calls are cancellation points, pinion_wait() and
 *   pinion_pin_wait(), and only while they sleep. They hold no lock then, and a
 *   cleanup handler hands over what the sleeper was responsible for.
 * - Everywhere else PN_NO_CANCEL() disables cancellation around what may be a
 *   cancellation point. Calls that are slow anyway disable it from beginning to
 *   end. A cache hit and a short message make no system call and pay nothing:
 *   the slow paths that they call disable it. A request to cancel stays pending
 *   and takes effect after the call has returned to the program.
 * - Service threads (service_thread.h) cannot be canceled.
 *
 * Cancellation of type PTHREAD_CANCEL_ASYNCHRONOUS takes effect anywhere; no
 * call of this library is safe for threads that have chosen it.
 */
#ifndef PN_BASE_CANCEL_H
#define PN_BASE_CANCEL_H

#include <pthread.h>

static inline int pn_cancel_off(void)
{
	int was;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &was);
	return was;
}

static inline void pn_cancel_restore(const int *was)
{
	pthread_setcancelstate(*was, NULL);
}

/* A declaration: no cancellation from here to the end of the block. */
#define PN_NO_CANCEL()                                                \
	int pn_cancel_was                                             \
		__attribute__((cleanup(pn_cancel_restore), unused)) = \
			pn_cancel_off()

#endif
