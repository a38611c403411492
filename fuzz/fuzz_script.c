/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_script -- fault scripts of the simulator (device/sim/script.h).
 *
 * The input is appended to a valid script. If it is refused, the script is
 * unchanged and there is a reason. If it is accepted, every fault is one that
 * the simulator knows, and parsing the same text again adds the same faults
 * again.
 */
#include "fuzz.h"

#include <errno.h>
#include <stdbool.h>

#include "device/sim/script.h"

static const char before[] = "drop peer 2 at 1 ms\n";

static bool same(const struct pn_fault *a, const struct pn_fault *b)
{
	return a->kind == b->kind && a->error == b->error &&
	       a->number == b->number && a->node == b->node &&
	       a->time_ns == b->time_ns && a->bytes == b->bytes;
}

static void check_fault(const struct pn_fault *fault)
{
	switch (fault->kind) {
	case PN_FAULT_FAIL_REGISTRATION:
	case PN_FAULT_FAIL_EVERY:
		FUZZ_ASSERT(fault->error < 0);
		FUZZ_ASSERT(fault->number > 0);
		return;
	case PN_FAULT_DELAY_REGISTRATION:
	case PN_FAULT_DELAY_MESSAGE:
		FUZZ_ASSERT(fault->number > 0);
		return;
	case PN_FAULT_PORT_FAIL_AFTER:
		FUZZ_ASSERT(fault->number > 0);
		FUZZ_ASSERT(fault->node != PN_FAULT_ANY_NODE);
		return;
	case PN_FAULT_NODE_DIE:
	case PN_FAULT_PORT_FAIL:
	case PN_FAULT_LIMIT:
		FUZZ_ASSERT(fault->node != PN_FAULT_ANY_NODE);
		return;
	case PN_FAULT_DELAY_ALL:
		return;
	}
	FUZZ_ASSERT(!"a known kind");
}

/* Queries must be safe for every accepted script. */
static void ask(const struct pn_script *script)
{
	for (uint64_t n = 1; n < 12; n++) {
		uint64_t delay_ns = 0;
		int ret = pn_script_registration(script, n % 3, n, n / 2 + 1,
						 &delay_ns);

		FUZZ_ASSERT(ret <= 0);
		(void)pn_script_message_ns(script, n % 3, n, n / 2 + 1);
		(void)pn_script_port_fails(script, n % 3, n % 2, n);
	}
}

static void try_text(const char *text, size_t len, struct pn_script *script)
{
	struct pn_why why = { "" };
	size_t n = script->n;
	int ret = pn_script_parse(text, len, script, &why);

	if (ret) {
		FUZZ_ASSERT(ret == -EINVAL && why.text[0]);
		FUZZ_ASSERT(script->n == n);
		return;
	}
	for (size_t i = 0; i < script->n; i++)
		check_fault(&script->faults[i]);
	ask(script);
	n = script->n - n;
	FUZZ_ASSERT(!pn_script_parse(text, len, script, &why));
	FUZZ_ASSERT(script->n == 1 + 2 * n);
	for (size_t i = 1; i <= n; i++)
		FUZZ_ASSERT(same(&script->faults[i], &script->faults[i + n]));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* Not terminated by NUL: the parser gets a length. */
	char *text = malloc(size ? size : 1);
	struct pn_script script = { 0 };

	FUZZ_ASSERT(text);
	if (size)
		memcpy(text, data, size);
	FUZZ_ASSERT(!pn_script_parse(before, strlen(before), &script, NULL));
	FUZZ_ASSERT(script.n == 1);
	try_text(text, size, &script);
	FUZZ_ASSERT(script.faults[0].kind == PN_FAULT_NODE_DIE &&
		    script.faults[0].node == 2 &&
		    script.faults[0].time_ns == 1000000);
	pn_script_free(&script);
	free(text);
	return 0;
}
