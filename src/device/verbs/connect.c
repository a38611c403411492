/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/verbs/connect.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/service_thread.h"
#include "device/verbs/iwarp.h"

#define MAGIC		  UINT32_C(0x70696e76) /* "pinv" */
#define BACKLOG		  512
/* The kernel sends a lost packet of its own again after 4.3 s. */
#define CONNECT_NS	  (20 * PN_NS_PER_S)
#define RESOLVE_MS	  2000
#define LOST_NS		  PN_NS_PER_S
#define TICK_MS		  50
#define SLOW_TICK_MS	  1000 /* iWARP: to see whether peers are stuck */
#define AGAIN_NS	  (50 * PN_NS_PER_MS)
#define STALE_REFUSAL	  10 /* IB_CM_REJ_STALE_CONN */
/* The status of a refusal that its private data explains. */
#define EXPLAINED_REFUSAL 28 /* IB_CM_REJ_CONSUMER_DEFINED */

_Static_assert(sizeof(struct pn_verbs_hello) <= 56, "fits private data");

/* --- addresses ----------------------------------------------------------- */

union any_address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static void to_socket_address(const struct pn_verbs_address *from, bool port,
			      union any_address *out)
{
	memset(out, 0, sizeof(*out));
	out->any.sa_family = from->family;
	if (from->family == AF_INET) {
		memcpy(&out->v4.sin_addr, from->ip, 4);
		out->v4.sin_port = port ? from->port : 0;
	} else {
		memcpy(&out->v6.sin6_addr, from->ip, 16);
		out->v6.sin6_port = port ? from->port : 0;
		out->v6.sin6_scope_id = from->scope;
	}
}

static int check_from(const struct pn_verbs_address *from)
{
	return !memcmp(from->kind, "verb", 4) &&
			       from->version == PN_VERBS_VERSION &&
			       (from->family == AF_INET ||
				from->family == AF_INET6) &&
			       from->port
		       ? 0
		       : -EINVAL;
}

/* The blob of an IPv4 address: what stands before the scope, and 4 bytes. */
#define V4_HEAD	 offsetof(struct pn_verbs_address, scope)
#define V4_BYTES (V4_HEAD + 4)

void pn_verbs_address_put(const struct pn_verbs_address *address,
			  struct pn_address *out)
{
	memset(out, 0, sizeof(*out));
	out->len = address->family == AF_INET ? V4_BYTES : sizeof(*address);
	memcpy(out->data, address, sizeof(*address));
	if (address->family != AF_INET)
		return;
	memset(out->data + V4_HEAD, 0, sizeof(*address) - V4_HEAD);
	memcpy(out->data + V4_HEAD, address->ip, 4);
}

int pn_verbs_address_check(const struct pn_address *blob,
			   struct pn_verbs_address *out)
{
	bool v4 = blob->len == V4_BYTES;

	if (!v4 && blob->len != sizeof(*out))
		return -EINVAL;
	memset(out, 0, sizeof(*out));
	memcpy(out, blob->data, v4 ? V4_HEAD : sizeof(*out));
	if (v4)
		memcpy(out->ip, blob->data + V4_HEAD, 4);
	return v4 == (out->family == AF_INET) ? check_from(out) : -EINVAL;
}

int pn_verbs_hello_check(const void *data, size_t len, uint64_t nonce,
			 struct pn_verbs_hello *out)
{
	if (len < sizeof(*out))
		return -EPROTO;
	memcpy(out, data, sizeof(*out));
	if (out->magic != PN_VERBS_MAGIC)
		return -EPROTO;
	if (out->version != PN_VERBS_VERSION)
		return -ECONNREFUSED;
	if (out->to != nonce)
		return -ECONNRESET;
	return check_from(&out->from);
}

/* --- peers --------------------------------------------------------------- */

static struct pn_verbs_peer *find_peer(struct pn_verbs_device *dev,
				       uint64_t nonce)
	PN_REQUIRES(&dev->peers_lock)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &dev->peers) {
		struct pn_verbs_peer *peer =
			pn_container_of(pos, struct pn_verbs_peer, link);

		if (peer->at.nonce == nonce)
			return peer;
	}
	return NULL;
}

