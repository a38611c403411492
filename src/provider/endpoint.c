/* SPDX-License-Identifier: BSD-2-Clause */
/* Endpoints: opened with a pinion context, bound to an AV and one or two CQs,
 * then enabled. */
#include <stdlib.h>
#include <string.h>

#include "config/option.h"
#include "provider/onesided.h"
#include "provider/open_mpi.h"

static struct pn_fi_ep *ep_of(struct fid *fid)
{
	return pn_container_of(fid, struct pn_fi_ep, fid.fid);
}

/* --- binding -------------------------------------------------------------- */

/* Both directions may use one CQ, which lists the endpoint once. */
static int bind_dir(struct pn_fi_ep *ep, enum pn_fi_dir dir,
		    struct pn_fi_cq *cq, uint64_t flags)
{
	enum pn_fi_dir other = dir == PN_FI_TX ? PN_FI_RX : PN_FI_TX;
	int ret;

	if (ep->dirs[dir].cq)
		return -FI_EINVAL;
	ret = pn_fi_cq_watch(cq, ep);
	if (ret)
		return ret;
	if (ep->dirs[other].cq != cq)
		pn_list_append(&cq->eps, &ep->dirs[dir].member.link);
	ep->dirs[dir].cq = cq;
	ep->dirs[dir].selective = flags & FI_SELECTIVE_COMPLETION;
	cq->refs++;
	return 0;
}

static int bind_cq(struct pn_fi_ep *ep, struct pn_fi_cq *cq, uint64_t flags)
{
	int ret = 0;

	if (cq->domain != ep->domain || !(flags & (FI_TRANSMIT | FI_RECV)))
		return -FI_EINVAL;
	if (flags & ~(FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION))
		return -FI_EBADFLAGS;
	pn_fi_lock(ep->domain);
	if (flags & FI_TRANSMIT)
		ret = bind_dir(ep, PN_FI_TX, cq, flags);
	if (!ret && flags & FI_RECV)
		ret = bind_dir(ep, PN_FI_RX, cq, flags);
	pn_fi_unlock(ep->domain);
	return ret;
}

static int bind_av(struct pn_fi_ep *ep, struct pn_fi_av *av)
{
	if (av->domain != ep->domain || ep->av)
		return -FI_EINVAL;
	pn_fi_lock(ep->domain);
	ep->av = av;
	av->refs++;
	pn_fi_unlock(ep->domain);
	return 0;
}

/* A direction with a counter and no CQ uses the counter's CQ, which discards
 * entries. */
static int bind_counted(struct pn_fi_ep *ep, enum pn_fi_dir dir,
			enum pn_fi_event event)
{
	struct pn_fi_counter *counter = ep->events[event].counter;

	return counter && !ep->dirs[dir].cq
		       ? bind_dir(ep, dir, counter->cq, FI_SELECTIVE_COMPLETION)
		       : 0;
}

static int bind_all_counted(struct pn_fi_ep *ep)
{
	static const struct {
		enum pn_fi_dir dir;
		enum pn_fi_event event;
	} counted[] = { { PN_FI_TX, PN_FI_EVENT_SEND },
			{ PN_FI_TX, PN_FI_EVENT_WRITE },
			{ PN_FI_TX, PN_FI_EVENT_READ },
			{ PN_FI_RX, PN_FI_EVENT_RECV } };
	int ret = 0;

	for (size_t i = 0; i < PN_ARRAY_LEN(counted) && !ret; i++)
		ret = bind_counted(ep, counted[i].dir, counted[i].event);
	return ret;
}

/* Programs bind counters to endpoints that are enabled, too. */
static int bind_counter(struct pn_fi_ep *ep, struct pn_fi_counter *counter,
			uint64_t flags)
{
	int ret = pn_fi_counter_bind(ep, counter, flags);

	if (ret || !ep->enabled)
		return ret;
	pn_fi_lock(ep->domain);
	ret = bind_all_counted(ep);
	pn_fi_unlock(ep->domain);
	return ret;
}

