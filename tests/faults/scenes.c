/* SPDX-License-Identifier: BSD-2-Clause */
#include "scenes.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "base/compiler.h"

#define PAGE ((size_t)4096)
#define BIG  ((size_t)1 << 20)

/* A public call; the first that fails is remembered. */
#define TRY(scene, call) attempt(scene, #call, call)

/* No malloc() in here: the injector would hit it. */
static char space[4 * BIG] __attribute__((aligned(4096)));

static int attempt(struct scene *scene, const char *call, int ret)
{
	if (ret && !scene->failed[0])
		snprintf(scene->failed, sizeof(scene->failed), "%.*s",
			 (int)strcspn(call, "("), call);
	return ret;
}

static void fill(char *buf, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (char)(seed + i * 7 + (i >> 8));
}

static int compare(const char *buf, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != (char)(seed + i * 7 + (i >> 8)))
			return -EBADMSG;
	return 0;
}

/* Opens a context, has it used, closes it. */
static int in_context(struct scene *scene, struct pinion_attr *attr,
		      int (*use)(struct scene *, struct pinion_context *))
{
	const char *const options[] = { "log=none", scene->option, NULL };
	struct pinion_context *context;
	int ret;

	attr->size = sizeof(*attr);
	attr->options = options;
	ret = TRY(scene, pinion_open(attr, &context));
	if (ret)
		return ret;
	ret = use(scene, context);
	pinion_close(context);
	return ret;
}

/* --- pins ----------------------------------------------------------------- */

static int pin_once(struct scene *scene, struct pinion_context *context,
		    char *addr, size_t len)
{
	struct pinion_pin pin;
	int ret = TRY(scene, pinion_pin(context, addr, len, 0, &pin));

	if (!ret)
		pinion_unpin(context, &pin);
	return ret;
}

static int pin_list(struct scene *scene, struct pinion_context *context)
{
	struct pinion_pin pins[3];
	struct iovec buffers[3] = { { space + BIG, PAGE },
				    { space + BIG + 8 * PAGE, 3 * PAGE },
				    { space + BIG + 32 * PAGE, 1 } };
	int ret = TRY(scene, pinion_pin_list(context, buffers, 3, 0, pins));

	for (int i = 0; !ret && i < 3; i++)
		pinion_unpin(context, &pins[i]);
	return ret;
}

static int pin_asynchronously(struct scene *scene,
			      struct pinion_context *context)
{
	struct pinion_pin pin;
	int ret = pinion_pin_start(context, space + 2 * BIG, BIG, 0, &pin);

	if (ret == -EINPROGRESS)
		ret = TRY(scene, pinion_pin_wait(context, &pin));
	else
		ret = attempt(scene, "pinion_pin_start", ret);
	if (!ret)
		pinion_unpin(context, &pin);
	return ret;
}

/* Mapped, pinned, unmapped: the release is noticed. */
static int pin_mapped(struct scene *scene, struct pinion_context *context)
{
	char *p = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int ret;

	if (p == MAP_FAILED)
		return attempt(scene, "mmap", -errno);
	ret = pin_once(scene, context, p, 16 * PAGE);
	munmap(p, 16 * PAGE);
	return ret;
}

static int use_cache(struct scene *scene, struct pinion_context *context)
{
	int ret = 0;

	for (size_t i = 0; !ret && i < 8; i++)
		ret = pin_once(scene, context, space + 5 * i * PAGE, 2 * PAGE);
	if (!ret)
		ret = pin_list(scene, context);
	if (!ret)
		ret = pin_asynchronously(scene, context);
	for (int i = 0; !ret && i < 3; i++)
		ret = pin_mapped(scene, context);
	if (!ret)
		ret = TRY(scene, pinion_cache_flush(context));
	return ret;
}

static int play_cache(struct scene *scene)
{
	return in_context(scene, &(struct pinion_attr){ 0 }, use_cache);
}

bool (*scene_registrar_refuses)(void);

/* Ranges that a registrar holds. */
static _Atomic long nregistered;

static int register_ranges(void *arg,
			   struct pinion_registrar_range *const *ranges,
			   unsigned n)
{
	(void)arg;
	if (scene_registrar_refuses && scene_registrar_refuses())
		return -ENOMEM;
	for (unsigned i = 0; i < n; i++)
		ranges[i]->handle = ranges[i]->addr;
	nregistered += n;
	return 0;
}

