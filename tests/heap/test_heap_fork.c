/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fork(): the child may read what its parent had allocated, cannot allocate
 * from it, can have a heap of its own, and does the parent no harm.
 */
#include "child.h"

#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "context.h"
#include "heap/heap_impl.h"
#include "mover.h"

#define LEN 5000

static struct {
	struct pinion_context *context;
	struct pinion_heap *heap;
	struct mover mover;
	char *block;
} f;

static struct pinion_heap *open_heap(struct pinion_context **context)
{
	const char *const options[] = { "device=soft", NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };
	struct pinion_heap *heap = NULL;

	if (pinion_open(&attr, context) ||
	    pinion_heap_open(*context, NULL, &heap))
		return NULL;
	return heap;
}

static int setup(void **state)
{
	(void)state;
	f.heap = open_heap(&f.context);
	assert_non_null(f.heap);
	f.block = pinion_heap_malloc(f.heap, LEN);
	assert_non_null(f.block);
	memset(f.block, 'p', LEN);
	assert_ok(mover_open(&f.mover, f.context->device, LEN));
	/* Some are in the thread cache. */
	pinion_heap_free(f.heap, pinion_heap_malloc(f.heap, LEN));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pinion_heap_free(f.heap, f.block);
	pn_heap_check(f.heap);
	mover_close(&f.mover);
	pinion_heap_close(f.heap);
	pinion_close(f.context);
	return 0;
}

/* The parent's registration still reaches the pages that it sees. */
static void assert_unharmed(void)
{
	struct pinion_heap_region region = { .size = sizeof(region) };
	struct pinion_pin_segment part;

	for (unsigned i = 0; i < LEN; i++)
		assert_int_equal(f.block[i], 'p');
	assert_ok(pinion_heap_find(f.heap, f.block, &region));
	part = (struct pinion_pin_segment){ .addr = f.block,
					    .len = LEN,
					    .local_key = region.local_key,
					    .remote_key = region.remote_key };
	for (int way = 0; way < MOVER_NWAYS; way++)
		assert_ok(mover_move(&f.mover, way, &part));
	memset(f.block, 'p', LEN);
	pn_heap_check(f.heap);
}

static void run_child(void (*fn)(void))
{
	child_run(fn);
	assert_unharmed();
}

static void refused(const void *block)
{
	CHECK(!block && errno == EPERM);
	errno = 0;
}

static void use_parents_heap(void)
{
	struct pinion_heap_stats stats = { .size = sizeof(stats) };
	struct pinion_heap_region region = { .size = sizeof(region) };
	struct pinion_heap *heap;

	for (unsigned i = 0; i < LEN; i++)
		CHECK(f.block[i] == 'p');
	memset(f.block, 'c', LEN);
	refused(pinion_heap_malloc(f.heap, LEN));
	refused(pinion_heap_malloc(f.heap, 1 << 20));
	refused(pinion_heap_calloc(f.heap, 1, LEN));
	refused(pinion_heap_realloc(f.heap, f.block, 10 * LEN));
	refused(pinion_heap_aligned(f.heap, 64, LEN));
	pinion_heap_free(f.heap, f.block);
	refused(pinion_heap_malloc(f.heap, LEN));
	CHECK(pinion_heap_find(f.heap, f.block, &region) == -ENOENT);
	CHECK(pinion_heap_trim(f.heap) == -EPERM);
	CHECK(pinion_heap_query(f.heap, &stats) == -EPERM);
	CHECK(pinion_heap_open(f.context, NULL, &heap) == -EPERM);
	pinion_heap_close(f.heap);
	pinion_close(f.context);
}

static void open_own_heap(void)
{
	struct pinion_context *context;
	struct pinion_heap *heap = open_heap(&context);
	char *block;

	CHECK(heap);
	block = pinion_heap_malloc(heap, LEN);
	CHECK(block && pinion_heap_contains(heap, block));
	CHECK(!pinion_heap_contains(heap, f.block));
	pinion_heap_free(heap, block);
	pinion_heap_close(heap);
	pinion_close(context);
}

static void a_child_reads_and_cannot_allocate(void **state)
{
	(void)state;
	run_child(use_parents_heap);
}

static void a_child_can_have_a_heap_of_its_own(void **state)
{
	(void)state;
	run_child(open_own_heap);
}

static void no_fork_keeps_the_memory_from_children(void **state)
{
	const struct pinion_heap_attr attr = {
		.size = sizeof(attr), .flags = PINION_HEAP_NOT_IN_CHILDREN
	};
	struct pinion_heap *heap;
	char *block;
	int status, fds[2];
	pid_t pid;

	(void)state;
	assert_ok(pinion_heap_open(f.context, &attr, &heap));
	block = pinion_heap_malloc(heap, LEN);
	assert_non_null(block);
	assert_ok(pipe(fds));
	pid = fork();
	/* Asks the kernel instead of touching the memory. */
	if (!pid)
		_exit(write(fds[1], block, 1) == 1 ? 0 : errno);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), EFAULT);
	close(fds[0]);
	close(fds[1]);
	pinion_heap_close(heap);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_child_reads_and_cannot_allocate),
		TEST(a_child_can_have_a_heap_of_its_own),
		TEST(no_fork_keeps_the_memory_from_children),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
