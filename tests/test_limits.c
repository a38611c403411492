/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Limits on pinned memory. The kernel's charge (VmPin) never exceeds the
 * budget, whatever pages the memory has. Under RLIMIT_MEMLOCK, which the
 * processes of a user share, only exposing memory fails for lack of pinned
 * memory.
 *
 * Programs run in children, since the kernel counts by process and by user.
 */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "apart.h"
#include "base/clock.h"
#include "base/pages.h"
#include "child.h"
#include "context.h"
#include "device/soft/soft_impl.h"
#include "monitor/monitor.h"
#include "vmpin.h"

#define KIB   ((size_t)1 << 10)
#define MIB   ((size_t)1 << 20)
#define ARENA (8 * MIB)
#define ALL   PINION_ACCESS_ALL

/* A program with one endpoint that sends to itself. */
struct program {
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	struct pinion_peer *self;
	size_t budget; /* 0: not checked */
	unsigned nexposed;
};

static void program_open(struct program *p, const char *device,
			 const char *option)
{
	const char *const options[] = { device, option, NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	struct pinion_address address;

	*p = (struct program){ .context = NULL };
	CHECK(!pinion_open(&attr, &p->context));
	CHECK(!pinion_endpoint_open(p->context, NULL, &p->ep));
	CHECK(!pinion_endpoint_address(p->ep, &address));
	CHECK(!pinion_peer_add(p->ep, &address, &p->self));
}

/* Pinned by io_uring, or locked by mlock(). */
static size_t charged(void)
{
	return vmpin() + vm_bytes("VmLck");
}

/* Old kernels uncharge a second late. */
static void check_pinned(const struct program *p)
{
	bool late = pn_soft_of(p->context->device)->slots.deferred_uncharge;
	uint64_t end = pn_clock_ns() + 60 * PN_NS_PER_S;

	if (!p->budget)
		return;
	while (late && charged() > p->budget && pn_clock_ns() < end)
		usleep(10000);
	if (charged() > p->budget)
		fprintf(stderr, "%zu KiB are charged\n", charged() / KIB);
	CHECK(charged() <= p->budget);
}

/* --- the program --------------------------------------------------------- */

static void message(struct program *p, char *from, char *to, size_t len)
{
	struct pinion_message m = { .size = sizeof(m), .buf = to, .len = len };
	struct pinion_request *send, *receive;

	memset(from, (int)len, len);
	memset(to, 0, len);
	CHECK(!pinion_recv(p->ep, &m, &receive));
	m = (struct pinion_message){ .size = sizeof(struct pinion_message),
				     .buf = from,
				     .len = len,
				     .peer = p->self };
	CHECK(!pinion_send(p->ep, &m, &send));
	CHECK(!pinion_wait(p->ep, send, PINION_FOREVER, NULL));
	check_pinned(p);
	CHECK(!pinion_wait(p->ep, receive, PINION_FOREVER, NULL));
	CHECK(!memcmp(from, to, len));
	check_pinned(p);
}

static void put_and_get(struct program *p, struct pinion_remote *remote,
			char *buf, size_t len)
{
	struct pinion_move move = {
		.size = sizeof(move), .remote = remote, .buf = buf, .len = len
	};
	struct pinion_request *request;

	memset(buf, 'p', len);
	CHECK(!pinion_put(p->ep, &move, &request));
	check_pinned(p);
	CHECK(!pinion_wait(p->ep, request, PINION_FOREVER, NULL));
	check_pinned(p);
	memset(buf, 0, len);
	CHECK(!pinion_get(p->ep, &move, &request));
	CHECK(!pinion_wait(p->ep, request, PINION_FOREVER, NULL));
	CHECK(buf[0] == 'p' && buf[len - 1] == 'p');
	check_pinned(p);
}

static void add(struct program *p, struct pinion_remote *remote)
{
	uint64_t before[2];
	struct pinion_request *request;

	for (unsigned i = 0; i < 2; i++) {
		struct pinion_atomic atomic = { .size = sizeof(atomic),
						.remote = remote,
						.operand = 1,
						.result = &before[i] };

		CHECK(!pinion_atomic_fetch_add(p->ep, &atomic, &request));
		CHECK(!pinion_wait(p->ep, request, PINION_FOREVER, NULL));
		check_pinned(p);
	}
	CHECK(before[1] == before[0] + 1);
}

/* Only exposing may fail. */
static void onesided(struct program *p, char *memory, char *buf, size_t len)
{
	struct pinion_exposure *exposure;
	struct pinion_remote *remote;
	struct pinion_exposure_key key;
	int ret = pinion_exposure_open(p->ep, memory, len, ALL, &exposure);

	check_pinned(p);
	if (ret) {
		CHECK(ret == -ENOBUFS);
		return;
	}
	p->nexposed++;
	CHECK(!pinion_exposure_key(exposure, &key));
	CHECK(!pinion_remote_open(p->ep, p->self, &key, &remote));
	put_and_get(p, remote, buf, len);
	add(p, remote);
	pinion_remote_close(remote);
	pinion_exposure_close(exposure);
	check_pinned(p);
}

static void pin(struct program *p, char *buf, size_t len)
{
	struct pinion_pin pins[4];
	unsigned n = 0;
	int ret;

	for (; n < PN_ARRAY_LEN(pins); n++) {
		ret = pinion_pin(p->context, buf + n * MIB, len, 0, &pins[n]);
		check_pinned(p);
		if (ret)
			break;
	}
	CHECK(n == PN_ARRAY_LEN(pins) || ret == -ENOBUFS);
	while (n)
		pinion_unpin(p->context, &pins[--n]);
	check_pinned(p);
}

static void allocate(struct program *p)
{
	struct pinion_heap *heap;
	void *blocks[6];

	CHECK(!pinion_heap_open(p->context, NULL, &heap));
	for (unsigned i = 0; i < PN_ARRAY_LEN(blocks); i++) {
		blocks[i] = pinion_heap_malloc(heap, 700 * KIB << i % 3);
		check_pinned(p);
	}
	for (unsigned i = 0; i < PN_ARRAY_LEN(blocks); i++)
		pinion_heap_free(heap, blocks[i]);
	pinion_heap_close(heap);
	check_pinned(p);
}

static const size_t lens[] = { 8, 5000, 64 * KIB, 300 * KIB, MIB };

static void do_everything(struct program *p, char *arena)
{
	char *half = arena + ARENA / 2;

	check_pinned(p);
	for (size_t i = 0; i < PN_ARRAY_LEN(lens); i++) {
		/* Unaligned buffers in huge pages. */
		size_t at = (i * 9 + 3) * 4096 + 100;

		message(p, arena + at, half + at, lens[i]);
		pin(p, arena + at, lens[i]);
		onesided(p, half, arena + at, lens[i]);
	}
	allocate(p);
	pin(p, arena, MIB);
}

/* --- the budget ----------------------------------------------------------- */

static char *map_arena(int advice)
{
	char *arena = mmap(NULL, 2 * ARENA, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(arena != MAP_FAILED);
	arena += PN_PAGES_HUGE_BYTES - (uintptr_t)arena % PN_PAGES_HUGE_BYTES;
	madvise(arena, ARENA, advice);
	return arena;
}

static char *small_pages(void)
{
	return map_arena(MADV_NOHUGEPAGE);
}

static char *huge_pages(void)
{
	char *arena = map_arena(MADV_HUGEPAGE);

	memset(arena, 1, ARENA);
	return arena;
}

/* Registration faults the huge pages in. */
static char *untouched_huge_pages(void)
{
	return map_arena(MADV_HUGEPAGE);
}

/* Huge pages that are mapped by small pages: page tables do not show them. */
static char *broken_huge_pages(void)
{
	char *arena = huge_pages();

	for (size_t at = 0; at < ARENA; at += PN_PAGES_HUGE_BYTES) {
		CHECK(!mprotect(arena + at, 4096, PROT_READ));
		CHECK(!mprotect(arena + at, 4096, PROT_READ | PROT_WRITE));
	}
	return arena;
}

/* Checks in a loop. */
struct watcher {
	pthread_t thread;
	_Atomic bool stop;
	size_t most;
};

static void *watch(void *arg)
{
	struct watcher *watcher = arg;

	while (!watcher->stop) {
		size_t now = charged();

		if (now > watcher->most)
			watcher->most = now;
	}
	return NULL;
}

static const struct {
	char *(*map)(void);
	size_t least; /* smallest budget with which memory can be exposed */
	bool undone;  /* too much may be pinned for a moment */
} arenas[] = {
	{ small_pages, 0, false },
	{ huge_pages, 4 * MIB, false },
	{ untouched_huge_pages, 4 * MIB, false },
	{ broken_huge_pages, 4 * MIB, true },
};

static void stay_below(const char *device, size_t budget, unsigned kind)
{
	struct watcher watcher = { .most = 0 };
	struct program p;
	char option[64];
	bool late, splits; /* with userfaultfd */

	snprintf(option, sizeof(option), "max_bytes=%zu", budget);
	CHECK(!pthread_create(&watcher.thread, NULL, watch, &watcher));
	program_open(&p, device, option);
	p.budget = budget;
	do_everything(&p, arenas[kind].map());
	CHECK(p.nexposed || budget < arenas[kind].least);
	late = pn_soft_of(p.context->device)->slots.deferred_uncharge;
	splits = pn_monitor_needs_probe();
	pinion_close(p.context);
	watcher.stop = true;
	pthread_join(watcher.thread, NULL);
	if (watcher.most > budget)
		fprintf(stderr, "%zu KiB were charged\n", watcher.most / KIB);
	CHECK(watcher.most <= budget || arenas[kind].undone || late || splits);
}

static void assert_ends_well(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIP)
		skip();
	assert_int_equal(status, 0);
}

static pid_t begin_child(void)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		alarm(120); /* ends a child that hangs */
	return pid;
}

