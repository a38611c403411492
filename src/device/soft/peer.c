/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/soft/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "device/soft/soft_impl.h"

#define FIRST_PEERS 16

/* --- the list of peers --------------------------------------------------- */

static struct pn_soft_peer *find_peer(struct pn_soft_device *dev,
				      const struct pn_soft_address *address)
	PN_REQUIRES(&dev->peers_lock)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &dev->peers) {
		struct pn_soft_peer *peer =
			pn_container_of(pos, struct pn_soft_peer, link);

		if (peer->nonce == address->nonce &&
		    !atomic_load(&peer->detach_requested) &&
		    atomic_load(&peer->state) != PN_SOFT_DOWN)
			return peer;
	}
	return NULL;
}

/* Makes sure that `active` has room for one more peer. */
static bool reserve_active(struct pn_soft_device *dev)
	PN_REQUIRES(&dev->peers_lock)
{
	unsigned room =
		dev->peers_capacity ? 2 * dev->peers_capacity : FIRST_PEERS;
	struct pn_soft_peer **bigger;

	if (dev->npeers < dev->peers_capacity)
		return true;
	bigger = malloc(room * sizeof(*bigger));
	if (!bigger)
		return false;
	free(dev->next_active);
	dev->next_active = bigger;
	dev->peers_capacity = room;
	return true;
}

static struct pn_soft_peer *new_peer(struct pn_soft_device *dev,
				     const struct pn_soft_address *address)
	PN_REQUIRES(&dev->peers_lock)
{
	struct pn_soft_peer *peer = NULL;

	if (reserve_active(dev))
		peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	dev->npeers++;
	peer->peer.device = &dev->device;
	peer->peer.address.len = sizeof(*address);
	memcpy(peer->peer.address.data, address, sizeof(*address));
	peer->nonce = address->nonce;
	peer->connection.socket.fd = -1;
	peer->connection.deadline_ns = pn_clock_ns() + PN_SOFT_CONNECT_NS;
	pn_list_init(&peer->up);
	pn_list_init(&peer->down);
	pn_list_init(&peer->ops);
	pn_list_init(&peer->turn);
	pn_list_append(&dev->peers, &peer->link);
	return peer;
}

struct pn_soft_peer *pn_soft_peer_get(struct pn_soft_device *dev,
				      const struct pn_soft_address *address,
				      bool *is_new)
{
	struct pn_soft_peer *peer;

	pn_lock(&dev->peers_lock);
	peer = find_peer(dev, address);
	*is_new = !peer;
	if (!peer)
		peer = new_peer(dev, address);
	pn_unlock(&dev->peers_lock);
	return peer;
}

/* --- descriptors ---------------------------------------------------------- */

unsigned pn_soft_close_idle_rings(struct pn_soft_device *dev)
{
	struct pn_list *pos;
	unsigned n = 0;

	pn_lock(&dev->peers_lock);
	pn_list_for_each (pos, &dev->peers) {
		struct pn_soft_peer *peer =
			pn_container_of(pos, struct pn_soft_peer, link);

		/* The remote is valid while the lock is held. */
		if (atomic_load(&peer->state) == PN_SOFT_UP)
			n += pn_soft_remote_close_idle_rings(&peer->remote);
	}
	pn_unlock(&dev->peers_lock);
	return n;
}

/* --- mapping ------------------------------------------------------------- */

void pn_soft_close_fds(const int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		close(fds[i]);
}

void pn_soft_channels_unmap(struct pn_soft_connection *connection)
{
	if (connection->channels)
		munmap(connection->channels,
		       2 * pn_soft_channel_bytes(connection->ring_bytes));
	connection->channels = NULL;
}

static void unmap_files(struct pn_soft_remote *remote)
{
	munmap(remote->shared, sizeof(*remote->shared));
	munmap(remote->presence, sizeof(*remote->presence));
}

void pn_soft_peer_unmap(struct pn_soft_peer *peer)
{
	struct pn_soft_device *dev = pn_soft_of(peer->peer.device);

	if (!peer->mapped)
		return;
	PN_NO_CANCEL();
	peer->mapped = false;
	/* pn_soft_close_idle_rings() may be using it. */
	pn_lock(&dev->peers_lock);
	pn_soft_remote_fini(&peer->remote);
	pn_unlock(&dev->peers_lock);
	pn_soft_rx_fini(&peer->rx);
	pn_soft_channels_unmap(&peer->connection);
	if (!peer->remote.loopback) {
		unmap_files(&peer->remote);
		close(peer->connection.wakeup_fd);
	}
}

static int map_channels(struct pn_soft_peer *peer, int fd, bool ours,
			uint64_t ring_bytes)
{
	size_t bytes = pn_soft_channel_bytes(ring_bytes);
	void *map = peer->connection.channels;
	int ret = ours ? 0 : pn_soft_map(fd, 2 * bytes, &map);
	char *first, *second;

	if (ret)
		return ret;
	peer->connection.channels = map;
	peer->connection.ring_bytes = ring_bytes;
	first = map;
	second = first + bytes;
	/* The side that connects writes the first and reads the second. */
	pn_soft_tx_init(&peer->tx, ours ? first : second, ring_bytes);
	return pn_soft_rx_init(&peer->rx, ours ? second : first, ring_bytes);
}

