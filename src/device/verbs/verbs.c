/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/verbs/verbs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "device/verbs/connect.h"
#include "device/verbs/iwarp.h"
#include "device/verbs_access.h"

/* --- parameters ----------------------------------------------------------- */

/* UCX refills by 16, too. */
#define RECEIVE_BATCH	  16
/* A message takes some microseconds to a peer and back. */
#define POLLS_BEFORE_WAIT 400

#define AT(field) offsetof(struct pn_verbs_params, field)

static const struct pn_option params[] = {
	{ "queue_depth", PN_OPTION_NUMBER, "128",
	  "operations in flight per peer", AT(queue_depth), 4, 1 << 14, NULL },
	{ "receives", PN_OPTION_NUMBER, "256",
	  "receive buffers of 8 KiB, shared by all peers", AT(receives), 16,
	  1 << 14, NULL },
	{ "chunk", PN_OPTION_BYTES, "1G",
	  "longer ranges are registered in chunks of this, by several threads",
	  AT(chunk), 1 << 20, (uint64_t)1 << 31, NULL },
	{ "ack_timeout", PN_OPTION_NUMBER, "14",
	  "retransmit after 4.096 us times 2 to this power", AT(ack_timeout), 1,
	  31, NULL },
	{ "retries", PN_OPTION_NUMBER, "7",
	  "retransmissions before the peer counts as down", AT(retries), 0, 7,
	  NULL },
	{ "patience", PN_OPTION_TIME, "60s",
	  "iWARP: a peer that executes nothing for so long is down",
	  AT(patience), PN_NS_PER_S / 10, UINT64_MAX, NULL },
	{ "odp", PN_OPTION_BOOL, "no",
	  "on-demand paging: the adapter faults pages in instead of pinning",
	  AT(odp), 0, 0, NULL },
	{ "windows", PN_OPTION_BOOL, "no",
	  "peers access memory through windows: revoking a key registers "
	  "nothing",
	  AT(windows), 0, 0, NULL },
	{ "address", PN_OPTION_TEXT, "",
	  "IP address of the port to connect by, if it has several",
	  AT(address), 0, 0, NULL },
	{ "spin", PN_OPTION_TIME, "100us", "busy waiting before sleeping",
	  AT(spin), 0, PN_NS_PER_S, NULL },
};

/* DEVICE/PORT comes first, then parameters: "rxe0/1,queue_depth=64". */
static int parse(struct pn_verbs_device *dev, const char *text, char *name,
		 size_t size)
{
	size_t len = strcspn(text, ",");
	struct pn_why why = { "" };

	name[0] = 0;
	if (!memchr(text, '=', len) && len < size) {
		memcpy(name, text, len);
		name[len] = 0;
		text += text[len] ? len + 1 : len;
	}
	pn_options_defaults(params, PN_ARRAY_LEN(params), &dev->params);
	if (!pn_options_parse_list(params, PN_ARRAY_LEN(params), text,
				   &dev->params, &why))
		return 0;
	pn_error("verbs: %s", why.text);
	return -EINVAL;
}

/* --- limits and capabilities ---------------------------------------------- */

static size_t min_of(uint64_t a, uint64_t b)
{
	return (size_t)(a < b ? a : b);
}

/* Half of the adapter's segments are kept for segments that cross a chunk
 * border (keys.h). */
static void set_limits(struct pn_verbs_device *dev)
{
	const struct ibv_device_attr *attr = &dev->attr;
	unsigned sge =
		(unsigned)min_of((unsigned)attr->max_sge, PN_VERBS_MAX_SGE);

	dev->header_bytes =
		dev->is_iwarp ? sizeof(struct pn_verbs_message_header) : 0;
	dev->max_sge = sge;
	dev->device.limits = (struct pn_device_limits){
		.max_mr_bytes = min_of(attr->max_mr_size, SIZE_MAX / 2),
		.max_mrs =
			min_of(pn_verbs_max_mrs(attr, dev->name),
			       PN_VERBS_MAX_BLOCKS * PN_VERBS_BLOCK_SLOTS - 1),
		.max_pinned_bytes = pn_limits_memlock(),
		.max_send_bytes = PN_VERBS_MAX_SEND,
		.max_op_bytes =
			min_of(dev->port_attr.max_msg_sz, (uint64_t)1 << 30),
		.max_sge = sge >= 6 ? sge / 2 : sge,
		.queue_depth = (unsigned)min_of(dev->params.queue_depth,
						(unsigned)attr->max_qp_wr),
	};
	/* rxe retries without limit if it is 7. */
	if (dev->is_software && dev->params.retries > 6)
		dev->params.retries = 6;
	dev->params.receives =
		min_of(dev->params.receives, (unsigned)attr->max_srq_wr);
}

