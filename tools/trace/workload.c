/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/trace/workload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/index.h"
#include "base/range.h"

#define FIRST_ROOM   ((size_t)1 << 12)
#define ADDRESS_BITS 47

int pn_workload_init(struct pn_workload *script)
{
	const char *folder = getenv("TMPDIR");

	*script = (struct pn_workload){ .fd = -1 };
	script->fd = open(folder && *folder ? folder : "/tmp",
			  O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	/* Not every file system has nameless files: then memory has to do. */
	if (script->fd < 0)
		script->fd = memfd_create("pinion-script", MFD_CLOEXEC);
	return script->fd < 0 ? -errno : 0;
}

void pn_workload_fini(struct pn_workload *script)
{
	if (script->steps)
		munmap(script->steps, script->room * sizeof(*script->steps));
	if (script->fd >= 0)
		close(script->fd);
	*script = (struct pn_workload){ .fd = -1 };
}

static int grow(struct pn_workload *script)
{
	size_t room = script->room ? 2 * script->room : FIRST_ROOM;
	size_t bytes = room * sizeof(*script->steps);
	void *steps;
	int ret = posix_fallocate(script->fd, 0, (off_t)bytes);

	if (ret)
		return -ret;
	steps = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		     script->fd, 0);
	if (steps == MAP_FAILED)
		return -errno;
	if (script->steps)
		munmap(script->steps, script->room * sizeof(*script->steps));
	script->steps = steps;
	script->room = room;
	return 0;
}

static bool is_range(const struct pn_workload_step *step)
{
	return step->kind == PN_WORKLOAD_PIN ||
	       step->kind == PN_WORKLOAD_RELEASE ||
	       step->kind == PN_WORKLOAD_MAPPING;
}

int pn_workload_add(struct pn_workload *script,
		    const struct pn_workload_step *step)
{
	const uint64_t limit = (uint64_t)1 << ADDRESS_BITS;

	if (is_range(step) && !step->len)
		return -EINVAL;
	if (is_range(step) &&
	    (step->len > limit || step->addr > limit - step->len))
		return -ERANGE;
	if (script->nsteps == script->room) {
		int ret = grow(script);

		if (ret)
			return ret;
	}
	script->steps[script->nsteps++] = *step;
	script->npins += step->kind == PN_WORKLOAD_PIN;
	if (step->kind == PN_WORKLOAD_PIN && step->hold > script->nholds)
		script->nholds = step->hold;
	return 0;
}

/* --- what the pages tell ----------------------------------------------------
 */

static struct pn_range pages_of(const struct pn_workload_step *step)
{
	return pn_range_pages(step->addr, step->len, PN_PAGE_BYTES);
}

/* Calls fn for each PIN, from the last to the first, with its pages reserved in
 * an index that begins empty. */
static int walk_back(const struct pn_workload *script,
		     int (*fn)(struct pn_index *index, struct pn_range pages,
			       size_t number, void *arg),
		     void *arg)
{
	struct pn_index index;
	int ret = pn_index_init(&index);

	if (ret)
		return ret;
	for (size_t i = script->nsteps; i-- && !ret;) {
		const struct pn_workload_step *step = &script->steps[i];

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

int pn_workload_footprint(const struct pn_workload *script, size_t *bytes)
{
	*bytes = 0;
	return walk_back(script, count_new, bytes);
}

/* --- the future --------------------------------------------------------------
 */

/* The index holds, for each page, the number of the next request for it plus
 * one. */
static uint32_t next_of_page(const struct pn_index *index, uintptr_t addr)
{
	uint32_t at = pn_index_get(index, addr);

	return at ? at - 1 : PN_NEXT_NEVER;
}

static int add_each(struct pn_next_use *next, uint32_t of_page)
{
	if (next->neach == next->room) {
		size_t room = next->room ? 2 * next->room : 1024;
		uint32_t *each = reallocarray(next->each, room, sizeof(*each));

		if (!each)
			return -ENOMEM;
		next->each = each;
		next->room = room;
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

static int note_next(struct pn_index *index, struct pn_range pages,
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

int pn_next_use_init(struct pn_next_use *next, const struct pn_workload *script)
{
	int ret;

	*next = (struct pn_next_use){ .of_step = NULL };
	if (script->nsteps >= PN_NEXT_NEVER)
		return -E2BIG;
	next->of_step = calloc(script->nsteps + 1, sizeof(*next->of_step));
	if (!next->of_step)
		return -ENOMEM;
	ret = walk_back(script, note_next, next);
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
