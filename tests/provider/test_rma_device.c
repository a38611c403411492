/* SPDX-License-Identifier: BSD-2-Clause */
/* RMA that the device executes (provider/onesided.h): it goes on while the
 * target is stopped, and its keys end with their regions. One side is the
 * target, the other one, the initiator, reads and writes. */
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "side.h"

#define CAPS	  (FI_RMA | FI_MSG)
#define BYTES	  ((size_t)256 << 10)
#define KEY	  7
#define PATIENCE  100 /* seconds; then an operation is said to hang */
#define IN_FLIGHT 8

/* What the initiator learns of the target. */
struct target {
	struct window window;
	pid_t pid;
};

static bool tell_window(struct side *s, uint8_t *buf, struct fid_mr *mr)
{
	struct target mine = { window_of(s, buf, mr), getpid() }, none;

	NEED(swap_bytes(s, &mine, &none, sizeof(mine)));
	return true;
}

static bool get_target(struct side *s, struct target *theirs)
{
	struct target none = { 0 };

	NEED(swap_bytes(s, &none, theirs, sizeof(none)));
	return true;
}

/* Waits for the next entry: 0, or the error; -1: none came. */
static int next_end(struct fid_cq *cq, void **context)
{
	struct timespec now, last;
	struct fi_cq_tagged_entry end;
	struct fi_cq_err_entry error;
	ssize_t n;

	clock_gettime(CLOCK_MONOTONIC, &last);
	last.tv_sec += PATIENCE;
	while ((n = fi_cq_read(cq, &end, 1)) == -FI_EAGAIN) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec > last.tv_sec)
			return -1;
		sched_yield();
	}
	*context = end.op_context;
	if (n == 1)
		return 0;
	if (n != -FI_EAVAIL || fi_cq_readerr(cq, &error, 0) != 1)
		return -1;
	*context = error.op_context;
	return error.err;
}

static bool ends_well(struct side *s, void *context)
{
	void *ended;

	NEED(!next_end(s->tx, &ended) && ended == context);
	return true;
}

/* Uses a region until the initiator has its key: the second operation asks for
 * it, and the target answers that before it executes the operation. */
static bool learn_key(struct side *s, const struct window *w, size_t len)
{
	uint8_t *buf = calloc(1, len);

	for (int i = 0; i < 2; i++) {
		NEED(!fi_write(s->ep, buf, len, NULL, s->peer, w->addr, w->key,
			       buf));
		NEED(ends_well(s, buf));
	}
	free(buf);
	return true;
}

/* --- a target that is stopped --------------------------------------------- */

static const size_t lens[] = { 16385, 65536, 100001, BYTES, 1,
			       8,     128,   2048,   2049,  4096 };

/* The option `rma=device` has short operations executed by the device, too. */
static size_t nlens(void)
{
	const char *option = getenv("PINION_RMA");

	return option && !strcmp(option, "device") ? PN_ARRAY_LEN(lens) : 4;
}

static bool write_message(struct side *s, uint8_t *buf, size_t len,
			  const struct window *w)
{
	struct iovec iov = { buf, len };
	struct fi_rma_iov at = { w->addr, len, w->key };
	struct fi_msg_rma m = { .msg_iov = &iov,
				.iov_count = 1,
				.addr = s->peer,
				.rma_iov = &at,
				.rma_iov_count = 1,
				.context = buf };

	NEED(!fi_writemsg(s->ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE));
	return true;
}

static bool use_stopped(struct side *s, const struct window *w)
{
	uint8_t *out = malloc(BYTES), *in = malloc(BYTES);

	for (unsigned i = 0; i < nlens(); i++) {
		struct window at = { w->addr + BYTES - lens[i], w->key };

		fill(out, lens[i], i);
		NEED(write_message(s, out, lens[i], &at) && ends_well(s, out));
		NEED(!fi_read(s->ep, in, lens[i], NULL, s->peer, at.addr,
			      at.key, in));
		NEED(ends_well(s, in) && is_filled(in, lens[i], i));
	}
	free(out);
	free(in);
	return true;
}

