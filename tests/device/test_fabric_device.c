/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The fabric device beyond the conformance suite: bad input, and peers that
 * die, stop and compute.
 *
 *   test_fabric_device            over tcp, on this host
 *   test_fabric_device NS NS LINK
 *                          between two network namespaces (tests/namespaces);
 *                          LINK is an interface of the first, which is cut
 *
 * The other end is a child process.
 */
#include "end.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <pinion/pinion.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pages.h"
#include "device/device.h"
#include "device/fabric/fabric_impl.h"

#define BYTES ((size_t)1 << 20)

static const char *namespaces[2], *cable;

/* --- two ends ------------------------------------------------------------- */

static void enter(unsigned which)
{
	char path[128];
	int fd;

	if (!namespaces[which])
		return;
	snprintf(path, sizeof(path), "/run/netns/%s", namespaces[which]);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_ok(setns(fd, CLONE_NEWNET));
	close(fd);
}

static void spec_of(char *spec, size_t size, const char *params)
{
	snprintf(spec, size, "fabric:tcp%s%s,%s", cable ? ",domain=" : "",
		 cable ? cable : "", params);
}

/* What the child does after PEER_UP. */
enum role {
	ECHO,	 /* answers messages with their immediate */
	COMPUTE, /* calls nothing */
	SERVE,	 /* polls for ever, whoever comes and goes */
	STOP,	 /* sends a message and stops; see expect_all_of_the_ended() */
};

struct child {
	pid_t pid;
	struct hello hello;
};

static void echo(struct end *end)
{
	struct pn_completion c;

	for (;;) {
		struct pn_op op = { .kind = PN_OP_SEND, .flags = PN_OP_SILENT };

		if (!next(end, &c) || c.kind == PN_COMPLETION_PEER_DOWN)
			_exit(3);
		if (c.kind != PN_COMPLETION_RECV)
			continue;
		op.imm = c.imm;
		pn_device_return_buffer(end->device, &c);
		while (pn_device_post(end->device, c.peer, &op) == -EAGAIN)
			pn_device_poll(end->device, &c, 1);
	}
}

/* A post that is refused makes progress. */
static int send_imm(struct end *end, struct pn_peer *peer, uint32_t imm,
		    unsigned flags)
{
	const struct pn_op op = { .kind = PN_OP_SEND,
				  .flags = flags,
				  .imm = imm };
	int ret;

	while ((ret = pn_device_post(end->device, peer, &op)) == -EAGAIN)
		usleep(100);
	return ret;
}

/* What the ended peer sends. */
#define PARTING 3

/* Stopped until the peer has answered and its process has ended: then the
 * message was executed, and all answers come before the end. */
static void expect_all_of_the_ended(struct end *end, struct pn_peer *peer)
{
	struct pn_completion c;
	uint32_t received = 0, executed = 0;

	if (send_imm(end, peer, 0, 0))
		_exit(4);
	raise(SIGSTOP);
	/* The service thread runs first. */
	usleep(200 * 1000);
	do {
		if (!next(end, &c))
			_exit(5);
		executed += c.kind == PN_COMPLETION_OP && !c.status;
		if (c.kind != PN_COMPLETION_RECV)
			continue;
		if (c.imm != received++)
			_exit(6);
		pn_device_return_buffer(end->device, &c);
	} while (c.kind != PN_COMPLETION_PEER_DOWN);
	end_close(end);
	_exit(received == PARTING && executed == 1 ? 0 : 7);
}

static void serve(struct end *end)
{
	struct pn_completion c;

	for (;;) {
		if (pn_device_poll(end->device, &c, 1))
			continue;
		pn_device_wait(end->device,
			       pn_device_now(end->device) + PN_NS_PER_S);
	}
}

static void run_child(int to, const char *spec, enum role role)
{
	struct pn_completion c;
	struct end end;

	enter(1);
	end_open(&end, spec, BYTES);
	if (write(to, &end.hello, sizeof(end.hello)) < 0)
		_exit(1);
	if (!next(&end, &c) || c.kind != PN_COMPLETION_PEER_UP)
		_exit(2);
	if (role == ECHO)
		echo(&end);
	if (role == SERVE)
		serve(&end);
	if (role == STOP)
		expect_all_of_the_ended(&end, c.peer);
	for (volatile unsigned long n = 0;; n++) {
	}
}

