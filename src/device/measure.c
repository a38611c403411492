/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/measure.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/range.h"

#define MAX_PAGES	   ((size_t)1024)
#define MIN_LINE_PAGES	   ((size_t)64)
#define DEFERRED_MAX_PAGES ((size_t)16)
#define MAX_TRIALS	   15
#define MIN_TRIALS	   3 /* trials of a point, however slow it is */
#define POINT_NS	   (3 * PN_NS_PER_MS / 2)
#define MAX_POINTS	   8
#define BUFFER_SIZE	   (MAX_PAGES * PN_PAGE_BYTES)

/* Put and get are measured between the halves of one registration. */
#define MAX_MOVE_BYTES ((size_t)512 << 10)

struct run {
	struct pn_device *device;
	struct pn_peer *self;
	struct pn_mr mr; /* for transfers */
	uint64_t remote_addr, rkey;
	char *buffer;
	size_t max_pages;
};

/* Points from which a line is computed. */
struct points {
	double x[MAX_POINTS], y[MAX_POINTS];
	size_t n;
};

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double pn_median(double *samples, size_t n)
{
	qsort(samples, n, sizeof(*samples), compare);
	return n % 2 ? samples[n / 2]
		     : (samples[n / 2 - 1] + samples[n / 2]) / 2;
}

struct pn_trials pn_trials_begin(size_t min, size_t max, uint64_t budget_ns)
{
	return (struct pn_trials){ .min = min < max ? min : max,
				   .max = max,
				   .deadline_ns = pn_clock_ns() + budget_ns };
}

double pn_device_since(struct pn_device *device, uint64_t start)
{
	uint64_t now = pn_device_now(device);

	return now > start ? (double)(now - start) : 1;
}

int pn_measure_register(struct pn_device *device, struct pn_measure_register *m)
{
	struct pn_mr mr = { .addr = m->addr,
			    .len = m->len,
			    .access = PINION_ACCESS_LOCAL_WRITE };
	struct pn_mr *list = &mr;
	double *dereg = m->samples + m->trials.max;

	for (m->n = 0; pn_trials_continue(&m->trials, m->n); m->n++) {
		uint64_t start;
		int ret;

		if (m->before)
			m->before(m->arg);
		start = pn_device_now(device);
		ret = pn_device_register(device, &list, 1);
		if (ret)
			return ret;
		m->samples[m->n] = pn_device_since(device, start);
		start = pn_device_now(device);
		pn_device_deregister(device, &list, 1);
		dereg[m->n] = pn_device_since(device, start);
	}
	m->register_ns = pn_median(m->samples, m->n);
	m->deregister_ns = pn_median(dereg, m->n);
	return 0;
}

int pn_measure_move(struct pn_device *device,
		    const struct pn_blocking_transfer *move,
		    const struct pn_trials *trials, double *samples,
		    double *median_ns)
{
	size_t n;

	for (n = 0; pn_trials_continue(trials, n); n++) {
		uint64_t start = pn_device_now(device);
		int ret = pn_blocking_transfer(device, move);

		if (ret)
			return ret;
		samples[n] = pn_device_since(device, start);
	}
	*median_ns = pn_median(samples, n);
	return 0;
}

/* --- measuring a device -------------------------------------------------- */

static void add_point(struct points *points, double x, double y)
{
	points->x[points->n] = x;
	points->y[points->n++] = y;
}

/* Whether every trial counts against a limit for about a second. */
static bool is_charged_by_trial(const struct pn_device *device)
{
	return device->limits.deferred_uncharge &&
	       device->limits.max_pinned_bytes != SIZE_MAX;
}

