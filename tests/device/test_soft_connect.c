/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A soft device against a scripted other side: every line of the table in
 * connect.h, in an order that seldom occurs by chance.
 *
 * The device's service thread reads a hello behind a gate that the test closes.
 * While the service thread is stopped there, after it has read a hello, the
 * test does what the program or the other side might do at that moment.
 */
#include "device/soft_util.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/log.h"
#include "device/soft/soft_impl.h"

#define RING_BYTES ((uint64_t)32 << 10)

/* --- the gate ------------------------------------------------------------ */

enum { OPEN, CLOSED, HELD };
static _Atomic int gate;

ssize_t __real_recvmsg(int sock, struct msghdr *msg, int flags);
ssize_t __wrap_recvmsg(int sock, struct msghdr *msg, int flags);

ssize_t __wrap_recvmsg(int sock, struct msghdr *msg, int flags)
{
	ssize_t n = __real_recvmsg(sock, msg, flags);
	int closed = CLOSED;

	if (atomic_compare_exchange_strong(&gate, &closed, HELD))
		while (gate == HELD)
			usleep(100);
	return n;
}

/* --- the other side ------------------------------------------------------ */

struct puppet {
	struct pn_device *device;	       /* the device under test */
	struct pn_soft_address device_address; /* its address */
	struct pn_soft_address self;	       /* the puppet's address */
	struct pn_address address;	       /* the same, for attach() */
	int listener;
	int files[3]; /* shared, presence, channels */
	void *maps[3];
};

static const size_t map_bytes[] = {
	sizeof(struct pn_soft_shared),
	sizeof(struct pn_soft_presence),
	2 * (sizeof(struct pn_soft_channel) +
	     PN_SOFT_SHORT_CELLS * PN_SOFT_CELL + RING_BYTES),
};

static int new_socket(void)
{
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct timeval timeout = { .tv_sec = TIMEOUT_NS / PN_NS_PER_S };

	assert_true(sock >= 0);
	assert_ok(setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &timeout,
			     sizeof(timeout)));
	return sock;
}

/* A device whose nonce is smaller or greater than the puppet's. */
static void puppet_open(struct puppet *p, bool smaller)
{
	struct pn_address address;
	struct sockaddr_un name;
	unsigned len;

	memset(p, 0, sizeof(*p));
	pn_log_set_level(PN_LOG_NONE); /* the puppet has no rings to open */
	p->device = open_soft("soft");
	pn_device_address(p->device, &address);
	memcpy(&p->device_address, address.data, sizeof(p->device_address));
	p->self = p->device_address;
	p->self.nonce += smaller ? 1 : UINT64_MAX;
	p->address.len = sizeof(p->self);
	memcpy(p->address.data, &p->self, sizeof(p->self));
	len = pn_soft_socket_name(&p->self, &name);
	p->listener = new_socket();
	assert_ok(bind(p->listener, (struct sockaddr *)&name, len));
	assert_ok(listen(p->listener, 8));
	for (unsigned i = 0; i < 3; i++)
		assert_ok(pn_soft_memfd("puppet", map_bytes[i], &p->files[i],
					&p->maps[i]));
}

static void puppet_close(struct puppet *p)
{
	pn_device_close(p->device);
	close(p->listener);
	for (unsigned i = 0; i < 3; i++) {
		close(p->files[i]);
		munmap(p->maps[i], map_bytes[i]);
	}
	pn_log_set_level(PN_LOG_WARN);
}

static void send_hello(const struct puppet *p, int sock, int status,
		       unsigned nfiles)
{
	char control[CMSG_SPACE(sizeof(p->files))] PN_ALIGNED(8) = { 0 };
	struct pn_soft_hello hello = { .magic = PN_SOFT_MAGIC,
				       .version = PN_SOFT_VERSION,
				       .status = status,
				       .from = p->self,
				       .ring_bytes = RING_BYTES };
	struct iovec iov = { &hello, sizeof(hello) };
	struct msghdr msg = {
		.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = nfiles ? control : NULL,
		.msg_controllen = nfiles ? CMSG_SPACE(nfiles * sizeof(int)) : 0
	};

	if (nfiles) {
		*(struct cmsghdr *)(void *)control = (struct cmsghdr){
			.cmsg_len = CMSG_LEN(nfiles * sizeof(int)),
			.cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS,
		};
		memcpy(CMSG_DATA((struct cmsghdr *)(void *)control), p->files,
		       nfiles * sizeof(int));
	}
	assert_int_equal(sendmsg(sock, &msg, MSG_NOSIGNAL), sizeof(hello));
}