static int deregister_ranges(void *arg,
			     struct pinion_registrar_range *const *ranges,
			     unsigned n)
{
	(void)arg;
	for (unsigned i = 0; i < n; i++)
		if (ranges[i]->handle != ranges[i]->addr)
			return -EINVAL;
	nregistered -= n;
	return 0;
}

/* -EBADMSG: not every range was deregistered, or one was that was not there. */
static int over_registrar(struct scene *scene,
			  int (*use)(struct scene *, struct pinion_context *))
{
	struct pinion_registrar registrar = {
		.size = sizeof(registrar),
		.register_ranges = register_ranges,
		.deregister_ranges = deregister_ranges,
	};
	int ret;

	nregistered = 0;
	ret = in_context(scene,
			 &(struct pinion_attr){ .registrar = &registrar }, use);
	return nregistered ? attempt(scene, "registrar", -EBADMSG) : ret;
}

static int play_registrar(struct scene *scene)
{
	return over_registrar(scene, use_cache);
}

static int play_trace(struct scene *scene)
{
	char path[] = "/tmp/pinion-fault-XXXXXX", option[64];
	int fd = mkstemp(path), ret;

	if (fd < 0)
		return attempt(scene, "mkstemp", -errno);
	close(fd);
	snprintf(option, sizeof(option), "trace=%s", path);
	scene->option = option;
	ret = play_cache(scene);
	scene->option = NULL;
	unlink(path);
	return ret;
}

/* --- heap ----------------------------------------------------------------- */

static int use_blocks(struct scene *scene, struct pinion_heap *heap)
{
	static const size_t sizes[] = { 16, 700, 5000, 300000, 3 << 20 };
	char *block = NULL, *longer;

	for (unsigned i = 0; i < PN_ARRAY_LEN(sizes); i++) {
		longer = pinion_heap_realloc(heap, block, sizes[i]);
		if (!longer) {
			attempt(scene, "pinion_heap_realloc", -errno);
			pinion_heap_free(heap, block);
			return -errno;
		}
		block = longer;
		if (i && compare(block, sizes[i - 1], 3))
			return -EBADMSG;
		fill(block, sizes[i], 3);
	}
	pinion_heap_free(heap, block);
	return TRY(scene, pinion_heap_trim(heap));
}

static int use_heap(struct scene *scene, struct pinion_context *context)
{
	struct pinion_heap *heap;
	int ret = TRY(scene, pinion_heap_open(context, NULL, &heap));

	if (ret)
		return ret;
	ret = use_blocks(scene, heap);
	pinion_heap_close(heap);
	return ret;
}

static int play_heap(struct scene *scene)
{
	return in_context(scene, &(struct pinion_attr){ 0 }, use_heap);
}

static int play_registrar_heap(struct scene *scene)
{
	return over_registrar(scene, use_heap);
}

/* --- two processes -------------------------------------------------------- */

struct end {
	struct scene *scene;
	struct pinion_endpoint *ep;
	struct pinion_peer *peer;
};

/* What each process tells the other; a length of 0: it has failed. */
struct greeting {
	struct pinion_address address;
	struct pinion_exposure_key key;
};

static int tell(struct scene *scene, const struct greeting *greeting)
{
	return write(scene->socket, greeting, sizeof(*greeting)) ==
			       sizeof(*greeting)
		       ? 0
		       : -EPIPE;
}

static int hear(struct scene *scene, struct greeting *greeting)
{
	char *to = (char *)greeting;
	size_t have = 0;

	while (have < sizeof(*greeting)) {
		ssize_t n = read(scene->socket, to + have,
				 sizeof(*greeting) - have);

		if (n <= 0)
			return -EPIPE;
		have += (size_t)n;
	}
	return 0;
}

static int finish(struct end *end, struct pinion_request *request,
		  const char *call, int ret)
{
	if (!ret)
		ret = pinion_wait(end->ep, request, PINION_FOREVER, NULL);
	return attempt(end->scene, call, ret);
}

