/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Operations: copies between registered host memory and the GPU's memory.
 *
 * All go to one non-blocking stream, so they take effect and end in order. An
 * operation is one copy for each run of bytes that lies in one block, then an
 * event; poll() looks at the event of the oldest operation. Who waits has the
 * stream call a function behind what was posted, which makes a descriptor
 * readable.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pages.h"
#include "device/cuda/cuda_impl.h"
#include "device/validate.h"

#define SPIN_NS	     (20 * PN_NS_PER_US)
/* A stream whose context was destroyed calls nothing. */
#define MAX_SLEEP_NS (10 * PN_NS_PER_MS)

/* --- the stream ------------------------------------------------------------
 */

static int create_events(struct pn_cuda_device *dev)
{
	const unsigned flags = PN_CU_EVENT_DISABLE_TIMING;

	for (unsigned i = 0; i < PN_CUDA_DEPTH; i++) {
		pn_cu_result result =
			dev->cu->event_create(&dev->ops[i].event, flags);

		if (result)
			return pn_cuda_errno(result);
	}
	return 0;
}

/* Those of a context that is gone went with it. */
static void forget_stream(struct pn_cuda_device *dev)
{
	dev->stream = NULL;
	for (unsigned i = 0; i < PN_CUDA_DEPTH; i++)
		dev->ops[i].event = NULL;
}

static void destroy_stream(struct pn_cuda_device *dev)
{
	for (unsigned i = 0; i < PN_CUDA_DEPTH; i++)
		if (dev->ops[i].event)
			dev->cu->event_destroy(dev->ops[i].event);
	if (dev->stream)
		dev->cu->stream_destroy(dev->stream);
	forget_stream(dev);
}

int pn_cuda_stream_open(struct pn_cuda_device *dev)
{
	pn_cu_result result =
		dev->cu->stream_create(&dev->stream, PN_CU_STREAM_NON_BLOCKING);
	int ret = pn_cuda_errno(result);

	dev->stream_id = atomic_load(&dev->context_id);
	if (!ret)
		ret = create_events(dev);
	if (ret)
		destroy_stream(dev);
	return ret;
}

void pn_cuda_stream_close(struct pn_cuda_device *dev)
{
	if (dev->stream_id != atomic_load(&dev->context_id))
		return;
	if (dev->stream)
		dev->cu->stream_synchronize(dev->stream);
	destroy_stream(dev);
}

/* After the context was destroyed, operations in flight have failed; a new
 * stream belongs to the new context. */
static int check_stream(struct pn_cuda_device *dev) PN_REQUIRES(&dev->lock)
{
	if (pn_likely(dev->stream_id == atomic_load(&dev->context_id)))
		return dev->stream ? 0 : -ECONNRESET;
	for (unsigned i = dev->head; i != dev->tail; i++)
		dev->ops[i % PN_CUDA_DEPTH].status = -ECONNRESET;
	forget_stream(dev);
	return pn_cuda_stream_open(dev) ? -ECONNRESET : 0;
}

/* The event of the last operation in flight on the range; NULL: there is none.
 */
static pn_cu_event last_event(struct pn_cuda_device *dev, struct pn_range range)
	PN_REQUIRES(&dev->lock)
{
	for (unsigned i = dev->tail; i != dev->head; i--) {
		const struct pn_cuda_op *op =
			&dev->ops[(i - 1) % PN_CUDA_DEPTH];

		if (pn_range_overlaps(op->host, range))
			return op->event;
	}
	return NULL;
}

/* The event stays, and if it is recorded again meanwhile, the wait is longer.
 */
void pn_cuda_quiesce(struct pn_cuda_device *dev, struct pn_range range)
{
	pn_cu_event event = NULL;

	if (atomic_load(&dev->head) == atomic_load(&dev->tail))
		return;
	pn_lock(&dev->lock);
	if (!check_stream(dev))
		event = last_event(dev, range);
	pn_unlock(&dev->lock);
	if (event)
		dev->cu->event_synchronize(event);
}

