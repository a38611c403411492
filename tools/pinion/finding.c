/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a figure shows, in a sentence with its numbers (figure.h).
 *
 * Several curves: the x at which the best and the worst of them differ most;
 * bars of which each kind has places of its own: the best of each kind.
 * One curve: its first and its last point; of bars, which have no order, the
 * best and the worst. Curves over time: their means. What
 * is saved, and its price: the least of the first where the price is at most 5
 * %.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/pinion/figure.h"

#define TEXT 96

/* The unit without its remark: "seconds" of "seconds (virtual)". */
const char *pn_figure_value(const struct pn_figure *figure, double y, char *buf,
			    size_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
	const char *label = figure->plan->y_label;
	const char *remark = strstr(label, " (");
	int len = remark ? (int)(remark - label) : (int)strlen(label);
	unsigned unit = 0;

	if (figure->plan->style & PN_FIGURE_BYTES_Y) {
		for (; fabs(y) >= 1024 && unit < 4; unit++)
			y /= 1024;
		snprintf(buf, bytes, fabs(y) >= 1000 ? "%.0f %s" : "%.3g %s", y,
			 units[unit]);
	} else if (fabs(y) >= 1000) {
		snprintf(buf, bytes, "%.0f %.*s", y, len, label);
	} else {
		snprintf(buf, bytes, "%.3g %.*s", y, len, label);
	}
	return buf;
}

/* Three digits, never as a power of ten. */
static const char *round_text(double number, char *buf, size_t bytes)
{
	snprintf(buf, bytes, fabs(number) >= 1000 ? "%.0f" : "%.3g", number);
	return buf;
}

/* "8M (size of a message)"; the word alone where it says what it is. */
static const char *x_text(const struct pn_figure *figure, size_t x, char *buf,
			  size_t bytes)
{
	const char *label = figure->plan->x_label;
	int len = (int)strcspn(label, "(");

	/* Without the unit, which is in parentheses. */
	if (label[len] && len)
		len--;
	if (figure->plan->style & PN_FIGURE_BARS)
		snprintf(buf, bytes, "%s", figure->x_words[x]);
	else
		snprintf(buf, bytes, "%s (%.*s)", figure->x_words[x], len,
			 label);
	return buf;
}

static double value(const struct pn_figure *figure, size_t x, size_t curve)
{
	return figure->ys[x * figure->ncurves + curve];
}

/* --- over time ------------------------------------------------------------ */

double pn_figure_time_mean(const struct pn_figure *figure, size_t curve)
{
	double sum = 0, span = 0, last = NAN, since = 0, step = 0;

	for (size_t x = 0; x < figure->nx; x++) {
		size_t at = x * figure->ncurves + curve;
		double y = isfinite(figure->means[at]) ? figure->means[at]
						       : figure->ys[at];

		if (!isfinite(y))
			continue;
		if (isfinite(last)) {
			step = figure->xs[x] - since;
			sum += last * step;
			span += step;
		}
		last = y;
		since = figure->xs[x];
	}
	/* The last span is as long as the others. */
	return step > 0 ? (sum + last * step) / (span + step) : last;
}

static size_t highest_of(const struct pn_figure *figure, size_t curve)
{
	size_t at = 0;

	for (size_t x = 0; x < figure->nx; x++)
		if (!(value(figure, x, curve) <= value(figure, at, curve)) &&
		    isfinite(value(figure, x, curve)))
			at = x;
	return at;
}

static void find_over_time(struct pn_figure *figure)
{
	char a[TEXT], b[TEXT];
	size_t low = 0, high = 0;

	for (size_t c = 1; c < figure->ncurves; c++) {
		double mean = pn_figure_time_mean(figure, c);

		if (mean < pn_figure_time_mean(figure, low))
			low = c;
		if (mean > pn_figure_time_mean(figure, high))
			high = c;
	}
	figure->found_curve = high;
	figure->found_x = highest_of(figure, high);
	pn_figure_value(figure, pn_figure_time_mean(figure, high), a, TEXT);
	pn_figure_value(figure, pn_figure_time_mean(figure, low), b, TEXT);
	if (low == high || !strcmp(a, b))
		snprintf(figure->finding, sizeof(figure->finding),
			 "%s %s on average.",
			 low == high ? figure->curves[high] : "All hold", a);
	else
		snprintf(figure->finding, sizeof(figure->finding),
			 "%s holds %s on average, %s holds %s.",
			 figure->curves[low], b, figure->curves[high], a);
}

/* --- curves --------------------------------------------------------------- */

