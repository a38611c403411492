/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * standin -- a libcuda.so.1 of ours, for tests on machines without a GPU.
 *
 * The stand-in behaves as the driver does where a mistake of pinion or of a
 * program would show:
 *   - Registering really pins: the pages are buffers of an io_uring, and
 *     copies of registered memory go through the ring, by the pages that were
 *     there when the range was registered. Memory that was unmapped and mapped
 *     again delivers old bytes, as on hardware (pin.c).
 *   - A copy from registered memory reads the source late, on the thread of
 *     its stream; a copy from other memory has read its source on return.
 *   - A range that overlaps a registration is refused (712). Registrations are
 *     found by the first byte of a copy: one that begins in a registration and
 *     ends behind it fails (1), also where another registration follows; one
 *     that begins elsewhere is a copy of pageable memory.
 *   - A copy whose source or destination was unregistered before the copy ran
 *     is a fault: counted, and an error of the stream from then on. (The real
 *     driver waits for the copy, but does not promise to.)
 *   - While a stream is being captured, unsafe calls fail as the modes of the
 *     capture and of the thread say, and end the capture.
 *   - The GPU's memory is an address range without access for the CPU.
 *
 * Nouns
 *   allocation    a range of the GPU's memory: bytes of a memfd (memory.c).
 *   registration  host memory that is pinned, by cuMemHostRegister() or
 *                 cuMemHostAlloc() (memory.c).
 *   operation     an entry of a stream's queue (stream.c). It has a ticket,
 *                 which orders the legacy stream and the blocking ones.
 *   call          an exported function, its count and its planned failures
 *                 (options.c).
 *
 * Control: the environment variable STANDIN_OPTIONS, or pinion_standin_set(),
 * takes "name=value,..." (options.c lists the names); pinion_standin_get()
 * returns a counter. pinion_standin_after() has something happen at the end of
 * a call. pinion_standin_peek() and _poke() read and write the GPU's memory
 * without a call of the driver.
 *
 * Threads: any. standin_lock protects everything except the ring, which has a
 * lock of its own, taken after standin_lock or alone. A registration holds
 * standin_lock: it holds up the other calls, as on hardware.
 * Caveat: in a child of fork() every call returns 3 (not initialised).
 */
#ifndef STANDIN_IMPL_H
#define STANDIN_IMPL_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/cuda/driver_api.h"

/* Prototypes of the calls are the tables of driver_api.h. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define STANDIN_API    __attribute__((visibility("default")))
#define MAX_DEVICES    8
#define MAX_REGISTERED 4096

/* --- options.c ------------------------------------------------------------ */

enum standin_option {
	OPT_DEVICES,
	OPT_MEMORY_MIB,
	OPT_LATE_US,
	OPT_REGISTER_US,
	OPT_REGISTER_PAGE_NS,
	OPT_DEREGISTER_US,
	OPT_DEREGISTER_PAGE_NS,
	OPT_COPY_US,
	OPT_COPY_MIB_S,
	OPT_MEMOPS,
	OPT_NUMA_NODE,
	OPT_RESERVE_KIB,
	OPT_COUNT,
};

struct standin_call {
	const char *name;
	uint64_t count;
	bool listed;
	struct standin_call *next;
};

extern pthread_mutex_t standin_lock;
extern pthread_cond_t standin_changed; /* any queue, event or context */

uint64_t standin_option(enum standin_option option);

/* Counts the call and returns a planned failure, or 3 in a child of fork() and
 * before cuInit(). */
pn_cu_result standin_enter(struct standin_call *call);
/* Calls what pinion_standin_after() has planned. */
void standin_leave(const char *symbol);
bool standin_inited(void);
void standin_set_inited(void);
void standin_sleep_ns(uint64_t ns);
uint64_t standin_failed(void); /* standin_lock: planned failures so far */
uint64_t standin_refused(void);

