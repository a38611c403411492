/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What `auto` takes in virtual time, beside the best protocol that is fixed.
 *
 * A cell is a size, a number of uses of each buffer and a cost profile. Trials
 * are as those of `pinion bench message`: some buffers one after the other,
 * each used so often, every message answered by eight bytes; afterwards the
 * buffers are released. The next trial's buffers lie at the same addresses.
 *
 * `auto` is run cold, by the first trial of its life, and when it has seen 200
 * buffers of the cell.
 *
 *   test_auto [whole|few]     the grid: all of it, a part, or less
 */
#include "test.h"

#include <math.h>
#include <sys/mman.h>

#include "message/party.h"

#define KIB	 ((size_t)1 << 10)
#define MIB	 ((size_t)1 << 20)
#define BUFFERS	 4     /* in a trial */
#define SEEN	 200   /* buffers until `auto` counts as having learned */
#define MESSAGES 1000  /* enough to learn from, in a part of the grid */
#define WHOLE	 20000 /* and in the whole grid */

static const char *grid_kind = "part";

static const struct pn_protocol_limits defaults = {
	.eager_bytes = 8 * KIB,
	.match_bytes = 4 * KIB,
	.rdma_offset = 256 * KIB,
	.depth = 4,
};

/* What a rank does: phases of trials. */
struct phase {
	size_t len;
	unsigned reuse, trials;
	uint64_t took_ns; /* time per message */
};

struct course {
	int protocol;
	struct phase *phases;
	unsigned nphases;
	size_t most; /* bytes of a buffer */
	struct pn_endpoint_stats stats;
};

static int answer(struct party *party, bool ask)
{
	uint64_t word = 0;

	return ask ? party_recv(party, 1, &word, sizeof(word), 2)
		   : party_send(party, 0, &word, sizeof(word), 2);
}

/* The receive of the next message is posted before the answer is sent, so that
 * the message is expected. */
static bool receive_trial(struct party *party, const struct phase *phase,
			  uint8_t *arena, size_t stride)
{
	unsigned n = BUFFERS * phase->reuse;
	struct pinion_message m = { .size = sizeof(m),
				    .len = phase->len,
				    .tag = 1,
				    .peer = party->peers[0] };
	struct pinion_request *request = NULL;
	int ret = 0;

	for (unsigned i = 0; !ret && i <= n; i++) {
		if (request)
			ret = pn_endpoint_wait(party->ep, request, NULL);
		m.buf = arena + i / phase->reuse * stride;
		if (!ret && i < n)
			ret = pn_endpoint_recv(party->ep, &m, &request);
		if (!ret)
			ret = answer(party, false);
	}
	return !ret;
}

static bool send_trial(struct party *party, const struct phase *phase,
		       uint8_t *arena, size_t stride)
{
	int ret = answer(party, true);

	for (unsigned i = 0; !ret && i < BUFFERS * phase->reuse; i++) {
		ret = party_send(party, 1, arena + i / phase->reuse * stride,
				 phase->len, 1);
		if (!ret)
			ret = answer(party, true);
	}
	return !ret;
}

static void run_phase(struct party *party, struct course *c,
		      struct phase *phase, uint8_t *arena)
{
	struct pn_device *device = party->rank->device;
	size_t stride = c->most + MIB;
	uint64_t sum = 0;

	for (unsigned t = 0; t < phase->trials; t++) {
		uint64_t begin = pn_device_now(device);

		RANK_CHECK(party->rank,
			   party->rank->rank
				   ? receive_trial(party, phase, arena, stride)
				   : send_trial(party, phase, arena, stride));
		sum += pn_device_now(device) - begin;
		pn_cache_invalidate(party->cache, (uintptr_t)arena,
				    BUFFERS * stride);
		pn_cache_flush(party->cache);
		RANK_CHECK(party->rank, party_barrier(party));
	}
	if (!party->rank->rank)
		phase->took_ns = sum / (BUFFERS * phase->reuse * phase->trials);
}

