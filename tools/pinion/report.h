/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * report -- rows of figures: an aligned table for people, one JSON object per
 * line for programs.
 *
 * A report names its device once, whether the costs are emulated, and the
 * machine. In JSON every row has these keys: bench, device, emulated, profile,
 * revision, machine, and the command that printed it. A series is a sequence of
 * rows with the same columns; its first row prints the head of the table. A
 * NUMBER that is NaN was not measured: "-" in the table, null in JSON. Notes
 * and progress are for people only.
 */
#ifndef PN_TOOLS_REPORT_H
#define PN_TOOLS_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "device/device.h"

enum pn_report_type {
	PN_REPORT_TEXT,
	PN_REPORT_COUNT,
	PN_REPORT_BYTES,
	PN_REPORT_NUMBER,
	PN_REPORT_RATE, /* a number; the table prints 10^9 as 1.00G */
	PN_REPORT_FLAG, /* yes, no */
};

/* One field of a row. */
struct pn_report_cell {
	const char *key;  /* JSON key, with its unit */
	const char *head; /* head of the column; NULL: only in JSON */
	enum pn_report_type type;
	int width; /* width of the column; negative: left aligned */
	union {
		const char *text;
		uint64_t count; /* COUNT, BYTES */
		double number;	/* NUMBER, RATE */
		bool flag;
	} value;
};

#define PN_CELL_TEXT(key, head, width, v)         \
	{                                         \
		key, head, PN_REPORT_TEXT, width, \
		{                                 \
			.text = (v)               \
		}                                 \
	}
#define PN_CELL_COUNT(key, head, width, v)         \
	{                                          \
		key, head, PN_REPORT_COUNT, width, \
		{                                  \
			.count = (v)               \
		}                                  \
	}
#define PN_CELL_BYTES(key, head, width, v)         \
	{                                          \
		key, head, PN_REPORT_BYTES, width, \
		{                                  \
			.count = (v)               \
		}                                  \
	}
#define PN_CELL_NUMBER(key, head, width, v)         \
	{                                           \
		key, head, PN_REPORT_NUMBER, width, \
		{                                   \
			.number = (v)               \
		}                                   \
	}
#define PN_CELL_RATE(key, head, width, v)         \
	{                                         \
		key, head, PN_REPORT_RATE, width, \
		{                                 \
			.number = (v)             \
		}                                 \
	}
#define PN_CELL_FLAG(key, head, width, v)         \
	{                                         \
		key, head, PN_REPORT_FLAG, width, \
		{                                 \
			.flag = (v)               \
		}                                 \
	}

struct pn_report {
	bool json;
	const char *bench;
	const char *device;  /* spec of the device */
	const char *profile; /* NULL: no device was opened */
	bool emulated;
	bool headed; /* the head of the table has been printed */
};

/* Sets what the opened device knows; pn_report_head() prints it. */
void pn_report_device(struct pn_report *report, const struct pn_device *device);

/* Prints "raw: question", the device and the machine. */
void pn_report_head(struct pn_report *report, const char *question);

/* The next row begins a new table. */
void pn_report_series(struct pn_report *report);

void pn_report_row(struct pn_report *report, const struct pn_report_cell *cells,
		   size_t n);

/* Prints a line between rows, for people only. */
void pn_report_note(struct pn_report *report, const char *fmt, ...)
	PN_PRINTF(2, 3);

/* Shows the current activity on a terminal (standard error); NULL erases it. */
void pn_report_progress(const char *what);

/* The command line of this process: "pinion bench raw --json". */
const char *pn_report_command(void);

/* "AMD EPYC, 2 cores, Linux 6.1.0". */
const char *pn_report_machine(void);

/* Formats "64K"; "-" for SIZE_MAX, no limit. Returns buf. */
#define PN_REPORT_BYTES_LEN 24
const char *pn_report_bytes(uint64_t bytes, char buf[PN_REPORT_BYTES_LEN]);

/* Formats "53.63" as in tables. Returns buf. */
#define PN_REPORT_NUMBER_LEN 64
const char *pn_report_number(double number, char buf[PN_REPORT_NUMBER_LEN]);

#endif
