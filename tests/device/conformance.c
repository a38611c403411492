/* SPDX-License-Identifier: BSD-2-Clause */
#include "conformance.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/range.h"

#define ALL_REMOTE                                                \
	(PINION_ACCESS_REMOTE_READ | PINION_ACCESS_REMOTE_WRITE | \
	 PINION_ACCESS_REMOTE_ATOMIC)

/* Registered memory of a rank, and its name for the others. */
struct window {
	struct pn_mr mr;
	uint8_t *mem;
	size_t len;
};

struct remote {
	uint64_t addr, rkey;
};

static int window_open(struct conf *conf, size_t len, unsigned access,
		       struct window *w)
{
	struct pn_mr *mr = &w->mr;
	int ret;

	*w = (struct window){ .len = len };
	ret = pn_pages_map(len, NULL, (void **)&w->mem);
	if (ret)
		return ret;
	memset(w->mem, 0, len);
	w->mr = (struct pn_mr){ .addr = w->mem, .len = len, .access = access };
	ret = pn_device_register(conf->self.device, &mr, 1);
	if (ret)
		pn_pages_unmap(w->mem, len, NULL);
	return ret;
}

static void window_close(struct conf *conf, struct window *w)
{
	struct pn_mr *mr = &w->mr;

	pn_device_deregister(conf->self.device, &mr, 1);
	pn_pages_unmap(w->mem, w->len, NULL);
}

static bool share(struct conf *conf, const struct window *w,
		  struct remote *theirs)
{
	struct remote mine = { (uintptr_t)w->mem, w->mr.rkey };

	return rank_exchange(&conf->self, &mine, sizeof(mine), theirs);
}

static struct pn_sge segment(const struct window *w, size_t offset, size_t len)
{
	return (struct pn_sge){ w->mem + offset, len, w->mr.lkey };
}

static void fill(uint8_t *p, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(seed * 31 + i * 7 + (i >> 8));
}

static bool filled(const uint8_t *p, size_t len, unsigned seed)
{
	for (size_t i = 0; i < len; i++)
		if (p[i] != (uint8_t)(seed * 31 + i * 7 + (i >> 8)))
			return false;
	return true;
}

static struct pn_peer *other(struct conf *conf)
{
	return conf->peers[!conf->self.rank];
}

/* One write or read of one segment of the other rank. */
static int move(struct conf *conf, enum pn_op_kind kind, struct pn_sge sge,
		uint64_t addr, uint64_t rkey)
{
	return conf_do(conf, other(conf),
		       (struct pn_op){ .kind = kind,
				       .sge = &sge,
				       .nsge = 1,
				       .remote_addr = addr,
				       .rkey = rkey });
}

static int send_inline(struct conf *conf, struct pn_peer *peer,
		       const void *data, size_t len, uint32_t imm)
{
	struct pn_sge sge = { (void *)data, len, 0 };

	return conf_do(conf, peer,
		       (struct pn_op){ .kind = PN_OP_SEND,
				       .flags = PN_OP_INLINE,
				       .sge = &sge,
				       .nsge = 1,
				       .imm = imm });
}

/* --- addresses ----------------------------------------------------------- */

static void attaching_twice_gives_the_same_peer(struct conf *conf)
{
	struct pn_peer *again;

	CHECK(conf_connect(conf, true));
	for (unsigned r = 0; r < conf->self.nranks; r++) {
		CHECK(conf->peers[r]->device == conf->self.device);
		CHECK(!pn_device_attach(conf->self.device,
					&conf->peers[r]->address, &again));
		CHECK(again == conf->peers[r]);
	}
	CHECK(rank_barrier(&conf->self));
}

static void garbage_is_no_address(struct conf *conf)
{
	struct pn_address good, bad;
	struct pn_peer *peer;

	pn_device_address(conf->self.device, &good);
	CHECK(good.len && good.len <= PN_ADDRESS_BYTES);
	memset(&bad, 0xee, sizeof(bad));
	CHECK(pn_device_attach(conf->self.device, &bad, &peer) == -EINVAL);
	memset(&bad, 0, sizeof(bad));
	CHECK(pn_device_attach(conf->self.device, &bad, &peer) == -EINVAL);
	bad = good;
	bad.len--;
	CHECK(pn_device_attach(conf->self.device, &bad, &peer) == -EINVAL);
	bad = good;
	bad.data[0] ^= 0x7f; /* the version comes first */
	CHECK(pn_device_attach(conf->self.device, &bad, &peer) == -EINVAL);
}

/* --- registration -------------------------------------------------------- */

static int register_range(struct conf *conf, void *addr, size_t len,
			  unsigned access)
{
	struct pn_mr mr = { .addr = addr, .len = len, .access = access };
	struct pn_mr *p = &mr;
	int ret = pn_device_register(conf->self.device, &p, 1);

	if (!ret)
		pn_device_deregister(conf->self.device, &p, 1);
	return ret;
}

static void bad_ranges_are_refused_and_change_nothing(struct conf *conf)
{
	const size_t most = conf->self.device->limits.max_mr_bytes;
	struct pn_pinned before, after;
	char *hole;

	pn_device_pinned(conf->self.device, &before);
	CHECK(!pn_pages_map(3 * PN_PAGE_BYTES, NULL, (void **)&hole));
	memset(hole, 1, 3 * PN_PAGE_BYTES);
	CHECK(register_range(conf, hole, 0, 0) == -EINVAL);
	CHECK(register_range(conf, NULL, 1, 0) == -EINVAL);
	CHECK(register_range(conf, hole, SIZE_MAX, 0) == -EINVAL);
	CHECK(register_range(conf, (void *)(UINTPTR_MAX - 99), 100, 0) ==
	      -EINVAL);
	CHECK(register_range(conf, hole, 1, 1u << 30) == -EINVAL);
	CHECK(most == SIZE_MAX ||
	      register_range(conf, hole, most + 1, 0) == -EINVAL);
	munmap(hole + PN_PAGE_BYTES, PN_PAGE_BYTES);
	CHECK(register_range(conf, hole + PN_PAGE_BYTES, 1, 0) == -EFAULT);
	CHECK(register_range(conf, hole, 3 * PN_PAGE_BYTES, 0) == -EFAULT);
	CHECK(register_range(conf, hole, PN_PAGE_BYTES, 0) == 0);
	munmap(hole, PN_PAGE_BYTES);
	munmap(hole + 2 * PN_PAGE_BYTES, PN_PAGE_BYTES);
	pn_device_pinned(conf->self.device, &after);
	CHECK(after.mrs == before.mrs);
	CHECK(after.live_bytes == before.live_bytes);
}

