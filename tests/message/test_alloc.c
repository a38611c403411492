/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Nothing is allocated on the data path: after a warm-up, ping-pongs under
 * every protocol call malloc and its kin not once (the linker wraps them). Not
 * so a pin of more than one region, whose list of parts the cache allocates: so
 * what is sent and what is received are far apart and share no page.
 *
 *   test_alloc HOW SPEC [NPINGPONGS]
 */
#include <stdatomic.h>

#include "message/party.h"

#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "test.h"

#define WARM 300

static _Atomic bool counting;
static _Atomic unsigned nallocations;
static void *_Atomic whence; /* who called first */

static void count(void *caller)
{
	void *none = NULL;

	if (!atomic_load_explicit(&counting, memory_order_relaxed))
		return;
	atomic_fetch_add(&nallocations, 1);
	atomic_compare_exchange_strong(&whence, &none, caller);
}

#define CALLER __builtin_return_address(0)

/* The linker's names: what is called, and what would have been. */
void *__real_malloc(size_t len);
void *__real_calloc(size_t n, size_t len);
void *__real_realloc(void *old, size_t len);
void *__real_aligned_alloc(size_t align, size_t len);
void *__wrap_malloc(size_t len);
void *__wrap_calloc(size_t n, size_t len);
void *__wrap_realloc(void *old, size_t len);
void *__wrap_aligned_alloc(size_t align, size_t len);

void *__wrap_malloc(size_t len)
{
	count(CALLER);
	return __real_malloc(len);
}

void *__wrap_calloc(size_t n, size_t len)
{
	count(CALLER);
	return __real_calloc(n, len);
}

void *__wrap_realloc(void *old, size_t len)
{
	count(CALLER);
	return __real_realloc(old, len);
}

void *__wrap_aligned_alloc(size_t align, size_t len)
{
	count(CALLER);
	return __real_aligned_alloc(align, len);
}

/* --- ping-pongs ----------------------------------------------------------- */

int main(int argc, char **argv);

struct game {
	int protocol;
	size_t len;
	unsigned n;
};

/* Messages that come before they are wanted need memory, too. */
static void surprise(struct party *party, const struct game *game, uint8_t *out,
		     uint8_t *in)
{
	struct rank *rank = party->rank;
	struct pinion_message m = { .buf = out,
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
	ping_pong(&party, game, out, in, WARM);
	party_barrier(&party);
	atomic_store(&counting, true);
	ping_pong(&party, game, out, in, game->n);
	atomic_store(&counting, false);
	snprintf(why, sizeof(why), "%u allocations, the first at main%+td",
		 nallocations, (char *)whence - (char *)main);
	if (nallocations)
		rank_fail(rank, why, __FILE__, __LINE__);
	party_barrier(&party);
	party_close(&party);
	munmap(out - APART, game->len + 2 * APART);
	munmap(in - APART, game->len + 2 * APART);
}

static bool allocates_nothing(struct ranks *run, int protocol, unsigned n)
{
	const char *name = pn_protocol_name((unsigned)protocol);
	struct game game = { .protocol = protocol,
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
	for (int p = 0; p <= PN_PROTOCOL_AUTO; p++)
		passed &= allocates_nothing(&run, p, n);
	return !passed;
}
