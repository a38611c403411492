/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/cgroup.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

static size_t limit_in(const struct pn_cgroup_limit *limit, const char *root,
		       const char *group, const char *file)
{
	size_t found = SIZE_MAX;
	char path[PATH_MAX];
	FILE *f;

	if (snprintf(path, sizeof(path), "%s%s/%s", root, group, file) >=
	    (int)sizeof(path))
		return SIZE_MAX;
	f = fopen(path, "re");
	if (f) {
		found = limit->read(f, limit->arg);
		fclose(f);
	}
	return found;
}

static size_t least_limit(const struct pn_cgroup_limit *limit, const char *root,
			  char *group, const char *file)
{
	size_t least = limit_in(limit, root, "", file);

	while (*group) {
		least = pn_min_size(least, limit_in(limit, root, group, file));
		*strrchr(group, '/') = '\0';
	}
	return least;
}

/* One line of /proc/self/cgroup: "0::/group" of version 2, or "7:memory:/group"
 * of version 1, with other controllers beside memory. "/" names the root,
 * unlike "/a". A path without a leading slash is ignored. */
static size_t limit_of_line(const struct pn_cgroup_limit *limit, char *line,
			    const char *mount)
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
		return least_limit(limit, mount, group, limit->file);
	if (strcmp(controllers + 1, limit->controller))
		return SIZE_MAX;
	if (snprintf(root, sizeof(root), "%s/%s", mount, limit->controller) >=
	    (int)sizeof(root))
		return SIZE_MAX;
	return least_limit(limit, root, group, limit->file_v1);
}

size_t pn_cgroup_least(const struct pn_cgroup_limit *limit, const char *groups,
		       const char *mount)
{
	size_t least = SIZE_MAX;
	char line[PATH_MAX];
	FILE *f = fopen(groups, "re");

	while (f && fgets(line, sizeof(line), f))
		least = pn_min_size(least, limit_of_line(limit, line, mount));
	if (f)
		fclose(f);
	return least;
}

/* One line for each adapter: "mlx5_0 hca_handle=2 hca_object=2000". */
static size_t read_objects(FILE *file, const void *arg)
{
	const char *adapter = arg, *at;
	size_t n = strlen(adapter), objects = SIZE_MAX;
	char line[256];

	while (fgets(line, sizeof(line), file)) {
		unsigned long long value;

		at = strstr(line, "hca_object=");
		if (!strncmp(line, adapter, n) && line[n] == ' ' && at &&
		    sscanf(at, "hca_object=%llu", &value) == 1)
			objects = (size_t)value;
	}
	return objects;
}

size_t pn_cgroup_rdma_objects(const char *adapter, const char *groups,
			      const char *mount)
{
	const struct pn_cgroup_limit limit = { .controller = "rdma",
					       .file = "rdma.max",
					       .file_v1 = "rdma.max",
					       .read = read_objects,
					       .arg = adapter };

	return pn_cgroup_least(&limit, groups, mount);
}
