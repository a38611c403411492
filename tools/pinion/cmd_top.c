/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pinion top: this user's processes, live, in a terminal.
 *
 * Twice a second the statistics segments are read (view.h) and everything is
 * drawn again: the processes, and below them one process in detail. Rates are
 * differences between two samples. The picture fills the terminal; 80 x 24
 * shows the essential lines, and lines that do not fit are left out from below.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "tools/pinion/command.h"
#include "tools/pinion/report.h"
#include "tools/pinion/view.h"

struct values {
	uint64_t interval;
};

static const struct pn_option options[] = {
	{ "interval", PN_OPTION_TIME, "500ms", "sampling interval",
	  offsetof(struct values, interval), 10 * 1000 * 1000,
	  UINT64_C(3600) * 1000 * 1000 * 1000, NULL },
};

#ifdef PINION_NCURSES
#include <ncurses.h>

#define MOST_PROCESSES 256
#define MOST_REGIONS   256
#define HISTORY	       512 /* samples; more than the columns of any terminal */

struct process {
	int pid;
	struct pn_view view;
	double hits, misses, sent; /* number of samples */
	double hits_rate, misses_rate, sent_rate;
	double pinned[HISTORY]; /* ring buffer */
	unsigned nsamples;
	bool seen; /* seen in this sample */
};

struct top {
	struct process *processes;
	unsigned n;
	int only;     /* the only pid; 0: all */
	int selected; /* the pid shown in detail; 0: the first */
	bool frozen;
	double seconds; /* since the last sample */
	int row;	/* row of the next line */
};

static volatile sig_atomic_t asked_to_end;

static void request_end(int signal_number)
{
	(void)signal_number;
	asked_to_end = 1;
}

/* --- sampling ------------------------------------------------------------- */

static struct process *process_of(struct top *top, int pid)
{
	for (unsigned i = 0; i < top->n; i++)
		if (top->processes[i].pid == pid)
			return &top->processes[i];
	if (top->n == MOST_PROCESSES)
		return NULL;
	memset(&top->processes[top->n], 0, sizeof(top->processes[0]));
	top->processes[top->n].pid = pid;
	return &top->processes[top->n++];
}

/* Messages of an endpoint, by any protocol. */
static double messages_sent(const struct pn_view *view)
{
	const struct pn_stats_block *block = NULL;
	double sum = 0;

	while ((block = pn_view_next(view, block)))
		for (unsigned i = 0; i < block->nfields; i++)
			if (pn_view_is(block, "endpoint") &&
			    !strncmp(pn_view_field(block, i)->name, "sent_", 5))
				sum += pn_view_number(block, 0,
						      pn_view_field(block, i));
	return sum;
}

static void advance(double *so_far, double now, double seconds, double *rate,
		    bool first)
{
	*rate = first || now < *so_far ? 0 : (now - *so_far) / seconds;
	*so_far = now;
}

static void sample_process(struct top *top, int pid)
{
	struct process *p = process_of(top, pid);
	struct pn_view view;
	bool first;

	if (!p || pn_view_open(pid, &view))
		return;
	first = !p->nsamples;
	pn_view_close(&p->view);
	p->view = view;
	p->seen = true;
	advance(&p->hits, pn_view_total(&view, "cache", "hits"), top->seconds,
		&p->hits_rate, first);
	advance(&p->misses, pn_view_total(&view, "cache", "misses"),
		top->seconds, &p->misses_rate, first);
	advance(&p->sent, messages_sent(&view), top->seconds, &p->sent_rate,
		first);
	p->pinned[p->nsamples++ % HISTORY] =
		pn_view_total(&view, "context", "pinned_bytes");
}

static void remove_ended(struct top *top)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < top->n; i++) {
		if (!top->processes[i].seen)
			pn_view_close(&top->processes[i].view);
		else if (kept++ != i)
			top->processes[kept - 1] = top->processes[i];
	}
	top->n = kept;
}

static int by_pid(const void *a, const void *b)
{
	int x = ((const struct process *)a)->pid;
	int y = ((const struct process *)b)->pid;

	return (x > y) - (x < y);
}

static void sample(struct top *top)
{
	int pids[MOST_PROCESSES], n;

	for (unsigned i = 0; i < top->n; i++)
		top->processes[i].seen = false;
	pids[0] = top->only;
	n = top->only ? 1 : pn_view_list(pids, MOST_PROCESSES);
	for (int i = 0; i < n; i++)
		sample_process(top, pids[i]);
	remove_ended(top);
	qsort(top->processes, top->n, sizeof(top->processes[0]), by_pid);
}

static unsigned selected_index(const struct top *top)
{
	for (unsigned i = 0; i < top->n; i++)
		if (top->processes[i].pid == top->selected)
			return i;
	return 0;
}

/* --- the largest regions -------------------------------------------------- */

