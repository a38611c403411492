/* SPDX-License-Identifier: BSD-2-Clause */
/* What a copy would take by each method (pinion_cuda_explain()). */
#include <errno.h>

#include "copy/copy_impl.h"

/* The methods, and what comes of them when memory is used again. */
enum row { DRIVER, BOUNCE, PIPELINE, BACKGROUND, NROWS };

static const char *const names[NROWS] = { "driver", "bounce", "pipeline",
					  "background" };

static double registered_ns(const struct pn_costs *costs,
			    enum pn_copy_direction direction, double bytes)
{
	bool to = direction == PN_COPY_TO_GPU;

	return pn_cost(to ? &costs->put_ns : &costs->get_ns) +
	       bytes * pn_copy_cost(to ? &costs->put_byte_ns
				       : &costs->get_byte_ns,
				    PN_COPY_MOVE_BYTE_NS);
}

static const char *reason_for(enum row row, bool keep)
{
	if (row == BACKGROUND)
		return "bounce buffers at first, then registered in the "
		       "background, since the buffer comes again";
	return keep ? "the least time so far"
		    : "the least time so far; memory is kept registered only "
		      "with cuda_keep=yes";
}

struct answer {
	double first[NROWS], later[NROWS], mean[NROWS];
	unsigned chosen;
};

/* From the third use on memory that comes again can be registered. */
static void set_row(struct answer *out, enum row row, double first,
		    double later, double reuse)
{
	double early = row == BACKGROUND && reuse > 2 ? 2 : 1;

	out->first[row] = first;
	out->later[row] = later;
	if (reuse < early)
		early = reuse;
	out->mean[row] = (early * first + (reuse - early) * later) / reuse;
}

static void weigh(struct pn_copier *copier,
		  const struct pn_copy_question *question, double reuse,
		  struct answer *out)
{
	const struct pn_costs *costs = &copier->attr.device->costs;
	double method[PN_COPY_NMETHODS];

	for (unsigned w = 0; w < PN_COPY_NMETHODS; w++)
		method[w] = pn_copy_times_expect(&copier->times, question, w);
	set_row(out, DRIVER, method[PN_COPY_DRIVER], method[PN_COPY_DRIVER],
		reuse);
	set_row(out, BOUNCE, method[PN_COPY_BOUNCE], method[PN_COPY_BOUNCE],
		reuse);
	set_row(out, PIPELINE, method[PN_COPY_PIPELINE],
		method[PN_COPY_PIPELINE], reuse);
	set_row(out, BACKGROUND, method[PN_COPY_BOUNCE],
		registered_ns(costs, question->direction,
			      (double)question->bytes),
		reuse);
	out->chosen = DRIVER;
	for (unsigned r = 0; r < (copier->attr.keep ? NROWS : PIPELINE); r++)
		if (question->bytes >= copier->min_bytes &&
		    out->mean[r] < out->mean[out->chosen])
			out->chosen = r;
}

int pn_copier_explain(struct pn_copier *copier,
		      const struct pinion_explain_attr *attr, unsigned index,
		      struct pinion_explanation *out)
{
	struct pn_copy_question question = {
		.direction = attr->flags & PINION_CUDA_EXPLAIN_FROM_GPU
				     ? PN_COPY_FROM_GPU
				     : PN_COPY_TO_GPU,
		.bytes = attr->len ? attr->len : 1,
	};
	struct answer answer;

	if (index >= NROWS)
		return -ENOENT;
	question.wanted = question.participants =
		pn_copy_shape(copier, question.direction, attr->len)
			.participants;
	weigh(copier, &question, (double)(attr->reuse + !attr->reuse), &answer);
	*out = (struct pinion_explanation){
		.protocol = names[index],
		.chosen = index == answer.chosen,
		.reason = index == answer.chosen
				  ? reason_for(index, copier->attr.keep)
				  : "",
		.first_ns = answer.first[index],
		.later_ns = answer.later[index],
		.mean_ns = answer.mean[index],
	};
	return 0;
}