static void child_start(struct child *child, const char *spec, enum role role)
{
	int pipes[2];

	assert_ok(pipe(pipes));
	child->pid = fork();
	assert_true(child->pid >= 0);
	if (!child->pid)
		run_child(pipes[1], spec, role);
	assert_int_equal(read(pipes[0], &child->hello, sizeof(child->hello)),
			 sizeof(child->hello));
	close(pipes[0]);
	close(pipes[1]);
}

static void child_end(struct child *child)
{
	kill(child->pid, SIGKILL);
	waitpid(child->pid, NULL, 0);
}

/* Parameters of both ends. */
struct pair {
	const char *ours, *theirs;
};

/* A child, and our end connected with it, over the cable if there is one. */
static void join(struct child *child, struct end *end, struct pair params,
		 enum role role)
{
	struct pn_completion c;
	char spec[256];

	spec_of(spec, sizeof(spec), params.theirs);
	child_start(child, spec, role);
	enter(0);
	spec_of(spec, sizeof(spec), params.ours);
	end_open(end, spec, BYTES);
	assert_ok(pn_device_attach(end->device, &child->hello.address,
				   &end->peer));
	assert_true(next(end, &c));
	assert_int_equal(c.kind, PN_COMPLETION_PEER_UP);
}

static int write_to(const struct child *child, struct end *end, size_t len,
		    void *user)
{
	struct pn_sge sge = { end->mr.addr, len, end->mr.lkey };

	return pn_device_post(end->device, end->peer,
			      &(struct pn_op){ .kind = PN_OP_WRITE,
					       .sge = &sge,
					       .nsge = 1,
					       .remote_addr = child->hello.addr,
					       .rkey = child->hello.rkey,
					       .user = user });
}

static void send_and_expect_echo(struct end *end, uint32_t imm)
{
	struct pn_op op = { .kind = PN_OP_SEND,
			    .flags = PN_OP_SILENT,
			    .imm = imm };
	struct pn_completion c;

	assert_ok(pn_device_post(end->device, end->peer, &op));
	assert_true(next(end, &c));
	assert_int_equal(c.kind, PN_COMPLETION_RECV);
	assert_int_equal(c.imm, imm);
	pn_device_return_buffer(end->device, &c);
}

/* All n operations end with -ECONNRESET, or succeeded before; then PEER_DOWN.
 */
static void expect_down(struct end *end, uintptr_t n)
{
	struct pn_completion c;
	uintptr_t ended = 0;

	do {
		assert_true(next(end, &c));
		if (c.kind != PN_COMPLETION_OP)
			continue;
		assert_true(!c.status || c.status == -ECONNRESET);
		assert_int_equal((uintptr_t)c.user, ended);
		ended++;
	} while (c.kind != PN_COMPLETION_PEER_DOWN);
	assert_int_equal(ended, n);
	assert_int_equal(c.status, -ECONNRESET);
	assert_int_equal(pn_device_post(end->device, end->peer,
					&(struct pn_op){ .kind = PN_OP_SEND }),
			 -ECONNRESET);
}

static bool is_readable(int fd)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	return poll(&poll_fd, 1, 0) == 1;
}

/* --- bad input ------------------------------------------------------------ */

static int open_one(const char *spec)
{
	struct pn_device *device = NULL;
	int ret = pn_device_open(spec, NULL, &device);

	pn_device_close(device);
	return ret;
}

static void specs_that_do_not_parse_are_refused(void **state)
{
	(void)state;
	assert_int_equal(open_one("fabric:nonsense=1"), -EINVAL);
	assert_int_equal(open_one("fabric:tcp,window=0"), -EINVAL);
	assert_int_equal(open_one("fabric:tcp,shm"), -EINVAL);
	assert_int_equal(open_one("fabric:tcp,heartbeat=1s,patience=1s"),
			 -EINVAL);
}

static void providers_that_are_not_there_are_enodev_and_logged(void **state)
{
	char text[256];

	(void)state;
	assert_int_equal(open_one("fabric:there-is-none"), -ENODEV);
	assert_ok(pn_log_last(text, sizeof(text)));
	assert_non_null(strstr(text, "there-is-none"));
	assert_int_equal(open_one("fabric:tcp,domain=there-is-none"), -ENODEV);
	assert_ok(pn_log_last(text, sizeof(text)));
	assert_non_null(strstr(text, "domain"));
	assert_int_equal(open_one("fabric:tcp,address=203.0.113.77"), -ENODEV);
	/* pinion's own. */
	assert_int_equal(open_one("fabric:pinion"), -ENODEV);
	/* Any that reaches other hosts. */
	assert_ok(open_one("fabric"));
}

