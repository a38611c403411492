/* SPDX-License-Identifier: BSD-2-Clause */
/* A program of 0.1.0: compiled against the headers of that release and run with
 * the library of today. Every struct of the release is filled or read, and most
 * calls are made. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pinion/pinion.h>

#define LEN ((size_t)300000)

#define MUST(expression)                                           \
	do {                                                       \
		if (!(expression)) {                               \
			fprintf(stderr, "line %d: %s\n", __LINE__, \
				#expression);                      \
			exit(EXIT_FAILURE);                        \
		}                                                  \
	} while (0)

static struct pinion_context *context;
static struct pinion_endpoint *ep;
static struct pinion_peer *self;

static void open_all(void)
{
	static const char *const options[] = { "log=error", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	struct pinion_endpoint_attr ep_attr = {
		.size = sizeof(ep_attr),
		.flags = PINION_ENDPOINT_SINGLE_THREADED
	};
	struct pinion_address address;

	MUST(!pinion_open(&attr, &context));
	MUST(!pinion_endpoint_open(context, &ep_attr, &ep));
	MUST(!pinion_endpoint_address(ep, &address));
	MUST(!pinion_peer_add(ep, &address, &self));
	MUST(!pinion_peer_address(self, &address));
}

/* --- the cache, the heap, registering by hand ------------------------------
 */

static void pin_and_register(void)
{
	struct pinion_registration_info info = { .size = sizeof(info) };
	struct pinion_cache_stats stats = { .size = sizeof(stats) };
	struct pinion_device_info device = { .size = sizeof(device) };
	struct pinion_registration *registration;
	struct pinion_pin_segment segment;
	struct pinion_pin pin;
	char *buf = calloc(1, LEN);

	MUST(buf);
	for (int i = 0; i < 3; i++) {
		MUST(!pinion_pin(context, buf, LEN, PINION_ACCESS_LOCAL_WRITE,
				 &pin));
		MUST(pin.addr == buf && pin.len == LEN && pin.nsegments);
		MUST(!pinion_pin_segment(&pin, 0, &segment));
		MUST(segment.addr == buf && segment.local_key);
		pinion_unpin(context, &pin);
	}
	MUST(!pinion_cache_query(context, &stats));
	MUST(stats.size == sizeof(stats) && stats.hits >= 2);
	MUST(!pinion_device_register(context, buf, 100,
				     PINION_ACCESS_REMOTE_READ, &registration));
	MUST(!pinion_registration_query(registration, &info));
	MUST(info.addr == buf && info.len == 100 && info.remote_key);
	pinion_device_deregister(registration);
	MUST(!pinion_device_query(context, &device));
	MUST(device.kind && *device.kind && device.max_registrations);
	MUST(!pinion_cache_flush(context));
	free(buf);
}

static void use_heap(void)
{
	struct pinion_heap_attr attr = { .size = sizeof(attr),
					 .slab_bytes = 1 << 20,
					 .flags = PINION_HEAP_NORMAL_PAGES,
					 .return_us = PINION_HEAP_KEEP };
	struct pinion_heap_region region = { .size = sizeof(region) };
	struct pinion_heap_stats stats = { .size = sizeof(stats) };
	struct pinion_heap *heap;
	char *block;

	MUST(!pinion_heap_open(context, &attr, &heap));
	block = pinion_heap_malloc(heap, 1000);
	MUST(block && pinion_heap_contains(heap, block));
	MUST(!pinion_heap_find(heap, block, &region));
	MUST((char *)region.addr <= block && region.local_key);
	MUST(!pinion_heap_query(heap, &stats));
	MUST(stats.slabs == 1);
	pinion_heap_free(heap, block);
	pinion_heap_close(heap);
}

/* --- messages ---------------------------------------------------------------
 */

