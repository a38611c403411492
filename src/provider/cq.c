/* SPDX-License-Identifier: BSD-2-Clause */
/* Completion queues. Reading an empty ring makes progress, unless experience
 * says that the poll would be empty (skips_empty_poll()). */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/cancel.h"
#include "provider/provider.h"

static struct pn_fi_cq *cq_of(struct fid_cq *fid)
{
	return pn_container_of(fid, struct pn_fi_cq, fid);
}

/* --- the ring ------------------------------------------------------------- */

static struct pn_fi_entry *entry_at(struct pn_fi_cq *cq, size_t n)
{
	return &cq->ring[n & (cq->capacity - 1)];
}

int pn_fi_cq_grow(struct pn_fi_cq *cq)
{
	size_t capacity = 2 * cq->capacity, n = cq->tail - cq->head;
	struct pn_fi_entry *ring = malloc(capacity * sizeof(*ring));

	if (!ring)
		return -FI_ENOMEM;
	for (size_t i = 0; i < n; i++)
		ring[i] = *entry_at(cq, cq->head + i);
	free(cq->ring);
	cq->ring = ring;
	cq->capacity = capacity;
	cq->head = 0;
	cq->tail = n;
	return 0;
}

PN_NOINLINE void pn_fi_cq_wake(struct pn_fi_cq *cq)
{
	uint64_t one = 1;

	if (cq->epoll < 0)
		return;
	PN_NO_CANCEL();
	cq->armed = false;
	cq->wakeup_pending = true;
	(void)!write(cq->event_fd, &one, sizeof(one)); /* full: readable, too */
}

static void copy_entry(const struct pn_fi_cq *cq, void *to,
		       const struct fi_cq_tagged_entry *cqe)
{
	if (pn_likely(cq->entry_bytes == sizeof(*cqe)))
		memcpy(to, cqe, sizeof(*cqe));
	else
		memcpy(to, cqe, cq->entry_bytes);
}

static void set_source(const struct pn_fi_entry *entry, fi_addr_t *from)
{
	*from = entry->ep ? pn_fi_addr_of(entry->ep, entry->peer)
			  : FI_ADDR_NOTAVAIL;
}

/* Copies an entry to the reader. False: there is no reader, or it is an error.
 */
static bool copy_to_reader(struct pn_fi_cq *cq, const struct pn_fi_entry *entry)
{
	size_t n = cq->reader.n;

	if (!pn_fi_cq_has_reader(cq) || entry->err)
		return false;
	copy_entry(cq, cq->reader.buf + n * cq->entry_bytes, &entry->cqe);
	if (pn_unlikely(cq->reader.from))
		set_source(entry, &cq->reader.from[n]);
	cq->reader.n++;
	return true;
}

void pn_fi_cq_push(struct pn_fi_cq *cq, const struct pn_fi_entry *entry)
{
	cq->reserved--;
	if (pn_unlikely(cq->discards_entries) || copy_to_reader(cq, entry))
		return;
	*entry_at(cq, cq->tail++) = *entry;
	if (pn_unlikely(cq->armed))
		pn_fi_cq_wake(cq);
}

/* Written in place: an entry that is built elsewhere and copied would be read
 * before its stores, and those of the message, have left the store buffer. */
void pn_fi_cq_push_sent(struct pn_fi_cq *cq, void *context, uint64_t flags)
{
	struct pn_fi_entry *entry;

	cq->reserved--;
	if (pn_unlikely(cq->discards_entries))
		return;
	entry = entry_at(cq, cq->tail++);
	memset(entry, 0, sizeof(*entry));
	entry->cqe.op_context = context;
	entry->cqe.flags = flags;
	if (pn_unlikely(cq->armed))
		pn_fi_cq_wake(cq);
}

static struct pn_fi_ep *ep_at(struct pn_list *link)
{
	return pn_container_of(link, struct pn_fi_member, link)->ep;
}

