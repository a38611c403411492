/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * calls -- the functions of the driver that libpinion-cuda.so takes.
 *
 * C(symbol, parameters), under the names that libcuda.so.1 exports. _ptds and
 * _ptsz are the forms for programs compiled for per-thread default streams:
 * there the stream 0 is that of the thread. Forms that only programs for CUDA
 * before 3.2 call (device pointers of 32 bits) are left alone.
 */
#ifndef PN_PRELOAD_CUDA_CALLS_H
#define PN_PRELOAD_CUDA_CALLS_H

#include "device/cuda/driver_api.h"

typedef struct CUgraphNode_st *pn_cu_graph_node;
typedef struct CUgraphExec_st *pn_cu_graph_exec;

/* CUDA_MEMCPY3D and, with the contexts instead of the reserved fields,
 * CUDA_MEMCPY3D_PEER. */
struct pn_cu_memcpy3d_end {
	size_t x_bytes, y, z, lod;
	int type;
	const void *host;
	pn_cu_deviceptr device;
	pn_cu_array array;
	void *context;
	size_t pitch, height;
};

struct pn_cu_memcpy3d {
	struct pn_cu_memcpy3d_end src, dst;
	size_t width_bytes, height, depth;
};

/* Of CUgraphNodeParams only the type matters here. */
struct pn_cu_graph_node_params {
	int type;
};
#define PN_CU_GRAPH_NODE_TYPE_MEMCPY 1

/* clang-format off */

