/* SPDX-License-Identifier: BSD-2-Clause */
/* Soft devices of several processes: connecting, refusing, moving bytes. */
#include "device/soft_util.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/asymmetric.h"
#include "base/log.h"
#include "device/soft/soft_impl.h"

#define SLICE ((size_t)192 << 10)
#define PUTS  150

/* --- several writers, one target ----------------------------------------- */

/* Owns a window, and sleeps in wait() while the others write to it. */
static int target(struct common *common, unsigned rank)
{
	struct pn_device *device = open_soft(common->spec);
	char *window = map_buffer((RANKS - 1) * SLICE + PN_PAGE_BYTES, 0);
	struct pn_mr mr;
	unsigned gone = 0;

	register_one(device, &mr, window, (RANKS - 1) * SLICE + 8, ALL);
	appear(common, rank, device, &mr);
	while (gone < RANKS - 1) {
		struct pn_completion c = next_completion(device);

		gone += c.kind == PN_COMPLETION_PEER_DOWN;
	}
	for (unsigned r = 1; r < RANKS; r++)
		for (size_t i = 0; i < SLICE; i++)
			CHECK(window[(r - 1) * SLICE + i] ==
			      (char)(r * 31 + i % 251));
	CHECK(*(uint64_t *)(void *)(window + (RANKS - 1) * SLICE) ==
	      (RANKS - 1) * PUTS);
	pn_device_close(device);
	return 0;
}

static void scribble(struct pn_device *device, struct pn_peer *peer,
		     const struct pn_mr *mr, struct remote_range to,
		     uint64_t *seed)
{
	size_t len = 1 + test_below(seed, SLICE);
	size_t at = test_below(seed, SLICE - len + 1);
	struct pn_sge sge = { (char *)mr->addr + at, len, mr->lkey };

	to.addr += at;
	CHECK(!move_op(device, peer, PN_OP_WRITE, &sge, to));
	memset(sge.addr, 0, len);
	CHECK(!move_op(device, peer, PN_OP_READ, &sge, to));
}

static int writer(struct common *common, unsigned rank)
{
	struct pn_device *device = open_soft(common->spec);
	char *memory = map_buffer(SLICE + PN_PAGE_BYTES, 0);
	uint64_t seed = rank;
	struct pn_peer *peer;
	struct pn_mr mr;

	register_one(device, &mr, memory, SLICE + 8, PINION_ACCESS_LOCAL_WRITE);
	for (size_t i = 0; i < SLICE; i++)
		memory[i] = (char)(rank * 31 + i % 251);
	await(&common->rank[0].here, 1);
	peer = attach_to(device, &common->rank[0].address);
	for (unsigned n = 0; n < PUTS; n++) {
		struct remote_range to = { common->rank[0].addr +
						   (rank - 1) * SLICE,
					   common->rank[0].key };
		struct pn_sge sge = { memory + SLICE, 8, mr.lkey };
		struct pn_op add = { .kind = PN_OP_FETCH_ADD,
				     .sge = &sge,
				     .nsge = 1,
				     .remote_addr = common->rank[0].addr +
						    (RANKS - 1) * SLICE,
				     .rkey = to.key,
				     .operand = 1 };

		CHECK(!run_op(device, peer, &add));
		scribble(device, peer, &mr, to, &seed);
		for (size_t i = 0; i < SLICE; i += 97)
			CHECK(memory[i] == (char)(rank * 31 + i % 251));
	}
	/* Reads back all of it. */
	CHECK(!move_op(device, peer, PN_OP_WRITE,
		       &(struct pn_sge){ memory, SLICE, mr.lkey },
		       (struct remote_range){ common->rank[0].addr +
						      (rank - 1) * SLICE,
					      common->rank[0].key }));
	pn_device_close(device);
	return 0;
}

static void write_together(const char *spec)
{
	struct common *common = new_common();
	pid_t pids[RANKS];

	strcpy(common->spec, spec);
	for (unsigned r = 0; r < RANKS; r++)
		pids[r] = start_rank(r ? writer : target, common, r);
	for (unsigned r = 0; r < RANKS; r++)
		assert_exits_well(pids[r]);
	free_common(common);
}

