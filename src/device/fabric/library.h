/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * library -- libfabric, opened with dlopen() at run time.
 *
 * Most of libfabric's API are inline functions of its headers that call through
 * pointers; these are the functions that the library exports. It stays open:
 * its providers have threads and destructors.
 * Threads: any.
 */
#ifndef PN_DEVICE_FABRIC_LIBRARY_H
#define PN_DEVICE_FABRIC_LIBRARY_H

#include <rdma/fabric.h>

struct pn_fabric_library {
	uint32_t (*version)(void);
	int (*getinfo)(uint32_t version, const char *node, const char *service,
		       uint64_t flags, const struct fi_info *hints,
		       struct fi_info **info);
	void (*freeinfo)(struct fi_info *info);
	struct fi_info *(*dupinfo)(const struct fi_info *info);
	int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric,
		      void *context);
	const char *(*strerror)(int error);
};

/* -ENOSYS: there is no libfabric, or one that is too old (not logged). */
int pn_fabric_library_open(const struct pn_fabric_library **out);

#endif
