/* SPDX-License-Identifier: BSD-2-Clause */
/* pinion sim cluster: a parallel program on simulated nodes, with the real
 * engine in virtual time. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "bench/cluster.h"
#include "bench/timed_replay.h"
#include "device/profiles.h"
#include "tools/pinion/command.h"
#include "tools/pinion/report.h"
#include "tools/pinion/timeline.h"
#include "tools/pinion/words.h"

#define MOST_WATCHED 16

struct values {
	char workload[PN_OPTION_TEXT_BYTES], protocol[PN_OPTION_TEXT_BYTES];
	char cost[PN_OPTION_TEXT_BYTES], script[PN_OPTION_TEXT_BYTES];
	uint64_t nodes, budget, iterations, watch, seed, jitter;
	int helper;
	bool json;
};

#define FIELD(name) offsetof(struct values, name)

enum { HELPER_OFF, HELPER_SHORTEST, HELPER_LEARNED, HELPER_PERIODIC };

static const char *const helpers[] = { "off", "shortest", "learned", "periodic",
				       NULL };

static const struct pn_option options[] = {
	{ "nodes", PN_OPTION_NUMBER, "16", "number of nodes, one rank each",
	  FIELD(nodes), 2, 4096, NULL },
	{ "workload", PN_OPTION_TEXT, "ft",
	  "ft, ft2d, bt, sp, lu, cg or figure1; or a file with recorded "
	  "requests of one rank",
	  FIELD(workload), 0, 0, NULL },
	{ "protocol", PN_OPTION_TEXT, "leave_pinned,pipeline",
	  "registration schemes, separated by commas: leave_pinned, on_demand, "
	  "pipeline, pipeline_leave_pinned, auto",
	  FIELD(protocol), 0, 0, NULL },
	{ "helper", PN_OPTION_CHOICE, "learned",
	  "also run leave_pinned, and auto if it is named, with a helper and "
	  "this predictor",
	  FIELD(helper), 0, 0, helpers },
	{ "budget", PN_OPTION_BYTES, "0",
	  "bytes that each rank may pin (0: no limit)", FIELD(budget), 0,
	  UINT64_C(1) << 46, NULL },
	{ "cost", PN_OPTION_TEXT, "ou2009", "cost profile of the nodes",
	  FIELD(cost), 0, 0, NULL },
	{ "iterations", PN_OPTION_NUMBER, "0",
	  "iterations of the program (0: the default of the workload)",
	  FIELD(iterations), 0, 1000000, NULL },
	{ "jitter", PN_OPTION_NUMBER, "1",
	  "noise of computing times, in thousandths", FIELD(jitter), 0, 1000,
	  NULL },
	{ "seed", PN_OPTION_NUMBER, "1", "seed of the noise", FIELD(seed), 0, 0,
	  NULL },
	{ "script", PN_OPTION_TEXT, "",
	  "a file of faults, such as: drop peer 3 at 2s", FIELD(script), 0, 0,
	  NULL },
	{ "watch", PN_OPTION_NUMBER, "4",
	  "number of nodes whose memory over time is printed, with --json",
	  FIELD(watch), 0, MOST_WATCHED, NULL },
	PN_COMMAND_JSON(struct values, json),
};

/* Number of ranks of a job; larger clusters run several jobs. */
static unsigned ranks_of(const char *shape, unsigned nodes)
{
	static const struct {
		const char *shape;
		unsigned nranks;
	} fixed[] = { { "figure1", 2 }, { "bt", 4 }, { "sp", 4 },
		      { "lu", 4 },	{ "cg", 4 }, { "ft2d", 16 } };

	for (size_t i = 0; i < PN_ARRAY_LEN(fixed); i++)
		if (!strcmp(shape, fixed[i].shape))
			return fixed[i].nranks;
	return strcmp(shape, "ft") ? 0 : nodes;
}

/* --- one run -------------------------------------------------------------- */

struct study {
	struct pn_report report;
	const struct values *values;
	enum pn_scheme scheme;
	unsigned nranks; /* ranks of a job */
	char *script;
	bool recorded;
	/* with memory left pinned, the first scheme; 0: was not run */
	struct pn_cluster_result pinned;
	struct pn_timeline lines[MOST_WATCHED];
	uint64_t began_ns, printed_ns; /* real time */
};

static void observe(void *arg, unsigned rank, uint64_t t_ns, size_t bytes)
{
	struct study *study = arg;

	if (rank < study->values->watch)
		pn_timeline_set(&study->lines[rank], t_ns, (double)bytes);
}

/* Prints the percentage done and an estimate of the remaining time, ten times a
 * second. */
