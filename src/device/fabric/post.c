/* SPDX-License-Identifier: BSD-2-Clause */
/* The initiator's side of operations. */
#include <errno.h>
#include <stdlib.h>

#include "device/fabric/fabric_impl.h"
#include "device/validate.h"

/* --- packets of operations ------------------------------------------------ */

static bool reads(const struct pn_op *op)
{
	return op->kind != PN_OP_SEND && op->kind != PN_OP_WRITE;
}

/* Checks the keys of the segments. */
static int check_segments(const struct pn_fabric_device *dev,
			  const struct pn_op *op)
{
	unsigned access = reads(op) ? PINION_ACCESS_LOCAL_WRITE : 0;

	if (op->flags & PN_OP_INLINE)
		return 0;
	for (unsigned i = 0; i < op->nsge; i++)
		if (op->sge[i].len &&
		    !pn_fabric_keys_local(&dev->owner->keys, &op->sge[i],
					  access))
			return -EFAULT;
	return 0;
}

static size_t copy_segments(uint8_t *to, const struct pn_op *op)
{
	size_t len = 0;

	for (unsigned i = 0; i < op->nsge; i++) {
		if (op->sge[i].len)
			memcpy(to + len, op->sge[i].addr, op->sge[i].len);
		len += op->sge[i].len;
	}
	return len;
}

static void fill_sources(struct pn_fabric_device *dev,
			 struct pn_fabric_packet *packet,
			 const struct pn_op *op)
{
	struct pn_fabric_pull *pull = &packet->wire.pull;
	unsigned n = 0;

	for (unsigned i = 0; i < op->nsge; i++) {
		const struct pn_fabric_slot *slot;

		if (!op->sge[i].len)
			continue;
		slot = pn_fabric_keys_local(&dev->owner->keys, &op->sge[i], 0);
		pn_assert(slot); /* check_segments() */
		pull->source[n++] = (struct pn_fabric_source){
			pn_fabric_slot_addr(&dev->owner->keys, slot,
					    (uintptr_t)op->sge[i].addr),
			fi_mr_key(slot->mr), op->sge[i].len
		};
	}
	pull->nsources = n;
	packet->len = offsetof(struct pn_fabric_pull, source[n]);
}

static enum pn_fabric_kind kind_of(const struct pn_op *op, size_t len)
{
	switch (op->kind) {
	case PN_OP_SEND:
		return PN_FABRIC_SEND;
	case PN_OP_WRITE:
		return len > PN_FABRIC_MAX_SEND ? PN_FABRIC_PULL
						: PN_FABRIC_WRITE;
	case PN_OP_READ:
		return PN_FABRIC_READ;
	default:
		return PN_FABRIC_ATOMIC;
	}
}

static void fill_header(struct pn_fabric_packet *packet, const struct pn_op *op,
			size_t len)
{
	packet->wire.header = (struct pn_fabric_header){
		.kind = (uint8_t)kind_of(op, len),
		.flags = (op->flags & PN_OP_SILENT ? 0 : PN_FABRIC_WANTS_ACK) |
			 (op->flags & PN_OP_IMM ? PN_FABRIC_HAS_IMM : 0),
		.imm = op->imm,
	};
	if (op->kind != PN_OP_SEND)
		packet->wire.write.access =
			(struct pn_fabric_access){ op->remote_addr, op->rkey,
						   len };
}

static void fill(struct pn_fabric_device *dev, struct pn_fabric_packet *packet,
		 const struct pn_op *op, size_t len)
{
	fill_header(packet, op, len);
	switch (packet->wire.header.kind) {
	case PN_FABRIC_SEND:
		packet->len = sizeof(packet->wire.header);
		packet->len +=
			copy_segments((uint8_t *)(&packet->wire.header + 1),
				      op);
		break;
	case PN_FABRIC_WRITE:
		packet->len = sizeof(packet->wire.write);
		packet->len += copy_segments(packet->wire.write.data, op);
		break;
	case PN_FABRIC_PULL:
		fill_sources(dev, packet, op);
		break;
	case PN_FABRIC_READ:
		packet->len = sizeof(packet->wire.write);
		break;
	default:
		packet->wire.header.imm = op->kind;
		packet->wire.atomic.operand = op->operand;
		packet->wire.atomic.compare = op->compare;
		packet->len = sizeof(packet->wire.atomic);
	}
}

/* --- records -------------------------------------------------------------- */

static struct pn_fabric_record *record_of(const struct pn_fabric_device *dev,
					  struct pn_fabric_peer *peer,
					  uint32_t number)
{
	return &peer->tx.records[number & dev->depth_mask];
}

/* Long operations use the registrations of their segments. */
static void use_segments(struct pn_fabric_device *dev,
			 struct pn_fabric_record *record)
{
	for (unsigned i = 0; i < record->nsge; i++) {
		struct pn_fabric_slot *slot =
			pn_fabric_keys_local(&dev->owner->keys, &record->sge[i],
					     0);

		record->slots[i] = record->sge[i].len ? slot : NULL;
		if (record->slots[i])
			pn_fabric_slot_use(slot);
	}
}

