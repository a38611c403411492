/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/device.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/range.h"
#include "device/cuda/cuda.h"
#include "device/fabric/fabric.h"
#include "device/own_registration.h"
#include "device/sim/sim.h"
#include "device/soft/soft.h"
#include "device/verbs/verbs.h"

static const struct pn_device_ops *const kinds[] = {
	&pn_soft_ops,	&pn_sim_ops,
#ifdef PINION_VERBS
	&pn_verbs_ops,
#endif
#ifdef PINION_FABRIC
	&pn_fabric_ops,
#endif
	&pn_cuda_ops,
};

const struct pn_device_ops *pn_device_kind(unsigned index)
{
	return index < PN_ARRAY_LEN(kinds) ? kinds[index] : NULL;
}

static const struct pn_device_ops *find_kind(const char *name, size_t len)
{
	for (size_t i = 0; i < PN_ARRAY_LEN(kinds); i++)
		if (!strncmp(kinds[i]->kind, name, len) && !kinds[i]->kind[len])
			return kinds[i];
	return NULL;
}

static const struct pn_device_attr defaults = {
	.pages = { .numa_node = -1 },
};

int pn_device_open_shared(struct pn_device *device,
			  const struct pn_device_attr *attr,
			  struct pn_device **out)
{
	int ret;

	if (!device->ops->open_shared)
		return -EOPNOTSUPP;
	pn_own_registration_begin();
	ret = device->ops->open_shared(device, attr ? attr : &defaults, out);
	pn_own_registration_end();
	return ret;
}

int pn_device_open(const char *spec, const struct pn_device_attr *attr,
		   struct pn_device **out)
{
	size_t len = strcspn(spec, ":");
	const struct pn_device_ops *ops = find_kind(spec, len);
	int ret;

	if (!ops) {
		pn_error("no device '%.64s'; `pinion info` lists the devices",
			 spec);
		return -ENODEV;
	}
	pn_own_registration_begin();
	ret = ops->open(spec[len] ? spec + len + 1 : "",
			attr ? attr : &defaults, out);
	pn_own_registration_end();
	return ret;
}

/* Finds the next device of a joined spec: after a '+' or '/' that the name of a
 * kind follows. NULL: there is none. */
static const char *next_spec(const char *spec)
{
	const char *at = spec;

	while ((at = strpbrk(at, "+/"))) {
		at++;
		if (find_kind(at, strcspn(at, ":+/")))
			return at;
	}
	return NULL;
}

bool pn_device_spec_is_alternatives(const char *spec)
{
	const char *next = next_spec(spec);

	return next && next[-1] == '/';
}

/* Both separators in one spec would need a precedence, which does not exist. */
static int check_separators(const char *spec)
{
	bool either = pn_device_spec_is_alternatives(spec);
	const char *next = spec;

	while ((next = next_spec(next))) {
		if ((next[-1] == '/') == either)
			continue;
		pn_error("device '%.64s': join devices by '+' (all of them at "
			 "once) or by '/' (for each peer the first that "
			 "reaches it), not by both",
			 spec);
		return -EINVAL;
	}
	return 0;
}

static int add_rail(struct pn_device **out, unsigned *n,
		    struct pn_device *device)
{
	if (*n == PN_RAILS_MAX) {
		pn_error("device: more than %d rails; name fewer",
			 PN_RAILS_MAX);
		return -EINVAL;
	}
	out[(*n)++] = device;
	return 0;
}

/* Opens one of the joined specs, with all its ports. */
static int open_spec(const char *spec, size_t len,
		     const struct pn_device_attr *attr, struct pn_device **out,
		     unsigned *n)
{
	char *text = strndup(spec, len);
	struct pn_device *device, *more;
	int ret = text ? pn_device_open(text, attr, &device) : -ENOMEM;

	free(text);
	if (ret)
		return ret;
	ret = add_rail(out, n, device);
	if (ret)
		pn_device_close(device);
	for (unsigned i = 1; !ret && device->ops->port; i++) {
		more = device->ops->port(device, i);
		if (!more)
			break;
		ret = add_rail(out, n, more);
	}
	return ret;
}

/* Whether `other` is `first` or one of its further ports. */
static bool is_port_of(struct pn_device *first, const struct pn_device *other)
{
	struct pn_device *port = first;

	for (unsigned i = 1; port && port != other; i++)
		port = first->ops->port ? first->ops->port(first, i) : NULL;
	return port;
}

