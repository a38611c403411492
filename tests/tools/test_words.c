/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Lists of words on the command line.
 */
#include "test.h"

#include <errno.h>
#include <string.h>

#include "tools/pinion/words.h"

static void words_come_one_by_one(void **state)
{
	const char *list = "copy,a b,7";
	char word[PN_WORD_BYTES];

	(void)state;
	assert_true(pn_words_next(&list, word));
	assert_string_equal(word, "copy");
	assert_true(pn_words_next(&list, word));
	assert_string_equal(word, "a b");
	assert_true(pn_words_next(&list, word));
	assert_string_equal(word, "7");
	assert_false(pn_words_next(&list, word));
	assert_int_equal(*list, 0);
}

/* How much of a list is left after all words that can be read. */
static size_t unread(const char *list)
{
	char word[PN_WORD_BYTES];

	while (pn_words_next(&list, word))
		;
	return strlen(list);
}

static void an_empty_or_long_word_stops(void **state)
{
	char longest[PN_WORD_BYTES + 1];

	(void)state;
	memset(longest, 'x', sizeof(longest));
	longest[PN_WORD_BYTES - 1] = '\0';
	assert_int_equal(unread(longest), 0);
	longest[PN_WORD_BYTES - 1] = 'x';
	longest[PN_WORD_BYTES] = '\0';
	assert_int_equal(unread(longest), PN_WORD_BYTES);
	assert_int_equal(unread("a,,b"), 2);
	assert_int_equal(unread(",a"), 2);
	assert_int_equal(unread("a,b,"), 2);
	assert_int_equal(unread(","), 1);
}

static void a_word_is_in_a_list_only_whole(void **state)
{
	(void)state;
	assert_true(pn_words_have("put,get", "get"));
	assert_true(pn_words_have("put", "put"));
	assert_false(pn_words_have("put,get", "ge"));
	assert_false(pn_words_have("put,gets", "get"));
	assert_false(pn_words_have("", "put"));
}

static int number(const char *word)
{
	return strcmp(word, "zero") == 0 ? 0 : strcmp(word, "two") ? -1 : 2;
}

static void a_set_has_a_bit_for_each_word(void **state)
{
	(void)state;
	assert_int_equal(pn_words_set("two,zero", number), 5);
	assert_int_equal(pn_words_set("two,two", number), 4);
	assert_int_equal(pn_words_set("two,one", number), 0);
	assert_int_equal(pn_words_set("two,", number), 0);
	assert_int_equal(pn_words_set("", number), 0);
}

static void numbers_are_those_that_the_row_allows(void **state)
{
	const struct pn_option row = { .type = PN_OPTION_BYTES,
				       .min = 8,
				       .max = 1 << 20 };
	uint64_t numbers[3];
	size_t n = 99;

	(void)state;
	assert_int_equal(pn_words_numbers("8,64K", &row, numbers, 3, &n), 0);
	assert_int_equal(n, 2);
	assert_int_equal(numbers[0], 8);
	assert_int_equal(numbers[1], 65536);
	assert_int_equal(pn_words_numbers("8,9,10", &row, numbers, 3, &n), 0);
	assert_int_equal(n, 3);
	assert_int_equal(pn_words_numbers("8,9,10,11", &row, numbers, 3, &n),
			 -EINVAL);
	assert_int_equal(pn_words_numbers("7", &row, numbers, 3, &n), -EINVAL);
	assert_int_equal(pn_words_numbers("8,x", &row, numbers, 3, &n),
			 -EINVAL);
	assert_int_equal(pn_words_numbers("8,", &row, numbers, 3, &n), -EINVAL);
	assert_int_equal(pn_words_numbers("", &row, numbers, 3, &n), -EINVAL);
	assert_int_equal(n, 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(words_come_one_by_one),
		TEST(an_empty_or_long_word_stops),
		TEST(a_word_is_in_a_list_only_whole),
		TEST(a_set_has_a_bit_for_each_word),
		TEST(numbers_are_those_that_the_row_allows),
	};

	return RUN_TESTS(tests);
}