static bool stop_and_use(struct side *s)
{
	struct target t;
	int status;
	bool passed;

	NEED(get_target(s, &t) && learn_key(s, &t.window, BYTES));
	NEED(!kill(t.pid, SIGSTOP));
	NEED(waitpid(t.pid, &status, WUNTRACED) == t.pid && WIFSTOPPED(status));
	passed = use_stopped(s, &t.window);
	NEED(!kill(t.pid, SIGCONT));
	NEED(passed);
	return sync_up(s);
}

static bool be_stopped(struct side *s)
{
	uint8_t *buf = map_at(NULL, BYTES);
	size_t last = nlens() - 1;
	struct fid_mr *mr;

	NEED(buf &&
	     register_region(s, (struct region){ buf, BYTES, ACCESS, KEY },
			     &mr));
	NEED(tell_window(s, buf, mr) && sync_up(s));
	NEED(is_filled(buf + BYTES - lens[last], lens[last], last));
	NEED(close_region(mr) && !munmap(buf, BYTES));
	return true;
}

static void reads_and_writes_complete_while_the_target_is_stopped(void **state)
{
	const struct setup setups[] = {
		{ .caps = CAPS, .mr_mode = 0 },
		{ .caps = CAPS, .mr_mode = FI_MR_VIRT_ADDR | FI_MR_PROV_KEY },
	};

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(setups); i++)
		run_with(stop_and_use, be_stopped, &setups[i]);
}

/* --- keys that are used again --------------------------------------------- */

#define ROUNDS 5

/* The number names another region in every round, and none in between. */
static bool reuse_key(struct side *s)
{
	uint8_t *bufs[ROUNDS];
	struct fid_mr *mr;

	for (unsigned i = 0; i < ROUNDS; i++) {
		bufs[i] = map_at(NULL, BYTES);
		NEED(bufs[i] && register_region(s,
						(struct region){ bufs[i], BYTES,
								 ACCESS, KEY },
						&mr));
		NEED(sync_up(s) && sync_up(s));
		NEED(is_filled(bufs[i], BYTES, i));
		NEED(close_region(mr));
		NEED(sync_up(s) && sync_up(s));
		for (unsigned j = 0; j <= i; j++)
			NEED(is_filled(bufs[j], BYTES, j));
	}
	for (unsigned i = 0; i < ROUNDS; i++)
		munmap(bufs[i], BYTES);
	return true;
}

static bool write_reused(struct side *s, uint8_t *buf, unsigned round)
{
	fill(buf, BYTES, round);
	for (int i = 0; i < 4; i++) {
		NEED(!fi_write(s->ep, buf, BYTES, NULL, s->peer, 0, KEY, buf));
		NEED(ends_well(s, buf));
	}
	return true;
}

static bool is_closed(struct side *s, uint8_t *buf)
{
	void *ended;

	fill(buf, BYTES, 99);
	NEED(!fi_write(s->ep, buf, BYTES, NULL, s->peer, 0, KEY, buf));
	NEED(next_end(s->tx, &ended) == FI_EACCES && ended == buf);
	NEED(!fi_read(s->ep, buf, BYTES, NULL, s->peer, 0, KEY, buf));
	NEED(next_end(s->tx, &ended) == FI_EACCES && ended == buf);
	return is_filled(buf, BYTES, 99);
}

/* In every other round the first write has the exposure's key of the round
 * before; else that was refused meanwhile. */
static bool use_reused_key(struct side *s)
{
	uint8_t *buf = malloc(BYTES);

	for (unsigned i = 0; i < ROUNDS; i++) {
		NEED(sync_up(s) && write_reused(s, buf, i) && sync_up(s));
		NEED(sync_up(s));
		NEED(i % 2 || is_closed(s, buf));
		NEED(sync_up(s));
	}
	free(buf);
	return true;
}

