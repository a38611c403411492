/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/soft/connect.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/service_thread.h"
#include "device/soft/soft_impl.h"

#define BACKLOG	   512
#define CONNECT_NS (5 * PN_NS_PER_S)
#define RETRY_MS   20
#define MAX_RETRIES \
	(CONNECT_NS / (RETRY_MS * PN_NS_PER_MS)) /* temporary refusals */
#define ACCEPT_PAUSE_NS (200 * PN_NS_PER_MS)
#define DEATH_CHECK_NS	PN_NS_PER_S /* between checks for deaths */
#define FIRST_PEERS	16
#define HELLO_FDS	3
#define WELCOME_FDS	2
#define RING_MIN	((uint64_t)32 << 10)
#define RING_MAX	((uint64_t)2 << 20)

unsigned pn_soft_socket_name(const struct pn_soft_address *address,
			     struct sockaddr_un *out)
{
	int n;

	*out = (struct sockaddr_un){ .sun_family = AF_UNIX };
	n = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1,
		     "pinion-soft-%d-%016llx", (int)address->pid,
		     (unsigned long long)address->nonce);
	return (unsigned)(offsetof(struct sockaddr_un, sun_path) + 1) +
	       (unsigned)n;
}

/* --- messages with files ------------------------------------------------- */

union control {
	char bytes[CMSG_SPACE(HELLO_FDS * sizeof(int))];
	struct cmsghdr align;
};

/* The descriptors that fit into the control buffer, whose size is rounded up.
 */
#define ROOM_FDS ((sizeof(union control) - CMSG_LEN(0)) / sizeof(int))

