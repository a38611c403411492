/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A context over libfabric domains of the program:
 *
 *   test_registrar_fabric tcp|verbs|shm [ADDRESS]
 *
 * Two sides in one process, each with a domain, an endpoint and a context. One
 * side writes and reads memory of the other with the keys of pins; every byte
 * is compared.
 */
#include "transfers.h"

#include <errno.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <sched.h>
#include <sys/mman.h>

#include <pinion/fabric.h>
#include <pinion/pinion.h>

#include "base/clock.h"
#include "base/range.h"

#define PATIENCE_NS (60 * PN_NS_PER_S)
#define ALL_MODES \
	(FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)

static const char *provider, *address;

/* --- two sides ------------------------------------------------------------ */

struct side {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	fi_addr_t peer;
	struct pinion_context *context;
};

struct pair {
	struct side a, b;
};

static bool find_type(enum fi_ep_type type, int mr_mode, struct fi_info **out)
{
	struct fi_info *hints = fi_allocinfo();
	int ret;

	hints->caps = FI_MSG | FI_RMA;
	hints->ep_attr->type = type;
	/* A completion of verbs implies delivery. */
	if (strncmp(provider, "verbs", 5))
		hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	hints->fabric_attr->prov_name =
		strndup(provider, type == FI_EP_MSG ? strcspn(provider, ";")
						    : strlen(provider));
	hints->domain_attr->mr_mode = mr_mode;
	ret = fi_getinfo(FI_VERSION(1, 17), address, NULL,
			 address ? FI_SOURCE : 0, hints, out);
	fi_freeinfo(hints);
	return !ret;
}

static bool find(int mr_mode, struct fi_info **out)
{
	return find_type(FI_EP_RDM, mr_mode, out);
}

static void open_found(struct side *s)
{
	assert_ok(fi_fabric(s->info->fabric_attr, &s->fabric, NULL));
	assert_ok(fi_domain(s->fabric, s->info, &s->domain, NULL));
}

static void open_domain(struct side *s, int mr_mode)
{
	assert_true(find(mr_mode, &s->info));
	open_found(s);
}

static void close_domain(struct side *s)
{
	assert_ok(fi_close(&s->domain->fid));
	assert_ok(fi_close(&s->fabric->fid));
	fi_freeinfo(s->info);
}

static struct pinion_fabric_attr attr_of(const struct side *s)
{
	return (struct pinion_fabric_attr){
		.size = sizeof(struct pinion_fabric_attr),
		.domain = s->domain,
		.info = s->info,
	};
}

static void open_context(struct side *s, const char *budget)
{
	const char *const options[] = { "log=none", budget, NULL };
	const struct pinion_attr attr = { .size = sizeof(attr),
					  .options = options };
	struct pinion_fabric_attr fabric = attr_of(s);

	assert_ok(pinion_fabric_open(&fabric, &attr, &s->context));
}

static void open_side(struct side *s, int mr_mode, const char *budget)
{
	struct fi_av_attr av = { .type = FI_AV_TABLE };
	struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_CONTEXT };

	open_domain(s, mr_mode);
	assert_ok(fi_av_open(s->domain, &av, &s->av, NULL));
	assert_ok(fi_cq_open(s->domain, &cq, &s->cq, NULL));
	assert_ok(fi_endpoint(s->domain, s->info, &s->ep, NULL));
	assert_ok(fi_ep_bind(s->ep, &s->av->fid, 0));
	assert_ok(fi_ep_bind(s->ep, &s->cq->fid, FI_TRANSMIT | FI_RECV));
	assert_ok(fi_enable(s->ep));
	open_context(s, budget);
}

static void meet(struct side *s, struct side *other)
{
	char name[512];
	size_t len = sizeof(name);

	assert_ok(fi_getname(&other->ep->fid, name, &len));
	assert_int_equal(fi_av_insert(s->av, name, 1, &s->peer, 0, NULL), 1);
}

static void open_pair(struct pair *pair, int mr_mode, const char *budget)
{
	*pair = (struct pair){ 0 };
	open_side(&pair->a, mr_mode, budget);
	open_side(&pair->b, mr_mode, budget);
	meet(&pair->a, &pair->b);
	meet(&pair->b, &pair->a);
}

static void close_side(struct side *s)
{
	assert_ok(fi_close(&s->ep->fid));
	pinion_close(s->context);
	assert_ok(fi_close(&s->cq->fid));
	assert_ok(fi_close(&s->av->fid));
	close_domain(s);
}

