/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a peer of the fabric device may send that no peer of ours does: answers
 * twice, answers to what is under way, addresses that do not end. The peer goes
 * down; memory is written only while its registration counts the writer.
 */
#include "test.h"

#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "fabric_fake.h"

#define LONG   (32 * 1024)
#define PULLED (8 * 1024)

static struct pn_fabric_grant grant_of(uint32_t number)
{
	return (struct pn_fabric_grant){
		.header = { .kind = PN_FABRIC_GRANT, .number = number },
		.source = { .addr = 4096, .key = 1, .len = LONG },
	};
}

static void start_read(struct fake *f)
{
	struct pn_fabric_grant grant = grant_of(0);

	fake_open(f);
	fake_connect(f);
	assert_ok(fake_post(f, PN_OP_READ, LONG));
	fake_deliver_next(f, &grant, sizeof(grant));
	assert_int_equal(f->nfetches, 1);
}

static void a_granted_read_ends_when_its_bytes_are_there(void **state)
{
	struct fake f;

	(void)state;
	start_read(&f);
	assert_true(fake_end_fetch(&f));
	assert_int_equal(fake_poll(&f), 0);
	assert_int_equal(f.sent[PN_FABRIC_RELEASE], 1);
	assert_int_equal(f.peer->down, 0);
	assert_true((uint8_t)f.memory[LONG - 1] == 0xee && !f.memory[LONG]);
	fake_close(&f);
}

/* The read fails when the provider writes no more. */
static void assert_ends_after_its_fetch(struct fake *f)
{
	assert_int_equal(f->nfetches, 1);
	assert_int_equal(f->peer->down, -EPROTO);
	assert_false(f->peer->down_reported);
	assert_true(fake_end_fetch(f));
	fake_progress(f);
	assert_true(f->peer->down_reported);
	assert_int_equal(fake_poll(f), -EPROTO);
	fake_close(f);
}

static void a_second_grant_of_a_read_is_refused(void **state)
{
	struct pn_fabric_grant again = grant_of(0);
	struct fake f;

	(void)state;
	start_read(&f);
	fake_deliver_next(&f, &again, sizeof(again));
	assert_ends_after_its_fetch(&f);
}

static void other_answers_to_a_granted_read_are_refused(void **state)
{
	static const enum pn_fabric_kind kinds[] = { PN_FABRIC_DATA,
						     PN_FABRIC_FAILED };

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(kinds); i++) {
		struct pn_fabric_header answer = { .kind = (uint8_t)kinds[i] };
		struct fake f;

		start_read(&f);
		fake_deliver_next(&f, &answer, sizeof(answer));
		assert_ends_after_its_fetch(&f);
	}
}

/* A provider reads an address of this format up to its end. */
static void an_address_without_end_is_refused(void **state)
{
	struct fake f;
	struct pn_fabric_address at;
	struct pn_address blob;
	struct pn_peer *peer;

	(void)state;
	fake_open(&f);
	at = f.dev->address;
	at.nonce = 9;
	at.len = PN_FABRIC_RAW_BYTES;
	memset(at.raw, 'x', sizeof(at.raw));
	pn_fabric_address_put(&at, &blob);
	assert_int_equal(pn_fabric_attach(&f.dev->device, &blob, &peer),
			 -EHOSTUNREACH);
	fake_close(&f);
}

/* --- hellos --------------------------------------------------------------- */

/* Another version may have longer addresses. */
static struct pn_fabric_hello hello_of_version(const struct fake *f,
					       uint32_t version, uint64_t nonce)
{
	return (struct pn_fabric_hello){
		.header = { .kind = PN_FABRIC_HELLO, .to = 3, .tag = 77 },
		.magic = PN_FABRIC_MAGIC,
		.version = version,
		.to_nonce = f->dev->address.nonce,
		.window = 100,
		.from = { .version = version,
			  .kind = "fabr",
			  .format = FI_ADDR_STR,
			  .len = 9,
			  .nonce = nonce,
			  .raw = "fake://9" },
	};
}

