/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_parts_off -- the same program with parts of pinion on, off or replaced:
 * the same bytes, the same errors.
 *
 *   test_parts_off DEVICE              all rows of the table
 *   test_parts_off DEVICE --program    the program alone, as it is configured
 *                                      by the environment
 *
 * The program prints a line for each step: what was done, how it ended, how
 * many bytes there were and their sum. It runs once as configured by default,
 * and then once for each row; its lines must be the same. On `sim`, whose
 * contexts have one endpoint, the endpoint talks to itself.
 */
#include "test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fnv.h"
#include "message/ends.h"

#define LONG ((size_t)2 << 20)

/* --- the program ---------------------------------------------------------- */

struct program {
	struct pair pair;
	bool alone; /* both ends are one */
	char *from, *to;
};

static void open_ends(struct program *p, const char *device)
{
	char option[64];

	snprintf(option, sizeof(option), "device=%s", device);
	p->alone = !strncmp(device, "sim", 3);
	p->from = aligned_alloc(4096, LONG);
	p->to = aligned_alloc(4096, LONG);
	if (!p->alone) {
		pair_open(&p->pair, option);
		return;
	}
	end_open(&p->pair.a, option);
	p->pair.b = p->pair.a;
	assert_ok(pinion_peer_add(p->pair.a.ep, &p->pair.a.address,
				  &p->pair.to_a));
	p->pair.to_b = p->pair.to_a;
}

static void close_ends(struct program *p)
{
	end_close(&p->pair.a);
	if (!p->alone)
		end_close(&p->pair.b);
	free(p->from);
	free(p->to);
}

static void fill(char *buf, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (char)(seed * 31 + i * 7 + (i >> 9));
}

static void say(const char *what, int status, const void *bytes, size_t len)
{
	printf("%s: %d, %zu bytes, %016llx\n", what, status, len,
	       (unsigned long long)pn_fnv_add(PN_FNV_START, bytes, len));
}

static struct pinion_message message(void *buf, size_t len, uint64_t tag,
				     struct pinion_peer *peer)
{
	return (struct pinion_message){ .size = sizeof(struct pinion_message),
					.buf = buf,
					.len = len,
					.tag = tag,
					.peer = peer };
}

/* From a to b. The receive is posted before, or the message is unexpected. */
static void pass(struct program *p, size_t len, size_t room, bool before)
{
	struct pinion_message out = message(p->from, len, len, p->pair.to_b);
	struct pinion_message in = message(p->to, room, len, NULL);
	struct pinion_request *send, *receive = NULL;
	struct pinion_completion end;

	fill(p->from, len, (unsigned)len);
	memset(p->to, 0, LONG);
	if (before)
		assert_ok(pinion_recv(p->pair.b.ep, &in, &receive));
	assert_ok(pinion_send(p->pair.a.ep, &out, &send));
	if (!before) {
		for (unsigned i = 0; i < 20; i++)
			pair_progress(&p->pair);
		assert_ok(pinion_recv(p->pair.b.ep, &in, &receive));
	}
	say("send", finish(&p->pair, p->pair.a.ep, send).status, NULL, 0);
	end = finish(&p->pair, p->pair.b.ep, receive);
	say(before ? "receive" : "receive, unexpected", end.status, p->to,
	    LONG);
	printf("%zu of %zu, tag %llu\n", end.len, end.message_len,
	       (unsigned long long)end.tag);
}

static void pass_all(struct program *p)
{
	static const size_t lens[] = { 0,     1,      8,      2000, 16384,
				       16385, 100000, 300000, LONG };

	/* The same buffers again and again: whatever is kept is used. */
	for (unsigned round = 0; round < 3; round++)
		for (unsigned i = 0; i < PN_ARRAY_LEN(lens); i++) {
			pass(p, lens[i], lens[i], round != 1);
			pass(p, lens[i], lens[i] / 2, round != 1);
		}
}

static void cancel(struct program *p)
{
	struct pinion_message m = message(p->to, 100, 77, NULL);
	struct pinion_request *request;

	assert_ok(pinion_recv(p->pair.b.ep, &m, &request));
	assert_ok(pinion_cancel(p->pair.b.ep, request));
	say("cancel", finish(&p->pair, p->pair.b.ep, request).status, NULL, 0);
}

/* Puts, then gets; -EACCES where the key does not allow it. */
static void move(struct program *p, struct pinion_remote *remote, size_t len,
		 bool put)
{
	struct pinion_move m = {
		.size = sizeof(m), .remote = remote, .buf = p->from, .len = len
	};
	struct pinion_request *request;
	int ret = put ? pinion_put(p->pair.a.ep, &m, &request)
		      : pinion_get(p->pair.a.ep, &m, &request);

	if (!ret)
		ret = finish(&p->pair, p->pair.a.ep, request).status;
	say(put ? "put" : "get", ret, put ? p->to : p->from, LONG);
}

static void move_all(struct program *p, unsigned access)
{
	static const size_t lens[] = { 1, 4096, 100000, LONG, LONG + 1 };
	struct pinion_exposure *exposure;
	struct pinion_exposure_key key;
	struct pinion_remote *remote;

	memset(p->to, 0, LONG);
	assert_ok(pinion_exposure_open(p->pair.b.ep, p->to, LONG, access,
				       &exposure));
	assert_ok(pinion_exposure_key(exposure, &key));
	assert_ok(
		pinion_remote_open(p->pair.a.ep, p->pair.to_b, &key, &remote));
	for (unsigned i = 0; i < PN_ARRAY_LEN(lens); i++) {
		fill(p->from, LONG, i);
		move(p, remote, lens[i], true);
		memset(p->from, 0, LONG);
		move(p, remote, lens[i], false);
	}
	pinion_exposure_close(exposure);
	move(p, remote, 4096, true);
	pinion_remote_close(remote);
}