static int measure_pages(struct run *run, size_t npages, struct points *reg,
			 struct points *dereg)
{
	size_t max = is_charged_by_trial(run->device) ? MIN_TRIALS : MAX_TRIALS;
	double samples[2 * MAX_TRIALS];
	struct pn_measure_register m = {
		.addr = run->buffer,
		.len = npages * PN_PAGE_BYTES,
		.trials = pn_trials_begin(MIN_TRIALS, max, POINT_NS),
		.samples = samples,
	};
	int ret = pn_measure_register(run->device, &m);

	if (ret)
		return ret;
	add_point(reg, (double)npages, m.register_ns);
	add_point(dereg, (double)npages, m.deregister_ns);
	return 0;
}

/* The largest registration to measure: a sixteenth of the limit, which others
 * may share, but at least enough pages for a line. */
static size_t pages_to_measure(const struct pn_device *device)
{
	size_t share = device->limits.max_pinned_bytes / 16 / PN_PAGE_BYTES;

	if (is_charged_by_trial(device))
		return DEFERRED_MAX_PAGES;
	if (share < MIN_LINE_PAGES)
		share = MIN_LINE_PAGES;
	return share < MAX_PAGES ? share : MAX_PAGES;
}

/* Measures larger and larger registrations until the limit on pinned memory
 * ends it. */
static int measure_registering(struct run *run, struct pn_costs *costs,
			       struct pn_measure_regressions *regressions)
{
	struct points reg = { 0 }, dereg = { 0 };
	size_t max = pages_to_measure(run->device);
	int ret = 0;

	for (size_t n = 1; !ret && n <= max; n *= 4) {
		ret = measure_pages(run, n, &reg, &dereg);
		if (!ret)
			run->max_pages = n;
	}
	if (ret && (ret != -ENOMEM || !run->max_pages))
		return ret;
	ret = pn_regression_line(reg.x, reg.y, reg.n, &regressions->reg);
	if (!ret)
		ret = pn_regression_line(dereg.x, dereg.y, dereg.n,
					 &regressions->dereg);
	if (ret)
		return ret;
	costs->register_ns = regressions->reg.intercept;
	costs->register_page_ns = regressions->reg.slope;
	costs->deregister_ns = regressions->dereg.intercept;
	costs->deregister_page_ns = regressions->dereg.slope;
	regressions->max_pages = run->max_pages;
	return 0;
}

/* Moves bytes between the halves of the registration, which are warm after the
 * first trial. */
static int measure_move(struct run *run, enum pn_op_kind kind, size_t len,
			struct points *points)
{
	struct pn_blocking_transfer move = {
		.kind = kind,
		.peer = run->self,
		.local = run->buffer,
		.lkey = run->mr.lkey,
		.remote_addr = run->remote_addr,
		.rkey = run->rkey,
		.len = len,
	};
	struct pn_trials trials =
		pn_trials_begin(MIN_TRIALS, MAX_TRIALS, POINT_NS);
	double samples[MAX_TRIALS], median;
	int ret =
		pn_measure_move(run->device, &move, &trials, samples, &median);

	if (!ret)
		add_point(points, (double)len, median);
	return ret;
}

/* Computes a line through sizes that the device handles in the same way. */
static int measure_moves(struct run *run, enum pn_op_kind kind, size_t max,
			 struct pn_regression *fit)
{
	struct points points = { 0 };
	int ret = 0;

	for (size_t len = 8; !ret && len <= max; len *= 8)
		ret = measure_move(run, kind, len, &points);
	return ret ? ret
		   : pn_regression_line(points.x, points.y, points.n, fit);
}

/* The measuring thread wakes another thread that slept meanwhile, and that
 * thread answers. */
struct wake_probe {
	struct pn_device *device;
	_Atomic uint32_t woken, answered;
	_Atomic uint64_t answered_ns;
};

#define WAKE_TRIALS 10

static void *answer_wakes(void *arg)
{
	struct wake_probe *probe = arg;

	for (uint32_t n = 0; n < WAKE_TRIALS; n++) {
		while (atomic_load(&probe->woken) == n)
			pn_device_futex_wait(probe->device, &probe->woken, n);
		atomic_store(&probe->answered_ns, pn_device_now(probe->device));
		atomic_store(&probe->answered, n + 1);
		pn_device_futex_wake(probe->device, &probe->answered);
	}
	return NULL;
}

