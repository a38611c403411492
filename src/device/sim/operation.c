/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * operation -- sends, writes, reads and atomics, from post() to completion.
 *
 * The wire of a node has two directions. Each carries one message at a time,
 * for bytes/bandwidth. A message leaves when the sender's outgoing direction is
 * free. Its head arrives a latency later and waits for the target's incoming
 * direction. The message has arrived when its tail has: alone on the wire,
 * after latency + bytes/bandwidth (cut-through). The switch between the nodes
 * is ideal: it loses nothing and never fills up.
 *
 *   post ---> depart ---> head ---> tail: execute ---> acknowledge
 *               |                     |       read and atomics:
 *             held by               stalled   answer_head ---> answer_tail
 *             a fence               (inbox)
 *
 * Keys are checked and bytes move when the tail arrives; a read's remote key is
 * checked when its request arrives and again with the bytes. Nothing overtakes
 * on a link: a later head is never earlier, and everything on a link waits
 * behind a message that waits for room in the inbox. Completions are returned
 * in the order of posting, whichever came back first.
 */
#include <errno.h>
#include <stdlib.h>

#include "device/sim/sim_impl.h"
#include "device/validate.h"

struct operation {
	struct pn_sim_event event; /* the next stage */
	struct pn_list entry;	   /* in link->ops */
	struct pn_list queue;	   /* in link->fenced or link->stalled */
	struct pn_sim_link *link;
	struct pn_op op; /* op.sge points to `segments` */
	size_t bytes;	 /* of all segments */
	uint64_t delay_ns;
	uint64_t old; /* atomics: the old value */
	int status;
	bool done;
	struct pn_sge segments[]; /* or, with INLINE, the bytes themselves */
};

static bool is_answered(const struct pn_op *op)
{
	return op->kind == PN_OP_READ || pn_op_is_atomic(op);
}

static struct pn_sim *sim_of(const struct operation *o)
{
	return o->link->self->sim;
}

static void free_operation(struct operation *o)
{
	struct pn_sim_link *link = o->link;

	pn_sim_event_cancel(&sim_of(o)->events, &o->event);
	pn_list_remove(&o->queue);
	pn_list_remove(&o->entry);
	link->nops--;
	free(o);
	/* A silent operation brings no completion, but its end makes room in
	 * the queue. */
	if (link->queue_was_full)
		pn_sim_wake(link->self);
	link->queue_was_full = false;
}

/* Schedules the next stage. */
static void schedule(struct operation *o, uint64_t time_ns,
		     void (*fire)(struct pn_sim *sim,
				  struct pn_sim_event *event))
{
	o->event.fire = fire;
	pn_sim_event_add(&sim_of(o)->events, &o->event, time_ns);
}

/* --- moving bytes --------------------------------------------------------- */

static void found(struct pn_interval *interval, void *arg)
{
	(void)interval;
	*(bool *)arg = true;
}

/* Whether there is no memory behind the addresses (pn_sim_reserve()). */
static bool is_reserved(struct pn_sim *sim, uint64_t addr, size_t len)
{
	bool reserved = false;

	if (sim->reservations)
		pn_interval_visit(sim->reservations,
				  (struct pn_range){ (uintptr_t)addr, len },
				  found, &reserved);
	return reserved;
}

static void gather(struct pn_sim *sim, const struct pn_sge *sge, unsigned nsge,
		   void *to)
{
	char *at = to;

	for (unsigned i = 0; i < nsge; at += sge[i++].len) {
		if (!sge[i].len)
			continue;
		if (is_reserved(sim, (uintptr_t)sge[i].addr, sge[i].len))
			memset(at, 0, sge[i].len);
		else
			memmove(at, sge[i].addr, sge[i].len);
	}
}

static void scatter(const struct pn_sge *sge, unsigned nsge, const void *from)
{
	const char *at = from;

	for (unsigned i = 0; i < nsge; at += sge[i++].len)
		if (sge[i].len)
			memmove(sge[i].addr, at, sge[i].len);
}

