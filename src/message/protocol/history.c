/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/protocol/history.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

#define SETS  1024 /* a power of two */
#define WAYS  4
#define MARKS 34
#define LIVES 32 /* lives begun until all counts are halved */
#define PRIOR 1	 /* lives that the ski-rental rule counts for */

/* While a buffer is not kept registered, the limit of its forecast rises with
 * every use. It doubles in RETRY_USES uses, or in more, so that keeping a
 * registration costs at most RETRY_SHARE of these uses. A buffer that
 * disappointed is tried again at that rate. */
#define RETRY_USES    45
#define RETRY_SHARE   (1.0 / 64)
#define CEILING_LEAST (1.0f / 8)

struct buffer {
	uint64_t key; /* 0: free */
	uint32_t uses;
	uint32_t since; /* value of `uses` when its registration was kept */
	float expected; /* further uses that were expected then; 0: they have
			 * come
			 */
	float further;	/* forecast at the last use */
	float ceiling;	/* upper limit of the forecast */
	bool kept;	/* its registration was kept */
};

struct kind {
	double reached[MARKS]; /* lives that had mark(i) uses */
	float ceiling;	       /* initial limit for new buffers */
};

struct pn_history {
	struct buffer buffers[SETS][WAYS]; /* most recently used first */
	struct kind kinds[PN_NENDS][PN_HISTORY_SIZES];
};

struct pn_history *pn_history_open(void)
{
	struct pn_history *history = calloc(1, sizeof(*history));

	if (!history)
		return NULL;
	for (unsigned end = 0; end < PN_NENDS; end++)
		for (unsigned i = 0; i < PN_HISTORY_SIZES; i++)
			history->kinds[end][i].ceiling = INFINITY;
	return history;
}

void pn_history_close(struct pn_history *history)
{
	free(history);
}

unsigned pn_history_size(size_t len)
{
	unsigned log = len ? 63 - (unsigned)__builtin_clzll(len) : 0;
	unsigned half = log ? (len >> (log - 1)) & 1 : 0;
	unsigned size = 2 * log + half;

	return size < PN_HISTORY_SIZES ? size : PN_HISTORY_SIZES - 1;
}

/* 1, 2, 3, 4, 6, 8, 12, 16, 24, ... */
static uint32_t mark(unsigned i)
{
	return i ? (2 + ((i - 1) & 1)) << ((i - 1) / 2) : 1;
}

/* The last mark that is not above uses. */
static unsigned mark_of(uint32_t uses)
{
	unsigned log = 31 - (unsigned)__builtin_clz(uses);
	unsigned i = log ? 2 * log - 1 + ((uses >> (log - 1)) & 1) : 0;

	return i < MARKS ? i : MARKS - 1;
}

/* --- the table ------------------------------------------------------------ */

/* A hash of everything that identifies a buffer. */
static uint64_t key_of(const struct pn_use *use)
{
	uint64_t x = use->addr * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 29 ^ use->len) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 32 ^ use->site ^ (uint64_t)use->end << 63) *
	    UINT64_C(0x94d049bb133111eb);
	x ^= x >> 31;
	return x ? x : 1;
}

/* The row of a buffer, which becomes the most recently used of its set. */
static struct buffer *row_of(struct pn_history *history, uint64_t key)
{
	struct buffer *set = history->buffers[key & (SETS - 1)];
	struct buffer found = { .key = key };
	unsigned i = 0;

	while (i < WAYS - 1 && set[i].key != key)
		i++;
	if (set[i].key == key)
		found = set[i];
	memmove(set + 1, set, i * sizeof(*set));
	set[0] = found;
	return set;
}

static struct kind *kind_of(struct pn_history *history,
			    const struct pn_use *use)
{
	return &history->kinds[use->end][pn_history_size(use->len)];
}

/* --- lives ---------------------------------------------------------------- */

/* A registration served so many uses; enough: as many as were expected, or else
 * it is gone. */
static void learn(float *ceiling, float served, bool enough)
{
	if (enough)
		*ceiling = INFINITY;
	else
		*ceiling = isinf(*ceiling) ? served : (*ceiling + served) / 2;
	*ceiling = fmaxf(*ceiling, CEILING_LEAST);
}

/* By how much the limit of a forecast rises with a use. */
static float ceiling_rise(double keep_uses)
{
	double uses = fmax(RETRY_USES, keep_uses / RETRY_SHARE);

	return (float)(1 + M_LN2 / uses);
}

/* Compares the forecast that a registration was kept for with the uses that
 * came. */
static void check_forecast(struct kind *kind, struct buffer *row, bool lives,
			   double keep_uses)
{
	float served = (float)(row->uses - row->since + lives);
	bool enough = served >= row->expected;

	if (!row->kept) {
		row->ceiling *= ceiling_rise(keep_uses);
		kind->ceiling *= ceiling_rise(keep_uses);
	} else if (row->expected > 0 && (enough || !lives)) {
		learn(&row->ceiling, served, enough);
		learn(&kind->ceiling, served, enough);
		row->expected = 0;
	}
}

static void count_life(struct kind *kind, uint32_t uses)
{
	unsigned i = mark_of(uses);

	if (mark(i) == uses)
		kind->reached[i]++;
	if (kind->reached[0] <= LIVES)
		return;
	for (i = 0; i < MARKS; i++)
		kind->reached[i] /= 2;
}

/* Lives are counted at marks; between two marks as many are alive as at the
 * later one. The present life does not count: its length is not known yet. */
static void judge(const struct kind *kind, struct buffer *row,
		  struct pn_forecast *out)
{
	uint32_t uses = row->uses;
	unsigned at = mark_of(uses);
	double sum = 0, others = fmax(0, kind->reached[at] - 1);
	double from = uses;

	for (unsigned i = at + 1; i < MARKS; i++) {
		sum += (mark(i) - from) * kind->reached[i];
		from = mark(i);
	}
	out->uses = uses;
	out->lives = others;
	row->further = fminf((float)((sum + PRIOR * uses) / (others + PRIOR)),
			     row->ceiling);
	out->further = row->further;
}

void pn_history_use(struct pn_history *history, const struct pn_use *use,
		    struct pn_forecast *out)
{
	struct buffer *row = row_of(history, key_of(use));
	struct kind *kind = kind_of(history, use);
	bool lives = use->cached || (row->kept && use->dropped);

	if (row->uses)
		check_forecast(kind, row, lives, use->keep_uses);
	else
		row->ceiling = kind->ceiling;
	if (row->kept && !lives)
		row->uses = 0;
	row->kept = lives;
	if (row->uses < UINT32_MAX)
		row->uses++;
	count_life(kind, row->uses);
	judge(kind, row, out);
	if (use->unkept && !use->cached)
		out->further = row->further = 0;
}

void pn_history_kept(struct pn_history *history, const struct pn_use *use,
		     bool kept)
{
	struct buffer *row = row_of(history, key_of(use));

	if (kept && !row->kept) {
		row->since = row->uses;
		row->expected = row->further;
	}
	row->kept = kept;
}
