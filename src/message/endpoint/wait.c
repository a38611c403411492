/* SPDX-License-Identifier: BSD-2-Clause */
/* Ends of requests, as the program learns of them: asked for, waited for, or
 * told by a descriptor. One thread at a time sleeps in the devices; while it
 * does the others wait for it. */
#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/thread.h"
#include "message/endpoint/endpoint.h"
#include "message/endpoint/request.h"

/* --- taking turns in virtual time ----------------------------------------- */

void pn_endpoint_lock_virtual(struct pinion_endpoint *ep)
{
	ep->virtual_lock.nqueued++;
	while (ep->virtual_lock.held)
		pn_device_block(ep->device, &ep->virtual_lock.nfreed,
				atomic_load(&ep->virtual_lock.nfreed));
	ep->virtual_lock.nqueued--;
	ep->virtual_lock.held = true;
}

void pn_endpoint_unlock_virtual(struct pinion_endpoint *ep)
{
	ep->virtual_lock.held = false;
	atomic_fetch_add(&ep->virtual_lock.nfreed, 1);
	if (ep->virtual_lock.nqueued)
		pn_device_unblock(ep->device, &ep->virtual_lock.nfreed);
}

/* --- asking and waiting --------------------------------------------------- */

/* Eager, and not out yet or not read yet. */
static bool is_direct(const struct pinion_request *request)
{
	return request->is_send && request->moved == request->total;
}

int pn_endpoint_test(struct pinion_endpoint *ep, struct pinion_request *request,
		     struct pinion_completion *out)
{
	bool ended;

	pn_endpoint_lock(ep);
	pn_endpoint_disarm(ep);
	if (!request->ended)
		pn_endpoint_progress(ep);
	ended = request->ended;
	if (ended)
		pn_request_reap(request, out);
	else
		pn_reuse_idle(&ep->reuse, is_direct(request));
	pn_endpoint_unlock(ep);
	return ended ? 0 : -EAGAIN;
}

/* What can be done while there is nothing to do: releasing registrations that
 * nobody needs any more. False: not even that. */
static bool run_deferred_work(struct pinion_endpoint *ep)
{
	bool more = false;

	pn_endpoint_unlock(ep);
	for (unsigned r = 0; r < ep->nrails; r++)
		more |= pn_cache_step(ep->rails[r].cache) <=
			pn_device_now(ep->device);
	pn_endpoint_lock(ep);
	return more;
}

/* The thread that slept in the devices does so no longer: one of the others is
 * next. */
static void end_sleep(struct pinion_endpoint *ep)
{
	ep->waiting.sleeping = false;
	pn_endpoint_notify(ep);
	atomic_fetch_add(&ep->waiting.progressed, 1);
	if (ep->locking)
		pn_device_unblock(ep->device, &ep->waiting.progressed);
}

/* It was canceled: its request stays as it is. */
static void end_canceled_sleep(void *arg)
{
	struct pinion_endpoint *ep = arg;

	pn_endpoint_lock(ep);
	end_sleep(ep);
	pn_endpoint_unlock(ep);
}

/* The cancellation point of pinion_wait(), without the lock. */
static void sleep_in_devices(struct pinion_endpoint *ep, uint64_t deadline_ns)
{
	pthread_cleanup_push(end_canceled_sleep, ep);
	pn_device_wait_any(ep->devices, ep->nrails, deadline_ns);
	pthread_cleanup_pop(0);
}

/* Sleeps until something happened, or the deadline. One thread sleeps in the
 * device; others wait for that one. Called with the lock, which is given up
 * meanwhile. */
static void sleep_until_event(struct pinion_endpoint *ep, uint64_t deadline_ns)
{
	uint32_t seen = atomic_load(&ep->waiting.progressed);

	if (ep->waiting.sleeping) {
		pn_endpoint_unlock(ep);
		pn_device_block_cancelable(ep->device, &ep->waiting.progressed,
					   seen, deadline_ns);
		pn_endpoint_lock(ep);
		return;
	}
	ep->waiting.sleeping = true;
	pn_endpoint_unlock(ep);
	sleep_in_devices(ep, deadline_ns);
	pn_endpoint_lock(ep);
	end_sleep(ep);
}