static int connect_and_send_hello(const struct puppet *p)
{
	int sock = new_socket();
	struct sockaddr_un name;
	unsigned len = pn_soft_socket_name(&p->device_address, &name);

	assert_ok(connect(sock, (struct sockaddr *)&name, len));
	send_hello(p, sock, 0, 3);
	return sock;
}

/* Returns the status of an answer (or of a hello: 0); 1 at the end of the
 * socket. The files that come with it are not received. */
static int receive_status(int sock)
{
	struct pn_soft_hello hello;
	ssize_t n;

	do
		n = recv(sock, &hello, sizeof(hello), 0);
	while (n < 0 && errno == EINTR); /* io_uring interrupts it */
	if (n <= 0)
		return 1;
	assert_int_equal(n, sizeof(hello));
	assert_int_equal(hello.magic, PN_SOFT_MAGIC);
	return hello.status;
}

static int receive_and_close(int sock)
{
	int status = receive_status(sock);

	close(sock);
	return status;
}

/* Receives the device's own hello. */
static int receive_hello(const struct puppet *p)
{
	int sock;

	do
		sock = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
	while (sock < 0 && errno == EINTR);
	assert_true(sock >= 0);
	assert_int_equal(receive_status(sock), 0);
	return sock;
}

static struct pn_peer *attach(const struct puppet *p)
{
	struct pn_peer *peer;

	assert_ok(pn_device_attach(p->device, &p->address, &peer));
	return peer;
}

static void assert_up(const struct puppet *p, const struct pn_peer *peer)
{
	struct pn_completion c = expect(p->device, PN_COMPLETION_PEER_UP);

	if (peer)
		assert_ptr_equal(c.peer, peer);
}

static void assert_down(const struct puppet *p, const struct pn_peer *peer)
{
	struct pn_completion c = expect(p->device, PN_COMPLETION_PEER_DOWN);

	assert_ptr_equal(c.peer, peer);
	assert_int_equal(c.status, -ECONNRESET);
}

/* Accepts the device's hello; its peer is then up, and there is no other
 * completion. */
static void accept_hello(const struct puppet *p, int sock,
			 const struct pn_peer *peer)
{
	struct pn_completion c;

	send_hello(p, sock, 0, 2);
	assert_up(p, peer);
	assert_int_equal(pn_device_poll(p->device, &c, 1), 0);
}

/* A device that is connected to the puppet: its peer, and the puppet's end. */
static struct pn_peer *puppet_open_up(struct puppet *p, bool smaller, int *sock)
{
	struct pn_peer *peer;

	puppet_open(p, smaller);
	peer = attach(p);
	*sock = receive_hello(p);
	accept_hello(p, *sock, peer);
	return peer;
}

/* The end of a test whose device is connecting. */
static void accept_and_close(struct puppet *p, int sock,
			     const struct pn_peer *peer)
{
	accept_hello(p, sock, peer);
	close(sock);
	puppet_close(p);
}

/* Sends a hello and stops the service thread after it has read it. */
static int hold_hello(const struct puppet *p)
{
	int sock;

	gate = CLOSED;
	sock = connect_and_send_hello(p);
	await(&gate, HELD);
	return sock;
}

/* Waits until the device has read everything that was sent before. */
static void wait_until_read(const struct puppet *p)
{
	int sock = new_socket();
	struct sockaddr_un name;
	unsigned len = pn_soft_socket_name(&p->device_address, &name);

	assert_ok(connect(sock, (struct sockaddr *)&name, len));
	assert_int_equal(send(sock, "x", 1, MSG_NOSIGNAL), 1);
	assert_int_equal(receive_and_close(sock), -EPROTO);
}

/* --- withdrawn hellos ---------------------------------------------------- */

static void withdraw(int sock)
{
	close(sock);
	gate = OPEN;
}

