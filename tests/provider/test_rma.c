/* SPDX-License-Identifier: BSD-2-Clause */
/* RMA and counters. The parent is the target; the child reads and writes its
 * memory. Both check the bytes. */
#include "test.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "side.h"

#define MODE_VIRTUAL (FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)
#define CAPS	     (FI_RMA | FI_MSG | FI_SOURCE | FI_RMA_EVENT)

/* The target's part of most tests: exposes memory until the initiator is done.
 */
static bool expose(struct side *s, uint8_t *buf, size_t len)
{
	struct window mine, none;
	struct fid_mr *mr;

	NEED(register_region(s, (struct region){ buf, len, ACCESS, 77 }, &mr));
	mine = window_of(s, buf, mr);
	NEED(swap_bytes(s, &mine, &none, sizeof(mine)));
	NEED(sync_up(s));
	NEED(fi_close(&s->domain->fid) == -FI_EBUSY);
	NEED(close_region(mr));
	return true;
}

/* --- all sizes ------------------------------------------------------------ */

static const size_t sizes[] = { 0,    1,    8,	   128,	   129,	      2048,
				2049, 8192, 65536, 300000, LONG_BYTES };

static bool expose_long(struct side *s)
{
	uint8_t *buf = calloc(1, LONG_BYTES);

	NEED(expose(s, buf, LONG_BYTES));
	NEED(is_filled(buf, LONG_BYTES, PN_ARRAY_LEN(sizes) - 1));
	free(buf);
	return true;
}

static bool use_size(struct side *s, const struct window *w, size_t len,
		     unsigned seed)
{
	uint8_t *out = malloc(LONG_BYTES), *in = calloc(1, LONG_BYTES);
	struct fi_cq_tagged_entry end;

	fill(out, len, seed);
	NEED(!fi_write(s->ep, out, len, NULL, s->peer, w->addr, w->key, out));
	NEED(next_entry(s->tx, &end) && end.op_context == out);
	NEED(end.flags == (FI_RMA | FI_WRITE));
	NEED(!fi_read(s->ep, in, len, NULL, s->peer, w->addr, w->key, in));
	NEED(next_entry(s->tx, &end) && end.op_context == in);
	NEED(end.flags == (FI_RMA | FI_READ));
	NEED(is_filled(in, len, seed));
	free(out);
	free(in);
	return true;
}

static bool use_sizes(struct side *s)
{
	struct window w;

	NEED(get_window(s, &w));
	for (unsigned i = 0; i < PN_ARRAY_LEN(sizes); i++)
		NEED(use_size(s, &w, sizes[i], i));
	return sync_up(s);
}

static void reads_and_writes_of_all_sizes_arrive(void **state)
{
	const struct setup setups[] = {
		{ .caps = CAPS, .mr_mode = MODE_VIRTUAL },
		{ .caps = CAPS, .mr_mode = FI_MR_PROV_KEY },
		{ .caps = CAPS, .mr_mode = 0 },
	};

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(setups); i++)
		run_with(expose_long, use_sizes, &setups[i]);
}

/* --- data and counters ---------------------------------------------------- */

static bool expect_data(struct side *s)
{
	uint8_t *buf = calloc(1, LONG_BYTES);
	struct fi_cq_tagged_entry end;
	struct window mine, none;
	struct fid_mr *mr;
	struct fid_cntr *counter;
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };
	fi_addr_t from;
	ssize_t n;

	NEED(!fi_cntr_open(s->domain, &attr, &counter, NULL));
	NEED(register_region(s, (struct region){ buf, LONG_BYTES, ACCESS, 0 },
			     &mr));
	NEED(!fi_mr_bind(mr, &counter->fid, FI_REMOTE_WRITE));
	NEED(fi_close(&counter->fid) == -FI_EBUSY);
	mine = window_of(s, buf, mr);
	NEED(swap_bytes(s, &mine, &none, sizeof(mine)));
	for (unsigned i = 0; i < 3; i++) {
		while ((n = fi_cq_readfrom(s->rx, &end, 1, &from)) ==
		       -FI_EAGAIN)
			;
		NEED(n == 1 && from == s->peer && end.data == 100 + i);
		NEED(end.flags ==
		     (FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA));
		NEED(end.len == (i == 2 ? 500000 : 100));
		NEED(is_filled(buf, end.len, i));
		NEED(sync_up(s));
	}
	NEED(wait_count(s->counters[COUNT_REMOTE_WRITE], 4));
	NEED(wait_count(counter, 4));
	NEED(wait_count(s->counters[COUNT_REMOTE_READ], 1));
	NEED(!fi_cntr_read(s->counters[COUNT_RECV]));
	NEED(sync_up(s));
	NEED(close_region(mr) && !fi_close(&counter->fid));
	free(buf);
	return true;
}