static void a_batch_registers_all_or_none(struct conf *conf)
{
	enum { N = 20 };
	struct pn_mr mrs[N], *list[N];
	struct pn_pinned before, after;
	char *mem;

	CHECK(!pn_pages_map(2 * N * PN_PAGE_BYTES, NULL, (void **)&mem));
	memset(mem, 1, 2 * N * PN_PAGE_BYTES);
	for (int i = 0; i < N; i++) {
		mrs[i] = (struct pn_mr){ .addr = mem + 2 * i * PN_PAGE_BYTES,
					 .len = PN_PAGE_BYTES };
		list[i] = &mrs[i];
	}
	pn_device_pinned(conf->self.device, &before);
	CHECK(!pn_device_register(conf->self.device, list, N));
	pn_device_pinned(conf->self.device, &after);
	CHECK(after.mrs == before.mrs + N);
	CHECK(after.live_bytes == before.live_bytes + N * PN_PAGE_BYTES);
	pn_device_deregister(conf->self.device, list, N);
	munmap(mem + 2 * (N - 1) * PN_PAGE_BYTES, PN_PAGE_BYTES);
	CHECK(pn_device_register(conf->self.device, list, N) == -EFAULT);
	pn_device_pinned(conf->self.device, &after);
	CHECK(after.mrs == before.mrs && after.live_bytes == before.live_bytes);
	CHECK(!pn_device_register(conf->self.device, list, N - 1));
	pn_device_deregister(conf->self.device, list, N - 1);
	munmap(mem, 2 * (N - 1) * PN_PAGE_BYTES);
	munmap(mem + (2 * N - 1) * PN_PAGE_BYTES, PN_PAGE_BYTES);
}

static void keys_are_granted_as_asked_for(struct conf *conf)
{
	struct window local, remote;

	CHECK(!window_open(conf, 4096, PINION_ACCESS_LOCAL_WRITE, &local));
	CHECK(local.mr.lkey && !local.mr.rkey);
	CHECK(!window_open(conf, 4096, PINION_ACCESS_REMOTE_WRITE, &remote));
	CHECK(remote.mr.rkey);
	CHECK(remote.mr.access & PINION_ACCESS_LOCAL_WRITE);
	window_close(conf, &local);
	window_close(conf, &remote);
}

static void thousands_of_registrations_have_keys_of_their_own(struct conf *conf)
{
	enum { N = 2500 };
	struct window mine;
	struct pn_mr *mrs, **list;
	struct remote *theirs;
	uint8_t *mem;

	CHECK(conf_connect(conf, false));
	CHECK(!window_open(conf, 4096, 0, &mine));
	CHECK(!pn_pages_map(N * PN_PAGE_BYTES, NULL, (void **)&mem));
	mrs = calloc(N, sizeof(*mrs));
	list = calloc(N, sizeof(*list));
	theirs = calloc(2, sizeof(*theirs));
	for (unsigned i = 0; i < N; i++) {
		list[i] = &mrs[i];
		mrs[i] = (struct pn_mr){ mem + i * PN_PAGE_BYTES,
					 8,
					 PINION_ACCESS_REMOTE_WRITE,
					 0,
					 0,
					 0,
					 NULL };
		CHECK(!pn_device_register(conf->self.device, &list[i], 1));
	}
	for (unsigned i = 0; i < N; i += 83) {
		struct remote here = { (uintptr_t)mrs[i].addr, mrs[i].rkey };

		mine.mem[0] = (uint8_t)(i / 83 + 1);
		CHECK(rank_exchange(&conf->self, &here, sizeof(here), theirs));
		here = theirs[!conf->self.rank];
		CHECK(!move(conf, PN_OP_WRITE, segment(&mine, 0, 1), here.addr,
			    here.rkey));
		CHECK(rank_barrier(&conf->self));
		CHECK(mem[i * PN_PAGE_BYTES] == (uint8_t)(i / 83 + 1));
	}
	pn_device_deregister(conf->self.device, list, N);
	window_close(conf, &mine);
	pn_pages_unmap(mem, N * PN_PAGE_BYTES, NULL);
	free(mrs);
	free(list);
	free(theirs);
	CHECK(rank_barrier(&conf->self));
}

/* --- put and get --------------------------------------------------------- */

static const size_t sizes[] = { 0,	1,	7,	 8,	 63,
				64,	4095,	4096,	 4097,	 65536,
				262144, 262147, 1 << 20, 3145729 };

#define WINDOW ((size_t)4 << 20)

static void puts_and_gets_move_every_byte(struct conf *conf)
{
	struct remote theirs[2];
	struct window w, from;

	CHECK(conf_connect(conf, false));
	CHECK(!window_open(conf, WINDOW, ALL_REMOTE, &w));
	CHECK(!window_open(conf, WINDOW, PINION_ACCESS_LOCAL_WRITE, &from));
	CHECK(share(conf, &w, theirs));
	for (unsigned i = 0; i < PN_ARRAY_LEN(sizes); i++) {
		struct remote *to = &theirs[!conf->self.rank];
		size_t len = sizes[i], at = i * 13 % 61;
		unsigned seed = i + 100 * conf->self.rank;

		fill(from.mem + 5, len, seed);
		CHECK(!move(conf, PN_OP_WRITE, segment(&from, 5, len),
			    to->addr + at, to->rkey));
		CHECK(rank_barrier(&conf->self));
		CHECK(filled(w.mem + at, len, i + 100 * !conf->self.rank));
		memset(from.mem, 0, len + 9);
		CHECK(!move(conf, PN_OP_READ, segment(&from, 3, len),
			    to->addr + at, to->rkey));
		CHECK(filled(from.mem + 3, len, seed));
		CHECK(from.mem[2] == 0 && from.mem[len + 3] == 0);
		CHECK(rank_barrier(&conf->self));
	}
	window_close(conf, &w);
	window_close(conf, &from);
}

