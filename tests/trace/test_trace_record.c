/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Recording into a file: threads, crash, fork, limits; and reading the file.
 */
#include "trace_file.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/thread.h"
#include "trace/format.h"
#include "trace/record.h"

#define MIB ((uint64_t)1 << 20)

static void record(const struct pn_trace_event *event)
{
	struct pn_trace_sink *sink = pn_trace_sink();

	if (sink)
		sink->record(sink, event);
}

static struct pn_trace *reopen(const char *path)
{
	struct pn_trace *trace;
	struct pn_why why = { "" };

	if (pn_trace_open(path, &trace, &why))
		fail_msg("%s", why.text);
	return trace;
}

static uint64_t count(struct pn_trace *trace)
{
	struct pn_trace_event events[64];
	uint64_t n = 0;
	int ret;

	while ((ret = pn_trace_read(trace, events, 64)) > 0)
		n += (unsigned)ret;
	if (ret)
		fail_msg("%s", pn_trace_location(trace));
	return n;
}

/* --- one thread ----------------------------------------------------------- */

static void what_was_recorded_is_read_in_order(void **state)
{
	enum { EVENTS = 30000 };
	uint64_t seed = test_seed(), again = seed;
	struct pn_trace_event e = { .time_ns = 1000 }, got;
	struct pn_trace *trace;
	uint64_t start = 0;

	(void)state;
	assert_ok(pn_record_start(trace_path("one"), 100 * MIB));
	assert_string_equal(pn_record_path(), trace_path("one"));
	for (int i = 0; i < EVENTS; i++) {
		trace_random(&seed, &e);
		record(&e);
	}
	pn_record_stop();
	assert_null(pn_record_path());
	assert_null(pn_trace_sink());
	trace = reopen(trace_path("one"));
	e = (struct pn_trace_event){ .time_ns = 1000 };
	for (int i = 0; i < EVENTS; i++) {
		trace_random(&again, &e);
		assert_int_equal(pn_trace_next(trace, &got), 1);
		start = i ? start : e.time_ns;
		e.thread = got.thread;
		assert_true(trace_same(&got, &e));
		assert_int_equal(got.time_ns, e.time_ns - start);
		assert_int_equal(got.thread, 1);
	}
	assert_int_equal(pn_trace_next(trace, &got), 0);
	assert_true(pn_trace_info(trace)->complete);
	assert_int_equal(pn_trace_info(trace)->pid, getpid());
	assert_int_equal(pn_trace_info(trace)->lost, 0);
	assert_string_equal(pn_trace_info(trace)->program,
			    program_invocation_short_name);
	pn_trace_close(trace);
	trace_remove("one");
}

static void noalloc_events_precede_the_next_event_of_their_thread(void **state)
{
	struct pn_trace_sink *sink;
	struct pn_trace_event e = { .kind = PN_EVENT_PIN, .time_ns = 5 }, got;
	struct pn_trace *trace;
	const int quiet = 700, kept = 512;

	(void)state;
	assert_ok(pn_record_start(trace_path("quiet"), MIB));
	sink = pn_trace_sink();
	record(&e);
	for (int i = 0; i < quiet; i++) {
		struct pn_trace_event release = { .kind = PN_EVENT_RELEASE,
						  .addr = (uint64_t)i };

		sink->record_noalloc(sink, &release);
	}
	e.time_ns = 9;
	record(&e);
	pn_record_stop();
	trace = reopen(trace_path("quiet"));
	assert_int_equal(pn_trace_next(trace, &got), 1);
	for (int i = 0; i < kept; i++) {
		assert_int_equal(pn_trace_next(trace, &got), 1);
		assert_int_equal(got.kind, PN_EVENT_RELEASE);
		assert_int_equal(got.addr, i);
		assert_int_equal(got.time_ns, 4);
	}
	assert_int_equal(pn_trace_next(trace, &got), 1);
	assert_int_equal(got.kind, PN_EVENT_PIN);
	assert_int_equal(pn_trace_next(trace, &got), 0);
	assert_int_equal(pn_trace_info(trace)->lost, quiet - kept);
	pn_trace_close(trace);
	trace_remove("quiet");
}

static void *record_old_event(void *arg)
{
	struct pn_trace_event e = { .kind = PN_EVENT_EVICT, .time_ns = 3 };

	(void)arg;
	record(&e);
	return NULL;
}

