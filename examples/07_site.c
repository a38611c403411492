/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 07_site -- a program with phases, and the helper that learns them.
 *
 * A solver exchanges the halo of its grid in two directions, computes after
 * each exchange, and repeats. With the option `helper` its buffers are
 * deregistered after each exchange and registered again just before the next
 * one. The helper learns these times by the call site of each message. Here all
 * messages go through one function, exchange(), so its callers name their site
 * with pinion_site_set(); a program that calls pinion directly need not, since
 * pinion reads the stack.
 *
 * `auto` is for real runs: it starts a helper only if there is an idle core.
 * Here the option is `own`, to show a helper in any case. The neighbour is the
 * program itself.
 *
 * 	cc 07_site.c $(pkg-config --cflags --libs pinion) && ./a.out
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <pinion/pinion.h>

#define LEN   ((size_t)256 << 10)
#define STEPS 20

static void stop(const char *what, int ret)
{
	fprintf(stderr, "%s: %s\n", what, strerror(-ret));
	exit(EXIT_FAILURE);
}

struct grid {
	struct pinion_endpoint *ep;
	struct pinion_peer *neighbour;
	char *out, *in; /* used by both directions */
};

static void exchange(struct grid *grid, const char *direction, int fill)
{
	struct pinion_message message = { .size = sizeof(message),
					  .buf = grid->in,
					  .len = LEN,
					  .peer = grid->neighbour };
	struct pinion_request *in, *out;
	int ret;

	memset(grid->out, fill, LEN);
	pinion_site_set(direction);
	ret = pinion_recv(grid->ep, &message, &in);
	if (ret)
		stop("pinion_recv", ret);
	message.buf = grid->out;
	ret = pinion_send(grid->ep, &message, &out);
	if (!ret)
		ret = pinion_wait(grid->ep, out, PINION_FOREVER, NULL);
	if (!ret)
		ret = pinion_wait(grid->ep, in, PINION_FOREVER, NULL);
	if (ret)
		stop(direction, ret);
	if (memcmp(grid->in, grid->out, LEN))
		stop("wrong bytes", -EBADMSG);
}

static void compute(void)
{
	struct timespec a_while = { .tv_nsec = 10000000 };

	nanosleep(&a_while, NULL);
}

static void connect_grid(struct pinion_context *context, struct grid *grid)
{
	struct pinion_address address;
	int ret = pinion_endpoint_open(context, NULL, &grid->ep);

	if (ret)
		stop("pinion_endpoint_open", ret);
	ret = pinion_endpoint_address(grid->ep, &address);
	if (!ret)
		ret = pinion_peer_add(grid->ep, &address, &grid->neighbour);
	if (ret)
		stop("pinion_peer_add", ret);
	grid->out = malloc(LEN);
	grid->in = malloc(LEN);
	if (!grid->out || !grid->in)
		stop("malloc", -ENOMEM);
}

static void print_stats(struct pinion_context *context)
{
	struct pinion_helper_stats stats = { .size = sizeof(stats) };
	int ret = pinion_helper_query(context, &stats);

	if (ret)
		stop("pinion_helper_query", ret);
	printf("the helper saw %llu transfers of %llu buffers from %llu sites;"
	       "\nit deregistered %llu times after use and registered %llu "
	       "times before;\nof %llu transfers that it could foretell, %llu "
	       "came too early\n",
	       (unsigned long long)stats.calls,
	       (unsigned long long)stats.buffers,
	       (unsigned long long)stats.sites,
	       (unsigned long long)stats.deregistered,
	       (unsigned long long)stats.registered,
	       (unsigned long long)(stats.in_time + stats.late),
	       (unsigned long long)stats.late);
}

int main(void)
{
	/* Set PINION_HELPER=auto and no attribute to use a helper only on an
	 * idle core. Long messages use the cache, which the helper serves. */
	const char *const options[] = { "helper=own", "protocol=cached", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	struct pinion_context *context;
	struct grid grid;
	int ret = pinion_open(&attr, &context);

	if (ret)
		stop("pinion_open", ret);
	connect_grid(context, &grid);
	for (int step = 0; step < STEPS; step++) {
		exchange(&grid, "halo x", 2 * step);
		compute();
		exchange(&grid, "halo y", 2 * step + 1);
		compute();
	}
	print_stats(context);
	pinion_endpoint_close(grid.ep);
	pinion_close(context);
	free(grid.out);
	free(grid.in);
	return EXIT_SUCCESS;
}
