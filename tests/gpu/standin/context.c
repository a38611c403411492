/* SPDX-License-Identifier: BSD-2-Clause */
/* context -- initialising, devices, contexts and errors. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "standin_impl.h"

#define MAGIC	  0x43747831u
#define MAX_DEPTH 32

static struct CUctx_st primaries[MAX_DEVICES]; /* standin_lock */
static uint64_t next_id = 1;
static pn_cu_context contexts; /* standin_lock: all that ever were */
static __thread pn_cu_context stack[MAX_DEPTH];
static __thread unsigned depth;
__thread pn_cu_result entered_context_;

/* --- initialising, devices ------------------------------------------------ */

STANDIN_API pn_cu_result cuInit(unsigned flags)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	uint64_t n = standin_option(OPT_DEVICES);
	pn_cu_result result = 0;
	int ret = 0;

	if (flags)
		return PN_CUDA_ERROR_INVALID_VALUE;
	if (!n || n > MAX_DEVICES)
		return PN_CUDA_ERROR_NO_DEVICE;
	pthread_mutex_lock(&once);
	if (!standin_inited()) {
		ret = memory_init();
		if (ret)
			fprintf(stderr, "standin: no io_uring here: %s\n",
				strerror(-ret));
		else
			standin_set_inited();
	}
	pthread_mutex_unlock(&once);
	if (ret)
		return PN_CUDA_ERROR_SYSTEM_NOT_READY;
	{
		static struct standin_call call = { .name = "cuInit" };

		result = standin_enter(&call);
	}
	return result;
}

STANDIN_API pn_cu_result cuDriverGetVersion(int *version)
{
	*version = 13000;
	return 0;
}

STANDIN_API pn_cu_result cuDeviceGetCount(int *count)
{
	ENTER(cuDeviceGetCount);
	*count = (int)standin_option(OPT_DEVICES);
	return 0;
}

static bool device_ok(pn_cu_device device)
{
	return device >= 0 && (uint64_t)device < standin_option(OPT_DEVICES);
}

STANDIN_API pn_cu_result cuDeviceGet(pn_cu_device *device, int ordinal)
{
	ENTER(cuDeviceGet);
	if (!device_ok(ordinal))
		return PN_CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return 0;
}

STANDIN_API pn_cu_result cuDeviceGetName(char *name, int len,
					 pn_cu_device device)
{
	ENTER(cuDeviceGetName);
	if (!device_ok(device))
		return PN_CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, (size_t)len, "stand-in %d", device);
	return 0;
}

STANDIN_API pn_cu_result cuDeviceGetPCIBusId(char *text, int len,
					     pn_cu_device device)
{
	ENTER(cuDeviceGetPCIBusId);
	if (!device_ok(device))
		return PN_CUDA_ERROR_INVALID_DEVICE;
	snprintf(text, (size_t)len, "ffff:%02x:00.0", device);
	return 0;
}

STANDIN_API pn_cu_result cuDeviceTotalMem_v2(size_t *bytes, pn_cu_device device)
{
	ENTER(cuDeviceTotalMem_v2);
	if (!device_ok(device))
		return PN_CUDA_ERROR_INVALID_DEVICE;
	*bytes = (size_t)standin_option(OPT_MEMORY_MIB) << 20;
	return 0;
}

STANDIN_API pn_cu_result cuDeviceGetAttribute(int *value, int attribute,
					      pn_cu_device device)
{
	ENTER(cuDeviceGetAttribute);
	if (!device_ok(device))
		return PN_CUDA_ERROR_INVALID_DEVICE;
	switch (attribute) {
	case PN_CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
		*value = 2;
		break;
	case PN_CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
	case PN_CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
		*value = 1;
		break;
	case PN_CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS:
		*value = (int)standin_option(OPT_MEMOPS);
		break;
	case PN_CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
		*value = (int)standin_option(OPT_NUMA_NODE);
		break;
	case PN_CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
		*value = 0xffff;
		break;
	case PN_CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
		*value = device;
		break;
	default:
		*value = 0;
	}
	return 0;
}

