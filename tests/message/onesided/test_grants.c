/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Conditional writes in every order of arrival, with cancels and dying peers,
 * and what is left of exposed memory that was released.
 *
 *   test_grants HOW SPEC    "sim": the tests that need virtual time, too
 *
 * A scenario is an order of four steps: the writer starts (P) and cancels (p),
 * the granter starts (G) and cancels (g). With all news told between the steps
 * the outcome follows from the order; without, both must end alike.
 */
#include "message/party.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "device/sim/sim.h"
#include "message/endpoint/endpoint.h"
#include "message/onesided/onesided.h"
#include "test.h"

enum { WRITER, GRANTER };

#define MAX_BYTES ((size_t)200000)

struct scenario {
	const char *steps;
	size_t len, room;
	bool settled; /* news are told between the steps */
	size_t left;  /* of the budget for pins; 0: plenty */
};

static uint8_t *map(size_t len)
{
	uint8_t *at = mmap(NULL, len, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	pn_assert(at != MAP_FAILED);
	return at;
}

static bool open_party(struct party *party, struct rank *rank, size_t left)
{
	struct party_attr attr = { .protocol = PN_PROTOCOL_CACHED };

	if (left)
		attr.max_bytes =
			64 * ((size_t)64 << 10) + (260 << 10) + 4096 + left;
	return party_open(party, rank, &attr);
}

/* Makes progress until nothing happens any more: all packets have arrived. */
static bool settle(struct party *party)
{
	for (unsigned i = 0; i < 3; i++) {
		for (unsigned k = 0; k < 20; k++) {
			party_poll(party);
			rank_pause(party->rank);
		}
		if (!party_barrier(party))
			return false;
	}
	return true;
}

/* Connects in both directions, however long that takes. */
static bool meet(struct party *party)
{
	unsigned me = party->rank->rank;

	return me == WRITER ? !party_send(party, !me, NULL, 0, 1) &&
				      !party_recv(party, !me, NULL, 0, 2)
			    : !party_recv(party, !me, NULL, 0, 1) &&
				      !party_send(party, !me, NULL, 0, 2);
}

/* Does the steps of this rank, each in its place. */
static struct pinion_request *take_steps(struct party *party,
					 const struct scenario *s, uint8_t *buf)
{
	unsigned me = party->rank->rank;
	struct pinion_message m = { .size = sizeof(m),
				    .buf = buf,
				    .len = me == WRITER ? s->len : s->room,
				    .tag = 42,
				    .peer = party->peers[!me] };
	struct pinion_request *request = NULL;
	int ret = 0;

	for (const char *step = s->steps; *step; step++) {
		if (*step == "PG"[me])
			ret = me == WRITER ? pn_endpoint_put_when(party->ep, &m,
								  &request)
					   : pn_endpoint_grant(party->ep, &m,
							       &request);
		else if (*step == "pg"[me] && request)
			ret = pn_endpoint_cancel(party->ep, request);
		if (ret)
			rank_fail(party->rank, "step", __FILE__, __LINE__);
		if (s->settled && !settle(party))
			return NULL;
	}
	return request;
}

/* The outcome of the steps when packets arrive between them. */
static int outcome(const struct scenario *s)
{
	bool put = false, granted = false;

	for (const char *step = s->steps; *step; step++) {
		put = *step == 'P' || (put && *step != 'p');
		granted = *step == 'G' || (granted && *step != 'g');
		if (put && granted)
			return s->len > s->room ? -EMSGSIZE : 0;
	}
	return -ECANCELED;
}

static void check_end(struct party *party, const struct scenario *s,
		      const struct pinion_completion *end, const uint8_t *buf)
{
	struct rank *rank = party->rank;
	int all[2];

	if (!rank_exchange(rank, &end->status, sizeof(int), all))
		return;
	RANK_CHECK(rank, all[0] == all[1]);
	if (s->settled)
		RANK_CHECK(rank, end->status == outcome(s));
	else
		RANK_CHECK(rank, !end->status || end->status == -ECANCELED ||
					 end->status == -EMSGSIZE);
	if (end->status)
		return;
	RANK_CHECK(rank, end->len == s->len);
	RANK_CHECK(rank, end->tag == 42);
	if (rank->rank == GRANTER)
		RANK_CHECK(rank, pattern_holds(buf, s->len, 7));
}

static void act(struct rank *rank)
{
	const struct scenario *s = rank->arg;
	struct pinion_request *request;
	struct pinion_completion end;
	uint8_t *buf = map(MAX_BYTES);
	struct party party;

	if (!open_party(&party, rank, s->left))
		return;
	RANK_CHECK(rank, meet(&party));
	if (rank->rank == WRITER)
		pattern_fill(buf, s->len, 7);
	request = take_steps(&party, s, buf);
	if (request) {
		pn_endpoint_wait(party.ep, request, &end);
		check_end(&party, s, &end, buf);
	}
	if (settle(&party))
		party_close(&party);
	munmap(buf, MAX_BYTES);
}

static bool play(struct ranks *run, struct scenario s)
{
	run->fn = act;
	run->arg = &s;
	run->nranks = 2;
	if (ranks_run(run))
		return true;
	printf("steps %s, %zu bytes into %zu, %s, %zu left\n", s.steps, s.len,
	       s.room, s.settled ? "settled" : "at once", s.left);
	return false;
}

static bool every_order_of_arrival_ends_alike(struct ranks *run)
{
	static const char *const orders[] = { "PG",   "GP",   "PpGg", "PGpg",
					      "PGgp", "GPpg", "GPgp", "GgPp" };
	static const size_t sizes[][2] = { { 8, 8 },
					   { 200000, 200000 },
					   { 5000, 4999 },
					   { 5000, 6000 },
					   { 0, 0 } };
	/* Processes take their time to start. */
	unsigned n = strcmp(run->how, "sim") ? 3 : PN_ARRAY_LEN(sizes);
	bool ok = true;

	for (unsigned o = 0; ok && o < PN_ARRAY_LEN(orders); o++)
		for (unsigned i = 0; ok && i < n; i++)
			for (unsigned settled = 0; ok && settled < 2; settled++)
				ok = play(run, (struct scenario){
						       .steps = orders[o],
						       .len = sizes[i][0],
						       .room = sizes[i][1],
						       .settled = settled });
	return ok;
}

static bool without_room_for_pins_the_bytes_come_by_packets(struct ranks *run)
{
	bool ok = play(run, (struct scenario){ .steps = "PG",
					       .len = 200000,
					       .room = 200000,
					       .left = 4096 });

	return ok && play(run, (struct scenario){ .steps = "GP",
						  .len = 5000,
						  .room = 200000,
						  .settled = true,
						  .left = 40960 });
}

/* --- two grants of one tag ------------------------------------------------ */

#define HALF 5000

/* The later grant is cancelled: the write goes to the buffer of the first
 * grant, and a second write finds no grant. */
static void take_back_the_later(struct party *party, uint8_t *buf)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = buf,
				    .len = HALF,
				    .tag = 42,
				    .peer = party->peers[WRITER] };
	struct pinion_request *first, *later;

	RANK_CHECK(party->rank, !pn_endpoint_grant(party->ep, &m, &first));
	m.buf = buf + HALF;
	RANK_CHECK(party->rank, !pn_endpoint_grant(party->ep, &m, &later));
	if (!settle(party))
		return;
	RANK_CHECK(party->rank, !pn_endpoint_cancel(party->ep, later));
	RANK_CHECK(party->rank,
		   pn_endpoint_wait(party->ep, later, NULL) == -ECANCELED);
	settle(party);
	RANK_CHECK(party->rank, !pn_endpoint_wait(party->ep, first, NULL));
	RANK_CHECK(party->rank, pattern_holds(buf, HALF, 7));
	for (unsigned i = HALF; i < 2 * HALF; i++)
		RANK_CHECK(party->rank, !buf[i]);
}

