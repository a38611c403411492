/* SPDX-License-Identifier: BSD-2-Clause */
/* The public calls of pinion/onesided.h over `soft`: what they refuse, what a
 * revoked key still allows, and which requests end when a peer dies. */
#include "test.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "message/connection/wire.h"
#include "message/endpoint/endpoint.h"
#include "message/ends.h"

#define BYTES	   ((size_t)256 << 10)
#define READ_WRITE (PINION_ACCESS_REMOTE_READ | PINION_ACCESS_REMOTE_WRITE)
#define ALL	   (READ_WRITE | PINION_ACCESS_REMOTE_ATOMIC)

/* b exposes memory that a can reach. */
struct scene {
	struct pair pair;
	uint8_t *memory, *buf;
	struct pinion_exposure *exposure;
	struct pinion_exposure_key key;
	struct pinion_remote *remote;
};

static uint8_t *map(size_t len)
{
	uint8_t *at = mmap(NULL, len, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(at, MAP_FAILED);
	return at;
}

static void scene_open(struct scene *s, const char *option, unsigned access)
{
	pair_open(&s->pair, option);
	s->memory = map(BYTES);
	s->buf = map(BYTES);
	assert_ok(pinion_exposure_open(s->pair.b.ep, s->memory, BYTES, access,
				       &s->exposure));
	assert_ok(pinion_exposure_key(s->exposure, &s->key));
	assert_ok(pinion_remote_open(s->pair.a.ep, s->pair.to_b, &s->key,
				     &s->remote));
}

static void scene_close(struct scene *s)
{
	pinion_remote_close(s->remote);
	pinion_exposure_close(s->exposure);
	pair_close(&s->pair);
	if (s->memory)
		munmap(s->memory, BYTES);
	munmap(s->buf, BYTES);
}

typedef int move_fn(struct pinion_endpoint *ep, const struct pinion_move *move,
		    struct pinion_request **out);

static int move_by(move_fn *fn, struct scene *s, uint64_t offset, size_t len)
{
	struct pinion_move move = { .size = sizeof(move),
				    .remote = s->remote,
				    .offset = offset,
				    .buf = s->buf,
				    .len = len };
	struct pinion_request *request;
	int ret = fn(s->pair.a.ep, &move, &request);

	return ret ? ret : finish(&s->pair, s->pair.a.ep, request).status;
}

static int put(struct scene *s, uint64_t offset, size_t len)
{
	return move_by(pinion_put, s, offset, len);
}

static int get(struct scene *s, uint64_t offset, size_t len)
{
	return move_by(pinion_get, s, offset, len);
}

/* --- what is refused ------------------------------------------------------ */

static void exposing_refuses_invalid_arguments(void **state)
{
	struct pinion_exposure *exposure = NULL;
	struct pinion_exposure_key key;
	uint8_t *bytes = map(BYTES);
	struct end end;

	(void)state;
	end_open(&end, NULL);
	assert_int_equal(pinion_exposure_open(NULL, bytes, 1, ALL, &exposure),
			 -EINVAL);
	assert_int_equal(pinion_exposure_open(end.ep, NULL, 1, ALL, &exposure),
			 -EINVAL);
	assert_int_equal(pinion_exposure_open(end.ep, bytes, 0, ALL, &exposure),
			 -EINVAL);
	assert_int_equal(pinion_exposure_open(end.ep, bytes, SIZE_MAX, ALL,
					      &exposure),
			 -EINVAL);
	assert_int_equal(pinion_exposure_open(end.ep, bytes, 1, 0, &exposure),
			 -EINVAL);
	assert_int_equal(pinion_exposure_open(end.ep, bytes, 1, ALL | 1 << 12,
					      &exposure),
			 -EINVAL);
	assert_int_equal(pinion_exposure_open(end.ep, bytes, 1, ALL, NULL),
			 -EINVAL);
	munmap(bytes, BYTES);
	assert_int_equal(pinion_exposure_open(end.ep, bytes, BYTES, ALL,
					      &exposure),
			 -EFAULT);
	assert_null(exposure);
	assert_int_equal(pinion_exposure_key(NULL, &key), -EINVAL);
	pinion_exposure_close(NULL);
	pinion_remote_close(NULL);
	assert_nothing_pinned(&end);
	end_close(&end);
}

static void memory_beyond_the_budget_is_not_exposed(void **state)
{
	struct pinion_exposure *exposure, *second = NULL;
	uint8_t *bytes = map(BYTES);
	struct end end;

	(void)state;
	end_open(&end, "max_bytes=300K");
	assert_ok(pinion_exposure_open(end.ep, bytes, BYTES, ALL, &exposure));
	assert_int_equal(pinion_exposure_open(end.ep, bytes, BYTES, ALL,
					      &second),
			 -ENOBUFS);
	assert_null(second);
	pinion_exposure_close(exposure);
	assert_ok(pinion_exposure_open(end.ep, bytes, BYTES, ALL, &second));
	end_close(&end); /* and with it the exposure */
	munmap(bytes, BYTES);
}

static void invalid_keys_are_refused(void **state)
{
	struct pinion_remote *remote = NULL;
	struct pinion_exposure_key key;
	struct scene s;

	(void)state;
	scene_open(&s, NULL, ALL);
	assert_true(s.key.len <= PINION_EXPOSURE_KEY_BYTES - 4);
	for (uint32_t i = 1; i < s.key.len; i++) {
		key = s.key;
		key.data[i] ^= 0x10;
		assert_int_equal(pinion_remote_open(s.pair.a.ep, s.pair.to_b,
						    &key, &remote),
				 -EINVAL);
	}
	for (uint32_t len = 0; len < s.key.len; len++) {
		key = s.key;
		key.len = len;
		assert_int_equal(pinion_remote_open(s.pair.a.ep, s.pair.to_b,
						    &key, &remote),
				 -EINVAL);
	}
	key.len = UINT32_MAX;
	assert_int_equal(pinion_remote_open(s.pair.a.ep, s.pair.to_b, &key,
					    &remote),
			 -EINVAL);
	key = s.key;
	key.data[0]++;
	assert_int_equal(pinion_remote_open(s.pair.a.ep, s.pair.to_b, &key,
					    &remote),
			 -EPROTONOSUPPORT);
	assert_int_equal(pinion_remote_open(s.pair.a.ep, s.pair.to_a, &s.key,
					    &remote),
			 -EINVAL);
	assert_null(remote);
	scene_close(&s);
}

static void invalid_operations_are_refused(void **state)
{
	struct pinion_move wraps = { .size = sizeof(wraps),
				     .buf = (void *)(UINTPTR_MAX - 10),
				     .len = 100 };
	struct pinion_atomic atomic = { .size = sizeof(atomic), .offset = 4 };
	struct pinion_message any = { .size = sizeof(any), .ignore = 1 };
	struct pinion_request *request = NULL;
	struct scene s;

	(void)state;
	scene_open(&s, NULL, ALL);
	wraps.remote = atomic.remote = s.remote;
	assert_int_equal(pinion_put(s.pair.a.ep, &wraps, &request), -EINVAL);
	assert_int_equal(pinion_get(s.pair.a.ep, &wraps, &request), -EINVAL);
	assert_int_equal(pinion_put(s.pair.a.ep, NULL, &request), -EINVAL);
	assert_int_equal(pinion_put(s.pair.b.ep, &wraps, &request), -EINVAL);
	assert_int_equal(pinion_atomic_swap(s.pair.a.ep, &atomic, &request),
			 -EINVAL);
	assert_int_equal(pinion_atomic_swap(s.pair.a.ep, NULL, &request),
			 -EINVAL);
	assert_int_equal(pinion_peer_fence(s.pair.a.ep, s.pair.to_a), -EINVAL);
	assert_int_equal(pinion_peer_flush(s.pair.a.ep, NULL, NULL, &request),
			 -EINVAL);
	any.peer = s.pair.to_b;
	assert_int_equal(pinion_grant(s.pair.a.ep, &any, &request), -EINVAL);
	assert_int_equal(pinion_put_when(s.pair.a.ep, &any, &request), -EINVAL);
	any = (struct pinion_message){ .size = sizeof(struct pinion_message),
				       0 };
	assert_int_equal(pinion_grant(s.pair.a.ep, &any, &request), -EINVAL);
	assert_null(request);
	scene_close(&s);
}

static void accesses_that_a_key_does_not_allow_are_refused(void **state)
{
	struct pinion_atomic atomic = { .size = sizeof(atomic) };
	struct pinion_request *request;
	struct scene s;

	(void)state;
	scene_open(&s, NULL, PINION_ACCESS_REMOTE_READ);
	atomic.remote = s.remote;
	assert_int_equal(put(&s, 0, 1), -EACCES);
	assert_int_equal(pinion_atomic_fetch_add(s.pair.a.ep, &atomic,
						 &request),
			 -EACCES);
	assert_int_equal(get(&s, BYTES - 1, 2), -EACCES);
	assert_int_equal(get(&s, BYTES + 1, 0), -EACCES);
	assert_int_equal(get(&s, UINT64_MAX, 2), -EACCES);
	assert_ok(get(&s, BYTES - 1, 1));
	assert_ok(get(&s, BYTES, 0));
	scene_close(&s);
}

/* --- revoked -------------------------------------------------------------- */

static void a_revoked_key_is_refused_and_the_peer_stays_usable(void **state)
{
	static const size_t lens[] = { 8, 3000, BYTES };
	struct pinion_exposure_key other;
	struct scene s;

	(void)state;
	scene_open(&s, NULL, ALL);
	memset(s.buf, 7, BYTES);
	for (unsigned i = 0; i < PN_ARRAY_LEN(lens); i++)
		assert_ok(put(&s, 0, lens[i]));
	pinion_exposure_close(s.exposure);
	memset(s.memory, 1, BYTES);
	for (unsigned i = 0; i < PN_ARRAY_LEN(lens); i++) {
		assert_int_equal(put(&s, 0, lens[i]), -EACCES);
		assert_int_equal(get(&s, 0, lens[i]), -EACCES);
	}
	for (size_t i = 0; i < BYTES; i++)
		assert_int_equal(s.memory[i], 1);
	assert_ok(pinion_exposure_open(s.pair.b.ep, s.memory, BYTES, ALL,
				       &s.exposure));
	assert_ok(pinion_exposure_key(s.exposure, &other));
	pinion_remote_close(s.remote);
	assert_ok(pinion_remote_open(s.pair.a.ep, s.pair.to_b, &other,
				     &s.remote));
	assert_ok(put(&s, 0, BYTES));
	assert_memory_equal(s.memory, s.buf, BYTES);
	scene_close(&s);
}

/* Two exposures of the same memory, and messages from it, have different keys.
 */
static void revoking_one_key_leaves_others_to_the_same_memory(void **state)
{
	struct pinion_message m = { .size = sizeof(m), .tag = 1 };
	struct pinion_request *sent, *received;
	struct pinion_exposure *second;
	struct pinion_pin pin;
	struct scene s;

	(void)state;
	scene_open(&s, "protocol=read", ALL);
	assert_ok(pinion_exposure_open(s.pair.b.ep, s.memory + 100, 5000,
				       READ_WRITE, &second));
	assert_ok(pinion_pin(s.pair.b.context, s.memory, BYTES, READ_WRITE,
			     &pin));
	m.buf = s.memory;
	m.len = BYTES;
	m.peer = s.pair.to_a;
	assert_ok(pinion_send(s.pair.b.ep, &m, &sent));
	pinion_exposure_close(second);
	assert_ok(put(&s, 100, 5000));
	m.buf = s.buf;
	m.peer = s.pair.to_b;
	assert_ok(pinion_recv(s.pair.a.ep, &m, &received));
	assert_ok(finish(&s.pair, s.pair.a.ep, received).status);
	assert_ok(finish(&s.pair, s.pair.b.ep, sent).status);
	pinion_unpin(s.pair.b.context, &pin);
	scene_close(&s);
}

/* Only the exposed pages can be reached, nothing around them. */
static void only_the_exposed_bytes_can_be_reached(void **state)
{
	struct pn_key_head head;
	struct pn_wire_key keys[PN_KEY_MAX];
	struct pinion_exposure *part;
	struct pinion_exposure_key key;
	struct scene s;

	(void)state;
	scene_open(&s, NULL, ALL);
	assert_ok(pinion_exposure_open(s.pair.b.ep, s.memory + 1000, 50, ALL,
				       &part));
	assert_ok(pinion_exposure_key(part, &key));
	/* A peer that forges the length in its key. */
	assert_ok(pn_key_parse(key.data, key.len, &head, keys));
	head.len = keys[0].len = 51;
	key.len = (uint32_t)pn_key_pack(&head, keys, key.data);
	pinion_remote_close(s.remote);
	assert_ok(
		pinion_remote_open(s.pair.a.ep, s.pair.to_b, &key, &s.remote));
	assert_ok(put(&s, 0, 50));
	assert_int_equal(put(&s, 0, 51), -EACCES);
	assert_int_equal(get(&s, 50, 1), -EACCES);
	scene_close(&s);
}

/* Memory that is released while exposed is refused from the owner's next call
 * on. */
static void released_memory_is_no_longer_exposed(void **state)
{
	struct scene s;

	(void)state;
	scene_open(&s, NULL, ALL);
	assert_ok(put(&s, 0, 100));
	munmap(s.memory, BYTES);
	s.memory = NULL; /* its pages may be anyone's now */
	pinion_poll(s.pair.b.ep, NULL, 0, 0);
	assert_int_equal(put(&s, 0, 100), -EACCES);
	assert_int_equal(put(&s, BYTES - 1, 1), -EACCES);
	scene_close(&s);
}

/* pinion_exposure_key() keeps returning the key that peers have, also when it
 * is revoked. */
static void an_exposure_keeps_its_key_when_its_memory_goes(void **state)
{
	struct pinion_exposure_key key;
	struct scene s;

	(void)state;
	scene_open(&s, NULL, ALL);
	munmap(s.memory, BYTES);
	s.memory = NULL;
	pinion_poll(s.pair.b.ep, NULL, 0, 0);
	assert_ok(pinion_exposure_key(s.exposure, &key));
	assert_memory_equal(&key, &s.key, sizeof(key));
	scene_close(&s);
}

/* --- how requests end ----------------------------------------------------- */

static void atomics_return_the_old_value(void **state)
{
	uint64_t old = 0;
	struct pinion_atomic atomic = { .size = sizeof(atomic),
					.offset = 8,
					.operand = 5,
					.result = &old };
	struct pinion_request *request;
	struct scene s;
	uint64_t *cell;

	(void)state;
	scene_open(&s, NULL, ALL);
	cell = (uint64_t *)(s.memory + 8);
	*cell = 100;
	atomic.remote = s.remote;
	assert_ok(pinion_atomic_fetch_add(s.pair.a.ep, &atomic, &request));
	assert_ok(finish(&s.pair, s.pair.a.ep, request).status);
	assert_int_equal(old, 100);
	assert_int_equal(*cell, 105);
	atomic.compare = 100;
	assert_ok(pinion_atomic_compare_swap(s.pair.a.ep, &atomic, &request));
	assert_ok(finish(&s.pair, s.pair.a.ep, request).status);
	assert_int_equal(old, 105);
	assert_int_equal(*cell, 105);
	atomic.compare = 105;
	assert_ok(pinion_atomic_compare_swap(s.pair.a.ep, &atomic, &request));
	assert_ok(finish(&s.pair, s.pair.a.ep, request).status);
	assert_int_equal(*cell, 5);
	atomic.operand = 9;
	assert_ok(pinion_atomic_swap(s.pair.a.ep, &atomic, &request));
	assert_ok(finish(&s.pair, s.pair.a.ep, request).status);
	assert_int_equal(old, 5);
	assert_int_equal(*cell, 9);
	scene_close(&s);
}

/* Three puts, a flush and a fenced get, completions by pinion_poll(). */
static const struct pn_device_ops *inner;
static unsigned nrefused;

static int refuse_once(struct pn_device *device, struct pn_mr *const *mrs,
		       unsigned n)
{
	return nrefused++ ? inner->reg(device, mrs, n) : -ENOMEM;
}

static int add_one(struct scene *s)
{
	struct pinion_atomic atomic = { .size = sizeof(atomic),
					.remote = s->remote,
					.operand = 1 };
	struct pinion_request *request;
	int ret = pinion_atomic_fetch_add(s->pair.a.ep, &atomic, &request);

	return ret ? ret : finish(&s->pair, s->pair.a.ep, request).status;
}

/* The first registration for one-sided operations fails, and so does the
 * operation. Its charge to the budget is undone, and the next operation
 * succeeds. */
static void refuse_bounce_buffers(const char *option, int result)
{
	struct pn_device_ops ops;
	struct pn_device *device;
	struct scene s;
	size_t before;

	scene_open(&s, option, ALL);
	device = s.pair.a.context->device;
	before = atomic_load(&s.pair.a.context->budget.bytes);
	inner = device->ops;
	ops = *inner;
	ops.reg = refuse_once;
	device->ops = &ops;
	nrefused = 0;
	assert_int_equal(add_one(&s), result);
	assert_int_equal(atomic_load(&s.pair.a.context->budget.bytes), before);
	assert_ok(add_one(&s));
	assert_int_equal(*(uint64_t *)s.memory, result ? 1 : 2);
	device->ops = inner;
	scene_close(&s);
}

static void bounce_buffers_need_not_be_pinned(void **state)
{
	(void)state;
	refuse_bounce_buffers(NULL, 0);
}

static void bounce_buffers_are_opened_later_if_refused_first(void **state)
{
	(void)state;
	refuse_bounce_buffers("device=soft:strict=yes", -ENOBUFS);
}

static void a_flush_ends_after_the_operations_before_it(void **state)
{
	struct pinion_completion ends[8];
	struct pinion_move move = { .size = sizeof(move) };
	int n = 0;
	struct scene s;

	(void)state;
	scene_open(&s, NULL, ALL);
	move = (struct pinion_move){ .size = sizeof(struct pinion_move),
				     .remote = s.remote,
				     .buf = s.buf,
				     .len = BYTES };
	for (intptr_t i = 1; i <= 3; i++) {
		move.user = (void *)i;
		assert_ok(pinion_put(s.pair.a.ep, &move, NULL));
	}
	assert_ok(pinion_peer_flush(s.pair.a.ep, s.pair.to_b, (void *)4, NULL));
	assert_ok(pinion_peer_fence(s.pair.a.ep, s.pair.to_b));
	move.user = (void *)5;
	assert_ok(pinion_get(s.pair.a.ep, &move, NULL));
	while (n < 5) {
		n += pinion_poll(s.pair.a.ep, ends + n,
				 sizeof(struct pinion_completion),
				 8 - (unsigned)n);
		pair_progress(&s.pair);
	}
	for (intptr_t i = 0; i < 5; i++) {
		assert_ok(ends[i].status);
		if (ends[i].user == (void *)4)
			assert_true(i >= 3);
	}
	scene_close(&s);
}

static void a_remote_may_be_closed_while_operations_use_it(void **state)
{
	struct pinion_move move = { .size = sizeof(move), .len = BYTES };
	struct pinion_request *request;
	struct scene s;

	(void)state;
	scene_open(&s, NULL, ALL);
	move.remote = s.remote;
	move.buf = s.buf;
	memset(s.buf, 3, BYTES);
	assert_ok(pinion_put(s.pair.a.ep, &move, &request));
	pinion_remote_close(s.remote);
	assert_ok(finish(&s.pair, s.pair.a.ep, request).status);
	assert_memory_equal(s.buf, s.memory, BYTES);
	s.remote = NULL;
	scene_close(&s);
}

/* `soft` cannot pin read-only memory: it is copied. */
static void sources_that_cannot_be_pinned_are_copied(void **state)
{
	struct scene s;

	(void)state;
	scene_open(&s, NULL, ALL);
	memset(s.buf, 9, BYTES);
	assert_ok(mprotect(s.buf, BYTES, PROT_READ));
	assert_ok(put(&s, 0, BYTES));
	assert_memory_equal(s.buf, s.memory, BYTES);
	scene_close(&s);
}

static void operations_behind_a_fence_can_be_canceled(void **state)
{
	struct pinion_request *first, *second, *third;
	struct pinion_move move = { .size = sizeof(move), .len = BYTES };
	struct scene s;

	(void)state;
	scene_open(&s, NULL, ALL);
	move.remote = s.remote;
	move.buf = s.buf;
	/* Not connected yet: the first request is not all posted. */
	assert_ok(pinion_put(s.pair.a.ep, &move, &first));
	assert_ok(pinion_peer_fence(s.pair.a.ep, s.pair.to_b));
	assert_ok(pinion_put(s.pair.a.ep, &move, &second));
	assert_ok(pinion_put(s.pair.a.ep, &move, &third));
	assert_ok(pinion_cancel(s.pair.a.ep, second));
	assert_int_equal(pinion_wait(s.pair.a.ep, second, PINION_FOREVER, NULL),
			 -ECANCELED);
	assert_ok(finish(&s.pair, s.pair.a.ep, first).status);
	assert_ok(finish(&s.pair, s.pair.a.ep, third).status);
	scene_close(&s);
}

/* --- endings -------------------------------------------------------------- */

static void closing_abandons_what_is_under_way(void **state)
{
	struct pinion_message m = { .size = sizeof(m), .len = BYTES };
	struct pinion_move move = { .size = sizeof(move), .len = BYTES };
	struct scene s;

	(void)state;
	scene_open(&s, NULL, ALL);
	m.peer = s.pair.to_b;
	m.buf = move.buf = s.buf;
	move.remote = s.remote;
	for (unsigned i = 0; i < 20; i++) {
		m.tag = i;
		assert_ok(pinion_put(s.pair.a.ep, &move, NULL));
		assert_ok(pinion_put_when(s.pair.a.ep, &m, NULL));
		m.tag = 100 + i;
		assert_ok(pinion_grant(s.pair.a.ep, &m, NULL));
	}
	pair_progress(&s.pair);
	pair_progress(&s.pair);
	pinion_endpoint_close(s.pair.a.ep);
	assert_nothing_pinned(&s.pair.a);
	assert_ok(pinion_endpoint_open(s.pair.a.context, NULL, &s.pair.a.ep));
	s.remote = NULL; /* gone with its endpoint */
	scene_close(&s);
}

struct hello {
	struct pinion_address address;
	struct pinion_exposure_key key;
};

/* In a child: exposes memory, says so through a pipe, and waits to be killed.
 */
static void doomed(int out)
{
	struct pinion_exposure *exposure;
	struct hello hello;
	struct end end;

	end_open(&end, NULL);
	if (pinion_exposure_open(end.ep, map(BYTES), BYTES, ALL, &exposure) ||
	    pinion_exposure_key(exposure, &hello.key))
		_exit(1);
	hello.address = end.address;
	if (write(out, &hello, sizeof(hello)) != sizeof(hello))
		_exit(1);
	for (;;)
		pinion_poll(end.ep, NULL, 0, 0);
}

/* Starts one request of each kind to a peer that will die. */
static unsigned begin_all(struct end *end, struct pinion_peer *peer,
			  uint8_t *buf, struct pinion_request **requests)
{
	struct pinion_message m = {
		.size = sizeof(m), .buf = buf, .len = BYTES, .peer = peer
	};

	assert_ok(pinion_put_when(end->ep, &m, &requests[0]));
	m.tag = 1;
	assert_ok(pinion_grant(end->ep, &m, &requests[1]));
	m.len = 8;
	assert_ok(pinion_put_when(end->ep, &m, &requests[2]));
	return 3;
}

/* A process that sends its address through up[0] and waits to be killed. */
static pid_t start_doomed(int up[2])
{
	pid_t pid;

	assert_ok(pipe(up));
	pid = fork();
	if (!pid)
		doomed(up[1]);
	return pid;
}

static void a_killed_peer_ends_its_requests_and_nothing_else(void **state)
{
	struct pinion_move move = { .size = sizeof(move), .len = BYTES };
	struct pinion_request *requests[8];
	struct pinion_peer *peer;
	struct hello theirs;
	unsigned n;
	struct end end;
	int up[2];
	pid_t pid;

	(void)state;
	pid = start_doomed(up);
	end_open(&end, NULL);
	move.buf = map(BYTES);
	assert_int_equal(read(up[0], &theirs, sizeof(theirs)), sizeof(theirs));
	assert_ok(pinion_peer_add(end.ep, &theirs.address, &peer));
	assert_ok(pinion_remote_open(end.ep, peer, &theirs.key, &move.remote));
	assert_ok(pinion_put(end.ep, &move, &requests[0]));
	assert_ok(pinion_wait(end.ep, requests[0], PINION_FOREVER, NULL));
	n = begin_all(&end, peer, move.buf, requests);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(pinion_wait(end.ep, requests[i],
					     PINION_FOREVER, NULL),
				 -ECONNRESET);
	assert_int_equal(pinion_get(end.ep, &move, &requests[0]), -ECONNRESET);
	assert_int_equal(pinion_peer_fence(end.ep, peer), -ECONNRESET);
	pinion_remote_close(move.remote);
	end_close(&end);
	munmap(move.buf, BYTES);
	assert_false(close(up[0]) || close(up[1]));
}

/* The process at that address is gone: requests that wait for a connection
 * fail, and so do the flush and the put behind the fence. */
static void a_flush_and_a_fence_end_with_a_peer_that_never_connects(
	void **state)
{
	struct pinion_request *requests[3];
	struct pinion_move move = { .size = sizeof(move), .len = 64 };
	struct pinion_peer *peer;
	struct hello theirs;
	struct end end;
	int up[2];
	pid_t pid;

	(void)state;
	pid = start_doomed(up);
	assert_int_equal(read(up[0], &theirs, sizeof(theirs)), sizeof(theirs));
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	end_open(&end, NULL);
	move.buf = map(BYTES);
	assert_ok(pinion_peer_add(end.ep, &theirs.address, &peer));
	assert_ok(pinion_remote_open(end.ep, peer, &theirs.key, &move.remote));
	assert_ok(pinion_put(end.ep, &move, &requests[0]));
	assert_ok(pinion_peer_flush(end.ep, peer, NULL, &requests[1]));
	assert_ok(pinion_peer_fence(end.ep, peer));
	assert_ok(pinion_put(end.ep, &move, &requests[2]));
	assert_int_equal(pinion_wait(end.ep, requests[0], PINION_FOREVER, NULL),
			 -ECONNRESET);
	pinion_wait(end.ep, requests[1], PINION_FOREVER, NULL);
	assert_int_equal(pinion_wait(end.ep, requests[2], PINION_FOREVER, NULL),
			 -ECONNRESET);
	pinion_remote_close(move.remote);
	end_close(&end);
	munmap(move.buf, BYTES);
	assert_false(close(up[0]) || close(up[1]));
}

/* --- exposures and releases of other memory ------------------------------- */

static void memory_mapped_where_other_was_cached_can_be_exposed(void **state)
{
	struct pinion_exposure *exposure;
	uint8_t *memory = map(BYTES);
	struct pinion_pin pin;
	struct end end;

	(void)state;
	end_open(&end, NULL);
	assert_ok(pinion_pin(end.context, memory, BYTES, 0, &pin));
	pinion_unpin(end.context, &pin);
	munmap(memory, BYTES);
	assert_ptr_equal(mmap(memory, BYTES, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
			 memory);
	assert_ok(pinion_exposure_open(end.ep, memory, BYTES, ALL, &exposure));
	pinion_exposure_close(exposure);
	end_close(&end);
	munmap(memory, BYTES);
}

/* More release notifications than the queue holds, none for exposed memory;
 * then one for it. */
static void a_flood_of_releases_leaves_exposures_alone(void **state)
{
	uint8_t *cached = map(4096), *other = map(BYTES);
	struct pinion_exposure *second;
	struct pinion_pin pin;
	struct scene s;

	(void)state;
	scene_open(&s, NULL, ALL);
	assert_ok(
		pinion_exposure_open(s.pair.b.ep, other, BYTES, ALL, &second));
	assert_ok(pinion_pin(s.pair.b.context, cached, 4096, 0, &pin));
	pinion_unpin(s.pair.b.context, &pin);
	for (unsigned i = 0; i < 3000; i++)
		assert_ok(madvise(cached, 4096, MADV_DONTNEED));
	/* A miss reads the notifications. */
	assert_ok(pinion_pin(s.pair.b.context, cached, 4096, 0, &pin));
	pinion_unpin(s.pair.b.context, &pin);
	munmap(other, BYTES);
	pinion_poll(s.pair.b.ep, NULL, 0, 0);
	assert_ok(get(&s, 0, 64));
	pinion_exposure_close(second);
	scene_close(&s);
	munmap(cached, 4096);
}

struct releaser {
	uint8_t *memory;
	_Atomic bool stop;
	struct pinion_endpoint *ep;
};

static void *release_and_progress(void *arg)
{
	struct releaser *r = arg;

	while (!atomic_load(&r->stop)) {
		madvise(r->memory, BYTES, MADV_DONTNEED);
		pinion_poll(r->ep, NULL, 0, 0);
	}
	return NULL;
}

static void a_release_while_exposing_leaves_the_budget_right(void **state)
{
	struct releaser r = { .memory = map(BYTES) };
	struct pinion_exposure *exposure;
	unsigned exposed = 0, refused = 0;
	pthread_t thread;
	struct end end;

	(void)state;
	end_open(&end, NULL);
	r.ep = end.ep;
	assert_ok(pthread_create(&thread, NULL, release_and_progress, &r));
	for (unsigned i = 0; i < 500; i++) {
		int ret = pinion_exposure_open(end.ep, r.memory, BYTES, ALL,
					       &exposure);

		assert_true(!ret || ret == -EFAULT);
		if (!ret)
			pinion_exposure_close(exposure);
		exposed += !ret;
		refused += !!ret;
	}
	atomic_store(&r.stop, true);
	assert_ok(pthread_join(thread, NULL));
	printf("%u exposed, %u released meanwhile\n", exposed, refused);
	end_close(&end);
	munmap(r.memory, BYTES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(exposing_refuses_invalid_arguments),
		TEST(memory_beyond_the_budget_is_not_exposed),
		TEST(invalid_keys_are_refused),
		TEST(invalid_operations_are_refused),
		TEST(accesses_that_a_key_does_not_allow_are_refused),
		TEST(a_revoked_key_is_refused_and_the_peer_stays_usable),
		TEST(revoking_one_key_leaves_others_to_the_same_memory),
		TEST(only_the_exposed_bytes_can_be_reached),
		TEST(released_memory_is_no_longer_exposed),
		TEST(an_exposure_keeps_its_key_when_its_memory_goes),
		TEST(atomics_return_the_old_value),
		TEST(bounce_buffers_need_not_be_pinned),
		TEST(bounce_buffers_are_opened_later_if_refused_first),
		TEST(a_flush_ends_after_the_operations_before_it),
		TEST(a_remote_may_be_closed_while_operations_use_it),
		TEST(sources_that_cannot_be_pinned_are_copied),
		TEST(operations_behind_a_fence_can_be_canceled),
		TEST(closing_abandons_what_is_under_way),
		TEST(a_killed_peer_ends_its_requests_and_nothing_else),
		TEST(a_flush_and_a_fence_end_with_a_peer_that_never_connects),
		TEST(memory_mapped_where_other_was_cached_can_be_exposed),
		TEST(a_flood_of_releases_leaves_exposures_alone),
		TEST(a_release_while_exposing_leaves_the_budget_right),
	};

	return RUN_TESTS(tests);
}
