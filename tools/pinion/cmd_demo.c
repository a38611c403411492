/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion demo: two processes put, get and send real buffers and check every
 * byte, with tables of the costs.
 *
 * For each size, including odd sizes and unaligned addresses: this process
 * fills a buffer with a pattern, registers it and puts it into the other
 * process's memory, where the other process checks every byte; then the other
 * process fills its memory with another pattern, and this process gets it and
 * checks. Then many small buffers of a heap are put, which need one
 * registration. Around all of this the kernel's count of pinned bytes (VmPin)
 * is compared with the count of the device. Then two other processes exchange
 * messages under every protocol, with odd sizes and unaligned buffers, every
 * byte checked at the receiver, and once more with powers of two to measure the
 * speed; and put, get, add and write conditionally through the library
 * (demo_onesided.h). At the end a summary in words is printed (demo_summary.h).
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/range.h"
#include "bench/bench.h"
#include "bench/session.h"
#include "heap/heap.h"
#include "tools/pinion/demo_onesided.h"
#include "tools/pinion/demo_summary.h"
#include "tools/pinion/system_limits.h"

#define TRIALS 25

/* Budget of real time for four points per size of put and get and one of
 * messages. */
#define POINT_NS (60 * PN_NS_PER_MS)

/* Bytes behind the end of a put that must stay unchanged. */
#define GUARD 64

struct values {
	struct pn_bench_values common; /* min and budget are not options here */
	uint64_t seed;
	/* not an option; shared by the processes */
	struct pn_demo_summary *summary;
};

static const struct pn_option options[] = {
	PN_COMMAND_DEVICE(struct values, common.device),
	{ "max", PN_OPTION_BYTES, "16M", "largest buffer",
	  offsetof(struct values, common.max), 8192, UINT64_C(1) << 30, NULL },
	{ "seed", PN_OPTION_NUMBER, "1", "seed of the patterns",
	  offsetof(struct values, seed), 0, 0, NULL },
	PN_COMMAND_JSON(struct values, common.json),
};

struct state {
	struct pn_bench_run *run;
	struct pn_pair *pair;
	const struct values *values;
	struct pn_pages_policy policy;
	char *buffer;
	size_t bytes;	   /* bytes of the buffer */
	uint64_t checked;  /* bytes checked and correct */
	size_t most_vmpin; /* largest VmPin while memory was registered */
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
	return PN_BENCH_REPORTED;
}

/* Runs a job on the target's memory and reports wrong bytes. */
static int ask(struct state *state, enum pn_pair_job job, struct pn_range at,
	       uint64_t seed)
{
	const struct pn_pair_ask a = {
		.job = job, .offset = at.addr, .len = at.len, .seed = seed
	};
	struct pn_pair_answer answer;
	int ret = pn_pair_ask(state->pair, &a, &answer);

	if (!ret && job == PN_PAIR_CHECK && answer.wrong < at.len)
		ret = wrong(at.addr ? "the bytes behind a put" : "a put",
			    answer.wrong, at.len);
	return ret;
}

static int move(struct state *state, const struct pn_mr *mr,
		enum pn_op_kind kind)
{
	struct pn_blocking_transfer m = pn_pair_move(state->pair, kind, mr);

	return pn_blocking_transfer(state->pair->device, &m);
}

/* --- bytes ---------------------------------------------------------------- */

/* Before the put, the target's memory holds the pattern of the previous get, so
 * that bytes which the put misses are found; the bytes behind its end must stay
 * unchanged. */
static int check_put(struct state *state, const struct pn_mr *mr, uint64_t seed)
{
	const struct pn_range all = { 0, mr->len }, behind = { mr->len, GUARD };
	int ret = ask(state, PN_PAIR_FILL, behind, ~seed);

	pn_pattern_fill(mr->addr, mr->len, seed);
	if (!ret)
		ret = move(state, mr, PN_OP_WRITE);
	if (!ret)
		ret = ask(state, PN_PAIR_CHECK, all, seed);
	if (!ret)
		ret = ask(state, PN_PAIR_CHECK, behind, ~seed);
	return ret;
}

