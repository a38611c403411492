/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * shrink -- the shortest list of steps that still fails.
 *
 * Steps are an array in a schedule of the caller's. The shrinker leaves some
 * out, in place, and asks whether the schedule still fails; if not, they come
 * back. In the end no single step can be left out.
 */
#ifndef PN_TESTS_FAULTS_SHRINK_H
#define PN_TESTS_FAULTS_SHRINK_H

#include <stdbool.h>
#include <stddef.h>

struct shrinkable {
	void *steps;
	size_t step_bytes;
	unsigned *n;
	bool (*fails)(void *arg); /* with the n steps that are there now */
	void *arg;
};

void shrink(const struct shrinkable *list);

#endif
