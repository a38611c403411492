/* SPDX-License-Identifier: BSD-2-Clause */
/* memory -- the GPU's memory, registrations and pointer attributes. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "standin_impl.h"

#define ALIGN	      ((size_t)512)
#define PAGE	      ((size_t)4096)
#define MAX_ALLOCATED 4096
#define CHUNK	      ((size_t)1 << 20)

struct allocation {
	uintptr_t at;
	size_t bytes;
	pn_cu_context context;
};

/* standin_lock. Both arrays are sorted by address. */
static struct {
	int fd;
	uintptr_t base; /* of all devices, one after another */
	size_t device_bytes;
	struct allocation allocations[MAX_ALLOCATED];
	unsigned nallocations;
	struct registration registrations[MAX_REGISTERED];
	unsigned nregistrations;
	uint64_t next_id, faults, pinned_pages;
	size_t registered_bytes;
} mem = { .fd = -1 };

int memory_init(void)
{
	size_t all;
	void *at;

	mem.device_bytes = (size_t)standin_option(OPT_MEMORY_MIB) << 20;
	all = mem.device_bytes * standin_option(OPT_DEVICES);
	mem.fd = memfd_create("standin", MFD_CLOEXEC);
	if (mem.fd < 0 || ftruncate(mem.fd, (off_t)all))
		return -errno;
	at = mmap(NULL, all, PROT_NONE,
		  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return -errno;
	mem.base = (uintptr_t)at;
	return pin_init(mem.fd);
}

/* --- finding -------------------------------------------------------------- */

/* The last registration that begins at or before `at`; NULL: none. */
static struct registration *registration_before(uintptr_t at)
{
	unsigned low = 0, high = mem.nregistrations;

	while (low < high) {
		unsigned middle = (low + high) / 2;

		if (mem.registrations[middle].at <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? &mem.registrations[low - 1] : NULL;
}

static struct registration *registration_at(uintptr_t at)
{
	struct registration *r = registration_before(at);

	return r && at - r->at < r->bytes ? r : NULL;
}

/* Whether a registration has a byte of the range. */
static bool overlaps_registration(uintptr_t at, size_t bytes)
{
	const struct registration *r = registration_before(at + bytes - 1);

	return r && r->at + r->bytes > at;
}

static struct allocation *allocation_at(uintptr_t at)
{
	for (unsigned i = 0; i < mem.nallocations; i++)
		if (at - mem.allocations[i].at < mem.allocations[i].bytes)
			return &mem.allocations[i];
	return NULL;
}

static bool is_device(uintptr_t at)
{
	return mem.base &&
	       at - mem.base < mem.device_bytes * standin_option(OPT_DEVICES);
}

enum where memory_where(uintptr_t at, size_t bytes, uint64_t *id)
{
	struct registration *r = registration_at(at);
	struct allocation *a;

	*id = 0;
	if (is_device(at)) {
		a = allocation_at(at);
		return a && bytes <= a->bytes - (at - a->at) ? DEVICE : INVALID;
	}
	if (r) {
		*id = r->id;
		return bytes <= r->bytes - (at - r->at) ? PINNED : INVALID;
	}
	return PAGEABLE;
}

/* --- moving bytes --------------------------------------------------------- */

static int find_pinned(struct memory_end end, struct registration *out)
{
	struct registration *r;
	int ret = -EFAULT;

	pthread_mutex_lock(&standin_lock);
	r = registration_at(end.at);
	if (r && r->id == end.id) {
		*out = *r;
		ret = 0;
	} else {
		mem.faults++;
	}
	pthread_mutex_unlock(&standin_lock);
	return ret;
}

static int move_pinned(struct memory_end host, uintptr_t device, size_t bytes,
		       bool to_memory)
{
	struct registration r;
	int ret = find_pinned(host, &r);

	if (ret)
		return ret;
	return pin_move(&(struct pin_move){ .slot = r.slot,
					    .base = r.at,
					    .offset = host.at - r.at,
					    .bytes = bytes,
					    .file_offset = device - mem.base,
					    .to_memory = to_memory });
}

static int write_memory(uintptr_t device, const char *from, size_t bytes)
{
	while (bytes) {
		ssize_t n =
			pwrite(mem.fd, from, bytes, (off_t)(device - mem.base));

		if (n <= 0)
			return n ? -errno : -EIO;
		device += (size_t)n;
		from += n;
		bytes -= (size_t)n;
	}
	return 0;
}

static int read_memory(uintptr_t device, char *to, size_t bytes)
{
	while (bytes) {
		ssize_t n =
			pread(mem.fd, to, bytes, (off_t)(device - mem.base));

		if (n <= 0)
			return n ? -errno : -EIO;
		device += (size_t)n;
		to += n;
		bytes -= (size_t)n;
	}
	return 0;
}

static int copy_within(uintptr_t dst, uintptr_t src, size_t bytes)
{
	char *chunk = malloc(CHUNK);
	int ret = 0;

	for (size_t done = 0; !ret && done < bytes; done += CHUNK) {
		size_t n = bytes - done < CHUNK ? bytes - done : CHUNK;

		ret = read_memory(src + done, chunk, n);
		if (!ret)
			ret = write_memory(dst + done, chunk, n);
	}
	free(chunk);
	return ret;
}

static void pretend_cost(size_t bytes)
{
	uint64_t rate = standin_option(OPT_COPY_MIB_S);

	standin_sleep_ns(standin_option(OPT_COPY_US) * 1000 +
			 (rate ? bytes * 1000 / rate * 1000 / 1049 : 0));
}

pn_cu_result memory_copy(struct memory_end dst, struct memory_end src,
			 size_t bytes)
{
	int ret;

	pretend_cost(bytes);
	if (is_device(dst.at) && is_device(src.at))
		ret = copy_within(dst.at, src.at, bytes);
	else if (is_device(dst.at))
		ret = src.id ? move_pinned(src, dst.at, bytes, true)
			     : write_memory(dst.at, (const char *)src.at,
					    bytes);
	else if (is_device(src.at))
		ret = dst.id ? move_pinned(dst, src.at, bytes, false)
			     : read_memory(src.at, (char *)dst.at, bytes);
	else
		ret = (memmove((void *)dst.at, (const void *)src.at, bytes), 0);
	return ret ? PN_CUDA_ERROR_ILLEGAL_ADDRESS : 0;
}

pn_cu_result memory_set(uintptr_t at, unsigned char value, size_t bytes)
{
	char *chunk = malloc(CHUNK);
	int ret = 0;

	memset(chunk, value, CHUNK);
	for (size_t done = 0; !ret && done < bytes; done += CHUNK)
		ret = write_memory(at + done, chunk,
				   bytes - done < CHUNK ? bytes - done : CHUNK);
	free(chunk);
	return ret ? PN_CUDA_ERROR_ILLEGAL_ADDRESS : 0;
}

/* --- the GPU's memory ----------------------------------------------------- */

static void insert_allocation(unsigned i, struct allocation a)
{
	memmove(&mem.allocations[i + 1], &mem.allocations[i],
		(mem.nallocations - i) * sizeof(a));
	mem.allocations[i] = a;
	mem.nallocations++;
}

static size_t used_locked(void)
{
	size_t used = 0;

	for (unsigned i = 0; i < mem.nallocations; i++)
		used += mem.allocations[i].bytes;
	return used;
}

pn_cu_result memory_check_reserve(void)
{
	size_t reserve = (size_t)standin_option(OPT_RESERVE_KIB) << 10;
	pn_cu_result result = 0;

	if (!reserve)
		return 0;
	pthread_mutex_lock(&standin_lock);
	if (used_locked() + reserve > mem.device_bytes)
		result = PN_CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&standin_lock);
	return result;
}

/* First fit in the device's part. */
static pn_cu_result allocate_locked(size_t bytes, uintptr_t *out)
{
	pn_cu_context context = standin_current();
	uintptr_t at = mem.base + (size_t)context->device * mem.device_bytes;
	uintptr_t end = at + mem.device_bytes;
	unsigned i = 0;

	bytes = (bytes + ALIGN - 1) & ~(ALIGN - 1);
	for (; i < mem.nallocations; i++) {
		const struct allocation *a = &mem.allocations[i];

		if (a->at < at)
			continue;
		if (a->at - at >= bytes)
			break;
		at = a->at + a->bytes;
	}
	if (at > end || end - at < bytes || mem.nallocations == MAX_ALLOCATED)
		return PN_CUDA_ERROR_OUT_OF_MEMORY;
	insert_allocation(i, (struct allocation){ at, bytes, context });
	*out = at;
	return 0;
}

STANDIN_API pn_cu_result cuMemAlloc_v2(pn_cu_deviceptr *at, size_t bytes)
{
	uintptr_t found = 0;
	pn_cu_result result;

	ENTER_CONTEXT(cuMemAlloc_v2);
	result = stream_check_unsafe();
	if (result || !bytes || !at)
		return result ? result : PN_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	result = allocate_locked(bytes, &found);
	pthread_mutex_unlock(&standin_lock);
	if (!result)
		*at = found;
	return result;
}

static void free_locked(struct allocation *a)
{
	unsigned i = (unsigned)(a - mem.allocations);

	fallocate(mem.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		  (off_t)(a->at - mem.base), (off_t)a->bytes);
	mem.nallocations--;
	memmove(a, a + 1, (mem.nallocations - i) * sizeof(*a));
}

STANDIN_API pn_cu_result cuMemFree_v2(pn_cu_deviceptr at)
{
	pn_cu_result result;
	struct allocation *a;

	ENTER_CONTEXT(cuMemFree_v2);
	if (!at)
		return 0;
	result = stream_check_unsafe();
	if (result)
		return result;
	stream_wait_idle(standin_current());
	pthread_mutex_lock(&standin_lock);
	a = allocation_at(at);
	if (a && a->at == at)
		free_locked(a);
	else
		result = PN_CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_unlock(&standin_lock);
	return result;
}

STANDIN_API pn_cu_result cuMemGetInfo_v2(size_t *unused, size_t *total)
{
	size_t used;

	ENTER_CONTEXT(cuMemGetInfo_v2);
	pthread_mutex_lock(&standin_lock);
	used = used_locked();
	pthread_mutex_unlock(&standin_lock);
	*total = mem.device_bytes;
	*unused = used < mem.device_bytes ? mem.device_bytes - used : 0;
	return 0;
}

STANDIN_API pn_cu_result cuMemGetAddressRange_v2(pn_cu_deviceptr *base,
						 size_t *bytes,
						 pn_cu_deviceptr at)
{
	pn_cu_result result = PN_CUDA_ERROR_NOT_FOUND;
	struct allocation *a;

	ENTER_CONTEXT(cuMemGetAddressRange_v2);
	pthread_mutex_lock(&standin_lock);
	a = allocation_at(at);
	if (a) {
		if (base)
			*base = a->at;
		if (bytes)
			*bytes = a->bytes;
		result = 0;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

/* --- registrations -------------------------------------------------------- */

static pn_cu_result pinning_error(int error)
{
	return error == -ENOMEM ? PN_CUDA_ERROR_OUT_OF_MEMORY
				: PN_CUDA_ERROR_INVALID_VALUE;
}

static uint64_t cost_ns(enum standin_option fixed, enum standin_option page,
			size_t bytes)
{
	return standin_option(fixed) * 1000 +
	       standin_option(page) * (bytes / PAGE);
}

static pn_cu_result register_locked(struct registration r)
{
	struct registration *before;
	unsigned i;
	int slot;

	if (overlaps_registration(r.at, r.bytes))
		return PN_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (mem.nregistrations == MAX_REGISTERED)
		return PN_CUDA_ERROR_OUT_OF_MEMORY;
	slot = pin_pages((void *)r.at, r.bytes);
	if (slot < 0)
		return pinning_error(slot);
	standin_sleep_ns(
		cost_ns(OPT_REGISTER_US, OPT_REGISTER_PAGE_NS, r.bytes));
	before = registration_before(r.at);
	i = before ? (unsigned)(before - mem.registrations) + 1 : 0;
	memmove(&mem.registrations[i + 1], &mem.registrations[i],
		(mem.nregistrations - i) * sizeof(r));
	r.slot = (unsigned)slot;
	r.id = ++mem.next_id;
	mem.registrations[i] = r;
	mem.nregistrations++;
	mem.registered_bytes += r.bytes;
	mem.pinned_pages += (r.at % PAGE + r.bytes + PAGE - 1) / PAGE;
	return 0;
}

static void unregister_locked(struct registration *r)
{
	unsigned i = (unsigned)(r - mem.registrations);

	pin_release(r->slot, r->bytes);
	standin_sleep_ns(
		cost_ns(OPT_DEREGISTER_US, OPT_DEREGISTER_PAGE_NS, r->bytes));
	mem.registered_bytes -= r->bytes;
	mem.nregistrations--;
	memmove(r, r + 1, (mem.nregistrations - i) * sizeof(*r));
}

STANDIN_API pn_cu_result cuMemHostRegister_v2(void *at, size_t bytes,
					      unsigned flags)
{
	pn_cu_result result;

	ENTER_CONTEXT(cuMemHostRegister_v2);
	result = stream_check_unsafe();
	if (result)
		return result;
	if (!at || !bytes || flags & ~0xfu || is_device((uintptr_t)at) ||
	    (uintptr_t)at + bytes < (uintptr_t)at)
		return PN_CUDA_ERROR_INVALID_VALUE;
	result = memory_check_reserve();
	if (result)
		return result;
	pthread_mutex_lock(&standin_lock);
	result = register_locked((struct registration){
		.at = (uintptr_t)at,
		.bytes = bytes,
		.flags = flags | PN_CU_MEMHOSTREGISTER_DEVICEMAP,
		.context = standin_current() });
	pthread_mutex_unlock(&standin_lock);
	standin_leave("cuMemHostRegister_v2");
	return result;
}

static pn_cu_result end_registration(void *at, bool allocated, size_t *bytes)
{
	pn_cu_result result =
		allocated ? PN_CUDA_ERROR_INVALID_VALUE
			  : PN_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	struct registration *r;

	pthread_mutex_lock(&standin_lock);
	r = registration_at((uintptr_t)at);
	if (r && r->at == (uintptr_t)at && r->allocated == allocated) {
		*bytes = r->bytes;
		unregister_locked(r);
		result = 0;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

STANDIN_API pn_cu_result cuMemHostUnregister(void *at)
{
	pn_cu_result result;
	size_t bytes;

	ENTER_CONTEXT(cuMemHostUnregister);
	result = stream_check_unsafe();
	return result ? result : end_registration(at, false, &bytes);
}

STANDIN_API pn_cu_result cuMemHostAlloc(void **at, size_t bytes, unsigned flags)
{
	size_t all = (bytes + PAGE - 1) & ~(PAGE - 1);
	pn_cu_result result;
	void *map;

	ENTER_CONTEXT(cuMemHostAlloc);
	result = stream_check_unsafe();
	if (result || !bytes)
		return result ? result : PN_CUDA_ERROR_INVALID_VALUE;
	map = mmap(NULL, all, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (map == MAP_FAILED)
		return PN_CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&standin_lock);
	result = register_locked((struct registration){
		.at = (uintptr_t)map,
		.bytes = all,
		.flags = flags | PN_CU_MEMHOSTALLOC_DEVICEMAP,
		.context = standin_current(),
		.allocated = true });
	pthread_mutex_unlock(&standin_lock);
	if (result)
		munmap(map, all);
	else
		*at = map;
	return result;
}

STANDIN_API pn_cu_result cuMemAllocHost_v2(void **at, size_t bytes)
{
	ENTER_CONTEXT(cuMemAllocHost_v2);
	return cuMemHostAlloc(at, bytes, 0);
}

STANDIN_API pn_cu_result cuMemFreeHost(void *at)
{
	pn_cu_result result;
	size_t bytes;

	ENTER_CONTEXT(cuMemFreeHost);
	result = stream_check_unsafe();
	if (result)
		return result;
	stream_wait_idle(standin_current());
	result = end_registration(at, true, &bytes);
	if (!result)
		munmap(at, bytes);
	return result;
}

STANDIN_API pn_cu_result cuMemHostGetFlags(unsigned *flags, void *at)
{
	pn_cu_result result = PN_CUDA_ERROR_INVALID_VALUE;
	struct registration *r;

	ENTER_CONTEXT(cuMemHostGetFlags);
	pthread_mutex_lock(&standin_lock);
	r = registration_at((uintptr_t)at);
	if (r) {
		*flags = r->flags;
		result = 0;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

STANDIN_API pn_cu_result cuMemHostGetDevicePointer_v2(pn_cu_deviceptr *out,
						      void *at, unsigned flags)
{
	pn_cu_result result = PN_CUDA_ERROR_INVALID_VALUE;

	ENTER_CONTEXT(cuMemHostGetDevicePointer_v2);
	(void)flags;
	pthread_mutex_lock(&standin_lock);
	if (registration_at((uintptr_t)at)) {
		*out = (uintptr_t)at;
		result = 0;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

/* --- pointer attributes --------------------------------------------------- */

struct described {
	uintptr_t at;
	size_t bytes;
	pn_cu_context context;
	bool device;
};

static bool describe_locked(uintptr_t at, struct described *out)
{
	struct allocation *a = is_device(at) ? allocation_at(at) : NULL;
	struct registration *r = registration_at(at);

	if (a)
		*out = (struct described){ a->at, a->bytes, a->context, true };
	else if (r)
		*out = (struct described){ r->at, r->bytes, r->context, false };
	return a || r;
}

static pn_cu_result put_attribute(void *out, int attribute, uintptr_t at,
				  const struct described *d)
{
	switch (attribute) {
	case PN_CU_POINTER_ATTRIBUTE_CONTEXT:
		*(pn_cu_context *)out = d->context;
		return 0;
	case PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		*(unsigned *)out = d->device ? PN_CU_MEMORYTYPE_DEVICE
					     : PN_CU_MEMORYTYPE_HOST;
		return 0;
	case PN_CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		*(pn_cu_deviceptr *)out = at;
		return 0;
	case PN_CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (d->device)
			return PN_CUDA_ERROR_INVALID_VALUE;
		*(uintptr_t *)out = at;
		return 0;
	case PN_CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned *)out = 0;
		return 0;
	case PN_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)out = d->context->device;
		return 0;
	case PN_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(uintptr_t *)out = d->at;
		return 0;
	case PN_CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)out = d->bytes;
		return 0;
	case PN_CU_POINTER_ATTRIBUTE_MAPPED:
		*(int *)out = 1;
		return 0;
	default:
		return PN_CUDA_ERROR_INVALID_VALUE;
	}
}

STANDIN_API pn_cu_result cuPointerGetAttribute(void *out, int attribute,
					       pn_cu_deviceptr at)
{
	struct described d;
	bool known;

	ENTER(cuPointerGetAttribute);
	pthread_mutex_lock(&standin_lock);
	known = describe_locked(at, &d);
	pthread_mutex_unlock(&standin_lock);
	return known ? put_attribute(out, attribute, at, &d)
		     : PN_CUDA_ERROR_INVALID_VALUE;
}

static size_t attribute_bytes(int attribute)
{
	switch (attribute) {
	case PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case PN_CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case PN_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case PN_CU_POINTER_ATTRIBUTE_MAPPED:
		return sizeof(int);
	default:
		return sizeof(void *);
	}
}

/* Memory that is not known is no error here: its attributes are 0, and the
 * ordinal is that of no device. */
STANDIN_API pn_cu_result cuPointerGetAttributes(unsigned n, int *attributes,
						void **out, pn_cu_deviceptr at)
{
	struct described d;
	bool known;

	ENTER_CONTEXT(cuPointerGetAttributes);
	pthread_mutex_lock(&standin_lock);
	known = describe_locked(at, &d);
	pthread_mutex_unlock(&standin_lock);
	for (unsigned i = 0; i < n; i++) {
		memset(out[i], 0, attribute_bytes(attributes[i]));
		if (known)
			put_attribute(out[i], attributes[i], at, &d);
		else if (attributes[i] ==
			 PN_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)out[i] = -2;
	}
	standin_leave("cuPointerGetAttributes");
	return 0;
}

/* --- the end of a context ------------------------------------------------- */

void memory_drop_context(pn_cu_context context)
{
	for (unsigned i = mem.nallocations; i-- > 0;)
		if (mem.allocations[i].context == context)
			free_locked(&mem.allocations[i]);
	for (unsigned i = mem.nregistrations; i-- > 0;) {
		struct registration r = mem.registrations[i];

		if (r.context != context)
			continue;
		unregister_locked(&mem.registrations[i]);
		if (r.allocated)
			munmap((void *)r.at, r.bytes);
	}
}

static uint64_t get_locked(const char *name)
{
	const struct {
		const char *name;
		uint64_t value;
	} counters[] = {
		{ "registrations", mem.nregistrations },
		{ "registered_bytes", mem.registered_bytes },
		{ "pinned_pages", mem.pinned_pages },
		{ "allocations", mem.nallocations },
		{ "faults", mem.faults },
		{ "streams", stream_count() },
		{ "events", event_count() },
		{ "failed", standin_failed() },
		{ "refused", standin_refused() },
	};

	for (unsigned i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
		if (!strcmp(name, counters[i].name))
			return counters[i].value;
	return UINT64_MAX;
}

/* The counters above: what there is now; faults, failed, refused (calls before
 * cuInit() and in a child) and pinned_pages (that were ever pinned): since the
 * start. */
STANDIN_API uint64_t pinion_standin_get(const char *name);
STANDIN_API uint64_t pinion_standin_get(const char *name)
{
	uint64_t value;

	pthread_mutex_lock(&standin_lock);
	value = get_locked(name);
	pthread_mutex_unlock(&standin_lock);
	return value;
}

/* Reads or writes memory of the GPU when its streams have nothing to do,
 * without a call of the driver: nothing is counted and nothing fails. 0; -1:
 * there is no such memory. */
static int access_memory(char *host, uintptr_t at, size_t bytes, bool write)
{
	struct allocation *a;
	pn_cu_context context = NULL;
	int ret;

	pthread_mutex_lock(&standin_lock);
	a = allocation_at(at);
	if (a && bytes <= a->bytes - (at - a->at))
		context = a->context;
	pthread_mutex_unlock(&standin_lock);
	if (!context)
		return -1;
	stream_wait_idle(context);
	ret = write ? write_memory(at, host, bytes)
		    : read_memory(at, host, bytes);
	return ret ? -1 : 0;
}

STANDIN_API int pinion_standin_peek(void *to, uintptr_t at, size_t bytes);
STANDIN_API int pinion_standin_peek(void *to, uintptr_t at, size_t bytes)
{
	return access_memory(to, at, bytes, false);
}

STANDIN_API int pinion_standin_poke(const void *from, uintptr_t at,
				    size_t bytes);
STANDIN_API int pinion_standin_poke(const void *from, uintptr_t at,
				    size_t bytes)
{
	return access_memory((char *)from, at, bytes, true);
}
