/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: how fast are the device's put and get, beside what the system
 * offers for the same job?
 *
 * Between two processes: put and get of the device, process_vm_writev into the
 * same memory of the same process, and memcpy within one process as the bound.
 * All work on the same registered, present, warm buffers. latency_us is one
 * operation from post to completion; bytes_per_s is a stream of them, as many
 * in flight as the device takes. The operations take turns, round by round, so
 * that each round sees the same noise; rows give medians over the rounds, and
 * ratio_to_process_vm_writev the median of the rounds' own ratios.
 *
 * In virtual time (`sim`) only the device's own operations mean something;
 * memcpy is pn_copy(), charged by the profile.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "bench/bench.h"
#include "device/measure.h"

#define MAX_ROUNDS  101
#define SINGLES	    5 /* latency samples per round */
#define BATCH_BYTES ((size_t)1 << 20)
#define MAX_BATCH   64u
#define DEPTH	    16u

struct values {
	char device[PN_OPTION_TEXT_BYTES];
	char op[PN_OPTION_TEXT_BYTES];
	uint64_t min, max, budget;
	bool json;
};

#define FIELD(name) offsetof(struct values, name)

static const struct pn_option options[] = {
	PN_COMMAND_DEVICE(struct values, device),
	{ "op", PN_OPTION_TEXT, "put,get,process_vm_writev,memcpy",
	  "operations to measure, joined by commas", FIELD(op), 0, 0, NULL },
	{ "min", PN_OPTION_BYTES, "8", "smallest size", FIELD(min), 1, 0,
	  NULL },
	{ "max", PN_OPTION_BYTES, "64M", "largest size", FIELD(max), 1,
	  UINT64_C(1) << 40, NULL },
	PN_BENCH_BUDGET(struct values, budget, "20s"),
	PN_COMMAND_JSON(struct values, json),
};

struct ends {
	struct pn_bench_run *run;
	struct pn_pair *pair;
	struct pn_mr local; /* source of puts, destination of gets */
	char *copy;	    /* memcpy's destination */
};

/* --- the operations: `times` times `bytes` -------------------------------- */

static int move(struct ends *ends, enum pn_op_kind kind, size_t bytes,
		unsigned times)
{
	struct pn_step_move m = { .kind = kind,
				  .peer = ends->pair->peer,
				  .local = ends->local.addr,
				  .lkey = ends->local.lkey,
				  .remote_addr = ends->pair->remote_addr,
				  .rkey = ends->pair->rkey,
				  .len = bytes,
				  .times = times };
	unsigned depth = ends->pair->device->limits.queue_depth;

	m.depth = depth < DEPTH ? depth : DEPTH;
	return pn_step_move(ends->pair->device, &m);
}

static int put(struct ends *ends, size_t bytes, unsigned times)
{
	return move(ends, PN_OP_WRITE, bytes, times);
}

static int get(struct ends *ends, size_t bytes, unsigned times)
{
	return move(ends, PN_OP_READ, bytes, times);
}

static int vm_writev(struct ends *ends, size_t bytes, unsigned times)
{
	char *remote = (char *)(uintptr_t)ends->pair->remote_addr;

	for (unsigned i = 0; i < times; i++) {
		for (size_t done = 0; done < bytes;) {
			struct iovec from = { (char *)ends->local.addr + done,
					      bytes - done };
			struct iovec to = { remote + done, bytes - done };
			ssize_t n = process_vm_writev(ends->pair->pid, &from, 1,
						      &to, 1, 0);

			if (n < 0)
				return -errno;
			done += (size_t)n;
		}
	}
	return 0;
}

static int copy(struct ends *ends, size_t bytes, unsigned times)
{
	for (unsigned i = 0; i < times; i++)
		pn_copy(ends->pair->device, ends->copy, ends->local.addr,
			bytes);
	return 0;
}

struct op {
	const char *name;
	int (*fn)(struct ends *ends, size_t bytes, unsigned times);
	bool real_time; /* has no meaning in virtual time */
};

