/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What do FRRWP and conditional writes save (Ou and others 2009, sections 6 and
 * 8; row M10)?
 *
 * A client requests bytes of a server; neither buffer is registered yet.
 *
 *   sequential         the client registers, then requests with its key; the
 *                      server registers, writes
 *   frrwp              the client requests at once, registers, sends its key;
 *                      the server registers on the request, writes when it has
 *                      the key
 *   conditional-write  the same with pinion_grant() and pinion_put_when(): the
 *                      write begins inside pinion when the grant arrives
 *   posted-ahead       the same, with the server's conditional write posted
 *                      before the request
 *
 * The client measures the time from its first step to the arrival of the bytes.
 * The first two use the device only, as in the paper's figures. Where a program
 * handles a message, the profile's cost of a completion entry (T1), of the
 * kernel crossing to poll it (T2) and of the one to post the next operation
 * (T3) are charged; pinion itself needs none. `bare` is the sequential exchange
 * without registrations and without these charges: the time on the wire, which
 * the paper's figures exclude. In virtual time all trials are equal; otherwise
 * the median counts.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/range.h"
#include "bench/bench.h"
#include "bench/session.h"
#include "device/profiles.h"
#include "message/endpoint/endpoint.h"

#define MAX_TRIALS 101
#define TAG	   7

struct values {
	struct pn_bench_values common; /* min and max are not options here */
	uint64_t min, max;	       /* pages */
};

#define AT(name) offsetof(struct values, name)

static const struct pn_option options[] = {
	{ "device", PN_OPTION_TEXT, "sim:cost=ou2009",
	  "device spec; its profile defines T1, T2 and T3", AT(common.device),
	  0, 0, NULL },
	{ "min", PN_OPTION_NUMBER, "1", "fewest pages", AT(min), 1, 1 << 14,
	  NULL },
	{ "max", PN_OPTION_NUMBER, "32",
	  "maximum number of pages; doubled from the minimum", AT(max), 1,
	  1 << 14, NULL },
	{ "budget", PN_OPTION_TIME, "5s", "approximate time limit",
	  AT(common.budget), PN_NS_PER_MS, 0, NULL },
	PN_COMMAND_JSON(struct values, common.json),
};

enum flow { BARE, SEQUENTIAL, FRRWP, CONDITIONAL, POSTED_AHEAD, NFLOWS };

static const char *const names[NFLOWS] = { "bare", "sequential", "frrwp",
					   "conditional-write",
					   "posted-ahead" };

/* --- what both ends do ---------------------------------------------------- */

/* One end of a trial. */
struct end {
	struct pn_session *session;
	struct pn_peer *peer; /* of the device */
	enum flow flow;
	size_t bytes;
	void *memory; /* pages are present */
	struct pn_mr mr;
};

/* Message from the client to the server over the device. */
struct request {
	uint64_t addr, rkey; /* rkey 0: a request without key */
};

static const struct pn_pages_policy present = { .huge = PN_PAGES_NORMAL,
						.numa_node = -1,
						.populate = true };

static int register_memory(struct end *e, unsigned access)
{
	struct pn_mr *mr = &e->mr;

	e->mr = (struct pn_mr){ .addr = e->memory,
				.len = e->bytes,
				.access = access };
	return pn_device_register(e->session->device, &mr, 1);
}

static void deregister_memory(struct end *e)
{
	struct pn_mr *mr = &e->mr;

	if (mr->lkey)
		pn_device_deregister(e->session->device, &mr, 1);
	mr->lkey = 0;
}

static void charge_field(const struct end *e, enum pn_profile_field field)
{
	const struct pn_profile *profile =
		pn_profile_find(e->session->device->profile);

	if (profile && e->flow != BARE)
		pn_device_consume_cpu(e->session->device,
				      pn_profile_field_ns(profile, field));
}

/* A program receives a message: a completion entry is written (T1) and polled
 * (T2). */
static void charge_receive(const struct end *e)
{
	charge_field(e, PN_PROFILE_COMPLETION_US);
	charge_field(e, PN_PROFILE_CROSSING_US);
}

/* A program posts the next operation (T3). */
static void charge_post(const struct end *e)
{
	charge_field(e, PN_PROFILE_CROSSING_US);
}

static int send_request(struct end *e, bool with_key)
{
	struct request request = { (uintptr_t)e->memory,
				   with_key ? e->mr.rkey : 0 };
	struct pn_sge sge = { &request, sizeof(request), 0 };
	struct pn_op op = { .kind = PN_OP_SEND,
			    .flags = PN_OP_INLINE | PN_OP_SILENT,
			    .sge = &sge,
			    .nsge = 1 };

	return pn_blocking_post(e->session->device, e->peer, &op);
}

static int recv_request(struct end *e, struct request *request)
{
	struct pn_completion c;
	int ret = pn_blocking_poll(e->session->device, PN_COMPLETION_RECV, &c);

	if (ret)
		return ret;
	memcpy(request, c.data, sizeof(*request));
	pn_device_return_buffer(e->session->device, &c);
	charge_receive(e);
	return 0;
}

