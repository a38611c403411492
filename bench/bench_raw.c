/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: how fast are put and get of the device, compared with what the
 * system offers for the same job?
 *
 * Between two processes: put and get of the device, process_vm_writev into the
 * same memory of the same process, and memcpy within one process as the bound.
 * All use the same registered, present, warm buffers. latency_us is one
 * operation from post to completion; bytes_per_s is a stream of operations, as
 * many in flight as the device accepts. The operations are measured
 * alternately, round by round, so that each round has the same noise; rows give
 * medians over the rounds, and ratio_to_process_vm_writev the median of the
 * rounds' ratios.
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

#define MAX_ROUNDS  101
#define SINGLES	    5 /* latency samples per round, at most */
#define BATCH_BYTES ((size_t)4 << 20)
#define MAX_BATCH   256u
#define DEPTH	    16u

struct values {
	struct pn_bench_values common;
	char op[PN_OPTION_TEXT_BYTES];
};

static const struct pn_option options[] = {
	PN_BENCH_OPTIONS("8", "64M", "20s"),
	{ "op", PN_OPTION_TEXT, "put,get,process_vm_writev,memcpy",
	  "operations to measure, separated by commas",
	  offsetof(struct values, op), 0, 0, NULL },
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
	unsigned depth = ends->pair->device->limits.queue_depth;
	struct pn_blocking_transfer m =
		pn_pair_move(ends->pair, kind, &ends->local);

	m.len = bytes;
	m.times = times;
	m.depth = depth < DEPTH ? depth : DEPTH;
	return pn_blocking_transfer(ends->pair->device, &m);
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
	bool real_time; /* meaningless in virtual time */
};

enum { VM_WRITEV = 2, NOPS = 4 };

static const struct op ops[NOPS] = {
	{ "put", put, false },
	{ "get", get, false },
	[VM_WRITEV] = { "process_vm_writev", vm_writev, true },
	{ "memcpy", copy, false },
};

/* -1: there is no such operation. */
static int op_number(const char *word)
{
	for (int i = 0; i < NOPS; i++)
		if (!strcmp(word, ops[i].name))
			return i;
	return -1;
}

/* --- one size ------------------------------------------------------------- */

struct samples {
	double latency[MAX_ROUNDS * SINGLES]; /* ns */
	double rate[MAX_ROUNDS];	      /* bytes per second */
	double ratio;			      /* median over rounds */
};

struct state {
	struct ends ends;
	unsigned set; /* one bit per operation */
	struct samples samples[NOPS];
};

/* Number of operations of a batch. */
static unsigned fit(size_t bytes, unsigned most)
{
	size_t n = BATCH_BYTES / bytes;

	return n < 1 ? 1 : n > most ? most : (unsigned)n;
}

static int sample(struct state *state, unsigned op, size_t bytes, size_t round)
{
	struct pn_device *device = state->ends.pair->device;
	struct samples *s = &state->samples[op];
	unsigned singles = fit(bytes, SINGLES), times = fit(bytes, MAX_BATCH);
	uint64_t start;
	int ret;

	for (unsigned i = 0; i < singles; i++) {
		start = pn_device_now(device);
		ret = ops[op].fn(&state->ends, bytes, 1);
		if (ret)
			return ret;
		s->latency[round * singles + i] =
			pn_device_since(device, start);
	}
	start = pn_device_now(device);
	ret = ops[op].fn(&state->ends, bytes, times);
	s->rate[round] =
		1e9 * (double)bytes * times / pn_device_since(device, start);
	return ret;
}

/* Measures every operation once; the order changes from round to round. */
static int run_round(struct state *state, size_t bytes, size_t round)
{
	int ret = 0;

	for (unsigned i = 0; !ret && i < NOPS; i++) {
		unsigned op = (i + (unsigned)round) % NOPS;

		if (state->set >> op & 1)
			ret = sample(state, op, bytes, round);
		if (ret) {
			pn_failed(ops[op].name, ret);
			ret = PN_BENCH_REPORTED;
		}
	}
	return ret;
}

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

