/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: how does pinion on an RDMA adapter compare with the adapter's own
 * tools and with other libraries, on the same adapter in the same run?
 *
 * A point is an operation of `pinion bench ops` (latency of messages, puts,
 * gets and fetch-adds; streams of messages and puts), a size and a number of
 * peers. Each round runs `bench ops` and the tools that measure the same
 * (peer_tools.h) in turns, each in new processes; with several peers pinion
 * alone, since the tools have one. Rows give medians over the rounds. The ratio
 * in a tool's row is the median of the rounds' ratios of pinion's figure to the
 * tool's: of latencies (below 1 pinion is faster; pinion's mean if the tool
 * prints a mean, else its median), or of operations a second (above 1 pinion is
 * faster).
 *
 * A table of its own (around.h) has a program that registers around each
 * transfer: alone, under pinion, and by the caches of UCX and libfabric.
 *
 * Only for `verbs`. On emulated machines only the ratios mean something.
 */
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/around.h"
#include "bench/bench.h"
#include "bench/peer_tools.h"
#include "tools/pinion/paths.h"

#define MAX_ROUNDS  31
#define MAX_NUMBERS 16 /* of a list */
#define MAX_TOOLS   16

/* A stream moves no more than this, but at least 16 operations. */
#define MAX_VOLUME (UINT64_C(32) << 20)
#define MIN_TIMES  16

struct values {
	char device[PN_OPTION_TEXT_BYTES], ops[PN_OPTION_TEXT_BYTES];
	char bytes[PN_OPTION_TEXT_BYTES], peers[PN_OPTION_TEXT_BYTES];
	uint64_t rounds, times;
	bool json;
};

static const struct pn_option options[] = {
	PN_COMMAND_DEVICE(struct values, device),
	{ "ops", PN_OPTION_TEXT, "all",
	  "operations, separated by commas: message_lat, put_lat, get_lat, "
	  "add_lat, message_bw, put_bw, around; or all",
	  offsetof(struct values, ops), 0, 0, NULL },
	{ "bytes", PN_OPTION_TEXT, "",
	  "sizes, separated by commas (default: 8,512,4K,64K for latencies, "
	  "8,4K,64K,1M,4M for streams)",
	  offsetof(struct values, bytes), 0, 0, NULL },
	{ "peers", PN_OPTION_TEXT, "1,8",
	  "numbers of peers, separated by commas; with several, only streams",
	  offsetof(struct values, peers), 0, 0, NULL },
	{ "rounds", PN_OPTION_NUMBER, "5", "number of rounds",
	  offsetof(struct values, rounds), 1, MAX_ROUNDS, NULL },
	{ "times", PN_OPTION_NUMBER, "800", "operations of a measurement",
	  offsetof(struct values, times), 1, 1 << 20, NULL },
	PN_COMMAND_JSON(struct values, json),
};

static const struct operation {
	const char *name;
	bool is_stream;
	const char *bytes;
} operations[] = {
	{ "message_lat", false, "8,512,4K,64K" },
	{ "put_lat", false, "8,512,4K,64K" },
	{ "get_lat", false, "8,512,4K,64K" },
	{ "add_lat", false, "8" },
	{ "message_bw", true, "8,4K,64K,1M,4M" },
	{ "put_bw", true, "8,4K,64K,1M,4M" },
};

/* One operation, size and number of peers. */
struct point {
	const struct operation *op;
	size_t bytes;
	unsigned peers;
	uint64_t times;
};

/* What `bench ops` says of a point: latencies in us, else operations a second.
 */
struct own {
	double median, mean, rate;
};

struct series {
	const struct pn_peer_tool *tool;
	double figures[MAX_ROUNDS], ratios[MAX_ROUNDS];
	size_t n;
};

struct state {
	const struct values *values;
	struct pn_spec spec;
	struct pn_report report;
	struct pn_adapter adapter;
	struct series series[MAX_TOOLS]; /* of a point */
	size_t nseries;
	double own[MAX_ROUNDS]; /* median or rate */
};

/* --- one point ------------------------------------------------------------ */

static double number_of(const json_t *row, const char *name)
{
	const json_t *value = json_object_get(row, name);

	return json_is_number(value) ? json_number_value(value) : NAN;
}

/* -EIO: the command said why on standard error. */
static int measure_own(const struct state *s, const struct point *p,
		       struct own *own)
{
	char self[PN_PATH_BYTES], command[2 * PN_PATH_BYTES];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	json_t *row = NULL;
	FILE *file;

