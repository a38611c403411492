/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The hook provider over a core provider that records every registration
 * (provider.h): what is kept, what is passed through, the end of things.
 *
 * The program is linked with libpinion.so, as the hook is: it also plays a
 * program that uses pinion itself.
 */
#include "test.h"

#include "provider.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pinion/fabric.h>
#include <pinion/pinion.h>

#include "../monitor/releases.h"

#define KIB	 ((size_t)1 << 10)
#define MODES	 (FI_MR_PROV_KEY | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_LOCAL)
#define LOCAL	 (FI_SEND | FI_RECV | FI_READ | FI_WRITE)
#define REMOTE	 (FI_REMOTE_READ | FI_REMOTE_WRITE)
#define NTHREADS 4

struct fixture {
	struct provider_fabric fabric;
	struct fi_info info;
	struct fi_domain_attr domain_attr;
	struct fi_ep_attr ep_attr;
	struct provider_domain *domain;
	char *memory; /* 64 KiB */
};

static void open_with(struct fixture *f, int mr_mode)
{
	f->domain_attr.mr_mode = mr_mode;
	f->info.domain_attr = &f->domain_attr;
	f->info.ep_attr = &f->ep_attr;
	f->info.caps = FI_MSG | FI_RMA;
	f->domain = provider_domain(&f->fabric, &f->info);
}

