/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Question: how does pinion on an RDMA adapter compare with the adapter's own
 * tools, on the same adapter in the same run?
 *
 * pinion is measured on two levels. The device: two processes alternately write
 * 8 bytes into each other's memory and poll until they change, as ib_write_lat
 * does (write_lat; half a round trip, the median), and a stream of writes of
 * one size from registered memory, as ib_write_bw does (write_bw). The public
 * API: messages of 8 bytes with pinion_send() (message_lat), and a stream of
 * pinion_put() from a cached buffer (put_bw). The others run as separate
 * programs on the same adapter: perftest and, if installed, UCX's ucx_perftest
 * and libfabric's fi_pingpong, whose figure is a mean. All run alternately,
 * round by round; rows give medians over the rounds, and ratio is the median of
 * the rounds' ratios: in a tool's row the ratio of the corresponding figure of
 * pinion to it; in pinion's rows the ratio to perftest (latency: below 1 pinion
 * is faster; bandwidth: above 1).
 *
 * Only for `verbs`. On emulated machines only the ratios mean something.
 */
#include <arpa/inet.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "bench/bench.h"
#include "bench/ends.h"

#define MAX_ROUNDS 31
#define PINGS	   500
#define WARM	   50
#define SMALL	   8
#define FIRST_PORT 18600
#define MESSAGES   (UINT32_C(1) << 31) /* order that is not a number of pings */

struct values {
	char device[PN_OPTION_TEXT_BYTES];
	uint64_t rounds, bytes, times;
	bool json;
};

static const struct pn_option options[] = {
	PN_COMMAND_DEVICE(struct values, device),
	{ "rounds", PN_OPTION_NUMBER, "5", "number of rounds",
	  offsetof(struct values, rounds), 1, MAX_ROUNDS, NULL },
	{ "bytes", PN_OPTION_BYTES, "64K", "size of the puts of a stream",
	  offsetof(struct values, bytes), 1, 1 << 23, NULL },
	{ "times", PN_OPTION_NUMBER, "500", "puts of a stream",
	  offsetof(struct values, times), 1, 1 << 20, NULL },
	PN_COMMAND_JSON(struct values, json),
};

/* --- pinion: two ends ----------------------------------------------------- */

/* Sent from one end to the other at the start. */
struct card {
	struct pn_address address;
	uint64_t addr, rkey;
};

struct end {
	struct pn_device *device;
	struct pn_peer *peer;
	struct pn_mr mr;
	struct card other;
	int sock;
	uint8_t turn;
};

static int wait_for_process(struct end *end)
{
	struct pn_completion c;

	return pn_blocking_poll(end->device, PN_COMPLETION_PEER_UP, &c);
}

static int end_open(struct end *end, const char *spec, size_t bytes)
{
	struct card mine = { .addr = 0 };
	int ret = pn_device_open(spec, NULL, &end->device);

	if (ret)
		return ret;
	ret = pn_pair_map(end->device, bytes,
			  PINION_ACCESS_LOCAL_WRITE |
				  PINION_ACCESS_REMOTE_WRITE,
			  &end->mr);
	if (ret)
		return ret;
	memset(end->mr.addr, 0, end->mr.len);
	pn_device_address(end->device, &mine.address);
	mine.addr = (uintptr_t)end->mr.addr;
	mine.rkey = end->mr.rkey;
	ret = pn_end_socket_send(end->sock, &mine, sizeof(mine));
	if (!ret)
		ret = pn_end_socket_recv(end->sock, &end->other,
					 sizeof(end->other));
	if (!ret)
		ret = pn_device_attach(end->device, &end->other.address,
				       &end->peer);
	return ret ? ret : wait_for_process(end);
}

static void end_close(struct end *end)
{
	if (end->mr.lkey)
		pn_pair_unmap(end->device, &end->mr);
	pn_device_close(end->device);
}

/* Writes the 8 bytes of this turn into the other end's memory. */
static int ping(struct end *end)
{
	uint8_t data[SMALL];
	struct pn_sge sge = { data, sizeof(data), 0 };
	struct pn_op op = { .kind = PN_OP_WRITE,
			    .flags = PN_OP_INLINE | PN_OP_SILENT,
			    .sge = &sge,
			    .nsge = 1,
			    .remote_addr = end->other.addr,
			    .rkey = end->other.rkey };

	memset(data, ++end->turn, sizeof(data));
	return pn_blocking_post(end->device, end->peer, &op);
}

