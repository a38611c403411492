/* SPDX-License-Identifier: BSD-2-Clause */
#include "cache_model.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/range.h"
#include "cache/cache.h"
#include "device/registrar/registrar.h"
#include "device/sim/sim.h"
#include "map_below.h"
#include "monitor/monitor.h"
#include "mover.h"
#include "test.h"

#define PAGE	  PN_PAGE_BYTES
#define NPAGES	  192
#define NHELD	  32
#define MAX_PAGES 40 /* of one pin */
#define LIST	  4

/* Unlike cmocka's assertions these work under libFuzzer, too. */
#define MUST(x) ((x) ? (void)0 : model_failed(#x, __FILE__, __LINE__, m))

struct page {
	bool mapped;
	uint64_t since; /* when what is there now came */
};

enum pin_life { NOT_THERE, STARTED, HELD };

/* Keys as they were handed out. */
struct segment {
	struct pinion_pin_segment keys;
	bool revoked; /* the remote key must be refused */
};

struct held {
	enum pin_life life;
	struct pinion_pin pin;
	struct pn_range range;
	unsigned flags;
	uint64_t at;	    /* when it was pinned */
	bool maybe_revoked; /* a key of its regions was, somewhere */
	struct segment *segments;
};

/* A range as a pin asked for it. */
struct asked {
	struct pn_range range;
	unsigned access;
};

struct model {
	struct choices *choices;
	struct cache_model_result *result;
	struct pn_sim *sim;
	struct pn_device *device;
	bool registrar;	     /* over functions, below */
	unsigned fail_every; /* so many deregistrations, one fails; 0: none */
	unsigned nends;
	unsigned nlive; /* registered by the functions */
	struct asked *asked;
	size_t nasked, max_asked;
	struct mover mover;
	struct pn_budget budget;
	struct pn_cache *cache;
	bool deaf, watched;
	int injected; /* what the device's script fails with, or 0 */
	bool over;    /* the budget was cut below what is in use */
	bool meddle;  /* release memory in the middle of registrations */
	char *area;
	struct page pages[NPAGES];
	uint64_t tick;
	struct held held[NHELD];
	const char *doing;
};

static void model_failed(const char *what, const char *file, int line,
			 const struct model *m)
{
	fprintf(stderr, "%s:%d: %s, not so in %s, operation %llu, errno %d\n",
		file, line, what, m->doing,
		(unsigned long long)m->result->operations, errno);
	abort();
}

/* --- choices ------------------------------------------------------------- */

static uint64_t below(struct model *m, uint64_t bound)
{
	struct choices *c = m->choices;
	uint64_t value = 0;

	if (!c->bytes)
		return test_below(&c->seed, bound);
	for (uint64_t range = 1; range < bound && c->left; range <<= 8) {
		value = value << 8 | *c->bytes++;
		c->left--;
	}
	return value % bound;
}

static bool one_in(struct model *m, unsigned n)
{
	return !below(m, n);
}

/* Some pages, few more often than many. */
static struct pn_range pages(struct model *m, size_t most)
{
	size_t n = 1 + below(m, one_in(m, 4) ? most : 4);
	size_t first = below(m, NPAGES - n + 1);

	return (struct pn_range){ (uintptr_t)m->area + first * PAGE, n * PAGE };
}

/* One of a few buffers that come again and again. */
static struct pn_range favourite(struct model *m)
{
	size_t i = below(m, 8);

	return (struct pn_range){ (uintptr_t)m->area + 17 * i * PAGE + 13 * i,
				  (1 + i * i / 4) * PAGE - 7 * i };
}

/* Some bytes, often not aligned to anything. */
static struct pn_range bytes(struct model *m)
{
	struct pn_range r = pages(m, MAX_PAGES);

	if (one_in(m, 2))
		return favourite(m);
	if (one_in(m, 2)) {
		size_t skip = below(m, PAGE);

		r.addr += skip;
		r.len -= skip;
		r.len -= below(m, r.len < PAGE ? r.len : PAGE);
	}
	return r;
}

/* Some of many small buffers side by side. */
static struct pn_range small_bytes(struct model *m)
{
	size_t i = below(m, 64), n = one_in(m, 4) ? 1 + below(m, 4) : 1;

