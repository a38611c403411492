/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What does sending small messages directly from frequently used buffers gain
 * (Rashti and Afsahi 2011), and what does it cost if buffers are not
 * reused?
 *
 *   threshold  number of uses that pay for a registration, by operation and
 *              size: the paper's table 2
 *   pingpong   one-way latency; each end always sends from the same buffer
 *   spectrum   the same with a thousand buffers, the i-th used i times;
 *              adjacent, and on separate pages
 *   put, get   a put followed by a flag, answered by the same (the paper's put
 *              and fence); a get until its bytes have arrived
 *   program    an application: each end computes for 100 us, then exchanges
 *              eight buffers with the other, one after the other (receive
 *              posted, send, wait), again and again. gain_percent is of the run
 *              time; also those of the sends and of the communication
 *   burst      the same, but all receives and sends are posted before any is
 *              waited for, the receives first
 *   no_reuse   one way, never twice from the same buffer
 *   search     finding a buffer in the hash table and in a balanced tree
 *
 * Each is measured with the mechanism (--mode) and without (option reuse=off),
 * alternately within one run; figures are medians over the rounds. In virtual
 * time one round is enough. gain_percent is the saved part of the time without;
 * predicted_percent is the paper's (C - V) / time without, where C is the copy
 * time of the engine (0 for messages that the device takes inline) and V one
 * look-up. With --callgrind no_reuse also counts instructions, which other load
 * does not disturb: of a process that sends to itself, without reuse, with
 * every buffer looked up as with reuse=on, and with reuse=off.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/range.h"
#include "bench/bench.h"
#include "bench/callgrind.h"
#include "bench/session.h"
#include "device/profiles.h"
#include "message/endpoint/endpoint.h"

#define MAX_ROUNDS 101
#define KIB	   ((size_t)1 << 10)
#define BATCH	   64 /* messages one way before an answer */
#define STEP	   64 /* distance of buffers that are never reused */
#define NEIGHBOURS 8  /* buffers that a program exchanges in a step */
#define COMPUTE_NS ((uint64_t)100 * PN_NS_PER_US)
#define TAG_STEP   (UINT64_C(1) << 40)

static const char *const modes[] = { "auto", "on", NULL };
static const char *const structures[] = { "both", "hash", "tree", NULL };

struct values {
	struct pn_bench_values common;
	char what[PN_OPTION_TEXT_BYTES];
	int mode, structure;
	uint64_t times, buffers, messages;
	bool callgrind;
};

#define AT(name) offsetof(struct values, name)

static const struct pn_option options[] = {
	PN_BENCH_OPTIONS("128", "8K", "30s"),
	{ "what", PN_OPTION_TEXT, "all",
	  "threshold, pingpong, spectrum, put, get, program, burst, no_reuse "
	  "or search",
	  AT(what), 0, 0, NULL },
	{ "mode", PN_OPTION_CHOICE, "auto",
	  "value of the option reuse that is compared with reuse=off", AT(mode),
	  0, 0, modes },
	{ "structure", PN_OPTION_CHOICE, "both",
	  "search: in the hash table, in a balanced tree", AT(structure), 0, 0,
	  structures },
	{ "times", PN_OPTION_NUMBER, "0",
	  "pingpong, put, get: number of repetitions (0: 10000 in virtual "
	  "time, else 1000); program, burst: of steps (2000, 200)",
	  AT(times), 0, 1 << 24, NULL },
	{ "buffers", PN_OPTION_NUMBER, "0",
	  "spectrum: number of buffers (0: 1000 in virtual time, else 100)",
	  AT(buffers), 0, 1 << 12, NULL },
	{ "messages", PN_OPTION_NUMBER, "0",
	  "no_reuse: number of messages (0: 1000000 in virtual time, else "
	  "100000)",
	  AT(messages), 0, 1 << 24, NULL },
	{ "callgrind", PN_OPTION_BOOL, "no",
	  "no_reuse: also count instructions (needs valgrind)", AT(callgrind),
	  0, 0, NULL },
};

enum what { PINGPONG, SPECTRUM, PUT, GET, PROGRAM, BURST, NO_REUSE, NWHATS };

static const char *const names[NWHATS] = { "pingpong", "spectrum", "put",
					   "get",      "program",  "burst",
					   "no_reuse" };

static bool is_program(enum what what)
{
	return what == PROGRAM || what == BURST;
}

/* An exchange of both ends; its index is the order to the follower. */
struct setup {
	enum what what;
	enum pn_reuse_mode mode;
	bool apart; /* buffers on separate pages */
	size_t bytes;
	uint64_t n; /* number of repetitions, buffers or messages */
};

