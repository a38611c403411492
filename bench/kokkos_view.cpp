// SPDX-License-Identifier: BSD-2-Clause
//
// kokkos_view MIN MAX TRIALS -- the processes of `pinion bench view`: moves the
// contents of a View of Kokkos into memory of another process by a put, in each
// of these ways (Levy and others 2020, figure 7):
//
//   0 pinned     the View is in heap memory (pinion::kokkos_space)
//   1 host       the View is in ordinary memory, which is registered for the
//                put
//   2 serialise  Kokkos::deep_copy() into a View in heap memory that is made
//                for the put
//   3 elements   the same, element by element, as an archive does
//
// Prints a line "bytes way nanoseconds loop" for each size and way: the median
// over the trials, which alternate, and the loop time of the core
// (core_speed.h). The registration of `host` is ended between trials, and that
// is not timed; nor is making the View. PINION_DEVICE names the device.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <pinion/kokkos.hpp>

#include "bench/core_speed.h"

namespace
{

using heap_view =
	Kokkos::View<double **, Kokkos::LayoutRight, pinion::kokkos_space>;
using host_view =
	Kokkos::View<double **, Kokkos::LayoutRight, Kokkos::HostSpace>;

constexpr std::size_t COLUMNS = 16;
constexpr std::size_t ROW = COLUMNS * sizeof(double);
constexpr unsigned WAYS = 4;

struct arguments {
	std::size_t min, max, trials;
};

// What each end tells the other before anything moves.
struct hello {
	pinion_address address;
	struct pinion_exposure_key key;
};

void must(bool ok, const char *what)
{
	if (!ok)
		throw std::runtime_error(what);
}

struct end {
	pinion::context context{ { "log=none" } };
	pinion::endpoint ep{ context };
	int control;

	explicit end(int fd) : control(fd)
	{
	}

	hello address() const
	{
		hello mine = {};

		pinion::check(pinion_endpoint_address(ep.get(), &mine.address),
			      "address");
		return mine;
	}

	hello exchange(const hello &mine) const
	{
		hello theirs;

		must(send(control, &mine, sizeof(mine), MSG_NOSIGNAL) ==
			     sizeof(mine),
		     "the other process has ended");
		must(recv(control, &theirs, sizeof(theirs), MSG_WAITALL) ==
			     sizeof(theirs),
		     "the other process has ended");
		return theirs;
	}
};

// The target: exposes memory, and sleeps until a byte comes.
void expose(int control, std::size_t bytes)
{
	end e(control);
	std::vector<char> memory(bytes);
	pinion_exposure *exposure = nullptr;
	pinion_message last = {};
	pinion_request *request = nullptr;
	char byte = 0;

	pinion::check(pinion_exposure_open(e.ep.get(), memory.data(), bytes,
					   PINION_ACCESS_REMOTE_WRITE,
					   &exposure),
		      "exposure");
	hello mine = e.address();
	pinion::check(pinion_exposure_key(exposure, &mine.key), "key");
	e.exchange(mine);
	last.size = sizeof(last);
	last.buf = &byte;
	last.len = 1;
	pinion::check(pinion_recv(e.ep.get(), &last, &request), "recv");
	pinion::check(pinion_wait(e.ep.get(), request, PINION_FOREVER, nullptr),
		      "wait");
	pinion_exposure_close(exposure);
}

// The initiator.
class mover
{
      public:
	explicit mover(int control) : end_(control), heap_(end_.context)
	{
		const hello theirs = end_.exchange(end_.address());

		pinion::check(pinion_peer_add(end_.ep.get(), &theirs.address,
					      &peer_),
			      "peer");
		pinion::check(pinion_remote_open(end_.ep.get(), peer_,
						 &theirs.key, &remote_),
			      "remote");
		pinion::kokkos_space::use(heap_);
	}

	mover(const mover &) = delete;
	mover &operator=(const mover &) = delete;

	~mover()
	{
		pinion_remote_close(remote_);
	}

	void finish()
	{
		pinion_message last = {};
		pinion_request *request = nullptr;
		char byte = 0;

		last.size = sizeof(last);
		last.buf = &byte;
		last.len = 1;
		last.peer = peer_;
		pinion::check(pinion_send(end_.ep.get(), &last, &request),
			      "send");
		wait(request);
	}

