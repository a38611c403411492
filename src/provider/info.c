/* SPDX-License-Identifier: BSD-2-Clause */
/* fi_getinfo(): one kind of endpoint. Opens no device, since every program that
 * lists providers calls it. */
#include <stdlib.h>
#include <string.h>

#include "provider/onesided.h"

#define CAPS_MESSAGES  (FI_MSG | FI_TAGGED)
#define CAPS_ONESIDED  (FI_RMA | FI_ATOMIC)
#define CAPS_MAIN      (CAPS_MESSAGES | CAPS_ONESIDED)
#define CAPS_SIDES     (FI_SEND | FI_RECV)
#define CAPS_INITIATOR (FI_READ | FI_WRITE)
#define CAPS_TARGET    (FI_REMOTE_READ | FI_REMOTE_WRITE)
#define CAPS_ACCESS    (CAPS_INITIATOR | CAPS_TARGET)
#define CAPS_EXTRA     (FI_DIRECTED_RECV | FI_MULTI_RECV | FI_SOURCE)
#define CAPS_REACH     (FI_LOCAL_COMM | FI_REMOTE_COMM)
#define CAPS_ALL                                                          \
	(CAPS_MAIN | CAPS_SIDES | CAPS_ACCESS | CAPS_EXTRA | CAPS_REACH | \
	 FI_RMA_EVENT)
#define CAPS_TX (CAPS_MAIN | FI_SEND | CAPS_INITIATOR)
#define CAPS_RX (CAPS_MAIN | FI_RECV | CAPS_TARGET | CAPS_EXTRA | FI_RMA_EVENT)
#define TX_FLAGS                                          \
	(FI_COMPLETION | FI_INJECT | FI_INJECT_COMPLETE | \
	 FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE)
#define MR_MODES   (FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)
#define RX_FLAGS   (FI_COMPLETION | FI_MULTI_RECV)
#define QUEUE_SIZE 65536
/* Requests of one-sided operations are messages, which arrive in order, and the
 * target executes those whose data they contain at once. */
#define ORDERS_ONESIDED                                                 \
	(FI_ORDER_RAR | FI_ORDER_RAW | FI_ORDER_WAR | FI_ORDER_WAW |    \
	 FI_ORDER_RAS | FI_ORDER_WAS | FI_ORDER_SAR | FI_ORDER_SAW |    \
	 FI_ORDER_RMA_RAR | FI_ORDER_RMA_RAW | FI_ORDER_RMA_WAR |       \
	 FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | \
	 FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW)
#define ORDERS	   (FI_ORDER_SAS | ORDERS_ONESIDED)
/* All 64 bits of a tag are usable, in libfabric's notation. */
#define TAG_FORMAT UINT64_C(0xaaaaaaaaaaaaaaaa)

/* Refuses, with the reason in libfabric's log (FI_LOG_LEVEL=info). */
#define REFUSE(...)                                                 \
	do {                                                        \
		FI_INFO(&pn_fi_provider, FI_LOG_CORE, __VA_ARGS__); \
		return false;                                       \
	} while (0)

static const char *device_name(void)
{
	const char *spec = secure_getenv("PINION_DEVICE");

	return spec && *spec ? spec : "soft";
}

bool pn_fi_several_devices(void)
{
	return strpbrk(device_name(), "/+");
}

enum pn_fi_rma_mode pn_fi_rma_mode(void)
{
	const char *option = secure_getenv("PINION_RMA");

	if (!option || !strcmp(option, "auto"))
		return PN_FI_RMA_AUTO;
	return strcmp(option, "device") ? PN_FI_RMA_REQUEST : PN_FI_RMA_DEVICE;
}

/* The capabilities that were asked for, and those that cost nothing. */
static uint64_t caps_for(const struct fi_info *hints)
{
	uint64_t caps = hints ? hints->caps : 0;

	if (!caps)
		return CAPS_ALL;
	if (!(caps & CAPS_MAIN))
		caps |= CAPS_MESSAGES;
	if (caps & CAPS_MESSAGES && !(caps & CAPS_SIDES))
		caps |= CAPS_SIDES;
	if (caps & CAPS_ONESIDED && !(caps & CAPS_ACCESS))
		caps |= CAPS_ACCESS;
	return caps | CAPS_REACH;
}

