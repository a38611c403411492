/* SPDX-License-Identifier: BSD-2-Clause */
#include "process_life.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "message/party.h"

#define PATIENCE_US ((uint64_t)LIVES_PATIENCE_S * 1000000)
#define WRITE_TAG   7

static const char *const calls[REQUEST_NKINDS] = {
	"pinion_send",
	"pinion_recv",
	"pinion_put",
	"pinion_get",
	"pinion_atomic_fetch_add",
	"pinion_put_when",
	"pinion_grant",
};

/* --- beginnings ----------------------------------------------------------- */

/* Reads what a node tells. False: nothing yet, or it is just being written. */
static bool read_card(struct life *life, unsigned other,
		      struct lives_card *card)
{
	struct lives_node *node = &life->board->nodes[other];
	unsigned version = atomic_load(&node->version);

	if (version % 2)
		return false;
	*card = node->card;
	atomic_thread_fence(memory_order_acquire);
	return atomic_load(&node->version) == version && card->address.len;
}

static struct request *new_request(struct life *life, enum request_kind kind,
				   unsigned other, size_t len)
{
	struct request *request = &life->requests[life->nrequests];

	EXPECT(life, life->nrequests < MAX_REQUESTS);
	*request = (struct request){ .kind = kind,
				     .other = other,
				     .order = life->order++,
				     .buf = malloc(len + 1),
				     .len = len };
	EXPECT(life, request->buf);
	return request;
}

/* A request that has begun, or has not. */
static void begin(struct life *life, struct request *request, int ret)
{
	if (life_succeeds(life, calls[request->kind], ret))
		life->nrequests++;
	else
		free(request->buf);
}

/* Notes on the board what is going to be sent. */
static void note_sent(struct life *life, struct request *request,
		      unsigned to_process)
{
	struct lives_sent *sent;

	request->number = atomic_fetch_add(&life->node->nsent, 1);
	EXPECT(life, request->number < LIVES_SENT);
	sent = &life->node->sent[request->number];
	*sent = (struct lives_sent){ .process = life->process,
				     .life = life->life,
				     .to = request->other,
				     .to_process = to_process,
				     .len = request->len };
}

/* The bytes begin with their key, and follow from it. */
static void fill(char *buf, size_t len, uint64_t key)
{
	memcpy(buf, &key, len < sizeof(key) ? len : sizeof(key));
	if (len > sizeof(key))
		pattern_fill(buf + sizeof(key), len - sizeof(key), key);
}

bool bytes_hold(const char *buf, size_t len, uint64_t key)
{
	return !memcmp(buf, &key, len < sizeof(key) ? len : sizeof(key)) &&
	       (len <= sizeof(key) ||
		pattern_holds(buf + sizeof(key), len - sizeof(key), key));
}

/* A message, its receive, a conditional write, its grant. */
static void start_message(struct life *life, enum request_kind kind,
			  const struct lives_step *step, bool named)
{
	bool sends = kind == SEND || kind == WRITE;
	struct pinion_message m = { .size = sizeof(m) };
	struct lives_card card = { 0 };
	size_t len = sends ? step->len : LIVES_ROOM;
	struct request *request;
	int ret = 0;

	if (named && !read_card(life, step->other, &card))
		return;
	/* A write brings its whole key. */
	if (kind == WRITE && len < sizeof(uint64_t))
		len = sizeof(uint64_t);
	request =
		new_request(life, kind, named ? step->other : LIVES_NODES, len);
	if (named)
		ret = pinion_peer_add(life->ep, &card.address, &m.peer);
	EXPECT(life, !ret);
	m.buf = request->buf;
	m.len = request->len;
	m.tag = WRITE_TAG;
	if (sends)
		note_sent(life, request, card.process);
	if (kind == SEND)
		m.tag = lives_key(life->number, request->number);
	if (sends)
		fill(m.buf, m.len, lives_key(life->number, request->number));
	if (kind == RECEIVE)
		m.ignore = ~UINT64_C(0);
	ret = kind == SEND	? pinion_send(life->ep, &m, &request->handle)
	      : kind == RECEIVE ? pinion_recv(life->ep, &m, &request->handle)
	      : kind == WRITE ? pinion_put_when(life->ep, &m, &request->handle)
			      : pinion_grant(life->ep, &m, &request->handle);
	begin(life, request, ret);
}

static bool moves_to(const struct life *life, unsigned other)
{
	for (unsigned i = 0; i < life->nrequests; i++) {
		const struct request *request = &life->requests[i];

		if (request->handle && request->other == other &&
		    (request->kind == PUT || request->kind == GET))
			return true;
	}
	return false;
}

/* Opens what a node exposes. NULL: nothing, or it cannot be used. */
static struct pinion_remote *open_remote(struct life *life, unsigned other,
					 struct lives_exposure **exposure)
{
	struct pinion_remote *remote = NULL;
	struct pinion_peer *peer;
	struct lives_card card;

