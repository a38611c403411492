/* SPDX-License-Identifier: BSD-2-Clause */
#include "transfers.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

char *map_at(void *where, size_t len)
{
	char *memory =
		mmap(where, len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED : 0), -1,
		     0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	return memory;
}

void remap(char **memory, size_t len)
{
	char *again;

	munmap(*memory, len);
	again = mmap(*memory, len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	*memory = again == MAP_FAILED ? map_at(NULL, len) : again;
}

struct pinion_cache_stats query(struct pinion_context *context)
{
	struct pinion_cache_stats stats = { .size = sizeof(stats) };

	assert_ok(pinion_cache_query(context, &stats));
	return stats;
}

/* --- transfers ------------------------------------------------------------ */

static void fill(char *buf, size_t len, uint64_t seed)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (char)(test_mix(seed, i >> 3) >> i % 8 * 8);
}

void write_and_compare(const struct transport *t, char *local, char *remote,
		       size_t len, uint64_t seed)
{
	struct pinion_pin from, to;

	fill(local, len, seed);
	memset(remote, 0, len);
	assert_ok(pinion_pin(t->local, local, len, 0, &from));
	assert_ok(pinion_pin(t->remote, remote, len, PINION_ACCESS_REMOTE_WRITE,
			     &to));
	assert_true(t->write(t->arg, &from, &to));
	assert_memory_equal(local, remote, len);
	pinion_unpin(t->local, &from);
	pinion_unpin(t->remote, &to);
}

void read_and_compare(const struct transport *t, char *local, char *remote,
		      size_t len, uint64_t seed)
{
	struct pinion_pin from, to;

	fill(remote, len, seed);
	memset(local, 0, len);
	assert_ok(pinion_pin(t->local, local, len, PINION_ACCESS_LOCAL_WRITE,
			     &to));
	assert_ok(pinion_pin(t->remote, remote, len, PINION_ACCESS_REMOTE_READ,
			     &from));
	assert_true(t->read(t->arg, &to, &from));
	assert_memory_equal(local, remote, len);
	pinion_unpin(t->local, &to);
	pinion_unpin(t->remote, &from);
}

void move_buffers(const struct transport *t)
{
	static const size_t lengths[] = { 1, 100, 4096, 100 * 1000, 2 << 20 };
	char *local = map_at(NULL, 3 * MIB), *remote = map_at(NULL, 3 * MIB);

	for (unsigned i = 0; i < 2 * PN_ARRAY_LEN(lengths); i++) {
		size_t len = lengths[i / 2];

		write_and_compare(t, local + 13, remote + 4000, len, i);
		read_and_compare(t, local + 13, remote + 777, len, i);
	}
	munmap(local, 3 * MIB);
	munmap(remote, 3 * MIB);
}

static struct pinion_heap *open_heap(struct pinion_context *context)
{
	struct pinion_heap_attr keep = { .size = sizeof(keep),
					 .return_us = PINION_HEAP_KEEP };
	struct pinion_heap *heap;

	assert_ok(pinion_heap_open(context, &keep, &heap));
	return heap;
}

void move_heap_buffers(const struct transport *t)
{
	struct pinion_heap *local_heap = open_heap(t->local);
	struct pinion_heap *remote_heap =
		t->remote == t->local ? local_heap : open_heap(t->remote);

	for (unsigned i = 0; i < 50; i++) {
		size_t len = 100 + i * 300;
		char *local = pinion_heap_malloc(local_heap, len);
		char *remote = pinion_heap_malloc(remote_heap, len);
		uint64_t before[2];

		assert_non_null(local);
		assert_non_null(remote);
		before[0] = query(t->local).registrations;
		before[1] = query(t->remote).registrations;
		write_and_compare(t, local, remote, len, i);
		read_and_compare(t, local, remote, len, i);
		assert_int_equal(query(t->local).registrations, before[0]);
		assert_int_equal(query(t->remote).registrations, before[1]);
		if (i % 3)
			pinion_heap_free(remote_heap, remote);
	}
}

void write_many(const struct transport *t, size_t n, size_t len)
{
	char *local = map_at(NULL, n * len), *remote = map_at(NULL, n * len);

	for (unsigned i = 0; i < 4 * n; i++) {
		size_t at = i * 7 % n * len;

		write_and_compare(t, local + at, remote + at, len, i);
	}
	munmap(local, n * len);
	munmap(remote, n * len);
}

struct pinion_cache_stats write_remapped(const struct transport *t)
{
	const size_t len = 256 * KIB;
	struct pinion_cache_stats stats;
	char *local = map_at(NULL, len), *remote = map_at(NULL, len);

	for (unsigned i = 0; i < 20; i++) {
		write_and_compare(t, local, remote, len, i);
		remap(i % 2 ? &local : &remote, len);
	}
	stats = query(t->remote);
	munmap(local, len);
	munmap(remote, len);
	return stats;
}

/* --- pins ----------------------------------------------------------------- */

void expect_unpinnable_memory_refused(struct pinion_context *context)
{
	char *memory = map_at(NULL, 8192);
	struct pinion_pin pin;

	munmap(memory + 4096, 4096);
	assert_int_equal(pinion_pin(context, memory, 8192, 0, &pin), -EFAULT);
	assert_ok(mprotect(memory, 4096, PROT_READ));
	assert_int_equal(pinion_pin(context, memory, 4096,
				    PINION_ACCESS_LOCAL_WRITE, &pin),
			 -EFAULT);
	assert_ok(pinion_pin(context, memory, 4096, 0, &pin));
	assert_int_equal(pin.remote_key, 0);
	pinion_unpin(context, &pin);
	munmap(memory, 4096);
}

struct pinner {
	struct pinion_context *context;
	unsigned n;
	bool (*is_good)(const struct pinion_pin *pin, unsigned flags);
	uint64_t seed;
	unsigned errors, npins;
	pthread_t thread;
};

static void *run_pinner(void *arg)
{
	struct pinner *p = arg;
	char *memory = mmap(NULL, MIB, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (unsigned i = 0; i < p->n; i++) {
		unsigned flags = i % 2 ? PINION_ACCESS_REMOTE_WRITE : 0;
		size_t len = 1 + test_below(&p->seed, 50000);
		size_t at = test_below(&p->seed, MIB - len);
		struct pinion_pin pin;
		int ret = pinion_pin(p->context, memory + at, len, flags, &pin);

		if (ret) {
			p->errors += ret != -ENOBUFS;
			continue;
		}
		p->npins++;
		p->errors += !p->is_good(&pin, flags);
		pinion_unpin(p->context, &pin);
		if (i % 50 == 0)
			madvise(memory, MIB / 2, MADV_DONTNEED);
	}
	munmap(memory, MIB);
	return NULL;
}

void pin_in_threads(struct pinion_context *context, unsigned n,
		    bool (*is_good)(const struct pinion_pin *pin,
				    unsigned flags))
{
	uint64_t seed = test_seed();
	struct pinner pinners[4];
	unsigned npins = 0;

	for (unsigned i = 0; i < PN_ARRAY_LEN(pinners); i++) {
		pinners[i] = (struct pinner){ .context = context,
					      .n = n,
					      .is_good = is_good,
					      .seed = test_mix(seed, i) };
		assert_ok(pthread_create(&pinners[i].thread, NULL, run_pinner,
					 &pinners[i]));
	}
	for (unsigned i = 0; i < PN_ARRAY_LEN(pinners); i++) {
		pthread_join(pinners[i].thread, NULL);
		assert_int_equal(pinners[i].errors, 0);
		npins += pinners[i].npins;
	}
	assert_true(npins > n); /* refusals are the exception */
}
