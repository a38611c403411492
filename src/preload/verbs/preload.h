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
 *   not kept: registered through pinion for this region alone, by a pin that
 *   bypasses the cache. With remote access exactly the bytes asked for,
 *   deregistered before ibv_dereg_mr() returns, so that a key that the program
 *   has given up does not work for peers. Local memory is deregistered soon
 *   after; so is, with keep_remote, memory of which no release would be noticed
 *   (pn_cache_unpin_now()).
 *   passed: libibverbs' own call, as without pinion.
 *
 *   Without keep_remote, memory with remote access is kept, too, where the
 *   adapter has memory windows of type 1 and that pays (choice.c), or always
 *   with the option keep_windows=yes; never with keep_windows=no. The
 *   registration gives peers nothing, and the region has the key of a window
 *   with the exact bytes and rights, which is bound by pn_ibv_region_open() and
 *   refused before ibv_dereg_mr() returns. When a bind fails or takes longer
 *   than a second, the domain does without windows from then on. A key that the
 *   adapter can neither bind away nor end with its window fails
 *   ibv_dereg_mr(): the region stays, and the program may try again.
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
 *   - What is kept leaves a quarter of the objects that the RDMA cgroup allows.
 *     A queue pair or another object of the program that fails all the same for
 *     want of objects or memory is tried again when everything kept was given
 *     up.
 *   - Nothing is kept when fork() copies the process, so the child has all
 *     memory that the program has deregistered (ibv_fork_init()).
 *   - Registrations that pinion makes itself, on whatever level, pass
 *     (pn_own_registration()).
 *
 * Budget: the process's (cache/budget.h) holds over all contexts.
 *
 * Threads: any. `users` (domain.c) is held for reading by every call that is
 * taken, for writing while domains come and go and during fork(). The functions
 * of libibverbs run under it only where pinion registers and deregisters; then
 * they may call back here, so ibv_dereg_mr() and ibv_rereg_mr() of what is not
 * a region take nothing but the lock of a bucket.
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

#include "base/lock.h"
#include "device/cost_estimate.h"

/* The header's macros choose between two of the functions below. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

/* --- libibverbs: real.c ----------------------------------------------------
 */

/* Every function that is taken: C(symbol, version, type, parameters). */
#define PN_IBV_CALLS(C)                                                      \
	C(ibv_alloc_pd, "IBVERBS_1.1", struct ibv_pd *,                      \
	  (struct ibv_context * adapter))                                    \
	C(ibv_dealloc_pd, "IBVERBS_1.1", int, (struct ibv_pd * pd))          \
	C(ibv_close_device, "IBVERBS_1.1", int,                              \
	  (struct ibv_context * adapter))                                    \
	C(ibv_reg_mr, "IBVERBS_1.1", struct ibv_mr *,                        \
	  (struct ibv_pd * pd, void *addr, size_t len, int access))          \
	C(ibv_reg_mr_iova, "IBVERBS_1.7", struct ibv_mr *,                   \
	  (struct ibv_pd * pd, void *addr, size_t len, uint64_t iova,        \
	   int access))                                                      \
	C(ibv_reg_mr_iova2, "IBVERBS_1.8", struct ibv_mr *,                  \
	  (struct ibv_pd * pd, void *addr, size_t len, uint64_t iova,        \
	   unsigned access))                                                 \
	C(ibv_rereg_mr, "IBVERBS_1.1", int,                                  \
	  (struct ibv_mr * mr, int flags, struct ibv_pd *pd, void *addr,     \
	   size_t len, int access))                                          \
	C(ibv_dereg_mr, "IBVERBS_1.1", int, (struct ibv_mr * mr))            \
	C(ibv_create_comp_channel, "IBVERBS_1.0", struct ibv_comp_channel *, \
	  (struct ibv_context * adapter))                                    \
	C(ibv_create_cq, "IBVERBS_1.1", struct ibv_cq *,                     \
	  (struct ibv_context * adapter, int cqe, void *context,             \
	   struct ibv_comp_channel *channel, int vector))                    \
	C(ibv_create_srq, "IBVERBS_1.1", struct ibv_srq *,                   \
	  (struct ibv_pd * pd, struct ibv_srq_init_attr * attr))             \
	C(ibv_create_qp, "IBVERBS_1.1", struct ibv_qp *,                     \
	  (struct ibv_pd * pd, struct ibv_qp_init_attr * attr))              \
	C(ibv_create_ah, "IBVERBS_1.1", struct ibv_ah *,                     \
	  (struct ibv_pd * pd, struct ibv_ah_attr * attr))

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

/* --- objects of an adapter: objects.c --------------------------------------
 */

/* How many registrations the contexts over an adapter have, and may have
 * together. */
struct pn_ibv_objects;

/* Of the adapter; reads its limit. NULL: no memory. */
struct pn_ibv_objects *pn_ibv_objects_of(const struct ibv_context *adapter,
					 const struct ibv_device_attr *attr);
