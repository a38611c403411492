/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/pair.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/range.h"
#include "context.h"
#include "device/sim/sim.h"
#include "tools/pinion/command.h"
#include "tools/pinion/system_limits.h"

static const struct pn_pages_policy present = { .huge = PN_PAGES_NORMAL,
						.numa_node = -1,
						.populate = true };

static const unsigned exposed =
	PINION_ACCESS_REMOTE_READ | PINION_ACCESS_REMOTE_WRITE;

/* First message of the target. */
struct hello {
	int status;
	struct pn_address address;
	uint64_t addr, rkey;
	size_t bytes;
};

/* --- patterns ------------------------------------------------------------ */

/* splitmix64: every word of the pattern is a hash of seed and offset, so that
 * bytes at a wrong offset are found. */
static uint64_t pattern_word(uint64_t seed, uint64_t index)
{
	uint64_t x = seed + (index + 1) * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

void pn_pattern_fill(void *memory, size_t len, uint64_t seed)
{
	char *to = memory;

	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = pattern_word(seed, i / 8);

		memcpy(to + i, &word, len - i < 8 ? len - i : 8);
	}
}

size_t pn_pattern_check(const void *memory, size_t len, uint64_t seed)
{
	const char *from = memory;

	for (size_t i = 0; i < len; i += 8) {
		uint64_t word = pattern_word(seed, i / 8);
		size_t n = len - i < 8 ? len - i : 8;
		size_t same = 0;

		if (!memcmp(from + i, &word, n))
			continue;
		while (from[i + same] == ((const char *)&word)[same])
			same++;
		return i + same;
	}
	return len;
}

/* --- memory at either end ------------------------------------------------ */

void pn_pair_pinned(struct pn_device *device, struct pn_pair_answer *answer)
{
	struct pn_pinned pinned;

	pn_device_pinned(device, &pinned);
	answer->accounted =
		pinned.live_bytes + pinned.deferred_bytes + pinned.device_bytes;
	answer->vmpin = pn_proc_field("/proc/self/status", "VmPin", 0);
}

/* The device is measured outside any budget. */
static int try_map(struct pn_device *device, size_t bytes, unsigned access,
		   struct pn_mr *mr)
{
	struct pn_account *account = device->account;
	struct pn_mr *list = mr;
	void *memory;
	int ret = pn_pages_map(bytes, &present, &memory);

	if (ret)
		return ret;
	*mr = (struct pn_mr){ .addr = memory, .len = bytes, .access = access };
	device->account = NULL;
	ret = pn_device_register(device, &list, 1);
	device->account = account;
	if (ret)
		pn_pages_unmap(memory, bytes, &present);
	return ret;
}

int pn_pair_map(struct pn_device *device, size_t bytes, unsigned access,
		struct pn_mr *mr)
{
	int ret = -ENOMEM;

	bytes = pn_range_pages(0, bytes, PN_PAGE_BYTES).len;
	/* Both ends may share one limit: use at most a quarter of it. */
	while (bytes > PN_PAGE_BYTES &&
	       (bytes > device->limits.max_mr_bytes ||
		bytes > device->limits.max_pinned_bytes / 4))
		bytes /= 2;
	for (; ret == -ENOMEM && bytes >= PN_PAGE_BYTES; bytes /= 2)
		ret = try_map(device, bytes, access, mr);
	return ret;
}

void pn_pair_unmap(struct pn_device *device, struct pn_mr *mr)
{
	pn_device_deregister(device, &mr, 1);
	pn_pages_unmap(mr->addr, mr->len, &present);
}

/* --- the target ---------------------------------------------------------- */

