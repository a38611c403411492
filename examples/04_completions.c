/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 04_completions -- many messages at a time, and sleeping in poll(2).
 *
 * A request without a handle (03_ping_pong uses handles) reports its completion
 * to pinion_poll(), with the `user` pointer of the message. A server that also
 * serves other descriptors sleeps on all of them together: it arms the
 * endpoint's descriptor, which becomes readable when there is something to
 * poll. Here the other descriptor is a socket on which the sender writes a line
 * of text when it is done.
 *
 * 	cc 04_completions.c $(pkg-config --cflags --libs pinion) && ./a.out
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/pinion.h>

#define SLOTS 4 /* number of posted receives */
#define TIMES 50
#define LEN   ((size_t)256 << 10)

static void stop(const char *what, int ret)
{
	fprintf(stderr, "%s: %s\n", what, strerror(-ret));
	exit(EXIT_FAILURE);
}

static struct pinion_endpoint *start(struct pinion_context **context)
{
	struct pinion_endpoint *ep;
	int ret = pinion_open(NULL, context);

	if (ret)
		stop("pinion_open", ret);
	ret = pinion_endpoint_open(*context, NULL, &ep);
	if (ret)
		stop("pinion_endpoint_open", ret);
	return ep;
}

/* --- the sender ----------------------------------------------------------- */

/* Starts all sends at once; the tag of each is its number. */
static void send_all(struct pinion_endpoint *ep, struct pinion_peer *peer)
{
	struct pinion_completion done[SLOTS];
	char *buf = calloc(TIMES, LEN);
	int left = TIMES;

	for (int i = 0; i < TIMES; i++) {
		struct pinion_message message = { .size = sizeof(message),
						  .buf = buf + i * LEN,
						  .len = LEN,
						  .tag = (uint64_t)i,
						  .peer = peer };
		int ret;

		memset(message.buf, i, LEN);
		ret = pinion_send(ep, &message, NULL);
		if (ret)
			stop("pinion_send", ret);
	}
	while (left > 0) {
		int n = pinion_poll(ep, done, sizeof(*done), SLOTS);

		for (int i = 0; i < n; i++)
			if (done[i].status)
				stop("a message", done[i].status);
		left -= n;
	}
	free(buf);
}

static void sender(int socket)
{
	struct pinion_context *context;
	struct pinion_endpoint *ep = start(&context);
	struct pinion_address address;
	struct pinion_peer *peer;
	char go;
	int ret;

	if (read(socket, &address, sizeof(address)) != sizeof(address))
		stop("the receiver is gone", -EPIPE);
	ret = pinion_peer_add(ep, &address, &peer);
	if (ret)
		stop("pinion_peer_add", ret);
	send_all(ep, peer);
	/* A closing endpoint discards messages that its peer has not read: tell
	 * the peer that all are sent, and wait for its answer. */
	if (write(socket, "done", 4) != 4 || read(socket, &go, 1) != 0)
		stop("the receiver is gone", -EPIPE);
	pinion_close(context);
}

/* --- the receiver --------------------------------------------------------- */

struct slot {
	char buf[LEN];
};

/* A slot receives the next message from any peer. */
static void post(struct pinion_endpoint *ep, struct slot *slot)
{
	struct pinion_message message = { .size = sizeof(message),
					  .buf = slot->buf,
					  .len = LEN,
					  .ignore = ~UINT64_C(0),
					  .user = slot };
	int ret = pinion_recv(ep, &message, NULL);

	if (ret)
		stop("pinion_recv", ret);
}

static void check(const struct pinion_completion *done)
{
	const struct slot *slot = done->user;

	if (done->status)
		stop("a receive", done->status);
	for (size_t n = 0; n < done->len; n++)
		if (slot->buf[n] != (char)done->tag)
			stop("wrong bytes", -EBADMSG);
}

/* Polls completions; returns their number. */
static int serve(struct pinion_endpoint *ep)
{
	struct pinion_completion done[SLOTS];
	int n = pinion_poll(ep, done, sizeof(*done), SLOTS);

	for (int i = 0; i < n; i++) {
		check(&done[i]);
		post(ep, done[i].user);
	}
	return n;
}

static void receive_all(struct pinion_endpoint *ep, int socket)
{
	struct pollfd fds[] = {
		{ .fd = pinion_endpoint_fd(ep), .events = POLLIN },
		{ .fd = socket, .events = POLLIN },
	};
	int received = 0, sender_done = 0;

	while (received < TIMES || !sender_done) {
		int n = serve(ep);

		received += n;
		/* A message may have arrived meanwhile: pinion_endpoint_arm()
		 * then returns -EAGAIN. */
		if (n > 0 || pinion_endpoint_arm(ep) == -EAGAIN)
			continue;
		if (poll(fds, 2, -1) < 0)
			stop("poll", -errno);
		if (fds[1].revents) {
			char text[4];

			if (read(socket, text, sizeof(text)) != sizeof(text))
				stop("the sender is gone", -EPIPE);
			sender_done = 1;
			fds[1].fd = -1; /* end of the sender's text */
		}
	}
	printf("%d messages, all bytes right\n", received);
}

static void receiver(int socket)
{
	struct slot *slots = calloc(SLOTS, sizeof(*slots));
	struct pinion_context *context;
	struct pinion_endpoint *ep = start(&context);
	struct pinion_address mine;
	int ret = pinion_endpoint_address(ep, &mine);

	if (ret)
		stop("pinion_endpoint_address", ret);
	for (int i = 0; i < SLOTS; i++)
		post(ep, &slots[i]);
	if (write(socket, &mine, sizeof(mine)) != sizeof(mine))
		stop("the sender is gone", -EPIPE);
	receive_all(ep, socket);
	shutdown(socket, SHUT_WR); /* now the sender may go */
	pinion_close(context);
	free(slots);
}

int main(void)
{
	int ends[2], status = 0;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		stop("socketpair", -errno);
	pid = fork();
	if (pid < 0)
		stop("fork", -errno);
	close(ends[!pid]); /* so that the end of the other process is noticed */
	if (!pid) {
		sender(ends[0]);
	} else {
		receiver(ends[1]);
		waitpid(pid, &status, 0);
	}
	return status ? EXIT_FAILURE : EXIT_SUCCESS;
}
