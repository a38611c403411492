/* SPDX-License-Identifier: BSD-2-Clause */
/* Peers: attaching, hellos (wire.h) and the end. */
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/fabric/fabric_impl.h"

/* How long a teardown waits for reads that the provider has begun. */
#define DRAIN_NS PN_NS_PER_S

/* A refused hello leaves a peer, which the refusal goes to: later ones get no
 * answer. */
#define MAX_REFUSALS 256

/* --- peers ---------------------------------------------------------------- */

static void free_peer(struct pn_fabric_peer *peer)
{
	pn_fabric_unwatch_process(peer);
	free(peer->tx.records);
	free(peer);
}

static int add_number(struct pn_fabric_device *dev, struct pn_fabric_peer *peer)
{
	unsigned n = dev->npeers;

	/* The array grows when its length is a power of two. */
	if (!(n & (n - 1))) {
		void *more =
			realloc(dev->by_number, (n ? 2 * n : 1) * sizeof(peer));

		if (!more)
			return -ENOMEM;
		dev->by_number = more;
	}
	dev->by_number[n] = peer;
	peer->number = n;
	dev->npeers++;
	return 0;
}

static void init_peer(struct pn_fabric_device *dev, struct pn_fabric_peer *peer,
		      const struct pn_fabric_address *at)
{
	peer->peer.device = &dev->device;
	peer->at = *at;
	pn_fabric_address_put(at, &peer->peer.address);
	/* Never 0, and different from that of the peer's earlier connections.
	 */
	peer->tag =
		(uint32_t)(dev->address.nonce >> 7) * 2 + 1 + 2 * dev->npeers;
	peer->pidfd = -1;
	peer->rx.granted = peer->rx.announced = (uint32_t)dev->params.window;
	pn_list_init(&peer->teardown);
	pn_list_init(&peer->backlog);
	pn_list_init(&peer->backlogged);
	pn_list_init(&peer->rx.queue);
	pn_list_init(&peer->rx.grants);
	pn_list_init(&peer->rx.ack_due);
}

static int add_peer(struct pn_fabric_device *dev,
		    const struct pn_fabric_address *at,
		    struct pn_fabric_peer **out)
{
	struct pn_fabric_peer *peer = calloc(1, sizeof(*peer));
	int ret = -ENOMEM;

	if (!peer)
		return ret;
	init_peer(dev, peer, at);
	if (fi_av_insert(dev->av, at->raw, 1, &peer->addr, 0, NULL) != 1) {
		ret = -EHOSTUNREACH;
		goto free_peer;
	}
	ret = pn_fabric_receives_add(dev, (unsigned)dev->params.window);
	if (ret)
		goto free_peer;
	ret = add_number(dev, peer);
	if (ret)
		goto remove_receives;
	pn_list_append(&dev->peers, &peer->link);
	*out = peer;
	return 0;

remove_receives:
	pn_fabric_receives_remove(dev, (unsigned)dev->params.window);
free_peer:
	free_peer(peer);
	return ret;
}

/* A peer that operations may be posted to. */
static int add_live_peer(struct pn_fabric_device *dev,
			 const struct pn_fabric_address *at,
			 struct pn_fabric_peer **out)
{
	struct pn_fabric_record *records =
		calloc(dev->depth_mask + 1, sizeof(*records));
	int ret = records ? add_peer(dev, at, out) : -ENOMEM;

	if (ret)
		free(records);
	else
		(*out)->tx.records = records;
	return ret;
}

static struct pn_fabric_peer *find_live(struct pn_fabric_device *dev,
					uint64_t nonce)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &dev->peers) {
		struct pn_fabric_peer *peer =
			pn_container_of(pos, struct pn_fabric_peer, link);

		if (peer->at.nonce == nonce && !peer->down)
			return peer;
	}
	return NULL;
}

/* --- attaching ------------------------------------------------------------ */

/* Providers read an address as far as its format says, not as far as it came
 * from the peer. */