static void segments_are_gathered_and_scattered(struct conf *conf)
{
	struct remote theirs[2], *to = &theirs[!conf->self.rank];
	struct pn_sge sge[3];
	struct window w, from;
	struct pn_op op = { .sge = sge, .nsge = 3 };

	CHECK(conf->self.device->limits.max_sge >= 3);
	CHECK(conf_connect(conf, false));
	CHECK(!window_open(conf, 65536, ALL_REMOTE, &w));
	CHECK(!window_open(conf, 65536, PINION_ACCESS_LOCAL_WRITE, &from));
	CHECK(share(conf, &w, theirs));
	op.remote_addr = to->addr + 17;
	op.rkey = to->rkey;
	fill(from.mem, 20000, conf->self.rank);
	sge[0] = segment(&from, 0, 10);
	sge[1] = segment(&from, 10, 9990);
	sge[2] = segment(&from, 10000, 10000);
	op.kind = PN_OP_WRITE;
	CHECK(!conf_do(conf, other(conf), op));
	CHECK(rank_barrier(&conf->self));
	CHECK(filled(w.mem + 17, 20000, !conf->self.rank));
	memset(from.mem, 0, 65536);
	sge[0] = segment(&from, 30000, 5000);
	sge[1] = segment(&from, 1, 1);
	sge[2] = segment(&from, 40000, 14999);
	op.kind = PN_OP_READ;
	CHECK(!conf_do(conf, other(conf), op));
	memmove(from.mem + 35000, from.mem + 1, 1);
	memmove(from.mem + 35001, from.mem + 40000, 14999);
	CHECK(filled(from.mem + 30000, 20000, conf->self.rank));
	CHECK(rank_barrier(&conf->self));
	window_close(conf, &w);
	window_close(conf, &from);
}

static void the_device_itself_is_a_peer(struct conf *conf)
{
	struct pn_completion got;
	struct window w;
	struct pn_sge sge;

	CHECK(conf_connect(conf, true));
	CHECK(!window_open(conf, 300000, ALL_REMOTE, &w));
	fill(w.mem, 100000, 9);
	sge = segment(&w, 0, 100000);
	CHECK(!conf_do(conf, conf->peers[conf->self.rank],
		       (struct pn_op){ .kind = PN_OP_WRITE,
				       .sge = &sge,
				       .nsge = 1,
				       .remote_addr = (uintptr_t)w.mem + 150000,
				       .rkey = w.mr.rkey }));
	CHECK(filled(w.mem + 150000, 100000, 9));
	CHECK(!conf_post(conf, conf->peers[conf->self.rank],
			 &(struct pn_op){ .kind = PN_OP_SEND,
					  .flags = PN_OP_SILENT,
					  .imm = 77 }));
	CHECK(conf_next(conf, &got));
	CHECK(got.kind == PN_COMPLETION_RECV && got.imm == 77 && !got.len);
	CHECK(got.peer == conf->peers[conf->self.rank]);
	pn_device_return_buffer(conf->self.device, &got);
	window_close(conf, &w);
}

/* --- refusals ------------------------------------------------------------ */

static void peers_reach_only_what_was_granted(struct conf *conf)
{
	struct remote theirs[2], *to = &theirs[!conf->self.rank];
	struct window w, from;
	uint64_t end, rkey;

	CHECK(conf_connect(conf, false));
	CHECK(!window_open(conf, 10000, ALL_REMOTE, &w));
	CHECK(!window_open(conf, 20000, PINION_ACCESS_LOCAL_WRITE, &from));
	CHECK(share(conf, &w, theirs));
	end = to->addr + 10000;
	rkey = to->rkey;
	for (enum pn_op_kind op = PN_OP_WRITE; op <= PN_OP_READ; op++) {
		struct pn_sge ten = segment(&from, 0, 10);
		struct pn_sge most = segment(&from, 0, 20000);

		CHECK(move(conf, op, ten, end - 9, rkey) == -EACCES);
		CHECK(move(conf, op, ten, to->addr - 1, rkey) == -EACCES);
		CHECK(move(conf, op, ten, UINT64_MAX - 4, rkey) == -EACCES);
		CHECK(move(conf, op, most, to->addr, rkey) == -EACCES);
		CHECK(move(conf, op, ten, to->addr, 0) == -EACCES);
		CHECK(move(conf, op, ten, to->addr, ~rkey) == -EACCES);
		CHECK(move(conf, op, ten, to->addr, rkey ^ 1) == -EACCES);
		CHECK(!move(conf, op, ten, end - 10, rkey));
	}
	CHECK(rank_barrier(&conf->self));
	for (size_t i = 0; i < 10000; i++)
		CHECK(w.mem[i] == 0);
	window_close(conf, &w);
	window_close(conf, &from);
	CHECK(rank_barrier(&conf->self));
}

/* Our own key at the peer, and the peer's key for our own memory. */
static void keys_of_another_device_are_refused(struct conf *conf)
{
	struct remote theirs[2], *to = &theirs[!conf->self.rank];
	struct window w, from;

	CHECK(conf_connect(conf, false));
	CHECK(!window_open(conf, 4096, ALL_REMOTE, &w));
	CHECK(!window_open(conf, 4096, PINION_ACCESS_LOCAL_WRITE, &from));
	memset(from.mem, 1, 4096);
	CHECK(share(conf, &w, theirs));
	CHECK(to->rkey != w.mr.rkey);
	for (enum pn_op_kind op = PN_OP_WRITE; op <= PN_OP_READ; op++) {
		struct pn_sge sge = segment(&from, 0, 10);

		CHECK(move(conf, op, sge, to->addr, w.mr.rkey) == -EACCES);
		sge.lkey = to->rkey;
		CHECK(move(conf, op, sge, to->addr, to->rkey) == -EFAULT);
	}
	CHECK(rank_barrier(&conf->self));
	for (size_t i = 0; i < 4096; i++)
		CHECK(w.mem[i] == 0 && from.mem[i] == 1);
	window_close(conf, &w);
	window_close(conf, &from);
	CHECK(rank_barrier(&conf->self));
}

static void access_not_granted_is_refused(struct conf *conf)
{
	struct remote ro[2], wo[2];
	struct window readable, writable, from;

	CHECK(conf_connect(conf, false));
	CHECK(!window_open(conf, 4096, PINION_ACCESS_REMOTE_READ, &readable));
	CHECK(!window_open(conf, 4096, PINION_ACCESS_REMOTE_WRITE, &writable));
	CHECK(!window_open(conf, 4096, PINION_ACCESS_LOCAL_WRITE, &from));
	CHECK(share(conf, &readable, ro));
	CHECK(share(conf, &writable, wo));
	CHECK(move(conf, PN_OP_WRITE, segment(&from, 0, 8),
		   ro[!conf->self.rank].addr,
		   ro[!conf->self.rank].rkey) == -EACCES);
	CHECK(move(conf, PN_OP_READ, segment(&from, 0, 8),
		   wo[!conf->self.rank].addr,
		   wo[!conf->self.rank].rkey) == -EACCES);
	if (conf->self.device->caps & PN_CAP_ATOMICS)
		CHECK(move(conf, PN_OP_FETCH_ADD, segment(&from, 0, 8),
			   wo[!conf->self.rank].addr,
			   wo[!conf->self.rank].rkey) == -EACCES);
	CHECK(!move(conf, PN_OP_READ, segment(&from, 0, 8),
		    ro[!conf->self.rank].addr, ro[!conf->self.rank].rkey));
	CHECK(!move(conf, PN_OP_WRITE, segment(&from, 0, 8),
		    wo[!conf->self.rank].addr, wo[!conf->self.rank].rkey));
	CHECK(rank_barrier(&conf->self));
	window_close(conf, &readable);
	window_close(conf, &writable);
	window_close(conf, &from);
}