static int check_segments(const struct operation *o, unsigned access)
{
	int ret = 0;

	if (o->op.flags & PN_OP_INLINE)
		return 0;
	for (unsigned i = 0; i < o->op.nsge && !ret; i++)
		ret = pn_sim_check_lkey(o->link->self, &o->op.sge[i], access);
	return ret;
}

static int check_remote(const struct operation *o, unsigned access)
{
	return pn_sim_check_rkey(o->link->other, o->op.rkey, o->op.remote_addr,
				 o->bytes, access);
}

static bool moves_bytes(const struct operation *o)
{
	return o->bytes && sim_of(o)->params.data == PN_SIM_DATA_REAL;
}

static void copy_bytes(const struct operation *o, void *to)
{
	if (!o->bytes)
		return;
	if (o->op.flags & PN_OP_INLINE)
		memcpy(to, o->segments, o->bytes);
	else
		gather(sim_of(o), o->op.sge, o->op.nsge, to);
}

/* --- replies and completions ---------------------------------------------- */

static void depart(struct operation *o, uint64_t time_ns);

static void post_completion(struct operation *o, int status)
{
	struct pn_completion completion = { .kind = PN_COMPLETION_OP,
					    .status = status,
					    .peer = &o->link->peer,
					    .user = o->op.user,
					    .len = o->bytes };

	if (status || !(o->op.flags & PN_OP_SILENT))
		pn_sim_complete(o->link->self, &completion);
}

static struct operation *first_of(struct pn_list *list, size_t offset_of_entry)
{
	return pn_list_empty(list) ? NULL
				   : (struct operation *)((char *)list->next -
							  offset_of_entry);
}

/* Completions are returned in the order of posting. */
static void retire(struct pn_sim_link *link)
{
	struct operation *o;

	while ((o = first_of(&link->ops, offsetof(struct operation, entry))) &&
	       o->done) {
		post_completion(o, o->status);
		free_operation(o);
	}
}

/* Operations held by a fence depart as far as they may. */
static void resume_fenced(struct pn_sim_link *link)
{
	struct operation *o;

	while ((o = first_of(&link->fenced,
			     offsetof(struct operation, queue))) &&
	       !((o->op.flags & PN_OP_FENCE) && link->nreads)) {
		pn_list_remove(&o->queue);
		depart(o, link->self->sim->now_ns);
	}
}

static void finish(struct operation *o, int status)
{
	struct pn_sim_link *link = o->link;

	o->done = true;
	o->status = status;
	if (is_answered(&o->op))
		link->nreads--;
	retire(link);
	resume_fenced(link);
}

static void acknowledge_fire(struct pn_sim *sim, struct pn_sim_event *event)
{
	struct operation *o = pn_container_of(event, struct operation, event);

	/* A reply that a node sent before it died still arrives; of a port that
	 * failed none does. */
	if (!o->link->other->dead && pn_sim_link_is_broken(o->link))
		return;
	pn_sim_record(sim, PN_SIM_ANSWERED, o->link->self->index, o->op.rkey,
		      o->status);
	finish(o, o->status);
}

static void acknowledge(struct operation *o, int status)
{
	struct pn_sim *sim = sim_of(o);

	o->status = status;
	schedule(o, pn_sim_after(sim->now_ns, sim->latency_ns),
		 acknowledge_fire);
}

/* Reserves the wire from time_ns on; returns when the message's first byte is
 * on it. */
static uint64_t occupy(uint64_t *free_ns, uint64_t time_ns, uint64_t wire_ns)
{
	uint64_t start_ns = time_ns > *free_ns ? time_ns : *free_ns;

	*free_ns = pn_sim_after(start_ns, wire_ns);
	return start_ns;
}

/* A message of wire_ns begins on `from` at time_ns or later. Returns when its
 * head is at the other end. */