static void several_processes_put_into_one_target(void **state)
{
	(void)state;
	write_together("soft:chunk=32K,inline_max=8K");
	write_together("soft:strict");
	write_together("soft:mode=mlock");
}

/* --- messages ------------------------------------------------------------ */

#define MESSAGES 3000

static int flood(struct common *common, unsigned rank)
{
	struct pn_device *device = open_soft("soft:ring_bytes=64K,spin=0");
	char *memory = map_buffer(PN_SOFT_MAX_SEND, 0);
	struct pn_peer *peer;

	(void)rank;
	await(&common->rank[0].here, 1);
	peer = attach_to(device, &common->rank[0].address);
	for (uint32_t i = 0; i < MESSAGES;) {
		struct pn_sge sge = { memory, i % 2000, 0 };
		struct pn_op op = { .kind = PN_OP_SEND,
				    .flags = PN_OP_INLINE | PN_OP_SILENT,
				    .sge = &sge,
				    .nsge = 1,
				    .imm = i };
		int ret;

		memset(memory, (int)i, sge.len);
		ret = pn_device_post(device, peer, &op);
		i += !ret;
		/* The receiver notifies when there is room again. */
		if (ret) {
			CHECK(ret == -EAGAIN);
			CHECK(!pn_device_wait(device, pn_device_now(device) +
							      TIMEOUT_NS));
		}
	}
	pn_device_close(device); /* with messages in flight */
	return 0;
}

static void messages_sent_before_a_close_arrive_before_the_end(void **state)
{
	struct common *common = new_common();
	pid_t child = start_rank(flood, common, 1);
	struct pn_device *device = open_soft("soft:spin=0");
	struct pn_completion c;

	(void)state;
	appear(common, 0, device, NULL);
	expect(device, PN_COMPLETION_PEER_UP);
	for (uint32_t i = 0; i < MESSAGES; i++) {
		c = expect(device, PN_COMPLETION_RECV);
		assert_int_equal(c.imm, i);
		assert_int_equal(c.len, i % 2000);
		for (size_t k = 0; k < c.len; k++)
			assert_int_equal(((const char *)c.data)[k], (char)i);
		pn_device_return_buffer(device, &c);
		if (i == 100)
			usleep(20000); /* lets the sender stall */
	}
	c = expect(device, PN_COMPLETION_PEER_DOWN);
	assert_int_equal(c.status, -ECONNRESET);
	assert_exits_well(child);
	pn_device_close(device);
	free_common(common);
}

static void await_sleep(_Atomic uint32_t *sleeping)
{
	uint64_t deadline = pn_clock_ns() + TIMEOUT_NS;

	while (!atomic_load(sleeping)) {
		assert_true(pn_clock_ns() < deadline);
		usleep(1000);
	}
}

/* Acts as a peer that cleared `sleeping` and died before it sent the wake-up.
 */
static void *clear_and_end(void *arg)
{
	const struct pn_address *to = arg;
	struct pn_device *device = open_soft("soft:spin=0");
	struct pn_soft_peer *peer = pn_container_of(attach_to(device, to),
						    struct pn_soft_peer, peer);

	await_sleep(&peer->remote.presence->sleeping);
	atomic_store(&peer->remote.presence->sleeping, 0);
	pn_device_close(device);
	return NULL;
}

static void the_end_of_a_peer_wakes_though_its_wakeup_was_lost(void **state)
{
	struct pn_device *device = open_soft("soft:spin=0");
	struct pn_address address;
	uint64_t start;
	pthread_t thread;

	(void)state;
	pn_device_address(device, &address);
	assert_ok(pthread_create(&thread, NULL, clear_and_end, &address));
	expect(device, PN_COMPLETION_PEER_UP);
	start = pn_clock_ns();
	expect(device, PN_COMPLETION_PEER_DOWN);
	/* A sleeper that nobody wakes looks once more at its deadline. */
	assert_true(pn_clock_ns() - start < TIMEOUT_NS);
	assert_ok(pthread_join(thread, NULL));
	pn_device_close(device);
}

