/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * json -- writes one flat JSON object per line, field by field.
 *
 * 	struct pn_json json;
 *
 * 	pn_json_begin(&json, stdout);
 * 	pn_json_text(&json, "bench", "raw");
 * 	pn_json_number(&json, "latency_us", 1.5);
 * 	pn_json_end(&json);
 *
 * The output is always valid JSON: texts are escaped, bytes that are not UTF-8
 * become U+FFFD, and values that JSON does not have (NULL, NaN, infinity)
 * become null. Keys are constants in plain ASCII and are not escaped.
 * Not by jansson, which reads rows (rows.h): its integers are signed, so that
 * counts above 2^63 would be lost, it refuses texts that are not UTF-8, and it
 * needs an object in memory. test_json reads with it what this writes.
 * Threads: one per pn_json.
 */
#ifndef PN_TOOLS_JSON_H
#define PN_TOOLS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct pn_json {
	FILE *file;
	bool first; /* no field written yet */
};

void pn_json_begin(struct pn_json *json, FILE *file);
void pn_json_text(struct pn_json *json, const char *key, const char *text);
void pn_json_count(struct pn_json *json, const char *key, uint64_t count);
void pn_json_number(struct pn_json *json, const char *key, double number);
void pn_json_flag(struct pn_json *json, const char *key, bool flag);
void pn_json_null(struct pn_json *json, const char *key);

/* Ends the object and the line. */
void pn_json_end(struct pn_json *json);

#endif