static void do_job(struct pn_device *device, char *memory,
		   const struct pn_pair_ask *ask, struct pn_pair_answer *answer)
{
	*answer = (struct pn_pair_answer){ 0 };
	switch (ask->job) {
	case PN_PAIR_FILL:
		pn_pattern_fill(memory + ask->offset, ask->len, ask->seed);
		break;
	case PN_PAIR_CHECK:
		answer->wrong = pn_pattern_check(memory + ask->offset, ask->len,
						 ask->seed);
		break;
	case PN_PAIR_PINNED:
		pn_pair_pinned(device, answer);
		break;
	}
}

/* Waits for a request and lets the device accept peers meanwhile. False: the
 * initiator has ended. */
static bool recv_ask(struct pn_device *device, int control,
		     struct pn_pair_ask *ask)
{
	struct pollfd fd = { .fd = control, .events = POLLIN };
	struct pn_completion c;

	do {
		while (pn_device_poll(device, &c, 1) == 1)
			if (c.kind == PN_COMPLETION_RECV)
				pn_device_return_buffer(device, &c);
	} while (poll(&fd, 1, 1) == 0);
	return recv(control, ask, sizeof(*ask), 0) == sizeof(*ask);
}

static void serve(struct pn_device *device, int control, char *memory)
{
	struct pn_pair_answer answer;
	struct pn_pair_ask ask;

	while (recv_ask(device, control, &ask)) {
		do_job(device, memory, &ask, &answer);
		if (send(control, &answer, sizeof(answer), MSG_NOSIGNAL) < 0)
			return;
	}
}

static void make_hello(struct pn_device *device, const struct pn_mr *mr,
		       int status, struct hello *hello)
{
	*hello = (struct hello){ .status = status };
	if (status)
		return;
	pn_device_address(device, &hello->address);
	hello->addr = (uintptr_t)mr->addr;
	hello->rkey = mr->rkey;
	hello->bytes = mr->len;
}

static int target(const struct pn_spec *spec, size_t bytes, int control)
{
	struct pinion_context *context = NULL;
	struct hello hello;
	struct pn_mr mr;
	int ret = pn_spec_open(spec, &context);

	if (!ret)
		ret = pn_pair_map(context->device, bytes, exposed, &mr);
	make_hello(context ? context->device : NULL, &mr, ret, &hello);
	if (send(control, &hello, sizeof(hello), MSG_NOSIGNAL) < 0 || ret)
		goto close_context;
	serve(context->device, control, mr.addr);
	pn_pair_unmap(context->device, &mr);
close_context:
	pinion_close(context);
	return ret;
}

/* --- the initiator, in two processes -------------------------------------- */

static int attach_target(struct pn_pair *pair, const struct hello *hello)
{
	pair->remote_addr = hello->addr;
	pair->rkey = hello->rkey;
	pair->bytes = hello->bytes;
	return pn_device_attach(pair->device, &hello->address, &pair->peer);
}

static int initiate(const struct pn_spec *spec, struct pn_pair *pair,
		    pn_pair_fn *fn, void *arg)
{
	struct pinion_context *context;
	struct hello hello;
	int ret;

	if (recv(pair->control, &hello, sizeof(hello), 0) != sizeof(hello))
		return -ECONNRESET;
	if (hello.status)
		return hello.status;
	ret = pn_spec_open(spec, &context);
	if (ret)
		return ret;
	pair->device = context->device;
	ret = attach_target(pair, &hello);
	if (!ret)
		ret = fn(pair, arg);
	pinion_close(context);
	return ret;
}

static int run_processes(const struct pn_spec *spec, size_t bytes,
			 pn_pair_fn *fn, void *arg)
{
	struct pn_pair pair = { 0 };
	int ends[2], ret, status;

	/* Flush, so that parent and child do not both write the buffered
	 * output. */
	fflush(NULL);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return -errno;
	pair.pid = fork();
	if (pair.pid < 0) {
		ret = -errno;
		close(ends[0]);
		close(ends[1]);
		return ret;
	}
	if (!pair.pid) {
		close(ends[0]);
		_exit(target(spec, bytes, ends[1]) ? 1 : 0);
	}
	close(ends[1]);
	pair.control = ends[0];
	ret = initiate(spec, &pair, fn, arg);
	close(ends[0]); /* ends the target */
	if (waitpid(pair.pid, &status, 0) == pair.pid)
		pn_print_signal("the other process", status);
	return ret;
}