static struct pn_verbs_peer *make_peer(struct pn_verbs_device *dev,
				       const struct pn_verbs_address *at)
	PN_REQUIRES(&dev->peers_lock)
{
	struct pn_verbs_peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return NULL;
	/* The last one is no operation's, but the device's own. */
	peer->out.records = calloc(dev->device.limits.queue_depth + 1,
				   sizeof(*peer->out.records));
	if (!peer->out.records ||
	    (dev->is_iwarp && pn_verbs_stage_alloc(dev, &peer->out))) {
		free(peer->out.records);
		free(peer);
		return NULL;
	}
	peer->peer.device = &dev->device;
	pn_verbs_address_put(at, &peer->peer.address);
	peer->at = *at;
	peer->tag = pn_verbs_tag(at->nonce);
	pn_list_init(&peer->early);
	pn_list_init(&peer->failing);
	pn_list_init(&peer->owed);
	atomic_store(&peer->wants_lane, true);
	pn_list_append(&dev->peers, &peer->link);
	return peer;
}

/* The peer at an address; a new one wants a lane. NULL: no memory. */
static struct pn_verbs_peer *get_peer(struct pn_verbs_device *dev,
				      const struct pn_verbs_address *at)
{
	struct pn_verbs_peer *peer;

	pn_lock(&dev->peers_lock);
	peer = find_peer(dev, at->nonce);
	if (!peer)
		peer = make_peer(dev, at);
	pn_unlock(&dev->peers_lock);
	return peer;
}

int pn_verbs_attach(struct pn_device *device, const struct pn_address *address,
		    struct pn_peer **out)
{
	struct pn_verbs_device *dev = pn_verbs_of(device);
	struct pn_verbs_address at;
	struct pn_verbs_peer *peer;
	int ret = pn_verbs_address_check(address, &at);

	if (ret)
		return ret;
	peer = get_peer(dev, &at);
	if (!peer)
		return -ENOMEM;
	pn_verbs_service_notify(dev);
	*out = &peer->peer;
	return 0;
}

/* --- telling the callers ------------------------------------------------- */

/* False: no memory; the peer will not come up and runs into its deadline. */
static bool tell(struct pn_verbs_device *dev, struct pn_verbs_event what)
{
	struct pn_verbs_event *event = malloc(sizeof(*event));

	if (!event)
		return false;
	*event = what;
	pn_lock(&dev->events_lock);
	pn_list_append(&dev->events, &event->link);
	atomic_fetch_add(&dev->nevents, 1);
	pn_unlock(&dev->events_lock);
	pn_verbs_notify(dev);
	return true;
}

static void end_id(struct rdma_cm_id **id)
{
	if (*id)
		rdma_destroy_id(*id); /* says goodbye when connected */
	*id = NULL;
}

/* Lets go of what the service holds of the out lane. */
static void end_out(struct pn_verbs_peer *peer)
{
	end_id(&peer->out_id);
	if (peer->out_qp)
		ibv_destroy_qp(peer->out_qp);
	peer->out_qp = NULL;
}

static void end_peer(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		     int status)
{
	end_out(peer);
	end_id(&peer->in_id);
	peer->deadline_ns = peer->in_lost_ns = peer->out_lost_ns = 0;
	dev->nwindows -= peer->has_window;
	peer->has_window = false;
	if (!peer->gone)
		peer->gone =
			tell(dev, (struct pn_verbs_event){
					  .kind = PN_VERBS_EVENT_PEER_DOWN,
					  .peer = peer,
					  .status = pn_device_connection_error(
						  status) });
}

/* --- the out lane -------------------------------------------------------- */

static void start_out(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	union any_address here, there;

	end_out(peer);
	if (!peer->deadline_ns)
		peer->deadline_ns = pn_clock_ns() + CONNECT_NS;
	to_socket_address(&dev->address, false, &here);
	to_socket_address(&peer->at, true, &there);
	if (rdma_create_id(dev->cm, &peer->out_id, peer, RDMA_PS_TCP)) {
		peer->out_id = NULL;
		end_peer(dev, peer, -ENOMEM);
	} else if (rdma_resolve_addr(peer->out_id, &here.any, &there.any,
				     RESOLVE_MS)) {
		end_peer(dev, peer, -ECONNRESET);
	}
}

static int least_of(int a, int b)
{
	return a < b ? a : b;
}