size_t pn_ibv_objects_max(const struct pn_ibv_objects *objects);

/* False: there may be none more. */
bool pn_ibv_object_get(struct pn_ibv_objects *objects);
void pn_ibv_object_put(struct pn_ibv_objects *objects);

/* In a child of fork(): they are the parent's. */
void pn_ibv_objects_in_child(void);

/* --- whether windows pay: choice.c -----------------------------------------
 */

struct pn_ibv_choice {
	struct pn_mutex lock; /* buffers, nreuses */
	struct pn_ibv_buffer *buffers;
	uint64_t nreuses; /* of all buffers */
	/* Results of the estimates; of a bind the sum. */
	double reg_ns, reg_page_ns, dereg_ns, dereg_page_ns, bind_ns,
		bind_page_ns;
	struct pn_cost_estimate reg, dereg, bind;
};

void pn_ibv_choice_init(struct pn_ibv_choice *choice);
void pn_ibv_choice_fini(struct pn_ibv_choice *choice);

/* What a call took. */
void pn_ibv_choice_registered(struct pn_ibv_choice *choice, const void *addr,
			      size_t len, uint64_t ns);
void pn_ibv_choice_deregistered(struct pn_ibv_choice *choice, const void *addr,
				size_t len, uint64_t ns);
void pn_ibv_choice_bound(struct pn_ibv_choice *choice, uint64_t ns);

/* Whether the memory has come often enough for windows to be opened and
 * measured. */
bool pn_ibv_choice_wants(struct pn_ibv_choice *choice,
			 const struct pn_ibv_request *request);
/* Whether a window costs less than a registration, when both were measured. */
bool pn_ibv_choice_pays(const struct pn_ibv_choice *choice,
			const struct pn_ibv_request *request);
/* How many registrations this thread has made. */
unsigned pn_ibv_choice_count(void);
/* The request was to get a window. count: pn_ibv_choice_count() before. */
void pn_ibv_choice_used(struct pn_ibv_choice *choice,
			const struct pn_ibv_request *request, bool worked,
			unsigned count);

/* --- domains: domain.c -----------------------------------------------------
 */

struct pn_ibv_domain;

/* Every call that uses domains or regions is between these two. */
void pn_ibv_enter(void);
void pn_ibv_leave(void);
/* Whether this thread is. */
bool pn_ibv_inside(void);

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

/* Whether this memory of peers is kept with the key of a window. May open the
 * windows. */
bool pn_ibv_wants_window(struct pn_ibv_domain *domain,
			 const struct pn_ibv_request *request);
/* NULL: windows are not chosen but asked for. */
struct pn_ibv_choice *pn_ibv_domain_choice(struct pn_ibv_domain *domain);

/* With the context for IBV_ACCESS_MW_BIND. */
struct pn_ibv_windows *pn_ibv_domain_windows(struct pn_ibv_domain *domain);

#define PN_IBV_REMOTE                                       \
	(IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | \
	 IBV_ACCESS_REMOTE_ATOMIC)

/* --- memory windows: windows.c ---------------------------------------------
 */

struct pn_ibv_windows;
struct pn_ibv_window;

/* A queue pair of the domain that binds windows, and windows for later. With a
 * choice binds are measured. NULL: the adapter has none of type 1, iWARP, or no
 * port is active. */
struct pn_ibv_windows *pn_ibv_windows_open(struct ibv_pd *pd,
					   struct pn_ibv_choice *choice);
/* When no window is open. */
void pn_ibv_windows_close(struct pn_ibv_windows *windows);
/* Frees the windows for later. */
void pn_ibv_windows_flush(struct pn_ibv_windows *windows);
/* Whether windows can be bound. False: never again. */
bool pn_ibv_windows_work(const struct pn_ibv_windows *windows);

/* Binds a window to exactly the bytes and rights of peers of the request, in a
 * registration that covers them. NULL: it failed. */
struct pn_ibv_window *pn_ibv_window_open(struct pn_ibv_windows *windows,
					 struct ibv_mr *real,
					 const struct pn_ibv_request *request,
					 uint32_t *key);
/* The key is refused after the return. On failure, a negative errno, it may go
 * on working, and the window stays open. */
int pn_ibv_window_close(struct pn_ibv_windows *windows,
			struct pn_ibv_window *window, struct ibv_mr *real);

/* --- regions: region.c -----------------------------------------------------
 */

/* After pn_ibv_enter(). NULL: pinion does not take it, pass. */
struct ibv_mr *pn_ibv_region_open(const struct pn_ibv_request *request);

/* Whether pn_ibv_region_open() made it. Needs no pn_ibv_enter(): pinion calls
 * ibv_dereg_mr(), too, from threads that are inside already, or that another
 * waits for which holds `users` for writing. */
bool pn_ibv_region_is_ours(const struct ibv_mr *mr);

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

/* In a child of fork(), before anything else of regions. */
void pn_ibv_regions_in_child(void);

#endif
