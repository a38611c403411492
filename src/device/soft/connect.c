/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/soft/connect.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "device/soft/soft_impl.h"

/* temporary refusals */
#define MAX_RETRIES (PN_SOFT_CONNECT_NS / (PN_SOFT_RETRY_MS * PN_NS_PER_MS))
#define RING_MIN    ((uint64_t)32 << 10)
#define RING_MAX    ((uint64_t)2 << 20)

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

/* --- hello messages and their files -------------------------------------- */

union control {
	char bytes[CMSG_SPACE(PN_SOFT_HELLO_FDS * sizeof(int))];
	struct cmsghdr align;
};

/* The descriptors that fit into the control buffer, whose size is rounded up.
 */
#define MAX_FDS ((sizeof(union control) - CMSG_LEN(0)) / sizeof(int))

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

/* Receives a hello and its files, up to MAX_FDS, which then belong to the
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
	if (msg.msg_flags & MSG_CTRUNC && *nfds < MAX_FDS) {
		pn_soft_close_fds(fds, *nfds);
		*nfds = 0;
		return -EMFILE;
	}
	return (int)n;
}

/* --- errors -------------------------------------------------------------- */

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

static int peer_credentials(int sock, uid_t *uid, pid_t *pid)
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
	int fds[PN_SOFT_HELLO_FDS] = { dev->shared_fd, dev->presence_fd, -1 };
	int ret = pn_soft_memfd("pinion-channels", bytes, &fds[2],
				&peer->connection.channels);

	if (ret)
		return ret;
	peer->connection.ring_bytes = hello.ring_bytes;
	ret = send_hello(sock, &hello, fds, PN_SOFT_HELLO_FDS);
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
	ret = peer_credentials(sock, &uid, &pid);
	if (!ret && uid != geteuid())
		ret = -ECONNREFUSED;
	if (!ret)
		ret = send_offer(service, peer, sock);
	if (!ret)
		ret = pn_soft_watch_add(service, &peer->connection.socket,
					PN_SOFT_SOCKET, sock, peer);
	if (ret)
		close(sock);
	else
		atomic_store(&peer->state, PN_SOFT_CONNECTING);
	return ret;
}

void pn_soft_connection_withdraw(struct pn_soft_service *service,
				 struct pn_soft_peer *peer)
{
	pn_soft_watch_remove(service, &peer->connection.socket);
	pn_soft_channels_unmap(&peer->connection);
}

static void hello_refused(struct pn_soft_service *service,
			  struct pn_soft_peer *peer,
			  const struct pn_soft_hello *answer)
{
	if (answer->version != PN_SOFT_VERSION)
		pn_error("soft: process %d has version %u of the soft "
			 "device, this is version %u; run the same pinion on "
			 "both sides",
			 (int)answer->from.pid, answer->version,
			 PN_SOFT_VERSION);
	pn_soft_connection_withdraw(service, peer);
	pn_soft_peer_down(service, peer, -ECONNREFUSED);
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
	peer->connection.not_before_ns = now + PN_SOFT_RETRY_MS * PN_NS_PER_MS;
	peer->connection.deadline_ns = now + PN_SOFT_CONNECT_NS;
	atomic_store(&peer->state, PN_SOFT_NEW);
}

void pn_soft_answer_readable(struct pn_soft_service *service,
			     struct pn_soft_peer *peer)
{
	struct pn_soft_hello answer = { .magic = 0 };
	int fds[MAX_FDS];
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
			pn_soft_close_fds(fds, nfds);
			pn_soft_connection_withdraw(service, peer);
			schedule_retry(peer);
			return;
		}
		if (answer.status || answer.version != PN_SOFT_VERSION) {
			pn_soft_close_fds(fds, nfds);
			hello_refused(service, peer, &answer);
			return;
		}
		if (n == sizeof(answer) && nfds == PN_SOFT_ANSWER_FDS) {
			/* The channels are ours, so we know their size. */
			answer.ring_bytes = peer->connection.ring_bytes;
			peer_credentials(peer->connection.socket.fd, &uid,
					 &answer.from.pid);
			ret = pn_soft_peer_map(peer, &answer, fds, true);
			if (!ret)
				ret = pn_soft_peer_up(service, peer);
			if (!ret)
				return;
			nfds = 0;
		}
	}
	pn_soft_close_fds(fds, nfds);
	if (!peer->mapped)
		pn_soft_connection_withdraw(service, peer);
	pn_soft_peer_down(service, peer, report_failure(service, ret));
}

/* --- the side that accepts ----------------------------------------------- */

static bool is_valid_hello(const struct pn_soft_hello *hello, int n,
			   unsigned nfds)
{
	uint64_t ring = hello->ring_bytes;

	return n == sizeof(*hello) && nfds == PN_SOFT_HELLO_FDS &&
	       ring >= RING_MIN && ring <= RING_MAX && !(ring & (ring - 1));
}

