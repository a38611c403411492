/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/soft/soft.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/process.h"
#include "base/range.h"
#include "device/soft/soft_impl.h"

/* --- parameters ---------------------------------------------------------- */

static const char *const modes[] = { "auto", "uring", "mlock", NULL };
static const char *const engines[] = { "auto", "thread", "inline", NULL };

#define AT(field) offsetof(struct pn_soft_params, field)

static const struct pn_option params[] = {
	{ "mode", PN_OPTION_CHOICE, "auto",
	  "pin with io_uring, or lock with mlock where that is not permitted",
	  AT(mode), 0, 0, modes },
	{ "strict", PN_OPTION_BOOL, "no",
	  "read and write local segments through their registrations too",
	  AT(strict), 0, 0, NULL },
	{ "cost", PN_OPTION_TEXT, "none",
	  "cost profile whose registration times are added to the real ones",
	  AT(cost), 0, 0, NULL },
	{ "engine", PN_OPTION_CHOICE, "auto",
	  "who moves bytes: the engine thread, the posting one, or by size",
	  AT(engine), 0, 0, engines },
	{ "inline_max", PN_OPTION_BYTES, "256K",
	  "largest write or read that engine=auto carries out while posting",
	  AT(inline_max), 0, 0, NULL },
	{ "chunk", PN_OPTION_BYTES, "256K",
	  "bytes moved under one locking of the target's ring", AT(chunk),
	  16 << 10, 1 << 20, NULL },
	{ "slots", PN_OPTION_NUMBER, "1024", "registrations per ring",
	  AT(slots), 1, PN_SOFT_SLOTS, NULL },
	{ "rings", PN_OPTION_NUMBER, "64",
	  "rings at most, of private and of exposed memory each", AT(rings), 1,
	  PN_SOFT_RINGS, NULL },
	{ "ring_bytes", PN_OPTION_BYTES, "256K",
	  "message memory per peer and direction, a power of two",
	  AT(ring_bytes), PN_SOFT_MIN_RING, 2 << 20, NULL },
	{ "queue_depth", PN_OPTION_NUMBER, "256",
	  "operations in flight per peer", AT(queue_depth), 1, 1 << 20, NULL },
	{ "spin", PN_OPTION_TIME, "100us", "busy waiting before sleeping",
	  AT(spin), 0, PN_NS_PER_S, NULL },
	{ "node", PN_OPTION_TEXT, "",
	  "reach only devices with this name: hosts within a host, to try out "
	  "jobs over several",
	  AT(node), 0, 0, NULL },
};

static int parse(struct pn_soft_device *dev, const char *text)
{
	struct pn_soft_params *p = &dev->params;
	struct pn_why why = { "" };

	pn_options_defaults(params, PN_ARRAY_LEN(params), p);
	if (pn_options_parse_list(params, PN_ARRAY_LEN(params), text, p,
				  &why)) {
		pn_error("soft: %s", why.text);
		return -EINVAL;
	}
	dev->profile = pn_profile_find(p->cost);
	if (!dev->profile) {
		pn_error("soft: no cost profile '%.64s'; `pinion info` lists "
			 "the profiles",
			 p->cost);
		return -EINVAL;
	}
	if ((p->ring_bytes & (p->ring_bytes - 1)) || p->chunk % PN_PAGE_BYTES) {
		pn_error("soft: ring_bytes must be a power of two, chunk a "
			 "multiple of 4096");
		return -EINVAL;
	}
	return 0;
}

/* --- registration -------------------------------------------------------- */

/* Declared costs are CPU work, so they use the CPU. */
static void busy_wait(uint64_t ns)
{
	uint64_t until = pn_clock_ns() + ns;

	while (ns && pn_clock_ns() < until)
		pn_relax();
}

static int soft_reg(struct pn_device *device, struct pn_mr *const *mrs,
		    unsigned n)
{
	struct pn_soft_device *dev = pn_soft_of(device);
	int ret = n ? pn_soft_slots_register(&dev->domain->slots, mrs, n) : 0;
	uint64_t ns = 0;

	if (ret || !device->emulated)
		return ret;
	for (unsigned i = 0; i < n; i++)
		ns += pn_profile_register_ns(
			dev->profile,
			pn_range_npages((uintptr_t)mrs[i]->addr, mrs[i]->len));
	busy_wait(ns);
	return 0;
}

