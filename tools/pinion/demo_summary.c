/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/demo_summary.h"

#include <sys/resource.h>
#include <unistd.h>

#include "base/compiler.h"
#include "bench/core_speed.h"
#include "tools/pinion/command.h"
#include "tools/pinion/report.h"

/* If others use more than this share of the processor time, or a core is so
 * many times slower than before, figures are not comparable. */
#define BUSY_SHARE 0.2
#define BUSY_PACE  1.5

/* --- how busy the machine is ---------------------------------------------- */

static double seconds(const struct timeval *time)
{
	return (double)time->tv_sec + (double)time->tv_usec / 1e6;
}

/* Ticks of this process and of its ended children. */
static double own_ticks(void)
{
	double sum = 0;

	for (int i = 0; i < 2; i++) {
		struct rusage use;

		getrusage(i ? RUSAGE_CHILDREN : RUSAGE_SELF, &use);
		sum += seconds(&use.ru_utime) + seconds(&use.ru_stime);
	}
	return sum * (double)sysconf(_SC_CLK_TCK);
}

/* user, nice, system, idle, iowait, irq, softirq, steal: proc(5). */
static void read_ticks(struct pn_demo_ticks *ticks)
{
	double field[8] = { 0 }, all = 0;
	FILE *file = fopen("/proc/stat", "re");

	*ticks = (struct pn_demo_ticks){ 0 };
	if (!file)
		return;
	if (fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &field[0],
		   &field[1], &field[2], &field[3], &field[4], &field[5],
		   &field[6], &field[7]) >= 4)
		for (unsigned i = 0; i < PN_ARRAY_LEN(field); i++)
			all += field[i];
	fclose(file);
	ticks->all = all;
	ticks->others = all - field[3] - field[4] - own_ticks();
}

void pn_demo_begin(struct pn_demo_summary *seen)
{
	read_ticks(&seen->ticks);
}

void pn_demo_end(struct pn_demo_summary *seen)
{
	struct pn_demo_ticks now;

	read_ticks(&now);
	seen->ticks.all = now.all - seen->ticks.all;
	seen->ticks.others = now.others - seen->ticks.others;
	/* Ticks are coarse: the difference may be negative. */
	if (seen->ticks.others < 0)
		seen->ticks.others = 0;
}

void pn_demo_sample_speed(struct pn_demo_summary *seen)
{
	double ns = pn_core_loop_ns();

	if (!seen->best_pace || ns < seen->best_pace)
		seen->best_pace = ns;
	if (ns > seen->worst_pace)
		seen->worst_pace = ns;
}

/* --- figures -------------------------------------------------------------- */

void pn_demo_add_registration(struct pn_demo_summary *seen, size_t bytes,
			      double us)
{
	if (bytes > PN_DEMO_REGISTERS || bytes < seen->register_bytes)
		return;
	seen->register_bytes = bytes;
	seen->register_us = us;
}

static struct pn_demo_size *size_of(struct pn_demo_summary *seen, size_t bytes)
{
	for (size_t i = 0; i < seen->nsizes; i++)
		if (seen->sizes[i].bytes == bytes)
			return &seen->sizes[i];
	if (seen->nsizes == PN_DEMO_SIZES)
		return NULL;
	seen->sizes[seen->nsizes] = (struct pn_demo_size){ .bytes = bytes };
	return &seen->sizes[seen->nsizes++];
}

void pn_demo_add_message(struct pn_demo_summary *seen, int protocol,
			 size_t bytes, double us, int chosen)
{
	struct pn_demo_size *size = size_of(seen, bytes);

	if (!size)
		return;
	size->us[protocol] = us;
	if (protocol == PN_PROTOCOL_AUTO)
		size->chosen = chosen;
}

/* --- words ---------------------------------------------------------------- */

#define TEXT 400

static void say(FILE *file, const char *text)
{
	fprintf(file, "- ");
	pn_print_wrapped(file, 2, 2, text);
}

