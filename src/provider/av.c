/* SPDX-License-Identifier: BSD-2-Clause */
/* The AV: names by number. The number of a removed name is not given out again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fnv.h"
#include "provider/open_mpi.h"
#include "provider/provider.h"

static struct pn_fi_av *av_of(struct fid_av *fid)
{
	return pn_container_of(fid, struct pn_fi_av, fid);
}

static size_t *chain_of(struct pn_fi_av *av, const struct pn_fi_name *name)
{
	uint64_t hash = pn_fnv_add(PN_FNV_START, name, sizeof(*name));

	return &av->chains[hash & (av->capacity - 1)];
}

static void link_name(struct pn_fi_av *av, size_t i)
{
	size_t *chain = chain_of(av, &av->names[i]);

	av->next[i] = *chain;
	*chain = i + 1;
}

/* Removed names have no chain. */
static void link_all(struct pn_fi_av *av)
{
	memset(av->chains, 0, av->capacity * sizeof(*av->chains));
	for (size_t i = 0; i < av->n; i++)
		if (av->names[i].len)
			link_name(av, i);
}

static void unlink_name(struct pn_fi_av *av, size_t i)
{
	size_t *at = chain_of(av, &av->names[i]);

	while (*at != i + 1)
		at = &av->next[*at - 1];
	*at = av->next[i];
}

static bool grow_chains(struct pn_fi_av *av, size_t capacity)
{
	size_t *chains = realloc(av->chains, capacity * sizeof(*chains));
	size_t *next = realloc(av->next, capacity * sizeof(*next));

	av->chains = chains ? chains : av->chains;
	av->next = next ? next : av->next;
	return chains && next;
}

static int grow(struct pn_fi_av *av, size_t n)
{
	size_t capacity = av->capacity ? av->capacity : 16;
	struct pn_fi_name *names;

	if (n > SIZE_MAX / 2 / sizeof(*av->names))
		return -FI_ENOMEM;
	while (capacity < n)
		capacity *= 2;
	if (capacity == av->capacity)
		return 0;
	names = realloc(av->names, capacity * sizeof(*names));
	if (!names)
		return -FI_ENOMEM;
	av->names = names;
	if (!grow_chains(av, capacity))
		return -FI_ENOMEM;
	av->capacity = capacity;
	link_all(av);
	return 0;
}

static bool name_ok(const struct pn_fi_name *name)
{
	return (name->len && name->len <= sizeof(name->data)) ||
	       pn_fi_is_service(name);
}

static int insert_one(struct pn_fi_av *av, const void *addr, fi_addr_t *out)
{
	struct pn_fi_name name;
	int ret;

	memcpy(&name, addr, sizeof(name));
	ret = name_ok(&name) ? grow(av, av->n + 1) : -FI_EINVAL;
	if (!ret) {
		av->names[av->n] = name;
		link_name(av, av->n);
	}
	if (out)
		*out = ret ? FI_ADDR_NOTAVAIL : av->n;
	av->n += !ret;
	return ret;
}

static int insert(struct fid_av *fid, const void *addr, size_t count,
		  fi_addr_t *fi_addr, uint64_t flags, void *context)
{
	struct pn_fi_av *av = av_of(fid);
	int done = 0;

	if (!addr && count)
		return -FI_EINVAL;
	pn_open_mpi_repair_sends(__builtin_return_address(0));
	pn_fi_lock(av->domain);
	for (size_t i = 0; i < count; i++) {
		int ret = insert_one(av,
				     (const char *)addr + i * PN_FI_NAME_BYTES,
				     fi_addr ? &fi_addr[i] : NULL);

		done += !ret;
		if (flags & FI_SYNC_ERR && context)
			((int *)context)[i] = -ret;
	}
	pn_fi_unlock(av->domain);
	return done;
}

static int insert_service(struct fid_av *fid, const char *node,
			  const char *service, fi_addr_t *fi_addr,
			  uint64_t flags, void *context)
{
	struct pn_fi_name name;
	int ret = service ? pn_fi_service_name(service, &name) : -FI_EINVAL;

	if (!ret && node && !pn_fi_is_this_host(node, flags))
		ret = -FI_EHOSTUNREACH;
	return ret ? ret : insert(fid, &name, 1, fi_addr, flags, context);
}

static int no_symmetric(struct fid_av *av, const char *node, size_t nodecnt,
			const char *service, size_t svccnt, fi_addr_t *fi_addr,
			uint64_t flags, void *context)
{
	(void)av, (void)node, (void)nodecnt, (void)service, (void)svccnt;
	(void)fi_addr, (void)flags, (void)context;
	return -FI_ENOSYS;
}

static bool is_present(const struct pn_fi_av *av, fi_addr_t addr)
{
	return addr < av->n && av->names[addr].len;
}

