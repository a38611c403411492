/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/soft/service.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/fnv.h"
#include "base/limits.h"
#include "base/service_thread.h"
#include "device/soft/soft_impl.h"

#define BACKLOG		512
#define ACCEPT_PAUSE_NS (200 * PN_NS_PER_MS)
#define CHECK_NS	PN_NS_PER_S /* between checks of the peers */

/* --- watched descriptors ------------------------------------------------- */

int pn_soft_watch_add(struct pn_soft_service *service, struct pn_soft_watch *w,
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
void pn_soft_watch_remove(struct pn_soft_service *service,
			  struct pn_soft_watch *w)
{
	if (w->fd < 0)
		return;
	epoll_ctl(service->epoll, EPOLL_CTL_DEL, w->fd, NULL);
	if (w->what == PN_SOFT_SOCKET || w->what == PN_SOFT_LISTEN)
		shutdown(w->fd, SHUT_RDWR);
	close(w->fd);
	w->fd = -1;
}

void pn_soft_pending_close(struct pn_soft_service *service,
			   struct pn_soft_watch *w)
{
	pn_soft_watch_remove(service, w);
	pn_list_remove(&w->link);
	free(w);
}

/* --- accepting ----------------------------------------------------------- */

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
	pn_limits_explain(-error, "accept a peer");
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
	if (!pn_soft_is_same_user(service, sock) ||
	    pn_soft_watch_add(service, w, PN_SOFT_SOCKET, sock, NULL)) {
		free(w);
		close(sock);
		return;
	}
	w->deadline_ns = pn_clock_ns() + PN_SOFT_CONNECT_NS;
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
		pn_soft_pending_close(service, oldest);
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
		soon |= pn_soft_connection_advance(
			service,
			pn_container_of(pos, struct pn_soft_peer, link));
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
		pn_soft_hello_readable(service, w);
	else if (atomic_load(&w->peer->state) == PN_SOFT_CONNECTING)
		pn_soft_answer_readable(service, w->peer);
	else /* the end of the socket: nothing else is watched */
		pn_soft_peer_down(service, w->peer, -ECONNRESET);
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
	return soon ? now + PN_SOFT_RETRY_MS * PN_NS_PER_MS : PN_FOREVER;
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
	struct pn_list *pos;

	pn_lock(&dev->peers_lock);
	for (pos = dev->peers.next; pos != &dev->peers; pos = pos->next) {
		struct pn_soft_peer *peer =
			pn_container_of(pos, struct pn_soft_peer, link);

		pn_unlock(&dev->peers_lock);
		if (is_dead(peer))
			pn_soft_peer_down(service, peer, -ECONNRESET);
		pn_lock(&dev->peers_lock);
	}
	pn_unlock(&dev->peers_lock);
}

/* Detects what peers that are up do not report. */
static void check_peers(struct pn_soft_service *service)
{
	uint64_t now = pn_clock_ns();

	if (now < service->checked_ns + CHECK_NS)
		return;
	service->checked_ns = now;
	detect_deaths(service);
	pn_soft_wake_overlooked(service->dev);
}

static int timeout_ms(const struct pn_soft_service *service, uint64_t next)
{
	if (next != PN_FOREVER)
		return PN_SOFT_RETRY_MS;
	return service->nup ? (int)(CHECK_NS / PN_NS_PER_MS) : -1;
}

/* Handles one event at a time: handling one may end the watch of
 * another. Timers run by the clock, since pending connections could send events
 * without end. */
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
			check_peers(service);
		if (event.data.ptr == &service->waker || pn_clock_ns() >= next)
			next = run_timers(service);
		else if (event.data.ptr == &service->listener &&
			 next == PN_FOREVER)
			next = pn_clock_ns() + PN_SOFT_RETRY_MS * PN_NS_PER_MS;
	}
	pn_soft_robust_unlock(alive);
	return NULL;
}

/* --- starting and stopping ----------------------------------------------- */

void pn_soft_service_kick(struct pn_soft_service *service)
{
	PN_NO_CANCEL();
	uint64_t one = 1;

	/* Fails only when it is already readable. */
	if (write(service->waker.fd, &one, sizeof(one)) < 0)
		return;
}

static int watch_or_close(struct pn_soft_service *service,
			  struct pn_soft_watch *w, int what, int fd)
{
	int ret = pn_soft_watch_add(service, w, what, fd, NULL);

	if (ret) {
		close(fd);
		w->fd = -1;
	}
	return ret;
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
	if (!bind(sock, (struct sockaddr *)&name, len) &&
	    !listen(sock, BACKLOG))
		return watch_or_close(service, &service->listener,
				      PN_SOFT_LISTEN, sock);
	ret = -errno;
	close(sock);
	return ret;
}

static int open_descriptors(struct pn_soft_service *service)
{
	int ret, wake;

	service->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (service->epoll < 0)
		return -errno;
	wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (wake < 0)
		return -errno;
	ret = watch_or_close(service, &service->waker, PN_SOFT_WAKE, wake);
	return ret ? ret : listen_on(service);
}

static void mix_file(uint64_t *hash, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	char text[64];
	ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text));

	if (n > 0)
		*hash = pn_fnv_add(*hash, text, (size_t)n);
	if (fd >= 0)
		close(fd);
}

static void mix_namespace(uint64_t *hash, const char *path)
{
	struct stat st;

	if (!stat(path, &st))
		*hash = pn_fnv_add(*hash, &st.st_ino, sizeof(st.st_ino));
}

/* Hashes the boot, the two namespaces that matter, and the name that the user
 * gave. */
static uint64_t node_of(const char *name)
{
	uint64_t hash = PN_FNV_START;

	mix_file(&hash, "/proc/sys/kernel/random/boot_id");
	mix_namespace(&hash, "/proc/self/ns/net");
	mix_namespace(&hash, "/proc/self/ns/pid");
	return pn_fnv_add(hash, name, strlen(name));
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
			pn_soft_connection_withdraw(service, peer);
		pn_soft_peer_down(service, peer, -ECONNRESET);
	}
	while (!pn_list_empty(&service->pending))
		pn_soft_pending_close(service,
				      pn_container_of(service->pending.next,
						      struct pn_soft_watch,
						      link));
}

void pn_soft_service_fini(struct pn_soft_service *service)
{
	pn_soft_watch_remove(service, &service->listener);
	pn_soft_watch_remove(service, &service->waker);
	if (service->epoll >= 0)
		close(service->epoll);
}
