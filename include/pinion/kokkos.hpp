// SPDX-License-Identifier: BSD-2-Clause
//
// pinion/kokkos.hpp -- a Kokkos memory space on a pinion heap: a View in it
// lies in registered memory, so that moving its contents registers nothing.
//
//	pinion::heap heap(context);
//	pinion::kokkos_space::use(heap);
//	Kokkos::View<double *, pinion::kokkos_space> v("v", n);
//	... send v.data() ...
//
// A space that is not told its heap uses the one given to use(); several heaps
// are used by Kokkos::view_alloc("v", pinion::kokkos_space(heap)). The heap
// must outlive its Views. Kokkos keeps a header of 128 bytes before the data of
// each allocation, also here: it is the one thing in registered pages that a
// stray write of a peer could break.
//
// For Kokkos 3.4 to 4. How a memory space lets Kokkos track its allocations is
// no public interface of Kokkos: it changed in 3.6 and in 4.3.
#ifndef PINION_KOKKOS_HPP
#define PINION_KOKKOS_HPP

#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <string>

#include <Kokkos_Core.hpp>
// The second is not public; Kokkos 4 wants to be told that this is known.
#ifdef KOKKOS_IMPL_PUBLIC_INCLUDE
#include <impl/Kokkos_SharedAlloc_timpl.hpp>
#else
#define KOKKOS_IMPL_PUBLIC_INCLUDE
#include <impl/Kokkos_SharedAlloc_timpl.hpp>
#undef KOKKOS_IMPL_PUBLIC_INCLUDE
#endif

#include <pinion/pinion.hpp>

#if KOKKOS_VERSION < 30400 || KOKKOS_VERSION >= 50000
#error "pinion/kokkos.hpp works with Kokkos 3.4 to 4"
#endif

namespace pinion
{

class kokkos_space
{
      public:
	using memory_space = kokkos_space;
	using size_type = std::size_t;
	using execution_space = Kokkos::DefaultHostExecutionSpace;
	using device_type = Kokkos::Device<execution_space, memory_space>;

	kokkos_space() : heap_(common().load())
	{
	}

	explicit kokkos_space(const heap &h) : heap_(h.get())
	{
	}

	// The heap of spaces that are not told theirs.
	static void use(const heap &h)
	{
		common().store(h.get());
	}

	void *allocate(std::size_t size) const
	{
		return allocate("[unlabeled]", size);
	}

	void *allocate(const char *label, std::size_t size,
		       std::size_t = 0) const
	{
		if (!heap_)
			throw std::logic_error(
				"pinion::kokkos_space::use() comes first");
		try {
			// As Kokkos aligns ordinary memory.
			return heap::allocate_from(heap_, size, 64);
		} catch (const std::bad_alloc &) {
			throw std::runtime_error(
				std::string("no registered memory for ") +
				label);
		}
	}

	// Kokkos 4 names the execution space that is going to use the memory.
	template <class Execution>
	void *allocate(const Execution &, const char *label, std::size_t size,
		       std::size_t = 0) const
	{
		return allocate(label, size);
	}

	void deallocate(void *block, std::size_t) const
	{
		pinion_heap_free(heap_, block);
	}

	void deallocate(const char *, void *block, std::size_t,
			std::size_t = 0) const
	{
		pinion_heap_free(heap_, block);
	}

	static constexpr const char *name()
	{
		return "Pinion";
	}

      private:
	static std::atomic<pinion_heap *> &common()
	{
		static std::atomic<pinion_heap *> heap{ nullptr };

		return heap;
	}

	pinion_heap *heap_;
};

} // namespace pinion

namespace Kokkos
{
namespace Impl
{

// The CPU that reads ordinary memory reads heap memory.
template <> struct MemorySpaceAccess<HostSpace, pinion::kokkos_space> {
	enum { assignable = true };
	enum { accessible = true };
	enum { deepcopy = true };
};

// What is to be registered must not be assigned ordinary memory.
template <> struct MemorySpaceAccess<pinion::kokkos_space, HostSpace> {
	enum { assignable = false };
	enum { accessible = true };
	enum { deepcopy = true };
};

template <class Execution>
struct DeepCopy<pinion::kokkos_space, pinion::kokkos_space, Execution>
    : DeepCopy<HostSpace, HostSpace, Execution> {
	using DeepCopy<HostSpace, HostSpace, Execution>::DeepCopy;
};

template <class Execution>
struct DeepCopy<HostSpace, pinion::kokkos_space, Execution>
    : DeepCopy<HostSpace, HostSpace, Execution> {
	using DeepCopy<HostSpace, HostSpace, Execution>::DeepCopy;
};

template <class Execution>
struct DeepCopy<pinion::kokkos_space, HostSpace, Execution>
    : DeepCopy<HostSpace, HostSpace, Execution> {
	using DeepCopy<HostSpace, HostSpace, Execution>::DeepCopy;
};

#if KOKKOS_VERSION < 40300

// What Kokkos keeps for an allocation.
template <>
class SharedAllocationRecord<pinion::kokkos_space, void>
    : public SharedAllocationRecordCommon<pinion::kokkos_space>
{
      private:
	using common = SharedAllocationRecordCommon<pinion::kokkos_space>;
	using base = SharedAllocationRecord<void, void>;
	friend common;

#ifdef KOKKOS_ENABLE_DEBUG
	static inline base s_root_record;
#endif
	const pinion::kokkos_space m_space;

	static SharedAllocationHeader *get(const pinion::kokkos_space &space,
					   const std::string &label,
					   std::size_t size)
	{
		return static_cast<SharedAllocationHeader *>(
			space.allocate(label.c_str(),
				       sizeof(SharedAllocationHeader) + size));
	}

      protected:
	SharedAllocationRecord() = default;

	~SharedAllocationRecord()
	{
		m_space.deallocate(m_alloc_ptr, m_alloc_size);
	}

	SharedAllocationRecord(const pinion::kokkos_space &space,
			       const std::string &label, std::size_t size,
			       function_type dealloc = &common::deallocate)
	    : common(
#ifdef KOKKOS_ENABLE_DEBUG
		      &s_root_record,
#endif
		      get(space, label, size),
		      sizeof(SharedAllocationHeader) + size, dealloc
#if KOKKOS_VERSION >= 30600
		      ,
		      label
#endif
		      ),
	      m_space(space)
	{
		_fill_host_accessible_header_info(*m_alloc_ptr, label);
	}

	// Kokkos names the execution space from 3.7 on.
	template <class Execution>
	SharedAllocationRecord(const Execution &,
			       const pinion::kokkos_space &space,
			       const std::string &label, std::size_t size,
			       function_type dealloc = &common::deallocate)
	    : SharedAllocationRecord(space, label, size, dealloc)
	{
	}

      public:
	static SharedAllocationRecord *allocate(
		const pinion::kokkos_space &space, const std::string &label,
		std::size_t size)
	{
		return new SharedAllocationRecord(space, label, size);
	}
};

#else

#ifdef KOKKOS_ENABLE_DEBUG
template <>
inline SharedAllocationRecord<void, void>
	SharedAllocationRecordCommon<pinion::kokkos_space>::s_root_record{};
#endif

#endif

} // namespace Impl
} // namespace Kokkos

#if KOKKOS_VERSION >= 40300
KOKKOS_IMPL_SHARED_ALLOCATION_SPECIALIZATION(pinion::kokkos_space);
#endif

#endif
