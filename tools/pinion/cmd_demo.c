/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion demo: two processes put and get real buffers and check every byte,
 * then a table of what it cost.
 *
 * For each size, odd ones and odd places too: this process fills a buffer with
 * a pattern, registers it, puts it into the other's memory, and the other
 * checks every byte there; then the other fills its memory with another
 * pattern, this process gets it and checks. Around all of it the kernel's
 * count of pinned bytes (VmPin) is compared with what the device says it
 * holds.
 */
#include <errno.h>
#include <stdio.h>

#include "bench/bench.h"
#include "device/measure.h"
#include "tools/pinion/permitted.h"

#define TRIALS	 25
#define POINT_NS (60 * PN_NS_PER_MS) /* four points for each size */

/* After the bytes of a put, one byte that must not have been written. */
#define GUARD 64

struct values {
	char device[PN_OPTION_TEXT_BYTES];
	uint64_t max, seed;
	bool json;
};

#define FIELD(name) offsetof(struct values, name)

static const struct pn_option options[] = {
	PN_COMMAND_DEVICE(struct values, device),
	{ "max", PN_OPTION_BYTES, "16M", "largest buffer", FIELD(max), 4096,
	  UINT64_C(1) << 30, NULL },
	{ "seed", PN_OPTION_NUMBER, "1", "of the patterns", FIELD(seed), 0, 0,
	  NULL },
	PN_COMMAND_JSON(struct values, json),
};

struct state {
	struct pn_bench_run *run;
	struct pn_pair *pair;
	const struct values *values;
	struct pn_pages_policy policy;
	char *buffer;
	size_t bytes;	   /* of the buffer */
	uint64_t checked;  /* bytes found right */
	size_t most_vmpin; /* seen while something was registered */
};

struct row {
	size_t bytes, vmpin;
	double register_us, deregister_us, put_us, get_us;
};

static bool pins(const struct state *state)
{
	return state->pair->device->caps & PN_CAP_PINS;
}

static int wrong(const char *what, size_t at, size_t len)
{
	fprintf(stderr,
		"pinion: WRONG BYTES: %s of %zu bytes differs at byte %zu\n",
		what, len, at);
	return -EBADMSG;
}

static int ask(struct state *state, enum pn_pair_job job, size_t len,
	       uint64_t seed, size_t *at)
{
	const struct pn_pair_ask a = { .job = job, .len = len, .seed = seed };
	struct pn_pair_answer answer;
	int ret = pn_pair_ask(state->pair, &a, &answer);

	if (!ret && at)
		*at = answer.wrong;
	return ret;
}

static int move(struct state *state, const struct pn_mr *mr,
		enum pn_op_kind kind)
{
	const struct pn_step_move m = { .kind = kind,
					.peer = state->pair->peer,
					.local = mr->addr,
					.lkey = mr->lkey,
					.remote_addr = state->pair->remote_addr,
					.rkey = state->pair->rkey,
					.len = mr->len };

	return pn_step_move(state->pair->device, &m);
}

/* --- bytes ---------------------------------------------------------------- */

/* The target's memory holds another pattern first, so that bytes a put leaves
 * out show, and bytes behind its end must still hold it afterwards. */
static int check_put(struct state *state, const struct pn_mr *mr, uint64_t seed)
{
	size_t around = mr->len + GUARD;
	size_t at = 0;
	int ret;

	if (around > state->pair->bytes)
		around = mr->len;
	ret = ask(state, PN_PAIR_FILL, around, ~seed, NULL);
	pn_pattern_fill(mr->addr, mr->len, seed);
	if (!ret)
		ret = move(state, mr, PN_OP_WRITE);
	if (!ret)
		ret = ask(state, PN_PAIR_CHECK, mr->len, seed, &at);
	if (!ret && at < mr->len)
		ret = wrong("a put", at, mr->len);
	/* Overwriting what was put with the first pattern makes all of it the
	 * first pattern again, unless bytes behind the end were touched. */
	if (!ret)
		ret = ask(state, PN_PAIR_FILL, mr->len, ~seed, NULL);
	if (!ret)
		ret = ask(state, PN_PAIR_CHECK, around, ~seed, &at);
	if (!ret && at < around && at / 8 > mr->len / 8)
		ret = wrong("what lies behind a put", at, mr->len);
	return ret;
}