static void a_key_that_is_used_again_reaches_the_new_region_only(void **state)
{
	(void)state;
	run_with(reuse_key, use_reused_key, &(struct setup){ .caps = CAPS });
}

/* --- memory that goes while operations are in flight ---------------------- */

/* Writes one more time unless there was an error. False: not. */
static bool write_again(struct side *s, const struct window *w, void *buf,
			int *why)
{
	ssize_t ret = -*why;

	if (!ret)
		ret = fi_write(s->ep, buf, BYTES, NULL, s->peer, w->addr,
			       w->key, buf);
	*why = (int)-ret;
	return !ret;
}

/* Writes until an operation is refused or nobody is there. *why is the error;
 * all that is in flight has ended then. */
static bool write_until_error(struct side *s, const struct window *w, int *why)
{
	uint8_t *bufs[IN_FLIGHT];
	unsigned left = 0;
	void *ended;

	*why = 0;
	for (unsigned i = 0; i < IN_FLIGHT; i++) {
		bufs[i] = calloc(1, BYTES);
		left += write_again(s, w, bufs[i], why);
	}
	while (left) {
		int error = next_end(s->tx, &ended);

		NEED(error >= 0);
		if (error)
			*why = error;
		left -= !write_again(s, w, ended, why);
	}
	for (unsigned i = 0; i < IN_FLIGHT; i++)
		free(bufs[i]);
	return true;
}

static bool write_until_refused(struct side *s)
{
	struct target t;
	int why;

	NEED(get_target(s, &t) && learn_key(s, &t.window, BYTES));
	NEED(sync_up(s));
	NEED(write_until_error(s, &t.window, &why) && why == FI_EACCES);
	return sync_up(s);
}

/* Sleeps, so that operations are in flight, without any progress here. */
static void wait_for_some(struct side *s)
{
	uint64_t rng = s->setup->seed;
	const struct timespec time = { 0, (long)test_below(&rng, 2000000) };

	nanosleep(&time, NULL);
}

/* Exposes memory, and returns while the other side writes to it. */
static bool expose_for_some_time(struct side *s, uint8_t **buf,
				 struct fid_mr **mr)
{
	*buf = map_at(NULL, BYTES);
	NEED(*buf &&
	     register_region(s, (struct region){ *buf, BYTES, ACCESS, KEY },
			     mr));
	NEED(tell_window(s, *buf, *mr) && sync_up(s));
	wait_for_some(s);
	return true;
}

static bool expose_and_close(struct side *s)
{
	struct fid_mr *mr;
	uint8_t *buf;

	NEED(expose_for_some_time(s, &buf, &mr) && close_region(mr));
	fill(buf, BYTES, 1);
	NEED(sync_up(s) && is_filled(buf, BYTES, 1));
	return !munmap(buf, BYTES);
}

static bool expose_and_release(struct side *s)
{
	struct fid_mr *mr;
	uint8_t *buf;

	NEED(expose_for_some_time(s, &buf, &mr) && !munmap(buf, BYTES));
	NEED(map_at(buf, BYTES) == buf);
	fill(buf, BYTES, 1);
	NEED(sync_up(s) && is_filled(buf, BYTES, 1));
	NEED(close_region(mr));
	return !munmap(buf, BYTES);
}

/* A thread may be writing by request when the memory is released, and what is
 * mapped there next gets the rest (provider-rma.md, Limits). */
static bool has_progress_thread(void)
{
	const char *progress = getenv("PINION_PROGRESS");

	return progress && strcmp(progress, "caller") != 0;
}

static void memory_that_goes_under_way_is_not_reached(void **state)
{
	uint64_t seed = test_seed();

	(void)state;
	for (uint64_t i = 0; i < 10; i++) {
		struct setup setup = { .caps = CAPS, .seed = seed + i };

		run_with(expose_and_close, write_until_refused, &setup);
		if (!has_progress_thread())
			run_with(expose_and_release, write_until_refused,
				 &setup);
	}
}

