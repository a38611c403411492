/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Loads the library that the argument names, uses it and closes it in a thread,
 * which then ends: the library's thread destructor runs after dlclose(). This
 * program itself has no code of pinion.
 */
#include "test.h"

#include <dlfcn.h>
#include <pthread.h>

#include <pinion/pinion.h>

static const char *library;

/* The result of the thread. */
struct use {
	int opened, pinned, closed;
};

static void *symbol(void *handle, const char *name)
{
	void *found = dlsym(handle, name);

	if (!found)
		abort();
	return found;
}

static void *use_and_close(void *arg)
{
	static const char *const options[] = { "device=sim", NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };
	static char page[4096];
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	struct pinion_context *context;
	struct use *use = arg;
	struct pinion_pin pin;
	__typeof__(&pinion_open) open_it;
	__typeof__(&pinion_pin) pin_it;
	__typeof__(&pinion_unpin) unpin_it;
	__typeof__(&pinion_close) close_it;

	if (!handle)
		return NULL;
	open_it = (__typeof__(open_it))symbol(handle, "pinion_open");
	pin_it = (__typeof__(pin_it))symbol(handle, "pinion_pin");
	unpin_it = (__typeof__(unpin_it))symbol(handle, "pinion_unpin");
	close_it = (__typeof__(close_it))symbol(handle, "pinion_close");
	use->opened = open_it(&attr, &context);
	if (use->opened)
		return NULL;
	use->pinned = pin_it(context, page, sizeof(page),
			     PINION_ACCESS_LOCAL_WRITE, &pin);
	if (!use->pinned)
		unpin_it(context, &pin);
	close_it(context);
	use->closed = dlclose(handle);
	return NULL;
}

static void a_thread_outlives_the_closed_library(void **state)
{
	struct use use = { -1, -1, -1 };
	pthread_t thread;

	(void)state;
	pthread_create(&thread, NULL, use_and_close, &use);
	pthread_join(thread, NULL);
	assert_ok(use.opened);
	assert_ok(use.pinned);
	assert_ok(use.closed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(a_thread_outlives_the_closed_library),
	};

	if (argc != 2)
		return 2;
	library = argv[1];
	return RUN_TESTS(tests);
}
