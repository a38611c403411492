/* SPDX-License-Identifier: BSD-2-Clause */
/* RMA where calls of pinion fail for want of memory: nothing waits for ever.
 * The calls of the provider go through functions of this program, which stand
 * before the library's. The parent is the initiator, the child the target. */
#include "test.h"

#include <errno.h>
#include <limits.h>

#include <pinion/pinion.h>

#include "next_call.h"
#include "side.h"

#define CAPS	   (FI_RMA | FI_MSG)
#define LONG	   ((size_t)1 << 20)
#define RESPONDERS 16 /* PN_FI_MIN_RESPONDERS */

/* --- failures ------------------------------------------------------------- */

/* enum pn_fi_space */
enum { REQUEST = 0x80, RESPONSE = 0x82 };

enum how {
	SEND,	   /* pinion_send() returns -ENOMEM */
	SEND_LATE, /* it returns 0, and the message ends with -ENOMEM */
	RECEIVE,   /* pinion_recv() returns -ENOMEM */
};

/* The next `left` calls fail. */
static struct {
	enum how how;
	uint32_t space;
	unsigned left;
} fault;

static struct pinion_completion late; /* if it has a user */

static bool is_concerned(const struct pinion_message *m, bool receives)
{
	return fault.left && m->space == fault.space &&
	       (fault.how == RECEIVE) == receives;
}

int pinion_inject(struct pinion_endpoint *ep, const struct pinion_message *m)
{
	int (*next)(struct pinion_endpoint *, const struct pinion_message *);

	if (is_concerned(m, false))
		return -EAGAIN;
	*(void **)&next = next_call("pinion_inject");
	return next(ep, m);
}

int pinion_send(struct pinion_endpoint *ep, const struct pinion_message *m,
		struct pinion_request **out)
{
	int (*next)(struct pinion_endpoint *, const struct pinion_message *,
		    struct pinion_request **);

	if (is_concerned(m, false) && (fault.how == SEND || !late.user)) {
		fault.left--;
		if (fault.how == SEND)
			return -ENOMEM;
		late = (struct pinion_completion){ .status = -ENOMEM,
						   .user = m->user,
						   .peer = m->peer,
						   .tag = m->tag };
		return 0;
	}
	*(void **)&next = next_call("pinion_send");
	return next(ep, m, out);
}

int pinion_recv(struct pinion_endpoint *ep, const struct pinion_message *m,
		struct pinion_request **out)
{
	int (*next)(struct pinion_endpoint *, const struct pinion_message *,
		    struct pinion_request **);

	if (is_concerned(m, true)) {
		fault.left--;
		return -ENOMEM;
	}
	*(void **)&next = next_call("pinion_recv");
	return next(ep, m, out);
}

int pinion_poll(struct pinion_endpoint *ep, struct pinion_completion *out,
		size_t element_bytes, unsigned max)
{
	int (*next)(struct pinion_endpoint *, struct pinion_completion *,
		    size_t, unsigned);

	if (late.user && max) {
		*out = late;
		late.user = NULL;
		return 1;
	}
	*(void **)&next = next_call("pinion_poll");
	return next(ep, out, element_bytes, max);
}

static void arm(enum how how, uint32_t space, unsigned n)
{
	fault.how = how;
	fault.space = space;
	fault.left = n;
}

/* --- the target ----------------------------------------------------------- */

/* Its region can be closed when the initiator is done. */
static bool expose(struct side *s)
{
	uint8_t *buf = calloc(1, LONG);
	struct window mine, none;
	struct fid_mr *mr;

	NEED(register_region(s, (struct region){ buf, LONG, ACCESS, 1 }, &mr));
	mine = window_of(s, buf, mr);
	NEED(swap_bytes(s, &mine, &none, sizeof(mine)) && sync_up(s));
	NEED(close_region(mr));
	free(buf);
	return true;
}

/* --- the initiator -------------------------------------------------------- */

static ssize_t post(struct side *s, const struct window *w, bool reads,
		    void *buf, size_t len)
{
	return reads ? fi_read(s->ep, buf, len, NULL, s->peer, w->addr, w->key,
			       buf)
		     : fi_write(s->ep, buf, len, NULL, s->peer, w->addr, w->key,
				buf);
}

static bool ends_well(struct side *s, const void *buf)
{
	struct fi_cq_tagged_entry end;

	NEED(next_entry(s->tx, &end) && end.op_context == buf);
	return true;
}

static bool works(struct side *s, const struct window *w, size_t len,
		  unsigned seed)
{
	uint8_t *out = malloc(len), *in = calloc(1, len);

	fill(out, len, seed);
	NEED(!post(s, w, false, out, len) && ends_well(s, out));
	NEED(!post(s, w, true, in, len) && ends_well(s, in));
	NEED(is_filled(in, len, seed));
	free(out);
	free(in);
	return true;
}

static const size_t lens[] = { 8, LONG };

/* Nothing is sent: the target does not wait either. */
static bool fail_to_receive(struct side *s)
{
	uint8_t *buf = calloc(1, LONG);
	struct window w;

	NEED(get_window(s, &w) && works(s, &w, LONG, 1));
	for (unsigned i = 0; i < PN_ARRAY_LEN(lens); i++)
		for (int reads = 0; reads < 2; reads++) {
			arm(RECEIVE, RESPONSE, 1);
			NEED(post(s, &w, reads, buf, lens[i]) == -FI_ENOMEM);
			NEED(!fault.left && works(s, &w, lens[i], i));
		}
	NEED(post(s, &w, true, NULL, LONG) == -FI_EINVAL);
	free(buf);
	return sync_up(s);
}

