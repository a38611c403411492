/* SPDX-License-Identifier: BSD-2-Clause */
/* The verbs device without an adapter, and bad input to its parsers. */
#include "test.h"

#include <errno.h>
#include <unistd.h>

#include "base/log.h"
#include "device/verbs/connect.h"

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
	assert_int_equal(open_one("verbs:nonsense=1"), -EINVAL);
	assert_int_equal(open_one("verbs:rxe0,queue_depth=0"), -EINVAL);
	assert_int_equal(open_one("verbs:rxe0/"), -EINVAL);
	assert_int_equal(open_one("verbs:rxe0/x"), -EINVAL);
	assert_int_equal(open_one("verbs:rxe0/256"), -EINVAL);
	assert_int_equal(open_one("verbs:rxe0,rxe1"), -EINVAL);
}

static void an_adapter_that_is_not_there_is_enodev(void **state)
{
	(void)state;
	assert_int_equal(open_one("verbs:there-is-none"), -ENODEV);
	if (access("/sys/class/infiniband", F_OK))
		assert_int_equal(open_one("verbs"), -ENODEV);
}

static struct pn_verbs_hello good_hello(void)
{
	struct pn_verbs_hello hello = { .magic = PN_VERBS_MAGIC,
					.version = PN_VERBS_VERSION,
					.to = 42,
					.from = { .version = PN_VERBS_VERSION,
						  .kind = "verb",
						  .nonce = 43,
						  .family = AF_INET,
						  .port = 1 } };

	return hello;
}

static void bad_hellos_are_refused(void **state)
{
	struct pn_verbs_hello hello = good_hello(), out;

	(void)state;
	assert_ok(pn_verbs_hello_check(&hello, sizeof(hello), 42, &out));
	assert_int_equal(pn_verbs_hello_check(&hello, sizeof(hello) - 1, 42,
					      &out),
			 -EPROTO);
	assert_int_equal(pn_verbs_hello_check(&hello, sizeof(hello), 41, &out),
			 -ECONNRESET);
	hello.version++;
	assert_int_equal(pn_verbs_hello_check(&hello, sizeof(hello), 42, &out),
			 -ECONNREFUSED);
	hello.magic++;
	assert_int_equal(pn_verbs_hello_check(&hello, sizeof(hello), 42, &out),
			 -EPROTO);
	hello = good_hello();
	hello.from.family = AF_UNIX;
	assert_int_equal(pn_verbs_hello_check(&hello, sizeof(hello), 42, &out),
			 -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(specs_that_do_not_parse_are_refused),
		TEST(an_adapter_that_is_not_there_is_enodev),
		TEST(bad_hellos_are_refused),
	};

	pn_log_set_level(PN_LOG_NONE);
	return RUN_TESTS(tests);
}
