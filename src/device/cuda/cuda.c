/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/cuda/cuda_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pages.h"
#include "device/cuda/gate.h"

/* --- keys ----------------------------------------------------------------- */

/* The number of the entry below, its generation above: a key does not come
 * again within any practical time. */
static uint64_t key_of(uint32_t entry, uint32_t generation)
{
	return (uint64_t)generation << 32 | entry;
}

static int grow_keys(struct pn_cuda_keys *keys) PN_REQUIRES(&keys->lock)
{
	uint32_t room = keys->room ? 2 * keys->room : 64;
	struct pn_cuda_key *table = realloc(keys->table, room * sizeof(*table));

	if (!table)
		return -ENOMEM;
	memset(&table[keys->room], 0, (room - keys->room) * sizeof(*table));
	keys->table = table;
	keys->room = room;
	return 0;
}

static int add_key(struct pn_cuda_keys *keys, struct pn_mr *mr)
{
	uint32_t i;
	int ret = 0;

	pn_lock(&keys->lock);
	i = keys->free;
	if (i) {
		keys->free = keys->table[i].next_free;
	} else {
		i = ++keys->n;
		if (i >= keys->room)
			ret = grow_keys(keys);
		if (ret)
			keys->n--;
	}
	if (!ret) {
		struct pn_cuda_key *key = &keys->table[i];

		key->addr = (uintptr_t)mr->addr;
		key->len = mr->len;
		key->generation++;
		mr->device_slot = i;
		mr->lkey = key_of(i, key->generation);
	}
	pn_unlock(&keys->lock);
	return ret;
}

static void remove_key(struct pn_cuda_keys *keys, const struct pn_mr *mr)
{
	struct pn_cuda_key *key;

	pn_lock(&keys->lock);
	key = &keys->table[mr->device_slot];
	key->generation++;
	key->next_free = keys->free;
	keys->free = mr->device_slot;
	pn_unlock(&keys->lock);
}

bool pn_cuda_key_covers(struct pn_cuda_device *dev, const struct pn_sge *sge)
{
	struct pn_cuda_keys *keys = &dev->keys;
	uint32_t i = (uint32_t)sge->lkey;
	bool covers = false;

	if (!sge->len)
		return true;
	pn_lock(&keys->lock);
	if (i && i <= keys->n) {
		const struct pn_cuda_key *key = &keys->table[i];
		uintptr_t offset = (uintptr_t)sge->addr - key->addr;

		covers = key->generation % 2 &&
			 key_of(i, key->generation) == sge->lkey &&
			 offset <= key->len && sge->len <= key->len - offset;
	}
	pn_unlock(&keys->lock);
	return covers;
}

/* --- registrations -------------------------------------------------------- */

static struct pn_range pages_of(const struct pn_mr *mr)
{
	return pn_range_pages((uintptr_t)mr->addr, mr->len, PN_PAGE_BYTES);
}

static bool may_divide(const struct pn_cuda_device *dev, const struct pn_mr *mr)
{
	return dev->device.divides && !(mr->access & PN_ACCESS_OWN);
}

/* What is registered with the driver. */
static struct pn_range range_of(const struct pn_cuda_device *dev,
				const struct pn_mr *mr)
{
	return may_divide(dev, mr)
		       ? pages_of(mr)
		       : (struct pn_range){ (uintptr_t)mr->addr, mr->len };
}

/* A registration without key, which the driver refused to end. No entry of the
 * table has this number. */
#define REFUSED UINT32_MAX

static bool cuda_still_registered(const struct pn_mr *mr)
{
	return mr->device_slot == REFUSED;
}

static void end_one(struct pn_cuda_device *dev, struct pn_mr *mr)
{
	if (!cuda_still_registered(mr)) {
		remove_key(&dev->keys, mr);
		pn_cuda_blocks_put(&dev->blocks, range_of(dev, mr));
		mr->lkey = mr->rkey = 0;
		mr->device_slot = REFUSED;
	}
	if (!pn_cuda_blocks_retry(&dev->blocks, range_of(dev, mr)))
		return;
	mr->device_slot = 0;
	atomic_fetch_sub(&dev->live_bytes, pages_of(mr).len);
	atomic_fetch_sub(&dev->nmrs, 1);
}

