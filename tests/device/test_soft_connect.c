/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A soft device, and the other side of its connections played by hand: every
 * line of the table in connect.h, in an order that chance seldom gives.
 *
 * The device's service reads a hello behind a gate that the test closes. With
 * the service held there, a hello in its hands, the test does what the
 * program or the other side might have done just then.
 */
#include "device/soft_util.h"

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
	struct pn_device *device;    /* the real one */
	struct pn_soft_address it;   /* where that is */
	struct pn_soft_address self; /* where this is */
	struct pn_address address;   /* the same, for attach() */
	int door;
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
	struct timeval patience = { .tv_sec = PATIENCE_NS / PN_NS_PER_S };

	assert_true(sock >= 0);
	assert_ok(setsockopt(sock, SOL_SOCKET, SO_RCVTIMEO, &patience,
			     sizeof(patience)));
	return sock;
}

/* A device whose nonce is smaller or greater than the puppet's. */
static void puppet_open(struct puppet *p, bool smaller)
{
	struct pn_address address;
	struct sockaddr_un name;
	unsigned len;

	memset(p, 0, sizeof(*p));
	pn_log_set_level(PN_LOG_NONE); /* it has no rings to fetch */
	p->device = open_soft("soft");
	pn_device_address(p->device, &address);
	memcpy(&p->it, address.data, sizeof(p->it));
	p->self = p->it;
	p->self.nonce += smaller ? 1 : UINT64_MAX;
	p->address.len = sizeof(p->self);
	memcpy(p->address.data, &p->self, sizeof(p->self));
	len = pn_soft_socket_name(&p->self, &name);
	p->door = new_socket();
	assert_ok(bind(p->door, (struct sockaddr *)&name, len));
	assert_ok(listen(p->door, 8));
	for (unsigned i = 0; i < 3; i++)
		assert_ok(pn_soft_memfd("puppet", map_bytes[i], &p->files[i],
					&p->maps[i]));
}

static void puppet_close(struct puppet *p)
{
	pn_device_close(p->device);
	close(p->door);
	for (unsigned i = 0; i < 3; i++) {
		close(p->files[i]);
		munmap(p->maps[i], map_bytes[i]);
	}
	pn_log_set_level(PN_LOG_WARN);
}

static void tell(const struct puppet *p, int sock, int status, unsigned nfiles)
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

static int say_hello(const struct puppet *p)
{
	int sock = new_socket();
	struct sockaddr_un name;
	unsigned len = pn_soft_socket_name(&p->it, &name);

	assert_ok(connect(sock, (struct sockaddr *)&name, len));
	tell(p, sock, 0, 3);
	return sock;
}

/* The status of an answer (or of a hello: 0); 1 when there is none any more.
 * The files that come with it are left behind in the kernel. */
static int hear(int sock)
{
	struct pn_soft_hello hello;
	ssize_t n;

	do
		n = recv(sock, &hello, sizeof(hello), 0);
	while (n < 0 && errno == EINTR); /* io_uring does that */
	if (n <= 0)
		return 1;
	assert_int_equal(n, sizeof(hello));
	assert_int_equal(hello.magic, PN_SOFT_MAGIC);
	return hello.status;
}

static int hear_and_close(int sock)
{
	int status = hear(sock);

	close(sock);
	return status;
}

