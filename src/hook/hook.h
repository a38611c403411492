/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * hook -- libpinion-hook-fi.so: registrations of unmodified libfabric programs
 * go through pinion's cache, over any provider. FI_HOOK names it;
 * `pinion run --fabric` sets everything up.
 *
 * How libfabric calls it. A provider without getinfo() whose name is
 * ofi_hook_NAME is a hook: after each fi_fabric(), also of a utility provider
 * that opens the fabric below it, libfabric calls the hook's fabric() with the
 * new fabric. The hooks of libfabric wrap every object of a program. This one
 * replaces tables of functions in the objects of the provider: the fabric's
 * (to see domains), the domain's (to see registrations and its end). All other
 * objects are the provider's own, untouched, and data transfers do not pass
 * here.
 *
 * Nouns
 *   fabric  a fabric of a core provider, with our tables
 *   domain  one that keeps memory: it has our tables and a context of pinion
 *           (pinion/registrar.h) whose functions are the provider's. All state
 *           is per domain. Domains that cannot keep anything are not touched.
 *   region  a registration that the provider made for the cache
 *   MR      what the program gets instead of the provider's fid_mr: the
 *           descriptor, and with remote access the key, of the region that it
 *           has pinned
 *
 * Which fabrics. Core providers only: of tcp;ofi_rxm the fabric of tcp. Not
 * those of utility providers ("ofi_..."), of lnx, and of pinion's own provider.
 *
 * Which domains. mr_mode has FI_MR_PROV_KEY and FI_MR_VIRT_ADDR (FI_MR_BASIC
 * has both), and not FI_MR_RAW, FI_MR_MMU_NOTIFY or FI_MR_ENDPOINT; control
 * calls may come from any thread (no FI_PROGRESS_CONTROL_UNIFIED).
 *
 * What is kept after fi_close() of an MR
 *   | registration                                        | kept              |
 *   |-----------------------------------------------------|-------------------|
 *   | FI_SEND, FI_RECV, FI_READ, FI_WRITE only            | yes               |
 *   | also FI_REMOTE_READ or FI_REMOTE_WRITE              | with keep_remote  |
 *   | iWARP: FI_READ, which lets peers write there        | with keep_remote  |
 *   | a second MR with remote access of the same bytes    | no: unique keys   |
 *   | remote access to less than is cached: bytes, rights | no: exact rights  |
 *   | flags, among them FI_RMA_EVENT (counters)           | passed through    |
 *   | several iovecs, an offset, length 0, an auth key    | passed through    |
 *   | device memory (FI_HMEM interfaces)                  | passed through    |
 *   | of a domain whose EQ reports registrations, or      | passed through    |
 *   |   whose provider-specific operations were opened    |                   |
 *   | made by pinion itself (pn_own_registration())       | passed through    |
 *   | the cache has no room for it, or fails              | passed through    |
 * Passed through means that the program gets the provider's own fid_mr. When
 * the provider has no memory for one of these, the cache is emptied first.
 * Utility providers add remote access: ofi_rxm adds FI_REMOTE_READ to FI_SEND.
 *
 * At rest: a region with remote access is pinned by at most one MR. An MR of
 * remote access has a region of exactly its bytes and rights, and its key. An
 * MR without has a key that is no key of the provider, unique in the process.
 * refs of a domain == 1 until it is closed + its MRs.
 *
 * The end. fi_close() of a domain empties the cache first, so the provider says
 * -FI_EBUSY only because of the program's own objects. A provider that closes a
 * domain with MRs leaves them to be closed later: they free our memory only.
 *
 * fork: what is not in use is deregistered before. A child cannot use the
 * parent's contexts: its registrations pass through.
 *
 * Threads: any, as libfabric's control calls. The lock of the list of domains
 * is held while a fork empties caches; nothing of libfabric is called under
 * another lock.
 *
 * Errors are those of the provider: what the cache cannot do is passed through.
 */
#ifndef PN_HOOK_H
#define PN_HOOK_H

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <stdatomic.h>
#include <stdbool.h>

#include <pinion/pinion.h>

#include "base/list.h"
#include "device/registrar/per_range.h"

/* FI_MR_BASIC and FI_REG_MR. The headers of libfabric 2 warn about the use of
 * these names. */
#define PN_HOOK_MR_BASIC (1 << 0)
#define PN_HOOK_REG_MR	 (1ULL << 59)

#define PN_HOOK_REMOTE_ACCESS \
	(PINION_ACCESS_REMOTE_READ | PINION_ACCESS_REMOTE_WRITE)

struct pn_hook_domain {
	struct pn_registrar_per_range per_range; /* first: see per_range.h */
	struct fid_domain *fid;
	struct fi_ops_mr *real_mr; /* the provider's tables */
	struct fi_ops *real_ops;
	struct fi_ops_mr *mr; /* ours */
	struct fi_ops *ops;
	struct pinion_context *context;
	bool keeps_remote;
	bool is_iwarp;
	bool has_auth_keys, has_ifaces; /* struct fi_mr_attr has the fields */
	_Atomic bool passes;		/* everything, from now on */
	_Atomic bool closed;
	_Atomic unsigned refs; /* open + MRs */
	struct pn_list link;   /* in the list of domains */
};

struct pn_hook_region {
	struct fid_mr *mr; /* the provider's */
	void *addr;
	size_t len;
	unsigned access;   /* PINION_ACCESS_ bits */
	_Atomic bool lent; /* its key is that of an MR */
};

/* --- tables (table.c) ----------------------------------------------------- */

/* Returns a copy of a provider's table of functions, which begins with its size
 * in bytes. `min_bytes`: the size of the type that the copy is used as; what
 * the provider does not have is 0. NULL: no memory. */
void *pn_hook_table(const void *real, size_t min_bytes, void *owner);
void *pn_hook_table_owner(const void *table);
void pn_hook_table_free(void *table);

/* --- domains (domain.c) --------------------------------------------------- */

/* Lets pinion keep memory of a domain that was just opened with `info`, if it
 * can: else the domain stays as it is. */
void pn_hook_domain(struct fid_domain *fid, const struct fi_info *info,
		    uint32_t api_version);
void pn_hook_domain_put(struct pn_hook_domain *domain);

/* --- regions (region.c) --------------------------------------------------- */

/* The registrar over the provider's functions. */
void pn_hook_registrar(struct pn_hook_domain *domain,
		       const struct fi_info *info,
		       struct pinion_registrar *out);

/* --- MRs (mr.c) ----------------------------------------------------------- */

/* Puts the functions that register into a domain's table. */
void pn_hook_mr_ops(struct fi_ops_mr *ops);

#endif
