/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_option -- values and lists of options (config/option.h).
 *
 * The first byte selects a row of the table, whose value is the rest of the
 * input, or a whole list. An accepted value is formatted and parsed again with
 * the same result; a refused one leaves the old value and gives a reason.
 */
#include "fuzz.h"

#include <errno.h>
#include <stdbool.h>

#include "base/compiler.h"
#include "config/option.h"

struct values {
	bool flag;
	uint64_t number, bounded, bytes, time;
	int choice;
	char text[PN_OPTION_TEXT_BYTES];
	char after[8]; /* not an option: must stay unchanged */
};

static const char *const choices[] = { "red", "green", "blue", NULL };

#define FIELD(name) offsetof(struct values, name)

static const struct pn_option table[] = {
	{ "flag", PN_OPTION_BOOL, "no", "", FIELD(flag), 0, 0, NULL },
	{ "number", PN_OPTION_NUMBER, "3", "", FIELD(number), 0, 0, NULL },
	{ "bounded", PN_OPTION_NUMBER, "5", "", FIELD(bounded), 2, 99, NULL },
	{ "bytes", PN_OPTION_BYTES, "64K", "", FIELD(bytes), 0, 0, NULL },
	{ "time", PN_OPTION_TIME, "5us", "", FIELD(time), 0, 0, NULL },
	{ "choice", PN_OPTION_CHOICE, "red", "", FIELD(choice), 0, 0, choices },
	{ "text", PN_OPTION_TEXT, "", "", FIELD(text), 0, 0, NULL },
};

#define NROWS PN_ARRAY_LEN(table)

static void init(struct values *values)
{
	memset(values, 0, sizeof(*values));
	memset(values->after, 0x5a, sizeof(values->after));
	pn_options_defaults(table, NROWS, values);
}

static bool same(const struct values *a, const struct values *b)
{
	return a->flag == b->flag && a->number == b->number &&
	       a->bounded == b->bounded && a->bytes == b->bytes &&
	       a->time == b->time && a->choice == b->choice &&
	       !strcmp(a->text, b->text) &&
	       !memcmp(a->after, b->after, sizeof(a->after));
}

static void try_value(const struct pn_option *option, const char *text)
{
	char formatted[PN_OPTION_TEXT_BYTES];
	struct pn_why why = { "" };
	struct values before, values, again;
	int ret;

	init(&before);
	init(&values);
	init(&again);
	ret = pn_option_parse(option, text, &values, &why);
	if (ret) {
		FUZZ_ASSERT(ret == -EINVAL && why.text[0]);
		FUZZ_ASSERT(same(&values, &before));
		return;
	}
	pn_option_format(option, &values, formatted, sizeof(formatted));
	FUZZ_ASSERT(!pn_option_parse(option, formatted, &again, &why));
	FUZZ_ASSERT(same(&values, &again));
	FUZZ_ASSERT(values.bounded >= 2 && values.bounded <= 99);
}

/* Writes the list that sets every option to its value in values. */
static void format_list(const struct values *values, char *list, size_t len)
{
	size_t used = 0;

	for (size_t i = 0; i < NROWS; i++) {
		used += (size_t)snprintf(list + used, len - used,
					 "%s%s=", i ? "," : "", table[i].name);
		pn_option_format(&table[i], values, list + used, len - used);
		used += strlen(list + used);
	}
	FUZZ_ASSERT(used < len);
}

static void try_list(const char *text)
{
	char list[2 * PN_OPTION_TEXT_BYTES];
	struct pn_why why = { "" };
	struct values values, again;
	int ret;

	init(&values);
	init(&again);
	ret = pn_options_parse_list(table, NROWS, text, &values, &why);
	FUZZ_ASSERT(!memcmp(values.after, again.after, sizeof(again.after)));
	if (ret) {
		FUZZ_ASSERT(ret == -EINVAL && why.text[0]);
		return;
	}
	format_list(&values, list, sizeof(list));
	FUZZ_ASSERT(!pn_options_parse_list(table, NROWS, list, &again, &why));
	FUZZ_ASSERT(same(&values, &again));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;
	size_t row;

	if (!size)
		return 0;
	text = fuzz_string(data + 1, size - 1);
	row = data[0] % (NROWS + 1);
	if (row < NROWS)
		try_value(&table[row], text);
	else
		try_list(text);
	free(text);
	return 0;
}