static int send_hello(int sock, const struct pn_soft_hello *hello,
		      const int *fds, unsigned nfds)
{
	union control control = { { 0 } };
	struct iovec iov = { (void *)(uintptr_t)hello, sizeof(*hello) };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (nfds) {
		struct cmsghdr *cmsg;

		msg.msg_control = control.bytes;
		msg.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		cmsg = CMSG_FIRSTHDR(&msg);
		cmsg->cmsg_level = SOL_SOCKET;
		cmsg->cmsg_type = SCM_RIGHTS;
		cmsg->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		memcpy(CMSG_DATA(cmsg), fds, nfds * sizeof(int));
	}
	return sendmsg(sock, &msg, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void close_all(const int *fds, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		close(fds[i]);
}

/* Receives a hello and its files, up to ROOM_FDS, which then belong to the
 * caller. Returns the bytes of the message, 0 at the end, or a negative errno;
 * -EMFILE: the message arrived without its files. */
static int recv_hello(int sock, struct pn_soft_hello *hello, int *fds,
		      unsigned *nfds)
{
	union control control;
	struct iovec iov = { hello, sizeof(*hello) };
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control.bytes,
			      .msg_controllen = sizeof(control.bytes) };
	ssize_t n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *cmsg;

	*nfds = 0;
	if (n < 0)
		return -errno;
	for (cmsg = CMSG_FIRSTHDR(&msg); cmsg; cmsg = CMSG_NXTHDR(&msg, cmsg)) {
		if (cmsg->cmsg_level != SOL_SOCKET ||
		    cmsg->cmsg_type != SCM_RIGHTS)
			continue;
		*nfds = (unsigned)((cmsg->cmsg_len - CMSG_LEN(0)) /
				   sizeof(int));
		memcpy(fds, CMSG_DATA(cmsg), *nfds * sizeof(int));
	}
	/* This process had no descriptors left for the files. */
	if (msg.msg_flags & MSG_CTRUNC && *nfds < ROOM_FDS) {
		close_all(fds, *nfds);
		*nfds = 0;
		return -EMFILE;
	}
	return (int)n;
}

/* --- watching ------------------------------------------------------------ */

static int watch(struct pn_soft_service *service, struct pn_soft_watch *w,
		 int what, int fd, struct pn_soft_peer *peer)
{
	struct epoll_event event = { .events = EPOLLIN, .data.ptr = w };

	w->what = what;
	w->fd = fd;
	w->peer = peer;
	pn_list_init(&w->link);
	return epoll_ctl(service->epoll, EPOLL_CTL_ADD, fd, &event) ? -errno
								    : 0;
}

/* shutdown() reaches the other side even if a forked child holds a copy of the
 * socket. */
static void unwatch(struct pn_soft_service *service, struct pn_soft_watch *w)
{
	if (w->fd < 0)
		return;
	epoll_ctl(service->epoll, EPOLL_CTL_DEL, w->fd, NULL);
	if (w->what == PN_SOFT_SOCKET || w->what == PN_SOFT_LISTEN)
		shutdown(w->fd, SHUT_RDWR);
	close(w->fd);
	w->fd = -1;
}

static void close_pending(struct pn_soft_service *service,
			  struct pn_soft_watch *w)
{
	unwatch(service, w);
	pn_list_remove(&w->link);
	free(w);
}

/* The service thread reads nothing from a peer that is up. */
static int watch_hangup(struct pn_soft_service *service,
			struct pn_soft_watch *w)
{
	struct epoll_event event = { .events = EPOLLRDHUP, .data.ptr = w };

	return epoll_ctl(service->epoll, EPOLL_CTL_MOD, w->fd, &event) ? -errno
								       : 0;
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

/* --- why not ------------------------------------------------------------- */

/* Returns the status of PEER_DOWN for a connection that failed; logs what the
 * status does not say. */
static int report_failure(struct pn_soft_service *service, int ret)
{
	int status = pn_device_connection_error(ret);

	pn_limits_explain(ret, "connect to a peer");
	if (status != ret && status == -ECONNREFUSED &&
	    !service->warned_system) {
		service->warned_system = true;
		pn_error("soft: cannot connect: %s", strerror(-ret));
	}
	return status;
}

/* --- up and down --------------------------------------------------------- */

static void unmap_channels(struct pn_soft_connection *connection)
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

void pn_soft_connection_unmap(struct pn_soft_peer *peer)
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
	unmap_channels(&peer->connection);
	if (!peer->remote.loopback) {
		unmap_files(&peer->remote);
		close(peer->connection.wakeup_fd);
	}
}

/* From here on this process does not access the peer's memory. */
static void peer_disconnect(struct pn_soft_service *service,
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

/* Whether the peer is in another process, which can die alone. */
static bool is_other_process(const struct pn_soft_service *service,
			     const struct pn_soft_peer *peer)
{
	return peer->remote.pid != service->address.pid;
}

/* Ends the socket and stops watching it. Callers may still use its number until
 * the peer is unmapped. */
static void end_socket(struct pn_soft_service *service,
		       struct pn_soft_peer *peer)
{
	struct pn_soft_watch *w = &peer->connection.socket;

	if (!peer->mapped || w->fd < 0) {
		unwatch(service, w);
		return;
	}
	epoll_ctl(service->dev->event_fd, EPOLL_CTL_DEL, w->fd, NULL);
	/* The peer's last wake-up may not have been read yet, or the peer may
	 * have died before it sent it: it has cleared `sleeping` before. */
	pn_soft_wake_always(service->dev);
	epoll_ctl(service->epoll, EPOLL_CTL_DEL, w->fd, NULL);
	shutdown(w->fd, SHUT_RDWR);
	w->fd = -1;
	service->nup -= is_other_process(service, peer);
}

/* The socket ends after the rings are closed: the other side relies on that
 * order. */
static void peer_down(struct pn_soft_service *service,
		      struct pn_soft_peer *peer, int status)
{
	if (peer->connection.over)
		return;
	peer->connection.over = true;
	peer_disconnect(service, peer, status);
	end_socket(service, peer);
	pn_soft_queue_down(service->dev, peer);
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

/* Maps what a peer needs. fds: the files that it shares (and the channels when
 * they are not ours); they are closed. */
static int map_peer(struct pn_soft_peer *peer,
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
	close_all(fds, ours ? WELCOME_FDS : HELLO_FDS);
	if (ret)
		unmap_channels(&peer->connection);
	return ret;
}

/* Undoes map_peer() for a peer that does not come up. */
static void unmap_peer(struct pn_soft_peer *peer)
{
	pn_soft_remote_fini(&peer->remote);
	unmap_files(&peer->remote);
	pn_soft_rx_fini(&peer->rx);
	unmap_channels(&peer->connection);
}

/* The peer is mapped, its socket watched, and the other side knows that it may
 * come up: from here on one of the peer's callers may write to the socket
 * first. */
static int peer_up(struct pn_soft_service *service, struct pn_soft_peer *peer)
{
	int ret = watch_hangup(service, &peer->connection.socket);

	/* Last: a thread that the socket wakes needs the descriptor. */
	if (!ret)
		ret = watch_wakeups(service, peer);
	if (ret) {
		unmap_peer(peer);
		return ret;
	}
	peer->connection.wakeup_fd = peer->connection.socket.fd;
	peer->mapped = true;
	service->nup += is_other_process(service, peer);
	atomic_store(&peer->state, PN_SOFT_UP);
	pn_soft_queue_up(service->dev, peer);
	return 0;
}

/* --- the side that connects ---------------------------------------------- */

static struct pn_soft_hello hello_of(struct pn_soft_service *service,
				     int status)
{
	return (struct pn_soft_hello){
		.magic = PN_SOFT_MAGIC,
		.version = PN_SOFT_VERSION,
		.status = status,
		.from = service->address,
		.ring_bytes = service->dev->params.ring_bytes,
	};
}

static int open_socket(const struct pn_soft_address *address, int *out)
{
	struct sockaddr_un name;
	unsigned len = pn_soft_socket_name(address, &name);
	int sock = socket(AF_UNIX,
			  SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int ret;

	if (sock < 0)
		return -errno;
	if (!connect(sock, (struct sockaddr *)&name, len)) {
		*out = sock;
		return 0;
	}
	/* No device listens there any more. */
	ret = errno == ECONNREFUSED ? -ECONNRESET : -errno;
	close(sock);
	return ret;
}

static int uid_of(int sock, uid_t *uid, pid_t *pid)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return -errno;
	*uid = cred.uid;
	*pid = cred.pid;
	return 0;
}

static int send_offer(struct pn_soft_service *service,
		      struct pn_soft_peer *peer, int sock)
{
	struct pn_soft_device *dev = service->dev;
	struct pn_soft_hello hello = hello_of(service, 0);
	size_t bytes = 2 * pn_soft_channel_bytes(hello.ring_bytes);
	int fds[HELLO_FDS] = { dev->shared_fd, dev->presence_fd, -1 };
	int ret = pn_soft_memfd("pinion-channels", bytes, &fds[2],
				&peer->connection.channels);

	if (ret)
		return ret;
	peer->connection.ring_bytes = hello.ring_bytes;
	ret = send_hello(sock, &hello, fds, HELLO_FDS);
	close(fds[2]);
	if (ret) {
		munmap(peer->connection.channels, bytes);
		peer->connection.channels = NULL;
	}
	return ret;
}

/* 0: hello was sent; -EAGAIN: the other side's backlog is full, retry later. */
static int start_connecting(struct pn_soft_service *service,
			    struct pn_soft_peer *peer)
{
	struct pn_soft_address address;
	uid_t uid = (uid_t)-1;
	pid_t pid = 0;
	int sock = -1, ret;

	memcpy(&address, peer->peer.address.data, sizeof(address));
	ret = open_socket(&address, &sock);
	if (ret)
		return ret;
	ret = uid_of(sock, &uid, &pid);
	if (!ret && uid != geteuid())
		ret = -ECONNREFUSED;
	if (!ret)
		ret = send_offer(service, peer, sock);
	if (!ret)
		ret = watch(service, &peer->connection.socket, PN_SOFT_SOCKET,
			    sock, peer);
	if (ret)
		close(sock);
	else
		atomic_store(&peer->state, PN_SOFT_CONNECTING);
	return ret;
}

static void drop_offer(struct pn_soft_service *service,
		       struct pn_soft_peer *peer)
{
	unwatch(service, &peer->connection.socket);
	unmap_channels(&peer->connection);
}

static void hello_refused(struct pn_soft_service *service,
			  struct pn_soft_peer *peer,
			  const struct pn_soft_hello *answer)
{
	if (answer->version != PN_SOFT_VERSION)
		pn_error("soft: process %d speaks version %u of the soft "
			 "device, this is version %u; run the same pinion on "
			 "both sides",
			 (int)answer->from.pid, answer->version,
			 PN_SOFT_VERSION);
	drop_offer(service, peer);
	peer_down(service, peer, -ECONNREFUSED);
}

/* Whether a retry after this answer may succeed: both have attached, or the
 * other side was short of a resource. */
static bool is_temporary(int status)
{
	return status == -EALREADY || status == -EMFILE || status == -ENOMEM;
}

/* The other side has answered, so the time to connect starts again. */
static void schedule_retry(struct pn_soft_peer *peer)
{
	uint64_t now = pn_clock_ns();

	peer->connection.nretries++;
	peer->connection.not_before_ns = now + RETRY_MS * PN_NS_PER_MS;
	peer->connection.deadline_ns = now + CONNECT_NS;
	atomic_store(&peer->state, PN_SOFT_NEW);
}

static void answer_readable(struct pn_soft_service *service,
			    struct pn_soft_peer *peer)
{
	struct pn_soft_hello answer = { .magic = 0 };
	int fds[ROOM_FDS];
	unsigned nfds;
	uid_t uid;
	int n = recv_hello(peer->connection.socket.fd, &answer, fds, &nfds);
	int ret = -ECONNRESET;

	if (n == -EAGAIN)
		return;
	if (n == -EMFILE)
		ret = n;
	if (n >= 12 && answer.magic == PN_SOFT_MAGIC) {
		if (is_temporary(answer.status)) {
			close_all(fds, nfds);
			drop_offer(service, peer);
			schedule_retry(peer);
			return;
		}
		if (answer.status || answer.version != PN_SOFT_VERSION) {
			close_all(fds, nfds);
			hello_refused(service, peer, &answer);
			return;
		}
		if (n == sizeof(answer) && nfds == WELCOME_FDS) {
			/* The channels are ours, so we know their size. */
			answer.ring_bytes = peer->connection.ring_bytes;
			uid_of(peer->connection.socket.fd, &uid,
			       &answer.from.pid);
			ret = map_peer(peer, &answer, fds, true);
			if (!ret)
				ret = peer_up(service, peer);
			if (!ret)
				return;
			nfds = 0;
		}
	}
	close_all(fds, nfds);
	if (!peer->mapped)
		drop_offer(service, peer);
	peer_down(service, peer, report_failure(service, ret));
}

/* --- the side that is connected to --------------------------------------- */

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
	peer->connection.deadline_ns = pn_clock_ns() + CONNECT_NS;
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

static bool is_valid_hello(const struct pn_soft_hello *hello, int n,
			   unsigned nfds)
{
	uint64_t ring = hello->ring_bytes;

	return n == sizeof(*hello) && nfds == HELLO_FDS && ring >= RING_MIN &&
	       ring <= RING_MAX && !(ring & (ring - 1));
}

/* Whether a pending connection is of our user. Others are logged once only,
 * since they can come as often as they like. */
static bool is_same_user(struct pn_soft_service *service, int sock)
{
	uid_t uid = (uid_t)-1;
	pid_t pid = 0;

	if (uid_of(sock, &uid, &pid))
		return false;
	if (uid == geteuid())
		return true;
	if (!service->warned_user)
		pn_warn("soft: refused process %d of user %u: devices connect "
			"within one user only (this is user %u)",
			(int)pid, uid, geteuid());
	service->warned_user = true;
	return false;
}

/* Returns why a hello is not accepted, or 0. */
static int check_hello(int sock, struct pn_soft_hello *hello, int n,
		       unsigned nfds)
{
	uid_t uid;
	pid_t pid = 0;

	if (uid_of(sock, &uid, &pid))
		return -ECONNREFUSED;
	if (n < 8 || hello->magic != PN_SOFT_MAGIC)
		return -EPROTO;
	if (hello->version != PN_SOFT_VERSION) {
		pn_error("soft: refused process %d: it speaks version %u of "
			 "the soft device, this is version %u; run the same "
			 "pinion on both sides",
			 (int)pid, hello->version, PN_SOFT_VERSION);
		return -EPROTONOSUPPORT;
	}
	/* The process number as this process sees it: the other may live in
	 * another namespace. */
	hello->from.pid = pid;
	return is_valid_hello(hello, n, nfds) ? 0 : -EPROTO;
}

/* Whether the socket of a hello has ended. */
static bool is_withdrawn(struct pn_soft_watch *pending_socket)
{
	char byte;

	return recv(pending_socket->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >=
		       0 ||
	       errno != EAGAIN;
}

/* Both attached: the connection of the smaller nonce is used, also if it is not
 * connecting yet. */
static bool yields_to_hello(struct pn_soft_service *service,
			    struct pn_soft_peer *peer)
{
	if (service->address.nonce < peer->nonce)
		return false;
	drop_offer(service, peer);
	return true;
}

/* Returns the peer of a hello; NULL, and in *why the error. */
static struct pn_soft_peer *peer_of_hello(struct pn_soft_service *service,
					  const struct pn_soft_hello *hello,
					  int *why)
{
	struct pn_soft_device *dev = service->dev;
	bool is_new, own = hello->from.nonce == service->address.nonce;
	struct pn_soft_peer *peer =
		own ? NULL : pn_soft_peer_get(dev, &hello->from, &is_new);

	/* The other side has ended the connection that we know. */
	if (peer && atomic_load(&peer->state) == PN_SOFT_UP) {
		peer_down(service, peer, -ECONNRESET);
		peer = pn_soft_peer_get(dev, &hello->from, &is_new);
	}
	*why = own ? -EISCONN : -ENOMEM;
	if (!peer)
		return NULL;
	/* A peer that is not new was created by attach(). */
	*why = is_new || yields_to_hello(service, peer) ? 0 : -EALREADY;
	return *why ? NULL : peer;
}

/* Gives the socket to the peer; the pending connection ends. */
static int take_socket(struct pn_soft_service *service,
		       struct pn_soft_watch *pending_socket,
		       struct pn_soft_peer *peer)
{
	int sock = pending_socket->fd;

	epoll_ctl(service->epoll, EPOLL_CTL_DEL, sock, NULL);
	pending_socket->fd = -1;
	close_pending(service, pending_socket);
	return watch(service, &peer->connection.socket, PN_SOFT_SOCKET, sock,
		     peer);
}

/* The answer is sent before our callers may write anything. */
static int answer_hello(struct pn_soft_service *service,
			struct pn_soft_peer *peer)
{
	struct pn_soft_hello answer = hello_of(service, 0);
	const int fds[WELCOME_FDS] = { service->dev->shared_fd,
				       service->dev->presence_fd };
	int ret = send_hello(peer->connection.socket.fd, &answer, fds,
			     WELCOME_FDS);

	if (ret)
		unmap_peer(peer);
	return ret;
}

/* A resource is missing here for a connection that the other side asked for.
 * The other side is told the error, and both try again if that may help. */
static void defer_connection(struct pn_soft_service *service,
			     struct pn_soft_peer *peer, int why)
{
	struct pn_soft_hello answer = hello_of(service, why);

	send_hello(peer->connection.socket.fd, &answer, NULL, 0);
	unmap_channels(&peer->connection);
	if (!is_temporary(why)) {
		peer_down(service, peer, -ECONNRESET);
		return;
	}
	unwatch(service, &peer->connection.socket);
	schedule_retry(peer);
}

static void accept_hello(struct pn_soft_service *service,
			 struct pn_soft_watch *pending_socket,
			 struct pn_soft_peer *peer,
			 const struct pn_soft_hello *hello, const int *fds)
{
	int ret = take_socket(service, pending_socket, peer);

	if (ret)
		close_all(fds, HELLO_FDS);
	else
		ret = map_peer(peer, hello, fds, false);
	if (ret) {
		defer_connection(service, peer, report_failure(service, ret));
		return;
	}
	ret = answer_hello(service, peer);
	if (!ret)
		ret = peer_up(service, peer);
	if (ret) {
		report_failure(service, ret);
		peer_down(service, peer, -ECONNRESET);
	}
}

static void refuse(struct pn_soft_service *service,
		   struct pn_soft_watch *pending_socket, int why)
{
	struct pn_soft_hello answer = hello_of(service, why);

	send_hello(pending_socket->fd, &answer, NULL, 0);
	close_pending(service, pending_socket);
}

static void pending_readable(struct pn_soft_service *service,
			     struct pn_soft_watch *pending_socket)
{
	struct pn_soft_hello hello = { .magic = 0 };
	struct pn_soft_peer *peer = NULL;
	int fds[ROOM_FDS];
	unsigned nfds;
	int n = recv_hello(pending_socket->fd, &hello, fds, &nfds);
	int why;

	if (n == -EAGAIN)
		return;
	if (n == -EMFILE && pn_soft_close_idle_rings(service->dev))
		why = n; /* the next try has descriptors */
	else if (n == -EMFILE)
		why = report_failure(service, n);
	else
		why = n > 0 ? check_hello(pending_socket->fd, &hello, n, nfds)
			    : -EPROTO;
	if (!why && is_withdrawn(pending_socket))
		why = -ECANCELED;
	if (!why)
		peer = peer_of_hello(service, &hello, &why);
	if (peer) {
		accept_hello(service, pending_socket, peer, &hello, fds);
		return;
	}
	close_all(fds, nfds);
	refuse(service, pending_socket, why);
}

static void listen_for(struct pn_soft_service *service, uint32_t events)
{
	struct epoll_event event = { .events = events,
				     .data.ptr = &service->listener };

	epoll_ctl(service->epoll, EPOLL_CTL_MOD, service->listener.fd, &event);
}

/* Stops accepting for a while: the waiting connection would be reported again
 * and again. */
static void pause_accepting(struct pn_soft_service *service, int error)
{
	pn_limits_explain(-error, "let a peer in");
	service->accept_paused_until_ns = pn_clock_ns() + ACCEPT_PAUSE_NS;
	listen_for(service, 0);
}

static int accept_on(struct pn_soft_service *service)
{
	return accept4(service->listener.fd, NULL, NULL,
		       SOCK_CLOEXEC | SOCK_NONBLOCK);
}

static void accept_one(struct pn_soft_service *service)
{
	/* Allocated before accepting: without memory the connection waits in
	 * the backlog. */
	struct pn_soft_watch *w = malloc(sizeof(*w));
	int sock = w ? accept_on(service) : -1;

	if (w && sock < 0 && errno == EMFILE &&
	    pn_soft_close_idle_rings(service->dev))
		sock = accept_on(service);
	if (sock < 0) {
		if (!w || errno == EMFILE || errno == ENFILE ||
		    errno == ENOBUFS || errno == ENOMEM)
			pause_accepting(service, w ? errno : ENOMEM);
		free(w);
		return;
	}
	if (!is_same_user(service, sock) ||
	    watch(service, w, PN_SOFT_SOCKET, sock, NULL)) {
		free(w);
		close(sock);
		return;
	}
	w->deadline_ns = pn_clock_ns() + CONNECT_NS;
	pn_list_append(&service->pending, &w->link);
}

/* Closes pending connections that sent no hello in time. True: some are left.
 */
static bool close_expired(struct pn_soft_service *service, uint64_t now)
{
	while (!pn_list_empty(&service->pending)) {
		struct pn_soft_watch *oldest =
			pn_container_of(service->pending.next,
					struct pn_soft_watch, link);

		if (now < oldest->deadline_ns)
			return true;
		close_pending(service, oldest);
	}
	return false;
}

/* True: still paused. */
static bool resume_accepting(struct pn_soft_service *service, uint64_t now)
{
	if (now < service->accept_paused_until_ns)
		return true;
	if (service->accept_paused_until_ns)
		listen_for(service, EPOLLIN);
	service->accept_paused_until_ns = 0;
	return false;
}

/* --- the thread ---------------------------------------------------------- */

/* Executes detach(). If the peer is up, the other side closes its end, too, and
 * the peer is down only then; a loopback peer has no other end. */
static void begin_detach(struct pn_soft_service *service,
			 struct pn_soft_peer *peer)
{
	bool up = atomic_load(&peer->state) == PN_SOFT_UP;

	peer_disconnect(service, peer, -ECONNRESET);
	if (!peer->mapped)
		drop_offer(service, peer);
	if (!up || peer->connection.socket.fd < 0 ||
	    shutdown(peer->connection.socket.fd, SHUT_WR))
		peer_down(service, peer, -ECONNRESET);
}

/* Connects a peer that is not connected yet, or gives up. True: call again
 * soon. */
static bool advance(struct pn_soft_service *service, struct pn_soft_peer *peer)
{
	int state = atomic_load(&peer->state);
	uint64_t now = pn_clock_ns();
	bool late = now >= peer->connection.deadline_ns;
	int ret = 0;

	/* A peer that writes invalid records would not close its end either. */
	if (atomic_load(&peer->protocol_error)) {
		peer_down(service, peer, -EPROTO);
		return false;
	}
	if (atomic_load(&peer->detach_requested)) {
		if (state != PN_SOFT_DOWN)
			begin_detach(service, peer);
		return false;
	}
	/* The loopback peer needs no connection. */
	if (state >= PN_SOFT_UP || peer->nonce == service->address.nonce)
		return false;
	if (state == PN_SOFT_NEW) {
		if (now < peer->connection.not_before_ns)
			return true;
		ret = peer->connection.nretries < MAX_RETRIES
			      ? start_connecting(service, peer)
			      : -ECONNREFUSED;
		if (ret == -EMFILE && pn_soft_close_idle_rings(service->dev))
			ret = start_connecting(service, peer);
		if (ret == -EAGAIN && !late)
			return true;
	} else if (late) {
		drop_offer(service, peer);
		ret = -ECONNREFUSED;
	}
	if (!ret)
		return true;
	if (ret == -ECONNREFUSED)
		pn_error("soft: cannot connect: the device belongs to another "
			 "user or does not answer");
	peer_down(service, peer, report_failure(service, ret));
	return false;
}

/* A peer stays in the list, so the lock is not held in between: attach() must
 * not wait for a connection. */
static bool advance_all(struct pn_soft_service *service)
{
	struct pn_soft_device *dev = service->dev;
	struct pn_list *pos;
	bool soon = false;

	pn_lock(&dev->peers_lock);
	pos = dev->peers.next;
	while (pos != &dev->peers) {
		pn_unlock(&dev->peers_lock);
		soon |= advance(service,
				pn_container_of(pos, struct pn_soft_peer,
						link));
		pn_lock(&dev->peers_lock);
		pos = pos->next;
	}
	pn_unlock(&dev->peers_lock);
	return soon;
}

static void socket_readable(struct pn_soft_service *service,
			    struct pn_soft_watch *w)
{
	if (!w->peer)
		pending_readable(service, w);
	else if (atomic_load(&w->peer->state) == PN_SOFT_CONNECTING)
		answer_readable(service, w->peer);
	else /* the end of the socket: nothing else is watched */
		peer_down(service, w->peer, -ECONNRESET);
}

static void handle(struct pn_soft_service *service, struct pn_soft_watch *w)
{
	uint64_t count;

	switch (w->what) {
	case PN_SOFT_LISTEN:
		accept_one(service);
		break;
	case PN_SOFT_WAKE:
		/* Only resets the eventfd; service_thread() does the rest. */
		(void)!read(w->fd, &count, sizeof(count));
		break;
	case PN_SOFT_SOCKET:
		socket_readable(service, w);
		break;
	}
}

/* Does what is due without an event. Returns when to call it again. */
static uint64_t run_timers(struct pn_soft_service *service)
{
	uint64_t now = pn_clock_ns();
	bool soon = advance_all(service);

	soon |= close_expired(service, now);
	soon |= resume_accepting(service, now);
	return soon ? now + RETRY_MS * PN_NS_PER_MS : PN_FOREVER;
}

static bool is_dead(struct pn_soft_peer *peer)
{
	return atomic_load(&peer->state) == PN_SOFT_UP &&
	       !peer->remote.loopback &&
	       pn_soft_robust_is_orphan(&peer->remote.presence->alive);
}

/* Detects peers that have died while a child of theirs holds the socket. */
static void detect_deaths(struct pn_soft_service *service)
{
	struct pn_soft_device *dev = service->dev;
	uint64_t now = pn_clock_ns();
	struct pn_list *pos;

	if (now < service->deaths_checked_ns + DEATH_CHECK_NS)
		return;
	service->deaths_checked_ns = now;
	pn_lock(&dev->peers_lock);
	for (pos = dev->peers.next; pos != &dev->peers; pos = pos->next) {
		struct pn_soft_peer *peer =
			pn_container_of(pos, struct pn_soft_peer, link);

		pn_unlock(&dev->peers_lock);
		if (is_dead(peer))
			peer_down(service, peer, -ECONNRESET);
		pn_lock(&dev->peers_lock);
	}
	pn_unlock(&dev->peers_lock);
}

static int timeout_ms(const struct pn_soft_service *service, uint64_t next)
{
	if (next != PN_FOREVER)
		return RETRY_MS;
	return service->nup ? (int)(DEATH_CHECK_NS / PN_NS_PER_MS) : -1;
}

/* Handles one event at a time: handling one may end the watch of another.
 * Timers run by the clock, since pending connections could send events without
 * end. */
static void *service_thread(void *arg)
{
	struct pn_soft_service *service = arg;
	pthread_mutex_t *alive = &service->dev->presence->alive;
	uint64_t next = PN_FOREVER;

	pn_assert(!pn_soft_robust_lock(alive));
	while (!atomic_load(&service->stop)) {
		struct epoll_event event = { .events = 0 };
		int n = epoll_wait(service->epoll, &event, 1,
				   timeout_ms(service, next));

		if (n == 1)
			handle(service, event.data.ptr);
		if (service->nup)
			detect_deaths(service);
		if (event.data.ptr == &service->waker || pn_clock_ns() >= next)
			next = run_timers(service);
		else if (event.data.ptr == &service->listener &&
			 next == PN_FOREVER)
			next = pn_clock_ns() + RETRY_MS * PN_NS_PER_MS;
	}
	pn_soft_robust_unlock(alive);
	return NULL;
}

/* --- life ---------------------------------------------------------------- */

void pn_soft_service_kick(struct pn_soft_service *service)
{
	PN_NO_CANCEL();
	uint64_t one = 1;

	/* Fails only when it is already readable. */
	if (write(service->waker.fd, &one, sizeof(one)) < 0)
		return;
}

static int listen_on(struct pn_soft_service *service)
{
	struct sockaddr_un name;
	unsigned len = pn_soft_socket_name(&service->address, &name);
	int sock = socket(AF_UNIX,
			  SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int ret;

	if (sock < 0)
		return -errno;
	if (bind(sock, (struct sockaddr *)&name, len) || listen(sock, BACKLOG))
		ret = -errno;
	else
		ret = watch(service, &service->listener, PN_SOFT_LISTEN, sock,
			    NULL);
	if (ret) {
		close(sock);
		service->listener.fd = -1;
	}
	return ret;
}

static int open_descriptors(struct pn_soft_service *service)
{
	int ret, wake;

	service->epoll = epoll_create1(EPOLL_CLOEXEC);
	wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (service->epoll < 0 || wake < 0)
		return -errno;
	ret = watch(service, &service->waker, PN_SOFT_WAKE, wake, NULL);
	return ret ? ret : listen_on(service);
}

/* FNV-1a. */
static void mix(uint64_t *hash, const void *data, size_t len)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < len; i++)
		*hash = (*hash ^ bytes[i]) * UINT64_C(1099511628211);
}

static void mix_file(uint64_t *hash, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[64];
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text));

	if (n > 0)
		mix(hash, text, (size_t)n);
	if (fd >= 0)
		close(fd);
}

static void mix_namespace(uint64_t *hash, const char *path)
{
	struct stat st;

	if (!stat(path, &st))
		mix(hash, &st.st_ino, sizeof(st.st_ino));
}

/* Hashes the boot, the two namespaces that matter, and the name that the user
 * gave. */
static uint64_t node_of(const char *name)
{
	uint64_t hash = UINT64_C(14695981039346656037);

	mix_file(&hash, "/proc/sys/kernel/random/boot_id");
	mix_namespace(&hash, "/proc/self/ns/net");
	mix_namespace(&hash, "/proc/self/ns/pid");
	mix(&hash, name, strlen(name));
	return hash;
}

static uint64_t random_nonce(void)
{
	uint64_t nonce;

	return getrandom(&nonce, sizeof(nonce), 0) == sizeof(nonce)
		       ? nonce
		       : pn_clock_ns();
}

int pn_soft_service_init(struct pn_soft_service *service,
			 struct pn_soft_device *dev)
{
	uint64_t node = node_of(dev->params.node);
	int ret;

	*service = (struct pn_soft_service){ .dev = dev, .epoll = -1 };
	service->listener.fd = service->waker.fd = -1;
	pn_list_init(&service->pending);
	service->address = (struct pn_soft_address){
		.version = PN_SOFT_VERSION,
		.kind = { 's', 'o', 'f', 't' },
		.node_top = (uint16_t)(node >> 32),
		.node = (uint32_t)node,
		.pid = getpid(),
		.nonce = random_nonce(),
	};
	ret = open_descriptors(service);
	if (!ret)
		ret = pn_service_thread_start(&service->thread,
					      "pinion-service", service_thread,
					      service);
	service->running = !ret;
	if (ret)
		pn_soft_service_fini(service);
	return ret;
}

void pn_soft_service_stop(struct pn_soft_service *service)
{
	struct pn_list *pos;

	if (service->running) {
		atomic_store(&service->stop, true);
		pn_soft_service_kick(service);
		pthread_join(service->thread, NULL);
		service->running = false;
	}
	pn_list_for_each (pos, &service->dev->peers) {
		struct pn_soft_peer *peer =
			pn_container_of(pos, struct pn_soft_peer, link);

		if (!peer->mapped)
			drop_offer(service, peer);
		peer_down(service, peer, -ECONNRESET);
	}
	while (!pn_list_empty(&service->pending))
		close_pending(service,
			      pn_container_of(service->pending.next,
					      struct pn_soft_watch, link));
}

void pn_soft_service_fini(struct pn_soft_service *service)
{
	unwatch(service, &service->listener);
	unwatch(service, &service->waker);
	if (service->epoll >= 0)
		close(service->epoll);
}
