/* SPDX-License-Identifier: BSD-2-Clause */
/* An MPI program that uses most calls and prints a digest of what it received,
 * section by section: the same over every transport. A fact that does not hold
 * ends the job. */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "mpi_need.h"

#define MOST	 (1 << 20)
#define NTHREADS 4

static int nranks, next, prev;
static uint64_t digest;

static void take(const void *data, size_t len)
{
	digest = hash(digest, data, len);
}

static void fill(uint8_t *buf, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)(i * 13 + seed * 101 + i / 509);
}

/* Rank 0 prints a digest of what all ranks received since the last call. */
static void section(const char *name)
{
	uint64_t all[64];

	MPI_Gather(&digest, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, 0,
		   MPI_COMM_WORLD);
	if (!rank)
		printf("%s %016llx\n", name,
		       (unsigned long long)hash(0, all, nranks * sizeof(*all)));
	fflush(stdout);
	digest = 0;
}

/* --- point to point ------------------------------------------------------- */

typedef int send_fn(const void *buf, int n, MPI_Datatype type, int to, int tag,
		    MPI_Comm comm);

/* Around the ring; the receive is posted before a ready send begins. */
static void ring(send_fn *send, uint8_t *out, uint8_t *in, int len)
{
	MPI_Request request;
	MPI_Status status;
	int n;

	fill(out, (size_t)len, (unsigned)rank);
	MPI_Irecv(in, MOST, MPI_BYTE, prev, 3, MPI_COMM_WORLD, &request);
	MPI_Barrier(MPI_COMM_WORLD);
	send(out, len, MPI_BYTE, next, 3, MPI_COMM_WORLD);
	MPI_Wait(&request, &status);
	MPI_Get_count(&status, MPI_BYTE, &n);
	NEED(n == len && status.MPI_SOURCE == prev && status.MPI_TAG == 3);
	take(in, (size_t)len);
}

static void modes(uint8_t *out, uint8_t *in)
{
	static send_fn *const sends[] = { MPI_Send, MPI_Ssend, MPI_Bsend,
					  MPI_Rsend };
	static const int sizes[] = { 0,	   1,	  127,	 128,	 4096,
				     9000, 65536, 70001, 262144, MOST };
	int room = MOST + MPI_BSEND_OVERHEAD;
	void *buffer = malloc((size_t)room);

	MPI_Buffer_attach(buffer, room);
	for (size_t m = 0; m < 4; m++)
		for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
			ring(sends[m], out, in, sizes[s]);
	MPI_Buffer_detach(&buffer, &room);
	free(buffer);
}

/* Hundreds of messages in flight, completed in any order; some receives are
 * posted late. */
static void many(uint8_t *out, uint8_t *in)
{
	enum { N = 200, LEN = 3000 };
	MPI_Request requests[2 * N];

	fill(out, N * LEN, (unsigned)rank);
	for (int i = 0; i < N; i++)
		MPI_Isend(out + i * LEN, LEN, MPI_BYTE, next, i, MPI_COMM_WORLD,
			  &requests[i]);
	for (int i = N - 1; i >= 0; i--)
		MPI_Irecv(in + i * LEN, LEN, MPI_BYTE, prev, i, MPI_COMM_WORLD,
			  &requests[N + i]);
	MPI_Waitall(2 * N, requests, MPI_STATUSES_IGNORE);
	take(in, N * LEN);
}

static void persistent(uint8_t *out, uint8_t *in)
{
	MPI_Request requests[2];

	MPI_Send_init(out, 100000, MPI_BYTE, next, 1, MPI_COMM_WORLD,
		      &requests[0]);
	MPI_Recv_init(in, 100000, MPI_BYTE, prev, 1, MPI_COMM_WORLD,
		      &requests[1]);
	for (unsigned i = 0; i < 50; i++) {
		fill(out, 100000, i);
		MPI_Startall(2, requests);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
		take(in, 100000);
	}
	MPI_Request_free(&requests[0]);
	MPI_Request_free(&requests[1]);
}

/* A block of bytes at a displacement from the buffer. */
static MPI_Datatype block_at(MPI_Aint displacement, int len)
{
	MPI_Datatype type;

	MPI_Type_create_hindexed(1, &len, &displacement, MPI_BYTE, &type);
	MPI_Type_commit(&type);
	return type;
}

