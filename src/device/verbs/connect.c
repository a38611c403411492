/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/verbs/connect.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/verbs/iwarp.h"

#define BACKLOG		  512
/* The kernel resends its own lost packets after 4.3 s. */
#define CONNECT_NS	  (20 * PN_NS_PER_S)
#define RESOLVE_MS	  2000
#define REJECTED_STALE	  10 /* IB_CM_REJ_STALE_CONN */
/* A rejection whose private data has the reason. */
#define REJECTED_CONSUMER 28 /* IB_CM_REJ_CONSUMER_DEFINED */

_Static_assert(sizeof(struct pn_verbs_hello) <= 56, "fits private data");

/* --- peers ---------------------------------------------------------------- */

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

static struct pn_verbs_peer *create_peer(struct pn_verbs_device *dev,
					 const struct pn_verbs_address *at)
	PN_REQUIRES(&dev->peers_lock)
{
	struct pn_verbs_peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return NULL;
	/* The last record is for messages of the device itself (iwarp.c). */
	peer->tx.records = calloc(dev->device.limits.queue_depth + 1,
				  sizeof(*peer->tx.records));
	if (!peer->tx.records ||
	    (dev->is_iwarp && pn_verbs_stage_alloc(dev, &peer->tx))) {
		free(peer->tx.records);
		free(peer);
		return NULL;
	}
	peer->peer.device = &dev->device;
	pn_verbs_address_put(at, &peer->peer.address);
	peer->at = *at;
	peer->tag = pn_verbs_tag(at->nonce);
	pn_list_init(&peer->early);
	pn_list_init(&peer->teardown);
	pn_list_init(&peer->credit_due);
	atomic_store(&peer->connect_wanted, true);
	pn_list_append(&dev->peers, &peer->link);
	return peer;
}

/* The peer with this address; a new peer is to be connected. NULL: no memory.
 */
