/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The CUDA context of a device, and what happens when it is destroyed.
 *
 * A context has an id (cuCtxGetId()), which the next one at the same address
 * does not have. Every entry compares it. When it differs, all that was
 * registered and created in the context is gone. A primary context that was
 * retained by us is retained again; one that was current when the device was
 * opened is used again if the program has made it again, at its old address.
 */
#include <errno.h>

#include "base/log.h"
#include "device/cuda/cuda_impl.h"

/* Results that say that the context does not exist. Any other error says
 * nothing about it. */
static bool is_loss(pn_cu_result result)
{
	return result == PN_CUDA_ERROR_CONTEXT_IS_DESTROYED ||
	       result == PN_CUDA_ERROR_INVALID_CONTEXT ||
	       result == PN_CUDA_ERROR_INVALID_VALUE ||
	       result == PN_CUDA_ERROR_DEINITIALIZED ||
	       result == PN_CUDA_ERROR_NOT_INITIALIZED;
}

/* 0: the context does not exist any more. Drivers before CUDA 12 have no ids:
 * there a context is taken for the same while its address is. */
static unsigned long long id_of(const struct pn_cuda_device *dev,
				pn_cu_context context)
{
	unsigned long long id = 0;
	pn_cu_result result;

	if (!dev->cu->ctx_get_id)
		return (uintptr_t)context;
	result = dev->cu->ctx_get_id(context, &id);
	if (pn_unlikely(result))
		return is_loss(result) ? 0 : atomic_load(&dev->context_id);
	return id;
}

unsigned long long pn_cuda_context_id(struct pn_device *device)
{
	const struct pn_cuda_device *dev = pn_cuda_of(device);

	return id_of(dev, dev->context);
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

void pn_cuda_context_close(struct pn_cuda_device *dev)
{
	if (dev->is_primary)
		dev->cu->primary_ctx_release(dev->ordinal);
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
	if (ret)
		return ret;
	dev->context_id = id_of(dev, dev->context);
	if (dev->context_id)
		return 0;
	pn_error("cuda:%d: the CUDA context has no id", dev->ordinal);
	pn_cuda_context_close(dev);
	return -ENODEV;
}

static void log_lost(struct pn_cuda_device *dev, bool comes_again)
{
	if (!atomic_exchange(&dev->was_logged, true))
		pn_warn("cuda:%d: the CUDA context was destroyed "
			"(cudaDeviceReset()?); %s",
			dev->ordinal,
			comes_again ? "what was registered in it is gone"
				    : "open another pinion context");
}

/* Whether the context, which exists, is of the same GPU as before. */
static bool is_of_this_gpu(const struct pn_cuda_device *dev)
{
	pn_cu_device gpu;
	bool same;

	if (dev->cu->ctx_push_current(dev->context))
		return false;
	same = !dev->cu->ctx_get_device(&gpu) && gpu == dev->ordinal;
	dev->cu->ctx_pop_current(NULL);
	return same;
}

/* The context with the old id is gone. 0: there is another. */
static int revive(struct pn_cuda_device *dev)
{
	unsigned long long id;
	bool comes_again;
	int ret = -ENODEV;

	pn_lock(&dev->revive_lock);
	id = id_of(dev, dev->context);
	if (id && id == dev->context_id) {
		ret = 0; /* another thread was first */
	} else {
		comes_again = dev->is_primary || (id && is_of_this_gpu(dev));
		log_lost(dev, comes_again);
		pn_cuda_blocks_lost(&dev->blocks);
		if (dev->is_primary)
			ret = retain_primary(dev);
		else if (comes_again)
			ret = 0;
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
