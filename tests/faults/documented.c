/* SPDX-License-Identifier: BSD-2-Clause */
#include "documented.h"

#include <stddef.h>
#include <string.h>

#include "base/compiler.h"

/* What the manual pages list, written by tests/check_errnos --table. */
static const struct {
	const char *call;
	int errnos[40]; /* 0 at the end */
} documented[] = {
#include "documented_errnos.h"
};

bool errno_is_documented(const char *call, int ret)
{
	for (size_t i = 0; i < PN_ARRAY_LEN(documented); i++) {
		const int *errnos = documented[i].errnos;

		if (strcmp(documented[i].call, call))
			continue;
		while (*errnos && *errnos != -ret)
			errnos++;
		return *errnos;
	}
	return true;
}
