/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/fabric/fabric.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fnv.h"
#include "base/limits.h"
#include "base/log.h"
#include "device/fabric/fabric_impl.h"

/* Packets for hellos and answers, beside the windows of peers. */
#define SPARE_RECEIVES 64
/* How long close() tries to tell peers. */
#define FAREWELL_NS    (PN_NS_PER_S / 2)
#define MAX_OP_BYTES   ((size_t)1 << 30)

/* --- parameters ----------------------------------------------------------- */

#define AT(field) offsetof(struct pn_fabric_params, field)

static const struct pn_option params[] = {
	{ "queue_depth", PN_OPTION_NUMBER, "128",
	  "operations in flight per peer; rounded up to a power of two",
	  AT(queue_depth), 4, 1 << 14, NULL },
	{ "window", PN_OPTION_NUMBER, "32",
	  "receive buffers of 8 KiB for each peer", AT(window), 4, 1 << 12,
	  NULL },
	{ "domain", PN_OPTION_TEXT, "",
	  "domain of the provider, for most a network interface", AT(domain), 0,
	  0, NULL },
	{ "address", PN_OPTION_TEXT, "",
	  "own IP address to use, if the domain has several", AT(address), 0, 0,
	  NULL },
	{ "heartbeat", PN_OPTION_TIME, "1s",
	  "a peer that is silent for so long is asked for an answer",
	  AT(heartbeat), PN_NS_PER_MS, UINT64_MAX / 4, NULL },
	{ "patience", PN_OPTION_TIME, "30s",
	  "a peer that is silent for so long is down", AT(patience),
	  10 * PN_NS_PER_MS, UINT64_MAX / 4, NULL },
	{ "spin", PN_OPTION_TIME, "100us", "busy waiting before sleeping",
	  AT(spin), 0, PN_NS_PER_S, NULL },
};

static int parse_options(struct pn_fabric_device *dev, const char *text)
{
	struct pn_why why = { "" };

	pn_options_defaults(params, PN_ARRAY_LEN(params), &dev->params);
	if (pn_options_parse_list(params, PN_ARRAY_LEN(params), text,
				  &dev->params, &why)) {
		pn_error("fabric: %s", why.text);
		return -EINVAL;
	}
	if (dev->params.patience >= 2 * dev->params.heartbeat)
		return 0;
	pn_error("fabric: patience must be at least twice heartbeat");
	return -EINVAL;
}

/* PROVIDER comes first, then parameters: "tcp;ofi_rxm,domain=eth0". */
static int parse(struct pn_fabric_device *dev, const char *text, char *name)
{
	size_t len = strcspn(text, ",");

	name[0] = 0;
	if (!memchr(text, '=', len)) {
		if (len >= PN_FABRIC_NAME_BYTES) {
			pn_error("fabric: '%.64s' is no provider", text);
			return -EINVAL;
		}
		memcpy(name, text, len);
		name[len] = 0;
		text += text[len] ? len + 1 : len;
	}
	return parse_options(dev, text);
}

/* --- limits and capabilities ---------------------------------------------- */

static void set_limits(struct pn_fabric_device *dev)
{
	const struct fi_info *info = dev->info;
	size_t max_message = info->ep_attr->max_msg_size;
	size_t max_mrs = info->domain_attr->mr_cnt;
	size_t slots = PN_FABRIC_MAX_BLOCKS * PN_FABRIC_BLOCK_SLOTS;
	unsigned depth = 4;

	while (depth < dev->params.queue_depth)
		depth *= 2;
	dev->depth_mask = depth - 1;
	dev->device.limits = (struct pn_device_limits){
		.max_mr_bytes = SIZE_MAX / 2,
		.max_mrs = max_mrs && max_mrs < slots ? max_mrs : slots,
		.max_pinned_bytes =
			dev->owner->keys.pins ? pn_limits_memlock() : SIZE_MAX,
		.max_send_bytes = PN_FABRIC_MAX_SEND,
		.max_op_bytes =
			max_message < MAX_OP_BYTES ? max_message : MAX_OP_BYTES,
		.inline_bytes = PN_FABRIC_MAX_SEND,
		.max_sge = PN_FABRIC_MAX_SGE,
		.queue_depth = depth,
	};
}

