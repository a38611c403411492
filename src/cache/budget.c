/* SPDX-License-Identifier: BSD-2-Clause */
#include "cache/budget.h"

#include <stdint.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"

/* A value of refresh_ns: some thread is reading the limits; smaller values are
 * times. */
#define REFRESHING (PN_FOREVER - 1)

#define MIB(bytes) ((bytes) >> 20)

/* The process's budget. */
static struct {
	/* Held while limits are read, so that the last reader publishes last;
	 * taken before lock. */
	struct pn_mutex deriving;
	struct pn_mutex lock;
	struct pn_list members;	    /* lock */
	unsigned nmembers;	    /* lock */
	_Atomic unsigned ndeferred; /* members whose kernel uncharges late */
	const char *derived_from;   /* lock */
	size_t raised_to;	    /* deriving; as logged last */
	/* deriving: what the system's limits gave last, and from which of the
	 * devices' limits; nreads counts the readings. */
	struct pn_derive derived_with;
	size_t derived_bytes;
	const char *derived_why;
	unsigned nreads;
	_Atomic size_t max_bytes, bytes, peak_bytes, deferred_bytes;
	_Atomic uint64_t refresh_ns; /* as in struct pn_budget */
	struct pn_account account;
	struct pn_sharers sharers;
} process;

static void sharers_init(struct pn_sharers *sharers) PN_NO_THREAD_SAFETY
{
	pn_mutex_init(&sharers->lock);
	pn_list_init(&sharers->caches);
	pn_assert(!pthread_cond_init(&sharers->left, NULL));
}

/* Also in a forked child, whatever the other threads of the parent held. */
static void process_init(void) PN_NO_THREAD_SAFETY
{
	pn_mutex_init(&process.deriving);
	pn_mutex_init(&process.lock);
	pn_list_init(&process.members);
	process.nmembers = 0;
	process.raised_to = 0;
	process.nreads = 0;
	atomic_store(&process.ndeferred, 0);
	atomic_store(&process.max_bytes, 0);
	atomic_store(&process.bytes, 0);
	atomic_store(&process.peak_bytes, 0);
	atomic_store(&process.deferred_bytes, 0);
	atomic_store(&process.refresh_ns, PN_FOREVER);
	pn_account_init(&process.account, 0);
	sharers_init(&process.sharers);
}

static void process_begin(void)
{
	process_init();
	pn_process_atfork(NULL, NULL, process_init);
}

/* --- limits --------------------------------------------------------------- */

static void add_limits(struct pn_derive *from, const struct pn_budget *budget)
{
	for (unsigned i = 0; i < budget->ndevices; i++)
		pn_derive_add(from, &budget->devices[i]->limits);
}

static bool is_shared(const struct pn_derive *from)
{
	return from->by_user && from->hard != SIZE_MAX;
}

/* What the members of the process ask for. */
struct terms {
	struct pn_derive from;
	size_t given;	/* SIZE_MAX: not */
	size_t largest; /* cap */
	size_t sum;	/* of caps; SIZE_MAX: not all have one */
};

static void read_terms(struct terms *terms)
{
	bool unlimited = false;
	struct pn_list *pos;

	*terms = (struct terms){ .from = { .hard = SIZE_MAX, .nprocesses = 1 },
				 .given = SIZE_MAX };
	pn_lock(&process.lock);
	pn_list_for_each (pos, &process.members) {
		const struct pn_budget *budget =
			pn_container_of(pos, struct pn_budget, member);
		size_t max = atomic_load(&budget->max_bytes);

		add_limits(&terms->from, budget);
		if (budget->nprocesses > terms->from.nprocesses)
			terms->from.nprocesses = budget->nprocesses;
		if (budget->process_max_bytes)
			terms->given = pn_min_size(terms->given,
						   budget->process_max_bytes);
		if (budget->capped && max > terms->largest)
			terms->largest = max;
		if (!budget->capped ||
		    __builtin_add_overflow(terms->sum, max, &terms->sum))
			unlimited = true;
	}
	pn_unlock(&process.lock);
	if (unlimited)
		terms->sum = SIZE_MAX;
}