static void operations_without_memory_for_the_response_do_not_start(
	void **state)
{
	(void)state;
	run_with(fail_to_receive, expose, &(struct setup){ .caps = CAPS });
}

/* A short request fails; a long one is sent again until it leaves. */
static bool fail_to_request(struct side *s)
{
	uint8_t *buf = calloc(1, LONG);
	struct fi_cq_err_entry error;
	struct window w;

	NEED(get_window(s, &w) && works(s, &w, LONG, 1));
	arm(SEND, REQUEST, 1);
	NEED(post(s, &w, false, buf, 8) == -FI_ENOMEM);
	NEED(!fault.left && works(s, &w, 8, 2));
	arm(SEND_LATE, REQUEST, 1);
	NEED(!post(s, &w, false, buf, 8) && next_error(s->tx, &error));
	NEED(error.err == FI_ENOMEM && error.op_context == buf);
	NEED(!fault.left && works(s, &w, 8, 3));
	arm(SEND_LATE, REQUEST, 1);
	NEED(!post(s, &w, true, buf, LONG) && next_error(s->tx, &error));
	NEED(error.err == FI_ENOMEM && !fault.left);
	for (enum how how = SEND; how <= SEND_LATE; how++) {
		arm(how, REQUEST, 3);
		fill(buf, LONG, how);
		NEED(!post(s, &w, false, buf, LONG) && ends_well(s, buf));
		memset(buf, 0, LONG);
		NEED(!fault.left && !post(s, &w, true, buf, LONG));
		NEED(ends_well(s, buf) && is_filled(buf, LONG, how));
	}
	free(buf);
	return sync_up(s);
}

static void requests_that_find_no_memory_fail_or_are_sent_again(void **state)
{
	(void)state;
	run_with(fail_to_request, expose, &(struct setup){ .caps = CAPS });
}

/* --- failures at the target ----------------------------------------------- */

static bool fail_to_respond(struct side *s)
{
	arm((enum how)s->setup->seed, RESPONSE, 3);
	NEED(expose(s) && !fault.left);
	return true;
}

static bool use(struct side *s)
{
	struct window w;

	NEED(get_window(s, &w));
	for (unsigned i = 0; i < PN_ARRAY_LEN(lens); i++)
		NEED(works(s, &w, lens[i], i));
	return sync_up(s);
}

static void responses_that_find_no_memory_are_sent_again(void **state)
{
	(void)state;
	for (uint64_t how = SEND; how <= SEND_LATE; how++)
		run_with(use, fail_to_respond,
			 &(struct setup){ .caps = CAPS, .seed = how });
}

/* Each responder serves one request, and none is posted. */
static bool lose_responders(struct side *s)
{
	uint8_t buf[8];
	struct window mine, none;
	struct fid_mr *mr;

	NEED(register_region(s, (struct region){ buf, sizeof(buf), ACCESS, 1 },
			     &mr));
	mine = window_of(s, buf, mr);
	arm(RECEIVE, REQUEST, UINT_MAX);
	NEED(swap_bytes(s, &mine, &none, sizeof(mine)) && sync_up(s));
	arm(RECEIVE, REQUEST, 0);
	NEED(sync_up(s) && close_region(mr));
	return true;
}

static bool use_more_than_all(struct side *s)
{
	uint8_t bufs[RESPONDERS + 4][8] = { 0 };
	struct window w;

	NEED(get_window(s, &w));
	for (int i = 0; i < RESPONDERS + 4; i++)
		NEED(!post(s, &w, false, bufs[i], 8));
	for (int i = 0; i < RESPONDERS; i++)
		NEED(ends_well(s, bufs[i]));
	NEED(sync_up(s));
	for (int i = RESPONDERS; i < RESPONDERS + 4; i++)
		NEED(ends_well(s, bufs[i]));
	return sync_up(s);
}

static void a_target_without_responders_has_some_again(void **state)
{
	(void)state;
	run_with(use_more_than_all, lose_responders,
		 &(struct setup){ .caps = CAPS });
}

/* An endpoint that cannot accept requests is not enabled, and can be later. */
static bool enable_twice(struct side *s)
{
	struct fi_cq_attr attr = { 0 };
	struct fid_cq *cq;
	struct fid_ep *ep;

	NEED(!fi_cq_open(s->domain, &attr, &cq, NULL));
	NEED(!fi_endpoint(s->domain, s->info, &ep, NULL));
	NEED(!fi_ep_bind(ep, &s->av->fid, 0));
	NEED(!fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	arm(RECEIVE, REQUEST, 2);
	NEED(fi_enable(ep) == -FI_ENOMEM && fi_enable(ep) == -FI_ENOMEM);
	NEED(!fault.left && !fi_enable(ep));
	NEED(!fi_close(&ep->fid) && !fi_close(&cq->fid));
	return sync_up(s);
}

static void an_endpoint_that_cannot_accept_requests_is_not_enabled(void **state)
{
	(void)state;
	run_with(enable_twice, sync_up, &(struct setup){ .caps = CAPS });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(operations_without_memory_for_the_response_do_not_start),
		TEST(requests_that_find_no_memory_fail_or_are_sent_again),
		TEST(responses_that_find_no_memory_are_sent_again),
		TEST(a_target_without_responders_has_some_again),
		TEST(an_endpoint_that_cannot_accept_requests_is_not_enabled),
	};

	/* Each operation is one request. */
	setenv("PINION_RMA", "request", 1);
	return RUN_TESTS(tests);
}