static void set_capabilities(struct pn_fabric_device *dev,
			     const struct pn_device_attr *attr)
{
	struct pn_device *device = &dev->device;

	device->single_threaded = attr->single_threaded;
	device->ops = &pn_fabric_ops;
	device->profile = "none";
	device->caps = PN_CAP_GATHER | PN_CAP_WRITE_IMM | PN_CAP_ATOMICS |
		       PN_CAP_READ_ONLY | PN_CAP_REKEY | PN_CAP_FD |
		       PN_CAP_ATTACH_AGAIN;
	if (dev->owner->keys.pins)
		device->caps |= PN_CAP_PINS;
	device->costs.handoff_bytes = SIZE_MAX;
	device->costs.cpu_moves =
		dev->info->domain_attr->data_progress == FI_PROGRESS_MANUAL;
}

/* --- opening -------------------------------------------------------------- */

static int open_error(int ret)
{
	switch (ret) {
	case -ENOMEM:
	case -EMFILE:
	case -ENFILE:
	case -EACCES:
	case -EPERM:
		return ret;
	default:
		return -ENODEV;
	}
}

/* Logs an error of libfabric. */
static int check(const struct pn_fabric_device *dev, const char *what, int ret)
{
	if (!ret)
		return 0;
	pn_error("fabric: %s of provider %s: %s", what,
		 dev->info->fabric_attr->prov_name,
		 dev->library->strerror(-ret));
	return open_error(ret);
}

static void open_keys(struct pn_fabric_device *dev)
{
	const struct fi_domain_attr *attr = dev->info->domain_attr;
	size_t bytes = attr->mr_key_size ? attr->mr_key_size : 4;

	dev->keys.domain = dev->domain;
	dev->keys.virt_addr = attr->mr_mode & FI_MR_VIRT_ADDR;
	dev->keys.prov_key = attr->mr_mode & FI_MR_PROV_KEY;
	dev->keys.pins = attr->mr_mode & FI_MR_ALLOCATED;
	dev->keys.key_mask =
		bytes < 8 ? (UINT64_C(1) << 8 * bytes) - 1 : UINT64_MAX;
	dev->keys.tag = (uint32_t)(dev->address.nonce & 0xfffff) | 1;
	atomic_store(&dev->keys.generation, dev->address.nonce >> 40);
	if (attr->mr_mode & FI_MR_ENDPOINT)
		dev->keys.endpoint = dev->ep;
}

/* Without a descriptor the device polls. */
static int open_cq(struct pn_fabric_device *dev)
{
	struct fi_cq_attr attr = { .size = 4 * dev->info->tx_attr->size,
				   .format = FI_CQ_FORMAT_MSG,
				   .wait_obj = FI_WAIT_FD };
	int ret = fi_cq_open(dev->domain, &attr, &dev->cq, NULL);

	if (!ret)
		return check(dev, "descriptor",
			     fi_control(&dev->cq->fid, FI_GETWAIT,
					&dev->cq_fd));
	attr.wait_obj = FI_WAIT_NONE;
	return check(dev, "completion queue",
		     fi_cq_open(dev->domain, &attr, &dev->cq, NULL));
}

static int open_domain(struct pn_fabric_device *dev)
{
	int ret;

	if (dev->owner != dev) {
		dev->fabric = dev->owner->fabric;
		dev->domain = dev->owner->domain;
		return 0;
	}
	ret = check(dev, "fabric",
		    dev->library->fabric(dev->info->fabric_attr, &dev->fabric,
					 NULL));
	return ret ? ret
		   : check(dev, "domain",
			   fi_domain(dev->fabric, dev->info, &dev->domain,
				     NULL));
}

static int open_queues(struct pn_fabric_device *dev)
{
	struct fi_av_attr av = { .type = dev->info->domain_attr->av_type };
	int ret = open_cq(dev);

	return ret ? ret
		   : check(dev, "address vector",
			   fi_av_open(dev->domain, &av, &dev->av, NULL));
}

/* A killed process leaves its shared memory (shm), under a name that holds its
 * number. If this process has the same number, the first attempt removes the
 * shared memory and fails. */
