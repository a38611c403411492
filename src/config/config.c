/* SPDX-License-Identifier: BSD-2-Clause */
#include "config/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/log.h"

static const char *const log_levels[] = { "none", "error", "warn",
					  "info", "debug", NULL };
static const char *const huge_choices[] = { "never", "transparent", "reserved",
					    NULL };
/* In the order of enum pn_monitor_mode. */
static const char *const monitor_modes[] = { "auto", "patch", "userfaultfd",
					     "keep", "none",  "bypass",
					     NULL };

/* As cache/policy/policy.h lists them; a test compares. */
static const char *const policies[] = { "lru",	"fmrd", "mre", "greedy",
					"keep", "cost", NULL };

/* As message/protocol/protocol.h numbers them; a test compares. */
static const char *const protocols[] = { "eager",    "copy",
					 "demand",   "cached",
					 "pipeline", "caching-pipeline",
					 "read",     "overlapped",
					 "auto",     NULL };

/* As message/protocol/reuse.h numbers them. */
static const char *const reuse_modes[] = { "auto", "off", "on", NULL };

/* The libfabric provider reads this option from the environment. */
static const char *const rma_choices[] = { "auto", "device", "request", NULL };

/* As helper/share.h numbers them; a test compares. */
static const char *const helper_choices[] = { "off",	      "own",
					      "auto",	      "aggressive",
					      "conservative", NULL };

/* In the order of enum pn_config_progress. */
static const char *const progress_choices[] = { "caller", "thread", "auto",
						NULL };

static const char *const windows_choices[] = { "auto", "yes", "no", NULL };

/* As helper/site.h numbers them; a test compares. */
static const char *const predictors[] = { "learned", "shortest", "periodic",
					  NULL };

#define FIELD(name) offsetof(struct pn_config, name)

