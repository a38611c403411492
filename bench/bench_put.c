/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How fast are put, get and atomics through pinion, by size and by number of
 * uses of a buffer, compared with the device?
 *
 * The follower exposes memory; the leader puts to it and gets from it, one
 * operation after the other, from buffers that are new in every trial and each
 * used `reuse` times. `raw` is the same operation posted to the device, from
 * registered memory. All alternatives of a size are measured alternately within
 * one run; figures are medians over the rounds, and the ratio to raw is the
 * median of the ratios of the rounds. Mapping and filling buffers and ending
 * their registrations is not timed. In virtual time all rounds are equal: one
 * is enough.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/range.h"
#include "bench/bench.h"
#include "bench/session.h"
#include "message/connection/wire.h"
#include "message/endpoint/endpoint.h"

#define MAX_ROUNDS  201
#define TRIAL_BYTES ((size_t)16 << 20) /* approximate bytes of a trial */
#define MAX_TIMES   200

struct values {
	struct pn_bench_values common;
	uint64_t reuse;
	uint64_t buffers;
};

#define AT(name) offsetof(struct values, name)

static const struct pn_option options[] = {
	PN_BENCH_OPTIONS("8", "4M", "20s"),
	{ "reuse", PN_OPTION_NUMBER, "32",
	  "number of uses of each buffer, besides 1", AT(reuse), 1, 1 << 16,
	  NULL },
	{ "buffers", PN_OPTION_NUMBER, "4",
	  "number of buffers of a trial, used one after the other", AT(buffers),
	  1, 1 << 10, NULL },
};

/* --- the alternatives of a size --------------------------------------------
 */

enum what { PUT, GET, FETCH_ADD, NWHATS };

static const char *const names[NWHATS] = { "put", "get", "fetch-add" };

struct entry {
	enum what what;
	bool raw;
	unsigned uses;
	unsigned buffers;
	size_t peak_bytes;
	double ns[MAX_ROUNDS];
	double ratio;
};

struct state {
	struct pn_bench_run run;
	const struct values *values;
	struct pn_session *session;
	struct pinion_remote *remote;
	struct pn_wire_key target; /* the operation of the device */
	struct entry entries[3 * NWHATS];
	unsigned nentries;
};

static unsigned times_of(size_t bytes)
{
	size_t n = TRIAL_BYTES / (bytes + 1);

	return n < 1 ? 1 : n > MAX_TIMES ? MAX_TIMES : (unsigned)n;
}

static void add_entry(struct state *s, enum what what, bool raw,
		      unsigned buffers, unsigned uses)
{
	s->entries[s->nentries++] = (struct entry){
		.what = what, .raw = raw, .buffers = buffers, .uses = uses
	};
}

/* Raw comes first of its kind, since the ratios need it. An atomic has no
 * buffer to register: one row for all numbers of uses. */
static void choose_entries(struct state *s, size_t bytes)
{
	unsigned buffers = (unsigned)s->values->buffers;

	s->nentries = 0;
	for (enum what w = PUT; w <= GET; w++) {
		add_entry(s, w, true, 1, times_of(bytes));
		add_entry(s, w, false, buffers, 1);
		if (s->values->reuse > 1)
			add_entry(s, w, false, buffers,
				  (unsigned)s->values->reuse);
	}
	if (bytes == 8 && s->session->device->caps & PN_CAP_ATOMICS) {
		add_entry(s, FETCH_ADD, true, 1, times_of(bytes));
		add_entry(s, FETCH_ADD, false, 1, times_of(bytes));
	}
}

/* --- the device's own ----------------------------------------------------- */

static int raw_once(struct state *s, const struct entry *e,
		    struct pn_peer *peer, const struct pn_mr *mr)
{
	static const enum pn_op_kind kinds[NWHATS] = { PN_OP_WRITE, PN_OP_READ,
						       PN_OP_FETCH_ADD };
	struct pn_sge sge = { mr->addr, mr->len, mr->lkey };
	struct pn_op op = { .kind = kinds[e->what],
			    .sge = &sge,
			    .nsge = 1,
			    .remote_addr = s->target.addr,
			    .rkey = s->target.rkey,
			    .operand = 1 };
	struct pn_blocking_transfer move = { .kind = op.kind,
					     .peer = peer,
					     .local = mr->addr,
					     .lkey = mr->lkey,
					     .remote_addr = s->target.addr,
					     .rkey = s->target.rkey,
					     .len = mr->len };
	struct pn_completion c;
	int ret;

	if (e->what != FETCH_ADD)
		return pn_blocking_transfer(s->session->device, &move);
	ret = pn_blocking_post(s->session->device, peer, &op);
	return ret ? ret
		   : pn_blocking_poll(s->session->device, PN_COMPLETION_OP, &c);
}

