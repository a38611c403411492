/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The walk up the stack has to work in programs built without frame pointers,
 * must not crash whatever they are built with, and has to be fast: it is on the
 * critical path. libunwind's unw_backtrace() does: it remembers for each return
 * address how to find the next one. It is loaded when it is first needed.
 * Without libunwind, glibc's backtrace() does the same and takes ten times as
 * long.
 */
#include "helper/frames.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <string.h>

#include "base/thread.h"
#include "helper/hash_table.h"

/* Frames of our own between the program and the walk: the same for all calls of
 * a kind. */
#define OWN_FRAMES 3
#define MAX_FRAMES 32

typedef int walk_fn(void **frames, int max);

static walk_fn *unwind;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find_unwinder(void)
{
	void *libunwind = dlopen("libunwind.so.8", RTLD_NOW | RTLD_LOCAL);
	void *walk = libunwind ? dlsym(libunwind, "unw_backtrace") : NULL;
	void *first;

	unwind = walk ? (walk_fn *)walk : backtrace;
	/* Only the first walk loads libraries and allocates. */
	unwind(&first, 1);
}

unsigned pn_frames_capture(uintptr_t *frames, unsigned max, bool walk)
{
	const struct pn_thread *self = pn_thread_self();
	void *found[MAX_FRAMES];
	int n;

	frames[0] = self ? (uintptr_t)self->site : 0;
	if (frames[0] || !walk)
		return !!frames[0];
	pthread_once(&once, find_unwinder);
	if (max > MAX_FRAMES - OWN_FRAMES)
		max = MAX_FRAMES - OWN_FRAMES;
	n = unwind(found, (int)max + OWN_FRAMES) - OWN_FRAMES;
	if (n <= 0)
		return 0;
	memcpy(frames, found + OWN_FRAMES, (size_t)n * sizeof(*frames));
	return (unsigned)n;
}

int pn_frames_set_name(const char *name)
{
	struct pn_thread *self = pn_thread_self();
	uint64_t hash = 0;
	size_t n = 0;

	if (!self)
		return -ENOMEM;
	for (; name && *name; name++) {
		hash = pn_hash_mix(hash, (unsigned char)*name) | 1;
		if (n < sizeof(self->site_name) - 1)
			self->site_name[n++] = *name;
	}
	self->site_name[n] = '\0';
	/* 0: no name. The hash of a name is odd, so never 0. */
	self->site = hash;
	return 0;
}