static MPI_Datatype block_of(const void *data, int len)
{
	MPI_Aint at;

	MPI_Get_address(data, &at);
	return block_at(at, len);
}

/* Buffers that begin elsewhere than the address that MPI is given. */
static void displaced(uint8_t *out, uint8_t *in, int len)
{
	MPI_Datatype from = block_of(out, len), to = block_of(in, len),
		     behind = block_at(64, len);
	MPI_Request requests[4];

	fill(out, MOST, (unsigned)rank);
	memset(in, 0, MOST);
	MPI_Send_init(MPI_BOTTOM, 1, from, next, 1, MPI_COMM_WORLD,
		      &requests[0]);
	MPI_Recv_init(MPI_BOTTOM, 1, to, prev, 1, MPI_COMM_WORLD, &requests[1]);
	MPI_Ssend_init(out + 300, 1, behind, next, 2, MPI_COMM_WORLD,
		       &requests[2]);
	MPI_Recv_init(in + MOST / 2, 1, behind, prev, 2, MPI_COMM_WORLD,
		      &requests[3]);
	for (int i = 0; i < 3; i++) {
		MPI_Startall(4, requests);
		MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
		take(in, MOST);
	}
	for (int i = 0; i < 4; i++)
		MPI_Request_free(&requests[i]);
	MPI_Type_free(&behind);
	MPI_Type_free(&from);
	MPI_Type_free(&to);
}

/* MPI_Alltoallw() from and to MPI_BOTTOM, and MPI_Alltoallv() of a displaced
 * block. */
static void displaced_all(uint8_t *out, uint8_t *in, int len)
{
	int one[64], zero[64] = { 0 }, order[64];
	MPI_Datatype from[64], to[64], block = block_at(16, len);

	fill(out, MOST, (unsigned)rank);
	memset(in, 0, MOST);
	for (int i = 0; i < nranks; i++) {
		one[i] = 1;
		order[i] = i;
		from[i] = block_of(out + i * len, len);
		to[i] = block_of(in + (nranks - 1 - i) * len, len);
	}
	MPI_Alltoallw(MPI_BOTTOM, one, zero, from, MPI_BOTTOM, one, zero, to,
		      MPI_COMM_WORLD);
	take(in, MOST);
	MPI_Alltoallv(out, one, order, block, in, one, order, block,
		      MPI_COMM_WORLD);
	take(in, MOST);
	for (int i = 0; i < nranks; i++) {
		MPI_Type_free(&from[i]);
		MPI_Type_free(&to[i]);
	}
	MPI_Type_free(&block);
}

/* Messages of MPI_Ssend() that are received by MPI_Mrecv(), MPI_Imrecv() and
 * MPI_Recv() in turns, with one tag: each is acknowledged once. */
static void synchronous_probes(uint8_t *out, uint8_t *in)
{
	MPI_Request request, receive;
	MPI_Message message;
	MPI_Status status;
	int done;

	for (int i = 0; i < 30; i++) {
		int len = i % 2 ? 100 : 200000;

		fill(out, (size_t)len, (unsigned)(rank + i));
		MPI_Issend(out, len, MPI_BYTE, next, 7, MPI_COMM_WORLD,
			   &request);
		MPI_Barrier(MPI_COMM_WORLD);
		/* A message before that was acknowledged twice ends this one
		 * too early. */
		MPI_Test(&request, &done, MPI_STATUS_IGNORE);
		NEED(!done);
		MPI_Barrier(MPI_COMM_WORLD);
		if (i % 3 == 2) {
			MPI_Recv(in, MOST, MPI_BYTE, prev, 7, MPI_COMM_WORLD,
				 &status);
		} else {
			MPI_Mprobe(i % 3 ? prev : MPI_ANY_SOURCE, 7,
				   MPI_COMM_WORLD, &message, &status);
			if (i % 3)
				MPI_Mrecv(in, MOST, MPI_BYTE, &message,
					  &status);
			else {
				MPI_Imrecv(in, MOST, MPI_BYTE, &message,
					   &receive);
				MPI_Wait(&receive, &status);
			}
		}
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		take(in, (size_t)len);
	}
}

