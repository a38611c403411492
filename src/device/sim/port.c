/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * port -- what a node's program polls: completions and the messages they lend.
 *
 * Completions are kept in a ring that grows. A message gets memory when it
 * arrives and gives it back when its buffer is returned. The parameters `inbox`
 * and `inbox_slots` bound the sum. A message without room waits at the node's
 * adapter (operation.c).
 */
#include <errno.h>
#include <stdlib.h>

#include "device/sim/sim_impl.h"

struct message {
	struct pn_list entry; /* in node->inbox */
	size_t len;
	_Alignas(16) unsigned char data[];
};

/* --- completions ---------------------------------------------------------- */

static void grow_ring(struct pn_sim_node *node)
{
	size_t capacity = node->ring_capacity ? 2 * node->ring_capacity : 8;
	struct pn_completion *ring = malloc(capacity * sizeof(*ring));

	/* As with events: a world that loses a completion is invalid. */
	pn_assert(ring);
	for (size_t i = 0; i < node->ring_n; i++)
		ring[i] = node->ring[(node->ring_first + i) &
				     (node->ring_capacity - 1)];
	free(node->ring);
	node->ring = ring;
	node->ring_capacity = capacity;
	node->ring_first = 0;
}

void pn_sim_complete(struct pn_sim_node *node,
		     const struct pn_completion *completion)
{
	size_t last;

	pn_sim_record(node->sim, PN_SIM_COMPLETED, node->index,
		      (uint64_t)completion->kind << 32 | completion->imm,
		      completion->status ? completion->status
					 : (int64_t)completion->len);
	if (node->ring_n == node->ring_capacity)
		grow_ring(node);
	last = (node->ring_first + node->ring_n++) & (node->ring_capacity - 1);
	node->ring[last] = *completion;
	pn_sim_notify(node->home);
}

static bool costs_cpu(const struct pn_completion *completion)
{
	return completion->kind == PN_COMPLETION_RECV ||
	       completion->kind == PN_COMPLETION_IMM;
}

int pn_sim_poll(struct pn_device *device, struct pn_completion *out,
		unsigned max)
{
	struct pn_sim_node *node = pn_sim_node_of(device);
	bool entered = pn_sim_enter(node->sim);
	unsigned n = 0, nmessages = 0;

	pn_sim_progress(node->sim);
	while (n < max && node->ring_n) {
		out[n] = node->ring[node->ring_first];
		node->ring_first =
			(node->ring_first + 1) & (node->ring_capacity - 1);
		node->ring_n--;
		nmessages += costs_cpu(&out[n++]);
	}
	if (n)
		node->home->empty_polls = 0;
	else
		pn_sim_empty_poll(node->home);
	pn_sim_defer_cpu(node->sim, nmessages * node->sim->message_ns);
	pn_sim_leave(node->sim, entered);
	return (int)n;
}

/* --- the inbox ------------------------------------------------------------ */

void *pn_sim_inbox_alloc(struct pn_sim_node *node, size_t len, void **lease)
{
	const struct pn_sim_params *params = &node->sim->params;
	struct message *message;

	if (node->inbox_n == params->inbox_slots ||
	    len > params->inbox_bytes - node->inbox_bytes)
		return NULL;
	message = malloc(sizeof(*message) + len);
	pn_assert(message);
	message->len = len;
	pn_list_append(&node->inbox, &message->entry);
	node->inbox_bytes += len;
	node->inbox_n++;
	*lease = message;
	return message->data;
}

void pn_sim_inbox_free(struct pn_sim_node *node, void *lease)
{
	struct message *message = lease;

	node->inbox_bytes -= message->len;
	node->inbox_n--;
	pn_list_remove(&message->entry);
	free(message);
}

void pn_sim_return_buffer(struct pn_device *device,
			  const struct pn_completion *completion)
{
	struct pn_sim_node *node = pn_sim_node_of(device);
	bool entered = pn_sim_enter(node->sim);

	/* A node that died has freed all messages already. */
	if (!node->dead) {
		pn_sim_inbox_free(node, completion->lease);
		pn_sim_resume_stalled(node);
	}
	pn_sim_leave(node->sim, entered);
}

void pn_sim_port_clear(struct pn_sim_node *node)
{
	while (!pn_list_empty(&node->inbox))
		pn_sim_inbox_free(node, pn_container_of(node->inbox.next,
							struct message, entry));
	node->ring_first = node->ring_n = 0;
}

void pn_sim_port_fini(struct pn_sim_node *node)
{
	pn_sim_port_clear(node);
	free(node->ring);
}
