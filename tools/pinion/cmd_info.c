/* SPDX-License-Identifier: BSD-2-Clause */
/* pinion info: the devices there are, what the chosen one can do and costs
 * here, and what the system permits. */
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include <pinion/pinion.h>

#include "context.h"
#include "device/measure.h"
#include "device/profiles.h"
#include "tools/pinion/command.h"
#include "tools/pinion/open.h"
#include "tools/pinion/permitted.h"
#include "tools/pinion/report.h"

struct values {
	char device[PN_OPTION_TEXT_BYTES];
	bool profiles, json;
};

static const struct pn_option options[] = {
	PN_COMMAND_DEVICE(struct values, device),
	{ "profiles", PN_OPTION_BOOL, "no",
	  "print the table of cost profiles instead",
	  offsetof(struct values, profiles), 0, 0, NULL },
	PN_COMMAND_JSON(struct values, json),
};

static const struct {
	unsigned cap;
	const char *name, *words;
} capabilities[] = {
	{ PN_CAP_GATHER, "gather", "several segments per operation" },
	{ PN_CAP_WRITE_IMM, "write_imm", "a put can notify its target" },
	{ PN_CAP_ATOMICS, "atomics", "fetch-add, swap, compare-and-swap" },
	{ PN_CAP_FAST_REGISTER, "fast_register",
	  "registrations fill slots allocated beforehand" },
	{ PN_CAP_READ_ONLY, "read_only", "registers read-only memory" },
	{ PN_CAP_RELAXED, "relaxed", "relaxed ordering has an effect" },
	{ PN_CAP_PINS, "pins", "registered pages are really pinned" },
	{ PN_CAP_REKEY, "rekey", "a key can be revoked, pages stay pinned" },
	{ PN_CAP_FD, "fd", "completions wake a pollable descriptor" },
	{ PN_CAP_VIRTUAL_TIME, "virtual_time", "time is simulated" },
};

/* --- facts: a name and a text, under a heading ---------------------------- */

struct facts {
	struct pn_report *report;
	const char *what; /* JSON: what kind of fact it is */
};

static void print_fact(void *arg, const char *name, const char *text)
{
	static const struct pn_report_column columns[] = {
		{ .key = "what" },
		{ .key = "name" },
		{ .key = "text" },
	};
	struct facts *facts = arg;
	const union pn_report_value row[] = { { .text = facts->what },
					      { .text = name },
					      { .text = text } };

	if (facts->report->json) {
		pn_report_row(facts->report, columns, 3, row);
		return;
	}
	printf("  %-23s ", name);
	pn_print_wrapped(stdout, 26, 26, text);
}

static void heading(struct pn_report *report, const char *text)
{
	pn_report_note(report, "\n%s:", text);
}

static void print_kinds(struct facts *facts)
{
	heading(facts->report, "Devices");
	for (unsigned i = 0; pn_device_kind(i); i++) {
		const struct pn_device_ops *kind = pn_device_kind(i);
		char name[64];

		facts->what = "kind";
		print_fact(facts, kind->kind, kind->help);
		facts->what = "parameter";
		for (size_t p = 0; p < kind->nparams; p++) {
			bool json = facts->report->json;

			snprintf(name, sizeof(name), "%s%s%s",
				 json ? kind->kind : "", json ? ":" : "  ",
				 kind->params[p].name);
			print_fact(facts, name, kind->params[p].help);
		}
	}
}

static void print_capabilities(struct facts *facts,
			       const struct pn_device *device)
{
	heading(facts->report, "It can");
	facts->what = "capability";
	for (size_t i = 0; i < PN_ARRAY_LEN(capabilities); i++)
		if (device->caps & capabilities[i].cap)
			print_fact(facts, capabilities[i].name,
				   capabilities[i].words);
	heading(facts->report, "It cannot");
	facts->what = "missing";
	for (size_t i = 0; i < PN_ARRAY_LEN(capabilities); i++)
		if (!(device->caps & capabilities[i].cap))
			print_fact(facts, capabilities[i].name,
				   capabilities[i].words);
}

/* --- limits --------------------------------------------------------------- */

#define LIMIT(member, is_bytes)                                               \
	{                                                                     \
#member, offsetof(struct pn_device_limits, member), is_bytes, \
			sizeof(((struct pn_device_limits *)0)->member)        \
	}

