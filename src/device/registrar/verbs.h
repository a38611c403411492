/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs -- a registrar over a protection domain of the caller.
 *
 * One ibv_mr for each range. The handle is the ibv_mr, the keys are its own.
 * Threads: any.
 */
#ifndef PN_DEVICE_REGISTRAR_VERBS_H
#define PN_DEVICE_REGISTRAR_VERBS_H

#include <pinion/registrar.h>

struct ibv_pd;

/* Fills *out for the domain. free(out->arg) when no function of it is called
 * any more. -ENOMEM; -EIO: the adapter cannot be asked for its limits. */
int pn_registrar_verbs(struct ibv_pd *pd, struct pinion_registrar *out);

#endif
