/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/matching/matching.h"

#include <stdlib.h>

#include "message/endpoint/endpoint.h"

/* Storage is less than twice as long as the payload, or has the minimum. */
_Static_assert(sizeof(struct pinion_unexpected) + PN_UNEXPECTED_MIN_BYTES <=
		       PN_ALLOWANCE_OVERHEAD,
	       "what a message takes beside its data");

static struct pinion_request *receive_at(const struct pn_list *link)
{
	return pn_container_of(link, struct pinion_request, link);
}

static struct pinion_request *hashed_receive_at(const struct pn_list *link)
{
	return pn_container_of(link, struct pinion_request, match.link);
}

static struct pinion_unexpected *unexpected_at(const struct pn_list *link)
{
	return pn_container_of(link, struct pinion_unexpected, link);
}

static struct pinion_unexpected *hashed_unexpected_at(
	const struct pn_list *link)
{
	return pn_container_of(link, struct pinion_unexpected, match_link);
}

static struct pn_tag_key key_of_receive(const struct pn_list *link)
{
	const struct pinion_request *receive = hashed_receive_at(link);

	return (struct pn_tag_key){ receive->peer, receive->tag,
				    receive->space };
}

static struct pn_tag_key key_of_message(const struct pinion_peer *peer,
					const struct pn_wire *wire)
{
	return (struct pn_tag_key){ peer, wire->tag,
				    (uint8_t)(wire->status & PN_WIRE_SPACE) };
}

static struct pn_tag_key key_of_unexpected(const struct pn_list *link)
{
	const struct pinion_unexpected *unexpected = hashed_unexpected_at(link);

	return key_of_message(unexpected->peer, &unexpected->wire);
}

static struct pinion_unexpected *unexpected_by_tag_at(
	const struct pn_list *link)
{
	return pn_container_of(link, struct pinion_unexpected, tag_link);
}

static struct pn_tag_key key_of_any(const struct pn_list *link)
{
	return key_of_message(NULL, &unexpected_by_tag_at(link)->wire);
}

/* --- queues --------------------------------------------------------------- */

static void queue_init(struct pn_match_queue *queue, pn_tag_key_fn *key_of)
{
	pn_list_init(&queue->entries);
	queue->last_hashed = &queue->entries;
	queue->nhashed = 0;
	pn_tag_table_init(&queue->table, key_of);
}

void pn_matching_init(struct pn_endpoint_matching *m, size_t packet_bytes)
{
	queue_init(&m->posted, key_of_receive);
	queue_init(&m->unexpected, key_of_unexpected);
	pn_list_init(&m->wildcards);
	pn_list_init(&m->probed);
	pn_tag_table_init(&m->by_tag, key_of_any);
	for (unsigned i = 0; i < PN_UNEXPECTED_SIZES; i++)
		PN_POOL_INIT(&m->storage[i], struct pinion_unexpected, link,
			     (size_t)PN_UNEXPECTED_MIN_BYTES << i);
	m->max_bytes = packet_bytes;
	m->next_sequence = m->npassed = 0;
	m->kept_bytes = 0;
}

void pn_matching_fini(struct pn_endpoint_matching *m)
{
	pn_tag_table_fini(&m->posted.table);
	pn_tag_table_fini(&m->unexpected.table);
	pn_tag_table_fini(&m->by_tag);
	for (unsigned i = 0; i < PN_UNEXPECTED_SIZES; i++)
		pn_pool_fini(&m->storage[i]);
}

/* The oldest entry that is not hashed is hashed now. */
static void queue_hashed(struct pn_match_queue *queue)
{
	queue->last_hashed = queue->last_hashed->next;
	queue->nhashed++;
}

/* A hashed entry, still in the list, is not hashed any more. */
static void queue_unhashed(struct pn_match_queue *queue,
			   const struct pn_list *link)
{
	if (queue->last_hashed == link)
		queue->last_hashed = link->prev;
	queue->nhashed--;
}

/* Whether the table serves receives with this mask, now or with more bits left
 * out. */