static int check_get(struct state *state, const struct pn_mr *mr, uint64_t seed)
{
	char *behind = (char *)mr->addr + mr->len;
	char guard = (char)~*behind;
	size_t at;
	int ret = ask(state, PN_PAIR_FILL, mr->len, seed + 1, NULL);

	*behind = guard;
	if (!ret)
		ret = move(state, mr, PN_OP_READ);
	if (ret)
		return ret;
	at = pn_pattern_check(mr->addr, mr->len, seed + 1);
	if (at < mr->len)
		return wrong("a get", at, mr->len);
	if (*behind != guard)
		return wrong("what lies behind a get", mr->len, mr->len);
	return 0;
}

static int check_bytes(struct state *state, size_t offset, size_t len,
		       uint64_t seed)
{
	struct pn_mr mr = { .addr = state->buffer + offset,
			    .len = len,
			    .access = PINION_ACCESS_LOCAL_WRITE };
	struct pn_mr *list = &mr;
	int ret = pn_device_register(state->pair->device, &list, 1);

	if (ret)
		return ret;
	ret = check_put(state, &mr, seed);
	if (!ret)
		ret = check_get(state, &mr, seed);
	pn_device_deregister(state->pair->device, &list, 1);
	state->checked += ret ? 0 : 2 * len;
	return ret;
}

/* Powers of two, one less and one more, at odd places. */
static int check_sizes(struct state *state)
{
	size_t room = state->bytes < state->pair->bytes ? state->bytes
							: state->pair->bytes;
	uint64_t seed = state->values->seed;
	int ret = 0;

	for (size_t size = 1; !ret && size <= room; size *= 2)
		for (int i = -1; !ret && i <= 1; i++) {
			size_t len = size + (size_t)i;
			size_t offset = (seed * 37) % 4096;

			if (!len || len + offset >= room)
				continue;
			ret = check_bytes(state, offset, len, seed);
			seed += 2;
		}
	return ret;
}

/* --- costs ---------------------------------------------------------------- */

static int time_moves(struct state *state, const struct pn_mr *mr,
		      enum pn_op_kind kind, double *us)
{
	struct pn_point limit = pn_point_begin(3, TRIALS, POINT_NS);
	double samples[TRIALS];
	size_t n;

	for (n = 0; pn_point_go_on(&limit, n); n++) {
		uint64_t start = pn_device_now(state->pair->device);
		int ret = move(state, mr, kind);

		if (ret)
			return ret;
		samples[n] = pn_since_us(state->pair->device, start);
	}
	*us = pn_median(samples, n);
	return 0;
}

static int time_registered(struct state *state, const struct pn_mr *mr,
			   struct row *row)
{
	int ret = time_moves(state, mr, PN_OP_WRITE, &row->put_us);

	if (!ret)
		ret = time_moves(state, mr, PN_OP_READ, &row->get_us);
	row->vmpin = pn_proc_field("/proc/self/status", "VmPin", 0);
	if (row->vmpin > state->most_vmpin)
		state->most_vmpin = row->vmpin;
	return ret;
}

static int time_size(struct state *state, struct row *row)
{
	struct pn_device *device = state->pair->device;
	struct pn_point limit = pn_point_begin(3, TRIALS, POINT_NS);
	double reg[TRIALS], dereg[TRIALS];
	size_t n;
	int ret = 0;

	for (n = 0; !ret && pn_point_go_on(&limit, n); n++) {
		struct pn_mr mr = { .addr = state->buffer,
				    .len = row->bytes,
				    .access = PINION_ACCESS_LOCAL_WRITE };
		struct pn_mr *list = &mr;
		uint64_t start = pn_device_now(device);

		ret = pn_device_register(device, &list, 1);
		if (ret)
			return ret;
		reg[n] = pn_since_us(device, start);
		if (!n)
			ret = time_registered(state, &mr, row);
		start = pn_device_now(device);
		pn_device_deregister(device, &list, 1);
		dereg[n] = pn_since_us(device, start);
	}
	row->register_us = pn_median(reg, n);
	row->deregister_us = pn_median(dereg, n);
	return ret;
}