/* --- the peer --------------------------------------------------------------
 */

struct address {
	char kind[4];
	uint32_t version;
	int32_t pid, ordinal;
};

static struct address address_of(const struct pn_cuda_device *dev)
{
	return (struct address){ .kind = { 'c', 'u', 'd', 'a' },
				 .version = 1,
				 .pid = getpid(),
				 .ordinal = dev->ordinal };
}

void pn_cuda_address(struct pn_device *device, struct pn_address *out)
{
	struct address own = address_of(pn_cuda_of(device));

	*out = (struct pn_address){ .len = sizeof(own) };
	memcpy(out->data, &own, sizeof(own));
}

int pn_cuda_attach(struct pn_device *device, const struct pn_address *address,
		   struct pn_peer **out)
{
	struct pn_cuda_device *dev = pn_cuda_of(device);
	struct address own = address_of(dev), other;

	if (address->len != sizeof(other))
		return -EINVAL;
	memcpy(&other, address->data, sizeof(other));
	if (memcmp(other.kind, own.kind, sizeof(own.kind)) ||
	    other.version != own.version)
		return -EINVAL;
	if (other.pid != own.pid || other.ordinal != own.ordinal)
		return -EHOSTUNREACH;
	atomic_store(&dev->attached, true);
	*out = &dev->peer;
	return 0;
}

/* --- posting ---------------------------------------------------------------
 */

static pn_cu_result start_copy(struct pn_cuda_device *dev, enum pn_op_kind kind,
			       uintptr_t host, uint64_t gpu, size_t bytes)
{
	return kind == PN_OP_WRITE
		       ? dev->cu->memcpy_htod_async(gpu, (void *)host, bytes,
						    dev->stream)
		       : dev->cu->memcpy_dtoh_async((void *)host, gpu, bytes,
						    dev->stream);
}

/* The driver checks the GPU's side: an invalid value is a range there that is
 * not allocated. After other errors the context is of no use. */
static int copy_error(pn_cu_result result)
{
	if (result == PN_CUDA_ERROR_INVALID_VALUE)
		return -EACCES;
	return result == PN_CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -ECONNRESET;
}

/* Copies segment after segment, in runs. *started: whether anything was. */
static int start_copies(struct pn_cuda_device *dev, const struct pn_op *op,
			bool *started) PN_REQUIRES(&dev->lock)
{
	uint64_t gpu = op->remote_addr;

	for (unsigned i = 0; i < op->nsge; i++) {
		uintptr_t host = (uintptr_t)op->sge[i].addr;
		size_t left = op->sge[i].len;

		while (left) {
			size_t n = pn_cuda_blocks_run(&dev->blocks, host, left);
			pn_cu_result result =
				start_copy(dev, op->kind, host, gpu, n);

			if (result)
				return copy_error(result);
			*started = true;
			host += n;
			gpu += n;
			left -= n;
		}
	}
	return 0;
}

static struct pn_range around(const struct pn_op *op)
{
	struct pn_range range = { 0, 0 };

	for (unsigned i = 0; i < op->nsge; i++) {
		struct pn_range sge = { (uintptr_t)op->sge[i].addr,
					op->sge[i].len };

		range = range.len ? pn_range_hull(range, sge) : sge;
	}
	return range;
}

static int start_op(struct pn_cuda_device *dev, const struct pn_op *op)
	PN_REQUIRES(&dev->lock)
{
	struct pn_cuda_op *slot = &dev->ops[dev->tail % PN_CUDA_DEPTH];
	bool started = false;
	pn_cu_result result;
	int ret = start_copies(dev, op, &started);

	if (ret && !started)
		return ret;
	slot->user = op->user;
	slot->status = ret;
	slot->silent = op->flags & PN_OP_SILENT;
	slot->host = around(op);
	result = dev->cu->event_record(slot->event, dev->stream);
	if (result && !slot->status)
		slot->status = copy_error(result);
	atomic_store(&dev->tail, dev->tail + 1);
	return 0;
}