	return (struct pn_range){ (uintptr_t)m->area + 60 * PAGE + 300 * i,
				  300 * n };
}

static unsigned flags(struct model *m)
{
	unsigned set = (unsigned)below(m, 16);

	if (one_in(m, 2))
		set |= PINION_ACCESS_RELAXED;

	/* Mostly the same, or nothing would ever hit. */
	if (!one_in(m, 4))
		set = PINION_ACCESS_LOCAL_WRITE | PINION_ACCESS_REMOTE_WRITE |
		      PINION_ACCESS_REMOTE_READ;
	return one_in(m, 12) ? set | PINION_PIN_BYPASS : set;
}

/* --- pages --------------------------------------------------------------- */

static struct page *page_at(struct model *m, uintptr_t addr)
{
	return &m->pages[(addr - (uintptr_t)m->area) / PAGE];
}

/* Whether all of range is mapped and has been the same since `at`. */
static bool same_since(struct model *m, struct pn_range range, uint64_t at)
{
	struct pn_range r = pn_range_pages(range.addr, range.len, PAGE);

	for (uintptr_t a = r.addr; a < r.addr + r.len; a += PAGE)
		if (!page_at(m, a)->mapped || page_at(m, a)->since > at)
			return false;
	return true;
}

static void map_at(struct model *m, struct pn_range r, int protection, int flag)
{
	MUST(mmap((void *)r.addr, r.len, protection,
		  MAP_PRIVATE | MAP_ANONYMOUS | flag, -1, 0) == (void *)r.addr);
}

static void announce(struct model *m, struct pn_range r)
{
	if (!m->watched && !m->deaf)
		pn_cache_invalidate(m->cache, r.addr, r.len);
}

/* The pages of r are others now, or none. */
static void became(struct model *m, struct pn_range r, bool mapped)
{
	announce(m, r);
	pn_sim_released(m->sim, 0, (void *)r.addr, r.len);
	m->tick++;
	for (uintptr_t a = r.addr; a < r.addr + r.len; a += PAGE)
		*page_at(m, a) = (struct page){ mapped, m->tick };
}

static void do_map_over(struct model *m)
{
	struct pn_range r = pages(m, 32);

	announce(m, r);
	map_at(m, r, PROT_READ | PROT_WRITE, MAP_FIXED);
	became(m, r, true);
}

/* Nothing else may land in the hole: it is kept by pages without access. */
static void do_unmap(struct model *m)
{
	struct pn_range r = pages(m, 16);

	announce(m, r);
	MUST(!munmap((void *)r.addr, r.len));
	map_at(m, r, PROT_NONE, MAP_FIXED_NOREPLACE);
	became(m, r, false);
}

static void do_unmap_and_map(struct model *m)
{
	struct pn_range r = pages(m, 32);

	announce(m, r);
	MUST(!munmap((void *)r.addr, r.len));
	map_at(m, r, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE);
	became(m, r, true);
}

static void do_move(struct model *m)
{
	struct pn_range from = pages(m, 8), to = pages(m, 8);

	to.len = from.len;
	if (to.addr + to.len > (uintptr_t)m->area + NPAGES * PAGE ||
	    pn_range_overlaps(from, to))
		return;
	/* One mapping at a time can be moved; make it one. */
	announce(m, from);
	map_at(m, from, PROT_READ | PROT_WRITE, MAP_FIXED);
	became(m, from, true);
	announce(m, from);
	announce(m, to);
	MUST(mremap((void *)from.addr, from.len, to.len,
		    MREMAP_MAYMOVE | MREMAP_FIXED,
		    (void *)to.addr) == (void *)to.addr);
	map_at(m, from, PROT_NONE, MAP_FIXED_NOREPLACE);
	became(m, from, false);
	became(m, to, true);
}

static void do_advise(struct model *m)
{
	struct pn_range r = pages(m, 16);

	if (!same_since(m, r, UINT64_MAX))
		return;
	announce(m, r);
	MUST(!madvise((void *)r.addr, r.len, MADV_DONTNEED));
	became(m, r, true);
}

/* --- functions that register with the simulated device -------------------- */

#define REMOTE                                                    \
	(PINION_ACCESS_REMOTE_READ | PINION_ACCESS_REMOTE_WRITE | \
	 PINION_ACCESS_REMOTE_ATOMIC)

