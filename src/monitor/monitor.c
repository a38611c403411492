/* SPDX-License-Identifier: BSD-2-Clause */
#include "monitor/monitor.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/compiler.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/process.h"
#include "config/config.h"
#include "monitor/monitor_impl.h"

/* State of the patches. They are made in the constructor and tested when the
 * first subscriber comes. They are tried again only when a caller asks for it
 * (setup) or another library overwrites them (check). */
enum patch_state { PATCH_UNTRIED, PATCH_GOOD, PATCH_REFUSED };

/* The first lock: taken before subscribers_lock. No release waits for it. */
static struct pn_mutex lock = { PTHREAD_MUTEX_INITIALIZER };
static struct pn_monitor_report report PN_GUARDED_BY(&lock) = {
	.mode = PN_MONITOR_NONE,
};
static enum patch_state patch_state PN_GUARDED_BY(&lock);
static bool started PN_GUARDED_BY(&lock);
/* Copy of report.mode that is read without the lock. */
static _Atomic int mode_now = PN_MONITOR_NONE;

/* Written under the lock, before the detection begins again. */
static _Atomic unsigned interruptions;

static const char *const mode_names[] = { "auto", "patch", "userfaultfd",
					  "keep", "none",  "bypass" };

/* --- why a mode is refused ----------------------------------------------- */

/* Why threads may run besides this one and pinion's reader, which neither
 * allocates nor calls patched functions of libc; NULL: none runs. The links of
 * /proc/self/task are the threads. Where /proc is not mounted: unsharing what
 * threads share does nothing for a single thread, and fails with EINVAL when
 * there are several. */
static const char *other_threads(void)
{
	static const char several[] =
		"loaded when other threads were running; load pinion at "
		"program start (LD_PRELOAD)";
	unsigned own = pn_uffd_running() ? 4 : 3;
	struct stat st;

	if (pn_monitor_faults.threaded)
		return several;
	if (!stat("/proc/self/task", &st))
		return st.st_nlink <= own ? NULL : several;
	if (!unshare(CLONE_THREAD))
		return NULL;
	return errno == EINVAL ? several
			       : "whether other threads run is unknown: /proc "
				 "is not mounted, and unshare() forbidden";
}

static bool single_threaded(void)
{
	return !other_threads();
}

/* The allocators of sanitizers release memory with system calls of their own,
 * long after free(), where the self-test would not notice. */
static bool sanitizer_allocates(void)
{
	return dlsym(RTLD_DEFAULT, "__sanitizer_get_allocated_size") != NULL;
}

static bool libc_allocates(void)
{
	void *libc = dlopen("libc.so.6", RTLD_NOLOAD | RTLD_LAZY);
	bool yes =
		libc && dlsym(libc, "malloc") == dlsym(RTLD_DEFAULT, "malloc");

	if (libc)
		dlclose(libc);
	return yes && !sanitizer_allocates();
}

/* The program itself has no name and is never unloaded. */
int pn_monitor_keep_loaded(struct pn_why *why)
{
	struct link_map *map = NULL;
	Dl_info info;

	if (dladdr1((void *)&pn_monitor_keep_loaded, &info, (void **)&map,
		    RTLD_DL_LINKMAP) &&
	    (!map->l_name[0] ||
	     dlopen(map->l_name, RTLD_NOLOAD | RTLD_NODELETE | RTLD_LAZY)))
		return 0;
	snprintf(why->text, sizeof(why->text),
		 "cannot keep pinion's library loaded");
	return -EOPNOTSUPP;
}

static int refuse(enum pn_monitor_mode mode, const char *why) PN_REQUIRES(&lock)
{
	snprintf(report.refused[mode], sizeof(report.refused[mode]), "%s", why);
	return -EOPNOTSUPP;
}

/* The reason lists the kinds in `missed`. */
static int refuse_missed(enum pn_monitor_mode mode, unsigned missed)
	PN_REQUIRES(&lock)
{
	char why[PN_MONITOR_REASON_BYTES] = "does not see:";
	size_t len = strlen(why);

	for (int k = 0; k < PN_RELEASE_NKINDS && len < sizeof(why); k++)
		if (missed >> k & 1)
			len += (size_t)snprintf(
				why + len, sizeof(why) - len, " %s",
				pn_release_kind_name((enum pn_release_kind)k));
	return refuse(mode, why);
}

