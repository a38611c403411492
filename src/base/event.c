/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/event.h"

#include <stddef.h>

struct pn_event_sink *_Atomic pn_event_installed;

void pn_event_install(struct pn_event_sink *sink)
{
	atomic_store_explicit(&pn_event_installed, sink, memory_order_release);
}
