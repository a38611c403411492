/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 13_server -- ten thousand concurrent requests, one thread, no handle.
 *
 * Handles must be tested one by one (pinion_test()), which is too slow for a
 * server with thousands of requests. A message without a handle has a `user`
 * pointer instead, here to an operation that begins with the function to call
 * at its completion. pinion_poll() returns completions at a cost that does not
 * depend on the number of requests; when there are none, the server sleeps on
 * the endpoint's descriptor and its other ones: here a timer, which stands for
 * a disk that has data ready.
 *
 * The client requests ten thousand records at a time. The server answers when
 * the disk has them, in another order than they were requested.
 *
 * 	cc 13_server.c $(pkg-config --cflags --libs pinion) && ./a.out
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/pinion.h>

#define RECORDS 10000
#define SLOTS	64 /* number of posted receives */
#define BATCH	64 /* completions per poll */
#define ASK	1 /* tag of a request; the tag of an answer is its number + 2 */

static void stop(const char *what, int ret)
{
	fprintf(stderr, "%s: %s\n", what, strerror(-ret));
	exit(EXIT_FAILURE);
}

static void must(const char *what, int ret)
{
	if (ret)
		stop(what, ret);
}

struct record {
	unsigned number;
	char text[124];
};

static void make_record(struct record *record, unsigned number)
{
	memset(record, 0, sizeof(*record));
	record->number = number;
	snprintf(record->text, sizeof(record->text), "record %u", number);
}

/* The `user` pointer of a message points to this. */
struct operation {
	void (*ended)(struct operation *op, const struct pinion_completion *c);
	unsigned number;
	struct pinion_peer *peer;
	struct record record;
};

/* Polls completions; returns their number. */
static int poll_some(struct pinion_endpoint *ep)
{
	struct pinion_completion done[BATCH];
	int n = pinion_poll(ep, done, sizeof(*done), BATCH);

	if (n < 0)
		stop("pinion_poll", n);
	for (int i = 0; i < n; i++) {
		struct operation *op = done[i].user;

		op->ended(op, &done[i]);
	}
	return n;
}

static struct pinion_endpoint *open_endpoint(struct pinion_context **context)
{
	struct pinion_endpoint_attr attr = {
		.size = sizeof(attr), .flags = PINION_ENDPOINT_SINGLE_THREADED
	};
	struct pinion_endpoint *ep;

	must("pinion_open", pinion_open(NULL, context));
	must("pinion_endpoint_open",
	     pinion_endpoint_open(*context, &attr, &ep));
	return ep;
}

/* --- the client ----------------------------------------------------------- */

static unsigned nanswered;

static void asked(struct operation *op, const struct pinion_completion *c)
{
	(void)op;
	must("a request", c->status);
}

static void answered(struct operation *op, const struct pinion_completion *c)
{
	struct record expected;

	must("an answer", c->status);
	make_record(&expected, op->number);
	if (memcmp(&expected, &op->record, sizeof(expected)))
		stop("another record", -EBADMSG);
	nanswered++;
}

/* Posts all at once: for each the receive of its answer, and the request. */
static void client(int socket)
{
	static struct operation questions[RECORDS], answers[RECORDS];
	struct pinion_context *context;
	struct pinion_endpoint *ep = open_endpoint(&context);
	struct pinion_address address;
	struct pinion_peer *server;

	if (read(socket, &address, sizeof(address)) != sizeof(address))
		stop("no server", -EPIPE);
	must("pinion_peer_add", pinion_peer_add(ep, &address, &server));
	for (unsigned i = 0; i < RECORDS; i++) {
		struct operation *a = &answers[i], *q = &questions[i];
		struct pinion_message in = { .size = sizeof(in),
					     .buf = &a->record,
					     .len = sizeof(a->record),
					     .tag = i + 2,
					     .peer = server,
					     .user = a };
		struct pinion_message out = { .size = sizeof(out),
					      .buf = &q->number,
					      .len = sizeof(q->number),
					      .tag = ASK,
					      .peer = server,
					      .user = q };

		*a = (struct operation){ .ended = answered, .number = i };
		*q = (struct operation){ .ended = asked, .number = i };
		must("pinion_recv", pinion_recv(ep, &in, NULL));
		must("pinion_send", pinion_send(ep, &out, NULL));
	}
	while (nanswered < RECORDS)
		poll_some(ep);
	pinion_close(context);
}

