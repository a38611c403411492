/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cache_model -- the cache against a naive model, one operation at a time.
 *
 * The model is an array of pages, each mapped or not since some moment, and
 * the pins that are held. It knows nothing of regions. From that it predicts
 * what a pin may answer, and it uses every pin it gets: bytes go through the
 * keys of each segment, over the loopback peer of a simulated device that is
 * told of every release. A stale key ends with -ESTALE there: that is the
 * oracle. The program that the model plays releases memory as programs do, and
 * the monitor sees it where it can (`patch`, `userfaultfd`); elsewhere the
 * cache is told by pn_cache_invalidate().
 *
 * What to do next is drawn from a seed or from given bytes (fuzzing). A wrong
 * answer prints what was wrong and aborts; stale uses are counted, since tests
 * of broken caches want them.
 *
 * Threads: one.
 */
#ifndef PN_TESTS_CACHE_MODEL_H
#define PN_TESTS_CACHE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where decisions come from. */
struct choices {
	const uint8_t *bytes; /* NULL: from the seed */
	size_t left;
	uint64_t seed;
};

struct cache_model_attr {
	struct choices *choices;
	bool deaf;	/* the cache learns of no release: broken on purpose */
	bool announced; /* it is told, and does not watch */
	/* Over functions (pinion/registrar.h) that register with the simulated
	 * device, which knows dead keys and stale ones. */
	bool registrar;
};

struct cache_model_result {
	uint64_t operations, pins, uses, hits, refused, faults, invalidations;
	uint64_t stale;	       /* uses of a stale key */
	uint64_t refused_ends; /* deregistrations that failed */
};

/* Opens a cache as the choices say, carries out so many operations (fewer when
 * the bytes run out), closes it. Adds to *result. */
void cache_model_run(const struct cache_model_attr *attr, unsigned operations,
		     struct cache_model_result *result);

#endif
