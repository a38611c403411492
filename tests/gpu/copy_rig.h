/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * copy_rig -- a copier over the device `cuda` and a cache, for tests of
 * src/copy.
 */
#ifndef PN_TESTS_GPU_COPY_RIG_H
#define PN_TESTS_GPU_COPY_RIG_H

#include "cache/cache.h"
#include "copy/copy.h"
#include "device/cuda/gate.h"
#include "gpu_util.h"

struct rig {
	const struct pn_cuda_driver *cu;
	pn_cu_context context;
	struct pn_device *device;
	struct pn_budget budget;
	struct pn_cache *cache;
	struct pn_copier *copier;
};

struct rig_attr {
	bool keep;
	size_t max_bytes;
	unsigned workers;
};

/* Small, so that a limit of 8 MiB of pinned memory is enough. */
#define RIG_BLOCK ((size_t)64 << 10)

static inline void rig_open(struct rig *rig, const struct rig_attr *attr)
{
	struct pn_cache_attr cache = { .budget = &rig->budget,
				       .keep_by_address = attr->keep };
	struct pn_copier_attr copier = {
		.keep = attr->keep,
		.max_workers = attr->workers,
		.block_bytes = RIG_BLOCK,
		.background_bytes = 4 * RIG_BLOCK,
		.min_bytes = RIG_BLOCK,
	};

	*rig = (struct rig){ .cu = gpu_driver() };
	rig->context = gpu_use_primary(rig->cu);
	assert_int_equal(pn_device_open("cuda", NULL, &rig->device), 0);
	/* As measured on an H200: choices do not depend on this machine. */
	rig->device->costs = (struct pn_costs){
		.register_ns = 50000,
		.register_page_ns = 160,
		.deregister_ns = 31000,
		.deregister_page_ns = 67,
		.copy_byte_ns = 1 / 7.0,
		.put_byte_ns = 1 / 55.0,
		.get_byte_ns = 1 / 55.0,
	};
	pn_budget_init(&rig->budget, rig->device,
		       attr->max_bytes ? attr->max_bytes : (size_t)1 << 30, 0,
		       1);
	cache.device = rig->device;
	assert_int_equal(pn_cache_open(&cache, &rig->cache), 0);
	copier.driver = rig->cu;
	copier.primary = rig->context;
	copier.device = rig->device;
	copier.cache = rig->cache;
	assert_int_equal(pn_copier_open(&copier, &rig->copier), 0);
}

static inline void rig_close(struct rig *rig)
{
	pn_copier_close(rig->copier);
	pn_cache_close(rig->cache);
	assert_int_equal(rig->budget.bytes, 0);
	assert_int_equal(pn_cuda_gate_held_pages(), 0);
	pn_device_close(rig->device);
	rig->cu->primary_ctx_release(0);
}

static inline struct pinion_cuda_stats rig_stats(struct rig *rig)
{
	struct pinion_cuda_stats stats;

	pn_copier_query(rig->copier, &stats);
	return stats;
}

static inline int rig_copy(struct rig *rig, uintptr_t dst, uintptr_t src,
			   size_t bytes, pn_cu_stream stream)
{
	struct pn_copy_op op = { .dst = (void *)dst,
				 .src = (const void *)src,
				 .bytes = bytes,
				 .stream = stream };

	return pn_copier_copy(rig->copier, &op, NULL);
}

#endif
