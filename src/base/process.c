/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/process.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/lock.h"

/* In a page of its own, which the kernel wipes in children. */
struct pn_process pn_process;

struct handlers {
	void (*before)(void);
	void (*in_parent)(void);
	void (*in_child)(void);
	_Atomic bool ready; /* the rest can be read */
};

/* Written without a lock: the module that registers may hold locks that its own
 * handlers take. */
static struct handlers handlers[PN_PROCESS_HANDLERS];
static _Atomic unsigned nentered;

/* Held by the thread that forks; taken before all other locks. Protects what
 * follows. */
static struct pn_mutex forking_lock = { PTHREAD_MUTEX_INITIALIZER };
static uint32_t forking;  /* the number of the parent; 0: it has none */
static unsigned nforking; /* handlers that were ready when it began */

static _Atomic bool
	numbered; /* this process, or an ancestor, has had a number */

bool pn_process_is_unusable(void)
{
	return !atomic_load(&pn_process.number) && atomic_load(&numbered);
}

/* --- around fork() -------------------------------------------------------- */

static unsigned count_ready(void)
{
	unsigned n = 0;

	while (n < PN_PROCESS_HANDLERS &&
	       atomic_load_explicit(&handlers[n].ready, memory_order_acquire))
		n++;
	return n;
}

static void before_fork(void) PN_NO_THREAD_SAFETY
{
	if (pn_process_is_unusable()) {
		forking = 0;
		return;
	}
	pn_lock(&forking_lock);
	forking = atomic_load(&pn_process.number);
	nforking = count_ready();
	for (unsigned i = nforking; i--;)
		if (handlers[i].before)
			handlers[i].before();
}

static void in_parent(void) PN_NO_THREAD_SAFETY
{
	if (pn_process_is_unusable())
		return;
	for (unsigned i = 0; i < nforking; i++)
		if (handlers[i].in_parent)
			handlers[i].in_parent();
	pn_unlock(&forking_lock);
}

static void in_child(void) PN_NO_THREAD_SAFETY
{
	if (!forking)
		return;
	atomic_store(&pn_process.number, forking + 1);
	for (unsigned i = 0; i < nforking; i++)
		handlers[i].in_child();
	pn_unlock(&forking_lock);
}

void pn_process_atfork(void (*before)(void), void (*parent)(void),
		       void (*child)(void))
{
	struct handlers *h;

	pn_assert(pn_process_number());
	h = &handlers[atomic_fetch_add(&nentered, 1)];
	pn_assert(h < handlers + PN_PROCESS_HANDLERS);
	h->before = before;
	h->in_parent = parent;
	h->in_child = child;
	/* Pairs with the acquire in count_ready(). */
	atomic_store_explicit(&h->ready, true, memory_order_release);
}

/* --- the number ----------------------------------------------------------- */

/* On a kernel that cannot wipe, the handlers find children of fork() only. */
static void begin(void)
{
	madvise(&pn_process, (size_t)sysconf(_SC_PAGESIZE), MADV_WIPEONFORK);
	pn_assert(!pthread_atfork(before_fork, in_parent, in_child));
	atomic_store(&pn_process.number, 1);
	atomic_store(&numbered, true);
}

uint32_t pn_process_number(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pn_assert(!pthread_once(&once, begin));
	return atomic_load(&pn_process.number);
}
