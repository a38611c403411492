/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rows -- reads rows of measurements: JSON, one flat object per line.
 *
 * A row is a list of keys with values: a number, a text, a flag or null. A line
 * that is not flat or not JSON is refused with its number. Computed rows (from
 * a trace, for example) are made with pn_rows_add() and pn_row_set_*().
 * Everything lives until pn_rows_fini().
 * Threads: one at a time.
 */
#ifndef PN_TOOLS_ROWS_H
#define PN_TOOLS_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "config/option.h"

#define PN_ROW_MAX_KEYS 96 /* keys of a row */

enum pn_row_type { PN_ROW_NULL, PN_ROW_NUMBER, PN_ROW_TEXT, PN_ROW_FLAG };

struct pn_row_value {
	enum pn_row_type type;
	double number; /* FLAG: 0 or 1 */
	char *text;
};

struct pn_row {
	unsigned n;
	char *keys[PN_ROW_MAX_KEYS];
	struct pn_row_value values[PN_ROW_MAX_KEYS];
};

struct pn_rows {
	struct pn_row **rows;
	size_t n, capacity;
};

void pn_rows_fini(struct pn_rows *rows);

/* Adds the rows of a file, "-": of standard input. -EBADMSG: a line is not a
 * row (`why` has its number); -ENOMEM; others as open(2). */
int pn_rows_read(struct pn_rows *rows, const char *path, struct pn_why *why);

/* Adds the row of one NUL-terminated line. A blank line is ignored. */
int pn_rows_parse(struct pn_rows *rows, const char *line, struct pn_why *why);

/* Adds an empty row; NULL: no memory. */
struct pn_row *pn_rows_add(struct pn_rows *rows);
/* -ENOMEM, also for too many keys. Texts are copied. */
int pn_row_set_number(struct pn_row *row, const char *key, double number);
int pn_row_set_text(struct pn_row *row, const char *key, const char *text);

/* NAN: the row has no such number. */
double pn_row_number(const struct pn_row *row, const char *key);
/* NULL: the row has no such text. */
const char *pn_row_text(const struct pn_row *row, const char *key);

/* Formats the value for people: "64K" for keys that end with bytes, "yes". ""
 * if there is none. Returns buf. */
const char *pn_row_word(const struct pn_row *row, const char *key, char *buf,
			size_t bytes);

/* Whether a row satisfies "key=value" or "key!=value"; values are compared as
 * formatted by pn_row_word(). Every row satisfies NULL. */
bool pn_row_meets(const struct pn_row *row, const char *condition);

#endif