/* --- connecting ---------------------------------------------------------- */

static int as_another(struct common *common, unsigned rank)
{
	struct pn_device *device;
	struct pn_completion c;
	struct pn_peer *peer;

	(void)rank;
	CHECK(!become_user(common, 8 << 20));
	CHECK(!pn_device_open("soft", NULL, &device));
	CHECK(!pn_device_attach(device, &common->rank[0].address, &peer));
	c = next_completion(device);
	CHECK(c.kind == PN_COMPLETION_PEER_DOWN && c.peer == peer);
	CHECK(c.status == -ECONNREFUSED);
	CHECK(pn_device_post(device, peer, &(struct pn_op){ .kind = 0 }) ==
	      -ECONNREFUSED);
	pn_device_close(device);
	return 0;
}

/* Opens a device that another user's process tries to connect to. */
static struct pn_device *open_for_others(struct common *common)
{
	struct pn_device *device;

	if (geteuid()) {
		print_message("skipped: changing the user needs root\n");
		skip();
	}
	device = open_soft("soft");
	appear(common, 0, device, NULL);
	return device;
}

static void another_user_is_refused(void **state)
{
	struct common *common = new_common();
	struct pn_completion c;
	struct pn_device *device;

	(void)state;
	device = open_for_others(common);
	assert_exits_well(start_rank(as_another, common, 1));
	assert_int_equal(pn_device_poll(device, &c, 1), 0);
	pn_device_close(device);
	free_common(common);
}

/* Connects to a device's socket, as any process can. */
static int connect_to(int sock, const struct pn_address *to)
{
	struct pn_soft_address address;
	struct sockaddr_un name;
	unsigned len;

	memcpy(&address, to->data, sizeof(address));
	len = pn_soft_socket_name(&address, &name);
	return connect(sock, (struct sockaddr *)&name, len);
}

static ssize_t receive_answer(int sock, struct pn_soft_hello *answer)
{
	ssize_t n;

	do
		n = recv(sock, answer, sizeof(*answer), 0);
	while (n < 0 && errno == EINTR); /* io_uring interrupts it */
	return n;
}

/* Sends bytes on a connection; returns the answer's status, or the result of
 * recv(). */
static int send_and_receive(int sock, const void *bytes, size_t len,
			    struct pn_soft_hello *answer)
{
	ssize_t n;

	assert_int_equal(send(sock, bytes, len, MSG_NOSIGNAL), len);
	n = receive_answer(sock, answer);
	close(sock);
	return n == sizeof(*answer) ? answer->status : (int)n;
}

static int connect_and_send(const struct pn_address *to, const void *bytes,
			    size_t len, struct pn_soft_hello *answer)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_ok(connect_to(sock, to));
	return send_and_receive(sock, bytes, len, answer);
}

static void refused_connections_get_the_reason(void **state)
{
	struct pn_device *device = open_soft("soft");
	struct pn_soft_hello hello = { .magic = PN_SOFT_MAGIC,
				       .version = PN_SOFT_VERSION + 1 };
	struct pn_soft_hello answer;
	struct pn_address address;
	struct pn_completion c;

	(void)state;
	pn_log_set_level(PN_LOG_NONE);
	pn_device_address(device, &address);
	assert_int_equal(connect_and_send(&address, &hello, sizeof(hello),
					  &answer),
			 -EPROTONOSUPPORT);
	assert_int_equal(answer.version, PN_SOFT_VERSION);
	assert_int_equal(connect_and_send(&address, &hello, 8, &answer),
			 -EPROTONOSUPPORT);
	assert_int_equal(connect_and_send(&address, "x", 1, &answer), -EPROTO);
	hello.version = PN_SOFT_VERSION;
	/* A valid hello without its files. */
	assert_int_equal(connect_and_send(&address, &hello, sizeof(hello),
					  &answer),
			 -EPROTO);
	pn_log_set_level(PN_LOG_WARN);
	assert_int_equal(pn_device_poll(device, &c, 1), 0);
	loop_back(device);
	pn_device_close(device);
}

