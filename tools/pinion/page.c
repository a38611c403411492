/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/page.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "device/profiles.h"
#include "revision.h"
#include "tools/pinion/agreement.h"
#include "tools/pinion/report.h"

static const char style[] =
	":root{color-scheme:light dark;--line:#8884;--soft:#666;--bg:#fff;"
	"--fg:#1a1a1a;--mark:#b35900}\n"
	"@media(prefers-color-scheme:dark){:root{--bg:#16181b;--fg:#e4e4e4;"
	"--soft:#a0a0a0;--mark:#ffb061}}\n"
	"*{box-sizing:border-box}\n"
	"body{font:16px/1.5 system-ui,sans-serif;color:var(--fg);"
	"background:var(--bg);margin:0 auto;max-width:76rem;padding:1rem;"
	"overflow-wrap:anywhere}\n"
	"h1{font-size:1.6rem;margin:.5rem 0}h2{font-size:1.2rem;margin:0}\n"
	"nav ul{columns:18rem;padding-left:1.2rem}a{color:inherit}\n"
	"section{border-top:1px solid var(--line);padding:1.2rem 0}\n"
	".both{display:flex;flex-wrap:wrap;gap:1rem;align-items:flex-start}\n"
	".both figure{flex:1 1 30rem;margin:0;min-width:0}\n"
	".both .table{flex:1 1 16rem;min-width:0;max-height:26rem}\n"
	"svg{width:100%;height:auto;display:block}\n"
	".table{overflow:auto}\n"
	"table{border-collapse:collapse;font-size:.85rem;"
	"font-variant-numeric:tabular-nums}\n"
	"th,td{padding:.15rem .5rem;text-align:right;"
	"border-bottom:1px solid var(--line);overflow-wrap:normal}\n"
	"td.t,th.t{text-align:left}thead th{position:sticky;top:0;"
	"background:var(--bg)}\n"
	".about{color:var(--soft);font-size:.85rem;margin:.4rem 0 0}\n"
	".emulated{color:var(--mark);font-weight:600}\n"
	"code{font-size:.85em}.wide{min-width:44rem}.wide td{white-space:"
	"normal}\n"
	".differs td:nth-child(6){color:var(--mark)}\n"
	"@media print{:root{--bg:#fff;--fg:#000;--soft:#333;--line:#999}"
	"body{max-width:none;font-size:11pt}section{break-inside:avoid}"
	".both .table{max-height:none}.table{overflow:visible}nav{display:"
	"none}.wide{min-width:0}}\n";

/* --- text ----------------------------------------------------------------- */

static void put_text(FILE *file, const char *text)
{
	for (; text && *text; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", file);
			break;
		case '>':
			fputs("&gt;", file);
			break;
		case '&':
			fputs("&amp;", file);
			break;
		case '"':
			fputs("&quot;", file);
			break;
		default:
			putc(*text, file);
		}
}

static void put_element(FILE *file, const char *tag, const char *text)
{
	size_t name = strcspn(tag, " ");

	fprintf(file, "<%s>", tag);
	put_text(file, text);
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
		put_text(file, text);
	} else {
		put_number(file, y);
	}
}

/* --- figures -------------------------------------------------------------- */

static void put_title(FILE *file, const struct pn_figure *figure)
{
	put_text(file, figure->plan->title);
	if (figure->each[0]) {
		fputs(", ", file);
		put_text(file, figure->each);
	}
}

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

/* Summary of a curve over time: minimum, mean over the points, maximum. */
static void put_summary(FILE *file, const struct pn_figure *figure)
{
	fputs("<table><thead><tr><th class=t></th><th>least</th><th>mean</th>"
	      "<th>most</th></tr></thead><tbody>\n",
	      file);
	for (size_t c = 0; c < figure->ncurves; c++) {
		double least = INFINITY, most = -INFINITY, sum = 0, span = 0;
		double last = NAN, since = 0;

		for (size_t x = 0; x < figure->nx; x++) {
			double y = figure->ys[x * figure->ncurves + c];

			if (!isfinite(y))
				continue;
			if (isfinite(last)) {
				sum += last * (figure->xs[x] - since);
				span += figure->xs[x] - since;
			}
			last = y;
			since = figure->xs[x];
			least = fmin(least, y);
			most = fmax(most, y);
		}
		fputs("<tr>", file);
		put_element(file, "th class=t", figure->curves[c]);
		fputs("<td>", file);
		put_y(file, figure, least);
		fputs("</td><td>", file);
		put_y(file, figure, span > 0 ? sum / span : most);
		fputs("</td><td>", file);
		put_y(file, figure, most);
		fputs("</td></tr>\n", file);
	}
	fputs("</tbody></table>", file);
}

