/* SPDX-License-Identifier: BSD-2-Clause */
/* pinion config: every option and every parameter of the devices: value,
 * origin, meaning. */
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "config/config.h"
#include "device/device.h"
#include "tools/pinion/command.h"
#include "tools/pinion/report.h"

struct values {
	bool json, man;
};

static const struct pn_option options[] = {
	PN_COMMAND_JSON(struct values, json),
	{ "man", PN_OPTION_BOOL, "no",
	  "print the markdown from which pinion(7) is made",
	  offsetof(struct values, man), 0, 0, NULL },
};

/* An option of the library or a parameter of a device. */
struct setting {
	const struct pn_option *option;
	const char *device; /* kind of device; NULL: an option of the library */
	const char *value, *source;
	char variable[64]; /* "PINION_DEVICE" or "soft:cost" */
};

typedef void print_fn(struct pn_report *report, const struct setting *s);

static void name_variable(struct setting *s)
{
	if (s->device) {
		snprintf(s->variable, sizeof(s->variable), "%s:%s", s->device,
			 s->option->name);
		return;
	}
	snprintf(s->variable, sizeof(s->variable), "PINION_%s",
		 s->option->name);
	for (char *c = s->variable; *c; c++)
		*c = (char)toupper((unsigned char)*c);
}

/* --- the ways to print one ----------------------------------------------- */

static void print_json(struct pn_report *report, const struct setting *s)
{
	const char *type = pn_option_type_name(s->option->type);
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("what", NULL, 0,
			     s->device ? "parameter" : "option"),
		PN_CELL_TEXT("kind", NULL, 0, s->device),
		PN_CELL_TEXT("name", NULL, 0, s->option->name),
		PN_CELL_TEXT("setting", NULL, 0, s->variable),
		PN_CELL_TEXT("type", NULL, 0, type),
		PN_CELL_TEXT("value", NULL, 0, s->value),
		PN_CELL_TEXT("default", NULL, 0, s->option->def),
		PN_CELL_TEXT("source", NULL, 0, s->source),
		PN_CELL_TEXT("help", NULL, 0, s->option->help),
	};

	pn_report_row(report, row, PN_ARRAY_LEN(row));
}

static void join_choices(const struct pn_option *option, char *buf, size_t len)
{
	*buf = 0;
	for (size_t i = 0; option->choices && option->choices[i]; i++) {
		size_t used = strlen(buf);

		snprintf(buf + used, len - used, "%s%s", i ? ", " : ": ",
			 option->choices[i]);
	}
}

static void print_text(struct pn_report *report, const struct setting *s)
{
	char text[2 * PN_OPTION_TEXT_BYTES], choices[256];

	(void)report;
	printf("  %s = %s", s->variable, *s->value ? s->value : "\"\"");
	printf(strcmp(s->source, "default") ? "  (from the %s; default %s)\n"
					    : "  (%s)\n",
	       s->source, s->option->def);
	join_choices(s->option, choices, sizeof(choices));
	snprintf(text, sizeof(text), "%s (%s%s)", s->option->help,
		 pn_option_type_name(s->option->type), choices);
	printf("      ");
	pn_print_wrapped(stdout, 6, 6, text);
}

/* Escapes characters that have a meaning in Markdown. */
static void print_escaped(const char *text)
{
	for (; *text; text++) {
		if (strchr("\\`*_<>[]#$~^|", *text))
			putchar('\\');
		putchar(*text);
	}
}

static void print_man(struct pn_report *report, const struct setting *s)
{
	char choices[256];

	(void)report;
	printf("**");
	print_escaped(s->variable);
	printf("** (%s", pn_option_type_name(s->option->type));
	if (*s->option->def) {
		printf(", default ");
		print_escaped(s->option->def);
	}
	printf(")\n:   ");
	print_escaped(s->option->help);
	join_choices(s->option, choices, sizeof(choices));
	if (*choices)
		printf(" (one of");
	print_escaped(choices);
	printf("%s.\n\n", *choices ? ")" : "");
}

/* --- all of them --------------------------------------------------------- */

static void each_option(struct pn_report *report,
			const struct pn_config *config, print_fn *print)
{
	char value[PN_OPTION_TEXT_BYTES];
	const struct pn_option *table;
	size_t n;

	table = pn_config_table(&n);
	for (size_t i = 0; i < n; i++) {
		struct setting s = { .option = &table[i], .value = value };

		s.source = pn_config_source_name(config->source[i]);
		pn_option_format(&table[i], config, value, sizeof(value));
		name_variable(&s);
		print(report, &s);
	}
}

/* The value of a parameter: from the configured spec if that names the kind. A
 * spec that does not parse is an error of whoever opens it, not here. */
static void find_value(const struct pn_device_ops *kind, const char *spec,
		       struct setting *s)
{
	size_t len = strlen(kind->kind);
	const char *at;

	s->value = s->option->def;
	s->source = "default";
	if (strncmp(spec, kind->kind, len) || spec[len] != ':')
		return;
	for (at = spec + len + 1; *at; at += strcspn(at, ",")) {
		size_t name = strlen(s->option->name);

		at += *at == ',';
		if (!strncmp(at, s->option->name, name) && at[name] == '=') {
			s->value = at + name + 1;
			s->source = "device";
		}
	}
}

static void each_parameter(struct pn_report *report,
			   const struct pn_device_ops *kind, const char *spec,
			   print_fn *print)
{
	for (size_t i = 0; i < kind->nparams; i++) {
		struct setting s = { .option = &kind->params[i],
				     .device = kind->kind };
		char value[PN_OPTION_TEXT_BYTES];

		find_value(kind, spec, &s);
		snprintf(value, sizeof(value), "%.*s",
			 (int)strcspn(s.value, ","), s.value);
		s.value = value;
		name_variable(&s);
		print(report, &s);
	}
}

static void heading(const struct values *values, const char *text)
{
	if (values->man)
		printf("## %s\n\n", text);
	else if (!values->json)
		printf("%s:\n\n", text);
}

static int run(const void *v, char *const *operands)
{
	const struct values *values = v;
	print_fn *print = values->json	? print_json
			  : values->man ? print_man
					: print_text;
	struct pn_report report = { .json = values->json, .bench = "config" };
	struct pn_config config;

	(void)operands;
	if (pn_config_load(&config, NULL))
		return PN_EXIT_FAILED;
	report.device = config.device;
	heading(values, "Options (environment, or attributes of pinion_open)");
	each_option(&report, &config, print);
	for (unsigned i = 0; pn_device_kind(i); i++) {
		char text[128];

		snprintf(text, sizeof(text), "Parameters of the device %s",
			 pn_device_kind(i)->kind);
		if (!values->json && !values->man)
			putchar('\n');
		heading(values, text);
		each_parameter(&report, pn_device_kind(i), config.device,
			       print);
	}
	return PN_EXIT_OK;
}

const struct pn_command pn_cmd_config = {
	.name = "config",
	.help = "list every option, its value and where it came from",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
