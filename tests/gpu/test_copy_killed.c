/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process is killed in the middle of copies and of background registration:
 * again and again, at a random moment, and on the stand-in also at the end of a
 * random registration. Nothing is left, and another process goes on.
 *
 * All victims are one user who may lock little more memory than one victim
 * registers: if a victim left pinned memory behind, a later one could not
 * begin. (On a GPU the driver charges nobody; there the kernel's count of
 * pinned pages and the GPU's free memory come back to what they were.) The test
 * itself is the other process: it copies all the time.
 *
 * test_copy_killed [VICTIMS]
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <pinion/cuda.h>
#include <pinion/pinion.h>

#include "base/clock.h"
#include "child.h"
#include "gpu_util.h"
#include "pinned_pages.h"

#define MIB	 ((size_t)1 << 20)
#define BYTES	 (2 * MIB)
#define NBUFFERS 2
#define LOCKABLE (7 * MIB) /* what the victims' user may lock */
#define MAX_HELD "max_bytes=6M"
#define LIMIT_NS (60 * PN_NS_PER_S)

static const struct pn_cuda_driver *cu;

static struct pinion_context *open_context(void)
{
	const char *const options[] = { "device=cuda", "cuda_keep=yes",
					MAX_HELD, NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	struct pinion_context *context;

	return pinion_open(&attr, &context) ? NULL : context;
}

/* --- a victim, which is a program of its own -------------------------------
 */

static void die(void *arg)
{
	(void)arg;
	kill(getpid(), SIGKILL);
}

/* Kernels uncharge the memory of a killed process late. */
static void pin_when_possible(struct pinion_context *context, char *at)
{
	uint64_t end = pn_clock_ns() + LIMIT_NS;
	struct pinion_pin pin;
	int ret;

	while ((ret = pinion_pin(context, at, NBUFFERS * BYTES,
				 PINION_ACCESS_LOCAL_WRITE, &pin)) &&
	       pn_clock_ns() < end)
		usleep(10000);
	CHECK(!ret);
	pinion_unpin(context, &pin);
}

/* As root the limit on locked memory would not matter. The driver is opened
 * before: others may not be able to read its file. */
static void become(uid_t user)
{
	struct rlimit limit = { LOCKABLE, LOCKABLE };

	dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!user)
		return;
	CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit));
	CHECK(!setuid(user));
	prctl(PR_SET_DUMPABLE, 1);
}

/* Copies for ever; each copy is a byte in the pipe. Every buffer comes again
 * and again, so it gets registered, and is released now and then. */
static void copy_for_ever(struct pinion_context *context, int progress,
			  uint64_t seed)
{
	pn_cu_deviceptr there;
	char *at = gpu_map(NBUFFERS * BYTES);

	CHECK(!cu->mem_alloc(&there, BYTES));
	pin_when_possible(context, at);
	for (;;) {
		char *buffer = at + test_below(&seed, NBUFFERS) * BYTES;
		void *gpu = (void *)(uintptr_t)there;

		if (!test_below(&seed, 8))
			CHECK(!madvise(buffer, BYTES, MADV_DONTNEED));
		if (test_below(&seed, 2))
			CHECK(!pinion_cuda_copy(context, gpu, buffer, BYTES,
						NULL));
		else
			CHECK(!pinion_cuda_copy(context, buffer, gpu, BYTES,
						NULL));
		CHECK(write(progress, "c", 1) == 1);
	}
}

/* victim PIPE SEED USER REGISTRATIONS */
static void be_victim(char **argv)
{
	uint64_t registrations = strtoull(argv[5], NULL, 0);
	struct pinion_context *context;
	struct standin s;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	become((uid_t)strtoul(argv[4], NULL, 0));
	cu = gpu_driver();
	gpu_use_primary(cu);
	context = open_context();
	CHECK(context);
	if (gpu_standin(&s)) {
		s.set("register_us=300");
		if (registrations)
			s.after("cuMemHostRegister_v2", registrations, die,
				NULL);
	}
	copy_for_ever(context, (int)strtol(argv[2], NULL, 0),
		      strtoull(argv[3], NULL, 0));
}

struct victim {
	pid_t pid;
	int progress;
};

static struct victim start_victim(uint64_t seed, uid_t user,
				  unsigned registrations)
{
	char text[4][24], *argv[] = { "test_copy_killed",
				      "victim",
				      text[0],
				      text[1],
				      text[2],
				      text[3],
				      NULL };
	struct victim victim;
	int ends[2];

	assert_int_equal(pipe(ends), 0);
	snprintf(text[0], sizeof(text[0]), "%d", ends[1]);
	snprintf(text[1], sizeof(text[1]), "%llu", (unsigned long long)seed);
	snprintf(text[2], sizeof(text[2]), "%u", (unsigned)user);
	snprintf(text[3], sizeof(text[3]), "%u", registrations);
	fflush(NULL);
	victim.pid = fork();
	if (!victim.pid) {
		close(ends[0]);
		execv("/proc/self/exe", argv);
		_exit(127);
	}
	close(ends[1]);
	victim.progress = ends[0];
	return victim;
}

