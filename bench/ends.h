/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ends -- the two ends of `bench peers` as a program would have them: contexts
 * of the public API, which exchange messages and put into each other's exposed
 * memory, in two processes that a socket joins.
 *
 * The leader measures. The follower answers messages, and is left alone by
 * puts.
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
	char *memory; /* exposed, and what is put */
	size_t bytes;
};

/* Over the socket that joins the processes. */
int pn_end_socket_send(int sock, const void *what, size_t len);
int pn_end_socket_recv(int sock, void *what, size_t len);

/* Both at the same time. What was opened is closed by pn_end_close(), whether
 * it went well or not. */
int pn_end_open(struct pn_end *end, const char *device, size_t bytes, int sock);
void pn_end_close(struct pn_end *end);

/* n messages of 8 bytes and their answers; half of each turn in us. */
int pn_end_pingpong(struct pn_end *end, unsigned n, double *us);
int pn_end_echo(struct pn_end *end, unsigned n);

/* A stream of puts of all the memory, several at a time. */
int pn_end_put(struct pn_end *end, unsigned times, double *bytes_per_s);

#endif