struct region {
	double bytes;
	const struct pn_stats_block *block;
	unsigned row;
};

static int by_bytes(const void *a, const void *b)
{
	double x = ((const struct region *)a)->bytes;
	double y = ((const struct region *)b)->bytes;

	return (x < y) - (x > y);
}

static unsigned collect_regions(const struct process *p, struct region *regions,
				unsigned max)
{
	const struct pn_stats_block *block = NULL;
	unsigned n = 0;

	while ((block = pn_view_next(&p->view, block))) {
		const struct pn_stats_field *field =
			pn_view_find(block, "bytes");

		if (!pn_view_is(block, "region") || !field)
			continue;
		for (unsigned i = 0; i < block->nrows && n < max; i++) {
			double bytes = pn_view_number(block, i, field);

			if (bytes > 0)
				regions[n++] =
					(struct region){ bytes, block, i };
		}
	}
	qsort(regions, n, sizeof(*regions), by_bytes);
	return n;
}

/* --- drawing -------------------------------------------------------------- */

/* Draws a line, cut at the width of the terminal. */
static void line(struct top *top, int attributes, const char *fmt, ...)
	PN_PRINTF(3, 4);

static void line(struct top *top, int attributes, const char *fmt, ...)
{
	char text[1024];
	va_list args;

	if (top->row >= LINES)
		return;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	attron(attributes);
	mvaddnstr(top->row, 0, text, COLS);
	if (attributes & A_REVERSE)
		for (int x = (int)strlen(text); x < COLS; x++)
			addch(' ');
	attroff(attributes);
	top->row++;
}

static const char *bytes_text(double bytes, char *buf)
{
	static const char units[] = " KMGTP";
	unsigned unit = 0;

	if (bytes > 9e18)
		return strcpy(buf, "-");
	while (bytes >= 1024 && unit < 5) {
		bytes /= 1024;
		unit++;
	}
	snprintf(buf, PN_REPORT_BYTES_LEN,
		 unit && bytes < 10 ? "%.1f%c" : "%.0f%c", bytes,
		 unit ? units[unit] : 'B');
	return buf;
}

/* Hits per 100 pins. */
static double percent(double part, double rest)
{
	return part + rest > 0 ? 100 * part / (part + rest) : 0;
}

/* Bytes that the process may pin: the sum of its contexts' budgets, or the
 * budget of the process if that is less. */
static double budget_of(const struct process *p)
{
	double sum = pn_view_total(&p->view, "context", "max_bytes");
	double most = pn_view_largest(&p->view, "context", "process_max_bytes");

	return most > 0 && most < sum ? most : sum;
}

static void draw_process(struct top *top, const struct process *p,
			 bool selected)
{
	char pinned[PN_REPORT_BYTES_LEN], budget[PN_REPORT_BYTES_LEN];

	line(top, selected ? A_REVERSE : A_NORMAL,
	     "%7d %c %-14.14s %8s %8s %6.1f%% %9.0f %8.0f %8.0f", p->pid,
	     p->view.state, p->view.head->command,
	     bytes_text(pn_view_total(&p->view, "context", "pinned_bytes"),
			pinned),
	     bytes_text(budget_of(p), budget), percent(p->hits, p->misses),
	     p->hits_rate, p->misses_rate, p->sent_rate);
}

static int history_rows(void)
{
	return LINES > 40 ? 8 : 4;
}

/* Rows of the terminal for processes: all that the lines below do not need. */
static unsigned process_rows(const struct top *top)
{
	struct region regions[MOST_REGIONS];
	unsigned least = LINES > 40 ? 12 : 5, below, room;

	if (!top->n)
		return 0;
	below = 1 + (unsigned)history_rows() + 4 + 1 +
		collect_regions(&top->processes[selected_index(top)], regions,
				MOST_REGIONS);
	room = (unsigned)LINES > 2 + below ? (unsigned)LINES - 2 - below : 0;
	return room > least ? room : least;
}

static void draw_processes(struct top *top)
{
	unsigned selected = selected_index(top);
	unsigned shown = process_rows(top), first = 0;

	/* One row says how many are not shown. */
	if (top->n > shown && shown > 1)
		shown--;
	line(top, A_BOLD, "%7s S %-14s %8s %8s %7s %9s %8s %8s", "PID",
	     "COMMAND", "PINNED", "BUDGET", "HITS", "HITS/s", "MISSES/s",
	     "SENT/s");
	if (selected >= shown)
		first = selected - shown + 1;
	for (unsigned i = first; i < top->n && i < first + shown; i++)
		draw_process(top, &top->processes[i], i == selected);
	if (top->n > shown)
		line(top, A_NORMAL, "        %u of %u processes are not shown",
		     top->n - shown, top->n);
	if (!top->n)
		line(top, A_NORMAL,
		     "No process of this user has a pinion context open.");
}

