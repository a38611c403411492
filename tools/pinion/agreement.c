/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/agreement.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tools/pinion/claims.h"
#include "tools/pinion/cost_model.h"

/* --- names ---------------------------------------------------------------- */

const struct pn_paper_info *pn_paper_info(enum pn_paper paper)
{
	static const struct pn_paper_info papers[PN_PAPERS] = {
		[PN_PAPER_HELPER] = { "D. Li, K. W. Cameron, D. S. "
				      "Nikolopoulos, B. R. de Supinski and "
				      "M. Schulz",
				      "Scalable memory registration for high "
				      "performance networks using helper "
				      "threads",
				      "2011",
				      "How much memory must stay registered, "
				      "and when?" },
		[PN_PAPER_HEAP] = { "S. Levy, P. Widener, C. Ulmer and "
				    "T. Kordenbrock",
				    "The case for explicit reuse semantics for "
				    "RDMA communication",
				    "2020",
				    "What does registered memory from a heap "
				    "save?" },
		[PN_PAPER_PIPELINE] = { "T. S. Woodall, G. M. Shipman, "
					"G. Bosilca, R. L. Graham and A. B. "
					"Maccabe",
					"High performance RDMA protocols in "
					"HPC",
					"2006",
					"How should a large message move when "
					"its memory is not registered?" },
		[PN_PAPER_CACHE] = { "L. Ou, X. He and J. Han",
				     "An efficient design for fast memory "
				     "registration in RDMA",
				     "2009",
				     "Which registrations should a cache "
				     "keep?" },
		[PN_PAPER_REUSE] = { "M. J. Rashti and A. Afsahi",
				     "Exploiting application buffer reuse to "
				     "improve MPI small message transfer "
				     "protocols over RDMA-enabled networks",
				     "2011",
				     "When is a small message sent without a "
				     "copy?" },
	};

	return &papers[paper];
}

const char *pn_place_name(enum pn_place place)
{
	static const char *const names[] = {
		"the paper's costs", "cx5", "h200", "soft", "verbs", "cuda"
	};

	return names[place];
}

const char *pn_place_profile(enum pn_place place, const struct pn_claim *claim)
{
	if (place == PN_PLACE_PAPER)
		return claim->profile;
	return place < PN_PLACE_SOFT ? pn_place_name(place) : NULL;
}

const char *pn_basis_name(enum pn_basis basis)
{
	static const char *const names[] = { "measured", "predicted",
					     "repeated", "fitted" };

	return names[basis];
}

const char *pn_result_name(enum pn_result result)
{
	static const char *const names[] = { "better", "same", "worse",
					     "not judged", "not run" };

	return names[result];
}

/* --- which rows ----------------------------------------------------------- */

/* A claim in a place, and the group of rows that is looked at. */
struct question {
	const struct pn_claim *claim;
	const struct pn_rows *rows;
	enum pn_place place;
	char group[128]; /* "jitter=0.01", or "": all */
};

static bool starts(const char *text, const char *with)
{
	return text && !strncmp(text, with, strlen(with));
}

/* Whether a row was made under the costs of a place. */
static bool is_of_place(const struct question *q, const struct pn_row *row)
{
	const char *device = pn_row_text(row, "device");
	const char *profile = pn_row_text(row, "profile");
	const char *wanted = pn_place_profile(q->place, q->claim);
	bool own_costs = !pn_row_meets(row, "emulated=yes") &&
			 (!profile || !strcmp(profile, "none"));

	switch (q->place) {
	case PN_PLACE_PAPER:
	case PN_PLACE_CX5:
	case PN_PLACE_H200:
		return wanted && profile && !strcmp(profile, wanted);
	case PN_PLACE_SOFT:
		return own_costs && starts(device, "soft");
	case PN_PLACE_VERBS:
		return own_costs && starts(device, "verbs");
	case PN_PLACE_CUDA:
		return own_costs && starts(device, "cuda");
	case PN_PLACES:
		break;
	}
	return false;
}

static bool is_of_bench(const struct question *q, const struct pn_row *row)
{
	const char *bench = pn_row_text(row, "bench");

	return bench &&
	       !strcmp(bench, q->place == PN_PLACE_CUDA && q->claim->on_gpu
				      ? "gpu"
				      : q->claim->bench);
}

static bool selects(const struct question *q, const struct pn_row *row,
		    const char *also)
{
	const char *group = q->group[0] ? q->group : NULL;

	if (!is_of_bench(q, row) || !pn_row_meets(row, also) ||
	    !pn_row_meets(row, group) || !is_of_place(q, row))
		return false;
	for (size_t i = 0; i < PN_ARRAY_LEN(q->claim->common); i++)
		if (!pn_row_meets(row, q->claim->common[i]))
			return false;
	return isfinite(pn_row_number(row, q->claim->key));
}

/* --- numbers from rows ---------------------------------------------------- */

