/* SPDX-License-Identifier: BSD-2-Clause */
/* Matching alone: random operations against a model that walks plain arrays,
 * and how many entries a match looks at when queues are long. Then long queues
 * of an endpoint, through the public calls. */
#include "test.h"

#include <errno.h>

#include "message/connection/connection.h"
#include "message/endpoint/endpoint.h"
#include "message/ends.h"
#include "message/matching/matching.h"

#define NPEERS	  100
#define MAX_QUEUE 2000
#define NDEEP	  10000

static struct pinion_peer peers[NPEERS];

/* --- malloc that fails now and then --------------------------------------- */

static bool fails;
void *__real_malloc(size_t len);
void *__wrap_malloc(size_t len);

void *__wrap_malloc(size_t len)
{
	return fails ? NULL : __real_malloc(len);
}

/* --- receives and messages ------------------------------------------------ */

struct wanted {
	struct pinion_peer *peer;
	uint64_t tag, ignore;
	uint8_t space;
};

static struct pinion_request *make_receive(const struct wanted *w)
{
	struct pinion_request *receive = calloc(1, sizeof(*receive));

	assert_non_null(receive);
	receive->peer = w->peer;
	receive->tag = w->tag;
	receive->ignore = w->ignore;
	receive->space = w->space;
	pn_list_init(&receive->link);
	return receive;
}

static struct pinion_unexpected *make_message(struct pinion_peer *peer,
					      uint64_t tag, uint8_t space)
{
	struct pinion_unexpected *message = calloc(1, sizeof(*message));

	assert_non_null(message);
	message->peer = peer;
	message->wire.tag = tag;
	message->wire.status = space;
	pn_list_init(&message->link);
	return message;
}

static struct pinion_unexpected *search_unexpected(
	struct pn_endpoint_matching *m, const struct wanted *w)
{
	struct pinion_message message = { .size = sizeof(message),
					  .peer = w->peer,
					  .tag = w->tag,
					  .ignore = w->ignore,
					  .space = w->space };

	return pn_match_find_unexpected(m, &message);
}

static void add_unexpected(struct pn_endpoint_matching *m,
			   struct pinion_unexpected *message)
{
	pn_list_append(&m->unexpected.entries, &message->link);
}

/* --- the model ------------------------------------------------------------ */

struct model {
	struct pn_endpoint_matching matching;
	struct pinion_request *posted[MAX_QUEUE];	 /* oldest first */
	struct pinion_unexpected *unexpected[MAX_QUEUE]; /* likewise */
	unsigned nposted, nunexpected;
	uint64_t seed;
};

static bool model_accepts(const struct wanted *w,
			  const struct pinion_unexpected *message)
{
	return (!w->peer || w->peer == message->peer) &&
	       w->space == message->wire.status &&
	       (w->tag | w->ignore) == (message->wire.tag | w->ignore);
}

static struct wanted wanted_of(const struct pinion_request *receive)
{
	return (struct wanted){ receive->peer, receive->tag, receive->ignore,
				receive->space };
}

static unsigned model_posted(const struct model *model,
			     const struct pinion_unexpected *message)
{
	unsigned i;

	for (i = 0; i < model->nposted; i++) {
		struct wanted w = wanted_of(model->posted[i]);

		if (model_accepts(&w, message))
			break;
	}
	return i;
}

static unsigned model_unexpected(const struct model *model,
				 const struct wanted *w)
{
	unsigned i = 0;

	while (i < model->nunexpected &&
	       !model_accepts(w, model->unexpected[i]))
		i++;
	return i;
}

static void drop_posted(struct model *model, unsigned i)
{
	struct pinion_request **at = &model->posted[i];

	pn_match_unpost(&model->matching, *at);
	free(*at);
	memmove(at, at + 1, (--model->nposted - i) * sizeof(*at));
}

static void drop_unexpected(struct model *model, unsigned i)
{
	struct pinion_unexpected **at = &model->unexpected[i];

	pn_unexpected_remove(&model->matching, *at);
	free(*at);
	memmove(at, at + 1, (--model->nunexpected - i) * sizeof(*at));
}

/* Few tags, so that many receives accept many messages; bits at both ends. */
static uint64_t random_tag(struct model *model)
{
	return test_below(&model->seed, 6) | test_below(&model->seed, 4) << 60;
}