/* Device, profile, emulated or not, machine, revision, command. */
static void put_about(FILE *file, const struct pn_row *row)
{
	const char *profile = pn_row_text(row, "profile");
	const char *command = pn_row_text(row, "command");

	fputs("<p class=about>device <b>", file);
	put_text(file, pn_row_text(row, "device"));
	fputs("</b>, cost profile <b>", file);
	put_text(file, profile ? profile : "none");
	fputs("</b>, ", file);
	fputs(!isfinite(pn_row_number(row, "emulated"))
		      ? "not known whether emulated"
	      : pn_row_number(row, "emulated") > 0
		      ? "<span class=emulated>emulated costs</span>"
		      : "measured, not emulated",
	      file);
	fputs("; ", file);
	put_text(file, pn_row_text(row, "machine"));
	fputs("; revision ", file);
	put_text(file, pn_row_text(row, "revision"));
	if (command) {
		fputs("<br>", file);
		put_element(file, "code", command);
	}
	fputs("</p>", file);
}

static void put_figure(FILE *file, const struct pn_figure *figure,
		       size_t number)
{
	fprintf(file, "<section id=figure-%zu><h2>", number);
	put_title(file, figure);
	fputs("</h2>\n", file);
	put_element(file, "p", figure->plan->says);
	fputs("\n<div class=both><figure>", file);
	if (figure->svg)
		fputs(figure->svg, file);
	put_about(file, figure->about);
	fputs("</figure>\n<div class=table tabindex=0>", file);
	if (figure->plan->style & PN_FIGURE_NO_TABLE)
		put_summary(file, figure);
	else
		put_grid(file, figure);
	fputs("</div></div></section>\n", file);
}

/* --- agreement ------------------------------------------------------------ */

static void put_agreement(FILE *file, const struct pn_agreement *a)
{
	fprintf(file, "<tr class=%s>", pn_verdict_name(a->verdict));
	put_element(file, "td class=t", a->row);
	fputs("<td class=t>", file);
	put_text(file, a->what);
	fputs("<br><span class=about>", file);
	put_text(file, a->where);
	fputs("</span></td><td>", file);
	put_number(file, a->paper);
	fputs("</td><td>", file);
	put_number(file, a->ours);
	fputs("</td>", file);
	put_element(file, "td class=t", a->unit);
	put_element(file, "td class=t", pn_verdict_name(a->verdict));
	fputs("<td class=t>", file);
	if (a->verdict == PN_MISSING)
		put_element(file, "code", a->command);
	else
		put_text(file, a->why);
	fputs("</td></tr>\n", file);
}

static void put_agreements(FILE *file, const struct pn_page *page)
{
	size_t count[PN_VERDICTS] = { 0 };

	if (!page->nagreements)
		return;
	for (size_t i = 0; i < page->nagreements; i++)
		count[page->agreements[i].verdict]++;
	fprintf(file,
		"<section id=agreement><h2>Comparison with the "
		"papers</h2><p>%zu figures agree, %zu are better, %zu differ "
		"(the last column says why), %zu were not run (the last column "
		"has the command); %zu rows have no number to compare and name "
		"the tests that cover them.</p><div class=table "
		"tabindex=0><table class=wide><thead><tr><th "
		"class=t>row</th><th "
		"class=t>what</th><th>paper</th><th>here</th><th "
		"class=t>unit</th><th class=t></th><th class=t>reason or "
		"basis</th></tr></thead><tbody>\n",
		count[PN_AGREES], count[PN_BETTER], count[PN_DIFFERS],
		count[PN_MISSING], count[PN_TESTED]);
	for (size_t i = 0; i < page->nagreements; i++)
		put_agreement(file, &page->agreements[i]);
	fputs("</tbody></table></div></section>\n", file);
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
	put_element(file, "td class=t", profile->source);
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
	      "or published. Pages are 4 KiB.</p><div class=table tabindex=0>"
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
		fputs("<li><a href=#agreement>Comparison with the "
		      "papers</a></li>\n",
		      file);
	for (size_t i = 0; i < page->figures->n; i++) {
		fprintf(file, "<li><a href=#figure-%zu>", i);
		put_title(file, &page->figures->list[i]);
		fputs("</a></li>\n", file);
	}
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
	put_agreements(file, page);
	for (size_t i = 0; i < page->figures->n; i++)
		put_figure(file, &page->figures->list[i], i);
	put_profiles(file, page);
	fputs("</body></html>\n", file);
	return fflush(file) || ferror(file) ? -EIO : 0;
}