	if (!read_card(life, other, &card) || !card.exposure)
		return NULL;
	*exposure = &life->board->nodes[other].exposures[card.exposure];
	EXPECT(life, !pinion_peer_add(life->ep, &card.address, &peer));
	EXPECT(life, !pinion_remote_open(life->ep, peer, &card.key, &remote));
	return remote;
}

static void start_put(struct life *life, const struct lives_step *step)
{
	struct pinion_move move = { .size = sizeof(move),
				    .offset = life->number * LIVES_ROOM,
				    .len = step->len };
	struct lives_exposure *exposure;
	struct lives_writer *writer;
	struct request *request;
	unsigned nobody = 0;
	int ret;

	if (moves_to(life, step->other))
		return;
	move.remote = open_remote(life, step->other, &exposure);
	if (!move.remote)
		return;
	/* What a process that was killed had put may arrive later. */
	writer = &exposure->writers[life->number];
	if (!atomic_compare_exchange_strong(&writer->process, &nobody,
					    life->process) &&
	    nobody != life->process) {
		pinion_remote_close(move.remote);
		return;
	}
	request = new_request(life, PUT, step->other, step->len);
	request->remote = move.remote;
	request->exposure = exposure;
	request->number = atomic_fetch_add(&writer->begun, 1) + 1;
	writer->len = step->len; /* behind `begun`, see check_writer() */
	fill(request->buf, step->len, lives_key(life->number, request->number));
	move.buf = request->buf;
	ret = pinion_put(life->ep, &move, &request->handle);
	if (ret)
		pinion_remote_close(move.remote);
	begin(life, request, ret);
}

static void start_get(struct life *life, const struct request *put)
{
	struct request *request = new_request(life, GET, put->other, put->len);
	struct pinion_move move = { .size = sizeof(move),
				    .remote = put->remote,
				    .offset = life->number * LIVES_ROOM,
				    .buf = request->buf,
				    .len = put->len };
	int ret;

	request->remote = put->remote;
	request->exposure = put->exposure;
	request->number = put->number;
	memset(request->buf, 0, put->len);
	ret = pinion_get(life->ep, &move, &request->handle);
	if (ret)
		pinion_remote_close(put->remote);
	begin(life, request, ret);
}

static void start_add(struct life *life, const struct lives_step *step)
{
	struct pinion_atomic add = { .size = sizeof(add),
				     .offset = COUNTER_OFFSET,
				     .operand = 1 };
	struct lives_exposure *exposure;
	struct request *request;
	int ret;

	add.remote = open_remote(life, step->other, &exposure);
	if (!add.remote)
		return;
	request = new_request(life, ADD, step->other, 0);
	request->remote = add.remote;
	request->exposure = exposure;
	add.result = &request->result;
	atomic_fetch_add(&exposure->adds_begun, 1);
	ret = pinion_atomic_fetch_add(life->ep, &add, &request->handle);
	if (ret)
		pinion_remote_close(add.remote);
	begin(life, request, ret);
}

void request_start(struct life *life, const struct lives_step *step)
{
	if (!life->ep)
		return;
	switch (step->act) {
	case ACT_SEND:
		start_message(life, SEND, step, true);
		break;
	case ACT_RECEIVE:
	case ACT_RECEIVE_NAMED:
		start_message(life, RECEIVE, step,
			      step->act == ACT_RECEIVE_NAMED);
		break;
	case ACT_MOVE:
		start_put(life, step);
		break;
	case ACT_ADD:
		start_add(life, step);
		break;
	default:
		start_message(life, step->act == ACT_WRITE ? WRITE : GRANT,
			      step, true);
	}
}

/* --- ends ----------------------------------------------------------------- */

/* Of two messages of one life, the receive of the earlier one was posted
 * earlier. */
static void check_order(struct life *life, struct arrival new)
{
	for (unsigned i = 0; i < life->narrivals; i++) {
		const struct arrival *old = &life->arrivals[i];

		if (old->from == new.from && old->process == new.process &&
		    old->life == new.life)
			EXPECT(life, (old->order < new.order) ==
					     (old->number < new.number));
	}
	life->arrivals[life->narrivals++] = new;
}

static void check_arrival(struct life *life, const struct request *request,
			  const struct pinion_completion *end)
{
	struct lives_board *board = life->board;
	uint64_t key = end->tag;
	unsigned from, number;
	struct lives_sent *sent;

	if (request->kind == GRANT)
		memcpy(&key, request->buf, sizeof(key));
	from = (unsigned)(key >> 32) - 1;
	number = (uint32_t)key;
	EXPECT(life, from < board->schedule.nnodes &&
			     number < board->nodes[from].nsent);
	sent = &board->nodes[from].sent[number];
	EXPECT(life, sent->to == life->number);
	EXPECT(life, sent->to_process == life->process);
	EXPECT(life, !atomic_exchange(&sent->received, true));
	EXPECT(life, end->len == sent->len);
	EXPECT(life, request->other == LIVES_NODES || request->other == from);
	EXPECT(life, bytes_hold(request->buf, end->len, key));
	if (request->kind == RECEIVE)
		check_order(life,
			    (struct arrival){ from, sent->process, sent->life,
					      request->order, number });
	if (request->kind == RECEIVE)
		board->nreceived++;
	else
		board->nwritten++;
}

