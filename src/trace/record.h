/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * record -- writes the events of this process into a file.
 *
 * Nouns
 *   recorder  the event sink of the process (base/trace_sink.h) with its file.
 *             The first context that is opened with the option `trace` creates
 *             it; it lives until the process ends.
 *   stream    the state with which a thread writes: a mapped block of the
 *             file. When the thread ends, another thread takes over its
 *             stream.
 *   ring      events from code that must not allocate (record_noalloc). They
 *             wait there until any thread records another event.
 *
 * A thread encodes an event into the block of its stream and publishes it by
 * storing `used`: no lock, no shared write, no system call until the block is
 * full. The mapping is shared with the file, so every recorded event is in the
 * file at once: a killed program leaves all its events, and nothing has to be
 * flushed. (After a crash of the machine the file has what the kernel had
 * written back.)
 *
 * Bounds: memory is one block per recording thread. The file never exceeds its
 * limit. Disk space is reserved before a block is mapped, so that a full disk
 * is an error and not a signal. Events that do not fit are counted (`lost` in
 * the file's header), and the program continues.
 *
 * fork: a child does not record into the file of its parent. A page that the
 * kernel wipes in children (MADV_WIPEONFORK) identifies the process that owns
 * the recorder, so that this holds for every kind of fork. A child that opens a
 * context gets its own recorder and file.
 * Threads: any. A signal handler that interrupts recording loses its event.
 * Errors: a recording error is logged once; no other call fails because of it.
 */
#ifndef PN_TRACE_RECORD_H
#define PN_TRACE_RECORD_H

#include <stdint.h>

/* Starts recording into the file that `pattern` names (%p is the process id, %%
 * is %), once per process; "" means no recording. If another process is
 * recording into that file, the process id is appended to the name. -EEXIST:
 * the file exists and is not a trace; others as open(2). All errors are logged.
 */
int pn_record_start(const char *pattern, uint64_t max_bytes);

/* The path of the file; NULL: this process does not record. */
const char *pn_record_path(void);

/* Ends recording normally; later events are dropped. Also called when the
 * process exits. */
void pn_record_stop(void);

#endif
