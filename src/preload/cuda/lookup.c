/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a program finds the driver's functions: dlsym() and cuGetProcAddress().
 *
 * Both ask the driver first. What they get is replaced if it is the driver's
 * own function of a name that is taken: compared by address, so a library that
 * happens to define the same name keeps it, and cuGetProcAddress(), which has
 * rules of its own for versions and default streams, decides by itself.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "preload/cuda/preload.h"
#include "preload/dlsym.h"

#define LIBRARY "libcuda.so.1"

/* --- tables ----------------------------------------------------------------
 */

struct call {
	const char *name;
	size_t offset; /* in struct pn_preload_real */
	void *ours;    /* NULL: not taken */
};

#define OFFSET(symbol)	       offsetof(struct pn_preload_real, symbol)
#define CALL(symbol, params)   { #symbol, OFFSET(symbol), (void *)(symbol) },
#define HELPER(symbol, params) { #symbol, OFFSET(symbol), NULL },
static const struct call calls[] = { PN_PRELOAD_CALLS(CALL)
					     PN_PRELOAD_HELPERS(HELPER) };
#undef CALL
#undef HELPER

/* --- the driver ------------------------------------------------------------
 */

static struct pn_preload_real *_Atomic published;
static const struct pn_preload_real nothing;

static void **entry_of(struct pn_preload_real *table, const struct call *call)
{
	return (void **)((char *)table + call->offset);
}

static struct pn_preload_real *open_driver(void)
{
	void *driver = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	struct pn_preload_real *table =
		driver ? calloc(1, sizeof(*table)) : NULL;

	for (size_t i = 0; table && i < PN_ARRAY_LEN(calls); i++)
		*entry_of(table, &calls[i]) =
			pn_dlsym_libc(&(struct pn_dlsym_query){
				.handle = driver, .name = calls[i].name });
	/* libc remembers what was not found. */
	dlerror();
	return table;
}

/* Without a lock: a thread that loads a library holds the linker's, and may
 * call dlsym() in a constructor. Threads that come at the same time find the
 * same. */
const struct pn_preload_real *pn_preload_real(void)
{
	struct pn_preload_real *table =
		atomic_load_explicit(&published, memory_order_acquire);
	struct pn_preload_real *other = NULL;

	if (pn_likely(table))
		return table;
	table = open_driver();
	if (!table)
		return &nothing;
	if (atomic_compare_exchange_strong(&published, &other, table))
		return table;
	free(table);
	return other;
}

void *pn_preload_replace(void *found)
{
	struct pn_preload_real *table =
		(struct pn_preload_real *)(uintptr_t)pn_preload_real();

	for (size_t i = 0; i < PN_ARRAY_LEN(calls); i++)
		if (found && *entry_of(table, &calls[i]) == found &&
		    calls[i].ours)
			return calls[i].ours;
	return found;
}

/* --- dlsym(), dlvsym()
 * ---------------------------------------------------------------
 */

static bool is_taken(const char *name)
{
	for (size_t i = 0; i < PN_ARRAY_LEN(calls); i++)
		if (calls[i].ours && !strcmp(calls[i].name, name))
			return true;
	return false;
}

/* The file that an address belongs to; NULL: none. */
static const void *file_of(const void *at)
{
	Dl_info info;

	return dladdr(at, &info) ? info.dli_fbase : NULL;
}

/* libpinion.so and the driver want the driver's own functions. */
static bool is_inside(const void *caller, const void *found)
{
	const void *file = file_of(caller);

	return file && (file == file_of((void *)pn_cuda_gate_enter) ||
			file == file_of(found));
}

void *pn_dlsym_lookup_cuda(const struct pn_dlsym_query *query)
{
	const char *name = query->name;
	void *found, *ours;

	if (!is_taken(name))
		return NULL;
	found = pn_dlsym_libc(query);
	if (!found || is_inside(query->caller, found))
		return NULL;
	ours = pn_preload_replace(found);
	return ours == found ? NULL : ours;
}

/* --- cuGetProcAddress() ----------------------------------------------------
 */

PN_PRELOAD_API pn_cu_result cuGetProcAddress(const char *symbol, void **out,
					     int version,
					     unsigned long long flags)
{
	pn_cu_result ret =
		PN_REAL(cuGetProcAddress, symbol, out, version, flags);

	if (!ret && out)
		*out = pn_preload_replace(*out);
	return ret;
}

PN_PRELOAD_API pn_cu_result cuGetProcAddress_v2(const char *symbol, void **out,
						int version,
						unsigned long long flags,
						int *status)
{
	pn_cu_result ret = PN_REAL(cuGetProcAddress_v2, symbol, out, version,
				   flags, status);

	if (!ret && out)
		*out = pn_preload_replace(*out);
	return ret;
}
