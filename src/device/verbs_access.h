/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs_access -- translates access bits and registration errors of verbs, and
 * says how many registrations there may be.
 *
 * Used by the verbs device (keys.h), by the registrar over a protection domain
 * of the caller (device/registrar/verbs.h) and under unmodified programs
 * (preload/verbs/).
 */
#ifndef PN_DEVICE_VERBS_ACCESS_H
#define PN_DEVICE_VERBS_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

#include "device/device.h"

struct ibv_device_attr;

/* The IBV_ACCESS_REMOTE_ bits. iWARP has no atomics. */
int pn_verbs_remote_access(unsigned access, bool is_iwarp);

/* All IBV_ACCESS_ bits. On iWARP, memory that our own reads write to must be
 * open to writes of peers. */
int pn_verbs_access(unsigned access, bool is_iwarp);

/* Translates the errno of ibv_reg_mr() to an error of device.h: -EFAULT or
 * -ENOMEM. */
int pn_verbs_reg_error(int error, const void *addr, size_t len);

/* How many registrations of an adapter pinion may have at a time. Of the
 * objects that the RDMA cgroup allows (rdma.max) it leaves a quarter, and of
 * the adapter's limit one: for queue pairs, for what a device has for itself,
 * and for what a program registers past pinion. SIZE_MAX: no limit is known. */
size_t pn_verbs_max_mrs(const struct ibv_device_attr *attr,
			const char *adapter);

#endif
