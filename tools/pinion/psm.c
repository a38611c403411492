/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/psm.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_BYTES (64 << 10)

static bool exists(const char *pattern)
{
	glob_t found = { 0 };
	bool any = !glob(pattern, 0, NULL, &found);

	globfree(&found);
	return any;
}

/* The child: has the dynamic linker list what this command and the provider
 * would load, and what is missing. */
static _Noreturn void list(const struct pn_paths *place, const char *stand_ins,
			   int out)
{
	char *preload;

	if (dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0 ||
	    asprintf(&preload, "%s:%s/" PN_PROVIDER, stand_ins,
		     place->provider_dir) < 0 ||
	    setenv("LD_PRELOAD", preload, 1) || setenv("LD_BIND_NOW", "1", 1) ||
	    setenv("LD_WARN", "1", 1) ||
	    setenv("LD_TRACE_LOADED_OBJECTS", "1", 1))
		_exit(EXIT_FAILURE);
	execl(place->command, place->command, "--version", (char *)NULL);
	_exit(EXIT_FAILURE);
}

/* Reads to the end; false if the answer is too long. */
static bool read_all(int fd, char answer[ANSWER_BYTES])
{
	size_t n = 0;
	ssize_t got;

	while (n < ANSWER_BYTES - 1 &&
	       (got = read(fd, answer + n, ANSWER_BYTES - 1 - n)) > 0)
		n += (size_t)got;
	answer[n] = '\0';
	return n < ANSWER_BYTES - 1;
}

static bool ask(const struct pn_paths *place, const char *stand_ins,
		char answer[ANSWER_BYTES])
{
	int ends[2], status;
	bool whole;
	pid_t child;

	if (pipe(ends))
		return false;
	child = fork();
	if (!child) {
		close(ends[0]);
		list(place, stand_ins, ends[1]);
	}
	close(ends[1]);
	whole = child > 0 && read_all(ends[0], answer);
	close(ends[0]);
	return child > 0 && waitpid(child, &status, 0) == child && whole &&
	       !status;
}

/* Whether the stand-ins have all that libfabric needs. */
static bool fit(const struct pn_paths *place, const char *stand_ins)
{
	char *answer = malloc(ANSWER_BYTES);
	bool ok = answer && ask(place, stand_ins, answer) &&
		  strstr(answer, "libfabric.so") &&
		  !strstr(answer, "not found") &&
		  !strstr(answer, "undefined symbol") &&
		  !strstr(answer, "cannot be preloaded");

	free(answer);
	return ok;
}

char *pn_psm_stand_ins(const struct pn_paths *place)
{
	char *stand_ins;

	if (!*place->no_psm1 || !*place->no_psm2 || exists("/dev/hfi1*") ||
	    exists("/dev/ipath*") ||
	    asprintf(&stand_ins, "%s:%s", place->no_psm1, place->no_psm2) < 0)
		return NULL;
	if (fit(place, stand_ins))
		return stand_ins;
	free(stand_ins);
	return NULL;
}
