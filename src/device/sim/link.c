/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * link -- connections between nodes: how they come up and go down.
 *
 * attach() sends a request that takes a latency. The other side then has a
 * link, too (PEER_UP there, once), and the reply brings PEER_UP here after
 * another latency. Each peer of a node that dies detects the death `detect`
 * later: operations posted to it by then end with -ECONNRESET, in order, and
 * PEER_DOWN follows. A link that is down stays down. Another attach() makes a
 * new link, whatever the state of the other side's end.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/log.h"
#include "device/sim/sim_impl.h"

/* --- addresses ------------------------------------------------------------ */

#define ADDRESS_VERSION 1

/* The contents of an address; copied in and out, since blobs are not aligned.
 */
struct blob {
	uint8_t version;
	char kind[7];
	uint64_t world;
	uint32_t node;
	uint32_t zero;
};

static struct blob blob_of(const struct pn_sim_node *node)
{
	return (struct blob){ .version = ADDRESS_VERSION,
			      .kind = "sim",
			      .world = node->sim->id,
			      .node = node->index };
}

void pn_sim_address(struct pn_device *device, struct pn_address *out)
{
	struct blob blob = blob_of(pn_sim_node_of(device));

	*out = (struct pn_address){ .len = sizeof(blob) };
	memcpy(out->data, &blob, sizeof(blob));
}

/* An address is valid if its node would return the same bytes. */
static int parse_address(struct pn_sim *sim, const struct pn_address *address,
			 struct pn_sim_node **out)
{
	struct blob blob = { 0 }, expected;

	if (address->len == sizeof(blob))
		memcpy(&blob, address->data, sizeof(blob));
	if (blob.node < sim->nnodes * sim->nrails) {
		expected = blob_of(&sim->nodes[blob.node]);
		if (!memcmp(&blob, &expected, sizeof(blob))) {
			*out = &sim->nodes[blob.node];
			return 0;
		}
	}
	pn_error("sim: not the address of a node of this world; get it from "
		 "pn_device_address() of a device of the same world");
	return -EINVAL;
}

/* --- the table of a node's links ------------------------------------------ */

static size_t table_slot(const struct pn_sim_node *self, unsigned other)
{
	size_t mask = self->links_capacity - 1;
	size_t i = other * UINT64_C(0x9e3779b97f4a7c15) >> 32 & mask;

	while (self->links[i] && self->links[i]->other->index != other)
		i = (i + 1) & mask;
	return i;
}

/* The newest link of self to other, or NULL. */
static struct pn_sim_link *link_find(struct pn_sim_node *self,
				     const struct pn_sim_node *other)
{
	return self->links_capacity
		       ? self->links[table_slot(self, other->index)]
		       : NULL;
}

/* Keeps the table at most half full. */
static int grow_table(struct pn_sim_node *self)
{
	size_t capacity = self->links_capacity ? 2 * self->links_capacity : 4;
	struct pn_sim_link **links = calloc(capacity, sizeof(*links));
	struct pn_list *pos;

	if (!links)
		return -ENOMEM;
	free(self->links);
	self->links = links;
	self->links_capacity = capacity;
	pn_list_for_each (pos, &self->link_list) {
		struct pn_sim_link *link =
			pn_container_of(pos, struct pn_sim_link, entry);

		links[table_slot(self, link->other->index)] = link;
	}
	return 0;
}

static void connect_fire(struct pn_sim *sim, struct pn_sim_event *event);
static void down_fire(struct pn_sim *sim, struct pn_sim_event *event);

static struct pn_sim_link *link_alloc(struct pn_sim_node *self,
				      struct pn_sim_node *other)
{
	struct pn_sim_link *link;

	if (2 * (self->nlinks + 1) > self->links_capacity && grow_table(self))
		return NULL;
	link = calloc(1, sizeof(*link));
	if (!link)
		return NULL;
	link->peer.device = &self->device;
	pn_sim_address(&other->device, &link->peer.address);
	link->self = self;
	link->other = other;
	link->connect.fire = connect_fire;
	link->down.fire = down_fire;
	pn_list_init(&link->ops);
	pn_list_init(&link->fenced);
	pn_list_init(&link->stalled);
	pn_list_init(&link->stall);
	self->links[table_slot(self, other->index)] = link;
	self->nlinks++;
	pn_list_append(&self->link_list, &link->entry);
	return link;
}

