/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/sim/sim.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/sim/sim_impl.h"

/* --- parameters ----------------------------------------------------------- */

static const char *const data_modes[] = { "real", "none", NULL };

#define FIELD(name) offsetof(struct pn_sim_params, name)

static const struct pn_option params_table[] = {
	{ "nodes", PN_OPTION_NUMBER, "2", "how many nodes the world has",
	  FIELD(nodes), 1, 65536, NULL },
	{ "cores", PN_OPTION_NUMBER, "1", "virtual CPUs of each node",
	  FIELD(cores), 1, 1024, NULL },
	{ "cost", PN_OPTION_TEXT, "none",
	  "cost profile: what registering, copying and moving bytes takes",
	  FIELD(cost), 0, 0, NULL },
	{ "data", PN_OPTION_CHOICE, "real",
	  "none moves no payload and touches no memory", FIELD(data), 0, 0,
	  data_modes },
	{ "seed", PN_OPTION_NUMBER, "1", "of everything that is random",
	  FIELD(seed), 0, 0, NULL },
	{ "slice", PN_OPTION_TIME, "1ms",
	  "how long a task keeps a core while others want it", FIELD(slice_ns),
	  1, 3600 * PN_NS_PER_S, NULL },
	{ "script", PN_OPTION_TEXT, "", "file with the faults to happen",
	  FIELD(script), 0, 0, NULL },
	{ "stack", PN_OPTION_BYTES, "256K", "stack of each task",
	  FIELD(stack_bytes), 16384, 1 << 30, NULL },
	{ "jitter", PN_OPTION_NUMBER, "0",
	  "messages take up to this many per mille longer, at random",
	  FIELD(jitter), 0, 100000, NULL },
	{ "inbox", PN_OPTION_BYTES, "4M",
	  "receive memory of each node; senders wait when it is full",
	  FIELD(inbox_bytes), 1, UINT64_C(1) << 40, NULL },
	{ "inbox_slots", PN_OPTION_NUMBER, "1024",
	  "messages that each node can hold until they are released",
	  FIELD(inbox_slots), 1, 1 << 30, NULL },
	{ "send", PN_OPTION_BYTES, "64K", "longest message of one send",
	  FIELD(send_bytes), 1, 1 << 30, NULL },
	{ "limit", PN_OPTION_BYTES, "0",
	  "bytes that each node can pin; 0 for no limit", FIELD(limit_bytes), 0,
	  0, NULL },
	{ "max_mrs", PN_OPTION_NUMBER, "1000000",
	  "registrations that each node can have", FIELD(max_mrs), 1,
	  (1 << PN_SIM_SLOT_BITS) - 1, NULL },
	{ "depth", PN_OPTION_NUMBER, "256", "operations in flight to each peer",
	  FIELD(depth), 1, 1 << 20, NULL },
	{ "detect", PN_OPTION_TIME, "1ms",
	  "how long after its death a node is missed by its peers",
	  FIELD(detect_ns), 0, PN_NS_PER_S, NULL },
	{ "imm", PN_OPTION_BOOL, "yes",
	  "whether a write can notify its target (iWARP adapters cannot)",
	  FIELD(imm), 0, 0, NULL },
	{ "rails", PN_OPTION_NUMBER, "1", "ports of each node", FIELD(rails), 1,
	  PN_RAILS_MAX, NULL },
	{ "rail_bandwidth", PN_OPTION_TEXT, "",
	  "bandwidths in proportion, 3:1 for example; the first rail has the "
	  "profile's",
	  FIELD(rail_bandwidth), 0, 0, NULL },
	{ "rail_setup", PN_OPTION_TIME, "0",
	  "how much longer attaching takes on all rails but the first",
	  FIELD(rail_setup_ns), 0, PN_NS_PER_S, NULL },
};

#define NPARAMS PN_ARRAY_LEN(params_table)

static int refuse(const char *what, const struct pn_why *why)
{
	pn_error("sim: %s%s", what, why->text);
	return -EINVAL;
}

/* Parses the numbers of rail_bandwidth; all are equal when the parameter is
 * empty. */
