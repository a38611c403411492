/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/cluster.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "device/sim/sim.h"
#include "helper/frames.h"
#include "helper/helper.h"
#include "message/message.h"

/* Upper bound of the requests that a program posts between two waits. */
#define MAX_REQUESTS 64
#define PLENTY	     ((size_t)1 << 40)
/* Time slices of helpers that share a core, as of a scheduler. */
#define SLICE_NS     (4 * PN_NS_PER_MS)

static const char *const names[] = { "leave_pinned", "on_demand",
				     "pipeline",     "pipeline_leave_pinned",
				     "helper",	     "auto",
				     "auto_helper" };
static const int protocols[] = {
	PN_PROTOCOL_CACHED,   PN_PROTOCOL_DEMAND,
	PN_PROTOCOL_PIPELINE, PN_PROTOCOL_CACHING_PIPELINE,
	PN_PROTOCOL_CACHED,   PN_PROTOCOL_AUTO,
	PN_PROTOCOL_AUTO
};

const char *pn_scheme_name(enum pn_scheme scheme)
{
	return names[scheme];
}

struct cluster;

struct rank {
	struct cluster *cluster;
	unsigned number;
	struct pn_device *device;
	struct pn_budget budget;
	struct pn_cache *cache;
	struct pn_helper *helper; /* NULL: another scheme */
	struct pinion_endpoint *ep;
	struct pinion_peer **peers; /* by rank; connected at first use */
	struct pn_program program;
	char *memory[PN_PROGRAM_BUFFERS];
	struct pinion_request *requests[MAX_REQUESTS];
	unsigned nrequests;
	struct pn_meter meter; /* also counts into the meter of the machine */
	bool metered, ended;
	uint64_t noise;
	uint64_t communication_ns, ended_ns;
};

struct cluster {
	const struct pn_cluster_attr *attr;
	struct pn_sim *sim;
	struct pn_meter meter;
	struct rank *ranks;
	unsigned nranks, nrunning;
	int error; /* error of the first failed rank */
};

/* --- a rank --------------------------------------------------------------- */

/* Converts a rank of a job to a rank of the cluster. */
static unsigned number_of(const struct rank *r, unsigned peer)
{
	unsigned each = r->cluster->attr->program.nranks;

	return r->number / each * each + peer;
}

static unsigned machine_of(const struct cluster *c, unsigned rank)
{
	return c->attr->machines ? c->attr->machines[rank] : rank;
}

static struct pinion_peer *peer_of(struct rank *r, unsigned number)
{
	struct pinion_address address;

	if (r->peers[number])
		return r->peers[number];
	pn_endpoint_address(r->cluster->ranks[number].ep, &address);
	if (pn_endpoint_peer(r->ep, &address, &r->peers[number]))
		r->cluster->error = -ENOMEM;
	return r->peers[number];
}

static int post(struct rank *r, const struct pn_program_run_step *step)
{
	struct pinion_request **request = &r->requests[r->nrequests];
	struct pinion_message m = {
		.size = sizeof(m),
		.buf = r->memory[step->buffer] + step->offset,
		.len = step->bytes,
	};
	unsigned peer = number_of(r, step->peer);
	int ret;

	if (machine_of(r->cluster, peer) == machine_of(r->cluster, r->number))
		return 0;
	m.peer = peer_of(r, peer);
	if (!m.peer || r->nrequests == MAX_REQUESTS)
		return -ENOMEM;
	pn_frames_set_name(step->site);
	ret = step->action == PN_POST_SEND
		      ? pn_endpoint_send(r->ep, &m, request)
		      : pn_endpoint_recv(r->ep, &m, request);
	r->nrequests += !ret;
	return ret;
}

static int wait_all(struct rank *r)
{
	int ret = 0;

	for (unsigned i = 0; i < r->nrequests && !ret; i++)
		ret = pn_endpoint_wait(r->ep, r->requests[i], NULL);
	r->nrequests = 0;
	return ret;
}

static int communicate(struct rank *r, const struct pn_program_run_step *step)
{
	uint64_t start = pn_device_now(r->device);
	int ret = step->action == PN_WAIT_ALL ? wait_all(r) : post(r, step);

	r->communication_ns += pn_device_now(r->device) - start;
	return ret;
}

static void stop_helpers(struct cluster *c)
{
	for (unsigned i = 0; i < c->nranks; i++)
		if (c->ranks[i].helper)
			pn_helper_stop(c->ranks[i].helper);
}

static void report_progress(const struct rank *r, size_t n)
{
	const struct pn_cluster_attr *attr = r->cluster->attr;
	const struct pn_program *p = &r->program;
	double all = (double)p->nsetup +
		     (double)(p->nsteps - p->nsetup) * p->iterations;

	if (attr->progress && !r->number)
		attr->progress(attr->arg, (double)n / all);
}

static void report_bytes(void *arg, uint64_t t_ns, size_t bytes)
{
	const struct rank *r = arg;
	const struct pn_cluster_attr *attr = r->cluster->attr;

	attr->observe(attr->arg, r->number, t_ns, bytes);
}

