// SPDX-License-Identifier: BSD-2-Clause
// Views in registered memory (pinion/kokkos.hpp), and the paper's three ways to
// have the contents of a View where the adapter may read them: a View in heap
// memory, a View in ordinary memory that is pinned, and a copy into heap
// memory.
#include <csetjmp>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <pinion/kokkos.hpp>

// Last: it has a macro by the name of fail.
extern "C" {
#include <cmocka.h>
}

using pinned_view = Kokkos::View<double **, pinion::kokkos_space>;
using host_view = Kokkos::View<double **, Kokkos::HostSpace>;

static constexpr std::size_t ROWS = 100, COLUMNS = 500;
static constexpr std::size_t BYTES = ROWS * COLUMNS * sizeof(double);

static pinion::context open_soft()
{
	return pinion::context({ "device=soft", "log=none" });
}

template <class V> static void fill(const V &v)
{
	for (std::size_t i = 0; i < v.extent(0); i++)
		for (std::size_t j = 0; j < v.extent(1); j++)
			v(i, j) = double(i * 1000 + j);
}

static std::uint64_t registrations(const pinion::context &c)
{
	pinion_device_info info = {};

	info.size = sizeof(info);
	pinion::check(pinion_device_query(c.get(), &info), "query");
	return info.registrations;
}

static void views_live_in_registered_memory(void **)
{
	auto context = open_soft();
	pinion::heap heap(context), other(context);

	pinion::kokkos_space::use(heap);
	{
		pinned_view v("v", ROWS, COLUMNS), copy = v;
		Kokkos::View<int *, pinion::kokkos_space> elsewhere(
			Kokkos::view_alloc("elsewhere",
					   pinion::kokkos_space(other)),
			10);

		assert_true(v(3, 4) == 0); // Kokkos initialises
		fill(v);
		assert_true(copy(7, 8) == 7008);
		assert_true(heap.contains(v.data()));
		assert_true(heap.contains(&v(ROWS - 1, COLUMNS - 1)));
		assert_true(other.contains(elsewhere.data()));
		assert_string_equal(v.label().c_str(), "v");
	}
	heap.trim();
	pinion_heap_stats stats = {};
	stats.size = sizeof(stats);
	pinion::check(pinion_heap_query(heap.get(), &stats), "query");
	assert_int_equal(stats.slabs, 0);
}

static void views_are_copied_both_ways_and_used_in_kernels(void **)
{
	auto context = open_soft();
	pinion::heap heap(context);
	double sum = 0;

	pinion::kokkos_space::use(heap);
	pinned_view pinned("pinned", ROWS, COLUMNS),
		again("again", ROWS, COLUMNS);
	host_view host("host", ROWS, COLUMNS), back("back", ROWS, COLUMNS);

	fill(host);
	Kokkos::deep_copy(pinned, host);
	Kokkos::deep_copy(again, pinned);
	Kokkos::deep_copy(back, again);
	assert_memory_equal(back.data(), host.data(), BYTES);
	Kokkos::parallel_reduce(
		ROWS,
		KOKKOS_LAMBDA(int i, double &part) { part += again(i, 1); },
		sum);
	assert_true(sum == 1000.0 * ROWS * (ROWS - 1) / 2 + ROWS);
	host_view window = pinned; // heap memory is memory
	assert_true(window.data() == pinned.data());
	Kokkos::resize(again, 2 * ROWS, COLUMNS);
	assert_true(heap.contains(&again(2 * ROWS - 1, COLUMNS - 1)));
	assert_true(again(7, 8) == 7008);
}

static void the_three_strategies_register_what_they_must(void **)
{
	auto context = open_soft();
	pinion::heap heap(context);

	pinion::kokkos_space::use(heap);
	pinned_view pinned("pinned", ROWS, COLUMNS);
	host_view host("host", ROWS, COLUMNS);
	void *copy = heap.allocate(BYTES);
	const auto before = registrations(context);

	fill(host);
	fill(pinned);
	{
		pinion::pin pin(context, pinned.data(), BYTES, 0);
		assert_int_equal(registrations(context), before);
		assert_int_equal(pin.get().local_key,
				 heap.find(pinned.data()).local_key);
	}
	{
		std::memcpy(copy, host.data(), BYTES);
		pinion::pin pin(context, copy, BYTES, 0);
		assert_int_equal(registrations(context), before);
	}
	{
		pinion::pin pin(context, host.data(), BYTES, 0);
		assert_int_equal(registrations(context), before + 1);
	}
	assert_memory_equal(copy, pinned.data(), BYTES);
	heap.deallocate(copy);
}

static void without_room_a_view_throws(void **)
{
	auto context = open_soft();
	pinion_heap_attr small = {};
	bool thrown = false;

	small.size = sizeof(small);
	small.max_bytes = 1 << 20;
	pinion::heap heap(context, &small);
	pinion::kokkos_space::use(heap);
	try {
		pinned_view v("large", 1000, 1000);
	} catch (const std::runtime_error &) {
		thrown = true;
	}
	assert_true(thrown);
	pinned_view fits("fits", 10, 10);
	assert_true(heap.contains(fits.data()));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(views_live_in_registered_memory),
		cmocka_unit_test(
			views_are_copied_both_ways_and_used_in_kernels),
		cmocka_unit_test(the_three_strategies_register_what_they_must),
		cmocka_unit_test(without_room_a_view_throws),
	};
	Kokkos::ScopeGuard guard(argc, argv);

	return cmocka_run_group_tests(tests, nullptr, nullptr);
}
