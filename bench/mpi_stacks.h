/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mpi_stacks -- the MPI stacks that `pinion bench mpi` compares.
 *
 * A stack is an MPI library over a transport, with the command line that starts
 * ranks over it. It is named in a list such as
 * "pinion,pinion:copy,vader": pn_mpi_stacks_parse() makes the stacks,
 * pn_mpi_stacks_probe() removes those that do not run here, and
 * pn_mpi_stack_line() formats the command line of a job.
 *   pinion  Open MPI over pinion's provider
 *   pinion:PROTOCOL, pinion:NAME=VALUE[+NAME=VALUE...]
 *           the same with a fixed protocol, or with other options of the
 *           library: a variant
 *   fixed   short for pinion over each fixed protocol
 *   vader   Open MPI over its own shared memory
 *   ucx     Open MPI over UCX
 *   tcp     Open MPI over libfabric's tcp;ofi_rxm
 *   mpich   MPICH, over UCX in Debian
 * Those that are not pinion are peers. Two ranks are bound to a core each; more
 * ranks than cores are not bound.
 *
 * Threads: one at a time.
 */
#ifndef PN_BENCH_MPI_STACKS_H
#define PN_BENCH_MPI_STACKS_H

#include <stddef.h>

#include "bench/comparison.h"
#include "tools/pinion/paths.h"

#define PN_MPI_STACK_NAME 64
#define PN_MPI_LINE_BYTES (4 * PN_PATH_BYTES)

/* How often a job is run before its failure counts. When Open MPI's ranks
 * finalize, PMIx gives mpirun two seconds to notice. On a busier machine the
 * ranks end unnoticed, and mpirun reports rank 0 as "exiting improperly", with
 * any transport. */
#define PN_MPI_TRIES 3

enum pn_mpi_kind { PN_MPI_PINION, PN_MPI_VARIANT, PN_MPI_PEER };

struct pn_mpi_stack {
	char name[PN_MPI_STACK_NAME];
	enum pn_mpi_kind kind;
	unsigned row; /* index into the table of launchers */
};

struct pn_mpi_stacks {
	unsigned n;
	struct pn_mpi_stack all[PN_COMPARISON_COMMANDS];
	struct pn_paths place;
	char openmpi[PN_PATH_BYTES]; /* the ranks' program */
	char mpich[PN_PATH_BYTES];   /* "": built without MPICH */
};

/* -EINVAL: no such stack, or too many of them; a line on standard error says
 * so. -ENOENT: the ranks' program was not built. */
int pn_mpi_stacks_parse(struct pn_mpi_stacks *stacks, const char *list);

/* Starts a job of two ranks over each peer and removes the peers that fail.
 * `removed` is called for each. */
void pn_mpi_stacks_probe(struct pn_mpi_stacks *stacks,
			 void (*removed)(void *arg, const char *name),
			 void *arg);

/* The stacks of a kind, as bits. */
unsigned pn_mpi_stacks_of(const struct pn_mpi_stacks *stacks,
			  enum pn_mpi_kind kind);

/* Formats the shell command that runs the ranks' program with arguments, or
 * another program (NULL: the ranks' own). -ENOTSUP: the stack cannot run
 * programs of Open MPI; -ENAMETOOLONG. */
struct pn_mpi_job {
	unsigned ranks;
	const char *program; /* with arguments; NULL: the ranks' own */
	const char *arguments;
};
int pn_mpi_stack_line(const struct pn_mpi_stacks *stacks, unsigned stack,
		      const struct pn_mpi_job *job,
		      char line[PN_MPI_LINE_BYTES]);

#endif