/* After so many copies and a moment, unless it has died by itself. */
static void kill_victim(struct victim victim, unsigned copies,
			unsigned moment_us)
{
	unsigned seen = 0;
	int status;
	char c;

	while (seen < copies && read(victim.progress, &c, 1) == 1)
		seen++;
	usleep(moment_us);
	kill(victim.pid, SIGKILL);
	assert_int_equal(waitpid(victim.pid, &status, 0), victim.pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	close(victim.progress);
}

/* --- the other process ---------------------------------------------------- */

static _Atomic bool stop;
static _Atomic unsigned nwrong, ncopies;

static void *copy_meanwhile(void *arg)
{
	struct pinion_context *context = arg;
	char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pn_cu_deviceptr there = 0;

	gpu_use_primary(cu);
	nwrong += cu->mem_alloc(&there, BYTES) != 0;
	for (uint64_t i = 0; !stop; i++) {
		void *gpu = (void *)(uintptr_t)there;

		gpu_fill(at, BYTES, i);
		nwrong += pinion_cuda_copy(context, gpu, at, BYTES, NULL) != 0;
		memset(at, 0, BYTES);
		nwrong += pinion_cuda_copy(context, at, gpu, BYTES, NULL) != 0;
		nwrong += gpu_wrong(at, BYTES, i) != 0;
		ncopies++;
	}
	cu->mem_free(there);
	cu->primary_ctx_release(0);
	munmap(at, BYTES);
	return NULL;
}

/* --- what is left --------------------------------------------------------- */

static size_t gpu_free_bytes(void)
{
	size_t unused, total;

	assert_int_equal(cu->mem_get_info(&unused, &total), 0);
	return unused;
}

/* The driver keeps some memory for this process from its first copies on; a
 * victim's CUDA context takes more than that, and a victim registers more pages
 * than these. */
#define OWN_GPU_BYTES (256 * MIB)
#define OWN_PAGES     (BYTES / 4096)

static bool gpu_is_as_before(size_t free_bytes, uint64_t pinned)
{
	return gpu_free_bytes() + OWN_GPU_BYTES >= free_bytes &&
	       pinned_pages() <= pinned + pinned_pages_slack() + OWN_PAGES;
}

/* What the driver of a GPU holds for a process goes a moment after it. */
static void expect_gpu_as_before(size_t free_bytes, uint64_t pinned)
{
	uint64_t end = pn_clock_ns() + LIMIT_NS;

	while (!gpu_is_as_before(free_bytes, pinned) && pn_clock_ns() < end)
		usleep(10000);
	printf("free memory of the GPU: %zu bytes before, %zu after; pinned "
	       "pages: %llu before, %llu after\n",
	       free_bytes, gpu_free_bytes(), (unsigned long long)pinned,
	       (unsigned long long)pinned_pages());
	assert_true(gpu_is_as_before(free_bytes, pinned));
}

/* The files of victims: the next process removes them. */
static void expect_no_files(uid_t user, const pid_t *pids, unsigned n)
{
	char folder[64], path[128];
	struct stat st;

	snprintf(folder, sizeof(folder), "/dev/shm/pinion-%u", (unsigned)user);
	if (stat("/proc/self/ns/pid", &st))
		return;
	for (unsigned i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%d-%llu", folder, (int)pids[i],
			 (unsigned long long)st.st_ino);
		assert_int_equal(access(path, F_OK), -1);
	}
}

/* The last victim's file has no next process. */
static void remove_folder(uid_t user, pid_t pid)
{
	char path[128];
	struct stat st;

	if (!user || stat("/proc/self/ns/pid", &st))
		return;
	snprintf(path, sizeof(path), "/dev/shm/pinion-%u/%d-%llu",
		 (unsigned)user, (int)pid, (unsigned long long)st.st_ino);
	unlink(path);
	snprintf(path, sizeof(path), "/dev/shm/pinion-%u", (unsigned)user);
	rmdir(path);
}

/* --- the test ------------------------------------------------------------- */

static unsigned nvictims = 10;

static void kill_them(uint64_t seed, uid_t user)
{
	pid_t *pids = calloc(nvictims, sizeof(*pids));

	assert_non_null(pids);
	for (unsigned i = 0; i < nvictims; i++) {
		unsigned registrations =
			i % 2 ? 1 + (unsigned)test_below(&seed, 40) : 0;
		struct victim victim =
			start_victim(test_random(&seed), user, registrations);

		pids[i] = victim.pid;
		kill_victim(victim, 1 + (unsigned)test_below(&seed, 60),
			    (unsigned)test_below(&seed, 3000));
		if (i)
			expect_no_files(user ? user : geteuid(), pids, i);
	}
	remove_folder(user, pids[nvictims - 1]);
	free(pids);
}

static void nothing_is_left_of_a_killed_process(void **state)
{
	struct pinion_context *context;
	uint64_t seed = test_seed(), pinned;
	struct standin s;
	bool real;
	uid_t user;
	size_t free_bytes;
	pthread_t thread;
	unsigned copies;

	(void)state;
	cu = gpu_driver();
	real = !gpu_standin(&s);
	user = real || geteuid() ? 0 : fresh_user();
	gpu_use_primary(cu);
	free_bytes = gpu_free_bytes();
	pinned = pinned_pages();
	context = open_context();
	assert_non_null(context);
	assert_int_equal(pthread_create(&thread, NULL, copy_meanwhile, context),
			 0);
	while (!ncopies && !nwrong)
		usleep(1000);
	copies = ncopies;
	kill_them(seed, user);
	while (ncopies < copies + 2 && !nwrong)
		usleep(1000);
	stop = true;
	pthread_join(thread, NULL);
	assert_int_equal(nwrong, 0);
	pinion_close(context);
	if (real)
		expect_gpu_as_before(free_bytes, pinned);
	cu->primary_ctx_release(0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(nothing_is_left_of_a_killed_process),
	};

	if (argc > 5 && !strcmp(argv[1], "victim"))
		be_victim(argv);
	if (argc > 1)
		nvictims = (unsigned)strtoul(argv[1], NULL, 0);
	return RUN_TESTS(tests);
}
