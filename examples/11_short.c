/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 11_short -- short messages with the lowest latency.
 *
 * A request (03_ping_pong) costs work that most short messages do not need:
 * they are written into the receiver's memory before the call returns.
 * pinion_inject() sends such a message or returns an error; then pinion_send()
 * sends it. After pinion_inject() there is nothing to wait for, and the buffer
 * can be reused. pinion_peer_prefetch(), called before the message is prepared,
 * prefetches the cache lines that the message will be written to.
 *
 * Here the program sends prices to itself.
 *
 * 	cc 11_short.c $(pkg-config --cflags --libs pinion) && ./a.out
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pinion/pinion.h>

#define TIMES 1000

static void stop(const char *what, int ret)
{
	fprintf(stderr, "%s: %s\n", what, strerror(-ret));
	exit(EXIT_FAILURE);
}

struct price {
	long number;
	double bid, ask;
};

static struct price price_now(long number)
{
	double middle = 100 + (double)(number % 7);

	return (struct price){ number, middle - 0.25, middle + 0.25 };
}

/* Returns whether the message was injected. */
static int send_price(struct pinion_endpoint *ep, struct pinion_peer *to,
		      long number)
{
	struct pinion_request *request;
	struct pinion_message message = { .size = sizeof(message), .peer = to };
	struct price price;
	int ret;

	pinion_peer_prefetch(to, sizeof(price));
	price = price_now(number);
	message.buf = &price;
	message.len = sizeof(price);
	if (!pinion_inject(ep, &message))
		return 1;
	ret = pinion_send(ep, &message, &request);
	/* Not possible for the first messages, before the connection is up, or
	 * if the receiver does not poll. */
	if (!ret)
		ret = pinion_wait(ep, request, PINION_FOREVER, NULL);
	if (ret)
		stop("pinion_send", ret);
	return 0;
}

static void take_price(struct pinion_endpoint *ep, long number)
{
	struct price price, expected = price_now(number);
	struct pinion_message message = { .size = sizeof(message),
					  .buf = &price,
					  .len = sizeof(price) };
	struct pinion_request *request;
	int ret = pinion_recv(ep, &message, &request);

	if (!ret)
		ret = pinion_wait(ep, request, PINION_FOREVER, NULL);
	if (ret)
		stop("pinion_recv", ret);
	if (price.number != number || price.bid != expected.bid)
		stop("another price", -EBADMSG);
}

int main(void)
{
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	struct pinion_address address;
	struct pinion_peer *self;
	int ret = pinion_open(NULL, &context), injected = 0;

	if (ret)
		stop("pinion_open", ret);
	ret = pinion_endpoint_open(context, NULL, &ep);
	if (!ret)
		ret = pinion_endpoint_address(ep, &address);
	if (!ret)
		ret = pinion_peer_add(ep, &address, &self);
	if (ret)
		stop("no way to myself", ret);
	for (long i = 0; i < TIMES; i++) {
		injected += send_price(ep, self, i);
		take_price(ep, i);
	}
	printf("%d of %d prices were injected\n", injected, TIMES);
	pinion_close(context); /* also closes the endpoint */
	return EXIT_SUCCESS;
}
