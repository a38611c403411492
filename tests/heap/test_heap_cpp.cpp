// SPDX-License-Identifier: BSD-2-Clause
// pinion/pinion.hpp by what a C++ program does with it: containers, handles
// that are moved, errors that are thrown.
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <list>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include <pinion/pinion.hpp>

// Last: it has a macro by the name of fail.
extern "C" {
#include <cmocka.h>
}

static pinion::context open_soft()
{
	return pinion::context({ "device=soft", "log=none" });
}

static void containers_live_in_registered_memory(void **)
{
	auto context = open_soft();
	pinion::heap heap(context);
	std::vector<double, pinion::allocator<double>> v(1000, 1.5, heap);

	for (int i = 0; i < 100000; i++)
		v.push_back(i);
	assert_true(heap.contains(v.data()));
	assert_true(heap.contains(&v.back()));
	assert_true(v[999] == 1.5 && v[1000 + 777] == 777);
	assert_int_not_equal(heap.find(v.data()).remote_key, 0);

	std::list<int, pinion::allocator<int>> l({ 1, 2, 3 }, heap);
	assert_true(heap.contains(&l.front()));
	auto moved = std::move(v);
	assert_true(heap.contains(moved.data()));
}

static void pmr_containers_do_so_as_well(void **)
{
	auto context = open_soft();
	pinion::heap heap(context), other(context);
	pinion::memory_resource resource(heap), same(heap), apart(other);
	std::pmr::map<int, std::pmr::string> m(&resource);

	for (int i = 0; i < 1000; i++)
		m[i] = std::string(100 + i, 'x');
	assert_true(heap.contains(m[5].data()) && heap.contains(&m[5]));
	assert_false(other.contains(m[5].data()));
	assert_true(resource == same);
	assert_false(resource == apart);
	void *p = resource.allocate(100, 4096);
	assert_int_equal(reinterpret_cast<std::uintptr_t>(p) % 4096, 0);
	resource.deallocate(p, 100, 4096);
}

struct alignas(256) wide {
	char bytes[256];
};

static void alignment_is_that_of_the_type(void **)
{
	auto context = open_soft();
	pinion::heap heap(context);
	std::vector<wide, pinion::allocator<wide>> v(3, heap);

	assert_int_equal(reinterpret_cast<std::uintptr_t>(v.data()) % 256, 0);
}

static void handles_close_themselves_when_moved(void **)
{
	auto context = open_soft();
	auto moved = std::move(context);
	pinion::endpoint endpoint(moved);
	auto talker = std::move(endpoint);
	pinion::heap heap(moved);
	auto elsewhere = std::move(heap);
	char *block = static_cast<char *>(elsewhere.allocate(5000));
	pinion::pin pin(moved, block, 5000, 0);
	pinion::pin kept = std::move(pin);

	assert_null(context.get());
	assert_null(heap.get());
	assert_null(endpoint.get());
	assert_non_null(talker.get());
	assert_int_equal(kept.get().local_key, elsewhere.find(block).local_key);
	kept = pinion::pin(moved, block, 100, 0);
	assert_int_equal(kept.get().len, 100);
	elsewhere.deallocate(block);
	elsewhere.trim();
}

template <class E, class F> static bool throws(F &&f)
{
	try {
		f();
	} catch (const E &) {
		return true;
	} catch (...) {
	}
	return false;
}

static void errors_are_thrown(void **)
{
	auto context = open_soft();
	pinion_heap_attr small = {};

	small.size = sizeof(small);
	small.max_bytes = 1 << 20;
	pinion::heap heap(context, &small);
	pinion::allocator<int> a(heap);

	assert_true(throws<std::bad_alloc>([&] { heap.allocate(2 << 20); }));
	assert_true(throws<std::bad_alloc>([&] { heap.allocate(10, 24); }));
	assert_true(throws<std::bad_alloc>(
		[&] { (void)a.allocate(static_cast<std::size_t>(-1) / 2); }));
	assert_true(throws<std::system_error>([&] { heap.find(&small); }));
	assert_true(throws<std::system_error>([] {
		pinion::context({ "device=nonsense", "log=none" });
	}));
	assert_true(throws<std::system_error>(
		[&] { pinion::pin(context, nullptr, 10, 0); }));
	small.size = 1;
	assert_true(throws<std::system_error>(
		[&] { pinion::heap(context, &small); }));
	assert_non_null(heap.allocate(0));
}

int main()
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(containers_live_in_registered_memory),
		cmocka_unit_test(pmr_containers_do_so_as_well),
		cmocka_unit_test(alignment_is_that_of_the_type),
		cmocka_unit_test(handles_close_themselves_when_moved),
		cmocka_unit_test(errors_are_thrown),
	};

	return cmocka_run_group_tests(tests, nullptr, nullptr);
}
