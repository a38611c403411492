/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls about host memory: registrations of pinion are invisible in them.
 *
 * Where the program registers or unregisters, and where it asks for what only
 * registered memory has, pinion gives up what it holds there first, and the
 * driver answers as if pinion were not there. Attributes are asked for too
 * often for that (is_pinned() of PyTorch): there the driver is asked for the
 * attributes of other memory that is certainly not registered, and where it
 * answers with that address, the program's stands there instead.
 */
#include <string.h>

#include "preload/cuda/preload.h"

static const struct pn_range none;

/* --- registering -----------------------------------------------------------
 */

#define YIELDING(symbol, params, range, ...)            \
	PN_PRELOAD_API pn_cu_result symbol params       \
	{                                               \
		struct pn_gate_passage passage;         \
		pn_cu_result ret;                       \
                                                        \
		pn_preload_pass(range, none, &passage); \
		ret = PN_REAL(symbol, __VA_ARGS__);     \
		pn_cuda_gate_leave(&passage);           \
		return ret;                             \
	}

static struct pn_range at_least_a_byte(const void *at, size_t bytes)
{
	return (struct pn_range){ (uintptr_t)at, bytes ? bytes : 1 };
}

YIELDING(cuMemHostRegister, (void *at, size_t bytes, unsigned flags),
	 at_least_a_byte(at, bytes), at, bytes, flags)
YIELDING(cuMemHostRegister_v2, (void *at, size_t bytes, unsigned flags),
	 at_least_a_byte(at, bytes), at, bytes, flags)
YIELDING(cuMemHostUnregister, (void *at), at_least_a_byte(at, 1), at)
YIELDING(cuMemHostGetDevicePointer_v2,
	 (pn_cu_deviceptr * out, void *at, unsigned flags),
	 at_least_a_byte(at, 1), out, at, flags)
YIELDING(cuMemHostGetFlags, (unsigned *flags, void *at), at_least_a_byte(at, 1),
	 flags, at)

/* --- allocating ------------------------------------------------------------
 */

/* The driver maps new memory, perhaps where the program has released some that
 * is still registered. */
PN_PRELOAD_API pn_cu_result cuMemHostAlloc(void **at, size_t bytes,
					   unsigned flags)
{
	pn_preload_engine_settle();
	return PN_REAL(cuMemHostAlloc, at, bytes, flags);
}

PN_PRELOAD_API pn_cu_result cuMemAllocHost_v2(void **at, size_t bytes)
{
	pn_preload_engine_settle();
	return PN_REAL(cuMemAllocHost_v2, at, bytes);
}

PN_PRELOAD_API pn_cu_result cuMemAllocManaged(pn_cu_deviceptr *at, size_t bytes,
					      unsigned flags)
{
	pn_preload_engine_settle();
	return PN_REAL(cuMemAllocManaged, at, bytes, flags);
}

/* --- attributes ------------------------------------------------------------
 */

/* Never registered by anyone. */
static char unregistered[64];

/* Which attributes are addresses. */
static void put_address(void *out, int attribute, pn_cu_deviceptr at)
{
	uintptr_t stranger = (uintptr_t)unregistered, value;

	if (!out || (attribute != PN_CU_POINTER_ATTRIBUTE_DEVICE_POINTER &&
		     attribute != PN_CU_POINTER_ATTRIBUTE_HOST_POINTER &&
		     attribute != PN_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR))
		return;
	memcpy(&value, out, sizeof(value));
	if (value == stranger) {
		value = (uintptr_t)at;
		memcpy(out, &value, sizeof(value));
	}
}

/* The passage keeps the background from registering the page between our look
 * and the driver's. */
PN_PRELOAD_API pn_cu_result cuPointerGetAttribute(void *out, int attribute,
						  pn_cu_deviceptr at)
{
	struct pn_range byte = { (uintptr_t)at, 1 };
	struct pn_gate_passage passage;
	pn_cu_result ret;

	if (pn_cuda_gate_enter(byte, none, &passage) == PN_GATE_CLEAR) {
		ret = PN_REAL(cuPointerGetAttribute, out, attribute, at);
		pn_cuda_gate_leave(&passage);
		return ret;
	}
	ret = PN_REAL(cuPointerGetAttribute, out, attribute,
		      (uintptr_t)unregistered);
	if (!ret)
		put_address(out, attribute, at);
	return ret;
}

PN_PRELOAD_API pn_cu_result cuPointerGetAttributes(unsigned n, int *attributes,
						   void **out,
						   pn_cu_deviceptr at)
{
	struct pn_range byte = { (uintptr_t)at, 1 };
	struct pn_gate_passage passage;
	pn_cu_result ret;

	if (pn_cuda_gate_enter(byte, none, &passage) == PN_GATE_CLEAR) {
		ret = PN_REAL(cuPointerGetAttributes, n, attributes, out, at);
		pn_cuda_gate_leave(&passage);
		return ret;
	}
	ret = PN_REAL(cuPointerGetAttributes, n, attributes, out,
		      (uintptr_t)unregistered);
	for (unsigned i = 0; !ret && attributes && out && i < n; i++)
		put_address(out[i], attributes[i], at);
	return ret;
}
