/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The target's side of operations.
 *
 * Requests of a peer are executed in order. A PULL takes a while; the requests
 * behind it wait in peer->rx.queue. Only further PULLs to other memory run at
 * the same time.
 *
 * The program may unmap memory without telling anyone. The kernel copies into
 * and out of the memory of the program, so that such a request fails instead of
 * ending the process.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/range.h"
#include "device/fabric/fabric_impl.h"

/* PULLs of one peer at the same time. */
#define MAX_PULLS 16

/* --- acknowledging -------------------------------------------------------- */

void pn_fabric_ack_later(struct pn_fabric_device *dev,
			 struct pn_fabric_peer *peer)
{
	if (pn_list_empty(&peer->rx.ack_due))
		pn_list_append(&dev->acks_due, &peer->rx.ack_due);
}

void pn_fabric_send_acks(struct pn_fabric_device *dev)
{
	struct pn_list *pos, *tmp;

	dev->ack_now = false;
	pn_list_for_each_safe (pos, tmp, &dev->acks_due) {
		struct pn_fabric_peer *peer =
			pn_container_of(pos, struct pn_fabric_peer, rx.ack_due);

		if (!peer->down && !pn_list_empty(&peer->backlog))
			continue;
		pn_list_remove(pos);
		if (!peer->down)
			pn_fabric_send_short(dev, peer, PN_FABRIC_ACK, 0, 0);
	}
}

/* The peer is told about half a window at once, or with the next packet. */
void pn_fabric_return_credit(struct pn_fabric_device *dev,
			     struct pn_fabric_packet *packet)
{
	struct pn_fabric_peer *peer = packet->peer;

	pn_fabric_receive_post(dev, packet);
	peer->rx.granted++;
	if (!peer->down &&
	    peer->rx.granted - peer->rx.announced >= dev->params.window / 2)
		pn_fabric_ack_later(dev, peer);
}

/* Counts a request as executed. The caller may answer a SEND, and the answer
 * acknowledges it. */
static void executed(struct pn_fabric_device *dev, struct pn_fabric_peer *peer,
		     const struct pn_fabric_packet *packet)
{
	peer->rx.executed++;
	if (!(packet->wire.header.flags & PN_FABRIC_WANTS_ACK))
		return;
	pn_fabric_ack_later(dev, peer);
	dev->ack_now |= packet->wire.header.kind != PN_FABRIC_SEND;
}

static void fail(struct pn_fabric_device *dev, struct pn_fabric_peer *peer,
		 struct pn_fabric_packet *packet, int status)
{
	uint32_t number = peer->rx.executed++;

	pn_fabric_send_short(dev, peer, PN_FABRIC_FAILED, number,
			     (uint32_t)-status);
	pn_fabric_return_credit(dev, packet);
}

/* --- memory of the program ------------------------------------------------ */

static int copy_in(void *to, const void *from, size_t len)
{
	struct iovec local = { (void *)(uintptr_t)from, len };
	struct iovec remote = { to, len };
	ssize_t n;

	if (!len)
		return 0;
	n = process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
	if (n < 0 && errno != EFAULT) { /* seccomp */
		memcpy(to, from, len);
		return 0;
	}
	return n == (ssize_t)len ? 0 : -EACCES;
}

static int copy_out(void *to, const void *from, size_t len)
{
	struct iovec local = { to, len };
	struct iovec remote = { (void *)(uintptr_t)from, len };
	ssize_t n;

	if (!len)
		return 0;
	n = process_vm_readv(getpid(), &local, 1, &remote, 1, 0);
	if (n < 0 && errno != EFAULT) {
		memcpy(to, from, len);
		return 0;
	}
	return n == (ssize_t)len ? 0 : -EACCES;
}

static void *pointer(uint64_t addr)
{
	return (void *)(uintptr_t)addr;
}

/* --- requests ------------------------------------------------------------- */

