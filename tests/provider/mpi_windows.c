/* SPDX-License-Identifier: BSD-2-Clause */
/* An MPI program that uses all calls on windows and prints what the windows
 * hold after each section: the same over every transport. A fact that does not
 * hold ends the job. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mpi_need.h"

#define WORDS  4096 /* of 8 bytes, of each rank's window */
#define ROUNDS 10

static int nranks, next, prev;
static int64_t *memory;
static MPI_Win win;

static int64_t value(int from, int to, int i)
{
	return from * INT64_C(1000003) + to * 1009 + i;
}

static void clear(void)
{
	MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
	memset(memory, 0, WORDS * sizeof(*memory));
	MPI_Win_unlock(rank, win);
	MPI_Barrier(MPI_COMM_WORLD);
}

/* Rank 0 prints a digest of all windows; then they are cleared. */
static void section(const char *name)
{
	uint64_t mine, all[64];

	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	mine = hash(0, memory, WORDS * sizeof(*memory));
	MPI_Win_unlock(rank, win);
	MPI_Gather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, 0,
		   MPI_COMM_WORLD);
	if (!rank)
		printf("%s %016llx\n", name,
		       (unsigned long long)hash(0, all, nranks * sizeof(*all)));
	fflush(stdout);
	clear();
}

/* --- put and get ---------------------------------------------------------- */

static void fence(void)
{
	int64_t out[WORDS], in[WORDS];

	MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
	for (int i = 0; i < WORDS; i++)
		out[i] = value(rank, next, i);
	MPI_Put(out, WORDS, MPI_INT64_T, next, 0, WORDS, MPI_INT64_T, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < WORDS; i++)
		NEED(memory[i] == value(prev, rank, i));
	MPI_Get(in, WORDS, MPI_INT64_T, next, 0, WORDS, MPI_INT64_T, win);
	MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
	for (int i = 0; i < WORDS; i++)
		NEED(in[i] == value(rank, next, i));
	section("fence");
}

/* From MPI_BOTTOM: a message of its own for osc/pt2pt, since it is long. */
static void displaced(void)
{
	int64_t out[WORDS];
	int len = WORDS;
	MPI_Datatype block;
	MPI_Aint at;

	for (int i = 0; i < WORDS; i++)
		out[i] = value(rank, next, i + 1);
	MPI_Get_address(out, &at);
	MPI_Type_create_hindexed(1, &len, &at, MPI_INT64_T, &block);
	MPI_Type_commit(&block);
	MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
	MPI_Put(MPI_BOTTOM, 1, block, next, 0, WORDS, MPI_INT64_T, win);
	MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
	for (int i = 0; i < WORDS; i++)
		NEED(memory[i] == value(prev, rank, i + 1));
	MPI_Type_free(&block);
	section("displaced");
}

/* A window of shared memory: each rank reads the previous one's. */
static void shared(void)
{
	int64_t *mine, *theirs;
	MPI_Aint bytes;
	MPI_Win window;
	int unit;

	MPI_Win_allocate_shared(100 * sizeof(*mine), sizeof(*mine),
				MPI_INFO_NULL, MPI_COMM_WORLD, &mine, &window);
	for (int i = 0; i < 100; i++)
		mine[i] = value(rank, 0, i);
	MPI_Win_fence(0, window);
	MPI_Win_shared_query(window, prev, &bytes, &unit, &theirs);
	NEED(bytes == 100 * sizeof(*mine) && unit == sizeof(*mine));
	for (int i = 0; i < 100; i++)
		NEED(theirs[i] == value(prev, 0, i));
	memcpy(memory, theirs, 100 * sizeof(*mine));
	MPI_Win_fence(0, window);
	MPI_Win_free(&window);
	section("shared");
}

