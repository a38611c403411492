/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Endpoints whose peers have one connection each, over the first rail that
 * reaches them. Nodes are `soft`'s: rails of one name reach each other. In each
 * test rails "a" and "b" are inside two hosts, and "w" is between hosts.
 */
#include "message/party.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "message/endpoint/endpoint.h"
#include "test.h"

#define BYTES  ((size_t)300000)
#define ROUNDS 8

#define IN_A "soft:node=a/soft:node=w"
#define IN_B "soft:node=b/soft:node=w"

/* Sends a message to each other rank and receives one from each, all at once.
 */
static void exchange(struct party *party, uint64_t round)
{
	struct rank *rank = party->rank;
	struct pinion_request *requests[2 * RANKS_MAX];
	uint8_t *in = calloc(rank->nranks, BYTES), *out = malloc(BYTES);
	unsigned n = 0;

	pattern_fill(out, BYTES, round << 8 | rank->rank);
	for (unsigned r = 0; r < rank->nranks; r++) {
		struct pinion_message m = { .size = sizeof(m),
					    .buf = in + r * BYTES,
					    .len = BYTES,
					    .tag = round,
					    .peer = party->peers[r] };

		RANK_CHECK(rank,
			   !pn_endpoint_recv(party->ep, &m, &requests[n++]));
		m.buf = out;
		RANK_CHECK(rank,
			   !pn_endpoint_send(party->ep, &m, &requests[n++]));
	}
	while (n)
		RANK_CHECK(rank,
			   !pn_endpoint_wait(party->ep, requests[--n], NULL));
	for (unsigned r = 0; r < rank->nranks; r++)
		RANK_CHECK(rank, pattern_holds(in + r * BYTES, BYTES,
					       round << 8 | r));
	free(in);
	free(out);
}

/* Leaves the endpoint open. */
static bool exchange_often(struct party *party, struct rank *rank)
{
	const struct party_attr attr = { .protocol = PN_PROTOCOL_CACHED };

	if (!party_open(party, rank, &attr))
		return false;
	for (uint64_t i = 0; i < ROUNDS && !rank->board->failed; i++)
		exchange(party, i);
	return party_barrier(party);
}

/* Four ranks, two in each host. */
static void two_hosts(struct rank *rank)
{
	struct party party;

	if (!exchange_often(&party, rank))
		return;
	for (unsigned r = 0; r < rank->nranks; r++) {
		const struct pn_connection *conns = party.peers[r]->conns;
		bool near = r / 2 == rank->rank / 2;

		RANK_CHECK(rank, !!conns[0].device_peer == near);
		RANK_CHECK(rank, !!conns[1].device_peer == !near);
	}
	party_close(&party);
}

static void a_peer_is_reached_over_the_first_rail_that_can(void **state)
{
	const struct ranks run = { .how = "processes",
				   .spec = IN_A "|" IN_A "|" IN_B "|" IN_B,
				   .nranks = 4,
				   .fn = two_hosts };

	(void)state;
	assert_true(ranks_run(&run));
}

/* Two ranks with the same rails in different orders. */
static void one_way(struct rank *rank)
{
	struct party party;
	unsigned nways = 0;

	if (!exchange_often(&party, rank))
		return;
	for (unsigned r = 0; r < rank->nrails; r++)
		nways += !!party.peers[!rank->rank]->conns[r].device_peer;
	RANK_CHECK(rank, nways == 1);
	party_close(&party);
}

static void run_pair(const char *spec, void (*fn)(struct rank *))
{
	const struct ranks run = {
		.how = "processes", .spec = spec, .nranks = 2, .fn = fn
	};

	assert_true(ranks_run(&run));
}

static void both_sides_find_the_same_way_whatever_the_order(void **state)
{
	(void)state;
	run_pair("soft:node=a/soft:node=w|soft:node=w/soft:node=a", one_way);
}

static void endpoints_of_other_sorts_are_peers_too(void **state)
{
	(void)state;
	run_pair("soft:node=w|" IN_A, one_way);
	run_pair("soft:node=a+soft:node=w|" IN_A, one_way);
	run_pair("soft:node=x+soft:node=w|" IN_A, one_way);
}

/* A rank that does not know a peer receives from it all the same. It then knows
 * one address of the peer, but not its index among the peer's rails. */
