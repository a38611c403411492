/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/periodic.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <pinion/pinion.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pages.h"
#include "bench/bench.h"
#include "bench/ends.h"
#include "bench/timed_replay.h"
#include "context.h"

#define MAX_REQUESTS 64
#define MAX_ROUNDS   99
#define RUN_NS	     (6 * PN_NS_PER_S)
/* Of the computing times of program.h: phases of 3 to 400 ms. */
#define SCALE	     0.1

static const enum pn_scheme schemes[] = { PN_SCHEME_LEAVE_PINNED,
					  PN_SCHEME_HELPER, PN_SCHEME_AUTO,
					  PN_SCHEME_AUTO_HELPER };

#define NSCHEMES PN_ARRAY_LEN(schemes)

/* What a process measured of itself. */
struct figures {
	int error;
	double time_s, communication_s;
	struct pn_metered registered;
	struct pinion_helper_stats helper;
};

/* --- one process ---------------------------------------------------------- */

struct side {
	const struct pn_periodic_attr *attr;
	const char *shape;
	enum pn_scheme scheme;
	bool measured; /* else the partner */
	int sock;      /* between the two */
	struct pinion_context *context;
	struct pinion_endpoint *ep;
	struct pinion_peer *peer;
	struct pn_program program;
	void *memory[PN_PROGRAM_BUFFERS];
	struct pinion_request *requests[MAX_REQUESTS];
	unsigned nrequests;
	struct pn_meter meter;
	uint64_t communication_ns;
};

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * PN_NS_PER_S + (uint64_t)ts.tv_nsec;
}

/* Uses so much CPU time of this thread. */
static void compute(double ns)
{
	uint64_t end = cpu_ns() + (uint64_t)ns;

	while (cpu_ns() < end)
		;
}

static int post(struct side *s, const struct pn_program_run_step *step)
{
	struct pinion_request **request = &s->requests[s->nrequests];
	struct pinion_message m = {
		.size = sizeof(m),
		.buf = (char *)s->memory[step->buffer] + step->offset,
		.len = step->bytes,
		.peer = s->peer,
	};
	int ret;

	if (s->nrequests == MAX_REQUESTS)
		return -ENOMEM;
	pinion_site_set(step->site);
	ret = step->action == PN_POST_SEND ? pinion_send(s->ep, &m, request)
					   : pinion_recv(s->ep, &m, request);
	s->nrequests += !ret;
	return ret;
}

static int wait_all(struct side *s)
{
	int ret = 0;

	for (unsigned i = 0; i < s->nrequests && !ret; i++)
		ret = pinion_wait(s->ep, s->requests[i], PINION_FOREVER, NULL);
	s->nrequests = 0;
	return ret;
}

static int run_step(struct side *s, const struct pn_program_run_step *step)
{
	uint64_t start;
	int ret;

	if (step->action == PN_COMPUTE) {
		if (s->measured)
			compute(step->ns);
		return 0;
	}
	start = pn_clock_ns();
	ret = step->action == PN_WAIT_ALL ? wait_all(s) : post(s, step);
	s->communication_ns += pn_clock_ns() - start;
	return ret;
}

static double iteration_ns(const struct pn_program *program)
{
	double ns = 0;

	for (size_t i = program->nsetup; i < program->nsteps; i++)
		ns += program->steps[i].ns;
	return ns;
}

static int make_program(struct side *s)
{
	bool cg = !strcmp(s->shape, "cg");
	struct pn_program_attr attr = {
		.shape = s->shape,
		.rank = s->measured ? (cg ? 1 : 0) : (cg ? 2 : 3),
		.nranks = 4,
		.bytes = strcmp(s->shape, "ft") ? 0 : s->attr->bytes,
		.scale = SCALE,
		.iterations = s->attr->steps,
	};
	int ret = pn_program_make(&attr, &s->program);

	if (!ret && !s->attr->steps)
		s->program.iterations =
			(unsigned)(RUN_NS / iteration_ns(&s->program)) + 1;
	for (unsigned i = 0; i < s->program.nbuffers && !ret; i++)
		ret = pn_pages_map(s->program.buffers[i],
				   &(struct pn_pages_policy){
					   .numa_node = -1, .populate = true },
				   &s->memory[i]);
	return ret;
}