static void run_course(struct rank *rank)
{
	struct course *c = rank->arg;
	/* The reuse of short messages (reuse.h) is not measured here. */
	struct party_attr attr = { .protocol = c->protocol,
				   .limits = defaults,
				   .reuse.mode = PN_REUSE_OFF };
	size_t bytes = BUFFERS * (c->most + MIB);
	/* Untouched pages between buffers, so that regions do not merge. */
	uint8_t *arena =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct party party;

	RANK_CHECK(rank, arena != MAP_FAILED);
	if (!party_open(&party, rank, &attr))
		return;
	for (unsigned i = 0; i < c->nphases; i++)
		run_phase(&party, c, &c->phases[i], arena);
	if (!rank->rank)
		pn_endpoint_query(party.ep, &c->stats);
	party_barrier(&party);
	party_close(&party);
	munmap(arena, bytes);
}

static void run(const char *spec, struct course *course)
{
	struct ranks ranks = { .how = "sim",
			       .spec = spec,
			       .nranks = 2,
			       .fn = run_course,
			       .arg = course };

	for (unsigned i = 0; i < course->nphases; i++)
		if (course->phases[i].len > course->most)
			course->most = course->phases[i].len;
	assert_true(ranks_run(&ranks));
}

/* --- one cell ------------------------------------------------------------- */

struct cell {
	const char *spec;
	size_t len;
	unsigned reuse;
	/* Results: ns for one message. */
	double best, cold, learned;
	double fixed[PN_PROTOCOL_COUNT];
	int best_protocol;
};

static double run_one(const struct cell *cell, int protocol)
{
	struct phase phase = { .len = cell->len,
			       .reuse = cell->reuse,
			       .trials = 1 };
	struct course course = { .protocol = protocol,
				 .phases = &phase,
				 .nphases = 1 };

	run(cell->spec, &course);
	return (double)phase.took_ns;
}

static void run_fixed(struct cell *cell)
{
	cell->best = INFINITY;
	for (int id = PN_PROTOCOL_COPY; id < PN_PROTOCOL_COUNT; id++) {
		cell->fixed[id] = run_one(cell, id);
		if (cell->fixed[id] < cell->best) {
			cell->best = cell->fixed[id];
			cell->best_protocol = id;
		}
	}
}

/* At most so many trials, or as many as make enough messages. */
static unsigned trials_for(unsigned reuse, unsigned most, unsigned messages)
{
	unsigned enough = 1 + messages / (BUFFERS * reuse);

	return most < enough ? most : enough;
}

static unsigned learning_trials(unsigned reuse)
{
	bool all = !strcmp(grid_kind, "whole");

	return trials_for(reuse, SEEN / BUFFERS, all ? WHOLE : MESSAGES);
}

static void run_auto(struct cell *cell)
{
	struct phase phases[] = {
		{ .len = cell->len, .reuse = cell->reuse, .trials = 1 },
		{ .len = cell->len,
		  .reuse = cell->reuse,
		  .trials = learning_trials(cell->reuse) },
		{ .len = cell->len,
		  .reuse = cell->reuse,
		  .trials = trials_for(cell->reuse, 12, 2000) },
	};
	struct course course = { .protocol = PN_PROTOCOL_AUTO,
				 .phases = phases,
				 .nphases = PN_ARRAY_LEN(phases) };

	run(cell->spec, &course);
	cell->cold = (double)phases[0].took_ns;
	cell->learned = (double)phases[2].took_ns;
	printf("%s %9zu x %-4u: %-16s %10.2f us, auto cold %10.2f (%.2f "
	       "times), learned %10.2f (%5.1f %%), off %.1f %%\n",
	       cell->spec, cell->len, cell->reuse,
	       pn_protocol_name((unsigned)cell->best_protocol),
	       cell->best / 1e3, cell->cold / 1e3, cell->cold / cell->best,
	       cell->learned / 1e3, 100 * cell->best / cell->learned,
	       100 * course.stats.choices.mean_error);
}

/* --- the grid ------------------------------------------------------------- */

/* Logarithms, summed for the geometric means. */
struct sums {
	double fixed[PN_PROTOCOL_COUNT], learned;
	unsigned n;
};

