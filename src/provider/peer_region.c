/* SPDX-License-Identifier: BSD-2-Clause */
/* Peer regions: what the initiator knows of the regions of its peers, and the
 * operations that the device executes on them (onesided.h).
 *
 * They are in a hash table of NSETS sets by peer and key; a set has NWAYS
 * places, of which the least recently used is given to another region. So the
 * memory is bounded; a region that lost its place is asked for again. */
#include <stdlib.h>
#include <string.h>

#include "provider/onesided.h"

#define NSETS 256 /* a power of two */
#define NWAYS 4

/* Up to this length a request is faster while the target polls: both sides
 * copy, at the same time. */
#define REQUEST_MAX_BYTES ((size_t)16 << 10)

/* By requests because the device would take them out of the order that the
 * program asked for: it does not see the messages sent before. */
#define ORDERS_BEHIND_SENDS (FI_ORDER_RAS | FI_ORDER_WAS)
#define ORDERS_ONESIDED	    (~(uint64_t)FI_ORDER_SAS)

struct peer_region {
	struct pinion_peer *peer; /* NULL: free */
	uint64_t key;
	struct pinion_remote *remote; /* its exposure; NULL: not known */
	uint64_t base, len;	      /* of the region, with `remote` */
	uint64_t moved;		      /* bytes by requests since then */
	uint64_t ask_at;	      /* bytes moved */
	uint64_t last_use;
	bool asked; /* the response has not come */
};

/* A request for a key. */
struct question {
	struct pn_fi_callback callback; /* first: pinion's `user` */
	struct pn_list link;		/* regions->questions */
	struct pn_fi_ep *ep;
	struct peer_region *region; /* keeps its place meanwhile */
	struct pn_fi_region_key answer;
};

struct pn_fi_peer_regions {
	struct peer_region sets[NSETS][NWAYS];
	uint64_t uses;
	struct pn_list questions;
};

/* --- the table ------------------------------------------------------------ */

/* Orders of one-sided operations are promised up to PN_FI_PAYLOAD_BYTES. */
static size_t device_min(const struct pn_fi_ep *ep, uint64_t order)
{
	if (ep->rma == PN_FI_RMA_REQUEST || ep->several_devices ||
	    order & ORDERS_BEHIND_SENDS)
		return SIZE_MAX;
	if (ep->rma == PN_FI_RMA_AUTO)
		return REQUEST_MAX_BYTES + 1;
	return order & ORDERS_ONESIDED ? PN_FI_PAYLOAD_BYTES + 1 : 1;
}

void pn_fi_peer_regions_init(struct pn_fi_ep *ep, const struct fi_info *info)
{
	ep->rma_min =
		device_min(ep, info->tx_attr ? info->tx_attr->msg_order : 0);
}

void pn_fi_peer_regions_free(struct pn_fi_ep *ep)
{
	struct pn_fi_peer_regions *regions = ep->peer_regions;
	struct pn_list *link;

	while (regions && (link = pn_list_pop(&regions->questions)))
		free(pn_container_of(link, struct question, link));
	free(regions);
}

/* The exposure's key is not used any more; operations in flight go on. */
static void forget_key(const struct pn_fi_ep *ep, struct peer_region *region)
{
	pinion_remote_close(region->remote);
	region->remote = NULL;
	region->moved = 0;
	/* The second operation asks. */
	region->ask_at = ep->rma == PN_FI_RMA_DEVICE ? 0 : 1;
}

static struct peer_region *set_of(struct pn_fi_peer_regions *regions,
				  const struct pinion_peer *peer, uint64_t key)
{
	uint64_t hash = ((uintptr_t)peer / PN_CACHELINE + key) *
			UINT64_C(0x9e3779b97f4a7c15);

	return regions->sets[hash >> 32 & (NSETS - 1)];
}

static struct peer_region *find(struct pn_fi_peer_regions *regions,
				const struct pinion_peer *peer, uint64_t key)
{
	struct peer_region *set = set_of(regions, peer, key);

	for (unsigned i = 0; i < NWAYS; i++)
		if (set[i].peer == peer && set[i].key == key)
			return &set[i];
	return NULL;
}

/* Gives the least recently used place of the set to another region. NULL: all
 * wait for a response. */
static struct peer_region *replace(const struct pn_fi_ep *ep,
				   struct pinion_peer *peer, uint64_t key)
{
	struct peer_region *set = set_of(ep->peer_regions, peer, key),
			   *oldest = NULL;

	for (unsigned i = 0; i < NWAYS; i++)
		if (!set[i].asked &&
		    (!oldest || set[i].last_use < oldest->last_use))
			oldest = &set[i];
	if (!oldest)
		return NULL;
	forget_key(ep, oldest);
	oldest->peer = peer;
	oldest->key = key;
	return oldest;
}

static struct peer_region *find_or_add(struct pn_fi_ep *ep,
				       struct pinion_peer *peer, uint64_t key)
{
	struct pn_fi_peer_regions *regions = ep->peer_regions;
	struct peer_region *region;

	if (!regions) {
		regions = calloc(1, sizeof(*regions));
		if (!regions)
			return NULL;
		pn_list_init(&regions->questions);
		ep->peer_regions = regions;
	}
	region = find(regions, peer, key);
	if (!region)
		region = replace(ep, peer, key);
	if (region)
		region->last_use = ++regions->uses;
	return region;
}