static void end_put(struct life *life, const struct request *request)
{
	request->exposure->writers[life->number].ended = request->number;
	start_get(life, request);
}

static void end_add(struct life *life, const struct request *request)
{
	struct lives_exposure *exposure = request->exposure;

	atomic_fetch_add(&exposure->adds_ended, 1);
	EXPECT(life, request->result < exposure->adds_begun);
	EXPECT(life, !atomic_exchange(&exposure->had[request->result], true));
	life->board->nadded++;
}

static void end_well(struct life *life, const struct request *request,
		     const struct pinion_completion *end)
{
	switch (request->kind) {
	case RECEIVE:
	case GRANT:
		check_arrival(life, request, end);
		break;
	case PUT:
		end_put(life, request);
		break;
	case GET:
		EXPECT(life,
		       bytes_hold(request->buf, request->len,
				  lives_key(life->number, request->number)));
		life->board->nmoved++;
		break;
	case ADD:
		end_add(life, request);
		break;
	default:
		break;
	}
}

/* The request has ended. */
static void finish(struct life *life, struct request *request,
		   const struct pinion_completion *end)
{
	request->handle = NULL;
	if (life_succeeds(life, calls[request->kind], end->status))
		end_well(life, request, end);
	if (request->remote && (request->kind != PUT || end->status))
		pinion_remote_close(request->remote);
	free(request->buf);
	request->buf = NULL;
}

void requests_look(struct life *life)
{
	struct pinion_completion end;

	if (!life->ep)
		return;
	EXPECT(life, !pinion_poll(life->ep, NULL, 0, 0));
	for (unsigned i = 0; i < life->nrequests; i++) {
		struct request *request = &life->requests[i];

		if (request->handle &&
		    pinion_test(life->ep, request->handle, &end) != -EAGAIN)
			finish(life, request, &end);
	}
}

static struct request *oldest(struct life *life)
{
	for (unsigned i = 0; life->ep && i < life->nrequests; i++)
		if (life->requests[i].handle)
			return &life->requests[i];
	return NULL;
}

void request_cancel_oldest(struct life *life)
{
	struct request *request = oldest(life);

	if (request)
		EXPECT(life, !pinion_cancel(life->ep, request->handle));
}

void request_wait_oldest(struct life *life, unsigned us)
{
	struct request *request = oldest(life);
	struct pinion_completion end;

	if (request &&
	    pinion_wait(life->ep, request->handle, us, &end) != -ETIMEDOUT)
		finish(life, request, &end);
}

/* By sleeping: nobody is woken by chance. */
static void wait_for_end(struct life *life, struct request *request)
{
	struct pinion_completion end;

	if (pinion_wait(life->ep, request->handle, PATIENCE_US, &end) ==
	    -ETIMEDOUT) {
		lives_fail(life->board, "node %u: %s that names node %u hangs",
			   life->number, calls[request->kind], request->other);
		_Exit(1);
	}
	finish(life, request, &end);
}

void requests_calm(struct life *life)
{
	if (!life->ep)
		return;
	for (unsigned i = 0; i < life->nrequests; i++) {
		struct request *request = &life->requests[i];

		if (request->handle &&
		    (request->kind == RECEIVE || request->kind == GRANT))
			EXPECT(life, !pinion_cancel(life->ep, request->handle));
	}
	/* A grant that has left ends with an answer, for which there has to be
	 * an endpoint. */
	for (unsigned i = 0; i < life->nrequests; i++)
		if (life->requests[i].handle &&
		    life->requests[i].kind == RECEIVE)
			wait_for_end(life, &life->requests[i]);
}

void requests_outlive(struct life *life, unsigned other)
{
	for (unsigned i = 0; life->ep && i < life->nrequests; i++) {
		struct request *request = &life->requests[i];

		if (request->handle && request->other == other)
			wait_for_end(life, request);
	}
}

void relic_add(struct life *life, char *memory, size_t len)
{
	EXPECT(life, life->nrelics < MAX_RELICS);
	memset(memory, RELIC, len);
	life->relics[life->nrelics++] = (struct relic){ memory, len };
}

void requests_abandon(struct life *life)
{
	for (unsigned i = 0; i < life->nrequests; i++) {
		struct request *request = &life->requests[i];

		if (request->handle &&
		    (request->kind == RECEIVE || request->kind == GRANT ||
		     request->kind == GET))
			relic_add(life, request->buf, request->len);
		else
			free(request->buf);
	}
	life->nrequests = life->narrivals = 0;
}
