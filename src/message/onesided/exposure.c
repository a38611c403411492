/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory that this endpoint exposes, and keys of memory that peers expose. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "message/connection/wire.h"
#include "message/onesided/onesided_impl.h"

struct pinion_exposure {
	struct pinion_endpoint *ep;
	struct pn_list link; /* in the endpoint's exposures */
	struct pn_exposed_memory exposed;
};

int pn_endpoint_expose(struct pinion_endpoint *ep, void *addr, size_t len,
		       unsigned access, struct pinion_exposure **out)
{
	struct pinion_exposure *exposure = malloc(sizeof(*exposure));
	int ret;

	if (!exposure)
		return -ENOMEM;
	exposure->ep = ep;
	ret = pn_cache_expose(ep->cache, addr, len, access, &exposure->exposed);
	if (ret) {
		free(exposure);
		return ret;
	}
	pn_endpoint_lock(ep);
	pn_list_append(&ep->onesided.exposures, &exposure->link);
	pn_endpoint_unlock(ep);
	*out = exposure;
	return 0;
}

struct pinion_endpoint *pn_exposure_endpoint(
	const struct pinion_exposure *exposure)
{
	return exposure->ep;
}

void pn_exposure_key(const struct pinion_exposure *exposure,
		     struct pinion_exposure_key *out)
{
	const struct pn_exposed_memory *e = &exposure->exposed;
	struct pn_key_head head = { .nkeys = (uint8_t)e->nmrs,
				    .access = (uint8_t)e->parts[0].access,
				    .len = e->len };
	struct pn_wire_key keys[PN_EXPOSED_MAX_MRS];

	for (unsigned i = 0; i < e->nmrs; i++)
		keys[i] = (struct pn_wire_key){ (uintptr_t)e->parts[i].addr,
						e->parts[i].len, e->rkeys[i] };
	memset(out, 0, sizeof(*out));
	out->len = (uint32_t)pn_key_pack(&head, keys, out->data);
}

static void exposure_destroy(struct pinion_exposure *exposure)
{
	pn_cache_unexpose(exposure->ep->cache, &exposure->exposed);
	free(exposure);
}

void pn_endpoint_unexpose(struct pinion_exposure *exposure)
{
	struct pinion_endpoint *ep = exposure->ep;

	pn_endpoint_lock(ep);
	pn_list_remove(&exposure->link);
	pn_endpoint_unlock(ep);
	exposure_destroy(exposure);
}

void pn_exposures_close(struct pinion_endpoint *ep)
{
	struct pn_list *link;

	while ((link = pn_list_pop(&ep->onesided.exposures)))
		exposure_destroy(
			pn_container_of(link, struct pinion_exposure, link));
	while ((link = pn_list_pop(&ep->onesided.remotes)))
		free(pn_container_of(link, struct pinion_remote, link));
}

/* --- memory of peers -------------------------------------------------------
 */

int pn_endpoint_remote(struct pinion_endpoint *ep, struct pinion_peer *peer,
		       const struct pinion_exposure_key *key,
		       struct pinion_remote **out)
{
	struct pn_wire_key keys[PN_KEY_MAX];
	struct pinion_remote *remote;
	struct pn_key_head head;
	int ret = key->len > sizeof(key->data)
			  ? -EINVAL
			  : pn_key_parse(key->data, key->len, &head, keys);

	if (ret == -EPROTONOSUPPORT)
		pn_error("a key of exposed memory is of another version than "
			 "%d: use one version of pinion everywhere",
			 PN_KEY_VERSION);
	if (ret)
		return ret;
	remote = malloc(sizeof(*remote) + head.nkeys * sizeof(keys[0]));
	if (!remote)
		return -ENOMEM;
	*remote = (struct pinion_remote){ .peer = peer,
					  .refs = 1,
					  .access = head.access,
					  .len = head.len,
					  .nkeys = head.nkeys };
	memcpy(remote->keys, keys, head.nkeys * sizeof(keys[0]));
	pn_endpoint_lock(ep);
	pn_list_append(&ep->onesided.remotes, &remote->link);
	pn_endpoint_unlock(ep);
	*out = remote;
	return 0;
}

void pn_remote_get(struct pinion_remote *remote)
{
	remote->refs++;
}

void pn_remote_put(struct pinion_remote *remote)
{
	if (--remote->refs)
		return;
	pn_list_remove(&remote->link);
	free(remote);
}

void pn_endpoint_remote_close(struct pinion_remote *remote)
{
	struct pinion_endpoint *ep = remote->peer->ep;

	pn_endpoint_lock(ep);
	pn_remote_put(remote);
	pn_endpoint_unlock(ep);
}