static bool parse_bandwidths(const struct pn_sim_params *params, double *out)
{
	const char *at = params->rail_bandwidth;
	char *end;

	for (uint64_t r = 0; r < params->rails; r++) {
		double value = 1;

		if (params->rail_bandwidth[0]) {
			value = strtod(at, &end);
			if (end == at || !(value > 0) || !isfinite(value) ||
			    *end != (r + 1 < params->rails ? ':' : 0))
				return false;
			at = end + 1;
		}
		if (out)
			out[r] = value;
	}
	return true;
}

static int check_params(struct pn_sim *sim, struct pn_why *why)
{
	struct pn_sim_params *params = &sim->params;

	sim->profile = pn_profile_find(params->cost);
	if (!sim->profile) {
		snprintf(why->text, sizeof(why->text),
			 "no cost profile '%.64s'; `pinion info` lists them",
			 params->cost);
		return -EINVAL;
	}
	if (!parse_bandwidths(params, NULL)) {
		snprintf(why->text, sizeof(why->text),
			 "rail_bandwidth=%.64s: give one positive number for "
			 "each of %" PRIu64 " rails, with colons between",
			 params->rail_bandwidth, params->rails);
		return -EINVAL;
	}
	if (params->send_bytes > params->inbox_bytes) {
		snprintf(why->text, sizeof(why->text),
			 "inbox=%" PRIu64 " has no room for a message of "
			 "send=%" PRIu64 " bytes",
			 params->inbox_bytes, params->send_bytes);
		return -EINVAL;
	}
	return 0;
}

static int parse_params(struct pn_sim *sim, const char *text)
{
	struct pn_why why = { "" };
	int ret;

	pn_options_defaults(params_table, NPARAMS, &sim->params);
	ret = pn_options_parse_list(params_table, NPARAMS, text, &sim->params,
				    &why);
	if (!ret)
		ret = check_params(sim, &why);
	if (ret == -EINVAL)
		refuse("", &why);
	return ret;
}

/* --- the script ----------------------------------------------------------- */

static int parse_script(struct pn_sim *sim, const char *text, size_t len)
{
	struct pn_why why = { "" };
	int ret = pn_script_parse(text, len, &sim->script, &why);

	return ret == -EINVAL ? refuse("script, ", &why) : ret;
}

static int read_script(struct pn_sim *sim, const char *path)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	size_t capacity = 0;
	ssize_t len;
	int ret;

	if (!file) {
		pn_error("sim: script=%s cannot be read: %m", path);
		return -EINVAL;
	}
	/* A script contains no NUL: this reads all of it. */
	len = getdelim(&text, &capacity, 0, file);
	ret = len < 0 ? 0 : parse_script(sim, text, (size_t)len);
	free(text);
	fclose(file);
	return ret;
}

static void timed_fault_fire(struct pn_sim *sim, struct pn_sim_event *event)
{
	const struct pn_fault *fault =
		&pn_container_of(event, struct pn_sim_timed_fault, event)
			 ->fault;
	struct pn_sim_node *node = &sim->nodes[fault->node];

	if (fault->kind == PN_FAULT_PORT_FAIL) {
		pn_sim_port_fail(pn_sim_port(node, (unsigned)fault->rail));
		return;
	}
	if (fault->kind == PN_FAULT_LIMIT) {
		pn_sim_record(sim, PN_SIM_LIMITED, node->index, 0,
			      (int64_t)fault->bytes);
		/* 0 bytes is a limit here, but means no limit in the parameter.
		 */
		node->limit_bytes = fault->bytes ? fault->bytes : 1;
		return;
	}
	pn_sim_end_tasks(sim, node);
	pn_sim_node_die(node);
}

