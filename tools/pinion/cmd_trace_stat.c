/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion trace stat: the requests of a program, and whether pinion would help
 * it.
 *
 * It answers three questions. Does the program reuse buffers, and after how
 * many other bytes: which cache size would find them? What would registering
 * cost without a cache, compared with the run time of the program? Which
 * requests are so short that copying them is cheaper than registering?
 */
#include "tools/pinion/cmd_trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/range.h"
#include "device/profiles.h"
#include "revision.h"
#include "tools/pinion/json.h"
#include "tools/pinion/report.h"
#include "tools/trace/small_buffers.h"
#include "tools/trace/stat.h"

struct values {
	char profile[PN_OPTION_TEXT_BYTES];
	uint64_t sites;
	uint64_t small;
	bool json;
};

/* The defaults of the options reuse_min and reuse_share. */
#define SMALLEST 128
#define SHARE	 0.25

static const struct pn_option options[] = {
	{ "profile", PN_OPTION_TEXT, "cx5",
	  "cost profile for the estimates (pinion info --profiles)",
	  offsetof(struct values, profile), 0, 0, NULL },
	{ "sites", PN_OPTION_NUMBER, "10", "number of call sites to list",
	  offsetof(struct values, sites), 0, 0, NULL },
	{ "small", PN_OPTION_BYTES, "8K",
	  "largest message that is copied, for the statistics of small buffers",
	  offsetof(struct values, small), 1, UINT32_MAX, NULL },
	PN_COMMAND_JSON(struct values, json),
};

/* A trace and the statistics about it. */
struct account {
	const struct values *values;
	const char *path;
	struct pn_trace *trace;
	const struct pn_trace_info *info;
	const struct pn_profile *profile;
	struct pn_stat stat;
	struct pn_small_buffers small;
};

/* --- estimates --------------------------------------------------------------
 */

/* Cost of registering and deregistering each request. */
static double registering_ns(const struct pn_profile *profile, uint64_t n,
			     uint64_t pages)
{
	const double *v = profile->value;

	return 1e3 * ((double)n * (v[PN_PROFILE_REGISTER_US] +
				   v[PN_PROFILE_DEREGISTER_US]) +
		      (double)pages * (v[PN_PROFILE_REGISTER_PAGE_US] +
				       v[PN_PROFILE_DEREGISTER_PAGE_US]));
}

/* The same with a cache of so many bytes; SIZE_MAX: without limit. */
static double cached_ns(const struct account *a, uint64_t budget)
{
	struct pn_stat_class hits = pn_stat_hits(&a->stat, budget);

	return registering_ns(a->profile, a->stat.requests - hits.requests,
			      a->stat.pages - hits.pages);
}

static double ratio(double a, double b)
{
	return b > 0 ? a / b : 0;
}

static double hit_ratio(const struct account *a, uint64_t budget)
{
	return ratio((double)pn_stat_hits(&a->stat, budget).requests,
		     (double)a->stat.requests);
}

/* The smallest power of two that finds nearly all reusable requests. */
static uint64_t good_budget(const struct account *a)
{
	double most = hit_ratio(a, UINT64_MAX);
	uint64_t budget = PN_PAGE_BYTES;

	while (budget < (uint64_t)1 << 62 && hit_ratio(a, budget) < 0.95 * most)
		budget *= 2;
	return budget;
}

/* The largest power of two for which copying at both ends is cheaper than one
 * registration at both ends. */
static uint64_t copy_limit(const struct account *a)
{
	uint64_t bytes = 64;

	while (bytes < (uint64_t)1 << 40 &&
	       pn_profile_copy_ns(a->profile, 2 * bytes) <
		       registering_ns(a->profile, 1, bytes / PN_PAGE_BYTES + 1))
		bytes *= 2;
	return bytes / 2;
}

static uint64_t requests_up_to(const struct account *a, uint64_t bytes)
{
	uint64_t n = 0;

	for (unsigned k = 0; k <= pn_stat_class_of(bytes); k++)
		n += a->stat.sizes[k].requests;
	return n;
}

static double duration_ns(const struct account *a)
{
	return (double)(a->stat.last_ns - a->stat.first_ns);
}

/* Number of uses after which a small buffer is registered: a share of R / (C -
 * V). */