/* Checks that one wait can cover all rails. */
static int check_rails(struct pn_device *const *rails, unsigned n)
{
	for (unsigned i = 0; i < n && n > 1; i++) {
		if (pn_device_has_messages(rails[i]))
			continue;
		pn_error("device: '%s' has no messages and cannot be a rail; "
			 "open a context of its own for it",
			 rails[i]->ops->kind);
		return -EINVAL;
	}
	for (unsigned i = 1; i < n; i++) {
		bool alike = rails[i]->ops == rails[0]->ops &&
			     rails[0]->ops->wait_any;

		if ((alike && is_port_of(rails[0], rails[i])) ||
		    (rails[i]->caps & rails[0]->caps & PN_CAP_FD))
			continue;
		if (alike) {
			pn_error("device: every '%s' is a separate simulated "
				 "world and cannot be a rail of another; use "
				 "one world with several ports: %s:rails=%u",
				 rails[0]->ops->kind, rails[0]->ops->kind, n);
			return -EINVAL;
		}
		pn_error("device: '%s' and '%s' cannot be rails of one "
			 "context: one of them has no file descriptor to wait "
			 "for",
			 rails[0]->ops->kind, rails[i]->ops->kind);
		return -EINVAL;
	}
	return 0;
}

int pn_device_open_rails(const char *spec, const struct pn_device_attr *attr,
			 struct pn_device **out, unsigned *n)
{
	const char *next;
	int ret = check_separators(spec);

	*n = 0;
	if (ret)
		return ret;
	do {
		next = next_spec(spec);
		ret = open_spec(spec,
				next ? (size_t)(next - spec) - 1 : strlen(spec),
				attr, out, n);
		spec = next;
	} while (!ret && next);
	if (!ret)
		ret = check_rails(out, *n);
	while (ret && *n)
		pn_device_close(out[--*n]);
	return ret;
}

void pn_device_close(struct pn_device *device)
{
	struct pn_device_cleanup *cleanup;

	if (!device)
		return;
	cleanup = device->cleanups;
	device->ops->close(device);
	while (cleanup) {
		struct pn_device_cleanup *next = cleanup->next;

		cleanup->fn(cleanup);
		cleanup = next;
	}
}

void pn_device_add_cleanup(struct pn_device *device,
			   struct pn_device_cleanup *cleanup)
{
	cleanup->next = device->cleanups;
	device->cleanups = cleanup;
}

void pn_device_remove_cleanup(struct pn_device *device,
			      struct pn_device_cleanup *cleanup)
{
	struct pn_device_cleanup **pos = &device->cleanups;

	while (*pos && *pos != cleanup)
		pos = &(*pos)->next;
	if (*pos)
		*pos = cleanup->next;
}

int pn_device_check_mr(const struct pn_device *device, const struct pn_mr *mr)
{
	unsigned known = PINION_ACCESS_ALL;

	if (device->caps & PN_CAP_UNPINNED)
		known |= PN_ACCESS_UNPINNED;
	if (device->caps & PN_CAP_BY_ADDRESS)
		known |= PN_ACCESS_OWN;
	if (!pn_range_valid((uintptr_t)mr->addr, mr->len) ||
	    mr->len > device->limits.max_mr_bytes || (mr->access & ~known))
		return -EINVAL;
	return 0;
}

int pn_device_register(struct pn_device *device, struct pn_mr *const *mrs,
		       unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		int ret = pn_device_check_mr(device, mrs[i]);

		if (ret)
			return ret;
	}
	for (unsigned i = 0; i < n; i++) {
		if (mrs[i]->access &
		    (PINION_ACCESS_REMOTE_WRITE | PINION_ACCESS_REMOTE_ATOMIC))
			mrs[i]->access |= PINION_ACCESS_LOCAL_WRITE;
		mrs[i]->lkey = mrs[i]->rkey = 0;
		mrs[i]->device_slot = 0;
		mrs[i]->handle = NULL;
	}
	PN_NO_CANCEL();
	return device->ops->reg(device, mrs, n);
}

int pn_device_post_inline(struct pn_device *device, struct pn_peer *peer,
			  const struct pn_inline_header *header,
			  const void *body, size_t len)
{
	struct pn_sge sge[2] = { { (void *)(uintptr_t)header, sizeof(*header),
				   0 },
				 { (void *)(uintptr_t)body, len, 0 } };
	struct pn_op op = { .kind = PN_OP_SEND,
			    .flags = PN_OP_INLINE | PN_OP_SILENT,
			    .sge = sge,
			    .nsge = len ? 2 : 1 };

	return pn_device_post(device, peer, &op);
}

