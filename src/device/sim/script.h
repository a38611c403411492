/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * script -- the faults of a simulated world.
 *
 * Statements end with a newline or ';'; '#' begins a comment. N counts from 1,
 * NODE from 0 as in pn_sim_device().
 *
 *   fail registration N with ERROR [on node NODE]
 *   fail registrations every N with ERROR [on node NODE]
 *   delay registration N by TIME [on node NODE]
 *   delay TIME [on node NODE]               every message leaves later
 *   delay message N by TIME [on node NODE]
 *   drop peer NODE at TIME                  the node dies
 *   drop rail RAIL of node NODE at TIME     that port of the node fails
 *   drop rail RAIL of node NODE after N operations
 *                                           the same, after N operations
 *   limit node NODE to BYTES at TIME        the most it can pin from then on
 *
 * ERROR is an errno's name (ENOMEM). TIME and BYTES are written as in options,
 * with or without a blank before the unit (5 us, 4M). Registrations are counted
 * when they are requested, each range of a batch for itself; messages are
 * operations of any kind, counted when they are posted. `on node` counts those
 * of that node alone; without it those of all nodes are counted together. The
 * operations of a port are those posted there and those of its peers that are
 * executed there.
 *
 * Threads: a script is constant once parsed.
 */
#ifndef PN_DEVICE_SIM_SCRIPT_H
#define PN_DEVICE_SIM_SCRIPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/option.h"

enum pn_fault_kind {
	PN_FAULT_FAIL_REGISTRATION,
	PN_FAULT_FAIL_EVERY,
	PN_FAULT_DELAY_REGISTRATION,
	PN_FAULT_DELAY_ALL,
	PN_FAULT_DELAY_MESSAGE,
	PN_FAULT_NODE_DIE,
	PN_FAULT_PORT_FAIL,
	PN_FAULT_PORT_FAIL_AFTER,
	PN_FAULT_LIMIT,
};

#define PN_FAULT_ANY_NODE UINT64_MAX

struct pn_fault {
	enum pn_fault_kind kind;
	int error;	 /* negative errno: FAIL_* */
	uint64_t number; /* which one; FAIL_EVERY: every N-th */
	uint64_t node;	 /* or PN_FAULT_ANY_NODE */
	uint64_t rail;	 /* PORT_FAIL, PORT_FAIL_AFTER */
	/* DELAY_*: how long; NODE_DIE, PORT_FAIL, LIMIT: when */
	uint64_t time_ns;
	uint64_t bytes; /* LIMIT */
};

struct pn_script {
	struct pn_fault *faults;
	size_t n;
};

/* Appends the statements of text (len bytes, no NUL needed) to *out, which is
 * zero or was parsed before. -EINVAL: `why` names the error, with line and
 * column; -ENOMEM. *out is then unchanged. */
int pn_script_parse(const char *text, size_t len, struct pn_script *out,
		    struct pn_why *why);

void pn_script_free(struct pn_script *script);

/* The faults of the `all`th registration of the world, the `own`th of `node`:
 * returns 0 or its error, and how much longer it takes. */
int pn_script_registration(const struct pn_script *script, uint64_t node,
			   uint64_t all, uint64_t own, uint64_t *delay_ns);

/* Whether a port fails after that operation. */
bool pn_script_port_fails(const struct pn_script *script, uint64_t node,
			  uint64_t rail, uint64_t noperations);

/* How much later that message leaves. */
uint64_t pn_script_message_ns(const struct pn_script *script, uint64_t node,
			      uint64_t all, uint64_t own);

#endif
