/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * gate -- keeps pinion's registrations of program memory apart from the CUDA
 * calls that the program makes itself.
 *
 * CUDA looks registrations up by address in every call of the process. A copy
 * of the program that meets a registration of ours behaves differently: a
 * pageable copy becomes truly asynchronous, a range registered in part is
 * refused, stale pages are delivered. So the two must never meet unnoticed,
 * neither at rest nor in a race.
 *
 * Nouns
 *   held     pages of program memory that pinion has registered, from before
 *            cuMemHostRegister until after cuMemHostUnregister. Memory that
 *            pinion allocated itself (heap, bounce buffers) is never held.
 *            A page that several registrations share is held until the last of
 *            them is dropped.
 *   passage  a call of the program that goes straight to the driver, with the
 *            one or two host ranges that the call may touch.
 *   closed   nothing may become held, for example while a stream is being
 *            captured.
 *
 * At rest: no range of a passage that entered PN_GATE_CLEAR overlaps held
 * pages, for as long as the passage lasts. Whoever finds held pages in its way
 * has them given up first (copy engine) and enters again.
 *
 * It is Dekker's pattern: a passage announces its ranges, then looks at the
 * held pages; pn_cuda_gate_hold() marks its pages, then looks at the passages.
 * Both use sequentially consistent operations, so one of them sees the other.
 * A passage costs one locked instruction and a look-up.
 *
 * Threads: any. Entering and leaving take no lock. hold() and drop() take one
 * and may allocate; neither calls the driver.
 * There is one gate in a process, as there is one driver. After fork() nothing
 * is held in the child, and there are no passages.
 */
#ifndef PN_DEVICE_CUDA_GATE_H
#define PN_DEVICE_CUDA_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/range.h"

/* --- whoever registers ---------------------------------------------------- */

/* To be called before program memory is registered; the range is what will be
 * registered. -EBUSY: a passage overlaps it, or the gate is closed: do not
 * register now. -ENOMEM, -ERANGE: as pn_index_reserve(). */
int pn_cuda_gate_hold(const void *addr, size_t len);

/* After the range has been deregistered, or with its context destroyed. */
void pn_cuda_gate_drop(const void *addr, size_t len);

/* --- whoever lets the program's calls pass -------------------------------- */

enum pn_gate_result {
	PN_GATE_CLEAR, /* entered: call the driver, then leave */
	PN_GATE_HELD,  /* not entered: pinion holds pages in the way */
};

struct pn_gate_passage {
	int slot; /* the gate's */
};

/* Ranges with len 0 are ignored. A len that wraps around means all addresses
 * from addr on. */
PN_PRIVATE_API enum pn_gate_result pn_cuda_gate_enter(
	struct pn_range a, struct pn_range b, struct pn_gate_passage *passage);

/* Enters without a look at what is held: the caller has closed the gate and
 * knows that nothing is in its way. */
PN_PRIVATE_API void pn_cuda_gate_begin(struct pn_range a, struct pn_range b,
				       struct pn_gate_passage *passage);
PN_PRIVATE_API void pn_cuda_gate_leave(struct pn_gate_passage *passage);

/* Whether pinion holds any page of the range. */
PN_PRIVATE_API bool pn_cuda_gate_holds(struct pn_range range);

/* While the gate is closed nothing becomes held; what is held stays until
 * dropped. Counted. */
PN_PRIVATE_API void pn_cuda_gate_close(void);
PN_PRIVATE_API void pn_cuda_gate_open(void);

/* Pages held; for tests and statistics. */
PN_PRIVATE_API size_t pn_cuda_gate_held_pages(void);

#endif