static void other_addresses_are_refused(void **state)
{
	struct pn_device *tcp, *shm;
	struct pn_address address;
	struct pn_fabric_address inside;
	struct pn_peer *peer;
	char text[256];

	(void)state;
	assert_ok(pn_device_open("fabric:tcp", NULL, &tcp));
	assert_ok(pn_device_open("fabric:shm", NULL, &shm));
	pn_device_address(shm, &address);
	assert_int_equal(pn_device_attach(tcp, &address, &peer), -EHOSTUNREACH);
	pn_device_address(tcp, &address);
	assert_int_equal(pn_device_attach(shm, &address, &peer), -EHOSTUNREACH);
	assert_ok(pn_fabric_address_check(&address, &inside));
	address.data[1]++; /* the version */
	assert_int_equal(pn_device_attach(tcp, &address, &peer), -EINVAL);
	assert_ok(pn_log_last(text, sizeof(text)));
	assert_non_null(strstr(text, "version"));
	pn_device_close(shm);
	pn_device_close(tcp);
}

/* Returns the bytes of the blob, which gives the same address again. */
static uint32_t blob_bytes(uint16_t format, const void *raw, size_t len)
{
	struct pn_fabric_address at = { .version = PN_FABRIC_VERSION,
					.kind = "fabr",
					.provider = 0x12345678,
					.format = format,
					.len = (uint16_t)len,
					.nonce = UINT64_C(0x123456789abcdef0) };
	struct pn_fabric_address again;
	struct pn_address blob;

	memcpy(at.raw, raw, len);
	pn_fabric_address_put(&at, &blob);
	assert_ok(pn_fabric_address_check(&blob, &again));
	assert_memory_equal(&again, &at, sizeof(at));
	return blob.len;
}

static void addresses_of_soft_and_fabric_fit_into_a_name_of_libfabric(
	void **state)
{
	struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = 0x1234 };
	struct sockaddr_in6 v6 = { .sin6_family = AF_INET6,
				   .sin6_port = 0x1234,
				   .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	/* 64 bytes: one for the length; a version, a count, and a length of
	 * either address of pinion's. */
	const uint32_t room = 64 - 1 - 2 - 1 - 24 - 1;

	(void)state;
	inet_pton(AF_INET, "10.77.1.2", &v4.sin_addr);
	assert_in_range(blob_bytes(FI_SOCKADDR_IN, &v4, sizeof(v4)), 1, room);
	assert_in_range(blob_bytes(FI_SOCKADDR, &v4, sizeof(v4)), 1, room);
	assert_in_range(blob_bytes(FI_SOCKADDR_IN6, &v6, sizeof(v6)), 1, room);
	/* What short forms cannot say travels whole. */
	v6.sin6_scope_id = 3;
	blob_bytes(FI_SOCKADDR_IN6, &v6, sizeof(v6));
	v4.sin_zero[7] = 1;
	blob_bytes(FI_SOCKADDR_IN, &v4, sizeof(v4));
	blob_bytes(FI_ADDR_STR, "fi_shm://1", 11);
	blob_bytes(FI_ADDR_STR, "12345", 6); /* as long as the short forms */
	blob_bytes(FI_ADDR_EFA, "a name of 32 bytes, as EFA has it", 32);
}

static struct pn_fabric_hello good_hello(void)
{
	return (struct pn_fabric_hello){
		.header = { .kind = PN_FABRIC_HELLO, .tag = 1 },
		.magic = PN_FABRIC_MAGIC,
		.version = PN_FABRIC_VERSION,
		.to_nonce = 42,
		.from = { .version = PN_FABRIC_VERSION,
			  .kind = "fabr",
			  .len = 16 },
	};
}

static int check_hello(const struct pn_fabric_hello *hello, size_t len)
{
	struct pn_fabric_hello out;

	return pn_fabric_hello_check(hello, len, 42, &out);
}

static void bad_hellos_are_refused(void **state)
{
	struct pn_fabric_hello hello = good_hello();

	(void)state;
	assert_ok(check_hello(&hello, sizeof(hello)));
	assert_int_equal(check_hello(&hello, sizeof(hello) - 1), -EINVAL);
	assert_int_equal(check_hello(&hello, 0), -EPROTO);
	assert_int_equal(check_hello(&hello, sizeof(hello.header)), -EPROTO);
	hello.to_nonce = 41;
	assert_int_equal(check_hello(&hello, sizeof(hello)), -ECONNRESET);
	hello.from.len = PN_FABRIC_RAW_BYTES + 1;
	assert_int_equal(check_hello(&hello, sizeof(hello)), -EINVAL);
	hello.version++;
	assert_int_equal(check_hello(&hello, sizeof(hello)), -ECONNREFUSED);
	hello.magic++;
	assert_int_equal(check_hello(&hello, sizeof(hello)), -EPROTO);
}

