/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * session -- two endpoints that exchange messages.
 *
 * The leader runs the given function; the follower carries out its orders,
 * which are messages themselves. On real devices the ends are two processes
 * (the follower is forked before any device is opened, and ends when the leader
 * does); on `sim` they are tasks on two nodes of one simulation.
 *
 * A trial moves messages of one size under one protocol, from new buffers, each
 * used `uses` times. Mapping, filling and checking the buffers and ending their
 * registrations is not timed. A long message is answered by eight bytes, and
 * time runs from the first send to the last arrival, including the answers
 * between: a deregistration that one message leaves behind is paid by the next.
 * An eager message is answered by one of the same size, and half the time
 * counts: a ping-pong. Trials with `auto` belong to cells: `auto` begins each
 * cell without knowledge.
 *
 * At rest the follower waits for an order, and no operation is in flight.
 * Threads: none; the calling process must have a single thread.
 */
#ifndef PN_BENCH_TALK_H
#define PN_BENCH_TALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <pinion/pinion.h>

#include "context.h"
#include "tools/pinion/spec.h"

/* Memory of raw notifications, shared by the processes. */
struct pn_session_flags;

#define PN_SESSION_CELLS 64

struct pn_session {
	struct pinion_context *context; /* on `sim` without pinion_open() */
	struct pn_device *device;	/* of the context */
	struct pinion_endpoint *ep;
	struct pinion_peer *peer;	/* the other end */
	struct pn_session_flags *flags; /* NULL on `sim` */
	uint64_t notified;		/* number of notifications */
	/* Knowledge of `auto` about the latest cells. */
	struct pn_session_knowledge {
		uint64_t cell;
		struct pn_protocol_selector *knows;
	} knowledge[PN_SESSION_CELLS];
	struct pn_address other; /* of the other end's device */
};

typedef int pn_session_fn(struct pn_session *session, void *arg);

/* Runs fn between two ends on devices of spec. Returns the result of fn, or an
 * errno if fn did not run. May sleep. */
int pn_session_run(const struct pn_spec *spec, pn_session_fn *fn, void *arg);

struct pn_session_trial {
	int protocol; /* enum pn_protocol_id */
	/* `auto` uses its knowledge from trials with the same cell number only;
	 * the last PN_SESSION_CELLS numbers are kept. 0 is one common cell. */
	uint64_t cell;
	size_t bytes;
	size_t offset;	  /* offset of the buffers in their first page */
	unsigned buffers; /* number of buffers at each end */
	unsigned uses;	  /* uses of each buffer */
	bool fresh;	  /* receive buffers have untouched pages */
	bool check;	  /* compare every byte at the receiver */
	uint64_t seed;	  /* seed of the patterns, with check */
};

struct pn_session_result {
	double ns;	   /* per message, one way */
	size_t peak_bytes; /* peak of registered bytes, at the end with more */
	size_t wrong;	   /* offset of the first wrong byte, or SIZE_MAX */
	int taken;	   /* the protocol of most messages */
};

/* Runs the body of a benchmark between two endpoints, on the device of `values`
 * (which begin with struct pn_bench_values), with the report of `run` begun.
 * Returns enum pn_exit. */
struct pn_bench_run;
struct pn_command;
int pn_session_bench(struct pn_bench_run *run, const void *values,
		     const struct pn_command *command, pn_session_fn *body,
		     void *arg);

/* Beginning of a body: sets run->virtual_time and prints the head of the
 * report. */
void pn_session_begin(struct pn_session *session, struct pn_bench_run *run,
		      const struct pn_command *command);

/* A job of the follower, ordered by the leader, with one number as argument. */
typedef int pn_session_job(struct pn_session *session, uint64_t arg);

/* Starts a job at the follower. Leader and job then communicate with messages
 * (pn_session_send() and pn_session_recv() wait for their completion), or with
 * the device only, after pn_session_quiesce(). */
int pn_session_start_job(struct pn_session *session, pn_session_job *job,
			 uint64_t arg);
int pn_session_send(struct pn_session *session, const void *buf, size_t len);
int pn_session_recv(struct pn_session *session, void *buf, size_t len);
int pn_session_quiesce(struct pn_session *session, struct pn_peer **peer);

/* Whether messages of that size can use that protocol. */
bool pn_session_protocol_applies(const struct pn_session *session, int protocol,
				 size_t bytes);

/* Runs a trial. -ECONNRESET: the follower has ended. */
int pn_session_run_trial(struct pn_session *session,
			 const struct pn_session_trial *trial,
			 struct pn_session_result *result);

/* Cost without the message layer: eight bytes in memory that both processes
 * poll (-EOPNOTSUPP on `sim`), and a put between registered buffers. *ns is per
 * operation, one way. */
int pn_session_raw_notify(struct pn_session *session, unsigned times,
			  double *ns);
int pn_session_raw_put(struct pn_session *session, size_t bytes, unsigned times,
		       double *ns);

#endif
