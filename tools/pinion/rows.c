/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/rows.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/pinion/report.h"

/* --- making --------------------------------------------------------------- */

void pn_rows_fini(struct pn_rows *rows)
{
	for (size_t i = 0; i < rows->n; i++) {
		struct pn_row *row = rows->rows[i];

		for (unsigned k = 0; k < row->n; k++) {
			free(row->keys[k]);
			free(row->values[k].text);
		}
		free(row);
	}
	free(rows->rows);
	*rows = (struct pn_rows){ 0 };
}

struct pn_row *pn_rows_add(struct pn_rows *rows)
{
	struct pn_row *row = calloc(1, sizeof(*row));

	if (row && rows->n == rows->capacity) {
		size_t capacity = rows->capacity ? 2 * rows->capacity : 64;
		struct pn_row **more =
			realloc(rows->rows, capacity * sizeof(*more));

		if (!more) {
			free(row);
			return NULL;
		}
		rows->rows = more;
		rows->capacity = capacity;
	}
	if (row)
		rows->rows[rows->n++] = row;
	return row;
}

static struct pn_row_value *find(const struct pn_row *row, const char *key)
{
	for (unsigned i = 0; i < row->n; i++)
		if (!strcmp(row->keys[i], key))
			return (struct pn_row_value *)&row->values[i];
	return NULL;
}

/* Returns the value of a key, adding a new key; NULL: no memory. */
static struct pn_row_value *value_of(struct pn_row *row, const char *key)
{
	struct pn_row_value *value = find(row, key);
	char *copy;

	if (value) {
		free(value->text);
		*value = (struct pn_row_value){ 0 };
		return value;
	}
	copy = row->n < PN_ROW_MAX_KEYS ? strdup(key) : NULL;
	if (!copy)
		return NULL;
	row->keys[row->n] = copy;
	return &row->values[row->n++];
}

static int set(struct pn_row *row, const char *key, enum pn_row_type type,
	       double number, const char *text)
{
	struct pn_row_value *value = value_of(row, key);
	char *copy = value && text ? strdup(text) : NULL;

	if (!value || (text && !copy))
		return -ENOMEM;
	*value = (struct pn_row_value){ type, number, copy };
	return 0;
}

int pn_row_set_number(struct pn_row *row, const char *key, double number)
{
	return set(row, key, isfinite(number) ? PN_ROW_NUMBER : PN_ROW_NULL,
		   number, NULL);
}

int pn_row_set_text(struct pn_row *row, const char *key, const char *text)
{
	return set(row, key, PN_ROW_TEXT, 0, text);
}

/* --- asking --------------------------------------------------------------- */

double pn_row_number(const struct pn_row *row, const char *key)
{
	const struct pn_row_value *value = find(row, key);

	return value && (value->type == PN_ROW_NUMBER ||
			 value->type == PN_ROW_FLAG)
		       ? value->number
		       : NAN;
}

const char *pn_row_text(const struct pn_row *row, const char *key)
{
	const struct pn_row_value *value = find(row, key);

	return value && value->type == PN_ROW_TEXT ? value->text : NULL;
}

static bool is_size(const char *key, double number)
{
	size_t len = strlen(key);

	return len >= 5 && !strcmp(key + len - 5, "bytes") && number >= 0 &&
	       number < 1e18 && number == floor(number);
}

const char *pn_row_word(const struct pn_row *row, const char *key, char *buf,
			size_t bytes)
{
	const struct pn_row_value *value = find(row, key);
	char size[PN_REPORT_BYTES_LEN];

	if (!value || value->type == PN_ROW_NULL)
		snprintf(buf, bytes, "%s", "");
	else if (value->type == PN_ROW_TEXT)
		snprintf(buf, bytes, "%s", value->text);
	else if (value->type == PN_ROW_FLAG)
		snprintf(buf, bytes, "%s", value->number > 0 ? "yes" : "no");
	else if (is_size(key, value->number))
		snprintf(buf, bytes, "%s",
			 pn_report_bytes((uint64_t)value->number, size));
	else
		snprintf(buf, bytes, "%.6g", value->number);
	return buf;
}

bool pn_row_meets(const struct pn_row *row, const char *condition)
{
	char key[64], word[256];
	const char *equal = condition ? strchr(condition, '=') : NULL;
	bool unlike = equal && equal > condition && equal[-1] == '!';
	size_t len;

	if (!condition || !equal)
		return true;
	len = (size_t)(equal - condition) - unlike;
	if (len >= sizeof(key))
		return false;
	memcpy(key, condition, len);
	key[len] = '\0';
	pn_row_word(row, key, word, sizeof(word));
	return !strcmp(word, equal + 1) != unlike;
}

/* --- reading -------------------------------------------------------------- */

static const char *skip_space(const char *at)
{
	while (*at == ' ' || *at == '\t' || *at == '\r' || *at == '\n')
		at++;
	return at;
}

static int refuse(struct pn_why *why, const char *what)
{
	snprintf(why->text, sizeof(why->text), "%s", what);
	return -EBADMSG;
}

/* Writes a code point as UTF-8; an invalid one becomes U+FFFD. */
static size_t put_utf8(char *out, unsigned long c)
{
	if (c > 0x10ffff || !c || (c >= 0xd800 && c < 0xe000))
		c = 0xfffd;
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 63));
		out[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	out[0] = (char)(0xf0 | c >> 18);
	out[1] = (char)(0x80 | (c >> 12 & 63));
	out[2] = (char)(0x80 | (c >> 6 & 63));
	out[3] = (char)(0x80 | (c & 63));
	return 4;
}