/* Polls until the other end has written this turn. Gives up after some seconds.
 */
static int await(struct end *end)
{
	const volatile uint8_t *last =
		(const volatile uint8_t *)end->mr.addr + SMALL - 1;
	uint8_t turn = end->turn;
	uint64_t looks = 0, deadline = pn_clock_ns() + PN_BLOCKING_TIMEOUT_NS;

	while (*last != turn)
		if (++looks % 4096 == 0 && pn_clock_ns() > deadline)
			return -ETIMEDOUT;
	return 0;
}

static int answer_pings(struct end *end, uint32_t n)
{
	int ret = 0;

	while (!ret && n--) {
		end->turn++;
		ret = await(end);
		end->turn--;
		if (!ret)
			ret = ping(end);
	}
	return ret;
}

/* The follower answers as many pings or messages as ordered, until it gets 0.
 */
static int run_follower(struct end *end, struct pn_end *api)
{
	uint32_t n;
	int ret = 0;

	while (!ret && !(ret = pn_end_socket_recv(end->sock, &n, sizeof(n))) &&
	       n)
		ret = n & MESSAGES ? pn_end_echo(api, n & ~MESSAGES)
				   : answer_pings(end, n);
	return ret;
}

static int measure_latency(struct end *end, double *us)
{
	double samples[PINGS];
	uint32_t n = PINGS + WARM;
	int ret = pn_end_socket_send(end->sock, &n, sizeof(n));

	for (unsigned i = 0; !ret && i < n; i++) {
		uint64_t start = pn_clock_ns();

		ret = ping(end);
		if (!ret)
			ret = await(end);
		if (i >= WARM)
			samples[i - WARM] =
				(double)(pn_clock_ns() - start) / 2e3;
	}
	if (!ret)
		*us = pn_median(samples, PINGS);
	return ret;
}

static int measure_messages(struct end *end, struct pn_end *api, double *us)
{
	double samples[WARM + PINGS];
	uint32_t n = (WARM + PINGS) | MESSAGES;
	int ret = pn_end_socket_send(end->sock, &n, sizeof(n));

	if (!ret)
		ret = pn_end_pingpong(api, WARM + PINGS, samples);
	if (!ret)
		*us = pn_median(samples + WARM, PINGS);
	return ret;
}

static int measure_rate(struct end *end, const struct values *v, double *rate)
{
	struct pn_blocking_transfer move = { .kind = PN_OP_WRITE,
					     .peer = end->peer,
					     .local = end->mr.addr,
					     .lkey = end->mr.lkey,
					     .remote_addr = end->other.addr,
					     .rkey = end->other.rkey,
					     .len = v->bytes,
					     .times = (unsigned)v->times };
	uint64_t start = pn_clock_ns();
	int ret = pn_blocking_transfer(end->device, &move);

	*rate = 1e9 * (double)(v->bytes * v->times) /
		pn_device_since(end->device, start);
	/* The stream overwrote the memory that pings poll. */
	return ret;
}

/* --- the others: programs ------------------------------------------------- */

/* The adapter, for the command lines. */
struct adapter {
	char name[64], ip[64];
	unsigned port, gid;
	/* CPUs of leaders and clients, of followers and servers */
	unsigned cpus[2];
};

/* The figures of pinion. */
enum own { WRITE_LAT, WRITE_BW, MESSAGE_LAT, PUT_BW, NOWN };

static const char *const own_ops[NOWN] = { "write_lat", "write_bw",
					   "message_lat", "put_bw" };

static bool is_rate(enum own own)
{
	return own == WRITE_BW || own == PUT_BW;
}

struct tool {
	const char *name, *op, *program;
	enum own counterpart; /* figure of pinion that it is compared with */
	/* %s adapter, port, gid, bytes, times, TCP port: see command_of(). */
	const char *arguments;
	const char *line; /* beginning of the line of the result */
	unsigned column;  /* column of the figure in that line, from 1 */
	double scale;	  /* factor to us or bytes/s */
};

/* UCX 1.13 aborts with any address of rxe but the first. */
#define UCX                                         \
	"UCX_NET_DEVICES=@a:@p UCX_IB_GID_INDEX=0 " \
	"UCX_TLS=rc_v,ud_v,self ucx_perftest "