static bool write_with_data(struct side *s)
{
	uint8_t *buf = malloc(500000);
	struct iovec iov = { buf, 100 };
	struct fi_rma_iov at = { .len = 100 };
	struct fi_msg_rma m = { .msg_iov = &iov,
				.iov_count = 1,
				.addr = s->peer,
				.rma_iov = &at,
				.rma_iov_count = 1,
				.data = 100 };
	struct fi_cq_tagged_entry end;
	struct window w;

	NEED(get_window(s, &w));
	at.addr = w.addr;
	at.key = w.key;
	fill(buf, 100, 0);
	NEED(!fi_writemsg(s->ep, &m, FI_REMOTE_CQ_DATA | FI_INJECT));
	fill(buf, 100, 99); /* the buffer may be reused */
	NEED(sync_up(s));
	fill(buf, 100, 1);
	NEED(!fi_inject_writedata(s->ep, buf, 100, 101, s->peer, w.addr,
				  w.key));
	fill(buf, 100, 99);
	NEED(sync_up(s));
	fill(buf, 500000, 2);
	NEED(!fi_writedata(s->ep, buf, 500000, NULL, 102, s->peer, w.addr,
			   w.key, buf));
	NEED(wait_count(s->counters[COUNT_WRITE], 3));
	NEED(sync_up(s));
	NEED(!fi_inject_write(s->ep, buf, 8, s->peer, w.addr, w.key));
	m.context = &m;
	NEED(!fi_readmsg(s->ep, &m, FI_COMPLETION | FI_DELIVERY_COMPLETE));
	NEED(next_entry(s->tx, &end) && end.op_context == &m);
	NEED(fi_cq_read(s->tx, &end, 1) ==
	     -FI_EAGAIN); /* no completion was asked for */
	NEED(wait_count(s->counters[COUNT_WRITE], 4));
	NEED(wait_count(s->counters[COUNT_READ], 1));
	NEED(!fi_cntr_read(s->counters[COUNT_SEND]));
	free(buf);
	return sync_up(s);
}

static void writes_with_data_notify_the_target_and_are_counted(void **state)
{
	struct setup setup = { .caps = CAPS,
			       .mr_mode = MODE_VIRTUAL,
			       .bind_flags = FI_SELECTIVE_COMPLETION };

	(void)state;
	run_with(expect_data, write_with_data, &setup);
}

/* --- refusals ------------------------------------------------------------- */

static bool expose_restricted(struct side *s)
{
	static uint8_t buf[8192];
	struct window mine[3], none[3];
	struct fid_mr *mr[3];

	NEED(register_region(s, (struct region){ buf, 4096, FI_REMOTE_READ, 1 },
			     &mr[0]));
	NEED(register_region(s,
			     (struct region){ buf, 4096, FI_REMOTE_WRITE, 2 },
			     &mr[1]));
	NEED(register_region(s, (struct region){ buf, 4096, ACCESS, 3 },
			     &mr[2]));
	for (int i = 0; i < 3; i++)
		mine[i] = window_of(s, buf, mr[i]);
	NEED(close_region(mr[2]));
	NEED(swap_bytes(s, mine, none, sizeof(mine)));
	NEED(sync_up(s));
	NEED(close_region(mr[0]) && close_region(mr[1]));
	for (int i = 0; i < 8192; i++)
		NEED(!buf[i]);
	return true;
}

/* The operation is refused, the buffer does not change, and later operations
 * work. */
