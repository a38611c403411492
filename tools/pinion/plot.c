/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/plot.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/compiler.h"
#include "tools/pinion/markup.h"

#define PATH 512

/* Of a picture, and of the names of its curves: all together, a line and a
 * letter. gnuplot takes letters for wider than they are. */
#define WIDTH	   480
#define HEIGHT	   290 /* without the names */
#define KEY_HEIGHT 18
#define KEY_WIDTH  380
#define KEY_SAMPLE 45
#define KEY_LETTER 6.75

/* Readable on white and on black. Points and dashes differ, too, for readers
 * who cannot distinguish colours (palette of Okabe and Ito, Color universal
 * design, 2008, with less contrast). */
static const char *const colours[] = {
	"#2b7bba", "#d1661b", "#17936c", "#b8579a",
	"#8f7a00", "#7065c7", "#c43d3d", "#5f7d8c",
};

/* --- the script ----------------------------------------------------------- */

/* Replaces characters that have a meaning in gnuplot by blanks. */
static void put_text(FILE *script, const char *text)
{
	for (; *text; text++)
		putc(strchr("'\"`\\{}$|@", *text) ||
				     iscntrl((unsigned char)*text)
			     ? ' '
			     : *text,
		     script);
}

/* A tic at every power of two, or at every second one if there are many. */
static void put_bytes_tics(FILE *script, const struct pn_figure *figure)
{
	static const char *const units[] = { "", "K", "M", "G", "T" };
	bool few = figure->xs[figure->nx - 1] <= 100 * figure->xs[0];

	fprintf(script, "set xtics (");
	for (int power = 0; power < 44; power += few ? 1 : 2)
		fprintf(script, "%s'%d%s' %.0f", power ? ", " : "",
			1 << power % 10, units[power / 10], exp2(power));
	fprintf(script, ")\n");
}

static double largest(const struct pn_figure *figure)
{
	double most = 0;

	for (size_t i = 0; i < figure->nx * figure->ncurves; i++)
		if (figure->ys[i] > most)
			most = figure->ys[i];
	return most;
}

/* 0 if nothing is below. */
static double smallest(const struct pn_figure *figure)
{
	double least = 0;

	for (size_t i = 0; i < figure->nx * figure->ncurves; i++)
		if (figure->ys[i] < least)
			least = figure->ys[i];
	return least;
}

static double smallest_above_0(const struct pn_figure *figure)
{
	double least = INFINITY;

	for (size_t i = 0; i < figure->nx * figure->ncurves; i++)
		if (figure->ys[i] > 0 && figure->ys[i] < least)
			least = figure->ys[i];
	return least;
}

static const char *const units[] = { "B", "K", "M", "G", "T" };

/* Tics at powers of 16, on a logarithmic scale. */
static void put_bytes_powers(FILE *script)
{
	fprintf(script, "set ytics (");
	for (int power = 0; power < 48; power += 4)
		fprintf(script, "%s'%d%s' %.0f", power ? ", " : "",
			1 << power % 10, units[power / 10], exp2(power));
	fprintf(script, ")\n");
}

/* About five tics at round numbers of bytes. */
static void put_bytes_scale(FILE *script, double most)
{
	double step = 1;
	int unit = 0;

	while (step * 6 < most)
		step *= 2;
	for (double s = step; s >= 1024 && unit < 4; s /= 1024)
		unit++;
	fprintf(script, "set ytics (");
	for (int i = 0; i <= 7; i++)
		fprintf(script, "%s'%.4g%s' %.0f", i ? ", " : "",
			i * step / pow(1024, unit), units[unit], i * step);
	fprintf(script, ")\n");
}

static size_t longest_name(const struct pn_figure *figure)
{
	size_t longest = 1;

	for (size_t c = 0; c < figure->ncurves; c++)
		if (strlen(figure->curves[c]) > longest)
			longest = strlen(figure->curves[c]);
	return longest;
}

/* Names of curves stand in columns above the picture. */
static int key_columns(const struct pn_figure *figure)
{
	double columns =
		KEY_WIDTH / (KEY_SAMPLE + KEY_LETTER * longest_name(figure));

	return columns < 2 ? 1 : columns < 3 ? 2 : 3;
}

static int key_lines(const struct pn_figure *figure)
{
	int columns = key_columns(figure);

	return ((int)figure->ncurves + columns - 1) / columns;
}