static int enable(struct pn_fabric_device *dev)
{
	int ret = fi_enable(dev->ep);

	return ret == -FI_EBUSY ? fi_enable(dev->ep) : ret;
}

/* ofi_rxm makes its queues large enough for all processes of a job, whose
 * number libfabric does not know. */
static void explain_size(const struct pn_fabric_device *dev)
{
	if (strstr(dev->info->fabric_attr->prov_name, "ofi_rxm") &&
	    !getenv("FI_UNIVERSE_SIZE"))
		pn_error("fabric: queues for 256 processes may be more than "
			 "the adapter has: set FI_UNIVERSE_SIZE to how many "
			 "there are");
}

static int open_endpoint(struct pn_fabric_device *dev)
{
	size_t len = sizeof(dev->address.raw);
	int ret = check(dev, "endpoint",
			fi_endpoint(dev->domain, dev->info, &dev->ep, NULL));

	if (!ret)
		ret = check(dev, "endpoint",
			    fi_ep_bind(dev->ep, &dev->av->fid, 0));
	if (!ret)
		ret = check(dev, "endpoint",
			    fi_ep_bind(dev->ep, &dev->cq->fid,
				       FI_TRANSMIT | FI_RECV));
	if (!ret)
		ret = check(dev, "endpoint", enable(dev));
	if (ret)
		explain_size(dev);
	if (!ret)
		ret = check(dev, "address",
			    fi_getname(&dev->ep->fid, dev->address.raw, &len));
	dev->address.len = (uint16_t)len;
	return ret;
}

