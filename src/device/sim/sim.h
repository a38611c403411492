/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sim -- simulates a cluster in one process, in virtual time.
 *
 * Nouns
 *   world  N nodes, one virtual clock, a queue of events. Deterministic: the
 *          same seed, spec and program give the same run, byte for byte.
 *   node   `cores` virtual CPUs, and one device (pn_sim_device()), or several
 *          with `rails`: ports with wires of their own (pn_sim_rail()).
 *          `rail_bandwidth` sets the ratio of their bandwidths; ports after the
 *          first take `rail_setup` longer to attach. A wait for one port is a
 *          wait for all ports of the node.
 *   task   a coroutine on a node: a thread of the simulated program. It runs
 *          until it waits or uses CPU time. Nothing preempts it in between, so
 *          tasks need no locks between each other. CPU time occupies one of the
 *          node's cores: tasks take turns of `slice` when there are more tasks
 *          than cores. Other tasks may run during wait, block, register,
 *          deregister, copy, consume_cpu, pn_sim_sleep() and, after many empty
 *          polls, poll: hold no lock there that another task takes, since all
 *          tasks share one thread. post, return_buffer, rekey, now, wake and
 *          unblock never switch.
 *   host   code that calls a device from outside every task (a plain program
 *          that opened "sim"). It counts as a task of that node on a core of
 *          its own; when it waits or uses CPU time, it runs the world. A wait
 *          without deadline gives other threads ten seconds of real time to
 *          change something (none when opened single_threaded) before it
 *          returns -EDEADLK; a wait with a deadline jumps there at once.
 *
 * Life: pn_sim_open() -> pn_sim_spawn()... -> pn_sim_run() -> pn_sim_close().
 * pn_device_open("sim:...") makes a private world and returns its node 0.
 *
 * Costs come from the profile (profiles.h). The calling task is charged for
 * registering and deregistering, copying, and the CPU part of each message. A
 * message leaves when the node's link is free, occupies the link for
 * bytes/bandwidth at both ends and arrives a latency later, in order per pair
 * of nodes. Reads and writes cost the target no CPU. The CPU part is MESSAGE_US
 * for each post and for each RECV or IMM polled, so that half a round trip
 * takes latency + bytes/bandwidth + 2 MESSAGE_US. The CPU time of posting and
 * polling is deferred to the next point where the task may be switched; the
 * task's own now() includes it at once. The profile's completion entry, kernel
 * crossing and look-up are not charged here: code that models them calls
 * pn_device_consume_cpu(). Calls that fail cost nothing. Sixteen empty polls in
 * a row are free, each further one takes 1 us, so that a program that spins
 * makes progress.
 *
 * Registering with data=real faults the pages in (MADV_POPULATE), as pinning
 * does: -EFAULT when they are not mapped, or not writable and LOCAL_WRITE is
 * asked for. On kernels before 5.14 only unmapped ranges are detected.
 *
 * Stale keys: pn_sim_released() tells the world that the program released a
 * range of addresses. The use of an older key on bytes in that range is a stale
 * use: the operation ends with -ESTALE, one line is logged, and pn_sim_run()
 * fails. Tests use this as their oracle: a real adapter would lose the bytes
 * silently.
 *
 * Access to a range that was unmapped without pn_sim_released() crashes, as in
 * any code.
 *
 * data=none moves no payload, so that addresses need no memory behind them
 * (pn_sim_reserve()): thousands of nodes, gigabytes each. Writes, reads and
 * pn_copy() access nothing. Sends and atomics are real, since protocols need
 * them, except in reserved ranges, which read as zeros and ignore writes.
 *
 * A node dies by the script, which also ends its tasks, or by pn_device_close()
 * of a device that belongs to a world, which leaves the tasks running. Either
 * way its peers detect the death `detect` later. Calls on a dead node do
 * nothing or return -ENODEV.
 *
 * A single port can fail by the script: its links go down at both ends, at its
 * own end at once. What arrived there before can still be polled; the other end
 * may miss the completions of its last operations. The node's other ports and
 * its tasks go on.
 *
 * Threads: one thread runs a world with tasks. Outside tasks the thread-safe
 * part of the device interface is valid for any threads; their CPU times add to
 * one clock.
 */
#ifndef PN_DEVICE_SIM_H
#define PN_DEVICE_SIM_H

#include <stddef.h>
#include <stdint.h>

#include "device/device.h"

extern const struct pn_device_ops pn_sim_ops;

struct pn_sim;

/* Makes a world. params: the text after "sim:" ("nodes=8,cost=ou2009"), NULL or
 * "" for the defaults; script: faults (see script.h), may be NULL. -EINVAL:
 * either does not parse (logged, with the place). */
int pn_sim_open(const char *params, const char *script, struct pn_sim **out);

/* Ends a world with all tasks that have not finished. sim may be NULL. */
void pn_sim_close(struct pn_sim *sim);

unsigned pn_sim_nnodes(const struct pn_sim *sim);

/* The device of a node; it belongs to the world. pn_device_close() of it (from
 * a task, too) takes the node down as the end of its process would: its peers
 * see it go down, its registrations end. Its storage stays until the world
 * ends. */
struct pn_device *pn_sim_device(struct pn_sim *sim, unsigned node);

/* The device of a node's port on a rail; rail 0 is pn_sim_device(). */
struct pn_device *pn_sim_rail(struct pn_sim *sim, unsigned node, unsigned rail);
unsigned pn_sim_nrails(const struct pn_sim *sim);

/* Starts a task on a node, at the current virtual time. -ENOMEM; -ENODEV: the
 * node is dead. */
int pn_sim_spawn(struct pn_sim *sim, unsigned node, void (*fn)(void *arg),
		 void *arg);

/* Runs until every task has finished. 0; -ESTALE: a stale key was used;
 * -EDEADLK: all remaining tasks wait for something that can never happen
 * (logged, with where each waits). The wait() of each returns -EDEADLK once;
 * tasks that wait again stay until pn_sim_close(). */
int pn_sim_run(struct pn_sim *sim);

/* The virtual time. */
uint64_t pn_sim_now(const struct pn_sim *sim);

/* Lets ns pass without using a core. */
void pn_sim_sleep(struct pn_sim *sim, uint64_t ns);

/* The program released [addr, addr + len) on a node (munmap, MADV_DONTNEED,
 * ...), or on every node with PN_SIM_ALL_NODES: whatever is mapped there later
 * has other pages. Any thread. */
#define PN_SIM_ALL_NODES UINT32_MAX
void pn_sim_released(struct pn_sim *sim, unsigned node, const void *addr,
		     size_t len);

/* The number of stale uses so far. */
uint64_t pn_sim_stale_uses(const struct pn_sim *sim);

/* Addresses without memory behind them, for data=none; valid until
 * pn_sim_close(). NULL: none are left. */
void *pn_sim_reserve(struct pn_sim *sim, size_t len);

/* Steps so far: events and turns of tasks. */
uint64_t pn_sim_steps(const struct pn_sim *sim);

/* A hash of everything that happened so far, in order: equal for equal runs. */
uint64_t pn_sim_digest(const struct pn_sim *sim);

#endif