static struct rdma_conn_param parameters(struct pn_verbs_device *dev,
					 const struct ibv_qp *qp)
{
	int reads = dev->attr.max_qp_rd_atom;
	int asks = dev->attr.max_qp_init_rd_atom;

	return (struct rdma_conn_param){
		.responder_resources =
			(uint8_t)least_of(reads, PN_VERBS_MAX_READS),
		.initiator_depth = (uint8_t)least_of(asks, PN_VERBS_MAX_READS),
		.retry_count = (uint8_t)dev->params.retries,
		.rnr_retry_count = 7,
		.srq = 1,
		.qp_num = qp->qp_num,
	};
}

static int connect_out(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	uint32_t grant = atomic_load(&peer->last_grant);
	struct pn_verbs_iwarp_hello hello = {
		.hello = { .magic = PN_VERBS_MAGIC,
			   .version = PN_VERBS_VERSION,
			   .to = peer->at.nonce,
			   .from = dev->address },
		.lane = ++peer->out_number,
		.grant = { (uint16_t)(grant >> 16), (uint16_t)grant },
	};
	struct rdma_conn_param param;
	int ret;

	if (dev->is_iwarp)
		hello.byte = (struct pn_verbs_confirm_byte){
			(uintptr_t)dev->byte_mr->addr, dev->byte_mr->rkey, 0
		};

	peer->out_qp = pn_verbs_qp_create(dev, dev->device.limits.queue_depth);
	if (!peer->out_qp)
		return -errno;
	ret = pn_verbs_qp_modify(dev, peer->out_qp, peer->out_id, IBV_QPS_INIT);
	if (ret)
		return ret;
	param = parameters(dev, peer->out_qp);
	param.private_data = &hello;
	param.private_data_len =
		dev->is_iwarp ? sizeof(hello) : sizeof(hello.hello);
	peer->told_grant = grant;
	return rdma_connect(peer->out_id, &param) ? -errno : 0;
}

/* The callers may post as soon as the lane can send: before the other side
 * hears that we are there. */
static int hand_over_out(struct pn_verbs_device *dev,
			 struct pn_verbs_peer *peer)
{
	struct pn_verbs_event event = { .kind = PN_VERBS_EVENT_TX_READY,
					.peer = peer,
					.qp = peer->out_qp,
					.number = peer->out_number };

	event.grant.lane = (uint16_t)(peer->told_grant >> 16);
	event.grant.messages = (uint16_t)peer->told_grant;
	if (!tell(dev, event))
		return -ENOMEM;
	peer->out_qp = NULL;
	peer->deadline_ns = 0;
	return 0;
}

static int answered(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	int ret = pn_verbs_qp_modify(dev, peer->out_qp, peer->out_id,
				     IBV_QPS_RTR);

	if (!ret)
		ret = pn_verbs_qp_modify(dev, peer->out_qp, peer->out_id,
					 IBV_QPS_RTS);
	if (!ret)
		ret = hand_over_out(dev, peer);
	if (ret)
		return ret;
	return rdma_establish(peer->out_id) ? -errno : 0;
}

/* On iWARP. A port that goes down drops its connections before it says so, and
 * siw's connecting keeps this thread until TCP gives up: there, so short a
 * while is worth waiting. */
static void lose_out(struct pn_verbs_peer *peer)
{
	end_out(peer);
	peer->out_lost_ns = pn_clock_ns();
}

static bool port_is_up(struct pn_verbs_device *dev)
{
	struct ibv_port_attr attr;

	return !ibv_query_port(dev->context, dev->port, &attr) &&
	       attr.state == IBV_PORT_ACTIVE;
}

/* What was under way on a lane that a dead port dropped was not refused. */
static int established(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	return port_is_up(dev) ? hand_over_out(dev, peer) : -ENETDOWN;
}

/* --- the in lane --------------------------------------------------------- */

static int make_in(struct pn_verbs_device *dev, struct rdma_cm_id *id,
		   struct ibv_qp **out)
{
	struct ibv_qp *qp = pn_verbs_qp_create(dev, 0);
	int ret;

	if (!qp)
		return -errno;
	ret = pn_verbs_qp_modify(dev, qp, id, IBV_QPS_INIT);
	if (!ret && !dev->is_iwarp)
		ret = pn_verbs_qp_modify(dev, qp, id, IBV_QPS_RTR);
	if (!ret && !dev->is_iwarp)
		ret = pn_verbs_qp_modify(dev, qp, id, IBV_QPS_RTS);
	if (ret)
		ibv_destroy_qp(qp);
	else
		*out = qp;
	return ret;
}

