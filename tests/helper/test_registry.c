/* SPDX-License-Identifier: BSD-2-Clause */
/* Processes that share a registry, die, and leave slots behind. */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "helper/cores.h"
#include "helper/registry.h"

static char name[64]; /* where the members of a test meet */
static char path[80]; /* the same as a file */

static int setup(void **state)
{
	(void)state;
	snprintf(name, sizeof(name), "/pinion-test-%d", (int)getpid());
	snprintf(path, sizeof(path), "/dev/shm%s", name);
	shm_unlink(name);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return shm_unlink(name);
}

/* A set of cores that identifies a member. */
static struct pn_cores cores_of(unsigned number)
{
	struct pn_cores cores = { 0 };

	for (unsigned i = 0; i < PN_CORES_WORDS; i++)
		cores.word[i] = number * (i + 1);
	return cores;
}

static struct pn_helper_registry *join(unsigned number)
{
	struct pn_cores cores = cores_of(number);
	struct pn_helper_registry *registry;

	assert_ok(pn_helper_registry_join(name, &cores, &registry));
	return registry;
}

static unsigned members_of(struct pn_helper_registry *registry, uint64_t *bytes)
{
	const struct pn_member *members;
	unsigned me, n = pn_helper_registry_read(registry, &members, &me);

	*bytes = 0;
	for (unsigned i = 0; i < n; i++)
		*bytes += members[i].bytes;
	return n;
}

static void assert_members(struct pn_helper_registry *registry, unsigned n,
			   uint64_t bytes)
{
	uint64_t found;

	assert_int_equal(members_of(registry, &found), n);
	assert_int_equal(found, bytes);
}

/* --- other processes ------------------------------------------------------ */

struct process {
	pid_t pid;
	int said; /* a byte when it is done; it waits to be killed then */
};

/* A process that joins so many times with so many bytes each, reports that, and
 * stays. */
static struct process start(unsigned times, uint64_t bytes)
{
	struct pn_cores cores = cores_of(1);
	struct process p;
	int ends[2];

