/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A program that uses libpinion itself, under the hook, and where it names an
 * adapter under libpinion-verbs.so as well:
 *
 *   test_doors tcp 127.0.0.1          FI_HOOK names the hook
 *   test_doors verbs ADDRESS          pinion run --verbs --fabric
 *
 * One library, one budget and one monitor serve all of its doors: a context of
 * its own, fi_mr_reg() and ibv_reg_mr(). What is registered is counted below
 * all of them: by HOOK_COUNTER (count_hook.c), or by the kernel.
 */
#include "test.h"

#include <dlfcn.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/fabric.h>
#include <pinion/pinion.h>
#ifdef DOORS_VERBS
#include <pinion/verbs.h>

#include "../preload/cm_pair.h"
#endif

#define KIB	((size_t)1 << 10)
#define PIECE	(64 * KIB)
/* Less than the budget for one door, more for two. */
#define NPIECES ((size_t)10)

static const char *provider, *address;

struct world {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct pinion_context *context;
#ifdef DOORS_VERBS
	struct cm_pair pair;
#endif
	char *memory;
};

static bool has_verbs(void)
{
	return !strcmp(provider, "verbs");
}

/* --- the three doors ------------------------------------------------------ */

static bool pin(struct world *w, char *at, size_t len)
{
	struct pinion_pin pin;

	if (pinion_pin(w->context, at, len, PINION_ACCESS_LOCAL_WRITE, &pin))
		return false;
	pinion_unpin(w->context, &pin);
	return true;
}

static bool register_fabric(struct world *w, char *at, size_t len)
{
	struct fid_mr *mr;

	return !fi_mr_reg(w->domain, at, len, FI_READ | FI_WRITE, 0, 0, 0, &mr,
			  NULL) &&
	       !fi_close(&mr->fid);
}

static bool register_verbs(struct world *w, char *at, size_t len)
{
#ifdef DOORS_VERBS
	struct ibv_mr *mr =
		ibv_reg_mr(w->pair.pd, at, len, IBV_ACCESS_LOCAL_WRITE);

	return mr && !ibv_dereg_mr(mr);
#else
	(void)w, (void)at, (void)len;
	return false;
#endif
}

typedef bool door_fn(struct world *w, char *at, size_t len);

static door_fn *const doors[] = { pin, register_fabric, register_verbs };

static unsigned ndoors(void)
{
	return has_verbs() ? 3 : 2;
}

/* --- the world ------------------------------------------------------------ */

static bool find(struct fi_info **out)
{
	struct fi_info *hints = fi_allocinfo();
	int ret;

	hints->caps = FI_MSG | FI_RMA;
	hints->ep_attr->type = has_verbs() ? FI_EP_MSG : FI_EP_RDM;
	hints->fabric_attr->prov_name =
		strdup(has_verbs() ? "verbs" : "tcp;ofi_rxm");
	hints->domain_attr->mr_mode =
		has_verbs() ? FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY
			    : 1 << 0; /* FI_MR_BASIC */
	ret = fi_getinfo(FI_VERSION(1, 17), address, NULL, FI_SOURCE, hints,
			 out);
	fi_freeinfo(hints);
	return !ret;
}

static int open_context(struct world *w)
{
	const struct pinion_fabric_attr fabric = { .size = sizeof(fabric),
						   .domain = w->domain,
						   .info = w->info };

#ifdef DOORS_VERBS
	if (has_verbs()) {
		cm_pair_open(&w->pair, address);
		return pinion_verbs_open(w->pair.pd, NULL, &w->context);
	}
#endif
	return pinion_fabric_open(&fabric, NULL, &w->context);
}

