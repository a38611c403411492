/* SPDX-License-Identifier: BSD-2-Clause */
/* Prints which libraries of PSM an MPI program has loaded, each once, and that
 * it has exchanged a message. */
#include <stdio.h>
#include <string.h>

#include <mpi.h>

static void print_libraries(int rank)
{
	char line[4096], last[4096] = "";
	FILE *maps = fopen("/proc/self/maps", "r");

	while (maps && fgets(line, sizeof(line), maps)) {
		const char *path = strchr(line, '/');

		if (!path || !strstr(path, "libpsm") || !strcmp(path, last))
			continue;
		snprintf(last, sizeof(last), "%s", path);
		printf("%d %s", rank, path);
	}
	if (maps)
		fclose(maps);
}

int main(int argc, char **argv)
{
	int rank, sum;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	print_libraries(rank);
	printf("%d sum %d\n", rank, sum);
	return MPI_Finalize();
}