/* Blocking copies, of the legacy and of the thread's default stream. */
#define PN_PRELOAD_BLOCKING(C, suffix) \
	C(cuMemcpy##suffix, \
	  (pn_cu_deviceptr dst, pn_cu_deviceptr src, size_t bytes)) \
	C(cuMemcpyHtoD_v2##suffix, \
	  (pn_cu_deviceptr dst, const void *src, size_t bytes)) \
	C(cuMemcpyDtoH_v2##suffix, \
	  (void *dst, pn_cu_deviceptr src, size_t bytes)) \
	C(cuMemcpyHtoA_v2##suffix, \
	  (pn_cu_array dst, size_t offset, const void *src, size_t bytes)) \
	C(cuMemcpyAtoH_v2##suffix, \
	  (void *dst, pn_cu_array src, size_t offset, size_t bytes)) \
	C(cuMemcpy2D_v2##suffix, (const struct pn_cu_memcpy2d *copy)) \
	C(cuMemcpy2DUnaligned_v2##suffix, \
	  (const struct pn_cu_memcpy2d *copy)) \
	C(cuMemcpy3D_v2##suffix, (const struct pn_cu_memcpy3d *copy)) \
	C(cuMemcpy3DPeer##suffix, (const struct pn_cu_memcpy3d *copy))

/* Copies in a stream. Batches have a second form since CUDA 13. */
#define PN_PRELOAD_ASYNC(C, suffix) \
	C(cuMemcpyAsync##suffix, \
	  (pn_cu_deviceptr dst, pn_cu_deviceptr src, size_t bytes, \
	   pn_cu_stream stream)) \
	C(cuMemcpyHtoDAsync_v2##suffix, \
	  (pn_cu_deviceptr dst, const void *src, size_t bytes, \
	   pn_cu_stream stream)) \
	C(cuMemcpyDtoHAsync_v2##suffix, \
	  (void *dst, pn_cu_deviceptr src, size_t bytes, \
	   pn_cu_stream stream)) \
	C(cuMemcpyHtoAAsync_v2##suffix, \
	  (pn_cu_array dst, size_t offset, const void *src, size_t bytes, \
	   pn_cu_stream stream)) \
	C(cuMemcpyAtoHAsync_v2##suffix, \
	  (void *dst, pn_cu_array src, size_t offset, size_t bytes, \
	   pn_cu_stream stream)) \
	C(cuMemcpy2DAsync_v2##suffix, \
	  (const struct pn_cu_memcpy2d *copy, pn_cu_stream stream)) \
	C(cuMemcpy3DAsync_v2##suffix, \
	  (const struct pn_cu_memcpy3d *copy, pn_cu_stream stream)) \
	C(cuMemcpy3DPeerAsync##suffix, \
	  (const struct pn_cu_memcpy3d *copy, pn_cu_stream stream)) \
	C(cuMemcpyBatchAsync##suffix, \
	  (pn_cu_deviceptr *dsts, pn_cu_deviceptr *srcs, size_t *bytes, \
	   size_t n, void *attrs, size_t *indexes, size_t nattrs, \
	   size_t *failed, pn_cu_stream stream)) \
	C(cuMemcpyBatchAsync_v2##suffix, \
	  (pn_cu_deviceptr *dsts, pn_cu_deviceptr *srcs, size_t *bytes, \
	   size_t n, void *attrs, size_t *indexes, size_t nattrs, \
	   pn_cu_stream stream)) \
	C(cuMemcpy3DBatchAsync##suffix, \
	  (size_t n, void *copies, size_t *failed, unsigned long long flags, \
	   pn_cu_stream stream)) \
	C(cuMemcpy3DBatchAsync_v2##suffix, \
	  (size_t n, void *copies, unsigned long long flags, \
	   pn_cu_stream stream)) \
	C(cuStreamBeginCapture##suffix, (pn_cu_stream stream)) \
	C(cuStreamBeginCapture_v2##suffix, (pn_cu_stream stream, int mode)) \
	C(cuStreamBeginCaptureToGraph##suffix, \
	  (pn_cu_stream stream, pn_cu_graph graph, \
	   const pn_cu_graph_node *nodes, const void *edges, size_t n, \
	   int mode)) \
	C(cuStreamEndCapture##suffix, \
	  (pn_cu_stream stream, pn_cu_graph *graph))

/* Host memory, graphs, contexts. */
#define PN_PRELOAD_OTHERS(C) \
	C(cuMemHostRegister, (void *at, size_t bytes, unsigned flags)) \
	C(cuMemHostRegister_v2, (void *at, size_t bytes, unsigned flags)) \
	C(cuMemHostUnregister, (void *at)) \
	C(cuMemHostAlloc, (void **at, size_t bytes, unsigned flags)) \
	C(cuMemAllocHost_v2, (void **at, size_t bytes)) \
	C(cuMemAllocManaged, \
	  (pn_cu_deviceptr *at, size_t bytes, unsigned flags)) \
	C(cuMemHostGetDevicePointer_v2, \
	  (pn_cu_deviceptr *out, void *at, unsigned flags)) \
	C(cuMemHostGetFlags, (unsigned *flags, void *at)) \
	C(cuPointerGetAttribute, \
	  (void *out, int attribute, pn_cu_deviceptr at)) \
	C(cuPointerGetAttributes, \
	  (unsigned n, int *attributes, void **out, pn_cu_deviceptr at)) \
	C(cuGraphAddMemcpyNode, \
	  (pn_cu_graph_node *out, pn_cu_graph graph, \
	   const pn_cu_graph_node *nodes, size_t n, \
	   const struct pn_cu_memcpy3d *copy, pn_cu_context context)) \
	C(cuGraphMemcpyNodeSetParams, \
	  (pn_cu_graph_node node, const struct pn_cu_memcpy3d *copy)) \
	C(cuGraphExecMemcpyNodeSetParams, \
	  (pn_cu_graph_exec exec, pn_cu_graph_node node, \
	   const struct pn_cu_memcpy3d *copy, pn_cu_context context)) \
	C(cuGraphAddNode, \
	  (pn_cu_graph_node *out, pn_cu_graph graph, \
	   const pn_cu_graph_node *nodes, size_t n, \
	   struct pn_cu_graph_node_params *params)) \
	C(cuGraphAddNode_v2, \
	  (pn_cu_graph_node *out, pn_cu_graph graph, \
	   const pn_cu_graph_node *nodes, const void *edges, size_t n, \
	   struct pn_cu_graph_node_params *params)) \
	C(cuGraphNodeSetParams, \
	  (pn_cu_graph_node node, struct pn_cu_graph_node_params *params)) \
	C(cuGraphExecNodeSetParams, \
	  (pn_cu_graph_exec exec, pn_cu_graph_node node, \
	   struct pn_cu_graph_node_params *params)) \
	C(cuCtxDestroy, (pn_cu_context context)) \
	C(cuCtxDestroy_v2, (pn_cu_context context)) \
	C(cuDevicePrimaryCtxRelease, (pn_cu_device device)) \
	C(cuDevicePrimaryCtxRelease_v2, (pn_cu_device device)) \
	C(cuDevicePrimaryCtxReset, (pn_cu_device device)) \
	C(cuDevicePrimaryCtxReset_v2, (pn_cu_device device)) \
	C(cuGetProcAddress, \
	  (const char *symbol, void **out, int version, \
	   unsigned long long flags)) \
	C(cuGetProcAddress_v2, \
	  (const char *symbol, void **out, int version, \
	   unsigned long long flags, int *status))

#define PN_PRELOAD_CALLS(C) \
	PN_PRELOAD_BLOCKING(C, ) \
	PN_PRELOAD_BLOCKING(C, _ptds) \
	PN_PRELOAD_ASYNC(C, ) \
	PN_PRELOAD_ASYNC(C, _ptsz) \
	PN_PRELOAD_OTHERS(C)

/* Called, not taken. */
#define PN_PRELOAD_HELPERS(C) \
	C(cuDeviceGetCount, (int *count)) \
	C(cuDeviceGetAttribute, \
	  (int *value, int attribute, pn_cu_device device)) \
	C(cuStreamIsCapturing, (pn_cu_stream stream, int *status))
/* clang-format on */

#endif
