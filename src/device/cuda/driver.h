/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * driver -- the functions of libcuda.so.1, found at run time.
 *
 * The driver's library is opened once in a process and stays open. Symbols come
 * from its handle, not from the global scope: a preloaded library that defines
 * the same names is not called. Only the driver's interface is used, never the
 * runtime's: cudaGetLastError() of the program is untouched.
 *
 * pn_cuda_driver_load() makes no CUDA call. pn_cuda_driver_init() initialises
 * the driver, once; where that fails, `reason` says why in words for a user.
 *
 * Errors: pn_cuda_errno() turns a result of the driver into a negative errno.
 * Threads: any.
 * Caveat: the driver does not survive fork(): in a child both calls return
 * -ENODEV if the parent had initialised the driver.
 */
#ifndef PN_DEVICE_CUDA_DRIVER_H
#define PN_DEVICE_CUDA_DRIVER_H

#include "device/cuda/driver_api.h"

/* NOLINTNEXTLINE(bugprone-macro-parentheses): a declarator */
#define PN_CUDA_FIELD(field, symbol, params) pn_cu_result(*field) params;

struct pn_cuda_driver {
	void *library; /* of dlopen() */
	int ndevices;  /* 0 before pn_cuda_driver_init() */
	int version;   /* 13000: CUDA 13.0 */
	PN_CUDA_FUNCTIONS(PN_CUDA_FIELD)
	/* NULL where the driver lacks it. */
	PN_CUDA_OPTIONAL_FUNCTIONS(PN_CUDA_FIELD)
};

#undef PN_CUDA_FIELD

/* The functions, without a CUDA call. -ENODEV: no driver is installed, or it
 * lacks a function; *reason, which may be NULL, then says which. */
int pn_cuda_driver_load(const struct pn_cuda_driver **out, const char **reason);

/* The functions of an initialised driver that has a device. -ENODEV: as above,
 * or there is no GPU, or the driver refuses to start. */
int pn_cuda_driver_init(const struct pn_cuda_driver **out, const char **reason);

/* CUDA's name of a result: "CUDA_ERROR_OUT_OF_MEMORY". */
const char *pn_cuda_error_name(const struct pn_cuda_driver *driver,
			       pn_cu_result result);

/* 0 for success, else a negative errno: -ENOMEM, -EINVAL, -EEXIST (already
 * registered), -EAGAIN (not ready), -ENODEV (the context or the driver is
 * gone), -EBUSY (a stream is being captured), -EOPNOTSUPP; -EIO for others. */
int pn_cuda_errno(pn_cu_result result);

#endif