/* --- the modes ----------------------------------------------------------- */

/* The kinds that a mode has to detect. Patches need not detect cuts of files:
 * they never detect those by other processes. The kernel has no event for guard
 * pages. */
static unsigned required(enum pn_monitor_mode mode)
{
	return ~(mode == PN_MONITOR_PATCH ? PN_SELFTEST_FILES
					  : 1u << PN_RELEASE_GUARD_INSTALL);
}

static int test(enum pn_monitor_mode mode, unsigned kinds) PN_REQUIRES(&lock)
{
	unsigned missed =
		pn_selftest_run(kinds, single_threaded(), report.detection);

	missed &= required(mode);
	return missed ? refuse_missed(mode, missed) : 0;
}

static int install_patch(void) PN_REQUIRES(&lock)
{
	struct pn_why why = { "" };
	const char *others;

	if (sanitizer_allocates())
		return refuse(PN_MONITOR_PATCH,
			      "a sanitizer's allocator makes system calls of "
			      "its own");
	if (pn_patch_installed())
		return 0;
	others = other_threads();
	if (others)
		return refuse(PN_MONITOR_PATCH, others);
	if (pn_patch_install(&why))
		return refuse(PN_MONITOR_PATCH, why.text);
	return 0;
}

/* What must be done and tested while no other thread runs. */
static int try_patch(void) PN_REQUIRES(&lock)
{
	int ret = install_patch();

	if (!ret)
		ret = test(PN_MONITOR_PATCH, PN_SELFTEST_EARLY);
	patch_state = ret ? PATCH_REFUSED : PATCH_GOOD;
	return ret;
}

#define PATCHED_OVER "another library patched libc over it"
static bool patch_repaired(void) PN_REQUIRES(&lock);

static int begin_patch(void) PN_REQUIRES(&lock)
{
	if (patch_state == PATCH_UNTRIED)
		try_patch();
	if (patch_state == PATCH_REFUSED)
		return -EOPNOTSUPP;
	/* Other libraries may have patched since the constructor. */
	if (!pn_patch_intact() && !patch_repaired()) {
		patch_state = PATCH_REFUSED;
		return refuse(PN_MONITOR_PATCH, PATCHED_OVER);
	}
	if (test(PN_MONITOR_PATCH, PN_SELFTEST_ALL & ~PN_SELFTEST_EARLY)) {
		patch_state = PATCH_REFUSED;
		return -EOPNOTSUPP;
	}
	report.race_unmap = report.race_madvise = true;
	report.chained = pn_patch_chained();
	return 0;
}

static int begin_userfaultfd(void) PN_REQUIRES(&lock)
{
	struct pn_why why = { "" };
	int ret;

	/* Memory belongs to at most one userfaultfd: where pinion was first,
	 * the program's own registration would fail (EBUSY). */
	if (report.wanted != PN_MONITOR_USERFAULTFD &&
	    pn_uffd_used_by_program())
		return refuse(
			PN_MONITOR_USERFAULTFD,
			"the program uses userfaultfd itself, which would "
			"be refused memory that pinion watches");
	if (pn_monitor_keep_loaded(&why) || pn_uffd_open(&why))
		return refuse(PN_MONITOR_USERFAULTFD, why.text);
	ret = test(PN_MONITOR_USERFAULTFD, PN_SELFTEST_ALL);
	if (ret) {
		pn_uffd_close();
		return ret;
	}
	/* The event of madvise() comes before the pages go, so a pin made right
	 * after it may still get the old pages. */
	report.race_unmap = report.needs_probe = true;
	return 0;
}

/* Detects nothing, but makes malloc keep its memory (Woodall and others, High
 * Performance RDMA Protocols in HPC, 2006: sbrk disabled). Cannot be undone. */