static int check_get(struct state *state, const struct pn_mr *mr, uint64_t seed)
{
	char *behind = (char *)mr->addr + mr->len;
	char guard = (char)~*behind;
	size_t at;
	int ret = ask(state, PN_PAIR_FILL, (struct pn_range){ 0, mr->len },
		      seed + 1);

	*behind = guard;
	if (!ret)
		ret = move(state, mr, PN_OP_READ);
	if (ret)
		return ret;
	at = pn_pattern_check(mr->addr, mr->len, seed + 1);
	if (at < mr->len)
		return wrong("a get", at, mr->len);
	if (*behind != guard)
		return wrong("the bytes behind a get", mr->len, mr->len);
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

/* Powers of two, one byte less and one more, at unaligned addresses. */
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

			if (!len || len + offset + GUARD > room)
				continue;
			ret = check_bytes(state, offset, len, seed);
			seed += 2;
		}
	return ret;
}

/* --- costs ---------------------------------------------------------------- */

static int time_move(struct state *state, const struct pn_mr *mr,
		     enum pn_op_kind kind, double *us)
{
	struct pn_blocking_transfer m = pn_pair_move(state->pair, kind, mr);
	struct pn_trials trials = pn_trials_begin(3, TRIALS, POINT_NS);
	double samples[TRIALS], ns = NAN;
	int ret =
		pn_measure_move(state->pair->device, &m, &trials, samples, &ns);

	*us = ns / 1e3;
	return ret;
}

static int time_moves(struct state *state, struct row *row)
{
	struct pn_mr mr = { .addr = state->buffer,
			    .len = row->bytes,
			    .access = PINION_ACCESS_LOCAL_WRITE };
	struct pn_mr *list = &mr;
	int ret = pn_device_register(state->pair->device, &list, 1);

	if (ret)
		return ret;
	ret = time_move(state, &mr, PN_OP_WRITE, &row->put_us);
	if (!ret)
		ret = time_move(state, &mr, PN_OP_READ, &row->get_us);
	row->vmpin = pn_proc_field("/proc/self/status", "VmPin", 0);
	if (row->vmpin > state->most_vmpin)
		state->most_vmpin = row->vmpin;
	pn_device_deregister(state->pair->device, &list, 1);
	return ret;
}

static int time_size(struct state *state, struct row *row)
{
	double samples[2 * TRIALS];
	struct pn_measure_register m = {
		.addr = state->buffer,
		.len = row->bytes,
		.trials = pn_trials_begin(3, TRIALS, POINT_NS),
		.samples = samples,
	};
	int ret = pn_measure_register(state->pair->device, &m);

	row->register_us = m.register_ns / 1e3;
	row->deregister_us = m.deregister_ns / 1e3;
	return ret ? ret : time_moves(state, row);
}

static void print_size(struct pn_report *report, const struct row *r)
{
	const double put = 1e6 * (double)r->bytes / r->put_us;
	const double get = 1e6 * (double)r->bytes / r->get_us;
	const struct pn_report_cell row[] = {
		PN_CELL_BYTES("bytes", "bytes", 6, r->bytes),
		PN_CELL_NUMBER("register_us", "register us", 12,
			       r->register_us),
		PN_CELL_NUMBER("deregister_us", "dereg. us", 10,
			       r->deregister_us),
		PN_CELL_NUMBER("put_us", "put us", 8, r->put_us),
		PN_CELL_RATE("put_bytes_per_s", "put B/s", 8, put),
		PN_CELL_NUMBER("get_us", "get us", 8, r->get_us),
		PN_CELL_RATE("get_bytes_per_s", "get B/s", 8, get),
		PN_CELL_BYTES("vmpin_bytes", "VmPin", 8, r->vmpin),
	};

	pn_report_row(report, row, PN_ARRAY_LEN(row));
}