/* A caller gets the completion; its buffer returns later. */
static void deliver_send(struct pn_fabric_device *dev,
			 struct pn_fabric_peer *peer,
			 struct pn_fabric_packet *packet)
{
	const struct pn_fabric_header *header = &packet->wire.header;

	executed(dev, peer, packet);
	pn_fabric_complete(dev, (struct pn_completion){
					.kind = PN_COMPLETION_RECV,
					.peer = &peer->peer,
					.data = header + 1,
					.len = packet->len - sizeof(*header),
					.imm = header->imm,
					.lease = packet });
}

/* The credit of an immediate returns when it is polled. */
static void written(struct pn_fabric_device *dev, struct pn_fabric_peer *peer,
		    struct pn_fabric_packet *packet)
{
	executed(dev, peer, packet);
	if (!(packet->wire.header.flags & PN_FABRIC_HAS_IMM)) {
		pn_fabric_return_credit(dev, packet);
		return;
	}
	pn_fabric_complete(dev, (struct pn_completion){
					.kind = PN_COMPLETION_IMM,
					.peer = &peer->peer,
					.len = packet->wire.write.access.len,
					.imm = packet->wire.header.imm,
					.lease = packet });
}

static int write_short(struct pn_fabric_device *dev,
		       const struct pn_fabric_write *write)
{
	const struct pn_fabric_access *to = &write->access;
	struct pn_fabric_slot *slot =
		pn_fabric_keys_remote(&dev->owner->keys, to->addr, to->len,
				      to->rkey, PINION_ACCESS_REMOTE_WRITE);
	int ret;

	if (!slot)
		return -EACCES;
	ret = copy_in(pointer(to->addr), write->data, to->len);
	pn_fabric_slot_unuse(slot);
	return ret;
}

static void execute_write(struct pn_fabric_device *dev,
			  struct pn_fabric_peer *peer,
			  struct pn_fabric_packet *packet)
{
	const struct pn_fabric_write *write = &packet->wire.write;
	const struct pn_fabric_access *to = &write->access;
	int ret;

	if (packet->len - sizeof(*write) != to->len)
		ret = -EINVAL;
	else if (!to->len)
		ret = 0;
	else
		ret = write_short(dev, write);
	if (ret)
		fail(dev, peer, packet, ret);
	else
		written(dev, peer, packet);
}

/* The grant is the user of the slot. */
static void grant_read(struct pn_fabric_device *dev,
		       struct pn_fabric_peer *peer,
		       struct pn_fabric_packet *packet,
		       struct pn_fabric_slot *slot)
{
	const struct pn_fabric_access *from = &packet->wire.write.access;
	struct pn_fabric_granted *granted = malloc(sizeof(*granted));
	struct pn_fabric_packet *answer = pn_fabric_packet_get(dev);

	if (!granted || !answer) {
		pn_fabric_slot_unuse(slot);
		free(granted);
		if (answer)
			pn_fabric_packet_put(dev, answer);
		fail(dev, peer, packet, -ENOMEM);
		return;
	}
	granted->number = peer->rx.executed;
	granted->slot = slot;
	pn_list_append(&peer->rx.grants, &granted->link);
	answer->wire.grant = (struct pn_fabric_grant){
		.header = { .kind = PN_FABRIC_GRANT,
			    .number = peer->rx.executed++ },
		.source = { pn_fabric_slot_addr(&dev->owner->keys, slot,
						from->addr),
			    fi_mr_key(slot->mr), from->len },
	};
	answer->len = sizeof(answer->wire.grant);
	pn_fabric_send(dev, peer, answer);
	pn_fabric_return_credit(dev, packet);
}

void pn_fabric_on_release(struct pn_fabric_peer *peer, uint32_t number)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &peer->rx.grants) {
		struct pn_fabric_granted *granted =
			pn_container_of(pos, struct pn_fabric_granted, link);

		if (granted->number != number)
			continue;
		pn_list_remove(pos);
		pn_fabric_slot_unuse(granted->slot);
		free(granted);
		return;
	}
}

