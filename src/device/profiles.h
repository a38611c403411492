/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * profiles -- named cost profiles: the costs of registering, copying and
 * sending on machines of published measurements.
 *
 * `sim` charges all costs of a profile in virtual time. `soft` adds the
 * registration costs to its real ones on demand and then reports itself as
 * emulated.
 * Some figures are measured or published, others assumed; whoever prints a
 * profile marks the assumed ones (pn_profile_assumed()). Pages are 4 KiB.
 * A batch of registrations pays the fixed cost for each range, a batch of
 * deregistrations pays it once (Ou, He and Han 2009: batching saves that cost),
 * except where a batch was measured to cost what its calls cost (`unbatched`).
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
	PN_PROFILE_COMPLETION_US, /* building a completion entry */
	PN_PROFILE_CROSSING_US,	  /* one kernel crossing */
	PN_PROFILE_LOOKUP_US,	  /* one look-up in the usage table */
	PN_PROFILE_COPY_GBPS,	  /* 0: no limit */
	PN_PROFILE_NFIELDS,
};

struct pn_profile {
	const char *name;
	const char *source; /* where the figures come from */
	double value[PN_PROFILE_NFIELDS];
	unsigned assumed; /* bit per field */
	/* Of a batch of deregistrations each range pays the fixed cost. */
	bool unbatched;
};

/* The profile called name, or NULL. */
const struct pn_profile *pn_profile_find(const char *name);

/* All profiles by index; NULL at the end. "none" is the first. */
const struct pn_profile *pn_profile_at(unsigned index);

/* The key in JSON rows: "register_us" and so on. */
const char *pn_profile_field_name(enum pn_profile_field field);

static inline bool pn_profile_assumed(const struct pn_profile *profile,
				      enum pn_profile_field field)
{
	return profile->assumed >> field & 1;
}

/* Nanoseconds to register one range of npages. */
uint64_t pn_profile_register_ns(const struct pn_profile *profile,
				size_t npages);

/* Nanoseconds to deregister a batch of n ranges, npages in all. */
uint64_t pn_profile_deregister_ns(const struct pn_profile *profile, unsigned n,
				  size_t npages);

/* Nanoseconds that bytes occupy the link, without latency. */
uint64_t pn_profile_link_ns(const struct pn_profile *profile, size_t bytes);

/* Nanoseconds to copy bytes. */
uint64_t pn_profile_copy_ns(const struct pn_profile *profile, size_t bytes);

/* Nanoseconds of a field given in microseconds. */
uint64_t pn_profile_field_ns(const struct pn_profile *profile,
			     enum pn_profile_field field);

#endif