#define ENTER(symbol)                                                   \
	do {                                                            \
		static struct standin_call call_ = { .name = #symbol }; \
		pn_cu_result entered_ = standin_enter(&call_);          \
                                                                        \
		if (entered_)                                           \
			return entered_;                                \
	} while (0)

/* As ENTER(); also needs a current context. */
#define ENTER_CONTEXT(symbol)                               \
	do {                                                \
		ENTER(symbol);                              \
		entered_context_ = standin_check_context(); \
		if (entered_context_)                       \
			return entered_context_;            \
	} while (0)

/* --- pin.c ---------------------------------------------------------------- */

/* 0 or a negative errno: the kernel has no io_uring for us. */
int pin_init(int memory_fd);
/* Pins bytes from at on and returns the first of pin_slots(bytes) slots; or a
 * negative errno. */
int pin_pages(void *at, size_t bytes);
void pin_release(unsigned slot, size_t bytes);
/* Moves bytes between [base + offset ...) of a pinned range and the memory's
 * file. 0 or a negative errno. */
struct pin_move {
	unsigned slot;
	uintptr_t base;
	size_t offset, bytes, file_offset;
	bool to_memory;
};
int pin_move(const struct pin_move *move);

/* --- memory.c ------------------------------------------------------------- */

struct registration {
	uintptr_t at;
	size_t bytes;
	unsigned flags;
	unsigned slot;
	uint64_t id;
	pn_cu_context context;
	bool allocated; /* by cuMemHostAlloc() */
};

enum where { PAGEABLE, PINNED, DEVICE, INVALID };

/* What a range is; INVALID: registered in part, or beyond an allocation. *id
 * is that of the registration. */
enum where memory_where(uintptr_t at, size_t bytes, uint64_t *id);
/* Copies now, as the kinds of both ends say. id: of a registration that must
 * still be there, or 0. */
struct memory_end {
	uintptr_t at;
	uint64_t id;
};
pn_cu_result memory_copy(struct memory_end dst, struct memory_end src,
			 size_t bytes);
pn_cu_result memory_set(uintptr_t at, unsigned char value, size_t bytes);
void memory_drop_context(pn_cu_context context);
/* 2 where the option reserve_kib leaves no memory for what a call creates. */
pn_cu_result memory_check_reserve(void);
int memory_init(void);

/* --- context.c ------------------------------------------------------------ */

struct CUctx_st {
	unsigned magic;
	int device;
	unsigned retained; /* of a primary context */
	bool alive;
	uint64_t id;
	struct CUstream_st *streams; /* all, linked */
	struct CUstream_st *legacy;
	struct CUctx_st *next; /* all that ever were */
};

extern __thread pn_cu_result entered_context_;

/* 0; 201: none is current; 709: it was destroyed. */
pn_cu_result standin_check_context(void);
pn_cu_context standin_current(void);
/* standin_lock: the first of all contexts. */
pn_cu_context standin_contexts(void);

/* --- stream.c ------------------------------------------------------------- */

enum op_kind {
	OP_COPY,
	OP_SET,
	OP_RECORD,
	OP_WAIT,
	OP_HOST,
	OP_VALUE_WAIT,
	OP_VALUE_WRITE
};

struct op {
	enum op_kind kind;
	uint64_t ticket;
	struct memory_end dst, src;
	size_t width, height, dst_pitch, src_pitch;
	char *snapshot; /* of a pageable source */
	bool late;	/* reads or writes pinned memory */
	struct CUevent_st *event;
	uint64_t value;
	unsigned flags;
	pn_cu_host_fn fn;
	void *arg;
	struct op *next;
};

/* Appends a copy of *op to the stream, or to the graph that it is captured
 * into. With `wait` it returns when the operation has ended. */
pn_cu_result stream_add(pn_cu_stream stream, const struct op *op, bool wait);

/* Whether the stream is being captured (then what is added has not run on
 * return). */
bool stream_captures(pn_cu_stream stream);

/* 900 where a capture forbids unsafe calls of this thread; the capture is then
 * invalid. */
pn_cu_result stream_check_unsafe(void);

void stream_wait_idle(pn_cu_context context);
void stream_drop_context(pn_cu_context context);
/* standin_lock: those that exist now; default streams do not count. */
uint64_t stream_count(void);
uint64_t event_count(void);

#endif
