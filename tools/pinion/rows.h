/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rows -- figures that were printed as JSON, one flat object a line, read back.
 *
 * A row is a list of keys with values: a number, a text, yes or no, or nothing.
 * What is not flat, or no JSON, is refused with its line. Rows that are
 * computed (from a trace, say) are made with pn_rows_add() and pn_row_set_*().
 * Everything lives until pn_rows_fini().
 * Threads: the caller's.
 */
#ifndef PN_TOOLS_ROWS_H
#define PN_TOOLS_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "config/option.h"

#define PN_ROW_MAX_KEYS 96 /* keys */

enum pn_row_type { PN_ROW_NULL, PN_ROW_NUMBER, PN_ROW_TEXT, PN_ROW_FLAG };

struct pn_row_value {
	enum pn_row_type type;
	double number; /* of a FLAG: 0 or 1 */
	char *text;
};

struct pn_row {
	unsigned n;
	char *keys[PN_ROW_MAX_KEYS];
	struct pn_row_value values[PN_ROW_MAX_KEYS];
};

struct pn_rows {
	struct pn_row **rows;
	size_t n, room;
};

void pn_rows_fini(struct pn_rows *rows);

/* Adds the rows of a file. -EBADMSG: a line is no row, `why` says which;
 * -ENOMEM; or as open(2). */
int pn_rows_read(struct pn_rows *rows, const char *path, struct pn_why *why);

/* One line, which ends with 0. Blank ones are no rows and no error. */
int pn_rows_parse(struct pn_rows *rows, const char *line, struct pn_why *why);

/* An empty row; NULL: no memory. */
struct pn_row *pn_rows_add(struct pn_rows *rows);
/* -ENOMEM, also for too many keys. Texts are copied. */
int pn_row_set_number(struct pn_row *row, const char *key, double number);
int pn_row_set_text(struct pn_row *row, const char *key, const char *text);

/* NAN: it has no such number. */
double pn_row_number(const struct pn_row *row, const char *key);
/* NULL: it has no such text. */
const char *pn_row_text(const struct pn_row *row, const char *key);

/* The value as a person writes it: "64K" for keys that end with bytes, "yes".
 * "" when there is none. Returns buf. */
const char *pn_row_word(const struct pn_row *row, const char *key, char *buf,
			size_t bytes);

/* Whether a row meets "key=value"; values are compared as pn_row_word() has
 * them, "key!=value" the other way round. NULL is met by every row. */
bool pn_row_meets(const struct pn_row *row, const char *condition);

#endif
