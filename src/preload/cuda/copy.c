/* SPDX-License-Identifier: BSD-2-Clause */
/* Which copies are pinion's, and how the others get past what pinion holds. */
#include <unistd.h>

#include "preload/cuda/preload.h"

/* Ten seconds: longer than any copy takes. */
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

/* The gate is closed meanwhile: the background would register again what is
 * being given up, for ever. What a copy of another thread uses goes when that
 * copy has ended. What the driver refuses to unregister stays in the way, and
 * in a child of fork() everything does: the driver then says what it thinks. */
static void clear_way(struct pn_range a, struct pn_range b,
		      struct pn_gate_passage *passage)
{
	enum pn_gate_result result = PN_GATE_HELD;

	pn_cuda_gate_close();
	for (unsigned i = 0; result == PN_GATE_HELD && i < MAX_TRIES; i++) {
		if (i)
			usleep(TRY_AGAIN_US);
		if (!pn_preload_engine_yield(a) || !pn_preload_engine_yield(b))
			break;
		result = pn_cuda_gate_enter(a, b, passage);
	}
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

static bool all_large(const struct pn_preload_copy *copies, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (passes_to_driver(&copies[i]))
			return false;
	return n;
}

/* Copies of a batch have no order among themselves. So those that are done may
 * be done again by the driver, if the engine refuses a later one. */
bool pn_preload_take_batch(const struct pn_preload_copy *copies, size_t n,
			   struct pn_gate_passage *passage)
{
	size_t done = 0;

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
	for (size_t i = 0; i < n; i++)
		for (int end = 0; end < 2; end++) {
			struct pn_range range =
				end ? src_of(&copies[i]) : dst_of(&copies[i]);

			if (pn_cuda_gate_holds(range))
				pn_preload_engine_yield(range);
		}
	pn_cuda_gate_begin(pn_preload_everything, none, passage);
	pn_cuda_gate_open();
	return false;
}
