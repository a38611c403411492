/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * busy -- how much of the processors others used for a while.
 *
 * Others are all but this process and its children that have ended: what it
 * measures is noise to their figures. Ticks of /proc/stat are coarse: less than
 * a second says little.
 * Threads: any.
 */
#ifndef PN_TOOLS_BUSY_H
#define PN_TOOLS_BUSY_H

/* Above this share figures are not comparable. */
#define PN_BUSY_SHARE 0.2

/* Processor time in ticks; of all cores, including idle ones, and of that what
 * other programs and other virtual machines used. */
struct pn_busy {
	double all, others;
};

/* Since the system started; zero where there is no /proc. */
void pn_busy_begin(struct pn_busy *busy);

/* Sets both to what was added since pn_busy_begin(). */
void pn_busy_end(struct pn_busy *busy);

/* Share of the others, 0 to 1. */
double pn_busy_share(const struct pn_busy *busy);

#endif