static int time_sizes(struct state *state)
{
	int ret = 0;

	for (size_t bytes = 64; !ret && bytes <= state->bytes; bytes *= 4) {
		struct row row = { .bytes = bytes };

		if (bytes > state->pair->bytes)
			break;
		pn_demo_sample_speed(state->values->summary);
		ret = time_size(state, &row);
		if (ret)
			break;
		print_size(&state->run->report, &row);
		pn_demo_add_registration(state->values->summary, bytes,
					 row.register_us);
	}
	return ret;
}

/* --- all of it ------------------------------------------------------------ */

/* Nothing is registered here any more: the bytes that the kernel still charges
 * must be those that the device still holds. */
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
	return PN_BENCH_REPORTED;
}

/* --- the heap ------------------------------------------------------------- */

#define BLOCK 512 /* size of a buffer of the heap */

/* Puts the contents of the buffer block by block, each from a new block of a
 * heap. */
static int put_blocks(struct state *state, struct pinion_heap *heap,
		      size_t nblocks)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < nblocks; i++) {
		char *block = pn_heap_alloc(heap, BLOCK);
		struct pn_blocking_transfer move = { .kind = PN_OP_WRITE,
						     .peer = state->pair->peer,
						     .rkey = state->pair->rkey,
						     .len = BLOCK };

		if (!block)
			return -errno;
		memcpy(block, state->buffer + i * BLOCK, BLOCK);
		move.local = block;
		move.lkey = pn_heap_mr(heap, block)->lkey;
		move.remote_addr = state->pair->remote_addr + i * BLOCK;
		ret = pn_blocking_transfer(state->pair->device, &move);
	}
	return ret;
}

/* The target checks the bytes. */
static int put_from_heap(struct state *state, struct pinion_heap *heap)
{
	size_t n = state->bytes / BLOCK < 1000 ? state->bytes / BLOCK : 1000;
	struct pn_pair_ask ask = { .job = PN_PAIR_CHECK,
				   .len = n * BLOCK,
				   .seed = state->values->seed + 77 };
	struct pn_pair_answer answer = { 0 };
	struct pinion_heap_stats stats;
	int ret;

	pn_pattern_fill(state->buffer, ask.len, ask.seed);
	ret = put_blocks(state, heap, n);
	if (!ret)
		ret = pn_pair_ask(state->pair, &ask, &answer);
	if (ret)
		return ret;
	if (answer.wrong != ask.len)
		return wrong("put from the heap", answer.wrong, ask.len);
	state->checked += ask.len;
	pn_heap_query(heap, &stats);
	pn_report_note(&state->run->report,
		       "\n%zu buffers of %d bytes from a heap, put with %llu "
		       "registration%s",
		       n, BLOCK, (unsigned long long)stats.registrations,
		       stats.registrations == 1 ? "" : "s");
	return 0;
}

