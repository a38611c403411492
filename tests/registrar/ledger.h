/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ledger -- a registrar for tests that records every call.
 *
 * Each range that it registers is an entry, which is the handle. Entries are
 * not freed while the ledger lives, so the use of the handle of a deregistered
 * range is detected. An entry also records the time of its registration: a test
 * releases memory of the ledger's area by ledger_remap() or ledger_discard(),
 * and a later use of an older entry is stale.
 *
 * The functions check what pinion promises about their calls: never inside a
 * release of memory, never in a forked child, never after pinion_close()
 * returned, batches and lengths within the limits, deregistered ranges as they
 * were registered. `wrong` counts violations, and `what` describes the first
 * one; tests assert that `wrong` is 0.
 *
 * Threads: any.
 */
#ifndef PN_TESTS_REGISTRAR_LEDGER_H
#define PN_TESTS_REGISTRAR_LEDGER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include <pinion/pinion.h>

#define LEDGER_PAGE    ((size_t)4096)
#define LEDGER_PAGES   1024
#define LEDGER_FOREVER ((unsigned)-1)

struct ledger_entry {
	char *addr;
	size_t len;
	unsigned access;
	uint64_t local_key, remote_key;
	uint64_t tick; /* of the last release before it was registered */
	_Atomic bool dead;
	struct ledger_entry *older;
};

/* Which calls of a function fail: n calls from the first-th on (1 is the first
 * call; 0: none). */
struct ledger_fault {
	unsigned first, n;
	int error;
	bool names_one; /* deregister: only the first range of the call fails */
};

struct ledger {
	struct pinion_registrar registrar;
	pid_t process;
	_Atomic bool closed; /* no call is allowed any more */
	char *area;	     /* LEDGER_PAGES of memory for tests */
	_Atomic uint64_t tick;
	_Atomic uint64_t released[LEDGER_PAGES]; /* tick of the last release */

	pthread_mutex_t lock; /* protects what follows */
	struct ledger_entry *newest;
	struct ledger_fault fail_register, fail_deregister;
	unsigned nregister, nderegister; /* calls */
	unsigned nranges;		 /* registered so far */
	unsigned nlive;
	size_t live_bytes, max_live_bytes; /* of whole pages */
	unsigned max_live, longest_batch;
	unsigned wrong;
	char what[160];
	/* Whether a range is one that the test asked for; NULL: no check. */
	bool (*check_range)(struct ledger *ledger,
			    const struct pinion_registrar_range *range);
	/* Called inside the functions, without a lock; or NULL. */
	void (*inside)(struct ledger *ledger);
	void *inside_arg;
};

void ledger_init(struct ledger *ledger);
void ledger_fini(struct ledger *ledger);

/* Sets a fault, also while functions are called. */
void ledger_fail(struct ledger *ledger, struct ledger_fault *which,
		 struct ledger_fault fault);

/* Opens a context over it, with options ("name=value", NULL at the end) or
 * NULL. */
int ledger_open(struct ledger *ledger, const char *const *options,
		struct pinion_context **out);
/* Closes the context; later calls of the functions are wrong. */
void ledger_close(struct ledger *ledger, struct pinion_context *context);

/* What is wrong with using a pin now; NULL: nothing. `access` as it was pinned.
 */
const char *ledger_use(struct ledger *ledger, const struct pinion_pin *pin,
		       unsigned access);

/* Release whole pages of the area and map them anew. */
void ledger_remap(struct ledger *ledger, void *addr, size_t len);
void ledger_discard(struct ledger *ledger, void *addr, size_t len);

#endif