static int begin_one(struct pn_cuda_device *dev, struct pn_mr *mr)
{
	struct pn_cuda_blocks_request request = {
		.range = range_of(dev, mr),
		.own = mr->access & PN_ACCESS_OWN,
		.divide = may_divide(dev, mr),
	};
	int ret;

	/* The driver would do this, too, and hold up others meanwhile. */
	pn_pages_fault_in(request.range.addr, request.range.len);
	ret = pn_cuda_blocks_get(&dev->blocks, &request);
	if (ret)
		return ret == -ENODEV ? -EFAULT : ret;
	mr->rkey = 0;
	mr->handle = NULL;
	ret = add_key(&dev->keys, mr);
	if (ret) {
		pn_cuda_blocks_put(&dev->blocks, request.range);
		return ret;
	}
	atomic_fetch_add(&dev->live_bytes, pages_of(mr).len);
	atomic_fetch_add(&dev->nmrs, 1);
	return 0;
}

static int cuda_reg(struct pn_device *device, struct pn_mr *const *mrs,
		    unsigned n)
{
	struct pn_cuda_device *dev = pn_cuda_of(device);
	struct pn_cuda_scope scope;
	unsigned done = 0;
	int ret = pn_cuda_enter(device, &scope);

	if (ret)
		return -EFAULT;
	while (!ret && done < n) {
		if (done)
			pn_cuda_blocks_pause(&dev->blocks);
		ret = begin_one(dev, mrs[done]);
		done += !ret;
	}
	while (ret && done)
		end_one(dev, mrs[--done]);
	pn_cuda_leave(device, &scope);
	return ret;
}

static void cuda_dereg(struct pn_device *device, struct pn_mr *const *mrs,
		       unsigned n)
{
	struct pn_cuda_device *dev = pn_cuda_of(device);
	struct pn_cuda_scope scope;
	bool entered = !pn_cuda_enter(device, &scope);

	/* Where the context is gone there is nothing to unregister. */
	for (unsigned i = 0; i < n; i++) {
		if (i)
			pn_cuda_blocks_pause(&dev->blocks);
		if (entered)
			pn_cuda_quiesce(dev, pages_of(mrs[i]));
		end_one(dev, mrs[i]);
	}
	if (entered)
		pn_cuda_leave(device, &scope);
}

static int cuda_rekey(struct pn_device *device, struct pn_mr *mr)
{
	(void)device, (void)mr;
	return -EOPNOTSUPP;
}

static void cuda_released(struct pn_device *device, uintptr_t addr, size_t len)
{
	pn_cuda_blocks_released(&pn_cuda_of(device)->blocks,
				pn_range_pages(addr, len, PN_PAGE_BYTES));
}

/* The gate knows of every device: more than needed does no harm. */
static bool cuda_holds(struct pn_device *device, uintptr_t addr, size_t len)
{
	(void)device;
	return pn_cuda_gate_holds(pn_range_pages(addr, len, PN_PAGE_BYTES));
}

static void cuda_pinned(struct pn_device *device, struct pn_pinned *out)
{
	struct pn_cuda_device *dev = pn_cuda_of(device);

	*out = (struct pn_pinned){ .live_bytes = atomic_load(&dev->live_bytes),
				   .mrs = atomic_load(&dev->nmrs) };
}

/* --- opening and closing -------------------------------------------------- */

/* "" or a number. */
static int parse(const char *text, int *wanted)
{
	char *end;
	unsigned long n = strtoul(text, &end, 10);

	*wanted = -1;
	if (!*text)
		return 0;
	if (*end || end == text || *text == '-' || *text == '+' || n > 1023) {
		pn_error("device 'cuda:%.32s': name a GPU by its number, as in "
			 "cuda:0",
			 text);
		return -EINVAL;
	}
	*wanted = (int)n;
	return 0;
}

/* Bytes that could be pinned now. The driver charges neither RLIMIT_MEMLOCK nor
 * VmPin: memory is the only limit. */
