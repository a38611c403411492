/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that the tests of `pinion stat` and `pinion top` watch. It opens a
 * context, prints "ready", and executes the lines of its standard input,
 * answering each with "done":
 *
 *   pin PAGES SITE  registers a new buffer of PAGES pages at a named site
 *   hit N           pins the first buffer N times
 *   send N          sends N small messages to itself
 *   fork            a child pins in its own context, then ends
 *   quit            closes the context and ends
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/pinion.h>

static struct pinion_context *context;
static struct pinion_endpoint *ep;
static char *first;

static int pin_once(struct pinion_context *where, void *buf, size_t len)
{
	struct pinion_pin pin;
	int ret = pinion_pin(where, buf, len, PINION_ACCESS_LOCAL_WRITE, &pin);

	if (!ret)
		pinion_unpin(where, &pin);
	return ret;
}

/* A gap on both sides keeps the cache from merging regions. */
static int pin_new(unsigned pages, const char *site)
{
	size_t len = (size_t)pages * 4096;
	char *buf = mmap(NULL, len + 8192, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (buf == MAP_FAILED ||
	    mprotect(buf + 4096, len, PROT_READ | PROT_WRITE))
		return -1;
	pinion_site_set(site);
	if (!first)
		first = buf + 4096;
	return pin_once(context, buf + 4096, len);
}

static int hit(unsigned n)
{
	int ret = 0;

	while (!ret && n--)
		ret = pin_once(context, first, 4096);
	return ret;
}

static int send_one(struct pinion_peer *self)
{
	char out[64] = "", in[64];
	struct pinion_message to = {
		.size = sizeof(to), .buf = out, .len = 64, .peer = self
	};
	struct pinion_message from = { .size = sizeof(from),
				       .buf = in,
				       .len = 64 };
	struct pinion_request *sent, *received;

	if (pinion_recv(ep, &from, &received) || pinion_send(ep, &to, &sent) ||
	    pinion_wait(ep, sent, PINION_FOREVER, NULL))
		return -1;
	return pinion_wait(ep, received, PINION_FOREVER, NULL);
}

static int send_some(unsigned n)
{
	struct pinion_address address;
	struct pinion_peer *self;
	int ret = 0;

	if (!ep && pinion_endpoint_open(context, NULL, &ep))
		return -1;
	pinion_endpoint_address(ep, &address);
	if (pinion_peer_add(ep, &address, &self))
		return -1;
	while (!ret && n--)
		ret = send_one(self);
	return ret;
}

/* The child must neither change nor remove the parent's statistics segment. */
static int in_child(void)
{
	static char buf[8192];
	struct pinion_context *own;
	int ret = pin_once(context, first, 4096) == -EPERM ? 0 : -1;

	pinion_close(context);
	if (!ret)
		ret = pinion_open(NULL, &own);
	if (!ret)
		ret = pin_once(own, buf, sizeof(buf));
	if (!ret)
		pinion_close(own);
	return ret;
}

static int fork_one(void)
{
	int status = -1;
	pid_t child = fork();

	if (!child)
		exit(in_child() ? 1 : 0);
	return waitpid(child, &status, 0) == child && !status ? 0 : -1;
}

static int obey(const char *what)
{
	char site[64] = "";
	unsigned n;

	if (sscanf(what, "pin %u %63s", &n, site) == 2)
		return pin_new(n, site);
	if (sscanf(what, "hit %u", &n) == 1)
		return hit(n);
	if (sscanf(what, "send %u", &n) == 1)
		return send_some(n);
	return strcmp(what, "fork\n") ? -1 : fork_one();
}

int main(void)
{
	char what[128];

	if (pinion_open(NULL, &context))
		return 77;
	puts("ready");
	fflush(stdout);
	while (fgets(what, sizeof(what), stdin) && strcmp(what, "quit\n")) {
		puts(obey(what) ? "failed" : "done");
		fflush(stdout);
	}
	pinion_close(context);
	return 0;
}
