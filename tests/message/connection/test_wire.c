/* SPDX-License-Identifier: BSD-2-Clause */
/* What travels between endpoints: packets are parsed with distrust, and a peer
 * that sends nonsense ends itself and nobody else. fuzz_wire looks for more. */
#include "test.h"

#include <errno.h>
#include <unistd.h>

#include "base/log.h"
#include "message/connection/wire.h"
#include "message/hostile.h"
#include "message/protocol/protocol.h"

struct packet {
	struct pn_wire wire;
	struct pn_wire_key keys[PN_WIRE_MAX_KEYS];
};

static int parse(const void *data, size_t len)
{
	const uint8_t *payload;
	struct pn_wire wire;
	size_t n;

	return pn_wire_parse(data, len, &wire, &payload, &n);
}

static struct packet packet_of(enum pn_wire_kind kind)
{
	return (struct packet){ .wire = { .version = PN_WIRE_VERSION,
					  .kind = (uint8_t)kind } };
}

/* --- parsing -------------------------------------------------------------- */

static void packets_are_whole_and_of_a_known_kind(void **state)
{
	struct packet p = packet_of(PN_WIRE_ACK);

	(void)state;
	assert_ok(parse(&p, sizeof(p.wire)));
	assert_int_equal(parse(&p, 0), -EPROTO);
	for (size_t len = 1; len < sizeof(p.wire); len++)
		assert_int_equal(parse(&p, len), -EPROTO);
	assert_int_equal(parse(&p, sizeof(p.wire) + 1), -EPROTO);
	p.wire.kind = 0;
	assert_int_equal(parse(&p, sizeof(p.wire)), -EPROTO);
	p.wire.kind = PN_WIRE_NKINDS;
	assert_int_equal(parse(&p, sizeof(p.wire)), -EPROTO);
}

static void another_version_is_told_from_garbage_by_its_first_byte(void **state)
{
	uint8_t bytes[100] = { PN_WIRE_VERSION + 1 };

	(void)state;
	for (size_t len = 1; len <= sizeof(bytes); len++)
		assert_int_equal(parse(bytes, len), -EPROTONOSUPPORT);
}

static void keys_name_the_bytes_of_their_packet(void **state)
{
	struct packet p = packet_of(PN_WIRE_READY);
	size_t two = sizeof(p.wire) + 2 * sizeof(p.keys[0]);

	(void)state;
	p.wire.nkeys = 2;
	p.wire.len = 300;
	p.keys[0].len = 100;
	p.keys[1].len = 200;
	assert_ok(parse(&p, two));
	assert_int_equal(parse(&p, two - 1), -EPROTO);
	p.keys[1].len = 201;
	assert_int_equal(parse(&p, two), -EPROTO);
	p.keys[0].len = UINT64_MAX;
	p.keys[1].len = 301; /* wraps around to 300 */
	assert_int_equal(parse(&p, two), -EPROTO);
	p.wire.nkeys = PN_WIRE_MAX_KEYS + 1;
	assert_int_equal(parse(&p, sizeof(p.wire) + (PN_WIRE_MAX_KEYS + 1) *
							    sizeof(p.keys[0])),
			 -EPROTO);
}

/* --- addresses ------------------------------------------------------------ */

static struct pinion_address two_rails(struct pn_address *rails)
{
	struct pinion_address address;

	for (unsigned i = 0; i < 2; i++) {
		rails[i] = (struct pn_address){ .len = 10 + i };
		memset(rails[i].data, 'a' + (int)i, rails[i].len);
	}
	pn_wire_put_address(rails, 2, false, &address);
	return address;
}