int pn_device_connection_error(int error)
{
	switch (error) {
	case -ECONNRESET:
	case -ECONNREFUSED:
	case -EHOSTUNREACH:
	case -EMFILE:
	case -ENOMEM:
	case -EPROTO:
		return error;
	case -EPIPE:
		return -ECONNRESET;
	case -ENFILE:
	case -ETOOMANYREFS:
		return -EMFILE;
	case -ENOBUFS:
		return -ENOMEM;
	case -EADDRNOTAVAIL:
	case -ENETDOWN:
	case -ENETUNREACH:
	case -ETIMEDOUT:
		return -EHOSTUNREACH;
	default:
		return -ECONNREFUSED;
	}
}

/* A system call that sleeps, and its arguments. */
struct sleep_call {
	long number;
	long args[5];
};

static long sleep_plain(const struct sleep_call *call)
{
	const long *a = call->args;

	return syscall(call->number, a[0], a[1], a[2], a[3], a[4], 0);
}

/* The same as a cancellation point. No libc function that is one sleeps on a
 * futex. Cancellation is asynchronous during the system call only, so that no
 * other code can be interrupted. */
static long sleep_cancelable(const struct sleep_call *call)
{
	int type;
	long ret;

	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &type);
	ret = sleep_plain(call);
	pthread_setcanceltype(type, NULL);
	return ret;
}

/* Sleeps until one of the descriptors is readable or a signal comes. False: the
 * deadline has passed (by the machine's clock: devices with descriptors use
 * it). */
static bool sleep_on(struct pollfd *fds, unsigned n, uint64_t deadline_ns)
{
	uint64_t now = deadline_ns == PN_FOREVER ? 0 : pn_clock_ns();
	uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
	struct timespec ts = { (time_t)(left / PN_NS_PER_S),
			       (long)(left % PN_NS_PER_S) };
	struct sleep_call call = {
		SYS_ppoll,
		{ (long)fds, n, deadline_ns == PN_FOREVER ? 0 : (long)&ts }
	};

	return sleep_cancelable(&call) != 0;
}

/* A device that has something already ends the wait before it sleeps. */
int pn_device_wait_any(struct pn_device *const *devices, unsigned n,
		       uint64_t deadline_ns)
{
	const struct pn_device_ops *ops = devices[0]->ops;
	struct pollfd fds[PN_RAILS_MAX];
	bool alike = true;

	if (n == 1)
		return pn_device_wait(devices[0], deadline_ns);
	for (unsigned i = 1; i < n; i++)
		alike &= devices[i]->ops == ops;
	if (alike && ops->wait_any)
		return ops->wait_any(devices, n, deadline_ns);
	for (unsigned i = 0; i < n; i++) {
		if (pn_device_arm(devices[i]))
			return 0;
		fds[i] = (struct pollfd){ .fd = pn_device_fd(devices[i]),
					  .events = POLLIN };
	}
	return sleep_on(fds, n, deadline_ns) ? 0 : -ETIMEDOUT;
}

bool pn_device_sleep_on(int fd, uint64_t deadline_ns)
{
	struct pollfd one = { .fd = fd, .events = POLLIN };

	return sleep_on(&one, 1, deadline_ns);
}

static void block_by(long (*sleep)(const struct sleep_call *call),
		     struct pn_device *device, _Atomic uint32_t *word,
		     uint32_t value, uint64_t deadline_ns)
{
	uint64_t now = deadline_ns == PN_FOREVER ? 0 : pn_device_now(device);
	struct timespec ts;

	if (deadline_ns <= now)
		return;
	ts = (struct timespec){
		.tv_sec = (time_t)((deadline_ns - now) / PN_NS_PER_S),
		.tv_nsec = (long)((deadline_ns - now) % PN_NS_PER_S),
	};
	sleep(&(struct sleep_call){
		SYS_futex,
		{ (long)word, FUTEX_WAIT_PRIVATE, value,
		  deadline_ns == PN_FOREVER ? 0 : (long)&ts } });
}

void pn_device_futex_wait_until(struct pn_device *device,
				_Atomic uint32_t *word, uint32_t value,
				uint64_t deadline_ns)
{
	if (device->ops->block)
		device->ops->block(device, word, value, deadline_ns);
	else
		block_by(sleep_plain, device, word, value, deadline_ns);
}

void pn_device_block_cancelable(struct pn_device *device,
				_Atomic uint32_t *word, uint32_t value,
				uint64_t deadline_ns)
{
	if (device->ops->block)
		device->ops->block(device, word, value, deadline_ns);
	else
		block_by(sleep_cancelable, device, word, value, deadline_ns);
}

void pn_device_futex_wake(struct pn_device *device, _Atomic uint32_t *word)
{
	if (device->ops->unblock)
		device->ops->unblock(device, word);
	else
		syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL,
			NULL, 0);
}
