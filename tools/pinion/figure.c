/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/figure.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME 256

/* --- which rows ----------------------------------------------------------- */

static bool selects(const struct pn_figure_plan *plan, const struct pn_row *row)
{
	const char *bench = pn_row_text(row, "bench");

	if (!bench || strcmp(bench, plan->bench) ||
	    !isfinite(pn_row_number(row, plan->y)))
		return false;
	for (size_t i = 0; i < 3; i++)
		if (!pn_row_meets(row, plan->where[i]))
			return false;
	return plan->style & PN_FIGURE_BARS ||
	       isfinite(pn_row_number(row, plan->x));
}

static bool same(const struct pn_row *a, const struct pn_row *b,
		 const char *key)
{
	char x[NAME], y[NAME];

	return !key || !strcmp(pn_row_word(a, key, x, sizeof(x)),
			       pn_row_word(b, key, y, sizeof(y)));
}

/* Whether two rows of a plan belong to one figure. */
static bool same_figure(const struct pn_figure_plan *plan,
			const struct pn_row *a, const struct pn_row *b)
{
	return same(a, b, plan->each) && same(a, b, plan->each_too) &&
	       same(a, b, "device") && same(a, b, "profile") &&
	       same(a, b, "machine");
}

/* --- the grid ------------------------------------------------------------- */

/* The value of a key; a bare number says what it counts: "window 2". "" without
 * a value, or with "-". */
static void name_part(const struct pn_row *row, const char *key, char *buf,
		      size_t bytes)
{
	char word[NAME] = "";

	if (key)
		pn_row_word(row, key, word, sizeof(word));
	if (!strcmp(word, "-"))
		*word = '\0';
	snprintf(buf, bytes, "%s%s%.100s",
		 *word && !word[strspn(word, "0123456789.")] ? key : "",
		 *word && !word[strspn(word, "0123456789.")] ? " " : "", word);
}

static void curve_name(const struct pn_figure_plan *plan,
		       const struct pn_row *row, char *buf, size_t bytes)
{
	char first[NAME], second[NAME];

	name_part(row, plan->curve[0], first, sizeof(first));
	name_part(row, plan->curve[1], second, sizeof(second));
	snprintf(buf, bytes, "%.120s%s%.120s", first,
		 *first && *second ? ", " : "", second);
	if (!*buf)
		snprintf(buf, bytes, "%s", plan->y_label);
}

/* Returns the index of a word in a list, adding a new word. -1: no memory. */
static long index_of_word(char ***list, size_t *n, const char *word)
{
	char **more;

	for (size_t i = 0; i < *n; i++)
		if (!strcmp((*list)[i], word))
			return (long)i;
	more = realloc(*list, (*n + 1) * sizeof(*more));
	if (!more)
		return -1;
	*list = more;
	more[*n] = strdup(word);
	return more[*n] ? (long)(*n)++ : -1;
}

/* A row as a point of the grid. */
struct point {
	double x, y, mean;
	size_t at; /* x as text */
	long curve;
	char word[NAME];
};

static int by_x(const void *a, const void *b)
{
	const struct point *p = a, *q = b;

	return (p->x > q->x) - (p->x < q->x);
}

/* `which`: 0 for y, else one of the plan's further keys. */
static int read_point(struct pn_figure *figure, const struct pn_row *row,
		      size_t which, struct point *point)
{
	const struct pn_figure_plan *plan = figure->plan;
	char name[NAME];

	curve_name(plan, row, name, sizeof(name));
	if (plan->more[0].key)
		snprintf(name, sizeof(name), "%s",
			 which ? plan->more[which - 1].name : plan->y_name);
	point->curve = index_of_word(&figure->curves, &figure->ncurves, name);
	if (point->curve < 0)
		return -ENOMEM;
	point->y = pn_row_number(row,
				 which ? plan->more[which - 1].key : plan->y) /
		   (plan->y_scale > 0 ? plan->y_scale : 1);
	point->mean = plan->mean ? pn_row_number(row, plan->mean) : NAN;
	pn_row_word(row, plan->x, point->word, sizeof(point->word));
	point->x = pn_row_number(row, plan->x);
	if (plan->style & PN_FIGURE_BARS) {
		long at = index_of_word(&figure->x_words, &figure->nx,
					point->word);

		if (at < 0)
			return -ENOMEM;
		point->x = (double)at;
	}
	return 0;
}

/* Numeric x values: sorted and unique, each with its text. */
static int index_numbers(struct pn_figure *figure, struct point *points,
			 size_t n)
{
	figure->x_words = calloc(n, sizeof(*figure->x_words));
	if (!figure->x_words)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++) {
		if (!i || points[i].x != points[i - 1].x) {
			figure->x_words[figure->nx] = strdup(points[i].word);
			if (!figure->x_words[figure->nx])
				return -ENOMEM;
			figure->nx++;
		}
		points[i].at = figure->nx - 1;
	}
	return 0;
}

