/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the worker does without a call of the program: it soon unpins memory
 * that was released, regions in use do not delay others, and the thread takes
 * no signals of the program. Also asynchronous pins. On `soft`, where VmPin
 * shows what is pinned.
 */
#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/huge.h"
#include "cache/budget.h"
#include "cache/cache_impl.h"
#include "cache/plan_impl.h"
#include "context.h"

#define PAGE  ((size_t)4096)
#define LARGE ((size_t)1 << 20)
#define WRITE PINION_ACCESS_LOCAL_WRITE

static struct pinion_context *context;
static size_t pinned_before;

static char *map(size_t len)
{
	char *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	madvise(p, len, MADV_NOHUGEPAGE);
	memset(p, 1, len);
	return p;
}

static void use(char *p, size_t len, unsigned flags)
{
	struct pinion_pin pin;

	assert_ok(pinion_pin(context, p, len, flags, &pin));
	pinion_unpin(context, &pin);
}

static int setup(void **state)
{
	const char *const options[] = { "device=soft", "cache_merge=no",
					"log=none", NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };

	(void)state;
	assert_ok(pinion_open(&attr, &context));
	pinned_before = pn_huge_vmpin();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pinion_close(context);
	return 0;
}

/* Waits until no more is pinned than so many bytes; false: for too long. */
static bool falls_to(size_t bytes)
{
	uint64_t end = pn_clock_ns() + 60 * PN_NS_PER_S;

	while (pn_huge_vmpin() - pinned_before > bytes) {
		if (pn_clock_ns() > end)
			return false;
		usleep(1000);
	}
	return true;
}

/* --- releases ------------------------------------------------------------- */

static void released_memory_is_unpinned_without_any_call(void **state)
{
	char *p = map(LARGE);

	(void)state;
	use(p, LARGE, WRITE);
	assert_true(pn_huge_vmpin() - pinned_before >= LARGE);
	munmap(p, LARGE);
	assert_true(falls_to(0));
}

static void released_memory_is_unpinned_in_a_program_that_only_hits(
	void **state)
{
	char *p = map(LARGE), *other = map(PAGE);
	uint64_t end = pn_clock_ns() + 60 * PN_NS_PER_S;

	(void)state;
	use(other, PAGE, WRITE);
	use(p, LARGE, WRITE);
	munmap(p, LARGE);
	do
		use(other, PAGE, WRITE);
	while (pn_huge_vmpin() - pinned_before > PAGE && pn_clock_ns() < end);
	assert_true(falls_to(PAGE));
	munmap(other, PAGE);
}

/* Its regions' memory is released while they are pinned: they stay, and the
 * worker has found them held before the next one goes. */
static void a_region_that_is_held_does_not_hold_up_others(void **state)
{
	char *held = map(PAGE), *p = map(LARGE);
	struct pinion_pin pin;

	(void)state;
	assert_ok(pinion_pin(context, held, PAGE, WRITE, &pin));
	use(p, LARGE, WRITE);
	munmap(held, PAGE);
	while (!atomic_load(&context->cache->dying.nheld))
		usleep(1000);
	munmap(p, LARGE);
	assert_true(falls_to(PAGE));
	pinion_unpin(context, &pin);
	assert_true(falls_to(0));
}

/* --- available segments -----------------------------------------------------
 */

static void an_available_segment_stays_though_the_rest_fails(void **state)
{
	char *p = map(2 * PAGE);
	struct pinion_pin_segment before, after;
	struct pinion_pin pin;

	(void)state;
	munmap(p + PAGE, PAGE);
	use(p, PAGE, WRITE);
	assert_int_equal(pinion_pin_start(context, p, 2 * PAGE, WRITE, &pin),
			 -EINPROGRESS);
	assert_ok(pinion_pin_segment(&pin, 0, &before));
	assert_int_equal(pinion_pin_segment(&pin, 1, &after), -EAGAIN);
	while (atomic_load(&((struct pn_plan *)pin.internal[0])->status) !=
	       PN_PLAN_DONE)
		usleep(1000);
	assert_ok(pinion_cache_flush(context));
	assert_true(pn_huge_vmpin() - pinned_before >= PAGE);
	assert_ok(pinion_pin_segment(&pin, 0, &after));
	assert_memory_equal(&before, &after, sizeof(before));
	assert_int_equal(pinion_pin_wait(context, &pin), -EFAULT);
	assert_int_equal(pinion_pin_test(context, &pin), -EINVAL);
	assert_int_equal(pinion_pin_segment(&pin, 0, &after), -EINVAL);
	assert_ok(pinion_cache_flush(context));
	assert_true(falls_to(0));
	munmap(p, PAGE);
}

