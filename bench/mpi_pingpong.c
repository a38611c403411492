/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mpi_pingpong MIN MAX [WHAT] -- for `pinion bench mpi`: prints a line "bytes
 * microseconds microseconds loop" per size, each size four times the one
 * before. The first figure is the median of trips that are timed one by one;
 * the second the mean of many in a row without reading a clock between them,
 * the median of several such means; the last is the loop time of the slowest
 * rank's core (core_speed.h), before or after.
 *   pingpong  half a round trip between two ranks
 *   bcast     a broadcast and the answer, an empty message of the last rank to
 *             the root; half of that
 *   scatter   the same, with so many bytes for each rank
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/core_speed.h"

#define MOST  2000
#define WARM  20
#define MEANS 3

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static int rank, nranks;

static void ping_pong(char *buf, int n)
{
	if (!rank)
		MPI_Send(buf, n, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
	MPI_Recv(buf, n, MPI_BYTE, !rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (rank)
		MPI_Send(buf, n, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
}

static void answer(void)
{
	if (rank == nranks - 1)
		MPI_Send(NULL, 0, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
	if (!rank)
		MPI_Recv(NULL, 0, MPI_BYTE, nranks - 1, 1, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
}

static void broadcast(char *buf, int n)
{
	MPI_Bcast(buf, n, MPI_BYTE, 0, MPI_COMM_WORLD);
	answer();
}

static void scatter(char *buf, int n)
{
	char *mine = buf + (size_t)n * (size_t)nranks;

	MPI_Scatter(buf, n, MPI_BYTE, mine, n, MPI_BYTE, 0, MPI_COMM_WORLD);
	answer();
}

typedef void trip_fn(char *buf, int n);

static trip_fn *trip_for(const char *what)
{
	if (!strcmp(what, "bcast"))
		return broadcast;
	return strcmp(what, "scatter") ? ping_pong : scatter;
}

static double time_of(trip_fn *trip, char *buf, int n)
{
	double start = MPI_Wtime();

	trip(buf, n);
	return MPI_Wtime() - start;
}

static double median(double *of, int n)
{
	qsort(of, (size_t)n, sizeof(*of), compare);
	return of[n / 2];
}

static bool is_short(long n)
{
	return n < 1 << 16;
}

static double clocked(trip_fn *trip, char *buf, long n)
{
	static double trips[MOST];
	int times = is_short(n) ? MOST : MOST / 10;

	for (int i = 0; i < times; i++)
		trips[i] = time_of(trip, buf, (int)n);
	return median(trips, times);
}

static double unclocked(trip_fn *trip, char *buf, long n)
{
	double means[MEANS];
	int times = is_short(n) ? 1000 : 100;
	int nmeans = is_short(n) ? MEANS : 1;

	for (int i = 0; i < nmeans; i++) {
		double start = MPI_Wtime();

		for (int k = 0; k < times; k++)
			trip(buf, (int)n);
		means[i] = (MPI_Wtime() - start) / times;
	}
	return median(means, nmeans);
}

static void measure(trip_fn *trip, char *buf, long n)
{
	double one, mean, before = pn_core_loop_ns(), after, loop_ns;

	for (int i = 0; i < WARM; i++)
		trip(buf, (int)n);
	one = clocked(trip, buf, n);
	mean = unclocked(trip, buf, n);
	after = pn_core_loop_ns();
	loop_ns = before > after ? before : after;
	MPI_Reduce(rank ? &loop_ns : MPI_IN_PLACE, &loop_ns, 1, MPI_DOUBLE,
		   MPI_MAX, 0, MPI_COMM_WORLD);
	if (!rank)
		printf("%ld %.3f %.3f %.0f\n", n, one * 1e6 / 2, mean * 1e6 / 2,
		       loop_ns);
}

int main(int argc, char **argv)
{
	long min = argc > 2 ? atol(argv[1]) : 1;
	long max = argc > 2 ? atol(argv[2]) : 1 << 20;
	trip_fn *trip = trip_for(argc > 3 ? argv[3] : "pingpong");
	size_t room;
	char *buf;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nranks);
	room = (size_t)max * (size_t)(nranks + 1);
	buf = malloc(room);
	memset(buf, rank, room);
	for (long n = min; n <= max; n *= 4)
		measure(trip, buf, n);
	free(buf);
	MPI_Finalize();
	return 0;
}
