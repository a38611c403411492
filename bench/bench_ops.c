/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: what does one operation of the public API take on a device?
 *
 * One process, the leader, exchanges messages with one or several others, or
 * accesses their memory:
 *   message_lat  messages of one size to and fro; half a round trip
 *   message_bw   a stream of messages to the others, several in flight
 *   put_lat      puts into each other's memory in turns; each process polls
 *                its memory until it changes; half a round trip
 *   get_lat      one pinion_get() after the other, until each has ended
 *   add_lat      the same with pinion_atomic_fetch_add()
 *   put_bw       a stream of puts to the others, several in flight
 * Latencies are medians and means, streams one sample. With several peers,
 * operations go to them in turn.
 *
 * One operation and one size for each run, so that a run can be counted
 * (verbs_count.c) and compared with programs that do the same
 * (`pinion bench peers`).
 */
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "base/pages.h"
#include "bench/bench.h"
#include "bench/ends.h"

#define MAX_PEERS 16
#define WARM	  50
#define WINDOW	  32 /* requests of a stream in flight */
#define ACCESS                                                    \
	(PINION_ACCESS_REMOTE_READ | PINION_ACCESS_REMOTE_WRITE | \
	 PINION_ACCESS_REMOTE_ATOMIC)
#define TAG	 7
#define TAG_DONE 8

struct values {
	char device[PN_OPTION_TEXT_BYTES], op[PN_OPTION_TEXT_BYTES];
	uint64_t bytes, times, peers;
	bool json;
};

static const struct pn_option options[] = {
	PN_COMMAND_DEVICE(struct values, device),
	{ "op", PN_OPTION_TEXT, "message_lat",
	  "message_lat, message_bw, put_lat, get_lat, add_lat or put_bw",
	  offsetof(struct values, op), 0, 0, NULL },
	{ "bytes", PN_OPTION_BYTES, "8", "size of an operation",
	  offsetof(struct values, bytes), 8, 1 << 26, NULL },
	{ "times", PN_OPTION_NUMBER, "1000", "number of operations",
	  offsetof(struct values, times), 1, 1 << 24, NULL },
	{ "peers", PN_OPTION_NUMBER, "1", "number of other processes",
	  offsetof(struct values, peers), 1, MAX_PEERS, NULL },
	PN_COMMAND_JSON(struct values, json),
};

/* --- a process of the benchmark ------------------------------------------- */

struct other {
	struct pinion_peer *peer;
	struct pinion_remote *remote;
	int sock;
	uint8_t turn; /* put_lat: of the last put of either side */
};

/* Each process has an exposed memory. A follower uses the first part, as large
 * as an operation; the leader one such part for each follower. Behind them is
 * the source of puts and messages and the target of gets and receives. */
struct party {
	const struct values *values;
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	struct pinion_exposure *exposure;
	struct other others[MAX_PEERS];
	unsigned nothers;
	unsigned index; /* of a follower: its part of the leader's memory */
	char *memory, *local;
	size_t memory_bytes;
	struct pinion_request *unfinished; /* put_answer() */
};

struct card {
	struct pinion_address address;
	struct pinion_exposure_key key;
};

static int open_endpoint(struct party *p, const char *device)
{
	struct pinion_endpoint_attr attr = {
		.size = sizeof(attr), .flags = PINION_ENDPOINT_SINGLE_THREADED
	};
	char option[PN_OPTION_TEXT_BYTES + 8];
	const char *options_of[] = { option, NULL };
	struct pinion_attr context = { .size = sizeof(context),
				       .options = options_of };
	int ret;

	snprintf(option, sizeof(option), "device=%s", device);
	ret = pinion_open(&context, &p->context);
	return ret ? ret : pinion_endpoint_open(p->context, &attr, &p->ep);
}

