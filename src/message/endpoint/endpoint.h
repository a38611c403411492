/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * endpoint -- the state of an endpoint, its lock and its progress.
 *
 * Files: endpoint.c opens an endpoint and close.c ends it; post.c posts
 * messages for the program; progress.c polls the devices and dispatches
 * completions; progress_thread.c does so while the program computes; wait.c
 * waits for the end of requests, serves the file descriptor and has the locks
 * that are no mutex; request.c keeps requests; trace_events.c, statistics.c and
 * stall.c export what happens; check.c verifies the state. message.h tells the
 * story of the layer.
 *
 * Each part of the layer owns a member of struct pinion_endpoint, which its
 * header defines: requests, matching, packets, transfers, onesided. Only the
 * part itself and check.c look inside.
 *
 * Threads: one lock protects every member that is not set once when the
 * endpoint is opened: `lock`, `biased_lock` or `virtual_lock`, as `locking`
 * says. waiting.progressed and virtual_lock.nfreed are atomics, since threads
 * sleep on them. All functions here are called with the lock held, or where no
 * other thread can use the endpoint, except where they say otherwise.
 */
#ifndef PN_MESSAGE_ENDPOINT_H
#define PN_MESSAGE_ENDPOINT_H

#include <stdatomic.h>

#include "base/biased_lock.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/stats_segment.h"
#include "base/thread.h"
#include "base/trace_sink.h"
#include "cache/trace_event.h"
#include "message/connection/connection.h"
#include "message/connection/packet.h"
#include "message/endpoint/progress_thread.h"
#include "message/endpoint/request.h"
#include "message/matching/matching.h"
#include "message/message.h"
#include "message/onesided/onesided.h"
#include "message/protocol/select.h"
#include "message/twosided/transfer.h"

/* Threads that wait for an endpoint (wait.c). One thread at a time sleeps in
 * the devices; the others sleep on `progressed` until it is back. */
struct pn_endpoint_waiting {
	bool sleeping; /* a thread sleeps in the devices */
	/* The thread that armed the descriptor, which has not become readable
	 * since; NULL: none. */
	const struct pn_thread *armed;
	/* More threads have armed it: they are notified even if the thread in
	 * `armed` polls by itself. */
	bool others_armed;
	_Atomic uint32_t progressed; /* counts ends of sleeps */
	int epoll;     /* over all devices and the rest; -1: not open */
	int notify_fd; /* eventfd for events that no device signals */
	/* timerfd for deadlines of peers, with several rails; else -1. When it
	 * expires; PN_FOREVER: never. */
	int timer_fd;
	uint64_t timer_ns;
};

/* Where pinion_poll() wants completions. In real time, and without a helper,
 * short messages that arrive during the poll are written there at once. */
struct pn_endpoint_poll {
	bool enabled;
	struct pinion_completion *out;
	unsigned n, room;
	/* The devices may give up the core (pn_device_idle()) after so many
	 * empty polls in a row; and at which count of stall.empty_polls. */
	uint32_t idle_after, idle_at;
	struct pn_receive_handler receive_handler; /* for the devices */
};

/* One of the requests that an endpoint waits for. */
struct pn_stalled_request {
	uint32_t n; /* requests of this kind */
	uint8_t space;
	bool matched;  /* the two sides have found each other */
	uint64_t peer; /* as stall.address; 0: any */
	uint64_t tag, ignore, bytes;
};

/* What an endpoint waits for whose polls find nothing, for other processes to
 * read in the statistics segment (stall.c). */
struct pn_endpoint_stall {
	uint32_t empty_polls; /* and tests in a row, since the last event */
	uint64_t since_ns;    /* of the first empty polls after an event */
	uint64_t seen_ns;     /* when the rest was written */
	uint64_t address;     /* a hash of the endpoint's address */
	struct pn_stalled_request receive; /* matched, else posted last */
	struct pn_stalled_request send;	   /* the oldest */
};

/* How the endpoint's lock works. */
enum pn_endpoint_locking {
	PN_LOCKING_NONE, /* one thread calls */
	PN_LOCKING_MUTEX,
	PN_LOCKING_VIRTUAL, /* tasks in virtual time */
	PN_LOCKING_BIASED,  /* the progress thread visits */
};

