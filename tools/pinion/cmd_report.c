/* SPDX-License-Identifier: BSD-2-Clause */
/* pinion report: one HTML page of figures from measurements, simulations and
 * traces. */
#include "tools/pinion/cmd_report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/pinion/agreement.h"
#include "tools/pinion/command.h"
#include "tools/pinion/page.h"
#include "tools/pinion/plot.h"
#include "tools/pinion/trace_rows.h"

struct values {
	char output[PN_OPTION_TEXT_BYTES], title[PN_OPTION_TEXT_BYTES];
	char pictures[PN_OPTION_TEXT_BYTES];
	bool papers;
};

static const struct pn_option options[] = {
	{ "output", PN_OPTION_TEXT, "report.html", "the page to write",
	  offsetof(struct values, output), 0, 0, NULL },
	{ "title", PN_OPTION_TEXT, "pinion: what was measured",
	  "title of the page", offsetof(struct values, title), 0, 0, NULL },
	{ "papers", PN_OPTION_BOOL, "no",
	  "begin with a table that compares these figures with those of the "
	  "papers",
	  offsetof(struct values, papers), 0, 0, NULL },
	{ "pictures", PN_OPTION_TEXT, "",
	  "also write each figure as FOLDER/figure-N.svg",
	  offsetof(struct values, pictures), 0, 0, NULL },
};

/* JSON begins with a brace; any other file may be a trace. Standard input has
 * rows. */
static bool is_json(const char *path)
{
	FILE *file = strcmp(path, "-") ? fopen(path, "re") : NULL;
	int first = ' ';

	while (file && (first == ' ' || first == '\n'))
		first = getc(file);
	if (file)
		fclose(file);
	return first == '{' || first == EOF || !strcmp(path, "-");
}

static int read_files(char *const *files, struct pn_rows *rows)
{
	struct pn_why why = { "" };

	for (; *files; files++) {
		bool input = !strcmp(*files, "-");
		int ret = is_json(*files) && (input || !access(*files, R_OK))
				  ? pn_rows_read(rows, *files, &why)
				  : pn_trace_rows_read(rows, *files, &why);

		if (!ret)
			continue;
		if (!why.text[0])
			return pn_failed(*files, ret);
		fprintf(stderr, "pinion: %s\n", why.text);
		return PN_EXIT_FAILED;
	}
	return PN_EXIT_OK;
}

static int write_page(const struct pn_page *page, const char *path)
{
	FILE *file = fopen(path, "we");
	int ret = file ? pn_page_write(page, file) : -errno;

	if (file && fclose(file) && !ret)
		ret = -EIO;
	return ret ? pn_failed(path, ret) : PN_EXIT_OK;
}

/* A picture outside the page has grey text and axes, readable on white and on
 * black. */
static int write_picture(const char *svg, const char *folder, size_t number)
{
	char path[PN_OPTION_TEXT_BYTES + 32];
	FILE *file;

	snprintf(path, sizeof(path), "%s/figure-%zu.svg", folder, number);
	file = fopen(path, "we");
	if (!file)
		return pn_failed(path, -errno);
	fprintf(file, "<svg style=\"color:#808080\"%s", svg + strlen("<svg"));
	return fclose(file) ? pn_failed(path, -EIO) : PN_EXIT_OK;
}

static int write_pictures(const struct pn_figures *figures, const char *folder)
{
	int ret = PN_EXIT_OK;

	if (mkdir(folder, 0777) && errno != EEXIST)
		return pn_failed(folder, -errno);
	for (size_t i = 0; i < figures->n && !ret; i++)
		if (figures->list[i].svg)
			ret = write_picture(figures->list[i].svg, folder, i);
	return ret;
}

static void draw(struct pn_figures *figures)
{
	int ret = pn_plot(figures);

	if (ret)
		fprintf(stderr, "pinion: tables only, no pictures: %s\n",
			ret == -ENOENT ? "install gnuplot (Debian: "
					 "gnuplot-nox)"
				       : strerror(-ret));
}

static int make_page(const struct pn_report_attr *attr,
		     const struct pn_rows *rows, struct pn_figures *figures)
{
	struct pn_agreement *agreements = NULL;
	struct pn_page page = { .title = attr->title,
				.rows = rows,
				.figures = figures,
				.left_out = attr->left_out,
				.nleft_out = attr->nleft_out };
	int ret = attr->agreement ? pn_agreement_find(rows, &agreements,
						      &page.nagreements)
				  : 0;

	if (ret)
		return pn_failed("the report", ret);
	page.agreements = agreements;
	draw(figures);
	ret = write_page(&page, attr->output);
	if (!ret && attr->pictures)
		ret = write_pictures(figures, attr->pictures);
	free(agreements);
	if (!ret)
		printf("%s: %zu figures from %zu rows\n", attr->output,
		       figures->n, rows->n);
	return ret;
}

int pn_report_write(const struct pn_report_attr *attr)
{
	struct pn_figures figures = { 0 };
	struct pn_rows rows = { 0 };
	int ret = read_files(attr->files, &rows);

	if (!ret && pn_figures_make(&rows, &figures))
		ret = pn_failed("the report", -ENOMEM);
	if (!ret && !figures.n && !attr->agreement) {
		fprintf(stderr,
			"pinion: no figure can be made from these files; "
			"figures need rows of `pinion bench ... --json`, "
			"`pinion sim ... --json`, or traces\n");
		ret = PN_EXIT_FAILED;
	}
	if (!ret)
		ret = make_page(attr, &rows, &figures);
	pn_figures_fini(&figures);
	pn_rows_fini(&rows);
	return ret;
}

static int run(const void *v, char *const *operands)
{
	const struct values *values = v;
	const struct pn_report_attr attr = {
		.title = values->title,
		.files = operands,
		.output = values->output,
		.agreement = values->papers,
		.pictures = values->pictures[0] ? values->pictures : NULL
	};

	if (!operands[0])
		return pn_usage_error(
			"report: name files: rows that a command "
			"printed with --json (-: standard input), "
			"or traces");
	return pn_report_write(&attr);
}

const struct pn_command pn_cmd_report = {
	.name = "report",
	.help = "make one page of figures from measurements, simulations and "
		"traces",
	.about = "The page is self-contained: it needs no network, and each "
		 "figure has its table.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.operands = "FILE...",
	.run = run,
};
