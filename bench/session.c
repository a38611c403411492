/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/session.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/range.h"
#include "bench/bench.h"
#include "bench/pair.h"
#include "cache/policy/policy.h"
#include "device/measure.h"
#include "device/sim/sim.h"
#include "message/endpoint/endpoint.h"
#include "message/protocol/select.h"
#include "trace/record.h"

enum { TAG_ORDER = 1, TAG_ANSWER, TAG_DATA, TAG_JOB };

enum order_kind { ORDER_TRY, ORDER_NOTIFY, ORDER_EXPOSE, ORDER_JOB, ORDER_END };

/* From the leader to the follower. */
struct order {
	enum order_kind kind;
	struct pn_session_trial trial;
	size_t bytes;	/* EXPOSE */
	unsigned times; /* NOTIFY */
	/* JOB: valid in the follower, which is a fork of the same program */
	pn_session_job *job;
	uint64_t arg;
};

/* From the follower to the leader. */
struct answer {
	int status;
	uint64_t addr, rkey; /* EXPOSE */
	struct pn_session_result result;
};

static const struct pn_pages_policy present = { .huge = PN_PAGES_NORMAL,
						.numa_node = -1,
						.populate = true };
static const struct pn_pages_policy untouched = { .huge = PN_PAGES_NORMAL,
						  .numa_node = -1 };

/* --- one message ---------------------------------------------------------- */

static struct pinion_message message_of(struct pn_session *session, void *buf,
					size_t len, uint64_t tag)
{
	return (struct pinion_message){ .size = sizeof(struct pinion_message),
					.buf = buf,
					.len = len,
					.tag = tag,
					.peer = session->peer };
}

static int send_all(struct pn_session *session, void *buf, size_t len,
		    uint64_t tag)
{
	struct pinion_message m = message_of(session, buf, len, tag);
	struct pinion_request *request;
	int ret = pinion_send(session->ep, &m, &request);

	return ret ? ret
		   : pinion_wait(session->ep, request, PINION_FOREVER, NULL);
}

static int recv_start(struct pn_session *session, void *buf, size_t len,
		      uint64_t tag, struct pinion_request **out)
{
	struct pinion_message m = message_of(session, buf, len, tag);

	return pinion_recv(session->ep, &m, out);
}

static int recv_all(struct pn_session *session, void *buf, size_t len,
		    uint64_t tag)
{
	struct pinion_request *request;
	int ret = recv_start(session, buf, len, tag, &request);

	return ret ? ret
		   : pinion_wait(session->ep, request, PINION_FOREVER, NULL);
}

static int ask(struct pn_session *session, const struct order *order,
	       struct answer *answer)
{
	int ret = send_all(session, (void *)order, sizeof(*order), TAG_ORDER);

	if (!ret)
		ret = recv_all(session, answer, sizeof(*answer), TAG_ANSWER);
	return ret ? ret : answer->status;
}

/* --- the buffers of a trial ----------------------------------------------- */

struct buffers {
	const struct pn_pages_policy *policy;
	char *memory;
	size_t stride, len;
};

/* A page between neighbours keeps the cache from merging them. */
static int buffers_map(struct buffers *b, const struct pn_session_trial *trial,
		       bool fresh)
{
	size_t pages =
		pn_range_pages(trial->offset, trial->bytes + 1, PN_PAGE_BYTES)
			.len;
	void *memory;
	int ret;

	b->policy = fresh ? &untouched : &present;
	b->stride = pages + PN_PAGE_BYTES;
	b->len = trial->buffers * b->stride;
	ret = pn_pages_map(b->len, b->policy, &memory);
	b->memory = ret ? NULL : memory;
	return ret;
}

static char *buffer_at(const struct buffers *b,
		       const struct pn_session_trial *trial, unsigned i)
{
	return b->memory + i * b->stride + trial->offset;
}

/* The monitor notifies the cache, which ends the registrations here, untimed.
 */