static int bind_any(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct pn_fi_ep *ep = ep_of(fid);

	if (ep->enabled && other->fclass != FI_CLASS_CNTR)
		return -FI_EOPBADSTATE;
	switch (other->fclass) {
	case FI_CLASS_CQ:
		return bind_cq(ep,
			       pn_container_of(other, struct pn_fi_cq, fid.fid),
			       flags);
	case FI_CLASS_AV:
		return bind_av(ep, pn_container_of(other, struct pn_fi_av,
						   fid.fid));
	case FI_CLASS_CNTR:
		return bind_counter(ep,
				    pn_container_of(other, struct pn_fi_counter,
						    fid.fid),
				    flags);
	case FI_CLASS_EQ: /* no events are reported */
		return 0;
	default:
		return -FI_EINVAL;
	}
}

static int enable_locked(struct pn_fi_ep *ep)
{
	int ret = bind_all_counted(ep);

	if (!ret && !ep->dirs[PN_FI_TX].cq && !ep->dirs[PN_FI_RX].cq)
		ret = -FI_ENOCQ;
	if (!ret && ep->caps & (FI_RMA | FI_ATOMIC))
		ret = pn_fi_responders_open(ep);
	if (!ret)
		ep->enabled = true;
	return ret;
}

static int enable(struct pn_fi_ep *ep)
{
	int ret;

	if (ep->enabled)
		return -FI_EOPBADSTATE;
	if (!ep->av)
		return -FI_ENOAV;
	pn_fi_lock(ep->domain);
	ret = enable_locked(ep);
	pn_fi_unlock(ep->domain);
	return ret;
}

/* The default flags of operations: fi_endpoint(3), FI_SETOPSFLAG. */
static int flags_of(struct pn_fi_ep *ep, bool change, uint64_t *flags)
{
	uint64_t dir = *flags & (FI_TRANSMIT | FI_RECV);
	uint64_t *op_flags;

	if (dir != FI_TRANSMIT && dir != FI_RECV)
		return -FI_EINVAL;
	op_flags = &ep->dirs[dir == FI_TRANSMIT ? PN_FI_TX : PN_FI_RX].op_flags;
	if (change)
		*op_flags = *flags & ~dir;
	else
		*flags = *op_flags;
	return 0;
}

static int control(struct fid *fid, int command, void *arg)
{
	switch (command) {
	case FI_ENABLE:
		return enable(ep_of(fid));
	case FI_GETOPSFLAG:
	case FI_SETOPSFLAG:
		return arg ? flags_of(ep_of(fid), command == FI_SETOPSFLAG, arg)
			   : -FI_EINVAL;
	default:
		return -FI_ENOSYS;
	}
}

/* --- options and names ---------------------------------------------------- */

static int getopt_ep(fid_t fid, int level, int name, void *value, size_t *len)
{
	struct pn_fi_ep *ep = ep_of(fid);

	if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
		return -FI_ENOPROTOOPT;
	if (*len < sizeof(size_t))
		return -FI_ETOOSMALL;
	memcpy(value, &ep->min_multi_recv, sizeof(size_t));
	*len = sizeof(size_t);
	return 0;
}

static int setopt_ep(fid_t fid, int level, int name, const void *value,
		     size_t len)
{
	struct pn_fi_ep *ep = ep_of(fid);

	if (level != FI_OPT_ENDPOINT || name != FI_OPT_MIN_MULTI_RECV)
		return -FI_ENOPROTOOPT;
	if (len != sizeof(size_t))
		return -FI_EINVAL;
	pn_fi_lock(ep->domain);
	memcpy(&ep->min_multi_recv, value, sizeof(size_t));
	pn_fi_unlock(ep->domain);
	return 0;
}