/* Queues the faults that happen at a given time. */
static int queue_timed_faults(struct pn_sim *sim)
{
	sim->timed_faults =
		calloc(sim->script.n + 1, sizeof(*sim->timed_faults));
	if (!sim->timed_faults)
		return -ENOMEM;
	for (size_t i = 0; i < sim->script.n; i++) {
		const struct pn_fault *fault = &sim->script.faults[i];
		struct pn_sim_timed_fault *incident = &sim->timed_faults[i];

		if (fault->node != PN_FAULT_ANY_NODE &&
		    fault->node >= sim->nnodes) {
			pn_error("sim: the script names node %" PRIu64
				 "; there are %u, counted from 0",
				 fault->node, sim->nnodes);
			return -EINVAL;
		}
		if (fault->rail >= sim->nrails) {
			pn_error("sim: the script names rail %" PRIu64
				 "; there are %u, counted from 0",
				 fault->rail, sim->nrails);
			return -EINVAL;
		}
		if (fault->kind != PN_FAULT_NODE_DIE &&
		    fault->kind != PN_FAULT_PORT_FAIL &&
		    fault->kind != PN_FAULT_LIMIT)
			continue;
		incident->fault = *fault;
		incident->event.fire = timed_fault_fire;
		pn_sim_event_add(&sim->events, &incident->event,
				 pn_sim_after(0, fault->time_ns));
	}
	return 0;
}

/* --- nodes ---------------------------------------------------------------- */

static double field_ns(const struct pn_sim *sim, enum pn_profile_field field)
{
	return 1e3 * sim->profile->value[field];
}

static double byte_ns(const struct pn_sim *sim, enum pn_profile_field field)
{
	double gigabytes_per_s = sim->profile->value[field];

	return gigabytes_per_s > 0 ? 1 / gigabytes_per_s : 0;
}

/* The costs as this device charges them, so that choices match the simulation.
 */
static struct pn_costs costs_of(const struct pn_sim *sim, double slowness)
{
	double latency = field_ns(sim, PN_PROFILE_LATENCY_US);
	double message = field_ns(sim, PN_PROFILE_MESSAGE_US);
	double byte = slowness * byte_ns(sim, PN_PROFILE_LINK_GBPS);

	return (struct pn_costs){
		.register_ns = field_ns(sim, PN_PROFILE_REGISTER_US),
		.register_page_ns = field_ns(sim, PN_PROFILE_REGISTER_PAGE_US),
		.deregister_ns = field_ns(sim, PN_PROFILE_DEREGISTER_US),
		.deregister_page_ns =
			field_ns(sim, PN_PROFILE_DEREGISTER_PAGE_US),
		.copy_byte_ns = byte_ns(sim, PN_PROFILE_COPY_GBPS),
		.put_ns = message + 2 * latency,
		.put_byte_ns = byte,
		.get_ns = message + 2 * latency,
		.get_byte_ns = byte,
		.send_ns = 2 * message + latency,
		.lookup_ns = field_ns(sim, PN_PROFILE_LOOKUP_US),
		.ack_ns = latency,
		.handoff_bytes = SIZE_MAX,
		.emulated = true,
	};
}

static void device_init(struct pn_sim *sim, struct pn_device *device,
			double slowness)
{
	const struct pn_sim_params *params = &sim->params;

	device->ops = &pn_sim_ops;
	device->caps = PN_CAP_GATHER | PN_CAP_ATOMICS | PN_CAP_READ_ONLY |
		       PN_CAP_REKEY | PN_CAP_VIRTUAL_TIME | PN_CAP_RING |
		       PN_CAP_ATTACH_AGAIN;
	if (params->imm)
		device->caps |= PN_CAP_WRITE_IMM;
	device->limits = (struct pn_device_limits){
		.max_mr_bytes = SIZE_MAX,
		.max_mrs = params->max_mrs,
		.max_pinned_bytes =
			params->limit_bytes ? params->limit_bytes : SIZE_MAX,
		.max_send_bytes = params->send_bytes,
		.max_op_bytes = PN_SIM_MAX_OP_BYTES,
		.inline_bytes = PN_SIM_INLINE_BYTES,
		.max_sge = PN_SIM_MAX_SGE,
		.queue_depth = (unsigned)params->depth,
	};
	device->costs = costs_of(sim, slowness);
	device->profile = sim->profile->name;
	device->emulated = true;
}