/* If several rows have the same x and curve, the last one counts. */
static int fill_grid(struct pn_figure *figure, struct point *points, size_t n)
{
	bool bars = figure->plan->style & PN_FIGURE_BARS;
	int ret = 0;

	if (bars)
		for (size_t i = 0; i < n; i++)
			points[i].at = (size_t)points[i].x;
	else
		qsort(points, n, sizeof(*points), by_x);
	if (!bars)
		ret = index_numbers(figure, points, n);
	if (ret)
		return ret;
	figure->xs = calloc(figure->nx, sizeof(double));
	figure->ys = calloc(figure->nx * figure->ncurves, sizeof(double));
	figure->means = calloc(figure->nx * figure->ncurves, sizeof(double));
	if (!figure->xs || !figure->ys || !figure->means)
		return -ENOMEM;
	for (size_t i = 0; i < figure->nx * figure->ncurves; i++)
		figure->ys[i] = figure->means[i] = NAN;
	for (size_t i = 0; i < n; i++) {
		size_t at = points[i].at * figure->ncurves +
			    (size_t)points[i].curve;

		figure->xs[points[i].at] = points[i].x;
		figure->ys[at] = points[i].y;
		figure->means[at] = points[i].mean;
	}
	return 0;
}

/* Of a file, its name: folders say nothing about what it has. */
static const char *without_folders(const char *word)
{
	const char *slash = strrchr(word, '/');

	return slash ? slash + 1 : word;
}

/* "what bcast, ranks 4". */
static void name_each(struct pn_figure *figure)
{
	const char *keys[] = { figure->plan->each, figure->plan->each_too };
	char word[NAME];
	size_t at = 0;

	for (size_t i = 0; i < 2 && keys[i]; i++) {
		pn_row_word(figure->about, keys[i], word, sizeof(word));
		at += (size_t)snprintf(figure->each + at,
				       sizeof(figure->each) - at,
				       "%s%.12s %.60s", i ? ", " : "", keys[i],
				       without_folders(word));
	}
}

static int add_command(struct pn_figure *figure, const struct pn_row *row)
{
	const char *command = pn_row_text(row, "command");

	return command && index_of_word(&figure->commands, &figure->ncommands,
					command) < 0
		       ? -ENOMEM
		       : 0;
}

static int make_figure(const struct pn_rows *rows, struct pn_figure *figure,
		       bool *taken)
{
	const struct pn_figure_plan *plan = figure->plan;
	struct point *points = calloc(PN_FIGURE_YS * rows->n, sizeof(*points));
	size_t n = 0;
	int ret = points ? 0 : -ENOMEM;

	for (size_t i = 0; i < rows->n && !ret; i++) {
		if (taken[i] || !selects(plan, rows->rows[i]) ||
		    !same_figure(plan, figure->about, rows->rows[i]))
			continue;
		taken[i] = true;
		ret = add_command(figure, rows->rows[i]);
		for (size_t y = 0;
		     !ret && y < PN_FIGURE_YS && (!y || plan->more[y - 1].key);
		     y++)
			ret = read_point(figure, rows->rows[i], y,
					 &points[n++]);
	}
	if (!ret)
		ret = fill_grid(figure, points, n);
	if (!ret)
		pn_figure_find(figure);
	name_each(figure);
	free(points);
	return ret;
}

static void words_free(char **words, size_t n)
{
	for (size_t i = 0; words && i < n; i++)
		free(words[i]);
	free(words);
}

static void figure_fini(struct pn_figure *figure)
{
	words_free(figure->x_words, figure->nx);
	words_free(figure->curves, figure->ncurves);
	words_free(figure->commands, figure->ncommands);
	free(figure->xs);
	free(figure->ys);
	free(figure->means);
	free(figure->svg);
}

static struct pn_figure *figure_add(struct pn_figures *figures)
{
	struct pn_figure *more =
		realloc(figures->list, (figures->n + 1) * sizeof(*more));

	if (!more)
		return NULL;
	figures->list = more;
	memset(&more[figures->n], 0, sizeof(*more));
	return &more[figures->n++];
}

/* Makes all figures of one plan. */
static int make_plan_figures(const struct pn_figure_plan *plan,
			     const struct pn_rows *rows, struct pn_figures *out)
{
	bool *taken = calloc(rows->n + 1, sizeof(*taken));
	int ret = taken ? 0 : -ENOMEM;

	for (size_t i = 0; i < rows->n && !ret; i++) {
		struct pn_figure *figure;

		if (taken[i] || !selects(plan, rows->rows[i]))
			continue;
		figure = figure_add(out);
		if (!figure) {
			ret = -ENOMEM;
			break;
		}
		figure->plan = plan;
		figure->about = rows->rows[i];
		ret = make_figure(rows, figure, taken);
		/* A single point is no curve. */
		if (!ret && figure->nx < 2 && !(plan->style & PN_FIGURE_BARS)) {
			figure_fini(figure);
			out->n--;
		}
	}
	free(taken);
	return ret;
}

int pn_figures_make(const struct pn_rows *rows, struct pn_figures *out)
{
	int ret = 0;

	*out = (struct pn_figures){ 0 };
	for (size_t i = 0; i < pn_figure_nplans && !ret; i++)
		ret = make_plan_figures(&pn_figure_plans[i], rows, out);
	if (ret)
		pn_figures_fini(out);
	return ret;
}

void pn_figures_fini(struct pn_figures *figures)
{
	for (size_t i = 0; i < figures->n; i++)
		figure_fini(&figures->list[i]);
	free(figures->list);
	*figures = (struct pn_figures){ 0 };
}
