/* SPDX-License-Identifier: BSD-2-Clause */
/* pinion info: the available devices, capabilities and costs of the selected
 * one, the budget, how releases are detected, and the limits of the system. */
#include <dirent.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include <pinion/pinion.h>

#include "context.h"
#include "device/measure.h"
#include "device/profiles.h"
#include "monitor/monitor.h"
#include "tools/pinion/command.h"
#include "tools/pinion/report.h"
#include "tools/pinion/spec.h"
#include "tools/pinion/system_limits.h"

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
	{ PN_CAP_PINS, "pins", "registered pages are pinned by the kernel" },
	{ PN_CAP_REKEY, "rekey", "a key can be revoked, pages stay pinned" },
	{ PN_CAP_FD, "fd", "completions wake a pollable descriptor" },
	{ PN_CAP_VIRTUAL_TIME, "virtual_time", "time is simulated" },
	{ PN_CAP_RING, "ring", "sends write into a polled ring" },
	{ PN_CAP_ATTACH_AGAIN, "attach_again",
	  "peers that went down can be connected again" },
	{ PN_CAP_UNPINNED, "unpinned",
	  "bounce buffers work without being pinned" },
};

/* --- facts: a name and a text, under a heading ---------------------------- */

struct facts {
	struct pn_report *report;
	const char *what; /* JSON: kind of the fact */
};

static void print_fact(void *arg, const char *name, const char *text)
{
	struct facts *facts = arg;
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("what", NULL, 0, facts->what),
		PN_CELL_TEXT("name", NULL, 0, name),
		PN_CELL_TEXT("text", NULL, 0, text),
	};

	if (facts->report->json) {
		pn_report_row(facts->report, row, PN_ARRAY_LEN(row));
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

/* RDMA adapters of the kernel, for `verbs`. */
static void print_adapters(struct facts *facts)
{
	DIR *folder = opendir("/sys/class/infiniband");
	struct dirent *entry;
	char name[300];

	facts->what = "adapter";
	while (folder && (entry = readdir(folder))) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(name, sizeof(name), "verbs:%s", entry->d_name);
		print_fact(facts, name, "an RDMA adapter");
	}
	if (folder)
		closedir(folder);
	else
		print_fact(facts, "RDMA adapters", "none");
}

/* What each kind can open here, and what it cannot. */
static void print_choice(void *arg, const char *name, const char *text)
{
	print_fact(arg, name, text);
}

static void print_choices(struct facts *facts)
{
	facts->what = "choice";
	for (unsigned i = 0; pn_device_kind(i); i++)
		if (pn_device_kind(i)->list)
			pn_device_kind(i)->list(print_choice, facts);
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

static void print_limit(struct pn_report *report, const char *name,
			bool is_bytes, uint64_t value)
{
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("what", NULL, 0, "limit"),
		PN_CELL_TEXT("name", NULL, 0, name),
		PN_CELL_COUNT("limit", NULL, 0, value),
	};
	char text[PN_REPORT_BYTES_LEN];

	if (report->json)
		pn_report_row(report, row, PN_ARRAY_LEN(row));
	else if (value == SIZE_MAX)
		printf("  %-23s none known\n", name);
	else if (is_bytes)
		printf("  %-23s %s\n", name, pn_report_bytes(value, text));
	else
		printf("  %-23s %llu\n", name, (unsigned long long)value);
}

static void print_limits(struct pn_report *report,
			 const struct pn_device *device)
{
	heading(report, "Limits");
	for (size_t i = 0; i < PN_ARRAY_LEN(limits); i++)
		print_limit(report, limits[i].name, limits[i].bytes,
			    limit_at(device, i));
}

/* --- the budget ----------------------------------------------------------- */

static void print_budget_row(struct pn_report *report, const char *name,
			     uint64_t value, const char *from)
{
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("what", NULL, 0, "budget"),
		PN_CELL_TEXT("name", NULL, 0, name),
		PN_CELL_COUNT("limit", NULL, 0, value),
		PN_CELL_TEXT("from", NULL, 0, from),
	};
	char bytes[PN_REPORT_BYTES_LEN], text[256];

	if (report->json) {
		pn_report_row(report, row, PN_ARRAY_LEN(row));
		return;
	}
	if (value == SIZE_MAX)
		snprintf(text, sizeof(text), "no limit: %s", from);
	else if (strstr(name, "bytes"))
		snprintf(text, sizeof(text), "%s: %s",
			 pn_report_bytes(value, bytes), from);
	else
		snprintf(text, sizeof(text), "%llu: %s",
			 (unsigned long long)value, from);
	printf("  %-23s ", name);
	pn_print_wrapped(stdout, 26, 26, text);
}