static int show_heap(struct state *state)
{
	struct pn_budget budget;
	struct pn_cache_attr attr = { .device = state->pair->device,
				      .budget = &budget,
				      .no_monitor = true,
				      .no_worker = true };
	struct pn_heap_attr heap_attr = { .device = state->pair->device,
					  .pages = { .numa_node = -1 } };
	struct pinion_heap *heap;
	int ret;

	pn_budget_init(&budget, attr.device, 0, 0, 0);
	ret = pn_cache_open(&attr, &heap_attr.cache);
	if (ret)
		return ret;
	ret = pn_heap_open(&heap_attr, &heap);
	if (!ret) {
		ret = put_from_heap(state, heap);
		pn_heap_close(heap);
	}
	pn_cache_close(heap_attr.cache);
	if (ret != -ENOBUFS)
		return ret;
	pn_report_note(&state->run->report,
		       "\nno heap: this process may not pin one slab");
	return 0;
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
		ret = show_heap(state);
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
		.values = run->values,
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

/* --- messages ------------------------------------------------------------- */

#define REUSE	      8
#define REPEATS	      15
#define LEARN_BUFFERS 100
#define LEARN_BYTES   ((size_t)2 << 30)
#define BATCHES	      15 /* pins per timed batch */
#define BATCH	      20

struct messages {
	struct pn_report report;
	const struct values *values;
	struct pn_session *session;
	uint64_t sent, checked; /* number of messages; bytes */
};

static const char *protocol_name(const struct pn_session_trial *trial)
{
	return pn_protocol_name((unsigned)trial->protocol);
}

/* Runs a trial and checks every byte. */
static int send_checked(struct messages *m, struct pn_session_trial *trial,
			struct pn_session_result *result)
{
	int ret;

	trial->check = true;
	trial->seed = m->values->seed + 1000 * m->sent;
	ret = pn_session_run_trial(m->session, trial, result);
	if (ret)
		return ret;
	if (result->wrong != SIZE_MAX)
		return wrong(protocol_name(trial), result->wrong, trial->bytes);
	m->sent += (uint64_t)trial->buffers * trial->uses;
	m->checked += trial->buffers * trial->bytes;
	return 0;
}

/* Sizes around powers of two, at unaligned addresses, two buffers of each. */
static int check_protocol(struct messages *m, int protocol)
{
	struct pn_session_trial trial = { .protocol = protocol,
					  .buffers = 2,
					  .uses = 1 };
	struct pn_session_result result;
	int ret = 0;

	for (size_t size = 1; !ret && size <= m->values->common.max; size *= 4)
		for (size_t i = 0; !ret && i <= 2; i++) {
			trial.bytes = size - 1 + i;
			trial.offset = (trial.bytes * 37 + i) % 4096;
			if (pn_session_protocol_applies(m->session, protocol,
							trial.bytes))
				ret = send_checked(m, &trial, &result);
		}
	return ret;
}

static void print_message(struct messages *m,
			  const struct pn_session_trial *trial,
			  const struct pn_session_result *result)
{
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("protocol", "protocol", -16, protocol_name(trial)),
		PN_CELL_BYTES("bytes", "bytes", 6, trial->bytes),
		PN_CELL_COUNT("reuse", "reuse", 6, trial->uses),
		PN_CELL_NUMBER("latency_us", "latency us", 10,
			       result->ns / 1e3),
		PN_CELL_RATE("bytes_per_s", "bytes/s", 8,
			     1e9 * (double)trial->bytes / result->ns),
		PN_CELL_BYTES("registered_bytes_peak", "registered", 10,
			      result->peak_bytes),
		PN_CELL_TEXT("took", "took", 0,
			     trial->protocol == PN_PROTOCOL_AUTO
				     ? pn_protocol_name((unsigned)result->taken)
				     : ""),
	};

	pn_report_row(&m->report, row, PN_ARRAY_LEN(row));
}

/* `auto` is measured when it has learned from so many buffers, or from so many
 * bytes where that is less. The first trial is what a program sees before. */
static int learn(struct messages *m, struct pn_session_trial *trial)
{
	struct pn_demo_learning learning = { .bytes = trial->bytes };
	struct pn_session_result result;
	uint64_t most = LEARN_BYTES / trial->bytes;
	int ret = 0;

	trial->cell = 1; /* unlike the trials before, which only checked */
	trial->check = false;
	for (unsigned i = 0; !ret && i < LEARN_BUFFERS &&
			     (!i || learning.messages + REUSE <= most);
	     i++) {
		ret = pn_session_run_trial(m->session, trial, &result);
		learning.messages += REUSE;
		if (!i)
			learning.first_us = result.ns / 1e3;
	}
	if (!ret)
		pn_demo_add_learning(m->values->summary, &learning);
	return ret;
}