static const struct {
	const char *name;
	size_t offset;
	bool bytes;
	size_t width;
} limits[] = {
	LIMIT(max_mr_bytes, true),     LIMIT(max_mrs, false),
	LIMIT(max_pinned_bytes, true), LIMIT(max_send_bytes, true),
	LIMIT(max_op_bytes, true),     LIMIT(inline_bytes, true),
	LIMIT(max_sge, false),	       LIMIT(queue_depth, false),
};

static uint64_t limit_at(const struct pn_device *device, size_t i)
{
	const char *at = (const char *)&device->limits + limits[i].offset;

	return limits[i].width == sizeof(unsigned) ? *(const unsigned *)at
						   : *(const size_t *)at;
}

static void print_limits(struct pn_report *report,
			 const struct pn_device *device)
{
	static const struct pn_report_column columns[] = {
		{ "what", NULL, PN_REPORT_TEXT, 0 },
		{ "name", NULL, PN_REPORT_TEXT, 0 },
		{ "limit", NULL, PN_REPORT_COUNT, 0 },
	};
	char text[PN_REPORT_BYTES_LEN];

	heading(report, "Limits");
	for (size_t i = 0; i < PN_ARRAY_LEN(limits); i++) {
		uint64_t value = limit_at(device, i);
		union pn_report_value row[] = { { .text = "limit" },
						{ .text = limits[i].name },
						{ .count = value } };

		if (report->json)
			pn_report_row(report, columns, 3, row);
		else if (value == SIZE_MAX)
			printf("  %-23s none known\n", limits[i].name);
		else if (limits[i].bytes)
			printf("  %-23s %s\n", limits[i].name,
			       pn_report_bytes(value, text));
		else
			printf("  %-23s %llu\n", limits[i].name,
			       (unsigned long long)value);
	}
}

/* --- costs ---------------------------------------------------------------- */

static double percent(double ratio, bool measured)
{
	return measured ? 100 * ratio : NAN;
}

static void print_costs(struct pn_report *report,
			const struct pn_device *device,
			const struct pn_measure_fits *fits)
{
	static const struct pn_report_column columns[] = {
		{ "what", NULL, PN_REPORT_TEXT, 0 },
		{ "name", "cost of", PN_REPORT_TEXT, -12 },
		{ "fixed_us", "fixed us", PN_REPORT_NUMBER, 10 },
		{ "per_page_us", "us/page", PN_REPORT_NUMBER, 10 },
		{ "per_mib_us", "us/MiB", PN_REPORT_NUMBER, 10 },
		{ "mean_residual_percent", "residual %", PN_REPORT_NUMBER, 10 },
		{ "max_residual_percent", "worst %", PN_REPORT_NUMBER, 10 },
	};
	const struct pn_costs *c = &device->costs;
	const double mib = 1 << 20;
	const bool measured = fits->max_pages > 0;
	const struct {
		const char *name;
		double fixed, page, byte;
		const struct pn_fit *fit;
	} rows[] = {
		{ "register", c->register_ns, c->register_page_ns, NAN,
		  &fits->reg },
		{ "deregister", c->deregister_ns, c->deregister_page_ns, NAN,
		  &fits->dereg },
		{ "put", c->put_ns, NAN, c->put_byte_ns, &fits->put },
		{ "get", c->get_ns, NAN, c->get_byte_ns, &fits->get },
		{ "send", c->send_ns, NAN, NAN, NULL },
		{ "copy", NAN, NAN, c->copy_byte_ns, NULL },
	};

	heading(report, measured ? "Costs, measured here"
				 : "Costs, as the profile declares");
	for (size_t i = 0; i < PN_ARRAY_LEN(rows); i++) {
		const struct pn_fit *fit = rows[i].fit;
		union pn_report_value row[] = {
			{ .text = "cost" },
			{ .text = rows[i].name },
			{ .number = rows[i].fixed / 1e3 },
			{ .number = rows[i].page / 1e3 },
			{ .number = rows[i].byte * mib / 1e3 },
			{ .number = percent(fit ? fit->mean_residual : NAN,
					    measured) },
			{ .number = percent(fit ? fit->max_residual : NAN,
					    measured) },
		};

		pn_report_row(report, columns, PN_ARRAY_LEN(columns), row);
	}
}

/* --- cost profiles -------------------------------------------------------- */

