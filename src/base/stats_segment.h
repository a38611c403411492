/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stats_segment -- the counters of a process in shared memory, for other
 * processes to read.
 *
 * The objects that count (contexts, caches, endpoints, ...) are in a file of
 * shared memory, so that others can read their counters at any time, also when
 * the process is stuck or stopped, or was killed a moment ago. Nothing is
 * copied and no thread is needed: counting is an increment in memory, and a
 * reader finds the counters where they are.
 *
 * Nouns
 *   segment  the file, /dev/shm/pinion-UID/PID-NAMESPACE, mode 0600 in a folder
 *            0700: private to the user. One per process; its format is below,
 *            and tools/pinion has the reader.
 *   block    an object in the segment, or a table of rows: which kind it is,
 *            where its fields are, and the object itself.
 *   field    a counter, gauge or text of a block: name, type, place and width.
 *            Blocks describe themselves, so that a reader needs no table that
 *            could be of another version than the program.
 *   owner    a block may belong to another (a thread's hits to its cache):
 *            fields of one name add up.
 *
 * Life: the first pn_stats_alloc() makes the file; freeing the last block
 * removes it, and so does exit(). What a crash leaves behind is removed by the
 * next process of the same user, by readers, and at the end of a `pinion
 * mpirun`.
 * Where there can be no segment (no /dev/shm, no room in it, too old a kernel),
 * objects are on the heap and nobody sees them: pn_stats_alloc() fails only
 * without memory.
 *
 * At rest: blocks lie one behind the other from head_bytes to `used`; a freed
 * block is reused by the next one of its size.
 * Threads: any. fork: the child's copy of the segment becomes private memory
 * (pn_stats_in_child()); its own segment begins with its next block.
 * Caveat: a reader sees each counter as it is, not all as of one moment.
 */
#ifndef PN_BASE_STATS_SEGMENT_H
#define PN_BASE_STATS_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pn_stats_type {
	PN_STATS_COUNTER, /* grows */
	PN_STATS_GAUGE,
	PN_STATS_BYTES,	  /* a gauge */
	PN_STATS_ADDRESS, /* or another number printed in hex */
	PN_STATS_TEXT,	  /* ends with 0, or with its width */
	PN_STATS_REAL,	  /* a double */
	PN_STATS_NTYPES
};

/* As in the file. */
struct pn_stats_field {
	char name[24]; /* ends with 0 */
	uint32_t at;   /* in the object, or in each row */
	uint16_t bytes;
	uint16_t type;
};

_Static_assert(sizeof(struct pn_stats_field) == 32, "part of a format");

#define PN_STATS_FIELD(type_, struct_, member_, name_)                    \
	{                                                                 \
		name_, offsetof(struct_, member_),                        \
			sizeof(((struct_ *)0)->member_), PN_STATS_##type_ \
	}

struct pn_stats_kind {
	const char *name; /* at most 15 characters */
	size_t bytes;	  /* of the object, or of a row */
	unsigned nrows;	  /* 0: an object */
	const struct pn_stats_field *fields;
	unsigned nfields;
};

/* An object of a kind, zeroed and aligned to a cache line. owner: an object in
 * the segment that it belongs to, or NULL. shown: in the segment; else on the
 * heap. NULL: no memory. */
void *pn_stats_alloc(const struct pn_stats_kind *kind, const void *owner,
		     bool shown);

/* NULL is fine. In a forked child, leaves the objects of the parent alone. */
void pn_stats_free(void *object);

/* Whether no counter of an object is below zero; for checkers. */
bool pn_stats_counters_valid(const struct pn_stats_kind *kind,
			     const void *object);

/* In a forked child, before it uses anything in the segment. */
void pn_stats_in_child(void);

/* Removes the segments of processes of this user that have ended, of those in
 * the caller's pid namespace. Returns how many segments there are of children
 * of the calling process, zombies included. */
unsigned pn_stats_sweep(void);

/* --- the format ----------------------------------------------------------- */

#define PN_STATS_MAGIC	   "pinion\nB"
#define PN_STATS_VERSION   1
#define PN_STATS_MAX_BYTES ((size_t)64 << 20) /* bytes */

struct pn_stats_head {
	char magic[8];
	uint32_t version;
	uint32_t head_bytes; /* where blocks begin */
	uint32_t pid;
	uint32_t reserved;
	uint64_t namespace;    /* of the pid */
	uint64_t opened_ns;    /* CLOCK_REALTIME */
	_Atomic uint64_t used; /* where blocks end */
	char command[64];      /* of the process, as its argv[0] */
	char library[16];      /* version of pinion */
};

struct pn_stats_block {
	uint64_t bytes; /* of it all; a multiple of the cache line */
	_Atomic uint32_t live;
	uint32_t nfields; /* behind this, struct pn_stats_field each */
	uint64_t owner;	  /* where that block begins; 0: none */
	uint32_t nrows;	  /* at least 1 */
	uint32_t row_bytes;
	uint64_t data_at; /* in the block */
	char kind[16];
};

/* "/dev/shm/pinion-1000"; buf of PN_STATS_PATH_BYTES. */
#define PN_STATS_PATH_BYTES 64
const char *pn_stats_folder(char *buf);

/* The number of this process's pid namespace; 0: not known. */
uint64_t pn_stats_namespace(void);

#endif
