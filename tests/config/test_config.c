/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/asymmetric.h"
#include "base/log.h"
#include "config/config.h"

static const char *source_of(const struct pn_config *config, const char *name)
{
	size_t n;
	const struct pn_option *table = pn_config_table(&n);
	const struct pn_option *option =
		pn_option_find(table, n, name, strlen(name));

	assert_non_null(option);
	return pn_config_source_name(config->source[option - table]);
}

static void without_anything_set_defaults_hold(void **state)
{
	struct pn_config config;

	(void)state;
	assert_ok(pn_config_load(&config, NULL));
	assert_string_equal(config.device, "soft");
	assert_string_equal(source_of(&config, "device"), "default");
}

static void environment_overrides_defaults(void **state)
{
	struct pn_config config;

	(void)state;
	setenv("PINION_DEVICE", "sim:nodes=2", 1);
	assert_ok(pn_config_load(&config, NULL));
	assert_string_equal(config.device, "sim:nodes=2");
	assert_string_equal(source_of(&config, "device"), "environment");
	unsetenv("PINION_DEVICE");
}

static void attributes_override_the_environment(void **state)
{
	const char *const attributes[] = { "device=sim", NULL };
	struct pn_config config;

	(void)state;
	setenv("PINION_DEVICE", "soft:strict", 1);
	assert_ok(pn_config_load(&config, attributes));
	assert_string_equal(config.device, "sim");
	assert_string_equal(source_of(&config, "device"), "attribute");
	unsetenv("PINION_DEVICE");
}

static void a_bad_value_changes_nothing(void **state)
{
	const char *const unknown[] = { "colour=red", NULL };
	const char *const no_value[] = { "device", NULL };
	struct pn_config config = { .device = "untouched" };

	(void)state;
	pn_log_set_level(PN_LOG_NONE);
	assert_int_equal(pn_config_load(&config, unknown), -EINVAL);
	assert_int_equal(pn_config_load(&config, no_value), -EINVAL);
	setenv("PINION_LOG", "shout", 1);
	assert_int_equal(pn_config_load(&config, NULL), -EINVAL);
	unsetenv("PINION_LOG");
	assert_string_equal(config.device, "untouched");
}

static void an_unknown_variable_is_only_a_warning(void **state)
{
	struct pn_config config;

	(void)state;
	setenv("PINION_COLOUR", "red", 1);
	assert_ok(pn_config_load(&config, NULL));
	unsetenv("PINION_COLOUR");
}

/* --- a program with more rights than whoever started it ------------------ */

#define NOBODY 65534

/* What the copy below does: 0 when it ignored the environment. */
static int be_privileged(void)
{
	struct pn_config config;

	if (!getauxval(AT_SECURE))
		return TEST_SKIP; /* the file system ignores the bit */
	return pn_config_load(&config, NULL) || strcmp(config.device, "soft");
}

/* This program once more, as a set-user-ID program of nobody's. */
static void copy_self(const char *path)
{
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
	struct stat st;

	assert_true(from >= 0 && to >= 0);
	assert_ok(fstat(from, &st));
	for (off_t at = 0; at < st.st_size;)
		assert_true(sendfile(to, from, &at, 1 << 30) > 0);
	assert_ok(fchown(to, NOBODY, NOBODY));
	assert_ok(fchmod(to, 04755));
	close(from);
	close(to);
}

static int run_privileged(const char *path)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		setenv("PINION_DEVICE", "sim", 1);
		execl(path, path, "privileged", NULL);
		_exit(TEST_SKIP);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void a_privileged_program_heeds_no_environment(void **state)
{
	char folder[] = "/tmp/pinion-test-XXXXXX", path[64];
	int status;

	(void)state;
	/* Sanitizers (whose builds have fences) need addresses as they like
	 * them, which such a program does not inherit. */
	if (geteuid() || PN_ASYMMETRIC_FENCES)
		skip();
	assert_non_null(mkdtemp(folder));
	assert_ok(chmod(folder, 0755));
	snprintf(path, sizeof(path), "%s/program", folder);
	copy_self(path);
	status = run_privileged(path);
	assert_ok(unlink(path));
	assert_ok(rmdir(folder));
	if (status == TEST_SKIP)
		skip();
	assert_int_equal(status, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(without_anything_set_defaults_hold),
		TEST(environment_overrides_defaults),
		TEST(attributes_override_the_environment),
		TEST(a_bad_value_changes_nothing),
		TEST(an_unknown_variable_is_only_a_warning),
		TEST(a_privileged_program_heeds_no_environment),
	};

	if (argc > 1 && !strcmp(argv[1], "privileged"))
		return be_privileged();
	return RUN_TESTS(tests);
}