static size_t available_bytes(void)
{
	unsigned long long kib;
	size_t bytes = SIZE_MAX;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			bytes = (size_t)kib << 10;
	if (f)
		fclose(f);
	return bytes;
}

static void fill_device(struct pn_cuda_device *dev,
			const struct pn_device_attr *attr)
{
	struct pn_device *device = &dev->device;

	device->ops = &pn_cuda_ops;
	device->caps =
		PN_CAP_PINS | PN_CAP_GATHER | PN_CAP_FD | PN_CAP_BY_ADDRESS;
	device->limits = (struct pn_device_limits){
		.max_mr_bytes = SIZE_MAX,
		.max_mrs = SIZE_MAX,
		.max_pinned_bytes = available_bytes(),
		.max_op_bytes = SIZE_MAX,
		.max_sge = 16,
		.queue_depth = PN_CUDA_DEPTH,
	};
	device->profile = "none";
	device->single_threaded = attr->single_threaded;
	dev->peer = (struct pn_peer){ .device = device };
	pn_cuda_address(device, &dev->peer.address);
}

static void describe_gpu(struct pn_cuda_device *dev)
{
	pn_cu_device gpu = dev->ordinal;

	if (dev->cu->device_get_name(dev->name, sizeof(dev->name), gpu))
		dev->name[0] = '\0';
	if (dev->cu->device_get_pci_bus_id(dev->bus_id, sizeof(dev->bus_id),
					   gpu))
		dev->bus_id[0] = '\0';
	if (dev->cu->device_get_attribute(&dev->numa_node,
					  PN_CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
					  gpu))
		dev->numa_node = -1;
}

static void init_parts(struct pn_cuda_device *dev)
{
	struct pn_costs *costs = &dev->device.costs;
	double *const lines[4] = { &costs->register_ns,
				   &costs->register_page_ns,
				   &costs->deregister_ns,
				   &costs->deregister_page_ns };

	pn_mutex_init(&dev->lock);
	pn_mutex_init(&dev->revive_lock);
	pn_mutex_init(&dev->keys.lock);
	pn_cuda_blocks_init(&dev->blocks, dev->cu, lines);
}

/* Everything that needs a CUDA context. */
static int open_stream(struct pn_cuda_device *dev)
{
	struct pn_cuda_scope scope;
	int ret = pn_cuda_enter(&dev->device, &scope);

	if (ret)
		return ret;
	ret = pn_cuda_stream_open(dev);
	pn_cuda_leave(&dev->device, &scope);
	if (ret)
		pn_error("cuda:%d: no stream can be created (%s): is the GPU "
			 "out of memory?",
			 dev->ordinal, strerror(-ret));
	return ret == -ENOMEM || !ret ? ret : -ENODEV;
}

static void free_device(struct pn_cuda_device *dev)
{
	if (dev->event_fd >= 0)
		close(dev->event_fd);
	free(dev->keys.table);
	pn_mutex_fini(&dev->keys.lock);
	pn_mutex_fini(&dev->revive_lock);
	pn_mutex_fini(&dev->lock);
	free(dev);
}

static void cuda_close(struct pn_device *device)
{
	struct pn_cuda_device *dev = pn_cuda_of(device);
	struct pn_cuda_scope scope;
	bool entered = !pn_cuda_enter(device, &scope);

	if (entered)
		pn_cuda_stream_close(dev);
	else
		pn_cuda_blocks_lost(&dev->blocks);
	pn_cuda_blocks_fini(&dev->blocks);
	if (entered)
		pn_cuda_leave(device, &scope);
	pn_cuda_context_close(dev);
	free_device(dev);
}

static int open_on(const struct pn_cuda_driver *cu, int wanted,
		   const struct pn_device_attr *attr, struct pn_device **out)
{
	struct pn_cuda_device *dev = calloc(1, sizeof(*dev));
	int ret;

	if (!dev)
		return -ENOMEM;
	dev->cu = cu;
	init_parts(dev);
	dev->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ret = dev->event_fd < 0 ? -errno : 0;
	if (!ret)
		ret = pn_cuda_context_open(dev, wanted);
	if (ret)
		goto free_device;
	fill_device(dev, attr);
	describe_gpu(dev);
	ret = open_stream(dev);
	if (ret)
		goto close_context;
	*out = &dev->device;
	return 0;

close_context:
	pn_cuda_context_close(dev);
free_device:
	pn_cuda_blocks_fini(&dev->blocks);
	free_device(dev);
	return ret;
}

