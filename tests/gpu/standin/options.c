/* SPDX-License-Identifier: BSD-2-Clause */
/* options -- costs and failures on demand, and counters (standin_impl.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "standin_impl.h"

#define MAX_FAILURES 32

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t standin_changed = PTHREAD_COND_INITIALIZER;

static struct {
	const char *name;
	uint64_t value;
} options[OPT_COUNT] = {
	[OPT_DEVICES] = { "devices", 1 },
	[OPT_MEMORY_MIB] = { "memory_mib", 4096 },
	/* before a copy of pinned memory begins */
	[OPT_LATE_US] = { "late_us", 200 },
	[OPT_REGISTER_US] = { "register_us", 0 },
	[OPT_REGISTER_PAGE_NS] = { "register_page_ns", 0 },
	[OPT_DEREGISTER_US] = { "deregister_us", 0 },
	[OPT_DEREGISTER_PAGE_NS] = { "deregister_page_ns", 0 },
	[OPT_COPY_US] = { "copy_us", 0 },
	[OPT_COPY_MIB_S] = { "copy_mib_s", 0 }, /* 0: no declared cost */
	[OPT_MEMOPS] = { "memops", 1 },		/* stream wait and write */
	[OPT_NUMA_NODE] = { "numa_node", 0 },
	/* with less memory of the GPU left: no stream, event, registration */
	[OPT_RESERVE_KIB] = { "reserve_kib", 0 },
};

/* fail=SYMBOL/N/CODE: the Nth call from now on returns CODE; N of 0: every
 * one; N+: that one and all later ones. A SYMBOL of '*' counts the calls of all
 * functions. fail=none: none any more. */
static struct failure {
	char symbol[64];
	uint64_t at; /* of the call's count; 0: always */
	bool for_ever;
	pn_cu_result code;
} failures[MAX_FAILURES];
static unsigned nfailures;
static uint64_t nfailed; /* calls that returned a planned failure */
static uint64_t ncalls;	 /* of all functions */
static struct standin_call *calls;
static _Atomic uint64_t nrefused; /* before cuInit(), or in a child */
static _Atomic pid_t owner;	  /* who called cuInit(); 0: nobody */

bool standin_inited(void)
{
	return owner;
}

void standin_set_inited(void)
{
	owner = getpid();
}

uint64_t standin_option(enum standin_option option)
{
	return __atomic_load_n(&options[option].value, __ATOMIC_RELAXED);
}

void standin_sleep_ns(uint64_t ns)
{
	struct timespec time = { (time_t)(ns / 1000000000),
				 (long)(ns % 1000000000) };

	if (ns)
		nanosleep(&time, NULL);
}

static uint64_t count_of(const char *symbol)
{
	if (!strcmp(symbol, "*"))
		return ncalls;
	for (const struct standin_call *call = calls; call; call = call->next)
		if (!strcmp(call->name, symbol))
			return call->count;
	return 0;
}

static int set_failure(const char *text)
{
	struct failure *failure = &failures[nfailures];
	unsigned long long at;
	int n = 0;

	if (!strcmp(text, "none")) {
		nfailures = 0;
		return 0;
	}
	if (nfailures == MAX_FAILURES ||
	    sscanf(text, "%63[^/]/%llu%n", failure->symbol, &at, &n) != 2)
		return -1;
	failure->for_ever = text[n] == '+';
	if (sscanf(text + n + failure->for_ever, "/%d", &failure->code) != 1)
		return -1;
	failure->at = at ? count_of(failure->symbol) + at : 0;
	nfailures++;
	return 0;
}

static int set_one(const char *name, const char *value)
{
	if (!strcmp(name, "fail"))
		return set_failure(value);
	for (int i = 0; i < OPT_COUNT; i++)
		if (!strcmp(name, options[i].name)) {
			__atomic_store_n(&options[i].value,
					 strtoull(value, NULL, 0),
					 __ATOMIC_RELAXED);
			return 0;
		}
	return -1;
}

