/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/thread.h"

static _Atomic int nended;

static void count_ended(void *value)
{
	atomic_fetch_add(&nended, *(int *)value);
}

static void *set_local(void *arg)
{
	static int one = 1;

	pn_thread_self()->local[*(int *)arg] = &one;
	return NULL;
}

static void a_thread_that_ends_calls_the_module(void **state)
{
	int key = pn_thread_key_alloc(count_ended);
	pthread_t threads[4];

	(void)state;
	atomic_store(&nended, 0);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, set_local, &key);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(atomic_load(&nended), 4);
	pn_thread_key_free(key);
}

static void a_freed_key_leaves_no_pointer(void **state)
{
	int key = pn_thread_key_alloc(count_ended), again;
	struct pn_thread coroutine;

	(void)state;
	pn_thread_init(&coroutine);
	coroutine.local[key] = &key;
	pn_thread_self()->local[key] = &key;
	pn_thread_key_free(key);
	again = pn_thread_key_alloc(count_ended);
	assert_int_equal(again, key);
	assert_null(pn_thread_self()->local[again]);
	assert_null(coroutine.local[again]);
	pn_thread_key_free(again);
	pn_thread_fini(&coroutine);
}

/* A module that takes its time with the end of a thread. */
static struct {
	_Atomic bool began, may_end, over;
} slow;

static void end_slowly(void *value)
{
	(void)value;
	atomic_store(&slow.began, true);
	while (!atomic_load(&slow.may_end))
		sched_yield();
	usleep(20000);
	atomic_store(&slow.over, true);
}

static pthread_t start_slow(int *key)
{
	pthread_t thread;

	atomic_store(&slow.began, false);
	atomic_store(&slow.may_end, false);
	atomic_store(&slow.over, false);
	*key = pn_thread_key_alloc(end_slowly);
	pthread_create(&thread, NULL, set_local, key);
	while (!atomic_load(&slow.began))
		sched_yield();
	return thread;
}

static void a_key_is_not_freed_while_its_module_is_called(void **state)
{
	int key;
	pthread_t thread = start_slow(&key);

	(void)state;
	atomic_store(&slow.may_end, true);
	pn_thread_key_free(key);
	assert_true(atomic_load(&slow.over));
	pthread_join(thread, NULL);
}

static void a_forked_child_waits_for_no_thread_of_its_parent(void **state)
{
	int key, status = -1;
	pthread_t thread = start_slow(&key);
	pid_t pid = fork();

	(void)state;
	if (!pid) {
		alarm(60);
		pn_thread_key_free(key);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	atomic_store(&slow.may_end, true);
	pthread_join(thread, NULL);
	pn_thread_key_free(key);
}

static void keys_run_out_with_an_error(void **state)
{
	int keys[PN_THREAD_KEYS], n = 0;

	(void)state;
	while ((keys[n] = pn_thread_key_alloc(count_ended)) >= 0)
		if (++n == PN_THREAD_KEYS)
			break;
	assert_int_equal(n, PN_THREAD_KEYS);
	assert_int_equal(pn_thread_key_alloc(count_ended), -EMFILE);
	while (n--)
		pn_thread_key_free(keys[n]);
}

static void coroutines_have_contexts_of_their_own(void **state)
{
	struct pn_thread mine, *before;

	(void)state;
	pn_thread_init(&mine);
	before = pn_thread_self();
	assert_ptr_equal(pn_thread_swap(&mine), before);
	assert_ptr_equal(pn_thread_self(), &mine);
	assert_ptr_equal(pn_thread_swap(before), &mine);
	assert_ptr_equal(pn_thread_self(), before);
	pn_thread_fini(&mine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_thread_that_ends_calls_the_module),
		TEST(a_freed_key_leaves_no_pointer),
		TEST(a_key_is_not_freed_while_its_module_is_called),
		TEST(a_forked_child_waits_for_no_thread_of_its_parent),
		TEST(keys_run_out_with_an_error),
		TEST(coroutines_have_contexts_of_their_own),
	};

	return RUN_TESTS(tests);
}