/* Sets the budget of the process; members without a cap follow. What the kernel
 * charges stays below the sum of the caps, too. */
static void publish(size_t max_bytes, size_t sum, const char *derived_from)
{
	struct pn_list *pos;

	pn_lock(&process.lock);
	process.derived_from = derived_from;
	atomic_store(&process.max_bytes, max_bytes);
	atomic_store(&process.account.max_bytes, pn_min_size(max_bytes, sum));
	pn_list_for_each (pos, &process.members) {
		struct pn_budget *budget =
			pn_container_of(pos, struct pn_budget, member);

		atomic_store(&budget->process_limit, max_bytes);
		if (budget->capped)
			continue;
		budget->derived_from = derived_from;
		atomic_store(&budget->max_bytes, max_bytes);
	}
	pn_unlock(&process.lock);
}

static void log_raised(size_t derived, size_t raised)
{
	if (process.raised_to == raised)
		return;
	process.raised_to = raised;
	if (raised)
		pn_info("max_bytes of a context raises the process's budget of "
			"pinned memory from %zu to %zu MiB",
			MIB(derived), MIB(raised));
}

/* Reading the system's limits goes through /proc, and through the processes of
 * the user where they share a limit. A context that closes changes nothing
 * there: what was read last serves again, if the other contexts' devices have
 * the same limits as all had together. */
static size_t derive_bytes(const struct pn_derive *from, bool read_again,
			   const char **why)
{
	const struct pn_derive *last = &process.derived_with;

	if (read_again || !process.nreads || from->hard != last->hard ||
	    from->by_user != last->by_user ||
	    from->nprocesses != last->nprocesses) {
		process.derived_with = *from;
		process.derived_bytes =
			pn_derive_bytes(from, &process.derived_why);
		process.nreads++;
	}
	*why = process.derived_why;
	return process.derived_bytes;
}

static void derive_process(bool read_again)
{
	const char *why = "process_max_bytes of a context";
	uint64_t never = PN_FOREVER;
	size_t max, raised;
	struct terms terms;

	pn_lock(&process.deriving);
	read_terms(&terms);
	max = terms.given;
	if (max == SIZE_MAX) {
		max = derive_bytes(&terms.from, read_again, &why);
		raised = pn_min_size(terms.largest, terms.from.hard);
		log_raised(max, raised > max ? raised : 0);
		if (raised > max) {
			max = raised;
			why = "the largest max_bytes of a context";
		}
	}
	publish(max, terms.sum, why);
	if (terms.given != SIZE_MAX || !is_shared(&terms.from))
		atomic_store(&process.refresh_ns, PN_FOREVER);
	else
		atomic_compare_exchange_strong(&process.refresh_ns, &never,
					       pn_clock_ns() + PN_NS_PER_S);
	pn_unlock(&process.deriving);
}

static void derive_own(struct pn_budget *budget)
{
	struct pn_derive from = { .hard = SIZE_MAX,
				  .nprocesses = budget->nprocesses };
	size_t max_bytes;

	add_limits(&from, budget);
	max_bytes = pn_derive_bytes(&from, &budget->derived_from);
	atomic_store(&budget->max_bytes, max_bytes);
	atomic_store(&budget->account->max_bytes, max_bytes);
}

/* --- life ----------------------------------------------------------------- */

static size_t most_regions(const struct pn_budget *budget)
{
	size_t most = 0;

	for (unsigned i = 0; i < budget->ndevices; i++)
		if (__builtin_add_overflow(most,
					   budget->devices[i]->limits.max_mrs,
					   &most))
			return SIZE_MAX;
	return most;
}

/* A number of regions that was the limit of the devices grows with them. A
 * device may have registered something before it had an account, to test the
 * kernel: that may be late. */
void pn_budget_add(struct pn_budget *budget, struct pn_device *device)
{
	size_t before = most_regions(budget);
	struct pn_pinned pinned;

	pn_assert(budget->ndevices < PN_RAILS_MAX);
	budget->devices[budget->ndevices++] = device;
	if (atomic_load(&budget->max_regions) == before)
		atomic_store(&budget->max_regions, most_regions(budget));
	device->account = budget->account;
	if (!device->limits.deferred_uncharge)
		return;
	pn_device_pinned(device, &pinned);
	if (pinned.deferred_bytes)
		pn_account_defer_uncharge(device->account,
					  pinned.deferred_bytes,
					  pn_clock_ns() + 3 * PN_NS_PER_S);
}