static void write_twice(struct party *party, uint8_t *buf)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = buf,
				    .len = HALF,
				    .tag = 42,
				    .peer = party->peers[GRANTER] };
	struct pinion_request *first, *later;

	pattern_fill(buf, HALF, 7);
	if (!settle(party) || !settle(party))
		return;
	RANK_CHECK(party->rank, !pn_endpoint_put_when(party->ep, &m, &first));
	RANK_CHECK(party->rank, !pn_endpoint_put_when(party->ep, &m, &later));
	RANK_CHECK(party->rank, !pn_endpoint_wait(party->ep, first, NULL));
	RANK_CHECK(party->rank, !pn_endpoint_cancel(party->ep, later));
	RANK_CHECK(party->rank,
		   pn_endpoint_wait(party->ep, later, NULL) == -ECANCELED);
}

static void grant_twice(struct rank *rank)
{
	uint8_t *buf = map(2 * HALF);
	struct party party;

	if (!open_party(&party, rank, 0) || !meet(&party))
		return;
	if (rank->rank == GRANTER)
		take_back_the_later(&party, buf);
	else
		write_twice(&party, buf);
	party_barrier(&party);
	party_close(&party);
	munmap(buf, 2 * HALF);
}

static bool of_two_grants_of_a_tag_either_can_be_taken_back(struct ranks *run)
{
	run->fn = grant_twice;
	return ranks_run(run);
}