static void local_segments_need_a_key_that_covers_them(struct conf *conf)
{
	struct remote theirs[2], *to = &theirs[!conf->self.rank];
	struct window w, from, source;
	struct pn_sge s;

	CHECK(conf_connect(conf, false));
	CHECK(!window_open(conf, 10000, ALL_REMOTE, &w));
	CHECK(!window_open(conf, 10000, PINION_ACCESS_LOCAL_WRITE, &from));
	CHECK(!window_open(conf, 10000, 0, &source));
	CHECK(share(conf, &w, theirs));
	s = segment(&from, 9995, 10);
	CHECK(move(conf, PN_OP_WRITE, s, to->addr, to->rkey) == -EFAULT);
	s = segment(&from, 0, 10);
	s.lkey ^= 1;
	CHECK(move(conf, PN_OP_WRITE, s, to->addr, to->rkey) == -EFAULT);
	s.lkey = 0;
	CHECK(move(conf, PN_OP_READ, s, to->addr, to->rkey) == -EFAULT);
	s = segment(&source, 0, 10);
	CHECK(move(conf, PN_OP_READ, s, to->addr, to->rkey) == -EFAULT);
	CHECK(!move(conf, PN_OP_WRITE, s, to->addr, to->rkey));
	s = segment(&from, 0, 10);
	window_close(conf, &from);
	CHECK(move(conf, PN_OP_WRITE, s, to->addr, to->rkey) == -EFAULT);
	CHECK(rank_barrier(&conf->self));
	window_close(conf, &w);
	window_close(conf, &source);
}

static void a_key_ends_with_its_registration(struct conf *conf)
{
	struct remote theirs[2], *to = &theirs[!conf->self.rank];
	struct window from, w;

	CHECK(conf_connect(conf, false));
	CHECK(!window_open(conf, 4096, PINION_ACCESS_LOCAL_WRITE, &from));
	for (int i = 0; i < 20; i++) {
		struct pn_mr *mr = &w.mr;

		CHECK(!window_open(conf, 4096, ALL_REMOTE, &w));
		CHECK(share(conf, &w, theirs));
		CHECK(!move(conf, PN_OP_WRITE, segment(&from, 0, 8), to->addr,
			    to->rkey));
		CHECK(rank_barrier(&conf->self));
		/* The same memory again: the old key must stay invalid. */
		pn_device_deregister(conf->self.device, &mr, 1);
		CHECK(!pn_device_register(conf->self.device, &mr, 1));
		CHECK(rank_barrier(&conf->self));
		CHECK(move(conf, PN_OP_WRITE, segment(&from, 0, 8), to->addr,
			   to->rkey) == -EACCES);
		CHECK(move(conf, PN_OP_READ, segment(&from, 0, 8), to->addr,
			   to->rkey) == -EACCES);
		CHECK(rank_barrier(&conf->self));
		window_close(conf, &w);
	}
	window_close(conf, &from);
}

static void rekeying_revokes_the_old_key_alone(struct conf *conf)
{
	struct remote old[2], new[2];
	struct window w, from;
	unsigned o = !conf->self.rank;

	CHECK(conf_connect(conf, false));
	CHECK(!window_open(conf, 4096, ALL_REMOTE, &w));
	CHECK(!window_open(conf, 4096, PINION_ACCESS_LOCAL_WRITE, &from));
	CHECK(share(conf, &w, old));
	CHECK(!pn_device_rekey(conf->self.device, &w.mr));
	CHECK(w.mr.rkey != old[conf->self.rank].rkey);
	CHECK(share(conf, &w, new));
	CHECK(move(conf, PN_OP_READ, segment(&from, 0, 8), old[o].addr,
		   old[o].rkey) == -EACCES);
	CHECK(!move(conf, PN_OP_READ, segment(&from, 0, 8), new[o].addr,
		    new[o].rkey));
	CHECK(rank_barrier(&conf->self));
	window_close(conf, &w);
	window_close(conf, &from);
}

static void a_revoked_key_does_not_come_again(struct conf *conf)
{
	uint64_t seen[300];
	struct window w;

	CHECK(!window_open(conf, 4096, ALL_REMOTE, &w));
	for (unsigned i = 0; i < PN_ARRAY_LEN(seen); i++) {
		seen[i] = w.mr.rkey;
		for (unsigned j = 0; j < i; j++)
			CHECK(seen[i] != seen[j]);
		CHECK(!pn_device_rekey(conf->self.device, &w.mr));
	}
	window_close(conf, &w);
}

static void malformed_operations_are_refused_at_once(struct conf *conf)
{
	const struct pn_device_limits *limits = &conf->self.device->limits;
	struct pn_sge sge[2];
	struct window w;
	struct pn_op op = { .kind = PN_OP_SEND, .sge = sge, .nsge = 1 };

	CHECK(conf_connect(conf, false));
	CHECK(!window_open(conf, 1 << 20, ALL_REMOTE, &w));
	if (limits->max_send_bytes < 1 << 20) {
		sge[0] = segment(&w, 0, limits->max_send_bytes + 1);
		CHECK(pn_device_post(conf->self.device, other(conf), &op) ==
		      -EINVAL);
	}
	op.nsge = limits->max_sge + 1;
	CHECK(pn_device_post(conf->self.device, other(conf), &op) == -EINVAL);
	op.nsge = 2;
	/* Their sum wraps around to 1. */
	sge[0] = segment(&w, 0, 2);
	sge[1] = segment(&w, 0, SIZE_MAX);
	CHECK(pn_device_post(conf->self.device, other(conf), &op) == -EINVAL);
	op.nsge = 1;
	op.kind = (enum pn_op_kind)99;
	CHECK(pn_device_post(conf->self.device, other(conf), &op) == -EINVAL);
	if (conf->self.device->caps & PN_CAP_ATOMICS) {
		op.kind = PN_OP_FETCH_ADD;
		sge[0] = segment(&w, 0, 4);
		CHECK(pn_device_post(conf->self.device, other(conf), &op) ==
		      -EINVAL);
		sge[0] = segment(&w, 0, 8);
		op.remote_addr = (uintptr_t)w.mem + 4;
		CHECK(pn_device_post(conf->self.device, other(conf), &op) ==
		      -EINVAL);
	}
	CHECK(rank_barrier(&conf->self));
	window_close(conf, &w);
}

