/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sleeping without missing a completion: make progress, ask libfabric whether a
 * thread may sleep (fi_trywait()), then sleep on an epoll descriptor, which
 * holds the descriptor of the completion queue and an eventfd. The service
 * thread and wake() write the eventfd.
 *
 * Some providers have no descriptor (shm), and none says when it has room for a
 * message again: threads that wait for these sleep for short times.
 */
#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "device/fabric/fabric_impl.h"

/* The peer may run on the same core. */
#define POLLS_PER_YIELD 16
/* Without a descriptor: the first sleep, and the longest. */
#define NAP_NS		(20 * PN_NS_PER_US)
#define MAX_NAP_NS	PN_NS_PER_MS
/* Of fi_trywait(). */
#define MAX_TRIES	8

void pn_fabric_notify(int event_fd)
{
	PN_NO_CANCEL();
	uint64_t one = 1;

	/* It fails only when the counter is full: then it is readable. */
	if (write(event_fd, &one, sizeof(one)) < 0)
		return;
}

void pn_fabric_drain_notifications(int event_fd)
{
	uint64_t count;

	if (read(event_fd, &count, sizeof(count)) < 0)
		return;
}

static bool may_rely_on_fd(const struct pn_fabric_device *dev)
{
	return dev->cq_fd >= 0 && pn_list_empty(&dev->backlogged) &&
	       pn_list_empty(&dev->teardowns) && pn_list_empty(&dev->unposted);
}

/* After events of its own, a provider answers -FI_EAGAIN once or twice though
 * its completion queue is empty. */
bool pn_fabric_cq_armed(struct pn_fabric_device *dev)
{
	struct fid *fid = &dev->cq->fid;

	for (unsigned i = 0; i < MAX_TRIES && may_rely_on_fd(dev); i++) {
		int ret = fi_trywait(dev->fabric, &fid, 1);

		if (ret != -FI_EAGAIN)
			return !ret;
		pn_fabric_progress(dev, true);
		if (dev->done.n)
			return false;
	}
	return false;
}

void pn_fabric_tell_sleepers(struct pn_fabric_device *dev)
{
	if ((!dev->done.n && !dev->post_room) ||
	    (!dev->armed && !atomic_load(&dev->waiters)))
		return;
	dev->armed = dev->must_poll = false;
	pn_fabric_notify(dev->event_fd);
}

static bool take_wake(struct pn_fabric_device *dev)
{
	return atomic_load_explicit(&dev->woken, memory_order_relaxed) &&
	       atomic_exchange(&dev->woken, 0);
}

/* sleeps: whether the caller may sleep on the descriptor. */
static bool has_work_locked(struct pn_fabric_device *dev, bool *sleeps)
	PN_REQUIRES(&dev->lock)
{
	bool found;

	dev->activity++;
	if (!dev->done.n)
		pn_fabric_progress(dev, true);
	if (!dev->done.n && !dev->post_room && sleeps)
		*sleeps = pn_fabric_cq_armed(dev);
	found = dev->done.n || dev->post_room;
	dev->post_room = false;
	return found;
}

static bool has_work(struct pn_fabric_device *dev, bool *sleeps)
{
	bool found;

	if (take_wake(dev))
		return true;
	pn_fabric_lock(dev);
	found = has_work_locked(dev, sleeps);
	pn_fabric_unlock(dev);
	return found;
}

static bool spin(struct pn_fabric_device *dev, uint64_t deadline_ns)
{
	uint64_t now = pn_clock_ns(), until = now + dev->params.spin;

	do {
		for (unsigned i = 0; i < POLLS_PER_YIELD; i++) {
			if (has_work(dev, NULL))
				return true;
			pn_relax();
		}
		sched_yield();
		now = pn_clock_ns();
	} while (now < until && now < deadline_ns);
	return false;
}

/* Sleeps until the deadline has passed (false) or there may be something. */
static int sleep_until_work(struct pn_fabric_device *dev, uint64_t deadline_ns)
{
	uint64_t nap = NAP_NS;
	bool sleeps = false;

	for (;;) {
		uint64_t until = deadline_ns, now;

		pn_fabric_drain_notifications(dev->event_fd);
		if (has_work(dev, &sleeps))
			return 0;
		if (!sleeps) {
			now = pn_clock_ns();
			until = now + nap < deadline_ns ? now + nap
							: deadline_ns;
			nap = nap < MAX_NAP_NS ? 2 * nap : nap;
		}
		if (!pn_device_sleep_on(sleeps ? dev->epoll : dev->event_fd,
					until) &&
		    until == deadline_ns)
			return has_work(dev, NULL) ? 0 : -ETIMEDOUT;
	}
}

/* The service thread leaves progress to callers that wait. */
static void end_wait(void *arg)
{
	struct pn_fabric_device *dev = arg;

	atomic_fetch_sub(&dev->waiters, 1);
	if (atomic_load(&dev->service.deep))
		pn_fabric_notify(dev->service.event_fd);
}

int pn_fabric_wait(struct pn_device *device, uint64_t deadline_ns)
{
	struct pn_fabric_device *dev = pn_fabric_of(device);
	int ret = 0;

	if (spin(dev, deadline_ns))
		return 0;
	atomic_fetch_add(&dev->waiters, 1);
	pthread_cleanup_push(end_wait, dev);
	ret = sleep_until_work(dev, deadline_ns);
	pthread_cleanup_pop(1);
	return ret;
}

void pn_fabric_wake(struct pn_device *device)
{
	struct pn_fabric_device *dev = pn_fabric_of(device);

	atomic_store(&dev->woken, 1);
	pn_fabric_notify(dev->event_fd);
}

/* The service thread may take the next event, and then writes the eventfd. If
 * the descriptor of the provider cannot be relied on, the thread polls. */
int pn_fabric_arm(struct pn_device *device)
{
	struct pn_fabric_device *dev = pn_fabric_of(device);
	bool sleeps = false, found;

	pn_fabric_drain_notifications(dev->event_fd);
	if (take_wake(dev))
		return -EAGAIN;
	pn_fabric_lock(dev);
	found = has_work_locked(dev, &sleeps);
	if (!found) {
		dev->armed = true;
		dev->must_poll = !sleeps;
	}
	pn_fabric_unlock(dev);
	if (found)
		return -EAGAIN;
	if (!sleeps && atomic_load(&dev->service.deep))
		pn_fabric_notify(dev->service.event_fd);
	return 0;
}
