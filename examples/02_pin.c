/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 02_pin -- pin a buffer for each use; the cost of registering disappears.
 *
 * Registering by hand (01_register) is slow and has to end before the memory is
 * freed. pinion_pin() registers a buffer at its first use and finds it cached
 * afterwards. When the buffer is freed, the cache drops it by itself, and other
 * memory at that address is registered anew. The counters show all of this.
 *
 * 	cc 02_pin.c $(pkg-config --cflags --libs pinion) && ./a.out
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <pinion/pinion.h>

#define LEN ((size_t)1 << 20)

static void stop(const char *what, int ret)
{
	fprintf(stderr, "%s: %s\n", what, strerror(-ret));
	exit(EXIT_FAILURE);
}

static struct pinion_cache_stats query(struct pinion_context *context)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };
	int ret = pinion_cache_query(context, &stats);

	if (ret)
		stop("pinion_cache_query", ret);
	return stats;
}

/* What a transfer does with its buffer. */
static void use(struct pinion_context *context, void *buffer)
{
	struct pinion_pin pin;
	int ret = pinion_pin(context, buffer, LEN, PINION_ACCESS_LOCAL_WRITE,
			     &pin);

	if (ret)
		stop("pinion_pin", ret);

	/* A pin has one segment or, if parts of the buffer were registered
	 * before, several; each has its own keys. */
	for (unsigned i = 0; i < pin.nsegments; i++) {
		struct pinion_pin_segment part;

		ret = pinion_pin_segment(&pin, i, &part);
		if (ret)
			stop("pinion_pin_segment", ret);
		/* ... the adapter reads or writes part.len bytes at part.addr
		 * with part.local_key ... */
	}
	pinion_unpin(context, &pin);
}

static void *map(void *where)
{
	void *buffer = mmap(where, LEN, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (buffer == MAP_FAILED)
		stop("mmap", -1);
	return buffer;
}

int main(void)
{
	struct pinion_cache_stats stats;
	struct pinion_context *context;
	void *buffer;
	int ret = pinion_open(NULL, &context);

	if (ret)
		stop("pinion_open", ret);

	buffer = map(NULL);
	for (int i = 0; i < 1000; i++)
		use(context, buffer);
	stats = query(context);
	printf("1000 uses: %llu registration, %llu hits\n",
	       (unsigned long long)stats.registrations,
	       (unsigned long long)stats.hits);

	/* Other memory, perhaps at the same address: the old registration is
	 * never used for it. */
	munmap(buffer, LEN);
	buffer = map(buffer);
	use(context, buffer);
	stats = query(context);
	printf("new memory: %llu registrations, %llu invalidated\n",
	       (unsigned long long)stats.registrations,
	       (unsigned long long)stats.invalidations);

	/* Pinned memory is scarce: deregister what is not in use. */
	ret = pinion_cache_flush(context);
	if (ret)
		stop("pinion_cache_flush", ret);
	printf("flushed: %zu bytes cached\n", query(context).bytes);

	munmap(buffer, LEN);
	pinion_close(context);
	return EXIT_SUCCESS;
}
