/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * mpi_patterns PATTERN MIN MAX FACTOR WINDOWS WARM US -- the ranks of `pinion
 * bench mpi`. Prints a line "bytes window microseconds learning loop" per size
 * and window: the mean time of an operation, that of the operations before it
 * (0: none), and the loop time of the slowest rank's core (core_speed.h),
 * before or after. Sizes begin at MIN and grow by FACTOR; WINDOWS is a list
 * such as 1,4,16.
 *
 * Point-to-point loops are those of the OSU benchmarks, with one buffer out and
 * one in:
 *   latency    half a round trip between two ranks
 *   stream     a message: as many as the window are sent without waiting, and
 *              the receiver answers the last one
 *   bistream   the same in both directions at once, without an answer
 *   rate       as stream, of as many pairs of ranks as there are
 *   allreduce, alltoall, allgather
 *              one collective of many in a row; bytes are those of one rank,
 *              and allreduce sums them up as floats, if they are some
 *   bcast, scatter
 *              the same with a barrier behind each, since the root would
 *              otherwise run ahead. The OSU benchmarks time each collective
 *              by itself, without the barrier, and take the mean of the ranks:
 *              with more ranks than cores that leaves out the time that a rank
 *              waits for its core
 *   halo       a step of an application: computes, exchanges bytes with the
 *              neighbours in each direction of a two-dimensional grid, one
 *              after the other (as LAMMPS does: irecv, send, wait), once to
 *              and once back, and sums up 6 doubles of all
 *   none       nothing: the job starts and ends, and prints nothing
 *
 * WARM messages go first, from which a transport may learn, but for no longer
 * than WARM_S. Then batches of operations follow, each longer than the one
 * before, until one takes US microseconds: that one is the result, as the
 * slowest rank sees it.
 */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/core_speed.h"

#define ALL	   MPI_COMM_WORLD
#define IGNORE	   MPI_STATUS_IGNORE
#define MAX_WINDOW 1024
#define MAX_BATCH  (1 << 22)
#define WARM_S	   5.

static int rank, nranks;

/* What an operation transfers. */
struct shape {
	int bytes, window;
	char *out, *in; /* nranks * bytes each */
};

typedef void operation_fn(const struct shape *s);

/* --- between two ranks ---------------------------------------------------- */

static void latency(const struct shape *s)
{
	if (!rank)
		MPI_Send(s->out, s->bytes, MPI_BYTE, 1, 0, ALL);
	MPI_Recv(s->in, s->bytes, MPI_BYTE, !rank, 0, ALL, IGNORE);
	if (rank)
		MPI_Send(s->out, s->bytes, MPI_BYTE, 0, 0, ALL);
}

static MPI_Request requests[2 * MAX_WINDOW];
static MPI_Status statuses[MAX_WINDOW];

static void post_sends(const struct shape *s, int to, MPI_Request *r)
{
	for (int i = 0; i < s->window; i++)
		MPI_Isend(s->out, s->bytes, MPI_BYTE, to, 1, ALL, &r[i]);
}

static void post_receives(const struct shape *s, int from, MPI_Request *r)
{
	for (int i = 0; i < s->window; i++)
		MPI_Irecv(s->in, s->bytes, MPI_BYTE, from, 1, ALL, &r[i]);
}

/* Rank r of the first half sends to rank r + nranks / 2. */
static void stream(const struct shape *s)
{
	int pairs = nranks / 2, answer = 0;

	if (rank < pairs) {
		post_sends(s, rank + pairs, requests);
		MPI_Waitall(s->window, requests, statuses);
		MPI_Recv(&answer, 1, MPI_INT, rank + pairs, 2, ALL, IGNORE);
	} else if (rank < 2 * pairs) {
		post_receives(s, rank - pairs, requests);
		MPI_Waitall(s->window, requests, statuses);
		MPI_Send(&answer, 1, MPI_INT, rank - pairs, 2, ALL);
	}
}

static void bistream(const struct shape *s)
{
	MPI_Request *sends = requests + s->window;

	post_receives(s, !rank, requests);
	post_sends(s, !rank, sends);
	MPI_Waitall(s->window, sends, statuses);
	MPI_Waitall(s->window, requests, statuses);
}

/* --- among all ranks ------------------------------------------------------ */

static void allreduce(const struct shape *s)
{
	int floats = s->bytes % (int)sizeof(float) == 0;

	MPI_Allreduce(s->out, s->in,
		      floats ? s->bytes / (int)sizeof(float) : s->bytes,
		      floats ? MPI_FLOAT : MPI_UINT8_T, MPI_SUM, ALL);
}

static void alltoall(const struct shape *s)
{
	MPI_Alltoall(s->out, s->bytes, MPI_BYTE, s->in, s->bytes, MPI_BYTE,
		     ALL);
}

static void allgather(const struct shape *s)
{
	MPI_Allgather(s->out, s->bytes, MPI_BYTE, s->in, s->bytes, MPI_BYTE,
		      ALL);
}

static void bcast(const struct shape *s)
{
	MPI_Bcast(s->out, s->bytes, MPI_BYTE, 0, ALL);
	MPI_Barrier(ALL);
}

static void scatter(const struct shape *s)
{
	MPI_Scatter(s->out, s->bytes, MPI_BYTE, s->in, s->bytes, MPI_BYTE, 0,
		    ALL);
	MPI_Barrier(ALL);
}

#define COMPUTE 100000 /* about 100 us */

static void compute(void)
{
	double x = rank;

	for (int i = 0; i < COMPUTE; i++) {
		x = x * .999 + .5;
		__asm__ volatile("" : "+x"(x));
	}
}