/* `soft` copies a small message while it posts, so a larger limit of inject
 * costs nothing there, unless PINION_REUSE=on asks to detect reuse of buffers.
 * One-sided operations copy their data into the request, which has room for
 * PN_FI_INJECT_RMA_BYTES. With a second device for other hosts, messages to
 * these are copied. */
size_t pn_fi_inject_bytes(uint64_t caps)
{
	const char *reuse = secure_getenv("PINION_REUSE"),
		   *spec = device_name();
	size_t kind = strcspn(spec, ":/");

	if (caps & CAPS_ONESIDED)
		return PN_FI_INJECT_RMA_BYTES;
	if (kind == 4 && !strncmp(spec, "soft", 4) && !strchr(spec, '+') &&
	    !(reuse && !strcmp(reuse, "on")))
		return PN_FI_INJECT_MAX_BYTES;
	return PN_FI_INJECT_BYTES;
}

static bool tx_ok(const struct fi_tx_attr *tx, uint64_t caps)
{
	if (!tx)
		return true;
	if (tx->caps & ~CAPS_ALL)
		REFUSE("tx_attr->caps\n");
	if (tx->op_flags & ~TX_FLAGS)
		REFUSE("tx_attr->op_flags\n");
	if (tx->msg_order & ~ORDERS || tx->comp_order)
		REFUSE("order of completions, or tx_attr->msg_order\n");
	if (tx->inject_size > pn_fi_inject_bytes(caps) ||
	    tx->iov_limit > PN_FI_IOV_LIMIT ||
	    tx->rma_iov_limit > PN_FI_IOV_LIMIT || tx->size > QUEUE_SIZE)
		REFUSE("limits of tx_attr\n");
	return true;
}

static bool rx_ok(const struct fi_rx_attr *rx)
{
	if (!rx)
		return true;
	if (rx->caps & ~CAPS_ALL)
		REFUSE("rx_attr->caps\n");
	if (rx->op_flags & ~RX_FLAGS)
		REFUSE("rx_attr->op_flags\n");
	if (rx->msg_order & ~ORDERS || rx->comp_order)
		REFUSE("order of completions, or rx_attr->msg_order\n");
	if (rx->iov_limit > PN_FI_IOV_LIMIT || rx->size > QUEUE_SIZE)
		REFUSE("limits of rx_attr\n");
	return true;
}

static bool ep_ok(const struct fi_ep_attr *ep)
{
	if (!ep)
		return true;
	if (ep->type != FI_EP_UNSPEC && ep->type != FI_EP_RDM)
		REFUSE("endpoints other than FI_EP_RDM\n");
	if (ep->protocol != FI_PROTO_UNSPEC || ep->msg_prefix_size)
		REFUSE("protocol\n");
	if (ep->tx_ctx_cnt > 1 || ep->rx_ctx_cnt > 1)
		REFUSE("scalable endpoints and shared contexts\n");
	if (ep->max_order_raw_size > PN_FI_PAYLOAD_BYTES ||
	    ep->max_order_war_size > PN_FI_PAYLOAD_BYTES ||
	    ep->max_order_waw_size > PN_FI_PAYLOAD_BYTES)
		REFUSE("order of longer one-sided operations\n");
	return true;
}

static bool domain_ok(const struct fi_domain_attr *domain)
{
	if (!domain)
		return true;
	if (domain->name && strcmp(domain->name, device_name()))
		REFUSE("no domain %s\n", domain->name);
	if (domain->cq_data_size > PN_FI_DATA_BYTES)
		REFUSE("CQ data has 8 bytes\n");
	if (domain->caps & ~CAPS_REACH)
		REFUSE("domain_attr->caps\n");
	return true;
}