/* On iWARP every peer is promised receive buffers. */
static int promise(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	unsigned each = PN_VERBS_CREDIT_WINDOW + PN_VERBS_CREDIT_SPARE;

	if (!dev->is_iwarp || peer->has_window)
		return 0;
	if ((dev->nwindows + 1) * each > dev->params.receives) {
		pn_error("verbs: %s has receive buffers for %u peers; "
			 "receives=%u allows one more",
			 dev->name, dev->nwindows, (dev->nwindows + 1) * each);
		return -ENOMEM;
	}
	dev->nwindows++;
	peer->has_window = true;
	return 0;
}

static int accept_in(struct pn_verbs_device *dev, struct rdma_cm_id *id,
		     const struct pn_verbs_iwarp_hello *hello)
{
	struct pn_verbs_peer *peer = get_peer(dev, &hello->hello.from);
	struct rdma_conn_param param;
	struct pn_verbs_event event = { .kind = PN_VERBS_EVENT_RX_READY,
					.number = hello->lane,
					.grant = hello->grant,
					.byte = hello->byte };
	int ret;

	if (!peer || peer->gone)
		return peer ? -ECONNRESET : -ENOMEM;
	ret = promise(dev, peer);
	if (ret)
		return ret;
	ret = make_in(dev, id, &event.qp);
	if (ret)
		return ret;
	param = parameters(dev, event.qp);
	event.peer = peer;
	/* First tell, then accept: a message that comes finds its peer. */
	if (!tell(dev, event)) {
		ibv_destroy_qp(event.qp);
		return -ENOMEM;
	}
	if (rdma_accept(id, &param))
		return -errno;
	end_id(&peer->in_id);
	id->context = peer;
	peer->in_id = id;
	peer->in_lost_ns = 0;
	return 0;
}

static void answer(struct pn_verbs_device *dev, struct rdma_cm_id *id,
		   const void *data, size_t len)
{
	struct pn_verbs_iwarp_hello hello = { .lane = 0 };
	int32_t status = pn_verbs_hello_check(data, len, dev->address.nonce,
					      &hello.hello);

	if (!status && dev->is_iwarp)
		status = len < sizeof(hello) ? -EPROTO : 0;
	if (!status && dev->is_iwarp)
		memcpy(&hello, data, sizeof(hello));
	if (!status)
		status = accept_in(dev, id, &hello);
	if (!status)
		return;
	if (status == -ECONNREFUSED)
		pn_warn("verbs: refused a peer that speaks version %u, not %u",
			hello.hello.version, PN_VERBS_VERSION);
	rdma_reject(id, &status, sizeof(status));
	rdma_destroy_id(id);
}

/* --- what rdma_cm says --------------------------------------------------- */

/* An event without its storage. */
struct news {
	enum rdma_cm_event_type what;
	int status;
	struct rdma_cm_id *id;
	uint8_t data[256];
	size_t len;
};

static int why_rejected(const struct news *news)
{
	int32_t status = 0;

	if (news->status == EXPLAINED_REFUSAL && news->len >= sizeof(status))
		memcpy(&status, news->data, sizeof(status));
	return status == -ECONNREFUSED ? status : -ECONNRESET;
}

static void out_failed(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		       const struct news *news)
{
	bool is_stale = news->what == RDMA_CM_EVENT_REJECTED &&
			news->status == STALE_REFUSAL;
	bool was_there = !peer->deadline_ns;

	/* The kernel still remembers an older lane of this number; or an iWARP
	 * target refused something. */
	if (is_stale)
		start_out(dev, peer);
	else if (dev->is_iwarp && was_there && port_is_up(dev) &&
		 news->what == RDMA_CM_EVENT_DISCONNECTED)
		lose_out(peer);
	else
		end_peer(dev, peer,
			 news->what == RDMA_CM_EVENT_REJECTED
				 ? why_rejected(news)
				 : -ECONNRESET);
}

static void on_out(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
		   const struct news *news)
{
	int ret = 0;

	switch (news->what) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		ret = rdma_resolve_route(peer->out_id, RESOLVE_MS) ? -errno : 0;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		ret = connect_out(dev, peer);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		ret = answered(dev, peer);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (peer->out_qp) /* iWARP: the kernel did it all */
			ret = established(dev, peer);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		break;
	default:
		out_failed(dev, peer, news);
	}
	if (ret) {
		pn_debug("verbs: connecting: event %d: %s", news->what,
			 strerror(-ret));
		end_peer(dev, peer, -ECONNRESET);
	}
}

