/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many registrations pinion may keep of an adapter: the contexts of all
 * domains and kinds together leave room for objects of the program. Adapters
 * are few and stay in the list: their names come again.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "base/lock.h"
#include "device/verbs_access.h"
#include "preload/verbs/preload.h"

struct pn_ibv_objects {
	struct pn_ibv_objects *next;
	char name[IBV_SYSFS_NAME_MAX];
	_Atomic size_t n, max;
};

static struct pn_mutex lock = { PTHREAD_MUTEX_INITIALIZER };
static struct pn_ibv_objects *adapters PN_GUARDED_BY(&lock);

static struct pn_ibv_objects *find_locked(const char *name) PN_REQUIRES(&lock)
{
	struct pn_ibv_objects *objects = adapters;

	while (objects && strcmp(objects->name, name))
		objects = objects->next;
	if (objects)
		return objects;
	objects = calloc(1, sizeof(*objects));
	if (!objects)
		return NULL;
	strcpy(objects->name, name);
	objects->next = adapters;
	adapters = objects;
	return objects;
}

struct pn_ibv_objects *pn_ibv_objects_of(const struct ibv_context *adapter,
					 const struct ibv_device_attr *attr)
{
	const char *name = adapter->device->name;
	struct pn_ibv_objects *objects;

	pn_lock(&lock);
	objects = find_locked(name);
	pn_unlock(&lock);
	if (objects)
		atomic_store(&objects->max, pn_verbs_max_mrs(attr, name));
	return objects;
}

size_t pn_ibv_objects_max(const struct pn_ibv_objects *objects)
{
	return atomic_load(&objects->max);
}

bool pn_ibv_object_get(struct pn_ibv_objects *objects)
{
	if (atomic_fetch_add(&objects->n, 1) < atomic_load(&objects->max))
		return true;
	atomic_fetch_sub(&objects->n, 1);
	return false;
}

void pn_ibv_object_put(struct pn_ibv_objects *objects)
{
	atomic_fetch_sub(&objects->n, 1);
}

/* `users` was held for writing: nobody had the lock. */
void pn_ibv_objects_in_child(void) PN_NO_THREAD_SAFETY
{
	for (struct pn_ibv_objects *o = adapters; o; o = o->next)
		atomic_store(&o->n, 0);
}