static int message(struct end *end, size_t len, uint64_t tag, bool send)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = space,
				    .len = len,
				    .tag = tag,
				    .peer = end->peer };
	struct pinion_request *request = NULL;
	int ret = send ? pinion_send(end->ep, &m, &request)
		       : pinion_recv(end->ep, &m, &request);

	return finish(end, request, send ? "pinion_send" : "pinion_recv", ret);
}

static int send_message(struct end *end, size_t len, uint64_t tag)
{
	return message(end, len, tag, true);
}

static int receive_message(struct end *end, size_t len, uint64_t tag)
{
	return message(end, len, tag, false);
}

static const size_t lengths[] = { 8, 3000, 40000, BIG, 100, 3 * BIG };

/* Both send first. An endpoint learns of the death of a peer that it is
 * connected to, and waiting for messages does not connect it. */
static int say_hello(struct end *end)
{
	int ret = send_message(end, 1, 100);

	return ret ? ret : receive_message(end, 1, 100);
}

static int ping(struct end *end)
{
	int ret = say_hello(end);

	for (unsigned i = 0; !ret && i < PN_ARRAY_LEN(lengths); i++) {
		fill(space, lengths[i], i);
		ret = send_message(end, lengths[i], i);
		memset(space, 0, lengths[i]);
		if (!ret)
			ret = receive_message(end, lengths[i], i);
		if (!ret)
			ret = compare(space, lengths[i], i);
	}
	return ret;
}

static int echo(struct end *end)
{
	int ret = say_hello(end);

	for (unsigned i = 0; !ret && i < PN_ARRAY_LEN(lengths); i++) {
		ret = receive_message(end, lengths[i], i);
		if (!ret)
			ret = compare(space, lengths[i], i);
		if (!ret)
			ret = send_message(end, lengths[i], i);
	}
	return ret;
}

/* One-sided operations on memory of the partner. */
static int move(struct end *end, struct pinion_remote *remote, size_t len,
		bool put)
{
	struct pinion_move m = {
		.size = sizeof(m), .remote = remote, .buf = space, .len = len
	};
	struct pinion_request *request = NULL;
	int ret = put ? pinion_put(end->ep, &m, &request)
		      : pinion_get(end->ep, &m, &request);

	return finish(end, request, put ? "pinion_put" : "pinion_get", ret);
}

static int add_one(struct end *end, struct pinion_remote *remote)
{
	uint64_t old;
	struct pinion_atomic a = { .size = sizeof(a),
				   .remote = remote,
				   .offset = 3 * BIG,
				   .operand = 1,
				   .result = &old };
	struct pinion_request *request = NULL;
	int ret = pinion_atomic_fetch_add(end->ep, &a, &request);

	return finish(end, request, "pinion_atomic_fetch_add", ret);
}

static int write_when_granted(struct end *end)
{
	struct pinion_message m = { .size = sizeof(m),
				    .buf = space,
				    .len = 100000,
				    .tag = 5,
				    .peer = end->peer };
	struct pinion_request *request = NULL;
	int ret;

	fill(space, m.len, 5);
	ret = pinion_put_when(end->ep, &m, &request);
	return finish(end, request, "pinion_put_when", ret);
}

static int use_remote(struct end *end, struct pinion_remote *remote)
{
	int ret = 0;

	for (unsigned i = 0; !ret && i < PN_ARRAY_LEN(lengths); i++) {
		fill(space, lengths[i], i);
		ret = move(end, remote, lengths[i], true);
		memset(space, 0, lengths[i]);
		if (!ret)
			ret = move(end, remote, lengths[i], false);
		if (!ret)
			ret = compare(space, lengths[i], i);
	}
	if (!ret)
		ret = add_one(end, remote);
	if (!ret)
		ret = write_when_granted(end);
	return ret;
}

static int move_all(struct end *end, const struct pinion_exposure_key *key)
{
	struct pinion_remote *remote;
	int ret = TRY(end->scene,
		      pinion_remote_open(end->ep, end->peer, key, &remote));

	if (ret)
		return ret;
	ret = use_remote(end, remote);
	pinion_remote_close(remote);
	return ret;
}