static double uses_needed(void *arg, uint64_t len)
{
	const struct pn_profile *profile = arg;
	double gain =
		(double)pn_profile_copy_ns(profile, len) -
		(double)pn_profile_field_ns(profile, PN_PROFILE_LOOKUP_US);
	double price =
		(double)pn_profile_register_ns(profile, (len + PN_PAGE_BYTES -
							 1) / PN_PAGE_BYTES);

	return gain > 0 ? SHARE * price / gain : INFINITY;
}

static struct pn_small_buffers_sums small_sums(const struct account *a)
{
	struct pn_small_buffers_sums sums;

	pn_small_buffers_sum(&a->small, SMALLEST, uses_needed,
			     (void *)a->profile, &sums);
	return sums;
}

/* --- for people -------------------------------------------------------------
 */

/* "12.3 ms". */
static const char *time_text(double ns, char buf[32])
{
	static const struct {
		double ns;
		const char *unit;
	} units[] = { { 1e9, "s" }, { 1e6, "ms" }, { 1e3, "us" }, { 1, "ns" } };
	unsigned i = 0;

	while (i < 3 && ns < units[i].ns)
		i++;
	snprintf(buf, 32, "%.3g %s", ns / units[i].ns, units[i].unit);
	if (ns >= 1e12)
		snprintf(buf, 32, "%.0f s", ns / 1e9);
	return buf;
}

/* Rounded for people: 1.2G rather than 1288490188. */
static const char *config(double bytes, char buf[32])
{
	static const char units[] = " KMGTPE";
	unsigned i = 0;

	for (; bytes >= 1024 && i < 6; i++)
		bytes /= 1024;
	snprintf(buf, 32, "%.3g%.*s", bytes, i > 0, &units[i]);
	if (bytes >= 1000)
		snprintf(buf, 32, "%.0f%.*s", bytes, i > 0, &units[i]);
	return buf;
}

static double percent(uint64_t part, uint64_t whole)
{
	return 100 * ratio((double)part, (double)whole);
}

/* Messages and one-sided operations. Those that are copied request no
 * registered memory. */
static void print_transfers(const struct pn_stat *s)
{
	static const struct {
		enum pn_trace_event_kind kind;
		const char *name;
	} kinds[] = { { PN_EVENT_SEND, "sends" },
		      { PN_EVENT_RECV, "receives" },
		      { PN_EVENT_PUT, "puts" },
		      { PN_EVENT_GET, "gets" } };

	for (size_t i = 0; i < PN_ARRAY_LEN(kinds); i++)
		if (s->events[kinds[i].kind])
			printf("%12" PRIu64 "  %s\n", s->events[kinds[i].kind],
			       kinds[i].name);
}

static void print_head(const struct account *a)
{
	const struct pn_stat *s = &a->stat;
	char t[32], b[2][32];

	printf("%s: %s%s", a->path, pn_trace_format_text(a->info),
	       a->info->gzip ? ", gzip" : "");
	if (a->info->program[0])
		printf(" of %s, process %u", a->info->program, a->info->pid);
	printf("\n\n");
	print_transfers(s);
	printf("%12" PRIu64 "  requests for registered memory in %s\n",
	       s->requests, time_text(duration_ns(a), t));
	printf("%12s  requested in all, %s on average\n",
	       config((double)s->bytes, b[0]),
	       config(ratio((double)s->bytes, (double)s->requests), b[1]));
	printf("%12" PRIu64 "  different buffers (ranges of pages) in %s of "
	       "memory\n",
	       s->buffers, config((double)s->footprint_bytes, b[0]));
	printf("%12.1f  uses of each on average; %.1f %% of requests are to a "
	       "new one\n",
	       ratio((double)s->requests, (double)s->buffers),
	       percent(s->cold.requests, s->requests));
	if (s->untracked)
		printf("%12" PRIu64 "  requests beyond the first %u buffers, "
		       "counted as new\n",
		       s->untracked, PN_STAT_MAX_BUFFERS);
}

static void print_reasons(const uint64_t *counts, const uint8_t *reasons,
			  unsigned n)
{
	const char *before = "  (";

	for (unsigned i = 0; i < n; i++) {
		struct pn_trace_event e = { .kind = PN_EVENT_EVICT,
					    .reason = reasons[i] };

		if (!counts[reasons[i]])
			continue;
		printf("%s%s %" PRIu64, before, pn_trace_reason_name(&e),
		       counts[reasons[i]]);
		before = ", ";
	}
	puts(before[0] == ',' ? ")" : "");
}