/* Post, start, complete, wait: each rank writes to the next. */
static void pscw(void)
{
	MPI_Group all, to, from;
	int64_t out[100];

	MPI_Comm_group(MPI_COMM_WORLD, &all);
	MPI_Group_incl(all, 1, &next, &to);
	MPI_Group_incl(all, 1, &prev, &from);
	for (int round = 0; round < ROUNDS; round++) {
		MPI_Win_post(from, 0, win);
		MPI_Win_start(to, 0, win);
		for (int i = 0; i < 100; i++)
			out[i] = value(rank, round, i);
		MPI_Put(out, 100, MPI_INT64_T, next, round * 100, 100,
			MPI_INT64_T, win);
		MPI_Win_complete(win);
		MPI_Win_wait(win);
		NEED(memory[round * 100 + 99] == value(prev, round, 99));
	}
	MPI_Group_free(&from);
	MPI_Group_free(&to);
	MPI_Group_free(&all);
	section("pscw");
}

/* Every rank writes its part of every window, strided, and reads it back. */
static void strided(void)
{
	int part = WORDS / nranks / 2;
	int64_t out[WORDS], in[WORDS];
	MPI_Request requests[2];
	MPI_Datatype every_other;

	MPI_Type_vector(part, 1, 2, MPI_INT64_T, &every_other);
	MPI_Type_commit(&every_other);
	MPI_Win_lock_all(0, win);
	for (int to = 0; to < nranks; to++) {
		MPI_Aint at = rank * part * 2;

		for (int i = 0; i < part; i++)
			out[i] = value(rank, to, i);
		MPI_Rput(out, part, MPI_INT64_T, to, at, 1, every_other, win,
			 &requests[0]);
		MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
		MPI_Win_flush(to, win);
		MPI_Rget(in, part, MPI_INT64_T, to, at, 1, every_other, win,
			 &requests[1]);
		MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
		NEED(!memcmp(in, out, part * sizeof(*in)));
	}
	MPI_Win_unlock_all(win);
	MPI_Type_free(&every_other);
	section("strided");
}

/* --- atomics -------------------------------------------------------------- */

/* All ranks accumulate into the same words of each window. */
static void accumulate(void)
{
	const MPI_Op ops[] = { MPI_SUM, MPI_MAX, MPI_BXOR, MPI_BOR };
	int64_t out[50];

	MPI_Win_lock_all(0, win);
	for (int to = 0; to < nranks; to++)
		for (int o = 0; o < 4; o++) {
			for (int i = 0; i < 50; i++)
				out[i] = value(rank, o, i);
			MPI_Accumulate(out, 50, MPI_INT64_T, to, o * 50, 50,
				       MPI_INT64_T, ops[o], win);
			MPI_Win_flush_local(to, win);
		}
	MPI_Win_unlock_all(win);
	section("accumulate");
}

/* Types other than 64-bit integers; the sums are exact in any order. */
static void types(void)
{
	double reals[20];
	float halves[20];
	int32_t ints[20];

	for (int i = 0; i < 20; i++) {
		reals[i] = rank + i * 0.5;
		halves[i] = (float)(rank * 2 + i);
		ints[i] = rank - i;
	}
	MPI_Win_fence(0, win);
	for (int to = 0; to < nranks; to++) {
		MPI_Accumulate(reals, 20, MPI_DOUBLE, to, 0, 20, MPI_DOUBLE,
			       MPI_SUM, win);
		MPI_Accumulate(halves, 20, MPI_FLOAT, to, 100, 20, MPI_FLOAT,
			       MPI_SUM, win);
		MPI_Accumulate(ints, 20, MPI_INT32_T, to, 200, 20, MPI_INT32_T,
			       MPI_MIN, win);
	}
	MPI_Win_fence(0, win);
	section("types");
}

/* Tickets: no two ranks get the same one, and none is skipped. */
static void fetch_and_op(void)
{
	int64_t one = 1, ticket, mark = 1;

	MPI_Win_lock_all(0, win);
	for (int i = 0; i < ROUNDS; i++) {
		MPI_Fetch_and_op(&one, &ticket, MPI_INT64_T, 0, 0, MPI_SUM,
				 win);
		MPI_Win_flush(0, win);
		NEED(ticket >= 0 && ticket < ROUNDS * nranks);
		MPI_Accumulate(&mark, 1, MPI_INT64_T, 0, 1 + ticket, 1,
			       MPI_INT64_T, MPI_SUM, win);
	}
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	if (!rank) {
		MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
		NEED(memory[0] == ROUNDS * nranks);
		for (int i = 1; i <= ROUNDS * nranks; i++)
			NEED(memory[i] == 1);
		MPI_Win_unlock(0, win);
	}
	section("fetch_and_op");
}

