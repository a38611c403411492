/* SPDX-License-Identifier: BSD-2-Clause */
#include "message/endpoint/progress_thread.h"

#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/process.h"
#include "base/service_thread.h"
#include "device/device.h"
#include "message/endpoint/endpoint.h"
#include "message/message.h"

/* A program that stops polling to compute for a tenth of a millisecond still
 * gains; one that polls for long is hardly disturbed. */
#define MIN_YIELD_NS	  (20 * PN_NS_PER_US)
#define MAX_YIELD_NS	  PN_NS_PER_MS
/* While long messages come and the thread's core is crowded: a look takes about
 * 3 us of it. */
#define MAX_LONG_YIELD_NS (100 * PN_NS_PER_US)

/* Long messages that are further apart do not keep the thread looking. */
#define LONG_PAUSE_NS (10 * PN_NS_PER_MS)

/* The next packet of a transfer often follows within this time; a sleep would
 * cost its sender a notification. */
#define SPIN_NS (4 * PN_NS_PER_US)
/* While operations are in flight that a poll executes. */
#define MOVE_NS PN_NS_PER_MS

/* Rounds of progress before other endpoints, and removals, get their turn. */
#define MAX_ROUNDS 256

static struct pn_mutex lock = { PTHREAD_MUTEX_INITIALIZER };
static struct {
	struct pn_list entries;
	unsigned nentries;
	struct pn_progress_entry *current; /* is being worked on */
	pthread_cond_t idle;		   /* `current` has changed */
	bool running, stop;
	pthread_t thread;
	int epoll;     /* over notify_fd and the entries' descriptors */
	int notify_fd; /* eventfd: something else has changed */
} progress PN_GUARDED_BY(&lock) = { .epoll = -1, .notify_fd = -1 };
/* Opening and closing of the thread take turns; taken before `lock`. */
static struct pn_mutex life_lock = { PTHREAD_MUTEX_INITIALIZER };

/* What came out of work on an entry. */
enum outcome {
	ARMED,
	HAS_MORE, /* there is more to do at once */
	BUSY,	  /* callers are at it; or an error that may pass */
	PARKED,	  /* a caller sleeps in the devices */
};

static struct pinion_endpoint *endpoint_of(struct pn_progress_entry *entry)
{
	return pn_container_of(entry, struct pinion_endpoint, progress_entry);
}

/* --- work on one endpoint ------------------------------------------------- */

/* How long to poll after the last event. Where a CPU moves the bytes, polling
 * moves them; a thread that went to sleep would have to wake another one for
 * that. Whether one of several callers waits for the lock is not known: then
 * not at all. */
static uint64_t spin_ns(const struct pinion_endpoint *ep)
{
	if (!ep->single_threaded)
		return 0;
	return ep->noperations && ep->device->costs.cpu_moves ? MOVE_NS
							      : SPIN_NS;
}

/* Lets callers go on. False: a caller has the lock now. */
static bool pause_visit(struct pinion_endpoint *ep)
{
	pn_biased_leave(&ep->biased_lock);
	pn_relax();
	return pn_biased_visit_reserved(&ep->biased_lock);
}

/* Until no event comes any more (ARMED: nothing to do), a caller wants the
 * lock, or other endpoints had to wait long enough. *left: the lock is a
 * caller's. */
static enum outcome handle_events(struct pinion_endpoint *ep, bool *left)
{
	uint64_t last_ns = pn_device_now(ep->device);
	unsigned rounds = 0;

	while (rounds < MAX_ROUNDS) {
		int n = pn_endpoint_progress(ep);

		ep->stats.progress_events += (unsigned)n;
		/* A program that sleeps on the descriptor may wait for what
		 * ends no request, and the device does not tell of it twice. */
		if (n)
			pn_endpoint_notify(ep);
		if (pn_biased_is_wanted(&ep->biased_lock))
			return BUSY;
		if (n) {
			last_ns = pn_device_now(ep->device);
			rounds++;
		} else if (pn_device_now(ep->device) < last_ns + spin_ns(ep)) {
			*left = !pause_visit(ep);
			if (*left)
				return BUSY;
		} else {
			return ARMED;
		}
	}
	return HAS_MORE;
}

/* Of a function that returns errno values. An error is tried again after a
 * while, as where callers are at it: nothing else would call the function. */
