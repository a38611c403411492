/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/watchdog.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "tools/pinion/launch.h"
#include "tools/pinion/view.h"

#define MAX_RANKS 1024 /* of a host */
#define MAX_SHOWN 16   /* ranks in a line */
#define MAX_DEPTH 16   /* of processes between the launcher and a rank */

/* A rank that polls writes every 50 ms; on a busy machine it may get no CPU for
 * some time. */
#define FRESH_NS (3 * PN_NS_PER_S)

/* After so many empty polls the clock is read for the first time
 * (src/message/endpoint/endpoint.h). */
#define STALL_POLLS 256

/* Bits of Open MPI's tags: 30 of the communicator's number, 2 of mtl/ofi's
 * protocol for synchronous sends, 32 of the MPI tag. */
#define COMMUNICATOR_SHIFT 34
#define SYNC_SEND_ACK	   (UINT64_C(1) << 33)
#define ANY_TAG		   UINT64_C(0x7fffffff)

/* Messages of the provider that carry no MPI message have other spaces
 * (src/provider/provider.h). */
#define SPACE_TAGGED 0

struct request {
	uint64_t n, space, matched, peer, tag, ignore, bytes;
};

struct rank {
	int pid, number;
	int nlocal, nworld; /* ranks on this host, and all */
	bool waits;	    /* polled a moment ago, and nothing happened */
	uint64_t since_ns;  /* when that began */
	uint64_t address;   /* of the endpoint that waits */
	struct request receive, send;
};

/* --- finding the ranks ---------------------------------------------------- */

static bool is_below(pid_t pid, pid_t launcher)
{
	for (int depth = 0; depth < MAX_DEPTH && pid > 1; depth++) {
		pid = pn_parent_of(pid);
		if (pid == launcher)
			return true;
	}
	return false;
}

/* The number in NAME=NUMBER of an environment; -1: there is none. */
static int number_of(const char *environment, size_t len, const char *name)
{
	size_t n = strlen(name);

	for (size_t at = 0; at < len; at += strlen(environment + at) + 1)
		if (!strncmp(environment + at, name, n) &&
		    environment[at + n] == '=')
			return atoi(environment + at + n + 1);
	return -1;
}

/* False: no rank of Open MPI. */
static bool read_environment(struct rank *rank)
{
	static char text[1 << 18];
	char path[64];
	FILE *file;
	size_t len;

	snprintf(path, sizeof(path), "/proc/%d/environ", rank->pid);
	file = fopen(path, "re");
	if (!file)
		return false;
	len = fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	text[len] = '\0';
	rank->number = number_of(text, len, "OMPI_COMM_WORLD_RANK");
	rank->nlocal = number_of(text, len, "OMPI_COMM_WORLD_LOCAL_SIZE");
	rank->nworld = number_of(text, len, "OMPI_COMM_WORLD_SIZE");
	return rank->number >= 0 && rank->nlocal > 0;
}

/* --- reading a rank ------------------------------------------------------- */

static uint64_t word(const struct pn_stats_block *block, const char *prefix,
		     const char *name)
{
	const struct pn_stats_field *field;
	char full[48];

	snprintf(full, sizeof(full), "%s%s", prefix, name);
	field = pn_view_find(block, full);
	return field ? pn_view_word(block, 0, field) : 0;
}

static void read_request(const struct pn_stats_block *block, const char *prefix,
			 struct request *out)
{
	out->n = word(block, prefix, "s");
	out->space = word(block, prefix, "_space");
	out->matched = word(block, prefix, "_matched");
	out->peer = word(block, prefix, "_peer");
	out->tag = word(block, prefix, "_tag");
	out->ignore = word(block, prefix, "_ignore");
	out->bytes = word(block, prefix, "_bytes");
}

/* Whether there is an MPI message to wait for, and the line can tell it. */
static bool is_message(const struct request *request)
{
	return request->n && request->space == SPACE_TAGGED;
}

/* Endpoints that are not polled are ignored. Of others all must stand still;
 * the one with messages is shown. */
static void read_endpoint(const struct pn_stats_block *block, uint64_t now,
			  struct rank *rank)
{
	uint64_t since = word(block, "", "idle_since_ns");
	uint64_t seen = word(block, "", "idle_seen_ns");
	bool shown = is_message(&rank->receive) || is_message(&rank->send);

	if (now > seen + FRESH_NS && now > since + FRESH_NS)
		return;
	if (seen <= since || word(block, "", "empty_polls") <= STALL_POLLS) {
		rank->since_ns = now;
		return;
	}
	rank->waits = true;
	if (since > rank->since_ns)
		rank->since_ns = since;
	if (shown)
		return;
	rank->address = word(block, "", "address");
	read_request(block, "receive", &rank->receive);
	read_request(block, "send", &rank->send);
}

static bool read_rank(int pid, uint64_t now, struct rank *rank)
{
	const struct pn_stats_block *block = NULL;
	struct pn_view view;

	*rank = (struct rank){ .pid = pid };
	if (!read_environment(rank) || pn_view_open(pid, &view))
		return false;
	while ((block = pn_view_next(&view, block)))
		if (pn_view_is(block, "endpoint"))
			read_endpoint(block, now, rank);
	pn_view_close(&view);
	return true;
}

static int by_number(const void *a, const void *b)
{
	return ((const struct rank *)a)->number -
	       ((const struct rank *)b)->number;
}

/* The ranks on this host, ascending. */
static unsigned read_ranks(pid_t launcher, uint64_t now, struct rank *ranks)
{
	static int pids[MAX_RANKS];
	int n = pn_view_list(pids, MAX_RANKS);
	unsigned nranks = 0;

	for (int i = 0; i < n; i++)
		if (is_below(pids[i], launcher) &&
		    read_rank(pids[i], now, &ranks[nranks]))
			nranks++;
	qsort(ranks, nranks, sizeof(*ranks), by_number);
	return nranks;
}

