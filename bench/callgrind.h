/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * callgrind -- counts instructions, independently of the load of the machine.
 *
 * A program, usually this one with other arguments, runs under valgrind's
 * callgrind, which counts the instructions of the run or of some functions in
 * it. To find the cost of one of n operations, run two different n and divide
 * the difference: the setup cancels out.
 * Threads: any. May sleep for seconds.
 */
#ifndef PN_BENCH_CALLGRIND_H
#define PN_BENCH_CALLGRIND_H

#include <stdint.h>

/* args: options of callgrind, a program ("--": this one), its arguments;
 * terminated by NULL, at most 32. The program's output is discarded. -ENOENT:
 * valgrind is not installed; -EIO: the run failed or counted nothing (a
 * stripped program has no function names); others: it did not start. */
int pn_callgrind(const char *const *args, uint64_t *instructions);

#endif
