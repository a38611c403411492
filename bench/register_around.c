/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * register_around LAYER ADAPTER PORT GID BYTES WRITES -- for `pinion bench
 * peers`: what registering around each transfer costs a program. RDMA writes on
 * one adapter, between two queue pairs of this process, one at a time: from
 * memory that is registered once, and with a registration and a deregistration
 * around each, in turns. Prints "once around", in microseconds per write,
 * medians of the rounds.
 *
 * LAYER is who registers: `verbs` (ibv_reg_mr(), also under `pinion run
 * --verbs`), `libfabric` (fi_mr_reg() of its provider verbs) or `ucx`
 * (ucp_mem_map()). The last two have protection domains of their own, so the
 * write itself is always that of the queue pairs here, from memory of the same
 * size. Exit status 3: there is no such layer.
 */
#include <infiniband/verbs.h>

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef PINION_LIBFABRIC
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#endif
#if __has_include(<ucp/api/ucp.h>)
#include <ucp/api/ucp.h>
#define HAS_UCX 1
#endif

#include "base/clock.h"
#include "base/compiler.h"

enum { ROUNDS = 11, NO_LAYER = 3 };

struct job {
	const char *adapter;
	uint8_t port, gid;
	size_t bytes;
	unsigned writes;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qps[2];
	char *once, *each, *to;
	struct ibv_mr *source, *target;
};

/* Registers and gives up; `mr` is what a write can use, or NULL. */
struct layer {
	const char *name;
	bool (*open)(struct job *job);
	void *(*reg)(struct job *job, struct ibv_mr **mr);
	void (*dereg)(void *handle);
};

static _Noreturn void fail(const char *what)
{
	perror(what);
	exit(EXIT_FAILURE);
}

/* --- verbs ---------------------------------------------------------------- */

static bool open_verbs(struct job *job)
{
	(void)job;
	return true;
}

static void *reg_verbs(struct job *job, struct ibv_mr **mr)
{
	*mr = ibv_reg_mr(job->pd, job->each, job->bytes,
			 IBV_ACCESS_LOCAL_WRITE);
	return *mr;
}

static void dereg_verbs(void *handle)
{
	ibv_dereg_mr(handle);
}

/* --- libfabric ------------------------------------------------------------ */

#ifdef PINION_LIBFABRIC
static struct fid_domain *domain;

static bool open_libfabric(struct job *job)
{
	struct fi_info *hints = fi_allocinfo(), *info = NULL;
	struct fid_fabric *fabric;
	bool ok;

	hints->caps = FI_MSG | FI_RMA;
	hints->ep_attr->type = FI_EP_MSG;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED |
				      FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
	hints->domain_attr->name = strdup(job->adapter);
	hints->fabric_attr->prov_name = strdup("verbs");
	ok = !fi_getinfo(FI_VERSION(1, 14), NULL, NULL, 0, hints, &info) &&
	     !fi_fabric(info->fabric_attr, &fabric, NULL) &&
	     !fi_domain(fabric, info, &domain, NULL);
	fi_freeinfo(hints);
	if (info)
		fi_freeinfo(info);
	return ok;
}

static void *reg_libfabric(struct job *job, struct ibv_mr **mr)
{
	struct fid_mr *fid;

	(void)mr;
	return fi_mr_reg(domain, job->each, job->bytes, FI_WRITE, 0, 0, 0, &fid,
			 NULL)
		       ? NULL
		       : fid;
}

static void dereg_libfabric(void *handle)
{
	fi_close(handle);
}
#endif

/* --- UCX ------------------------------------------------------------------ */

#ifdef HAS_UCX
/* Found when it runs: a library that is not there is no reason not to start. */
static struct {
	ucs_status_t (*init)(unsigned, unsigned, const ucp_params_t *,
			     const ucp_config_t *, ucp_context_h *);
	ucs_status_t (*mem_map)(ucp_context_h, const ucp_mem_map_params_t *,
				ucp_mem_h *);
	ucs_status_t (*mem_unmap)(ucp_context_h, ucp_mem_h);
	ucp_context_h context;
} ucx;

static bool open_ucx(struct job *job)
{
	const ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES,
				      .features = UCP_FEATURE_RMA };
	void *library = dlopen("libucp.so.0", RTLD_NOW);
	char devices[128];

	if (!library)
		return false;
	*(void **)&ucx.init = dlsym(library, "ucp_init_version");
	*(void **)&ucx.mem_map = dlsym(library, "ucp_mem_map");
	*(void **)&ucx.mem_unmap = dlsym(library, "ucp_mem_unmap");
	snprintf(devices, sizeof(devices), "%s:%u", job->adapter, job->port);
	setenv("UCX_NET_DEVICES", devices, 1);
	setenv("UCX_TLS", "rc_v,ud_v,self", 1);
	return ucx.init && ucx.mem_map && ucx.mem_unmap &&
	       ucx.init(UCP_API_MAJOR, UCP_API_MINOR, &params, NULL,
			&ucx.context) == UCS_OK;
}

static void *reg_ucx(struct job *job, struct ibv_mr **mr)
{
	const ucp_mem_map_params_t params = {
		.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
			      UCP_MEM_MAP_PARAM_FIELD_LENGTH,
		.address = job->each,
		.length = job->bytes,
	};
	ucp_mem_h memh;

	(void)mr;
	return ucx.mem_map(ucx.context, &params, &memh) == UCS_OK ? memh : NULL;
}

static void dereg_ucx(void *handle)
{
	ucx.mem_unmap(ucx.context, handle);
}
#endif

