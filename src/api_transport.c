/* SPDX-License-Identifier: BSD-2-Clause */
/* The public calls of pinion/verbs.h and pinion/fabric.h: contexts over a
 * protection domain or a libfabric domain of the program. */
#include <pinion/fabric.h>
#include <pinion/pinion.h>
#include <pinion/verbs.h>

#include <errno.h>
#include <stdlib.h>

#include "base/sized.h"
#include "context.h"
#include "device/registrar/fabric.h"
#include "device/registrar/verbs.h"

/* Opens a context over a registrar and takes ownership of its arg. */
static int open_over(struct pinion_registrar *registrar,
		     struct pinion_attr *attr, struct pinion_context **out)
{
	struct pinion_context *context;
	int ret;

	attr->size = sizeof(*attr);
	attr->registrar = registrar;
	ret = pinion_open(attr, &context);
	if (ret) {
		free(registrar->arg);
		return ret;
	}
	context->transport = registrar->arg;
	*out = context;
	return 0;
}

/* Copies the attributes of the context. They must have no registrar of their
 * own. */
static int copy_attr(struct pinion_attr *own, const struct pinion_attr *attr)
{
	int ret = 0;

	*own = (struct pinion_attr){ 0 };
	if (attr)
		ret = pn_sized_copy(own, sizeof(*own), attr);
	return ret ? ret : own->registrar ? -EINVAL : 0;
}

int pinion_verbs_open(struct ibv_pd *pd, const struct pinion_attr *attr,
		      struct pinion_context **out)
{
	struct pinion_registrar registrar;
	struct pinion_attr own;
	int ret = pd && out ? copy_attr(&own, attr) : -EINVAL;

	if (!ret)
		ret = pn_registrar_verbs(pd, &registrar);
	return ret ? ret : open_over(&registrar, &own, out);
}

int pinion_fabric_open(const struct pinion_fabric_attr *fabric,
		       const struct pinion_attr *attr,
		       struct pinion_context **out)
{
	struct pinion_fabric_attr domain = { 0 };
	struct pinion_registrar registrar;
	struct pinion_attr own;
	int ret = fabric && out ? copy_attr(&own, attr) : -EINVAL;

	if (!ret)
		ret = pn_sized_copy(&domain, sizeof(domain), fabric);
	if (!ret)
		ret = pn_registrar_fabric(&domain, &registrar);
	return ret ? ret : open_over(&registrar, &own, out);
}

uint64_t pinion_fabric_addr(const struct pinion_pin *pin)
{
	return pin && pin->handle ? pn_registrar_fabric_addr(pin) : 0;
}
