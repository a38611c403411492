/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Random one-sided operations by all ranks on the memory of all, against a
 * model.
 *
 *   test_onesided_storm HOW SPEC [NROUNDS] [LEFT]
 *
 * Every rank exposes two kinds of memory: cells, which all ranks change by
 * atomics at the same time, and an area. A round divides the area into one
 * share for each rank, at other places each time. In its share of a target a
 * rank puts and gets at random; if an operation must follow an earlier one to
 * the same bytes, a fence, a flush or a wait separates them. The bytes that are
 * put follow from the seed: the owner knows at the end of a round what its
 * memory must hold, and a rank knows what its gets must return. Conditional
 * writes use other memory, and are granted before or after they start.
 *
 * LEFT: bytes of the budget besides the bounce buffers.
 */
#include "message/party.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "message/endpoint/endpoint.h"
#include "message/onesided/onesided.h"
#include "test.h"

#define NRANKS	   3
#define NCELLS	   4
#define AREA_BYTES ((size_t)768 << 10)
#define ALL_BYTES  (NCELLS * sizeof(uint64_t) + AREA_BYTES)
#define MAX_LEN	   ((size_t)300 << 10)
#define NOPS	   40 /* of a rank, to one target, in a round */
#define NWHENS	   6  /* conditional writes of a pair */
#define WHEN_BYTES ((size_t)100 << 10)
#define ARENA	   ((size_t)64 << 20)
#define ALL_ACCESS                                                \
	(PINION_ACCESS_REMOTE_READ | PINION_ACCESS_REMOTE_WRITE | \
	 PINION_ACCESS_REMOTE_ATOMIC)

struct attr {
	uint64_t seed;
	unsigned nrounds;
	size_t left;
};

/* An operation in flight, and its expected result. */
struct pending {
	struct pinion_request *request; /* NULL: reported by poll */
	bool ended;
	bool get;
	size_t offset, len;
	uint8_t *buf;
	uint8_t *expected; /* get */
	size_t want;	   /* length that the end must say */
};

struct storm {
	struct rank *rank;
	const struct attr *attr;
	struct party party;
	uint64_t random; /* this rank's own */
	uint64_t round;
	uint8_t *memory; /* exposed */
	uint8_t *arena;
	size_t used;
	struct pinion_exposure *exposure;
	struct pinion_remote *remotes[NRANKS];
	uint8_t *model[NRANKS]; /* this rank's share of each target */
	uint64_t added[NRANKS]; /* by this rank, to each target's cells */
	/* Each operation may come with an atomic. */
	struct pending pending[NRANKS * (2 * NOPS + 2 * NWHENS)];
	unsigned npending, nended;
};