/* The neighbours of this rank: left, right, up, down. */
static int neighbours[4];

static void make_grid(void)
{
	int sides[2] = { 0 }, periodic[2] = { 1, 1 };
	MPI_Comm grid;

	MPI_Dims_create(nranks, 2, sides);
	MPI_Cart_create(ALL, 2, sides, periodic, 0, &grid);
	for (int d = 0; d < 2; d++)
		MPI_Cart_shift(grid, d, 1, &neighbours[2 * d],
			       &neighbours[2 * d + 1]);
	MPI_Comm_free(&grid);
}

static void exchange(const struct shape *s)
{
	MPI_Request request;

	for (int n = 0; n < 4; n++) {
		if (neighbours[n] == rank)
			continue;
		MPI_Irecv(s->in, s->bytes, MPI_BYTE, neighbours[n ^ 1], 3, ALL,
			  &request);
		MPI_Send(s->out, s->bytes, MPI_BYTE, neighbours[n], 3, ALL);
		MPI_Wait(&request, IGNORE);
	}
}

static void halo(const struct shape *s)
{
	double sums[6] = { 1 };

	exchange(s);
	compute();
	exchange(s);
	MPI_Allreduce(MPI_IN_PLACE, sums, 6, MPI_DOUBLE, MPI_SUM, ALL);
}

/* --- timing --------------------------------------------------------------- */

static const struct pattern {
	const char *name;
	operation_fn *operation;
	int messages; /* of an operation and window: what a time is divided by
		       */
	bool pairs;   /* and by the pairs of ranks */
} patterns[] = {
	{ "latency", latency, 2, false },
	{ "stream", stream, 1, false },
	{ "bistream", bistream, 2, false },
	{ "rate", stream, 1, true },
	{ "allreduce", allreduce, 1, false },
	{ "alltoall", alltoall, 1, false },
	{ "allgather", allgather, 1, false },
	{ "bcast", bcast, 1, false },
	{ "scatter", scatter, 1, false },
	{ "halo", halo, 1, false },
};

#define NPATTERNS (sizeof(patterns) / sizeof(*patterns))

/* The greatest value of all ranks, in every rank. */
static double greatest(double value)
{
	MPI_Allreduce(MPI_IN_PLACE, &value, 1, MPI_DOUBLE, MPI_MAX, ALL);
	return value;
}

/* Seconds of n operations. */
static double time_batch(const struct pattern *p, const struct shape *s, int n)
{
	double start;

	MPI_Barrier(ALL);
	start = MPI_Wtime();
	for (int i = 0; i < n; i++)
		p->operation(s);
	return greatest(MPI_Wtime() - start);
}

/* Seconds of an operation, the mean of all; 0 if WARM is. */
static double warm_up(const struct pattern *p, const struct shape *s, long warm)
{
	int batch = (int)(warm / s->window / 8) + 1;
	double took = 0;
	long done = 0;

	for (; done * s->window < warm && took < WARM_S; done += batch)
		took += time_batch(p, s, batch);
	return done ? took / (double)done : 0;
}

/* Seconds of an operation, the mean of the last batch. */
static double time_of(const struct pattern *p, const struct shape *s,
		      double seconds)
{
	for (int n = 1;; n *= 2) {
		double took = time_batch(p, s, n);

		if (took >= seconds || n >= MAX_BATCH)
			return took / n;
		if (took < seconds / 8)
			n *= 4;
	}
}

struct attr {
	long min, max, factor, warm;
	double seconds;
};

static void measure(const struct pattern *p, const struct shape *s,
		    const struct attr *attr)
{
	double before = pn_core_loop_ns(), after, loop_ns, learning, timed;
	int messages = p->messages * s->window * (p->pairs ? nranks / 2 : 1);

	learning = warm_up(p, s, attr->warm) * 1e6 / messages;
	timed = time_of(p, s, attr->seconds) * 1e6 / messages;
	after = pn_core_loop_ns();
	loop_ns = greatest(before > after ? before : after);
	if (!rank)
		printf("%d %d %.4f %.4f %.0f\n", s->bytes, s->window, timed,
		       learning, loop_ns);
}

static char *buffer_of(size_t bytes)
{
	char *buf = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);

	if (!buf)
		MPI_Abort(ALL, 1);
	memset(buf, 0, bytes);
	return buf;
}

static void measure_all(const struct pattern *p, const struct attr *attr,
			const char *windows)
{
	size_t room = (size_t)attr->max * (size_t)nranks;
	struct shape s = { .out = buffer_of(room), .in = buffer_of(room) };

	for (long n = attr->min; n <= attr->max; n *= attr->factor)
		for (const char *w = windows; w; w = strchr(w, ',')) {
			w += *w == ',';
			s.bytes = (int)n;
			s.window = atoi(w);
			measure(p, &s, attr);
		}
	free(s.out);
	free(s.in);
}

int main(int argc, char **argv)
{
	const struct pattern *p = patterns;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(ALL, &rank);
	MPI_Comm_size(ALL, &nranks);
	if (argc > 7) {
		const struct attr attr = { atol(argv[2]), atol(argv[3]),
					   atol(argv[4]), atol(argv[6]),
					   atof(argv[7]) / 1e6 };

		while (p < patterns + NPATTERNS && strcmp(p->name, argv[1]))
			p++;
		make_grid();
		if (p < patterns + NPATTERNS)
			measure_all(p, &attr, argv[5]);
	}
	MPI_Finalize();
	return 0;
}