/* Adds one under a lock that is a word of the host's window. */
static void count_at(int host)
{
	int64_t nobody = 0, me = rank + 1, was, count;

	do {
		MPI_Compare_and_swap(&me, &nobody, &was, MPI_INT64_T, host, 0,
				     win);
		MPI_Win_flush(host, win);
	} while (was);
	MPI_Get(&count, 1, MPI_INT64_T, host, 1, 1, MPI_INT64_T, win);
	MPI_Win_flush(host, win);
	count++;
	MPI_Put(&count, 1, MPI_INT64_T, host, 1, 1, MPI_INT64_T, win);
	MPI_Win_flush(host, win);
	MPI_Compare_and_swap(&nobody, &me, &was, MPI_INT64_T, host, 0, win);
	MPI_Win_flush(host, win);
	NEED(was == me);
}

/* Not at its own rank: Open MPI 4.1's osc/rdma crashes there, with any btl. */
static void compare_and_swap(void)
{
	MPI_Win_lock_all(0, win);
	for (int i = 0; i < ROUNDS; i++)
		for (int host = 0; host < nranks; host++)
			if (host != rank)
				count_at(host);
	MPI_Win_unlock_all(win);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	NEED(!memory[0] && memory[1] == ROUNDS * (nranks - 1));
	MPI_Win_unlock(rank, win);
	section("compare_and_swap");
}

static void get_accumulate(void)
{
	int64_t out[10], in[10];

	MPI_Win_fence(0, win);
	for (int i = 0; i < 10; i++)
		out[i] = value(rank, next, i);
	MPI_Get_accumulate(out, 10, MPI_INT64_T, in, 10, MPI_INT64_T, next, 0,
			   10, MPI_INT64_T, MPI_REPLACE, win);
	MPI_Win_fence(0, win);
	for (int i = 0; i < 10; i++)
		NEED(!in[i] && memory[i] == value(prev, rank, i));
	MPI_Get_accumulate(NULL, 0, MPI_INT64_T, in, 10, MPI_INT64_T, next, 0,
			   10, MPI_INT64_T, MPI_NO_OP, win);
	MPI_Win_fence(0, win);
	NEED(!memcmp(in, out, sizeof(in)));
	section("get_accumulate");
}

/* --- locks ---------------------------------------------------------------- */

/* Reads, changes and writes under an exclusive lock. */
static void lock(void)
{
	int64_t count;

	for (int i = 0; i < ROUNDS; i++)
		for (int to = 0; to < nranks; to++) {
			MPI_Win_lock(MPI_LOCK_EXCLUSIVE, to, 0, win);
			MPI_Get(&count, 1, MPI_INT64_T, to, 7, 1, MPI_INT64_T,
				win);
			MPI_Win_flush(to, win);
			count += to + 1;
			MPI_Put(&count, 1, MPI_INT64_T, to, 7, 1, MPI_INT64_T,
				win);
			MPI_Win_unlock(to, win);
		}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
	NEED(memory[7] == (int64_t)ROUNDS * nranks * (rank + 1));
	MPI_Win_unlock(rank, win);
	section("lock");
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &nranks);
	next = (rank + 1) % nranks;
	prev = (rank + nranks - 1) % nranks;
	memory = calloc(WORDS, sizeof(*memory));
	MPI_Win_create(memory, WORDS * sizeof(*memory), sizeof(*memory),
		       MPI_INFO_NULL, MPI_COMM_WORLD, &win);
	clear();
	fence();
	displaced();
	shared();
	pscw();
	strided();
	accumulate();
	types();
	fetch_and_op();
	compare_and_swap();
	get_accumulate();
	lock();
	MPI_Win_free(&win);
	free(memory);
	MPI_Finalize();
	return 0;
}
