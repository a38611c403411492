/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/ideas.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "tools/pinion/claims.h"
#include "tools/pinion/cost_model.h"
#include "tools/pinion/report.h"

#define TEXT 160 /* of a number with what it is */

const char *pn_answer_name(enum pn_answer answer)
{
	static const char *const names[] = { "pays", "pays in part",
					     "does not pay", "not seen" };

	return names[answer];
}

/* --- the costs that decide ------------------------------------------------ */

#define MIB 1048576.0

#define TERM(name) static double name(const struct pn_place_costs *c)

TERM(register_both_1m)
{
	return 2 * pn_cost_register_us(c, MIB);
}

TERM(move_1m)
{
	return pn_cost_move_us(c, MIB);
}

TERM(register_both_8m)
{
	return 2 * pn_cost_register_us(c, 8 * MIB);
}

TERM(move_8m)
{
	return pn_cost_move_us(c, 8 * MIB);
}

TERM(register_64k)
{
	return pn_cost_register_us(c, 65536);
}

TERM(move_64k)
{
	return pn_cost_latency_us(c) + pn_cost_move_us(c, 65536);
}

TERM(register_twice_2)
{
	return pn_cost_register_us(c, 8192) + pn_cost_deregister_us(c, 8192);
}

TERM(deregister_fixed)
{
	return pn_cost_deregister_us(c, 0);
}

TERM(register_1)
{
	return pn_cost_register_us(c, 4096);
}

TERM(latency)
{
	return pn_cost_latency_us(c);
}

TERM(copy_8k)
{
	return pn_cost_copy_us(c, 8192);
}

TERM(message_8k)
{
	return pn_cost_latency_us(c) + pn_cost_move_us(c, 8192);
}

static const struct idea {
	const char *name, *does;
	/* "FIRST takes X us, SECOND Y us" */
	const char *first, *second;
	double (*first_us)(const struct pn_place_costs *);
	double (*second_us)(const struct pn_place_costs *);
	/* registering is to hide behind moving */
	bool overlaps;
	/* there may be no copy to save */
	bool copies;
} ideas[PN_IDEAS] = {
	[PN_IDEA_HELPER] = { "helper",
			     "registers buffers just before they are used "
			     "again and deregisters them between uses",
			     "registering 1 MiB at both ends", "moving it",
			     register_both_1m, move_1m, false, false },
	[PN_IDEA_HEAP] = { "heap",
			   "allocates from memory that is registered already",
			   "registering 64 KiB", "a put of it", register_64k,
			   move_64k, false, false },
	[PN_IDEA_PIPELINE] = { "pipeline",
			       "registers a fragment while others move",
			       "registering 8 MiB at both ends", "moving it",
			       register_both_8m, move_8m, true, false },
	[PN_IDEA_CACHE] = { "region cache",
			    "keeps regions by size and recency and "
			    "deregisters in batches",
			    "registering and deregistering two pages",
			    "the part that a batch saves", register_twice_2,
			    deregister_fixed, false, false },
	[PN_IDEA_OVERLAP] = { "overlapped registration",
			      "has client and server register at the same "
			      "time",
			      "registering a page", "the latency of a message",
			      register_1, latency, false, false },
	[PN_IDEA_DIRECT] = { "direct send",
			     "takes small messages straight from buffers that "
			     "are used often",
			     "copying 8 KiB", "moving them", copy_8k,
			     message_8k, false, true },
};

static bool costs_at(const struct pn_claim *claim, const struct pn_rows *rows,
		     enum pn_place place, struct pn_place_costs *costs)
{
	const char *name = pn_place_profile(place, claim);

	if (place >= PN_PLACE_SOFT)
		return pn_costs_measured(rows, pn_place_name(place), costs);
	if (!name)
		return false;
	pn_costs_of_profile(pn_profile_find(name), costs);
	return true;
}

static void say_why(const struct idea *idea, const struct pn_claim *claim,
		    const struct pn_rows *rows, enum pn_place place,
		    struct pn_idea_at *at)
{
	struct pn_place_costs costs;
	char x[PN_REPORT_NUMBER_LEN], y[PN_REPORT_NUMBER_LEN];
	const char *more = "";
	double first, second;

	if (!costs_at(claim, rows, place, &costs))
		return;
	first = idea->first_us(&costs);
	second = idea->second_us(&costs);
	if (!isfinite(first) || !isfinite(second))
		return;
	if (at->answer != PN_PAYS && idea->overlaps && costs.cpu_moves)
		more = "; the CPU that registers also moves the bytes, so "
		       "nothing is hidden";
	else if (idea->copies && costs.no_copy_message && costs.no_copy_put)
		more = "; nothing is copied here in any case";
	snprintf(at->why, sizeof(at->why), "%s takes %s us, %s %s us%s",
		 idea->first, pn_report_number(first, x), idea->second,
		 pn_report_number(second, y), more);
}

/* --- numbers -------------------------------------------------------------- */

/* A number of an idea in a place. */
struct number {
	const struct pn_claim *claim; /* NULL: none */
	double ours;
	double gain; /* per cent by which it is better than gaining nothing */
};

/* What the numbers of an idea in a place come to. */
struct tally {
	unsigned gains, losses, same, dear;
	struct number least, most, price;
};

static double gain_of(const struct pn_claim *claim, double ours)
{
	if (!strcmp(claim->unit, "times"))
		return claim->good > 0 ? 100 * (ours - 1) : 100 * (1 - ours);
	return claim->good > 0 ? ours : -ours;
}