static void find_single(struct pn_figure *figure)
{
	char a[TEXT], b[TEXT], at[TEXT], to[TEXT];
	size_t first = 0, last = figure->nx - 1;

	while (first < last && !isfinite(value(figure, first, 0)))
		first++;
	while (last > first && !isfinite(value(figure, last, 0)))
		last--;
	figure->found_x = last;
	snprintf(figure->finding, sizeof(figure->finding),
		 first == last ? "%s at %s." : "From %s at %s to %s at %s.",
		 pn_figure_value(figure, value(figure, first, 0), a, TEXT),
		 x_text(figure, first, at, TEXT),
		 pn_figure_value(figure, value(figure, last, 0), b, TEXT),
		 x_text(figure, last, to, TEXT));
}

/* A single row of bars: the lowest and the highest. */
static void find_bars(struct pn_figure *figure)
{
	bool less = figure->plan->good < 0;
	size_t low = 0, high = 0, best, worst;
	char a[TEXT], b[TEXT];

	for (size_t x = 1; x < figure->nx; x++) {
		if (!(value(figure, x, 0) >= value(figure, low, 0)))
			low = x;
		if (!(value(figure, x, 0) <= value(figure, high, 0)))
			high = x;
	}
	best = less ? low : high;
	worst = less ? high : low;
	figure->found_x = best;
	if (low == high)
		snprintf(figure->finding, sizeof(figure->finding), "%s at %s.",
			 pn_figure_value(figure, value(figure, best, 0), a,
					 TEXT),
			 figure->x_words[best]);
	else
		snprintf(figure->finding, sizeof(figure->finding),
			 "%.120s has %s, %.120s has %s.", figure->x_words[best],
			 pn_figure_value(figure, value(figure, best, 0), a,
					 TEXT),
			 figure->x_words[worst],
			 pn_figure_value(figure, value(figure, worst, 0), b,
					 TEXT));
}

/* Lowest and highest curve at an x; false: fewer than two have a value. */
static bool extremes(const struct pn_figure *figure, size_t x, size_t *low,
		     size_t *high)
{
	unsigned n = 0;

	for (size_t c = 0; c < figure->ncurves; c++) {
		double y = value(figure, x, c);

		if (!isfinite(y))
			continue;
		if (!n || y < value(figure, x, *low))
			*low = c;
		if (!n || y > value(figure, x, *high))
			*high = c;
		n++;
	}
	return n > 1;
}

/* How different the curves are at an x: the ratio, or the difference where one
 * is not above 0. */
static double contrast(const struct pn_figure *figure, size_t x, size_t low,
		       size_t high)
{
	double a = value(figure, x, low), b = value(figure, x, high);

	return a > 0 ? b / a : b - a;
}

/* All curves are the same at each x: from where to where they go. */
static void say_same(struct pn_figure *figure, size_t curve)
{
	char a[TEXT], b[TEXT], at[TEXT];
	size_t first = figure->nx, last = 0;

	for (size_t x = 0; x < figure->nx; x++)
		if (isfinite(value(figure, x, curve))) {
			first = first < x ? first : x;
			last = x;
		}
	pn_figure_value(figure, value(figure, first, curve), a, TEXT);
	pn_figure_value(figure, value(figure, last, curve), b, TEXT);
	x_text(figure, last, at, TEXT);
	if (first == last)
		snprintf(figure->finding, sizeof(figure->finding),
			 "All are the same within 1 %%: %s at %s.", a, at);
	else
		snprintf(figure->finding, sizeof(figure->finding),
			 "All are the same within 1 %%, from %s at %.60s to %s "
			 "at %s.",
			 a, figure->x_words[first], b, at);
}

static void say_contrast(struct pn_figure *figure, size_t x, size_t low,
			 size_t high)
{
	bool less = figure->plan->good < 0;
	size_t best = less ? low : high, worst = less ? high : low;
	double a = value(figure, x, low), b = value(figure, x, high);
	char best_text[TEXT], worst_text[TEXT], times[TEXT] = "", at[TEXT];
	char factor[TEXT];

	figure->found_x = x;
	figure->found_curve = best;
	pn_figure_value(figure, value(figure, x, best), best_text, TEXT);
	pn_figure_value(figure, value(figure, x, worst), worst_text, TEXT);
	if (a > 0 && b / a >= 1.01)
		snprintf(times, sizeof(times), ", a factor of %.60s",
			 round_text(b / a, factor, TEXT));
	x_text(figure, x, at, TEXT);
	if (b - a <= 0.01 * fabs(b))
		say_same(figure, best);
	else
		snprintf(figure->finding, sizeof(figure->finding),
			 "At %s, %s has %s, %s has %s%s.", at,
			 figure->curves[best], best_text, figure->curves[worst],
			 worst_text, times);
}