static const struct layer layers[] = {
	{ "verbs", open_verbs, reg_verbs, dereg_verbs },
#ifdef PINION_LIBFABRIC
	{ "libfabric", open_libfabric, reg_libfabric, dereg_libfabric },
#endif
#ifdef HAS_UCX
	{ "ucx", open_ucx, reg_ucx, dereg_ucx },
#endif
};

/* --- two queue pairs ------------------------------------------------------ */

static void open_adapter(struct job *job)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (struct ibv_device **d = list; d && *d && !job->context; d++)
		if (!strcmp(ibv_get_device_name(*d), job->adapter))
			job->context = ibv_open_device(*d);
	ibv_free_device_list(list);
	if (!job->context)
		fail("ibv_open_device");
	job->pd = ibv_alloc_pd(job->context);
	job->cq = ibv_create_cq(job->context, 8, NULL, NULL, 0);
	if (!job->pd || !job->cq)
		fail("ibv_create_cq");
}

static struct ibv_qp *open_qp(struct job *job)
{
	struct ibv_qp_init_attr init = { .send_cq = job->cq,
					 .recv_cq = job->cq,
					 .cap = { 4, 1, 1, 1, 0 },
					 .qp_type = IBV_QPT_RC };
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_INIT,
				    .port_num = job->port,
				    .qp_access_flags =
					    IBV_ACCESS_REMOTE_WRITE };
	struct ibv_qp *qp = ibv_create_qp(job->pd, &init);

	if (!qp || ibv_modify_qp(qp, &attr,
				 IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					 IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		fail("ibv_create_qp");
	return qp;
}

static void connect_qp(struct job *job, struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_port_attr port;
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_RTR,
				    .dest_qp_num = peer,
				    .max_dest_rd_atomic = 1,
				    .min_rnr_timer = 12 };

	if (ibv_query_port(job->context, job->port, &port) ||
	    ibv_query_gid(job->context, job->port, job->gid,
			  &attr.ah_attr.grh.dgid))
		fail("ibv_query_gid");
	attr.path_mtu = port.active_mtu;
	attr.ah_attr.dlid = port.lid;
	attr.ah_attr.port_num = job->port;
	attr.ah_attr.is_global = 1;
	attr.ah_attr.grh.sgid_index = job->gid;
	attr.ah_attr.grh.hop_limit = 1;
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
				  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC |
				  IBV_QP_MIN_RNR_TIMER))
		fail("ibv_modify_qp");
	attr = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS,
				     .timeout = 14,
				     .retry_cnt = 7,
				     .rnr_retry = 7,
				     .max_rd_atomic = 1 };
	if (ibv_modify_qp(qp, &attr,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				  IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				  IBV_QP_MAX_QP_RD_ATOMIC))
		fail("ibv_modify_qp");
}

static void write_from(struct job *job, const struct ibv_mr *mr)
{
	struct ibv_sge sge = { (uintptr_t)mr->addr, (uint32_t)job->bytes,
			       mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (uintptr_t)job->to, job->target->rkey },
	};
	struct ibv_wc wc;
	int n;

	if (ibv_post_send(job->qps[0], &wr, &bad))
		fail("ibv_post_send");
	while (!(n = ibv_poll_cq(job->cq, 1, &wc)))
		;
	if (n < 0 || wc.status != IBV_WC_SUCCESS)
		fail("ibv_poll_cq");
}

static char *map(size_t bytes)
{
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		fail("mmap");
	return memory;
}

static void set_up(struct job *job)
{
	open_adapter(job);
	for (unsigned i = 0; i < 2; i++)
		job->qps[i] = open_qp(job);
	for (unsigned i = 0; i < 2; i++)
		connect_qp(job, job->qps[i], job->qps[!i]->qp_num);
	job->once = map(job->bytes);
	job->each = map(job->bytes);
	job->to = map(job->bytes);
	job->source = ibv_reg_mr(job->pd, job->once, job->bytes,
				 IBV_ACCESS_LOCAL_WRITE);
	job->target =
		ibv_reg_mr(job->pd, job->to, job->bytes,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	if (!job->source || !job->target)
		fail("ibv_reg_mr");
}

/* --- rounds --------------------------------------------------------------- */

/* Microseconds per write. */
static double round_us(struct job *job, const struct layer *layer)
{
	uint64_t start = pn_clock_ns();

	for (unsigned i = 0; i < job->writes; i++) {
		struct ibv_mr *mr = job->source;
		void *handle = layer ? layer->reg(job, &mr) : NULL;

		if (layer && !handle)
			fail(layer->name);
		write_from(job, mr);
		if (layer)
			layer->dereg(handle);
	}
	return (double)(pn_clock_ns() - start) / 1e3 / job->writes;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof(*values), compare);
	return values[ROUNDS / 2];
}

int main(int argc, char **argv)
{
	const struct layer *layer = NULL;
	double once[ROUNDS], around[ROUNDS];
	struct job job = { .adapter = argc > 6 ? argv[2] : NULL };

	if (!job.adapter)
		return EXIT_FAILURE;
	job.port = (uint8_t)atoi(argv[3]);
	job.gid = (uint8_t)atoi(argv[4]);
	job.bytes = strtoul(argv[5], NULL, 0);
	job.writes = (unsigned)strtoul(argv[6], NULL, 0);
	for (size_t i = 0; i < PN_ARRAY_LEN(layers); i++)
		if (!strcmp(layers[i].name, argv[1]))
			layer = &layers[i];
	if (!layer || !layer->open(&job))
		return NO_LAYER;
	set_up(&job);
	round_us(&job, NULL);
	round_us(&job, layer);
	for (unsigned i = 0; i < ROUNDS; i++) {
		once[i] = round_us(&job, NULL);
		around[i] = round_us(&job, layer);
	}
	printf("%.2f %.2f\n", median(once), median(around));
	return EXIT_SUCCESS;
}
