/* SPDX-License-Identifier: BSD-2-Clause */
/* Two UCP workers in one process, the first connected to the second: what
 * ucx_before.c and ucx_after.c have in common. */
#ifndef UCX_PAIR_H
#define UCX_PAIR_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucp/api/ucp.h>

struct pair {
	ucp_context_h context;
	ucp_worker_h worker[2];
	ucp_ep_h ep;
};

static void need(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "%s failed\n", what);
		exit(EXIT_FAILURE);
	}
}

static void open_worker(struct pair *pair, int i)
{
	ucp_worker_params_t params = {
		.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
		.thread_mode = UCS_THREAD_MODE_SINGLE
	};

	need(ucp_worker_create(pair->context, &params, &pair->worker[i]) ==
		     UCS_OK,
	     "ucp_worker_create");
}

static void open_ep(struct pair *pair)
{
	ucp_ep_params_t params = { .field_mask =
					   UCP_EP_PARAM_FIELD_REMOTE_ADDRESS };
	ucp_address_t *address;
	size_t len;

	need(ucp_worker_get_address(pair->worker[1], &address, &len) == UCS_OK,
	     "ucp_worker_get_address");
	params.address = address;
	need(ucp_ep_create(pair->worker[0], &params, &pair->ep) == UCS_OK,
	     "ucp_ep_create");
	ucp_worker_release_address(pair->worker[1], address);
}

static void pair_open(struct pair *pair)
{
	/* mt_workers_shared: memory is registered by any thread. */
	ucp_params_t params = { .field_mask = UCP_PARAM_FIELD_FEATURES |
					      UCP_PARAM_FIELD_MT_WORKERS_SHARED,
				.features = UCP_FEATURE_TAG,
				.mt_workers_shared = 1 };
	ucp_config_t *config;

	need(ucp_config_read(NULL, NULL, &config) == UCS_OK, "ucp_config_read");
	need(ucp_init(&params, config, &pair->context) == UCS_OK, "ucp_init");
	ucp_config_release(config);
	open_worker(pair, 0);
	open_worker(pair, 1);
	open_ep(pair);
}

static void complete(struct pair *pair, ucs_status_ptr_t request)
{
	need(!UCS_PTR_IS_ERR(request), "a request");
	if (!request)
		return;
	while (ucp_request_check_status(request) == UCS_INPROGRESS) {
		ucp_worker_progress(pair->worker[0]);
		ucp_worker_progress(pair->worker[1]);
	}
	need(ucp_request_check_status(request) == UCS_OK, "a request");
	ucp_request_free(request);
}

/* Sends from the first to the second; returns when it has arrived. */
static void pair_send(struct pair *pair, const void *from, size_t len,
		      ucp_mem_h memh, void *to)
{
	ucp_request_param_t with_memh = { .op_attr_mask =
						  UCP_OP_ATTR_FIELD_MEMH,
					  .memh = memh };
	ucp_request_param_t plain = { .op_attr_mask = 0 };
	ucs_status_ptr_t send, recv;

	recv = ucp_tag_recv_nbx(pair->worker[1], to, len, 1, UINT64_MAX,
				&plain);
	send = ucp_tag_send_nbx(pair->ep, from, len, 1, &with_memh);
	complete(pair, send);
	complete(pair, recv);
}

static void pair_close(struct pair *pair)
{
	ucp_request_param_t plain = { .op_attr_mask = 0 };

	complete(pair, ucp_ep_close_nbx(pair->ep, &plain));
	ucp_worker_destroy(pair->worker[0]);
	ucp_worker_destroy(pair->worker[1]);
	ucp_cleanup(pair->context);
}

#endif