static struct wanted random_wanted(struct model *model)
{
	static const uint64_t masks[] = { 0,
					  0,
					  UINT64_C(3) << 60,
					  UINT64_C(3) << 60,
					  1,
					  UINT64_C(0xfff0),
					  UINT64_MAX };
	uint64_t *seed = &model->seed;

	return (struct wanted){
		.peer = test_below(seed, 4) ? &peers[test_below(seed, 4)]
					    : NULL,
		.tag = random_tag(model),
		.ignore = masks[test_below(seed, PN_ARRAY_LEN(masks))],
		.space = (uint8_t)test_below(seed, 2),
	};
}

/* --- random operations ---------------------------------------------------- */

static void receive_or_post(struct model *model)
{
	struct wanted w = random_wanted(model);
	unsigned i = model_unexpected(model, &w);
	struct pinion_unexpected *found =
		search_unexpected(&model->matching, &w);

	if (i < model->nunexpected) {
		assert_ptr_equal(found, model->unexpected[i]);
		drop_unexpected(model, i);
		return;
	}
	assert_null(found);
	if (model->nposted == MAX_QUEUE)
		return;
	model->posted[model->nposted] = make_receive(&w);
	pn_match_post(&model->matching, model->posted[model->nposted++]);
}

/* What is left of a multi-receive takes the place of the receive. */
static void take_posted(struct model *model, unsigned i)
{
	struct pinion_request *receive = model->posted[i];
	struct wanted w = wanted_of(receive);
	struct pinion_request *rest;

	if (test_below(&model->seed, 4)) {
		drop_posted(model, i);
		return;
	}
	rest = make_receive(&w);
	pn_match_post_behind(&model->matching, receive, rest);
	pn_match_unpost(&model->matching, receive);
	free(receive);
	model->posted[i] = rest;
}

static void message_arrives(struct model *model)
{
	struct pinion_unexpected *message =
		make_message(&peers[test_below(&model->seed, 4)],
			     random_tag(model),
			     (uint8_t)test_below(&model->seed, 2));
	unsigned i = model_posted(model, message);
	struct pinion_request *found =
		pn_match_find_posted(&model->matching, message->peer,
				     &message->wire);

	if (i < model->nposted) {
		assert_ptr_equal(found, model->posted[i]);
		take_posted(model, i);
		free(message);
		return;
	}
	assert_null(found);
	if (model->nunexpected == MAX_QUEUE) {
		free(message);
		return;
	}
	model->unexpected[model->nunexpected++] = message;
	add_unexpected(&model->matching, message);
}

static void probe(struct model *model)
{
	struct wanted w = random_wanted(model);
	unsigned i = model_unexpected(model, &w);

	assert_ptr_equal(search_unexpected(&model->matching, &w),
			 i < model->nunexpected ? model->unexpected[i] : NULL);
}

static void cancel(struct model *model)
{
	if (model->nposted)
		drop_posted(model,
			    (unsigned)test_below(&model->seed, model->nposted));
}

static void peer_fails(struct model *model)
{
	const struct pinion_peer *peer = &peers[test_below(&model->seed, 4)];

	for (unsigned i = model->nposted; i--;)
		if (model->posted[i]->peer == peer)
			drop_posted(model, i);
}

/* The sender takes a message back. */
static void message_goes(struct model *model)
{
	if (model->nunexpected)
		drop_unexpected(model,
				(unsigned)test_below(&model->seed,
						     model->nunexpected));
}

/* Phases with more receives than messages, and the reverse, make both queues
 * long in turn. */
static void random_step(struct model *model, unsigned step)
{
	bool receives = step / 3000 % 2;
	uint64_t what = test_below(&model->seed, 1000);

	fails = !test_below(&model->seed, 10);
	if (what < 2)
		peer_fails(model);
	else if (what < 20)
		cancel(model);
	else if (what < 40)
		message_goes(model);
	else if (what < 100)
		probe(model);
	else if (what < (receives ? 750 : 350))
		receive_or_post(model);
	else
		message_arrives(model);
	fails = false;
}

