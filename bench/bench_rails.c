/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much faster do messages arrive over several rails than over one?
 *
 * In a simulated world of two nodes: one rail, two equal rails, and two of
 * which the second has a third of the first's bandwidth. Each row is compared
 * with the same message over one rail and with the sum of the bandwidths of its
 * rails. Reused buffers show the effect of the rails; with new buffers the CPU
 * that registers them is soon the bottleneck. In virtual time all trials are
 * equal: one is enough.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/pair.h"
#include "bench/session.h"

#define MAX_SIZES 16

struct values {
	char device[PN_OPTION_TEXT_BYTES];
	uint64_t min, max, reuse;
	bool json;
};

#define AT(name) offsetof(struct values, name)

static const struct pn_option options[] = {
	{ "device", PN_OPTION_TEXT, "sim:cost=cx5",
	  "a spec of sim, without rails", AT(device), 0, 0, NULL },
	{ "min", PN_OPTION_BYTES, "8M", "smallest message", AT(min), 4096,
	  UINT64_C(1) << 40, NULL },
	{ "max", PN_OPTION_BYTES, "64M",
	  "largest size; each is twice the one before", AT(max), 4096,
	  UINT64_C(1) << 40, NULL },
	{ "reuse", PN_OPTION_NUMBER, "32",
	  "number of uses of each buffer, besides 1", AT(reuse), 2, 1 << 16,
	  NULL },
	PN_COMMAND_JSON(struct values, json),
};

static const struct layout {
	const char *params, *bandwidths;
	unsigned rails;
	double sum; /* sum of the bandwidths relative to the first rail */
} layouts[] = {
	{ "", "1", 1, 1 },
	{ ",rails=2", "1:1", 2, 2 },
	{ ",rails=2,rail_bandwidth=3:1", "3:1", 2, 4 / 3.0 },
};

static const int protocols[] = { PN_PROTOCOL_DEMAND, PN_PROTOCOL_CACHED,
				 PN_PROTOCOL_PIPELINE,
				 PN_PROTOCOL_CACHING_PIPELINE,
				 PN_PROTOCOL_READ };

#define NPROTOCOLS PN_ARRAY_LEN(protocols)

struct state {
	const struct values *values;
	struct pn_report report;
	const struct layout *layout;
	/* Times with one rail, by size, protocol and reuse of buffers. */
	double one_ns[MAX_SIZES][NPROTOCOLS][2];
};

static void print(struct state *s, const struct pn_session_trial *trial,
		  const struct pn_session_result *result, double one_ns)
{
	double ratio = one_ns / result->ns;
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("protocol", "protocol", -16,
			     pn_protocol_name((unsigned)trial->protocol)),
		PN_CELL_BYTES("bytes", "bytes", 6, trial->bytes),
		PN_CELL_COUNT("reuse", "reuse", 6, trial->uses),
		PN_CELL_COUNT("rails", "rails", 5, s->layout->rails),
		PN_CELL_TEXT("bandwidths", "bandwidths", -10,
			     s->layout->bandwidths),
		PN_CELL_RATE("bytes_per_s", "bytes/s", 8,
			     1e9 * (double)trial->bytes / result->ns),
		PN_CELL_NUMBER("latency_us", "latency us", 10,
			       result->ns / 1e3),
		PN_CELL_NUMBER("ratio_to_one", "of one", 6, ratio),
		PN_CELL_NUMBER("percent_of_sum", "% of sum", 8,
			       100 * ratio / s->layout->sum),
		PN_CELL_BYTES("registered_bytes_peak", "registered", 10,
			      result->peak_bytes),
	};

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

static int try_one(struct state *s, struct pn_session *session,
		   struct pn_session_trial *trial, double *one_ns)
{
	struct pn_session_result result;
	int ret = pn_session_run_trial(session, trial,
				       /* waits until the rails are connected */
				       &result);

	if (!ret)
		ret = pn_session_run_trial(session, trial, &result);
	if (ret)
		return ret;
	if (s->layout == layouts)
		*one_ns = result.ns;
	print(s, trial, &result, *one_ns);
	return 0;
}

static int body(struct pn_session *session, void *arg)
{
	struct state *s = arg;
	size_t bytes = s->values->min;
	int ret = 0;

	pn_report_device(&s->report, session->device);
	if (s->layout == layouts)
		pn_report_head(&s->report, pn_bench_rails.help);
	for (size_t i = 0; bytes <= s->values->max && i < MAX_SIZES; i++) {
		for (size_t p = 0; !ret && p < 2 * NPROTOCOLS; p++) {
			unsigned again = p % 2;
			struct pn_session_trial trial = {
				.protocol = protocols[p / 2],
				.bytes = bytes,
				.buffers = again ? 2 : 8,
				.uses = again ? (unsigned)s->values->reuse : 1,
			};

			ret = try_one(s, session, &trial,
				      &s->one_ns[i][p / 2][again]);
		}
		bytes *= 2;
	}
	return ret;
}

static int run_rails(const void *v, char *const *operands)
{
	struct state s = { .values = v };
	struct pn_spec base, spec;
	int ret = 0;

	(void)operands;
	if (pn_spec_find(&base, s.values->device))
		return PN_EXIT_FAILED;
	if (!pn_pair_sim(&base) || strstr(base.text, "rail"))
		return pn_usage_error("--device takes a spec of sim with "
				      "parameters but no rails, such as "
				      "sim:cost=cx5");
	for (size_t i = 0; !ret && i < PN_ARRAY_LEN(layouts); i++) {
		int n;

		s.layout = &layouts[i];
		n = snprintf(spec.text, sizeof(spec.text), "%s%s%s", base.text,
			     strchr(base.text, ':') ? "" : ":seed=1",
			     layouts[i].params);
		if (n >= (int)sizeof(spec.text))
			return pn_usage_error("--device is too long");
		s.report = (struct pn_report){ .json = s.values->json,
					       .bench = "rails",
					       .device = spec.text };
		ret = pn_session_run(&spec, body, &s);
	}
	return ret ? pn_spec_exit("rails", ret) : PN_EXIT_OK;
}

const struct pn_command pn_bench_rails = {
	.name = "rails",
	.help = "how much faster do messages arrive over several rails?",
	.about = "Compares one simulated rail with two equal ones and with two "
		 "of 3:1, by protocol and size, with reused and with new "
		 "buffers.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_rails,
};