static void add_number(struct tally *t, const struct pn_claim *claim,
		       double ours)
{
	const struct number number = { claim, ours, gain_of(claim, ours) };

	if (claim->limit > 0) {
		t->price = number;
		t->dear += -number.gain > claim->limit;
		return;
	}
	t->gains += number.gain > PN_IDEA_MARGIN;
	t->losses += number.gain < -PN_IDEA_MARGIN;
	t->same += fabs(number.gain) <= PN_IDEA_MARGIN;
	if (!t->least.claim || number.gain < t->least.gain)
		t->least = number;
	if (!t->most.claim || number.gain > t->most.gain)
		t->most = number;
}

/* "4.7 % (latency of a put saved, 8 KiB)". */
static const char *number_text(const struct number *number, char buf[TEXT])
{
	char value[PN_REPORT_NUMBER_LEN];

	snprintf(buf, TEXT, "%s %s (%s)", pn_report_number(number->ours, value),
		 number->claim->unit, number->claim->what);
	return buf;
}

static enum pn_answer answer_of(const struct tally *t)
{
	if (!t->gains && !t->losses && !t->same)
		return PN_NOT_SEEN;
	if (!t->gains)
		return PN_PAYS_NOT;
	return t->losses || t->dear ? PN_PAYS_IN_PART : PN_PAYS;
}

static void say_seen(const struct tally *t, struct pn_idea_at *at)
{
	unsigned n = t->gains + t->losses + t->same;
	char least[TEXT], most[TEXT], price[TEXT];
	size_t used;

	if (n == 1)
		used = (size_t)snprintf(at->seen, sizeof(at->seen), "%s",
					number_text(&t->most, most));
	else
		used = (size_t)snprintf(at->seen, sizeof(at->seen),
					"%u of %u numbers gain, from %s to %s",
					t->gains, n,
					number_text(&t->least, least),
					number_text(&t->most, most));
	if (t->price.claim)
		snprintf(at->seen + used, sizeof(at->seen) - used,
			 "; the price is %s, %s the limit of %g %%",
			 number_text(&t->price, price),
			 t->dear ? "above" : "below", t->price.claim->limit);
}

/* What answers come from. */
struct evidence {
	const struct pn_rows *rows;
	const struct pn_agreement *agreements;
	size_t n;
};

/* Claims were judged; effects, which have no paper's number, are not. */
static struct tally tally_of(const struct evidence *e, enum pn_idea idea,
			     enum pn_place place)
{
	struct tally t = { 0 };

	for (size_t i = 0; i < e->n; i++) {
		const struct pn_verdict *v = &e->agreements[i].at[place];
		const struct pn_claim *claim = e->agreements[i].claim;

		if (claim && claim->idea == idea && isfinite(v->ours) &&
		    v->basis != PN_FITTED)
			add_number(&t, claim, v->ours);
	}
	for (size_t i = 0; i < pn_neffects; i++) {
		double ours = pn_effects[i].idea == idea
				      ? pn_agreement_number(&pn_effects[i],
							    e->rows, place)
				      : NAN;

		if (isfinite(ours))
			add_number(&t, &pn_effects[i], ours);
	}
	return t;
}

static const char *command_of_effect(const struct pn_rows *rows,
				     enum pn_idea idea, enum pn_place place)
{
	for (size_t i = 0; i < pn_neffects; i++)
		if (pn_effects[i].idea == idea)
			return pn_agreement_command(&pn_effects[i], rows,
						    place);
	return NULL;
}

/* --- answers -------------------------------------------------------------- */

/* "Pays at cx5 and soft; does not pay at verbs." */
static void say_where(struct pn_idea_answer *out)
{
	size_t at = 0;

	for (int answer = 0; answer < PN_NOT_SEEN; answer++) {
		bool any = false;

		for (int p = 0; p < PN_PLACES; p++) {
			if ((int)out->at[p].answer != answer)
				continue;
			at += (size_t)snprintf(out->says + at,
					       sizeof(out->says) - at, "%s%s%s",
					       any  ? ", "
					       : at ? "; "
						    : "",
					       any ? ""
						   : pn_answer_name(answer),
					       any ? "" : " at ");
			at += (size_t)snprintf(out->says + at,
					       sizeof(out->says) - at, "%s",
					       pn_place_name(p));
			any = true;
		}
	}
	snprintf(out->says + at, sizeof(out->says) - at,
		 at ? "." : "has no numbers here that count.");
}

void pn_ideas_find(const struct pn_rows *rows,
		   const struct pn_agreement *agreements, size_t n,
		   struct pn_idea_answer out[PN_IDEAS - 1])
{
	const struct evidence e = { rows, agreements, n };

	for (int i = PN_IDEA_NONE + 1; i < PN_IDEAS; i++) {
		struct pn_idea_answer *answer = &out[i - 1];

		*answer = (struct pn_idea_answer){ .name = ideas[i].name,
						   .does = ideas[i].does };
		for (int p = 0; p < PN_PLACES; p++) {
			struct pn_idea_at *at = &answer->at[p];
			const struct tally t = tally_of(&e, i, p);

			at->answer = answer_of(&t);
			if (at->answer == PN_NOT_SEEN)
				continue;
			say_seen(&t, at);
			at->command = command_of_effect(rows, i, p);
			say_why(&ideas[i], t.most.claim, rows, p, at);
		}
		say_where(answer);
	}
}