static bool is_narrow(const struct pn_match_queue *queue, uint64_t ignore)
{
	return !(ignore & ~queue->table.ignore) ||
	       __builtin_popcountll(ignore | queue->table.ignore) <=
		       PN_MATCH_IGNORED_BITS;
}

/* --- posted receives ------------------------------------------------------ */

/* A mask only ever gains bits, so this stays as it was when the receive was
 * hashed. */
static bool is_in_table(const struct pn_match_queue *queue,
			const struct pinion_request *receive)
{
	return !(receive->ignore & ~queue->table.ignore);
}

/* False: no memory. */
static bool hash_receive(struct pn_endpoint_matching *m)
{
	struct pn_match_queue *queue = &m->posted;
	struct pinion_request *receive = receive_at(queue->last_hashed->next);

	if (!is_in_table(queue, receive))
		pn_list_append(&m->wildcards, &receive->match.link);
	else if (pn_tag_table_add(&queue->table, &receive->match.link))
		return false;
	receive->match.sequence = m->next_sequence++;
	receive->hashed = true;
	queue_hashed(queue);
	return true;
}

/* Leaves more bits out of the hash. Receives whose keys become equal were not
 * in order before, so all are hashed again. */
static void widen_posted(struct pn_endpoint_matching *m, uint64_t ignore)
{
	struct pn_match_queue *queue = &m->posted;
	uint32_t n = queue->nhashed;
	struct pn_list *pos = queue->entries.next;

	for (uint32_t i = 0; i < n; i++, pos = pos->next)
		receive_at(pos)->hashed = false;
	pn_tag_table_clear(&queue->table, ignore | queue->table.ignore);
	pn_list_init(&m->wildcards);
	queue->last_hashed = &queue->entries;
	queue->nhashed = 0;
	while (queue->nhashed < n && hash_receive(m))
		;
}

static void hash_oldest_receive(struct pn_endpoint_matching *m)
{
	struct pn_match_queue *queue = &m->posted;
	uint64_t ignore = receive_at(queue->last_hashed->next)->ignore;

	if (ignore & ~queue->table.ignore && is_narrow(queue, ignore))
		widen_posted(m, ignore);
	hash_receive(m);
}

void pn_match_unhash(struct pn_endpoint_matching *m,
		     struct pinion_request *receive)
{
	pn_list_remove(&receive->match.link);
	if (is_in_table(&m->posted, receive))
		pn_tag_table_removed(&m->posted.table);
	queue_unhashed(&m->posted, &receive->link);
	receive->hashed = false;
}

void pn_match_post_behind(struct pn_endpoint_matching *m,
			  struct pinion_request *earlier,
			  struct pinion_request *added)
{
	struct pn_match_queue *queue = &m->posted;

	pn_list_insert(&earlier->link, &added->link);
	if (!earlier->hashed)
		return;
	if (is_in_table(queue, earlier))
		pn_tag_table_add_behind(&queue->table, &earlier->match.link,
					&added->match.link);
	else
		pn_list_insert(&earlier->match.link, &added->match.link);
	added->match.sequence = earlier->match.sequence;
	added->hashed = true;
	queue->nhashed++;
	if (queue->last_hashed == &earlier->link)
		queue->last_hashed = &added->link;
}

/* The oldest receive in the table that names this peer, NULL for any, and
 * accepts the message. */
static struct pinion_request *find_in_table(struct pn_endpoint_matching *m,
					    const struct pinion_peer *named,
					    const struct pinion_peer *peer,
					    const struct pn_wire *wire)
{
	const struct pn_tag_table *table = &m->posted.table;
	struct pn_list *link =
		pn_tag_table_find(table, key_of_message(named, wire));

	for (; link; link = pn_tag_table_next(table, link)) {
		struct pinion_request *receive = hashed_receive_at(link);

		if (pn_match_accepts(receive, peer, wire))
			return receive;
		m->npassed++;
	}
	return NULL;
}

static bool is_older(const struct pinion_request *a,
		     const struct pinion_request *b)
{
	return !b || (a && a->match.sequence < b->match.sequence);
}

