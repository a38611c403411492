/* SPDX-License-Identifier: BSD-2-Clause */
#include "copy/choose.h"

#include <math.h>
#include <stdatomic.h>

#define MEMORY	     8	   /* copies that an estimate remembers */
#define MIN_INTERVAL 2	   /* copies of the class until the first exploration */
#define MAX_INTERVAL 4096  /* and between two, at most */
#define HOPELESS     4	   /* times the best: not tried a second time */
#define MAX_SHARE    0.02f /* of the time, for exploring */
#define FADE	     0.999f /* of what was spent, with each copy */

static float get(const _Atomic float *value)
{
	return atomic_load_explicit(value, memory_order_relaxed);
}

static void set(_Atomic float *value, float to)
{
	atomic_store_explicit(value, to, memory_order_relaxed);
}

/* Until copies are measured: one CPU copies for the driver, and registering is
 * what the device says; bounce buffers reach what several CPUs copy. The link
 * limits all of them. */
void pn_copy_times_init(struct pn_copy_times *times,
			const struct pn_costs *costs)
{
	const double moved[PN_COPY_NDIRECTIONS] = {
		pn_copy_cost(&costs->put_byte_ns, PN_COPY_MOVE_BYTE_NS),
		pn_copy_cost(&costs->get_byte_ns, PN_COPY_MOVE_BYTE_NS),
	};
	double copied = pn_copy_cost(&costs->copy_byte_ns, PN_COPY_BYTE_NS);
	double registered = (pn_copy_cost(&costs->register_page_ns,
					  PN_COPY_REGISTER_PAGE_NS) +
			     pn_copy_cost(&costs->deregister_page_ns,
					  PN_COPY_DEREGISTER_PAGE_NS)) /
			    4096;

	*times = (struct pn_copy_times){ 0 };
	for (unsigned d = 0; d < PN_COPY_NDIRECTIONS; d++) {
		float *initial = times->initial_byte_ns[d];

		initial[PN_COPY_DRIVER] = (float)fmax(copied, moved[d]);
		initial[PN_COPY_BOUNCE] = (float)fmax(copied / 8, moved[d]);
		initial[PN_COPY_PIPELINE] = (float)fmax(registered, moved[d]);
	}
}

/* Nanoseconds a byte: of the class; else of the nearest that was measured, or
 * the initial guess, whichever is less. */
static double byte_ns(const struct pn_copy_times *times,
		      const struct pn_copy_question *question,
		      enum pn_copy_method method)
{
	const struct pn_copy_class *classes =
		times->classes[question->direction];
	float initial = times->initial_byte_ns[question->direction][method];
	int at = (int)pn_history_size(question->bytes);
	float ns = get(&classes[at].methods[method].byte_ns);

	for (int d = 1; ns == 0 && d < PN_HISTORY_SIZES; d++) {
		if (at + d < PN_HISTORY_SIZES)
			ns = get(&classes[at + d].methods[method].byte_ns);
		if (ns == 0 && at - d >= 0)
			ns = get(&classes[at - d].methods[method].byte_ns);
		if (ns != 0 || d == PN_HISTORY_SIZES - 1)
			return (double)(ns != 0 && ns < initial ? ns : initial);
	}
	return (double)ns;
}

double pn_copy_times_expect(const struct pn_copy_times *times,
			    const struct pn_copy_question *question,
			    enum pn_copy_method method)
{
	double ns = byte_ns(times, question, method) * (double)question->bytes;

	if (method == PN_COPY_BOUNCE &&
	    question->participants < question->wanted)
		ns *= (double)question->wanted / (double)question->participants;
	return ns;
}

static bool is_possible(const struct pn_copy_question *question,
			enum pn_copy_method method)
{
	if (method == PN_COPY_BOUNCE)
		return question->participants;
	if (method == PN_COPY_PIPELINE)
		return question->may_register && question->participants;
	return !question->no_driver;
}

static enum pn_copy_method fastest(const struct pn_copy_times *times,
				   const struct pn_copy_question *question)
{
	enum pn_copy_method best = PN_COPY_NMETHODS;
	double least = INFINITY;

	for (unsigned method = 0; method < PN_COPY_NMETHODS; method++) {
		double ns;

		if (!is_possible(question, method))
			continue;
		ns = pn_copy_times_expect(times, question, method);
		if (ns < least) {
			least = ns;
			best = method;
		}
	}
	return best;
}

/* Whether to use the method now to learn what it takes. */
static bool is_due(struct pn_copy_times *times,
		   const struct pn_copy_question *question,
		   enum pn_copy_method method, double best_ns)
{
	struct pn_copy_class *class =
		&times->classes[question->direction]
			       [pn_history_size(question->bytes)];
	struct pn_copy_estimate *estimate = &class->methods[method];
	uint32_t interval = atomic_load(&estimate->interval);
	double ns = pn_copy_times_expect(times, question, method);

	uint32_t since = atomic_fetch_add(&estimate->since, 1) + 1;

	if (atomic_load(&estimate->measured) == 1)
		return since >= MIN_INTERVAL && ns < HOPELESS * best_ns;
	if (since < (interval ? interval : MIN_INTERVAL))
		return false;
	return (double)get(&class->explored_ns) + ns - best_ns <=
	       (double)(MAX_SHARE * get(&class->spent_ns)) +
		       (interval ? 0 : best_ns);
}

enum pn_copy_method pn_copy_times_choose(
	struct pn_copy_times *times, const struct pn_copy_question *question)
{
	enum pn_copy_method best = fastest(times, question);
	double best_ns;

	if (best == PN_COPY_NMETHODS || !question->measured ||
	    question->participants < question->wanted)
		return best;
	best_ns = pn_copy_times_expect(times, question, best);
	for (unsigned method = 0; method < PN_COPY_NMETHODS; method++)
		if (method != best && is_possible(question, method) &&
		    is_due(times, question, method, best_ns)) {
			atomic_fetch_add(&times->explored, 1);
			return method;
		}
	return best;
}

static void learn(struct pn_copy_estimate *estimate, float byte_ns)
{
	float old = get(&estimate->byte_ns);

	/* Disturbances make a copy slower, never faster: down at once. */
	if (old == 0 || byte_ns < old)
		set(&estimate->byte_ns, byte_ns);
	else
		set(&estimate->byte_ns,
		    old + (fminf(byte_ns, 2 * old) - old) / MEMORY);
	atomic_fetch_add(&estimate->measured, 1);
}

void pn_copy_times_took(struct pn_copy_times *times,
			const struct pn_copy_question *question,
			enum pn_copy_method method, double ns)
{
	struct pn_copy_class *class =
		&times->classes[question->direction]
			       [pn_history_size(question->bytes)];
	struct pn_copy_estimate *estimate = &class->methods[method];
	enum pn_copy_method best = fastest(times, question);
	double best_ns = pn_copy_times_expect(times, question, best);
	uint32_t interval = atomic_load(&estimate->interval);

	set(&class->spent_ns, get(&class->spent_ns) * FADE + (float)ns);
	set(&class->explored_ns, get(&class->explored_ns) * FADE);
	if (method != best) {
		if (ns > best_ns)
			set(&class->explored_ns,
			    get(&class->explored_ns) + (float)(ns - best_ns));
		interval = interval ? interval * 2 : 2 * MIN_INTERVAL;
		atomic_store(&estimate->interval,
			     interval < MAX_INTERVAL ? interval : MAX_INTERVAL);
	}
	atomic_store(&estimate->since, 0);
	learn(estimate, (float)(ns / (double)question->bytes));
}
