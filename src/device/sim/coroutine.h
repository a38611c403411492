/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * coroutine -- a function with a stack of its own that can be left in the
 * middle and taken up again.
 *
 * Born in pn_coroutine_create(), runs from one resume() to its next suspend(),
 * finishes when its function returns, dies in pn_coroutine_destroy(); destroyed
 * in the middle, its frames are simply gone: nothing on them is cleaned up.
 * The stack is mapped with an unreadable page below it, so that an overflow
 * crashes instead of corrupting, and takes memory only for pages touched.
 *
 * Switching is 20 instructions on x86-64 and swapcontext() elsewhere, which
 * saves the signal mask by a system call: 34 ns against 680 ns for each switch
 * in one run (doc/design/sim.md), three times the steps of a whole world.
 * PN_COROUTINE_UCONTEXT defined makes x86-64 use swapcontext() too.
 * ASan and TSan are told of every switch.
 *
 * Threads: a coroutine belongs to one thread at a time; resume() may come from
 * another thread later, provided that its function keeps no address of a
 * thread-local variable across suspend().
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

/* Not while it runs. NULL is fine. */
void pn_coroutine_destroy(struct pn_coroutine *co);

/* Runs it until it suspends or finishes. Not when it has finished. */
void pn_coroutine_resume(struct pn_coroutine *co);

/* Inside the coroutine: back to whoever resumed it. */
void pn_coroutine_suspend(struct pn_coroutine *co);

bool pn_coroutine_finished(const struct pn_coroutine *co);

#endif