static void print_op(struct pn_report *report, struct samples *s,
		     const struct op *op, size_t bytes, size_t rounds)
{
	const size_t nlatency = rounds * fit(bytes, SINGLES);
	const double latency_us = pn_median(s->latency, nlatency) / 1e3;
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("op", "op", -18, op->name),
		PN_CELL_BYTES("bytes", "bytes", 7, bytes),
		PN_CELL_NUMBER("latency_us", "latency us", 11, latency_us),
		PN_CELL_RATE("bytes_per_s", "bytes/s", 9,
			     pn_median(s->rate, rounds)),
		PN_CELL_NUMBER("ratio_to_process_vm_writev", "of vm_writev", 12,
			       s->ratio),
		PN_CELL_COUNT("rounds", "rounds", 7, rounds),
	};

	pn_report_row(report, row, PN_ARRAY_LEN(row));
}

/* Ratios first: computing a median reorders the rates. */
static void print_size(struct state *state, size_t bytes, size_t rounds)
{
	for (unsigned op = 0; op < NOPS; op++)
		state->samples[op].ratio = median_ratio(state, op, rounds);
	for (unsigned op = 0; op < NOPS; op++)
		if (state->set >> op & 1)
			print_op(&state->ends.run->report, &state->samples[op],
				 &ops[op], bytes, rounds);
}

static int measure_size(struct state *state, size_t bytes)
{
	char text[PN_REPORT_BYTES_LEN];
	struct pn_trials trials;
	size_t n;
	int ret;

	pn_report_progress(pn_report_bytes(bytes, text));
	ret = run_round(state, bytes, 0); /* warm-up; overwritten */
	trials = pn_trials_begin(3, MAX_ROUNDS,
				 pn_bench_share_ns(state->ends.run));
	for (n = 0; !ret && pn_trials_continue(&trials, n); n++)
		ret = run_round(state, bytes, n);
	if (!ret)
		print_size(state, bytes, n);
	return ret;
}

/* --- all sizes ------------------------------------------------------------ */

static int measure_sizes(struct state *state, const struct pn_bench_values *v)
{
	size_t max = v->max;
	int ret = 0;

	if (max > state->ends.pair->bytes)
		max = state->ends.pair->bytes;
	if (max > state->ends.local.len)
		max = state->ends.local.len;
	pn_bench_plan(state->ends.run, pn_bench_nsizes(v->min, max));
	for (size_t bytes = v->min; !ret && bytes <= max; bytes *= 2)
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
	ret = measure_sizes(state, &values->common);
	pn_pages_unmap(memory, len, &policy);
	return ret;
}

/* Removes operations that are not possible here. */
static void choose_ops(struct state *state, const char *list)
{
	struct pn_bench_run *run = state->ends.run;

	state->set = pn_words_set(list, op_number);
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
	const struct values *values = run->values;
	struct state *state = calloc(1, sizeof(*state));
	int ret;

	if (!state)
		return -ENOMEM;
	state->ends.run = run;
	state->ends.pair = run->pair;
	ret = pn_pair_map(run->device, values->common.max,
			  PINION_ACCESS_LOCAL_WRITE, &state->ends.local);
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
	const struct values *values = v;

	(void)operands;
	if (!pn_words_set(values->op, op_number))
		return pn_usage_error("--op takes put, get, process_vm_writev "
				      "and memcpy, separated by commas");
	return pn_bench_execute(&pn_bench_raw, values, body);
}

const struct pn_command pn_bench_raw = {
	.name = "raw",
	.help = "how fast are put and get between two processes?",
	.about = "Latency and bandwidth of the device's put and get, compared "
		 "with process_vm_writev and memcpy, alternately within one "
		 "run.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_raw,
};
