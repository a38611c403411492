/* SPDX-License-Identifier: BSD-2-Clause */
/* Where workers run: on the CPUs near the GPU that the process may use. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

#include "copy/copy_impl.h"

/* Adds the CPUs of one entry, "4" or "0-3"; returns what follows. */
static const char *add_entry(const char *at, cpu_set_t *out)
{
	char *end;
	unsigned long first = strtoul(at, &end, 10), last = first;

	if (end == at)
		return "";
	if (*end == '-')
		last = strtoul(end + 1, &end, 10);
	for (unsigned long cpu = first; cpu <= last && cpu < CPU_SETSIZE; cpu++)
		CPU_SET(cpu, out);
	return *end == ',' ? end + 1 : "";
}

/* Reads a file of the device in sysfs; false: there is none. */
static bool read_file(const char *bus_id, const char *name, char *out,
		      int bytes)
{
	char path[128];
	bool ok;
	FILE *file;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", bus_id,
		 name);
	/* CUDA writes the number in capitals. */
	for (char *c = path; *c; c++)
		*c = (char)tolower(*c);
	file = fopen(path, "re");
	if (!file)
		return false;
	ok = fgets(out, bytes, file);
	fclose(file);
	return ok;
}

bool pn_copy_cpus_near(const char *bus_id, cpu_set_t *out)
{
	cpu_set_t near, mine;
	char text[1024];
	const char *list = text;

	if (!bus_id || !read_file(bus_id, "local_cpulist", text, sizeof(text)))
		return false;
	CPU_ZERO(&near);
	while (*list)
		list = add_entry(list, &near);
	if (sched_getaffinity(0, sizeof(mine), &mine))
		return false;
	CPU_AND(out, &near, &mine);
	return CPU_COUNT(out);
}

int pn_copy_node_of(const char *bus_id)
{
	char text[16];

	return bus_id && read_file(bus_id, "numa_node", text, sizeof(text))
		       ? atoi(text)
		       : -1;
}

unsigned pn_copy_ncores(void)
{
	cpu_set_t mine;

	if (sched_getaffinity(0, sizeof(mine), &mine))
		return 1;
	return (unsigned)CPU_COUNT(&mine);
}
