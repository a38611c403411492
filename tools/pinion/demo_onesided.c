/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/demo_onesided.h"

#include <errno.h>
#include <stdio.h>

#include "base/range.h"
#include "bench/bench.h"

#define REPEATS 50
#define TAG	3

/* --- the follower --------------------------------------------------------- */

enum job { FILL, CHECK, ADDED, GRANT, END };

struct order {
	enum job job;
	size_t offset, len;
	uint64_t seed;
};

struct answer {
	int status;
	/* CHECK, GRANT: offset of the first wrong byte; len: none */
	size_t wrong;
	struct pinion_exposure_key key;
};

static const struct pn_pages_policy present = { .huge = PN_PAGES_NORMAL,
						.numa_node = -1,
						.populate = true };

static int receive_granted(struct pn_session *session, char *at, size_t len)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = at,
				    .len = len,
				    .tag = TAG,
				    .peer = session->peer };
	struct pinion_request *request;
	int ret = pinion_grant(session->ep, &m, &request);

	return ret ? ret
		   : pinion_wait(session->ep, request, PINION_FOREVER, NULL);
}

static int run_order(struct pn_session *session, const struct order *order,
		     char *memory)
{
	struct answer answer = { .wrong = order->len };
	char *at = memory + order->offset;

	if (order->job == FILL)
		pn_pattern_fill(at, order->len, order->seed);
	if (order->job == GRANT)
		answer.status = receive_granted(session, at, order->len);
	if (order->job == CHECK || order->job == GRANT)
		answer.wrong = pn_pattern_check(at, order->len, order->seed);
	if (order->job == ADDED)
		answer.wrong = *(uint64_t *)memory == order->seed ? 8 : 0;
	return pn_session_send(session, &answer, sizeof(answer));
}

static int serve(struct pn_session *session, char *memory, size_t bytes)
{
	const unsigned access = PINION_ACCESS_REMOTE_READ |
				PINION_ACCESS_REMOTE_WRITE |
				PINION_ACCESS_REMOTE_ATOMIC;
	struct pinion_exposure *exposure = NULL;
	struct answer answer = { 0 };
	struct order order = { .job = FILL };
	int ret;

	answer.status = pinion_exposure_open(session->ep, memory, bytes, access,
					     &exposure);
	if (!answer.status)
		answer.status = pinion_exposure_key(exposure, &answer.key);
	ret = pn_session_send(session, &answer, sizeof(answer));
	while (!ret && !answer.status) {
		ret = pn_session_recv(session, &order, sizeof(order));
		if (ret || order.job == END)
			break;
		ret = run_order(session, &order, memory);
	}
	pinion_exposure_close(exposure);
	return ret;
}

static int run_follower(struct pn_session *session, uint64_t bytes)
{
	void *memory;
	int ret = pn_pages_map(bytes, &present, &memory);

	if (ret)
		return ret;
	ret = serve(session, memory, bytes);
	pn_pages_unmap(memory, bytes, &present);
	return ret;
}

/* --- the leader ----------------------------------------------------------- */

struct run_leader {
	struct pn_session *session;
	struct pn_demo_onesided *demo;
	struct pinion_remote *remote;
	char *buf;
};

static int wrong(const char *what, size_t at, size_t len)
{
	pn_report_progress(NULL);
	fprintf(stderr, "pinion: WRONG BYTES: %s of %zu bytes, at %zu\n", what,
		len, at);
	return -EBADMSG;
}

static int ask(struct run_leader *l, const char *what, struct order order)
{
	struct answer answer;
	int ret = pn_session_send(l->session, &order, sizeof(order));

	if (!ret)
		ret = pn_session_recv(l->session, &answer, sizeof(answer));
	if (!ret)
		ret = answer.status;
	if (!ret && answer.wrong < order.len)
		ret = wrong(what, answer.wrong, order.len);
	l->demo->checked += order.len;
	return ret;
}

typedef int move_fn(struct pinion_endpoint *ep, const struct pinion_move *move,
		    struct pinion_request **out);

static int move(struct run_leader *l, move_fn *fn, size_t offset, size_t len)
{
	struct pinion_move m = { .size = sizeof(m),
				 .remote = l->remote,
				 .offset = offset,
				 .buf = l->buf,
				 .len = len };
	struct pinion_request *request;
	int ret = fn(l->session->ep, &m, &request);

	l->demo->operations++;
	return ret ? ret
		   : pinion_wait(l->session->ep, request, PINION_FOREVER, NULL);
}

static int put_when(struct run_leader *l, size_t len)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = l->buf,
				    .len = len,
				    .tag = TAG,
				    .peer = l->session->peer };
	struct pinion_request *request;
	int ret = pinion_put_when(l->session->ep, &m, &request);

	l->demo->operations++;
	return ret ? ret
		   : pinion_wait(l->session->ep, request, PINION_FOREVER, NULL);
}

static int fetch_add(struct run_leader *l, uint64_t *old)
{
	struct pinion_atomic atomic = { .size = sizeof(atomic),
					.remote = l->remote,
					.operand = 3,
					.result = old };
	struct pinion_request *request;
	int ret = pinion_atomic_fetch_add(l->session->ep, &atomic, &request);

	l->demo->operations++;
	return ret ? ret
		   : pinion_wait(l->session->ep, request, PINION_FOREVER, NULL);
}

/* One size: put and let the follower check; let the follower fill and get;
 * write into a grant. */
