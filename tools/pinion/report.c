/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "config/option.h"
#include "revision.h"
#include "tools/pinion/json.h"

#define COLUMNS 80 /* of a terminal */

/* The line of /proc/cpuinfo that names the CPU; aarch64 has none. */
static void cpu_model(char *buf, size_t len)
{
	FILE *file = fopen("/proc/cpuinfo", "re");
	char line[256];

	snprintf(buf, len, "unknown CPU");
	while (file && fgets(line, sizeof(line), file)) {
		const char *colon = strchr(line, ':');

		if (!colon || strncmp(line, "model name", 10))
			continue;
		line[strcspn(line, "\n")] = 0;
		snprintf(buf, len, "%s", colon + 2);
		break;
	}
	if (file)
		fclose(file);
}

const char *pn_report_machine(void)
{
	static char machine[320];
	struct utsname name;
	char model[128];

	if (*machine)
		return machine;
	cpu_model(model, sizeof(model));
	uname(&name);
	snprintf(machine, sizeof(machine), "%s, %ld cores, %s %s", model,
		 sysconf(_SC_NPROCESSORS_ONLN), name.sysname, name.release);
	return machine;
}

const char *pn_report_command(void)
{
	static char command[1024];
	char words[sizeof(command) - 16] = "";
	FILE *file = *command ? NULL : fopen("/proc/self/cmdline", "re");
	size_t n = file ? fread(words, 1, sizeof(words) - 1, file) : 0;
	size_t program = strnlen(words, n);

	if (!file)
		return command;
	fclose(file);
	for (size_t i = program; i + 1 < n; i++)
		if (!words[i])
			words[i] = ' ';
	/* The name of the program without its path. */
	snprintf(command, sizeof(command), "pinion%s", words + program);
	return command;
}

const char *pn_report_bytes(uint64_t bytes, char buf[PN_REPORT_BYTES_LEN])
{
	static const struct pn_option row = { .name = "",
					      .type = PN_OPTION_BYTES };

	if (bytes == SIZE_MAX)
		return "-";
	pn_option_format(&row, &bytes, buf, PN_REPORT_BYTES_LEN);
	return buf;
}

void pn_report_device(struct pn_report *report, const struct pn_device *device)
{
	report->profile = device->profile ? device->profile : "none";
	report->emulated = device->emulated;
}

/* Breaks lines at blanks, since a machine may have a long name. */
static void print_in_columns(const char *text)
{
	size_t column = 0;

	while (*text) {
		size_t word = strcspn(text, " ");

		if (column && column + 1 + word > COLUMNS) {
			putchar('\n');
			column = 0;
		}
		column += (size_t)printf("%s%.*s", column ? " " : "", (int)word,
					 text);
		text += word;
		text += strspn(text, " ");
	}
	putchar('\n');
}

static void print_machine(void)
{
	char line[400];

	snprintf(line, sizeof(line), "%s, revision %s", pn_report_machine(),
		 PN_REVISION);
	print_in_columns(line);
}

void pn_report_head(struct pn_report *report, const char *question)
{
	if (report->json)
		return;
	printf("%s: %s\n", report->bench, question);
	printf("device %s, cost profile %s%s\n", report->device,
	       report->profile ? report->profile : "none",
	       report->emulated ? ", EMULATED" : "");
	print_machine();
}

void pn_report_note(struct pn_report *report, const char *fmt, ...)
{
	va_list ap;

	if (report->json)
		return;
	pn_report_progress(NULL);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
}

void pn_report_progress(const char *what)
{
	if (!isatty(STDERR_FILENO))
		return;
	fprintf(stderr, "\r\033[K%s%s", what ? what : "", what ? "..." : "");
	fflush(stderr);
}

/* --- JSON ---------------------------------------------------------------- */

