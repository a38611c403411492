/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ends -- the socket between the processes of a benchmark, for what they tell
 * each other before and after it: addresses, keys, figures.
 *
 * -EPIPE: the other process is gone. Threads: one at each end.
 */
#ifndef PN_BENCH_ENDS_H
#define PN_BENCH_ENDS_H

#include <stddef.h>

int pn_end_socket_send(int sock, const void *what, size_t len);
int pn_end_socket_recv(int sock, void *what, size_t len);

#endif