static void soft_dereg(struct pn_device *device, struct pn_mr *const *mrs,
		       unsigned n)
{
	struct pn_soft_device *dev = pn_soft_of(device);
	size_t npages = 0;

	if (!n)
		return;
	for (unsigned i = 0; i < n; i++)
		npages += pn_range_npages((uintptr_t)mrs[i]->addr, mrs[i]->len);
	pn_soft_slots_deregister(&dev->domain->slots, mrs, n);
	if (device->emulated)
		busy_wait(pn_profile_deregister_ns(dev->profile, n, npages));
}

static int soft_rekey(struct pn_device *device, struct pn_mr *mr)
{
	return pn_soft_slots_rekey(&pn_soft_of(device)->domain->slots, mr);
}

static void soft_pinned(struct pn_device *device, struct pn_pinned *out)
{
	pn_soft_slots_pinned(&pn_soft_of(device)->domain->slots, out);
}

/* --- peers --------------------------------------------------------------- */

static void soft_address(struct pn_device *device, struct pn_address *out)
{
	struct pn_soft_device *dev = pn_soft_of(device);

	memset(out, 0, sizeof(*out));
	out->len = sizeof(dev->service.address);
	memcpy(out->data, &dev->service.address, out->len);
}

/* Makes the device's peer to itself: one channel, both ends here. */
static int loop_back(struct pn_soft_device *dev, struct pn_soft_peer *peer)
{
	size_t bytes = 2 * pn_soft_channel_bytes(dev->params.ring_bytes);
	void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int ret;

	if (map == MAP_FAILED)
		return -ENOMEM;
	ret = pn_soft_rx_init(&peer->rx, map, dev->params.ring_bytes);
	if (ret) {
		munmap(map, bytes);
		return ret;
	}
	pn_soft_tx_init(&peer->tx, map, dev->params.ring_bytes);
	pn_soft_remote_init(&peer->remote, dev->shared, dev->presence,
			    &dev->domain->slots, getpid());
	peer->connection.channels = map;
	peer->connection.ring_bytes = dev->params.ring_bytes;
	peer->mapped = true;
	atomic_store(&peer->state, PN_SOFT_UP);
	pn_soft_queue_up(dev, peer);
	return 0;
}

static int soft_attach(struct pn_device *device,
		       const struct pn_address *address, struct pn_peer **out)
{
	struct pn_soft_device *dev = pn_soft_of(device);
	struct pn_soft_address to;
	struct pn_soft_peer *peer;
	bool is_new;
	int ret = 0;

	if (address->len != sizeof(to))
		return -EINVAL;
	memcpy(&to, address->data, sizeof(to));
	if (memcmp(to.kind, "soft", 4) || to.version != PN_SOFT_VERSION)
		return -EINVAL;
	if (to.node != dev->service.address.node ||
	    to.node_top != dev->service.address.node_top)
		return -EHOSTUNREACH;
	peer = pn_soft_peer_get(dev, &to, &is_new);
	if (!peer)
		return -ENOMEM;
	if (is_new && to.nonce == dev->service.address.nonce)
		ret = loop_back(dev, peer);
	else if (is_new)
		pn_soft_service_kick(&dev->service);
	if (ret) /* the next attach() creates another */
		atomic_store(&peer->state, PN_SOFT_DOWN);
	else
		*out = &peer->peer;
	return ret;
}

static void soft_detach(struct pn_device *device, struct pn_peer *peer)
{
	atomic_store(&pn_soft_peer_of(peer)->detach_requested, true);
	pn_soft_service_kick(&pn_soft_of(device)->service);
}

/* --- opening ------------------------------------------------------------- */

static void set_limits(struct pn_soft_device *dev)
{
	const struct pn_soft_params *p = &dev->params;

	dev->device.limits = (struct pn_device_limits){
		/* One page less: the range may begin in the middle of its first
		 * page. */
		.max_mr_bytes = ((size_t)p->slots << PN_SOFT_SLOT_SHIFT) -
				PN_PAGE_BYTES,
		.max_mrs = p->slots * p->rings,
		.max_pinned_bytes = pn_limits_memlock(),
		/* mlock() counts each process separately. */
		.pinned_by_user = !dev->why_mlock,
		.deferred_uncharge = dev->domain->slots.deferred_uncharge,
		.max_send_bytes = PN_SOFT_MAX_SEND,
		.max_op_bytes = (size_t)p->slots << PN_SOFT_SLOT_SHIFT,
		.inline_bytes = PN_SOFT_MAX_SEND,
		.max_sge = PN_SOFT_MAX_SGE,
		.queue_depth = (unsigned)p->queue_depth,
	};
}