static int measure_raw(struct state *s, const struct entry *e, size_t bytes,
		       double *ns)
{
	struct pn_device *device = s->session->device;
	struct pn_peer *peer;
	struct pn_mr mr;
	uint64_t start;
	int ret = pn_pair_map(device, bytes, PINION_ACCESS_LOCAL_WRITE, &mr);

	if (ret)
		return ret;
	ret = mr.len < bytes ? -ENOMEM : pn_session_quiesce(s->session, &peer);
	mr.len = bytes;
	if (!ret)
		ret = raw_once(s, e, peer, &mr); /* warm-up */
	start = pn_device_now(device);
	for (unsigned i = 0; !ret && i < e->uses; i++)
		ret = raw_once(s, e, peer, &mr);
	*ns = pn_device_since(device, start) / e->uses;
	mr.len = pn_range_pages(0, bytes, PN_PAGE_BYTES).len;
	pn_pair_unmap(device, &mr);
	return ret;
}

/* --- through pinion ------------------------------------------------------- */

static int pinion_once(struct state *s, const struct entry *e, void *buf,
		       size_t bytes)
{
	struct pinion_endpoint *ep = s->session->ep;
	struct pinion_move move = { .size = sizeof(move),
				    .remote = s->remote,
				    .buf = buf,
				    .len = bytes };
	struct pinion_atomic atomic = { .size = sizeof(atomic),
					.remote = s->remote,
					.operand = 1,
					.result = buf };
	struct pinion_request *request;
	int ret = e->what == PUT ? pinion_put(ep, &move, &request)
		  : e->what == GET
			  ? pinion_get(ep, &move, &request)
			  : pinion_atomic_fetch_add(ep, &atomic, &request);

	return ret ? ret : pinion_wait(ep, request, PINION_FOREVER, NULL);
}

static const struct pn_pages_policy present = { .huge = PN_PAGES_NORMAL,
						.numa_node = -1,
						.populate = true };

/* A page between the buffers keeps the cache from merging them. */
static int measure_pinion(struct state *s, struct entry *e, size_t bytes,
			  double *ns)
{
	size_t stride =
		pn_range_pages(0, bytes, PN_PAGE_BYTES).len + PN_PAGE_BYTES;
	struct pn_budget *budget = &s->session->context->budget;
	unsigned n = e->buffers * e->uses;
	uint64_t start;
	void *memory;
	int ret = pn_pages_map(e->buffers * stride, &present, &memory);

	if (ret)
		return ret;
	atomic_store(&budget->peak_bytes, atomic_load(&budget->bytes));
	start = pn_device_now(s->session->device);
	for (unsigned i = 0; !ret && i < n; i++)
		ret = pinion_once(s, e, (char *)memory + i / e->uses * stride,
				  bytes);
	*ns = pn_device_since(s->session->device, start) / n;
	if (atomic_load(&budget->peak_bytes) > e->peak_bytes)
		e->peak_bytes = atomic_load(&budget->peak_bytes);
	pn_pages_unmap(memory, e->buffers * stride, &present);
	pn_cache_flush(s->session->context->cache);
	return ret;
}

/* --- rows ----------------------------------------------------------------- */

static const struct entry *raw_of(const struct state *s, const struct entry *e)
{
	while (!e->raw)
		e--;
	pn_assert(e >= s->entries);
	return e;
}

static double median_ratio(const struct state *s, const struct entry *e,
			   size_t rounds)
{
	double ratios[MAX_ROUNDS];

	for (size_t i = 0; i < rounds; i++)
		ratios[i] = raw_of(s, e)->ns[i] / e->ns[i];
	return pn_median(ratios, rounds);
}

static void print_entry(struct state *s, struct entry *e, size_t bytes,
			size_t rounds)
{
	const double ns = pn_median(e->ns, rounds);
	char name[32];
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("protocol", "protocol", -14, name),
		PN_CELL_BYTES("bytes", "bytes", 6, bytes),
		PN_CELL_COUNT("reuse", "reuse", 6, e->uses),
		PN_CELL_RATE("bytes_per_s", "bytes/s", 8,
			     1e9 * (double)bytes / ns),
		PN_CELL_NUMBER("latency_us", "latency us", 10, ns / 1e3),
		PN_CELL_NUMBER("ratio_to_raw", "of raw", 6, e->ratio),
		PN_CELL_BYTES("registered_bytes_peak", "registered", 10,
			      e->peak_bytes),
		PN_CELL_COUNT("rounds", "rounds", 6, rounds),
		PN_CELL_COUNT("buffers", NULL, 0, e->buffers),
	};

	snprintf(name, sizeof(name), "%s%s", e->raw ? "raw-" : "",
		 names[e->what]);
	pn_report_progress(NULL);
	pn_report_row(&s->run.report, row, PN_ARRAY_LEN(row));
}

