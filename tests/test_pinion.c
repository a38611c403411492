/* SPDX-License-Identifier: BSD-2-Clause */
/* The public calls: a bad argument is refused with the errno that the header
 * names, changes nothing and leaks nothing. Runs on each device. */
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "base/asymmetric.h"
#include "base/clock.h"
#include "base/log.h"
#include "vmpin.h"

#define PAGE ((size_t)4096)

static const char *device = "device=soft";

static struct pinion_context *open_device(void)
{
	const char *const options[] = { device, "log=none", NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };
	struct pinion_context *context;

	assert_ok(pinion_open(&attr, &context));
	return context;
}

static void assert_registered(struct pinion_context *context, size_t n,
			      size_t bytes)
{
	struct pinion_device_info info = { .size = sizeof(info) };

	assert_ok(pinion_device_query(context, &info));
	assert_int_equal(info.registrations, n);
	assert_int_equal(info.pinned_bytes, bytes);
}

static char *map(size_t len, int protection)
{
	char *p =
		mmap(NULL, len, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static void version_is_the_project_s(void **state)
{
	int major, minor, patch, end = 0;

	(void)state;
	sscanf(pinion_version(), "%d.%d.%d%n", &major, &minor, &patch, &end);
	assert_true(end > 0);
	assert_int_equal(pinion_version()[end], 0);
}

static void open_refuses_bad_options(void **state)
{
	static const struct {
		const char *option;
		int error;
	} cases[] = {
		{ "device=", -ENODEV },
		{ "device=nonsense", -ENODEV },
		{ "device=soft2", -ENODEV },
		{ "device=sof", -ENODEV },
		{ "device=soft:nonsense=1", -EINVAL },
		{ "device=soft:,", -EINVAL },
		{ "device=soft:cost=nonsense", -EINVAL },
		{ "device=sim:nodes=0", -EINVAL },
		{ "device=sim:nodes=many", -EINVAL },
		{ "log=loud", -EINVAL },
		{ "nonsense=1", -EINVAL },
		{ "nonsense", -EINVAL },
		{ "", -EINVAL },
	};

	(void)state;
	pn_log_set_level(PN_LOG_NONE);
	for (size_t i = 0; i < PN_ARRAY_LEN(cases); i++) {
		const char *const options[] = { "log=none", cases[i].option,
						NULL };
		struct pinion_attr attr = { .size = sizeof(attr),
					    .options = options };
		struct pinion_context *context = (void *)&attr;

		assert_int_equal(pinion_open(&attr, &context), cases[i].error);
		assert_ptr_equal(context, &attr);
	}
}

static void *last_error_of_a_thread(void *text)
{
	return (void *)(intptr_t)pinion_log_last(text, 64);
}

static void the_last_error_is_told_once_and_to_its_thread(void **state)
{
	const char *const options[] = { "log=none", "device=nonsense", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	struct pinion_context *context;
	char text[64];
	pthread_t thread;
	void *ret;

	(void)state;
	assert_int_equal(pinion_log_last(NULL, 1), -EINVAL);
	assert_int_equal(pinion_log_last(text, 0), -EINVAL);
	assert_int_equal(pinion_open(&attr, &context), -ENODEV);
	assert_int_equal(pthread_create(&thread, NULL, last_error_of_a_thread,
					text),
			 0);
	pthread_join(thread, &ret);
	assert_int_equal((int)(intptr_t)ret, -ENOENT);
	assert_int_equal(pinion_log_last(text, sizeof(text)), 0);
	assert_string_equal(text, "no device 'nonsense'; `pinion info` lists "
				  "the devices");
	assert_int_equal(pinion_log_last(text, sizeof(text)), -ENOENT);
	assert_int_equal(pinion_open(&attr, &context), -ENODEV);
	assert_int_equal(pinion_log_last(text, 10), 0);
	assert_string_equal(text, "no device");
}

static void open_refuses_null_and_unknown_flags(void **state)
{
	struct pinion_attr attr = { .size = sizeof(attr), .flags = 1 };
	struct pinion_context *context = NULL;

	(void)state;
	assert_int_equal(pinion_open(NULL, NULL), -EINVAL);
	assert_int_equal(pinion_open(&attr, &context), -EINVAL);
	attr.size = 0;
	assert_int_equal(pinion_open(&attr, &context), -EINVAL);
	assert_null(context);
}

/* Programs built against an older header, and against a newer one. */
static void open_takes_attributes_of_other_versions(void **state)
{
	struct {
		struct pinion_attr attr;
		uint64_t later;
	} newer = { .attr = { .size = sizeof(newer) } };
	struct pinion_attr older = {
		.size = offsetof(struct pinion_attr, registrar),
		/* The program cannot set it: its struct ends before it. */
		.registrar = (void *)1,
	};
	struct pinion_context *context = NULL;

	(void)state;
	assert_int_equal(pinion_open(&older, &context), 0);
	pinion_close(context);
	assert_int_equal(pinion_open(&newer.attr, &context), 0);
	pinion_close(context);
	context = NULL;
	newer.later = 1;
	assert_int_equal(pinion_open(&newer.attr, &context), -E2BIG);
	assert_null(context);
}

static void closing_and_deregistering_null_is_fine(void **state)
{
	(void)state;
	pinion_close(NULL);
	pinion_device_deregister(NULL);
}

static void config_names_every_option_and_its_source(void **state)
{
	struct pinion_context *context = open_device();
	struct pinion_config_option option = { .size = sizeof(option) };
	unsigned n, seen = 0;

	(void)state;
	for (n = 0; !pinion_config_query(context, n, &option); n++) {
		assert_non_null(option.help);
		if (!strcmp(option.name, "device")) {
			assert_string_equal(option.source, "attribute");
			assert_string_equal(option.value, device + 7);
			assert_string_equal(option.def, "soft");
			seen++;
		}
	}
	assert_int_equal(seen, 1);
	assert_int_equal(pinion_config_query(context, n, &option), -ENOENT);
	assert_int_equal(pinion_config_query(context, UINT32_MAX, &option),
			 -ENOENT);
	assert_int_equal(pinion_config_query(NULL, 0, &option), -EINVAL);
	assert_int_equal(pinion_config_query(context, 0, NULL), -EINVAL);
	pinion_close(context);
}

static void query_fills_the_caller_s_struct(void **state)
{
	struct pinion_context *context = open_device();
	struct pinion_device_info info = { .size = sizeof(info) };

	(void)state;
	assert_int_equal(pinion_device_query(NULL, &info), -EINVAL);
	assert_int_equal(pinion_device_query(context, NULL), -EINVAL);
	assert_ok(pinion_device_query(context, &info));
	assert_int_equal(strncmp(device + 7, info.kind, strlen(info.kind)), 0);
	assert_int_equal(info.size, sizeof(info));

	memset(&info, 0xff, sizeof(info));
	info.size = offsetof(struct pinion_device_info, profile);
	assert_ok(pinion_device_query(context, &info));
	assert_int_equal(info.size,
			 offsetof(struct pinion_device_info, profile));
	assert_int_equal(info.registrations, SIZE_MAX);

	info.size = 0;
	assert_int_equal(pinion_device_query(context, &info), -EINVAL);
	pinion_close(context);
}

static void registering_refuses_bad_ranges(void **state)
{
	struct pinion_context *context = open_device();
	struct pinion_registration *reg = (void *)context;
	char *p = map(PAGE, PROT_READ | PROT_WRITE);
	size_t before = vmpin();
	const struct {
		void *addr;
		size_t len;
		unsigned access;
	} cases[] = {
		{ NULL, PAGE, 0 },
		{ p, 0, 0 },
		{ p, SIZE_MAX, 0 },
		{ p, SIZE_MAX - (uintptr_t)p, 0 },
		{ (void *)UINTPTR_MAX, 1, 0 },
		{ (void *)(UINTPTR_MAX - PAGE), PAGE, 0 },
		{ p, PAGE, PINION_ACCESS_ALL + 1 },
		{ p, PAGE, UINT32_MAX },
	};

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(cases); i++)
		assert_int_equal(pinion_device_register(context, cases[i].addr,
							cases[i].len,
							cases[i].access, &reg),
				 -EINVAL);
	assert_int_equal(pinion_device_register(NULL, p, PAGE, 0, &reg),
			 -EINVAL);
	assert_int_equal(pinion_device_register(context, p, PAGE, 0, NULL),
			 -EINVAL);
	assert_ptr_equal(reg, context);
	assert_registered(context, 0, 0);
	assert_int_equal(vmpin(), before);
	pinion_close(context);
	munmap(p, PAGE);
}

/* Only a device that pins checks the pages. */
static bool looks_at_pages(struct pinion_context *context)
{
	struct pinion_device_info info = { .size = sizeof(info) };

	assert_ok(pinion_device_query(context, &info));
	return info.pins;
}

static void registering_refuses_unpinnable_memory(void **state)
{
	struct pinion_context *context = open_device();
	struct pinion_registration *reg = NULL;
	char *p = map(4 * PAGE, PROT_READ | PROT_WRITE);
	char *constant = map(PAGE, PROT_READ);
	size_t before;

	(void)state;
	assert_vmpin_comes_back_to(0); /* from the tests before */
	before = vmpin();
	if (!looks_at_pages(context))
		goto close;
	assert_ok(mprotect(p + 2 * PAGE, PAGE, PROT_NONE));
	assert_int_equal(pinion_device_register(context, p + 2 * PAGE, PAGE, 0,
						&reg),
			 -EFAULT);
	/* In the middle, and one byte beyond the end. */
	assert_int_equal(pinion_device_register(context, p, 4 * PAGE, 0, &reg),
			 -EFAULT);
	assert_int_equal(pinion_device_register(context, p, 2 * PAGE + 1, 0,
						&reg),
			 -EFAULT);
	assert_int_equal(pinion_device_register(context, constant, PAGE, 0,
						&reg),
			 -EFAULT);
	assert_null(reg);
	assert_registered(context, 0, 0);
	assert_int_equal(vmpin(), before);
close:
	pinion_close(context);
	munmap(p, 4 * PAGE);
	munmap(constant, PAGE);
}

static void a_remote_key_needs_remote_access(void **state)
{
	struct pinion_context *context = open_device();
	struct pinion_registration *reg;
	struct pinion_registration_info reg_info = { .size = sizeof(reg_info),
						     .remote_key = 42 };
	char *p = map(PAGE, PROT_READ | PROT_WRITE);

	(void)state;
	assert_ok(pinion_device_register(context, p, PAGE,
					 PINION_ACCESS_LOCAL_WRITE, &reg));
	assert_int_equal(pinion_registration_query(NULL, &reg_info), -EINVAL);
	assert_int_equal(pinion_registration_query(reg, NULL), -EINVAL);
	assert_int_equal(reg_info.remote_key, 42);
	assert_ok(pinion_registration_query(reg, &reg_info));
	assert_int_equal(reg_info.remote_key, 0);
	assert_int_not_equal(reg_info.local_key, 0);
	pinion_device_deregister(reg);

	assert_ok(pinion_device_register(context, p + 8, 100,
					 PINION_ACCESS_REMOTE_READ, &reg));
	assert_ok(pinion_registration_query(reg, &reg_info));
	assert_ptr_equal(reg_info.addr, p + 8);
	assert_int_equal(reg_info.len, 100);
	assert_int_equal(reg_info.access, PINION_ACCESS_REMOTE_READ);
	assert_int_not_equal(reg_info.remote_key, 0);
	pinion_device_deregister(reg);
	pinion_close(context);
	munmap(p, PAGE);
}

static void registered_pages_are_counted_and_uncounted(void **state)
{
	struct pinion_context *context = open_device();
	struct pinion_registration *regs[3];
	char *p = map(8 * PAGE, PROT_READ | PROT_WRITE);
	bool pins = looks_at_pages(context);

	(void)state;
	assert_vmpin_comes_back_to(0); /* from the tests before */
	assert_ok(pinion_device_register(context, p, 8 * PAGE, 0, &regs[0]));
	assert_registered(context, 1, 8 * PAGE);
	/* One byte counts as a page; the same page counts again. */
	assert_ok(pinion_device_register(context, p, 1, 0, &regs[1]));
	assert_ok(
		pinion_device_register(context, p + PAGE - 1, 2, 0, &regs[2]));
	assert_registered(context, 3, 11 * PAGE);
	if (pins)
		assert_int_equal(vmpin(), 11 * PAGE);
	pinion_device_deregister(regs[1]);
	assert_registered(context, 2, 10 * PAGE);
	pinion_device_deregister(regs[0]);
	pinion_device_deregister(regs[2]);
	assert_registered(context, 0, 0);
	assert_vmpin_comes_back_to(0);
	pinion_close(context);
	munmap(p, 8 * PAGE);
}

static void closing_ends_registrations(void **state)
{
	char *p = map(4 * PAGE, PROT_READ | PROT_WRITE);

	(void)state;
	for (int i = 0; i < 3; i++) {
		struct pinion_context *context = open_device();
		struct pinion_registration *reg;

		assert_ok(pinion_device_register(context, p, PAGE, 0, &reg));
		assert_ok(
			pinion_device_register(context, p, 4 * PAGE, 0, &reg));
		pinion_close(context);
	}
	assert_vmpin_comes_back_to(0);
	munmap(p, 4 * PAGE);
}

static void a_forked_child_ends_no_registration_of_its_parent(void **state)
{
	char *memory = map(PAGE, PROT_READ | PROT_WRITE);
	struct pinion_registration *reg;
	struct pinion_context *context;
	size_t pinned;
	int status;
	pid_t pid;

	(void)state;
	/* The allocators of sanitizers (whose builds have fences) do not
	 * support fork() in a program with threads. */
	if (PN_ASYMMETRIC_FENCES)
		skip();
	context = open_device();
	assert_ok(pinion_device_register(context, memory, PAGE,
					 PINION_ACCESS_REMOTE_WRITE, &reg));
	pinned = vmpin();
	pid = fork();
	if (!pid) {
		pinion_device_deregister(reg);
		pinion_close(context);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_registered(context, 1, PAGE);
	assert_int_equal(vmpin(), pinned);
	pinion_device_deregister(reg);
	assert_registered(context, 0, 0);
	pinion_close(context);
	munmap(memory, PAGE);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(version_is_the_project_s),
		TEST(open_refuses_bad_options),
		TEST(the_last_error_is_told_once_and_to_its_thread),
		TEST(open_refuses_null_and_unknown_flags),
		TEST(open_takes_attributes_of_other_versions),
		TEST(closing_and_deregistering_null_is_fine),
		TEST(config_names_every_option_and_its_source),
		TEST(query_fills_the_caller_s_struct),
		TEST(registering_refuses_bad_ranges),
		TEST(registering_refuses_unpinnable_memory),
		TEST(a_remote_key_needs_remote_access),
		TEST(registered_pages_are_counted_and_uncounted),
		TEST(closing_ends_registrations),
		TEST(a_forked_child_ends_no_registration_of_its_parent),
	};

	if (argc > 1)
		device = argv[1];
	return RUN_TESTS(tests);
}
