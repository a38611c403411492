/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The loop around pn_helper_step().
 *
 * Waking a thread costs the waker a system call: microseconds on the critical
 * path. So the helper polls, with short sleeps between, while the program
 * communicates. It sleeps until it is woken only when it had nothing to do for
 * a while, so that the helper of an idle program uses no CPU. In virtual time
 * waking costs nothing, and the helper always sleeps until it is woken. A
 * helper without a core (idle) has no deadline to keep: it sleeps longer
 * between polls.
 */
#include <errno.h>
#include <sys/prctl.h>

#include "base/clock.h"
#include "base/service_thread.h"
#include "helper/helper_impl.h"

#define NAP_NS	    (100 * PN_NS_PER_US)
#define IDLE_NAP_NS PN_NS_PER_MS
#define ACTIVE_NS   (5 * PN_NS_PER_MS)

void pn_helper_notify(struct pn_helper *helper)
{
	atomic_fetch_add(&helper->doorbell, 1);
	pn_device_futex_wake(helper->device, &helper->doorbell);
}

void pn_helper_stop(struct pn_helper *helper)
{
	atomic_store(&helper->stop, true);
	pn_helper_notify(helper);
}

static bool recently_active(const struct pn_helper *helper, uint64_t now)
{
	return !helper->virtual_time && now < helper->active_ns + ACTIVE_NS;
}

/* A sleep should have ended at `due`. */
static void learn_wake(struct pn_helper *helper, uint64_t due)
{
	uint64_t now = pn_device_now(helper->device);

	if (now >= due) /* else it was woken */
		pn_helper_learn_delay(helper, now - due);
}

static void nap(struct pn_helper *helper, uint32_t doorbell, uint64_t now,
		uint64_t when)
{
	uint64_t end =
		now + (atomic_load(&helper->idle) ? IDLE_NAP_NS : NAP_NS);

	if (when < end)
		end = when;
	pn_device_futex_wait_until(helper->device, &helper->doorbell, doorbell,
				   end);
	learn_wake(helper, end);
}

/* `sleeping` is set before the rings are read; a caller writes its ring before
 * it reads `sleeping` (both sequentially consistent). So at least one of the
 * two sees what the other wrote. */
static void sleep_until(struct pn_helper *helper, uint32_t doorbell,
			uint64_t when)
{
	atomic_store(&helper->sleeping, true);
	if (!pn_callers_any(helper) && !atomic_load(&helper->stop))
		pn_device_futex_wait_until(helper->device, &helper->doorbell,
					   doorbell, when);
	atomic_store(&helper->sleeping, false);
	learn_wake(helper, when);
}

void pn_helper_run(struct pn_helper *helper)
{
	while (!atomic_load(&helper->stop)) {
		uint32_t doorbell = atomic_load(&helper->doorbell);
		uint64_t when, now;

		/* Before the step: after a long sleep the last decision is out
		 * of date for the record that ended the sleep. */
		pn_helper_rebalance(helper, pn_device_now(helper->device));
		when = pn_helper_step(helper);
		now = pn_device_now(helper->device);
		if (when <= now)
			continue;
		if (recently_active(helper, now))
			nap(helper, doorbell, now, when);
		else
			sleep_until(helper, doorbell, when);
	}
}

static void *work(void *arg)
{
	/* The kernel may delay the end of a sleep by this, 50 us by default. */
	prctl(PR_SET_TIMERSLACK, 1UL);
	pn_helper_run(arg);
	return NULL;
}

int pn_helper_start(struct pn_helper *helper)
{
	int ret = pn_service_thread_start(&helper->thread, "pinion-helper",
					  work, helper);

	helper->running = !ret;
	return ret;
}
