/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * report -- rows of figures, for people as an aligned table, for programs as
 * one JSON object a line.
 *
 * A report says once which device it is about, whether its costs are emulated,
 * and on which machine; in JSON every row carries these: bench, device,
 * emulated, profile, revision, machine, and the command that printed it. A
 * series is a run of rows with the same columns; its first row brings the
 * table's head. A NUMBER that is NaN was not measured: "-" in the table, null
 * in JSON. Notes and progress go to people alone.
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
	PN_REPORT_RATE, /* a number; the table shows 10^9 of it as 1.00G */
	PN_REPORT_FLAG, /* yes, no */
};

/* One field of a row. */
struct pn_report_cell {
	const char *key;  /* in JSON, with its unit */
	const char *head; /* of the table's column; NULL: only in JSON */
	enum pn_report_type type;
	int width; /* of the table's column; negative: left aligned */
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
	const char *device;  /* its spec */
	const char *profile; /* NULL: not known, no device was opened */
	bool emulated;
	bool headed; /* the table's head has been printed */
};

/* Completes what the opened device knows; head() prints it for people. */
void pn_report_device(struct pn_report *report, const struct pn_device *device);

/* "raw: question" and which device on which machine. */
void pn_report_head(struct pn_report *report, const char *question);

/* The next row begins another table. */
void pn_report_series(struct pn_report *report);

void pn_report_row(struct pn_report *report, const struct pn_report_cell *cells,
		   size_t n);

/* A line between rows, for people. */
void pn_report_note(struct pn_report *report, const char *fmt, ...)
	PN_PRINTF(2, 3);

/* Shows on a terminal (standard error) what is being done; NULL wipes it. */
void pn_report_progress(const char *what);

/* "pinion bench raw --json": what this process was asked for. */
const char *pn_report_command(void);

/* "AMD EPYC, 2 cores, Linux 6.1.0". */
const char *pn_report_machine(void);

/* "64K"; "-" stands for SIZE_MAX, no limit. Returns buf. */
#define PN_REPORT_BYTES_LEN 24
const char *pn_report_bytes(uint64_t bytes, char buf[PN_REPORT_BYTES_LEN]);

/* "53.63": as tables have it. Returns buf. */
#define PN_REPORT_NUMBER_LEN 64
const char *pn_report_number(double number, char buf[PN_REPORT_NUMBER_LEN]);

#endif
