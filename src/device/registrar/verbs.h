/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs -- a registrar over a protection domain of the program.
 *
 * Each range has an ibv_mr, which is the handle; the keys are those of the
 * ibv_mr.
 * Threads: any.
 */
#ifndef PN_DEVICE_REGISTRAR_VERBS_H
#define PN_DEVICE_REGISTRAR_VERBS_H

#include <pinion/registrar.h>

struct ibv_pd;

/* Fills *out for the domain. The caller frees out->arg after the last call of
 * its functions. -ENOMEM; -EIO: the adapter does not report its limits. */
int pn_registrar_verbs(struct ibv_pd *pd, struct pinion_registrar *out);

#endif
