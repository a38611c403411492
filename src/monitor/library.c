/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether memory belongs to a shared library. ld.so knows: since glibc 2.35
 * without a lock and in some ten nanoseconds, before by looking for a symbol.
 */
#include <dlfcn.h>
#include <link.h>

#include "monitor/monitor_impl.h"

/* NULL: neither a library nor the program. */
static const struct link_map *map_of(uintptr_t addr)
{
#ifdef DLFO_STRUCT_HAS_EH_DBASE
	struct dl_find_object object;

	return _dl_find_object((void *)addr, &object) ? NULL
						      : object.dlfo_link_map;
#else
	struct link_map *map = NULL;
	Dl_info info;

	return dladdr1((void *)addr, &info, (void **)&map, RTLD_DL_LINKMAP)
		       ? map
		       : NULL;
#endif
}

/* The program itself has no name. */
static bool in_library(uintptr_t addr)
{
	const struct link_map *map = map_of(addr);

	return map && map->l_name[0];
}

bool pn_library_contains(struct pn_range range)
{
	return in_library(range.addr) || in_library(range.addr + range.len - 1);
}