static double mean_of(const struct question *q, const char *also)
{
	double sum = 0;
	unsigned n = 0;

	for (size_t i = 0; i < q->rows->n; i++)
		if (selects(q, q->rows->rows[i], also)) {
			sum += pn_row_number(q->rows->rows[i], q->claim->key);
			n++;
		}
	return n ? sum / n : NAN;
}

/* The value of `base` at the same reuse; NAN: none. */
static double base_at(const struct question *q, double reuse)
{
	for (size_t i = 0; i < q->rows->n; i++)
		if (selects(q, q->rows->rows[i], q->claim->base) &&
		    pn_row_number(q->rows->rows[i], "reuse") == reuse)
			return pn_row_number(q->rows->rows[i], q->claim->key);
	return NAN;
}

static double meeting_point(const struct question *q)
{
	double least = NAN;

	for (size_t i = 0; i < q->rows->n; i++) {
		const struct pn_row *row = q->rows->rows[i];
		double reuse = pn_row_number(row, "reuse");

		if (selects(q, row, q->claim->own) &&
		    pn_row_number(row, q->claim->key) >= base_at(q, reuse))
			least = fmin(least, reuse);
	}
	return least;
}

static double number_of(const struct question *q)
{
	const struct pn_claim *claim = q->claim;

	switch (claim->how) {
	case PN_CLAIM_MEAN:
		return mean_of(q, claim->own);
	case PN_CLAIM_LESS:
		return 100 *
		       (1 - mean_of(q, claim->own) / mean_of(q, claim->base));
	case PN_CLAIM_TIMES:
		return mean_of(q, claim->own) / mean_of(q, claim->base);
	case PN_CLAIM_MEET:
		return meeting_point(q);
	}
	return NAN;
}

/* Whether an earlier row has the same value of the key. */
static bool is_repeated(const struct question *q, size_t row, const char *group)
{
	for (size_t i = 0; i < row; i++)
		if (pn_row_meets(q->rows->rows[i], group) &&
		    selects(q, q->rows->rows[i], q->claim->own))
			return true;
	return false;
}

/* The number of each group of rows: mean or largest, and their range. */
static void find_groups(const struct question *all, struct pn_verdict *v)
{
	struct question one = *all;
	double sum = 0;
	unsigned n = 0;

	for (size_t i = 0; i < all->rows->n; i++) {
		const struct pn_row *row = all->rows->rows[i];
		char word[64];
		double number;

		if (!selects(all, row, all->claim->own))
			continue;
		snprintf(one.group, sizeof(one.group), "%s=%s",
			 all->claim->over,
			 pn_row_word(row, all->claim->over, word,
				     sizeof(word)));
		number = is_repeated(all, i, one.group) ? NAN : number_of(&one);
		if (!isfinite(number))
			continue;
		v->least = fmin(v->least, number);
		v->most = fmax(v->most, number);
		sum += number;
		n++;
	}
	v->ours = !n ? NAN : all->claim->extreme ? v->most : sum / n;
}

static const char *command_of(const struct question *q)
{
	for (size_t i = 0; i < q->rows->n; i++)
		if (selects(q, q->rows->rows[i], q->claim->own))
			return pn_row_text(q->rows->rows[i], "command");
	return NULL;
}

/* --- judging -------------------------------------------------------------- */

/* The costs of a place; false: not known. */
static bool costs_of(const struct question *q, enum pn_place place,
		     struct pn_place_costs *costs)
{
	const char *name = pn_place_profile(place, q->claim);
	struct pn_place_costs soft;

	if (place >= PN_PLACE_SOFT)
		return pn_costs_measured(q->rows, pn_place_name(place), costs);
	if (!name)
		return false;
	pn_costs_of_profile(pn_profile_find(name), costs);
	/* A profile adds its costs of registering to `soft`, where pages are
	 * real, and so are puts. */
	if (!strcmp(q->claim->bench, "heap") &&
	    pn_costs_measured(q->rows, pn_place_name(PN_PLACE_SOFT), &soft)) {
		soft.unbatched = costs->unbatched;
		for (int f = PN_PROFILE_REGISTER_US;
		     f <= PN_PROFILE_DEREGISTER_PAGE_US; f++)
			soft.value[f] = costs->value[f];
		*costs = soft;
	}
	return true;
}

/* The number to expect in a place that is not the paper's. */
static double expected(const struct question *q, double home)
{
	struct pn_place_costs costs, home_costs;

	if (!q->claim->model || !costs_of(q, q->place, &costs) ||
	    !costs_of(q, q->claim->home, &home_costs))
		return NAN;
	return q->claim->model(&costs, home, &home_costs);
}

/* Relative bounds; around nothing the paper's absolute ones. A negative
 * expectation has the same distances on the same sides: what is better than the
 * paper's number stays better. */
static void set_bounds(const struct pn_claim *claim, struct pn_verdict *v)
{
	if (claim->number > 0 && v->expected != 0) {
		double scale = fabs(v->expected) / claim->number;

		v->low = v->expected + scale * (claim->low - claim->number);
		v->high = v->expected + scale * (claim->high - claim->number);
	} else {
		v->low = v->expected + claim->low - claim->number;
		v->high = v->expected + claim->high - claim->number;
	}
}