/* Sends a hello with n files; returns the answer's status. */
static int send_with_files(const struct pn_address *to, unsigned nfiles)
{
	struct pn_soft_hello hello = { .magic = PN_SOFT_MAGIC,
				       .version = PN_SOFT_VERSION };
	struct iovec iov = { &hello, sizeof(hello) };
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))];
	struct msghdr msg = { .msg_iov = &iov,
			      .msg_iovlen = 1,
			      .msg_control = control,
			      .msg_controllen =
				      CMSG_SPACE(nfiles * sizeof(int)) };
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ssize_t n;

	memset(control, 0, sizeof(control));
	cmsg->cmsg_level = SOL_SOCKET;
	cmsg->cmsg_type = SCM_RIGHTS;
	cmsg->cmsg_len = CMSG_LEN(nfiles * sizeof(int));
	for (unsigned i = 0; i < nfiles; i++)
		memcpy(CMSG_DATA(cmsg) + i * sizeof(int), &sock, sizeof(sock));
	assert_ok(connect_to(sock, to));
	assert_int_equal(sendmsg(sock, &msg, MSG_NOSIGNAL), sizeof(hello));
	n = receive_answer(sock, &hello);
	close(sock);
	return n == sizeof(hello) ? hello.status : (int)n;
}

static void a_hello_with_any_number_of_files_is_refused(void **state)
{
	struct pn_device *device = open_soft("soft");
	struct pn_address address;
	unsigned before = test_descriptors();

	(void)state;
	pn_device_address(device, &address);
	for (unsigned n = 1; n <= 8; n++)
		if (n != 2) /* 2 is the valid number */
			assert_int_equal(send_with_files(&address, n), -EPROTO);
	/* The answer comes a little before the connection is closed. */
	for (unsigned i = 0; i < 200 && test_descriptors() != before; i++)
		usleep(100000);
	assert_int_equal(test_descriptors(), before);
	loop_back(device);
	pn_device_close(device);
}

/* A process of another user that connects and sends nothing. */
static int silent_user(struct common *common, unsigned rank)
{
	(void)rank;
	alarm(60);
	CHECK(!become_user(common, 8 << 20));
	for (unsigned i = 0; i < 100; i++) {
		int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		char byte;

		CHECK(!connect_to(sock, &common->rank[0].address));
		CHECK(recv(sock, &byte, 1, 0) <=
		      0); /* the device has closed it */
	}
	return 0;
}

static void another_user_takes_no_descriptors(void **state)
{
	struct common *common = new_common();
	struct pn_device *device;
	unsigned before;

	(void)state;
	device = open_for_others(common);
	before = test_descriptors();
	assert_exits_well(start_rank(silent_user, common, 1));
	assert_int_equal(test_descriptors(), before);
	pn_device_close(device);
	free_common(common);
}

static void a_silent_connection_is_closed(void **state)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct timeval patience = { .tv_sec = TIMEOUT_NS / PN_NS_PER_S };
	struct pn_device *device = open_soft("soft");
	struct pn_address address;
	ssize_t n;
	char byte;

	(void)state;
	pn_device_address(device, &address);
	assert_ok(setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience,
			     sizeof(patience)));
	assert_ok(connect_to(sock, &address));
	do
		n = recv(sock, &byte, 1, 0);
	while (n < 0 && errno == EINTR); /* io_uring interrupts it */
	assert_int_equal(n, 0);
	close(sock);
	pn_device_close(device);
}

static _Atomic unsigned naccepted;

int __real_accept4(int sock, struct sockaddr *addr, socklen_t *len, int flags);
int __wrap_accept4(int sock, struct sockaddr *addr, socklen_t *len, int flags);

int __wrap_accept4(int sock, struct sockaddr *addr, socklen_t *len, int flags)
{
	naccepted++;
	return __real_accept4(sock, addr, len, flags);
}