/* Parses the four digits of \uXXXX; -1: invalid. */
static long hex4(const char *at)
{
	char digits[5] = "";

	for (int i = 0; i < 4; i++) {
		if (!isxdigit((unsigned char)at[i]))
			return -1;
		digits[i] = at[i];
	}
	return strtol(digits, NULL, 16);
}

/* Parses an escape after its backslash and moves *at behind it. Returns 0 if it
 * is invalid. */
static size_t unescape(const char **at, char *out)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	const char *found = **at ? strchr(from, **at) : NULL;
	long high, low;

	if (found) {
		*out = to[found - from];
		++*at;
		return 1;
	}
	high = **at == 'u' ? hex4(*at + 1) : -1;
	if (high < 0)
		return 0;
	*at += 5;
	if (high >= 0xd800 && high < 0xdc00 && (*at)[0] == '\\' &&
	    (*at)[1] == 'u' && (low = hex4(*at + 2)) >= 0xdc00 &&
	    low < 0xe000) {
		*at += 6;
		high = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
	}
	return put_utf8(out, (unsigned long)high);
}

/* Parses a quoted string; the caller frees *text. Returns NULL if it is
 * invalid. */
static const char *read_string(const char *at, char **text)
{
	size_t n = 0;
	char *out;

	if (*at++ != '"')
		return NULL;
	out = malloc(strlen(at) +
		     1); /* escapes are longer than their characters */
	if (!out)
		return NULL;
	while (*at && *at != '"') {
		size_t len = 1;

		if (*at == '\\') {
			at++;
			len = unescape(&at, out + n);
		} else {
			out[n] = *at++;
		}
		if (!len)
			break;
		n += len;
	}
	out[n] = '\0';
	if (*at == '"') {
		*text = out;
		return at + 1;
	}
	free(out);
	return NULL;
}

static const char *read_word(const char *at, const char *word)
{
	size_t len = strlen(word);

	return strncmp(at, word, len) ? NULL : at + len;
}

/* Parses any value but a string. Returns NULL if it is invalid or not flat. */
static const char *read_plain(const char *at, struct pn_row_value *value)
{
	const char *end;
	char *after;

	if ((end = read_word(at, "null")))
		value->type = PN_ROW_NULL;
	else if ((end = read_word(at, "true")))
		*value = (struct pn_row_value){ PN_ROW_FLAG, 1, NULL };
	else if ((end = read_word(at, "false")))
		*value = (struct pn_row_value){ PN_ROW_FLAG, 0, NULL };
	if (end)
		return end;
	if (*at != '-' && !isdigit((unsigned char)*at))
		return NULL;
	*value = (struct pn_row_value){ PN_ROW_NUMBER, strtod(at, &after),
					NULL };
	return isfinite(value->number) ? after : NULL;
}

/* Parses "key": value. -EBADMSG, -ENOMEM. */
static int read_pair(const char **at, struct pn_row *row)
{
	struct pn_row_value value = { 0 }, *place;
	char *key = NULL;
	const char *end = read_string(*at, &key);

	end = end ? skip_space(end) : NULL;
	end = end && *end == ':' ? skip_space(end + 1) : NULL;
	if (end && *end == '"') {
		value.type = PN_ROW_TEXT;
		end = read_string(end, &value.text);
	} else if (end) {
		end = read_plain(end, &value);
	}
	place = end ? value_of(row, key) : NULL;
	free(key);
	if (!place) {
		free(value.text);
		return end ? -ENOMEM : -EBADMSG;
	}
	*place = value;
	*at = skip_space(end);
	return 0;
}

static int read_object(const char *at, struct pn_row *row, struct pn_why *why)
{
	int ret = 0;

	if (*at != '{')
		return refuse(why, "not a JSON object");
	at = skip_space(at + 1);
	while (!ret && *at != '}') {
		ret = read_pair(&at, row);
		if (!ret && *at != ',' && *at != '}')
			ret = -EBADMSG;
		else if (!ret && *at == ',')
			at = skip_space(at + 1);
	}
	if (ret == -ENOMEM)
		return refuse(why, "too many keys");
	if (ret || *skip_space(at + 1))
		return refuse(why, "not a flat JSON object");
	return 0;
}

int pn_rows_parse(struct pn_rows *rows, const char *line, struct pn_why *why)
{
	struct pn_row *row;

	line = skip_space(line);
	if (!*line)
		return 0;
	row = pn_rows_add(rows);
	return row ? read_object(line, row, why) : -ENOMEM;
}

int pn_rows_read(struct pn_rows *rows, const char *path, struct pn_why *why)
{
	FILE *file = fopen(path, "re");
	struct pn_why what = { "" };
	size_t number = 0, capacity = 0;
	char *line = NULL;
	int ret = 0;

	if (!file)
		return -errno;
	while (!ret && getline(&line, &capacity, file) >= 0) {
		number++;
		ret = pn_rows_parse(rows, line, &what);
	}
	if (!ret && ferror(file))
		ret = -EIO;
	if (ret == -EBADMSG)
		snprintf(why->text, sizeof(why->text), "%.160s:%zu: %.60s",
			 path, number, what.text);
	free(line);
	fclose(file);
	return ret;
}
