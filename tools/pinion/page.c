/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/page.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "device/profiles.h"
#include "revision.h"
#include "tools/pinion/agreement.h"
#include "tools/pinion/busy.h"
#include "tools/pinion/claims.h"
#include "tools/pinion/cost_model.h"
#include "tools/pinion/ideas.h"
#include "tools/pinion/markup.h"
#include "tools/pinion/report.h"

static const char style[] =
	":root{color-scheme:light dark;--line:#8884;--soft:#666;--bg:#fff;"
	"--fg:#1a1a1a;--mark:#a34d00;--good:#17693f;--pale:#8881}\n"
	"@media(prefers-color-scheme:dark){:root{--bg:#16181b;--fg:#e4e4e4;"
	"--soft:#a8a8a8;--mark:#ffb061;--good:#6fd39b}}\n"
	"*{box-sizing:border-box}\n"
	"body{font:16px/1.5 system-ui,sans-serif;color:var(--fg);"
	"background:var(--bg);margin:0 auto;max-width:80rem;padding:1rem;"
	"overflow-wrap:anywhere}\n"
	"h1{font-size:1.7rem;margin:.5rem 0}h2{font-size:1.35rem;margin:0}\n"
	"h3{font-size:1.1rem;margin:1.6rem 0 .2rem}h4{font-size:1rem;"
	"margin:0 0 .3rem}\n"
	"a{color:inherit}section{border-top:2px solid var(--line);"
	"padding:1.4rem 0}\n"
	".multiples{display:grid;gap:1.4rem;grid-template-columns:repeat("
	"auto-fill,minmax(min(100%,30rem),1fr))}\n"
	"figure{margin:0;min-width:0}\n"
	"svg{width:100%;height:auto;display:block}\n"
	".table{overflow:auto;max-height:40rem}figure "
	".table{max-height:24rem}.table.free{max-height:none}"
	".source{min-width:24rem}\n"
	"table{border-collapse:collapse;font-size:.85rem;"
	"font-variant-numeric:tabular-nums}\n"
	"th,td{padding:.2rem .5rem;text-align:right;vertical-align:top;"
	"border-bottom:1px solid var(--line);overflow-wrap:normal}\n"
	"td.t,th.t{text-align:left}thead th{position:sticky;top:0;"
	"background:var(--bg)}\n"
	".about,.cite{color:var(--soft);font-size:.85rem;margin:.3rem 0}\n"
	".emulated{color:var(--mark);font-weight:600}\n"
	"code{font-size:.85em}.wide{min-width:66rem}\n"
	"td small{display:block;color:var(--soft);white-space:nowrap}\n"
	".better b,.same b{color:var(--good)}.worse b{color:var(--mark)}\n"
	".fitted,.repeated{background:var(--pale)}.fitted b,.repeated b{"
	"color:var(--soft);font-weight:400}\n"
	"summary{cursor:pointer;color:var(--soft);font-size:.85rem}\n"
	/* Where the table of claims does not fit, each claim is a card. */
	"@media(max-width:67rem){.cards{min-width:0}.cards thead,.cards "
	".none{display:none}.cards,.cards tbody{display:block}.cards "
	"tr{display:grid;grid-template-columns:repeat(auto-fill,minmax(9rem,"
	"1fr));border-bottom:2px solid var(--line);padding:.6rem 0}.cards "
	"td{text-align:left;border:0}.cards td.t{grid-column:1/-1}.cards "
	"[data-of]::before{content:attr(data-of) ': ';font-weight:600}"
	".table:has(.cards){max-height:none}}\n"
	"@media print{:root{--bg:#fff;--fg:#000;--soft:#333;--line:#999}"
	"body{max-width:none;font-size:11pt}figure{break-inside:avoid}"
	".table{overflow:visible;max-height:none!important}nav{display:"
	"none}.wide{min-width:0}}\n";

/* --- text ----------------------------------------------------------------- */

static void put_element(FILE *file, const char *tag, const char *text)
{
	size_t name = strcspn(tag, " ");

	fprintf(file, "<%s>", tag);
	pn_markup_text(file, text);
	fprintf(file, "</%.*s>", (int)name, tag);
}

/* Four digits are enough for a noisy machine. */
static void put_number(FILE *file, double number)
{
	int digits = 3;

	if (!isfinite(number)) {
		fputs("–", file);
		return;
	}
	for (double n = fabs(number); digits > 0 && n >= 10; n /= 10)
		digits--;
	fprintf(file, "%.*f", digits, number);
}

