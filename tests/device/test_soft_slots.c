/* SPDX-License-Identifier: BSD-2-Clause */
/* The effects of registering on the soft device: on memory, keys and limits. */
#include "device/soft_util.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/statfs.h>

#include "base/asymmetric.h"
#include "base/log.h"
#include "device/soft/fallback.h"
#include "device/soft/soft_impl.h"

static void put_byte(struct pn_peer *peer, char value, const struct pn_mr *mr,
		     size_t at, int status)
{
	struct pn_sge sge = { &value, 1, 0 };
	struct pn_op op = { .kind = PN_OP_WRITE,
			    .flags = PN_OP_INLINE,
			    .sge = &sge,
			    .nsge = 1,
			    .remote_addr = (uintptr_t)mr->addr + at,
			    .rkey = mr->rkey };

	assert_int_equal(run_op(peer->device, peer, &op), status);
}

/* n ranges of len bytes each, one after the other in memory. */
static void describe_ranges(struct pn_mr *mr, struct pn_mr **mrs, unsigned n,
			    char *memory, size_t len)
{
	for (unsigned i = 0; i < n; i++) {
		mr[i] = (struct pn_mr){ .addr = memory + i * len,
					.len = len,
					.access = i % 3 ? ALL : 0 };
		mrs[i] = &mr[i];
	}
}

static void vmpin_follows_what_the_device_says(void **state)
{
	enum { N = 200 };
	size_t before = vmpin_at_rest(), len = 3 * PN_PAGE_BYTES;
	struct pn_device *device = open_soft("soft");
	char *memory = map_buffer(N * len, 1);
	struct pn_mr mr[N], *mrs[N], one;
	struct pn_pinned pinned;

	(void)state;
	register_one(device, &one, memory + 100, len, ALL);
	pn_device_pinned(device, &pinned);
	assert_int_equal(pinned.live_bytes, 4 * PN_PAGE_BYTES);
	assert_vmpin(before, device);
	describe_ranges(mr, mrs, N, memory, len);
	assert_ok(pn_device_register(device, mrs, N));
	pn_device_pinned(device, &pinned);
	assert_int_equal(pinned.live_bytes, N * len + 4 * PN_PAGE_BYTES);
	assert_int_equal(pinned.mrs, N + 1);
	assert_true(pinned.device_bytes > 0);
	assert_vmpin(before, device);
	pn_device_deregister(device, mrs, N / 2);
	assert_vmpin(before, device);
	pn_device_deregister(device, mrs + N / 2, N / 2);
	assert_vmpin(before, device);
	pn_device_close(device);
	assert_vmpin(before, NULL);
	munmap(memory, N * len);
}

static void a_batch_that_fails_changes_nothing(void **state)
{
	enum { N = 150 };
	size_t before = vmpin_at_rest(), len = PN_PAGE_BYTES;
	static const char *const specs[] = { "soft", "soft:mode=mlock" };

	(void)state;
	for (unsigned s = 0; s < PN_ARRAY_LEN(specs); s++) {
		struct pn_device *device = open_soft(specs[s]);
		char *memory = map_buffer(N * len, 1);
		size_t locked = status_bytes("VmLck:");
		struct pn_mr mr[N], *mrs[N];
		struct pn_pinned pinned;

		assert_ok(mprotect(memory + 120 * len, len, PROT_NONE));
		describe_ranges(mr, mrs, N, memory, len);
		assert_int_equal(pn_device_register(device, mrs, N), -EFAULT);
		for (unsigned i = 0; i < N; i++)
			assert_true(!mr[i].lkey && !mr[i].rkey);
		pn_device_pinned(device, &pinned);
		assert_int_equal(pinned.live_bytes, 0);
		assert_int_equal(pinned.mrs, 0);
		assert_vmpin(before, device);
		assert_int_equal(status_bytes("VmLck:"), locked);
		/* The slots are free again. */
		assert_ok(pn_device_register(device, mrs, 120));
		pn_device_deregister(device, mrs, 120);
		pn_device_close(device);
		munmap(memory, N * len);
	}
}

