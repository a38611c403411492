/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_stats_segment -- the statistics segment of a process
 * (base/stats_segment.h), read from a file that any process of the same user
 * may have damaged.
 *
 * Reading never leaves the copy for any input; an accepted segment can be
 * traversed to its end, with every field of every row.
 */
#include "fuzz.h"

#include "tools/pinion/view.h"

static void read_row(const struct pn_view *view,
		     const struct pn_stats_block *block, unsigned row)
{
	char text[64];

	for (unsigned i = 0; i < block->nfields; i++) {
		const struct pn_stats_field *field = pn_view_field(block, i);

		FUZZ_ASSERT(pn_view_find(block, field->name));
		if (field->type == PN_STATS_TEXT)
			FUZZ_ASSERT(strlen(pn_view_text(block, row, field, text,
							sizeof(text))) <
				    sizeof(text));
		else
			(void)pn_view_sum(view, block, field);
		(void)pn_view_number(block, row, field);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct pn_stats_block *block = NULL;
	unsigned char *copy = aligned_alloc(64, (size + 64) & ~(size_t)63);
	struct pn_view view;

	FUZZ_ASSERT(copy);
	if (size)
		memcpy(copy, data, size);
	if (pn_view_parse(copy, size, &view)) {
		free(copy);
		return 0;
	}
	while ((block = pn_view_next(&view, block)))
		for (unsigned row = 0; row < block->nrows && row < 100; row++)
			read_row(&view, block, row);
	(void)pn_view_total(&view, "cache", "hits");
	pn_view_close(&view);
	return 0;
}