static void put_y(FILE *file, const struct pn_figure *figure, double y)
{
	char text[PN_REPORT_BYTES_LEN];

	if (figure->plan->style & PN_FIGURE_BYTES_Y && isfinite(y)) {
		double unit = y >= 1 << 30   ? 1 << 30
			      : y >= 1 << 20 ? 1 << 20
			      : y >= 1 << 10 ? 1 << 10
					     : 1;
		const char *name = unit > 1e9	? "G"
				   : unit > 1e6 ? "M"
				   : unit > 1	? "K"
						: "";

		snprintf(text, sizeof(text), "%.4g%s", y / unit, name);
		pn_markup_text(file, text);
	} else {
		put_number(file, y);
	}
}

/* --- figures -------------------------------------------------------------- */

static void put_grid(FILE *file, const struct pn_figure *figure)
{
	fputs("<table><thead><tr>", file);
	put_element(file, "th class=t",
		    *figure->plan->x_label ? figure->plan->x_label
					   : figure->plan->x);
	for (size_t c = 0; c < figure->ncurves; c++)
		put_element(file, "th", figure->curves[c]);
	fputs("</tr></thead><tbody>\n", file);
	for (size_t x = 0; x < figure->nx; x++) {
		fputs("<tr>", file);
		put_element(file, "th class=t", figure->x_words[x]);
		for (size_t c = 0; c < figure->ncurves; c++) {
			fputs("<td>", file);
			put_y(file, figure,
			      figure->ys[x * figure->ncurves + c]);
			fputs("</td>", file);
		}
		fputs("</tr>\n", file);
	}
	fputs("</tbody></table>", file);
}

/* Summary of a curve over time: least and most of the maxima of its spans, and
 * the mean over time. */
static void put_summary(FILE *file, const struct pn_figure *figure)
{
	fputs("<table><thead><tr><th class=t></th><th>least</th><th>mean</th>"
	      "<th>most</th></tr></thead><tbody>\n",
	      file);
	for (size_t c = 0; c < figure->ncurves; c++) {
		double least = INFINITY, most = -INFINITY;

		for (size_t x = 0; x < figure->nx; x++) {
			double y = figure->ys[x * figure->ncurves + c];

			least = fmin(least, isfinite(y) ? y : least);
			most = fmax(most, isfinite(y) ? y : most);
		}
		fputs("<tr>", file);
		put_element(file, "th class=t", figure->curves[c]);
		fputs("<td>", file);
		put_y(file, figure, least);
		fputs("</td><td>", file);
		put_y(file, figure, pn_figure_time_mean(figure, c));
		fputs("</td><td>", file);
		put_y(file, figure, most);
		fputs("</td></tr>\n", file);
	}
	fputs("</tbody></table>", file);
}

/* Device, profile, emulated or not, machine, revision, commands. */
static void put_about(FILE *file, const struct pn_figure *figure)
{
	const struct pn_row *row = figure->about;
	const char *profile = pn_row_text(row, "profile");

	fputs("<p class=about>device <b>", file);
	pn_markup_text(file, pn_row_text(row, "device"));
	fputs("</b>, cost profile <b>", file);
	pn_markup_text(file, profile ? profile : "none");
	fputs("</b>, ", file);
	fputs(!isfinite(pn_row_number(row, "emulated"))
		      ? "not known whether emulated"
	      : pn_row_number(row, "emulated") > 0
		      ? "<span class=emulated>emulated costs</span>"
		      : "measured, not emulated",
	      file);
	fputs("; ", file);
	pn_markup_text(file, pn_row_text(row, "machine"));
	fputs("; revision ", file);
	pn_markup_text(file, pn_row_text(row, "revision"));
	for (size_t i = 0; i < figure->ncommands; i++) {
		fputs("<br>", file);
		put_element(file, "code", figure->commands[i]);
	}
	fputs("</p>", file);
}

/* "4 of 16 nodes shown", if rows are of some of many. */
static void put_share(FILE *file, const struct pn_figure *figure)
{
	const char *of = figure->plan->of;
	double all = of ? pn_row_number(figure->about, of) : NAN;

	if (all > (double)figure->ncurves)
		fprintf(file, "<p class=about>%zu of %.0f %s shown.</p>",
			figure->ncurves, all, of);
}

