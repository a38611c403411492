/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * history -- whether a buffer will come again, from what buffers did before.
 *
 * Nouns
 *   buffer  an address and a length at one end of a transfer: a source and a
 *           target are two, and so are two call sites where callers number
 *           them. A row of a table of fixed size, the least recently used of
 *           its set giving way: memory is bounded, and a buffer that was
 *           forgotten is a new one.
 *   life    the uses of a buffer for which one registration would have done.
 *           It begins with the first use, and ends unseen, by the buffer not
 *           coming any more, or seen: it comes and the registration that was
 *           kept for it is gone (its memory was released, or room was needed).
 *           So a new buffer at an old address is a new life as soon as that
 *           matters, which is when a registration was kept.
 *   kind    buffers of about one size at one end. Lives are counted by kind:
 *           how many reached 1, 2, 3, 4, 6, 8, 12, ... uses.
 *
 * The question, at the u-th use: how many uses will follow? Of the lives of
 * this kind that reached u, so many went on to 2u, 3u, ...: that is the mean
 * of what is left, for lives drawn alike. With nothing known the answer is u,
 * "as many again", which is the rule of renting until the rent has paid the
 * price (ski rental: at most twice what one who knows would pay). One life's
 * weight is given to that rule for good.
 * Counts are halved when LIVES have begun, so that a program that changes its
 * ways is followed within a few times as many buffers.
 *
 * While nothing is kept, a buffer that is freed and comes again at the same
 * address looks like one that is used again. So hopes are compared with what
 * became of them: a registration that was left and is gone before it served as
 * often as was hoped sets a ceiling to the next hope for this buffer, and for
 * new ones of its kind; one that served as hoped lifts it, and so, slowly, do
 * uses without a registration.
 *
 * Threads: the endpoint's lock. Nothing here calls anybody.
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
	uint64_t site; /* the caller's number of the call site; 0: none */
	bool cached;   /* a registration of it is kept now */
	bool unkept;   /* none would be: no further use has one for nothing */
};

/* What is known about a buffer. */
struct pn_forecast {
	double uses;	/* of this life, the one at hand included */
	double further; /* that one registration would serve, expected */
	double lives;	/* that this is judged by; 0: none */
};

/* NULL: no memory. */
struct pn_history *pn_history_open(void);
void pn_history_close(struct pn_history *history);

/* A buffer is used. */
void pn_history_use(struct pn_history *history, const struct pn_use *use,
		    struct pn_forecast *out);

/* It was, or was not, left registered, after pn_history_use(). */
void pn_history_kept(struct pn_history *history, const struct pn_use *use,
		     bool kept);

/* Sizes that are judged alike: two for each power of two. */
#define PN_HISTORY_SIZES 96
unsigned pn_history_size(size_t len);

#endif