static int open_side(struct side *s)
{
	bool is_auto = s->scheme >= PN_SCHEME_AUTO;
	bool helped = s->measured && pn_scheme_is_helped(s->scheme);
	struct pinion_endpoint_attr ep = {
		.size = sizeof(ep), .flags = PINION_ENDPOINT_SINGLE_THREADED
	};
	char device[PN_OPTION_TEXT_BYTES + 8];
	const char *options[] = { device,
				  is_auto ? "protocol=auto" : "protocol=cached",
				  helped ? "helper=own" : "helper=off", NULL };
	struct pinion_attr attr = { .size = sizeof(attr), .options = options };
	struct pinion_address mine, theirs;
	int ret;

	snprintf(device, sizeof(device), "device=%s", s->attr->device);
	ret = pinion_open(&attr, &s->context);
	pn_meter_start(&s->meter, pn_clock_ns());
	for (unsigned r = 0; !ret && r < s->context->nrails; r++)
		ret = pn_meter_attach(&s->meter, s->context->devices[r]);
	if (!ret)
		ret = pinion_endpoint_open(s->context, &ep, &s->ep);
	if (!ret)
		ret = pinion_endpoint_address(s->ep, &mine);
	if (!ret)
		ret = pn_end_socket_send(s->sock, &mine, sizeof(mine));
	if (!ret)
		ret = pn_end_socket_recv(s->sock, &theirs, sizeof(theirs));
	return ret ? ret : pinion_peer_add(s->ep, &theirs, &s->peer);
}

/* Both processes are there, and connected. */
static int meet(struct side *s)
{
	struct pinion_message m = { .size = sizeof(m), .peer = s->peer };
	struct pinion_request *in, *out;
	int ret = pinion_recv(s->ep, &m, &in);

	if (!ret)
		ret = pinion_send(s->ep, &m, &out);
	if (!ret)
		ret = pinion_wait(s->ep, out, PINION_FOREVER, NULL);
	return ret ? ret : pinion_wait(s->ep, in, PINION_FOREVER, NULL);
}

static int play(struct side *s, struct figures *figures)
{
	const struct pn_program_run_step *step;
	uint64_t start, end;
	int ret = meet(s);

	start = pn_clock_ns();
	pn_meter_start(&s->meter, start);
	for (size_t n = 0; !ret && (step = pn_program_step(&s->program, n));
	     n++)
		ret = run_step(s, step);
	end = pn_clock_ns();
	pn_meter_stop(&s->meter, end);
	figures->time_s = (double)(end - start) / 1e9;
	figures->communication_s = (double)s->communication_ns / 1e9;
	figures->registered = s->meter.metered;
	figures->helper.size = sizeof(figures->helper);
	pinion_helper_query(s->context, &figures->helper);
	/* Nobody leaves while the other still waits for a packet. */
	return ret ? ret : meet(s);
}

/* The process ends after this. */
static int run_side(struct side *s)
{
	struct figures figures = { 0 };
	int ret = make_program(s);

	if (!ret)
		ret = open_side(s);
	if (!ret)
		ret = play(s, &figures);
	figures.error = ret;
	pinion_close(s->context);
	return pn_end_socket_send(s->sock, &figures, sizeof(figures));
}

/* --- two processes -------------------------------------------------------- */

static pid_t start_side(struct side *s, const int socks[2])
{
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	close(socks[0]);
	s->sock = socks[1];
	_exit(run_side(s) ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* Passes what one process says to the other, once in each direction. */
static int introduce(const int socks[2])
{
	struct pinion_address addresses[2];
	int ret = 0;

	for (int i = 0; i < 2 && !ret; i++)
		ret = pn_end_socket_recv(socks[i], &addresses[i],
					 sizeof(addresses[i]));
	for (int i = 0; i < 2 && !ret; i++)
		ret = pn_end_socket_send(socks[i], &addresses[!i],
					 sizeof(addresses[!i]));
	return ret;
}

static int run_pair(const struct pn_periodic_attr *attr, const char *shape,
		    enum pn_scheme scheme, struct figures *out)
{
	struct figures figures[2] = { 0 };
	int ret = 0, mine[2] = { -1, -1 };
	pid_t pids[2] = { -1, -1 };

	for (int i = 0; i < 2 && !ret; i++) {
		struct side side = { .attr = attr,
				     .shape = shape,
				     .scheme = scheme,
				     .measured = !i };
		int socks[2];

		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks))
			return -errno;
		pids[i] = start_side(&side, socks);
		close(socks[1]);
		mine[i] = socks[0];
		ret = pids[i] < 0 ? -errno : 0;
	}
	if (!ret)
		ret = introduce(mine);
	for (int i = 0; i < 2 && !ret; i++)
		ret = pn_end_socket_recv(mine[i], &figures[i],
					 sizeof(figures[i]));
	for (int i = 0; i < 2; i++) {
		if (ret && pids[i] > 0)
			kill(pids[i], SIGKILL);
		if (mine[i] >= 0)
			close(mine[i]);
		if (pids[i] > 0)
			waitpid(pids[i], NULL, 0);
	}
	*out = figures[0];
	return ret		  ? ret
	       : figures[0].error ? figures[0].error
				  : figures[1].error;
}

