/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How fast do messages arrive under each protocol, by size and by number of
 * uses of a buffer?
 *
 * Buffers are new in every trial, and each is used `reuse` times (session.h
 * describes what is timed). For each size, all protocols and numbers of uses,
 * and the device without messages (raw: eight bytes in polled shared memory, or
 * one put between registered buffers), are measured alternately within one run;
 * figures are medians over the rounds, and the ratio to raw is the median of
 * the ratios of the rounds. In virtual time all rounds are equal: one is
 * enough.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "bench/session.h"

#define MAX_LIST    64
#define MAX_ENTRIES 512
#define MAX_ROUNDS  201
/* Messages per turn that need no registered buffer; few, so that an
 * interruption affects few rounds. */
#define PINGS	    250
#define PUT_BYTES   ((size_t)32 << 20) /* approximate bytes of a trial */
#define RAW	    (-1)
#define RAW_FLAG    8	/* bytes; up to this size raw is a notification */
#define SEEN	    200 /* buffers until `auto` counts as trained */
/* Minimum number of messages of a turn in real time: `auto` explores now and
 * then, and an interruption must affect all alternatives alike. Long messages
 * are limited by bytes instead. */
#define TURN	    96
#define TURN_BYTES  ((size_t)256 << 20)

struct values {
	struct pn_bench_values common; /* min and max are not options here */
	char protocol[PN_OPTION_TEXT_BYTES];
	char bytes[PN_OPTION_TEXT_BYTES];
	char reuse[PN_OPTION_TEXT_BYTES];
	uint64_t buffers;
	bool fresh, cold;
};

#define AT(name) offsetof(struct values, name)

static const struct pn_option options[] = {
	PN_COMMAND_DEVICE(struct values, common.device),
	{ "protocol", PN_OPTION_TEXT, "all",
	  "protocols separated by commas: eager, copy, demand, cached, "
	  "pipeline, caching-pipeline, read, overlapped, auto",
	  AT(protocol), 0, 0, NULL },
	{ "bytes", PN_OPTION_TEXT, "8,64K,1M,4M,16M",
	  "sizes separated by commas; 1M..64M: each size twice the one before",
	  AT(bytes), 0, 0, NULL },
	{ "reuse", PN_OPTION_TEXT, "1,32",
	  "number of uses of each buffer, likewise", AT(reuse), 0, 0, NULL },
	{ "buffers", PN_OPTION_NUMBER, "4",
	  "number of buffers of a trial, used one after the other", AT(buffers),
	  1, 1 << 16, NULL },
	{ "fresh", PN_OPTION_BOOL, "no", "receive into untouched pages",
	  AT(fresh), 0, 0, NULL },
	{ "cold", PN_OPTION_BOOL, "no",
	  "auto: measure its first decisions instead of the trained ones",
	  AT(cold), 0, 0, NULL },
	{ "budget", PN_OPTION_TIME, "20s", "approximate time limit",
	  AT(common.budget), PN_NS_PER_MS, 0, NULL },
	PN_COMMAND_JSON(struct values, common.json),
};

/* --- lists ---------------------------------------------------------------- */

struct list {
	uint64_t items[MAX_LIST];
	size_t n;
};

static bool list_add(struct list *list, uint64_t item)
{
	if (list->n == MAX_LIST || !item)
		return false;
	list->items[list->n++] = item;
	return true;
}

static bool parse_number(const char *text, uint64_t *out)
{
	const struct pn_option row = { .name = "",
				       .type = PN_OPTION_BYTES,
				       .max = UINT64_C(1) << 40 };

	return !pn_option_parse(&row, text, out, NULL);
}

/* "64K" or "1M..64M". */
static bool parse_item(char *item, struct list *list)
{
	char *range = strstr(item, "..");
	uint64_t first, last;

	if (range)
		*range = 0;
	if (!parse_number(item, &first) || !first ||
	    !parse_number(range ? range + 2 : item, &last) || last < first)
		return false;
	for (; first <= last; first *= 2)
		if (!list_add(list, first))
			return false;
	return true;
}

static bool parse_list(const char *text, struct list *list)
{
	char item[PN_WORD_BYTES];

	while (pn_words_next(&text, item))
		if (!parse_item(item, list))
			return false;
	return !*text && list->n;
}

#define ALL (PN_PROTOCOL_AUTO + 1) /* "all" */

static int protocol_number(const char *word)
{
	return strcmp(word, "all") ? pn_protocol_find(word) : ALL;
}

/* The set of protocols as bits; 0: a name is unknown. */
static unsigned parse_protocols(const char *text)
{
	unsigned set = pn_words_set(text, protocol_number);

	return set >> ALL & 1 ? (1u << ALL) - 1 : set;
}

/* --- the alternatives of a size --------------------------------------------
 */