static int progress_endpoints(struct pn_fi_cq *cq)
{
	struct pn_list *pos;
	int n = 0;

	pn_list_for_each (pos, &cq->eps) {
		n += pn_fi_ep_progress(ep_at(pos));
	}
	return n;
}

bool pn_fi_cq_progress(struct pn_fi_cq *cq)
{
	if (cq->head == cq->tail)
		progress_endpoints(cq);
	return cq->head != cq->tail;
}

/* --- reading -------------------------------------------------------------- */

static PN_NOINLINE ssize_t pop_entries(struct pn_fi_cq *cq, void *buf,
				       size_t count, fi_addr_t *src_addr)
{
	size_t n = 0;

	for (; n < count && cq->head != cq->tail; n++, cq->head++) {
		struct pn_fi_entry *entry = entry_at(cq, cq->head);

		if (entry->err)
			break;
		copy_entry(cq, (char *)buf + n * cq->entry_bytes, &entry->cqe);
		if (src_addr)
			set_source(entry, &src_addr[n]);
	}
	if (n)
		return (ssize_t)n;
	return cq->head != cq->tail && count ? -FI_EAVAIL : -FI_EAGAIN;
}

/* Makes progress; completions go to the reader's buffer. Returns how many. */
static ssize_t progress_for_reader(struct pn_fi_cq *cq, void *buf, size_t count,
				   fi_addr_t *src_addr)
{
	cq->reader.buf = buf;
	cq->reader.from = src_addr;
	cq->reader.n = 0;
	cq->reader.room = count;
	progress_endpoints(cq);
	cq->reader.room = cq->reader.n;
	return (ssize_t)cq->reader.n;
}

/* Many programs read until nothing is left, then handle what they got: each
 * message then waits for an empty poll behind it. After a read that returned
 * fewer entries than asked for, the next read returns -FI_EAGAIN without
 * polling, if the last MIN_EMPTY_POLLS such polls were empty. */
#define MIN_EMPTY_POLLS 16

static inline bool skips_empty_poll(struct pn_fi_cq *cq, size_t count)
{
	/* A read of 0 entries asks for progress. */
	if (pn_likely(!cq->polls_again || !count))
		return false;
	if (cq->empty_polls++ < MIN_EMPTY_POLLS)
		return false;
	cq->polls_again = false;
	return true;
}

static inline ssize_t poll_for_reader(struct pn_fi_cq *cq, void *buf,
				      size_t count, fi_addr_t *src_addr)
{
	ssize_t n = progress_for_reader(cq, buf, count, src_addr);

	if (pn_unlikely(cq->polls_again && (n || cq->head != cq->tail)))
		cq->empty_polls = 0;
	cq->polls_again = n && (size_t)n < count;
	return n;
}

/* Inline: most calls find nothing. */
static PN_ALWAYS_INLINE inline ssize_t read_some(struct pn_fi_cq *cq, void *buf,
						 size_t count,
						 fi_addr_t *src_addr)
{
	ssize_t ret = 0;

	pn_fi_lock(cq->domain);
	if (pn_likely(cq->head == cq->tail) && !skips_empty_poll(cq, count))
		ret = poll_for_reader(cq, buf, count, src_addr);
	if (pn_unlikely(cq->head != cq->tail) && !ret)
		ret = pop_entries(cq, buf, count, src_addr);
	pn_fi_unlock(cq->domain);
	return ret ? ret : -FI_EAGAIN;
}

static bool consume_signal(struct pn_fi_cq *cq)
{
	bool signaled;

	pn_fi_lock(cq->domain);
	signaled = cq->signaled;
	cq->signaled = false;
	pn_fi_unlock(cq->domain);
	return signaled;
}