static int check_op(struct pn_cuda_device *dev, const struct pn_op *op)
{
	size_t len;
	int ret;

	if (op->kind == PN_OP_SEND) {
		pn_error("cuda:%d: a GPU has no messages: use put and get",
			 dev->ordinal);
		return -EOPNOTSUPP;
	}
	ret = pn_op_validate(&dev->device, op, &len);
	if (ret)
		return ret;
	if (op->rkey != PN_CUDA_RKEY && len)
		return -EACCES;
	for (unsigned i = 0; i < op->nsge; i++)
		if (!pn_cuda_key_covers(dev, &op->sge[i]))
			return -EFAULT;
	return 0;
}

int pn_cuda_post(struct pn_device *device, struct pn_peer *peer,
		 const struct pn_op *op)
{
	struct pn_cuda_device *dev = pn_cuda_of(device);
	struct pn_cuda_scope scope;
	int ret = check_op(dev, op);

	(void)peer;
	if (ret)
		return ret;
	if (pn_cuda_enter(device, &scope))
		return -ECONNRESET;
	pn_lock(&dev->lock);
	ret = check_stream(dev);
	if (!ret && dev->tail - dev->head == PN_CUDA_DEPTH)
		ret = -EAGAIN;
	if (!ret)
		ret = start_op(dev, op);
	pn_unlock(&dev->lock);
	pn_cuda_leave(device, &scope);
	return ret;
}

/* --- completions -----------------------------------------------------------
 */

/* Whether the oldest operation has ended; its status. */
static bool oldest_ended(struct pn_cuda_device *dev) PN_REQUIRES(&dev->lock)
{
	struct pn_cuda_op *op = &dev->ops[dev->head % PN_CUDA_DEPTH];
	pn_cu_result result;

	if (dev->head == dev->tail)
		return false;
	if (check_stream(dev) || op->status == -ECONNRESET) {
		op->status = -ECONNRESET;
		return true;
	}
	result = dev->cu->event_query(op->event);
	if (result == PN_CUDA_ERROR_NOT_READY)
		return false;
	if (result && !op->status)
		op->status = copy_error(result);
	return true;
}

static bool report_up(struct pn_cuda_device *dev, struct pn_completion *out)
{
	if (!atomic_load(&dev->attached) ||
	    atomic_exchange(&dev->up_reported, true))
		return false;
	*out = (struct pn_completion){ .kind = PN_COMPLETION_PEER_UP,
				       .peer = &dev->peer };
	return true;
}

/* Takes what has ended off the ring; how many completions that makes. */
static unsigned collect(struct pn_cuda_device *dev, struct pn_completion *out,
			unsigned max)
{
	unsigned n = 0;

	pn_lock(&dev->lock);
	while (n < max && oldest_ended(dev)) {
		const struct pn_cuda_op *op =
			&dev->ops[dev->head % PN_CUDA_DEPTH];

		if (op->status || !op->silent)
			out[n++] = (struct pn_completion){
				.kind = PN_COMPLETION_OP,
				.status = op->status,
				.peer = &dev->peer,
				.user = op->user,
			};
		atomic_store(&dev->head, dev->head + 1);
	}
	pn_unlock(&dev->lock);
	return n;
}

int pn_cuda_poll(struct pn_device *device, struct pn_completion *out,
		 unsigned max)
{
	struct pn_cuda_device *dev = pn_cuda_of(device);
	unsigned n = report_up(dev, out);
	struct pn_cuda_scope scope;
	bool entered;

	if (n == max || atomic_load(&dev->head) == atomic_load(&dev->tail))
		return (int)n;
	/* Where the context is gone, the operations have failed. */
	entered = !pn_cuda_enter(device, &scope);
	n += collect(dev, out + n, max - n);
	if (entered)
		pn_cuda_leave(device, &scope);
	return (int)n;
}