static void buffers_unmap(struct pn_session *session, struct buffers *b)
{
	if (b->memory)
		pn_pages_unmap(b->memory, b->len, b->policy);
	pn_cache_flush(session->context->cache);
}

static void buffers_fill(const struct buffers *b,
			 const struct pn_session_trial *trial)
{
	for (unsigned i = 0; trial->check && i < trial->buffers; i++)
		pn_pattern_fill(buffer_at(b, trial, i), trial->bytes,
				trial->seed + i);
}

/* Bytes around the message must be unchanged. */
static bool edges_unchanged(const char *at,
			    const struct pn_session_trial *trial)
{
	return !at[trial->bytes] && (!trial->offset || !at[-1]);
}

static size_t buffers_check(const struct buffers *b,
			    const struct pn_session_trial *trial)
{
	for (unsigned i = 0; trial->check && i < trial->buffers; i++) {
		const char *at = buffer_at(b, trial, i);
		size_t wrong =
			pn_pattern_check(at, trial->bytes, trial->seed + i);

		if (wrong < trial->bytes || !edges_unchanged(at, trial))
			return wrong;
	}
	return SIZE_MAX;
}

/* --- a trial -------------------------------------------------------------- */

bool pn_session_protocol_applies(const struct pn_session *session, int protocol,
				 size_t bytes)
{
	const struct pn_protocol_limits *limits = &session->ep->limits;

	if (pn_protocol_eager.applies(limits, bytes))
		return protocol == PN_PROTOCOL_EAGER;
	if (protocol == PN_PROTOCOL_AUTO)
		return true;
	return pn_protocol_at((unsigned)protocol)->applies(limits, bytes);
}

static bool is_eager(const struct pn_session *session,
		     const struct pn_session_trial *trial)
{
	return pn_protocol_eager.applies(&session->ep->limits, trial->bytes);
}

/* The answer to a long message is its arrival time. */
static size_t echo_len(const struct pn_session *session,
		       const struct pn_session_trial *trial)
{
	return is_eager(session, trial) ? trial->bytes : sizeof(uint64_t);
}

/* Returns the knowledge of `auto` for a cell; without memory, the current
 * knowledge. */
static struct pn_protocol_selector *knowledge_of(struct pn_session *session,
						 uint64_t cell)
{
	struct pn_session_knowledge *mind =
		&session->knowledge[cell % PN_SESSION_CELLS];
	struct pn_protocol_selector *fresh;

	if (mind->knows && mind->cell == cell)
		return mind->knows;
	fresh = pn_protocol_selector_open(&session->ep->limits,
					  &session->device->costs);
	if (!fresh)
		return session->ep->selectors[0];
	pn_protocol_selector_close(mind->knows);
	*mind = (struct pn_session_knowledge){ cell, fresh };
	return fresh;
}

static void clear_knowledge(struct pn_session *session)
{
	for (unsigned i = 0; i < PN_SESSION_CELLS; i++)
		pn_protocol_selector_close(session->knowledge[i].knows);
}

/* Returns the previous knowledge of `auto`, for trial_ends(). */
static struct pn_protocol_selector *trial_begins(
	struct pn_session *session, const struct pn_session_trial *trial)
{
	struct pn_budget *budget = &session->context->budget;
	struct pn_protocol_selector *own = session->ep->selectors[0];

	session->ep->selectors[0] = knowledge_of(session, trial->cell);
	pn_endpoint_set_protocol(session->ep, trial->protocol);
	atomic_store(&budget->peak_bytes, atomic_load(&budget->bytes));
	return own;
}

static void trial_ends(struct pn_session *session,
		       struct pn_protocol_selector *own)
{
	session->ep->selectors[0] = own;
}

/* The protocol of most messages since `before`. */
static int most_used_protocol(struct pn_session *session,
			      const struct pn_endpoint_stats *before)
{
	struct pn_endpoint_stats now;
	int most = PN_PROTOCOL_EAGER;

	pn_endpoint_query(session->ep, &now);
	for (int id = 0; id < PN_PROTOCOL_COUNT; id++) {
		now.sent[id] -= before->sent[id];
		if (now.sent[id] > now.sent[most])
			most = id;
	}
	return most;
}