static void init(struct pn_budget *budget, size_t max_bytes,
		 unsigned nprocesses)
{
	*budget = (struct pn_budget){ .nprocesses = nprocesses };
	sharers_init(&budget->own_sharers);
	budget->sharers = &budget->own_sharers;
	if (!nprocesses)
		budget->nprocesses = pn_derive_processes();
	atomic_init(&budget->refresh_ns, PN_FOREVER);
	atomic_init(&budget->max_bytes, max_bytes);
	pn_account_init(&budget->own_account, max_bytes);
	budget->account = &budget->own_account;
}

static void limit_regions(struct pn_budget *budget, size_t max_regions)
{
	if (max_regions)
		atomic_store(&budget->max_regions,
			     pn_min_size(max_regions, most_regions(budget)));
}

void pn_budget_init(struct pn_budget *budget, struct pn_device *device,
		    size_t max_bytes, size_t max_regions, unsigned nprocesses)
{
	struct pn_derive from = { .hard = SIZE_MAX };

	init(budget, max_bytes, nprocesses);
	pn_budget_add(budget, device);
	limit_regions(budget, max_regions);
	if (max_bytes)
		return;
	derive_own(budget);
	add_limits(&from, budget);
	if (is_shared(&from))
		atomic_store(&budget->refresh_ns, pn_clock_ns() + PN_NS_PER_S);
}

/* Whether the kernel uncharges late for a device: then other members look at
 * it, too. */
static bool may_defer(const struct pn_budget *budget)
{
	for (unsigned i = 0; i < budget->ndevices; i++)
		if (budget->devices[i]->limits.deferred_uncharge)
			return true;
	return false;
}

static void join(struct pn_budget *budget, const struct pn_budget_attr *attr)
{
	budget->in_process = true;
	budget->sharers = &process.sharers;
	budget->process_max_bytes = attr->process_max_bytes;
	budget->capped = attr->max_bytes;
	pn_lock(&process.lock);
	pn_list_append(&process.members, &budget->member);
	process.nmembers++;
	atomic_fetch_add(&process.ndeferred, may_defer(budget));
	pn_unlock(&process.lock);
	derive_process(true);
}

void pn_budget_open(struct pn_budget *budget, const struct pn_budget_attr *attr)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	bool real = !(attr->devices[0]->caps & PN_CAP_VIRTUAL_TIME);

	pthread_once(&once, process_begin);
	if (!real) {
		pn_budget_init(budget, attr->devices[0], attr->max_bytes,
			       attr->max_regions, attr->nprocesses);
	} else {
		init(budget, attr->max_bytes, attr->nprocesses);
		budget->account = &process.account;
		pn_budget_add(budget, attr->devices[0]);
	}
	for (unsigned i = 1; i < attr->ndevices; i++)
		pn_budget_add(budget, attr->devices[i]);
	limit_regions(budget, attr->max_regions);
	if (real)
		join(budget, attr);
}

static void set_deferred(struct pn_budget *budget, size_t deferred)
{
	size_t before = atomic_exchange(&budget->deferred_bytes, deferred);

	if (budget->in_process)
		atomic_fetch_add(&process.deferred_bytes, deferred - before);
}

void pn_budget_close(struct pn_budget *budget)
{
	bool others;

	if (!budget->in_process)
		return;
	pn_lock(&process.lock);
	pn_list_remove(&budget->member);
	others = --process.nmembers;
	atomic_fetch_sub(&process.ndeferred, may_defer(budget));
	pn_unlock(&process.lock);
	atomic_fetch_sub(&process.bytes, atomic_exchange(&budget->bytes, 0));
	set_deferred(budget, 0);
	budget->in_process = false;
	if (others)
		derive_process(false);
}

/* --- refreshing ----------------------------------------------------------- */