/* --- the line ------------------------------------------------------------- */

static void print_peer(FILE *out, const struct rank *ranks, unsigned n,
		       uint64_t address)
{
	for (unsigned i = 0; address && i < n; i++)
		if (ranks[i].address == address) {
			fprintf(out, "rank %d", ranks[i].number);
			return;
		}
	fputs(address ? "a rank of another host" : "any rank", out);
}

/* Open MPI's collectives use negative tags. */
static void print_tag(FILE *out, uint64_t tag, uint64_t ignore)
{
	static const char *const collectives[] = {
		"MPI_Allgather",      "MPI_Allgatherv",
		"MPI_Allreduce",      "MPI_Alltoall",
		"MPI_Alltoallv",      "MPI_Alltoallw",
		"MPI_Barrier",	      "MPI_Bcast",
		"MPI_Exscan",	      "MPI_Gather",
		"MPI_Gatherv",	      "MPI_Reduce",
		"MPI_Reduce_scatter", "MPI_Reduce_scatter_block",
		"MPI_Scan",	      "MPI_Scatter",
		"MPI_Scatterv",
	};
	int number = (int)(uint32_t)tag, kind = -10 - number;
	uint64_t communicator = tag >> COMMUNICATOR_SHIFT;

	if ((ignore & ANY_TAG) == ANY_TAG)
		fputs("any tag", out);
	else if (number >= 0)
		fprintf(out, "tag %d", number);
	else if (kind >= 0 && kind < (int)PN_ARRAY_LEN(collectives))
		fprintf(out, "tag of %s", collectives[kind]);
	else
		fprintf(out, "tag %d of Open MPI's own", number);
	if (communicator)
		fprintf(out, ", communicator %" PRIu64, communicator);
}

static void print_receive(FILE *out, const struct rank *ranks, unsigned n,
			  const struct request *r)
{
	if (r->tag & SYNC_SEND_ACK) {
		print_peer(out, ranks, n, r->peer);
		fputs(" to receive a synchronous send (", out);
	} else {
		fprintf(out, "%s %" PRIu64 " bytes from ",
			r->matched ? "the rest of a message of"
				   : "a message of at most",
			r->bytes);
		print_peer(out, ranks, n, r->peer);
		fputs(" (", out);
	}
	print_tag(out, r->tag, r->ignore);
	if (r->n > 1)
		fprintf(out, "; %" PRIu64 " more receives", r->n - 1);
	fputc(')', out);
}

static void print_send(FILE *out, const struct rank *ranks, unsigned n,
		       const struct request *s)
{
	print_peer(out, ranks, n, s->peer);
	fprintf(out, " to %s %" PRIu64 " bytes (",
		s->matched ? "take the rest of" : "receive", s->bytes);
	print_tag(out, s->tag, 0);
	if (s->n > 1)
		fprintf(out, "; %" PRIu64 " more sends", s->n - 1);
	fputc(')', out);
}

static void print_rank(FILE *out, const struct rank *ranks, unsigned n,
		       const struct rank *rank, uint64_t now)
{
	bool receives = is_message(&rank->receive),
	     sends = is_message(&rank->send);

	fprintf(out, "%s rank %d", rank == ranks ? ":" : ";", rank->number);
	if (!receives && !sends)
		fputs(" for no message of its own", out);
	if (sends) {
		fputs(" for ", out);
		print_send(out, ranks, n, &rank->send);
	}
	if (sends && receives)
		fputs(" and", out);
	if (receives) {
		fputs(" for ", out);
		print_receive(out, ranks, n, &rank->receive);
	}
	fprintf(out, ", %" PRIu64 " s", (now - rank->since_ns) / PN_NS_PER_S);
}

static void print_line(FILE *out, const struct rank *ranks, unsigned n,
		       uint64_t now)
{
	uint64_t last = 0;

	for (unsigned i = 0; i < n; i++)
		if (ranks[i].since_ns > last)
			last = ranks[i].since_ns;
	fprintf(out,
		"pinion: watchdog: no message has moved for %" PRIu64
		" s and all %u ranks%s wait",
		(now - last) / PN_NS_PER_S, n,
		(int)n < ranks->nworld ? " of this host" : "");
	for (unsigned i = 0; i < n && i < MAX_SHOWN; i++)
		print_rank(out, ranks, n, &ranks[i], now);
	if (n > MAX_SHOWN)
		fprintf(out, "; and %u more ranks", n - MAX_SHOWN);
	fputc('\n', out);
	fflush(out);
}

/* --- judging -------------------------------------------------------------- */

static bool all_wait(const struct pn_watchdog *watchdog,
		     const struct rank *ranks, unsigned n, uint64_t now)
{
	bool messages = false;

	if (!n || (int)n != ranks->nlocal)
		return false;
	for (unsigned i = 0; i < n; i++) {
		if (!ranks[i].waits ||
		    now < ranks[i].since_ns + watchdog->interval_ns)
			return false;
		messages |= is_message(&ranks[i].receive) ||
			    is_message(&ranks[i].send);
	}
	return messages;
}

void pn_watchdog_look(struct pn_watchdog *watchdog, pid_t launcher, FILE *out)
{
	static struct rank ranks[MAX_RANKS];
	uint64_t now = pn_clock_ns();
	unsigned n = read_ranks(launcher, now, ranks);

	if (!all_wait(watchdog, ranks, n, now) ||
	    (watchdog->said_ns &&
	     now < watchdog->said_ns + watchdog->interval_ns))
		return;
	watchdog->said_ns = now;
	print_line(out, ranks, n, now);
}
