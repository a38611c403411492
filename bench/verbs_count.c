/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * verbs_count -- libpinion-verbs-count.so: counts what a program asks of RDMA
 * adapters. It is preloaded into any program that uses libibverbs:
 *
 *   LD_PRELOAD=.../libpinion-verbs-count.so VERBS_COUNT_PER=1000 \
 *       ucx_perftest -t tag_lat -n 1000 ...
 *
 * When a process ends that has opened an adapter, it prints its counts on
 * standard error, divided by VERBS_COUNT_PER if that is set. With
 * VERBS_COUNT_FILE it appends them, undivided, as one line of JSON to
 * that file. What a program does at its start is counted, too: for counts per
 * operation subtract the counts of a run with fewer operations, as
 * `tests/vm/counts` does.
 *
 * How: ibv_post_send() and the other calls of the data path are inline
 * functions that call through the table `ops` of the context. ibv_open_device()
 * below replaces the entries of each context that the program opens; the
 * functions here count and call the entries of the adapter's driver.
 *
 * Not seen: work requests of ibv_wr_start() and completions of ibv_start_poll()
 * (extended queues), programs that write to the adapter without libibverbs
 * (mlx5dv), and what a killed process has counted.
 *
 * Threads: any. The counts are relaxed atomics. contexts[] is written under
 * contexts_lock; an entry is valid from before its context is returned to the
 * program until the program closes it.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXPORT	     __attribute__((visibility("default")))
#define MAX_CONTEXTS 64

/* --- counts --------------------------------------------------------------- */

enum count {
	POST_SEND,
	SEND_REQUESTS,
	SEND_SIGNALED,
	SEND_INLINE,
	INLINE_BYTES,
	SEND_SEGMENTS,
	POST_RECV,
	RECV_REQUESTS,
	POST_SRQ_RECV,
	SRQ_RECV_REQUESTS,
	POLL_EMPTY,
	POLL_FOUND,
	SEND_COMPLETIONS,
	RECV_COMPLETIONS,
	NOTIFY,
	NCOUNTS
};

static const char *const names[NCOUNTS] = {
	[POST_SEND] = "post_send",
	[SEND_REQUESTS] = "send_requests",
	[SEND_SIGNALED] = "send_signaled",
	[SEND_INLINE] = "send_inline",
	[INLINE_BYTES] = "inline_bytes",
	[SEND_SEGMENTS] = "send_segments",
	[POST_RECV] = "post_recv",
	[RECV_REQUESTS] = "recv_requests",
	[POST_SRQ_RECV] = "post_srq_recv",
	[SRQ_RECV_REQUESTS] = "srq_recv_requests",
	[POLL_EMPTY] = "poll_empty",
	[POLL_FOUND] = "poll_found",
	[SEND_COMPLETIONS] = "send_completions",
	[RECV_COMPLETIONS] = "recv_completions",
	[NOTIFY] = "notify",
};

static _Atomic unsigned long counts[NCOUNTS];

static void count(enum count what, unsigned long n)
{
	atomic_fetch_add_explicit(&counts[what], n, memory_order_relaxed);
}

/* --- contexts ------------------------------------------------------------- */

struct driver {
	struct ibv_context *_Atomic context;
	struct ibv_context_ops ops;
};

static struct driver contexts[MAX_CONTEXTS];
static pthread_mutex_t contexts_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool opened;

static const struct ibv_context_ops *driver_of(const struct ibv_context *c)
{
	struct driver *driver = contexts;

	/* It is there: its entry of the table led here. */
	while (atomic_load_explicit(&driver->context, memory_order_acquire) !=
	       c)
		driver++;
	return &driver->ops;
}

/* --- the calls ------------------------------------------------------------ */

static void count_send(const struct ibv_send_wr *wr)
{
	count(SEND_REQUESTS, 1);
	count(SEND_SIGNALED, !!(wr->send_flags & IBV_SEND_SIGNALED));
	count(SEND_SEGMENTS, (unsigned long)wr->num_sge);
	if (!(wr->send_flags & IBV_SEND_INLINE))
		return;
	count(SEND_INLINE, 1);
	for (int i = 0; i < wr->num_sge; i++)
		count(INLINE_BYTES, wr->sg_list[i].length);
}

/* Requests from `bad` on were not taken. */
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	int ret = driver_of(qp->context)->post_send(qp, wr, bad);
	const struct ibv_send_wr *end = ret ? *bad : NULL;

	count(POST_SEND, 1);
	for (; wr && wr != end; wr = wr->next)
		count_send(wr);
	return ret;
}

