/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_rma_request -- parses RMA requests of peers, and the keys of regions
 * that they send (provider/onesided.h).
 *
 * The parser never reads outside the message. The operands of an accepted
 * atomic, and the values to compare with, lie inside of it, and running the
 * atomic changes only its bytes. A valid key lies in the message that brought
 * it.
 */
#include "fuzz.h"

#include "provider/onesided.h"

#define MARGIN 64

static void check_atomic(const struct pn_fi_rma_request *request,
			 const uint8_t *payload)
{
	static _Alignas(64) uint8_t memory[PN_FI_ATOMIC_BYTES + MARGIN];
	uint8_t before[PN_FI_ATOMIC_BYTES];
	struct pn_fi_atomic_args r = {
		.type = request->type,
		.op = request->op,
		.at = memory,
		.bytes = request->len,
		.operand = request->op == FI_ATOMIC_READ ? NULL : payload,
		.compare = request->kind == PN_FI_COMPARE
				   ? payload + request->len
				   : NULL,
		.before = before,
	};

	FUZZ_ASSERT(request->len <= PN_FI_ATOMIC_BYTES);
	memset(memory, 0, sizeof(memory));
	pn_fi_atomic_run(&r);
	for (size_t i = 0; i < request->len; i++)
		FUZZ_ASSERT(!before[i]);
	for (size_t i = 0; i < MARGIN; i++)
		FUZZ_ASSERT(!memory[request->len + i]);
}

static void check_key(const uint8_t *data, size_t size)
{
	struct pn_fi_region_key key = { 0 };

	memcpy(&key, data, size < sizeof(key) ? size : sizeof(key));
	if (!pn_fi_region_key_valid(&key, size))
		return;
	FUZZ_ASSERT(size <= sizeof(key));
	FUZZ_ASSERT(key.exposure.len <= sizeof(key.exposure.data));
	FUZZ_ASSERT(key.base + key.len >= key.base);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Exactly its size, so that a read past it is noticed. */
	uint8_t *exact = malloc(size ? size : 1);
	struct pn_fi_rma_request request;
	const uint8_t *payload;

	if (!exact)
		return 0;
	if (size)
		memcpy(exact, data, size);
	check_key(exact, size);
	if (!pn_fi_rma_request_parse(exact, size, &request, &payload)) {
		size_t list = pn_fi_rma_request_segments(&request);

		FUZZ_ASSERT(size ==
			    sizeof(request) + list +
				    pn_fi_rma_request_payload(&request));
		FUZZ_ASSERT(payload == exact + sizeof(request) + list);
		if (pn_fi_is_atomic(request.kind))
			check_atomic(&request, payload);
	}
	free(exact);
	return 0;
}
