/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/trace/workload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/index.h"
#include "base/range.h"

#define FIRST_CAPACITY ((size_t)1 << 12)
#define ADDRESS_BITS   47

int pn_workload_init(struct pn_workload *workload)
{
	const char *folder = getenv("TMPDIR");

	*workload = (struct pn_workload){ .fd = -1 };
	workload->fd = open(folder && *folder ? folder : "/tmp",
			    O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	/* Not every file system has O_TMPFILE: fall back to memory. */
	if (workload->fd < 0)
		workload->fd = memfd_create("pinion-workload", MFD_CLOEXEC);
	return workload->fd < 0 ? -errno : 0;
}

void pn_workload_fini(struct pn_workload *workload)
{
	if (workload->steps)
		munmap(workload->steps,
		       workload->capacity * sizeof(*workload->steps));
	if (workload->fd >= 0)
		close(workload->fd);
	*workload = (struct pn_workload){ .fd = -1 };
}

static int grow(struct pn_workload *workload)
{
	size_t capacity =
		workload->capacity ? 2 * workload->capacity : FIRST_CAPACITY;
	size_t bytes = capacity * sizeof(*workload->steps);
	void *steps;
	int ret = posix_fallocate(workload->fd, 0, (off_t)bytes);

	if (ret)
		return -ret;
	steps = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		     workload->fd, 0);
	if (steps == MAP_FAILED)
		return -errno;
	if (workload->steps)
		munmap(workload->steps,
		       workload->capacity * sizeof(*workload->steps));
	workload->steps = steps;
	workload->capacity = capacity;
	return 0;
}

static bool is_range(const struct pn_workload_step *step)
{
	return step->kind == PN_WORKLOAD_PIN ||
	       step->kind == PN_WORKLOAD_RELEASE ||
	       step->kind == PN_WORKLOAD_MAPPING;
}

int pn_workload_add(struct pn_workload *workload,
		    const struct pn_workload_step *step)
{
	const uint64_t limit = (uint64_t)1 << ADDRESS_BITS;

	if (is_range(step) && !step->len)
		return -EINVAL;
	if (is_range(step) &&
	    (step->len > limit || step->addr > limit - step->len))
		return -ERANGE;
	if (workload->nsteps == workload->capacity) {
		int ret = grow(workload);

		if (ret)
			return ret;
	}
	workload->steps[workload->nsteps++] = *step;
	workload->npins += step->kind == PN_WORKLOAD_PIN;
	if (step->kind == PN_WORKLOAD_PIN && step->hold > workload->nholds)
		workload->nholds = step->hold;
	return 0;
}

/* --- footprint ------------------------------------------------------------
 */

static struct pn_range pages_of(const struct pn_workload_step *step)
{
	return pn_range_pages(step->addr, step->len, PN_PAGE_BYTES);
}

/* Calls fn for each PIN, from the last to the first, with its pages reserved in
 * an initially empty index. */
static int for_each_pin_backwards(const struct pn_workload *workload,
				  int (*fn)(struct pn_index *index,
					    struct pn_range pages,
					    size_t number, void *arg),
				  void *arg)
{
	struct pn_index index;
	int ret = pn_index_init(&index);

	if (ret)
		return ret;
	for (size_t i = workload->nsteps; i-- && !ret;) {
		const struct pn_workload_step *step = &workload->steps[i];

		if (step->kind != PN_WORKLOAD_PIN)
			continue;
		ret = pn_index_reserve(&index, pages_of(step));
		if (!ret)
			ret = fn(&index, pages_of(step), i, arg);
	}
	pn_index_fini(&index);
	return ret;
}

static int count_new(struct pn_index *index, struct pn_range pages,
		     size_t number, void *arg)
{
	size_t *bytes = arg;

	(void)number;
	for (size_t off = 0; off < pages.len; off += PN_PAGE_BYTES)
		if (!pn_index_get(index, pages.addr + off))
			*bytes += PN_PAGE_BYTES;
	pn_index_set(index, pages, 1);
	return 0;
}

int pn_workload_footprint(const struct pn_workload *workload, size_t *bytes)
{
	*bytes = 0;
	return for_each_pin_backwards(workload, count_new, bytes);
}

/* --- next use --------------------------------------------------------------
 */

/* The index maps each page to the number of the next request for it plus one.
 */
static uint32_t next_of_page(const struct pn_index *index, uintptr_t addr)
{
	uint32_t at = pn_index_get(index, addr);

	return at ? at - 1 : PN_NEXT_NEVER;
}

static int add_each(struct pn_next_use *next, uint32_t of_page)
{
	if (next->neach == next->capacity) {
		size_t capacity = next->capacity ? 2 * next->capacity : 1024;
		uint32_t *each =
			reallocarray(next->each, capacity, sizeof(*each));

		if (!each)
			return -ENOMEM;
		next->each = each;
		next->capacity = capacity;
	}
	next->each[next->neach++] = of_page;
	return 0;
}

static int add_mixed(struct pn_next_use *next, const struct pn_index *index,
		     struct pn_range pages)
{
	for (size_t off = pages.len; off; off -= PN_PAGE_BYTES) {
		uintptr_t page = pages.addr + off - PN_PAGE_BYTES;
		int ret = add_each(next, next_of_page(index, page));

		if (ret)
			return ret;
	}
	return 0;
}

static int set_next_use(struct pn_index *index, struct pn_range pages,
			size_t number, void *arg)
{
	struct pn_next_use *next = arg;
	uint32_t first = next_of_page(index, pages.addr);
	size_t off = PN_PAGE_BYTES;
	int ret = 0;

	while (off < pages.len &&
	       next_of_page(index, pages.addr + off) == first)
		off += PN_PAGE_BYTES;
	next->of_step[number] = off < pages.len ? PN_NEXT_MIXED : first;
	if (off < pages.len)
		ret = add_mixed(next, index, pages);
	pn_index_set(index, pages, (uint32_t)number + 1);
	return ret;
}

int pn_next_use_init(struct pn_next_use *next,
		     const struct pn_workload *workload)
{
	int ret;

	*next = (struct pn_next_use){ .of_step = NULL };
	if (workload->nsteps >= PN_NEXT_NEVER)
		return -E2BIG;
	next->of_step = calloc(workload->nsteps + 1, sizeof(*next->of_step));
	if (!next->of_step)
		return -ENOMEM;
	ret = for_each_pin_backwards(workload, set_next_use, next);
	if (ret)
		pn_next_use_fini(next);
	return ret;
}

void pn_next_use_fini(struct pn_next_use *next)
{
	free(next->of_step);
	free(next->each);
	*next = (struct pn_next_use){ .of_step = NULL };
}
