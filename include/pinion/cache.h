/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion/cache.h -- pin a buffer; registering it is automatic.
 *
 *	struct pinion_pin pin;
 *	int ret = pinion_pin(context, buf, len, access, &pin);
 *
 *	if (ret)
 *		...
 *	... use buf with pin.local_key ...
 *	pinion_unpin(context, &pin);
 *
 * pinion_pin() finds the buffer in the registration cache or registers it.
 * pinion_unpin() leaves it registered for the next time, for as long as the
 * budget allows. The cache invalidates a buffer that is freed or unmapped
 * before its address can be used again (option `monitor`), so a key never names
 * memory that is no longer yours. The program announces a release that the
 * monitor does not notice with pinion_invalidate(). `pinion info` and pinion(7)
 * say which releases these are.
 *
 * Where no release can be noticed (monitor mode `bypass`: pinion was loaded
 * late into a program with threads, and userfaultfd is forbidden), nothing
 * stays registered between uses: every pin registers and every unpin
 * deregisters, which is slow and never stale; the counter `unkept` counts
 * these. PINION_MONITOR=none keeps buffers registered although no release is
 * noticed: the program has to call pinion_invalidate() before it releases or
 * remaps memory that was ever pinned or sent. Otherwise bytes go to and come
 * from pages that the program no longer has, without an error.
 *
 * A buffer can have several segments, each with keys of its own, when parts of
 * it were registered before. A pin whose segments are not all registered yet
 * (pinion_pin_start()) can be used segment by segment meanwhile.
 *
 * Threads: any. A pin may be unpinned by another thread than pinned it.
 * fork: a child cannot use the parent's context: calls that return something
 * return -EPERM, pinion_unpin() and pinion_close() change nothing of the
 * parent.
 */
#ifndef PINION_CACHE_H
#define PINION_CACHE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include <pinion/config.h>
#include <pinion/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Flags of a pin: PINION_ACCESS_ bits, and: */
enum pinion_pin_flag {
	/* A buffer used once: registered outside the cache. With remote access
	 * it is deregistered before pinion_unpin() returns, so its key works no
	 * longer; without, soon after, by a thread of pinion. */
	PINION_PIN_BYPASS = 1 << 24,
};

/* A pinned buffer. The storage is yours; pinion fills it in. */
struct pinion_pin {
	void *addr; /* as asked for */
	size_t len;
	uint64_t local_key;  /* of the buffer if it has one segment; else 0 */
	uint64_t remote_key; /* likewise; means nothing without remote access */
	void *handle;	     /* the registrar's (pinion/registrar.h), or NULL */
	unsigned nsegments;
	unsigned reserved;
	void *internal[4];
};

/* One segment of a pinned buffer. */
struct pinion_pin_segment {
	void *addr;
	size_t len;
	uint64_t local_key;
	uint64_t remote_key;
	uint64_t reserved[2];
};

/* Pins [addr, addr + len). May sleep while registering; never does so when the
 * buffer is cached.
 * -EINVAL:  NULL, length 0, a range that wraps around, unknown flags
 * -EFAULT:  not mapped, or mapped in a way the device cannot pin
 * -ENOBUFS: no room in the budget even after giving up all that is not in use:
 *           unpin something, or copy through memory that is pinned already
 * -ENOMEM:  no memory for bookkeeping
 * -EPERM:   the context was opened by this process's parent; open another
 * -EAGAIN, -EIO, -EMFILE, -ENFILE, -ENODEV, -EOPNOTSUPP, -ETIMEDOUT: the system
 *           or the adapter refuses what the device needs to register more */
PINION_API int pinion_pin(struct pinion_context *context, void *addr,
			  size_t len, unsigned flags, struct pinion_pin *pin);

/* Pins n buffers with one batch of registrations; all or none. Errors as
 * above. Unpin each. */
PINION_API int pinion_pin_list(struct pinion_context *context,
			       const struct iovec *buffers, unsigned n,
			       unsigned flags, struct pinion_pin *pins);

