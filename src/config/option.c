/* SPDX-License-Identifier: BSD-2-Clause */
#include "config/option.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/compiler.h"

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit byte_units[] = {
	{ "", 1 },
	{ "B", 1 },
	{ "K", UINT64_C(1) << 10 },
	{ "M", UINT64_C(1) << 20 },
	{ "G", UINT64_C(1) << 30 },
	{ "T", UINT64_C(1) << 40 },
};

static const struct unit time_units[] = {
	{ "", 1 },
	{ "ns", 1 },
	{ "us", PN_NS_PER_US },
	{ "ms", PN_NS_PER_MS },
	{ "s", PN_NS_PER_S },
};

static const struct unit no_units[] = { { "", 1 } };

static int refuse(struct pn_why *why, const char *fmt, ...) PN_PRINTF(2, 3);

static int refuse(struct pn_why *why, const char *fmt, ...)
{
	va_list ap;

	if (why) {
		va_start(ap, fmt);
		vsnprintf(why->text, sizeof(why->text), fmt, ap);
		va_end(ap);
	}
	return -EINVAL;
}

static void *value_of(const struct pn_option *option, void *values)
{
	return (char *)values + option->offset;
}

static int parse_bool(const char *text, bool *out)
{
	static const char *const words[] = { "no",  "yes", "false", "true",
					     "off", "on",  "0",	    "1" };

	for (size_t i = 0; i < PN_ARRAY_LEN(words); i++) {
		if (!strcasecmp(text, words[i])) {
			*out = i & 1;
			return 0;
		}
	}
	return -EINVAL;
}

/* Digits, optional blanks, a unit. "64KiB" and "64KB" are "64K". */
static int parse_scaled(const char *text, const struct unit *units,
			size_t nunits, uint64_t *out)
{
	char unit[8];
	char *end;
	uint64_t n;
	size_t len;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	n = strtoull(text, &end, 10);
	if (errno)
		return -EINVAL;
	end += strspn(end, " ");
	len = strlen(end);
	if (len >= sizeof(unit))
		return -EINVAL;
	memcpy(unit, end, len + 1);
	if (units == byte_units && len > 1 && strchr("bB", unit[len - 1])) {
		unit[len - 1] = 0;
		if (len > 2 && unit[len - 2] == 'i')
			unit[len - 2] = 0;
	}
	for (size_t i = 0; i < nunits; i++) {
		if (strcasecmp(unit, units[i].name))
			continue;
		return __builtin_mul_overflow(n, units[i].factor, out) ? -EINVAL
								       : 0;
	}
	return -EINVAL;
}

static int store_number(const struct pn_option *option, const char *text,
			uint64_t n, void *values, struct pn_why *why)
{
	if (n < option->min || (option->max && n > option->max))
		return refuse(why,
			      "%s=%s is out of range (%" PRIu64 " to %" PRIu64
			      ")",
			      option->name, text, option->min,
			      option->max ? option->max : UINT64_MAX);
	memcpy(value_of(option, values), &n, sizeof(n));
	return 0;
}

static int parse_choice(const struct pn_option *option, const char *text,
			void *values, struct pn_why *why)
{
	char list[PN_WHY_BYTES / 2] = "";
	size_t len = 0;

	for (int i = 0; option->choices[i]; i++) {
		if (!strcmp(text, option->choices[i])) {
			memcpy(value_of(option, values), &i, sizeof(i));
			return 0;
		}
		if (len < sizeof(list))
			len += snprintf(list + len, sizeof(list) - len, "%s%s",
					i ? ", " : "", option->choices[i]);
	}
	return refuse(why, "%s=%.64s: choose one of %s", option->name, text,
		      list);
}

static int parse_text(const struct pn_option *option, const char *text,
		      void *values, struct pn_why *why)
{
	size_t len = strlen(text);

	if (len >= PN_OPTION_TEXT_BYTES)
		return refuse(why, "%s is longer than %d characters",
			      option->name, PN_OPTION_TEXT_BYTES - 1);
	memcpy(value_of(option, values), text, len + 1);
	return 0;
}

int pn_option_parse(const struct pn_option *option, const char *text,
		    void *values, struct pn_why *why)
{
	uint64_t n = 0;
	bool yes;

	switch (option->type) {
	case PN_OPTION_BOOL:
		if (parse_bool(text, &yes))
			return refuse(why, "%s=%.64s: say yes or no",
				      option->name, text);
		memcpy(value_of(option, values), &yes, sizeof(yes));
		return 0;
	case PN_OPTION_NUMBER:
		if (parse_scaled(text, no_units, PN_ARRAY_LEN(no_units), &n))
			return refuse(why, "%s=%.64s: give a whole number",
				      option->name, text);
		return store_number(option, text, n, values, why);
	case PN_OPTION_BYTES:
		if (parse_scaled(text, byte_units, PN_ARRAY_LEN(byte_units),
				 &n))
			return refuse(why,
				      "%s=%.64s: give bytes, as 4096, 64K, 2M",
				      option->name, text);
		return store_number(option, text, n, values, why);
	case PN_OPTION_TIME:
		if (parse_scaled(text, time_units, PN_ARRAY_LEN(time_units),
				 &n))
			return refuse(why,
				      "%s=%.64s: give a time, as 500ns, 5us, "
				      "10ms, 2s",
				      option->name, text);
		return store_number(option, text, n, values, why);
	case PN_OPTION_CHOICE:
		return parse_choice(option, text, values, why);
	case PN_OPTION_TEXT:
		return parse_text(option, text, values, why);
	}
	return -EINVAL;
}