static void put_figure(FILE *file, const struct pn_figure *figure,
		       size_t number)
{
	fprintf(file, "<figure id=figure-%zu><h4>", number);
	pn_markup_text(file, pn_row_text(figure->about, "device"));
	if (figure->each[0]) {
		fputs(", ", file);
		pn_markup_text(file, figure->each);
	}
	fputs(": ", file);
	pn_markup_text(file, figure->finding);
	fputs("</h4>", file);
	if (figure->svg)
		fputs(figure->svg, file);
	fputs("<figcaption>", file);
	put_share(file, figure);
	put_about(file, figure);
	fputs("</figcaption>\n<details><summary>the numbers</summary><div "
	      "class=table tabindex=0>",
	      file);
	if (figure->plan->style & PN_FIGURE_NO_TABLE)
		put_summary(file, figure);
	else
		put_grid(file, figure);
	fputs("</div></details></figure>\n", file);
}

/* The figures of one plan beside one another. Returns the number of the next
 * figure. */
static size_t put_plan(FILE *file, const struct pn_figures *figures, size_t i)
{
	const struct pn_figure_plan *plan = figures->list[i].plan;

	fputs("<article>", file);
	put_element(file, "h3", plan->title);
	put_element(file, "p", plan->says);
	fputs("\n<div class=multiples>", file);
	for (; i < figures->n && figures->list[i].plan == plan; i++)
		put_figure(file, &figures->list[i], i);
	fputs("</div></article>\n", file);
	return i;
}

/* --- regimes -------------------------------------------------------------- */

#define MIB (1 << 20)

static void put_cell(FILE *file, double number)
{
	fputs("<td>", file);
	put_number(file, number);
	fputs("</td>", file);
}

static void put_regime(FILE *file, const char *name, const char *how,
		       const struct pn_place_costs *costs)
{
	double reg = 2 * pn_cost_register_us(costs, MIB);
	double move = pn_cost_move_us(costs, MIB);

	fputs("<tr>", file);
	put_element(file, "th class=t", name);
	put_element(file, "td class=t", how);
	put_cell(file, reg);
	put_cell(file, move);
	put_cell(file, 100 * reg / (reg + move));
	put_cell(file, pn_model_pipeline(costs, NAN, NULL));
	put_cell(file, pn_model_meeting(costs, NAN, NULL));
	put_cell(file, pn_model_uses(costs, NAN, NULL));
	fputs("</tr>\n", file);
}

/* What registering costs against moving decides where an idea pays. */
static void put_regimes(FILE *file, const struct pn_rows *rows)
{
	const struct pn_profile *profile;
	struct pn_place_costs costs;

	fputs("<h3>Where registering is dear, and where it is not</h3><p>What "
	      "the cost model says before anything is run. A large message "
	      "gains from the pipeline if it is used less often than the "
	      "column before the last says, from keeping its memory "
	      "registered if more often; a small buffer is registered after "
	      "as many uses as the last column says.</p><div class=table "
	      "tabindex=0><table id=regimes><thead><tr><th "
	      "class=t>costs</th><th class=t></th><th>register 1 MiB at both "
	      "ends, us</th><th>move 1 MiB, us</th><th>registering's share, "
	      "%</th><th>pipeline over leave-pinned, 8 MiB used once, "
	      "times</th><th>leave-pinned wins from, uses</th><th>4 KiB "
	      "without a copy pays from, uses</th></tr></thead><tbody>\n",
	      file);
	for (unsigned i = 1; (profile = pn_profile_at(i)); i++) {
		pn_costs_of_profile(profile, &costs);
		put_regime(file, profile->name, "declared", &costs);
	}
	for (int p = PN_PLACE_SOFT; p < PN_PLACES; p++)
		if (pn_costs_measured(rows, pn_place_name(p), &costs))
			put_regime(file, pn_place_name(p),
				   p == PN_PLACE_CUDA
					   ? "measured by pinion bench gpu"
					   : "measured by pinion bench "
					     "register, bench reuse",
				   &costs);
	fputs("</tbody></table></div>\n", file);
}

/* --- where ideas pay ------------------------------------------------------ */

