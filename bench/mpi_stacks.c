/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/mpi_stacks.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "config/option.h"
#include "tools/pinion/words.h"

#define PROGRAM "mpi_patterns"
#define OPENMPI "mpirun.openmpi --oversubscribe "

static const struct launcher {
	const char *name, *line; /* NULL: this command */
} launchers[] = {
	{ "pinion", NULL },
	{ "vader",
	  OPENMPI "--mca osc ^ucx --mca pml ob1 --mca btl self,vader" },
	/* Without these two, pml/ucx wants a network adapter. */
	{ "ucx", OPENMPI "--mca pml ucx --mca pml_ucx_tls any "
			 "--mca pml_ucx_devices any" },
	{ "tcp",
	  "FI_PROVIDER='tcp;ofi_rxm' " OPENMPI
	  "--mca osc ^ucx --mca pml cm --mca mtl ofi --mca btl self "
	  "--mca mtl_ofi_provider_include 'tcp;ofi_rxm' -x FI_PROVIDER" },
	{ "mpich", "mpiexec.hydra -bind-to core" },
};

#define VARIANT	   "pinion:"
#define PINION_ROW 0
#define MPICH_ROW  4

/* --- parsing -------------------------------------------------------------- */

static const struct pn_option *option_of(const char *name, size_t len)
{
	size_t n;
	const struct pn_option *table = pn_config_table(&n);

	return pn_option_find(table, n, name, len);
}

static bool is_protocol(const char *name, size_t len)
{
	const char *const *c = option_of("protocol", 8)->choices;

	while (*c && (strncmp(*c, name, len) || (*c)[len]))
		c++;
	return *c;
}

/* Is a text "PROTOCOL" or "OPTION=VALUE+OPTION=VALUE"? */
static bool are_settings(const char *text)
{
	for (const char *s = text; s; s = strchr(s, '+')) {
		size_t len, name;

		s += *s == '+';
		len = strcspn(s, "+");
		name = strcspn(s, "=");
		if (name < len ? !option_of(s, name) : !is_protocol(s, len))
			return false;
	}
	return true;
}

static int add(struct pn_mpi_stacks *stacks, const char *name, size_t len)
{
	struct pn_mpi_stack *s = &stacks->all[stacks->n];
	unsigned row = 0;

	if (stacks->n == PN_COMPARISON_COMMANDS || len >= sizeof(s->name))
		return -EINVAL;
	snprintf(s->name, sizeof(s->name), "%.*s", (int)len, name);
	if (!strncmp(s->name, VARIANT, strlen(VARIANT))) {
		s->kind = PN_MPI_VARIANT;
		if (!are_settings(s->name + strlen(VARIANT)))
			return -EINVAL;
	} else {
		while (strcmp(launchers[row].name, s->name))
			if (++row == PN_ARRAY_LEN(launchers))
				return -EINVAL;
		s->kind = row ? PN_MPI_PEER : PN_MPI_PINION;
	}
	s->row = row;
	stacks->n++;
	return 0;
}

/* All but eager, which is for short messages, and auto. */
static int add_fixed(struct pn_mpi_stacks *stacks)
{
	const struct pn_option *protocol = option_of("protocol", 8);
	char name[PN_MPI_STACK_NAME];
	int ret = 0;

	for (const char *const *c = protocol->choices; !ret && *c; c++) {
		if (!strcmp(*c, "eager") || !strcmp(*c, "auto"))
			continue;
		snprintf(name, sizeof(name), VARIANT "%s", *c);
		ret = add(stacks, name, strlen(name));
	}
	return ret;
}

static int refuse(const char *name, int ret)
{
	fprintf(stderr,
		"pinion: no stack '%s', or too many; there are pinion, "
		"pinion:PROTOCOL, pinion:NAME=VALUE, fixed, vader, ucx, tcp, "
		"mpich\n",
		name);
	return ret;
}

static int add_all(struct pn_mpi_stacks *stacks, const char *list)
{
	char word[PN_WORD_BYTES];

	while (pn_words_next(&list, word)) {
		int ret = strcmp(word, "fixed")
				  ? add(stacks, word, strlen(word))
				  : add_fixed(stacks);

		if (ret)
			return refuse(word, ret);
	}
	return *list || !stacks->n ? refuse(list, -EINVAL) : 0;
}

