/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * rail -- stripes a long message over several rails (multi-rail): which rail a
 * fragment takes, and how long the fragment is. struct pn_rail is in
 * connection.h.
 *
 * The receiver decides, since it announces (or reads) the fragments. rail.c
 * explains the rule. Threads: under the endpoint's lock.
 */
#ifndef PN_MESSAGE_RAIL_H
#define PN_MESSAGE_RAIL_H

#include <stdbool.h>
#include <stddef.h>

struct pinion_endpoint;
struct pinion_request;
struct pn_connection;
struct pn_fragment;

void pn_rails_init(struct pinion_endpoint *ep);

/* The endpoint begins or ceases to be the only user of its devices. */
void pn_rails_set_owner(struct pinion_endpoint *ep, bool owner,
			bool single_threaded);

/* The connection and the length of the fragment that begins at transfer.next.
 * -EAGAIN: none now, enough are under way. */
int pn_rail_choose(struct pinion_request *request, size_t *len,
		   struct pn_connection **out);

/* Another connection for len bytes, after the one they were on went down. */
struct pn_connection *pn_rail_choose_alternative(
	const struct pinion_request *request, size_t len);

/* A fragment is announced on its connection; later, it arrived or will not. */
void pn_rail_expect(struct pn_fragment *f);
void pn_rail_expect_done(struct pn_fragment *f, bool arrived);

/* The same for the bytes before the fragments, which come by DATA. */
void pn_rail_expect_data(struct pinion_request *request);
void pn_rail_data_arrived(struct pinion_request *request, size_t len);

/* Whether the keys of the source allow reading over a connection. */
bool pn_rail_can_read(const struct pinion_request *request,
		      const struct pn_connection *conn);

#endif