static double measure_wake(struct wake_probe *probe, uint32_t n)
{
	uint64_t start = pn_device_now(probe->device);

	/* The other thread has had time to fall asleep. */
	while (pn_device_now(probe->device) < start + 20 * PN_NS_PER_US)
		;
	start = pn_device_now(probe->device);
	atomic_store(&probe->woken, n + 1);
	pn_device_futex_wake(probe->device, &probe->woken);
	while (atomic_load(&probe->answered) == n)
		pn_device_futex_wait(probe->device, &probe->answered, n);
	return (double)(atomic_load(&probe->answered_ns) - start);
}

/* The shortest time to wake another thread. On a busy machine the rest is
 * waiting for a core, which is no property of the device. */
static int measure_handoff(struct run *run, struct pn_costs *costs)
{
	struct wake_probe probe = { .device = run->device };
	pthread_t thread;
	int ret;

	if (costs->handoff_bytes == SIZE_MAX || !costs->cpu_moves)
		return 0;
	ret = pthread_create(&thread, NULL, answer_wakes, &probe);
	if (ret)
		return -ret;
	costs->handoff_ns = measure_wake(&probe, 0);
	for (uint32_t n = 1; n < WAKE_TRIALS; n++)
		costs->handoff_ns =
			fmin(costs->handoff_ns, measure_wake(&probe, n));
	pthread_join(thread, NULL);
	return 0;
}

static int measure_send(struct run *run, double *out)
{
	struct pn_sge sge = { run->buffer, 1, run->mr.lkey };
	struct pn_op op = { .kind = PN_OP_SEND, .sge = &sge, .nsge = 1 };
	struct pn_trials trials =
		pn_trials_begin(MIN_TRIALS, MAX_TRIALS, POINT_NS);
	double samples[MAX_TRIALS];
	size_t n;

	for (n = 0; pn_trials_continue(&trials, n); n++) {
		uint64_t start = pn_device_now(run->device);
		struct pn_completion c;
		int ret = pn_blocking_post(run->device, run->self, &op);

		if (!ret)
			ret = pn_blocking_poll(run->device, PN_COMPLETION_RECV,
					       &c);
		if (ret)
			return ret;
		samples[n] = pn_device_since(run->device, start);
		pn_device_return_buffer(run->device, &c);
	}
	*out = pn_median(samples, n);
	return 0;
}

static void measure_copy(struct run *run, double *byte_ns)
{
	struct pn_trials trials =
		pn_trials_begin(MIN_TRIALS, MAX_TRIALS, POINT_NS);
	size_t half = run->mr.len / 2;
	double samples[MAX_TRIALS];
	size_t n;

	for (n = 0; pn_trials_continue(&trials, n); n++) {
		uint64_t start = pn_device_now(run->device);

		pn_copy(run->device, run->buffer, run->buffer + half, half);
		samples[n] = pn_device_since(run->device, start) / (double)half;
	}
	*byte_ns = pn_median(samples, n);
}

static int measure_moving(struct run *run, struct pn_costs *costs,
			  struct pn_measure_regressions *regressions)
{
	size_t half = run->mr.len / 2;
	size_t max = costs->handoff_bytes && costs->handoff_bytes < half
			     ? costs->handoff_bytes
			     : half;
	int ret = measure_moves(run, PN_OP_WRITE, max, &regressions->put);

	if (!ret)
		ret = measure_moves(run, PN_OP_READ, max, &regressions->get);
	if (!ret && run->device->limits.max_send_bytes)
		ret = measure_send(run, &costs->send_ns);
	if (ret)
		return ret;
	measure_copy(run, &costs->copy_byte_ns);
	costs->put_ns = regressions->put.intercept;
	costs->put_byte_ns = regressions->put.slope;
	costs->get_ns = regressions->get.intercept;
	costs->get_byte_ns = regressions->get.slope;
	return measure_handoff(run, costs);
}

