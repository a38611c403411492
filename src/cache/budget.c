/* SPDX-License-Identifier: BSD-2-Clause */
#include "cache/budget.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/clock.h"

/* Where others leave nothing: the kernel has the last word, and may change its
 * mind. */
#define LEAST_BYTES ((size_t)64 << 10)

/* Values of look_ns: somebody is at it; below, a time. */
#define LOOKING (PN_FOREVER - 1)

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* --- control groups ------------------------------------------------------- */

/* The number in a group's file, or SIZE_MAX: "max" is no number. */
static size_t limit_in(const char *root, const char *group, const char *file)
{
	unsigned long long max = 0;
	char path[PATH_MAX];
	int found = 0;
	FILE *f;

	if (snprintf(path, sizeof(path), "%s%s/%s", root, group, file) >=
	    (int)sizeof(path))
		return SIZE_MAX;
	f = fopen(path, "re");
	if (f) {
		found = fscanf(f, "%llu", &max);
		fclose(f);
	}
	return found == 1 && max && max < SIZE_MAX ? (size_t)max : SIZE_MAX;
}

/* The smallest limit from a group up to the root: a job's limit mostly stands
 * above the step or service that the process is in. */
static size_t least_limit(const char *root, char *group, const char *file)
{
	size_t least = limit_in(root, "", file);

	while (*group) {
		least = smaller(least, limit_in(root, group, file));
		*strrchr(group, '/') = '\0';
	}
	return least;
}

/* One line of /proc/self/cgroup: "0::/group" of version 2, or of version 1
 * "7:memory:/group" with other names beside memory. Unlike "/a", "/" names the
 * root; what does not begin with a slash is none of ours. */
static size_t limit_of_line(char *line, const char *mount)
{
	char root[PATH_MAX], *controllers = strchr(line, ':'), *group;
	bool v2 = !strncmp(line, "0::", 3);

	group = controllers ? strchr(controllers + 1, ':') : NULL;
	if (!group || group[1] != '/')
		return SIZE_MAX;
	*group++ = '\0';
	group[strcspn(group, "\n")] = '\0';
	if (!group[1])
		*group = '\0';
	if (v2)
		return least_limit(mount, group, "memory.max");
	if (strcmp(controllers + 1, "memory"))
		return SIZE_MAX;
	if (snprintf(root, sizeof(root), "%s/memory", mount) >=
	    (int)sizeof(root))
		return SIZE_MAX;
	return least_limit(root, group, "memory.limit_in_bytes");
}

size_t pn_budget_cgroup_bytes(const char *groups, const char *mount)
{
	size_t least = SIZE_MAX;
	char line[PATH_MAX];
	FILE *f = fopen(groups, "re");

	while (f && fgets(line, sizeof(line), f))
		least = smaller(least, limit_of_line(line, mount));
	if (f)
		fclose(f);
	return least;
}

/* --- what there may be ---------------------------------------------------- */

static size_t machine_bytes(void)
{
	struct sysinfo info;

	return sysinfo(&info) ? SIZE_MAX : info.totalram * info.mem_unit;
}

/* Processes of this job on this node, as launchers tell. */
static unsigned local_processes(void)
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

/* What a process has pinned if it is the user's; 0 also when it is gone. */
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

size_t pn_budget_others_bytes(const char *proc)
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

/* Three quarters of a limit that fails hard, leaving room for the device's own
 * needs and for processes to come. The share of a process is also bounded by
 * what others leave: not all of them are of this job. */
static size_t derive_hard(const struct pn_budget *budget)
{
	const struct pn_device_limits *limits = &budget->devices[0]->limits;
	size_t hard = limits->max_pinned_bytes;
	size_t share = hard / budget->nprocesses, others;

	if (hard == SIZE_MAX)
		return SIZE_MAX;
	if (limits->pinned_by_user) {
		others = pn_budget_others_bytes("/proc");
		share = smaller(share, others < hard ? hard - others : 0);
	}
	share = share / 4 * 3;
	return share > LEAST_BYTES ? share : LEAST_BYTES;
}

/* Half of memory, since the program wants some of it unpinned. */
static size_t derive_bytes(struct pn_budget *budget)
{
	const struct pn_device_limits *limits = &budget->devices[0]->limits;
	size_t hard = derive_hard(budget);
	size_t cgroup =
		pn_budget_cgroup_bytes("/proc/self/cgroup", "/sys/fs/cgroup");
	size_t machine = machine_bytes();
	size_t half = smaller(cgroup, machine) / 2 / budget->nprocesses;

	if (hard > half)
		budget->derived_from = cgroup <= machine
					       ? "half of the cgroup's memory"
					       : "half of the machine's memory";
	else if (limits->pinned_by_user)
		budget->derived_from = "three quarters of what other processes "
				       "of the user leave of RLIMIT_MEMLOCK";
	else
		budget->derived_from = "three quarters of what the device may "
				       "pin";
	return smaller(hard, half);
}