static void put_idea_at(FILE *file, enum pn_place place,
			const struct pn_idea_at *at)
{
	fprintf(file, "<li class=%s><b>",
		at->answer == PN_PAYS ? "better" : "worse");
	pn_markup_text(file, pn_place_name(place));
	fprintf(file, ": %s</b>: ", pn_answer_name(at->answer));
	pn_markup_text(file, at->seen);
	fputs(". ", file);
	if (at->why[0]) {
		fputs("There ", file);
		pn_markup_text(file, at->why);
		fputs(".", file);
	}
	if (at->command) {
		fputs(" ", file);
		put_element(file, "code", at->command);
	}
	fputs("</li>\n", file);
}

static void put_idea(FILE *file, const struct pn_idea_answer *idea)
{
	fputs("<p><b>The ", file);
	pn_markup_text(file, idea->name);
	fputs("</b> ", file);
	pn_markup_text(file, idea->does);
	fputs(". It ", file);
	pn_markup_text(file, idea->says);
	fputs("</p>\n<ul>\n", file);
	for (int p = 0; p < PN_PLACES; p++)
		if (idea->at[p].answer != PN_NOT_SEEN)
			put_idea_at(file, p, &idea->at[p]);
	fputs("</ul>\n", file);
}

static void put_ideas(FILE *file, const struct pn_page *page)
{
	struct pn_idea_answer ideas[PN_IDEAS - 1];

	pn_ideas_find(page->rows, page->agreements, page->nagreements, ideas);
	fprintf(file,
		"<h3 id=ideas>Where each idea pays, and why</h3><p>From the "
		"rows of this page, with the commands of those that are no "
		"claim's; numbers that were fitted are left out. "
		"Less than %g %% is no difference.</p>\n",
		PN_IDEA_MARGIN);
	for (size_t i = 0; i < PN_IDEAS - 1; i++)
		put_idea(file, &ideas[i]);
}

/* --- verdicts ------------------------------------------------------------- */

static void put_bounds(FILE *file, const struct pn_verdict *v, bool home)
{
	if (!isfinite(v->low))
		return;
	fputs("<small>same: ", file);
	put_number(file, v->low);
	fputs(" to ", file);
	put_number(file, v->high);
	fputs("</small>", file);
	if (home)
		return;
	fputs("<small>model: ", file);
	put_number(file, v->expected);
	fputs("</small>", file);
}

static void put_range(FILE *file, const struct pn_verdict *v)
{
	if (!(v->most > v->least))
		return;
	fputs("<small>of ", file);
	put_number(file, v->least);
	fputs(" to ", file);
	put_number(file, v->most);
	fputs("</small>", file);
}

static void put_verdict(FILE *file, const struct pn_verdict *v, bool home,
			enum pn_place place)
{
	if (v->result == PN_MISSING) {
		fputs("<td class=none><small>not run</small></td>", file);
		return;
	}
	fprintf(file, "<td class=\"%s %s\" data-of=\"%s\">",
		pn_basis_name(v->basis),
		v->result == PN_UNJUDGED ? "" : pn_result_name(v->result),
		pn_place_name(place));
	put_number(file, v->ours);
	if (v->basis == PN_FITTED)
		fputs("<small><b>fitted</b></small>", file);
	else
		fprintf(file, "<small>%s: <b>%s</b></small>",
			pn_basis_name(v->basis), pn_result_name(v->result));
	put_range(file, v);
	put_bounds(file, v, home);
	fputs("</td>", file);
}

static bool was_run(const struct pn_agreement *a)
{
	for (int p = 0; p < PN_PLACES; p++)
		if (a->at[p].result != PN_MISSING)
			return true;
	return false;
}

/* Every command that gave a number of this claim. */
static void put_commands(FILE *file, const struct pn_agreement *a)
{
	fputs("<details><summary>commands</summary>", file);
	for (int p = 0; p < PN_PLACES; p++)
		if (a->at[p].command) {
			put_element(file, "code", a->at[p].command);
			fputs("<br>", file);
		}
	fputs("</details>", file);
}

static void put_agreement(FILE *file, const struct pn_agreement *a)
{
	fputs("<tr>", file);
	put_element(file, "td class=t", a->row);
	fputs("<td class=t>", file);
	pn_markup_text(file, a->what);
	put_element(file, "span class=about",
		    *a->where && isfinite(a->number) ? ", " : "");
	put_element(file, "span class=about", a->where);
	fputs("</td><td data-of=paper>", file);
	put_number(file, a->number);
	put_element(file, "small", a->unit);
	fputs("</td>", file);
	for (int p = 0; p < PN_PLACES; p++)
		put_verdict(file, &a->at[p], p == (int)a->home, p);
	fputs("<td class=t>", file);
	if (a->fitted) {
		fputs("Fitted: ", file);
		pn_markup_text(file, a->fitted);
		fputs(". ", file);
	}
	pn_markup_text(file, a->why);
	if (was_run(a)) {
		put_commands(file, a);
	} else {
		fputs("<br>", file);
		put_element(file, "code", a->command);
	}
	fputs("</td></tr>\n", file);
}

