/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of one-sided operations share; onesided.h tells the story. */
#ifndef PN_MESSAGE_ONESIDED_IMPL_H
#define PN_MESSAGE_ONESIDED_IMPL_H

#include "message/endpoint/endpoint.h"
#include "message/onesided/onesided.h"

/* bounce.c: opens the pool when it is not, with the lock, which is given up
 * meanwhile; -ENOBUFS, -ENOMEM. */
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
/* Cuts and posts fragments as far as the pipeline goes; ends the request when
 * everything has arrived or it has failed. */
void pn_onesided_advance(struct pinion_request *request);
/* PUT_WHEN: cuts and pins fragments ahead of the grant; posts nothing. */
void pn_onesided_prepare(struct pinion_request *request);
/* PUT_WHEN: the grant is here; posts what was prepared and goes on. */
void pn_onesided_granted(struct pinion_request *request);
/* Unpins the fragments of a request that never ended, when the endpoint closes.
 */
void pn_onesided_unpin_fragments(struct pinion_request *request);

/* onesided.c */
/* Begins a request of any of these kinds, with the lock: sees to it that the
 * peer can be reached and that there are bounce buffers, and tells *handle, if
 * there is one. -EHOSTUNREACH: no conn joins the first rails (logged); or why
 * the peer is gone, -ENOBUFS, -ENOMEM. */
int pn_onesided_start(struct pinion_endpoint *ep, enum pn_request_kind kind,
		      const struct pinion_message *what,
		      struct pinion_request **handle,
		      struct pinion_request **out);
/* All of it is in the device's queue, or never will be. */
void pn_onesided_posted(struct pinion_request *request);

/* grant.c: all bytes of a PUT_WHEN are there: 0, or why it fails. */
int pn_grant_send_fin(struct pinion_request *request);
/* A held one is taken out. */
void pn_grant_unqueue(struct pinion_request *request);

#endif