static void a_withdrawn_hello_makes_no_peer(void **state)
{
	struct pn_completion c;
	struct puppet p;

	(void)state;
	puppet_open(&p, true);
	withdraw(hold_hello(&p));
	wait_until_read(&p);
	assert_int_equal(pn_device_poll(p.device, &c, 1), 0);
	puppet_close(&p);
}

/* The peer is NEW when the hello is read. */
static void a_withdrawn_hello_does_not_affect_an_attach(void **state)
{
	struct pn_peer *peer;
	struct puppet p;
	int sock;

	(void)state;
	for (unsigned smaller = 0; smaller < 2; smaller++) {
		puppet_open(&p, smaller);
		sock = hold_hello(&p);
		peer = attach(&p);
		withdraw(sock);
		accept_and_close(&p, receive_hello(&p), peer);
	}
}

static void a_withdrawn_hello_does_not_affect_a_connecting_peer(void **state)
{
	struct pn_peer *peer;
	struct puppet p;
	int sock;

	(void)state;
	for (unsigned smaller = 0; smaller < 2; smaller++) {
		puppet_open(&p, smaller);
		peer = attach(&p);
		sock = receive_hello(&p);
		withdraw(hold_hello(&p));
		wait_until_read(&p);
		accept_and_close(&p, sock, peer);
	}
}

static void a_withdrawn_hello_does_not_affect_a_peer_that_is_up(void **state)
{
	struct pn_completion c;
	struct pn_peer *peer;
	struct puppet p;
	int sock;

	(void)state;
	peer = puppet_open_up(&p, true, &sock);
	withdraw(hold_hello(&p));
	wait_until_read(&p);
	assert_int_equal(pn_device_poll(p.device, &c, 1), 0);
	close(sock);
	assert_down(&p, peer);
	puppet_close(&p);
}

/* Both attached at once and one hello was withdrawn; it is read after the
 * program has detached the peer and attached again. */
static void a_withdrawn_hello_does_not_affect_an_attach_after_detach(
	void **state)
{
	struct pn_peer *old, *peer;
	struct puppet p;
	int sock, again;

	(void)state;
	old = puppet_open_up(&p, true, &sock);
	again = hold_hello(&p);
	assert_ok(pn_device_detach(p.device, old));
	peer = attach(&p);
	assert_ptr_not_equal(peer, old);
	withdraw(again);
	again = receive_hello(&p);
	assert_int_equal(receive_and_close(sock), 1);
	assert_down(&p, old);
	accept_and_close(&p, again, peer);
}

/* --- valid hellos -------------------------------------------------------- */

static void the_smaller_nonce_connects_itself(void **state)
{
	struct pn_peer *peer;
	struct puppet p;
	int sock, theirs;

	(void)state;
	puppet_open(&p, true);
	theirs = hold_hello(&p);
	peer = attach(&p);
	gate = OPEN;
	assert_int_equal(receive_and_close(theirs), -EALREADY);
	sock = receive_hello(&p);
	/* A second hello, while the device is connecting. */
	assert_int_equal(receive_and_close(connect_and_send_hello(&p)),
			 -EALREADY);
	accept_and_close(&p, sock, peer);
}

static void the_greater_nonce_withdraws_its_hello(void **state)
{
	struct pn_peer *peer;
	struct puppet p;
	int sock, theirs;

	(void)state;
	puppet_open(&p, false);
	peer = attach(&p);
	sock = receive_hello(&p);
	theirs = connect_and_send_hello(&p);
	assert_int_equal(receive_status(theirs), 0);
	/* Before it accepted our hello. */
	assert_int_equal(recv(sock, &(char){ 0 }, 1, MSG_DONTWAIT), 0);
	assert_up(&p, peer);
	close(theirs);
	assert_down(&p, peer);
	close(sock);
	puppet_close(&p);
}

/* The hello to wait for may have been withdrawn. */
static void a_temporary_refusal_is_retried(void **state)
{
	struct pn_peer *peer;
	struct puppet p;
	int sock;

	(void)state;
	puppet_open(&p, false);
	peer = attach(&p);
	for (unsigned i = 0; i < 3; i++) {
		sock = receive_hello(&p);
		send_hello(&p, sock, -EALREADY, 0);
		assert_int_equal(receive_and_close(sock), 1);
	}
	accept_and_close(&p, receive_hello(&p), peer);
}