static bool hints_ok(const struct fi_info *hints)
{
	if (!hints)
		return true;
	if (hints->caps & ~CAPS_ALL)
		REFUSE("capabilities\n");
	if (hints->addr_format != FI_FORMAT_UNSPEC)
		REFUSE("addresses have a format of their own\n");
	if (hints->fabric_attr && hints->fabric_attr->name &&
	    strcmp(hints->fabric_attr->name, pn_fi_provider.name))
		REFUSE("no fabric %s\n", hints->fabric_attr->name);
	return ep_ok(hints->ep_attr) &&
	       tx_ok(hints->tx_attr, caps_for(hints)) &&
	       rx_ok(hints->rx_attr) && domain_ok(hints->domain_attr);
}

static uint64_t orders_for(uint64_t wanted)
{
	return FI_ORDER_SAS | wanted;
}

/* The order of one-sided operations holds up to this size. */
static void fill_order_sizes(struct fi_ep_attr *ep, uint64_t orders)
{
	if (orders & (FI_ORDER_RAW | FI_ORDER_RMA_RAW | FI_ORDER_ATOMIC_RAW))
		ep->max_order_raw_size = PN_FI_PAYLOAD_BYTES;
	if (orders & (FI_ORDER_WAR | FI_ORDER_RMA_WAR | FI_ORDER_ATOMIC_WAR))
		ep->max_order_war_size = PN_FI_PAYLOAD_BYTES;
	if (orders & (FI_ORDER_WAW | FI_ORDER_RMA_WAW | FI_ORDER_ATOMIC_WAW))
		ep->max_order_waw_size = PN_FI_PAYLOAD_BYTES;
}

static void fill_tx_rx(struct fi_info *info, const struct fi_info *hints)
{
	*info->tx_attr = (struct fi_tx_attr){
		.caps = info->caps & CAPS_TX,
		.msg_order = FI_ORDER_SAS,
		.inject_size = pn_fi_inject_bytes(info->caps),
		.size = PN_FI_TX_SIZE,
		.iov_limit = PN_FI_IOV_LIMIT,
		.rma_iov_limit =
			info->caps & CAPS_ONESIDED ? PN_FI_IOV_LIMIT : 0,
	};
	*info->rx_attr = (struct fi_rx_attr){
		.caps = info->caps & CAPS_RX,
		.msg_order = FI_ORDER_SAS,
		.size = QUEUE_SIZE,
		.iov_limit = PN_FI_IOV_LIMIT,
	};
	if (hints && hints->tx_attr) {
		info->tx_attr->op_flags = hints->tx_attr->op_flags;
		info->tx_attr->msg_order =
			orders_for(hints->tx_attr->msg_order);
		if (hints->tx_attr->size)
			info->tx_attr->size = hints->tx_attr->size;
	}
	if (hints && hints->rx_attr) {
		info->rx_attr->op_flags = hints->rx_attr->op_flags;
		info->rx_attr->msg_order =
			orders_for(hints->rx_attr->msg_order);
	}
	fill_order_sizes(info->ep_attr, info->tx_attr->msg_order);
}

/* Any mode is accepted: pinion needs none. Before version 1.5 there were two
 * modes with a name each. */
static int mr_mode_for(uint32_t version, int wanted)
{
	if (wanted == PN_FI_MR_BASIC || wanted == PN_FI_MR_SCALABLE)
		return wanted;
	if (FI_VERSION_LT(version, FI_VERSION(1, 5)))
		return PN_FI_MR_SCALABLE;
	return wanted & MR_MODES;
}

static void fill_domain(struct fi_domain_attr *domain,
			const struct fi_domain_attr *wanted, uint32_t version)
{
	domain->threading = FI_THREAD_SAFE;
	domain->control_progress = FI_PROGRESS_MANUAL;
	domain->data_progress = FI_PROGRESS_MANUAL;
	domain->resource_mgmt = FI_RM_ENABLED;
	domain->cq_data_size = PN_FI_DATA_BYTES;
	domain->cq_cnt = domain->ep_cnt = 1024;
	domain->tx_ctx_cnt = domain->rx_ctx_cnt = 1024;
	domain->max_ep_tx_ctx = domain->max_ep_rx_ctx = 1;
	domain->caps = CAPS_REACH;
	domain->mr_iov_limit = 1;
	domain->mr_key_size = sizeof(uint64_t);
	domain->mr_cnt = domain->cntr_cnt = 65536;
	if (!wanted)
		return;
	domain->mr_mode = mr_mode_for(version, wanted->mr_mode);
	if (wanted->threading != FI_THREAD_UNSPEC)
		domain->threading = wanted->threading;
	domain->av_type = wanted->av_type;
	if (wanted->control_progress == FI_PROGRESS_AUTO)
		domain->control_progress = FI_PROGRESS_AUTO;
	if (wanted->data_progress == FI_PROGRESS_AUTO)
		domain->data_progress = FI_PROGRESS_AUTO;
}

