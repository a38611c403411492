/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * process_lives -- random lives of real processes that use pinion's public
 * calls, against a model in shared memory.
 *
 * Nouns
 *   node      a place for one process at a time, which is killed, stopped and
 *             started again, with the same process id where that is permitted.
 *   driver    starts the processes, gives them their steps, kills and stops
 *             them, and checks from outside.
 *   schedule  a list of steps with the time that passes before each. It follows
 *             from its seed; what the processes make of it does not, quite.
 *   board     the model: what was sent, written and added, by whom to whom. It
 *             is written before a call and outlives the process that calls.
 *
 * What is checked. A process: every byte that arrives was sent to it, once and
 * in order; what was put stands there, what was got is what was put; each
 * atomic counts once; requests end with 0 or with errors that the manual pages
 * list and that fit what happened; closed endpoints and exposures write nowhere
 * any more; a process that ends has nothing pinned and no descriptor left. The
 * driver: no process ends by itself, none pins more than its budget, whatever
 * names a process that has ended ends in bounded time, nothing is left in
 * /dev/shm and among the abstract sockets.
 */
#ifndef PN_TESTS_FAULTS_PROCESS_LIVES_H
#define PN_TESTS_FAULTS_PROCESS_LIVES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <pinion/pinion.h>

#define LIVES_NODES	 6
#define LIVES_STEPS	 160
#define LIVES_ROOM	 ((size_t)300 << 10) /* more than a chunk of `soft` */
#define LIVES_PATIENCE_S 90

enum lives_act {
	/* of a process: */
	ACT_OPEN,  /* a context if there is none, an endpoint, an exposure */
	ACT_CLOSE, /* the endpoint; the next one has the same address */
	ACT_CLOSE_CONTEXT,
	ACT_SEND,
	ACT_RECEIVE,
	ACT_RECEIVE_NAMED,
	ACT_MOVE,  /* puts, gets it back */
	ACT_ADD,   /* atomically */
	ACT_WRITE, /* when it is granted */
	ACT_GRANT,
	ACT_CANCEL,  /* the oldest request */
	ACT_WAIT,    /* for the oldest request, for a while */
	ACT_COMPUTE, /* makes no progress for a while */
	ACT_EXIT,    /* with everything open */
	/* of the driver: */
	ACT_START, /* a process, if there is none */
	ACT_KILL,
	ACT_STOP,
	ACT_CONTINUE,
	ACT_SETTLE, /* all steps so far are done, or it takes too long */
	ACT_NKINDS,
	/* at the end, to processes: */
	ACT_CALM,    /* cancels receives and grants; receives end */
	ACT_OUTLIVE, /* requests that name the other node end */
	ACT_END,     /* closes everything; nothing is left */
};

struct lives_step {
	enum lives_act act;
	unsigned node, other;
	size_t len;
	unsigned options; /* a random number */
	unsigned us;	  /* that pass before the step */
};

struct lives_schedule {
	uint64_t seed;
	char device[64];
	unsigned nnodes;
	size_t max_bytes; /* the budget of a process */
	unsigned n;
	struct lives_step steps[LIVES_STEPS];
};

/* long_stops: also for longer than the time limits of connections. */
void lives_schedule_make(struct lives_schedule *schedule, uint64_t seed,
			 const char *device, bool long_stops);

/* As text, and from there. False: it is no schedule. */
void lives_schedule_print(const struct lives_schedule *schedule, FILE *to);
bool lives_schedule_read(struct lives_schedule *schedule, FILE *from);

/* --- the board ------------------------------------------------------------ */

#define LIVES_SENT	(LIVES_STEPS + 1)
#define LIVES_EXPOSURES (LIVES_STEPS + 1)

/* A message or conditional write. Its number and node make its key. */
struct lives_sent {
	unsigned process, life; /* of the sender */
	unsigned to;
	unsigned to_process; /* whose address it was */
	size_t len;
	_Atomic bool received;
};

/* Each node has a part of the exposed memory, which one of its processes
 * writes, one put at a time. */
struct lives_writer {
	_Atomic unsigned process; /* 0: none has */
	_Atomic unsigned begun, ended;
	_Atomic size_t len; /* of the last one that has begun */
};

struct lives_exposure {
	struct lives_writer writers[LIVES_NODES];
	_Atomic unsigned adds_begun, adds_ended;
	_Atomic bool had[LIVES_NODES * LIVES_STEPS]; /* a result of an add */
};

/* What a process tells the others. */
struct lives_card {
	struct pinion_address address; /* len 0: none */
	struct pinion_exposure_key key;
	unsigned process;  /* which of the node's: 1 is the first */
	unsigned exposure; /* which of the node's; 0: none */
};

struct lives_node {
	_Atomic unsigned version; /* of the card; odd: being written */
	struct lives_card card;
	unsigned nprocesses; /* that the driver has started */
	_Atomic unsigned nlives, nexposures, nsent;
	_Atomic unsigned ndone; /* steps that this process has done */
	struct lives_sent sent[LIVES_SENT];
	struct lives_exposure exposures[LIVES_EXPOSURES];
};

struct lives_board {
	struct lives_schedule schedule;
	struct lives_node nodes[LIVES_NODES];
	/* Of a process without trouble, at its end; 0: being counted. */
	unsigned descriptors;
	unsigned descriptors_left; /* by a process that has ended, at most */
	_Atomic uint64_t nreceived, nmoved, nadded, nwritten, nrefused;
	char why[512]; /* the first thing that is wrong */
	_Atomic bool failed;
};

static inline uint64_t lives_key(unsigned node, unsigned number)
{
	return (uint64_t)(node + 1) << 32 | number;
}

__attribute__((format(printf, 2, 3))) void lives_fail(struct lives_board *board,
						      const char *format, ...);

/* A process of a node. Returns its exit status. */
int lives_process(struct lives_board *board, unsigned node, int steps_fd);

/* --- the driver ----------------------------------------------------------- */

/* Before anything else in main(): is this a process of a schedule? */
void lives_begin(int argc, char **argv);

/* What a run has done. */
struct lives_counts {
	uint64_t received, moved, added, written, refused, processes, same_pids;
};

/* Runs a schedule. NULL: all is well; else what is wrong. */
const char *lives_run(const struct lives_schedule *schedule,
		      struct lives_counts *counts);

#endif