/* --- over the device alone ------------------------------------------------ */

static int client_raw(struct end *e)
{
	struct pn_completion c;
	int ret = 0;

	if (e->flow == FRRWP)
		ret = send_request(e, false);
	if (!ret && e->flow != BARE)
		ret = register_memory(e, PINION_ACCESS_REMOTE_WRITE);
	if (!ret)
		ret = send_request(e, true);
	return ret ? ret
		   : pn_blocking_poll(e->session->device, PN_COMPLETION_IMM,
				      &c);
}

static int write_back(struct end *e, const struct request *to)
{
	struct pn_sge sge = { e->memory, e->bytes, e->mr.lkey };
	struct pn_op op = { .kind = PN_OP_WRITE,
			    .flags = PN_OP_IMM,
			    .sge = &sge,
			    .nsge = 1,
			    .remote_addr = to->addr,
			    .rkey = to->rkey };
	struct pn_completion c;
	int ret;

	charge_post(e);
	ret = pn_blocking_post(e->session->device, e->peer, &op);
	return ret ? ret
		   : pn_blocking_poll(e->session->device, PN_COMPLETION_OP, &c);
}

static int server_raw(struct end *e)
{
	struct request request;
	int ret = recv_request(e, &request);

	if (!ret && e->flow != BARE)
		ret = register_memory(e, 0);
	if (!ret && e->flow == FRRWP)
		ret = recv_request(e, &request);
	return ret ? ret : write_back(e, &request);
}

/* --- by conditional writes ------------------------------------------------ */

static struct pinion_message message_of(const struct end *e)
{
	return (struct pinion_message){ .size = sizeof(struct pinion_message),
					.buf = e->memory,
					.len = e->bytes,
					.tag = TAG,
					.peer = e->session->peer };
}

static int client_grants(struct end *e)
{
	struct pinion_message m = message_of(e);
	struct pinion_request *request;
	uint64_t start = 0;
	int ret = e->flow == CONDITIONAL
			  ? pn_session_send(e->session, &start, sizeof(start))
			  : 0;

	if (!ret)
		ret = pinion_grant(e->session->ep, &m, &request);
	return ret ? ret
		   : pinion_wait(e->session->ep, request, PINION_FOREVER, NULL);
}

static int server_puts(struct end *e)
{
	struct pinion_message m = message_of(e);
	struct pinion_request *request;
	uint64_t start;
	int ret = 0;

	if (e->flow == CONDITIONAL) {
		ret = pn_session_recv(e->session, &start, sizeof(start));
		charge_receive(e);
		charge_post(e);
	}
	if (!ret)
		ret = pinion_put_when(e->session->ep, &m, &request);
	/* Only now may the client send its request. */
	if (!ret && e->flow == POSTED_AHEAD)
		ret = pn_session_send(e->session, &m.tag, sizeof(m.tag));
	return ret ? ret
		   : pinion_wait(e->session->ep, request, PINION_FOREVER, NULL);
}

/* --- one trial ------------------------------------------------------------ */

static int end_open(struct end *e, unsigned access)
{
	int ret = pn_pages_map(e->bytes, &present, &e->memory);

	if (!ret && e->flow <= FRRWP)
		ret = pn_session_quiesce(e->session, &e->peer);
	if (!ret && e->flow == BARE)
		ret = register_memory(e, access);
	return ret;
}

/* Registrations end with the buffer; not timed. */
static void end_close(struct end *e)
{
	deregister_memory(e);
	if (e->memory)
		pn_pages_unmap(e->memory, e->bytes, &present);
	pn_cache_flush(e->session->context->cache);
}

static uint64_t pack(enum flow flow, size_t pages)
{
	return (uint64_t)pages << 8 | (unsigned)flow;
}

static int serve(struct pn_session *session, uint64_t arg)
{
	struct end e = { .session = session,
			 .flow = (enum flow)(arg & 0xff),
			 .bytes = (arg >> 8) * PN_PAGE_BYTES };
	uint64_t ready = 0;
	int ret = end_open(&e, 0);

	/* The client begins on this message: from now on the endpoint must not
	 * poll, since arriving messages are not for it. */
	if (!ret && e.flow != POSTED_AHEAD)
		ret = pn_session_send(session, &ready, sizeof(ready));
	if (!ret)
		ret = e.flow <= FRRWP ? server_raw(&e) : server_puts(&e);
	end_close(&e);
	return ret;
}

