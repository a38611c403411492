/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How functions of libibverbs are found: its own by this library, and ours by
 * programs that use dlsym() or dlvsym().
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "preload/dlsym.h"
#include "preload/verbs/preload.h"

struct call {
	const char *name, *version;
	size_t offset; /* in struct pn_ibv_real */
	void *ours;
};

#define CALL(symbol, version, type, params)                       \
	{ #symbol, version, offsetof(struct pn_ibv_real, symbol), \
	  (void *)(symbol) },
static const struct call calls[] = { PN_IBV_CALLS(CALL) };
#undef CALL

static struct pn_ibv_real table;

static void **entry_of(const struct call *call)
{
	return (void **)((char *)&table + call->offset);
}

/* This library depends on libibverbs, so the library is there. */
static void find_real(void)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);

	pn_assert(library);
	for (size_t i = 0; i < PN_ARRAY_LEN(calls); i++)
		*entry_of(&calls[i]) = pn_dlsym_libc(&(struct pn_dlsym_query){
			.handle = library,
			.name = calls[i].name,
			.version = calls[i].version });
	/* libc remembers what was not found. */
	dlerror();
}

const struct pn_ibv_real *pn_ibv_real(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, find_real);
	return &table;
}

/* libibverbs' ibv_reg_mr() and ibv_reg_mr_iova() call ibv_reg_mr_iova2() by
 * name, which is ours. A libibverbs without that one (before rdma-core 27) has
 * programs that call what it has. */
struct ibv_mr *pn_ibv_real_reg(const struct pn_ibv_request *r)
{
	const struct pn_ibv_real *real = pn_ibv_real();

	if (pn_likely(real->ibv_reg_mr_iova2))
		return real->ibv_reg_mr_iova2(r->pd, r->addr, r->len, r->iova,
					      r->access);
	if (r->iova == (uintptr_t)r->addr)
		return real->ibv_reg_mr(r->pd, r->addr, r->len, (int)r->access);
	return real->ibv_reg_mr_iova(r->pd, r->addr, r->len, r->iova,
				     (int)r->access);
}

void *pn_dlsym_lookup_verbs(const struct pn_dlsym_query *query)
{
	const struct call *call = calls;
	void *found;

	while (strcmp(call->name, query->name))
		if (++call == calls + PN_ARRAY_LEN(calls))
			return NULL;
	found = pn_dlsym_libc(query);
	pn_ibv_real();
	return found && found == *entry_of(call) ? call->ours : NULL;
}
