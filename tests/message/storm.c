/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/storm.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "test.h"

#define ARENA_BYTES ((size_t)8 << 30)
#define GUARD	    24
#define GUARD_BYTE  0x5a
#define PATIENCE_NS (300 * PN_NS_PER_S) /* others may use the cores */
#define ANY_LEN	    20000		/* longest message of class ANY */
#define ANY_ROOM    16000		/* length of all its receives */

enum class { EXACT, ORDER, ANY, PROBE, CANCEL, NEVER, VERDICT, NCLASSES };

/* One message as both ends know it. */
struct letter {
	enum class class;
	unsigned from, to;
	uint32_t number; /* of the pair, in the round */
	size_t len;
	size_t room; /* of the receive */
	uint64_t tag, key;
};

enum state { WAITING, POSTED, DONE };

struct item {
	struct letter letter;
	bool is_send;
	bool by_handle;
	enum state state;
	struct pinion_request *request;
	uint8_t *buf;
	size_t room;
	uint64_t order; /* of posting */
	struct pinion_completion end;
};

struct storm {
	struct rank *rank;
	const struct storm_attr *attr;
	struct party party;
	uint64_t random; /* this rank's own */
	uint32_t round;
	uint8_t *arena;
	size_t used;
	struct item *items;
	unsigned nitems, ndone, capacity;
	uint64_t nposted;
	/* The next number of class PROBE and ANY from each rank. */
	uint32_t next_probe[RANKS_MAX], next_any[RANKS_MAX];
};

