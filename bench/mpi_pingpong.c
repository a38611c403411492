/* SPDX-License-Identifier: BSD-2-Clause */
/* mpi_pingpong MIN MAX -- MPI ping-pong between two ranks, for `pinion bench
 * mpi`: a line "bytes microseconds" a size, each four times the one before;
 * half a round trip, the median. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 2000

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double round_trip(int rank, char *buf, int n)
{
	double start = MPI_Wtime();

	if (!rank)
		MPI_Send(buf, n, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
	MPI_Recv(buf, n, MPI_BYTE, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank)
		MPI_Send(buf, n, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	return MPI_Wtime() - start;
}

int main(int argc, char **argv)
{
	static double trips[MOST];
	long min = argc > 2 ? atol(argv[1]) : 1;
	long max = argc > 2 ? atol(argv[2]) : 1 << 20;
	int rank;
	char *buf;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	buf = malloc((size_t)max);
	memset(buf, rank, (size_t)max);
	for (long n = min; n <= max; n *= 4) {
		int times = n < 1 << 16 ? MOST : 200;

		for (int i = -20; i < times; i++) {
			double trip = round_trip(rank, buf, (int)n);

			if (i >= 0)
				trips[i] = trip;
		}
		qsort(trips, (size_t)times, sizeof(*trips), compare);
		if (!rank)
			printf("%ld %.3f\n", n, trips[times / 2] * 1e6 / 2);
	}
	free(buf);
	MPI_Finalize();
	return 0;
}
