/* SPDX-License-Identifier: BSD-2-Clause */
/* The command `pinion`: table of commands and main(). */
#include <stdbool.h>
#include <stdio.h>

#include <pinion/pinion.h>

#include "revision.h"
#include "tools/pinion/command.h"

struct values {
	bool version;
};

static const struct pn_option options[] = {
	{ "version", PN_OPTION_BOOL, "no", "print version and revision",
	  offsetof(struct values, version), 0, 0, NULL },
};

static int run(const void *v, char *const *operands)
{
	const struct values *values = v;

	(void)operands;
	if (!values->version)
		return pn_usage_error(
			"name a command; `pinion --help` lists the commands");
	printf("pinion %s (%s)\n", pinion_version(), PN_REVISION);
	return PN_EXIT_OK;
}

static const struct pn_command *const commands[] = {
	&pn_cmd_info,	&pn_cmd_config,	   &pn_cmd_bench,
	&pn_cmd_demo,	&pn_cmd_explain,   &pn_cmd_trace,
	&pn_cmd_sim,	&pn_cmd_run,	   &pn_cmd_mpirun,
	&pn_cmd_report, &pn_cmd_reproduce, &pn_cmd_stat,
	&pn_cmd_top,	&pn_cmd_help,	   NULL,
};

const struct pn_command pn_cmd_pinion = {
	.name = "pinion",
	.help = "RDMA memory registration that disappears: what there is, what "
		"it costs here",
	.about = "`pinion help COMMAND` and pinion(1) describe each command; "
		 "pinion(7) lists the environment variables.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.subs = commands,
	.run = run,
};

int main(int argc, char **argv)
{
	return pn_command_run(&pn_cmd_pinion, argc, argv);
}