static void json_head(struct pn_json *json, const struct pn_report *report)
{
	pn_json_begin(json, stdout);
	pn_json_text(json, "bench", report->bench);
	pn_json_text(json, "device", report->device);
	if (report->profile)
		pn_json_flag(json, "emulated", report->emulated);
	else
		pn_json_null(json, "emulated");
	pn_json_text(json, "profile", report->profile);
	pn_json_text(json, "revision", PN_REVISION);
	pn_json_text(json, "machine", pn_report_machine());
	pn_json_text(json, "command", pn_report_command());
}

static void json_cell(struct pn_json *json, const struct pn_report_cell *cell)
{
	switch (cell->type) {
	case PN_REPORT_TEXT:
		pn_json_text(json, cell->key, cell->value.text);
		break;
	case PN_REPORT_COUNT:
	case PN_REPORT_BYTES:
		pn_json_count(json, cell->key, cell->value.count);
		break;
	case PN_REPORT_NUMBER:
	case PN_REPORT_RATE:
		pn_json_number(json, cell->key, cell->value.number);
		break;
	case PN_REPORT_FLAG:
		pn_json_flag(json, cell->key, cell->value.flag);
		break;
	}
}

/* --- tables -------------------------------------------------------------- */

/* Four digits are enough for a noisy machine. */
const char *pn_report_number(double number, char buf[PN_REPORT_NUMBER_LEN])
{
	int digits = 3;

	if (!isfinite(number)) {
		snprintf(buf, PN_REPORT_NUMBER_LEN, "-");
		return buf;
	}
	for (double n = fabs(number); digits > 0 && n >= 10; n /= 10)
		digits--;
	snprintf(buf, PN_REPORT_NUMBER_LEN, "%.*f", digits, number);
	return buf;
}

static void rate_text(double rate, char buf[PN_REPORT_NUMBER_LEN])
{
	const bool giga = rate >= 1e9;

	pn_report_number(rate / (giga ? 1e9 : 1e6), buf);
	snprintf(buf + strlen(buf), PN_REPORT_NUMBER_LEN - strlen(buf), "%s",
		 !isfinite(rate) ? ""
		 : giga		 ? "G"
				 : "M");
}

static const char *cell_text(const struct pn_report_cell *cell,
			     char buf[PN_REPORT_NUMBER_LEN])
{
	switch (cell->type) {
	case PN_REPORT_TEXT:
		return cell->value.text ? cell->value.text : "-";
	case PN_REPORT_BYTES:
		return pn_report_bytes(cell->value.count, buf);
	case PN_REPORT_FLAG:
		return cell->value.flag ? "yes" : "no";
	case PN_REPORT_COUNT:
		snprintf(buf, PN_REPORT_NUMBER_LEN, "%" PRIu64,
			 cell->value.count);
		break;
	case PN_REPORT_NUMBER:
		return pn_report_number(cell->value.number, buf);
	case PN_REPORT_RATE:
		rate_text(cell->value.number, buf);
		break;
	}
	return buf;
}

static void table_line(const struct pn_report_cell *cells, size_t n, bool head)
{
	const char *space = "";
	char buf[PN_REPORT_NUMBER_LEN];

	for (size_t i = 0; i < n; i++) {
		if (!cells[i].head)
			continue;
		printf("%s%*s", space, cells[i].width,
		       head ? cells[i].head : cell_text(&cells[i], buf));
		space = " ";
	}
	putchar('\n');
}

void pn_report_series(struct pn_report *report)
{
	report->headed = false;
}

static void table_row(struct pn_report *report,
		      const struct pn_report_cell *cells, size_t n)
{
	if (!report->headed) {
		putchar('\n');
		table_line(cells, n, true);
	}
	report->headed = true;
	table_line(cells, n, false);
}

void pn_report_row(struct pn_report *report, const struct pn_report_cell *cells,
		   size_t n)
{
	struct pn_json json;

	pn_report_progress(NULL);
	if (report->json) {
		json_head(&json, report);
		for (size_t i = 0; i < n; i++)
			json_cell(&json, &cells[i]);
		pn_json_end(&json);
	} else {
		table_row(report, cells, n);
	}
	fflush(stdout);
}