/* --- messages ------------------------------------------------------------ */

/* Receives one message and checks length, contents and immediate. */
static bool receive(struct conf *conf, size_t len, unsigned seed, uint32_t imm)
{
	struct pn_completion got;
	bool right;

	if (!conf_next(conf, &got))
		return false;
	right = got.kind == PN_COMPLETION_RECV && got.len == len &&
		got.imm == imm && filled(got.data, len, seed);
	if (got.kind == PN_COMPLETION_RECV)
		pn_device_return_buffer(conf->self.device, &got);
	return right;
}

static void messages_arrive_whole_and_in_order(struct conf *conf)
{
	size_t max = conf->self.device->limits.max_send_bytes;
	struct window w;

	CHECK(conf_connect(conf, false));
	CHECK(!window_open(conf, max, 0, &w));
	for (unsigned i = 0; i < 300; i++) {
		size_t len = i % 10 ? i * 37 % (max + 1) : i % 20 ? max : 0;
		struct pn_sge sge[2] = { segment(&w, 0, len / 3),
					 segment(&w, len / 3, len - len / 3) };

		if (conf->self.rank == 0) {
			fill(w.mem, len, i);
			CHECK(!conf_do(conf, other(conf),
				       (struct pn_op){ .kind = PN_OP_SEND,
						       .sge = sge,
						       .nsge = 2,
						       .imm = i * 3 }));
		} else {
			CHECK(receive(conf, len, i, i * 3));
		}
	}
	CHECK(rank_barrier(&conf->self));
	window_close(conf, &w);
}

static void inline_sends_need_no_key_and_no_waiting(struct conf *conf)
{
	size_t len = conf->self.device->limits.inline_bytes;
	uint8_t *data = malloc(len + 1);
	struct pn_sge sge = { data, len, 0 };
	struct pn_completion done;
	struct pn_op op = { .kind = PN_OP_SEND,
			    .flags = PN_OP_INLINE,
			    .sge = &sge,
			    .nsge = 1,
			    .user = data };

	CHECK(len >= 8);
	CHECK(conf_connect(conf, false));
	if (conf->self.rank == 0) {
		fill(data, len, 5);
		CHECK(!conf_post(conf, other(conf), &op));
		memset(data, 0xff, len);
		CHECK(conf_next(conf, &done) && !done.status);
		CHECK(done.user == data);
		sge.len = len + 1;
		CHECK(pn_device_post(conf->self.device, other(conf), &op) ==
		      -EINVAL);
	} else {
		CHECK(receive(conf, len, 5, 0));
	}
	CHECK(rank_barrier(&conf->self));
	free(data);
}

/* Posts until the device returns -EAGAIN or `max` are in flight. */
static unsigned flood(struct conf *conf, unsigned max)
{
	uint64_t number[8] = { 0 };
	struct pn_sge sge = { number, sizeof(number), 0 };
	struct pn_op op = { .kind = PN_OP_SEND,
			    .flags = PN_OP_INLINE | PN_OP_SILENT,
			    .sge = &sge,
			    .nsge = 1 };
	unsigned idle = 0;

	for (unsigned n = 0; n < max;) {
		struct pn_completion none;
		int ret;

		number[0] = n;
		ret = pn_device_post(conf->self.device, other(conf), &op);
		n += !ret;
		idle = ret ? idle + 1 : 0;
		if (idle > 100 || (ret && ret != -EAGAIN))
			return n;
		if (ret && !pn_device_poll(conf->self.device, &none, 1))
			pn_device_consume_cpu(conf->self.device, PN_NS_PER_US);
	}
	return max;
}

static void a_receiver_that_does_not_release_stalls_its_senders(
	struct conf *conf)
{
	unsigned sent[2] = { 0 }, mine = 0;
	struct pn_completion got;

	CHECK(conf_connect(conf, false));
	if (conf->self.rank == 0)
		mine = flood(conf, 1 << 20);
	CHECK(mine < 1 << 20);
	CHECK(rank_exchange(&conf->self, &mine, sizeof(mine), sent));
	CHECK(sent[0] > 0);
	if (conf->self.rank == 1)
		for (uint64_t i = 0; i < sent[0]; i++) {
			CHECK(conf_next(conf, &got));
			CHECK(got.kind == PN_COMPLETION_RECV);
			CHECK(!memcmp(got.data, &i, sizeof(i)));
			pn_device_return_buffer(conf->self.device, &got);
		}
	CHECK(rank_barrier(&conf->self));
	if (conf->self.rank == 0)
		CHECK(!send_inline(conf, other(conf), "", 0, 4));
	else
		CHECK(receive(conf, 0, 0, 4));
	CHECK(rank_barrier(&conf->self));
}

static void buffers_may_be_returned_in_any_order(struct conf *conf)
{
	struct pn_completion got[16];

	CHECK(conf_connect(conf, false));
	for (unsigned round = 0; round < 200; round++) {
		uint8_t data[100];

		for (unsigned i = 0; conf->self.rank == 0 && i < 16; i++) {
			fill(data, sizeof(data), round + i);
			CHECK(!send_inline(conf, other(conf), data,
					   sizeof(data), i));
		}
		for (unsigned i = 0; conf->self.rank == 1 && i < 16; i++)
			CHECK(conf_next(conf, &got[i]) && got[i].imm == i);
		for (unsigned i = 0; conf->self.rank == 1 && i < 16; i++) {
			struct pn_completion *c = &got[(i * 7 + round) % 16];

			CHECK(filled(c->data, c->len, round + c->imm));
			pn_device_return_buffer(conf->self.device, c);
		}
	}
	CHECK(rank_barrier(&conf->self));
}

/* --- order and completions ----------------------------------------------- */

