/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs_times ADDRESS count -- prints the kernel's number of a registration
 * that it makes: the difference of two, less 1, is what others made meanwhile.
 *
 * verbs_times ADDRESS [BYTES [WRITES]] -- what registering around each RDMA
 * write costs an unmodified program: the time of writes with memory that is
 * registered once, and with ibv_reg_mr() and ibv_dereg_mr() around each, in
 * turns. Prints one line of JSON: medians of the rounds, in microseconds, their
 * ratio, and how many registrations the kernel has made for one write.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "cm_pair.h"

enum { NROUNDS = 11 };

struct writer {
	struct cm_pair pair;
	char *once, *each, *to;
	size_t len;
	unsigned nwrites;
	struct ibv_mr *source, *target;
};

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static void write_from(struct writer *w, const struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, (uint32_t)w->len,
			       mr->lkey };

	if (cm_pair_do(&w->pair, IBV_WR_RDMA_WRITE, sge, w->to,
		       w->target->rkey) != IBV_WC_SUCCESS) {
		fputs("a write failed\n", stderr);
		exit(EXIT_FAILURE);
	}
}

/* Microseconds per write. */
static double round_us(struct writer *w, int around)
{
	double start = now_us();

	for (unsigned i = 0; i < w->nwrites; i++) {
		struct ibv_mr *mr =
			around ? ibv_reg_mr(w->pair.pd, w->each, w->len,
					    IBV_ACCESS_LOCAL_WRITE)
			       : w->source;

		write_from(w, mr);
		if (around)
			ibv_dereg_mr(mr);
	}
	return (now_us() - start) / w->nwrites;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, NROUNDS, sizeof(*values), compare);
	return values[NROUNDS / 2];
}

static char *map(size_t len)
{
	return mmap(NULL, len, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
}

int main(int argc, char **argv)
{
	double once[NROUNDS], each[NROUNDS], a, b;
	struct writer w = { .len = 4096, .nwrites = 300 };
	uint64_t first;

	if (argc < 2)
		return 77;
	if (argc > 2 && !strcmp(argv[2], "count")) {
		cm_pair_open(&w.pair, argv[1]);
		printf("%llu\n", (unsigned long long)cm_mr_number(w.pair.pd));
		return cm_pair_close(&w.pair);
	}
	if (argc > 2)
		w.len = strtoul(argv[2], NULL, 0);
	if (argc > 3)
		w.nwrites = (unsigned)strtoul(argv[3], NULL, 0);
	cm_pair_open(&w.pair, argv[1]);
	/* Two: what is in use stays registered by itself. */
	w.once = map(w.len);
	w.each = map(w.len);
	w.to = map(w.len);
	w.target = ibv_reg_mr(w.pair.pd, w.to, w.len,
			      IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	w.source = ibv_reg_mr(w.pair.pd, w.once, w.len, IBV_ACCESS_LOCAL_WRITE);
	round_us(&w, 0);
	first = cm_mr_number(w.pair.pd);
	for (unsigned i = 0; i < NROUNDS; i++) {
		once[i] = round_us(&w, 0);
		each[i] = round_us(&w, 1);
	}
	a = median(once);
	b = median(each);
	printf("{\"bytes\":%zu,\"once_us\":%.1f,\"around_us\":%.1f,"
	       "\"ratio\":%.3f,\"registrations_per_write\":%.4f}\n",
	       w.len, a, b, b / a,
	       (double)(cm_mr_number(w.pair.pd) - first - 1) /
		       (NROUNDS * w.nwrites));
	ibv_dereg_mr(w.source);
	ibv_dereg_mr(w.target);
	return cm_pair_close(&w.pair);
}
