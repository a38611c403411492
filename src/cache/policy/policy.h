/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * policy -- which cached regions to evict when room is needed.
 *
 * A policy knows regions only as nodes: a weight in pages and what it has seen
 * of them. The cache embeds a node in each region. The trace simulator drives
 * the same cache, so both run the same files.
 *
 * Life of a node: pn_policy_insert() when its region has been registered;
 * pn_policy_use() for each later use (in order, possibly late: the cache drains
 * access logs on misses); then remove() (the memory was released), or evict()
 * returns it as a victim. Afterwards it may be inserted again as new.
 *
 * Order is lazy. A use only stamps the node with the policy's clock; evict()
 * reads the stamps and sorts then. A policy that must know of a use at once
 * calls pn_policy_request_access(): access() gets the next use of the node, and
 * all further ones until pn_policy_ignore_access(). A new epoch requests the
 * accesses of all nodes. A call of access() that was not requested does no
 * harm.
 *
 * At rest: the policy knows a node between insert() and its end; `link` and the
 * fields below it are the policy's then.
 * Threads: the cache calls it under its lock, so every call is short: O(1) or
 * O(log n), except where the algorithm of a paper says otherwise (MRE resorts
 * its lower section when the cache is full) and where many uses are sorted at
 * once.
 */
#ifndef PN_CACHE_POLICY_H
#define PN_CACHE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct pn_policy_node {
	uint32_t npages : 30; /* above 0; set by the owner before insert() */
	uint32_t section : 2; /* the part of the policy that it is in */
	uint32_t name; /* a hash by the owner: the same when the region returns
			*/
	struct pn_list link;
	uint64_t used;	       /* the policy's clock at its last use */
	double factor;	       /* eviction factor or priority */
	uint32_t heap_at;      /* position in a heap, if the policy keeps one */
	uint32_t ignore_epoch; /* in this epoch access() is not called */
};

/* What a policy is told when it opens. */
struct pn_policy_attr {
	size_t capacity_pages; /* of the budget; SIZE_MAX: only regions count */
	unsigned batch;	       /* victims in one batch of a batching policy */
	/* Costs in microseconds: registering and deregistering p pages cost
	 * fixed + p * page each; a batch of deregistrations pays its fixed
	 * part once. */
	double register_fixed, register_page;
	double deregister_fixed, deregister_page;
};

struct pn_policy;

/* Whether a node may not be evicted now (its region is in use). Asked at most
 * once per node and evict(). A node that is not busy becomes a victim at once,
 * so the owner may already let go of it here. The function does not call the
 * policy. */
typedef bool pn_policy_busy_fn(void *arg, const struct pn_policy_node *node);

/* What evict() is asked for. */
struct pn_policy_want {
	size_t npages;		 /* at least so many pages ... */
	unsigned nregions;	 /* ... and at least so many regions */
	pn_policy_busy_fn *busy; /* NULL: nothing is */
	void *busy_arg;
};

typedef void pn_policy_node_fn(void *arg, struct pn_policy_node *node);

struct pn_policy_ops {
	const char *name; /* "lru" */
	const char *help; /* one line */
	bool batched; /* victims of one evict() are deregistered in one batch */
	int (*open)(const struct pn_policy_attr *attr, struct pn_policy **out);
	void (*close)(struct pn_policy *policy);
	/* The budget changed. */
	void (*resize)(struct pn_policy *policy, size_t capacity_pages);
	/* node->used is set, and accesses are ignored. */
	void (*insert)(struct pn_policy *policy, struct pn_policy_node *node);
	/* A use whose access() was requested. */
	void (*access)(struct pn_policy *policy, struct pn_policy_node *node);
	void (*remove)(struct pn_policy *policy, struct pn_policy_node *node);
	/* Removes victims, appends them to `victims` (by link, in the order of
	 * eviction) and returns how many: as many as wanted, or all nodes that
	 * are not busy if these are fewer; a batching policy may take more, but
	 * nothing when nothing is wanted. Busy nodes stay where they are. */
	unsigned (*evict)(struct pn_policy *policy,
			  const struct pn_policy_want *want,
			  struct pn_list *victims);
	/* Calls fn with every node there is, in any order. */
	void (*each)(struct pn_policy *policy, pn_policy_node_fn *fn,
		     void *arg);
	/* Checks the policy's own structures; asserts. For tests. */
	void (*check)(struct pn_policy *policy);
};

/* What every policy struct begins with. */
struct pn_policy {
	const struct pn_policy_ops *ops;
	uint64_t clock; /* inserts and uses so far */
	uint32_t epoch; /* the policy's own; see pn_policy_request_access() */
};

extern const struct pn_policy_ops pn_policy_lru;
extern const struct pn_policy_ops pn_policy_fmrd;
extern const struct pn_policy_ops pn_policy_mre;
extern const struct pn_policy_ops pn_policy_greedy;
extern const struct pn_policy_ops pn_policy_keep;
extern const struct pn_policy_ops pn_policy_cost;

/* The index-th policy; NULL: there are no more. */
const struct pn_policy_ops *pn_policy_at(unsigned index);

/* Opens the policy called name. -ENOENT: there is none; -ENOMEM. */
int pn_policy_open(const char *name, const struct pn_policy_attr *attr,
		   struct pn_policy **out);

/* NULL is fine. */
void pn_policy_close(struct pn_policy *policy);

static inline void pn_policy_insert(struct pn_policy *policy,
				    struct pn_policy_node *node)
{
	node->used = ++policy->clock;
	node->ignore_epoch = policy->epoch;
	policy->ops->insert(policy, node);
}

static inline void pn_policy_request_access(struct pn_policy *policy,
					    struct pn_policy_node *node)
{
	node->ignore_epoch = policy->epoch - 1;
}

static inline void pn_policy_ignore_access(struct pn_policy *policy,
					   struct pn_policy_node *node)
{
	node->ignore_epoch = policy->epoch;
}

static inline void pn_policy_use(struct pn_policy *policy,
				 struct pn_policy_node *node)
{
	node->used = ++policy->clock;
	if (node->ignore_epoch != policy->epoch)
		policy->ops->access(policy, node);
}

#endif