static bool is_refused(struct side *s, bool write, size_t len,
		       const struct window *w)
{
	uint8_t *buf = malloc(len + 1);
	struct fi_cq_err_entry error;

	memset(buf, 9, len);
	if (write)
		NEED(!fi_write(s->ep, buf, len, NULL, s->peer, w->addr, w->key,
			       buf));
	else
		NEED(!fi_read(s->ep, buf, len, NULL, s->peer, w->addr, w->key,
			      buf));
	NEED(next_error(s->tx, &error));
	NEED(error.err == FI_EACCES && error.op_context == buf);
	NEED(error.flags == (FI_RMA | (write ? FI_WRITE : FI_READ)));
	for (size_t i = 0; i < len; i++)
		NEED(buf[i] == 9);
	free(buf);
	return true;
}

static bool try_refusals(struct side *s)
{
	struct window w[3], beyond, wrapped, unknown;
	struct fi_cq_tagged_entry end;
	uint8_t byte = 1;

	NEED(swap_bytes(s, memset(w, 0, sizeof(w)), w, sizeof(w)));
	beyond = (struct window){ w[1].addr + 4095, w[1].key };
	wrapped = (struct window){ ~UINT64_C(0), w[1].key };
	unknown = (struct window){ w[1].addr, 12345 };
	NEED(is_refused(s, true, 8, &w[0]) && is_refused(s, false, 8, &w[1]));
	NEED(is_refused(s, true, 8, &w[2]) && is_refused(s, false, 8, &w[2]));
	NEED(is_refused(s, true, 2, &beyond) &&
	     is_refused(s, true, 5000, &w[1]));
	NEED(is_refused(s, true, 1, &wrapped) &&
	     is_refused(s, true, 0, &unknown));
	NEED(is_refused(s, true, 1 << 20,
			&unknown)); /* the data travels separately */
	NEED(is_refused(s, false, 1 << 20, &w[0]));
	NEED(fi_cntr_readerr(s->counters[COUNT_WRITE]) == 7);
	NEED(fi_cntr_readerr(s->counters[COUNT_READ]) == 3);
	NEED(fi_cntr_wait(s->counters[COUNT_READ], 1, 1) == -FI_ETIMEDOUT);
	NEED(!fi_read(s->ep, &byte, 1, NULL, s->peer, w[0].addr, w[0].key,
		      NULL));
	NEED(next_entry(s->tx, &end) && !byte);
	return sync_up(s);
}

static void operations_that_a_key_does_not_allow_are_refused(void **state)
{
	const struct setup setups[] = {
		{ .caps = CAPS, .mr_mode = MODE_VIRTUAL },
		{ .caps = CAPS, .mr_mode = 0 },
	};

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(setups); i++)
		run_with(expose_restricted, try_refusals, &setups[i]);
}

/* --- memory that its owner releases ----------------------------------------
 */

#define MAPPED_BYTES ((size_t)1 << 20)

/* Whether the monitor sees that something else is mapped at an address. */
static bool sees_releases(void)
{
	const char *mode = getenv("PINION_MONITOR");

	return !mode || !strcmp(mode, "patch") || !strcmp(mode, "userfaultfd");
}

/* Unmaps a page of exposed memory and then all of it; then maps other memory
 * there, which nobody may reach. */
static bool expose_and_unmap(struct side *s)
{
	uint8_t *buf = map_at(NULL, MAPPED_BYTES);
	struct window mine, none;
	struct fid_mr *mr;

	NEED(buf &&
	     register_region(s, (struct region){ buf, MAPPED_BYTES, ACCESS, 7 },
			     &mr));
	mine = window_of(s, buf, mr);
	NEED(swap_bytes(s, &mine, &none, sizeof(mine)) && sync_up(s));
	NEED(!munmap(buf + 4096, 4096));
	NEED(sync_up(s) && sync_up(s));
	NEED(!munmap(buf, MAPPED_BYTES));
	NEED(sync_up(s) && sync_up(s));
	if (sees_releases()) {
		NEED(map_at(buf, MAPPED_BYTES) == buf);
		fill(buf, MAPPED_BYTES, 3);
		NEED(sync_up(s) && sync_up(s));
		NEED(is_filled(buf, MAPPED_BYTES, 3));
		NEED(!munmap(buf, MAPPED_BYTES));
	}
	NEED(close_region(mr));
	return true;
}

static bool is_atomic_refused(struct side *s, const struct window *w)
{
	uint64_t one = 1, old = 9;
	struct fi_cq_err_entry error;

	NEED(!fi_fetch_atomic(s->ep, &one, 1, NULL, &old, NULL, s->peer,
			      w->addr, w->key, FI_UINT64, FI_SUM, &old));
	NEED(next_error(s->tx, &error));
	NEED(error.err == FI_EACCES && error.op_context == &old && old == 9);
	return true;
}

