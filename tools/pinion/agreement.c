/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/agreement.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

/* How a number is computed from rows. */
enum how {
	MEAN,  /* mean of the key over all rows */
	MOST,  /* largest value of the key */
	LESS,  /* per cent less than in the rows of `base` */
	TIMES, /* ratio to the rows of `base` */
	MEET,  /* smallest reuse at which it reaches the rows of `base` */
};

struct claim {
	const char *row, *where, *what, *unit;
	double paper;
	double low, high; /* range of agreement */
	/* beyond the range: 1 more is better, -1 less is better, 0 neither */
	int good;
	enum how how;
	const char *bench, *key;
	const char *common[4]; /* conditions, as pn_row_meets() */
	const char *own_number, *base;
	const char *why, *command;
};

#define HELPER_NAS(shape_)                                                \
	.bench = "helper", .key = "registered_bytes_peak", .how = LESS,   \
	.common = { "experiment=nas", "shape=" shape_, "jitter=0.001" },  \
	.own_number = "predictor=learned", .base = "scheme=leave_pinned", \
	.command = "pinion bench helper --experiment nas"
#define AGGREGATION(test_)                                                \
	.how = LESS, .bench = "helper", .key = "registered_bytes_peak",   \
	.common = { "experiment=aggregation", "shape=ft2d test " test_ }, \
	.own_number = "scheme=helper", .base = "scheme=leave_pinned",     \
	.command = "pinion bench helper --experiment aggregation"
#define PREDICTOR(name_, window_)                                         \
	.bench = "helper", .how = MEAN,                                   \
	.common = { "experiment=predictor", "jitter=0.001", "shape!=all", \
		    "window=" window_ },                                  \
	.own_number = "predictor=" name_,                                 \
	.command = "pinion bench helper --experiment predictor"
#define HEAP(profile_, what_)                                            \
	.bench = "heap", .how = MOST, .key = "speedup", .unit = "times", \
	.good = 1, .common = { "profile=" profile_, "what=" what_ },     \
	.command = "pinion bench heap --device soft:cost=" profile_
#define FRRWP                                                                 \
	.bench = "frrwp", .how = MEAN, .common = { "protocol=posted-ahead" }, \
	.command = "pinion bench frrwp"
#define SIM_PAPER(trace_)                               \
	.bench = "sim paper", .how = MOST, .unit = "%", \
	.common = { "trace=gen:" trace_ }, .command = "pinion sim paper"
#define MESSAGES                                                           \
	"pinion bench message --device sim:cost=woodall2006 --bytes 8M "   \
	"--buffers 1 --protocol cached,pipeline,caching-pipeline --reuse " \
	"1,2,5,10,20,40,50,56,60,80"
#define REUSE(what_)                                                       \
	.bench = "reuse", .how = MOST, .key = "gain_percent", .unit = "%", \
	.good = 1,                                                         \
	.common = { "profile=rashti2011", "what=" what_, "bytes=8K" },     \
	.command = "pinion bench reuse --device sim:cost=rashti2011"

