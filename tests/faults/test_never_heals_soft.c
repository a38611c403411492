/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Faults that never heal, between real processes over `soft`: scenes.h with a
 * full /dev/shm, without memory that can be locked, with a budget of nothing;
 * and peers that are stopped. Each has a process of its own, which must end
 * within two minutes: nothing here takes more than ten seconds.
 *
 *   test_never_heals_soft [long]    long: those that wait for time limits
 */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "child.h"
#include "scenes.h"

#define PATIENCE_S 120
#define SIXTEEN	   16
#define LONG	   ((size_t)1 << 20)

enum { SKIPPED = 77 };

/* Runs fn in a process. */
static void run_apart(void (*fn)(void))
{
	int status;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		setpgid(0, 0);
		alarm(PATIENCE_S);
		fn();
		_exit(0);
	}
	setpgid(pid, pid);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	kill(-pid, SIGKILL); /* children that were left behind */
	if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED)
		skip();
	assert_int_equal(status, 0);
}

/* Returns the results of both processes. */
struct results {
	int own, partner;
};

static struct results play(const char *name)
{
	struct scene *scene = scene_find(name);
	pid_t pid = scene_start_partner(scene);
	struct results results = { scene_play(scene), 0 };

	results.partner = scene_partner_result(scene);
	CHECK(!scene_end_partner(scene, pid));
	if (results.own || results.partner)
		fprintf(stderr, "%s: %s: %s; partner: %s\n", name,
			scene->failed, strerror(-results.own),
			strerror(-results.partner));
	return results;
}

static void play_all_well(void)
{
	static const char *const names[] = { "cache",
					     "heap",
					     "trace",
					     "exchange",
					     "onesided",
					     "exchange-helper",
					     "exchange-progress" };

	for (unsigned i = 0; i < PN_ARRAY_LEN(names); i++) {
		struct results results = play(names[i]);

		CHECK(!results.own);
		CHECK(!results.partner);
	}
}

/* --- /dev/shm ------------------------------------------------------------- */

/* A tmpfs of this process's own, without a byte left. */
static bool fill_shm(void)
{
	static char page[4096];
	int fd;

	if (unshare(CLONE_NEWNS) && unshare(CLONE_NEWUSER | CLONE_NEWNS))
		return false;
	if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("none", "/dev/shm", "tmpfs", 0, "size=16k"))
		return false;
	fd = open("/dev/shm/filler", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	CHECK(fd >= 0);
	while (write(fd, page, sizeof(page)) > 0)
		;
	CHECK(errno == ENOSPC);
	close(fd);
	return true;
}

static void play_with_full_shm(void)
{
	if (!fill_shm()) {
		fprintf(stderr, "no mount namespace: %s\n", strerror(errno));
		_exit(SKIPPED);
	}
	play_all_well();
}

static void a_full_dev_shm_fails_nothing(void **state)
{
	(void)state;
	run_apart(play_with_full_shm);
}

/* --- memory that cannot be registered ------------------------------------- */

/* Pins and exposures have to fail. Messages are copied. */
static void play_without_registrations(void)
{
	CHECK(!play("exchange").own);
	CHECK(!play("exchange-cached").own);
	CHECK(!play("exchange-pipeline").own);
}

static void lock_nothing(void)
{
	struct rlimit none = { 0, 0 };

	if (setrlimit(RLIMIT_MEMLOCK, &none) ||
	    (!geteuid() && setuid(fresh_user())) || prctl(PR_SET_DUMPABLE, 1))
		_exit(SKIPPED);
	play_without_registrations();
}

static void without_lockable_memory_messages_are_copied(void **state)
{
	(void)state;
	run_apart(lock_nothing);
}

static void allow_no_bytes(void)
{
	setenv("PINION_MAX_BYTES", "1", 1);
	play_without_registrations();
}

static void with_a_budget_of_nothing_messages_are_copied(void **state)
{
	(void)state;
	run_apart(allow_no_bytes);
}

/* --- stopped peers -------------------------------------------------------- */

/* What the processes tell each other. */
struct shared_memory {
	struct pinion_address survivor;
	_Atomic bool open; /* the survivor's address is there */
	struct {
		struct pinion_address address;
		struct pinion_exposure_key key;
		_Atomic bool ready;
	} peers[SIXTEEN + 1]; /* the last one lives on */
};

static struct shared_memory *shared;

struct end {
	struct pinion_context *context;
	struct pinion_endpoint *ep;
};

static void end_open(struct end *end)
{
	static const char *const options[] = { "log=none", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };

	CHECK(!pinion_open(&attr, &end->context));
	CHECK(!pinion_endpoint_open(end->context, NULL, &end->ep));
}

static struct pinion_message message(struct pinion_peer *peer, void *buf,
				     size_t len, uint64_t tag)
{
	return (struct pinion_message){ .size = sizeof(struct pinion_message),
					.buf = buf,
					.len = len,
					.tag = tag,
					.peer = peer };
}

static int transfer(struct end *end, struct pinion_message m, bool send)
{
	struct pinion_request *request;
	int ret = send ? pinion_send(end->ep, &m, &request)
		       : pinion_recv(end->ep, &m, &request);

	return ret ? ret : pinion_wait(end->ep, request, PINION_FOREVER, NULL);
}