static void add_cell(struct cell *cell, double share, struct sums *sums)
{
	run_fixed(cell);
	run_auto(cell);
	assert_true(cell->cold <= 2 * cell->best);
	assert_true(cell->best >= share * cell->learned);
	for (int id = PN_PROTOCOL_COPY; id < PN_PROTOCOL_COUNT; id++)
		sums->fixed[id] += log(cell->fixed[id]);
	sums->learned += log(cell->learned);
	sums->n++;
}

static void check_grid(const char *spec, const size_t *sizes,
		       const unsigned *reuses, double share)
{
	struct sums sums = { 0 };

	for (; *sizes; sizes++)
		for (const unsigned *reuse = reuses; *reuse; reuse++) {
			struct cell cell = { .spec = spec,
					     .len = *sizes,
					     .reuse = *reuse };

			add_cell(&cell, share, &sums);
		}
	for (int id = PN_PROTOCOL_COPY; id < PN_PROTOCOL_COUNT; id++) {
		printf("%s: %s takes %.2f times as long as auto\n", spec,
		       pn_protocol_name((unsigned)id),
		       exp((sums.fixed[id] - sums.learned) / sums.n));
		assert_true(sums.fixed[id] > sums.learned);
	}
}

static void auto_is_as_good_as_the_best_once_it_has_learned(void **state)
{
	static const size_t few_sizes[] = { 64 * KIB, 0 },
			    part_sizes[] = { 16 * KIB, 64 * KIB, 256 * KIB,
					     MIB,      4 * MIB,	 0 },
			    all_sizes[] = { 64,	       256,	 KIB,
					    4 * KIB,   16 * KIB, 64 * KIB,
					    256 * KIB, MIB,	 4 * MIB,
					    16 * MIB,  64 * MIB, 0 };
	static const unsigned few_uses[] = { 1, 8, 0 },
			      part_uses[] = { 1, 2, 8, 64, 0 },
			      all_uses[] = { 1, 2, 8, 64, 1000, 0 };
	bool all = !strcmp(grid_kind, "whole"), few = !strcmp(grid_kind, "few");
	const size_t *sizes = all ? all_sizes : few ? few_sizes : part_sizes;
	const unsigned *uses = all ? all_uses : few ? few_uses : part_uses;

	(void)state;
	check_grid("sim:cost=ou2009,data=none", sizes, uses, 0.95);
	check_grid("sim:cost=cx5,data=none", sizes, uses, 0.95);
}

/* The constants of `auto` were tuned on the grid above; these are other
 * profiles, sizes and numbers of uses. Of the 80 cells three are below 95 %, at
 * 94.5 % or more. */
static void auto_is_as_good_where_nobody_tuned_it(void **state)
{
	static const char *const profiles[] = { "woodall2006", "rashti2011",
						"stria", "mutrino" };
	static const size_t sizes[] = { 24 * KIB, 100 * KIB, 700 * KIB,
					3 * MIB,  12 * MIB,  0 };
	static const unsigned uses[] = { 1, 3, 20, 200, 0 };

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(profiles); i++) {
		char spec[64];

		snprintf(spec, sizeof(spec), "sim:cost=%s,data=none",
			 profiles[i]);
		check_grid(spec, sizes, uses, 0.94);
	}
}

/* --- a program that changes its behaviour --------------------------------- */

static double best_of(const char *spec, size_t len, unsigned reuse)
{
	struct cell cell = { .spec = spec, .len = len, .reuse = reuse };

	run_fixed(&cell);
	return cell.best;
}