static void attaching_where_no_device_is_ends_in_peer_down(void **state)
{
	struct pn_completion c;
	struct child child;
	struct end end;

	(void)state;
	child_start(&child, "fabric:tcp", ECHO);
	child_end(&child);
	enter(0);
	end_open(&end, "fabric:tcp,heartbeat=100ms,patience=1s", BYTES);
	assert_ok(
		pn_device_attach(end.device, &child.hello.address, &end.peer));
	assert_int_equal(pn_device_post(end.device, end.peer,
					&(struct pn_op){ .kind = PN_OP_SEND }),
			 -EAGAIN);
	assert_true(next(&end, &c));
	assert_int_equal(c.kind, PN_COMPLETION_PEER_DOWN);
	assert_int_equal(c.status, -ECONNRESET);
	end_close(&end);
}

/* A process that was killed leaves its shared memory, under a name that holds
 * its process number. */
static void shared_memory_of_a_killed_process_is_replaced(void **state)
{
	char command[512], next_name[160], name[128];
	struct pn_fabric_address inside;
	struct pn_device *first;
	struct pn_address address;
	const char *slash;
	char *number;

	(void)state;
	assert_ok(pn_device_open("fabric:shm", NULL, &first));
	pn_device_address(first, &address);
	assert_ok(pn_fabric_address_check(&address, &inside));
	/* "fi_shm://PROCESS:USER:NUMBER" */
	slash = strrchr((const char *)inside.raw, '/');
	assert_non_null(slash);
	snprintf(name, sizeof(name), "%s", slash + 1);
	number = strrchr(name, ':');
	assert_non_null(number);
	number++;
	snprintf(next_name, sizeof(next_name), "%.*s%ld", (int)(number - name),
		 name, strtol(number, NULL, 10) + 1);
	snprintf(command, sizeof(command), "cp /dev/shm/%s /dev/shm/%s", name,
		 next_name);
	assert_ok(system(command));
	assert_ok(open_one("fabric:shm"));
	pn_device_close(first);
}

/* --- peers that die, stop and compute ------------------------------------- */

static void operations_of_a_killed_peer_end(void **state)
{
	struct child child;
	struct end end;
	uintptr_t n = 0;

	(void)state;
	/* Longer than the test waits: the kernel reports the end. */
	join(&child, &end, (struct pair){ "patience=1000s", "queue_depth=128" },
	     COMPUTE);
	kill(child.pid, SIGSTOP);
	while (n < 20 &&
	       !write_to(&child, &end, n % 2 ? BYTES : 100, (void *)n))
		n++;
	assert_true(n > 0);
	child_end(&child);
	expect_down(&end, n);
	end_close(&end);
}

/* A child that was forked, and not executed, has all descriptors. */
static void the_end_of_a_process_is_noticed_once(void **state)
{
	struct child child;
	struct end end;
	uint64_t until;
	pid_t holder;

	(void)state;
	join(&child, &end, (struct pair){ "patience=1000s", "queue_depth=128" },
	     COMPUTE);
	holder = fork();
	assert_true(holder >= 0);
	if (!holder) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	child_end(&child);
	expect_down(&end, 0);
	until = pn_clock_ns() + 60 * PN_NS_PER_S;
	/* The service thread may be about to look. */
	while (is_readable(pn_fabric_of(end.device)->service.epoll))
		assert_true(pn_clock_ns() < until);
	kill(holder, SIGKILL);
	waitpid(holder, NULL, 0);
	end_close(&end);
}