static void close_pair(struct pair *pair)
{
	close_side(&pair->a);
	close_side(&pair->b);
}

/* --- transfers ------------------------------------------------------------ */

/* 1: a completion; -1: an error; 0: none. Both sides make progress. */
static int poll_pair(struct pair *pair)
{
	struct fi_cq_entry entry;
	struct fi_cq_err_entry error = { 0 };
	ssize_t ret = fi_cq_read(pair->a.cq, &entry, 1);

	if (ret == -FI_EAVAIL)
		assert_int_equal(fi_cq_readerr(pair->a.cq, &error, 0), 1);
	else if (ret != 1)
		fi_cq_read(pair->b.cq, &entry, 0);
	return ret == 1 ? 1 : ret == -FI_EAVAIL ? -1 : 0;
}

static int finish(struct pair *pair)
{
	uint64_t until = pn_clock_ns() + PATIENCE_NS;
	int ret;

	while (!(ret = poll_pair(pair))) {
		assert_true(pn_clock_ns() < until);
		sched_yield();
	}
	return ret;
}

static ssize_t post(const struct side *s, bool is_write,
		    const struct pinion_pin *local,
		    const struct pinion_pin *remote)
{
	void *desc = pinion_fabric_desc(local);
	uint64_t addr = pinion_fabric_addr(remote);

	return is_write ? fi_write(s->ep, local->addr, local->len, desc,
				   s->peer, addr, remote->remote_key, NULL)
			: fi_read(s->ep, local->addr, local->len, desc, s->peer,
				  addr, remote->remote_key, NULL);
}

/* Moves all of the local pin to or from the start of the remote one. 1, or -1:
 * refused. */
static int transfer(struct pair *pair, bool is_write,
		    const struct pinion_pin *local,
		    const struct pinion_pin *remote)
{
	uint64_t until = pn_clock_ns() + PATIENCE_NS;

	while (post(&pair->a, is_write, local, remote) == -FI_EAGAIN) {
		assert_int_equal(poll_pair(pair), 0);
		assert_true(pn_clock_ns() < until);
	}
	return finish(pair);
}

static bool write_pin(void *arg, const struct pinion_pin *local,
		      const struct pinion_pin *remote)
{
	return transfer(arg, true, local, remote) == 1;
}

static bool read_pin(void *arg, const struct pinion_pin *local,
		     const struct pinion_pin *remote)
{
	return transfer(arg, false, local, remote) == 1;
}

static struct transport transport_of(struct pair *pair)
{
	return (struct transport){ .local = pair->a.context,
				   .remote = pair->b.context,
				   .write = write_pin,
				   .read = read_pin,
				   .arg = pair };
}

/* --- the tests ------------------------------------------------------------ */

/* It must be the first test: the counter of keys starts with the process. */
static void keys_that_the_program_has_taken_are_skipped(void **state)
{
	struct side s = { 0 };
	struct fid_mr *taken[16];
	struct pinion_pin pin;
	char memory[64];

	(void)state;
	open_domain(&s, 0);
	for (unsigned i = 0; i < PN_ARRAY_LEN(taken); i++)
		assert_ok(fi_mr_reg(s.domain, memory, sizeof(memory), FI_SEND,
				    0, UINT64_C(1) << 63 | i, 0, &taken[i],
				    NULL));
	open_context(&s, NULL);
	assert_ok(pinion_pin(s.context, memory, sizeof(memory),
			     PINION_ACCESS_REMOTE_READ, &pin));
	assert_true(pin.remote_key >=
		    (UINT64_C(1) << 63 | PN_ARRAY_LEN(taken)));
	assert_int_equal(pin.remote_key, fi_mr_key(pinion_fabric_mr(&pin)));
	assert_ptr_equal(pinion_fabric_desc(&pin),
			 fi_mr_desc(pinion_fabric_mr(&pin)));
	pinion_unpin(s.context, &pin);
	pinion_close(s.context);
	for (unsigned i = 0; i < PN_ARRAY_LEN(taken); i++)
		assert_ok(fi_close(&taken[i]->fid));
	close_domain(&s);
}

static void pinned_memory_is_written_and_read(void **state)
{
	struct transport t;
	struct pair pair;

	open_pair(&pair, *(int *)*state, NULL);
	t = transport_of(&pair);
	move_buffers(&t);
	assert_true(query(pair.a.context).hits > 0);
	assert_true(query(pair.b.context).hits > 0);
	close_pair(&pair);
}

