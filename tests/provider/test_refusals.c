/* SPDX-License-Identifier: BSD-2-Clause */
/* Bad input to the provider: the error that the manual pages name, and no leak
 * (the builds with sanitizers check that). */
#include "test.h"

#include <unistd.h>

#include "side.h"

#define CAPS \
	(FI_RMA | FI_ATOMIC | FI_MSG | FI_TAGGED | FI_RMA_EVENT | FI_SOURCE)
#define MODE (FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)

static const struct setup plain = { .caps = CAPS, .mr_mode = MODE };
static uint8_t memory[4096];

/* Each test has its own side, which knows only itself. */
static struct side *open_alone(const struct setup *setup)
{
	struct side *s = calloc(1, sizeof(*s));
	uint8_t name[NAME_BYTES];
	size_t len = sizeof(name);

	s->setup = setup;
	assert_true(open_side(s));
	assert_ok(fi_getname(&s->ep->fid, name, &len));
	assert_int_equal(fi_av_insert(s->av, name, 1, &s->self, 0, NULL), 1);
	return s;
}

static void close_alone(struct side *s)
{
	assert_true(close_side(s));
	free(s);
}

/* --- hints and addresses -------------------------------------------------- */

typedef void spoil_fn(struct fi_info *hints);

static void want_msg(struct fi_info *h)
{
	h->ep_attr->type = FI_EP_MSG;
}

static void want_order(struct fi_info *h)
{
	h->tx_attr->comp_order = ORDER_STRICT;
}

static void want_much_data(struct fi_info *h)
{
	h->domain_attr->cq_data_size = 9;
}

static void want_lists(struct fi_info *h)
{
	h->tx_attr->iov_limit = 5;
}

static void want_much_inject(struct fi_info *h)
{
	h->tx_attr->inject_size = 4097;
}

static void want_sockets(struct fi_info *h)
{
	h->addr_format = FI_SOCKADDR_IN;
}

static void want_other_domain(struct fi_info *h)
{
	h->domain_attr->name = strdup("nowhere");
}

static void want_scalable(struct fi_info *h)
{
	h->ep_attr->tx_ctx_cnt = 2;
}

static void want_triggers(struct fi_info *h)
{
	h->caps |= FI_TRIGGER;
}

static void come_from_nowhere(struct fi_info *h)
{
	h->src_addr = calloc(1, 3);
	h->src_addrlen = 3;
}

static void unsupported_hints_return_enodata(void **state)
{
	static spoil_fn *const spoils[] = {
		want_msg,	   want_order,	     want_much_data,
		want_lists,	   want_much_inject, want_sockets,
		want_scalable,	   want_triggers,    want_other_domain,
		come_from_nowhere,
	};
	struct fi_info *hints, *info;

	(void)state;
	for (size_t i = 0; i < PN_ARRAY_LEN(spoils); i++) {
		hints = hints_for(FI_MSG);
		spoils[i](hints);
		assert_int_equal(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0,
					    hints, &info),
				 -FI_ENODATA);
		fi_freeinfo(hints);
	}
	hints = hints_for(FI_RMA);
	hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
	assert_ok(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	fi_freeinfo(info);
	/* No host, and another host (of a documentation network). */
	assert_int_equal(fi_getinfo(FI_VERSION(1, 17), "192.0.2.1", "1",
				    FI_NUMERICHOST, hints, &info),
			 -FI_ENODATA);
	assert_int_equal(fi_getinfo(FI_VERSION(1, 17), "no/host", "1",
				    FI_NUMERICHOST, hints, &info),
			 -FI_ENODATA);
	fi_freeinfo(hints);
}

/* --- objects of a domain -------------------------------------------------- */

