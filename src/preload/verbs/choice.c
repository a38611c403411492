/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether a registration with remote access gets the key of a window.
 *
 * Registering and deregistering costs a line over pages, the key of a window
 * two binds in memory that stays registered. Both are measured as the program
 * goes along. A window pays where the line is above two binds, and only in
 * memory that comes again: a buffer's first window takes a registration, too.
 * Whether a buffer comes again shows when the same bytes are asked for a second
 * time. If they were released in between, each time takes a registration and
 * two binds: then the buffer has to come more and more often before it gets a
 * window.
 */
#include <stdlib.h>

#include "base/range.h"
#include "preload/verbs/preload.h"

#define NBUFFERS 1024

/* So many buffers come again before windows are opened, which takes a queue
 * pair: by then there are registrations enough for a line. */
#define MIN_REUSES 8

/* Two binds pay if they take less than four fifths of registering. */
#define GAIN 1.25

#define MAX_WANTED 1000

struct pn_ibv_buffer {
	uint64_t key;
	uint16_t seen;	 /* since its last window, or ever */
	uint16_t wanted; /* how often it has to be seen before it gets one */
	bool has_window; /* had one, and is registered since */
};

/* How many registrations this thread has made. */
static _Thread_local unsigned nregistered;

void pn_ibv_choice_init(struct pn_ibv_choice *choice)
{
	pn_mutex_init(&choice->lock);
	pn_cost_estimate_init(&choice->reg, &choice->reg_ns,
			      &choice->reg_page_ns);
	pn_cost_estimate_init(&choice->dereg, &choice->dereg_ns,
			      &choice->dereg_page_ns);
	pn_cost_estimate_init(&choice->bind, &choice->bind_ns,
			      &choice->bind_page_ns);
}

void pn_ibv_choice_fini(struct pn_ibv_choice *choice)
{
	pn_cost_estimate_fini(&choice->reg);
	pn_cost_estimate_fini(&choice->dereg);
	pn_cost_estimate_fini(&choice->bind);
	pn_mutex_fini(&choice->lock);
	free(choice->buffers);
}

static size_t pages_of(const void *addr, size_t len)
{
	return pn_range_npages((uintptr_t)addr, len);
}

void pn_ibv_choice_registered(struct pn_ibv_choice *choice, const void *addr,
			      size_t len, uint64_t ns)
{
	nregistered++;
	pn_cost_estimate_add(&choice->reg, 1, pages_of(addr, len), ns);
}

void pn_ibv_choice_deregistered(struct pn_ibv_choice *choice, const void *addr,
				size_t len, uint64_t ns)
{
	pn_cost_estimate_add(&choice->dereg, 1, pages_of(addr, len), ns);
}

void pn_ibv_choice_bound(struct pn_ibv_choice *choice, uint64_t ns)
{
	pn_cost_estimate_add(&choice->bind, 1, 1, ns);
}

/* --- buffers that come again -----------------------------------------------
 */

static uint64_t key_of(const struct pn_ibv_request *r)
{
	return ((uintptr_t)r->addr * UINT64_C(0x9e3779b97f4a7c15)) ^
	       (r->len * UINT64_C(0xc2b2ae3d27d4eb4f));
}

static struct pn_ibv_buffer *entry_of(struct pn_ibv_choice *choice,
				      uint64_t key)
{
	return &choice->buffers[(key >> 32) % NBUFFERS];
}

/* Whether it has come again often enough. */
static bool comes_again_locked(struct pn_ibv_choice *choice, uint64_t key)
	PN_REQUIRES(&choice->lock)
{
	struct pn_ibv_buffer *buffer;

	if (!choice->buffers)
		choice->buffers = calloc(NBUFFERS, sizeof(*choice->buffers));
	if (!choice->buffers)
		return false;
	buffer = entry_of(choice, key);
	if (buffer->key != key)
		*buffer = (struct pn_ibv_buffer){ .key = key, .wanted = 1 };
	if (buffer->has_window || buffer->seen >= buffer->wanted) {
		choice->nreuses++;
		return true;
	}
	buffer->seen++;
	return false;
}

static double value_of(const double *at)
{
	double value;

	__atomic_load(at, &value, __ATOMIC_RELAXED);
	return value;
}

bool pn_ibv_choice_pays(const struct pn_ibv_choice *choice,
			const struct pn_ibv_request *r)
{
	double n = (double)pages_of(r->addr, r->len);
	double reg =
		value_of(&choice->reg_ns) + n * value_of(&choice->reg_page_ns);
	double dereg = value_of(&choice->dereg_ns) +
		       n * value_of(&choice->dereg_page_ns);
	double binds = 2 * (value_of(&choice->bind_ns) +
			    value_of(&choice->bind_page_ns));

	return binds > 0 && reg + dereg > GAIN * binds;
}

bool pn_ibv_choice_wants(struct pn_ibv_choice *choice,
			 const struct pn_ibv_request *r)
{
	bool wants;

	pn_lock(&choice->lock);
	wants = comes_again_locked(choice, key_of(r)) &&
		choice->nreuses >= MIN_REUSES;
	pn_unlock(&choice->lock);
	return wants;
}

unsigned pn_ibv_choice_count(void)
{
	return nregistered;
}

void pn_ibv_choice_used(struct pn_ibv_choice *choice,
			const struct pn_ibv_request *r, bool worked,
			unsigned count)
{
	uint64_t key = key_of(r);
	struct pn_ibv_buffer *buffer;

	pn_lock(&choice->lock);
	buffer = entry_of(choice, key);
	if (buffer->key != key) {
		/* Another one has taken its place. */
	} else if (!worked || (buffer->has_window && count != nregistered)) {
		buffer->has_window = false;
		buffer->seen = 0;
		buffer->wanted =
			(uint16_t)pn_min_size(2 * buffer->wanted, MAX_WANTED);
	} else {
		buffer->has_window = true;
	}
	pn_unlock(&choice->lock);
}