static bool is_whole(const struct pn_fabric_address *at)
{
	sa_family_t family = AF_UNSPEC;

	switch (at->format) {
	case FI_ADDR_STR:
		return memchr(at->raw, 0, at->len);
	case FI_SOCKADDR:
	case FI_SOCKADDR_IN:
	case FI_SOCKADDR_IN6:
		if (at->len >= sizeof(family))
			memcpy(&family, at->raw, sizeof(family));
		return (family == AF_INET &&
			at->len >= sizeof(struct sockaddr_in)) ||
		       (family == AF_INET6 &&
			at->len >= sizeof(struct sockaddr_in6));
	default:
		return true;
	}
}

static int check_reach(const struct pn_fabric_device *dev,
		       const struct pn_fabric_address *at)
{
	if (!is_whole(at))
		return -EHOSTUNREACH;
	if (at->provider == dev->address.provider &&
	    at->format == dev->address.format)
		return 0;
	pn_debug("fabric: %s (address format %u) cannot reach an address of "
		 "format %u%s",
		 dev->info->fabric_attr->prov_name, dev->address.format,
		 at->format,
		 at->provider == dev->address.provider
			 ? ""
			 : " of another provider");
	return -EHOSTUNREACH;
}

static int parse_address(const struct pn_address *address,
			 struct pn_fabric_address *out)
{
	int ret = pn_fabric_address_check(address, out);

	if (ret && !memcmp(out->kind, "fabr", 4) &&
	    out->version != PN_FABRIC_VERSION)
		pn_error("fabric: the address of a peer has version %u, this "
			 "is version %u: use the same pinion on all hosts",
			 out->version, PN_FABRIC_VERSION);
	return ret;
}

int pn_fabric_attach(struct pn_device *device, const struct pn_address *address,
		     struct pn_peer **out)
{
	struct pn_fabric_device *dev = pn_fabric_of(device);
	struct pn_fabric_address at;
	struct pn_fabric_peer *peer;
	int ret = parse_address(address, &at);

	if (!ret)
		ret = check_reach(dev, &at);
	if (ret)
		return ret;
	pn_fabric_lock(dev);
	dev->activity++;
	peer = find_live(dev, at.nonce);
	if (!peer) {
		ret = add_live_peer(dev, &at, &peer);
		if (!ret)
			pn_fabric_send_hello(dev, peer, PN_FABRIC_HELLO);
	}
	pn_fabric_unlock(dev);
	if (!ret)
		*out = &peer->peer;
	return ret;
}

void pn_fabric_detach(struct pn_device *device, struct pn_peer *peer)
{
	struct pn_fabric_device *dev = pn_fabric_of(device);
	struct pn_fabric_peer *p = pn_fabric_peer_of(peer);

	pn_fabric_lock(dev);
	dev->activity++;
	if (!p->down)
		pn_fabric_send_hello(dev, p, PN_FABRIC_BYE);
	pn_fabric_peer_down(dev, p, -ECONNRESET);
	pn_fabric_unlock(dev);
	/* A thread that sleeps makes progress and reports PEER_DOWN. */
	pn_fabric_wake(device);
}

/* --- hellos --------------------------------------------------------------- */

static void fill_hello(const struct pn_fabric_device *dev,
		       const struct pn_fabric_peer *peer,
		       struct pn_fabric_hello *hello)
{
	*hello = (struct pn_fabric_hello){
		.header = { .to = peer->number, .tag = peer->tag },
		.magic = PN_FABRIC_MAGIC,
		.version = PN_FABRIC_VERSION,
		.to_nonce = peer->at.nonce,
		.echo = peer->to_tag,
		.window = peer->rx.granted,
		.host = dev->host,
		.pid = (uint32_t)getpid(),
		.from = dev->address,
	};
}

void pn_fabric_send_hello(struct pn_fabric_device *dev,
			  struct pn_fabric_peer *peer, enum pn_fabric_kind kind)
{
	struct pn_fabric_packet *packet = pn_fabric_packet_get(dev);

	if (!packet) {
		pn_fabric_peer_down(dev, peer, -ENOMEM);
		return;
	}
	fill_hello(dev, peer, &packet->wire.hello);
	packet->wire.header.kind = (uint8_t)kind;
	packet->len = sizeof(packet->wire.hello);
	peer->echoed = peer->to_tag;
	peer->bye_sent |= kind == PN_FABRIC_BYE;
	pn_fabric_send_raw(dev, peer, packet);
}