static int begin_keep(void) PN_REQUIRES(&lock)
{
	if (!libc_allocates())
		return refuse(PN_MONITOR_KEEP, "malloc is not libc's");
	if (!mallopt(M_MMAP_MAX, 0) || !mallopt(M_TRIM_THRESHOLD, -1) ||
	    !mallopt(M_ARENA_MAX, 1))
		return refuse(PN_MONITOR_KEEP, "malloc refuses mallopt()");
	return test(PN_MONITOR_KEEP, PN_SELFTEST_HEAP);
}

static int begin(enum pn_monitor_mode mode) PN_REQUIRES(&lock)
{
	for (int k = 0; k < PN_RELEASE_NKINDS; k++)
		if (mode != PN_MONITOR_PATCH || patch_state == PATCH_UNTRIED)
			report.detection[k] = PN_DETECTION_NONE;
	report.race_unmap = report.race_madvise = report.needs_probe = false;
	switch (mode) {
	case PN_MONITOR_PATCH:
		return begin_patch();
	case PN_MONITOR_USERFAULTFD:
		return begin_userfaultfd();
	case PN_MONITOR_KEEP:
		return begin_keep();
	default:
		return 0;
	}
}

/* --- choosing ------------------------------------------------------------ */

/* The mode to try after `mode` was refused. Never `none`: there, registrations
 * become stale unless the program announces releases, so the user has to ask
 * for it. */
static enum pn_monitor_mode next_mode(enum pn_monitor_mode mode)
{
	return mode == PN_MONITOR_PATCH ? PN_MONITOR_USERFAULTFD
					: PN_MONITOR_BYPASS;
}

static void set_mode(enum pn_monitor_mode mode) PN_REQUIRES(&lock)
{
	report.mode = mode;
	atomic_store(&mode_now, mode);
}

#define ADVICE                                                                 \
	": released memory would not be noticed, so nothing stays registered " \
	"between uses, which is slow; link the program with libpinion or "     \
	"preload it (LD_PRELOAD), or permit userfaultfd (`pinion info`)"

/* With `auto`, a refusal is not worth a warning as long as the next mode
 * works. */
static void log_refusal(enum pn_monitor_mode mode, enum pn_monitor_mode next)
	PN_REQUIRES(&lock)
{
	bool quiet =
		report.wanted == PN_MONITOR_AUTO && next != PN_MONITOR_BYPASS;

	pn_log(quiet ? PN_LOG_INFO : PN_LOG_WARN,
	       "monitor mode %s refused (%s); trying %s%s", mode_names[mode],
	       report.refused[mode], mode_names[next],
	       next == PN_MONITOR_BYPASS ? ADVICE : "");
}

static void choose_from(enum pn_monitor_mode mode) PN_REQUIRES(&lock)
{
	while (begin(mode)) {
		log_refusal(mode, next_mode(mode));
		mode = next_mode(mode);
	}
	set_mode(mode);
}

static void choose(void) PN_REQUIRES(&lock)
{
	started = true;
	choose_from(report.wanted == PN_MONITOR_AUTO ? PN_MONITOR_PATCH
						     : report.wanted);
}

static void start(void) PN_REQUIRES(&lock)
{
	if (!started)
		choose();
}

/* --- another library patches over pinion's hooks ------------------------- */

/* Whether all kinds are still detected, or can be again. The break cannot be
 * tested while other threads run. */
static bool patch_repaired(void) PN_REQUIRES(&lock)
{
	unsigned kinds = PN_SELFTEST_ALL & ~PN_SELFTEST_THREAD &
			 required(PN_MONITOR_PATCH);
	struct pn_why why = { "" };
	bool single = single_threaded();

	if ((single || !pn_patch_break_changed()) &&
	    !pn_selftest_run(kinds, single, report.detection)) {
		pn_patch_accept();
		return true;
	}
	if (!single || pn_patch_install(&why) ||
	    pn_selftest_run(kinds, true, report.detection))
		return false;
	report.chained = pn_patch_chained();
	pn_info("another library had patched libc over pinion's hooks; both "
		"are called now");
	return true;
}

static void repair(void) PN_REQUIRES(&lock)
{
	if (patch_repaired())
		return;
	patch_state = PATCH_REFUSED;
	refuse(PN_MONITOR_PATCH, PATCHED_OVER);
	choose_from(PN_MONITOR_USERFAULTFD);
	pn_warn("another library has overwritten pinion's hooks in libc; the "
		"monitor's mode is %s now (load pinion after that library, or "
		"switch its memory hooks off)",
		mode_names[report.mode]);
}