/* Measures every entry once; the order changes from round to round. */
static int run_round(void *arg, size_t bytes, size_t round)
{
	struct state *s = arg;
	char text[PN_REPORT_BYTES_LEN];

	pn_report_progress(pn_report_bytes(bytes, text));
	for (unsigned i = 0; i < s->nentries; i++) {
		struct entry *e =
			&s->entries[(i + (unsigned)round) % s->nentries];
		int ret = e->raw ? measure_raw(s, e, bytes, &e->ns[round])
				 : measure_pinion(s, e, bytes, &e->ns[round]);

		if (ret) {
			pn_report_progress(NULL);
			pn_failed(names[e->what], ret);
			return PN_BENCH_REPORTED;
		}
	}
	return 0;
}

/* Ratios first: computing a median reorders the samples. */
static void print_size(struct state *s, size_t bytes, size_t rounds)
{
	for (unsigned i = 0; i < s->nentries; i++)
		s->entries[i].ratio = median_ratio(s, &s->entries[i], rounds);
	for (unsigned i = 0; i < s->nentries; i++)
		print_entry(s, &s->entries[i], bytes, rounds);
}

static int measure_size(struct state *s, size_t bytes)
{
	const struct pn_bench_rounds rounds = { run_round, s, 3, MAX_ROUNDS };
	size_t n;
	int ret;

	choose_entries(s, bytes);
	ret = pn_bench_run_rounds(&s->run, &rounds, bytes,
				  pn_bench_share_ns(&s->run), &n);
	if (!ret)
		print_size(s, bytes, n);
	return ret;
}

/* --- both ends ------------------------------------------------------------ */

/* Sent by the follower when its memory is exposed. */
struct exposed {
	int status;
	struct pinion_exposure_key key;
};

static int expose(struct pn_session *session, uint64_t bytes)
{
	const unsigned access = PINION_ACCESS_REMOTE_READ |
				PINION_ACCESS_REMOTE_WRITE |
				PINION_ACCESS_REMOTE_ATOMIC;
	struct pinion_exposure *exposure = NULL;
	struct exposed answer = { 0 };
	void *memory;
	int ret;

	answer.status = pn_pages_map(bytes, &present, &memory);
	if (answer.status)
		return pn_session_send(session, &answer, sizeof(answer));
	answer.status = pinion_exposure_open(session->ep, memory, bytes, access,
					     &exposure);
	if (!answer.status)
		answer.status = pinion_exposure_key(exposure, &answer.key);
	ret = pn_session_send(session, &answer, sizeof(answer));
	if (!ret)
		ret = pn_session_recv(session, &answer,
				      sizeof(answer)); /* done */
	pinion_exposure_close(exposure);
	pn_pages_unmap(memory, bytes, &present);
	return ret;
}

static int measure_all(struct state *s)
{
	const struct pn_bench_values *v = &s->values->common;
	int ret = 0;

	pn_bench_plan(&s->run, pn_bench_nsizes(v->min, v->max));
	for (size_t bytes = v->min; !ret && bytes <= v->max; bytes *= 2)
		ret = measure_size(s, bytes);
	return ret;
}

/* Of a key with several parts raw reaches the first only. */
static int set_target(struct state *s, const struct pinion_exposure_key *key)
{
	struct pn_wire_key keys[PN_KEY_MAX];
	struct pn_key_head head;
	int ret = pn_key_parse(key->data, key->len, &head, keys);

	if (!ret && head.nkeys > 1)
		ret = -EMSGSIZE;
	s->target = keys[0];
	return ret ? ret
		   : pinion_remote_open(s->session->ep, s->session->peer, key,
					&s->remote);
}

static int body(struct pn_session *session, void *arg)
{
	struct state *s = arg;
	struct exposed answer;
	int ret;

	s->session = session;
	pn_session_begin(session, &s->run, &pn_bench_put);
	ret = pn_session_start_job(session, expose, s->values->common.max);
	if (!ret)
		ret = pn_session_recv(session, &answer, sizeof(answer));
	if (!ret)
		ret = answer.status;
	if (!ret)
		ret = set_target(s, &answer.key);
	if (!ret)
		ret = measure_all(s);
	pinion_remote_close(s->remote);
	return ret ? ret : pn_session_send(session, &answer, sizeof(answer));
}

static int run_put(const void *v, char *const *operands)
{
	struct state *s = calloc(1, sizeof(*s));
	int ret;

	(void)operands;
	if (!s)
		return pn_failed("put", -ENOMEM);
	s->values = v;
	if (s->values->common.min > s->values->common.max)
		ret = pn_usage_error("--min is above --max");
	else
		ret = pn_session_bench(&s->run, v, &pn_bench_put, body, s);
	free(s);
	return ret;
}

const struct pn_command pn_bench_put = {
	.name = "put",
	.help = "how fast are put, get and atomics?",
	.about = "Bandwidth, latency and registered bytes of put, get and "
		 "fetch-add by size and number of uses of a buffer, compared "
		 "with the same operation posted to the device, alternately "
		 "within one run.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_put,
};
