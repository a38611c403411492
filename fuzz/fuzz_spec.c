/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_spec -- device specs (KIND or KIND:PARAMETERS).
 *
 * The parameters are parsed with the table of the kind, into a struct of
 * exactly the size that the table covers, so that the address sanitizer detects
 * a row that writes past its field. pn_device_open() is called only for specs
 * that must be refused, so that no input opens a device.
 */
#include "fuzz.h"

#include <errno.h>

#include "base/log.h"
#include "device/device.h"

static size_t value_bytes(const struct pn_option *option)
{
	switch (option->type) {
	case PN_OPTION_BOOL:
		return sizeof(bool);
	case PN_OPTION_NUMBER:
	case PN_OPTION_BYTES:
	case PN_OPTION_TIME:
		return sizeof(uint64_t);
	case PN_OPTION_CHOICE:
		return sizeof(int);
	case PN_OPTION_TEXT:
		return PN_OPTION_TEXT_BYTES;
	}
	return 0;
}

/* The bytes of the struct that a table describes; at least 1. */
static size_t table_bytes(const struct pn_option *table, size_t n)
{
	size_t bytes = 1;

	for (size_t i = 0; i < n; i++) {
		size_t end = table[i].offset + value_bytes(&table[i]);

		if (end > bytes)
			bytes = end;
	}
	return bytes;
}

static const struct pn_device_ops *kind_of(const char *spec)
{
	size_t len = strcspn(spec, ":");
	const struct pn_device_ops *ops;

	for (unsigned i = 0; (ops = pn_device_kind(i)); i++)
		if (strlen(ops->kind) == len && !memcmp(ops->kind, spec, len))
			return ops;
	return NULL;
}

/* Parses the parameters with the table of the kind. */
static int parse(const struct pn_device_ops *ops, const char *params)
{
	struct pn_why why = { "" };
	void *values = calloc(1, table_bytes(ops->params, ops->nparams));
	int ret;

	FUZZ_ASSERT(values);
	pn_options_defaults(ops->params, ops->nparams, values);
	ret = pn_options_parse_list(ops->params, ops->nparams, params, values,
				    &why);
	FUZZ_ASSERT(!ret || (ret == -EINVAL && why.text[0]));
	free(values);
	return ret;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *spec = fuzz_string(data, size);
	const struct pn_device_ops *ops = kind_of(spec);
	struct pn_device *device = NULL;
	size_t len = strcspn(spec, ":");

	pn_log_set_level(PN_LOG_NONE);
	if (!ops)
		FUZZ_ASSERT(pn_device_open(spec, NULL, &device) == -ENODEV);
	else if (parse(ops, spec[len] ? spec + len + 1 : ""))
		FUZZ_ASSERT(pn_device_open(spec, NULL, &device) < 0);
	FUZZ_ASSERT(!device);
	free(spec);
	return 0;
}