/* Sends one message and waits for its answer. */
static int ping(struct pn_session *session, char *buf, size_t len, void *echo,
		size_t necho)
{
	struct pinion_request *back;
	int ret = recv_start(session, echo, necho, TAG_DATA, &back);

	if (!ret)
		ret = send_all(session, buf, len, TAG_DATA);
	return ret ? ret : pinion_wait(session->ep, back, PINION_FOREVER, NULL);
}

static int lead_trial(struct pn_session *session,
		      const struct pn_session_trial *trial,
		      const struct buffers *b, void *echo, double *ns)
{
	size_t necho = echo_len(session, trial);
	unsigned n = trial->buffers * trial->uses;
	uint64_t start = pn_device_now(session->device), end = 0;
	int ret = 0;

	for (unsigned i = 0; !ret && i < n; i++)
		ret = ping(session, buffer_at(b, trial, i / trial->uses),
			   trial->bytes, echo, necho);
	if (is_eager(session, trial))
		end = start + (pn_device_now(session->device) - start) / 2;
	else
		memcpy(&end, echo, sizeof(end));
	/* Never 0, since the caller computes ratios. */
	*ns = (double)(end > start ? end - start : 1) / n;
	return ret;
}

int pn_session_run_trial(struct pn_session *session,
			 const struct pn_session_trial *trial,
			 struct pn_session_result *result)
{
	const struct order order = { .kind = ORDER_TRY, .trial = *trial };
	struct answer answer = { 0 };
	char *echo = malloc(echo_len(session, trial) + 1);
	struct pn_endpoint_stats before;
	struct pn_protocol_selector *own;
	struct buffers b;
	double ns;
	int ret = echo ? buffers_map(&b, trial, false) : -ENOMEM;

	if (ret)
		goto free_echo;
	buffers_fill(&b, trial);
	/* the follower's buffers are ready */
	ret = ask(session, &order, &answer);
	own = trial_begins(session, trial);
	pn_endpoint_query(session->ep, &before);
	if (!ret)
		ret = lead_trial(session, trial, &b, echo, &ns);
	trial_ends(session, own);
	if (!ret)
		ret = recv_all(session, &answer, sizeof(answer), TAG_ANSWER);
	if (!ret) {
		size_t peak = atomic_load(&session->context->budget.peak_bytes);

		*result = answer.result;
		result->ns = ns;
		result->taken = most_used_protocol(session, &before);
		if (peak > result->peak_bytes)
			result->peak_bytes = peak;
	}
	buffers_unmap(session, &b);
free_echo:
	free(echo);
	return ret;
}

/* Receives one message and answers with the same bytes, or with its arrival
 * time. The next receive is posted before the answer, so that the next message
 * is expected. */
static int pong(struct pn_session *session,
		const struct pn_session_trial *trial, char *buf, char *next,
		struct pinion_request **request)
{
	int ret = pinion_wait(session->ep, *request, PINION_FOREVER, NULL);
	uint64_t now = pn_device_now(session->device);
	bool eager = is_eager(session, trial);

	if (!ret && next)
		ret = recv_start(session, next, trial->bytes, TAG_DATA,
				 request);
	if (ret)
		return ret;
	return send_all(session, eager ? buf : (char *)&now,
			echo_len(session, trial), TAG_DATA);
}

static int follow_messages(struct pn_session *session,
			   const struct pn_session_trial *trial,
			   const struct buffers *b)
{
	unsigned n = trial->buffers * trial->uses;
	struct answer ready = { .status = 0 };
	struct pinion_request *request;
	int ret = recv_start(session, buffer_at(b, trial, 0), trial->bytes,
			     TAG_DATA, &request);
	struct pn_protocol_selector *own = trial_begins(session, trial);

	if (!ret)
		ret = send_all(session, &ready, sizeof(ready), TAG_ANSWER);
	for (unsigned i = 0; !ret && i < n; i++)
		ret = pong(session, trial, buffer_at(b, trial, i / trial->uses),
			   i + 1 < n
				   ? buffer_at(b, trial, (i + 1) / trial->uses)
				   : NULL,
			   &request);
	trial_ends(session, own);
	return ret;
}