/* The last answer of the peer comes after PEER_DOWN. */
static void connections_that_ended_keep_no_descriptor(void **state)
{
	struct pn_completion c;
	struct child child;
	struct end end;
	uint64_t until;
	unsigned before;

	(void)state;
	join(&child, &end, (struct pair){ "patience=60s", "patience=60s" },
	     SERVE);
	before = test_descriptors();
	for (unsigned i = 0; i < 200; i++) {
		pn_device_detach(end.device, end.peer);
		assert_true(next(&end, &c));
		assert_int_equal(c.kind, PN_COMPLETION_PEER_DOWN);
		assert_ok(pn_device_attach(end.device, &child.hello.address,
					   &end.peer));
		assert_true(next(&end, &c));
		assert_int_equal(c.kind, PN_COMPLETION_PEER_UP);
	}
	until = pn_clock_ns() + 20 * PN_NS_PER_S;
	while (test_descriptors() > before + 10) {
		assert_true(pn_clock_ns() < until);
		pn_device_poll(end.device, &c, 1);
	}
	child_end(&child);
	end_close(&end);
}

/* Receives the message of the child, which is stopped; answers; ends. */
static void answer_and_end(struct child *child, struct end *end)
{
	struct pn_completion c;
	int status;

	if (waitpid(child->pid, &status, WUNTRACED) != child->pid ||
	    !WIFSTOPPED(status))
		_exit(1);
	do
		if (!next(end, &c))
			_exit(2);
	while (c.kind != PN_COMPLETION_RECV);
	pn_device_return_buffer(end->device, &c);
	for (uint32_t i = 0; i < PARTING; i++)
		if (send_imm(end, end->peer, i, PN_OP_SILENT))
			_exit(3);
	end_close(end);
	_exit(0);
}

/* The answering end is a process of its own, and the parent of the other. */
static int answer_to_the_stopped(const char *spec, pid_t *stopped)
{
	struct child child;
	struct end end;
	int pipes[2], status;
	pid_t pid;

	assert_ok(pipe(pipes));
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		struct pn_completion c;

		child_start(&child, spec, STOP);
		if (write(pipes[1], &child.pid, sizeof(pid)) < 0)
			_exit(4);
		enter(0);
		end_open(&end, spec, BYTES);
		if (pn_device_attach(end.device, &child.hello.address,
				     &end.peer) ||
		    !next(&end, &c) || c.kind != PN_COMPLETION_PEER_UP)
			_exit(5);
		answer_and_end(&child, &end);
	}
	assert_int_equal(read(pipes[0], stopped, sizeof(*stopped)),
			 sizeof(*stopped));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	close(pipes[0]);
	close(pipes[1]);
	return status;
}

static void what_was_sent_before_a_process_ended_arrives(void **state)
{
	const char *const specs[] = { "fabric:tcp", "fabric:shm" };

	(void)state;
	if (cable)
		skip();
	/* This process gets the child of the process that ends. */
	assert_ok(prctl(PR_SET_CHILD_SUBREAPER, 1));
	for (unsigned i = 0; i < 2; i++) {
		pid_t stopped;
		int status;

		assert_int_equal(answer_to_the_stopped(specs[i], &stopped), 0);
		kill(stopped, SIGCONT);
		assert_int_equal(waitpid(stopped, &status, 0), stopped);
		assert_int_equal(status, 0);
	}
}

/* libfabric 1.17, shm: see keep_if_awaited(). */
static void closing_before_the_peer_runs_does_it_no_harm(void **state)
{
	struct pn_completion c;
	char command[128];
	struct child child;
	struct end end;
	int status;
	pid_t pid;

	(void)state;
	child_start(&child, "fabric:shm", ECHO);
	kill(child.pid, SIGSTOP);
	assert_int_equal(waitpid(child.pid, &status, WUNTRACED), child.pid);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		end_open(&end, "fabric:shm", BYTES);
		if (pn_device_attach(end.device, &child.hello.address,
				     &end.peer))
			_exit(1);
		end_close(&end);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	kill(child.pid, SIGCONT);
	end_open(&end, "fabric:shm", BYTES);
	assert_ok(
		pn_device_attach(end.device, &child.hello.address, &end.peer));
	assert_true(next(&end, &c));
	assert_int_equal(c.kind, PN_COMPLETION_PEER_UP);
	send_and_expect_echo(&end, 1);
	child_end(&child);
	end_close(&end);
	snprintf(command, sizeof(command), "rm /dev/shm/%d:* /dev/shm/%d:*",
		 (int)pid, (int)child.pid);
	assert_ok(system(command));
}

/* Where a process may not read the memory of others, shm has its owner copy. */
static bool processes_read_each_other(void)
{
	FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
	int c = file ? fgetc(file) : '0';

	if (file)
		fclose(file);
	return c == '0' || !geteuid();
}

/* The peer reads the source of a long write. shm does not say which read it is
 * that has failed. */