static void probes(uint8_t *out, uint8_t *in)
{
	MPI_Request request;
	MPI_Message message;
	MPI_Status status;
	int n, found = 0;

	for (int i = 0; i < 20; i++) {
		int len = i % 2 ? 100 : 200000;

		fill(out, (size_t)len, (unsigned)i);
		MPI_Isend(out, len, MPI_BYTE, next, i, MPI_COMM_WORLD,
			  &request);
		if (i % 4 < 2) {
			MPI_Probe(MPI_ANY_SOURCE, i, MPI_COMM_WORLD, &status);
			MPI_Recv(in, MOST, MPI_BYTE, status.MPI_SOURCE, i,
				 MPI_COMM_WORLD, &status);
		} else {
			for (found = 0; !found;)
				MPI_Improbe(prev, MPI_ANY_TAG, MPI_COMM_WORLD,
					    &found, &message, &status);
			MPI_Mrecv(in, MOST, MPI_BYTE, &message, &status);
		}
		MPI_Get_count(&status, MPI_BYTE, &n);
		NEED(n == len && status.MPI_TAG == i);
		MPI_Wait(&request, MPI_STATUS_IGNORE);
		take(in, (size_t)len);
	}
	MPI_Iprobe(MPI_ANY_SOURCE, 999, MPI_COMM_WORLD, &found, &status);
	NEED(!found);
}

static void cancels(uint8_t *in)
{
	MPI_Request request;
	MPI_Status status;
	int cancelled;

	for (int i = 0; i < 20; i++) {
		MPI_Irecv(in, 100, MPI_BYTE, i % 2 ? prev : MPI_ANY_SOURCE,
			  5000, MPI_COMM_WORLD, &request);
		MPI_Cancel(&request);
		MPI_Wait(&request, &status);
		MPI_Test_cancelled(&status, &cancelled);
		NEED(cancelled);
	}
	take("cancelled", 9);
}

static void truncation(uint8_t *out, uint8_t *in)
{
	MPI_Request request;
	int class, error;

	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	MPI_Isend(out, 1000, MPI_BYTE, next, 6, MPI_COMM_WORLD, &request);
	error = MPI_Recv(in, 500, MPI_BYTE, prev, 6, MPI_COMM_WORLD,
			 MPI_STATUS_IGNORE);
	MPI_Error_class(error, &class);
	NEED(class == MPI_ERR_TRUNCATE);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
	take("truncated", 9);
}

