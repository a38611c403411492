/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/cost_model.h"

#include <math.h>
#include <string.h>

#include "base/range.h"

#define MODEL(name)                                           \
	double name(PN_UNUSED const struct pn_place_costs *c, \
		    PN_UNUSED double home,                    \
		    PN_UNUSED const struct pn_place_costs *home_costs)
#define PN_UNUSED __attribute__((unused))

/* --- costs ---------------------------------------------------------------- */

void pn_costs_of_profile(const struct pn_profile *profile,
			 struct pn_place_costs *costs)
{
	*costs = (struct pn_place_costs){ .unbatched = profile->unbatched };
	memcpy(costs->value, profile->value, sizeof(costs->value));
}

static bool is_of(const struct pn_row *row, const char *device)
{
	const char *name = pn_row_text(row, "device");

	return name && !strncmp(name, device, strlen(device)) &&
	       pn_row_meets(row, "emulated=no");
}

static bool is_bench(const struct pn_row *row, const char *name)
{
	const char *bench = pn_row_text(row, "bench");

	return bench && !strcmp(bench, name);
}

/* Rows of `bench gpu` have bandwidths, too. */
static void take_line(const struct pn_row *row, struct pn_place_costs *costs)
{
	double *v = costs->value;

	v[PN_PROFILE_REGISTER_US] = pn_row_number(row, "register_us_fixed");
	v[PN_PROFILE_REGISTER_PAGE_US] =
		pn_row_number(row, "register_us_per_page");
	v[PN_PROFILE_DEREGISTER_US] = pn_row_number(row, "deregister_us_fixed");
	v[PN_PROFILE_DEREGISTER_PAGE_US] =
		pn_row_number(row, "deregister_us_per_page");
	if (isfinite(pn_row_number(row, "put_gbps"))) {
		v[PN_PROFILE_LATENCY_US] = pn_row_number(row, "put_us_fixed");
		v[PN_PROFILE_LINK_GBPS] = pn_row_number(row, "put_gbps");
		v[PN_PROFILE_COPY_GBPS] = pn_row_number(row, "copy_gbps");
	}
}

/* Rows come from small to large. */
static void take_put(const struct pn_row *row, struct pn_place_costs *costs)
{
	double us = pn_row_number(row, "put_us");
	double bytes = pn_row_number(row, "bytes");
	double *v = costs->value;

	if (!isfinite(us))
		return;
	if (!(v[PN_PROFILE_LATENCY_US] <= us))
		v[PN_PROFILE_LATENCY_US] = us;
	v[PN_PROFILE_LINK_GBPS] = bytes / us / 1e3;
	v[PN_PROFILE_COPY_GBPS] = v[PN_PROFILE_LINK_GBPS];
}

/* Costs of registering and putting, and what an untouched page costs more. */
static bool take_registering(const struct pn_rows *rows, const char *device,
			     struct pn_place_costs *costs)
{
	double untouched = NAN;

	for (size_t i = 0; i < rows->n; i++) {
		const struct pn_row *row = rows->rows[i];

		if (!is_of(row, device))
			continue;
		if (is_bench(row, "gpu") &&
		    pn_row_meets(row, "experiment=costs"))
			take_line(row, costs);
		if (!is_bench(row, "register") ||
		    !pn_row_meets(row, "page_bytes=4K"))
			continue;
		if (!pn_row_meets(row, "present=yes"))
			untouched = fmax(untouched,
					 pn_row_number(row,
						       "register_us_per_page"));
		else if (pn_row_meets(row, "fit=yes"))
			take_line(row, costs);
		else
			take_put(row, costs);
	}
	if (isfinite(untouched))
		costs->fault_page_us =
			untouched - costs->value[PN_PROFILE_REGISTER_PAGE_US];
	return isfinite(costs->value[PN_PROFILE_REGISTER_US]);
}

/* What a copy of 8 KiB takes, and whether there is one, by path. */
static void take_copies(const struct pn_rows *rows, const char *device,
			struct pn_place_costs *costs)
{
	for (size_t i = 0; i < rows->n; i++) {
		const struct pn_row *row = rows->rows[i];
		double us = pn_row_number(row, "copy_us");
		bool none = !isfinite(pn_row_number(row, "minimum_uses"));

		if (!is_of(row, device) || !is_bench(row, "reuse") ||
		    !pn_row_meets(row, "what=threshold") ||
		    !pn_row_meets(row, "bytes=8K"))
			continue;
		costs->value[PN_PROFILE_COPY_GBPS] = 8192 / us / 1e3;
		costs->value[PN_PROFILE_LOOKUP_US] =
			pn_row_number(row, "lookup_us");
		if (pn_row_meets(row, "path=put"))
			costs->no_copy_put = none;
		else if (pn_row_meets(row, "path=get"))
			costs->no_copy_get = none;
		else
			costs->no_copy_message = none;
	}
}

