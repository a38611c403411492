/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cores -- on which cores a helper may run: what the machine has, what the
 * control group allows, what the thread that starts it is bound to, since a
 * thread inherits its binding.
 *
 * Two hardware threads of a core are one core: a helper beside its program on
 * the same core is not on an idle one. hwloc knows; without it (built where it
 * was absent) every CPU counts as a core. A core keeps its number whatever the
 * process sees of the machine, so that sets of different processes compare.
 * A limit on CPU time (cpu.max) is not a binding, and not seen.
 * Threads: any. Takes milliseconds.
 */
#ifndef PN_HELPER_CORES_H
#define PN_HELPER_CORES_H

#include "helper/share.h"

/* Of the calling thread. Cores numbered from PN_CORES_MAX on are left out.
 * -ENOMEM; -ENOTSUP: the system does not tell. Logged. */
int pn_cores_mine(struct pn_cores *out);

#endif