/* What is below 0 is shown, too. */
static void put_range(FILE *script, const struct pn_figure *figure)
{
	unsigned style = figure->plan->style;
	double most = largest(figure), least = smallest(figure);

	if (style & PN_FIGURE_LOG_Y) {
		fprintf(script, "set logscale y\n");
		/* Bars begin at the axis. */
		if (style & PN_FIGURE_BARS && most > 0)
			fprintf(script, "set yrange [%.9g:%.9g]\n",
				smallest_above_0(figure) / 4, 3 * most);
		return;
	}
	if (least < 0)
		fprintf(script, "set xzeroaxis lt 1 lc rgb '#808080'\n");
	fprintf(script, "set yrange [%.9g:%.9g]\n", 1.15 * least,
		most > 0    ? 1.15 * most
		: least < 0 ? -0.15 * least
			    : 1);
}

static int height_of(const struct pn_figure *figure)
{
	return HEIGHT + KEY_HEIGHT * key_lines(figure);
}

static void put_key(FILE *script, const struct pn_figure *figure)
{
	int lines = key_lines(figure);

	fprintf(script,
		"set key at screen 0.5,0.99 center top horizontal maxcols %d "
		"samplen 1.5 width %.2f\nset tmargin at screen %.4f\n",
		key_columns(figure), -0.15 * (double)longest_name(figure),
		1 - (KEY_HEIGHT * lines + 16.0) / height_of(figure));
}

static void put_axes(FILE *script, const struct pn_figure *figure)
{
	const struct pn_figure_plan *plan = figure->plan;

	fprintf(script,
		"reset\nset encoding utf8\nset grid ytics lc rgb "
		"'#909090' lw 0.5 dt 3\nset border 3\nset tics nomirror "
		"out\n%s\n",
		/* Over time a value holds until the next one. Other lines end
		 * where nothing was measured. */
		plan->style & PN_FIGURE_STEPS ? "set datafile missing 'NaN'"
					      : "set datafile missing '?'");
	put_key(script, figure);
	fprintf(script, "set xlabel '");
	put_text(script, plan->x_label);
	fprintf(script, "'\nset ylabel '");
	put_text(script, plan->y_label);
	fprintf(script, "'\n");
	/* Tics at the very ends of a range are lost to rounding. */
	if (plan->style & PN_FIGURE_LOG_X)
		fprintf(script, "set logscale x 2\nset xrange [%.9g:%.9g]\n",
			figure->xs[0] / 1.03,
			figure->xs[figure->nx - 1] * 1.03);
	put_range(script, figure);
	if (plan->style & PN_FIGURE_BYTES_X)
		put_bytes_tics(script, figure);
	if (plan->style & PN_FIGURE_BYTES_Y && plan->style & PN_FIGURE_LOG_Y)
		put_bytes_powers(script);
	else if (plan->style & PN_FIGURE_BYTES_Y)
		put_bytes_scale(script, largest(figure));
}

static void put_data(FILE *script, const struct pn_figure *figure)
{
	fprintf(script, "$data << END_OF_DATA\n");
	for (size_t x = 0; x < figure->nx; x++) {
		fprintf(script, "%.9g \"", figure->xs[x]);
		put_text(script, figure->x_words[x]);
		putc('"', script);
		for (size_t c = 0; c < figure->ncurves; c++) {
			double y = figure->ys[x * figure->ncurves + c];

			if (isfinite(y))
				fprintf(script, " %.9g", y);
			else
				fprintf(script, " NaN");
		}
		putc('\n', script);
	}
	fprintf(script, "END_OF_DATA\n");
}

static void put_curve(FILE *script, const struct pn_figure *figure, size_t c)
{
	unsigned style = figure->plan->style;
	const char *colour = colours[c % PN_ARRAY_LEN(colours)];

	fprintf(script, "%s$data using ", c ? ", " : "plot ");
	if (style & PN_FIGURE_BARS)
		fprintf(script,
			"%zu:xtic(2) with histograms fs solid 0.85 noborder lc "
			"rgb '%s'",
			c + 3, colour);
	else if (style & PN_FIGURE_STEPS)
		fprintf(script, "1:%zu with steps lw 1.6 lc rgb '%s'", c + 3,
			colour);
	else
		fprintf(script,
			"1:%zu with linespoints lw 1.8 pt %zu ps 0.6 dt %zu lc "
			"rgb '%s'",
			c + 3, 5 + c % 8, 1 + c / PN_ARRAY_LEN(colours),
			colour);
	fprintf(script, " title '");
	put_text(script, figure->curves[c]);
	fprintf(script, "'");
}

