/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * context -- what stands behind the public handle: configuration and device.
 *
 * Born in pinion_open(), dies in pinion_close(). Parts are opened bottom up
 * and closed top down.
 */
#ifndef PN_CONTEXT_H
#define PN_CONTEXT_H

#include "base/list.h"
#include "base/lock.h"
#include "config/config.h"
#include "device/device.h"

struct pinion_context {
	struct pn_config config;
	struct pn_device *device;
	struct pn_mutex lock;	      /* protects registrations */
	struct pn_list registrations; /* made by hand */
};

#endif
