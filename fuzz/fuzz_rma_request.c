/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_rma_request -- what peers ask the target of RMA and atomics to do
 * (fabric/onesided.h).
 *
 * Parsing never reads outside the message; of an atomic that is accepted the
 * operands and what to compare with lie inside, and running it changes exactly
 * its bytes.
 */
#include "fuzz.h"

#include "fabric/onesided.h"

#define MARGIN 64

static void check_atomic(const struct pn_fi_rma_request *e,
			 const uint8_t *payload)
{
	static _Alignas(64) uint8_t memory[PN_FI_ATOMIC_BYTES + MARGIN];
	uint8_t before[PN_FI_ATOMIC_BYTES];
	struct pn_fi_atomic_args r = {
		.type = e->type,
		.op = e->op,
		.at = memory,
		.bytes = e->len,
		.operand = e->op == FI_ATOMIC_READ ? NULL : payload,
		.compare = e->kind == PN_FI_COMPARE ? payload + e->len : NULL,
		.before = before,
	};

	FUZZ_ASSERT(e->len <= PN_FI_ATOMIC_BYTES);
	memset(memory, 0, sizeof(memory));
	pn_fi_atomic_run(&r);
	for (size_t i = 0; i < e->len; i++)
		FUZZ_ASSERT(!before[i]);
	for (size_t i = 0; i < MARGIN; i++)
		FUZZ_ASSERT(!memory[e->len + i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Exactly its size, so that a read past it is noticed. */
	uint8_t *exact = malloc(size ? size : 1);
	struct pn_fi_rma_request e;
	const uint8_t *payload;

	if (!exact)
		return 0;
	if (size)
		memcpy(exact, data, size);
	if (!pn_fi_rma_request_parse(exact, size, &e, &payload)) {
		FUZZ_ASSERT(size == sizeof(e) + pn_fi_rma_request_payload(&e));
		FUZZ_ASSERT(payload == exact + sizeof(e));
		if (e.kind >= PN_FI_UPDATE)
			check_atomic(&e, payload);
	}
	free(exact);
	return 0;
}
