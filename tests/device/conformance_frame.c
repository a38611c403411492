/* SPDX-License-Identifier: BSD-2-Clause */
#include "conformance.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define PATIENCE_NS (10 * PN_NS_PER_S)

void conf_fail(struct conf *conf, const char *what, const char *file, int line)
{
	struct conf_board *board = conf->board;

	if (atomic_exchange(&board->failed, true))
		return;
	snprintf(board->why, sizeof(board->why), "rank %u: %s:%d: %s",
		 conf->rank, file, line, what);
}

/* Lets the others run for a moment. */
static void pause_rank(struct conf *conf)
{
	if (conf->virtual_time)
		pn_device_charge(conf->device, PN_NS_PER_US);
	else
		usleep(20);
}

static bool rank_arrived(struct conf *conf, unsigned rank, uint64_t deadline)
{
	while (atomic_load(&conf->board->rank[rank].round) < conf->round) {
		if (atomic_load(&conf->board->failed))
			return false;
		if (pn_device_now(conf->device) > deadline) {
			conf_fail(conf, "another rank does not come", __FILE__,
				  __LINE__);
			return false;
		}
		pause_rank(conf);
	}
	return true;
}

bool conf_exchange(struct conf *conf, const void *mine, size_t len,
		   void *theirs)
{
	uint64_t deadline = pn_device_now(conf->device) + PATIENCE_NS;
	unsigned parity = ++conf->round & 1;

	if (len)
		memcpy(conf->board->rank[conf->rank].blob[parity], mine, len);
	atomic_store(&conf->board->rank[conf->rank].round, conf->round);
	for (unsigned r = 0; r < conf->nranks; r++) {
		if (!rank_arrived(conf, r, deadline))
			return false;
		if (len)
			memcpy((char *)theirs + r * len,
			       conf->board->rank[r].blob[parity], len);
	}
	return true;
}

bool conf_barrier(struct conf *conf)
{
	return conf_exchange(conf, NULL, 0, NULL);
}

/* One completion within the patience; false and a mark otherwise. */
static bool next_any(struct conf *conf, struct pn_completion *out)
{
	uint64_t deadline = pn_device_now(conf->device) + PATIENCE_NS;

	while (!pn_device_poll(conf->device, out, 1)) {
		uint64_t now = pn_device_now(conf->device);

		if (atomic_load(&conf->board->failed))
			return false;
		if (now >= deadline) {
			conf_fail(conf, "no completion in 10 s", __FILE__,
				  __LINE__);
			return false;
		}
		/* Short waits, to notice when another rank has failed. */
		pn_device_wait(conf->device, now + 20 * PN_NS_PER_MS);
	}
	return true;
}

bool conf_next(struct conf *conf, struct pn_completion *out)
{
	if (conf->nkept) {
		*out = conf->kept[0];
		memmove(conf->kept, conf->kept + 1,
			--conf->nkept * sizeof(*out));
		return true;
	}
	do {
		if (!next_any(conf, out))
			return false;
	} while (out->kind == PN_COMPLETION_PEER_UP);
	return true;
}

static bool attach_all(struct conf *conf, bool self, unsigned *count)
{
	struct pn_address mine = { 0 }, all[CONF_MAX_RANKS];

	pn_device_address(conf->device, &mine);
	if (!conf_exchange(conf, &mine, sizeof(mine), all))
		return false;
	for (unsigned r = 0; r < conf->nranks; r++) {
		if (r == conf->rank && !self)
			continue;
		if (pn_device_attach(conf->device, &all[r], &conf->peers[r])) {
			conf_fail(conf, "attach", __FILE__, __LINE__);
			return false;
		}
		++*count;
	}
	return true;
}

bool conf_connect(struct conf *conf, bool self)
{
	unsigned waiting = 0;

	if (!attach_all(conf, self, &waiting))
		return false;
	while (waiting) {
		struct pn_completion completion;

		if (!next_any(conf, &completion))
			return false;
		if (completion.kind != PN_COMPLETION_PEER_UP) {
			conf_fail(conf, "peer up", __FILE__, __LINE__);
			return false;
		}
		waiting--;
	}
	return conf_barrier(conf);
}

int conf_post(struct conf *conf, struct pn_peer *peer, const struct pn_op *op)
{
	uint64_t deadline = pn_device_now(conf->device) + PATIENCE_NS;
	int ret;

	while ((ret = pn_device_post(conf->device, peer, op)) == -EAGAIN) {
		if (atomic_load(&conf->board->failed) ||
		    pn_device_now(conf->device) > deadline)
			return -ETIMEDOUT;
		pause_rank(conf);
	}
	return ret;
}

int conf_do(struct conf *conf, struct pn_peer *peer, struct pn_op op)
{
	struct pn_completion completion;
	int ret;

	op.user = &op;
	ret = conf_post(conf, peer, &op);
	if (ret)
		return ret;
	for (;;) {
		if (!next_any(conf, &completion))
			return -ETIMEDOUT;
		if (completion.kind == PN_COMPLETION_OP)
			break;
		if (completion.kind == PN_COMPLETION_PEER_UP)
			continue;
		if (conf->nkept == CONF_MAX_KEPT)
			return -EPROTO;
		conf->kept[conf->nkept++] = completion;
	}
	return completion.user == &op ? completion.status : -EPROTO;
}
