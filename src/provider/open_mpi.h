/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * open_mpi -- repairs two faults of Open MPI 4 that make programs wait forever
 * over every provider. Open MPI's parts pml/cm and mtl/ofi call the provider.
 *
 * Acknowledgements. mtl/ofi sends a message of MPI_Ssend() with a bit in the
 * tag that asks for an acknowledgement: an empty message from the receiver,
 * with another bit in the same tag. It forgets to send the acknowledgement if
 * the message is received by MPI_Mrecv() or MPI_Imrecv(). The provider sends
 * it when such a claimed message is received. The two bits are where mtl/ofi
 * puts them if messages carry CQ data, which is its default with this provider.
 * Open MPI 5 has repaired this.
 *
 * Displaced buffers. A persistent send of pml/cm (isend_init) from one
 * contiguous block whose datatype begins at a displacement forgets the
 * displacement: the provider is told to send from address 0 if the buffer is
 * MPI_BOTTOM, else from a wrong address. MPI_Alltoallw(), MPI_Alltoallv(),
 * MPI_Put() and MPI_Accumulate() use such sends, too. The provider puts a
 * function before pml/cm's isend_init that moves the displacement from the
 * datatype into the address. Open MPI 4.1.5 has repaired this.
 *
 * How they are known: the caller of the provider is the library mca_mtl_ofi.so,
 * and MPI reports the version. Where that fails, nothing is changed.
 *
 * Threads: any; the function is put there in MPI_Init().
 */
#ifndef PN_PROVIDER_OPEN_MPI_H
#define PN_PROVIDER_OPEN_MPI_H

#include <stdbool.h>
#include <stdint.h>

#include <pinion/pinion.h>

/* Whether the code at this address, which opens an endpoint, is mtl/ofi of an
 * Open MPI that forgets acknowledgements. */
bool pn_open_mpi_forgets_acks(const void *caller);

/* Whether the sender of a message waits for an acknowledgement, and its tag. */
bool pn_open_mpi_ack(const struct pinion_completion *received, uint64_t *tag);

/* The code at this address inserts addresses. mtl/ofi does so when pml/cm is in
 * place: repairs persistent sends of an Open MPI that needs it, once. */
void pn_open_mpi_repair_sends(const void *caller);

#endif