bool pn_soft_is_same_user(struct pn_soft_service *service, int sock)
{
	uid_t uid = (uid_t)-1;
	pid_t pid = 0;

	if (peer_credentials(sock, &uid, &pid))
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

	if (peer_credentials(sock, &uid, &pid))
		return -ECONNREFUSED;
	if (n < 8 || hello->magic != PN_SOFT_MAGIC)
		return -EPROTO;
	if (hello->version != PN_SOFT_VERSION) {
		pn_error("soft: refused process %d: it has version %u of "
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
	pn_soft_connection_withdraw(service, peer);
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
		pn_soft_peer_down(service, peer, -ECONNRESET);
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
	pn_soft_pending_close(service, pending_socket);
	return pn_soft_watch_add(service, &peer->connection.socket,
				 PN_SOFT_SOCKET, sock, peer);
}

/* The answer is sent before our callers may write anything. */
static int answer_hello(struct pn_soft_service *service,
			struct pn_soft_peer *peer)
{
	struct pn_soft_hello answer = hello_of(service, 0);
	const int fds[PN_SOFT_ANSWER_FDS] = { service->dev->shared_fd,
					      service->dev->presence_fd };
	int ret = send_hello(peer->connection.socket.fd, &answer, fds,
			     PN_SOFT_ANSWER_FDS);

	if (ret)
		pn_soft_peer_undo_map(peer);
	return ret;
}

/* A resource is missing here for a connection that the other side asked for.
 * The other side is told the error, and both try again if that may help. If the
 * other side cannot be told, its attempt fails, and so does this one: a retry
 * would connect to a program that has seen the failure. */
static void defer_connection(struct pn_soft_service *service,
			     struct pn_soft_peer *peer, int why)
{
	struct pn_soft_hello answer = hello_of(service, why);
	int ret = send_hello(peer->connection.socket.fd, &answer, NULL, 0);

	pn_soft_channels_unmap(&peer->connection);
	if (ret || !is_temporary(why)) {
		pn_soft_peer_down(service, peer, -ECONNRESET);
		return;
	}
	pn_soft_watch_remove(service, &peer->connection.socket);
	schedule_retry(peer);
}

static void accept_hello(struct pn_soft_service *service,
			 struct pn_soft_watch *pending_socket,
			 struct pn_soft_peer *peer,
			 const struct pn_soft_hello *hello, const int *fds)
{
	int ret = take_socket(service, pending_socket, peer);

	if (ret)
		pn_soft_close_fds(fds, PN_SOFT_HELLO_FDS);
	else
		ret = pn_soft_peer_map(peer, hello, fds, false);
	if (!ret)
		ret = answer_hello(service, peer);
	if (ret) {
		defer_connection(service, peer, report_failure(service, ret));
		return;
	}
	ret = pn_soft_peer_up(service, peer);
	if (ret) {
		report_failure(service, ret);
		pn_soft_peer_down(service, peer, -ECONNRESET);
	}
}

static void refuse(struct pn_soft_service *service,
		   struct pn_soft_watch *pending_socket, int why)
{
	struct pn_soft_hello answer = hello_of(service, why);

	send_hello(pending_socket->fd, &answer, NULL, 0);
	pn_soft_pending_close(service, pending_socket);
}

void pn_soft_hello_readable(struct pn_soft_service *service,
			    struct pn_soft_watch *pending_socket)
{
	struct pn_soft_hello hello = { .magic = 0 };
	struct pn_soft_peer *peer = NULL;
	int fds[MAX_FDS];
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
	pn_soft_close_fds(fds, nfds);
	refuse(service, pending_socket, why);
}

/* --- the state of a connection ------------------------------------------- */

/* Executes detach(). If the peer is up, the other side closes its end, too, and
 * the peer is down only then; a loopback peer has no other end. */
static void begin_detach(struct pn_soft_service *service,
			 struct pn_soft_peer *peer)
{
	bool up = atomic_load(&peer->state) == PN_SOFT_UP;

	pn_soft_peer_disconnect(service, peer, -ECONNRESET);
	if (!peer->mapped)
		pn_soft_connection_withdraw(service, peer);
	if (!up || peer->connection.socket.fd < 0 ||
	    shutdown(peer->connection.socket.fd, SHUT_WR))
		pn_soft_peer_down(service, peer, -ECONNRESET);
}

bool pn_soft_connection_advance(struct pn_soft_service *service,
				struct pn_soft_peer *peer)
{
	int state = atomic_load(&peer->state);
	uint64_t now = pn_clock_ns();
	bool late = now >= peer->connection.deadline_ns;
	int ret = 0;

	/* A peer that writes invalid records would not close its end either. */
	if (atomic_load(&peer->protocol_error)) {
		pn_soft_peer_down(service, peer, -EPROTO);
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
		pn_soft_connection_withdraw(service, peer);
		ret = -ECONNREFUSED;
	}
	if (!ret)
		return true;
	if (ret == -ECONNREFUSED)
		pn_error("soft: cannot connect: the device belongs to another "
			 "user or does not answer");
	pn_soft_peer_down(service, peer, report_failure(service, ret));
	return false;
}
