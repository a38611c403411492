/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 11_short -- short messages, of which every nanosecond counts.
 *
 * A request (03_ping_pong) is work, and most short messages need none: they are
 * written into the other's memory before pinion_send() returns. With at_once it
 * may say so by PINION_SENT; then there is nothing to wait for and the buffer
 * can be used again. pinion_about_to_send(), said before the message is made,
 * has the cache lines that it will be written to come meanwhile. Both are
 * hints: where they do not serve, the message goes as any other.
 *
 * Here the program sends prices to itself.
 *
 *	cc 11_short.c $(pkg-config --cflags --libs pinion) && ./a.out
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

/* Whether it was over when pinion_send() returned. */
static int send_price(struct pinion_endpoint *ep, struct pinion_peer *to,
		      long number)
{
	struct pinion_request *request;
	struct pinion_message message = { .peer = to,
					  .at_once = PINION_AT_ONCE };
	struct price price;
	int ret;

	pinion_about_to_send(to, sizeof(price));
	price = price_now(number);
	message.buf = &price;
	message.len = sizeof(price);
	ret = pinion_send(ep, &message, &request);
	if (ret == PINION_SENT)
		return 1;
	/* The first ones, while we connect; or the other does not look. */
	if (!ret)
		ret = pinion_wait(ep, request, NULL);
	if (ret)
		stop("pinion_send", ret);
	return 0;
}

static void take_price(struct pinion_endpoint *ep, long number)
{
	struct price price, expected = price_now(number);
	struct pinion_message message = { .buf = &price, .len = sizeof(price) };
	struct pinion_request *request;
	int ret = pinion_recv(ep, &message, &request);

	if (!ret)
		ret = pinion_wait(ep, request, NULL);
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
	int ret = pinion_open(NULL, &context), at_once = 0;

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
		at_once += send_price(ep, self, i);
		take_price(ep, i);
	}
	printf("%d of %d prices were sent when pinion_send() returned\n",
	       at_once, TIMES);
	pinion_close(context); /* and with it the endpoint */
	return EXIT_SUCCESS;
}
