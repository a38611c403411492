/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * list_options -- writes the options' part of pinion(7), in Markdown, from the
 * tables that the library parses them with: its own options, then the
 * parameters of each kind of device. With --names: only how each one begins in
 * the manual page, for the test that looks for it there.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "device/device.h"

/* How an option begins: "PINION_LOG" of the library, "soft:cost" of a kind. */
static void print_name(const char *kind, const char *name)
{
	if (kind) {
		printf("%s:%s", kind, name);
		return;
	}
	printf("PINION_");
	for (; *name; name++)
		putchar(toupper((unsigned char)*name));
}

static void print_values(const struct pn_option *option)
{
	if (option->type != PN_OPTION_CHOICE) {
		printf("*%s*", pn_option_type_name(option->type));
		return;
	}
	for (int i = 0; option->choices[i]; i++)
		printf("%s`%s`", i ? "|" : "", option->choices[i]);
}

static void print_bounds(const struct pn_option *option)
{
	if (option->max)
		printf(" From %llu to %llu.", (unsigned long long)option->min,
		       (unsigned long long)option->max);
	else if (option->min)
		printf(" At least %llu.", (unsigned long long)option->min);
}

static void describe(const char *kind, const struct pn_option *option)
{
	printf("**");
	print_name(kind, option->name);
	printf("**=");
	print_values(option);
	printf("\n:   %c%s.", toupper((unsigned char)option->help[0]),
	       option->help[0] ? option->help + 1 : "");
	print_bounds(option);
	if (*option->def)
		printf(" Default: `%s`.", option->def);
	printf("\n\n");
}

static void list(const char *kind, const struct pn_option *table, size_t n,
		 bool names)
{
	for (size_t i = 0; i < n; i++) {
		if (names) {
			print_name(kind, table[i].name);
			putchar('\n');
		} else {
			describe(kind, &table[i]);
		}
	}
}

int main(int argc, char **argv)
{
	bool names = argc > 1 && !strcmp(argv[1], "--names");
	const struct pn_device_ops *ops;
	const struct pn_option *table;
	size_t n;

	table = pn_config_table(&n);
	list(NULL, table, n, names);
	for (unsigned i = 0; (ops = pn_device_kind(i)); i++) {
		if (!names && ops->nparams)
			printf("## The device %s: %s\n\n", ops->kind,
			       ops->help);
		list(ops->kind, ops->params, ops->nparams, names);
	}
	return 0;
}