static uint64_t head_ns(struct pn_sim_node *from, uint64_t time_ns,
			uint64_t wire_ns)
{
	struct pn_sim *sim = from->sim;
	uint64_t ns = occupy(&from->egress_free_ns, time_ns, wire_ns);

	ns = pn_sim_after(ns, sim->latency_ns);
	if (sim->params.jitter)
		ns += (sim->latency_ns + wire_ns) *
		      (pn_sim_random(sim) % (sim->params.jitter + 1)) / 1000;
	return ns;
}

/* The head has arrived: the tail follows when the incoming wire has carried the
 * message. */
static void arrive(struct operation *o, struct pn_sim_node *at,
		   uint64_t wire_ns,
		   void (*fire)(struct pn_sim *sim, struct pn_sim_event *event))
{
	uint64_t now_ns = sim_of(o)->now_ns;
	uint64_t start_ns = occupy(&at->ingress_free_ns, now_ns, wire_ns);

	pn_sim_record(sim_of(o), PN_SIM_HEAD, at->index, o->op.rkey,
		      (int64_t)wire_ns);
	schedule(o, pn_sim_after(start_ns, wire_ns), fire);
}

/* Delivers the bytes of a read, or the old value of an atomic. */
static int deliver_answer(struct operation *o)
{
	int ret = check_segments(o, PINION_ACCESS_LOCAL_WRITE);

	if (ret)
		return ret;
	if (pn_op_is_atomic(&o->op)) {
		if (!is_reserved(sim_of(o), (uintptr_t)o->op.sge->addr, 8))
			memcpy(o->op.sge->addr, &o->old, 8);
		return 0;
	}
	ret = check_remote(o, PINION_ACCESS_REMOTE_READ);
	if (!ret && moves_bytes(o))
		scatter(o->op.sge, o->op.nsge,
			(const void *)(uintptr_t)o->op.remote_addr);
	return ret;
}

static void answer_tail_fire(struct pn_sim *sim, struct pn_sim_event *event)
{
	struct operation *o = pn_container_of(event, struct operation, event);

	if (pn_sim_link_is_broken(o->link))
		return;
	o->status = deliver_answer(o);
	pn_sim_record(sim, PN_SIM_ANSWERED, o->link->self->index, o->op.rkey,
		      o->status ? o->status : (int64_t)o->bytes);
	finish(o, o->status);
}

static void answer_head_fire(struct pn_sim *sim, struct pn_sim_event *event)
{
	struct operation *o = pn_container_of(event, struct operation, event);

	(void)sim;
	arrive(o, o->link->self,
	       pn_sim_wire_ns(o->link->self, o->link->other, o->bytes),
	       answer_tail_fire);
}

static void answer(struct operation *o)
{
	struct pn_sim *sim = sim_of(o);
	uint64_t wire_ns =
		pn_sim_wire_ns(o->link->self, o->link->other, o->bytes);

	schedule(o, head_ns(o->link->other, sim->now_ns, wire_ns),
		 answer_head_fire);
}

/* --- at the target -------------------------------------------------------- */

static struct pn_peer *peer_at_target(const struct operation *o)
{
	return &o->link->back->peer;
}

/* False: the inbox is full. */
static bool execute_send(struct operation *o)
{
	int ret = check_segments(o, 0);
	struct pn_completion recv = { .kind = PN_COMPLETION_RECV,
				      .len = o->bytes,
				      .imm = o->op.imm };
	void *data;

	if (!ret) {
		data = pn_sim_inbox_alloc(o->link->other, o->bytes,
					  &recv.lease);
		if (!data)
			return false;
		copy_bytes(o, data);
		recv.peer = peer_at_target(o);
		recv.data = data;
		pn_sim_complete(o->link->other, &recv);
	}
	acknowledge(o, ret);
	return true;
}

