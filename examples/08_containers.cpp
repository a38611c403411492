// SPDX-License-Identifier: BSD-2-Clause
//
// 08_containers -- C++ containers in registered memory.
//
// A vector whose memory comes from pinion's heap is sent and received into:
// nothing is registered for that, however often the vectors are made anew.
// What fails throws; handles close themselves.
//
//	c++ 08_containers.cpp $(pkg-config --cflags --libs pinion) && ./a.out
#include <cstdio>
#include <numeric>
#include <vector>

#include <pinion/pinion.hpp>

using numbers = std::vector<double, pinion::allocator<double>>;

// Sends v to this endpoint itself and returns what arrives.
static numbers round_trip(const pinion::endpoint &endpoint, pinion_peer *self,
			  numbers &v)
{
	numbers arrived(v.size(), v.get_allocator());
	pinion_request *receive, *send;
	pinion_message from = {}, into = {};

	from.size = into.size = sizeof(pinion_message);
	from.buf = v.data();
	into.buf = arrived.data();
	from.len = into.len = v.size() * sizeof(double);
	from.peer = into.peer = self;
	pinion::check(pinion_recv(endpoint.get(), &into, &receive), "recv");
	pinion::check(pinion_send(endpoint.get(), &from, &send), "send");
	pinion::check(pinion_wait(endpoint.get(), receive, PINION_FOREVER,
				  nullptr),
		      "wait");
	pinion::check(pinion_wait(endpoint.get(), send, PINION_FOREVER,
				  nullptr),
		      "wait");
	return arrived;
}

static pinion_cache_stats query(const pinion::context &context)
{
	pinion_cache_stats stats = {};

	stats.size = sizeof(stats);
	pinion::check(pinion_cache_query(context.get(), &stats), "query");
	return stats;
}

int main()
{
	pinion::context context;
	pinion::endpoint endpoint(context);
	pinion::heap heap(context);
	pinion_address address;
	pinion_peer *self;
	double sum = 0;

	pinion::check(pinion_endpoint_address(endpoint.get(), &address),
		      "address");
	pinion::check(pinion_peer_add(endpoint.get(), &address, &self), "peer");
	for (int i = 0; i < 10; i++) {
		numbers v(100000, heap);

		std::iota(v.begin(), v.end(), i);
		v = round_trip(endpoint, self, v);
		sum += v.back();
	}
	std::printf("sum of the last ones: %.0f\n", sum);
	std::printf("registered for messages: %llu times\n",
		    (unsigned long long)query(context).registrations);
	return sum == 10 * 99999 + 45 ? 0 : 1;
}
