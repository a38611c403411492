/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * preload/verbs -- libpinion-verbs.so: memory that unmodified verbs programs
 * register goes through pinion's cache. `pinion run --verbs` preloads it.
 *
 * Nouns
 *   domain   a protection domain that the program got from ibv_alloc_pd().
 *            Domains that come from elsewhere (parent domains, imported ones,
 *            those that pinion allocates for itself) are not known here, and
 *            everything in them passes.
 *   kind     the rights that a registration gives to peers, and relaxed
 *            ordering: IBV_ACCESS_ bits without IBV_ACCESS_LOCAL_WRITE.
 *   context  a context of pinion over a domain (pinion/registrar.h), one for
 *            each kind that the program uses there. So no buffer ever gets a
 *            key with other rights of peers than it asked for.
 *   region   what the program gets from ibv_reg_mr(): a struct ibv_mr of its
 *            own, with the keys of the registration below, which others may
 *            share. `real` is the registration of libibverbs.
 *
 * What is kept when
 *   kept: the registration outlives ibv_dereg_mr() and serves the next
 *   ibv_reg_mr() of the memory, until the memory is released, the budget needs
 *   room, the process forks, or the domain ends.
 *
 *   access                       default             option keep_remote
 *   local only                   kept, whole pages   kept, whole pages
 *   remote read, write, atomic   not kept            kept, the exact bytes
 *   the same, inside or across   not kept            not kept
 *     other bytes that are kept
 *   memory windows, zero based,  passed              passed
 *     on demand, huge pages, unknown flags, iova other than the address,
 *     dmabuf, device memory, imported memory, ibv_rereg_mr(), length 0,
 *     other domains
 *   memory of which no release   not kept            not kept
 *     would be noticed (monitor.h)
 *
 *   not kept: registered through pinion for this region alone. With remote
 *   access (pinion_device_register()) exactly the bytes asked for, deregistered
 *   before ibv_dereg_mr() returns, so that a key that the program has given up
 *   does not work for peers; counted in the budget, and in no trace. Local
 *   memory (a pin that bypasses the cache) is deregistered soon after.
 *   passed: libibverbs' own call, as without pinion.
 *
 * Life of a region: pn_ibv_region_open() pins, pn_ibv_region_close() unpins.
 * ibv_close_device() with regions left, and fork() in the child, make them
 * orphans: nothing of them is registered any more, and ibv_dereg_mr() frees
 * them. ibv_rereg_mr() turns a region into one that has a registration of its
 * own, outside pinion.
 *
 * What holds at rest
 *   - A key of a region is good from the return of ibv_reg_mr() to the call of
 *     ibv_dereg_mr(), on every queue pair of the domain.
 *   - A registration of the program never fails because of what pinion keeps:
 *     what pinion cannot register, libibverbs is asked for, and if that fails
 *     for want of memory everything kept is given up before a second try. The
 *     error is libibverbs'.
 *   - Before ibv_dealloc_pd() and ibv_close_device() nothing of the domain or
 *     the device is kept.
 *   - Nothing is kept when fork() copies the process, so the child has all
 *     memory that the program has deregistered (ibv_fork_init()).
 *   - Registrations that pinion makes itself, on whatever level, pass
 *     (pn_own_registration()).
 *
 * Budget: the process's (cache/budget.h) holds over all contexts.
 *
 * Threads: any. `users` (domain.c) is held for reading by every call that is
 * taken, for writing while domains come and go and during fork(). The functions
 * of libibverbs run under it only where pinion registers and deregisters.
 *
 * Errors: those of libibverbs, by errno.
 *
 * Not reached: programs that are linked statically with libibverbs or libc,
 * setuid programs, libraries loaded with dlmopen(), or with RTLD_DEEPBIND and
 * a libibverbs of their own. dlsym() and dlvsym() are (preload/dlsym.h).
 */
#ifndef PN_PRELOAD_VERBS_PRELOAD_H
#define PN_PRELOAD_VERBS_PRELOAD_H

#include <infiniband/verbs.h>
#include <stdbool.h>

#include <pinion/pinion.h>

/* The header's macros choose between two of the functions below. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* --- libibverbs: real.c ----------------------------------------------------
 */