/* A peer addresses a buffer inside of a larger registration. */
static void a_pin_inside_another_has_its_own_address(void **state)
{
	char *mine = map_at(NULL, MIB), *theirs = map_at(NULL, MIB);
	struct pinion_pin outer;
	struct transport t;
	struct pair pair;
	uint64_t before;

	open_pair(&pair, *(int *)*state, NULL);
	t = transport_of(&pair);
	assert_ok(pinion_pin(pair.b.context, theirs, MIB,
			     PINION_ACCESS_REMOTE_WRITE, &outer));
	before = query(pair.b.context).registrations;
	write_and_compare(&t, mine, theirs + 12345, 50000, 1);
	assert_int_equal(query(pair.b.context).registrations, before);
	pinion_unpin(pair.b.context, &outer);
	close_pair(&pair);
	munmap(mine, MIB);
	munmap(theirs, MIB);
}

static void heap_memory_needs_no_registration_of_its_own(void **state)
{
	struct transport t;
	struct pair pair;

	open_pair(&pair, *(int *)*state, NULL);
	t = transport_of(&pair);
	move_heap_buffers(&t);
	close_pair(&pair);
}

static void a_small_budget_evicts_and_no_byte_is_lost(void **state)
{
	struct pinion_cache_stats stats;
	struct transport t;
	struct pair pair;

	/* With a larger budget, neighbours are merged into one region. */
	open_pair(&pair, *(int *)*state, "max_bytes=1M");
	t = transport_of(&pair);
	write_many(&t, 64, 64 * KIB);
	stats = query(pair.b.context);
	assert_true(stats.evictions > 0);
	assert_true(stats.peak_bytes <= MIB);
	assert_true(stats.registrations > 64);
	assert_true(query(pair.a.context).evictions > 0);
	assert_true(query(pair.a.context).peak_bytes <= MIB);
	close_pair(&pair);
}

/* The key of the old memory is invalid, and the new memory has another. */
static void memory_mapped_anew_is_registered_anew(void **state)
{
	struct pinion_cache_stats stats;
	struct transport t;
	struct pair pair;

	open_pair(&pair, *(int *)*state, NULL);
	t = transport_of(&pair);
	stats = write_remapped(&t);
	assert_int_equal(stats.invalidations, 10);
	assert_int_equal(stats.registrations, 11);
	close_pair(&pair);
}

static void a_dead_key_is_refused(void **state)
{
	char *mine = map_at(NULL, 4096), *theirs = map_at(NULL, 4096);
	struct pinion_pin from, to;
	struct pair pair;
	uint64_t addr;

	open_pair(&pair, *(int *)*state, NULL);
	assert_ok(pinion_pin(pair.a.context, mine, 4096, 0, &from));
	assert_ok(pinion_pin(pair.b.context, theirs, 4096,
			     PINION_ACCESS_REMOTE_WRITE, &to));
	assert_int_equal(transfer(&pair, true, &from, &to), 1);
	addr = pinion_fabric_addr(&to);
	pinion_unpin(pair.b.context, &to);
	pinion_close(pair.b.context);
	pair.b.context = NULL;
	memset(mine, 'x', 4096);
	while (fi_write(pair.a.ep, mine, 4096, pinion_fabric_desc(&from),
			pair.a.peer, addr, to.remote_key, NULL) == -FI_EAGAIN)
		poll_pair(&pair);
	/* shm (libfabric 1.17) reports the error to the target only. */
	if (strcmp(provider, "shm"))
		assert_int_equal(finish(&pair), -1);
	for (unsigned i = 0; i < 1000; i++)
		assert_int_equal(poll_pair(&pair), 0);
	assert_memory_not_equal(mine, theirs, 4096);
	pinion_unpin(pair.a.context, &from);
	close_pair(&pair);
	munmap(mine, 4096);
	munmap(theirs, 4096);
}

