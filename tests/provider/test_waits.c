/* SPDX-License-Identifier: BSD-2-Clause */
/* Several threads that wait for the same object: each wakes up for its event,
 * whatever the others consumed. The timeouts are reached only if a wakeup is
 * lost. */
#include "test.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "side.h"

#define PATIENCE_MS 100000
#define ROUNDS	    300
#define NTHREADS    4

static const struct setup setup = { .caps = FI_MSG | FI_TAGGED | FI_RMA |
					    FI_ATOMIC | FI_RMA_EVENT };

/* --- counters ------------------------------------------------------------- */

struct waiter {
	struct fid_cntr *counter;
	unsigned number;
	_Atomic unsigned *wrong;
	_Atomic unsigned reached; /* rounds */
};

/* In every round each thread waits for a value of its own. */
static void *wait_for_each(void *arg)
{
	struct waiter *w = arg;

	for (unsigned n = 0; n < ROUNDS; n++) {
		uint64_t value = n * NTHREADS + w->number + 1;

		if (fi_cntr_wait(w->counter, value, PATIENCE_MS)) {
			atomic_fetch_add(w->wrong, 1);
			break;
		}
		atomic_store(&w->reached, n + 1);
	}
	return NULL;
}

static void start_waiters(struct waiter *waiters, pthread_t *threads,
			  struct fid_cntr *counter, _Atomic unsigned *wrong)
{
	for (unsigned i = 0; i < NTHREADS; i++) {
		waiters[i].counter = counter;
		waiters[i].number = i;
		waiters[i].wrong = wrong;
		atomic_init(&waiters[i].reached, 0);
		assert_ok(pthread_create(&threads[i], NULL, wait_for_each,
					 &waiters[i]));
	}
}

static void threads_wait_for_values_of_one_counter(void **state)
{
	struct side s = { .setup = &setup };
	struct waiter waiters[NTHREADS];
	pthread_t threads[NTHREADS];
	_Atomic unsigned wrong = 0;
	struct fid_cntr *counter;

	(void)state;
	assert_true(open_side(&s));
	counter = s.counters[COUNT_SEND];
	start_waiters(waiters, threads, counter, &wrong);
	/* The other threads of a round keep sleeping while one is woken. */
	for (unsigned n = 0; n < ROUNDS * NTHREADS; n++) {
		struct waiter *w = &waiters[n % NTHREADS];

		assert_ok(fi_cntr_add(counter, 1));
		while (atomic_load(&w->reached) <= n / NTHREADS && !wrong)
			sched_yield();
	}
	for (unsigned i = 0; i < NTHREADS; i++)
		assert_ok(pthread_join(threads[i], NULL));
	assert_int_equal(wrong, 0);
	assert_true(close_side(&s));
}

static bool is_readable(int fd)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };

	return poll(&ready, 1, 0) == 1;
}

static void a_counters_descriptor_reports_unread_changes(void **state)
{
	struct side s = { .setup = &setup };
	struct fid_cntr *counter;
	struct fid *fids[1];
	int fd;

	(void)state;
	assert_true(open_side(&s));
	counter = s.counters[COUNT_SEND];
	fids[0] = &counter->fid;
	assert_ok(fi_control(&counter->fid, FI_GETWAIT, &fd));
	assert_ok(fi_trywait(s.fabric, fids, 1));
	assert_false(is_readable(fd));
	assert_ok(fi_cntr_add(counter, 1));
	assert_true(is_readable(fd));
	assert_int_equal(fi_trywait(s.fabric, fids, 1), -FI_EAGAIN);
	assert_int_equal(fi_cntr_read(counter), 1);
	assert_ok(fi_trywait(s.fabric, fids, 1));
	assert_false(is_readable(fd));
	/* Reading the value does not read the errors. */
	assert_ok(fi_cntr_adderr(counter, 1));
	assert_int_equal(fi_cntr_read(counter), 1);
	assert_int_equal(fi_trywait(s.fabric, fids, 1), -FI_EAGAIN);
	assert_int_equal(fi_cntr_readerr(counter), 1);
	assert_ok(fi_trywait(s.fabric, fids, 1));
	assert_true(close_side(&s));
}

/* --- queues --------------------------------------------------------------- */

struct reader {
	struct side *side;
	_Atomic unsigned *taken, *wrong;
};