/* The device retries now and then, not all the time, which would use a core. */
static void without_descriptors_connections_wait(void **state)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct pn_device *device = open_soft("soft");
	struct pn_soft_hello answer;
	struct pn_address address;
	struct rlimit limit, none;
	unsigned before = naccepted;

	(void)state;
	pn_log_set_level(PN_LOG_NONE);
	pn_device_address(device, &address);
	assert_ok(getrlimit(RLIMIT_NOFILE, &limit));
	none = (struct rlimit){ 0, limit.rlim_max };
	assert_ok(setrlimit(RLIMIT_NOFILE, &none));
	assert_ok(connect_to(sock, &address));
	for (unsigned i = 0; i < 200 && naccepted < before + 2; i++)
		usleep(100000);
	assert_ok(setrlimit(RLIMIT_NOFILE, &limit));
	assert_in_range(naccepted, before + 2, before + 500);
	assert_int_equal(send_and_receive(sock, "x", 1, &answer), -EPROTO);
	pn_log_set_level(PN_LOG_WARN);
	pn_device_close(device);
}

/* The device that cannot add a peer's socket to its epoll. */
static struct pn_device *_Atomic unwatchable;

int __real_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event);

int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
	struct pn_device *device = unwatchable;

	if (op == EPOLL_CTL_ADD && device &&
	    epoll == pn_soft_of(device)->event_fd) {
		errno = ENOSPC;
		return -1;
	}
	return __real_epoll_ctl(epoll, op, fd, event);
}

static void a_peer_that_cannot_be_watched_is_down(void **state)
{
	unsigned before = test_descriptors();

	(void)state;
	for (unsigned side = 0; side < 2; side++) {
		struct pn_device *devices[] = { open_soft("soft"),
						open_soft("soft") };
		struct pn_address address;
		struct pn_completion c;
		struct pn_peer *peer;

		unwatchable = devices[side];
		pn_device_address(devices[1], &address);
		assert_ok(pn_device_attach(devices[0], &address, &peer));
		c = expect(devices[side], PN_COMPLETION_PEER_DOWN);
		assert_true(c.status < 0);
		/* The other side, which may have been up, goes down, too. */
		do
			c = next_completion(devices[!side]);
		while (c.kind == PN_COMPLETION_PEER_UP);
		assert_int_equal(c.kind, PN_COMPLETION_PEER_DOWN);
		unwatchable = NULL;
		pn_device_close(devices[0]);
		pn_device_close(devices[1]);
	}
	assert_int_equal(test_descriptors(), before);
}

/* Messages with the files of an answer, and then others, that the kernel has no
 * memory for. */
static _Atomic int answers_lost, others_lost;

ssize_t __real_sendmsg(int sock, const struct msghdr *msg, int flags);
ssize_t __wrap_sendmsg(int sock, const struct msghdr *msg, int flags);

ssize_t __wrap_sendmsg(int sock, const struct msghdr *msg, int flags)
{
	const struct cmsghdr *files =
		msg->msg_controllen ? CMSG_FIRSTHDR(msg) : NULL;
	bool answer = files && files->cmsg_len == CMSG_LEN(PN_SOFT_ANSWER_FDS *
							   sizeof(int));

	if ((answer && answers_lost && answers_lost--) ||
	    (!files && others_lost && others_lost--)) {
		errno = ENOBUFS;
		return -1;
	}
	return __real_sendmsg(sock, msg, flags);
}

/* A device attaches to another whose answer is lost; returns what that ends
 * with on both sides. */
static enum pn_completion_kind attach_without_answer(void)
{
	unsigned before = test_descriptors();
	struct pn_device *a = open_soft("soft"), *b = open_soft("soft");
	enum pn_completion_kind kind;
	struct pn_address address;
	struct pn_peer *peer;

	answers_lost = 1;
	pn_device_address(b, &address);
	assert_ok(pn_device_attach(a, &address, &peer));
	kind = next_completion(a).kind;
	assert_int_equal(next_completion(b).kind, kind);
	assert_int_equal(answers_lost + others_lost, 0);
	pn_device_close(a);
	pn_device_close(b);
	assert_int_equal(test_descriptors(), before);
	return kind;
}

static void an_answer_that_cannot_be_sent_is_tried_again(void **state)
{
	(void)state;
	assert_int_equal(attach_without_answer(), PN_COMPLETION_PEER_UP);
}

