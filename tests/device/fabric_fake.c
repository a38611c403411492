/* SPDX-License-Identifier: BSD-2-Clause */
#include "fabric_fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/compiler.h"

/* --- the provider --------------------------------------------------------- */

static struct fake *fake_of(struct fid_ep *ep)
{
	return pn_container_of(ep, struct fake, ep);
}

static void complete_with(struct fake *f, void *context, size_t len, int error)
{
	unsigned at = (f->first_entry + f->nentries++) % FAKE_ENTRIES;

	pn_assert(f->nentries <= FAKE_ENTRIES);
	f->errors[at] = error;
	f->entries[at] =
		(struct fi_cq_msg_entry){ .op_context = context, .len = len };
	if (f->dev->cq_fd >= 0)
		pn_fabric_notify(f->dev->cq_fd);
}

static void complete(struct fake *f, void *context, size_t len)
{
	complete_with(f, context, len, 0);
}

static ssize_t post_receive(struct fid_ep *ep, void *buf, size_t len,
			    void *desc, fi_addr_t from, void *context)
{
	struct fake *f = fake_of(ep);
	unsigned at = (f->first_posted + f->nposted++) % FAKE_ENTRIES;

	(void)buf, (void)len, (void)desc, (void)from;
	pn_assert(f->nposted <= FAKE_ENTRIES);
	f->posted[at] = pn_container_of(context, struct pn_fabric_packet,
					context.provider);
	return 0;
}

static ssize_t count_sent(struct fake *f, const void *buf)
{
	const struct pn_fabric_header *header = buf;

	if (f->send_error)
		return f->send_error;
	pn_assert(header->kind < PN_ARRAY_LEN(f->sent));
	f->sent[header->kind]++;
	return 0;
}

static ssize_t send_packet(struct fid_ep *ep, const void *buf, size_t len,
			   void *desc, fi_addr_t to, void *context)
{
	ssize_t ret = count_sent(fake_of(ep), buf);

	(void)desc, (void)to;
	if (!ret)
		complete(fake_of(ep), context, len);
	return ret;
}

static ssize_t inject_packet(struct fid_ep *ep, const void *buf, size_t len,
			     fi_addr_t to)
{
	(void)len, (void)to;
	return count_sent(fake_of(ep), buf);
}

static ssize_t post_fetch(struct fid_ep *ep, void *buf, size_t len, void *desc,
			  fi_addr_t from, uint64_t addr, uint64_t key,
			  void *context)
{
	struct fake *f = fake_of(ep);

	(void)desc, (void)from, (void)addr, (void)key;
	if (f->nfetches == FAKE_ENTRIES)
		return -FI_EAGAIN;
	if (f->fetch_error)
		return f->fetch_error;
	f->fetches[f->nfetches++] = (struct fake_fetch){ context, buf, len };
	return 0;
}

static struct fi_cq_msg_entry take_entry(struct fake *f)
{
	unsigned at = f->first_entry;

	f->first_entry = (at + 1) % FAKE_ENTRIES;
	f->nentries--;
	return f->entries[at];
}

static ssize_t read_entries(struct fid_cq *cq, void *buf, size_t count)
{
	struct fake *f = pn_container_of(cq, struct fake, cq);
	struct fi_cq_msg_entry *out = buf;
	size_t n = 0;

	while (n < count && f->nentries && !f->errors[f->first_entry])
		out[n++] = take_entry(f);
	if (n)
		return (ssize_t)n;
	return f->nentries ? -FI_EAVAIL : -FI_EAGAIN;
}

static ssize_t read_error(struct fid_cq *cq, struct fi_cq_err_entry *out,
			  uint64_t flags)
{
	struct fake *f = pn_container_of(cq, struct fake, cq);
	int error = f->nentries ? f->errors[f->first_entry] : 0;

	(void)flags;
	if (!error)
		return -FI_EAGAIN;
	*out = (struct fi_cq_err_entry){ .op_context = take_entry(f).op_context,
					 .err = error };
	return 1;
}

