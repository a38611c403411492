/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Children that no fork handler runs in: of _Fork(), of the system calls clone
 * and fork, and what those fork in turn. Every public call there is refused at
 * once, whatever locks the parent's threads held, and the parent goes on
 * unharmed. The same calls in a child of fork() are refused alike.
 *
 * Children report by their exit status.
 */
#include "message/ends.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cache/cache_impl.h"
#include "heap/heap_impl.h"
#include "message/endpoint/endpoint.h"

#define LEN    (4 * PN_PAGE_BYTES)
/* Everything that messages need, so that none registers again. */
#define ACCESS (PINION_ACCESS_ALL & ~PINION_ACCESS_RELAXED)

/* In a child: no cmocka. */
#define CHECK(x) ((x) ? (void)0 : child_failed(#x, __LINE__))

static void child_failed(const char *what, int line)
{
	fprintf(stderr, "child, line %d: %s\n", line, what);
	_exit(1);
}

static struct {
	struct pair pair;
	struct pinion_heap *heap;
	void *block;
	struct pinion_registration *registration;
	struct pinion_pin pin;
	struct pinion_exposure *exposure;
	struct pinion_exposure_key key;
	struct pinion_remote *remote;
	struct pinion_request *request; /* a receive that waits */
	char *mem;			/* of a */
	char *target;			/* of b */
} f;