static PN_NOINLINE struct pinion_request *find_hashed(
	struct pn_endpoint_matching *m, const struct pinion_peer *peer,
	const struct pn_wire *wire)
{
	struct pinion_request *named = find_in_table(m, peer, peer, wire);
	struct pinion_request *any = find_in_table(m, NULL, peer, wire);
	struct pinion_request *oldest = is_older(named, any) ? named : any;
	struct pn_list *pos;

	pn_list_for_each (pos, &m->wildcards) {
		struct pinion_request *receive = hashed_receive_at(pos);

		if (!is_older(receive, oldest))
			break;
		if (pn_match_accepts(receive, peer, wire))
			return receive;
		m->npassed++;
	}
	return oldest;
}

/* Hashed receives are older than the others. */
static PN_NOINLINE struct pinion_request *search_posted(
	struct pn_endpoint_matching *m, const struct pinion_peer *peer,
	const struct pn_wire *wire)
{
	struct pn_match_queue *queue = &m->posted;
	struct pinion_request *receive =
		queue->nhashed ? find_hashed(m, peer, wire) : NULL;
	struct pn_list *pos;
	unsigned passed = 0;

	if (receive)
		return receive;
	for (pos = queue->last_hashed->next; pos != &queue->entries;
	     pos = pos->next) {
		receive = receive_at(pos);
		if (pn_match_accepts(receive, peer, wire))
			return receive;
		m->npassed++;
		if (++passed > PN_MATCH_WINDOW)
			hash_oldest_receive(m);
	}
	return NULL;
}

/* Most messages are for the oldest receive, hashed or not. */
static inline struct pinion_request *find_posted(struct pn_endpoint_matching *m,
						 const struct pinion_peer *peer,
						 const struct pn_wire *wire)
{
	struct pn_list *first = m->posted.entries.next;

	if (first == &m->posted.entries)
		return NULL;
	return pn_likely(pn_match_accepts(receive_at(first), peer, wire))
		       ? receive_at(first)
		       : search_posted(m, peer, wire);
}

struct pinion_request *pn_match_find_posted(struct pn_endpoint_matching *m,
					    const struct pinion_peer *peer,
					    const struct pn_wire *wire)
{
	return find_posted(m, peer, wire);
}

struct pinion_request *pn_match_take_posted(struct pinion_endpoint *ep,
					    struct pinion_peer *peer,
					    const struct pn_wire *wire)
{
	struct pn_endpoint_matching *m = &ep->matching;
	struct pinion_request *receive = find_posted(m, peer, wire);

	if (!receive)
		return NULL;
	if (pn_unlikely(receive->multi_recv))
		pn_multi_recv_repost(receive, wire->len);
	pn_match_unpost(m, receive);
	return receive;
}

/* --- unexpected messages -------------------------------------------------- */

static bool accepts(const struct pinion_message *wanted,
		    const struct pinion_unexpected *unexpected)
{
	return PN_MATCH_ACCEPTS(wanted, unexpected->peer, &unexpected->wire);
}

static void remove_from_table(struct pn_tag_table *table, struct pn_list *link)
{
	pn_list_remove(link);
	pn_tag_table_removed(table);
}

/* False: no memory. */
static bool hash_oldest_unexpected(struct pn_endpoint_matching *m)
{
	struct pn_match_queue *queue = &m->unexpected;
	struct pinion_unexpected *unexpected =
		unexpected_at(queue->last_hashed->next);

	if (pn_tag_table_add(&queue->table, &unexpected->match_link))
		return false;
	if (pn_tag_table_add(&m->by_tag, &unexpected->tag_link)) {
		remove_from_table(&queue->table, &unexpected->match_link);
		return false;
	}
	unexpected->hashed = true;
	queue_hashed(queue);
	return true;
}

/* As widen_posted(). */
static void widen_unexpected(struct pn_endpoint_matching *m, uint64_t ignore)
{
	struct pn_match_queue *queue = &m->unexpected;
	uint32_t n = queue->nhashed;
	struct pn_list *pos = queue->entries.next;

	for (uint32_t i = 0; i < n; i++, pos = pos->next)
		unexpected_at(pos)->hashed = false;
	pn_tag_table_clear(&queue->table, ignore | queue->table.ignore);
	pn_tag_table_clear(&m->by_tag, queue->table.ignore);
	queue->last_hashed = &queue->entries;
	queue->nhashed = 0;
	while (queue->nhashed < n && hash_oldest_unexpected(m))
		;
}