/* The kernel's software adapters move bytes on the CPU, as `soft` does. */
static bool is_software(const struct pn_rows *rows, const char *device)
{
	for (size_t i = 0; i < rows->n; i++)
		if (is_of(rows->rows[i], device)) {
			const char *name = pn_row_text(rows->rows[i], "device");

			return !strncmp(name, "soft", 4) ||
			       strstr(name, ":rxe") || strstr(name, ":siw");
		}
	return false;
}

bool pn_costs_measured(const struct pn_rows *rows, const char *device,
		       struct pn_place_costs *costs)
{
	*costs = (struct pn_place_costs){ .cpu_moves =
						  is_software(rows, device) };
	costs->value[PN_PROFILE_REGISTER_US] = NAN;
	costs->value[PN_PROFILE_LATENCY_US] = NAN;
	if (!take_registering(rows, device, costs))
		return false;
	take_copies(rows, device, costs);
	return true;
}

/* --- terms, in microseconds ----------------------------------------------- */

double pn_cost_register_us(const struct pn_place_costs *c, double bytes)
{
	return c->value[PN_PROFILE_REGISTER_US] +
	       c->value[PN_PROFILE_REGISTER_PAGE_US] *
		       ceil(bytes / PN_PAGE_BYTES);
}

double pn_cost_deregister_us(const struct pn_place_costs *c, double bytes)
{
	return c->value[PN_PROFILE_DEREGISTER_US] +
	       c->value[PN_PROFILE_DEREGISTER_PAGE_US] *
		       ceil(bytes / PN_PAGE_BYTES);
}

static double per_us(const struct pn_place_costs *c, enum pn_profile_field rate,
		     double bytes)
{
	return c->value[rate] > 0 ? bytes / (1e3 * c->value[rate]) : 0;
}

double pn_cost_move_us(const struct pn_place_costs *c, double bytes)
{
	return per_us(c, PN_PROFILE_LINK_GBPS, bytes);
}

double pn_cost_copy_us(const struct pn_place_costs *c, double bytes)
{
	return per_us(c, PN_PROFILE_COPY_GBPS, bytes);
}

double pn_cost_latency_us(const struct pn_place_costs *c)
{
	return c->value[PN_PROFILE_LATENCY_US] +
	       2 * c->value[PN_PROFILE_MESSAGE_US];
}

/* What sending without a copy saves: the copy less the look-up. */
static double no_copy(const struct pn_place_costs *c, double bytes)
{
	return pn_cost_copy_us(c, bytes) - c->value[PN_PROFILE_LOOKUP_US];
}

/* --- Helper --------------------------------------------------------------- */

MODEL(pn_model_same)
{
	return home;
}

#define ITERATIONS 10.0 /* of figure 1 */

/* Both ends register, one after the other. */
static double learning(const struct pn_place_costs *c, double bytes)
{
	double once = 2 * pn_cost_register_us(c, bytes) / ITERATIONS;

	return 100 * once /
	       (pn_cost_latency_us(c) + pn_cost_move_us(c, bytes) + once);
}

MODEL(pn_model_learning)
{
	double most = 0;

	for (double bytes = 2 << 20; bytes <= 16 << 20; bytes *= 2)
		most = fmax(most, learning(c, bytes));
	return most;
}

/* --- Heap ----------------------------------------------------------------- */

#define SLAB	1048576.0
#define TRIALS	1000	/* allocations of the experiment */
#define HEAP_US 0.004	/* alloc and free from a thread's cache */
#define CACHED	65536.0 /* the longest block that comes from there */

/* The smallest size pays most: 1000 small objects need one slab, whose pages
 * are faulted in; those of malloc() share 32 pages, which are neglected. */
MODEL(pn_model_heap_new)
{
	return TRIALS * pn_cost_register_us(c, 128) /
	       (pn_cost_register_us(c, SLAB) +
		c->fault_page_us * SLAB / PN_PAGE_BYTES + TRIALS * HEAP_US);
}

/* The longest block of a thread's cache pays most. For longer ones the pages of
 * a run are marked under a lock, which takes longer than they gain. */
MODEL(pn_model_heap_reuse)
{
	return pn_cost_register_us(c, CACHED) / HEAP_US;
}