static int expose(struct party *p)
{
	size_t parts = p->nothers * p->values->bytes;
	void *memory;
	int ret;

	p->memory_bytes = parts + p->values->bytes;
	ret = pn_pages_map(p->memory_bytes, NULL, &memory);
	if (ret)
		return ret;
	memset(memory, 0, p->memory_bytes);
	p->memory = memory;
	p->local = p->memory + parts;
	return pinion_exposure_open(p->ep, memory, parts, ACCESS, &p->exposure);
}

static int meet(struct party *p, struct other *other)
{
	struct card mine, theirs;
	int ret = pinion_endpoint_address(p->ep, &mine.address);

	if (!ret)
		ret = pinion_exposure_key(p->exposure, &mine.key);
	if (!ret)
		ret = pn_end_socket_send(other->sock, &mine, sizeof(mine));
	if (!ret)
		ret = pn_end_socket_recv(other->sock, &theirs, sizeof(theirs));
	if (!ret)
		ret = pinion_peer_add(p->ep, &theirs.address, &other->peer);
	return ret ? ret
		   : pinion_remote_open(p->ep, other->peer, &theirs.key,
					&other->remote);
}

static int party_open(struct party *p, const char *device)
{
	int ret = open_endpoint(p, device);

	if (!ret)
		ret = expose(p);
	for (unsigned i = 0; !ret && i < p->nothers; i++)
		ret = meet(p, &p->others[i]);
	return ret;
}

static void party_close(struct party *p)
{
	pinion_close(p->context);
	if (p->memory)
		pn_pages_unmap(p->memory, p->memory_bytes, NULL);
}

/* Ends the request in the slot, if any. */
static int finish(struct party *p, struct pinion_request **request)
{
	struct pinion_request *r = *request;

	*request = NULL;
	return r ? pinion_wait(p->ep, r, PINION_FOREVER, NULL) : 0;
}

/* --- operations ----------------------------------------------------------- */

static struct pinion_message message_of(struct party *p, struct other *other,
					uint64_t tag)
{
	return (struct pinion_message){ .size = sizeof(struct pinion_message),
					.buf = p->local,
					.len = tag == TAG_DONE
						       ? 8
						       : p->values->bytes,
					.tag = tag,
					.peer = other->peer };
}

static int begin_send(struct party *p, struct other *other,
		      struct pinion_request **request)
{
	struct pinion_message message = message_of(p, other, TAG);

	return pinion_send(p->ep, &message, request);
}

static int begin_recv(struct party *p, struct other *other,
		      struct pinion_request **request)
{
	struct pinion_message message = message_of(p, other, TAG);

	return pinion_recv(p->ep, &message, request);
}

static int begin_put(struct party *p, struct other *other,
		     struct pinion_request **request)
{
	struct pinion_move move = { .size = sizeof(move),
				    .remote = other->remote,
				    .offset = p->index * p->values->bytes,
				    .buf = p->local,
				    .len = p->values->bytes };

	return pinion_put(p->ep, &move, request);
}

static int begin_get(struct party *p, struct other *other,
		     struct pinion_request **request)
{
	struct pinion_move move = { .size = sizeof(move),
				    .remote = other->remote,
				    .buf = p->local,
				    .len = p->values->bytes };

	return pinion_get(p->ep, &move, request);
}

static int begin_add(struct party *p, struct other *other,
		     struct pinion_request **request)
{
	struct pinion_atomic atomic = { .size = sizeof(atomic),
					.remote = other->remote,
					.operand = 1,
					.result = (uint64_t *)p->local };

	return pinion_atomic_fetch_add(p->ep, &atomic, request);
}

typedef int begin_fn(struct party *p, struct other *other,
		     struct pinion_request **request);

static int execute(struct party *p, struct other *other, begin_fn *begin)
{
	struct pinion_request *request = NULL;
	int ret = begin(p, other, &request);

	return ret ? ret : finish(p, &request);
}