static void put_verdict_head(FILE *file)
{
	fputs("<div class=\"table free\" tabindex=0><table class=\"wide "
	      "cards\"><thead><tr><th class=t>row</th><th "
	      "class=t>what</th><th>paper</th>",
	      file);
	for (int p = 0; p < PN_PLACES; p++)
		put_element(file, "th", pn_place_name(p));
	fputs("<th class=t>basis and reasons</th></tr></thead><tbody>\n", file);
}

/* The claims of one paper, then the rows that tests cover. */
static void put_agreements(FILE *file, const struct pn_page *page,
			   enum pn_paper paper)
{
	put_verdict_head(file);
	for (size_t i = 0; i < page->nagreements; i++)
		if (page->agreements[i].paper == paper &&
		    isfinite(page->agreements[i].number))
			put_agreement(file, &page->agreements[i]);
	fputs("</tbody></table></div>\n<details><summary>rows of the design "
	      "without a number to compare, and what shows "
	      "them</summary><ul>",
	      file);
	for (size_t i = 0; i < page->nagreements; i++) {
		const struct pn_agreement *a = &page->agreements[i];

		if (a->paper != paper || isfinite(a->number))
			continue;
		fprintf(file, "<li>%s: ", a->row);
		pn_markup_text(file, a->what);
		fputs(" — ", file);
		pn_markup_text(file, a->why);
		fputs("</li>", file);
	}
	fputs("</ul></details>\n", file);
}

/* Verdicts by basis and result. */
static void put_counts(FILE *file, const struct pn_page *page)
{
	size_t count[PN_BASES][PN_RESULTS] = { { 0 } }, missing = 0;

	for (size_t i = 0; i < page->nagreements; i++)
		for (int p = 0; p < PN_PLACES; p++) {
			const struct pn_verdict *v = &page->agreements[i].at[p];

			if (v->result != PN_MISSING)
				count[v->basis][v->result]++;
		}
	for (size_t i = 0; i < page->nagreements; i++)
		missing += isfinite(page->agreements[i].number) &&
			   !was_run(&page->agreements[i]);
	for (int b = 0; b <= PN_PREDICTED; b++)
		fprintf(file,
			"<p id=%s><b>%s</b>: %zu better, %zu the same, %zu "
			"worse, %zu without a number to compare with.</p>\n",
			pn_basis_name(b), pn_basis_name(b), count[b][PN_BETTER],
			count[b][PN_SAME], count[b][PN_WORSE],
			count[b][PN_UNJUDGED]);
	fprintf(file,
		"<p id=repeated><b>repeated</b>: %zu the same and %zu not, "
		"counted for nothing.</p>\n",
		count[PN_REPEATED][PN_SAME],
		count[PN_REPEATED][PN_BETTER] + count[PN_REPEATED][PN_WORSE]);
	fprintf(file,
		"<p id=fitted><b>fitted</b>: %zu, counted for nothing. %zu "
		"claims were not run.</p>\n",
		count[PN_FITTED][PN_BETTER] + count[PN_FITTED][PN_SAME] +
			count[PN_FITTED][PN_WORSE],
		missing);
}

/* What others used of the machine while time was measured. */
static void put_busy(FILE *file, const struct pn_rows *rows)
{
	const struct pn_row *worst = NULL;
	double sum = 0, most = 0;
	unsigned n = 0;

	for (size_t i = 0; i < rows->n; i++) {
		double others = pn_row_number(rows->rows[i], "others_percent");

		if (!pn_row_meets(rows->rows[i], "bench=" PN_PAGE_BUSY) ||
		    !isfinite(others))
			continue;
		if (!worst || others > most)
			worst = rows->rows[i];
		most = fmax(most, others);
		sum += others;
		n++;
	}
	if (!n)
		return;
	fprintf(file,
		"<p id=busy>While time was measured, other programs used %.0f "
		"%% of the processors, at most %.0f %% (",
		sum / n, most);
	pn_markup_text(file, pn_row_text(worst, "experiment"));
	fputs(most > 100 * PN_BUSY_SHARE
		      ? "): <b class=emulated>the machine was too busy</b> for "
			"what is measured on devices to count.</p>\n"
		      : "): the machine was idle enough.</p>\n",
	      file);
}

