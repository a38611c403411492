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

/* Owns a window, sleeps in wait() while the others write to it. */
static int target(struct board *board, unsigned rank)
{
	struct pn_device *device = open_soft(board->spec);
	char *window = map_buffer((RANKS - 1) * SLICE + PN_PAGE_BYTES, 0);
	struct pn_mr mr;
	unsigned gone = 0;

	register_one(device, &mr, window, (RANKS - 1) * SLICE + 8, ALL);
	appear(board, rank, device, &mr);
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

static int writer(struct board *board, unsigned rank)
{
	struct pn_device *device = open_soft(board->spec);
	char *memory = map_buffer(SLICE + PN_PAGE_BYTES, 0);
	uint64_t seed = rank;
	struct pn_peer *peer;
	struct pn_mr mr;

	register_one(device, &mr, memory, SLICE + 8, PINION_ACCESS_LOCAL_WRITE);
	for (size_t i = 0; i < SLICE; i++)
		memory[i] = (char)(rank * 31 + i % 251);
	await(&board->rank[0].here, 1);
	peer = attach_to(device, &board->rank[0].address);
	for (unsigned n = 0; n < PUTS; n++) {
		struct remote_range to = { board->rank[0].addr +
						   (rank - 1) * SLICE,
					   board->rank[0].key };
		struct pn_sge sge = { memory + SLICE, 8, mr.lkey };
		struct pn_op add = { .kind = PN_OP_FETCH_ADD,
				     .sge = &sge,
				     .nsge = 1,
				     .remote_addr = board->rank[0].addr +
						    (RANKS - 1) * SLICE,
				     .rkey = to.key,
				     .operand = 1 };

		CHECK(!run_op(device, peer, &add));
		scribble(device, peer, &mr, to, &seed);
		for (size_t i = 0; i < SLICE; i += 97)
			CHECK(memory[i] == (char)(rank * 31 + i % 251));
	}
	/* All of it, to be sure. */
	CHECK(!move_op(device, peer, PN_OP_WRITE,
		       &(struct pn_sge){ memory, SLICE, mr.lkey },
		       (struct remote_range){ board->rank[0].addr +
						      (rank - 1) * SLICE,
					      board->rank[0].key }));
	pn_device_close(device);
	return 0;
}

static void write_together(const char *spec)
{
	struct board *board = new_board();
	pid_t pids[RANKS];

	strcpy(board->spec, spec);
	for (unsigned r = 0; r < RANKS; r++)
		pids[r] = start_rank(r ? writer : target, board, r);
	for (unsigned r = 0; r < RANKS; r++)
		assert_exits_well(pids[r]);
	free_board(board);
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

static int flood(struct board *board, unsigned rank)
{
	struct pn_device *device = open_soft("soft:ring_bytes=32K,spin=0");
	char *memory = map_buffer(PN_SOFT_MAX_SEND, 0);
	struct pn_peer *peer;

	(void)rank;
	await(&board->rank[0].here, 1);
	peer = attach_to(device, &board->rank[0].address);
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
		/* The receiver rings when there is room again. */
		if (ret) {
			CHECK(ret == -EAGAIN);
			CHECK(!pn_device_wait(device, pn_device_now(device) +
							      PATIENCE_NS));
		}
	}
	pn_device_close(device); /* with messages under way */
	return 0;
}

static void messages_sent_before_a_close_arrive_before_the_end(void **state)
{
	struct board *board = new_board();
	pid_t child = start_rank(flood, board, 1);
	struct pn_device *device = open_soft("soft:spin=0");
	struct pn_completion c;

	(void)state;
	appear(board, 0, device, NULL);
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
	free_board(board);
}

static void await_sleep(_Atomic uint32_t *sleeping)
{
	uint64_t deadline = pn_clock_ns() + PATIENCE_NS;

	while (!atomic_load(sleeping)) {
		assert_true(pn_clock_ns() < deadline);
		usleep(1000);
	}
}

/* As a peer does that dies when it has said that it wakes the other, and has
 * not yet. */
static void *silence_and_go(void *arg)
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

static void the_end_of_a_peer_wakes_though_its_bell_was_lost(void **state)
{
	struct pn_device *device = open_soft("soft:spin=0");
	struct pn_address address;
	uint64_t start;
	pthread_t thread;

	(void)state;
	pn_device_address(device, &address);
	assert_ok(pthread_create(&thread, NULL, silence_and_go, &address));
	expect(device, PN_COMPLETION_PEER_UP);
	start = pn_clock_ns();
	expect(device, PN_COMPLETION_PEER_DOWN);
	/* A sleeper that nobody wakes looks once more when its time is up. */
	assert_true(pn_clock_ns() - start < PATIENCE_NS);
	assert_ok(pthread_join(thread, NULL));
	pn_device_close(device);
}

/* --- connecting ---------------------------------------------------------- */

static int as_another(struct board *board, unsigned rank)
{
	struct pn_device *device;
	struct pn_completion c;
	struct pn_peer *peer;

	(void)rank;
	CHECK(!become_user(board, 8 << 20));
	CHECK(!pn_device_open("soft", NULL, &device));
	CHECK(!pn_device_attach(device, &board->rank[0].address, &peer));
	c = next_completion(device);
	CHECK(c.kind == PN_COMPLETION_PEER_DOWN && c.peer == peer);
	CHECK(c.status == -ECONNREFUSED);
	CHECK(pn_device_post(device, peer, &(struct pn_op){ .kind = 0 }) ==
	      -ECONNREFUSED);
	pn_device_close(device);
	return 0;
}

/* A device that another user's process is to find. */
static struct pn_device *open_for_others(struct board *board)
{
	struct pn_device *device;

	if (geteuid()) {
		print_message("skipped: changing the user needs root\n");
		skip();
	}
	device = open_soft("soft");
	appear(board, 0, device, NULL);
	return device;
}

static void another_user_is_refused(void **state)
{
	struct board *board = new_board();
	struct pn_completion c;
	struct pn_device *device;

	(void)state;
	device = open_for_others(board);
	assert_exits_well(start_rank(as_another, board, 1));
	assert_int_equal(pn_device_poll(device, &c, 1), 0);
	pn_device_close(device);
	free_board(board);
}

/* Connects to a device's socket, as anybody can. */
static int knock(int sock, const struct pn_address *to)
{
	struct pn_soft_address address;
	struct sockaddr_un name;
	unsigned len;

	memcpy(&address, to->data, sizeof(address));
	len = pn_soft_socket_name(&address, &name);
	return connect(sock, (struct sockaddr *)&name, len);
}

static ssize_t hear(int sock, struct pn_soft_hello *answer)
{
	ssize_t n;

	do
		n = recv(sock, answer, sizeof(*answer), 0);
	while (n < 0 && errno == EINTR); /* io_uring does that */
	return n;
}

/* Says something on a connection; returns the answer's status, or what recv()
 * says. */
static int converse(int sock, const void *bytes, size_t len,
		    struct pn_soft_hello *answer)
{
	ssize_t n;

	assert_int_equal(send(sock, bytes, len, MSG_NOSIGNAL), len);
	n = hear(sock, answer);
	close(sock);
	return n == sizeof(*answer) ? answer->status : (int)n;
}

static int say(const struct pn_address *to, const void *bytes, size_t len,
	       struct pn_soft_hello *answer)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	assert_ok(knock(sock, to));
	return converse(sock, bytes, len, answer);
}