static struct pn_device *below_functions(const struct model *m)
{
	return pn_sim_device(m->sim, 0);
}

static void note_asked(struct model *m, const struct held *h)
{
	if (m->nasked == m->max_asked) {
		m->max_asked = m->max_asked ? 2 * m->max_asked : 64;
		m->asked = realloc(m->asked, m->max_asked * sizeof(*m->asked));
		MUST(m->asked);
	}
	m->asked[m->nasked++] = (struct asked){ h->range, h->flags };
}

/* Remote access is for exactly the bytes of a buffer, and of all that it allows
 * each right was asked for all of them. */
static bool was_asked(const struct model *m, struct pn_range r, unsigned access)
{
	unsigned granted = 0;
	bool exact = false;

	for (size_t i = 0; i < m->nasked; i++) {
		const struct asked *a = &m->asked[i];

		exact |= a->range.addr == r.addr && a->range.len == r.len;
		if (pn_range_covers(a->range, r))
			granted |= a->access;
	}
	return exact && !(access & REMOTE & ~granted);
}

static int register_below(void *arg,
			  struct pinion_registrar_range *const *ranges,
			  unsigned n)
{
	struct model *m = arg;
	struct pn_mr *mrs[64];
	int ret;

	MUST(n <= PN_ARRAY_LEN(mrs));
	for (unsigned i = 0; i < n; i++) {
		struct pn_range r = { (uintptr_t)ranges[i]->addr,
				      ranges[i]->len };

		MUST(!(ranges[i]->access & REMOTE) ||
		     was_asked(m, r, ranges[i]->access));
		mrs[i] = calloc(1, sizeof(*mrs[i]));
		*mrs[i] = (struct pn_mr){ .addr = ranges[i]->addr,
					  .len = ranges[i]->len,
					  .access = ranges[i]->access };
	}
	ret = pn_device_register(below_functions(m), mrs, n);
	for (unsigned i = 0; i < n; i++) {
		ranges[i]->handle = mrs[i];
		ranges[i]->local_key = mrs[i]->lkey;
		ranges[i]->remote_key = mrs[i]->rkey;
		if (ret)
			free(mrs[i]);
	}
	m->nlive += ret ? 0 : n;
	return ret;
}

static int deregister_below(void *arg,
			    struct pinion_registrar_range *const *ranges,
			    unsigned n)
{
	struct model *m = arg;
	bool fail = m->fail_every && !(++m->nends % m->fail_every);
	unsigned stay = fail ? (unsigned)below(m, n + 1) : 0;

	for (unsigned i = 0; i < n; i++) {
		struct pn_mr *mr = ranges[i]->handle;

		MUST(mr->addr == ranges[i]->addr && mr->len == ranges[i]->len);
		MUST(mr->lkey == ranges[i]->local_key && !ranges[i]->status);
		/* None that is named means all of them. */
		if (fail && (!stay || i < stay)) {
			ranges[i]->status = stay ? -EBUSY : 0;
			continue;
		}
		pn_device_deregister(below_functions(m), &mr, 1);
		free(mr);
		m->nlive--;
	}
	m->result->refused_ends += fail;
	return fail ? -EBUSY : 0;
}

static void open_registrar(struct model *m)
{
	static const unsigned batches[] = { 0, 1, 3 };
	struct pinion_registrar registrar = {
		.size = sizeof(registrar),
		.arg = m,
		.register_ranges = register_below,
		.deregister_ranges = deregister_below,
		.max_batch = batches[below(m, PN_ARRAY_LEN(batches))],
	};

	if (one_in(m, 2))
		m->fail_every = 1 + (unsigned)below(m, 6);
	MUST(!pn_registrar_open(&registrar, &m->device));
}

/* --- releases during a registration --------------------------------------- */

/* What the device would do, and whose registrations are meddled with: an
 * operation of a device knows nothing of its caller. */
static const struct pn_device_ops *real_ops;
static struct model *meddler;

/* The pages are pinned, the keys are not handed out yet, and another thread
 * gives the memory back and takes it again. Whoever pins is out of luck, but
 * nobody after him may be. */
