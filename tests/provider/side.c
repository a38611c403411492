/* SPDX-License-Identifier: BSD-2-Clause */
#include "side.h"

#include "map_below.h"
#include "test.h"

#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- opening -------------------------------------------------------------- */

struct fi_info *hints_for(uint64_t caps)
{
	struct fi_info *hints = fi_allocinfo();

	hints->caps = caps;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("pinion");
	hints->domain_attr->mr_mode = 0;
	return hints;
}

static bool find(struct side *s)
{
	uint64_t caps = s->setup->caps;
	struct fi_info *hints;

	if (!caps)
		caps = FI_MSG | FI_TAGGED | FI_DIRECTED_RECV | FI_MULTI_RECV |
		       FI_SOURCE;
	hints = hints_for(caps);
	hints->domain_attr->mr_mode = s->setup->mr_mode;
	hints->domain_attr->data_progress = s->setup->progress;
	hints->domain_attr->threading = s->setup->threading;
	hints->tx_attr->msg_order = s->setup->msg_order;
	hints->tx_attr->size = s->setup->tx_size;
	NEED(!fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &s->info));
	fi_freeinfo(hints);
	return true;
}

static bool bind_counters(struct side *s)
{
	static const uint64_t events[] = {
		FI_SEND,  FI_RECV,	  FI_READ,
		FI_WRITE, FI_REMOTE_READ, FI_REMOTE_WRITE,
	};
	struct fi_cntr_attr attr = { .wait_obj = FI_WAIT_UNSPEC };

	for (int i = 0; s->setup->caps & FI_RMA_EVENT && i < NCOUNTS; i++) {
		NEED(!fi_cntr_open(s->domain, &attr, &s->counters[i], NULL));
		NEED(!fi_ep_bind(s->ep, &s->counters[i]->fid, events[i]));
	}
	return true;
}

bool open_side(struct side *s)
{
	struct fi_av_attr av = { .type = s->setup->av };
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED,
				 .wait_obj = FI_WAIT_FD };

	NEED(find(s));
	NEED(!fi_fabric(s->info->fabric_attr, &s->fabric, NULL));
	NEED(!fi_domain(s->fabric, s->info, &s->domain, NULL));
	NEED(!fi_av_open(s->domain, &av, &s->av, NULL));
	NEED(!fi_cq_open(s->domain, &cq, &s->tx, NULL));
	NEED(!fi_cq_open(s->domain, &cq, &s->rx, NULL));
	NEED(!fi_endpoint(s->domain, s->info, &s->ep, NULL));
	NEED(!fi_ep_bind(s->ep, &s->av->fid, 0));
	NEED(!fi_ep_bind(s->ep, &s->tx->fid,
			 FI_TRANSMIT | s->setup->bind_flags));
	NEED(!fi_ep_bind(s->ep, &s->rx->fid, FI_RECV));
	NEED(bind_counters(s));
	NEED(!fi_enable(s->ep));
	return true;
}

bool swap_bytes(struct side *s, const void *mine, void *theirs, size_t len)
{
	NEED(write(s->pipe, mine, len) == (ssize_t)len);
	NEED(read(s->pipe, theirs, len) == (ssize_t)len);
	return true;
}

static bool meet(struct side *s)
{
	char names[2][NAME_BYTES];
	fi_addr_t addrs[2];
	size_t len = NAME_BYTES;

	NEED(!fi_getname(&s->ep->fid, names[0], &len) && len == NAME_BYTES);
	NEED(swap_bytes(s, names[0], names[1], len));
	NEED(fi_av_insert(s->av, names, 2, addrs, 0, NULL) == 2);
	s->self = addrs[0];
	s->peer = addrs[1];
	return true;
}

bool close_side(struct side *s)
{
	/* Objects in use cannot be closed. */
	NEED(fi_close(&s->domain->fid) == -FI_EBUSY);
	NEED(fi_close(&s->rx->fid) == -FI_EBUSY);
	for (int i = 0; i < NCOUNTS; i++)
		NEED(!s->counters[i] ||
		     fi_close(&s->counters[i]->fid) == -FI_EBUSY);
	NEED(!fi_close(&s->ep->fid));
	for (int i = 0; i < NCOUNTS; i++)
		NEED(!s->counters[i] || !fi_close(&s->counters[i]->fid));
	NEED(!fi_close(&s->tx->fid));
	NEED(!fi_close(&s->rx->fid));
	NEED(!fi_close(&s->av->fid));
	NEED(!fi_close(&s->domain->fid));
	NEED(!fi_close(&s->fabric->fid));
	fi_freeinfo(s->info);
	return true;
}