static int remove_all(struct fid_av *fid, fi_addr_t *fi_addr, size_t count,
		      uint64_t flags)
{
	struct pn_fi_av *av = av_of(fid);
	int ret = 0;

	(void)flags;
	pn_fi_lock(av->domain);
	for (size_t i = 0; i < count; i++) {
		if (is_present(av, fi_addr[i])) {
			unlink_name(av, fi_addr[i]);
			av->names[fi_addr[i]].len = 0;
		} else {
			ret = -FI_EINVAL;
		}
	}
	pn_fi_unlock(av->domain);
	return ret;
}

static int lookup(struct fid_av *fid, fi_addr_t fi_addr, void *addr,
		  size_t *addrlen)
{
	struct pn_fi_av *av = av_of(fid);
	size_t room = *addrlen;
	int ret = -FI_EINVAL;

	pn_fi_lock(av->domain);
	if (is_present(av, fi_addr)) {
		*addrlen = PN_FI_NAME_BYTES;
		memcpy(addr, &av->names[fi_addr],
		       room < *addrlen ? room : *addrlen);
		ret = 0;
	}
	pn_fi_unlock(av->domain);
	return ret;
}

static size_t write_hex(const struct pn_fi_name *name, char *out, size_t room)
{
	size_t n = 0;

	for (size_t i = 0; name_ok(name) && i < name->len; i++)
		n += (size_t)snprintf(out + n, room - n, "%02x", name->data[i]);
	return n;
}

/* "pinion:" and the bytes of the name in hexadecimal, or "pinion:service:" and
 * the service. */
static const char *to_text(struct fid_av *fid, const void *addr, char *buf,
			   size_t *len)
{
	char text[8 + 2 * PN_FI_NAME_BYTES] = "pinion:";
	struct pn_fi_name name;
	size_t n = 7, room = *len;

	(void)fid;
	memcpy(&name, addr, sizeof(name));
	if (pn_fi_is_service(&name))
		n += (size_t)snprintf(text + n, sizeof(text) - n, "service:%s",
				      pn_fi_service_text(&name));
	else
		n += write_hex(&name, text + n, sizeof(text) - n);
	*len = n + 1;
	if (room)
		snprintf(buf, room, "%s", text);
	return buf;
}

static void free_av(struct pn_fi_av *av)
{
	if (!av)
		return;
	free(av->names);
	free(av->chains);
	free(av->next);
	free(av);
}

static int close_av(struct fid *fid)
{
	struct pn_fi_av *av = pn_container_of(fid, struct pn_fi_av, fid.fid);

	if (av->refs)
		return -FI_EBUSY;
	atomic_fetch_sub(&av->domain->refs, 1);
	free_av(av);
	return 0;
}

static struct fi_ops av_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = close_av,
	.bind = pn_fi_no_bind,
	.control = pn_fi_no_control,
	.ops_open = pn_fi_no_ops,
};

static struct fi_ops_av av_ops = {
	.size = sizeof(struct fi_ops_av),
	.insert = insert,
	.insertsvc = insert_service,
	.insertsym = no_symmetric,
	.remove = remove_all,
	.lookup = lookup,
	.straddr = to_text,
};

int pn_fi_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
		  struct fid_av **out, void *context)
{
	struct pn_fi_av *av;

	/* Shared and asynchronous AVs are not supported. */
	if (attr->name || attr->flags || attr->rx_ctx_bits)
		return -FI_ENOSYS;
	if (attr->type == FI_AV_UNSPEC)
		attr->type = FI_AV_TABLE;
	av = calloc(1, sizeof(*av));
	if (!av || grow(av, attr->count)) {
		free_av(av);
		return -FI_ENOMEM;
	}
	av->domain = pn_container_of(domain, struct pn_fi_domain, fid);
	atomic_fetch_add(&av->domain->refs, 1);
	av->fid.fid.fclass = FI_CLASS_AV;
	av->fid.fid.context = context;
	av->fid.fid.ops = &av_fid_ops;
	av->fid.ops = &av_ops;
	*out = &av->fid;
	return 0;
}

/* --- numbers and peers ---------------------------------------------------- */

static int grow_peers(struct pn_fi_ep *ep)
{
	size_t n = ep->av->capacity;
	struct pinion_peer **peers = realloc(ep->peers, n * sizeof(*peers));

	if (!peers)
		return -FI_ENOMEM;
	memset(peers + ep->npeers, 0, (n - ep->npeers) * sizeof(*peers));
	ep->peers = peers;
	ep->npeers = n;
	return 0;
}

/* The entry of a peer, or the free one where it belongs. There is always a free
 * one. */
static struct pn_fi_source *source_at(const struct pn_fi_ep *ep,
				      const struct pinion_peer *peer)
{
	size_t i = (uintptr_t)peer * UINT64_C(0x9e3779b97f4a7c15) >> 32;

	while (ep->sources[i & (ep->source_slots - 1)].peer &&
	       ep->sources[i & (ep->source_slots - 1)].peer != peer)
		i++;
	return &ep->sources[i & (ep->source_slots - 1)];
}

