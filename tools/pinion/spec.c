/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/spec.h"

#include <errno.h>
#include <stdio.h>

#include "base/log.h"
#include "config/config.h"
#include "tools/pinion/command.h"

int pn_spec_find(struct pn_spec *spec, const char *given)
{
	struct pn_config config;
	int ret = pn_config_load(&config, NULL);

	if (ret)
		return ret;
	pn_log_set_level((enum pn_log_level)config.log);
	snprintf(spec->text, sizeof(spec->text), "%s",
		 *given ? given : config.device);
	return 0;
}

int pn_spec_exit(const char *what, int ret)
{
	if (ret == -EINVAL || ret == -ENODEV)
		return PN_EXIT_USAGE;
	return pn_failed(what, ret);
}

int pn_spec_open(const struct pn_spec *spec, struct pinion_context **out)
{
	char option[sizeof("device=") + PN_OPTION_TEXT_BYTES];
	const char *const options[] = { option, NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };

	snprintf(option, sizeof(option), "device=%s", spec->text);
	return pinion_open(&attr, out);
}
