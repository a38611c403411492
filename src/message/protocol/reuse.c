/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/protocol/reuse.h"

#include <math.h>

#include "base/clock.h"
#include "message/connection/wire.h"
#include "message/onesided/path.h"
#include "message/protocol/shapes.h"

#define INITIAL_ENTRIES 4096 /* entries until the first review */
#define UNCHAINED                                                             \
	8192 /* entries from which on a table without chains is reviewed, too \
	      */
#define MAX_SPECULATIVE_ENTRIES \
	32768	      /* entries that the table may grow to for hits alone */
#define MIN_SHARE 5   /* one in so many is enough */
#define WINDOW	  256 /* lookups that are reviewed together */
#define MIN_SAMPLE_RATE                                       \
	64 /* one in so many transfers is looked up, at least \
	    */
#define ADMIT_RATE \
	4 /* one in so many unknown buffers is admitted to a full table */
#define MAX_UNPROFITABLE_LOOKUPS 16 /* lookups per entry without gain */
#define MAX_USES		 46340 /* above this the weights would not be exact */
#define MAX_PENALTY		 16
#define MIN_PAUSE		 1024
#define MAX_PAUSE		 65536
#define MAX_LOSS		 16 /* gains that may be lost until direct sends pause */
#define MAX_CREDIT		 64 /* gains that count at most */

const char *pn_reuse_kind_name(enum pn_reuse_kind kind)
{
	static const char *const names[] = { "fast-path", "send-receive", "put",
					     "get" };

	return names[kind];
}

/* --- costs ---------------------------------------------------------------- */

static double copy_ns(const struct pn_costs *costs, size_t len)
{
	return (double)len * costs->copy_byte_ns;
}

/* The longest transfer of a kind that the device takes inline. */
static size_t inlined(const struct pn_reuse *reuse, enum pn_reuse_kind kind)
{
	size_t most = reuse->device->limits.inline_bytes;

	if (reuse->attr.mode == PN_REUSE_ON || kind == PN_REUSE_GET)
		return 0;
	if (kind == PN_REUSE_PUT)
		return most < PN_PATH_INLINE_MAX ? most : PN_PATH_INLINE_MAX;
	return most > sizeof(struct pn_wire) ? most - sizeof(struct pn_wire)
					     : 0;
}

static double uses_that_pay(const struct pn_reuse *reuse, size_t len)
{
	const struct pn_costs *costs = &reuse->device->costs;
	double gain = copy_ns(costs, len) - reuse->lookup_ns;

	return gain > 0 ? pn_cost_register(costs, len, 1) / gain : INFINITY;
}

double pn_reuse_threshold(const struct pn_reuse *reuse, enum pn_reuse_kind kind,
			  size_t len)
{
	return len <= inlined(reuse, kind) ? INFINITY
					   : uses_that_pay(reuse, len);
}

/* Measures V in real time: the minimum of some rounds of lookups, times TIMES.
 * A direct transfer also pins and unpins, which takes ten times as long as a
 * lookup (20 ns and 2 ns); to time it would need a registration. */
static double measure_lookup(struct pn_cache *cache)
{
	enum { ROUNDS = 8, LOOKS = 128, BUFFERS = 16, TIMES = 10 };
	struct pn_usage scratch = { 0 };
	const char *at = (const char *)&scratch;
	uint64_t least = UINT64_MAX;
	unsigned found = 0;

	for (unsigned i = 0; i < BUFFERS; i++)
		if (!pn_usage_add(&scratch, (uintptr_t)at + 64 * i))
			break;
	for (unsigned r = 0; r < ROUNDS; r++) {
		uint64_t start = pn_clock_ns(), took;

		for (unsigned i = 0; i < LOOKS; i++) {
			const char *buf = at + 64 * (size_t)(i % BUFFERS);

			found += pn_usage_find(&scratch, (uintptr_t)buf) &&
				 !pn_cache_holds(cache, buf);
		}
		took = pn_clock_ns() - start;
		least = took < least ? took : least;
	}
	pn_usage_fini(&scratch);
	return found ? TIMES * (double)least / LOOKS : 0;
}

