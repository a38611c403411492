/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Conversion of the events of a trace to a workload: held pins get numbers, and
 * a number belongs to one pin until that ends.
 */
#include "trace/trace_file.h"

#include <errno.h>

#include <pinion/device.h>

#include "base/range.h"
#include "tools/trace/mappings.h"
#include "tools/trace/workload.h"
#include "tools/trace/write.h"
#include "trace/record.h"

#define PAGE   PN_PAGE_BYTES
#define WRITE  PINION_ACCESS_LOCAL_WRITE
#define MOST   300 /* pins held at a time */
#define NSTEPS 20000

static void record(struct pn_trace_event event)
{
	struct pn_trace_sink *sink = pn_trace_sink();

	event.peer = PN_EVENT_NO_PEER;
	event.source = event.source ? event.source : 1;
	sink->record(sink, &event);
}

static void read_workload(const char *name, struct pn_workload *workload)
{
	struct pn_why why = { "" };

	assert_ok(pn_workload_init(workload));
	if (pn_workload_read(workload, trace_path(name), 0, &why))
		fail_msg("%s", why.text);
	trace_remove(name);
}

/* --- many pins held at a time --------------------------------------------- */

struct program {
	uint64_t seed, handles[MOST];
	unsigned nheld;
};

/* Handles are arbitrary 64-bit numbers, like addresses. */
static void pin(struct program *p)
{
	uint64_t handle = test_random(&p->seed) >> (4 * (p->nheld % 8)) | 1;

	for (unsigned i = 0; i < p->nheld; i++)
		if (p->handles[i] == handle)
			return;
	p->handles[p->nheld++] = handle;
	record((struct pn_trace_event){
		.kind = PN_EVENT_PIN,
		.decision = PN_DECIDED_MISS,
		.flags = WRITE,
		.addr = (1 + test_below(&p->seed, 999)) * PAGE,
		.len = PAGE,
		.handle = handle });
}

static void unpin(struct program *p)
{
	unsigned i = (unsigned)test_below(&p->seed, p->nheld);

	record((struct pn_trace_event){ .kind = PN_EVENT_UNPIN,
					.handle = p->handles[i] });
	p->handles[i] = p->handles[--p->nheld];
}

/* Fills the table, empties it, and repeats. */
static void run_program(struct program *p)
{
	for (int i = 0; i < NSTEPS; i++) {
		bool fills = i / 1000 % 2 == 0;

		if (p->nheld < MOST &&
		    (test_below(&p->seed, 3) || !p->nheld) == fills)
			pin(p);
		else if (p->nheld)
			unpin(p);
	}
}

/* No number is used twice, and every ending pin was held. */
static unsigned check_holds(const struct pn_workload *workload)
{
	bool held[MOST + 1] = { false };
	unsigned nheld = 0, most = 0;

	for (size_t i = 0; i < workload->nsteps; i++) {
		const struct pn_workload_step *step = &workload->steps[i];

		assert_in_range(step->hold, 1, MOST);
		assert_int_equal(held[step->hold],
				 step->kind == PN_WORKLOAD_UNPIN);
		held[step->hold] = step->kind == PN_WORKLOAD_PIN;
		nheld += step->kind == PN_WORKLOAD_PIN ? 1 : -1U;
		most = nheld > most ? nheld : most;
	}
	assert_int_equal(workload->nholds, most);
	return nheld;
}

static void held_pins_have_unique_numbers(void **state)
{
	struct program p = { .seed = test_seed() };
	struct pn_workload workload;

	(void)state;
	assert_ok(pn_record_start(trace_path("holds"), 64 << 20));
	run_program(&p);
	pn_record_stop();
	read_workload("holds", &workload);
	assert_true(workload.nholds > 64 && workload.npins > NSTEPS / 4);
	assert_int_equal(check_holds(&workload), p.nheld);
	pn_workload_fini(&workload);
}

/* --- what else there is --------------------------------------------------- */

static void a_pin_with_a_held_handle_ends_at_once(void **state)
{
	struct pn_trace_event e = { .kind = PN_EVENT_PIN,
				    .decision = PN_DECIDED_HIT,
				    .addr = PAGE,
				    .len = PAGE,
				    .handle = 7 };
	struct pn_workload workload;

	(void)state;
	assert_ok(pn_record_start(trace_path("twice"), 64 << 20));
	record(e);
	record(e);
	e.kind = PN_EVENT_UNPIN;
	record(e);
	record(e); /* unknown handle */
	pn_record_stop();
	read_workload("twice", &workload);
	assert_int_equal(workload.nsteps, 3);
	assert_int_equal(workload.steps[0].hold, 1);
	assert_int_equal(workload.steps[1].hold, 0);
	assert_int_equal(workload.steps[2].kind, PN_WORKLOAD_UNPIN);
	assert_int_equal(workload.steps[2].hold, 1);
	pn_workload_fini(&workload);
}

