/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What does the progress thread cost those who poll, how soon does it handle a
 * message when nobody does, and how much of a transfer hides behind computing?
 *
 * Two processes with an endpoint each, with and without the thread:
 *   polling   a ping-pong of eight bytes in which both sides poll, with and
 *             without the thread alternately: what callers lose.
 *   handled   the follower sleeps and makes no call; the leader sends eight
 *             bytes and waits until the follower's thread has confirmed them.
 *             This is a round trip: the handling takes less.
 *   overlap   as IMB-NBC measures it: the time of a transfer alone (pure), of
 *             computing about as long (cpu), and of both at once (both);
 *             overlap = (pure + cpu - both) / min(pure, cpu), 0 to 1. The
 *             follower sleeps, so that there is a core for the threads; without
 *             the thread it has to poll. `auto` learns from WARM_UP messages
 *             for which both sides poll, and from LEARN of those that are
 *             measured.
 * Each figure is the median.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/session.h"

struct values {
	struct pn_bench_values common; /* max: the overlap's; no min, budget */
	uint64_t rounds;
};

static const struct pn_option options[] = {
	PN_COMMAND_DEVICE(struct pn_bench_values, device),
	{ "bytes", PN_OPTION_BYTES, "1M", "size of the overlap's messages",
	  PN_BENCH_FIELD(max), 1, UINT64_C(1) << 40, NULL },
	PN_COMMAND_JSON(struct pn_bench_values, json),
	{ "rounds", PN_OPTION_NUMBER, "15",
	  "of polling, with and without the thread in turns",
	  offsetof(struct values, rounds), 1, 1000, NULL },
};

enum kind { POLLING, HANDLED, SENDS, RECEIVES };

/* What the follower is told. */
struct order {
	enum kind kind;
	bool thread;
	unsigned n; /* messages */
	size_t bytes;
};

/* One side of an order: its endpoint. */
struct side {
	struct pn_session *session;
	struct order order;
	struct pinion_endpoint *ep;
	struct pinion_peer *peer;
	void *buf;
};

struct state {
	struct pn_bench_run run;
	const struct values *values;
};

#define PINGS	 3000
#define MESSAGES 500
#define MOVES	 100
#define WARM_UP	 50
#define LEARN	 100

/* --- an endpoint at each side --------------------------------------------- */

static int exchange(struct side *side, bool leads, struct pinion_address *mine,
		    struct pinion_address *theirs)
{
	int ret =
		leads ? pn_session_send(side->session, mine, sizeof(*mine))
		      : pn_session_recv(side->session, theirs, sizeof(*theirs));

	if (ret)
		return ret;
	return leads ? pn_session_recv(side->session, theirs, sizeof(*theirs))
		     : pn_session_send(side->session, mine, sizeof(*mine));
}

static int open_side(struct side *side, bool leads)
{
	struct pinion_endpoint_attr attr = {
		.size = sizeof(attr),
		.flags = PINION_ENDPOINT_SINGLE_THREADED |
			 (side->order.thread ? PINION_ENDPOINT_PROGRESS_THREAD
					     : PINION_ENDPOINT_PROGRESS_CALLER),
	};
	struct pinion_address mine, theirs;
	int ret =
		pinion_endpoint_open(side->session->context, &attr, &side->ep);

	if (ret)
		return ret;
	side->buf = calloc(1, side->order.bytes);
	if (!side->buf)
		return -ENOMEM;
	pinion_endpoint_address(side->ep, &mine);
	ret = exchange(side, leads, &mine, &theirs);
	return ret ? ret : pinion_peer_add(side->ep, &theirs, &side->peer);
}

static void close_side(struct side *side)
{
	pinion_endpoint_close(side->ep);
	free(side->buf);
}

static struct pinion_message message(const struct side *side)
{
	return (struct pinion_message){ .size = sizeof(struct pinion_message),
					.buf = side->buf,
					.len = side->order.bytes,
					.peer = side->peer };
}