static void port_init(struct pn_sim *sim, struct pn_sim_node *node,
		      double slowness)
{
	node->sim = sim;
	node->home = &sim->nodes[node->number];
	node->slowness = slowness;
	node->limit_bytes = sim->params.limit_bytes;
	node->fail_event.fire = pn_sim_port_fail_fire;
	device_init(sim, &node->device, slowness);
	pn_list_init(&node->link_list);
	pn_list_init(&node->waiters);
	pn_list_init(&node->blocked);
	pn_list_init(&node->inbox);
	pn_list_init(&node->stalled);
}

static int nodes_init(struct pn_sim *sim)
{
	double bandwidth[PN_RAILS_MAX];
	unsigned nports;

	sim->nnodes = (unsigned)sim->params.nodes;
	sim->nrails = (unsigned)sim->params.rails;
	nports = sim->nnodes * sim->nrails;
	parse_bandwidths(&sim->params, bandwidth);
	sim->nodes = calloc(nports, sizeof(*sim->nodes));
	sim->cores =
		calloc(sim->nnodes * sim->params.cores, sizeof(*sim->cores));
	if (!sim->nodes || !sim->cores)
		return -ENOMEM;
	for (unsigned i = 0; i < nports; i++) {
		sim->nodes[i].index = i;
		sim->nodes[i].number = i % sim->nnodes;
		port_init(sim, &sim->nodes[i],
			  bandwidth[0] / bandwidth[i / sim->nnodes]);
	}
	for (unsigned i = 0; i < sim->nnodes; i++)
		pn_sim_cores_init(&sim->nodes[i],
				  &sim->cores[i * sim->params.cores]);
	return 0;
}

static void nodes_fini(struct pn_sim *sim)
{
	for (unsigned i = 0; sim->nodes && i < sim->nnodes * sim->nrails; i++) {
		pn_sim_links_fini(&sim->nodes[i]);
		pn_sim_port_fini(&sim->nodes[i]);
		pn_sim_registry_fini(&sim->nodes[i]);
	}
	free(sim->nodes);
	free(sim->cores);
}

/* --- worlds --------------------------------------------------------------- */

static void sync_init(struct pn_sim *sim)
{
	pthread_condattr_t attr;

	pn_mutex_init(&sim->lock);
	pn_assert(!pthread_condattr_init(&attr));
	pn_assert(!pthread_condattr_setclock(&attr, CLOCK_MONOTONIC));
	pn_assert(!pthread_cond_init(&sim->changed, &attr));
	pthread_condattr_destroy(&attr);
}

static int world_init(struct pn_sim *sim, const char *params,
		      const char *script)
{
	int ret = parse_params(sim, params);

	if (!ret && sim->params.script[0])
		ret = read_script(sim, sim->params.script);
	if (!ret && script)
		ret = parse_script(sim, script, strlen(script));
	if (ret)
		return ret;
	sim->latency_ns =
		pn_profile_field_ns(sim->profile, PN_PROFILE_LATENCY_US);
	sim->message_ns =
		pn_profile_field_ns(sim->profile, PN_PROFILE_MESSAGE_US);
	/* xorshift must not start at 0. */
	sim->random = sim->params.seed * UINT64_C(0x9e3779b97f4a7c15) | 1;
	ret = nodes_init(sim);
	return ret ? ret : queue_timed_faults(sim);
}

int pn_sim_open(const char *params, const char *script, struct pn_sim **out)
{
	static atomic_uint_fast64_t nworlds;
	struct pn_sim *sim = calloc(1, sizeof(*sim));
	int ret;

	if (!sim)
		return -ENOMEM;
	sync_init(sim);
	pn_list_init(&sim->ready);
	pn_list_init(&sim->tasks);
	sim->id = atomic_fetch_add(&nworlds, 1) + 1;
	ret = world_init(sim, params, script);
	if (ret)
		pn_sim_close(sim);
	else
		*out = sim;
	return ret;
}

/* Reserved addresses, as an entry of sim->reservations. */
struct reservation {
	struct pn_interval interval;
};

static void unreserve_all(struct pn_sim *sim)
{
	while (sim->reservations) {
		struct reservation *r =
			pn_container_of(sim->reservations, struct reservation,
					interval);

		pn_interval_remove(&sim->reservations, &r->interval);
		munmap((void *)r->interval.range.addr, r->interval.range.len);
		free(r);
	}
}