static uint64_t pack_setup(const struct setup *g)
{
	return (uint64_t)g->what | (uint64_t)g->mode << 4 |
	       (uint64_t)g->apart << 6 | g->bytes << 8 | g->n << 32;
}

static struct setup unpack_setup(uint64_t number)
{
	return (struct setup){ .what = number & 15,
			       .mode = number >> 4 & 3,
			       .apart = number >> 6 & 1,
			       .bytes = number >> 8 & 0xffffff,
			       .n = number >> 32 };
}

struct state {
	struct pn_bench_run run;
	const struct values *values;
	struct pn_session *session;
	struct times {
		double total;		/* one way, of a message */
		double sends, exchange; /* in a program; of the same */
	} with[MAX_ROUNDS], without[MAX_ROUNDS];
};

/* --- one setup ------------------------------------------------------------ */

/* One end of a running exchange. */
struct end {
	struct pn_session *session;
	struct setup setup;
	bool leads;
	char *arena, *inbox;
	size_t stride;
	struct pinion_exposure *exposure; /* of the inbox */
	struct pinion_remote *remote;
	double send_ns, exchange_ns; /* of a program, sums */
};

static const struct pn_pages_policy present = { .huge = PN_PAGES_NORMAL,
						.numa_node = -1,
						.populate = true };
static const struct pn_pages_policy untouched = { .huge = PN_PAGES_NORMAL,
						  .numa_node = -1 };

static bool is_virtual(const struct pn_session *session)
{
	return session->device->caps & PN_CAP_VIRTUAL_TIME;
}

static const struct pn_pages_policy *policy_of(const struct end *e)
{
	return is_virtual(e->session) ? &untouched : &present;
}

/* Clears the endpoint's knowledge of buffers. */
static void clear_usage(struct pinion_endpoint *ep, enum pn_reuse_mode mode)
{
	struct pn_reuse_attr attr = ep->reuse.attr;

	attr.mode = mode;
	pn_reuse_fini(&ep->reuse);
	pn_reuse_init(&ep->reuse, ep->device, ep->cache, &attr);
	if (ep->nrails > 1)
		pn_reuse_exclude(&ep->reuse, ep->eager_kind);
}

static size_t arena_bytes(const struct end *e)
{
	const struct setup *g = &e->setup;

	switch (g->what) {
	case SPECTRUM:
		return g->n * e->stride + g->bytes;
	case PROGRAM:
	case BURST:
		return NEIGHBOURS * e->stride + g->bytes;
	case NO_REUSE:
		return (e->leads ? g->n * STEP : 0) + g->bytes;
	default:
		return g->bytes;
	}
}

static int map(struct end *e)
{
	void *arena, *inbox;
	int ret;

	e->stride =
		e->setup.apart
			? pn_range_pages(0, e->setup.bytes, PN_PAGE_BYTES).len +
				  PN_PAGE_BYTES
			: e->setup.bytes;
	ret = pn_pages_map(arena_bytes(e), policy_of(e), &arena);
	if (ret)
		return ret;
	ret = pn_pages_map(e->setup.bytes, &present, &inbox);
	if (ret) {
		pn_pages_unmap(arena, arena_bytes(e), policy_of(e));
		return ret;
	}
	e->arena = arena;
	e->inbox = inbox;
	return 0;
}

static void unmap(struct end *e)
{
	pn_pages_unmap(e->arena, arena_bytes(e), policy_of(e));
	pn_pages_unmap(e->inbox, e->setup.bytes, &present);
	pn_cache_flush(e->session->context->cache);
}

static int exchange(struct end *e, void *mine, void *theirs, size_t len)
{
	int ret = e->leads ? pn_session_send(e->session, mine, len)
			   : pn_session_recv(e->session, theirs, len);

	if (ret)
		return ret;
	return e->leads ? pn_session_recv(e->session, theirs, len)
			: pn_session_send(e->session, mine, len);
}

static int expose(struct end *e)
{
	struct pinion_exposure_key mine, theirs;
	int ret = pinion_exposure_open(e->session->ep, e->inbox, e->setup.bytes,
				       PINION_ACCESS_REMOTE_READ |
					       PINION_ACCESS_REMOTE_WRITE,
				       &e->exposure);

	if (!ret)
		ret = pinion_exposure_key(e->exposure, &mine);
	if (!ret)
		ret = exchange(e, &mine, &theirs, sizeof(mine));
	if (!ret)
		ret = pinion_remote_open(e->session->ep, e->session->peer,
					 &theirs, &e->remote);
	return ret;
}

