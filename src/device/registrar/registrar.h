/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * registrar -- a device over two functions of the caller, one that registers
 * and one that deregisters (pinion/registrar.h).
 *
 * It has registrations and a clock, and nothing else: peers, operations and
 * completions are refused with -EOPNOTSUPP. What the register function returns
 * (a handle, two keys) stands in struct pn_mr and is handed back when the range
 * is deregistered; the values mean nothing here, and 0 is as good as any.
 *
 * Batches are cut into calls of max_batch ranges. When a call fails, the ranges
 * of the calls before it are deregistered again. A range that cannot be
 * deregistered says so in stays(): its storage must be kept and tried again.
 * The limits of the caller hold whatever the budget is: over them, reg()
 * returns -ENOMEM without a call.
 *
 * Costs are the caller's, or learned from the calls that are made anyway
 * (cost_estimate.h); nothing is ever registered to measure it.
 *
 * Threads: any. No lock is held while a function runs.
 */
#ifndef PN_DEVICE_REGISTRAR_H
#define PN_DEVICE_REGISTRAR_H

#include <pinion/registrar.h>

#include "device/device.h"

/* Opens a device over the functions, which it copies. -EINVAL: no functions,
 * or unknown flags; -E2BIG: fields that are not known here (each logged);
 * -ENOMEM. */
int pn_registrar_open(const struct pinion_registrar *given,
		      struct pn_device **out);

/* Whether a device is one. */
bool pn_device_is_registrar(const struct pn_device *device);

#endif
