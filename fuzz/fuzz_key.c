/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_key -- keys of exposed memory (message/wire.h), which arrive over
 * untrusted channels.
 *
 * The input is parsed as it is and, without its first byte, as the header and
 * keys of a correctly packed blob, so that arbitrary numbers pass the check
 * value. Parsing never reads outside a blob; an accepted key covers exactly its
 * length, does not wrap around, and packs to the same bytes again.
 */
#include "fuzz.h"

#include <errno.h>

#include "message/connection/wire.h"

static void check_accepted(const struct pn_key_head *head,
			   const struct pn_wire_key *keys, const uint8_t *data,
			   size_t size)
{
	uint8_t again[PN_KEY_BYTES(PN_KEY_MAX)];
	struct pn_key_head copy = *head;
	uint64_t sum = 0;

	FUZZ_ASSERT(head->nkeys && head->nkeys <= PN_KEY_MAX);
	for (unsigned i = 0; i < head->nkeys; i++) {
		FUZZ_ASSERT(keys[i].len);
		FUZZ_ASSERT(keys[i].addr + keys[i].len >= keys[i].addr);
		sum += keys[i].len;
	}
	FUZZ_ASSERT(sum == head->len);
	FUZZ_ASSERT(pn_key_pack(&copy, keys, again) == size);
	FUZZ_ASSERT(!memcmp(again, data, size));
}

/* Memory of exactly the blob's size, so that a read past its end is detected.
 */
static void check_parse(const uint8_t *data, size_t size)
{
	uint8_t *exact = malloc(size ? size : 1);
	struct pn_wire_key keys[PN_KEY_MAX];
	struct pn_key_head head;
	int ret;

	FUZZ_ASSERT(exact);
	if (size)
		memcpy(exact, data, size);
	ret = pn_key_parse(exact, size, &head, keys);
	FUZZ_ASSERT(!ret || ret == -EINVAL || ret == -EPROTONOSUPPORT);
	if (!ret)
		check_accepted(&head, keys, exact, size);
	free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pn_wire_key keys[PN_KEY_MAX] = { 0 };
	uint8_t blob[PN_KEY_BYTES(PN_KEY_MAX)];
	struct pn_key_head head = { 0 };
	size_t n;

	check_parse(data, size);
	if (size < 1 + sizeof(head))
		return 0;
	memcpy(&head, data + 1, sizeof(head));
	n = size - 1 - sizeof(head);
	memcpy(keys, data + 1 + sizeof(head),
	       n < sizeof(keys) ? n : sizeof(keys));
	head.nkeys = data[0] % (PN_KEY_MAX + 1);
	n = pn_key_pack(&head, keys, blob);
	check_parse(blob, n);
	return 0;
}
