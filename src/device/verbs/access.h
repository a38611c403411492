/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * access -- access bits and registration errors, from verbs and to verbs.
 *
 * Shared by the verbs device (keys.h) and by the registrar over a protection
 * domain of the caller (device/registrar/verbs.h).
 */
#ifndef PN_DEVICE_VERBS_ACCESS_H
#define PN_DEVICE_VERBS_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "device/device.h"

/* The IBV_ACCESS_ bits for peers. iWARP has no atomics. */
int pn_verbs_remote_access(unsigned access, bool is_iwarp);

/* All IBV_ACCESS_ bits. On iWARP, memory that a read of our own writes to has
 * to be open to writes of peers. */
int pn_verbs_access(unsigned access, bool is_iwarp);

/* The errno of ibv_reg_mr() as device.h names it: -EFAULT or -ENOMEM. */
int pn_verbs_reg_error(int error, const void *addr, size_t len);

#endif