static struct pn_verbs_peer *get_peer(struct pn_verbs_device *dev,
				      const struct pn_verbs_address *at)
{
	struct pn_verbs_peer *peer;

	pn_lock(&dev->peers_lock);
	peer = find_peer(dev, at->nonce);
	if (!peer)
		peer = create_peer(dev, at);
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

/* --- events for the callers ----------------------------------------------- */

/* False: no memory. The peer does not come up and reaches its deadline. */
static bool queue_event(struct pn_verbs_device *dev, struct pn_verbs_event what)
{
	struct pn_verbs_event *event = malloc(sizeof(*event));

	if (!event)
		return false;
	*event = what;
	pn_lock(&dev->events.lock);
	pn_list_append(&dev->events.list, &event->link);
	atomic_fetch_add(&dev->events.n, 1);
	pn_unlock(&dev->events.lock);
	pn_verbs_notify(dev);
	return true;
}

static void destroy_id(struct rdma_cm_id **id)
{
	if (*id)
		rdma_destroy_id(*id); /* disconnects, if connected */
	*id = NULL;
}

/* Closes the part of tx that belongs to the service thread. */
static void close_tx(struct pn_verbs_peer *peer)
{
	destroy_id(&peer->tx_id);
	if (peer->connecting_qp)
		ibv_destroy_qp(peer->connecting_qp);
	peer->connecting_qp = NULL;
}

void pn_verbs_peer_disconnect(struct pn_verbs_peer *peer)
{
	close_tx(peer);
	destroy_id(&peer->rx_id);
}

void pn_verbs_peer_down(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
			int status)
{
	pn_verbs_peer_disconnect(peer);
	peer->deadline_ns = peer->rx_lost_ns = peer->tx_lost_ns = 0;
	dev->service.ncredit_windows -= peer->has_credit_window;
	peer->has_credit_window = false;
	if (!peer->down_queued)
		peer->down_queued = queue_event(
			dev,
			(struct pn_verbs_event){
				.kind = PN_VERBS_EVENT_PEER_DOWN,
				.peer = peer,
				.status = pn_device_connection_error(status) });
}

/* --- tx: connecting ------------------------------------------------------- */

void pn_verbs_peer_connect(struct pn_verbs_device *dev,
			   struct pn_verbs_peer *peer)
{
	union pn_verbs_socket_address here, there;

	close_tx(peer);
	if (!peer->deadline_ns)
		peer->deadline_ns = pn_clock_ns() + CONNECT_NS;
	pn_verbs_address_to_socket(&dev->address, false, &here);
	pn_verbs_address_to_socket(&peer->at, true, &there);
	if (rdma_create_id(dev->service.cm, &peer->tx_id, peer, RDMA_PS_TCP)) {
		peer->tx_id = NULL;
		pn_verbs_peer_down(dev, peer, -ENOMEM);
	} else if (rdma_resolve_addr(peer->tx_id, &here.any, &there.any,
				     RESOLVE_MS)) {
		pn_verbs_peer_down(dev, peer, -ECONNRESET);
	}
}

static int min_int(int a, int b)
{
	return a < b ? a : b;
}

static struct rdma_conn_param conn_param(struct pn_verbs_device *dev,
					 const struct ibv_qp *qp)
{
	int reads = dev->attr.max_qp_rd_atom;
	int initiator_reads = dev->attr.max_qp_init_rd_atom;

	return (struct rdma_conn_param){
		.responder_resources =
			(uint8_t)min_int(reads, PN_VERBS_MAX_READS),
		.initiator_depth =
			(uint8_t)min_int(initiator_reads, PN_VERBS_MAX_READS),
		.retry_count = (uint8_t)dev->params.retries,
		.rnr_retry_count = 7,
		.srq = 1,
		.qp_num = qp->qp_num,
	};
}

static int send_connect_request(struct pn_verbs_device *dev,
				struct pn_verbs_peer *peer)
{
	uint32_t credit = atomic_load(&peer->granted_credit);
	struct pn_verbs_iwarp_hello hello = {
		.hello = { .magic = PN_VERBS_MAGIC,
			   .version = PN_VERBS_VERSION,
			   .to = peer->at.nonce,
			   .from = dev->address },
		.generation = ++peer->tx_generation,
		.credit = { (uint16_t)(credit >> 16), (uint16_t)credit },
	};
	struct rdma_conn_param param;
	int ret;

	if (dev->is_iwarp)
		hello.confirm_byte = (struct pn_verbs_confirm_byte){
			(uintptr_t)dev->confirm_mr->addr, dev->confirm_mr->rkey,
			0
		};

	peer->connecting_qp =
		pn_verbs_qp_create(dev, dev->device.limits.queue_depth);
	if (!peer->connecting_qp)
		return -errno;
	ret = pn_verbs_qp_modify(dev, peer->connecting_qp, peer->tx_id,
				 IBV_QPS_INIT);
	if (ret)
		return ret;
	param = conn_param(dev, peer->connecting_qp);
	param.private_data = &hello;
	param.private_data_len =
		dev->is_iwarp ? sizeof(hello) : sizeof(hello.hello);
	peer->hello_credit = credit;
	return rdma_connect(peer->tx_id, &param) ? -errno : 0;
}

/* Callers may post as soon as the queue pair can send, before the other side
 * knows that it is connected. */
static int hand_over_tx(struct pn_verbs_device *dev, struct pn_verbs_peer *peer)
{
	struct pn_verbs_event event = { .kind = PN_VERBS_EVENT_TX_READY,
					.peer = peer,
					.qp = peer->connecting_qp,
					.generation = peer->tx_generation };

	event.credit.generation = (uint16_t)(peer->hello_credit >> 16);
	event.credit.messages = (uint16_t)peer->hello_credit;
	if (!queue_event(dev, event))
		return -ENOMEM;
	peer->connecting_qp = NULL;
	peer->deadline_ns = 0;
	return 0;
}

static int on_connect_response(struct pn_verbs_device *dev,
			       struct pn_verbs_peer *peer)
{
	int ret = pn_verbs_qp_modify(dev, peer->connecting_qp, peer->tx_id,
				     IBV_QPS_RTR);

	if (!ret)
		ret = pn_verbs_qp_modify(dev, peer->connecting_qp, peer->tx_id,
					 IBV_QPS_RTS);
	if (!ret)
		ret = hand_over_tx(dev, peer);
	if (ret)
		return ret;
	return rdma_establish(peer->tx_id) ? -errno : 0;
}

/* iWARP. A port that goes down drops its connections before it reports its
 * state. To connect over such a port blocks this thread in siw until TCP gives
 * up, so the reconnect waits a little (RECONNECT_NS). */
static void tx_lost(struct pn_verbs_peer *peer)
{
	close_tx(peer);
	peer->tx_lost_ns = pn_clock_ns();
}

bool pn_verbs_port_is_up(struct pn_verbs_device *dev)
{
	struct ibv_port_attr attr;

	return !ibv_query_port(dev->context, dev->port, &attr) &&
	       attr.state == IBV_PORT_ACTIVE;
}

/* iWARP. With the port down, the target refused nothing: no operation of the
 * lost queue pair may be blamed. */
static int on_established(struct pn_verbs_device *dev,
			  struct pn_verbs_peer *peer)
{
	return pn_verbs_port_is_up(dev) ? hand_over_tx(dev, peer) : -ENETDOWN;
}

/* --- rx: accepting -------------------------------------------------------- */

static int create_rx(struct pn_verbs_device *dev, struct rdma_cm_id *id,
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

/* iWARP: every peer has receive buffers of its own. */
static int reserve_credit_window(struct pn_verbs_device *dev,
				 struct pn_verbs_peer *peer)
{
	unsigned each = PN_VERBS_CREDIT_WINDOW + PN_VERBS_CREDIT_SPARE;

	if (!dev->is_iwarp || peer->has_credit_window)
		return 0;
	if ((dev->service.ncredit_windows + 1) * each > dev->params.receives) {
		pn_error("verbs: %s has receive buffers for %u peers; "
			 "receives=%u allows one more",
			 dev->name, dev->service.ncredit_windows,
			 (dev->service.ncredit_windows + 1) * each);
		return -ENOMEM;
	}
	dev->service.ncredit_windows++;
	peer->has_credit_window = true;
	return 0;
}

static int accept_rx(struct pn_verbs_device *dev, struct rdma_cm_id *id,
		     const struct pn_verbs_iwarp_hello *hello)
{
	struct pn_verbs_peer *peer = get_peer(dev, &hello->hello.from);
	struct rdma_conn_param param;
	struct pn_verbs_event event = { .kind = PN_VERBS_EVENT_RX_READY,
					.generation = hello->generation,
					.credit = hello->credit,
					.confirm_byte = hello->confirm_byte };
	int ret;

	if (!peer || peer->down_queued)
		return peer ? -ECONNRESET : -ENOMEM;
	ret = reserve_credit_window(dev, peer);
	if (ret)
		return ret;
	ret = create_rx(dev, id, &event.qp);
	if (ret)
		return ret;
	pn_assert(event.qp);
	param = conn_param(dev, event.qp);
	event.peer = peer;
	/* Before rdma_accept(): a message that arrives finds its peer. */
	if (!queue_event(dev, event)) {
		ibv_destroy_qp(event.qp);
		return -ENOMEM;
	}
	if (rdma_accept(id, &param))
		return -errno;
	destroy_id(&peer->rx_id);
	id->context = peer;
	peer->rx_id = id;
	peer->rx_lost_ns = 0;
	return 0;
}

static void answer_request(struct pn_verbs_device *dev, struct rdma_cm_id *id,
			   const void *data, size_t len)
{
	struct pn_verbs_iwarp_hello hello = { .generation = 0 };
	int32_t status = pn_verbs_hello_check(data, len, dev->address.nonce,
					      &hello.hello);

	if (!status && dev->is_iwarp)
		status = len < sizeof(hello) ? -EPROTO : 0;
	if (!status && dev->is_iwarp)
		memcpy(&hello, data, sizeof(hello));
	if (!status)
		status = accept_rx(dev, id, &hello);
	if (!status)
		return;
	if (status == -ECONNREFUSED)
		pn_warn("verbs: refused a peer with protocol version %u (this "
			"is %u): use one version of pinion everywhere",
			hello.hello.version, PN_VERBS_VERSION);
	rdma_reject(id, &status, sizeof(status));
	rdma_destroy_id(id);
}

/* --- rdma_cm events ------------------------------------------------------- */

/* A copy of an event, which was acknowledged. */
struct cm_event {
	enum rdma_cm_event_type type;
	int status;
	struct rdma_cm_id *id;
	uint8_t data[256];
	size_t len;
};

static int reject_reason(const struct cm_event *cm_event)
{
	int32_t status = 0;

	if (cm_event->status == REJECTED_CONSUMER &&
	    cm_event->len >= sizeof(status))
		memcpy(&status, cm_event->data, sizeof(status));
	return status == -ECONNREFUSED ? status : -ECONNRESET;
}

static void connect_failed(struct pn_verbs_device *dev,
			   struct pn_verbs_peer *peer,
			   const struct cm_event *cm_event)
{
	bool is_stale = cm_event->type == RDMA_CM_EVENT_REJECTED &&
			cm_event->status == REJECTED_STALE;
	bool was_connected = !peer->deadline_ns;

	/* Stale: the kernel still remembers an older queue pair with this
	 * number. Disconnected on iWARP: the target may have refused an
	 * operation. */
	if (is_stale)
		pn_verbs_peer_connect(dev, peer);
	else if (dev->is_iwarp && was_connected && pn_verbs_port_is_up(dev) &&
		 cm_event->type == RDMA_CM_EVENT_DISCONNECTED)
		tx_lost(peer);
	else
		pn_verbs_peer_down(dev, peer,
				   cm_event->type == RDMA_CM_EVENT_REJECTED
					   ? reject_reason(cm_event)
					   : -ECONNRESET);
}

static void on_tx_event(struct pn_verbs_device *dev, struct pn_verbs_peer *peer,
			const struct cm_event *cm_event)
{
	int ret = 0;

	switch (cm_event->type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		ret = rdma_resolve_route(peer->tx_id, RESOLVE_MS) ? -errno : 0;
		break;
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		ret = send_connect_request(dev, peer);
		break;
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		ret = on_connect_response(dev, peer);
		break;
	case RDMA_CM_EVENT_ESTABLISHED:
		if (peer->connecting_qp) /* iWARP: the kernel connected it */
			ret = on_established(dev, peer);
		break;
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
	case RDMA_CM_EVENT_ADDR_CHANGE:
		break;
	default:
		connect_failed(dev, peer, cm_event);
	}
	if (ret) {
		pn_debug("verbs: connecting: event %d: %s", cm_event->type,
			 strerror(-ret));
		pn_verbs_peer_down(dev, peer, -ECONNRESET);
	}
}

static void on_rx_event(struct pn_verbs_peer *peer,
			const struct cm_event *cm_event)
{
	switch (cm_event->type) {
	case RDMA_CM_EVENT_DISCONNECTED:
	case RDMA_CM_EVENT_CONNECT_ERROR:
	case RDMA_CM_EVENT_UNREACHABLE:
		destroy_id(&peer->rx_id);
		peer->rx_lost_ns = pn_clock_ns();
		break;
	default:
		break;
	}
}

static void on_cm_event(struct pn_verbs_device *dev,
			const struct cm_event *cm_event)
{
	struct pn_verbs_peer *peer = cm_event->id->context;

	pn_debug("verbs: rdma_cm: %s, status %d",
		 rdma_event_str(cm_event->type), cm_event->status);
	/* The listener, too, gets this event. The adapter is not gone before
	 * this process has closed it. */
	if (cm_event->type == RDMA_CM_EVENT_DEVICE_REMOVAL)
		pn_verbs_service_removed(dev);
	else if (cm_event->type == RDMA_CM_EVENT_CONNECT_REQUEST)
		answer_request(dev, cm_event->id, cm_event->data,
			       cm_event->len);
	else if (peer && cm_event->id == peer->tx_id)
		on_tx_event(dev, peer, cm_event);
	else if (peer && cm_event->id == peer->rx_id)
		on_rx_event(peer, cm_event);
}

void pn_verbs_cm_read_events(struct pn_verbs_device *dev)
{
	struct rdma_cm_event *event;

	while (!rdma_get_cm_event(dev->service.cm, &event)) {
		struct cm_event cm_event = { .type = event->event,
					     .status = event->status,
					     .id = event->id };

		cm_event.len = event->param.conn.private_data_len;
		if (!event->param.conn.private_data)
			cm_event.len = 0;
		if (cm_event.len > sizeof(cm_event.data))
			cm_event.len = sizeof(cm_event.data);
		if (cm_event.len)
			memcpy(cm_event.data, event->param.conn.private_data,
			       cm_event.len);
		/* Before handling: an unacknowledged event blocks
		 * rdma_destroy_id(). */
		rdma_ack_cm_event(event);
		on_cm_event(dev, &cm_event);
	}
}

/* --- listening ------------------------------------------------------------ */

int pn_verbs_listen(struct pn_verbs_device *dev)
{
	/* pn_verbs_find() has bound the listener. */
	if (rdma_listen(dev->service.listener, BACKLOG)) {
		pn_error("verbs: cannot listen on %s: %s", dev->name,
			 strerror(errno));
		return -errno;
	}
	dev->address.port = rdma_get_src_port(dev->service.listener);
	return 0;
}

void pn_verbs_listen_stop(struct pn_verbs_device *dev)
{
	destroy_id(&dev->service.listener);
	if (dev->service.cm)
		rdma_destroy_event_channel(dev->service.cm);
	dev->service.cm = NULL;
}
