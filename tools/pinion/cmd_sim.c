/* SPDX-License-Identifier: BSD-2-Clause */
/* pinion sim: replays recorded or generated requests through the cache, without
 * registering anything. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/range.h"
#include "cache/policy/policy.h"
#include "tools/pinion/command.h"
#include "tools/pinion/replay_jobs.h"
#include "tools/pinion/report.h"
#include "tools/pinion/words.h"
#include "tools/trace/generate.h"

#define MAX_LIST  64
#define RECORDED  "recorded" /* the value in the trace */
#define GENERATED "gen:"
#define SMALLEST  ((size_t)64 << 10)
#define ACCESS	  PINION_ACCESS_LOCAL_WRITE

/* --- lists on the command line
 * ------------------------------------------------ */

struct lists {
	char policies[MAX_LIST][PN_WORD_BYTES];
	size_t budgets[MAX_LIST];
	unsigned npolicies, nbudgets;
};

static bool is_policy(const char *name)
{
	if (!strcmp(name, "offline") || !strcmp(name, "none") ||
	    !strcmp(name, RECORDED))
		return true;
	for (unsigned i = 0; pn_policy_at(i); i++)
		if (!strcmp(pn_policy_at(i)->name, name))
			return true;
	return false;
}

static int add_policies(const char *list, struct lists *lists)
{
	char word[PN_WORD_BYTES];

	while (pn_words_next(&list, word)) {
		if (!is_policy(word) || lists->npolicies == MAX_LIST)
			return -EINVAL;
		strcpy(lists->policies[lists->npolicies++], word);
	}
	return *list || !lists->npolicies ? -EINVAL : 0;
}

/* `recorded` is 0. */
static int add_budgets(const char *list, struct lists *lists)
{
	static const struct pn_option bytes = {
		"budget",      PN_OPTION_BYTES,	  "1M", "", 0,
		PN_PAGE_BYTES, UINT64_C(1) << 46, NULL
	};
	char word[PN_WORD_BYTES];

	while (pn_words_next(&list, word)) {
		uint64_t value = 0;

		if (lists->nbudgets == MAX_LIST ||
		    (strcmp(word, RECORDED) != 0 &&
		     pn_option_parse(&bytes, word, &value, NULL)))
			return -EINVAL;
		lists->budgets[lists->nbudgets++] = value;
	}
	return *list ? -EINVAL : 0;
}

/* --- pinion sim cache
 * ---------------------------------------------------------- */

struct values {
	char trace[PN_OPTION_TEXT_BYTES], policy[PN_OPTION_TEXT_BYTES];
	char budget[PN_OPTION_TEXT_BYTES], profile[PN_OPTION_TEXT_BYTES];
	uint64_t batch, max_region, cache, threads;
	bool json;
};

#define FIELD(name) offsetof(struct values, name)

static const struct pn_option cache_options[] = {
	{ "trace", PN_OPTION_TEXT, "",
	  "a trace, CSV or binary, compressed with gzip or not; or gen: and a "
	  "workload, such as gen:httpd,requests=100000",
	  FIELD(trace), 0, 0, NULL },
	{ "policy", PN_OPTION_TEXT, "lru,fmrd,mre,cost",
	  "eviction policies, separated by commas; also offline, a heuristic "
	  "that knows the future, and none, no cache",
	  FIELD(policy), 0, 0, NULL },
	{ "budget", PN_OPTION_TEXT, "",
	  "budgets of pinned memory, sizes separated by commas (default: from "
	  "64K, doubling, to the footprint of the trace)",
	  FIELD(budget), 0, 0, NULL },
	{ "profile", PN_OPTION_TEXT, "ou2009",
	  "cost profile; `recorded`, here and above: the value of the recorded "
	  "run",
	  FIELD(profile), 0, 0, NULL },
	{ "batch", PN_OPTION_NUMBER, "0",
	  "regions deregistered at a time (0: the cache's default)",
	  FIELD(batch), 0, 65536, NULL },
	{ "max_region", PN_OPTION_BYTES, "0",
	  "longer buffers take several regions (0: the cache's default)",
	  FIELD(max_region), 0, UINT64_C(1) << 40, NULL },
	{ "cache", PN_OPTION_NUMBER, "0",
	  "which of several caches in a trace (0: the first)", FIELD(cache), 0,
	  65535, NULL },
	{ "threads", PN_OPTION_NUMBER, "0", "parallel runs (0: one per core)",
	  FIELD(threads), 0, 1024, NULL },
	PN_COMMAND_JSON(struct values, json),
};