/* Sends `len` bytes at `from` as the answer. */
static void answer_data(struct pn_fabric_device *dev,
			struct pn_fabric_peer *peer,
			struct pn_fabric_packet *packet, const void *from,
			size_t len)
{
	struct pn_fabric_packet *answer = pn_fabric_packet_get(dev);
	int ret = answer ? copy_out(&answer->wire.header + 1, from, len)
			 : -ENOMEM;

	if (ret) {
		if (answer)
			pn_fabric_packet_put(dev, answer);
		fail(dev, peer, packet, ret);
		return;
	}
	answer->wire.header =
		(struct pn_fabric_header){ .kind = PN_FABRIC_DATA,
					   .number = peer->rx.executed++ };
	answer->len = sizeof(answer->wire.header) + len;
	pn_fabric_send(dev, peer, answer);
	pn_fabric_return_credit(dev, packet);
}

static void execute_read(struct pn_fabric_device *dev,
			 struct pn_fabric_peer *peer,
			 struct pn_fabric_packet *packet)
{
	const struct pn_fabric_access *from = &packet->wire.write.access;
	struct pn_fabric_slot *slot =
		pn_fabric_keys_remote(&dev->owner->keys, from->addr, from->len,
				      from->rkey, PINION_ACCESS_REMOTE_READ);

	if (from->len && !slot) {
		fail(dev, peer, packet, -EACCES);
		return;
	}
	if (from->len > PN_FABRIC_MAX_SEND) {
		grant_read(dev, peer, packet, slot);
		return;
	}
	answer_data(dev, peer, packet, pointer(from->addr), from->len);
	if (slot)
		pn_fabric_slot_unuse(slot);
}

/* Atomics are atomic towards each other: whichever device of this process
 * executes one holds this lock. Taken after dev->lock. */
static struct pn_mutex atomics_lock = { PTHREAD_MUTEX_INITIALIZER };

/* The kernel reads the word and writes it: the program may make the memory
 * read-only, or unmap it, at any time. */
static int apply_atomic(const struct pn_fabric_atomic *atomic, uint64_t *old)
{
	const struct pn_op op = { .kind = (enum pn_op_kind)atomic->header.imm,
				  .operand = atomic->operand,
				  .compare = atomic->compare };
	uint64_t *word = pointer(atomic->access.addr), new;
	int ret;

	pn_lock(&atomics_lock);
	ret = copy_out(old, word, sizeof(*old));
	new = pn_op_atomic_result(&op, *old);
	if (!ret && new != *old)
		ret = copy_in(word, &new, sizeof(new));
	pn_unlock(&atomics_lock);
	return ret;
}

static void execute_atomic(struct pn_fabric_device *dev,
			   struct pn_fabric_peer *peer,
			   struct pn_fabric_packet *packet)
{
	const struct pn_fabric_atomic *atomic = &packet->wire.atomic;
	struct pn_fabric_slot *slot = NULL;
	uint64_t old = 0;

	if (packet->len == sizeof(*atomic) && !(atomic->access.addr % 8))
		slot = pn_fabric_keys_remote(&dev->owner->keys,
					     atomic->access.addr, 8,
					     atomic->access.rkey,
					     PINION_ACCESS_REMOTE_ATOMIC);
	if (slot && !apply_atomic(atomic, &old))
		answer_data(dev, peer, packet, &old, sizeof(old));
	else
		fail(dev, peer, packet, -EACCES);
	if (slot)
		pn_fabric_slot_unuse(slot);
}

/* --- PULLs ---------------------------------------------------------------- */

static struct pn_range range_of(const struct pn_fabric_packet *packet)
{
	return (struct pn_range){ packet->wire.pull.access.addr,
				  packet->wire.pull.access.len };
}