/* The worker of a cache records with a time that it read a while ago. */
static void a_release_follows_what_its_thread_recorded_before(void **state)
{
	struct pn_trace_event e = { .kind = PN_EVENT_PIN, .time_ns = 1 };
	struct pn_trace_event release = { .kind = PN_EVENT_RELEASE };
	static const uint8_t expected[] = { PN_EVENT_PIN, PN_EVENT_PIN,
					    PN_EVENT_RELEASE, PN_EVENT_EVICT,
					    PN_EVENT_PIN };
	struct pn_trace *trace;
	pthread_t thread;

	(void)state;
	assert_ok(pn_record_start(trace_path("order"), MIB));
	record(&e);
	e.time_ns = 5;
	record(&e);
	pn_trace_sink()->record_noalloc(pn_trace_sink(), &release);
	assert_ok(pthread_create(&thread, NULL, record_old_event, NULL));
	pthread_join(thread, NULL);
	e.time_ns = 9;
	record(&e);
	pn_record_stop();
	trace = reopen(trace_path("order"));
	for (unsigned i = 0; i < PN_ARRAY_LEN(expected); i++) {
		assert_int_equal(pn_trace_next(trace, &e), 1);
		assert_int_equal(e.kind, expected[i]);
	}
	assert_int_equal(pn_trace_next(trace, &e), 0);
	pn_trace_close(trace);
	trace_remove("order");
}

static void a_full_file_counts_lost_events(void **state)
{
	const uint64_t events = 60000, max = 256 << 10;
	struct pn_trace_event e = { .kind = PN_EVENT_PIN };
	struct pn_trace *trace;
	struct stat st;
	uint64_t n;

	(void)state;
	assert_ok(pn_record_start(trace_path("full"), max));
	for (uint64_t i = 0; i < events; i++) {
		e.time_ns += 1000;
		e.addr = i << 20;
		record(&e);
	}
	pn_record_stop();
	assert_ok(stat(trace_path("full"), &st));
	assert_true((uint64_t)st.st_size <= max + PN_TRACE_HEAD_BYTES);
	trace = reopen(trace_path("full"));
	n = count(trace);
	assert_true(n > 1000 && n < events);
	assert_int_equal(n + pn_trace_info(trace)->lost, events);
	pn_trace_close(trace);
	trace_remove("full");
}

static void events_have_the_site_of_their_thread(void **state)
{
	struct pn_trace_event e = { .kind = PN_EVENT_PIN }, got;
	struct pn_trace *trace;

	(void)state;
	assert_ok(pn_record_start(trace_path("site"), MIB));
	pn_thread_self()->site = 4711;
	record(&e);
	e.site = 42; /* set by the caller */
	record(&e);
	pn_thread_self()->site = 0;
	pn_record_stop();
	trace = reopen(trace_path("site"));
	assert_int_equal(pn_trace_next(trace, &got), 1);
	assert_int_equal(got.site, 4711);
	assert_int_equal(pn_trace_next(trace, &got), 1);
	assert_int_equal(got.site, 42);
	pn_trace_close(trace);
	trace_remove("site");
}

/* --- files ---------------------------------------------------------------- */

static void a_file_that_is_not_a_trace_is_not_overwritten(void **state)
{
	const char *path = trace_path("thesis");
	struct stat st;

	(void)state;
	trace_write(path, "three years of work", 19, false);
	assert_int_equal(pn_record_start(path, MIB), -EEXIST);
	assert_null(pn_record_path());
	assert_ok(stat(path, &st));
	assert_int_equal(st.st_size, 19);
	trace_remove("thesis");
	assert_int_equal(pn_record_start("/nowhere/at/all", MIB), -ENOENT);
	assert_ok(pn_record_start("", MIB));
	assert_null(pn_trace_sink());
}

static void a_file_name_may_contain_the_process_id(void **state)
{
	char name[64];

	(void)state;
	assert_ok(pn_record_start(trace_path("a%%b.%p.c"), MIB));
	snprintf(name, sizeof(name), "a%%b.%d.c", getpid());
	assert_string_equal(pn_record_path(), trace_path(name));
	pn_record_stop();
	trace_remove(name);
}

static void a_file_name_may_contain_the_rank(void **state)
{
	(void)state;
	assert_ok(setenv("OMPI_COMM_WORLD_RANK", "12", 1));
	assert_ok(pn_record_start(trace_path("rank-%r.c"), MIB));
	assert_string_equal(pn_record_path(), trace_path("rank-12.c"));
	pn_record_stop();
	assert_ok(unsetenv("OMPI_COMM_WORLD_RANK"));
	trace_remove("rank-12.c");
}

/* --- threads -------------------------------------------------------------- */

#define THREADS	   4
#define PER_THREAD 20000

static void *record_in_turns(void *arg)
{
	uint64_t me = (uintptr_t)arg;

	for (uint64_t i = 0; i < PER_THREAD; i++) {
		struct pn_trace_event e = { .kind = PN_EVENT_PIN,
					    .time_ns = pn_clock_ns(),
					    .addr = me,
					    .len = i };

		record(&e);
		if (i % 1000 == 500) {
			struct pn_trace_sink *sink = pn_trace_sink();

			e.kind = PN_EVENT_RELEASE;
			sink->record_noalloc(sink, &e);
		}
	}
	return NULL;
}

/* The events of each thread are in order, and all events approximately in the
 * order of time: a thread that was preempted between reading the clock and
 * allocating a block is late. */