/* Hits and misses of the recorded cache. */
static void print_recorded(const struct account *a)
{
	static const uint8_t hits[] = { PN_BECAUSE_CACHED, PN_BECAUSE_LOOKED,
					PN_BECAUSE_PARTS, PN_BECAUSE_WAITED };
	static const uint8_t misses[] = { PN_BECAUSE_NEW, PN_BECAUSE_PARTIAL,
					  PN_BECAUSE_ACCESS,
					  PN_BECAUSE_BYPASS };
	static const uint8_t ends[] = {
		PN_BECAUSE_BYTES,    PN_BECAUSE_REGIONS, PN_BECAUSE_DEVICE,
		PN_BECAUSE_RELEASED, PN_BECAUSE_JOINED,	 PN_BECAUSE_ACCESS,
		PN_BECAUSE_REVOKED,  PN_BECAUSE_FLUSHED
	};
	const struct pn_stat *s = &a->stat;
	uint64_t hit = s->decided[PN_DECIDED_HIT];
	uint64_t miss = s->decided[PN_DECIDED_MISS];

	if (!hit && !miss)
		return;
	printf("\nAs recorded: %.2f %% hits\n", percent(hit, hit + miss));
	printf("%12" PRIu64 "  hits", hit);
	print_reasons(s->why, hits, PN_ARRAY_LEN(hits));
	printf("%12" PRIu64 "  misses", miss);
	print_reasons(s->why, misses, PN_ARRAY_LEN(misses));
	printf("%12" PRIu64 "  refused, %" PRIu64 " completed asynchronously\n",
	       s->decided[PN_DECIDED_REFUSED], s->decided[PN_DECIDED_LATER]);
	printf("%12" PRIu64 "  regions registered, %" PRIu64 " deregistered\n",
	       s->events[PN_EVENT_REGISTER], s->events[PN_EVENT_DEREGISTER]);
	printf("%12" PRIu64 "  left the cache", s->events[PN_EVENT_EVICT]);
	print_reasons(s->ended, ends, PN_ARRAY_LEN(ends));
	printf("%12" PRIu64 "  release notices\n", s->events[PN_EVENT_RELEASE]);
}

static void print_lost(const struct account *a)
{
	if (a->info->lost)
		printf("%12" PRIu64 "  events lost: the file was full, or "
		       "releases came too fast\n",
		       a->info->lost);
	/* A process that ended with _exit() has at least closed its contexts.
	 */
	if (!a->info->complete &&
	    a->stat.events[PN_EVENT_OPEN] != a->stat.events[PN_EVENT_CLOSE])
		puts("              the program did not end normally, or still "
		     "runs");
}

static void print_sizes(const struct account *a)
{
	const struct pn_stat *s = &a->stat;

	printf("\n%12s %12s %7s %9s %12s\n", "size up to", "requests", "%",
	       "bytes", "buffers");
	for (unsigned k = 0; k < PN_STAT_CLASSES; k++) {
		const struct pn_stat_class *c = &s->sizes[k];
		char b[2][32];

		if (c->requests)
			printf("%12s %12" PRIu64 " %7.2f %9s %12" PRIu64 "\n",
			       k ? config((double)((uint64_t)1 << (k - 1)),
					  b[0])
				 : "0",
			       c->requests, percent(c->requests, s->requests),
			       config((double)c->bytes, b[1]), c->buffers);
	}
}

static void print_uses(const struct account *a)
{
	static const char *const names[] = { "once", "2 to 10", "11 to 100",
					     "more" };

	printf("\n%12s %12s %12s %7s\n", "buffer used", "buffers", "requests",
	       "%");
	for (unsigned i = 0; i < PN_STAT_NUSES; i++) {
		const struct pn_stat_use *u = &a->stat.uses[i];

		if (u->buffers)
			printf("%12s %12" PRIu64 " %12" PRIu64 " %7.2f\n",
			       names[i], u->buffers, u->requests,
			       percent(u->requests, a->stat.requests));
	}
}

