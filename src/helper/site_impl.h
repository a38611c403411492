/* SPDX-License-Identifier: BSD-2-Clause */
/* What the call-site table (site.c) and its predictors (predict.c) share. */
#ifndef PN_HELPER_SITE_IMPL_H
#define PN_HELPER_SITE_IMPL_H

#include "helper/site.h"

struct pn_callsites {
	struct pn_callsites_attr attr;
	struct pn_hash_table by_signature, by_range;
	struct pn_list buffers; /* by last call, the oldest first */
	uint64_t bytes;		/* of all buffers */
	/* Program time is real time less the lag. A delay of calls is pending
	 * until that much time has passed. */
	uint64_t lag_ns, pending_ns;
	uint64_t last_ns; /* real time of the last call */
};

/* A call that `periodic` remembers. */
struct pn_past_call {
	uint64_t call_hash;  /* the signature without context */
	uint64_t buffer_key; /* entry.key of the buffer */
	uint64_t time_ns;
};

struct pn_call_sequence {
	struct pn_callsites *sites;
	/* For `periodic`: a ring of attr.periodic calls; else NULL. */
	struct pn_past_call *past;
	uint64_t npast;
	unsigned period; /* in calls; 0: none found */
};

/* predict.c */
/* Sets result->predicted_ns and observed_ns for a call. To be called before
 * pn_predict_call(). now_ns is program time, here and below. */
void pn_predict_check(const struct pn_callsites *sites,
		      const struct pn_callsite *site, uint64_t now_ns,
		      struct pn_call_result *result);
/* Learns from a call and sets the buffer's deadline and expiry. */
void pn_predict_call(struct pn_call_sequence *sequence,
		     struct pn_callsite *site, uint64_t now_ns,
		     uint64_t call_hash);

#endif