static enum pn_result compare(const struct pn_claim *claim,
			      const struct pn_verdict *v)
{
	if (!isfinite(v->ours))
		return PN_MISSING;
	if (!isfinite(v->low) || !isfinite(v->high))
		return PN_UNJUDGED;
	if (v->ours >= v->low && v->ours <= v->high)
		return PN_SAME;
	return (v->ours > v->high) == (claim->good > 0) ? PN_BETTER : PN_WORSE;
}

static enum pn_basis basis_of(const struct pn_claim *claim, enum pn_place place)
{
	if (place >= PN_PLACE_SOFT)
		return PN_MEASURED;
	if (place == PN_PLACE_PAPER && claim->fitted)
		return PN_FITTED;
	return place != claim->home && claim->model == pn_model_same
		       ? PN_REPEATED
		       : PN_PREDICTED;
}

/* The number in a place, with the range of its groups. */
static void find_number(const struct question *q, struct pn_verdict *v)
{
	*v = (struct pn_verdict){ .ours = NAN, .least = NAN, .most = NAN };
	if (q->claim->over)
		find_groups(q, v);
	else
		v->ours = number_of(q);
}

double pn_agreement_number(const struct pn_claim *claim,
			   const struct pn_rows *rows, enum pn_place place)
{
	const struct question q = { .claim = claim,
				    .rows = rows,
				    .place = place };
	struct pn_verdict v;

	find_number(&q, &v);
	return v.ours;
}

const char *pn_agreement_command(const struct pn_claim *claim,
				 const struct pn_rows *rows,
				 enum pn_place place)
{
	const struct question q = { .claim = claim,
				    .rows = rows,
				    .place = place };

	return command_of(&q);
}

/* `home` is the number in the place of the paper. */
static void judge(const struct question *q, double home, struct pn_verdict *v)
{
	if (q->claim->home_only && q->place != q->claim->home) {
		*v = (struct pn_verdict){ .ours = NAN, .result = PN_MISSING };
		return;
	}
	find_number(q, v);
	v->expected = q->place == q->claim->home ? q->claim->number
						 : expected(q, home);
	set_bounds(q->claim, v);
	v->basis = basis_of(q->claim, q->place);
	v->result = compare(q->claim, v);
	v->command = command_of(q);
}

static void judge_claim(const struct pn_claim *claim,
			const struct pn_rows *rows, struct pn_agreement *a)
{
	struct question q = { .claim = claim, .rows = rows };

	*a = (struct pn_agreement){ .claim = claim,
				    .row = claim->row,
				    .paper = claim->paper,
				    .where = claim->where,
				    .what = claim->what,
				    .unit = claim->unit,
				    .number = claim->number,
				    .why = claim->why,
				    .fitted = claim->fitted,
				    .home = claim->home,
				    .command = claim->command };
	q.place = claim->home;
	judge(&q, NAN, &a->at[claim->home]);
	for (q.place = 0; q.place < PN_PLACES; q.place++)
		if (q.place != claim->home)
			judge(&q, a->at[claim->home].ours, &a->at[q.place]);
}

/* By paper, then by number: a stable order. */
static int by_row(const void *a, const void *b)
{
	const struct pn_agreement *x = a, *y = b;
	long order = (long)x->paper - (long)y->paper;

	if (!order)
		order = atol(x->row + 1) - atol(y->row + 1);
	if (!order)
		order = (long)x->index - (long)y->index;
	return (order > 0) - (order < 0);
}

static void add_tested(struct pn_agreement *list)
{
	static const char letters[] = "HAPMR";

	for (size_t i = 0; i < pn_ntested; i++) {
		list[i] = (struct pn_agreement){
			.row = pn_tested[i].row,
			.paper = (enum pn_paper)(
				strchr(letters, pn_tested[i].row[0]) - letters),
			.where = pn_tested[i].where,
			.what = pn_tested[i].what,
			.unit = "",
			.number = NAN,
			.why = pn_tested[i].why,
			.command = "",
		};
		for (int p = 0; p < PN_PLACES; p++)
			list[i].at[p] =
				(struct pn_verdict){ .ours = NAN,
						     .result = PN_MISSING };
	}
}

int pn_agreement_find(const struct pn_rows *rows, struct pn_agreement **out,
		      size_t *n)
{
	const size_t all = pn_nclaims + pn_ntested;
	struct pn_agreement *list = calloc(all, sizeof(*list));

	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < pn_nclaims; i++)
		judge_claim(&pn_claims[i], rows, &list[i]);
	add_tested(list + pn_nclaims);
	for (size_t i = 0; i < all; i++)
		list[i].index = (unsigned)i;
	qsort(list, all, sizeof(*list), by_row);
	*out = list;
	*n = all;
	return 0;
}