static unsigned long taken(const struct ibv_recv_wr *wr,
			   const struct ibv_recv_wr *end)
{
	unsigned long n = 0;

	for (; wr && wr != end; wr = wr->next)
		n++;
	return n;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	int ret = driver_of(qp->context)->post_recv(qp, wr, bad);

	count(POST_RECV, 1);
	count(RECV_REQUESTS, taken(wr, ret ? *bad : NULL));
	return ret;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
			 struct ibv_recv_wr **bad)
{
	int ret = driver_of(srq->context)->post_srq_recv(srq, wr, bad);

	count(POST_SRQ_RECV, 1);
	count(SRQ_RECV_REQUESTS, taken(wr, ret ? *bad : NULL));
	return ret;
}

static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	int n = driver_of(cq->context)->poll_cq(cq, max, wc);

	count(n > 0 ? POLL_FOUND : POLL_EMPTY, 1);
	for (int i = 0; i < n; i++)
		count(wc[i].opcode & IBV_WC_RECV ? RECV_COMPLETIONS
						 : SEND_COMPLETIONS,
		      1);
	return n;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	count(NOTIFY, 1);
	return driver_of(cq->context)->req_notify_cq(cq, solicited_only);
}

static void interpose(struct ibv_context *context)
{
	struct driver *driver = contexts;

	pthread_mutex_lock(&contexts_lock);
	while (driver < contexts + MAX_CONTEXTS &&
	       atomic_load(&driver->context))
		driver++;
	if (driver == contexts + MAX_CONTEXTS) {
		fprintf(stderr,
			"verbs_count: more than %d contexts: the next "
			"is not counted\n",
			MAX_CONTEXTS);
	} else {
		driver->ops = context->ops;
		atomic_store_explicit(&driver->context, context,
				      memory_order_release);
		context->ops.post_send = post_send;
		context->ops.post_recv = post_recv;
		context->ops.post_srq_recv = post_srq_recv;
		context->ops.poll_cq = poll_cq;
		context->ops.req_notify_cq = req_notify_cq;
	}
	pthread_mutex_unlock(&contexts_lock);
}

static void forget(const struct ibv_context *context)
{
	pthread_mutex_lock(&contexts_lock);
	for (struct driver *driver = contexts; driver < contexts + MAX_CONTEXTS;
	     driver++)
		if (atomic_load(&driver->context) == context)
			atomic_store(&driver->context, NULL);
	pthread_mutex_unlock(&contexts_lock);
}

/* Not RTLD_NEXT: a library that was opened with dlopen() may have brought
 * libibverbs. */
static void *libibverbs(const char *name)
{
	void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
	void *found = library ? dlvsym(library, name, "IBVERBS_1.1") : NULL;

	if (!found) {
		fprintf(stderr, "verbs_count: libibverbs has no %s\n", name);
		abort();
	}
	return found;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	struct ibv_context *(*open)(struct ibv_device *) =
		libibverbs("ibv_open_device");
	struct ibv_context *context = open(device);

	if (context) {
		atomic_store(&opened, true);
		interpose(context);
	}
	return context;
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	int (*close)(struct ibv_context *) = libibverbs("ibv_close_device");

	forget(context);
	return close(context);
}

/* --- the report ----------------------------------------------------------- */

static void print_json(FILE *file)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	fprintf(file, "{\"program\":\"%s\",\"pid\":%d",
		program_invocation_short_name, (int)getpid());
	for (int i = 0; i < NCOUNTS; i++)
		fprintf(file, ",\"%s\":%lu", names[i], counts[i]);
	fprintf(file, ",\"sleeps\":%ld}\n", usage.ru_nvcsw);
}

static void print_table(FILE *file)
{
	const char *text = getenv("VERBS_COUNT_PER");
	double per = text ? strtod(text, NULL) : 1;

	fprintf(file, "verbs calls of %s (%d)%s%s\n",
		program_invocation_short_name, (int)getpid(),
		text ? " per operation, operations: " : "", text ? text : "");
	for (int i = 0; i < NCOUNTS; i++)
		fprintf(file, "  %-18s %12.3f\n", names[i],
			(double)counts[i] / (per > 0 ? per : 1));
}

/* One write: the lines of several processes do not mix. */
static void report_to(const char *path)
{
	char line[1024];
	FILE *text = fmemopen(line, sizeof(line), "w");
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);

	if (text && fd >= 0) {
		print_json(text);
		fflush(text);
		if (write(fd, line, strlen(line)) < 0)
			perror(path);
	} else {
		perror(path);
	}
	if (text)
		fclose(text);
	if (fd >= 0)
		close(fd);
}

__attribute__((destructor)) static void report(void)
{
	const char *path = getenv("VERBS_COUNT_FILE");

	if (!atomic_exchange(&opened, false))
		return;
	if (path)
		report_to(path);
	else
		print_table(stderr);
}

/* Forked processes end so, without destructors. */
EXPORT _Noreturn void _exit(int status)
{
	report();
	for (;;)
		syscall(SYS_exit_group, status);
}
