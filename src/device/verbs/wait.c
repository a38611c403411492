/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sleeping without missing anything: the adapter is asked to tell of the next
 * completion, then one looks once more. Who sleeps does so on an epoll that
 * holds the completion channel and an eventfd, which the service and wake()
 * write.
 */
#include <errno.h>
#include <sched.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "device/verbs/verbs_impl.h"

/* Between two yields: the peer may need this very core. */
#define LOOKS_PER_YIELD 16

void pn_verbs_notify(struct pn_verbs_device *dev)
{
	PN_NO_CANCEL();
	uint64_t one = 1;

	/* Fails only when it is readable as it can be. */
	if (write(dev->event_fd, &one, sizeof(one)) < 0)
		return;
}

static bool has_news(struct pn_verbs_device *dev)
{
	bool news;

	if (atomic_load_explicit(&dev->woken, memory_order_relaxed) &&
	    atomic_exchange(&dev->woken, 0))
		return true;
	pn_verbs_lock(dev);
	if (!dev->ndone)
		pn_verbs_progress(dev);
	news = dev->ndone || dev->relieved;
	dev->relieved = false;
	pn_verbs_unlock(dev);
	return news;
}

static bool spin(struct pn_verbs_device *dev, uint64_t deadline_ns)
{
	uint64_t now = pn_clock_ns(), until = now + dev->params.spin;

	do {
		for (unsigned i = 0; i < LOOKS_PER_YIELD; i++) {
			if (has_news(dev))
				return true;
			pn_relax();
		}
		sched_yield();
		now = pn_clock_ns();
	} while (now < until && now < deadline_ns);
	return false;
}

/* Takes what earlier bells left. */
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

/* True: asleep, in the sense that the descriptor will tell. */
static bool fall_asleep(struct pn_verbs_device *dev)
{
	pn_verbs_lock(dev);
	drain(dev);
	ibv_req_notify_cq(dev->cq, 0);
	pn_verbs_unlock(dev);
	return !has_news(dev);
}

int pn_verbs_wait(struct pn_device *device, uint64_t deadline_ns)
{
	struct pn_verbs_device *dev = pn_verbs_of(device);

	if (spin(dev, deadline_ns))
		return 0;
	/* The adapter also tells of what is no news to the caller. */
	while (fall_asleep(dev))
		if (!pn_device_sleep_on(dev->epoll, deadline_ns))
			return has_news(dev) ? 0 : -ETIMEDOUT;
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
	return fall_asleep(pn_verbs_of(device)) ? 0 : -EAGAIN;
}
