/* SPDX-License-Identifier: BSD-2-Clause */
/* Which copies are pinion's, and how the others get past what pinion holds. */
#include <unistd.h>

#include "preload/cuda/preload.h"

/* Ten seconds in which no copy is under way there. */
#define TRY_AGAIN_US 1000
#define MAX_TRIES    10000

const struct pn_range pn_preload_everything = { 0, SIZE_MAX };

static const struct pn_range none;

static struct pn_range dst_of(const struct pn_preload_copy *copy)
{
	return (struct pn_range){ copy->dst, copy->bytes };
}

static struct pn_range src_of(const struct pn_preload_copy *copy)
{
	return (struct pn_range){ copy->src, copy->bytes };
}

/* Sleeps before another try; false: there have been enough. What a copy of
 * another thread uses goes when that copy has ended, whenever its stream lets
 * it end: a copy by the driver that met these pages would read them late, or be
 * refused. What the driver refuses to unregister, or the program has pinned by
 * a context of its own, does not go by itself. */
static bool try_again(bool in_use, unsigned *ntries)
{
	if (!in_use && ++*ntries == MAX_TRIES)
		return false;
	usleep(TRY_AGAIN_US);
	return true;
}

/* The gate is closed meanwhile: the background would register again what is
 * being given up, for ever. What stays in the way after all tries is left to
 * the driver. */
static void clear_way(struct pn_range a, struct pn_range b,
		      struct pn_gate_passage *passage)
{
	enum pn_gate_result result;
	unsigned ntries = 0;

	pn_cuda_gate_close();
	do {
		result = PN_GATE_HELD;
		if (!pn_preload_engine_yield(a) || !pn_preload_engine_yield(b))
			break;
		result = pn_cuda_gate_enter(a, b, passage);
	} while (result == PN_GATE_HELD &&
		 try_again(pn_preload_engine_uses(a) ||
				   pn_preload_engine_uses(b),
			   &ntries));
	if (result == PN_GATE_HELD)
		pn_cuda_gate_begin(a, b, passage);
	pn_cuda_gate_open();
}

void pn_preload_pass(struct pn_range a, struct pn_range b,
		     struct pn_gate_passage *passage)
{
	if (pn_likely(pn_cuda_gate_enter(a, b, passage) == PN_GATE_CLEAR))
		return;
	/* Perhaps the memory was released, and only the registration is left.
	 */
	pn_preload_engine_settle();
	if (pn_cuda_gate_enter(a, b, passage) == PN_GATE_HELD)
		clear_way(a, b, passage);
}

/* Under a capture everything is the driver's, and nothing is held. */
static bool passes_to_driver(const struct pn_preload_copy *copy)
{
	if (pn_unlikely(pn_preload_capturing())) {
		pn_preload_graph_reads(copy->stream, dst_of(copy),
				       src_of(copy));
		return true;
	}
	return copy->bytes < PN_PRELOAD_MIN_BYTES;
}

/* A copy in the wrong direction is an error of the driver's; the engine finds
 * the direction out by itself. */
static bool is_as_it_says(const struct pn_preload_copy *copy)
{
	int which[] = { PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE };
	unsigned type = 0;
	void *out[] = { &type };

	return !copy->device ||
	       (!PN_REAL(cuPointerGetAttributes, 1, which, out, copy->device) &&
		type == PN_CU_MEMORYTYPE_DEVICE);
}

static bool engine_takes(const struct pn_preload_copy *copy)
{
	return is_as_it_says(copy) && !pn_preload_engine_copy(copy);
}

bool pn_preload_take(const struct pn_preload_copy *copy,
		     struct pn_gate_passage *passage)
{
	struct pn_range dst = dst_of(copy), src = src_of(copy);

	if (passes_to_driver(copy)) {
		if (pn_likely(pn_cuda_gate_enter(dst, src, passage) ==
			      PN_GATE_CLEAR))
			return false;
		/* A small copy of memory that is held: after a release the
		 * driver's, else the engine's, which copies from what is
		 * registered and waits. */
		pn_preload_engine_settle();
		if (pn_cuda_gate_enter(dst, src, passage) == PN_GATE_CLEAR)
			return false;
	}
	if (engine_takes(copy))
		return true;
	pn_preload_pass(dst, src, passage);
	return false;
}

/* --- batches ---------------------------------------------------------------
 */

/* Looks at all of them: each may be of unpinned memory in a captured stream. */
static bool all_large(const struct pn_preload_copy *copies, size_t n)
{
	bool all = n;

	for (size_t i = 0; i < n; i++)
		all &= !passes_to_driver(&copies[i]);
	return all;
}

/* As clear_way(), for every end of the batch; whether any is in the way still,
 * and whether a copy of another thread is under way in such an end. */
static bool is_in_the_way(const struct pn_preload_copy *copies, size_t n,
			  bool *in_use)
{
	bool any = false;

	*in_use = false;

	for (size_t i = 0; i < 2 * n; i++) {
		struct pn_range range =
			i % 2 ? src_of(&copies[i / 2]) : dst_of(&copies[i / 2]);

		if (!pn_cuda_gate_holds(range))
			continue;
		if (!pn_preload_engine_yield(range))
			return false;
		if (!pn_cuda_gate_holds(range))
			continue;
		any = true;
		*in_use |= pn_preload_engine_uses(range);
	}
	return any;
}

/* Copies of a batch have no order among themselves. So those that are done may
 * be done again by the driver, if the engine refuses a later one. */
bool pn_preload_take_batch(const struct pn_preload_copy *copies, size_t n,
			   struct pn_gate_passage *passage)
{
	unsigned ntries = 0;
	size_t done = 0;
	bool in_use;

	if (all_large(copies, n))
		while (done < n && engine_takes(&copies[done]))
			done++;
	if (n && done == n)
		return true;
	/* The passage is one of all addresses. Only what is in the way of this
	 * batch has to go, and the gate is closed until the passage has begun.
	 */
	pn_cuda_gate_close();
	pn_preload_engine_settle();
	while (is_in_the_way(copies, n, &in_use) && try_again(in_use, &ntries))
		;
	pn_cuda_gate_begin(pn_preload_everything, none, passage);
	pn_cuda_gate_open();
	return false;
}