static void progress(void *arg, double done)
{
	struct study *study = arg;
	uint64_t now = pn_clock_ns();
	double took = (double)(now - study->began_ns) / PN_NS_PER_S;
	char text[160];

	if (now - study->printed_ns < PN_NS_PER_S / 10)
		return;
	study->printed_ns = now;
	snprintf(text, sizeof(text), "%s on %llu nodes: %.0f %%",
		 pn_scheme_name(study->scheme),
		 (unsigned long long)study->values->nodes, 100 * done);
	if (done > 0.02)
		snprintf(text + strlen(text), sizeof(text) - strlen(text),
			 ", about %.0f s left", took / done - took);
	pn_report_progress(text);
}

static enum pn_predictor predictor_of(int helper)
{
	switch (helper) {
	case HELPER_SHORTEST:
		return PN_PREDICT_SHORTEST;
	case HELPER_PERIODIC:
		return PN_PREDICT_PERIODIC;
	default:
		return PN_PREDICT_LEARNED;
	}
}

/* NAN: there is nothing to compare with. */
static double times(double value, double pinned)
{
	return pinned > 0 ? value / pinned : NAN;
}

static void print_total(struct study *study, const struct pn_cluster_result *r)
{
	const struct pn_cluster_result *pinned = &study->pinned;
	const struct values *values = study->values;
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("what", NULL, 0, "total"),
		PN_CELL_TEXT("workload", "workload", -10, values->workload),
		PN_CELL_TEXT("scheme", "scheme", -21,
			     pn_scheme_name(study->scheme)),
		PN_CELL_COUNT("nodes", "nodes", 5,
			      study->recorded ? 1 : values->nodes),
		PN_CELL_BYTES("budget_bytes", NULL, 0, values->budget),
		PN_CELL_COUNT("registered_bytes_peak", "peak bytes", 12,
			      r->registered.peak_bytes),
		PN_CELL_NUMBER("registered_bytes_mean", "mean bytes", 12,
			       r->registered.mean_bytes),
		PN_CELL_NUMBER("communication_s", "comm. s", 8,
			       r->communication_s),
		PN_CELL_NUMBER("time_s", "time s", 8, r->time_s),
		PN_CELL_NUMBER("memory", NULL, 0,
			       times(r->registered.mean_bytes,
				     pinned->registered.mean_bytes)),
		PN_CELL_NUMBER("communication", NULL, 0,
			       times(r->communication_s,
				     pinned->communication_s)),
		PN_CELL_COUNT("late", "late", 5, r->late),
		PN_CELL_COUNT("copied_no_budget", "copied", 6, r->copied),
		PN_CELL_COUNT("failed_ranks", "failed", 6, r->failed),
		PN_CELL_TEXT("error", NULL, 0,
			     r->error ? strerror(-r->error) : NULL),
	};

	pn_report_row(&study->report, row, PN_ARRAY_LEN(row));
}

static void print_memory(struct study *study)
{
	const struct pn_timeline *lines = study->lines;
	const struct values *values = study->values;

	for (unsigned node = 0; node < values->watch; node++)
		for (unsigned i = 0; i < pn_series_n(&lines[node].series);
		     i++) {
			const struct pn_point point =
				pn_series_at(&lines[node].series, i);
			const struct pn_report_cell row[] = {
				PN_CELL_TEXT("what", NULL, 0, "memory"),
				PN_CELL_TEXT("workload", NULL, 0,
					     values->workload),
				PN_CELL_TEXT("scheme", NULL, 0,
					     pn_scheme_name(study->scheme)),
				PN_CELL_COUNT("node", NULL, 0, node),
				PN_CELL_COUNT("nodes", NULL, 0, values->nodes),
				PN_CELL_NUMBER("t_s", NULL, 0, point.at_s),
				PN_CELL_NUMBER("registered_bytes", NULL, 0,
					       point.highest),
				PN_CELL_NUMBER("registered_bytes_mean", NULL, 0,
					       point.mean),
			};

			pn_report_row(&study->report, row, PN_ARRAY_LEN(row));
		}
}

static int run_recorded(struct study *study, struct pn_cluster_result *out)
{
	const struct values *values = study->values;
	const struct pn_timed_replay_attr attr = {
		.path = values->workload,
		.cost = values->cost,
		.scheme = study->scheme,
		.predictor = predictor_of(values->helper),
		.window = 2,
	};

	*out = (struct pn_cluster_result){ 0 };
	return pn_timed_replay_run(&attr, out, NULL);
}

static int run_nodes(struct study *study, struct pn_cluster_result *out)
{
	const struct values *values = study->values;
	const struct pn_cluster_attr attr = {
		.program = { .shape = values->workload,
			     .nranks = study->nranks,
			     .iterations = (unsigned)values->iterations },
		.copies = (unsigned)values->nodes / study->nranks,
		.cost = values->cost,
		.scheme = study->scheme,
		.predictor = predictor_of(values->helper),
		.window = 2,
		.jitter = (double)values->jitter / 1000,
		.seed = values->seed,
		.max_bytes = values->budget,
		.script = study->script,
		.observe = values->json ? observe : NULL,
		.progress = progress,
		.arg = study,
	};

	return pn_cluster_run(&attr, out);
}

