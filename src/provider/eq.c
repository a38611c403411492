/* SPDX-License-Identifier: BSD-2-Clause */
/* Event queues: a list, and an eventfd that is readable while the list is not
 * empty. An event queue belongs to no domain and has its own lock. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/cancel.h"
#include "provider/provider.h"

struct event {
	struct pn_list link;
	uint32_t event;
	size_t len;
	uint8_t data[];
};

struct queue {
	struct fid_eq fid;
	struct pn_fi_fabric *fabric;
	struct pn_mutex lock; /* protects events */
	struct pn_list events;
	int fd;
	bool may_write;
	bool may_wait;
};

static struct queue *queue_of(struct fid_eq *fid)
{
	return pn_container_of(fid, struct queue, fid);
}

static void drain(int fd)
{
	PN_NO_CANCEL();
	uint64_t n;

	(void)!read(
		fd, &n,
		sizeof(n)); /* it does not block; its value does not matter */
}

static ssize_t read_event(struct fid_eq *fid, uint32_t *event, void *buf,
			  size_t len, uint64_t flags)
{
	struct queue *q = queue_of(fid);
	ssize_t ret = -FI_EAGAIN;
	struct event *first;

	pn_lock(&q->lock);
	if (pn_list_empty(&q->events))
		goto unlock;
	first = pn_container_of(q->events.next, struct event, link);
	ret = -FI_ETOOSMALL;
	if (first->len > len)
		goto unlock;
	ret = (ssize_t)first->len;
	*event = first->event;
	memcpy(buf, first->data, first->len);
	if (!(flags & FI_PEEK)) {
		pn_list_remove(&first->link);
		free(first);
	}
	if (pn_list_empty(&q->events))
		drain(q->fd);
unlock:
	pn_unlock(&q->lock);
	return ret;
}

/* No asynchronous errors are reported. */
static ssize_t read_error(struct fid_eq *fid, struct fi_eq_err_entry *buf,
			  uint64_t flags)
{
	(void)fid, (void)buf, (void)flags;
	return -FI_EAGAIN;
}

static ssize_t write_event(struct fid_eq *fid, uint32_t event, const void *buf,
			   size_t len, uint64_t flags)
{
	PN_NO_CANCEL();
	struct queue *q = queue_of(fid);
	struct event *e;
	uint64_t one = 1;

	(void)flags;
	if (!q->may_write)
		return -FI_EINVAL;
	e = malloc(sizeof(*e) + len);
	if (!e)
		return -FI_ENOMEM;
	e->event = event;
	e->len = len;
	memcpy(e->data, buf, len);
	pn_lock(&q->lock);
	pn_list_append(&q->events, &e->link);
	(void)!write(q->fd, &one,
		     sizeof(one)); /* never full: read_event() drains it */
	pn_unlock(&q->lock);
	return (ssize_t)len;
}

static ssize_t sread_event(struct fid_eq *fid, uint32_t *event, void *buf,
			   size_t len, int timeout, uint64_t flags)
{
	struct queue *q = queue_of(fid);
	struct pollfd ready = { .fd = q->fd, .events = POLLIN };
	int64_t deadline = pn_fi_deadline_ms(timeout);
	ssize_t ret;

	/* Another thread may have read the event that woke this one. */
	for (;;) {
		int left = timeout;

		ret = read_event(fid, event, buf, len, flags);
		if (ret != -FI_EAGAIN)
			return ret;
		if (!q->may_wait)
			return -FI_ENOSYS;
		if (deadline >= 0)
			left = (int)(deadline - pn_fi_deadline_ms(0));
		if (left <= 0 && deadline >= 0)
			return ret;
		if (poll(&ready, 1, left) < 0)
			return -errno;
	}
}

static const char *error_text(struct fid_eq *fid, int prov_errno,
			      const void *err_data, char *buf, size_t len)
{
	(void)fid, (void)err_data;
	if (buf && len)
		snprintf(buf, len, "%s", strerror(prov_errno));
	return buf && len ? buf : strerror(prov_errno);
}

int pn_fi_eq_trywait(struct fid_eq *fid)
{
	struct queue *q = queue_of(fid);
	bool empty;

	pn_lock(&q->lock);
	empty = pn_list_empty(&q->events);
	pn_unlock(&q->lock);
	return empty ? 0 : -FI_EAGAIN;
}

static int close_queue(struct fid *fid)
{
	PN_NO_CANCEL();
	struct queue *q = pn_container_of(fid, struct queue, fid.fid);
	struct pn_list *link;

	while ((link = pn_list_pop(&q->events)))
		free(pn_container_of(link, struct event, link));
	atomic_fetch_sub(&q->fabric->refs, 1);
	close(q->fd);
	pn_mutex_fini(&q->lock);
	free(q);
	return 0;
}

static int control(struct fid *fid, int command, void *arg)
{
	struct queue *q = pn_container_of(fid, struct queue, fid.fid);

	if (command != FI_GETWAIT || !q->may_wait)
		return -FI_ENOSYS;
	*(int *)arg = q->fd;
	return 0;
}

static struct fi_ops eq_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = close_queue,
	.bind = pn_fi_no_bind,
	.control = control,
	.ops_open = pn_fi_no_ops,
};

static struct fi_ops_eq eq_ops = {
	.size = sizeof(struct fi_ops_eq),
	.read = read_event,
	.readerr = read_error,
	.write = write_event,
	.sread = sread_event,
	.strerror = error_text,
};

static bool attr_ok(const struct fi_eq_attr *attr)
{
	return attr->wait_obj == FI_WAIT_NONE ||
	       attr->wait_obj == FI_WAIT_UNSPEC || attr->wait_obj == FI_WAIT_FD;
}

int pn_fi_eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr,
		  struct fid_eq **out, void *context)
{
	struct queue *q;

	if (!attr_ok(attr))
		return -FI_ENOSYS;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -FI_ENOMEM;
	q->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (q->fd < 0) {
		free(q);
		return -errno;
	}
	q->fabric = pn_container_of(fabric, struct pn_fi_fabric, fid);
	atomic_fetch_add(&q->fabric->refs, 1);
	pn_mutex_init(&q->lock);
	pn_list_init(&q->events);
	q->may_write = attr->flags & FI_WRITE;
	q->may_wait = attr->wait_obj != FI_WAIT_NONE;
	q->fid.fid.fclass = FI_CLASS_EQ;
	q->fid.fid.context = context;
	q->fid.fid.ops = &eq_fid_ops;
	q->fid.ops = &eq_ops;
	*out = &q->fid;
	return 0;
}
