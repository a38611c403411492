/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * log -- lines on standard error for whoever runs the program.
 *
 * The place that decides an error logs it, once, with the values and what to do
 * about it; callers pass the errno on silently. The level comes from PINION_LOG
 * (config calls pn_log_set_level()). Never called on a data path or from a
 * release notification.
 * Threads: any; lines do not mix.
 */
#ifndef PN_BASE_LOG_H
#define PN_BASE_LOG_H

#include <stddef.h>

#include "base/compiler.h"

enum pn_log_level {
	PN_LOG_NONE,
	PN_LOG_ERROR,
	PN_LOG_WARN,
	PN_LOG_INFO,
	PN_LOG_DEBUG,
};

void pn_log_set_level(enum pn_log_level level);

/* Writes "pinion: LEVEL: message\n" when `level` is enabled. errno is kept. */
void pn_log(enum pn_log_level level, const char *fmt, ...) PN_PRINTF(2, 3);

/* Copies the last error that the calling thread logged, whether the level was
 * enabled or not, without "pinion: error: " and the line's end, and forgets it.
 * -ENOENT: there is none. */
int pn_log_last(char *text, size_t bytes);

#define pn_error(...) pn_log(PN_LOG_ERROR, __VA_ARGS__)
#define pn_warn(...)  pn_log(PN_LOG_WARN, __VA_ARGS__)
#define pn_info(...)  pn_log(PN_LOG_INFO, __VA_ARGS__)
#define pn_debug(...) pn_log(PN_LOG_DEBUG, __VA_ARGS__)

#endif
