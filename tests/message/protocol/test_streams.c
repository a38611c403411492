/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What `auto` takes in streams, in virtual time, beside the best protocol that
 * is fixed: windows of messages that are in flight together, as those of MPI
 * bandwidth tests. A cell is a cost profile, a size, a window, one direction or
 * both, and buffers that are used in every window or released after it.
 *
 * `auto` first learns, for LEARNED messages of the size and at least WINDOWS
 * windows; until then it may take twice the time of the best.
 *
 *   test_streams [few|whole]    the grid: a part, less of it, or all of it
 */
#include "test.h"

#include <math.h>
#include <sys/mman.h>

#include "message/party.h"

#define KIB		((size_t)1 << 10)
#define MIB		((size_t)1 << 20)
#define MOST		64 /* messages of a window */
#define WINDOWS		60 /* to learn from, at least */
#define LEARNED		2000
#define SHARE		0.95
/* Both directions, buffers released: each side learns while the other one
 * explores, and protocols differ by less than that disturbs. */
#define SHARE_DISTURBED 0.88

static enum { FEW, PART, WHOLE } grid = PART;

static const struct pn_protocol_limits defaults = {
	.eager_bytes = 8 * KIB,
	.match_bytes = 4 * KIB,
	.rdma_offset = 256 * KIB,
	.depth = 4,
};

/* Windows of one kind, one after the other. */
struct phase {
	size_t len;
	unsigned window;
	bool both, fresh; /* both directions; buffers are released */
	unsigned nwindows;
	uint64_t took_ns; /* of one window */
};

struct course {
	int protocol;
	struct phase *phases;
	unsigned nphases;
	struct pn_endpoint_stats stats;
};

static int post(struct party *party, const struct phase *phase, bool send,
		uint8_t *arena, struct pinion_request **requests)
{
	struct pinion_message m = { .size = sizeof(m),
				    .len = phase->len,
				    .tag = 1,
				    .peer = party->peers[!party->rank->rank] };
	size_t stride = (phase->len + 8191) & ~(size_t)4095;
	int ret = 0;

	for (unsigned i = 0; !ret && i < phase->window; i++) {
		m.buf = arena + i * stride;
		ret = send ? pn_endpoint_send(party->ep, &m, &requests[i])
			   : pn_endpoint_recv(party->ep, &m, &requests[i]);
	}
	return ret;
}

static int wait_all(struct party *party, struct pinion_request **requests,
		    unsigned n)
{
	int ret = 0;

	for (unsigned i = 0; !ret && i < n; i++)
		ret = pn_endpoint_wait(party->ep, requests[i], NULL);
	return ret;
}

/* A window, and a short message back where the other side only receives. */
static int run_window(struct party *party, const struct phase *phase,
		      uint8_t *arena)
{
	struct pinion_request *sends[MOST], *receives[MOST];
	bool first = !party->rank->rank;
	uint64_t word = 0;
	int ret = 0;

	if (!first || phase->both)
		ret = post(party, phase, false, arena + MOST * 4 * MIB,
			   receives);
	if (!ret && (first || phase->both))
		ret = post(party, phase, true, arena, sends);
	if (!ret && (first || phase->both))
		ret = wait_all(party, sends, phase->window);
	if (!ret && (!first || phase->both))
		ret = wait_all(party, receives, phase->window);
	if (ret || phase->both)
		return ret;
	return first ? party_recv(party, 1, &word, sizeof(word), 2)
		     : party_send(party, 0, &word, sizeof(word), 2);
}

static void run_phase(struct party *party, struct phase *phase, uint8_t *arena,
		      size_t bytes)
{
	struct pn_device *device = party->rank->device;
	uint64_t sum = 0;

	for (unsigned i = 0; i < phase->nwindows; i++) {
		uint64_t begin = pn_device_now(device);

		RANK_CHECK(party->rank, !run_window(party, phase, arena));
		sum += pn_device_now(device) - begin;
		if (!phase->fresh)
			continue;
		pn_cache_invalidate(party->cache, (uintptr_t)arena, bytes);
		pn_cache_flush(party->cache);
		RANK_CHECK(party->rank, party_barrier(party));
	}
	if (!party->rank->rank)
		phase->took_ns = sum / phase->nwindows;
}

static void run_course(struct rank *rank)
{
	struct course *c = rank->arg;
	struct party_attr attr = { .protocol = c->protocol,
				   .limits = defaults,
				   .reuse.mode = PN_REUSE_OFF };
	size_t bytes = 2 * MOST * 4 * MIB;
	uint8_t *arena =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct party party;

	RANK_CHECK(rank, arena != MAP_FAILED);
	if (!party_open(&party, rank, &attr))
		return;
	RANK_CHECK(rank, party_barrier(&party));
	for (unsigned i = 0; i < c->nphases; i++)
		run_phase(&party, &c->phases[i], arena, bytes);
	if (!rank->rank)
		pn_endpoint_query(party.ep, &c->stats);
	party_barrier(&party);
	party_close(&party);
	munmap(arena, bytes);
}