static void a_hello_of_another_version_is_refused(void **state)
{
	struct pn_fabric_hello hello;
	struct fake f;

	(void)state;
	fake_open(&f);
	hello = hello_of_version(&f, PN_FABRIC_VERSION + 1, 9);
	fake_deliver(&f, &hello, sizeof(hello));
	assert_int_equal(f.sent[PN_FABRIC_REFUSE], 1);
	fake_close(&f);
}

static void a_hello_without_a_whole_address_is_dropped(void **state)
{
	static const uint16_t lens[] = { 0, PN_FABRIC_RAW_BYTES + 1,
					 UINT16_MAX };
	struct pn_fabric_hello hello;
	struct fake f;

	(void)state;
	fake_open(&f);
	hello = hello_of_version(&f, PN_FABRIC_VERSION + 1, 9);
	fake_deliver(&f, &hello, sizeof(hello) - 1);
	fake_deliver(&f, &hello, offsetof(struct pn_fabric_hello, from));
	for (unsigned i = 0; i < PN_ARRAY_LEN(lens); i++) {
		hello.from.len = lens[i];
		fake_deliver(&f, &hello, sizeof(hello));
	}
	assert_int_equal(f.sent[PN_FABRIC_REFUSE], 0);
	assert_int_equal(f.dev->npeers, 0);
	fake_close(&f);
}

/* Each refusal needs a peer of its own, which stays. */
static void refusals_take_bounded_memory(void **state)
{
	struct pn_fabric_hello hello;
	struct fake f;

	(void)state;
	fake_open(&f);
	for (unsigned i = 0; i < 3000; i++) {
		hello = hello_of_version(&f, PN_FABRIC_VERSION + 1, 100 + i);
		fake_deliver(&f, &hello, sizeof(hello));
	}
	assert_true(f.sent[PN_FABRIC_REFUSE] > 0);
	assert_true(f.dev->npeers <= 1000);
	for (unsigned i = 0; i < f.dev->npeers; i++)
		assert_null(f.dev->by_number[i]->tx.records);
	fake_close(&f);
}

/* A first packet waits until the provider has connected. Returns how many
 * REFUSEs were sent after two looks at the peers; *slow: the looks took too
 * long for the refusal to wait. */
static unsigned refusals_after_two_looks(bool *slow)
{
	struct pn_fabric_hello hello;
	uint64_t begin_ns, looked_ns = 0;
	unsigned nlooks = 0, n;
	struct fake f;

	fake_open(&f);
	f.dev->params.heartbeat = 2 * PN_NS_PER_MS;
	f.dev->params.patience = 60 * PN_NS_PER_S;
	hello = hello_of_version(&f, PN_FABRIC_VERSION + 1, 9);
	f.send_error = -FI_EAGAIN;
	begin_ns = pn_clock_ns();
	fake_deliver(&f, &hello, sizeof(hello));
	fake_serve(&f);
	while (nlooks < 3) {
		pn_fabric_lock(f.dev);
		nlooks += f.dev->service.scanned_ns != looked_ns;
		looked_ns = f.dev->service.scanned_ns;
		pn_fabric_unlock(f.dev);
		usleep(100);
	}
	*slow = pn_clock_ns() > begin_ns + PN_NS_PER_S / 2;
	pn_fabric_lock(f.dev);
	f.send_error = 0;
	pn_fabric_progress(f.dev, true);
	n = f.sent[PN_FABRIC_REFUSE];
	pn_fabric_unlock(f.dev);
	fake_close(&f);
	return n;
}

static void a_refusal_waits_until_it_can_be_sent(void **state)
{
	unsigned nslow = 0;
	bool slow;

	(void)state;
	while (refusals_after_two_looks(&slow) != 1) {
		assert_true(slow);
		assert_true(nslow++ < 1000);
	}
}

/* --- floods --------------------------------------------------------------- */

