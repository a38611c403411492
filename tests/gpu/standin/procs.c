/* SPDX-License-Identifier: BSD-2-Clause */
/* procs -- cuGetProcAddress(): names without version to functions, as the
 * static runtime finds the driver; and the forms for per-thread default
 * streams of calls that copy.c does not have. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "standin_impl.h"

/* clang-format off */
#define DECLARE(field, symbol, params) pn_cu_result symbol params;
PN_CUDA_FUNCTIONS(DECLARE)
PN_CUDA_OPTIONAL_FUNCTIONS(DECLARE)
/* clang-format on */

static void *find(const char *symbol, const char *version, const char *suffix)
{
	char name[128];

	snprintf(name, sizeof(name), "%s%s%s", symbol, version, suffix);
	return dlsym(RTLD_DEFAULT, name);
}

/* In this library: a preloaded one may define the same names. */
static void *find_here(const char *symbol, const char *version,
		       const char *suffix)
{
	static void *self;
	char name[128];
	Dl_info info;

	if (!self && dladdr((void *)cuInit, &info))
		self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (!self)
		return find(symbol, version, suffix);
	snprintf(name, sizeof(name), "%s%s%s", symbol, version, suffix);
	return dlsym(self, name);
}

/* The newest version of a name, with the suffix where there is one. */
static void *newest(const char *symbol, const char *suffix)
{
	static const char *const versions[] = { "_v2", "" };

	for (unsigned i = 0; i < 2; i++) {
		void *at = find_here(symbol, versions[i], suffix);

		if (at)
			return at;
	}
	return NULL;
}

STANDIN_API pn_cu_result cuGetProcAddress_v2(const char *symbol, void **out,
					     int version,
					     unsigned long long flags,
					     int *status)
{
	void *at = NULL;

	(void)version;
	if (flags & PN_CU_GET_PROC_ADDRESS_PER_THREAD) {
		at = newest(symbol, "_ptsz");
		if (!at)
			at = newest(symbol, "_ptds");
	}
	if (!at)
		at = newest(symbol, "");
	*out = at;
	if (status)
		*status = at ? PN_CU_GET_PROC_ADDRESS_SUCCESS
			     : PN_CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	return at ? 0 : PN_CUDA_ERROR_NOT_FOUND;
}

STANDIN_API pn_cu_result cuGetProcAddress(const char *symbol, void **out,
					  int version, unsigned long long flags)
{
	return cuGetProcAddress_v2(symbol, out, version, flags, NULL);
}

static pn_cu_stream ptsz(pn_cu_stream stream)
{
	return stream ? stream : PN_CU_STREAM_PER_THREAD;
}

STANDIN_API pn_cu_result cuStreamSynchronize_ptsz(pn_cu_stream stream)
{
	return cuStreamSynchronize(ptsz(stream));
}

STANDIN_API pn_cu_result cuStreamQuery_ptsz(pn_cu_stream stream)
{
	return cuStreamQuery(ptsz(stream));
}

STANDIN_API pn_cu_result cuEventRecord_ptsz(pn_cu_event event,
					    pn_cu_stream stream)
{
	return cuEventRecord(event, ptsz(stream));
}

STANDIN_API pn_cu_result cuStreamWaitEvent_ptsz(pn_cu_stream stream,
						pn_cu_event event,
						unsigned flags)
{
	return cuStreamWaitEvent(ptsz(stream), event, flags);
}

STANDIN_API pn_cu_result cuStreamIsCapturing_ptsz(pn_cu_stream stream,
						  int *status)
{
	return cuStreamIsCapturing(ptsz(stream), status);
}

STANDIN_API pn_cu_result cuLaunchHostFunc_ptsz(pn_cu_stream stream,
					       pn_cu_host_fn fn, void *arg)
{
	return cuLaunchHostFunc(ptsz(stream), fn, arg);
}
