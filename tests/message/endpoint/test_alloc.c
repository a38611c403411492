/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nothing is allocated on the data path: after a warm-up, ping-pongs under
 * every protocol and one-sided operations call malloc and its kin not once (the
 * linker wraps them). Not so a pin of more than one region, whose list of parts
 * the cache allocates: so what is sent and what is received are far apart and
 * share no page.
 *
 *   test_alloc HOW SPEC [NPINGPONGS]
 */
#include <stdatomic.h>

#include "message/party.h"

#include <string.h>
#include <sys/mman.h>

#include "allocations.h"
#include "base/clock.h"
#include "message/endpoint/endpoint.h"
#include "message/onesided/onesided.h"
#include "test.h"

#define WARM 300

static _Atomic bool counting;
static _Atomic unsigned nallocations;
static void *_Atomic whence; /* return address of the first caller */

static bool test_may_allocate(void *caller)
{
	void *none = NULL;

	if (!atomic_load_explicit(&counting, memory_order_relaxed))
		return true;
	atomic_fetch_add(&nallocations, 1);
	atomic_compare_exchange_strong(&whence, &none, caller);
	return true;
}

/* --- ping-pongs ----------------------------------------------------------- */

int main(int argc, char **argv);

struct game;
typedef void game_fn(struct party *party, const struct game *game, uint8_t *out,
		     uint8_t *in, unsigned n);

struct game {
	game_fn *fn;
	int protocol;
	size_t len;
	unsigned n;
};

/* Unexpected messages need memory, too. */
static void surprise(struct party *party, const struct game *game, uint8_t *out,
		     uint8_t *in)
{
	struct rank *rank = party->rank;
	struct pinion_message m = { .size = sizeof(m),
				    .buf = out,
				    .len = game->len,
				    .peer = party->peers[!rank->rank] };
	struct pinion_request *requests[4];

	for (unsigned i = 0; i < PN_ARRAY_LEN(requests); i++)
		RANK_CHECK(rank,
			   !pn_endpoint_send(party->ep, &m, &requests[i]));
	for (unsigned i = 0; i < PN_ARRAY_LEN(requests); i++) {
		while (pn_endpoint_probe(party->ep, &m, NULL, NULL))
			rank_pause(rank);
		RANK_CHECK(rank,
			   !party_recv(party, !rank->rank, in, game->len, 0));
	}
	for (unsigned i = 0; i < PN_ARRAY_LEN(requests); i++)
		RANK_CHECK(rank,
			   !pn_endpoint_wait(party->ep, requests[i], NULL));
}

static void ping_pong(struct party *party, const struct game *game,
		      uint8_t *out, uint8_t *in, unsigned n)
{
	unsigned me = party->rank->rank;

	for (unsigned i = 0; i < 2 * n; i++) {
		int ret = (i & 1) == me
				  ? party_send(party, !me, out, game->len, i)
				  : party_recv(party, !me, in, game->len, i);

		RANK_CHECK(party->rank, !ret);
	}
}

/* --- one-sided operations ------------------------------------------------- */

static int wait_for(struct party *party, int ret,
		    struct pinion_request **request)
{
	return ret ? ret : pn_endpoint_wait(party->ep, *request, NULL);
}

/* Inline, through bounce buffers, pinned in one fragment and in several, and
 * atomics. */
static void use_remote(struct party *party, struct pinion_remote *target,
		       uint8_t *out, unsigned n)
{
	static const size_t lens[] = { 8, 128, 1000, 40000 };
	struct pinion_atomic atomic = { .size = sizeof(atomic),
					.remote = target,
					.operand = 1 };
	struct pinion_request *r;

	for (unsigned i = 0; i < n; i++) {
		struct pinion_move move = { .size = sizeof(move),
					    .remote = target,
					    .buf = out,
					    .len = lens[i % 4] };

		RANK_CHECK(party->rank,
			   !wait_for(party,
				     pn_endpoint_access(party->ep,
							i & 4 ? PN_REQUEST_PUT
							      : PN_REQUEST_GET,
							&move, &r),
				     &r));
		RANK_CHECK(party->rank,
			   !wait_for(party,
				     pn_endpoint_atomic(party->ep,
							PN_OP_FETCH_ADD,
							&atomic, &r),
				     &r));
	}
}

/* In turns the write comes first and the grant does. */
static void write_when(struct party *party, uint8_t *out, uint8_t *in,
		       size_t len, unsigned n)
{
	unsigned me = party->rank->rank;
	struct pinion_message m = { .size = sizeof(m),
				    .peer = party->peers[!me] };
	struct pinion_request *r;

	for (unsigned i = 0; i < n; i++) {
		bool writes = (i & 1) == me;

		m.tag = i;
		m.len = i & 2 ? len : 8;
		m.buf = writes ? out : in;
		RANK_CHECK(party->rank,
			   !wait_for(party,
				     writes ? pn_endpoint_put_when(party->ep,
								   &m, &r)
					    : pn_endpoint_grant(party->ep, &m,
								&r),
				     &r));
	}
}

/* Of this process: each rank is one. */
static struct pinion_exposure *exposure;
static struct pinion_remote *remote;

static void end_onesided(void)
{
	if (exposure)
		pn_endpoint_unexpose(exposure);
	if (remote)
		pn_endpoint_remote_close(remote);
}

/* More than one side can be ahead of the other: grants wait for their writes,
 * and writes wait for their grants. */