struct entry {
	int protocol; /* protocol or RAW */
	unsigned buffers, uses;
	uint64_t cell; /* auto only */
	int taken;     /* the protocol of most messages */
	size_t peak_bytes;
	double ns[MAX_ROUNDS];
	double ratio; /* ratio to raw */
};

struct state {
	struct pn_bench_run run;
	const struct values *values;
	struct list bytes, reuse;
	unsigned protocols;
	struct pn_session *session;
	struct entry entries[MAX_ENTRIES];
	unsigned nentries;
	uint64_t ncells;
	uint64_t share_ns; /* real time for the size */
};

static void add_entry(struct state *s, int protocol, unsigned buffers,
		      uint64_t uses)
{
	pn_assert(s->nentries < MAX_ENTRIES);
	s->entries[s->nentries++] = (struct entry){ .protocol = protocol,
						    .buffers = buffers,
						    .uses = (unsigned)uses,
						    .taken = protocol };
}

/* Raw comes first, since the ratios of the others need it. Eager messages need
 * no registration: one row for all numbers of uses. */
static void choose_entries(struct state *s, size_t bytes)
{
	const unsigned buffers = (unsigned)s->values->buffers;

	s->nentries = 0;
	add_entry(s, RAW, 1,
		  bytes <= RAW_FLAG ? PINGS : 1 + PUT_BYTES / (bytes + 65536));
	for (int id = 0; id <= PN_PROTOCOL_AUTO; id++) {
		if (!(s->protocols >> id & 1) ||
		    !pn_session_protocol_applies(s->session, id, bytes))
			continue;
		if (id == PN_PROTOCOL_EAGER)
			add_entry(s, id, 1, PINGS);
		for (size_t i = 0; id != PN_PROTOCOL_EAGER && i < s->reuse.n;
		     i++)
			add_entry(s, id, buffers, s->reuse.items[i]);
	}
}

static int measure_raw(struct state *s, struct entry *e, size_t bytes,
		       double *ns)
{
	if (bytes <= RAW_FLAG && s->session->flags)
		return pn_session_raw_notify(s->session, e->uses, ns);
	return pn_session_raw_put(s->session, bytes, e->uses, ns);
}

/* Trains `auto` with many buffers of this cell before it is measured, for at
 * most half of the time of the size; not at all if `cold` is set. */
static int train(struct state *s, struct entry *e,
		 struct pn_session_trial *trial)
{
	uint64_t end = pn_clock_ns() + s->share_ns / (2 * s->nentries);
	bool known = e->cell && !s->values->cold;
	struct pn_session_result result;
	int ret = 0;

	if (!known)
		e->cell = ++s->ncells;
	trial->cell = e->cell;
	if (known || s->values->cold)
		return 0;
	for (unsigned seen = 0; !ret && seen < SEEN; seen += e->buffers) {
		if (!s->run.virtual_time && pn_clock_ns() > end)
			break;
		ret = pn_session_run_trial(s->session, trial, &result);
	}
	return ret;
}

/* Trials in a turn. */
static unsigned trials_of(const struct state *s, const struct entry *e,
			  size_t bytes)
{
	size_t messages = (size_t)e->buffers * e->uses;
	size_t most = TURN_BYTES / (messages * bytes);
	size_t n = 1 + TURN / messages;

	if (s->values->cold ||
	    (s->run.virtual_time && e->protocol != PN_PROTOCOL_AUTO))
		return 1;
	if (s->run.virtual_time || n <= most)
		return (unsigned)n;
	return most > 1 ? (unsigned)most : 1;
}

static int measure_entry(struct state *s, struct entry *e, size_t bytes,
			 double *ns)
{
	struct pn_session_trial trial = { .protocol = e->protocol,
					  .bytes = bytes,
					  .buffers = e->buffers,
					  .uses = e->uses,
					  .fresh = s->values->fresh };
	unsigned times = trials_of(s, e, bytes);
	int ret = 0;

	if (e->protocol == RAW)
		return measure_raw(s, e, bytes, ns);
	if (e->protocol == PN_PROTOCOL_AUTO)
		ret = train(s, e, &trial);
	*ns = 0;
	for (unsigned i = 0; !ret && i < times; i++) {
		struct pn_session_result result = { 0 };

		ret = pn_session_run_trial(s->session, &trial, &result);
		*ns += result.ns / times;
		e->taken = result.taken;
		if (result.peak_bytes > e->peak_bytes)
			e->peak_bytes = result.peak_bytes;
	}
	return ret;
}

static const char *entry_name(const struct entry *e)
{
	return e->protocol == RAW ? "raw"
				  : pn_protocol_name((unsigned)e->protocol);
}