static const struct claim claims[] = {
	/* --- Helper --- */
	{ .row = "H1",
	  .where = "Li and others 2011, figure 11",
	  .what = "peak of registered memory saved, BT",
	  .unit = "%",
	  .paper = 16.13,
	  .low = 10,
	  .high = 25,
	  .good = 1,
	  HELPER_NAS("bt"),
	  .why = "the shape's buffers are NPB's; times and sizes of class D" },
	{ .row = "H1",
	  .where = "Li and others 2011, figure 11",
	  .what = "peak of registered memory saved, LU",
	  .unit = "%",
	  .paper = 18.43,
	  .low = 12,
	  .high = 25,
	  HELPER_NAS("lu"),
	  .why = "each direction has its own buffers in the shape; NPB's LU "
		 "shares one pair" },
	{ .row = "H1",
	  .where = "Li and others 2011, figure 11",
	  .what = "peak of registered memory saved, SP",
	  .unit = "%",
	  .paper = 8.68,
	  .low = 5,
	  .high = 16,
	  .good = 1,
	  HELPER_NAS("sp"),
	  .why = "early iterations, in which phases overlap, set the peak "
		 "under "
		 "`learned`; its mean is 85 % less" },
	{ .row = "H1",
	  .where = "Li and others 2011, figure 11",
	  .what = "peak of registered memory saved, CG",
	  .unit = "%",
	  .paper = 0,
	  .low = -1,
	  .high = 1,
	  HELPER_NAS("cg"),
	  .why = "both buffers are needed at once" },
	{ .row = "H1",
	  .where = "Li and others 2011, figure 11",
	  .what = "peak of registered memory saved, FT",
	  .unit = "%",
	  .paper = 31.0,
	  .low = 25,
	  .high = 36,
	  .good = 1,
	  HELPER_NAS("ft"),
	  .why = "one of three arrays is free at any time: a third" },
	{ .row = "H3",
	  .where = "Li and others 2011, figure 5",
	  .what = "predictions by call sites within 5 %",
	  .unit = "%",
	  .paper = 94.68,
	  .low = 90,
	  .high = 96,
	  PREDICTOR("shortest", "2"),
	  .key = "within_5_percent",
	  .why = "the shapes repeat more exactly than real programs: their "
		 "noise is only 0.1 %" },
	{ .row = "H3",
	  .where = "Li and others 2011, figure 5",
	  .what = "predictions by call sites within 0.5 %",
	  .unit = "%",
	  .paper = 74.89,
	  .low = 65,
	  .high = 85,
	  PREDICTOR("shortest", "2"),
	  .key = "within_0_5_percent",
	  .why = "as above" },
	{ .row = "H5",
	  .where = "Li and others 2011, figure 5",
	  .what = "predictions by periodicity within 5 %",
	  .unit = "%",
	  .paper = 84.93,
	  .low = 75,
	  .high = 95,
	  PREDICTOR("periodic", "128"),
	  .key = "within_5_percent",
	  .why = "the shapes repeat exactly, which favours it" },
	{ .row = "H10",
	  .where = "Li and others 2011, figure 12",
	  .what = "peak of a machine saved, four ranks each, first grouping",
	  .unit = "%",
	  .paper = 49.39,
	  .low = 40,
	  .high = 60,
	  .good = 1,
	  AGGREGATION("1"),
	  .why = "FT on 16 ranks; groupings are random in both" },
	{ .row = "H10",
	  .where = "Li and others 2011, figure 12",
	  .what = "peak of a machine saved, second grouping",
	  .unit = "%",
	  .paper = 41.70,
	  .low = 33,
	  .high = 52,
	  .good = 1,
	  AGGREGATION("2"),
	  .why = "as above" },
	{ .row = "H7",
	  .where = "Li and others 2011, section 4.3",
	  .what = "overhead of recording a message of 17 KiB",
	  .unit = "%",
	  .paper = 14.02,
	  .low = 5,
	  .high = 20,
	  .how = MEAN,
	  .bench = "helper",
	  .key = "overhead_percent",
	  .common = { "experiment=recording", "bytes=17K" },
	  .why = "real time: includes the noise of the machine's load",
	  .command = "pinion bench helper --experiment recording" },
	/* --- Heap --- */
	{ .row = "A4",
	  .where = "Levy and others 2020, figure 4, Stria",
	  .what = "new registered memory from the heap",
	  .paper = 134,
	  .low = 100,
	  .high = 180,
	  HEAP("stria", "new"),
	  .why = "costs of registering are emulated, the rest is this "
		 "machine's; with few trials the first slab weighs more" },
	{ .row = "A4",
	  .where = "Levy and others 2020, figure 5, Stria",
	  .what = "memory used again",
	  .paper = 253,
	  .low = 180,
	  .high = 350,
	  HEAP("stria", "reuse"),
	  .why = "a pair of alloc and free takes 4 ns here, some 300 ns in the "
		 "paper's TCMalloc" },
	{ .row = "A4",
	  .where = "Levy and others 2020, figure 6, Stria",
	  .what = "put from it",
	  .paper = 1.6,
	  .low = 1.3,
	  .high = 2,
	  HEAP("stria", "put"),
	  .why = "a put between processes of one host is faster than the "
		 "paper's link, so registering weighs more" },
	{ .row = "A4",
	  .where = "Levy and others 2020, figure 4, Mutrino",
	  .what = "new registered memory from the heap",
	  .paper = 3.4,
	  .low = 2.5,
	  .high = 5,
	  HEAP("mutrino", "new"),
	  .why = "as above" },
	{ .row = "A4",
	  .where = "Levy and others 2020, figure 5, Mutrino",
	  .what = "memory used again",
	  .paper = 2054,
	  .low = 1500,
	  .high = 3000,
	  HEAP("mutrino", "reuse"),
	  .why = "as above" },
	{ .row = "A4",
	  .where = "Levy and others 2020, figure 6, Mutrino",
	  .what = "put from it",
	  .paper = 4.5,
	  .low = 3.5,
	  .high = 6,
	  HEAP("mutrino", "put"),
	  .why = "as above" },
	/* --- Pipeline --- */
	{ .row = "P5",
	  .where = "Woodall and others 2006, figure 5",
	  .what = "pipeline over leave-pinned, 8 MiB used once",
	  .unit = "times",
	  .paper = 1.67,
	  .low = 1.5,
	  .high = 1.8,
	  .good = 1,
	  .how = TIMES,
	  .bench = "message",
	  .key = "bytes_per_s",
	  .common = { "profile=woodall2006", "bytes=8M", "reuse=1" },
	  .own_number = "protocol=pipeline",
	  .base = "protocol=cached",
	  .why = "profile fitted to the paper; fragments of 256 KiB",
	  .command = MESSAGES },
	{ .row = "P9",
	  .where = "Woodall and others 2006, figure 6",
	  .what = "uses of a buffer from which leave-pinned is faster",
	  .unit = "uses",
	  .paper = 45,
	  .low = 35,
	  .high = 60,
	  .good = 1,
	  .how = MEET,
	  .bench = "message",
	  .key = "bytes_per_s",
	  .common = { "profile=woodall2006", "bytes=8M" },
	  .own_number = "protocol=cached",
	  .base = "protocol=pipeline",
	  .why = "40 to 50 in the paper; later is better, the pipeline costs "
		 "less",
	  .command = MESSAGES },
	/* --- Region cache --- */
	{ .row = "M2",
	  .where = "Ou and others 2009, figure 10",
	  .what = "more hits under MRE than under LRU, HTTPD",
	  .paper = 10,
	  .low = 8,
	  .high = 15,
	  .good = 1,
	  SIM_PAPER("httpd"),
	  .key = "mre_more_hits_percent",
	  .why = "the most over cache sizes; the paper does not say at which, "
		 "nor how popular its files are" },
	{ .row = "M3",
	  .where = "Ou and others 2009, figure 11",
	  .what = "total time saved by MRE over the pin-down cache, Cello92",
	  .paper = 10,
	  .low = 8,
	  .high = 12,
	  .good = 1,
	  SIM_PAPER("cello92"),
	  .key = "mre_saves_percent",
	  .why = "through batches alone: nearly all regions are of one size" },
	{ .row = "M8",
	  .where = "Ou and others 2009, figure 12",
	  .what = "cost of registering saved against no cache, up to",
	  .paper = 70,
	  .low = 60,
	  .high = 75,
	  .good = 1,
	  SIM_PAPER("httpd"),
	  .key = "mre_saves_of_none_percent",
	  .why = "reached with 128 MB of the 524 MB of files" },
	{ .row = "M10",
	  .where = "Ou and others 2009, section 8",
	  .what = "saved on the critical path, one page",
	  .unit = "%",
	  .paper = 68,
	  .low = 64,
	  .high = 72,
	  .good = 1,
	  FRRWP,
	  .own_number = "pages=1",
	  .key = "share_without_wire_percent",
	  .why = "15.42 / 22.84 without pages and wire, as the paper counts" },
	{ .row = "M7",
	  .where = "Ou and others 2009, section 8",
	  .what = "time saved by conditional writes, 8 pages",
	  .unit = "us",
	  .paper = 21.58,
	  .low = 21,
	  .high = 22,
	  .good = 1,
	  FRRWP,
	  .own_number = "pages=8",
	  .key = "saved_us",
	  .why = "0.05 us less: a grant is longer than a bare key" },
	/* --- Reuse --- */
	{ .row = "R1",
	  .where = "Rashti and Afsahi 2011, figure 4a",
	  .what = "latency saved on the fast path, 8 KiB",
	  .paper = 14,
	  .low = 11,
	  .high = 16,
	  REUSE("pingpong"),
	  .why = "15 % is the bound of the paper's own model" },
	{ .row = "R6",
	  .where = "Rashti and Afsahi 2011, figure 5",
	  .what = "the same, a thousand buffers, the i-th used i times",
	  .paper = 12.7,
	  .low = 10,
	  .high = 15,
	  REUSE("spectrum"),
	  .why = "profile fitted to the paper" },
	{ .row = "R6",
	  .where = "Rashti and Afsahi 2011, figure 6a",
	  .what = "latency of a put saved, 8 KiB",
	  .paper = 20,
	  .low = 16,
	  .high = 23,
	  REUSE("put"),
	  .why = "the profile's copies are fitted to two-sided messages" },
	{ .row = "R6",
	  .where = "Rashti and Afsahi 2011, figure 6b",
	  .what = "latency of a get saved, 8 KiB",
	  .paper = 17,
	  .low = 13,
	  .high = 20,
	  REUSE("get"),
	  .why = "as above" },
	{ .row = "R4",
	  .where = "Rashti and Afsahi 2011, table 2",
	  .what = "uses that pay for a registration, 4 KiB, fast path",
	  .unit = "uses",
	  .paper = 60,
	  .low = 54,
	  .high = 66,
	  .how = MEAN,
	  .bench = "reuse",
	  .key = "minimum_uses",
	  .common = { "profile=rashti2011", "what=threshold", "bytes=4K",
		      "path=fast-path" },
	  .why = "the profile is fitted to this row and to that of 8 KiB",
	  .command = "pinion bench reuse --device sim:cost=rashti2011" },
};

