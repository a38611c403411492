/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/json.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

void pn_json_begin(struct pn_json *json, FILE *file)
{
	*json = (struct pn_json){ .file = file, .first = true };
	fputc('{', file);
}

void pn_json_end(struct pn_json *json)
{
	fputs("}\n", json->file);
}

static void put_key(struct pn_json *json, const char *key)
{
	fprintf(json->file, "%s\"%s\":", json->first ? "" : ",", key);
	json->first = false;
}

/* Length of the UTF-8 character at s; 0: invalid. Overlong forms, surrogates
 * and values beyond U+10FFFF are invalid. */
static size_t utf8_len(const unsigned char *s)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t len = s[0] < 0x80	   ? 1
		     : (s[0] >> 5) == 0x06 ? 2
		     : (s[0] >> 4) == 0x0e ? 3
		     : (s[0] >> 3) == 0x1e ? 4
					   : 0;
	uint32_t code = len == 1 ? s[0] : s[0] & (0x7fu >> len);

	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		code = code << 6 | (s[i] & 0x3f);
	}
	if (!len || code < least[len] || code > 0x10ffff ||
	    (code >= 0xd800 && code < 0xe000))
		return 0;
	return len;
}

static void put_char(FILE *file, const unsigned char *s, size_t len)
{
	if (*s == '"' || *s == '\\')
		fprintf(file, "\\%c", *s);
	else if (*s < 0x20 || *s == 0x7f)
		fprintf(file, "\\u%04x", *s);
	else
		fwrite(s, 1, len, file);
}

static void put_string(FILE *file, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	fputc('"', file);
	while (*s) {
		size_t len = utf8_len(s);

		if (len)
			put_char(file, s, len);
		else
			fputs("\\ufffd", file);
		s += len ? len : 1;
	}
	fputc('"', file);
}

void pn_json_text(struct pn_json *json, const char *key, const char *text)
{
	if (!text) {
		pn_json_null(json, key);
		return;
	}
	put_key(json, key);
	put_string(json->file, text);
}

void pn_json_count(struct pn_json *json, const char *key, uint64_t count)
{
	put_key(json, key);
	fprintf(json->file, "%" PRIu64, count);
}

void pn_json_number(struct pn_json *json, const char *key, double number)
{
	if (!isfinite(number)) {
		pn_json_null(json, key);
		return;
	}
	put_key(json, key);
	fprintf(json->file, "%.9g", number);
}

void pn_json_flag(struct pn_json *json, const char *key, bool flag)
{
	put_key(json, key);
	fputs(flag ? "true" : "false", json->file);
}

void pn_json_null(struct pn_json *json, const char *key)
{
	put_key(json, key);
	fputs("null", json->file);
}