static void execute_write(struct operation *o)
{
	struct pn_completion imm = { .kind = PN_COMPLETION_IMM,
				     .len = o->bytes,
				     .imm = o->op.imm };
	int ret = check_segments(o, 0);

	if (!ret)
		ret = check_remote(o, PINION_ACCESS_REMOTE_WRITE);
	if (!ret && moves_bytes(o))
		copy_bytes(o, (void *)(uintptr_t)o->op.remote_addr);
	if (!ret && (o->op.flags & PN_OP_IMM)) {
		imm.peer = peer_at_target(o);
		pn_sim_complete(o->link->other, &imm);
	}
	acknowledge(o, ret);
}

static void execute_read(struct operation *o)
{
	int ret = check_remote(o, PINION_ACCESS_REMOTE_READ);

	if (ret)
		acknowledge(o, ret);
	else
		answer(o);
}

static void execute_atomic(struct operation *o)
{
	int ret = check_remote(o, PINION_ACCESS_REMOTE_ATOMIC);
	void *at = (void *)(uintptr_t)o->op.remote_addr;
	uint64_t result;

	if (ret) {
		acknowledge(o, ret);
		return;
	}
	if (!is_reserved(sim_of(o), o->op.remote_addr, 8)) {
		memcpy(&o->old, at, 8);
		result = pn_op_atomic_result(&o->op, o->old);
		memcpy(at, &result, 8);
	}
	answer(o);
}

/* False: the operation has to wait for room. */
static bool execute_kind(struct operation *o)
{
	if (o->op.kind == PN_OP_SEND)
		return execute_send(o);
	if (o->op.kind == PN_OP_WRITE)
		execute_write(o);
	else if (o->op.kind == PN_OP_READ)
		execute_read(o);
	else
		execute_atomic(o);
	return true;
}

static bool execute(struct operation *o)
{
	struct pn_sim_node *at = o->link->other;

	if (!execute_kind(o))
		return false;
	pn_sim_port_used(at);
	return true;
}

static void tail_fire(struct pn_sim *sim, struct pn_sim_event *event)
{
	struct operation *o = pn_container_of(event, struct operation, event);
	struct pn_sim_link *link = o->link;

	/* An operation that reaches a dead node is lost; it ends when the link
	 * goes down. */
	if (pn_sim_link_is_broken(link))
		return;
	pn_sim_record(sim, PN_SIM_DELIVERED, link->other->index, o->op.rkey,
		      (int64_t)o->bytes);
	if (pn_list_empty(&link->stalled) && execute(o))
		return;
	pn_list_append(&link->stalled, &o->queue);
	if (pn_list_empty(&link->stall))
		pn_list_append(&link->other->stalled, &link->stall);
}

/* Each stalled link in turn executes one operation, until one has no room or
 * none is left. Operations that wait on a broken link end with the link. */
void pn_sim_resume_stalled(struct pn_sim_node *node)
{
	while (!pn_list_empty(&node->stalled)) {
		struct pn_sim_link *link =
			pn_container_of(node->stalled.next, struct pn_sim_link,
					stall);
		struct operation *o =
			pn_sim_link_is_broken(link)
				? NULL
				: first_of(&link->stalled,
					   offsetof(struct operation, queue));

		if (o && !execute(o))
			return;
		if (o)
			pn_list_remove(&o->queue);
		pn_list_remove(&link->stall);
		if (o && !pn_list_empty(&link->stalled))
			pn_list_append(&node->stalled, &link->stall);
	}
}

/* --- departing ------------------------------------------------------------ */

/* The time on the wire of the request itself. */
static uint64_t request_ns(const struct operation *o)
{
	return o->op.kind == PN_OP_READ
		       ? 0
		       : pn_sim_wire_ns(o->link->self, o->link->other,
					o->bytes);
}

static void head_fire(struct pn_sim *sim, struct pn_sim_event *event)
{
	struct operation *o = pn_container_of(event, struct operation, event);

	(void)sim;
	arrive(o, o->link->other, request_ns(o), tail_fire);
}