/* A program that waits on the descriptor itself reads after a signal, too. */
static ssize_t read_from(struct fid_cq *fid, void *buf, size_t count,
			 fi_addr_t *src_addr)
{
	ssize_t ret = read_some(cq_of(fid), buf, count, src_addr);

	if (pn_unlikely(ret == -FI_EAGAIN && cq_of(fid)->epoll >= 0))
		consume_signal(cq_of(fid));
	return ret;
}

static ssize_t read_plain(struct fid_cq *fid, void *buf, size_t count)
{
	return read_from(fid, buf, count, NULL);
}

/* There is no err_data. All versions of libfabric's struct begin with the same
 * fields; err_data_size is of version 1.5; later fields are not written. */
static ssize_t read_error(struct fid_cq *fid, struct fi_cq_err_entry *buf,
			  uint64_t flags)
{
	struct pn_fi_cq *cq = cq_of(fid);
	struct pn_fi_entry *entry;
	ssize_t ret = -FI_EAGAIN;

	(void)flags;
	pn_fi_lock(cq->domain);
	entry = entry_at(cq, cq->head);
	if (cq->head != cq->tail && entry->err) {
		buf->op_context = entry->cqe.op_context;
		buf->flags = entry->cqe.flags;
		buf->len = entry->cqe.len;
		buf->buf = entry->cqe.buf;
		buf->data = entry->cqe.data;
		buf->tag = entry->cqe.tag;
		buf->olen = entry->olen;
		buf->err = entry->err;
		buf->prov_errno = entry->err;
		if (FI_VERSION_GE(cq->domain->fabric->fid.api_version,
				  FI_VERSION(1, 5)))
			buf->err_data_size = 0;
		cq->head++;
		ret = 1;
	}
	pn_fi_unlock(cq->domain);
	return ret;
}

static const char *error_text(struct fid_cq *fid, int prov_errno,
			      const void *err_data, char *buf, size_t len)
{
	(void)fid, (void)err_data;
	if (buf && len)
		snprintf(buf, len, "%s", fi_strerror(prov_errno));
	return buf && len ? buf : fi_strerror(prov_errno);
}

/* --- waiting -------------------------------------------------------------- */

int pn_fi_cq_watch(struct pn_fi_cq *cq, struct pn_fi_ep *ep)
{
	struct epoll_event event = { .events = EPOLLIN };
	int fd;

	if (cq->epoll < 0)
		return 0;
	fd = pinion_endpoint_fd(ep->endpoint);
	if (fd < 0)
		return fd;
	return epoll_ctl(cq->epoll, EPOLL_CTL_ADD, fd, &event) &&
			       errno != EEXIST
		       ? -errno
		       : 0;
}

void pn_fi_cq_unwatch(struct pn_fi_cq *cq, struct pn_fi_ep *ep)
{
	if (cq->epoll >= 0)
		epoll_ctl(cq->epoll, EPOLL_CTL_DEL,
			  pinion_endpoint_fd(ep->endpoint), NULL);
}

/* Arming an endpoint makes progress, which may fill another CQ. A notification
 * that sleepers have not seen yet stays: a thread that poll() woke checks
 * again, and would go back to sleep if another thread had consumed it. */
static int arm(struct pn_fi_cq *cq)
{
	PN_NO_CANCEL();
	struct pn_list *pos;
	uint64_t n;

	if (cq->wakeup_pending && cq->sleepers)
		return -FI_EAGAIN;
	cq->wakeup_pending = false;
	if (!cq->signaled)
		(void)!read(cq->event_fd, &n,
			    sizeof(n)); /* an old notification */
	pn_list_for_each (pos, &cq->eps) {
		if (ep_at(pos)->lacks_memory ||
		    pinion_endpoint_arm(ep_at(pos)->endpoint))
			return -FI_EAGAIN;
	}
	cq->armed = true;
	return 0;
}

int pn_fi_cq_trywait(struct pn_fi_cq *cq)
{
	int ret;

	if (cq->epoll < 0)
		return -FI_EINVAL;
	pn_fi_lock(cq->domain);
	ret = pn_fi_cq_progress(cq) ? -FI_EAGAIN : arm(cq);
	pn_fi_unlock(cq->domain);
	return ret;
}