/* The number of uses until a buffer is registered. INFINITY where a lookup
 * costs more than a use gains: buffers that are not used again would cost more
 * than others gain. With `on` the second use registers there, too. */
static double uses_needed(const struct pn_reuse *reuse, size_t len)
{
	const struct pn_reuse_attr *attr = &reuse->attr;
	double n = uses_that_pay(reuse, len);

	if (!(n <= MAX_USES) ||
	    copy_ns(&reuse->device->costs, len) < 2 * reuse->lookup_ns)
		return attr->mode == PN_REUSE_ON ? 2 : INFINITY;
	return len <= attr->small_bytes ? n * attr->share / 100 : n;
}

/* The credit of a use, such that n uses make PN_USAGE_ONE and fewer do not. */
static uint32_t weight_of(double n)
{
	uint32_t uses;

	if (!(n <= MAX_USES))
		return 0;
	uses = n > 1 ? (uint32_t)ceil(n) : 1;
	return PN_USAGE_ONE / uses + (PN_USAGE_ONE % uses != 0);
}

/* The shortest length of a size class. */
static size_t shortest(unsigned size)
{
	size_t power = (size_t)1 << size / 2;

	return size & 1 ? power + power / 2 : power;
}

static void set_class(struct pn_reuse *reuse, unsigned size,
		      struct pn_reuse_class *out)
{
	size_t len = shortest(size);
	double n = uses_that_pay(reuse, len);

	if (len < reuse->attr.min_bytes)
		len = reuse->attr.min_bytes;
	out->weight = weight_of(uses_needed(reuse, len));
	out->pays = n <= MAX_USES ? (uint32_t)ceil(n) : MAX_USES;
	out->gain_ns = copy_ns(&reuse->device->costs, len) - reuse->lookup_ns;
}

static size_t first_len(const struct pn_reuse *reuse, enum pn_reuse_kind kind)
{
	const struct pn_reuse_attr *attr = &reuse->attr;
	size_t from = attr->min_bytes, beyond = inlined(reuse, kind) + 1;
	unsigned size = pn_history_size(from);

	while (size < PN_HISTORY_SIZES && !reuse->classes[kind][size].weight)
		size++;
	if (size == PN_HISTORY_SIZES)
		return SIZE_MAX;
	if (from < shortest(size))
		from = shortest(size);
	if (from < beyond)
		from = beyond;
	if (attr->mode == PN_REUSE_OFF && from <= attr->small_bytes)
		from = attr->small_bytes + 1;
	/* Longer messages take another protocol. */
	return kind <= PN_REUSE_SEND && from > attr->small_bytes ? SIZE_MAX
								 : from;
}

void pn_reuse_init(struct pn_reuse *reuse, struct pn_device *device,
		   struct pn_cache *cache, const struct pn_reuse_attr *attr)
{
	*reuse = (struct pn_reuse){ .device = device,
				    .cache = cache,
				    .attr = *attr,
				    .limit = INITIAL_ENTRIES,
				    .sample_every = 1 };
	if (!attr->share)
		reuse->attr.share = PN_REUSE_SHARE;
	if (!attr->min_bytes)
		reuse->attr.min_bytes = PN_REUSE_MIN;
	reuse->lookup_ns = device->caps & PN_CAP_VIRTUAL_TIME
				   ? device->costs.lookup_ns
				   : measure_lookup(cache);
	for (unsigned w = 0; w < PN_REUSE_NKINDS; w++) {
		for (unsigned i = 0; i < PN_HISTORY_SIZES; i++)
			set_class(reuse, i, &reuse->classes[w][i]);
		reuse->from[w] = first_len(reuse, w);
	}
}

void pn_reuse_fini(struct pn_reuse *reuse)
{
	pn_usage_fini(&reuse->usage);
}

/* --- adaptation ----------------------------------------------------------- */

/* Regular addresses spread so well that they never share a bucket: then the
 * number of entries counts. */
static bool is_not_worth_it(const struct pn_usage *usage)
{
	return usage->nfrequent * MIN_SHARE < usage->nentries &&
	       (usage->nchained || usage->nentries >= UNCHAINED);
}

