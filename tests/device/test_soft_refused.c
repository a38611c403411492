/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_soft_refused ERRNO -- the soft device where io_uring is refused with
 * that error (run by refuse_uring): it locks pages instead, reports that, and
 * moves the same bytes.
 */
#include "device/soft_util.h"

#include "base/log.h"

#define PAGES 8

static int refusal; /* the error of io_uring here */
static const struct {
	const char *name, *why;
	int error;
} refusals[] = {
	{ "EPERM", "io_uring is not permitted here", -EPERM },
	{ "ENOSYS", "has no io_uring", -ENOSYS },
};

static void pages_are_locked_instead_and_bytes_move(void **state)
{
	struct pn_device *device = open_soft("soft");
	struct pn_peer *peer = loop_back(device);
	char *to = map_buffer(PAGES * PN_PAGE_BYTES, 'o');
	char *from = map_buffer(PN_PAGE_BYTES, 'n');
	struct pn_mr to_mr, from_mr;
	struct remote_range at;
	struct pn_sge sge;
	size_t before = status_bytes("VmLck:");

	(void)state;
	register_one(device, &to_mr, to, PAGES * PN_PAGE_BYTES, ALL);
	assert_int_equal(status_bytes("VmLck:"),
			 before + PAGES * PN_PAGE_BYTES);
	assert_int_equal(pn_huge_vmpin(), 0);
	register_one(device, &from_mr, from, PN_PAGE_BYTES, ALL);
	sge = (struct pn_sge){ from, PN_PAGE_BYTES, from_mr.lkey };
	at = (struct remote_range){ (uintptr_t)to + 100, to_mr.rkey };
	assert_ok(move_op(device, peer, PN_OP_WRITE, &sge, at));
	assert_int_equal(to[99], 'o');
	for (size_t i = 0; i < PN_PAGE_BYTES; i++)
		assert_int_equal(to[100 + i], 'n');
	at.addr += (PAGES - 1) * PN_PAGE_BYTES;
	assert_int_equal(move_op(device, peer, PN_OP_READ, &sge, at), -EACCES);
	pn_device_close(device);
	assert_int_equal(status_bytes("VmLck:"), before);
	munmap(to, PAGES * PN_PAGE_BYTES);
	munmap(from, PN_PAGE_BYTES);
}

/* Stores the text of the fact "mode". */
static void take_mode(void *arg, const char *name, const char *text)
{
	if (!strcmp(name, "mode"))
		snprintf(arg, 512, "%s", text);
}

static void the_device_says_why_and_what_is_lost(void **state)
{
	struct pn_device *device = open_soft("soft");
	char mode[512] = "";

	(void)state;
	assert_false(device->caps & PN_CAP_PINS);
	device->ops->describe(device, take_mode, mode);
	assert_non_null(strstr(mode, "mlock, because"));
	assert_non_null(strstr(mode, refusals[refusal].why));
	assert_non_null(strstr(mode, "Lost: pages are locked, not pinned"));
	pn_device_close(device);
}

static void pinning_by_force_is_refused(void **state)
{
	struct pn_device *device = NULL;
	unsigned files = test_descriptors();

	(void)state;
	pn_log_set_level(PN_LOG_NONE);
	assert_int_equal(pn_device_open("soft:mode=uring", NULL, &device),
			 refusals[refusal].error);
	pn_log_set_level(PN_LOG_WARN);
	assert_null(device);
	assert_int_equal(test_descriptors(), files);
}

const struct role roles[] = { { NULL, NULL } };

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(pages_are_locked_instead_and_bytes_move),
		TEST(the_device_says_why_and_what_is_lost),
		TEST(pinning_by_force_is_refused),
	};

	for (unsigned i = 0; i < PN_ARRAY_LEN(refusals); i++)
		if (argc == 2 && !strcmp(argv[1], refusals[i].name)) {
			refusal = (int)i;
			return RUN_TESTS(tests);
		}
	fprintf(stderr, "usage: test_soft_refused EPERM|ENOSYS\n");
	return 2;
}