static void strangers_are_told_why_they_are_refused(void **state)
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
	assert_int_equal(say(&address, &hello, sizeof(hello), &answer),
			 -EPROTONOSUPPORT);
	assert_int_equal(answer.version, PN_SOFT_VERSION);
	assert_int_equal(say(&address, &hello, 8, &answer), -EPROTONOSUPPORT);
	assert_int_equal(say(&address, "x", 1, &answer), -EPROTO);
	hello.version = PN_SOFT_VERSION;
	/* Right words, but no files with them. */
	assert_int_equal(say(&address, &hello, sizeof(hello), &answer),
			 -EPROTO);
	pn_log_set_level(PN_LOG_WARN);
	assert_int_equal(pn_device_poll(device, &c, 1), 0);
	loop_back(device);
	pn_device_close(device);
}

/* A hello with so many files; returns the answer's status. */
static int say_with_files(const struct pn_address *to, unsigned nfiles)
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
	assert_ok(knock(sock, to));
	assert_int_equal(sendmsg(sock, &msg, MSG_NOSIGNAL), sizeof(hello));
	n = hear(sock, &hello);
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
		if (n != 2) /* as many as it should have */
			assert_int_equal(say_with_files(&address, n), -EPROTO);
	/* The answer comes a little before it hangs up. */
	for (unsigned i = 0; i < 200 && test_descriptors() != before; i++)
		usleep(100000);
	assert_int_equal(test_descriptors(), before);
	loop_back(device);
	pn_device_close(device);
}

