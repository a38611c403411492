/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * dlsym -- dlsym() and dlvsym() in programs that run under a preloaded library
 * of pinion.
 *
 * A preloaded library is found by name in programs that are linked with the
 * library that it interposes. Programs that open that library and look its
 * functions up by dlsym() or dlvsym() (the CUDA runtime, NCCL) get past it. So
 * each preloaded library compiles dlsym.c and dlsym_stub.c, which define both
 * calls, and has a lookup function that says which names it takes.
 *
 * Where several libraries are preloaded, programs find the dlsym() of the
 * first one. It asks the lookup functions of all: they are weak symbols, NULL
 * where their library is not there.
 *
 * What no lookup function answers is libc's answer. libc looks at the return
 * address of its caller (RTLD_NEXT), so the stubs jump to libc's function with
 * that address in place.
 *
 * Threads: any; no lock, no constructor. Other constructors may come first.
 */
#ifndef PN_PRELOAD_DLSYM_H
#define PN_PRELOAD_DLSYM_H

#include "base/compiler.h"

/* One call of dlsym() or dlvsym(). */
struct pn_dlsym_query {
	void *handle;
	const char *name;
	const char *version; /* NULL: dlsym() */
	const void *caller;  /* its return address */
};

/* What the program gets; NULL: libc's answer. A function that is taken is
 * recognized by the address that libc finds, so other libraries keep functions
 * of the same name. */
typedef void *pn_dlsym_lookup_fn(const struct pn_dlsym_query *query);

/* preload/cuda/lookup.c, preload/verbs/real.c */
PN_PRIVATE_API __attribute__((weak)) pn_dlsym_lookup_fn pn_dlsym_lookup_cuda;
PN_PRIVATE_API __attribute__((weak)) pn_dlsym_lookup_fn pn_dlsym_lookup_verbs;

/* libc's answer. Not for RTLD_NEXT. */
void *pn_dlsym_libc(const struct pn_dlsym_query *query);

#endif