static void set_facts(struct pn_soft_device *dev,
		      const struct pn_device_attr *attr)
{
	dev->device.single_threaded = attr->single_threaded;
	dev->device.ops = &pn_soft_ops;
	dev->device.caps = PN_CAP_GATHER | PN_CAP_WRITE_IMM | PN_CAP_ATOMICS |
			   PN_CAP_FAST_REGISTER | PN_CAP_REKEY | PN_CAP_FD |
			   PN_CAP_RING | PN_CAP_ATTACH_AGAIN;
	if (!dev->why_mlock)
		dev->device.caps |= PN_CAP_PINS;
	if (!dev->params.strict)
		dev->device.caps |= PN_CAP_UNPINNED;
	dev->device.profile = dev->profile->name;
	dev->device.emulated = dev->profile != pn_profile_at(0);
	dev->device.costs.cpu_moves = true;
	dev->device.costs.handoff_bytes =
		dev->params.engine == PN_SOFT_INLINE   ? SIZE_MAX
		: dev->params.engine == PN_SOFT_THREAD ? 0
						       : dev->params.inline_max;
	set_limits(dev);
}

/* The errors of io_uring after which mlock() may work instead. */
static const char *why_not_uring(int error)
{
	switch (error) {
	case -ENOSYS:
		return "this kernel or its seccomp filter has no io_uring";
	case -EPERM:
	case -EACCES:
		return "io_uring is not permitted here "
		       "(kernel.io_uring_disabled or a seccomp filter)";
	case -EINVAL:
		return "this kernel's io_uring is too old (5.19 is needed)";
	case -ENOMEM:
		return "RLIMIT_MEMLOCK, which counts over all processes of the "
		       "user, leaves no room for io_uring's rings";
	default:
		return NULL;
	}
}

#define RAISE_LIMIT                                                      \
	"raise `ulimit -l` (RLIMIT_MEMLOCK, counted over all processes " \
	"of the user) or give CAP_IPC_LOCK"

static int lock_instead(struct pn_soft_device *dev,
			struct pn_soft_slots_attr *attr, int why)
{
	if (why == -ENOMEM)
		pn_warn("soft: other processes of the user hold all memory "
			"that may be pinned; pages are locked instead, which "
			"counts for this process alone: " RAISE_LIMIT);
	attr->uses_uring = false;
	return pn_soft_slots_init(&dev->slots, dev->shared, attr);
}

static int open_slots(struct pn_soft_device *dev)
{
	struct pn_soft_slots_attr attr = {
		.device = &dev->device,
		.nslots = (unsigned)dev->params.slots,
		.max_rings = (unsigned)dev->params.rings,
		.uses_uring = dev->params.mode != PN_SOFT_MLOCK,
	};
	int ret = pn_soft_slots_init(&dev->slots, dev->shared, &attr);

	if (!attr.uses_uring)
		dev->why_mlock = "mode=mlock was asked for";
	if (ret && dev->params.mode == PN_SOFT_AUTO) {
		dev->why_mlock = why_not_uring(ret);
		if (dev->why_mlock)
			ret = lock_instead(dev, &attr, ret);
	}
	dev->shared->uses_uring = attr.uses_uring;
	if (ret == -ENOMEM)
		pn_error("soft: no locked memory for the rings: " RAISE_LIMIT);
	else if (ret)
		pn_error("soft: io_uring: %s; mode=mlock works without it",
			 strerror(-ret));
	return ret;
}

static int open_shared(struct pn_soft_device *dev)
{
	void *map;
	int ret = pn_soft_memfd("pinion-soft", sizeof(*dev->shared),
				&dev->shared_fd, &map);

	if (ret)
		return ret;
	dev->shared = map;
	pn_soft_robust_init(&dev->shared->atomic_lock);
	return 0;
}