static int register_and_meddle(struct pn_device *device,
			       struct pn_mr *const *mrs, unsigned n)
{
	struct model *m = meddler;
	int ret = real_ops->reg(device, mrs, n);
	struct pn_range r;

	if (ret || !m->meddle || !one_in(m, 4))
		return ret;
	r = pn_range_pages((uintptr_t)mrs[0]->addr, mrs[0]->len, PAGE);
	announce(m, r);
	map_at(m, r, PROT_READ | PROT_WRITE, MAP_FIXED);
	became(m, r, true);
	return ret;
}

static void hook_device(struct model *m)
{
	static struct pn_device_ops hooked;

	real_ops = m->device->ops;
	hooked = *real_ops;
	hooked.reg = register_and_meddle;
	m->device->ops = &hooked;
	meddler = m;
}

/* --- using pins ---------------------------------------------------------- */

static void use_segment(struct model *m, const struct held *h,
			const struct segment *segment,
			enum mover_direction direction)
{
	bool remote =
		direction == MOVER_REMOTE_IN || direction == MOVER_REMOTE_OUT;
	int status = mover_move(&m->mover, direction, &segment->keys);

	m->result->uses++;
	if (status == -ESTALE) {
		m->result->stale++;
		return;
	}
	if (remote && segment->revoked)
		MUST(status == -EACCES);
	else if (remote && h->maybe_revoked)
		MUST(status == 0 || status == -EACCES);
	else
		MUST(status == 0);
}

/* Moves the buffer's bytes through every segment, if it is still there. */
static void use(struct model *m, const struct held *h)
{
	enum mover_direction direction = below(m, MOVER_NWAYS);

	if (!mover_may(h->flags, direction))
		direction = MOVER_LOCAL_OUT;
	if (h->life != HELD || !same_since(m, h->range, h->at))
		return;
	for (unsigned i = 0; i < h->pin.nsegments; i++)
		use_segment(m, h, &h->segments[i], direction);
}

static void check_part(struct model *m, const struct held *h,
		       const struct pinion_pin_segment *segment, uintptr_t at)
{
	unsigned remote = PINION_ACCESS_REMOTE_READ |
			  PINION_ACCESS_REMOTE_WRITE |
			  PINION_ACCESS_REMOTE_ATOMIC;

	MUST((uintptr_t)segment->addr == at);
	MUST(segment->len);
	MUST(segment->local_key);
	MUST(!m->registrar || segment->len == h->range.len);
	MUST(segment->remote_key || !(h->flags & remote));
}

/* A pin is there: it must cover its buffer, and it must work. */
static void settle(struct model *m, struct held *h)
{
	uintptr_t at = h->range.addr;
	const struct pinion_pin *pin = &h->pin;
	struct pinion_pin_segment beyond;

	MUST((uintptr_t)pin->addr == at && pin->len == h->range.len);
	MUST(pin->nsegments && (pin->nsegments == 1) == !!pin->local_key);
	h->segments = calloc(pin->nsegments, sizeof(*h->segments));
	MUST(h->segments);
	for (unsigned i = 0; i < pin->nsegments; i++) {
		struct pinion_pin_segment *keys = &h->segments[i].keys;

		MUST(!pn_cache_pin_segment(pin, i, keys));
		check_part(m, h, keys, at);
		at += keys->len;
	}
	MUST(at == h->range.addr + h->range.len);
	MUST(pn_cache_pin_segment(pin, pin->nsegments, &beyond) == -EINVAL);
	if (m->registrar) {
		const struct pn_mr *mr = pin->handle;

		MUST(mr->lkey == pin->local_key && mr->rkey == pin->remote_key);
	} else {
		MUST(!pin->handle);
	}
	h->life = HELD;
	m->result->pins++;
	use(m, h);
}

/* --- what a pin may answer ----------------------------------------------- */

/* After giving up all that is not in use there is still too little. */
static bool short_of_room(struct model *m, size_t npages)
{
	pn_cache_flush(m->cache);
	return atomic_load(&m->budget.bytes) + npages * PAGE >
		       atomic_load(&m->budget.max_bytes) ||
	       atomic_load(&m->budget.regions) + npages >
		       atomic_load(&m->budget.max_regions);
}

