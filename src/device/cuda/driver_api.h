/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * driver_api -- the part of the CUDA driver's interface that pinion uses,
 * declared by ourselves: types, values and prototypes of libcuda.so.1.
 *
 * Nothing here needs a CUDA toolkit: pinion builds everywhere and finds the
 * driver at run time (driver.h). Handles are pointers to the driver's own
 * incomplete structs, so a CUstream or a cudaStream_t of the program is a
 * pn_cu_stream without a cast. The names of values are CUDA's with PN_ before
 * them; tests/gpu/test_driver_api.cpp compares them with cuda.h where there is
 * one.
 *
 * PN_CUDA_FUNCTIONS lists the functions: F(field, symbol, parameters), those
 * without which nothing works first; PN_CUDA_OPTIONAL_FUNCTIONS those that an
 * older driver may lack.
 */
#ifndef PN_DEVICE_CUDA_DRIVER_API_H
#define PN_DEVICE_CUDA_DRIVER_API_H

#include <stddef.h>
#include <stdint.h>

typedef int pn_cu_result;
typedef int pn_cu_device;
typedef unsigned long long pn_cu_deviceptr;
typedef struct CUctx_st *pn_cu_context;
typedef struct CUstream_st *pn_cu_stream;
typedef struct CUevent_st *pn_cu_event;
typedef struct CUgraph_st *pn_cu_graph;
typedef struct CUarray_st *pn_cu_array;
typedef void (*pn_cu_host_fn)(void *arg);

/* Streams that need not be created. A NULL stream is the legacy one. */
#define PN_CU_STREAM_LEGACY	((pn_cu_stream)0x1)
#define PN_CU_STREAM_PER_THREAD ((pn_cu_stream)0x2)

enum pn_cu_error {
	PN_CUDA_SUCCESS = 0,
	PN_CUDA_ERROR_INVALID_VALUE = 1,
	PN_CUDA_ERROR_OUT_OF_MEMORY = 2,
	PN_CUDA_ERROR_NOT_INITIALIZED = 3,
	PN_CUDA_ERROR_DEINITIALIZED = 4,
	PN_CUDA_ERROR_NO_DEVICE = 100,
	PN_CUDA_ERROR_INVALID_DEVICE = 101,
	PN_CUDA_ERROR_INVALID_CONTEXT = 201,
	PN_CUDA_ERROR_INVALID_HANDLE = 400,
	PN_CUDA_ERROR_NOT_FOUND = 500,
	PN_CUDA_ERROR_NOT_READY = 600,
	PN_CUDA_ERROR_ILLEGAL_ADDRESS = 700,
	PN_CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
	PN_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712,
	PN_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713,
	PN_CUDA_ERROR_NOT_PERMITTED = 800,
	PN_CUDA_ERROR_NOT_SUPPORTED = 801,
	PN_CUDA_ERROR_SYSTEM_NOT_READY = 802,
	PN_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
	PN_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
	PN_CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
	PN_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
	PN_CUDA_ERROR_UNKNOWN = 999,
};

enum pn_cu_device_attribute {
	PN_CU_DEVICE_ATTRIBUTE_PCI_BUS_ID = 33,
	PN_CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID = 34,
	PN_CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT = 40,
	PN_CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING = 41,
	PN_CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID = 50,
	PN_CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS = 92,
	PN_CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED = 99,
	PN_CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED = 113,
	PN_CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID = 134,
};

enum pn_cu_pointer_attribute {
	PN_CU_POINTER_ATTRIBUTE_CONTEXT = 1,
	PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
	PN_CU_POINTER_ATTRIBUTE_DEVICE_POINTER = 3,
	PN_CU_POINTER_ATTRIBUTE_HOST_POINTER = 4,
	PN_CU_POINTER_ATTRIBUTE_IS_MANAGED = 8,
	PN_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
	PN_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR = 11,
	PN_CU_POINTER_ATTRIBUTE_RANGE_SIZE = 12,
	PN_CU_POINTER_ATTRIBUTE_MAPPED = 13,
};

enum pn_cu_memorytype {
	PN_CU_MEMORYTYPE_HOST = 1,
	PN_CU_MEMORYTYPE_DEVICE = 2,
	PN_CU_MEMORYTYPE_ARRAY = 3,
	PN_CU_MEMORYTYPE_UNIFIED = 4,
};

#define PN_CU_MEMHOSTREGISTER_PORTABLE	0x01u
#define PN_CU_MEMHOSTREGISTER_DEVICEMAP 0x02u
#define PN_CU_MEMHOSTREGISTER_IOMEMORY	0x04u
#define PN_CU_MEMHOSTREGISTER_READ_ONLY 0x08u
#define PN_CU_MEMHOSTALLOC_PORTABLE	0x01u
#define PN_CU_MEMHOSTALLOC_DEVICEMAP	0x02u