/* --- counters ------------------------------------------------------------- */

/* The device does not count: a region with a counter has no key. */
static bool bind_counter_late(struct side *s)
{
	uint8_t *buf = calloc(1, BYTES);
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	struct fid_cntr *of_region, **of_endpoint = &s->counters[0];
	struct fid_mr *mr;

	NEED(!fi_cntr_open(s->domain, &attr, &of_region, NULL));
	NEED(!fi_cntr_open(s->domain, &attr, of_endpoint, NULL));
	NEED(register_region(s, (struct region){ buf, BYTES, ACCESS, KEY },
			     &mr));
	NEED(tell_window(s, buf, mr) && sync_up(s));
	NEED(!fi_mr_bind(mr, &of_region->fid, FI_REMOTE_WRITE));
	NEED(sync_up(s) && sync_up(s));
	NEED(wait_count(of_region, 5));
	NEED(!fi_ep_bind(s->ep, &(*of_endpoint)->fid,
			 FI_REMOTE_WRITE | FI_REMOTE_READ));
	NEED(sync_up(s) && sync_up(s));
	NEED(wait_count(of_region, 10) && wait_count(*of_endpoint, 10));
	NEED(close_region(mr) && !fi_close(&of_region->fid));
	free(buf);
	return true;
}

static bool write_5_times(struct side *s, const struct window *w, uint8_t *buf)
{
	for (int i = 0; i < 5; i++) {
		NEED(!fi_write(s->ep, buf, BYTES, NULL, s->peer, w->addr,
			       w->key, buf));
		NEED(ends_well(s, buf));
	}
	return true;
}

static bool use_counted(struct side *s)
{
	uint8_t *buf = calloc(1, BYTES);
	struct target t;

	NEED(get_target(s, &t) && learn_key(s, &t.window, BYTES));
	NEED(sync_up(s) && sync_up(s));
	NEED(write_5_times(s, &t.window, buf));
	NEED(sync_up(s) && sync_up(s));
	NEED(write_5_times(s, &t.window, buf));
	for (int i = 0; i < 5; i++) {
		NEED(!fi_read(s->ep, buf, BYTES, NULL, s->peer, t.window.addr,
			      t.window.key, buf));
		NEED(ends_well(s, buf));
	}
	free(buf);
	return sync_up(s);
}

static void counters_that_are_bound_later_count(void **state)
{
	(void)state;
	run_with(bind_counter_late, use_counted,
		 &(struct setup){ .caps = CAPS });
}

/* --- sides that die ------------------------------------------------------- */

/* Each is the child of one test. It stops itself by SIGKILL. */
static bool expose_and_die(struct side *s)
{
	struct fid_mr *mr;
	uint8_t *buf;

	return expose_for_some_time(s, &buf, &mr) && !raise(SIGKILL);
}

static bool write_to_the_dead(struct side *s)
{
	struct target t;
	int why;

	NEED(get_target(s, &t) && learn_key(s, &t.window, BYTES));
	NEED(sync_up(s));
	NEED(write_until_error(s, &t.window, &why) && why == FI_ECONNRESET);
	return true;
}

static bool write_and_die(struct side *s)
{
	struct target t;
	uint8_t *buf = calloc(1, BYTES);

	NEED(get_target(s, &t) && learn_key(s, &t.window, BYTES));
	NEED(sync_up(s));
	for (int i = 0; i < IN_FLIGHT; i++)
		NEED(!fi_write(s->ep, buf, BYTES, NULL, s->peer, t.window.addr,
			       t.window.key, buf));
	wait_for_some(s);
	return !raise(SIGKILL);
}

static bool expose_to_the_dead(struct side *s)
{
	uint8_t *buf = calloc(1, BYTES), byte;
	struct fid_mr *mr;

	NEED(register_region(s, (struct region){ buf, BYTES, ACCESS, KEY },
			     &mr));
	NEED(tell_window(s, buf, mr) && sync_up(s));
	NEED(!read(s->pipe, &byte, 1)); /* the end of the file */
	NEED(close_region(mr));
	free(buf);
	return true;
}