static void exchange(size_t len)
{
	char *buf = calloc(2, len + 1);
	struct pinion_message out = { .size = sizeof(out),
				      .flags = PINION_MESSAGE_DATA,
				      .buf = buf,
				      .len = len,
				      .tag = 7,
				      .peer = self,
				      .data = 42 };
	struct pinion_message in = { .size = sizeof(in),
				     .buf = buf + len + 1,
				     .len = len,
				     .tag = 7,
				     .user = buf };
	struct pinion_completion done[4];
	struct pinion_request *request;
	int n;

	MUST(buf);
	memset(buf, 'x', len);
	MUST(!pinion_recv(ep, &in, NULL));
	MUST(!pinion_send(ep, &out, &request));
	while (!(n = pinion_poll(ep, done, sizeof(*done), 4)))
		;
	MUST(n == 1 && !done[0].status && done[0].user == buf);
	MUST(done[0].flags == PINION_COMPLETION_DATA && done[0].data == 42);
	MUST(done[0].len == len && done[0].tag == 7 && done[0].peer == self);
	MUST(!pinion_wait(ep, request, PINION_FOREVER, NULL));
	MUST(!memcmp(buf, buf + len + 1, len));
	free(buf);
}

/* Two messages into one buffer, and one that is set aside. */
static void receive_otherwise(void)
{
	struct pinion_multi_recv multi = { .size = sizeof(multi),
					   .min_bytes = 8 };
	char room[64], word[8] = "a word";
	struct pinion_message out = { .size = sizeof(out),
				      .buf = word,
				      .len = sizeof(word),
				      .peer = self };
	struct pinion_message in = { .size = sizeof(in),
				     .buf = room,
				     .len = 16,
				     .user = room,
				     .multi_recv = &multi };
	struct pinion_unexpected *unexpected;
	struct pinion_completion c;
	struct pinion_request *request;
	unsigned ends = 0;

	MUST(!pinion_recv(ep, &in, NULL));
	for (int i = 0; i < 3; i++) {
		pinion_peer_prefetch(self, sizeof(word));
		if (!pinion_inject(ep, &out))
			continue;
		MUST(!pinion_send(ep, &out, &request));
		MUST(!pinion_wait(ep, request, PINION_FOREVER, NULL));
	}
	while (ends < 2) {
		bool last = ends == 1;

		if (pinion_poll(ep, &c, sizeof(c), 1) != 1)
			continue;
		MUST(!c.status && c.len == 8);
		MUST(last == !(c.flags & PINION_COMPLETION_MORE));
		ends++;
	}
	in.multi_recv = NULL;
	while (pinion_probe(ep, &in, &c, &unexpected))
		;
	MUST(c.message_len == 8);
	MUST(!pinion_recv_unexpected(ep, unexpected, &in, &request));
	MUST(!pinion_wait(ep, request, PINION_FOREVER, &c));
	MUST(!strcmp(room, word));
	MUST(!pinion_recv(ep, &in, &request));
	MUST(pinion_wait(ep, request, 1000, NULL) == -ETIMEDOUT);
	MUST(!pinion_cancel(ep, request));
	MUST(pinion_wait(ep, request, PINION_FOREVER, NULL) == -ECANCELED);
}

/* --- one-sided ---------------------------------------------------------------
 */