bool pn_monitor_check(void)
{
	if (atomic_load(&mode_now) != PN_MONITOR_PATCH || pn_patch_intact())
		return true;
	pn_lock(&lock);
	if (report.mode == PN_MONITOR_PATCH && !pn_patch_intact()) {
		atomic_fetch_add(&interruptions, 1);
		repair();
	}
	pn_unlock(&lock);
	/* A release may have been missed since the last check. */
	pn_release_notify_all();
	return false;
}

/* --- life ---------------------------------------------------------------- */

static enum pn_monitor_mode wanted_by_environment(void)
{
	const char *text = secure_getenv("PINION_MONITOR");
	struct pn_config config = { .monitor = PN_MONITOR_AUTO };
	const struct pn_option *table, *option;
	size_t n;

	table = pn_config_table(&n);
	option = pn_option_find(table, n, "monitor", strlen("monitor"));
	/* pinion_open() refuses a bad value; a constructor cannot. */
	if (text && pn_option_parse(option, text, &config, NULL))
		return PN_MONITOR_AUTO;
	return (enum pn_monitor_mode)config.monitor;
}

static void before_fork(void) PN_NO_THREAD_SAFETY
{
	pn_lock(&lock);
}

static void parent_after_fork(void) PN_NO_THREAD_SAFETY
{
	pn_unlock(&lock);
}

static void child_after_fork(void) PN_NO_THREAD_SAFETY
{
	pn_uffd_reset();
	pn_release_reset();
	set_mode(PN_MONITOR_NONE);
	atomic_fetch_add(&interruptions, 1);
	started = false;
	pn_unlock(&lock);
}

__attribute__((constructor)) static void load(void)
{
	pn_process_atfork(before_fork, parent_after_fork, child_after_fork);
	pn_lock(&lock);
	report.wanted = wanted_by_environment();
	if (report.wanted <= PN_MONITOR_PATCH)
		try_patch();
	pn_unlock(&lock);
}

int pn_monitor_setup(enum pn_monitor_mode wanted)
{
	int ret = 0;

	if ((unsigned)wanted >= PN_MONITOR_NMODES)
		return -EINVAL;
	pn_lock(&lock);
	if (pn_release_has_subscribers()) {
		ret = -EBUSY;
	} else {
		pn_uffd_close();
		patch_state = PATCH_UNTRIED;
		memset(report.refused, 0, sizeof(report.refused));
		report.wanted = wanted;
		choose();
	}
	pn_unlock(&lock);
	return ret;
}

/* --- for subscribers ----------------------------------------------------- */

int pn_monitor_subscribe(struct pn_subscriber *subscriber)
{
	if (!subscriber || !subscriber->released)
		return -EINVAL;
	pn_lock(&lock);
	start();
	pn_release_subscribe(subscriber);
	pn_unlock(&lock);
	return 0;
}

void pn_monitor_unsubscribe(struct pn_subscriber *subscriber)
{
	pn_release_unsubscribe(subscriber);
}

int pn_monitor_watch(uintptr_t addr, size_t len)
{
	struct pn_range range;
	int ret = 0;

	if (!pn_range_valid(addr, len))
		return -EINVAL;
	range = pn_range_pages(addr, len, pn_monitor_page_bytes());
	pn_filter_add(range);
	switch (atomic_load(&mode_now)) {
	case PN_MONITOR_PATCH:
		ret = pn_library_contains(range) ? -EOPNOTSUPP : 0;
		break;
	case PN_MONITOR_USERFAULTFD:
		ret = pn_uffd_watch(range, false);
		break;
	case PN_MONITOR_BYPASS:
		ret = -EOPNOTSUPP;
		break;
	}
	if (ret)
		pn_filter_remove(range);
	return ret;
}

bool pn_monitor_watches(void)
{
	return atomic_load_explicit(&mode_now, memory_order_relaxed) !=
	       PN_MONITOR_BYPASS;
}

unsigned pn_monitor_interruptions(void)
{
	return atomic_load(&interruptions);
}