#define AHEAD 8

/* The other rank has sent its grants. Waits until the last of them has arrived
 * and is stored. */
static void await_grants(struct party *party)
{
	struct pn_tag_key last = { party->peers[!party->rank->rank], AHEAD - 1,
				   0 };

	while (!pn_tag_table_find(&party->ep->onesided.granted, last))
		party_poll(party);
}

static void run_ahead(struct party *party, uint8_t *out, uint8_t *in,
		      size_t len, bool grants_first)
{
	struct pinion_message m = { .size = sizeof(m),
				    .peer = party->peers[!party->rank->rank] };
	struct pinion_request *r[2 * AHEAD];

	for (unsigned i = 0; i < 2 * AHEAD; i++) {
		bool grants = (i < AHEAD) == grants_first;

		if (i == AHEAD) {
			party_barrier(party);
			if (grants_first)
				await_grants(party);
		}
		m.tag = i % AHEAD;
		m.len = i & 1 ? len : 8;
		m.buf = grants ? in : out;
		RANK_CHECK(party->rank,
			   !(grants ? pn_endpoint_grant(party->ep, &m, &r[i])
				    : pn_endpoint_put_when(party->ep, &m,
							   &r[i])));
	}
	for (unsigned i = 0; i < 2 * AHEAD; i++)
		RANK_CHECK(party->rank,
			   !pn_endpoint_wait(party->ep, r[i], NULL));
	party_barrier(party);
}

static void play_onesided(struct party *party, const struct game *game,
			  uint8_t *out, uint8_t *in, unsigned n)
{
	struct pinion_exposure_key mine, keys[2];
	struct rank *rank = party->rank;

	if (!exposure) {
		RANK_CHECK(rank, !pn_endpoint_expose(
					 party->ep, in, game->len,
					 PINION_ACCESS_REMOTE_READ |
						 PINION_ACCESS_REMOTE_WRITE |
						 PINION_ACCESS_REMOTE_ATOMIC,
					 &exposure));
		pn_exposure_key(exposure, &mine);
		if (!rank_exchange(rank, &mine, sizeof(mine), keys))
			return;
		RANK_CHECK(rank,
			   !pn_endpoint_remote(party->ep,
					       party->peers[!rank->rank],
					       &keys[!rank->rank], &remote));
		run_ahead(party, out, in, game->len, true);
		run_ahead(party, out, in, game->len, false);
	}
	use_remote(party, remote, out, n);
	write_when(party, out, in, game->len, n);
}

#define APART ((size_t)1 << 20)

static uint8_t *far_apart(size_t len)
{
	uint8_t *bytes = mmap(NULL, len + 2 * APART, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	pn_assert(bytes != MAP_FAILED);
	return bytes + APART;
}

static void play(struct rank *rank)
{
	static const struct pn_protocol_limits limits = {
		.eager_bytes = 2000,
		.match_bytes = 1000,
		.rdma_offset = 8 << 10,
		.fragment_bytes = 8 << 10,
		.segment_bytes = 8 << 10,
		.depth = 3,
	};
	struct game *game = rank->arg;
	struct party_attr attr = { .protocol = game->protocol,
				   .single_threaded = true,
				   .limits = limits };
	uint8_t *out = far_apart(game->len), *in = far_apart(game->len);
	struct party party;
	char why[80];

	if (!party_open(&party, rank, &attr))
		return;
	surprise(&party, game, out, in);
	game->fn(&party, game, out, in, WARM);
	party_barrier(&party);
	atomic_store(&counting, true);
	game->fn(&party, game, out, in, game->n);
	atomic_store(&counting, false);
	snprintf(why, sizeof(why), "%u allocations, the first at main%+td",
		 nallocations, (char *)whence - (char *)main);
	if (nallocations)
		rank_fail(rank, why, __FILE__, __LINE__);
	party_barrier(&party);
	end_onesided();
	party_close(&party);
	munmap(out - APART, game->len + 2 * APART);
	munmap(in - APART, game->len + 2 * APART);
}

#define ONESIDED (PN_PROTOCOL_AUTO + 1) /* in place of a protocol */

static bool allocates_nothing(struct ranks *run, int protocol, unsigned n)
{
	const bool onesided = protocol == ONESIDED;
	const char *name =
		onesided ? "onesided" : pn_protocol_name((unsigned)protocol);
	struct game game = { .fn = onesided ? play_onesided : ping_pong,
			     .protocol =
				     onesided ? PN_PROTOCOL_CACHED : protocol,
			     .len = protocol ? 40000 : 1000,
			     .n = n };
	bool passed;

	printf("[ RUN      ] %s_allocates_nothing\n", name);
	run->arg = &game;
	passed = ranks_run(run);
	printf("[%s] %s_allocates_nothing\n",
	       passed ? "       OK " : "  FAILED  ", name);
	return passed;
}

int main(int argc, char **argv)
{
	struct ranks run = { .nranks = 2, .fn = play };
	unsigned n = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 0) : 10000;
	bool passed = true;

	if (argc < 3 || argc > 4) {
		fprintf(stderr, "usage: %s HOW SPEC [N]\n", argv[0]);
		return 2;
	}
	run.how = argv[1];
	run.spec = argv[2];
	for (int p = 0; p <= ONESIDED; p++)
		passed &= allocates_nothing(&run, p, n);
	return !passed;
}