/* The median of a few trials, of which the first is checked: on a busy machine
 * a single trial may have waited for a core. */
static int time_trial(struct messages *m, struct pn_session_trial *trial,
		      struct pn_session_result *result)
{
	struct pn_trials trials = pn_trials_begin(5, REPEATS, POINT_NS);
	double ns[REPEATS];
	size_t n = 1;
	int ret = send_checked(m, trial, result);

	ns[0] = result->ns;
	trial->check = false;
	for (; !ret && pn_trials_continue(&trials, n); n++) {
		ret = pn_session_run_trial(m->session, trial, result);
		ns[n] = result->ns;
	}
	if (!ret)
		result->ns = pn_median(ns, n);
	return ret;
}

/* New buffers, each used a few times, as in programs. */
static int time_protocol(struct messages *m, int protocol)
{
	const bool eager = protocol == PN_PROTOCOL_EAGER;
	struct pn_session_trial trial = { .protocol = protocol,
					  .buffers = 1,
					  .uses = eager ? 200 : REUSE };
	struct pn_session_result result = { 0 };
	int ret = 0;

	for (trial.bytes = eager ? 8 : 64 << 10;
	     !ret && trial.bytes <= m->values->common.max; trial.bytes *= 16) {
		if (!pn_session_protocol_applies(m->session, protocol,
						 trial.bytes))
			continue;
		pn_demo_sample_speed(m->values->summary);
		if (protocol == PN_PROTOCOL_AUTO)
			ret = learn(m, &trial);
		if (!ret)
			ret = time_trial(m, &trial, &result);
		if (ret)
			break;
		print_message(m, &trial, &result);
		pn_demo_add_message(m->values->summary, protocol, trial.bytes,
				    result.ns / 1e3, result.taken);
	}
	return ret;
}

/* Pins and unpins memory that was pinned before. The median of a few batches,
 * in us. */
static int time_pins(struct pinion_context *context, void *memory, size_t len,
		     double *us)
{
	struct pinion_pin pin;
	double ns[BATCHES];
	int ret = 0;

	for (unsigned i = 0; !ret && i < BATCHES; i++) {
		uint64_t start = pn_clock_ns();

		for (unsigned k = 0; !ret && k < BATCH; k++) {
			ret = pinion_pin(context, memory, len,
					 PINION_ACCESS_LOCAL_WRITE, &pin);
			if (!ret)
				pinion_unpin(context, &pin);
		}
		ns[i] = (double)(pn_clock_ns() - start) / BATCH;
	}
	if (!ret)
		*us = pn_median(ns, BATCHES) / 1e3;
	return ret;
}

/* The cost of a pin of as many bytes as were registered before. In virtual time
 * a cached pin costs nothing, so it is not measured there. */
static int pin_again(struct messages *m)
{
	const struct pn_pages_policy policy = { .huge = PN_PAGES_NORMAL,
						.numa_node = -1,
						.populate = true };
	struct pinion_cache_stats before = { .size = sizeof(before) };
	struct pinion_cache_stats after = { .size = sizeof(after) };
	struct pinion_context *context = m->session->context;
	struct pn_demo_summary *summary = m->values->summary;
	void *memory;
	int ret;

	summary->virtual_time = m->session->device->caps & PN_CAP_VIRTUAL_TIME;
	if (summary->virtual_time || !summary->register_bytes)
		return 0;
	ret = pn_pages_map(summary->register_bytes, &policy, &memory);
	if (ret)
		return ret;
	pinion_cache_query(context, &before);
	ret = time_pins(context, memory, summary->register_bytes,
			&summary->pin_us);
	pinion_cache_query(context, &after);
	summary->kept = after.hits - before.hits > BATCHES * BATCH / 2;
	pn_pages_unmap(memory, summary->register_bytes, &policy);
	return ret == -ENOBUFS ? 0 : ret; /* does not fit: not reported */
}

