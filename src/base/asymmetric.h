/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * asymmetric -- orders two threads of which one acts often and the other
 * rarely.
 *
 * The pattern is Dekker's: the frequent side stores A then loads B, the rare
 * side stores B then loads A, and at least one must see the store of the other.
 * That needs a full barrier on both sides. membarrier(2) lets the rare side
 * execute the barrier on every CPU that runs this process, so that the frequent
 * side pays for a compiler barrier only. Sanitizers do not know membarrier:
 * their builds use sequentially consistent operations on both sides.
 *
 * pn_asymmetric_init() says whether the kernel has membarrier(2). Without it
 * the frequent side must take a lock that the rare side takes, too.
 */
#ifndef PN_BASE_ASYMMETRIC_H
#define PN_BASE_ASYMMETRIC_H

#include <stdatomic.h>
#include <stdbool.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define PN_ASYMMETRIC_FENCES 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define PN_ASYMMETRIC_FENCES 1
#endif
#endif
#ifndef PN_ASYMMETRIC_FENCES
#define PN_ASYMMETRIC_FENCES 0
#endif

/* Whether pn_asymmetric_heavy() works here. To be called again after fork(). */
bool pn_asymmetric_init(void);

/* The rare side's barrier: microseconds. */
void pn_asymmetric_heavy(void);

/* The frequent side's store. Its later loads are ordered after the store. */
#define pn_asymmetric_store(object, value)                           \
	do {                                                         \
		if (PN_ASYMMETRIC_FENCES) {                          \
			atomic_store(object, value);                 \
		} else {                                             \
			atomic_store_explicit(object, value,         \
					      memory_order_release); \
			atomic_signal_fence(memory_order_seq_cst);   \
		}                                                    \
	} while (0)

/* Loads that follow such a store, and the rare side's loads. */
#define pn_asymmetric_load(object)     \
	(PN_ASYMMETRIC_FENCES          \
		 ? atomic_load(object) \
		 : atomic_load_explicit(object, memory_order_acquire))

#endif
