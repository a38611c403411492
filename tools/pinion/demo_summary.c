/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/demo_summary.h"

#include "base/compiler.h"
#include "bench/core_speed.h"
#include "tools/pinion/command.h"
#include "tools/pinion/report.h"

/* If a core is so many times slower than before, figures are not comparable. */
#define BUSY_PACE 1.5

/* --- how busy the machine is ---------------------------------------------- */

void pn_demo_begin(struct pn_demo_summary *summary)
{
	pn_busy_begin(&summary->busy);
}

void pn_demo_end(struct pn_demo_summary *summary)
{
	pn_busy_end(&summary->busy);
}

void pn_demo_sample_speed(struct pn_demo_summary *summary)
{
	double ns = pn_core_loop_ns();

	if (!summary->best_pace || ns < summary->best_pace)
		summary->best_pace = ns;
	if (ns > summary->worst_pace)
		summary->worst_pace = ns;
}

/* --- figures -------------------------------------------------------------- */

void pn_demo_add_registration(struct pn_demo_summary *summary, size_t bytes,
			      double us)
{
	if (bytes > PN_DEMO_REGISTERS || bytes < summary->register_bytes)
		return;
	summary->register_bytes = bytes;
	summary->register_us = us;
}

static struct pn_demo_size *size_of(struct pn_demo_summary *summary,
				    size_t bytes)
{
	for (size_t i = 0; i < summary->nsizes; i++)
		if (summary->sizes[i].bytes == bytes)
			return &summary->sizes[i];
	if (summary->nsizes == PN_DEMO_SIZES)
		return NULL;
	summary->sizes[summary->nsizes] =
		(struct pn_demo_size){ .bytes = bytes };
	return &summary->sizes[summary->nsizes++];
}

void pn_demo_add_message(struct pn_demo_summary *summary, int protocol,
			 size_t bytes, double us, int chosen)
{
	struct pn_demo_size *size = size_of(summary, bytes);

	if (!size)
		return;
	size->us[protocol] = us;
	if (protocol == PN_PROTOCOL_AUTO)
		size->chosen = chosen;
}

void pn_demo_add_learning(struct pn_demo_summary *summary,
			  const struct pn_demo_learning *learning)
{
	struct pn_demo_size *size = size_of(summary, learning->bytes);

	if (!size)
		return;
	size->learned = learning->messages;
	size->first_us = learning->first_us;
}

/* --- words ---------------------------------------------------------------- */

#define TEXT 400

static void append(FILE *file, const char *text)
{
	fprintf(file, "- ");
	pn_print_wrapped(file, 2, 2, text);
}

static void print_registering(const struct pn_demo_summary *summary, FILE *file)
{
	char text[TEXT], bytes[PN_REPORT_BYTES_LEN], us[PN_REPORT_NUMBER_LEN];
	int n;

	if (!summary->register_bytes)
		return;
	n = snprintf(text, sizeof(text), "Registering %s costs %s us %s.",
		     pn_report_bytes(summary->register_bytes, bytes),
		     pn_report_number(summary->register_us, us),
		     summary->virtual_time ? "in virtual time" : "here");
	pn_report_number(summary->pin_us, us);
	if (summary->pin_us && summary->kept)
		snprintf(text + n, sizeof(text) - (size_t)n,
			 " Pinning and unpinning it again from the cache costs "
			 "%s us: %.0f times less.",
			 us, summary->register_us / summary->pin_us);
	else if (summary->pin_us)
		snprintf(text + n, sizeof(text) - (size_t)n,
			 " Nothing stays registered between uses here: pinning "
			 "it again costs %s us.",
			 us);
	append(file, text);
}

/* The fastest protocol that a program can select by name. */
static int fastest(const struct pn_demo_size *size)
{
	int best = -1;

	for (int id = 0; id < PN_PROTOCOL_COUNT; id++)
		if (size->us[id] && (best < 0 || size->us[id] < size->us[best]))
			best = id;
	return best;
}

static int print_auto(const struct pn_demo_size *size, char *text, size_t room)
{
	char bytes[PN_REPORT_BYTES_LEN], us[PN_REPORT_NUMBER_LEN];
	char first[PN_REPORT_NUMBER_LEN];
	int n = snprintf(text, room,
			 "Messages of %s: auto chose %s and took "
			 "%s us",
			 pn_report_bytes(size->bytes, bytes),
			 pn_protocol_name((unsigned)size->chosen),
			 pn_report_number(size->us[PN_PROTOCOL_AUTO], us));

	if (size->learned)
		n += snprintf(text + n, room - (size_t)n,
			      " after learning from %llu (the first ones took "
			      "%s us)",
			      (unsigned long long)size->learned,
			      pn_report_number(size->first_us, first));
	return n;
}

/* Compares `auto` with copying, with registering for each message, and with the
 * fastest protocol. */
static void print_size(const struct pn_demo_size *size, FILE *file)
{
	const double mine = size->us[PN_PROTOCOL_AUTO];
	char text[TEXT];
	int best = fastest(size);
	int n;

	if (!mine || best < 0)
		return;
	n = print_auto(size, text, sizeof(text));
	n += snprintf(text + n, sizeof(text) - (size_t)n, ";");
	for (int id = PN_PROTOCOL_COPY; id <= PN_PROTOCOL_DEMAND; id++)
		if (size->us[id])
			n += snprintf(text + n, sizeof(text) - (size_t)n,
				      " %s %.2f times that,",
				      pn_protocol_name((unsigned)id),
				      size->us[id] / mine);
	snprintf(text + n, sizeof(text) - (size_t)n,
		 " the fastest (%s) %.2f times.",
		 pn_protocol_name((unsigned)best), size->us[best] / mine);
	append(file, text);
}

static void print_busy(const struct pn_demo_summary *summary, FILE *file)
{
	const double slow = summary->best_pace
				    ? summary->worst_pace / summary->best_pace
				    : 1;
	const double share = pn_busy_share(&summary->busy);
	char text[TEXT];

	if (summary->virtual_time)
		snprintf(text, sizeof(text),
			 "Virtual time does not depend on the load of the "
			 "machine.");
	else if (share > PN_BUSY_SHARE)
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
	append(file, text);
}

static void print_commands(const char *command, FILE *file)
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

void pn_demo_print_summary(const struct pn_demo_summary *summary,
			   const char *command, FILE *file)
{
	fprintf(file, "\nWhat was seen:\n");
	print_registering(summary, file);
	for (size_t i = 0; i < summary->nsizes; i++)
		print_size(&summary->sizes[i], file);
	print_busy(summary, file);
	print_commands(command, file);
}