bool pn_monitor_detects(unsigned past)
{
	int mode = atomic_load(&mode_now);

	if (mode != PN_MONITOR_USERFAULTFD &&
	    (mode != PN_MONITOR_PATCH || !pn_patch_intact()))
		return false;
	/* Who sees the hooks repaired, or another mode, sees the count. */
	atomic_thread_fence(memory_order_acquire);
	return atomic_load(&interruptions) == past;
}

void pn_monitor_unwatch(uintptr_t addr, size_t len)
{
	pn_filter_remove(pn_range_pages(addr, len, pn_monitor_page_bytes()));
}

void pn_monitor_invalidate(uintptr_t addr, size_t len)
{
	pn_release_notify((struct pn_range){ addr, len });
}

bool pn_monitor_needs_probe(void)
{
	return atomic_load_explicit(&mode_now, memory_order_relaxed) ==
	       PN_MONITOR_USERFAULTFD;
}

bool pn_monitor_settled(void)
{
	return pn_uffd_settled();
}

bool pn_monitor_probe(uintptr_t addr)
{
	return !pn_monitor_needs_probe() || pn_uffd_probe(addr);
}

/* --- what `pinion info` shows -------------------------------------------- */

enum pn_monitor_mode pn_monitor_mode(void)
{
	pn_lock(&lock);
	start();
	pn_unlock(&lock);
	return (enum pn_monitor_mode)atomic_load(&mode_now);
}

void pn_monitor_report(struct pn_monitor_report *out)
{
	pn_lock(&lock);
	start();
	*out = report;
	pn_unlock(&lock);
}

const char *pn_monitor_mode_name(enum pn_monitor_mode mode)
{
	return mode_names[mode];
}

const char *pn_release_kind_name(enum pn_release_kind kind)
{
	static const char *const names[PN_RELEASE_NKINDS] = {
		[PN_RELEASE_MUNMAP] = "munmap",
		[PN_RELEASE_MUNMAP_PART] = "partial munmap",
		[PN_RELEASE_MMAP_FIXED] = "mmap MAP_FIXED",
		[PN_RELEASE_MREMAP_OLD] = "mremap source",
		[PN_RELEASE_MREMAP_NEW] = "mremap destination",
		[PN_RELEASE_MREMAP_SHRINK] = "mremap shrink",
		[PN_RELEASE_DONTNEED] = "MADV_DONTNEED",
		[PN_RELEASE_FREE] = "MADV_FREE",
		[PN_RELEASE_REMOVE] = "MADV_REMOVE",
		[PN_RELEASE_DONTNEED_LOCKED] = "MADV_DONTNEED_LOCKED",
		[PN_RELEASE_PROCESS_MADVISE] = "process_madvise",
		[PN_RELEASE_BRK] = "heap trim",
		[PN_RELEASE_BIG_FREE] = "free of a big block",
		[PN_RELEASE_BIG_REALLOC] = "realloc of a big block",
		[PN_RELEASE_SHMDT] = "shmdt",
		[PN_RELEASE_THREAD_STACK] = "thread stack",
		[PN_RELEASE_HIGH_BITS] = "number with high bits",
		[PN_RELEASE_GUARD_INSTALL] = "MADV_GUARD_INSTALL",
		[PN_RELEASE_TRUNCATE] = "ftruncate",
		[PN_RELEASE_TRUNCATE_PRIVATE] = "ftruncate, private",
		[PN_RELEASE_PUNCH_HOLE] = "fallocate hole punch",
		[PN_RELEASE_DLCLOSE] = "dlclose",
	};

	return names[kind];
}

const char *pn_detection_name(enum pn_detection detection)
{
	static const char *const names[] = {
		[PN_DETECTION_UNTESTED] = "not tested",
		[PN_DETECTION_BEFORE] = "before",
		[PN_DETECTION_AFTER] = "after",
		[PN_DETECTION_KEPT] = "kept",
		[PN_DETECTION_REFUSED] = "cannot be watched",
		[PN_DETECTION_IMPOSSIBLE] = "not possible here",
		[PN_DETECTION_NONE] = "not seen",
	};

	return names[detection];
}