static void who_sees_a_send_sees_the_writes_before_it(struct conf *conf)
{
	struct remote theirs[2], *to = &theirs[1];
	struct window w;

	CHECK(conf_connect(conf, false));
	CHECK(!window_open(conf, 1 << 20, ALL_REMOTE, &w));
	CHECK(share(conf, &w, theirs));
	for (unsigned i = 0; i < 100; i++) {
		size_t len = 1 + (i * 7919u) % ((1 << 20) - 1);
		struct pn_sge sge = segment(&w, 0, len);
		struct pn_op op = { .kind = PN_OP_WRITE,
				    .flags = PN_OP_SILENT,
				    .sge = &sge,
				    .nsge = 1,
				    .remote_addr = to->addr,
				    .rkey = to->rkey };

		if (conf->self.rank == 0) {
			fill(w.mem, len, i);
			CHECK(!conf_post(conf, other(conf), &op));
			CHECK(!send_inline(conf, other(conf), "", 0, i));
		} else {
			CHECK(receive(conf, 0, 0, i));
			CHECK(filled(w.mem, len, i));
		}
		CHECK(rank_barrier(&conf->self));
	}
	window_close(conf, &w);
}

/* Retries until there is room. */
static int send_parts(struct conf *conf, const uint8_t *data, size_t body)
{
	uint64_t deadline = pn_device_now(conf->self.device) + 20 * PN_NS_PER_S;
	struct pn_inline_header head;
	int ret;

	memcpy(&head, data, sizeof(head));
	while ((ret = pn_device_send_inline(conf->self.device, other(conf),
					    &head, data + sizeof(head),
					    body)) == -EAGAIN &&
	       pn_device_now(conf->self.device) < deadline)
		rank_pause(&conf->self);
	return ret;
}

static void head_and_body_are_a_message_behind_what_was_posted(
	struct conf *conf)
{
	size_t most = conf->self.device->limits.inline_bytes;
	struct remote theirs[2], *to = &theirs[1];
	uint8_t *data = malloc(most + 1);
	struct pn_completion done;
	struct window w;

	CHECK(conf_connect(conf, false));
	if (most <
	    sizeof(struct pn_inline_header)) { /* some adapters have less */
		free(data);
		return;
	}
	CHECK(!window_open(conf, 1 << 20, ALL_REMOTE, &w));
	CHECK(share(conf, &w, theirs));
	for (unsigned i = 0; i < 60; i++) {
		size_t body =
			i * 131 % (most - sizeof(struct pn_inline_header) + 1);
		size_t len = i % 3 ? 1 + i * 7919u % ((1 << 20) - 1) : 0;
		struct pn_sge sge = segment(&w, 0, len);
		struct pn_op op = { .kind = PN_OP_WRITE,
				    .sge = &sge,
				    .nsge = 1,
				    .remote_addr = to->addr,
				    .rkey = to->rkey };

		if (conf->self.rank == 0) {
			fill(w.mem, len, i);
			fill(data, sizeof(struct pn_inline_header) + body, i);
			CHECK(!len || !conf_post(conf, other(conf), &op));
			CHECK(!send_parts(conf, data, body));
			memset(data, 0xff, most);
			CHECK(!len || (conf_next(conf, &done) && !done.status));
		} else {
			CHECK(receive(conf,
				      sizeof(struct pn_inline_header) + body, i,
				      0));
			CHECK(filled(w.mem, len, i));
		}
		CHECK(rank_barrier(&conf->self));
	}
	if (conf->self.rank == 0)
		CHECK(send_parts(conf, data,
				 most + 1 - sizeof(struct pn_inline_header)) ==
		      -EINVAL);
	CHECK(rank_barrier(&conf->self));
	free(data);
	window_close(conf, &w);
}

static void a_write_with_immediate_notifies_the_target(struct conf *conf)
{
	struct remote theirs[2], *to = &theirs[1];
	struct pn_completion got;
	struct window w;

	CHECK(conf_connect(conf, false));
	CHECK(!window_open(conf, 1 << 18, ALL_REMOTE, &w));
	CHECK(share(conf, &w, theirs));
	for (unsigned i = 0; i < 20; i++) {
		struct pn_sge sge = segment(&w, 0, i * 10000);

		if (conf->self.rank == 0) {
			fill(w.mem, i * 10000, i);
			CHECK(!conf_do(conf, other(conf),
				       (struct pn_op){ .kind = PN_OP_WRITE,
						       .flags = PN_OP_IMM,
						       .sge = &sge,
						       .nsge = 1,
						       .imm = i,
						       .remote_addr = to->addr,
						       .rkey = to->rkey }));
		} else {
			CHECK(conf_next(conf, &got));
			CHECK(got.kind == PN_COMPLETION_IMM && got.imm == i);
			CHECK(got.len == i * 10000);
			CHECK(filled(w.mem, i * 10000, i));
		}
		CHECK(rank_barrier(&conf->self));
	}
	window_close(conf, &w);
}

static void operations_complete_in_the_order_of_posting(struct conf *conf)
{
	enum { N = 64 };
	struct remote theirs[2], *to = &theirs[!conf->self.rank];
	struct pn_completion done;
	struct window w, from;
	uintptr_t next = 0;

	CHECK(conf_connect(conf, false));
	CHECK(!window_open(conf, 1 << 20, ALL_REMOTE, &w));
	CHECK(!window_open(conf, 1 << 20, ALL_REMOTE, &from));
	CHECK(share(conf, &w, theirs));
	for (uintptr_t i = 0; next < N;) {
		struct pn_sge sge =
			segment(&from, 0, i % 3 ? i * 8 : 100000 + i);
		struct pn_op op = { i % 4 == 1 ? PN_OP_READ : PN_OP_WRITE,
				    i % 5 == 4 ? PN_OP_FENCE : 0,
				    &sge,
				    1,
				    0,
				    to->addr,
				    to->rkey,
				    0,
				    0,
				    (void *)i };
		int ret = i < N ? pn_device_post(conf->self.device, other(conf),
						 &op)
				: -EAGAIN;

		CHECK(!ret || ret == -EAGAIN);
		i += !ret;
		if (!ret)
			continue;
		CHECK(conf_next(conf, &done));
		CHECK(!done.status && done.user == (void *)next);
		next++;
	}
	CHECK(rank_barrier(&conf->self));
	window_close(conf, &w);
	window_close(conf, &from);
}