static void an_address_names_every_rail(void **state)
{
	struct pn_address rails[2], got[PN_RAILS_MAX];
	struct pinion_address address = two_rails(rails);
	unsigned n;

	(void)state;
	assert_ok(pn_wire_get_address(address.data, address.len, got, &n));
	assert_int_equal(n, 2);
	for (unsigned i = 0; i < n; i++) {
		assert_int_equal(got[i].len, rails[i].len);
		assert_memory_equal(got[i].data, rails[i].data, got[i].len);
	}
	assert_false(pn_wire_address_either(address.data));
	pn_wire_put_address(rails, 2, true, &address);
	assert_ok(pn_wire_get_address(address.data, address.len, got, &n));
	assert_int_equal(n, 2);
	assert_true(pn_wire_address_either(address.data));
}

static void addresses_that_are_none_are_refused(void **state)
{
	struct pn_address rails[2], got[PN_RAILS_MAX];
	struct pinion_address good = two_rails(rails), bad;
	unsigned n;

	(void)state;
	for (size_t len = 0; len < good.len; len++)
		assert_int_equal(pn_wire_get_address(good.data, len, got, &n),
				 -EINVAL);
	assert_int_equal(pn_wire_get_address(good.data, good.len + 1, got, &n),
			 -EINVAL);
	for (int nrails = 0; nrails < 256; nrails++) {
		bad = good;
		bad.data[1] = (uint8_t)nrails;
		assert_int_equal(pn_wire_get_address(bad.data, bad.len, got,
						     &n),
				 (nrails & ~PN_WIRE_EITHER) == 2 ? 0 : -EINVAL);
	}
	for (int len = 0; len < 256; len++) {
		bad = good;
		bad.data[2] = (uint8_t)len;
		assert_int_equal(pn_wire_get_address(bad.data, bad.len, got,
						     &n),
				 len == 10 ? 0 : -EINVAL);
	}
	bad = good;
	bad.data[0]++;
	assert_int_equal(pn_wire_get_address(bad.data, bad.len, got, &n),
			 -EPROTONOSUPPORT);
}

/* --- a live endpoint ------------------------------------------------------ */

static struct hostile_result shoot(const struct packet *p, size_t len)
{
	struct hostile_packet packet = { (const uint8_t *)p, len };
	struct hostile_result result;

	assert_true(hostile_run(&packet, 1, &result));
	return result;
}

static void assert_all_failed(const struct hostile_result *r, int status)
{
	assert_int_equal(r->bad_packets, 1);
	assert_true(r->detached);
	for (unsigned i = 0; i < HOSTILE_NREQUESTS; i++)
		assert_int_equal(r->status[i], status);
}

/* A packet that no peer may send. */
static void assert_nonsense(const struct packet *p, size_t len)
{
	struct hostile_result r = shoot(p, len);

	assert_all_failed(&r, -EPROTO);
}

/* Nobody asked; an ASK is answered. */
static void an_answer_without_a_question_is_nonsense(void **state)
{
	struct packet p = packet_of(PN_WIRE_KEPT);
	struct hostile_result r;

	(void)state;
	assert_nonsense(&p, sizeof(p.wire));
	p = packet_of(PN_WIRE_ASK);
	r = shoot(&p, sizeof(p.wire));
	assert_int_equal(r.bad_packets, 0);
}

/* A message that is late has no data with it. */
static void data_of_a_late_message_are_nonsense(void **state)
{
	struct packet p = packet_of(PN_WIRE_MATCH);

	(void)state;
	p.wire.len = 24;
	p.wire.protocol = PN_PROTOCOL_COPY;
	p.wire.status = PN_WIRE_LATE;
	assert_nonsense(&p, sizeof(p.wire) + 24);
}

static void a_good_message_is_received_from_anyone(void **state)
{
	struct packet p = packet_of(PN_WIRE_MATCH);
	struct hostile_result r;

	(void)state;
	p.wire.len = 24;
	p.keys[0].addr = 0x1122334455667788; /* 24 bytes of payload */
	r = shoot(&p, sizeof(p.wire) + 24);
	assert_int_equal(r.bad_packets, 0);
	assert_false(r.detached);
	assert_int_equal(r.status[HOSTILE_RECV], 0);
	assert_int_equal(r.len[HOSTILE_RECV], 24);
	assert_memory_equal(r.received, p.keys, 24);
	assert_int_equal(r.status[HOSTILE_SHORT], -ECONNRESET);
	assert_int_equal(r.status[HOSTILE_CACHED], -ECONNRESET);
}