static double pinned_before(const struct process *p, unsigned looks)
{
	return p->nsamples > looks && looks < HISTORY
		       ? p->pinned[(p->nsamples - 1 - looks) % HISTORY]
		       : 0;
}

/* Pinned memory over time, newest on the right. Full height is the budget, or
 * the peak if that is far below. */
static void draw_history(struct top *top, const struct process *p)
{
	double budget = budget_of(p);
	double peak = pn_view_total(&p->view, "context", "peak_bytes");
	double full = peak * 4 < budget ? peak : budget;
	char text[PN_REPORT_BYTES_LEN];
	int high = history_rows(), wide = COLS - 10;

	line(top, A_BOLD, "Pinned memory, the last %.0f s (full height: %s)",
	     wide * top->seconds, full < budget ? "the peak" : "the budget");
	for (int y = high; y > 0 && top->row < LINES; y--, top->row++) {
		mvprintw(top->row, 0, "%8s ",
			 bytes_text(full * y / high, text));
		for (int x = 0; x < wide; x++) {
			double part =
				pinned_before(p, (unsigned)(wide - 1 - x)) /
				(full > 0 ? full : 1) * high;

			addch(part >= y ? '#' : part > y - 0.75 ? ':' : ' ');
		}
	}
}

static double of_cache(const struct process *p, const char *name)
{
	return pn_view_total(&p->view, "cache", name);
}

static void draw_cache(struct top *top, const struct process *p)
{
	char bytes[PN_REPORT_BYTES_LEN], dying[PN_REPORT_BYTES_LEN];

	line(top, A_NORMAL,
	     "Cache     %.0f hits, %.0f misses (%.0f new, %.0f partial, %.0f "
	     "access, %.0f bypass)",
	     p->hits, p->misses, of_cache(p, "misses_new"),
	     of_cache(p, "misses_partial"), of_cache(p, "misses_access"),
	     of_cache(p, "misses_bypass"));
	line(top, A_NORMAL,
	     "          %.0f regions of %s, %s dying; evicted %.0f, released "
	     "%.0f, refused %.0f",
	     of_cache(p, "regions"), bytes_text(of_cache(p, "bytes"), bytes),
	     bytes_text(of_cache(p, "dying_bytes"), dying),
	     of_cache(p, "evictions"), of_cache(p, "invalidations"),
	     of_cache(p, "refused"));
}

static void draw_helper(struct top *top, const struct process *p)
{
	const struct pn_stats_block *block = NULL;

	while ((block = pn_view_next(&p->view, block)))
		if (pn_view_is(block, "helper"))
			break;
	if (!block) {
		line(top, A_NORMAL, "Helper    off");
		return;
	}
	line(top, A_NORMAL,
	     "Helper    %s; %.0f transfers, %.0f in time, %.0f late, %.0f "
	     "sites, %.0f buffers",
	     pn_view_total(&p->view, "helper", "idle") > 0 ? "idle" : "on",
	     pn_view_total(&p->view, "helper", "calls"),
	     pn_view_total(&p->view, "helper", "in_time"),
	     pn_view_total(&p->view, "helper", "late"),
	     pn_view_total(&p->view, "helper", "sites"),
	     pn_view_total(&p->view, "helper", "buffers"));
}

/* The share of each protocol in its messages. */
static void draw_protocols(struct top *top, const struct process *p)
{
	const struct pn_stats_block *block = NULL;
	char text[256] = "";
	size_t at = 0;

	while ((block = pn_view_next(&p->view, block)))
		for (unsigned i = 0; i < block->nfields; i++) {
			const struct pn_stats_field *field =
				pn_view_field(block, i);
			double sent = pn_view_number(block, 0, field);

			if (!pn_view_is(block, "endpoint") ||
			    strncmp(field->name, "sent_", 5) || sent <= 0 ||
			    at > sizeof(text) - 48)
				continue;
			at += (size_t)snprintf(text + at, sizeof(text) - at,
					       "%s%s %.0f%%", at ? ", " : "",
					       field->name + 5,
					       100 * sent / p->sent);
		}
	line(top, A_NORMAL, "Messages  %.0f sent%s%s", p->sent, at ? ": " : "",
	     text);
}

static void draw_region(struct top *top, const struct region *r)
{
	const struct pn_stats_field *addr = pn_view_find(r->block, "addr");
	const struct pn_stats_field *site = pn_view_find(r->block, "site_name");
	char bytes[PN_REPORT_BYTES_LEN], name[40] = "";

	if (site)
		pn_view_text(r->block, r->row, site, name, sizeof(name));
	line(top, A_NORMAL, "%8s at %#014llx  %s", bytes_text(r->bytes, bytes),
	     addr ? (unsigned long long)pn_view_word(r->block, r->row, addr)
		  : 0,
	     name[0] ? name : "-");
}

