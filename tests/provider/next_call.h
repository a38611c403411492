/* SPDX-License-Identifier: BSD-2-Clause */
/* For programs whose own calls of pinion stand before the library's: what these
 * go on with. The program exports its symbols (ENABLE_EXPORTS). */
#ifndef PN_TESTS_FABRIC_NEXT_CALL_H
#define PN_TESTS_FABRIC_NEXT_CALL_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static inline void *next_call(const char *name)
{
	void *handle = dlopen("libpinion.so.0", RTLD_LAZY | RTLD_NOLOAD);
	void *function = handle ? dlsym(handle, name) : NULL;

	if (!function) {
		printf("no %s: %s\n", name, dlerror());
		abort();
	}
	dlclose(handle);
	return function;
}

#endif