static void put_overview(FILE *file, const struct pn_page *page)
{
	if (!page->nagreements)
		return;
	fputs("<section id=verdicts><h2>Do the papers' claims "
	      "hold?</h2>\n",
	      file);
	put_counts(file, page);
	put_busy(file, page->rows);
	fputs("<p><b>Measured</b>: a real device with its own costs. "
	      "<b>Predicted</b>: virtual time or emulated costs, not fitted to "
	      "this claim. <b>Repeated</b>: the number does not follow from "
	      "costs, so under other costs nothing but the same number can be "
	      "expected. <b>Fitted</b>: the costs were chosen so that this "
	      "number comes out; it shows nothing. Under the paper's costs the "
	      "bounds surround the paper's number; elsewhere they surround "
	      "what the cost model predicts for the costs of that place, which "
	      "is another regime and not a worse result. The "
	      "paper's bounds are part of the source; some models and means "
	      "were changed after a run had been seen, one since the first "
	      "run under h200 (doc/design/observability.md).</p>\n",
	      file);
	put_ideas(file, page);
	put_regimes(file, page->rows);
	fputs("</section>\n", file);
}

/* --- what is absent ------------------------------------------------------- */

static void put_absent_row(FILE *file, const char *row, const char *what,
			   const char *where, const char *why)
{
	fputs("<tr>", file);
	put_element(file, "th class=t", row);
	fputs("<td class=t>", file);
	pn_markup_text(file, what);
	put_element(file, "span class=about", *where ? ", " : "");
	put_element(file, "span class=about", where);
	fputs("</td>", file);
	put_element(file, "td class=t", why);
	fputs("</tr>\n", file);
}

static bool has_rows_of(const struct pn_rows *rows, const char *device)
{
	for (size_t i = 0; i < rows->n; i++) {
		const char *name = pn_row_text(rows->rows[i], "device");

		if (name && !strncmp(name, device, strlen(device)))
			return true;
	}
	return false;
}

/* First what this machine lacks, then what no single host has. */
static void put_absent(FILE *file, const struct pn_page *page)
{
	fputs("<section id=absent><h2>What cannot be shown here, and "
	      "why</h2>\n<div class=\"table free\" "
	      "tabindex=0><table><thead><tr><th "
	      "class=t>row</th><th class=t>what</th><th class=t>why, and what "
	      "stands in</th></tr></thead><tbody>\n",
	      file);
	for (size_t i = 0; i < page->nleft_out; i++) {
		const struct pn_left_out *left = &page->left_out[i];
		char what[96];

		snprintf(what, sizeof(what), "the experiment %s was left out",
			 left->name);
		put_absent_row(file, left->rows, what, "", left->why);
	}
	if (!has_rows_of(page->rows, pn_place_name(PN_PLACE_VERBS)))
		put_absent_row(file, "A4 P5 P9 R1 R6",
			       "an RDMA adapter: the column verbs is empty", "",
			       "its rows come by --rows DIR from tests/vm/rows "
			       "DIR, which takes an adapter of this machine or "
			       "rxe in a virtual one");
	for (size_t i = 0; i < pn_nabsent; i++)
		put_absent_row(file, pn_absent[i].row, pn_absent[i].what,
			       pn_absent[i].where, pn_absent[i].why);
	fputs("</tbody></table></div></section>\n", file);
}

/* --- questions ------------------------------------------------------------ */

static const char *question_text(enum pn_question question)
{
	return question < PN_QUESTION_PROGRAM
		       ? pn_paper_info((enum pn_paper)question)->question
		       : "What does the recorded program do?";
}

static bool has_question(const struct pn_page *page, enum pn_question question)
{
	if (page->nagreements && question < PN_QUESTION_PROGRAM)
		return true;
	for (size_t i = 0; i < page->figures->n; i++)
		if (page->figures->list[i].plan->question == question)
			return true;
	return false;
}

static void put_citation(FILE *file, enum pn_question question)
{
	const struct pn_paper_info *info;

	if (question >= PN_QUESTION_PROGRAM)
		return;
	info = pn_paper_info((enum pn_paper)question);
	fputs("<p class=cite>", file);
	pn_markup_text(file, info->authors);
	fputs(": ", file);
	put_element(file, "cite", info->title);
	fprintf(file, ", %s.</p>\n", info->year);
}

