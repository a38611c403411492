/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * syscalls -- system calls made without libc.
 *
 * The hooks replace libc's wrappers, so they cannot call them. They also run
 * where errno, thread-local storage and interposed functions must not be
 * touched. Functions return what the kernel returns: a negative errno on
 * failure.
 */
#ifndef PN_MONITOR_SYSCALLS_H
#define PN_MONITOR_SYSCALLS_H

#include <stdbool.h>
#include <sys/syscall.h>

struct pn_args {
	long v[6];
};

/* Arguments that are not given are 0. */
#define PN_ARGS(...) ((struct pn_args){ { __VA_ARGS__ } })

static inline long pn_syscall(long nr, struct pn_args args)
{
#if defined(__x86_64__)
	register long d __asm__("r10") = args.v[3];
	register long e __asm__("r8") = args.v[4];
	register long f __asm__("r9") = args.v[5];
	long ret;

	__asm__ volatile("syscall"
			 : "=a"(ret)
			 : "a"(nr), "D"(args.v[0]), "S"(args.v[1]),
			   "d"(args.v[2]), "r"(d), "r"(e), "r"(f)
			 : "rcx", "r11", "memory");
	return ret;
#elif defined(__aarch64__)
	register long number __asm__("x8") = nr;
	register long a __asm__("x0") = args.v[0];
	register long b __asm__("x1") = args.v[1];
	register long c __asm__("x2") = args.v[2];
	register long d __asm__("x3") = args.v[3];
	register long e __asm__("x4") = args.v[4];
	register long f __asm__("x5") = args.v[5];

	__asm__ volatile("svc 0"
			 : "+r"(a)
			 : "r"(number), "r"(b), "r"(c), "r"(d), "r"(e), "r"(f)
			 : "memory");
	return a;
#else
#error "pinion knows the system calls of x86-64 and aarch64"
#endif
}

#define PN_SYSCALL(nr, ...) pn_syscall(nr, PN_ARGS(__VA_ARGS__))

/* Whether a returned value is a negative errno. */
static inline bool pn_syscall_failed(long ret)
{
	return (unsigned long)ret > -4096UL;
}

#endif
