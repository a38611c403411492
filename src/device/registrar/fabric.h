/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric -- a registrar over a libfabric domain of the program.
 *
 * Each range has a fid_mr. The handle is the fid_mr, local_key its descriptor,
 * remote_key its key. The fid's context holds the address that peers count
 * offsets from: 0 with FI_MR_VIRT_ADDR, else the start of the range.
 *
 * Only libfabric's headers are needed: its calls are inline functions over the
 * tables of the domain.
 * Threads: any; libfabric's control calls are thread safe.
 */
#ifndef PN_DEVICE_REGISTRAR_FABRIC_H
#define PN_DEVICE_REGISTRAR_FABRIC_H

#include <pinion/fabric.h>
#include <pinion/registrar.h>

/* Fills *out for the domain. The caller frees out->arg after the last call of
 * its functions. -EINVAL: the attributes; -EOPNOTSUPP: the domain's mr_mode;
 * -ENOMEM. */
int pn_registrar_fabric(const struct pinion_fabric_attr *attr,
			struct pinion_registrar *out);

/* See pinion_fabric_addr(). */
uint64_t pn_registrar_fabric_addr(const struct pinion_pin *pin);

#endif