/* --- threads -------------------------------------------------------------- */

/* The mask of blocked signals of the thread with a name; 0: no such thread. */
static uint64_t blocked_by(const char *name)
{
	DIR *tasks = opendir("/proc/self/task");
	uint64_t mask = 0;
	struct dirent *task;

	assert_non_null(tasks);
	while ((task = readdir(tasks))) {
		char path[512], line[128], comm[64] = "";
		unsigned long long blocked = 0;
		FILE *f;

		snprintf(path, sizeof(path), "/proc/self/task/%s/status",
			 task->d_name);
		f = fopen(path, "re");
		while (f && fgets(line, sizeof(line), f)) {
			sscanf(line, "Name: %63s", comm);
			sscanf(line, "SigBlk: %llx", &blocked);
		}
		if (f)
			fclose(f);
		if (!strcmp(comm, name))
			mask = blocked;
	}
	closedir(tasks);
	return mask;
}

static void the_worker_takes_none_of_the_programs_signals(void **state)
{
	char *p = map(PAGE);
	uint64_t mask;

	(void)state;
	use(p, PAGE, WRITE);
	/* Its name comes a moment after it. */
	while (!(mask = blocked_by("pinion-cache")))
		usleep(1000);
	/* SIGTERM, for one; SIGKILL and SIGSTOP cannot be blocked. */
	assert_true(mask & (UINT64_C(1) << (15 - 1)));
	munmap(p, PAGE);
}

static char *neighbours;

static void *pin_canceled(void *arg)
{
	struct pinion_pin pin;

	pthread_cancel(pthread_self());
	if (pinion_pin(context, neighbours + PAGE, PAGE, WRITE, &pin))
		return NULL;
	pinion_unpin(context, &pin);
	return arg;
}

/* Joining neighbours asks the kernel about the mapping, under the lock. */
static void a_canceled_thread_leaves_no_lock_behind(void **state)
{
	pthread_t thread;
	void *result = NULL;

	(void)state;
	pn_cache_set_merging(context->cache, true);
	neighbours = map(4 * PAGE);
	use(neighbours, PAGE, WRITE);
	assert_ok(pthread_create(&thread, NULL, pin_canceled, &result));
	assert_ok(pthread_join(thread, &result));
	assert_ptr_equal(result, &result);
	use(neighbours + 2 * PAGE, PAGE, WRITE);
	munmap(neighbours, 4 * PAGE);
}

/* --- a pin that is waited for --------------------------------------------- */

/* A pin under way that no worker carries out: the test is the worker. */
static struct pn_plan *begin_plan(char *p, struct pinion_pin *pin)
{
	struct pn_plan *plan = malloc(sizeof(*plan));

	assert_non_null(plan);
	pn_plan_init(plan, context->cache, WRITE,
		     &(struct pn_plan_buffers){ &plan->buffer, 1,
						&plan->first_segment });
	plan->buffer = (struct iovec){ p, PAGE };
	atomic_store(&plan->status, PN_PLAN_RUNNING);
	*pin = (struct pinion_pin){ .reserved = 1, .internal = { plan } };
	return plan;
}

static void *wait_for_pin(void *pin)
{
	return pinion_pin_wait(context, pin) ? NULL : pin;
}

