/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * fabric_pingpong PROVIDER MIN MAX -- for `pinion bench fabric`: two processes
 * exchange messages with libfabric's calls only, each bound to a core. Prints a
 * line "bytes nanoseconds loop" per size, each size four times the one before:
 * half a round trip, the mean of 1,000 in a row without reading a clock between
 * them, the median of several such means; and the loop time of the slower core
 * (core_speed.h), before or after. The first line has 0 bytes: a bare flag in
 * memory shared by the same two processes, the machine's own latency.
 *
 * fabric_pingpong PROVIDER count MESSAGES LOOKS -- for callgrind: one process
 * sends MESSAGES messages of 8 bytes to itself, in send_to_self(), and finds
 * each with the first poll; then LOOKS empty polls in poll_empty(). Nothing
 * there depends on time, so instructions can be counted. (Two endpoints would
 * watch each other with pidfd_open(), which valgrind 3.19 does not support.)
 *
 * It works like Open MPI: it injects messages that may be injected and receives
 * by tag from a named peer. Exit status 3: there is no such provider.
 */
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "bench/comparison.h"
#include "bench/core_speed.h"

#define TRIPS 1000
#define MEANS 31
#define WARM  200
#define LONGEST_NS \
	(100 * PN_NS_PER_MS) /* time limit of a size, on a busy machine */
#define TAG	   7
#define NAME_BYTES 256
#define AT_ONCE	   8 /* completions read in one call */
#define COUNTED	   8 /* size of a counted message */

static void fail(const char *what, ssize_t ret)
{
	fprintf(stderr, "fabric_pingpong: %s: %s\n", what,
		fi_strerror((int)-ret));
	exit(EXIT_FAILURE);
}

/* Exits if a call returned a negative error. */
#define NEED(call)                         \
	do {                               \
		ssize_t ret_ = (call);     \
                                           \
		if (ret_ < 0)              \
			fail(#call, ret_); \
	} while (0)

/* --- an end ---------------------------------------------------------------
 */

struct end {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	fi_addr_t peer;
	struct fi_context context[2]; /* contexts of a receive and of a send */
	char name[NAME_BYTES];
	char *out, *in;
	bool alone; /* both processes share a core */
};

static struct fi_info *hints_for(const char *provider)
{
	struct fi_info *hints = fi_allocinfo();

	if (!hints)
		fail("fi_allocinfo()", -FI_ENOMEM);
	hints->caps = FI_TAGGED | FI_DIRECTED_RECV;
	hints->mode = FI_CONTEXT;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	hints->domain_attr->av_type = FI_AV_TABLE;
	hints->tx_attr->op_flags = FI_COMPLETION;
	hints->rx_attr->op_flags = FI_COMPLETION;
	hints->fabric_attr->prov_name = strdup(provider);
	return hints;
}

static void find(struct end *end, const char *provider)
{
	struct fi_info *hints = hints_for(provider);
	int ret =
		fi_getinfo(FI_VERSION(1, 9), NULL, NULL, 0, hints, &end->info);

	if (ret == -FI_ENODATA)
		exit(PN_COMPARISON_UNAVAILABLE);
	NEED(ret);
	fi_freeinfo(hints);
}

static char *memory_of(size_t bytes)
{
	char *memory = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);

	if (!memory)
		fail("memory for messages", -FI_ENOMEM);
	memset(memory, 1, bytes);
	return memory;
}

static void open_end(struct end *end, const char *provider, size_t max)
{
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED };
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	size_t len = sizeof(end->name);

	find(end, provider);
	NEED(fi_fabric(end->info->fabric_attr, &end->fabric, NULL));
	NEED(fi_domain(end->fabric, end->info, &end->domain, NULL));
	NEED(fi_endpoint(end->domain, end->info, &end->ep, NULL));
	NEED(fi_cq_open(end->domain, &cq, &end->cq, NULL));
	NEED(fi_av_open(end->domain, &av, &end->av, NULL));
	NEED(fi_ep_bind(end->ep, &end->av->fid, 0));
	NEED(fi_ep_bind(end->ep, &end->cq->fid,
			FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION));
	NEED(fi_enable(end->ep));
	NEED(fi_getname(&end->ep->fid, end->name, &len));
	end->in = memory_of(max);
	end->out = memory_of(max);
}

static void insert_peer(struct end *end, const char *other)
{
	if (fi_av_insert(end->av, other, 1, &end->peer, 0, NULL) != 1)
		fail("fi_av_insert()", -FI_EADDRNOTAVAIL);
}

static void close_end(struct end *end)
{
	NEED(fi_close(&end->ep->fid));
	NEED(fi_close(&end->cq->fid));
	NEED(fi_close(&end->av->fid));
	NEED(fi_close(&end->domain->fid));
	NEED(fi_close(&end->fabric->fid));
	fi_freeinfo(end->info);
	free(end->in);
	free(end->out);
}