static int try_flow(struct pn_session *session, enum flow flow, size_t pages,
		    double *ns)
{
	struct end e = { .session = session,
			 .flow = flow,
			 .bytes = pages * PN_PAGE_BYTES };
	uint64_t ready, start;
	int ret = end_open(&e, PINION_ACCESS_REMOTE_WRITE);

	if (!ret)
		ret = pn_session_start_job(session, serve, pack(flow, pages));
	if (!ret)
		ret = pn_session_recv(session, &ready, sizeof(ready));
	if (!ret && flow <= FRRWP)
		ret = pn_session_quiesce(session, &e.peer);
	start = pn_device_now(session->device);
	if (!ret)
		ret = flow <= FRRWP ? client_raw(&e) : client_grants(&e);
	*ns = pn_device_since(session->device, start);
	end_close(&e);
	return ret;
}

/* --- rows ----------------------------------------------------------------- */

struct state {
	struct pn_bench_run run;
	const struct values *values;
	struct pn_session *session;
	double ns[NFLOWS][MAX_TRIALS];
	double median[NFLOWS];
};

/* The paper's figures are for one profile. */
static double paper_us(const struct state *s, size_t pages)
{
	return strcmp(s->session->device->profile, "ou2009")
		       ? NAN
		       : 15.42 + 0.77 * (double)pages;
}

static void print_flow(struct state *s, enum flow flow, size_t pages,
		       size_t trials)
{
	const double ns = s->median[flow], all = s->median[SEQUENTIAL];
	const double saved = all - ns, wire = s->median[BARE];
	const size_t bytes = pages * PN_PAGE_BYTES;
	const bool saves = flow > SEQUENTIAL;
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("protocol", "protocol", -17, names[flow]),
		PN_CELL_COUNT("pages", "pages", 5, pages),
		PN_CELL_BYTES("bytes", NULL, 0, bytes),
		PN_CELL_COUNT("reuse", NULL, 0, 1),
		PN_CELL_RATE("bytes_per_s", NULL, 0, 1e9 * (double)bytes / ns),
		PN_CELL_NUMBER("latency_us", "latency us", 10, ns / 1e3),
		PN_CELL_NUMBER("ratio_to_raw", NULL, 0, wire / ns),
		PN_CELL_NUMBER("saved_us", "saved us", 8,
			       saves ? saved / 1e3 : NAN),
		PN_CELL_NUMBER("paper_us", "paper us", 8,
			       saves ? paper_us(s, pages) : NAN),
		PN_CELL_NUMBER("share_percent", "share %", 7,
			       saves ? 100 * saved / all : NAN),
		PN_CELL_NUMBER("share_without_wire_percent", "no wire %", 9,
			       saves ? 100 * saved / (all - wire) : NAN),
		PN_CELL_COUNT("rounds", "rounds", 6, trials),
	};

	pn_report_row(&s->run.report, row, PN_ARRAY_LEN(row));
}

static int run_round(void *arg, size_t pages, size_t round)
{
	struct state *s = arg;
	int ret = 0;

	for (unsigned i = 0; !ret && i < NFLOWS; i++) {
		enum flow flow = (enum flow)((i + round) % NFLOWS);

		ret = try_flow(s->session, flow, pages, &s->ns[flow][round]);
		if (ret) {
			pn_failed(names[flow], ret);
			ret = PN_BENCH_REPORTED;
		}
	}
	return ret;
}

static int measure_pages(struct state *s, size_t pages)
{
	const struct pn_bench_rounds rounds = { run_round, s, 5, MAX_TRIALS };
	size_t n;
	int ret = pn_bench_run_rounds(&s->run, &rounds, pages,
				      pn_bench_share_ns(&s->run), &n);

	for (unsigned f = 0; !ret && f < NFLOWS; f++)
		s->median[f] = pn_median(s->ns[f], n);
	for (unsigned f = 0; !ret && f < NFLOWS; f++)
		print_flow(s, (enum flow)f, pages, n);
	return ret;
}

static int body(struct pn_session *session, void *arg)
{
	struct state *s = arg;
	int ret = 0;

	s->session = session;
	pn_session_begin(session, &s->run, &pn_bench_frrwp);
	pn_bench_plan(&s->run, pn_bench_nsizes(s->values->min, s->values->max));
	for (size_t p = s->values->min; !ret && p <= s->values->max; p *= 2)
		ret = measure_pages(s, p);
	return ret;
}

static int run_frrwp(const void *v, char *const *operands)
{
	struct state *s = calloc(1, sizeof(*s));
	int ret;

	(void)operands;
	if (!s)
		return pn_failed("frrwp", -ENOMEM);
	s->values = v;
	if (s->values->min > s->values->max)
		ret = pn_usage_error("--min is above --max");
	else
		ret = pn_session_bench(&s->run, v, &pn_bench_frrwp, body, s);
	free(s);
	return ret;
}

const struct pn_command pn_bench_frrwp = {
	.name = "frrwp",
	.help = "what do FRRWP and conditional writes save?",
	.about = "Time from the request for bytes of a server to their "
		 "arrival, with unregistered buffers: sequential, overlapped, "
		 "and with conditional writes, compared with the figures of "
		 "Ou, He and Han (2009).",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_frrwp,
};