static const struct pn_option table[] = {
	{ "device", PN_OPTION_TEXT, "soft",
	  "the adapter to use, as a device spec (pinion info lists them); "
	  "several joined by + are the rails that messages use together, "
	  "joined by / each peer is reached over the first that can",
	  FIELD(device), 0, 0, NULL },
	{ "log", PN_OPTION_CHOICE, "warn",
	  "what is written to standard error: messages up to this level",
	  FIELD(log), 0, 0, log_levels },
	{ "huge_pages", PN_OPTION_CHOICE, "transparent",
	  "pages behind the memory that pinion itself maps", FIELD(huge_pages),
	  0, 0, huge_choices },
	{ "numa_node", PN_OPTION_NUMBER, "1024",
	  "preferred NUMA node of the memory that pinion itself maps "
	  "(1024: wherever the kernel likes)",
	  FIELD(numa_node), 0, PN_CONFIG_ANY_NODE, NULL },
	{ "monitor", PN_OPTION_CHOICE, "auto",
	  "how the release of registered memory is noticed; bypass: not at "
	  "all, and nothing stays registered between uses; none: not at all, "
	  "and memory stays registered all the same (environment only: it is "
	  "read when the library is loaded)",
	  FIELD(monitor), 0, 0, monitor_modes },
	{ "trace", PN_OPTION_TEXT, "",
	  "record every request into this file, for `pinion trace` (%p stands "
	  "for the process id, %r for the rank of a parallel program; empty: "
	  "no recording)",
	  FIELD(trace), 0, 0, NULL },
	{ "trace_max_bytes", PN_OPTION_BYTES, "1G",
	  "how long that file may become; what comes then is only counted",
	  FIELD(trace_max_bytes), 128 << 10, 0, NULL },
	{ "max_bytes", PN_OPTION_BYTES, "0",
	  "the context's budget: how much memory it may have pinned at a time "
	  "(0: what the process may)",
	  FIELD(max_bytes), 0, 0, NULL },
	{ "max_regions", PN_OPTION_NUMBER, "0",
	  "the context's budget: how many registrations there may be at a time "
	  "(0: as many as the device allows)",
	  FIELD(max_regions), 0, 0, NULL },
	{ "process_max_bytes", PN_OPTION_BYTES, "0",
	  "the process's budget: how much memory all its contexts together may "
	  "have pinned at a time (0: derived from RLIMIT_MEMLOCK, the cgroup, "
	  "the machine and the devices; a larger max_bytes raises it up to the "
	  "device's limit); of several contexts' the smallest holds",
	  FIELD(process_max_bytes), 0, 0, NULL },
	{ "local_processes", PN_OPTION_NUMBER, "0",
	  "processes of this job on this machine, among which the derived "
	  "budget is divided (0: as the MPI launcher says, else 1)",
	  FIELD(local_processes), 0, 1 << 20, NULL },
	{ "cache_policy", PN_OPTION_CHOICE, "cost",
	  "which cached regions are given up when room is needed",
	  FIELD(cache_policy), 0, 0, policies },
	{ "cache_max_region", PN_OPTION_BYTES, "256M",
	  "longer buffers are registered in pieces of this size",
	  FIELD(cache_max_region), 4096, UINT64_C(1) << 40, NULL },
	{ "cache_merge", PN_OPTION_BOOL, "yes",
	  "merge regions that are neighbours in one mapping",
	  FIELD(cache_merge), 0, 0, NULL },
	{ "cache_batch", PN_OPTION_NUMBER, "32",
	  "how many deregistrations are collected for one batch",
	  FIELD(cache_batch), 1, 256, NULL },
	{ "cache_batch_bytes", PN_OPTION_BYTES, "64M",
	  "how many bytes may wait to be deregistered",
	  FIELD(cache_batch_bytes), 1, 0, NULL },
	{ "cache_batch_age", PN_OPTION_TIME, "10ms",
	  "how long a deregistration may wait for others to join it",
	  FIELD(cache_batch_age), 1, 0, NULL },
	{ "heap_slab", PN_OPTION_BYTES, "1M",
	  "what a heap takes from the system and registers at a time",
	  FIELD(heap_slab), 1 << 20, UINT64_C(1) << 40, NULL },
	{ "heap_return", PN_OPTION_TIME, "1s",
	  "how long a heap keeps a slab whose blocks are all freed",
	  FIELD(heap_return), 1, 0, NULL },
	{ "protocol", PN_OPTION_CHOICE, "auto",
	  "how messages longer than eager_limit move; auto: each by what costs "
	  "least",
	  FIELD(protocol), 0, 0, protocols },
	{ "eager_limit", PN_OPTION_BYTES, "16K",
	  "messages up to this size go at once, copied at both ends (at most "
	  "what the device sends in one packet)",
	  FIELD(eager_limit), 0, 0, NULL },
	{ "reuse", PN_OPTION_CHOICE, "auto",
	  "whether messages up to eager_limit, and puts and gets of that size, "
	  "go straight from buffers that are used often; auto: where the "
	  "device's costs say that it pays; on: everywhere",
	  FIELD(reuse), 0, 0, reuse_modes },
	{ "reuse_share", PN_OPTION_NUMBER, "25",
	  "at how much of the number of uses that pay for it, in percent, a "
	  "small buffer is registered",
	  FIELD(reuse_share), 1, 100, NULL },
	{ "reuse_min", PN_OPTION_BYTES, "128",
	  "what is shorter is always copied", FIELD(reuse_min), 1, 0, NULL },
	{ "match_bytes", PN_OPTION_BYTES, "4K",
	  "how much of a longer message goes with its first packet",
	  FIELD(match_bytes), 0, 0, NULL },
	{ "rdma_offset", PN_OPTION_BYTES, "256K",
	  "pipelines: how much of a message is copied to cover the first "
	  "registrations",
	  FIELD(rdma_offset), 0, 0, NULL },
	{ "fragment", PN_OPTION_BYTES, "0",
	  "pipeline: size of a fragment (0: by the device's costs)",
	  FIELD(fragment), 0, UINT64_C(1) << 40, NULL },
	{ "segment", PN_OPTION_BYTES, "0",
	  "caching pipeline, read: size of a fragment, whose ends are its "
	  "multiples; a power of two (0: by the device's costs)",
	  FIELD(segment), 0, UINT64_C(1) << 40, NULL },
	{ "depth", PN_OPTION_NUMBER, "4",
	  "pipelines: how many fragments of a message are registered at a time",
	  FIELD(depth), 1, 64, NULL },
	{ "unexpected_limit", PN_OPTION_BYTES, "16M",
	  "how much this endpoint may have with a peer that keeps it for "
	  "receives to come: data that was sent with the first packet of a "
	  "message, and 192 bytes for each; beyond that a send waits for its "
	  "receive (0: no limit)",
	  FIELD(unexpected_limit), 0, 0, NULL },
	{ "rail_timeout", PN_OPTION_TIME, "30s",
	  "several rails: a peer that has lost its last connection, while "
	  "others are not up yet, is down unless one comes up within this time",
	  FIELD(rail_timeout), PN_NS_PER_MS, UINT64_MAX / 4, NULL },
	{ "progress", PN_OPTION_CHOICE, "caller",
	  "who moves messages on: caller, calls on the endpoint alone; thread, "
	  "also a thread of the process that sleeps until something arrives, "
	  "so "
	  "that transfers go on while the program computes; auto, the thread "
	  "if there is a core for it",
	  FIELD(progress), 0, 0, progress_choices },
	{ "rma", PN_OPTION_CHOICE, "auto",
	  "libfabric's RMA on a region of a peer: request, the peer's progress "
	  "moves the bytes; device, the device does where it can; auto, the "
	  "device does once so much was moved that it pays to pin the region",
	  FIELD(rma), 0, 0, rma_choices },
	{ "helper", PN_OPTION_CHOICE, "off",
	  "whether a thread beside the program deregisters the buffers of long "
	  "messages after each use and registers them again before the next: "
	  "off, own (always); by agreement with the other processes of this "
	  "user on the machine: conservative (if there is an idle core for it, "
	  "the largest registrants first), aggressive (if there is one at all, "
	  "taking turns), auto (chooses)",
	  FIELD(helper), 0, 0, helper_choices },
	{ "helper_threshold", PN_OPTION_BYTES, "16K",
	  "shorter messages are not the helper's business",
	  FIELD(helper_threshold), 1, 0, NULL },
	{ "helper_window", PN_OPTION_NUMBER, "2",
	  "how many messages before a message tell the helper where in its "
	  "rhythm the program is",
	  FIELD(helper_window), 0, 8, NULL },
	{ "helper_predictor", PN_OPTION_CHOICE, "learned",
	  "how the helper foretells the next use of a buffer",
	  FIELD(helper_predictor), 0, 0, predictors },
	{ "helper_patience", PN_OPTION_NUMBER, "2500",
	  "learned: holding a buffer for so many times what registering it "
	  "takes is as bad as registering it late once",
	  FIELD(helper_patience), 1, 1000000000, NULL },
	{ "cuda_keep", PN_OPTION_BOOL, "no",
	  "on a GPU: keep memory of the program registered between uses; only "
	  "where every copy of the process goes through pinion, since CUDA "
	  "finds registrations by address in every copy",
	  FIELD(cuda_keep), 0, 0, NULL },
	{ "keep_remote", PN_OPTION_BOOL, "no",
	  "under unmodified programs (pinion run): keep memory registered that "
	  "peers may access, too; a key that the program has given up then "
	  "works for peers until the memory is deregistered",
	  FIELD(keep_remote), 0, 0, NULL },
	{ "keep_windows", PN_OPTION_CHOICE, "auto",
	  "under unmodified verbs programs (pinion run), where the adapter has "
	  "memory windows of type 1: keep memory registered that peers may "
	  "access, and give the program keys of windows, which end when it "
	  "gives them up: auto, for buffers that come again and where that is "
	  "faster; yes, always; no, never",
	  FIELD(keep_windows), 0, 0, windows_choices },
};

