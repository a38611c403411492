/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Another library patches libc over pinion's hooks while there are threads and
 * two caches (arguments: that library, and the next mode). userfaultfd notifies
 * late, so every cache has to ask, also one that did not find out by itself; in
 * bypass no cache keeps anything.
 */
#include "test.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "context.h"
#include "monitor/monitor_impl.h"
#include "patcher.h"

static const char *library;
static enum pn_monitor_mode next;

static void *sleep_on(void *arg)
{
	pause();
	return arg;
}

static struct pinion_context *open_soft(void)
{
	const char *const options[] = { "device=soft", "log=none", NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };
	struct pinion_context *context;

	assert_ok(pinion_open(&attr, &context));
	return context;
}

static void use(struct pinion_context *context, void *page)
{
	struct pinion_pin pin;

	assert_ok(pinion_pin(context, page, PN_PAGE_BYTES, 0, &pin));
	pinion_unpin(context, &pin);
}

static void patch_libc(void)
{
	void *handle = dlopen(library, RTLD_NOW);
	int (*install)(enum patcher_kind kind);

	assert_non_null(handle);
	install = (int (*)(enum patcher_kind))dlsym(handle, "patcher_install");
	assert_non_null(install);
	assert_ok(install(PATCHER_RAW));
}

static void assert_heeded(struct pinion_context *context)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };

	assert_int_equal(pn_cache_notices_early(context->cache),
			 next == PN_MONITOR_USERFAULTFD);
	assert_ok(pinion_cache_query(context, &stats));
	assert_int_equal(stats.regions, next == PN_MONITOR_USERFAULTFD);
}

static void every_cache_follows_the_new_mode(void **state)
{
	struct pinion_context *first = open_soft(), *second = open_soft();
	char *pages = mmap(NULL, 2 * PN_PAGE_BYTES, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t thread;

	(void)state;
	if (pn_monitor_mode() != PN_MONITOR_PATCH)
		skip();
	assert_ok(pthread_create(&thread, NULL, sleep_on, NULL));
	use(second, pages);
	patch_libc();
	use(first, pages + PN_PAGE_BYTES);
	assert_int_equal(pn_monitor_mode(), next);
	use(first, pages + PN_PAGE_BYTES);
	use(second, pages);
	assert_heeded(first);
	assert_heeded(second);
	pinion_close(first);
	pinion_close(second);
	munmap(pages, 2 * PN_PAGE_BYTES);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(every_cache_follows_the_new_mode),
	};

	if (argc != 3)
		return 2;
	library = argv[1];
	next = strcmp(argv[2], "bypass") ? PN_MONITOR_USERFAULTFD
					 : PN_MONITOR_BYPASS;
	pn_monitor_faults.no_userfaultfd = next == PN_MONITOR_BYPASS;
	return RUN_TESTS(tests);
}
