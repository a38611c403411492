/* SPDX-License-Identifier: BSD-2-Clause */
#include "helper/cores.h"

#include <errno.h>
#include <sched.h>
#ifdef PN_HWLOC
#include <hwloc.h>
#endif

#include "base/log.h"

#ifdef PN_HWLOC

/* Adds the cores of which the set has a CPU. A core's number is that of its
 * first CPU in the whole topology, whether this process sees that CPU or not.
 */
static void add_cores(hwloc_topology_t topology, hwloc_const_bitmap_t cpus,
		      struct pn_cores *out)
{
	hwloc_obj_t core = NULL;
	int cpu;

	while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE,
						  core)))
		if (hwloc_bitmap_intersects(core->cpuset, cpus))
			pn_cores_add(out, (unsigned)hwloc_bitmap_first(
						  core->complete_cpuset));
	if (hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0)
		return;
	/* Some virtual machines show CPUs and no cores. */
	hwloc_bitmap_foreach_begin(cpu, cpus) pn_cores_add(out, (unsigned)cpu);
	hwloc_bitmap_foreach_end();
}

/* Loads the topology without caches and devices, which take long to find. */
static int load_topology(hwloc_topology_t *out)
{
	if (hwloc_topology_init(out))
		return -ENOMEM;
	hwloc_topology_set_all_types_filter(*out, HWLOC_TYPE_FILTER_KEEP_NONE);
	hwloc_topology_set_type_filter(*out, HWLOC_OBJ_CORE,
				       HWLOC_TYPE_FILTER_KEEP_ALL);
	if (!hwloc_topology_load(*out))
		return 0;
	hwloc_topology_destroy(*out);
	return -ENOTSUP;
}

static int find_cores(struct pn_cores *out)
{
	hwloc_bitmap_t bound = hwloc_bitmap_alloc();
	hwloc_topology_t topology;
	int ret = bound ? load_topology(&topology) : -ENOMEM;

	if (!ret) {
		if (hwloc_get_cpubind(topology, bound, HWLOC_CPUBIND_THREAD))
			hwloc_bitmap_copy(bound,
					  hwloc_topology_get_allowed_cpuset(
						  topology));
		hwloc_bitmap_and(bound, bound,
				 hwloc_topology_get_allowed_cpuset(topology));
		add_cores(topology, bound, out);
		hwloc_topology_destroy(topology);
	}
	hwloc_bitmap_free(bound);
	return ret;
}

#else

static int find_cores(struct pn_cores *out)
{
	cpu_set_t cpus[PN_CORES_MAX / CPU_SETSIZE];

	if (sched_getaffinity(0, sizeof(cpus), cpus))
		return -ENOTSUP;
	for (unsigned i = 0; i < PN_CORES_MAX; i++)
		if (CPU_ISSET_S(i, sizeof(cpus), cpus))
			pn_cores_add(out, i);
	return 0;
}

#endif

int pn_cores_mine(struct pn_cores *out)
{
	struct pn_cores cores = { 0 };
	int ret = find_cores(&cores);

	if (ret) {
		pn_warn("cannot find out on which cores this process may run; "
			"set helper=own, which does not need to know");
		return ret;
	}
	*out = cores;
	return 0;
}