/* Begins to pin and does not sleep: 0 when everything was cached,
 * -EINPROGRESS when segments are still being registered. Until
 * pinion_pin_test() or _wait() has returned something else, *pin must stay
 * where it is. -EINVAL, -ENOMEM, -EPERM: as above. */
PINION_API int pinion_pin_start(struct pinion_context *context, void *addr,
				size_t len, unsigned flags,
				struct pinion_pin *pin);

/* 0: all segments are registered; -EINPROGRESS; or an error of pinion_pin(),
 * after which there is nothing to unpin. */
PINION_API int pinion_pin_test(struct pinion_context *context,
			       struct pinion_pin *pin);

/* Sleeps until all segments are registered. Errors of pinion_pin(). */
PINION_API int pinion_pin_wait(struct pinion_context *context,
			       struct pinion_pin *pin);

/* The index-th segment, in order of addresses. -EAGAIN: not registered yet;
 * -EINVAL: NULL, or no such segment. */
PINION_API int pinion_pin_segment(const struct pinion_pin *pin, unsigned index,
				  struct pinion_pin_segment *segment);

/* Ends a pin. The buffer stays registered for the next time, unless the pin
 * bypassed the cache or the release of the buffer would not be noticed. */
PINION_API void pinion_unpin(struct pinion_context *context,
			     struct pinion_pin *pin);

/* Announces that [addr, addr + len) is being released: nothing cached there is
 * used again, in any context of the process. Call it before the addresses can
 * be used for something else. Safe anywhere, also inside an allocator. */
PINION_API void pinion_invalidate(const void *addr, size_t len);

/* Evicts everything that is not in use, and returns when it is deregistered.
 * May sleep. -EINVAL: NULL; -EPERM. */
PINION_API int pinion_cache_flush(struct pinion_context *context);

/* Makes every remote key handed out for memory in [addr, addr + len) invalid;
 * the next pin gives new ones. May sleep. -EINVAL: NULL, length 0, a range that
 * wraps around; -EPERM; -EBUSY: the device cannot revoke keys and the memory is
 * in use, or it is memory of a heap; -ENOMEM. */
PINION_API int pinion_cache_revoke(struct pinion_context *context,
				   const void *addr, size_t len);

/* Changes the context's budget; 0 leaves a limit as it is. What is over the
 * budget and not in use is evicted at once. max_bytes is a cap, as the option
 * max_bytes is: all contexts of the process together have no more than the
 * process's budget (option process_max_bytes). -EINVAL: NULL; -EPERM. */
PINION_API int pinion_cache_resize(struct pinion_context *context,
				   size_t max_bytes, size_t max_regions);

/* Counters since the context was opened, and gauges. */
struct pinion_cache_stats {
	size_t size; /* sizeof(struct pinion_cache_stats), by you */
	uint64_t hits;
	uint64_t misses;	 /* pins that had something to register */
	uint64_t misses_new;	 /* nothing was cached there */
	uint64_t misses_partial; /* a part was */
	uint64_t misses_access;	 /* cached with less access */
	uint64_t misses_bypass;	 /* PINION_PIN_BYPASS, or nothing is kept */
	uint64_t waits;		 /* for another thread's registration */
	uint64_t registrations;
	uint64_t registered_bytes;
	uint64_t deregistrations;
	uint64_t deregister_batches;
	uint64_t evictions;	/* to make room, or flushed */
	uint64_t invalidations; /* regions whose memory was released */
	uint64_t overflows; /* release notices lost: everything was invalidated
			     */
	uint64_t refused;   /* pins that found no room */
	uint64_t merges;
	uint64_t unkept;    /* registrations that were ended after one use:
			       releases of that memory would not be noticed */
	size_t regions;	    /* cached now */
	size_t bytes;	    /* cached now, in use included */
	size_t dying_bytes; /* waiting to be deregistered */
	size_t peak_bytes;  /* the most that this context was charged */
	/* The context's budget; without a cap of its own, the process's. */
	size_t max_bytes, max_regions;
};

/* Fills *stats, whose `size` you set. -EINVAL: NULL, or size 0; -EPERM. */
PINION_API int pinion_cache_query(struct pinion_context *context,
				  struct pinion_cache_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
