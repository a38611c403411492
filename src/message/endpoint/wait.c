/* SPDX-License-Identifier: BSD-2-Clause */
/* How a program learns that requests have ended: by test, by wait, or by a file
 * descriptor. One thread at a time sleeps in the devices; the others sleep
 * until that one is back. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/thread.h"
#include "message/endpoint/endpoint.h"
#include "message/endpoint/request.h"

#define POLLS_BEFORE_WAIT 100

/* --- the lock in virtual time, and with a progress thread ----------------- */

static void lock_virtual(struct pinion_endpoint *ep)
{
	ep->virtual_lock.nqueued++;
	while (ep->virtual_lock.held)
		pn_device_futex_wait(ep->device, &ep->virtual_lock.nfreed,
				     atomic_load(&ep->virtual_lock.nfreed));
	ep->virtual_lock.nqueued--;
	ep->virtual_lock.held = true;
}

static void unlock_virtual(struct pinion_endpoint *ep)
{
	ep->virtual_lock.held = false;
	atomic_fetch_add(&ep->virtual_lock.nfreed, 1);
	if (ep->virtual_lock.nqueued)
		pn_device_futex_wake(ep->device, &ep->virtual_lock.nfreed);
}

void pn_endpoint_lock_special(struct pinion_endpoint *ep)
{
	if (pn_likely(ep->locking == PN_LOCKING_BIASED))
		pn_biased_lock(&ep->biased_lock);
	else
		lock_virtual(ep);
}

void pn_endpoint_unlock_special(struct pinion_endpoint *ep)
{
	bool offers;

	if (pn_unlikely(ep->locking != PN_LOCKING_BIASED)) {
		unlock_virtual(ep);
		return;
	}
	offers = pn_progress_thread_offers(&ep->progress_entry);
	pn_biased_unlock(&ep->biased_lock);
	if (pn_unlikely(offers))
		pn_biased_offer(&ep->biased_lock);
}

/* --- test and wait -------------------------------------------------------- */

/* May give up the core. */
static unsigned idle_devices(struct pinion_endpoint *ep)
{
	unsigned after = PN_STALL_POLLS;

	for (unsigned r = 0; r < ep->nrails; r++) {
		unsigned n = pn_device_idle(ep->rails[r].device);

		after = n < after ? n : after;
	}
	return after;
}

void pn_endpoint_idle(struct pinion_endpoint *ep)
{
	/* Devices of a single-threaded endpoint have no lock that keeps the
	 * progress thread out; that thread does not wait for this one. */
	bool holds = ep->locking == PN_LOCKING_BIASED && ep->single_threaded;
	unsigned after;

	if (holds)
		pn_endpoint_lock(ep);
	after = idle_devices(ep);
	if (!holds)
		pn_endpoint_lock(ep);
	ep->poll.idle_after = after;
	if (ep->stall.empty_polls >= PN_STALL_POLLS)
		pn_endpoint_stalled(ep);
	ep->poll.idle_at = ep->stall.empty_polls + after;
	pn_endpoint_unlock(ep);
}

/* A send that is eager, and has not been posted yet or not been read by the
 * device yet. */
static bool is_direct(const struct pinion_request *request)
{
	return request->is_send && request->moved == request->total;
}

int pn_endpoint_test(struct pinion_endpoint *ep, struct pinion_request *request,
		     struct pinion_completion *out)
{
	bool ended, idle = false;

	pn_endpoint_lock(ep);
	pn_endpoint_disarm(ep);
	if (!request->ended)
		idle = pn_endpoint_is_idle(ep, pn_endpoint_progress(ep));
	ended = request->ended;
	if (ended)
		pn_request_reap(request, out);
	else
		pn_reuse_idle(&ep->reuse, is_direct(request));
	pn_endpoint_unlock(ep);
	if (pn_unlikely(idle))
		pn_endpoint_idle(ep);
	return ended ? 0 : -EAGAIN;
}

/* Uses idle time to deregister what is not needed any more. False: there was
 * nothing to do. */
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

/* The thread that slept in the devices is back: another one takes its place.
 * The end of a sleep disarms the devices, also for the progress thread. */
static void end_sleep(struct pinion_endpoint *ep)
{
	ep->waiting.sleeping = false;
	pn_endpoint_notify(ep);
	atomic_fetch_add(&ep->waiting.progressed, 1);
	if (ep->locking)
		pn_device_futex_wake(ep->device, &ep->waiting.progressed);
	pn_progress_thread_resume(&ep->progress_entry);
}

/* The thread was canceled; its request stays as it is. */
static void end_canceled_sleep(void *arg)
{
	struct pinion_endpoint *ep = arg;

	pn_endpoint_lock(ep);
	end_sleep(ep);
	pn_endpoint_unlock(ep);
}

/* The cancellation point of pinion_wait(); called without the lock. */
static void sleep_in_devices(struct pinion_endpoint *ep, uint64_t deadline_ns)
{
	pthread_cleanup_push(end_canceled_sleep, ep);
	pn_device_wait_any(ep->devices, ep->nrails, deadline_ns);
	pthread_cleanup_pop(0);
}

/* Sleeps until there is an event, or until the deadline. Releases the lock
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
	/* Whoever takes this one's place sees the peers' deadlines again. */
	if (pn_peers_deadline(ep) < deadline_ns)
		deadline_ns = pn_peers_deadline(ep);
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

/* An answer is often a fraction of a microsecond away, so poll for a while
 * before sleeping. Not where that would keep other threads from the lock, or in
 * virtual time. */
