/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * test_driver_api -- our declarations of the CUDA driver (driver_api.h) against
 * CUDA's own header, which the build has found: values, the layout of structs,
 * and of every function the number, kind and size of its parameters. CUDA's
 * enumerations are ints in ours.
 *
 * All of it is checked by the compiler; the program says how much there was.
 */
#include <cstddef>
#include <cstdio>
#include <type_traits>

#include <cuda.h>

#include "device/cuda/driver_api.h"

template <class T> constexpr size_t size_of()
{
	if constexpr (std::is_void_v<T> || std::is_function_v<T>)
		return 0;
	else
		return sizeof(T);
}

template <class Ours, class Theirs> constexpr bool same_type()
{
	using A = std::remove_cv_t<Ours>;
	using B = std::remove_cv_t<Theirs>;

	if constexpr (std::is_same_v<A, B>)
		return true;
	else if constexpr (std::is_pointer_v<A> != std::is_pointer_v<B>)
		return false;
	else if constexpr (std::is_pointer_v<A>) {
		using P = std::remove_pointer_t<A>;
		using Q = std::remove_pointer_t<B>;

		if constexpr (std::is_const_v<P> != std::is_const_v<Q>)
			return false;
		else if constexpr (std::is_function_v<P>)
			return std::is_same_v<P, Q>;
		else if constexpr (std::is_class_v<P>)
			return std::is_same_v<std::remove_cv_t<P>,
					      pn_cu_memcpy2d> &&
			       std::is_same_v<std::remove_cv_t<Q>,
					      CUDA_MEMCPY2D>;
		else
			return same_type<P, Q>();
	} else
		return std::is_integral_v<A> && size_of<A>() == size_of<B>() &&
		       (std::is_enum_v<B> ||
			(std::is_integral_v<B> &&
			 std::is_signed_v<A> == std::is_signed_v<B>));
}

template <class... A, class... B>
constexpr bool same_function(int (*)(A...), CUresult (*)(B...))
{
	if constexpr (sizeof...(A) == sizeof...(B))
		return (same_type<A, B>() && ... && true);
	else
		return false;
}