/* The owner: grants once; the rest happens without it. */
static int own(struct end *end)
{
	static char granted[100000];
	struct pinion_message m = { .size = sizeof(m),
				    .buf = granted,
				    .len = sizeof(granted),
				    .tag = 5,
				    .peer = end->peer };
	struct pinion_request *request = NULL;
	int ret = pinion_grant(end->ep, &m, &request);

	ret = finish(end, request, "pinion_grant", ret);
	return ret ? ret : compare(granted, sizeof(granted), 5);
}

static int expose(struct end *end, struct greeting *mine,
		  struct pinion_exposure **exposure)
{
	unsigned access = PINION_ACCESS_REMOTE_READ |
			  PINION_ACCESS_REMOTE_WRITE |
			  PINION_ACCESS_REMOTE_ATOMIC;
	int ret = TRY(end->scene,
		      pinion_exposure_open(end->ep, space, sizeof(space),
					   access, exposure));

	if (!ret)
		ret = TRY(end->scene,
			  pinion_exposure_key(*exposure, &mine->key));
	return ret;
}

/* The partner makes progress until the other process needs it no longer. */
static int part(struct end *end)
{
	static struct greeting done;
	struct pollfd news = { .fd = end->scene->socket, .events = POLLIN };

	if (!end->scene->is_partner)
		return tell(end->scene, &done);
	while (!poll(&news, 1, 1))
		pinion_poll(end->ep, NULL, 0, 0);
	return hear(end->scene, &done);
}

static int use_peer(struct end *end, struct greeting *theirs,
		    int (*use)(struct end *, struct greeting *))
{
	int ret = TRY(end->scene,
		      pinion_peer_add(end->ep, &theirs->address, &end->peer));

	if (!ret)
		ret = use(end, theirs);
	/* The other process may wait for what this one has not done: the end of
	 * the endpoint ends its requests. */
	end->scene->parts_later = ret && end->scene->is_partner;
	if (end->scene->parts_later)
		return ret;
	return part(end) ? -EPIPE : ret;
}

/* Both processes tell their addresses; a length of 0 is none. */
static int greet(struct scene *scene, const struct greeting *mine,
		 struct greeting *theirs)
{
	scene->greeted = true;
	if (tell(scene, mine) || hear(scene, theirs))
		return -EPIPE;
	return theirs->address.len ? 0 : -ECONNABORTED;
}

static int use_ping(struct end *end, struct greeting *theirs)
{
	(void)theirs;
	return ping(end);
}

static int use_echo(struct end *end, struct greeting *theirs)
{
	(void)theirs;
	return echo(end);
}

static int use_move_all(struct end *end, struct greeting *theirs)
{
	return move_all(end, &theirs->key);
}

static int use_own(struct end *end, struct greeting *theirs)
{
	(void)theirs;
	return own(end);
}

/* Only one-sided operations need memory that is exposed. */
static int meet(struct end *end, int (*use)(struct end *, struct greeting *))
{
	static struct greeting mine, theirs;
	struct scene *scene = end->scene;
	struct pinion_exposure *exposure = NULL;
	int ret, other;

	memset(&mine, 0, sizeof(mine));
	ret = TRY(scene, pinion_endpoint_address(end->ep, &mine.address));
	if (!ret && (use == use_move_all || use == use_own))
		ret = expose(end, &mine, &exposure);
	if (ret)
		mine.address.len = 0;
	other = greet(scene, &mine, &theirs);
	if (!ret)
		ret = other ? other : use_peer(end, &theirs, use);
	pinion_exposure_close(exposure);
	return ret;
}

/* Without an endpoint the other process is told that there is none. */
static int with_endpoint(struct scene *scene, struct pinion_context *context,
			 int (*use)(struct end *, struct greeting *))
{
	struct end end = { .scene = scene };
	int ret = TRY(scene, pinion_endpoint_open(context, NULL, &end.ep));

	if (ret)
		return ret;
	ret = meet(&end, use);
	pinion_endpoint_close(end.ep);
	return ret;
}

static int use_exchange(struct scene *scene, struct pinion_context *context)
{
	return with_endpoint(scene, context, use_ping);
}

static int use_echoing(struct scene *scene, struct pinion_context *context)
{
	return with_endpoint(scene, context, use_echo);
}

static int use_onesided(struct scene *scene, struct pinion_context *context)
{
	return with_endpoint(scene, context, use_move_all);
}

static int use_owning(struct scene *scene, struct pinion_context *context)
{
	return with_endpoint(scene, context, use_own);
}

