/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/profiles.h"

#include <string.h>

#include "base/compiler.h"

#define F(field) PN_PROFILE_##field
#define A(field) (1u << PN_PROFILE_##field)

/* Assumed in all profiles but one: costs that the papers do not give. */
#define DEREGISTER (A(DEREGISTER_US) | A(DEREGISTER_PAGE_US))
#define LINK	   (A(LINK_GBPS) | A(LATENCY_US) | A(MESSAGE_US))

static const struct pn_profile profiles[] = {
	{ .name = "none", .source = "costs nothing: for measuring the engine" },
	{ .name = "ou2009",
	  .source = "Ou, He and Han 2009, quoting Wu et al. 2003 for "
		    "user-space fast registration",
	  .value = { [F(REGISTER_US)] = 7.42,
		     [F(REGISTER_PAGE_US)] = 0.77,
		     [F(DEREGISTER_US)] = 1.1,
		     [F(DEREGISTER_PAGE_US)] = 0.22,
		     [F(LINK_GBPS)] = 0.9,
		     [F(LATENCY_US)] = 6,
		     [F(MESSAGE_US)] = 0.5,
		     [F(COMPLETION_US)] = 2,
		     [F(CROSSING_US)] = 3,
		     [F(COPY_GBPS)] = 1.5 },
	  .assumed = LINK | A(COPY_GBPS) },
	{ .name = "woodall2006",
	  .source = "fitted to Woodall et al. 2006: +67 % without reuse at 8 "
		    "MB",
	  .value = { [F(REGISTER_US)] = 30,
		     [F(REGISTER_PAGE_US)] = 1.6,
		     [F(DEREGISTER_US)] = 10,
		     [F(DEREGISTER_PAGE_US)] = 0.5,
		     [F(LINK_GBPS)] = 0.95,
		     [F(LATENCY_US)] = 5,
		     [F(MESSAGE_US)] = 1,
		     [F(COPY_GBPS)] = 1.2 },
	  .assumed = A(REGISTER_US) | A(REGISTER_PAGE_US) | DEREGISTER | LINK |
		     A(COPY_GBPS) },
	{ .name = "rashti2011",
	  .source = "fitted to Rashti and Afsahi 2011, table 2 (n at 4 and 8 "
		    "KB) and its 15 % bound at 8 KB",
	  .value = { [F(REGISTER_US)] = 55,
		     [F(REGISTER_PAGE_US)] = 1,
		     [F(DEREGISTER_US)] = 25,
		     [F(DEREGISTER_PAGE_US)] = 0.3,
		     [F(LINK_GBPS)] = 1.5,
		     [F(LATENCY_US)] = 3,
		     [F(MESSAGE_US)] = 0.3,
		     [F(LOOKUP_US)] = 0.1,
		     [F(COPY_GBPS)] = 4 },
	  .assumed = DEREGISTER | LINK },
	{ .name = "stria",
	  .source = "fitted to Levy et al. 2020, ConnectX-5 with ThunderX2",
	  .value = { [F(REGISTER_US)] = 70,
		     [F(REGISTER_PAGE_US)] = 0.47,
		     [F(DEREGISTER_US)] = 18,
		     [F(DEREGISTER_PAGE_US)] = 0.12,
		     [F(LINK_GBPS)] = 12.5,
		     [F(LATENCY_US)] = 1.5,
		     [F(MESSAGE_US)] = 0.2,
		     [F(COPY_GBPS)] = 4 },
	  .assumed = DEREGISTER | LINK | A(COPY_GBPS) },
	{ .name = "mutrino",
	  .source = "fitted to Levy et al. 2020, Aries with Haswell",
	  .value = { [F(REGISTER_US)] = 8.1,
		     [F(REGISTER_PAGE_US)] = 1.71,
		     [F(DEREGISTER_US)] = 2,
		     [F(DEREGISTER_PAGE_US)] = 0.43,
		     [F(LINK_GBPS)] = 10,
		     [F(LATENCY_US)] = 1.3,
		     [F(MESSAGE_US)] = 0.2,
		     [F(COPY_GBPS)] = 8 },
	  .assumed = DEREGISTER | LINK | A(COPY_GBPS) },
	{ .name = "cx5",
	  .source = "UCX's default estimate for registration; deregistration "
		    "at the 1 : 4 ratio that Mooncake reports",
	  .value = { [F(REGISTER_US)] = 16,
		     [F(REGISTER_PAGE_US)] = 0.25,
		     [F(DEREGISTER_US)] = 8,
		     [F(DEREGISTER_PAGE_US)] = 0.06,
		     [F(LINK_GBPS)] = 12.5,
		     [F(LATENCY_US)] = 1,
		     [F(MESSAGE_US)] = 0.1,
		     [F(COPY_GBPS)] = 10 },
	  .assumed =
		  DEREGISTER | A(LATENCY_US) | A(MESSAGE_US) | A(COPY_GBPS) },
	{ .name = "h200",
	  .source =
		  "measured on one NVIDIA H200, PCIe 5, driver 580; fitted to "
		  "no paper",
	  .value = { [F(REGISTER_US)] = 50,
		     [F(REGISTER_PAGE_US)] = 0.16,
		     [F(DEREGISTER_US)] = 31,
		     [F(DEREGISTER_PAGE_US)] = 0.067,
		     [F(LINK_GBPS)] = 55.4,
		     [F(LATENCY_US)] = 8.5,
		     [F(MESSAGE_US)] = 2,
		     [F(COPY_GBPS)] = 7 },
	  .assumed = A(MESSAGE_US),
	  .unbatched = true },
};