bool pn_fi_cq_sleep_begin(struct pn_fi_cq *cq)
{
	if (cq->epoll < 0 || arm(cq))
		return false;
	cq->sleepers++;
	return true;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000) + t.tv_nsec / 1000000;
}

int64_t pn_fi_deadline_ms(int timeout_ms)
{
	return timeout_ms < 0 ? -1 : now_ms() + timeout_ms;
}

static bool sleep_until(const struct pn_fi_cq *cq, int64_t deadline_ms)
{
	struct pollfd ready = { .fd = cq->epoll, .events = POLLIN };
	int64_t left = deadline_ms < 0 ? -1 : deadline_ms - now_ms();

	if (deadline_ms >= 0 && left <= 0)
		return false;
	return poll(&ready, 1, (int)left) >= 0 || errno == EINTR;
}

static void stop_sleeping(void *arg)
{
	struct pn_fi_cq *cq = arg;

	pn_fi_lock(cq->domain);
	cq->sleepers--;
	pn_fi_unlock(cq->domain);
}

/* A thread that is canceled in its sleep must not be counted. */
static bool sleep_counted(struct pn_fi_cq *cq, int64_t deadline_ms)
{
	bool in_time;

	pthread_cleanup_push(stop_sleeping, cq);
	in_time = sleep_until(cq, deadline_ms);
	pthread_cleanup_pop(1);
	return in_time;
}

bool pn_fi_cq_sleep(struct pn_fi_cq *cq, bool is_armed, int64_t deadline_ms)
{
	if (is_armed)
		return sleep_counted(cq, deadline_ms);
	sched_yield();
	return deadline_ms < 0 || now_ms() < deadline_ms;
}

/* False: the deadline has passed. */
static bool wait_for_entry(struct pn_fi_cq *cq, int64_t deadline_ms)
{
	bool found, is_armed;

	pn_fi_lock(cq->domain);
	found = pn_fi_cq_progress(cq);
	is_armed = !found && pn_fi_cq_sleep_begin(cq);
	pn_fi_unlock(cq->domain);
	return found || pn_fi_cq_sleep(cq, is_armed, deadline_ms);
}

static ssize_t sread_from(struct fid_cq *fid, void *buf, size_t count,
			  fi_addr_t *src_addr, const void *cond, int timeout)
{
	struct pn_fi_cq *cq = cq_of(fid);
	int64_t deadline = pn_fi_deadline_ms(timeout);
	ssize_t ret;

	(void)cond; /* only FI_CQ_COND_NONE is supported */
	if (cq->epoll < 0)
		return -FI_ENOSYS;
	for (;;) {
		ret = read_some(cq, buf, count, src_addr);
		if (ret != -FI_EAGAIN || consume_signal(cq))
			break;
		if (!wait_for_entry(cq, deadline))
			break;
	}
	return ret;
}

static ssize_t sread(struct fid_cq *fid, void *buf, size_t count,
		     const void *cond, int timeout)
{
	return sread_from(fid, buf, count, NULL, cond, timeout);
}

static int signal_cq(struct fid_cq *fid)
{
	struct pn_fi_cq *cq = cq_of(fid);

	if (cq->epoll < 0)
		return -FI_ENOSYS;
	pn_fi_lock(cq->domain);
	cq->signaled = true;
	pn_fi_cq_wake(cq);
	pn_fi_unlock(cq->domain);
	return 0;
}

/* --- life ----------------------------------------------------------------- */

static void free_cq(struct pn_fi_cq *cq)
{
	PN_NO_CANCEL();
	if (cq->epoll >= 0) {
		close(cq->epoll);
		close(cq->event_fd);
	}
	free(cq->ring);
	free(cq);
}

