/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * cm_pair -- for tests that play an unmodified verbs program: two queue pairs
 * of one adapter in one process, connected by rdma_cm, which works on
 * InfiniBand, RoCE and iWARP; and what the kernel says about registrations.
 */
#ifndef PN_TESTS_PRELOAD_CM_PAIR_H
#define PN_TESTS_PRELOAD_CM_PAIR_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cm_pair {
	struct ibv_context *adapter;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct rdma_event_channel *channels[2];
	struct rdma_cm_id *listener;
	struct rdma_cm_id *ids[2]; /* the connecting one, the accepting one */
};

/* On the adapter with this IPv4 address. A failure ends the program with 1, a
 * missing adapter with 77. */
void cm_pair_open(struct cm_pair *pair, const char *address);

/* 0, or the error of ibv_dealloc_pd(). */
int cm_pair_close(struct cm_pair *pair);

/* The status of a write or a read of the first queue pair, when it is done. */
enum ibv_wc_status cm_pair_do(struct cm_pair *pair, enum ibv_wr_opcode opcode,
			      struct ibv_sge local, const void *remote,
			      uint32_t rkey);

/* What the kernel says of this process's registrations. */
struct cm_mrs {
	size_t n, bytes;
	uint64_t last; /* the number of one with that length, plus 1; 0: none */
};

/* By rdma(8). */
struct cm_mrs cm_mrs(size_t len);

/* Counts registrations of the adapter: the kernel numbers them. The difference
 * of two calls, less 1, is how many were made between them. */
uint64_t cm_mr_number(struct ibv_pd *pd);

#endif