void pn_budget_init(struct pn_budget *budget, struct pn_device *device,
		    size_t max_bytes, size_t max_regions, unsigned nprocesses)
{
	size_t most = device->limits.max_mrs;

	*budget = (struct pn_budget){ .devices = { device },
				      .ndevices = 1,
				      .nprocesses = nprocesses };
	pn_list_init(&budget->caches);
	if (!nprocesses)
		budget->nprocesses = local_processes();
	atomic_init(&budget->look_ns, PN_FOREVER);
	if (!max_bytes) {
		max_bytes = derive_bytes(budget);
		if (device->limits.pinned_by_user &&
		    device->limits.max_pinned_bytes != SIZE_MAX)
			atomic_init(&budget->look_ns,
				    pn_clock_ns() + PN_NS_PER_S);
	}
	if (!max_regions || max_regions > most)
		max_regions = most;
	atomic_init(&budget->max_bytes, max_bytes);
	pn_account_init(&budget->account, max_bytes);
	device->account = &budget->account;
	atomic_init(&budget->max_regions, max_regions);
}

/* Adds n to *used unless that exceeds max - reserve. */
static bool take(_Atomic size_t *used, size_t n, size_t max, size_t reserve)
{
	size_t now = atomic_load_explicit(used, memory_order_relaxed);

	do {
		if (now > max || reserve > max - now || n > max - now - reserve)
			return false;
	} while (!atomic_compare_exchange_weak(used, &now, now + n));
	return true;
}

static void note_peak(struct pn_budget *budget)
{
	size_t now = atomic_load(&budget->bytes);
	size_t peak = atomic_load(&budget->peak_bytes);

	while (now > peak &&
	       !atomic_compare_exchange_weak(&budget->peak_bytes, &peak, now))
		;
}

static size_t most_regions(const struct pn_budget *budget)
{
	size_t most = 0;

	for (unsigned i = 0; i < budget->ndevices; i++)
		if (__builtin_add_overflow(most,
					   budget->devices[i]->limits.max_mrs,
					   &most))
			return SIZE_MAX;
	return most;
}

/* A limit that was the devices' own grows with them. */
void pn_budget_add(struct pn_budget *budget, struct pn_device *device)
{
	size_t before = most_regions(budget);

	pn_assert(budget->ndevices < PN_RAILS_MAX);
	budget->devices[budget->ndevices++] = device;
	device->account = &budget->account;
	if (atomic_load(&budget->max_regions) == before)
		atomic_store(&budget->max_regions, most_regions(budget));
}

static void set_max_bytes(struct pn_budget *budget, size_t max_bytes)
{
	atomic_store(&budget->max_bytes, max_bytes);
	atomic_store(&budget->account.max_bytes, max_bytes);
}

/* One thread at a time, and for a hundredth of the time at most: there may be
 * thousands of processes. */
static void look_at_others(struct pn_budget *budget)
{
	uint64_t start = pn_clock_ns(), due = atomic_load(&budget->look_ns);
	uint64_t took;

	if (start < due ||
	    !atomic_compare_exchange_strong(&budget->look_ns, &due, LOOKING))
		return;
	set_max_bytes(budget, derive_bytes(budget));
	took = pn_clock_ns() - start;
	took = took * 100 > PN_NS_PER_S ? took * 100 : PN_NS_PER_S;
	due = LOOKING;
	/* A resize meanwhile has the last word. */
	atomic_compare_exchange_strong(&budget->look_ns, &due, start + took);
}

void pn_budget_refused(struct pn_budget *budget)
{
	uint64_t due = atomic_load(&budget->look_ns);

	if (due < LOOKING)
		atomic_compare_exchange_strong(&budget->look_ns, &due, 0);
}

void pn_budget_look(struct pn_budget *budget)
{
	struct pn_pinned pinned;
	size_t late = 0;

	if (pn_unlikely(atomic_load_explicit(&budget->look_ns,
					     memory_order_relaxed) < LOOKING))
		look_at_others(budget);

	for (unsigned i = 0; i < budget->ndevices; i++) {
		pn_device_pinned(budget->devices[i], &pinned);
		late += pinned.dying_bytes;
	}
	atomic_store(&budget->late_bytes, late);
}

bool pn_budget_take(struct pn_budget *budget, size_t bytes, size_t regions)
{
	if (!take(&budget->bytes, bytes, atomic_load(&budget->max_bytes),
		  atomic_load(&budget->late_bytes)))
		return false;
	if (!take(&budget->regions, regions, atomic_load(&budget->max_regions),
		  0)) {
		atomic_fetch_sub(&budget->bytes, bytes);
		return false;
	}
	note_peak(budget);
	return true;
}

void pn_budget_give(struct pn_budget *budget, size_t bytes, size_t regions)
{
	atomic_fetch_sub(&budget->bytes, bytes);
	atomic_fetch_sub(&budget->regions, regions);
}

void pn_budget_resize(struct pn_budget *budget, size_t max_bytes,
		      size_t max_regions)
{
	if (max_bytes) {
		atomic_store(&budget->look_ns, PN_FOREVER);
		set_max_bytes(budget, max_bytes);
	}
	if (max_regions)
		atomic_store(&budget->max_regions,
			     smaller(max_regions, most_regions(budget)));
}