void pn_sim_close(struct pn_sim *sim)
{
	if (!sim)
		return;
	pn_sim_end_tasks(sim, NULL);
	nodes_fini(sim);
	unreserve_all(sim);
	pn_sim_event_queue_fini(&sim->events);
	pn_script_free(&sim->script);
	free(sim->timed_faults);
	pthread_cond_destroy(&sim->changed);
	pn_mutex_fini(&sim->lock);
	free(sim);
}

unsigned pn_sim_nnodes(const struct pn_sim *sim)
{
	return sim->nnodes;
}

struct pn_device *pn_sim_device(struct pn_sim *sim, unsigned node)
{
	pn_assert(node < sim->nnodes);
	return &sim->nodes[node].device;
}

struct pn_device *pn_sim_rail(struct pn_sim *sim, unsigned node, unsigned rail)
{
	pn_assert(node < sim->nnodes && rail < sim->nrails);
	return &pn_sim_port(&sim->nodes[node], rail)->device;
}

unsigned pn_sim_nrails(const struct pn_sim *sim)
{
	return sim->nrails;
}

/* Reads a word that the lock protects. */
static uint64_t read_locked(const struct pn_sim *sim, const uint64_t *word)
{
	struct pn_sim *lockable = (struct pn_sim *)sim;
	bool entered = pn_sim_enter(lockable);
	uint64_t value = *word;

	pn_sim_leave(lockable, entered);
	return value;
}

uint64_t pn_sim_stale_uses(const struct pn_sim *sim)
{
	return read_locked(sim, &sim->stale_uses);
}

uint64_t pn_sim_steps(const struct pn_sim *sim)
{
	return read_locked(sim, &sim->nsteps);
}

uint64_t pn_sim_digest(const struct pn_sim *sim)
{
	return read_locked(sim, &sim->digest);
}

uint64_t pn_sim_now(const struct pn_sim *sim)
{
	struct pn_sim *lockable = (struct pn_sim *)sim;
	bool entered = pn_sim_enter(lockable);
	uint64_t now_ns = pn_sim_time(sim);

	pn_sim_leave(lockable, entered);
	return now_ns;
}