	// Medians of each way, in ns.
	std::vector<double> measure(std::size_t bytes, std::size_t trials)
	{
		const heap_view pinned("pinned", bytes / ROW, COLUMNS);
		const host_view host("host", bytes / ROW, COLUMNS);
		std::vector<double> ns[WAYS], medians;

		Kokkos::deep_copy(pinned, 1);
		Kokkos::deep_copy(host, 2);
		for (std::size_t i = 0; i <= trials; i++)
			for (unsigned way = 0; way < WAYS; way++) {
				const double took = time(way, pinned, host);

				if (i) // the first warms up
					ns[way].push_back(took);
			}
		for (auto &list : ns) {
			auto middle = list.begin() + list.size() / 2;

			std::nth_element(list.begin(), middle, list.end());
			medians.push_back(*middle);
		}
		return medians;
	}

      private:
	void wait(pinion_request *request)
	{
		pinion::check(pinion_wait(end_.ep.get(), request,
					  PINION_FOREVER, nullptr),
			      "wait");
	}

	template <class V> void put(const V &view)
	{
		pinion_move move = {};
		pinion_request *request = nullptr;

		move.size = sizeof(move);
		move.remote = remote_;
		move.buf = view.data();
		move.len = view.span() * sizeof(double);
		pinion::check(pinion_put(end_.ep.get(), &move, &request),
			      "put");
		wait(request);
	}

	void put_registering(const host_view &host)
	{
		pinion::pin pin(end_.context, host.data(),
				host.span() * sizeof(double), 0);

		put(host);
	}

	static heap_view room(const host_view &host)
	{
		return heap_view(
			Kokkos::view_alloc("copy", Kokkos::WithoutInitializing),
			host.extent(0), host.extent(1));
	}

	void put_serialised(const host_view &host)
	{
		const heap_view copy = room(host);

		Kokkos::deep_copy(copy, host);
		put(copy);
	}

	void put_elements(const host_view &host)
	{
		const heap_view copy = room(host);

		for (std::size_t i = 0; i < host.extent(0); i++)
			for (std::size_t j = 0; j < host.extent(1); j++)
				copy(i, j) = host(i, j);
		put(copy);
	}

	double time(unsigned way, const heap_view &pinned,
		    const host_view &host)
	{
		const auto start = std::chrono::steady_clock::now();

		if (way == 0)
			put(pinned);
		else if (way == 1)
			put_registering(host);
		else if (way == 2)
			put_serialised(host);
		else
			put_elements(host);
		const auto took = std::chrono::steady_clock::now() - start;
		// Registered memory of `host` ends here.
		pinion::check(pinion_cache_flush(end_.context.get()), "flush");
		return std::chrono::duration<double, std::nano>(took).count();
	}

	end end_;
	pinion::heap heap_;
	pinion_peer *peer_ = nullptr;
	pinion_remote *remote_ = nullptr;
};

void lead(int control, const arguments &a)
{
	Kokkos::ScopeGuard kokkos;
	mover m(control);

	for (std::size_t bytes = a.min; bytes <= a.max; bytes *= 2) {
		const auto ns = m.measure(bytes, a.trials);

		for (unsigned way = 0; way < WAYS; way++)
			std::printf("%zu %u %.1f %.1f\n", bytes, way, ns[way],
				    pn_core_loop_ns());
	}
	m.finish();
}

// The target is forked first: no device survives fork(), nor do threads.
int run(const arguments &a)
{
	int ends[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
		return 1;
	const pid_t child = fork();

	try {
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			expose(ends[1], a.max);
			std::_Exit(0);
		}
		close(ends[1]);
		lead(ends[0], a);
		return 0;
	} catch (const std::exception &e) {
		std::fprintf(stderr, "kokkos_view: %s\n", e.what());
		if (!child)
			std::_Exit(1);
		return 1;
	}
}

} // namespace

int main(int argc, char **argv)
{
	arguments a = {};

	if (argc == 4)
		a = { std::strtoul(argv[1], nullptr, 10),
		      std::strtoul(argv[2], nullptr, 10),
		      std::strtoul(argv[3], nullptr, 10) };
	if (a.min < ROW || a.max < a.min || !a.trials) {
		std::fprintf(stderr, "usage: kokkos_view MIN MAX TRIALS\n");
		return 2;
	}
	return run(a);
}