	self[n < 0 ? 0 : n] = 0;
	snprintf(command, sizeof(command),
		 "timeout 100 '%s' bench ops --json --device '%s' --op %s "
		 "--bytes %zu --times %llu --peers %u",
		 self, s->spec.text, p->op->name, p->bytes,
		 (unsigned long long)p->times, p->peers);
	file = popen(command, "re");
	if (file) {
		row = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL);
		pclose(file);
	}
	*own = (struct own){ number_of(row, "latency_us"),
			     number_of(row, "mean_us"),
			     number_of(row, "ops_per_s") };
	json_decref(row);
	return isnan(p->op->is_stream ? own->rate : own->median) ? -EIO : 0;
}

static void measure_tool(const struct state *s, const struct point *p,
			 const struct own *own, struct series *series)
{
	double theirs =
		pn_peer_tool_run(series->tool, &s->adapter, p->bytes, p->times);
	double ours = p->op->is_stream	   ? own->rate
		      : series->tool->mean ? own->mean
					   : own->median;

	if (isnan(theirs))
		return;
	series->figures[series->n] = theirs;
	series->ratios[series->n++] = ours / theirs;
}

static int measure_round(struct state *s, const struct point *p, size_t round)
{
	struct own own;
	int ret = measure_own(s, p, &own);

	if (ret)
		return ret;
	s->own[round] = p->op->is_stream ? own.rate : own.median;
	for (size_t i = 0; i < s->nseries; i++)
		measure_tool(s, p, &own, &s->series[i]);
	return 0;
}

static void print_row(struct state *s, const struct point *p, const char *tool,
		      double figure, double ratio)
{
	bool is_stream = p->op->is_stream;
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("op", "op", -12, p->op->name),
		PN_CELL_BYTES("bytes", "bytes", 7, p->bytes),
		PN_CELL_COUNT("peers", "peers", 6, p->peers),
		PN_CELL_TEXT("tool", "tool", -10, tool),
		PN_CELL_NUMBER("latency_us", "latency us", 11,
			       is_stream ? NAN : figure),
		PN_CELL_NUMBER("ops_per_s", "ops/s", 9,
			       is_stream ? figure : NAN),
		PN_CELL_RATE("bytes_per_s", "bytes/s", 9,
			     is_stream ? figure * (double)p->bytes : NAN),
		PN_CELL_NUMBER("ratio", "pinion/tool", 12, ratio),
	};

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

/* The tools that measure this operation. */
static void choose_tools(struct state *s, const struct point *p)
{
	s->nseries = 0;
	for (size_t i = 0; i < pn_npeer_tools && p->peers == 1; i++)
		if (!strcmp(pn_peer_tools[i].op, p->op->name) &&
		    pn_peer_tool_installed(&pn_peer_tools[i]))
			s->series[s->nseries++] =
				(struct series){ .tool = &pn_peer_tools[i] };
}

static int run_point(struct state *s, const struct point *p)
{
	int ret = 0;

	choose_tools(s, p);
	for (size_t r = 0; !ret && r < s->values->rounds; r++) {
		char what[128];

		snprintf(what, sizeof(what), "%s, %zu bytes, round %zu of %llu",
			 p->op->name, p->bytes, r + 1,
			 (unsigned long long)s->values->rounds);
		pn_report_progress(what);
		ret = measure_round(s, p, r);
	}
	pn_report_progress(NULL);
	if (ret)
		return ret;
	print_row(s, p, "pinion", pn_median(s->own, s->values->rounds), NAN);
	for (size_t i = 0; i < s->nseries; i++) {
		struct series *series = &s->series[i];

		if (series->n)
			print_row(s, p, series->tool->name,
				  pn_median(series->figures, series->n),
				  pn_median(series->ratios, series->n));
		else
			pn_report_note(&s->report, "%s printed no figure",
				       series->tool->program);
	}
	return 0;
}

/* --- lists ---------------------------------------------------------------- */

/* "all" is each operation and "around". */
static bool lists(const char *list, const char *name)
{
	return pn_words_have(list, name) || pn_words_have(list, "all");
}

static int parse_list(enum pn_option_type type, const char *list,
		      uint64_t numbers[MAX_NUMBERS], size_t *n)
{
	bool is_bytes = type == PN_OPTION_BYTES;
	const struct pn_option option = { .type = type,
					  .min = is_bytes ? 8 : 1,
					  .max = is_bytes ? 1 << 26 : 16 };

	return pn_words_numbers(list, &option, numbers, MAX_NUMBERS, n);
}

