/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Messages in a ring of the soft device: src/device/soft/channel.h.
 *
 * Weaker than x86: a store without release may reach memory after the stores
 * that follow it, and a load without acquire may be executed after the loads
 * that follow it. Both are written as a choice of two orders.
 *
 * Safe: the consumer never reads bytes that were not written for the record,
 * and the producer never writes into a cell that was not returned. Live: all
 * messages arrive.
 *
 * MIRRORS src/device/soft/channel.h
 *   atomic_store_explicit((_Atomic uint64_t *)(void *)cell,
 *   (uint64_t)imm << 32 | pn_soft_ready(kind, len),
 *   memory_order_release);
 *   pn_soft_tx_publish(cell, PN_SOFT_SEND, 0, sizeof(*head) + len);
 *   return atomic_load_explicit(rx->next, memory_order_acquire) &&
 * MIRRORS src/device/soft/channel.c
 *   ring->head = atomic_load(&tx->channel->heads[ring - tx->rings]);
 *   return want - ring->head <= usable;
 *   clear_cells(ring, pn_unlikely(record & PN_SOFT_MARK)
 *   atomic_store(&rx->channel->heads[i], rx->rings[i].head);
 *
 * BARRIER PUBLISH  release of the ready word
 * BARRIER READY    acquire of the ready word
 * BARRIER RETURN   cells are cleared before head is stored
 * BARRIER HEAD     the producer loads head before it writes a cell
 */
#define CELLS	 2
#define MESSAGES 5

bool ready[CELLS];
byte bytes[CELLS]; /* the number of the message, from 1; 0: none */
byte head = 0;	   /* cells returned so far */

active proctype producer()
{
	byte at = 0, cell;

	do
	:: at == MESSAGES -> break
	:: else ->
		cell = at % CELLS;
#ifndef NO_HEAD
		(at - head < CELLS);
#endif
		assert(!ready[cell]);
		if
		:: bytes[cell] = at + 1; ready[cell] = true
#ifdef NO_PUBLISH
		:: ready[cell] = true; bytes[cell] = at + 1
#endif
		fi;
		at++
	od
}

active proctype consumer()
{
	byte at = 0, cell, read;

	do
	:: at == MESSAGES -> break
	:: else ->
		cell = at % CELLS;
		if
		:: ready[cell] -> read = bytes[cell]
#ifdef NO_READY
		:: read = bytes[cell]; (ready[cell])
#endif
		fi;
		assert(read == at + 1);
		if
		:: ready[cell] = false; head = at + 1
#ifdef NO_RETURN
		:: head = at + 1; ready[cell] = false
#endif
		fi;
		at++
	od
}
