/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/sim/script.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

#define WORD_BYTES 24

/* One word of a statement; an empty one is the statement's end. */
struct word {
	char text[WORD_BYTES];
	unsigned line, column;
};

struct cursor {
	const char *at, *end;
	unsigned line, column;
	struct word word; /* the next one, not consumed yet */
	struct pn_why *why;
};

static int refuse(const struct cursor *c, const char *fmt, ...) PN_PRINTF(2, 3);

static int refuse(const struct cursor *c, const char *fmt, ...)
{
	char *text = c->why ? c->why->text : NULL;
	va_list ap;
	int n;

	if (!text)
		return -EINVAL;
	n = snprintf(text, PN_WHY_BYTES, "line %u, column %u: ", c->word.line,
		     c->word.column);
	va_start(ap, fmt);
	vsnprintf(text + n, PN_WHY_BYTES - (size_t)n, fmt, ap);
	va_end(ap);
	return -EINVAL;
}

/* --- words ---------------------------------------------------------------- */

static void next_char(struct cursor *c)
{
	if (*c->at == '\n') {
		c->line++;
		c->column = 0;
	}
	c->column++;
	c->at++;
}

static void skip_blanks(struct cursor *c)
{
	while (c->at < c->end && *c->at != '\n' &&
	       isspace((unsigned char)*c->at))
		next_char(c);
	if (c->at < c->end && *c->at == '#')
		while (c->at < c->end && *c->at != '\n')
			next_char(c);
}

static bool in_word(const struct cursor *c)
{
	return c->at < c->end && isalnum((unsigned char)*c->at);
}

/* Reads the next word of this statement; the separator is not consumed. */
static int next(struct cursor *c)
{
	size_t n = 0;

	skip_blanks(c);
	c->word = (struct word){ "", c->line, c->column };
	while (in_word(c)) {
		if (n + 1 == WORD_BYTES)
			return refuse(c, "word too long");
		c->word.text[n++] = *c->at;
		next_char(c);
	}
	if (!n && c->at < c->end && *c->at != '\n' && *c->at != ';')
		return refuse(c, "unexpected character");
	return 0;
}

static bool is(const struct cursor *c, const char *text)
{
	return !strcmp(c->word.text, text);
}

static const char *word_text(const struct cursor *c)
{
	return c->word.text[0] ? c->word.text : "the end";
}

static int expect(struct cursor *c, const char *text)
{
	if (!is(c, text))
		return refuse(c, "expected '%s', found '%s'", text,
			      word_text(c));
	return next(c);
}

/* --- values --------------------------------------------------------------- */

static bool is_unit(const struct cursor *c, enum pn_option_type type)
{
	static const char *const units[] = { "ns",  "us", "ms", "s",   "B",
					     "K",   "M",  "G",	"T",   "KB",
					     "MB",  "GB", "TB", "KiB", "MiB",
					     "GiB", "TiB" };
	size_t first = type == PN_OPTION_TIME ? 0 : 4;
	size_t last = type == PN_OPTION_TIME ? 4 : PN_ARRAY_LEN(units);

	for (size_t i = first; i < last; i++)
		if (is(c, units[i]))
			return true;
	return false;
}

/* A value in the text form of options; its unit may be a word of its own. */
static int value(struct cursor *c, enum pn_option_type type, uint64_t min,
		 uint64_t *out)
{
	struct pn_option option = { .name = pn_option_type_name(type),
				    .type = type,
				    .min = min };
	struct cursor start = *c;
	char text[2 * WORD_BYTES];
	struct pn_why why = { "" };
	int ret;

	memcpy(text, c->word.text, WORD_BYTES);
	ret = next(c);
	if (ret)
		return ret;
	if (type != PN_OPTION_NUMBER && isdigit((unsigned char)text[0]) &&
	    is_unit(c, type)) {
		strcat(text, c->word.text);
		ret = next(c);
	}
	if (!ret && pn_option_parse(&option, text, out, &why))
		return refuse(&start, "%.128s", why.text);
	return ret;
}

/* The largest number means any node in a fault, so it is refused here. */
static int node_number(struct cursor *c, uint64_t *out)
{
	struct cursor start = *c;
	int ret = value(c, PN_OPTION_NUMBER, 0, out);

	if (!ret && *out == PN_FAULT_ANY_NODE)
		return refuse(&start, "no such node");
	return ret;
}

