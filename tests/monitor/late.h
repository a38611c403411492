/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PN_TESTS_MONITOR_LATE_H
#define PN_TESTS_MONITOR_LATE_H

#include <sys/mman.h>

#include "recorder.h"

#define LATE_EXPORT __attribute__((visibility("default")))

LATE_EXPORT void late_report(struct pn_monitor_report *out);
LATE_EXPORT unsigned late_count_told(void);

#endif
