/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/rows.h"

#include <errno.h>
#include <jansson.h>
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

static int refuse(struct pn_why *why, const char *what)
{
	snprintf(why->text, sizeof(why->text), "%s", what);
	return -EBADMSG;
}

static int set_from_json(struct pn_row *row, const char *key,
			 const json_t *value)
{
	switch (json_typeof(value)) {
	case JSON_STRING:
		return pn_row_set_text(row, key, json_string_value(value));
	case JSON_REAL:
		return pn_row_set_number(row, key, json_real_value(value));
	case JSON_TRUE:
	case JSON_FALSE:
		return set(row, key, PN_ROW_FLAG, json_is_true(value), NULL);
	case JSON_NULL:
		return set(row, key, PN_ROW_NULL, 0, NULL);
	default:
		return -EBADMSG;
	}
}

static int read_object(json_t *object, struct pn_row *row, struct pn_why *why)
{
	const char *key;
	json_t *value;

	if (!json_is_object(object))
		return refuse(why, "not a JSON object");
	json_object_foreach(object, key, value)
	{
		int ret = set_from_json(row, key, value);

		if (ret == -EBADMSG)
			return refuse(why, "not a flat JSON object");
		if (ret)
			return refuse(why, "too many keys");
	}
	return 0;
}

int pn_rows_parse(struct pn_rows *rows, const char *line, struct pn_why *why)
{
	/* Counts are unsigned and may exceed jansson's integers. */
	const size_t flags = JSON_DECODE_INT_AS_REAL | JSON_DECODE_ANY;
	struct pn_row *row;
	json_error_t error;
	json_t *object;
	int ret;

	if (!line[strspn(line, " \t\r\n")])
		return 0;
	row = pn_rows_add(rows);
	if (!row)
		return -ENOMEM;
	object = json_loads(line, flags, &error);
	if (!object)
		return refuse(why, error.text);
	ret = read_object(object, row, why);
	json_decref(object);
	return ret;
}

int pn_rows_read(struct pn_rows *rows, const char *path, struct pn_why *why)
{
	bool input = !strcmp(path, "-");
	FILE *file = input ? stdin : fopen(path, "re");
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
	if (!input)
		fclose(file);
	return ret;
}
