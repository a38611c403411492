/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fuzz_rows -- rows of measurements that `pinion report` reads.
 *
 * Every line is either refused with a reason, or becomes a row whose values can
 * be read as number, as text and as word, and whose figures can be made.
 */
#include "fuzz.h"

#include <errno.h>
#include <math.h>

#include "tools/pinion/figure.h"
#include "tools/pinion/rows.h"

static void ask_all(const struct pn_row *row)
{
	char word[64], condition[256];

	FUZZ_ASSERT(row->n <= PN_ROW_MAX_KEYS);
	for (unsigned i = 0; i < row->n; i++) {
		double number = pn_row_number(row, row->keys[i]);
		const char *text = pn_row_text(row, row->keys[i]);

		FUZZ_ASSERT(isnan(number) || isfinite(number));
		FUZZ_ASSERT(isnan(number) || !text);
		pn_row_word(row, row->keys[i], word, sizeof(word));
		if (strlen(row->keys[i]) < 64 && !strchr(row->keys[i], '=') &&
		    row->keys[i][0] && !strchr(row->keys[i], '!') &&
		    strlen(word) < sizeof(word) - 1) {
			snprintf(condition, sizeof(condition), "%s=%s",
				 row->keys[i], word);
			FUZZ_ASSERT(pn_row_meets(row, condition));
		}
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_string(data, size), *line, *rest = text;
	struct pn_figures figures = { 0 };
	struct pn_rows rows = { 0 };
	struct pn_why why = { "" };
	int ret = 0;

	while (!ret && (line = strsep(&rest, "\n"))) {
		ret = pn_rows_parse(&rows, line, &why);
		FUZZ_ASSERT(!ret || ret == -EBADMSG);
		FUZZ_ASSERT(!ret || why.text[0]);
	}
	for (size_t i = 0; i < rows.n; i++)
		ask_all(rows.rows[i]);
	FUZZ_ASSERT(!pn_figures_make(&rows, &figures));
	pn_figures_fini(&figures);
	pn_rows_fini(&rows);
	free(text);
	return 0;
}