/* --- messages -------------------------------------------------------------
 */

/* Polls until n operations have completed. */
static inline void reap_completions(struct end *end, ssize_t n)
{
	struct fi_cq_tagged_entry entries[AT_ONCE];

	while (n > 0) {
		ssize_t ret = fi_cq_read(end->cq, entries, AT_ONCE);

		if (ret > 0)
			n -= ret;
		else if (ret != -FI_EAGAIN)
			fail("fi_cq_read()", ret);
		else if (end->alone)
			sched_yield();
	}
}

static inline void post(struct end *end, size_t n)
{
	NEED(fi_trecv(end->ep, end->in, n, NULL, end->peer, TAG, 0,
		      &end->context[0]));
}

/* Manual progress. */
static void make_progress(struct end *end)
{
	struct fi_cq_tagged_entry none;
	ssize_t ret = fi_cq_read(end->cq, &none, 0);

	if (ret < 0 && ret != -FI_EAGAIN)
		fail("fi_cq_read()", ret);
}

/* Handles the result of a send: the queue may be full. */
static void retry_send(struct end *end, ssize_t ret)
{
	if (ret != -FI_EAGAIN)
		fail("sending", ret);
	make_progress(end);
}

static inline void send_one(struct end *end, size_t n)
{
	ssize_t ret;

	if (n <= end->info->tx_attr->inject_size) {
		while ((ret = fi_tinject(end->ep, end->out, n, end->peer, TAG)))
			retry_send(end, ret);
		return;
	}
	while ((ret = fi_tsend(end->ep, end->out, n, NULL, end->peer, TAG,
			       &end->context[1])))
		retry_send(end, ret);
	reap_completions(end, 1);
}

static inline void run_leader(struct end *end, size_t n)
{
	send_one(end, n);
	post(end, n);
	reap_completions(end, 1);
}

static inline void run_follower(struct end *end, size_t n)
{
	post(end, n);
	reap_completions(end, 1);
	send_one(end, n);
}

/* --- a pair ---------------------------------------------------------------
 */

/* Shared memory of the processes; each writes to its own cache lines. */
struct flags {
	_Alignas(4096) _Atomic unsigned leads;
	_Alignas(4096) _Atomic unsigned follows;
	_Alignas(4096) _Atomic bool enough; /* means of this size */
	double loop_ns[2];		    /* loop times of both cores */
};

struct pair {
	struct end end;
	struct flags *flags;
	unsigned turn; /* sequence number of the flags */
	int sock;      /* to the other */
	bool leads;
	bool progresses; /* make progress while waiting for a flag */
};

/* The other process may be behind: its last message needs our progress. */
static PN_NOINLINE void poll_and_progress(struct pair *pair)
{
	if (pair->end.cq)
		make_progress(&pair->end);
	if (pair->end.alone)
		sched_yield();
}

static void await(struct pair *pair, _Atomic unsigned *flag)
{
	while (atomic_load_explicit(flag, memory_order_acquire) != pair->turn)
		if (pair->progresses)
			poll_and_progress(pair);
}

/* One round trip of the flags; size 0. */
static void exchange_flags(struct pair *pair)
{
	struct flags *flags = pair->flags;

	pair->turn++;
	if (pair->leads) {
		atomic_store_explicit(&flags->leads, pair->turn,
				      memory_order_release);
		await(pair, &flags->follows);
	} else {
		await(pair, &flags->leads);
		atomic_store_explicit(&flags->follows, pair->turn,
				      memory_order_release);
	}
}