static int error_name(struct cursor *c, int *out)
{
	static const struct {
		const char *name;
		int error;
	} names[] = {
		{ "EACCES", EACCES }, { "EAGAIN", EAGAIN },
		{ "EBUSY", EBUSY },   { "EFAULT", EFAULT },
		{ "EINTR", EINTR },   { "EINVAL", EINVAL },
		{ "EIO", EIO },	      { "ENOBUFS", ENOBUFS },
		{ "ENODEV", ENODEV }, { "ENOMEM", ENOMEM },
		{ "ENOSPC", ENOSPC }, { "EOPNOTSUPP", EOPNOTSUPP },
		{ "EPERM", EPERM },   { "ETIMEDOUT", ETIMEDOUT },
	};

	for (size_t i = 0; i < PN_ARRAY_LEN(names); i++) {
		if (is(c, names[i].name)) {
			*out = -names[i].error;
			return next(c);
		}
	}
	return refuse(c,
		      "'%s' is no error that a registration gives (ENOMEM, "
		      "EAGAIN, EFAULT, EIO, ...)",
		      word_text(c));
}

/* --- statements ----------------------------------------------------------- */

/* [on node NODE] */
static int on_node(struct cursor *c, struct pn_fault *fault)
{
	int ret;

	fault->node = PN_FAULT_ANY_NODE;
	if (!is(c, "on"))
		return 0;
	ret = next(c);
	if (!ret)
		ret = expect(c, "node");
	return ret ? ret : node_number(c, &fault->node);
}

/* registration N | registrations every N, then: with ERROR */
static int parse_fail(struct cursor *c, struct pn_fault *fault)
{
	int ret;

	if (is(c, "registrations")) {
		fault->kind = PN_FAULT_FAIL_EVERY;
		ret = next(c);
		if (!ret)
			ret = expect(c, "every");
	} else {
		fault->kind = PN_FAULT_FAIL_REGISTRATION;
		ret = expect(c, "registration");
	}
	if (!ret)
		ret = value(c, PN_OPTION_NUMBER, 1, &fault->number);
	if (!ret)
		ret = expect(c, "with");
	if (!ret)
		ret = error_name(c, &fault->error);
	return ret ? ret : on_node(c, fault);
}

/* TIME | message N by TIME | registration N by TIME */
static int parse_delay(struct cursor *c, struct pn_fault *fault)
{
	int ret = 0;

	fault->kind = PN_FAULT_DELAY_ALL;
	if (is(c, "message") || is(c, "registration")) {
		fault->kind = is(c, "message") ? PN_FAULT_DELAY_MESSAGE
					       : PN_FAULT_DELAY_REGISTRATION;
		ret = next(c);
		if (!ret)
			ret = value(c, PN_OPTION_NUMBER, 1, &fault->number);
		if (!ret)
			ret = expect(c, "by");
	}
	if (!ret)
		ret = value(c, PN_OPTION_TIME, 0, &fault->time_ns);
	return ret ? ret : on_node(c, fault);
}

static int at_time(struct cursor *c, struct pn_fault *fault)
{
	int ret = expect(c, "at");

	return ret ? ret : value(c, PN_OPTION_TIME, 0, &fault->time_ns);
}

/* RAIL of node NODE, then: at TIME | after N operations */
static int parse_port_fail(struct cursor *c, struct pn_fault *fault)
{
	int ret = expect(c, "rail");

	if (!ret)
		ret = value(c, PN_OPTION_NUMBER, 0, &fault->rail);
	if (!ret)
		ret = expect(c, "of");
	if (!ret)
		ret = expect(c, "node");
	if (!ret)
		ret = node_number(c, &fault->node);
	if (ret)
		return ret;
	if (!is(c, "after")) {
		fault->kind = PN_FAULT_PORT_FAIL;
		return at_time(c, fault);
	}
	fault->kind = PN_FAULT_PORT_FAIL_AFTER;
	ret = next(c);
	if (!ret)
		ret = value(c, PN_OPTION_NUMBER, 1, &fault->number);
	return ret ? ret : expect(c, "operations");
}

/* peer NODE at TIME | a rail */
static int parse_drop(struct cursor *c, struct pn_fault *fault)
{
	int ret;

	if (is(c, "rail"))
		return parse_port_fail(c, fault);
	ret = expect(c, "peer");
	fault->kind = PN_FAULT_NODE_DIE;
	if (!ret)
		ret = node_number(c, &fault->node);
	return ret ? ret : at_time(c, fault);
}