/* State of `pinion sim cache`. */
struct study {
	struct pn_report report;
	struct pn_workload workload;
	struct pn_next_use next_use;
	struct lists lists;
	const char *trace;
	const struct pn_profile *profile;
	struct pn_profile recorded;
	uint64_t batch, max_region;
	unsigned threads;
	size_t footprint;
	struct pn_replay_job *jobs;
};

static int load(struct study *study, const char *trace, unsigned source)
{
	struct pn_why why = { "" };
	size_t prefix = strlen(GENERATED);
	int ret = pn_workload_init(&study->workload);

	if (ret)
		return pn_failed("a temporary file", ret);
	study->trace = trace;
	ret = strncmp(trace, GENERATED, prefix)
		      ? pn_workload_read(&study->workload, trace, source, &why)
		      : pn_generate(trace + prefix, &study->workload, &why);
	if (ret) {
		fprintf(stderr, "pinion: %s\n",
			why.text[0] ? why.text : strerror(-ret));
		return ret == -EINVAL ? PN_EXIT_USAGE : PN_EXIT_FAILED;
	}
	if (!study->workload.npins) {
		fprintf(stderr, "pinion: %s has no requests\n", trace);
		return PN_EXIT_FAILED;
	}
	ret = pn_workload_footprint(&study->workload, &study->footprint);
	return ret ? pn_failed("the pages of the trace", ret) : PN_EXIT_OK;
}

static void doubling_budgets(struct study *study)
{
	struct lists *lists = &study->lists;

	for (size_t b = SMALLEST; lists->nbudgets < MAX_LIST; b *= 2) {
		lists->budgets[lists->nbudgets++] = b;
		if (b >= study->footprint)
			return;
	}
}

/* Replaces the word `recorded` by the recorded value. */
static int fill_recorded(struct study *study)
{
	const struct pn_workload *workload = &study->workload;
	struct lists *lists = &study->lists;
	bool asked = study->profile == &study->recorded;

	for (unsigned i = 0; i < lists->nbudgets; i++) {
		asked |= !lists->budgets[i];
		if (!lists->budgets[i])
			lists->budgets[i] = workload->max_bytes;
	}
	for (unsigned i = 0; i < lists->npolicies; i++) {
		if (strcmp(lists->policies[i], RECORDED))
			continue;
		asked = true;
		strcpy(lists->policies[i], workload->policy);
	}
	study->recorded = (struct pn_profile){
		.name = RECORDED,
		.value = { [PN_PROFILE_REGISTER_US] = workload->register_us,
			   [PN_PROFILE_REGISTER_PAGE_US] =
				   workload->register_page_us,
			   [PN_PROFILE_DEREGISTER_US] = workload->deregister_us,
			   [PN_PROFILE_DEREGISTER_PAGE_US] =
				   workload->deregister_page_us },
	};
	if (!asked || (workload->max_bytes && is_policy(workload->policy)))
		return PN_EXIT_OK;
	return pn_usage_error("sim cache: %s has no configuration of its "
			      "cache, so no option can be `recorded`",
			      study->trace);
}

static bool wants(const struct study *study, const char *policy)
{
	for (unsigned i = 0; i < study->lists.npolicies; i++)
		if (!strcmp(study->lists.policies[i], policy))
			return true;
	return false;
}

static struct pn_replay_job *job_of(const struct study *study, unsigned budget,
				    unsigned policy)
{
	return &study->jobs[budget * study->lists.npolicies + policy];
}

static int run_jobs(struct study *study)
{
	const struct lists *lists = &study->lists;
	const struct pn_workload *workload = &study->workload;
	size_t n = (size_t)lists->nbudgets * lists->npolicies;
	int ret = 0;

	study->jobs = calloc(n, sizeof(*study->jobs));
	if (!study->jobs)
		return -ENOMEM;
	if (wants(study, "offline"))
		ret = pn_next_use_init(&study->next_use, &study->workload);
	for (unsigned b = 0; b < lists->nbudgets; b++)
		for (unsigned p = 0; p < lists->npolicies; p++)
			job_of(study, b, p)->attr = (struct pn_replay_attr){
				.policy = lists->policies[p],
				.max_bytes = lists->budgets[b],
				.max_region_bytes =
					study->max_region
						? study->max_region
						: workload->max_region_bytes,
				.batch = study->batch ? (unsigned)study->batch
						      : workload->batch,
				.profile = study->profile,
				.next_use = &study->next_use,
			};
	return ret ? ret
		   : pn_replay_jobs_run(&study->workload, study->jobs, n,
					study->threads);
}

