/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PN_DEVICE_SOFT_H
#define PN_DEVICE_SOFT_H

#include "device/device.h"

extern const struct pn_device_ops pn_soft_ops;

#endif