static void either_side_may_die(void **state)
{
	uint64_t seed = test_seed();

	(void)state;
	for (uint64_t i = 0; i < 10; i++) {
		struct setup setup = { .caps = CAPS,
				       .seed = seed + i,
				       .child_dies = true };

		run_with(write_to_the_dead, expose_and_die, &setup);
		run_with(expose_to_the_dead, write_and_die, &setup);
	}
}

/* --- random regions ------------------------------------------------------- */

#define NREGIONS  6
#define MAX_BYTES ((size_t)128 << 10)
#define EPOCHS	  40
#define STEPS	  40

/* Both sides compute the same from the seed: which regions there are in an
 * epoch. */
struct plan {
	bool open, released;
	bool opens, closes, releases; /* at the begin of this epoch */
	size_t len;
};

static void next_epoch(struct plan *plans, uint64_t *rng)
{
	for (int i = 0; i < NREGIONS; i++) {
		struct plan *p = &plans[i];
		uint64_t dice = test_below(rng, 8);

		p->closes = p->open && dice < 2;
		p->releases = p->open && !p->released && dice == 2;
		p->opens = (!p->open && dice > 3) || (p->closes && dice);
		if (p->opens)
			p->len = 1 + test_below(rng, MAX_BYTES);
		p->open = (p->open && !p->closes) || p->opens;
		p->released =
			p->open && !p->opens && (p->released || p->releases);
	}
}

/* A region at the target. What is dead must not change any more. */
struct memory {
	struct fid_mr *mr;
	uint8_t *buf, *dead, *copy; /* `copy` is what `dead` holds */
};

static bool forget_dead(struct memory *m)
{
	if (!m->dead)
		return true;
	NEED(!memcmp(m->dead, m->copy, MAX_BYTES));
	munmap(m->dead, MAX_BYTES);
	free(m->copy);
	m->dead = NULL;
	return true;
}

static bool keep_dead(struct memory *m)
{
	NEED(forget_dead(m));
	m->dead = m->buf;
	m->copy = malloc(MAX_BYTES);
	memcpy(m->copy, m->dead, MAX_BYTES);
	m->buf = NULL;
	return true;
}

static bool close_memory(struct memory *m)
{
	NEED(close_region(m->mr));
	return !m->buf || keep_dead(m);
}

/* Other memory takes its place. The key is refused from the next step of
 * progress on. */
static bool release_memory(struct side *s, struct memory *m)
{
	NEED(!munmap(m->buf, MAX_BYTES));
	NEED(map_at(m->buf, MAX_BYTES) == m->buf);
	fill(m->buf, MAX_BYTES, 1);
	NEED(fi_cq_read(s->rx, NULL, 0) <= 0);
	return keep_dead(m);
}

static bool begin_epoch(struct side *s, struct memory *memories,
			const struct plan *plans)
{
	for (uint64_t i = 0; i < NREGIONS; i++) {
		struct memory *m = &memories[i];

		if (plans[i].closes)
			NEED(close_memory(m));
		if (plans[i].releases)
			NEED(release_memory(s, m));
		if (!plans[i].opens)
			continue;
		m->buf = map_at(NULL, MAX_BYTES);
		NEED(m->buf);
		NEED(register_region(s,
				     (struct region){ m->buf, plans[i].len,
						      ACCESS, i },
				     &m->mr));
	}
	return true;
}

static bool expose_randomly(struct side *s)
{
	struct memory memories[NREGIONS] = { 0 };
	struct plan plans[NREGIONS] = { 0 };
	uint64_t rng = s->setup->seed;

	for (int e = 0; e < EPOCHS; e++) {
		next_epoch(plans, &rng);
		NEED(begin_epoch(s, memories, plans));
		NEED(sync_up(s) && sync_up(s));
	}
	for (int i = 0; i < NREGIONS; i++) {
		NEED(!plans[i].open || close_memory(&memories[i]));
		NEED(forget_dead(&memories[i]));
	}
	return true;
}