/* Maps the files that a peer shares. */
static int map_files(struct pn_soft_remote *remote, const int *fds, pid_t pid)
{
	struct pn_soft_presence *presence;
	struct pn_soft_shared *shared;
	int ret = pn_soft_map(fds[0], sizeof(*shared), (void **)&shared);

	if (ret)
		return ret;
	ret = pn_soft_map(fds[1], sizeof(*presence), (void **)&presence);
	if (ret)
		munmap(shared, sizeof(*shared));
	else
		pn_soft_remote_init(remote, shared, presence, NULL, pid);
	return ret;
}

int pn_soft_peer_map(struct pn_soft_peer *peer,
		     const struct pn_soft_hello *hello, const int *fds,
		     bool ours)
{
	int ret =
		map_channels(peer, ours ? -1 : fds[2], ours, hello->ring_bytes);

	if (!ret) {
		ret = map_files(&peer->remote, fds, hello->from.pid);
		if (ret)
			pn_soft_rx_fini(&peer->rx);
	}
	pn_soft_close_fds(fds, ours ? PN_SOFT_ANSWER_FDS : PN_SOFT_HELLO_FDS);
	if (ret)
		pn_soft_channels_unmap(&peer->connection);
	return ret;
}

void pn_soft_peer_undo_map(struct pn_soft_peer *peer)
{
	pn_soft_remote_fini(&peer->remote);
	unmap_files(&peer->remote);
	pn_soft_rx_fini(&peer->rx);
	pn_soft_channels_unmap(&peer->connection);
}

/* --- up and down --------------------------------------------------------- */

/* The service thread reads nothing from a peer that is up. */
static int watch_hangup(struct pn_soft_service *service,
			struct pn_soft_watch *w)
{
	struct epoll_event event = { .events = EPOLLRDHUP, .data.ptr = w };

	return epoll_ctl(service->epoll, EPOLL_CTL_MOD, w->fd, &event) ? -errno
								       : 0;
}

/* From here on bytes of the peer on the socket wake a sleeping thread. */
static int watch_wakeups(struct pn_soft_service *service,
			 struct pn_soft_peer *peer)
{
	int fd = peer->connection.socket.fd;
	struct epoll_event event = { .events = EPOLLIN | EPOLLET,
				     .data.fd = fd };

	return epoll_ctl(service->dev->event_fd, EPOLL_CTL_ADD, fd, &event)
		       ? -errno
		       : 0;
}

int pn_soft_peer_up(struct pn_soft_service *service, struct pn_soft_peer *peer)
{
	int ret = watch_hangup(service, &peer->connection.socket);

	/* Last: a thread that the socket wakes needs the descriptor. */
	if (!ret)
		ret = watch_wakeups(service, peer);
	if (ret) {
		pn_soft_peer_undo_map(peer);
		return ret;
	}
	peer->connection.wakeup_fd = peer->connection.socket.fd;
	peer->mapped = true;
	service->nup++;
	atomic_store(&peer->state, PN_SOFT_UP);
	pn_soft_queue_up(service->dev, peer);
	return 0;
}

void pn_soft_peer_disconnect(struct pn_soft_service *service,
			     struct pn_soft_peer *peer, int status)
{
	if (atomic_load(&peer->state) == PN_SOFT_DOWN)
		return;
	peer->status = status;
	atomic_store(&peer->state, PN_SOFT_DOWN);
	if (peer->mapped)
		pn_soft_remote_disconnect(&peer->remote);
	pn_soft_engine_kick(&service->dev->engine);
}

/* Ends the socket and stops watching it. Callers may still use its number until
 * the peer is unmapped. */
static void end_socket(struct pn_soft_service *service,
		       struct pn_soft_peer *peer)
{
	struct pn_soft_watch *w = &peer->connection.socket;

	if (!peer->mapped || w->fd < 0) {
		pn_soft_watch_remove(service, w);
		return;
	}
	epoll_ctl(service->dev->event_fd, EPOLL_CTL_DEL, w->fd, NULL);
	epoll_ctl(service->epoll, EPOLL_CTL_DEL, w->fd, NULL);
	shutdown(w->fd, SHUT_RDWR);
	w->fd = -1;
	service->nup--;
}

/* The socket ends after the rings are closed: the other side relies on that
 * order. */
void pn_soft_peer_down(struct pn_soft_service *service,
		       struct pn_soft_peer *peer, int status)
{
	if (peer->connection.over)
		return;
	peer->connection.over = true;
	pn_soft_peer_disconnect(service, peer, status);
	end_socket(service, peer);
	pn_soft_queue_down(service->dev, peer);
}