static bool is_past(struct pinion_endpoint *ep, uint64_t deadline_ns)
{
	return deadline_ns != PN_FOREVER &&
	       pn_device_now(ep->device) >= deadline_ns;
}

int pn_endpoint_wait_until(struct pinion_endpoint *ep,
			   struct pinion_request *request, uint64_t deadline_ns,
			   struct pinion_completion *out)
{
	/* An answer is often a fraction of a microsecond away. Others who
	 * wait for the lock, and virtual time, are not kept waiting. */
	unsigned most = ep->locking || ep->virtual_time ? 0 : 100;
	struct pinion_completion end;
	unsigned looks = 0;

	pn_endpoint_lock(ep);
	while (!request->ended) {
		if (pn_endpoint_progress(ep) || request->ended) {
			looks = 0;
			continue;
		}
		pn_reuse_idle(&ep->reuse, is_direct(request));
		if (looks++ < most)
			continue;
		if (is_past(ep, deadline_ns)) {
			pn_endpoint_unlock(ep);
			return -ETIMEDOUT;
		}
		/* Another thread may have ended it while this one tidied. */
		if (run_deferred_work(ep) || request->ended)
			continue;
		sleep_until_event(ep, deadline_ns);
	}
	pn_request_reap(request, &end);
	pn_endpoint_unlock(ep);
	if (out)
		*out = end;
	return end.status;
}

/* --- the descriptor ------------------------------------------------------- */

void pn_endpoint_notify(struct pinion_endpoint *ep)
{
	uint64_t one = 1;

	if (pn_likely(!ep->waiting.armed))
		return;
	PN_NO_CANCEL();
	ep->waiting.armed = NULL;
	ep->waiting.others_armed = false;
	/* Fails only when it is readable as it can be. */
	if (ep->waiting.notify_fd >= 0 &&
	    write(ep->waiting.notify_fd, &one, sizeof(one)) < 0)
		return;
}

static int watch(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	if (fd < 0)
		return fd;
	return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) ? -errno : 0;
}

/* One descriptor for all: readable when that of a rail or `told` is. */
static int open_epoll(struct pinion_endpoint *ep)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	int told = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	int ret = epoll < 0 || told < 0 ? -errno : watch(epoll, told);

	for (unsigned r = 0; r < ep->nrails && !ret; r++)
		ret = watch(epoll, pn_device_fd(ep->devices[r]));
	if (!ret) {
		ep->waiting.notify_fd = told;
		ep->waiting.epoll = epoll;
		return epoll;
	}
	if (epoll >= 0)
		close(epoll);
	if (told >= 0)
		close(told);
	return ret;
}

int pn_endpoint_fd(struct pinion_endpoint *ep)
{
	int fd;

	pn_endpoint_lock(ep);
	fd = ep->waiting.epoll < 0 ? open_epoll(ep) : ep->waiting.epoll;
	pn_endpoint_unlock(ep);
	return fd;
}

/* Those armed before one that has something may tell of it in vain. Arming
 * would take away the bell that is rung for a thread that sleeps there. */
static int arm_all(struct pinion_endpoint *ep)
{
	uint64_t count;
	int ret = 0;

	/* What an earlier tell left. */
	if (ep->waiting.notify_fd >= 0 &&
	    read(ep->waiting.notify_fd, &count, sizeof(count)) < 0)
		count = 0;
	if (ep->waiting.sleeping && ep->waiting.notify_fd >= 0)
		return 0;
	for (unsigned r = 0; r < ep->nrails && !ret; r++)
		ret = pn_device_arm(ep->devices[r]);
	return ret;
}

int pn_endpoint_arm(struct pinion_endpoint *ep)
{
	struct pn_thread *self = pn_thread_self();
	int ret;

	if (!self)
		return -ENOMEM;
	pn_endpoint_lock(ep);
	pn_endpoint_disarm(ep);
	/* What moved may have ended a request that has a handle. */
	ret = pn_endpoint_progress(ep) || !pn_list_empty(&ep->requests.done)
		      ? -EAGAIN
		      : arm_all(ep);
	if (!ret) {
		ep->waiting.others_armed = ep->waiting.armed;
		ep->waiting.armed = self;
	} else {
		/* The bell that others wait for may be taken away by now. */
		pn_endpoint_notify(ep);
	}
	pn_endpoint_unlock(ep);
	return ret;
}
