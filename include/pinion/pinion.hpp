// SPDX-License-Identifier: BSD-2-Clause
//
// pinion/pinion.hpp -- pinion for C++17: handles that close themselves, and the
// heap of registered memory as a std::pmr::memory_resource and as a standard
// allocator.
//
//	pinion::context context;
//	pinion::heap heap(context);
//	std::vector<double, pinion::allocator<double>> v(1000, heap);
//	... send v.data(): nothing is registered ...
//
// Handles own what they open and can be moved, not copied. What fails throws
// std::system_error with the errno, or std::bad_alloc where the standard wants
// that. Memory resources and allocators do not own their heap: it must outlive
// what is allocated from it.
#ifndef PINION_PINION_HPP
#define PINION_PINION_HPP

#include <cerrno>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <memory_resource>
#include <new>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <pinion/pinion.h>

namespace pinion
{

// What a call of the C library returned; throws when that is an error.
inline void check(int ret, const char *what)
{
	if (ret < 0)
		throw std::system_error(-ret, std::generic_category(), what);
}

// A context: a device, opened, with everything that pinion keeps for it.
class context
{
      public:
	// Options are "name=value"; they win over the environment.
	explicit context(std::initializer_list<std::string> options = {})
	{
		std::vector<const char *> names;
		pinion_attr attr = {};
		pinion_context *opened = nullptr;

		for (const std::string &option : options)
			names.push_back(option.c_str());
		names.push_back(nullptr);
		attr.size = sizeof(attr);
		attr.options = names.data();
		check(pinion_open(&attr, &opened), "pinion_open");
		handle_.reset(opened);
	}

	pinion_context *get() const noexcept
	{
		return handle_.get();
	}

      private:
	struct closer {
		void operator()(pinion_context *c) const noexcept
		{
			pinion_close(c);
		}
	};
	std::unique_ptr<pinion_context, closer> handle_;
};

// The endpoint of a context: sends and receives messages.
class endpoint
{
      public:
	explicit endpoint(const context &c,
			  const pinion_endpoint_attr *attr = nullptr)
	{
		pinion_endpoint *opened = nullptr;

		check(pinion_endpoint_open(c.get(), attr, &opened),
		      "pinion_endpoint_open");
		handle_.reset(opened);
	}

	pinion_endpoint *get() const noexcept
	{
		return handle_.get();
	}

      private:
	struct closer {
		void operator()(pinion_endpoint *e) const noexcept
		{
			pinion_endpoint_close(e);
		}
	};
	std::unique_ptr<pinion_endpoint, closer> handle_;
};

// A buffer that is pinned as long as this lives.
class pin
{
      public:
	pin(const context &c, void *addr, std::size_t len, unsigned flags)
	    : context_(c.get())
	{
		check(pinion_pin(context_, addr, len, flags, &pin_),
		      "pinion_pin");
	}

	pin(pin &&other) noexcept
	    : context_(std::exchange(other.context_, nullptr)), pin_(other.pin_)
	{
	}

	pin &operator=(pin &&other) noexcept
	{
		std::swap(context_, other.context_);
		std::swap(pin_, other.pin_);
		return *this;
	}

	~pin()
	{
		if (context_)
			pinion_unpin(context_, &pin_);
	}

	const struct pinion_pin &get() const noexcept
	{
		return pin_;
	}

      private:
	pinion_context *context_;
	struct pinion_pin pin_ = {};
};

// A heap of registered memory (pinion/heap.h).
class heap
{
      public:
	explicit heap(const context &c, const pinion_heap_attr *attr = nullptr)
	{
		pinion_heap *opened = nullptr;

		check(pinion_heap_open(c.get(), attr, &opened),
		      "pinion_heap_open");
		handle_.reset(opened);
	}

	pinion_heap *get() const noexcept
	{
		return handle_.get();
	}

	// Throws std::bad_alloc; size 0 gives a block, as the standard wants.
	void *allocate(std::size_t size,
		       std::size_t alignment = alignof(std::max_align_t)) const
	{
		return allocate_from(get(), size, alignment);
	}

	void deallocate(void *block) const noexcept
	{
		pinion_heap_free(get(), block);
	}

	bool contains(const void *addr) const noexcept
	{
		return pinion_heap_contains(get(), addr);
	}

	// The registered memory around an address, with its keys.
	pinion_heap_region find(const void *addr) const
	{
		pinion_heap_region region = {};

		region.size = sizeof(region);
		check(pinion_heap_find(get(), addr, &region),
		      "pinion_heap_find");
		return region;
	}

	// Returns what is empty to the system.
	void trim() const
	{
		check(pinion_heap_trim(get()), "pinion_heap_trim");
	}

	static void *allocate_from(pinion_heap *h, std::size_t size,
				   std::size_t alignment)
	{
		void *block;

		if (!size)
			size = 1;
		block = alignment <= 16
				? pinion_heap_malloc(h, size)
				: pinion_heap_aligned(h, alignment, size);
		if (!block)
			throw std::bad_alloc();
		return block;
	}

      private:
	struct closer {
		void operator()(pinion_heap *h) const noexcept
		{
			pinion_heap_close(h);
		}
	};
	std::unique_ptr<pinion_heap, closer> handle_;
};

// The heap for std::pmr containers.
class memory_resource : public std::pmr::memory_resource
{
      public:
	explicit memory_resource(const heap &h) noexcept : heap_(h.get())
	{
	}

	explicit memory_resource(pinion_heap *h) noexcept : heap_(h)
	{
	}

      private:
	void *do_allocate(std::size_t size, std::size_t alignment) override
	{
		return heap::allocate_from(heap_, size, alignment);
	}

	void do_deallocate(void *block, std::size_t, std::size_t) override
	{
		pinion_heap_free(heap_, block);
	}

	bool do_is_equal(
		const std::pmr::memory_resource &other) const noexcept override
	{
		auto o = dynamic_cast<const memory_resource *>(&other);

		return o && o->heap_ == heap_;
	}

	pinion_heap *heap_;
};

// The heap for containers that take an allocator by type.
template <class T> class allocator
{
      public:
	using value_type = T;
	// Memory goes with its contents when containers are moved or swapped.
	using propagate_on_container_move_assignment = std::true_type;
	using propagate_on_container_swap = std::true_type;

	allocator(const heap &h) noexcept : heap_(h.get())
	{
	}

	explicit allocator(pinion_heap *h) noexcept : heap_(h)
	{
	}

	template <class U>
	allocator(const allocator<U> &other) noexcept : heap_(other.get())
	{
	}

	T *allocate(std::size_t n)
	{
		if (n > static_cast<std::size_t>(-1) / sizeof(T))
			throw std::bad_array_new_length();
		return static_cast<T *>(
			heap::allocate_from(heap_, n * sizeof(T), alignof(T)));
	}

	void deallocate(T *block, std::size_t) noexcept
	{
		pinion_heap_free(heap_, block);
	}

	pinion_heap *get() const noexcept
	{
		return heap_;
	}

	template <class U> bool operator==(const allocator<U> &o) const noexcept
	{
		return heap_ == o.get();
	}

	template <class U> bool operator!=(const allocator<U> &o) const noexcept
	{
		return heap_ != o.get();
	}

      private:
	pinion_heap *heap_;
};

} // namespace pinion

#endif