MODEL(pn_model_heap_put)
{
	double most = 0;

	for (double bytes = 128; bytes <= 2 * SLAB; bytes *= 2) {
		double put = pn_cost_latency_us(c) + pn_cost_move_us(c, bytes);

		most = fmax(most, (pn_cost_register_us(c, bytes) + put) / put);
	}
	return most;
}

/* --- Pipeline ------------------------------------------------------------- */

#define MESSAGE (8 * SLAB)

/* A message in fragments: the slower of moving and of registering and releasing
 * every fragment, after the first fragment's registration; both where the
 * sender's CPU moves the bytes. */
static double pipelined_by(const struct pn_place_costs *c, double fragment)
{
	double all = MESSAGE / fragment *
		     (pn_cost_register_us(c, fragment) +
		      pn_cost_deregister_us(c, fragment));

	double move = pn_cost_move_us(c, MESSAGE);

	return (c->cpu_moves ? move + all : fmax(move, all)) +
	       pn_cost_register_us(c, fragment);
}

/* Fragments are as large as the costs want (option fragment). */
static double pipelined(const struct pn_place_costs *c)
{
	double least = INFINITY;

	for (double fragment = SLAB / 16; fragment <= MESSAGE; fragment *= 2)
		least = fmin(least, pipelined_by(c, fragment));
	return least;
}

/* Target and source register one after the other. */
MODEL(pn_model_pipeline)
{
	return (2 * pn_cost_register_us(c, MESSAGE) +
		pn_cost_move_us(c, MESSAGE)) /
	       pipelined(c);
}

MODEL(pn_model_meeting)
{
	return ceil(2 * pn_cost_register_us(c, MESSAGE) /
		    (pipelined(c) - pn_cost_move_us(c, MESSAGE)));
}

/* --- Region cache --------------------------------------------------------- */

#define BATCH 16

/* Share of the fixed cost of deregistering in a region of two pages, of which a
 * batch pays one. */
static double batch_share(const struct pn_place_costs *c)
{
	if (c->unbatched)
		return 0;
	return c->value[PN_PROFILE_DEREGISTER_US] * (BATCH - 1) / BATCH /
	       (pn_cost_register_us(c, 2 * PN_PAGE_BYTES) +
		pn_cost_deregister_us(c, 2 * PN_PAGE_BYTES));
}

MODEL(pn_model_batch)
{
	return 100 * batch_share(c);
}

/* Hits save everything, misses save the batch's share. */
MODEL(pn_model_no_cache)
{
	double before = batch_share(home_costs);
	double hits = (home / 100 - before) / (1 - before);

	return 100 * (hits + (1 - hits) * batch_share(c));
}

/* Time that the peers' registrations no longer follow one another: one
 * registration, a completion entry and two kernel crossings. */
static double overlapped(const struct pn_place_costs *c, double register_us)
{
	return register_us + c->value[PN_PROFILE_COMPLETION_US] +
	       2 * c->value[PN_PROFILE_CROSSING_US];
}

MODEL(pn_model_overlap_share)
{
	double once = c->value[PN_PROFILE_REGISTER_US];

	return 100 * overlapped(c, once) / (once + overlapped(c, once));
}

MODEL(pn_model_overlap_us)
{
	return overlapped(c, pn_cost_register_us(c, 8 * PN_PAGE_BYTES));
}

/* --- Reuse ---------------------------------------------------------------- */

MODEL(pn_model_direct)
{
	if (c->no_copy_message)
		return 0;
	return 100 * no_copy(c, 8192) /
	       (pn_cost_latency_us(c) + pn_cost_move_us(c, 8192) +
		2 * pn_cost_copy_us(c, 8192));
}

MODEL(pn_model_direct_put)
{
	if (c->no_copy_put)
		return 0;
	return 100 * no_copy(c, 8192) /
	       (pn_cost_latency_us(c) + pn_cost_move_us(c, 8192) +
		pn_cost_copy_us(c, 8192));
}

/* A get's request crosses the link first. */
MODEL(pn_model_direct_get)
{
	if (c->no_copy_get)
		return 0;
	return 100 * no_copy(c, 8192) /
	       (2 * pn_cost_latency_us(c) + pn_cost_move_us(c, 8192) +
		pn_cost_copy_us(c, 8192));
}

MODEL(pn_model_uses)
{
	if (c->no_copy_message)
		return NAN;
	return pn_cost_register_us(c, 4096) / no_copy(c, 4096);
}
