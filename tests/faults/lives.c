/* SPDX-License-Identifier: BSD-2-Clause */
#include "lives.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/sim/sim.h"
#include "message/connection/connection.h"
#include "message/party.h"
#include "shrink.h"
#include "test.h"

#define BOUND_NS	(3 * PN_NS_PER_S)
#define RAIL_TIMEOUT_NS PN_NS_PER_S
#define FINALE_NS	(100 * PN_NS_PER_S) /* later than every step */
#define APART_NS	(10 * PN_NS_PER_S)  /* between the nodes' ends */
#define ROOM		((size_t)200 << 10)
#define MAX_REQUESTS	(LIVES_STEPS + 1)

/* --- schedules ------------------------------------------------------------ */

static const char *const names[STEP_NKINDS] = {
	"STEP_OPEN",	      "STEP_CLOSE",  "STEP_SEND", "STEP_RECEIVE",
	"STEP_RECEIVE_NAMED", "STEP_CANCEL", "STEP_WAIT", "STEP_DIE",
};

/* How often each kind comes. */
static const unsigned weights[STEP_NKINDS] = { 10, 8, 40, 30, 10, 4, 10, 1 };

/* Short, eager, of several fragments. */
static size_t random_len(uint64_t *random)
{
	static const size_t upper[] = { 9, 1000, 3000, 30000, ROOM };

	return test_below(random,
			  upper[test_below(random, PN_ARRAY_LEN(upper))] + 1);
}

/* Mostly at once or soon; now and then after everything has settled. */
static uint64_t random_ns(uint64_t *random)
{
	static const uint64_t upper[] = { 1, 1000, 20000, 500000,
					  20 * PN_NS_PER_MS };

	return test_below(random, upper[test_below(random, 5)]);
}

/* Up to two rails fail; a node's last one may, too. */
static void random_script(uint64_t *random, struct schedule *s)
{
	unsigned n = s->nrails > 1 ? (unsigned)test_below(random, 3) : 0;
	size_t at = 0;

	s->script[0] = 0;
	for (unsigned i = 0; i < n; i++)
		at += (size_t)snprintf(
			s->script + at, sizeof(s->script) - at,
			"drop rail %u of node %u after %u operations\n",
			(unsigned)test_below(random, s->nrails),
			(unsigned)test_below(random, s->nnodes),
			1 + (unsigned)test_below(random, 60));
}

void schedule_make(struct schedule *s, uint64_t seed)
{
	static const unsigned setups[] = { 0, 0, 3, 50, 2000, 30000 };
	uint64_t random = seed;

	memset(s, 0, sizeof(*s));
	s->seed = seed;
	s->nnodes = 2 + (unsigned)test_below(&random, LIVES_NODES - 1);
	s->nrails = 1 + (unsigned)test_below(&random, 2);
	random_script(&random, s);
	s->n = 20 + (unsigned)test_below(&random, LIVES_STEPS - 19);
	for (unsigned i = 0; i < s->n; i++) {
		struct step *step = &s->steps[i];

		step->kind = i < s->nnodes ? STEP_OPEN
					   : test_weighted(&random, weights,
							   STEP_NKINDS);
		step->node = i < s->nnodes
				     ? i
				     : (unsigned)test_below(&random, s->nnodes);
		step->other = (unsigned)test_below(&random, s->nnodes);
		step->len = random_len(&random);
		step->protocol = (int)test_below(&random, PN_PROTOCOL_AUTO + 1);
		step->ns = random_ns(&random);
	}
	s->rail_setup_us = setups[test_below(&random, PN_ARRAY_LEN(setups))];
}