static void matches_are_those_of_a_naive_model(void **state)
{
	struct model *model = calloc(1, sizeof(*model));
	uint64_t deepest[2] = { 0, 0 };

	(void)state;
	assert_non_null(model);
	model->seed = test_seed();
	pn_matching_init(&model->matching, 4096);
	for (unsigned step = 0; step < 60000; step++) {
		struct pn_endpoint_matching *m = &model->matching;

		random_step(model, step);
		if (m->posted.nhashed > deepest[0])
			deepest[0] = m->posted.nhashed;
		if (m->unexpected.nhashed > deepest[1])
			deepest[1] = m->unexpected.nhashed;
		if (step % 50 == 0)
			pn_matching_check(m);
	}
	/* Both tables were in use. */
	assert_true(deepest[0] > 64 && deepest[1] > 64);
	while (model->nposted)
		drop_posted(model, 0);
	while (model->nunexpected)
		drop_unexpected(model, 0);
	pn_matching_check(&model->matching);
	pn_matching_fini(&model->matching);
	free(model);
}

/* --- how much a match looks at -------------------------------------------- */

static uint64_t ncompared;
static pn_tag_key_fn *key_of_receive, *key_of_unexpected, *key_of_any;

static struct pn_tag_key count_receive(const struct pn_list *link)
{
	ncompared++;
	return key_of_receive(link);
}

static struct pn_tag_key count_unexpected(const struct pn_list *link)
{
	ncompared++;
	return key_of_unexpected(link);
}

static struct pn_tag_key count_any(const struct pn_list *link)
{
	ncompared++;
	return key_of_any(link);
}

static void init_counted(struct pn_endpoint_matching *m)
{
	pn_matching_init(m, 4096);
	key_of_receive = m->posted.table.key_of;
	key_of_unexpected = m->unexpected.table.key_of;
	m->posted.table.key_of = count_receive;
	key_of_any = m->by_tag.key_of;
	m->unexpected.table.key_of = count_unexpected;
	m->by_tag.key_of = count_any;
	ncompared = 0;
}

static uint64_t looked_at(const struct pn_endpoint_matching *m)
{
	return ncompared + m->npassed;
}

/* The i-th of n different pairs of peer and tag, in an order without pattern.
 */
static struct wanted pair_at(unsigned i, unsigned n, uint64_t ignore)
{
	unsigned j = (unsigned)(i * UINT64_C(7919) % n);

	return (struct wanted){ .peer = &peers[j % NPEERS],
				.tag = (uint64_t)(j / NPEERS) << 8,
				.ignore = ignore };
}

/* Messages that no receive accepts. */
static void fill_unexpected(struct pn_endpoint_matching *m, unsigned n,
			    struct pinion_unexpected **messages)
{
	for (unsigned i = 0; i < n; i++) {
		struct wanted w = pair_at(i, n, 0);

		messages[i] = make_message(w.peer, w.tag | 1 << 30, 0);
		assert_null(
			pn_match_find_posted(m, w.peer, &messages[i]->wire));
		add_unexpected(m, messages[i]);
	}
}

static void fill_posted(struct pn_endpoint_matching *m, unsigned n,
			uint64_t ignore)
{
	for (unsigned i = 0; i < n; i++) {
		struct wanted w = pair_at(i, n, ignore);

		assert_null(search_unexpected(m, &w));
		pn_match_post(m, make_receive(&w));
	}
}

/* Posts n receives, keeps n unexpected messages, then matches all of them,
 * last first. Returns how many entries were looked at for each. */
static uint64_t looks_per_match(unsigned n, uint64_t ignore)
{
	struct pinion_unexpected **messages = calloc(n, sizeof(*messages));
	struct pn_endpoint_matching m;
	uint64_t looked;

	assert_non_null(messages);
	init_counted(&m);
	fill_posted(&m, n, ignore);
	fill_unexpected(&m, n, messages);
	for (unsigned i = n; i--;) {
		struct wanted w = pair_at(i, n, ignore);
		struct pn_wire wire = { .tag = w.tag };
		struct pinion_request *receive =
			pn_match_find_posted(&m, w.peer, &wire);

		assert_non_null(receive);
		assert_true(receive->peer == w.peer && receive->tag == w.tag);
		pn_match_unpost(&m, receive);
		free(receive);
		w.tag |= 1 << 30;
		assert_ptr_equal(search_unexpected(&m, &w), messages[i]);
		pn_unexpected_remove(&m, messages[i]);
		free(messages[i]);
	}
	looked = looked_at(&m);
	pn_matching_check(&m);
	pn_matching_fini(&m);
	free(messages);
	return looked / (4 * (uint64_t)n);
}