static enum outcome outcome_of(int ret)
{
	if (ret == -EAGAIN)
		return HAS_MORE;
	return ret ? BUSY : ARMED;
}

/* *left: the lock is a caller's. */
static enum outcome work_locked(struct pinion_endpoint *ep, bool *left)
{
	struct pn_progress_entry *entry = &ep->progress_entry;
	enum outcome outcome;

	ep->stats.progress_wakeups++;
	ep->stats.progress_yields += entry->nyields;
	entry->nyields = 0;
	entry->state = PN_PROGRESS_YIELDED;
	if (ep->waiting.sleeping) {
		entry->state = PN_PROGRESS_PARKED;
		return PARKED;
	}
	outcome = handle_events(ep, left);
	if (outcome == ARMED)
		outcome = outcome_of(pn_endpoint_arm_devices(ep));
	if (outcome == ARMED) {
		entry->state = PN_PROGRESS_ARMED;
		entry->deadline_ns = pn_peers_deadline(ep);
	}
	return outcome;
}

static enum outcome work(struct pinion_endpoint *ep)
{
	struct pn_progress_entry *entry = &ep->progress_entry;
	enum outcome outcome;
	bool left = false;

	if (entry->progress)
		return outcome_of(entry->progress(entry->arg));
	if (!pn_biased_visit(&ep->biased_lock))
		return BUSY;
	outcome = work_locked(ep, &left);
	if (!left)
		pn_biased_leave(&ep->biased_lock);
	return outcome;
}

/* Whether long messages began not long ago. */
static bool has_long_messages(struct pn_progress_entry *entry, uint64_t now_ns)
{
	uint32_t n = atomic_load_explicit(&entry->nlong, memory_order_relaxed);

	if (n != entry->nlong_seen) {
		entry->nlong_seen = n;
		entry->long_ns = now_ns;
	}
	return entry->long_ns && now_ns < entry->long_ns + LONG_PAUSE_NS;
}

/* A library's own lock does not say whether the core is crowded. */
static void yield_entry(struct pn_progress_entry *entry, uint64_t now_ns)
{
	bool is_long = has_long_messages(entry, now_ns);
	bool crowded =
		entry->progress || endpoint_of(entry)->biased_lock.crowded;
	uint64_t max_ns = is_long ? MAX_LONG_YIELD_NS : MAX_YIELD_NS;

	entry->yield_ns = entry->yield_ns ? 2 * entry->yield_ns : MIN_YIELD_NS;
	if (is_long && !crowded)
		max_ns = MIN_YIELD_NS;
	if (entry->yield_ns > max_ns)
		entry->yield_ns = max_ns;
	entry->look_ns = now_ns + entry->yield_ns;
	entry->nyields++;
}

/* The descriptor is watched only while the entry is armed: a caller that polls
 * leaves that of a device readable. */
static void watch_entry(int epoll, struct pn_progress_entry *entry)
{
	struct epoll_event event = { .events = EPOLLIN | EPOLLONESHOT,
				     .data.ptr = entry };

	if (epoll_ctl(epoll, EPOLL_CTL_MOD, entry->fd, &event))
		entry->look_ns = 0; /* cannot be; look again then */
}

/* True: there is more to do at once. */
static bool step(int epoll, struct pn_progress_entry *entry)
{
	struct pn_device *device = endpoint_of(entry)->device;
	enum outcome outcome;

	atomic_store(&entry->due, false);
	outcome = work(endpoint_of(entry));
	entry->look_ns =
		outcome == HAS_MORE ? pn_device_now(device) : PN_FOREVER;
	if (outcome == BUSY)
		yield_entry(entry, pn_device_now(device));
	else
		entry->yield_ns = 0;
	if (outcome == ARMED) {
		entry->look_ns = entry->deadline_ns;
		watch_entry(epoll, entry);
	}
	return outcome == HAS_MORE;
}

/* --- the thread ----------------------------------------------------------- */

static bool is_due(const struct pn_progress_entry *entry, uint64_t now_ns)
{
	return entry->look_ns <= now_ns || atomic_load(&entry->due);
}

/* The first entry that is due, moved to the end; *next_ns is when the next will
 * be. */