static void study_fini(struct study *study)
{
	free(study->jobs);
	pn_next_use_fini(&study->next_use);
	pn_workload_fini(&study->workload);
}

static void print_job(struct study *study, const struct pn_replay_job *job)
{
	const struct pn_replay_result *r = &job->result;
	double requests = (double)r->requests;
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("trace", NULL, 0, study->trace),
		PN_CELL_TEXT("policy", "policy", -7, job->attr.policy),
		PN_CELL_BYTES("budget_bytes", "budget", 6, job->attr.max_bytes),
		PN_CELL_COUNT("requests", NULL, 0, r->requests),
		PN_CELL_COUNT("hits", NULL, 0, r->hits),
		PN_CELL_COUNT("misses", NULL, 0, r->misses),
		PN_CELL_COUNT("oversize", NULL, 0, r->oversize),
		PN_CELL_NUMBER("hit_ratio", "hits", 6,
			       (double)r->hits / requests),
		PN_CELL_COUNT("registrations", "registered", 10,
			      r->registrations),
		PN_CELL_BYTES("registered_bytes", "bytes", 6,
			      r->registered_bytes),
		PN_CELL_COUNT("deregistrations", NULL, 0, r->deregistrations),
		PN_CELL_COUNT("deregister_batches", "batches", 8,
			      r->deregister_batches),
		PN_CELL_NUMBER("total_us", "total us", 10, r->total_us),
		PN_CELL_BYTES("peak_bytes", "peak", 6, r->peak_bytes),
		PN_CELL_RATE("requests_per_s", "req/s", 6,
			     r->cpu_s > 0 ? requests / r->cpu_s : NAN),
	};

	pn_report_row(&study->report, row, PN_ARRAY_LEN(row));
}

static void print_jobs(struct study *study)
{
	for (unsigned b = 0; b < study->lists.nbudgets; b++)
		for (unsigned p = 0; p < study->lists.npolicies; p++)
			print_job(study, job_of(study, b, p));
}

static int study_cache(struct study *study, const struct values *values)
{
	char footprint[PN_REPORT_BYTES_LEN];
	int ret = load(study, values->trace, (unsigned)values->cache);

	if (ret)
		return ret;
	if (!study->lists.nbudgets)
		doubling_budgets(study);
	ret = fill_recorded(study);
	if (ret)
		return ret;
	pn_report_head(&study->report, "what would other policies and budgets "
				       "have done?");
	pn_report_note(&study->report,
		       "%s: %zu requests for %s; requests per second of one "
		       "core's time",
		       values->trace, study->workload.npins,
		       pn_report_bytes(study->footprint, footprint));
	ret = run_jobs(study);
	if (ret)
		return pn_failed("replaying", ret);
	print_jobs(study);
	return PN_EXIT_OK;
}

static const struct pn_profile *profile_called(const char *name)
{
	const struct pn_profile *profile = pn_profile_find(name);

	if (!profile)
		pn_usage_error("sim: no cost profile is called '%s'; `pinion "
			       "info` lists them",
			       name);
	return profile;
}

static int run_cache(const void *v, char *const *operands)
{
	const struct values *values = v;
	struct study study = { .report = { .json = values->json,
					   .bench = "sim cache",
					   .device = "replay",
					   .emulated = true },
			       .workload = { .fd = -1 },
			       .batch = values->batch,
			       .max_region = values->max_region,
			       .threads = (unsigned)values->threads };
	int ret;

	(void)operands;
	if (!values->trace[0])
		return pn_usage_error("sim cache: name a trace: --trace FILE "
				      "or --trace gen:httpd");
	if (add_policies(values->policy, &study.lists))
		return pn_usage_error("sim cache: --policy takes lru, fmrd, "
				      "mre, greedy, keep, cost, offline, none "
				      "and recorded, separated by commas");
	if (values->budget[0] && add_budgets(values->budget, &study.lists))
		return pn_usage_error("sim cache: --budget takes sizes from 4K "
				      "on, separated by commas, such as 1M,4M");
	study.profile = strcmp(values->profile, RECORDED)
				? profile_called(values->profile)
				: &study.recorded;
	if (!study.profile)
		return PN_EXIT_USAGE;
	study.report.profile = values->profile;
	ret = study_cache(&study, values);
	study_fini(&study);
	return ret;
}

