/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How a copy is divided: by how many participants, in which blocks, and how
 * they copy.
 *
 * The table is what was fastest on an H200 with 16 cores (doc/design/cuda.md).
 * Few large blocks keep the link busy; a short copy needs small ones to begin
 * early, and fewer participants, since waking one takes 10 us. Non-temporal
 * stores help short copies to the GPU: the GPU then reads main memory instead
 * of lines that are modified in the cache of another core.
 */
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "copy/copy_impl.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

static const struct row {
	size_t min_bytes;
	struct pn_copy_shape shape[PN_COPY_NDIRECTIONS];
} rows[] = {
	{ 192 * MIB, { { 12, 2 * MIB, false }, { 12, 2 * MIB, false } } },
	{ 48 * MIB, { { 8, 2 * MIB, false }, { 10, 2 * MIB, false } } },
	{ 12 * MIB, { { 8, 1 * MIB, true }, { 10, 1 * MIB, false } } },
	{ 6 * MIB, { { 8, 512 * KIB, true }, { 10, 512 * KIB, false } } },
	{ 3 * MIB, { { 6, 512 * KIB, true }, { 6, 512 * KIB, false } } },
	{ 3 * MIB / 2, { { 4, 512 * KIB, true }, { 3, 512 * KIB, false } } },
	{ 0, { { 3, 256 * KIB, true }, { 2, 256 * KIB, false } } },
};

struct pn_copy_shape pn_copy_shape(const struct pn_copier *copier,
				   enum pn_copy_direction direction,
				   size_t bytes)
{
	struct pn_copy_shape shape;
	unsigned i = 0;

	while (bytes < rows[i].min_bytes)
		i++;
	shape = rows[i].shape[direction];
	if (shape.participants > copier->max_participants)
		shape.participants = copier->max_participants;
	if (shape.block_bytes > copier->block_bytes)
		shape.block_bytes = copier->block_bytes;
	return shape;
}

#ifdef __SSE2__
#define LINE 64

static void copy_line(char *dst, const char *src)
{
	__m128i part[4];

	for (int i = 0; i < 4; i++)
		part[i] = _mm_loadu_si128((const __m128i *)src + i);
	for (int i = 0; i < 4; i++)
		_mm_stream_si128((__m128i *)dst + i, part[i]);
}

void pn_copy_nontemporal(void *dst, const void *src, size_t bytes)
{
	const char *from = src;
	char *to = dst;
	size_t head = -(uintptr_t)to % LINE;

	if (head > bytes)
		head = bytes;
	memcpy(to, from, head);
	for (to += head, from += head, bytes -= head; bytes >= LINE;
	     to += LINE, from += LINE, bytes -= LINE) {
		/* Beyond the end is harmless. */
		__builtin_prefetch(from + 16 * LINE, 0, 0);
		copy_line(to, from);
	}
	/* Before the GPU is told to read. */
	_mm_sfence();
	memcpy(to, from, bytes);
}
#else
void pn_copy_nontemporal(void *dst, const void *src, size_t bytes)
{
	memcpy(dst, src, bytes);
}
#endif