static uint64_t times_of(const struct values *v, const struct point *p)
{
	uint64_t most = MAX_VOLUME / p->bytes;

	if (!p->op->is_stream || most > v->times)
		return v->times;
	return most < MIN_TIMES ? MIN_TIMES : most;
}

static int run_operation(struct state *s, const struct operation *op)
{
	const struct values *v = s->values;
	uint64_t sizes[MAX_NUMBERS], peers[MAX_NUMBERS];
	size_t nsizes, npeers;
	int ret = parse_list(PN_OPTION_BYTES, *v->bytes ? v->bytes : op->bytes,
			     sizes, &nsizes);

	if (!ret)
		ret = parse_list(PN_OPTION_NUMBER, v->peers, peers, &npeers);
	for (size_t k = 0; !ret && k < npeers; k++)
		for (size_t i = 0; !ret && i < nsizes; i++) {
			struct point p = { op, sizes[i], (unsigned)peers[k],
					   0 };

			p.times = times_of(v, &p);
			if (p.peers == 1 || op->is_stream)
				ret = run_point(s, &p);
		}
	return ret;
}

/* -1: there is no such operation. */
static int op_number(const char *word)
{
	int n = (int)PN_ARRAY_LEN(operations);

	for (int i = 0; i < n; i++)
		if (!strcmp(word, operations[i].name))
			return i;
	return !strcmp(word, "around") || !strcmp(word, "all") ? n : -1;
}

/* --- all of it ------------------------------------------------------------ */

static int find_adapter(struct state *s)
{
	struct pn_device *device;
	int ret = pn_device_open(s->spec.text, NULL, &device);

	if (ret)
		return ret;
	pn_adapter_of(device, &s->adapter);
	pn_report_device(&s->report, device);
	pn_report_head(&s->report, pn_bench_peers.help);
	pn_device_close(device);
	return 0;
}

static int run_all(struct state *s)
{
	const struct values *v = s->values;
	int ret = find_adapter(s);

	for (size_t i = 0; !ret && i < PN_ARRAY_LEN(operations); i++)
		if (lists(v->ops, operations[i].name))
			ret = run_operation(s, &operations[i]);
	if (!ret && lists(v->ops, "around"))
		pn_around_report(&s->report, &(struct pn_around){
						     .adapter = s->adapter.name,
						     .port = s->adapter.port,
						     .gid = s->adapter.gid,
						     .rounds = v->rounds,
						     .writes = v->times });
	return ret;
}

/* NULL: the values can be run. */
static const char *wrong_with(const struct values *v,
			      const struct pn_spec *spec)
{
	uint64_t numbers[MAX_NUMBERS];
	size_t n;

	if (strncmp(spec->text, "verbs", 5))
		return "name an adapter with --device verbs:NAME";
	if (!pn_words_set(v->ops, op_number))
		return "--ops: no such operation; `pinion help bench peers` "
		       "lists them";
	if (*v->bytes && parse_list(PN_OPTION_BYTES, v->bytes, numbers, &n))
		return "--bytes: up to 16 sizes from 8 to 64M, separated by "
		       "commas";
	if (parse_list(PN_OPTION_NUMBER, v->peers, numbers, &n))
		return "--peers: numbers from 1 to 16, separated by commas";
	return NULL;
}

static int run(const void *values, char *const *operands)
{
	struct state *s = calloc(1, sizeof(*s));
	int ret;

	(void)operands;
	if (!s)
		return pn_failed("bench peers", -ENOMEM);
	s->values = values;
	ret = pn_spec_find(&s->spec, s->values->device);
	if (ret || wrong_with(s->values, &s->spec)) {
		if (!ret)
			pn_usage_error("bench peers: %s",
				       wrong_with(s->values, &s->spec));
		free(s);
		return PN_EXIT_USAGE;
	}
	s->report = (struct pn_report){ .json = s->values->json,
					.bench = "peers",
					.device = s->spec.text };
	signal(SIGPIPE, SIG_IGN);
	ret = run_all(s);
	free(s);
	return ret ? pn_spec_exit("bench peers", ret) : PN_EXIT_OK;
}

const struct pn_command pn_bench_peers = {
	.name = "peers",
	.help = "how does pinion on an RDMA adapter compare with the adapter's "
		"own tools?",
	.about =
		"Compares operations of the public calls on a verbs device "
		"with ucx_perftest, perftest and fi_pingpong, where installed, "
		"alternately on the same adapter: latencies, message rates and "
		"streams. These tools never sleep; the parameter spin= of the "
		"device sets how long pinion polls before it sleeps.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