void *pn_sim_reserve(struct pn_sim *sim, size_t len)
{
	struct reservation *r;
	void *addr;
	bool entered;

	if (!len || !(r = calloc(1, sizeof(*r))))
		return NULL;
	addr = mmap(NULL, len, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (addr == MAP_FAILED) {
		free(r);
		return NULL;
	}
	entered = pn_sim_enter(sim);
	r->interval.range = (struct pn_range){ (uintptr_t)addr, len };
	r->interval.id = ++sim->nreservations;
	pn_interval_add(&sim->reservations, &r->interval);
	pn_sim_leave(sim, entered);
	return addr;
}

/* --- the device ----------------------------------------------------------- */

static int device_open(const char *params, const struct pn_device_attr *attr,
		       struct pn_device **out)
{
	struct pn_sim *sim;
	int ret = pn_sim_open(params, NULL, &sim);

	if (ret)
		return ret;
	sim->private = true;
	sim->single_host = attr->single_threaded;
	*out = &sim->nodes[0].device;
	return 0;
}

static void device_close(struct pn_device *device)
{
	struct pn_sim_node *node = pn_sim_node_of(device);
	bool entered;

	if (node->sim->private) {
		/* The other ports close together with the first. */
		if (node == node->home)
			pn_sim_close(node->sim);
		return;
	}
	entered = pn_sim_enter(node->sim);
	pn_sim_node_die(node);
	pn_sim_leave(node->sim, entered);
}

static void describe(struct pn_device *device, pn_fact_fn *fn, void *arg)
{
	struct pn_sim_node *node = pn_sim_node_of(device);
	char text[PN_OPTION_TEXT_BYTES];

	snprintf(text, sizeof(text), "%u of %u", node->number,
		 node->sim->nnodes);
	fn(arg, "node", text);
	if (node->sim->nrails > 1) {
		snprintf(text, sizeof(text), "%u of %u",
			 node->index / node->sim->nnodes, node->sim->nrails);
		fn(arg, "port", text);
	}
	for (size_t i = 0; i < NPARAMS; i++) {
		pn_option_format(&params_table[i], &node->sim->params, text,
				 sizeof(text));
		fn(arg, params_table[i].name, text);
	}
	fn(arg, "cost source", node->sim->profile->source);
	fn(arg, "clock", "virtual");
}

static int device_wait(struct pn_device *device, uint64_t deadline_ns)
{
	struct pn_sim_node *node = pn_sim_node_of(device);
	bool entered = pn_sim_enter(node->sim);
	int ret = pn_sim_wait(node, deadline_ns);

	pn_sim_leave(node->sim, entered);
	return ret;
}

static struct pn_device *device_port(struct pn_device *device, unsigned index)
{
	struct pn_sim_node *node = pn_sim_node_of(device);

	return index < node->sim->nrails ? &pn_sim_port(node, index)->device
					 : NULL;
}

/* The ports of a node have one queue of waiting tasks. */
static int device_wait_any(struct pn_device *const *devices, unsigned n,
			   uint64_t deadline_ns)
{
	(void)n;
	return device_wait(devices[0], deadline_ns);
}

static void device_wake(struct pn_device *device)
{
	struct pn_sim_node *node = pn_sim_node_of(device);
	bool entered = pn_sim_enter(node->sim);

	pn_sim_wake(node);
	pn_sim_leave(node->sim, entered);
}

static void device_block(struct pn_device *device, _Atomic uint32_t *word,
			 uint32_t value, uint64_t deadline_ns)
{
	struct pn_sim_node *node = pn_sim_node_of(device);
	bool entered = pn_sim_enter(node->sim);

	pn_sim_block(node, word, value, deadline_ns);
	pn_sim_leave(node->sim, entered);
}

static void device_unblock(struct pn_device *device, _Atomic uint32_t *word)
{
	struct pn_sim_node *node = pn_sim_node_of(device);
	bool entered = pn_sim_enter(node->sim);

	pn_sim_unblock(node, word);
	pn_sim_leave(node->sim, entered);
}

static int no_fd(struct pn_device *device)
{
	(void)device;
	return -EOPNOTSUPP;
}

static uint64_t device_now(struct pn_device *device)
{
	return pn_sim_now(pn_sim_node_of(device)->sim);
}

static void device_consume_cpu(struct pn_device *device, uint64_t ns)
{
	struct pn_sim *sim = pn_sim_node_of(device)->sim;
	bool entered = pn_sim_enter(sim);

	pn_sim_consume_cpu(sim, ns);
	pn_sim_leave(sim, entered);
}

static void device_copy(struct pn_device *device, void *dst, const void *src,
			size_t len)
{
	struct pn_sim *sim = pn_sim_node_of(device)->sim;

	if (len && sim->params.data == PN_SIM_DATA_REAL)
		memcpy(dst, src, len);
	device_consume_cpu(device, pn_profile_copy_ns(sim->profile, len));
}

const struct pn_device_ops pn_sim_ops = {
	.kind = "sim",
	.help = "simulated adapters of a whole cluster, in virtual time",
	.params = params_table,
	.nparams = NPARAMS,
	.open = device_open,
	.close = device_close,
	.describe = describe,
	.reg = pn_sim_register,
	.dereg = pn_sim_deregister,
	.rekey = pn_sim_rekey,
	.pinned = pn_sim_pinned,
	.address = pn_sim_address,
	.attach = pn_sim_attach,
	.detach = pn_sim_detach,
	.port = device_port,
	.post = pn_sim_post,
	.poll = pn_sim_poll,
	.return_buffer = pn_sim_return_buffer,
	.wait = device_wait,
	.wait_any = device_wait_any,
	.wake = device_wake,
	.fd = no_fd,
	.arm = no_fd,
	.now = device_now,
	.copy = device_copy,
	.consume_cpu = device_consume_cpu,
	.block = device_block,
	.unblock = device_unblock,
};
