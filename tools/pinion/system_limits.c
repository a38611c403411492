/* SPDX-License-Identifier: BSD-2-Clause */
#include "tools/pinion/system_limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "device/soft/uring.h"
#include "tools/pinion/report.h"

#define CAP_IPC_LOCK_BIT 14

unsigned long long pn_proc_field(const char *path, const char *field, int base)
{
	FILE *file = fopen(path, "re");
	size_t len = strlen(field);
	unsigned long long value = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, field, len) || line[len] != ':')
			continue;
		value = strtoull(line + len + 1, NULL, base ? base : 10);
		if (!base && strstr(line, "kB"))
			value <<= 10;
		break;
	}
	if (file)
		fclose(file);
	return value;
}

static void memlock(pn_fact_fn *fn, void *arg)
{
	unsigned long long caps =
		pn_proc_field("/proc/self/status", "CapEff", 16);
	bool privileged = caps >> CAP_IPC_LOCK_BIT & 1;
	char text[160], bytes[PN_REPORT_BYTES_LEN];
	struct rlimit limit;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	snprintf(text, sizeof(text), "%s%s",
		 limit.rlim_cur == RLIM_INFINITY
			 ? "unlimited"
			 : pn_report_bytes(limit.rlim_cur, bytes),
		 privileged ? ", not enforced: CAP_IPC_LOCK"
			    : " for all processes of this user together; "
			      "raise it in /etc/security/limits.conf");
	fn(arg, "RLIMIT_MEMLOCK", text);
	fn(arg, "CAP_IPC_LOCK",
	   privileged ? "yes" : "no: the limit above applies");
}

static void uring(pn_fact_fn *fn, void *arg)
{
	struct io_uring_params params = { 0 };
	struct pn_uring ring;
	char text[160];
	int ret = pn_uring_open(&ring, 1, &params);

	if (!ret) {
		pn_uring_close(&ring);
		fn(arg, "io_uring", "permitted");
		return;
	}
	snprintf(text, sizeof(text),
		 "refused (%s): containers often forbid it, as does "
		 "kernel.io_uring_disabled",
		 strerror(-ret));
	fn(arg, "io_uring", text);
}

/* Returns the word in brackets of "always [madvise] never". */
static void transparent(pn_fact_fn *fn, void *arg)
{
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
	char line[128] = "", *word, *end;

	if (file && !fgets(line, sizeof(line), file))
		line[0] = 0;
	if (file)
		fclose(file);
	word = strchr(line, '[');
	end = word ? strchr(word, ']') : NULL;
	if (!end) {
		fn(arg, "transparent huge pages", "not in this kernel");
		return;
	}
	*end = 0;
	fn(arg, "transparent huge pages", word + 1);
}

static void reserved(pn_fact_fn *fn, void *arg)
{
	char text[128];

	snprintf(text, sizeof(text), "%llu free of %llu (vm.nr_hugepages)",
		 pn_proc_field("/proc/meminfo", "HugePages_Free", 0),
		 pn_proc_field("/proc/meminfo", "HugePages_Total", 0));
	fn(arg, "reserved huge pages", text);
}

void pn_system_limits(pn_fact_fn *fn, void *arg)
{
	memlock(fn, arg);
	uring(fn, arg);
	transparent(fn, arg);
	reserved(fn, arg);
}