/* Every function that is taken: C(symbol, version, type, parameters). */
#define PN_IBV_CALLS(C)                                                  \
	C(ibv_alloc_pd, "IBVERBS_1.1", struct ibv_pd *,                  \
	  (struct ibv_context * adapter))                                \
	C(ibv_dealloc_pd, "IBVERBS_1.1", int, (struct ibv_pd * pd))      \
	C(ibv_close_device, "IBVERBS_1.1", int,                          \
	  (struct ibv_context * adapter))                                \
	C(ibv_reg_mr, "IBVERBS_1.1", struct ibv_mr *,                    \
	  (struct ibv_pd * pd, void *addr, size_t len, int access))      \
	C(ibv_reg_mr_iova, "IBVERBS_1.7", struct ibv_mr *,               \
	  (struct ibv_pd * pd, void *addr, size_t len, uint64_t iova,    \
	   int access))                                                  \
	C(ibv_reg_mr_iova2, "IBVERBS_1.8", struct ibv_mr *,              \
	  (struct ibv_pd * pd, void *addr, size_t len, uint64_t iova,    \
	   unsigned access))                                             \
	C(ibv_rereg_mr, "IBVERBS_1.1", int,                              \
	  (struct ibv_mr * mr, int flags, struct ibv_pd *pd, void *addr, \
	   size_t len, int access))                                      \
	C(ibv_dereg_mr, "IBVERBS_1.1", int, (struct ibv_mr * mr))

struct pn_ibv_real {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declarator */
#define PN_IBV_FIELD(symbol, version, type, params) type(*symbol) params;
	PN_IBV_CALLS(PN_IBV_FIELD)
#undef PN_IBV_FIELD
};

/* libibverbs' own functions; NULL where this version lacks one. */
const struct pn_ibv_real *pn_ibv_real(void);

/* A registration as the program asks for it. */
struct pn_ibv_request {
	struct ibv_pd *pd;
	void *addr;
	size_t len;
	uint64_t iova;
	unsigned access;
};

/* Registers by libibverbs; NULL and errno. */
struct ibv_mr *pn_ibv_real_reg(const struct pn_ibv_request *request);

/* --- domains: domain.c -----------------------------------------------------
 */

struct pn_ibv_domain;

/* Every call that uses domains or regions is between these two. */
void pn_ibv_enter(void);
void pn_ibv_leave(void);

/* Between the two: the process ends. Nothing is taken any more, and what is
 * still registered is left to the kernel. */
bool pn_ibv_ended(void);

/* The program has allocated a domain. */
void pn_ibv_domain_add(struct ibv_pd *pd);

/* The domain that the program is about to end. Nothing of it is kept when this
 * returns, and it is forgotten if it has no regions. True: it was known. */
bool pn_ibv_domain_remove(struct ibv_pd *pd);

/* The same for all domains of an adapter; their regions become orphans. */
void pn_ibv_adapter_remove(struct ibv_context *adapter);

/* Gives up everything that is kept. False: nothing was. */
bool pn_ibv_give_up(void);

/* NULL: not known. After pn_ibv_enter(). */
struct pn_ibv_domain *pn_ibv_domain_find(struct ibv_pd *pd);

/* Counts the regions of a domain. */
void pn_ibv_domain_ref(struct pn_ibv_domain *domain);
void pn_ibv_domain_unref(struct pn_ibv_domain *domain);

/* The context for registrations with these IBV_ACCESS_ bits; opened at first.
 * NULL: there is none, pass. May sleep. */
struct pinion_context *pn_ibv_context(struct pn_ibv_domain *domain,
				      unsigned access);

/* Whether memory that peers can reach is kept in the domain. */
bool pn_ibv_keeps_remote(const struct pn_ibv_domain *domain);

#define PN_IBV_REMOTE                                       \
	(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | \
	 IBV_ACCESS_REMOTE_ATOMIC)

/* --- regions: region.c -----------------------------------------------------
 */

/* After pn_ibv_enter(). NULL: pinion does not take it, pass. */
struct ibv_mr *pn_ibv_region_open(const struct pn_ibv_request *request);

/* After pn_ibv_enter(). False: the program got mr from libibverbs itself. Else
 * *ret is what ibv_dereg_mr() returns. */
bool pn_ibv_region_close(struct ibv_mr *mr, int *ret);

/* After pn_ibv_enter(). As above, for ibv_rereg_mr(): fields of `change` that
 * `flags` does not name are ignored. */
bool pn_ibv_region_change(struct ibv_mr *mr, int flags,
			  const struct pn_ibv_request *change, int *ret);

/* With `users` held for writing: the regions of the domain, or all (NULL),
 * become orphans. unpin: their pins are ended first. */
void pn_ibv_regions_orphan(const struct pn_ibv_domain *domain, bool unpin);

#endif