/* The process of a peer. Connected: it has sent a byte before it stops. */
static void be_peer(unsigned n, bool connected)
{
	static char memory[LONG];
	struct pinion_exposure *exposure;
	struct pinion_peer *survivor;
	struct end end;
	char byte = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!shared->open)
		usleep(1000);
	end_open(&end);
	CHECK(!pinion_endpoint_address(end.ep, &shared->peers[n].address));
	CHECK(!pinion_exposure_open(end.ep, memory, LONG,
				    PINION_ACCESS_REMOTE_READ |
					    PINION_ACCESS_REMOTE_WRITE,
				    &exposure));
	CHECK(!pinion_exposure_key(exposure, &shared->peers[n].key));
	CHECK(!pinion_peer_add(end.ep, &shared->survivor, &survivor));
	if (connected)
		CHECK(!transfer(&end, message(survivor, &byte, 1, 1), true));
	shared->peers[n].ready = true;
	while (n < SIXTEEN) /* also if somebody continues it */
		raise(SIGSTOP);
	/* The one that lives on returns what it gets. */
	while (!transfer(&end, message(survivor, memory, LONG, 4), false))
		CHECK(!transfer(&end, message(survivor, memory, LONG, 4),
				true));
}

static void await_stop(pid_t pid, unsigned n)
{
	int status;

	while (!shared->peers[n].ready)
		usleep(1000);
	if (n == SIXTEEN)
		return;
	CHECK(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
}

/* A process with 16 stopped peers and one that lives on. They are forked before
 * this process has threads. */
static void open_among_stopped(struct end *end, bool connected)
{
	pid_t pids[SIXTEEN + 1];
	char byte;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	for (unsigned n = 0; n <= SIXTEEN; n++) {
		pids[n] = fork();
		CHECK(pids[n] >= 0);
		if (!pids[n]) {
			be_peer(n, connected);
			_exit(0);
		}
	}
	end_open(end);
	CHECK(!pinion_endpoint_address(end->ep, &shared->survivor));
	shared->open = true;
	for (unsigned n = 0; connected && n <= SIXTEEN; n++)
		CHECK(!transfer(end, message(NULL, &byte, 1, 1), false));
	for (unsigned n = 0; n <= SIXTEEN; n++)
		await_stop(pids[n], n);
}

static struct pinion_peer *peer_at(struct end *end, unsigned n)
{
	struct pinion_peer *peer;

	CHECK(!pinion_peer_add(end->ep, &shared->peers[n].address, &peer));
	return peer;
}

/* One-sided operations need nothing of the target's process. */
static void put_into_stopped(struct end *end, unsigned n)
{
	static char source[LONG];
	struct pinion_move m = { .size = sizeof(m),
				 .buf = source,
				 .len = LONG };
	struct pinion_request *request;

	CHECK(!pinion_remote_open(end->ep, peer_at(end, n),
				  &shared->peers[n].key, &m.remote));
	CHECK(!pinion_put(end->ep, &m, &request));
	CHECK(!pinion_wait(end->ep, request, PINION_FOREVER, NULL));
	pinion_remote_close(m.remote);
}

static void use_living(struct end *end)
{
	static char buf[LONG];
	struct pinion_peer *living = peer_at(end, SIXTEEN);

	for (unsigned i = 0; i < 10; i++) {
		memset(buf, (int)i, LONG);
		CHECK(!transfer(end, message(living, buf, LONG, 4), true));
		memset(buf, 99, LONG);
		CHECK(!transfer(end, message(living, buf, LONG, 4), false));
		CHECK(buf[0] == (char)i && buf[LONG - 1] == (char)i);
	}
}

static void live_among_stopped(void)
{
	static char buf[LONG];
	struct end end;

	open_among_stopped(&end, true);
	for (unsigned n = 0; n < SIXTEEN; n++) {
		struct pinion_message m =
			message(peer_at(&end, n), buf, LONG, 3);
		struct pinion_request *request;

		CHECK(!transfer(&end, message(m.peer, buf, 8, 2), true));
		put_into_stopped(&end, n);
		CHECK(!pinion_send(end.ep, &m, &request));
		CHECK(pinion_wait(end.ep, request, 1000, NULL) == -ETIMEDOUT);
	}
	use_living(&end);
	pinion_endpoint_close(end.ep);
	pinion_close(end.context);
}

static void sixteen_stopped_peers_stop_nobody_else(void **state)
{
	(void)state;
	run_apart(live_among_stopped);
}

/* Nobody accepts the connections. */
static void connect_to_stopped(void)
{
	struct pinion_request *requests[SIXTEEN];
	static char buf[LONG];
	struct end end;

	open_among_stopped(&end, false);
	for (unsigned n = 0; n < SIXTEEN; n++) {
		struct pinion_message m = message(peer_at(&end, n), buf, 8, 2);

		CHECK(!pinion_send(end.ep, &m, &requests[n]));
	}
	use_living(&end);
	for (unsigned n = 0; n < SIXTEEN; n++)
		CHECK(pinion_wait(end.ep, requests[n], PINION_FOREVER, NULL) ==
		      -ECONNREFUSED);
	use_living(&end);
	pinion_endpoint_close(end.ep);
	pinion_close(end.context);
}

static void connections_that_nobody_accepts_end(void **state)
{
	(void)state;
	run_apart(connect_to_stopped);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest quick[] = {
		TEST(a_full_dev_shm_fails_nothing),
		TEST(without_lockable_memory_messages_are_copied),
		TEST(with_a_budget_of_nothing_messages_are_copied),
		TEST(sixteen_stopped_peers_stop_nobody_else),
	};
	const struct CMUnitTest slow[] = {
		TEST(connections_that_nobody_accepts_end),
	};

	(void)argv;
	signal(SIGPIPE, SIG_IGN);
	return argc > 1 ? RUN_TESTS(slow) : RUN_TESTS(quick);
}