static struct pn_progress_entry *due_entry(uint64_t now_ns, uint64_t *next_ns)
	PN_REQUIRES(&lock)
{
	struct pn_list *pos;

	*next_ns = PN_FOREVER;
	pn_list_for_each (pos, &progress.entries) {
		struct pn_progress_entry *entry =
			pn_container_of(pos, struct pn_progress_entry, link);

		if (is_due(entry, now_ns)) {
			pn_list_remove(&entry->link);
			pn_list_append(&progress.entries, &entry->link);
			return entry;
		}
		if (entry->look_ns < *next_ns)
			*next_ns = entry->look_ns;
	}
	return NULL;
}

/* Under the lock, so that an entry which is being removed is not found. */
static void take_events(void) PN_REQUIRES(&lock)
{
	struct epoll_event events[16];
	int n = epoll_wait(progress.epoll, events, PN_ARRAY_LEN(events), 0);
	uint64_t count;

	for (int i = 0; i < n; i++) {
		struct pn_progress_entry *entry = events[i].data.ptr;

		if (entry)
			atomic_store(&entry->due, true);
		else
			(void)!read(progress.notify_fd, &count, sizeof(count));
	}
}

/* Works on all entries that are due. Returns when to look again. An entry that
 * has more to do stays due: others must be found meanwhile. */
static uint64_t step_entries(void) PN_REQUIRES(&lock)
{
	struct pn_progress_entry *entry;
	uint64_t next_ns = PN_FOREVER;

	while (!progress.stop && (entry = due_entry(pn_clock_ns(), &next_ns))) {
		int epoll = progress.epoll;
		bool has_more;

		progress.current = entry;
		pn_unlock(&lock);
		has_more = step(epoll, entry);
		pn_lock(&lock);
		progress.current = NULL;
		pthread_cond_broadcast(&progress.idle);
		if (has_more)
			take_events();
	}
	return next_ns;
}

static void *run(void *arg)
{
	(void)arg;
	/* The kernel may delay the end of a sleep by this, 50 us by default. */
	prctl(PR_SET_TIMERSLACK, 1UL);
	pn_lock(&lock);
	while (!progress.stop) {
		uint64_t next_ns = step_entries();
		int epoll = progress.epoll;

		if (progress.stop)
			break;
		pn_unlock(&lock);
		pn_device_sleep_on(epoll, next_ns);
		pn_lock(&lock);
		take_events();
	}
	pn_unlock(&lock);
	return NULL;
}

static void notify_thread(int notify_fd)
{
	PN_NO_CANCEL();
	uint64_t one = 1;

	/* Fails only if the descriptor is readable already. */
	(void)!write(notify_fd, &one, sizeof(one));
}

/* notify_fd stays open while there are entries. */
void pn_progress_thread_wake(struct pn_progress_entry *entry)
	PN_NO_THREAD_SAFETY
{
	entry->state = PN_PROGRESS_YIELDED;
	atomic_store(&entry->due, true);
	notify_thread(progress.notify_fd);
}

/* --- life ----------------------------------------------------------------- */

static void reset(void) PN_NO_THREAD_SAFETY
{
	pn_list_init(&progress.entries);
	progress.nentries = 0;
	progress.current = NULL;
	progress.running = progress.stop = false;
	progress.epoll = progress.notify_fd = -1;
	pn_assert(!pthread_cond_init(&progress.idle, NULL));
}

static void before_fork(void) PN_NO_THREAD_SAFETY
{
	pn_lock(&life_lock);
	pn_lock(&lock);
}

static void after_fork(void) PN_NO_THREAD_SAFETY
{
	pn_unlock(&lock);
	pn_unlock(&life_lock);
}

/* The descriptors are the parent's, too: an epoll that is shared must not be
 * changed. */
static void in_child(void) PN_NO_THREAD_SAFETY
{
	if (progress.epoll >= 0)
		close(progress.epoll);
	if (progress.notify_fd >= 0)
		close(progress.notify_fd);
	reset();
	after_fork();
}

static void begin(void)
{
	reset();
	pn_process_atfork(before_fork, after_fork, in_child);
}

