/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * preload/cuda -- libpinion-cuda.so: copies of unmodified CUDA programs go
 * through pinion. `pinion run --cuda` preloads it.
 *
 * How programs reach CUDA
 *   The runtime, shared (libcudart.so) or static, opens libcuda.so.1, looks up
 *   cuGetProcAddress_v2 with dlsym() and asks that function for everything
 *   else. Other programs link with libcuda.so.1 or use dlsym() themselves. So
 *   one layer is enough, the driver's, and there are three ways in:
 *     names        this library defines the driver functions that it takes
 *     dlsym()      of the driver's handle returns them (preload/dlsym.h)
 *     cuGetProcAddress() returns them (lookup.c)
 *   No function of the runtime is taken: the runtime converts kinds, makes its
 *   errors and keeps its last error as always, from what the driver or this
 *   library returns. PyTorch, static and shared programs, and both kinds of
 *   default stream behave the same.
 *   The driver itself and libpinion.so get the driver's own functions, whoever
 *   is preloaded: dlsym() tells callers apart by their return address.
 *
 * What is taken (calls.h lists every name)
 *   copies     of 1 dimension and, if rows are contiguous, of 2; batches: from
 *              and to unpinned host memory they go to pinion's copy engine
 *              (include/pinion/cuda.h) from PN_PRELOAD_MIN_BYTES on. All other
 *              copies, below that size, of pinned, managed or peer memory, of
 *              arrays and of 3 dimensions, pass to the driver.
 *   registering and unregistering of host memory; allocation of pinned and
 *              managed memory; pointer attributes, flags and device pointers.
 *   begin and end of captures; memcpy nodes of graphs.
 *   the end of contexts.
 *
 * What is guaranteed
 *   - On return of a copy unpinned source memory has been read and unpinned
 *     destination memory has been written, always, in the order of the stream.
 *   - Registrations of ours are invisible. Attributes of memory that pinion
 *     holds are those of unpinned memory (host.c). Where the program
 *     registers, unregisters or asks for flags, ours yields first. A copy that
 *     passes to the driver never meets memory that pinion holds: both sides
 *     exclude each other (device/cuda/gate.h), and what is in the way is given
 *     up first, when the copies that use it have ended. Memory that the driver
 *     refuses to unregister, or that the program has pinned by a context of its
 *     own, is left in the way after ten seconds.
 *   - Memory that was released and mapped again is found the same way: its
 *     registration is still held, so the next call that touches it deregisters
 *     it before anything is copied.
 *   - A copy that pinion cannot do is done by the driver: the program gets the
 *     driver's error, not ours.
 *   - While any stream of the process is being captured, nothing is taken and
 *     nothing is held. Once unpinned memory was captured into a graph, or a
 *     memcpy node was made, nothing is kept registered until the program ends:
 *     launches of the graph read that memory later.
 *   - Nothing is called before the program's own first call of the driver, and
 *     no context is created: a copy has a current context.
 *   - A copy below PN_PRELOAD_MIN_BYTES costs one locked instruction and one
 *     look-up more.
 *
 * Not reached: libraries loaded with dlmopen(), or with RTLD_DEEPBIND (they
 * find libc's dlsym() first), programs that are linked statically with libc,
 * setuid programs.
 *
 * Threads: any. No lock is held while a driver function is called, except that
 * opening the engine holds one against other openings.
 */
#ifndef PN_PRELOAD_CUDA_PRELOAD_H
#define PN_PRELOAD_CUDA_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/range.h"
#include "device/cuda/driver_api.h"
#include "device/cuda/gate.h"
#include "preload/cuda/calls.h"

#define PN_PRELOAD_API __attribute__((visibility("default")))

/* What this library defines under the driver's names. */
#define PN_PRELOAD_DECLARE(symbol, params) \
	PN_PRELOAD_API pn_cu_result symbol params;
PN_PRELOAD_CALLS(PN_PRELOAD_DECLARE)
#undef PN_PRELOAD_DECLARE

/* --- the driver's own functions: lookup.c ----------------------------------
 */

/* NULL where this driver lacks a function: then no program can call it through
 * the driver either. */
struct pn_preload_real {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declarator */
#define PN_PRELOAD_FIELD(symbol, params) pn_cu_result(*symbol) params;
	PN_PRELOAD_CALLS(PN_PRELOAD_FIELD)
	PN_PRELOAD_HELPERS(PN_PRELOAD_FIELD)
#undef PN_PRELOAD_FIELD
};

/* Opens the driver at first. Where there is none, all functions are NULL. */
const struct pn_preload_real *pn_preload_real(void);

/* Calls a function of the driver. */
#define PN_REAL(symbol, ...)                              \
	(pn_likely(pn_preload_real()->symbol)             \
		 ? pn_preload_real()->symbol(__VA_ARGS__) \
		 : (pn_cu_result)PN_CUDA_ERROR_NO_DEVICE)

/* What a program gets for a function of the driver: ours, or `found`. */
void *pn_preload_replace(void *found);

/* --- copies: copy.c --------------------------------------------------------
 */

/* Below it the driver's copy is as fast, as the engine has it
 * (pn_cuda_min_bytes()); known before there is an engine. */
#define PN_PRELOAD_MIN_BYTES ((size_t)1 << 20)

/* One contiguous copy as the program asked for it. */
struct pn_preload_copy {
	uintptr_t dst, src;
	size_t bytes;
	pn_cu_stream stream; /* never NULL: legacy or per-thread */
	/* The end that the call says to be memory of a GPU; 0: it does not
	 * say. */
	uintptr_t device;
	bool blocking; /* the call waits for the copy */
};

/* True: the copy has been done. False: pass it to the driver, then leave. */
bool pn_preload_take(const struct pn_preload_copy *copy,
		     struct pn_gate_passage *passage);

/* As above for a batch: all of them or none. */
bool pn_preload_take_batch(const struct pn_preload_copy *copies, size_t n,
			   struct pn_gate_passage *passage);

/* Enters the gate for a call that passes to the driver; whatever pinion holds
 * in these ranges is given up before. Ranges with len 0 are ignored. */
void pn_preload_pass(struct pn_range a, struct pn_range b,
		     struct pn_gate_passage *passage);

extern const struct pn_range pn_preload_everything;

/* From the first to the last byte of an end of the copy; len 0: an array. */
struct pn_range pn_preload_src_of_3d(const struct pn_cu_memcpy3d *copy);
struct pn_range pn_preload_dst_of_3d(const struct pn_cu_memcpy3d *copy);

/* --- captures and graphs: capture.c ----------------------------------------
 */

/* Whether a stream of the process is being captured. */
bool pn_preload_capturing(void);

/* A copy of these ranges in that stream passes to the driver. If the stream is
 * being captured and a range is unpinned host memory, nothing is kept
 * registered any more. */
void pn_preload_graph_reads(pn_cu_stream stream, struct pn_range a,
			    struct pn_range b);

/* --- the copy engine: engine.c ---------------------------------------------
 */

/* 0; or a negative errno: the driver's own copy may be tried. */
int pn_preload_engine_copy(const struct pn_preload_copy *copy);

/* Deregisters what the program has released so far. One load if nothing. */
void pn_preload_engine_settle(void);

/* Whether the engine copies from or to the range now. */
bool pn_preload_engine_uses(struct pn_range range);

/* For tests: registers memory and keeps it, as the engine does with memory that
 * comes again. Errors of pinion_pin(). */
PN_PRELOAD_API int pn_preload_engine_hold(void *addr, size_t len);

/* Deregisters what overlaps the range. The caller has closed the gate or has a
 * passage there, so that nothing new comes. False: there is no engine. */
bool pn_preload_engine_yield(struct pn_range range);

#endif
