/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_helper_api [DEVICE] -- the helper behind the public calls: messages of
 * an endpoint to itself. With a device only what depends on it.
 */
#include "apart.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "base/clock.h"
#include "helper/cores.h"
#include "helper/registry.h"

#define BYTES  ((size_t)128 << 10)
#define ROUNDS 12

struct program {
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	struct pinion_peer *self;
	char *out, *in;
};

static char device[128] = "device=soft";

static void open_context(struct program *p, const char *helper)
{
	const char *const options[] = { device, "protocol=cached", helper,
					NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };

	assert_ok(pinion_open(&attr, &p->context));
}

static void open_endpoint(struct program *p)
{
	struct pinion_address address;

	assert_ok(pinion_endpoint_open(p->context, NULL, &p->ep));
	assert_ok(pinion_endpoint_address(p->ep, &address));
	assert_ok(pinion_peer_add(p->ep, &address, &p->self));
}

static void open_program(struct program *p, const char *helper)
{
	open_context(p, helper);
	open_endpoint(p);
	p->out = aligned_alloc(4096, BYTES);
	p->in = aligned_alloc(4096, BYTES);
	assert_true(p->out && p->in);
}

static void close_program(struct program *p)
{
	pinion_close(p->context);
	free(p->out);
	free(p->in);
}

static void exchange(struct program *p, int round)
{
	struct pinion_message m = {
		.size = sizeof(m), .buf = p->in, .len = BYTES, .peer = p->self
	};
	struct pinion_request *in, *out;

	memset(p->out, round, BYTES);
	memset(p->in, ~round, BYTES);
	assert_ok(pinion_recv(p->ep, &m, &in));
	m.buf = p->out;
	assert_ok(pinion_send(p->ep, &m, &out));
	assert_ok(pinion_wait(p->ep, out, PINION_FOREVER, NULL));
	assert_ok(pinion_wait(p->ep, in, PINION_FOREVER, NULL));
	assert_memory_equal(p->in, p->out, BYTES);
}

static struct pinion_helper_stats query(struct program *p)
{
	struct pinion_helper_stats stats = { .size = sizeof(stats) };

	assert_ok(pinion_helper_query(p->context, &stats));
	return stats;
}

/* The helper handles the record of a message some time after it. */
static struct pinion_helper_stats seen(struct program *p, uint64_t ncalls)
{
	struct timespec moment = { .tv_nsec = PN_NS_PER_MS };
	struct pinion_helper_stats stats = query(p);

	for (int i = 0; i < 20000 && stats.calls < ncalls; i++) {
		nanosleep(&moment, NULL);
		stats = query(p);
	}
	assert_int_equal(stats.calls, ncalls);
	return stats;
}

static void every_long_message_is_seen_and_arrives(void **state)
{
	struct pinion_helper_stats stats;
	struct program p;

	(void)state;
	open_program(&p, "helper=own");
	for (int round = 0; round < ROUNDS; round++) {
		exchange(&p, round);
		seen(&p, 2 * (uint64_t)(round + 1));
	}
	stats = query(&p);
	assert_int_equal(stats.first, 2);
	assert_int_equal(stats.buffers, 2);
	assert_int_equal(stats.first + stats.in_time + stats.late +
				 stats.copied,
			 2 * ROUNDS);
	assert_true(stats.deregistered + stats.in_use + stats.aside >= 2 ||
		    stats.held_back);
	close_program(&p);
}

static void named_sites_are_told_apart(void **state)
{
	struct program p;

	(void)state;
	open_program(&p, "helper=own");
	assert_ok(pinion_site_set("one"));
	exchange(&p, 1);
	exchange(&p, 2);
	seen(&p, 4);
	/* The calls before are part of a signature, too. */
	assert_in_range(query(&p).sites, 2, 4);
	assert_ok(pinion_site_set("two"));
	exchange(&p, 3);
	seen(&p, 6);
	assert_in_range(query(&p).sites, 4, 6);
	assert_ok(pinion_site_set(NULL));
	close_program(&p);
}