static int open_descriptors(void) PN_REQUIRES(&lock)
{
	struct epoll_event event = { .events = EPOLLIN };
	int ret;

	progress.notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (progress.notify_fd < 0)
		return -errno;
	progress.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (progress.epoll >= 0 && !epoll_ctl(progress.epoll, EPOLL_CTL_ADD,
					      progress.notify_fd, &event))
		return 0;
	ret = -errno;
	close(progress.notify_fd);
	if (progress.epoll >= 0)
		close(progress.epoll);
	progress.epoll = progress.notify_fd = -1;
	return ret;
}

static void close_descriptors(void) PN_REQUIRES(&lock)
{
	close(progress.epoll);
	close(progress.notify_fd);
	progress.epoll = progress.notify_fd = -1;
}

static int start_thread(void) PN_REQUIRES(&lock)
{
	int ret = open_descriptors();

	if (ret)
		return ret;
	progress.stop = false;
	ret = pn_service_thread_start(&progress.thread, "pinion-progress", run,
				      NULL);
	progress.running = !ret;
	if (ret)
		close_descriptors();
	return ret;
}

/* Under life_lock. The last entry is gone. */
static void stop_thread(void)
{
	pthread_t thread;

	pn_lock(&lock);
	progress.stop = true;
	thread = progress.thread;
	notify_thread(progress.notify_fd);
	pn_unlock(&lock);
	pthread_join(thread, NULL);
	pn_lock(&lock);
	progress.running = false;
	close_descriptors();
	pn_unlock(&lock);
}

static int add_entry(struct pn_progress_entry *entry) PN_REQUIRES(&lock)
{
	/* Not watched until it is armed: ONESHOT without an event. */
	struct epoll_event event = { .events = EPOLLONESHOT,
				     .data.ptr = entry };
	int ret = progress.running ? 0 : start_thread();

	if (ret)
		return ret;
	if (epoll_ctl(progress.epoll, EPOLL_CTL_ADD, entry->fd, &event))
		return -errno;
	pn_list_append(&progress.entries, &entry->link);
	progress.nentries++;
	notify_thread(progress.notify_fd);
	return 0;
}

static int check_devices(const struct pinion_endpoint *ep)
{
	for (unsigned r = 0; r < ep->nrails; r++) {
		if (ep->devices[r]->caps & PN_CAP_FD)
			continue;
		pn_error("progress: a thread cannot wait for devices of kind "
			 "%s, which have no descriptor; set progress=caller, "
			 "or auto",
			 ep->devices[r]->ops->kind);
		return -EOPNOTSUPP;
	}
	return 0;
}

static void close_entry(struct pn_progress_entry *entry)
{
	if (!entry->progress)
		close(entry->fd);
}

int pn_progress_thread_add(struct pinion_endpoint *ep,
			   const struct pn_endpoint_attr *attr)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct pn_progress_entry *entry = &ep->progress_entry;
	int ret = check_devices(ep);

	if (ret)
		return ret;
	pthread_once(&once, begin);
	entry->progress = attr->progress;
	entry->arg = attr->progress_arg;
	entry->deadline_ns = PN_FOREVER;
	entry->fd = entry->progress ? pn_endpoint_fd(ep)
				    : pn_endpoint_open_devices_fd(ep);
	if (entry->fd < 0)
		return entry->fd;
	pn_lock(&life_lock);
	pn_lock(&lock);
	ret = add_entry(entry);
	entry->added = !ret;
	if (ret && progress.running && !progress.nentries) {
		pn_unlock(&lock);
		stop_thread();
	} else {
		pn_unlock(&lock);
	}
	pn_unlock(&life_lock);
	if (ret)
		close_entry(entry);
	return ret;
}

static void remove_entry(struct pn_progress_entry *entry) PN_REQUIRES(&lock)
{
	pn_list_remove(&entry->link);
	progress.nentries--;
	while (progress.current == entry)
		pthread_cond_wait(&progress.idle, &lock.pthread);
	epoll_ctl(progress.epoll, EPOLL_CTL_DEL, entry->fd, NULL);
}

void pn_progress_thread_remove(struct pinion_endpoint *ep)
{
	struct pn_progress_entry *entry = &ep->progress_entry;
	bool was_last;

	if (!entry->added)
		return;
	pn_lock(&life_lock);
	pn_lock(&lock);
	remove_entry(entry);
	was_last = !progress.nentries;
	pn_unlock(&lock);
	if (was_last)
		stop_thread();
	pn_unlock(&life_lock);
	close_entry(entry);
}