/* Measures every entry once; the order changes from round to round. */
static int run_round(void *arg, size_t bytes, size_t round)
{
	struct state *s = arg;
	char size[PN_REPORT_BYTES_LEN], text[128];

	pn_report_bytes(bytes, size);
	for (unsigned i = 0; i < s->nentries; i++) {
		struct entry *e =
			&s->entries[(i + (unsigned)round) % s->nentries];
		int ret;

		snprintf(text, sizeof(text), "%s, round %zu: %s, %u uses", size,
			 round + 1, entry_name(e), e->uses);
		pn_report_progress(text);
		ret = measure_entry(s, e, bytes, &e->ns[round]);
		if (ret) {
			pn_report_progress(NULL);
			pn_failed(entry_name(e), ret);
			return PN_BENCH_REPORTED;
		}
	}
	return 0;
}

/* --- rows ----------------------------------------------------------------- */

static double median_ratio(const struct entry *e, const struct entry *raw,
			   size_t rounds)
{
	double ratios[MAX_ROUNDS];

	for (size_t i = 0; i < rounds; i++)
		ratios[i] = raw->ns[i] / e->ns[i];
	return pn_median(ratios, rounds);
}

static void print_entry(struct state *s, struct entry *e, size_t bytes,
			size_t rounds)
{
	const double ns = pn_median(e->ns, rounds);
	const struct pn_report_cell row[] = {
		PN_CELL_TEXT("protocol", "protocol", -16, entry_name(e)),
		PN_CELL_BYTES("bytes", "bytes", 6, bytes),
		PN_CELL_COUNT("reuse", "reuse", 6, e->uses),
		PN_CELL_RATE("bytes_per_s", "bytes/s", 8,
			     1e9 * (double)bytes / ns),
		PN_CELL_NUMBER("latency_us", "latency us", 10, ns / 1e3),
		PN_CELL_NUMBER("ratio_to_raw", "of raw", 6, e->ratio),
		PN_CELL_BYTES("registered_bytes_peak", "registered", 10,
			      e->peak_bytes),
		PN_CELL_COUNT("rounds", "rounds", 6, rounds),
		PN_CELL_TEXT("took", "took", 0,
			     e->protocol == PN_PROTOCOL_AUTO
				     ? pn_protocol_name((unsigned)e->taken)
				     : ""),
		PN_CELL_COUNT("buffers", NULL, 0, e->buffers),
		PN_CELL_FLAG("fresh", NULL, 0, s->values->fresh),
	};

	pn_report_progress(NULL);
	pn_report_row(&s->run.report, row, PN_ARRAY_LEN(row));
}

/* Ratios first: computing a median reorders the samples. */
static void print_size(struct state *s, size_t bytes, size_t rounds)
{
	for (unsigned i = 0; i < s->nentries; i++)
		s->entries[i].ratio =
			median_ratio(&s->entries[i], &s->entries[0], rounds);
	for (unsigned i = 0; i < s->nentries; i++)
		print_entry(s, &s->entries[i], bytes, rounds);
}

static int measure_size(struct state *s, size_t bytes)
{
	const struct pn_bench_rounds rounds = { run_round, s, 3, MAX_ROUNDS };
	size_t n;
	int ret;

	choose_entries(s, bytes);
	s->share_ns = pn_bench_share_ns(&s->run);
	ret = pn_bench_run_rounds(&s->run, &rounds, bytes, s->share_ns, &n);
	if (!ret)
		print_size(s, bytes, n);
	return ret;
}

static int body(struct pn_session *session, void *arg)
{
	struct state *s = arg;
	int ret = 0;

	s->session = session;
	pn_session_begin(session, &s->run, &pn_bench_message);
	pn_bench_plan(&s->run, s->bytes.n);
	for (size_t i = 0; !ret && i < s->bytes.n; i++)
		ret = measure_size(s, s->bytes.items[i]);
	return ret;
}

static int run_message(const void *v, char *const *operands)
{
	struct state *s = calloc(1, sizeof(*s));
	int ret;

	(void)operands;
	if (!s)
		return pn_failed("message", -ENOMEM);
	s->values = v;
	s->protocols = parse_protocols(s->values->protocol);
	if (!s->protocols)
		ret = pn_usage_error(
			"--protocol takes eager, copy, demand, cached, "
			"pipeline, caching-pipeline, read, overlapped, auto, "
			"separated by commas, or all");
	else if (!parse_list(s->values->bytes, &s->bytes) ||
		 !parse_list(s->values->reuse, &s->reuse))
		ret = pn_usage_error("--bytes and --reuse take numbers above "
				     "0 such as 64K,1M..64M, at most %d",
				     MAX_LIST);
	else
		ret = pn_session_bench(&s->run, v, &pn_bench_message, body, s);
	free(s);
	return ret;
}

const struct pn_command pn_bench_message = {
	.name = "message",
	.help = "how fast do messages arrive under each protocol?",
	.about = "Bandwidth, latency and registered bytes by size and number "
		 "of uses of a buffer, compared with notification and put of "
		 "the device, alternately within one run.",
	.options = options,
	.noptions = PN_ARRAY_LEN(options),
	.values_bytes = sizeof(struct values),
	.run = run_message,
};
