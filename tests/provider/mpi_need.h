/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mpi_need -- checks and digests for the MPI programs that the tests run over
 * several transports. A check that fails ends the job.
 */
#ifndef PN_TESTS_FABRIC_MPI_NEED_H
#define PN_TESTS_FABRIC_MPI_NEED_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* The rank of this process, once it is known. */
static int rank;

#define NEED(fact)                                                    \
	do {                                                          \
		if (!(fact)) {                                        \
			fprintf(stderr, "rank %d: %s:%d: %s\n", rank, \
				__FILE__, __LINE__, #fact);           \
			MPI_Abort(MPI_COMM_WORLD, 1);                 \
		}                                                     \
	} while (0)

/* FNV-1a, continued from h. */
static inline uint64_t hash(uint64_t h, const void *data, size_t len)
{
	const uint8_t *bytes = data;

	for (size_t i = 0; i < len; i++)
		h = (h ^ bytes[i]) * UINT64_C(1099511628211);
	return h;
}

#endif