/* The device's own hello. */
static int hear_hello(const struct puppet *p)
{
	int sock;

	do
		sock = accept4(p->door, NULL, NULL, SOCK_CLOEXEC);
	while (sock < 0 && errno == EINTR);
	assert_true(sock >= 0);
	assert_int_equal(hear(sock), 0);
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

/* Welcomes the device, whose peer is up then and has no other news. */
static void welcome(const struct puppet *p, int sock,
		    const struct pn_peer *peer)
{
	struct pn_completion c;

	tell(p, sock, 0, 2);
	assert_up(p, peer);
	assert_int_equal(pn_device_poll(p->device, &c, 1), 0);
}

/* A device that is connected to the puppet: its peer, and the puppet's end. */
static struct pn_peer *puppet_open_up(struct puppet *p, bool smaller, int *sock)
{
	struct pn_peer *peer;

	puppet_open(p, smaller);
	peer = attach(p);
	*sock = hear_hello(p);
	welcome(p, *sock, peer);
	return peer;
}

/* The end of a test whose device is connecting. */
static void welcome_and_close(struct puppet *p, int sock,
			      const struct pn_peer *peer)
{
	welcome(p, sock, peer);
	close(sock);
	puppet_close(p);
}

/* Says hello; the service is held with it in its hands. */
static int hold_hello(const struct puppet *p)
{
	int sock;

	gate = CLOSED;
	sock = say_hello(p);
	await(&gate, HELD);
	return sock;
}

/* A conversation that is over when everything before it has been heard. */
static void settle(const struct puppet *p)
{
	int sock = new_socket();
	struct sockaddr_un name;
	unsigned len = pn_soft_socket_name(&p->it, &name);

	assert_ok(connect(sock, (struct sockaddr *)&name, len));
	assert_int_equal(send(sock, "x", 1, MSG_NOSIGNAL), 1);
	assert_int_equal(hear_and_close(sock), -EPROTO);
}

/* --- hellos that were taken back ----------------------------------------- */

static void take_back(int sock)
{
	close(sock);
	gate = OPEN;
}

static void a_hello_taken_back_makes_no_peer(void **state)
{
	struct pn_completion c;
	struct puppet p;

	(void)state;
	puppet_open(&p, true);
	take_back(hold_hello(&p));
	settle(&p);
	assert_int_equal(pn_device_poll(p.device, &c, 1), 0);
	puppet_close(&p);
}

/* The peer is NEW when the hello is read. */
static void a_hello_taken_back_means_nothing_to_who_attaches(void **state)
{
	struct pn_peer *peer;
	struct puppet p;
	int sock;

	(void)state;
	for (unsigned smaller = 0; smaller < 2; smaller++) {
		puppet_open(&p, smaller);
		sock = hold_hello(&p);
		peer = attach(&p);
		take_back(sock);
		welcome_and_close(&p, hear_hello(&p), peer);
	}
}

static void a_hello_taken_back_means_nothing_to_who_connects(void **state)
{
	struct pn_peer *peer;
	struct puppet p;
	int sock;

	(void)state;
	for (unsigned smaller = 0; smaller < 2; smaller++) {
		puppet_open(&p, smaller);
		peer = attach(&p);
		sock = hear_hello(&p);
		take_back(hold_hello(&p));
		settle(&p);
		welcome_and_close(&p, sock, peer);
	}
}

static void a_hello_taken_back_means_nothing_to_who_is_up(void **state)
{
	struct pn_completion c;
	struct pn_peer *peer;
	struct puppet p;
	int sock;

	(void)state;
	peer = puppet_open_up(&p, true, &sock);
	take_back(hold_hello(&p));
	settle(&p);
	assert_int_equal(pn_device_poll(p.device, &c, 1), 0);
	close(sock);
	assert_down(&p, peer);
	puppet_close(&p);
}

/* Two attached at once, one hello was taken back; it is read when the program
 * has detached the peer and attached anew. */
static void a_hello_taken_back_means_nothing_to_who_attaches_anew(void **state)
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
	take_back(again);
	again = hear_hello(&p);
	assert_int_equal(hear_and_close(sock), 1);
	assert_down(&p, old);
	welcome_and_close(&p, again, peer);
}

/* --- hellos that count --------------------------------------------------- */

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
	assert_int_equal(hear_and_close(theirs), -EALREADY);
	sock = hear_hello(&p);
	/* Again, while it is connecting. */
	assert_int_equal(hear_and_close(say_hello(&p)), -EALREADY);
	welcome_and_close(&p, sock, peer);
}

static void the_greater_nonce_takes_its_hello_back(void **state)
{
	struct pn_peer *peer;
	struct puppet p;
	int sock, theirs;

	(void)state;
	puppet_open(&p, false);
	peer = attach(&p);
	sock = hear_hello(&p);
	theirs = say_hello(&p);
	assert_int_equal(hear(theirs), 0);
	/* Before it welcomed us. */
	assert_int_equal(recv(sock, &(char){ 0 }, 1, MSG_DONTWAIT), 0);
	assert_up(&p, peer);
	close(theirs);
	assert_down(&p, peer);
	close(sock);
	puppet_close(&p);
}

/* The hello that was to come may have been taken back. */
static void told_to_wait_it_asks_again(void **state)
{
	struct pn_peer *peer;
	struct puppet p;
	int sock;

	(void)state;
	puppet_open(&p, false);
	peer = attach(&p);
	for (unsigned i = 0; i < 3; i++) {
		sock = hear_hello(&p);
		tell(&p, sock, -EALREADY, 0);
		assert_int_equal(hear_and_close(sock), 1);
	}
	welcome_and_close(&p, hear_hello(&p), peer);
}

