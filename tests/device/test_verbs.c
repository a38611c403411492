/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tests that need a real RDMA stack, between two adapters:
 *
 *   test_verbs SPEC SPEC [INTERFACE busy|idle|silent]
 *   test_verbs SPEC SPEC ADAPTER removed
 *
 * This process uses the first adapter, a child the second. The child dies, or
 * the cable does: INTERFACE is taken down and up again, or drops all packets.
 * Or the first adapter is removed, whose name is ADAPTER.
 * The latter is one test per run: afterwards rxe of Linux 6.1 cannot connect,
 * since the queue pair of the kernel's management packets is broken. Create the
 * adapters anew.
 */
#include "end.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pages.h"
#include "device/device.h"

#define BYTES ((size_t)64 << 10)
#define POSTS 64

static const char *specs[2];
static const char *interface;

/* A child with an end. It only makes progress, until it is killed. */
struct child {
	pid_t pid;
	struct hello hello;
};

static void run_child(int to)
{
	struct end end;
	struct pn_completion c;

	end_open(&end, specs[1], BYTES);
	if (write(to, &end.hello, sizeof(end.hello)) < 0)
		_exit(1);
	for (;;) {
		pn_device_wait(end.device, PN_FOREVER);
		pn_device_poll(end.device, &c, 1);
	}
}

/* Called before the parent opens its device, so that the child has no copy. */
static void child_start(struct child *child)
{
	int pipes[2];

	assert_ok(pipe(pipes));
	child->pid = fork();
	assert_true(child->pid >= 0);
	if (!child->pid)
		run_child(pipes[1]);
	assert_int_equal(read(pipes[0], &child->hello, sizeof(child->hello)),
			 sizeof(child->hello));
	close(pipes[0]);
	close(pipes[1]);
}

static void child_end(struct child *child)
{
	kill(child->pid, SIGKILL);
	assert_int_equal(waitpid(child->pid, NULL, 0), child->pid);
}

static struct pn_peer *attach(struct end *end, const struct child *child)
{
	struct pn_completion c;
	struct pn_peer *peer;

	assert_ok(pn_device_attach(end->device, &child->hello.address, &peer));
	assert_true(next(end, &c));
	assert_int_equal(c.kind, PN_COMPLETION_PEER_UP);
	assert_ptr_equal(c.peer, peer);
	return peer;
}

static unsigned post_writes(struct end *end, struct pn_peer *peer,
			    const struct child *child)
{
	struct pn_sge sge = { end->mr.addr, BYTES, end->mr.lkey };
	struct pn_op op = { .kind = PN_OP_WRITE,
			    .sge = &sge,
			    .nsge = 1,
			    .remote_addr = child->hello.addr,
			    .rkey = child->hello.rkey };
	unsigned n = 0;

	while (n < POSTS && !pn_device_post(end->device, peer, &op))
		n++;
	return n;
}

/* Every posted operation completes, then the peer is down, then nothing. */
static void expect_completions_and_down(struct end *end, struct pn_peer *peer,
					unsigned posted)
{
	struct pn_sge sge = { end->mr.addr, 8, end->mr.lkey };
	struct pn_op op = { .kind = PN_OP_SEND, .sge = &sge, .nsge = 1 };
	uint64_t start = pn_device_now(end->device);
	struct pn_completion c;
	unsigned failed = 0;

	for (unsigned i = 0; i < posted; i++) {
		assert_true(next(end, &c));
		assert_int_equal(c.kind, PN_COMPLETION_OP);
		assert_true(!c.status || c.status == -ECONNRESET);
		failed += !!c.status;
	}
	assert_true(next(end, &c));
	assert_int_equal(c.kind, PN_COMPLETION_PEER_DOWN);
	assert_int_equal(c.status, -ECONNRESET);
	assert_ptr_equal(c.peer, peer);
	assert_int_equal(pn_device_post(end->device, peer, &op), -ECONNRESET);
	assert_int_equal(pn_device_poll(end->device, &c, 1), 0);
	print_message("%u of %u writes failed; down after %llu ms\n", failed,
		      posted,
		      (unsigned long long)(pn_device_now(end->device) - start) /
			      PN_NS_PER_MS);
}

