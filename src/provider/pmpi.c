/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pmpi -- tells the helper which call site of an MPI program a message is from.
 *
 * The provider is called from deep inside MPI: the stack then describes MPI
 * rather than the program (and Debian's MPI has no frame pointers). This
 * library, libpinion-pmpi.so, uses MPI's profiling interface: a call that moves
 * data names its caller by pinion_site_set() for as long as it lasts. `pinion
 * mpirun` preloads the library when the helper is on.
 *
 * C and Fortran: Open MPI's Fortran functions do not call the C ones, and those
 * of `use mpi_f08` do not call those of `use mpi` and mpif.h, so all three are
 * here. A nonblocking collective names the messages that it posts itself;
 * messages that MPI posts for it later, while the program waits, are named by
 * the stack as before.
 *
 * The library is not linked with MPI, so that ranks that are scripts load none.
 * Threads: any; the state is per thread.
 */
#include <stdint.h>

#include <mpi.h>

#include <pinion/helper.h>

/* MPI calls itself: only the outermost call is the program's. */
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
	pinion_site_set(name);
}

static void leave(void)
{
	if (!--depth)
		pinion_site_set(NULL);
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

/* A collective call and its nonblocking form. */
#define LIST(...) __VA_ARGS__
#define BOTH(name, iname, params, args) \
	CALL(name, params, args)        \
	CALL(iname, (LIST params, REQUEST), (LIST args, request))

BOTH(Bcast, Ibcast, (INTO, int root, COMM), (buf, n, type, root, comm))
BOTH(Scatter, Iscatter, (WHAT, RESULT, int root, COMM),
     (buf, n, type, out, nout, tout, root, comm))
BOTH(Scatterv, Iscatterv,
     (const void *buf, const int ns[], const int at[], MPI_Datatype type,
      RESULT, int root, COMM),
     (buf, ns, at, type, out, nout, tout, root, comm))
BOTH(Gather, Igather, (WHAT, RESULT, int root, COMM),
     (buf, n, type, out, nout, tout, root, comm))
BOTH(Gatherv, Igatherv,
     (WHAT, void *out, const int ns[], const int at[], MPI_Datatype tout,
      int root, COMM),
     (buf, n, type, out, ns, at, tout, root, comm))
BOTH(Allgather, Iallgather, (WHAT, RESULT, COMM),
     (buf, n, type, out, nout, tout, comm))
BOTH(Allgatherv, Iallgatherv,
     (WHAT, void *out, const int ns[], const int at[], MPI_Datatype tout, COMM),
     (buf, n, type, out, ns, at, tout, comm))
BOTH(Alltoall, Ialltoall, (WHAT, RESULT, COMM),
     (buf, n, type, out, nout, tout, comm))
BOTH(Alltoallv, Ialltoallv,
     (const void *buf, const int ns[], const int at[], MPI_Datatype type,
      void *out, const int nout[], const int outat[], MPI_Datatype tout, COMM),
     (buf, ns, at, type, out, nout, outat, tout, comm))
BOTH(Reduce, Ireduce,
     (const void *buf, void *out, int n, MPI_Datatype type, MPI_Op op, int root,
      COMM),
     (buf, out, n, type, op, root, comm))
BOTH(Allreduce, Iallreduce,
     (const void *buf, void *out, int n, MPI_Datatype type, MPI_Op op, COMM),
     (buf, out, n, type, op, comm))
BOTH(Reduce_scatter, Ireduce_scatter,
     (const void *buf, void *out, const int ns[], MPI_Datatype type, MPI_Op op,
      COMM),
     (buf, out, ns, type, op, comm))
BOTH(Reduce_scatter_block, Ireduce_scatter_block,
     (const void *buf, void *out, int n, MPI_Datatype type, MPI_Op op, COMM),
     (buf, out, n, type, op, comm))
BOTH(Scan, Iscan,
     (const void *buf, void *out, int n, MPI_Datatype type, MPI_Op op, COMM),
     (buf, out, n, type, op, comm))

/* --- Fortran: all arguments are pointers, the last is the error ----------- */

#define EXPORTED __attribute__((visibility("default")))
#define FORTRAN_AS(name, n)                         \
	void p##name(PARAMS_##n);                   \
	EXPORTED void name(PARAMS_##n);             \
	void name(PARAMS_##n)                       \
	{                                           \
		enter(__builtin_return_address(0)); \
		p##name(ARGS_##n);                  \
		leave();                            \
	}
#define FORTRAN(name, n)             \
	FORTRAN_AS(mpi_##name##_, n) \
	FORTRAN_AS(mpi_##name##_f08_, n)
#define FORTRAN_BOTH(name, n, n1) \
	FORTRAN(name, n)          \
	FORTRAN(i##name, n1)

#define PARAMS_2  void *a, void *b
#define PARAMS_3  PARAMS_2, void *c
#define PARAMS_6  PARAMS_3, void *d, void *e, void *f
#define PARAMS_7  PARAMS_6, void *g
#define PARAMS_8  PARAMS_7, void *h
#define PARAMS_9  PARAMS_8, void *i
#define PARAMS_10 PARAMS_9, void *j
#define PARAMS_11 PARAMS_10, void *k
#define PARAMS_13 PARAMS_11, void *l, void *m
#define ARGS_2	  a, b
#define ARGS_3	  ARGS_2, c
#define ARGS_6	  ARGS_3, d, e, f
#define ARGS_7	  ARGS_6, g
#define ARGS_8	  ARGS_7, h
#define ARGS_9	  ARGS_8, i
#define ARGS_10	  ARGS_9, j
#define ARGS_11	  ARGS_10, k
#define ARGS_13	  ARGS_11, l, m

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
FORTRAN_BOTH(bcast, 6, 7)
FORTRAN_BOTH(scatter, 9, 10)
FORTRAN_BOTH(scatterv, 10, 11)
FORTRAN_BOTH(gather, 9, 10)
FORTRAN_BOTH(gatherv, 10, 11)
FORTRAN_BOTH(allgather, 8, 9)
FORTRAN_BOTH(allgatherv, 9, 10)
FORTRAN_BOTH(alltoall, 8, 9)
FORTRAN_BOTH(alltoallv, 10, 11)
FORTRAN_BOTH(reduce, 8, 9)
FORTRAN_BOTH(allreduce, 7, 8)
FORTRAN_BOTH(reduce_scatter, 7, 8)
FORTRAN_BOTH(reduce_scatter_block, 7, 8)
FORTRAN_BOTH(scan, 7, 8)