static int follow_trial(struct pn_session *session,
			const struct pn_session_trial *trial)
{
	struct answer done = { 0 };
	struct buffers b;
	int ret = buffers_map(&b, trial, trial->fresh);

	if (!ret)
		ret = follow_messages(session, trial, &b);
	if (!ret)
		done.result = (struct pn_session_result){
			.wrong = buffers_check(&b, trial),
			.peak_bytes = atomic_load(
				&session->context->budget.peak_bytes),
		};
	buffers_unmap(session, &b);
	return ret ? ret : send_all(session, &done, sizeof(done), TAG_ANSWER);
}

/* --- raw: notification ---------------------------------------------------- */

/* One cache line each, since the writers differ. */
struct pn_session_flags {
	_Atomic uint64_t leader PN_ALIGNED(64);
	_Atomic uint64_t follower PN_ALIGNED(64);
};

/* Polls until the flag has the value. The other process may have ended or share
 * the core: yields now and then, and gives up after some time. */
static int flag_await(_Atomic uint64_t *flag, uint64_t value)
{
	uint64_t deadline = 0;

	for (unsigned spins = 1;; spins++) {
		if (atomic_load_explicit(flag, memory_order_acquire) == value)
			return 0;
		if (spins % (1u << 16))
			continue;
		if (!deadline)
			deadline = pn_clock_ns() + 10 * PN_NS_PER_S;
		if (pn_clock_ns() > deadline)
			return -ETIMEDOUT;
		sched_yield();
	}
}

static int follow_notify(struct pn_session *session, unsigned times)
{
	struct answer ready = { .status = 0 };
	int ret = send_all(session, &ready, sizeof(ready), TAG_ANSWER);

	for (unsigned i = 0; !ret && i < times; i++) {
		session->notified++;
		ret = flag_await(&session->flags->leader, session->notified);
		atomic_store_explicit(&session->flags->follower,
				      session->notified, memory_order_release);
	}
	return ret;
}

int pn_session_raw_notify(struct pn_session *session, unsigned times,
			  double *ns)
{
	const struct order order = { .kind = ORDER_NOTIFY, .times = times };
	struct answer answer;
	uint64_t start;
	int ret;

	if (!session->flags)
		return -EOPNOTSUPP;
	ret = ask(session, &order, &answer);
	start = pn_device_now(session->device);
	for (unsigned i = 0; !ret && i < times; i++) {
		atomic_store_explicit(&session->flags->leader,
				      ++session->notified,
				      memory_order_release);
		ret = flag_await(&session->flags->follower, session->notified);
	}
	*ns = pn_device_since(session->device, start) / times / 2;
	return ret;
}

/* --- raw: put ------------------------------------------------------------- */

static int follow_expose(struct pn_session *session, size_t bytes)
{
	struct answer answer = { 0 };
	struct order done;
	struct pn_mr mr;
	int ret;

	answer.status = pn_pair_map(session->device, bytes,
				    PINION_ACCESS_REMOTE_WRITE, &mr);
	if (!answer.status && mr.len < bytes) {
		pn_pair_unmap(session->device, &mr);
		answer.status = -ENOMEM;
	}
	if (answer.status)
		return send_all(session, &answer, sizeof(answer), TAG_ANSWER);
	answer.addr = (uintptr_t)mr.addr;
	answer.rkey = mr.rkey;
	ret = send_all(session, &answer, sizeof(answer), TAG_ANSWER);
	if (!ret)
		ret = recv_all(session, &done, sizeof(done), TAG_ORDER);
	pn_pair_unmap(session->device, &mr);
	return ret;
}