static int ping(struct end *e, const char *buf)
{
	size_t bytes = e->setup.bytes;
	int ret;

	if (e->leads) {
		ret = pn_session_send(e->session, buf, bytes);
		return ret ? ret : pn_session_recv(e->session, e->inbox, bytes);
	}
	ret = pn_session_recv(e->session, e->inbox, bytes);
	return ret ? ret : pn_session_send(e->session, buf, bytes);
}

static int put(struct end *e)
{
	struct pinion_move move = { .size = sizeof(move),
				    .remote = e->remote,
				    .buf = e->arena,
				    .len = e->setup.bytes };
	struct pinion_request *request;
	char flag = 0;
	int ret = 0;

	if (!e->leads)
		ret = pn_session_recv(e->session, &flag, 1);
	if (!ret)
		ret = pinion_put(e->session->ep, &move, &request);
	if (!ret)
		ret = pn_session_send(e->session, &flag, 1);
	if (!ret && e->leads)
		ret = pn_session_recv(e->session, &flag, 1);
	return ret ? ret
		   : pinion_wait(e->session->ep, request, PINION_FOREVER, NULL);
}

static int get(struct end *e)
{
	struct pinion_move move = { .size = sizeof(move),
				    .remote = e->remote,
				    .buf = e->arena,
				    .len = e->setup.bytes };
	struct pinion_request *request;
	int ret;

	if (!e->leads)
		return 0;
	ret = pinion_get(e->session->ep, &move, &request);
	return ret ? ret
		   : pinion_wait(e->session->ep, request, PINION_FOREVER, NULL);
}

/* One of many messages without an answer. */
static int pass(struct end *e, uint64_t i)
{
	char flag = 0;
	int ret = e->leads ? pn_session_send(e->session, e->arena + i * STEP,
					     e->setup.bytes)
			   : pn_session_recv(e->session, e->inbox,
					     e->setup.bytes);

	if (ret || (i + 1) % BATCH)
		return ret;
	return e->leads ? pn_session_recv(e->session, &flag, 1)
			: pn_session_send(e->session, &flag, 1);
}

static struct pinion_message step_message(struct end *e, const void *buf)
{
	return (struct pinion_message){ .size = sizeof(struct pinion_message),
					.buf = (void *)buf,
					.len = e->setup.bytes,
					.tag = TAG_STEP,
					.peer = e->session->peer };
}

static int wait_all(struct end *e, struct pinion_request **requests, size_t n)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < n; i++)
		ret = pinion_wait(e->session->ep, requests[i], PINION_FOREVER,
				  NULL);
	return ret;
}

/* n receives are posted and n buffers sent. The sends are waited for at once by
 * a blocking program, else when all has arrived. */
static int swap(struct end *e, unsigned first, unsigned n)
{
	struct pn_device *device = e->session->device;
	struct pinion_message m = step_message(e, e->inbox);
	struct pinion_request *receives[NEIGHBOURS], *sends[NEIGHBOURS];
	bool blocks = e->setup.what == PROGRAM;
	uint64_t start;
	int ret = 0;

	for (unsigned i = 0; !ret && i < n; i++)
		ret = pinion_recv(e->session->ep, &m, &receives[i]);
	start = pn_device_now(device);
	for (unsigned i = 0; !ret && i < n; i++) {
		m = step_message(e, e->arena + (first + i) * e->stride);
		ret = pinion_send(e->session->ep, &m, &sends[i]);
	}
	if (!ret && blocks)
		ret = wait_all(e, sends, n);
	e->send_ns += (double)(pn_device_now(device) - start);
	if (!ret)
		ret = wait_all(e, receives, n);
	return ret || blocks ? ret : wait_all(e, sends, n);
}

static void compute(struct end *e)
{
	uint64_t until = pn_clock_ns() + COMPUTE_NS;

	pn_device_consume_cpu(e->session->device, COMPUTE_NS);
	while (!is_virtual(e->session) && pn_clock_ns() < until)
		;
}

/* A step of a program. */
static int step(struct end *e)
{
	uint64_t start;
	int ret = 0;

	compute(e);
	start = pn_device_now(e->session->device);
	if (e->setup.what == BURST)
		ret = swap(e, 0, NEIGHBOURS);
	for (unsigned i = 0; e->setup.what == PROGRAM && !ret && i < NEIGHBOURS;
	     i++)
		ret = swap(e, i, 1);
	e->exchange_ns += (double)(pn_device_now(e->session->device) - start);
	return ret;
}

