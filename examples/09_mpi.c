/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 09_mpi -- an MPI program without any call of pinion.
 *
 * Each rank passes a buffer round the ring and adds to it. Started by Open MPI,
 * it uses the transport that Open MPI selects; started by `pinion mpirun`, its
 * messages go over pinion, and --report writes a page of what each rank
 * registered:
 *
 * 	mpicc 09_mpi.c && pinion mpirun --report ring.html -n 4 ./a.out
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define NUMBERS (1 << 20)
#define ROUNDS	5

/* Sends a to the next rank and receives b from the one before. */
static void pass_on(double *a, double *b, int rank, int n)
{
	MPI_Sendrecv(a, NUMBERS, MPI_DOUBLE, (rank + 1) % n, 0, b, NUMBERS,
		     MPI_DOUBLE, (rank + n - 1) % n, 0, MPI_COMM_WORLD,
		     MPI_STATUS_IGNORE);
}

int main(int argc, char **argv)
{
	double *a = calloc(NUMBERS, sizeof(*a));
	double *b = calloc(NUMBERS, sizeof(*b));
	double sum;
	int rank, n;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	if (!a || !b)
		MPI_Abort(MPI_COMM_WORLD, 1);
	for (int i = 0; i < ROUNDS * n; i++) {
		double *old = a;

		pass_on(a, b, rank, n);
		a = b;
		b = old;
		a[i] += rank;
	}
	MPI_Reduce(&a[0], &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("%d ranks, first numbers add up to %.0f\n", n, sum);
	MPI_Finalize();
	free(a);
	free(b);
	return 0;
}