static void check_budgets(const char *device)
{
	static const size_t budgets[] = { 384 * KIB, MIB, 8 * MIB };

	for (unsigned kind = 0; kind < PN_ARRAY_LEN(arenas); kind++)
		for (size_t i = 0; i < PN_ARRAY_LEN(budgets); i++) {
			pid_t pid = begin_child();

			if (!pid) {
				stay_below(device, budgets[i], kind);
				_exit(0);
			}
			print_message("%s, %zu KiB, memory %u\n", device,
				      budgets[i] / KIB, kind);
			assert_ends_well(pid);
		}
}

static void the_kernel_never_charges_more_than_the_budget(void **state)
{
	(void)state;
	check_budgets("device=soft");
}

static void nor_with_local_segments_in_slots(void **state)
{
	(void)state;
	check_budgets("device=soft:strict=yes");
}

static void nor_with_locked_pages(void **state)
{
	(void)state;
	check_budgets("device=soft:mode=mlock");
}

/* A huge page is charged as a whole, once, however little of it is registered.
 * Before registration, a part may belong to another huge page: hence two. */
static void pin_parts_of_one_huge_page(void)
{
	struct pinion_pin pins[8];
	char *arena = huge_pages();
	struct program p;
	bool huge;

	program_open(&p, "device=soft", "max_bytes=4M");
	p.budget = 4 * MIB;
	for (unsigned i = 0; i < PN_ARRAY_LEN(pins); i++)
		CHECK(!pinion_pin(p.context, arena + i * 64 * KIB, 4096, 0,
				  &pins[i]));
	huge = vmpin() == 2 * MIB;
	CHECK(huge || vmpin() == PN_ARRAY_LEN(pins) * 4096);
	for (unsigned i = 0; i < PN_ARRAY_LEN(pins); i++)
		pinion_unpin(p.context, &pins[i]);
	check_pinned(&p);
	pinion_close(p.context);
	_exit(huge ? 0 : TEST_SKIP); /* there are no huge pages here */
}