/* One round trip of messages. */
static int message_trip(struct party *p, struct other *other)
{
	int ret = execute(p, other, begin_send);

	return ret ? ret : execute(p, other, begin_recv);
}

static int message_answer(struct party *p, struct other *other)
{
	int ret = execute(p, other, begin_recv);

	return ret ? ret : execute(p, other, begin_send);
}

static int put_turn(struct party *p, struct other *other,
		    struct pinion_request **request)
{
	p->local[p->values->bytes - 1] = (char)++other->turn;
	return begin_put(p, other, request);
}

/* Ends the request if that takes no waiting. */
static void test_request(struct party *p, struct pinion_request **request)
{
	if (*request && !pinion_test(p->ep, *request, NULL))
		*request = NULL;
}

/* Polls until the other side has put the next turn, which needs no CPU here.
 * Meanwhile ends the own put. */
static int await_turn(struct party *p, struct other *other, unsigned part,
		      struct pinion_request **request)
{
	const volatile uint8_t *last = (const volatile uint8_t *)p->memory +
				       (part + 1) * p->values->bytes - 1;
	uint64_t looks = 0, deadline = pn_clock_ns() + PN_BLOCKING_TIMEOUT_NS;
	uint8_t turn = ++other->turn;

	while (*last != turn) {
		test_request(p, request);
		if (++looks % 4096 == 0 && pn_clock_ns() > deadline)
			return -ETIMEDOUT;
	}
	return 0;
}

static int put_trip(struct party *p, struct other *other)
{
	struct pinion_request *request = NULL;
	int ret = put_turn(p, other, &request);

	if (!ret)
		ret = await_turn(p, other, (unsigned)(other - p->others),
				 &request);
	return ret ? ret : finish(p, &request);
}

/* A follower ends its put while it waits for the next turn. */
static int put_answer(struct party *p, struct other *other)
{
	int ret = await_turn(p, other, 0, &p->unfinished);

	if (!ret)
		ret = finish(p, &p->unfinished);
	return ret ? ret : put_turn(p, other, &p->unfinished);
}

static int get_trip(struct party *p, struct other *other)
{
	return execute(p, other, begin_get);
}

static int add_trip(struct party *p, struct other *other)
{
	return execute(p, other, begin_add);
}

/* --- streams -------------------------------------------------------------- */

static int stream(struct party *p, begin_fn *begin, uint64_t n)
{
	struct pinion_request *requests[WINDOW] = { NULL };
	int ret = 0;

	for (uint64_t i = 0; !ret && i < n + WINDOW; i++) {
		ret = finish(p, &requests[i % WINDOW]);
		if (!ret && i < n)
			ret = begin(p, &p->others[i % p->nothers],
				    &requests[i % WINDOW]);
	}
	return ret;
}

/* The others have received everything. */
static int await_done(struct party *p)
{
	struct pinion_request *request;
	int ret = 0;

	for (unsigned i = 0; !ret && i < p->nothers; i++) {
		struct pinion_message done =
			message_of(p, &p->others[i], TAG_DONE);

		ret = pinion_recv(p->ep, &done, &request);
		if (!ret)
			ret = finish(p, &request);
	}
	return ret;
}

static int send_done(struct party *p)
{
	struct pinion_message done = message_of(p, p->others, TAG_DONE);
	struct pinion_request *request;
	int ret = pinion_send(p->ep, &done, &request);

	return ret ? ret : finish(p, &request);
}

static int message_stream(struct party *p, uint64_t n)
{
	int ret = stream(p, begin_send, n);

	return ret ? ret : await_done(p);
}

static int receive_stream(struct party *p, uint64_t n)
{
	int ret = stream(p, begin_recv, n);

	return ret ? ret : send_done(p);
}

static int put_stream(struct party *p, uint64_t n)
{
	return stream(p, begin_put, n);
}

/* --- the table of operations ---------------------------------------------- */

