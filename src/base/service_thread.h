/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * service_thread -- threads that the library starts for itself.
 *
 * A service thread blocks all signals: they are for the program. A thread that
 * took a signal which the program has blocked in its own threads, to collect it
 * later, would end the program. Service threads cannot be canceled (cancel.h).
 */
#ifndef PN_BASE_SERVICE_THREAD_H
#define PN_BASE_SERVICE_THREAD_H

#include <pthread.h>

/* Starts fn(arg); the name is shown by ps and gdb, 15 characters at most. 0,
 * -ENOMEM, or the error of pthread_create(). */
int pn_service_thread_start(pthread_t *thread, const char *name,
			    void *(*fn)(void *), void *arg);

#endif