enum { VM_WRITEV = 2, NOPS = 4 };

static const struct op ops[NOPS] = {
	{ "put", put, false },
	{ "get", get, false },
	[VM_WRITEV] = { "process_vm_writev", vm_writev, true },
	{ "memcpy", copy, false },
};

/* The set of operations that a list names; 0 when one is unknown. */
static unsigned parse_ops(const char *list)
{
	unsigned set = 0;

	while (*list) {
		size_t len = strcspn(list, ",");
		unsigned i;

		for (i = 0; i < NOPS; i++)
			if (strlen(ops[i].name) == len &&
			    !strncmp(list, ops[i].name, len))
				break;
		if (i == NOPS)
			return 0;
		set |= 1u << i;
		list += len;
		list += *list == ',';
	}
	return set;
}

/* --- one size ------------------------------------------------------------- */

struct samples {
	double latency[MAX_ROUNDS * SINGLES]; /* us */
	double rate[MAX_ROUNDS];	      /* bytes per second */
};

struct state {
	struct ends ends;
	unsigned set; /* bit per operation */
	uint64_t size_ns;
	struct samples samples[NOPS];
};

static int sample(struct state *state, unsigned op, size_t bytes, size_t round)
{
	struct pn_device *device = state->ends.pair->device;
	struct samples *s = &state->samples[op];
	size_t fit = BATCH_BYTES / bytes;
	unsigned times = fit < 1 ? 1 : fit > MAX_BATCH ? MAX_BATCH : fit;
	uint64_t start;
	int ret;

	for (int i = 0; i < SINGLES; i++) {
		start = pn_device_now(device);
		ret = ops[op].fn(&state->ends, bytes, 1);
		if (ret)
			return ret;
		s->latency[round * SINGLES + i] = pn_since_us(device, start);
	}
	start = pn_device_now(device);
	ret = ops[op].fn(&state->ends, bytes, times);
	s->rate[round] =
		1e6 * (double)bytes * times / pn_since_us(device, start);
	return ret;
}

/* Every operation once; whoever begins changes from round to round. */
static int play_round(struct state *state, size_t bytes, size_t round)
{
	int ret = 0;

	for (unsigned i = 0; !ret && i < NOPS; i++) {
		unsigned op = (i + (unsigned)round) % NOPS;

		if (state->set >> op & 1)
			ret = sample(state, op, bytes, round);
		if (ret)
			pn_failed(ops[op].name, ret);
	}
	return ret;
}

/* Before medians reorder the rates. */
static double median_ratio(struct state *state, unsigned op, size_t rounds)
{
	double ratios[MAX_ROUNDS];

	if (!(state->set >> VM_WRITEV & 1))
		return NAN;
	for (size_t i = 0; i < rounds; i++)
		ratios[i] = state->samples[op].rate[i] /
			    state->samples[VM_WRITEV].rate[i];
	return pn_median(ratios, rounds);
}

static void print_size(struct state *state, size_t bytes, size_t rounds)
{
	static const struct pn_report_column columns[] = {
		{ "op", "op", PN_REPORT_TEXT, -18 },
		{ "bytes", "bytes", PN_REPORT_BYTES, 7 },
		{ "latency_us", "latency us", PN_REPORT_NUMBER, 11 },
		{ "bytes_per_s", "bytes/s", PN_REPORT_RATE, 9 },
		{ "ratio_to_process_vm_writev", "of vm_writev",
		  PN_REPORT_NUMBER, 12 },
		{ "rounds", "rounds", PN_REPORT_COUNT, 7 },
	};
	double ratios[NOPS];

	for (unsigned op = 0; op < NOPS; op++)
		ratios[op] = median_ratio(state, op, rounds);
	for (unsigned op = 0; op < NOPS; op++) {
		struct samples *s = &state->samples[op];
		union pn_report_value row[] = {
			{ .text = ops[op].name },
			{ .count = bytes },
			{ .number = pn_median(s->latency, rounds * SINGLES) },
			{ .number = pn_median(s->rate, rounds) },
			{ .number = ratios[op] },
			{ .count = rounds },
		};

		if (state->set >> op & 1)
			pn_report_row(&state->ends.run->report, columns,
				      PN_ARRAY_LEN(columns), row);
	}
}

