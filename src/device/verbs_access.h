/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs_access -- translates access bits and registration errors of verbs.
 *
 * Used by the verbs device (keys.h) and by the registrar over a protection
 * domain of the caller (device/registrar/verbs.h).
 */
#ifndef PN_DEVICE_VERBS_ACCESS_H
#define PN_DEVICE_VERBS_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "device/device.h"

/* The IBV_ACCESS_REMOTE_ bits. iWARP has no atomics. */
int pn_verbs_remote_access(unsigned access, bool is_iwarp);

/* All IBV_ACCESS_ bits. On iWARP, memory that our own reads write to must be
 * open to writes of peers. */
int pn_verbs_access(unsigned access, bool is_iwarp);

/* Translates the errno of ibv_reg_mr() to an error of device.h: -EFAULT or
 * -ENOMEM. */
int pn_verbs_reg_error(int error, const void *addr, size_t len);

#endif