/* --- recorded requests ---------------------------------------------------- */

static int run_replay(const struct pn_periodic_attr *attr, const char *path,
		      enum pn_scheme scheme, struct figures *out)
{
	const struct pn_timed_replay_attr replay = { .path = path,
						     .cost = "none",
						     .device = attr->device,
						     .scheme = scheme,
						     .window = 2 };
	struct pn_cluster_result result = { .failed = 0 };

	out->error = pn_timed_replay_run(&replay, &result, &out->helper);
	out->time_s = result.time_s;
	out->communication_s = result.communication_s;
	out->registered = result.registered;
	return out->error;
}

/* In a process of its own. */
static int replay_apart(const struct pn_periodic_attr *attr, const char *path,
			enum pn_scheme scheme, struct figures *out)
{
	int socks[2], ret;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks))
		return -errno;
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run_replay(attr, path, scheme, out);
		_exit(pn_end_socket_send(socks[1], out, sizeof(*out))
			      ? EXIT_FAILURE
			      : EXIT_SUCCESS);
	}
	ret = pid < 0 ? -errno : 0;
	close(socks[1]);
	if (!ret)
		ret = pn_end_socket_recv(socks[0], out, sizeof(*out));
	close(socks[0]);
	if (pid > 0)
		waitpid(pid, NULL, 0);
	return ret ? ret : out->error;
}

/* --- rounds --------------------------------------------------------------- */

struct rounds {
	const struct pn_periodic_attr *attr;
	struct pn_report *report;
	const char *shape; /* or the name of a trace */
	const char *path;  /* of the trace; NULL: a program */
	unsigned nschemes;
	struct figures samples[NSCHEMES][MAX_ROUNDS];
};

/* In the other order every second time. */
static int run_round(struct rounds *r, unsigned round)
{
	int ret = 0;

	for (unsigned i = 0; i < r->nschemes && !ret; i++) {
		unsigned s = round % 2 ? r->nschemes - 1 - i : i;

		pn_report_progress(r->shape);
		ret = r->path ? replay_apart(r->attr, r->path, schemes[s],
					     &r->samples[s][round])
			      : run_pair(r->attr, r->shape, schemes[s],
					 &r->samples[s][round]);
	}
	return ret;
}

static double mean_bytes(const struct figures *f)
{
	return f->registered.mean_bytes;
}

static double byte_seconds(const struct figures *f)
{
	return f->registered.mean_bytes * f->time_s;
}

static double peak_bytes(const struct figures *f)
{
	return (double)f->registered.peak_bytes;
}

static double time_s(const struct figures *f)
{
	return f->time_s;
}

static double communication_s(const struct figures *f)
{
	return f->communication_s;
}

/* Of the requests whose buffer had been registered before. */
static double late_percent(const struct figures *f)
{
	uint64_t all = f->helper.late + f->helper.in_time;

	return all ? 100 * (double)f->helper.late / (double)all : NAN;
}

static double wake_us(const struct figures *f)
{
	return f->helper.calls ? (double)f->helper.wake_ns / 1e3 : NAN;
}

static double median(const struct rounds *r, unsigned scheme,
		     double (*of)(const struct figures *f))
{
	double samples[MAX_ROUNDS];

	for (unsigned i = 0; i < r->attr->rounds; i++)
		samples[i] = of(&r->samples[scheme][i]);
	return pn_median(samples, r->attr->rounds);
}

/* The median of the rounds' ratios, as a percentage above or below. */
static double against(const struct rounds *r, unsigned scheme, unsigned base,
		      double (*of)(const struct figures *f))
{
	double samples[MAX_ROUNDS];

	for (unsigned i = 0; i < r->attr->rounds; i++)
		samples[i] = 100 * (of(&r->samples[scheme][i]) /
					    of(&r->samples[base][i]) -
				    1);
	return pn_median(samples, r->attr->rounds);
}

