/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cores -- on which cores a helper may run: those of the machine that the
 * control group allows and that the thread which starts the helper is bound to,
 * since a thread inherits its binding.
 *
 * Two hardware threads of a core are one core: a helper beside its program on
 * the same core is not on an idle one. hwloc knows the cores; where pinion was
 * built without hwloc, every CPU counts as a core. A core keeps its number
 * whatever part of the machine the process sees, so that the sets of different
 * processes can be compared. A limit on CPU time (cpu.max) is not a binding and
 * is not considered.
 * Threads: any. Takes milliseconds.
 */
#ifndef PN_HELPER_CORES_H
#define PN_HELPER_CORES_H

#include "helper/share.h"

/* The cores of the calling thread. Cores numbered from PN_CORES_MAX on are left
 * out. -ENOMEM; -ENOTSUP: the system does not tell. Logged. */
int pn_cores_mine(struct pn_cores *out);

#endif