#define CHECK_FUNCTION(field, symbol, parameters)                         \
	static_assert(same_function((pn_cu_result(*) parameters) nullptr, \
				    (decltype(&symbol))nullptr),          \
		      #symbol);
PN_CUDA_FUNCTIONS(CHECK_FUNCTION)
PN_CUDA_OPTIONAL_FUNCTIONS(CHECK_FUNCTION)

/* The checks can fail. */
static_assert(!same_function((int (*)(unsigned, int)) nullptr,
			     (decltype(&cuInit))nullptr));
static_assert(!same_function((int (*)(int)) nullptr,
			     (decltype(&cuInit))nullptr));
static_assert(!same_function((int (*)(pn_cu_event)) nullptr,
			     (decltype(&cuStreamQuery))nullptr));
static_assert(!same_function((int (*)(int **)) nullptr,
			     (decltype(&cuDeviceGetCount))nullptr));

#define VALUE(name) static_assert((long long)PN_##name == (long long)(name));
/* clang-format off */
#define VALUES(F) \
	F(CUDA_SUCCESS) F(CUDA_ERROR_INVALID_VALUE) \
	F(CUDA_ERROR_OUT_OF_MEMORY) F(CUDA_ERROR_NOT_INITIALIZED) \
	F(CUDA_ERROR_DEINITIALIZED) F(CUDA_ERROR_NO_DEVICE) \
	F(CUDA_ERROR_INVALID_DEVICE) F(CUDA_ERROR_INVALID_CONTEXT) \
	F(CUDA_ERROR_INVALID_HANDLE) F(CUDA_ERROR_NOT_FOUND) \
	F(CUDA_ERROR_NOT_READY) F(CUDA_ERROR_ILLEGAL_ADDRESS) \
	F(CUDA_ERROR_CONTEXT_IS_DESTROYED) \
	F(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) \
	F(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED) F(CUDA_ERROR_NOT_PERMITTED) \
	F(CUDA_ERROR_NOT_SUPPORTED) F(CUDA_ERROR_SYSTEM_NOT_READY) \
	F(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) \
	F(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) \
	F(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED) \
	F(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) F(CUDA_ERROR_UNKNOWN) \
	F(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID) F(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID) \
	F(CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT) \
	F(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) \
	F(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID) \
	F(CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED) \
	F(CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED) \
	F(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID) \
	F(CU_POINTER_ATTRIBUTE_CONTEXT) F(CU_POINTER_ATTRIBUTE_MEMORY_TYPE) \
	F(CU_POINTER_ATTRIBUTE_DEVICE_POINTER) \
	F(CU_POINTER_ATTRIBUTE_HOST_POINTER) F(CU_POINTER_ATTRIBUTE_IS_MANAGED) \
	F(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) \
	F(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) \
	F(CU_POINTER_ATTRIBUTE_RANGE_SIZE) F(CU_POINTER_ATTRIBUTE_MAPPED) \
	F(CU_MEMORYTYPE_HOST) F(CU_MEMORYTYPE_DEVICE) F(CU_MEMORYTYPE_ARRAY) \
	F(CU_MEMORYTYPE_UNIFIED) \
	F(CU_MEMHOSTREGISTER_PORTABLE) F(CU_MEMHOSTREGISTER_DEVICEMAP) \
	F(CU_MEMHOSTREGISTER_IOMEMORY) F(CU_MEMHOSTREGISTER_READ_ONLY) \
	F(CU_MEMHOSTALLOC_PORTABLE) F(CU_MEMHOSTALLOC_DEVICEMAP) \
	F(CU_STREAM_DEFAULT) F(CU_STREAM_NON_BLOCKING) F(CU_EVENT_DEFAULT) \
	F(CU_EVENT_BLOCKING_SYNC) F(CU_EVENT_DISABLE_TIMING) \
	F(CU_STREAM_WAIT_VALUE_GEQ) F(CU_STREAM_WAIT_VALUE_EQ) \
	F(CU_STREAM_CAPTURE_STATUS_NONE) F(CU_STREAM_CAPTURE_STATUS_ACTIVE) \
	F(CU_STREAM_CAPTURE_STATUS_INVALIDATED) \
	F(CU_STREAM_CAPTURE_MODE_GLOBAL) F(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) \
	F(CU_STREAM_CAPTURE_MODE_RELAXED) \
	F(CU_GET_PROC_ADDRESS_LEGACY_STREAM) \
	F(CU_GET_PROC_ADDRESS_SUCCESS) F(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND) \
	F(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT)
/* clang-format on */
VALUES(VALUE)

/* Names that differ. */
#if CUDA_VERSION >= 12000
#define MEM_OPS CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1
#else
#define MEM_OPS CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS
#endif
static_assert((int)PN_CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS ==
	      (int)MEM_OPS);
static_assert(PN_CU_GET_PROC_ADDRESS_PER_THREAD ==
	      (unsigned long long)
		      CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);

#define FIELD(ours, theirs)                                      \
	static_assert(offsetof(pn_cu_memcpy2d, ours) ==          \
			      offsetof(CUDA_MEMCPY2D, theirs) && \
		      sizeof(pn_cu_memcpy2d::ours) ==            \
			      sizeof(CUDA_MEMCPY2D::theirs));
FIELD(src_x_bytes, srcXInBytes)
FIELD(src_y, srcY)
FIELD(src_type, srcMemoryType)
FIELD(src_host, srcHost)
FIELD(src_device, srcDevice)
FIELD(src_array, srcArray)
FIELD(src_pitch, srcPitch)
FIELD(dst_x_bytes, dstXInBytes)
FIELD(dst_y, dstY)
FIELD(dst_type, dstMemoryType)
FIELD(dst_host, dstHost)
FIELD(dst_device, dstDevice)
FIELD(dst_array, dstArray)
FIELD(dst_pitch, dstPitch)
FIELD(width_bytes, WidthInBytes)
FIELD(height, Height)
static_assert(sizeof(pn_cu_memcpy2d) == sizeof(CUDA_MEMCPY2D));

int main()
{
#define ONE(...) +1
	std::printf("CUDA %d: %d functions and %d values are as declared\n",
		    CUDA_VERSION,
		    0 PN_CUDA_FUNCTIONS(ONE) PN_CUDA_OPTIONAL_FUNCTIONS(ONE),
		    0 VALUES(ONE));
	return 0;
}
