/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sleeping without a lost wake-up: the sleeper sets presence->sleeping, then
 * looks once more; whoever has an event writes it, then loads `sleeping`. Both
 * have a sequentially consistent fence in between, so one of the two sees the
 * other's store. Whoever clears the flag notifies: this process writes an
 * eventfd, a peer sends a byte on its connection, one for each sleep. The
 * sleeper, or the program, waits for an epoll of all these descriptors. The
 * epoll is edge-triggered for connections; their bytes are discarded before the
 * next sleep.
 */
#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "device/soft/soft_impl.h"

/* --- giving up the core --------------------------------------------------- */

/* Whether a peer polled last where this thread runs now, and waits no more. */
static bool is_crowded(struct pn_soft_device *dev, uint32_t core)
{
	for (unsigned i = 0; i < dev->nactive; i++) {
		const struct pn_soft_remote *remote = &dev->active[i]->remote;

		if (!remote->loopback &&
		    atomic_load_explicit(&remote->presence->core,
					 memory_order_relaxed) == core &&
		    !atomic_load_explicit(&remote->presence->sleeping,
					  memory_order_relaxed))
			return true;
	}
	return false;
}

static bool is_yield_due(struct pn_soft_device *dev, uint64_t now_ns)
{
	uint32_t core = (uint32_t)sched_getcpu() + 1;

	/* Seldom written: peers have a copy of this cache line. */
	if (atomic_load_explicit(&dev->presence->core, memory_order_relaxed) !=
	    core)
		atomic_store_explicit(&dev->presence->core, core,
				      memory_order_relaxed);
	return pn_soft_yield_due(&dev->yield, now_ns, is_crowded(dev, core));
}

/* Lets another process run if one waits for this core (yield.h). */
unsigned pn_soft_idle(struct pn_device *device)
{
	struct pn_soft_device *dev = pn_soft_of(device);
	uint64_t begin_ns = pn_clock_ns();
	unsigned look_after;
	bool due;

	pn_soft_enter(dev);
	due = is_yield_due(dev, begin_ns);
	look_after = dev->yield.look_after;
	pn_soft_leave(dev);
	if (!due)
		return look_after;
	sched_yield();
	pn_soft_enter(dev);
	pn_soft_yield_done(&dev->yield, begin_ns, pn_clock_ns());
	look_after = dev->yield.look_after;
	pn_soft_leave(dev);
	return look_after;
}

/* --- waking --------------------------------------------------------------- */

void pn_soft_wake_always(struct pn_soft_device *dev)
{
	PN_NO_CANCEL();
	uint64_t one = 1;

	/* Fails only when the counter is full and thus readable. */
	if (write(dev->own_fd, &one, sizeof(one)) < 0)
		return;
}

void pn_soft_wake_own(struct pn_soft_device *dev)
{
	if (atomic_exchange(&dev->presence->sleeping, 0))
		pn_soft_wake_always(dev);
}

void pn_soft_wake_peer(struct pn_soft_peer *peer)
{
	if (peer->remote.loopback) {
		pn_soft_wake_own(pn_soft_of(peer->peer.device));
		return;
	}
	if (!atomic_exchange(&peer->remote.presence->sleeping, 0))
		return;
	PN_NO_CANCEL();
	/* Fails when the peer is gone, or has unread bytes enough to wake it;
	 * or the kernel has no memory (of the cgroup, say): then the peer's
	 * service thread wakes it (pn_soft_wake_overlooked()). */
	if (send(peer->connection.wakeup_fd, "", 1,
		 MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return;
}

/* A peer has cleared `sleeping`, and its wake-up should have come by now: it
 * could not be sent, or the peer was stopped before it sent it. */
void pn_soft_wake_overlooked(struct pn_soft_device *dev)
{
	if (atomic_load(&dev->presence->sleeping) ||
	    !atomic_exchange(&dev->asleep, false))
		return;
	pn_soft_wake_always(dev);
}

/* --- sleeping ------------------------------------------------------------- */

static void drain_fd(const struct pn_soft_device *dev, int fd)
{
	uint64_t bytes;

	if (fd == dev->own_fd) {
		(void)!read(fd, &bytes, sizeof(bytes));
		return;
	}
	while (recv(fd, &bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

/* Discards earlier wake-ups. Under the lock: the descriptors in the epoll are
 * not closed meanwhile. */
static void drain_wakeups(struct pn_soft_device *dev)
{
	PN_NO_CANCEL();
	struct epoll_event events[16];
	int n;

	pn_soft_enter(dev);
	do {
		n = epoll_wait(dev->event_fd, events, PN_ARRAY_LEN(events), 0);
		for (int i = 0; i < n; i++)
			drain_fd(dev, events[i].data.fd);
	} while (n == PN_ARRAY_LEN(events));
	pn_soft_leave(dev);
}

static bool has_events(struct pn_soft_device *dev)
{
	bool news;

	if (atomic_exchange(&dev->woken, 0))
		return true;
	pn_soft_enter(dev);
	news = pn_soft_has_events(dev);
	pn_soft_leave(dev);
	return news;
}

/* Between two yields: a peer or a thread of this process may need this core. */
#define POLLS_PER_YIELD 64

/* Looks several times without sleeping. True: there is something. Executing
 * operations of the engine meanwhile postpones the end. */
static bool spin_round(struct pn_soft_device *dev, uint64_t *until)
{
	for (unsigned i = 0; i < POLLS_PER_YIELD; i++) {
		if (has_events(dev))
			return true;
		if (pn_soft_engine_help(&dev->engine))
			*until = pn_clock_ns() + dev->params.spin;
		else
			pn_relax();
	}
	return false;
}

static bool spin(struct pn_soft_device *dev, uint64_t deadline_ns)
{
	uint64_t until = pn_clock_ns() + dev->params.spin;
	uint64_t now;

	do {
		if (spin_round(dev, &until))
			return true;
		sched_yield();
		now = pn_clock_ns();
	} while (now < until && now < deadline_ns);
	return false;
}

/* True: the epoll will become readable. */
static bool prepare_sleep(struct pn_soft_device *dev)
{
	drain_wakeups(dev);
	atomic_store(&dev->presence->sleeping, 1);
	atomic_thread_fence(memory_order_seq_cst);
	if (!has_events(dev)) {
		pn_soft_engine_leave(&dev->engine);
		atomic_store(&dev->asleep, true);
		return true;
	}
	atomic_store(&dev->presence->sleeping, 0);
	return false;
}

int pn_soft_wait(struct pn_device *device, uint64_t deadline_ns)
{
	struct pn_soft_device *dev = pn_soft_of(device);
	bool notified;

	if (spin(dev, deadline_ns) || !prepare_sleep(dev))
		return 0;
	notified = pn_device_sleep_on(dev->event_fd, deadline_ns);
	atomic_store(&dev->asleep, false);
	atomic_store(&dev->presence->sleeping, 0);
	if (!notified && !has_events(dev))
		return -ETIMEDOUT;
	/* A wake() that ended this wait does not end the next one. */
	atomic_store(&dev->woken, 0);
	return 0;
}

void pn_soft_wake(struct pn_device *device)
{
	struct pn_soft_device *dev = pn_soft_of(device);

	atomic_store(&dev->woken, 1);
	atomic_thread_fence(memory_order_seq_cst);
	pn_soft_notify_own(dev);
}

int pn_soft_arm(struct pn_device *device)
{
	return prepare_sleep(pn_soft_of(device)) ? 0 : -EAGAIN;
}