static struct pinion_unexpected *find_hashed_unexpected(
	struct pn_endpoint_matching *m, const struct pinion_message *wanted)
{
	const struct pn_tag_table *table =
		wanted->peer ? &m->unexpected.table : &m->by_tag;
	struct pn_tag_key key = { wanted->peer, wanted->tag,
				  (uint8_t)wanted->space };
	struct pn_list *link = pn_tag_table_find(table, key);

	for (; link; link = pn_tag_table_next(table, link)) {
		struct pinion_unexpected *unexpected =
			wanted->peer ? hashed_unexpected_at(link)
				     : unexpected_by_tag_at(link);

		if (accepts(wanted, unexpected))
			return unexpected;
		m->npassed++;
	}
	return NULL;
}

/* For a receive that names a tag but for a few bits. */
static PN_NOINLINE struct pinion_unexpected *find_unexpected(
	struct pn_endpoint_matching *m, const struct pinion_message *wanted)
{
	struct pn_match_queue *queue = &m->unexpected;
	struct pinion_unexpected *unexpected;
	struct pn_list *pos;
	unsigned passed = 0;

	if (wanted->ignore & ~queue->table.ignore)
		widen_unexpected(m, wanted->ignore);
	unexpected = queue->nhashed ? find_hashed_unexpected(m, wanted) : NULL;
	if (unexpected)
		return unexpected;
	for (pos = queue->last_hashed->next; pos != &queue->entries;
	     pos = pos->next) {
		if (accepts(wanted, unexpected_at(pos)))
			return unexpected_at(pos);
		m->npassed++;
		if (++passed > PN_MATCH_WINDOW)
			hash_oldest_unexpected(m);
	}
	return NULL;
}

struct pinion_unexpected *pn_match_search_unexpected(
	struct pn_endpoint_matching *m, const struct pinion_message *wanted)
{
	struct pn_list *pos = m->unexpected.entries.next;

	/* Most receives take the oldest message, hashed or not. */
	if (accepts(wanted, unexpected_at(pos)))
		return unexpected_at(pos);
	if (is_narrow(&m->unexpected, wanted->ignore))
		return find_unexpected(m, wanted);
	pn_list_for_each (pos, &m->unexpected.entries) {
		if (accepts(wanted, unexpected_at(pos)))
			return unexpected_at(pos);
		m->npassed++;
	}
	return NULL;
}

/* The index of the storage for len bytes. */
static unsigned size_index(size_t len)
{
	size_t units =
		(len + PN_UNEXPECTED_MIN_BYTES - 1) / PN_UNEXPECTED_MIN_BYTES;

	return units < 2 ? 0 : 64 - (unsigned)__builtin_clzll(units - 1);
}

/* Storage is kept for use again; after warm-up nothing is allocated. */
static struct pinion_unexpected *unexpected_storage(
	struct pn_endpoint_matching *m, size_t len)
{
	unsigned i = size_index(len);
	struct pinion_unexpected *unexpected;

	if (pn_unlikely(len > m->max_bytes || i >= PN_UNEXPECTED_SIZES))
		return NULL;
	unexpected = pn_pool_get(&m->storage[i]);
	if (unexpected)
		unexpected->capacity = (size_t)PN_UNEXPECTED_MIN_BYTES << i;
	return unexpected;
}

struct pinion_unexpected *pn_unexpected_alloc(struct pinion_peer *peer,
					      const struct pn_wire *wire,
					      size_t len)
{
	struct pinion_unexpected *unexpected =
		unexpected_storage(&peer->ep->matching, len);

	if (!unexpected)
		return NULL;
	unexpected->peer = peer;
	unexpected->wire = *wire;
	unexpected->payload_len = len;
	unexpected->counted = 0;
	return unexpected;
}