static void parts_of_one_huge_page_fit_a_budget_of_two(void **state)
{
	pid_t pid = begin_child();

	(void)state;
	if (!pid)
		pin_parts_of_one_huge_page();
	assert_ends_well(pid);
}

/* --- RLIMIT_MEMLOCK ------------------------------------------------------- */

static void need_root(void)
{
	if (!geteuid())
		return;
	print_message("skipped: changing the user needs root\n");
	skip();
}

/* Continues as that user, without capabilities, but accessible to peers. */
static void become(uid_t user, size_t lockable)
{
	struct rlimit limit = { lockable, lockable };

	apart_go();
	CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit));
	CHECK(!setuid(user));
	CHECK(!prctl(PR_SET_DUMPABLE, 1));
	CHECK(!prctl(PR_SET_PDEATHSIG, SIGKILL));
}

static void puts_and_atomics_work_under_a_tight_limit(void **state)
{
	uid_t user = fresh_user();
	pid_t pid;

	(void)state;
	need_root();
	pid = begin_child();
	if (!pid) {
		struct program p;

		become(user, 2 * MIB);
		program_open(&p, "device=soft", NULL);
		do_everything(&p, small_pages());
		CHECK(p.nexposed == PN_ARRAY_LEN(lens));
		pinion_close(p.context);
		_exit(0);
	}
	assert_ends_well(pid);
}