/* node NODE to BYTES at TIME */
static int parse_limit(struct cursor *c, struct pn_fault *fault)
{
	int ret = expect(c, "node");

	fault->kind = PN_FAULT_LIMIT;
	if (!ret)
		ret = node_number(c, &fault->node);
	if (!ret)
		ret = expect(c, "to");
	if (!ret)
		ret = value(c, PN_OPTION_BYTES, 0, &fault->bytes);
	return ret ? ret : at_time(c, fault);
}

static int parse_statement(struct cursor *c, struct pn_fault *fault)
{
	static const struct {
		const char *verb;
		int (*parse)(struct cursor *c, struct pn_fault *fault);
	} statements[] = { { "fail", parse_fail },
			   { "delay", parse_delay },
			   { "drop", parse_drop },
			   { "limit", parse_limit } };
	int ret;

	for (size_t i = 0; i < PN_ARRAY_LEN(statements); i++) {
		if (!is(c, statements[i].verb))
			continue;
		ret = next(c);
		if (!ret)
			ret = statements[i].parse(c, fault);
		if (!ret && c->word.text[0])
			return refuse(c, "unexpected '%s' after the statement",
				      word_text(c));
		return ret;
	}
	return refuse(c,
		      "'%s' begins no statement: use fail, delay, drop or "
		      "limit",
		      word_text(c));
}

static int append(struct pn_script *script, const struct pn_fault *fault)
{
	struct pn_fault *faults =
		realloc(script->faults, (script->n + 1) * sizeof(*faults));

	if (!faults)
		return -ENOMEM;
	script->faults = faults;
	faults[script->n++] = *fault;
	return 0;
}

int pn_script_parse(const char *text, size_t len, struct pn_script *out,
		    struct pn_why *why)
{
	struct cursor c = { text, text + len, 1, 1, { "", 1, 1 }, why };
	size_t before = out->n;
	int ret = 0;

	while (!ret && c.at < c.end) {
		struct pn_fault fault = { .node = PN_FAULT_ANY_NODE };

		ret = next(&c);
		if (!ret && c.word.text[0]) {
			ret = parse_statement(&c, &fault);
			if (!ret)
				ret = append(out, &fault);
		}
		if (!ret && c.at < c.end)
			next_char(&c); /* the separator */
	}
	if (ret)
		out->n = before;
	return ret;
}

void pn_script_free(struct pn_script *script)
{
	free(script->faults);
	*script = (struct pn_script){ 0 };
}

/* --- queries -------------------------------------------------------------- */

/* Whether the fault applies to this registration or message, counted in the
 * world (`all`) and on its node (`own`). */
static bool concerns(const struct pn_fault *fault, uint64_t node, uint64_t all,
		     uint64_t own)
{
	uint64_t count = fault->node == PN_FAULT_ANY_NODE ? all : own;

	if (fault->node != PN_FAULT_ANY_NODE && fault->node != node)
		return false;
	if (fault->kind == PN_FAULT_DELAY_ALL)
		return true;
	if (fault->kind == PN_FAULT_FAIL_EVERY)
		return count % fault->number == 0;
	return count == fault->number;
}

int pn_script_registration(const struct pn_script *script, uint64_t node,
			   uint64_t all, uint64_t own, uint64_t *delay_ns)
{
	int error = 0;

	*delay_ns = 0;
	for (size_t i = 0; i < script->n; i++) {
		const struct pn_fault *fault = &script->faults[i];

		if (fault->kind > PN_FAULT_DELAY_REGISTRATION ||
		    !concerns(fault, node, all, own))
			continue;
		if (fault->kind == PN_FAULT_DELAY_REGISTRATION)
			*delay_ns += fault->time_ns;
		else if (!error)
			error = fault->error;
	}
	return error;
}

bool pn_script_port_fails(const struct pn_script *script, uint64_t node,
			  uint64_t rail, uint64_t noperations)
{
	for (size_t i = 0; i < script->n; i++) {
		const struct pn_fault *fault = &script->faults[i];

		if (fault->kind == PN_FAULT_PORT_FAIL_AFTER &&
		    fault->node == node && fault->rail == rail &&
		    fault->number == noperations)
			return true;
	}
	return false;
}

uint64_t pn_script_message_ns(const struct pn_script *script, uint64_t node,
			      uint64_t all, uint64_t own)
{
	uint64_t delay_ns = 0;

	for (size_t i = 0; i < script->n; i++) {
		const struct pn_fault *fault = &script->faults[i];

		if ((fault->kind == PN_FAULT_DELAY_ALL ||
		     fault->kind == PN_FAULT_DELAY_MESSAGE) &&
		    concerns(fault, node, all, own))
			delay_ns += fault->time_ns;
	}
	return delay_ns;
}