/* Whether poll() would return something. */
static bool is_ready(struct pn_cuda_device *dev)
{
	struct pn_cuda_scope scope;
	bool ready, entered;

	if (atomic_load(&dev->attached) && !atomic_load(&dev->up_reported))
		return true;
	if (atomic_load(&dev->head) == atomic_load(&dev->tail))
		return false;
	entered = !pn_cuda_enter(&dev->device, &scope);
	pn_lock(&dev->lock);
	ready = oldest_ended(dev);
	pn_unlock(&dev->lock);
	if (entered)
		pn_cuda_leave(&dev->device, &scope);
	return ready;
}

/* --- waiting ---------------------------------------------------------------
 */

static void notify(int fd)
{
	uint64_t one = 1;

	/* Fails only when the counter is full and thus readable. */
	if (write(fd, &one, sizeof(one)) < 0)
		return;
}

/* A thread of the driver calls it when the work before it has ended. */
static void stream_reached(void *arg)
{
	notify((int)(intptr_t)arg);
}

/* Makes the descriptor readable when what was posted so far has ended. */
static void ask_for_notice(struct pn_cuda_device *dev)
{
	struct pn_cuda_scope scope;

	if (atomic_load(&dev->head) == atomic_load(&dev->tail) ||
	    pn_cuda_enter(&dev->device, &scope))
		return;
	pn_lock(&dev->lock);
	if (!check_stream(dev))
		dev->cu->launch_host_func(dev->stream, stream_reached,
					  (void *)(intptr_t)dev->event_fd);
	pn_unlock(&dev->lock);
	pn_cuda_leave(&dev->device, &scope);
}

static void drain(const struct pn_cuda_device *dev)
{
	uint64_t count;

	(void)!read(dev->event_fd, &count, sizeof(count));
}

int pn_cuda_fd(struct pn_device *device)
{
	return pn_cuda_of(device)->event_fd;
}

int pn_cuda_arm(struct pn_device *device)
{
	struct pn_cuda_device *dev = pn_cuda_of(device);

	drain(dev);
	if (is_ready(dev) || atomic_exchange(&dev->woken, false))
		return -EAGAIN;
	ask_for_notice(dev);
	return 0;
}

void pn_cuda_wake(struct pn_device *device)
{
	struct pn_cuda_device *dev = pn_cuda_of(device);

	atomic_store(&dev->woken, true);
	notify(dev->event_fd);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

int pn_cuda_wait(struct pn_device *device, uint64_t deadline_ns)
{
	struct pn_cuda_device *dev = pn_cuda_of(device);
	uint64_t now = pn_clock_ns(), spin_until = now + SPIN_NS;

	for (;; now = pn_clock_ns()) {
		if (is_ready(dev) || atomic_exchange(&dev->woken, false))
			return 0;
		if (now >= deadline_ns)
			return -ETIMEDOUT;
		if (now < spin_until)
			continue;
		if (pn_cuda_arm(device))
			return 0;
		pn_device_sleep_on(dev->event_fd,
				   earlier(deadline_ns, now + MAX_SLEEP_NS));
	}
}

/* --- for measuring ---------------------------------------------------------
 */

int pn_cuda_scratch(struct pn_device *device, size_t bytes, uint64_t *addr,
		    uint64_t *rkey)
{
	struct pn_cuda_device *dev = pn_cuda_of(device);
	struct pn_cuda_scope scope;
	pn_cu_deviceptr at = 0;
	int ret = pn_cuda_enter(device, &scope);

	if (ret)
		return ret;
	ret = pn_cuda_errno(dev->cu->mem_alloc(&at, bytes));
	pn_cuda_leave(device, &scope);
	if (ret)
		return ret;
	*addr = at;
	*rkey = PN_CUDA_RKEY;
	return 0;
}

void pn_cuda_scratch_free(struct pn_device *device, uint64_t addr)
{
	struct pn_cuda_scope scope;

	if (pn_cuda_enter(device, &scope))
		return;
	pn_cuda_of(device)->cu->mem_free(addr);
	pn_cuda_leave(device, &scope);
}
