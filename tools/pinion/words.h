/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * words -- lists on the command line: words separated by commas.
 *
 * No word is empty, and a list has at least one. Lists come from people: each
 * function says whether the whole list could be read.
 */
#ifndef PN_TOOLS_WORDS_H
#define PN_TOOLS_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/option.h"

#define PN_WORD_BYTES 64 /* a word with its NUL */

/* Copies the next word and moves *list behind it. Returns false at the end, and
 * where a word is empty or too long: then **list is not 0. */
bool pn_words_next(const char **list, char word[PN_WORD_BYTES]);

bool pn_words_have(const char *list, const char *word);

/* Bit i is set for each word to which `number` gives i. Returns 0 for a list
 * that cannot be read, or if `number` gives a negative one. */
unsigned pn_words_set(const char *list, int (*number)(const char *word));

/* Reads each word as a value of a row of type NUMBER, BYTES or TIME with offset
 * 0. *n is their number. -EINVAL: a word is no such value, or there are more
 * than `most`; *n is not set then. */
int pn_words_numbers(const char *list, const struct pn_option *row,
		     uint64_t *numbers, size_t most, size_t *n);

#endif
