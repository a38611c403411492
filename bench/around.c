/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/around.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/compiler.h"
#include "device/measure.h"
#include "tools/pinion/paths.h"

#define PROGRAM	   "register_around"
#define MAX_ROUNDS 31
#define BYTES	   4096

static const struct layer {
	const char *title, *name;
	bool preloaded;
} layers[] = {
	{ "verbs", "verbs", false },
	{ "pinion run", "verbs", true },
	{ "ucx", "ucx", false },
	{ "libfabric", "libfabric", false },
};

#define NLAYERS PN_ARRAY_LEN(layers)

struct series {
	double once[MAX_ROUNDS], around[MAX_ROUNDS], ratio[MAX_ROUNDS];
	size_t n;
};

/* False: the program says nothing. */
static bool run_once(const struct pn_around *a, const char *program,
		     const struct layer *layer, struct series *series)
{
	char self[PN_PATH_BYTES], command[3 * PN_PATH_BYTES];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	double once, around;
	FILE *file;
	bool ok;

	self[n < 0 ? 0 : n] = 0;
	snprintf(command, sizeof(command),
		 "timeout 100 %s%s '%s' %s %s %u %u %d %llu 2>/dev/null",
		 layer->preloaded ? self : "",
		 layer->preloaded ? " run --cuda=no --verbs" : "", program,
		 layer->name, a->adapter, a->port, a->gid, BYTES,
		 (unsigned long long)a->writes);
	file = popen(command, "re");
	ok = file && fscanf(file, "%lf %lf", &once, &around) == 2;
	if (file)
		pclose(file);
	if (!ok)
		return false;
	series->once[series->n] = once;
	series->around[series->n] = around;
	series->ratio[series->n++] = around / once;
	return true;
}

static void print_layer(struct pn_report *report, const struct layer *layer,
			struct series *series)
{
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("registered_by", "registered by", -14,
			     layer->title),
		PN_CELL_BYTES("bytes", "bytes", 7, BYTES),
		PN_CELL_NUMBER("once_us", "once us", 9,
			       pn_median(series->once, series->n)),
		PN_CELL_NUMBER("around_us", "around us", 10,
			       pn_median(series->around, series->n)),
		PN_CELL_NUMBER("ratio", "around/once", 12,
			       pn_median(series->ratio, series->n)),
	};

	pn_report_row(report, row, PN_ARRAY_LEN(row));
}

void pn_around_report(struct pn_report *report, const struct pn_around *around)
{
	struct series *series = calloc(NLAYERS, sizeof(*series));
	char program[PN_PATH_BYTES];

	if (!series || pn_paths_program(PROGRAM, program)) {
		pn_report_note(report, PROGRAM ": not found");
		free(series);
		return;
	}
	for (size_t r = 0; r < around->rounds && r < MAX_ROUNDS; r++)
		for (size_t i = 0; i < NLAYERS; i++)
			run_once(around, program, &layers[i], &series[i]);
	pn_report_series(report);
	for (size_t i = 0; i < NLAYERS; i++)
		if (series[i].n)
			print_layer(report, &layers[i], &series[i]);
		else
			pn_report_note(report, "register around, %s: %s",
				       layers[i].title, "no figure");
	free(series);
}
