/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs_times ADDRESS adapter -- prints the adapter that has the address.
 *
 * verbs_times ADDRESS count -- prints the kernel's number of a registration
 * that it makes: the difference of two, less 1, is what others made meanwhile.
 *
 * verbs_times ADDRESS [BYTES [WRITES [remote]]] -- what registering around each
 * RDMA write costs an unmodified program: the time of writes with memory that
 * is registered once, and with ibv_reg_mr() and ibv_dereg_mr() around each, in
 * turns; `remote`: with remote access, too. Prints one line of JSON: medians of
 * the rounds, in microseconds, their ratio, and how many registrations the
 * kernel has made for one write.
 *
 * verbs_times ADDRESS windows -- what a key costs that peers can use and that
 * ends: ibv_reg_mr() and ibv_dereg_mr() with remote access, against a type 1
 * memory window that is bound once more (device/verbs/window.h), in turns. One
 * line of JSON for each size. 77: the adapter has no such windows.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "cm_pair.h"
#include "device/verbs/window.h"

enum { NROUNDS = 11 };

struct writer {
	struct cm_pair pair;
	char *once, *each, *to;
	size_t len;
	unsigned nwrites;
	int access;
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
		struct ibv_mr *mr = around ? ibv_reg_mr(w->pair.pd, w->each,
							w->len, w->access)
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

/* --- windows ---------------------------------------------------------------
 */

#define REMOTE (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)

static double register_us(struct ibv_pd *pd, char *memory, size_t len,
			  unsigned n)
{
	double start = now_us();

	for (unsigned i = 0; i < n; i++)
		ibv_dereg_mr(ibv_reg_mr(pd, memory, len, REMOTE));
	return (now_us() - start) / n;
}

static double bind_us(struct pn_verbs_binder *binder,
		      struct pn_verbs_window *window, struct ibv_mr *mr,
		      unsigned n)
{
	double start = now_us();

	for (unsigned i = 0; i < n; i++)
		if (pn_verbs_window_bind(binder, window, mr,
					 IBV_ACCESS_REMOTE_WRITE))
			exit(EXIT_FAILURE);
	return (now_us() - start) / n;
}

static void compare_windows(struct ibv_pd *pd, struct pn_verbs_binder *binder,
			    size_t len, unsigned n)
{
	double registered[NROUNDS], bound[NROUNDS];
	struct pn_verbs_window window = { 0 };
	char *memory = map(len);
	struct ibv_mr *mr =
		ibv_reg_mr(pd, memory, len, REMOTE | IBV_ACCESS_MW_BIND);

	if (!mr)
		exit(77);
	for (unsigned i = 0; i < NROUNDS; i++) {
		registered[i] = register_us(pd, memory, len, n);
		bound[i] = bind_us(binder, &window, mr, n);
	}
	printf("{\"bytes\":%zu,\"register_us\":%.1f,\"bind_us\":%.1f}\n", len,
	       median(registered), median(bound));
	pn_verbs_window_free(&window);
	ibv_dereg_mr(mr);
	munmap(memory, len);
}

static int windows(const char *address)
{
	struct pn_verbs_binder binder = { .qp = NULL };
	struct ibv_port_attr port;
	struct cm_pair pair;

	cm_pair_open(&pair, address);
	if (ibv_query_port(pair.adapter, 1, &port) ||
	    pn_verbs_binder_open(&binder, pair.pd, 1, &port))
		return 77;
	for (size_t len = 4096; len <= (size_t)4 << 20; len *= 16)
		compare_windows(pair.pd, &binder, len, 100);
	compare_windows(pair.pd, &binder, (size_t)4 << 20, 100);
	pn_verbs_binder_close(&binder);
	return cm_pair_close(&pair);
}

int main(int argc, char **argv)
{
	double once[NROUNDS], each[NROUNDS], a, b;
	struct writer w = { .len = 4096,
			    .nwrites = 300,
			    .access = IBV_ACCESS_LOCAL_WRITE };
	uint64_t first;

	if (argc < 2)
		return 77;
	if (argc > 2 && !strcmp(argv[2], "adapter")) {
		cm_pair_open(&w.pair, argv[1]);
		puts(ibv_get_device_name(w.pair.adapter->device));
		return cm_pair_close(&w.pair);
	}
	if (argc > 2 && !strcmp(argv[2], "count")) {
		cm_pair_open(&w.pair, argv[1]);
		printf("%llu\n", (unsigned long long)cm_mr_number(w.pair.pd));
		return cm_pair_close(&w.pair);
	}
	if (argc > 2 && !strcmp(argv[2], "windows"))
		return windows(argv[1]);
	if (argc > 2)
		w.len = strtoul(argv[2], NULL, 0);
	if (argc > 3)
		w.nwrites = (unsigned)strtoul(argv[3], NULL, 0);
	if (argc > 4)
		w.access |= IBV_ACCESS_REMOTE_WRITE;
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