static void without_any_answer_both_sides_are_down(void **state)
{
	(void)state;
	others_lost = 1;
	assert_int_equal(attach_without_answer(), PN_COMPLETION_PEER_DOWN);
}

/* A device of a later version: refuses every hello. */
static void *other_version(void *arg)
{
	int sock = accept(*(int *)arg, NULL, NULL);
	struct pn_soft_hello hello = { .magic = PN_SOFT_MAGIC,
				       .version = PN_SOFT_VERSION + 1,
				       .status = -EPROTONOSUPPORT };
	char bytes[512];

	if (recv(sock, bytes, sizeof(bytes), 0) > 0)
		send(sock, &hello, sizeof(hello), MSG_NOSIGNAL);
	close(sock);
	return NULL;
}

static void a_device_of_another_version_refuses_us(void **state)
{
	struct pn_soft_address address;
	struct pn_address blob;
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un name;
	unsigned len;
	struct pn_device *device = open_soft("soft");
	struct pn_completion c;
	struct pn_peer *peer;
	pthread_t thread;

	(void)state;
	pn_log_set_level(PN_LOG_NONE);
	pn_device_address(device, &blob);
	memcpy(&address, blob.data, sizeof(address));
	address.nonce = 12345;
	len = pn_soft_socket_name(&address, &name);
	assert_ok(bind(sock, (struct sockaddr *)&name, len));
	assert_ok(listen(sock, 1));
	pthread_create(&thread, NULL, other_version, &sock);
	memcpy(blob.data, &address, sizeof(address));
	assert_ok(pn_device_attach(device, &blob, &peer));
	c = expect(device, PN_COMPLETION_PEER_DOWN);
	assert_int_equal(c.status, -ECONNREFUSED);
	pthread_join(thread, NULL);
	close(sock);
	pn_log_set_level(PN_LOG_WARN);
	pn_device_close(device);
}

static void devices_of_another_node_cannot_be_attached(void **state)
{
	struct pn_device *device = open_soft("soft");
	struct pn_device *same = open_soft("soft"), *other;
	struct pn_address address;
	struct pn_peer *peer;

	(void)state;
	other = open_soft("soft:node=elsewhere");
	pn_device_address(other, &address);
	assert_int_equal(pn_device_attach(device, &address, &peer),
			 -EHOSTUNREACH);
	assert_ok(pn_device_attach(other, &address, &peer));
	pn_device_address(same, &address);
	assert_ok(pn_device_attach(device, &address, &peer));
	expect(device, PN_COMPLETION_PEER_UP);
	pn_device_close(other);
	pn_device_close(same);
	pn_device_close(device);
}

/* How often PR_SET_PTRACER allowed any process to trace this one. */
static _Atomic unsigned nptracer_calls;

int __real_prctl(int option, ...);
int __wrap_prctl(int option, ...);

int __wrap_prctl(int option, ...)
{
	unsigned long arg[4];
	va_list list;

	va_start(list, option);
	for (unsigned i = 0; i < PN_ARRAY_LEN(arg); i++)
		arg[i] = va_arg(list, unsigned long);
	va_end(list);
	nptracer_calls +=
		option == PR_SET_PTRACER && arg[0] == PR_SET_PTRACER_ANY;
	return __real_prctl(option, arg[0], arg[1], arg[2], arg[3]);
}

/* PR_SET_PTRACER is valid only for the process that called it. */
static void a_forked_child_allows_its_own_peers_to_trace(void **state)
{
	struct pn_device *device, *second;
	unsigned before;
	pid_t pid;

	(void)state;
	/* The allocators of sanitizers (whose builds have fences) do not
	 * support fork() with other threads running. */
	if (PN_ASYMMETRIC_FENCES)
		skip();
	device = open_soft("soft");
	before = nptracer_calls;
	second = open_soft("soft");
	assert_int_equal(nptracer_calls, before);
	pid = fork();
	if (!pid) {
		CHECK(!pn_device_open("soft", NULL, &device));
		CHECK(nptracer_calls == before + 1);
		pn_device_close(device);
		_exit(0);
	}
	assert_exits_well(pid);
	pn_device_close(second);
	pn_device_close(device);
	device = open_soft("soft");
	assert_int_equal(nptracer_calls, before + 1);
	pn_device_close(device);
}