/* So many consecutive slots that the kernel gets them in several calls, of
 * which the first fails. */
static void a_long_run_that_fails_changes_nothing(void **state)
{
	enum { N = 150 };
	size_t before = vmpin_at_rest(), len = PN_PAGE_BYTES;
	struct pn_device *device = open_soft("soft");
	char *memory = map_buffer(N * len, 1);
	struct pn_mr mr[N], *mrs[N];

	(void)state;
	assert_ok(mprotect(memory + 10 * len, len, PROT_NONE));
	describe_ranges(mr, mrs, N, memory, len);
	for (unsigned i = 0; i < N; i++)
		mr[i].access = 0;
	assert_int_equal(pn_device_register(device, mrs, N), -EFAULT);
	assert_vmpin(before, device);
	assert_ok(pn_device_register(device, mrs + 11, N - 11));
	assert_vmpin(before, device);
	pn_device_deregister(device, mrs + 11, N - 11);
	pn_device_close(device);
	assert_vmpin(before, NULL);
	munmap(memory, N * len);
}

static int try_register(struct pn_device *device, void *addr, size_t len)
{
	struct pn_mr mr = { .addr = addr, .len = len, .access = ALL };
	struct pn_mr *mrs[] = { &mr };
	int ret = pn_device_register(device, mrs, 1);

	if (!ret)
		pn_device_deregister(device, mrs, 1);
	return ret;
}

static void a_shared_mapping_of_a_disk_file_is_refused(void **state)
{
	struct pn_device *device = open_soft("soft");
	char name[] = "/var/tmp/pinion-test-XXXXXX";
	int fd = mkstemp(name), expected = -EFAULT;
	struct statfs fs;
	void *file;

	(void)state;
	assert_true(fd >= 0);
	unlink(name);
	assert_ok(ftruncate(fd, 4096) | fstatfs(fd, &fs));
	/* Memory after all. What an overlay file system is stacked on cannot be
	 * known. */
	if (fs.f_type == TMPFS_MAGIC)
		expected = 0;
	file = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_true(file != MAP_FAILED);
	if (fs.f_type == OVERLAYFS_SUPER_MAGIC)
		print_message("not looked at: /var/tmp is an overlay\n");
	else
		assert_int_equal(try_register(device, file, 4096), expected);
	pn_device_close(device);
	munmap(file, 4096);
	close(fd);
}

static void memory_that_cannot_be_pinned_is_refused(void **state)
{
	struct pn_device *device = open_soft("soft");
	char *memory = map_buffer(2 * PN_PAGE_BYTES, 1);

	(void)state;
	assert_ok(try_register(device, memory, 2 * PN_PAGE_BYTES));
	mprotect(memory, PN_PAGE_BYTES, PROT_READ);
	assert_int_equal(try_register(device, memory, 2 * PN_PAGE_BYTES),
			 -EFAULT);
	mprotect(memory, PN_PAGE_BYTES, PROT_NONE);
	assert_int_equal(try_register(device, memory, PN_PAGE_BYTES), -EFAULT);
	/* An address where nothing is ever mapped. */
	assert_int_equal(try_register(device, (void *)4096, 4096), -EFAULT);
	assert_int_equal(try_register(device, memory, SIZE_MAX), -EINVAL);
	assert_int_equal(try_register(device, memory, 0), -EINVAL);
	pn_device_close(device);
	munmap(memory, 2 * PN_PAGE_BYTES);
}

