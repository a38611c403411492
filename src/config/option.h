/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * option -- typed, documented settings described by a table.
 *
 * An option is a row: name, type, default, help and the offset of its value in
 * a plain struct. The options of the library (config.h) and the parameters of
 * every device spec ("soft:strict=1,cost=cx5") are such tables, so that this
 * code parses, checks, prints and documents both.
 *
 * Values have these C types in the struct: BOOL bool, NUMBER and BYTES and
 * TIME uint64_t (bytes; nanoseconds), CHOICE int (index into `choices`),
 * TEXT char[PN_OPTION_TEXT_BYTES].
 * Text forms: yes/no/true/false/on/off/1/0; 42; 64K, 2M, 1G, 4096 (powers of
 * 1024, with an optional B or iB); 5us, 10 ms, 2s, 100ns (a bare number is
 * nanoseconds); one of the choices.
 * Threads: tables are constant; a struct of values belongs to its owner.
 */
#ifndef PN_CONFIG_OPTION_H
#define PN_CONFIG_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PN_OPTION_TEXT_BYTES 512
#define PN_WHY_BYTES	     256

enum pn_option_type {
	PN_OPTION_BOOL,
	PN_OPTION_NUMBER,
	PN_OPTION_BYTES,
	PN_OPTION_TIME,
	PN_OPTION_CHOICE,
	PN_OPTION_TEXT,
};

struct pn_option {
	const char *name; /* lower case, words joined by '_' */
	enum pn_option_type type;
	const char *def;  /* default, in text form; always parses */
	const char *help; /* one sentence, no full stop */
	size_t offset;
	/* Numbers: bounds; max 0: no upper one. CHOICE: min 1: a flag, whose
	 * name alone says "yes", one of the choices. */
	uint64_t min, max;
	const char *const *choices; /* CHOICE: ends with NULL */
};

/* Why a text was refused, for people. Empty if nothing went wrong. */
struct pn_why {
	char text[PN_WHY_BYTES];
};

/* Sets every value of the table to its default. */
void pn_options_defaults(const struct pn_option *table, size_t n, void *values);

/* The row called name (of length len; case matters), or NULL. */
const struct pn_option *pn_option_find(const struct pn_option *table, size_t n,
				       const char *name, size_t len);

/* Parses text into the option's value. -EINVAL: text is no such value; `why`
 * (may be NULL) says what is allowed. The value is unchanged then. */
int pn_option_parse(const struct pn_option *option, const char *text,
		    void *values, struct pn_why *why);

/* Writes the option's value in text form; at most len bytes with the NUL. */
void pn_option_format(const struct pn_option *option, const void *values,
		      char *buf, size_t len);

/* Parses "name=value,name=value" (empty or NULL: nothing) over values. A name
 * without '=' sets a flag to yes. -EINVAL as above, also for a name that is
 * unknown or given twice; `values` may then be partly set. */
int pn_options_parse_list(const struct pn_option *table, size_t n,
			  const char *list, void *values, struct pn_why *why);

/* Whether the name may stand alone. */
bool pn_option_is_flag(const struct pn_option *option);

/* "number", "bytes", …, for help texts. */
const char *pn_option_type_name(enum pn_option_type type);

#endif