static unsigned polls_before_wait(const struct pinion_endpoint *ep)
{
	if (!ep->single_threaded || ep->virtual_time)
		return 0;
	return ep->device->polls_before_wait ? ep->device->polls_before_wait
					     : POLLS_BEFORE_WAIT;
}

int pn_endpoint_wait_until(struct pinion_endpoint *ep,
			   struct pinion_request *request, uint64_t deadline_ns,
			   struct pinion_completion *out)
{
	unsigned most = polls_before_wait(ep);
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
		/* Another thread may have ended the request meanwhile. */
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

/* --- the file descriptor -------------------------------------------------- */

void pn_endpoint_notify(struct pinion_endpoint *ep)
{
	uint64_t one = 1;

	if (pn_likely(!ep->waiting.armed))
		return;
	PN_NO_CANCEL();
	ep->waiting.armed = NULL;
	ep->waiting.others_armed = false;
	/* Fails only if the descriptor is readable already. */
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

int pn_endpoint_open_devices_fd(const struct pinion_endpoint *ep)
{
	int epoll = epoll_create1(EPOLL_CLOEXEC);
	int ret = epoll < 0 ? -errno : 0;

	for (unsigned r = 0; r < ep->nrails && !ret; r++)
		ret = watch(epoll, pn_device_fd(ep->devices[r]));
	if (!ret)
		return epoll;
	if (epoll >= 0)
		close(epoll);
	return ret;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* Only peers with several rails have deadlines (peer.c). */
static int open_timer(struct pinion_endpoint *ep, int epoll)
{
	if (ep->nrails == 1 || ep->either)
		return 0;
	ep->waiting.timer_fd =
		timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	return ep->waiting.timer_fd < 0 ? -errno
					: watch(epoll, ep->waiting.timer_fd);
}

/* One descriptor for all: readable when a device's descriptor, notify_fd or
 * timer_fd is. */
static int open_epoll(struct pinion_endpoint *ep)
{
	struct pn_endpoint_waiting *w = &ep->waiting;
	int epoll = pn_endpoint_open_devices_fd(ep);
	int ret;

	if (epoll < 0)
		return epoll;
	w->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	ret = w->notify_fd < 0 ? -errno : watch(epoll, w->notify_fd);
	if (!ret)
		ret = open_timer(ep, epoll);
	if (!ret) {
		w->epoll = epoll;
		return epoll;
	}
	close_fd(&epoll);
	close_fd(&w->notify_fd);
	close_fd(&w->timer_fd);
	return ret;
}

void pn_endpoint_close_descriptors(struct pinion_endpoint *ep)
{
	close_fd(&ep->waiting.epoll);
	close_fd(&ep->waiting.notify_fd);
	close_fd(&ep->waiting.timer_fd);
}

int pn_endpoint_fd(struct pinion_endpoint *ep)
{
	int fd;

	pn_endpoint_lock(ep);
	fd = ep->waiting.epoll < 0 ? open_epoll(ep) : ep->waiting.epoll;
	pn_endpoint_unlock(ep);
	return fd;
}

/* If a later rail has an event, earlier ones stay armed: the descriptor may
 * become readable for an event that was polled already. */
int pn_endpoint_arm_devices(struct pinion_endpoint *ep)
{
	int ret = 0;

	for (unsigned r = 0; r < ep->nrails && !ret; r++)
		ret = pn_device_arm(ep->devices[r]);
	return ret;
}

/* Makes the descriptor readable when a peer's deadline has passed. The clock of
 * devices with descriptors is CLOCK_MONOTONIC. */
static void set_timer(struct pinion_endpoint *ep)
{
	uint64_t deadline_ns = pn_peers_deadline(ep);
	struct itimerspec at = { 0 };

	if (ep->waiting.timer_fd < 0 || deadline_ns == ep->waiting.timer_ns)
		return;
	if (deadline_ns != PN_FOREVER) {
		at.it_value.tv_sec = (time_t)(deadline_ns / PN_NS_PER_S);
		at.it_value.tv_nsec = (long)(deadline_ns % PN_NS_PER_S);
	}
	/* A time of 0 stops it. */
	timerfd_settime(ep->waiting.timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
	ep->waiting.timer_ns = deadline_ns;
}

/* While a thread sleeps in the devices they stay as they are: arming would
 * consume the notification that this thread sleeps for. */
static int arm_all(struct pinion_endpoint *ep)
{
	uint64_t count;

	/* Consumes an earlier notification. */
	if (ep->waiting.notify_fd >= 0 &&
	    read(ep->waiting.notify_fd, &count, sizeof(count)) < 0)
		count = 0;
	set_timer(ep);
	if (ep->waiting.sleeping && ep->waiting.notify_fd >= 0)
		return 0;
	return pn_endpoint_arm_devices(ep);
}

int pn_endpoint_arm(struct pinion_endpoint *ep)
{
	struct pn_thread *self = pn_thread_self();
	int ret;

	if (!self)
		return -ENOMEM;
	pn_endpoint_lock(ep);
	pn_endpoint_disarm(ep);
	/* The progress may have ended a request with a handle. */
	ret = pn_endpoint_progress(ep) || !pn_list_empty(&ep->requests.done)
		      ? -EAGAIN
		      : arm_all(ep);
	if (!ret) {
		ep->waiting.others_armed = ep->waiting.armed;
		ep->waiting.armed = self;
	} else {
		/* Arming may have consumed the notification that other threads
		 * wait for, and has disarmed the devices. */
		pn_endpoint_notify(ep);
		pn_progress_thread_resume(&ep->progress_entry);
	}
	pn_endpoint_unlock(ep);
	return ret;
}