/* Another user's, who connects and says nothing. */
static int lurker(struct board *board, unsigned rank)
{
	(void)rank;
	alarm(60);
	CHECK(!become_user(board, 8 << 20));
	for (unsigned i = 0; i < 100; i++) {
		int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		char byte;

		CHECK(!knock(sock, &board->rank[0].address));
		CHECK(recv(sock, &byte, 1, 0) <= 0); /* it hung up */
	}
	return 0;
}

static void another_user_takes_no_descriptors(void **state)
{
	struct board *board = new_board();
	struct pn_device *device;
	unsigned before;

	(void)state;
	device = open_for_others(board);
	before = test_descriptors();
	assert_exits_well(start_rank(lurker, board, 1));
	assert_int_equal(test_descriptors(), before);
	pn_device_close(device);
	free_board(board);
}

static void a_silent_stranger_is_hung_up_on(void **state)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct timeval patience = { .tv_sec = PATIENCE_NS / PN_NS_PER_S };
	struct pn_device *device = open_soft("soft");
	struct pn_address address;
	ssize_t n;
	char byte;

	(void)state;
	pn_device_address(device, &address);
	assert_ok(setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience,
			     sizeof(patience)));
	assert_ok(knock(sock, &address));
	do
		n = recv(sock, &byte, 1, 0);
	while (n < 0 && errno == EINTR); /* io_uring does that */
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

/* Meanwhile it asks now and then, not all the time: that would take a core. */
static void without_descriptors_strangers_wait(void **state)
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
	assert_ok(knock(sock, &address));
	for (unsigned i = 0; i < 200 && naccepted < before + 2; i++)
		usleep(100000);
	assert_ok(setrlimit(RLIMIT_NOFILE, &limit));
	assert_in_range(naccepted, before + 2, before + 500);
	assert_int_equal(converse(sock, "x", 1, &answer), -EPROTO);
	pn_log_set_level(PN_LOG_WARN);
	pn_device_close(device);
}

/* The device that cannot hear whether a peer rings. */
static struct pn_device *_Atomic blind;

int __real_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event);
int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event);

int __wrap_epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
	struct pn_device *device = blind;

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

		blind = devices[side];
		pn_device_address(devices[1], &address);
		assert_ok(pn_device_attach(devices[0], &address, &peer));
		c = expect(devices[side], PN_COMPLETION_PEER_DOWN);
		assert_true(c.status < 0);
		/* The other one, who may have been up, learns of it. */
		do
			c = next_completion(devices[!side]);
		while (c.kind == PN_COMPLETION_PEER_UP);
		assert_int_equal(c.kind, PN_COMPLETION_PEER_DOWN);
		blind = NULL;
		pn_device_close(devices[0]);
		pn_device_close(devices[1]);
	}
	assert_int_equal(test_descriptors(), before);
}

/* A device of tomorrow: refuses whoever says hello. */
static void *tomorrow(void *arg)
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
	pthread_create(&thread, NULL, tomorrow, &sock);
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

/* How often anybody was let in to trace this process. */
static _Atomic unsigned nlet_in;

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
	nlet_in += option == PR_SET_PTRACER && arg[0] == PR_SET_PTRACER_ANY;
	return __real_prctl(option, arg[0], arg[1], arg[2], arg[3]);
}

/* What Yama was told counts for the process alone that told it. */
static void a_forked_child_lets_its_own_peers_in(void **state)
{
	struct pn_device *device, *second;
	unsigned before;
	pid_t pid;

	(void)state;
	/* The allocators of sanitizers (whose builds have fences) are not made
	 * for forking among threads. */
	if (PN_ASYMMETRIC_FENCES)
		skip();
	device = open_soft("soft");
	before = nlet_in;
	second = open_soft("soft");
	assert_int_equal(nlet_in, before);
	pid = fork();
	if (!pid) {
		CHECK(!pn_device_open("soft", NULL, &device));
		CHECK(nlet_in == before + 1);
		pn_device_close(device);
		_exit(0);
	}
	assert_exits_well(pid);
	pn_device_close(second);
	pn_device_close(device);
	device = open_soft("soft");
	assert_int_equal(nlet_in, before + 1);
	pn_device_close(device);
}