static int own_name(const struct pn_fi_ep *ep, struct pn_fi_name *out)
{
	struct pinion_address address;
	int ret = pinion_endpoint_address(ep->endpoint, &address);

	if (ret)
		return ret;
	if (address.len > sizeof(out->data)) {
		FI_WARN(&pn_fi_provider, FI_LOG_EP_CTRL,
			"the addresses of these devices do not fit into a name "
			"of %d bytes: give the adapter an IPv4 address, or "
			"name fewer devices in PINION_DEVICE\n",
			PN_FI_NAME_BYTES);
		return -FI_EINVAL;
	}
	*out = (struct pn_fi_name){ .len = (uint8_t)address.len };
	memcpy(out->data, address.data, address.len);
	return 0;
}

static int getname(fid_t fid, void *addr, size_t *addrlen)
{
	size_t room = *addrlen;
	struct pn_fi_name name;
	int ret = own_name(ep_of(fid), &name);

	if (ret)
		return ret;
	*addrlen = sizeof(name);
	if (room)
		memcpy(addr, &name, room < sizeof(name) ? room : sizeof(name));
	return room < sizeof(name) ? -FI_ETOOSMALL : 0;
}

/* Publishes the endpoint if its source address is a service. */
static int publish(struct pn_fi_ep *ep, const struct fi_info *info)
{
	struct pn_fi_name service, name;
	int ret;

	ep->service_fds[0] = ep->service_fds[1] = -1;
	if (!info->src_addr)
		return 0;
	if (info->src_addrlen != sizeof(service))
		return -FI_EINVAL;
	memcpy(&service, info->src_addr, sizeof(service));
	if (!pn_fi_is_service(&service) ||
	    !strcmp(pn_fi_service_text(&service), PN_FI_NO_SERVICE))
		return 0;
	ret = own_name(ep, &name);
	return ret ? ret : pn_fi_publish(&service, &name, ep->service_fds);
}

static int no_name(fid_t fid, void *addr, size_t len)
{
	(void)fid, (void)addr, (void)len;
	return -FI_ENOSYS;
}

static int no_getpeer(struct fid_ep *ep, void *addr, size_t *len)
{
	(void)ep, (void)addr, (void)len;
	return -FI_ENOSYS;
}

static int no_connect(struct fid_ep *ep, const void *addr, const void *param,
		      size_t len)
{
	(void)ep, (void)addr, (void)param, (void)len;
	return -FI_ENOSYS;
}

static int no_listen(struct fid_pep *pep)
{
	(void)pep;
	return -FI_ENOSYS;
}

static int no_accept(struct fid_ep *ep, const void *param, size_t len)
{
	(void)ep, (void)param, (void)len;
	return -FI_ENOSYS;
}

static int no_reject(struct fid_pep *pep, fid_t handle, const void *param,
		     size_t len)
{
	(void)pep, (void)handle, (void)param, (void)len;
	return -FI_ENOSYS;
}

static int no_shutdown(struct fid_ep *ep, uint64_t flags)
{
	(void)ep, (void)flags;
	return -FI_ENOSYS;
}

static int no_context_tx(struct fid_ep *sep, int index, struct fi_tx_attr *attr,
			 struct fid_ep **ep, void *context)
{
	(void)sep, (void)index, (void)attr, (void)ep, (void)context;
	return -FI_ENOSYS;
}

static int no_context_rx(struct fid_ep *sep, int index, struct fi_rx_attr *attr,
			 struct fid_ep **ep, void *context)
{
	(void)sep, (void)index, (void)attr, (void)ep, (void)context;
	return -FI_ENOSYS;
}

static ssize_t no_size_left(struct fid_ep *ep)
{
	(void)ep;
	return -FI_ENOSYS;
}

/* --- life ----------------------------------------------------------------- */

static void unbind_dir(struct pn_fi_ep *ep, enum pn_fi_dir dir)
{
	struct pn_fi_cq *cq = ep->dirs[dir].cq;

	if (!cq)
		return;
	pn_list_remove(&ep->dirs[dir].member.link);
	pn_fi_cq_unwatch(cq, ep);
	/* Entries that are left cannot name their source any more. */
	for (size_t n = cq->head; n != cq->tail; n++) {
		struct pn_fi_entry *entry = &cq->ring[n & (cq->capacity - 1)];

		if (entry->ep == ep)
			entry->ep = NULL;
	}
	cq->refs--;
}