/* The descriptor stays readable until this finds nothing. */
static int try_wait(struct fid_fabric *fabric, struct fid **fids, int count)
{
	struct fake *f = pn_container_of(fabric, struct fake, fabric);

	(void)fids, (void)count;
	if (f->nentries)
		return -FI_EAGAIN;
	pn_fabric_drain_notifications(f->dev->cq_fd);
	return 0;
}

static int insert_address(struct fid_av *av, const void *addr, size_t count,
			  fi_addr_t *out, uint64_t flags, void *context)
{
	(void)av, (void)addr, (void)flags, (void)context;
	*out = 1;
	return (int)count;
}

static int close_mr(struct fid *fid)
{
	struct fake *f = fid->context;

	f->nregions--;
	free(fid);
	return 0;
}

static struct fi_ops mr_ops = { .size = sizeof(mr_ops), .close = close_mr };

static int register_memory(struct fid *domain, const struct fi_mr_attr *attr,
			   uint64_t flags, struct fid_mr **out)
{
	struct fake *f = domain->context;
	struct fid_mr *mr = calloc(1, sizeof(*mr));

	(void)flags;
	pn_assert(mr);
	mr->fid.ops = &mr_ops;
	mr->fid.context = f;
	f->nregions++;
	f->requested_key = attr->requested_key;
	mr->key = f->requested_key ? f->requested_key : 1;
	*out = mr;
	return 0;
}

static const char *error_text(int error)
{
	(void)error;
	return "an error";
}

static const struct pn_fabric_library library = { .strerror = error_text };
static struct fi_ops_msg messages = { .size = sizeof(messages),
				      .recv = post_receive,
				      .send = send_packet,
				      .inject = inject_packet };
static struct fi_ops_rma rma = { .size = sizeof(rma), .read = post_fetch };
static struct fi_ops_cq cq_ops = { .size = sizeof(cq_ops),
				   .read = read_entries,
				   .readerr = read_error };
static struct fi_ops_av av_ops = { .size = sizeof(av_ops),
				   .insert = insert_address };
static struct fi_ops_fabric fabric_ops = { .size = sizeof(fabric_ops),
					   .trywait = try_wait };
static struct fi_ops_mr mrs = { .size = sizeof(mrs),
				.regattr = register_memory };

static void make_provider(struct fake *f)
{
	f->ep.msg = &messages;
	f->ep.rma = &rma;
	f->cq.ops = &cq_ops;
	f->av.ops = &av_ops;
	f->domain.mr = &mrs;
	f->domain.fid.context = f;
	f->fabric.ops = &fabric_ops;
	f->fabric_attr.prov_name = (char *)(uintptr_t) "fake";
	f->info.fabric_attr = &f->fabric_attr;
	f->info.domain_attr = &f->domain_attr;
	f->info.ep_attr = &f->ep_attr;
	f->info.tx_attr = &f->tx_attr;
}

/* --- the device ----------------------------------------------------------- */

static void init_lists(struct pn_fabric_device *dev)
{
	struct pn_list *lists[] = { &dev->peers,      &dev->blocks,
				    &dev->free,	      &dev->unposted,
				    &dev->teardowns,  &dev->acks_due,
				    &dev->backlogged, &dev->fetches };

	for (unsigned i = 0; i < PN_ARRAY_LEN(lists); i++)
		pn_list_init(lists[i]);
}

static struct pn_fabric_address address_of(uint64_t nonce)
{
	struct pn_fabric_address at = { .version = PN_FABRIC_VERSION,
					.kind = "fabr",
					.format = FI_ADDR_STR,
					.nonce = nonce };

	at.len = (uint16_t)(1 + snprintf((char *)at.raw, sizeof(at.raw),
					 "fake://%u", (unsigned)nonce));
	return at;
}