/* One thread at a time, and for at most a hundredth of the time: there may be
 * thousands of processes. */
static void refresh_limit(struct pn_budget *budget,
			  _Atomic uint64_t *refresh_ns)
{
	uint64_t start = pn_clock_ns(), due = atomic_load(refresh_ns);
	uint64_t took;

	if (start < due ||
	    !atomic_compare_exchange_strong(refresh_ns, &due, REFRESHING))
		return;
	if (budget->in_process)
		derive_process(true);
	else
		derive_own(budget);
	took = pn_clock_ns() - start;
	took = took * 100 > PN_NS_PER_S ? took * 100 : PN_NS_PER_S;
	due = REFRESHING;
	/* A resize meanwhile has precedence. */
	atomic_compare_exchange_strong(refresh_ns, &due, start + took);
}

static _Atomic uint64_t *refresh_time(struct pn_budget *budget)
{
	return budget->in_process ? &process.refresh_ns : &budget->refresh_ns;
}

void pn_budget_pin_failed(struct pn_budget *budget)
{
	_Atomic uint64_t *refresh_ns = refresh_time(budget);
	uint64_t due = atomic_load(refresh_ns);

	if (due < REFRESHING)
		atomic_compare_exchange_strong(refresh_ns, &due, 0);
}

static void refresh_deferred(struct pn_budget *budget)
{
	struct pn_pinned pinned;
	size_t deferred = 0;

	for (unsigned i = 0; i < budget->ndevices; i++) {
		pn_device_pinned(budget->devices[i], &pinned);
		deferred += pinned.deferred_bytes;
	}
	set_deferred(budget, deferred);
}

/* Members that register nothing do not refresh themselves. */
static void refresh_members(void)
{
	struct pn_list *pos;

	pn_lock(&process.lock);
	pn_list_for_each (pos, &process.members)
		refresh_deferred(
			pn_container_of(pos, struct pn_budget, member));
	pn_unlock(&process.lock);
}

void pn_budget_refresh(struct pn_budget *budget)
{
	_Atomic uint64_t *refresh_ns = refresh_time(budget);

	if (pn_unlikely(atomic_load_explicit(refresh_ns, memory_order_relaxed) <
			REFRESHING))
		refresh_limit(budget, refresh_ns);
	if (budget->in_process && atomic_load(&process.ndeferred))
		refresh_members();
	else
		refresh_deferred(budget);
}

bool pn_budget_needs_refresh(const struct pn_budget *budget)
{
	const _Atomic uint64_t *refresh_ns =
		budget->in_process ? &process.refresh_ns : &budget->refresh_ns;

	return atomic_load_explicit(refresh_ns, memory_order_relaxed) <
		       REFRESHING ||
	       (budget->in_process && atomic_load(&process.ndeferred)) ||
	       may_defer(budget);
}

/* --- charging ------------------------------------------------------------- */

/* Adds n to *used unless that exceeds max - reserve. */
static bool add_below(_Atomic size_t *used, size_t n, size_t max,
		      size_t reserve)
{
	size_t now = atomic_load_explicit(used, memory_order_relaxed);

	do {
		if (now > max || reserve > max - now || n > max - now - reserve)
			return false;
	} while (!atomic_compare_exchange_weak(used, &now, now + n));
	return true;
}

static void update_peak(_Atomic size_t *peak_bytes, const _Atomic size_t *bytes)
{
	size_t now = atomic_load(bytes), peak = atomic_load(peak_bytes);

	while (now > peak &&
	       !atomic_compare_exchange_weak(peak_bytes, &peak, now))
		;
}

static bool charge_process(size_t bytes)
{
	if (!add_below(&process.bytes, bytes, atomic_load(&process.max_bytes),
		       atomic_load(&process.deferred_bytes)))
		return false;
	update_peak(&process.peak_bytes, &process.bytes);
	return true;
}

