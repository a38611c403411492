/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 05_heap -- take buffers from a heap of registered memory.
 *
 * Memory from a heap is registered already: sending it registers nothing, and
 * allocating it again costs as much as malloc(). The program can ask whether
 * memory is from the heap, and for its keys.
 *
 * 	cc 05_heap.c $(pkg-config --cflags --libs pinion) && ./a.out
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pinion/pinion.h>

#define LEN 4096

static void stop(const char *what, int ret)
{
	fprintf(stderr, "%s: %s\n", what, strerror(-ret));
	exit(EXIT_FAILURE);
}

static void show(const char *when, struct pinion_heap *heap)
{
	struct pinion_heap_stats stats = { .size = sizeof(stats) };
	int ret = pinion_heap_query(heap, &stats);

	if (ret)
		stop("pinion_heap_query", ret);
	printf("%s: %zu KiB registered, %llu registrations so far\n", when,
	       stats.slab_bytes >> 10, (unsigned long long)stats.registrations);
}

/* A thousand messages, each from its own buffer. */
static void send_many(struct pinion_heap *heap)
{
	for (int i = 0; i < 1000; i++) {
		char *buffer = pinion_heap_malloc(heap, LEN);

		if (!buffer) {
			perror("pinion_heap_malloc");
			exit(EXIT_FAILURE);
		}
		memset(buffer, i, LEN);
		/* ... pinion_send() ... */
		pinion_heap_free(heap, buffer);
	}
}

static void ask_for_keys(struct pinion_heap *heap)
{
	struct pinion_heap_region region = { .size = sizeof(region) };
	char *buffer = pinion_heap_aligned(heap, 64, LEN);
	int ret = pinion_heap_find(heap, buffer, &region);

	if (ret)
		stop("pinion_heap_find", ret);
	printf("a buffer %zu KiB into a region of %zu KiB, %s a remote key\n",
	       (size_t)(buffer - (char *)region.addr) >> 10, region.len >> 10,
	       region.remote_key ? "with" : "without");
	printf("on the heap: the buffer %s, the stack %s\n",
	       pinion_heap_contains(heap, buffer) ? "yes" : "no",
	       pinion_heap_contains(heap, &region) ? "yes" : "no");
	pinion_heap_free(heap, buffer);
}

int main(void)
{
	struct pinion_context *context;
	struct pinion_heap *heap;
	int ret = pinion_open(NULL, &context);

	if (ret)
		stop("pinion_open", ret);
	ret = pinion_heap_open(context, NULL, &heap);
	if (ret)
		stop("pinion_heap_open", ret);
	show("opened", heap);
	send_many(heap);
	show("used", heap);
	ask_for_keys(heap);

	/* Unused memory is returned to the system after a second, or now. */
	ret = pinion_heap_trim(heap);
	if (ret)
		stop("pinion_heap_trim", ret);
	show("trimmed", heap);

	pinion_heap_close(heap);
	pinion_close(context);
	return EXIT_SUCCESS;
}