static void attaching_where_no_device_is_ends_in_down(void **state)
{
	struct pn_device *device = open_soft("soft"), *gone = open_soft("soft");
	struct pn_address address;
	struct pn_completion c;
	struct pn_peer *peer;

	(void)state;
	pn_device_address(gone, &address);
	pn_device_close(gone);
	assert_ok(pn_device_attach(device, &address, &peer));
	assert_true(pn_device_post(device, peer, &(struct pn_op){ .kind = 0 }) <
		    0);
	c = expect(device, PN_COMPLETION_PEER_DOWN);
	assert_int_equal(c.status, -ECONNRESET);
	assert_ptr_equal(c.peer, peer);
	pn_device_close(device);
}

static int meet(struct common *common, unsigned rank)
{
	struct pn_device *device = open_soft("soft");
	unsigned other = !rank;
	struct pn_completion c;
	struct pn_peer *peer;

	appear(common, rank, device, NULL);
	await(&common->rank[other].here, 1);
	common->go[0]++;
	while (common->go[0] < 2)
		;
	CHECK(!pn_device_attach(device, &common->rank[other].address, &peer));
	c = next_completion(device);
	CHECK(c.kind == PN_COMPLETION_PEER_UP && c.peer == peer);
	CHECK(!pn_device_post(device, peer,
			      &(struct pn_op){ .kind = PN_OP_SEND,
					       .flags = PN_OP_SILENT,
					       .imm = rank }));
	c = next_completion(device);
	CHECK(c.kind == PN_COMPLETION_RECV && c.peer == peer);
	CHECK(c.imm == other);
	pn_device_return_buffer(device, &c);
	common->go[1]++;
	await(&common->go[1], 2);
	/* No peer came up a second time. */
	CHECK(pn_device_poll(device, &c, 1) == 0 ||
	      c.kind == PN_COMPLETION_PEER_DOWN);
	pn_device_close(device);
	return 0;
}

static void two_that_attach_at_once_become_one_pair(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 30; round++) {
		struct common *common = new_common();
		pid_t a = start_rank(meet, common, 0);
		pid_t b = start_rank(meet, common, 1);

		assert_exits_well(a);
		assert_exits_well(b);
		free_common(common);
	}
}

static void many_peers_at_once(void **state)
{
	enum { N = 40 };
	struct pn_device *hub = open_soft("soft"), *spokes[N];
	struct pn_address address;
	unsigned ups = 0, messages = 0;

	(void)state;
	pn_device_address(hub, &address);
	for (unsigned i = 0; i < N; i++) {
		struct pn_op op = { .kind = PN_OP_SEND, .flags = PN_OP_SILENT };

		spokes[i] = open_soft("soft:ring_bytes=64K");
		assert_ok(pn_device_post(spokes[i],
					 attach_to(spokes[i], &address), &op));
	}
	while (messages < N) {
		struct pn_completion c = next_completion(hub);

		ups += c.kind == PN_COMPLETION_PEER_UP;
		messages += c.kind == PN_COMPLETION_RECV;
		pn_device_return_buffer(hub, &c);
	}
	assert_int_equal(ups, N);
	for (unsigned i = 0; i < N; i++)
		pn_device_close(spokes[i]);
	for (unsigned i = 0; i < N; i++)
		expect(hub, PN_COMPLETION_PEER_DOWN);
	pn_device_close(hub);
}

/* Takes one message at a time of two peers that have sent all of theirs. */
static void take_turns(struct pn_device *hub, unsigned messages)
{
	const struct pn_peer *before = NULL;

	for (unsigned i = 0; i < messages; i++) {
		struct pn_completion c = expect(hub, PN_COMPLETION_RECV);

		assert_ptr_not_equal(c.peer, before);
		before = c.peer;
		pn_device_return_buffer(hub, &c);
	}
}

