/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Captures and graphs.
 *
 * While a stream of the process is being captured, calls that are legal
 * otherwise fail and end the capture, depending on modes of streams and
 * threads. So the driver alone decides then: from before the capture begins
 * until it has ended, nothing is taken, the gate is closed and nothing is held.
 *
 * A graph reads and writes host memory whenever it is launched, without a copy
 * call. If that memory is unpinned, a registration of ours that comes later
 * would change what the launch does. So the gate is closed for good as soon as
 * a graph has such memory, which is rare: graphs copy from pinned memory.
 */
#include <stdatomic.h>

#include "preload/cuda/preload.h"

static _Atomic unsigned captures;
static _Atomic bool graphs_copy;

bool pn_preload_capturing(void)
{
	return atomic_load_explicit(&captures, memory_order_acquire);
}

/* --- graphs ----------------------------------------------------------------
 */

/* The gate stays closed: nobody opens it again. */
static void keep_nothing(void)
{
	if (atomic_exchange(&graphs_copy, true))
		return;
	pn_cuda_gate_close();
	pn_preload_engine_yield(pn_preload_everything);
}

/* The driver knows all memory but unpinned host memory. */
static bool is_unpinned(struct pn_range range)
{
	int type = 0;

	return range.len &&
	       (PN_REAL(cuPointerGetAttribute, &type,
			PN_CU_POINTER_ATTRIBUTE_MEMORY_TYPE, range.addr) ||
		!type);
}

static bool is_captured(pn_cu_stream stream)
{
	int status = PN_CU_STREAM_CAPTURE_STATUS_NONE;

	return !PN_REAL(cuStreamIsCapturing, stream, &status) &&
	       status == PN_CU_STREAM_CAPTURE_STATUS_ACTIVE;
}

void pn_preload_graph_reads(pn_cu_stream stream, struct pn_range a,
			    struct pn_range b)
{
	if (pn_likely(!pn_preload_capturing()) || atomic_load(&graphs_copy))
		return;
	if (is_captured(stream) && (is_unpinned(a) || is_unpinned(b)))
		keep_nothing();
}

static void node_copies(const struct pn_cu_memcpy3d *copy)
{
	if (is_unpinned(pn_preload_dst_of_3d(copy)) ||
	    is_unpinned(pn_preload_src_of_3d(copy)))
		keep_nothing();
}

static void node_of_any_type(const struct pn_cu_graph_node_params *params)
{
	if (params && params->type == PN_CU_GRAPH_NODE_TYPE_MEMCPY)
		keep_nothing();
}

#define NODE(symbol, params_, look, ...)             \
	PN_PRELOAD_API pn_cu_result symbol params_   \
	{                                            \
		look;                                \
		return PN_REAL(symbol, __VA_ARGS__); \
	}

NODE(cuGraphAddMemcpyNode,
     (pn_cu_graph_node * out, pn_cu_graph graph, const pn_cu_graph_node *nodes,
      size_t n, const struct pn_cu_memcpy3d *copy, pn_cu_context context),
     node_copies(copy), out, graph, nodes, n, copy, context)
NODE(cuGraphMemcpyNodeSetParams,
     (pn_cu_graph_node node, const struct pn_cu_memcpy3d *copy),
     node_copies(copy), node, copy)
NODE(cuGraphExecMemcpyNodeSetParams,
     (pn_cu_graph_exec exec, pn_cu_graph_node node,
      const struct pn_cu_memcpy3d *copy, pn_cu_context context),
     node_copies(copy), exec, node, copy, context)
NODE(cuGraphAddNode,
     (pn_cu_graph_node * out, pn_cu_graph graph, const pn_cu_graph_node *nodes,
      size_t n, struct pn_cu_graph_node_params *params),
     node_of_any_type(params), out, graph, nodes, n, params)
NODE(cuGraphAddNode_v2,
     (pn_cu_graph_node * out, pn_cu_graph graph, const pn_cu_graph_node *nodes,
      const void *edges, size_t n, struct pn_cu_graph_node_params *params),
     node_of_any_type(params), out, graph, nodes, edges, n, params)
NODE(cuGraphNodeSetParams,
     (pn_cu_graph_node node, struct pn_cu_graph_node_params *params),
     node_of_any_type(params), node, params)
NODE(cuGraphExecNodeSetParams,
     (pn_cu_graph_exec exec, pn_cu_graph_node node,
      struct pn_cu_graph_node_params *params),
     node_of_any_type(params), exec, node, params)

/* --- captures --------------------------------------------------------------
 */

static void capture_begins(void)
{
	atomic_fetch_add(&captures, 1);
	pn_cuda_gate_close();
	pn_preload_engine_yield(pn_preload_everything);
}

static void capture_is_over(void)
{
	pn_cuda_gate_open();
	atomic_fetch_sub(&captures, 1);
}

#define BEGIN(symbol, params, ...)                  \
	PN_PRELOAD_API pn_cu_result symbol params   \
	{                                           \
		pn_cu_result ret;                   \
                                                    \
		capture_begins();                   \
		ret = PN_REAL(symbol, __VA_ARGS__); \
		if (ret)                            \
			capture_is_over();          \
		return ret;                         \
	}

#define BOTH_BEGIN(suffix)                                                 \
	BEGIN(cuStreamBeginCapture##suffix, (pn_cu_stream stream), stream) \
	BEGIN(cuStreamBeginCapture_v2##suffix,                             \
	      (pn_cu_stream stream, int mode), stream, mode)               \
	BEGIN(cuStreamBeginCaptureToGraph##suffix,                         \
	      (pn_cu_stream stream, pn_cu_graph graph,                     \
	       const pn_cu_graph_node *nodes, const void *edges, size_t n, \
	       int mode),                                                  \
	      stream, graph, nodes, edges, n, mode)

BOTH_BEGIN()
BOTH_BEGIN(_ptsz)

/* Whether the capture has ended. The driver refuses a thread that did not
 * begin it, for example; then it goes on. */
static bool has_ended(pn_cu_stream stream)
{
	int status = PN_CU_STREAM_CAPTURE_STATUS_NONE;

	return PN_REAL(cuStreamIsCapturing, stream, &status) ||
	       status == PN_CU_STREAM_CAPTURE_STATUS_NONE;
}

static pn_cu_result end_capture(pn_cu_result ret, pn_cu_stream stream,
				bool was_capturing)
{
	if (was_capturing && has_ended(stream))
		capture_is_over();
	return ret;
}

#define END(symbol, zero)                                             \
	PN_PRELOAD_API pn_cu_result symbol(pn_cu_stream stream,       \
					   pn_cu_graph *graph)        \
	{                                                             \
		pn_cu_stream s = stream ? stream : (zero);            \
		bool capturing = !has_ended(s);                       \
                                                                      \
		return end_capture(PN_REAL(symbol, stream, graph), s, \
				   capturing);                        \
	}

END(cuStreamEndCapture, PN_CU_STREAM_LEGACY)
END(cuStreamEndCapture_ptsz, PN_CU_STREAM_PER_THREAD)
