/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 03_ping_pong -- two processes send each other a message.
 *
 * An endpoint sends and receives messages. Its address is plain data that
 * programs exchange as they like, here through a pipe in each direction.
 * Messages need neither registering by hand (01_register) nor pinning (02_pin):
 * pinion selects how the bytes move.
 *
 * 	cc 03_ping_pong.c $(pkg-config --cflags --libs pinion) && ./a.out
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/pinion.h>

#define LEN   ((size_t)8 << 20)
#define TIMES 10

enum { PING = 1, PONG = 2 }; /* tags */

static void stop(const char *what, int ret)
{
	fprintf(stderr, "%s: %s\n", what, strerror(-ret));
	exit(EXIT_FAILURE);
}

/* Sends or receives all of buf and waits for it. */
static void move(struct pinion_endpoint *ep, struct pinion_peer *peer,
		 char *buf, uint64_t tag, int sending)
{
	struct pinion_message message = { .size = sizeof(message),
					  .buf = buf,
					  .len = LEN,
					  .tag = tag,
					  .peer = peer };
	struct pinion_request *request;
	int ret = sending ? pinion_send(ep, &message, &request)
			  : pinion_recv(ep, &message, &request);

	if (!ret)
		ret = pinion_wait(ep, request, PINION_FOREVER, NULL);
	if (ret)
		stop(sending ? "send" : "receive", ret);
}

/* Exchanges the addresses. */
static struct pinion_peer *meet(struct pinion_endpoint *ep, int in, int out)
{
	struct pinion_address mine, theirs;
	struct pinion_peer *peer;
	int ret = pinion_endpoint_address(ep, &mine);

	if (ret)
		stop("pinion_endpoint_address", ret);
	if (write(out, &mine, sizeof(mine)) != sizeof(mine) ||
	    read(in, &theirs, sizeof(theirs)) != sizeof(theirs))
		stop("the other process is gone", -EPIPE);
	ret = pinion_peer_add(ep, &theirs, &peer);
	if (ret)
		stop("pinion_peer_add", ret);
	return peer;
}

/* Sends the received message back, changed. */
static void answer(struct pinion_endpoint *ep, struct pinion_peer *peer,
		   char *buf)
{
	for (int i = 0; i < TIMES; i++) {
		move(ep, peer, buf, PING, 0);
		for (size_t n = 0; n < LEN; n++)
			buf[n]++;
		move(ep, peer, buf, PONG, 1);
	}
}

static void ask(struct pinion_endpoint *ep, struct pinion_peer *peer, char *buf)
{
	memset(buf, 'a', LEN);
	for (int i = 0; i < TIMES; i++) {
		move(ep, peer, buf, PING, 1);
		move(ep, peer, buf, PONG, 0);
	}
	for (size_t n = 0; n < LEN; n++)
		if (buf[n] != 'a' + TIMES)
			stop("wrong bytes", -EBADMSG);
	printf("%d times %zu bytes there and back, all of them right\n", TIMES,
	       LEN);
}

static void run(int in, int out, int asking)
{
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	struct pinion_peer *peer;
	char *buf = malloc(LEN);
	int ret = pinion_open(NULL, &context);

	if (ret)
		stop("pinion_open", ret);
	ret = pinion_endpoint_open(context, NULL, &ep);
	if (ret)
		stop("pinion_endpoint_open", ret);
	peer = meet(ep, in, out);
	if (asking)
		ask(ep, peer, buf);
	else
		answer(ep, peer, buf);
	pinion_endpoint_close(ep);
	pinion_close(context);
	free(buf);
}

int main(void)
{
	int there[2], back[2], status;
	pid_t pid;

	if (pipe(there) || pipe(back))
		stop("pipe", -errno);
	/* Each process opens pinion for itself, after the fork. */
	pid = fork();
	if (pid < 0)
		stop("fork", -errno);
	if (!pid) {
		/* Close the other ends, so that a reader notices when the other
		 * process ends. */
		close(there[1]);
		close(back[0]);
		run(there[0], back[1], 0);
		return EXIT_SUCCESS;
	}
	close(there[0]);
	close(back[1]);
	run(back[0], there[1], 1);
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}