bool pn_budget_charge(struct pn_budget *budget, size_t bytes, size_t regions)
{
	if (!add_below(&budget->bytes, bytes, atomic_load(&budget->max_bytes),
		       atomic_load(&budget->deferred_bytes)))
		return false;
	if (!add_below(&budget->regions, regions,
		       atomic_load(&budget->max_regions), 0))
		goto uncharge_bytes;
	if (budget->in_process && !charge_process(bytes))
		goto uncharge_regions;
	update_peak(&budget->peak_bytes, &budget->bytes);
	return true;

uncharge_regions:
	atomic_fetch_sub(&budget->regions, regions);
uncharge_bytes:
	atomic_fetch_sub(&budget->bytes, bytes);
	return false;
}

void pn_budget_uncharge(struct pn_budget *budget, size_t bytes, size_t regions)
{
	if (budget->in_process)
		atomic_fetch_sub(&process.bytes, bytes);
	atomic_fetch_sub(&budget->bytes, bytes);
	atomic_fetch_sub(&budget->regions, regions);
}

static size_t missing(const _Atomic size_t *used, size_t n,
		      const _Atomic size_t *max)
{
	size_t now = atomic_load(used), most = atomic_load(max);

	return now + n > most ? now + n - most : 0;
}

struct pn_shortage pn_budget_shortage(const struct pn_budget *budget,
				      size_t bytes, size_t regions)
{
	struct pn_shortage shortage = {
		.bytes = missing(&budget->bytes, bytes, &budget->max_bytes),
		.regions = missing(&budget->regions, regions,
				   &budget->max_regions),
	};

	if (budget->in_process)
		shortage.process_bytes =
			missing(&process.bytes, bytes, &process.max_bytes);
	return shortage;
}

bool pn_budget_could_fit(const struct pn_budget *budget, size_t bytes,
			 size_t regions)
{
	return bytes <= atomic_load(&budget->max_bytes) &&
	       regions <= atomic_load(&budget->max_regions) &&
	       (!budget->in_process ||
		bytes <= atomic_load(&process.max_bytes));
}

static size_t left(size_t max, size_t bytes, size_t deferred)
{
	return bytes < max && deferred < max - bytes ? max - bytes - deferred
						     : 0;
}

size_t pn_budget_others(const struct pn_budget *budget, size_t own_bytes)
{
	size_t max = atomic_load(&budget->max_bytes);
	size_t bytes = atomic_load(&budget->bytes);
	size_t deferred = atomic_load(&budget->deferred_bytes);
	size_t beyond = 0, process_left;

	if (budget->in_process) {
		process_left = left(atomic_load(&process.max_bytes),
				    atomic_load(&process.bytes),
				    atomic_load(&process.deferred_bytes));
		max = left(max, bytes, deferred);
		beyond = max > process_left ? max - process_left : 0;
	}
	return bytes + deferred + beyond - own_bytes;
}

static void set_cap(struct pn_budget *budget, size_t max_bytes)
{
	pn_lock(&process.lock);
	budget->capped = true;
	budget->derived_from = NULL;
	atomic_store(&budget->max_bytes, max_bytes);
	pn_unlock(&process.lock);
	derive_process(true);
}

void pn_budget_resize(struct pn_budget *budget, size_t max_bytes,
		      size_t max_regions)
{
	limit_regions(budget, max_regions);
	if (max_bytes && budget->in_process) {
		set_cap(budget, max_bytes);
	} else if (max_bytes) {
		atomic_store(&budget->refresh_ns, PN_FOREVER);
		atomic_store(&budget->max_bytes, max_bytes);
		atomic_store(&budget->account->max_bytes, max_bytes);
	}
}

void pn_budget_process(struct pn_budget_process *out)
{
	*out = (struct pn_budget_process){
		.max_bytes = atomic_load(&process.max_bytes),
		.bytes = atomic_load(&process.bytes),
		.peak_bytes = atomic_load(&process.peak_bytes),
		.deferred_bytes = atomic_load(&process.deferred_bytes),
		.charged_bytes = pn_account_bytes(&process.account),
	};
	pn_lock(&process.lock);
	out->nmembers = process.nmembers;
	out->derived_from = process.derived_from;
	pn_unlock(&process.lock);
	pn_lock(&process.deriving);
	out->nreads = process.nreads;
	pn_unlock(&process.deriving);
}