/* Tables 1 and 3 of Rashti and Afsahi 2011. */
static void print_small(const struct account *a)
{
	const struct pn_small_buffers *s = &a->small;
	struct pn_small_buffers_sums sums = small_sums(a);
	char b[32];

	if (!s->requests)
		return;
	printf("\nSmall buffers, by address: %s of up to %s\n",
	       s->transfers ? "sends, puts and gets" : "requests",
	       pn_report_bytes(s->max_bytes, b));
	printf("%12" PRIu64 "  requests for %" PRIu64 " buffers\n", s->requests,
	       sums.buffers);
	printf("%12" PRIu64 "  uses of the most used buffer, of %s\n",
	       sums.most_uses, pn_report_bytes(sums.most_bytes, b));
	printf("%12.2f  %% of requests are for a buffer used before\n",
	       percent(s->reuses, s->requests));
	printf("%12.2f  %% of buffers of %d bytes or more are used often "
	       "enough to be\n              sent from without a copy (profile "
	       "%s)\n",
	       percent(sums.frequent, sums.counted), SMALLEST,
	       a->profile->name);
}

/* Budgets from the first with hits to the first that hits all reusable
 * requests. */
static void print_budgets(const struct account *a)
{
	double all = hit_ratio(a, UINT64_MAX);
	char b[32], t[32];

	printf("\n%12s %12s   %s\n", "cache of", "hits %", "time to register");
	printf("%12s %12s   %s\n", "none", "-", time_text(cached_ns(a, 0), t));
	for (uint64_t budget = PN_PAGE_BYTES; budget < (uint64_t)1 << 62;
	     budget *= 2) {
		double hits = hit_ratio(a, budget);

		if (hits <= 0)
			continue;
		printf("%12s %12.2f   %s\n", pn_report_bytes(budget, b),
		       100 * hits, time_text(cached_ns(a, budget), t));
		if (hits >= all)
			break;
	}
}

static void print_site(const struct account *a, const struct pn_stat_site *site)
{
	uint64_t frames[PN_TRACE_MAX_FRAMES];
	unsigned n = pn_trace_site_frames(a->trace, site->site, frames);
	char b[32];

	printf("%12" PRIu64 " %7.2f %9s  %-8s ", site->requests,
	       percent(site->requests, a->stat.requests),
	       config((double)site->bytes, b),
	       pn_trace_op_name(a->trace, site->op));
	if (!n)
		printf("%" PRIx64, site->site);
	for (unsigned i = 0; i < n && i < 3; i++)
		printf("%s%" PRIx64, i ? ";" : "", frames[i]);
	puts(n > 3 ? ";..." : "");
}

static void print_sites(const struct account *a)
{
	const struct pn_stat *s = &a->stat;
	bool known = s->nsites > 1 || (s->nsites && s->sites[0].site);

	if (!known || !a->values->sites)
		return;
	printf("\n%12s %7s %9s  %-8s %s (%u in all)\n", "requests", "%",
	       "bytes", "op", "call site", s->nsites);
	for (unsigned i = 0; i < s->nsites && i < a->values->sites; i++)
		print_site(a, &s->sites[i]);
}

/* --- the verdict ------------------------------------------------------------
 */

/* Prints one point of the verdict, wrapped. */
static void print_point(const char *fmt, ...) PN_PRINTF(1, 2);

static void print_point(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	printf("- ");
	pn_print_wrapped(stdout, 2, 2, text);
}

static void print_reuse_point(const struct account *a)
{
	double most = hit_ratio(a, UINT64_MAX);
	uint64_t budget = good_budget(a);
	char b[32];

	if (most < 0.05)
		print_point("Buffers are hardly reused (%.1f %%), so a cache "
			    "does not "
			    "help. Overlap registration with the transfer "
			    "(protocol=pipeline), copy, or allocate the "
			    "buffers from "
			    "registered memory.",
			    100 * most);
	else
		print_point("%.1f %% of requests reuse a buffer; a cache of %s "
			    "would "
			    "find %.1f %% registered.",
			    100 * most, pn_report_bytes(budget, b),
			    100 * hit_ratio(a, budget));
}