static void set_capabilities(struct pn_verbs_device *dev,
			     const struct pn_device_attr *attr)
{
	struct pn_device *device = &dev->device;

	device->single_threaded = attr->single_threaded;
	device->ops = &pn_verbs_ops;
	device->profile = "none";
	device->caps = PN_CAP_READ_ONLY | PN_CAP_REKEY | PN_CAP_FD;
	if (device->limits.max_sge > 1)
		device->caps |= PN_CAP_GATHER;
	if (!dev->is_iwarp)
		device->caps |= PN_CAP_WRITE_IMM;
	if (!dev->is_iwarp && dev->attr.atomic_cap != IBV_ATOMIC_NONE)
		device->caps |= PN_CAP_ATOMICS;
	if (!dev->is_software)
		device->caps |= PN_CAP_RELAXED;
	if (!dev->params.odp)
		device->caps |= PN_CAP_PINS;
}

/* --- opening -------------------------------------------------------------- */

static int open_queues(struct pn_verbs_device *dev)
{
	unsigned nreceives = (unsigned)dev->params.receives;
	struct ibv_srq_init_attr srq = { .attr = { .max_wr = nreceives,
						   .max_sge = 1 } };
	unsigned max_cqe = (unsigned)dev->attr.max_cqe;

	/* The queue has room for the completions of everything in flight. */
	dev->max_sends = (unsigned)min_of(max_cqe - nreceives, 8192);
	dev->channel = ibv_create_comp_channel(dev->domain->context);
	if (!dev->channel)
		return -errno;
	pn_verbs_set_nonblocking(dev->channel->fd);
	/* On iWARP, all work requests of a broken queue pair complete. */
	max_cqe =
		(unsigned)min_of(max_cqe, nreceives + (dev->is_iwarp ? 4 : 1) *
							      dev->max_sends);
	dev->cq = ibv_create_cq(dev->domain->context, (int)max_cqe, NULL,
				dev->channel, 0);
	if (!dev->cq)
		return -errno;
	dev->srq = ibv_create_srq(dev->pd, &srq);
	return dev->srq ? 0 : -errno;
}

static int open_receives(struct pn_verbs_device *dev,
			 const struct pn_pages_policy *pages)
{
	unsigned n = (unsigned)dev->params.receives;
	size_t each = PN_VERBS_MAX_SEND + dev->header_bytes;
	size_t bytes = n * each;
	void *memory;
	int ret;

	dev->receive.buffers = calloc(n, sizeof(*dev->receive.buffers));
	if (!dev->receive.buffers)
		return -ENOMEM;
	ret = pn_pages_map(bytes, pages, &memory);
	if (ret)
		return ret;
	dev->receive.memory = memory;
	dev->receive.bytes = bytes;
	dev->receive.pages = *pages;
	dev->receive.mr =
		ibv_reg_mr(dev->pd, memory, bytes, IBV_ACCESS_LOCAL_WRITE);
	if (!dev->receive.mr) {
		ret = -errno;
		pn_error(
			"verbs: cannot register %zu KiB of receive buffers: "
			"%s; raise `ulimit -l` (RLIMIT_MEMLOCK, in a container "
			"--ulimit memlock=-1) or ask for fewer (receives=)",
			bytes / 1024, strerror(errno));
		return ret;
	}
	/* On iWARP a peer gets credit for a buffer when it is posted. */
	dev->receive.batch = dev->is_iwarp ? 1 : RECEIVE_BATCH;
	for (unsigned i = 0; i < n; i++) {
		pn_verbs_receive_init(dev, &dev->receive.buffers[i],
				      dev->receive.memory + i * each);
		pn_verbs_receive_post(dev, &dev->receive.buffers[i]);
	}
	return 0;
}

static int open_completions(struct pn_verbs_device *dev)
{
	dev->done.max = 64;
	while (dev->done.max <
	       dev->max_sends + dev->params.receives + 2 * PN_VERBS_POLL_BATCH)
		dev->done.max *= 2;
	dev->done.ring = calloc(dev->done.max, sizeof(*dev->done.ring));
	return dev->done.ring ? 0 : -ENOMEM;
}