/* --- devices with short operations ---------------------------------------- */

/* Moves a message, whose fragments are longer, and a conditional write. */
static void move_in_parts(struct rank *rank)
{
	uint8_t *buf = map(MAX_BYTES);
	struct pinion_message m = {
		.size = sizeof(m), .buf = buf, .len = MAX_BYTES, .tag = 42
	};
	struct pinion_request *request;
	unsigned me = rank->rank;
	struct party party;

	rank->rails[0]->limits.max_op_bytes = 30000;
	if (!open_party(&party, rank, 0))
		return;
	m.peer = party.peers[!me];
	if (me == WRITER) {
		pattern_fill(buf, MAX_BYTES, 3);
		RANK_CHECK(rank, !party_send(&party, !me, buf, MAX_BYTES, 1));
		pattern_fill(buf, MAX_BYTES, 4);
		RANK_CHECK(rank, !pn_endpoint_put_when(party.ep, &m, &request));
	} else {
		RANK_CHECK(rank, !party_recv(&party, !me, buf, MAX_BYTES, 1));
		RANK_CHECK(rank, pattern_holds(buf, MAX_BYTES, 3));
		RANK_CHECK(rank, !pn_endpoint_grant(party.ep, &m, &request));
	}
	RANK_CHECK(rank, !pn_endpoint_wait(party.ep, request, NULL));
	RANK_CHECK(rank, pattern_holds(buf, MAX_BYTES, 4));
	party_barrier(&party);
	party_close(&party);
	munmap(buf, MAX_BYTES);
}

static bool what_a_device_cannot_take_at_once_goes_in_parts(struct ranks *run)
{
	run->fn = move_in_parts;
	return ranks_run(run);
}

/* --- many grants ---------------------------------------------------------- */

#define NMANY 3000

/* Thousands are outstanding, and writes come in the reverse order. */
static void grant_many(struct rank *rank)
{
	static struct pinion_request *requests[2][NMANY];
	struct pinion_message m = { .size = sizeof(m), .len = 8 };
	unsigned me = rank->rank;
	uint64_t *cells = (uint64_t *)map(NMANY * 8);
	struct party party;

	if (!open_party(&party, rank, 0))
		return;
	m.peer = party.peers[!me];
	for (uint64_t i = 0; i < NMANY; i++) {
		m.tag = me == WRITER ? i : NMANY - 1 - i;
		m.buf = &cells[m.tag];
		if (me == WRITER)
			cells[i] = i + 1;
		RANK_CHECK(rank, !(me == WRITER ? pn_endpoint_put_when
						: pn_endpoint_grant)(
					 party.ep, &m, &requests[me][i]));
	}
	for (unsigned i = 0; i < NMANY; i++)
		RANK_CHECK(rank,
			   !pn_endpoint_wait(party.ep, requests[me][i], NULL));
	for (uint64_t i = 0; i < NMANY; i++)
		RANK_CHECK(rank, cells[i] == i + 1);
	if (settle(&party))
		party_close(&party);
	munmap(cells, NMANY * 8);
}