static void make_device(struct fake *f)
{
	struct pn_fabric_device *dev = calloc(1, sizeof(*dev));

	pn_assert(dev);
	init_lists(dev);
	dev->owner = dev;
	dev->library = &library;
	dev->info = &f->info;
	dev->ep = &f->ep;
	dev->cq = &f->cq;
	dev->av = &f->av;
	dev->domain = &f->domain;
	dev->fabric = &f->fabric;
	dev->device.ops = &pn_fabric_ops;
	dev->address = address_of(7);
	dev->params = (struct pn_fabric_params){ .window = 32 };
	dev->depth_mask = 127;
	dev->device.limits = (struct pn_device_limits){
		.max_op_bytes = FAKE_MEMORY,
		.max_send_bytes = PN_FABRIC_MAX_SEND,
		.inline_bytes = PN_FABRIC_MAX_SEND,
		.max_sge = PN_FABRIC_MAX_SGE,
		.queue_depth = 128,
	};
	dev->device.caps = PN_CAP_GATHER | PN_CAP_WRITE_IMM | PN_CAP_ATOMICS;
	dev->cq_fd = -1;
	dev->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	dev->epoll = -1;
	dev->service.event_fd = dev->service.epoll = -1;
	pn_mutex_init(&dev->lock);
	pn_fabric_keys_init(&dev->keys);
	dev->keys.domain = dev->domain;
	dev->keys.virt_addr = dev->keys.prov_key = true;
	dev->keys.tag = 5;
	dev->keys.key_mask = UINT64_MAX;
	f->dev = dev;
	pn_assert(!pn_fabric_receives_add(dev, 64));
}

void fake_open(struct fake *f)
{
	memset(f, 0, sizeof(*f));
	make_provider(f);
	make_device(f);
	f->memory = calloc(1, FAKE_MEMORY);
	pn_assert(f->memory);
	f->mr = (struct pn_mr){ .addr = f->memory,
				.len = FAKE_MEMORY,
				.access = PINION_ACCESS_ALL };
	pn_assert(!pn_fabric_keys_register(&f->dev->keys, &f->mr));
}

void fake_connect(struct fake *f)
{
	struct pn_fabric_hello hello = {
		.header = { .kind = PN_FABRIC_HELLO, .to = 3, .tag = 77 },
		.magic = PN_FABRIC_MAGIC,
		.version = PN_FABRIC_VERSION,
		.to_nonce = f->dev->address.nonce,
		.window = 100,
		.from = address_of(8)
	};
	struct pn_address blob;
	struct pn_peer *peer;

	pn_fabric_address_put(&hello.from, &blob);
	pn_assert(!pn_fabric_attach(&f->dev->device, &blob, &peer));
	f->peer = pn_fabric_peer_of(peer);
	hello.echo = f->peer->tag;
	fake_deliver(f, &hello, sizeof(hello));
	pn_assert(f->peer->up_reported);
	fake_poll(f);
}