static void grant(struct program *p)
{
	struct pinion_message out = message(p->from, 70000, 5, p->pair.to_b);
	struct pinion_message in = message(p->to, 70000, 5, p->pair.to_a);
	struct pinion_request *write, *granted;

	fill(p->from, 70000, 5);
	memset(p->to, 0, LONG);
	assert_ok(pinion_put_when(p->pair.a.ep, &out, &write));
	assert_ok(pinion_grant(p->pair.b.ep, &in, &granted));
	say("write", finish(&p->pair, p->pair.a.ep, write).status, NULL, 0);
	say("grant", finish(&p->pair, p->pair.b.ep, granted).status, p->to,
	    LONG);
}

static void lose_peer(struct program *p)
{
	struct pinion_message m = message(p->to, 100, 78, p->pair.to_b);
	struct pinion_request *request;

	assert_ok(pinion_recv(p->pair.a.ep, &m, &request));
	end_close(&p->pair.b);
	p->pair.b = p->pair.a;
	p->alone = true;
	say("receive", finish(&p->pair, p->pair.a.ep, request).status, NULL, 0);
	say("send", pinion_send(p->pair.a.ep, &m, &request), NULL, 0);
}

static int run_program(const char *device)
{
	struct program p;

	open_ends(&p, device);
	pass_all(&p);
	cancel(&p);
	move_all(&p, PINION_ACCESS_REMOTE_READ | PINION_ACCESS_REMOTE_WRITE);
	move_all(&p, PINION_ACCESS_REMOTE_READ);
	move_all(&p, PINION_ACCESS_REMOTE_WRITE);
	grant(&p);
	if (!p.alone)
		lose_peer(&p);
	close_ends(&p);
	fflush(stdout);
	return 0;
}

/* --- the test ------------------------------------------------------------- */

struct row {
	const char *name, *value;
	bool soft_only;
};

static const struct row rows[] = {
	{ "PINION_MONITOR", "patch", false },
	{ "PINION_MONITOR", "userfaultfd", false },
	{ "PINION_MONITOR", "keep", false },
	{ "PINION_MONITOR", "none", false },
	{ "PINION_CACHE_POLICY", "lru", false },
	{ "PINION_CACHE_POLICY", "fmrd", false },
	{ "PINION_CACHE_POLICY", "mre", false },
	{ "PINION_CACHE_POLICY", "greedy", false },
	{ "PINION_CACHE_POLICY", "keep", false },
	{ "PINION_CACHE_MERGE", "no", false },
	{ "PINION_CACHE_BATCH", "1", false },
	{ "PINION_CACHE_MAX_REGION", "64K", false },
	{ "PINION_HUGE_PAGES", "never", false },
	{ "PINION_PROTOCOL", "eager", false },
	{ "PINION_PROTOCOL", "copy", false },
	{ "PINION_PROTOCOL", "demand", false },
	{ "PINION_PROTOCOL", "cached", false },
	{ "PINION_PROTOCOL", "pipeline", false },
	{ "PINION_PROTOCOL", "caching-pipeline", false },
	{ "PINION_PROTOCOL", "read", false },
	{ "PINION_PROTOCOL", "overlapped", false },
	{ "PINION_REUSE", "off", false },
	{ "PINION_REUSE", "on", false },
	{ "PINION_EAGER_LIMIT", "1K", false },
	{ "PINION_FRAGMENT", "64K", false },
	{ "PINION_DEPTH", "1", false },
	{ "PINION_HELPER", "own", true },
	{ "PINION_HELPER", "auto", true },
	{ "PINION_PROGRESS", "thread", true },
	{ "PINION_PROGRESS", "auto", true },
};

/* The program's lines, for the caller to free. */
static char *lines_of(const char *device, const struct row *row)
{
	char command[512];
	char *text = calloc(1, 1 << 16);
	FILE *out;
	size_t n;
	int status;

	snprintf(command, sizeof(command), "%s%s%s /proc/%d/exe %s --program",
		 row ? row->name : "", row ? "=" : "", row ? row->value : "",
		 (int)getpid(), device);
	out = popen(command, "r");
	assert_non_null(out);
	n = fread(text, 1, (1 << 16) - 1, out);
	status = pclose(out);
	if (status || !n)
		fail_msg("%s: status %d, %zu bytes", command, status, n);
	return text;
}

/* Prints the first line that differs. */
static bool is_same(const char *expected, const char *got,
		    const struct row *row)
{
	size_t i = 0, line = 0;

	if (!strcmp(expected, got))
		return true;
	while (expected[i] && expected[i] == got[i])
		if (expected[i++] == '\n')
			line = i;
	printf("%s=%s differs:\n%.*s\n%.*s\n", row->name, row->value,
	       (int)strcspn(expected + line, "\n"), expected + line,
	       (int)strcspn(got + line, "\n"), got + line);
	return false;
}

static const char *device;

static void parts_change_neither_bytes_nor_errors(void **state)
{
	char *expected = lines_of(device, NULL);
	bool same = true;

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(rows); i++) {
		char *got;

		if (rows[i].soft_only && strncmp(device, "soft", 4))
			continue;
		got = lines_of(device, &rows[i]);
		same &= is_same(expected, got, &rows[i]);
		free(got);
	}
	free(expected);
	assert_true(same);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(parts_change_neither_bytes_nor_errors),
	};

	device = argc > 1 ? argv[1] : "soft";
	if (argc > 2) {
		setenv("CMOCKA_TEST_ABORT", "1", 1);
		return run_program(device);
	}
	return RUN_TESTS(tests);
}