/* Buffers of all sizes, in memory that is mapped anew at random. */
static void random_buffers_arrive_whole(void **state)
{
	const size_t len = 4 * MIB, part = 128 * KIB;
	char *mine = map_at(NULL, len), *theirs = map_at(NULL, len);
	uint64_t seed = test_seed();
	struct transport t;
	struct pair pair;

	open_pair(&pair, *(int *)*state, "max_bytes=2M");
	t = transport_of(&pair);
	for (unsigned i = 0; i < 400; i++) {
		size_t n = 1 + test_below(&seed, test_below(&seed, 4) ? 10000
								      : 400000);
		char *from = mine + test_below(&seed, len - n);
		char *to = theirs + test_below(&seed, len - n);
		size_t at = test_below(&seed, len / part) * part;

		if (i % 2)
			write_and_compare(&t, from, to, n, i);
		else
			read_and_compare(&t, from, to, n, i);
		if (test_below(&seed, 3))
			continue;
		map_at((i % 4 ? mine : theirs) + at, part);
	}
	assert_true(query(pair.a.context).peak_bytes <= 2 * MIB);
	assert_true(query(pair.b.context).invalidations > 0);
	close_pair(&pair);
	munmap(mine, len);
	munmap(theirs, len);
}

/* The remote key is that of the registration that covers the pin. */
static bool has_its_own_key(const struct pinion_pin *pin, unsigned flags)
{
	return pin->handle &&
	       (!(flags & PINION_ACCESS_REMOTE_WRITE) ||
		pin->remote_key == fi_mr_key(pinion_fabric_mr(pin)));
}

static void threads_pin_at_the_same_time(void **state)
{
	struct side s = { 0 };

	open_domain(&s, *(int *)*state);
	open_context(&s, "max_bytes=1M");
	pin_in_threads(s.context, 1000, has_its_own_key);
	pinion_close(s.context);
	close_domain(&s);
}

/* Tests the core provider: ofi_rxm (libfabric 1.17) frees half of a domain that
 * is in use. */
static void a_domain_in_use_is_not_closed(void **state)
{
	bool layered = strchr(provider, ';');
	struct side s = { 0 };
	struct pinion_pin pin;
	char memory[100];

	assert_true(find_type(layered ? FI_EP_MSG : FI_EP_RDM, *(int *)*state,
			      &s.info));
	open_found(&s);
	open_context(&s, NULL);
	assert_ok(pinion_pin(s.context, memory, sizeof(memory), 0, &pin));
	assert_int_equal(fi_close(&s.domain->fid), -FI_EBUSY);
	pinion_unpin(s.context, &pin);
	/* Not pinned, but still registered. */
	assert_int_equal(fi_close(&s.domain->fid), -FI_EBUSY);
	assert_ok(pinion_pin(s.context, memory, 1, PINION_ACCESS_REMOTE_WRITE,
			     &pin));
	assert_non_null(pin.handle);
	pinion_unpin(s.context, &pin);
	pinion_close(s.context);
	close_domain(&s);
}

static void contexts_over_one_domain_have_keys_of_their_own(void **state)
{
	struct side s = { 0 };
	struct pinion_context *first;
	struct pinion_pin a, b;
	char memory[100];

	open_domain(&s, *(int *)*state);
	open_context(&s, NULL);
	first = s.context;
	open_context(&s, NULL);
	assert_ok(
		pinion_pin(first, memory, 100, PINION_ACCESS_REMOTE_READ, &a));
	assert_ok(pinion_pin(s.context, memory, 100, PINION_ACCESS_REMOTE_READ,
			     &b));
	assert_int_not_equal(a.remote_key, b.remote_key);
	pinion_unpin(first, &a);
	pinion_close(first);
	pinion_unpin(s.context, &b);
	pinion_close(s.context);
	close_domain(&s);
}

static void memory_that_cannot_be_pinned_is_refused(void **state)
{
	struct pinion_pin pin;
	struct side s = { 0 };

	open_domain(&s, *(int *)*state);
	open_context(&s, NULL);
	expect_unpinnable_memory_refused(s.context);
	if (!(s.info->caps & FI_ATOMIC))
		assert_int_equal(pinion_pin(s.context, &pin, sizeof(pin),
					    PINION_ACCESS_REMOTE_ATOMIC, &pin),
				 -EOPNOTSUPP);
	pinion_close(s.context);
	close_domain(&s);
}

static int open_with(const struct pinion_fabric_attr *fabric,
		     const struct pinion_attr *attr)
{
	static const char *const quiet[] = { "log=none", NULL };
	const struct pinion_attr silent = { .size = sizeof(silent),
					    .options = quiet };
	struct pinion_context *context = (void *)1;
	int ret = pinion_fabric_open(fabric, attr ? attr : &silent, &context);

	if (!ret)
		pinion_close(context);
	else
		assert_ptr_equal(context, (void *)1);
	return ret;
}