static void auto_follows_when_reuse_begins_and_ends(void **state)
{
	const char *spec = "sim:cost=cx5,data=none";
	const size_t len = 64 * KIB;
	struct phase phases[] = {
		{ .len = len, .reuse = 1, .trials = 40 },
		{ .len = len, .reuse = 1, .trials = 40 },
		{ .len = len, .reuse = 64, .trials = 4 },
		{ .len = len, .reuse = 64, .trials = 2 },
		{ .len = len, .reuse = 1, .trials = 40 },
		{ .len = len, .reuse = 1, .trials = 40 },
	};
	struct course course = { .protocol = PN_PROTOCOL_AUTO,
				 .phases = phases,
				 .nphases = PN_ARRAY_LEN(phases) };

	(void)state;
	run(spec, &course);
	for (unsigned i = 1; i < PN_ARRAY_LEN(phases); i += 2) {
		double best = best_of(spec, len, phases[i].reuse);

		printf("%u uses: best %.2f us, auto %.2f us, and %.2f while it "
		       "learned\n",
		       phases[i].reuse, best / 1e3,
		       (double)phases[i].took_ns / 1e3,
		       (double)phases[i - 1].took_ns / 1e3);
		assert_true(best >= 0.9 * (double)phases[i].took_ns);
	}
}

/* --- several kinds of use at once ----------------------------------------- */

/* Buffers that are used often and buffers that are used once, of two sizes, in
 * turns. */
struct mix {
	int protocol;
	uint64_t took_ns; /* the last half */
};

#define MIX_ROUNDS 120

static bool mix_message(struct party *party, uint8_t *buf, size_t len,
			bool once)
{
	int ret = party->rank->rank ? party_recv(party, 0, buf, len, 1)
				    : party_send(party, 1, buf, len, 1);

	if (!ret)
		ret = answer(party, !party->rank->rank);
	if (once)
		pn_cache_invalidate(party->cache, (uintptr_t)buf, len);
	return !ret;
}

static void run_mix(struct rank *rank)
{
	static const size_t sizes[] = { 64 * KIB, MIB };
	struct mix *mix = rank->arg;
	struct party_attr attr = { .protocol = mix->protocol,
				   .limits = defaults };
	size_t bytes = 8 * (2 * MIB);
	uint8_t *arena =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	struct party party;
	uint64_t begin = 0;

	RANK_CHECK(rank, arena != MAP_FAILED);
	if (!party_open(&party, rank, &attr))
		return;
	for (unsigned i = 0; i < MIX_ROUNDS; i++) {
		if (i == MIX_ROUNDS / 2)
			begin = pn_device_now(rank->device);
		/* 0, 1: used often; 2 to 7: three of each size in turns. */
		for (unsigned j = 0; j < 4; j++) {
			unsigned at = j < 2 ? j : 2 * (1 + i % 3) + (j & 1);

			RANK_CHECK(rank,
				   mix_message(&party, arena + at * 2 * MIB,
					       sizes[j & 1], j >= 2));
		}
	}
	if (!rank->rank)
		mix->took_ns = pn_device_now(rank->device) - begin;
	party_barrier(&party);
	party_close(&party);
	munmap(arena, bytes);
}

static double mixed(int protocol)
{
	struct mix mix = { .protocol = protocol };
	struct ranks ranks = { .how = "sim",
			       .spec = "sim:cost=cx5,data=none",
			       .nranks = 2,
			       .fn = run_mix,
			       .arg = &mix };

	assert_true(ranks_run(&ranks));
	return (double)mix.took_ns;
}

static void buffers_that_stay_and_buffers_that_go_are_told_apart(void **state)
{
	double ours = mixed(PN_PROTOCOL_AUTO);

	(void)state;
	for (int id = PN_PROTOCOL_COPY; id < PN_PROTOCOL_COUNT; id++) {
		double fixed = mixed(id);

		printf("mixed: %s takes %.2f times as long as auto\n",
		       pn_protocol_name((unsigned)id), fixed / ours);
		assert_true(fixed > 1.05 * ours);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(auto_follows_when_reuse_begins_and_ends),
		TEST(buffers_that_stay_and_buffers_that_go_are_told_apart),
		TEST(auto_is_as_good_as_the_best_once_it_has_learned),
	};

	const struct CMUnitTest untuned[] = {
		TEST(auto_is_as_good_where_nobody_tuned_it),
	};

	if (argc > 1)
		grid_kind = argv[1];
	if (!strcmp(grid_kind, "untuned"))
		return RUN_TESTS(untuned);
	return RUN_TESTS(tests);
}