static void nobody_at_the_address_is_a_peer_that_is_gone(void **state)
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

static int meet(struct board *board, unsigned rank)
{
	struct pn_device *device = open_soft("soft");
	unsigned other = !rank;
	struct pn_completion c;
	struct pn_peer *peer;

	appear(board, rank, device, NULL);
	await(&board->rank[other].here, 1);
	board->go[0]++;
	while (board->go[0] < 2)
		;
	CHECK(!pn_device_attach(device, &board->rank[other].address, &peer));
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
	board->go[1]++;
	await(&board->go[1], 2);
	/* Nobody came up a second time. */
	CHECK(pn_device_poll(device, &c, 1) == 0 ||
	      c.kind == PN_COMPLETION_PEER_DOWN);
	pn_device_close(device);
	return 0;
}

static void two_that_attach_at_once_become_one_pair(void **state)
{
	(void)state;
	for (unsigned round = 0; round < 30; round++) {
		struct board *board = new_board();
		pid_t a = start_rank(meet, board, 0);
		pid_t b = start_rank(meet, board, 1);

		assert_exits_well(a);
		assert_exits_well(b);
		free_board(board);
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

		spokes[i] = open_soft("soft:ring_bytes=32K");
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

/* Takes one at a time of two that have all sent already. */
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

static void who_sends_much_does_not_keep_others_waiting(void **state)
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

static int humble(struct board *board, unsigned rank)
{
	struct pn_device *device;
	struct pn_completion c;
	struct pn_peer *peer;
	struct pn_sge sge;
	struct pn_mr mr;
	char *memory = map_buffer(SLICE, (int)rank + 1);

	CHECK(!become_user(board, 8 << 20));
	CHECK(!pn_device_open("soft:mode=uring", NULL, &device));
	register_one(device, &mr, memory, SLICE, ALL);
	appear(board, rank, device, &mr);
	await(&board->rank[!rank].here, 1);
	if (rank) {
		peer = attach_to(device, &board->rank[0].address);
		sge = (struct pn_sge){ memory, SLICE, mr.lkey };
		CHECK(!move_op(device, peer, PN_OP_WRITE, &sge,
			       (struct remote_range){ board->rank[0].addr,
						      board->rank[0].key }));
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
	struct board *board = new_board();
	pid_t a, b;

	(void)state;
	if (geteuid()) {
		print_message("skipped: changing the user needs root\n");
		skip();
	}
	a = start_rank(humble, board, 0);
	b = start_rank(humble, board, 1);
	assert_exits_well(a);
	assert_exits_well(b);
	free_board(board);
}

const struct role roles[] = {
	ROLE(target), ROLE(writer), ROLE(flood),  ROLE(as_another),
	ROLE(meet),   ROLE(humble), ROLE(lurker), { NULL, NULL },
};

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(several_processes_put_into_one_target),
		TEST(messages_sent_before_a_close_arrive_before_the_end),
		TEST(the_end_of_a_peer_wakes_though_its_bell_was_lost),
		TEST(another_user_is_refused),
		TEST(another_user_takes_no_descriptors),
		TEST(strangers_are_told_why_they_are_refused),
		TEST(a_hello_with_any_number_of_files_is_refused),
		TEST(a_silent_stranger_is_hung_up_on),
		TEST(without_descriptors_strangers_wait),
		TEST(a_peer_that_cannot_be_watched_is_down),
		TEST(a_device_of_another_version_refuses_us),
		TEST(devices_of_another_node_cannot_be_attached),
		TEST(a_forked_child_lets_its_own_peers_in),
		TEST(nobody_at_the_address_is_a_peer_that_is_gone),
		TEST(two_that_attach_at_once_become_one_pair),
		TEST(many_peers_at_once),
		TEST(who_sends_much_does_not_keep_others_waiting),
		TEST(an_ordinary_user_needs_no_privilege),
	};

	play_role(argc, argv);
	return RUN_TESTS(tests);
}