static void operations_to_a_killed_peer_complete(void **state)
{
	struct child child;
	struct end end;
	struct pn_peer *peer;
	unsigned posted;

	(void)state;
	child_start(&child);
	end_open(&end, specs[0], BYTES);
	peer = attach(&end, &child);
	posted = post_writes(&end, peer, &child);
	child_end(&child);
	expect_completions_and_down(&end, peer, posted);
	end_close(&end);
}

static void an_idle_peer_that_is_killed_goes_down(void **state)
{
	struct child child;
	struct end end;
	struct pn_peer *peer;

	(void)state;
	child_start(&child);
	end_open(&end, specs[0], BYTES);
	peer = attach(&end, &child);
	child_end(&child);
	expect_completions_and_down(&end, peer, 0);
	end_close(&end);
}

static void an_address_without_a_device_is_a_peer_that_is_down(void **state)
{
	struct child child;
	struct pn_completion c;
	struct pn_peer *peer;
	struct end end;

	(void)state;
	child_start(&child);
	child_end(&child);
	end_open(&end, specs[0], BYTES);
	assert_ok(pn_device_attach(end.device, &child.hello.address, &peer));
	assert_true(next(&end, &c));
	assert_int_equal(c.kind, PN_COMPLETION_PEER_DOWN);
	assert_int_equal(c.status, -ECONNRESET);
	end_close(&end);
}

static void set_link(const char *how)
{
	char command[128];

	snprintf(command, sizeof(command), "ip link set %s %s", interface, how);
	assert_ok(system(command));
}

/* Every operation that is posted after cut(off) completes. cut(on) repairs the
 * connection. */
static void expect_completions_after(void (*cut)(const char *how),
				     const char *off, const char *on)
{
	struct child child;
	struct end end;
	struct pn_peer *peer;
	unsigned posted;

	child_start(&child);
	end_open(&end, specs[0], BYTES);
	peer = attach(&end, &child);
	cut(off);
	posted = post_writes(&end, peer, &child);
	expect_completions_and_down(&end, peer, posted);
	child_end(&child);
	cut(on);
	end_close(&end);
}

static void operations_over_a_dead_cable_complete(void **state)
{
	(void)state;
	expect_completions_after(set_link, "down", "up");
}

static void drop_packets(const char *how)
{
	char command[128];

	snprintf(command, sizeof(command),
		 "tc qdisc %s dev %s root netem loss 100%%", how, interface);
	assert_ok(system(command));
}

/* As if the peer's machine had lost power. */
static void operations_to_a_silent_peer_complete(void **state)
{
	(void)state;
	expect_completions_after(drop_packets, "add", "del");
}

static void idle_peers_go_down_with_their_port(void **state)
{
	struct child child;
	struct end end;
	struct pn_peer *peer;

	(void)state;
	child_start(&child);
	end_open(&end, specs[0], BYTES);
	peer = attach(&end, &child);
	set_link("down");
	expect_completions_and_down(&end, peer, 0);
	set_link("up");
	end_close(&end);
	child_end(&child);
}

/* Begins to remove an adapter: the command ends when all have closed it. */
static pid_t begin_removal(const char *adapter)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		execlp("rdma", "rdma", "link", "delete", adapter, NULL);
		_exit(127);
	}
	return pid;
}

static void expect_writes(struct end *end, struct pn_peer *peer,
			  const struct child *child)
{
	unsigned posted = post_writes(end, peer, child);
	struct pn_completion c;

	assert_true(posted > 0);
	for (unsigned i = 0; i < posted; i++) {
		assert_true(next(end, &c));
		assert_int_equal(c.kind, PN_COMPLETION_OP);
		assert_ok(c.status);
	}
}

