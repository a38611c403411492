/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/ends.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/pages.h"

#define SMALL	8
#define AT_ONCE 32
#define ACCESS	(PINION_ACCESS_REMOTE_READ | PINION_ACCESS_REMOTE_WRITE)

int pn_end_socket_send(int sock, const void *what, size_t len)
{
	return write(sock, what, len) == (ssize_t)len ? 0 : -EPIPE;
}

int pn_end_socket_recv(int sock, void *what, size_t len)
{
	return recv(sock, what, len, MSG_WAITALL) == (ssize_t)len ? 0 : -EPIPE;
}

/* --- life ------------------------------------------------------------------
 */

static int open_endpoint(struct pn_end *end, const char *device)
{
	struct pinion_endpoint_attr attr = {
		.size = sizeof(attr), .flags = PINION_ENDPOINT_SINGLE_THREADED
	};
	char option[256];
	const char *options[] = { option, NULL };
	struct pinion_attr context = { .size = sizeof(context),
				       .options = options };
	int ret;

	snprintf(option, sizeof(option), "device=%s", device);
	ret = pinion_open(&context, &end->context);
	return ret ? ret : pinion_endpoint_open(end->context, &attr, &end->ep);
}

static int expose(struct pn_end *end, size_t bytes,
		  struct pinion_exposure_key *key)
{
	void *memory;
	int ret = pn_pages_map(bytes, NULL, &memory);

	if (ret)
		return ret;
	end->memory = memory;
	end->bytes = bytes;
	memset(memory, 1, bytes);
	ret = pinion_exposure_open(end->ep, memory, bytes, ACCESS,
				   &end->exposure);
	return ret ? ret : pinion_exposure_key(end->exposure, key);
}

int pn_end_open(struct pn_end *end, const char *device, size_t bytes, int sock)
{
	struct {
		struct pinion_address address;
		struct pinion_exposure_key key;
	} mine, theirs;
	int ret = open_endpoint(end, device);

	if (!ret)
		ret = pinion_endpoint_address(end->ep, &mine.address);
	if (!ret)
		ret = expose(end, bytes, &mine.key);
	if (!ret)
		ret = pn_end_socket_send(sock, &mine, sizeof(mine));
	if (!ret)
		ret = pn_end_socket_recv(sock, &theirs, sizeof(theirs));
	if (!ret)
		ret = pinion_peer_add(end->ep, &theirs.address, &end->peer);
	return ret ? ret
		   : pinion_remote_open(end->ep, end->peer, &theirs.key,
					&end->remote);
}

void pn_end_close(struct pn_end *end)
{
	pinion_close(end->context);
	pn_pages_unmap(end->memory, end->bytes, NULL);
}

/* --- messages --------------------------------------------------------------
 */

static int send_one(struct pn_end *end, uint64_t *word)
{
	struct pinion_message message = { .size = sizeof(message),
					  .buf = word,
					  .len = SMALL,
					  .peer = end->peer };
	struct pinion_request *request;
	int ret = pinion_send(end->ep, &message, &request);

	return ret ? ret : pinion_wait(end->ep, request, PINION_FOREVER, NULL);
}

static int receive_one(struct pn_end *end, uint64_t *word)
{
	struct pinion_message message = { .size = sizeof(message),
					  .buf = word,
					  .len = SMALL,
					  .peer = end->peer };
	struct pinion_request *request;
	int ret = pinion_recv(end->ep, &message, &request);

	return ret ? ret : pinion_wait(end->ep, request, PINION_FOREVER, NULL);
}

int pn_end_pingpong(struct pn_end *end, unsigned n, double *us)
{
	uint64_t word = 1, answer;
	int ret = 0;

	for (unsigned i = 0; !ret && i < n; i++) {
		uint64_t start = pn_clock_ns();

		ret = send_one(end, &word);
		if (!ret)
			ret = receive_one(end, &answer);
		us[i] = (double)(pn_clock_ns() - start) / 2e3;
	}
	return ret;
}

int pn_end_echo(struct pn_end *end, unsigned n)
{
	uint64_t word;
	int ret = 0;

	while (!ret && n--) {
		ret = receive_one(end, &word);
		if (!ret)
			ret = send_one(end, &word);
	}
	return ret;
}

/* --- puts ------------------------------------------------------------------
 */

int pn_end_put(struct pn_end *end, unsigned times, double *bytes_per_s)
{
	struct pinion_move move = { .size = sizeof(move),
				    .remote = end->remote,
				    .buf = end->memory,
				    .len = end->bytes };
	struct pinion_request *requests[AT_ONCE] = { NULL };
	uint64_t start = pn_clock_ns();
	int ret = 0;

	for (unsigned i = 0; !ret && i < times + AT_ONCE; i++) {
		struct pinion_request **request = &requests[i % AT_ONCE];

		if (*request)
			ret = pinion_wait(end->ep, *request, PINION_FOREVER,
					  NULL);
		*request = NULL;
		if (!ret && i < times)
			ret = pinion_put(end->ep, &move, request);
	}
	*bytes_per_s = 1e9 * (double)end->bytes * times /
		       (double)(pn_clock_ns() - start);
	return ret;
}