#define NPROCESSES 4

static void meet(_Atomic unsigned *here, unsigned n)
{
	atomic_fetch_add(here, 1);
	while (*here < n)
		usleep(1000);
}

/* All keep the memory of one-sided operations pinned at the same time. */
static void share_the_limit(uid_t user, _Atomic unsigned *here)
{
	char *arena = small_pages();
	struct program p;

	become(user, 8 * MIB);
	program_open(&p, "device=soft", NULL);
	meet(here, NPROCESSES);
	onesided(&p, arena, arena + MIB, 64 * KIB);
	CHECK(p.nexposed == 1);
	meet(here, 2 * NPROCESSES);
	do_everything(&p, arena);
	onesided(&p, arena, arena + MIB, 64 * KIB);
	meet(here, 3 * NPROCESSES);
	pinion_close(p.context);
}

static void processes_of_a_user_share_its_limit(void **state)
{
	_Atomic unsigned *here = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uid_t user = fresh_user();
	pid_t pids[NPROCESSES];

	(void)state;
	need_root();
	for (unsigned i = 0; i < NPROCESSES; i++) {
		pids[i] = begin_child();
		if (!pids[i]) {
			share_the_limit(user, here);
			_exit(0);
		}
	}
	for (unsigned i = 0; i < NPROCESSES; i++)
		assert_ends_well(pids[i]);
	munmap((void *)here, 4096);
}

/* --- others use the limit ------------------------------------------------ */

#define LOCKABLE (2 * MIB)

/* Shared by the processes of a test. */
struct stage {
	_Atomic int exposed, wanted_free, nfree, done;
	struct pinion_address address;
	struct pinion_exposure_key key;
	uid_t user;
	char said[4096];
};

static void await(_Atomic int *flag, int value)
{
	while (*flag < value)
		usleep(200);
}

/* For a flag that a child sets; one that cannot run here skips the test. */
static void await_child(_Atomic int *flag, int value, pid_t pid)
{
	siginfo_t end = { 0 };

	while (*flag < value && !end.si_pid) {
		usleep(200);
		assert_ok(waitid(P_PID, (id_t)pid, &end,
				 WEXITED | WNOHANG | WNOWAIT));
	}
	if (*flag >= value)
		return;
	assert_ends_well(pid);
	fail_msg("a child ended too early");
}

/* Exposes memory until the limit is reached. */
static void expose(struct stage *stage)
{
	struct pinion_exposure *exposure;
	char *memory = small_pages();
	struct program p;

	become(stage->user, LOCKABLE);
	program_open(&p, "device=soft", "max_bytes=1M");
	CHECK(!pinion_exposure_open(p.ep, memory, 512 * KIB, ALL, &exposure));
	CHECK(!pinion_exposure_key(exposure, &stage->key));
	CHECK(!pinion_endpoint_address(p.ep, &stage->address));
	stage->exposed = 1;
	await(&stage->done, 1);
	pinion_close(p.context);
}

/* Pins up to the user's limit, page by page, then unpins one page at a time. */
static void hold(struct stage *stage)
{
	static struct pn_mr mrs[LOCKABLE / 4096];
	char *memory = small_pages();
	struct pn_device *device;
	int n = 0, ret = 0;

	become(stage->user, LOCKABLE);
	CHECK(!pn_device_open("soft:mode=uring", NULL, &device));
	while (!ret) {
		struct pn_mr *mr = &mrs[n];

		CHECK(n < (int)PN_ARRAY_LEN(mrs));
		*mr = (struct pn_mr){ .addr = memory + n * 4096, .len = 4096 };
		ret = pn_device_register(device, &mr, 1);
		n += !ret;
	}
	CHECK(ret == -ENOMEM && n > 100);
	stage->nfree = 0;
	for (int given = 0; !stage->done; usleep(200)) {
		if (stage->wanted_free <= given)
			continue;
		for (; given < stage->wanted_free; given++) {
			struct pn_mr *mr = &mrs[--n];

			pn_device_deregister(device, &mr, 1);
		}
		stage->nfree = given;
	}
	pn_device_close(device);
}

static void use_exposed(struct program *p, struct stage *stage, char *buf)
{
	struct pinion_remote *remote;
	struct pinion_peer *peer;

	CHECK(!pinion_peer_add(p->ep, &stage->address, &peer));
	CHECK(!pinion_remote_open(p->ep, peer, &stage->key, &remote));
	add(p, remote);
	for (size_t i = 0; i < PN_ARRAY_LEN(lens); i++)
		if (lens[i] <= 512 * KIB)
			put_and_get(p, remote, buf, lens[i]);
	pinion_remote_close(remote);
}