static int play_exchange(struct scene *scene)
{
	return in_context(scene, &(struct pinion_attr){ 0 }, use_exchange);
}

static int partner_exchange(struct scene *scene)
{
	return in_context(scene, &(struct pinion_attr){ 0 }, use_echoing);
}

static int play_onesided(struct scene *scene)
{
	return in_context(scene, &(struct pinion_attr){ 0 }, use_onesided);
}

static int partner_onesided(struct scene *scene)
{
	return in_context(scene, &(struct pinion_attr){ 0 }, use_owning);
}

/* --- all of them ---------------------------------------------------------- */

/* name, help, option, play, partner */
#define SCENE(a, b, c, d, e)                                               \
	{                                                                  \
		.name = a, .help = b, .option = c, .play = d, .partner = e \
	}

struct scene scenes[] = {
	SCENE("cache", "pins of all kinds", NULL, play_cache, NULL),
	SCENE("registrar", "pins over functions of the caller", NULL,
	      play_registrar, NULL),
	SCENE("registrar-helper", "the same, with the helper", "helper=own",
	      play_registrar, NULL),
	SCENE("registrar-heap", "a heap over functions of the caller", NULL,
	      play_registrar_heap, NULL),
	SCENE("trace", "pins that are recorded", NULL, play_trace, NULL),
	SCENE("heap", "blocks of registered memory", NULL, play_heap, NULL),
	SCENE("exchange", "messages between two processes", NULL, play_exchange,
	      partner_exchange),
	SCENE("exchange-cached", "the same, protocol cached", "protocol=cached",
	      play_exchange, partner_exchange),
	SCENE("exchange-pipeline", "the same, protocol pipeline",
	      "protocol=pipeline", play_exchange, partner_exchange),
	SCENE("exchange-helper", "the same, with the helper", "helper=own",
	      play_exchange, partner_exchange),
	SCENE("exchange-progress", "the same, with the progress thread",
	      "progress=thread", play_exchange, partner_exchange),
	SCENE("onesided", "puts, gets, an atomic, a conditional write", NULL,
	      play_onesided, partner_onesided),
};

const unsigned nscenes = PN_ARRAY_LEN(scenes);

int scene_play(struct scene *scene)
{
	static struct greeting none, theirs;
	int ret;

	scene->failed[0] = '\0';
	scene->greeted = scene->parts_later = false;
	ret = scene->is_partner ? scene->partner(scene) : scene->play(scene);
	if (scene->parts_later && hear(scene, &theirs))
		return -EPIPE;
	if (scene->partner && !scene->greeted && !ret)
		return -EPROTO;
	if (scene->partner && !scene->greeted &&
	    greet(scene, &none, &theirs) == -EPIPE)
		return -EPIPE;
	return ret;
}

void scene_accompany(struct scene *scene)
{
	int ret;

	scene->is_partner = true;
	do {
		ret = scene_play(scene);
	} while (write(scene->socket, &ret, sizeof(ret)) == sizeof(ret) &&
		 ret != -EPIPE);
}

int scene_partner_result(struct scene *scene)
{
	int ret;

	if (!scene->partner)
		return 0;
	return read(scene->socket, &ret, sizeof(ret)) == sizeof(ret) ? ret
								     : -EPIPE;
}

struct scene *scene_find(const char *name)
{
	for (unsigned i = 0; i < nscenes; i++)
		if (!strcmp(scenes[i].name, name))
			return &scenes[i];
	fprintf(stderr, "no scene '%s'\n", name);
	exit(2);
}

pid_t scene_start_partner(struct scene *scene)
{
	int ends[2];
	pid_t pid;

	if (!scene->partner)
		return 0;
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends))
		abort();
	pid = fork();
	if (!pid) {
		close(ends[0]);
		scene->socket = ends[1];
		scene_accompany(scene);
		exit(EXIT_SUCCESS);
	}
	close(ends[1]);
	scene->socket = ends[0];
	return pid;
}

/* The partner ends when its socket is closed. */
int scene_end_partner(struct scene *scene, pid_t pid)
{
	int status = 0;

	if (!scene->partner)
		return 0;
	close(scene->socket);
	return waitpid(pid, &status, 0) == pid ? status : -1;
}
