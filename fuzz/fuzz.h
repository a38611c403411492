/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz -- what the fuzz programs share.
 *
 * A fuzz program defines LLVMFuzzerTestOneInput(), which libFuzzer calls with
 * bytes of its own making; where there is no libFuzzer, replay.c calls it with
 * the files of the corpus. It must hold for every input; FUZZ_ASSERT() says
 * what. An input that found a bug joins the corpus under a telling name.
 */
#ifndef PN_FUZZ_FUZZ_H
#define PN_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In force in every build, unlike assert(). */
#define FUZZ_ASSERT(fact)                                                \
	do {                                                             \
		if (!(fact)) {                                           \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, \
				__LINE__, #fact);                        \
			abort();                                         \
		}                                                        \
	} while (0)

/* The bytes as a string of exactly their length, so that reading past its end
 * is noticed; the caller frees it. Ends at the first NUL for C's functions. */
static inline char *fuzz_string(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	FUZZ_ASSERT(text);
	if (size)
		memcpy(text, data, size);
	text[size] = 0;
	return text;
}

#endif