static void a_source_that_is_gone_resets_the_connection(void **state)
{
	struct pn_completion c;
	struct child child;
	struct end end;

	(void)state;
	if (cable || !processes_read_each_other())
		skip();
	child_start(&child, "fabric:shm,patience=1000s", SERVE);
	end_open(&end, "fabric:shm,patience=1000s", BYTES);
	assert_ok(
		pn_device_attach(end.device, &child.hello.address, &end.peer));
	assert_true(next(&end, &c));
	assert_int_equal(c.kind, PN_COMPLETION_PEER_UP);
	assert_ok(mprotect(end.mr.addr, BYTES, PROT_NONE));
	assert_ok(write_to(&child, &end, BYTES, NULL));
	expect_down(&end, 1);
	assert_ok(mprotect(end.mr.addr, BYTES, PROT_READ | PROT_WRITE));
	end_close(&end);
	child_end(&child);
}

static void a_peer_stopped_beyond_the_patience_is_down(void **state)
{
	struct child child;
	struct end end;
	uintptr_t n = 0;

	(void)state;
	join(&child, &end,
	     (struct pair){ "heartbeat=100ms,patience=1s", "queue_depth=128" },
	     ECHO);
	kill(child.pid, SIGSTOP);
	while (n < 4 && !write_to(&child, &end, BYTES, (void *)n))
		n++;
	expect_down(&end, n);
	child_end(&child);
	end_close(&end);
}

static void a_peer_stopped_for_less_is_not_down(void **state)
{
	struct child child;
	struct end end;

	(void)state;
	/* The child has not seen us for longer than its own patience, but it
	 * did not run. */
	join(&child, &end,
	     (struct pair){ "heartbeat=100ms,patience=60s",
			    "heartbeat=200ms,patience=2s" },
	     ECHO);
	send_and_expect_echo(&end, 1);
	kill(child.pid, SIGSTOP);
	usleep(4 * 1000 * 1000);
	kill(child.pid, SIGCONT);
	send_and_expect_echo(&end, 2);
	usleep(1000 * 1000);
	send_and_expect_echo(&end, 3);
	assert_int_equal(waitpid(child.pid, NULL, WNOHANG), 0);
	child_end(&child);
	end_close(&end);
}

static void a_peer_that_computes_is_not_down(void **state)
{
	uint64_t until;
	struct pn_completion c;
	struct child child;
	struct end end;

	(void)state;
	join(&child, &end,
	     (struct pair){ "heartbeat=200ms,patience=4s", "queue_depth=128" },
	     COMPUTE);
	until = pn_device_now(end.device) + 10 * PN_NS_PER_S;
	while (pn_device_wait(end.device, until) != -ETIMEDOUT)
		assert_int_equal(pn_device_poll(end.device, &c, 1), 0);
	/* Its service thread executes a long write. */
	memset(end.mr.addr, 7, BYTES);
	assert_ok(write_to(&child, &end, BYTES, NULL));
	assert_true(next(&end, &c));
	assert_int_equal(c.kind, PN_COMPLETION_OP);
	assert_ok(c.status);
	child_end(&child);
	end_close(&end);
}

/* --- endpoints ------------------------------------------------------------ */