/* Who set the option: "the environment". */
static const char *source_of(const struct pinion_context *context,
			     const char *name)
{
	const struct pn_option *table;
	size_t n, i;

	table = pn_config_table(&n);
	i = (size_t)(pn_option_find(table, n, name, strlen(name)) - table);
	return pn_config_source_name(context->config.source[i]);
}

static void print_budget(struct pn_report *report,
			 struct pinion_context *context)
{
	const struct pn_budget *budget = &context->budget;
	size_t regions = atomic_load(&budget->max_regions);
	char from[128];

	heading(report, "Budget of pinned memory");
	if (!budget->derived_from)
		snprintf(from, sizeof(from), "max_bytes from the %s",
			 source_of(context, "max_bytes"));
	else
		snprintf(from, sizeof(from), "%s%s%.0u%s", budget->derived_from,
			 budget->nprocesses > 1 ? ", divided among " : "",
			 budget->nprocesses > 1 ? budget->nprocesses : 0,
			 budget->nprocesses > 1 ? " processes" : "");
	print_budget_row(report, "max_bytes", atomic_load(&budget->max_bytes),
			 from);
	if (regions == context->config.max_regions)
		snprintf(from, sizeof(from), "max_regions from the %s",
			 source_of(context, "max_regions"));
	else
		snprintf(from, sizeof(from), "as many as the device allows");
	print_budget_row(report, "max_regions", regions, from);
}

/* --- the monitor ---------------------------------------------------------- */

/* Where registrations are kept between uses. */
static const char *kept_in(enum pn_monitor_mode mode)
{
	switch (mode) {
	case PN_MONITOR_BYPASS:
		return "nothing between uses but heaps, since no release would "
		       "be "
		       "detected; link with libpinion or preload it "
		       "(LD_PRELOAD), or permit userfaultfd";
	case PN_MONITOR_KEEP:
	case PN_MONITOR_NONE:
		return "everything; the program must announce its releases "
		       "(pinion_invalidate())";
	default:
		return "all memory whose release is detected";
	}
}

static void print_untried(struct facts *facts, enum pn_monitor_mode mode)
{
	const char *what, *seen;

	heading(facts->report, "Not tried, and why");
	facts->what = "untried";
	for (unsigned i = 0; (what = pn_monitor_untested(i, mode, &seen)); i++)
		print_fact(facts, what, seen);
}

static void print_monitor(struct facts *facts)
{
	struct pn_monitor_report report;
	char text[PN_MONITOR_REASON_BYTES + 64];

	pn_monitor_report(&report);
	heading(facts->report, "How the release of memory is detected");
	facts->what = "monitor";
	snprintf(text, sizeof(text), "%s (asked for: %s)",
		 pn_monitor_mode_name(report.mode),
		 pn_monitor_mode_name(report.wanted));
	print_fact(facts, "mode", text);
	print_fact(facts, "kept registered", kept_in(report.mode));
	for (int m = 0; m < PN_MONITOR_NMODES; m++) {
		if (!*report.refused[m])
			continue;
		snprintf(text, sizeof(text), "refused: %s", report.refused[m]);
		print_fact(facts, pn_monitor_mode_name(m), text);
	}
	print_fact(facts, "race of unmapping",
		   report.race_unmap ? "told in time" : "not told in time");
	print_fact(facts, "race of madvise",
		   report.race_madvise ? "told in time" : "not told in time");
	if (report.chained) {
		snprintf(text, sizeof(text), "%u entries of libc, passed on to",
			 report.chained);
		print_fact(facts, "patched by others", text);
	}
	facts->what = "release";
	for (int k = 0; k < PN_RELEASE_NKINDS; k++)
		print_fact(facts, pn_release_kind_name(k),
			   pn_detection_name(report.detection[k]));
	print_untried(facts, report.mode);
}

/* --- costs ---------------------------------------------------------------- */

struct cost {
	const char *name;
	double fixed_ns, page_ns, byte_ns;
	const struct pn_regression *fit; /* NULL: no regression */
};

