/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion/heap.h -- memory that is registered already.
 *
 *	struct pinion_heap *heap;
 *	int ret = pinion_heap_open(context, NULL, &heap);
 *	if (ret)
 *		...
 *	char *buf = pinion_heap_malloc(heap, 65536);
 *	... send it, receive into it, put from it: nothing is registered ...
 *	pinion_heap_free(heap, buf);
 *
 * A heap takes memory from the system in slabs of at least 1 MiB, registers
 * each when it gets it, and hands out blocks of them. So registration is paid
 * once for many blocks and never again for memory that is used again, and the
 * program knows what is registered: what it took from here. Messages, puts,
 * gets and pinion_pin() recognise heap memory and use its keys as they are.
 * Ordinary memory can be pinned as ever (pinion/cache.h).
 *
 * A context may have many heaps. Slabs count in its one budget; a slab whose
 * blocks are all freed is deregistered and returned to the system after a
 * while, or when asked.
 *
 * Access: a slab has one pair of keys. By default it grants peers all access
 * that the device offers, because that is what the memory is for; whoever has
 * been given the remote key of one block can reach the others of its slab (the
 * heap's own records lie elsewhere). Give attr.access to grant less: what it
 * does not grant is registered apart, for the time of a transfer, as for
 * ordinary memory.
 *
 * Alignment: blocks are aligned to 16 bytes, those of a power of two up to 4096
 * to their size, and blocks above 64 KiB to a page.
 *
 * Threads: any thread allocates, any thread frees what another allocated.
 * Nothing may run concurrently with the close of the heap or its context.
 * fork: the child has a copy of the bytes, unless PINION_HEAP_NOT_IN_CHILDREN,
 * but not the registrations: allocating fails with EPERM, freeing does nothing.
 * The program must not unmap, remap or discard (madvise) heap memory.
 */
#ifndef PINION_HEAP_H
#define PINION_HEAP_H

#include <stddef.h>
#include <stdint.h>

#include <pinion/config.h>
#include <pinion/device.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pinion_heap;

enum pinion_heap_flag {
	/* The memory prefers attr.numa_node, whatever the option says. */
	PINION_HEAP_ON_NODE = 1 << 0,
	/* Pages, whatever the option huge_pages says. Huge ones make slabs of
	 * 2 MiB and more; shorter slabs have normal pages where huge ones are
	 * only preferred. */
	PINION_HEAP_NORMAL_PAGES = 1 << 1,
	PINION_HEAP_HUGE_PREFERRED = 1 << 2,
	PINION_HEAP_HUGE_RESERVED = 1 << 3, /* vm.nr_hugepages, or fail */
	/* fork() leaves the memory out: it takes less time, and a child that
	 * touches heap memory crashes. */
	PINION_HEAP_NOT_IN_CHILDREN = 1 << 4,
};

#define PINION_HEAP_KEEP UINT64_MAX

/* How to open a heap. Start from zero and set `size`; zero in a field means the
 * default. */
struct pinion_heap_attr {
	size_t size;	   /* sizeof(struct pinion_heap_attr) */
	size_t slab_bytes; /* at least 1 MiB; 0: the option heap_slab */
	size_t max_bytes;  /* all slabs together; 0: what the budget allows */
	/* How long a slab stays when it is empty, in microseconds; 0: the
	 * option heap_return; PINION_HEAP_KEEP: for ever. When others find no
	 * room in the budget, it goes all the same. */
	uint64_t return_us;
	uint64_t flags;	    /* PINION_HEAP_ bits */
	unsigned access;    /* PINION_ACCESS_ bits */
	unsigned numa_node; /* with PINION_HEAP_ON_NODE */
};

/* Opens a heap; it takes no memory yet. attr may be NULL.
 * -EINVAL: NULL, or an attribute that makes no sense; -E2BIG; -EPERM: the
 * context is the parent's; -ENOMEM: no address space; -EMFILE: too many heaps
 * (about 4,000 in a process); -EAGAIN: no thread key or locked memory. */
PINION_API int pinion_heap_open(struct pinion_context *context,
				const struct pinion_heap_attr *attr,
				struct pinion_heap **out);

/* Deregisters and returns everything, also what was not freed. The close of
 * the context does it, too. NULL is fine. */
PINION_API void pinion_heap_close(struct pinion_heap *heap);

/* A block of size bytes, or NULL with errno. May sleep while a new slab is
 * registered; never does when free memory is at hand.
 * EINVAL:  heap is NULL or size 0
 * ENOMEM:  no memory, or longer than the device can register at once
 * ENOBUFS: no room in the budget of pinned memory even after giving up all that
 *          is cached and not in use
 * EPERM:   the heap is the parent's
 * EAGAIN, EIO, EMFILE, ENFILE, ENODEV, EOPNOTSUPP, ETIMEDOUT: the system or the
 *          adapter refuses what the slab needs */
PINION_API void *pinion_heap_malloc(struct pinion_heap *heap, size_t size);

/* The same, n times size bytes of zeros. ENOMEM also when that overflows. */
PINION_API void *pinion_heap_calloc(struct pinion_heap *heap, size_t n,
				    size_t size);

/* The block with its contents, size bytes long, here or elsewhere. block NULL:
 * pinion_heap_malloc(). On failure the block stays as it is. */
PINION_API void *pinion_heap_realloc(struct pinion_heap *heap, void *block,
				     size_t size);

/* A block whose address is a multiple of alignment: a power of two up to 2 MiB,
 * else EINVAL. */
PINION_API void *pinion_heap_aligned(struct pinion_heap *heap, size_t alignment,
				     size_t size);

/* Frees a block of this heap, in any thread. NULL is fine. */
PINION_API void pinion_heap_free(struct pinion_heap *heap, void *block);

/* How many bytes of a block may be used, at least what was asked for. 0: no
 * block of this heap. */
PINION_API size_t pinion_heap_usable_size(struct pinion_heap *heap,
					  const void *block);

/* 1: addr lies in a block of this heap, and so in registered memory; else 0.
 * Constant time. A freed block may still say 1. */
PINION_API int pinion_heap_contains(struct pinion_heap *heap, const void *addr);

/* The registered memory around an address. */
struct pinion_heap_region {
	size_t size; /* sizeof(struct pinion_heap_region), by you */
	void *addr;
	size_t len;
	uint64_t local_key;
	uint64_t remote_key; /* 0 without remote access */
	unsigned access;
	unsigned reserved;
	void *handle; /* of a registrar (pinion/registrar.h) */
};

/* Fills *region, whose `size` you set, for an address in an allocated block; it
 * holds until the block is freed. Constant time. -EINVAL: NULL, or size 0;
 * -ENOENT: not in this heap. */
PINION_API int pinion_heap_find(struct pinion_heap *heap, const void *addr,
				struct pinion_heap_region *region);

/* Returns all that is empty to the system now: what the calling thread has at
 * hand goes back, then every slab without blocks. -EINVAL, -EPERM. */
PINION_API int pinion_heap_trim(struct pinion_heap *heap);

/* Gauges, and counters since the heap was opened. */
struct pinion_heap_stats {
	size_t size;		/* sizeof(struct pinion_heap_stats), by you */
	size_t slabs;		/* registered now */
	size_t slab_bytes;	/* their length: what the budget counts */
	size_t run_bytes;	/* of that, in use for blocks */
	uint64_t registrations; /* slabs acquired so far */
	uint64_t returned;	/* slabs returned so far */
};

/* Fills *stats, whose `size` you set. -EINVAL: NULL, or size 0; -EPERM. */
PINION_API int pinion_heap_query(struct pinion_heap *heap,
				 struct pinion_heap_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
