/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/ends.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

int pn_end_socket_send(int sock, const void *what, size_t len)
{
	return write(sock, what, len) == (ssize_t)len ? 0 : -EPIPE;
}

int pn_end_socket_recv(int sock, void *what, size_t len)
{
	return recv(sock, what, len, MSG_WAITALL) == (ssize_t)len ? 0 : -EPIPE;
}