static int finish(struct side *side, struct pinion_request *request)
{
	int ret;

	do
		ret = pinion_test(side->ep, request, NULL);
	while (ret == -EAGAIN);
	return ret;
}

static int transfer(struct side *side, bool sends)
{
	struct pinion_message m = message(side);
	struct pinion_request *request;
	int ret = sends ? pinion_send(side->ep, &m, &request)
			: pinion_recv(side->ep, &m, &request);

	return ret ? ret : finish(side, request);
}

/* Both sides poll. */
static int warm_up(struct side *side, bool sends)
{
	int ret = 0;

	for (unsigned i = 0; i < WARM_UP && !ret; i++)
		ret = transfer(side, sends);
	return ret;
}

/* --- the follower --------------------------------------------------------- */

/* Posts the other halves of all messages, whose ends nobody asks for. */
static int post_all(struct side *side)
{
	struct pinion_message m = message(side);
	int ret = 0;

	for (unsigned i = 0; i < side->order.n && !ret; i++)
		ret = side->order.kind == RECEIVES
			      ? pinion_send(side->ep, &m, NULL)
			      : pinion_recv(side->ep, &m, NULL);
	return ret;
}

/* Makes no call on the endpoint until the leader has ended; without the thread
 * all messages have to be polled for. */
static int sleep_or_poll(struct side *side)
{
	struct pinion_completion c[16];
	unsigned ended = 0;
	char end;

	while (!side->order.thread && ended < side->order.n) {
		int n = pinion_poll(side->ep, c, sizeof(*c), PN_ARRAY_LEN(c));

		if (n < 0)
			return n;
		ended += (unsigned)n;
	}
	return pn_session_recv(side->session, &end, 1);
}

static int follow(struct pn_session *session, uint64_t arg)
{
	struct side side = { .session = session };
	int ret = pn_session_recv(session, &side.order, sizeof(side.order));

	(void)arg;
	if (!ret)
		ret = open_side(&side, false);
	if (!ret && side.order.kind == POLLING) {
		for (unsigned i = 0; i < side.order.n && !ret; i++) {
			ret = transfer(&side, false);
			if (!ret)
				ret = transfer(&side, true);
		}
	} else if (!ret) {
		if (side.order.kind != HANDLED)
			ret = warm_up(&side, side.order.kind == RECEIVES);
		if (!ret)
			ret = post_all(&side);
		if (!ret)
			ret = sleep_or_poll(&side);
	}
	close_side(&side);
	return ret;
}

static int lead(struct side *side)
{
	int ret = pn_session_start_job(side->session, follow, 0);

	if (!ret)
		ret = pn_session_send(side->session, &side->order,
				      sizeof(side->order));
	return ret ? ret : open_side(side, true);
}

/* The follower sleeps until this comes. */
static int end_follower(struct side *side)
{
	return side->order.kind == POLLING
		       ? 0
		       : pn_session_send(side->session, "", 1);
}

/* --- polling -------------------------------------------------------------- */

static int measure_polling(struct pn_session *session, bool thread, double *ns)
{
	struct side side = { .session = session,
			     .order = { POLLING, thread, PINGS, 8 } };
	double times[PINGS];
	int ret = lead(&side);

	for (unsigned i = 0; i < PINGS && !ret; i++) {
		uint64_t begin = pn_clock_ns();

		ret = transfer(&side, true);
		if (!ret)
			ret = transfer(&side, false);
		times[i] = (double)(pn_clock_ns() - begin) / 2;
	}
	close_side(&side);
	*ns = ret ? 0 : pn_median(times, PINGS);
	return ret;
}