/* A region at the initiator, with one operation at a time. */
struct model {
	uint8_t bytes[MAX_BYTES], buf[MAX_BYTES];
	size_t at, len;
	bool busy, reads, works;
};

static bool start(struct side *s, struct model *m, uint64_t key,
		  const struct plan *plan, uint64_t *rng)
{
	size_t longest = plan->open ? plan->len : MAX_BYTES;
	size_t most = test_below(rng, 3) || longest < 300 ? longest : 300;

	m->works = plan->open && !plan->released;
	m->reads = test_below(rng, 2);
	m->len = test_below(rng, most + 1);
	m->at = test_below(rng, longest - m->len + 1);
	m->busy = true;
	if (m->reads)
		return !fi_read(s->ep, m->buf, m->len, NULL, s->peer, m->at,
				key, m);
	for (size_t i = 0; i < m->len; i++)
		m->buf[i] = (uint8_t)test_random(rng);
	if (m->works)
		memcpy(m->bytes + m->at, m->buf, m->len);
	return !fi_write(s->ep, m->buf, m->len, NULL, s->peer, m->at, key, m);
}

static bool finish(struct side *s)
{
	struct model *m;
	void *ended;
	int error = next_end(s->tx, &ended);

	NEED(error >= 0);
	m = ended;
	m->busy = false;
	NEED(error == (m->works ? 0 : FI_EACCES));
	if (m->reads && m->works)
		NEED(!memcmp(m->buf, m->bytes + m->at, m->len));
	return true;
}

static bool finish_all(struct side *s, struct model *models)
{
	for (int i = 0; i < NREGIONS; i++)
		while (models[i].busy)
			NEED(finish(s));
	return true;
}

static bool run_epoch(struct side *s, struct model *models,
		      const struct plan *plans, uint64_t *rng)
{
	for (int i = 0; i < NREGIONS; i++)
		if (plans[i].opens)
			memset(models[i].bytes, 0, MAX_BYTES);
	for (int i = 0; i < STEPS; i++) {
		uint64_t key = test_below(rng, NREGIONS);

		while (models[key].busy)
			NEED(finish(s));
		NEED(start(s, &models[key], key, &plans[key], rng));
	}
	return finish_all(s, models);
}

static bool use_randomly(struct side *s)
{
	struct model *models = calloc(NREGIONS, sizeof(*models));
	struct plan plans[NREGIONS] = { 0 };
	uint64_t rng = s->setup->seed, own = rng + 1;

	for (int e = 0; e < EPOCHS; e++) {
		next_epoch(plans, &rng);
		NEED(sync_up(s));
		NEED(run_epoch(s, models, plans, &own));
		NEED(sync_up(s));
	}
	free(models);
	return true;
}

static void random_regions_agree_with_a_model(void **state)
{
	uint64_t seed = test_seed();

	(void)state;
	run_with(expose_randomly, use_randomly,
		 &(struct setup){ .caps = CAPS, .seed = seed });
}

/* Where io_uring is not permitted `soft` pins nothing. */
static bool device_pins(void)
{
	return syscall(SYS_io_uring_setup, 0, NULL) < 0 && errno != ENOSYS &&
	       errno != EPERM;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(reads_and_writes_complete_while_the_target_is_stopped),
		TEST(a_key_that_is_used_again_reaches_the_new_region_only),
		TEST(memory_that_goes_under_way_is_not_reached),
		TEST(counters_that_are_bound_later_count),
		TEST(either_side_may_die),
		TEST(random_regions_agree_with_a_model),
	};

	if (!device_pins()) {
		printf("skipped: io_uring is not permitted\n");
		return TEST_SKIP;
	}
	return RUN_TESTS(tests);
}