/* Exposed memory cannot be replaced by a copy: use a size that fits the budget.
 */
static int use_remote_memory(struct messages *m)
{
	const size_t most = (size_t)1 << 20;
	struct pn_demo_onesided demo = { .report = &m->report,
					 .seed = m->values->seed };
	int ret;

	demo.max = m->values->common.max < most ? m->values->common.max : most;
	ret = pn_demo_onesided(m->session, &demo);
	if (!ret)
		pn_report_note(&m->report,
			       "all bytes right: %llu puts, gets, atomics "
			       "and conditional writes,\n%llu bytes checked",
			       (unsigned long long)demo.operations,
			       (unsigned long long)demo.checked);
	return ret == -EBADMSG ? PN_BENCH_REPORTED : ret;
}

static int messages_body(struct pn_session *session, void *arg)
{
	struct messages *m = arg;
	int ret = 0;

	m->session = session;
	pn_report_device(&m->report, session->device);
	pn_report_progress("sending messages, checking every byte");
	for (int id = 0; !ret && id <= PN_PROTOCOL_AUTO; id++)
		ret = check_protocol(m, id);
	for (int id = 0; !ret && id <= PN_PROTOCOL_AUTO; id++)
		ret = time_protocol(m, id);
	if (!ret)
		pn_report_note(&m->report,
			       "\nall bytes right: %llu messages under %d "
			       "protocols and auto, %llu bytes checked",
			       (unsigned long long)m->sent, PN_PROTOCOL_COUNT,
			       (unsigned long long)m->checked);
	if (!ret)
		ret = pin_again(m);
	return ret ? ret : use_remote_memory(m);
}

static int send_messages(const struct values *values)
{
	struct messages m = { .values = values };
	struct pn_spec spec;
	int ret;

	if (pn_spec_find(&spec, values->common.device))
		return PN_EXIT_FAILED;
	m.report = (struct pn_report){ .json = values->common.json,
				       .bench = "demo",
				       .device = spec.text };
	ret = pn_session_run(&spec, messages_body, &m);
	pn_report_progress(NULL);
	if (ret == PN_BENCH_REPORTED)
		return PN_EXIT_FAILED;
	return ret ? pn_spec_exit("messages", ret) : PN_EXIT_OK;
}

/* Puts and gets run in their own process: threads of the library outlive a
 * context, and only a process without threads may fork the target. */
static int run_apart(const struct values *values)
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		int ret = pn_bench_execute(&pn_cmd_demo, values, body);

		_exit(fflush(stdout) ? PN_EXIT_FAILED : ret);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return pn_failed("fork", -errno);
	pn_print_signal("the process that puts and gets", status);
	return WIFEXITED(status) ? WEXITSTATUS(status) : PN_EXIT_FAILED;
}

static int demonstrate_all(const struct values *values)
{
	int ret;

	pn_demo_begin(values->summary);
	ret = run_apart(values);
	if (ret == PN_EXIT_OK)
		ret = send_messages(values);
	pn_demo_end(values->summary);
	if (ret == PN_EXIT_OK && !values->common.json)
		pn_demo_print_summary(values->summary, program_invocation_name,
				      stdout);
	return ret;
}

static int run_demo(const void *arg, char *const *operands)
{
	struct values values = *(const struct values *)arg;
	int ret;

	(void)operands;
	values.summary =
		mmap(NULL, sizeof(*values.summary), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (values.summary == MAP_FAILED)
		return pn_failed("mmap", -errno);
	ret = demonstrate_all(&values);
	munmap(values.summary, sizeof(*values.summary));
	return ret;
}

const struct pn_command pn_cmd_demo = {
	.name = "demo",
	.help = "two processes put, get and send buffers, every byte checked",
	.about = "Takes a few seconds: puts, gets and sends buffers of many "
		 "sizes at unaligned addresses under every protocol, prints "
		 "tables of the costs, and ends with a summary in words.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_demo,
};