void schedule_print(const struct schedule *s)
{
	printf("{ 0x%llx, %u, %u,\n", (unsigned long long)s->seed, s->nnodes,
	       s->nrails);
	printf("\"");
	for (const char *c = s->script; *c; c++)
		printf(*c == '\n' ? "\\n" : "%c", *c);
	printf("\",\n{");
	for (unsigned i = 0; i < s->n; i++)
		printf(" { %s, %u, %u, %zu, %d, %llu },\n",
		       names[s->steps[i].kind], s->steps[i].node,
		       s->steps[i].other, s->steps[i].len, s->steps[i].protocol,
		       (unsigned long long)s->steps[i].ns);
	printf("}, %u, %u },\n", s->n, s->rail_setup_us);
}

/* What schedule_shrink() is asked to shorten. */
struct shrinking {
	struct schedule *schedule;
	bool (*fails)(const struct schedule *schedule);
};

static bool still_fails(void *arg)
{
	const struct shrinking *shrinking = arg;

	return shrinking->fails(shrinking->schedule);
}

void schedule_shrink(struct schedule *s,
		     bool (*fails)(const struct schedule *schedule))
{
	struct shrinking shrinking = { s, fails };
	const struct shrinkable list = { .steps = s->steps,
					 .step_bytes = sizeof(s->steps[0]),
					 .n = &s->n,
					 .fails = still_fails,
					 .arg = &shrinking };

	shrink(&list);
}

/* --- the model ------------------------------------------------------------ */

/* A message that was sent; its index and the sender make its tag. */
struct sent {
	unsigned to, life;
	size_t len;
	bool received;
};

/* A request of the open endpoint. */
struct request {
	struct pinion_request *handle; /* NULL: it has ended */
	const struct pinion_peer *peer;
	uint8_t *buf;
	size_t len;
	bool is_send;
	unsigned other; /* the node that it names, or LIVES_NODES */
	unsigned order; /* of posting */
	uint64_t posted_ns;
	unsigned other_life; /* of that node's endpoint then; 0: none */
};

/* A message that the open endpoint has received. */
struct arrival {
	unsigned from, life; /* of its sender */
	unsigned order;	     /* of the receive */
	unsigned number;     /* of the message */
};

struct node {
	struct world *world;
	unsigned number;
	struct pn_device *rails[PN_RAILS_MAX];
	struct pn_budget budget;
	struct pn_cache *caches[PN_RAILS_MAX];
	struct pinion_endpoint *ep; /* NULL: none is open */
	unsigned life, order;
	bool dead;
	uint64_t closed_ns; /* the end of the last endpoint */
	struct request requests[MAX_REQUESTS];
	unsigned nrequests;
	struct arrival arrivals[MAX_REQUESTS];
	unsigned narrivals;
	struct sent sent[LIVES_STEPS];
	unsigned nsent;
};

struct world {
	const struct schedule *schedule;
	struct pn_sim *sim;
	struct node nodes[LIVES_NODES];
	struct pinion_address addresses[LIVES_NODES];
	bool known[LIVES_NODES];
	uint64_t nreceived;
	char why[256]; /* the first thing that is wrong */
};

