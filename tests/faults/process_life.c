/* SPDX-License-Identifier: BSD-2-Clause */
#include "process_life.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "documented.h"
#include "vmpin.h"

void lives_fail(struct lives_board *board, const char *format, ...)
{
	va_list args;

	if (atomic_exchange(&board->failed, true))
		return;
	va_start(args, format);
	vsnprintf(board->why, sizeof(board->why), format, args);
	va_end(args);
}

void life_end(struct life *life, const char *file, int line, const char *fact)
{
	lives_fail(life->board, "node %u, process %u: %s:%d: %s", life->number,
		   life->process, file, line, fact);
	_exit(1);
}

/* What can happen where others are killed, stopped and closed, and where there
 * is little that may be pinned. */
static bool fits(int ret)
{
	static const int errnos[] = { ECONNRESET,   ECONNREFUSED, ECANCELED,
				      EHOSTUNREACH, EBUSY,	  EACCES,
				      ENOBUFS };

	for (unsigned i = 0; i < PN_ARRAY_LEN(errnos); i++)
		if (ret == -errnos[i])
			return true;
	return false;
}

bool life_succeeds(struct life *life, const char *call, int ret)
{
	if (!ret)
		return true;
	life->board->nrefused++;
	if (fits(ret) && errno_is_documented(call, ret))
		return false;
	lives_fail(life->board, "node %u, process %u: %s: %s", life->number,
		   life->process, call, strerror(-ret));
	_exit(1);
}

char *life_map(struct life *life, size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	EXPECT(life, p != MAP_FAILED);
	return p;
}

/* --- opening -------------------------------------------------------------- */

/* The random number says how the context differs from others. */
static bool open_context(struct life *life, unsigned random)
{
	static const char *const protocols[] = {
		"protocol=auto",     "protocol=auto",
		"protocol=auto",     "protocol=copy",
		"protocol=demand",   "protocol=cached",
		"protocol=pipeline", "protocol=caching-pipeline",
		"protocol=read",     "protocol=overlapped",
	};
	const struct lives_schedule *s = &life->board->schedule;
	char device[80], max_bytes[40];
	const char *options[] = {
		device,
		max_bytes,
		"log=none",
		protocols[random % PN_ARRAY_LEN(protocols)],
		random / 16 % 4 ? "progress=caller" : "progress=thread",
		random / 64 % 8 ? "helper=off" : "helper=own",
		NULL,
	};
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };

	snprintf(device, sizeof(device), "device=%s", s->device);
	snprintf(max_bytes, sizeof(max_bytes), "max_bytes=%zu", s->max_bytes);
	return life_succeeds(life, "pinion_open",
			     pinion_open(&attr, &life->context));
}

static void open_exposure(struct life *life, struct lives_card *card)
{
	life->exposed = life_map(life, EXPOSED_BYTES);
	if (!life_succeeds(
		    life, "pinion_exposure_open",
		    pinion_exposure_open(life->ep, life->exposed, EXPOSED_BYTES,
					 PINION_ACCESS_REMOTE_READ |
						 PINION_ACCESS_REMOTE_WRITE |
						 PINION_ACCESS_REMOTE_ATOMIC,
					 &life->exposure))) {
		munmap(life->exposed, EXPOSED_BYTES);
		return;
	}
	life->exposure_number =
		atomic_fetch_add(&life->node->nexposures, 1) + 1;
	card->exposure = life->exposure_number;
	EXPECT(life, !pinion_exposure_key(life->exposure, &card->key));
}

/* Others may read it meanwhile, and this process may be killed. */
static void show(struct life *life, const struct lives_card *card)
{
	struct lives_node *node = life->node;
	unsigned version = node->version | 1;

	atomic_store(&node->version, version);
	atomic_thread_fence(memory_order_seq_cst);
	node->card = *card;
	atomic_store(&node->version, version + 1);
}

static void open_endpoint(struct life *life, unsigned random)
{
	struct lives_card card = { .process = life->process };

	if (life->ep || (!life->context && !open_context(life, random)))
		return;
	if (!life_succeeds(life, "pinion_endpoint_open",
			   pinion_endpoint_open(life->context, NULL,
						&life->ep)))
		return;
	life->life = atomic_fetch_add(&life->node->nlives, 1);
	EXPECT(life, !pinion_endpoint_address(life->ep, &card.address));
	open_exposure(life, &card);
	show(life, &card);
}

/* --- closing -------------------------------------------------------------- */

/* What was put, and no put has begun since, stands there. */
static void check_writer(struct life *life, unsigned number,
			 struct lives_writer *writer)
{
	unsigned ended = writer->ended;
	size_t len = writer->len;
	bool right;

	right = !ended || len > LIVES_ROOM ||
		bytes_hold(life->exposed + number * LIVES_ROOM, len,
			   lives_key(number, ended));
	EXPECT(life, right || writer->begun != ended);
}

