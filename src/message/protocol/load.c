/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/protocol/load.h"

#include "base/compiler.h"

unsigned pn_load_class(unsigned level)
{
	unsigned class =
		level > 1 ? 32 - (unsigned)__builtin_clz(level - 1) : 0;

	return class < PN_LOAD_CLASSES ? class : PN_LOAD_CLASSES - 1;
}

static void next_burst(struct pn_load *load)
{
	load->last_peak = load->peak;
	load->peak = load->inflight;
	load->nmessages = 0;
}

void pn_load_begin(struct pn_load *load)
{
	if (load->nmessages == PN_LOAD_BURST)
		next_burst(load);
	load->nmessages++;
	load->inflight++;
	if (load->inflight > load->peak)
		load->peak = load->inflight;
}

void pn_load_end(struct pn_load *load)
{
	pn_assert(load->inflight);
	if (!--load->inflight)
		next_burst(load);
}

unsigned pn_load_level(const struct pn_load *load)
{
	unsigned level = load->inflight + 1;

	if (level < load->peak)
		level = load->peak;
	return level < load->last_peak ? load->last_peak : level;
}