/* Rows without a number in the paper, or with one that cannot be measured here.
 */
static const struct {
	const char *row, *where, *what, *why;
} tested[] = {
	{ "H2", "Li and others 2011",
	  "queues: the producer never waits, deadlines in order",
	  "tests/helper/test_ring.c, test_job_queue.c" },
	{ "H4", "Li and others 2011", "call sites, periods, deadlines",
	  "tests/helper/test_site.c" },
	{ "H6", "Li and others 2011",
	  "conditions for both queues, first-time rule",
	  "tests/helper/test_helper.c; see H1" },
	{ "H8", "Li and others 2011, table 1, figure 8",
	  "idle cores: own, aggressive, conservative",
	  "tests/helper/test_share.c, test_registry.c; pinion bench helper "
	  "--experiment cores" },
	{ "H9", "Li and others 2011, figure 3",
	  "completes although leaving everything pinned exceeds the limit",
	  "pinion bench helper --experiment limit: 3.58 GB against a peak of "
	  "2.39 GB" },
	{ "A1", "Levy and others 2020", "heap apart from malloc, thread caches",
	  "tests/heap/test_heap.c, test_heap_model.c" },
	{ "A2", "Levy and others 2020", "pointer to region and keys",
	  "tests/heap/test_heap.c" },
	{ "A3", "Levy and others 2020", "ordinary memory pinned explicitly",
	  "tests/cache/test_cache_api.c" },
	{ "A5", "Levy and others 2020, figure 7",
	  "a Kokkos View in registered memory",
	  "tests/heap/test_heap_kokkos.cpp; pinion bench heap --what view. The "
	  "paper's serialisation copies an element at a time, ours does not" },
	{ "A6", "beyond the paper",
	  "several heaps, memory returned, one budget",
	  "tests/heap/test_heap_footprint.c, test_heap_message.c" },
	{ "P1", "Woodall and others 2006, figure 1",
	  "eager data with the MATCH header",
	  "tests/message/endpoint/test_message.c" },
	{ "P2", "Woodall and others 2006", "copy in and out",
	  "tests/message/endpoint/test_message.c, test_copies.c" },
	{ "P3", "Woodall and others 2006", "register on demand",
	  "tests/message/endpoint/test_message.c" },
	{ "P4", "Woodall and others 2006",
	  "leave pinned: notifications, or memory kept from the system",
	  "tests/cache/test_cache_release.c, in each mode" },
	{ "P6", "Woodall and others 2006", "the caching pipeline",
	  "tests/message/twosided/test_figures.c" },
	{ "P7", "Woodall and others 2006", "one message over several rails",
	  "tests/message/connection/test_rails.c; pinion bench rails" },
	{ "P8", "Woodall and others 2006", "every limit at run time",
	  "pinion config" },
	{ "M1", "Ou and others 2009",
	  "exact, subset, intersection, none; lists in one call",
	  "tests/cache/test_cache_model.c, against a naive model" },
	{ "M4", "Ou and others 2009", "pin-down cache and FMRD to compare with",
	  "tests/cache/test_policy.c; see M2, M3" },
	{ "M5", "Ou and others 2009", "handles allocated beforehand",
	  "tests/device/test_soft_slots.c" },
	{ "M6", "Ou and others 2009", "FRRWP",
	  "tests/message/onesided/test_grants.c; see M10" },
	{ "M9", "Ou and others 2009", "registering against writing, by size",
	  "pinion bench register: the paper's curve is a picture" },
	{ "R2", "Rashti and Afsahi 2011", "puts and gets directly from buffers",
	  "tests/message/protocol/test_reuse.c, test_onesided.c" },
	{ "R3", "Rashti and Afsahi 2011", "the buffer usage table",
	  "tests/message/protocol/test_reuse.c" },
	{ "R5", "Rashti and Afsahi 2011", "adaptation",
	  "tests/message/protocol/test_reuse.c" },
};

