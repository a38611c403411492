/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pmpi -- tells the helper where in an MPI program a message comes from.
 *
 * The provider is called from deep inside MPI, where the stack says more about
 * MPI than about the program (and Debian's is built without frame pointers).
 * This library, libpinion-pmpi.so, stands before MPI's own (MPI's profiling
 * interface is made for that): a call that moves data names the place it was
 * called from, by pinion_site(), for as long as it lasts. `pinion mpirun`
 * preloads it when the helper is on; without the helper nobody asks.
 *
 * C programs, and Fortran ones by `use mpi` and mpif.h: Open MPI's Fortran
 * calls do not come by those of C, so both are here. Not those of `use
 * mpi_f08`, where the stack tells as before, and not collective calls that do
 * not block, whose messages are sent later.
 *
 * It is not linked with MPI, so that ranks that are scripts load none.
 * Threads: any; what is kept is each thread's own.
 */
#include <stdint.h>

#include <mpi.h>

#include <pinion/helper.h>

/* MPI may call itself: the outermost call is the program's. */
static _Thread_local unsigned depth;

static void enter(const void *caller)
{
	char name[2 * sizeof(uintptr_t) + 1];
	uintptr_t at = (uintptr_t)caller;

	if (depth++)
		return;
	for (unsigned i = sizeof(name) - 1; i--; at >>= 4)
		name[i] = "0123456789abcdef"[at & 15];
	name[sizeof(name) - 1] = '\0';
	pinion_site(name);
}

static void leave(void)
{
	if (!--depth)
		pinion_site(NULL);
}

#define CALL(name, params, args)                    \
	int MPI_##name params                       \
	{                                           \
		int ret;                            \
                                                    \
		enter(__builtin_return_address(0)); \
		ret = PMPI_##name args;             \
		leave();                            \
		return ret;                         \
	}

#define WHAT	const void *buf, int n, MPI_Datatype type
#define INTO	void *buf, int n, MPI_Datatype type
#define RESULT	void *out, int nout, MPI_Datatype tout
#define ADDRESS int rank, int tag, MPI_Comm comm
#define REQUEST MPI_Request *request
#define STATUS	MPI_Status *status
#define COMM	MPI_Comm comm

CALL(Send, (WHAT, ADDRESS), (buf, n, type, rank, tag, comm))
CALL(Bsend, (WHAT, ADDRESS), (buf, n, type, rank, tag, comm))
CALL(Ssend, (WHAT, ADDRESS), (buf, n, type, rank, tag, comm))
CALL(Rsend, (WHAT, ADDRESS), (buf, n, type, rank, tag, comm))
CALL(Isend, (WHAT, ADDRESS, REQUEST), (buf, n, type, rank, tag, comm, request))
CALL(Ibsend, (WHAT, ADDRESS, REQUEST), (buf, n, type, rank, tag, comm, request))
CALL(Issend, (WHAT, ADDRESS, REQUEST), (buf, n, type, rank, tag, comm, request))
CALL(Irsend, (WHAT, ADDRESS, REQUEST), (buf, n, type, rank, tag, comm, request))
CALL(Recv, (INTO, ADDRESS, STATUS), (buf, n, type, rank, tag, comm, status))
CALL(Irecv, (INTO, ADDRESS, REQUEST), (buf, n, type, rank, tag, comm, request))
CALL(Mrecv, (INTO, MPI_Message *message, STATUS),
     (buf, n, type, message, status))
CALL(Imrecv, (INTO, MPI_Message *message, REQUEST),
     (buf, n, type, message, request))
CALL(Sendrecv,
     (WHAT, int to, int stag, RESULT, int from, int rtag, COMM, STATUS),
     (buf, n, type, to, stag, out, nout, tout, from, rtag, comm, status))
CALL(Sendrecv_replace,
     (INTO, int to, int stag, int from, int rtag, COMM, STATUS),
     (buf, n, type, to, stag, from, rtag, comm, status))
CALL(Start, (REQUEST), (request))
CALL(Startall, (int n, MPI_Request requests[]), (n, requests))

CALL(Bcast, (INTO, int root, COMM), (buf, n, type, root, comm))
CALL(Scatter, (WHAT, RESULT, int root, COMM),
     (buf, n, type, out, nout, tout, root, comm))
CALL(Scatterv,
     (const void *buf, const int ns[], const int at[], MPI_Datatype type,
      RESULT, int root, COMM),
     (buf, ns, at, type, out, nout, tout, root, comm))