#define CHECK(s, fact) \
	((fact) ? (void)0 : rank_fail((s)->rank, #fact, __FILE__, __LINE__))

static bool failed(const struct storm *s)
{
	return atomic_load(&s->rank->board->failed);
}

static bool may_die(const struct storm *s, unsigned rank)
{
	return s->attr->mortal >> rank & 1;
}

/* --- what is sent --------------------------------------------------------- */

static uint64_t pair_seed(const struct storm *s, unsigned from, unsigned to)
{
	return test_mix(test_mix(s->attr->seed, s->round),
			from * RANKS_MAX + to);
}

static uint32_t letters_of_pair(const struct storm *s, unsigned from,
				unsigned to)
{
	return 1 + (uint32_t)(pair_seed(s, from, to) % s->attr->per_pair);
}

/* Mostly short ones; each power of two is possible. */
static size_t random_len(uint64_t *random, size_t max)
{
	unsigned bits = 0, a, b;

	while (max >> bits)
		bits++;
	a = (unsigned)test_below(random, bits + 1);
	b = (unsigned)test_below(random, bits + 1);
	return test_below(random, ((size_t)1 << (a < b ? a : b)) + 1) %
	       (max + 1);
}

static enum class random_class(const struct storm *s, uint64_t *random,
			       uint32_t number) {
	if (s->attr->mortal) return (enum class)test_below(random, 2);
	if (!number && !test_below(random, 4)) return CANCEL;
	return (enum class)test_below(random, 4);
}

static uint64_t tag_of(const struct storm *s, enum class class, uint32_t number)
{
	return (uint64_t) class | (uint64_t)s->round << 8 |
	       (uint64_t)number << 40;
}

#define ANY_NUMBER (~UINT64_C(0) << 40)

static struct letter letter_of(const struct storm *s, unsigned from,
			       unsigned to, uint32_t number)
{
	struct letter l = { .from = from, .to = to, .number = number };
	uint64_t random = test_mix(pair_seed(s, from, to), number + 1);

	l.key = random;
	l.class = random_class(s, &random, number);
	l.len = random_len(&random,
			   l.class == ANY ? ANY_LEN : s->attr->max_len);
	l.room = l.len;
	switch (test_below(&random, 8)) {
	case 0:
		l.room = test_below(&random, l.len + 1);
		break;
	case 1:
		l.room = l.len + test_below(&random, 200);
		break;
	}
	if (l.class == ANY)
		l.room = ANY_ROOM;
	l.tag = tag_of(s, l.class, number);
	return l;
}

static bool is_number_of(const struct storm *s, unsigned from, uint32_t number,
			 enum class class)
{
	return letter_of(s, from, s->rank->rank, number).class == class;
}

/* --- buffers -------------------------------------------------------------- */

static uint8_t *take_buffer(struct storm *s, size_t len)
{
	size_t gap = test_below(&s->random, 3) ? test_below(&s->random, 100)
					       : -s->used & 4095;
	uint8_t *buf = s->arena + s->used + gap + GUARD;

	s->used += gap + len + 2 * GUARD;
	pn_assert(s->used <= ARENA_BYTES);
	memset(buf - GUARD, GUARD_BYTE, len + 2 * GUARD);
	return buf;
}

static bool is_guard(const uint8_t *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (bytes[i] != GUARD_BYTE)
			return false;
	return true;
}

/* A receive's buffer holds the message, and nothing around it was written. */
static void check_bytes(struct storm *s, const struct item *item, size_t len)
{
	CHECK(s, pattern_holds(item->buf, len, item->letter.key));
	CHECK(s, is_guard(item->buf - GUARD, GUARD));
	CHECK(s, is_guard(item->buf + len, item->room - len + GUARD));
}

/* --- items ---------------------------------------------------------------- */

static struct item *add_item(struct storm *s, const struct letter *letter,
			     bool is_send, size_t room)
{
	struct item *item;

	pn_assert(s->nitems < s->capacity);
	item = &s->items[s->nitems++];
	*item = (struct item){ .letter = *letter,
			       .is_send = is_send,
			       .by_handle = test_below(&s->random, 2),
			       .buf = take_buffer(s, room),
			       .room = room };
	return item;
}

/* The verdict on a CANCEL is a message of one byte; its item follows the
 * CANCEL's. */
static struct letter verdict_of(const struct storm *s, const struct letter *l)
{
	struct letter verdict = *l;

	verdict.class = VERDICT;
	verdict.len = verdict.room = 1;
	verdict.tag = tag_of(s, VERDICT, l->number);
	return verdict;
}

static void plan_sends(struct storm *s, unsigned to)
{
	unsigned me = s->rank->rank;

	for (uint32_t i = 0; i < letters_of_pair(s, me, to); i++) {
		struct letter l = letter_of(s, me, to, i);
		struct item *item = add_item(s, &l, true, l.len);

		pattern_fill(item->buf, l.len, l.key);
		if (l.class == CANCEL) {
			item->by_handle = true;
			l = verdict_of(s, &l);
			add_item(s, &l, true, 1);
		}
	}
}

static void plan_receives(struct storm *s, unsigned from)
{
	unsigned me = s->rank->rank;

	for (uint32_t i = 0; i < letters_of_pair(s, from, me); i++) {
		struct letter l = letter_of(s, from, me, i);
		struct item *item = add_item(s, &l, false, l.room);

		if (l.class == CANCEL) {
			item->by_handle = true;
			l = verdict_of(s, &l);
			add_item(s, &l, false, 1)->by_handle = true;
		}
	}
}

static void plan_never(struct storm *s)
{
	struct letter l = { .class = NEVER,
			    .from = s->rank->rank,
			    .to = s->rank->rank,
			    .tag = tag_of(s, NEVER, 0) };

	if (!s->attr->mortal && !test_below(&s->random, 4))
		add_item(s, &l, false, 100)->by_handle = true;
}

static bool swappable(const struct item *a, const struct item *b)
{
	bool bound = a->letter.class == VERDICT || b->letter.class == VERDICT ||
		     a->letter.class == CANCEL || b->letter.class == CANCEL;
	bool same = a->is_send == b->is_send && a->letter.to == b->letter.to &&
		    a->letter.from == b->letter.from;

	/* Sends to one peer, and receives that depend on order, keep their
	 * order. */
	return !bound && !(same && (a->is_send || a->letter.class == ORDER ||
				    b->letter.class == ORDER));
}

/* Swaps neighbours again and again. */
static void shuffle(struct storm *s)
{
	for (unsigned n = 8 * s->nitems; n && s->nitems > 1; n--) {
		unsigned i = (unsigned)test_below(&s->random, s->nitems - 1);
		struct item *a = &s->items[i], *b = a + 1;
		struct item swap = *a;

		if (!swappable(a, b))
			continue;
		*a = *b;
		*b = swap;
	}
}

static void plan_round(struct storm *s)
{
	s->nitems = s->ndone = 0;
	s->used = test_below(&s->random, 4096);
	memset(s->next_probe, 0, sizeof(s->next_probe));
	memset(s->next_any, 0, sizeof(s->next_any));
	for (unsigned r = 0; r < s->rank->nranks; r++) {
		if (test_below(&s->random, 2)) {
			plan_sends(s, r);
			plan_receives(s, r);
		} else {
			plan_receives(s, r);
			plan_sends(s, r);
		}
	}
	plan_never(s);
	shuffle(s);
}

/* --- the end of an item --------------------------------------------------- */

static unsigned rank_of(const struct storm *s, const struct pinion_peer *peer)
{
	for (unsigned r = 0; r < s->rank->nranks; r++)
		if (s->party.peers[r] == peer)
			return r;
	return RANKS_MAX;
}

/* Only now it is known which message an ANY has received. */
static void identify(struct storm *s, struct item *item)
{
	unsigned from = rank_of(s, item->end.peer);
	uint32_t number = (uint32_t)(item->end.tag >> 40);

	CHECK(s, from < s->rank->nranks);
	if (!failed(s))
		item->letter = letter_of(s, from, s->rank->rank, number);
	CHECK(s, item->letter.class == ANY);
}

static void check_received(struct storm *s, struct item *item)
{
	struct letter *l = &item->letter;
	size_t len;

	if (l->class == ANY)
		identify(s, item);
	len = l->len < item->room ? l->len : item->room;
	CHECK(s, item->end.status == (l->len > item->room ? -EMSGSIZE : 0));
	CHECK(s, item->end.len == len);
	CHECK(s, item->end.tag == l->tag);
	CHECK(s, item->end.peer == s->party.peers[l->from]);
	if (l->class != VERDICT && !failed(s))
		check_bytes(s, item, len);
	if (s->attr->counter)
		__atomic_fetch_add(s->attr->counter, 1, __ATOMIC_RELAXED);
}

static void check_sent(struct storm *s, struct item *item)
{
	const struct letter *l = &item->letter;

	CHECK(s, item->end.status == 0 || (l->class == CANCEL &&
					   item->end.status == -ECANCELED));
	CHECK(s, item->end.len <= l->len);
	CHECK(s,
	      item->end.status || l->len > l->room || item->end.len == l->len);
	if (l->class != VERDICT)
		CHECK(s, pattern_holds(item->buf, l->len, l->key));
	memset(item->buf, 0xee, item->room);
	if (l->class == CANCEL)
		item[1].buf[0] = item->end.status ? 1 : 2;
}

/* The sender of a CANCEL says that it was canceled: its receive must be
 * canceled, too. */
static void heed_verdict(struct storm *s, struct item *verdict)
{
	struct item *item = verdict - 1;

	if (verdict->buf[0] == 2)
		return;
	CHECK(s, item->state != DONE);
	if (item->state == POSTED)
		pn_endpoint_cancel(s->party.ep, item->request);
}

static bool was_taken_back(const struct item *item)
{
	const struct letter *l = &item->letter;

	return !item->is_send && (l->class == NEVER || (l->class == CANCEL &&
							item[1].state == DONE &&
							item[1].buf[0] == 1));
}

static void end_item(struct storm *s, struct item *item)
{
	unsigned other = item->is_send ? item->letter.to : item->letter.from;

	CHECK(s, item->state != DONE);
	item->state = DONE;
	s->ndone++;
	if (item->end.status == -ECONNRESET && may_die(s, other))
		return;
	if (was_taken_back(item)) {
		CHECK(s, item->end.status == -ECANCELED);
		CHECK(s, is_guard(item->buf - GUARD, item->room + 2 * GUARD));
	} else if (item->is_send) {
		check_sent(s, item);
	} else {
		check_received(s, item);
		if (item->letter.class == VERDICT)
			heed_verdict(s, item);
	}
}

/* --- posting -------------------------------------------------------------- */

static void refused(struct storm *s, struct item *item, int ret)
{
	item->end.status = ret;
	end_item(s, item);
}

/* The message was sent before the call returned. */
static void injected(struct storm *s, struct item *item)
{
	item->end = (struct pinion_completion){ .len = item->letter.len };
	end_item(s, item);
}

static void post(struct storm *s, struct item *item)
{
	const struct letter *l = &item->letter;
	struct pinion_message m = { .size = sizeof(m),
				    .buf = item->room ? item->buf : NULL,
				    .len = item->room,
				    .tag = l->tag,
				    .user = item };
	struct pinion_request **out = item->by_handle ? &item->request : NULL;
	int ret;

	item->state = POSTED;
	item->order = s->nposted++;
	m.peer = s->party.peers[item->is_send ? l->to : l->from];
	if (!item->is_send && l->class == ORDER)
		m.ignore = ANY_NUMBER;
	if (!item->is_send && l->class == ANY) {
		m.ignore = ANY_NUMBER;
		m.peer = NULL;
	}
	if (s->attr->protocol == STORM_ANY)
		pn_endpoint_set_protocol(s->party.ep,
					 (int)test_below(&s->random,
							 STORM_ANY));
	if (item->is_send && test_below(&s->random, 2)) {
		pinion_peer_prefetch(m.peer, m.len);
		if (!pn_endpoint_inject(s->party.ep, &m)) {
			injected(s, item);
			return;
		}
	}
	ret = item->is_send ? pn_endpoint_send(s->party.ep, &m, out)
			    : pn_endpoint_recv(s->party.ep, &m, out);
	if (ret)
		refused(s, item, ret);
}

static struct item *probe_item(struct storm *s, unsigned from, uint64_t tag)
{
	for (unsigned i = 0; i < s->nitems; i++) {
		struct item *item = &s->items[i];

		if (!item->is_send && item->letter.from == from &&
		    item->letter.class == PROBE && item->letter.tag == tag)
			return item;
	}
	return NULL;
}

/* A probed message is the next of its class, with the announced length. */
static struct item *probed(struct storm *s, unsigned from,
			   const struct pinion_completion *seen)
{
	uint32_t *next = &s->next_probe[from];
	struct item *item = probe_item(s, from, seen->tag);

	CHECK(s, item && item->state == WAITING);
	CHECK(s, seen->peer == s->party.peers[from]);
	if (!item)
		return NULL;
	CHECK(s, seen->len == item->letter.len);
	for (; *next < item->letter.number; ++*next)
		CHECK(s, !is_number_of(s, from, *next, PROBE));
	CHECK(s, *next == item->letter.number);
	++*next;
	return item;
}

static void probe(struct storm *s, unsigned from)
{
	struct pinion_message m = { .size = sizeof(m),
				    .tag = tag_of(s, PROBE, 0),
				    .ignore = ANY_NUMBER,
				    .peer = s->party.peers[from] };
	bool claiming = test_below(&s->random, 2);
	struct pinion_unexpected *unexpected = NULL;
	struct pinion_completion seen;
	struct item *item;
	int ret;

	if (pn_endpoint_probe(s->party.ep, &m, &seen,
			      claiming ? &unexpected : NULL))
		return;
	item = probed(s, from, &seen);
	if (!item)
		return;
	if (!claiming) {
		post(s, item);
		return;
	}
	item->state = POSTED;
	m = (struct pinion_message){ .size = sizeof(struct pinion_message),
				     .buf = item->buf,
				     .len = item->room,
				     .user = item };
	ret = pn_endpoint_recv_unexpected(s->party.ep, unexpected, &m,
					  item->by_handle ? &item->request
							  : NULL);
	CHECK(s, !ret);
}

/* --- progress ------------------------------------------------------------- */

static void poll_some(struct storm *s)
{
	struct pinion_completion ends[4];
	int n = pn_endpoint_poll(s->party.ep, ends,
				 1 + (unsigned)test_below(&s->random, 4));

	party_look(&s->party);

	for (int i = 0; i < n; i++) {
		struct item *item = ends[i].user;

		CHECK(s, !item->by_handle);
		item->end = ends[i];
		end_item(s, item);
	}
}

static void test_one(struct storm *s, struct item *item)
{
	if (item->state == POSTED && item->by_handle &&
	    !pn_endpoint_test(s->party.ep, item->request, &item->end))
		end_item(s, item);
}

/* Cancels what may be canceled, sooner or later. */
static void cancel_one(struct storm *s, struct item *item)
{
	if (item->state == POSTED &&
	    (item->letter.class == NEVER ||
	     (item->letter.class == CANCEL && item->is_send)))
		pn_endpoint_cancel(s->party.ep, item->request);
}

static struct item *any_item(struct storm *s)
{
	return &s->items[test_below(&s->random, s->nitems)];
}

static void do_something(struct storm *s)
{
	switch (test_below(&s->random, 6)) {
	case 0:
		poll_some(s);
		break;
	case 1:
	case 2:
		test_one(s, any_item(s));
		break;
	case 3:
		cancel_one(s, any_item(s));
		break;
	case 4:
		if (!s->attr->mortal)
			probe(s, (unsigned)test_below(&s->random,
						      s->rank->nranks));
		break;
	}
}

/* Sleeps on the descriptor, as a program with an event loop does. */
static void sleep_on_fd(struct storm *s)
{
	struct pollfd fd = { .fd = pn_endpoint_fd(s->party.ep),
			     .events = POLLIN };

	CHECK(s, fd.fd >= 0);
	if (!pn_endpoint_arm(s->party.ep))
		poll(&fd, 1, 20);
}

static void rest(struct storm *s)
{
	struct pn_device *device = s->rank->device;

	/* The progress thread uses the devices meanwhile. */
	if (s->rank->virtual_time ||
	    (!s->rank->progress_thread && test_below(&s->random, 2)))
		rank_wait(s->rank, pn_device_now(device) + 20 * PN_NS_PER_MS);
	else
		sleep_on_fd(s);
}

/* --- a round -------------------------------------------------------------- */

/* Looks at every item once: tests, cancels, probes. */
static void look_at_all(struct storm *s)
{
	poll_some(s);
	for (unsigned r = 0; r < s->rank->nranks && !s->attr->mortal; r++)
		probe(s, r);
	for (unsigned i = 0; i < s->nitems && !failed(s); i++) {
		cancel_one(s, &s->items[i]);
		test_one(s, &s->items[i]);
	}
}

static bool has_verdict(const struct item *item)
{
	return item->letter.class == CANCEL || item->letter.class == NEVER;
}

/* Blocks in pinion_wait() for an item that must end by itself. */
static void wait_one(struct storm *s)
{
	struct item *item = any_item(s);

	if (item->state != POSTED || !item->by_handle || has_verdict(item) ||
	    s->attr->mortal || item->letter.class == ANY ||
	    (item->is_send && item->letter.class == PROBE))
		return;
	pn_endpoint_wait(s->party.ep, item->request, &item->end);
	end_item(s, item);
}

/* Prints the messages that hang. */
static void tell_hang(struct storm *s)
{
	for (unsigned i = 0; i < s->nitems; i++) {
		const struct item *item = &s->items[i];
		const struct letter *l = &item->letter;

		if (item->state != DONE)
			printf("round %u: %s %u of class %d from %u to %u, %zu "
			       "bytes into %zu, %s\n",
			       s->round, item->is_send ? "send" : "receive",
			       l->number, l->class, l->from, l->to, l->len,
			       l->room,
			       item->state == POSTED ? "posted" : "not posted");
	}
	fflush(stdout); /* a sanitizer may end the process before exit() */
	rank_fail(s->rank, "these do not end", __FILE__, __LINE__);
}

static void finish_round(struct storm *s)
{
	uint64_t patience = pn_device_now(s->rank->device) + PATIENCE_NS;

	while (s->ndone < s->nitems && !failed(s)) {
		unsigned before = s->ndone;

		if (pn_device_now(s->rank->device) > patience)
			tell_hang(s);

		look_at_all(s);
		/* A wait may last for ever while other items have to be posted.
		 */
		if (s->ndone == before)
			rest(s);
	}
}

static bool is_due(struct storm *s, const struct item *item)
{
	const struct letter *l = &item->letter;

	/* The verdict is sent when it is known, in finish_verdicts(). */
	return item->state == WAITING &&
	       !(item->is_send && l->class == VERDICT) &&
	       !(!item->is_send && l->class == PROBE) && !failed(s);
}

static void post_verdicts(struct storm *s)
{
	for (unsigned i = 0; i < s->nitems; i++) {
		struct item *item = &s->items[i];

		if (item->is_send && item->letter.class == VERDICT &&
		    item->state == WAITING && item[-1].state == DONE)
			post(s, item);
	}
}

static unsigned count_verdicts(const struct storm *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < s->nitems; i++)
		n += s->items[i].is_send &&
		     s->items[i].letter.class == VERDICT &&
		     s->items[i].state == WAITING;
	return n;
}

static void finish_verdicts(struct storm *s)
{
	while (count_verdicts(s) && !failed(s)) {
		look_at_all(s);
		post_verdicts(s);
		if (count_verdicts(s))
			rest(s);
	}
}

static int by_order(const void *a, const void *b)
{
	const struct item *x = a, *y = b;

	return (x->order > y->order) - (x->order < y->order);
}

/* Late writes would show now; messages of class ANY arrived in order. */
static void check_round(struct storm *s)
{
	qsort(s->items, s->nitems, sizeof(*s->items), by_order);
	for (unsigned i = 0; i < s->nitems && !failed(s); i++) {
		struct item *item = &s->items[i];
		const struct letter *l = &item->letter;

		if (item->is_send || l->class == VERDICT ||
		    (item->end.status && item->end.status != -EMSGSIZE))
			continue;
		check_bytes(s, item, item->end.len);
		if (l->class != ANY)
			continue;
		for (; s->next_any[l->from] < l->number; s->next_any[l->from]++)
			CHECK(s, !is_number_of(s, l->from, s->next_any[l->from],
					       ANY));
		CHECK(s, s->next_any[l->from] == l->number);
		s->next_any[l->from]++;
	}
}

static void run_round(struct storm *s)
{
	plan_round(s);
	for (unsigned i = 0; i < s->nitems; i++) {
		if (is_due(s, &s->items[i]))
			post(s, &s->items[i]);
		do_something(s);
	}
	finish_verdicts(s);
	for (unsigned n = 0; n < 3 && !failed(s); n++)
		wait_one(s);
	finish_round(s);
	if (!failed(s))
		check_round(s);
}

static bool open_storm(struct storm *s, struct rank *rank)
{
	struct party_attr attr = {
		.protocol = s->attr->protocol % STORM_ANY,
		.max_bytes = s->attr->max_bytes,
		.unexpected_limit = s->attr->unexpected_limit,
		.single_threaded = true,
	};

	s->random = test_mix(s->attr->seed, ~(uint64_t)rank->rank);
	s->capacity = 2 * (s->attr->per_pair + 2) * rank->nranks + 1;
	s->items = calloc(s->capacity, sizeof(*s->items));
	s->arena = mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	pn_assert(s->items && s->arena != MAP_FAILED);
	return party_open(&s->party, rank, &attr);
}

/* Ranks that are dead cannot be waited for; the others need no more time than
 * this. */
static void meet(struct storm *s)
{
	struct pn_device *device = s->rank->device;
	uint64_t end = pn_device_now(device) + 50 * PN_NS_PER_MS;

	if (!s->attr->mortal) {
		party_barrier(&s->party);
		return;
	}
	while (pn_device_now(device) < end) {
		party_poll(&s->party);
		rank_wait(s->rank, end);
	}
}

void storm_run(struct rank *rank)
{
	struct storm *s = calloc(1, sizeof(*s));

	pn_assert(s);
	s->rank = rank;
	s->attr = rank->arg;
	if (!open_storm(s, rank))
		return;
	for (; s->round < s->attr->nrounds && !failed(s); s->round++)
		run_round(s);
	if (!failed(s)) {
		meet(s);
		party_close(&s->party);
	}
	munmap(s->arena, ARENA_BYTES);
	free(s->items);
	free(s);
}