/* 0, or why the request is refused. */
static int check_pull(const struct pn_fabric_packet *packet)
{
	const struct pn_fabric_pull *pull = &packet->wire.pull;
	uint64_t sum = 0;

	if (packet->len < offsetof(struct pn_fabric_pull, source) ||
	    pull->nsources > PN_FABRIC_MAX_SGE ||
	    packet->len !=
		    offsetof(struct pn_fabric_pull, source[pull->nsources]))
		return -EINVAL;
	for (unsigned i = 0; i < pull->nsources; i++)
		if (__builtin_add_overflow(sum, pull->source[i].len, &sum))
			return -EINVAL;
	return sum == pull->access.len ? 0 : -EINVAL;
}

/* The packet is the user of the slot. */
static void start_pull(struct pn_fabric_device *dev,
		       struct pn_fabric_peer *peer,
		       struct pn_fabric_packet *packet,
		       struct pn_fabric_slot *slot)
{
	const struct pn_fabric_pull *pull = &packet->wire.pull;
	struct pn_fabric_fetch *fetch = pn_fabric_fetch_get(peer);
	uintptr_t at = pull->access.addr;

	if (!fetch) {
		pn_fabric_slot_unuse(slot);
		pn_fabric_peer_down(dev, peer, -ENOMEM);
		return;
	}
	packet->fetch = fetch;
	packet->slot = slot;
	fetch->pull = packet;
	fetch->n = (unsigned)pull->nsources;
	for (unsigned i = 0; i < fetch->n; i++) {
		fetch->pieces[i].addr = (void *)at;
		fetch->pieces[i].desc = fi_mr_desc(slot->mr);
		fetch->pieces[i].from = pull->source[i];
		at += pull->source[i].len;
	}
	pn_fabric_fetch_start(dev, fetch);
}

static bool overlaps_running(const struct pn_fabric_peer *peer,
			     const struct pn_fabric_packet *packet)
{
	struct pn_list *pos;

	pn_list_for_each (pos, &peer->rx.queue) {
		const struct pn_fabric_packet *other =
			pn_container_of(pos, struct pn_fabric_packet, link);

		if (other == packet)
			return false;
		if (pn_range_overlaps(range_of(other), range_of(packet)))
			return true;
	}
	return false;
}

/* False: it is refused. */
static bool may_pull(struct pn_fabric_device *dev,
		     const struct pn_fabric_packet *packet,
		     struct pn_fabric_slot **slot, int *why)
{
	const struct pn_fabric_access *to = &packet->wire.pull.access;

	*why = check_pull(packet);
	if (*why)
		return false;
	*slot = pn_fabric_keys_remote(&dev->owner->keys, to->addr, to->len,
				      to->rkey, PINION_ACCESS_REMOTE_WRITE);
	*why = *slot ? 0 : -EACCES;
	return *slot;
}

/* --- the queue ------------------------------------------------------------ */

/* Executes the oldest request, which is no PULL in progress. */
static void execute_now(struct pn_fabric_device *dev,
			struct pn_fabric_peer *peer,
			struct pn_fabric_packet *packet)
{
	switch (packet->wire.header.kind) {
	case PN_FABRIC_SEND:
		deliver_send(dev, peer, packet);
		break;
	case PN_FABRIC_WRITE:
		execute_write(dev, peer, packet);
		break;
	case PN_FABRIC_READ:
		execute_read(dev, peer, packet);
		break;
	default:
		execute_atomic(dev, peer, packet);
	}
}

/* True: the request has left the queue. */
static bool advance_first(struct pn_fabric_device *dev,
			  struct pn_fabric_peer *peer,
			  struct pn_fabric_packet *packet)
{
	struct pn_fabric_slot *slot;
	int why;

	if (packet->executed) {
		pn_list_remove(&packet->link);
		pn_fabric_slot_unuse(packet->slot);
		written(dev, peer, packet);
		return true;
	}
	if (packet->fetch)
		return false;
	if (packet->wire.header.kind != PN_FABRIC_PULL) {
		pn_list_remove(&packet->link);
		execute_now(dev, peer, packet);
		return true;
	}
	if (peer->ended)
		return false;
	if (may_pull(dev, packet, &slot, &why)) {
		start_pull(dev, peer, packet, slot);
		return packet->executed;
	}
	pn_list_remove(&packet->link);
	fail(dev, peer, packet, why);
	return true;
}