static int run_polling(struct state *s, struct pn_session *session)
{
	size_t rounds = s->values->rounds;
	double caller[1000], thread[1000], ratio[1000];
	int ret = 0;

	for (size_t i = 0; i < rounds && !ret; i++) {
		ret = measure_polling(session, i % 2,
				      i % 2 ? &thread[i] : &caller[i]);
		if (!ret)
			ret = measure_polling(session, !(i % 2),
					      i % 2 ? &caller[i] : &thread[i]);
		ratio[i] = thread[i] / caller[i];
	}
	if (ret)
		return ret;
	pn_report_row(&s->run.report,
		      (const struct pn_report_cell[]){
			      PN_CELL_TEXT("what", "what", -8, "polling"),
			      PN_CELL_NUMBER("caller_ns", "caller ns", 10,
					     pn_median(caller, rounds)),
			      PN_CELL_NUMBER("thread_ns", "thread ns", 10,
					     pn_median(thread, rounds)),
			      PN_CELL_NUMBER("ratio", "ratio", 6,
					     pn_median(ratio, rounds)),
		      },
		      4);
	return 0;
}

/* --- handled -------------------------------------------------------------- */

/* Long enough for the follower's thread to go to sleep. */
#define PAUSE_NS (300 * PN_NS_PER_US)

static int send_confirmed(struct side *side, double *ns)
{
	struct pinion_message m = message(side);
	uint64_t begin = pn_clock_ns();
	struct pinion_request *request;
	int ret;

	m.flags = PINION_MESSAGE_DELIVERY_COMPLETE;
	ret = pinion_send(side->ep, &m, &request);
	if (!ret)
		ret = finish(side, request);
	*ns = (double)(pn_clock_ns() - begin);
	for (begin = pn_clock_ns(); pn_clock_ns() < begin + PAUSE_NS;)
		pn_relax();
	return ret;
}

static int run_handled(struct state *s, struct pn_session *session)
{
	struct side side = { .session = session,
			     .order = { HANDLED, true, MESSAGES, 8 } };
	double times[MESSAGES];
	double median;
	int ret = lead(&side);

	for (unsigned i = 0; i < MESSAGES && !ret; i++)
		ret = send_confirmed(&side, &times[i]);
	if (!ret)
		ret = end_follower(&side);
	close_side(&side);
	if (ret)
		return ret;
	median = pn_median(times, MESSAGES); /* sorts */
	pn_report_series(&s->run.report);
	pn_report_row(&s->run.report,
		      (const struct pn_report_cell[]){
			      PN_CELL_TEXT("what", "what", -8, "handled"),
			      PN_CELL_NUMBER("median_us", "median us", 10,
					     median / 1e3),
			      PN_CELL_NUMBER("p99_us", "99 % us", 10,
					     times[MESSAGES * 99 / 100] / 1e3),
		      },
		      3);
	return 0;
}

/* --- overlap -------------------------------------------------------------- */

/* Work that takes about ns when nothing else runs on this core. */
static void compute(double loops)
{
	volatile double sink = 1;

	for (double i = 0; i < loops; i++)
		sink = sink * 1.0000001 + 1e-9;
}

static double loops_per_ns(void)
{
	const double loops = 1e6;
	double best = 0;

	for (unsigned i = 0; i < 20; i++) {
		uint64_t begin = pn_clock_ns();
		double rate;

		compute(loops);
		rate = loops / (double)(pn_clock_ns() - begin);
		best = rate > best ? rate : best;
	}
	return best;
}

/* The time of one message with `loops` of work between start and end. */
static int move(struct side *side, double loops, double *ns)
{
	struct pinion_message m = message(side);
	uint64_t begin = pn_clock_ns();
	struct pinion_request *request;
	int ret = side->order.kind == SENDS
			  ? pinion_send(side->ep, &m, &request)
			  : pinion_recv(side->ep, &m, &request);

	if (ret)
		return ret;
	compute(loops);
	ret = finish(side, request);
	*ns = (double)(pn_clock_ns() - begin);
	return ret;
}

static int measure_moves(struct pn_session *session, struct order order,
			 double loops, double *ns)
{
	struct side side = { .session = session, .order = order };
	double times[MOVES];
	int ret = lead(&side);

	if (!ret)
		ret = warm_up(&side, order.kind == SENDS);
	for (unsigned i = 0; i < order.n && !ret; i++)
		ret = move(&side, loops, &times[i < LEARN ? 0 : i - LEARN]);
	if (!ret)
		ret = end_follower(&side);
	close_side(&side);
	*ns = ret ? 0 : pn_median(times, MOVES);
	return ret;
}