struct pinion_endpoint {
	/* Set when the endpoint is opened; read without the lock. */
	struct pn_rail rails[PN_RAILS_MAX];
	struct pn_device *devices[PN_RAILS_MAX]; /* the rails', for waiting */
	unsigned nrails;
	bool either;	      /* each peer is reached over one rail only */
	bool owns_devices;    /* closes them */
	bool single_threaded; /* callers take turns by themselves */
	enum pn_endpoint_locking locking;
	bool virtual_time;
	struct pn_device *device; /* the first rail's: clock, copies, waits */
	struct pn_cache *cache;	  /* the first rail's */
	struct pn_helper *helper; /* is told of every request; or NULL */
	struct pn_budget *budget;
	struct pn_pages_policy pages; /* behind the endpoint's own memory */
	struct pn_protocol_limits limits;
	uint64_t rail_timeout_ns; /* as in struct pn_endpoint_attr */
	size_t unexpected_limit;  /* the same */
	/* Shorter messages are eager, go inline and are of no interest to
	 * `reuse`. */
	size_t inject_below;
	enum pn_reuse_kind eager_kind; /* of eager messages */

	/* Set and used by the public calls, under the context's lock. */
	struct pinion_context *context;
	struct pn_list context_link;

	/* From here on: under the lock. */
	struct pn_mutex lock;
	struct pn_biased_lock biased_lock;
	struct pn_virtual_lock {
		bool held;
		unsigned nqueued;	 /* tasks that wait for it */
		_Atomic uint32_t nfreed; /* counts; they sleep on it */
	} virtual_lock;

	struct pn_requests requests;
	struct pn_endpoint_matching matching;
	struct pn_endpoint_poll poll;
	struct pn_endpoint_packets packets;
	struct pn_endpoint_transfers transfers;
	struct pn_endpoint_onesided onesided;
	struct pn_endpoint_waiting waiting;
	struct pn_progress_entry progress_entry;
	struct pn_endpoint_stall stall;

	struct pn_list peers;
	struct pn_list pending_peers; /* with something to post */
	unsigned noperations;	      /* in the devices, with a context */
	unsigned nclosing;	      /* connections that are being closed */
	struct pn_device_cleanup cleanup; /* of one that has closed */

	/* Protocol selection. */
	int protocol;
	struct pn_protocol_selector *selectors[PN_RAILS_MAX]; /* one; with
							       * `either` one
							       * per rail */
	struct pn_reuse reuse;

	uint32_t ntraced_peers; /* peers that have a number in traces */
	struct pn_endpoint_stats stats;
};

/* What a registration that stays must allow: every protocol may use it. A
 * source may be read, a target may be written and read into. */
#define PN_SOURCE_ACCESS PINION_ACCESS_REMOTE_READ
#define PN_TARGET_ACCESS \
	(PINION_ACCESS_REMOTE_WRITE | PINION_ACCESS_LOCAL_WRITE)

/* --- the lock ------------------------------------------------------------- */

/* wait.c: the lock in virtual time, where a task may not hold a mutex while
 * other tasks run, and the lock that the progress thread visits. */
void pn_endpoint_lock_special(struct pinion_endpoint *ep);
void pn_endpoint_unlock_special(struct pinion_endpoint *ep);

static inline void pn_endpoint_lock(struct pinion_endpoint *ep)
	PN_NO_THREAD_SAFETY
{
	if (!ep->locking)
		return;
	if (pn_unlikely(ep->locking != PN_LOCKING_MUTEX))
		pn_endpoint_lock_special(ep);
	else
		pn_lock(&ep->lock);
}

static inline void pn_endpoint_unlock(struct pinion_endpoint *ep)
	PN_NO_THREAD_SAFETY
{
	if (!ep->locking)
		return;
	if (pn_unlikely(ep->locking != PN_LOCKING_MUTEX))
		pn_endpoint_unlock_special(ep);
	else
		pn_unlock(&ep->lock);
}

/* --- progress and waiting ------------------------------------------------- */

/* Polls the devices, acts on their completions and posts what waited. Returns
 * how many events there were. */
int pn_endpoint_progress(struct pinion_endpoint *ep);
void pn_progress_init(struct pinion_endpoint *ep);

/* After progress on behalf of a program that does not wait in a device, under
 * the lock: notes how many events there were. True: when the lock is free, call
 * pn_endpoint_idle(). */
static inline bool pn_endpoint_is_idle(struct pinion_endpoint *ep, int nevents)
{
	if (nevents) {
		ep->stall.empty_polls = 0;
		ep->poll.idle_at = ep->poll.idle_after;
		return false;
	}
	return pn_unlikely(++ep->stall.empty_polls >= ep->poll.idle_at);
}
void pn_endpoint_idle(struct pinion_endpoint *ep);

/* Makes the descriptor readable if it is armed. */
void pn_endpoint_notify(struct pinion_endpoint *ep);

/* Something happened that no device signals: wakes whoever sleeps in the
 * devices, or on the descriptor. */
static inline void pn_endpoint_wake_waiting(struct pinion_endpoint *ep)
{
	if (ep->waiting.sleeping)
		pn_device_wake(ep->device);
	pn_endpoint_notify(ep);
}