const struct pn_profile *pn_profile_at(unsigned index)
{
	return index < PN_ARRAY_LEN(profiles) ? &profiles[index] : NULL;
}

const struct pn_profile *pn_profile_find(const char *name)
{
	for (size_t i = 0; i < PN_ARRAY_LEN(profiles); i++)
		if (!strcmp(profiles[i].name, name))
			return &profiles[i];
	return NULL;
}

const char *pn_profile_field_name(enum pn_profile_field field)
{
	static const char *const names[] = {
		[F(REGISTER_US)] = "register_us",
		[F(REGISTER_PAGE_US)] = "register_page_us",
		[F(DEREGISTER_US)] = "deregister_us",
		[F(DEREGISTER_PAGE_US)] = "deregister_page_us",
		[F(LINK_GBPS)] = "link_gigabytes_per_s",
		[F(LATENCY_US)] = "latency_us",
		[F(MESSAGE_US)] = "message_cpu_us",
		[F(COMPLETION_US)] = "completion_entry_us",
		[F(CROSSING_US)] = "kernel_crossing_us",
		[F(LOOKUP_US)] = "lookup_us",
		[F(COPY_GBPS)] = "copy_gigabytes_per_s",
	};

	return names[field];
}

static uint64_t line_ns(double fixed_us, double page_us, size_t npages)
{
	return (uint64_t)(1e3 * (fixed_us + page_us * (double)npages) + 0.5);
}

uint64_t pn_profile_register_ns(const struct pn_profile *profile, size_t npages)
{
	return line_ns(profile->value[F(REGISTER_US)],
		       profile->value[F(REGISTER_PAGE_US)], npages);
}

uint64_t pn_profile_deregister_ns(const struct pn_profile *profile, unsigned n,
				  size_t npages)
{
	return line_ns(profile->value[F(DEREGISTER_US)] *
			       (profile->unbatched ? n : 1),
		       profile->value[F(DEREGISTER_PAGE_US)], npages);
}

/* One gigabyte per second is one byte per nanosecond. */
static uint64_t stream_ns(double gigabytes_per_s, size_t bytes)
{
	return gigabytes_per_s > 0
		       ? (uint64_t)((double)bytes / gigabytes_per_s + 0.5)
		       : 0;
}

uint64_t pn_profile_link_ns(const struct pn_profile *profile, size_t bytes)
{
	return stream_ns(profile->value[F(LINK_GBPS)], bytes);
}

uint64_t pn_profile_copy_ns(const struct pn_profile *profile, size_t bytes)
{
	return stream_ns(profile->value[F(COPY_GBPS)], bytes);
}

uint64_t pn_profile_field_ns(const struct pn_profile *profile,
			     enum pn_profile_field field)
{
	return (uint64_t)(1e3 * profile->value[field] + 0.5);
}