/* The first two are perftest's latency and bandwidth. */
static const struct tool tools[] = {
	{ "perftest", "write_lat", "ib_write_lat", WRITE_LAT,
	  "ib_write_lat -F -d @a -i @p -x @g -s @b -n 500 -p @t", " 8 ", 5, 1 },
	{ "perftest", "write_bw", "ib_write_bw", WRITE_BW,
	  "ib_write_bw -F -d @a -i @p -x @g -s @b -n @n -p @t", " @b ", 4,
	  1 << 20 },
	{ "ucx", "put_lat", "ucx_perftest", WRITE_LAT,
	  UCX "-t ucp_put_lat -s @b -n 500 -w 50 -p @t", "Final:", 3, 1 },
	{ "ucx", "tag_lat", "ucx_perftest", MESSAGE_LAT,
	  UCX "-t tag_lat -s @b -n 500 -w 50 -p @t", "Final:", 3, 1 },
	{ "ucx", "put_bw", "ucx_perftest", PUT_BW,
	  UCX "-t ucp_put_bw -s @b -n @n -w 20 -p @t", "Final:", 6, 1 << 20 },
	{ "libfabric", "pingpong", "fi_pingpong", MESSAGE_LAT,
	  "fi_pingpong -p verbs -e msg -d @a -S @b -I 500", "8 ", 7, 1 },
};

#define NTOOLS PN_ARRAY_LEN(tools)

/* Values of the @ letters in the text of a tool. */
struct arguments {
	const struct adapter *adapter;
	size_t bytes;
	uint64_t times;
	unsigned tcp_port;
};

static void expand(const char *from, const struct arguments *with, char *out,
		   size_t size)
{
	size_t n = 0;

	for (; *from && n + 64 < size; from++) {
		if (*from != '@') {
			out[n++] = *from;
			continue;
		}
		switch (*++from) {
		case 'a':
			n += (size_t)sprintf(out + n, "%s",
					     with->adapter->name);
			break;
		case 'p':
			n += (size_t)sprintf(out + n, "%u",
					     with->adapter->port);
			break;
		case 'g':
			n += (size_t)sprintf(out + n, "%u", with->adapter->gid);
			break;
		case 'b':
			n += (size_t)sprintf(out + n, "%zu", with->bytes);
			break;
		case 'n':
			n += (size_t)sprintf(out + n, "%llu",
					     (unsigned long long)with->times);
			break;
		default:
			n += (size_t)sprintf(out + n, "%u", with->tcp_port);
		}
	}
	out[n] = 0;
}

static double parse_figure(const char *line, unsigned column)
{
	char copy[512], *save = NULL, *word;

	snprintf(copy, sizeof(copy), "%s", line);
	word = strtok_r(copy, " \t\n", &save);
	while (word && --column)
		word = strtok_r(NULL, " \t\n", &save);
	return word ? strtod(word, NULL) : NAN;
}

/* Runs server and client and parses the figure from the client's output. */
static double run_tool(const struct tool *tool, const struct adapter *adapter,
		       const struct values *v)
{
	static unsigned tcp = FIRST_PORT;
	struct arguments with = { .adapter = adapter,
				  .bytes = is_rate(tool->counterpart) ? v->bytes
								      : SMALL,
				  .times = v->times,
				  .tcp_port = ++tcp };
	char arguments[512], start[128], command[1400], line[512];
	double found = NAN;
	FILE *file;

	expand(tool->arguments, &with, arguments, sizeof(arguments));
	expand(tool->line, &with, start, sizeof(start));
	/* A server may start slowly: the client retries. */
	snprintf(command, sizeof(command),
		 "cd /tmp; export LC_ALL=C; "
		 "timeout 60 taskset -c %u env %s >/dev/null 2>&1 & "
		 "for i in 1 2 3 4 5 6; do sleep 1; "
		 "timeout 50 taskset -c %u env %s %s 2>/dev/null && break; "
		 "done; kill $! 2>/dev/null; wait",
		 adapter->cpus[1], arguments, adapter->cpus[0], arguments,
		 adapter->ip);
	file = popen(command, "re");
	while (file && fgets(line, sizeof(line), file))
		if (!strncmp(line, start, strlen(start)))
			found = parse_figure(line, tool->column) * tool->scale;
	if (file)
		pclose(file);
	/* perftest prints 0 if it could not calibrate its clock. */
	return found > 0 ? found : NAN;
}

/* Two processes that spin on one core alternate in milliseconds: all programs
 * get the same two cores. */