static int open_mode(const struct side *s, int mr_mode)
{
	struct pinion_fabric_attr fabric = attr_of(s);
	struct fi_info *info = fi_dupinfo(s->info);
	int ret;

	info->domain_attr->mr_mode = mr_mode;
	fabric.info = info;
	ret = open_with(&fabric, NULL);
	fi_freeinfo(info);
	return ret;
}

static void modes_that_cannot_be_served_are_refused(void **state)
{
	struct side s = { 0 };
	struct pinion_fabric_attr fabric;

	open_domain(&s, *(int *)*state);
	assert_int_equal(open_mode(&s, FI_MR_RAW), -EOPNOTSUPP);
	assert_int_equal(open_mode(&s, FI_MR_MMU_NOTIFY), -EOPNOTSUPP);
	assert_int_equal(open_mode(&s, FI_MR_ENDPOINT), -EINVAL);
	/* FI_MR_BASIC and FI_MR_SCALABLE, which libfabric 2 deprecates. */
	assert_ok(open_mode(&s, 1 << 0));
	assert_ok(open_mode(&s, 1 << 1));
	assert_ok(open_mode(&s, ALL_MODES));
	fabric = attr_of(&s);
	fabric.endpoint = (void *)&s;
	assert_int_equal(open_with(&fabric, NULL), -EINVAL);
	close_domain(&s);
}

static void bad_attributes_are_refused(void **state)
{
	struct {
		struct pinion_fabric_attr attr;
		uint64_t more;
	} newer = { 0 };
	struct pinion_registrar registrar = { .size = sizeof(registrar) };
	struct pinion_attr own = { .size = sizeof(own),
				   .registrar = &registrar };
	struct pinion_fabric_attr fabric;
	struct fi_info empty = { 0 };
	struct side s = { 0 };

	open_domain(&s, *(int *)*state);
	assert_int_equal(open_with(NULL, NULL), -EINVAL);
	fabric = attr_of(&s);
	assert_int_equal(pinion_fabric_open(&fabric, NULL, NULL), -EINVAL);
	assert_int_equal(open_with(&fabric, &own), -EINVAL);
	fabric.domain = NULL;
	assert_int_equal(open_with(&fabric, NULL), -EINVAL);
	fabric = attr_of(&s);
	fabric.info = NULL;
	assert_int_equal(open_with(&fabric, NULL), -EINVAL);
	fabric.info = &empty;
	assert_int_equal(open_with(&fabric, NULL), -EINVAL);
	fabric = attr_of(&s);
	fabric.flags = 1;
	assert_int_equal(open_with(&fabric, NULL), -EINVAL);
	fabric = attr_of(&s);
	fabric.size = 0;
	assert_int_equal(open_with(&fabric, NULL), -EINVAL);
	newer.attr = attr_of(&s);
	newer.attr.size = sizeof(newer);
	assert_ok(open_with(&newer.attr, NULL));
	newer.more = 1;
	assert_int_equal(open_with(&newer.attr, NULL), -E2BIG);
	assert_int_equal(pinion_fabric_addr(NULL), 0);
	close_domain(&s);
}

/* --- FI_MR_ENDPOINT, which no provider here asks for ---------------------- */

/* A domain that records what was bound and enabled. */
static struct {
	struct fid_mr mr;
	const struct fid *bound;
	unsigned registered, enabled, closed;
	int bind_error;
} fake;

static int fake_close(struct fid *fid)
{
	(void)fid;
	fake.closed++;
	return 0;
}

static int fake_bind(struct fid *fid, struct fid *to, uint64_t flags)
{
	(void)fid, (void)flags;
	fake.bound = to;
	return fake.bind_error;
}

static int fake_control(struct fid *fid, int command, void *arg)
{
	(void)fid, (void)arg;
	assert_int_equal(command, FI_ENABLE);
	assert_non_null(fake.bound);
	fake.enabled++;
	/* The key is known after FI_ENABLE. */
	fake.mr.key = 4711;
	return 0;
}

static struct fi_ops fake_mr_ops = { .size = sizeof(fake_mr_ops),
				     .close = fake_close,
				     .bind = fake_bind,
				     .control = fake_control };