static int cuda_open(const char *params, const struct pn_device_attr *attr,
		     struct pn_device **out)
{
	const struct pn_cuda_driver *cu;
	const char *reason = "";
	int wanted, ret = parse(params, &wanted);

	if (ret)
		return ret;
	ret = pn_cuda_driver_init(&cu, &reason);
	if (ret) {
		pn_error("device 'cuda': %s", reason);
		return ret;
	}
	return open_on(cu, wanted, attr, out);
}

/* --- the table of operations ---------------------------------------------- */

static void return_nothing(struct pn_device *device,
			   const struct pn_completion *completion)
{
	(void)device, (void)completion;
}

static uint64_t cuda_now(struct pn_device *device)
{
	(void)device;
	return pn_clock_ns();
}

static void cuda_describe(struct pn_device *device, pn_fact_fn *fn, void *arg)
{
	struct pn_cuda_device *dev = pn_cuda_of(device);
	char text[160];

	snprintf(text, sizeof(text), "%s, number %d, PCI %s", dev->name,
		 dev->ordinal, dev->bus_id);
	fn(arg, "GPU", text);
	snprintf(text, sizeof(text), "CUDA %d.%d", dev->cu->version / 1000,
		 dev->cu->version % 1000 / 10);
	fn(arg, "driver", text);
	fn(arg, "context",
	   dev->is_primary ? "the primary one, retained"
			   : "the one that was current");
	if (dev->numa_node >= 0) {
		snprintf(text, sizeof(text), "%d", dev->numa_node);
		fn(arg, "NUMA node", text);
	}
	fn(arg, "messages", "none: put and get reach the GPU's memory");
	fn(arg, "memory of the program",
	   device->divides
		   ? "stays registered between uses (cuda_keep=yes)"
		   : "is registered while it is pinned; heaps stay registered");
}

const struct pn_device_ops pn_cuda_ops = {
	.kind = "cuda",
	.help = "copy engine of an NVIDIA GPU: cuda, or cuda:1 for the second",
	.open = cuda_open,
	.close = cuda_close,
	.describe = cuda_describe,
	.reg = cuda_reg,
	.dereg = cuda_dereg,
	.still_registered = cuda_still_registered,
	.rekey = cuda_rekey,
	.released = cuda_released,
	.holds = cuda_holds,
	.pinned = cuda_pinned,
	.address = pn_cuda_address,
	.attach = pn_cuda_attach,
	.post = pn_cuda_post,
	.poll = pn_cuda_poll,
	.return_buffer = return_nothing,
	.wait = pn_cuda_wait,
	.wake = pn_cuda_wake,
	.fd = pn_cuda_fd,
	.arm = pn_cuda_arm,
	.scratch = pn_cuda_scratch,
	.scratch_free = pn_cuda_scratch_free,
	.now = cuda_now,
};

bool pn_device_is_cuda(const struct pn_device *device)
{
	return device->ops == &pn_cuda_ops;
}

static const struct pn_cuda_device *inside(const struct pn_device *device)
{
	return pn_container_of(device, const struct pn_cuda_device, device);
}

const struct pn_cuda_driver *pn_cuda_driver_of(const struct pn_device *device)
{
	return inside(device)->cu;
}

pn_cu_context pn_cuda_context_of(const struct pn_device *device)
{
	return inside(device)->context;
}

int pn_cuda_ordinal_of(const struct pn_device *device)
{
	return inside(device)->ordinal;
}

const char *pn_cuda_bus_id_of(const struct pn_device *device)
{
	return inside(device)->bus_id;
}

size_t pn_cuda_run(struct pn_device *device, const void *addr, size_t len)
{
	return pn_cuda_blocks_run(&pn_cuda_of(device)->blocks, (uintptr_t)addr,
				  len);
}