/* --- contexts ------------------------------------------------------------- */

pn_cu_context standin_current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

pn_cu_result standin_check_context(void)
{
	pn_cu_context context = standin_current();
	bool alive;

	if (!context)
		return PN_CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&standin_lock);
	alive = context->alive;
	pthread_mutex_unlock(&standin_lock);
	return alive ? 0 : PN_CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

pn_cu_context standin_contexts(void)
{
	return contexts;
}

static void revive_locked(pn_cu_context context, int device)
{
	if (context->magic != MAGIC) {
		context->next = contexts;
		contexts = context;
	}
	context->magic = MAGIC;
	context->device = device;
	context->alive = true;
	context->id = next_id++;
}

STANDIN_API pn_cu_result cuDevicePrimaryCtxRetain(pn_cu_context *out,
						  pn_cu_device device)
{
	ENTER(cuDevicePrimaryCtxRetain);
	if (!device_ok(device))
		return PN_CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&standin_lock);
	if (!primaries[device].alive)
		revive_locked(&primaries[device], device);
	primaries[device].retained++;
	pthread_mutex_unlock(&standin_lock);
	*out = &primaries[device];
	return 0;
}

static void destroy(pn_cu_context context)
{
	stream_wait_idle(context);
	pthread_mutex_lock(&standin_lock);
	context->alive = false;
	stream_drop_context(context);
	memory_drop_context(context);
	pthread_mutex_unlock(&standin_lock);
}

STANDIN_API pn_cu_result cuDevicePrimaryCtxRelease_v2(pn_cu_device device)
{
	bool last;

	ENTER(cuDevicePrimaryCtxRelease_v2);
	if (!device_ok(device))
		return PN_CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&standin_lock);
	last = primaries[device].retained == 1 && primaries[device].alive;
	if (primaries[device].retained)
		primaries[device].retained--;
	pthread_mutex_unlock(&standin_lock);
	if (last)
		destroy(&primaries[device]);
	return 0;
}

/* What cudaDeviceReset() does: everything of the context is gone, whoever
 * retains it. */
STANDIN_API pn_cu_result cuDevicePrimaryCtxReset_v2(pn_cu_device device)
{
	ENTER(cuDevicePrimaryCtxReset_v2);
	if (!device_ok(device))
		return PN_CUDA_ERROR_INVALID_DEVICE;
	destroy(&primaries[device]);
	return 0;
}

STANDIN_API pn_cu_result cuDevicePrimaryCtxGetState(pn_cu_device device,
						    unsigned *flags,
						    int *active)
{
	ENTER(cuDevicePrimaryCtxGetState);
	if (!device_ok(device))
		return PN_CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&standin_lock);
	*active = primaries[device].alive;
	pthread_mutex_unlock(&standin_lock);
	*flags = 0;
	return 0;
}

/* A context that is no primary one. It becomes the current one. */
STANDIN_API pn_cu_result cuCtxCreate_v2(pn_cu_context *out, unsigned flags,
					pn_cu_device device)
{
	pn_cu_context context;

	ENTER(cuCtxCreate_v2);
	(void)flags;
	if (!device_ok(device))
		return PN_CUDA_ERROR_INVALID_DEVICE;
	if (depth == MAX_DEPTH)
		return PN_CUDA_ERROR_OUT_OF_MEMORY;
	context = calloc(1, sizeof(*context)); /* kept: handles stay known */
	pthread_mutex_lock(&standin_lock);
	revive_locked(context, device);
	pthread_mutex_unlock(&standin_lock);
	stack[depth++] = context;
	*out = context;
	return 0;
}

STANDIN_API pn_cu_result cuCtxDestroy_v2(pn_cu_context context)
{
	ENTER(cuCtxDestroy_v2);
	if (!context || context->magic != MAGIC)
		return PN_CUDA_ERROR_INVALID_CONTEXT;
	destroy(context);
	if (standin_current() == context)
		depth--;
	return 0;
}

