/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/service_thread.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "base/cancel.h"

struct start {
	void *(*fn)(void *arg);
	void *arg;
};

static void *begin(void *arg)
{
	struct start start = *(struct start *)arg;

	free(arg);
	pn_cancel_off();
	return start.fn(start.arg);
}

int pn_service_thread_start(pthread_t *thread, const char *name,
			    void *(*fn)(void *), void *arg)
{
	struct start *start = malloc(sizeof(*start));
	sigset_t all, old;
	int ret;

	if (!start)
		return -ENOMEM;
	*start = (struct start){ fn, arg };
	/* A new thread inherits the mask. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ret = pthread_create(thread, NULL, begin, start);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (ret)
		free(start);
	else
		pthread_setname_np(*thread, name);
	return -ret;
}