static void tell_registering(const struct pn_demo_summary *seen, FILE *file)
{
	char text[TEXT], bytes[PN_REPORT_BYTES_LEN], us[PN_REPORT_NUMBER_LEN];
	int n;

	if (!seen->register_bytes)
		return;
	n = snprintf(text, sizeof(text), "Registering %s costs %s us %s.",
		     pn_report_bytes(seen->register_bytes, bytes),
		     pn_report_number(seen->register_us, us),
		     seen->virtual_time ? "in virtual time" : "here");
	pn_report_number(seen->pin_us, us);
	if (seen->pin_us && seen->kept)
		snprintf(text + n, sizeof(text) - (size_t)n,
			 " Pinning and unpinning it again from the cache costs "
			 "%s us: %.0f times less.",
			 us, seen->register_us / seen->pin_us);
	else if (seen->pin_us)
		snprintf(text + n, sizeof(text) - (size_t)n,
			 " Nothing stays registered between uses here: pinning "
			 "it again costs %s us.",
			 us);
	say(file, text);
}

/* The fastest protocol that a program can select by name. */
static int quickest(const struct pn_demo_size *size)
{
	int best = -1;

	for (int id = 0; id < PN_PROTOCOL_COUNT; id++)
		if (size->us[id] && (best < 0 || size->us[id] < size->us[best]))
			best = id;
	return best;
}

/* Compares `auto` with copying, with registering for each message, and with the
 * fastest protocol. */
static void tell_size(const struct pn_demo_size *size, FILE *file)
{
	const double mine = size->us[PN_PROTOCOL_AUTO];
	char text[TEXT], bytes[PN_REPORT_BYTES_LEN], us[PN_REPORT_NUMBER_LEN];
	int best = quickest(size);
	int n;

	if (!mine || best < 0)
		return;
	n = snprintf(text, sizeof(text),
		     "Messages of %s: auto chose %s and took %s us;",
		     pn_report_bytes(size->bytes, bytes),
		     pn_protocol_name((unsigned)size->chosen),
		     pn_report_number(mine, us));
	for (int id = PN_PROTOCOL_COPY; id <= PN_PROTOCOL_DEMAND; id++)
		if (size->us[id])
			n += snprintf(text + n, sizeof(text) - (size_t)n,
				      " %s %.2f times that,",
				      pn_protocol_name((unsigned)id),
				      size->us[id] / mine);
	snprintf(text + n, sizeof(text) - (size_t)n,
		 " the fastest (%s) %.2f times.",
		 pn_protocol_name((unsigned)best), size->us[best] / mine);
	say(file, text);
}

static void tell_busy(const struct pn_demo_summary *seen, FILE *file)
{
	const double slow =
		seen->best_pace ? seen->worst_pace / seen->best_pace : 1;
	const double share =
		seen->ticks.all > 0 ? seen->ticks.others / seen->ticks.all : 0;
	char text[TEXT];

	if (seen->virtual_time)
		snprintf(text, sizeof(text),
			 "Virtual time does not depend on the load of the "
			 "machine.");
	else if (share > BUSY_SHARE)
		snprintf(text, sizeof(text),
			 "The machine was TOO BUSY TO TELL: other programs "
			 "used %.0f %% of the processor time. Repeat the demo "
			 "when the machine is idle.",
			 100 * share);
	else if (slow > BUSY_PACE)
		snprintf(text, sizeof(text),
			 "The machine was TOO BUSY TO TELL: a core was %.2g "
			 "times slower for a while, probably because it is "
			 "shared. Repeat the demo.",
			 slow);
	else
		snprintf(text, sizeof(text),
			 "Other programs used %.0f %% of the processor time: "
			 "the machine was idle enough.",
			 100 * share);
	say(file, text);
}

static void tell_commands(const char *command, FILE *file)
{
	static const struct {
		const char *args, *why;
	} next[] = {
		{ "info", "limits and costs of this machine" },
		{ "explain --bytes 1M --reuse 8",
		  "why auto selects a protocol" },
		{ "bench message --bytes 1M", "compare all protocols" },
	};

	fprintf(file, "\nTry next:\n");
	for (unsigned i = 0; i < PN_ARRAY_LEN(next); i++)
		fprintf(file, "  %s %-29s# %s\n", command, next[i].args,
			next[i].why);
}

void pn_demo_print_summary(const struct pn_demo_summary *seen,
			   const char *command, FILE *file)
{
	fprintf(file, "\nWhat was seen:\n");
	tell_registering(seen, file);
	for (size_t i = 0; i < seen->nsizes; i++)
		tell_size(&seen->sizes[i], file);
	tell_busy(seen, file);
	tell_commands(command, file);
}