/* Starts PULLs behind the first request. One that must be refused waits until
 * it is the first. */
static void start_further(struct pn_fabric_device *dev,
			  struct pn_fabric_peer *peer)
{
	struct pn_list *pos, *tmp;
	unsigned n = 0;

	if (peer->ended)
		return;
	pn_list_for_each_safe (pos, tmp, &peer->rx.queue) {
		struct pn_fabric_packet *packet =
			pn_container_of(pos, struct pn_fabric_packet, link);
		struct pn_fabric_slot *slot;
		int why;

		if (++n > MAX_PULLS ||
		    packet->wire.header.kind != PN_FABRIC_PULL)
			return;
		if (packet->fetch || packet->executed)
			continue;
		if (overlaps_running(peer, packet) ||
		    !may_pull(dev, packet, &slot, &why))
			return;
		start_pull(dev, peer, packet, slot);
	}
}

/* fetch.c calls it again when a PULL ends inside start_pull(), packet.c when
 * the backlog has been sent. */
void pn_fabric_advance(struct pn_fabric_device *dev,
		       struct pn_fabric_peer *peer)
{
	if (peer->rx.advancing)
		return;
	peer->rx.advancing = true;
	while (!pn_list_empty(&peer->rx.queue) && !peer->down &&
	       pn_list_empty(&peer->backlog)) {
		struct pn_fabric_packet *first =
			pn_container_of(peer->rx.queue.next,
					struct pn_fabric_packet, link);

		if (!advance_first(dev, peer, first) && !first->executed) {
			start_further(dev, peer);
			if (!first->executed)
				break;
		}
	}
	peer->rx.advancing = false;
}

/* Whether it is long enough for its kind; more is checked by each kind. */
static bool is_whole(const struct pn_fabric_packet *packet)
{
	return packet->wire.header.kind == PN_FABRIC_SEND ||
	       packet->len >= sizeof(struct pn_fabric_write);
}

void pn_fabric_on_request(struct pn_fabric_device *dev,
			  struct pn_fabric_peer *peer,
			  struct pn_fabric_packet *packet)
{
	packet->peer = peer;
	packet->fetch = NULL;
	packet->slot = NULL;
	packet->executed = false;
	if (pn_unlikely(
		    !is_whole(packet) ||
		    !pn_fabric_passed(peer->rx.granted, peer->rx.received++))) {
		pn_fabric_receive_post(dev, packet);
		pn_fabric_peer_down(dev, peer, -EPROTO);
		return;
	}
	if (pn_likely(pn_list_empty(&peer->rx.queue) &&
		      pn_list_empty(&peer->backlog) &&
		      packet->wire.header.kind != PN_FABRIC_PULL)) {
		execute_now(dev, peer, packet);
		return;
	}
	pn_list_append(&peer->rx.queue, &packet->link);
	pn_fabric_advance(dev, peer);
}

void pn_fabric_requests_drop(struct pn_fabric_device *dev,
			     struct pn_fabric_peer *peer)
{
	struct pn_list *pos;

	while ((pos = pn_list_pop(&peer->rx.queue))) {
		struct pn_fabric_packet *packet =
			pn_container_of(pos, struct pn_fabric_packet, link);

		if (packet->slot)
			pn_fabric_slot_unuse(packet->slot);
		pn_fabric_return_credit(dev, packet);
	}
	while ((pos = pn_list_pop(&peer->rx.grants))) {
		struct pn_fabric_granted *granted =
			pn_container_of(pos, struct pn_fabric_granted, link);

		pn_fabric_slot_unuse(granted->slot);
		free(granted);
	}
}
