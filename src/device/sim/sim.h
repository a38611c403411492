/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim -- a cluster in one process, in virtual time.
 *
 * Nouns
 *   world  N nodes, one virtual clock, a queue of events. Deterministic: the
 *          same seed, spec and program give the same run, byte for byte.
 *   node   `cores` virtual CPUs, and one device (pn_sim_device()), or several
 *          with `rails`: ports with wires of their own (pn_sim_rail()), whose
 *          bandwidths `rail_bandwidth` sets in proportion, and of which those
 *          behind the first are attached `rail_setup` later. A wait for one
 *          is a wait for all of the node's.
 *   task   a coroutine on a node: a thread of the simulated program. It runs
 *          until it waits or is charged time; nothing preempts it in between,
 *          so tasks need no locks towards each other. Charged time occupies
 *          one of the node's cores: with more tasks than cores they take
 *          turns of `slice`. Other tasks may run during wait, block, register,
 *          deregister, copy, consume_cpu, pn_sim_sleep() and, when there is
 *          nothing again and again, poll: hold no lock there that another
 *          task takes, since all share one thread. post, release, rekey, now,
 *          wake and unblock never switch.
 *   host   whoever calls a device from outside every task (a plain program
 *          that opened "sim"). It counts as a task of that node on a core of
 *          its own; waiting and being charged run the world. A wait for ever
 *          gives other threads ten seconds of real time to change something
 *          (none when opened single_threaded) before it is -EDEADLK; a wait
 *          with a deadline jumps there at once.
 *
 * Life: pn_sim_open() -> pn_sim_spawn()... -> pn_sim_run() -> pn_sim_close().
 * pn_device_open("sim:...") makes a private world and gives its node 0.
 *
 * Costs come from the profile (profiles.h): registering and deregistering,
 * copying, the CPU part of each message are charged to the calling task; a
 * message leaves when the node's link is free, occupies it for bytes/bandwidth
 * at both ends and arrives a latency later, in order per pair of nodes. Reads
 * and writes cost the target no CPU. The CPU part is MESSAGE_US for each post
 * and for each RECV or IMM polled, so that half a round trip takes latency +
 * bytes/bandwidth + 2 MESSAGE_US. What a task owes for posting and polling is
 * paid where it may be switched anyway; its own now() counts it at once. The
 * profile's completion entry, kernel crossing and look-up are not charged
 * here: who models them calls pn_device_consume_cpu(). Calls that fail cost
 * nothing. Sixteen polls in vain are free, each further one takes 1 us: a
 * program that spins gets on.
 *
 * Registering with data=real faults the pages in (MADV_POPULATE), as pinning
 * does: -EFAULT when they are not mapped, or not writable and LOCAL_WRITE is
 * asked for. On kernels before 5.14 only unmapped ranges are found out.
 *
 * Stale keys: a key remembers when it was made; pn_sim_released() tells the
 * world that the program gave up a range of addresses. A key used afterwards
 * on bytes in that range is a stale use: the operation ends with -ESTALE, one
 * line says which, and pn_sim_run() fails. This is what a test's oracle rests
 * on: real adapters would have lost the bytes without a word.
 *
 * Bytes in a range that was unmapped without a word are a crash, as for any
 * code that touches them.
 *
 * data=none moves no payload, so that addresses need no backing
 * (pn_sim_reserve()): thousands of nodes, gigabytes each. Writes, reads and
 * pn_copy() touch nothing; sends and atomics are real, since protocols live on
 * them, except in reserved ranges, which read as zeros and forget what is
 * written.
 *
 * A node dies by the script, which also ends its tasks where they stand, or by
 * pn_device_close() of a device that belongs to a world, which leaves them
 * running; either way its peers miss it `detect` later. Calls on a dead node
 * do nothing or return -ENODEV.
 *
 * A port can fail alone, by the script: its links go down at both ends, at its
 * own at once; what arrived there before can still be polled; of what it did
 * last the other end may not hear. The node's other ports and its tasks go on.
 *
 * Threads: one thread runs a world with tasks. Outside tasks the thread-safe
 * part of the device contract holds for any threads; their charges add to one
 * clock.
 */
#ifndef PN_DEVICE_SIM_H
#define PN_DEVICE_SIM_H

#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

extern const struct pn_device_ops pn_sim_ops;

struct pn_sim;

/* Makes a world. params as after "sim:" ("nodes=8,cost=ou2009"), NULL or "" for
 * the defaults; script: faults (see script.h), may be NULL.
 * -EINVAL: either does not parse (logged, with the place). */
int pn_sim_open(const char *params, const char *script, struct pn_sim **out);

/* Ends a world, tasks that have not finished included. NULL is fine. */
void pn_sim_close(struct pn_sim *sim);

unsigned pn_sim_nnodes(const struct pn_sim *sim);

/* The device of a node; belongs to the world. pn_device_close() of it (from a
 * task, too) takes that node down as the end of its process would: its peers
 * see it go, its registrations die; its storage lives on with the world. */
struct pn_device *pn_sim_device(struct pn_sim *sim, unsigned node);

/* The device of a node's port on another rail; rail 0 is the above. */
struct pn_device *pn_sim_rail(struct pn_sim *sim, unsigned node, unsigned rail);
unsigned pn_sim_nrails(const struct pn_sim *sim);

/* Starts a task on a node, at the current virtual time. -ENOMEM; -ENODEV: the
 * node is dead. */
int pn_sim_spawn(struct pn_sim *sim, unsigned node, void (*fn)(void *arg),
		 void *arg);

/* Runs until every task has finished. 0; -ESTALE: a stale key was used;
 * -EDEADLK: all remaining tasks wait for what can never happen (logged, with
 * where each waits). Each is told so once, by its wait() returning -EDEADLK;
 * those that wait again stay until pn_sim_close(). */
int pn_sim_run(struct pn_sim *sim);

/* Virtual time. */
uint64_t pn_sim_now(const struct pn_sim *sim);

/* Lets ns pass without using a core. */
void pn_sim_sleep(struct pn_sim *sim, uint64_t ns);

/* The program released [addr, addr + len) on a node (munmap, MADV_DONTNEED,
 * ...), or on every node with PN_SIM_ALL_NODES: what is there later, if
 * anything, are other pages. Any thread. */
#define PN_SIM_ALL_NODES UINT32_MAX
void pn_sim_released(struct pn_sim *sim, unsigned node, const void *addr,
		     size_t len);

/* How many stale uses there were. */
uint64_t pn_sim_stale_uses(const struct pn_sim *sim);

/* Addresses without memory behind them, for data=none; until pn_sim_close().
 * NULL when there are none. */
void *pn_sim_reserve(struct pn_sim *sim, size_t len);

/* Steps taken so far: events and turns of tasks. */
uint64_t pn_sim_steps(const struct pn_sim *sim);

/* Hash of everything that happened so far, in order: equal for equal runs. */
uint64_t pn_sim_digest(const struct pn_sim *sim);

#endif