static void choose_cpus(struct adapter *adapter)
{
	unsigned n = 0;
	cpu_set_t set;

	if (sched_getaffinity(0, sizeof(set), &set))
		return;
	for (unsigned cpu = 0; n < 2 && cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &set))
			adapter->cpus[n++] = cpu;
	if (n == 1)
		adapter->cpus[1] = adapter->cpus[0];
}

static void bind_to_cpu(unsigned cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		pn_warn("bench peers: cannot bind to core %u: latencies will "
			"vary",
			cpu);
}

static bool is_installed(const char *program)
{
	char command[128];

	snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1",
		 program);
	return !system(command);
}

/* --- rounds --------------------------------------------------------------- */

struct series {
	double theirs[MAX_ROUNDS];
	double ratio[NOWN][MAX_ROUNDS]; /* ratio of pinion's figure to it */
	size_t n;
};

struct state {
	struct pn_report report;
	const struct values *values;
	struct end end;
	struct pn_end api;
	struct adapter adapter;
	struct series series[NTOOLS];
	double own[NOWN][MAX_ROUNDS];
};

static int measure_own(struct state *s, size_t round)
{
	int ret = measure_latency(&s->end, &s->own[WRITE_LAT][round]);

	if (!ret)
		ret = measure_messages(&s->end, &s->api,
				       &s->own[MESSAGE_LAT][round]);
	if (!ret)
		ret = measure_rate(&s->end, s->values,
				   &s->own[WRITE_BW][round]);
	if (!ret)
		ret = pn_end_put(&s->api, (unsigned)s->values->times,
				 &s->own[PUT_BW][round]);
	return ret;
}

static int run_round(struct state *s, size_t round)
{
	int ret = measure_own(s, round);

	for (size_t i = 0; !ret && i < NTOOLS; i++) {
		struct series *series = &s->series[i];
		double theirs;

		if (!is_installed(tools[i].program))
			continue;
		theirs = run_tool(&tools[i], &s->adapter, s->values);
		if (isnan(theirs))
			continue;
		series->theirs[series->n] = theirs;
		for (unsigned o = 0; o < NOWN; o++)
			series->ratio[o][series->n] = s->own[o][round] / theirs;
		series->n++;
	}
	return ret;
}

struct result {
	const char *tool, *op;
	enum own figure;
	double value; /* us or bytes/s */
	double ratio; /* of pinion's figure to it */
};

static void print_row(struct state *s, const struct result *r)
{
	bool rate = is_rate(r->figure);
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("tool", "tool", -10, r->tool),
		PN_CELL_TEXT("op", "op", -12, r->op),
		PN_CELL_BYTES("bytes", "bytes", 7,
			      rate ? s->values->bytes : SMALL),
		PN_CELL_NUMBER("latency_us", "latency us", 11,
			       rate ? NAN : r->value),
		PN_CELL_RATE("bytes_per_s", "bytes/s", 9,
			     rate ? r->value : NAN),
		PN_CELL_NUMBER("ratio", "pinion/tool", 12, r->ratio),
	};

	pn_report_row(&s->report, row, PN_ARRAY_LEN(row));
}

static double ratio_to(struct series *series, enum own own)
{
	return series->n ? pn_median(series->ratio[own], series->n) : NAN;
}

static void print_all(struct state *s)
{
	for (unsigned o = 0; o < NOWN; o++)
		print_row(s,
			  &(struct result){
				  .tool = "pinion",
				  .op = own_ops[o],
				  .figure = o,
				  .value = pn_median(s->own[o],
						     s->values->rounds),
				  .ratio = ratio_to(&s->series[is_rate(o)], o),
			  });
	for (size_t i = 0; i < NTOOLS; i++) {
		struct series *series = &s->series[i];

		if (series->n)
			print_row(s,
				  &(struct result){
					  .tool = tools[i].name,
					  .op = tools[i].op,
					  .figure = tools[i].counterpart,
					  .value = pn_median(series->theirs,
							     series->n),
					  .ratio = ratio_to(
						  series, tools[i].counterpart),
				  });
		else
			pn_report_note(&s->report, "%s: %s", tools[i].program,
				       is_installed(tools[i].program)
					       ? "printed no figure"
					       : "not installed");
	}
}

/* --- where the adapter is ------------------------------------------------- */

static void note_fact(void *arg, const char *name, const char *text)
{
	struct adapter *adapter = arg;

	if (!strcmp(name, "adapter"))
		sscanf(text, "%63[^,], port %u", adapter->name, &adapter->port);
	else if (!strcmp(name, "connects by"))
		sscanf(text, "%63s", adapter->ip);
}

