/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The service thread makes progress while callers do not, and finds out which
 * peers are gone.
 *
 * Callers that poll all the time make progress themselves: then the thread only
 * looks, every TICK_NS, whether they still do. Callers that sleep in wait() are
 * woken by the provider: then the thread sleeps until the next heartbeat, and
 * wait() wakes it when it returns. While the program computes, or polls now and
 * then, the thread sleeps on the descriptor of the provider and executes what
 * arrives.
 *
 * Heartbeat: a peer from which nothing came for the time `heartbeat` is asked
 * for an answer (PING), which its service thread gives. A peer from which
 * nothing came for `patience` is down. Time in which this process itself did
 * not run (stopped, suspended) does not count. The kernel reports the end of
 * processes of this host at once (pidfd), whatever the provider notices.
 */
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/service_thread.h"
#include "device/fabric/fabric_impl.h"

#define TICK_NS	   PN_NS_PER_MS
#define MIN_NAP_NS (20 * PN_NS_PER_US)
/* Callers that call less often in a tick do not make progress. */
#define BUSY_CALLS 16

/* --- processes of this host ----------------------------------------------- */

void pn_fabric_watch_process(struct pn_fabric_device *dev,
			     struct pn_fabric_peer *peer, uint32_t pid)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = peer };

	if (!dev->host || pid == (uint32_t)getpid() || peer->pidfd >= 0)
		return;
	peer->pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
	if (peer->pidfd >= 0)
		epoll_ctl(dev->service.epoll, EPOLL_CTL_ADD, peer->pidfd,
			  &event);
	else if (errno == ESRCH)
		pn_fabric_peer_down(dev, peer, -ECONNRESET);
}

/* Closing alone leaves it in the epoll while a forked child has it, too. */
void pn_fabric_unwatch_process(struct pn_fabric_peer *peer)
{
	struct pn_fabric_device *dev = pn_fabric_of(peer->peer.device);

	if (peer->pidfd < 0)
		return;
	epoll_ctl(dev->service.epoll, EPOLL_CTL_DEL, peer->pidfd, NULL);
	close(peer->pidfd);
	peer->pidfd = -1;
}

/* What a process sent before its end counts: an acknowledgement among it says
 * that an operation was executed. Nothing more is sent to the process: over shm
 * it may have ended with the lock of its receive queue held. */
void pn_fabric_find_ended(struct pn_fabric_device *dev)
{
	struct epoll_event events[16];
	int n = epoll_wait(dev->service.epoll, events, 16, 0);

	for (int i = 0; i < n; i++) {
		struct pn_fabric_peer *peer = events[i].data.ptr;

		peer->ended = true;
		pn_fabric_drop_backlog(dev, peer);
		pn_fabric_unwatch_process(peer);
	}
	if (n > 0)
		pn_fabric_drain(dev);
	for (int i = 0; i < n; i++) {
		pn_fabric_advance(dev, events[i].data.ptr);
		pn_info("fabric: the process of a peer has ended: it is down");
		pn_fabric_peer_down(dev, events[i].data.ptr, -ECONNRESET);
	}
}

/* --- heartbeat ------------------------------------------------------------ */

static uint64_t scan_interval(const struct pn_fabric_device *dev)
{
	return dev->params.heartbeat / 2;
}

static void scan_peer(struct pn_fabric_device *dev, struct pn_fabric_peer *peer,
		      uint64_t passed_ns)
{
	if (peer->heard) {
		peer->heard = peer->pinged = false;
		peer->silent_ns = 0;
		return;
	}
	peer->silent_ns += passed_ns;
	if (peer->silent_ns >= dev->params.patience) {
		pn_info("fabric: a peer %s: it is down",
			peer->up_reported ? "is silent" : "does not answer");
		pn_fabric_peer_down(dev, peer, -ECONNRESET);
	} else if (peer->up_reported && !peer->pinged &&
		   peer->silent_ns >= dev->params.heartbeat) {
		peer->pinged = true;
		dev->service.npings++;
		pn_fabric_send_short(dev, peer, PN_FABRIC_PING, 0, 0);
	}
}

static void scan_peers(struct pn_fabric_device *dev, uint64_t now)
{
	uint64_t passed = now - dev->service.scanned_ns;
	struct pn_list *pos;

	if (passed < scan_interval(dev))
		return;
	dev->service.scanned_ns = now;
	/* This process was stopped. */
	if (passed > 2 * scan_interval(dev))
		passed = 2 * scan_interval(dev);
	pn_list_for_each (pos, &dev->peers) {
		struct pn_fabric_peer *peer =
			pn_container_of(pos, struct pn_fabric_peer, link);

		if (!peer->down)
			scan_peer(dev, peer, passed);
		else if (now > peer->teardown_ns + PN_NS_PER_S)
			/* A BYE that cannot be sent. */
			pn_fabric_drop_backlog(dev, peer);
	}
}

/* --- the thread ----------------------------------------------------------- */