static void make_trips(struct pair *pair, size_t n, unsigned times)
{
	while (times--) {
		if (!n)
			exchange_flags(pair);
		else if (pair->leads)
			run_leader(&pair->end, n);
		else
			run_follower(&pair->end, n);
	}
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Whether this was the last mean; the leader decides and tells the follower. */
static bool is_last_mean(struct pair *pair, uint64_t start, unsigned nmeans)
{
	if (pair->leads)
		pair->flags->enough =
			nmeans == MEANS || pn_clock_ns() - start > LONGEST_NS;
	exchange_flags(pair);
	return pair->flags->enough;
}

/* The loop time of the slower core, once both are known. */
static double slower(struct pair *pair, double before)
{
	double after = pn_core_loop_ns(), *loop_ns = pair->flags->loop_ns;

	loop_ns[pair->leads] = before > after ? before : after;
	exchange_flags(pair);
	return loop_ns[0] > loop_ns[1] ? loop_ns[0] : loop_ns[1];
}

static void measure(struct pair *pair, size_t n)
{
	double means[MEANS], loop_ns = pn_core_loop_ns();
	uint64_t first, start;
	unsigned i = 0;

	make_trips(pair, n, WARM);
	first = pn_clock_ns();
	do {
		start = pn_clock_ns();
		make_trips(pair, n, TRIPS);
		means[i++] = (double)(pn_clock_ns() - start) / (2 * TRIPS);
	} while (!is_last_mean(pair, first, i));
	qsort(means, i, sizeof(*means), compare);
	loop_ns = slower(pair, loop_ns);
	if (pair->leads)
		printf("%zu %.1f %.0f\n", n, means[i / 2], loop_ns);
}

static void socket_send(struct pair *pair, const void *what)
{
	if (write(pair->sock, what, NAME_BYTES) != NAME_BYTES)
		fail("sending to the other process", -errno);
}

static void socket_recv(struct pair *pair, void *what)
{
	if (recv(pair->sock, what, NAME_BYTES, MSG_WAITALL) != NAME_BYTES)
		fail("receiving from the other process", -FI_ECONNRESET);
}

/* Binds to the n-th core that this process may use; false: there is none. */
static bool bind_to(unsigned n)
{
	cpu_set_t ours, one;

	CPU_ZERO(&one);
	if (sched_getaffinity(0, sizeof(ours), &ours))
		return false;
	for (unsigned i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &ours) && !n--) {
			CPU_SET(i, &one);
			return !sched_setaffinity(0, sizeof(one), &one);
		}
	return false;
}

static void run_end(struct pair *pair, char **argv)
{
	size_t min = strtoul(argv[2], NULL, 10);
	size_t max = strtoul(argv[3], NULL, 10);
	char other[NAME_BYTES];

	pair->progresses = pair->end.alone;
	measure(pair, 0);
	open_end(&pair->end, argv[1], max);
	pair->progresses = true;
	socket_send(pair, pair->end.name);
	socket_recv(pair, other);
	insert_peer(&pair->end, other);
	for (size_t n = min; n <= max; n *= 4)
		measure(pair, n);
	/* From here on the other process may end. */
	signal(SIGCHLD, SIG_DFL);
	socket_send(pair, other);
	socket_recv(pair, other);
	close_end(&pair->end);
}

/* The survivor would wait forever. */
static void end_with_child(int number)
{
	int status;

	(void)number;
	if (wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status))
		_exit(WEXITSTATUS(status));
	_exit(EXIT_FAILURE);
}

static int run_pair(char **argv)
{
	struct pair pair = { .turn = 0 };
	cpu_set_t ours;
	int socks[2], status;
	pid_t pid, parent = getpid();

	pair.flags = mmap(NULL, sizeof(*pair.flags), PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (pair.flags == MAP_FAILED ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, socks) ||
	    sched_getaffinity(0, sizeof(ours), &ours))
		fail("shared memory", -errno);
	pair.end.alone = CPU_COUNT(&ours) < 2;
	signal(SIGCHLD, end_with_child);
	pid = fork();
	if (pid < 0)
		fail("fork()", -errno);
	pair.leads = pid;
	pair.sock = socks[!pid];
	close(socks[!!pid]);
	if (!pid && (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent))
		fail("the parent", -FI_ECONNRESET);
	if (!pair.end.alone && !bind_to(!pid))
		fail("binding to a core", -FI_EOTHER);
	run_end(&pair, argv);
	if (!pid)
		return EXIT_SUCCESS;
	return waitpid(pid, &status, 0) == pid && !status ? EXIT_SUCCESS
							  : EXIT_FAILURE;
}

/* --- counting -------------------------------------------------------------
 */

/* The message has arrived when the send returns, so one poll finds it. */
static PN_NOINLINE void send_to_self(struct end *end, unsigned long times)
{
	struct fi_cq_tagged_entry entry;

	while (times--) {
		post(end, COUNTED);
		send_one(end, COUNTED);
		NEED(fi_cq_read(end->cq, &entry, 1));
	}
}

static PN_NOINLINE void poll_empty(struct end *end, unsigned long times)
{
	struct fi_cq_tagged_entry entry;

	while (times--)
		if (fi_cq_read(end->cq, &entry, 1) != -FI_EAGAIN)
			fail("an empty poll", -FI_EOTHER);
}

/* The first message connects, which depends on time. */
static int count(char **argv)
{
	struct end end = { .alone = true };

	open_end(&end, argv[1], COUNTED);
	insert_peer(&end, end.name);
	run_leader(&end, COUNTED);
	send_to_self(&end, strtoul(argv[3], NULL, 10));
	poll_empty(&end, strtoul(argv[4], NULL, 10));
	close_end(&end);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return EXIT_FAILURE;
	/* Loads no other provider. */
	setenv("FI_PROVIDER", argv[1], 1);
	return argc > 4 ? count(argv) : run_pair(argv);
}