static int fake_regattr(struct fid *fid, const struct fi_mr_attr *attr,
			uint64_t flags, struct fid_mr **out)
{
	(void)fid, (void)flags;
	assert_int_equal(attr->iov_count, 1);
	fake.registered++;
	fake.mr = (struct fid_mr){ .fid = { .fclass = FI_CLASS_MR,
					    .ops = &fake_mr_ops },
				   .key = FI_KEY_NOTAVAIL };
	*out = &fake.mr;
	return 0;
}

static struct fi_ops_mr fake_ops = { .size = sizeof(fake_ops),
				     .regattr = fake_regattr };

static void memory_of_an_endpoint_is_bound_and_enabled(void **state)
{
	struct fid_domain domain = { .mr = &fake_ops };
	struct fid_ep ep = { 0 };
	struct fi_info *info = fi_allocinfo();
	struct pinion_fabric_attr fabric = { .size = sizeof(fabric),
					     .domain = &domain,
					     .info = info,
					     .endpoint = &ep };
	struct pinion_context *context;
	struct pinion_pin pin;

	(void)state;
	memset(&fake, 0, sizeof(fake));
	info->domain_attr->mr_mode =
		FI_MR_ENDPOINT | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
	assert_ok(pinion_fabric_open(&fabric, NULL, &context));
	assert_ok(pinion_pin(context, info, sizeof(*info),
			     PINION_ACCESS_REMOTE_READ, &pin));
	assert_ptr_equal(fake.bound, &ep.fid);
	assert_int_equal(fake.enabled, 1);
	assert_int_equal(pin.remote_key, 4711);
	assert_int_equal(pinion_fabric_addr(&pin), (uintptr_t)info);
	pinion_unpin(context, &pin);
	pinion_close(context);
	assert_int_equal(fake.closed, 1);

	fake.bind_error = -FI_ENOAV;
	assert_ok(pinion_fabric_open(&fabric, NULL, &context));
	assert_int_equal(pinion_pin(context, info, sizeof(*info), 0, &pin),
			 -EIO);
	assert_int_equal(fake.closed, fake.registered);
	pinion_close(context);
	assert_int_equal(fake.closed, fake.registered);
	fi_freeinfo(info);
}

#define MODE_TEST(name) cmocka_unit_test_prestate(name, &mr_mode)

int main(int argc, char **argv)
{
	static int mr_mode;
	const struct CMUnitTest own_keys[] = {
		TEST(keys_that_the_program_has_taken_are_skipped),
	};
	const struct CMUnitTest tests[] = {
		MODE_TEST(pinned_memory_is_written_and_read),
		MODE_TEST(a_pin_inside_another_has_its_own_address),
		MODE_TEST(heap_memory_needs_no_registration_of_its_own),
		MODE_TEST(a_small_budget_evicts_and_no_byte_is_lost),
		MODE_TEST(memory_mapped_anew_is_registered_anew),
		MODE_TEST(a_dead_key_is_refused),
		MODE_TEST(random_buffers_arrive_whole),
		MODE_TEST(threads_pin_at_the_same_time),
		MODE_TEST(a_domain_in_use_is_not_closed),
		MODE_TEST(contexts_over_one_domain_have_keys_of_their_own),
		MODE_TEST(memory_that_cannot_be_pinned_is_refused),
		MODE_TEST(modes_that_cannot_be_served_are_refused),
		MODE_TEST(bad_attributes_are_refused),
		TEST(memory_of_an_endpoint_is_bound_and_enabled),
	};
	struct fi_info *info;
	int failed = 0;

	/* Queues of rxm for more do not fit into rxe. */
	setenv("FI_UNIVERSE_SIZE", "4", 0);
	provider = argc < 2		       ? "tcp;ofi_rxm"
		   : !strcmp(argv[1], "tcp")   ? "tcp;ofi_rxm"
		   : !strcmp(argv[1], "verbs") ? "verbs;ofi_rxm"
					       : argv[1];
	address = argc > 2 ? argv[2] : NULL;
	if (find(0, &info)) {
		fi_freeinfo(info);
		failed = RUN_TESTS(own_keys) + RUN_TESTS(tests);
	}
	mr_mode = ALL_MODES;
	if (!find(mr_mode, &info)) {
		printf("skipped: no provider %s here\n", provider);
		return TEST_SKIP;
	}
	if (info->domain_attr->mr_mode)
		failed += RUN_TESTS(tests);
	fi_freeinfo(info);
	return failed;
}
