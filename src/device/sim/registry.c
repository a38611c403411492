/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * registry -- registrations of a node, and what their keys allow.
 *
 * A key is a number counted up for the whole world, with the slot of its
 * registration in the lowest bits. So a look-up is one array access, the key of
 * an ended registration is never used again, and a key of another node or of
 * the other kind (lkey, rkey) is never accepted.
 *
 * Staleness is announced by pn_sim_released(), not observed. A tree finds the
 * registrations that overlap the released range, and each stores the subrange
 * whose pages are gone. This includes registrations in progress: they are in
 * the tree before the time that registering takes. Later registrations are not
 * affected, so the memory for this is bounded by what is registered.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/log.h"
#include "device/sim/sim_impl.h"

/* Stale uses that are logged; later ones are only counted. */
#define MAX_STALE_LINES 10

/* --- probing memory ------------------------------------------------------- */

/* Whether the kernel has MADV_POPULATE_* (Linux 5.14); tested once, on a page
 * of our own. The call must succeed where it can and fail where it cannot:
 * qemu's user mode ignores unknown advice and returns success. */
static bool can_populate(void)
{
	static atomic_int known; /* 0: not tested, 1: yes, -1: no */
	int state = atomic_load_explicit(&known, memory_order_relaxed);
	bool honest;
	void *page;

	if (state)
		return state > 0;
	page = mmap(NULL, PN_PAGE_BYTES, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS,
		    -1, 0);
	if (page == MAP_FAILED)
		return false;
	honest = !madvise(page, PN_PAGE_BYTES, MADV_POPULATE_READ) &&
		 madvise(page, PN_PAGE_BYTES, MADV_POPULATE_WRITE);
	state = honest ? 1 : -1;
	munmap(page, PN_PAGE_BYTES);
	atomic_store_explicit(&known, state, memory_order_relaxed);
	return state > 0;
}

/* Faults the pages in, for writing if the device is to write, as pinning them
 * would; the kernel's result says whether that is possible. Without
 * MADV_POPULATE_*, msync() says whether something is mapped. */
static int probe(const struct pn_mr *mr)
{
	struct pn_range pages =
		pn_range_pages((uintptr_t)mr->addr, mr->len, PN_PAGE_BYTES);
	void *addr = (void *)pages.addr;
	int advice = mr->access & PINION_ACCESS_LOCAL_WRITE
			     ? MADV_POPULATE_WRITE
			     : MADV_POPULATE_READ;

	if (can_populate() ? madvise(addr, pages.len, advice)
			   : msync(addr, pages.len, MS_ASYNC)) {
		pn_debug("sim: %p (%zu bytes) is not mapped%s", mr->addr,
			 mr->len,
			 advice == MADV_POPULATE_WRITE ? " writable" : "");
		return -EFAULT;
	}
	return 0;
}

/* --- slots ---------------------------------------------------------------- */

static size_t pinned_bytes(const struct pn_mr *mr)
{
	return pn_range_npages((uintptr_t)mr->addr, mr->len) << PN_PAGE_SHIFT;
}

/* Allocates room for n registrations, so that filling slots cannot fail. */
static int reserve_slots(struct pn_sim_node *node, unsigned n)
{
	size_t capacity = node->slots_capacity ? node->slots_capacity : 8;
	void *slots, *free_slots;

	while (capacity < node->nslots + n)
		capacity *= 2;
	if (capacity == node->slots_capacity)
		return 0;
	slots = realloc(node->slots, capacity * sizeof(*node->slots));
	if (!slots)
		return -ENOMEM;
	node->slots = slots;
	free_slots =
		realloc(node->free_slots, capacity * sizeof(*node->free_slots));
	if (!free_slots)
		return -ENOMEM;
	node->free_slots = free_slots;
	node->slots_capacity = capacity;
	return 0;
}

static uint64_t new_key(struct pn_sim *sim, uint32_t slot)
{
	return ++sim->last_key << PN_SIM_SLOT_BITS | slot;
}

static bool grants_peers(unsigned access)
{
	return access &
	       (PINION_ACCESS_REMOTE_READ | PINION_ACCESS_REMOTE_WRITE |
		PINION_ACCESS_REMOTE_ATOMIC);
}