void pn_sim_links_fini(struct pn_sim_node *node)
{
	struct pn_list *entry;

	while ((entry = pn_list_pop(&node->link_list))) {
		struct pn_sim_link *link =
			pn_container_of(entry, struct pn_sim_link, entry);

		pn_sim_flush(link, 0);
		free(link);
	}
	free(node->links);
}

/* --- up ------------------------------------------------------------------- */

static void link_up(struct pn_sim_link *link)
{
	struct pn_completion up = { .kind = PN_COMPLETION_PEER_UP,
				    .peer = &link->peer };

	if (link->state != PN_SIM_CONNECTING)
		return;
	link->state = PN_SIM_UP;
	pn_sim_complete(link->self, &up);
}

static void link_down(struct pn_sim_link *link, int status)
{
	struct pn_completion down = { .kind = PN_COMPLETION_PEER_DOWN,
				      .status = status,
				      .peer = &link->peer };

	if (link->state == PN_SIM_DOWN)
		return;
	link->state = PN_SIM_DOWN;
	pn_sim_event_cancel(&link->self->sim->events, &link->connect);
	pn_sim_flush(link, -ECONNRESET);
	pn_sim_complete(link->self, &down);
}

/* The reply has arrived. */
static void answer_fire(struct pn_sim *sim, struct pn_sim_event *event)
{
	struct pn_sim_link *link =
		pn_container_of(event, struct pn_sim_link, connect);

	pn_sim_record(sim, PN_SIM_ATTACHED, link->self->index,
		      link->other->index, link->refusal);
	if (link->refusal)
		link_down(link, link->refusal);
	else
		link_up(link);
}

/* Returns the other side's end of a new link. An end that belonged to an older
 * link goes down, even if the other side has not detected that yet. NULL: no
 * memory. */
static struct pn_sim_link *remote_end(struct pn_sim_link *link)
{
	struct pn_sim_link *end = link_find(link->other, link->self);

	if (end && end->back && end->back != link)
		link_down(end, -ECONNRESET);
	if (!end || end->state == PN_SIM_DOWN)
		end = link_alloc(link->other, link->self);
	return end;
}

/* The request has reached the other side. */
static void connect_fire(struct pn_sim *sim, struct pn_sim_event *event)
{
	struct pn_sim_link *link =
		pn_container_of(event, struct pn_sim_link, connect);

	if (link->other->dead || link->other->failed || link->self->failed) {
		link->refusal = -ECONNRESET;
	} else {
		link->back = remote_end(link);
		if (!link->back)
			link->refusal = -ENOMEM;
		else
			link->back->back = link;
		if (link->back && link->back != link)
			link_up(link->back);
	}
	event->fire = answer_fire;
	pn_sim_event_add(&sim->events, event,
			 pn_sim_after(sim->now_ns, sim->latency_ns));
}

/* A request takes a latency, and on some rails more. */
static uint64_t request_ns(const struct pn_sim_node *self)
{
	const struct pn_sim *sim = self->sim;

	return sim->latency_ns +
	       (self->index < sim->nnodes ? 0 : sim->params.rail_setup_ns);
}

static int attach_locked(struct pn_sim_node *self, struct pn_sim_node *other,
			 struct pn_sim_link **out)
{
	struct pn_sim *sim = self->sim;
	struct pn_sim_link *link = link_find(self, other);

	if (!link || link->state == PN_SIM_DOWN) {
		link = link_alloc(self, other);
		if (!link)
			return -ENOMEM;
		pn_sim_event_add(&sim->events, &link->connect,
				 pn_sim_after(pn_sim_time(sim),
					      request_ns(self)));
	}
	*out = link;
	return 0;
}

int pn_sim_attach(struct pn_device *device, const struct pn_address *address,
		  struct pn_peer **out)
{
	struct pn_sim_node *self = pn_sim_node_of(device), *other;
	struct pn_sim_link *link;
	bool entered;
	int ret = parse_address(self->sim, address, &other);

	if (ret)
		return ret;
	entered = pn_sim_enter(self->sim);
	ret = self->dead ? -ENODEV : attach_locked(self, other, &link);
	if (!ret)
		*out = &link->peer;
	pn_sim_leave(self->sim, entered);
	return ret;
}