/* While the follower waits, only this function uses the device, so blocking
 * operations are possible. */
static int put_stream(struct pn_session *session, const struct pn_mr *mr,
		      const struct answer *to, unsigned times, double *ns)
{
	struct pn_blocking_transfer move = { .kind = PN_OP_WRITE,
					     .local = mr->addr,
					     .lkey = mr->lkey,
					     .remote_addr = to->addr,
					     .rkey = to->rkey,
					     .len = mr->len };
	int ret =
		pn_device_attach(session->device, &session->other, &move.peer);
	uint64_t start;

	if (!ret)
		/* warm-up */
		ret = pn_blocking_transfer(session->device, &move);
	start = pn_device_now(session->device);
	for (unsigned i = 0; !ret && i < times; i++)
		ret = pn_blocking_transfer(session->device, &move);
	*ns = pn_device_since(session->device, start) / times;
	return ret;
}

int pn_session_raw_put(struct pn_session *session, size_t bytes, unsigned times,
		       double *ns)
{
	const struct order order = { .kind = ORDER_EXPOSE, .bytes = bytes };
	const struct order done = { .kind = ORDER_END };
	struct answer to;
	struct pn_mr mr;
	int ret = pn_pair_map(session->device, bytes, PINION_ACCESS_LOCAL_WRITE,
			      &mr);

	if (ret)
		return ret;
	ret = ask(session, &order, &to);
	if (!ret) {
		mr.len = bytes;
		while (pn_endpoint_progress(session->ep) > 0)
			;
		ret = put_stream(session, &mr, &to, times, ns);
		mr.len = pn_range_pages(0, bytes, PN_PAGE_BYTES).len;
		if (!ret)
			ret = send_all(session, (void *)&done, sizeof(done),
				       TAG_ORDER);
	}
	pn_pair_unmap(session->device, &mr);
	return ret;
}

/* --- jobs ----------------------------------------------------------------- */

int pn_session_start_job(struct pn_session *session, pn_session_job *job,
			 uint64_t arg)
{
	const struct order order = { .kind = ORDER_JOB,
				     .job = job,
				     .arg = arg };

	return send_all(session, (void *)&order, sizeof(order), TAG_ORDER);
}

int pn_session_send(struct pn_session *session, const void *buf, size_t len)
{
	return send_all(session, (void *)buf, len, TAG_JOB);
}

int pn_session_recv(struct pn_session *session, void *buf, size_t len)
{
	return recv_all(session, buf, len, TAG_JOB);
}

int pn_session_quiesce(struct pn_session *session, struct pn_peer **peer)
{
	uint64_t deadline = pn_device_now(session->device) + PN_NS_PER_S;

	while (pn_endpoint_progress(session->ep) > 0 ||
	       session->ep->noperations)
		if (pn_device_now(session->device) > deadline)
			return -ETIMEDOUT;
	return pn_device_attach(session->device, &session->other, peer);
}

/* --- the follower --------------------------------------------------------- */

static int run_follower(struct pn_session *session)
{
	struct order order;
	int ret = 0;

	while (!ret) {
		ret = recv_all(session, &order, sizeof(order), TAG_ORDER);
		if (ret || order.kind == ORDER_END)
			break;
		if (order.kind == ORDER_TRY)
			ret = follow_trial(session, &order.trial);
		else if (order.kind == ORDER_NOTIFY)
			ret = follow_notify(session, order.times);
		else if (order.kind == ORDER_JOB)
			ret = order.job(session, order.arg);
		else
			ret = follow_expose(session, order.bytes);
	}
	return ret;
}

/* The follower runs until it is ordered to end or the leader has ended. */
static int run_leader(struct pn_session *session, pn_session_fn *fn, void *arg)
{
	const struct order end = { .kind = ORDER_END };
	int ret = fn(session, arg);

	if (!ret)
		ret = send_all(session, (void *)&end, sizeof(end), TAG_ORDER);
	return ret;
}

