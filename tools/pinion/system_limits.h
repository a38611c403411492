/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * system_limits -- what this system lets this process do with pinned memory:
 * limits, privileges, kernel features. For `pinion info`.
 */
#ifndef PN_TOOLS_PERMITTED_H
#define PN_TOOLS_PERMITTED_H

#include "device/device.h"

/* Calls fn for each fact: a short name and a text with its consequence. */
void pn_system_limits(pn_fact_fn *fn, void *arg);

/* Reads a number from /proc/self/status ("VmPin", kB as bytes) or from a file
 * of the same format; 0: no such field. base 0 reads kB, 16 a hexadecimal mask.
 */
unsigned long long pn_proc_field(const char *path, const char *field, int base);

#endif