static int act(struct end *e, uint64_t i)
{
	uint64_t times = e->setup.what == SPECTRUM ? i + 1 : 1;
	int ret = 0;

	switch (e->setup.what) {
	case PUT:
		return put(e);
	case GET:
		return get(e);
	case PROGRAM:
	case BURST:
		return step(e);
	case NO_REUSE:
		return pass(e, i);
	case SPECTRUM:
		for (; !ret && times; times--)
			ret = ping(e, e->arena + i * e->stride);
		return ret;
	default:
		return ping(e, e->arena);
	}
}

/* Number of one-way times in the measured time. */
static double one_way_trips(const struct setup *g)
{
	double n = (double)g->n;

	if (g->what == SPECTRUM)
		n = n * (n + 1) / 2;
	if (is_program(g->what))
		return n * NEIGHBOURS;
	return g->what == GET || g->what == NO_REUSE ? n : 2 * n;
}

/* Runs one end of the exchange; *times are for one message, one way. */
static int run_end(struct end *e, struct times *times)
{
	char flag = 0;
	uint64_t start;
	int ret;

	clear_usage(e->session->ep, e->setup.mode);
	ret = map(e);
	if (ret)
		return ret;
	if (e->setup.what == PUT || e->setup.what == GET)
		ret = expose(e);
	if (!ret)
		ret = exchange(e, &flag, &flag, 1);
	start = pn_device_now(e->session->device);
	for (uint64_t i = 0; !ret && i < e->setup.n; i++)
		ret = act(e, i);
	times->total = pn_device_since(e->session->device, start) /
		       one_way_trips(&e->setup);
	times->sends = e->send_ns / one_way_trips(&e->setup);
	times->exchange = e->exchange_ns / one_way_trips(&e->setup);
	if (!ret)
		ret = exchange(e, &flag, &flag, 1);
	pinion_remote_close(e->remote);
	pinion_exposure_close(e->exposure);
	unmap(e);
	clear_usage(e->session->ep, PN_REUSE_OFF);
	return ret;
}

static int run_follower(struct pn_session *session, uint64_t number)
{
	struct end e = { .session = session, .setup = unpack_setup(number) };
	struct times times;

	return run_end(&e, &times);
}

static int run_leader(struct state *s, const struct setup *setup,
		      struct times *times)
{
	struct end e = { .session = s->session,
			 .setup = *setup,
			 .leads = true };
	int ret = pn_session_start_job(s->session, run_follower,
				       pack_setup(setup));

	return ret ? ret : run_end(&e, times);
}

/* --- rows ----------------------------------------------------------------- */

static enum pn_reuse_kind kind_of(const struct state *s, enum what what)
{
	if (what == PUT)
		return PN_REUSE_PUT;
	return what == GET ? PN_REUSE_GET : s->session->ep->eager_kind;
}

static double copy_ns(const struct state *s, size_t bytes)
{
	return (double)bytes * s->session->device->costs.copy_byte_ns;
}

/* Without a possible gain there is no look-up. */
static double predicted(struct state *s, const struct setup *g, double ns)
{
	struct pn_reuse *reuse = &s->session->ep->reuse;
	double gain = copy_ns(s, g->bytes) - reuse->lookup_ns;

	if (g->what == NO_REUSE ||
	    (kind_of(s, g->what) <= PN_REUSE_SEND &&
	     g->bytes > reuse->attr.small_bytes) ||
	    isinf(pn_reuse_threshold(reuse, kind_of(s, g->what), g->bytes)))
		return 0;
	return 100 * gain / ns;
}

static const char *path_of(const struct state *s, enum what what)
{
	return what == PUT || what == GET
		       ? "one-sided"
		       : pn_reuse_kind_name(s->session->ep->eager_kind);
}

struct result {
	double with_ns, without_ns, gain;
	/* of a program; NAN: no program */
	double send_gain, communication_gain;
	/* instructions of a send with the mechanism; NAN: not counted */
	double instructions;
	size_t rounds;
};