/* A program with two adapters. */
static void a_removed_adapter_ends_its_peers_and_no_others(void **state)
{
	struct child child;
	struct end removed, left;
	struct pn_peer *peer, *other;
	unsigned posted;
	pid_t removal;

	(void)state;
	child_start(&child);
	end_open(&removed, specs[0], BYTES);
	end_open(&left, specs[1], BYTES);
	peer = attach(&removed, &child);
	other = attach(&left, &child);
	posted = post_writes(&removed, peer, &child);
	removal = begin_removal(interface);
	expect_completions_and_down(&removed, peer, posted);
	expect_writes(&left, other, &child);
	end_close(&removed);
	expect_writes(&left, other, &child);
	end_close(&left);
	child_end(&child);
	/* Whatever became of the command: it may wait for this process. */
	waitpid(removal, NULL, WNOHANG);
}

/* Copy on write must not move the parent's page away from the adapter. */
static void registered_memory_stays_the_parent_s_after_fork(void **state)
{
	struct pn_sge sge;
	struct child child, sleeper;
	struct pn_completion c;
	struct pn_peer *peer;
	struct end end;
	uint8_t *memory;

	(void)state;
	child_start(&child);
	end_open(&end, specs[0], BYTES);
	memory = end.mr.addr;
	peer = attach(&end, &child);
	sleeper.pid = fork();
	if (!sleeper.pid)
		for (;;)
			pause();
	memset(memory, 7, BYTES); /* copy on write would happen here */
	sge = (struct pn_sge){ memory, BYTES, end.mr.lkey };
	assert_ok(
		pn_device_post(end.device, peer,
			       &(struct pn_op){ .kind = PN_OP_READ,
						.sge = &sge,
						.nsge = 1,
						.remote_addr = child.hello.addr,
						.rkey = child.hello.rkey }));
	assert_true(next(&end, &c));
	assert_ok(c.status);
	for (size_t i = 0; i < BYTES; i++)
		assert_int_equal(memory[i], 0); /* the child's zeros */
	child_end(&sleeper);
	end_close(&end);
	child_end(&child);
}

static void detaching_ends_a_peer_on_both_sides(void **state)
{
	struct pn_completion c;
	struct pn_peer *peer;
	struct end a, b;

	(void)state;
	end_open(&a, specs[0], BYTES);
	end_open(&b, specs[1], BYTES);
	assert_ok(pn_device_attach(a.device, &b.hello.address, &peer));
	assert_true(next(&a, &c) && c.kind == PN_COMPLETION_PEER_UP);
	assert_true(next(&b, &c) && c.kind == PN_COMPLETION_PEER_UP);
	assert_ok(pn_device_detach(a.device, peer));
	assert_true(next(&a, &c) && c.kind == PN_COMPLETION_PEER_DOWN);
	assert_true(next(&b, &c) && c.kind == PN_COMPLETION_PEER_DOWN);
	end_close(&a);
	end_close(&b);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest peers[] = {
		TEST(operations_to_a_killed_peer_complete),
		TEST(an_idle_peer_that_is_killed_goes_down),
		TEST(an_address_without_a_device_is_a_peer_that_is_down),
		TEST(registered_memory_stays_the_parent_s_after_fork),
		TEST(detaching_ends_a_peer_on_both_sides),
	};
	const struct CMUnitTest busy[] = {
		TEST(operations_over_a_dead_cable_complete),
	};
	const struct CMUnitTest idle[] = {
		TEST(idle_peers_go_down_with_their_port),
	};

	const struct CMUnitTest silent[] = {
		TEST(operations_to_a_silent_peer_complete),
	};

	const struct CMUnitTest removed[] = {
		TEST(a_removed_adapter_ends_its_peers_and_no_others),
	};

	if (argc != 3 && argc != 5) {
		fprintf(stderr,
			"usage: %s SPEC SPEC [INTERFACE busy|idle|silent | "
			"ADAPTER removed]\n",
			argv[0]);
		return 2;
	}
	specs[0] = argv[1];
	specs[1] = argv[2];
	if (getenv("PINION_LOG"))
		pn_log_set_level(PN_LOG_DEBUG);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc == 3)
		return RUN_TESTS(peers);
	interface = argv[3];
	return !strcmp(argv[4], "busy")	     ? RUN_TESTS(busy)
	       : !strcmp(argv[4], "idle")    ? RUN_TESTS(idle)
	       : !strcmp(argv[4], "removed") ? RUN_TESTS(removed)
					     : RUN_TESTS(silent);
}