static void a_thread_that_waits_for_a_pin_can_be_canceled(void **state)
{
	struct pinion_pin pin;
	struct pn_plan *plan;
	char *p = map(PAGE);
	pthread_t thread;
	void *result;

	(void)state;
	plan = begin_plan(p, &pin);
	assert_ok(pthread_create(&thread, NULL, wait_for_pin, &pin));
	usleep(20000); /* asleep, or about to be: either is right */
	assert_ok(pthread_cancel(thread));
	assert_ok(pthread_join(thread, &result));
	assert_ptr_equal(result, PTHREAD_CANCELED);
	pn_plan_run(plan);
	assert_ok(pinion_pin_wait(context, &pin));
	assert_int_equal(pin.nsegments, 1);
	pinion_unpin(context, &pin);
	munmap(p, PAGE);
}

/* --- budget --------------------------------------------------------------- */

static void write_file(const char *dir, const char *name, const char *text)
{
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (!text) {
		assert_ok(mkdir(path, 0700));
		return;
	}
	f = fopen(path, "we");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static void the_least_limit_of_all_groups_above_counts(void **state)
{
	static const struct {
		const char *name, *text;
	} files[] = {
		{ "job", NULL },
		{ "job/step", NULL },
		{ "job/step/task", NULL },
		{ "memory", NULL },
		{ "memory/old", NULL },
		{ "rdma", NULL },
		{ "rdma/old", NULL },
		{ "memory.max", "max\n" },
		{ "job/memory.max", "5000\n" },
		{ "job/step/memory.max", "max\n" },
		{ "job/step/task/memory.max", "7000\n" },
		{ "memory/old/memory.limit_in_bytes", "3000\n" },
		{ "job/rdma.max", "ab0 hca_handle=2 hca_object=900\n"
				  "ab01 hca_handle=max hca_object=7\n" },
		{ "job/step/rdma.max", "ab0 hca_handle=2 hca_object=max\n" },
		{ "job/step/task/rdma.max", "" },
		{ "rdma/old/rdma.max", "ab0 hca_handle=2 hca_object=30\n" },
		{ "two", "0::/job/step/task\n" },
		{ "one", "4:cpu:/job\n3:memory:/old\n5:rdma:/old\n" },
		{ "top", "0::/\n" },
		{ "odd", "\n0::\n0:x\nnothing\n1:memory\n0::../x\n" },
	};
	char dir[] = "/tmp/pinion-test-XXXXXX", path[512];
	size_t n = PN_ARRAY_LEN(files);

	(void)state;
	assert_non_null(mkdtemp(dir));
	for (size_t i = 0; i < n; i++)
		write_file(dir, files[i].name, files[i].text);
	static const struct {
		const char *groups;
		size_t bytes, objects;
	} expected[] = { { "two", 5000, 900 },
			 { "one", 3000, 30 },
			 { "top", SIZE_MAX, SIZE_MAX },
			 { "odd", SIZE_MAX, SIZE_MAX },
			 { "none", SIZE_MAX, SIZE_MAX } };
	for (size_t i = 0; i < PN_ARRAY_LEN(expected); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, expected[i].groups);
		assert_int_equal(pn_derive_cgroup_bytes(path, dir),
				 expected[i].bytes);
		assert_int_equal(pn_cgroup_rdma_objects("ab0", path, dir),
				 expected[i].objects);
	}
	while (n--) {
		snprintf(path, sizeof(path), "%s/%s", dir, files[n].name);
		assert_ok(remove(path));
	}
	assert_ok(rmdir(dir));
}

#define TEST_OPEN(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_OPEN(released_memory_is_unpinned_without_any_call),
		TEST_OPEN(
			released_memory_is_unpinned_in_a_program_that_only_hits),
		TEST_OPEN(a_region_that_is_held_does_not_hold_up_others),
		TEST_OPEN(an_available_segment_stays_though_the_rest_fails),
		TEST_OPEN(the_worker_takes_none_of_the_programs_signals),
		TEST_OPEN(a_canceled_thread_leaves_no_lock_behind),
		TEST_OPEN(a_thread_that_waits_for_a_pin_can_be_canceled),
		TEST(the_least_limit_of_all_groups_above_counts),
	};

	return RUN_TESTS(tests);
}