static bool all_is_refused(struct side *s, const struct window *w)
{
	static const size_t lens[] = { 1,    8,	    2048,
				       5000, 40000, MAPPED_BYTES - 4096 };

	for (unsigned i = 0; i < PN_ARRAY_LEN(lens); i++)
		NEED(is_refused(s, true, lens[i], w) &&
		     is_refused(s, false, lens[i], w));
	return is_atomic_refused(s, w);
}

static bool use_unmapped(struct side *s)
{
	struct window w, second;
	uint64_t value = 5;
	struct fi_cq_tagged_entry end;

	NEED(get_window(s, &w));
	second = (struct window){ w.addr + 4096, w.key };
	NEED(!fi_write(s->ep, &value, 8, NULL, s->peer, second.addr, w.key,
		       NULL));
	NEED(next_entry(s->tx, &end));
	NEED(sync_up(s) && sync_up(s));
	NEED(all_is_refused(s, &second) && sync_up(s));
	NEED(sync_up(s));
	NEED(all_is_refused(s, &w) && sync_up(s));
	if (sees_releases())
		NEED(sync_up(s) && all_is_refused(s, &w) && sync_up(s));
	return true;
}

static void memory_that_was_unmapped_is_not_reached(void **state)
{
	const struct setup setups[] = {
		{ .caps = CAPS | FI_ATOMIC, .mr_mode = MODE_VIRTUAL },
		{ .caps = CAPS | FI_ATOMIC, .mr_mode = 0 },
	};

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(setups); i++)
		run_with(expose_and_unmap, use_unmapped, &setups[i]);
}

/* The other memory may be exposed, too. */
static bool expose_again(struct side *s)
{
	uint8_t *buf = map_at(NULL, MAPPED_BYTES);
	struct window mine, none;
	struct fid_mr *old, *mr;

	NEED(buf &&
	     register_region(s, (struct region){ buf, MAPPED_BYTES, ACCESS, 7 },
			     &old));
	NEED(!munmap(buf, MAPPED_BYTES) && map_at(buf, MAPPED_BYTES) == buf);
	NEED(register_region(s, (struct region){ buf, MAPPED_BYTES, ACCESS, 8 },
			     &mr));
	NEED(!fi_close(&old->fid));
	mine = window_of(s, buf, mr);
	NEED(swap_bytes(s, &mine, &none, sizeof(mine)));
	NEED(sync_up(s));
	NEED(is_filled(buf, 2048, 2) && close_region(mr));
	NEED(!munmap(buf, MAPPED_BYTES));
	return true;
}

static bool use_again(struct side *s)
{
	struct window w;

	NEED(get_window(s, &w));
	NEED(use_size(s, &w, 300000, 1) && use_size(s, &w, 2048, 2));
	return sync_up(s);
}

static void memory_that_was_mapped_anew_can_be_exposed(void **state)
{
	(void)state;
	run_with(expose_again, use_again, &(struct setup){ .caps = CAPS });
}

/* Calls that fail, and one that cuts off less than a page, take nothing from
 * the peers. What is unmapped afterwards is not reached. */