static int measure_size(struct state *state, size_t bytes)
{
	char text[PN_REPORT_BYTES_LEN];
	struct pn_point limit;
	size_t n;
	int ret;

	pn_report_progress(pn_report_bytes(bytes, text));
	ret = play_round(state, bytes, 0); /* warms; overwritten */
	limit = pn_point_begin(3, MAX_ROUNDS, state->size_ns);
	for (n = 0; !ret && pn_point_go_on(&limit, n); n++)
		ret = play_round(state, bytes, n);
	if (!ret)
		print_size(state, bytes, n);
	return ret;
}

/* --- all sizes ------------------------------------------------------------ */

static int measure_sizes(struct state *state, const struct values *values)
{
	size_t max = values->max;
	int ret = 0;

	if (max > state->ends.pair->bytes)
		max = state->ends.pair->bytes;
	if (max > state->ends.local.len)
		max = state->ends.local.len;
	state->size_ns =
		values->budget / (pn_bench_nsizes(values->min, max, 2) + 1);
	for (size_t bytes = values->min; !ret && bytes <= max; bytes *= 2)
		ret = measure_size(state, bytes);
	return ret;
}

static int with_copy(struct state *state, const struct values *values)
{
	const struct pn_pages_policy policy = { .huge = PN_PAGES_NORMAL,
						.numa_node = -1,
						.populate = true };
	size_t len = state->ends.local.len;
	void *memory;
	int ret = pn_pages_map(len, &policy, &memory);

	if (ret)
		return ret;
	state->ends.copy = memory;
	pn_pattern_fill(state->ends.local.addr, len, 1);
	ret = measure_sizes(state, values);
	pn_pages_unmap(memory, len, &policy);
	return ret;
}

/* Leaves out what cannot be done here. */
static void choose_ops(struct state *state, const char *list)
{
	struct pn_bench_run *run = state->ends.run;

	state->set = parse_ops(list);
	for (unsigned op = 0; run->virtual_time && op < NOPS; op++)
		if (ops[op].real_time)
			state->set &= ~(1u << op);
	if (state->set >> VM_WRITEV & 1 && vm_writev(&state->ends, 1, 1)) {
		pn_report_note(&run->report,
			       "process_vm_writev is not permitted here: %s",
			       strerror(errno));
		state->set &= ~(1u << VM_WRITEV);
	}
}

static int body(struct pn_bench_run *run)
{
	const struct values *values = run->arg;
	struct state *state = calloc(1, sizeof(*state));
	int ret;

	if (!state)
		return -ENOMEM;
	state->ends.run = run;
	state->ends.pair = run->pair;
	ret = pn_pair_map(run->device, values->max, PINION_ACCESS_LOCAL_WRITE,
			  &state->ends.local);
	if (!ret) {
		choose_ops(state, values->op);
		ret = with_copy(state, values);
		pn_pair_unmap(run->device, &state->ends.local);
	}
	free(state);
	return ret;
}

static int run_raw(const void *v, char *const *operands)
{
	struct values values = *(const struct values *)v;
	struct pn_bench bench = {
		.name = "raw",
		.question = "how fast are put and get between two processes?",
		.device = values.device,
		.bytes = values.max,
		.json = values.json,
	};

	(void)operands;
	if (values.min > values.max)
		return pn_usage_error("--min is above --max");
	if (!parse_ops(values.op))
		return pn_usage_error("--op takes put, get, process_vm_writev "
				      "and memcpy, joined by commas");
	return pn_bench_go(&bench, body, &values);
}

const struct pn_command pn_bench_raw = {
	.name = "raw",
	.help = "how fast are put and get between two processes?",
	.about = "Latency and bandwidth of the device's put and get beside "
		 "process_vm_writev and memcpy, in turns within one run.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_raw,
};