/* --- numbers from rows ---------------------------------------------------- */

static bool meets_bounds(const struct claim *claim, const struct pn_row *row,
			 const char *also)
{
	const char *bench = pn_row_text(row, "bench");

	if (!bench || strcmp(bench, claim->bench) || !pn_row_meets(row, also))
		return false;
	for (size_t i = 0; i < PN_ARRAY_LEN(claim->common); i++)
		if (!pn_row_meets(row, claim->common[i]))
			return false;
	return isfinite(pn_row_number(row, claim->key));
}

static double mean_of(const struct claim *claim, const struct pn_rows *rows,
		      const char *also)
{
	double sum = 0;
	unsigned n = 0;

	for (size_t i = 0; i < rows->n; i++)
		if (meets_bounds(claim, rows->rows[i], also)) {
			sum += pn_row_number(rows->rows[i], claim->key);
			n++;
		}
	return n ? sum / n : NAN;
}

static double largest_of(const struct claim *claim, const struct pn_rows *rows)
{
	double most = NAN;

	for (size_t i = 0; i < rows->n; i++)
		if (meets_bounds(claim, rows->rows[i], claim->own_number))
			most = fmax(most,
				    pn_row_number(rows->rows[i], claim->key));
	return most;
}

/* The value of `base` at the same reuse; NAN: none. */
static double base_at(const struct claim *claim, const struct pn_rows *rows,
		      double reuse)
{
	for (size_t i = 0; i < rows->n; i++)
		if (meets_bounds(claim, rows->rows[i], claim->base) &&
		    pn_row_number(rows->rows[i], "reuse") == reuse)
			return pn_row_number(rows->rows[i], claim->key);
	return NAN;
}

