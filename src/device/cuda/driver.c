/* SPDX-License-Identifier: BSD-2-Clause */
#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "base/compiler.h"

#define LIBRARY "libcuda.so.1"

static struct {
	struct pn_cuda_driver driver;
	pthread_once_t load_once, init_once;
	bool loaded, ready;
	pid_t owner; /* who initialised the driver */
	char load_reason[256], init_reason[256];
} the = {
	.load_once = PTHREAD_ONCE_INIT,
	.init_once = PTHREAD_ONCE_INIT,
};

/* --- loading -------------------------------------------------------------- */

struct symbol {
	const char *name;
	size_t offset; /* of its pointer in struct pn_cuda_driver */
	bool optional;
};

#define REQUIRED(field, symbol, params) \
	{ #symbol, offsetof(struct pn_cuda_driver, field), false },
#define OPTIONAL(field, symbol, params) \
	{ #symbol, offsetof(struct pn_cuda_driver, field), true },

static const struct symbol symbols[] = { PN_CUDA_FUNCTIONS(
	REQUIRED) PN_CUDA_OPTIONAL_FUNCTIONS(OPTIONAL) };

static bool find_symbols(void)
{
	for (size_t i = 0; i < PN_ARRAY_LEN(symbols); i++) {
		void *at = dlsym(the.driver.library, symbols[i].name);

		if (!at && !symbols[i].optional) {
			snprintf(the.load_reason, sizeof(the.load_reason),
				 "%s has no %s: it is too old for pinion",
				 LIBRARY, symbols[i].name);
			return false;
		}
		*(void **)((char *)&the.driver + symbols[i].offset) = at;
	}
	return true;
}

static void load(void)
{
	const char *why;

	the.driver.library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (the.driver.library) {
		the.loaded = find_symbols();
		return;
	}
	why = dlerror();
	snprintf(the.load_reason, sizeof(the.load_reason),
		 "no NVIDIA driver: %s",
		 why ? why : LIBRARY " cannot be opened");
}

int pn_cuda_driver_load(const struct pn_cuda_driver **out, const char **reason)
{
	pthread_once(&the.load_once, load);
	if (!the.loaded) {
		if (reason)
			*reason = the.load_reason;
		return -ENODEV;
	}
	*out = &the.driver;
	return 0;
}

/* --- initialising --------------------------------------------------------- */

const char *pn_cuda_error_name(const struct pn_cuda_driver *driver,
			       pn_cu_result result)
{
	const char *name = NULL;

	if (driver->get_error_name(result, &name) || !name)
		return "an error that the driver does not name";
	return name;
}

static void explain_init(const char *call, pn_cu_result result)
{
	snprintf(the.init_reason, sizeof(the.init_reason),
		 result == PN_CUDA_ERROR_NO_DEVICE
			 ? "no GPU here: %s returned %d (%s)"
			 : "the NVIDIA driver does not start: %s returned %d "
			   "(%s); see nvidia-smi",
		 call, result, pn_cuda_error_name(&the.driver, result));
}

static void init(void)
{
	pn_cu_result result = the.driver.init(0);

	the.owner = getpid();
	if (result) {
		explain_init("cuInit()", result);
		return;
	}
	result = the.driver.device_get_count(&the.driver.ndevices);
	if (!result && !the.driver.ndevices)
		result = PN_CUDA_ERROR_NO_DEVICE;
	if (result) {
		explain_init("cuDeviceGetCount()", result);
		return;
	}
	if (the.driver.driver_get_version(&the.driver.version))
		the.driver.version = 0;
	the.ready = true;
}

int pn_cuda_driver_init(const struct pn_cuda_driver **out, const char **reason)
{
	int ret = pn_cuda_driver_load(out, reason);

	if (ret)
		return ret;
	pthread_once(&the.init_once, init);
	if (the.ready && the.owner == getpid())
		return 0;
	if (reason)
		*reason = the.ready ? "CUDA does not work in a child of the "
				      "process that used it: call exec() first"
				    : the.init_reason;
	return -ENODEV;
}

/* --- errors --------------------------------------------------------------- */

int pn_cuda_errno(pn_cu_result result)
{
	switch (result) {
	case PN_CUDA_SUCCESS:
		return 0;
	case PN_CUDA_ERROR_OUT_OF_MEMORY:
		return -ENOMEM;
	case PN_CUDA_ERROR_INVALID_VALUE:
	case PN_CUDA_ERROR_INVALID_HANDLE:
	case PN_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
		return -EINVAL;
	case PN_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
		return -EEXIST;
	case PN_CUDA_ERROR_NOT_READY:
		return -EAGAIN;
	case PN_CUDA_ERROR_NOT_INITIALIZED:
	case PN_CUDA_ERROR_DEINITIALIZED:
	case PN_CUDA_ERROR_NO_DEVICE:
	case PN_CUDA_ERROR_INVALID_DEVICE:
	case PN_CUDA_ERROR_INVALID_CONTEXT:
	case PN_CUDA_ERROR_CONTEXT_IS_DESTROYED:
		return -ENODEV;
	case PN_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
	case PN_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
	case PN_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
		return -EBUSY;
	case PN_CUDA_ERROR_NOT_SUPPORTED:
	case PN_CUDA_ERROR_NOT_PERMITTED:
		return -EOPNOTSUPP;
	default:
		return -EIO;
	}
}
