/* SPDX-License-Identifier: BSD-2-Clause */
/* An MPI program that prints the call sites that the helper learns. It sends 64
 * KiB from two places in C and one in each kind of Fortran, in turns; it calls
 * two broadcasts, one of them nonblocking. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pinion/helper.h>

#define N     65536
#define TURNS 5

static int rank;
static int telling;

typedef int site_fn(const char *name);

/* Forwards the call to the library. */
__attribute__((visibility("default"))) int pinion_site_set(const char *name)
{
	site_fn *next;

	*(void **)&next = dlsym(RTLD_NEXT, "pinion_site_set");
	if (telling && !rank)
		printf("%s\n", name ? name : "none");
	return next ? next(name) : 0;
}

/* Called as a Fortran program does; looked up at run time, where Fortran's
 * library is present. */
typedef void fortran_send(void *buf, int *n, MPI_Fint *type, int *to, int *tag,
			  MPI_Fint *comm, int *error);

static inline __attribute__((always_inline)) void send_as_fortran(
	fortran_send *send, char *buf)
{
	MPI_Fint type = MPI_Type_c2f(MPI_BYTE);
	MPI_Fint comm = MPI_Comm_c2f(MPI_COMM_WORLD);
	int n = N, to = 1, tag = 0, error = 1;

	send(buf, &n, &type, &to, &tag, &comm, &error);
	if (error)
		MPI_Abort(MPI_COMM_WORLD, 1);
}

static fortran_send *find_fortran(const char *library, const char *name)
{
	fortran_send *send;

	/* libpinion-pmpi.so has this function and calls MPI's. */
	if (!dlopen(library, RTLD_NOW | RTLD_GLOBAL))
		exit(1);
	*(void **)&send = dlsym(RTLD_DEFAULT, name);
	return send;
}

static void send_all(char *buf, fortran_send *send, fortran_send *send_f08)
{
	MPI_Send(buf, N, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
	MPI_Send(buf, N, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
	send_as_fortran(send, buf);
	send_as_fortran(send_f08, buf);
}

static void receive(char *buf)
{
	MPI_Recv(buf, N, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
	char *buf = calloc(1, N);
	fortran_send *send = find_fortran("libmpi_mpifh.so.40", "mpi_send_");
	fortran_send *send_f08 =
		find_fortran("libmpi_usempif08.so.40", "mpi_send_f08_");
	MPI_Request request;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	telling = 1;
	for (int i = 0; i < TURNS; i++) {
		for (int k = 0; rank && k < 4; k++)
			receive(buf);
		if (!rank)
			send_all(buf, send, send_f08);
		MPI_Bcast(buf, N, MPI_BYTE, 0, MPI_COMM_WORLD);
		MPI_Ibcast(buf, N, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
	}
	telling = 0;
	MPI_Finalize();
	free(buf);
	return 0;
}