static void more_requests_than_credits_are_refused(void **state)
{
	struct pn_fabric_header send = { .kind = PN_FABRIC_SEND };
	struct fake f;

	(void)state;
	fake_open(&f);
	fake_connect(&f);
	for (unsigned i = 0; i < f.dev->params.window; i++)
		fake_deliver_next(&f, &send, sizeof(send));
	assert_int_equal(f.peer->down, 0);
	fake_deliver_next(&f, &send, sizeof(send));
	assert_int_equal(f.peer->down, -EPROTO);
	fake_close(&f);
}

static void credits_return_with_the_buffers(void **state)
{
	struct pn_fabric_header send = { .kind = PN_FABRIC_SEND };
	struct fake f;

	(void)state;
	fake_open(&f);
	fake_connect(&f);
	for (unsigned i = 0; i < 100 * f.dev->params.window; i++) {
		fake_deliver_next(&f, &send, sizeof(send));
		if (i % f.dev->params.window == 0)
			fake_poll(&f);
	}
	assert_int_equal(f.peer->down, 0);
	fake_close(&f);
}

static void questions_of_a_peer_that_does_not_read_take_no_memory(void **state)
{
	struct pn_fabric_header ping = { .kind = PN_FABRIC_PING };
	struct fake f;
	size_t before;

	(void)state;
	fake_open(&f);
	fake_connect(&f);
	f.send_error = -FI_EAGAIN;
	fake_deliver_next(&f, &ping, sizeof(ping));
	before = f.dev->packet_bytes;
	for (unsigned i = 0; i < 100000; i++)
		fake_deliver_next(&f, &ping, sizeof(ping));
	assert_int_equal(f.dev->packet_bytes, before);
	assert_int_equal(f.sent[PN_FABRIC_ACK], 0);
	f.send_error = 0;
	fake_progress(&f);
	fake_progress(&f);
	assert_true(f.sent[PN_FABRIC_ACK] > 0);
	fake_close(&f);
}

static struct pn_fabric_write short_read(const struct fake *f)
{
	return (struct pn_fabric_write){
		.header = { .kind = PN_FABRIC_READ },
		.access = { (uintptr_t)f->memory, f->mr.rkey, 64 },
	};
}

static void reads_of_a_peer_that_does_not_read_take_bounded_memory(void **state)
{
	struct pn_fabric_write read;
	struct fake f;
	size_t before;

	(void)state;
	fake_open(&f);
	fake_connect(&f);
	read = short_read(&f);
	f.send_error = -FI_EAGAIN;
	fake_deliver_next(&f, &read, sizeof(read));
	before = f.dev->packet_bytes;
	for (unsigned i = 0; i < 10000 && !f.peer->down; i++)
		fake_deliver_next(&f, &read, sizeof(read));
	assert_int_equal(f.dev->packet_bytes, before);
	assert_int_equal(f.peer->down, -EPROTO);
	fake_close(&f);
}

static void requests_that_waited_for_room_are_executed(void **state)
{
	struct pn_fabric_write read;
	struct fake f;

	(void)state;
	fake_open(&f);
	fake_connect(&f);
	read = short_read(&f);
	f.send_error = -FI_EAGAIN;
	for (unsigned i = 0; i < 10; i++)
		fake_deliver_next(&f, &read, sizeof(read));
	assert_int_equal(f.sent[PN_FABRIC_DATA], 0);
	f.send_error = 0;
	fake_progress(&f);
	assert_int_equal(f.sent[PN_FABRIC_DATA], 10);
	assert_int_equal(f.peer->down, 0);
	fake_close(&f);
}

/* --- memory that the program has changed ---------------------------------- */

/* Changes a word that is `was`. */
static void deliver_atomic(struct fake *f, const struct pn_mr *mr,
			   enum pn_op_kind kind, uint64_t was)
{
	struct pn_fabric_atomic atomic = {
		.header = { .kind = PN_FABRIC_ATOMIC, .imm = kind },
		.access = { (uintptr_t)mr->addr + 8, mr->rkey, 8 },
		.operand = was + 5,
		.compare = was,
	};

	fake_deliver_next(f, &atomic, sizeof(atomic));
}

/* Read-only, without access, unmapped: the peer gets an error, and the process
 * goes on. */
