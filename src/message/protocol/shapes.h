/* SPDX-License-Identifier: BSD-2-Clause */
/* What several rows of protocol.h share: shapes and costs. */
#ifndef PN_MESSAGE_SHAPES_H
#define PN_MESSAGE_SHAPES_H

#include "base/range.h"
#include "message/protocol/protocol.h"

bool pn_shape_always(const struct pn_protocol_limits *limits, size_t len);

/* At least one byte goes by RDMA. */
bool pn_shape_not_empty(const struct pn_protocol_limits *limits, size_t len);

/* How much of a long message goes with its MATCH. */
size_t pn_shape_match(const struct pn_protocol_limits *limits, size_t len);

/* Registering and deregistering len bytes in n parts. */
double pn_cost_register(const struct pn_costs *costs, size_t len, size_t n);
double pn_cost_deregister(const struct pn_costs *costs, size_t len, size_t n);

/* What precedes the first byte by RDMA or DATA: the MATCH with its bytes. */
double pn_cost_match(const struct pn_protocol_limits *limits,
		     const struct pn_costs *costs, size_t len);

/* The rest by DATA packets, copied at both ends. */
double pn_cost_copy(const struct pn_protocol_limits *limits,
		    const struct pn_costs *costs, size_t len);

/* The whole buffer at once: both sides register, one after the other. */
double pn_cost_whole(const struct pn_protocol_limits *limits,
		     const struct pn_costs *costs, size_t len, double reuse,
		     bool keep);

/* Fragments: the slowest of link, sender and receiver, and the start. */
double pn_cost_pipeline(const struct pn_protocol_limits *limits,
			const struct pn_costs *costs, size_t len, double reuse,
			bool keep);

/* What a message occupies while others are in flight: copied as a whole; by
 * RDMA, whole or in fragments. */
double pn_busy_copy(const struct pn_costs *costs, size_t len);
double pn_busy_whole(const struct pn_protocol_limits *limits,
		     const struct pn_costs *costs, size_t len, double reuse,
		     bool keep);
double pn_busy_pipeline(const struct pn_protocol_limits *limits,
			const struct pn_costs *costs, size_t len, double reuse,
			bool keep);

#endif