static void silent_operations_complete_only_when_they_fail(struct conf *conf)
{
	struct remote theirs[2], *to = &theirs[!conf->self.rank];
	struct pn_completion done;
	struct window w, from;
	struct pn_sge sge;
	struct pn_op op = { .kind = PN_OP_WRITE,
			    .flags = PN_OP_SILENT,
			    .sge = &sge,
			    .nsge = 1,
			    .user = &done };

	CHECK(conf_connect(conf, false));
	CHECK(!window_open(conf, 4096, ALL_REMOTE, &w));
	CHECK(!window_open(conf, 4096, PINION_ACCESS_LOCAL_WRITE, &from));
	CHECK(share(conf, &w, theirs));
	sge = segment(&from, 0, 100);
	op.remote_addr = to->addr;
	op.rkey = to->rkey;
	CHECK(!conf_post(conf, other(conf), &op));
	op.rkey = ~to->rkey;
	CHECK(!conf_post(conf, other(conf), &op));
	CHECK(conf_next(conf, &done));
	CHECK(done.user == &done && done.status == -EACCES);
	CHECK(!pn_device_poll(conf->self.device, &done, 1));
	CHECK(rank_barrier(&conf->self));
	window_close(conf, &w);
	window_close(conf, &from);
}

/* --- atomics ------------------------------------------------------------- */

/* Runs an atomic of rank 0; op has kind, operand and compare. */
static int atomic_op(struct conf *conf, struct remote to,
		     const struct window *result, struct pn_op op)
{
	struct pn_sge sge = segment(result, 0, 8);

	op.sge = &sge;
	op.nsge = 1;
	op.remote_addr = to.addr;
	op.rkey = to.rkey;
	return conf_do(conf, conf->peers[0], op);
}

static struct pn_op fetch_add(uint64_t addend)
{
	return (struct pn_op){ .kind = PN_OP_FETCH_ADD, .operand = addend };
}

static struct pn_op compare_swap(uint64_t value, uint64_t compare)
{
	return (struct pn_op){ .kind = PN_OP_COMPARE_SWAP,
			       .operand = value,
			       .compare = compare };
}

static void atomics_of_many_peers_lose_nothing(struct conf *conf)
{
	enum { N = 200 };
	struct remote theirs[RANKS_MAX];
	struct window w, result;
	uint64_t value, old;

	CHECK(conf_connect(conf, true));
	CHECK(!window_open(conf, 4096, ALL_REMOTE, &w));
	CHECK(!window_open(conf, 4096, PINION_ACCESS_LOCAL_WRITE, &result));
	CHECK(share(conf, &w, theirs));
	for (unsigned i = 0; i < N; i++)
		CHECK(!atomic_op(conf, theirs[0], &result,
				 fetch_add(conf->self.rank + 1)));
	CHECK(rank_barrier(&conf->self));
	memcpy(&value, w.mem, 8);
	if (conf->self.rank == 0)
		CHECK(value ==
		      N * conf->self.nranks * (conf->self.nranks + 1) / 2);
	CHECK(rank_barrier(&conf->self));
	if (conf->self.rank == 1) {
		CHECK(!atomic_op(conf, theirs[0], &result,
				 (struct pn_op){ .kind = PN_OP_SWAP,
						 .operand = 5 }));
		CHECK(!atomic_op(conf, theirs[0], &result, compare_swap(6, 4)));
		memcpy(&old, result.mem, 8);
		CHECK(old == 5);
		CHECK(!atomic_op(conf, theirs[0], &result, compare_swap(7, 5)));
		CHECK(!atomic_op(conf, theirs[0], &result, fetch_add(0)));
		memcpy(&old, result.mem, 8);
		CHECK(old == 7);
	}
	CHECK(rank_barrier(&conf->self));
	window_close(conf, &w);
	window_close(conf, &result);
}

/* --- waiting ------------------------------------------------------------- */

static void a_wait_ends_at_the_deadline_or_with_an_event(struct conf *conf)
{
	uint64_t start;

	CHECK(conf_connect(conf, false));
	start = pn_device_now(conf->self.device);
	CHECK(pn_device_wait(conf->self.device, start + 2 * PN_NS_PER_MS) ==
	      -ETIMEDOUT);
	CHECK(pn_device_now(conf->self.device) >= start + 2 * PN_NS_PER_MS);
	pn_device_wake(conf->self.device);
	CHECK(!pn_device_wait(conf->self.device, PN_FOREVER));
	CHECK(rank_barrier(&conf->self));
	if (conf->self.rank == 0) {
		CHECK(!send_inline(conf, other(conf), "", 0, 1));
	} else {
		CHECK(!pn_device_wait(conf->self.device, PN_FOREVER));
		CHECK(receive(conf, 0, 0, 1));
	}
	CHECK(rank_barrier(&conf->self));
}

/* --- many at once -------------------------------------------------------- */

#define SLICE ((size_t)64 << 10)

/* Every rank writes random ranges of its own slice in every window and reads
 * them back; at the end each window holds what its writers recorded. */
static void many_peers_share_a_window(struct conf *conf)
{
	struct remote theirs[RANKS_MAX];
	unsigned x = 12345 + conf->self.rank;
	struct window w, from;
	uint8_t *model;

	CHECK(conf_connect(conf, true));
	CHECK(!window_open(conf, SLICE * conf->self.nranks, ALL_REMOTE, &w));
	CHECK(!window_open(conf, SLICE, PINION_ACCESS_LOCAL_WRITE, &from));
	CHECK(share(conf, &w, theirs));
	model = calloc(conf->self.nranks, SLICE);
	for (unsigned i = 0; i < 400; i++) {
		unsigned to = (x = x * 1103515245 + 12345) / 65536 %
			      conf->self.nranks;
		size_t at = (x = x * 1103515245 + 12345) / 8 % SLICE;
		size_t len = (x = x * 1103515245 + 12345) / 8 % (SLICE - at);
		struct pn_sge sge = segment(&from, 0, len);
		struct pn_op op = { .kind = PN_OP_WRITE,
				    .sge = &sge,
				    .nsge = 1,
				    .remote_addr = theirs[to].addr +
						   conf->self.rank * SLICE + at,
				    .rkey = theirs[to].rkey };

		fill(from.mem, len, i + conf->self.rank);
		memcpy(model + to * SLICE + at, from.mem, len);
		CHECK(!conf_do(conf, conf->peers[to], op));
		memset(from.mem, 0, len);
		op.kind = PN_OP_READ;
		CHECK(!conf_do(conf, conf->peers[to], op));
		CHECK(!memcmp(from.mem, model + to * SLICE + at, len));
	}
	for (unsigned r = 0; r < conf->self.nranks; r++) {
		CHECK(!conf_do(conf, conf->peers[r],
			       (struct pn_op){
				       .kind = PN_OP_READ,
				       .sge = &(struct pn_sge){ from.mem, SLICE,
								from.mr.lkey },
				       .nsge = 1,
				       .remote_addr = theirs[r].addr +
						      conf->self.rank * SLICE,
				       .rkey = theirs[r].rkey }));
		CHECK(!memcmp(from.mem, model + r * SLICE, SLICE));
	}
	free(model);
	CHECK(rank_barrier(&conf->self));
	window_close(conf, &w);
	window_close(conf, &from);
}