static void unuse_segments(struct pn_fabric_record *record)
{
	for (unsigned i = 0; i < record->nsge; i++)
		if (record->slots[i])
			pn_fabric_slot_unuse(record->slots[i]);
}

static void fill_record(struct pn_fabric_device *dev,
			struct pn_fabric_peer *peer, const struct pn_op *op,
			size_t len)
{
	struct pn_fabric_record *record = record_of(dev, peer, peer->tx.next++);

	record->user = op->user;
	record->status = 0;
	record->silent = op->flags & PN_OP_SILENT;
	record->reads = reads(op);
	record->ended = false;
	record->fetching = false;
	record->uses = op->kind != PN_OP_SEND && len > PN_FABRIC_MAX_SEND;
	record->nsge = 0;
	peer->tx.reads += record->reads;
	if (!record->reads && !record->uses)
		return;
	record->nsge = op->nsge;
	memcpy(record->sge, op->sge, op->nsge * sizeof(*op->sge));
	if (record->uses)
		use_segments(dev, record);
}

static void retire_first(struct pn_fabric_device *dev,
			 struct pn_fabric_peer *peer, int status)
{
	struct pn_fabric_record *record = record_of(dev, peer, peer->tx.head++);

	if (record->uses)
		unuse_segments(record);
	peer->tx.reads -= record->reads;
	peer->tx.fenced &= peer->tx.reads > 0;
	if (pn_unlikely(peer->tx.post_refused)) {
		peer->tx.post_refused = false;
		dev->post_room = true;
	}
	if (record->silent && !status)
		return;
	pn_fabric_complete(dev,
			   (struct pn_completion){ .kind = PN_COMPLETION_OP,
						   .status = status,
						   .peer = &peer->peer,
						   .user = record->user });
}

void pn_fabric_retire(struct pn_fabric_device *dev, struct pn_fabric_peer *peer)
{
	while (peer->tx.head != peer->tx.next) {
		struct pn_fabric_record *record =
			record_of(dev, peer, peer->tx.head);

		if (!record->ended &&
		    (record->reads ||
		     !pn_fabric_passed(peer->tx.executed, peer->tx.head)))
			return;
		retire_first(dev, peer, record->status);
	}
}

void pn_fabric_retire_all(struct pn_fabric_device *dev,
			  struct pn_fabric_peer *peer, int status)
{
	while (peer->tx.head != peer->tx.next)
		retire_first(dev, peer, status);
}

/* --- answers -------------------------------------------------------------- */

/* The record of a number that is in flight and reads; or NULL. */
static struct pn_fabric_record *find_record(struct pn_fabric_device *dev,
					    struct pn_fabric_peer *peer,
					    uint32_t number)
{
	return number - peer->tx.head < peer->tx.next - peer->tx.head
		       ? record_of(dev, peer, number)
		       : NULL;
}

void pn_fabric_read_ended(struct pn_fabric_device *dev,
			  struct pn_fabric_peer *peer, uint32_t number,
			  int status)
{
	struct pn_fabric_record *record = record_of(dev, peer, number);

	pn_fabric_send_short(dev, peer, PN_FABRIC_RELEASE, number, 0);
	record->status = status;
	record->ended = true;
	pn_fabric_retire(dev, peer);
}

/* False: it was deregistered meanwhile. */
static bool copy_to_segment(struct pn_fabric_device *dev,
			    const struct pn_sge *sge, const void *from)
{
	struct pn_fabric_slot *slot =
		pn_fabric_keys_local(&dev->owner->keys, sge,
				     PINION_ACCESS_LOCAL_WRITE);
	bool valid;

	if (!slot)
		return false;
	pn_fabric_slot_use(slot);
	valid = atomic_load(&slot->lkey) == sge->lkey;
	if (valid)
		memcpy(sge->addr, from, sge->len);
	pn_fabric_slot_unuse(slot);
	return valid;
}

/* The bytes of a short READ or of an atomic. */
static int scatter(struct pn_fabric_device *dev,
		   struct pn_fabric_record *record,
		   const struct pn_fabric_packet *packet)
{
	const uint8_t *from = (const uint8_t *)(&packet->wire.header + 1);
	size_t left = packet->len - sizeof(packet->wire.header);

	for (unsigned i = 0; i < record->nsge; i++) {
		struct pn_sge *sge = &record->sge[i];

		if (!sge->len)
			continue;
		if (sge->len > left)
			return -EPROTO;
		if (!copy_to_segment(dev, sge, from))
			return -EFAULT;
		from += sge->len;
		left -= sge->len;
	}
	return 0;
}