#define PN_CU_STREAM_DEFAULT	   0x0u
#define PN_CU_STREAM_NON_BLOCKING  0x1u
#define PN_CU_EVENT_DEFAULT	   0x0u
#define PN_CU_EVENT_BLOCKING_SYNC  0x1u
#define PN_CU_EVENT_DISABLE_TIMING 0x2u

/* Wait until (int32_t)(*addr - value) >= 0; until *addr == value. */
#define PN_CU_STREAM_WAIT_VALUE_GEQ 0x0u
#define PN_CU_STREAM_WAIT_VALUE_EQ  0x1u

enum pn_cu_capture_status {
	PN_CU_STREAM_CAPTURE_STATUS_NONE = 0,
	PN_CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,
	PN_CU_STREAM_CAPTURE_STATUS_INVALIDATED = 2,
};

enum pn_cu_capture_mode {
	PN_CU_STREAM_CAPTURE_MODE_GLOBAL = 0,
	PN_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
	PN_CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};

#define PN_CU_GET_PROC_ADDRESS_LEGACY_STREAM 0x1ull
#define PN_CU_GET_PROC_ADDRESS_PER_THREAD    0x2ull

enum pn_cu_proc_status {
	PN_CU_GET_PROC_ADDRESS_SUCCESS = 0,
	PN_CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND = 1,
	PN_CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT = 2,
};

/* CUDA_MEMCPY2D: which of host, device and array of an end is meant says its
 * memory type; with UNIFIED it is the device pointer. */
struct pn_cu_memcpy2d {
	size_t src_x_bytes, src_y;
	int src_type;
	const void *src_host;
	pn_cu_deviceptr src_device;
	pn_cu_array src_array;
	size_t src_pitch;
	size_t dst_x_bytes, dst_y;
	int dst_type;
	void *dst_host;
	pn_cu_deviceptr dst_device;
	pn_cu_array dst_array;
	size_t dst_pitch;
	size_t width_bytes, height;
};