static bool expose_and_fail(struct side *s)
{
	uint8_t *buf = mmap(NULL, MAPPED_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct window mine, none;
	struct fid_mr *mr;

	NEED(buf != MAP_FAILED &&
	     register_region(s, (struct region){ buf, MAPPED_BYTES, ACCESS, 7 },
			     &mr));
	NEED(munmap(buf + 1, 4096) == -1);
	NEED(madvise(buf + 1, 4096, MADV_DONTNEED) == -1);
	NEED(mremap(buf, MAPPED_BYTES, MAPPED_BYTES - 1, 0) == buf);
	mine = window_of(s, buf, mr);
	NEED(swap_bytes(s, &mine, &none, sizeof(mine)) && sync_up(s));
	NEED(is_filled(buf, 2048, 2));
	NEED(!munmap(buf, MAPPED_BYTES));
	NEED(sync_up(s) && sync_up(s));
	NEED(close_region(mr));
	return true;
}

static bool use_after_failures(struct side *s)
{
	struct window w;

	NEED(get_window(s, &w));
	NEED(use_size(s, &w, 300000, 1) && use_size(s, &w, 2048, 2));
	NEED(sync_up(s) && sync_up(s) && all_is_refused(s, &w));
	return sync_up(s);
}

static void memory_is_reached_after_calls_that_fail(void **state)
{
	(void)state;
	run_with(expose_and_fail, use_after_failures,
		 &(struct setup){ .caps = CAPS | FI_ATOMIC,
				  .mr_mode = MODE_VIRTUAL });
}

/* --- a source that is not all mapped ---------------------------------------
 */

/* The message of the data never leaves with protocol `read`, and fails on its
 * way with `pipeline`. */
static bool write_unmapped(struct side *s)
{
	uint8_t *buf = map_at(NULL, LONG_BYTES);
	struct fi_cq_err_entry error;
	struct window w;

	NEED(buf && get_window(s, &w));
	NEED(!munmap(buf + LONG_BYTES - 4096, 4096));
	NEED(!fi_write(s->ep, buf, LONG_BYTES, NULL, s->peer, w.addr, w.key,
		       buf));
	NEED(next_error(s->tx, &error) && error.op_context == buf);
	NEED(error.err == FI_EFAULT);
	NEED(!munmap(buf, LONG_BYTES - 4096));
	for (unsigned i = 0; i < PN_ARRAY_LEN(sizes); i++)
		NEED(use_size(s, &w, sizes[i], i));
	return sync_up(s);
}

static void a_write_of_unmapped_memory_ends_on_both_sides(void **state)
{
	static const char *const protocols[] = { "read", "pipeline" };

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(protocols); i++) {
		setenv("PINION_PROTOCOL", protocols[i], 1);
		run_with(expose_long, write_unmapped,
			 &(struct setup){ .caps = CAPS });
	}
	unsetenv("PINION_PROTOCOL");
}

/* --- a region that is mostly empty -----------------------------------------
 */

#define SPARSE_BYTES  ((off_t)1 << 30)
#define SPARSE_BLOCKS ((8 << 20) / 512)

static bool expose_sparse(struct side *s)
{
	int fd = memfd_create("sparse", 0);
	struct stat file;
	uint8_t *buf;

	NEED(fd >= 0 && !ftruncate(fd, SPARSE_BYTES));
	buf = mmap(NULL, SPARSE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
		   0);
	NEED(buf != MAP_FAILED && expose(s, buf, SPARSE_BYTES));
	NEED(!fstat(fd, &file) && file.st_blocks < SPARSE_BLOCKS);
	NEED(!munmap(buf, SPARSE_BYTES) && !close(fd));
	return true;
}

/* The second one asks for the key. */
static bool use_sparse(struct side *s)
{
	struct window w;

	NEED(get_window(s, &w));
	for (unsigned i = 0; i < 3; i++)
		NEED(use_size(s, &w, 32768, i));
	return sync_up(s);
}

/* With a monitor, PINION_RMA=device pins the whole region. */
static void a_region_whose_release_is_not_seen_is_not_allocated(void **state)
{
	(void)state;
	if (sees_releases())
		skip();
	run_with(expose_sparse, use_sparse, &(struct setup){ .caps = CAPS });
}

/* --- a peer that makes no progress ---------------------------------------- */

#define NPENDING      20 /* more than PN_FI_MIN_RESPONDERS */
#define PENDING_BYTES 100000
#define DONE_TAG      5

/* Sends many requests, then makes no progress, so the target waits for the
 * data. */
static bool write_and_stop(struct side *s)
{
	uint8_t *buf = malloc(PENDING_BYTES), answer;
	struct fi_cq_tagged_entry end;
	struct window w;

	fill(buf, PENDING_BYTES, 1);
	NEED(get_window(s, &w));
	NEED(!fi_tsend(s->ep, buf, 8, NULL, s->peer, DONE_TAG, NULL));
	NEED(next_entry(s->tx, &end)); /* the peers are connected */
	for (int i = 0; i < NPENDING; i++)
		NEED(!fi_write(s->ep, buf, PENDING_BYTES, NULL, s->peer, w.addr,
			       w.key, NULL));
	NEED(!fi_tinject(s->ep, buf, 8, s->peer, DONE_TAG));
	NEED(read(s->pipe, &answer, 1) == 1);
	for (int i = 0; i < NPENDING; i++)
		NEED(next_entry(s->tx, &end));
	free(buf);
	return sync_up(s);
}

