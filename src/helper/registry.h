/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * registry -- the helpers of a user's processes on this machine, in shared
 * memory.
 *
 * The segment is named by the version of its layout, the user and the PID
 * namespace (in which a PID is unique); only the user may open it. Each member
 * has a slot: its process, the cores where it may run, how much memory it
 * manages. There is no protocol: every member reads all slots and decides for
 * itself, and share.h gives all of them the same answer.
 *
 * Life of the segment: the first member creates it. All zero is a valid empty
 * segment, so that creating it needs no lock. The segment stays when the last
 * member has left (at most 48 KiB): removing it could separate members that
 * join at that moment.
 *
 * Life of a slot: taken by one compare-and-swap of its owner, which is PID and
 * start time in one word; filled; announced; freed by leaving. A process that
 * dies frees nothing: no process has that PID and start time any more, so
 * readers skip the slot and the next member takes it. There is no lock that a
 * dead process could hold.
 *
 * At rest: a slot counts while owner == announced and that process is alive. A
 * reader reads the owner before and after the other fields, so that it never
 * mixes the fields of two processes.
 *
 * Refused: a segment that belongs to another user or is open to others, that
 * has another version or size, or that is not a plain file.
 * Threads: one for each struct pn_helper_registry. fork: the child's copy is
 * the parent's; leaving it in the child leaves the parent's slot alone.
 */
#ifndef PN_HELPER_REGISTRY_H
#define PN_HELPER_REGISTRY_H

#include <stddef.h>
#include <stdint.h>

#include "helper/share.h"

struct pn_helper_registry;

#define PN_HELPER_REGISTRY_NAME_BYTES 64

/* The name of this user's segment, as for shm_open(). */
void pn_helper_registry_name(char name[PN_HELPER_REGISTRY_NAME_BYTES]);

/* Joins the registry of that name (NULL: pn_helper_registry_name()) with 0
 * bytes. -EPERM: the segment is not the user's alone; -EPROTO: it is of another
 * version; -EUSERS: all slots are taken; or as shm_open() and mmap() fail.
 * Logged. */
int pn_helper_registry_join(const char *name, const struct pn_cores *cores,
			    struct pn_helper_registry **out);
void pn_helper_registry_leave(
	struct pn_helper_registry *registry); /* NULL is fine */

/* Publishes how much memory this member manages. */
void pn_helper_registry_publish(struct pn_helper_registry *registry,
				uint64_t bytes);

/* Returns the number of members, sets *members to them and *me to the index of
 * this one. The array is valid until the next call. Reads a file of /proc for
 * each other process. 0: a process of this user has written over the segment.
 */
unsigned pn_helper_registry_read(struct pn_helper_registry *registry,
				 const struct pn_member **members,
				 unsigned *me);

#endif
