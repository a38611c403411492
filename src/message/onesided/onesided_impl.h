/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of one-sided operations share; onesided.h tells the story. */
#ifndef PN_MESSAGE_ONESIDED_IMPL_H
#define PN_MESSAGE_ONESIDED_IMPL_H

#include "message/endpoint/endpoint.h"
#include "message/onesided/onesided.h"

/* bounce.c: the pool is empty until it is opened. */
void pn_bounce_pool_init(struct pn_bounce_pool *pool);
/* Opens the pool if it is not open. Called with the lock, which is released
 * meanwhile. -ENOBUFS, -ENOMEM. */
int pn_bounce_pool_open(struct pinion_endpoint *ep);
void pn_bounce_pool_close(struct pinion_endpoint *ep);
struct pn_bounce_buffer *pn_bounce_buffer_get(struct pinion_endpoint *ep,
					      size_t len);
void pn_bounce_buffer_put(struct pinion_endpoint *ep,
			  struct pn_bounce_buffer *bounce_buffer);

/* exposure.c */
void pn_remote_get(struct pinion_remote *remote);
void pn_remote_put(struct pinion_remote *remote);
void pn_exposures_close(struct pinion_endpoint *ep);

/* fragment.c */
/* Cuts and posts fragments up to the depth of the pipeline. Ends the request
 * when all bytes have moved, or when it has failed. */
void pn_onesided_advance(struct pinion_request *request);
/* PUT_WHEN: cuts and pins fragments before the grant arrives. */
void pn_onesided_prepare(struct pinion_request *request);
/* PUT_WHEN: the grant has arrived; posts what was prepared, and goes on. */
void pn_onesided_granted(struct pinion_request *request);
/* Unpins the fragments of a request that never ended, when the endpoint closes.
 */
void pn_onesided_unpin_fragments(struct pinion_request *request);

/* onesided.c */
/* Makes a request of one of these kinds: connects the peer, opens the bounce
 * buffers, and sets *handle unless NULL. Called with the lock. -EHOSTUNREACH:
 * no connection joins the first rails (logged); why the peer is down; -ENOBUFS;
 * -ENOMEM. */
int pn_onesided_start(struct pinion_endpoint *ep, enum pn_request_kind kind,
		      const struct pinion_message *what,
		      struct pinion_request **handle,
		      struct pinion_request **out);
/* Tells the helper that a request begins, whose path is known unless it is a
 * grant. kind: enum pn_call_kind. */
void pn_onesided_record(struct pinion_request *request, unsigned kind);
/* Nothing of a request is to be posted any more. */
void pn_onesided_posted(struct pinion_request *request);

/* grant.c: all bytes of a PUT_WHEN are written: sends FIN if it is needed. */
int pn_grant_send_fin(struct pinion_request *request);
/* Removes a PUT_WHEN that waits for its grant from the queue; else does
 * nothing. */
void pn_grant_unqueue(struct pinion_request *request);

#endif
