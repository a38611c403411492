/* SPDX-License-Identifier: BSD-2-Clause */
#include "cache/budget.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

static size_t smaller(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* What the cgroup (version 2) of this process may use, or SIZE_MAX. */
static size_t cgroup_bytes(void)
{
	char line[512], path[640];
	unsigned long long max = 0;
	FILE *f = fopen("/proc/self/cgroup", "re");
	int found = 0;

	if (!f)
		return SIZE_MAX;
	while (!found && fgets(line, sizeof(line), f))
		found = sscanf(line, "0::%511s", line) == 1;
	fclose(f);
	if (!found)
		return SIZE_MAX;
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", line);
	f = fopen(path, "re");
	if (!f)
		return SIZE_MAX;
	/* "max" is no number. */
	found = fscanf(f, "%llu", &max);
	fclose(f);
	return found == 1 && max ? (size_t)max : SIZE_MAX;
}

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

/* Three quarters of a limit that fails hard, leaving room for the device's
 * own needs; half of memory, since the program wants some of it unpinned. */
static size_t derive_bytes(struct pn_budget *budget)
{
	size_t hard = budget->devices[0]->limits.max_pinned_bytes;
	size_t cgroup = cgroup_bytes(), machine = machine_bytes();
	size_t half = smaller(cgroup, machine) / 2;

	if (hard != SIZE_MAX)
		hard = hard / 4 * 3;
	if (hard <= half)
		budget->derived_from = "three quarters of what the device may "
				       "pin";
	else if (cgroup <= machine)
		budget->derived_from = "half of the cgroup's memory";
	else
		budget->derived_from = "half of the machine's memory";
	return smaller(hard, half) / budget->nprocesses;
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
	if (!max_bytes)
		max_bytes = derive_bytes(budget);
	if (!max_regions || max_regions > most)
		max_regions = most;
	atomic_init(&budget->max_bytes, max_bytes);
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
	if (atomic_load(&budget->max_regions) == before)
		atomic_store(&budget->max_regions, most_regions(budget));
}

void pn_budget_look(struct pn_budget *budget)
{
	struct pn_pinned pinned;
	size_t late = 0;

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
	if (max_bytes)
		atomic_store(&budget->max_bytes, max_bytes);
	if (max_regions)
		atomic_store(&budget->max_regions,
			     smaller(max_regions, most_regions(budget)));
}