static int run_scheme(struct study *study, enum pn_scheme scheme)
{
	struct pn_cluster_result result;
	int ret;

	study->scheme = scheme;
	study->began_ns = pn_clock_ns();
	for (unsigned i = 0; i < MOST_WATCHED; i++)
		pn_timeline_init(&study->lines[i]);
	ret = study->recorded ? run_recorded(study, &result)
			      : run_nodes(study, &result);
	if (ret)
		return pn_failed(pn_scheme_name(scheme), ret);
	for (unsigned i = 0; i < study->values->watch; i++)
		pn_timeline_set(&study->lines[i],
				(uint64_t)(result.time_s * 1e9),
				study->lines[i].now);
	if (scheme == PN_SCHEME_LEAVE_PINNED)
		study->pinned = result;
	if (study->report.json)
		print_memory(study);
	print_total(study, &result);
	if (result.error)
		pn_report_note(&study->report, "%u of %llu ranks failed: %s",
			       result.failed,
			       (unsigned long long)study->values->nodes,
			       strerror(-result.error));
	return PN_EXIT_OK;
}

/* --- the command ---------------------------------------------------------- */

/* -1: there is no such scheme. */
static int scheme_number(const char *word)
{
	for (int s = 0; s < PN_SCHEME_COUNT; s++)
		if (!pn_scheme_is_helped(s) && !strcmp(word, pn_scheme_name(s)))
			return s;
	return -1;
}

static char *read_script(const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t room = 0;

	if (file && getdelim(&text, &room, '\0', file) < 0 && ferror(file)) {
		free(text);
		text = NULL;
	}
	if (file)
		fclose(file);
	return text;
}

static int run_all(struct study *study, unsigned schemes)
{
	int ret = PN_EXIT_OK;

	if (study->values->helper != HELPER_OFF)
		schemes |= 1u << PN_SCHEME_HELPER |
			   (schemes >> PN_SCHEME_AUTO & 1)
				   << PN_SCHEME_AUTO_HELPER;
	pn_report_head(&study->report,
		       "what does a parallel program register, and when?");
	for (unsigned s = 0; s < PN_SCHEME_COUNT && !ret; s++) {
		/* A trace has no messages, so no protocols. */
		if (study->recorded && s != PN_SCHEME_LEAVE_PINNED &&
		    s != PN_SCHEME_HELPER)
			continue;
		if (schemes >> s & 1)
			ret = run_scheme(study, s);
	}
	return ret;
}

static int check(struct study *study)
{
	const struct values *values = study->values;

	study->nranks = ranks_of(values->workload, (unsigned)values->nodes);
	study->recorded = !study->nranks && !access(values->workload, R_OK);
	if (!study->nranks && !study->recorded)
		return pn_usage_error(
			"sim cluster: '%s' is neither a workload nor a file",
			values->workload);
	if (study->nranks && values->nodes % study->nranks)
		return pn_usage_error("sim cluster: a job of %s has %u ranks: "
				      "give a multiple of that as --nodes",
				      values->workload, study->nranks);
	if (!strcmp(values->workload, "ft") &&
	    values->nodes & (values->nodes - 1))
		return pn_usage_error(
			"sim cluster: ft needs a power of two as --nodes");
	if (!pn_profile_find(values->cost))
		return pn_usage_error("sim cluster: no cost profile is called "
				      "'%s'; `pinion info --profiles` lists "
				      "them",
				      values->cost);
	return PN_EXIT_OK;
}

static int run(const void *v, char *const *operands)
{
	const struct values *values = v;
	unsigned schemes = pn_words_set(values->protocol, scheme_number);
	struct study study = { .report = { .json = values->json,
					   .bench = "sim cluster",
					   .device = "sim",
					   .profile = values->cost,
					   .emulated = true },
			       .values = values };
	int ret = check(&study);

	(void)operands;
	if (ret)
		return ret;
	if (!schemes)
		return pn_usage_error(
			"sim cluster: --protocol takes leave_pinned, "
			"on_demand, pipeline and pipeline_leave_pinned, "
			"separated by commas");
	if (values->script[0]) {
		study.script = read_script(values->script);
		if (!study.script)
			return pn_failed(values->script, -errno);
	}
	ret = run_all(&study, schemes);
	free(study.script);
	return ret;
}

const struct pn_command pn_sim_cluster = {
	.name = "cluster",
	.help = "run a parallel program on simulated nodes",
	.about = "Caches, protocols and helpers are the library's own, in "
		 "virtual time. With --json, it also prints rows of registered "
		 "memory over time, for `pinion report`.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