static void watch(int epoll, int fd)
{
	struct epoll_event event = { .events = EPOLLIN };

	pn_assert(!epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
}

void fake_serve(struct fake *f)
{
	struct pn_fabric_device *dev = f->dev;

	dev->cq_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	dev->epoll = epoll_create1(EPOLL_CLOEXEC);
	watch(dev->epoll, dev->event_fd);
	watch(dev->epoll, dev->cq_fd);
	pn_assert(!pn_fabric_service_start(dev));
}

static void stop_serving(struct pn_fabric_device *dev)
{
	pn_fabric_service_stop(dev);
	close(dev->epoll);
	close(dev->cq_fd);
	close(dev->service.epoll);
	close(dev->service.event_fd);
	dev->cq_fd = -1;
}

/* The provider ends all that it has, as when an endpoint is closed. */
void fake_close(struct fake *f)
{
	struct pn_fabric_device *dev = f->dev;

	if (dev->service.running)
		stop_serving(dev);
	while (fake_end_fetch(f))
		;
	fake_poll(f);
	dev->nwanted = 0;
	pn_fabric_peers_free(dev);
	pn_fabric_keys_fini(&dev->keys);
	pn_fabric_packets_free(dev);
	pn_mutex_fini(&dev->lock);
	close(dev->event_fd);
	free(dev->done.ring);
	free(dev);
	free(f->memory);
}

/* --- the peer ------------------------------------------------------------- */

void fake_progress(struct fake *f)
{
	pn_fabric_lock(f->dev);
	pn_fabric_progress(f->dev, true);
	pn_fabric_unlock(f->dev);
}

void fake_arrive(struct fake *f, const void *bytes, size_t len)
{
	struct pn_fabric_packet *packet;

	if (!f->nposted)
		return; /* it waits in the network */
	packet = f->posted[f->first_posted];
	f->first_posted = (f->first_posted + 1) % FAKE_ENTRIES;
	f->nposted--;
	if (len > sizeof(packet->wire))
		len = sizeof(packet->wire);
	memcpy(&packet->wire, bytes, len);
	complete(f, &packet->context, len);
}

void fake_deliver(struct fake *f, const void *bytes, size_t len)
{
	fake_arrive(f, bytes, len);
	fake_progress(f);
}

void fake_arrive_next(struct fake *f, void *packet, size_t len)
{
	struct pn_fabric_header *header = packet;

	header->to = f->peer->number;
	header->tag = f->peer->tag;
	header->sequence = f->peer->rx.sequence;
	fake_arrive(f, packet, len);
}

void fake_deliver_next(struct fake *f, void *packet, size_t len)
{
	fake_arrive_next(f, packet, len);
	fake_progress(f);
}

/* Whether a registration that has users covers the range. */
static bool is_in_use(const struct fake *f, const struct fake_fetch *fetch)
{
	const struct pn_fabric_keys *keys = &f->dev->keys;
	const struct pn_fabric_slot *slots = atomic_load(&keys->blocks[0]);
	uintptr_t at = (uintptr_t)fetch->addr;

	for (unsigned i = 0; i < keys->nslots; i++)
		if (atomic_load(&slots[i].users) && at >= slots[i].addr &&
		    at + fetch->len <= slots[i].addr + slots[i].len)
			return true;
	return false;
}

static struct fake_fetch take_fetch(struct fake *f)
{
	struct fake_fetch fetch = f->fetches[0];

	memmove(f->fetches, f->fetches + 1,
		--f->nfetches * sizeof(f->fetches[0]));
	return fetch;
}

bool fake_end_fetch(struct fake *f)
{
	struct fake_fetch fetch;

	if (!f->nfetches)
		return false;
	fetch = take_fetch(f);
	pn_assert(is_in_use(f, &fetch));
	memset(fetch.addr, 0xee, fetch.len);
	complete(f, fetch.context, fetch.len);
	fake_progress(f);
	return true;
}

bool fake_fail_fetch(struct fake *f, bool named)
{
	struct fake_fetch fetch;

	if (!f->nfetches)
		return false;
	fetch = take_fetch(f);
	complete_with(f, named ? fetch.context : NULL, 0, FI_EFAULT);
	fake_progress(f);
	return true;
}

int fake_post(struct fake *f, enum pn_op_kind kind, size_t len)
{
	const struct pn_sge sge = { f->memory, len, f->mr.lkey };
	const struct pn_op op = { .kind = kind,
				  .sge = &sge,
				  .nsge = 1,
				  .remote_addr = 4096,
				  .rkey = 1,
				  .user = f };

	return pn_fabric_post(&f->dev->device, &f->peer->peer, &op);
}

int fake_poll(struct fake *f)
{
	struct pn_completion done[16];
	int n, status = 0;

	do {
		n = pn_fabric_poll(&f->dev->device, done, 16);
		for (int i = 0; i < n; i++) {
			if (done[i].kind == PN_COMPLETION_OP)
				status = done[i].status;
			pn_fabric_return_buffer(&f->dev->device, &done[i]);
		}
	} while (n);
	return status;
}
