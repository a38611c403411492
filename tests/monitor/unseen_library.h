/* SPDX-License-Identifier: BSD-2-Clause */
#ifndef PN_TESTS_MONITOR_UNSEEN_LIBRARY_H
#define PN_TESTS_MONITOR_UNSEEN_LIBRARY_H

#define UNSEEN_BYTES (64 << 10)

__attribute__((visibility("default"))) char *unseen_memory(void);

#endif
