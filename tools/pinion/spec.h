/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * spec -- the device that a command uses: from --device, else from
 * PINION_DEVICE, else the default.
 */
#ifndef PN_TOOLS_OPEN_H
#define PN_TOOLS_OPEN_H

#include <pinion/pinion.h>

#include "config/option.h"

struct pn_spec {
	char text[PN_OPTION_TEXT_BYTES];
};

/* given: value of --device, may be "". -EINVAL: an option does not parse
 * (logged). */
int pn_spec_find(struct pn_spec *spec, const char *given);

/* Returns the exit status of a command whose open failed with ret. Errors in
 * the spec and of the system were logged where they occurred; other errors are
 * printed here. */
int pn_spec_exit(const char *what, int ret);

/* Opens a context on the device with the public API; errors as pinion_open().
 */
int pn_spec_open(const struct pn_spec *spec, struct pinion_context **out);

#endif