static void print(struct state *s, const struct setup *g,
		  const struct result *r)
{
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("what", "what", -8, names[g->what]),
		PN_CELL_TEXT("path", "path", -12, path_of(s, g->what)),
		PN_CELL_TEXT("layout", "layout", -12,
			     g->what != SPECTRUM ? "-"
			     : g->apart		 ? "own pages"
						 : "back to back"),
		PN_CELL_BYTES("bytes", "bytes", 5, g->bytes),
		PN_CELL_NUMBER("with_us", "with us", 7, r->with_ns / 1e3),
		PN_CELL_NUMBER("without_us", "without us", 10,
			       r->without_ns / 1e3),
		PN_CELL_NUMBER("gain_percent", "gain %", 7, r->gain),
		PN_CELL_NUMBER("predicted_percent", "predicted", 9,
			       predicted(s, g, r->without_ns)),
		PN_CELL_NUMBER("copy_us", NULL, 0, copy_ns(s, g->bytes) / 1e3),
		PN_CELL_NUMBER("send_gain_percent",
			       is_program(g->what) ? "sends %" : NULL, 7,
			       r->send_gain),
		PN_CELL_NUMBER("communication_gain_percent",
			       is_program(g->what) ? "communication %" : NULL,
			       15, r->communication_gain),
		PN_CELL_NUMBER("instructions_gain_percent", NULL, 0,
			       r->instructions),
		PN_CELL_TEXT("mode", NULL, 0, modes[s->values->mode]),
		PN_CELL_COUNT("n", NULL, 0, g->n),
		PN_CELL_COUNT("rounds", NULL, 0, r->rounds),
	};

	pn_report_progress(NULL);
	pn_report_row(&s->run.report, row, PN_ARRAY_LEN(row));
	if (!isnan(r->instructions))
		pn_report_note(
			&s->run.report,
			"         %.2f %% fewer instructions (callgrind)",
			r->instructions);
}

/* --- instructions --------------------------------------------------------- */

/* Counts messages only, not opening and closing. */
static int count_run(const struct state *s, const char *reuse, size_t bytes,
		     uint64_t n, uint64_t *instructions)
{
	char messages[24], size[24];
	const char *args[] = { "--toggle-collect=send_to_self",
			       "--",
			       "bench",
			       "reuse",
			       "--what",
			       "count",
			       "--mode",
			       reuse,
			       "--device",
			       s->values->common.device,
			       "--max",
			       size,
			       "--messages",
			       messages,
			       NULL };

	snprintf(messages, sizeof(messages), "%" PRIu64, n);
	snprintf(size, sizeof(size), "%zu", bytes);
	return pn_callgrind(args, instructions);
}

/* Sends to itself, from another address each time: one process is enough. */
static PN_NOINLINE int send_to_self(struct pinion_endpoint *ep, size_t bytes,
				    uint64_t n)
{
	char *arena = calloc(1, n * STEP + bytes), *inbox = calloc(1, bytes);
	struct pinion_message out = { .size = sizeof(out), .len = bytes },
			      in = out;
	struct pinion_request *requests[2];
	struct pinion_address address;
	int ret = arena && inbox ? pinion_endpoint_address(ep, &address)
				 : -ENOMEM;

	if (!ret)
		ret = pinion_peer_add(ep, &address, &out.peer);
	for (uint64_t i = 0; !ret && i < n; i++) {
		out.buf = arena + i * STEP;
		in.buf = inbox;
		ret = pinion_recv(ep, &in, &requests[0]);
		if (!ret)
			ret = pinion_send(ep, &out, &requests[1]);
		for (unsigned k = 0; !ret && k < 2; k++)
			ret = pinion_wait(ep, requests[k], PINION_FOREVER,
					  NULL);
	}
	free(arena);
	free(inbox);
	return ret;
}

/* Times inside valgrind are meaningless: use the costs of the paper. */
static void assume_costs(struct pinion_endpoint *ep)
{
	const struct pn_profile *profile = pn_profile_find("rashti2011");
	struct pn_costs *costs = &ep->device->costs;

	costs->register_ns = (double)pn_profile_register_ns(profile, 0);
	costs->copy_byte_ns = 1 / profile->value[PN_PROFILE_COPY_GBPS];
}

/* The part that callgrind runs: --mode on, or copying only. */
static int count(const struct values *v)
{
	char device[PN_OPTION_TEXT_BYTES + 8];
	const char *const list[] = { device, NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = list };
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	int ret;

	snprintf(device, sizeof(device), "device=%s",
		 v->common.device[0] ? v->common.device : "soft");
	ret = pinion_open(&attr, &context);
	if (ret)
		return pn_failed("reuse", ret);
	ret = pinion_endpoint_open(context, NULL, &ep);
	if (!ret) {
		assume_costs(ep);
		clear_usage(ep, v->mode ? PN_REUSE_ON : PN_REUSE_OFF);
		ret = send_to_self(ep, v->common.max, v->messages);
	}
	pinion_close(context);
	return ret ? pn_failed("reuse", ret) : PN_EXIT_OK;
}