static void depart(struct operation *o, uint64_t time_ns)
{
	struct pn_sim_link *link = o->link;
	uint64_t ns = head_ns(link->self, time_ns, request_ns(o));

	ns = pn_sim_after(ns, o->delay_ns);
	if (ns < link->last_head_ns)
		ns = link->last_head_ns;
	link->last_head_ns = ns;
	if (is_answered(&o->op))
		link->nreads++;
	schedule(o, ns, head_fire);
}

void pn_sim_flush(struct pn_sim_link *link, int status)
{
	struct operation *o;

	while ((o = first_of(&link->ops, offsetof(struct operation, entry)))) {
		if (status)
			post_completion(o, o->done ? o->status : status);
		free_operation(o);
	}
	pn_list_remove(&link->stall);
	link->nreads = 0;
}

/* --- post ----------------------------------------------------------------- */

static int check_link(struct pn_sim_link *link)
{
	if (link->state == PN_SIM_DOWN)
		return -ECONNRESET;
	if (link->state == PN_SIM_CONNECTING)
		return -EAGAIN;
	link->queue_was_full = link->nops >= link->self->sim->params.depth;
	return link->queue_was_full ? -EAGAIN : 0;
}

static int check_keys(struct pn_sim_node *node, const struct pn_op *op)
{
	unsigned access = is_answered(op) ? PINION_ACCESS_LOCAL_WRITE : 0;
	int ret = 0;

	if (op->flags & PN_OP_INLINE)
		return 0;
	for (unsigned i = 0; i < op->nsge && !ret; i++)
		ret = pn_sim_covers_lkey(node, &op->sge[i], access);
	return ret;
}

static struct operation *alloc_operation(struct pn_sim_link *link,
					 const struct pn_op *op, size_t bytes)
{
	bool is_inline = op->flags & PN_OP_INLINE;
	size_t extra = is_inline ? bytes : op->nsge * sizeof(*op->sge);
	struct operation *o = calloc(1, sizeof(*o) + extra);

	if (!o)
		return NULL;
	o->link = link;
	o->op = *op;
	o->op.sge = is_inline ? NULL : o->segments;
	o->bytes = bytes;
	pn_list_init(&o->queue);
	if (is_inline)
		gather(link->self->sim, op->sge, op->nsge, o->segments);
	else if (op->nsge)
		memcpy(o->segments, op->sge, extra);
	pn_list_append(&link->ops, &o->entry);
	link->nops++;
	return o;
}

/* The operation departs when its CPU part is done, or later if a fence holds
 * it. */
static void launch(struct operation *o)
{
	struct pn_sim_link *link = o->link;
	struct pn_sim *sim = sim_of(o);

	o->delay_ns = pn_script_message_ns(&sim->script, link->self->number,
					   ++sim->nmessages,
					   ++link->self->home->nmessages);
	pn_sim_record(sim, PN_SIM_POSTED, link->self->index, o->op.rkey,
		      (int64_t)o->bytes);
	if (!pn_list_empty(&link->fenced) ||
	    ((o->op.flags & PN_OP_FENCE) && link->nreads))
		pn_list_append(&link->fenced, &o->queue);
	else
		depart(o, pn_sim_after(pn_sim_time(sim), sim->message_ns));
	pn_sim_port_used(link->self);
}

int pn_sim_post(struct pn_device *device, struct pn_peer *peer,
		const struct pn_op *op)
{
	struct pn_sim_node *node = pn_sim_node_of(device);
	struct pn_sim_link *link =
		pn_container_of(peer, struct pn_sim_link, peer);
	bool entered = pn_sim_enter(node->sim);
	struct operation *o;
	size_t bytes;
	int ret = pn_op_validate(device, op, &bytes);

	pn_assert(peer->device == device);
	if (!ret)
		ret = check_link(link);
	if (!ret)
		ret = check_keys(node, op);
	if (!ret) {
		o = alloc_operation(link, op, bytes);
		if (o)
			launch(o);
		ret = o ? 0 : -ENOMEM;
	}
	if (!ret)
		pn_sim_defer_cpu(node->sim, node->sim->message_ns);
	pn_sim_leave(node->sim, entered);
	return ret;
}