/* --- the server ----------------------------------------------------------- */

static struct {
	struct pinion_endpoint *ep;
	struct operation *waiting[RECORDS]; /* for the disk */
	unsigned nwaiting, most, nsent;
} server;

static void receive_request(struct operation *op);

static void sent(struct operation *op, const struct pinion_completion *c)
{
	must("an answer", c->status);
	server.nsent++;
	free(op);
}

static void answer(struct operation *op)
{
	struct pinion_message out = { .size = sizeof(out),
				      .buf = &op->record,
				      .len = sizeof(op->record),
				      .tag = op->number + 2,
				      .peer = op->peer,
				      .user = op };

	op->ended = sent;
	make_record(&op->record, op->number);
	must("pinion_send", pinion_send(server.ep, &out, NULL));
}

/* The request waits for the disk; its slot receives the next one. */
static void requested(struct operation *slot, const struct pinion_completion *c)
{
	struct operation *op = malloc(sizeof(*op));

	must("a request", c->status);
	if (!op || server.nwaiting == RECORDS)
		stop("too many requests", -ENOMEM);
	op->number = slot->number;
	op->peer = c->peer;
	server.waiting[server.nwaiting++] = op;
	if (server.nwaiting > server.most)
		server.most = server.nwaiting;
	receive_request(slot);
}

static void receive_request(struct operation *slot)
{
	struct pinion_message in = { .size = sizeof(in),
				     .buf = &slot->number,
				     .len = sizeof(slot->number),
				     .tag = ASK,
				     .user = slot };

	slot->ended = requested;
	must("pinion_recv", pinion_recv(server.ep, &in, NULL));
}

/* The disk has the requested records, the last one first. */
static void disk_ready(int timer)
{
	uint64_t ticks;

	if (read(timer, &ticks, sizeof(ticks)) != sizeof(ticks))
		stop("the timer", -errno);
	while (server.nwaiting)
		answer(server.waiting[--server.nwaiting]);
}

static int watch(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static void serve(int timer)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC);

	if (epoll < 0)
		stop("epoll_create1", -errno);
	must("the endpoint's descriptor",
	     watch(epoll, pinion_endpoint_fd(server.ep)));
	must("the timer", watch(epoll, timer));
	while (server.nsent < RECORDS) {
		struct epoll_event event;

		/* Poll until there is nothing, then arm, then sleep. */
		if (poll_some(server.ep) || pinion_endpoint_arm(server.ep))
			continue;
		if (epoll_wait(epoll, &event, 1, -1) == 1 &&
		    event.data.fd == timer)
			disk_ready(timer);
	}
	close(epoll);
}

int main(void)
{
	const struct itimerspec often = { { 0, 2000000 }, { 0, 2000000 } };
	static struct operation slots[SLOTS];
	struct pinion_context *context;
	struct pinion_address address;
	int sockets[2], timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
	int status = 0;
	pid_t child;

	if (timer < 0 || timerfd_settime(timer, 0, &often, NULL) ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		stop("timerfd_create, socketpair", -errno);
	child = fork();
	if (!child) {
		client(sockets[1]);
		_exit(0);
	}
	server.ep = open_endpoint(&context);
	must("pinion_endpoint_address",
	     pinion_endpoint_address(server.ep, &address));
	for (unsigned i = 0; i < SLOTS; i++)
		receive_request(&slots[i]);
	if (write(sockets[0], &address, sizeof(address)) != sizeof(address))
		stop("no client", -EPIPE);
	serve(timer);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	printf("%u requests answered, up to %u of them waiting at a time\n",
	       server.nsent, server.most);
	pinion_close(context);
	return status ? EXIT_FAILURE : EXIT_SUCCESS;
}
