/* SPDX-License-Identifier: BSD-2-Clause */
#include "bench/peer_tools.h"

#include <arpa/inet.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

#define FIRST_PORT 18600

/* --- the adapter ---------------------------------------------------------- */

static void note_fact(void *arg, const char *name, const char *text)
{
	struct pn_adapter *adapter = arg;

	if (!strcmp(name, "adapter"))
		sscanf(text, "%63[^,], port %u", adapter->name, &adapter->port);
	else if (!strcmp(name, "connects by"))
		sscanf(text, "%63s", adapter->ip);
}

/* Finds the index of the GID of the IP address: RoCE. */
static void find_gid(struct pn_adapter *adapter)
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

static void choose_cpus(struct pn_adapter *adapter)
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

void pn_adapter_of(struct pn_device *device, struct pn_adapter *adapter)
{
	*adapter = (struct pn_adapter){ .port = 1 };
	device->ops->describe(device, note_fact, adapter);
	find_gid(adapter);
	choose_cpus(adapter);
}

/* --- the tools ------------------------------------------------------------ */

/* UCX 1.13 aborts with any address of rxe but the first. Its medians have the
 * resolution of its clock, half a microsecond in a guest: means. */
#define UCX(test)                                      \
	"UCX_NET_DEVICES=@a:@p UCX_IB_GID_INDEX=0 "    \
	"UCX_TLS=rc_v,ud_v,self ucx_perftest -t " test \
	" -s @b -n @n -w 50 -p @t"
#define UCX_MEAN "Final:", 4, 1, true
#define UCX_RATE "Final:", 8, 1, true

#define PERFTEST(program) program " -F -d @a -i @p -x @g -s @b -n @n -p @t"
#define PERFTEST_MEDIAN	  " @b ", 5, 1, false
#define PERFTEST_RATE	  " @b ", 5, 1e6, true

const struct pn_peer_tool pn_peer_tools[] = {
	{ "ucx", "ucx_perftest", "message_lat", UCX("tag_lat"), UCX_MEAN },
	{ "ucx", "ucx_perftest", "message_bw", UCX("tag_bw"), UCX_RATE },
	{ "ucx", "ucx_perftest", "put_lat", UCX("ucp_put_lat"), UCX_MEAN },
	{ "ucx", "ucx_perftest", "put_bw", UCX("ucp_put_bw"), UCX_RATE },
	{ "ucx", "ucx_perftest", "get_lat", UCX("ucp_get"), UCX_MEAN },
	{ "ucx", "ucx_perftest", "add_lat", UCX("ucp_fadd"), UCX_MEAN },
	{ "perftest", "ib_send_lat", "message_lat", PERFTEST("ib_send_lat"),
	  PERFTEST_MEDIAN },
	{ "perftest", "ib_send_bw", "message_bw", PERFTEST("ib_send_bw"),
	  PERFTEST_RATE },
	{ "perftest", "ib_write_lat", "put_lat", PERFTEST("ib_write_lat"),
	  PERFTEST_MEDIAN },
	{ "perftest", "ib_write_bw", "put_bw", PERFTEST("ib_write_bw"),
	  PERFTEST_RATE },
	{ "perftest", "ib_read_lat", "get_lat", PERFTEST("ib_read_lat"),
	  PERFTEST_MEDIAN },
	{ "perftest", "ib_atomic_lat", "add_lat",
	  "ib_atomic_lat -F -d @a -i @p -x @g -n @n -p @t", PERFTEST_MEDIAN },
	{ "libfabric", "fi_pingpong", "message_lat",
	  "fi_pingpong -p verbs -e msg -d @a -S @b -I @n", "@k ", 7, 1, true },
};

const size_t pn_npeer_tools = PN_ARRAY_LEN(pn_peer_tools);

/* Values of the @ letters in the text of a tool. */
struct arguments {
	const struct pn_adapter *adapter;
	size_t bytes;
	uint64_t times;
	unsigned tcp_port;
};

static int expand_letter(char letter, const struct arguments *with, char *out)
{
	size_t bytes = with->bytes;

	switch (letter) {
	case 'a':
		return sprintf(out, "%s", with->adapter->name);
	case 'p':
		return sprintf(out, "%u", with->adapter->port);
	case 'g':
		return sprintf(out, "%u", with->adapter->gid);
	case 'b':
		return sprintf(out, "%zu", bytes);
	case 'k': /* as fi_pingpong prints it */
		return bytes % 1024	   ? sprintf(out, "%zu", bytes)
		       : bytes % (1 << 20) ? sprintf(out, "%zuk", bytes / 1024)
					   : sprintf(out, "%zum", bytes >> 20);
	case 'n':
		return sprintf(out, "%llu", (unsigned long long)with->times);
	default: /* t */
		return sprintf(out, "%u", with->tcp_port);
	}
}

static void expand(const char *from, const struct arguments *with, char *out,
		   size_t size)
{
	size_t n = 0;

	for (; *from && n + 64 < size; from++) {
		if (*from == '@')
			n += (size_t)expand_letter(*++from, with, out + n);
		else
			out[n++] = *from;
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

bool pn_peer_tool_installed(const struct pn_peer_tool *tool)
{
	char command[128];

	snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1",
		 tool->program);
	return !system(command);
}

double pn_peer_tool_run(const struct pn_peer_tool *tool,
			const struct pn_adapter *adapter, size_t bytes,
			uint64_t times)
{
	static unsigned tcp = FIRST_PORT;
	struct arguments with = { adapter, bytes, times, ++tcp };
	char arguments[512], start[128], command[1400], line[512];
	double found = NAN;
	FILE *file;

	expand(tool->arguments, &with, arguments, sizeof(arguments));
	expand(tool->line, &with, start, sizeof(start));
	/* A server may start slowly: the client tries again. */
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
