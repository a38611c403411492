/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * reuse -- decides whether a small transfer uses the program's buffer directly,
 * or is copied (Rashti and Afsahi 2011). Puts and gets that are longer are
 * decided here, too.
 *
 * Nouns
 *   kind       of a transfer: through a ring that the device writes (the
 *              paper's fast path), by send and receive, by put, by get.
 *   R, C, V    the cost of registering the buffer, of copying it, and of a
 *              lookup here and in the cache. R and C come from the device's
 *              costs. V comes from its profile in virtual time; otherwise
 *              pn_reuse_init() measures it.
 *   threshold  n > R / (C - V) uses pay for a registration: one threshold for
 *              each kind and size class (those of history.h; computed for the
 *              shortest length of a class). Transfers that the device takes
 *              inline are never direct and are not looked up: the device copies
 *              them anyway. Nor are transfers that gain less than a lookup
 *              costs (C - V < V).
 *   share      the part of the threshold at which a buffer is registered, in
 *              the hope that it is used as often again as would pay (the
 *              paper's 25 %). Puts and gets that are not small wait for all of
 *              it, and adaptation does not concern them.
 *   frequent   a buffer that reached the share. The cache keeps its
 *              registration, under the one budget, and may evict or invalidate
 *              it. If it is gone before it served n uses, the buffer's uses
 *              count half from then on; in any case counting starts again.
 *
 * A use is worth 1/n of a registration (the credit of usage.h), so a buffer
 * that is used with several lengths, or by several kinds, is judged by the sum.
 * A buffer whose pages are registered already (for a neighbour, by the heap) is
 * used directly at once.
 *
 * Two predictors of reuse. This one, with the table in usage.h, decides about
 * small transfers, puts and gets. history.h forecasts for messages longer than
 * eager. Each transfer asks exactly one of them. They stay apart because they
 * answer different questions at different prices:
 *   - history.h returns a number, the expected further uses, which the selector
 *     multiplies by the prices of its candidates. This one compares a count
 *     with a threshold.
 *   - history.h counts lives by size, so it can judge a buffer that it has
 *     never seen. This one learns nothing about unknown buffers: copying a
 *     small buffer a few times costs less than such statistics.
 *   - A use costs 50 to 90 ns in history.h (16 to 4096 buffers) and 2 to 4 ns
 *     in usage.h (AMD EPYC). The first is little beside a long message, which
 *     takes microseconds, but not beside a short one, which takes 1500
 *     instructions at both ends together.
 *   - history.h knows 4096 buffers by address, length and end, since protocols
 *     differ for these. usage.h knows a million by address: programs have many
 *     more small buffers, and one registration serves all lengths.
 *
 * Adaptation. The table grows while that is worth it. When it has
 * `limit` entries and chains, and fewer than 20 % of the entries are frequent,
 * no more are added. From then on lookups are reviewed in windows of 256:
 *   - 20 % are frequent after all: the table may grow to twice its size.
 *   - One lookup in five finds its buffer: the program uses buffers again. The
 *     table may grow likewise, up to 2^15 entries.
 *   - Fewer lookups find their buffer, and direct transfers saved less than the
 *     lookups cost: half as many transfers as before are looked up, down to one
 *     in 64.
 *   - Lookups find their buffers, but nothing was gained in 16 lookups for each
 *     entry: treated as if they were not found.
 *
 * Meanwhile one in four of the buffers that are not found replaces an entry
 * that was not used lately. So another phase of the program is noticed.
 *
 * Waiting (not in the paper). A copied send ends at once; a direct one ends
 * when the device has read the buffer. That makes no difference to a program
 * that waits for an answer, but one that sends again as soon as it may loses a
 * round trip each time. So the time is measured in which the program waits for
 * direct sends. If the program then sends, it has lost that time; if it then
 * waits for something else, it has not. When more is lost than saved, direct
 * sends pause: 2^10 sends are copied, then twice as many each time.
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

/* "fast-path", "send-receive", "put" or "get". */
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
	size_t min_bytes; /* shorter transfers are copied; 0: 128 */
	size_t small_bytes;
};

#define PN_REUSE_SHARE 25
#define PN_REUSE_MIN   128

/* Thresholds for transfers of one size class and kind. */
struct pn_reuse_class {
	uint32_t weight; /* credit of a use; 0: never direct */
	uint32_t pays;	 /* uses that a registration must serve */
	double gain_ns;	 /* C - V */
};

struct pn_reuse_stats {
	uint64_t lookups, hits; /* found in the table or the cache */
	uint64_t wanted;	/* decided to be direct */
	uint64_t registrations; /* of these, with a new registration */
	uint64_t lost;	 /* registrations that were gone before they paid */
	uint64_t stops;	 /* of the growth of the table */
	uint64_t pauses; /* of direct sends */
};

struct pn_reuse {
	struct pn_device *device;
	struct pn_cache *cache;
	struct pn_reuse_attr attr;
	double lookup_ns;		/* V */
	size_t from[PN_REUSE_NKINDS];	/* shorter transfers are never direct */
	uint32_t skip[PN_REUSE_NKINDS]; /* next small ones that are not looked
					   up */
	struct pn_reuse_class classes[PN_REUSE_NKINDS][PN_HISTORY_SIZES];
	struct pn_usage usage;
	/* Adaptation. */
	uint32_t limit;
	bool stopped;
	uint32_t sample_every; /* one in so many small transfers is looked up */
	uint32_t missed;
	struct {
		uint32_t lookups, hits;
		double saved_ns;
	} window;
	uint64_t unprofitable; /* lookups in a row that did not pay */
	/* Waiting for direct sends. */
	uint32_t direct_inflight;
	uint64_t idle_ns;  /* since when the program waits for them; 0: it does
			      not */
	double waited_ns;  /* time that it has waited */
	double balance_ns; /* time saved, less time lost */
	double gain_ns;	   /* of the last direct send */
	uint32_t pause;	   /* sends copied in the last pause */
	struct pn_reuse_stats stats;
};

/* Zeroes in attr are the defaults. Takes no memory. */
void pn_reuse_init(struct pn_reuse *reuse, struct pn_device *device,
		   struct pn_cache *cache, const struct pn_reuse_attr *attr);
void pn_reuse_fini(struct pn_reuse *reuse);

/* The threshold n for a length. INFINITY: no number of uses pays. */
double pn_reuse_threshold(const struct pn_reuse *reuse, enum pn_reuse_kind kind,
			  size_t len);

enum pn_reuse_verdict {
	PN_REUSE_COPY,
	PN_REUSE_CACHED,   /* direct: the first and last page are registered */
	PN_REUSE_REGISTER, /* direct, after registering the buffer */
};

enum pn_reuse_verdict pn_reuse_lookup(struct pn_reuse *reuse,
				      enum pn_reuse_kind kind, const void *buf,
				      size_t len);

/* Whether transfers of that length are always copied, and not counted. */
static inline bool pn_reuse_skips(const struct pn_reuse *reuse,
				  enum pn_reuse_kind kind, size_t len)
{
	return len < reuse->from[kind];
}

/* Counts a use of a buffer and decides. */
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

/* No transfer of this kind is direct. */
static inline void pn_reuse_exclude(struct pn_reuse *reuse,
				    enum pn_reuse_kind kind)
{
	reuse->from[kind] = SIZE_MAX;
}

/* --- waiting for direct sends --------------------------------------------- */

/* A direct send of len bytes was posted, and has ended. */
void pn_reuse_direct_sent(struct pn_reuse *reuse, enum pn_reuse_kind kind,
			  size_t len);
void pn_reuse_direct_done(struct pn_reuse *reuse);

void pn_reuse_record_wait(struct pn_reuse *reuse, bool direct);
void pn_reuse_end_wait(struct pn_reuse *reuse);

/* The program waits, and nothing is to be done. direct: it may wait for a
 * direct send. */
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
