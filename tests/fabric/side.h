/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * side -- the provider through libfabric's own calls, in two processes.
 *
 * This process and a forked one each have a side: everything that one has open.
 * Each plays its part of a test, a function that returns whether all was well;
 * the child exits with that, the parent asserts both. Parts check by NEED():
 * the child cannot use cmocka's. FI_PROVIDER_PATH is set by ctest.
 *
 * Progress is manual: while one side waits for the other outside libfabric, it
 * does so in sync_up(), which makes progress.
 */
#ifndef PN_TESTS_FABRIC_SIDE_H
#define PN_TESTS_FABRIC_SIDE_H

#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define NAME_BYTES 64
#define LONG_BYTES (3 << 20)

#define NEED(fact)                                                        \
	do {                                                              \
		if (!(fact)) {                                            \
			printf("%s:%d: %s\n", __FILE__, __LINE__, #fact); \
			fflush(stdout);                                   \
			return false;                                     \
		}                                                         \
	} while (0)

/* What a side is opened with; zero is fine. */
struct setup {
	uint64_t caps; /* 0: all of messages */
	enum fi_av_type av;
	uint64_t bind_flags; /* of the sending CQ */
	int mr_mode;
	uint64_t seed; /* for the parts */
};

struct side {
	const struct setup *setup;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *tx, *rx;
	struct fid_cntr *counters[6]; /* with FI_RMA_EVENT: of each event */
	struct fid_ep *ep;
	fi_addr_t peer, self;
	int pipe;      /* to the other */
	bool is_child; /* else it is the test's own process */
};

/* In the order of struct side's. */
enum {
	COUNT_SEND,
	COUNT_RECV,
	COUNT_READ,
	COUNT_WRITE,
	COUNT_REMOTE_READ,
	COUNT_REMOTE_WRITE,
	NCOUNTS,
};

typedef bool part_fn(struct side *s);

/* Hints for this provider; the caller's to free. */
struct fi_info *hints_for(uint64_t caps);

/* Runs both parts at once, each in a process. */
void run_with(part_fn *parent, part_fn *child, const struct setup *setup);
void run(part_fn *parent, part_fn *child, enum fi_av_type type,
	 uint64_t bind_flags);

/* Opens one alone, which knows nobody; and closes it, which has to be possible
 * only in the right order. */
bool open_side(struct side *s);
bool close_side(struct side *s);

/* The other is told, and has told, that it got here. */
bool sync_up(struct side *s);

/* Sends bytes to the other, and takes as many of its. */
bool swap_bytes(struct side *s, const void *mine, void *theirs, size_t len);

/* The next entry; it has to be a good one, or an error. */
bool next_entry(struct fid_cq *cq, struct fi_cq_tagged_entry *out);
bool next_error(struct fid_cq *cq, struct fi_cq_err_entry *out);

void fill(uint8_t *buf, size_t len, unsigned seed);
bool is_filled(const uint8_t *buf, size_t len, unsigned seed);

#endif