static bool grow_sources(struct pn_fi_ep *ep)
{
	struct pn_fi_source *old = ep->sources;
	size_t nold = ep->source_slots, slots = nold ? 2 * nold : 16;

	ep->sources = calloc(slots, sizeof(*ep->sources));
	if (!ep->sources) {
		ep->sources = old;
		return false;
	}
	ep->source_slots = slots;
	for (size_t i = 0; i < nold; i++)
		if (old[i].peer)
			*source_at(ep, old[i].peer) = old[i];
	free(old);
	return true;
}

/* Without memory the number is found by the peer's address each time. */
static void remember_source(struct pn_fi_ep *ep, fi_addr_t addr)
{
	struct pn_fi_source *source;

	if (2 * ep->nsources >= ep->source_slots && !grow_sources(ep))
		return;
	source = source_at(ep, ep->peers[addr]);
	if (source->peer && source->addr < addr &&
	    is_present(ep->av, source->addr))
		return;
	ep->nsources += !source->peer;
	*source = (struct pn_fi_source){ ep->peers[addr], addr };
}

static int add_peer(struct pn_fi_ep *ep, fi_addr_t addr)
{
	struct pn_fi_name name = ep->av->names[addr];
	struct pinion_address address = { 0 };
	int ret = addr < ep->npeers ? 0 : grow_peers(ep);

	if (!ret && pn_fi_is_service(&name))
		ret = pn_fi_resolve(&ep->av->names[addr], &name);
	if (ret)
		return ret;
	address.len = name.len;
	memcpy(address.data, name.data, name.len);
	ret = pinion_peer_add(ep->endpoint, &address, &ep->peers[addr]);
	if (!ret)
		remember_source(ep, addr);
	return ret;
}

int pn_fi_peer_find(struct pn_fi_ep *ep, fi_addr_t addr,
		    struct pinion_peer **out)
{
	int ret;

	if (!is_present(ep->av, addr))
		return -FI_EINVAL;
	if (pn_unlikely(addr >= ep->npeers || !ep->peers[addr])) {
		ret = add_peer(ep, addr);
		if (ret)
			return ret;
	}
	*out = ep->peers[addr];
	return 0;
}

/* The lowest number of a name; FI_ADDR_NOTAVAIL: it is not in the AV. */
static fi_addr_t number_of(struct pn_fi_av *av, const struct pn_fi_name *name)
{
	fi_addr_t lowest = FI_ADDR_NOTAVAIL;

	for (size_t i = *chain_of(av, name); i; i = av->next[i - 1])
		if (!memcmp(&av->names[i - 1], name, sizeof(*name)) &&
		    i - 1 < lowest)
			lowest = i - 1;
	return lowest;
}

/* Finds a source by its address and adds it as a peer. */
static fi_addr_t find_source(struct pn_fi_ep *ep,
			     const struct pinion_peer *peer)
{
	struct pinion_address address;
	struct pn_fi_name name = { 0 };
	struct pinion_peer *one;
	fi_addr_t addr;

	if (pinion_peer_address(peer, &address) ||
	    address.len > sizeof(name.data))
		return FI_ADDR_NOTAVAIL;
	name.len = (uint8_t)address.len;
	memcpy(name.data, address.data, address.len);
	addr = number_of(ep->av, &name);
	if (addr == FI_ADDR_NOTAVAIL || pn_fi_peer_find(ep, addr, &one) ||
	    one != peer)
		return FI_ADDR_NOTAVAIL;
	remember_source(ep, addr);
	return addr;
}

/* With several devices, one that sent first has the address of one device only:
 * compare what the names of the AV lead to. A service is not resolved for this.
 */
static fi_addr_t search_source(struct pn_fi_ep *ep,
			       const struct pinion_peer *peer)
{
	for (fi_addr_t i = 0; i < ep->av->n; i++) {
		bool used = i < ep->npeers && ep->peers[i];
		struct pinion_peer *one;

		if ((used || !pn_fi_is_service(&ep->av->names[i])) &&
		    !pn_fi_peer_at(ep, i, &one) && one == peer) {
			remember_source(ep, i);
			return i;
		}
	}
	return FI_ADDR_NOTAVAIL;
}

/* Only fi_cq_readfrom() comes here. */
fi_addr_t pn_fi_addr_of(struct pn_fi_ep *ep, const struct pinion_peer *peer)
{
	const struct pn_fi_source *source;
	fi_addr_t addr;

	if (!peer)
		return FI_ADDR_NOTAVAIL;
	if (pn_likely(ep->nsources)) {
		source = source_at(ep, peer);
		if (pn_likely(source->peer && is_present(ep->av, source->addr)))
			return source->addr;
	}
	addr = find_source(ep, peer);
	if (addr == FI_ADDR_NOTAVAIL && ep->several_devices)
		addr = search_source(ep, peer);
	return addr;
}