static void atomics_on_memory_that_cannot_be_written_fail(void **state)
{
	static const enum pn_op_kind kinds[] = { PN_OP_FETCH_ADD, PN_OP_SWAP,
						 PN_OP_COMPARE_SWAP };
	struct pn_mr mr = { .len = 4096, .access = PINION_ACCESS_ALL };
	uint64_t *words;
	struct fake f;

	(void)state;
	fake_open(&f);
	fake_connect(&f);
	mr.addr = words = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(words != MAP_FAILED);
	assert_ok(pn_fabric_keys_register(&f.dev->keys, &mr));
	for (unsigned i = 0; i < PN_ARRAY_LEN(kinds); i++) {
		words[1] = 0;
		deliver_atomic(&f, &mr, kinds[i], 0);
		assert_int_equal(words[1], 5);
		assert_int_equal(f.sent[PN_FABRIC_DATA], i + 1);
		assert_ok(mprotect(words, 4096, PROT_READ));
		deliver_atomic(&f, &mr, kinds[i], 5);
		assert_int_equal(words[1], 5);
		assert_ok(mprotect(words, 4096, PROT_NONE));
		deliver_atomic(&f, &mr, kinds[i], 5);
		assert_int_equal(f.sent[PN_FABRIC_FAILED], 2 * (i + 1));
		assert_ok(mprotect(words, 4096, PROT_READ | PROT_WRITE));
	}
	assert_ok(munmap(words, 4096));
	deliver_atomic(&f, &mr, PN_OP_SWAP, 5);
	assert_int_equal(f.sent[PN_FABRIC_FAILED], 2 * PN_ARRAY_LEN(kinds) + 1);
	assert_int_equal(f.peer->down, 0);
	fake_close(&f);
}

/* --- keys of the provider ------------------------------------------------- */

#define KEYS 64

/* A peer may try keys of the provider on its own. */
static void keys_of_the_provider_cannot_be_guessed(void **state)
{
	struct pn_mr mrs[KEYS];
	uint64_t keys[KEYS];
	struct fake f;

	(void)state;
	fake_open(&f);
	f.dev->keys.prov_key = false;
	for (unsigned i = 0; i < KEYS; i++) {
		mrs[i] = (struct pn_mr){ .addr = f.memory, .len = 4096 };
		assert_ok(pn_fabric_keys_register(&f.dev->keys, &mrs[i]));
		keys[i] = f.requested_key;
		assert_true(keys[i] > UINT64_C(1) << 32);
		for (unsigned j = 0; j < i; j++)
			assert_true(keys[i] - keys[j] + (1 << 20) > 1 << 21);
	}
	fake_close(&f);
}

/* A peer knows the old one from a long operation. */
static void a_new_key_is_a_new_key_of_the_provider(void **state)
{
	struct pn_mr mr;
	uint64_t before;
	unsigned nregions;
	struct fake f;

	(void)state;
	fake_open(&f);
	f.dev->keys.prov_key = false;
	mr = (struct pn_mr){ .addr = f.memory,
			     .len = 4096,
			     .access = PINION_ACCESS_ALL };
	assert_ok(pn_fabric_keys_register(&f.dev->keys, &mr));
	before = f.requested_key;
	nregions = f.nregions;
	assert_ok(pn_fabric_ops.rekey(&f.dev->device, &mr));
	assert_true(f.requested_key != before);
	assert_int_equal(f.nregions, nregions);
	fake_close(&f);
}

/* --- connections that break ----------------------------------------------- */

static void a_connection_that_breaks_was_reset(void **state)
{
	static const int errors[] = { -FI_ECANCELED, -FI_ENOTCONN, -FI_EIO,
				      -FI_EACCES, -FI_ETIMEDOUT };
	struct fake f;

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(errors); i++) {
		fake_open(&f);
		fake_connect(&f);
		f.send_error = errors[i];
		assert_ok(fake_post(&f, PN_OP_WRITE, 64));
		assert_int_equal(f.peer->down, -ECONNRESET);
		fake_close(&f);
	}
}

