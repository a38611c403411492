/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/servant.h"

#include <signal.h>

int pn_servant_start(pthread_t *thread, const char *name, void *(*fn)(void *),
		     void *arg)
{
	sigset_t all, old;
	int ret;

	/* A new thread inherits the mask. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(thread, NULL, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!ret)
		pthread_setname_np(*thread, name);
	return -ret;
}