static void run(const char *profile, struct course *course)
{
	char spec[64];
	struct ranks ranks = { .how = "sim",
			       .spec = spec,
			       .nranks = 2,
			       .fn = run_course,
			       .arg = course };

	snprintf(spec, sizeof(spec), "sim:cost=%s,data=none", profile);
	assert_true(ranks_run(&ranks));
}

/* --- a cell --------------------------------------------------------------- */

/* The first windows register; fixed protocols need no more to be as fast as
 * they get. */
static double fixed_ns(const char *profile, struct phase phase, int protocol)
{
	struct phase phases[] = { phase, phase };
	struct course course = { .protocol = protocol,
				 .phases = phases,
				 .nphases = 2 };

	phases[0].nwindows = 2;
	phases[1].nwindows = 4;
	run(profile, &course);
	return (double)phases[1].took_ns;
}

static double best_ns(const char *profile, struct phase phase, int *best)
{
	double least = INFINITY;

	for (int id = PN_PROTOCOL_COPY; id < PN_PROTOCOL_COUNT; id++) {
		double ns = fixed_ns(profile, phase, id);

		if (ns < least) {
			least = ns;
			*best = id;
		}
	}
	return least;
}

static unsigned learning_windows(unsigned window)
{
	unsigned n = LEARNED / window;

	return n < WINDOWS ? WINDOWS : n;
}

static unsigned nbelow;

static void check_cell(const char *profile, struct phase phase)
{
	struct phase phases[] = { phase, phase };
	struct course course = { .protocol = PN_PROTOCOL_AUTO,
				 .phases = phases,
				 .nphases = 2 };
	int best = 0;
	double least = best_ns(profile, phase, &best), ours, learning, share;

	phases[0].nwindows = learning_windows(phase.window);
	phases[1].nwindows = phases[0].nwindows;
	run(profile, &course);
	learning = (double)phases[0].took_ns;
	ours = (double)phases[1].took_ns;
	printf("%-11s %7zu x %-2u %s %s: %-16s %9.2f us, auto learning %.2f "
	       "times, learned %5.1f %%, %lu explored, %lu changes\n",
	       profile, phase.len, phase.window, phase.both ? "both" : "one ",
	       phase.fresh ? "fresh" : "used ",
	       pn_protocol_name((unsigned)best), least / 1e3, learning / least,
	       100 * least / ours, (unsigned long)course.stats.choices.explored,
	       (unsigned long)course.stats.choices.changes);
	share = phase.both && phase.fresh ? SHARE_DISTURBED : SHARE;
	nbelow += least < share * ours || learning > 2 * least;
}

static void check_windows(const char *profile, size_t len)
{
	static const unsigned few[] = { 4, 0 }, part[] = { 2, 16, 0 },
			      all[] = { 1, 2, 4, 8, 16, 64, 0 };
	static const unsigned *const windows[] = { few, part, all };

	for (const unsigned *w = windows[grid]; *w; w++)
		for (unsigned kind = 0; kind < 4; kind++)
			check_cell(profile,
				   (struct phase){ .len = len,
						   .window = *w,
						   .both = kind & 1,
						   .fresh = kind & 2 });
}

static void auto_is_as_good_as_the_best_in_streams(void **state)
{
	static const char *const few[] = { "cx5", NULL },
				 *const part[] = { "cx5", "ou2009", NULL },
				 *const all[] = { "cx5", "ou2009", "stria",
						  "mutrino", NULL };
	static const char *const *const profiles[] = { few, part, all };
	static const size_t few_sizes[] = { 300000, 0 },
			    part_sizes[] = { 100000, 700000, 0 },
			    all_sizes[] = { 16 * KIB,  100000, 300000,
					    512 * KIB, 700000, 3000000,
					    0 };
	static const size_t *const sizes[] = { few_sizes, part_sizes,
					       all_sizes };

	(void)state;
	for (const char *const *p = profiles[grid]; *p; p++)
		for (const size_t *len = sizes[grid]; *len; len++)
			check_windows(*p, *len);
	assert_int_equal(nbelow, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(auto_is_as_good_as_the_best_in_streams),
	};

	if (argc > 1)
		grid = strcmp(argv[1], "whole") ? FEW : WHOLE;
	return RUN_TESTS(tests);
}
