/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * registry -- the helpers of a user's processes on this machine know each
 * other.
 *
 * They meet in a segment of shared memory, entry by the version of its layout,
 * by user and PID namespace (where a PID means something), for the user alone.
 * Each member has a slot in it: who it is, on which cores it may run, how much
 * memory it looks after. Nobody asks anybody: everyone reads all slots and
 * decides for itself, and share.h gives equal answers.
 *
 * Life of the segment: whoever comes first makes it; all zero is a good and
 * empty one, so that making it needs no lock. It stays when the last has left
 * (at most 48 KiB), since removing it could part those who just come.
 *
 * Life of a slot: taken by one compare-and-swap of its owner, which is PID and
 * start time in one word; filled; announced; given back by leaving. A process
 * that dies gives nothing back: its slot is passed over from then on, since no
 * process has that PID and start time, and taken by the next who comes. There
 * is no lock that a dead process could hold.
 *
 * At rest: a slot counts while owner == announced and that process is alive.
 * A reader looks at the owner before and after what it reads, so that it never
 * mixes the fields of two processes.
 *
 * Refused: a segment of another user or open to others, of another version or
 * size, or anything that is not a plain file.
 * Threads: one for each registry. fork: the child's copy is the parent's, and
 * leaving it leaves the parent's slot alone.
 */
#ifndef PN_HELPER_REGISTRY_H
#define PN_HELPER_REGISTRY_H

#include <stddef.h>
#include <stdint.h>

#include "helper/share.h"

struct pn_helper_registry;

#define PN_HELPER_REGISTRY_NAME_BYTES 64

/* Where the helpers of this user meet, as for shm_open(). */
void pn_helper_registry_name(char name[PN_HELPER_REGISTRY_NAME_BYTES]);

/* Joins those who meet under a name (NULL: pn_helper_registry_name()) with 0
 * bytes. -EPERM: the segment is not the user's alone; -EPROTO: of another
 * version; -EUSERS: all slots are taken; or as shm_open() and mmap() fail.
 * Logged. */
int pn_helper_registry_join(const char *name, const struct pn_cores *cores,
			    struct pn_helper_registry **out);
void pn_helper_registry_leave(
	struct pn_helper_registry *registry); /* NULL is fine */

/* Says how much memory this one looks after. */
void pn_helper_registry_publish(struct pn_helper_registry *registry,
				uint64_t bytes);

/* The members there are, and which of them this one is. The array is the
 * registry's, until the next call. Reads a file of /proc for each other
 * process. 0: somebody of this user has written over the segment. */
unsigned pn_helper_registry_read(struct pn_helper_registry *registry,
				 const struct pn_member **members,
				 unsigned *me);

#endif