static const struct pn_command sim_cache = {
	.name = "cache",
	.help = "replay a trace under every policy and budget",
	.about = "The requests go through the library's own cache over a "
		 "device that only counts. Total time is the cost of "
		 "registering and deregistering with the profile.",
	.options = cache_options,
	.noptions = PN_ARRAY_LEN(cache_options),
	.values_bytes = sizeof(struct values),
	.run = run_cache,
};

/* --- pinion sim generate
 * ------------------------------------------------------- */

struct generate_values {
	char output[PN_OPTION_TEXT_BYTES];
};

static const struct pn_option generate_options[] = {
	{ "output", PN_OPTION_TEXT, "", "the file (default: standard output)",
	  offsetof(struct generate_values, output), 0, 0, NULL },
};

/* One request per microsecond: generated requests have no times. */
static int write_workload(const struct pn_workload *workload, FILE *file)
{
	fputs("t_us,addr,len\n", file);
	for (size_t i = 0; i < workload->nsteps; i++)
		fprintf(file, "%zu,%#llx,%llu\n", i,
			(unsigned long long)workload->steps[i].addr,
			(unsigned long long)workload->steps[i].len);
	return fflush(file) || ferror(file) ? -errno : 0;
}

static int write_file(const struct pn_workload *workload, const char *path)
{
	FILE *file = path[0] ? fopen(path, "we") : stdout;
	int ret = file ? write_workload(workload, file) : -errno;

	if (file && file != stdout && fclose(file) && !ret)
		ret = -errno;
	return ret ? pn_failed(path[0] ? path : "standard output", ret)
		   : PN_EXIT_OK;
}

static void list_kinds(void)
{
	const char *help, *name;

	for (unsigned i = 0; (name = pn_generate_kind(i, &help)); i++)
		printf("%-8s %s\n", name, help);
}

static int run_generate(const void *v, char *const *operands)
{
	const struct generate_values *values = v;
	struct pn_workload workload;
	struct pn_why why = { "" };
	int ret;

	if (!operands[0]) {
		list_kinds();
		return PN_EXIT_OK;
	}
	if (operands[1])
		return pn_usage_error("sim generate: one workload at a time; "
				      "options follow its name after a comma");
	ret = pn_workload_init(&workload);
	if (ret)
		return pn_failed("a temporary file", ret);
	ret = pn_generate(operands[0], &workload, &why);
	if (ret == -EINVAL)
		ret = pn_usage_error("sim generate: %s", why.text);
	else
		ret = ret ? pn_failed(operands[0], ret)
			  : write_file(&workload, values->output);
	pn_workload_fini(&workload);
	return ret;
}

static const struct pn_command sim_generate = {
	.name = "generate",
	.help = "write the trace of a generated workload; without a name, list "
		"the workloads",
	.about =
		"A workload is a name and options: httpd,requests=1000,seed=2. "
		"Options are requests, objects, pages, skew, phases and seed; "
		"pinion(1) describes the shapes.",
	.options = generate_options,
	.noptions = PN_ARRAY_LEN(generate_options),
	.values_bytes = sizeof(struct generate_values),
	.operands = "[WORKLOAD]",
	.run = run_generate,
};

/* --- pinion sim paper
 * ----------------------------------------------------------- */

struct paper_values {
	char profile[PN_OPTION_TEXT_BYTES];
	bool json;
};

static const struct pn_option paper_options[] = {
	{ "profile", PN_OPTION_TEXT, "ou2009",
	  "cost profile of the total times (pinion info --profiles)",
	  offsetof(struct paper_values, profile), 0, 0, NULL },
	PN_COMMAND_JSON(struct paper_values, json),
};

enum { LRU, FMRD, MRE, COST, NONE };

static double ratio(const struct pn_replay_job *job)
{
	return (double)job->result.hits / (double)job->result.requests;
}

/* By how many per cent less than `than`. */
static double less(double value, double than)
{
	return 100 * (1 - value / than);
}

