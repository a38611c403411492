/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * side -- tests of the provider through libfabric's calls, in two processes.
 *
 * The test process and a forked child have a side each: the libfabric objects
 * that it opened. Each runs its part of a test, a function that returns whether
 * all was well; the child exits with the result, the parent asserts both. Parts
 * check by NEED(), since cmocka's assertions do not work in the child. ctest
 * sets FI_PROVIDER_PATH.
 *
 * Progress is manual unless the setup says otherwise: sync_up() makes progress
 * while a side waits for the other.
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

/* FI_ORDER_STRICT, about whose name the headers of libfabric 2 warn. */
#define ORDER_STRICT 0x1FF

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

/* How a side is opened; zero means the default. */
struct setup {
	uint64_t caps; /* 0: all that concern messages */
	enum fi_av_type av;
	uint64_t bind_flags; /* of the sending CQ */
	int mr_mode;
	enum fi_progress progress;
	enum fi_threading threading;
	uint64_t msg_order;
	size_t tx_size;
	uint64_t seed;	 /* for the parts */
	bool child_dies; /* of SIGKILL */
};

struct side {
	const struct setup *setup;
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *tx, *rx;
	struct fid_cntr *counters[6]; /* with FI_RMA_EVENT: one per event */
	struct fid_ep *ep;
	fi_addr_t peer, self;
	int pipe;      /* to the other side */
	bool is_child; /* else the test process */
};

/* Indices of struct side's counters. */
enum {
	COUNT_SEND,
	COUNT_RECV,
	COUNT_READ,
	COUNT_WRITE,
	COUNT_REMOTE_READ,
	COUNT_REMOTE_WRITE,
	NCOUNTS,
};

/* The address and the key of a region, for the other side. */
struct window {
	uint64_t addr, key;
};

/* What a region is registered with. */
struct region {
	void *buf;
	size_t len;
	uint64_t access, key;
};

#define ACCESS (FI_REMOTE_READ | FI_REMOTE_WRITE)

typedef bool part_fn(struct side *s);

/* Hints for this provider; the caller frees them. */
struct fi_info *hints_for(uint64_t caps);

/* Runs both parts at the same time, each in a process. */
void run_with(part_fn *parent, part_fn *child, const struct setup *setup);
void run(part_fn *parent, part_fn *child, enum fi_av_type type,
	 uint64_t bind_flags);

/* Opens one side, whose AV is empty; and closes it, and checks that objects in
 * use cannot be closed. */
bool open_side(struct side *s);
bool close_side(struct side *s);

/* Waits until both sides have come here. */
bool sync_up(struct side *s);

/* Exchanges bytes with the other side. */
bool swap_bytes(struct side *s, const void *mine, void *theirs, size_t len);

/* Waits for the next entry, which must be a success, or an error. */
bool next_entry(struct fid_cq *cq, struct fi_cq_tagged_entry *out);
bool next_error(struct fid_cq *cq, struct fi_cq_err_entry *out);

/* Waits until a counter is n; there must be no errors. */
bool wait_count(struct fid_cntr *counter, uint64_t n);

bool register_region(struct side *s, struct region r, struct fid_mr **mr);
/* Closes a region, which waits as long as requests of the peer use its memory:
 * longer than fi_close() does where the peer gets no processor. */
bool close_region(struct fid_mr *mr);
struct window window_of(const struct side *s, void *buf, struct fid_mr *mr);
/* Receives the window of the other side, which calls swap_bytes(). */
bool get_window(struct side *s, struct window *theirs);
/* Maps memory, at an address that is free (NULL: where it can be released and
 * mapped again). */
uint8_t *map_at(uint8_t *at, size_t len);

void fill(uint8_t *buf, size_t len, unsigned seed);
bool is_filled(const uint8_t *buf, size_t len, unsigned seed);

#endif