static void start_meters(struct cluster *c, uint64_t now_ns)
{
	pn_meter_start(&c->meter, now_ns);
	for (unsigned i = 0; i < c->nranks; i++)
		pn_meter_start(&c->ranks[i].meter, now_ns);
}

static void stop_meters(struct cluster *c, uint64_t now_ns)
{
	pn_meter_stop(&c->meter, now_ns);
	for (unsigned i = 0; i < c->nranks; i++)
		pn_meter_stop(&c->ranks[i].meter, now_ns);
}

static void run_rank(void *arg)
{
	struct rank *r = arg;
	struct cluster *c = r->cluster;
	const struct pn_program_run_step *step;
	int ret = 0;

	for (size_t n = 0;
	     !ret && !c->error && (step = pn_program_step(&r->program, n));
	     n++) {
		report_progress(r, n);
		if (step->action != PN_COMPUTE)
			ret = communicate(r, step);
		else
			pn_device_consume_cpu(
				r->device,
				(uint64_t)(step->ns *
					   pn_program_noise(&r->noise,
							    c->attr->jitter)));
	}
	r->ended_ns = pn_device_now(r->device);
	r->ended = !ret && !c->error;
	if (ret && !c->error) {
		c->error = ret;
		/* Failed ranks do not count for the end time. */
		stop_helpers(c);
	}
	if (!--c->nrunning) {
		stop_meters(c, r->ended_ns);
		stop_helpers(c);
	}
}

static void run_helper(void *arg)
{
	struct rank *r = arg;

	pn_helper_run(r->helper);
}

/* --- life ----------------------------------------------------------------- */

static int make_program(struct rank *r)
{
	struct pn_program_attr attr = r->cluster->attr->program;
	int ret;

	attr.rank = r->number % attr.nranks;
	ret = pn_program_make(&attr, &r->program);
	for (unsigned i = 0; !ret && i < r->program.nbuffers; i++) {
		r->memory[i] =
			pn_sim_reserve(r->cluster->sim, r->program.buffers[i]);
		if (!r->memory[i])
			ret = -ENOMEM;
	}
	return ret;
}

static int open_helper(struct rank *r)
{
	const struct pn_cluster_attr *attr = r->cluster->attr;
	struct pn_helper_attr helper = { .rails = { { r->device, r->cache } },
					 .predictor = attr->predictor,
					 .window = attr->window };

	if (!pn_scheme_is_helped(attr->scheme))
		return 0;
	if (attr->scheme == PN_SCHEME_AUTO_HELPER)
		helper.loss_percent = 1;
	return pn_helper_open(&helper, &r->helper);
}

static int open_endpoint(struct rank *r)
{
	const struct pn_cluster_attr *attr = r->cluster->attr;
	struct pn_cache_attr cache = { .device = r->device,
				       .budget = &r->budget,
				       .max_region_bytes = PLENTY,
				       .no_monitor = true,
				       .no_worker = true };
	struct pn_endpoint_attr ep = {
		.nrails = 1,
		.budget = &r->budget,
		.protocol = protocols[attr->scheme],
		.limits = { .eager_bytes = 8 << 10,
			    .match_bytes = 4 << 10,
			    .rdma_offset = 256 << 10,
			    .depth = 4 },
		.pages = { .numa_node = -1 },
	};
	int ret;

	pn_budget_init(&r->budget, r->device,
		       attr->max_bytes ? attr->max_bytes : PLENTY, 0, 1);
	ret = pn_cache_open(&cache, &r->cache);
	if (!ret)
		ret = open_helper(r);
	if (ret)
		return ret;
	ep.rails[0].device = r->device;
	ep.rails[0].cache = r->cache;
	ep.helper = r->helper;
	return pn_endpoint_open(&ep, &r->ep);
}

static int open_rank(struct cluster *c, unsigned number)
{
	struct rank *r = &c->ranks[number];
	int ret;

	*r = (struct rank){ .cluster = c,
			    .number = number,
			    .device = pn_sim_device(c->sim, number),
			    .noise = (c->attr->seed + number + 1) *
				     UINT64_C(0x9e3779b97f4a7c15) };
	r->peers = calloc(c->nranks, sizeof(*r->peers));
	ret = r->peers ? make_program(r) : -ENOMEM;
	if (!ret)
		ret = open_endpoint(r);
	if (ret ||
	    (machine_of(c, number) != machine_of(c, 0) && !c->attr->observe))
		return ret;
	if (machine_of(c, number) == machine_of(c, 0))
		r->meter.into = &c->meter;
	if (c->attr->observe)
		r->meter.changed = report_bytes;
	r->meter.arg = r;
	ret = pn_meter_attach(&r->meter, r->device);
	r->metered = !ret;
	return ret;
}

static void close_rank(struct rank *r)
{
	if (r->metered)
		pn_meter_detach(r->device);
	pn_endpoint_close(r->ep);
	pn_helper_close(r->helper);
	pn_cache_close(r->cache);
	pn_program_free(&r->program);
	free(r->peers);
}

/* Assigns helpers if cores are short, as processes agree that have not
 * communicated yet. All ranks register the same, so the assignment does not
 * change. */