static void a_read_that_breaks_resets_its_connection(void **state)
{
	struct pn_fabric_grant grant = grant_of(0);
	struct fake f;

	(void)state;
	fake_open(&f);
	fake_connect(&f);
	f.fetch_error = -FI_ECANCELED;
	assert_ok(fake_post(&f, PN_OP_READ, LONG));
	fake_deliver_next(&f, &grant, sizeof(grant));
	assert_int_equal(f.peer->down, -ECONNRESET);
	fake_close(&f);
}

/* --- reads that fail late ------------------------------------------------- */

static unsigned users_of_memory(const struct fake *f)
{
	const struct pn_fabric_keys *keys = &f->dev->keys;
	const struct pn_fabric_slot *slots = atomic_load(&keys->blocks[0]);
	unsigned n = 0;

	for (unsigned i = 0; i < keys->nslots; i++)
		n += atomic_load(&slots[i].users);
	return n;
}

/* The connection is reset, as the peer is told, and its operation has ended;
 * nothing uses memory. */
static void assert_reset(struct fake *f, int status)
{
	assert_int_equal(f->peer->down, -ECONNRESET);
	assert_int_equal(f->sent[PN_FABRIC_BYE], 1);
	fake_progress(f);
	assert_true(f->peer->down_reported);
	assert_int_equal(fake_poll(f), status);
	assert_int_equal(users_of_memory(f), 0);
}

static void a_read_that_fails_late_ends(void **state)
{
	(void)state;
	for (int named = 0; named < 2; named++) {
		struct fake f;

		start_read(&f);
		assert_true(fake_fail_fetch(&f, named));
		assert_reset(&f, -ECONNRESET);
		fake_close(&f);
	}
}

/* A long WRITE of the peer, to `at` in our memory. */
static void deliver_pull(struct fake *f, size_t at)
{
	struct pn_fabric_pull pull = {
		.header = { .kind = PN_FABRIC_PULL },
		.access = { (uintptr_t)f->memory + at, f->mr.rkey, PULLED },
		.nsources = 1,
		.source = { { .addr = 4096, .key = 1, .len = PULLED } },
	};

	fake_deliver_next(f, &pull, offsetof(struct pn_fabric_pull, source[1]));
}

static void a_pull_that_fails_late_ends(void **state)
{
	(void)state;
	for (int named = 0; named < 2; named++) {
		struct fake f;

		fake_open(&f);
		fake_connect(&f);
		deliver_pull(&f, 0);
		assert_int_equal(f.nfetches, 1);
		assert_true(users_of_memory(&f));
		assert_true(fake_fail_fetch(&f, named));
		assert_reset(&f, 0);
		fake_close(&f);
	}
}

/* Of several reads it is the one that does not end. Those that were posted
 * after the report do not count. */
static void a_read_that_fails_without_a_name_is_the_one_that_is_left(
	void **state)
{
	struct fake f;

	(void)state;
	fake_open(&f);
	fake_connect(&f);
	for (unsigned i = 0; i < 3; i++)
		deliver_pull(&f, i * PULLED);
	assert_int_equal(f.nfetches, 3);
	assert_true(fake_fail_fetch(&f, false));
	assert_int_equal(f.peer->down, 0);
	deliver_pull(&f, 3 * PULLED);
	assert_true(fake_end_fetch(&f));
	assert_int_equal(f.peer->down, 0);
	assert_true(fake_end_fetch(&f));
	assert_int_equal(f.peer->down, -ECONNRESET);
	assert_false(f.peer->down_reported);
	assert_true(fake_end_fetch(&f));
	assert_reset(&f, 0);
	fake_close(&f);
}

/* The provider said that it had failed, and then ends it all the same. */
static void a_read_that_ends_after_all_does_no_harm(void **state)
{
	struct fake_fetch fetch;
	struct fake f;

	(void)state;
	start_read(&f);
	fetch = f.fetches[0];
	assert_true(fake_fail_fetch(&f, false));
	assert_reset(&f, -ECONNRESET);
	f.fetches[f.nfetches++] = fetch;
	assert_true(fake_fail_fetch(&f, true));
	assert_true(pn_list_empty(&f.dev->fetches));
	fake_close(&f);
}