static void print_paper(struct study *study, unsigned b)
{
	const struct pn_replay_job *lru = job_of(study, b, LRU);
	const struct pn_replay_job *fmrd = job_of(study, b, FMRD);
	const struct pn_replay_job *mre = job_of(study, b, MRE);
	const struct pn_replay_job *cost = job_of(study, b, COST);
	const double none = job_of(study, b, NONE)->result.total_us;
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("trace", NULL, 0, study->trace),
		PN_CELL_BYTES("budget_bytes", "cache", 6, lru->attr.max_bytes),
		PN_CELL_NUMBER("lru_hit_ratio", "lru", 6, ratio(lru)),
		PN_CELL_NUMBER("mre_hit_ratio", "mre", 6, ratio(mre)),
		PN_CELL_NUMBER("cost_hit_ratio", "cost", 6, ratio(cost)),
		PN_CELL_NUMBER("mre_more_hits_percent", "mre +%", 7,
			       -less(ratio(mre), ratio(lru))),
		PN_CELL_NUMBER("fmrd_saves_percent", "fmrd -%", 7,
			       less(fmrd->result.total_us,
				    lru->result.total_us)),
		PN_CELL_NUMBER("mre_saves_percent", "mre -%", 7,
			       less(mre->result.total_us,
				    lru->result.total_us)),
		PN_CELL_NUMBER("cost_saves_percent", "cost -%", 7,
			       less(cost->result.total_us,
				    lru->result.total_us)),
		PN_CELL_NUMBER("mre_saves_of_none_percent", "none -%", 7,
			       less(mre->result.total_us, none)),
		PN_CELL_NUMBER("lru_total_us", NULL, 0, lru->result.total_us),
		PN_CELL_NUMBER("mre_total_us", NULL, 0, mre->result.total_us),
		PN_CELL_NUMBER("cost_total_us", NULL, 0, cost->result.total_us),
		PN_CELL_NUMBER("none_total_us", NULL, 0, none),
	};

	pn_report_row(&study->report, row, PN_ARRAY_LEN(row));
}

static int paper_trace(struct pn_report *report, const char *trace,
		       const char *says)
{
	struct study study = { .report = *report,
			       .workload = { .fd = -1 },
			       .profile = pn_profile_find(report->profile),
			       .batch = 16 };
	int ret = load(&study, trace, 0);

	if (!ret) {
		add_policies("lru,fmrd,mre,cost,none", &study.lists);
		add_budgets("2M,4M,8M,16M,32M,64M,128M,256M", &study.lists);
		pn_report_series(&study.report);
		pn_report_note(&study.report, "%s: the paper has %s", trace,
			       says);
		ret = run_jobs(&study);
		if (ret)
			ret = pn_failed("replaying", ret);
		for (unsigned b = 0; !ret && b < study.lists.nbudgets; b++)
			print_paper(&study, b);
	}
	*report = study.report;
	study_fini(&study);
	return ret;
}

static int run_paper(const void *v, char *const *operands)
{
	const struct paper_values *values = v;
	struct pn_report report = { .json = values->json,
				    .bench = "sim paper",
				    .device = "replay",
				    .profile = values->profile,
				    .emulated = true };
	int ret;

	(void)operands;
	if (!pn_profile_find(values->profile))
		return pn_usage_error("sim paper: no cost profile is called "
				      "'%s'; `pinion info --profiles` lists "
				      "them",
				      values->profile);
	pn_report_head(&report, "figures 10 to 12 of Ou and others 2009");
	pn_report_note(&report, "hit ratios; +%%: more hits than lru; -%%: "
				"less total time than lru; none -%%: less "
				"total time of mre than without cache");
	ret = paper_trace(&report, "gen:httpd",
			  "MRE about 10 % above LRU in hits, lower in cost");
	return ret ? ret
		   : paper_trace(&report, "gen:cello92",
				 "MRE about equal to LRU in hits, up to 10 % "
				 "lower in cost; up to 70 % against no cache");
}

static const struct pn_command sim_paper = {
	.name = "paper",
	.help = "figures 10 to 12 of Ou and others 2009, compared with its "
		"text",
	.options = paper_options,
	.noptions = PN_ARRAY_LEN(paper_options),
	.values_bytes = sizeof(struct paper_values),
	.run = run_paper,
};

/* --- pinion sim
 * ------------------------------------------------------------------ */

static const struct pn_command *const sims[] = {
	&sim_cache, &pn_sim_cluster, &sim_generate, &sim_paper, NULL,
};

const struct pn_command pn_cmd_sim = {
	.name = "sim",
	.help = "replay traces under other policies and budgets",
	.subs = sims,
};