int pn_mpi_stacks_parse(struct pn_mpi_stacks *stacks, const char *list)
{
	int ret = pn_paths_find(&stacks->place);

	if (!ret)
		ret = pn_paths_program(PROGRAM, stacks->openmpi);
	if (ret)
		return ret;
	if (pn_paths_program(PROGRAM "_mpich", stacks->mpich))
		stacks->mpich[0] = '\0';
	return add_all(stacks, list);
}

/* --- the command line ----------------------------------------------------- */

/* Appends a variable of the environment for "copy" or "reuse=on", of length
 * len; returns the length of the result. */
static size_t format_setting(const char *setting, size_t len, char *out,
			     size_t room)
{
	size_t name = strcspn(setting, "=");
	char variable[PN_MPI_STACK_NAME] = "PROTOCOL";

	if (name >= len)
		return (size_t)snprintf(out, room, "PINION_%s='%.*s' ",
					variable, (int)len, setting);
	for (size_t i = 0; i <= name; i++)
		variable[i] = i < name ? (char)toupper(setting[i]) : '\0';
	return (size_t)snprintf(out, room, "PINION_%s='%.*s' ", variable,
				(int)(len - name - 1), setting + name + 1);
}

static void format_settings(const char *settings, char *out, size_t room)
{
	size_t n = 0;

	for (const char *s = settings; s; s = strchr(s, '+')) {
		s += *s == '+';
		n += format_setting(s, strcspn(s, "+"), out + n, room - n);
	}
}

int pn_mpi_stack_line(const struct pn_mpi_stacks *stacks, unsigned stack,
		      const struct pn_mpi_job *job,
		      char line[PN_MPI_LINE_BYTES])
{
	const struct pn_mpi_stack *s = &stacks->all[stack];
	char settings[8 * PN_MPI_STACK_NAME] = "", launch[2 * PN_PATH_BYTES];
	bool mpich = s->row == MPICH_ROW;

	if (mpich && job->program)
		return -ENOTSUP;
	if (s->kind == PN_MPI_VARIANT)
		format_settings(s->name + strlen(VARIANT), settings,
				sizeof(settings));
	if (s->row == PINION_ROW)
		snprintf(launch, sizeof(launch),
			 "%s'%s' mpirun --oversubscribe", settings,
			 stacks->place.command);
	else
		snprintf(launch, sizeof(launch), "%s", launchers[s->row].line);
	return snprintf(line, PN_MPI_LINE_BYTES, "%s -n %u %s%s%s %s", launch,
			job->ranks, job->program ? "" : "'",
			job->program ? job->program
			: mpich	     ? stacks->mpich
				     : stacks->openmpi,
			job->program ? "" : "'",
			job->arguments) < PN_MPI_LINE_BYTES
		       ? 0
		       : -ENAMETOOLONG;
}

/* --- which run here ------------------------------------------------------- */

static bool runs(const struct pn_mpi_stacks *stacks, unsigned stack)
{
	const struct pn_mpi_job job = { .ranks = 2, .arguments = "none" };
	char line[PN_MPI_LINE_BYTES], quiet[PN_MPI_LINE_BYTES + 32];

	if (stacks->all[stack].row == MPICH_ROW && !stacks->mpich[0])
		return false;
	if (pn_mpi_stack_line(stacks, stack, &job, line))
		return false;
	snprintf(quiet, sizeof(quiet), "(%s) >/dev/null 2>&1", line);
	for (int i = 0; i < PN_MPI_TRIES; i++)
		if (!system(quiet))
			return true;
	return false;
}

void pn_mpi_stacks_probe(struct pn_mpi_stacks *stacks,
			 void (*removed)(void *arg, const char *name),
			 void *arg)
{
	unsigned n = 0;

	for (unsigned k = 0; k < stacks->n; k++) {
		if (stacks->all[k].kind == PN_MPI_PEER && !runs(stacks, k))
			removed(arg, stacks->all[k].name);
		else
			stacks->all[n++] = stacks->all[k];
	}
	stacks->n = n;
}

unsigned pn_mpi_stacks_of(const struct pn_mpi_stacks *stacks,
			  enum pn_mpi_kind kind)
{
	unsigned set = 0;

	for (unsigned k = 0; k < stacks->n; k++)
		set |= (unsigned)(stacks->all[k].kind == kind) << k;
	return set;
}