static int close_ep(struct fid *fid)
{
	struct pn_fi_ep *ep = ep_of(fid);

	pn_fi_lock(ep->domain);
	atomic_store(&ep->is_open, false);
	pn_fi_ops_abandon(ep);
	pn_fi_responders_abandon(ep);
	unbind_dir(ep, PN_FI_TX);
	unbind_dir(ep, PN_FI_RX);
	pn_fi_counters_unbind(ep);
	pn_fi_unexpose_ep(ep);
	if (ep->av)
		ep->av->refs--;
	pn_fi_unlock(ep->domain);
	pn_fi_unpublish(ep->service_fds);
	/* Operations in flight are abandoned: their buffers are needed until
	 * here. */
	pinion_close(ep->context);
	pn_fi_ops_free(ep);
	pn_fi_rma_tx_bufs_free(ep);
	pn_fi_peer_regions_free(ep);
	pn_fi_lock(ep->domain);
	pn_fi_responders_free(ep);
	pn_fi_unlock(ep->domain);
	atomic_fetch_sub(&ep->domain->refs, 1);
	free(ep->peers);
	free(ep->sources);
	free(ep);
	return 0;
}

static struct fi_ops ep_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = close_ep,
	.bind = bind_any,
	.control = control,
	.ops_open = pn_fi_no_ops,
};

static struct fi_ops_ep ep_ops = {
	.size = sizeof(struct fi_ops_ep),
	.cancel = pn_fi_cancel,
	.getopt = getopt_ep,
	.setopt = setopt_ep,
	.tx_ctx = no_context_tx,
	.rx_ctx = no_context_rx,
	.rx_size_left = no_size_left,
	.tx_size_left = no_size_left,
};

static struct fi_ops_cm cm_ops = {
	.size = sizeof(struct fi_ops_cm),
	.setname = no_name,
	.getname = getname,
	.getpeer = no_getpeer,
	.connect = no_connect,
	.listen = no_listen,
	.accept = no_accept,
	.reject = no_reject,
	.shutdown = no_shutdown,
};

static void init_ep(struct pn_fi_ep *ep, const struct fi_info *info,
		    void *context)
{
	uint64_t caps = info->caps;

	pn_list_init(&ep->rma_tx_bufs);
	pn_list_init(&ep->free_rma_tx_bufs);
	pn_list_init(&ep->responding);
	pn_list_init(&ep->responders);
	pn_list_init(&ep->exposures);
	for (int e = 0; e < PN_FI_EVENTS; e++) {
		pn_list_init(&ep->events[e].member.link);
		ep->events[e].member.ep = ep;
	}
	for (int dir = 0; dir < PN_FI_DIRS; dir++) {
		pn_list_init(&ep->dirs[dir].member.link);
		ep->dirs[dir].member.ep = ep;
	}
	ep->dirs[PN_FI_TX].op_flags =
		info->tx_attr ? info->tx_attr->op_flags : 0;
	ep->dirs[PN_FI_RX].op_flags =
		info->rx_attr ? info->rx_attr->op_flags : 0;
	ep->caps = caps;
	ep->tx_size = info->tx_attr && info->tx_attr->size ? info->tx_attr->size
							   : PN_FI_TX_SIZE;
	ep->sends_follow_writes =
		info->tx_attr && info->tx_attr->msg_order & FI_ORDER_SAW;
	ep->sends_follow_reads =
		info->tx_attr && info->tx_attr->msg_order & FI_ORDER_SAR;
	ep->directed = caps & FI_DIRECTED_RECV;
	ep->several_devices = pn_fi_several_devices();
	ep->min_multi_recv = 64;
	ep->inject_bytes = pn_fi_inject_bytes(info->caps);
	ep->rma = pn_fi_rma_mode();
	pn_fi_peer_regions_init(ep, info);
	ep->fid.fid.fclass = FI_CLASS_EP;
	ep->fid.fid.context = context;
	ep->fid.fid.ops = &ep_fid_ops;
	ep->fid.ops = &ep_ops;
	ep->fid.cm = &cm_ops;
	ep->fid.msg = &pn_fi_msg_ops;
	ep->fid.tagged = &pn_fi_tagged_ops;
	ep->fid.rma = &pn_fi_rma_ops;
	ep->fid.atomic = &pn_fi_atomic_ops;
	ep->fid.collective = &pn_fi_no_collective_ops;
}