static int close_cq(struct fid *fid)
{
	struct pn_fi_cq *cq = pn_container_of(fid, struct pn_fi_cq, fid.fid);

	if (cq->refs)
		return -FI_EBUSY;
	atomic_fetch_sub(&cq->domain->refs, 1);
	free_cq(cq);
	return 0;
}

static int control(struct fid *fid, int command, void *arg)
{
	struct pn_fi_cq *cq = pn_container_of(fid, struct pn_fi_cq, fid.fid);

	if (command == FI_GETWAITOBJ) {
		*(enum fi_wait_obj *)arg =
			cq->epoll < 0 ? FI_WAIT_NONE : FI_WAIT_FD;
		return 0;
	}
	if (command != FI_GETWAIT || cq->epoll < 0)
		return -FI_ENOSYS;
	*(int *)arg = cq->epoll;
	return 0;
}

static struct fi_ops cq_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = close_cq,
	.bind = pn_fi_no_bind,
	.control = control,
	.ops_open = pn_fi_no_ops,
};

static struct fi_ops_cq cq_ops = {
	.size = sizeof(struct fi_ops_cq),
	.read = read_plain,
	.readfrom = read_from,
	.readerr = read_error,
	.sread = sread,
	.sreadfrom = sread_from,
	.signal = signal_cq,
	.strerror = error_text,
};

/* Each format is a prefix of the longest one. 0: no such format. */
static size_t entry_bytes(enum fi_cq_format format)
{
	switch (format) {
	case FI_CQ_FORMAT_CONTEXT:
		return sizeof(struct fi_cq_entry);
	case FI_CQ_FORMAT_MSG:
		return sizeof(struct fi_cq_msg_entry);
	case FI_CQ_FORMAT_DATA:
		return sizeof(struct fi_cq_data_entry);
	case FI_CQ_FORMAT_UNSPEC:
	case FI_CQ_FORMAT_TAGGED:
		return sizeof(struct fi_cq_tagged_entry);
	default:
		return 0;
	}
}

static int open_wait(struct pn_fi_cq *cq, enum fi_wait_obj kind)
{
	struct epoll_event event = { .events = EPOLLIN };

	cq->epoll = -1;
	if (kind == FI_WAIT_NONE)
		return 0;
	if (kind != FI_WAIT_UNSPEC && kind != FI_WAIT_FD)
		return -FI_ENOSYS;
	cq->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (cq->event_fd < 0)
		return -errno;
	cq->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (cq->epoll < 0 ||
	    epoll_ctl(cq->epoll, EPOLL_CTL_ADD, cq->event_fd, &event)) {
		int ret = -errno;

		if (cq->epoll < 0)
			close(cq->event_fd);
		return ret;
	}
	return 0;
}

int pn_fi_cq_open(struct fid_domain *domain, struct fi_cq_attr *attr,
		  struct fid_cq **out, void *context)
{
	struct pn_fi_cq *cq;
	int ret;

	if (!entry_bytes(attr->format) || attr->wait_cond != FI_CQ_COND_NONE)
		return -FI_ENOSYS;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -FI_ENOMEM;
	cq->entry_bytes = entry_bytes(attr->format);
	cq->capacity = 64;
	pn_list_init(&cq->eps);
	ret = open_wait(cq, attr->wait_obj);
	cq->ring = malloc(cq->capacity * sizeof(*cq->ring));
	if (!ret && !cq->ring)
		ret = -FI_ENOMEM;
	if (ret) {
		free_cq(cq);
		return ret;
	}
	cq->domain = pn_container_of(domain, struct pn_fi_domain, fid);
	atomic_fetch_add(&cq->domain->refs, 1);
	cq->fid.fid.fclass = FI_CLASS_CQ;
	cq->fid.fid.context = context;
	cq->fid.fid.ops = &cq_fid_ops;
	cq->fid.ops = &cq_ops;
	*out = &cq->fid;
	return 0;
}