static int open_presence(struct pn_soft_device *dev)
{
	void *map;
	int ret = pn_soft_memfd("pinion-presence", sizeof(*dev->presence),
				&dev->presence_fd, &map);

	if (ret)
		return ret;
	dev->presence = map;
	pn_soft_robust_init(&dev->presence->alive);
	return 0;
}

static void close_wakeups(struct pn_soft_device *dev)
{
	if (dev->own_fd >= 0)
		close(dev->own_fd);
	if (dev->event_fd >= 0)
		close(dev->event_fd);
}

static int open_wakeups(struct pn_soft_device *dev)
{
	struct epoll_event event = { .events = EPOLLIN };
	int ret = 0;

	dev->own_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	dev->event_fd = epoll_create1(EPOLL_CLOEXEC);
	event.data.fd = dev->own_fd;
	if (dev->own_fd < 0 || dev->event_fd < 0 ||
	    epoll_ctl(dev->event_fd, EPOLL_CTL_ADD, dev->own_fd, &event))
		ret = -errno;
	if (ret)
		close_wakeups(dev);
	return ret;
}

/* Where Yama restricts tracing (ptrace_scope 1), a process can open another's
 * rings only if the owner allows it. The owner can allow one process, or all of
 * its user, and any peer may need a new ring at any time: so all are allowed
 * while a device is open. Elsewhere the call does nothing. */
static struct pn_mutex tracing_lock = { PTHREAD_MUTEX_INITIALIZER };
static unsigned ndevices PN_GUARDED_BY(&tracing_lock);

static void before_fork(void) PN_NO_THREAD_SAFETY
{
	pn_lock(&tracing_lock);
}

static void after_fork(void) PN_NO_THREAD_SAFETY
{
	pn_unlock(&tracing_lock);
}

/* A child inherits neither the devices nor the permission to trace. */
static void in_child(void) PN_NO_THREAD_SAFETY
{
	ndevices = 0;
	pn_unlock(&tracing_lock);
}

static void watch_fork(void)
{
	pn_process_atfork(before_fork, after_fork, in_child);
}

/* The system call is made under the same lock as the count, so that the last
 * call matches the count. */
static void allow_tracing(bool let)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_fork);
	pn_lock(&tracing_lock);
	if (let ? !ndevices++ : !--ndevices)
		prctl(PR_SET_PTRACER, let ? PR_SET_PTRACER_ANY : 0, 0, 0, 0);
	pn_unlock(&tracing_lock);
}

static void init_lists(struct pn_soft_device *dev)
{
	pn_mutex_init(&dev->lock);
	pn_mutex_init(&dev->peers_lock);
	pn_mutex_init(&dev->events_lock);
	pn_list_init(&dev->peers);
	pn_list_init(&dev->up_events);
	pn_list_init(&dev->down_events);
}

static void free_device(struct pn_soft_device *dev)
{
	pn_mutex_fini(&dev->lock);
	pn_mutex_fini(&dev->peers_lock);
	pn_mutex_fini(&dev->events_lock);
	free(dev->completed);
	free(dev->active);
	free(dev->next_active);
	free(dev);
}

static void close_shared(struct pn_soft_device *dev)
{
	munmap(dev->shared, sizeof(*dev->shared));
	close(dev->shared_fd);
}

static void close_presence(struct pn_soft_device *dev)
{
	munmap(dev->presence, sizeof(*dev->presence));
	close(dev->presence_fd);
}

/* Opens the registrations of a device that shares those of no other. */
static int open_domain(struct pn_soft_device *dev)
{
	int ret = open_shared(dev);

	if (ret)
		return ret;
	dev->domain = dev;
	ret = open_slots(dev);
	if (ret)
		close_shared(dev);
	return ret;
}

static void close_domain(struct pn_soft_device *dev)
{
	if (dev->domain != dev)
		return;
	pn_soft_slots_fini(&dev->slots);
	close_shared(dev);
}