/* clang-format off */
#define PN_CUDA_FUNCTIONS(F) \
	F(init, cuInit, (unsigned flags)) \
	F(driver_get_version, cuDriverGetVersion, (int *version)) \
	F(get_error_name, cuGetErrorName, \
	  (pn_cu_result error, const char **name)) \
	F(get_error_string, cuGetErrorString, \
	  (pn_cu_result error, const char **text)) \
	F(device_get_count, cuDeviceGetCount, (int *count)) \
	F(device_get, cuDeviceGet, (pn_cu_device *device, int ordinal)) \
	F(device_get_name, cuDeviceGetName, \
	  (char *name, int len, pn_cu_device device)) \
	F(device_get_attribute, cuDeviceGetAttribute, \
	  (int *value, int attribute, pn_cu_device device)) \
	F(device_get_pci_bus_id, cuDeviceGetPCIBusId, \
	  (char *text, int len, pn_cu_device device)) \
	F(device_total_mem, cuDeviceTotalMem_v2, \
	  (size_t *bytes, pn_cu_device device)) \
	F(primary_ctx_retain, cuDevicePrimaryCtxRetain, \
	  (pn_cu_context *context, pn_cu_device device)) \
	F(primary_ctx_release, cuDevicePrimaryCtxRelease_v2, \
	  (pn_cu_device device)) \
	F(primary_ctx_get_state, cuDevicePrimaryCtxGetState, \
	  (pn_cu_device device, unsigned *flags, int *active)) \
	F(ctx_get_current, cuCtxGetCurrent, (pn_cu_context *context)) \
	F(ctx_set_current, cuCtxSetCurrent, (pn_cu_context context)) \
	F(ctx_push_current, cuCtxPushCurrent_v2, (pn_cu_context context)) \
	F(ctx_pop_current, cuCtxPopCurrent_v2, (pn_cu_context *context)) \
	F(ctx_get_device, cuCtxGetDevice, (pn_cu_device *device)) \
	F(ctx_synchronize, cuCtxSynchronize, (void)) \
	F(mem_alloc, cuMemAlloc_v2, (pn_cu_deviceptr *at, size_t bytes)) \
	F(mem_free, cuMemFree_v2, (pn_cu_deviceptr at)) \
	F(mem_get_info, cuMemGetInfo_v2, (size_t *free, size_t *total)) \
	F(mem_get_address_range, cuMemGetAddressRange_v2, \
	  (pn_cu_deviceptr *base, size_t *bytes, pn_cu_deviceptr at)) \
	F(mem_host_alloc, cuMemHostAlloc, \
	  (void **at, size_t bytes, unsigned flags)) \
	F(mem_free_host, cuMemFreeHost, (void *at)) \
	F(mem_host_register, cuMemHostRegister_v2, \
	  (void *at, size_t bytes, unsigned flags)) \
	F(mem_host_unregister, cuMemHostUnregister, (void *at)) \
	F(mem_host_get_flags, cuMemHostGetFlags, (unsigned *flags, void *at)) \
	F(mem_host_get_device_pointer, cuMemHostGetDevicePointer_v2, \
	  (pn_cu_deviceptr *out, void *at, unsigned flags)) \
	F(pointer_get_attribute, cuPointerGetAttribute, \
	  (void *out, int attribute, pn_cu_deviceptr at)) \
	F(pointer_get_attributes, cuPointerGetAttributes, \
	  (unsigned n, int *attributes, void **out, pn_cu_deviceptr at)) \
	F(memcpy, cuMemcpy, \
	  (pn_cu_deviceptr dst, pn_cu_deviceptr src, size_t bytes)) \
	F(memcpy_async, cuMemcpyAsync, \
	  (pn_cu_deviceptr dst, pn_cu_deviceptr src, size_t bytes, \
	   pn_cu_stream stream)) \
	F(memcpy_htod, cuMemcpyHtoD_v2, \
	  (pn_cu_deviceptr dst, const void *src, size_t bytes)) \
	F(memcpy_dtoh, cuMemcpyDtoH_v2, \
	  (void *dst, pn_cu_deviceptr src, size_t bytes)) \
	F(memcpy_dtod, cuMemcpyDtoD_v2, \
	  (pn_cu_deviceptr dst, pn_cu_deviceptr src, size_t bytes)) \
	F(memcpy_htod_async, cuMemcpyHtoDAsync_v2, \
	  (pn_cu_deviceptr dst, const void *src, size_t bytes, \
	   pn_cu_stream stream)) \
	F(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2, \
	  (void *dst, pn_cu_deviceptr src, size_t bytes, \
	   pn_cu_stream stream)) \
	F(memcpy_dtod_async, cuMemcpyDtoDAsync_v2, \
	  (pn_cu_deviceptr dst, pn_cu_deviceptr src, size_t bytes, \
	   pn_cu_stream stream)) \
	F(memcpy_2d, cuMemcpy2D_v2, (const struct pn_cu_memcpy2d *copy)) \
	F(memcpy_2d_unaligned, cuMemcpy2DUnaligned_v2, \
	  (const struct pn_cu_memcpy2d *copy)) \
	F(memcpy_2d_async, cuMemcpy2DAsync_v2, \
	  (const struct pn_cu_memcpy2d *copy, pn_cu_stream stream)) \
	F(memset_d8_async, cuMemsetD8Async, \
	  (pn_cu_deviceptr dst, unsigned char value, size_t bytes, \
	   pn_cu_stream stream)) \
	F(stream_create, cuStreamCreate, \
	  (pn_cu_stream *stream, unsigned flags)) \
	F(stream_destroy, cuStreamDestroy_v2, (pn_cu_stream stream)) \
	F(stream_synchronize, cuStreamSynchronize, (pn_cu_stream stream)) \
	F(stream_query, cuStreamQuery, (pn_cu_stream stream)) \
	F(stream_wait_event, cuStreamWaitEvent, \
	  (pn_cu_stream stream, pn_cu_event event, unsigned flags)) \
	F(stream_get_ctx, cuStreamGetCtx, \
	  (pn_cu_stream stream, pn_cu_context *context)) \
	F(stream_is_capturing, cuStreamIsCapturing, \
	  (pn_cu_stream stream, int *status)) \
	F(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, \
	  (int *mode)) \
	F(launch_host_func, cuLaunchHostFunc, \
	  (pn_cu_stream stream, pn_cu_host_fn fn, void *arg)) \
	F(event_create, cuEventCreate, (pn_cu_event *event, unsigned flags)) \
	F(event_destroy, cuEventDestroy_v2, (pn_cu_event event)) \
	F(event_record, cuEventRecord, \
	  (pn_cu_event event, pn_cu_stream stream)) \
	F(event_query, cuEventQuery, (pn_cu_event event)) \
	F(event_synchronize, cuEventSynchronize, (pn_cu_event event))

#define PN_CUDA_OPTIONAL_FUNCTIONS(F) \
	F(stream_wait_value32, cuStreamWaitValue32_v2, \
	  (pn_cu_stream stream, pn_cu_deviceptr at, uint32_t value, \
	   unsigned flags)) \
	F(stream_write_value32, cuStreamWriteValue32_v2, \
	  (pn_cu_stream stream, pn_cu_deviceptr at, uint32_t value, \
	   unsigned flags)) \
	F(ctx_get_id, cuCtxGetId, (pn_cu_context context, \
	  unsigned long long *id)) \
	F(get_proc_address_v2, cuGetProcAddress_v2, \
	  (const char *symbol, void **out, int version, \
	   unsigned long long flags, int *status))
/* clang-format on */

#endif
