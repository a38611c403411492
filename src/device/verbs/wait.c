/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sleeping without missing a completion: arm the completion queue, then poll
 * once more, then sleep on an epoll descriptor, which holds the completion
 * channel and an eventfd. The service thread and wake() write the eventfd.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "device/verbs/verbs_impl.h"

/* The peer may run on the same core. */
#define POLLS_PER_YIELD 16

void pn_verbs_notify(struct pn_verbs_device *dev)
{
	PN_NO_CANCEL();
	uint64_t one = 1;

	/* It fails only when the counter is full: then it is readable. */
	if (write(dev->event_fd, &one, sizeof(one)) < 0)
		return;
}

void pn_verbs_set_nonblocking(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

int pn_verbs_watch(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static bool has_work(struct pn_verbs_device *dev)
{
	bool found;

	if (atomic_load_explicit(&dev->woken, memory_order_relaxed) &&
	    atomic_exchange(&dev->woken, 0))
		return true;
	pn_verbs_lock(dev);
	if (!dev->done.n)
		pn_verbs_progress(dev);
	found = dev->done.n || dev->post_room;
	dev->post_room = false;
	pn_verbs_unlock(dev);
	return found;
}

static bool spin(struct pn_verbs_device *dev, uint64_t deadline_ns)
{
	uint64_t now = pn_clock_ns(), until = now + dev->params.spin;

	do {
		for (unsigned i = 0; i < POLLS_PER_YIELD; i++) {
			if (has_work(dev))
				return true;
			pn_relax();
		}
		sched_yield();
		now = pn_clock_ns();
	} while (now < until && now < deadline_ns);
	return false;
}

/* Removes earlier notifications. */
static void drain(struct pn_verbs_device *dev)
{
	struct ibv_cq *cq;
	uint64_t count;
	void *context;

	if (read(dev->event_fd, &count, sizeof(count)) < 0)
		count = 0;
	while (!ibv_get_cq_event(dev->channel, &cq, &context))
		ibv_ack_cq_events(cq, 1);
}

/* True: armed, and there is nothing to poll. */
static bool arm(struct pn_verbs_device *dev)
{
	pn_verbs_lock(dev);
	drain(dev);
	ibv_req_notify_cq(dev->cq, 0);
	pn_verbs_unlock(dev);
	return !has_work(dev);
}

int pn_verbs_wait(struct pn_device *device, uint64_t deadline_ns)
{
	struct pn_verbs_device *dev = pn_verbs_of(device);

	if (spin(dev, deadline_ns))
		return 0;
	/* A notification may bring nothing for the caller (silent operations).
	 */
	while (arm(dev))
		if (!pn_device_sleep_on(dev->epoll, deadline_ns))
			return has_work(dev) ? 0 : -ETIMEDOUT;
	return 0;
}

void pn_verbs_wake(struct pn_device *device)
{
	struct pn_verbs_device *dev = pn_verbs_of(device);

	atomic_store(&dev->woken, 1);
	pn_verbs_notify(dev);
}

int pn_verbs_arm(struct pn_device *device)
{
	return arm(pn_verbs_of(device)) ? 0 : -EAGAIN;
}