static void print_profile_json(struct pn_report *report,
			       const struct pn_profile *profile)
{
	static const struct pn_report_column columns[] = {
		{ "what", NULL, PN_REPORT_TEXT, 0 },
		{ "name", NULL, PN_REPORT_TEXT, 0 },
		{ "source", NULL, PN_REPORT_TEXT, 0 },
		{ "field", NULL, PN_REPORT_TEXT, 0 },
		{ "value", NULL, PN_REPORT_NUMBER, 0 },
		{ "assumed", NULL, PN_REPORT_FLAG, 0 },
	};

	for (int f = 0; f < PN_PROFILE_NFIELDS; f++) {
		union pn_report_value row[] = {
			{ .text = "profile" },
			{ .text = profile->name },
			{ .text = profile->source },
			{ .text = pn_profile_field_name(f) },
			{ .number = profile->value[f] },
			{ .flag = pn_profile_assumed(profile, f) },
		};

		pn_report_row(report, columns, PN_ARRAY_LEN(columns), row);
	}
}

/* Wide enough for a name, a figure and its mark. */
static int profile_width(const struct pn_profile *profile)
{
	int width = (int)strlen(profile->name) + 1;

	return width < 9 ? 9 : width;
}

/* A row per figure, a column per profile: they fit in 80 columns. */
static void print_profile_table(void)
{
	static const char *const labels[PN_PROFILE_NFIELDS] = {
		"register us", "  us/page",  "deregister us",  "  us/page",
		"link GB/s",   "latency us", "message CPU us", "completion us",
		"crossing us", "look-up us", "copy GB/s",
	};
	const struct pn_profile *p;

	printf("Cost profiles (* marks assumed figures; pages are 4 KiB)\n\n"
	       "%-14s",
	       "");
	for (unsigned i = 1; (p = pn_profile_at(i)); i++)
		printf("%*s", profile_width(p), p->name);
	for (int f = 0; f < PN_PROFILE_NFIELDS; f++) {
		printf("\n%-14s", labels[f]);
		for (unsigned i = 1; (p = pn_profile_at(i)); i++)
			printf("%*.4g%c", profile_width(p) - 1, p->value[f],
			       pn_profile_assumed(p, f) ? '*' : ' ');
	}
	printf("\n\n");
	for (unsigned i = 0; (p = pn_profile_at(i)); i++) {
		printf("%-12s", p->name);
		pn_print_wrapped(stdout, 12, 12, p->source);
	}
}

static int print_profiles(struct pn_report *report)
{
	if (!report->json)
		print_profile_table();
	for (unsigned i = 0; report->json && pn_profile_at(i); i++)
		print_profile_json(report, pn_profile_at(i));
	return PN_EXIT_OK;
}

/* --- all of it ------------------------------------------------------------ */

static int print_device(struct pn_report *report, struct pn_device *device)
{
	struct facts facts = { .report = report };
	struct pn_measure_fits fits;
	int ret = pn_device_measure(device, &fits);

	if (ret)
		return pn_failed("measuring the device", ret);
	pn_report_head(report, "what there is, and what it costs here");
	print_kinds(&facts);
	pn_report_note(report, "\nThe device %s:", report->device);
	facts.what = "fact";
	device->ops->describe(device, print_fact, &facts);
	print_capabilities(&facts, device);
	print_limits(report, device);
	heading(report, "Permitted here");
	facts.what = "permitted";
	pn_permitted(print_fact, &facts);
	print_costs(report, device, &fits);
	return PN_EXIT_OK;
}

static int run(const void *v, char *const *operands)
{
	const struct values *values = v;
	struct pn_report report = { .json = values->json, .bench = "info" };
	struct pinion_context *context;
	struct pn_spec spec;
	int ret;

	(void)operands;
	ret = pn_spec_find(&spec, values->device);
	if (ret)
		return PN_EXIT_FAILED;
	report.device = spec.text;
	if (values->profiles)
		return print_profiles(&report);
	ret = pn_spec_open(&spec, &context);
	if (ret)
		return pn_spec_exit(spec.text, ret);
	pn_report_device(&report, context->device);
	ret = print_device(&report, context->device);
	pinion_close(context);
	return ret;
}

const struct pn_command pn_cmd_info = {
	.name = "info",
	.help = "show devices, limits, what is permitted here, measured costs",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