/* Exactly one line said what to do. */
static void check_said(struct stage *stage, int fd)
{
	ssize_t n = pread(fd, stage->said, sizeof(stage->said) - 1, 0);
	const char *line;

	CHECK(n >= 0);
	stage->said[n] = '\0';
	line = strchr(stage->said, '\n');
	CHECK(line && !line[1] && strstr(stage->said, "ulimit -l"));
}

static void live_without_pinning(struct stage *stage)
{
	int said = memfd_create("said", 0), tell = dup(STDERR_FILENO);
	char *arena = small_pages();
	struct program p;

	become(stage->user, LOCKABLE);
	CHECK(dup2(said, STDERR_FILENO) >= 0);
	program_open(&p, "device=soft", NULL);
	CHECK(dup2(tell, STDERR_FILENO) >= 0);
	check_said(stage, said);
	do_everything(&p, arena);
	use_exposed(&p, stage, arena + 100);
	pinion_close(p.context);
}

/* With n pages left: at first even the rings cannot be allocated, then they can
 * but nothing can be pinned. */
static void endpoints_open_although_others_use_the_limit(void **state)
{
	struct stage *stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t owner, holder;

	(void)state;
	need_root();
	stage->user = fresh_user();
	stage->nfree = -1;
	owner = begin_child();
	if (!owner) {
		expose(stage);
		_exit(0);
	}
	await_child(&stage->exposed, 1, owner);
	holder = begin_child();
	if (!holder) {
		hold(stage);
		_exit(0);
	}
	await_child(&stage->nfree, 0, holder);
	for (int nfree = 0; nfree < 5; nfree++) {
		pid_t pid;

		stage->wanted_free = nfree;
		await_child(&stage->nfree, nfree, holder);
		pid = begin_child();
		if (!pid) {
			live_without_pinning(stage);
			_exit(0);
		}
		print_message("%d pages left\n", nfree);
		assert_ends_well(pid);
	}
	stage->done = 1;
	assert_ends_well(owner);
	assert_ends_well(holder);
	munmap(stage, sizeof(*stage));
}

/* --- defaults ------------------------------------------------------------- */

/* Up to a few pages: old kernels uncharge pages late that a device tried. */
static void assert_default_budget(uid_t user, size_t expected)
{
	struct pinion_context *context;
	pid_t pid = begin_child();
	size_t bytes;

	if (!pid) {
		become(user, 8 * MIB);
		CHECK(!pinion_open(NULL, &context));
		bytes = atomic_load(&context->budget.max_bytes);
		CHECK(bytes <= expected && bytes + 16 * KIB > expected);
		pinion_close(context);
		_exit(0);
	}
	assert_ends_well(pid);
}

/* Another process pins half of the limit: the default is three quarters of the
 * rest. */
static void the_default_budget_leaves_what_others_use(void **state)
{
	_Atomic int *go = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uid_t user = fresh_user();
	pid_t holder;

	(void)state;
	need_root();
	holder = begin_child();
	if (!holder) {
		struct pn_mr mr = { .addr = small_pages(), .len = 4 * MIB };
		struct pn_mr *list = &mr;
		struct pn_device *device;

		become(user, 8 * MIB);
		CHECK(!pn_device_open("soft:mode=uring", NULL, &device));
		CHECK(!pn_device_register(device, &list, 1));
		go[0] = 1;
		await(&go[1], 1);
		pn_device_close(device);
		_exit(0);
	}
	await(&go[0], 1);
	assert_default_budget(user, 3 * MIB);
	go[1] = 1;
	assert_ends_well(holder);
	assert_default_budget(user, 6 * MIB);
	munmap((void *)go, 4096);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_kernel_never_charges_more_than_the_budget),
		TEST(nor_with_local_segments_in_slots),
		TEST(nor_with_locked_pages),
		TEST(parts_of_one_huge_page_fit_a_budget_of_two),
		TEST(puts_and_atomics_work_under_a_tight_limit),
		TEST(processes_of_a_user_share_its_limit),
		TEST(endpoints_open_although_others_use_the_limit),
		TEST(the_default_budget_leaves_what_others_use),
	};

	return RUN_TESTS(tests);
}
