/* SPDX-License-Identifier: BSD-2-Clause */
/* What the call-site table and its predictors share; see site.h. */
#ifndef PN_HELPER_SITE_IMPL_H
#define PN_HELPER_SITE_IMPL_H

#include "helper/site.h"

struct pn_callsites {
	struct pn_callsites_attr attr;
	struct pn_hash_table by_signature, by_range;
	struct pn_list buffers; /* oldest last call first */
	uint64_t bytes;		/* of all buffers */
	/* The program's own time is real time less the lag. What calls were
	 * held up is pending until that much time has passed. */
	uint64_t lag_ns, pending_ns;
	uint64_t last_ns; /* real time of the last call */
};

/* A call that `periodic` remembers. */
struct pn_past_call {
	uint64_t what;	/* signature without context */
	uint64_t where; /* the buffer's name */
	uint64_t time_ns;
};

struct pn_call_sequence {
	struct pn_callsites *sites;
	/* Of `periodic`: a ring of attr.periodic; NULL with the others. */
	struct pn_past_call *past;
	uint64_t npast;
	unsigned period; /* calls; 0: none found */
};

/* predict.c */
/* What was predicted for this call: call it before anything is updated. now_ns
 * is the program's own time, here and below. */
void pn_predict_check(const struct pn_callsites *sites,
		      const struct pn_callsite *site, uint64_t now_ns,
		      struct pn_call_result *result);
/* Learns from a call and sets the buffer's deadline and expiry. */
void pn_predict_call(struct pn_call_sequence *sequence,
		     struct pn_callsite *site, uint64_t now_ns, uint64_t what);

#endif