/* Opens everything that the system can refuse; undone in reverse. */
static int open_parts(struct pn_soft_device *dev)
{
	int ret = dev->domain ? 0 : open_domain(dev);

	if (ret)
		return ret;
	ret = open_presence(dev);
	if (ret)
		goto close_domain;
	ret = open_wakeups(dev);
	if (ret)
		goto close_presence;
	pn_soft_staging_init(&dev->staging, dev->params.chunk,
			     dev->params.strict ? &dev->domain->slots : NULL);
	pn_soft_engine_init(&dev->engine, dev);
	pn_soft_yield_init(&dev->yield);
	ret = pn_soft_service_init(&dev->service, dev);
	if (ret)
		goto fini_engine;
	return 0;

fini_engine:
	pn_soft_engine_fini(&dev->engine);
	close_wakeups(dev);
close_presence:
	close_presence(dev);
close_domain:
	close_domain(dev);
	return ret;
}

static struct pn_soft_device *alloc_device(void)
{
	struct pn_soft_device *dev =
		aligned_alloc(PN_CACHELINE, (sizeof(*dev) + PN_CACHELINE -
					     1) & ~(size_t)(PN_CACHELINE - 1));

	if (!dev)
		return NULL;
	memset(dev, 0, sizeof(*dev));
	init_lists(dev);
	return dev;
}

/* The parameters, and the domain if the device shares one, are set. */
static int finish_open(struct pn_soft_device *dev,
		       const struct pn_device_attr *attr,
		       struct pn_device **out)
{
	int ret = pn_soft_completed_reserve(dev);

	if (!ret)
		ret = open_parts(dev);
	if (ret) {
		free_device(dev);
		return ret;
	}
	allow_tracing(true);
	set_facts(dev, attr);
	*out = &dev->device;
	return 0;
}

static int soft_open(const char *text, const struct pn_device_attr *attr,
		     struct pn_device **out)
{
	struct pn_soft_device *dev = alloc_device();
	int ret = dev ? parse(dev, text) : -ENOMEM;

	if (!ret)
		return finish_open(dev, attr, out);
	if (dev)
		free_device(dev);
	return ret;
}

static int soft_open_shared(struct pn_device *device,
			    const struct pn_device_attr *attr,
			    struct pn_device **out)
{
	const struct pn_soft_device *with = pn_soft_of(device);
	struct pn_soft_device *dev = alloc_device();
	int ret;

	if (!dev)
		return -ENOMEM;
	dev->params = with->params;
	dev->profile = with->profile;
	dev->why_mlock = with->why_mlock;
	dev->domain = with->domain;
	dev->shared = with->shared;
	dev->shared_fd = with->shared_fd;
	ret = finish_open(dev, attr, out);
	if (!ret)
		dev->device.costs = device->costs;
	return ret;
}

static void soft_close(struct pn_device *device)
{
	struct pn_soft_device *dev = pn_soft_of(device);
	struct pn_list *pos;

	pn_soft_engine_stop(&dev->engine);
	pn_soft_service_stop(&dev->service);
	pn_soft_engine_fini(&dev->engine);
	while ((pos = pn_list_pop(&dev->peers))) {
		struct pn_soft_peer *peer =
			pn_container_of(pos, struct pn_soft_peer, link);

		pn_soft_peer_unmap(peer);
		free(peer);
	}
	pn_soft_service_fini(&dev->service);
	pn_soft_staging_fini(&dev->staging);
	close_wakeups(dev);
	close_presence(dev);
	close_domain(dev);
	free_device(dev);
	allow_tracing(false);
}

static int soft_fd(struct pn_device *device)
{
	return pn_soft_of(device)->event_fd;
}

static uint64_t soft_now(struct pn_device *device)
{
	(void)device;
	return pn_clock_ns();
}

const struct pn_device_ops pn_soft_ops = {
	.kind = "soft",
	.help = "software adapter between processes of one host",
	.params = params,
	.nparams = PN_ARRAY_LEN(params),
	.open = soft_open,
	.open_shared = soft_open_shared,
	.close = soft_close,
	.describe = pn_soft_describe,
	.reg = soft_reg,
	.dereg = soft_dereg,
	.rekey = soft_rekey,
	.pinned = soft_pinned,
	.address = soft_address,
	.attach = soft_attach,
	.detach = soft_detach,
	.post = pn_soft_post,
	.send_inline = pn_soft_send_inline,
	.poll = pn_soft_poll,
	.return_buffer = pn_soft_return_buffer,
	.idle = pn_soft_idle,
	.wait = pn_soft_wait,
	.wake = pn_soft_wake,
	.fd = soft_fd,
	.arm = pn_soft_arm,
	.now = soft_now,
};
