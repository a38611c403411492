/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * thread -- an explicit context for each thread of execution.
 *
 * The state of a thread (pin slots, access logs) is in a pn_thread, not in
 * thread-local variables: on `sim` many coroutines share one system thread, and
 * each is a thread of the simulated program. One thread-local pointer says
 * which context runs; `sim` swaps it with its coroutines (pn_thread_swap()).
 *
 * A module allocates a key for each object that needs per-thread state, and
 * keeps one pointer per thread under it. When a thread ends, each module that
 * has a pointer there is called (`ended`), in no particular order.
 *
 * Life: a context is made by a thread's first pn_thread_self() and freed with
 * the thread. Whoever runs coroutines makes theirs (pn_thread_init(),
 * pn_thread_fini()) and swaps them in.
 * Threads: any. fork: the child keeps only the context of the forking thread,
 * without the pointers: they lead to objects of the parent. After _Fork() or a
 * raw clone() the pointers are gone, too; the child may call nothing that takes
 * a lock, so no function of this module either (process.h).
 */
#ifndef PN_BASE_THREAD_H
#define PN_BASE_THREAD_H

#include <stdint.h>

#include "base/compiler.h"
#include "base/list.h"

/* Every cache, heap and helper has one; a world of `sim` has a cache and a
 * helper for each of its nodes. Nothing beyond the highest key ever allocated
 * is touched, so that a context costs as much as there are keys. */
#define PN_THREAD_KEYS 4096

#define PN_THREAD_SITE_BYTES 32

struct pn_thread {
	struct pn_list link; /* among all contexts */
	/* The call site of its requests, for trace events (trace_sink.h); 0:
	 * not known. */
	uint64_t site;
	char site_name[PN_THREAD_SITE_BYTES]; /* the beginning of the site's
						 name, for people */
	void *local[PN_THREAD_KEYS];
};

/* initial-exec: one load without a call, also in a library loaded with
 * dlopen(); eight bytes fit the reserve that the loader keeps for that. */
extern _Thread_local struct pn_thread *pn_thread_current
	__attribute__((tls_model("initial-exec")));

/* Makes the calling thread's context. NULL: no memory. */
struct pn_thread *pn_thread_attach(void);

/* The calling thread's context. NULL: it has none yet, and there is no memory
 * for one. */
static inline struct pn_thread *pn_thread_self(void)
{
	struct pn_thread *self = pn_thread_current;

	return pn_likely(self) ? self : pn_thread_attach();
}

/* Makes `next` (may be NULL: none yet) the running context; returns the one
 * before. For coroutines. */
static inline struct pn_thread *pn_thread_swap(struct pn_thread *next)
{
	struct pn_thread *before = pn_thread_current;

	pn_thread_current = next;
	return before;
}

/* Makes and ends a context for a coroutine; its storage is the caller's. */
void pn_thread_init(struct pn_thread *thread);
void pn_thread_fini(struct pn_thread *thread);

/* Allocates a key. `ended` is called in a thread that ends, with its pointer,
 * if it has one. Returns the key; -EMFILE: all are in use; -ENOMEM, or -EAGAIN:
 * the process has no room for a destructor of threads. */
int pn_thread_key_alloc(void (*ended)(void *value));

/* Frees a key. No thread may use it any longer; pointers still under it are
 * dropped, and `ended` is not called. Waits for threads that are inside
 * `ended`: after the return, what their pointers lead to can be freed. So
 * `ended` frees no key, and the caller holds no lock that `ended` takes. */
void pn_thread_key_free(int key);

#endif