static void a_busy_sender_does_not_delay_others(void **state)
{
	enum { N = 20 };
	struct pn_device *hub = open_soft("soft"), *spokes[2];
	const struct pn_inline_header head = { { 7 } };
	struct pn_address address;
	struct pn_peer *to[2];

	(void)state;
	pn_device_address(hub, &address);
	for (unsigned i = 0; i < 2; i++) {
		spokes[i] = open_soft("soft");
		to[i] = attach_to(spokes[i], &address);
		expect(hub, PN_COMPLETION_PEER_UP);
	}
	for (unsigned round = 0; round < 2; round++) {
		hub->single_threaded = round;
		for (unsigned i = 0; i < 2 * N; i++)
			assert_ok(pn_device_send_inline(spokes[i / N],
							to[i / N], &head, NULL,
							0));
		take_turns(hub, 2 * N);
	}
	hub->single_threaded = false;
	for (unsigned i = 0; i < 2; i++)
		pn_device_close(spokes[i]);
	pn_device_close(hub);
}

/* --- without privileges -------------------------------------------------- */

static int humble(struct common *common, unsigned rank)
{
	struct pn_device *device;
	struct pn_completion c;
	struct pn_peer *peer;
	struct pn_sge sge;
	struct pn_mr mr;
	char *memory = map_buffer(SLICE, (int)rank + 1);

	CHECK(!become_user(common, 8 << 20));
	CHECK(!pn_device_open("soft:mode=uring", NULL, &device));
	register_one(device, &mr, memory, SLICE, ALL);
	appear(common, rank, device, &mr);
	await(&common->rank[!rank].here, 1);
	if (rank) {
		peer = attach_to(device, &common->rank[0].address);
		sge = (struct pn_sge){ memory, SLICE, mr.lkey };
		CHECK(!move_op(device, peer, PN_OP_WRITE, &sge,
			       (struct remote_range){ common->rank[0].addr,
						      common->rank[0].key }));
	} else {
		CHECK(next_completion(device).kind == PN_COMPLETION_PEER_UP);
		c = next_completion(device);
		CHECK(c.kind == PN_COMPLETION_PEER_DOWN);
		CHECK(memory[0] == 2 && memory[SLICE - 1] == 2);
	}
	pn_device_close(device);
	return 0;
}

static void an_ordinary_user_needs_no_privilege(void **state)
{
	struct common *common = new_common();
	pid_t a, b;

	(void)state;
	if (geteuid()) {
		print_message("skipped: changing the user needs root\n");
		skip();
	}
	a = start_rank(humble, common, 0);
	b = start_rank(humble, common, 1);
	assert_exits_well(a);
	assert_exits_well(b);
	free_common(common);
}

const struct role roles[] = {
	ROLE(target), ROLE(writer), ROLE(flood),       ROLE(as_another),
	ROLE(meet),   ROLE(humble), ROLE(silent_user), { NULL, NULL },
};

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(several_processes_put_into_one_target),
		TEST(messages_sent_before_a_close_arrive_before_the_end),
		TEST(the_end_of_a_peer_wakes_though_its_wakeup_was_lost),
		TEST(another_user_is_refused),
		TEST(another_user_takes_no_descriptors),
		TEST(refused_connections_get_the_reason),
		TEST(a_hello_with_any_number_of_files_is_refused),
		TEST(a_silent_connection_is_closed),
		TEST(without_descriptors_connections_wait),
		TEST(a_peer_that_cannot_be_watched_is_down),
		TEST(an_answer_that_cannot_be_sent_is_tried_again),
		TEST(without_any_answer_both_sides_are_down),
		TEST(a_device_of_another_version_refuses_us),
		TEST(devices_of_another_node_cannot_be_attached),
		TEST(a_forked_child_allows_its_own_peers_to_trace),
		TEST(attaching_where_no_device_is_ends_in_down),
		TEST(two_that_attach_at_once_become_one_pair),
		TEST(many_peers_at_once),
		TEST(a_busy_sender_does_not_delay_others),
		TEST(an_ordinary_user_needs_no_privilege),
	};

	play_role(argc, argv);
	return RUN_TESTS(tests);
}
