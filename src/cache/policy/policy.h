/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * policy -- which cached regions to give up when room is needed.
 *
 * A policy knows regions only as nodes: a weight in pages and what it has
 * seen of them. The cache embeds a node in each region; the trace simulator
 * drives that same cache, so both run the very same files.
 *
 * Life of a node: pn_policy_insert() when its region has been registered,
 * pn_policy_use() for each later use (in order, possibly late: the cache
 * drains access logs on misses), then either remove() (the memory was
 * released) or evict() hands it back as a victim. Afterwards it may be
 * inserted again as new.
 *
 * Order is lazy. A use only stamps the node with the policy's clock; whoever
 * evicts looks at the stamps and sorts then. A policy that must know of a use
 * at once calls pn_policy_request_access(): the node's next use comes to
 * access(), and so do all until pn_policy_ignore_access(). A new epoch makes it
 * listen to all nodes. Being told more than it asked for does no harm.
 *
 * At rest: a node between insert() and its end is known to the policy; `link`
 * and the fields below it are the policy's own then.
 * Threads: none of its own; the cache calls it under its lock, so every call
 * is short: O(1) or O(log n), except where a paper's algorithm says otherwise
 * (MRE resorts its lower section when the cache is full) and where many uses
 * are sorted at once.
 */
#ifndef PN_CACHE_POLICY_H
#define PN_CACHE_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"

struct pn_policy_node {
	uint32_t npages : 30; /* above 0; set by the owner before insert() */
	uint32_t section : 2; /* which part of the policy it stands in */
	uint32_t name;	      /* the owner's: the same when a region returns */
	struct pn_list link;
	uint64_t used;	  /* the policy's clock at its last use */
	double factor;	  /* eviction factor or priority */
	uint32_t heap_at; /* position in a heap, if the policy keeps one */
	uint32_t heard;	  /* epoch in which access() has heard enough of it */
};

/* What a policy needs to know of the world. */
struct pn_policy_attr {
	size_t capacity_pages; /* of the budget; SIZE_MAX: only regions count */
	unsigned batch; /* how many victims a batching policy likes at once */
	/* Costs in microseconds: registering and deregistering p pages cost
	 * fixed + p * page each; a batch of deregistrations pays its fixed
	 * part once. */
	double register_fixed, register_page;
	double deregister_fixed, deregister_page;
};

struct pn_policy;

/* Says whether a node may not be evicted now (its region is in use). Asked at
 * most once per node and evict(); a node that is not busy is a victim at once,
 * so the owner may already let go of it here. It does not call the policy. */
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
	/* node->used is set, and it has heard enough of it. */
	void (*insert)(struct pn_policy *policy, struct pn_policy_node *node);
	/* Was used, and the policy listens. */
	void (*access)(struct pn_policy *policy, struct pn_policy_node *node);
	void (*remove)(struct pn_policy *policy, struct pn_policy_node *node);
	/* Takes victims out, appends them to `victims` (by link, first to go
	 * first) and returns how many. As many as wanted if there are, else
	 * all there are; a batching policy may take more, but nothing when
	 * nothing is wanted. Busy nodes stay where they are. */
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

/* The policies there are, one by one; NULL at the end. */
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
	node->heard = policy->epoch;
	policy->ops->insert(policy, node);
}

static inline void pn_policy_request_access(struct pn_policy *policy,
					    struct pn_policy_node *node)
{
	node->heard = policy->epoch - 1;
}

static inline void pn_policy_ignore_access(struct pn_policy *policy,
					   struct pn_policy_node *node)
{
	node->heard = policy->epoch;
}

static inline void pn_policy_use(struct pn_policy *policy,
				 struct pn_policy_node *node)
{
	node->used = ++policy->clock;
	if (node->heard != policy->epoch)
		policy->ops->access(policy, node);
}

#endif