/* Where the bar of a curve stands: clusters have a gap of one bar. */
static double mark_x(const struct pn_figure *figure)
{
	double n = (double)figure->ncurves;

	if (!(figure->plan->style & PN_FIGURE_BARS))
		return figure->xs[figure->found_x];
	return (double)figure->found_x +
	       ((double)figure->found_curve - (n - 1) / 2) / (n + 1);
}

/* Marks the point that the finding names. */
static void put_mark(FILE *script, const struct pn_figure *figure)
{
	double y = figure->ys[figure->found_x * figure->ncurves +
			      figure->found_curve];
	bool right = figure->found_x * 2 >= figure->nx;
	bool edge = !figure->found_x || figure->found_x + 1 == figure->nx;
	bool bars = figure->plan->style & PN_FIGURE_BARS;
	char text[96];

	if (!isfinite(y))
		return;
	fprintf(script, "set label 1 '");
	put_text(script, pn_figure_value(figure, y, text, sizeof(text)));
	fprintf(script,
		"' at %.9g,%.9g %s offset %s,0.9 point pt 6 ps 1.6 lw 2 "
		"front\n",
		mark_x(figure), y,
		bars && !edge ? "center"
		: right	      ? "right"
			      : "left",
		bars	? "0"
		: right ? "-0.6"
			: "0.6");
}

static void put_figure(FILE *script, const struct pn_figure *figure,
		       const char *folder, size_t number)
{
	fprintf(script,
		"set terminal svg size %d,%d dynamic font 'sans-serif,13' "
		"noenhanced\n"
		"set output '%s/%zu.svg'\n",
		WIDTH, height_of(figure), folder, number);
	put_axes(script, figure);
	put_mark(script, figure);
	put_data(script, figure);
	if (figure->plan->style & PN_FIGURE_BARS)
		fprintf(script,
			"set style data histograms\nset style histogram "
			"clustered gap 1\nset xtics rotate by -30\n");
	for (size_t c = 0; c < figure->ncurves; c++)
		put_curve(script, figure, c);
	fprintf(script, "\nunset output\n");
}

static int write_script(const struct pn_figures *figures, const char *folder)
{
	char path[PATH];
	FILE *script;

	snprintf(path, sizeof(path), "%s/script", folder);
	script = fopen(path, "we");
	if (!script)
		return -errno;
	for (size_t i = 0; i < figures->n; i++)
		put_figure(script, &figures->list[i], folder, i);
	return fclose(script) ? -errno : 0;
}

static int run_gnuplot(const char *folder)
{
	char path[PATH];
	char *argv[] = { "gnuplot", path, NULL };
	int status, ret;
	pid_t child;

	snprintf(path, sizeof(path), "%s/script", folder);
	ret = posix_spawnp(&child, argv[0], NULL, NULL, argv, environ);
	if (ret)
		return -ret;
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return -ENOENT;
	return status ? -EIO : 0;
}

/* --- the pictures --------------------------------------------------------- */

static char *read_all(const char *path)
{
	FILE *file = fopen(path, "re");
	size_t room = 1 << 16, n = 0, got;
	char *text = file ? malloc(room) : NULL;

	while (text && (got = fread(text + n, 1, room - n - 1, file)) > 0) {
		n += got;
		if (room - n < 2) {
			char *more = realloc(text, room *= 2);

			if (!more)
				free(text);
			text = more;
		}
	}
	if (text)
		text[n] = '\0';
	if (file)
		fclose(file);
	return text;
}

/* Replacements in the SVG. Ids must be unique in the page. */
struct change {
	const char *from, *to;
};

static void write_changed(FILE *out, const char *at,
			  const struct change *changes, size_t n)
{
	while (*at) {
		size_t i = 0;

		while (i < n &&
		       strncmp(at, changes[i].from, strlen(changes[i].from)))
			i++;
		if (i < n) {
			fputs(changes[i].to, out);
			at += strlen(changes[i].from);
		} else {
			putc(*at++, out);
		}
	}
}

