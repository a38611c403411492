/* SPDX-License-Identifier: BSD-2-Clause */
/* pinion help: what a command does and takes. */
#include <stdbool.h>

#include "tools/pinion/command.h"

struct values {
	bool words;
};

static const struct pn_option options[] = {
	{ "words", PN_OPTION_BOOL, "no",
	  "print what may follow COMMAND..., one word a line (for completion)",
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
		return pn_usage_error("no command '%s'; `pinion --help` lists "
				      "those there are",
				      *rest);
	pn_command_help(stdout, &pn_cmd_pinion, operands);
	return PN_EXIT_OK;
}

const struct pn_command pn_cmd_help = {
	.name = "help",
	.help = "say what a command does and takes",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.operands = "[COMMAND...]",
	.run = run,
};