/* How many per cent fewer instructions n messages take with the mechanism than
 * without. With `on`, since otherwise the costs may disable it. */
static double count_instructions(struct state *s, const struct setup *g)
{
	uint64_t with, without;
	int ret;

	if (!s->values->callgrind)
		return NAN;
	pn_report_progress("counting instructions");
	ret = count_run(s, "on", g->bytes, g->n, &with);
	if (!ret)
		ret = count_run(s, "auto", g->bytes, g->n, &without);
	pn_report_progress(NULL);
	if (!ret)
		return 100 * (1 - (double)with / (double)without);
	fprintf(stderr, "pinion: callgrind: %s\n",
		ret == -ENOENT ? "valgrind is not installed" : strerror(-ret));
	return NAN;
}

/* --- all of them ---------------------------------------------------------- */

/* What is opened once (for example a pool of bounce buffers) is not timed. */
static int warm_up(struct state *s, struct setup setup)
{
	struct times times;

	setup.n = 1;
	setup.mode = PN_REUSE_OFF;
	return run_leader(s, &setup, &times);
}

static int run_round(struct state *s, struct setup setup, size_t round)
{
	static const enum pn_reuse_mode by_option[] = { PN_REUSE_AUTO,
							PN_REUSE_ON };
	char text[PN_REPORT_BYTES_LEN];
	int ret;

	pn_report_progress(pn_report_bytes(setup.bytes, text));
	setup.mode = by_option[s->values->mode];
	ret = run_leader(s, &setup, &s->with[round]);
	setup.mode = PN_REUSE_OFF;
	return ret ? ret : run_leader(s, &setup, &s->without[round]);
}

static double time_of(const struct times *times, size_t at)
{
	return *(const double *)((const char *)times + at);
}

/* The medians of the rounds of one of the times, and of its gains. */
static double median_of(const struct times *times, size_t rounds, size_t at)
{
	double list[MAX_ROUNDS];

	for (size_t i = 0; i < rounds; i++)
		list[i] = time_of(&times[i], at);
	return pn_median(list, rounds);
}

static double gain_of(const struct state *s, size_t rounds, size_t at)
{
	double gains[MAX_ROUNDS];

	for (size_t i = 0; i < rounds; i++)
		gains[i] = 100 * (1 - time_of(&s->with[i], at) /
					      time_of(&s->without[i], at));
	return pn_median(gains, rounds);
}

#define TIME(name) offsetof(struct times, name)

static void summarize(const struct state *s, const struct setup *setup,
		      struct result *r)
{
	bool program = is_program(setup->what);

	r->gain = gain_of(s, r->rounds, TIME(total));
	r->with_ns = median_of(s->with, r->rounds, TIME(total));
	r->without_ns = median_of(s->without, r->rounds, TIME(total));
	r->send_gain = program ? gain_of(s, r->rounds, TIME(sends)) : NAN;
	r->communication_gain =
		program ? gain_of(s, r->rounds, TIME(exchange)) : NAN;
}

static int measure(struct state *s, const struct setup *setup)
{
	bool once = s->run.virtual_time;
	struct pn_trials trials =
		pn_trials_begin(once ? 1 : 3, once ? 1 : MAX_ROUNDS,
				pn_bench_share_ns(&s->run));
	struct result r = { .instructions = NAN };
	int ret = warm_up(s, *setup);

	for (; !ret && pn_trials_continue(&trials, r.rounds); r.rounds++)
		ret = run_round(s, *setup, r.rounds);
	if (ret) {
		pn_report_progress(NULL);
		pn_failed(names[setup->what], ret);
		return PN_BENCH_REPORTED;
	}
	summarize(s, setup, &r);
	if (setup->what == NO_REUSE)
		r.instructions = count_instructions(s, setup);
	print(s, setup, &r);
	return 0;
}

static uint64_t count_of(const struct state *s, enum what what)
{
	const struct values *v = s->values;
	bool virtual_time = s->run.virtual_time;

	if (what == SPECTRUM)
		return v->buffers ? v->buffers : virtual_time ? 1000 : 100;
	if (what == NO_REUSE)
		return v->messages    ? v->messages
		       : virtual_time ? 1000000
				      : 100000;
	if (is_program(what) && !v->times)
		return virtual_time ? 2000 : 200;
	return v->times ? v->times : virtual_time ? 10000 : 1000;
}

static bool is_wanted(const struct state *s, const char *what)
{
	return !strcmp(s->values->what, "all") ||
	       !strcmp(s->values->what, what);
}

