/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The summary of `pinion demo` for given figures.
 */
#include "test.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tools/pinion/demo_summary.h"

/* The printed summary as one line. */
static const char *printed(const struct pn_demo_summary *summary)
{
	static char text[4000];
	FILE *file = fmemopen(text, sizeof(text), "w");
	char *from, *to;

	assert_non_null(file);
	pn_demo_print_summary(summary, "build/pinion", file);
	fclose(file);
	for (from = to = text; *from; to++) {
		if (!strncmp(from, "\n  ", 3))
			*(from += 2) = ' ';
		*to = *from++;
	}
	*to = 0;
	return text;
}

#define assert_says(summary, text) \
	assert_non_null(strstr(printed(summary), text))
#define assert_silent(summary, text) assert_null(strstr(printed(summary), text))

static void a_cached_pin_is_compared_with_registering(void **state)
{
	struct pn_demo_summary summary = { .pin_us = 0.05, .kept = true };

	(void)state;
	pn_demo_add_registration(&summary, 1 << 20, 13);
	pn_demo_add_registration(&summary, 4 << 20, 50);
	pn_demo_add_registration(&summary, 16 << 20, 200);
	assert_says(&summary,
		    "Registering 4M costs 50.00 us here. Pinning and "
		    "unpinning it again from the cache costs 0.050 us: "
		    "1000 times less.");
}

static void a_second_pin_that_misses_is_reported(void **state)
{
	struct pn_demo_summary summary = { .pin_us = 51 };

	(void)state;
	pn_demo_add_registration(&summary, 64 << 10, 50);
	assert_says(&summary,
		    "Registering 64K costs 50.00 us here. Nothing stays "
		    "registered between uses here: pinning it again "
		    "costs 51.00 us.");
}

static void auto_is_compared_with_the_others(void **state)
{
	struct pn_demo_summary summary = { 0 };

	(void)state;
	pn_demo_add_message(&summary, PN_PROTOCOL_EAGER, 8, 1,
			    PN_PROTOCOL_EAGER);
	for (int id = PN_PROTOCOL_COPY; id < PN_PROTOCOL_COUNT; id++)
		pn_demo_add_message(&summary, id, 1 << 20, 100 * id, id);
	pn_demo_add_message(&summary, PN_PROTOCOL_AUTO, 1 << 20, 50,
			    PN_PROTOCOL_CACHED);
	assert_says(&summary,
		    "Messages of 1M: auto chose cached and took 50.00 "
		    "us; copy 2.00 times that, demand 4.00 times that, "
		    "the fastest (copy) 2.00 times.");
	assert_silent(&summary, "Messages of 8");
}

static void what_auto_learned_from_is_said(void **state)
{
	const struct pn_demo_learning learning = { 1 << 20, 800, 90 };
	struct pn_demo_summary summary = { 0 };

	(void)state;
	pn_demo_add_learning(&summary, &learning);
	pn_demo_add_message(&summary, PN_PROTOCOL_COPY, 1 << 20, 100,
			    PN_PROTOCOL_COPY);
	pn_demo_add_message(&summary, PN_PROTOCOL_AUTO, 1 << 20, 50,
			    PN_PROTOCOL_CACHED);
	assert_says(&summary, "took 50.00 us after learning from 800 (the "
			      "first ones took 90.00 us); copy 2.00 times");
}

static void figures_that_were_not_measured_are_not_printed(void **state)
{
	const struct pn_demo_summary summary = { 0 };

	(void)state;
	assert_silent(&summary, "Registering");
	assert_silent(&summary, "Messages");
	assert_says(&summary, "Try next:");
}

static void a_machine_that_others_use_is_too_busy(void **state)
{
	struct pn_demo_summary summary = { .busy = { .all = 1000,
						     .others = 20 } };

	(void)state;
	assert_says(
		&summary,
		"Other programs used 2 % of the processor time: the machine "
		"was idle enough.");
	summary.busy.others = 610;
	assert_says(&summary, "TOO BUSY TO TELL: other programs used 61 %");
	summary.virtual_time = true;
	assert_silent(&summary, "TOO BUSY");
}

static void a_core_that_slows_down_is_too_busy(void **state)
{
	struct pn_demo_summary summary = { .best_pace = 100,
					   .worst_pace = 120 };

	(void)state;
	assert_silent(&summary, "TOO BUSY");
	summary.worst_pace = 200;
	assert_says(&summary, "TOO BUSY TO TELL: a core was 2 times slower");
}

/* Spins until the process has used a second of CPU time. */
static void wait_a_second(clockid_t clock)
{
	struct timespec used;

	do {
		clock_gettime(clock, &used);
	} while (used.tv_sec < 1);
}

/* A child that has not ended counts as another process. */
static void time_of_other_processes_is_counted(void **state)
{
	struct pn_demo_summary summary = { 0 };
	clockid_t clock;
	pid_t other;

	(void)state;
	pn_demo_begin(&summary);
	if (!summary.busy.all)
		skip(); /* no /proc/stat */
	other = fork();
	if (!other)
		for (;;)
			;
	assert_true(other > 0);
	assert_ok(clock_getcpuclockid(other, &clock));
	wait_a_second(clock);
	pn_demo_end(&summary);
	kill(other, SIGKILL);
	assert_int_equal(waitpid(other, NULL, 0), other);
	assert_true(summary.busy.others > 0.5 * (double)sysconf(_SC_CLK_TCK));
	assert_true(summary.busy.others <= summary.busy.all);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_cached_pin_is_compared_with_registering),
		TEST(a_second_pin_that_misses_is_reported),
		TEST(auto_is_compared_with_the_others),
		TEST(what_auto_learned_from_is_said),
		TEST(figures_that_were_not_measured_are_not_printed),
		TEST(a_machine_that_others_use_is_too_busy),
		TEST(a_core_that_slows_down_is_too_busy),
		TEST(time_of_other_processes_is_counted),
	};

	return RUN_TESTS(tests);
}