CALL(Gather, (WHAT, RESULT, int root, COMM),
     (buf, n, type, out, nout, tout, root, comm))
CALL(Gatherv,
     (WHAT, void *out, const int ns[], const int at[], MPI_Datatype tout,
      int root, COMM),
     (buf, n, type, out, ns, at, tout, root, comm))
CALL(Allgather, (WHAT, RESULT, COMM), (buf, n, type, out, nout, tout, comm))
CALL(Allgatherv,
     (WHAT, void *out, const int ns[], const int at[], MPI_Datatype tout, COMM),
     (buf, n, type, out, ns, at, tout, comm))
CALL(Alltoall, (WHAT, RESULT, COMM), (buf, n, type, out, nout, tout, comm))
CALL(Alltoallv,
     (const void *buf, const int ns[], const int at[], MPI_Datatype type,
      void *out, const int nout[], const int outat[], MPI_Datatype tout, COMM),
     (buf, ns, at, type, out, nout, outat, tout, comm))
CALL(Reduce,
     (const void *buf, void *out, int n, MPI_Datatype type, MPI_Op op, int root,
      COMM),
     (buf, out, n, type, op, root, comm))
CALL(Allreduce,
     (const void *buf, void *out, int n, MPI_Datatype type, MPI_Op op, COMM),
     (buf, out, n, type, op, comm))
CALL(Reduce_scatter,
     (const void *buf, void *out, const int ns[], MPI_Datatype type, MPI_Op op,
      COMM),
     (buf, out, ns, type, op, comm))
CALL(Reduce_scatter_block,
     (const void *buf, void *out, int n, MPI_Datatype type, MPI_Op op, COMM),
     (buf, out, n, type, op, comm))
CALL(Scan,
     (const void *buf, void *out, int n, MPI_Datatype type, MPI_Op op, COMM),
     (buf, out, n, type, op, comm))

/* --- Fortran: everything is a pointer, the last one takes the error --------
 */

#define SHOWN __attribute__((visibility("default")))
#define FORTRAN(name, n)                            \
	void pmpi_##name##_(PARAMS_##n);            \
	SHOWN void mpi_##name##_(PARAMS_##n);       \
	void mpi_##name##_(PARAMS_##n)              \
	{                                           \
		enter(__builtin_return_address(0)); \
		pmpi_##name##_(ARGS_##n);           \
		leave();                            \
	}

#define PARAMS_2  void *a, void *b
#define PARAMS_3  PARAMS_2, void *c
#define PARAMS_6  PARAMS_3, void *d, void *e, void *f
#define PARAMS_7  PARAMS_6, void *g
#define PARAMS_8  PARAMS_7, void *h
#define PARAMS_9  PARAMS_8, void *i
#define PARAMS_10 PARAMS_9, void *j
#define PARAMS_13 PARAMS_10, void *k, void *l, void *m
#define ARGS_2	  a, b
#define ARGS_3	  ARGS_2, c
#define ARGS_6	  ARGS_3, d, e, f
#define ARGS_7	  ARGS_6, g
#define ARGS_8	  ARGS_7, h
#define ARGS_9	  ARGS_8, i
#define ARGS_10	  ARGS_9, j
#define ARGS_13	  ARGS_10, k, l, m

FORTRAN(send, 7)
FORTRAN(bsend, 7)
FORTRAN(ssend, 7)
FORTRAN(rsend, 7)
FORTRAN(isend, 8)
FORTRAN(ibsend, 8)
FORTRAN(issend, 8)
FORTRAN(irsend, 8)
FORTRAN(recv, 8)
FORTRAN(irecv, 8)
FORTRAN(mrecv, 6)
FORTRAN(imrecv, 6)
FORTRAN(sendrecv, 13)
FORTRAN(sendrecv_replace, 10)
FORTRAN(start, 2)
FORTRAN(startall, 3)
FORTRAN(bcast, 6)
FORTRAN(scatter, 9)
FORTRAN(scatterv, 10)
FORTRAN(gather, 9)
FORTRAN(gatherv, 10)
FORTRAN(allgather, 8)
FORTRAN(allgatherv, 9)
FORTRAN(alltoall, 8)
FORTRAN(alltoallv, 10)
FORTRAN(reduce, 8)
FORTRAN(allreduce, 7)
FORTRAN(reduce_scatter, 7)
FORTRAN(reduce_scatter_block, 7)
FORTRAN(scan, 7)