/* What a scheme is compared with: the same without the helper. */
static unsigned base_of(unsigned scheme)
{
	return pn_scheme_is_helped(schemes[scheme]) ? scheme - 1 : scheme;
}

static uint64_t count_of(const struct rounds *r, unsigned scheme, size_t field)
{
	const struct figures *f = &r->samples[scheme][r->attr->rounds / 2];
	uint64_t count;

	memcpy(&count, (const char *)&f->helper + field, sizeof(count));
	return count;
}

#define COUNT(name) count_of(r, s, offsetof(struct pinion_helper_stats, name))

static void print_scheme(const struct rounds *r, unsigned s, double load)
{
	unsigned base = base_of(s);
	struct pn_report_cell cells[] = {
		PN_CELL_TEXT("experiment", "experiment", -10, "periodic"),
		PN_CELL_TEXT("shape", "shape", -20, r->shape),
		PN_CELL_TEXT("scheme", "scheme", -12,
			     pn_scheme_name(schemes[s])),
		PN_CELL_COUNT("rounds", NULL, 0, r->attr->rounds),
		PN_CELL_RATE("registered_bytes_peak", "peak", 6,
			     median(r, s, peak_bytes)),
		PN_CELL_RATE("registered_bytes_mean", "mean", 6,
			     median(r, s, mean_bytes)),
		PN_CELL_NUMBER("communication_s", "comm s", 7,
			       median(r, s, communication_s)),
		PN_CELL_NUMBER("time_s", "time s", 7, median(r, s, time_s)),
		PN_CELL_NUMBER("late_percent", "late %", 6,
			       median(r, s, late_percent)),
		PN_CELL_NUMBER("byte_seconds_percent", "byte s %", 8,
			       against(r, s, base, byte_seconds)),
		PN_CELL_NUMBER("peak_percent", "peak %", 7,
			       against(r, s, base, peak_bytes)),
		PN_CELL_NUMBER("time_percent", "time %", 7,
			       against(r, s, base, time_s)),
		PN_CELL_NUMBER("wake_us", "wake us", 8, median(r, s, wake_us)),
		PN_CELL_COUNT("calls", NULL, 0, COUNT(calls)),
		PN_CELL_COUNT("copied", NULL, 0, COUNT(copied)),
		PN_CELL_COUNT("kept", NULL, 0, COUNT(kept)),
		PN_CELL_COUNT("aside", NULL, 0, COUNT(aside)),
		PN_CELL_COUNT("left_to_cache", NULL, 0, COUNT(irregular)),
		PN_CELL_NUMBER("load", NULL, 0, load),
	};

	pn_report_row(r->report, cells, PN_ARRAY_LEN(cells));
}

static int run_rounds(struct rounds *r)
{
	double load = NAN;
	int ret = 0;

	if (getloadavg(&load, 1) < 1)
		load = NAN;
	for (unsigned i = 0; i < r->attr->rounds && !ret; i++)
		ret = run_round(r, i);
	for (unsigned s = 0; s < r->nschemes && !ret; s++)
		print_scheme(r, s, load);
	return ret;
}

static int run_programs(struct rounds *r)
{
	static const char *const shapes[] = { "bt", "lu", "sp", "cg", "ft" };
	int ret = 0;

	r->nschemes = NSCHEMES;
	for (size_t i = 0; i < PN_ARRAY_LEN(shapes) && !ret; i++) {
		r->shape = shapes[i];
		if (!*r->attr->shape || !strcmp(r->attr->shape, shapes[i]))
			ret = run_rounds(r);
	}
	return ret;
}

/* Pins alone: no protocol is chosen. */
static int run_trace(void *arg, const char *path, const char *name)
{
	struct rounds *r = arg;
	int ret;

	r->nschemes = 2;
	r->shape = name;
	r->path = path;
	ret = run_rounds(r);
	return ret == -ENODATA ? 0 : ret;
}

int pn_periodic_run(const struct pn_periodic_attr *attr,
		    struct pn_report *report)
{
	struct rounds *r = calloc(1, sizeof(*r));
	int ret;

	if (!r)
		return -ENOMEM;
	r->attr = attr;
	r->report = report;
	ret = *attr->traces ? pn_trace_files_each(attr->traces, run_trace, r)
			    : run_programs(r);
	free(r);
	return ret;
}