static int check_size(struct run_leader *l, size_t offset, size_t len)
{
	struct order order = { CHECK, offset, len, l->demo->seed + len };
	size_t at;
	int ret;

	pn_pattern_fill(l->buf, len, order.seed);
	ret = move(l, pinion_put, offset, len);
	if (!ret)
		ret = ask(l, "put", order);
	order.job = FILL;
	order.seed++;
	if (!ret)
		ret = ask(l, "fill", order);
	if (!ret)
		ret = move(l, pinion_get, offset, len);
	at = ret ? len : pn_pattern_check(l->buf, len, order.seed);
	if (at < len)
		return wrong("get", at, len);
	order.job = GRANT;
	order.seed++;
	pn_pattern_fill(l->buf, len, order.seed);
	if (!ret)
		ret = pn_session_send(l->session, &order, sizeof(order));
	if (!ret)
		ret = put_when(l, len);
	if (!ret) {
		struct answer answer;

		ret = pn_session_recv(l->session, &answer, sizeof(answer));
		if (!ret && answer.wrong < len)
			ret = wrong("conditional write", answer.wrong, len);
		l->demo->checked += len;
	}
	return ret;
}

static int check_sizes(struct run_leader *l)
{
	int ret = 0;

	for (size_t size = 1; !ret && size < l->demo->max; size *= 4)
		for (size_t i = 0; !ret && i <= 2; i++)
			ret = check_size(l, (size * 37 + i) % 4000,
					 size - 1 + i);
	return ret;
}

static int check_atomics(struct run_leader *l)
{
	struct order clear = { .job = FILL, .len = 8 };
	struct order added = { .job = ADDED, .len = 8 };
	uint64_t first = 0, old;
	int ret = ask(l, "fill", clear);

	if (!ret)
		ret = fetch_add(l, &first);
	for (unsigned i = 1; !ret && i < 100; i++) {
		ret = fetch_add(l, &old);
		if (!ret && old != first + 3 * i)
			ret = wrong("fetch-add", i, 8);
	}
	added.seed = first + 300;
	return ret ? ret : ask(l, "fetch-add", added);
}

/* --- how fast ------------------------------------------------------------- */

enum what { PUT, GET, FETCH_ADD, NWHATS };

static int once(struct run_leader *l, enum what what, size_t bytes)
{
	uint64_t old;

	if (what == FETCH_ADD)
		return fetch_add(l, &old);
	return move(l, what == PUT ? pinion_put : pinion_get, 0, bytes);
}

static int time_one(struct run_leader *l, enum what what, size_t bytes)
{
	static const char *const names[NWHATS] = { "put", "get", "fetch-add" };
	struct pn_device *device = l->session->device;
	struct pn_budget *budget = &l->session->context->budget;
	double ns[REPEATS];
	int ret = 0;

	atomic_store(&budget->peak_bytes, atomic_load(&budget->bytes));
	for (unsigned i = 0; !ret && i < REPEATS; i++) {
		uint64_t start = pn_device_now(device);

		ret = once(l, what, bytes);
		ns[i] = pn_device_since(device, start);
	}
	if (!ret) {
		const double median = pn_median(ns, REPEATS);
		const struct pn_report_cell row[] = {
			PN_CELL_TEXT("protocol", "protocol", -16, names[what]),
			PN_CELL_BYTES("bytes", "bytes", 6, bytes),
			PN_CELL_COUNT("reuse", "reuse", 6, REPEATS),
			PN_CELL_NUMBER("latency_us", "latency us", 10,
				       median / 1e3),
			PN_CELL_RATE("bytes_per_s", "bytes/s", 8,
				     1e9 * (double)bytes / median),
			PN_CELL_BYTES("registered_bytes_peak", "registered", 10,
				      atomic_load(&budget->peak_bytes)),
		};

		pn_report_row(l->demo->report, row, PN_ARRAY_LEN(row));
	}
	return ret;
}

static int time_all(struct run_leader *l)
{
	int ret = 0;

	pn_report_series(l->demo->report);
	for (enum what w = PUT; !ret && w <= GET; w++)
		for (size_t bytes = 8; !ret && bytes <= l->demo->max;
		     bytes *= bytes == 8 ? 8192 : 16)
			ret = time_one(l, w, bytes);
	if (!ret && l->session->device->caps & PN_CAP_ATOMICS)
		ret = time_one(l, FETCH_ADD, 8);
	return ret;
}

static int run_leader(struct run_leader *l)
{
	const struct order end = { .job = END };
	struct answer answer;
	int ret = pn_session_recv(l->session, &answer, sizeof(answer));

	if (!ret)
		ret = answer.status;
	if (!ret)
		ret = pinion_remote_open(l->session->ep, l->session->peer,
					 &answer.key, &l->remote);
	if (!ret)
		ret = check_sizes(l);
	if (!ret && l->session->device->caps & PN_CAP_ATOMICS)
		ret = check_atomics(l);
	if (!ret)
		ret = time_all(l);
	pinion_remote_close(l->remote);
	return ret ? ret : pn_session_send(l->session, &end, sizeof(end));
}

int pn_demo_onesided(struct pn_session *session, struct pn_demo_onesided *demo)
{
	const size_t bytes = demo->max + 4 * PN_PAGE_BYTES;
	struct run_leader l = { .session = session, .demo = demo };
	void *memory;
	int ret = pn_pages_map(bytes, &present, &memory);

	if (ret)
		return ret;
	l.buf = memory;
	ret = pn_session_start_job(session, run_follower, bytes);
	if (!ret)
		ret = run_leader(&l);
	pn_pages_unmap(memory, bytes, &present);
	return ret;
}
