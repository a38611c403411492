/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_verbs -- untrusted input of a verbs device: the hello in the private
 * data of a connection request, and address blobs. Each is refused or complete.
 */
#include "fuzz.h"

#include <errno.h>

#include "device/verbs/connect.h"

static void check_hello(const uint8_t *data, size_t size)
{
	struct pn_verbs_hello hello = { 0 };
	int ret = pn_verbs_hello_check(data, size, 42, &hello);

	FUZZ_ASSERT(ret <= 0);
	FUZZ_ASSERT(ret || (hello.magic == PN_VERBS_MAGIC && hello.to == 42 &&
			    hello.from.version == PN_VERBS_VERSION &&
			    hello.from.port));
}

static void check_address(const uint8_t *data, size_t size)
{
	struct pn_address blob = { .len = (uint32_t)size };
	struct pn_verbs_address address;
	struct pn_address again;

	if (size > sizeof(blob.data))
		return;
	memcpy(blob.data, data, size);
	if (pn_verbs_address_check(&blob, &address))
		return;
	pn_verbs_address_put(&address, &again);
	FUZZ_ASSERT(again.len == size && !memcmp(again.data, data, size));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	check_hello(data, size);
	check_address(data, size);
	return 0;
}