/* As the info says, else as the option does. */
static uint64_t progress_flags(const struct fi_info *info)
{
	const struct fi_domain_attr *domain = info->domain_attr;

	return domain && (domain->control_progress == FI_PROGRESS_AUTO ||
			  domain->data_progress == FI_PROGRESS_AUTO)
		       ? PINION_ENDPOINT_PROGRESS_THREAD
		       : 0;
}

static int open_endpoint(struct pn_fi_ep *ep, const struct fi_info *info)
{
	struct pinion_endpoint_attr attr = {
		.size = sizeof(attr),
		.flags = PINION_ENDPOINT_SINGLE_THREADED | progress_flags(info),
		.progress = pn_fi_ep_progress_thread,
		.progress_arg = ep,
	};

	/* A domain that was opened for manual progress has no lock that keeps
	 * the thread out. */
	if (!ep->domain->auto_progress) {
		attr.flags &= ~(uint64_t)PINION_ENDPOINT_PROGRESS_THREAD;
		attr.flags |= PINION_ENDPOINT_PROGRESS_CALLER;
	}
	return pinion_endpoint_open(ep->context, &attr, &ep->endpoint);
}

#define EAGER_LIMIT  4096 /* the bytes of EAGER_OPTION */
#define EAGER_OPTION "eager_limit=4K"

_Static_assert(sizeof(struct pn_fi_rma_request) + PN_FI_SEGMENTS_BYTES +
			       PN_FI_PAYLOAD_BYTES <=
		       EAGER_LIMIT,
	       "a request is an eager message");

static bool is_eager_limit_small(void)
{
	static const struct pn_option option = { .name = "eager_limit",
						 .type = PN_OPTION_BYTES };
	const char *text = secure_getenv("PINION_EAGER_LIMIT");
	uint64_t bytes;

	return text && !pn_option_parse(&option, text, &bytes, NULL) &&
	       bytes < EAGER_LIMIT;
}

/* Requests of one-sided operations go eagerly: behind one that did not, shorter
 * ones and messages would overtake it. */
static int open_context(const struct fi_info *info, struct pinion_context **out)
{
	static const char *const options[] = { EAGER_OPTION, NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };
	bool raises =
		info->caps & (FI_RMA | FI_ATOMIC) && is_eager_limit_small();

	return pinion_open(raises ? &attr : NULL, out);
}

int pn_fi_endpoint_open(struct fid_domain *domain, struct fi_info *info,
			struct fid_ep **out, void *context)
{
	struct pn_fi_ep *ep;
	int ret = pn_fi_info_check(info);

	if (ret)
		return ret;
	ep = calloc(1, sizeof(*ep));
	if (!ep)
		return -FI_ENOMEM;
	ep->domain = pn_container_of(domain, struct pn_fi_domain, fid);
	ret = open_context(info, &ep->context);
	if (ret)
		goto free_ep;
	ret = open_endpoint(ep, info);
	if (!ret)
		ret = publish(ep, info);
	if (ret)
		goto close_context;
	atomic_fetch_add(&ep->domain->refs, 1);
	init_ep(ep, info, context);
	ep->acks_claimed =
		pn_open_mpi_forgets_acks(__builtin_return_address(0));
	atomic_store(&ep->is_open, true);
	*out = &ep->fid;
	return 0;

close_context:
	pinion_close(ep->context);
free_ep:
	free(ep);
	return ret;
}