static void grow(struct pn_reuse *reuse, uint32_t most)
{
	uint32_t n = reuse->usage.nentries;

	reuse->limit = 2 * n < most ? 2 * n : most;
	reuse->stopped = n >= reuse->limit;
	reuse->sample_every = 1;
}

static void begin_window(struct pn_reuse *reuse)
{
	reuse->window.lookups = reuse->window.hits = 0;
	reuse->window.saved_ns = 0;
}

static void review(struct pn_reuse *reuse)
{
	if (reuse->usage.nentries < reuse->limit)
		return;
	if (!is_not_worth_it(&reuse->usage))
		grow(reuse, PN_USAGE_MAX);
	else
		reuse->stopped = true;
	reuse->stats.stops += reuse->stopped;
	begin_window(reuse);
}

static void end_window(struct pn_reuse *reuse)
{
	bool unprofitable = reuse->window.saved_ns < WINDOW * reuse->lookup_ns;
	bool many = reuse->window.hits * MIN_SHARE >= WINDOW;
	bool worth_it = !is_not_worth_it(&reuse->usage);

	reuse->unprofitable = unprofitable ? reuse->unprofitable + WINDOW : 0;
	if (worth_it ||
	    (many && reuse->unprofitable / MAX_UNPROFITABLE_LOOKUPS <
			     reuse->usage.nentries))
		grow(reuse, worth_it ? PN_USAGE_MAX : MAX_SPECULATIVE_ENTRIES);
	else if (!unprofitable)
		reuse->sample_every = 1;
	else if (reuse->sample_every < MIN_SAMPLE_RATE)
		reuse->sample_every *= 2;
	begin_window(reuse);
}

/* An entry for a buffer that has none; or NULL. */
static struct pn_usage_entry *admit(struct pn_reuse *reuse, uintptr_t addr)
{
	struct pn_usage_entry *entry;

	if (reuse->stopped)
		return ++reuse->missed % ADMIT_RATE
			       ? NULL
			       : pn_usage_replace(&reuse->usage, addr);
	entry = pn_usage_add(&reuse->usage, addr);
	review(reuse);
	return entry;
}

/* --- lookup --------------------------------------------------------------- */

/* The registration is gone. If it had not paid off, the next one needs more
 * uses. */
static void lose(struct pn_reuse *reuse, struct pn_usage_entry *entry,
		 const struct pn_reuse_class *c)
{
	pn_usage_mark(&reuse->usage, entry, false);
	entry->credit = 0;
	if (entry->served >= c->pays) {
		entry->penalty = 0;
		return;
	}
	entry->penalty += entry->penalty < MAX_PENALTY;
	reuse->stats.lost++;
}

/* Adds the credit of a use. True: the buffer is frequent now. */
static bool credit(struct pn_reuse *reuse, struct pn_usage_entry *entry,
		   const struct pn_reuse_class *c)
{
	uint32_t dear = ((uint32_t)1 << entry->penalty) - 1;

	entry->credit += (c->weight + dear) >> entry->penalty;
	if (entry->credit < PN_USAGE_ONE)
		return false;
	entry->credit = 0;
	entry->served = 0;
	pn_usage_mark(&reuse->usage, entry, true);
	return true;
}

/* Looks at the first and the last page, without a lock. */
static bool is_held(const struct pn_reuse *reuse, const void *buf, size_t len)
{
	return pn_cache_holds(reuse->cache, buf) &&
	       pn_cache_holds(reuse->cache, (const char *)buf + len - 1);
}

static enum pn_reuse_verdict use(struct pn_reuse *reuse,
				 const struct pn_reuse_class *c,
				 const void *buf, size_t len)
{
	uintptr_t addr = (uintptr_t)buf;
	struct pn_usage_entry *entry = pn_usage_find(&reuse->usage, addr);
	bool known = entry, held = is_held(reuse, buf, len);

	reuse->stats.lookups++;
	reuse->stats.hits += known || held;
	if (!known && !held)
		entry = admit(reuse, addr);
	if (entry)
		entry->used = known;
	if (held) {
		if (entry && entry->served < UINT32_MAX)
			entry->served++;
		return PN_REUSE_CACHED;
	}
	/* Without a caching cache a registration serves once and does not pay.
	 */
	if (!entry || pn_unlikely(!pn_cache_keeps(reuse->cache)))
		return PN_REUSE_COPY;
	if (pn_unlikely(entry->frequent))
		lose(reuse, entry, c);
	if (!credit(reuse, entry, c))
		return PN_REUSE_COPY;
	reuse->stats.registrations++;
	return PN_REUSE_REGISTER;
}

