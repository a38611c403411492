/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * peer_tools -- programs of others that measure an RDMA adapter: perftest,
 * ucx_perftest and fi_pingpong, as commands whose output has one figure.
 *
 * A tool measures one operation of `bench ops`, under the same name, with a
 * server and a client, each bound to a core of its own: two processes that spin
 * on one core alternate in milliseconds. The figure is a latency in
 * microseconds (half a round trip where the operation goes to and fro), or
 * operations a second of a stream. Latencies are medians or means, as the tool
 * prints them.
 *
 * Threads: one.
 */
#ifndef PN_BENCH_PEER_TOOLS_H
#define PN_BENCH_PEER_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

/* An adapter, as command lines name it. */
struct pn_adapter {
	char name[64], ip[64];
	unsigned port, gid;
	unsigned cpus[2]; /* of clients and of servers */
};

/* Of an open verbs device. */
void pn_adapter_of(struct pn_device *device, struct pn_adapter *adapter);

struct pn_peer_tool {
	const char *name, *program;
	const char *op;	       /* of `bench ops` */
	const char *arguments; /* with @ letters: expand() */
	const char *line;      /* beginning of the line of the result */
	unsigned column;       /* of the figure in that line, from 1 */
	double scale;	       /* factor to us or operations a second */
	bool mean;	       /* of latencies; else the median */
};

extern const struct pn_peer_tool pn_peer_tools[];
extern const size_t pn_npeer_tools;

bool pn_peer_tool_installed(const struct pn_peer_tool *tool);

/* The figure of a number of operations of a size. NaN: the tool printed none.
 */
double pn_peer_tool_run(const struct pn_peer_tool *tool,
			const struct pn_adapter *adapter, size_t bytes,
			uint64_t times);

#endif