/* --- down ----------------------------------------------------------------- */

static void down_fire(struct pn_sim *sim, struct pn_sim_event *event)
{
	(void)sim;
	link_down(pn_container_of(event, struct pn_sim_link, down),
		  -ECONNRESET);
}

/* Handles one link of a dying node: its own end goes down without completions,
 * the other end detects it. */
static void break_link(struct pn_sim *sim, struct pn_sim_link *link)
{
	struct pn_sim_link *back = link->back;

	link->state = PN_SIM_DOWN;
	pn_sim_event_cancel(&sim->events, &link->connect);
	pn_sim_event_cancel(&sim->events, &link->down);
	pn_sim_flush(link, 0);
	if (back && back != link && !back->self->dead &&
	    !pn_sim_event_is_queued(&back->down))
		pn_sim_event_add(&sim->events, &back->down,
				 pn_sim_after(sim->now_ns,
					      sim->params.detect_ns));
}

bool pn_sim_link_is_broken(const struct pn_sim_link *link)
{
	return link->other->dead || link->back->state == PN_SIM_DOWN;
}

/* This end goes down now, the other end detects it after delay_ns. */
static void link_fail(struct pn_sim_link *link, uint64_t delay_ns)
{
	struct pn_sim *sim = link->self->sim;
	struct pn_sim_link *back = link->back;

	link_down(link, -ECONNRESET);
	if (back && back->state != PN_SIM_DOWN && !back->self->dead &&
	    !pn_sim_event_is_queued(&back->down))
		pn_sim_event_add(&sim->events, &back->down,
				 pn_sim_after(sim->now_ns, delay_ns));
}

void pn_sim_detach(struct pn_device *device, struct pn_peer *peer)
{
	struct pn_sim_node *self = pn_sim_node_of(device);
	struct pn_sim_link *link =
		pn_container_of(peer, struct pn_sim_link, peer);
	bool entered = pn_sim_enter(self->sim);

	if (!self->dead)
		link_fail(link, self->sim->latency_ns);
	pn_sim_leave(self->sim, entered);
}

void pn_sim_port_fail(struct pn_sim_node *port)
{
	struct pn_list *pos;

	if (port->dead || port->failed)
		return;
	port->failed = true;
	pn_sim_record(port->sim, PN_SIM_PORT_FAILED, port->index, 0, 0);
	while (pn_list_pop(&port->stalled))
		;
	pn_list_for_each (pos, &port->link_list)
		link_fail(pn_container_of(pos, struct pn_sim_link, entry),
			  port->sim->params.detect_ns);
}

void pn_sim_port_fail_fire(struct pn_sim *sim, struct pn_sim_event *event)
{
	(void)sim;
	pn_sim_port_fail(
		pn_container_of(event, struct pn_sim_node, fail_event));
}

/* The port fails by an event, not here: the caller is in the middle of an
 * operation. */
void pn_sim_port_used(struct pn_sim_node *port)
{
	struct pn_sim *sim = port->sim;

	port->noperations++;
	if (pn_unlikely(sim->script.n) &&
	    pn_script_port_fails(&sim->script, port->number,
				 port->index / sim->nnodes,
				 port->noperations) &&
	    !port->failed && !pn_sim_event_is_queued(&port->fail_event))
		pn_sim_event_add(&sim->events, &port->fail_event, sim->now_ns);
}

static void port_die(struct pn_sim_node *node)
{
	struct pn_sim *sim = node->sim;
	struct pn_list *pos;

	node->dead = true;
	pn_sim_event_cancel(&sim->events, &node->fail_event);
	pn_sim_record(sim, PN_SIM_DIED, node->index, 0, 0);
	pn_list_for_each (pos, &node->link_list) {
		break_link(sim,
			   pn_container_of(pos, struct pn_sim_link, entry));
	}
	while (pn_list_pop(&node->stalled))
		;
	pn_sim_port_clear(node);
	pn_sim_registry_fini(node);
}

void pn_sim_node_die(struct pn_sim_node *node)
{
	if (node->dead)
		return;
	for (unsigned r = 0; r < node->sim->nrails; r++)
		port_die(pn_sim_port(node, r));
}
