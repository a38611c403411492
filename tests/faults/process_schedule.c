/* SPDX-License-Identifier: BSD-2-Clause */
#include "process_lives.h"

#include <string.h>

#include "test.h"

static const char *const names[ACT_NKINDS] = {
	"open",		 "close", "close_context", "send",   "receive",
	"receive_named", "move",  "add",	   "write",  "grant",
	"cancel",	 "wait",  "compute",	   "exit",   "start",
	"kill",		 "stop",  "continue",	   "settle",
};

/* How often each kind comes. */
static const unsigned weights[ACT_NKINDS] = {
	10, 4, 4, 30, 22, 6, 14, 8, 6, 6, 3, 6, 4, 1, 16, 4, 4, 9, 14,
};

/* Short, eager, of several fragments. */
static size_t random_len(uint64_t *random)
{
	static const size_t upper[] = { 9, 1000, 9000, 70000, LIVES_ROOM };

	return test_below(random,
			  upper[test_below(random, PN_ARRAY_LEN(upper))] + 1);
}

/* Mostly at once or soon. */
static unsigned random_us(uint64_t *random, bool long_stops)
{
	static const unsigned upper[] = { 1,	 500,	500,	 2000,	 2000,
					  10000, 20000, 1500000, 7000000 };
	unsigned n = test_below(random, 40) || !long_stops ? 7 : 9;

	return (unsigned)test_below(random, upper[test_below(random, n)]);
}

static struct lives_step random_step(uint64_t *random, unsigned nnodes,
				     bool long_stops)
{
	struct lives_step step = { .act = test_weighted(random, weights,
							ACT_NKINDS) };

	step.node = (unsigned)test_below(random, nnodes);
	step.other = (unsigned)test_below(random, nnodes);
	step.len = random_len(random);
	step.options = (unsigned)test_below(random, 1 << 16);
	step.us = random_us(random, long_stops);
	return step;
}

/* All start and open before anything else happens. */
static void first_step(struct lives_schedule *s, unsigned i)
{
	s->steps[i].act = i < s->nnodes	      ? ACT_START
			  : i < 2 * s->nnodes ? ACT_OPEN
					      : ACT_SETTLE;
	s->steps[i].node = i % s->nnodes;
}

/* Whatever one node sends another receives, mostly. */
static void answer(struct lives_step *step, const struct lives_step *last)
{
	if (last->act != ACT_SEND && last->act != ACT_WRITE)
		return;
	step->act = last->act == ACT_SEND ? ACT_RECEIVE : ACT_GRANT;
	step->node = last->other;
	step->other = last->node;
}

void lives_schedule_make(struct lives_schedule *s, uint64_t seed,
			 const char *device, bool long_stops)
{
	uint64_t random = seed;

	memset(s, 0, sizeof(*s));
	s->seed = seed;
	snprintf(s->device, sizeof(s->device), "%s", device);
	s->nnodes = 2 + (unsigned)test_below(&random, LIVES_NODES - 1);
	s->max_bytes = (size_t)(test_below(&random, 3) ? 16 : 3) << 20;
	s->n = 60 + (unsigned)test_below(&random, LIVES_STEPS - 59);
	for (unsigned i = 0; i < s->n; i++) {
		s->steps[i] = random_step(&random, s->nnodes, long_stops);
		if (i <= 2 * s->nnodes)
			first_step(s, i);
		else if (test_below(&random, 4))
			answer(&s->steps[i], &s->steps[i - 1]);
	}
}

void lives_schedule_print(const struct lives_schedule *s, FILE *to)
{
	fprintf(to, "schedule 0x%llx %s %u %zu\n", (unsigned long long)s->seed,
		s->device, s->nnodes, s->max_bytes);
	for (unsigned i = 0; i < s->n; i++)
		fprintf(to, "%s %u %u %zu %u %u\n", names[s->steps[i].act],
			s->steps[i].node, s->steps[i].other, s->steps[i].len,
			s->steps[i].options, s->steps[i].us);
}

static bool read_step(struct lives_step *step, unsigned nnodes,
		      const char *line)
{
	char name[32];

	if (sscanf(line, "%31s %u %u %zu %u %u", name, &step->node,
		   &step->other, &step->len, &step->options, &step->us) != 6)
		return false;
	step->act = 0;
	while (step->act < ACT_NKINDS && strcmp(name, names[step->act]))
		step->act++;
	return step->act < ACT_NKINDS && step->node < nnodes &&
	       step->other < nnodes && step->len <= LIVES_ROOM;
}

bool lives_schedule_read(struct lives_schedule *s, FILE *from)
{
	unsigned long long seed;
	char line[256];

	memset(s, 0, sizeof(*s));
	if (!fgets(line, sizeof(line), from) ||
	    sscanf(line, "schedule %llx %63s %u %zu", &seed, s->device,
		   &s->nnodes, &s->max_bytes) != 4 ||
	    s->nnodes > LIVES_NODES)
		return false;
	s->seed = seed;
	while (s->n < LIVES_STEPS && fgets(line, sizeof(line), from))
		if (!read_step(&s->steps[s->n++], s->nnodes, line))
			return false;
	return true;
}
