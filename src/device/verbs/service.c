/* SPDX-License-Identifier: BSD-2-Clause */
/* The service thread: handles rdma_cm events, asynchronous events of the
 * adapter, requests of callers and deadlines. */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/service_thread.h"
#include "device/verbs/connect.h"

/* How long a port or an rx may be lost before peers are down. */
#define LOST_NS	     PN_NS_PER_S
#define RECONNECT_NS (50 * PN_NS_PER_MS)
#define TICK_MS	     50
#define SLOW_TICK_MS 1000 /* iWARP: looks for peers without progress */

/* --- asynchronous events of the adapter ----------------------------------- */

/* The peer after pos, or NULL. The lock is not held between calls: callers only
 * append to the list. */
static struct pn_verbs_peer *next_peer(struct pn_verbs_device *dev,
				       struct pn_list *pos)
{
	pn_lock(&dev->peers_lock);
	pos = pos->next;
	pn_unlock(&dev->peers_lock);
	return pos == &dev->peers
		       ? NULL
		       : pn_container_of(pos, struct pn_verbs_peer, link);
}

static void report_all_down(struct pn_verbs_device *dev)
{
	for (struct pn_verbs_peer *peer = next_peer(dev, &dev->peers); peer;
	     peer = next_peer(dev, &peer->link))
		pn_verbs_peer_down(dev, peer, -ECONNRESET);
}

void pn_verbs_service_removed(struct pn_verbs_device *dev)
{
	if (dev->service.removed)
		return;
	dev->service.removed = true;
	pn_error("verbs: %s has failed or was removed: all peers are down; "
		 "close it, and open it again when it is back",
		 dev->name);
	report_all_down(dev);
}

static void on_async_event(struct pn_verbs_device *dev,
			   const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_PORT_ERR:
		if (event->element.port_num == dev->port)
			dev->service.port_lost_ns = pn_clock_ns();
		break;
	case IBV_EVENT_PORT_ACTIVE:
		if (event->element.port_num == dev->port)
			dev->service.port_lost_ns = 0;
		break;
	case IBV_EVENT_DEVICE_FATAL:
		pn_verbs_service_removed(dev);
		break;
	default: /* events of queue pairs: their operations fail, too */
		break;
	}
}

static void read_async_events(struct pn_verbs_device *dev)
{
	struct ibv_async_event event;

	while (!ibv_get_async_event(dev->context, &event)) {
		pn_debug("verbs: %s: %s", dev->name,
			 ibv_event_type_str(event.event_type));
		/* Before handling: an unacknowledged event blocks the
		 * destruction of its object. */
		ibv_ack_async_event(&event);
		on_async_event(dev, &event);
	}
}

/* --- the thread ----------------------------------------------------------- */

void pn_verbs_service_notify(struct pn_verbs_device *dev)
{
	PN_NO_CANCEL();
	uint64_t one = 1;

	if (write(dev->service.event_fd, &one, sizeof(one)) < 0)
		return;
}

static bool has_passed(uint64_t since_ns, uint64_t patience_ns)
{
	return since_ns && pn_clock_ns() > since_ns + patience_ns;
}

/* iWARP: whether operations are in flight and none has ended for `patience`. */
static bool has_no_progress(struct pn_verbs_device *dev,
			    struct pn_verbs_peer *peer)
{
	uint32_t progress_count = atomic_load_explicit(&peer->progress_count,
						       memory_order_relaxed);

	if (progress_count != peer->seen_progress_count ||
	    !(progress_count & 1)) {
		peer->seen_progress_count = progress_count;
		peer->progress_ns = pn_clock_ns();
		return false;
	}
	return has_passed(peer->progress_ns, dev->params.patience);
}

/* Does what callers requested for a peer, and checks its deadlines. True: look
 * again after a tick. */
static bool serve_peer(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	if (atomic_exchange(&peer->close_wanted, false)) {
		peer->down_queued = true;
		pn_verbs_peer_down(dev, peer, 0);
	}
	if (peer->down_queued)
		return false;
	if (atomic_exchange(&peer->connect_wanted, false))
		pn_verbs_peer_connect(dev, peer);
	if (has_passed(peer->tx_lost_ns, RECONNECT_NS)) {
		peer->tx_lost_ns = 0;
		if (pn_verbs_port_is_up(dev))
			pn_verbs_peer_connect(dev, peer);
		else
			pn_verbs_peer_down(dev, peer, -ECONNRESET);
	}
	if (has_passed(peer->deadline_ns, 0) || has_no_progress(dev, peer) ||
	    has_passed(peer->rx_lost_ns, LOST_NS)) {
		pn_info("verbs: %s: a peer %s: it is down", dev->name,
			peer->rx_lost_ns ? "disconnected" : "does not answer");
		pn_verbs_peer_down(dev, peer, -ECONNRESET);
	}
	return peer->deadline_ns || peer->rx_lost_ns || peer->tx_lost_ns;
}

static bool serve_peers(struct pn_verbs_device *dev)
{
	bool soon = dev->service.port_lost_ns;

	if (has_passed(dev->service.port_lost_ns, LOST_NS)) {
		dev->service.port_lost_ns = 0;
		pn_warn("verbs: port %u of %s is down: all peers are down",
			dev->port, dev->name);
		report_all_down(dev);
	}
	for (struct pn_verbs_peer *peer = next_peer(dev, &dev->peers); peer;
	     peer = next_peer(dev, &peer->link))
		soon |= serve_peer(dev, peer);
	return soon;
}

static void *serve(void *arg)
{
	struct pn_verbs_device *dev = arg;
	struct epoll_event events[3];
	uint64_t count;

	while (!atomic_load(&dev->service.stop)) {
		bool soon = serve_peers(dev);

		epoll_wait(dev->service.epoll, events, 3,
			   soon		   ? TICK_MS
			   : dev->is_iwarp ? SLOW_TICK_MS
					   : -1);
		if (read(dev->service.event_fd, &count, sizeof(count)) < 0)
			count = 0;
		pn_verbs_cm_read_events(dev);
		read_async_events(dev);
	}
	return NULL;
}

static int start_thread(struct pn_verbs_device *dev)
{
	int ret = pn_service_thread_start(&dev->service.thread, "pinion-verbs",
					  serve, dev);

	dev->service.running = !ret;
	return ret;
}

int pn_verbs_service_start(struct pn_verbs_device *dev)
{
	int ret;

	dev->service.event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	dev->service.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (dev->service.event_fd < 0 || dev->service.epoll < 0) {
		ret = -errno;
		goto close;
	}
	pn_verbs_set_nonblocking(dev->service.cm->fd);
	pn_verbs_set_nonblocking(dev->context->async_fd);
	ret = pn_verbs_watch(dev->service.epoll, dev->service.event_fd);
	if (!ret)
		ret = pn_verbs_watch(dev->service.epoll, dev->service.cm->fd);
	if (!ret)
		ret = pn_verbs_watch(dev->service.epoll,
				     dev->context->async_fd);
	if (!ret)
		ret = start_thread(dev);
	if (!ret)
		return 0;
close:
	close(dev->service.event_fd);
	close(dev->service.epoll);
	return ret;
}

void pn_verbs_service_stop(struct pn_verbs_device *dev)
{
	struct pn_list *pos;

	atomic_store(&dev->service.stop, true);
	pn_verbs_service_notify(dev);
	pthread_join(dev->service.thread, NULL);
	pn_list_for_each (pos, &dev->peers) {
		pn_verbs_peer_disconnect(
			pn_container_of(pos, struct pn_verbs_peer, link));
	}
	close(dev->service.event_fd);
	close(dev->service.epoll);
}