static void bad_attributes_of_open_calls_are_refused(void **state)
{
	struct fi_cntr_attr counter = { .flags = 1 };
	struct fi_av_attr av = { .name = "shared" };
	struct fi_cq_attr cq = { .format = 99 };
	struct fi_poll_attr poll = { .flags = 1 };
	struct side *s = open_alone(&plain);
	struct fid_cntr *no_counter;
	struct fid_poll *no_poll;
	struct fid_stx *no_stx;
	struct fid_ep *no_ep;
	struct fid_av *no_av;
	struct fid_cq *no_cq;

	(void)state;
	assert_int_equal(fi_cntr_open(s->domain, &counter, &no_counter, NULL),
			 -FI_EBADFLAGS);
	counter = (struct fi_cntr_attr){ .events = 7 };
	assert_int_equal(fi_cntr_open(s->domain, &counter, &no_counter, NULL),
			 -FI_ENOSYS);
	counter = (struct fi_cntr_attr){ .wait_obj = FI_WAIT_SET };
	assert_int_equal(fi_cntr_open(s->domain, &counter, &no_counter, NULL),
			 -FI_ENOSYS);
	assert_int_equal(fi_av_open(s->domain, &av, &no_av, NULL), -FI_ENOSYS);
	assert_int_equal(fi_cq_open(s->domain, &cq, &no_cq, NULL), -FI_ENOSYS);
	assert_int_equal(fi_poll_open(s->domain, &poll, &no_poll),
			 -FI_EBADFLAGS);
	assert_int_equal(fi_scalable_ep(s->domain, s->info, &no_ep, NULL),
			 -FI_ENOSYS);
	assert_int_equal(fi_stx_context(s->domain, NULL, &no_stx, NULL),
			 -FI_ENOSYS);
	assert_int_equal(fi_srx_context(s->domain, NULL, &no_ep, NULL),
			 -FI_ENOSYS);
	assert_int_equal(fi_endpoint(s->domain, NULL, &no_ep, NULL),
			 -FI_EINVAL);
	s->info->src_addrlen--;
	assert_int_equal(fi_endpoint(s->domain, s->info, &no_ep, NULL),
			 -FI_EINVAL);
	s->info->src_addrlen++;
	close_alone(s);
}

static void bad_bindings_are_refused(void **state)
{
	struct side *s = open_alone(&plain), *other = open_alone(&plain);
	struct fi_poll_attr attr = { 0 };
	struct fid_poll *set;
	struct fid_ep *ep;

	(void)state;
	assert_ok(fi_endpoint(s->domain, s->info, &ep, NULL));
	assert_int_equal(fi_send(ep, memory, 1, NULL, 0, NULL),
			 -FI_EOPBADSTATE);
	assert_int_equal(fi_write(ep, memory, 1, NULL, 0, 0, 0, NULL),
			 -FI_EOPBADSTATE);
	assert_int_equal(fi_enable(ep), -FI_ENOAV);
	assert_int_equal(fi_ep_bind(ep, &s->domain->fid, 0), -FI_EINVAL);
	assert_int_equal(fi_ep_bind(ep, &other->av->fid, 0), -FI_EINVAL);
	assert_ok(fi_ep_bind(ep, &s->av->fid, 0));
	assert_int_equal(fi_ep_bind(ep, &s->av->fid, 0), -FI_EINVAL);
	assert_int_equal(fi_enable(ep), -FI_ENOCQ);
	assert_int_equal(fi_ep_bind(ep, &s->tx->fid, 0), -FI_EINVAL);
	assert_int_equal(fi_ep_bind(ep, &s->tx->fid, FI_TRANSMIT | FI_PEEK),
			 -FI_EBADFLAGS);
	assert_int_equal(fi_ep_bind(ep, &other->tx->fid, FI_TRANSMIT),
			 -FI_EINVAL);
	assert_ok(fi_ep_bind(ep, &s->tx->fid, FI_TRANSMIT));
	assert_int_equal(fi_ep_bind(ep, &s->rx->fid, FI_TRANSMIT), -FI_EINVAL);
	assert_int_equal(fi_ep_bind(ep, &s->counters[0]->fid, 0), -FI_EINVAL);
	assert_int_equal(fi_ep_bind(ep, &s->counters[0]->fid, FI_PEEK),
			 -FI_EBADFLAGS);
	assert_int_equal(fi_ep_bind(ep, &other->counters[0]->fid, FI_SEND),
			 -FI_EINVAL);
	assert_ok(fi_enable(ep));
	assert_int_equal(fi_enable(ep), -FI_EOPBADSTATE);
	assert_int_equal(fi_ep_bind(ep, &s->rx->fid, FI_RECV), -FI_EOPBADSTATE);
	/* There is no receive CQ. */
	assert_int_equal(fi_recv(ep, memory, 1, NULL, 0, NULL),
			 -FI_EOPBADSTATE);
	assert_ok(fi_close(&ep->fid));

	assert_ok(fi_poll_open(s->domain, &attr, &set));
	assert_int_equal(fi_poll_add(set, &s->av->fid, 0), -FI_EINVAL);
	assert_int_equal(fi_poll_add(set, &other->tx->fid, 0), -FI_EINVAL);
	assert_int_equal(fi_poll_add(set, &s->tx->fid, 1), -FI_EBADFLAGS);
	assert_int_equal(fi_poll_del(set, &s->tx->fid, 0), -FI_EINVAL);
	assert_ok(fi_poll_add(set, &s->tx->fid, 0));
	assert_ok(fi_poll_del(set, &s->tx->fid, 0));
	assert_ok(fi_close(&set->fid));
	close_alone(other);
	close_alone(s);
}