static void receive_from_unknown_peer(struct rank *rank)
{
	const struct party_attr attr = { .protocol = PN_PROTOCOL_PIPELINE,
					 .knows_nobody = !rank->rank };
	uint8_t *buf = malloc(BYTES);
	struct party party;

	if (!party_open(&party, rank, &attr))
		return;
	if (rank->rank) {
		pattern_fill(buf, BYTES, 7);
		RANK_CHECK(rank, !party_send(&party, 0, buf, BYTES, 1));
		RANK_CHECK(rank, !party_recv(&party, 0, buf, BYTES, 2));
		RANK_CHECK(rank, pattern_holds(buf, BYTES, 8));
	} else {
		struct pinion_completion from;
		struct pinion_request *request;
		struct pinion_message m = {
			.size = sizeof(m), .buf = buf, .len = BYTES, .tag = 1
		};

		RANK_CHECK(rank, !pn_endpoint_recv(party.ep, &m, &request));
		RANK_CHECK(rank, !pn_endpoint_wait(party.ep, request, &from));
		RANK_CHECK(rank, pattern_holds(buf, BYTES, 7));
		pattern_fill(buf, BYTES, 8);
		party.peers[1] = from.peer;
		RANK_CHECK(rank, !party_send(&party, 1, buf, BYTES, 2));
	}
	if (party_barrier(&party))
		party_close(&party);
	free(buf);
}

static void unknown_peers_are_received_over_any_rail(void **state)
{
	(void)state;
	run_pair(IN_A "|" IN_A, receive_from_unknown_peer);
	run_pair(IN_A "|" IN_B, receive_from_unknown_peer);
	run_pair("soft:node=w|" IN_B, receive_from_unknown_peer);
	run_pair(IN_B "|soft:node=w", receive_from_unknown_peer);
	run_pair("soft:node=x+soft:node=w|" IN_B, receive_from_unknown_peer);
	run_pair(IN_B "|soft:node=x+soft:node=w", receive_from_unknown_peer);
}

/* The other rail would reach the peer, but what was sent is lost. */
static void lose_it(struct rank *rank)
{
	const struct party_attr attr = { .protocol = PN_PROTOCOL_CACHED };
	struct party party;
	char c = 0;

	if (!party_open(&party, rank, &attr))
		return;
	if (rank->rank) {
		RANK_CHECK(rank, !party_send(&party, 0, &c, 1, 1));
		RANK_CHECK(rank, party_barrier(&party));
		pn_device_detach(rank->rails[0],
				 party.peers[0]->conns[0].device_peer);
	} else {
		RANK_CHECK(rank, !party_recv(&party, 1, &c, 1, 1));
		RANK_CHECK(rank, party_barrier(&party));
		RANK_CHECK(rank, party_recv(&party, 1, &c, 1, 2) < 0);
		RANK_CHECK(rank, !party.peers[1]->conns[1].device_peer);
		RANK_CHECK(rank, party_send(&party, 1, &c, 1, 3) < 0);
	}
	if (party_barrier(&party))
		party_close(&party);
}

static void a_way_that_ends_is_not_replaced_by_another(void **state)
{
	(void)state;
	run_pair("soft:node=a/soft:node=w", lose_it);
}

static void refuse(struct rank *rank)
{
	const struct party_attr attr = { .protocol = PN_PROTOCOL_CACHED };
	struct party party;
	char c = 0;

	if (!party_open(&party, rank, &attr))
		return;
	pn_log_set_level(PN_LOG_NONE);
	for (int i = 0; i < 2; i++)
		RANK_CHECK(rank, party_send(&party, !rank->rank, &c, 1, 1) ==
					 -EHOSTUNREACH);
	if (party_barrier(&party))
		party_close(&party);
}

static void whom_no_rail_reaches_cannot_be_sent_to(void **state)
{
	(void)state;
	run_pair("soft:node=a|soft:node=b", refuse);
	run_pair("soft:node=a/soft:node=x|soft:node=b/soft:node=y", refuse);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_peer_is_reached_over_the_first_rail_that_can),
		TEST(both_sides_find_the_same_way_whatever_the_order),
		TEST(endpoints_of_other_sorts_are_peers_too),
		TEST(unknown_peers_are_received_over_any_rail),
		TEST(a_way_that_ends_is_not_replaced_by_another),
		TEST(whom_no_rail_reaches_cannot_be_sent_to),
	};

	return RUN_TESTS(tests);
}
