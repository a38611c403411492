/* SPDX-License-Identifier: BSD-2-Clause */
/* pinion explain: which protocol `auto` takes for a message, and why: the
 * candidates with what they are predicted to take on this device. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>

#include "context.h"
#include "message/message_impl.h"
#include "tools/pinion/command.h"
#include "tools/pinion/open.h"
#include "tools/pinion/report.h"

struct values {
	char device[PN_OPTION_TEXT_BYTES];
	uint64_t bytes, reuse;
	bool full, json;
};

#define AT(name) offsetof(struct values, name)

static const struct pn_option options[] = {
	PN_COMMAND_DEVICE(struct values, device),
	{ "bytes", PN_OPTION_BYTES, "1M", "length of the message", AT(bytes), 0,
	  UINT64_C(1) << 40, NULL },
	{ "reuse", PN_OPTION_NUMBER, "1",
	  "how often the buffer is used before its memory is released",
	  AT(reuse), 1, 1 << 30, NULL },
	{ "full", PN_OPTION_BOOL, "no",
	  "what may be pinned is pinned: to leave a buffer registered, another "
	  "must be given up",
	  AT(full), 0, 0, NULL },
	PN_COMMAND_JSON(struct values, json),
};

/* Everything for the rows. */
struct explanation {
	const struct values *values;
	struct pn_report *report;
	struct pn_prices prices;
	int chosen;
	enum pn_event_reason reason;
};

static void print_candidate(const struct explanation *e, int id)
{
	const double reuse = (double)e->values->reuse;
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("protocol", "protocol", -16,
			     pn_protocol_name((unsigned)id)),
		PN_CELL_BYTES("bytes", "bytes", 6, e->values->bytes),
		PN_CELL_COUNT("reuse", "reuse", 6, e->values->reuse),
		PN_CELL_NUMBER("first_us", "first us", 10,
			       e->prices.first[id] / 1e3),
		PN_CELL_NUMBER("later_us", "later us", 10,
			       e->prices.later[id] / 1e3),
		PN_CELL_NUMBER("mean_us", "mean us", 10,
			       e->prices.plan[id] / reuse / 1e3),
		PN_CELL_FLAG("chosen", "chosen", 6, id == e->chosen),
		PN_CELL_TEXT("reason", NULL, 0,
			     id == e->chosen ? pn_choice_text(e->reason) : ""),
	};

	pn_report_row(e->report, row, PN_ARRAY_LEN(row));
}

static void print_all(const struct explanation *e)
{
	pn_report_head(e->report,
		       "which protocol a message takes, and what it is "
		       "predicted to take");
	for (int id = 0; id < PN_PROTOCOL_COUNT; id++)
		if (id == e->chosen || e->prices.first[id] > 0)
			print_candidate(e, id);
	pn_report_note(e->report,
		       "\n%s: %s.\nfirst: the buffer has to be registered; "
		       "later: it is; mean: of all uses,\nthis one by that "
		       "protocol, the others by what is cheapest then.",
		       pn_protocol_name((unsigned)e->chosen),
		       pn_choice_text(e->reason));
}

/* What is short goes eagerly and is not weighed. */
static void explain_eager(struct explanation *e,
			  const struct pinion_endpoint *ep)
{
	const double ns =
		pn_protocol_eager.cost(&ep->limits, &ep->device->costs,
				       e->values->bytes, 0);

	for (int id = 0; id < PN_PROTOCOL_COUNT; id++)
		e->prices.first[id] = NAN;
	e->chosen = PN_PROTOCOL_EAGER;
	e->reason = PN_BECAUSE_SHORT;
	e->prices.first[e->chosen] = e->prices.later[e->chosen] = ns;
	e->prices.plan[e->chosen] = ns * (double)e->values->reuse;
}

static void explain(struct explanation *e, const struct pinion_endpoint *ep)
{
	const struct pn_costs *costs = &ep->device->costs;
	const struct pn_question question = {
		.len = e->values->bytes,
		.outlook.further = (double)e->values->reuse - 1,
		.roomy = !e->values->full,
	};

	if (pn_protocol_eager.applies(&ep->limits, e->values->bytes)) {
		explain_eager(e, ep);
		return;
	}
	pn_auto_predict(&ep->limits, costs, e->values->bytes, &e->prices);
	e->chosen = pn_auto_weigh(&question, costs, &e->prices, &e->reason);
}

static int run(const void *v, char *const *operands)
{
	const struct values *values = v;
	struct pn_report report = { .json = values->json, .bench = "explain" };
	struct explanation e = { .values = values, .report = &report };
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
	ret = pinion_endpoint_open(context, NULL, &ep);
	if (!ret) {
		pn_report_device(&report, context->device);
		explain(&e, ep);
		print_all(&e);
	}
	pinion_close(context);
	return ret ? pn_spec_exit("an endpoint", ret) : PN_EXIT_OK;
}

const struct pn_command pn_cmd_explain = {
	.name = "explain",
	.help = "which protocol a message takes, and why",
	.about =
		"The candidates with what they are predicted to take for a "
		"message of that length, whose buffer is used so often, by the "
		"costs of the device alone. A running endpoint corrects them "
		"by what messages really took.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
