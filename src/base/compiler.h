/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * compiler -- the few macros that every file may use.
 *
 * pn_assert() states a fact that the code relies on. It is in every build,
 * because a broken invariant here means that somebody's data is corrupted.
 * pn_debug_assert() is for checks too expensive for a release
 * (PINION_CHECK=ON). The PN_REQUIRES family names the locks for clang's
 * thread-safety analysis.
 */
#ifndef PN_BASE_COMPILER_H
#define PN_BASE_COMPILER_H

#include <stddef.h>

#include "base/platform.h"

#define PN_NOINLINE	 __attribute__((noinline))
/* Exported for the other libraries of this build alone (PINION_PRIVATE in
 * pinion.map): no promise to anybody else. */
#define PN_PRIVATE_API	 __attribute__((visibility("default")))
#define PN_ALWAYS_INLINE __attribute__((always_inline))
#define pn_likely(x)	 __builtin_expect(!!(x), 1)
#define pn_unlikely(x)	 __builtin_expect(!!(x), 0)

#define PN_CACHELINE	   64
#define PN_ALIGNED(n)	   __attribute__((aligned(n)))
#define PN_PRINTF(fmt, va) __attribute__((format(printf, fmt, va)))
#define PN_ARRAY_LEN(a)	   (sizeof(a) / sizeof((a)[0]))

#define pn_container_of(ptr, type, member) \
	((type *)((char *)(ptr)-offsetof(type, member)))

static inline size_t pn_min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Lock annotations, checked by clang. PN_GUARDED_BY() is for variables of a
 * file: in C, a member cannot name another member; a comment names the lock
 * there. */
#ifdef __clang__
#define PN_CAPABILITY(name) __attribute__((capability(name)))
#define PN_GUARDED_BY(lock) __attribute__((guarded_by(lock)))
#define PN_REQUIRES(lock)   __attribute__((requires_capability(lock)))
#define PN_EXCLUDES(lock)   __attribute__((locks_excluded(lock)))
#define PN_ACQUIRE(lock)    __attribute__((acquire_capability(lock)))
#define PN_RELEASE(lock)    __attribute__((release_capability(lock)))
#define PN_TRY_ACQUIRE(ok, lock) \
	__attribute__((try_acquire_capability(ok, lock)))
#define PN_NO_THREAD_SAFETY __attribute__((no_thread_safety_analysis))
#else
#define PN_CAPABILITY(name)
#define PN_GUARDED_BY(lock)
#define PN_REQUIRES(lock)
#define PN_EXCLUDES(lock)
#define PN_ACQUIRE(lock)
#define PN_RELEASE(lock)
#define PN_TRY_ACQUIRE(ok, lock)
#define PN_NO_THREAD_SAFETY
#endif

/* Prints where and what, then aborts. Does not return. */
_Noreturn void pn_assert_failed(const char *what, const char *file, int line);

#define pn_assert(x) \
	(pn_likely(x) ? (void)0 : pn_assert_failed(#x, __FILE__, __LINE__))

#ifdef PINION_CHECK
#define pn_debug_assert(x) pn_assert(x)
#else
#define pn_debug_assert(x) ((void)sizeof(x))
#endif

/* Prefetches a cache line that will be written to. __builtin_prefetch() becomes
 * prefetchw only for processors that the compiler knows to have it; 64-bit
 * processors without prefetchw ignore it. */
static inline void pn_prefetch_write(const char *line)
{
#ifdef __x86_64__
	__asm__ volatile("prefetchw %0" : : "m"(*line));
#else
	__builtin_prefetch(line, 1);
#endif
}

#endif
