/* SPDX-License-Identifier: BSD-2-Clause */
/* What `pinion demo` says at its end, from figures that are given. */
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/pinion/demo_summary.h"

/* What is said: all lines, wrapped ones joined. */
static const char *tell(const struct pn_demo_summary *seen)
{
	static char said[4000];
	FILE *file = fmemopen(said, sizeof(said), "w");
	char *from, *to;

	assert_non_null(file);
	pn_demo_print_summary(seen, "build/pinion", file);
	fclose(file);
	for (from = to = said; *from; to++) {
		if (!strncmp(from, "\n  ", 3))
			*(from += 2) = ' ';
		*to = *from++;
	}
	*to = 0;
	return said;
}

#define assert_says(seen, text)	  assert_non_null(strstr(tell(seen), text))
#define assert_silent(seen, text) assert_null(strstr(tell(seen), text))

static void a_cached_pin_is_compared_with_registering(void **state)
{
	struct pn_demo_summary seen = { .pin_us = 0.05, .kept = true };

	(void)state;
	pn_demo_add_registration(&seen, 1 << 20, 13);
	pn_demo_add_registration(&seen, 4 << 20, 50);
	pn_demo_add_registration(&seen, 16 << 20, 200);
	assert_says(&seen, "Registering 4M costs 50.00 us here. Pinning and "
			   "unpinning it again from the cache costs 0.050 us: "
			   "1000 times less.");
}

static void what_is_not_kept_is_said(void **state)
{
	struct pn_demo_summary seen = { .pin_us = 51 };

	(void)state;
	pn_demo_add_registration(&seen, 64 << 10, 50);
	assert_says(&seen, "Registering 64K costs 50.00 us here. Nothing stays "
			   "registered between uses here: pinning it again "
			   "costs 51.00 us.");
}

static void auto_is_compared_with_the_others(void **state)
{
	struct pn_demo_summary seen = { 0 };

	(void)state;
	pn_demo_add_message(&seen, PN_PROTOCOL_EAGER, 8, 1, PN_PROTOCOL_EAGER);
	for (int id = PN_PROTOCOL_COPY; id < PN_PROTOCOL_COUNT; id++)
		pn_demo_add_message(&seen, id, 1 << 20, 100 * id, id);
	pn_demo_add_message(&seen, PN_PROTOCOL_AUTO, 1 << 20, 50,
			    PN_PROTOCOL_CACHED);
	assert_says(&seen, "Messages of 1M: auto chose cached and took 50.00 "
			   "us; copy 2.00 times that, demand 4.00 times that, "
			   "the fastest (copy) 2.00 times.");
	assert_silent(&seen, "Messages of 8");
}

static void what_was_not_measured_is_not_told(void **state)
{
	const struct pn_demo_summary seen = { 0 };

	(void)state;
	assert_silent(&seen, "Registering");
	assert_silent(&seen, "Messages");
	assert_says(&seen, "Try next:");
}

static void a_machine_that_others_use_is_too_busy(void **state)
{
	struct pn_demo_summary seen = { .ticks = { .all = 1000,
						   .others = 20 } };

	(void)state;
	assert_says(
		&seen,
		"Other programs used 2 % of the processor time: the machine "
		"was idle enough.");
	seen.ticks.others = 610;
	assert_says(&seen, "TOO BUSY TO TELL: other programs used 61 %");
	seen.virtual_time = true;
	assert_silent(&seen, "TOO BUSY");
}

static void a_core_that_slows_down_is_too_busy(void **state)
{
	struct pn_demo_summary seen = { .best_pace = 100, .worst_pace = 120 };

	(void)state;
	assert_silent(&seen, "TOO BUSY");
	seen.worst_pace = 200;
	assert_says(&seen, "TOO BUSY TO TELL: a core was 2 times slower");
}

/* Until the clock of a process says a second. */
static void wait_a_second(clockid_t clock)
{
	struct timespec used;

	do {
		clock_gettime(clock, &used);
	} while (used.tv_sec < 1);
}

/* A process that is no child when it counts: it has not ended. */
static void time_of_others_is_counted(void **state)
{
	struct pn_demo_summary seen = { 0 };
	clockid_t clock;
	pid_t other;

	(void)state;
	pn_demo_begin(&seen);
	if (!seen.ticks.all)
		skip(); /* no /proc/stat here */
	other = fork();
	if (!other)
		for (;;)
			;
	assert_true(other > 0);
	assert_ok(clock_getcpuclockid(other, &clock));
	wait_a_second(clock);
	pn_demo_end(&seen);
	kill(other, SIGKILL);
	assert_int_equal(waitpid(other, NULL, 0), other);
	assert_true(seen.ticks.others > 0.5 * (double)sysconf(_SC_CLK_TCK));
	assert_true(seen.ticks.others <= seen.ticks.all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_cached_pin_is_compared_with_registering),
		TEST(what_is_not_kept_is_said),
		TEST(auto_is_compared_with_the_others),
		TEST(what_was_not_measured_is_not_told),
		TEST(a_machine_that_others_use_is_too_busy),
		TEST(a_core_that_slows_down_is_too_busy),
		TEST(time_of_others_is_counted),
	};

	return RUN_TESTS(tests);
}
