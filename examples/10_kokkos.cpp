// SPDX-License-Identifier: BSD-2-Clause
//
// 10_kokkos -- Kokkos Views in registered memory.
//
// A View in pinion's memory space is ready for the adapter where it is: nothing
// is packed, and pinning it finds a key instead of registering, however often
// Views are made anew. One in ordinary memory is registered, or packed.
//
//	c++ -I/usr/include/trilinos 10_kokkos.cpp
//		$(pkg-config --cflags --libs pinion) -ltrilinos_kokkoscore
#include <cstdio>

#include <pinion/kokkos.hpp>

using view = Kokkos::View<double **, pinion::kokkos_space>;

static unsigned long long registrations(const pinion::context &context)
{
	pinion_cache_stats stats = {};

	stats.size = sizeof(stats);
	pinion::check(pinion_cache_query(context.get(), &stats), "query");
	return stats.registrations;
}

int main(int argc, char **argv)
{
	Kokkos::ScopeGuard kokkos(argc, argv);
	pinion::context context;
	pinion::heap heap(context);

	pinion::kokkos_space::use(heap);
	for (int step = 0; step < 100; step++) {
		view rows("rows", 100, 100);

		Kokkos::deep_copy(rows, step);
		pinion::pin pin(context, rows.data(),
				rows.span() * sizeof(double), 0);
		if (pin.get().nsegments != 1)
			return 1;
	}
	std::printf("100 Views pinned, %llu registered for it\n",
		    registrations(context));
	return registrations(context) ? 1 : 0;
}