static double meeting_point(const struct claim *claim,
			    const struct pn_rows *rows)
{
	double least = NAN;

	for (size_t i = 0; i < rows->n; i++) {
		double reuse = pn_row_number(rows->rows[i], "reuse");

		if (meets_bounds(claim, rows->rows[i], claim->own_number) &&
		    pn_row_number(rows->rows[i], claim->key) >=
			    base_at(claim, rows, reuse))
			least = fmin(least, reuse);
	}
	return least;
}

static double number_of(const struct claim *claim, const struct pn_rows *rows)
{
	double own_number = mean_of(claim, rows, claim->own_number);
	double base = mean_of(claim, rows, claim->base);

	switch (claim->how) {
	case MEAN:
		return own_number;
	case MOST:
		return largest_of(claim, rows);
	case LESS:
		return 100 * (1 - own_number / base);
	case TIMES:
		return own_number / base;
	case MEET:
		return meeting_point(claim, rows);
	}
	return NAN;
}

static enum pn_verdict compare(const struct claim *claim, double ours)
{
	if (!isfinite(ours))
		return PN_MISSING;
	if (ours >= claim->low && ours <= claim->high)
		return PN_AGREES;
	if ((claim->good > 0 && ours > claim->high) ||
	    (claim->good < 0 && ours < claim->low))
		return PN_BETTER;
	return PN_DIFFERS;
}