static bool thousands_may_be_outstanding(struct ranks *run)
{
	run->fn = grant_many;
	return ranks_run(run);
}

/* --- dying peers ---------------------------------------------------------- */

/* The granter dies at some time; every request of the writer must end. */
static void outlive(struct rank *rank)
{
	struct pinion_message m = { .size = sizeof(m), .len = MAX_BYTES };
	struct pinion_request *requests[64];
	uint8_t *buf = map(MAX_BYTES);
	unsigned n = 0, me = rank->rank;
	struct party party;

	if (!open_party(&party, rank, 0))
		return;
	m.peer = party.peers[!me];
	m.buf = buf;
	for (; n < 32; n++) {
		m.tag = n / 2;
		m.len = n % 5 ? MAX_BYTES / (n + 1) : 8;
		/* Some of the writer's are never granted. */
		if ((n & 1) == me || (me == WRITER && n > 24)
			    ? pn_endpoint_put_when(party.ep, &m, &requests[n])
			    : pn_endpoint_grant(party.ep, &m, &requests[n]))
			break;
		party_poll(&party);
	}
	for (unsigned i = 0; i < n; i++) {
		int ret = pn_endpoint_wait(party.ep, requests[i], NULL);

		RANK_CHECK(rank, !ret || ret == -ECONNRESET);
		RANK_CHECK(rank, n < 32 || i < 25 || !(i & 1) || ret);
	}
	rank->idle = NULL;
	party_close(&party);
	munmap(buf, MAX_BYTES);
}

static bool every_write_ends_when_the_peer_dies(struct ranks *run)
{
	struct ranks apart = { .how = "sim",
			       .spec = "sim:cost=cx5,detect=100us",
			       .nranks = 2,
			       .fn = outlive };
	char script[64];

	(void)run;
	apart.script = script;
	/* Bounce buffers take 1.7 ms to register; then they meet. */
	for (unsigned us = 2000; us < 4000; us += 50) {
		snprintf(script, sizeof(script), "drop peer 1 at %u us\n", us);
		if (!ranks_run_apart(&apart)) {
			printf("script: %s", script);
			return false;
		}
	}
	return true;
}

/* --- released while exposed ----------------------------------------------- */

static int put_wait(struct party *party, struct pinion_remote *remote,
		    void *buf, size_t len)
{
	struct pinion_move move = {
		.size = sizeof(move), .remote = remote, .buf = buf, .len = len
	};
	struct pinion_request *request;
	int ret =
		pn_endpoint_access(party->ep, PN_REQUEST_PUT, &move, &request);

	return ret ? ret : pn_endpoint_wait(party->ep, request, NULL);
}

/* The owner releases memory, as munmap() would; its next call revokes the key.
 * A stale access would fail the simulation. */
static void release_exposed(struct rank *rank)
{
	struct pinion_exposure *exposure = NULL;
	struct pinion_remote *remote = NULL;
	struct pinion_exposure_key key = { 0 }, keys[2];
	uint8_t *bytes = map(MAX_BYTES);
	bool owner = rank->rank == GRANTER;
	struct party party;

	if (!open_party(&party, rank, 0))
		return;
	if (owner) {
		RANK_CHECK(rank, !pn_endpoint_expose(party.ep, bytes, MAX_BYTES,
						     PINION_ACCESS_REMOTE_WRITE,
						     &exposure));
		pn_exposure_key(exposure, &key);
	}
	if (!rank_exchange(rank, &key, sizeof(key), keys))
		return;
	if (!owner) {
		RANK_CHECK(rank,
			   !pn_endpoint_remote(party.ep, party.peers[GRANTER],
					       &keys[GRANTER], &remote));
		RANK_CHECK(rank, !put_wait(&party, remote, bytes, MAX_BYTES));
	}
	party_barrier(&party);
	if (owner) {
		pn_cache_invalidate(party.cache, (uintptr_t)bytes + 8192, 4096);
		pn_sim_released(rank->sim, rank->rank, bytes + 8192, 4096);
		party_poll(&party);
	}
	party_barrier(&party);
	if (!owner) {
		RANK_CHECK(rank, put_wait(&party, remote, bytes, 8) == -EACCES);
		RANK_CHECK(rank, put_wait(&party, remote, bytes, MAX_BYTES) ==
					 -EACCES);
		pn_endpoint_remote_close(remote);
	}
	party_barrier(&party);
	if (owner)
		pn_endpoint_unexpose(exposure);
	party_close(&party);
	munmap(bytes, MAX_BYTES);
}