#define EXPECT(world, fact)                                               \
	do {                                                              \
		if (!(fact) && !(world)->why[0])                          \
			snprintf((world)->why, sizeof((world)->why),      \
				 "%s:%d: %s", __FILE__, __LINE__, #fact); \
	} while (0)

#define NUMBER_BITS 32

static uint64_t tag_of(const struct node *node, unsigned number)
{
	return (uint64_t)(node->number + 1) << NUMBER_BITS | number;
}

/* Of two messages of one life, the receive of the earlier one was posted
 * earlier. */
static void check_order(struct node *node, struct arrival new)
{
	for (unsigned i = 0; i < node->narrivals; i++) {
		const struct arrival *old = &node->arrivals[i];

		if (old->from == new.from && old->life == new.life)
			EXPECT(node->world, (old->order < new.order) ==
						    (old->number < new.number));
	}
	node->arrivals[node->narrivals++] = new;
}

/* A message has arrived. */
static void check_received(struct node *node, const struct request *request,
			   const struct pinion_completion *end)
{
	struct world *world = node->world;
	unsigned from = (unsigned)(end->tag >> NUMBER_BITS) - 1;
	unsigned number = (uint32_t)end->tag;
	struct sent *sent;

	EXPECT(world, from < world->schedule->nnodes &&
			      number < world->nodes[from].nsent);
	if (world->why[0])
		return;
	sent = &world->nodes[from].sent[number];
	EXPECT(world, sent->to == node->number);
	EXPECT(world, !sent->received);
	EXPECT(world, end->len == sent->len);
	EXPECT(world, request->other == LIVES_NODES || request->other == from);
	EXPECT(world, pattern_holds(request->buf, end->len, end->tag));
	sent->received = true;
	world->nreceived++;
	check_order(node, (struct arrival){ from, sent->life, request->order,
					    number });
}

static bool is_documented(int status)
{
	return status == -ECONNRESET || status == -ECANCELED ||
	       status == -ECONNREFUSED || status == -ENODEV ||
	       status == -EHOSTUNREACH || status == -EBUSY;
}

/* True: it has ended. */
static bool look_at(struct node *node, struct request *request)
{
	struct pinion_completion end;

	if (!request->handle)
		return true;
	if (pn_endpoint_test(node->ep, request->handle, &end) == -EAGAIN)
		return false;
	request->handle = NULL;
	if (!end.status && !request->is_send)
		check_received(node, request, &end);
	EXPECT(node->world, !end.status || is_documented(end.status));
	free(request->buf);
	return true;
}

static void look_at_all(struct node *node)
{
	for (unsigned i = 0; i < node->nrequests; i++)
		look_at(node, &node->requests[i]);
}

/* --- steps ---------------------------------------------------------------- */

static uint64_t now(const struct node *node)
{
	return pn_sim_now(node->world->sim);
}

/* Makes progress until a time. */
static void pass(struct node *node, uint64_t until)
{
	while (!node->world->why[0] && now(node) < until) {
		if (!node->ep) {
			pn_sim_sleep(node->world->sim, until - now(node));
			return;
		}
		pn_endpoint_poll(node->ep, NULL, 0);
		look_at_all(node);
		pn_endpoint_check(node->ep);
		if (pn_device_wait_any(node->rails,
				       node->world->schedule->nrails, until))
			pn_sim_sleep(node->world->sim, PN_NS_PER_US);
	}
	/* A look at one request makes progress, which may have ended a request
	 * that was looked at before. */
	if (node->ep)
		look_at_all(node);
}

static bool open_caches(struct node *node)
{
	for (unsigned r = 0; r < node->world->schedule->nrails; r++) {
		struct pn_cache_attr attr = { .device = node->rails[r],
					      .budget = &node->budget,
					      .no_monitor = true,
					      .no_worker = true };

		if (r)
			pn_budget_add(&node->budget, node->rails[r]);
		if (pn_cache_open(&attr, &node->caches[r]))
			return false;
	}
	return true;
}

static void open_endpoint(struct node *node, const struct step *step)
{
	struct world *world = node->world;
	struct pn_endpoint_attr attr = {
		.nrails = world->schedule->nrails,
		.budget = &node->budget,
		.rail_timeout_ns = RAIL_TIMEOUT_NS,
		.unexpected_limit = world->schedule->seed & 1 ? 4000 : 0,
		.protocol = step->protocol,
		.limits = { .eager_bytes = 2000,
			    .match_bytes = 1000,
			    .rdma_offset = 20000,
			    .fragment_bytes = 48 << 10,
			    .segment_bytes = 32 << 10,
			    .depth = 3 },
		.pages = { .numa_node = -1 },
	};

	if (node->ep)
		return;
	pn_budget_init(&node->budget, node->rails[0], (size_t)1 << 30, 0, 1);
	EXPECT(world, open_caches(node));
	for (unsigned r = 0; r < attr.nrails; r++) {
		attr.rails[r].device = node->rails[r];
		attr.rails[r].cache = node->caches[r];
	}
	EXPECT(world, !pn_endpoint_open(&attr, &node->ep));
	node->life++;
	node->nrequests = node->narrivals = 0;
	if (!node->ep)
		return;
	pn_endpoint_address(node->ep, &world->addresses[node->number]);
	world->known[node->number] = true;
}

/* Nothing is left, unless the node is dead. */
static void close_endpoint(struct node *node)
{
	struct world *world = node->world;
	struct pn_pinned pinned;

	if (!node->ep)
		return;
	look_at_all(node);
	pn_endpoint_check(node->ep);
	pn_endpoint_close(node->ep);
	node->ep = NULL;
	node->closed_ns = now(node);
	for (unsigned i = 0; i < node->nrequests; i++)
		if (node->requests[i].handle)
			free(node->requests[i].buf);
	for (unsigned r = 0; r < world->schedule->nrails; r++) {
		pn_cache_close(node->caches[r]);
		pn_device_pinned(node->rails[r], &pinned);
		EXPECT(world, node->dead || !pinned.mrs);
	}
	EXPECT(world, !atomic_load(&node->budget.bytes));
	EXPECT(world, !atomic_load(&node->budget.regions));
}

static void post(struct node *node, const struct step *step, bool send,
		 bool named)
{
	struct world *world = node->world;
	struct request *request = &node->requests[node->nrequests];
	struct pinion_message m = { .size = sizeof(m),
				    .len = send ? step->len : ROOM,
				    .ignore = send ? 0 : ~UINT64_C(0) };
	int ret;

	if (!node->ep || ((send || named) && !world->known[step->other]))
		return;
	*request = (struct request){
		.buf = malloc(m.len + 1),
		.len = m.len,
		.is_send = send,
		.other = send || named ? step->other : LIVES_NODES,
		.order = node->order++,
		.posted_ns = now(node),
		.other_life = world->nodes[step->other].ep
				      ? world->nodes[step->other].life
				      : 0,
	};
	m.buf = request->buf;
	if (send) {
		m.tag = tag_of(node, node->nsent);
		node->sent[node->nsent++] = (struct sent){ .to = step->other,
							   .life = node->life,
							   .len = m.len };
		pattern_fill(m.buf, m.len, m.tag);
	}
	ret = send || named ? pn_endpoint_peer(node->ep,
					       &world->addresses[step->other],
					       &m.peer)
			    : 0;
	request->peer = m.peer;
	if (!ret)
		ret = send ? pn_endpoint_send(node->ep, &m, &request->handle)
			   : pn_endpoint_recv(node->ep, &m, &request->handle);
	EXPECT(world, !ret || is_documented(ret));
	if (ret)
		free(request->buf);
	else
		node->nrequests++;
}

static void cancel_oldest(struct node *node)
{
	for (unsigned i = 0; node->ep && i < node->nrequests; i++)
		if (node->requests[i].handle) {
			pn_endpoint_cancel(node->ep, node->requests[i].handle);
			return;
		}
}

/* As the end of its process. */
static void die(struct node *node)
{
	node->dead = true;
	pn_device_close(node->rails[0]); /* with all its rails */
	close_endpoint(node);
	node->closed_ns = now(node);
}

static void take(struct node *node, const struct step *step)
{
	switch (step->kind) {
	case STEP_OPEN:
		open_endpoint(node, step);
		break;
	case STEP_CLOSE:
		close_endpoint(node);
		break;
	case STEP_SEND:
	case STEP_RECEIVE:
	case STEP_RECEIVE_NAMED:
		post(node, step, step->kind == STEP_SEND,
		     step->kind == STEP_RECEIVE_NAMED);
		break;
	case STEP_CANCEL:
		cancel_oldest(node);
		break;
	case STEP_WAIT:
		pass(node, now(node) + 10 * step->ns);
		break;
	default:
		die(node);
	}
	if (node->ep)
		pn_endpoint_check(node->ep);
}

/* --- the end -------------------------------------------------------------- */

/* Whether the two ends had found each other before the other one closed. Rails
 * that fail may leave those that come up late. */
static bool was_known(const struct node *node, const struct request *request)
{
	const struct node *other = &node->world->nodes[request->other];
	const struct schedule *s = node->world->schedule;

	if (request->posted_ns + PN_NS_PER_MS >= other->closed_ns)
		return false;
	return !s->script[0] || !s->rail_setup_us || s->nrails == 1 ||
	       request->peer->remote_session;
}

/* Sends to an endpoint that has been gone for a while have ended. (A send to an
 * address where no endpoint is open waits for one.) */
static void check_ended(struct node *node)
{
	struct world *world = node->world;

	for (unsigned i = 0; i < node->nrequests; i++) {
		const struct request *request = &node->requests[i];
		const struct node *other;

		if (!request->handle || !request->is_send)
			continue;
		other = &world->nodes[request->other];
		if (other != node && !other->ep &&
		    request->other_life == other->life &&
		    was_known(node, request) &&
		    other->closed_ns + BOUND_NS < now(node))
			EXPECT(world, !"a send to a closed endpoint goes on");
	}
}

/* The nodes close one after the other. Receives can be canceled at any time. */
static void end_node(struct node *node)
{
	pass(node, FINALE_NS + node->number * APART_NS);
	if (!node->ep || node->world->why[0])
		return;
	check_ended(node);
	for (unsigned i = 0; i < node->nrequests; i++)
		if (node->requests[i].handle && !node->requests[i].is_send)
			pn_endpoint_cancel(node->ep, node->requests[i].handle);
	pass(node, now(node) + PN_NS_PER_MS);
	for (unsigned i = 0; i < node->nrequests; i++)
		EXPECT(node->world, !node->requests[i].handle ||
					    node->requests[i].is_send ||
					    !"a canceled receive goes on");
}

static void run_node(void *arg)
{
	struct node *node = arg;
	const struct schedule *s = node->world->schedule;

	for (unsigned i = 0; i < s->n; i++) {
		const struct step *step = &s->steps[i];

		if (step->node != node->number || node->dead)
			continue;
		pass(node, now(node) + step->ns);
		if (node->world->why[0])
			break;
		take(node, step);
	}
	if (!node->dead)
		end_node(node);
	close_endpoint(node);
	if (!node->dead)
		pn_device_close(node->rails[0]);
}

const char *schedule_run(const struct schedule *s, uint64_t *nreceived)
{
	static struct world world;
	char params[128];
	int ret;

	memset(&world, 0, sizeof(world));
	world.schedule = s;
	snprintf(params, sizeof(params),
		 "nodes=%u,rails=%u,cost=cx5,detect=50us,rail_setup=%uus,"
		 "jitter=100,seed=%llu",
		 s->nnodes, s->nrails, s->rail_setup_us,
		 (unsigned long long)s->seed % 100000);
	if (pn_sim_open(params, s->script, &world.sim))
		return "the simulation does not open";
	for (unsigned n = 0; n < s->nnodes; n++) {
		struct node *node = &world.nodes[n];

		node->world = &world;
		node->number = n;
		for (unsigned r = 0; r < s->nrails; r++)
			node->rails[r] = pn_sim_rail(world.sim, n, r);
		pn_assert(!pn_sim_spawn(world.sim, n, run_node, node));
	}
	ret = pn_sim_run(world.sim);
	if (ret && !world.why[0])
		snprintf(world.why, sizeof(world.why), "pn_sim_run: %s",
			 strerror(-ret));
	pn_sim_close(world.sim);
	*nreceived += world.nreceived;
	return world.why[0] ? world.why : NULL;
}
