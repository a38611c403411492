/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What requests end with when something is missing: memory that is not mapped,
 * a descriptor, address space. The request fails with what the pages say, the
 * other side's does not wait for ever, a line says what to do, and the endpoint
 * goes on.
 */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/asymmetric.h"
#include "message/endpoint/endpoint.h"
#include "message/ends.h"

#define LEN ((size_t)1 << 20)

static const char *const registering[] = {
	"protocol=demand",	     "protocol=cached", "protocol=pipeline",
	"protocol=caching-pipeline", "protocol=read",	"protocol=overlapped",
};

static char *map(int protection)
{
	char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(p != MAP_FAILED);
	memset(p, 7, LEN);
	assert_ok(mprotect(p, LEN, protection));
	return p;
}

/* The second half is not mapped, or mapped without access. Far from where the
 * kernel maps by default, so that nothing else is mapped there. */
static char *map_half(bool hole)
{
	char *p =
		mmap((void *)0x20000000, LEN, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

	assert_true(p != MAP_FAILED);
	if (hole)
		assert_ok(munmap(p + LEN / 2, LEN / 2));
	else
		assert_ok(mprotect(p + LEN / 2, LEN / 2, PROT_NONE));
	return p;
}

struct outcome {
	int sent, received;
};

/* Cancels a receive for which no message came. */
static struct outcome exchange(struct pair *pair, char *from, char *to)
{
	static uint64_t tag;
	struct pinion_message out = { .size = sizeof(out),
				      .buf = from,
				      .len = LEN,
				      .tag = ++tag,
				      .peer = pair->to_b };
	struct pinion_message in = {
		.size = sizeof(in), .buf = to, .len = LEN, .tag = tag
	};
	struct pinion_request *sending, *receiving;
	struct outcome outcome;

	assert_ok(pinion_recv(pair->b.ep, &in, &receiving));
	assert_ok(pinion_send(pair->a.ep, &out, &sending));
	outcome.sent = finish(pair, pair->a.ep, sending).status;
	if (outcome.sent)
		assert_ok(pinion_cancel(pair->b.ep, receiving));
	outcome.received = finish(pair, pair->b.ep, receiving).status;
	return outcome;
}

static void assert_works(struct pair *pair, char *from, char *to)
{
	struct outcome outcome;

	memset(to, 0, LEN);
	outcome = exchange(pair, from, to);
	assert_ok(outcome.sent);
	assert_ok(outcome.received);
	assert_memory_equal(from, to, LEN);
}

/* --- memory that is not mapped -------------------------------------------- */

/* Under each protocol, from memory that is half mapped, then from memory that
 * is mapped. */
static void fail_by_each(bool source)
{
	char *good = map(PROT_READ | PROT_WRITE);
	char *to = map(PROT_READ | PROT_WRITE);

	for (unsigned i = 0; i < 2 * PN_ARRAY_LEN(registering); i++) {
		const char *protocol = registering[i / 2];
		/* Under `read` nothing is sent if the source is not mapped. */
		int other = source && strstr(protocol, "read") ? -ECANCELED
							       : -EREMOTEIO;
		char *half = map_half(i % 2);
		struct outcome outcome;
		struct pair pair;

		pair_open(&pair, protocol);
		outcome = source ? exchange(&pair, half, to)
				 : exchange(&pair, good, half);
		assert_int_equal(outcome.sent, source ? -EFAULT : other);
		assert_int_equal(outcome.received, source ? other : -EFAULT);
		assert_works(&pair, good, to);
		pair_close(&pair);
		munmap(half, LEN);
	}
	munmap(good, LEN);
	munmap(to, LEN);
}

static void a_source_that_is_not_mapped_fails_its_send(void **state)
{
	(void)state;
	fail_by_each(true);
}

static void a_target_that_is_not_mapped_fails_its_receive(void **state)
{
	(void)state;
	fail_by_each(false);
}

/* `soft` cannot pin it, but it can be copied. */
static void a_source_that_cannot_be_written_is_copied(void **state)
{
	char *from = map(PROT_READ), *to = map(PROT_READ | PROT_WRITE);

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(registering); i++) {
		struct pair pair;

		pair_open(&pair, registering[i]);
		assert_works(&pair, from, to);
		pair_close(&pair);
	}
	munmap(from, LEN);
	munmap(to, LEN);
}

static int move(struct pair *pair, struct pinion_remote *remote, char *buf,
		bool put)
{
	struct pinion_move m = {
		.size = sizeof(m), .remote = remote, .buf = buf, .len = LEN
	};
	struct pinion_request *request;

	assert_ok((put ? pinion_put : pinion_get)(pair->a.ep, &m, &request));
	return finish(pair, pair->a.ep, request).status;
}

/* Puts and gets register at the first use of a buffer. By default that is so
 * only where copying it costs more, which differs from machine to machine. */
static void register_at_first_use(struct pinion_endpoint *ep)
{
	for (unsigned size = 0; size < PN_HISTORY_SIZES; size++) {
		ep->reuse.classes[PN_REUSE_PUT][size].weight = PN_USAGE_ONE;
		ep->reuse.classes[PN_REUSE_GET][size].weight = PN_USAGE_ONE;
	}
	ep->reuse.from[PN_REUSE_PUT] = ep->reuse.from[PN_REUSE_GET] = 0;
}