	assert_ok(pipe(ends));
	p = (struct process){ fork(), ends[0] };
	assert_true(p.pid >= 0);
	if (!p.pid) {
		for (; times; times--) {
			struct pn_helper_registry *registry;

			if (pn_helper_registry_join(name, &cores, &registry))
				_exit(1);
			pn_helper_registry_publish(registry, bytes);
		}
		if (write(ends[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(ends[1]);
	return p;
}

static void await(struct process *p)
{
	char byte;

	assert_int_equal(read(p->said, &byte, 1), 1);
	close(p->said);
}

/* Kills it and leaves it a zombie. */
static void kill_it(struct process *p)
{
	siginfo_t info;

	assert_ok(kill(p->pid, SIGKILL));
	assert_ok(waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOWAIT));
}

static void reap(struct process *p)
{
	assert_int_equal(waitpid(p->pid, NULL, 0), p->pid);
}

static void processes_see_each_other(void **state)
{
	struct pn_helper_registry *registry = join(1);
	struct process a = start(1, 100), b = start(2, 1000);

	(void)state;
	await(&a);
	await(&b);
	pn_helper_registry_publish(registry, 7);
	assert_members(registry, 4, 2107);
	kill_it(&a);
	kill_it(&b);
	reap(&a);
	reap(&b);
	pn_helper_registry_leave(registry);
}

static void a_killed_member_neither_counts_nor_blocks(void **state)
{
	struct pn_helper_registry *registry = join(1), *late;
	struct process a = start(1, 100), b = start(1, 1000);

	(void)state;
	await(&a);
	await(&b);
	kill_it(&b);
	assert_members(registry, 2, 100);
	reap(&b);
	assert_members(registry, 2, 100);
	late = join(2);
	pn_helper_registry_publish(late, 10);
	assert_members(registry, 3, 110);
	assert_members(late, 3, 110);
	kill_it(&a);
	reap(&a);
	assert_members(late, 2, 10);
	pn_helper_registry_leave(late);
	assert_members(registry, 1, 0);
	pn_helper_registry_leave(registry);
}

/* A process that took every slot and was killed. */
static void the_slots_of_a_dead_process_are_taken_over(void **state)
{
	struct process job = start(PN_SHARE_MAX, 1);
	struct pn_cores cores = cores_of(1);
	struct pn_helper_registry *registry;

	(void)state;
	await(&job);
	assert_int_equal(pn_helper_registry_join(name, &cores, &registry),
			 -EUSERS);
	kill_it(&job);
	registry = join(1);
	assert_members(registry, 1, 0);
	reap(&job);
	assert_members(registry, 1, 0);
	pn_helper_registry_leave(registry);
}

static uint64_t *map_words(size_t *n)
{
	int fd = shm_open(name, O_RDWR, 0);
	struct stat st;
	void *words;

	assert_true(fd >= 0);
	assert_ok(fstat(fd, &st));
	words = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE,
		     MAP_SHARED, fd, 0);
	assert_true(words != MAP_FAILED);
	close(fd);
	*n = (size_t)st.st_size / sizeof(uint64_t);
	return words;
}

/* As if the PID had belonged to another process, which died, and were ours. */
static void a_reused_pid_is_another_process(void **state)
{
	struct pn_helper_registry *first = join(1), *second = join(2);
	unsigned changed = 0;
	size_t n;
	uint64_t *words = map_words(&n);

	(void)state;
	pn_helper_registry_publish(first, 100);
	pn_helper_registry_publish(second, 1);
	assert_members(second, 2, 101);
	/* Owner and announcement of the first slot. */
	for (size_t i = 0; i < n && changed < 2; i++)
		if ((uint32_t)words[i] == (uint32_t)getpid()) {
			words[i] ^= UINT64_C(1) << 33;
			changed++;
		}
	assert_int_equal(changed, 2);
	assert_members(second, 1, 1);
	munmap(words, n * sizeof(*words));
	pn_helper_registry_leave(first);
	pn_helper_registry_leave(second);
}

static void a_child_that_leaves_keeps_its_parents_slot(void **state)
{
	struct pn_helper_registry *registry = join(1), *other = join(2);
	pid_t pid = fork();
	int status;

	(void)state;
	if (!pid) {
		pn_helper_registry_leave(registry);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_members(other, 2, 0);
	pn_helper_registry_leave(registry);
	assert_members(other, 1, 0);
	pn_helper_registry_leave(other);
}

/* --- joining and leaving -------------------------------------------------- */

#define NPROCESSES 4
#define TURNS	   60

/* The fields read of a member belong together: its cores and its bytes are both
 * its PID, its bytes also 0 just after joining. */
static bool is_sound(const struct pn_member *m)
{
	uint64_t pid = (uint32_t)m->process;
	struct pn_cores cores = cores_of((unsigned)pid);

	return (!m->bytes || m->bytes == pid) &&
	       !memcmp(&m->cores, &cores, sizeof(cores));
}

static int come_and_go(void)
{
	struct pn_cores cores = cores_of((unsigned)getpid());

	for (unsigned i = 0; i < TURNS; i++) {
		const struct pn_member *members;
		unsigned n, me = PN_SHARE_MAX;
		struct pn_helper_registry *registry;

		if (pn_helper_registry_join(name, &cores, &registry))
			return 1;
		pn_helper_registry_publish(registry, (uint64_t)getpid());
		n = pn_helper_registry_read(registry, &members, &me);
		if (me >= n || members[me].process << 32 != (uint64_t)getpid()
								    << 32)
			return 2;
		for (unsigned j = 0; j < n; j++)
			if (!is_sound(&members[j]))
				return 3;
		/* Every other process dies with its slot, or nearly so. */
		if (i % 2)
			pn_helper_registry_leave(registry);
	}
	return 0;
}

/* On a segment that does not exist yet: they create it together. */
static void many_processes_join_and_leave_at_once(void **state)
{
	pid_t pids[NPROCESSES];
	struct pn_helper_registry *registry;
	int status;

	(void)state;
	for (unsigned i = 0; i < NPROCESSES; i++) {
		pids[i] = fork();
		assert_true(pids[i] >= 0);
		if (!pids[i])
			_exit(come_and_go());
	}
	for (unsigned i = 0; i < NPROCESSES; i++) {
		assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
		assert_int_equal(status, 0);
	}
	registry = join(1);
	assert_members(registry, 1, 0);
	pn_helper_registry_leave(registry);
}

struct thread {
	pthread_t thread;
	unsigned bad;
};

static void *join_and_leave(void *arg)
{
	struct thread *t = arg;
	struct pn_cores cores = cores_of((unsigned)getpid());

	for (unsigned i = 0; i < TURNS; i++) {
		struct pn_helper_registry *registry;
		uint64_t bytes;

		if (pn_helper_registry_join(name, &cores, &registry)) {
			t->bad++;
			continue;
		}
		pn_helper_registry_publish(registry, i);
		t->bad += !members_of(registry, &bytes);
		pn_helper_registry_leave(registry);
	}
	return NULL;
}

static void threads_of_a_process_may_be_members_each(void **state)
{
	struct thread threads[4] = { 0 };

	(void)state;
	for (unsigned i = 0; i < 4; i++)
		assert_ok(pthread_create(&threads[i].thread, NULL,
					 join_and_leave, &threads[i]));
	for (unsigned i = 0; i < 4; i++) {
		assert_ok(pthread_join(threads[i].thread, NULL));
		assert_int_equal(threads[i].bad, 0);
	}
}

/* --- refusing ------------------------------------------------------------- */

/* Joins and expects ret, and one log line that names the segment and the
 * reason. */
static void assert_refused(int ret, const char *why)
{
	struct pn_cores cores = cores_of(1);
	int kept = dup(STDERR_FILENO), lines = memfd_create("lines", 0);
	char text[512] = "";
	struct pn_helper_registry *registry;
	int found;

	assert_true(kept >= 0 && lines >= 0);
	assert_true(dup2(lines, STDERR_FILENO) >= 0);
	found = pn_helper_registry_join(name, &cores, &registry);
	assert_true(dup2(kept, STDERR_FILENO) >= 0);
	assert_true(pread(lines, text, sizeof(text) - 1, 0) >= 0);
	close(kept);
	close(lines);
	assert_int_equal(found, ret);
	assert_non_null(strstr(text, path));
	assert_non_null(strstr(text, why));
	assert_non_null(strstr(text, "helper=own"));
	assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

static void a_segment_that_is_open_to_others_is_refused(void **state)
{
	(void)state;
	pn_helper_registry_leave(join(1));
	assert_ok(chmod(path, 0660));
	assert_refused(-EPERM, "others may use it");
	assert_ok(chmod(path, 0604));
	assert_refused(-EPERM, "others may use it");
	assert_ok(chmod(path, 0600));
	pn_helper_registry_leave(join(1));
}

static void a_segment_of_another_user_is_refused(void **state)
{
	(void)state;
	pn_helper_registry_leave(join(1));
	if (geteuid())
		return; /* one cannot give files away */
	assert_ok(chown(path, 4711, 4711));
	assert_refused(-EPERM, "belongs to another user");
}

static void a_link_is_not_followed(void **state)
{
	char target[96];

	(void)state;
	snprintf(target, sizeof(target), "%s-target", path);
	assert_ok(symlink(target, path));
	assert_refused(-ELOOP, strerror(ELOOP));
	assert_int_equal(access(target, F_OK), -1);
}

static void another_version_is_refused(void **state)
{
	uint64_t *words;
	size_t n;

	(void)state;
	pn_helper_registry_leave(join(1));
	words = map_words(&n);
	words[0]++;
	assert_refused(-EPROTO, "another version");
	words[0]--;
	pn_helper_registry_leave(join(1));
	munmap(words, n * sizeof(*words));
	assert_ok(truncate(path, 4096));
	assert_refused(-EPROTO, "the size of another version");
}

static void a_new_segment_is_the_users_alone(void **state)
{
	mode_t mask = umask(0);
	struct stat st;

	(void)state;
	pn_helper_registry_leave(join(1));
	umask(mask);
	assert_ok(stat(path, &st));
	assert_int_equal(st.st_mode & 0777, 0600);
}

/* --- cores ---------------------------------------------------------------- */

static void cores_are_those_that_the_process_is_bound_to(void **state)
{
	struct pn_cores all, one;
	cpu_set_t before, only;
	unsigned cpu = 0;

	(void)state;
	pn_helper_registry_leave(join(1)); /* for teardown */
	assert_ok(sched_getaffinity(0, sizeof(before), &before));
	assert_ok(pn_cores_mine(&all));
	assert_in_range(pn_cores_count(&all), 1, CPU_COUNT(&before));
	while (!CPU_ISSET(cpu, &before))
		cpu++;
	CPU_ZERO(&only);
	CPU_SET(cpu, &only);
	assert_ok(sched_setaffinity(0, sizeof(only), &only));
	assert_ok(pn_cores_mine(&one));
	assert_ok(sched_setaffinity(0, sizeof(before), &before));
	assert_int_equal(pn_cores_count(&one), 1);
	for (unsigned i = 0; i < PN_CORES_WORDS; i++)
		assert_int_equal(one.word[i] & ~all.word[i], 0);
}

#define TEST_MET(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST_MET(processes_see_each_other),
		TEST_MET(a_killed_member_neither_counts_nor_blocks),
		TEST_MET(the_slots_of_a_dead_process_are_taken_over),
		TEST_MET(a_reused_pid_is_another_process),
		TEST_MET(a_child_that_leaves_keeps_its_parents_slot),
		TEST_MET(many_processes_join_and_leave_at_once),
		TEST_MET(threads_of_a_process_may_be_members_each),
		TEST_MET(a_segment_that_is_open_to_others_is_refused),
		TEST_MET(a_segment_of_another_user_is_refused),
		TEST_MET(a_link_is_not_followed),
		TEST_MET(another_version_is_refused),
		TEST_MET(a_new_segment_is_the_users_alone),
		TEST_MET(cores_are_those_that_the_process_is_bound_to),
	};

	return RUN_TESTS(tests);
}
