/* SPDX-License-Identifier: BSD-2-Clause */
/* A library with memory of its own, to be loaded and unloaded. */
#include "unseen_library.h"

static char memory[UNSEEN_BYTES];

char *unseen_memory(void)
{
	return memory;
}
