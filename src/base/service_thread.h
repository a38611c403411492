/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * servant -- threads of the library's own.
 *
 * Signals are the program's business: a servant blocks them all. One that took
 * a signal which the program has blocked in its own threads, to collect it when
 * it likes, would end the program. Nor can a servant be canceled (cancel.h).
 */
#ifndef PN_BASE_SERVICE_THREAD_H
#define PN_BASE_SERVICE_THREAD_H

#include <pthread.h>

/* Starts fn(arg); the name shows in ps and gdb, 15 characters at most. 0,
 * -ENOMEM, or what pthread_create() refuses it for. */
int pn_service_thread_start(pthread_t *thread, const char *name,
			    void *(*fn)(void *), void *arg);

#endif