/* Long exchanges run for a quarter of the sizes. */
static int measure_sizes(struct state *s, enum what what, bool apart)
{
	const struct pn_bench_values *v = &s->values->common;
	bool is_long = what == SPECTRUM || what == NO_REUSE;
	int ret = 0;

	for (size_t bytes = v->min; !ret && bytes <= v->max;
	     bytes *= is_long ? 4 : 2) {
		struct setup setup = { .what = what,
				       .apart = apart,
				       .bytes = bytes,
				       .n = count_of(s, what) };

		ret = measure(s, &setup);
	}
	return ret;
}

static int measure_all(struct state *s)
{
	const struct pn_bench_values *v = &s->values->common;
	int ret = 0;

	pn_bench_plan(&s->run, 7 * pn_bench_nsizes(v->min, v->max));
	pn_report_series(&s->run.report);
	for (enum what w = 0; !ret && w < NWHATS; w++) {
		if (!is_wanted(s, names[w]))
			continue;
		ret = measure_sizes(s, w, w == SPECTRUM);
		if (!ret && w == SPECTRUM)
			ret = measure_sizes(s, w, false);
	}
	return ret;
}

/* --- thresholds ----------------------------------------------------------- */

/* The paper's table 2, by operation; put and get are one column there. */
static const struct {
	size_t bytes;
	unsigned uses[PN_REUSE_NKINDS];
} paper[] = {
	{ 512, { 432, 1568, 196, 196 } },
	{ 1 * KIB, { 200, 448, 128, 128 } },
	{ 2 * KIB, { 110, 224, 128, 128 } },
	{ 3 * KIB, { 76, 131, 125, 125 } },
	{ 4 * KIB, { 60, 95, 56, 56 } },
	{ 5 * KIB, { 48, 75, 33, 33 } },
	{ 6 * KIB, { 40, 65, 29, 29 } },
	{ 7 * KIB, { 36, 55, 26, 26 } },
	{ 8 * KIB, { 32, 49, 25, 25 } },
};

static void print_threshold(struct state *s, enum pn_reuse_kind way, unsigned i)
{
	const struct pn_reuse *reuse = &s->session->ep->reuse;
	double n = pn_reuse_threshold(reuse, way, paper[i].bytes);
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("what", NULL, 0, "threshold"),
		PN_CELL_TEXT("path", "path", -12, pn_reuse_kind_name(way)),
		PN_CELL_BYTES("bytes", "bytes", 5, paper[i].bytes),
		PN_CELL_NUMBER("minimum_uses", "uses that pay", 13,
			       isinf(n) ? NAN : n),
		PN_CELL_NUMBER("registered_at", "registered at", 13,
			       isinf(n) ? NAN
					: ceil(n * reuse->attr.share / 100)),
		PN_CELL_COUNT("paper_uses", "in the paper", 12,
			      paper[i].uses[way]),
		PN_CELL_NUMBER("copy_us", "copy us", 7,
			       copy_ns(s, paper[i].bytes) / 1e3),
		PN_CELL_NUMBER("lookup_us", "look-up us", 10,
			       reuse->lookup_ns / 1e3),
		PN_CELL_NUMBER("gain_percent", NULL, 0, NAN),
		PN_CELL_NUMBER("predicted_percent", NULL, 0, NAN),
	};

	pn_report_row(&s->run.report, row, PN_ARRAY_LEN(row));
}

static void print_thresholds(struct state *s)
{
	clear_usage(s->session->ep, PN_REUSE_AUTO);
	pn_report_series(&s->run.report);
	for (unsigned w = 0; w < PN_REUSE_NKINDS; w++)
		if (w >= PN_REUSE_PUT || w == s->session->ep->eager_kind)
			for (unsigned i = 0; i < PN_ARRAY_LEN(paper); i++)
				print_threshold(s, w, i);
}

/* --- searching ------------------------------------------------------------ */

struct searched {
	struct pn_usage usage;
	void *tree; /* glibc's red-black tree */
	uintptr_t *addrs;
	size_t n;
};

static int by_address(const void *a, const void *b)
{
	uintptr_t x = *(const uintptr_t *)a, y = *(const uintptr_t *)b;

	return (x > y) - (x < y);
}

/* Different multiples of 64 in a GiB: an odd factor permutes them. */
static uintptr_t address(size_t i)
{
	return (uintptr_t)(i * 7368787 % (1 << 24)) * 64 + ((uintptr_t)1 << 40);
}

static bool fill(struct searched *s, bool tree)
{
	for (size_t i = 0; i < s->n; i++) {
		s->addrs[i] = address(i);
		if (tree ? !tsearch(&s->addrs[i], &s->tree, by_address)
			 : !pn_usage_add(&s->usage, s->addrs[i]))
			return false;
	}
	return true;
}

