/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/command.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <pinion/pinion.h>

#include "device/device.h"

#define COLUMNS	    80
#define MAX_OPTIONS 32
#define NAME_BYTES  32
#define PATH_BYTES  128

/* Position in the tree of commands. */
struct walk {
	const struct pn_command *command;
	char path[PATH_BYTES]; /* "pinion bench register" */
};

int pn_usage_error(const char *fmt, ...)
{
	va_list ap;

	fputs("pinion: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return PN_EXIT_USAGE;
}

/* "info: " for `pinion info`, "" for `pinion` itself. */
static const char *where(const struct walk *walk, char *buf, size_t len)
{
	const char *below = strchr(walk->path, ' ');

	snprintf(buf, len, "%s%s", below ? below + 1 : "", below ? ": " : "");
	return buf;
}

int pn_failed(const char *what, int negative_errno)
{
	fprintf(stderr, "pinion: %s: %s\n", what, strerror(-negative_errno));
	return PN_EXIT_FAILED;
}

void pn_print_signal(const char *who, int status)
{
	const char *name;

	if (!WIFSIGNALED(status))
		return;
	name = sigabbrev_np(WTERMSIG(status));
	fprintf(stderr, "pinion: %s died of SIG%s\n", who, name ? name : "?");
}

void pn_print_wrapped(FILE *file, int indent, int column, const char *text)
{
	while (*text) {
		int word = (int)strcspn(text, " ");
		bool fits = column + 1 + word <= COLUMNS || column <= indent;

		if (!fits) {
			fprintf(file, "\n%*s", indent, "");
			column = indent;
		} else if (column > indent) {
			column += fputc(' ', file) == ' ';
		}
		column += fprintf(file, "%.*s", word, text);
		text += word;
		text += strspn(text, " ");
	}
	fputc('\n', file);
}

/* --- names --------------------------------------------------------------- */

/* Converts some_name to --some-name. */
static void option_flag(const struct pn_option *option, char *buf)
{
	snprintf(buf, NAME_BYTES, "%s", option->name);
	for (char *c = buf; *c; c++)
		if (*c == '_')
			*c = '-';
}

static const struct pn_command *find_sub(const struct pn_command *command,
					 const char *name)
{
	for (size_t i = 0; command->subs && command->subs[i]; i++)
		if (!strcmp(command->subs[i]->name, name))
			return command->subs[i];
	return NULL;
}

static void walk_start(struct walk *walk, const struct pn_command *root)
{
	walk->command = root;
	snprintf(walk->path, sizeof(walk->path), "%s", root->name);
}

/* Descends one level; false: there is no such command. */
static bool walk_down(struct walk *walk, const char *name)
{
	const struct pn_command *sub = find_sub(walk->command, name);
	size_t len = strlen(walk->path);

	if (!sub)
		return false;
	walk->command = sub;
	snprintf(walk->path + len, sizeof(walk->path) - len, " %s", name);
	return true;
}

static char *const *walk_words(struct walk *walk, char *const *words)
{
	while (*words && walk_down(walk, *words))
		words++;
	return words;
}

const struct pn_command *pn_command_find(const struct pn_command *root,
					 char *const *words, char *const **rest)
{
	struct walk walk;

	walk_start(&walk, root);
	words = walk_words(&walk, words);
	if (rest)
		*rest = words;
	else if (*words)
		return NULL;
	return walk.command;
}

/* --- help ---------------------------------------------------------------- */

static void print_sub(FILE *file, const struct pn_command *sub)
{
	fprintf(file, "  %-10s", sub->name);
	pn_print_wrapped(file, 12, 12, sub->help);
}

/* Options are long; only --help and --version also have letters, -h and -V. */
static bool is_version(const struct pn_option *option)
{
	return !strcmp(option->name, "version");
}

/* "  --min=BYTES". */
static int print_flag(FILE *file, const struct pn_option *option)
{
	char flag[NAME_BYTES];
	int len;

	option_flag(option, flag);
	len = fprintf(file, "  --%s%s", flag, is_version(option) ? ", -V" : "");
	if (option->type == PN_OPTION_CHOICE) {
		for (size_t i = 0; option->choices[i]; i++)
			len += fprintf(file, "%c%s", i ? '|' : '=',
				       option->choices[i]);
	} else if (option->type != PN_OPTION_BOOL) {
		len += fputc('=', file) == '=';
		for (const char *c = pn_option_type_name(option->type); *c; c++)
			len += fputc(toupper((unsigned char)*c), file) != EOF;
	}
	return len;
}

static void print_option(FILE *file, const struct pn_option *option)
{
	char text[PN_OPTION_TEXT_BYTES];
	const int indent = 24;
	int column = print_flag(file, option);
	bool say = *option->def && option->type != PN_OPTION_BOOL;

	if (column >= indent) {
		fputc('\n', file);
		column = 0;
	}
	snprintf(text, sizeof(text), "%s%s%s%s", option->help,
		 say ? " (default: " : "", say ? option->def : "",
		 say ? ")" : "");
	fprintf(file, "%*s", indent - column, "");
	pn_print_wrapped(file, indent, indent, text);
}

static void help_of(FILE *file, const struct walk *walk)
{
	const struct pn_command *command = walk->command;

	fprintf(file, "Usage: %s%s%s%s%s\n\n", walk->path,
		command->subs ? " COMMAND" : "", " [OPTION...]",
		command->operands ? " " : "",
		command->operands ? command->operands : "");
	pn_print_wrapped(file, 0, 0, command->help);
	if (command->about) {
		fputc('\n', file);
		pn_print_wrapped(file, 0, 0, command->about);
	}
	if (command->subs)
		fprintf(file, "\nCommands:\n");
	for (size_t i = 0; command->subs && command->subs[i]; i++)
		print_sub(file, command->subs[i]);
	fprintf(file, "\nOptions:\n");
	for (size_t i = 0; i < command->noptions; i++)
		print_option(file, &command->options[i]);
	fprintf(file, "  %-22s%s\n", "--help, -h", "print this");
}

void pn_command_help(FILE *file, const struct pn_command *root,
		     char *const *words)
{
	struct walk walk;

	walk_start(&walk, root);
	walk_words(&walk, words);
	help_of(file, &walk);
}

/* --- completion ---------------------------------------------------------- */

static void print_kinds(FILE *file)
{
	for (unsigned i = 0; pn_device_kind(i); i++)
		fprintf(file, "%s\n", pn_device_kind(i)->kind);
}

/* Returns the option that --flag names, or NULL. */
static const struct pn_option *find_flag(const struct pn_command *command,
					 const char *flag)
{
	char name[NAME_BYTES];

	for (size_t i = 0; i < command->noptions; i++) {
		option_flag(&command->options[i], name);
		if (!strncmp(flag, "--", 2) && !strcmp(flag + 2, name))
			return &command->options[i];
	}
	return NULL;
}

/* Most options have no list of values. */
static void print_values(FILE *file, const struct pn_option *option)
{
	if (!strcmp(option->name, "device"))
		print_kinds(file);
	for (size_t c = 0; option->choices && option->choices[c]; c++)
		fprintf(file, "%s\n", option->choices[c]);
}

static void print_words(FILE *file, const struct pn_command *command)
{
	char name[NAME_BYTES];

	for (size_t i = 0; command->subs && command->subs[i]; i++)
		fprintf(file, "%s\n", command->subs[i]->name);
	for (size_t i = 0; i < command->noptions; i++) {
		option_flag(&command->options[i], name);
		fprintf(file, "--%s\n", name);
	}
	fprintf(file, "--help\n");
}

void pn_command_words(FILE *file, const struct pn_command *root,
		      char *const *words)
{
	const struct pn_command *command = pn_command_find(root, words, &words);
	const struct pn_option *last = NULL;

	while (*words && words[1])
		words++;
	if (*words)
		last = find_flag(command, *words);
	if (last && !pn_option_is_flag(last))
		print_values(file, last);
	else if (last || !*words)
		print_words(file, command);
}

/* --- parsing and running ------------------------------------------------- */

/* The options for getopt: `val` is the index of the option; --help comes after
 * the last one. Indexes are smaller than letters. */
struct flags {
	const char *letters;
	struct option options[MAX_OPTIONS + 2];
	char names[MAX_OPTIONS][NAME_BYTES];
};

static void flags_init(struct flags *flags, const struct pn_command *command)
{
	size_t n = command->noptions;

	pn_assert(n <= MAX_OPTIONS);
	memset(flags, 0, sizeof(*flags));
	flags->letters = "+:h";
	for (size_t i = 0; i < n; i++) {
		if (is_version(&command->options[i]))
			flags->letters = "+:hV";
		option_flag(&command->options[i], flags->names[i]);
		flags->options[i] = (struct option){
			.name = flags->names[i],
			.has_arg = pn_option_is_flag(&command->options[i])
					   ? optional_argument
					   : required_argument,
			.val = (int)i,
		};
	}
	flags->options[n] = (struct option){ .name = "help", .val = (int)n };
}

static int set_value(const struct walk *walk, const struct pn_option *option,
		     void *values)
{
	struct pn_why why = { "" };
	char at[PATH_BYTES];

	if (!pn_option_parse(option, optarg ? optarg : "yes", values, &why))
		return PN_EXIT_OK;
	return pn_usage_error("%s%s", where(walk, at, sizeof(at)), why.text);
}

/* How many of the first words are options of the command itself. */
static int own_words(const struct pn_command *command, int argc, char **argv)
{
	const struct pn_option *option;
	char flag[NAME_BYTES + 2];
	int n = 1;

	while (n < argc) {
		size_t len = strcspn(argv[n], "=");

		if (!strcmp(argv[n], "--help") || !strcmp(argv[n], "-h")) {
			n++;
			continue;
		}
		snprintf(flag, sizeof(flag), "%.*s", (int)len, argv[n]);
		option = len < sizeof(flag) ? find_flag(command, flag) : NULL;
		if (!option)
			break;
		n += argv[n][len] || pn_option_is_flag(option) ? 1 : 2;
	}
	return n < argc ? n : argc;
}

/* Converts the result of getopt to an index: a letter stands for a long option.
 */
static int found_index(const struct pn_command *command, int found)
{
	if (found == 'h')
		return (int)command->noptions;
	if (found == 'V')
		return (int)(find_flag(command, "--version") -
			     command->options);
	return found;
}

/* Fills values; afterwards optind is at the first operand. Returns PN_EXIT_OK
 * to continue, -1 if help was requested. */
static int parse(const struct walk *walk, int argc, char **argv, void *values)
{
	const struct pn_command *command = walk->command;
	struct flags flags;
	char at[PATH_BYTES];
	int ret = PN_EXIT_OK;
	int found, word = 1;

	where(walk, at, sizeof(at));
	flags_init(&flags, command);
	pn_options_defaults(command->options, command->noptions, values);
	if (command->passes)
		argc = own_words(command, argc, argv);
	optind = 0; /* glibc: reset the state of getopt */
	opterr = 0;
	while (!ret && (found = getopt_long(argc, argv, flags.letters,
					    flags.options, NULL)) != -1) {
		found = found_index(command, found);
		if (found == '?')
			ret = pn_usage_error("%sunknown option '%s'; `%s "
					     "--help` lists the options",
					     at, argv[word], walk->path);
		else if (found == ':')
			ret = pn_usage_error("%soption '%s' needs a value", at,
					     argv[word]);
		else if (found == (int)command->noptions)
			ret = -1;
		else
			ret = set_value(walk, &command->options[found], values);
		word = optind;
	}
	return ret;
}

static int run_walk(struct walk *walk, int argc, char **argv);

/* Runs what follows the options: a subcommand, or the command with its
 * operands. */
static int run_rest(struct walk *walk, int argc, char **argv,
		    const void *values)
{
	const struct pn_command *command = walk->command;

	if (command->subs && argc > 0) {
		if (walk_down(walk, argv[0]))
			return run_walk(walk, argc, argv);
		return pn_usage_error(
			"no command '%s %s'; `%s --help` lists the commands",
			walk->path, argv[0], walk->path);
	}
	if (!command->run)
		return pn_usage_error(
			"%s needs a command; `%s --help` lists the commands",
			walk->path, walk->path);
	if (argc > 0 && !command->operands)
		return pn_usage_error("unexpected argument '%s'; `%s --help` "
				      "prints the usage",
				      argv[0], walk->path);
	return command->run(values, argv);
}

static int run_walk(struct walk *walk, int argc, char **argv)
{
	void *values = calloc(1, walk->command->values_bytes + 1);
	int first, ret;

	if (!values)
		return pn_failed(walk->path, -ENOMEM);
	ret = parse(walk, argc, argv, values);
	first = optind;
	if (ret == -1) {
		help_of(stdout, walk);
		ret = PN_EXIT_OK;
	} else if (!ret) {
		ret = run_rest(walk, argc - first, argv + first, values);
	}
	free(values);
	return ret;
}

int pn_command_run(const struct pn_command *root, int argc, char **argv)
{
	struct walk walk;
	int ret;

	walk_start(&walk, root);
	ret = run_walk(&walk, argc, argv);
	/* A full disk or a closed pipe must not be reported as success. */
	if (fflush(stdout) || ferror(stdout))
		return pn_failed("standard output", -errno);
	return ret;
}
