/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * registrar -- a device over two functions of the program, one that registers
 * and one that deregisters (pinion/registrar.h).
 *
 * The device has registrations and a clock. Peers, operations and completions
 * are refused with -EOPNOTSUPP. struct pn_mr holds what the register function
 * returned (a handle and two keys) until the range is deregistered. These
 * values have no meaning here; they may be 0.
 *
 * Batches are divided into calls of max_batch ranges. When a call fails, the
 * ranges of the earlier calls are deregistered again. If a range cannot be
 * deregistered, still_registered() returns true: the caller keeps its struct
 * pn_mr and tries again. The program's limits hold in addition to the budget:
 * beyond them reg() returns -ENOMEM without a call.
 *
 * The program gives the costs, or they are estimated from the calls
 * (cost_estimate.h). Nothing is registered only to measure it.
 *
 * Threads: any. No lock is held while a function runs.
 */
#ifndef PN_DEVICE_REGISTRAR_H
#define PN_DEVICE_REGISTRAR_H

#include <pinion/registrar.h>

#include "device/device.h"

/* Opens a device over a copy of *attr. -EINVAL: no functions, unknown flags or
 * a negative cost; -E2BIG: unknown fields are set (each logged); -ENOMEM. */
int pn_registrar_open(const struct pinion_registrar *attr,
		      struct pn_device **out);

/* Whether a device is a registrar. */
bool pn_device_is_registrar(const struct pn_device *device);

#endif