static void bad_regions_are_refused(void **state)
{
	const struct setup own_keys = { .caps = CAPS, .mr_mode = 0 };
	struct side *s = open_alone(&own_keys);
	struct iovec iov[2] = { { memory, 10 }, { memory + 10, 10 } };
	struct fi_mr_attr attr = { .mr_iov = iov,
				   .iov_count = 1,
				   .access = FI_REMOTE_READ,
				   .requested_key = 5 };
	struct fid_mr *mr, *none;

	(void)state;
	assert_ok(fi_mr_regattr(s->domain, &attr, 0, &mr));
	assert_int_equal(fi_mr_key(mr), 5);
	assert_int_equal(fi_mr_regattr(s->domain, &attr, 0, &none), -FI_ENOKEY);
	assert_int_equal(fi_mr_bind(mr, &s->av->fid, 0), -FI_EINVAL);
	assert_int_equal(fi_mr_bind(mr, &s->counters[0]->fid, FI_SEND),
			 -FI_EBADFLAGS);
	assert_ok(fi_mr_enable(mr));
	assert_ok(fi_close(&mr->fid));
	assert_int_equal(fi_mr_regattr(s->domain, &attr, FI_RMA_PMEM, &none),
			 -FI_EBADFLAGS);
	assert_int_equal(fi_mr_regv(s->domain, iov, 2, FI_REMOTE_READ, 0, 6, 0,
				    &none, NULL),
			 -FI_EINVAL);
	assert_int_equal(fi_mr_reg(s->domain, memory, 1, FI_REMOTE_READ, 8, 6,
				   0, &none, NULL),
			 -FI_EINVAL);
	assert_int_equal(fi_mr_reg(s->domain, memory, 1, FI_MULTI_RECV, 0, 6, 0,
				   &none, NULL),
			 -FI_EBADFLAGS);
	assert_int_equal(fi_mr_reg(s->domain, memory, SIZE_MAX, FI_READ, 0, 6,
				   0, &none, NULL),
			 -FI_EINVAL);
	close_alone(s);
}

/* --- operations ----------------------------------------------------------- */

static void assert_failed(struct fid_cq *cq, void *context)
{
	struct fi_cq_tagged_entry entry;
	struct fi_cq_err_entry error = { 0 };

	assert_int_equal(fi_cq_read(cq, &entry, 1), -FI_EAVAIL);
	assert_int_equal(fi_cq_readerr(cq, &error, 0), 1);
	assert_int_equal(error.err, FI_EFAULT);
	assert_ptr_equal(error.op_context, context);
	assert_int_equal(fi_cq_read(cq, &entry, 1), -FI_EAGAIN);
}

/* Not the call: Open MPI ignores errors of calls that start a persistent
 * request. */
static void operations_without_a_buffer_fail(void **state)
{
	struct side *s = open_alone(&plain);
	struct fi_context context;

	(void)state;
	assert_ok(
		fi_tsenddata(s->ep, NULL, 1000, NULL, 1, s->self, 2, &context));
	assert_failed(s->tx, &context);
	assert_ok(fi_send(s->ep, NULL, 1 << 20, NULL, s->self, &context));
	assert_failed(s->tx, &context);
	assert_ok(fi_trecv(s->ep, NULL, 1, NULL, s->self, 2, 0, &context));
	assert_failed(s->rx, &context);
	assert_int_equal(fi_inject(s->ep, NULL, 8, s->self), -FI_EINVAL);
	close_alone(s);
}