static void put_and_get(void)
{
	static _Alignas(8) char memory[4096], buf[64] = "put", back[64];
	struct pinion_exposure_key key;
	struct pinion_exposure *exposure;
	struct pinion_remote *remote;
	struct pinion_request *request;
	struct pinion_move move = { .size = sizeof(move),
				    .offset = 8,
				    .buf = buf,
				    .len = sizeof(buf) };
	uint64_t before = 1;
	struct pinion_atomic add = { .size = sizeof(add),
				     .operand = 5,
				     .result = &before };

	MUST(!pinion_exposure_open(ep, memory, sizeof(memory),
				   PINION_ACCESS_REMOTE_READ |
					   PINION_ACCESS_REMOTE_WRITE |
					   PINION_ACCESS_REMOTE_ATOMIC,
				   &exposure));
	MUST(!pinion_exposure_key(exposure, &key));
	MUST(!pinion_remote_open(ep, self, &key, &remote));
	move.remote = add.remote = remote;
	MUST(!pinion_put(ep, &move, &request));
	MUST(!pinion_wait(ep, request, PINION_FOREVER, NULL));
	MUST(!pinion_peer_fence(ep, self));
	move.buf = back;
	MUST(!pinion_get(ep, &move, &request));
	MUST(!pinion_wait(ep, request, PINION_FOREVER, NULL));
	MUST(!strcmp(back, "put"));
	MUST(!pinion_atomic_fetch_add(ep, &add, &request));
	MUST(!pinion_wait(ep, request, PINION_FOREVER, NULL));
	MUST(before == 0 && memory[0] == 5);
	MUST(!pinion_peer_flush(ep, self, NULL, &request));
	MUST(!pinion_wait(ep, request, PINION_FOREVER, NULL));
	pinion_remote_close(remote);
	pinion_exposure_close(exposure);
}

/* --- questions ---------------------------------------------------------------
 */

static void ask(void)
{
	struct pinion_config_option option = { .size = sizeof(option) };
	struct pinion_endpoint_stats stats = { .size = sizeof(stats) };
	struct pinion_helper_stats helper = { .size = sizeof(helper) };
	struct pinion_explain_attr attr = { .size = sizeof(attr),
					    .len = 1 << 20 };
	struct pinion_explanation e = { .size = sizeof(e) };
	unsigned n = 0, chosen = 0;

	while (!pinion_config_query(context, n, &option))
		n++;
	MUST(n > 20 && option.name && option.help && *option.source);
	MUST(!pinion_endpoint_query(ep, &stats));
	MUST(stats.received >= 4 && stats.sent_eager);
	MUST(!pinion_helper_query(context, &helper) && !helper.calls);
	for (n = 0; !pinion_endpoint_explain(ep, &attr, n, &e); n++)
		chosen += e.chosen;
	MUST(n > 1 && chosen == 1);
}

/* --- a registrar
 * -------------------------------------------------------------- */

static unsigned nregistered;

static int my_register(void *arg, struct pinion_registrar_range *const *ranges,
		       unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		ranges[i]->handle = arg;
		ranges[i]->local_key = 11;
		ranges[i]->remote_key = 12;
	}
	nregistered += n;
	return 0;
}

static int my_deregister(void *arg,
			 struct pinion_registrar_range *const *ranges,
			 unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		MUST(ranges[i]->handle == arg);
	nregistered -= n;
	return 0;
}

static void use_registrar(void)
{
	struct pinion_registrar registrar = { .size = sizeof(registrar),
					      .arg = &registrar,
					      .register_ranges = my_register,
					      .deregister_ranges =
						      my_deregister };
	struct pinion_attr attr = { .size = sizeof(attr),
				    .registrar = &registrar };
	struct pinion_context *own;
	static char buf[100];
	struct pinion_pin pin;

	MUST(!pinion_open(&attr, &own));
	MUST(!pinion_pin(own, buf, sizeof(buf), PINION_ACCESS_REMOTE_WRITE,
			 &pin));
	MUST(pin.handle == &registrar && pin.local_key == 11 &&
	     pin.remote_key == 12 && pin.nsegments == 1 && nregistered == 1);
	pinion_unpin(own, &pin);
	pinion_close(own);
	MUST(!nregistered);
}

int main(void)
{
	open_all();
	pin_and_register();
	use_heap();
	exchange(10);
	exchange(LEN);
	receive_otherwise();
	put_and_get();
	ask();
	use_registrar();
	pinion_endpoint_close(ep);
	pinion_close(context);
	printf("built against 0.1.0, run with %s\n", pinion_version());
	return EXIT_SUCCESS;
}