static void share_cores_of(struct cluster *c, unsigned machine)
{
	struct pn_member members[PN_SHARE_MAX] = { 0 };
	struct pn_cores cores = { 0 };
	unsigned n = 0, me = 0;

	for (unsigned i = 0; i < c->nranks; i++)
		n += machine_of(c, i) == machine;
	pn_assert(n <= PN_SHARE_MAX);
	for (unsigned i = 0; i < n + c->attr->idle_cores; i++)
		pn_cores_add(&cores, i);
	for (unsigned i = 0; i < n; i++)
		members[i] = (struct pn_member){ i + 1, 0, cores };
	for (unsigned i = 0; i < c->nranks; i++) {
		struct pn_share share;

		if (machine_of(c, i) != machine)
			continue;
		share = pn_share_decide(c->attr->policy, members, n, me++);
		pn_helper_share_core(c->ranks[i].helper, share.nhelpers,
				     SLICE_NS);
		pn_helper_set_idle(c->ranks[i].helper, share.idle);
	}
}

/* Machines are numbered from 0; each has ranks. */
static void share_cores(struct cluster *c)
{
	for (unsigned i = 0; i < c->nranks; i++)
		share_cores_of(c, i);
}

static int spawn_all(struct cluster *c)
{
	int ret = 0;

	for (unsigned i = 0; i < c->nranks && !ret; i++) {
		ret = pn_sim_spawn(c->sim, i, run_rank, &c->ranks[i]);
		if (!ret && c->ranks[i].helper)
			ret = pn_sim_spawn(c->sim, i, run_helper, &c->ranks[i]);
	}
	return ret;
}

static void sum_up(struct cluster *c, struct pn_cluster_result *out)
{
	uint64_t start = c->meter.start_ns;

	*out = (struct pn_cluster_result){ .registered = c->meter.metered };
	for (unsigned i = 0; i < c->nranks; i++) {
		struct rank *r = &c->ranks[i];
		struct pinion_helper_stats helper = { 0 };
		struct pn_endpoint_stats ep;
		double took = (double)(r->ended_ns - start) / 1e9;

		pn_endpoint_query(r->ep, &ep);
		if (r->helper)
			pn_helper_query(r->helper, &helper);
		out->communication_s +=
			(double)r->communication_ns / 1e9 / c->nranks;
		if (r->ended_ns && took > out->time_s)
			out->time_s = took;
		out->transfers += helper.calls;
		out->late += helper.late;
		out->irregular += helper.irregular;
		out->copied += ep.copied_no_budget;
		out->failed += !r->ended;
	}
	if (out->failed)
		out->error = c->error ? c->error : -ENODEV;
}

static void copy_series(struct cluster *c, struct pn_cluster_series *out)
{
	*out = (struct pn_cluster_series){ .machine = c->meter.series };
	for (unsigned i = 0;
	     i < c->nranks && out->nprocesses < PN_CLUSTER_PROCESSES; i++) {
		if (!c->ranks[i].metered)
			continue;
		out->ranks[out->nprocesses] = i;
		out->processes[out->nprocesses++] = c->ranks[i].meter.series;
	}
}

static int open_cluster(struct cluster *c)
{
	char params[128];
	int ret;

	snprintf(params, sizeof(params), "nodes=%u,cores=2,cost=%s,data=none",
		 c->nranks, c->attr->cost);
	ret = pn_sim_open(params, c->attr->script, &c->sim);
	if (ret)
		return ret;
	for (unsigned i = 0; i < c->nranks && !ret; i++)
		ret = open_rank(c, i);
	if (!ret && c->attr->scheme == PN_SCHEME_HELPER &&
	    c->attr->policy > PN_SHARE_OWN)
		share_cores(c);
	/* The time of opening does not count for the program. */
	start_meters(c, pn_sim_now(c->sim));
	return ret;
}

/* Faults of a script are no error of the run: a rank whose peer has died ends,
 * and so do those that wait for it. */
static int run_world(struct cluster *c)
{
	int ret = pn_sim_run(c->sim);

	if (c->nrunning)
		stop_meters(c, pn_sim_now(c->sim));
	if (c->attr->script && (!ret || ret == -EDEADLK))
		return 0;
	/* Ranks that wait for one that failed are its consequence. */
	return c->error ? c->error : ret;
}

int pn_cluster_run(const struct pn_cluster_attr *attr,
		   struct pn_cluster_result *out)
{
	unsigned copies = attr->copies ? attr->copies : 1;
	struct cluster c = { .attr = attr,
			     .nranks = copies * attr->program.nranks };
	int ret;

	c.nrunning = c.nranks;
	c.ranks = calloc(c.nranks, sizeof(*c.ranks));
	if (!c.ranks)
		return -ENOMEM;
	ret = open_cluster(&c);
	if (!ret)
		ret = spawn_all(&c);
	if (!ret)
		ret = run_world(&c);
	if (!ret)
		sum_up(&c, out);
	if (!ret && attr->series)
		copy_series(&c, attr->series);
	for (unsigned i = 0; i < c.nranks; i++)
		close_rank(&c.ranks[i]);
	free(c.ranks);
	pn_sim_close(c.sim);
	return ret;
}