/* The target has received all requests before it writes to itself. */
static bool write_to_self(struct side *s)
{
	uint8_t *buf = calloc(1, PENDING_BYTES + 1), one = 7, first[8];
	struct fi_cq_tagged_entry end;
	struct window mine, none;
	struct fid_mr *mr;

	NEED(register_region(
		s, (struct region){ buf, PENDING_BYTES + 1, ACCESS, 77 }, &mr));
	mine = window_of(s, buf, mr);
	NEED(swap_bytes(s, &mine, &none, sizeof(mine)));
	for (int i = 0; i < 2; i++) {
		NEED(!fi_trecv(s->ep, first, 8, NULL, s->peer, DONE_TAG, 0,
			       first));
		NEED(next_entry(s->rx, &end) && end.op_context == first);
	}
	NEED(!fi_write(s->ep, &one, 1, NULL, s->self, mine.addr + PENDING_BYTES,
		       mine.key, &one));
	NEED(fi_cq_sread(s->tx, &end, 1, NULL, 100000) == 1);
	NEED(end.op_context == &one && buf[PENDING_BYTES] == 7);
	NEED(write(s->pipe, &one, 1) == 1);
	NEED(sync_up(s));
	NEED(is_filled(buf, PENDING_BYTES, 1));
	NEED(close_region(mr));
	free(buf);
	return true;
}

static void a_peer_without_progress_does_not_block_others(void **state)
{
	struct setup setup = { .caps = CAPS | FI_TAGGED | FI_DIRECTED_RECV,
			       .mr_mode = MODE_VIRTUAL };

	(void)state;
	run_with(write_to_self, write_and_stop, &setup);
}

/* --- an endpoint that closes ---------------------------------------------- */

static bool open_another(struct side *s, struct fid_cq **cq, struct fid_ep **ep)
{
	struct fi_cq_attr attr = { 0 };

	NEED(!fi_cq_open(s->domain, &attr, cq, NULL));
	NEED(!fi_endpoint(s->domain, s->info, ep, NULL));
	NEED(!fi_ep_bind(*ep, &s->av->fid, 0));
	NEED(!fi_ep_bind(*ep, &(*cq)->fid, FI_TRANSMIT | FI_RECV));
	NEED(!fi_enable(*ep));
	return true;
}

/* Opens an endpoint that never makes progress, and closes it while operations
 * wait. */
static bool close_endpoint(struct side *s)
{
	uint8_t name[NAME_BYTES], none[NAME_BYTES], answer;
	size_t len = sizeof(name);
	struct fid_cq *cq;
	struct fid_ep *ep;

	NEED(open_another(s, &cq, &ep));
	NEED(!fi_getname(&ep->fid, name, &len));
	NEED(swap_bytes(s, name, none, sizeof(name)));
	NEED(read(s->pipe, &answer, 1) == 1);
	NEED(!fi_close(&ep->fid) && !fi_close(&cq->fid));
	return true;
}

static bool operate_on_closed(struct side *s)
{
	uint8_t name[NAME_BYTES], *buf = calloc(1, 300000), byte = 1;
	struct fi_cq_err_entry error;
	fi_addr_t other;

	NEED(swap_bytes(s, buf, name, sizeof(name)));
	NEED(fi_av_insert(s->av, name, 1, &other, 0, NULL) == 1);
	NEED(!fi_read(s->ep, buf, 8, NULL, other, 0, 1, buf));
	NEED(!fi_write(s->ep, buf, 300000, NULL, other, 0, 1, buf));
	NEED(write(s->pipe, &byte, 1) == 1);
	/* A progress thread may refuse the key before the endpoint closes. */
	for (int i = 0; i < 2; i++)
		NEED(next_error(s->tx, &error) &&
		     (error.err == FI_ECONNRESET ||
		      (getenv("PINION_PROGRESS") && error.err == FI_EACCES)));
	free(buf);
	return true;
}

static void operations_on_an_endpoint_that_closes_end_with_an_error(
	void **state)
{
	struct setup setup = { .caps = CAPS };

	(void)state;
	run_with(operate_on_closed, close_endpoint, &setup);
}

