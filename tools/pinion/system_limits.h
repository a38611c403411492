/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * permitted -- what this system lets this process do about pinned memory:
 * limits, privileges, kernel features. For `pinion info`.
 */
#ifndef PN_TOOLS_PERMITTED_H
#define PN_TOOLS_PERMITTED_H

#include "device/device.h"

/* Calls fn for each fact: a short name and a text that says what follows from
 * it. */
void pn_system_limits(pn_fact_fn *fn, void *arg);

/* A number from /proc/self/status ("VmPin", kB as bytes), or from another file
 * of that shape; 0 when it is not there. base 0 reads kB, 16 a hex mask. */
unsigned long long pn_proc_field(const char *path, const char *field, int base);

#endif
