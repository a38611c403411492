/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * no_psm -- stand-ins for the libraries of PSM adapters (libpsm2.so.2 of
 * Omni-Path, libpsm_infinipath.so.1 of True Scale) on machines without one.
 *
 * Debian's libfabric is linked with both, and each calibrates a clock for 100
 * ms when it is loaded, whatever provider the program uses. `pinion mpirun`
 * preloads the stand-ins into the ranks instead (tools/pinion/psm.h): they have
 * the functions and versions of the public interface, and no constructor.
 *
 * Errors: every function that returns an error returns "no such device", so
 * that libfabric's providers for PSM are not offered; the others return zero or
 * NULL, and are of no use without an endpoint. Arguments are ignored.
 * Threads: any; there is no state.
 */
#ifndef PN_PROVIDER_NO_PSM_H
#define PN_PROVIDER_NO_PSM_H

#include <stddef.h>

/* PSM_EP_NO_DEVICE and PSM2_EP_NO_DEVICE */
#define PN_NO_PSM_DEVICE 21

#define PN_NO_PSM_EXPORT __attribute__((visibility("default")))

/* A function of PSM that returns an error. */
#define PN_NO_PSM(name)                  \
	PN_NO_PSM_EXPORT int name(void); \
	int name(void)                   \
	{                                \
		return PN_NO_PSM_DEVICE; \
	}

/* One that returns a pointer or a number of 64 bits. */
#define PN_NO_PSM_NULL(name)               \
	PN_NO_PSM_EXPORT void *name(void); \
	void *name(void)                   \
	{                                  \
		return NULL;               \
	}

/* One that returns the text of an error. */
#define PN_NO_PSM_TEXT(name)                     \
	PN_NO_PSM_EXPORT const char *name(void); \
	const char *name(void)                   \
	{                                        \
		return "no PSM adapter";         \
	}

#endif
