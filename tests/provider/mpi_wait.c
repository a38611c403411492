/* SPDX-License-Identifier: BSD-2-Clause */
/* mpi_wait WHAT -- ranks that wait for each other, for the watchdog. Two of
 * them wait forever; with `compute` and `sleep` rank 0 waits for rank 1, which
 * makes no MPI call for a while. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "mpi_need.h"

#define LONG_BYTES 4000000
#define AWAY_S	   8

static char buffer[LONG_BYTES];

static void receive(int from, int bytes, int tag, MPI_Comm comm)
{
	MPI_Recv(buffer, bytes, MPI_BYTE, from, tag, comm, MPI_STATUS_IGNORE);
}

/* Each waits for a message of the other; rank 1 in another communicator. */
static void deadlock(void)
{
	MPI_Comm other;

	MPI_Comm_dup(MPI_COMM_WORLD, &other);
	if (rank)
		receive(MPI_ANY_SOURCE, 77, MPI_ANY_TAG, other);
	else
		receive(1, 1234, 42, MPI_COMM_WORLD);
}

/* Rank 0 has a long message for rank 1, which is in a barrier. */
static void lonely_send(void)
{
	if (rank)
		MPI_Barrier(MPI_COMM_WORLD);
	else
		MPI_Send(buffer, LONG_BYTES, MPI_BYTE, 1, 5, MPI_COMM_WORLD);
}

/* The same with a short message that must be received. */
static void synchronous_send(void)
{
	if (rank)
		receive(0, 8, 6, MPI_COMM_WORLD);
	else
		MPI_Ssend(buffer, 8, MPI_BYTE, 1, 7, MPI_COMM_WORLD);
}

static void compute(void)
{
	struct timespec begin, now;
	volatile double x = 1;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		for (int i = 0; i < 1000000; i++)
			x = x * 1.0000001;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - begin.tv_sec < AWAY_S);
}

static void wait_for_rank_1(const char *what)
{
	if (!rank) {
		receive(1, 8, 9, MPI_COMM_WORLD);
		return;
	}
	if (!strcmp(what, "compute"))
		compute();
	else
		sleep(AWAY_S);
	MPI_Send(buffer, 8, MPI_BYTE, 0, 9, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (!strcmp(what, "deadlock"))
		deadlock();
	else if (!strcmp(what, "send"))
		lonely_send();
	else if (!strcmp(what, "ssend"))
		synchronous_send();
	else
		wait_for_rank_1(what);
	MPI_Finalize();
	return 0;
}