_Static_assert(PN_ARRAY_LEN(table) <= PN_CONFIG_MAX_OPTIONS,
	       "raise PN_CONFIG_MAX_OPTIONS");

static const char prefix[] = "PINION_";

const struct pn_option *pn_config_table(size_t *n)
{
	*n = PN_ARRAY_LEN(table);
	return table;
}

const char *pn_config_source_name(enum pn_config_source source)
{
	static const char *const names[] = { "default", "environment",
					     "attribute" };

	return names[source];
}

static int set(struct pn_config *config, const struct pn_option *option,
	       const char *value, enum pn_config_source source)
{
	struct pn_why why = { "" };
	int ret = pn_option_parse(option, value, config, &why);

	if (ret) {
		pn_error("%s from the %s: %s", option->name,
			 pn_config_source_name(source), why.text);
		return ret;
	}
	config->source[option - table] = source;
	return 0;
}

/* The option that a variable "PINION_SOME_NAME=..." sets, or NULL. */
static const struct pn_option *find_variable(const char *variable)
{
	char name[64];
	size_t len = 0;

	for (const char *c = variable + strlen(prefix); *c && *c != '='; c++) {
		if (len == sizeof(name) || islower((unsigned char)*c))
			return NULL;
		name[len++] = (char)tolower((unsigned char)*c);
	}
	return pn_option_find(table, PN_ARRAY_LEN(table), name, len);
}

static int load_environment(struct pn_config *config)
{
	/* A user who starts a program that has more rights (set-user-ID, file
	 * capabilities) may not tell it, for example, which file to write. */
	if (getauxval(AT_SECURE))
		return 0;
	for (char **e = environ; e && *e; e++) {
		const struct pn_option *option;
		const char *value = strchr(*e, '=');
		int ret;

		if (!value || strncmp(*e, prefix, strlen(prefix)))
			continue;
		option = find_variable(*e);
		if (!option) {
			pn_warn("%.*s is no option and has no effect; "
				"`pinion config` lists those there are",
				(int)(value - *e), *e);
			continue;
		}
		ret = set(config, option, value + 1, PN_CONFIG_ENVIRONMENT);
		if (ret)
			return ret;
	}
	return 0;
}

static int load_attribute(struct pn_config *config, const char *attribute)
{
	const char *value = strchr(attribute, '=');
	size_t len = value ? (size_t)(value - attribute) : strlen(attribute);
	const struct pn_option *option =
		pn_option_find(table, PN_ARRAY_LEN(table), attribute, len);

	if (!option || !value) {
		pn_error("attribute '%.64s': give NAME=VALUE with a name that "
			 "`pinion config` lists",
			 attribute);
		return -EINVAL;
	}
	if (option->offset == FIELD(monitor)) {
		pn_error("monitor: only the environment sets it, since it is "
			 "read when the library is loaded: PINION_MONITOR%s",
			 value);
		return -EINVAL;
	}
	return set(config, option, value + 1, PN_CONFIG_ATTRIBUTE);
}

int pn_config_load(struct pn_config *config, const char *const *attributes)
{
	struct pn_config loaded = { 0 };
	int ret;

	pn_options_defaults(table, PN_ARRAY_LEN(table), &loaded);
	ret = load_environment(&loaded);
	for (; !ret && attributes && *attributes; attributes++)
		ret = load_attribute(&loaded, *attributes);
	if (!ret)
		*config = loaded;
	return ret;
}