bool sync_up(struct side *s)
{
	struct pollfd ready = { .fd = s->pipe, .events = POLLIN };
	struct fi_cq_tagged_entry none;
	char c = 1;

	NEED(write(s->pipe, &c, 1) == 1);
	/* Progress is manual: the other side may need it. */
	while (!poll(&ready, 1, 0)) {
		NEED(fi_cq_read(s->rx, &none, 0) <= 0);
		sched_yield();
	}
	NEED(read(s->pipe, &c, 1) == 1);
	return true;
}

/* --- running -------------------------------------------------------------- */

static bool play(part_fn *part, int pipe, bool is_child,
		 const struct setup *setup)
{
	struct side s = { .setup = setup, .pipe = pipe, .is_child = is_child };

	return open_side(&s) && meet(&s) && part(&s) &&
	       (setup->child_dies || sync_up(&s)) && close_side(&s);
}

void run_with(part_fn *parent, part_fn *child, const struct setup *setup)
{
	int pipes[2], status;
	bool passed;
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pipes), 0);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		close(pipes[0]);
		_exit(!play(child, pipes[1], true, setup));
	}
	close(pipes[1]);
	passed = play(parent, pipes[0], false, setup);
	close(pipes[0]); /* a child that waits reads the end of file */
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(passed);
	if (setup->child_dies)
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	else
		assert_int_equal(status, 0);
}

void run(part_fn *parent, part_fn *child, enum fi_av_type type,
	 uint64_t bind_flags)
{
	struct setup setup = { .av = type, .bind_flags = bind_flags };

	run_with(parent, child, &setup);
}

/* --- functions for the parts ---------------------------------------------- */

bool next_entry(struct fid_cq *cq, struct fi_cq_tagged_entry *out)
{
	ssize_t n;

	while ((n = fi_cq_read(cq, out, 1)) == -FI_EAGAIN)
		sched_yield(); /* the other side may need this core */
	NEED(n == 1);
	return true;
}

bool next_error(struct fid_cq *cq, struct fi_cq_err_entry *out)
{
	struct fi_cq_tagged_entry end;
	ssize_t n;

	while ((n = fi_cq_read(cq, &end, 1)) == -FI_EAGAIN)
		sched_yield(); /* the other side may need this core */
	NEED(n == -FI_EAVAIL);
	NEED(fi_cq_readerr(cq, out, 0) == 1);
	return true;
}

bool wait_count(struct fid_cntr *counter, uint64_t n)
{
	NEED(!fi_cntr_wait(counter, n, 100000));
	NEED(fi_cntr_read(counter) == n && !fi_cntr_readerr(counter));
	return true;
}

bool register_region(struct side *s, struct region r, struct fid_mr **mr)
{
	NEED(!fi_mr_reg(s->domain, r.buf, r.len, r.access, 0, r.key, 0, mr,
			NULL));
	return true;
}

bool close_region(struct fid_mr *mr)
{
	int ret = -FI_EBUSY;

	/* Each call waits for a second. */
	for (int i = 0; i < 100 && ret == -FI_EBUSY; i++)
		ret = fi_close(&mr->fid);
	NEED(!ret);
	return true;
}

struct window window_of(const struct side *s, void *buf, struct fid_mr *mr)
{
	bool virtual = s->info->domain_attr->mr_mode & FI_MR_VIRT_ADDR;

	return (struct window){ virtual ? (uintptr_t)buf : 0, fi_mr_key(mr) };
}

bool get_window(struct side *s, struct window *theirs)
{
	struct window none = { 0 };

	NEED(swap_bytes(s, &none, theirs, sizeof(none)));
	return true;
}

uint8_t *map_at(uint8_t *at, size_t len)
{
	void *p = at ? mmap(at, len, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
			    -1, 0)
		     : map_below(len);

	return p == MAP_FAILED ? NULL : p;
}

void fill(uint8_t *buf, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		buf[i] = (uint8_t)(i * 7 + seed + i / 251);
}

bool is_filled(const uint8_t *buf, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		if (buf[i] != (uint8_t)(i * 7 + seed + i / 251))
			return false;
	return true;
}
