/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * open -- the device that a command works on: the one its --device names, else
 * the one that PINION_DEVICE names, else the default.
 */
#ifndef PN_TOOLS_OPEN_H
#define PN_TOOLS_OPEN_H

#include <pinion/pinion.h>

#include "config/option.h"

struct pn_spec {
	char text[PN_OPTION_TEXT_BYTES];
};

/* given: from --device, may be "". -EINVAL: an option does not parse
 * (logged). */
int pn_spec_find(struct pn_spec *spec, const char *given);

/* What a command exits with after opening failed with ret. What is wrong with
 * the spec or the system was logged where it was found; the rest is said here.
 */
int pn_spec_exit(const char *what, int ret);

/* A context on it, as any program would open it; errors as pinion_open(). */
int pn_spec_open(const struct pn_spec *spec, struct pinion_context **out);

#endif