/* The largest unit that divides n; what it prints parses back to n. */
static void format_scaled(uint64_t n, const struct unit *units, size_t nunits,
			  char *buf, size_t len)
{
	size_t best = 0;

	for (size_t i = 1; n && i < nunits; i++)
		if (n % units[i].factor == 0 &&
		    units[i].factor > units[best].factor)
			best = i;
	if (units == time_units && !best)
		best = 1;
	snprintf(buf, len, "%" PRIu64 "%s", n / units[best].factor,
		 units[best].name);
}

void pn_option_format(const struct pn_option *option, const void *values,
		      char *buf, size_t len)
{
	const void *value = (const char *)values + option->offset;
	uint64_t n;
	int index;

	switch (option->type) {
	case PN_OPTION_BOOL:
		snprintf(buf, len, "%s", *(const bool *)value ? "yes" : "no");
		return;
	case PN_OPTION_CHOICE:
		memcpy(&index, value, sizeof(index));
		snprintf(buf, len, "%s", option->choices[index]);
		return;
	case PN_OPTION_TEXT:
		snprintf(buf, len, "%s", (const char *)value);
		return;
	case PN_OPTION_NUMBER:
		memcpy(&n, value, sizeof(n));
		format_scaled(n, no_units, PN_ARRAY_LEN(no_units), buf, len);
		return;
	case PN_OPTION_BYTES:
		memcpy(&n, value, sizeof(n));
		format_scaled(n, byte_units, PN_ARRAY_LEN(byte_units), buf,
			      len);
		return;
	case PN_OPTION_TIME:
		memcpy(&n, value, sizeof(n));
		format_scaled(n, time_units, PN_ARRAY_LEN(time_units), buf,
			      len);
		return;
	}
}

void pn_options_defaults(const struct pn_option *table, size_t n, void *values)
{
	for (size_t i = 0; i < n; i++)
		pn_assert(!pn_option_parse(&table[i], table[i].def, values,
					   NULL));
}

bool pn_option_is_flag(const struct pn_option *option)
{
	return option->type == PN_OPTION_BOOL ||
	       (option->type == PN_OPTION_CHOICE && option->min);
}

const struct pn_option *pn_option_find(const struct pn_option *table, size_t n,
				       const char *name, size_t len)
{
	for (size_t i = 0; i < n; i++)
		if (!strncmp(table[i].name, name, len) && !table[i].name[len])
			return &table[i];
	return NULL;
}

/* A table of options whose list of values is being parsed. */
struct list_parser {
	const struct pn_option *table;
	size_t n;
	uint64_t seen; /* a bit for each row already given */
};

/* One "name=value" of a list. */
static int parse_item(struct list_parser *parser, char *item, void *values,
		      struct pn_why *why)
{
	char *value = strchr(item, '=');
	size_t len = value ? (size_t)(value - item) : strlen(item);
	const struct pn_option *option =
		pn_option_find(parser->table, parser->n, item, len);
	uint64_t bit;

	if (!option)
		return refuse(why, "unknown parameter '%.*s'",
			      len < 64 ? (int)len : 64, item);
	bit = UINT64_C(1) << (option - parser->table);
	if (parser->seen & bit)
		return refuse(why, "parameter '%s' is given twice",
			      option->name);
	parser->seen |= bit;
	if (!value && !pn_option_is_flag(option))
		return refuse(why, "parameter '%s' needs a value (%s=...)",
			      option->name, option->name);
	return pn_option_parse(option, value ? value + 1 : "yes", values, why);
}

int pn_options_parse_list(const struct pn_option *table, size_t n,
			  const char *list, void *values, struct pn_why *why)
{
	struct list_parser parser = { .table = table, .n = n };
	char *copy, *rest, *item;
	int ret = 0;

	pn_assert(n <= 64);
	if (!list || !*list)
		return 0;
	copy = strdup(list);
	if (!copy)
		return -ENOMEM;
	rest = copy;
	while (!ret && (item = strsep(&rest, ",")))
		ret = parse_item(&parser, item, values, why);
	free(copy);
	return ret;
}

const char *pn_option_type_name(enum pn_option_type type)
{
	static const char *const names[] = { "yes/no", "number", "bytes",
					     "time",   "choice", "text" };

	return names[type];
}
