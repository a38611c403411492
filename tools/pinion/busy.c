/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/busy.h"

#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/compiler.h"

static double seconds(const struct timeval *time)
{
	return (double)time->tv_sec + (double)time->tv_usec / 1e6;
}

/* Ticks of this process and of its ended children. */
static double own_ticks(void)
{
	double sum = 0;

	for (int i = 0; i < 2; i++) {
		struct rusage use;

		getrusage(i ? RUSAGE_CHILDREN : RUSAGE_SELF, &use);
		sum += seconds(&use.ru_utime) + seconds(&use.ru_stime);
	}
	return sum * (double)sysconf(_SC_CLK_TCK);
}

/* user, nice, system, idle, iowait, irq, softirq, steal: proc(5). */
void pn_busy_begin(struct pn_busy *busy)
{
	double field[8] = { 0 }, all = 0;
	FILE *file = fopen("/proc/stat", "re");

	*busy = (struct pn_busy){ 0 };
	if (!file)
		return;
	if (fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &field[0],
		   &field[1], &field[2], &field[3], &field[4], &field[5],
		   &field[6], &field[7]) >= 4)
		for (unsigned i = 0; i < PN_ARRAY_LEN(field); i++)
			all += field[i];
	fclose(file);
	busy->all = all;
	busy->others = all - field[3] - field[4] - own_ticks();
}

void pn_busy_end(struct pn_busy *busy)
{
	struct pn_busy now;

	pn_busy_begin(&now);
	busy->all = now.all - busy->all;
	busy->others = now.others - busy->others;
	/* Ticks are coarse: the difference may be negative. */
	if (busy->others < 0)
		busy->others = 0;
}

double pn_busy_share(const struct pn_busy *busy)
{
	return busy->all > 0 ? busy->others / busy->all : 0;
}