static char *map(void)
{
	char *p = mmap(NULL, LEN, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static int setup(void **state)
{
	struct pinion_message never = { .size = sizeof(never), .tag = 77 };

	(void)state;
	pair_open(&f.pair, NULL);
	f.mem = map();
	f.target = map();
	assert_ok(pinion_heap_open(f.pair.a.context, NULL, &f.heap));
	f.block = pinion_heap_malloc(f.heap, 100);
	assert_non_null(f.block);
	pinion_heap_free(f.heap, pinion_heap_malloc(f.heap, 100));
	assert_ok(pinion_device_register(f.pair.a.context, f.mem, LEN, ACCESS,
					 &f.registration));
	assert_ok(pinion_pin(f.pair.a.context, f.mem, LEN, ACCESS, &f.pin));
	assert_ok(pinion_exposure_open(f.pair.b.ep, f.target, LEN, ACCESS,
				       &f.exposure));
	assert_ok(pinion_exposure_key(f.exposure, &f.key));
	assert_ok(pinion_remote_open(f.pair.a.ep, f.pair.to_b, &f.key,
				     &f.remote));
	assert_ok(pinion_recv(f.pair.a.ep, &never, &f.request));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	assert_ok(pinion_cancel(f.pair.a.ep, f.request));
	finish(&f.pair, f.pair.a.ep, f.request);
	pinion_remote_close(f.remote);
	pinion_exposure_close(f.exposure);
	pinion_unpin(f.pair.a.context, &f.pin);
	pinion_device_deregister(f.registration);
	pinion_heap_free(f.heap, f.block);
	pinion_heap_close(f.heap);
	pair_close(&f.pair);
	munmap(f.mem, LEN);
	munmap(f.target, LEN);
	return 0;
}

/* --- what a child tries --------------------------------------------------- */

static void pin_everything(void)
{
	struct pinion_context *context = f.pair.a.context;
	struct pinion_cache_stats stats = { .size = sizeof(stats) };
	struct iovec list = { f.mem, LEN };
	struct pinion_pin pin;

	CHECK(pinion_pin(context, f.mem, LEN, ACCESS, &pin) == -EPERM);
	CHECK(pinion_pin(context, f.target, LEN, 0, &pin) == -EPERM);
	CHECK(pinion_pin_list(context, &list, 1, ACCESS, &pin) == -EPERM);
	CHECK(pinion_pin_start(context, f.mem, LEN, ACCESS, &pin) == -EPERM);
	CHECK(pinion_pin_test(context, &f.pin) == -EPERM);
	CHECK(pinion_pin_wait(context, &f.pin) == -EPERM);
	CHECK(pinion_cache_flush(context) == -EPERM);
	CHECK(pinion_cache_revoke(context, f.mem, LEN) == -EPERM);
	CHECK(pinion_cache_resize(context, PN_PAGE_BYTES, 1) == -EPERM);
	CHECK(pinion_cache_query(context, &stats) == -EPERM);
	pinion_invalidate(f.mem, LEN);
	pinion_unpin(context, &f.pin);
}

static void refused(const void *block)
{
	CHECK(!block && errno == EPERM);
	errno = 0;
}

static void allocate_everything(void)
{
	struct pinion_context *context = f.pair.a.context;
	struct pinion_heap_stats stats = { .size = sizeof(stats) };
	struct pinion_device_info info = { .size = sizeof(info) };
	struct pinion_registration *reg;
	struct pinion_heap_region region = { .size = sizeof(region) };
	struct pinion_heap *heap;

	refused(pinion_heap_malloc(f.heap, 100));
	refused(pinion_heap_malloc(f.heap, 1 << 20));
	refused(pinion_heap_calloc(f.heap, 1, 100));
	refused(pinion_heap_realloc(f.heap, f.block, 100000));
	refused(pinion_heap_aligned(f.heap, 64, 100));
	CHECK(pinion_heap_find(f.heap, f.block, &region) == -ENOENT);
	CHECK(pinion_heap_trim(f.heap) == -EPERM);
	CHECK(pinion_heap_query(f.heap, &stats) == -EPERM);
	CHECK(pinion_heap_open(context, NULL, &heap) == -EPERM);
	pinion_heap_free(f.heap, f.block);
	pinion_heap_close(f.heap);
	CHECK(pinion_device_query(context, &info) == -EINVAL);
	CHECK(pinion_device_register(context, f.mem, LEN, ACCESS, &reg) ==
	      -EINVAL);
	pinion_device_deregister(f.registration);
}

static void send_everything(void)
{
	struct pinion_endpoint *ep = f.pair.a.ep;
	struct pinion_message m = {
		.size = sizeof(m), .buf = f.mem, .len = 8, .peer = f.pair.to_b
	};
	struct pinion_endpoint_stats stats = { .size = sizeof(stats) };
	struct pinion_completion end;
	struct pinion_address address;
	struct pinion_peer *peer;

	CHECK(pinion_endpoint_open(f.pair.a.context, NULL, &ep) == -EINVAL);
	CHECK(pinion_endpoint_address(ep, &address) == -EINVAL);
	CHECK(pinion_peer_add(ep, &f.pair.b.address, &peer) == -EINVAL);
	CHECK(pinion_send(ep, &m, NULL) == -EINVAL);
	CHECK(pinion_recv(ep, &m, NULL) == -EINVAL);
	CHECK(pinion_probe(ep, &m, &end, NULL) == -EINVAL);
	CHECK(pinion_cancel(ep, f.request) == -EINVAL);
	CHECK(pinion_recv_cancel(ep, NULL) == -EINVAL);
	CHECK(pinion_test(ep, f.request, &end) == -EINVAL);
	CHECK(pinion_wait(ep, f.request, PINION_FOREVER, &end) == -EINVAL);
	CHECK(pinion_poll(ep, &end, sizeof(end), 1) == -EINVAL);
	CHECK(pinion_endpoint_fd(ep) == -EINVAL);
	CHECK(pinion_endpoint_arm(ep) == -EINVAL);
	CHECK(pinion_endpoint_query(ep, &stats) == -EINVAL);
	CHECK(pinion_put_when(ep, &m, NULL) == -EINVAL);
	CHECK(pinion_grant(ep, &m, NULL) == -EINVAL);
}

static void move_everything(void)
{
	struct pinion_endpoint *ep = f.pair.a.ep;
	struct pinion_move move = {
		.size = sizeof(move), .remote = f.remote, .buf = f.mem, .len = 8
	};
	struct pinion_atomic atomic = { .size = sizeof(atomic),
					.remote = f.remote };
	struct pinion_exposure *exposure;
	struct pinion_remote *remote;

	CHECK(pinion_put(ep, &move, NULL) == -EINVAL);
	CHECK(pinion_get(ep, &move, NULL) == -EINVAL);
	CHECK(pinion_atomic_fetch_add(ep, &atomic, NULL) == -EINVAL);
	CHECK(pinion_atomic_swap(ep, &atomic, NULL) == -EINVAL);
	CHECK(pinion_atomic_compare_swap(ep, &atomic, NULL) == -EINVAL);
	CHECK(pinion_peer_flush(ep, f.pair.to_b, NULL, NULL) == -EINVAL);
	CHECK(pinion_peer_fence(ep, f.pair.to_b) == -EINVAL);
	CHECK(pinion_exposure_open(ep, f.mem, LEN, ACCESS, &exposure) ==
	      -EINVAL);
	CHECK(pinion_remote_open(ep, f.pair.to_b, &f.key, &remote) == -EINVAL);
	pinion_remote_close(f.remote);
	pinion_exposure_close(f.exposure);
	pinion_endpoint_close(ep);
	pinion_endpoint_close(f.pair.b.ep);
}

static void call_everything(void)
{
	struct pinion_helper_stats stats = { .size = sizeof(stats) };

	pin_everything();
	allocate_everything();
	send_everything();
	move_everything();
	CHECK(pinion_helper_query(f.pair.a.context, &stats) == -EPERM);
	CHECK(!munmap(f.mem, LEN)); /* no monitor is notified */
	pinion_close(f.pair.a.context);
	pinion_close(f.pair.b.context);
}

/* Nothing new can be opened either. */
static void call_everything_lost(void)
{
	const char *const options[] = { "log=none", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	struct pinion_context *context;

	call_everything();
	CHECK(pinion_site_set("child") == -EPERM);
	CHECK(pinion_open(&attr, &context) == -EPERM);
}

static void fork_once_more(void)
{
	int status;
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		alarm(60);
		call_everything_lost();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(!status);
	call_everything_lost();
}

/* Ends as a program does, with destructors. */
static void leave(void)
{
	call_everything_lost();
	fclose(stdout);
	exit(0);
}

/* --- ways to a child ------------------------------------------------------ */

static pid_t by_fork(void)
{
	return fork();
}

static pid_t by_Fork(void)
{
	return _Fork();
}

static pid_t by_clone(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static pid_t by_system_call(void)
{
#ifdef SYS_fork
	return (pid_t)syscall(SYS_fork);
#else
	return by_clone();
#endif
}

static void lock_everything(void) PN_NO_THREAD_SAFETY
{
	pn_lock(&f.pair.a.context->lock);
	pn_lock(&f.pair.a.context->cache->lock);
	pn_lock(&f.heap->lock);
}

static void unlock_everything(void) PN_NO_THREAD_SAFETY
{
	pn_unlock(&f.heap->lock);
	pn_unlock(&f.pair.a.context->cache->lock);
	pn_unlock(&f.pair.a.context->lock);
}

/* Locks are held as if another thread were inside the library. */
static void run_child(pid_t (*make)(void), void (*fn)(void))
{
	int status;
	pid_t pid;

	fflush(stdout);
	lock_everything();
	pid = make();
	if (!pid) {
		alarm(60);
		fn();
		_exit(0);
	}
	unlock_everything();
	assert_true(pid > 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* --- what the parent still can -------------------------------------------- */

static void assert_message_arrives(size_t len)
{
	struct pinion_message out = { .size = sizeof(out),
				      .buf = f.mem,
				      .len = len,
				      .peer = f.pair.to_b };
	struct pinion_message in = { .size = sizeof(in),
				     .buf = f.target,
				     .len = len };
	struct pinion_request *sent, *received;

	memset(f.mem, 's', len);
	memset(f.target, 0, len);
	assert_ok(pinion_recv(f.pair.b.ep, &in, &received));
	assert_ok(pinion_send(f.pair.a.ep, &out, &sent));
	assert_int_equal(finish(&f.pair, f.pair.b.ep, received).status, 0);
	assert_int_equal(finish(&f.pair, f.pair.a.ep, sent).status, 0);
	assert_memory_equal(f.mem, f.target, len);
}

static void assert_put_arrives(void)
{
	struct pinion_move move = { .size = sizeof(move),
				    .remote = f.remote,
				    .buf = f.mem,
				    .len = LEN };
	struct pinion_request *request;

	memset(f.mem, 'p', LEN);
	assert_ok(pinion_put(f.pair.a.ep, &move, &request));
	assert_int_equal(finish(&f.pair, f.pair.a.ep, request).status, 0);
	assert_ok(pinion_peer_flush(f.pair.a.ep, f.pair.to_b, NULL, &request));
	assert_int_equal(finish(&f.pair, f.pair.a.ep, request).status, 0);
	assert_memory_equal(f.mem, f.target, LEN);
}

static void assert_unharmed(void)
{
	struct pinion_pin pin;
	void *block;

	assert_message_arrives(8);
	assert_message_arrives(LEN);
	assert_put_arrives();
	assert_ok(pinion_pin(f.pair.a.context, f.mem, LEN, ACCESS, &pin));
	assert_int_equal(pin.remote_key, f.pin.remote_key);
	pinion_unpin(f.pair.a.context, &pin);
	block = pinion_heap_malloc(f.heap, 100);
	assert_non_null(block);
	pinion_heap_free(f.heap, block);
	pn_cache_check(f.pair.a.context->cache);
	pn_heap_check(f.heap);
}

/* --- tests ---------------------------------------------------------------- */

static void a_child_of_fork_is_refused_everything(void **state)
{
	(void)state;
	run_child(by_fork, call_everything);
	assert_unharmed();
}

static void a_child_of__Fork_is_refused_everything(void **state)
{
	(void)state;
	run_child(by_Fork, call_everything_lost);
	assert_unharmed();
}

static void a_child_of_the_clone_call_is_refused_everything(void **state)
{
	(void)state;
	run_child(by_clone, call_everything_lost);
	run_child(by_system_call, call_everything_lost);
	assert_unharmed();
}

static void what_such_a_child_forks_is_refused_everything(void **state)
{
	(void)state;
	run_child(by_clone, fork_once_more);
	run_child(by_Fork, fork_once_more);
	assert_unharmed();
}

static void such_a_child_may_end_like_a_program(void **state)
{
	(void)state;
	run_child(by_Fork, leave);
	assert_unharmed();
}

/* fork() still works afterwards; its child may do everything. */
static void open_own(void)
{
	struct pinion_context *context;
	struct pinion_pin pin;

	CHECK(!pinion_open(NULL, &context));
	CHECK(!pinion_pin(context, f.mem, LEN, ACCESS, &pin));
	CHECK(!pinion_pin(context, f.mem, LEN, ACCESS, &pin));
	pinion_unpin(context, &pin);
	pinion_close(context);
}

static void a_later_child_of_fork_can_open_its_own(void **state)
{
	(void)state;
	run_child(by_Fork, call_everything_lost);
	run_child(by_fork, open_own);
	assert_unharmed();
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_child_of_fork_is_refused_everything),
		CASE(a_child_of__Fork_is_refused_everything),
		CASE(a_child_of_the_clone_call_is_refused_everything),
		CASE(what_such_a_child_forks_is_refused_everything),
		CASE(such_a_child_may_end_like_a_program),
		CASE(a_later_child_of_fork_can_open_its_own),
	};

	return RUN_TESTS(tests);
}
