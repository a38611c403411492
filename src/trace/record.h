/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * record -- writes the events of this process into a file.
 *
 * Nouns
 *   recorder  the process's sink (base/trace_sink.h) with its file. Born with
 * the first context that is opened with the option `trace`, ends with the
 * process. stream      what a thread writes with: a block of the file, mapped.
 * When the thread ends, another takes its stream over. ring      where quiet
 * events wait for the next loud one of any thread.
 *
 * A thread encodes an event into the block of its stream and says so by storing
 * `used`: no lock, nothing shared, no system call until the block is full. The
 * mapping is shared with the file, so whatever was recorded is in the file at
 * once: a program that is killed leaves all of it, and nobody has to flush. (A
 * machine that crashes leaves what its kernel had written back.)
 *
 * Bounds: memory is a block for each thread that records at a time; the file
 * never exceeds its limit, and disk space is reserved before it is mapped, so
 * that a full disk is an error and not a signal. What finds no room is counted
 * (`lost` in the file's head), and the program goes on.
 *
 * fork: the child does not record into its parent's file. A page that the
 * kernel wipes in children (MADV_WIPEONFORK) says whose the recorder is, so
 * that this holds for every kind of fork. A child that opens a context gets a
 * recorder and a file of its own.
 * Threads: any; a signal handler that records inside recording loses its event.
 * Errors: what cannot be recorded is logged once; nothing fails because of it.
 */
#ifndef PN_TRACE_RECORD_H
#define PN_TRACE_RECORD_H

#include <stdint.h>

/* Starts recording into the file that `pattern` names (%p stands for the
 * process id, %% for %), once per process; "" is no recording. A file that
 * another process is recording into is left alone: this one's gets the process
 * id behind its name. -EEXIST: there is such a file and it is no trace; others
 * as open(2); all logged. */
int pn_record_start(const char *pattern, uint64_t max_bytes);

/* The file; NULL: nothing is being recorded by this process. */
const char *pn_record_path(void);

/* Ends recording in good order; events after it are dropped. The process's end
 * does it, too. */
void pn_record_stop(void);

#endif