static void check_answer(struct model *m, int ret, bool mapped, size_t npages)
{
	if (ret == -ENOBUFS) {
		m->result->refused++;
		if (m->injected != -ENOMEM && !m->fail_every && one_in(m, 2))
			MUST(short_of_room(m, npages));
	} else if (ret == -EFAULT) {
		m->result->faults++;
		MUST(!mapped || m->injected == -EFAULT);
	} else if (m->deaf && !ret && !mapped) {
		m->result->stale++; /* cached, though there is nothing */
	} else {
		MUST(ret == 0 && mapped);
	}
}

static size_t npages_of(struct pn_range r)
{
	return pn_range_pages(r.addr, r.len, PAGE).len / PAGE;
}

/* Some pin in that state; NULL: there is none. */
static struct held *some(struct model *m, enum pin_life life)
{
	size_t start = below(m, NHELD);

	for (size_t i = 0; i < NHELD; i++) {
		struct held *h = &m->held[(start + i) % NHELD];

		if (h->life == life)
			return h;
	}
	return NULL;
}

static void prepare(struct model *m, struct held *h, unsigned with)
{
	*h = (struct held){ .range = m->registrar && one_in(m, 3)
					     ? small_bytes(m)
					     : bytes(m),
			    .flags = with,
			    .at = m->tick };
	if (m->registrar)
		note_asked(m, h);
}

static void do_pin(struct model *m)
{
	struct held *h = some(m, NOT_THERE);
	int ret;

	if (!h)
		return;
	prepare(m, h, flags(m));
	ret = pn_cache_pin(m->cache, (void *)h->range.addr, h->range.len,
			   h->flags, &h->pin);
	check_answer(m, ret, same_since(m, h->range, UINT64_MAX),
		     npages_of(h->range));
	if (!ret)
		settle(m, h);
}

static void do_pin_list(struct model *m)
{
	struct pinion_pin pins[LIST];
	struct held *places[LIST];
	struct iovec list[LIST];
	unsigned n = 0, with = flags(m);
	size_t npages = 0;
	bool mapped = true;
	int ret;

	for (unsigned i = 0; i < LIST; i++) {
		struct held *h = some(m, NOT_THERE);

		if (!h || (n && h <= places[n - 1]))
			continue; /* each place once */
		prepare(m, h, with);
		list[n] = (struct iovec){ (void *)h->range.addr, h->range.len };
		npages += npages_of(h->range);
		mapped &= same_since(m, h->range, UINT64_MAX);
		places[n++] = h;
	}
	ret = pn_cache_pin_list(m->cache, list, n, with, pins);
	check_answer(m, ret, mapped, npages);
	for (unsigned i = 0; i < n && !ret; i++) {
		places[i]->pin = pins[i];
		settle(m, places[i]);
	}
}

static void do_start(struct model *m)
{
	struct held *h = some(m, NOT_THERE);
	int ret;

	if (!h)
		return;
	prepare(m, h, flags(m));
	ret = pn_cache_pin_start(m->cache, (void *)h->range.addr, h->range.len,
				 h->flags, &h->pin);
	if (ret == -EINPROGRESS) {
		h->life = STARTED;
		return;
	}
	check_answer(m, ret, same_since(m, h->range, UINT64_MAX),
		     npages_of(h->range));
	if (!ret)
		settle(m, h);
}

/* Memory that went meanwhile makes both answers right, and a pin that is of
 * no use. */
static void finish(struct model *m, struct held *h, int ret)
{
	bool same = same_since(m, h->range, h->at);

	h->life = NOT_THERE;
	if (ret == -ENOBUFS)
		m->result->refused++; /* some time ago */
	else if (same)
		check_answer(m, ret, true, npages_of(h->range));
	else
		MUST(ret == 0 || ret == -EFAULT);
	if (!ret)
		settle(m, h);
}

static void do_finish(struct model *m)
{
	struct held *h = some(m, STARTED);
	int ret;

	if (!h)
		return;
	ret = one_in(m, 3) ? pn_cache_pin_test(m->cache, &h->pin)
			   : pn_cache_pin_wait(m->cache, &h->pin);
	if (ret != -EINPROGRESS)
		finish(m, h, ret);
}

static void unpin(struct model *m, struct held *h)
{
	use(m, h);
	pn_cache_unpin(m->cache, &h->pin);
	free(h->segments);
	h->segments = NULL;
	h->life = NOT_THERE;
}