static void start(struct world *w)
{
	*w = (struct world){ 0 };
	assert_true(find(&w->info));
	assert_ok(fi_fabric(w->info->fabric_attr, &w->fabric, NULL));
	assert_ok(fi_domain(w->fabric, w->info, &w->domain, NULL));
	assert_ok(open_context(w));
	w->memory = mmap(NULL, 4 * NPIECES * PIECE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(w->memory, MAP_FAILED);
}

static void stop(struct world *w)
{
	pinion_close(w->context);
	assert_ok(fi_close(&w->domain->fid));
	assert_ok(fi_close(&w->fabric->fid));
	fi_freeinfo(w->info);
#ifdef DOORS_VERBS
	if (has_verbs())
		assert_ok(cm_pair_close(&w->pair));
#endif
	munmap(w->memory, 4 * NPIECES * PIECE);
}

/* --- what reaches the bottom ---------------------------------------------- */

static unsigned long (*count_below)(void);

static void find_counter(void)
{
	const char *file = getenv("HOOK_COUNTER");
	void *library;

	if (has_verbs())
		return;
	assert_non_null(file);
	library = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
	assert_non_null(library);
	*(void **)&count_below = dlsym(library, "count_hook_registrations");
	assert_non_null(count_below);
}

/* The kernel's number of a registration that is made to see it. */
static uint64_t count(struct world *w)
{
#ifdef DOORS_VERBS
	if (has_verbs())
		return cm_mr_number(w->pair.pd);
#endif
	(void)w;
	find_counter();
	return count_below();
}

static uint64_t count_since(struct world *w, uint64_t before)
{
	return count(w) - before - has_verbs();
}

/* --- tests ---------------------------------------------------------------- */

static bool is_loaded(const char *name, unsigned *nfiles)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4096], last[4096] = "";

	assert_non_null(maps);
	*nfiles = 0;
	while (fgets(line, sizeof(line), maps)) {
		char *file = strchr(line, '/');

		if (!file || !strstr(file, name) || !strcmp(file, last))
			continue;
		strcpy(last, file);
		++*nfiles;
	}
	fclose(maps);
	return *nfiles;
}

static void there_is_one_library(void **state)
{
	struct world w;
	unsigned n;

	(void)state;
	start(&w);
	assert_true(is_loaded("libpinion.so", &n));
	assert_int_equal(n, 1);
	assert_true(is_loaded("libpinion-hook-fi.so", &n));
	assert_int_equal(is_loaded("libpinion-verbs.so", &n), has_verbs());
	stop(&w);
}

static void each_door_registers_once(void **state)
{
	struct world w;
	uint64_t before;

	(void)state;
	start(&w);
	before = count(&w);
	for (unsigned i = 0; i < 50; i++)
		for (unsigned d = 0; d < ndoors(); d++)
			assert_true(doors[d](&w, w.memory, PIECE));
	assert_int_equal(count_since(&w, before), ndoors());
	stop(&w);
}

static void each_door_sees_a_release(void **state)
{
	struct world w;
	uint64_t before;

	(void)state;
	start(&w);
	for (unsigned i = 0; i < 5; i++) {
		for (unsigned d = 0; d < ndoors(); d++)
			assert_true(doors[d](&w, w.memory, PIECE));
		assert_ok(madvise(w.memory, PIECE, MADV_DONTNEED));
		before = count(&w);
		for (unsigned d = 0; d < ndoors(); d++)
			assert_true(doors[d](&w, w.memory, PIECE));
		assert_int_equal(count_since(&w, before), ndoors());
	}
	stop(&w);
}

/* Registers pieces that do not touch, so that each is a region. */
static void use_pieces(struct world *w, door_fn *door)
{
	for (size_t i = 0; i < NPIECES; i++)
		assert_true(door(w, w->memory + 2 * i * PIECE, PIECE));
}

/* How many of the pieces were not kept. */
static uint64_t missing(struct world *w, door_fn *door)
{
	uint64_t before;

	use_pieces(w, door);
	before = count(w);
	use_pieces(w, door);
	return count_since(w, before);
}

/* What one door keeps fits, if the others keep nothing. */
static void one_budget_holds_for_all_doors(void **state)
{
	struct world w;

	(void)state;
	assert_string_equal(getenv("PINION_PROCESS_MAX_BYTES"), "1M");
	start(&w);
	assert_int_equal(missing(&w, doors[0]), 0);
	assert_in_range(missing(&w, doors[1]), 1, NPIECES);
	assert_ok(pinion_cache_flush(w.context));
	assert_int_equal(missing(&w, doors[1]), 0);
	for (unsigned d = 0; d < ndoors(); d++)
		if (d != 1)
			assert_in_range(missing(&w, doors[d]), 1, NPIECES);
#ifdef DOORS_VERBS
	if (has_verbs())
		assert_in_range(cm_mrs(0).bytes, NPIECES * PIECE, 1024 * KIB);
#endif
	stop(&w);
}

