/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * choose -- the fastest method of a copy, from the times that copies took.
 *
 * For each method, direction and size class (two to a power of two) there is a
 * mean of the measured times, in nanoseconds a byte, in which old copies fade.
 * A class that was not measured yet takes the estimate of the nearest class
 * that was; before the first measurement the device's costs give one.
 *
 * The copy goes by the method with the least estimate. Estimates of methods
 * that are not used grow old. So another method is explored now and then: after
 * 2 copies of that class, then after twice as many each time, up to
 * MAX_INTERVAL; and only while the time that exploring costs is below MAX_SHARE
 * of the time of all copies of the class. So a machine that becomes busy is
 * followed, and exploring costs at most that share.
 *
 * One disturbed copy must not decide for long. So a method that was measured
 * once is soon tried a second time, unless it was hopeless; a shorter time than
 * the estimate replaces it at once; and a longer one counts as at most twice
 * the estimate.
 *
 * Fewer free staging sets than wanted make bounce buffers slower: the estimate
 * is scaled by their number.
 *
 * Threads: any; estimates are read and written without a lock, and a lost
 * update is lost.
 */
#ifndef PN_COPY_CHOOSE_H
#define PN_COPY_CHOOSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/device.h"
#include "message/protocol/history.h"

enum pn_copy_direction {
	PN_COPY_TO_GPU,
	PN_COPY_FROM_GPU,
	PN_COPY_NDIRECTIONS
};

enum pn_copy_method {
	PN_COPY_DRIVER,
	PN_COPY_BOUNCE,
	PN_COPY_PIPELINE, /* blocks are registered, copied, deregistered */
	PN_COPY_NMETHODS,
};

/* Costs of one H200 (doc/design/cuda.md), where the device has not measured its
 * own yet. */
#define PN_COPY_REGISTER_NS	   50000.0
#define PN_COPY_REGISTER_PAGE_NS   160.0
#define PN_COPY_DEREGISTER_NS	   31000.0
#define PN_COPY_DEREGISTER_PAGE_NS 67.0
#define PN_COPY_BYTE_NS		   (1 / 7.0)
#define PN_COPY_MOVE_BYTE_NS	   (1 / 55.0)

static inline double pn_copy_cost(const double *measured, double typical)
{
	double ns = pn_cost(measured);

	return ns > 0 ? ns : typical;
}

struct pn_copy_estimate {
	_Atomic float byte_ns;	/* 0: never measured */
	_Atomic uint32_t since; /* copies of the class since the last by it */
	_Atomic uint32_t interval; /* explored after so many */
	_Atomic uint32_t measured; /* copies */
};

struct pn_copy_class {
	struct pn_copy_estimate methods[PN_COPY_NMETHODS];
	_Atomic float spent_ns, explored_ns; /* fade together */
};

struct pn_copy_times {
	struct pn_copy_class classes[PN_COPY_NDIRECTIONS][PN_HISTORY_SIZES];
	float initial_byte_ns[PN_COPY_NDIRECTIONS][PN_COPY_NMETHODS];
	_Atomic uint64_t explored;
};

/* What is asked. */
struct pn_copy_question {
	enum pn_copy_direction direction;
	size_t bytes;
	unsigned participants; /* for which there are staging sets */
	unsigned wanted;       /* participants of such a copy */
	bool may_register;     /* the pipeline is possible */
	bool no_driver;	       /* the driver would refuse the range */
	bool measured;	       /* pn_copy_times_took() will follow */
};

void pn_copy_times_init(struct pn_copy_times *times,
			const struct pn_costs *costs);

/* Expected nanoseconds. */
double pn_copy_times_expect(const struct pn_copy_times *times,
			    const struct pn_copy_question *question,
			    enum pn_copy_method method);

/* PN_COPY_NMETHODS: none is possible. */
enum pn_copy_method pn_copy_times_choose(
	struct pn_copy_times *times, const struct pn_copy_question *question);

/* A copy took ns. */
void pn_copy_times_took(struct pn_copy_times *times,
			const struct pn_copy_question *question,
			enum pn_copy_method method, double ns);

#endif
