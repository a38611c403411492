/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/markup.h"

void pn_markup_text(FILE *file, const char *text)
{
	for (; text && *text; text++)
		switch (*text) {
		case '<':
			fputs("&lt;", file);
			break;
		case '>':
			fputs("&gt;", file);
			break;
		case '&':
			fputs("&amp;", file);
			break;
		case '"':
			fputs("&quot;", file);
			break;
		default:
			putc(*text, file);
		}
}