/* A long transfer is not sampled: one copy may cost more than registering. */
static enum pn_reuse_verdict look_long(struct pn_reuse *reuse,
				       const struct pn_reuse_class *c,
				       const void *buf, size_t len)
{
	if (c->weight == PN_USAGE_ONE)
		return is_held(reuse, buf, len) ? PN_REUSE_CACHED
						: PN_REUSE_REGISTER;
	return use(reuse, c, buf, len);
}

enum pn_reuse_verdict pn_reuse_lookup(struct pn_reuse *reuse,
				      enum pn_reuse_kind kind, const void *buf,
				      size_t len)
{
	const struct pn_reuse_class *c =
		&reuse->classes[kind][pn_history_size(len)];
	uint64_t hits = reuse->stats.hits;
	enum pn_reuse_verdict verdict;

	if (!c->weight)
		return PN_REUSE_COPY;
	if (len > reuse->attr.small_bytes)
		return look_long(reuse, c, buf, len);
	/* Other tasks may run here, before anything is looked at. */
	pn_device_consume_cpu(reuse->device, (uint64_t)reuse->lookup_ns);
	verdict = use(reuse, c, buf, len);
	reuse->window.hits += (uint32_t)(reuse->stats.hits - hits);
	if (verdict) {
		reuse->window.saved_ns += c->gain_ns;
		reuse->stats.wanted++;
	}
	if (reuse->stopped && ++reuse->window.lookups >= WINDOW)
		end_window(reuse);
	reuse->skip[kind] = reuse->sample_every - 1;
	return verdict;
}

/* --- waiting for direct sends --------------------------------------------- */

void pn_reuse_direct_sent(struct pn_reuse *reuse, enum pn_reuse_kind kind,
			  size_t len)
{
	double gain = reuse->classes[kind][pn_history_size(len)].gain_ns;

	reuse->direct_inflight++;
	reuse->gain_ns = gain;
	reuse->balance_ns += gain;
	if (reuse->balance_ns < MAX_CREDIT * gain)
		return;
	reuse->balance_ns = MAX_CREDIT * gain;
	reuse->pause = 0;
}

static void end_waiting(struct pn_reuse *reuse)
{
	if (!reuse->idle_ns)
		return;
	reuse->waited_ns +=
		(double)(pn_device_now(reuse->device) - reuse->idle_ns);
	reuse->idle_ns = 0;
}

void pn_reuse_direct_done(struct pn_reuse *reuse)
{
	if (!--reuse->direct_inflight)
		end_waiting(reuse);
}

void pn_reuse_record_wait(struct pn_reuse *reuse, bool direct)
{
	if (!direct || !reuse->direct_inflight) {
		reuse->waited_ns = 0;
		reuse->idle_ns = 0;
	} else if (!reuse->idle_ns) {
		reuse->idle_ns = pn_device_now(reuse->device);
	}
}

void pn_reuse_end_wait(struct pn_reuse *reuse)
{
	end_waiting(reuse);
	reuse->balance_ns -= reuse->waited_ns;
	reuse->waited_ns = 0;
	if (reuse->balance_ns > -MAX_LOSS * reuse->gain_ns ||
	    reuse->attr.mode == PN_REUSE_ON)
		return;
	reuse->pause = reuse->pause ? 2 * reuse->pause : MIN_PAUSE;
	if (reuse->pause > MAX_PAUSE)
		reuse->pause = MAX_PAUSE;
	reuse->skip[PN_REUSE_RING] = reuse->skip[PN_REUSE_SEND] = reuse->pause;
	reuse->balance_ns = 0;
	reuse->stats.pauses++;
}
