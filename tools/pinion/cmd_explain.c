/* SPDX-License-Identifier: BSD-2-Clause */
/* pinion explain: the protocol that `auto` selects for a message, and why: the
 * candidates with their predicted times on this device. */
#include <errno.h>
#include <stdbool.h>

#include <pinion/cuda.h>
#include <pinion/pinion.h>

#include "context.h"
#include "device/cuda/cuda.h"
#include "tools/pinion/command.h"
#include "tools/pinion/report.h"
#include "tools/pinion/spec.h"

struct values {
	char device[PN_OPTION_TEXT_BYTES];
	uint64_t bytes, reuse, window;
	bool full, json;
};

#define AT(name) offsetof(struct values, name)

static const struct pn_option options[] = {
	PN_COMMAND_DEVICE(struct values, device),
	{ "bytes", PN_OPTION_BYTES, "1M", "length of the message", AT(bytes), 0,
	  UINT64_C(1) << 40, NULL },
	{ "reuse", PN_OPTION_NUMBER, "1",
	  "number of uses of the buffer before its memory is released",
	  AT(reuse), 1, 1 << 30, NULL },
	{ "window", PN_OPTION_NUMBER, "1",
	  "number of such messages in flight at a time", AT(window), 1, 1 << 20,
	  NULL },
	{ "full", PN_OPTION_BOOL, "no",
	  "the budget is full: keeping a buffer registered evicts another one",
	  AT(full), 0, 0, NULL },
	PN_COMMAND_JSON(struct values, json),
};

/* direction: of a copy; NULL: a message. */
static void print_candidate(struct pn_report *report,
			    const struct values *values,
			    const struct pinion_explanation *e,
			    const char *direction)
{
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("protocol", "protocol", -16, e->protocol),
		PN_CELL_BYTES("bytes", "bytes", 6, values->bytes),
		PN_CELL_COUNT("reuse", "reuse", 6, values->reuse),
		PN_CELL_NUMBER("first_us", "first us", 10, e->first_ns / 1e3),
		PN_CELL_NUMBER("later_us", "later us", 10, e->later_ns / 1e3),
		PN_CELL_NUMBER("mean_us", "mean us", 10, e->mean_ns / 1e3),
		PN_CELL_FLAG("chosen", "chosen", 6, e->chosen),
		PN_CELL_TEXT("reason", NULL, 0, e->reason),
		PN_CELL_TEXT("direction", NULL, 0, direction),
	};

	pn_report_row(report, row, PN_ARRAY_LEN(row) - !direction);
}

/* On a GPU: the methods of a copy instead of the protocols of a message. */
static int print_copies(struct pn_report *report, const struct values *values,
			struct pinion_context *context)
{
	struct pinion_explain_attr attr = { .size = sizeof(attr),
					    .len = values->bytes,
					    .reuse = values->reuse };
	struct pinion_explanation e = { .size = sizeof(e) };
	int ret = 0;

	pn_report_head(report, "how does a copy of unpinned memory go, and how "
			       "long does each method take?");
	for (int from = 0; from < 2; from++) {
		attr.flags = from ? PINION_CUDA_EXPLAIN_FROM_GPU : 0;
		pn_report_note(report, from ? "\nfrom the GPU" : "to the GPU");
		for (unsigned i = 0; !ret; i++) {
			ret = pinion_cuda_explain(context, &attr, i, &e);
			if (!ret)
				print_candidate(report, values, &e,
						from ? "from" : "to");
			if (!ret && e.chosen)
				pn_report_note(report, "^ %s", e.reason);
		}
		if (ret != -ENOENT)
			return ret;
		ret = 0;
	}
	return 0;
}

static int explain_copies(struct pn_report *report, const struct values *values,
			  struct pinion_context *context)
{
	int ret;

	pn_report_device(report, context->device);
	ret = print_copies(report, values, context);
	pinion_close(context);
	return ret ? pn_spec_exit("a GPU", ret) : PN_EXIT_OK;
}

static void print_all(struct pn_report *report, const struct values *values,
		      struct pinion_endpoint *ep)
{
	const struct pinion_explain_attr attr = {
		.size = sizeof(attr),
		.len = values->bytes,
		.reuse = values->reuse,
		.in_flight = values->window,
		.flags = values->full ? PINION_EXPLAIN_BUDGET_FULL : 0,
	};
	struct pinion_explanation e = { .size = sizeof(e) };
	const char *chosen = "", *reason = "";

	pn_report_head(report, "which protocol does a message use, and how "
			       "long does each take?");
	for (unsigned i = 0; !pinion_endpoint_explain(ep, &attr, i, &e); i++) {
		print_candidate(report, values, &e, NULL);
		if (e.chosen) {
			chosen = e.protocol;
			reason = e.reason;
		}
	}
	pn_report_note(report,
		       "\n%s: %s.\nfirst: the buffer is not registered yet; "
		       "later: it is; mean: over all uses,\nthis one with that "
		       "protocol, the others with the cheapest one. With a "
		       "window,\nwhat a message adds to the time of all.",
		       chosen, reason);
}

static int run(const void *v, char *const *operands)
{
	const struct values *values = v;
	struct pn_report report = { .json = values->json, .bench = "explain" };
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	struct pn_spec spec;
	int ret;

	(void)operands;
	if (pn_spec_find(&spec, values->device))
		return PN_EXIT_FAILED;
	report.device = spec.text;
	ret = pn_spec_open(&spec, &context);
	if (ret)
		return pn_spec_exit(spec.text, ret);
	if (pn_device_is_cuda(context->device))
		return explain_copies(&report, values, context);
	ret = pinion_endpoint_open(context, NULL, &ep);
	if (!ret) {
		pn_report_device(&report, context->device);
		print_all(&report, values, ep);
	}
	pinion_close(context);
	return ret ? pn_spec_exit("an endpoint", ret) : PN_EXIT_OK;
}

const struct pn_command pn_cmd_explain = {
	.name = "explain",
	.help = "explain the protocol of a message",
	.about = "Prints the candidates with their predicted times for a "
		 "message of that length whose buffer is used so often, from "
		 "the costs of the device. A running endpoint corrects the "
		 "predictions with the measured times of its messages.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
