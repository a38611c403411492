/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * profiles -- named cost profiles: what registering, copying and sending cost
 * on machines of the papers.
 *
 * `sim` charges all of a profile in virtual time; `soft` adds the
 * registration part to its real cost on demand and then calls itself emulated.
 * Some figures are measured or published, others assumed; whoever prints a
 * profile marks the assumed ones (pn_profile_assumed()). Pages are 4 KiB.
 * A batch of registrations pays its fixed part for each, a batch of
 * deregistrations once (paper Region cache: that is what batching saves).
 */
#ifndef PN_DEVICE_PROFILES_H
#define PN_DEVICE_PROFILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pn_profile_field {
	PN_PROFILE_REGISTER_US,
	PN_PROFILE_REGISTER_PAGE_US,
	PN_PROFILE_DEREGISTER_US,
	PN_PROFILE_DEREGISTER_PAGE_US,
	PN_PROFILE_LINK_GBPS, /* 10^9 bytes per second; 0: no limit */
	PN_PROFILE_LATENCY_US,
	PN_PROFILE_MESSAGE_US,	  /* CPU per message, at either end */
	PN_PROFILE_COMPLETION_US, /* building a completion entry (T1) */
	PN_PROFILE_CROSSING_US,	  /* one kernel crossing (T2, T3) */
	PN_PROFILE_LOOKUP_US,	  /* one look-up in the usage table */
	PN_PROFILE_COPY_GBPS,	  /* 0: no limit */
	PN_PROFILE_NFIELDS,
};

struct pn_profile {
	const char *name;
	const char *source; /* where the figures come from */
	double value[PN_PROFILE_NFIELDS];
	unsigned assumed; /* bit per field */
};

/* The profile called name, or NULL. */
const struct pn_profile *pn_profile_find(const char *name);

/* All of them, one by one; NULL at the end. "none" is the first. */
const struct pn_profile *pn_profile_at(unsigned index);

/* "register_us" and so on: the key in JSON rows. */
const char *pn_profile_field_name(enum pn_profile_field field);

static inline bool pn_profile_assumed(const struct pn_profile *profile,
				      enum pn_profile_field field)
{
	return profile->assumed >> field & 1;
}

/* Nanoseconds that registering one range of npages costs. */
uint64_t pn_profile_register_ns(const struct pn_profile *profile,
				size_t npages);

/* Nanoseconds that a batch of deregistrations of npages in all costs. */
uint64_t pn_profile_deregister_ns(const struct pn_profile *profile,
				  size_t npages);

/* Nanoseconds that bytes need on the link, latency apart. */
uint64_t pn_profile_link_ns(const struct pn_profile *profile, size_t bytes);

/* Nanoseconds that copying bytes costs. */
uint64_t pn_profile_copy_ns(const struct pn_profile *profile, size_t bytes);

/* Nanoseconds of a field given in microseconds. */
uint64_t pn_profile_field_ns(const struct pn_profile *profile,
			     enum pn_profile_field field);

#endif