/* By paper, then by number: a stable order. */
static int by_row(const void *a, const void *b)
{
	static const char papers[] = "HAPMR";
	const struct pn_agreement *x = a, *y = b;
	long order = strchr(papers, x->row[0]) - strchr(papers, y->row[0]);

	if (!order)
		order = atol(x->row + 1) - atol(y->row + 1);
	if (!order)
		order = (long)x->number - (long)y->number;
	return (order > 0) - (order < 0);
}

static void add_tested(struct pn_agreement *list)
{
	for (size_t i = 0; i < PN_ARRAY_LEN(tested); i++)
		list[i] = (struct pn_agreement){
			.row = tested[i].row,
			.where = tested[i].where,
			.what = tested[i].what,
			.unit = "",
			.paper = NAN,
			.ours = NAN,
			.verdict = PN_TESTED,
			.why = tested[i].why,
			.command = "",
		};
}

int pn_agreement_find(const struct pn_rows *rows, struct pn_agreement **out,
		      size_t *n)
{
	const size_t all = PN_ARRAY_LEN(claims) + PN_ARRAY_LEN(tested);
	struct pn_agreement *list = calloc(all, sizeof(*list));

	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < PN_ARRAY_LEN(claims); i++) {
		const struct claim *claim = &claims[i];
		double ours = number_of(claim, rows);

		list[i] = (struct pn_agreement){
			.row = claim->row,
			.where = claim->where,
			.what = claim->what,
			.unit = claim->unit,
			.paper = claim->paper,
			.ours = ours,
			.verdict = compare(claim, ours),
			.why = claim->why,
			.command = claim->command,
		};
	}
	add_tested(list + PN_ARRAY_LEN(claims));
	for (size_t i = 0; i < all; i++)
		list[i].number = (unsigned)i;
	qsort(list, all, sizeof(*list), by_row);
	*out = list;
	*n = all;
	return 0;
}

const char *pn_verdict_name(enum pn_verdict verdict)
{
	static const char *const names[] = { "agrees", "better", "differs",
					     "missing", "tested" };

	return names[verdict];
}
