/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion/helper.h -- a thread that registers buffers just before their use.
 *
 * With the option `helper` a thread beside the program deregisters the buffers
 * of long messages when they have been transferred and registers them again
 * just before the next time, as it has learned from when they were used
 * before. Programs that repeat themselves are as fast as with everything left
 * registered, and have less memory pinned.
 *
 * Uses are told apart by where in the program they come from. The helper finds
 * that out by itself, from the stack; a program (or a layer above pinion, which
 * alone knows where its own callers are) can say it instead:
 *
 *	pinion_site_set("halo x");
 *	pinion_send(...);
 *
 * Threads: any.
 */
#ifndef PINION_HELPER_H
#define PINION_HELPER_H

#include <stddef.h>
#include <stdint.h>

#include <pinion/config.h>
#include <pinion/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Names the call site of the calling thread's next messages, until it names
 * another; NULL: the helper finds the site from the stack again. Names are
 * equal when their texts are; the text is not kept. Costs some nanoseconds for
 * each character. -EPERM: in a child of _Fork() or a raw clone(); -ENOMEM. */
PINION_API int pinion_site_set(const char *name);

/* Counters since the context's first endpoint was opened, and gauges; all 0
 * without helper. */
struct pinion_helper_stats {
	size_t size;	       /* sizeof(struct pinion_helper_stats), by you */
	uint64_t calls;	       /* transfers it looked at */
	uint64_t lost;	       /* transfers that it was too slow to see */
	uint64_t first;	       /* of buffers never seen before */
	uint64_t in_time;      /* that found their buffer registered */
	uint64_t late;	       /* that came before it was registered again */
	uint64_t registered;   /* buffers, ahead of their use */
	uint64_t deregistered; /* buffers, after a transfer */
	uint64_t kept;	    /* buffers left registered: needed again too soon */
	uint64_t expired;   /* not used when expected: deregistered */
	uint64_t in_use;    /* by another transfer, so left alone */
	uint64_t irregular; /* transfers of sites without a rhythm, whose
			     * buffers are left to the cache */
	uint64_t refused;   /* registrations that failed */
	uint64_t buffers, sites; /* buffers and call sites known now */
	uint64_t idle;		 /* 1: there is no idle core for it now */
	uint64_t members;   /* helpers on this machine that share cores with it,
			       itself included; 0: it does not share */
	uint64_t held_back; /* 1: it registers nothing, since userfaultfd
			       reports releases too early for that */
	uint64_t copied;    /* transfers that used no registration that is
			     * kept: copied, or registered for themselves */
	uint64_t aside;	    /* buffers left to the cache: what the helper may
			       cost the program had reached its limit */
	uint64_t wake_ns;   /* how late its sleeps end, a recent maximum */
};

/* Fills *stats, whose `size` you set. -EINVAL: NULL, or size 0; -EPERM: the
 * context was opened by this process's parent. */
PINION_API int pinion_helper_query(struct pinion_context *context,
				   struct pinion_helper_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
