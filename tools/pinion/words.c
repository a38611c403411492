/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/words.h"

#include <errno.h>
#include <string.h>

bool pn_words_next(const char **list, char word[PN_WORD_BYTES])
{
	size_t len = strcspn(*list, ",");
	bool more = (*list)[len];

	/* A comma at the end announces a word that is not there. */
	if (!len || len >= PN_WORD_BYTES || (more && !(*list)[len + 1]))
		return false;
	memcpy(word, *list, len);
	word[len] = '\0';
	*list += len + more;
	return true;
}

bool pn_words_have(const char *list, const char *word)
{
	char one[PN_WORD_BYTES];

	while (pn_words_next(&list, one))
		if (!strcmp(one, word))
			return true;
	return false;
}

unsigned pn_words_set(const char *list, int (*number)(const char *word))
{
	char word[PN_WORD_BYTES];
	unsigned set = 0;

	while (pn_words_next(&list, word)) {
		int i = number(word);

		if (i < 0)
			return 0;
		set |= 1u << i;
	}
	return *list ? 0 : set;
}

int pn_words_numbers(const char *list, const struct pn_option *row,
		     uint64_t *numbers, size_t most, size_t *n)
{
	char word[PN_WORD_BYTES];
	size_t found = 0;

	while (pn_words_next(&list, word))
		if (found == most ||
		    pn_option_parse(row, word, &numbers[found++], NULL))
			return -EINVAL;
	if (*list || !found)
		return -EINVAL;
	*n = found;
	return 0;
}