static void draw_regions(struct top *top, const struct process *p)
{
	struct region regions[MOST_REGIONS];
	unsigned n = collect_regions(p, regions, MOST_REGIONS);

	line(top, A_BOLD, "Largest regions          address  call site");
	for (unsigned i = 0; i < n; i++)
		draw_region(top, &regions[i]);
}

static void draw(struct top *top)
{
	time_t now = time(NULL);
	struct tm tm;
	char clock[16];

	localtime_r(&now, &tm);
	strftime(clock, sizeof(clock), "%H:%M:%S", &tm);
	erase();
	top->row = 0;
	line(top, A_BOLD,
	     "pinion top  %s  %u process%s%s   up, down: choose; p: pause; q: "
	     "quit",
	     clock, top->n, top->n == 1 ? "" : "es",
	     top->frozen ? "  PAUSED" : "");
	draw_processes(top);
	if (top->n) {
		const struct process *p = &top->processes[selected_index(top)];

		draw_history(top, p);
		draw_cache(top, p);
		draw_protocols(top, p);
		draw_helper(top, p);
		draw_regions(top, p);
	}
	refresh();
}

/* --- the terminal --------------------------------------------------------- */

/* Returns false to quit. */
static bool handle_key(struct top *top, int key)
{
	unsigned at = selected_index(top);

	if (key == 'q' || key == 'Q')
		return false;
	if (key == 'p' || key == ' ')
		top->frozen = !top->frozen;
	if ((key == KEY_DOWN || key == 'j') && at + 1 < top->n)
		top->selected = top->processes[at + 1].pid;
	if ((key == KEY_UP || key == 'k') && at > 0)
		top->selected = top->processes[at - 1].pid;
	return true;
}

static void catch_signals(void)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction action = { .sa_handler = request_end };

	sigemptyset(&action.sa_mask);
	for (size_t i = 0; i < PN_ARRAY_LEN(numbers); i++)
		sigaction(numbers[i], &action, NULL);
}

/* Samples at the interval, draws after each key and each sample. */
static void watch(struct top *top, uint64_t interval)
{
	uint64_t last = pn_clock_ns(), next = last + interval;

	top->seconds = (double)interval / PN_NS_PER_S;
	sample(top);
	for (;;) {
		uint64_t now = pn_clock_ns();
		int key;

		draw(top);
		timeout(next > now ? (int)((next - now) / 1000000) + 1 : 0);
		key = getch();
		if (asked_to_end || (key != ERR && !handle_key(top, key)))
			return;
		now = pn_clock_ns();
		if (now < next)
			continue;
		top->seconds = (double)(now - last) / PN_NS_PER_S;
		last = now;
		next = now + interval;
		if (!top->frozen)
			sample(top);
	}
}

static int show(struct top *top, uint64_t interval)
{
	SCREEN *screen;

	if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
		return pn_usage_error("top: needs a terminal; `pinion stat` "
				      "prints the same figures");
	screen = newterm(NULL, stdout, stdin);
	if (!screen)
		return pn_usage_error("top: unknown terminal '%s'; set TERM",
				      getenv("TERM") ? getenv("TERM") : "");
	catch_signals();
	cbreak();
	noecho();
	keypad(stdscr, TRUE);
	curs_set(0);
	watch(top, interval);
	endwin();
	delscreen(screen);
	return PN_EXIT_OK;
}

static int top_run(const struct values *values, int only)
{
	struct top top = { .only = only };
	int ret;

	top.processes = calloc(MOST_PROCESSES, sizeof(*top.processes));
	if (!top.processes)
		return pn_failed("top", -ENOMEM);
	ret = show(&top, values->interval);
	for (unsigned i = 0; i < top.n; i++)
		pn_view_close(&top.processes[i].view);
	free(top.processes);
	return ret;
}

#else

static int top_run(const struct values *values, int only)
{
	(void)values, (void)only;
	fprintf(stderr, "pinion: top: built without ncurses; `pinion stat` "
			"prints the same figures\n");
	return PN_EXIT_FAILED;
}

#endif

static int run(const void *v, char *const *operands)
{
	char *end = "";
	long pid = operands[0] ? strtol(operands[0], &end, 10) : 0;

	if (*end || pid < 0 || pid > 1 << 22 || (operands[0] && !pid))
		return pn_usage_error("top: '%s' is not a process id",
				      operands[0]);
	if (operands[0] && operands[1])
		return pn_usage_error("top: name at most one process");
	return top_run(v, (int)pid);
}

const struct pn_command pn_cmd_top = {
	.name = "top",
	.help = "watch the pinned memory of running processes",
	.about = "Arrow keys select the process shown in detail, p pauses, q "
		 "quits.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.operands = "[PID]",
	.run = run,
};
