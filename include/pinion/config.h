/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion/config.h -- options: which there are and which values are in force.
 *
 * Every option can be set by an environment variable (PINION_DEVICE=soft) and
 * by an attribute of pinion_open() ("device=soft"), which takes precedence. The
 * environment is read once, in pinion_open(). `pinion config` and pinion(7)
 * list all options.
 */
#ifndef PINION_CONFIG_H
#define PINION_CONFIG_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PINION_API __attribute__((visibility("default")))

struct pinion_context;

/* One option of a context. Strings other than `value` are constant. */
struct pinion_config_option {
	size_t size;	    /* sizeof(struct pinion_config_option), by you */
	const char *name;   /* "device"; the variable is PINION_DEVICE */
	const char *type;   /* "text", "bytes", "time", "number", "choice" or
			     * "yes/no" */
	const char *help;   /* one sentence */
	const char *def;    /* default value */
	const char *source; /* "default", "environment" or "attribute" */
	char value[512];    /* in force */
};

/* Fills *out, whose `size` you set, with the index-th option of the context,
 * from 0. -ENOENT: there are no more; -EINVAL: NULL, or size 0. */
PINION_API int pinion_config_query(struct pinion_context *context,
				   unsigned index,
				   struct pinion_config_option *out);

/* Fills text, at most `bytes` with the null character, with the last error that
 * a call of this thread logged (what to do about it, too), and forgets it: for
 * programs that show errors elsewhere than on standard error. It is there also
 * when PINION_LOG=none silences it. -ENOENT: none since the last time; -EINVAL:
 * NULL, or 0 bytes. */
PINION_API int pinion_log_last(char *text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
