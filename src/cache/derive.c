/* SPDX-License-Identifier: BSD-2-Clause */
#include "cache/derive.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/compiler.h"

/* If other processes leave nothing: the kernel decides in the end, and the
 * others may end. */
#define LEAST_BYTES ((size_t)64 << 10)

/* --- control groups ------------------------------------------------------- */

/* "max" is no number. */
static size_t read_bytes(FILE *file, const void *arg)
{
	unsigned long long max = 0;

	(void)arg;
	return fscanf(file, "%llu", &max) == 1 && max && max < SIZE_MAX
		       ? (size_t)max
		       : SIZE_MAX;
}

size_t pn_derive_cgroup_bytes(const char *groups, const char *mount)
{
	const struct pn_cgroup_limit limit = { .controller = "memory",
					       .file = "memory.max",
					       .file_v1 =
						       "memory.limit_in_bytes",
					       .read = read_bytes };

	return pn_cgroup_least(&limit, groups, mount);
}

/* --- limits ------------------------------------------------------------- */

static size_t machine_bytes(void)
{
	struct sysinfo info;

	return sysinfo(&info) ? SIZE_MAX : info.totalram * info.mem_unit;
}

unsigned pn_derive_processes(void)
{
	static const char *const names[] = { "OMPI_COMM_WORLD_LOCAL_SIZE",
					     "MPI_LOCALNRANKS",
					     "SLURM_NTASKS_PER_NODE",
					     "MV2_COMM_WORLD_LOCAL_SIZE" };

	for (size_t i = 0; i < PN_ARRAY_LEN(names); i++) {
		const char *value = getenv(names[i]);
		int n = value ? atoi(value) : 0;

		if (n > 0)
			return (unsigned)n;
	}
	return 1;
}

/* The number behind a name in the text of a status file; 0: not there. */
static size_t number_of(const char *text, const char *name)
{
	const char *line = strstr(text, name);

	return line ? strtoull(line + strlen(name), NULL, 10) : 0;
}

/* What a process has pinned if it is of the user; 0: also when it has ended. */
static size_t pinned_by(const char *proc, const char *pid, uid_t user)
{
	char path[PATH_MAX], text[4096];
	size_t n = 0;
	FILE *f = NULL;

	if (snprintf(path, sizeof(path), "%s/%s/status", proc, pid) <
	    (int)sizeof(path))
		f = fopen(path, "re");
	if (f) {
		n = fread(text, 1, sizeof(text) - 1, f);
		fclose(f);
	}
	text[n] = '\0';
	return strstr(text, "\nUid:") && number_of(text, "\nUid:") == user
		       ? number_of(text, "\nVmPin:") * 1024
		       : 0;
}

size_t pn_derive_others_bytes(const char *proc)
{
	const struct dirent *entry;
	DIR *dir = opendir(proc);
	uid_t user = getuid();
	size_t sum = 0;

	while (dir && (entry = readdir(dir)))
		if (isdigit((unsigned char)entry->d_name[0]) &&
		    atoi(entry->d_name) != getpid())
			sum += pinned_by(proc, entry->d_name, user);
	if (dir)
		closedir(dir);
	return sum;
}

/* Three quarters of a limit that makes pinning fail: the device needs some for
 * itself, and more processes may come. The share of a process is also bounded
 * by what others leave: not all of them are of this job. */
static size_t derive_hard(const struct pn_derive *from)
{
	size_t share = from->hard / from->nprocesses, others;

	if (from->hard == SIZE_MAX)
		return SIZE_MAX;
	if (from->by_user) {
		others = pn_derive_others_bytes("/proc");
		share = pn_min_size(share, others < from->hard
						   ? from->hard - others
						   : 0);
	}
	share = share / 4 * 3;
	return share > LEAST_BYTES ? share : LEAST_BYTES;
}

/* Half of the memory, since the program needs some that is not pinned. */
size_t pn_derive_bytes(const struct pn_derive *from, const char **why)
{
	size_t hard = derive_hard(from);
	size_t cgroup =
		pn_derive_cgroup_bytes(PN_CGROUP_GROUPS, PN_CGROUP_MOUNT);
	size_t machine = machine_bytes();
	size_t half = pn_min_size(cgroup, machine) / 2 / from->nprocesses;

	if (hard > half)
		*why = cgroup <= machine ? "half of the cgroup's memory"
					 : "half of the machine's memory";
	else if (from->by_user)
		*why = "three quarters of what other processes of the user "
		       "leave of RLIMIT_MEMLOCK";
	else
		*why = "three quarters of what the device may pin";
	return pn_min_size(hard, half);
}

void pn_derive_add(struct pn_derive *from,
		   const struct pn_device_limits *limits)
{
	if (limits->max_pinned_bytes < from->hard)
		*from = (struct pn_derive){ limits->max_pinned_bytes,
					    limits->pinned_by_user,
					    from->nprocesses };
	else if (limits->max_pinned_bytes == from->hard)
		from->by_user |= limits->pinned_by_user;
}