STANDIN_API pn_cu_result cuCtxGetCurrent(pn_cu_context *out)
{
	ENTER(cuCtxGetCurrent);
	*out = standin_current();
	return 0;
}

STANDIN_API pn_cu_result cuCtxSetCurrent(pn_cu_context context)
{
	ENTER(cuCtxSetCurrent);
	if (context && context->magic != MAGIC)
		return PN_CUDA_ERROR_INVALID_CONTEXT;
	if (depth)
		depth--;
	if (context)
		stack[depth++] = context;
	return 0;
}

STANDIN_API pn_cu_result cuCtxPushCurrent_v2(pn_cu_context context)
{
	ENTER(cuCtxPushCurrent_v2);
	if (!context || context->magic != MAGIC || depth == MAX_DEPTH)
		return PN_CUDA_ERROR_INVALID_CONTEXT;
	stack[depth++] = context;
	return 0;
}

STANDIN_API pn_cu_result cuCtxPopCurrent_v2(pn_cu_context *out)
{
	ENTER(cuCtxPopCurrent_v2);
	if (!depth)
		return PN_CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (out)
		*out = stack[depth];
	return 0;
}

STANDIN_API pn_cu_result cuCtxGetDevice(pn_cu_device *device)
{
	ENTER_CONTEXT(cuCtxGetDevice);
	*device = standin_current()->device;
	return 0;
}

STANDIN_API pn_cu_result cuCtxGetId(pn_cu_context context,
				    unsigned long long *id)
{
	ENTER(cuCtxGetId);
	if (!context)
		context = standin_current();
	if (!context || context->magic != MAGIC || !context->alive)
		return PN_CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*id = context->id;
	return 0;
}

STANDIN_API pn_cu_result cuCtxSynchronize(void)
{
	pn_cu_result result;

	ENTER_CONTEXT(cuCtxSynchronize);
	result = stream_check_unsafe();
	if (!result)
		stream_wait_idle(standin_current());
	return result;
}

/* --- errors --------------------------------------------------------------- */

#define NAMES(E)                                \
	E(SUCCESS)                              \
	E(ERROR_INVALID_VALUE)                  \
	E(ERROR_OUT_OF_MEMORY)                  \
	E(ERROR_NOT_INITIALIZED)                \
	E(ERROR_DEINITIALIZED)                  \
	E(ERROR_NO_DEVICE)                      \
	E(ERROR_INVALID_DEVICE)                 \
	E(ERROR_INVALID_CONTEXT)                \
	E(ERROR_INVALID_HANDLE)                 \
	E(ERROR_NOT_FOUND)                      \
	E(ERROR_NOT_READY)                      \
	E(ERROR_ILLEGAL_ADDRESS)                \
	E(ERROR_CONTEXT_IS_DESTROYED)           \
	E(ERROR_HOST_MEMORY_ALREADY_REGISTERED) \
	E(ERROR_HOST_MEMORY_NOT_REGISTERED)     \
	E(ERROR_NOT_PERMITTED)                  \
	E(ERROR_NOT_SUPPORTED)                  \
	E(ERROR_SYSTEM_NOT_READY)               \
	E(ERROR_STREAM_CAPTURE_UNSUPPORTED)     \
	E(ERROR_STREAM_CAPTURE_INVALIDATED)     \
	E(ERROR_STREAM_CAPTURE_UNMATCHED)       \
	E(ERROR_STREAM_CAPTURE_IMPLICIT)        \
	E(ERROR_UNKNOWN)
#define NAME_CASE(name)               \
	case PN_CUDA_##name:          \
		*out = "CUDA_" #name; \
		return 0;

STANDIN_API pn_cu_result cuGetErrorName(pn_cu_result error, const char **out)
{
	switch (error) {
		NAMES(NAME_CASE)
	default:
		*out = NULL;
		return PN_CUDA_ERROR_INVALID_VALUE;
	}
}

STANDIN_API pn_cu_result cuGetErrorString(pn_cu_result error, const char **out)
{
	return cuGetErrorName(error, out);
}
