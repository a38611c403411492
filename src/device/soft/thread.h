/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * thread -- a thread of the device's own: named for who looks at the process,
 * and deaf to the program's signals.
 */
#ifndef PN_DEVICE_SOFT_THREAD_H
#define PN_DEVICE_SOFT_THREAD_H

#include <pthread.h>

/* Starts fn(arg); name has at most 15 characters. */
int pn_soft_thread_start(pthread_t *thread, const char *name,
			 void *(*fn)(void *), void *arg);

#endif
