/* SPDX-License-Identifier: BSD-2-Clause */
/* documented -- the errors that the manual page of a public call lists. */
#ifndef PN_TESTS_FAULTS_DOCUMENTED_H
#define PN_TESTS_FAULTS_DOCUMENTED_H

#include <stdbool.h>

/* ret is a negative errno. Calls without a page (of the system, of the test)
 * may return anything. */
bool errno_is_documented(const char *call, int ret);

#endif
