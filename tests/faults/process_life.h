/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * process_life -- a process of a schedule: what it has open, and its requests.
 * process_life.c takes the steps, process_requests.c starts requests and
 * compares their ends with the board. Whatever is wrong ends the process.
 */
#ifndef PN_TESTS_FAULTS_PROCESS_LIFE_H
#define PN_TESTS_FAULTS_PROCESS_LIFE_H

#include "process_lives.h"

enum request_kind {
	SEND,
	RECEIVE,
	PUT,
	GET,
	ADD,
	WRITE,
	GRANT,
	REQUEST_NKINDS
};

struct request {
	struct pinion_request *handle; /* NULL: it has ended */
	enum request_kind kind;
	unsigned other;	 /* the node that it names, or LIVES_NODES */
	unsigned order;	 /* of posting */
	unsigned number; /* of what is sent or put */
	char *buf;
	size_t len;
	struct pinion_remote *remote;
	struct lives_exposure *exposure; /* of the remote */
	uint64_t result;		 /* of an add */
};

/* A message that the open endpoint has received. */
struct arrival {
	unsigned from, process, life; /* of its sender */
	unsigned order;		      /* of the receive */
	unsigned number;	      /* of the message */
};

/* Memory that nobody may write to any more. */
struct relic {
	char *memory;
	size_t len;
};

#define MAX_REQUESTS (2 * LIVES_STEPS + 2)
#define MAX_RELICS   (LIVES_STEPS * 3)

struct life {
	struct lives_board *board;
	struct lives_node *node; /* on the board */
	unsigned number;	 /* of the node */
	unsigned process, life;	 /* of the process; of its endpoint */
	int steps_fd;
	struct pinion_context *context;
	struct pinion_endpoint *ep; /* NULL: none is open */
	struct pinion_exposure *exposure;
	char *exposed;
	unsigned exposure_number; /* 0: none */
	unsigned order;
	struct request requests[MAX_REQUESTS];
	unsigned nrequests;
	struct arrival arrivals[MAX_REQUESTS];
	unsigned narrivals;
	struct relic relics[MAX_RELICS];
	unsigned nrelics;
};

/* What is written to relics. */
#define RELIC 0x5a

_Noreturn void life_end(struct life *life, const char *file, int line,
			const char *fact);

#define EXPECT(life, fact)                                         \
	do {                                                       \
		if (!(fact))                                       \
			life_end(life, __FILE__, __LINE__, #fact); \
	} while (0)

/* 0, or an error that fits what happens here and that the page of the call
 * lists; all others end the process. */
bool life_succeeds(struct life *life, const char *call, int ret);

/* Bytes of a node's own memory, for as long as the process lives. */
char *life_map(struct life *life, size_t len);

/* A node's part of what is exposed, and the counter behind all of them. */
#define EXPOSED_BYTES  (LIVES_NODES * LIVES_ROOM + 4096)
#define COUNTER_OFFSET (LIVES_NODES * LIVES_ROOM)

/* Whether bytes are those of a key (lives_key()). */
bool bytes_hold(const char *buf, size_t len, uint64_t key);

void request_start(struct life *life, const struct lives_step *step);
void request_cancel_oldest(struct life *life);
/* Waits for the oldest request, for a while. */
void request_wait_oldest(struct life *life, unsigned us);
/* Makes progress. */
void requests_look(struct life *life);
/* Cancels receives and grants, and waits for the ends of receives. */
void requests_calm(struct life *life);
/* Waits for the end of what names a node. */
void requests_outlive(struct life *life, unsigned other);
/* The endpoint has been closed. */
void requests_abandon(struct life *life);
void relic_add(struct life *life, char *memory, size_t len);

#endif