/* The calling thread polls: if it is the only one that armed the descriptor, no
 * notification is needed. */
static inline void pn_endpoint_disarm(struct pinion_endpoint *ep)
{
	struct pn_endpoint_waiting *w = &ep->waiting;

	if (pn_unlikely(w->armed) && w->armed == pn_thread_self() &&
	    !w->others_armed)
		w->armed = NULL;
}

/* Arms the devices, after progress that found nothing; the descriptor becomes
 * readable for the next event. Leaves a notification that a program waits for.
 * -EAGAIN: there is something already. */
int pn_endpoint_arm_devices(struct pinion_endpoint *ep);

/* A new descriptor that is readable when a device's is; or negative errno.
 * Notifications of the endpoint do not make it readable. */
int pn_endpoint_open_devices_fd(const struct pinion_endpoint *ep);

/* When an endpoint ends: closes what pn_endpoint_fd() opened; the locks. */
void pn_endpoint_close_descriptors(struct pinion_endpoint *ep);
void pn_endpoint_fini_locks(struct pinion_endpoint *ep);

/* close.c: an operation has ended whose endpoint is closed. Frees the endpoint
 * with its last operation. */
void pn_endpoint_orphan_done(struct pinion_endpoint *ep);

/* --- requests ------------------------------------------------------------- */

/* A request for a message. NULL: no memory. */
static inline struct pinion_request *pn_request_alloc(
	struct pinion_endpoint *ep, const struct pinion_message *message)
{
	struct pn_list *link = ep->requests.free.next;
	struct pinion_request *request =
		pn_container_of(link, struct pinion_request, link);

	if (pn_unlikely(link == &ep->requests.free))
		request = pn_request_new(ep);
	else
		pn_list_remove(link);
	if (pn_unlikely(!request))
		return NULL;
	if (pn_unlikely(!request->rest_is_clean))
		pn_request_init_rest(request);
	pn_request_init(request, ep, message);
	return request;
}

/* The most recently used comes first: its memory is warm. */
static inline void pn_request_free(struct pinion_request *request)
{
	request->id = pn_request_next_id(request->id);
	pn_list_insert(&request->ep->requests.free, &request->link);
}

/* --- posting -------------------------------------------------------------- */

/* Whether len more bytes can stay registered without evicting others soon. */
bool pn_endpoint_budget_allows(const struct pinion_endpoint *ep, size_t len);
/* Whether the helper has dropped the registration of buf, on any rail, since
 * this was last asked. */
bool pn_endpoint_was_dropped(const struct pinion_endpoint *ep, const void *buf);

/* Whether the part of a buffer that goes by RDMA, under any protocol, is
 * registered for the connection to a peer. */
bool pn_peer_covers(const struct pinion_peer *peer, const uint8_t *buf,
		    size_t len, unsigned access);

/* The selector that chooses protocols for messages to a peer. */
static inline struct pn_protocol_selector *pn_peer_selector(
	const struct pinion_peer *peer)
{
	const struct pinion_endpoint *ep = peer->ep;

	return ep->selectors[ep->either ? peer->conn->rail->index : 0];
}

/* A posted multi-receive is about to take a message: posts what the message
 * leaves of the buffer, directly behind the receive. */
void pn_multi_recv_repost(struct pinion_request *receive, size_t message_len);

/* --- traces, statistics, checks ------------------------------------------- */

/* trace_events.c: records that a request was posted, and the protocol that was
 * chosen for it, if the process records a trace. */
void pn_trace_request(struct pinion_request *request);
static inline void pn_trace_request_posted(struct pinion_request *request)
{
	if (pn_unlikely(pn_trace_sink()))
		pn_trace_request(request);
}
void pn_trace_protocol_chosen(struct pinion_request *request, int protocol,
			      enum pn_trace_event_reason why);

/* statistics.c */
extern const struct pn_stats_kind pn_endpoint_statistics;

/* stall.c. PN_STALL_POLLS or more polls in a row found no event. To be called
 * at least once in as many. */
#define PN_STALL_POLLS 256
void pn_endpoint_stalled(struct pinion_endpoint *ep);

/* check.c: asserts that the connections that are still closing are counted. */
void pn_endpoint_check_closing(const struct pinion_endpoint *ep);

#ifdef PINION_CHECK_CLOSE
#define PN_ENDPOINT_CHECK(ep)	      pn_endpoint_check(ep)
#define PN_ENDPOINT_CHECK_CLOSING(ep) pn_endpoint_check_closing(ep)
#else
#define PN_ENDPOINT_CHECK(ep)	      ((void)0)
#define PN_ENDPOINT_CHECK_CLOSING(ep) ((void)0)
#endif

#endif
