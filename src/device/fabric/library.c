/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/fabric/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

#include "base/compiler.h"
#include "base/lock.h"

#define LIBRARY "libfabric.so.1"

static struct {
	struct pn_mutex lock; /* protects all */
	void *handle;
	struct pn_fabric_library library;
} the = { .lock = { PTHREAD_MUTEX_INITIALIZER } };

static const struct {
	const char *name;
	size_t offset;
} symbols[] = {
	{ "fi_version", offsetof(struct pn_fabric_library, version) },
	{ "fi_getinfo", offsetof(struct pn_fabric_library, getinfo) },
	{ "fi_freeinfo", offsetof(struct pn_fabric_library, freeinfo) },
	{ "fi_dupinfo", offsetof(struct pn_fabric_library, dupinfo) },
	{ "fi_fabric", offsetof(struct pn_fabric_library, fabric) },
	{ "fi_strerror", offsetof(struct pn_fabric_library, strerror) },
};

static int look_up(void)
{
	for (size_t i = 0; i < PN_ARRAY_LEN(symbols); i++) {
		void *symbol = dlsym(the.handle, symbols[i].name);

		if (!symbol)
			return -ENOSYS;
		*(void **)((char *)&the.library + symbols[i].offset) = symbol;
	}
	return FI_VERSION_GE(the.library.version(), FI_VERSION(1, 17))
		       ? 0
		       : -ENOSYS;
}

int pn_fabric_library_open(const struct pn_fabric_library **out)
{
	int ret = 0;

	pn_lock(&the.lock);
	if (!the.handle) {
		the.handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
		ret = the.handle ? look_up() : -ENOSYS;
		if (the.handle && ret) {
			dlclose(the.handle);
			the.handle = NULL;
		}
	}
	pn_unlock(&the.lock);
	*out = &the.library;
	return ret;
}