static void start_mode(struct fixture *f, int mr_mode)
{
	*f = (struct fixture){ 0 };
	f->memory = mmap(NULL, 64 * KIB, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(f->memory, MAP_FAILED);
	provider_open(&f->fabric, "core");
	open_with(f, mr_mode);
}

static void start(struct fixture *f)
{
	start_mode(f, MODES);
	assert_true(provider_is_hooked(f->domain));
}

static void start_remote(struct fixture *f)
{
	setenv("PINION_KEEP_REMOTE", "yes", 1);
	start(f);
	unsetenv("PINION_KEEP_REMOTE");
}

static void stop(struct fixture *f)
{
	assert_ok(fi_close(&f->domain->fid.fid));
	assert_int_equal(f->domain->nlive, 0);
	provider_free(f->domain);
	provider_close(&f->fabric);
	munmap(f->memory, 64 * KIB);
}

static struct fid_mr *reg(struct fixture *f, size_t at, size_t len,
			  uint64_t access)
{
	struct fid_mr *mr;

	assert_ok(fi_mr_reg(&f->domain->fid, f->memory + at, len, access, 0, 0,
			    0, &mr, f));
	assert_ptr_equal(mr->fid.context, f);
	assert_int_equal(mr->fid.fclass, FI_CLASS_MR);
	return mr;
}

/* Registers and closes. Returns whether the provider's own MR was given. */
static bool touch(struct fixture *f, size_t at, size_t len, uint64_t access)
{
	struct fid_mr *mr = reg(f, at, len, access);
	bool own = provider_owns(f->domain, mr);

	assert_ok(fi_close(&mr->fid));
	return own;
}

/* --- what is kept --------------------------------------------------------- */

static void local_memory_stays_registered(void **state)
{
	struct fixture f;
	struct fid_mr *mr;
	void *desc;

	(void)state;
	start(&f);
	mr = reg(&f, 100, 5000, FI_SEND | FI_RECV);
	assert_false(provider_owns(f.domain, mr));
	desc = fi_mr_desc(mr);
	assert_non_null(provider_mr(f.domain, desc));
	assert_true(provider_mr(f.domain, desc)->addr <= f.memory + 100);
	assert_int_equal(provider_mr(f.domain, desc)->access & REMOTE, 0);
	assert_ok(fi_close(&mr->fid));
	for (unsigned i = 0; i < 100; i++) {
		mr = reg(&f, 100, 5000, FI_SEND | FI_RECV);
		assert_ptr_equal(fi_mr_desc(mr), desc);
		assert_ok(fi_close(&mr->fid));
	}
	assert_int_equal(f.domain->nregistered, 1);
	assert_int_equal(f.domain->nlive, 1);
	stop(&f);
}

/* All three calls that register. */
static void each_call_registers_through_the_cache(void **state)
{
	struct fixture f;
	struct iovec iov;
	struct fi_mr_attr attr = { .mr_iov = &iov,
				   .iov_count = 1,
				   .access = FI_SEND };
	struct fid_mr *mr[3];

	(void)state;
	start(&f);
	iov = (struct iovec){ f.memory, 4 * KIB };
	assert_ok(fi_mr_reg(&f.domain->fid, f.memory, 4 * KIB, FI_SEND, 0, 0, 0,
			    &mr[0], NULL));
	assert_ok(fi_mr_regv(&f.domain->fid, &iov, 1, FI_SEND, 0, 0, 0, &mr[1],
			     NULL));
	assert_ok(fi_mr_regattr(&f.domain->fid, &attr, 0, &mr[2]));
	assert_int_equal(f.domain->nregistered, 1);
	assert_int_not_equal(fi_mr_key(mr[0]), fi_mr_key(mr[1]));
	assert_int_not_equal(fi_mr_key(mr[1]), fi_mr_key(mr[2]));
	for (unsigned i = 0; i < 3; i++)
		assert_ok(fi_close(&mr[i]->fid));
	stop(&f);
}

static void remote_memory_is_the_providers_by_default(void **state)
{
	static const uint64_t accesses[] = { FI_REMOTE_READ, FI_REMOTE_WRITE,
					     LOCAL | REMOTE };
	struct fixture f;

	(void)state;
	start(&f);
	for (unsigned i = 0; i < PN_ARRAY_LEN(accesses); i++) {
		assert_true(touch(&f, 0, 4 * KIB, accesses[i]));
		assert_int_equal(f.domain->nlive, 0);
		assert_int_equal(f.domain->newest->access, accesses[i]);
	}
	stop(&f);
}

static void remote_memory_is_kept_when_asked_for(void **state)
{
	struct fixture f;
	struct fid_mr *mr;
	uint64_t key;

	(void)state;
	start_remote(&f);
	mr = reg(&f, 100, 5000, LOCAL | FI_REMOTE_WRITE);
	key = fi_mr_key(mr);
	assert_int_equal(key, fi_mr_key(&f.domain->newest->fid));
	assert_ptr_equal(f.domain->newest->addr, f.memory + 100);
	assert_int_equal(f.domain->newest->len, 5000);
	assert_int_equal(f.domain->newest->access, LOCAL | FI_REMOTE_WRITE);
	assert_ok(fi_close(&mr->fid));
	mr = reg(&f, 100, 5000, LOCAL | FI_REMOTE_WRITE);
	assert_int_equal(fi_mr_key(mr), key);
	assert_ok(fi_close(&mr->fid));
	assert_int_equal(f.domain->nregistered, 1);
	stop(&f);
}

/* A utility provider may keep a table of MRs by key. */
static void two_mrs_of_the_same_bytes_have_two_keys(void **state)
{
	struct fixture f;
	struct fid_mr *a, *b;

	(void)state;
	start_remote(&f);
	a = reg(&f, 0, 4 * KIB, REMOTE);
	b = reg(&f, 0, 4 * KIB, REMOTE);
	assert_int_not_equal(fi_mr_key(a), fi_mr_key(b));
	assert_true(provider_owns(f.domain, b));
	assert_ok(fi_close(&b->fid));
	assert_int_equal(f.domain->nlive, 1);
	assert_ok(fi_close(&a->fid));
	assert_false(touch(&f, 0, 4 * KIB, REMOTE));
	assert_int_equal(f.domain->nregistered, 2);
	stop(&f);
}

static void peers_get_no_more_than_was_asked_for(void **state)
{
	struct fixture f;
	struct fid_mr *mr;
	const struct provider_mr *real;

	(void)state;
	start_remote(&f);
	assert_false(touch(&f, 0, 32 * KIB, REMOTE));
	mr = reg(&f, 4 * KIB, 4 * KIB, REMOTE);
	real = provider_mr(f.domain, fi_mr_desc(mr));
	assert_ptr_equal(real->addr, f.memory + 4 * KIB);
	assert_int_equal(real->len, 4 * KIB);
	assert_int_equal(real->fid.key, fi_mr_key(mr));
	assert_ok(fi_close(&mr->fid));
	mr = reg(&f, 0, 32 * KIB, FI_REMOTE_READ);
	real = provider_mr(f.domain, fi_mr_desc(mr));
	assert_int_equal(real->access & REMOTE, FI_REMOTE_READ);
	assert_int_equal(real->fid.key, fi_mr_key(mr));
	assert_ok(fi_close(&mr->fid));
	/* Local use of the same bytes needs no registration. */
	f.domain->nregistered = 0;
	assert_false(touch(&f, 0, 4 * KIB, FI_SEND));
	assert_int_equal(f.domain->nregistered, 0);
	stop(&f);
}

/* The adapter reads into memory only if peers may write there. */
static void reading_is_remote_access_on_iwarp(void **state)
{
	struct fixture f;

	(void)state;
	start(&f);
	stop(&f);
	f.ep_attr.protocol = FI_PROTO_IWARP;
	f.memory = mmap(NULL, 64 * KIB, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	provider_open(&f.fabric, "core");
	open_with(&f, MODES);
	assert_true(touch(&f, 0, 4 * KIB, FI_READ));
	assert_false(touch(&f, 0, 4 * KIB, FI_RECV));
	assert_int_equal(f.domain->newest->access & FI_READ, 0);
	stop(&f);
}

static void state_is_per_domain(void **state)
{
	struct fixture a, b;
	struct provider_fabric fabric;

	(void)state;
	start(&a);
	start(&b);
	fabric = b.fabric;
	assert_false(touch(&a, 0, 4 * KIB, FI_SEND));
	assert_int_equal(b.domain->nregistered, 0);
	assert_false(touch(&b, 0, 4 * KIB, FI_SEND));
	assert_int_equal(a.domain->nregistered, 1);
	assert_ptr_equal(fabric.fid.ops, b.fabric.fid.ops);
	stop(&a);
	assert_false(touch(&b, 0, 4 * KIB, FI_SEND));
	assert_int_equal(b.domain->nregistered, 1);
	stop(&b);
}

/* --- what is passed through ----------------------------------------------- */

static void expect_passed(struct fixture *f, const struct fi_mr_attr *attr,
			  uint64_t flags)
{
	struct fid_mr *mr;

	assert_ok(fi_mr_regattr(&f->domain->fid, attr, flags, &mr));
	assert_true(provider_owns(f->domain, mr));
	assert_int_equal(f->domain->newest->flags, flags);
	assert_ok(fi_close(&mr->fid));
	assert_int_equal(f->domain->nlive, 0);
}

static void what_cannot_be_shared_is_passed_through(void **state)
{
	struct fixture f;
	struct iovec iov[2];
	uint8_t secret[4] = { 0 };
	struct fi_mr_attr plain = { .mr_iov = iov,
				    .iov_count = 1,
				    .access = FI_SEND };
	struct fi_mr_attr attr;

	(void)state;
	start(&f);
	iov[0] = (struct iovec){ f.memory, 4 * KIB };
	iov[1] = (struct iovec){ f.memory + 8 * KIB, 4 * KIB };
	expect_passed(&f, &plain, FI_RMA_EVENT);
	attr = plain;
	attr.iov_count = 2;
	expect_passed(&f, &attr, 0);
	attr = plain;
	attr.offset = 8;
	expect_passed(&f, &attr, 0);
	attr = plain;
	attr.auth_key = secret;
	attr.auth_key_size = sizeof(secret);
	expect_passed(&f, &attr, 0);
	attr = plain;
	attr.access |= FI_COLLECTIVE;
	expect_passed(&f, &attr, 0);
	iov[0].iov_len = 0;
	expect_passed(&f, &plain, 0);
	assert_int_equal(fi_mr_regattr(&f.domain->fid, NULL, 0, NULL),
			 -FI_EINVAL);
	stop(&f);
}

/* iface means something with FI_HMEM only. */
static void memory_of_devices_is_passed_through(void **state)
{
	struct fixture f;
	struct iovec iov;
	struct fi_mr_attr attr = { .mr_iov = &iov,
				   .iov_count = 1,
				   .access = FI_SEND,
				   .iface = FI_HMEM_CUDA };
	struct fid_mr *mr;

	(void)state;
	start(&f);
	iov = (struct iovec){ f.memory, 4 * KIB };
	assert_ok(fi_mr_regattr(&f.domain->fid, &attr, 0, &mr));
	assert_false(provider_owns(f.domain, mr));
	assert_ok(fi_close(&mr->fid));
	assert_ok(fi_close(&f.domain->fid.fid));
	provider_free(f.domain);
	f.info.caps |= FI_HMEM;
	f.domain = provider_domain(&f.fabric, &f.info);
	expect_passed(&f, &attr, 0);
	stop(&f);
}

/* Their struct fi_mr_attr ends before the auth key. */
static void programs_of_old_versions_have_no_auth_keys(void **state)
{
	struct fixture f;
	struct iovec iov;
	struct fi_mr_attr attr = { .mr_iov = &iov,
				   .iov_count = 1,
				   .access = FI_SEND,
				   .auth_key_size = 4711 };
	struct fid_mr *mr;

	(void)state;
	start(&f);
	assert_ok(fi_close(&f.domain->fid.fid));
	provider_free(f.domain);
	f.fabric.fid.api_version = FI_VERSION(1, 4);
	f.domain_attr.mr_mode = 1 << 0; /* FI_MR_BASIC */
	f.domain = provider_domain(&f.fabric, &f.info);
	iov = (struct iovec){ f.memory, 4 * KIB };
	assert_ok(fi_mr_regattr(&f.domain->fid, &attr, 0, &mr));
	assert_false(provider_owns(f.domain, mr));
	assert_ok(fi_close(&mr->fid));
	stop(&f);
}

static void domains_that_cannot_keep_are_not_touched(void **state)
{
	static const int modes[] = {
		0,
		1 << 1, /* FI_MR_SCALABLE */
		FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED,
		FI_MR_LOCAL | FI_MR_PROV_KEY | FI_MR_ALLOCATED,
		MODES | FI_MR_RAW,
		MODES | FI_MR_MMU_NOTIFY,
		MODES | FI_MR_ENDPOINT,
	};
	struct fixture f;

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(modes); i++) {
		start_mode(&f, modes[i]);
		assert_false(provider_is_hooked(f.domain));
		assert_true(touch(&f, 0, 4 * KIB, FI_SEND));
		stop(&f);
	}
	start(&f);
	stop(&f);
	/* FI_PROGRESS_CONTROL_UNIFIED of newer versions. */
	f.domain_attr.control_progress = FI_PROGRESS_MANUAL + 1;
	provider_open(&f.fabric, "core");
	open_with(&f, MODES);
	assert_false(provider_is_hooked(f.domain));
	f.memory = NULL;
	stop(&f);
}

/* The domain of the core provider below sees their registrations. */
static void fabrics_of_other_layers_are_not_touched(void **state)
{
	static const char *const names[] = { "ofi_rxm", "ofi_mrail", "lnx",
					     "pinion" };
	struct fixture f;

	(void)state;
	for (unsigned i = 0; i < PN_ARRAY_LEN(names); i++) {
		f = (struct fixture){ 0 };
		provider_open(&f.fabric, names[i]);
		open_with(&f, MODES);
		assert_false(provider_is_hooked(f.domain));
		stop(&f);
	}
}

static void mrs_of_an_endpoint_are_bound_and_enabled(void **state)
{
	struct fixture f;
	struct fid_ep ep = { .fid = { .fclass = FI_CLASS_EP } };
	struct fid_mr *mr;

	(void)state;
	start_mode(&f, MODES | FI_MR_ENDPOINT);
	mr = reg(&f, 0, 4 * KIB, FI_SEND);
	assert_ok(fi_mr_bind(mr, &ep.fid, 0));
	assert_ok(fi_mr_enable(mr));
	assert_ptr_equal(f.domain->newest->bound, &ep.fid);
	assert_true(f.domain->newest->enabled);
	assert_ok(fi_close(&mr->fid));
	stop(&f);
}

/* A counter would count for every user of the region. */
static void nothing_is_bound_to_memory_that_is_kept(void **state)
{
	struct fid_cntr counter = { .fid = { .fclass = FI_CLASS_CNTR } };
	struct fixture f;
	struct fid_mr *mr;

	(void)state;
	start(&f);
	mr = reg(&f, 0, 4 * KIB, FI_SEND);
	assert_int_equal(fi_mr_bind(mr, &counter.fid, FI_REMOTE_WRITE),
			 -FI_EINVAL);
	assert_null(f.domain->newest->bound);
	/* The provider decides about the rest. */
	assert_ok(fi_mr_enable(mr));
	assert_int_equal(mr->fid.ops->control(&mr->fid, FI_GETOPSFLAG, NULL),
			 -FI_ENOSYS);
	assert_int_equal(fi_open_ops(&mr->fid, "any", 0, NULL, NULL),
			 -FI_ENOSYS);
	assert_ok(fi_close(&mr->fid));
	stop(&f);
}

static void events_of_registrations_end_keeping(void **state)
{
	const uint64_t reg_mr = 1ULL << 59; /* FI_REG_MR */
	struct fid_eq eq = { .fid = { .fclass = FI_CLASS_EQ } };
	struct fixture f;

	(void)state;
	start(&f);
	assert_ok(fi_domain_bind(&f.domain->fid, &eq.fid, 0));
	assert_false(touch(&f, 0, 4 * KIB, FI_SEND));
	assert_ok(fi_domain_bind(&f.domain->fid, &eq.fid, reg_mr));
	assert_int_equal(f.domain->bound_flags, reg_mr);
	assert_true(touch(&f, 0, 4 * KIB, FI_SEND));
	stop(&f);
}

/* Functions of the provider may take MRs. */
static void functions_of_the_provider_end_keeping(void **state)
{
	struct fixture f;
	void *ops;

	(void)state;
	start(&f);
	assert_int_equal(fi_open_ops(&f.domain->fid.fid, "unknown", 0, &ops,
				     NULL),
			 -FI_ENOSYS);
	assert_false(touch(&f, 0, 4 * KIB, FI_SEND));
	/* Between layers of libfabric: ofi_rxm opens these on verbs. */
	assert_ok(fi_open_ops(&f.domain->fid.fid, "ofix_known", 0, &ops, NULL));
	assert_false(touch(&f, 0, 4 * KIB, FI_SEND));
	assert_ok(fi_open_ops(&f.domain->fid.fid, "known", 0, &ops, NULL));
	assert_true(touch(&f, 0, 4 * KIB, FI_SEND));
	assert_int_equal(fi_control(&f.domain->fid.fid, 12, NULL), 12);
	stop(&f);
}

/* --- limits --------------------------------------------------------------- */

/* The program may have as many as without pinion. */
static void kept_memory_makes_room(void **state)
{
	struct fixture f;
	struct fid_mr *mr[4];

	(void)state;
	start(&f);
	f.domain->max_live = 4;
	for (unsigned i = 0; i < 4; i++)
		mr[i] = reg(&f, i * 8 * KIB, 4 * KIB, FI_SEND);
	for (unsigned i = 0; i < 4; i++)
		assert_ok(fi_close(&mr[i]->fid));
	assert_int_equal(f.domain->nlive, 4);
	for (unsigned i = 0; i < 4; i++)
		mr[i] = reg(&f, i * 8 * KIB, 4 * KIB, LOCAL | REMOTE);
	assert_int_equal(f.domain->nlive, 4);
	for (unsigned i = 0; i < 4; i++)
		assert_ok(fi_close(&mr[i]->fid));
	for (unsigned i = 0; i < 4; i++)
		mr[i] = reg(&f, 32 * KIB + i * 8 * KIB, 4 * KIB, FI_SEND);
	for (unsigned i = 0; i < 4; i++)
		assert_ok(fi_close(&mr[i]->fid));
	stop(&f);
}

static void errors_are_the_providers(void **state)
{
	struct fixture f;
	struct fid_mr *mr, *none = (void *)1;

	(void)state;
	start(&f);
	f.domain->max_live = 1;
	mr = reg(&f, 0, 4 * KIB, FI_SEND);
	assert_int_equal(fi_mr_reg(&f.domain->fid, f.memory + 16 * KIB, 4 * KIB,
				   FI_SEND, 0, 0, 0, &none, NULL),
			 -FI_ENOMEM);
	assert_int_equal(fi_mr_reg(&f.domain->fid, f.memory + 16 * KIB, 4 * KIB,
				   REMOTE, 0, 0, 0, &none, NULL),
			 -FI_ENOMEM);
	assert_ptr_equal(none, (void *)1);
	assert_ok(fi_close(&mr->fid));
	stop(&f);
}

static void beyond_the_budget_memory_is_passed_through(void **state)
{
	struct fixture f;
	struct fid_mr *a, *b;

	(void)state;
	setenv("PINION_MAX_BYTES", "16K", 1);
	start(&f);
	unsetenv("PINION_MAX_BYTES");
	a = reg(&f, 0, 16 * KIB, FI_SEND);
	assert_false(provider_owns(f.domain, a));
	b = reg(&f, 32 * KIB, 16 * KIB, FI_SEND);
	assert_true(provider_owns(f.domain, b));
	assert_ok(fi_close(&a->fid));
	assert_ok(fi_close(&b->fid));
	assert_int_equal(f.domain->nlive, 1);
	assert_false(touch(&f, 32 * KIB, 16 * KIB, FI_SEND));
	stop(&f);
}

/* 60 times: the provider sees them once, and nothing grows. */
static void many_registrations_are_made_once(void **state)
{
	const size_t n = HOOK_BUFFERS, len = 4 * KIB;
	size_t pages = 0;
	struct fixture f;
	char *memory;

	(void)state;
	setenv("PINION_MAX_BYTES", "1G", 1);
	setenv("PINION_CACHE_MERGE", "no", 1);
	start(&f);
	unsetenv("PINION_MAX_BYTES");
	unsetenv("PINION_CACHE_MERGE");
	memory = mmap(NULL, 2 * n * len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	for (unsigned round = 0; round < 60; round++) {
		for (size_t i = 0; i < n; i++) {
			struct fid_mr *mr;

			assert_ok(fi_mr_reg(&f.domain->fid,
					    memory + 2 * i * len, len, FI_SEND,
					    0, 0, 0, &mr, NULL));
			assert_ok(fi_close(&mr->fid));
		}
		if (round == 1)
			pages = test_mapped_pages();
	}
	assert_int_equal(f.domain->nregistered, n);
	/* A sanitizer keeps what is freed. */
	assert_true(HOOK_SANITIZED || test_mapped_pages() <= pages);
	munmap(memory, 2 * n * len);
	stop(&f);
}

/* --- the end of things ---------------------------------------------------- */

static void a_domain_in_use_is_not_closed(void **state)
{
	struct fixture f;
	struct fid_mr *mr;

	(void)state;
	start(&f);
	assert_int_equal(fi_close(&f.fabric.fid.fid), -FI_EBUSY);
	assert_false(touch(&f, 0, 4 * KIB, FI_SEND));
	mr = reg(&f, 16 * KIB, 4 * KIB, FI_SEND);
	assert_int_equal(fi_close(&f.domain->fid.fid), -FI_EBUSY);
	/* What was not in use is gone; the domain works on. */
	assert_int_equal(f.domain->nlive, 1);
	assert_false(touch(&f, 0, 4 * KIB, FI_SEND));
	assert_ok(fi_close(&mr->fid));
	stop(&f);
}

/* The provider has closed the domain over MRs of the program. */
static void mrs_may_be_closed_after_their_domain(void **state)
{
	struct fixture f;
	struct fid_mr *mr[2];

	(void)state;
	start(&f);
	f.domain->closes_with_mrs = true;
	mr[0] = reg(&f, 0, 4 * KIB, FI_SEND);
	mr[1] = reg(&f, 16 * KIB, 4 * KIB, FI_SEND);
	assert_false(touch(&f, 32 * KIB, 4 * KIB, FI_SEND));
	assert_ok(fi_close(&f.domain->fid.fid));
	assert_int_equal(f.domain->nlive, 2);
	provider_close(&f.fabric);
	assert_ok(fi_close(&mr[1]->fid));
	assert_ok(fi_close(&mr[0]->fid));
	assert_int_equal(f.domain->nlive, 2);
	provider_free(f.domain);
	munmap(f.memory, 64 * KIB);
}

/* --- releases ------------------------------------------------------------- */

static struct fid_mr *reg_at(struct fixture *f, char *at, size_t len)
{
	struct fid_mr *mr;

	assert_ok(fi_mr_reg(&f->domain->fid, at, len, FI_SEND, 0, 0, 0, &mr,
			    NULL));
	return mr;
}

/* Whether the memory was kept. `in_use`: the MR is closed after the release. */
static bool is_registered_anew(struct fixture *f, const struct release_case *c,
			       bool in_use)
{
	struct scene s = { 0 };
	struct fid_mr *mr;
	uint64_t newest;
	bool kept;

	/* What is freed stays with a sanitizer's allocator; and the monitor's
	 * mode is userfaultfd then, which guard pages do not notify. */
	if (HOOK_SANITIZED && (!c->exact || strstr(c->name, "GUARD")))
		return false;
	if (!c->prepare(&s))
		return false;
	mr = reg_at(f, s.target, s.len);
	kept = !provider_owns(f->domain, mr);
	newest = f->domain->last_key;
	if (!in_use)
		assert_ok(fi_close(&mr->fid));
	if (!c->release(&s)) {
		printf("%-28s refused by this system\n", c->name);
		kept = false;
	}
	if (in_use)
		assert_ok(fi_close(&mr->fid));
	if (kept && release_map_again(c, &s)) {
		mr = reg_at(f, s.target, s.len);
		if (provider_mr(f->domain, fi_mr_desc(mr))->fid.key <= newest)
			fail_msg("%s: the old registration is used", c->name);
		assert_ok(fi_close(&mr->fid));
	} else {
		kept = false;
	}
	release_clean(c, &s);
	return kept;
}

static void released_memory_is_registered_anew(void **state)
{
	unsigned nkept = 0;
	struct fixture f;

	(void)state;
	start(&f);
	for (size_t i = 0; i < nrelease_cases; i++) {
		nkept += is_registered_anew(&f, &release_cases[i], false);
		nkept += is_registered_anew(&f, &release_cases[i], true);
	}
	printf("%u of %zu kinds and orders\n", nkept, 2 * nrelease_cases);
	assert_true(nkept > nrelease_cases);
	stop(&f);
}

/* --- pinion itself, processes, threads ------------------------------------ */

/* A cache below pinion's cache would keep what pinion has given up. */
static void registrations_of_pinion_pass(void **state)
{
	struct fixture f;
	struct pinion_fabric_attr attr = { .size = sizeof(attr) };
	struct pinion_context *context;
	struct pinion_pin pin;

	(void)state;
	start(&f);
	attr.domain = &f.domain->fid;
	attr.info = &f.info;
	assert_ok(pinion_fabric_open(&attr, NULL, &context));
	assert_ok(pinion_pin(context, f.memory, 4 * KIB, 0, &pin));
	assert_true(provider_owns(f.domain, pinion_fabric_mr(&pin)));
	pinion_unpin(context, &pin);
	assert_int_equal(f.domain->nlive, 1);
	/* The program's own are kept beside. */
	assert_false(touch(&f, 0, 4 * KIB, FI_SEND));
	assert_int_equal(f.domain->nlive, 2);
	pinion_close(context);
	assert_int_equal(f.domain->nlive, 1);
	stop(&f);
}

static int use_in_child(struct fixture *f)
{
	struct fid_mr *mr = NULL;

	if (fi_mr_reg(&f->domain->fid, f->memory, 4 * KIB, FI_SEND, 0, 0, 0,
		      &mr, NULL) ||
	    !provider_owns(f->domain, mr) || fi_close(&mr->fid))
		return 1;
	return f->domain->nlive == 1 ? 0 : 2;
}

static void memory_is_given_up_before_fork(void **state)
{
	struct fixture f;
	struct fid_mr *mr;
	int status;
	pid_t child;

	(void)state;
	start(&f);
	assert_false(touch(&f, 0, 4 * KIB, FI_SEND));
	mr = reg(&f, 32 * KIB, 4 * KIB, FI_SEND);
	assert_int_equal(f.domain->nlive, 2);
	child = fork();
	if (!child) {
		status = use_in_child(&f);
		fi_close(&mr->fid);
		_exit(status);
	}
	assert_int_equal(f.domain->nlive, 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_false(touch(&f, 0, 4 * KIB, FI_SEND));
	assert_ok(fi_close(&mr->fid));
	stop(&f);
}

/* Another process of this program closes nothing. */
static void a_program_may_just_exit(void **state)
{
	char *const argv[] = { "/proc/self/exe", "exit", NULL };
	int status;
	pid_t child = fork();

	(void)state;
	if (!child) {
		/* The leak check stops the thread that reads the monitor's
		 * userfaultfd, and then waits for it. */
		if (HOOK_SANITIZED)
			setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
		execv(argv[0], argv);
		_exit(127);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static int just_exit(void)
{
	static struct fixture f;
	static struct fid_mr *mr;

	start(&f);
	mr = reg(&f, 0, 4 * KIB, FI_SEND);
	touch(&f, 32 * KIB, 4 * KIB, FI_SEND);
	return f.domain->nlive == 2 && mr ? 0 : 1;
}

struct thread {
	struct fixture *f;
	uint64_t seed;
	unsigned nwrong;
	_Atomic(struct fid_mr *) *exchange;
};

/* Threads register overlapping buffers and close MRs of each other. */
static void *register_and_close(void *arg)
{
	struct thread *t = arg;

	for (unsigned i = 0; i < 2000; i++) {
		size_t at = test_below(&t->seed, 12) * 4 * KIB;
		size_t len = 1 + test_below(&t->seed, 16 * KIB - 1);
		uint64_t access =
			test_below(&t->seed, 2) ? FI_SEND : LOCAL | REMOTE;
		const struct provider_mr *real;
		struct fid_mr *mr;

		if (fi_mr_reg(&t->f->domain->fid, t->f->memory + at, len,
			      access, 0, 0, 0, &mr, NULL)) {
			t->nwrong++;
			continue;
		}
		real = fi_mr_desc(mr);
		t->nwrong += real->closed || real->addr > t->f->memory + at ||
			     real->addr + real->len < t->f->memory + at + len ||
			     (access & REMOTE && real->fid.key != mr->key);
		mr = atomic_exchange(t->exchange, mr);
		if (mr && fi_close(&mr->fid))
			t->nwrong++;
	}
	return NULL;
}

static void threads_register_and_close(void **state)
{
	_Atomic(struct fid_mr *) exchange = NULL;
	struct thread threads[NTHREADS];
	pthread_t ids[NTHREADS];
	uint64_t seed = test_seed();
	struct fid_mr *last;
	struct fixture f;

	(void)state;
	start_remote(&f);
	for (unsigned i = 0; i < NTHREADS; i++) {
		threads[i] =
			(struct thread){ &f, test_mix(seed, i), 0, &exchange };
		assert_ok(pthread_create(&ids[i], NULL, register_and_close,
					 &threads[i]));
	}
	for (unsigned i = 0; i < NTHREADS; i++) {
		pthread_join(ids[i], NULL);
		assert_int_equal(threads[i].nwrong, 0);
	}
	last = atomic_load(&exchange);
	assert_ok(fi_close(&last->fid));
	stop(&f);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(local_memory_stays_registered),
		TEST(each_call_registers_through_the_cache),
		TEST(remote_memory_is_the_providers_by_default),
		TEST(remote_memory_is_kept_when_asked_for),
		TEST(two_mrs_of_the_same_bytes_have_two_keys),
		TEST(peers_get_no_more_than_was_asked_for),
		TEST(reading_is_remote_access_on_iwarp),
		TEST(state_is_per_domain),
		TEST(what_cannot_be_shared_is_passed_through),
		TEST(memory_of_devices_is_passed_through),
		TEST(programs_of_old_versions_have_no_auth_keys),
		TEST(domains_that_cannot_keep_are_not_touched),
		TEST(fabrics_of_other_layers_are_not_touched),
		TEST(mrs_of_an_endpoint_are_bound_and_enabled),
		TEST(nothing_is_bound_to_memory_that_is_kept),
		TEST(events_of_registrations_end_keeping),
		TEST(functions_of_the_provider_end_keeping),
		TEST(kept_memory_makes_room),
		TEST(errors_are_the_providers),
		TEST(beyond_the_budget_memory_is_passed_through),
		TEST(many_registrations_are_made_once),
		TEST(a_domain_in_use_is_not_closed),
		TEST(mrs_may_be_closed_after_their_domain),
		TEST(released_memory_is_registered_anew),
		TEST(registrations_of_pinion_pass),
		TEST(memory_is_given_up_before_fork),
		TEST(a_program_may_just_exit),
		TEST(threads_register_and_close),
	};

	(void)argv;
	return argc > 1 ? just_exit() : RUN_TESTS(tests);
}