/* 4 n searches: each receive and each message searches twice, once without a
 * match. */
static void a_match_costs_the_same_with_ten_thousand_entries(void **state)
{
	uint64_t few = looks_per_match(NDEEP / 10, 0);
	uint64_t many = looks_per_match(NDEEP, 0);

	(void)state;
	printf("entries looked at per search: %llu of %d, %llu of %d\n",
	       (unsigned long long)few, NDEEP / 10, (unsigned long long)many,
	       NDEEP);
	assert_true(many <= few + 1 && many <= 2 * PN_MATCH_WINDOW);
}

/* As MPI libraries do, for bits that carry their protocol. */
static void receives_that_ignore_few_bits_cost_the_same(void **state)
{
	(void)state;
	assert_true(looks_per_match(NDEEP, UINT64_C(0xf) << 60) <=
		    2 * PN_MATCH_WINDOW);
}

static void receives_from_any_peer_cost_the_same(void **state)
{
	struct pn_endpoint_matching m;
	uint64_t before;

	(void)state;
	init_counted(&m);
	for (unsigned i = 0; i < NDEEP; i++)
		pn_match_post(&m, make_receive(&(struct wanted){ .tag = i }));
	for (unsigned i = NDEEP; i--;) {
		struct pn_wire wire = { .tag = i };
		struct pinion_request *receive =
			pn_match_find_posted(&m, &peers[i % NPEERS], &wire);

		assert_true(receive && receive->tag == i);
		pn_match_unpost(&m, receive);
		free(receive);
	}
	before = looked_at(&m);
	assert_true(before / NDEEP <= 2 * PN_MATCH_WINDOW);
	pn_matching_fini(&m);
}

/* Searches for unexpected messages that are deep in the queue. */
static void messages_from_any_peer_cost_the_same(void **state)
{
	struct pinion_unexpected **messages = calloc(NDEEP, sizeof(*messages));
	struct pn_endpoint_matching m;

	(void)state;
	assert_non_null(messages);
	init_counted(&m);
	for (unsigned i = 0; i < NDEEP; i++) {
		messages[i] = make_message(&peers[i % NPEERS], i, 0);
		add_unexpected(&m, messages[i]);
	}
	/* As Open MPI, which ignores one bit. */
	for (unsigned i = NDEEP; i--;) {
		const struct wanted w = { .tag = i,
					  .ignore = UINT64_C(1) << 32 };

		assert_ptr_equal(search_unexpected(&m, &w), messages[i]);
		pn_unexpected_remove(&m, messages[i]);
		free(messages[i]);
	}
	printf("messages looked at per search: %llu\n",
	       (unsigned long long)(looked_at(&m) / NDEEP));
	assert_true(looked_at(&m) / NDEEP <= 2 * PN_MATCH_WINDOW);
	pn_matching_fini(&m);
	free(messages);
}

/* A queue that is no longer than the window is not hashed. */
static void short_queues_are_not_hashed(void **state)
{
	struct pn_endpoint_matching m;
	struct pinion_request *receives[PN_MATCH_WINDOW];
	struct pn_wire wire = { .tag = PN_MATCH_WINDOW };

	(void)state;
	init_counted(&m);
	for (unsigned i = 0; i < PN_MATCH_WINDOW; i++) {
		receives[i] = make_receive(&(struct wanted){ .tag = i });
		pn_match_post(&m, receives[i]);
	}
	assert_null(pn_match_find_posted(&m, &peers[0], &wire));
	assert_int_equal(m.posted.nhashed, 0);
	assert_int_equal(ncompared, 0);
	assert_null(m.posted.table.buckets);
	for (unsigned i = 0; i < PN_MATCH_WINDOW; i++)
		free(receives[i]);
	pn_matching_fini(&m);
}