static void bad_operations_are_refused(void **state)
{
	struct side *s = open_alone(&plain);
	struct iovec iov[2] = { { memory, 8 }, { memory, 8 } };
	struct fi_rma_iov at = { .len = 8 };
	struct fi_msg_rma rma = { .msg_iov = iov,
				  .iov_count = 1,
				  .addr = s->self,
				  .rma_iov = &at,
				  .rma_iov_count = 1 };
	struct fi_msg msg = { .msg_iov = iov, .iov_count = 1, .addr = s->self };
	fi_addr_t nobody = s->self + 1;

	(void)state;
	assert_int_equal(fi_send(s->ep, memory, 1, NULL, nobody, NULL),
			 -FI_EINVAL);
	assert_int_equal(fi_sendv(s->ep, iov, NULL, 5, s->self, NULL),
			 -FI_EINVAL);
	assert_int_equal(fi_inject(s->ep, memory, 257, s->self), -FI_EINVAL);
	assert_int_equal(fi_sendmsg(s->ep, &msg, FI_FENCE), -FI_EBADFLAGS);
	assert_int_equal(fi_recvmsg(s->ep, &msg, FI_FENCE), -FI_EBADFLAGS);
	assert_int_equal(fi_write(s->ep, memory, 1, NULL, nobody, 0, 0, NULL),
			 -FI_EINVAL);
	assert_int_equal(fi_inject_write(s->ep, memory, 257, s->self, 0, 0),
			 -FI_EINVAL);
	assert_int_equal(fi_writev(s->ep, iov, NULL, 5, s->self, 0, 0, NULL),
			 -FI_EINVAL);
	assert_int_equal(fi_writemsg(s->ep, &rma, FI_FENCE), -FI_EBADFLAGS);
	assert_int_equal(fi_readmsg(s->ep, &rma, FI_REMOTE_CQ_DATA),
			 -FI_EBADFLAGS);
	at.len = 7;
	assert_int_equal(fi_writemsg(s->ep, &rma, 0), -FI_EINVAL);
	rma.iov_count = 2;
	assert_int_equal(fi_readmsg(s->ep, &rma, 0), -FI_EINVAL);
	assert_int_equal(fi_atomic(s->ep, memory, 1, NULL, s->self, 0, 0,
				   FI_FLOAT, FI_BOR, NULL),
			 -FI_EOPNOTSUPP);
	assert_int_equal(fi_atomic(s->ep, memory, 1, NULL, s->self, 0, 0, 99,
				   FI_SUM, NULL),
			 -FI_EOPNOTSUPP);
	assert_int_equal(fi_inject_atomic(s->ep, memory, 33, s->self, 0, 0,
					  FI_UINT64, FI_SUM),
			 -FI_EINVAL);
	assert_int_equal(fi_cancel(&s->ep->fid, memory), -FI_ENOENT);
	close_alone(s);
}

static void operations_without_the_capability_are_refused(void **state)
{
	const struct setup messages = { .caps = FI_MSG };
	struct side *s = open_alone(&messages);

	(void)state;
	assert_int_equal(fi_write(s->ep, memory, 1, NULL, s->self, 0, 0, NULL),
			 -FI_ENOSYS);
	assert_int_equal(fi_atomic(s->ep, memory, 1, NULL, s->self, 0, 0,
				   FI_UINT8, FI_SUM, NULL),
			 -FI_ENOSYS);
	assert_int_equal(fi_connect(s->ep, memory, NULL, 0), -FI_ENOSYS);
	close_alone(s);
}

/* --- names ---------------------------------------------------------------- */

static void removed_names_are_not_found(void **state)
{
	struct side *s = open_alone(&plain);
	uint8_t name[2 * NAME_BYTES] = { 0 };
	struct fi_cq_tagged_entry end;
	fi_addr_t again[2];
	size_t len = NAME_BYTES;
	ssize_t n;

	(void)state;
	assert_ok(fi_av_lookup(s->av, s->self, name, &len));
	/* The second one is no name. */
	assert_int_equal(fi_av_insert(s->av, name, 2, again, 0, NULL), 1);
	assert_true(again[0] != s->self && again[1] == FI_ADDR_NOTAVAIL);
	assert_ok(fi_av_remove(s->av, &s->self, 1, 0));
	assert_int_equal(fi_av_remove(s->av, &s->self, 1, 0), -FI_EINVAL);
	assert_int_equal(fi_av_lookup(s->av, s->self, name, &len), -FI_EINVAL);
	assert_int_equal(fi_send(s->ep, memory, 1, NULL, s->self, NULL),
			 -FI_EINVAL);
	/* The other number of the endpoint works, and is its source. */
	assert_ok(fi_recv(s->ep, memory, 1, NULL, FI_ADDR_UNSPEC, NULL));
	assert_ok(fi_send(s->ep, memory + 1, 1, NULL, again[0], NULL));
	while ((n = fi_cq_readfrom(s->rx, &end, 1, again + 1)) == -FI_EAGAIN)
		;
	assert_int_equal(n, 1);
	assert_int_equal(again[1], again[0]);
	close_alone(s);
}

