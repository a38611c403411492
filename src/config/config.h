/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * config -- the library's options, their values and where these came from.
 *
 * The table in config.c is the only list of options: the environment
 * (PINION_<NAME>), the attributes of pinion_open(), `pinion config` and
 * pinion(7) are all made from it. A pn_config is filled once, in
 * pinion_open(): defaults, then the environment, then explicit attributes, each
 * overriding the one before. It does not change afterwards.
 * Threads: read-only after pn_config_load().
 */
#ifndef PN_CONFIG_CONFIG_H
#define PN_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/option.h"

enum pn_config_source {
	PN_CONFIG_DEFAULT,
	PN_CONFIG_ENVIRONMENT,
	PN_CONFIG_ATTRIBUTE,
};

/* Who makes progress: the option `progress`. */
enum pn_config_progress {
	PN_CONFIG_PROGRESS_CALLER,
	PN_CONFIG_PROGRESS_THREAD,
	PN_CONFIG_PROGRESS_AUTO,
};

#define PN_CONFIG_MAX_OPTIONS 64

struct pn_config {
	char device[PN_OPTION_TEXT_BYTES];
	int log;	    /* enum pn_log_level */
	int huge_pages;	    /* enum pn_pages_huge */
	uint64_t numa_node; /* PN_CONFIG_ANY_NODE: no preference */
	int monitor;	    /* enum pn_monitor_mode */
	char trace[PN_OPTION_TEXT_BYTES];
	uint64_t trace_max_bytes;
	uint64_t max_bytes, max_regions; /* 0: no cap */
	uint64_t process_max_bytes;	 /* 0: derived */
	uint64_t local_processes;	 /* 0: found out */
	int cache_policy;		 /* index of pn_policy_at() */
	uint64_t cache_max_region;
	bool cache_merge;
	uint64_t cache_batch, cache_batch_bytes;
	uint64_t cache_batch_age;	 /* ns */
	uint64_t heap_slab, heap_return; /* bytes, ns */
	int protocol;			 /* enum pn_protocol_id */
	uint64_t eager_limit, match_bytes, rdma_offset;
	int reuse; /* enum pn_reuse_mode */
	uint64_t reuse_share, reuse_min;
	uint64_t fragment, segment; /* 0: by costs */
	uint64_t depth;
	uint64_t rail_timeout;	   /* ns */
	uint64_t unexpected_limit; /* bytes; 0: none */
	int progress;		   /* enum pn_config_progress */
	int rma;		   /* index of rma_choices */
	int helper;		   /* enum pn_share_policy */
	int helper_predictor;	   /* enum pn_predictor */
	uint64_t helper_threshold, helper_window, helper_patience;
	bool cuda_keep, keep_remote;
	int keep_windows;		       /* index of windows_choices */
	uint8_t source[PN_CONFIG_MAX_OPTIONS]; /* enum pn_config_source */
};

#define PN_CONFIG_ANY_NODE UINT64_C(1024)

/* The table of options. */
const struct pn_option *pn_config_table(size_t *n);

/* Fills config from defaults, environ and `attributes` ("name=value" strings,
 * NULL at the end; may be NULL). -EINVAL: a value does not parse or the name of
 * an attribute is unknown; logged with what is allowed. An unknown PINION_
 * variable is only warned about. */
int pn_config_load(struct pn_config *config, const char *const *attributes);

/* "default", "environment", "attribute". */
const char *pn_config_source_name(enum pn_config_source source);

#endif
