/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * transfers -- what the tests of registrars over a transport have in common.
 *
 * A test opens two contexts over its transport, or one that plays both parts,
 * and says how the transport writes and reads pinned memory. The functions here
 * move buffers, compare every byte, and check what does not depend on the
 * transport. They assert; only the threads of pin_in_threads() count errors
 * instead.
 */
#ifndef PN_TESTS_REGISTRAR_TRANSFERS_H
#define PN_TESTS_REGISTRAR_TRANSFERS_H

#include "test.h"

#include <stdbool.h>

#include <pinion/pinion.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

struct transport {
	struct pinion_context *local, *remote; /* may be one */
	/* Moves all of the local pin to or from the start of the remote one.
	 * Returns whether the remote side allowed it. */
	bool (*write)(void *arg, const struct pinion_pin *local,
		      const struct pinion_pin *remote);
	bool (*read)(void *arg, const struct pinion_pin *local,
		     const struct pinion_pin *remote);
	void *arg;
};

/* Private memory, at `where` unless it is NULL. */
char *map_at(void *where, size_t len);
/* Unmaps memory and maps other memory, at the same address if it is free. */
void remap(char **memory, size_t len);

struct pinion_cache_stats query(struct pinion_context *context);

/* Writes local memory to remote memory, or reads remote memory into local
 * memory, and compares. */
void write_and_compare(const struct transport *t, char *local, char *remote,
		       size_t len, uint64_t seed);
void read_and_compare(const struct transport *t, char *local, char *remote,
		      size_t len, uint64_t seed);

/* Writes and reads unaligned buffers of several lengths, each twice: the second
 * time their registrations are cached. */
void move_buffers(const struct transport *t);
/* The same with memory of heaps, which needs no registration of its own. */
void move_heap_buffers(const struct transport *t);
/* Writes n buffers of len bytes, each four times. */
void write_many(const struct transport *t, size_t n, size_t len);
/* Writes 20 times. After each time the remote or the local memory is mapped
 * anew, in turn. Returns the counters of the remote context. */
struct pinion_cache_stats write_remapped(const struct transport *t);

/* Memory that is not mapped or not writable is refused; the rest of it is not.
 * The pin of read-only memory must have no remote key. */
void expect_unpinnable_memory_refused(struct pinion_context *context);

/* Four threads pin memory of their own, n times each, and release some of it.
 * Every pin must satisfy `is_good`. -ENOBUFS is no error: regions that the
 * other threads use may be the whole budget. */
void pin_in_threads(struct pinion_context *context, unsigned n,
		    bool (*is_good)(const struct pinion_pin *pin,
				    unsigned flags));

#endif