/* "name=value,name=value". 0; -1: a name is unknown or a value is no such. */
STANDIN_API int pinion_standin_set(const char *text);
STANDIN_API int pinion_standin_set(const char *text)
{
	char *copy = strdup(text), *rest = copy, *item, *value;
	int ret = 0;

	pthread_mutex_lock(&standin_lock);
	while (!ret && (item = strsep(&rest, ","))) {
		if (!*item)
			continue;
		value = strchr(item, '=');
		if (value)
			*value++ = 0;
		ret = value ? set_one(item, value) : -1;
	}
	pthread_mutex_unlock(&standin_lock);
	free(copy);
	return ret;
}

/* How often a function was called: by its name; "*": all functions. */
STANDIN_API uint64_t pinion_standin_calls(const char *symbol);
STANDIN_API uint64_t pinion_standin_calls(const char *symbol)
{
	uint64_t count;

	pthread_mutex_lock(&standin_lock);
	count = count_of(symbol);
	pthread_mutex_unlock(&standin_lock);
	return count;
}

static bool fails(const struct failure *f, const struct standin_call *call)
{
	bool any = f->symbol[0] == '*';
	uint64_t count = any ? ncalls : call->count;

	if (!any && strcmp(f->symbol, call->name) != 0)
		return false;
	return !f->at || count == f->at || (f->for_ever && count > f->at);
}

static pn_cu_result planned(const struct standin_call *call)
{
	for (unsigned i = 0; i < nfailures; i++)
		if (fails(&failures[i], call)) {
			nfailed++;
			return failures[i].code;
		}
	return 0;
}

uint64_t standin_failed(void)
{
	return nfailed;
}

uint64_t standin_refused(void)
{
	return nrefused;
}

pn_cu_result standin_enter(struct standin_call *call)
{
	pn_cu_result result;

	if (owner != getpid()) {
		nrefused++;
		return PN_CUDA_ERROR_NOT_INITIALIZED;
	}
	pthread_mutex_lock(&standin_lock);
	if (!call->listed) {
		call->next = calls;
		calls = call;
		call->listed = true;
	}
	call->count++;
	ncalls++;
	result = planned(call);
	pthread_mutex_unlock(&standin_lock);
	return result;
}

/* --- what happens in between ---------------------------------------------- */

static struct {
	const char *symbol;
	uint64_t calls; /* until then */
	void (*fn)(void *arg);
	void *arg;
} planned_end;

/* At the end of the nth call of a function from now on, fn is called by the
 * thread that called, under no lock: for what happens to happen in between.
 * Functions that end with standin_leave() only. */
STANDIN_API void pinion_standin_after(const char *symbol, uint64_t n,
				      void (*fn)(void *arg), void *arg);
STANDIN_API void pinion_standin_after(const char *symbol, uint64_t n,
				      void (*fn)(void *arg), void *arg)
{
	pthread_mutex_lock(&standin_lock);
	planned_end.symbol = symbol;
	planned_end.calls = n;
	planned_end.fn = fn;
	planned_end.arg = arg;
	pthread_mutex_unlock(&standin_lock);
}

void standin_leave(const char *symbol)
{
	void (*fn)(void *arg) = NULL;
	void *arg = NULL;

	pthread_mutex_lock(&standin_lock);
	if (planned_end.calls && !strcmp(planned_end.symbol, symbol) &&
	    !--planned_end.calls) {
		fn = planned_end.fn;
		arg = planned_end.arg;
	}
	pthread_mutex_unlock(&standin_lock);
	if (fn)
		fn(arg);
}

__attribute__((constructor)) static void read_environment(void)
{
	const char *text = getenv("STANDIN_OPTIONS");

	if (text && pinion_standin_set(text))
		fprintf(stderr, "standin: STANDIN_OPTIONS: cannot read '%s'\n",
			text);
}
