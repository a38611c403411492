/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cost_model -- what the costs of a device predict for a claim of a paper.
 *
 * A claim holds in the regime of its paper: what registering costs there
 * against moving and copying. A device with other costs is in another regime,
 * and another number there is no failure. Each formula here takes the costs of
 * a device and gives the number to expect, before anything is run; agreement.h
 * then judges the run by this expectation.
 *
 * The costs are those of a named profile, or the ones that rows of `pinion
 * bench register` measured on a device (pn_costs_measured()). Threads: any; no
 * state.
 */
#ifndef PN_TOOLS_COST_MODEL_H
#define PN_TOOLS_COST_MODEL_H

#include <stdbool.h>

#include "device/profiles.h"
#include "tools/pinion/rows.h"

/* Costs of a device, in the units of profiles.h; NAN: not known. */
struct pn_place_costs {
	double value[PN_PROFILE_NFIELDS];
	/* To fault in a page that was never touched; 0 in virtual time, and
	 * where it was not measured. */
	double fault_page_us;
	/* The CPU of the sender moves the bytes, so registering at the sender
	 * cannot overlap with moving. */
	bool unbatched; /* a batch of deregistrations saves nothing */
	bool cpu_moves;
	/* Transfers of 8 KiB that pinion does not copy in any case, by their
	 * path: there is no copy to save. */
	bool no_copy_message, no_copy_put, no_copy_get;
};

/* The number that the costs predict. `home` is the number under the costs of
 * the paper, `home_costs` are these. NAN: the costs do not suffice. */
typedef double (*pn_cost_model)(const struct pn_place_costs *costs, double home,
				const struct pn_place_costs *home_costs);

void pn_costs_of_profile(const struct pn_profile *profile,
			 struct pn_place_costs *costs);

/* Registration, deregistration and page faults from the regression rows of
 * `pinion bench register`, latency and bandwidth from its puts; a copy and a
 * look-up from the thresholds of `pinion bench reuse`, and without these
 * copying is as fast as the largest put. Uses rows whose device begins with
 * `device` and that are not emulated. Returns false if there are none. */
bool pn_costs_measured(const struct pn_rows *rows, const char *device,
		       struct pn_place_costs *costs);

/* Microseconds to register, to deregister, to move and to copy so many bytes,
 * and for a message without any. */
double pn_cost_register_us(const struct pn_place_costs *costs, double bytes);
double pn_cost_deregister_us(const struct pn_place_costs *costs, double bytes);
double pn_cost_move_us(const struct pn_place_costs *costs, double bytes);
double pn_cost_copy_us(const struct pn_place_costs *costs, double bytes);
double pn_cost_latency_us(const struct pn_place_costs *costs);

/* Depends on the order of requests, or on the times of the program, and not on
 * costs: the same number. A claim with this model is not predicted
 * (agreement.h, PN_REPEATED). */
double pn_model_same(const struct pn_place_costs *, double,
		     const struct pn_place_costs *);

/* The helper learns in the first two of ten iterations of the paper's figure 1,
 * in which messages register; memory left pinned is registered once. Per cent
 * of the time of messages, at most, above 1 MiB. */
double pn_model_learning(const struct pn_place_costs *, double,
			 const struct pn_place_costs *);

/* Heap: new memory, memory used again, put (largest ratio over sizes). */
double pn_model_heap_new(const struct pn_place_costs *, double,
			 const struct pn_place_costs *);
double pn_model_heap_reuse(const struct pn_place_costs *, double,
			   const struct pn_place_costs *);
double pn_model_heap_put(const struct pn_place_costs *, double,
			 const struct pn_place_costs *);

/* 8 MiB: pipeline over leave-pinned, and uses after which leave-pinned wins. */
double pn_model_pipeline(const struct pn_place_costs *, double,
			 const struct pn_place_costs *);
double pn_model_meeting(const struct pn_place_costs *, double,
			const struct pn_place_costs *);

/* Batched deregistration: saved in all, and saved against no cache. */
double pn_model_batch(const struct pn_place_costs *, double,
		      const struct pn_place_costs *);
double pn_model_no_cache(const struct pn_place_costs *, double,
			 const struct pn_place_costs *);

/* FRRWP: share saved with one page, microseconds saved with eight. */
double pn_model_overlap_share(const struct pn_place_costs *, double,
			      const struct pn_place_costs *);
double pn_model_overlap_us(const struct pn_place_costs *, double,
			   const struct pn_place_costs *);

/* Sending 8 KiB without a copy; puts and gets; uses that pay, 4 KiB. */
double pn_model_direct(const struct pn_place_costs *, double,
		       const struct pn_place_costs *);
double pn_model_direct_put(const struct pn_place_costs *, double,
			   const struct pn_place_costs *);
double pn_model_direct_get(const struct pn_place_costs *, double,
			   const struct pn_place_costs *);
double pn_model_uses(const struct pn_place_costs *, double,
		     const struct pn_place_costs *);

#endif