static int watch(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int open_wait(struct pn_fabric_device *dev)
{
	int ret;

	dev->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	dev->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (dev->event_fd < 0 || dev->epoll < 0)
		return -errno;
	ret = watch(dev->epoll, dev->event_fd);
	return ret || dev->cq_fd < 0 ? ret : watch(dev->epoll, dev->cq_fd);
}

/* dev->info is what was chosen. */
static int open_parts(struct pn_fabric_device *dev,
		      const struct pn_device_attr *attr)
{
	int ret;

	dev->pages = attr->pages;
	dev->inject_bytes = dev->info->tx_attr->inject_size;
	dev->address.format = (uint16_t)dev->info->addr_format;
	dev->address.provider =
		(uint32_t)pn_fnv_add(PN_FNV_START,
				     dev->info->fabric_attr->prov_name,
				     strlen(dev->info->fabric_attr->prov_name));
	ret = open_domain(dev);
	if (!ret)
		ret = open_queues(dev);
	if (!ret)
		ret = open_endpoint(dev);
	if (ret)
		return ret;
	if (dev->owner == dev)
		open_keys(dev);
	dev->local_mr = dev->info->domain_attr->mr_mode & FI_MR_LOCAL;
	set_limits(dev);
	set_capabilities(dev, attr);
	ret = open_wait(dev);
	if (!ret)
		ret = pn_fabric_receives_add(dev, SPARE_RECEIVES);
	return ret ? ret : pn_fabric_service_start(dev);
}

/* --- closing -------------------------------------------------------------- */

static bool farewell_lasts(const struct pn_fabric_device *dev)
{
	struct pn_list *pos;

	if (dev->nsending || !pn_list_empty(&dev->backlogged))
		return true;
	pn_list_for_each (pos, &dev->peers)
		if (pn_fabric_awaits_bye(
			    pn_container_of(pos, struct pn_fabric_peer, link)))
			return true;
	return false;
}

/* Tells peers, and waits for their answers for a short time. */
static void say_farewell(struct pn_fabric_device *dev)
{
	uint64_t deadline = pn_clock_ns() + FAREWELL_NS;
	struct pn_list *pos;

	pn_fabric_lock(dev);
	/* What was executed is acknowledged. */
	pn_fabric_progress(dev, true);
	pn_list_for_each (pos, &dev->peers) {
		struct pn_fabric_peer *peer =
			pn_container_of(pos, struct pn_fabric_peer, link);

		if (peer->up_reported && !peer->down)
			pn_fabric_send_hello(dev, peer, PN_FABRIC_BYE);
	}
	do {
		pn_fabric_find_ended(dev);
		pn_fabric_progress(dev, false);
		sched_yield();
	} while (farewell_lasts(dev) && pn_clock_ns() < deadline);
	pn_fabric_unlock(dev);
}

static void close_fid(void *object)
{
	/* Every object of libfabric begins with its fid. */
	if (object)
		fi_close(object);
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* The first packet to a peer over shm (libfabric 1.17) makes the peer map the
 * memory of this endpoint, by name. A peer that is stopped does so later, and
 * crashes if the name is gone: then the endpoint stays. */
static void keep_if_awaited(struct pn_fabric_device *dev)
{
	struct pn_list *pos;

	/* Addresses are names. */
	if (dev->info->addr_format != FI_ADDR_STR)
		return;
	pn_list_for_each (pos, &dev->peers) {
		const struct pn_fabric_peer *peer =
			pn_container_of(pos, struct pn_fabric_peer, link);

		if (peer->up_reported || pn_list_empty(&peer->backlog))
			continue;
		pn_warn("fabric: a peer has not answered: the endpoint stays "
			"open until the process ends");
		dev->ep = NULL;
		dev->cq = NULL;
		dev->av = NULL;
		return;
	}
}

/* Closes the parts that are open. */
static void close_parts(struct pn_fabric_device *dev)
{
	bool enabled = dev->service.running;

	pn_fabric_service_stop(dev);
	if (enabled) {
		say_farewell(dev);
		keep_if_awaited(dev);
	}
	/* The endpoint first: it may still use memory. */
	if (!dev->keys.endpoint) {
		close_fid(dev->ep);
		dev->ep = NULL;
	}
	/* Packets of requests that wait are not posted again. */
	dev->nwanted = 0;
	pn_fabric_peers_free(dev);
	pn_fabric_keys_fini(&dev->keys);
	close_fid(dev->ep);
	pn_fabric_packets_free(dev);
	close_fid(dev->cq);
	close_fid(dev->av);
	if (dev->owner == dev) {
		close_fid(dev->domain);
		close_fid(dev->fabric);
	}
	if (dev->info)
		dev->library->freeinfo(dev->info);
	close_fd(dev->epoll);
	close_fd(dev->event_fd);
	close_fd(dev->service.epoll);
	close_fd(dev->service.event_fd);
}

static void free_device(struct pn_fabric_device *dev)
{
	close_parts(dev);
	pn_mutex_fini(&dev->lock);
	free(dev->done.ring);
	free(dev);
}

static void fabric_close(struct pn_device *device)
{
	PN_NO_CANCEL();
	free_device(pn_fabric_of(device));
}

/* Processes can watch each other if they have the same hash. */
static uint64_t hash_of_host(void)
{
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	struct stat ns;
	char boot[64];
	size_t len = file ? fread(boot, 1, sizeof(boot), file) : 0;
	uint64_t hash = pn_fnv_add(PN_FNV_START, boot, len);

	if (file)
		fclose(file);
	if (!len || stat("/proc/self/ns/pid", &ns))
		return 0;
	return pn_fnv_add(hash, &ns.st_ino, sizeof(ns.st_ino));
}

static void init_lists(struct pn_fabric_device *dev)
{
	struct pn_list *lists[] = {
		&dev->peers,	  &dev->blocks,	   &dev->free,
		&dev->unposted,	  &dev->teardowns, &dev->acks_due,
		&dev->backlogged, &dev->fetches,
	};

	for (unsigned i = 0; i < PN_ARRAY_LEN(lists); i++)
		pn_list_init(lists[i]);
}

static struct pn_fabric_device *alloc_device(void)
{
	struct pn_fabric_device *dev = calloc(1, sizeof(*dev));

	if (!dev)
		return NULL;
	init_lists(dev);
	dev->owner = dev;
	pn_mutex_init(&dev->lock);
	pn_fabric_keys_init(&dev->keys);
	dev->cq_fd = dev->event_fd = dev->epoll = -1;
	dev->service.event_fd = dev->service.epoll = -1;
	dev->host = hash_of_host();
	dev->address.version = PN_FABRIC_VERSION;
	memcpy(dev->address.kind, "fabr", 4);
	if (getrandom(&dev->address.nonce, sizeof(dev->address.nonce), 0) < 0)
		dev->address.nonce = pn_clock_ns();
	return dev;
}

static int open_or_free(struct pn_fabric_device *dev,
			const struct pn_device_attr *attr,
			struct pn_device **out)
{
	int ret = open_parts(dev, attr);

	if (ret) {
		free_device(dev);
		return ret;
	}
	*out = &dev->device;
	return 0;
}

/* Opens the provider that the spec names; else the first usable one after
 * `skip` others. *named: the spec names it. */
static int open_choice(const char *text, const struct pn_device_attr *attr,
		       unsigned skip, bool *named, struct pn_device **out)
{
	struct pn_fabric_device *dev = alloc_device();
	char name[PN_FABRIC_NAME_BYTES];
	int ret;

	*named = true;
	if (!dev)
		return -ENOMEM;
	ret = parse(dev, text, name);
	if (!ret) {
		*named = name[0];
		ret = pn_fabric_find(dev, name, skip);
	}
	if (ret) {
		free_device(dev);
		return ret;
	}
	if (skip)
		pn_warn("fabric: takes provider %s instead",
			dev->info->fabric_attr->prov_name);
	return open_or_free(dev, attr, out);
}

static int fabric_open(const char *text, const struct pn_device_attr *attr,
		       struct pn_device **out)
{
	bool named;
	int ret = open_choice(text, attr, 0, &named, out);

	/* A provider may list an adapter that it cannot use. */
	for (unsigned skip = 1; ret == -ENODEV && !named && skip < 8; skip++)
		ret = open_choice(text, attr, skip, &named, out);
	return ret;
}

/* On the same domain. */
static int fabric_open_shared(struct pn_device *device,
			      const struct pn_device_attr *attr,
			      struct pn_device **out)
{
	struct pn_fabric_device *with = pn_fabric_of(device), *dev;
	int ret;

	/* A region belongs to one endpoint. */
	if (with->owner->keys.endpoint)
		return -EOPNOTSUPP;
	dev = alloc_device();
	if (!dev)
		return -ENOMEM;
	dev->owner = with->owner;
	dev->library = with->library;
	dev->params = with->params;
	dev->info = dev->library->dupinfo(with->info);
	if (!dev->info) {
		free_device(dev);
		return -ENOMEM;
	}
	ret = open_or_free(dev, attr, out);
	if (!ret)
		(*out)->costs = device->costs;
	return ret;
}

/* --- the table of operations ---------------------------------------------- */

/* Long operations that use the range end first. They do so without the program:
 * here and at the peer, a service thread makes progress. */
static void wait_for_users(struct pn_fabric_device *dev,
			   const struct pn_fabric_slot *slot)
{
	while (atomic_load(&slot->users)) {
		pn_fabric_lock(dev);
		pn_fabric_progress(dev, true);
		pn_fabric_tell_sleepers(dev);
		pn_fabric_unlock(dev);
		if (atomic_load(&slot->users))
			usleep(50);
	}
}

static void fabric_dereg(struct pn_device *device, struct pn_mr *const *mrs,
			 unsigned n)
{
	struct pn_fabric_device *dev = pn_fabric_of(device);
	struct pn_fabric_keys *keys = &dev->owner->keys;

	for (unsigned i = 0; i < n; i++) {
		wait_for_users(dev, pn_fabric_keys_revoke(keys, mrs[i]));
		pn_fabric_keys_close(keys, mrs[i]);
	}
}

static int fabric_reg(struct pn_device *device, struct pn_mr *const *mrs,
		      unsigned n)
{
	struct pn_fabric_keys *keys = &pn_fabric_of(device)->owner->keys;

	for (unsigned i = 0; i < n; i++) {
		int ret = pn_fabric_keys_register(keys, mrs[i]);

		if (ret) {
			fabric_dereg(device, mrs, i);
			return ret;
		}
	}
	return 0;
}

/* Requests that came with the old key end first. */
static int fabric_rekey(struct pn_device *device, struct pn_mr *mr)
{
	struct pn_fabric_device *dev = pn_fabric_of(device);
	struct fid_mr *old;

	wait_for_users(dev, pn_fabric_keys_rekey(&dev->owner->keys, mr, &old));
	pn_fabric_region_close(old);
	return 0;
}

static void fabric_pinned(struct pn_device *device, struct pn_pinned *out)
{
	struct pn_fabric_device *dev = pn_fabric_of(device);

	*out = (struct pn_pinned){
		.live_bytes = atomic_load(&dev->owner->keys.live_bytes),
		.mrs = atomic_load(&dev->owner->keys.nmrs),
	};
	pn_fabric_lock(dev);
	out->device_bytes = dev->packet_bytes;
	pn_fabric_unlock(dev);
}

static void fabric_address(struct pn_device *device, struct pn_address *out)
{
	pn_fabric_address_put(&pn_fabric_of(device)->address, out);
}

static int fabric_fd(struct pn_device *device)
{
	return pn_fabric_of(device)->epoll;
}

static uint64_t fabric_now(struct pn_device *device)
{
	(void)device;
	return pn_clock_ns();
}

static void describe_waiting(struct pn_fabric_device *dev, pn_fact_fn *fn,
			     void *arg)
{
	uint64_t nticks;
	char text[160];

	fn(arg, "waiting",
	   dev->cq_fd >= 0 ? "the provider has a descriptor"
			   : "the provider has no descriptor: polls, "
			     "every 20 us to 1 ms");
	snprintf(text, sizeof(text),
		 "asked after %.3g s of silence, down after %.3g s; processes "
		 "of this host: at once",
		 (double)dev->params.heartbeat / PN_NS_PER_S,
		 (double)dev->params.patience / PN_NS_PER_S);
	fn(arg, "peers", text);
	pn_fabric_lock(dev);
	snprintf(text, sizeof(text), "%" PRIu64 " sent", dev->service.npings);
	nticks = dev->service.nticks;
	pn_fabric_unlock(dev);
	fn(arg, "heartbeats", text);
	snprintf(text, sizeof(text), "%" PRIu64 " times left to callers",
		 nticks);
	fn(arg, "progress", text);
}

/* A cache of libfabric keeps pages pinned that were deregistered. It reads its
 * variables when it is loaded: the device cannot switch it off. */
static void describe_registering(struct pn_fabric_device *dev, pn_fact_fn *fn,
				 void *arg)
{
	const char *cache = getenv("FI_MR_CACHE_MAX_COUNT");

	if (!dev->owner->keys.pins)
		fn(arg, "registering", "pins no pages with this provider");
	else
		fn(arg, "registering",
		   cache && !strcmp(cache, "0")
			   ? "pins pages"
			   : "pins pages, which libfabric may keep pinned: "
			     "FI_MR_CACHE_MAX_COUNT=0 prevents that");
}

static void fabric_describe(struct pn_device *device, pn_fact_fn *fn, void *arg)
{
	struct pn_fabric_device *dev = pn_fabric_of(device);
	const struct fi_info *info = dev->info;
	char text[256];

	snprintf(text, sizeof(text), "%s, domain %s, %s",
		 info->fabric_attr->prov_name, info->domain_attr->name,
		 info->fabric_attr->name);
	fn(arg, "provider", text);
	snprintf(text, sizeof(text), "%u.%u", FI_MAJOR(dev->library->version()),
		 FI_MINOR(dev->library->version()));
	fn(arg, "libfabric", text);
	describe_registering(dev, fn, arg);
	describe_waiting(dev, fn, arg);
}

const struct pn_device_ops pn_fabric_ops = {
	.kind = "fabric",
	.help = "any libfabric provider: tcp, shm, efa, cxi, ...",
	.params = params,
	.nparams = PN_ARRAY_LEN(params),
	.list = pn_fabric_list,
	.open = fabric_open,
	.open_shared = fabric_open_shared,
	.close = fabric_close,
	.describe = fabric_describe,
	.reg = fabric_reg,
	.dereg = fabric_dereg,
	.rekey = fabric_rekey,
	.pinned = fabric_pinned,
	.address = fabric_address,
	.attach = pn_fabric_attach,
	.detach = pn_fabric_detach,
	.post = pn_fabric_post,
	.poll = pn_fabric_poll,
	.return_buffer = pn_fabric_return_buffer,
	.wait = pn_fabric_wait,
	.wake = pn_fabric_wake,
	.fd = fabric_fd,
	.arm = pn_fabric_arm,
	.now = fabric_now,
};