/* The service thread is stopped after reading the answer while the clock
 * advances by years. */
static void endless_temporary_refusals_end_in_down(void **state)
{
	struct pn_soft_peer *mine;
	struct pn_completion c;
	struct puppet p;
	int sock;

	(void)state;
	puppet_open(&p, false);
	mine = pn_container_of(attach(&p), struct pn_soft_peer, peer);
	gate = CLOSED;
	sock = receive_hello(&p);
	send_hello(&p, sock, -EALREADY, 0);
	await(&gate, HELD);
	mine->connection.nretries = 100000;
	gate = OPEN;
	assert_int_equal(receive_and_close(sock), 1);
	c = expect(p.device, PN_COMPLETION_PEER_DOWN);
	assert_ptr_equal(c.peer, &mine->peer);
	assert_int_equal(c.status, -ECONNREFUSED);
	puppet_close(&p);
}

/* The same in real time: some 250 answers, which take five seconds or more. */
static void endless_temporary_refusals_end_in_time(void **state)
{
	struct pollfd hello = { .events = POLLIN };
	struct pn_completion c;
	struct pn_peer *peer;
	unsigned nhellos = 0;
	struct puppet p;

	(void)state;
	puppet_open(&p, false);
	hello.fd = p.listener;
	peer = attach(&p);
	while (!pn_device_poll(p.device, &c, 1)) {
		int sock;

		if (poll(&hello, 1, 10) <= 0)
			continue;
		sock = receive_hello(&p);
		send_hello(&p, sock, -EALREADY, 0);
		close(sock);
		nhellos++;
	}
	assert_int_equal(c.kind, PN_COMPLETION_PEER_DOWN);
	assert_ptr_equal(c.peer, peer);
	assert_int_equal(c.status, -ECONNREFUSED);
	assert_int_equal(nhellos, PN_SOFT_CONNECT_NS /
					  (PN_SOFT_RETRY_MS * PN_NS_PER_MS));
	puppet_close(&p);
}

static void a_hello_is_accepted_after_a_temporary_refusal(void **state)
{
	struct pn_peer *peer;
	struct puppet p;
	int sock;

	(void)state;
	puppet_open(&p, false);
	peer = attach(&p);
	sock = receive_hello(&p);
	send_hello(&p, sock, -EALREADY, 0);
	assert_int_equal(receive_and_close(sock), 1);
	sock = connect_and_send_hello(&p);
	assert_int_equal(receive_status(sock), 0);
	assert_up(&p, peer);
	close(sock);
	puppet_close(&p);
}

static void a_hello_of_a_peer_that_is_up_reconnects(void **state)
{
	struct pn_peer *old;
	struct puppet p;
	int sock, again;

	(void)state;
	for (unsigned smaller = 0; smaller < 2; smaller++) {
		old = puppet_open_up(&p, smaller, &sock);
		again = connect_and_send_hello(&p);
		assert_int_equal(receive_status(again), 0);
		assert_int_equal(receive_and_close(sock), 1);
		wait_until_read(
			&p); /* the answer comes before the new one is up */
		assert_up(&p, NULL);
		assert_down(&p, old);
		close(again);
		puppet_close(&p);
	}
}

/* The device is about to sleep, and the peer clears `sleeping`, as it does
 * before it sends its wake-up. */
static void arm_and_clear(const struct puppet *p)
{
	assert_ok(pn_device_arm(p->device));
	assert_int_equal(
		atomic_exchange(&pn_soft_of(p->device)->presence->sleeping, 0),
		1);
}

static void assert_wakes(const struct puppet *p)
{
	assert_true(pn_device_sleep_on(pn_device_fd(p->device),
				       pn_device_now(p->device) + TIMEOUT_NS));
}

/* A peer sends its last message and closes: its wake-up byte was not read when
 * the connection is removed from the epoll that the sleeper waits for. */