static void a_stale_registration_loses_the_bytes(void **state)
{
	struct pn_device *device = open_soft("soft");
	struct pn_peer *peer = loop_back(device);
	char *memory = map_buffer(PN_PAGE_BYTES, 'o');
	struct pn_mr mr;
	void *again;

	(void)state;
	register_one(device, &mr, memory, PN_PAGE_BYTES, ALL);
	put_byte(peer, 'n', &mr, 0, 0);
	assert_int_equal(memory[0], 'n');
	/* Maps other pages at once: while unmapped, the address could be used
	 * by others. */
	again = mmap(memory, PN_PAGE_BYTES, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	assert_ptr_equal(again, memory);
	memset(memory, 'o', PN_PAGE_BYTES);
	/* Succeeds, into pages that are not mapped any more. */
	put_byte(peer, 'n', &mr, 0, 0);
	assert_int_equal(memory[0], 'o');
	deregister_one(device, &mr);
	pn_device_close(device);
	munmap(memory, PN_PAGE_BYTES);
}

/* A put from memory that was replaced after it was registered. */
static char stale_source_sends(const char *spec)
{
	struct pn_device *device = open_soft(spec);
	struct pn_peer *peer = loop_back(device);
	char *from = map_buffer(PN_PAGE_BYTES, 'o');
	char *to = map_buffer(PN_PAGE_BYTES, '-');
	struct pn_mr from_mr, to_mr;
	struct pn_sge sge;
	char got;

	register_one(device, &from_mr, from, PN_PAGE_BYTES, 0);
	register_one(device, &to_mr, to, PN_PAGE_BYTES, ALL);
	madvise(from, PN_PAGE_BYTES, MADV_DONTNEED);
	memset(from, 'n', PN_PAGE_BYTES);
	sge = (struct pn_sge){ from, 100, from_mr.lkey };
	assert_ok(move_op(device, peer, PN_OP_WRITE, &sge,
			  (struct remote_range){ (uintptr_t)to, to_mr.rkey }));
	got = to[99];
	pn_device_close(device);
	munmap(from, PN_PAGE_BYTES);
	munmap(to, PN_PAGE_BYTES);
	return got;
}

static void strict_mode_sends_a_stale_sources_old_bytes(void **state)
{
	(void)state;
	assert_int_equal(stale_source_sends("soft:strict"), 'o');
	assert_int_equal(stale_source_sends("soft"), 'n');
}

static void thousands_of_registrations_take_several_rings(void **state)
{
	enum { N = 3000 };
	struct pn_device *device = open_soft("soft");
	struct pn_peer *peer = loop_back(device);
	char *memory = map_buffer((size_t)N * 64, 0);
	struct pn_mr *mr = calloc(N, sizeof(*mr));
	struct pn_mr **mrs = calloc(N, sizeof(*mrs));

	(void)state;
	describe_ranges(mr, mrs, N, memory, 64);
	for (unsigned i = 0; i < N; i++)
		mr[i].access = ALL;
	assert_ok(pn_device_register(device, mrs, N));
	assert_int_equal(pn_soft_slots_rings(&pn_soft_of(device)->slots), 4);
	for (unsigned i = 0; i < N; i += 7)
		put_byte(peer, (char)(i % 100 + 1), &mr[i], 63, 0);
	for (unsigned i = 0; i < N; i++)
		assert_int_equal(memory[(size_t)i * 64 + 63],
				 i % 7 ? 0 : (char)(i % 100 + 1));
	put_byte(peer, 1, &mr[N - 1], 64, -EACCES);
	pn_device_deregister(device, mrs, N);
	mr[5].rkey = pn_soft_key(1, pn_soft_location(PN_SOFT_EXPOSED, 2, 5));
	put_byte(peer, 1, &mr[5], 0, -EACCES);
	pn_device_close(device);
	munmap(memory, (size_t)N * 64);
	free(mr);
	free(mrs);
}

static void more_than_all_slots_is_refused(void **state)
{
	struct pn_device *device = open_soft("soft:slots=4,rings=2");
	char *memory = map_buffer(16 * PN_PAGE_BYTES, 0);
	struct pn_mr mr[16], *mrs[16];

	(void)state;
	assert_int_equal(device->limits.max_mrs, 8);
	describe_ranges(mr, mrs, 16, memory, PN_PAGE_BYTES);
	for (unsigned i = 0; i < 16; i++)
		mr[i].access = ALL;
	assert_int_equal(pn_device_register(device, mrs, 9), -ENOMEM);
	assert_ok(pn_device_register(device, mrs, 8));
	assert_int_equal(pn_device_register(device, mrs + 8, 1), -ENOMEM);
	pn_device_deregister(device, mrs + 3, 1);
	assert_ok(pn_device_register(device, mrs + 8, 1));
	pn_device_close(device);
	munmap(memory, 16 * PN_PAGE_BYTES);
}

static size_t available_bytes(void)
{
	return (size_t)sysconf(_SC_AVPHYS_PAGES) *
	       (size_t)sysconf(_SC_PAGESIZE);
}

static void a_range_above_1_gib_takes_several_slots(void **state)
{
	size_t len = ((size_t)3 << 29) + 12345, gib = (size_t)1 << 30;
	size_t before = vmpin_at_rest();
	struct pn_device *device;
	struct pn_peer *peer;
	struct pn_mr mr, small;
	struct pn_sge sge;
	char *memory, *from;

	(void)state;
	if (available_bytes() < 2 * len) {
		print_message("skipped: needs 3 GiB of free memory\n");
		skip();
	}
	device = open_soft("soft");
	peer = loop_back(device);
	memory = mmap(NULL, len + 4096, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(memory != MAP_FAILED);
	madvise(memory, len + 4096, MADV_NOHUGEPAGE);
	from = map_buffer(8192, 'z');
	register_one(device, &small, from, 8192, PINION_ACCESS_LOCAL_WRITE);
	register_one(device, &mr, memory + 100, len, ALL);
	assert_vmpin(before, device);
	/* Across the boundary of two slots. */
	sge = (struct pn_sge){ from, 8192, small.lkey };
	assert_ok(move_op(device, peer, PN_OP_WRITE, &sge,
			  (struct remote_range){ (uintptr_t)memory + gib - 4000,
						 mr.rkey }));
	assert_int_equal(memory[gib - 4001], 0);
	for (size_t i = 0; i < 8192; i++)
		assert_int_equal(memory[gib - 4000 + i], 'z');
	assert_int_equal(memory[gib - 4000 + 8192], 0);
	put_byte(peer, 'e', &mr, len - 1, 0);
	assert_int_equal(memory[100 + len - 1], 'e');
	put_byte(peer, 'e', &mr, len, -EACCES);
	deregister_one(device, &mr);
	deregister_one(device, &small);
	assert_vmpin(before, device);
	pn_device_close(device);
	munmap(memory, len + 4096);
	munmap(from, 8192);
}

static void keys_grant_what_was_asked_for_and_no_more(const char *spec)
{
	struct pn_device *device = open_soft(spec), *other = open_soft(spec);
	struct pn_peer *peer = loop_back(device);
	char *memory = map_buffer(2 * PN_PAGE_BYTES, 1);
	struct pn_mr mr, local, theirs;
	struct pn_sge sge;

	register_one(device, &mr, memory + 10, 100, PINION_ACCESS_REMOTE_WRITE);
	put_byte(peer, 7, &mr, 99, 0);
	put_byte(peer, 7, &mr, 100, -EACCES);
	put_byte(peer, 7, &mr, (size_t)-1, -EACCES);
	put_byte(peer, 7, &mr, SIZE_MAX / 2, -EACCES);
	assert_int_equal(memory[110], 1);
	assert_int_equal(memory[9], 1);
	/* Writing was granted, reading was not. */
	register_one(device, &local, memory + PN_PAGE_BYTES, 100,
		     PINION_ACCESS_LOCAL_WRITE);
	assert_int_equal(local.rkey, 0);
	sge = (struct pn_sge){ local.addr, 8, local.lkey };
	assert_int_equal(move_op(device, peer, PN_OP_READ, &sge,
				 (struct remote_range){ (uintptr_t)mr.addr,
							mr.rkey }),
			 -EACCES);
	/* Keys of private memory, of another device, and guessed. */
	assert_int_equal(move_op(device, peer, PN_OP_WRITE, &sge,
				 (struct remote_range){ (uintptr_t)local.addr,
							local.lkey }),
			 -EACCES);
	register_one(other, &theirs, memory, PN_PAGE_BYTES, ALL);
	put_byte(peer, 7, &theirs, 0, -EACCES);
	theirs.rkey = 0;
	put_byte(peer, 7, &theirs, 0, -EACCES);
	theirs.rkey = UINT64_MAX;
	put_byte(peer, 7, &theirs, 0, -EACCES);
	assert_int_equal(pn_device_rekey(device, &local), -EINVAL);
	pn_device_close(other);
	pn_device_close(device);
	munmap(memory, 2 * PN_PAGE_BYTES);
}

static void keys_that_died_are_refused(const char *spec)
{
	struct pn_device *device = open_soft(spec);
	struct pn_peer *peer = loop_back(device);
	char *memory = map_buffer(PN_PAGE_BYTES, 1);
	struct pn_mr mr, dead;
	uint64_t old;

	register_one(device, &mr, memory + 10, 100, ALL);
	dead = mr;
	old = mr.lkey;
	assert_ok(pn_device_rekey(device, &mr));
	assert_int_equal(mr.lkey, old);
	put_byte(peer, 7, &dead, 0, -EACCES);
	put_byte(peer, 7, &mr, 0, 0);
	dead = mr;
	old = mr.rkey;
	deregister_one(device, &mr);
	put_byte(peer, 7, &dead, 0, -EACCES);
	/* Generation 0 marks an empty slot and is no valid key. */
	dead.rkey = pn_soft_key(0, dead.device_slot);
	put_byte(peer, 7, &dead, 0, -EACCES);
	dead.rkey = old;
	register_one(device, &mr, memory + 10, 100, ALL);
	put_byte(peer, 7, &dead, 0, -EACCES);
	pn_device_close(device);
	munmap(memory, PN_PAGE_BYTES);
}

static void keys_are_checked(void **state)
{
	(void)state;
	keys_grant_what_was_asked_for_and_no_more("soft");
	keys_grant_what_was_asked_for_and_no_more("soft:mode=mlock");
	keys_that_died_are_refused("soft");
	keys_that_died_are_refused("soft:mode=mlock");
}

static void mlock_mode_unlocks_a_page_with_its_last_registration(void **state)
{
	struct pn_device *device = open_soft("soft:mode=mlock");
	size_t before = status_bytes("VmLck:");
	char *memory = map_buffer(8 * PN_PAGE_BYTES, 1);
	struct pn_mr a, b, c;

	(void)state;
	register_one(device, &a, memory, 4 * PN_PAGE_BYTES, ALL);
	register_one(device, &b, memory + 2 * PN_PAGE_BYTES, 4 * PN_PAGE_BYTES,
		     0);
	register_one(device, &c, memory + PN_PAGE_BYTES, 10, ALL);
	assert_int_equal(status_bytes("VmLck:"), before + 6 * PN_PAGE_BYTES);
	deregister_one(device, &a);
	assert_int_equal(status_bytes("VmLck:"), before + 5 * PN_PAGE_BYTES);
	deregister_one(device, &c);
	assert_int_equal(status_bytes("VmLck:"), before + 4 * PN_PAGE_BYTES);
	pn_device_close(device); /* b ends with it */
	assert_int_equal(status_bytes("VmLck:"), before);
	munmap(memory, 8 * PN_PAGE_BYTES);
}

/* Registers in mlock mode all the time, and so holds the list's lock. */
struct busy {
	char *memory;
	_Atomic bool stop;
};

static void *lock_often(void *arg)
{
	struct busy *busy = arg;
	struct pn_soft_locked *locked;

	while (!atomic_load(&busy->stop))
		if (!pn_soft_locked_get(busy->memory, 1 << 20, &locked))
			pn_soft_locked_put(locked);
	return NULL;
}

/* In a child: its pages are locked and unlocked independently of its parent's.
 */
static void lock_for_myself(char *memory)
{
	struct pn_soft_locked *locked;

	alarm(60);
	CHECK(!pn_soft_locked_get(memory, PN_PAGE_BYTES, &locked));
	CHECK(status_bytes("VmLck:") == PN_PAGE_BYTES);
	pn_soft_locked_put(locked);
	CHECK(!status_bytes("VmLck:"));
	_exit(0);
}

static void fork_and_lock(char *memory)
{
	pid_t pid = fork();

	if (!pid)
		lock_for_myself(memory);
	assert_exits_well(pid);
}

static void mlock_mode_begins_anew_in_a_forked_child(void **state)
{
	struct busy busy = { .memory = map_buffer(1 << 20, 1) };
	char *memory = map_buffer(PN_PAGE_BYTES, 1);
	struct pn_soft_locked *locked;
	pthread_t thread;

	(void)state;
	assert_ok(pn_soft_locked_get(memory, PN_PAGE_BYTES, &locked));
	fork_and_lock(memory);
	/* Not with sanitizers (whose builds have fences): their allocators do
	 * not support fork() with other threads running. */
	if (!PN_ASYMMETRIC_FENCES) {
		pthread_create(&thread, NULL, lock_often, &busy);
		for (unsigned i = 0; i < 30; i++)
			fork_and_lock(memory);
		atomic_store(&busy.stop, true);
		pthread_join(thread, NULL);
	}
	pn_soft_locked_put(locked);
	munmap(memory, PN_PAGE_BYTES);
	munmap(busy.memory, 1 << 20);
}

/* Without privileges and with 2 MiB to lock. Returns 0 if everything is as
 * expected. */
static int poor_user(struct common *common, unsigned rank)
{
	size_t len = 16 * PN_PAGE_BYTES;
	struct pn_device *device;
	struct pn_mr mr[64], *mrs[64];
	char *memory = map_buffer(64 * len, 1);
	unsigned n = 0;
	int ret = 0;

	(void)rank;
	if (become_user(common, 2 << 20))
		return 1;
	if (pn_device_open(common->spec, NULL, &device))
		return 2;
	describe_ranges(mr, mrs, 64, memory, len);
	while (n < 64 && !ret) {
		ret = pn_device_register(device, &mrs[n], 1);
		n += !ret;
	}
	if (ret != -ENOMEM || n < 8 || n > 32)
		return 3;
	if (device->limits.max_pinned_bytes != 2 << 20)
		return 4;
	pn_device_deregister(device, mrs, 4);
	/* Older kernels uncharge a second later. */
	for (unsigned i = 0; i < 2000; i++) {
		ret = pn_device_register(device, mrs, 4);
		if (!ret)
			break;
		usleep(10000);
	}
	pn_device_close(device);
	return ret ? 5 : 0;
}

static void the_limit_on_locked_memory_holds_and_recovers(void **state)
{
	static const char *const specs[] = { "soft", "soft:mode=mlock" };

	(void)state;
	if (geteuid()) {
		print_message("skipped: changing the user needs root\n");
		skip();
	}
	for (unsigned i = 0; i < PN_ARRAY_LEN(specs); i++) {
		struct common *common = new_common();

		strcpy(common->spec, specs[i]);
		assert_exits_well(start_rank(poor_user, common, 0));
		free_common(common);
	}
}

static void declared_costs_are_spent_and_named(void **state)
{
	struct pn_device *device = open_soft("soft:cost=rashti2011");
	char *memory = map_buffer(10 * PN_PAGE_BYTES, 1);
	uint64_t start = pn_clock_ns();
	struct pn_mr mr;

	(void)state;
	assert_true(device->emulated);
	assert_string_equal(device->profile, "rashti2011");
	register_one(device, &mr, memory, 10 * PN_PAGE_BYTES, 0);
	assert_true(pn_clock_ns() - start >= 65 * PN_NS_PER_US);
	start = pn_clock_ns();
	deregister_one(device, &mr);
	assert_true(pn_clock_ns() - start >= 28 * PN_NS_PER_US);
	pn_device_close(device);
	munmap(memory, 10 * PN_PAGE_BYTES);
}

static void bad_parameters_are_refused(void **state)
{
	static const char *const specs[] = {
		"soft:mode=magic",     "soft:cost=gold",     "soft:chunk=5000",
		"soft:slots=0",	       "soft:slots=2000",    "soft:rings=65",
		"soft:ring_bytes=40K", "soft:ring_bytes=4K", "soft:nonsense",
		"soft:queue_depth=0",
	};
	struct pn_device *device = NULL;

	(void)state;
	pn_log_set_level(PN_LOG_NONE);
	for (unsigned i = 0; i < PN_ARRAY_LEN(specs); i++)
		assert_int_equal(pn_device_open(specs[i], NULL, &device),
				 -EINVAL);
	pn_log_set_level(PN_LOG_WARN);
	assert_null(device);
}

struct registrar {
	struct pn_device *device;
	char *memory;
	unsigned failures;
};

static void *register_often(void *arg)
{
	struct registrar *r = arg;

	for (unsigned i = 0; i < 200; i++) {
		struct pn_mr mr[5], *mrs[5];

		describe_ranges(mr, mrs, 5, r->memory, PN_PAGE_BYTES);
		if (pn_device_register(r->device, mrs, 5)) {
			r->failures++;
			continue;
		}
		pn_device_deregister(r->device, mrs, 5);
	}
	return NULL;
}

static void threads_register_at_the_same_time(void **state)
{
	enum { N = 4 };
	size_t before = vmpin_at_rest();
	struct pn_device *device = open_soft("soft:slots=8");
	struct registrar r[N];
	pthread_t threads[N];
	struct pn_pinned pinned;

	(void)state;
	for (unsigned i = 0; i < N; i++) {
		r[i] = (struct registrar){
			.device = device,
			.memory = map_buffer(5 * PN_PAGE_BYTES, 1),
		};
		pthread_create(&threads[i], NULL, register_often, &r[i]);
	}
	for (unsigned i = 0; i < N; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(r[i].failures, 0);
		munmap(r[i].memory, 5 * PN_PAGE_BYTES);
	}
	pn_device_pinned(device, &pinned);
	assert_int_equal(pinned.mrs, 0);
	assert_int_equal(pinned.live_bytes, 0);
	assert_vmpin(before, device);
	pn_device_close(device);
}

const struct role roles[] = {
	ROLE(poor_user),
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(the_limit_on_locked_memory_holds_and_recovers),
		TEST(vmpin_follows_what_the_device_says),
		TEST(a_batch_that_fails_changes_nothing),
		TEST(a_long_run_that_fails_changes_nothing),
		TEST(a_shared_mapping_of_a_disk_file_is_refused),
		TEST(memory_that_cannot_be_pinned_is_refused),
		TEST(a_stale_registration_loses_the_bytes),
		TEST(strict_mode_sends_a_stale_sources_old_bytes),
		TEST(thousands_of_registrations_take_several_rings),
		TEST(more_than_all_slots_is_refused),
		TEST(a_range_above_1_gib_takes_several_slots),
		TEST(keys_are_checked),
		TEST(mlock_mode_unlocks_a_page_with_its_last_registration),
		TEST(mlock_mode_begins_anew_in_a_forked_child),
		TEST(declared_costs_are_spent_and_named),
		TEST(bad_parameters_are_refused),
		TEST(threads_register_at_the_same_time),
	};

	play_role(argc, argv);
	return RUN_TESTS(tests);
}
