/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ends -- the two ends of `bench peers` with the public API: contexts that
 * exchange messages and put into each other's exposed memory, in two processes
 * connected by a socket.
 *
 * The leader measures. The follower answers messages; puts do not involve it.
 * Threads: none.
 */
#ifndef PN_BENCH_ENDS_H
#define PN_BENCH_ENDS_H

#include <stddef.h>
#include <stdint.h>

#include <pinion/pinion.h>

struct pn_end {
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	struct pinion_peer *peer;
	struct pinion_exposure *exposure;
	struct pinion_remote *remote;
	char *memory; /* exposed, and source of puts */
	size_t bytes;
};

/* Over the socket between the processes. */
int pn_end_socket_send(int sock, const void *what, size_t len);
int pn_end_socket_recv(int sock, void *what, size_t len);

/* Both ends call it at the same time. pn_end_close() closes everything that was
 * opened, also after an error. */
int pn_end_open(struct pn_end *end, const char *device, size_t bytes, int sock);
void pn_end_close(struct pn_end *end);

/* Sends n messages of 8 bytes and receives their answers; us: half of each
 * round trip. */
int pn_end_pingpong(struct pn_end *end, unsigned n, double *us);
int pn_end_echo(struct pn_end *end, unsigned n);

/* A stream of puts of the whole memory, several in flight. */
int pn_end_put(struct pn_end *end, unsigned times, double *bytes_per_s);

#endif