/* The age counts, whether a receive is in the table, a wildcard or neither. */
static void the_oldest_receive_wins_wherever_it_is(void **state)
{
	static const uint64_t masks[] = { 0, UINT64_MAX, 0, UINT64_MAX };
	struct pn_wire other = { .tag = 7, .status = 1 }, wire = { .tag = 7 };
	struct pinion_request *receives[40];
	struct pn_endpoint_matching m;

	(void)state;
	pn_matching_init(&m, 4096);
	for (unsigned i = 0; i < PN_ARRAY_LEN(receives); i++) {
		receives[i] = make_receive(&(struct wanted){
			i % 3 ? &peers[0] : NULL, 7, masks[i % 4], 0 });
		pn_match_post(&m, receives[i]);
	}
	/* All but the last few are hashed by a search without a match. */
	assert_null(pn_match_find_posted(&m, &peers[0], &other));
	assert_int_equal(m.posted.nhashed,
			 PN_ARRAY_LEN(receives) - PN_MATCH_WINDOW);
	for (unsigned i = 0; i < PN_ARRAY_LEN(receives); i++) {
		assert_ptr_equal(pn_match_find_posted(&m, &peers[0], &wire),
				 receives[i]);
		pn_match_unpost(&m, receives[i]);
		pn_matching_check(&m);
		free(receives[i]);
	}
	assert_null(pn_match_find_posted(&m, &peers[0], &wire));
	pn_matching_fini(&m);
}

/* --- through the public calls --------------------------------------------- */

static struct pinion_peer *self_open(struct end *end)
{
	struct pinion_peer *peer;

	end_open(end, NULL);
	assert_ok(pinion_peer_add(end->ep, &end->address, &peer));
	return peer;
}

static void send_tag(struct end *end, struct pinion_peer *peer, uint64_t tag)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = &tag,
				    .len = sizeof(tag),
				    .tag = tag,
				    .peer = peer };
	int ret;

	while ((ret = pinion_inject(end->ep, &m)) == -EAGAIN)
		;
	assert_ok(ret);
}

static void post_tag(struct end *end, struct pinion_peer *peer, uint64_t tag,
		     uint64_t *in)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = in,
				    .len = sizeof(*in),
				    .tag = tag,
				    .peer = peer,
				    .user = in };

	assert_ok(pinion_recv(end->ep, &m, NULL));
}

static struct pinion_completion next_completion(struct end *end)
{
	uint64_t deadline = pn_clock_ns() + 60 * PN_NS_PER_S;
	struct pinion_completion c;

	while (!pinion_poll(end->ep, &c, sizeof(c), 1))
		assert_true(pn_clock_ns() < deadline);
	return c;
}

/* So many messages wait for a receive. */
static void await_unexpected(struct end *end, uint64_t n)
{
	uint64_t deadline = pn_clock_ns() + 60 * PN_NS_PER_S;

	while (end->ep->stats.unexpected < n) {
		pinion_poll(end->ep, NULL, 0, 0);
		assert_true(pn_clock_ns() < deadline);
	}
}

static void assert_received(struct end *end, const uint64_t *in, uint64_t tag)
{
	struct pinion_completion c = next_completion(end);

	assert_ok(c.status);
	assert_ptr_equal(c.user, in);
	assert_true(c.tag == tag && *in == tag);
}

static void long_queues_of_an_endpoint_match_at_little_cost(void **state)
{
	uint64_t *in = calloc(NDEEP, sizeof(*in));
	struct pn_endpoint_matching *m;
	struct pinion_peer *peer;
	struct end end;

	(void)state;
	assert_non_null(in);
	peer = self_open(&end);
	m = &end.ep->matching;
	for (unsigned i = 0; i < NDEEP; i++)
		post_tag(&end, peer, i, &in[i]);
	for (unsigned i = 0; i < NDEEP; i++) {
		send_tag(&end, peer, NDEEP + i);
		await_unexpected(&end, i + 1);
	}
	for (unsigned i = NDEEP; i--;) {
		send_tag(&end, peer, i);
		assert_received(&end, &in[i], i);
	}
	for (unsigned i = NDEEP; i--;) {
		post_tag(&end, peer, NDEEP + i, &in[i]);
		assert_received(&end, &in[i], NDEEP + i);
	}
	assert_true(m->npassed <= 4 * NDEEP * 2 * PN_MATCH_WINDOW);
	end_close(&end);
	free(in);
}