/* Title and description, which screen readers read, instead of gnuplot's. */
static char *describe(const struct pn_figure *figure)
{
	const struct pn_figure_plan *plan = figure->plan;
	char *text = NULL;
	size_t bytes;
	FILE *out = open_memstream(&text, &bytes);

	if (!out)
		return NULL;
	fputs("<title>", out);
	pn_markup_text(out, plan->title);
	if (figure->each[0]) {
		fputs(", ", out);
		pn_markup_text(out, figure->each);
	}
	fputs("</title><desc>", out);
	pn_markup_text(out, figure->finding);
	fprintf(out, " Horizontal axis: %s; vertical axis: %s.</desc>",
		plan->x_label, plan->y_label);
	if (!fclose(out))
		return text;
	free(text);
	return NULL;
}

/* Cuts an element with its contents out of the text. */
static void cut_element(char *text, const char *name)
{
	char open[16], end[16];
	char *from, *to;

	snprintf(open, sizeof(open), "<%s>", name);
	snprintf(end, sizeof(end), "</%s>", name);
	from = strstr(text, open);
	to = from ? strstr(from, end) : NULL;
	if (to)
		memmove(from, to + strlen(end), strlen(to + strlen(end)) + 1);
}

/* Copies from <svg on, with black replaced by the page's text colour, the
 * figure's number added to ids, and a description. */
static char *fit_into_page(char *text, const struct pn_figure *figure,
			   size_t number)
{
	char id[32], id_single[32], href[32], url[32];
	const struct change changes[] = {
		{ "rgb(  0,   0,   0)", "currentColor" },
		{ "'black'", "'currentColor'" },
		{ "\"black\"", "\"currentColor\"" },
		{ "id=\"", id },
		{ "id='", id_single },
		{ "href='#", href },
		{ "url(#", url },
	};
	char *svg = NULL, *about = describe(figure), *body;
	size_t bytes;
	FILE *out;

	snprintf(id, sizeof(id), "id=\"f%zu-", number);
	snprintf(id_single, sizeof(id_single), "id='f%zu-", number);
	snprintf(href, sizeof(href), "href='#f%zu-", number);
	snprintf(url, sizeof(url), "url(#f%zu-", number);
	cut_element(text, "title");
	cut_element(text, "desc");
	text = strstr(text, "<svg");
	body = text ? strchr(text, '>') : NULL;
	out = about && body ? open_memstream(&svg, &bytes) : NULL;
	if (out) {
		fprintf(out, "<svg role=\"img\"%.*s>%s", (int)(body - text) - 4,
			text + 4, about);
		write_changed(out, body + 1, changes, PN_ARRAY_LEN(changes));
	}
	free(about);
	if (out && !fclose(out))
		return svg;
	free(svg);
	return NULL;
}

static int read_pictures(struct pn_figures *figures, const char *folder)
{
	char path[PATH];
	int ret = 0;

	for (size_t i = 0; i < figures->n && !ret; i++) {
		char *text;

		snprintf(path, sizeof(path), "%s/%zu.svg", folder, i);
		text = read_all(path);
		figures->list[i].svg =
			text ? fit_into_page(text, &figures->list[i], i) : NULL;
		if (!figures->list[i].svg)
			ret = -EIO;
		free(text);
	}
	return ret;
}

static void remove_files(const struct pn_figures *figures, const char *folder)
{
	char path[PATH];

	for (size_t i = 0; i < figures->n; i++) {
		snprintf(path, sizeof(path), "%s/%zu.svg", folder, i);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/script", folder);
	unlink(path);
	rmdir(folder);
}

int pn_plot(struct pn_figures *figures)
{
	const char *where = getenv("TMPDIR");
	char folder[PATH - 64];
	int ret;

	if (!figures->n)
		return 0;
	/* The script has the folder's name in quotes. */
	if (!where || strchr(where, '\''))
		where = "/tmp";
	if (snprintf(folder, sizeof(folder), "%s/pinion-report-XXXXXX",
		     where) >= (int)sizeof(folder) ||
	    !mkdtemp(folder))
		return -EIO;
	ret = write_script(figures, folder);
	if (!ret)
		ret = run_gnuplot(folder);
	if (!ret)
		ret = read_pictures(figures, folder);
	remove_files(figures, folder);
	return ret;
}
