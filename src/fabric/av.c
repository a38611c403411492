/* SPDX-License-Identifier: BSD-2-Clause */
/* The AV: names by number. The number of a removed name is not given out again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric/fabric.h"
#include "fabric/open_mpi.h"

static struct pn_fi_av *av_of(struct fid_av *fid)
{
	return pn_container_of(fid, struct pn_fi_av, fid);
}

static int grow(struct pn_fi_av *av, size_t n)
{
	size_t capacity = av->capacity ? av->capacity : 16;
	struct pn_fi_name *names;

	if (n > SIZE_MAX / 2 / sizeof(*names))
		return -FI_ENOMEM;
	while (capacity < n)
		capacity *= 2;
	if (capacity == av->capacity)
		return 0;
	names = realloc(av->names, capacity * sizeof(*names));
	if (!names)
		return -FI_ENOMEM;
	av->names = names;
	av->capacity = capacity;
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
	if (!ret)
		av->names[av->n] = name;
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
		if (is_present(av, fi_addr[i]))
			av->names[fi_addr[i]].len = 0;
		else
			ret = -FI_EINVAL;
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

static int close_av(struct fid *fid)
{
	struct pn_fi_av *av = pn_container_of(fid, struct pn_fi_av, fid.fid);

	if (av->refs)
		return -FI_EBUSY;
	atomic_fetch_sub(&av->domain->refs, 1);
	free(av->names);
	free(av);
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
		free(av);
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
	return pinion_peer_add(ep->endpoint, &address, &ep->peers[addr]);
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

static bool was_used(const struct pn_fi_ep *ep, fi_addr_t addr)
{
	return addr < ep->npeers && ep->peers[addr];
}

/* A source that this endpoint has not used yet has no peer so far: it is added.
 * A service is not resolved for this. Only fi_cq_readfrom() comes here. */
fi_addr_t pn_fi_addr_of(struct pn_fi_ep *ep, const struct pinion_peer *peer)
{
	for (fi_addr_t i = 0; peer && i < ep->av->n; i++) {
		struct pinion_peer *one;

		if (!was_used(ep, i) && pn_fi_is_service(&ep->av->names[i]))
			continue;
		if (!pn_fi_peer_at(ep, i, &one) && one == peer)
			return i;
	}
	return FI_ADDR_NOTAVAIL;
}