static void on_in(struct pn_verbs_peer *peer, const struct news *news)
{
	switch (news->what) {
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_DEVICE_REMOVAL:
		end_id(&peer->in_id);
		peer->in_lost_ns = pn_clock_ns();
		break;
	default:
		break;
	}
}

static void on_news(struct pn_verbs_device *dev, const struct news *news)
{
	struct pn_verbs_peer *peer = news->id->context;

	pn_debug("verbs: rdma_cm: %s, status %d", rdma_event_str(news->what),
		 news->status);
	if (news->what == RDMA_CM_EVENT_CONNECT_REQUEST)
		answer(dev, news->id, news->data, news->len);
	else if (peer && news->id == peer->out_id)
		on_out(dev, peer, news);
	else if (peer && news->id == peer->in_id)
		on_in(peer, news);
}

static void take_news(struct pn_verbs_device *dev)
{
	struct rdma_cm_event *event;

	while (!rdma_get_cm_event(dev->cm, &event)) {
		struct news news = { .what = event->event,
				     .status = event->status,
				     .id = event->id };

		news.len = event->param.conn.private_data_len;
		if (!event->param.conn.private_data)
			news.len = 0;
		if (news.len > sizeof(news.data))
			news.len = sizeof(news.data);
		if (news.len)
			memcpy(news.data, event->param.conn.private_data,
			       news.len);
		/* An event keeps its id from being destroyed. */
		rdma_ack_cm_event(event);
		on_news(dev, &news);
	}
}

/* --- what the adapter says ----------------------------------------------- */

/* The peer after pos, or NULL. Callers add to the list's end only, and the
 * lock is not held while at work. */
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

static void end_all(struct pn_verbs_device *dev)
{
	for (struct pn_verbs_peer *peer = next_peer(dev, &dev->peers); peer;
	     peer = next_peer(dev, &peer->link))
		end_peer(dev, peer, -ECONNRESET);
}

static void on_async(struct pn_verbs_device *dev,
		     const struct ibv_async_event *event)
{
	switch (event->event_type) {
	case IBV_EVENT_PORT_ERR:
		if (event->element.port_num == dev->port)
			dev->port_lost_ns = pn_clock_ns();
		break;
	case IBV_EVENT_PORT_ACTIVE:
		if (event->element.port_num == dev->port)
			dev->port_lost_ns = 0;
		break;
	case IBV_EVENT_DEVICE_FATAL:
		pn_error("verbs: %s has failed or was removed: all peers are "
			 "down; open it again when it is back",
			 dev->name);
		end_all(dev);
		break;
	default: /* queue pairs: their operations say it, too */
		break;
	}
}

static void take_async(struct pn_verbs_device *dev)
{
	struct ibv_async_event event;

	while (!ibv_get_async_event(dev->context, &event)) {
		pn_debug("verbs: %s: %s", dev->name,
			 ibv_event_type_str(event.event_type));
		/* Acknowledged first: destroying what it is about waits. */
		ibv_ack_async_event(&event);
		on_async(dev, &event);
	}
}

/* --- the thread ---------------------------------------------------------- */

void pn_verbs_service_notify(struct pn_verbs_device *dev)
{
	PN_NO_CANCEL();
	uint64_t one = 1;

	if (write(dev->kick_fd, &one, sizeof(one)) < 0)
		return;
}

static bool is_late(uint64_t since_ns, uint64_t patience_ns)
{
	return since_ns && pn_clock_ns() > since_ns + patience_ns;
}

/* iWARP: whether nothing of what is under way has ended for too long. */
static bool is_stuck(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	uint32_t pulse =
		atomic_load_explicit(&peer->pulse, memory_order_relaxed);

	if (pulse != peer->seen_pulse || !(pulse & 1)) {
		peer->seen_pulse = pulse;
		peer->pulse_ns = pn_clock_ns();
		return false;
	}
	return is_late(peer->pulse_ns, dev->params.patience);
}

