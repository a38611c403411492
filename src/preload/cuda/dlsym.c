/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which dlsym() answers: libc's, or lookup.c. Called by dlsym_stub.c.
 *
 * A sanitizer's runtime calls dlsym() before it is set up, so this file is
 * built without instrumentation.
 */
#include <dlfcn.h>

#include "preload/cuda/preload.h"

void *(*pn_preload_real_dlsym)(void *handle, const char *name);

/* Any thread; the result is always the same. Other constructors may come
 * before ours, so there is none. */
static void find_dlsym(void)
{
	static const char *const versions[] = { "GLIBC_2.34", "GLIBC_2.17",
						"GLIBC_2.2.5" };
	void *found = NULL;

	for (size_t i = 0; !found && i < PN_ARRAY_LEN(versions); i++)
		found = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
	pn_assert(found);
	__atomic_store_n((void **)&pn_preload_real_dlsym, found,
			 __ATOMIC_RELEASE);
}

static bool is_found(void)
{
	return __atomic_load_n((void **)&pn_preload_real_dlsym,
			       __ATOMIC_ACQUIRE);
}

void *pn_preload_libc_dlsym(void *handle, const char *name)
{
	if (!is_found())
		find_dlsym();
	return pn_preload_real_dlsym(handle, name);
}

void *pn_preload_dlsym(void *handle, const char *name, const void *caller);

/* What dlsym() returns; NULL: whatever libc's does. */
void *pn_preload_dlsym(void *handle, const char *name, const void *caller)
{
	if (!is_found())
		find_dlsym();
	if (!name || name[0] != 'c' || name[1] != 'u' || handle == RTLD_NEXT)
		return NULL;
	return pn_preload_lookup(handle, name, caller);
}
