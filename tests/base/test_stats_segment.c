/* SPDX-License-Identifier: BSD-2-Clause */
/* The statistics segment as its owner writes it and as others read it
 * (tools/pinion/view.h).
 */
#include "apart.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/stats_segment.h"
#include "tools/pinion/view.h"

struct thing {
	uint64_t count;
	uint32_t small;
	double real;
	char text[8];
};

static const struct pn_stats_field fields[] = {
	PN_STATS_FIELD(COUNTER, struct thing, count, "count"),
	PN_STATS_FIELD(GAUGE, struct thing, small, "small"),
	PN_STATS_FIELD(REAL, struct thing, real, "real"),
	PN_STATS_FIELD(TEXT, struct thing, text, "text"),
};

static const struct pn_stats_kind thing_kind = { "thing", sizeof(struct thing),
						 0, fields,
						 PN_ARRAY_LEN(fields) };
static const struct pn_stats_kind table_kind = { "table", sizeof(struct thing),
						 5, fields,
						 PN_ARRAY_LEN(fields) };

static void open_view(struct pn_view *view)
{
	int ret = pn_view_open(getpid(), view);

	if (ret == -ESRCH)
		skip(); /* there is no /dev/shm */
	assert_int_equal(ret, 0);
}

static void objects_are_zero_and_aligned(void **state)
{
	struct thing *shown = pn_stats_alloc(&thing_kind, NULL, true);
	struct thing *hidden = pn_stats_alloc(&thing_kind, NULL, false);
	static const struct thing zero;

	(void)state;
	assert_memory_equal(shown, &zero, sizeof(zero));
	assert_memory_equal(hidden, &zero, sizeof(zero));
	assert_int_equal((uintptr_t)shown % 64, 0);
	assert_int_equal((uintptr_t)hidden % 64, 0);
	pn_stats_free(hidden);
	pn_stats_free(shown);
	pn_stats_free(NULL);
}

static void a_reader_sees_what_was_last_written(void **state)
{
	struct thing *thing = pn_stats_alloc(&thing_kind, NULL, true);
	const struct pn_stats_block *block;
	struct pn_view view;
	char text[16];

	(void)state;
	*thing = (struct thing){ 1, 2, 2.5, "seven\nx" };
	thing->count = UINT64_C(1) << 40;
	open_view(&view);
	block = pn_view_next(&view, NULL);
	assert_string_equal(block->kind, "thing");
	assert_int_equal(pn_view_word(block, 0, pn_view_find(block, "count")),
			 UINT64_C(1) << 40);
	assert_int_equal(pn_view_word(block, 0, pn_view_find(block, "small")),
			 2);
	assert_true(pn_view_total(&view, "thing", "real") == 2.5);
	assert_string_equal(pn_view_text(block, 0, pn_view_find(block, "text"),
					 text, sizeof(text)),
			    "seven?x");
	assert_null(pn_view_find(block, "nothing"));
	assert_null(pn_view_next(&view, block));
	pn_view_close(&view);
	pn_stats_free(thing);
}

static void what_belongs_together_adds_up(void **state)
{
	struct thing *owner = pn_stats_alloc(&thing_kind, NULL, true);
	struct thing *part = pn_stats_alloc(&thing_kind, owner, true);
	struct thing *table = pn_stats_alloc(&table_kind, owner, true);
	const struct pn_stats_block *block;
	struct pn_view view;

	(void)state;
	owner->count = 3;
	part->count = 4;
	table[4].count = 100;
	open_view(&view);
	block = pn_view_next(&view, NULL);
	assert_true(pn_view_sum(&view, block, pn_view_find(block, "count")) ==
		    7);
	block = pn_view_next(&view, pn_view_next(&view, block));
	assert_int_equal(block->nrows, 5);
	assert_int_equal(pn_view_word(block, 4, pn_view_find(block, "count")),
			 100);
	pn_view_close(&view);
	pn_stats_free(table);
	pn_stats_free(part);
	pn_stats_free(owner);
}

static void a_segment_without_blocks_is_removed(void **state)
{
	struct pn_view view;

	(void)state;
	pn_stats_free(pn_stats_alloc(&thing_kind, NULL, true));
	assert_int_equal(pn_view_open(getpid(), &view), -ESRCH);
}

