/* SPDX-License-Identifier: BSD-2-Clause */
#include "conformance.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"

#define PATIENCE_NS (60 * PN_NS_PER_S)

/* Waits for one completion; false, and a failed check, after the timeout. */
static bool next_any(struct conf *conf, struct pn_completion *out)
{
	uint64_t deadline = pn_device_now(conf->self.device) + PATIENCE_NS;

	while (!pn_device_poll(conf->self.device, out, 1)) {
		uint64_t now = pn_device_now(conf->self.device);

		if (atomic_load(&conf->self.board->failed))
			return false;
		if (now >= deadline) {
			rank_fail(&conf->self, "no completion in a minute",
				  __FILE__, __LINE__);
			return false;
		}
		/* Short waits, to detect that another rank has failed. */
		pn_device_wait(conf->self.device, now + 20 * PN_NS_PER_MS);
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
	struct pn_address mine = { 0 }, all[RANKS_MAX];

	pn_device_address(conf->self.device, &mine);
	if (!rank_exchange(&conf->self, &mine, sizeof(mine), all))
		return false;
	for (unsigned r = 0; r < conf->self.nranks; r++) {
		if (r == conf->self.rank && !self)
			continue;
		if (pn_device_attach(conf->self.device, &all[r],
				     &conf->peers[r])) {
			rank_fail(&conf->self, "attach", __FILE__, __LINE__);
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
			rank_fail(&conf->self, "peer up", __FILE__, __LINE__);
			return false;
		}
		waiting--;
	}
	return rank_barrier(&conf->self);
}

int conf_post(struct conf *conf, struct pn_peer *peer, const struct pn_op *op)
{
	uint64_t deadline = pn_device_now(conf->self.device) + PATIENCE_NS;
	int ret;

	while ((ret = pn_device_post(conf->self.device, peer, op)) == -EAGAIN) {
		if (atomic_load(&conf->self.board->failed) ||
		    pn_device_now(conf->self.device) > deadline)
			return -ETIMEDOUT;
		rank_pause(&conf->self);
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
