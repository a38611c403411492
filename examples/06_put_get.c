/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * 06_put_get -- several processes work on a table that one of them owns.
 *
 * The owner exposes the table and passes its key and its address to the
 * workers, here through pipes. Each worker draws row numbers with an atomic
 * add, gets the row, changes it and puts it back; the owner's CPU is not
 * involved. At the end each worker sends a report with a conditional write:
 * started whenever the worker is ready, and held until the owner grants a
 * buffer for it.
 *
 * 	cc 06_put_get.c $(pkg-config --cflags --libs pinion) && ./a.out
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/pinion.h>

#define NWORKERS 3
#define NROWS	 200
#define NCELLS	 1000

struct table {
	uint64_t next; /* next row; drawn with an atomic add */
	uint64_t rows[NROWS][NCELLS];
};

struct report {
	uint64_t rows;
};

/* Exchanged by owner and worker at the start. */
struct invitation {
	struct pinion_address address;
	struct pinion_exposure_key key;
};

static void stop(const char *what, int ret)
{
	fprintf(stderr, "%s: %s\n", what, strerror(-ret));
	exit(EXIT_FAILURE);
}

static void must(const char *what, int ret)
{
	if (ret)
		stop(what, ret);
}

static void open_endpoint(struct pinion_context **context,
			  struct pinion_endpoint **ep)
{
	must("pinion_open", pinion_open(NULL, context));
	must("pinion_endpoint_open", pinion_endpoint_open(*context, NULL, ep));
}

/* --- a worker ------------------------------------------------------------- */

struct worker {
	struct pinion_endpoint *ep;
	struct pinion_peer *owner;
	struct pinion_remote *table;
};

static uint64_t draw_row(struct worker *w)
{
	uint64_t row;
	struct pinion_atomic draw = { .size = sizeof(draw),
				      .remote = w->table,
				      .operand = 1,
				      .result = &row };
	struct pinion_request *request;

	must("pinion_atomic_fetch_add",
	     pinion_atomic_fetch_add(w->ep, &draw, &request));
	must("draw", pinion_wait(w->ep, request, PINION_FOREVER, NULL));
	return row;
}

static void work_on(struct worker *w, uint64_t row)
{
	uint64_t cells[NCELLS];
	struct pinion_move move = { .size = sizeof(move),
				    .remote = w->table,
				    .offset = offsetof(struct table, rows) +
					      row * sizeof(cells),
				    .buf = cells,
				    .len = sizeof(cells) };
	struct pinion_request *request;

	must("pinion_get", pinion_get(w->ep, &move, &request));
	must("get", pinion_wait(w->ep, request, PINION_FOREVER, NULL));
	for (unsigned i = 0; i < NCELLS; i++)
		cells[i] *= 2;
	must("pinion_put", pinion_put(w->ep, &move, &request));
	must("put", pinion_wait(w->ep, request, PINION_FOREVER, NULL));
}

static void work(int in, int out)
{
	struct pinion_message message = { .size = sizeof(message),
					  .len = sizeof(struct report) };
	struct pinion_context *context;
	struct pinion_request *request;
	struct invitation invitation;
	struct pinion_address mine;
	struct report report = { 0 };
	struct worker w;

	open_endpoint(&context, &w.ep);
	must("address", pinion_endpoint_address(w.ep, &mine));
	if (read(in, &invitation, sizeof(invitation)) != sizeof(invitation) ||
	    write(out, &mine, sizeof(mine)) != sizeof(mine))
		stop("the owner is gone", -EPIPE);
	must("peer", pinion_peer_add(w.ep, &invitation.address, &w.owner));
	must("pinion_remote_open",
	     pinion_remote_open(w.ep, w.owner, &invitation.key, &w.table));
	for (;;) {
		uint64_t row = draw_row(&w);

		if (row >= NROWS)
			break;
		work_on(&w, row);
		report.rows++;
	}
	message.buf = &report;
	message.peer = w.owner;
	must("pinion_put_when", pinion_put_when(w.ep, &message, &request));
	must("report", pinion_wait(w.ep, request, PINION_FOREVER, NULL));
	pinion_close(context);
}

/* --- the owner ------------------------------------------------------------ */

static uint64_t hear_report(struct pinion_endpoint *ep,
			    const struct pinion_address *worker)
{
	struct report report;
	struct pinion_message message = { .size = sizeof(message),
					  .buf = &report,
					  .len = sizeof(report) };
	struct pinion_request *request;

	must("peer", pinion_peer_add(ep, worker, &message.peer));
	must("pinion_grant", pinion_grant(ep, &message, &request));
	must("report", pinion_wait(ep, request, PINION_FOREVER, NULL));
	return report.rows;
}

static void check(const struct table *table)
{
	for (uint64_t r = 0; r < NROWS; r++)
		for (uint64_t c = 0; c < NCELLS; c++)
			if (table->rows[r][c] != 2 * (r * NCELLS + c))
				stop("a wrong cell", -EBADMSG);
}

static void own(int in[], int out[])
{
	struct table *table = calloc(1, sizeof(*table));
	struct pinion_exposure *exposure;
	struct pinion_context *context;
	struct invitation invitation;
	struct pinion_endpoint *ep;
	struct pinion_address worker;
	uint64_t rows = 0;

	for (uint64_t r = 0; r < NROWS; r++)
		for (uint64_t c = 0; c < NCELLS; c++)
			table->rows[r][c] = r * NCELLS + c;
	open_endpoint(&context, &ep);
	must("address", pinion_endpoint_address(ep, &invitation.address));
	must("pinion_exposure_open",
	     pinion_exposure_open(ep, table, sizeof(*table),
				  PINION_ACCESS_REMOTE_READ |
					  PINION_ACCESS_REMOTE_WRITE |
					  PINION_ACCESS_REMOTE_ATOMIC,
				  &exposure));
	must("key", pinion_exposure_key(exposure, &invitation.key));
	for (int i = 0; i < NWORKERS; i++)
		if (write(out[i], &invitation, sizeof(invitation)) !=
		    sizeof(invitation))
			stop("a worker is gone", -EPIPE);
	for (int i = 0; i < NWORKERS; i++) {
		if (read(in[i], &worker, sizeof(worker)) != sizeof(worker))
			stop("a worker is gone", -EPIPE);
		rows += hear_report(ep, &worker);
	}
	pinion_exposure_close(exposure); /* revokes the key */
	check(table);
	printf("%llu rows by %d workers, all of them right\n",
	       (unsigned long long)rows, NWORKERS);
	pinion_close(context);
	free(table);
}

int main(void)
{
	int in[NWORKERS], out[NWORKERS], failed = 0;

	for (int i = 0; i < NWORKERS; i++) {
		int down[2], up[2];

		if (pipe(down) || pipe(up))
			stop("pipe", -errno);
		/* Each process opens pinion for itself, after the fork. */
		if (!fork()) {
			work(down[0], up[1]);
			return EXIT_SUCCESS;
		}
		close(down[0]);
		close(up[1]);
		out[i] = down[1];
		in[i] = up[0];
	}
	own(in, out);
	for (int i = 0; i < NWORKERS; i++) {
		int status;

		wait(&status);
		failed |= status;
	}
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