static void do_unpin(struct model *m)
{
	struct held *h = some(m, HELD);

	if (h)
		unpin(m, h);
}

static void do_use(struct model *m)
{
	struct held *h = some(m, HELD);

	if (h)
		use(m, h);
}

/* --- what a program may ask for besides ---------------------------------- */

static void do_invalidate(struct model *m)
{
	struct pn_range r = bytes(m);

	pn_cache_invalidate(m->cache, r.addr, r.len);
}

static void do_flush(struct model *m)
{
	pn_cache_flush(m->cache);
}

static void note_revoked(struct held *h, struct pn_range r)
{
	h->maybe_revoked = true;
	for (unsigned i = 0; h->life == HELD && i < h->pin.nsegments; i++) {
		const struct pinion_pin_segment *keys = &h->segments[i].keys;
		struct pn_range segment = { (uintptr_t)keys->addr, keys->len };

		h->segments[i].revoked |= pn_range_overlaps(r, segment);
	}
}

static void do_revoke(struct model *m)
{
	struct pn_range r = bytes(m);

	if (m->registrar) {
		int ret = pn_cache_revoke(m->cache, r.addr, r.len);

		/* What is in use cannot get another key. */
		MUST(ret == 0 || ret == -EBUSY);
		return;
	}
	MUST(!pn_cache_revoke(m->cache, r.addr, r.len));
	for (unsigned i = 0; i < NHELD; i++)
		note_revoked(&m->held[i], r);
}

static void do_resize(struct model *m)
{
	pn_budget_resize(&m->budget, (4 + below(m, 400)) * PAGE,
			 one_in(m, 2) ? 4 + below(m, 200) : 100000);
	pn_cache_trim(m->cache);
	m->over = true; /* until it has come down */
}

static void do_step(struct model *m)
{
	pn_cache_step(m->cache);
}

static void do_wait(struct model *m)
{
	pn_device_consume_cpu(pn_sim_device(m->sim, 0), below(m, 4000000));
}

static const struct deed {
	const char *name;
	unsigned weight;
	void (*fn)(struct model *m);
} deeds[] = {
	{ "pin", 60, do_pin },
	{ "pin a list", 6, do_pin_list },
	{ "start", 12, do_start },
	{ "finish", 14, do_finish },
	{ "unpin", 80, do_unpin },
	{ "use", 20, do_use },
	{ "map over", 5, do_map_over },
	{ "unmap", 3, do_unmap },
	{ "unmap and map", 6, do_unmap_and_map },
	{ "move", 2, do_move },
	{ "advise", 5, do_advise },
	{ "invalidate", 2, do_invalidate },
	{ "flush", 1, do_flush },
	{ "revoke", 1, do_revoke },
	{ "resize", 1, do_resize },
	{ "step", 6, do_step },
	{ "wait", 4, do_wait },
};

static const struct deed *choose(struct model *m)
{
	unsigned total = 0, at;
	const struct deed *deed = deeds;

	for (size_t i = 0; i < PN_ARRAY_LEN(deeds); i++)
		total += deeds[i].weight;
	at = (unsigned)below(m, total);
	while (at >= deed->weight)
		at -= deed++->weight;
	return deed;
}

/* --- a whole run --------------------------------------------------------- */

static void check_budget(struct model *m)
{
	bool fits = atomic_load(&m->budget.bytes) <=
			    atomic_load(&m->budget.max_bytes) &&
		    atomic_load(&m->budget.regions) <=
			    atomic_load(&m->budget.max_regions);

	if (fits)
		m->over = false;
	MUST(fits || m->over);
}

static void open_sim(struct model *m)
{
	static const struct {
		int error;
		const char *script;
	} faults[] = {
		{ 0, NULL },
		{ 0, NULL },
		{ -ENOMEM, "fail registrations every 3 with ENOMEM" },
		{ -ENOMEM, "fail registrations every 29 with ENOMEM" },
		{ -EFAULT, "fail registrations every 13 with EFAULT" },
	};
	unsigned i = (unsigned)below(m, PN_ARRAY_LEN(faults));

	m->injected = faults[i].error;
	MUST(!pn_sim_open("cost=ou2009", faults[i].script, &m->sim));
	m->device = pn_sim_device(m->sim, 0);
	if (m->registrar)
		open_registrar(m);
	MUST(!mover_open(&m->mover, pn_sim_device(m->sim, 0),
			 MAX_PAGES * PAGE));
}