static void print_size(struct pn_report *report, const struct row *r)
{
	static const struct pn_report_column columns[] = {
		{ "bytes", "bytes", PN_REPORT_BYTES, 6 },
		{ "register_us", "register us", PN_REPORT_NUMBER, 12 },
		{ "deregister_us", "dereg. us", PN_REPORT_NUMBER, 10 },
		{ "put_us", "put us", PN_REPORT_NUMBER, 8 },
		{ "put_bytes_per_s", "put B/s", PN_REPORT_RATE, 8 },
		{ "get_us", "get us", PN_REPORT_NUMBER, 8 },
		{ "get_bytes_per_s", "get B/s", PN_REPORT_RATE, 8 },
		{ "vmpin_bytes", "VmPin", PN_REPORT_BYTES, 8 },
	};
	const union pn_report_value row[] = {
		{ .count = r->bytes },
		{ .number = r->register_us },
		{ .number = r->deregister_us },
		{ .number = r->put_us },
		{ .number = 1e6 * (double)r->bytes / r->put_us },
		{ .number = r->get_us },
		{ .number = 1e6 * (double)r->bytes / r->get_us },
		{ .count = r->vmpin },
	};

	pn_report_row(report, columns, PN_ARRAY_LEN(columns), row);
}

static int time_sizes(struct state *state)
{
	int ret = 0;

	for (size_t bytes = 64; !ret && bytes <= state->bytes; bytes *= 4) {
		struct row row = { .bytes = bytes };

		if (bytes > state->pair->bytes)
			break;
		ret = time_size(state, &row);
		if (!ret)
			print_size(&state->run->report, &row);
	}
	return ret;
}

/* --- all of it ------------------------------------------------------------ */

/* Nothing is registered here any more: what the kernel still charges must be
 * what the device says it still holds. */
static int check_pinned(struct state *state)
{
	uint64_t end = pn_clock_ns() + 3 * PN_NS_PER_S;
	struct pn_pair_answer pinned;

	if (!pins(state))
		return 0;
	do {
		pn_pair_pinned(state->pair->device, &pinned);
	} while (pinned.vmpin > pinned.accounted && pn_clock_ns() < end);
	if (pinned.vmpin <= pinned.accounted)
		return 0;
	fprintf(stderr,
		"pinion: PINNED MEMORY LOST: the kernel counts %zu bytes, the "
		"device %zu\n",
		pinned.vmpin, pinned.accounted);
	return -EBADMSG;
}

static int demonstrate(struct state *state)
{
	struct pn_report *report = &state->run->report;
	char text[PN_REPORT_BYTES_LEN];
	int ret;

	pn_report_progress("putting and getting, checking every byte");
	ret = check_sizes(state);
	if (!ret)
		ret = time_sizes(state);
	if (!ret)
		ret = check_pinned(state);
	if (ret)
		return ret;
	pn_report_note(report,
		       "\nall bytes right: %llu put and got between two %s",
		       (unsigned long long)state->checked,
		       state->pair->pid ? "processes" : "simulated nodes");
	if (pins(state))
		pn_report_note(report, "at most %s were pinned here (VmPin)",
			       pn_report_bytes(state->most_vmpin, text));
	return 0;
}

static int body(struct pn_bench_run *run)
{
	struct state state = {
		.run = run,
		.pair = run->pair,
		.values = run->arg,
		.policy = { .huge = PN_PAGES_NORMAL,
			    .numa_node = -1,
			    .populate = true },
	};
	void *buffer;
	int ret;

	state.bytes = run->pair->bytes;
	ret = pn_pages_map(state.bytes, &state.policy, &buffer);
	if (ret)
		return ret;
	state.buffer = buffer;
	ret = demonstrate(&state);
	pn_pages_unmap(buffer, state.bytes, &state.policy);
	return ret;
}

static int run_demo(const void *v, char *const *operands)
{
	struct values values = *(const struct values *)v;
	struct pn_bench bench = {
		.name = "demo",
		.question = "two processes put and get; is every byte right, "
			    "and what does it cost?",
		.device = values.device,
		.bytes = values.max,
		.json = values.json,
	};

	(void)operands;
	return pn_bench_go(&bench, body, &values);
}

const struct pn_command pn_cmd_demo = {
	.name = "demo",
	.help = "two processes put and get real buffers, every byte checked",
	.about = "About five seconds: the bytes of many sizes at odd places, "
		 "then a table of what registering, putting and getting cost.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_demo,
};