struct operation {
	const char *name;
	double per_trip; /* operations in a trip */
	int (*trip)(struct party *p, struct other *other);
	int (*answer)(struct party *p, struct other *other);
	int (*stream)(struct party *p, uint64_t n); /* instead of trips */
	int (*receive)(struct party *p, uint64_t n);
};

static const struct operation operations[] = {
	{ "message_lat", 2, message_trip, message_answer, NULL, NULL },
	{ "message_bw", 1, NULL, NULL, message_stream, receive_stream },
	{ "put_lat", 2, put_trip, put_answer, NULL, NULL },
	{ "get_lat", 1, get_trip, NULL, NULL, NULL },
	{ "add_lat", 1, add_trip, NULL, NULL, NULL },
	{ "put_bw", 1, NULL, NULL, put_stream, NULL },
};

static const struct operation *find_operation(const char *name)
{
	for (size_t i = 0; i < PN_ARRAY_LEN(operations); i++)
		if (!strcmp(operations[i].name, name))
			return &operations[i];
	return NULL;
}

/* Every peer gets the same number of operations. */
static uint64_t warm_times(const struct values *v)
{
	return v->peers * ((WARM + v->peers - 1) / v->peers);
}

static uint64_t times(const struct values *v)
{
	return v->peers * ((v->times + v->peers - 1) / v->peers);
}

/* --- measuring ------------------------------------------------------------ */

struct figures {
	double us, mean_us; /* NaN: a stream */
	double per_s;	    /* NaN: a latency */
};

static double mean_of(const double *samples, uint64_t n)
{
	double sum = 0;

	for (uint64_t i = 0; i < n; i++)
		sum += samples[i];
	return sum / (double)n;
}

static int measure_trips(struct party *p, const struct operation *op,
			 struct figures *figures)
{
	uint64_t warm = warm_times(p->values), n = warm + times(p->values);
	double *samples = calloc(n, sizeof(*samples));
	int ret = samples ? 0 : -ENOMEM;

	for (uint64_t i = 0; !ret && i < n; i++) {
		uint64_t start = pn_clock_ns();

		ret = op->trip(p, &p->others[i % p->nothers]);
		samples[i] =
			(double)(pn_clock_ns() - start) / 1e3 / op->per_trip;
	}
	if (!ret) {
		figures->mean_us = mean_of(samples + warm, n - warm);
		figures->us = pn_median(samples + warm, n - warm);
	}
	free(samples);
	return ret;
}

static int measure_stream(struct party *p, const struct operation *op,
			  double *per_s)
{
	uint64_t n = times(p->values), start;
	int ret = op->stream(p, warm_times(p->values));

	start = pn_clock_ns();
	if (!ret)
		ret = op->stream(p, n);
	*per_s = 1e9 * (double)n / (double)(pn_clock_ns() - start);
	return ret;
}

static int follow(struct party *p, const struct operation *op)
{
	uint64_t share[] = { warm_times(p->values) / p->values->peers,
			     times(p->values) / p->values->peers };
	int ret = 0;

	if (op->receive) {
		ret = op->receive(p, share[0]);
		return ret ? ret : op->receive(p, share[1]);
	}
	for (uint64_t i = 0; op->answer && !ret && i < share[0] + share[1]; i++)
		ret = op->answer(p, p->others);
	return ret ? ret : finish(p, &p->unfinished);
}

static void print(const struct values *v, const char *device,
		  const struct figures *f)
{
	struct pn_report report = { .json = v->json,
				    .bench = "ops",
				    .device = device };
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("op", "op", -12, v->op),
		PN_CELL_BYTES("bytes", "bytes", 7, v->bytes),
		PN_CELL_COUNT("peers", "peers", 6, v->peers),
		PN_CELL_COUNT("times", "times", 8, times(v)),
		PN_CELL_NUMBER("latency_us", "latency us", 11, f->us),
		PN_CELL_NUMBER("mean_us", "mean us", 11, f->mean_us),
		PN_CELL_RATE("ops_per_s", "ops/s", 9, f->per_s),
		PN_CELL_RATE("bytes_per_s", "bytes/s", 9,
			     f->per_s * (double)v->bytes),
	};

	pn_report_head(&report, pn_bench_ops.help);
	pn_report_row(&report, row, PN_ARRAY_LEN(row));
}