/* Answers a hello that came to the wrong device, or from another version. The
 * answer goes to a peer that exists for this purpose alone, and is never
 * reported. */
static void refuse_hello(struct pn_fabric_device *dev,
			 const struct pn_fabric_hello *hello, int error)
{
	struct pn_fabric_packet *packet;
	struct pn_fabric_peer *peer;

	if (error == -EPROTO || error == -EINVAL ||
	    dev->nrefusals == MAX_REFUSALS || check_reach(dev, &hello->from) ||
	    add_peer(dev, &hello->from, &peer))
		return;
	dev->nrefusals++;
	peer->down = error;
	peer->down_reported = true;
	/* A first packet may wait for the provider to connect: scan_peers()
	 * does not drop it yet. */
	peer->teardown_ns = pn_clock_ns();
	pn_fabric_receives_remove(dev, (unsigned)dev->params.window);
	packet = pn_fabric_packet_get(dev);
	if (!packet)
		return;
	fill_hello(dev, peer, &packet->wire.hello);
	packet->wire.header.kind = PN_FABRIC_REFUSE;
	packet->wire.header.imm = (uint32_t)-error;
	packet->wire.hello.echo = hello->header.tag;
	packet->len = sizeof(packet->wire.hello);
	pn_fabric_send_raw(dev, peer, packet);
}

static void connected(struct pn_fabric_device *dev, struct pn_fabric_peer *peer,
		      const struct pn_fabric_hello *hello)
{
	peer->heard = true;
	if (peer->to_tag != hello->header.tag) {
		peer->to = hello->header.to;
		peer->to_tag = hello->header.tag;
		peer->tx.granted = hello->window;
		peer->echoed = false;
	}
	if (!peer->echoed)
		pn_fabric_send_hello(dev, peer, PN_FABRIC_HELLO);
	if (hello->echo != peer->tag || peer->up_reported || peer->down)
		return;
	peer->up_reported = true;
	if (hello->host == dev->host)
		pn_fabric_watch_process(dev, peer, hello->pid);
	pn_fabric_complete_peer(dev, peer, PN_COMPLETION_PEER_UP, 0);
}

static struct pn_fabric_peer *find_tag(struct pn_fabric_device *dev,
				       const struct pn_fabric_hello *hello)
{
	struct pn_fabric_peer *peer = find_live(dev, hello->from.nonce);

	return peer && peer->tag == hello->echo ? peer : NULL;
}

/* A hello that repeats no tag begins a connection. A peer that was connected
 * before has lost the old connection. */
static void on_first_hello(struct pn_fabric_device *dev,
			   const struct pn_fabric_hello *hello)
{
	struct pn_fabric_peer *peer = find_live(dev, hello->from.nonce);

	if (peer && peer->up_reported && peer->to_tag != hello->header.tag) {
		pn_fabric_peer_down(dev, peer, -ECONNRESET);
		peer = NULL;
	}
	if (!peer && (check_reach(dev, &hello->from) ||
		      add_live_peer(dev, &hello->from, &peer)))
		return;
	connected(dev, peer, hello);
}

/* The sender has ended its connection; `tag` is the sender's. The answer is a
 * BYE, our last packet. */
static void on_bye(struct pn_fabric_device *dev,
		   const struct pn_fabric_hello *hello)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &dev->peers) {
		struct pn_fabric_peer *peer =
			pn_container_of(pos, struct pn_fabric_peer, link);

		if (peer->at.nonce != hello->from.nonce ||
		    (peer->to_tag != hello->header.tag &&
		     (!hello->echo || hello->echo != peer->tag)))
			continue;
		peer->bye_received = true;
		if (!peer->bye_sent)
			pn_fabric_send_hello(dev, peer, PN_FABRIC_BYE);
		if (peer->down_reported)
			pn_fabric_unwatch_process(peer);
		pn_fabric_peer_down(dev, peer, -ECONNRESET);
		return;
	}
}