/* The reader's blocks are the model's objects, after each of many steps. */
static void blocks_come_and_go_as_a_model_says(void **state)
{
	struct thing *model[40] = { NULL };
	uint64_t seed = test_seed();
	struct pn_view view;

	(void)state;
	model[0] = pn_stats_alloc(&thing_kind, NULL, true);
	for (unsigned step = 1; step < 400; step++) {
		unsigned i = 1 + (unsigned)test_below(&seed, 39);
		double sum = 0, shown;

		if (model[i]) {
			pn_stats_free(model[i]);
			model[i] = NULL;
		} else {
			model[i] = pn_stats_alloc(i % 3 ? &thing_kind
							: &table_kind,
						  NULL, true);
			model[i]->count = step;
		}
		for (i = 1; i < 40; i++)
			sum += model[i] ? (double)model[i]->count : 0;
		open_view(&view);
		shown = pn_view_total(&view, "thing", "count") +
			pn_view_total(&view, "table", "count");
		pn_view_close(&view);
		assert_true(shown == sum);
	}
	for (unsigned i = 0; i < 40; i++)
		pn_stats_free(model[i]);
}

static void a_damaged_segment_is_refused(void **state)
{
	struct thing *thing = pn_stats_alloc(&thing_kind, NULL, true);
	struct pn_view good, bad;
	unsigned char *copy;

	(void)state;
	open_view(&good);
	copy = aligned_alloc(64, good.used);
	memcpy(copy, good.copy, good.used);
	((struct pn_stats_head *)copy)->version++;
	assert_int_equal(pn_view_parse(copy, good.used, &bad), -EPROTO);
	memcpy(copy, good.copy, good.used);
	/* A field that reaches beyond its object. */
	((struct pn_stats_field
		  *)((struct pn_stats_block *)(copy + good.head->head_bytes) +
		     1))
		->at = sizeof(struct thing);
	assert_int_equal(pn_view_parse(copy, good.used, &bad), -EPROTO);
	/* The file ends in the middle of a block. */
	memcpy(copy, good.copy, good.used);
	assert_int_equal(pn_view_parse(copy, good.used - 64, &bad), -EPROTO);
	free(copy);
	pn_view_close(&good);
	pn_stats_free(thing);
}

/* --- where nothing can be shown ------------------------------------------- */

static const struct pn_stats_kind long_kind = { "long", sizeof(struct thing),
						500, fields,
						PN_ARRAY_LEN(fields) };

/* The object serves its owner in any case; whether others see it. */
static bool is_shown(void)
{
	struct thing *thing = pn_stats_alloc(&long_kind, NULL, true);
	struct pn_view view;
	bool shown;

	assert_non_null(thing);
	thing[499].count = 7;
	shown = !pn_view_open(getpid(), &view);
	if (shown)
		pn_view_close(&view);
	assert_int_equal(thing[499].count, 7);
	pn_stats_free(thing);
	return shown;
}

static int make_it_others_too(void)
{
	char folder[PN_STATS_PATH_BYTES];

	pn_log_set_level(PN_LOG_NONE);
	pn_stats_folder(folder);
	if (mkdir(folder, 0700) || !is_shown())
		return 1;
	if (chmod(folder, 0755) || is_shown())
		return 2;
	if (chmod(folder, 0700) || !is_shown())
		return 3;
	if (rmdir(folder) || symlink("/tmp", folder) || is_shown())
		return 4;
	return 0;
}

static void a_folder_that_others_may_use_gets_no_segment(void **state)
{
	(void)state;
	run_apart(make_it_others_too);
}

/* So large that a file of a page leaves room for n pages. */
static void mount_with_room(unsigned n)
{
	char options[32], page[4096] = { 1 };
	FILE *file;

	snprintf(options, sizeof(options), "size=%u", (n + 1) * 4096);
	if (mount("none", "/dev/shm", "tmpfs", 0, options))
		_exit(TEST_SKIP);
	file = fopen("/dev/shm/page", "w");
	if (!file || fwrite(page, sizeof(page), 1, file) != 1 || fclose(file))
		_exit(4);
}

/* None for the head, then none for the object, then enough. */
static int take_the_room_away(void)
{
	unsigned n = 0;

	for (; n < 64; n++) {
		mount_with_room(n);
		if (is_shown())
			break;
		umount("/dev/shm");
	}
	if (n < 2 || n == 64)
		return 1;
	if (mount("none", "/dev/shm", NULL, MS_REMOUNT | MS_RDONLY, NULL))
		_exit(TEST_SKIP);
	return is_shown() ? 2 : 0;
}

static void a_full_or_read_only_file_system_gets_no_segment(void **state)
{
	(void)state;
	run_apart(take_the_room_away);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(objects_are_zero_and_aligned),
		TEST(a_reader_sees_what_was_last_written),
		TEST(what_belongs_together_adds_up),
		TEST(a_segment_without_blocks_is_removed),
		TEST(blocks_come_and_go_as_a_model_says),
		TEST(a_damaged_segment_is_refused),
		TEST(a_folder_that_others_may_use_gets_no_segment),
		TEST(a_full_or_read_only_file_system_gets_no_segment),
	};

	return RUN_TESTS(tests);
}