static void without_a_helper_nothing_is_counted(void **state)
{
	struct pinion_helper_stats wrong = { .size = 0 };
	struct program p;

	(void)state;
	open_program(&p, "helper=off");
	exchange(&p, 1);
	assert_int_equal(query(&p).calls, 0);
	assert_int_equal(pinion_helper_query(p.context, &wrong), -EINVAL);
	assert_int_equal(pinion_helper_query(p.context, NULL), -EINVAL);
	assert_int_equal(pinion_helper_query(NULL, &wrong), -EINVAL);
	close_program(&p);
}

/* --- pins and one-sided operations, beside messages -------------------- */

static void pin_and_unpin(struct program *p)
{
	struct pinion_pin pin;

	assert_ok(pinion_pin(p->context, p->out, BYTES,
			     PINION_ACCESS_LOCAL_WRITE, &pin));
	pinion_unpin(p->context, &pin);
}

static void pins_are_seen_beside_messages(void **state)
{
	struct pinion_pin held;
	struct program p;

	(void)state;
	open_context(&p, "helper=own");
	p.out = aligned_alloc(4096, BYTES);
	p.in = aligned_alloc(4096, BYTES);
	/* Before there is a helper: nobody hears of it, nor of its end. */
	assert_ok(pinion_pin(p.context, p.in, BYTES, 0, &held));
	pin_and_unpin(&p);
	open_endpoint(&p);
	pinion_unpin(p.context, &held);
	pin_and_unpin(&p);
	assert_int_equal(seen(&p, 1).first, 1);
	exchange(&p, 1); /* each message is one call, although it pins */
	seen(&p, 3);
	pinion_endpoint_close(p.ep);
	pin_and_unpin(&p);
	assert_int_equal(seen(&p, 4).buffers, 2);
	close_program(&p);
}

static void move_by(struct program *p,
		    int (*start)(struct pinion_endpoint *ep,
				 const struct pinion_move *move,
				 struct pinion_request **out),
		    struct pinion_remote *remote, void *buf)
{
	struct pinion_move move = {
		.size = sizeof(move), .remote = remote, .buf = buf, .len = BYTES
	};
	struct pinion_request *request;

	assert_ok(start(p->ep, &move, &request));
	assert_ok(pinion_wait(p->ep, request, PINION_FOREVER, NULL));
}

static void write_granted(struct program *p)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = p->in,
				    .len = BYTES,
				    .tag = 7,
				    .peer = p->self };
	struct pinion_request *grant, *write;

	assert_ok(pinion_grant(p->ep, &m, &grant));
	m.buf = p->out;
	assert_ok(pinion_put_when(p->ep, &m, &write));
	assert_ok(pinion_wait(p->ep, write, PINION_FOREVER, NULL));
	assert_ok(pinion_wait(p->ep, grant, PINION_FOREVER, NULL));
}

static void one_sided_operations_are_seen(void **state)
{
	struct pinion_exposure *exposure;
	struct pinion_exposure_key key;
	struct pinion_remote *remote;
	struct pinion_helper_stats stats;
	struct program p;
	char *exposed;

	(void)state;
	open_program(&p, "helper=own");
	exposed = aligned_alloc(4096, BYTES);
	assert_ok(pinion_exposure_open(p.ep, exposed, BYTES,
				       PINION_ACCESS_REMOTE_WRITE |
					       PINION_ACCESS_REMOTE_READ,
				       &exposure));
	assert_ok(pinion_exposure_key(exposure, &key));
	assert_ok(pinion_remote_open(p.ep, p.self, &key, &remote));
	for (int round = 0; round < ROUNDS; round++) {
		memset(p.out, round, BYTES);
		move_by(&p, pinion_put, remote, p.out);
		move_by(&p, pinion_get, remote, p.in);
		assert_memory_equal(p.in, p.out, BYTES);
		memset(p.out, ~round, BYTES);
		write_granted(&p);
		assert_memory_equal(p.in, p.out, BYTES);
		stats = seen(&p, 4 * (uint64_t)(round + 1));
	}
	assert_int_equal(stats.buffers, 2);
	assert_int_equal(stats.first + stats.in_time + stats.late +
				 stats.copied,
			 4 * ROUNDS);
	/* Conditional writes are not copied, at neither end. */
	assert_true(stats.copied <= 2 * ROUNDS);
	assert_true(stats.deregistered + stats.in_use + stats.aside >= 2 ||
		    stats.held_back);
	pinion_remote_close(remote);
	pinion_exposure_close(exposure);
	close_program(&p);
	free(exposed);
}

