/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: what does fast registration save, where the handles of
 * registrations are allocated beforehand and filled in at use (row M5)?
 *
 * `soft` does this: a registration fills a slot of an io_uring buffer table.
 * The kernel's calls are measured alone, without the device's keys and
 * accounting, on pages that are present:
 *
 *   whole   a table is made with the buffer in it and destroyed: the handle is
 *           allocated when memory is registered, as by ibv_reg_mr()
 *   slot    a slot of a table of 1,024 is filled and emptied
 *   batch   16 slots are filled and emptied by one call each; per registration
 *
 * Rows are medians over trials in turns. There is no profile: it is real time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/pages.h"
#include "base/range.h"
#include "bench/bench.h"
#include "device/soft/uring.h"

#define SLOTS	   1024
#define BATCH	   16
#define MAX_TRIALS 10000

enum { WHOLE, SLOT, MANY, WAYS };

struct values {
	uint64_t min, max, trials, budget;
	bool json;
};

static const struct pn_option options[] = {
	{ "min", PN_OPTION_BYTES, "4K", "smallest size",
	  offsetof(struct values, min), 1, 1 << 30, NULL },
	{ "max", PN_OPTION_BYTES, "1M",
	  "largest size; each is twice the one before",
	  offsetof(struct values, max), 1, 1 << 30, NULL },
	{ "trials", PN_OPTION_NUMBER, "1000", "trials of a size",
	  offsetof(struct values, trials), 3, MAX_TRIALS, NULL },
	{ "budget", PN_OPTION_TIME, "10s", "approximate time limit",
	  offsetof(struct values, budget), PN_NS_PER_MS, 0, NULL },
	PN_COMMAND_JSON(struct values, json),
};

static const struct pn_pages_policy present = { .huge = PN_PAGES_NORMAL,
						.numa_node = -1,
						.populate = true };

struct state {
	const struct values *values;
	struct pn_report report;
	struct pn_uring bare, slots; /* without a table, and with empty slots */
	struct iovec buffers[BATCH];
	double reg[WAYS][MAX_TRIALS], dereg[WAYS][MAX_TRIALS]; /* ns */
};

/* --- one trial ------------------------------------------------------------ */

static double since(uint64_t start)
{
	return (double)(pn_clock_ns() - start);
}

static int update(struct state *s, const struct iovec *iov, unsigned n)
{
	const struct io_uring_rsrc_update2 slots = { .data = (uintptr_t)iov,
						     .nr = n };
	int ret = pn_uring_register(&s->slots, IORING_REGISTER_BUFFERS_UPDATE,
				    &slots, sizeof(slots));

	return ret < 0 ? ret : ret == (int)n ? 0 : -EIO;
}

static int try_whole(struct state *s, size_t i)
{
	uint64_t start = pn_clock_ns();
	int ret = pn_uring_register(&s->bare, IORING_REGISTER_BUFFERS,
				    s->buffers, 1);

	s->reg[WHOLE][i] = since(start);
	if (ret)
		return ret;
	start = pn_clock_ns();
	ret = pn_uring_register(&s->bare, IORING_UNREGISTER_BUFFERS, NULL, 0);
	s->dereg[WHOLE][i] = since(start);
	return ret;
}

static int try_slots(struct state *s, unsigned way, unsigned n, size_t i)
{
	static const struct iovec empty[BATCH];
	uint64_t start = pn_clock_ns();
	int ret = update(s, s->buffers, n);

	s->reg[way][i] = since(start) / n;
	if (ret)
		return ret;
	start = pn_clock_ns();
	ret = update(s, empty, n);
	s->dereg[way][i] = since(start) / n;
	return ret;
}

static int try_all(struct state *s, size_t i)
{
	int ret = try_whole(s, i);

	if (!ret)
		ret = try_slots(s, SLOT, 1, i);
	return ret ? ret : try_slots(s, MANY, BATCH, i);
}

/* --- a size --------------------------------------------------------------- */