/* Begins a registration: pn_sim_released() finds it, but it has no keys yet. */
static void enter(struct pn_sim_node *node, struct pn_mr *mr,
		  struct pn_sim_registration *r)
{
	struct pn_sim *sim = node->sim;
	uint32_t slot = node->nfree ? node->free_slots[--node->nfree]
				    : (uint32_t)node->nslots++;

	r->interval.range = (struct pn_range){ (uintptr_t)mr->addr, mr->len };
	r->interval.id = new_key(sim, slot);
	r->access = mr->access;
	r->born_ns = sim->now_ns;
	node->slots[slot] = r;
	pn_interval_add(&node->ranges, &r->interval);
	mr->device_slot = slot;
}

static void publish(struct pn_sim_node *node, struct pn_mr *mr)
{
	struct pn_sim *sim = node->sim;
	struct pn_sim_registration *r = node->slots[mr->device_slot];

	r->lkey = r->interval.id;
	r->rkey = grants_peers(mr->access) ? new_key(sim, mr->device_slot) : 0;
	mr->lkey = r->lkey;
	mr->rkey = r->rkey;
	pn_sim_record(sim, PN_SIM_REGISTERED, node->index, r->lkey,
		      (int64_t)mr->len);
}

static void retire(struct pn_sim_node *node, uint32_t slot)
{
	struct pn_sim_registration *r =
		slot < node->nslots ? node->slots[slot] : NULL;

	pn_assert(r);
	if (r->lkey)
		pn_sim_record(node->sim, PN_SIM_DEREGISTERED, node->index,
			      r->lkey, 0);
	pn_interval_remove(&node->ranges, &r->interval);
	node->slots[slot] = NULL;
	node->free_slots[node->nfree++] = slot;
	free(r->stale);
	free(r);
}

void pn_sim_registry_fini(struct pn_sim_node *node)
{
	for (uint32_t slot = 0; slot < node->nslots; slot++)
		if (node->slots[slot])
			retire(node, slot);
	free(node->slots);
	free(node->free_slots);
	node->slots = NULL;
	node->free_slots = NULL;
	node->nslots = node->slots_capacity = node->nfree = 0;
	node->nmrs = node->live_bytes = 0;
}

/* --- registering ---------------------------------------------------------- */

/* Returns the script's error for these n registrations, and how much longer
 * they take. */
static int scripted(struct pn_sim_node *node, unsigned n, uint64_t *delay_ns)
{
	struct pn_sim *sim = node->sim;
	int error = 0;

	*delay_ns = 0;
	for (unsigned i = 0; i < n; i++) {
		uint64_t ns;
		int ret = pn_script_registration(&sim->script, node->number,
						 ++sim->nregistrations,
						 ++node->home->nregistrations,
						 &ns);

		*delay_ns = pn_sim_after(*delay_ns, ns);
		if (!error)
			error = ret;
	}
	return error;
}

/* Counts n registrations against the limits. */
static int reserve_limits(struct pn_sim_node *node, unsigned n, size_t bytes)
{
	size_t limit =
		node->home->limit_bytes ? node->home->limit_bytes : SIZE_MAX;
	size_t live = 0;

	/* Bytes count per node, registrations per adapter. */
	for (unsigned r = 0; r < node->sim->nrails; r++)
		live += pn_sim_port(node, r)->live_bytes;
	if (n > node->sim->params.max_mrs - node->nmrs || live > limit ||
	    bytes > limit - live) {
		pn_debug("sim: node %u: %zu bytes and %zu registrations are "
			 "pinned, %zu more bytes are over the limit",
			 node->number, live, node->nmrs, bytes);
		return -ENOMEM;
	}
	node->nmrs += n;
	node->live_bytes += bytes;
	return 0;
}

static int enter_all(struct pn_sim_node *node, struct pn_mr *const *mrs,
		     unsigned n)
{
	struct pn_sim_registration *r;
	unsigned i;

	if (reserve_slots(node, n))
		return -ENOMEM;
	for (i = 0; i < n; i++) {
		r = calloc(1, sizeof(*r));
		if (!r)
			goto retire;
		enter(node, mrs[i], r);
	}
	return 0;

retire:
	while (i--)
		retire(node, mrs[i]->device_slot);
	return -ENOMEM;
}