static void mappings_of_a_trace_are_in_its_workload(void **state)
{
	struct pn_trace_event e = { .kind = PN_EVENT_MAPPING,
				    .decision = PN_DECIDED_YES,
				    .addr = PAGE,
				    .len = 2 * PAGE };
	struct pn_workload workload;

	(void)state;
	assert_ok(pn_record_start(trace_path("mappings"), 64 << 20));
	record(e);
	e.decision = PN_DECIDED_NO;
	record(e);
	pn_record_stop();
	read_workload("mappings", &workload);
	assert_true(workload.mappings);
	assert_int_equal(workload.nsteps, 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(workload.steps[i].kind, PN_WORKLOAD_MAPPING);
		assert_int_equal(workload.steps[i].len, 2 * PAGE);
		assert_int_equal(workload.steps[i].hold, !i);
	}
	pn_workload_fini(&workload);
}

/* A plan asks for two ranges before it merges by the first answer. */
static void overlapping_ranges_are_in_one_mapping(void **state)
{
	struct pn_mappings mappings = { 0 };

	(void)state;
	assert_ok(pn_mappings_add(&mappings, 6 * PAGE, 8 * PAGE));
	assert_ok(pn_mappings_add(&mappings, 20 * PAGE, PAGE));
	assert_ok(pn_mappings_add(&mappings, 3 * PAGE, 10 * PAGE + 30));
	assert_true(pn_mappings_cover(&mappings, 6 * PAGE, 8 * PAGE));
	assert_true(pn_mappings_cover(&mappings, 3 * PAGE, 11 * PAGE));
	assert_false(pn_mappings_cover(&mappings, 3 * PAGE, 12 * PAGE));
	pn_mappings_remove(&mappings, 13 * PAGE, PAGE);
	assert_false(pn_mappings_cover(&mappings, 6 * PAGE, PAGE));
	assert_true(pn_mappings_cover(&mappings, 20 * PAGE, PAGE));
	pn_mappings_fini(&mappings);
}

static void an_invalid_request_is_reported(void **state)
{
	struct pn_trace_event e = { .kind = PN_EVENT_PIN,
				    .addr = UINT64_C(1) << 50,
				    .len = PAGE };
	struct pn_why why = { "" };
	struct pn_workload workload;

	(void)state;
	assert_ok(pn_record_start(trace_path("far"), 64 << 20));
	record(e);
	pn_record_stop();
	assert_ok(pn_workload_init(&workload));
	assert_int_equal(pn_workload_read(&workload, trace_path("far"), 0,
					  &why),
			 -ERANGE);
	assert_non_null(strstr(why.text, "0x4000000000000"));
	assert_int_equal(workload.nsteps, 0);
	pn_workload_fini(&workload);
	trace_remove("far");
}

/* --- writing -------------------------------------------------------------- */

static void write_errors_are_reported(void **state)
{
	struct pn_trace_writer *writer;
	struct pn_why why = { "" };
	struct pn_trace *trace;

	(void)state;
	assert_ok(pn_record_start(trace_path("from"), 64 << 20));
	record((struct pn_trace_event){ .kind = PN_EVENT_FLUSH });
	pn_record_stop();
	assert_ok(pn_trace_open(trace_path("from"), &trace, NULL));
	assert_int_equal(pn_writer_open("/nowhere/at/all", PN_TRACE_BINARY,
					trace, &writer, &why),
			 -ENOENT);
	assert_non_null(strstr(why.text, "/nowhere/at/all: No such file"));
	assert_int_equal(pn_writer_open(trace_folder, PN_TRACE_BINARY, trace,
					&writer, NULL),
			 -EISDIR);
	/* A write error is reported by pn_writer_close() at the latest. */
	assert_ok(pn_writer_open("/dev/full", PN_TRACE_BINARY, trace, &writer,
				 &why));
	assert_int_equal(pn_writer_close(writer), -EIO);
	pn_trace_close(trace);
	trace_remove("from");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(held_pins_have_unique_numbers),
		TEST(a_pin_with_a_held_handle_ends_at_once),
		TEST(mappings_of_a_trace_are_in_its_workload),
		TEST(overlapping_ranges_are_in_one_mapping),
		TEST(an_invalid_request_is_reported),
		TEST(write_errors_are_reported),
	};

	return RUN_TESTS(tests);
}