/* --- both ends in one world ---------------------------------------------- */

struct world {
	struct pn_sim *sim;
	struct pn_pair pair;
	size_t bytes;
	struct pn_mr mr;
	struct hello hello;
	bool ready;
	pn_pair_fn *fn;
	void *arg;
	int ret;
};

static void sim_target(void *arg)
{
	struct world *w = arg;
	struct pn_device *device = pn_sim_device(w->sim, 1);
	int ret = pn_pair_map(device, w->bytes, exposed, &w->mr);

	make_hello(device, &w->mr, ret, &w->hello);
	w->ready = true;
}

static void sim_initiator(void *arg)
{
	struct world *w = arg;

	while (!w->ready)
		pn_sim_sleep(w->sim, PN_NS_PER_US);
	w->ret = w->hello.status;
	if (w->ret)
		return;
	w->pair.device = pn_sim_device(w->sim, 0);
	w->pair.target = pn_sim_device(w->sim, 1);
	w->pair.memory = w->mr.addr;
	w->ret = attach_target(&w->pair, &w->hello);
	if (!w->ret)
		w->ret = w->fn(&w->pair, w->arg);
}

static int run_tasks(struct world *w)
{
	int ret = pn_sim_spawn(w->sim, 1, sim_target, w);

	if (!ret)
		ret = pn_sim_spawn(w->sim, 0, sim_initiator, w);
	if (!ret)
		ret = pn_sim_run(w->sim);
	if (w->ready && !w->hello.status)
		pn_pair_unmap(pn_sim_device(w->sim, 1), &w->mr);
	return ret ? ret : w->ret;
}

int pn_pair_world(const char *params, struct pn_sim **out)
{
	char text[PN_OPTION_TEXT_BYTES + 16];
	int ret;

	snprintf(text, sizeof(text), "%s%s%s", params, *params ? "," : "",
		 "nodes=2");
	ret = pn_sim_open(strstr(params, "nodes=") ? params : text, NULL, out);
	if (ret || pn_sim_nnodes(*out) >= 2)
		return ret;
	pn_error("sim:%s: needs two nodes; use nodes=2", params);
	pn_sim_close(*out);
	return -EINVAL;
}

static int run_world(const char *params, size_t bytes, pn_pair_fn *fn,
		     void *arg)
{
	struct world w = { .bytes = bytes, .fn = fn, .arg = arg };
	int ret = pn_pair_world(params, &w.sim);

	if (ret)
		return ret;
	ret = run_tasks(&w);
	pn_sim_close(w.sim);
	return ret;
}

/* ------------------------------------------------------------------------- */

const char *pn_pair_sim(const struct pn_spec *spec)
{
	size_t kind = strcspn(spec->text, ":");

	if (kind != 3 || strncmp(spec->text, "sim", 3))
		return NULL;
	return spec->text + kind + (spec->text[kind] == ':');
}

int pn_pair_run(const struct pn_spec *spec, size_t bytes, pn_pair_fn *fn,
		void *arg)
{
	const char *params = pn_pair_sim(spec);

	return params ? run_world(params, bytes, fn, arg)
		      : run_processes(spec, bytes, fn, arg);
}

int pn_pair_ask(struct pn_pair *pair, const struct pn_pair_ask *ask,
		struct pn_pair_answer *answer)
{
	if (pair->memory) {
		do_job(pair->target, pair->memory, ask, answer);
		return 0;
	}
	if (send(pair->control, ask, sizeof(*ask), MSG_NOSIGNAL) < 0 ||
	    recv(pair->control, answer, sizeof(*answer), 0) != sizeof(*answer))
		return -ECONNRESET;
	return 0;
}