static int register_locked(struct pn_sim_node *node, struct pn_mr *const *mrs,
			   unsigned n)
{
	size_t bytes = 0;
	uint64_t ns;
	int ret = node->dead ? -ENODEV : scripted(node, n, &ns);

	if (ret)
		return ret;
	for (unsigned i = 0; i < n; i++) {
		size_t more = pinned_bytes(mrs[i]);

		if (__builtin_add_overflow(bytes, more, &bytes))
			return -ENOMEM;
		ns = pn_sim_after(
			ns, pn_profile_register_ns(node->sim->profile,
						   more >> PN_PAGE_SHIFT));
	}
	ret = reserve_limits(node, n, bytes);
	if (ret)
		return ret;
	ret = enter_all(node, mrs, n);
	if (ret) {
		node->nmrs -= n;
		node->live_bytes -= bytes;
		return ret;
	}
	/* The pages count, and can be released, from now on; the keys exist
	 * when the time has passed. */
	pn_sim_consume_cpu(node->sim, ns);
	/* The node's death has ended its registrations. */
	if (node->dead)
		return -ENODEV;
	for (unsigned i = 0; i < n; i++)
		publish(node, mrs[i]);
	return 0;
}

int pn_sim_register(struct pn_device *device, struct pn_mr *const *mrs,
		    unsigned n)
{
	struct pn_sim_node *node = pn_sim_node_of(device);
	bool entered;
	int ret = 0;

	if (node->sim->params.data == PN_SIM_DATA_REAL)
		for (unsigned i = 0; i < n && !ret; i++)
			ret = probe(mrs[i]);
	if (ret)
		return ret;
	entered = pn_sim_enter(node->sim);
	ret = register_locked(node, mrs, n);
	pn_sim_leave(node->sim, entered);
	return ret;
}

void pn_sim_deregister(struct pn_device *device, struct pn_mr *const *mrs,
		       unsigned n)
{
	struct pn_sim_node *node = pn_sim_node_of(device);
	bool entered = pn_sim_enter(node->sim);
	size_t bytes = 0;

	for (unsigned i = 0; i < n && !node->dead; i++) {
		bytes += pinned_bytes(mrs[i]);
		retire(node, mrs[i]->device_slot);
	}
	if (bytes)
		pn_sim_consume_cpu(node->sim, pn_profile_deregister_ns(
						      node->sim->profile, n,
						      bytes >> PN_PAGE_SHIFT));
	/* The pages are pinned until the time for deregistering has passed. */
	if (!node->dead) {
		node->nmrs -= n;
		node->live_bytes -= bytes;
	}
	for (unsigned i = 0; i < n; i++)
		mrs[i]->lkey = mrs[i]->rkey = 0;
	pn_sim_leave(node->sim, entered);
}

int pn_sim_rekey(struct pn_device *device, struct pn_mr *mr)
{
	struct pn_sim_node *node = pn_sim_node_of(device);
	bool entered = pn_sim_enter(node->sim);
	struct pn_sim_registration *r;

	if (!node->dead && mr->rkey) {
		r = node->slots[mr->device_slot];
		r->rkey = mr->rkey = new_key(node->sim, mr->device_slot);
		pn_sim_record(node->sim, PN_SIM_REKEYED, node->index, r->rkey,
			      0);
	}
	pn_sim_leave(node->sim, entered);
	return 0;
}

void pn_sim_pinned(struct pn_device *device, struct pn_pinned *out)
{
	struct pn_sim_node *node = pn_sim_node_of(device);
	bool entered = pn_sim_enter(node->sim);

	*out = (struct pn_pinned){
		.live_bytes = node->live_bytes,
		.mrs = node->nmrs,
		.device_bytes = node->sim->params.inbox_bytes,
	};
	pn_sim_leave(node->sim, entered);
}

/* --- using keys ----------------------------------------------------------- */

