/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/cuda/blocks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pages.h"
#include "device/cuda/gate.h"

#define FLAGS PN_CU_MEMHOSTREGISTER_PORTABLE

/* The driver's lock is not fair: without a pause, others got in only when 2 GiB
 * in 128 blocks were all registered, 103 ms later; with this one within 2.2 ms
 * (doc/design/cuda.md). */
#define PAUSE_NS (50 * PN_NS_PER_US)

static uintptr_t end_of(struct pn_range range)
{
	return range.addr + range.len;
}

/* --- the table ------------------------------------------------------------ */

/* The index of the first block that ends behind addr. */
static size_t first_behind(const struct pn_cuda_blocks *blocks, uintptr_t addr)
	PN_REQUIRES(&blocks->lock)
{
	size_t low = 0, high = blocks->n;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (end_of(blocks->table[middle].range) > addr)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

/* Room for one more block, so that entering it cannot fail. */
static int reserve_locked(struct pn_cuda_blocks *blocks)
	PN_REQUIRES(&blocks->lock)
{
	struct pn_cuda_block *table;
	size_t room = blocks->room ? 2 * blocks->room : 64;

	if (blocks->n < blocks->room)
		return 0;
	table = realloc(blocks->table, room * sizeof(*table));
	if (!table)
		return -ENOMEM;
	blocks->table = table;
	blocks->room = room;
	return 0;
}

static void insert_locked(struct pn_cuda_blocks *blocks,
			  struct pn_cuda_block block) PN_REQUIRES(&blocks->lock)
{
	size_t i = first_behind(blocks, block.range.addr);

	memmove(&blocks->table[i + 1], &blocks->table[i],
		(blocks->n - i) * sizeof(block));
	blocks->table[i] = block;
	blocks->n++;
}

static void remove_locked(struct pn_cuda_blocks *blocks, size_t i)
	PN_REQUIRES(&blocks->lock)
{
	blocks->n--;
	memmove(&blocks->table[i], &blocks->table[i + 1],
		(blocks->n - i) * sizeof(*blocks->table));
}

/* --- the driver's calls --------------------------------------------------- */

static size_t npages(struct pn_range range)
{
	return pn_range_npages(range.addr, range.len);
}

static pn_cu_result call_register(struct pn_cuda_blocks *blocks,
				  struct pn_range range)
{
	uint64_t start = pn_clock_ns();
	pn_cu_result result = blocks->cu->mem_host_register((void *)range.addr,
							    range.len, FLAGS);

	atomic_fetch_add(&blocks->unpaused, range.len);
	if (!result)
		pn_cost_estimate_add(&blocks->reg, 1, npages(range),
				     pn_clock_ns() - start);
	return result;
}

void pn_cuda_blocks_pause(struct pn_cuda_blocks *blocks)
{
	const struct timespec pause = { .tv_nsec = PAUSE_NS };

	if (atomic_load(&blocks->unpaused) < PN_CUDA_BLOCK_BYTES)
		return;
	atomic_store(&blocks->unpaused, 0);
	nanosleep(&pause, NULL);
}

/* Results after which the registration does not exist: the driver does not know
 * it, or it went with its context. After any other error it is still there. */
static bool is_ended(pn_cu_result result)
{
	return !result || result == PN_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED ||
	       result == PN_CUDA_ERROR_CONTEXT_IS_DESTROYED ||
	       result == PN_CUDA_ERROR_DEINITIALIZED ||
	       result == PN_CUDA_ERROR_NOT_INITIALIZED;
}

static pn_cu_result unregister(struct pn_cuda_blocks *blocks,
			       struct pn_range range)
{
	uint64_t start = pn_clock_ns();
	pn_cu_result result =
		blocks->cu->mem_host_unregister((void *)range.addr);

	atomic_fetch_add(&blocks->unpaused, range.len);
	if (!result)
		pn_cost_estimate_add(&blocks->dereg, 1, npages(range),
				     pn_clock_ns() - start);
	else
		pn_debug("cuMemHostUnregister(%p): %s", (void *)range.addr,
			 pn_cuda_error_name(blocks->cu, result));
	return result;
}

/* False: the driver refused, and nothing has changed. */
static bool call_unregister(struct pn_cuda_blocks *blocks,
			    const struct pn_cuda_block *block)
{
	if (!block->foreign && !block->gone) {
		if (!is_ended(unregister(blocks, block->range)))
			return false;
		atomic_fetch_sub(&blocks->bytes, block->range.len);
	}
	if (block->held)
		pn_cuda_gate_drop((void *)block->range.addr, block->range.len);
	return true;
}

static int register_error(pn_cu_result result)
{
	int ret = pn_cuda_errno(result);

	return !ret || ret == -ENOMEM || ret == -ENODEV || ret == -EBUSY
		       ? ret
		       : -EFAULT;
}

/* --- registrations of the program ------------------------------------------
 */

/* Whether somebody else has registered the byte; *end is where that ends. */
static bool is_foreign(const struct pn_cuda_blocks *blocks, uintptr_t addr,
		       uintptr_t *end)
{
	int what[3] = { PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
			PN_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
			PN_CU_POINTER_ATTRIBUTE_RANGE_SIZE };
	unsigned type = 0;
	uintptr_t start = 0;
	size_t bytes = 0;
	void *out[3] = { &type, &start, &bytes };

	if (blocks->cu->pointer_get_attributes(3, what, out, addr) ||
	    type != PN_CU_MEMORYTYPE_HOST)
		return false;
	*end = bytes ? start + bytes : addr + 1;
	return true;
}

/* Half of a range that has several pages, to a page's end. */
static size_t half_of(struct pn_range range)
{
	uintptr_t middle = range.addr + npages(range) / 2 * PN_PAGE_BYTES;

	return (middle & ~(PN_PAGE_BYTES - 1)) - range.addr;
}

/* Registers from the start of *range on as much as the driver takes: less than
 * all of it where the program has registered something behind. Where that
 * begins in the first page, nothing is registered: -EFAULT. */
static int register_most(struct pn_cuda_blocks *blocks, struct pn_range *range)
{
	pn_cu_result result = call_register(blocks, *range);

	while (result == PN_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED &&
	       npages(*range) > 1) {
		range->len = half_of(*range);
		result = call_register(blocks, *range);
	}
	return register_error(result);
}

/* --- adding --------------------------------------------------------------- */

static uint64_t releases_so_far(struct pn_cuda_blocks *blocks)
{
	uint64_t n;

	pn_lock(&blocks->lock);
	n = blocks->nreleases;
	pn_unlock(&blocks->lock);
	return n;
}

/* Whether some of the pages were released since there were so many releases. */
static bool released_since(const struct pn_cuda_blocks *blocks,
			   struct pn_range range, uint64_t since)
	PN_REQUIRES(&blocks->lock)
{
	if (blocks->nreleases - since > PN_CUDA_RELEASES)
		return true;
	for (; since < blocks->nreleases; since++)
		if (pn_range_overlaps(
			    range, blocks->releases[since % PN_CUDA_RELEASES]))
			return true;
	return false;
}

/* A block whose registration began when there were so many releases. */
static int enter_block(struct pn_cuda_blocks *blocks,
		       struct pn_cuda_block block, uint64_t since)
{
	int ret;

	pn_lock(&blocks->lock);
	ret = reserve_locked(blocks);
	block.stale =
		!block.foreign && released_since(blocks, block.range, since);
	if (!ret)
		insert_locked(blocks, block);
	pn_unlock(&blocks->lock);
	return ret;
}

static int add_foreign(struct pn_cuda_blocks *blocks, struct pn_range range,
		       uintptr_t foreign_end, uintptr_t *end)
{
	struct pn_cuda_block block = { .range = range,
				       .refs = 1,
				       .foreign = true };

	if (foreign_end < end_of(range))
		block.range.len = foreign_end - range.addr;
	*end = end_of(block.range);
	return enter_block(blocks, block, releases_so_far(blocks));
}

/* Makes a block at the start of range, where there is none. */
static int add_block(struct pn_cuda_blocks *blocks, struct pn_range range,
		     bool own, uintptr_t *end) PN_REQUIRES(&blocks->calls)
{
	struct pn_cuda_block block = { .refs = 1, .held = !own };
	uint64_t since = releases_so_far(blocks);
	uintptr_t foreign_end;
	int ret;

	if (!own && is_foreign(blocks, range.addr, &foreign_end))
		return add_foreign(blocks, range, foreign_end, end);
	ret = own ? 0 : pn_cuda_gate_hold((void *)range.addr, range.len);
	if (ret)
		return ret == -EBUSY ? ret : -ENOMEM;
	block.range = range;
	ret = register_most(blocks, &block.range);
	if (ret)
		block.range.len = 0;
	if (!own && block.range.len < range.len)
		pn_cuda_gate_drop((void *)end_of(block.range),
				  range.len - block.range.len);
	if (ret)
		return ret;
	atomic_fetch_add(&blocks->bytes, block.range.len);
	*end = end_of(block.range);
	ret = enter_block(blocks, block, since);
	if (ret && !call_unregister(blocks, &block))
		pn_error("%zu bytes stay registered: no memory, and the driver "
			 "does not unregister",
			 block.range.len);
	return ret;
}

/* Another registration covers the block. */
static int share_block(struct pn_cuda_blocks *blocks, size_t i)
	PN_REQUIRES(&blocks->calls)
{
	struct pn_range range;
	bool gone;
	int ret = 0;

	pn_lock(&blocks->lock);
	range = blocks->table[i].range;
	gone = blocks->table[i].gone;
	if (blocks->table[i].stale || !blocks->table[i].refs)
		ret = -EBUSY;
	pn_unlock(&blocks->lock);
	/* In the new context, the range can be registered again. */
	if (!ret && gone)
		ret = register_error(call_register(blocks, range));
	if (ret)
		return ret;
	if (gone)
		atomic_fetch_add(&blocks->bytes, range.len);
	pn_lock(&blocks->lock);
	blocks->table[i].refs++;
	blocks->table[i].gone = false;
	pn_unlock(&blocks->lock);
	return 0;
}

/* The first part of the pages that one block covers; *end is where it ends. */
static int get_first(struct pn_cuda_blocks *blocks,
		     const struct pn_cuda_blocks_request *request,
		     uintptr_t addr, uintptr_t *end) PN_REQUIRES(&blocks->calls)
{
	uintptr_t stop = end_of(request->range);
	bool covered;
	size_t i;

	pn_lock(&blocks->lock);
	i = first_behind(blocks, addr);
	covered = i < blocks->n && blocks->table[i].range.addr <= addr;
	if (covered)
		*end = end_of(blocks->table[i].range);
	else if (i < blocks->n && blocks->table[i].range.addr < stop)
		stop = blocks->table[i].range.addr;
	pn_unlock(&blocks->lock);
	if (covered)
		return share_block(blocks, i);
	if (request->divide && stop - addr > PN_CUDA_BLOCK_BYTES)
		stop = (addr + PN_CUDA_BLOCK_BYTES) &
		       ~(PN_CUDA_BLOCK_BYTES - 1);
	return add_block(blocks, (struct pn_range){ addr, stop - addr },
			 request->own, end);
}

int pn_cuda_blocks_get(struct pn_cuda_blocks *blocks,
		       const struct pn_cuda_blocks_request *request)
{
	uintptr_t at = request->range.addr, stop = end_of(request->range);
	uintptr_t end = at;
	int ret = 0;

	while (!ret && at < stop) {
		pn_lock(&blocks->calls);
		ret = get_first(blocks, request, at, &end);
		pn_unlock(&blocks->calls);
		if (!ret)
			at = end;
		if (at < stop)
			pn_cuda_blocks_pause(blocks);
	}
	if (ret && at > request->range.addr)
		pn_cuda_blocks_put(blocks, (struct pn_range){
						   request->range.addr,
						   at - request->range.addr });
	return ret;
}

/* --- ending --------------------------------------------------------------- */

/* Takes a reference from the first block with bytes in range. True: it was the
 * last one, and *out is the block, which is out of the table. Blocks without
 * references are those that the driver refused to end. */
static bool put_first(struct pn_cuda_blocks *blocks, struct pn_range range,
		      struct pn_cuda_block *out, uintptr_t *end)
{
	bool last = false;
	size_t i;

	pn_lock(&blocks->lock);
	i = first_behind(blocks, range.addr);
	*end = end_of(range);
	if (i < blocks->n && blocks->table[i].range.addr < end_of(range)) {
		*end = end_of(blocks->table[i].range);
		last = blocks->table[i].refs && !--blocks->table[i].refs;
		*out = blocks->table[i];
		if (last)
			remove_locked(blocks, i);
	}
	pn_unlock(&blocks->lock);
	return last;
}

/* Ends a block that is out of the table; puts it back if the driver refuses.
 * There is room: it was there. */
static void end_block(struct pn_cuda_blocks *blocks, struct pn_cuda_block block)
	PN_REQUIRES(&blocks->calls)
{
	if (call_unregister(blocks, &block))
		return;
	pn_lock(&blocks->lock);
	insert_locked(blocks, block);
	blocks->nrefused++;
	pn_unlock(&blocks->lock);
}

/* The first block from an address on that the driver refused to end, out of the
 * table. */
static bool take_refused(struct pn_cuda_blocks *blocks, uintptr_t from,
			 struct pn_cuda_block *out) PN_REQUIRES(&blocks->calls)
{
	bool found = false;

	pn_lock(&blocks->lock);
	for (size_t i = first_behind(blocks, from);
	     !found && blocks->nrefused && i < blocks->n; i++) {
		found = !blocks->table[i].refs;
		if (!found)
			continue;
		*out = blocks->table[i];
		remove_locked(blocks, i);
		blocks->nrefused--;
	}
	pn_unlock(&blocks->lock);
	return found;
}

/* Tries each block again that the driver refused, once: one that it refuses for
 * ever must not keep the others. */
static void end_refused(struct pn_cuda_blocks *blocks)
	PN_REQUIRES(&blocks->calls)
{
	struct pn_cuda_block block;
	uintptr_t from = 0;

	while (take_refused(blocks, from, &block)) {
		from = end_of(block.range);
		end_block(blocks, block);
	}
}

bool pn_cuda_blocks_retry(struct pn_cuda_blocks *blocks, struct pn_range range)
{
	bool refused = false;

	if (pn_likely(!atomic_load(&blocks->nrefused)))
		return true;
	pn_lock(&blocks->calls);
	end_refused(blocks);
	pn_lock(&blocks->lock);
	for (size_t i = first_behind(blocks, range.addr);
	     blocks->nrefused && i < blocks->n &&
	     blocks->table[i].range.addr < end_of(range);
	     i++)
		refused |= !blocks->table[i].refs;
	pn_unlock(&blocks->lock);
	pn_unlock(&blocks->calls);
	return !refused;
}

void pn_cuda_blocks_put(struct pn_cuda_blocks *blocks, struct pn_range range)
{
	uintptr_t at = range.addr, stop = end_of(range), end;
	struct pn_cuda_block block;

	while (at < stop) {
		/* Out of the table and out of the driver at one time: whoever
		 * registers the same pages next waits for `calls`. */
		pn_lock(&blocks->calls);
		if (put_first(blocks, (struct pn_range){ at, stop - at },
			      &block, &end))
			end_block(blocks, block);
		pn_unlock(&blocks->calls);
		at = end;
		if (at < stop)
			pn_cuda_blocks_pause(blocks);
	}
}

/* --- what happens to blocks ------------------------------------------------
 */

void pn_cuda_blocks_released(struct pn_cuda_blocks *blocks,
			     struct pn_range range)
{
	pn_lock(&blocks->lock);
	blocks->releases[blocks->nreleases++ % PN_CUDA_RELEASES] = range;
	for (size_t i = first_behind(blocks, range.addr);
	     i < blocks->n && blocks->table[i].range.addr < end_of(range); i++)
		blocks->table[i].stale = !blocks->table[i].foreign;
	pn_unlock(&blocks->lock);
}

void pn_cuda_blocks_lost(struct pn_cuda_blocks *blocks)
{
	pn_lock(&blocks->calls);
	pn_lock(&blocks->lock);
	for (size_t i = 0; i < blocks->n; i++) {
		struct pn_cuda_block *block = &blocks->table[i];

		if (!block->gone && !block->foreign)
			atomic_fetch_sub(&blocks->bytes, block->range.len);
		block->gone = !block->foreign;
		block->stale = false;
	}
	pn_unlock(&blocks->lock);
	pn_unlock(&blocks->calls);
}

size_t pn_cuda_blocks_run(struct pn_cuda_blocks *blocks, uintptr_t addr,
			  size_t len)
{
	uintptr_t end = addr + len;
	size_t i;

	pn_lock(&blocks->lock);
	i = first_behind(blocks, addr);
	if (i < blocks->n) {
		const struct pn_cuda_block *block = &blocks->table[i];

		if (block->range.addr > addr)
			end = block->range.addr < end ? block->range.addr : end;
		else if (end_of(block->range) < end)
			end = end_of(block->range);
	}
	pn_unlock(&blocks->lock);
	return end - addr;
}

/* --- life ----------------------------------------------------------------- */

void pn_cuda_blocks_init(struct pn_cuda_blocks *blocks,
			 const struct pn_cuda_driver *cu,
			 double *const costs[4])
{
	*blocks = (struct pn_cuda_blocks){ .cu = cu };
	pn_mutex_init(&blocks->calls);
	pn_mutex_init(&blocks->lock);
	pn_cost_estimate_init(&blocks->reg, costs[0], costs[1]);
	pn_cost_estimate_init(&blocks->dereg, costs[2], costs[3]);
}

void pn_cuda_blocks_fini(struct pn_cuda_blocks *blocks)
{
	for (size_t i = 0; i < blocks->n; i++) {
		struct pn_cuda_block *block = &blocks->table[i];

		if (call_unregister(blocks, block))
			continue;
		pn_error("%zu bytes at %p stay registered with the driver, "
			 "which does not unregister them",
			 block->range.len, (void *)block->range.addr);
		if (block->held)
			pn_cuda_gate_drop((void *)block->range.addr,
					  block->range.len);
	}
	free(blocks->table);
	pn_cost_estimate_fini(&blocks->reg);
	pn_cost_estimate_fini(&blocks->dereg);
	pn_mutex_fini(&blocks->calls);
	pn_mutex_fini(&blocks->lock);
}