/* Finds the index of the GID of the IP address: RoCE. */
static void find_gid(struct adapter *adapter)
{
	struct in_addr ip;
	char path[160], want[16], gid[64];

	if (inet_pton(AF_INET, adapter->ip, &ip) != 1)
		return;
	snprintf(want, sizeof(want), "ffff:%04x:%04x", ntohl(ip.s_addr) >> 16,
		 ntohl(ip.s_addr) & 0xffff);
	for (unsigned i = 0; i < 16; i++) {
		FILE *file;

		snprintf(path, sizeof(path),
			 "/sys/class/infiniband/%s/ports/%u/gids/%u",
			 adapter->name, adapter->port, i);
		file = fopen(path, "re");
		if (file && fgets(gid, sizeof(gid), file) && strstr(gid, want))
			adapter->gid = i;
		if (file)
			fclose(file);
	}
}

/* --- all of it ------------------------------------------------------------ */

static int run_leader(struct state *s, const struct pn_spec *spec)
{
	uint32_t end = 0;
	int ret = end_open(&s->end, spec->text, s->values->bytes);

	if (!ret)
		ret = pn_end_open(&s->api, spec->text, s->values->bytes,
				  s->end.sock);
	if (ret)
		return ret;
	s->end.device->ops->describe(s->end.device, note_fact, &s->adapter);
	find_gid(&s->adapter);
	pn_report_device(&s->report, s->end.device);
	pn_report_head(&s->report, pn_bench_peers.help);
	for (size_t i = 0; !ret && i < s->values->rounds; i++)
		ret = run_round(s, i);
	pn_end_socket_send(s->end.sock, &end, sizeof(end));
	if (!ret)
		print_all(s);
	return ret;
}

static _Noreturn void run_as_follower(const struct pn_spec *spec, int sock,
				      size_t bytes)
{
	struct end end = { .sock = sock };
	struct pn_end api = { .context = NULL };
	int ret = end_open(&end, spec->text, bytes);

	if (!ret)
		ret = pn_end_open(&api, spec->text, bytes, sock);
	if (!ret)
		ret = run_follower(&end, &api);
	pn_end_close(&api);
	if (end.device)
		end_close(&end);
	_exit(!!ret);
}

static int run_both(struct state *s, const struct pn_spec *spec)
{
	int socks[2], ret;
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, socks))
		return -errno;
	pid = fork(); /* before any device is opened */
	if (pid < 0)
		return -errno;
	bind_to_cpu(s->adapter.cpus[!pid]);
	if (!pid) {
		close(socks[0]);
		run_as_follower(spec, socks[1], s->values->bytes);
	}
	close(socks[1]);
	s->end.sock = socks[0];
	ret = run_leader(s, spec);
	pn_end_close(&s->api);
	if (s->end.device)
		end_close(&s->end);
	close(socks[0]);
	waitpid(pid, NULL, 0);
	return ret;
}

static int run(const void *values, char *const *operands)
{
	const struct values *v = values;
	struct state *s = calloc(1, sizeof(*s));
	struct pn_spec spec;
	int ret;

	(void)operands;
	if (!s)
		return pn_failed("peers", -ENOMEM);
	ret = pn_spec_find(&spec, v->device);
	if (ret) {
		free(s);
		return PN_EXIT_USAGE;
	}
	if (strncmp(spec.text, "verbs", 5)) {
		free(s);
		return pn_usage_error("bench peers: name an adapter with "
				      "--device verbs:NAME");
	}
	s->values = v;
	s->report = (struct pn_report){ .json = v->json,
					.bench = "peers",
					.device = spec.text };
	signal(SIGPIPE, SIG_IGN);
	choose_cpus(&s->adapter);
	ret = run_both(s, &spec);
	free(s);
	return ret ? pn_spec_exit("bench peers", ret) : PN_EXIT_OK;
}

const struct pn_command pn_bench_peers = {
	.name = "peers",
	.help = "how does pinion on an RDMA adapter compare with the adapter's "
		"own tools?",
	.about = "Compares latency and bandwidth of pinion on a verbs device, "
		 "both of the device and of the public calls, with perftest, "
		 "ucx_perftest and fi_pingpong if they are installed, "
		 "alternately on the same adapter. These tools never sleep; "
		 "the parameter spin= of the device sets how long pinion polls "
		 "before it sleeps.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run,
};