static void print_time_point(const struct account *a)
{
	double none = cached_ns(a, 0), with = cached_ns(a, good_budget(a));
	double run = duration_ns(a);
	char t[3][32];

	print_point(
		"Registering for each request would take %s under profile %s, "
		"with "
		"that cache %s: %.2f %% and %.2f %% of the traced time of %s.",
		time_text(none, t[0]), a->profile->name, time_text(with, t[1]),
		100 * ratio(none, run), 100 * ratio(with, run),
		time_text(run, t[2]));
}

static void print_short_point(const struct account *a)
{
	uint64_t limit = copy_limit(a), n = requests_up_to(a, limit);
	char b[32];

	if (limit >= 64 && n)
		print_point("%.1f %% of requests have %s or less: for a single "
			    "use, "
			    "copying them is cheaper than registering (option "
			    "eager_limit).",
			    percent(n, a->stat.requests),
			    pn_report_bytes(limit, b));
}

static void print_verdict(const struct account *a)
{
	if (!a->stat.requests)
		return;
	puts("\nWould pinion help?");
	print_reuse_point(a);
	print_time_point(a);
	print_short_point(a);
	print_point(
		"These are estimates for buffers that do not overlap and are "
		"never "
		"freed; `pinion sim cache` replays a trace through the real "
		"cache.");
}

static void print_all(const struct account *a)
{
	print_head(a);
	print_lost(a);
	print_recorded(a);
	print_sizes(a);
	print_uses(a);
	print_small(a);
	print_budgets(a);
	print_sites(a);
	print_verdict(a);
}

/* --- for programs -----------------------------------------------------------
 */

static void json_begin(struct pn_json *json, const struct account *a,
		       const char *what)
{
	pn_json_begin(json, stdout);
	pn_json_text(json, "bench", "trace stat");
	pn_json_null(json, "device");
	pn_json_flag(json, "emulated", true);
	pn_json_text(json, "profile", a->profile->name);
	pn_json_text(json, "revision", PN_REVISION);
	pn_json_text(json, "machine", pn_report_machine());
	pn_json_text(json, "trace", a->path);
	pn_json_text(json, "what", what);
}

static void json_total(const struct account *a)
{
	const struct pn_stat *s = &a->stat;
	uint64_t hits = s->decided[PN_DECIDED_HIT];
	uint64_t misses = s->decided[PN_DECIDED_MISS];
	struct pn_json json;

	json_begin(&json, a, "total");
	pn_json_text(&json, "format", pn_trace_format_text(a->info));
	pn_json_flag(&json, "complete", a->info->complete);
	pn_json_count(&json, "lost", a->info->lost);
	pn_json_number(&json, "duration_us", duration_ns(a) / 1e3);
	pn_json_count(&json, "sends", s->events[PN_EVENT_SEND]);
	pn_json_count(&json, "receives", s->events[PN_EVENT_RECV]);
	pn_json_count(&json, "puts", s->events[PN_EVENT_PUT]);
	pn_json_count(&json, "gets", s->events[PN_EVENT_GET]);
	pn_json_count(&json, "requests", s->requests);
	pn_json_count(&json, "bytes", s->bytes);
	pn_json_count(&json, "buffers", s->buffers);
	pn_json_count(&json, "footprint_bytes", s->footprint_bytes);
	pn_json_count(&json, "first_uses", s->cold.requests);
	pn_json_count(&json, "untracked", s->untracked);
	pn_json_count(&json, "hits", hits);
	pn_json_count(&json, "misses", misses);
	if (hits + misses)
		pn_json_number(&json, "hit_ratio",
			       (double)hits / (double)(hits + misses));
	else
		pn_json_null(&json, "hit_ratio");
	pn_json_count(&json, "refused", s->decided[PN_DECIDED_REFUSED]);
	pn_json_count(&json, "registrations", s->events[PN_EVENT_REGISTER]);
	pn_json_count(&json, "deregistrations", s->events[PN_EVENT_DEREGISTER]);
	pn_json_count(&json, "releases", s->events[PN_EVENT_RELEASE]);
	pn_json_number(&json, "register_each_us", cached_ns(a, 0) / 1e3);
	pn_json_end(&json);
}

static void json_sizes(const struct account *a)
{
	for (unsigned k = 0; k < PN_STAT_CLASSES; k++) {
		const struct pn_stat_class *c = &a->stat.sizes[k];
		struct pn_json json;

		if (!c->requests)
			continue;
		json_begin(&json, a, "size");
		pn_json_count(&json, "max_bytes",
			      k ? (uint64_t)1 << (k - 1) : 0);
		pn_json_count(&json, "requests", c->requests);
		pn_json_count(&json, "bytes", c->bytes);
		pn_json_count(&json, "buffers", c->buffers);
		pn_json_end(&json);
	}
}

