/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread that goes to sleep on a soft device, and a peer that sends to it:
 * src/device/soft/wait.c.
 *
 * Stores go through a store buffer of their process and reach memory later; a
 * fence empties it. The peer may also be stopped for ever after it cleared
 * `sleeping`, and the sleeper's own service thread looks now and then.
 *
 * Live: the sleeper does not sleep for ever while there is a record.
 *
 * MIRRORS src/device/soft/wait.c
 *   if (!atomic_exchange(&peer->remote.presence->sleeping, 0))
 *   if (send(peer->connection.wakeup_fd, "", 1,
 *   if (atomic_load(&dev->presence->sleeping) ||
 *   !atomic_exchange(&dev->asleep, false))
 *   pn_soft_wake_always(dev);
 *   drain_wakeups(dev);
 *   atomic_store(&dev->presence->sleeping, 1);
 *   atomic_thread_fence(memory_order_seq_cst);
 *   if (!has_events(dev)) {
 *   atomic_store(&dev->asleep, true);
 * MIRRORS src/device/soft/soft_impl.h
 *   atomic_thread_fence(memory_order_seq_cst);
 *   pn_soft_notify_peer(peer);
 * MIRRORS src/device/soft/service.c
 *   pn_soft_wake_overlooked(service->dev);
 *
 * BARRIER SLEEPER_FENCE  `sleeping` is stored before the look at the ring
 * BARRIER PEER_FENCE     the record is stored before the load of `sleeping`
 * BARRIER LOOK           the look behind the store of `sleeping`
 * BARRIER OVERLOOKED     the service thread makes up for a lost wake-up
 */
bool record = false;   /* in memory */
bool sleeping = false; /* in memory */
bool asleep = false;   /* known to the sleeper's process alone */
bool readable = false; /* the descriptor that the sleeper sleeps on */
chan record_store = [1] of { bool };
chan sleeping_store = [1] of { bool };

active proctype buffers()
{
	bool value;
end:
	do
	:: atomic { record_store?value -> record = value }
	:: atomic { sleeping_store?value -> sleeping = value }
	od
}

active proctype sleeper()
{
	readable = false;
	sleeping_store!true;
#ifndef NO_SLEEPER_FENCE
	(empty(sleeping_store));
#endif
#ifndef NO_LOOK
	if
	:: record -> goto awake
	:: else
	fi;
#endif
	asleep = true;
	(readable); /* sleeps */
	asleep = false;
awake:
	skip
}

active proctype peer()
{
	record_store!true;
#ifndef NO_PEER_FENCE
	(empty(record_store));
#endif
	if
	:: sleeping ->
		sleeping = false;
		if
		:: readable = true
		:: skip /* stopped, or the wake-up cannot be sent */
		fi
	:: else
	fi
}

active proctype service()
{
end:
	do
#ifndef NO_OVERLOOKED
	:: atomic { asleep && !sleeping && empty(sleeping_store) ->
		    asleep = false; readable = true }
#else
	:: false
#endif
	od
}