/* --- processes ------------------------------------------------------------ */

/* Processes that poll share no core while there are enough. */
static void bind_to_cpu(unsigned which)
{
	cpu_set_t all, one;
	unsigned n = 0;

	if (sched_getaffinity(0, sizeof(all), &all))
		return;
	which %= (unsigned)CPU_COUNT(&all);
	CPU_ZERO(&one);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && n++ == which)
			CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

static int run_leader(struct party *p, const struct operation *op,
		      const char *device)
{
	struct figures figures = { NAN, NAN, NAN };
	char end = 0;
	int ret = party_open(p, device);

	if (!ret)
		ret = op->trip ? measure_trips(p, op, &figures)
			       : measure_stream(p, op, &figures.per_s);
	for (unsigned i = 0; i < p->nothers; i++)
		pn_end_socket_send(p->others[i].sock, &end, sizeof(end));
	if (!ret)
		print(p->values, device, &figures);
	party_close(p);
	return ret;
}

/* The memory stays until the leader has finished. */
static _Noreturn void run_follower(struct party *p, const struct operation *op,
				   const char *device)
{
	int ret = party_open(p, device);
	char end;

	if (!ret)
		ret = follow(p, op);
	if (!ret)
		ret = pn_end_socket_recv(p->others[0].sock, &end, sizeof(end));
	party_close(p);
	_exit(!!ret);
}

static int start_follower(struct party *leader, unsigned i,
			  const struct operation *op, const char *device)
{
	struct party follower = { .values = leader->values,
				  .nothers = 1,
				  .index = i };
	int socks[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks))
		return -errno;
	pid = fork(); /* before any device is opened */
	if (pid < 0)
		return -errno;
	if (!pid) {
		for (unsigned j = 0; j < i; j++)
			close(leader->others[j].sock);
		close(socks[0]);
		bind_to_cpu(i + 1);
		follower.others[0].sock = socks[1];
		run_follower(&follower, op, device);
	}
	close(socks[1]);
	leader->others[i].sock = socks[0];
	leader->nothers = i + 1;
	return 0;
}

static int run_all(const struct values *v, const struct operation *op,
		   const char *device)
{
	struct party leader = { .values = v };
	int ret = 0;

	for (unsigned i = 0; !ret && i < v->peers; i++)
		ret = start_follower(&leader, i, op, device);
	bind_to_cpu(0);
	if (!ret)
		ret = run_leader(&leader, op, device);
	for (unsigned i = 0; i < leader.nothers; i++)
		close(leader.others[i].sock);
	while (wait(NULL) > 0 || errno == EINTR)
		;
	return ret;
}

static int run(const void *values, char *const *operands)
{
	const struct values *v = values;
	const struct operation *op = find_operation(v->op);
	struct pn_spec spec;
	int ret;

	(void)operands;
	if (!op)
		return pn_usage_error("bench ops: no operation \"%s\"", v->op);
	if (pn_spec_find(&spec, v->device))
		return PN_EXIT_USAGE;
	signal(SIGPIPE, SIG_IGN);
	ret = run_all(v, op, spec.text);
	return ret ? pn_spec_exit("bench ops", ret) : PN_EXIT_OK;
}

const struct pn_command pn_bench_ops = {
	.name = "ops",
	.help = "what does one operation of the public API take?",
	.about = "Measures one operation of one size between this process and "
		 "one or several others on the same device: messages, puts, "
		 "gets and fetch-adds one at a time, and streams of messages "
		 "and puts.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