/* The service is held with the answer in its hands while years go by. */
static void told_to_wait_for_ever_it_gives_up(void **state)
{
	struct pn_soft_peer *mine;
	struct pn_completion c;
	struct puppet p;
	int sock;

	(void)state;
	puppet_open(&p, false);
	mine = pn_container_of(attach(&p), struct pn_soft_peer, peer);
	gate = CLOSED;
	sock = hear_hello(&p);
	tell(&p, sock, -EALREADY, 0);
	await(&gate, HELD);
	mine->connection.nretries = 100000;
	gate = OPEN;
	assert_int_equal(hear_and_close(sock), 1);
	c = expect(p.device, PN_COMPLETION_PEER_DOWN);
	assert_ptr_equal(c.peer, &mine->peer);
	assert_int_equal(c.status, -ECONNREFUSED);
	puppet_close(&p);
}

static void told_to_wait_it_takes_the_hello_that_comes(void **state)
{
	struct pn_peer *peer;
	struct puppet p;
	int sock;

	(void)state;
	puppet_open(&p, false);
	peer = attach(&p);
	sock = hear_hello(&p);
	tell(&p, sock, -EALREADY, 0);
	assert_int_equal(hear_and_close(sock), 1);
	sock = say_hello(&p);
	assert_int_equal(hear(sock), 0);
	assert_up(&p, peer);
	close(sock);
	puppet_close(&p);
}

static void a_hello_of_one_that_is_up_begins_anew(void **state)
{
	struct pn_peer *old;
	struct puppet p;
	int sock, again;

	(void)state;
	for (unsigned smaller = 0; smaller < 2; smaller++) {
		old = puppet_open_up(&p, smaller, &sock);
		again = say_hello(&p);
		assert_int_equal(hear(again), 0);
		assert_int_equal(hear_and_close(sock), 1);
		settle(&p); /* the answer comes before the new one is up */
		assert_up(&p, NULL);
		assert_down(&p, old);
		close(again);
		puppet_close(&p);
	}
}

/* As a peer does that sends its last message and closes: nobody has read the
 * byte when the connection is taken out of what the sleeper waits for. */
static void who_wakes_and_ends_at_once_has_woken(void **state)
{
	struct pn_peer *peer;
	struct puppet p;
	int sock;

	(void)state;
	peer = puppet_open_up(&p, false, &sock);
	assert_ok(pn_device_arm(p.device));
	assert_int_equal(
		atomic_exchange(&pn_soft_of(p.device)->presence->sleeping, 0),
		1);
	assert_int_equal(send(sock, "", 1, MSG_NOSIGNAL), 1);
	close(sock);
	settle(&p);
	settle(&p); /* the first may have been heard before the end */
	assert_true(pn_device_sleep_on(pn_device_fd(p.device),
				       pn_device_now(p.device) + PATIENCE_NS));
	assert_down(&p, peer);
	puppet_close(&p);
}

/* --- what is no record ---------------------------------------------------- */

/* The first cell of the ring that the puppet, who connected, writes. */
static _Atomic uint32_t *first_ready_word(const struct puppet *p)
{
	struct pn_soft_channel *channel = p->maps[2];

	return (_Atomic uint32_t *)(void *)channel->cells;
}

static void who_writes_no_records_is_turned_away(void **state)
{
	static const uint32_t words[] = {
		UINT32_C(0xf0000001), /* of no kind */
		UINT32_C(0x10000000), /* shorter than nothing */
		UINT32_C(0x00002002), /* longer than there are */
		UINT32_C(0x20002002), /* the same, of a pad */
	};

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(words); i++) {
		struct pn_completion c;
		struct puppet p;
		int sock;

		puppet_open(&p, i % 2);
		sock = say_hello(&p);
		assert_int_equal(hear(sock), 0);
		assert_up(&p, NULL);
		atomic_store(first_ready_word(&p), words[i]);
		c = expect(p.device, PN_COMPLETION_PEER_DOWN);
		assert_int_equal(c.status, -EPROTO);
		assert_int_equal(hear_and_close(sock), 1);
		puppet_close(&p);
	}
}

const struct role roles[] = { { NULL, NULL } };

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_hello_taken_back_makes_no_peer),
		TEST(a_hello_taken_back_means_nothing_to_who_attaches),
		TEST(a_hello_taken_back_means_nothing_to_who_connects),
		TEST(a_hello_taken_back_means_nothing_to_who_is_up),
		TEST(a_hello_taken_back_means_nothing_to_who_attaches_anew),
		TEST(the_smaller_nonce_connects_itself),
		TEST(the_greater_nonce_takes_its_hello_back),
		TEST(told_to_wait_it_asks_again),
		TEST(told_to_wait_for_ever_it_gives_up),
		TEST(told_to_wait_it_takes_the_hello_that_comes),
		TEST(a_hello_of_one_that_is_up_begins_anew),
		TEST(who_wakes_and_ends_at_once_has_woken),
		TEST(who_writes_no_records_is_turned_away),
	};

	return RUN_TESTS(tests);
}