static void find_contrast(struct pn_figure *figure)
{
	size_t at = 0, low = 0, high = 0, l = 0, h = 0;
	double most = -1;

	for (size_t x = 0; x < figure->nx; x++)
		if (extremes(figure, x, &l, &h) &&
		    contrast(figure, x, l, h) > most) {
			most = contrast(figure, x, l, h);
			at = x;
			low = l;
			high = h;
		}
	if (most < 0)
		find_single(figure);
	else
		say_contrast(figure, at, low, high);
}

/* --- bars, each kind with places of its own ------------------------------- */

static bool is_ragged(const struct pn_figure *figure)
{
	size_t low = 0, high = 0;

	for (size_t x = 0; x < figure->nx; x++)
		if (!extremes(figure, x, &low, &high))
			return true;
	return false;
}

/* The x at which a curve is best. */
static size_t best_of(const struct pn_figure *figure, size_t curve)
{
	double sign = figure->plan->good < 0 ? -1 : 1;
	size_t at = 0;

	for (size_t x = 1; x < figure->nx; x++)
		if (isfinite(value(figure, x, curve)) &&
		    !(sign * value(figure, x, curve) <=
		      sign * value(figure, at, curve)))
			at = x;
	return at;
}

static double best_value(const struct pn_figure *figure, size_t curve)
{
	return value(figure, best_of(figure, curve), curve);
}

/* "periodic has 50 % of predictions at 128". */
static const char *best_text(const struct pn_figure *figure, size_t curve,
			     char *buf, size_t bytes)
{
	char text[TEXT];

	snprintf(buf, bytes, "%.100s has %s at %.40s", figure->curves[curve],
		 pn_figure_value(figure, best_value(figure, curve), text, TEXT),
		 figure->x_words[best_of(figure, curve)]);
	return buf;
}

static void find_bests(struct pn_figure *figure)
{
	double sign = figure->plan->good < 0 ? -1 : 1;
	char a[2 * TEXT + 64], b[2 * TEXT + 64];
	size_t best = 0, worst = 0;

	for (size_t c = 1; c < figure->ncurves; c++) {
		double own = sign * best_value(figure, c);

		if (own > sign * best_value(figure, best))
			best = c;
		if (own < sign * best_value(figure, worst))
			worst = c;
	}
	figure->found_curve = best;
	figure->found_x = best_of(figure, best);
	best_text(figure, best, a, sizeof(a));
	best_text(figure, worst, b, sizeof(b));
	if (fabs(best_value(figure, best) - best_value(figure, worst)) <=
	    0.01 * fabs(best_value(figure, best)))
		snprintf(figure->finding, sizeof(figure->finding),
			 "At their best, all are the same within 1 %%: %s.", a);
	else
		snprintf(figure->finding, sizeof(figure->finding),
			 "At their best, %.220s, %.220s.", a, b);
}

/* --- what is saved, and its price ------------------------------------------
 */

#define FAIR 1.05 /* times: the most that is no price */

static void find_trade(struct pn_figure *figure)
{
	double least = INFINITY;
	char a[TEXT], b[TEXT];

	for (size_t x = 0; x < figure->nx; x++)
		if (value(figure, x, 1) <= FAIR &&
		    value(figure, x, 0) < least) {
			least = value(figure, x, 0);
			figure->found_x = x;
		}
	if (!isfinite(least)) {
		find_contrast(figure);
		return;
	}
	snprintf(figure->finding, sizeof(figure->finding),
		 "Where %.60s is at most %g times, %.120s has the least "
		 "%.60s: %s, at %s.",
		 figure->curves[1], FAIR, figure->x_words[figure->found_x],
		 figure->curves[0], pn_figure_value(figure, least, a, TEXT),
		 pn_figure_value(figure, value(figure, figure->found_x, 1), b,
				 TEXT));
}

void pn_figure_find(struct pn_figure *figure)
{
	if (!figure->nx)
		return;
	if (figure->plan->style & PN_FIGURE_TRADE && figure->ncurves == 2)
		find_trade(figure);
	else if (figure->plan->style & PN_FIGURE_STEPS)
		find_over_time(figure);
	else if (figure->ncurves == 1)
		(figure->plan->style & PN_FIGURE_BARS ? find_bars
						      : find_single)(figure);
	else if (figure->plan->style & PN_FIGURE_BARS && is_ragged(figure))
		find_bests(figure);
	else
		find_contrast(figure);
}