/* A name that no other test and no other run uses. */
static void name_service(char out[16])
{
	snprintf(out, 16, "t%d", (int)getpid());
}

static void a_service_belongs_to_one_endpoint(void **state)
{
	struct fi_info *hints = hints_for(FI_MSG), *info, *to;
	struct side *s = open_alone(&plain);
	struct fid_ep *ep, *second;
	char service[16];
	fi_addr_t addr;

	(void)state;
	name_service(service);
	assert_ok(fi_getinfo(FI_VERSION(1, 17), NULL, service, FI_SOURCE, hints,
			     &info));
	assert_ok(fi_getinfo(FI_VERSION(1, 17), "127.0.0.1", service, 0, hints,
			     &to));
	assert_int_equal(fi_av_insert(s->av, to->dest_addr, 1, &addr, 0, NULL),
			 1);
	assert_int_equal(fi_send(s->ep, memory, 1, NULL, addr, NULL),
			 -FI_EHOSTUNREACH);
	assert_ok(fi_endpoint(s->domain, info, &ep, NULL));
	assert_int_equal(fi_endpoint(s->domain, info, &second, NULL),
			 -FI_EADDRINUSE);
	assert_ok(fi_send(s->ep, memory, 1, NULL, addr, NULL));
	assert_int_equal(fi_av_insertsvc(s->av, "127.0.0.1", service, &addr, 0,
					 NULL),
			 1);
	assert_int_equal(fi_av_insertsvc(s->av, NULL, "a b", &addr, 0, NULL),
			 -FI_EINVAL);
	assert_ok(fi_close(&ep->fid));
	assert_ok(fi_endpoint(s->domain, info, &second, NULL));
	assert_ok(fi_close(&second->fid));
	fi_freeinfo(to);
	fi_freeinfo(info);
	fi_freeinfo(hints);
	close_alone(s);
}

/* --- the rest ------------------------------------------------------------- */

static void bad_options_and_queues_are_refused(void **state)
{
	struct fi_eq_attr attr = { .wait_obj = FI_WAIT_NONE };
	struct side *s = open_alone(&plain);
	uint8_t small[4];
	size_t len = sizeof(small), value = 1;
	uint64_t flags = FI_TRANSMIT | FI_RECV;
	struct fid_pep *no_pep;
	struct fid_eq *eq;
	uint32_t event;

	(void)state;
	assert_int_equal(fi_getname(&s->ep->fid, small, &len), -FI_ETOOSMALL);
	assert_int_equal(len, NAME_BYTES);
	assert_int_equal(fi_setopt(&s->ep->fid, FI_OPT_ENDPOINT, 77, &value,
				   sizeof(value)),
			 -FI_ENOPROTOOPT);
	assert_int_equal(fi_setopt(&s->ep->fid, FI_OPT_ENDPOINT,
				   FI_OPT_MIN_MULTI_RECV, &value, 1),
			 -FI_EINVAL);
	assert_int_equal(fi_control(&s->ep->fid, FI_GETOPSFLAG, &flags),
			 -FI_EINVAL);
	assert_int_equal(fi_control(&s->ep->fid, 999, NULL), -FI_ENOSYS);
	assert_int_equal(fi_passive_ep(s->fabric, s->info, &no_pep, NULL),
			 -FI_ENOSYS);
	assert_ok(fi_eq_open(s->fabric, &attr, &eq, NULL));
	assert_int_equal(fi_eq_write(eq, 1, small, 4, 0), -FI_EINVAL);
	assert_int_equal(fi_eq_sread(eq, &event, small, 4, 0, 0), -FI_ENOSYS);
	assert_ok(fi_ep_bind(s->ep, &eq->fid, 0) == -FI_EOPBADSTATE ? 0 : -1);
	assert_ok(fi_close(&eq->fid));
	close_alone(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(unsupported_hints_return_enodata),
		TEST(bad_attributes_of_open_calls_are_refused),
		TEST(bad_bindings_are_refused),
		TEST(bad_regions_are_refused),
		TEST(operations_without_a_buffer_fail),
		TEST(bad_operations_are_refused),
		TEST(operations_without_the_capability_are_refused),
		TEST(removed_names_are_not_found),
		TEST(a_service_belongs_to_one_endpoint),
		TEST(bad_options_and_queues_are_refused),
	};

	return RUN_TESTS(tests);
}