static void check_threads(struct pn_trace *trace, unsigned nthreads)
{
	uint64_t next[2 * THREADS] = { 0 }, before = 0, releases = 0, late = 0;
	uint32_t number[2 * THREADS] = { 0 };
	struct pn_trace_event e;
	int ret;

	while ((ret = pn_trace_next(trace, &e)) > 0) {
		assert_true(e.addr < nthreads);
		if (e.kind == PN_EVENT_RELEASE) {
			releases++;
			continue;
		}
		assert_int_equal(e.len, next[e.addr]++);
		if (!number[e.addr])
			number[e.addr] = e.thread;
		assert_int_equal(e.thread, number[e.addr]);
		late += e.time_ns < before;
		before = e.time_ns;
	}
	assert_int_equal(ret, 0);
	for (unsigned i = 0; i < nthreads; i++)
		assert_int_equal(next[i], PER_THREAD);
	assert_int_equal(releases, nthreads * (PER_THREAD / 1000));
	assert_true(late < (uint64_t)nthreads * PER_THREAD / 100);
}

static void run_threads(unsigned first)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		assert_ok(pthread_create(&threads[i], NULL, record_in_turns,
					 (void *)(first + i)));
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

static void threads_record_without_losing_anything(void **state)
{
	struct pn_trace *trace;
	struct stat st;

	(void)state;
	assert_ok(pn_record_start(trace_path("threads"), 64 * MIB));
	run_threads(0);
	run_threads(THREADS); /* in the streams of the first threads */
	pn_record_stop();     /* with the events that are still in the ring */
	assert_ok(stat(trace_path("threads"), &st));
	assert_true(st.st_size < 32 * 2 * THREADS * PER_THREAD);
	trace = reopen(trace_path("threads"));
	assert_int_equal(pn_trace_info(trace)->lost, 0);
	check_threads(trace, 2 * THREADS);
	pn_trace_close(trace);
	trace_remove("threads");
}

/* --- crash and fork ------------------------------------------------------- */

static void a_killed_program_leaves_what_it_recorded(void **state)
{
	_Atomic uint64_t *done = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct pn_trace *trace;
	uint64_t n;
	pid_t child;

	(void)state;
	assert_ptr_not_equal(done, MAP_FAILED);
	child = fork();
	if (!child) {
		struct pn_trace_event e = { .kind = PN_EVENT_PIN };

		if (pn_record_start(trace_path("killed"), 100 * MIB))
			_exit(1);
		for (;; atomic_fetch_add(done, 1)) {
			e.len = atomic_load(done);
			record(&e);
		}
	}
	while (atomic_load(done) < 20000)
		sched_yield();
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	trace = reopen(trace_path("killed"));
	n = count(trace);
	assert_false(pn_trace_info(trace)->complete);
	assert_int_equal(pn_trace_info(trace)->pid, child);
	n += pn_trace_info(trace)->lost;
	/* The last event may be recorded and not counted. */
	assert_in_range(n, atomic_load(done), atomic_load(done) + 1);
	pn_trace_close(trace);
	munmap((void *)done, 4096);
	trace_remove("killed");
}

/* The child records, starts its own trace, and records again. */
static void act_as_child(const char *pattern)
{
	struct pn_trace_event e = { .kind = PN_EVENT_UNPIN };

	record(&e); /* dropped */
	if (pn_record_path() || pn_record_start(pattern, MIB))
		_exit(1);
	record(&e);
	record(&e);
	if (!strcmp(pn_record_path(), pattern))
		_exit(2);
	trace_folder[0] = 0; /* the parent removes it */
	exit(0);	     /* as at program exit */
}

static void a_child_records_into_its_own_file(void **state)
{
	struct pn_trace_event e = { .kind = PN_EVENT_PIN };
	struct pn_trace *trace;
	char pattern[128], name[64];
	int status;
	pid_t child;

	(void)state;
	strcpy(pattern, trace_path("parent"));
	assert_ok(pn_record_start(pattern, MIB));
	record(&e);
	child = fork();
	if (!child)
		act_as_child(pattern);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	record(&e);
	pn_record_stop();
	trace = reopen(pattern);
	assert_int_equal(count(trace), 2);
	pn_trace_close(trace);
	snprintf(name, sizeof(name), "parent.%d", child);
	trace = reopen(trace_path(name));
	assert_int_equal(pn_trace_info(trace)->pid, child);
	assert_int_equal(count(trace), 2);
	assert_true(pn_trace_info(trace)->complete);
	pn_trace_close(trace);
	trace_remove(name);
	trace_remove("parent");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_was_recorded_is_read_in_order),
		TEST(noalloc_events_precede_the_next_event_of_their_thread),
		TEST(a_release_follows_what_its_thread_recorded_before),
		TEST(a_full_file_counts_lost_events),
		TEST(events_have_the_site_of_their_thread),
		TEST(a_file_that_is_not_a_trace_is_not_overwritten),
		TEST(a_file_name_may_contain_the_process_id),
		TEST(a_file_name_may_contain_the_rank),
		TEST(threads_record_without_losing_anything),
		TEST(a_killed_program_leaves_what_it_recorded),
		TEST(a_child_records_into_its_own_file),
	};

	return RUN_TESTS(tests);
}