/* Every packet that a peer must not send. */
static void nonsense_fails_its_peer_and_nobody_else(void **state)
{
	struct packet done = packet_of(PN_WIRE_DONE);
	struct packet gone = packet_of(PN_WIRE_GONE);
	struct packet data = packet_of(PN_WIRE_DATA);
	struct packet ready = packet_of(PN_WIRE_READY);
	struct packet ack = packet_of(PN_WIRE_ACK);
	struct packet match = packet_of(PN_WIRE_MATCH);

	(void)state;
	done.wire.to = HOSTILE_FIRST + HOSTILE_CACHED; /* was not exposed */
	gone.wire.to = HOSTILE_FIRST + HOSTILE_COPY;   /* was not canceled */
	data.wire.to = HOSTILE_FIRST + HOSTILE_RECV;   /* was not matched */
	ready.wire.to = HOSTILE_FIRST + HOSTILE_PIPELINE;
	ready.wire.offset = UINT64_MAX; /* wraps around */
	ready.wire.len = 2;
	ack.wire.to = HOSTILE_FIRST + HOSTILE_COPY;
	ack.wire.len = UINT64_MAX; /* more than there is */
	match.wire.protocol = PN_PROTOCOL_COUNT;
	assert_nonsense(&done, sizeof(done.wire));
	assert_nonsense(&gone, sizeof(gone.wire));
	assert_nonsense(&data, sizeof(data.wire) + 10);
	assert_nonsense(&ready, sizeof(ready.wire));
	assert_nonsense(&ack, sizeof(ack.wire));
	assert_nonsense(&match, sizeof(match.wire));
}

/* A HELLO lists the devices of its sender; the sending device must be among
 * them. */
static void a_false_name_fails_its_peer_and_nobody_else(void **state)
{
	static const uint8_t anothers[] = {
		PN_WIRE_VERSION, 1, 4, 'n', 'o', 'd', 'y'
	};
	struct packet hello = packet_of(PN_WIRE_HELLO);

	(void)state;
	hello.wire.tag = 1;
	memcpy(hello.keys, anothers, sizeof(anothers));
	assert_nonsense(&hello, sizeof(hello.wire) + sizeof(anothers));
	assert_nonsense(&hello, sizeof(hello.wire) + sizeof(anothers) - 1);
}

/* The same about conditional writes. */
static void nonsense_about_grants_fails_its_peer_and_nobody_else(void **state)
{
	struct packet fin = packet_of(PN_WIRE_FIN);
	struct packet data = packet_of(PN_WIRE_DATA);
	struct packet ungranted = packet_of(PN_WIRE_UNGRANTED);
	struct packet grant = packet_of(PN_WIRE_GRANT);

	(void)state;
	fin.wire.to = HOSTILE_FIRST + HOSTILE_GRANT;
	fin.wire.len = (64 << 10) + 1; /* more than was granted */
	data.wire.to = HOSTILE_FIRST + HOSTILE_GRANT;	   /* keys were given */
	ungranted.wire.to = HOSTILE_FIRST + HOSTILE_GRANT; /* not asked for */
	grant.wire.nkeys = 1;
	grant.wire.len = 5; /* of which the key is none */
	assert_nonsense(&fin, sizeof(fin.wire));
	assert_nonsense(&data, sizeof(data.wire) + 10);
	assert_nonsense(&ungranted, sizeof(ungranted.wire));
	assert_nonsense(&grant, sizeof(grant.wire) + sizeof(grant.keys[0]));
}

/* A grant of memory that is not mapped fails the write that uses it; so does a
 * grant that is too short. */