/* --- an idle program ------------------------------------------------------ */

/* The number that follows a name in a file of /proc. */
static unsigned long number_in(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	unsigned long number = ULONG_MAX;
	char line[256];

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)))
			number = strtoul(line + strlen(name), NULL, 10);
	fclose(file);
	assert_true(number != ULONG_MAX);
	return number;
}

/* The status file of the helper's thread. */
static void find_helper(char *path, size_t bytes)
{
	DIR *tasks = opendir("/proc/self/task");
	bool found = false;
	struct dirent *task;

	assert_non_null(tasks);
	while (!found && (task = readdir(tasks))) {
		char name[64] = "";
		FILE *file;

		snprintf(path, bytes, "/proc/self/task/%.16s/comm",
			 task->d_name);
		file = fopen(path, "r");
		if (!file)
			continue;
		found = fgets(name, sizeof(name), file) &&
			!strcmp(name, "pinion-helper\n");
		fclose(file);
		snprintf(path, bytes, "/proc/self/task/%.16s/status",
			 task->d_name);
	}
	closedir(tasks);
	assert_true(found);
}

/* Each wake-up ends in a sleep, which the kernel counts. Jobs that are queued
 * come first: they may take a while to end. */
static void in_an_idle_program_the_helper_never_wakes_up(void **state)
{
	struct timespec moment = { .tv_nsec = 100 * PN_NS_PER_MS };
	unsigned long before = 0, quiet = 0;
	struct program p;
	char path[64];

	(void)state;
	open_program(&p, "helper=own");
	for (int round = 0; round < ROUNDS; round++)
		exchange(&p, round);
	seen(&p, 2 * ROUNDS);
	find_helper(path, sizeof(path));
	for (int i = 0; i < 600 && quiet < 10; i++) {
		unsigned long now = number_in(path, "voluntary_ctxt_switches:");

		quiet = now == before ? quiet + 1 : 0;
		before = now;
		nanosleep(&moment, NULL);
	}
	assert_int_equal(quiet, 10);
	exchange(&p, 1); /* and it does wake up when there is something */
	seen(&p, 2 * ROUNDS + 2);
	close_program(&p);
}

/* --- with other processes of the machine ---------------------------------- */

/* Lets all users open the segment. */
static void spoil_segment(void)
{
	char name[PN_HELPER_REGISTRY_NAME_BYTES];
	int fd;

	pn_helper_registry_name(name);
	fd = shm_open(name, O_RDWR | O_CREAT, 0600);
	if (fd < 0 || fchmod(fd, 0666))
		_exit(2);
}

/* 0: all as expected; else the step that was not. */
static int meet_where_one_cannot(void)
{
	struct program p;

	spoil_segment();
	open_context(&p, "helper=conservative");
	if (pinion_endpoint_open(p.context, NULL, &p.ep) != -EPERM)
		return 3;
	pinion_close(p.context);
	open_program(&p, "helper=auto");
	exchange(&p, 1);
	if (query(&p).calls)
		return 4;
	close_program(&p);
	open_program(&p, "helper=own");
	exchange(&p, 1);
	seen(&p, 2);
	close_program(&p);
	return 0;
}

static void without_a_registry_auto_has_no_helper(void **state)
{
	(void)state;
	run_apart(meet_where_one_cannot);
}

static int try_every_policy(void)
{
	static const char *const policies[] = { "helper=auto",
						"helper=aggressive",
						"helper=conservative" };

	for (unsigned i = 0; i < PN_ARRAY_LEN(policies); i++) {
		struct program p;

		open_program(&p, policies[i]);
		for (int round = 0; round < ROUNDS; round++)
			exchange(&p, round);
		assert_int_equal(seen(&p, 2 * ROUNDS).members, 1);
		close_program(&p);
	}
	return 0;
}