/* --- endpoints and addresses ---------------------------------------------- */

/* Exchanged by the ends at the start. */
struct hello {
	int status;
	struct pinion_address address;
	struct pn_address device;
};

static int endpoint_open(struct pn_session *session, struct hello *hello)
{
	const struct pinion_endpoint_attr attr = {
		.size = sizeof(attr), .flags = PINION_ENDPOINT_SINGLE_THREADED
	};
	int ret;

	session->device = session->context->device;
	ret = pinion_endpoint_open(session->context, &attr, &session->ep);
	if (ret)
		return ret;
	pn_device_address(session->device, &hello->device);
	return pinion_endpoint_address(session->ep, &hello->address);
}

static int add_peer(struct pn_session *session, const struct hello *other)
{
	session->other = other->device;
	return pinion_peer_add(session->ep, &other->address, &session->peer);
}

/* --- two processes -------------------------------------------------------- */

/* Opens an end and sends its address, or the error. */
static int process_open(const struct pn_spec *spec, struct pn_session *session,
			int control)
{
	struct hello mine = { 0 };

	mine.status = pn_spec_open(spec, &session->context);
	if (!mine.status)
		mine.status = endpoint_open(session, &mine);
	if (send(control, &mine, sizeof(mine), MSG_NOSIGNAL) < 0)
		return -ECONNRESET;
	return mine.status;
}

static int recv_order(int control, struct hello *other)
{
	if (recv(control, other, sizeof(*other), 0) != sizeof(*other))
		return -ECONNRESET;
	return other->status;
}