static void puts_and_gets_of_memory_that_is_not_mapped_fail(void **state)
{
	char *half = map_half(true), *good = map(PROT_READ | PROT_WRITE);
	char *target = map(PROT_READ | PROT_WRITE);
	struct pinion_exposure *exposure;
	struct pinion_remote *remote;
	struct pinion_exposure_key key;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	register_at_first_use(pair.a.ep);
	assert_ok(pinion_exposure_open(pair.b.ep, target, LEN,
				       PINION_ACCESS_ALL, &exposure));
	assert_ok(pinion_exposure_key(exposure, &key));
	assert_ok(pinion_remote_open(pair.a.ep, pair.to_b, &key, &remote));
	assert_int_equal(move(&pair, remote, half, true), -EFAULT);
	assert_int_equal(move(&pair, remote, half, false), -EFAULT);
	assert_ok(move(&pair, remote, good, true));
	assert_memory_equal(good, target, LEN);
	assert_ok(move(&pair, remote, good, false));
	pinion_remote_close(remote);
	pinion_exposure_close(exposure);
	pair_close(&pair);
	munmap(half, LEN);
	munmap(good, LEN);
	munmap(target, LEN);
}

static void a_grant_of_memory_that_is_not_mapped_fails(void **state)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = map_half(true),
				    .len = LEN };
	struct pinion_request *request;
	struct pair pair;

	(void)state;
	pair_open(&pair, NULL);
	m.peer = pair.to_b;
	assert_ok(pinion_grant(pair.a.ep, &m, &request));
	assert_int_equal(finish(&pair, pair.a.ep, request).status, -EFAULT);
	pair_close(&pair);
	munmap(m.buf, LEN);
}

/* --- limits --------------------------------------------------------------- */

/* Captures standard error from here on. */
static int listen_to_log(int *stderr_was)
{
	int fds[2];

	assert_ok(pipe2(fds, O_CLOEXEC | O_NONBLOCK));
	*stderr_was = dup(STDERR_FILENO);
	assert_true(dup2(fds[1], STDERR_FILENO) == STDERR_FILENO);
	close(fds[1]);
	return fds[0];
}

static void hear_log(int fd, int stderr_was, char *text, size_t size)
{
	ssize_t n = read(fd, text, size - 1);

	text[n > 0 ? n : 0] = 0;
	dup2(stderr_was, STDERR_FILENO);
	close(stderr_was);
	close(fd);
}

static unsigned lines_with(const char *text, const char *words)
{
	unsigned n = 0;

	while ((text = strstr(text, words))) {
		text += strlen(words);
		n++;
	}
	return n;
}

static struct rlimit leave_no_descriptors(void)
{
	int next = dup(0);
	struct rlimit was, now;

	close(next);
	assert_ok(getrlimit(RLIMIT_NOFILE, &was));
	now = was;
	now.rlim_cur = (rlim_t)next;
	assert_ok(setrlimit(RLIMIT_NOFILE, &now));
	return was;
}

static int send_short(struct pair *pair)
{
	struct pinion_message m = {
		.size = sizeof(m), .buf = "x", .len = 1, .peer = pair->to_b
	};
	struct pinion_request *request;

	assert_ok(pinion_send(pair->a.ep, &m, &request));
	return finish(pair, pair->a.ep, request).status;
}

static void a_send_without_descriptors_says_what_to_raise(void **state)
{
	struct pair pair;
	struct rlimit was;
	int log, stderr_was;
	char text[4096];

	(void)state;
	pair_open(&pair, "log=warn");
	log = listen_to_log(&stderr_was);
	was = leave_no_descriptors();
	assert_int_equal(send_short(&pair), -EMFILE);
	/* A second peer with the same address logs no second line. */
	assert_ok(pinion_peer_add(pair.a.ep, &pair.b.address, &pair.to_b));
	assert_int_equal(send_short(&pair), -EMFILE);
	assert_ok(setrlimit(RLIMIT_NOFILE, &was));
	hear_log(log, stderr_was, text, sizeof(text));
	assert_int_equal(lines_with(text, "`ulimit -n`"), 1);
	assert_ok(pinion_peer_add(pair.a.ep, &pair.b.address, &pair.to_b));
	assert_ok(send_short(&pair));
	pair_close(&pair);
}

static void a_context_without_address_space_says_what_to_raise(void **state)
{
	const char *const options[] = { "log=warn", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	struct pinion_context *context;
	struct rlimit was, now;
	int log, stderr_was, ret;
	char text[4096];

	(void)state;
	if (PN_ASYMMETRIC_FENCES)
		skip(); /* sanitizers have all of it mapped */
	assert_ok(getrlimit(RLIMIT_AS, &was));
	now = was;
	now.rlim_cur = test_mapped_pages() * 4096 + ((rlim_t)1 << 20);
	log = listen_to_log(&stderr_was);
	assert_ok(setrlimit(RLIMIT_AS, &now));
	ret = pinion_open(&attr, &context);
	assert_ok(setrlimit(RLIMIT_AS, &was));
	hear_log(log, stderr_was, text, sizeof(text));
	assert_int_equal(ret, -ENOMEM);
	assert_int_equal(lines_with(text, "`ulimit -v`"), 1);
	assert_ok(pinion_open(&attr, &context));
	pinion_close(context);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_source_that_is_not_mapped_fails_its_send),
		TEST(a_target_that_is_not_mapped_fails_its_receive),
		TEST(a_source_that_cannot_be_written_is_copied),
		TEST(puts_and_gets_of_memory_that_is_not_mapped_fail),
		TEST(a_grant_of_memory_that_is_not_mapped_fails),
		TEST(a_send_without_descriptors_says_what_to_raise),
		TEST(a_context_without_address_space_says_what_to_raise),
	};

	return RUN_TESTS(tests);
}
