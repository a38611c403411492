/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * provider -- a core provider for tests of the hook, which records every
 * registration.
 *
 * A test opens a fabric of it, lets the hook of libpinion-hook-fi.so at it as
 * libfabric would, opens domains through libfabric's inline calls, and looks at
 * what reached the provider. MRs are not freed while the provider is open, so
 * that the use of a closed one is found.
 *
 * Threads: any may register and close; the rest is for one.
 */
#ifndef PN_TESTS_HOOK_PROVIDER_H
#define PN_TESTS_HOOK_PROVIDER_H

#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <stdbool.h>

struct provider_mr {
	struct fid_mr fid;
	struct provider_domain *domain;
	char *addr;
	size_t len;
	uint64_t access, flags;
	const struct fid *bound;
	bool enabled, closed;
	struct provider_mr *older;
};

struct provider_domain {
	struct fid_domain fid;
	struct provider_fabric *fabric;
	struct fi_ops_mr *mr_ops; /* what fid.mr was, before hooks */
	bool closes_with_mrs;	  /* a careless provider */
	unsigned max_live;	  /* -FI_ENOMEM beyond; 0: no limit */
	uint64_t bound_flags;

	pthread_mutex_t lock; /* protects what follows */
	unsigned nregistered, nlive, nwrong;
	uint64_t last_key;
	struct provider_mr *newest;
};

struct provider_fabric {
	struct fid_fabric fid;
	unsigned ndomains;
};

/* Opens a fabric of the provider `name`, hooked or not, as the hook decides. */
void provider_open(struct provider_fabric *fabric, const char *name);
void provider_close(struct provider_fabric *fabric);

/* Opens a domain through the fabric's table. It is closed by fi_close() and
 * stays readable until provider_free(). */
struct provider_domain *provider_domain(struct provider_fabric *fabric,
					const struct fi_info *info);
void provider_free(struct provider_domain *domain);

/* Whether the hook has put its tables into the domain. */
bool provider_is_hooked(const struct provider_domain *domain);

/* The MR with this descriptor, or NULL. */
struct provider_mr *provider_mr(struct provider_domain *domain,
				const void *desc);

/* Whether a fid_mr is the provider's own. */
bool provider_owns(struct provider_domain *domain, const struct fid_mr *mr);

#endif