/* Posts receives and has one message pass them all, which hashes them. */
static void post_and_hash(struct end *end, struct pinion_peer *peer,
			  uint64_t *in, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		post_tag(end, peer, i, &in[i]);
	send_tag(end, peer, 1000);
	await_unexpected(end, 1);
	assert_true(end->ep->matching.posted.nhashed >= n - PN_MATCH_WINDOW);
	pn_endpoint_check(end->ep);
}

static void hashed_receives_are_canceled_and_closed(void **state)
{
	struct pinion_peer *peer;
	struct end end;
	uint64_t in[40];

	(void)state;
	peer = self_open(&end);
	post_and_hash(&end, peer, in, 40);
	for (unsigned i = 0; i < 40; i += 3) {
		struct pinion_completion c;

		assert_ok(pinion_recv_cancel(end.ep, &in[i]));
		c = next_completion(&end);
		assert_int_equal(c.status, -ECANCELED);
		assert_ptr_equal(c.user, &in[i]);
		assert_int_equal(pinion_recv_cancel(end.ep, &in[i]), -ENOENT);
		pn_endpoint_check(end.ep);
	}
	send_tag(&end, peer, 31);
	assert_received(&end, &in[31], 31);
	end_close(&end);
}

/* What is left of its buffer is older than the receives behind it. */
static void a_hashed_multi_receive_keeps_its_place(void **state)
{
	struct pinion_multi_recv multi = { .size = sizeof(multi),
					   .min_bytes = 8 };
	uint64_t many[4], in[40], last;
	struct pinion_message m = { .size = sizeof(m),
				    .buf = many,
				    .len = sizeof(many),
				    .tag = 50,
				    .user = many,
				    .multi_recv = &multi };
	struct end end;

	(void)state;
	m.peer = self_open(&end);
	assert_ok(pinion_recv(end.ep, &m, NULL));
	post_tag(&end, m.peer, 50, &last);
	post_and_hash(&end, m.peer, in, 38);
	for (unsigned i = 0; i < 4; i++) {
		struct pinion_completion c;

		send_tag(&end, m.peer, 50);
		c = next_completion(&end);
		assert_ptr_equal(c.user, many);
		assert_ptr_equal(c.buf, &many[i]);
		pn_endpoint_check(end.ep);
	}
	send_tag(&end, m.peer, 50);
	assert_received(&end, &last, 50);
	end_close(&end);
}

/* A probe removes a hashed message, and a receive then takes it. */
static void a_probe_takes_a_hashed_message(void **state)
{
	struct pinion_message m = { .size = sizeof(m), .tag = 20 };
	struct pinion_unexpected *unexpected;
	struct pinion_completion c;
	struct end end;
	uint64_t in;

	(void)state;
	m.peer = self_open(&end);
	for (unsigned i = 0; i < 40; i++)
		send_tag(&end, m.peer, i);
	await_unexpected(&end, 40);
	m.tag = 1000;
	assert_int_equal(pinion_probe(end.ep, &m, &c, NULL), -EAGAIN);
	assert_int_equal(end.ep->matching.unexpected.nhashed,
			 40 - PN_MATCH_WINDOW);
	m.tag = 20;
	assert_ok(pinion_probe(end.ep, &m, &c, &unexpected));
	assert_int_equal(pinion_probe(end.ep, &m, &c, NULL), -EAGAIN);
	m.user = m.buf = &in;
	m.len = sizeof(in);
	assert_ok(pinion_recv_unexpected(end.ep, unexpected, &m, NULL));
	assert_received(&end, &in, 20);
	end_close(&end);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(matches_are_those_of_a_naive_model),
		TEST(a_match_costs_the_same_with_ten_thousand_entries),
		TEST(receives_that_ignore_few_bits_cost_the_same),
		TEST(receives_from_any_peer_cost_the_same),
		TEST(messages_from_any_peer_cost_the_same),
		TEST(short_queues_are_not_hashed),
		TEST(the_oldest_receive_wins_wherever_it_is),
		TEST(long_queues_of_an_endpoint_match_at_little_cost),
		TEST(hashed_receives_are_canceled_and_closed),
		TEST(a_hashed_multi_receive_keeps_its_place),
		TEST(a_probe_takes_a_hashed_message),
	};

	return RUN_TESTS(tests);
}
