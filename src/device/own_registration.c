/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/own_registration.h"

static _Thread_local unsigned depth;

void pn_own_registration_begin(void)
{
	depth++;
}

void pn_own_registration_end(void)
{
	depth--;
}

bool pn_own_registration(void)
{
	return depth;
}