/* --- threads that sleep on the descriptor --------------------------------- */

static bool is_readable(int fd, int timeout_ms)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };

	return poll(&poll_fd, 1, timeout_ms) == 1;
}

static void a_post_that_finds_an_event_tells_those_who_sleep(void **state)
{
	struct pn_fabric_header send = { .kind = PN_FABRIC_SEND };
	struct fake f;

	(void)state;
	fake_open(&f);
	fake_connect(&f);
	assert_ok(pn_fabric_arm(&f.dev->device));
	assert_false(is_readable(f.dev->event_fd, 0));
	fake_arrive_next(&f, &send, sizeof(send));
	f.peer->tx.granted = f.peer->tx.next;
	assert_int_equal(fake_post(&f, PN_OP_WRITE, 64), -EAGAIN);
	assert_true(is_readable(f.dev->event_fd, 0));
	fake_close(&f);
}

/* Whether the service thread has taken the packet, and waits for the next. */
static bool is_taken(struct fake *f)
{
	bool taken;

	pn_fabric_lock(f->dev);
	taken = f->dev->done.n && !is_readable(f->dev->cq_fd, 0);
	pn_fabric_unlock(f->dev);
	return taken;
}

static void the_service_thread_tells_of_an_event_that_it_takes(void **state)
{
	struct pn_fabric_header send = { .kind = PN_FABRIC_SEND };
	uint64_t until = pn_clock_ns() + 60 * PN_NS_PER_S;
	struct fake f;

	(void)state;
	fake_open(&f);
	fake_connect(&f);
	f.dev->params.heartbeat = 20 * PN_NS_PER_S;
	f.dev->params.patience = 60 * PN_NS_PER_S;
	fake_serve(&f);
	while (pn_fabric_arm(&f.dev->device))
		assert_true(pn_clock_ns() < until);
	pn_fabric_lock(f.dev);
	fake_arrive_next(&f, &send, sizeof(send));
	pn_fabric_unlock(f.dev);
	while (!is_taken(&f))
		assert_true(pn_clock_ns() < until);
	assert_true(is_readable(f.dev->epoll, 10000));
	fake_close(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_granted_read_ends_when_its_bytes_are_there),
		cmocka_unit_test(a_second_grant_of_a_read_is_refused),
		cmocka_unit_test(other_answers_to_a_granted_read_are_refused),
		cmocka_unit_test(an_address_without_end_is_refused),
		cmocka_unit_test(a_hello_of_another_version_is_refused),
		cmocka_unit_test(a_hello_without_a_whole_address_is_dropped),
		cmocka_unit_test(refusals_take_bounded_memory),
		cmocka_unit_test(a_refusal_waits_until_it_can_be_sent),
		cmocka_unit_test(more_requests_than_credits_are_refused),
		cmocka_unit_test(credits_return_with_the_buffers),
		cmocka_unit_test(
			questions_of_a_peer_that_does_not_read_take_no_memory),
		cmocka_unit_test(
			reads_of_a_peer_that_does_not_read_take_bounded_memory),
		cmocka_unit_test(requests_that_waited_for_room_are_executed),
		cmocka_unit_test(atomics_on_memory_that_cannot_be_written_fail),
		cmocka_unit_test(keys_of_the_provider_cannot_be_guessed),
		cmocka_unit_test(a_new_key_is_a_new_key_of_the_provider),
		cmocka_unit_test(a_connection_that_breaks_was_reset),
		cmocka_unit_test(a_read_that_breaks_resets_its_connection),
		cmocka_unit_test(a_read_that_fails_late_ends),
		cmocka_unit_test(a_pull_that_fails_late_ends),
		cmocka_unit_test(
			a_read_that_fails_without_a_name_is_the_one_that_is_left),
		cmocka_unit_test(a_read_that_ends_after_all_does_no_harm),
		cmocka_unit_test(
			a_post_that_finds_an_event_tells_those_who_sleep),
		cmocka_unit_test(
			the_service_thread_tells_of_an_event_that_it_takes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
