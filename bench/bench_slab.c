/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: what does a heap pay for a new slab, and do huge pages or faulting
 * in parallel make it cheaper?
 *
 * New memory is mapped, faulted in and registered:
 *
 *   by device   the device faults the pages in while it registers them
 *   one thread  MADV_POPULATE_WRITE, then registering
 *   two threads each faults in a half, then registering. The second thread is
 *               there already and waits: it polls, as a thread that a heap kept
 *               for this would not
 *   huge pages  transparent huge pages, one thread
 *
 * Rows are medians over trials in turns; fault_us contains the mapping. Huge
 * pages need a slab of 2 MiB; a kernel that gives none shows as no gain.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/pages.h"
#include "bench/bench.h"

#define MAX_TRIALS 1000

enum way { BY_DEVICE, ONE, TWO, HUGE_PAGES, NWAYS };

static const char *const names[NWAYS] = { "by device", "one thread",
					  "two threads", "huge pages" };

struct values {
	struct pn_bench_values common;
	uint64_t trials;
};

static const struct pn_option options[] = {
	PN_BENCH_OPTIONS("1M", "16M", "10s"),
	{ "trials", PN_OPTION_NUMBER, "100", "trials of a size",
	  offsetof(struct values, trials), 3, MAX_TRIALS, NULL },
};

static const struct pn_pages_policy normal = { .huge = PN_PAGES_NORMAL,
					       .numa_node = -1 };
static const struct pn_pages_policy huge = { .huge = PN_PAGES_TRANSPARENT,
					     .numa_node = -1 };

/* The second thread: faults in what it is given. */
struct second {
	pthread_t thread;
	char *_Atomic memory; /* NULL: wait */
	size_t bytes;
	_Atomic bool stop;
};

struct state {
	struct pn_bench_run *run;
	const struct values *values;
	struct second second;
	double fault[NWAYS][MAX_TRIALS], reg[NWAYS][MAX_TRIALS]; /* ns */
};

static int populate(void *memory, size_t bytes)
{
	return madvise(memory, bytes, MADV_POPULATE_WRITE) ? -errno : 0;
}

static void *fault_in_second(void *arg)
{
	struct second *second = arg;

	while (!atomic_load(&second->stop)) {
		char *memory = atomic_load(&second->memory);

		if (!memory)
			continue;
		populate(memory, second->bytes);
		atomic_store(&second->memory, NULL);
	}
	return NULL;
}

static int fault_in(struct state *s, enum way way, char *memory, size_t bytes)
{
	struct second *second = &s->second;
	int ret;

	if (way == BY_DEVICE)
		return 0;
	if (way != TWO)
		return populate(memory, bytes);
	second->bytes = bytes - bytes / 2;
	atomic_store(&second->memory, memory + bytes / 2);
	ret = populate(memory, bytes / 2);
	while (atomic_load(&second->memory))
		;
	return ret;
}

static int try_way(struct state *s, enum way way, size_t bytes, size_t i)
{
	const struct pn_pages_policy *policy =
		way == HUGE_PAGES ? &huge : &normal;
	struct pn_mr mr = { .len = bytes, .access = PINION_ACCESS_LOCAL_WRITE };
	struct pn_mr *list = &mr;
	uint64_t start = pn_clock_ns(), faulted;
	void *memory;
	int ret = pn_pages_map(bytes, policy, &memory);

	if (ret)
		return ret;
	mr.addr = memory;
	ret = fault_in(s, way, memory, bytes);
	faulted = pn_clock_ns();
	s->fault[way][i] = (double)(faulted - start);
	if (!ret)
		ret = pn_device_register(s->run->device, &list, 1);
	s->reg[way][i] = (double)(pn_clock_ns() - faulted);
	if (!ret)
		pn_device_deregister(s->run->device, &list, 1);
	pn_pages_unmap(memory, bytes, policy);
	return ret;
}

static int try_all(struct state *s, size_t bytes, size_t i)
{
	int ret = 0;

	for (enum way way = 0; !ret && way < NWAYS; way++)
		if (way != HUGE_PAGES || bytes >= PN_PAGES_HUGE_BYTES)
			ret = try_way(s, way, bytes, i);
	return ret;
}

static void print_way(struct state *s, enum way way, size_t bytes, size_t n)
{
	double fault = pn_median(s->fault[way], n) / 1e3;
	double reg = pn_median(s->reg[way], n) / 1e3;
	const struct pn_report_cell row[] = {
		PN_CELL_BYTES("bytes", "bytes", 6, bytes),
		PN_CELL_TEXT("way", "faulted in", -12, names[way]),
		PN_CELL_NUMBER("fault_us", "fault us", 10, fault),
		PN_CELL_NUMBER("register_us", "register us", 12, reg),
		PN_CELL_NUMBER("slab_us", "together", 10, fault + reg),
		PN_CELL_NUMBER("us_per_mib", "us per MiB", 10,
			       (fault + reg) * (1 << 20) / (double)bytes),
		PN_CELL_COUNT("trials", "trials", 6, n),
	};

	pn_report_row(&s->run->report, row, PN_ARRAY_LEN(row));
}

static int measure_size(struct state *s, size_t bytes)
{
	struct pn_trials trials;
	size_t n = 0;
	int ret = try_all(s, bytes, 0); /* warm-up; overwritten */

	trials = pn_trials_begin(3, s->values->trials,
				 pn_bench_share_ns(s->run));
	for (; !ret && pn_trials_continue(&trials, n); n++)
		ret = try_all(s, bytes, n);
	for (enum way way = 0; !ret && way < NWAYS; way++)
		if (way != HUGE_PAGES || bytes >= PN_PAGES_HUGE_BYTES)
			print_way(s, way, bytes, n);
	return ret;
}

static int measure_sizes(struct state *s)
{
	const struct pn_bench_values *v = &s->values->common;
	int ret = 0;

	pn_bench_plan(s->run, pn_bench_nsizes(v->min, v->max));
	for (size_t bytes = v->min; !ret && bytes <= v->max; bytes *= 2)
		ret = measure_size(s, bytes);
	if (ret == -ENOMEM) {
		pn_report_note(&s->run->report,
			       "larger sizes exceed RLIMIT_MEMLOCK");
		return 0;
	}
	return ret;
}

static int body(struct pn_bench_run *run)
{
	struct state *s = calloc(1, sizeof(*s));
	int ret = s ? 0 : -ENOMEM;

	if (ret)
		return ret;
	s->run = run;
	s->values = run->values;
	ret = -pthread_create(&s->second.thread, NULL, fault_in_second,
			      &s->second);
	if (!ret) {
		ret = measure_sizes(s);
		atomic_store(&s->second.stop, true);
		pthread_join(s->second.thread, NULL);
	}
	free(s);
	return ret;
}

static int run_slab(const void *values, char *const *operands)
{
	(void)operands;
	return pn_bench_execute(&pn_bench_slab, values, body);
}

const struct pn_command pn_bench_slab = {
	.name = "slab",
	.help = "what does a new slab of a heap cost, and do huge pages or "
		"faulting in parallel make it cheaper?",
	.about = "Maps, faults in and registers new memory: by the device, by "
		 "one thread, by two, and with huge pages.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_slab,
};