void pn_unexpected_remove(struct pn_endpoint_matching *m,
			  struct pinion_unexpected *unexpected)
{
	if (pn_unlikely(unexpected->hashed)) {
		remove_from_table(&m->unexpected.table,
				  &unexpected->match_link);
		remove_from_table(&m->by_tag, &unexpected->tag_link);
		queue_unhashed(&m->unexpected, &unexpected->link);
		unexpected->hashed = false;
	}
	pn_list_remove(&unexpected->link);
}

void pn_unexpected_free(struct pinion_endpoint *ep,
			struct pinion_unexpected *unexpected)
{
	struct pn_endpoint_matching *m = &ep->matching;
	struct pinion_peer *peer = unexpected->peer;
	size_t counted = unexpected->counted;

	pn_unexpected_remove(m, unexpected);
	pn_pool_put(&m->storage[size_index(unexpected->capacity)], unexpected);
	if (counted)
		pn_allowance_release(peer, counted);
}

int pn_match_add_unexpected(struct pinion_peer *peer,
			    const struct pn_wire *wire, const uint8_t *payload,
			    size_t len)
{
	struct pinion_endpoint *ep = peer->ep;
	struct pinion_unexpected *unexpected =
		pn_unexpected_alloc(peer, wire, len);

	if (!unexpected)
		return -ENOMEM;
	/* Keys are no data: a device that moves none has them nevertheless. */
	if (wire->nkeys)
		memcpy(unexpected->payload, payload, len);
	else
		pn_copy(ep->device, unexpected->payload, payload, len);
	pn_list_append(&ep->matching.unexpected.entries, &unexpected->link);
	unexpected->counted = pn_allowance_of(wire, len);
	pn_allowance_keep(peer, unexpected->counted);
	ep->stats.unexpected++;
	return 0;
}

/* --- checks --------------------------------------------------------------- */

/* Whether an entry of a table is found by its key. */
static bool is_found(const struct pn_tag_table *table,
		     const struct pn_list *link)
{
	const struct pn_list *at =
		pn_tag_table_find(table, table->key_of(link));

	while (at && at != link)
		at = pn_tag_table_next(table, at);
	return at;
}

static void check_posted(const struct pn_endpoint_matching *m)
{
	const struct pn_match_queue *queue = &m->posted;
	const struct pn_list *pos, *last = &queue->entries;
	const struct pn_list *wildcard = m->wildcards.next;
	uint32_t n = 0, in_table = 0;
	uint64_t sequence = 0;

	pn_list_for_each (pos, &queue->entries) {
		const struct pinion_request *receive = receive_at(pos);

		pn_assert(receive->hashed == (n < queue->nhashed));
		if (!receive->hashed)
			break;
		pn_assert(receive->match.sequence >= sequence);
		sequence = receive->match.sequence;
		if (is_in_table(queue, receive)) {
			pn_assert(
				is_found(&queue->table, &receive->match.link));
			in_table++;
		} else {
			pn_assert(wildcard == &receive->match.link);
			wildcard = wildcard->next;
		}
		last = pos;
		n++;
	}
	pn_assert(n == queue->nhashed && last == queue->last_hashed);
	pn_assert(in_table == queue->table.n && wildcard == &m->wildcards);
}

static void check_unexpected(const struct pn_endpoint_matching *m)
{
	const struct pn_match_queue *queue = &m->unexpected;
	const struct pn_list *pos, *last = &queue->entries;
	uint32_t n = 0;

	pn_list_for_each (pos, &queue->entries) {
		const struct pinion_unexpected *unexpected = unexpected_at(pos);

		pn_assert(unexpected->hashed == (n < queue->nhashed));
		if (!unexpected->hashed)
			break;
		pn_assert(is_found(&queue->table, &unexpected->match_link));
		pn_assert(is_found(&m->by_tag, &unexpected->tag_link));
		last = pos;
		n++;
	}
	pn_assert(n == queue->nhashed && last == queue->last_hashed &&
		  n == queue->table.n && n == m->by_tag.n &&
		  queue->table.ignore == m->by_tag.ignore);
}

void pn_matching_check(const struct pn_endpoint_matching *m)
{
	check_posted(m);
	check_unexpected(m);
}