static int open_wait(struct pn_verbs_device *dev)
{
	int ret;

	dev->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	dev->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (dev->event_fd < 0 || dev->epoll < 0)
		return -errno;
	ret = pn_verbs_watch(dev->epoll, dev->event_fd);
	return ret ? ret : pn_verbs_watch(dev->epoll, dev->channel->fd);
}

static void open_keys(struct pn_verbs_device *dev)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	dev->keys.pd = dev->pd;
	dev->keys.tag = pn_verbs_tag(dev->address.nonce);
	dev->keys.chunk = dev->params.chunk;
	dev->keys.is_iwarp = dev->is_iwarp;
	dev->keys.on_demand = dev->params.odp;
	dev->keys.nthreads = cores < 1 ? 1 : cores > 8 ? 8 : (unsigned)cores;
}

static int check_odp(const struct pn_verbs_device *dev)
{
	const unsigned needs = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_WRITE |
			       IBV_ODP_SUPPORT_READ;

	if (!dev->params.odp || (dev->odp_caps & needs) == needs)
		return 0;
	pn_error("verbs: %s has no on-demand paging; leave odp=yes out",
		 dev->name);
	return -EOPNOTSUPP;
}

static bool has_windows(const struct pn_verbs_device *dev)
{
	return dev->attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW &&
	       !dev->is_iwarp;
}

static int open_windows(struct pn_verbs_device *dev)
{
	int ret = -EOPNOTSUPP;

	if (!dev->params.windows)
		return 0;
	if (has_windows(dev))
		ret = pn_verbs_binder_open(&dev->keys.binder, dev->pd,
					   dev->port, &dev->port_attr);
	if (ret)
		pn_error("verbs: %s offers no memory windows (%s); leave "
			 "windows=yes out",
			 dev->name, strerror(-ret));
	return ret;
}

static int open_domain(struct pn_verbs_device *dev)
{
	if (dev->domain) {
		dev->pd = dev->domain->pd;
		return 0;
	}
	dev->domain = dev;
	dev->pd = ibv_alloc_pd(dev->context);
	if (!dev->pd)
		return -errno;
	open_keys(dev);
	return open_windows(dev);
}

static int open_parts(struct pn_verbs_device *dev, const char *name,
		      const struct pn_device_attr *attr)
{
	int ret = pn_verbs_find(dev, name);

	if (!ret)
		ret = check_odp(dev);
	if (ret)
		return ret;
	set_limits(dev);
	ret = open_domain(dev);
	if (!ret)
		ret = open_queues(dev);
	if (!ret)
		ret = pn_verbs_qp_probe(dev);
	if (!ret && dev->is_iwarp)
		ret = pn_verbs_confirm_byte_alloc(dev);
	if (!ret)
		ret = open_receives(dev, &attr->pages);
	if (!ret)
		ret = open_completions(dev);
	if (!ret)
		ret = open_wait(dev);
	if (!ret)
		ret = pn_verbs_listen(dev);
	return ret ? ret : pn_verbs_service_start(dev);
}

/* --- closing -------------------------------------------------------------- */

static void close_peer(struct pn_verbs_peer *peer)
{
	if (peer->tx.qp)
		ibv_destroy_qp(peer->tx.qp);
	if (peer->rx)
		ibv_destroy_qp(peer->rx->qp);
	if (peer->tx.next)
		ibv_destroy_qp(peer->tx.next);
	pn_verbs_stage_free(&peer->tx);
	free(peer->rx);
	free(peer->tx.records);
	free(peer);
}

