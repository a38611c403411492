/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * history -- forecasts how often a long buffer will be used again, from what
 * buffers did before. The protocol selector asks (select.h). reuse.h explains
 * why small transfers have another predictor.
 *
 * Nouns
 *   buffer  an address and a length at one end of a transfer. A source and a
 *           target are two buffers, and so are two call sites, if callers
 *           number them. A buffer is a row of a table of fixed size; the least
 *           recently used row of a set is replaced. So memory is bounded, and a
 *           buffer that was replaced counts as new.
 *   life    the uses of a buffer that one registration could have served. It
 *           begins with the first use. It ends unseen when the buffer is not
 *           used any more; or it ends at the next use, if the registration that
 *           was kept for the buffer is gone (its memory was released, or it was
 *           evicted). A registration that the helper has dropped for the time
 *           being does not end a life. So a new buffer at an old address is a
 *           new life as soon as that matters, which is when a registration was
 *           kept.
 *   kind    buffers of about one size at one end. Lives are counted by kind:
 *           how many reached 1, 2, 3, 4, 6, 8, 12, ... uses.
 *
 * The question at the u-th use: how many uses will follow? The lives of this
 * kind that reached u give the mean of what followed. With nothing known the
 * answer is u, "as many again": the ski-rental rule, which costs at most twice
 * what someone who knows the future would pay. This rule always counts as one
 * life. All counts are halved when LIVES (history.c) have begun, so that a
 * changed behaviour of the program is followed within a few times as many
 * buffers.
 *
 * While nothing is kept, a buffer that is freed and allocated again at the same
 * address looks like one that is used again. So forecasts are compared with
 * what happened. If a registration is gone before it served as many uses as
 * expected, that limits the next forecast for this buffer and for new buffers
 * of its kind. A registration that served as expected removes the limit, and
 * uses without a registration raise it slowly.
 *
 * Threads: the endpoint's lock. Nothing here calls other modules.
 */
#ifndef PN_MESSAGE_HISTORY_H
#define PN_MESSAGE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pn_end { PN_END_SOURCE, PN_END_TARGET, PN_NENDS };

struct pn_history;

struct pn_use {
	uintptr_t addr;
	size_t len;
	enum pn_end end;
	uint64_t site;	  /* number of the call site; 0: none */
	double keep_uses; /* what keeping its registration costs, in uses
			   * without one */
	bool cached;	  /* it is registered now */
	bool dropped; /* the helper has deregistered it since its last use */
	bool unkept;  /* registrations cannot be kept: further uses gain nothing
		       */
};

/* What is known about a buffer. */
struct pn_forecast {
	double uses;	/* of this life, including the present one */
	double further; /* expected uses that one registration would serve */
	double lives;	/* that the forecast is based on; 0: none */
};

/* NULL: no memory. */
struct pn_history *pn_history_open(void);
void pn_history_close(struct pn_history *history);

/* Counts a use of a buffer and forecasts further ones. */
void pn_history_use(struct pn_history *history, const struct pn_use *use,
		    struct pn_forecast *out);

/* After pn_history_use(): whether the buffer stays registered. */
void pn_history_kept(struct pn_history *history, const struct pn_use *use,
		     bool kept);

/* Size classes: two for each power of two. */
#define PN_HISTORY_SIZES 96
unsigned pn_history_size(size_t len);

#endif
