/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 12_registrar -- pinion's cache under your own transport.
 *
 * The transport of this program is a copy, and registering is mlock(): enough
 * to show what a program with verbs, libfabric or a driver does. It gives
 * pinion two functions and pins its buffers; pinion decides when they are
 * registered and deregistered.
 *
 * 	cc 12_registrar.c $(pkg-config --cflags --libs pinion) && ./a.out
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <pinion/pinion.h>

#define LEN    ((size_t)16 << 10)
#define ROUNDS 1000

/* A registration of this transport. */
struct region {
	char *addr;
	size_t len;
};

struct transport {
	_Atomic unsigned nregions, nregistered; /* current number; total */
};

static void stop(const char *what, int ret)
{
	fprintf(stderr, "%s: %s\n", what, strerror(-ret));
	exit(EXIT_FAILURE);
}

/* --- the two functions ---------------------------------------------------- */

static void deregister(struct transport *t, struct region *region)
{
	munlock(region->addr, region->len);
	free(region);
	atomic_fetch_sub(&t->nregions, 1);
}

static struct region *register_one(struct transport *t, void *addr, size_t len)
{
	struct region *region = malloc(sizeof(*region));

	if (!region)
		return NULL;
	*region = (struct region){ addr, len };
	if (mlock(addr, len)) {
		free(region);
		return NULL;
	}
	atomic_fetch_add(&t->nregions, 1);
	atomic_fetch_add(&t->nregistered, 1);
	return region;
}

/* Registers all or none. After -ENOMEM, pinion deregisters unused regions and
 * tries again. */
static int register_ranges(void *arg,
			   struct pinion_registrar_range *const *ranges,
			   unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		ranges[i]->handle =
			register_one(arg, ranges[i]->addr, ranges[i]->len);
		if (ranges[i]->handle)
			continue;
		while (i--)
			deregister(arg, ranges[i]->handle);
		return -ENOMEM;
	}
	return 0;
}

static int deregister_ranges(void *arg,
			     struct pinion_registrar_range *const *ranges,
			     unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		deregister(arg, ranges[i]->handle);
	return 0;
}

/* --- the program ---------------------------------------------------------- */

/* A transfer finds its memory in the registration that the handle names. */
static void transfer(char *to, const char *from, size_t len,
		     const struct region *region)
{
	if (from < region->addr || from + len > region->addr + region->len)
		stop("transfer", -EFAULT);
	memcpy(to, from, len);
}

static void send_buffer(struct pinion_context *context, char *to, char *buffer)
{
	struct pinion_pin pin;
	int ret = pinion_pin(context, buffer, LEN, 0, &pin);

	if (ret)
		stop("pinion_pin", ret);
	transfer(to, buffer, LEN, pin.handle);
	pinion_unpin(context, &pin);
}

static char *map_buffer(void)
{
	char *buffer = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (buffer == MAP_FAILED)
		stop("mmap", -errno);
	return buffer;
}

int main(void)
{
	struct transport transport = { 0 };
	const struct pinion_registrar registrar = {
		.size = sizeof(registrar),
		.arg = &transport,
		.register_ranges = register_ranges,
		.deregister_ranges = deregister_ranges,
	};
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .registrar = &registrar };
	struct pinion_context *context;
	char *buffer = map_buffer(), to[LEN];
	int ret = pinion_open(&attr, &context);

	if (ret)
		stop("pinion_open", ret);
	for (unsigned i = 0; i < ROUNDS; i++) {
		buffer[0] = (char)i;
		send_buffer(context, to, buffer);
	}
	printf("%u transfers, registered %u times\n", ROUNDS,
	       transport.nregistered);

	/* Another buffer at the same address is registered anew. */
	munmap(buffer, LEN);
	buffer = map_buffer();
	send_buffer(context, to, buffer);
	printf("and again for a new buffer: %u\n", transport.nregistered);

	pinion_close(context);
	munmap(buffer, LEN);
	printf("still registered at the end: %u\n", transport.nregions);
	return transport.nregions || transport.nregistered > ROUNDS / 2;
}