static void types(uint8_t *out, uint8_t *in)
{
	int lens[] = { 3, 1, 100 }, at[] = { 0, 50, 1000 };
	MPI_Datatype vector, indexed;

	MPI_Type_vector(500, 3, 7, MPI_DOUBLE, &vector);
	MPI_Type_indexed(3, lens, at, MPI_INT, &indexed);
	MPI_Type_commit(&vector);
	MPI_Type_commit(&indexed);
	fill(out, MOST, (unsigned)rank);
	memset(in, 0, MOST);
	MPI_Sendrecv(out, 5, vector, next, 1, in, 5, vector, prev, 1,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	take(in, MOST);
	MPI_Sendrecv(out, 4, indexed, next, 1, in, 4, indexed, prev, 1,
		     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	take(in, MOST);
	MPI_Type_free(&vector);
	MPI_Type_free(&indexed);
}

/* --- all together --------------------------------------------------------- */

static void collectives(uint8_t *out, uint8_t *in)
{
	static const int counts[] = { 1, 100, 20000 };

	for (size_t c = 0; c < 3; c++) {
		int n = counts[c];
		size_t bytes = (size_t)n * sizeof(int);

		for (int root = 0; root < nranks; root++) {
			fill(out, bytes * (size_t)nranks, (unsigned)rank);
			MPI_Bcast(out, n, MPI_INT, root, MPI_COMM_WORLD);
			take(out, bytes);
			MPI_Scatter(out, n, MPI_INT, in, n, MPI_INT, root,
				    MPI_COMM_WORLD);
			take(in, bytes);
		}
		fill(out, bytes * (size_t)nranks, (unsigned)rank);
		MPI_Allreduce(out, in, n, MPI_UNSIGNED, MPI_SUM,
			      MPI_COMM_WORLD);
		take(in, bytes);
		MPI_Scan(out, in, n, MPI_UNSIGNED, MPI_BXOR, MPI_COMM_WORLD);
		take(in, bytes);
		MPI_Allgather(out, n, MPI_INT, in, n, MPI_INT, MPI_COMM_WORLD);
		take(in, bytes * (size_t)nranks);
		MPI_Alltoall(out, n, MPI_INT, in, n, MPI_INT, MPI_COMM_WORLD);
		take(in, bytes * (size_t)nranks);
	}
}

static void churn(void)
{
	for (int i = 0; i < 50; i++) {
		MPI_Comm copy, half;
		int sum, mine = rank * 100 + i;

		MPI_Comm_dup(MPI_COMM_WORLD, &copy);
		MPI_Comm_split(copy, rank % 2, -rank, &half);
		MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, half);
		take(&sum, sizeof(sum));
		MPI_Sendrecv(&sum, 1, MPI_INT, next, 0, &mine, 1, MPI_INT, prev,
			     0, copy, MPI_STATUS_IGNORE);
		take(&mine, sizeof(mine));
		MPI_Comm_free(&half);
		MPI_Comm_free(&copy);
	}
}

/* --- threads -------------------------------------------------------------- */

struct thread {
	pthread_t thread;
	int number;
	uint64_t digest;
};

static void *exchange(void *arg)
{
	struct thread *t = arg;
	uint8_t *out = malloc(100000), *in = malloc(100000);

	for (int i = 0; i < 100; i++) {
		int len = i % 10 ? 64 * i : 100000;

		fill(out, (size_t)len, (unsigned)(t->number + i));
		MPI_Sendrecv(out, len, MPI_BYTE, next, t->number, in, len,
			     MPI_BYTE, prev, t->number, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		t->digest = hash(t->digest, in, (size_t)len);
	}
	free(out);
	free(in);
	return NULL;
}

static void threads(void)
{
	struct thread all[NTHREADS] = { 0 };

	for (int i = 0; i < NTHREADS; i++) {
		all[i].number = 100 + i;
		NEED(!pthread_create(&all[i].thread, NULL, exchange, &all[i]));
	}
	for (int i = 0; i < NTHREADS; i++) {
		pthread_join(all[i].thread, NULL);
		take(&all[i].digest, sizeof(all[i].digest));
	}
}

/* --- a rank that dies ----------------------------------------------------- */

static void die(void)
{
	char c = 0;

	if (rank == nranks - 1)
		raise(SIGKILL);
	/* From no living rank. */
	MPI_Recv(&c, 1, MPI_CHAR, nranks - 1, 9, MPI_COMM_WORLD,
		 MPI_STATUS_IGNORE);
}

/* The last rank is killed by its timer while all are in collectives. */
static void die_in_collectives(uint8_t *out, uint8_t *in)
{
	struct itimerval soon = { .it_value = { .tv_usec = 200000 } };

	signal(SIGALRM, SIG_DFL);
	if (rank == nranks - 1)
		setitimer(ITIMER_REAL, &soon, NULL);
	for (;;)
		collectives(out, in);
}

int main(int argc, char **argv)
{
	uint8_t *out, *in;
	int provided;

	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nranks);
	NEED(provided == MPI_THREAD_MULTIPLE && nranks <= 64);
	next = (rank + 1) % nranks;
	prev = (rank + nranks - 1) % nranks;
	out = malloc(MOST);
	in = malloc(MOST);
	modes(out, in), section("modes");
	many(out, in), section("many");
	persistent(out, in), section("persistent");
	displaced(out, in, 100), displaced(out, in, 200000);
	section("displaced");
	displaced_all(out, in, 100), displaced_all(out, in, 5000);
	section("displaced_all");
	probes(out, in), section("probes");
	synchronous_probes(out, in), section("synchronous_probes");
	cancels(in), section("cancels");
	truncation(out, in), section("truncation");
	types(out, in), section("types");
	collectives(out, in), section("collectives");
	churn(), section("churn");
	threads(), section("threads");
	if (argc > 1 && !strcmp(argv[1], "die"))
		die();
	if (argc > 1 && !strcmp(argv[1], "die_in_collectives"))
		die_in_collectives(out, in);
	free(out);
	free(in);
	MPI_Finalize();
	return 0;
}