static void every_policy_lets_messages_arrive(void **state)
{
	(void)state;
	run_apart(try_every_policy);
}

static int open_on_one_core(void)
{
	struct pinion_helper_stats stats;
	cpu_set_t before, only;
	struct program p;
	unsigned cpu = 0;

	assert_ok(sched_getaffinity(0, sizeof(before), &before));
	while (!CPU_ISSET(cpu, &before))
		cpu++;
	CPU_ZERO(&only);
	CPU_SET(cpu, &only);
	assert_ok(sched_setaffinity(0, sizeof(only), &only));
	open_program(&p, "helper=auto");
	assert_ok(sched_setaffinity(0, sizeof(before), &before));
	for (int round = 0; round < ROUNDS; round++)
		exchange(&p, round);
	stats = seen(&p, 2 * ROUNDS);
	assert_int_equal(stats.idle, 1);
	assert_int_equal(stats.deregistered, 0);
	close_program(&p);
	return 0;
}

static void a_program_bound_to_one_core_has_no_helper(void **state)
{
	(void)state;
	run_apart(open_on_one_core);
}

/* Binds this process to two cores: two programs leave none idle. */
static void take_two_cores(void)
{
	cpu_set_t all, few;
	struct pn_cores cores;

	CPU_ZERO(&few);
	if (sched_getaffinity(0, sizeof(all), &all))
		_exit(2);
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		CPU_SET(cpu, &few);
		if (sched_setaffinity(0, sizeof(few), &few) ||
		    pn_cores_mine(&cores))
			_exit(2);
		if (pn_cores_count(&cores) == 2)
			return;
	}
	_exit(TEST_SKIP);
}

/* Exchanges messages until there are so many helpers and this one is idle, or
 * is not. */
static bool comes_true(struct program *p, uint64_t members, uint64_t resting)
{
	struct timespec moment = { .tv_nsec = PN_NS_PER_MS };

	for (int i = 0; i < 20000; i++) {
		struct pinion_helper_stats stats = query(p);

		if (stats.members == members && stats.idle == resting)
			return true;
		exchange(p, i & 127);
		nanosleep(&moment, NULL);
	}
	return false;
}

/* Two programs with a core each leave none to a helper. One is killed. */
static int outlive_the_other(void)
{
	struct program p;
	pid_t pid;

	take_two_cores();
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		open_program(&p, "helper=auto");
		comes_true(&p, UINT64_MAX, 1); /* never: it goes on */
		_exit(0);
	}
	open_program(&p, "helper=auto");
	if (!comes_true(&p, 2, 1))
		return 3;
	if (kill(pid, SIGKILL) || waitpid(pid, NULL, 0) != pid)
		return 4;
	if (!comes_true(&p, 1, 0))
		return 5;
	close_program(&p);
	return 0;
}

static void the_core_of_a_killed_program_goes_to_a_helper(void **state)
{
	(void)state;
	run_apart(outlive_the_other);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest on_device[] = {
		TEST(every_long_message_is_seen_and_arrives),
		TEST(named_sites_are_told_apart),
		TEST(pins_are_seen_beside_messages),
		TEST(one_sided_operations_are_seen),
		TEST(without_a_helper_nothing_is_counted),
		TEST(in_an_idle_program_the_helper_never_wakes_up),
	};
	const struct CMUnitTest tests[] = {
		/* First: the thread sanitizer lets a child start threads only
		 * if its parent has had none. */
		TEST(the_core_of_a_killed_program_goes_to_a_helper),
		TEST(without_a_registry_auto_has_no_helper),
		TEST(every_policy_lets_messages_arrive),
		TEST(a_program_bound_to_one_core_has_no_helper),
		TEST(every_long_message_is_seen_and_arrives),
		TEST(named_sites_are_told_apart),
		TEST(pins_are_seen_beside_messages),
		TEST(one_sided_operations_are_seen),
		TEST(without_a_helper_nothing_is_counted),
		TEST(in_an_idle_program_the_helper_never_wakes_up),
	};

	if (argc > 1) {
		snprintf(device, sizeof(device), "device=%s", argv[1]);
		return RUN_TESTS(on_device);
	}
	return RUN_TESTS(tests);
}