/* What the thread sleeps for. */
struct nap {
	uint64_t until_ns;
	bool on_cq; /* and until there is something in the completion queue */
};

uint64_t pn_fabric_nap_after(uint64_t last_ns, bool came)
{
	if (came || last_ns < MIN_NAP_NS)
		return MIN_NAP_NS;
	return last_ns < TICK_NS / 2 ? 2 * last_ns : TICK_NS;
}

/* The provider has no descriptor, or it cannot be relied on now. */
static uint64_t nap_without_descriptor(struct pn_fabric_device *dev)
{
	bool came = dev->cq_nread != dev->service.read_seen;

	dev->service.read_seen = dev->cq_nread;
	dev->service.nap_ns = pn_fabric_nap_after(dev->service.nap_ns, came);
	return dev->service.nap_ns;
}

static struct nap plan_nap(struct pn_fabric_device *dev, bool active,
			   uint64_t now)
{
	uint64_t scan = dev->service.scanned_ns + scan_interval(dev);
	bool idle_waiters = !active && atomic_load(&dev->waiters);
	struct nap nap = { now + TICK_NS < scan ? now + TICK_NS : scan, false };

	if (active)
		return nap;
	if (idle_waiters) {
		nap.until_ns = scan;
		return nap;
	}
	if (pn_fabric_cq_armed(dev))
		return (struct nap){ scan, true };
	now += nap_without_descriptor(dev);
	nap.until_ns = now < scan ? now : scan;
	return nap;
}

/* Whether callers poll all the time, since the last look that was a tick ago:
 * what arrives wakes the thread earlier. */
static bool callers_poll(struct pn_fabric_device *dev, uint64_t now)
{
	uint64_t ncalls = dev->activity - dev->service.seen;
	uint64_t passed = now - dev->service.seen_ns;

	if (passed < TICK_NS) {
		if (ncalls < BUSY_CALLS)
			return false;
		passed = TICK_NS;
	}
	dev->service.seen = dev->activity;
	dev->service.seen_ns = now;
	if (ncalls < BUSY_CALLS * (passed / TICK_NS))
		return false;
	dev->service.nticks++;
	return true;
}

static struct nap serve_once(struct pn_fabric_device *dev)
{
	uint64_t now = pn_clock_ns();
	struct nap nap;
	bool active;

	pn_fabric_lock(dev);
	active = callers_poll(dev, now);
	pn_fabric_find_ended(dev);
	scan_peers(dev, now);
	if ((!active && !atomic_load(&dev->waiters)) || dev->must_poll ||
	    !pn_list_empty(&dev->teardowns))
		pn_fabric_progress(dev, true);
	nap = plan_nap(dev, active, now);
	pn_fabric_tell_sleepers(dev);
	/* A caller that returns from wait() looks at `deep` after it has left
	 * `waiters`: one of the two sees the other. */
	atomic_store(&dev->service.deep,
		     !nap.on_cq && nap.until_ns > now + TICK_NS);
	if (atomic_load(&dev->service.deep) && !atomic_load(&dev->waiters))
		nap.until_ns = now;
	pn_fabric_unlock(dev);
	return nap;
}

static void sleep_for(struct pn_fabric_device *dev, struct nap nap)
{
	struct pollfd fds[3] = {
		{ .fd = dev->service.event_fd, .events = POLLIN },
		{ .fd = dev->service.epoll, .events = POLLIN },
		{ .fd = dev->cq_fd, .events = POLLIN },
	};
	uint64_t now = pn_clock_ns();
	uint64_t left = nap.until_ns > now ? nap.until_ns - now : 0;
	struct timespec ts = { (time_t)(left / PN_NS_PER_S),
			       (long)(left % PN_NS_PER_S) };

	ppoll(fds, nap.on_cq ? 3 : 2, &ts, NULL);
	atomic_store(&dev->service.deep, false);
	if (fds[0].revents)
		pn_fabric_drain_notifications(dev->service.event_fd);
}

static void *serve(void *arg)
{
	struct pn_fabric_device *dev = arg;

	/* The kernel may delay the end of a sleep by this, 50 us by default. */
	prctl(PR_SET_TIMERSLACK, 1UL);
	while (!atomic_load(&dev->service.stop))
		sleep_for(dev, serve_once(dev));
	return NULL;
}

int pn_fabric_service_start(struct pn_fabric_device *dev)
{
	int ret;

	dev->service.scanned_ns = pn_clock_ns();
	dev->service.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	dev->service.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (dev->service.event_fd < 0 || dev->service.epoll < 0)
		return -errno;
	ret = pn_service_thread_start(&dev->service.thread, "pinion-fabric",
				      serve, dev);
	dev->service.running = !ret;
	return ret;
}

void pn_fabric_service_stop(struct pn_fabric_device *dev)
{
	if (!dev->service.running)
		return;
	atomic_store(&dev->service.stop, true);
	pn_fabric_notify(dev->service.event_fd);
	pthread_join(dev->service.thread, NULL);
	dev->service.running = false;
}