struct user {
	pthread_t thread;
	struct world *w;
	door_fn *door;
	_Atomic bool done;
	unsigned nerrors, nuses;
};

static void *use_all_the_time(void *arg)
{
	struct user *me = arg;

	for (; !atomic_load(&me->done); me->nuses++)
		if (!me->door(me->w, me->w->memory + me->nuses % 37 * 16 * KIB,
			      (1 + me->nuses % 3) * 8 * KIB))
			me->nerrors++;
	return NULL;
}

/* A thread at each door, while the process forks: every door empties its cache
 * before, and none waits for another. */
static void forks_do_not_hang(void **state)
{
	struct user users[PN_ARRAY_LEN(doors)];
	struct world w;
	int status;

	(void)state;
	start(&w);
	memset(w.memory, 7, 4 * NPIECES * PIECE);
	for (unsigned d = 0; d < ndoors(); d++) {
		users[d] = (struct user){ .w = &w, .door = doors[d] };
		assert_ok(pthread_create(&users[d].thread, NULL,
					 use_all_the_time, &users[d]));
	}
	for (unsigned i = 0; i < 100; i++) {
		pid_t child = fork();

		if (!child)
			_exit(w.memory[i * KIB] == 7 ? 0 : 1);
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
	}
	for (unsigned d = 0; d < ndoors(); d++) {
		atomic_store(&users[d].done, true);
		assert_ok(pthread_join(users[d].thread, NULL));
		assert_int_equal(users[d].nerrors, 0);
		print_message("door %u: %u uses\n", d, users[d].nuses);
	}
	stop(&w);
}

/* In a new image everything begins anew. It leaves without closing. */
static void programs_that_are_executed_register_too(void **state)
{
	pid_t child;
	int status;
	struct world w;

	(void)state;
	start(&w);
	use_pieces(&w, doors[1]);
	child = fork();
	if (!child) {
		setenv("LSAN_OPTIONS", "detect_leaks=0", 1);
		execl("/proc/self/exe", "test_doors", provider, address,
		      "child", NULL);
		_exit(99);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	use_pieces(&w, doors[1]);
	stop(&w);
}

static void child(void **state)
{
	struct world w;
	uint64_t before;

	(void)state;
	start(&w);
	before = count(&w);
	for (unsigned i = 0; i < 10; i++)
		for (unsigned d = 0; d < ndoors(); d++)
			assert_true(doors[d](&w, w.memory, PIECE));
	assert_int_equal(count_since(&w, before), ndoors());
}

/* Names the counter as the first hook, before libfabric reads names. */
static void add_counter(void)
{
	const char *file = getenv("HOOK_COUNTER"), *hook = getenv("FI_HOOK");
	const char *path = getenv("FI_PROVIDER_PATH");
	char text[4096];

	if (has_verbs() || !file || !hook || !path ||
	    strstr(hook, "ofi_hook_count"))
		return;
	snprintf(text, sizeof(text), "ofi_hook_count;%s", hook);
	setenv("FI_HOOK", text, 1);
	snprintf(text, sizeof(text), "%s:%.*s", path,
		 (int)(strrchr(file, '/') - file), file);
	setenv("FI_PROVIDER_PATH", text, 1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(there_is_one_library),
		TEST(each_door_registers_once),
		TEST(each_door_sees_a_release),
		TEST(one_budget_holds_for_all_doors),
		TEST(forks_do_not_hang),
		TEST(programs_that_are_executed_register_too),
	};
	const struct CMUnitTest children[] = { TEST(child) };
	struct fi_info *info;

	if (argc < 3) {
		puts("skipped: name tcp or verbs, and an address");
		return TEST_SKIP;
	}
	provider = argv[1];
	address = argv[2];
	setenv("FI_UNIVERSE_SIZE", "4", 0);
	add_counter();
	if (!find(&info)) {
		printf("skipped: no provider %s here\n", provider);
		return TEST_SKIP;
	}
	fi_freeinfo(info);
	return argc > 3 ? RUN_TESTS(children) : RUN_TESTS(tests);
}
