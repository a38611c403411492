/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The policies on real traces: every file in the folder that PINION_TRACES
 * names, at budgets that double.
 */
#include "test.h"

#include <dirent.h>
#include <math.h>

#include "tools/trace/replay.h"

static const char *folder;

static double total_us(const struct pn_workload *workload, const char *policy,
		       size_t bytes)
{
	struct pn_replay_attr attr = { .policy = policy,
				       .max_bytes = bytes,
				       .profile = pn_profile_find("ou2009") };
	struct pn_replay_result result;

	assert_ok(pn_replay(workload, &attr, &result));
	return result.total_us;
}

static double worst_of(const struct pn_workload *workload)
{
	double worst = 0;
	size_t footprint;

	assert_ok(pn_workload_footprint(workload, &footprint));
	for (size_t b = 64 << 10; b < 2 * footprint; b *= 2) {
		double best = total_us(workload, "lru", b);

		best = fmin(best, total_us(workload, "fmrd", b));
		best = fmin(best, total_us(workload, "mre", b));
		worst = fmax(worst, total_us(workload, "cost", b) / best);
	}
	return worst;
}

static int is_trace(const struct dirent *entry)
{
	return strstr(entry->d_name, ".csv") || strstr(entry->d_name, ".trace");
}

static void cost_is_within_5_percent_on_every_trace(void **state)
{
	struct dirent **entries;
	int n = scandir(folder, &entries, is_trace, alphasort);
	double worst = 0;

	(void)state;
	assert_true(n > 0);
	for (int i = 0; i < n; i++) {
		struct pn_why why = { "" };
		struct pn_workload workload;
		char path[4096];
		double ratio;

		snprintf(path, sizeof(path), "%s/%s", folder,
			 entries[i]->d_name);
		assert_ok(pn_workload_init(&workload));
		assert_ok(pn_workload_read(&workload, path, 0, &why));
		ratio = worst_of(&workload);
		printf("%-32s at worst %.3f of the best\n", entries[i]->d_name,
		       ratio);
		worst = fmax(worst, ratio);
		pn_workload_fini(&workload);
		free(entries[i]);
	}
	free(entries);
	assert_true(worst <= 1.05);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(cost_is_within_5_percent_on_every_trace),
	};

	folder = getenv("PINION_TRACES");
	if (!folder) {
		printf("PINION_TRACES names no folder with request streams: "
		       "skipped\n");
		return TEST_SKIP;
	}
	return RUN_TESTS(tests);
}
