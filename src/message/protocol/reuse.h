/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reuse -- whether a small transfer goes straight from (or into) the program's
 * buffer instead of being copied (paper Reuse; rows R1 to R5).
 *
 * Nouns
 *   kind        how a transfer would go: through a ring that the device writes
 *              (the paper's fast path), by send and receive, by put, by get.
 *   R, C, V    what registering the buffer costs, copying it, and looking for
 *              it here and in the cache. R and C are the device's costs; V is
 *              its profile's in virtual time, else measured when this is
 *              opened.
 *   threshold  n > R / (C - V) uses pay for a registration: one for each kind
 *              and class of size (history.h's classes; for the shortest of
 *              each). What a device takes inline is copied by nobody else:
 *              it never goes straight, and is not looked up; nor is what gains
 *              less than a look costs (C - V < V).
 *   share      a buffer is registered at this part of the threshold, in the
 *              hope that it comes as often again as would pay (the paper's
 *              25 %). Puts and gets that are not small wait for all of it, and
 *              adaptation does not concern them.
 *   frequent   a buffer that reached it. Its registration lives in the cache,
 *              under the one budget, and may be lost to others or with its
 *              memory (the monitor's notice): when it is gone before it has
 *              served n times, the buffer's uses count half from then on; in
 *              any case they are counted anew.
 *
 * A use is worth 1/n of a registration (usage.h's credit), so a buffer that is
 * used with several lengths, or by several kinds, is judged by the sum.
 * A buffer whose pages are registered anyway (by a neighbour, by the heap) goes
 * straight at once.
 *
 * Adaptation (row R5). The table grows while it is worth it: when it has
 * `limit` entries and chains, and fewer than 20 % of them are frequent, no more
 * are added. From then on looks are judged in windows of 256:
 *   - 20 % are frequent after all: the table may grow to twice its size.
 *   - one look in five finds its buffer: the program uses buffers again. The
 *     table may grow likewise, up to 2^15 entries.
 *   - fewer, and what the direct transfers saved does not pay for looking:
 *     half as many transfers are looked at as before, down to one in 64.
 *   - buffers are found, but nothing was gained in 16 looks for each entry: as
 *     if they were not.
 * Meanwhile one in four of the buffers that are looked for in vain takes the
 * place of one that was not used lately: so another phase of the program is
 * noticed.
 *
 * Waiting (not in the paper). A copied send ends at once; one straight from the
 * buffer ends when the bytes are there. To a program that waits for an answer
 * that makes no difference; one that sends again as soon as it may loses a
 * round trip each time. So the time is taken in which the program waited for
 * direct sends. If it then sends, it has lost that time; if it then waits for
 * something else, it has not. When more is lost than saved, sends are copied
 * for a while (2^10 of them, then twice as many).
 *
 * Threads: the endpoint's lock. pn_reuse_decide() may let other tasks run in
 * virtual time, at its beginning.
 */
#ifndef PN_MESSAGE_REUSE_H
#define PN_MESSAGE_REUSE_H

#include "cache/cache.h"
#include "device/device.h"
#include "message/protocol/history.h"
#include "message/protocol/usage.h"

enum pn_reuse_kind {
	PN_REUSE_RING,
	PN_REUSE_SEND,
	PN_REUSE_PUT,
	PN_REUSE_GET,
	PN_REUSE_NKINDS,
};

/* "fast-path" and so on. */
const char *pn_reuse_kind_name(enum pn_reuse_kind kind);

/* In the order of the option's choices. */
enum pn_reuse_mode {
	PN_REUSE_AUTO, /* where the costs say that it pays */
	PN_REUSE_OFF,  /* small transfers are copied */
	PN_REUSE_ON,   /* also inline ones, and where it does not pay */
};

struct pn_reuse_attr {
	enum pn_reuse_mode mode;
	unsigned share;	  /* percent; 0: 25 */
	size_t min_bytes; /* shorter ones are copied; 0: 128 */
	size_t small_bytes;
};

#define PN_REUSE_SHARE 25
#define PN_REUSE_MIN   128

/* What is known about transfers of one class of size, by one kind. */
struct pn_reuse_class {
	uint32_t weight; /* of a use, in PN_USAGE_ONE; 0: never goes straight */
	uint32_t pays;	 /* uses that a registration must serve */
	double gain_ns;	 /* C - V */
};

struct pn_reuse_stats {
	uint64_t looks, hits;	/* and found, in the table or the cache */
	uint64_t wanted;	/* said to go straight */
	uint64_t registrations; /* of these, the first of a buffer */
	uint64_t lost;		/* registrations that were gone too early */
	uint64_t stops;		/* of growing */
	uint64_t pauses;	/* times that sends were copied for a while */
};

struct pn_reuse {
	struct pn_device *device;
	struct pn_cache *cache;
	struct pn_reuse_attr attr;
	double lookup_ns;		/* V */
	size_t from[PN_REUSE_NKINDS];	/* shorter ones never go straight */
	uint32_t skip[PN_REUSE_NKINDS]; /* small ones that are not looked at */
	struct pn_reuse_class classes[PN_REUSE_NKINDS][PN_HISTORY_SIZES];
	struct pn_usage usage;
	/* adaptation */
	uint32_t limit;
	bool stopped;
	uint32_t every; /* one in so many small transfers is looked at */
	uint32_t missed;
	struct {
		uint32_t looks, hits;
		double saved_ns;
	} window;
	uint64_t poor; /* looks in a row that did not pay */
	/* waiting */
	uint32_t direct_inflight; /* direct sends */
	uint64_t idle_ns;	  /* since when they are waited for; 0: not */
	double waited_ns;	  /* and for how long they were */
	double balance_ns;	  /* saved, less what was lost */
	double gain_ns;		  /* of the last one */
	uint32_t rest;		  /* sends that were copied for it, last time */
	struct pn_reuse_stats stats;
};

/* Zeroes are the defaults. Takes no memory. */
void pn_reuse_init(struct pn_reuse *reuse, struct pn_device *device,
		   struct pn_cache *cache, const struct pn_reuse_attr *attr);
void pn_reuse_fini(struct pn_reuse *reuse);

/* n for a length: how many uses pay for a registration. INFINITY: none. */
double pn_reuse_threshold(const struct pn_reuse *reuse, enum pn_reuse_kind kind,
			  size_t len);

enum pn_reuse_verdict {
	PN_REUSE_COPY,
	PN_REUSE_CACHED,   /* straight: it is registered, as far as one sees */
	PN_REUSE_REGISTER, /* straight, and registered for it */
};

enum pn_reuse_verdict pn_reuse_lookup(struct pn_reuse *reuse,
				      enum pn_reuse_kind kind, const void *buf,
				      size_t len);

/* Whether buffers of that length are copied anyway, and not counted. */
static inline bool pn_reuse_skips(const struct pn_reuse *reuse,
				  enum pn_reuse_kind kind, size_t len)
{
	return len < reuse->from[kind];
}

/* Counts a use of a buffer and says how it is to go. */
static inline enum pn_reuse_verdict pn_reuse_decide(struct pn_reuse *reuse,
						    enum pn_reuse_kind kind,
						    const void *buf, size_t len)
{
	if (pn_likely(pn_reuse_skips(reuse, kind, len)))
		return PN_REUSE_COPY;
	if (reuse->skip[kind] && len <= reuse->attr.small_bytes) {
		reuse->skip[kind]--;
		return PN_REUSE_COPY;
	}
	return pn_reuse_lookup(reuse, kind, buf, len);
}

/* No transfer of that kind ever goes straight. */
static inline void pn_reuse_exclude(struct pn_reuse *reuse,
				    enum pn_reuse_kind kind)
{
	reuse->from[kind] = SIZE_MAX;
}

/* --- waiting -------------------------------------------------------------- */

/* A direct send of len bytes went out, and ended. */
void pn_reuse_direct_sent(struct pn_reuse *reuse, enum pn_reuse_kind kind,
			  size_t len);
void pn_reuse_direct_done(struct pn_reuse *reuse);

void pn_reuse_record_wait(struct pn_reuse *reuse, bool direct);
void pn_reuse_end_wait(struct pn_reuse *reuse);

/* The program waits, and there is nothing to do; direct: for a direct send, as
 * far as is known. */
static inline void pn_reuse_idle(struct pn_reuse *reuse, bool direct)
{
	if (pn_unlikely(reuse->direct_inflight || reuse->waited_ns > 0))
		pn_reuse_record_wait(reuse, direct);
}

/* The program sends. */
static inline void pn_reuse_on_send(struct pn_reuse *reuse)
{
	if (pn_unlikely(reuse->idle_ns || reuse->waited_ns > 0))
		pn_reuse_end_wait(reuse);
}

#endif