static struct pinion_endpoint *open_endpoint(void)
{
	const char *const options[] = { "log=none",
					"device=fabric:tcp,patience=1000s",
					NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	struct pinion_context *context;
	struct pinion_endpoint *ep = NULL;

	if (pinion_open(&attr, &context) ||
	    pinion_endpoint_open(context, NULL, &ep))
		return NULL;
	return ep;
}

/* Reads a few bytes, then begins to read all and stops. */
static void read_and_stop(const struct pinion_address *owner,
			  const struct pinion_exposure_key *key, void *buf)
{
	struct pinion_move get = { .size = sizeof(get), .buf = buf, .len = 8 };
	struct pinion_endpoint *ep = open_endpoint();
	struct pinion_request *request;
	struct pinion_peer *peer;

	if (!ep || pinion_peer_add(ep, owner, &peer) ||
	    pinion_remote_open(ep, peer, key, &get.remote) ||
	    pinion_get(ep, &get, &request) ||
	    pinion_wait(ep, request, PINION_FOREVER, NULL))
		_exit(1);
	get.len = BYTES;
	if (pinion_get(ep, &get, &request))
		_exit(2);
	raise(SIGSTOP);
	_exit(3);
}

struct closing {
	struct pinion_endpoint *ep;
	_Atomic bool closed;
};

static void *close_endpoint(void *arg)
{
	struct closing *closing = arg;

	pinion_endpoint_close(closing->ep);
	atomic_store(&closing->closed, true);
	return NULL;
}

/* The peer was told a key of the provider and has not released it: the
 * exposure, which the endpoint closes, has a user. */
static void closing_does_not_wait_for_a_peer_that_is_stopped(void **state)
{
	struct closing closing = { .ep = open_endpoint() };
	struct pinion_exposure *exposure;
	struct pinion_exposure_key key;
	struct pinion_address address;
	uint64_t until;
	pthread_t thread;
	void *memory;
	bool closed;
	pid_t pid;

	(void)state;
	if (cable)
		skip();
	assert_non_null(closing.ep);
	assert_ok(pn_pages_map(BYTES, NULL, &memory));
	assert_ok(pinion_exposure_open(closing.ep, memory, BYTES,
				       PINION_ACCESS_REMOTE_READ, &exposure));
	assert_ok(pinion_exposure_key(exposure, &key));
	assert_ok(pinion_endpoint_address(closing.ep, &address));
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		read_and_stop(&address, &key, memory);
	until = pn_clock_ns() + END_PATIENCE_NS;
	while (!waitpid(pid, NULL, WNOHANG | WUNTRACED)) {
		pinion_poll(closing.ep, NULL, 0, 0);
		assert_true(pn_clock_ns() < until);
	}
	usleep(200 * 1000);
	assert_ok(pthread_create(&thread, NULL, close_endpoint, &closing));
	until = pn_clock_ns() + 60 * PN_NS_PER_S;
	while (!atomic_load(&closing.closed) && pn_clock_ns() < until)
		usleep(1000);
	closed = atomic_load(&closing.closed);
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	pthread_join(thread, NULL);
	assert_true(closed);
	pn_pages_unmap(memory, BYTES, NULL);
}

/* --- progress and heartbeats ---------------------------------------------- */

/* A number that the device describes. */
struct number {
	const char *name;
	unsigned long value;
};

static void remember_number(void *arg, const char *name, const char *text)
{
	struct number *number = arg;

	if (!strcmp(name, number->name))
		number->value = strtoul(text, NULL, 10);
}

static unsigned long number_of(struct end *end, const char *name)
{
	struct number number = { name, ULONG_MAX };

	end->device->ops->describe(end->device, remember_number, &number);
	assert_true(number.value != ULONG_MAX);
	return number.value;
}

static unsigned long heartbeats_of(struct end *end)
{
	return number_of(end, "heartbeats");
}

/* The service thread leaves progress to callers that poll all the time, and not
 * to one that polls now and then: peers would wait for its next poll. */
static void progress_is_left_to_callers_that_poll_all_the_time(void **state)
{
	struct pn_completion c;
	unsigned long before;
	struct end end;
	uint64_t until;

	(void)state;
	enter(0);
	end_open(&end, "fabric:tcp", BYTES);
	before = number_of(&end, "progress");
	for (unsigned i = 0; i < 300; i++) {
		assert_int_equal(pn_device_poll(end.device, &c, 1), 0);
		usleep(1000);
	}
	assert_int_equal(number_of(&end, "progress"), before);
	until = pn_device_now(end.device) + END_PATIENCE_NS;
	while (number_of(&end, "progress") == before &&
	       pn_device_now(end.device) < until)
		for (unsigned i = 0; i < 10000; i++)
			pn_device_poll(end.device, &c, 1);
	assert_true(number_of(&end, "progress") > before);
	end_close(&end);
}

/* Without a descriptor: a stream of operations does not wait for the longest
 * sleep, and a quiet device is looked at once in a millisecond. */
static void sleeps_without_a_descriptor_grow_while_nothing_comes(void **state)
{
	uint64_t nap = pn_fabric_nap_after(0, false), slept = 0;

	(void)state;
	assert_int_equal(nap, 20 * PN_NS_PER_US);
	for (unsigned i = 0; i < 10; i++) {
		uint64_t next = pn_fabric_nap_after(nap, false);

		slept += nap;
		assert_true(next == PN_NS_PER_MS || next == 2 * nap);
		assert_true(next <= 2 * slept);
		nap = next;
	}
	assert_int_equal(nap, PN_NS_PER_MS);
	assert_int_equal(pn_fabric_nap_after(nap, true), 20 * PN_NS_PER_US);
}

static void traffic_replaces_heartbeats(void **state)
{
	unsigned long before, quiet;
	struct pn_completion c;
	struct child child;
	struct end end;
	uint64_t until;

	(void)state;
	join(&child, &end,
	     (struct pair){ "heartbeat=10s,patience=100s",
			    "heartbeat=10s,patience=100s" },
	     ECHO);
	for (uint32_t i = 0; i < 2000; i++)
		send_and_expect_echo(&end, i);
	before = heartbeats_of(&end);
	assert_int_equal(before, 0);
	child_end(&child);
	end_close(&end);
	/* And without traffic there are some. */
	join(&child, &end,
	     (struct pair){ "heartbeat=50ms,patience=100s",
			    "heartbeat=10s,patience=100s" },
	     ECHO);
	until = pn_device_now(end.device) + END_PATIENCE_NS;
	do {
		pn_device_wait(end.device,
			       pn_device_now(end.device) + 50 * PN_NS_PER_MS);
		assert_int_equal(pn_device_poll(end.device, &c, 1), 0);
		quiet = heartbeats_of(&end);
	} while (quiet < 3 && pn_device_now(end.device) < until);
	assert_true(quiet >= 3);
	child_end(&child);
	end_close(&end);
}

/* --- a cable that is cut -------------------------------------------------- */

static void set_link(const char *how)
{
	char command[256];

	snprintf(command, sizeof(command), "ip -n %s link set %s %s",
		 namespaces[0], cable, how);
	assert_ok(system(command));
}

static void a_cut_for_less_than_the_patience_is_survived(void **state)
{
	struct pn_completion c;
	struct child child;
	struct end end;

	(void)state;
	if (!cable)
		skip();
	join(&child, &end,
	     (struct pair){ "heartbeat=100ms,patience=60s",
			    "heartbeat=100ms,patience=60s" },
	     ECHO);
	set_link("down");
	memset(end.mr.addr, 9, BYTES);
	assert_ok(write_to(&child, &end, BYTES, NULL));
	usleep(1000 * 1000);
	set_link("up");
	assert_true(next(&end, &c));
	assert_int_equal(c.kind, PN_COMPLETION_OP);
	assert_ok(c.status);
	send_and_expect_echo(&end, 5);
	child_end(&child);
	end_close(&end);
}

static void a_cut_beyond_the_patience_takes_the_peer_down(void **state)
{
	struct child child;
	struct end end;
	uintptr_t n = 0;

	(void)state;
	if (!cable)
		skip();
	join(&child, &end,
	     (struct pair){ "heartbeat=100ms,patience=2s", "queue_depth=128" },
	     ECHO);
	set_link("down");
	while (n < 4 && !write_to(&child, &end, BYTES, (void *)n))
		n++;
	expect_down(&end, n);
	set_link("up");
	child_end(&child);
	end_close(&end);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(specs_that_do_not_parse_are_refused),
		TEST(providers_that_are_not_there_are_enodev_and_logged),
		TEST(other_addresses_are_refused),
		TEST(addresses_of_soft_and_fabric_fit_into_a_name_of_libfabric),
		TEST(bad_hellos_are_refused),
		TEST(attaching_where_no_device_is_ends_in_peer_down),
		TEST(shared_memory_of_a_killed_process_is_replaced),
		TEST(operations_of_a_killed_peer_end),
		TEST(the_end_of_a_process_is_noticed_once),
		TEST(connections_that_ended_keep_no_descriptor),
		TEST(what_was_sent_before_a_process_ended_arrives),
		TEST(closing_before_the_peer_runs_does_it_no_harm),
		TEST(a_source_that_is_gone_resets_the_connection),
		TEST(a_peer_stopped_beyond_the_patience_is_down),
		TEST(a_peer_stopped_for_less_is_not_down),
		TEST(a_peer_that_computes_is_not_down),
		TEST(closing_does_not_wait_for_a_peer_that_is_stopped),
		TEST(traffic_replaces_heartbeats),
		TEST(progress_is_left_to_callers_that_poll_all_the_time),
		TEST(sleeps_without_a_descriptor_grow_while_nothing_comes),
		TEST(a_cut_for_less_than_the_patience_is_survived),
		TEST(a_cut_beyond_the_patience_takes_the_peer_down),
	};

	if (argc > 3) {
		namespaces[0] = argv[1];
		namespaces[1] = argv[2];
		cable = argv[3];
	}
	pn_log_set_level(PN_LOG_NONE);
	return RUN_TESTS(tests);
}