static void json_small(const struct account *a)
{
	struct pn_small_buffers_sums sums = small_sums(a);
	struct pn_json json;

	json_begin(&json, a, "small");
	pn_json_count(&json, "max_bytes", a->small.max_bytes);
	pn_json_count(&json, "requests", a->small.requests);
	pn_json_count(&json, "buffers", sums.buffers);
	pn_json_count(&json, "most_uses", sums.most_uses);
	pn_json_count(&json, "most_uses_bytes", sums.most_bytes);
	pn_json_number(&json, "reuse_percent",
		       percent(a->small.reuses, a->small.requests));
	pn_json_number(&json, "frequent_percent",
		       percent(sums.frequent, sums.counted));
	pn_json_end(&json);
}

static void json_budgets(const struct account *a)
{
	double all = hit_ratio(a, UINT64_MAX);
	double hits = 0;

	for (uint64_t budget = PN_PAGE_BYTES;
	     budget < (uint64_t)1 << 62 && hits < all; budget *= 2) {
		struct pn_json json;

		hits = hit_ratio(a, budget);
		json_begin(&json, a, "budget");
		pn_json_count(&json, "budget_bytes", budget);
		pn_json_number(&json, "hit_ratio", hits);
		pn_json_number(&json, "total_us", cached_ns(a, budget) / 1e3);
		pn_json_end(&json);
	}
}

static void json_sites(const struct account *a)
{
	for (unsigned i = 0; i < a->stat.nsites && i < a->values->sites; i++) {
		const struct pn_stat_site *site = &a->stat.sites[i];
		struct pn_json json;
		char id[24];

		snprintf(id, sizeof(id), "%" PRIx64, site->site);
		json_begin(&json, a, "site");
		pn_json_text(&json, "site", id);
		pn_json_text(&json, "op", pn_trace_op_name(a->trace, site->op));
		pn_json_count(&json, "requests", site->requests);
		pn_json_count(&json, "bytes", site->bytes);
		pn_json_end(&json);
	}
}

static void print_json(const struct account *a)
{
	json_total(a);
	json_sizes(a);
	json_small(a);
	json_budgets(a);
	json_sites(a);
}

/* --- the command ------------------------------------------------------------
 */

static int add_events(void *arg, const struct pn_trace_event *events, int n)
{
	struct account *a = arg;
	int ret = pn_stat_add(&a->stat, events, n);

	pn_small_buffers_add(&a->small, a->trace, events, n);
	return ret ? pn_failed("trace stat", ret) : PN_EXIT_OK;
}

/* Statistics of the readable part are printed even if the rest is damaged. */
static int print_text(struct account *a)
{
	int ret = pn_stat_init(&a->stat);

	if (ret)
		return pn_failed("trace stat", ret);
	a->small.max_bytes = a->values->small;
	ret = pn_trace_walk(a->trace, add_events, a);
	a->info = pn_trace_info(a->trace);
	pn_stat_finish(&a->stat);
	if (a->values->json)
		print_json(a);
	else
		print_all(a);
	pn_stat_fini(&a->stat);
	pn_small_buffers_fini(&a->small);
	return ret;
}

static int run(const void *v, char *const *operands)
{
	struct account a = { .values = v, .path = operands[0] };
	int ret;

	a.profile = pn_profile_find(a.values->profile);
	if (!a.profile)
		return pn_usage_error("trace stat: no cost profile '%s'; "
				      "`pinion info --profiles` lists them",
				      a.values->profile);
	ret = pn_trace_operand(operands, &a.trace);
	if (ret)
		return ret;
	ret = print_text(&a);
	pn_trace_close(a.trace);
	return ret;
}

const struct pn_command pn_cmd_trace_stat = {
	.name = "stat",
	.help = "summarise a trace: sizes, reuse, hits, and whether pinion "
		"helps",
	.about = "Hits and times for several cache sizes are estimates from "
		 "one pass for an LRU cache of buffers that do not overlap and "
		 "are never freed.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.operands = "FILE",
	.run = run,
};
