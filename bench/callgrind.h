/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * callgrind -- how many instructions something takes, whatever the machine is
 * busy with.
 *
 * A program, most often this very one with other arguments, is run under
 * valgrind's callgrind, and the instructions of that run, or of some functions
 * in it, are counted.
 * Whoever wants to know what one of n things takes runs two different n and
 * divides the difference: setting up cancels out.
 * Threads: any. May sleep for seconds.
 */
#ifndef PN_BENCH_CALLGRIND_H
#define PN_BENCH_CALLGRIND_H

#include <stdint.h>

/* args: options of callgrind, a program ("--": this one), its arguments; NULL
 * at the end, at most 32. The program's output is thrown away. -ENOENT:
 * valgrind is not installed; -EIO: the run failed or counted nothing (a
 * stripped program has no functions to name); or what kept it from starting. */
int pn_callgrind(const char *const *args, uint64_t *instructions);

#endif
