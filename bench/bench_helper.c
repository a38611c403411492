/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: how much less memory is registered if registration follows the
 * phases of the program, and what does that cost?
 *
 * Programs shaped like those of Li and others 2011 (program.h) run on simulated
 * nodes (cluster.h), once under each scheme, with the same noise:
 *   leave_pinned           registered at first use, kept (the paper's
 *                          "default", also Open MPI's)
 *   on_demand              registered for each message, deregistered at once
 *   pipeline               in fragments, deregistered at once (Woodall and
 *                          others 2006)
 *   pipeline_leave_pinned  in fragments, kept
 *   helper                 as leave_pinned, with the helper
 *
 * Experiments
 *   predictor    accuracy of predictions: the share within 5 % and 0.5 %, for
 *                each predictor, window and jitter; `window` is the context
 *                length of learned and shortest, and the number of compared
 *                calls of periodic. "one site": all calls come from the same
 *                place, as those of a library that hides its callers
 *   latency      time of a message by its size under each scheme, with and
 *                without reuse of buffers (the paper's figures 9 and 10)
 *   figure1      the paper's microbenchmark, with and without reuse of buffers
 *   nas          BT, LU, SP, CG, FT on four nodes; also with `auto`, with the
 *                helper and without
 *   limit        FT with 3.58 GB to register per rank: left pinned and with
 *                the helper, without a limit and with one of 3 GB, and the
 *                helper with 2 GB, less than it takes
 *   recorded     traces of real programs (--traces), replayed at their times
 *                over one node: registered memory and late registrations with
 *                the predictors shortest and learned
 *   tuned        these traces, every second one to choose helper_patience by,
 *                the others to judge it, and the other way round
 *   cores        SP and CG, six ranks on a machine with two idle cores: own
 *                core for each helper, aggressive, conservative
 *   aggregation  FT on 16 ranks, four on a machine, two random groupings
 *   scaling      FT, strong and weak, 16, 32, 64 nodes, and 1,024
 *   memory       registered memory over time, of each process and of its
 *                machine: figure1, the NAS shapes, aggregation. One row per
 *                point of a series (series.h); drawn for people
 *   periodic     (only by name) these programs between two processes over
 *                --device, in real time, with `cached` and `auto`, with the
 *                helper and without; with --traces, recorded requests instead
 *                (periodic.h)
 *   recording    what recording messages for the helper costs on the critical
 *                path, between two processes over --device, in real time
 *                (overhead.h)
 *   rhythm       a program with a rhythm over --device, in real time, left
 *                pinned and with each predictor (rhythm.h)
 * registered_bytes_* are of one machine (the first); communication_s is the
 * mean of all ranks, time_s the end of the last one, in virtual time.
 * late_percent: transfers that had to register a buffer that had been
 * registered before.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/cluster.h"
#include "bench/overhead.h"
#include "bench/periodic.h"
#include "bench/rhythm.h"
#include "bench/timed_replay.h"
#include "device/profiles.h"

#define GB 1000000000

struct values {
	/* only device and json are options here */
	struct pn_bench_values common;
	char experiment[PN_OPTION_TEXT_BYTES];
	char cost[PN_OPTION_TEXT_BYTES];
	char traces[PN_OPTION_TEXT_BYTES];
	char shape[PN_OPTION_TEXT_BYTES];
	uint64_t nodes, patience, seed, periods, rounds, steps;
};

#define FIELD(name) offsetof(struct values, name)

static const struct pn_option options[] = {
	{ "experiment", PN_OPTION_TEXT, "",
	  "only this experiment (predictor, latency, figure1, nas, limit, "
	  "recorded, tuned, cores, aggregation, scaling, memory, periodic, "
	  "recording, rhythm)",
	  FIELD(experiment), 0, 0, NULL },
	{ "cost", PN_OPTION_TEXT, "ou2009", "cost profile of the nodes",
	  FIELD(cost), 0, 0, NULL },
	{ "shape", PN_OPTION_TEXT, "",
	  "only this program of nas, memory and periodic (bt, lu, sp, cg, "
	  "ft)",
	  FIELD(shape), 0, 0, NULL },
	{ "traces", PN_OPTION_TEXT, "", "folder of traces (*.csv, *.csv.gz)",
	  FIELD(traces), 0, 0, NULL },
	{ "patience", PN_OPTION_NUMBER, "2500",
	  "helper_patience (see pinion(7)) of recorded", FIELD(patience), 1,
	  1000000000, NULL },
	{ "seed", PN_OPTION_NUMBER, "1", "seed of the noise in computing times",
	  FIELD(seed), 1, 1000000000, NULL },
	{ "nodes", PN_OPTION_NUMBER, "1024",
	  "maximum number of nodes of scaling", FIELD(nodes), 16, 1024, NULL },
	{ "periods", PN_OPTION_NUMBER, "16", "rhythm: how many periods count",
	  FIELD(periods), 1, 10000, NULL },
	{ "rounds", PN_OPTION_NUMBER, "5", "of periodic", FIELD(rounds), 1, 99,
	  NULL },
	{ "steps", PN_OPTION_NUMBER, "0",
	  "iterations of periodic's programs (0: about 6 s)", FIELD(steps), 0,
	  1000000, NULL },
	{ "device", PN_OPTION_TEXT, "soft",
	  "the device of periodic, recording and rhythm", FIELD(common.device),
	  0, 0, NULL },
	PN_COMMAND_JSON(struct values, common.json),
};

struct bench {
	const struct values *values;
	struct pn_report report;
};

/* --- rows ----------------------------------------------------------------- */

struct row {
	const char *experiment, *shape, *scheme, *predictor, *policy;
	double jitter;
	unsigned nodes;
	size_t limit;
	struct pn_cluster_result result;
};

static double late_percent(const struct pn_cluster_result *r)
{
	return r->transfers ? 100.0 * (double)r->late / (double)r->transfers
			    : NAN;
}

static void print_row(struct bench *b, const struct row *row)
{
	const struct pn_cluster_result *r = &row->result;
	struct pn_report_cell cells[] = {
		PN_CELL_TEXT("experiment", "experiment", -11, row->experiment),
		PN_CELL_TEXT("shape", "shape", -20, row->shape),
		PN_CELL_NUMBER("jitter", "jitter", 6, row->jitter),
		PN_CELL_TEXT("scheme", "scheme", -21, row->scheme),
		PN_CELL_TEXT("predictor", "predictor", -9, row->predictor),
		PN_CELL_TEXT("policy", "policy", -12, row->policy),
		PN_CELL_COUNT("nodes", "nodes", 5, row->nodes),
		PN_CELL_BYTES("limit_bytes", NULL, 0, row->limit),
		PN_CELL_BYTES("registered_bytes_peak", "peak", 7,
			      r->registered.peak_bytes),
		PN_CELL_RATE("registered_bytes_mean", "mean", 7,
			     r->registered.mean_bytes),
		PN_CELL_NUMBER("communication_s", "comm s", 8,
			       r->communication_s),
		PN_CELL_NUMBER("time_s", "time s", 8, r->time_s),
		PN_CELL_NUMBER("late_percent", "late %", 7, late_percent(r)),
		PN_CELL_COUNT("copied_no_budget", NULL, 0, r->copied),
		PN_CELL_COUNT("left_to_cache", NULL, 0, r->irregular),
	};

	pn_report_row(&b->report, cells, PN_ARRAY_LEN(cells));
}

static const char *predictor_of(const struct pn_cluster_attr *attr)
{
	return attr->scheme == PN_SCHEME_HELPER
		       ? pn_predictor_name(attr->predictor)
		       : "";
}

/* Runs one configuration and prints it; *out may be NULL. */
static int run_one(struct bench *b, const char *experiment, const char *shape,
		   const struct pn_cluster_attr *attr,
		   struct pn_cluster_result *out)
{
	struct row row = { .experiment = experiment,
			   .shape = shape,
			   .scheme = pn_scheme_name(attr->scheme),
			   .predictor = predictor_of(attr),
			   .policy = "",
			   .jitter = attr->jitter,
			   .nodes = attr->program.nranks *
				    (attr->copies ? attr->copies : 1),
			   .limit = attr->max_bytes };
	enum pn_share_policy policy = attr->policy;
	int ret;

	pn_report_progress(shape);
	ret = pn_cluster_run(attr, &row.result);
	if (ret)
		return ret;
	if (attr->scheme == PN_SCHEME_HELPER)
		row.policy =
			pn_share_policy_name(policy ? policy : PN_SHARE_OWN);
	print_row(b, &row);
	if (out)
		*out = row.result;
	return 0;
}

static double percent_less(double a, double b)
{
	return 100 * (1 - a / b);
}

/* Compares leave-pinned and helper, also in words. */
static int compare(struct bench *b, const char *experiment, const char *shape,
		   struct pn_cluster_attr attr, double *saved)
{
	struct pn_cluster_result left, helped;
	int ret;

	attr.scheme = PN_SCHEME_LEAVE_PINNED;
	ret = run_one(b, experiment, shape, &attr, &left);
	attr.scheme = PN_SCHEME_HELPER;
	if (!ret)
		ret = run_one(b, experiment, shape, &attr, &helped);
	if (ret)
		return ret;
	*saved = percent_less((double)helped.registered.peak_bytes,
			      (double)left.registered.peak_bytes);
	pn_report_note(&b->report,
		       "%s: %.2f %% less at the peak, %.2f %% less on average, "
		       "communication %+.2f %%",
		       shape, *saved,
		       percent_less(helped.registered.mean_bytes,
				    left.registered.mean_bytes),
		       -percent_less(helped.communication_s,
				     left.communication_s));
	return 0;
}

static struct pn_cluster_attr attr_of(const struct bench *b, const char *shape,
				      unsigned nranks, double jitter)
{
	return (struct pn_cluster_attr){
		.program = { .shape = shape, .nranks = nranks },
		.cost = b->values->cost,
		.window = 2,
		.jitter = jitter,
		.seed = b->values->seed,
	};
}

/* --- predictors ----------------------------------------------------------- */

static const char *const nas[] = { "bt", "lu", "sp", "cg", "ft" };
static const double jitters[] = { 0.001, 0.01, 0.1 };

struct guess {
	struct pn_callsites_attr attr;
	double link_gbps;
	unsigned window;
	bool one_site; /* a library hides where calls come from */
};

struct hits {
	uint64_t n, within_5, within_0_5;
};

static void count(struct hits *hits, const struct pn_call_result *v)
{
	double error;

	if (!v->predicted_ns || !v->observed_ns)
		return;
	error = fabs((double)v->predicted_ns - (double)v->observed_ns) /
		(double)v->observed_ns;
	hits->n++;
	hits->within_5 += error <= 0.05;
	hits->within_0_5 += error <= 0.005;
}

/* Rank 0 of a shape without the others: messages take their time on the link,
 * with gbps. */
static int predict_shape(const char *shape, const struct guess *guess,
			 double jitter, struct hits *hits)
{
	struct pn_window window = { .n = 0 };
	struct pn_program_attr program_attr = { .shape = shape, .nranks = 4 };
	const struct pn_program_run_step *step;
	struct pn_callsites *sites;
	struct pn_call_sequence *sequence;
	struct pn_program program;
	uint64_t noise = 1;
	double now = 1e9;
	int ret = pn_program_make(&program_attr, &program);

	if (ret)
		return ret;
	ret = pn_callsites_open(&guess->attr, &sites);
	if (ret)
		goto free_program;
	sequence = pn_call_sequence_alloc(sites);
	if (!sequence)
		ret = -ENOMEM;
	for (size_t n = 0; !ret && (step = pn_program_step(&program, n)); n++) {
		struct pn_call_result verdict;
		struct pn_call call = {
			.time_ns = (uint64_t)now,
			.range = { ((uintptr_t)step->buffer << 36) +
					   step->offset,
				   step->bytes },
			.kind = step->action,
			.nframes = 1,
			.frames = { guess->one_site ? 1
						    : (uintptr_t)step->site },
		};

		if (step->action == PN_COMPUTE)
			now += step->ns * pn_program_noise(&noise, jitter);
		if (step->action == PN_COMPUTE || step->action == PN_WAIT_ALL)
			continue;
		now += 1000;
		if (step->action == PN_POST_SEND)
			now += (double)step->bytes / guess->link_gbps;
		pn_window_add(&window, guess->window, &call);
		ret = pn_callsites_add_call(sequence, &call, &verdict);
		if (!ret)
			count(hits, &verdict);
	}
	pn_call_sequence_free(sequence);
	pn_callsites_close(sites);
free_program:
	pn_program_free(&program);
	return ret;
}

static void print_prediction(struct bench *b, const char *shape,
			     const struct guess *guess, double jitter,
			     const struct hits *h)
{
	double n = (double)h->n;
	unsigned window = guess->attr.predictor == PN_PREDICT_PERIODIC
				  ? guess->attr.periodic
				  : guess->window;
	char name[32];
	struct pn_report_cell cells[] = {
		PN_CELL_TEXT("experiment", "experiment", -11, "predictor"),
		PN_CELL_TEXT("shape", "shape", -16, name),
		PN_CELL_TEXT("predictor", "predictor", -9,
			     pn_predictor_name(guess->attr.predictor)),
		PN_CELL_COUNT("window", "window", 6, window),
		PN_CELL_NUMBER("jitter", "jitter", 6, jitter),
		PN_CELL_COUNT("predictions", "predictions", 11, h->n),
		PN_CELL_NUMBER("within_5_percent", "within 5 %", 10,
			       n ? 100 * (double)h->within_5 / n : NAN),
		PN_CELL_NUMBER("within_0_5_percent", "within 0.5 %", 12,
			       n ? 100 * (double)h->within_0_5 / n : NAN),
	};

	snprintf(name, sizeof(name), "%s%s", shape,
		 guess->one_site ? ", one site" : "");
	pn_report_row(&b->report, cells, PN_ARRAY_LEN(cells));
}

/* Each shape, and the mean of the percentages over all shapes. */
static int predict(struct bench *b, const struct guess *guess, double jitter)
{
	struct hits all = { 0 };
	double within_5 = 0, within_0_5 = 0;
	unsigned shapes = 0;

	for (size_t i = 0; i < PN_ARRAY_LEN(nas); i++) {
		struct hits h = { 0 };
		int ret = predict_shape(nas[i], guess, jitter, &h);

		if (ret)
			return ret;
		print_prediction(b, nas[i], guess, jitter, &h);
		all.n += h.n;
		if (!h.n)
			continue;
		shapes++;
		within_5 += (double)h.within_5 / (double)h.n;
		within_0_5 += (double)h.within_0_5 / (double)h.n;
	}
	if (shapes) {
		all.within_5 = (uint64_t)((double)all.n * within_5 / shapes);
		all.within_0_5 =
			(uint64_t)((double)all.n * within_0_5 / shapes);
	}
	print_prediction(b, "all", guess, jitter, &all);
	return 0;
}

/* Behind a library that hides who calls it: the programs, and one in which the
 * calls before tell what the site would. */
static int predict_hidden(struct bench *b, struct guess *guess)
{
	struct hits h = { 0 };
	int ret;

	guess->one_site = true;
	ret = predict(b, guess, jitters[0]);
	if (!ret)
		ret = predict_shape("solver", guess, jitters[0], &h);
	if (!ret)
		print_prediction(b, "solver", guess, jitters[0], &h);
	guess->one_site = false;
	return ret;
}

/* With the costs of the profile. */
static struct guess guess_of(const struct bench *b)
{
	const double *v = pn_profile_find(b->values->cost)->value;

	return (struct guess){
		.attr = { .costs = { .register_ns =
					     1e3 * v[PN_PROFILE_REGISTER_US],
				     .register_page_ns =
					     1e3 *
					     v[PN_PROFILE_REGISTER_PAGE_US] } },
		.link_gbps = v[PN_PROFILE_LINK_GBPS],
	};
}

static int predictor(struct bench *b)
{
	static const unsigned windows[] = { 8, 32, 128, 512 };
	struct guess guess = guess_of(b);
	int ret = 0;

	for (size_t j = 0; j < PN_ARRAY_LEN(jitters) && !ret; j++) {
		for (unsigned w = 0; w <= 4 && !ret; w++) {
			guess.window = w;
			guess.attr.predictor = PN_PREDICT_SHORTEST;
			ret = predict(b, &guess, jitters[j]);
			guess.attr.predictor = PN_PREDICT_LEARNED;
			if (!ret)
				ret = predict(b, &guess, jitters[j]);
		}
		guess.attr.predictor = PN_PREDICT_PERIODIC;
		for (size_t w = 0; w < PN_ARRAY_LEN(windows) && !ret; w++) {
			guess.attr.periodic = windows[w];
			ret = predict(b, &guess, jitters[j]);
		}
		guess.attr.periodic = 0;
	}
	for (unsigned w = 0; w <= 4 && !ret; w++) {
		guess.window = w;
		guess.attr.predictor = PN_PREDICT_SHORTEST;
		ret = predict_hidden(b, &guess);
		guess.attr.predictor = PN_PREDICT_LEARNED;
		if (!ret)
			ret = predict_hidden(b, &guess);
	}
	return ret;
}

/* --- latency -------------------------------------------------------------- */

/* The default of figure1: ten iterations of three messages. */
#define LATENCY_MESSAGES 30
#define LATENCY_LARGE	 (1 << 20) /* the paper's bound is for more */

/* `left_us`: the same message with memory left pinned. */
static void print_latency(struct bench *b, const struct pn_cluster_attr *attr,
			  double us, double left_us)
{
	struct pn_report_cell cells[] = {
		PN_CELL_TEXT("experiment", "experiment", -11, "latency"),
		PN_CELL_TEXT("shape", "shape", -8,
			     attr->program.fresh ? "no_reuse" : "reuse"),
		PN_CELL_BYTES("bytes", "bytes", 7, attr->program.bytes),
		PN_CELL_TEXT("scheme", "scheme", -21,
			     pn_scheme_name(attr->scheme)),
		PN_CELL_NUMBER("latency_us", "latency us", 10, us),
		PN_CELL_NUMBER("of_left_pinned", "of pinned", 9, us / left_us),
		PN_CELL_NUMBER("more_percent", "more %", 7,
			       100 * (us / left_us - 1)),
		PN_CELL_FLAG("large", NULL, 0,
			     attr->program.bytes > LATENCY_LARGE),
	};

	pn_report_row(&b->report, cells, PN_ARRAY_LEN(cells));
}

/* Leave-pinned, the first scheme, is what the others are compared with. */
static int latency_of(struct bench *b, bool fresh, size_t bytes)
{
	double left_us = NAN;

	for (unsigned s = 0; s <= PN_SCHEME_HELPER; s++) {
		struct pn_cluster_attr attr = attr_of(b, "figure1", 2, 0);
		struct pn_cluster_result result;
		double us;
		int ret;

		attr.program.fresh = fresh;
		attr.program.bytes = bytes;
		attr.scheme = (enum pn_scheme)s;
		ret = pn_cluster_run(&attr, &result);
		if (ret)
			return ret;
		us = result.communication_s * 1e6 / LATENCY_MESSAGES;
		if (attr.scheme == PN_SCHEME_LEAVE_PINNED)
			left_us = us;
		print_latency(b, &attr, us, left_us);
	}
	return 0;
}

/* Without noise, and the two ranks compute equally long: neither waits for the
 * other. */
static int latency(struct bench *b)
{
	int ret = 0;

	for (unsigned fresh = 0; fresh < 2 && !ret; fresh++)
		for (size_t bytes = 16 << 10; bytes <= 16 << 20 && !ret;
		     bytes *= 2)
			ret = latency_of(b, fresh, bytes);
	return ret;
}

/* --- programs ------------------------------------------------------------- */

static int figure1(struct bench *b)
{
	for (int fresh = 0; fresh < 2; fresh++) {
		for (unsigned s = 0; s <= PN_SCHEME_HELPER; s++) {
			struct pn_cluster_attr attr =
				attr_of(b, "figure1", 2, 0.001);
			int ret;

			attr.program.fresh = fresh;
			attr.scheme = (enum pn_scheme)s;
			ret = run_one(b, "figure1",
				      fresh ? "no_reuse" : "reuse", &attr,
				      NULL);
			if (ret)
				return ret;
		}
	}
	return 0;
}

static bool shape_wanted(const struct bench *b, const char *shape)
{
	return !*b->values->shape || !strcmp(b->values->shape, shape);
}

/* The other schemes, and the paper's predictor. */
static int nas_others(struct bench *b, struct pn_cluster_attr attr)
{
	const char *shape = attr.program.shape;
	int ret = 0;

	for (unsigned s = PN_SCHEME_ON_DEMAND; s < PN_SCHEME_COUNT && !ret;
	     s++) {
		attr.scheme = (enum pn_scheme)s;
		if (s != PN_SCHEME_HELPER)
			ret = run_one(b, "nas", shape, &attr, NULL);
	}
	attr.scheme = PN_SCHEME_HELPER;
	attr.predictor = PN_PREDICT_SHORTEST;
	return ret ? ret : run_one(b, "nas", shape, &attr, NULL);
}

static int nas_of(struct bench *b, double jitter)
{
	double saved, sum = 0;

	for (size_t i = 0; i < PN_ARRAY_LEN(nas); i++) {
		struct pn_cluster_attr attr = attr_of(b, nas[i], 4, jitter);
		int ret;

		if (!shape_wanted(b, nas[i]))
			continue;
		ret = compare(b, "nas", nas[i], attr, &saved);
		if (!ret)
			ret = nas_others(b, attr);
		if (ret)
			return ret;
		sum += saved;
	}
	if (!*b->values->shape)
		pn_report_note(&b->report,
			       "all: %.2f %% less at the peak on average, "
			       "jitter %g",
			       sum / PN_ARRAY_LEN(nas), jitter);
	return 0;
}

static int nas_all(struct bench *b)
{
	int ret = 0;

	for (size_t i = 0; i < PN_ARRAY_LEN(jitters) && !ret; i++)
		ret = nas_of(b, jitters[i]);
	return ret;
}

/* Three quarters of three arrays are sent: 3.58 GB. Limits below what each
 * scheme takes without one, so that they are reached; and the paper's. */
static int limit(struct bench *b)
{
	static const struct {
		enum pn_scheme scheme;
		size_t gb; /* 0: no limit */
	} runs[] = { { PN_SCHEME_LEAVE_PINNED, 0 },
		     { PN_SCHEME_LEAVE_PINNED, 3 },
		     { PN_SCHEME_HELPER, 0 },
		     { PN_SCHEME_HELPER, 3 },
		     { PN_SCHEME_HELPER, 2 } };
	struct pn_cluster_attr attr = attr_of(b, "ft", 4, 0.001);
	struct pn_cluster_result free_of_it = { 0 }, result;
	int ret = 0;

	attr.program.bytes = (size_t)(4 * 3.58 * GB / 3 * 4 / 3);
	attr.program.scale = 12;
	for (size_t i = 0; i < PN_ARRAY_LEN(runs) && !ret; i++) {
		attr.scheme = runs[i].scheme;
		attr.max_bytes = runs[i].gb * GB;
		ret = run_one(b, "limit", "ft", &attr, &result);
		if (!runs[i].gb)
			free_of_it = result;
		else if (!ret)
			pn_report_note(&b->report,
				       "under the limit: time %+.3f %%, %llu "
				       "fragments copied because the budget "
				       "was full",
				       -percent_less(result.time_s,
						     free_of_it.time_s),
				       (unsigned long long)result.copied);
	}
	return ret;
}

/* --- machines with several ranks ------------------------------------------ */

/* Nine jobs of four ranks on six machines of eight cores: six ranks per machine
 * and two idle cores. No two ranks of a job share a machine. */
static int cores(struct bench *b)
{
	static const char *const shapes[] = { "sp", "cg" };
	static const enum pn_share_policy policies[] = {
		PN_SHARE_OFF, PN_SHARE_OWN, PN_SHARE_AGGRESSIVE,
		PN_SHARE_CONSERVATIVE
	};
	unsigned machines[36];
	int ret = 0;

	for (unsigned i = 0; i < 36; i++)
		machines[i] = i % 6;
	for (size_t i = 0; i < 2 * 4 && !ret; i++) {
		struct pn_cluster_attr attr =
			attr_of(b, shapes[i / 4], 4, 0.001);

		attr.copies = 9;
		attr.machines = machines;
		attr.idle_cores = 2;
		attr.policy = policies[i % 4];
		if (attr.policy)
			attr.scheme = PN_SCHEME_HELPER;
		ret = run_one(b, "cores", shapes[i / 4], &attr, NULL);
	}
	return ret;
}

/* Assigns ranks to machines, `each` per machine, in random order. */
static void group(unsigned *machines, unsigned n, unsigned each, uint64_t seed)
{
	for (unsigned i = 0; i < n; i++)
		machines[i] = i / each;
	for (unsigned i = n - 1; i; i--) {
		unsigned j, swap = machines[i];

		seed ^= seed << 13;
		seed ^= seed >> 7;
		seed ^= seed << 17;
		j = (unsigned)(seed % (i + 1));
		machines[i] = machines[j];
		machines[j] = swap;
	}
}

static const char *const groupings[] = { "ft2d test 1", "ft2d test 2" };

static struct pn_cluster_attr grouped(const struct bench *b,
				      unsigned machines[16], unsigned test)
{
	struct pn_cluster_attr attr = attr_of(b, "ft2d", 16, 0.001);

	group(machines, 16, 4, test + 1);
	attr.machines = machines;
	return attr;
}

static int aggregation(struct bench *b)
{
	for (unsigned test = 0; test < 2; test++) {
		unsigned machines[16];
		struct pn_cluster_attr attr = grouped(b, machines, test);
		double saved;
		int ret = compare(b, "aggregation", groupings[test], attr,
				  &saved);

		if (ret)
			return ret;
	}
	return 0;
}

static int scaling(struct bench *b)
{
	double saved;
	int ret = 0;

	for (unsigned n = 16; n <= 64 && !ret; n *= 2) {
		struct pn_cluster_attr attr = attr_of(b, "ft", n, 0.001);

		if (n > b->values->nodes)
			break;
		attr.program.bytes = (size_t)8 << 30;
		attr.program.scale = 16.0 / n;
		ret = compare(b, "scaling", "ft strong", attr, &saved);
		attr.program.bytes = ((size_t)8 << 30) / 16 * n;
		attr.program.scale = 1;
		if (!ret)
			ret = compare(b, "scaling", "ft weak", attr, &saved);
	}
	if (!ret && b->values->nodes > 64) {
		struct pn_cluster_attr attr =
			attr_of(b, "ft", (unsigned)b->values->nodes, 0.001);

		attr.program.bytes =
			((size_t)8 << 30) / 16 * (size_t)b->values->nodes;
		attr.program.iterations = 6;
		ret = compare(b, "scaling", "ft weak", attr, &saved);
	}
	return ret;
}

/* --- registered memory over time -------------------------------------------
 */

/* One run; with --json one row per point. */
struct drawn {
	const char *shape, *scheme;
	double jitter;
	double process; /* NAN: the machine */
	double scale;	/* maximum of the drawing */
};

static void print_points(struct bench *b, const struct drawn *d,
			 const struct pn_series *series)
{
	for (unsigned i = 0; i < pn_series_n(series); i++) {
		struct pn_point point = pn_series_at(series, i);
		struct pn_report_cell cells[] = {
			PN_CELL_TEXT("experiment", NULL, 0, "memory"),
			PN_CELL_TEXT("shape", NULL, 0, d->shape),
			PN_CELL_NUMBER("jitter", NULL, 0, d->jitter),
			PN_CELL_TEXT("scheme", NULL, 0, d->scheme),
			PN_CELL_NUMBER("process", NULL, 0, d->process),
			PN_CELL_NUMBER("at_s", NULL, 0, point.at_s),
			PN_CELL_RATE("registered_bytes_peak", NULL, 0,
				     point.highest),
			PN_CELL_RATE("registered_bytes_mean", NULL, 0,
				     point.mean),
		};

		pn_report_row(&b->report, cells, PN_ARRAY_LEN(cells));
	}
}

/* Draws one character per two points, from 0 to the maximum. */
static void draw(struct bench *b, const struct drawn *d,
		 const struct pn_series *series)
{
	static const char levels[] = " .:-=+*#%@";
	size_t level = 0, top = sizeof(levels) - 2;
	char line[PN_SERIES_POINTS / 2 + 1] = "", who[16] = "machine";

	for (unsigned i = 0; i < pn_series_n(series); i++) {
		double high = pn_series_at(series, i).highest / d->scale;
		size_t now = (size_t)ceil(fmin(high, 1) * (double)top);

		level = i % 2 && level > now ? level : now;
		line[i / 2] = levels[level];
	}
	if (!isnan(d->process))
		snprintf(who, sizeof(who), "rank %.0f", d->process);
	pn_report_note(&b->report, "%-11s %-21s %-7s |%s|", d->shape, d->scheme,
		       who, line);
}

static void show_series(struct bench *b, const struct drawn *d,
			const struct pn_series *series)
{
	if (b->values->common.json)
		print_points(b, d, series);
	else
		draw(b, d, series);
}

/* Runs a program and prints its registered memory over time. *scale: the
 * maximum of the run, unless set before. */
static int watch(struct bench *b, const char *shape,
		 struct pn_cluster_attr attr, double *scale)
{
	struct pn_cluster_series *series = malloc(sizeof(*series));
	struct pn_cluster_result result;
	struct drawn d = { shape, pn_scheme_name(attr.scheme), attr.jitter, NAN,
			   0 };
	int ret;

	if (!series)
		return -ENOMEM;
	pn_report_progress(shape);
	attr.series = series;
	ret = pn_cluster_run(&attr, &result);
	if (!ret && !*scale)
		*scale = (double)result.registered.peak_bytes;
	d.scale = *scale;
	if (!ret)
		show_series(b, &d, &series->machine);
	/* With one process the machine is the same curve. */
	for (unsigned i = 0; !ret && i < series->nprocesses &&
			     (series->nprocesses > 1 || b->report.json);
	     i++) {
		d.process = series->ranks[i];
		show_series(b, &d, &series->processes[i]);
	}
	free(series);
	return ret;
}

/* Leave-pinned first, since it registers most and sets the scale. */
static int watch_schemes(struct bench *b, const char *shape,
			 struct pn_cluster_attr attr, bool all)
{
	double scale = 0;
	int ret = 0;

	for (unsigned s = 0; s <= PN_SCHEME_HELPER && !ret; s++) {
		attr.scheme = (enum pn_scheme)s;
		if (all || s == PN_SCHEME_LEAVE_PINNED || s == PN_SCHEME_HELPER)
			ret = watch(b, shape, attr, &scale);
	}
	return ret;
}

/* The paper shows two steps of each program and the whole of FT. */
static int watch_nas(struct bench *b)
{
	static const unsigned iterations[] = { 8, 8, 8, 1, 20 };
	int ret = 0;

	for (size_t i = 0; i < PN_ARRAY_LEN(nas) && !ret; i++) {
		struct pn_cluster_attr attr = attr_of(b, nas[i], 4, 0.001);

		attr.program.iterations = iterations[i];
		if (shape_wanted(b, nas[i]))
			ret = watch_schemes(b, nas[i], attr, false);
	}
	return ret;
}

static int memory(struct bench *b)
{
	int ret = watch_nas(b);

	if (*b->values->shape)
		return ret;
	for (int fresh = 0; fresh < 2 && !ret; fresh++) {
		struct pn_cluster_attr attr = attr_of(b, "figure1", 2, 0.001);

		attr.program.fresh = fresh;
		ret = watch_schemes(b, fresh ? "no_reuse" : "reuse", attr,
				    true);
	}
	for (unsigned test = 0; test < 2 && !ret; test++) {
		unsigned machines[16];
		struct pn_cluster_attr attr = grouped(b, machines, test);

		ret = watch_schemes(b, groupings[test], attr, false);
	}
	return ret;
}

/* --- recorded ------------------------------------------------------------- */

static void print_replay(struct bench *b, const char *sequence,
			 enum pn_scheme scheme, enum pn_predictor predictor,
			 const struct pn_cluster_result *result)
{
	print_row(b, &(struct row){
			     .experiment = "recorded",
			     .shape = sequence,
			     .scheme = pn_scheme_name(scheme),
			     .predictor = scheme == PN_SCHEME_HELPER
						  ? pn_predictor_name(predictor)
						  : "",
			     .policy = "",
			     .jitter = NAN,
			     .nodes = 1,
			     .result = *result });
}

static int replay_file(void *arg, const char *path, const char *name)
{
	static const enum pn_predictor predictors[] = { PN_PREDICT_SHORTEST,
							PN_PREDICT_LEARNED };
	struct bench *b = arg;
	struct pn_cluster_result result;
	struct pn_timed_replay_attr attr = {
		.path = path,
		.cost = b->values->cost,
		.window = 2,
		.patience = (double)b->values->patience
	};
	int ret;

	pn_report_progress(name);
	attr.scheme = PN_SCHEME_LEAVE_PINNED;
	ret = pn_timed_replay_run(&attr, &result, NULL);
	if (ret == -ENODATA)
		return 0; /* no request is long enough */
	if (!ret)
		print_replay(b, name, attr.scheme, 0, &result);
	attr.scheme = PN_SCHEME_HELPER;
	for (size_t i = 0; i < PN_ARRAY_LEN(predictors) && !ret; i++) {
		attr.predictor = predictors[i];
		ret = pn_timed_replay_run(&attr, &result, NULL);
		if (!ret)
			print_replay(b, name, attr.scheme, attr.predictor,
				     &result);
	}
	return ret;
}

static int recorded(struct bench *b)
{
	if (!*b->values->traces) {
		pn_report_note(&b->report,
			       "recorded: give a folder with --traces");
		return 0;
	}
	return pn_trace_files_each(b->values->traces, replay_file, b);
}

/* --- tuned on one half, judged on the other --------------------------------
 */

static const double patiences[] = { 250, 800, 2500, 8000, 25000 };

#define NPATIENCES PN_ARRAY_LEN(patiences)

/* Sums over the traces of a half: of ratios to `shortest`, so that each trace
 * counts the same, and of late requests in percent. */
struct half {
	double byte_s[NPATIENCES], late[NPATIENCES];
	unsigned n;
};

struct halves {
	struct bench *b;
	struct half half[2];
	unsigned ntraces;
};

static int replay_tuned(void *arg, const char *path, const char *name)
{
	struct halves *h = arg;
	struct half *half = &h->half[h->ntraces % 2];
	struct pn_timed_replay_attr attr = { .path = path,
					     .cost = h->b->values->cost,
					     .scheme = PN_SCHEME_HELPER,
					     .predictor = PN_PREDICT_SHORTEST,
					     .window = 2 };
	struct pn_cluster_result base, result;
	int ret = pn_timed_replay_run(&attr, &base, NULL);

	pn_report_progress(name);
	if (ret)
		return ret == -ENODATA ? 0 : ret;
	attr.predictor = PN_PREDICT_LEARNED;
	for (size_t i = 0; i < NPATIENCES && !ret; i++) {
		attr.patience = patiences[i];
		ret = pn_timed_replay_run(&attr, &result, NULL);
		half->byte_s[i] += result.registered.mean_bytes /
				   base.registered.mean_bytes;
		half->late[i] += late_percent(&result) - late_percent(&base);
	}
	half->n++;
	h->ntraces++;
	return ret;
}

/* The least memory among the candidates that are late no more often, by a
 * point; else the one that is late least. */
static unsigned choose_patience(const struct half *half)
{
	unsigned best = 0;

	for (unsigned i = 1; i < NPATIENCES; i++) {
		bool good = half->late[i] <= half->n;
		bool best_good = half->late[best] <= half->n;

		if (good != best_good ? good
				      : half->byte_s[i] < half->byte_s[best])
			best = i;
	}
	return best;
}

static void print_half(struct bench *b, const struct half *half, bool judges,
		       unsigned i)
{
	struct pn_report_cell cells[] = {
		PN_CELL_TEXT("experiment", "experiment", -11, "tuned"),
		PN_CELL_TEXT("half", "half", -8, judges ? "judged" : "chosen"),
		PN_CELL_COUNT("traces", "traces", 6, half->n),
		PN_CELL_NUMBER("patience", "patience", 8, patiences[i]),
		PN_CELL_NUMBER("byte_seconds_ratio", "byte s", 7,
			       half->byte_s[i] / half->n),
		PN_CELL_NUMBER("late_points", "late +", 7,
			       half->late[i] / half->n),
	};

	pn_report_row(&b->report, cells, PN_ARRAY_LEN(cells));
}

static int tuned(struct bench *b)
{
	struct halves h = { .b = b };
	int ret = 0;

	if (*b->values->traces)
		ret = pn_trace_files_each(b->values->traces, replay_tuned, &h);
	for (unsigned i = 0; i < 2 && !ret && h.ntraces > 1; i++) {
		unsigned best = choose_patience(&h.half[i]);

		print_half(b, &h.half[i], false, best);
		print_half(b, &h.half[!i], true, best);
	}
	return ret;
}

/* --- real devices --------------------------------------------------------- */

/* FT's arrays: 16 MiB of each rank, of which three quarters are sent. */
static int periodic(struct bench *b)
{
	const struct values *values = b->values;
	struct pn_report report = { .json = values->common.json,
				    .bench = "helper" };
	struct pn_spec spec;
	struct pn_periodic_attr attr = { .device = spec.text,
					 .shape = values->shape,
					 .traces = values->traces,
					 .rounds = (unsigned)values->rounds,
					 .steps = (unsigned)values->steps,
					 .bytes = (size_t)64 << 20 };

	if (!*values->experiment)
		return 0; /* minutes: only when asked for */
	if (pn_spec_find(&spec, values->common.device))
		return PN_BENCH_REPORTED;
	report.device = spec.text;
	report.emulated = strstr(spec.text, "cost=");
	return pn_periodic_run(&attr, &report);
}

/* --- the critical path ---------------------------------------------------- */

static int recording(struct bench *b)
{
	struct pn_overhead rows[] = { { .bytes = 17 << 10 },
				      { .bytes = 1 << 20 },
				      { .bytes = 4 << 20 } };
	struct pn_report report = { .json = b->values->common.json,
				    .bench = "helper" };
	struct pn_spec spec;
	int ret;

	if (pn_spec_find(&spec, b->values->common.device))
		return PN_BENCH_REPORTED;
	pn_report_progress("recording");
	ret = pn_overhead_measure(&spec, rows, PN_ARRAY_LEN(rows));
	report.device = spec.text;
	for (size_t i = 0; i < PN_ARRAY_LEN(rows) && !ret; i++) {
		struct pn_report_cell cells[] = {
			PN_CELL_TEXT("experiment", "experiment", -11,
				     "recording"),
			PN_CELL_BYTES("bytes", "bytes", 6, rows[i].bytes),
			PN_CELL_NUMBER("without_us", "without us", 10,
				       rows[i].without_us),
			PN_CELL_NUMBER("with_us", "with us", 10,
				       rows[i].with_us),
			PN_CELL_NUMBER("overhead_percent", "more %", 8,
				       rows[i].percent),
			PN_CELL_NUMBER("note_ns", "note ns", 8,
				       rows[i].record_cost_ns),
		};

		pn_report_row(&report, cells, PN_ARRAY_LEN(cells));
	}
	return ret;
}

/* --- on a device ---------------------------------------------------------- */

static int rhythm(struct bench *b)
{
	struct pn_report report = { .json = b->values->common.json,
				    .bench = "helper" };
	struct pn_spec spec;

	if (pn_spec_find(&spec, b->values->common.device))
		return PN_BENCH_REPORTED;
	pn_report_progress("rhythm");
	report.device = spec.text;
	return pn_rhythm_run_messages((unsigned)b->values->periods, &report);
}

/* --- all of it ------------------------------------------------------------ */

static const struct {
	const char *name;
	int (*run)(struct bench *b);
} experiments[] = {
	{ "predictor", predictor },
	{ "latency", latency },
	{ "figure1", figure1 },
	{ "nas", nas_all },
	{ "limit", limit },
	{ "recorded", recorded },
	{ "tuned", tuned },
	{ "cores", cores },
	{ "aggregation", aggregation },
	{ "scaling", scaling },
	{ "memory", memory },
	{ "periodic", periodic },
	{ "recording", recording },
	{ "rhythm", rhythm },
};

static bool wanted(const struct values *values, const char *name)
{
	return !*values->experiment || !strcmp(values->experiment, name);
}

static bool known(const struct values *values)
{
	for (size_t i = 0; i < PN_ARRAY_LEN(experiments); i++)
		if (wanted(values, experiments[i].name))
			return true;
	return false;
}

static int run_helper(const void *v, char *const *operands)
{
	const struct values *values = v;
	struct bench b = { .values = values };
	int ret = 0;

	(void)operands;
	if (!known(values))
		return pn_usage_error("no experiment '%s'; see --help",
				      values->experiment);
	if (!pn_profile_find(values->cost))
		return pn_usage_error("no cost profile '%s'", values->cost);
	b.report = (struct pn_report){ .json = values->common.json,
				       .bench = "helper",
				       .device = "sim",
				       .profile = values->cost,
				       .emulated = true };
	pn_report_head(&b.report, pn_bench_helper.help);
	for (size_t i = 0; i < PN_ARRAY_LEN(experiments) && !ret; i++) {
		if (!wanted(values, experiments[i].name))
			continue;
		pn_report_series(&b.report);
		ret = experiments[i].run(&b);
	}
	pn_report_progress(NULL);
	if (ret == PN_BENCH_REPORTED)
		return PN_EXIT_FAILED;
	return ret ? pn_failed("helper", ret) : PN_EXIT_OK;
}

const struct pn_command pn_bench_helper = {
	.name = "helper",
	.help = "how much less memory is registered if registration follows "
		"the program's phases?",
	.about = "Runs programs shaped like the NAS benchmarks on simulated "
		 "nodes, with memory left registered, registered on demand, in "
		 "pipelines and by the helper, and compares registered memory "
		 "and communication time; all of it in virtual time.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_helper,
};