static void a_wakeup_is_not_lost_when_the_peer_ends_at_once(void **state)
{
	struct pn_peer *peer;
	struct puppet p;
	int sock;

	(void)state;
	peer = puppet_open_up(&p, false, &sock);
	arm_and_clear(&p);
	assert_int_equal(send(sock, "", 1, MSG_NOSIGNAL), 1);
	close(sock);
	wait_until_read(&p);
	wait_until_read(&p); /* the first may have been read before the end */
	assert_wakes(&p);
	assert_down(&p, peer);
	puppet_close(&p);
}

/* The peer is up on its own side, sends a message, and so clears `sleeping`;
 * this side then fails to come up (here: the answer lacks a file). */
static void a_wakeup_is_not_lost_when_the_peer_does_not_come_up(void **state)
{
	struct pn_peer *peer;
	struct puppet p;
	int sock;

	(void)state;
	puppet_open(&p, false);
	peer = attach(&p);
	sock = receive_hello(&p);
	arm_and_clear(&p);
	send_hello(&p, sock, 0, 1);
	assert_wakes(&p);
	assert_down(&p, peer);
	close(sock);
	puppet_close(&p);
}

/* The peer clears `sleeping` and does not send its wake-up: it is stopped, or
 * send() fails for want of memory. */
static void a_wakeup_that_a_peer_does_not_send_is_made_up_for(void **state)
{
	struct puppet p;
	int sock;

	(void)state;
	puppet_open_up(&p, false, &sock);
	arm_and_clear(&p);
	assert_wakes(&p);
	close(sock);
	puppet_close(&p);
}

/* --- invalid records ------------------------------------------------------ */

/* The first cell of the ring that the puppet, which connected, writes. */
static _Atomic uint32_t *first_ready_word(const struct puppet *p)
{
	struct pn_soft_channel *channel = p->maps[2];

	return (_Atomic uint32_t *)(void *)channel->cells;
}

static void a_peer_that_writes_invalid_records_is_disconnected(void **state)
{
	static const uint32_t words[] = {
		UINT32_C(0xf0000001), /* invalid kind */
		UINT32_C(0x10000000), /* negative length */
		UINT32_C(0x00002002), /* longer than the maximum */
		UINT32_C(0x20002002), /* the same, of kind PAD */
	};

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(words); i++) {
		struct pn_completion c;
		struct puppet p;
		int sock;

		puppet_open(&p, i % 2);
		sock = connect_and_send_hello(&p);
		assert_int_equal(receive_status(sock), 0);
		assert_up(&p, NULL);
		atomic_store(first_ready_word(&p), words[i]);
		c = expect(p.device, PN_COMPLETION_PEER_DOWN);
		assert_int_equal(c.status, -EPROTO);
		assert_int_equal(receive_and_close(sock), 1);
		puppet_close(&p);
	}
}

const struct role roles[] = { { NULL, NULL } };

/* With an argument: what takes seconds. */
int main(int argc, char **argv)
{
	const struct CMUnitTest slow[] = {
		TEST(endless_temporary_refusals_end_in_time),
	};
	const struct CMUnitTest tests[] = {
		TEST(a_withdrawn_hello_makes_no_peer),
		TEST(a_withdrawn_hello_does_not_affect_an_attach),
		TEST(a_withdrawn_hello_does_not_affect_a_connecting_peer),
		TEST(a_withdrawn_hello_does_not_affect_a_peer_that_is_up),
		TEST(a_withdrawn_hello_does_not_affect_an_attach_after_detach),
		TEST(the_smaller_nonce_connects_itself),
		TEST(the_greater_nonce_withdraws_its_hello),
		TEST(a_temporary_refusal_is_retried),
		TEST(endless_temporary_refusals_end_in_down),
		TEST(a_hello_is_accepted_after_a_temporary_refusal),
		TEST(a_hello_of_a_peer_that_is_up_reconnects),
		TEST(a_wakeup_is_not_lost_when_the_peer_ends_at_once),
		TEST(a_wakeup_is_not_lost_when_the_peer_does_not_come_up),
		TEST(a_wakeup_that_a_peer_does_not_send_is_made_up_for),
		TEST(a_peer_that_writes_invalid_records_is_disconnected),
	};

	(void)argv;
	return argc > 1 ? RUN_TESTS(slow) : RUN_TESTS(tests);
}