static void close_peers(struct pn_verbs_device *dev)
{
	struct pn_list *pos;

	while ((pos = pn_list_pop(&dev->events.list))) {
		struct pn_verbs_event *event =
			pn_container_of(pos, struct pn_verbs_event, link);

		if (event->qp)
			ibv_destroy_qp(event->qp);
		free(event);
	}
	while ((pos = pn_list_pop(&dev->peers)))
		close_peer(pn_container_of(pos, struct pn_verbs_peer, link));
	pn_verbs_destroy_retired(dev);
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* Closes the parts that are open. */
static void close_parts(struct pn_verbs_device *dev)
{
	if (dev->service.running)
		pn_verbs_service_stop(dev);
	close_peers(dev);
	pn_verbs_listen_stop(dev);
	close_fd(dev->epoll);
	close_fd(dev->event_fd);
	pn_verbs_keys_fini(&dev->keys);
	pn_verbs_confirm_byte_free(dev);
	if (dev->srq)
		ibv_destroy_srq(dev->srq);
	if (dev->cq)
		ibv_destroy_cq(dev->cq);
	if (dev->channel)
		ibv_destroy_comp_channel(dev->channel);
	if (dev->receive.mr)
		ibv_dereg_mr(dev->receive.mr);
	pn_pages_unmap(dev->receive.memory, dev->receive.bytes,
		       &dev->receive.pages);
	if (dev->pd && dev->domain == dev)
		ibv_dealloc_pd(dev->pd);
	if (dev->context)
		ibv_close_device(dev->context);
}

static void free_device(struct pn_verbs_device *dev)
{
	pn_mutex_fini(&dev->lock);
	pn_mutex_fini(&dev->peers_lock);
	pn_mutex_fini(&dev->events.lock);
	free(dev->receive.buffers);
	free(dev->done.ring);
	free(dev);
}

static void verbs_close(struct pn_device *device)
{
	close_parts(pn_verbs_of(device));
	free_device(pn_verbs_of(device));
}

static struct pn_verbs_device *alloc_device(void)
{
	struct pn_verbs_device *dev = calloc(1, sizeof(*dev));

	if (!dev)
		return NULL;
	pn_mutex_init(&dev->lock);
	pn_mutex_init(&dev->peers_lock);
	pn_mutex_init(&dev->events.lock);
	pn_list_init(&dev->peers);
	pn_list_init(&dev->teardowns);
	pn_list_init(&dev->credits_due);
	pn_list_init(&dev->events.list);
	pn_verbs_keys_init(&dev->keys);
	dev->epoll = dev->event_fd = -1;
	dev->address.version = PN_VERBS_VERSION;
	memcpy(dev->address.kind, "verb", 4);
	if (getrandom(&dev->address.nonce, sizeof(dev->address.nonce), 0) < 0)
		dev->address.nonce = pn_clock_ns();
	return dev;
}

static int open_or_free(struct pn_verbs_device *dev, const char *name,
			const struct pn_device_attr *attr,
			struct pn_device **out)
{
	int ret = open_parts(dev, name, attr);

	if (ret) {
		close_parts(dev);
		free_device(dev);
		return ret;
	}
	set_capabilities(dev, attr);
	dev->device.polls_before_wait = POLLS_BEFORE_WAIT;
	*out = &dev->device;
	return 0;
}

static int verbs_open(const char *text, const struct pn_device_attr *attr,
		      struct pn_device **out)
{
	struct pn_verbs_device *dev = alloc_device();
	char name[2 * PN_VERBS_DEVICE_NAME];
	int ret;

	if (!dev)
		return -ENOMEM;
	/* It must precede the first registration of the process. Kernels from
	 * 5.12 on do not need it; libibverbs finds out. */
	ibv_fork_init();
	ret = parse(dev, text, name, sizeof(name));
	if (!ret)
		return open_or_free(dev, name, attr, out);
	close_parts(dev);
	free_device(dev);
	return ret;
}

/* Another nonce with the same tag: peers check keys of the domain against the
 * tag of this device. */
static uint64_t nonce_with_tag_of(uint64_t nonce, uint64_t random)
{
	uint32_t folded = (uint32_t)(nonce ^ nonce >> 32);
	uint32_t top = (uint32_t)(random >> 32);

	return (uint64_t)top << 32 | (top ^ folded);
}

/* On the same adapter, port and address. */
static int verbs_open_shared(struct pn_device *device,
			     const struct pn_device_attr *attr,
			     struct pn_device **out)
{
	struct pn_verbs_device *with = pn_verbs_of(device);
	struct pn_verbs_device *dev = alloc_device();
	char name[2 * PN_VERBS_DEVICE_NAME];
	int ret;

	if (!dev)
		return -ENOMEM;
	dev->params = with->params;
	dev->domain = with->domain;
	dev->address.nonce = nonce_with_tag_of(with->domain->address.nonce,
					       dev->address.nonce);
	inet_ntop(with->address.family, with->address.ip, dev->params.address,
		  sizeof(dev->params.address));
	snprintf(name, sizeof(name), "%s/%u", with->name, with->port);
	ret = open_or_free(dev, name, attr, out);
	if (!ret)
		(*out)->costs = device->costs;
	return ret;
}

/* --- the table of operations ---------------------------------------------- */

static int verbs_reg(struct pn_device *device, struct pn_mr *const *mrs,
		     unsigned n)
{
	return pn_verbs_keys_register(&pn_verbs_of(device)->domain->keys, mrs,
				      n);
}

static void verbs_dereg(struct pn_device *device, struct pn_mr *const *mrs,
			unsigned n)
{
	pn_verbs_keys_deregister(&pn_verbs_of(device)->domain->keys, mrs, n);
}

static int verbs_rekey(struct pn_device *device, struct pn_mr *mr)
{
	return pn_verbs_keys_rekey(&pn_verbs_of(device)->domain->keys, mr);
}

static void verbs_pinned(struct pn_device *device, struct pn_pinned *out)
{
	struct pn_verbs_device *dev = pn_verbs_of(device);

	*out = (struct pn_pinned){
		.live_bytes = atomic_load(&dev->domain->keys.live_bytes),
		.mrs = atomic_load(&dev->domain->keys.nmrs),
		.device_bytes = dev->receive.bytes,
	};
}

static void verbs_address(struct pn_device *device, struct pn_address *out)
{
	struct pn_verbs_device *dev = pn_verbs_of(device);

	pn_verbs_address_put(&dev->address, out);
}

static int verbs_fd(struct pn_device *device)
{
	return pn_verbs_of(device)->epoll;
}

static uint64_t verbs_now(struct pn_device *device)
{
	(void)device;
	return pn_clock_ns();
}

static void describe_port(struct pn_verbs_device *dev, pn_fact_fn *fn,
			  void *arg)
{
	static const char *const transports[] = { "InfiniBand", "RoCE",
						  "iWARP" };
	char text[160], ip[INET6_ADDRSTRLEN] = "";
	bool is_ethernet = dev->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET;

	snprintf(text, sizeof(text), "%s, port %u", dev->name, dev->port);
	fn(arg, "adapter", text);
	fn(arg, "transport",
	   transports[dev->is_iwarp ? 2
		      : is_ethernet ? 1
				    : 0]);
	inet_ntop(dev->address.family, dev->address.ip, ip, sizeof(ip));
	snprintf(text, sizeof(text), "%s (rdma_cm)", ip);
	fn(arg, "connects by", text);
	fn(arg, "firmware", dev->attr.fw_ver[0] ? dev->attr.fw_ver : "none");
}

static void verbs_describe(struct pn_device *device, pn_fact_fn *fn, void *arg)
{
	struct pn_verbs_device *dev = pn_verbs_of(device);
	char text[160];

	describe_port(dev, fn, arg);
	fn(arg, "on-demand paging",
	   !dev->odp_caps    ? "not offered"
	   : dev->params.odp ? "used (odp=yes; untested)"
			     : "offered, not used (odp=yes uses it; untested)");
	fn(arg, "memory windows",
	   !has_windows(dev)	 ? "not offered"
	   : dev->params.windows ? "used (windows=yes)"
				 : "offered, not used (windows=yes)");
	snprintf(text, sizeof(text),
		 "%llu us before sending again, at max_cqe %llu times",
		 (unsigned long long)(4096u << dev->params.ack_timeout) / 1000,
		 (unsigned long long)dev->params.retries);
	fn(arg, "patience", text);
	fn(arg, "fork",
	   ibv_is_fork_initialized() == IBV_FORK_UNNEEDED
		   ? "the kernel keeps registered pages with the parent"
		   : "registered pages are kept from children (madvise)");
}

const struct pn_device_ops pn_verbs_ops = {
	.kind = "verbs",
	.help = "RDMA adapter: InfiniBand, RoCE, iWARP, rxe, siw",
	.params = params,
	.nparams = PN_ARRAY_LEN(params),
	.open = verbs_open,
	.open_shared = verbs_open_shared,
	.close = verbs_close,
	.describe = verbs_describe,
	.reg = verbs_reg,
	.dereg = verbs_dereg,
	.still_registered = pn_verbs_keys_kept,
	.rekey = verbs_rekey,
	.pinned = verbs_pinned,
	.address = verbs_address,
	.attach = pn_verbs_attach,
	.detach = pn_verbs_detach,
	.post = pn_verbs_post,
	.send_inline = pn_verbs_send_inline,
	.poll = pn_verbs_poll,
	.return_buffer = pn_verbs_return_buffer,
	.wait = pn_verbs_wait,
	.wake = pn_verbs_wake,
	.fd = verbs_fd,
	.arm = pn_verbs_arm,
	.now = verbs_now,
};
