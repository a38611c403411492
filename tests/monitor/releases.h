/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * releases -- every kind of release, one row each.
 *
 * A row prepares memory that holds `target`, and releases it later. Then the
 * memory can be mapped again. The row cleans up what is left.
 */
#ifndef PN_TESTS_MONITOR_RELEASES_H
#define PN_TESTS_MONITOR_RELEASES_H

#include <stdbool.h>
#include <stddef.h>

#include "monitor/monitor.h"

struct scene {
	char *base;
	char *other; /* a second mapping, or NULL */
	int id;
	char *target; /* what will be released */
	size_t len;
	bool mapped_again;
};

struct release_case {
	const char *name;
	enum pn_release_kind kind; /* what the report calls it */
	bool exact;		   /* the notified range is the target */
	/* false: not possible here. */
	bool (*prepare)(struct scene *scene);
	/* false: this system refuses. */
	bool (*release)(struct scene *scene);
	void (*clean)(struct scene *scene); /* may be NULL */
};

extern const struct release_case release_cases[];
extern const size_t nrelease_cases;

/* Makes the addresses of the released target usable again, with new pages.
 * False: an allocator, or another thread, has them. */
bool release_map_again(const struct release_case *c, struct scene *s);
void release_clean(const struct release_case *c, struct scene *s);
/* Whether copies of the memory are right in this build, too. A sanitizer's
 * allocator decides when pages go; and the monitor is userfaultfd then, which
 * has no event for guard pages (doc/design/monitor.md). */
bool release_is_noticed(const struct release_case *c);

#endif