/* ns of one search: the minimum of some rounds, each in another order. */
static double search_ns(struct searched *s, bool tree)
{
	enum { ROUNDS = 9, SEARCHES = 20000 };
	double least = INFINITY;
	size_t found = 0, at = 1;

	for (unsigned r = 0; r < ROUNDS; r++) {
		uint64_t start = pn_clock_ns();
		double ns;

		for (unsigned i = 0; i < SEARCHES; i++) {
			at = (at * 2654435761 + 12345) % s->n;
			found +=
				tree ? !!tfind(&s->addrs[at], &s->tree,
					       by_address)
				     : !!pn_usage_find(&s->usage, s->addrs[at]);
		}
		ns = (double)(pn_clock_ns() - start) / SEARCHES;
		least = fmin(least, ns);
	}
	return found == ROUNDS * SEARCHES ? least : NAN;
}

static void end_run(void *node)
{
	(void)node;
}

static int search_in(struct state *state, size_t n, bool tree)
{
	struct searched s = { .n = n };
	double ns = NAN;

	s.addrs = calloc(n, sizeof(*s.addrs));
	if (s.addrs && fill(&s, tree))
		ns = search_ns(&s, tree);
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("what", NULL, 0, "search"),
		PN_CELL_TEXT("path", NULL, 0, "-"),
		PN_CELL_TEXT("structure", "structure", -9,
			     tree ? "tree" : "hash"),
		PN_CELL_COUNT("buffers", "buffers", 8, n),
		PN_CELL_NUMBER("search_ns", "search ns", 9, ns),
		PN_CELL_COUNT("bytes", NULL, 0, 0),
		PN_CELL_NUMBER("gain_percent", NULL, 0, NAN),
		PN_CELL_NUMBER("predicted_percent", NULL, 0, NAN),
	};

	pn_report_row(&state->run.report, row, PN_ARRAY_LEN(row));
	tdestroy(s.tree, end_run);
	pn_usage_fini(&s.usage);
	free(s.addrs);
	return isnan(ns) ? -ENOMEM : 0;
}

static int search_all(struct state *s)
{
	int ret = 0;

	pn_report_series(&s->run.report);
	for (size_t n = 10; !ret && n <= 1000000; n *= 10) {
		if (s->values->structure != 2)
			ret = search_in(s, n, false);
		if (!ret && s->values->structure != 1)
			ret = search_in(s, n, true);
	}
	return ret;
}

/* --- the command ---------------------------------------------------------- */

static int body(struct pn_session *session, void *arg)
{
	struct state *s = arg;
	int ret;

	s->session = session;
	s->run.virtual_time = is_virtual(session);
	pn_report_device(&s->run.report, session->device);
	pn_report_head(&s->run.report, pn_bench_reuse.help);
	if (is_wanted(s, "threshold"))
		print_thresholds(s);
	ret = measure_all(s);
	if (!ret && is_wanted(s, "search"))
		ret = search_all(s);
	return ret;
}

static bool is_known(const char *what)
{
	for (unsigned i = 0; i < NWHATS; i++)
		if (!strcmp(what, names[i]))
			return true;
	return !strcmp(what, "all") || !strcmp(what, "threshold") ||
	       !strcmp(what, "search") || !strcmp(what, "count");
}

static int run_reuse(const void *v, char *const *operands)
{
	struct state *s = calloc(1, sizeof(*s));
	int ret;

	(void)operands;
	if (!s)
		return pn_failed("reuse", -ENOMEM);
	s->values = v;
	if (s->values->common.min > s->values->common.max ||
	    s->values->common.max >= 16 << 20)
		ret = pn_usage_error(
			"--min is above --max, or --max is too large");
	else if (!is_known(s->values->what))
		ret = pn_usage_error("--what: unknown experiment '%s'",
				     s->values->what);
	else if (!strcmp(s->values->what, "count"))
		ret = count(v);
	else
		ret = pn_session_bench(&s->run, v, &pn_bench_reuse, body, s);
	free(s);
	return ret;
}

const struct pn_command pn_bench_reuse = {
	.name = "reuse",
	.help = "what does sending directly from reused buffers gain, and "
		"cost?",
	.about = "Ping-pong, a spectrum of reuse, put, get and a stream "
		 "without reuse, each with and without the mechanism of the "
		 "option reuse; the number of uses that pay for a "
		 "registration; searching in the table of buffers.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_reuse,
};