static void print_size(struct state *s, size_t bytes, size_t n)
{
	double us[2][WAYS];

	for (unsigned way = 0; way < WAYS; way++) {
		us[0][way] = pn_median(s->reg[way], n) / 1e3;
		us[1][way] = pn_median(s->dereg[way], n) / 1e3;
	}
	const struct pn_report_cell row[] = {
		PN_CELL_BYTES("bytes", "bytes", 6, bytes),
		PN_CELL_NUMBER("whole_us", "whole us", 9, us[0][WHOLE]),
		PN_CELL_NUMBER("slot_us", "slot us", 9, us[0][SLOT]),
		PN_CELL_NUMBER("batch_us", "batch us", 9, us[0][MANY]),
		PN_CELL_NUMBER("whole_deregister_us", "dereg. us", 9,
			       us[1][WHOLE]),
		PN_CELL_NUMBER("slot_deregister_us", "slot us", 9, us[1][SLOT]),
		PN_CELL_NUMBER("batch_deregister_us", "batch us", 9,
			       us[1][MANY]),
		PN_CELL_NUMBER("saved_percent", "slot saves %", 12,
			       100 - 100 * (us[0][SLOT] + us[1][SLOT]) /
					       (us[0][WHOLE] + us[1][WHOLE])),
		PN_CELL_COUNT("trials", "trials", 6, n),
	};

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

static int measure_size(struct state *s, size_t bytes, uint64_t share_ns)
{
	struct pn_trials trials;
	void *memory;
	size_t n = 0;
	int ret = pn_pages_map(BATCH * bytes, &present, &memory);

	if (ret)
		return ret;
	for (unsigned i = 0; i < BATCH; i++)
		s->buffers[i] =
			(struct iovec){ (char *)memory + i * bytes, bytes };
	ret = try_all(s, 0); /* warm-up; overwritten */
	trials = pn_trials_begin(3, s->values->trials, share_ns);
	for (; !ret && pn_trials_continue(&trials, n); n++)
		ret = try_all(s, n);
	if (!ret)
		print_size(s, bytes, n);
	pn_pages_unmap(memory, BATCH * bytes, &present);
	return ret;
}

static int measure(struct state *s)
{
	const struct values *v = s->values;
	size_t nsizes = pn_bench_nsizes(v->min, v->max);
	int ret = 0;

	pn_report_head(&s->report, pn_bench_slots.help);
	for (size_t bytes = v->min; !ret && bytes <= v->max; bytes *= 2)
		ret = measure_size(s, bytes, v->budget / nsizes);
	return ret;
}

/* --- all of it ------------------------------------------------------------ */

static int open_rings(struct state *s)
{
	struct io_uring_params bare = { 0 }, slots = { 0 };
	const struct io_uring_rsrc_register table = {
		.nr = SLOTS,
		.flags = IORING_RSRC_REGISTER_SPARSE,
	};
	int ret = pn_uring_open(&s->bare, 1, &bare);

	if (ret)
		return ret;
	ret = pn_uring_open(&s->slots, 1, &slots);
	if (ret) {
		pn_uring_close(&s->bare);
		return ret;
	}
	ret = pn_uring_register(&s->slots, IORING_REGISTER_BUFFERS2, &table,
				sizeof(table));
	if (!ret)
		return 0;
	pn_uring_close(&s->bare);
	pn_uring_close(&s->slots);
	return ret;
}

static int run(const void *v, char *const *operands)
{
	struct state *s = calloc(1, sizeof(*s));
	int ret = s ? 0 : -ENOMEM;

	(void)operands;
	if (!ret) {
		s->values = v;
		s->report = (struct pn_report){ .json = s->values->json,
						.bench = "slots",
						.device = "soft",
						.profile = "none" };
		ret = open_rings(s);
	}
	if (ret) {
		free(s);
		return pn_failed("bench slots (needs io_uring)", ret);
	}
	ret = measure(s);
	pn_uring_close(&s->bare);
	pn_uring_close(&s->slots);
	free(s);
	return ret ? pn_failed("bench slots", ret) : PN_EXIT_OK;
}

const struct pn_command pn_bench_slots = {
	.name = "slots",
	.help = "what does fast registration save, with handles that are "
		"allocated beforehand?",
	.about = "Registers memory with io_uring in a table that is made for "
		 "it, in a slot of a table that was made beforehand, and in 16 "
		 "slots by one call.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