#define CHECK(s, fact) \
	((fact) ? (void)0 : rank_fail((s)->rank, #fact, __FILE__, __LINE__))

static bool failed(const struct storm *s)
{
	return atomic_load(&s->rank->board->failed);
}

/* --- what all ranks know -------------------------------------------------- */

/* Where a rank's share of a target's area begins; rank NRANKS: the end. */
static size_t share(const struct storm *s, unsigned target, unsigned rank)
{
	size_t third = AREA_BYTES / NRANKS;

	if (!rank)
		return 0;
	if (rank == NRANKS)
		return AREA_BYTES;
	return rank * third - test_mix(test_mix(s->attr->seed, s->round),
				       target * NRANKS + rank) %
				      third;
}

struct op {
	bool get;
	size_t offset, len; /* in the share */
	uint64_t key;
};

static struct op op_of(const struct storm *s, unsigned from, unsigned to,
		       unsigned n)
{
	size_t room = share(s, to, from + 1) - share(s, to, from);
	uint64_t x = test_mix(test_mix(s->attr->seed, s->round),
			      (from * NRANKS + to) * NOPS + n + 1000);
	unsigned bits = (unsigned)test_below(&x, 19);
	struct op op = { .get = test_below(&x, 3) == 0,
			 .key = test_random(&x) };

	op.len = test_below(&x, ((size_t)1 << bits) + 1);
	if (op.len > MAX_LEN)
		op.len = MAX_LEN;
	if (op.len > room)
		op.len = room;
	op.offset = test_below(&x, room - op.len + 1);
	return op;
}

/* The bytes that a rank's puts of this round leave in its share of a target. */
static void play(const struct storm *s, unsigned from, unsigned to,
		 uint8_t *part)
{
	for (unsigned n = 0; n < NOPS; n++) {
		struct op op = op_of(s, from, to, n);

		if (!op.get)
			pattern_fill(part + op.offset, op.len, op.key);
	}
}

/* --- requests ------------------------------------------------------------- */

static uint8_t *take(struct storm *s, size_t len)
{
	uint8_t *at = s->arena + s->used;

	s->used += len + 1 + test_below(&s->random, 5000);
	pn_assert(s->used < ARENA);
	return at;
}

/* Overwrites the buffer of a put as soon as that is allowed. */
static void end_one(struct storm *s, struct pending *p,
		    const struct pinion_completion *end)
{
	if (end->status)
		fprintf(stderr, "status %d\n", end->status);
	CHECK(s, !end->status);
	CHECK(s, end->len == p->want);
	if (p->expected)
		CHECK(s, !memcmp(p->buf, p->expected, p->len));
	else if (p->buf)
		memset(p->buf, 0xee, p->len);
	p->ended = true;
	s->nended++;
}

static void look(struct storm *s)
{
	struct pinion_completion ends[8];
	int n = pn_endpoint_poll(s->party.ep, ends, 8);

	party_look(&s->party);
	for (int i = 0; i < n; i++)
		end_one(s, ends[i].user, &ends[i]);
	for (unsigned i = 0; i < s->npending; i++) {
		struct pending *p = &s->pending[i];

		if (p->request && !p->ended &&
		    !pn_endpoint_test(s->party.ep, p->request, &ends[0]))
			end_one(s, p, &ends[0]);
	}
}

static void finish(struct storm *s)
{
	uint64_t deadline = pn_device_now(s->rank->device) + 60 * PN_NS_PER_S;

	while (s->nended < s->npending && !failed(s)) {
		look(s);
		if (s->nended < s->npending)
			rank_pause(s->rank);
		CHECK(s, pn_device_now(s->rank->device) < deadline);
	}
	s->npending = s->nended = 0;
}

static struct pending *new_pending(struct storm *s, struct pending p)
{
	pn_assert(s->npending < PN_ARRAY_LEN(s->pending));
	s->pending[s->npending] = p;
	return &s->pending[s->npending++];
}

/* Half of the requests have handles. */
static struct pinion_request **handle(struct storm *s, struct pending *p)
{
	return test_below(&s->random, 2) ? &p->request : NULL;
}

/* --- puts and gets -------------------------------------------------------- */

/* Whether op must follow an operation that was started after the last fence. */
static bool meets(const struct op *ops, unsigned first, unsigned n)
{
	for (unsigned i = first; i < n; i++)
		if (ops[i].offset < ops[n].offset + ops[n].len &&
		    ops[n].offset < ops[i].offset + ops[i].len &&
		    (!ops[i].get || !ops[n].get))
			return true;
	return false;
}

static void order(struct storm *s, unsigned to)
{
	struct pinion_peer *peer = s->party.peers[to];
	struct pinion_request *request;

	switch (test_below(&s->random, 4)) {
	case 0:
		finish(s);
		return;
	case 1:
		CHECK(s, !pn_endpoint_flush(s->party.ep, peer, NULL, &request));
		CHECK(s, !pn_endpoint_wait(s->party.ep, request, NULL));
		return;
	default:
		CHECK(s, !pn_endpoint_fence(s->party.ep, peer));
	}
}

static void start(struct storm *s, unsigned to, const struct op *op)
{
	size_t base = share(s, to, s->rank->rank);
	struct pending *p =
		new_pending(s, (struct pending){ .get = op->get,
						 .len = op->len,
						 .want = op->len,
						 .buf = take(s, op->len) });
	struct pinion_move move = { .size = sizeof(move),
				    .remote = s->remotes[to],
				    .offset = NCELLS * sizeof(uint64_t) + base +
					      op->offset,
				    .buf = p->buf,
				    .len = op->len,
				    .user = p };

	if (op->get) {
		p->expected = take(s, op->len);
		memcpy(p->expected, s->model[to] + op->offset, op->len);
	} else {
		pattern_fill(p->buf, op->len, op->key);
		pattern_fill(s->model[to] + op->offset, op->len, op->key);
	}
	CHECK(s, !pn_endpoint_access(s->party.ep,
				     op->get ? PN_REQUEST_GET : PN_REQUEST_PUT,
				     &move, handle(s, p)));
}

/* iWARP has none, and the public calls say -EOPNOTSUPP there. */
static bool has_atomics(const struct storm *s)
{
	return s->rank->device->caps & PN_CAP_ATOMICS;
}

static void add(struct storm *s, unsigned to)
{
	struct pending *p = new_pending(s, (struct pending){ .want = 8 });
	struct pinion_atomic atomic = {
		.size = sizeof(atomic),
		.remote = s->remotes[to],
		.offset = test_below(&s->random, NCELLS) * sizeof(uint64_t),
		.operand = test_below(&s->random, 1 << 20),
		.user = p
	};

	s->added[to] += atomic.operand;
	CHECK(s, !pn_endpoint_atomic(s->party.ep, PN_OP_FETCH_ADD, &atomic,
				     handle(s, p)));
}

/* Half of a cell moves to another one: the sum stays. */
static void shift(struct storm *s, unsigned to)
{
	struct pinion_atomic take_out = { .size = sizeof(take_out),
					  .remote = s->remotes[to] },
			     put_in;
	struct pinion_request *request;
	uint64_t old = 0;

	take_out.result = &old;
	CHECK(s, !pn_endpoint_atomic(s->party.ep, PN_OP_SWAP, &take_out,
				     &request));
	CHECK(s, !pn_endpoint_wait(s->party.ep, request, NULL));
	put_in = (struct pinion_atomic){ .size = sizeof(struct pinion_atomic),
					 .remote = s->remotes[to],
					 .offset = 8,
					 .operand = old };
	CHECK(s, !pn_endpoint_atomic(s->party.ep, PN_OP_FETCH_ADD, &put_in,
				     &request));
	CHECK(s, !pn_endpoint_wait(s->party.ep, request, NULL));
}

/* Adds by comparing and swapping, again and again. */
static void add_by_swap(struct storm *s, unsigned to)
{
	uint64_t seen = 0;
	struct pinion_atomic atomic = { .size = sizeof(atomic),
					.remote = s->remotes[to],
					.offset = 16,
					.result = &seen };
	struct pinion_request *request;
	int ret;

	do {
		atomic.compare = seen;
		atomic.operand = seen + 3;
		ret = pn_endpoint_atomic(s->party.ep, PN_OP_COMPARE_SWAP,
					 &atomic, &request);
		if (!ret)
			ret = pn_endpoint_wait(s->party.ep, request, NULL);
		CHECK(s, !ret);
	} while (!ret && seen != atomic.compare);
	s->added[to] += 3;
}

static void change_target(struct storm *s, unsigned to)
{
	struct op ops[NOPS];
	unsigned first = 0;

	for (unsigned n = 0; n < NOPS && !failed(s); n++) {
		ops[n] = op_of(s, s->rank->rank, to, n);
		if (meets(ops, first, n)) {
			order(s, to);
			first = n;
		}
		start(s, to, &ops[n]);
		if (!test_below(&s->random, 4) && has_atomics(s))
			add(s, to);
		if (!test_below(&s->random, 8))
			look(s);
	}
	if (!has_atomics(s))
		return;
	add_by_swap(s, to);
	shift(s, to);
}

/* --- conditional writes --------------------------------------------------- */

static uint64_t when_key(const struct storm *s, unsigned from, unsigned to,
			 unsigned n)
{
	return test_mix(test_mix(s->attr->seed, s->round),
			(from * NRANKS + to) * NWHENS + n + 77777);
}

static void begin_when(struct storm *s, bool grants, unsigned other, unsigned n)
{
	unsigned from = grants ? other : s->rank->rank;
	uint64_t key = when_key(s, from, grants ? s->rank->rank : other, n);
	size_t len = key % WHEN_BYTES, room = len + key / 7 % 3 * 1000;
	struct pending *p =
		new_pending(s, (struct pending){
				       .len = len,
				       .want = len,
				       .buf = take(s, grants ? room : len) });
	struct pinion_message m = { .size = sizeof(m),
				    .buf = p->buf,
				    .len = grants ? room : len,
				    .tag = n / 2, /* two of each */
				    .peer = s->party.peers[other],
				    .user = p };
	struct pinion_request **out = handle(s, p);

	if (grants) {
		p->expected = take(s, len);
		pattern_fill(p->expected, len, key);
	} else {
		pattern_fill(p->buf, len, key);
	}
	CHECK(s, !(grants ? pn_endpoint_grant(s->party.ep, &m, out)
			  : pn_endpoint_put_when(s->party.ep, &m, out)));
}

/* In random order, except for grants of one tag. */
static void change_when(struct storm *s)
{
	struct {
		bool grants;
		unsigned other, next;
	} lines[2 * NRANKS];
	unsigned left = 2 * NRANKS;

	for (unsigned i = 0; i < left; i++) {
		lines[i].grants = i & 1;
		lines[i].other = i / 2;
		lines[i].next = 0;
	}
	while (left && !failed(s)) {
		unsigned i = (unsigned)test_below(&s->random, left);

		begin_when(s, lines[i].grants, lines[i].other, lines[i].next);
		if (++lines[i].next == NWHENS)
			lines[i] = lines[--left];
		if (!test_below(&s->random, 3))
			look(s);
	}
	finish(s);
}

/* --- rounds --------------------------------------------------------------- */

/* Checks every share against its rank's puts, and the sum of the cells. */
static void check_memory(struct storm *s)
{
	const uint64_t *cells = (const uint64_t *)s->memory;
	const uint8_t *area = s->memory + NCELLS * sizeof(uint64_t);
	uint8_t *part = take(s, AREA_BYTES);
	uint64_t added[NRANKS][NRANKS], sum = 0, want = 0;

	for (unsigned r = 0; r < NRANKS; r++) {
		size_t at = share(s, s->rank->rank, r);
		size_t len = share(s, s->rank->rank, r + 1) - at;

		memset(part, 0, len);
		play(s, r, s->rank->rank, part);
		CHECK(s, !memcmp(part, area + at, len));
	}
	if (!rank_exchange(s->rank, s->added, sizeof(s->added), added))
		return;
	for (unsigned r = 0; r < NRANKS; r++)
		want += added[r][s->rank->rank];
	for (unsigned i = 0; i < NCELLS; i++)
		sum += cells[i];
	CHECK(s, sum == want);
}

static bool begin_round(struct storm *s)
{
	struct pinion_exposure_key mine, all[NRANKS];

	s->used = 0;
	memset(s->memory, 0, ALL_BYTES);
	memset(s->added, 0, sizeof(s->added));
	CHECK(s, !pn_endpoint_expose(s->party.ep, s->memory, ALL_BYTES,
				     ALL_ACCESS, &s->exposure));
	if (failed(s))
		return false;
	pn_exposure_key(s->exposure, &mine);
	if (!rank_exchange(s->rank, &mine, sizeof(mine), all))
		return false;
	for (unsigned r = 0; r < NRANKS; r++) {
		CHECK(s, !pn_endpoint_remote(s->party.ep, s->party.peers[r],
					     &all[r], &s->remotes[r]));
		s->model[r] = take(s, AREA_BYTES);
		memset(s->model[r], 0, AREA_BYTES);
	}
	return !failed(s);
}

static void end_round(struct storm *s)
{
	for (unsigned r = 0; r < NRANKS; r++)
		pn_endpoint_remote_close(s->remotes[r]);
	pn_endpoint_unexpose(s->exposure);
}

static void storm(struct storm *s)
{
	unsigned me = s->rank->rank;

	for (s->round = 0; s->round < s->attr->nrounds; s->round++) {
		if (!begin_round(s))
			return;
		for (unsigned i = 0; i < NRANKS; i++)
			change_target(s, (me + i) % NRANKS);
		finish(s);
		if (!rank_barrier(s->rank))
			return;
		check_memory(s);
		change_when(s);
		if (!rank_barrier(s->rank))
			return;
		end_round(s);
	}
}

static void run(struct rank *rank)
{
	const struct attr *attr = rank->arg;
	struct storm *s = calloc(1, sizeof(*s));
	struct party_attr party = { .protocol = PN_PROTOCOL_CACHING_PIPELINE };

	pn_assert(s);
	s->rank = rank;
	s->attr = attr;
	s->random = test_mix(attr->seed, rank->rank + 1);
	s->memory = mmap(NULL, ALL_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	s->arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	pn_assert(s->memory != MAP_FAILED && s->arena != MAP_FAILED);
	/* Packets' bounce buffers, those of one-sided operations, and what is
	 * exposed; then what is left for pins. */
	if (attr->left)
		party.max_bytes = 64 * ((size_t)64 << 10) + (260 << 10) +
				  ALL_BYTES + 2 * 4096 + attr->left;
	if (party_open(&s->party, rank, &party)) {
		storm(s);
		if (!failed(s))
			party_close(&s->party);
	}
	munmap(s->arena, ARENA);
	munmap(s->memory, ALL_BYTES);
	free(s);
}

int main(int argc, char **argv)
{
	struct attr attr = { .nrounds = 4 };
	struct ranks ranks = { .nranks = NRANKS, .fn = run, .arg = &attr };

	if (argc < 3) {
		fprintf(stderr, "usage: %s HOW SPEC [NROUNDS] [LEFT]\n",
			argv[0]);
		return 2;
	}
	ranks.how = argv[1];
	ranks.spec = argv[2];
	if (argc > 3)
		attr.nrounds = (unsigned)strtoul(argv[3], NULL, 0);
	if (argc > 4)
		attr.left = strtoul(argv[4], NULL, 0);
	attr.seed = test_seed();
	return !ranks_run(&ranks);
}