/* What callers want of one peer, and its deadlines. True: look again soon. */
static bool look_after(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	if (atomic_exchange(&peer->wants_end, false)) {
		peer->gone = true;
		end_peer(dev, peer, 0);
	}
	if (peer->gone)
		return false;
	if (atomic_exchange(&peer->wants_lane, false))
		start_out(dev, peer);
	if (is_late(peer->out_lost_ns, AGAIN_NS)) {
		peer->out_lost_ns = 0;
		if (port_is_up(dev))
			start_out(dev, peer);
		else
			end_peer(dev, peer, -ECONNRESET);
	}
	if (is_late(peer->deadline_ns, 0) || is_stuck(dev, peer) ||
	    is_late(peer->in_lost_ns, LOST_NS)) {
		pn_info("verbs: %s: a peer %s: it is gone", dev->name,
			peer->in_lost_ns ? "closed its lane"
					 : "does not answer");
		end_peer(dev, peer, -ECONNRESET);
	}
	return peer->deadline_ns || peer->in_lost_ns || peer->out_lost_ns;
}

static bool look_after_all(struct pn_verbs_device *dev)
{
	bool soon = dev->port_lost_ns;

	if (is_late(dev->port_lost_ns, LOST_NS)) {
		dev->port_lost_ns = 0;
		pn_warn("verbs: port %u of %s is down: so are all peers",
			dev->port, dev->name);
		end_all(dev);
	}
	for (struct pn_verbs_peer *peer = next_peer(dev, &dev->peers); peer;
	     peer = next_peer(dev, &peer->link))
		soon |= look_after(dev, peer);
	return soon;
}

static void *serve(void *arg)
{
	struct pn_verbs_device *dev = arg;
	struct epoll_event events[3];
	uint64_t count;

	while (!atomic_load(&dev->stop)) {
		bool soon = look_after_all(dev);

		epoll_wait(dev->service_epoll, events, 3,
			   soon		   ? TICK_MS
			   : dev->is_iwarp ? SLOW_TICK_MS
					   : -1);
		if (read(dev->kick_fd, &count, sizeof(count)) < 0)
			count = 0;
		take_news(dev);
		take_async(dev);
	}
	return NULL;
}

static int watch(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

static int start_thread(struct pn_verbs_device *dev)
{
	int ret = pn_service_thread_start(&dev->thread, "pinion-verbs", serve,
					  dev);

	dev->running = !ret;
	return ret;
}

static void make_nonblocking(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

int pn_verbs_service_start(struct pn_verbs_device *dev)
{
	int ret;

	dev->kick_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	dev->service_epoll = epoll_create1(EPOLL_CLOEXEC);
	if (dev->kick_fd < 0 || dev->service_epoll < 0) {
		ret = -errno;
		goto close;
	}
	make_nonblocking(dev->cm->fd);
	make_nonblocking(dev->context->async_fd);
	ret = watch(dev->service_epoll, dev->kick_fd);
	if (!ret)
		ret = watch(dev->service_epoll, dev->cm->fd);
	if (!ret)
		ret = watch(dev->service_epoll, dev->context->async_fd);
	if (!ret)
		ret = start_thread(dev);
	if (!ret)
		return 0;
close:
	close(dev->kick_fd);
	close(dev->service_epoll);
	return ret;
}

void pn_verbs_service_stop(struct pn_verbs_device *dev)
{
	struct pn_list *pos;

	atomic_store(&dev->stop, true);
	pn_verbs_service_notify(dev);
	pthread_join(dev->thread, NULL);
	pn_list_for_each (pos, &dev->peers) {
		struct pn_verbs_peer *peer =
			pn_container_of(pos, struct pn_verbs_peer, link);

		end_out(peer);
		end_id(&peer->in_id);
	}
	close(dev->kick_fd);
	close(dev->service_epoll);
}

/* --- listening ----------------------------------------------------------- */

int pn_verbs_listen(struct pn_verbs_device *dev)
{
	/* pn_verbs_find() has bound it. */
	if (rdma_listen(dev->listener, BACKLOG)) {
		pn_error("verbs: cannot listen on %s: %s", dev->name,
			 strerror(errno));
		return -errno;
	}
	dev->address.port = rdma_get_src_port(dev->listener);
	return 0;
}

void pn_verbs_listen_stop(struct pn_verbs_device *dev)
{
	end_id(&dev->listener);
	if (dev->cm)
		rdma_destroy_event_channel(dev->cm);
	dev->cm = NULL;
}