static void close_scratch(struct run *run)
{
	if (run->device->ops->scratch_free)
		run->device->ops->scratch_free(run->device, run->remote_addr);
}

/* Attaches the peer that is the device itself, and registers memory for puts
 * and gets. */
static int open_loopback(struct run *run)
{
	size_t len = run->max_pages * PN_PAGE_BYTES;
	struct pn_mr *mr = &run->mr;
	struct pn_address address;
	int ret;

	if (len > 2 * MAX_MOVE_BYTES)
		len = 2 * MAX_MOVE_BYTES;
	*mr = (struct pn_mr){ .addr = run->buffer,
			      .len = len,
			      .access = PINION_ACCESS_LOCAL_WRITE |
					PINION_ACCESS_REMOTE_READ |
					PINION_ACCESS_REMOTE_WRITE };
	ret = pn_device_register(run->device, &mr, 1);
	if (ret)
		return ret;
	run->remote_addr = (uintptr_t)run->buffer + len / 2;
	run->rkey = mr->rkey;
	if (run->device->ops->scratch)
		ret = run->device->ops->scratch(run->device, len,
						&run->remote_addr, &run->rkey);
	if (ret)
		goto deregister;
	pn_device_address(run->device, &address);
	ret = pn_device_attach(run->device, &address, &run->self);
	if (!ret)
		return 0;
	close_scratch(run);

deregister:
	pn_device_deregister(run->device, &mr, 1);
	return ret;
}

static int measure_all(struct run *run, struct pn_costs *costs,
		       struct pn_measure_regressions *regressions)
{
	struct pn_mr *mr = &run->mr;
	int ret = measure_registering(run, costs, regressions);

	if (!ret)
		ret = open_loopback(run);
	if (ret)
		return ret;
	ret = measure_moving(run, costs, regressions);
	close_scratch(run);
	pn_device_deregister(run->device, &mr, 1);
	return ret;
}

int pn_device_measure(struct pn_device *device,
		      struct pn_measure_regressions *regressions)
{
	const struct pn_pages_policy pages = { .huge = PN_PAGES_NORMAL,
					       .numa_node = -1,
					       .populate = true };
	struct pn_costs costs = { .emulated = device->emulated,
				  .cpu_moves = device->costs.cpu_moves,
				  .handoff_bytes =
					  device->costs.handoff_bytes };
	struct pn_measure_regressions found = { .max_pages = 0 };
	struct run run = { .device = device };
	void *buffer;
	int ret = 0;

	if (!(device->caps & PN_CAP_VIRTUAL_TIME)) {
		ret = pn_pages_map(BUFFER_SIZE, &pages, &buffer);
		if (ret)
			return ret;
		run.buffer = buffer;
		ret = measure_all(&run, &costs, &found);
		pn_pages_unmap(buffer, BUFFER_SIZE, &pages);
		if (!ret)
			device->costs = costs;
	}
	if (!ret && regressions)
		*regressions = found;
	return ret;
}

void pn_device_assume_costs(struct pn_device *device)
{
	const struct pn_costs typical = {
		.register_ns = 430,
		.register_page_ns = 52,
		.deregister_ns = 330,
		.deregister_page_ns = 15,
		.copy_byte_ns = 0.05,
		.put_ns = 800,
		.put_byte_ns = 0.07,
		.get_ns = 800,
		.get_byte_ns = 0.07,
		.send_ns = 200,
		.emulated = device->emulated,
		.cpu_moves = device->costs.cpu_moves,
		.handoff_bytes = device->costs.handoff_bytes,
		.handoff_ns = 20e3,
	};

	device->costs = typical;
}