static bool released_memory_is_never_written(struct ranks *run)
{
	run->fn = release_exposed;
	run->nranks = 2;
	return ranks_run(run);
}

/* The granter revokes its key, not its grant: the requests of both end. */
static void revoke_granted(struct rank *rank)
{
	uint8_t *bytes = map(MAX_BYTES);
	struct pinion_message m = {
		.size = sizeof(m), .buf = bytes, .len = MAX_BYTES, .tag = 42
	};
	struct pinion_request *request = NULL;
	bool owner = rank->rank == GRANTER;
	struct party party;

	if (!open_party(&party, rank, 0) || !meet(&party))
		return;
	m.peer = party.peers[!rank->rank];
	if (owner)
		RANK_CHECK(rank, !pn_endpoint_grant(party.ep, &m, &request));
	if (!settle(&party))
		return;
	if (owner)
		RANK_CHECK(rank, !pn_cache_revoke(party.cache, (uintptr_t)bytes,
						  MAX_BYTES));
	party_barrier(&party);
	if (!owner)
		RANK_CHECK(rank, !pn_endpoint_put_when(party.ep, &m, &request));
	RANK_CHECK(rank, pn_endpoint_wait(party.ep, request, NULL) == -EACCES);
	party_barrier(&party);
	party_close(&party);
	munmap(bytes, MAX_BYTES);
}

static bool a_grant_whose_key_is_revoked_fails_at_both_ends(struct ranks *run)
{
	run->fn = revoke_granted;
	run->nranks = 2;
	return ranks_run(run);
}

/* --- main ----------------------------------------------------------------- */

struct test {
	const char *name;
	bool (*fn)(struct ranks *run);
	bool virtual_time;
};

#define ROW(test, only_sim)           \
	{                             \
#test, test, only_sim \
	}

int main(int argc, char **argv)
{
	static const struct test tests[] = {
		ROW(every_order_of_arrival_ends_alike, false),
		ROW(without_room_for_pins_the_bytes_come_by_packets, true),
		ROW(of_two_grants_of_a_tag_either_can_be_taken_back, true),
		ROW(what_a_device_cannot_take_at_once_goes_in_parts, true),
		ROW(thousands_may_be_outstanding, false),
		ROW(every_write_ends_when_the_peer_dies, true),
		ROW(released_memory_is_never_written, true),
		ROW(a_grant_whose_key_is_revoked_fails_at_both_ends, true),
	};
	bool passed = true;

	if (argc != 3) {
		fprintf(stderr, "usage: %s HOW SPEC\n", argv[0]);
		return 2;
	}
	for (unsigned i = 0; i < PN_ARRAY_LEN(tests); i++) {
		struct ranks run = { .how = argv[1],
				     .spec = argv[2],
				     .nranks = 2 };
		bool ok;

		if (tests[i].virtual_time && strcmp(argv[1], "sim"))
			continue;
		printf("[ RUN      ] %s\n", tests[i].name);
		ok = tests[i].fn(&run);
		printf("[%s] %s\n", ok ? "       OK " : "  FAILED  ",
		       tests[i].name);
		passed &= ok;
	}
	return !passed;
}