/* --- random programs ------------------------------------------------------ */

#define SLOTS	   8
#define SLOT_BYTES 20000
#define STEPS	   400

/* One operation at a time per slot: operations have no order. */
struct slot {
	uint8_t model[SLOT_BYTES];
	uint8_t buf[SLOT_BYTES];
	size_t at, len;
	bool busy, reads;
};

static bool start(struct side *s, const struct window *w, struct slot *slot,
		  size_t number, uint64_t *rng)
{
	uint64_t addr = w->addr + number * SLOT_BYTES;
	size_t max = test_below(rng, 3) ? 300 : SLOT_BYTES;

	slot->reads = test_below(rng, 2);
	slot->busy = true;
	slot->len = test_below(rng, max + 1);
	slot->at = test_below(rng, SLOT_BYTES - slot->len + 1);
	if (slot->reads)
		return !fi_read(s->ep, slot->buf, slot->len, NULL, s->peer,
				addr + slot->at, w->key, slot);
	for (size_t i = 0; i < slot->len; i++)
		slot->buf[i] = slot->model[slot->at + i] =
			(uint8_t)test_random(rng);
	return !fi_write(s->ep, slot->buf, slot->len, NULL, s->peer,
			 addr + slot->at, w->key, slot);
}

static bool finish(struct side *s)
{
	struct fi_cq_tagged_entry end;
	struct slot *slot;

	NEED(next_entry(s->tx, &end));
	slot = end.op_context;
	slot->busy = false;
	if (slot->reads)
		NEED(!memcmp(slot->buf, slot->model + slot->at, slot->len));
	return true;
}

/* Both sides operate on the memory of the other. */
static bool run_random(struct side *s)
{
	struct slot *slots = calloc(SLOTS, sizeof(*slots));
	uint8_t *exposed = calloc(SLOTS, SLOT_BYTES);
	uint64_t rng = s->setup->seed + s->is_child;
	struct window mine, w;
	struct fid_mr *mr;

	NEED(register_region(s,
			     (struct region){ exposed, SLOTS * SLOT_BYTES,
					      ACCESS, 5 },
			     &mr));
	mine = window_of(s, exposed, mr);
	NEED(swap_bytes(s, &mine, &w, sizeof(w)));
	for (int i = 0; i < STEPS; i++) {
		size_t number = test_below(&rng, SLOTS);

		while (slots[number].busy)
			NEED(finish(s));
		NEED(start(s, &w, &slots[number], number, &rng));
	}
	for (int i = 0; i < SLOTS; i++)
		while (slots[i].busy)
			NEED(finish(s));
	for (int i = 0; i < SLOTS; i++) {
		struct slot *slot = &slots[i];

		slot->reads = true;
		slot->at = 0;
		slot->len = SLOT_BYTES;
		NEED(!fi_read(s->ep, slot->buf, SLOT_BYTES, NULL, s->peer,
			      w.addr + (size_t)i * SLOT_BYTES, w.key, slot));
		NEED(finish(s));
	}
	NEED(sync_up(s));
	NEED(close_region(mr));
	free(exposed);
	free(slots);
	return true;
}

static void random_reads_and_writes_agree_with_a_model(void **state)
{
	uint64_t seed = test_seed();
	const struct setup setups[] = {
		{ .caps = CAPS, .mr_mode = MODE_VIRTUAL, .seed = seed },
		{ .caps = FI_RMA, .mr_mode = 0, .seed = seed + 2 },
	};

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(setups); i++)
		run_with(run_random, run_random, &setups[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(reads_and_writes_of_all_sizes_arrive),
		TEST(writes_with_data_notify_the_target_and_are_counted),
		TEST(operations_that_a_key_does_not_allow_are_refused),
		TEST(memory_that_was_unmapped_is_not_reached),
		TEST(memory_that_was_mapped_anew_can_be_exposed),
		TEST(memory_is_reached_after_calls_that_fail),
		TEST(a_write_of_unmapped_memory_ends_on_both_sides),
		TEST(a_region_whose_release_is_not_seen_is_not_allocated),
		TEST(a_peer_without_progress_does_not_block_others),
		TEST(operations_on_an_endpoint_that_closes_end_with_an_error),
		TEST(random_reads_and_writes_agree_with_a_model),
	};

	return RUN_TESTS(tests);
}