/* --- peers that go down -------------------------------------------------- */

static void a_peer_that_closes_goes_down_alone(struct conf *conf)
{
	struct remote theirs[3];
	struct pn_completion got;
	bool greeted = false;
	struct window w;
	struct pn_sge sge;
	struct pn_op op = { .kind = PN_OP_WRITE, .sge = &sge, .nsge = 1 };

	CHECK(conf_connect(conf, false));
	CHECK(!window_open(conf, 4096, ALL_REMOTE, &w));
	CHECK(share(conf, &w, theirs));
	if (conf->self.rank == 2)
		return; /* conformance_frame.c closes the device */
	do {
		CHECK(conf_next(conf, &got));
		/* The other rank detected it first and continues. */
		greeted |= got.kind == PN_COMPLETION_RECV;
		if (got.kind == PN_COMPLETION_RECV)
			pn_device_return_buffer(conf->self.device, &got);
	} while (got.kind != PN_COMPLETION_PEER_DOWN);
	CHECK(got.peer == conf->peers[2] && got.status == -ECONNRESET);
	sge = segment(&w, 0, 8);
	op.remote_addr = theirs[2].addr;
	op.rkey = theirs[2].rkey;
	CHECK(pn_device_post(conf->self.device, conf->peers[2], &op) ==
	      -ECONNRESET);
	CHECK(!move(conf, PN_OP_WRITE, sge, theirs[!conf->self.rank].addr,
		    theirs[!conf->self.rank].rkey));
	/* Both wait until the other is done. */
	CHECK(!send_inline(conf, other(conf), "", 0, 3));
	CHECK(greeted || receive(conf, 0, 0, 3));
	window_close(conf, &w);
}

/* Waits for one PEER_DOWN, of `old`, and one message, of another peer of the
 * same device, which it returns; in any order. Messages of `old` come before
 * its PEER_DOWN. */
static struct pn_peer *hear_end_and_beginning(struct conf *conf,
					      struct pn_peer *old, bool *heard)
{
	struct pn_peer *again = NULL;
	struct pn_completion got;
	bool down = false;

	while (!again || !down) {
		if (!conf_next(conf, &got))
			return NULL;
		if (got.kind == PN_COMPLETION_PEER_DOWN) {
			down = got.peer == old && got.status == -ECONNRESET;
			if (!down)
				return NULL;
		} else if (got.kind == PN_COMPLETION_RECV) {
			if (got.peer != old)
				again = got.peer;
			else
				*heard = !down;
			pn_device_return_buffer(conf->self.device, &got);
		}
	}
	return again;
}

static void a_detached_peer_can_be_attached_again(struct conf *conf)
{
	struct pn_peer *old, *again;
	bool heard;

	CHECK(conf_connect(conf, false));
	for (unsigned i = 0; i < 20; i++) {
		old = other(conf);
		heard = conf->self.rank == 0;
		if (conf->self.rank == 0) {
			CHECK(!send_inline(conf, old, "", 0, 1));
			CHECK(!pn_device_detach(conf->self.device, old));
			CHECK(!pn_device_attach(conf->self.device,
						&old->address, &again));
			CHECK(again != old);
			CHECK(!send_inline(conf, again, "", 0, 2));
		}
		again = hear_end_and_beginning(conf, old, &heard);
		CHECK(again && heard);
		conf->peers[!conf->self.rank] = again;
		CHECK(pn_device_post(conf->self.device, old,
				     &(struct pn_op){ .kind = PN_OP_SEND }) ==
		      -ECONNRESET);
		if (conf->self.rank == 1)
			CHECK(!send_inline(conf, again, "", 0, 3));
	}
	CHECK(rank_barrier(&conf->self));
}

#define CASE(fn, nranks, needs)        \
	{                              \
#fn, fn, nranks, needs \
	}

const struct conf_case conf_cases[] = {
	CASE(attaching_twice_gives_the_same_peer, 2, 0),
	CASE(garbage_is_no_address, 1, 0),
	CASE(bad_ranges_are_refused_and_change_nothing, 1, 0),
	CASE(a_batch_registers_all_or_none, 1, 0),
	CASE(keys_are_granted_as_asked_for, 1, 0),
	CASE(thousands_of_registrations_have_keys_of_their_own, 2, 0),
	CASE(puts_and_gets_move_every_byte, 2, 0),
	CASE(segments_are_gathered_and_scattered, 2, PN_CAP_GATHER),
	CASE(the_device_itself_is_a_peer, 1, 0),
	CASE(peers_reach_only_what_was_granted, 2, 0),
	CASE(keys_of_another_device_are_refused, 2, 0),
	CASE(access_not_granted_is_refused, 2, 0),
	CASE(local_segments_need_a_key_that_covers_them, 2, 0),
	CASE(a_key_ends_with_its_registration, 2, 0),
	CASE(rekeying_revokes_the_old_key_alone, 2, PN_CAP_REKEY),
	CASE(a_revoked_key_does_not_come_again, 2, PN_CAP_REKEY),
	CASE(malformed_operations_are_refused_at_once, 2, 0),
	CASE(messages_arrive_whole_and_in_order, 2, 0),
	CASE(inline_sends_need_no_key_and_no_waiting, 2, 0),
	CASE(a_receiver_that_does_not_release_stalls_its_senders, 2, 0),
	CASE(buffers_may_be_returned_in_any_order, 2, 0),
	CASE(who_sees_a_send_sees_the_writes_before_it, 2, 0),
	CASE(head_and_body_are_a_message_behind_what_was_posted, 2, 0),
	CASE(a_write_with_immediate_notifies_the_target, 2, PN_CAP_WRITE_IMM),
	CASE(operations_complete_in_the_order_of_posting, 2, 0),
	CASE(silent_operations_complete_only_when_they_fail, 2, 0),
	CASE(atomics_of_many_peers_lose_nothing, 4, PN_CAP_ATOMICS),
	CASE(a_wait_ends_at_the_deadline_or_with_an_event, 2, 0),
	CASE(many_peers_share_a_window, 4, 0),
	CASE(a_peer_that_closes_goes_down_alone, 3, 0),
	CASE(a_detached_peer_can_be_attached_again, 2, PN_CAP_ATTACH_AGAIN),
	{ NULL, NULL, 0, 0 },
};