static void print_cost(struct pn_report *report, const struct cost *c)
{
	const double mib = 1 << 20;
	const double mean = c->fit ? 100 * c->fit->mean_residual : NAN;
	const double max = c->fit ? 100 * c->fit->max_residual : NAN;
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("what", NULL, 0, "cost"),
		PN_CELL_TEXT("name", "cost of", -12, c->name),
		PN_CELL_NUMBER("fixed_us", "fixed us", 10, c->fixed_ns / 1e3),
		PN_CELL_NUMBER("per_page_us", "us/page", 10, c->page_ns / 1e3),
		PN_CELL_NUMBER("per_mib_us", "us/MiB", 10,
			       c->byte_ns * mib / 1e3),
		PN_CELL_NUMBER("mean_residual_percent", "residual %", 10, mean),
		PN_CELL_NUMBER("max_residual_percent", "worst %", 10, max),
	};

	pn_report_row(report, row, PN_ARRAY_LEN(row));
}

static void print_costs(struct pn_report *report,
			const struct pn_device *device,
			const struct pn_measure_regressions *fits)
{
	const struct pn_costs *c = &device->costs;
	const bool m = fits->max_pages > 0; /* measured here */
	const struct cost costs[] = {
		{ "register", c->register_ns, c->register_page_ns, NAN,
		  m ? &fits->reg : NULL },
		{ "deregister", c->deregister_ns, c->deregister_page_ns, NAN,
		  m ? &fits->dereg : NULL },
		{ "put", c->put_ns, NAN, c->put_byte_ns,
		  m ? &fits->put : NULL },
		{ "get", c->get_ns, NAN, c->get_byte_ns,
		  m ? &fits->get : NULL },
		{ "send", c->send_ns, NAN, NAN, NULL },
		{ "copy", NAN, NAN, c->copy_byte_ns, NULL },
		{ "handing over", c->handoff_ns, NAN, NAN, NULL },
	};

	heading(report, m ? "Costs, measured here" : "Costs of the profile");
	for (size_t i = 0; i < PN_ARRAY_LEN(costs); i++)
		print_cost(report, &costs[i]);
}

/* --- cost profiles -------------------------------------------------------- */

static void print_profile_json(struct pn_report *report,
			       const struct pn_profile *profile)
{
	for (int f = 0; f < PN_PROFILE_NFIELDS; f++) {
		const struct pn_report_cell row[] = {
			PN_CELL_TEXT("what", NULL, 0, "profile"),
			PN_CELL_TEXT("name", NULL, 0, profile->name),
			PN_CELL_TEXT("source", NULL, 0, profile->source),
			PN_CELL_TEXT("field", NULL, 0,
				     pn_profile_field_name(f)),
			PN_CELL_NUMBER("value", NULL, 0, profile->value[f]),
			PN_CELL_FLAG("assumed", NULL, 0,
				     pn_profile_assumed(profile, f)),
		};

		pn_report_row(report, row, PN_ARRAY_LEN(row));
	}
}

/* Wide enough for a name, a figure and the mark of an assumed figure. */
static int profile_width(const struct pn_profile *profile)
{
	int width = (int)strlen(profile->name) + 1;

	return width < 8 ? 8 : width;
}

/* One row per figure, one column per profile; fits in 80 columns. */
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

static void print_device(struct facts *facts, struct pinion_context *context,
			 unsigned rail)
{
	struct pn_device *device = context->devices[rail];

	if (context->nrails == 1)
		pn_report_note(facts->report,
			       "\nThe device %s:", facts->report->device);
	else
		pn_report_note(facts->report, "\nRail %u of %u of %s:", rail,
			       context->nrails, facts->report->device);
	facts->what = "fact";
	device->ops->describe(device, print_fact, facts);
	print_capabilities(facts, device);
	print_limits(facts->report, device);
}

static int print_context(struct pn_report *report,
			 struct pinion_context *context)
{
	struct facts facts = { .report = report };
	struct pn_measure_regressions fits[PN_RAILS_MAX];
	int ret = 0;

	for (unsigned r = 0; !ret && r < context->nrails; r++)
		ret = pn_device_measure(context->devices[r], &fits[r]);
	if (ret)
		return pn_failed("measuring the device", ret);
	pn_report_head(report, "devices, capabilities and measured costs");
	print_kinds(&facts);
	print_adapters(&facts);
	print_choices(&facts);
	for (unsigned r = 0; r < context->nrails; r++)
		print_device(&facts, context, r);
	print_budget(report, context);
	print_monitor(&facts);
	heading(report, "Permitted here");
	facts.what = "permitted";
	pn_system_limits(print_fact, &facts);
	for (unsigned r = 0; r < context->nrails; r++)
		print_costs(report, context->devices[r], &fits[r]);
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
	ret = print_context(&report, context);
	pinion_close(context);
	return ret;
}

const struct pn_command pn_cmd_info = {
	.name = "info",
	.help = "print devices, limits, permissions and measured costs",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