static int child(const struct pn_spec *spec, struct pn_session *session,
		 int control)
{
	struct hello other;
	int ret;

	/* A leader that is killed before its first message leaves no trace on
	 * the device. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	ret = process_open(spec, session, control);
	if (!ret)
		ret = recv_order(control, &other);
	if (!ret)
		ret = add_peer(session, &other);
	if (!ret)
		ret = run_follower(session);
	clear_knowledge(session);
	pinion_close(session->context);
	return ret;
}

/* The follower opens first, so that an error of both is logged once. */
static int parent(const struct pn_spec *spec, struct pn_session *session,
		  int control, pn_session_fn *fn, void *arg)
{
	struct hello other;
	int ret = recv_order(control, &other);

	if (!ret)
		ret = process_open(spec, session, control);
	if (!ret)
		ret = add_peer(session, &other);
	if (!ret)
		ret = run_leader(session, fn, arg);
	clear_knowledge(session);
	pinion_close(session->context);
	return ret;
}

static int fork_and_run(const struct pn_spec *spec, struct pn_session *session,
			pn_session_fn *fn, void *arg)
{
	int ends[2], ret, status;
	pid_t pid;

	/* Flush, so that parent and child do not both write the buffered
	 * output. */
	fflush(NULL);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	pid = fork();
	ret = pid < 0 ? -errno : 0;
	if (!pid) {
		close(ends[0]);
		_exit(child(spec, session, ends[1]) ? 1 : 0);
	}
	close(ends[1]);
	if (!ret)
		ret = parent(spec, session, ends[0], fn, arg);
	close(ends[0]);
	if (pid > 0 && waitpid(pid, &status, 0) == pid)
		pn_print_signal("the other process", status);
	return ret;
}

static int run_processes(const struct pn_spec *spec, pn_session_fn *fn,
			 void *arg)
{
	struct pn_session session = { 0 };
	int ret;

	session.flags =
		mmap(NULL, sizeof(*session.flags), PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (session.flags == MAP_FAILED)
		return -errno;
	ret = fork_and_run(spec, &session, fn, arg);
	munmap(session.flags, sizeof(*session.flags));
	return ret;
}

/* --- two tasks ------------------------------------------------------------ */

struct side {
	struct world *world;
	unsigned node;
	struct pn_session session;
	struct pinion_context context;
	struct hello hello;
	bool ready;
	int ret;
};

struct world {
	struct pn_sim *sim;
	struct side sides[2]; /* index 0: leader, 1: follower */
	pn_session_fn *fn;
	void *arg;
};

/* A context on the devices of a node, which the simulation owns. */
static int context_on(struct pn_sim *sim, unsigned node,
		      struct pinion_context *context)
{
	int ret = pn_config_load(&context->config, NULL);

	if (ret)
		return ret;
	(void)pn_record_start(context->config.trace,
			      context->config.trace_max_bytes);
	context->config.local_processes = 2;
	context->nrails = pn_sim_nrails(sim);
	for (unsigned r = 0; r < context->nrails; r++)
		context->devices[r] = pn_sim_rail(sim, node, r);
	context->device = context->devices[0];
	pn_context_init(context);
	return pn_context_open_caches(context);
}

static void side_close(struct side *side)
{
	clear_knowledge(&side->session);
	pinion_endpoint_close(side->session.ep);
	pn_context_close_caches(&side->context);
	/* The other end notices the failure and does not wait forever. */
	if (side->ret)
		pn_device_close(side->context.device);
}

/* Runs the leader or the follower. */
static void side_run(void *arg)
{
	struct side *side = arg;
	struct world *w = side->world;
	struct side *other = &w->sides[!side->node];

	side->session.context = &side->context;
	side->ret = context_on(w->sim, side->node, &side->context);
	if (!side->ret)
		side->ret = endpoint_open(&side->session, &side->hello);
	side->hello.status = side->ret;
	side->ready = true;
	while (!other->ready)
		pn_sim_sleep(w->sim, PN_NS_PER_US);
	if (!side->ret)
		side->ret = other->hello.status;
	if (!side->ret)
		side->ret = add_peer(&side->session, &other->hello);
	if (!side->ret)
		side->ret = side->node
				    ? run_follower(&side->session)
				    : run_leader(&side->session, w->fn, w->arg);
	side_close(side);
}

static int run_tasks(struct world *w)
{
	int ret = 0;

	for (unsigned i = 0; !ret && i < 2; i++) {
		w->sides[i].world = w;
		w->sides[i].node = i;
		ret = pn_sim_spawn(w->sim, i, side_run, &w->sides[i]);
	}
	if (!ret)
		ret = pn_sim_run(w->sim);
	return w->sides[0].ret ? w->sides[0].ret : ret;
}

int pn_session_run(const struct pn_spec *spec, pn_session_fn *fn, void *arg)
{
	const char *params = pn_pair_sim(spec);
	struct world w = { .fn = fn, .arg = arg };
	int ret;

	if (!params)
		return run_processes(spec, fn, arg);
	if (strstr(params, "data=none")) {
		pn_error("sim:%s: orders are messages with data; remove "
			 "data=none",
			 params);
		return -EINVAL;
	}
	ret = pn_pair_world(params, &w.sim);
	if (!ret) {
		ret = run_tasks(&w);
		pn_sim_close(w.sim);
	}
	return ret;
}

void pn_session_begin(struct pn_session *session, struct pn_bench_run *run,
		      const struct pn_command *command)
{
	run->virtual_time = session->device->caps & PN_CAP_VIRTUAL_TIME;
	pn_report_device(&run->report, session->device);
	pn_report_head(&run->report, command->help);
}

int pn_session_bench(struct pn_bench_run *run, const void *values,
		     const struct pn_command *command, pn_session_fn *body,
		     void *arg)
{
	const struct pn_bench_values *common = values;
	struct pn_spec spec;
	int ret;

	if (pn_spec_find(&spec, common->device))
		return PN_EXIT_FAILED;
	run->values = values;
	run->report = (struct pn_report){ .json = common->json,
					  .bench = command->name,
					  .device = spec.text };
	ret = pn_session_run(&spec, body, arg);
	pn_report_progress(NULL);
	if (ret == PN_BENCH_REPORTED)
		return PN_EXIT_FAILED;
	return ret ? pn_spec_exit(command->name, ret) : PN_EXIT_OK;
}