/* False: it does not fit the READ. */
static bool fill_fetch(struct pn_fabric_fetch *fetch,
		       const struct pn_fabric_record *record,
		       struct pn_fabric_source from)
{
	for (unsigned i = 0; i < record->nsge; i++) {
		const struct pn_sge *sge = &record->sge[i];
		struct pn_fabric_piece *piece = &fetch->pieces[fetch->n];

		if (!sge->len)
			continue;
		if (sge->len > from.len)
			return false;
		piece->addr = sge->addr;
		piece->desc = fi_mr_desc(record->slots[i]->mr);
		piece->from = from;
		piece->from.len = sge->len;
		from.addr += sge->len;
		from.len -= sge->len;
		fetch->n++;
	}
	return true;
}

static void on_grant(struct pn_fabric_device *dev, struct pn_fabric_peer *peer,
		     struct pn_fabric_record *record,
		     const struct pn_fabric_packet *packet)
{
	struct pn_fabric_fetch *fetch;

	if (peer->ended)
		return;
	fetch = pn_fabric_fetch_get(peer);
	if (!fetch) {
		pn_fabric_peer_down(dev, peer, -ENOMEM);
		return;
	}
	fetch->number = packet->wire.header.number;
	if (record->uses && packet->len >= sizeof(packet->wire.grant) &&
	    fill_fetch(fetch, record, packet->wire.grant.source)) {
		record->fetching = true;
		pn_fabric_fetch_start(dev, fetch);
		return;
	}
	free(fetch);
	pn_fabric_peer_down(dev, peer, -EPROTO);
}

void pn_fabric_on_answer(struct pn_fabric_device *dev,
			 struct pn_fabric_peer *peer,
			 const struct pn_fabric_packet *packet)
{
	const struct pn_fabric_header *header = &packet->wire.header;
	struct pn_fabric_record *record =
		find_record(dev, peer, header->number);

	/* Each request is answered once. While the provider writes into the
	 * memory of a READ, nothing but that may end the READ: its segments
	 * would be free to be deregistered. */
	if (!record || record->ended || record->fetching ||
	    (header->kind != PN_FABRIC_FAILED && !record->reads)) {
		pn_fabric_peer_down(dev, peer, -EPROTO);
		return;
	}
	switch (header->kind) {
	case PN_FABRIC_GRANT:
		on_grant(dev, peer, record, packet);
		return;
	case PN_FABRIC_DATA:
		record->status = scatter(dev, record, packet);
		break;
	default:
		record->status = -EACCES;
	}
	record->ended = true;
}

/* --- posting -------------------------------------------------------------- */

static bool can_take(const struct pn_fabric_device *dev,
		     const struct pn_fabric_peer *peer, const struct pn_op *op)
{
	return peer->up_reported && !peer->down &&
	       peer->tx.next - peer->tx.head <= dev->depth_mask &&
	       pn_fabric_passed(peer->tx.granted, peer->tx.next) &&
	       pn_list_empty(&peer->backlog) &&
	       !(peer->tx.reads &&
		 (op->flags & PN_OP_FENCE || peer->tx.fenced));
}

static int check_tx(struct pn_fabric_device *dev, struct pn_fabric_peer *peer,
		    const struct pn_op *op)
{
	if (pn_likely(can_take(dev, peer, op)))
		return 0;
	/* Callers may retry without polling. */
	pn_fabric_progress(dev, true);
	pn_fabric_tell_sleepers(dev);
	if (peer->down)
		return peer->down;
	peer->tx.post_refused = !can_take(dev, peer, op);
	/* Later operations must not overtake it. */
	if (peer->tx.post_refused && op->flags & PN_OP_FENCE)
		peer->tx.fenced = peer->tx.reads;
	return peer->tx.post_refused ? -EAGAIN : 0;
}

static int post(struct pn_fabric_device *dev, struct pn_fabric_peer *peer,
		const struct pn_op *op)
{
	struct pn_fabric_packet *packet;
	size_t len;
	int ret = pn_op_validate(&dev->device, op, &len);

	if (!ret)
		ret = check_tx(dev, peer, op);
	if (!ret)
		ret = check_segments(dev, op);
	if (ret)
		return ret;
	packet = pn_fabric_packet_get(dev);
	if (!packet)
		return peer->tx.next == peer->tx.head ? -ENOMEM : -EAGAIN;
	/* Counts the operation as a user before its keys are read. */
	fill_record(dev, peer, op, len);
	fill(dev, packet, op, len);
	pn_fabric_send(dev, peer, packet);
	return 0;
}

int pn_fabric_post(struct pn_device *device, struct pn_peer *peer,
		   const struct pn_op *op)
{
	struct pn_fabric_device *dev = pn_fabric_of(device);
	int ret;

	pn_fabric_lock(dev);
	dev->activity++;
	ret = post(dev, pn_fabric_peer_of(peer), op);
	pn_fabric_unlock(dev);
	return ret;
}