static int fill_names(struct fi_info *info)
{
	info->domain_attr->name = strdup(device_name());
	info->fabric_attr->name = strdup(pn_fi_provider.name);
	return info->domain_attr->name && info->fabric_attr->name ? 0
								  : -FI_ENOMEM;
}

static int copy_address(const void *from, size_t len, void **to, size_t *to_len)
{
	if (!from)
		return 0;
	if (len != PN_FI_NAME_BYTES)
		return -FI_ENODATA;
	*to = malloc(len);
	if (!*to)
		return -FI_ENOMEM;
	memcpy(*to, from, len);
	*to_len = len;
	return 0;
}

/* A service names an endpoint of this host: the source address with FI_SOURCE,
 * else the destination address. */
static int name_service(struct fi_info *info, const char *node,
			const char *service, uint64_t flags)
{
	struct pn_fi_name name;

	if (strncmp(device_name(), "soft", 4) ||
	    (node && !pn_fi_is_this_host(node, flags)))
		return -FI_ENODATA;
	if (pn_fi_service_name(service ? service : PN_FI_NO_SERVICE, &name))
		return -FI_ENODATA;
	return flags & FI_SOURCE
		       ? copy_address(&name, sizeof(name), &info->src_addr,
				      &info->src_addrlen)
		       : copy_address(&name, sizeof(name), &info->dest_addr,
				      &info->dest_addrlen);
}

/* Addresses that node and service do not give are taken from the hints. There
 * is always a source address. */
static int fill_addresses(struct fi_info *info, const struct fi_info *hints,
			  const char *node, const char *service, uint64_t flags)
{
	int ret =
		node || service ? name_service(info, node, service, flags) : 0;
	struct pn_fi_name any;

	if (!ret && hints && !info->src_addr)
		ret = copy_address(hints->src_addr, hints->src_addrlen,
				   &info->src_addr, &info->src_addrlen);
	if (!ret && hints && !info->dest_addr)
		ret = copy_address(hints->dest_addr, hints->dest_addrlen,
				   &info->dest_addr, &info->dest_addrlen);
	pn_fi_service_name(PN_FI_NO_SERVICE, &any);
	if (!ret && !info->src_addr)
		ret = copy_address(&any, sizeof(any), &info->src_addr,
				   &info->src_addrlen);
	return ret;
}

int pn_fi_getinfo(uint32_t version, const char *node, const char *service,
		  uint64_t flags, const struct fi_info *hints,
		  struct fi_info **out)
{
	struct fi_info *info;
	int ret;

	if (!hints_ok(hints))
		return -FI_ENODATA;
	info = fi_allocinfo();
	if (!info || fill_names(info)) {
		fi_freeinfo(info);
		return -FI_ENOMEM;
	}
	ret = fill_addresses(info, hints, node, service, flags);
	if (ret) {
		fi_freeinfo(info);
		return ret;
	}
	info->caps = caps_for(hints);
	info->addr_format = FI_FORMAT_UNSPEC;
	fill_tx_rx(info, hints);
	fill_domain(info->domain_attr, hints ? hints->domain_attr : NULL,
		    version);
	info->ep_attr->type = FI_EP_RDM;
	info->ep_attr->protocol_version = 1;
	info->ep_attr->max_msg_size = SIZE_MAX >> 1;
	info->ep_attr->mem_tag_format = TAG_FORMAT;
	info->ep_attr->tx_ctx_cnt = info->ep_attr->rx_ctx_cnt = 1;
	*out = info;
	return 0;
}

int pn_fi_info_check(const struct fi_info *info)
{
	return info && info->ep_attr && hints_ok(info) ? 0 : -FI_EINVAL;
}