static void on_refuse(struct pn_fabric_device *dev,
		      const struct pn_fabric_hello *hello)
{
	struct pn_list *pos;

	/* The refusing device may have another nonce than the one we wanted. */
	pn_list_for_each (pos, &dev->peers) {
		struct pn_fabric_peer *peer =
			pn_container_of(pos, struct pn_fabric_peer, link);

		if (peer->tag == hello->echo && !peer->up_reported &&
		    !peer->down)
			pn_fabric_peer_down(dev, peer,
					    pn_device_connection_error(
						    -(int)hello->header.imm));
	}
}

void pn_fabric_on_hello(struct pn_fabric_device *dev,
			const struct pn_fabric_packet *packet)
{
	struct pn_fabric_hello hello;
	int ret = pn_fabric_hello_check(&packet->wire, packet->len,
					dev->address.nonce, &hello);
	struct pn_fabric_peer *peer;

	if (ret) {
		pn_info("fabric: a hello is refused: %s", strerror(-ret));
		if (packet->wire.header.kind == PN_FABRIC_HELLO &&
		    pn_fabric_hello_has_sender(&hello, packet->len))
			refuse_hello(dev, &hello, ret);
		return;
	}
	switch (hello.header.kind) {
	case PN_FABRIC_REFUSE:
		on_refuse(dev, &hello);
		return;
	case PN_FABRIC_BYE:
		on_bye(dev, &hello);
		return;
	default:
		break;
	}
	if (!hello.echo) {
		on_first_hello(dev, &hello);
		return;
	}
	peer = find_tag(dev, &hello);
	if (peer)
		connected(dev, peer, &hello);
}

/* --- the end -------------------------------------------------------------- */

void pn_fabric_peer_down(struct pn_fabric_device *dev,
			 struct pn_fabric_peer *peer, int status)
{
	if (peer->down)
		return;
	peer->down = status;
	peer->teardown_ns = pn_clock_ns();
	pn_list_append(&dev->teardowns, &peer->teardown);
}

/* What the error means says the provider for an attempt to connect alone. */
void pn_fabric_peer_failed(struct pn_fabric_device *dev,
			   struct pn_fabric_peer *peer, int error)
{
	pn_fabric_peer_down(dev, peer,
			    peer->up_reported
				    ? -ECONNRESET
				    : pn_device_connection_error(error));
}

/* Packets that were not sent: a BYE must still go. */
static bool drained(const struct pn_fabric_peer *peer)
{
	return !peer->rx.fetches ||
	       pn_clock_ns() > peer->teardown_ns + DRAIN_NS;
}

static void finish_teardown(struct pn_fabric_device *dev,
			    struct pn_fabric_peer *peer)
{
	pn_list_remove(&peer->teardown);
	pn_list_remove(&peer->rx.ack_due);
	pn_fabric_fetches_abandon(dev, peer);
	pn_fabric_requests_drop(dev, peer);
	pn_fabric_retire_all(dev, peer, peer->down);
	free(peer->tx.records);
	peer->tx.records = NULL;
	if (!pn_fabric_awaits_bye(peer))
		pn_fabric_unwatch_process(peer);
	pn_fabric_receives_remove(dev, (unsigned)dev->params.window);
	dev->post_room |= peer->tx.post_refused;
	peer->down_reported = true;
	pn_fabric_complete_peer(dev, peer, PN_COMPLETION_PEER_DOWN, peer->down);
}

void pn_fabric_finish_teardowns(struct pn_fabric_device *dev)
{
	struct pn_list *pos, *tmp;

	pn_list_for_each_safe (pos, tmp, &dev->teardowns) {
		struct pn_fabric_peer *peer =
			pn_container_of(pos, struct pn_fabric_peer, teardown);

		if (drained(peer))
			finish_teardown(dev, peer);
	}
}

void pn_fabric_peers_free(struct pn_fabric_device *dev)
{
	struct pn_list *pos;

	while ((pos = pn_list_pop(&dev->fetches)))
		free(pn_container_of(pos, struct pn_fabric_fetch, link));
	while ((pos = pn_list_pop(&dev->peers))) {
		struct pn_fabric_peer *peer =
			pn_container_of(pos, struct pn_fabric_peer, link);

		pn_fabric_requests_drop(dev, peer);
		free_peer(peer);
	}
	free(dev->by_number);
}