static void close_exposure(struct life *life)
{
	struct lives_exposure *exposure =
		&life->node->exposures[life->exposure_number];
	unsigned ended = exposure->adds_ended;
	uint64_t counted;

	if (!life->exposure_number)
		return;
	pinion_exposure_close(life->exposure);
	memcpy(&counted, life->exposed + COUNTER_OFFSET, sizeof(counted));
	EXPECT(life, ended <= counted);
	EXPECT(life, counted <= exposure->adds_begun);
	for (unsigned i = 0; i < LIVES_NODES; i++)
		check_writer(life, i, &exposure->writers[i]);
	relic_add(life, life->exposed, EXPOSED_BYTES);
	life->exposure_number = 0;
}

static void close_endpoint(struct life *life)
{
	if (!life->ep)
		return;
	requests_look(life);
	close_exposure(life);
	pinion_endpoint_close(life->ep);
	life->ep = NULL;
	requests_abandon(life);
}

static void close_context(struct life *life)
{
	close_endpoint(life);
	pinion_close(life->context);
	life->context = NULL;
}

static void check_relics(struct life *life)
{
	for (unsigned i = 0; i < life->nrelics; i++)
		for (size_t n = 0; n < life->relics[i].len; n++)
			EXPECT(life, life->relics[i].memory[n] == RELIC);
}

/* Kernel 6.1 uncharges pages about a second late. */
static bool is_unpinned(void)
{
	uint64_t end = pn_clock_ns() + 30 * PN_NS_PER_S;

	while (vmpin() && pn_clock_ns() < end)
		usleep(1000);
	return !vmpin();
}

/* Says which descriptors there are. */
static void check_descriptors(struct life *life)
{
	struct lives_board *board = life->board;
	char all[400] = "", path[64], link[64];
	unsigned left = test_descriptors();
	size_t at = 0;

	if (left > board->descriptors_left)
		board->descriptors_left = left;
	if (!board->descriptors || left <= board->descriptors)
		return;
	for (unsigned fd = 0; fd < 64 && at < sizeof(all); fd++) {
		ssize_t n;

		snprintf(path, sizeof(path), "/proc/self/fd/%u", fd);
		n = readlink(path, link, sizeof(link) - 1);
		if (n > 0)
			at += (size_t)snprintf(all + at, sizeof(all) - at,
					       " %u %.*s", fd, (int)n, link);
	}
	lives_fail(board, "node %u: %u descriptors, not %u:%s", life->number,
		   left, board->descriptors, all);
	_exit(1);
}

static void end(struct life *life)
{
	close_context(life);
	check_relics(life);
	EXPECT(life, is_unpinned());
	check_descriptors(life);
	exit(0);
}

/* --- steps ---------------------------------------------------------------- */

static void take(struct life *life, const struct lives_step *step)
{
	switch (step->act) {
	case ACT_OPEN:
		open_endpoint(life, step->options);
		break;
	case ACT_CLOSE:
		close_endpoint(life);
		break;
	case ACT_CLOSE_CONTEXT:
		close_context(life);
		break;
	case ACT_CANCEL:
		request_cancel_oldest(life);
		break;
	case ACT_WAIT:
		request_wait_oldest(life, step->options / 2);
		break;
	case ACT_COMPUTE:
		usleep(step->options / 2);
		break;
	case ACT_EXIT:
		exit(0);
	case ACT_CALM:
		requests_calm(life);
		break;
	case ACT_OUTLIVE:
		requests_outlive(life, step->other);
		break;
	case ACT_END:
		end(life);
		break;
	default:
		request_start(life, step);
	}
	atomic_fetch_add(&life->node->ndone, 1);
}

/* Sleeps until there is a step, or something to do on the endpoint. */
static void rest(const struct life *life)
{
	struct pollfd fds[2] = { { .fd = life->steps_fd, .events = POLLIN },
				 { .fd = -1, .events = POLLIN } };

	if (life->ep) {
		fds[1].fd = pinion_endpoint_fd(life->ep);
		if (fds[1].fd >= 0 && pinion_endpoint_arm(life->ep))
			return;
	}
	poll(fds, 2, life->ep && fds[1].fd < 0 ? 1 : 1000);
}

static bool next_step(const struct life *life, struct lives_step *step)
{
	struct pollfd news = { .fd = life->steps_fd, .events = POLLIN };

	return poll(&news, 1, 0) == 1 &&
	       read(life->steps_fd, step, sizeof(*step)) == sizeof(*step);
}

int lives_process(struct lives_board *board, unsigned number, int steps_fd)
{
	static struct life life;
	struct lives_step step;
	unsigned idle = 0;

	life.board = board;
	life.node = &board->nodes[number];
	life.number = number;
	life.process = life.node->nprocesses;
	life.steps_fd = steps_fd;
	for (;;) {
		if (next_step(&life, &step)) {
			take(&life, &step);
			idle = 0;
		}
		requests_look(&life);
		if (idle++ > 100)
			rest(&life);
	}
}