static void put_question(FILE *file, const struct pn_page *page,
			 enum pn_question question)
{
	size_t i = 0;

	fprintf(file, "<section id=question-%d><h2>", question);
	pn_markup_text(file, question_text(question));
	fputs("</h2>\n", file);
	put_citation(file, question);
	if (page->nagreements && question < PN_QUESTION_PROGRAM)
		put_agreements(file, page, (enum pn_paper)question);
	while (i < page->figures->n)
		if (page->figures->list[i].plan->question == question)
			i = put_plan(file, page->figures, i);
		else
			i++;
	fputs("</section>\n", file);
}

/* --- profiles ------------------------------------------------------------- */

static bool used(const struct pn_page *page, const struct pn_profile *profile)
{
	for (size_t i = 0; i < page->figures->n; i++) {
		const char *name =
			pn_row_text(page->figures->list[i].about, "profile");

		if (name && !strcmp(name, profile->name))
			return true;
	}
	return false;
}

static void put_profile(FILE *file, const struct pn_profile *profile)
{
	fputs("<tr>", file);
	put_element(file, "th class=t", profile->name);
	for (int f = 0; f < PN_PROFILE_NFIELDS; f++) {
		fputs("<td>", file);
		put_number(file, profile->value[f]);
		fputs(pn_profile_assumed(profile, f) ? "*</td>" : "</td>",
		      file);
	}
	put_element(file, "td class=\"t source\"", profile->source);
	fputs("</tr>\n", file);
}

static void put_profiles(FILE *file, const struct pn_page *page)
{
	const struct pn_profile *profile;
	bool any = false;

	for (unsigned i = 1; (profile = pn_profile_at(i)); i++)
		any |= used(page, profile);
	if (!any)
		return;
	fputs("<section id=profiles><h2>Cost profiles of the figures</h2><p>An "
	      "asterisk marks figures that are assumed; the others are "
	      "measured "
	      "or published. Pages are 4 KiB.</p><div class=\"table free\" "
	      "tabindex=0>"
	      "<table class=wide><thead><tr><th class=t></th>",
	      file);
	for (int f = 0; f < PN_PROFILE_NFIELDS; f++)
		put_element(file, "th", pn_profile_field_name(f));
	fputs("<th class=t>source</th></tr></thead><tbody>\n", file);
	for (unsigned i = 1; (profile = pn_profile_at(i)); i++)
		if (used(page, profile))
			put_profile(file, profile);
	fputs("</tbody></table></div></section>\n", file);
}

/* --- all of it ------------------------------------------------------------ */

static void put_contents(FILE *file, const struct pn_page *page)
{
	fputs("<nav><ul>\n", file);
	if (page->nagreements)
		fputs("<li><a href=#verdicts>Do the papers' claims "
		      "hold?</a></li>\n",
		      file);
	for (int q = 0; q < PN_QUESTIONS; q++)
		if (has_question(page, q)) {
			fprintf(file, "<li><a href=#question-%d>", q);
			pn_markup_text(file, question_text(q));
			fputs("</a></li>\n", file);
		}
	if (page->nagreements)
		fputs("<li><a href=#absent>What cannot be shown here, and "
		      "why</a></li>\n",
		      file);
	fputs("</ul></nav>\n", file);
}

int pn_page_write(const struct pn_page *page, FILE *file)
{
	fputs("<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8>\n"
	      "<meta name=viewport content=\"width=device-width,initial-scale=1"
	      "\">\n<link rel=icon href=\"data:,\">\n",
	      file);
	put_element(file, "title", page->title);
	fprintf(file, "\n<style>\n%s</style></head><body>\n", style);
	put_element(file, "h1", page->title);
	fprintf(file,
		"<p>%zu figures from %zu rows, written by pinion %s "
		"(%s).</p>\n",
		page->figures->n, page->rows->n, PN_VERSION, PN_REVISION);
	put_contents(file, page);
	put_overview(file, page);
	for (int q = 0; q < PN_QUESTIONS; q++)
		if (has_question(page, q))
			put_question(file, page, q);
	if (page->nagreements)
		put_absent(file, page);
	put_profiles(file, page);
	fputs("</body></html>\n", file);
	return fflush(file) || ferror(file) ? -EIO : 0;
}
