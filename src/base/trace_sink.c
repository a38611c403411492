/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/trace_sink.h"

#include <stddef.h>

struct pn_trace_sink *_Atomic pn_trace_sink_installed;

void pn_trace_sink_install(struct pn_trace_sink *sink)
{
	atomic_store_explicit(&pn_trace_sink_installed, sink,
			      memory_order_release);
}
