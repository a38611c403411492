/* SPDX-License-Identifier: BSD-2-Clause */
/* pinion help: prints the help of a command. */
#include <stdbool.h>

#include "tools/pinion/command.h"

struct values {
	bool words;
};

static const struct pn_option options[] = {
	{ "words", PN_OPTION_BOOL, "no",
	  "print the words that may follow COMMAND..., one per line (for "
	  "completion)",
	  offsetof(struct values, words), 0, 0, NULL },
};

static int run(const void *v, char *const *operands)
{
	const struct values *values = v;
	char *const *rest;

	if (values->words) {
		pn_command_words(stdout, &pn_cmd_pinion, operands);
		return PN_EXIT_OK;
	}
	pn_command_find(&pn_cmd_pinion, operands, &rest);
	if (*rest)
		return pn_usage_error(
			"no command '%s'; `pinion --help` lists the commands",
			*rest);
	pn_command_help(stdout, &pn_cmd_pinion, operands);
	return PN_EXIT_OK;
}

const struct pn_command pn_cmd_help = {
	.name = "help",
	.help = "print the help of a command",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.operands = "[COMMAND...]",
	.run = run,
};