static void false_grants_fail_one_write(void **state)
{
	struct packet grant = packet_of(PN_WIRE_GRANT);
	struct hostile_result r;

	(void)state;
	grant.wire.nkeys = 1;
	grant.wire.tag = HOSTILE_PUT_WHEN;
	grant.wire.len = grant.keys[0].len = 100000;
	grant.keys[0].rkey = 4711;
	r = shoot(&grant, sizeof(grant.wire) + sizeof(grant.keys[0]));
	assert_int_equal(r.bad_packets, 0);
	assert_int_equal(r.status[HOSTILE_PUT_WHEN], -EACCES);
	assert_int_equal(r.status[HOSTILE_GRANT], -ECONNRESET);
	grant.wire.len = grant.keys[0].len = 99999;
	r = shoot(&grant, sizeof(grant.wire) + sizeof(grant.keys[0]));
	assert_int_equal(r.bad_packets, 0);
	assert_int_equal(r.status[HOSTILE_PUT_WHEN], -EMSGSIZE);
}

/* With invalid keys the operation is refused and the request fails. */
static void keys_that_are_none_fail_one_request(void **state)
{
	struct packet ready = packet_of(PN_WIRE_READY);
	struct hostile_result r;

	(void)state;
	ready.wire.to = HOSTILE_FIRST + HOSTILE_CACHED;
	ready.wire.nkeys = 1;
	ready.wire.offset = 1000;
	ready.wire.len = ready.keys[0].len = 5000;
	ready.keys[0].rkey = 4711;
	r = shoot(&ready, sizeof(ready.wire) + sizeof(ready.keys[0]));
	assert_int_equal(r.bad_packets, 0);
	assert_int_equal(r.status[HOSTILE_CACHED], -EACCES);
	assert_int_equal(r.status[HOSTILE_PIPELINE], -ECONNRESET);
}

static unsigned count_lines(FILE *file, const char *with)
{
	char line[512];
	unsigned n = 0;

	rewind(file);
	while (fgets(line, sizeof(line), file))
		n += !!strstr(line, with);
	return n;
}

static void another_version_is_refused_with_one_line(void **state)
{
	struct packet p = packet_of(PN_WIRE_MATCH);
	struct hostile_packet twice[2] = {
		{ (const uint8_t *)&p, sizeof(p.wire) },
		{ (const uint8_t *)&p, sizeof(p.wire) },
	};
	struct hostile_result result;
	FILE *file = tmpfile();
	int saved = dup(STDERR_FILENO);
	bool passed;

	(void)state;
	assert_non_null(file);
	p.wire.version = PN_WIRE_VERSION + 1;
	fflush(stderr);
	dup2(fileno(file), STDERR_FILENO);
	pn_log_set_level(PN_LOG_WARN);
	passed = hostile_run(twice, 2, &result);
	pn_log_set_level(PN_LOG_NONE);
	dup2(saved, STDERR_FILENO);
	close(saved);
	assert_true(passed);
	assert_all_failed(&result, -EPROTONOSUPPORT);
	assert_int_equal(count_lines(file, "another version"), 1);
	assert_int_equal(count_lines(file, ""), 1);
	fclose(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(packets_are_whole_and_of_a_known_kind),
		TEST(another_version_is_told_from_garbage_by_its_first_byte),
		TEST(keys_name_the_bytes_of_their_packet),
		TEST(an_address_names_every_rail),
		TEST(addresses_that_are_none_are_refused),
		TEST(a_good_message_is_received_from_anyone),
		TEST(an_answer_without_a_question_is_nonsense),
		TEST(data_of_a_late_message_are_nonsense),
		TEST(nonsense_fails_its_peer_and_nobody_else),
		TEST(a_false_name_fails_its_peer_and_nobody_else),
		TEST(nonsense_about_grants_fails_its_peer_and_nobody_else),
		TEST(false_grants_fail_one_write),
		TEST(keys_that_are_none_fail_one_request),
		TEST(another_version_is_refused_with_one_line),
	};

	pn_log_set_level(PN_LOG_NONE);
	return RUN_TESTS(tests);
}
