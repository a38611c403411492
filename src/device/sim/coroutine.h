/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * coroutine -- a function with a stack of its own that can be suspended and
 * resumed.
 *
 * Created by pn_coroutine_create(), runs from one resume() to its next
 * suspend(), finishes when its function returns, freed by
 * pn_coroutine_destroy(). Destroying it in the middle runs no cleanup for its
 * frames. The stack is mapped above an inaccessible page, so that an overflow
 * crashes instead of corrupting memory. It uses memory only for pages touched.
 *
 * A switch is 20 instructions on x86-64. Elsewhere swapcontext() is used, which
 * saves the signal mask by a system call: 34 ns against 680 ns for each switch
 * in one run (doc/design/sim.md), which makes a whole world three times slower.
 * PN_COROUTINE_UCONTEXT makes x86-64 use swapcontext(), too.
 * ASan and TSan are informed of every switch.
 *
 * Threads: one thread at a time uses a coroutine; another thread may resume it
 * later, provided that its function keeps no address of a thread-local variable
 * across suspend().
 */
#ifndef PN_DEVICE_SIM_COROUTINE_H
#define PN_DEVICE_SIM_COROUTINE_H

#include <stdbool.h>
#include <stddef.h>

struct pn_coroutine;

/* fn(arg) runs at the first resume(). stack_bytes is rounded up to pages.
 * -ENOMEM. */
int pn_coroutine_create(size_t stack_bytes, void (*fn)(void *arg), void *arg,
			struct pn_coroutine **out);

/* Not while it runs. co may be NULL. */
void pn_coroutine_destroy(struct pn_coroutine *co);

/* Runs it until it suspends or finishes. Not after it has finished. */
void pn_coroutine_resume(struct pn_coroutine *co);

/* Called inside the coroutine: continues after the resume(). */
void pn_coroutine_suspend(struct pn_coroutine *co);

bool pn_coroutine_finished(const struct pn_coroutine *co);

#endif