static void open_cache(struct model *m)
{
	static const char *const policies[] = { "lru",	  "fmrd", "mre",
						"greedy", "keep", "cost" };
	static const size_t region_pages[] = { 0, 2, 5, 16 };
	static const unsigned batches[] = { 1, 4, 32 };
	struct pn_cache_attr attr = {
		.device = m->device,
		.budget = &m->budget,
		.policy = policies[below(m, PN_ARRAY_LEN(policies))],
		.max_region_bytes = region_pages[below(m, 4)] * PAGE,
		.batch = batches[below(m, PN_ARRAY_LEN(batches))],
		.no_merge = one_in(m, 2),
		.no_monitor = !m->watched,
		.no_worker = true,
		.batch_age_ns = m->registrar ? 1 + below(m, 100000) : 0,
	};
	size_t npages = one_in(m, 2) ? 10 * NPAGES : 8 + below(m, 100);

	pn_budget_init(&m->budget, m->device, npages * PAGE, 0, 1);
	MUST(!pn_cache_open(&attr, &m->cache));
}

/* What other threads map (a sanitizer's do) must not land in a hole of the area
 * before the model fills it again. */
static void open_area(struct model *m)
{
	char *all = map_below(NPAGES * PAGE);

	MUST(all != MAP_FAILED);
	m->area = all;
	for (unsigned i = 0; i < NPAGES; i++)
		m->pages[i].mapped = true;
}

static bool monitor_sees_all(void)
{
	struct pn_monitor_report report;

	pn_monitor_report(&report);
	return report.mode == PN_MONITOR_PATCH ||
	       report.mode == PN_MONITOR_USERFAULTFD;
}

static void count(struct model *m)
{
	struct pinion_cache_stats stats;

	pn_cache_query(m->cache, &stats);
	m->result->hits += stats.hits;
	m->result->invalidations += stats.invalidations;
	MUST(m->result->stale >= pn_sim_stale_uses(m->sim) || m->deaf);
}

/* Everything is given back. */
static void close_all(struct model *m)
{
	struct pn_pinned pinned;

	m->doing = "close";
	m->meddle = false;
	m->device->ops = real_ops;
	for (unsigned i = 0; i < NHELD; i++) {
		struct held *h = &m->held[i];

		if (h->life == STARTED)
			finish(m, h, pn_cache_pin_wait(m->cache, &h->pin));
		if (h->life == HELD)
			unpin(m, h);
	}
	count(m);
	m->fail_every = 0;
	pn_cache_close(m->cache);
	MUST(!atomic_load(&m->budget.bytes));
	MUST(!atomic_load(&m->budget.regions));
	pn_device_pinned(below_functions(m), &pinned);
	MUST(pinned.mrs == 1); /* the mover's */
	if (m->registrar) {
		MUST(!m->nlive);
		pn_device_pinned(m->device, &pinned);
		MUST(!pinned.mrs && !pinned.live_bytes);
		pn_device_close(m->device);
	}
	free(m->asked);
	mover_close(&m->mover);
	pn_sim_close(m->sim);
	munmap(m->area, NPAGES * PAGE);
}

void cache_model_run(const struct cache_model_attr *attr, unsigned operations,
		     struct cache_model_result *result)
{
	struct choices *choices = attr->choices;
	struct model *m = calloc(1, sizeof(*m));

	m->choices = choices;
	m->result = result;
	m->deaf = attr->deaf;
	m->registrar = attr->registrar;
	m->watched = !attr->deaf && !attr->announced && monitor_sees_all();
	m->doing = "open";
	open_sim(m);
	open_cache(m);
	open_area(m);
	hook_device(m);
	m->meddle = one_in(m, 2);
	for (unsigned i = 0; i < operations; i++) {
		const struct deed *deed = choose(m);

		if (choices->bytes && !choices->left)
			break;
		m->doing = deed->name;
		deed->fn(m);
		pn_cache_check(m->cache);
		check_budget(m);
		result->operations++;
	}
	close_all(m);
	free(m);
}
