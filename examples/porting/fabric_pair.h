/* SPDX-License-Identifier: BSD-2-Clause */
/* Two endpoints of one libfabric domain, in one process: what fabric_before.c
 * and fabric_after.c have in common. */
#ifndef FABRIC_PAIR_H
#define FABRIC_PAIR_H

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pair {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep[2];
	fi_addr_t addr[2]; /* of the endpoints */
};

static void need(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "%s failed\n", what);
		exit(EXIT_FAILURE);
	}
}

static void find_provider(struct pair *pair, const char *name)
{
	struct fi_info *hints = fi_allocinfo();

	hints->caps = FI_MSG | FI_RMA;
	hints->ep_attr->type = FI_EP_RDM;
	hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	hints->fabric_attr->prov_name = strdup(name);
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR |
				      FI_MR_ALLOCATED | FI_MR_PROV_KEY;
	need(!fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", NULL, FI_SOURCE, hints,
			 &pair->info),
	     "fi_getinfo");
	fi_freeinfo(hints);
}

static void open_endpoint(struct pair *pair, int i)
{
	char name[256];
	size_t len = sizeof(name);

	need(!fi_endpoint(pair->domain, pair->info, &pair->ep[i], NULL) &&
		     !fi_ep_bind(pair->ep[i], &pair->av->fid, 0) &&
		     !fi_ep_bind(pair->ep[i], &pair->cq->fid,
				 FI_TRANSMIT | FI_RECV) &&
		     !fi_enable(pair->ep[i]),
	     "opening an endpoint");
	need(!fi_getname(&pair->ep[i]->fid, name, &len) &&
		     fi_av_insert(pair->av, name, 1, &pair->addr[i], 0, NULL) ==
			     1,
	     "fi_av_insert");
}

static void pair_open(struct pair *pair)
{
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_CONTEXT };

	find_provider(pair, "tcp;ofi_rxm");
	need(!fi_fabric(pair->info->fabric_attr, &pair->fabric, NULL) &&
		     !fi_domain(pair->fabric, pair->info, &pair->domain,
				NULL) &&
		     !fi_av_open(pair->domain, &av, &pair->av, NULL) &&
		     !fi_cq_open(pair->domain, &cq, &pair->cq, NULL),
	     "opening the domain");
	open_endpoint(pair, 0);
	open_endpoint(pair, 1);
}

/* RMA write from the first to the second; returns when it is done. */
static void pair_write(struct pair *pair, const void *from, void *desc,
		       const struct fi_rma_iov *to)
{
	struct fi_cq_entry entry;
	ssize_t ret;

	/* Both endpoints make progress by their completion queue. */
	while ((ret = fi_write(pair->ep[0], from, to->len, desc, pair->addr[1],
			       to->addr, to->key, NULL)) == -FI_EAGAIN)
		fi_cq_read(pair->cq, &entry, 0);
	need(!ret, "fi_write");
	while ((ret = fi_cq_read(pair->cq, &entry, 1)) == -FI_EAGAIN)
		;
	need(ret == 1, "fi_cq_read");
}

static void pair_close(struct pair *pair)
{
	fi_close(&pair->ep[0]->fid);
	fi_close(&pair->ep[1]->fid);
	fi_close(&pair->cq->fid);
	fi_close(&pair->av->fid);
	need(!fi_close(&pair->domain->fid), "closing the domain");
	fi_close(&pair->fabric->fid);
	fi_freeinfo(pair->info);
}

#endif
