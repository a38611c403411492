/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The CUDA context of a device, and what happens when it is destroyed.
 *
 * A context has an id (cuCtxGetId()), which the next one at the same address
 * does not have. Every entry compares it. When it differs, all that was
 * registered and created in the context is gone; a primary context is retained
 * again, any other is not ours to make.
 */
#include <errno.h>

#include "base/log.h"
#include "device/cuda/cuda_impl.h"

/* 0: the context does not exist any more. Drivers before CUDA 12 have no ids:
 * there a context is taken for the same while its address is. */
static unsigned long long id_of(const struct pn_cuda_device *dev,
				pn_cu_context context)
{
	unsigned long long id = 0;

	if (!dev->cu->ctx_get_id)
		return (uintptr_t)context;
	return dev->cu->ctx_get_id(context, &id) ? 0 : id;
}

static int retain_primary(struct pn_cuda_device *dev)
{
	pn_cu_result result =
		dev->cu->primary_ctx_retain(&dev->context, dev->ordinal);

	if (result) {
		pn_error("cuda:%d: no CUDA context: %s", dev->ordinal,
			 pn_cuda_error_name(dev->cu, result));
		return result == PN_CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM
							     : -ENODEV;
	}
	dev->is_primary = true;
	return 0;
}

/* The current context, if it is of the GPU that is wanted (negative: of any).
 */
static bool take_current(struct pn_cuda_device *dev, int wanted)
{
	pn_cu_context current = NULL;
	pn_cu_device gpu;

	if (dev->cu->ctx_get_current(&current) || !current ||
	    dev->cu->ctx_get_device(&gpu) || (wanted >= 0 && gpu != wanted))
		return false;
	dev->context = current;
	dev->ordinal = gpu;
	return true;
}

int pn_cuda_context_open(struct pn_cuda_device *dev, int wanted)
{
	int ret = 0;

	if (wanted >= dev->cu->ndevices) {
		pn_error("cuda:%d: there %s %d GPU%s, numbered from 0", wanted,
			 dev->cu->ndevices == 1 ? "is" : "are",
			 dev->cu->ndevices, dev->cu->ndevices == 1 ? "" : "s");
		return -ENODEV;
	}
	dev->ordinal = wanted < 0 ? 0 : wanted;
	if (!take_current(dev, wanted))
		ret = retain_primary(dev);
	if (!ret)
		dev->context_id = id_of(dev, dev->context);
	return ret;
}

void pn_cuda_context_close(struct pn_cuda_device *dev)
{
	if (dev->is_primary)
		dev->cu->primary_ctx_release(dev->ordinal);
}

static void log_lost(struct pn_cuda_device *dev)
{
	if (!atomic_exchange(&dev->was_logged, true))
		pn_warn("cuda:%d: the CUDA context was destroyed "
			"(cudaDeviceReset()?); %s",
			dev->ordinal,
			dev->is_primary ? "what was registered in it is gone"
					: "open another pinion context");
}

/* The context with the old id is gone. 0: there is another. */
static int revive(struct pn_cuda_device *dev)
{
	unsigned long long id;
	int ret = -ENODEV;

	pn_lock(&dev->revive_lock);
	id = id_of(dev, dev->context);
	if (id && id == dev->context_id) {
		ret = 0; /* another thread was first */
	} else {
		log_lost(dev);
		pn_cuda_blocks_lost(&dev->blocks);
		if (dev->is_primary)
			ret = retain_primary(dev);
		if (!ret)
			dev->context_id = id_of(dev, dev->context);
	}
	pn_unlock(&dev->revive_lock);
	return ret;
}

int pn_cuda_enter(struct pn_device *device, struct pn_cuda_scope *scope)
{
	struct pn_cuda_device *dev = pn_cuda_of(device);
	pn_cu_context current = NULL;

	if (pn_unlikely(id_of(dev, dev->context) !=
			atomic_load(&dev->context_id)) &&
	    revive(dev))
		return -ENODEV;
	dev->cu->ctx_get_current(&current);
	scope->pushed = current != dev->context;
	if (scope->pushed && dev->cu->ctx_push_current(dev->context))
		return -ENODEV;
	scope->capture_mode = PN_CU_STREAM_CAPTURE_MODE_RELAXED;
	dev->cu->exchange_capture_mode(&scope->capture_mode);
	return 0;
}

void pn_cuda_leave(struct pn_device *device, const struct pn_cuda_scope *scope)
{
	struct pn_cuda_device *dev = pn_cuda_of(device);
	int mode = scope->capture_mode;

	dev->cu->exchange_capture_mode(&mode);
	if (scope->pushed)
		dev->cu->ctx_pop_current(NULL);
}
