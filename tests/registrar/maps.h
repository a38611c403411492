/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that tests of registrars map and map again. */
#ifndef PN_TESTS_REGISTRAR_MAPS_H
#define PN_TESTS_REGISTRAR_MAPS_H

#include "test.h"

#include <sys/mman.h>

/* where NULL: anywhere. */
static inline char *map_at(void *where, size_t len)
{
	char *memory =
		mmap(where, len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | (where ? MAP_FIXED : 0), -1,
		     0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	return memory;
}

/* Unmaps memory and maps other memory, there if nobody was faster. */
static inline void remap(char **memory, size_t len)
{
	char *again;

	munmap(*memory, len);
	again = mmap(*memory, len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	*memory = again == MAP_FAILED ? map_at(NULL, len) : again;
}

#endif