/* Reads until all entries are consumed; a signal reports that. */
static void *read_entries(void *arg)
{
	struct reader *r = arg;
	struct fi_cq_tagged_entry end;

	while (atomic_load(r->taken) < ROUNDS) {
		ssize_t n =
			fi_cq_sread(r->side->rx, &end, 1, NULL, PATIENCE_MS);

		if (n == 1)
			atomic_fetch_add(r->taken, 1);
		else if (atomic_load(r->taken) < ROUNDS)
			atomic_fetch_add(r->wrong, 1);
		if (n != 1)
			break;
	}
	fi_cq_signal(r->side->rx);
	return NULL;
}

static void send_to_itself(struct side *s, char *buf, fi_addr_t self)
{
	struct fi_cq_tagged_entry end;

	assert_ok(fi_trecv(s->ep, buf, 1, NULL, FI_ADDR_UNSPEC, 1, 0, NULL));
	assert_ok(fi_tsend(s->ep, "x", 1, NULL, self, 1, NULL));
	assert_true(next_entry(s->tx, &end));
}

static fi_addr_t own_address(struct side *s)
{
	char name[NAME_BYTES];
	size_t len = sizeof(name);
	fi_addr_t self;

	assert_ok(fi_getname(&s->ep->fid, name, &len));
	assert_int_equal(fi_av_insert(s->av, name, 1, &self, 0, NULL), 1);
	return self;
}

static void threads_sleep_on_one_completion_queue(void **state)
{
	struct side s = { .setup = &setup };
	_Atomic unsigned taken = 0, wrong = 0;
	struct reader reader = { &s, &taken, &wrong };
	pthread_t threads[NTHREADS];
	fi_addr_t self;
	char buf;

	(void)state;
	assert_true(open_side(&s));
	self = own_address(&s);
	for (unsigned i = 0; i < NTHREADS; i++)
		assert_ok(pthread_create(&threads[i], NULL, read_entries,
					 &reader));
	for (unsigned n = 0; n < ROUNDS; n++) {
		send_to_itself(&s, &buf, self);
		while (n % 2 && atomic_load(&taken) <= n && !wrong)
			sched_yield();
	}
	for (unsigned i = 0; i < NTHREADS; i++)
		assert_ok(pthread_join(threads[i], NULL));
	assert_int_equal(taken, ROUNDS);
	assert_int_equal(wrong, 0);
	assert_true(close_side(&s));
}

static void *read_event(void *arg)
{
	struct fi_eq_entry entry;
	uint32_t event;

	return fi_eq_sread(arg, &event, &entry, sizeof(entry), PATIENCE_MS,
			   0) == sizeof(entry)
		       ? arg
		       : NULL;
}

/* One event wakes all threads; those that find the queue empty sleep again. */
static void threads_sleep_on_one_event_queue(void **state)
{
	struct fi_eq_attr attr = { .flags = FI_WRITE,
				   .wait_obj = FI_WAIT_UNSPEC };
	struct side s = { .setup = &setup };
	struct fi_eq_entry entry = { .data = 1 };
	pthread_t threads[NTHREADS];
	struct fid_eq *eq;
	void *got;

	(void)state;
	assert_true(open_side(&s));
	assert_ok(fi_eq_open(s.fabric, &attr, &eq, NULL));
	for (unsigned n = 0; n < ROUNDS; n++) {
		for (unsigned i = 0; i < NTHREADS; i++)
			assert_ok(pthread_create(&threads[i], NULL, read_event,
						 eq));
		for (unsigned i = 0; i < NTHREADS; i++) {
			sched_yield();
			assert_int_equal(fi_eq_write(eq, FI_NOTIFY, &entry,
						     sizeof(entry), 0),
					 sizeof(entry));
		}
		for (unsigned i = 0; i < NTHREADS; i++) {
			assert_ok(pthread_join(threads[i], &got));
			assert_ptr_equal(got, eq);
		}
	}
	assert_ok(fi_close(&eq->fid));
	assert_true(close_side(&s));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(threads_wait_for_values_of_one_counter),
		TEST(a_counters_descriptor_reports_unread_changes),
		TEST(threads_sleep_on_one_completion_queue),
		TEST(threads_sleep_on_one_event_queue),
	};

	return RUN_TESTS(tests);
}