/* --- asking for the key --------------------------------------------------- */

/* Without a key the next question waits until twice as many bytes have moved:
 * their number is logarithmic. */
static void set_answer(struct question *question,
		       const struct pinion_completion *c)
{
	const struct pn_fi_region_key *answer = &question->answer;
	struct peer_region *region = question->region;

	region->asked = false;
	if (!c->status && c->flags & PINION_COMPLETION_DATA && !c->data &&
	    pn_fi_region_key_valid(answer, c->len) &&
	    !pinion_remote_open(question->ep->endpoint, region->peer,
				&answer->exposure, &region->remote)) {
		region->base = answer->base;
		region->len = answer->len;
	} else {
		region->ask_at = 2 * region->moved;
	}
}

static void answered(struct pn_fi_callback *callback,
		     const struct pinion_completion *c)
{
	struct question *question =
		pn_container_of(callback, struct question, callback);

	set_answer(question, c);
	pn_list_remove(&question->link);
	free(question);
}

static int send_question(struct question *question)
{
	struct peer_region *region = question->region;
	struct pn_fi_rma_args args = { .kind = PN_FI_EXPOSE,
				       .key = region->key,
				       .data = region->moved };
	struct pinion_message m = { .size = sizeof(m),
				    .buf = &question->answer,
				    .len = sizeof(question->answer),
				    .peer = region->peer,
				    .user = &question->callback,
				    .space = PN_FI_SPACE_RMA_RESPONSE };
	int ret = pn_fi_rma_ask(question->ep, &args, region->peer, &m.tag);

	return ret ? ret : pinion_recv(question->ep->endpoint, &m, NULL);
}

static void ask(struct pn_fi_ep *ep, struct peer_region *region)
{
	struct question *question = malloc(sizeof(*question));

	if (!question)
		return;
	question->callback.completed = answered;
	question->ep = ep;
	question->region = region;
	if (send_question(question)) {
		free(question);
		return;
	}
	region->asked = true;
	pn_list_init(&question->link);
	pn_list_append(&ep->peer_regions->questions, &question->link);
}

/* An operation is going to be sent as a request. */
static void count_request(struct pn_fi_ep *ep, struct peer_region *region,
			  size_t len)
{
	if (!region->remote && !region->asked &&
	    region->moved >= region->ask_at)
		ask(ep, region);
	region->moved += len;
}

/* --- operations ----------------------------------------------------------- */

/* After any error the request says what is wrong. */
static void device_ended(struct pn_fi_callback *callback,
			 const struct pinion_completion *c)
{
	struct pn_fi_op *op =
		pn_container_of(callback, struct pn_fi_op, callback);
	struct peer_region *region;

	if (!c->status) {
		pn_fi_rma_ended(op);
		return;
	}
	region = find(op->ep->peer_regions, op->peer, op->remote_key);
	if (region && region->remote)
		forget_key(op->ep, region);
	pn_fi_rma_repeat(op);
}

static bool is_inside(const struct peer_region *region,
		      const struct pn_fi_rma_args *args)
{
	uint64_t offset = args->addr - region->base;

	return args->addr >= region->base && offset <= region->len &&
	       args->len <= region->len - offset;
}

static int post(struct pn_fi_op *op, const struct pn_fi_rma_args *args,
		const struct peer_region *region)
{
	bool writes = args->kind == PN_FI_WRITE;
	struct pinion_move move = {
		.size = sizeof(move),
		.remote = region->remote,
		.offset = args->addr - region->base,
		.buf = writes ? (void *)(uintptr_t)args->buf : args->result,
		.len = args->len,
		.user = &op->callback,
	};
	struct pinion_endpoint *endpoint = op->ep->endpoint;
	int ret = writes ? pinion_put(endpoint, &move, NULL)
			 : pinion_get(endpoint, &move, NULL);

	if (ret)
		return ret;
	op->callback.completed = device_ended;
	op->pending = 1;
	op->peer = region->peer;
	op->buf = move.buf;
	op->len = move.len;
	op->remote_addr = args->addr;
	op->remote_key = args->key;
	return 0;
}

/* What the device cannot do: atomics, CQ data at the target, lists, and buffers
 * that are free when the call returns. */
static bool is_simple(const struct pn_fi_rma_args *args)
{
	return (args->kind == PN_FI_WRITE || args->kind == PN_FI_READ) &&
	       !args->no_target && !args->ntargets && !args->buf_list.count &&
	       !args->result_list.count &&
	       !(args->flags & (FI_REMOTE_CQ_DATA | FI_INJECT));
}

bool pn_fi_device_post(struct pn_fi_op *op, const struct pn_fi_rma_args *args,
		       struct pinion_peer *peer)
{
	struct peer_region *region =
		is_simple(args) ? find_or_add(op->ep, peer, args->key) : NULL;

	if (!region)
		return false;
	if (region->remote && is_inside(region, args)) {
		if (!post(op, args, region))
			return true;
		forget_key(op->ep, region);
	}
	count_request(op->ep, region, args->len);
	return false;
}