static struct pn_sim_registration *find(struct pn_sim_node *node, uint64_t key)
{
	size_t slot = key & ((UINT64_C(1) << PN_SIM_SLOT_BITS) - 1);

	return key && slot < node->nslots ? node->slots[slot] : NULL;
}

static bool covers(const struct pn_sim_registration *r, struct pn_range range,
		   unsigned access)
{
	return pn_range_valid(range.addr, range.len) &&
	       pn_range_covers(r->interval.range, range) &&
	       (r->access & access) == access;
}

/* Counts and logs a use of pages that were released. */
static int check_stale(struct pn_sim_node *node,
		       const struct pn_sim_registration *r, uint64_t key,
		       struct pn_range range)
{
	for (unsigned i = 0; i < r->nstale; i++) {
		if (!pn_range_overlaps(r->stale[i], range))
			continue;
		if (node->sim->stale_uses++ < MAX_STALE_LINES)
			pn_error("sim: stale use at %" PRIu64 " ns: node %u, "
				 "key %#" PRIx64 " of %" PRIu64 " ns, %zu "
				 "bytes at %#" PRIxPTR ": the program released "
				 "them after registering",
				 node->sim->now_ns, node->number, key,
				 r->born_ns, range.len, range.addr);
		return -ESTALE;
	}
	return 0;
}

int pn_sim_covers_lkey(struct pn_sim_node *node, const struct pn_sge *sge,
		       unsigned access)
{
	struct pn_sim_registration *r = find(node, sge->lkey);
	struct pn_range range = { (uintptr_t)sge->addr, sge->len };

	if (!sge->len)
		return 0;
	return r && r->lkey == sge->lkey && covers(r, range, access) ? 0
								     : -EFAULT;
}

int pn_sim_check_lkey(struct pn_sim_node *node, const struct pn_sge *sge,
		      unsigned access)
{
	struct pn_range range = { (uintptr_t)sge->addr, sge->len };
	int ret = pn_sim_covers_lkey(node, sge, access);

	if (ret || !sge->len)
		return ret;
	return check_stale(node, find(node, sge->lkey), sge->lkey, range);
}

int pn_sim_check_rkey(struct pn_sim_node *node, uint64_t rkey, uint64_t addr,
		      size_t len, unsigned access)
{
	struct pn_sim_registration *r = find(node, rkey);
	struct pn_range range = { (uintptr_t)addr, len };

	if (!len)
		return 0;
	if (!r || r->rkey != rkey || !covers(r, range, access))
		return -EACCES;
	return check_stale(node, r, rkey, range);
}

/* --- releases ------------------------------------------------------------- */

/* Marks the part of a registration that lies in the released range as stale. */
static void mark_stale(struct pn_interval *interval, void *arg)
{
	struct pn_sim_registration *r =
		pn_container_of(interval, struct pn_sim_registration, interval);
	struct pn_range *stale, *released = arg;

	for (unsigned i = 0; i < r->nstale; i++)
		if (pn_range_covers(r->stale[i], *released))
			return;
	stale = realloc(r->stale, (r->nstale + 1) * sizeof(*stale));
	/* A test's oracle depends on every entry. */
	pn_assert(stale);
	r->stale = stale;
	stale[r->nstale++] = *released;
}

void pn_sim_released(struct pn_sim *sim, unsigned node, const void *addr,
		     size_t len)
{
	unsigned first = node == PN_SIM_ALL_NODES ? 0 : node;
	unsigned last = node == PN_SIM_ALL_NODES ? sim->nnodes : node + 1;
	struct pn_range range = { (uintptr_t)addr, len };
	bool entered;

	if (!pn_range_valid(range.addr, range.len))
		return;
	pn_assert(last <= sim->nnodes);
	entered = pn_sim_enter(sim);
	pn_sim_record(sim, PN_SIM_RELEASED, node, 0, (int64_t)len);
	for (unsigned i = first; i < last; i++)
		for (unsigned r = 0; r < sim->nrails; r++)
			pn_interval_visit(
				pn_sim_port(&sim->nodes[i], r)->ranges, range,
				mark_stale, &range);
	pn_sim_leave(sim, entered);
}