/* The median time of `loops` of work alone. */
static double compute_alone(double loops)
{
	double times[MOVES];

	for (unsigned i = 0; i < MOVES; i++) {
		uint64_t begin = pn_clock_ns();

		compute(loops);
		times[i] = (double)(pn_clock_ns() - begin);
	}
	return pn_median(times, MOVES);
}

struct overlap {
	double pure_ns, cpu_ns, both_ns;
};

static double overlap_percent(const struct overlap *t)
{
	double least = t->pure_ns < t->cpu_ns ? t->pure_ns : t->cpu_ns;
	double percent = 100 * (t->pure_ns + t->cpu_ns - t->both_ns) / least;

	return percent < 0 ? 0 : percent > 100 ? 100 : percent;
}

static void print_overlap(struct state *s, const struct order *order,
			  const struct overlap *t)
{
	pn_report_row(&s->run.report,
		      (const struct pn_report_cell[]){
			      PN_CELL_TEXT("what", "what", -8, "overlap"),
			      PN_CELL_TEXT("leader", "leader", -8,
					   order->kind == SENDS ? "sends"
								: "receives"),
			      PN_CELL_TEXT("progress", "progress", -8,
					   order->thread ? "thread" : "caller"),
			      PN_CELL_BYTES("bytes", "bytes", 6, order->bytes),
			      PN_CELL_NUMBER("pure_us", "pure us", 9,
					     t->pure_ns / 1e3),
			      PN_CELL_NUMBER("cpu_us", "cpu us", 9,
					     t->cpu_ns / 1e3),
			      PN_CELL_NUMBER("both_us", "both us", 9,
					     t->both_ns / 1e3),
			      PN_CELL_NUMBER("overlap_percent", "overlap %", 9,
					     overlap_percent(t)),
		      },
		      8);
}

static int run_overlap(struct state *s, struct pn_session *session)
{
	double per_ns = loops_per_ns();
	struct overlap t;
	int ret = 0;

	pn_report_series(&s->run.report);
	for (unsigned i = 0; i < 4 && !ret; i++) {
		struct order order = { i % 2 ? RECEIVES : SENDS, i / 2,
				       LEARN + MOVES, s->values->common.max };

		ret = measure_moves(session, order, 0, &t.pure_ns);
		if (ret)
			return ret;
		t.cpu_ns = compute_alone(t.pure_ns * per_ns);
		ret = measure_moves(session, order, t.pure_ns * per_ns,
				    &t.both_ns);
		if (!ret)
			print_overlap(s, &order, &t);
	}
	return ret;
}

static int body(struct pn_session *session, void *arg)
{
	struct state *s = arg;
	int ret;

	if (session->device->caps & PN_CAP_VIRTUAL_TIME) {
		fprintf(stderr, "pinion: bench progress: there is no progress "
				"thread in virtual time; name another "
				"device\n");
		return PN_BENCH_REPORTED;
	}
	pn_session_begin(session, &s->run, &pn_bench_progress);
	ret = run_polling(s, session);
	if (!ret)
		ret = run_handled(s, session);
	return ret ? ret : run_overlap(s, session);
}

static int run_progress(const void *v, char *const *operands)
{
	struct state s = { .values = v };

	(void)operands;
	return pn_session_bench(&s.run, v, &pn_bench_progress, body, &s);
}

const struct pn_command pn_bench_progress = {
	.name = "progress",
	.help = "what does the progress thread cost, and what does it hide?",
	.about = "Compares a ping-pong of callers who poll with and without "
		 "the thread, measures how soon the thread handles a message "
		 "when nobody polls, and how much of a transfer hides behind "
		 "computing. On real devices only.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_progress,
};
