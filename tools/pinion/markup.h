/* SPDX-License-Identifier: BSD-2-Clause */
/* markup -- text of HTML and SVG, in which a few characters must be escaped. */
#ifndef PN_TOOLS_MARKUP_H
#define PN_TOOLS_MARKUP_H

#include <stdio.h>

/* Writes a text so that none of it is markup. NULL: nothing. */
void pn_markup_text(FILE *file, const char *text);

#endif
