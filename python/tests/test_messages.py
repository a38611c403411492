# SPDX-License-Identifier: BSD-2-Clause
"""Messages and one-sided operations."""

import gc
import os
import select
import signal
import sys
import threading
import time

import pytest

import pinion
from conftest import SPAWN, finish, noise, run

try:
    import numpy
except ImportError:
    numpy = None

SIZES = [0, 1, 8, 255, 4096, 8192, 8193, 65536, 1 << 20, (5 << 20) + 3]


def exchange(pipe, seed, theirs):
    """Sends an array of each size and receives one; every byte is checked."""
    with pinion.Context() as ctx, ctx.endpoint() as ep:
        pipe.send_bytes(ep.address)
        peer = ep.peer(pipe.recv_bytes())
        for turn in range(2):
            for size in SIZES:
                out, into = noise(size, seed + turn), bytearray(size)
                if numpy is not None and turn:
                    out = numpy.frombuffer(out, "u1")
                    into = numpy.zeros(size, "u1")
                receive = ep.recv(into, peer, tag=size)
                send = ep.send(out, peer, tag=size)
                pinion.wait_all([send, receive], timeout=120)
                assert receive.len == size and receive.tag == size
                assert receive.peer is peer
                assert bytes(into) == bytes(noise(size, theirs + turn))
        pipe.send_bytes(b"done")
        pipe.recv_bytes()


def test_two_processes_exchange_arrays_and_check_every_byte():
    here, there = SPAWN.Pipe()
    other = run(exchange, there, 3, 70)
    exchange(here, 70, 3)
    finish(other)


@pytest.fixture
def short_calls(monkeypatch):
    """Which functions short messages are passed to."""
    used = []

    def noted(name, function):
        def call(*arguments):
            used.append(name)
            return function(*arguments)
        return call

    for name in ("_inject", "_inject_sleeping", "_recv_short",
                 "_recv_sleeping"):
        monkeypatch.setattr(pinion._endpoint, name,
                            noted(name, getattr(pinion._endpoint, name)))
    return used


def test_short_messages_keep_the_gil_only_while_nobody_is_inside(
        ep, me, short_calls):
    """Another thread may have the endpoint's lock while it registers."""
    def both():
        short_calls.clear()
        ep.send(b"x", me)
        ep.recv(bytearray(1)).wait()
        return short_calls[:]

    assert both() == ["_inject", "_recv_short"]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # threads change inside calls alone
    for wait in (lambda r: r.wait(), lambda r: r.wait(timeout=60)):
        request = ep.recv(bytearray(8), tag=99)
        thread = threading.Thread(target=wait, args=(request,))
        thread.start()
        while not ep._inside:
            time.sleep(0.001)
        assert both() == ["_inject_sleeping", "_recv_sleeping"]
        ep.send(b"12345678", me, 99)
        thread.join()
        assert both() == ["_inject", "_recv_short"]
    sys.setswitchinterval(interval)
    for call in (ep.poll, ep.progress, ep.probe):
        call()
    assert not ep._inside


def test_a_progress_thread_may_be_inside_at_any_time(short_calls):
    with pinion.Context(progress="thread") as ctx, ctx.endpoint() as ep:
        me = ep.peer(ep.address)
        ep.send(b"x", me)
        ep.recv(bytearray(1)).wait()
        assert short_calls == ["_inject_sleeping", "_recv_sleeping"]


def test_tags_spaces_and_data(ep, me):
    got = bytearray(4)
    ep.send(b"tag7", me, 7)
    ep.send(b"spac", me, 7, space=3)
    ep.send(b"data", me, 8, data=0xdeadbeef)
    request = ep.recv(got, tag=7, space=3).wait()
    assert got == b"spac" and request.data is None
    assert ep.recv(got, tag=0x107, ignore=0x100).wait().tag == 7
    assert got == b"tag7"
    assert ep.recv(got, me, 8).wait().data == 0xdeadbeef


DATA = 0x0123456789abcdef


@pytest.mark.parametrize("nbytes", [0, 8, 5000, 1 << 20])
def test_all_64_bits_of_data_arrive(ep, me, nbytes):
    """In a Request, in what poll() returns, and in what probe() finds."""
    source, got = noise(nbytes, 3), bytearray(nbytes)
    for data in (0, 1, 1 << 31, 1 << 32, DATA, 2**64 - 1):
        request = ep.recv(got, tag=1)
        sent = ep.send(source, me, 1, data=data)
        assert request.wait().data == data
        sent.wait()
        ep.recv(got, tag=2, user="polled")
        sent = ep.send(source, me, 2, data=data)
        found = []
        while not found:
            found = ep.poll()
        assert found[0].data == data and found[0].user == "polled"
        sent.wait()
        sent = ep.send(source, me, 3, data=data)
        unexpected = None
        while unexpected is None:
            unexpected = ep.probe(tag=3)
        assert unexpected.data == data
        assert unexpected.recv(got).wait().data == data
        sent.wait()
    for wrong, error in ((1 << 64, ValueError), (-1, ValueError),
                         ("x", TypeError), (1.5, TypeError)):
        with pytest.raises(error, match="data"):
            ep.send(source, me, 4, data=wrong)


def test_a_long_message_into_a_short_buffer_is_truncated(ep, me):
    request = ep.recv(bytearray(4))
    ep.send(b"too long", me)
    with pytest.raises(pinion.Truncated):
        request.wait()
    assert request.message_len == 8
    with pytest.raises(pinion.Truncated):
        request.done()


def test_a_receive_can_be_canceled(ep):
    request = ep.recv(bytearray(4), tag=99)
    assert not request.done()
    with pytest.raises(pinion.TimedOut):
        request.wait(timeout=0.01)
    request.cancel()
    with pytest.raises(pinion.Canceled):
        request.wait()
    request.cancel()


def test_a_message_is_looked_at_before_it_is_received(ep, me):
    assert ep.probe(tag=5) is None
    ep.send(b"how long am I", me, 5)
    found = None
    while found is None:
        found = ep.probe(tag=5)
    assert found.message_len == 13 and found.peer is me
    got = bytearray(found.message_len)
    found.recv(got).wait()
    assert got == b"how long am I"
    with pytest.raises(ValueError):
        found.recv(got)


def test_completions_are_polled_with_their_user_object(ep, me):
    buffers = [bytearray(100) for _ in range(50)]
    for i, buf in enumerate(buffers):
        assert ep.recv(buf, tag=i, user=("got", i)) is None
        ep.send(noise(100, i), me, i, user=("sent", i), delivery=True)
    ended, poll = set(), select.poll()
    poll.register(ep.fileno(), select.POLLIN)
    until = time.monotonic() + 60
    while len(ended) < 100 and time.monotonic() < until:
        found = ep.poll(7)
        assert len(found) <= 7
        for completion in found:
            assert completion.error is None
            ended.add(completion.user)
        if not found and ep.arm():
            poll.poll(1000)
    assert len(ended) == 100
    assert all(buf == noise(100, i) for i, buf in enumerate(buffers))


def test_a_request_that_is_dropped_goes_on_and_holds_its_memory(ep, me):
    memory = bytearray(1 << 20)
    ep.recv(memory, tag=1)
    gc.collect()
    with pytest.raises(BufferError):
        memory.append(1)
    ep.send(noise(1 << 20, 5), me, 1).wait()
    until = time.monotonic() + 60
    while ep._orphans and time.monotonic() < until:
        ep.progress()
    assert memory == noise(1 << 20, 5)
    memory.append(1)


def test_so_does_a_short_receive_that_is_dropped(ep, me):
    dropped = [bytearray(8) for _ in range(20)]
    for tag, memory in enumerate(dropped):
        ep.recv(memory, tag=100 + tag)
    gc.collect()
    for memory in dropped:
        with pytest.raises(BufferError):
            memory.append(1)
    # Others are received meanwhile, also several at a time.
    for i in range(50):
        several = [(bytearray(8), tag) for tag in range(1, 4)]
        requests = [ep.recv(memory, tag=tag) for memory, tag in several]
        for memory, tag in several:
            ep.send(bytes([i, tag] * 4), me, tag)
        pinion.wait_all(requests)
        assert all(memory == bytes([i, tag] * 4) for memory, tag in several)
        assert [request.tag for request in requests] == [1, 2, 3]
    for tag, memory in enumerate(dropped):
        ep.send(bytes([tag] * 8), me, 100 + tag)
    ep.send(b"last", me, 1)
    ep.recv(bytearray(8), tag=1).wait()
    ep.progress()
    for tag, memory in enumerate(dropped):
        assert memory == bytes([tag] * 8)
        memory.append(1)
    assert len(ep._short) < 40


def test_records_of_short_receives_are_used_again(ep, me):
    kept = []
    for i in range(2000):
        ep.send(bytes([i & 255] * 8), me, i)
        request = ep.recv(bytearray(8), tag=i).wait()
        if i % 100 == 0:
            kept.append((i, request))
    assert len(ep._short) < 100
    assert [request.tag for _, request in kept] == [i for i, _ in kept]


def test_tag_none_receives_any_tag(ep, me):
    for nbytes in (8, 5000):
        for tag in (0, 7, 2**64 - 1):
            ep.send(noise(nbytes, tag & 255), me, tag)
            got = bytearray(nbytes)
            request = ep.recv(got, tag=None).wait()
            assert request.tag == tag
            assert got == noise(nbytes, tag & 255)
    ep.send(b"abc", me, 9)
    found = None
    while found is None:
        found = ep.probe(tag=None)
    assert (found.tag, found.message_len) == (9, 3)
    found.recv(bytearray(3)).wait()


def test_what_newcomers_do_wrong_is_said_in_words(ctx, ep, me):
    with pytest.raises(TypeError, match=r"text\.encode"):
        ep.send("text", me)
    with pytest.raises(TypeError, match="access: a number, not str"):
        ctx.pin(bytearray(8), access="rw")
    with pytest.raises(RuntimeError, match="inside a coroutine"):
        ctx.async_endpoint()


def test_read_only_memory_is_sent_and_not_received_into(ep, me):
    got = bytearray(3)
    for source in (b"abc", memoryview(b"abc")):
        ep.send(source, me)
        ep.recv(got).wait()
        assert got == b"abc"
        with pytest.raises(TypeError, match="read-only"):
            ep.recv(source)
    if numpy is not None:
        source = numpy.arange(3, dtype="u1")
        source.flags.writeable = False
        ep.send(source, me)
        ep.recv(got).wait()
        assert got == bytes([0, 1, 2])
        objects = numpy.array([object(), None])
        for refused in (source, numpy.zeros(10)[::2], objects,
                        memoryview(objects)):
            with pytest.raises(TypeError):
                ep.recv(refused)


def test_wrong_arguments_are_refused(ep, me, ctx):
    with ctx.endpoint() as other:
        foreign = other.peer(ep.address)
        for wrong in (foreign, None, 5, b"x", ep):
            with pytest.raises((TypeError, ValueError)):
                ep.send(b"x", wrong)
        with pytest.raises(ValueError):
            ep.recv(bytearray(1), foreign)
    for wrong in (-1, 1 << 64):
        with pytest.raises(ValueError, match="tag"):
            ep.send(b"x", me, wrong)
        with pytest.raises(ValueError, match="tag"):
            ep.recv(bytearray(1), tag=wrong)
    for wrong in ("x", None, 1.5):
        with pytest.raises(TypeError):
            ep.send(b"x", me, wrong)
    for wrong in ("x", 1.5):
        with pytest.raises(TypeError):
            ep.recv(bytearray(1), tag=wrong)
    with pytest.raises(ValueError):
        ep.send(b"x", me, space=256)
    for address in (b"", b"\0\0\0\0", b"x" * 100, ep.address + b"x" * 600,
                    ep.address[:-1]):
        with pytest.raises((ValueError, pinion.Error)):
            ep.peer(address)
    with pytest.raises(TypeError):
        ep.peer("text")
    for kind in (pinion.Peer, pinion.Request, pinion.Pin):
        with pytest.raises(TypeError):
            kind()


def test_operations_of_a_closed_endpoint_are_refused(ctx):
    ep = ctx.endpoint()
    me = ep.peer(ep.address)
    exposure = ep.expose(bytearray(4096))
    remote = ep.remote(me, exposure.key)
    request = ep.recv(bytearray(10))
    ep.close()
    ep.close()
    for action in (lambda: ep.send(b"x", me), lambda: ep.recv(bytearray(1)),
                   request.wait, request.done, ep.poll, ep.stats,
                   lambda: ep.address, lambda: me.address, me.fence, me.flush,
                   lambda: ep.peer(b"\4\0\0\0abcd"), lambda: exposure.key,
                   lambda: ep.expose(bytearray(10)), ep.fileno, ep.arm,
                   lambda: ep.probe(), lambda: ep.explain(8),
                   lambda: remote.put(b"x"), lambda: remote.fetch_add(0, 1)):
        with pytest.raises(ValueError):
            action()
    exposure.close()
    remote.close()


def test_an_endpoint_closed_under_a_waiting_thread_wakes_it(ctx):
    ep = ctx.endpoint()
    ended, begun = [], threading.Event()

    def work():
        request = ep.recv(bytearray(10))
        begun.set()
        try:
            request.wait()
        except pinion.ClosedError as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait(60)
    time.sleep(0.05)
    ep.close()
    thread.join(60)
    assert len(ended) == 1


def test_other_threads_run_while_one_waits(ep, me):
    """The GIL is released: else nobody could send what is waited for."""
    got = bytearray(5)
    request = ep.recv(got, tag=3)
    threading.Timer(0.2, lambda: ep.send(b"there", me, 3)).start()
    request.wait(timeout=60)
    assert got == b"there"


def test_a_signal_interrupts_a_wait_and_the_request_goes_on(ep, me):
    class Interrupted(Exception):
        pass

    def handler(*_):
        raise Interrupted

    got = bytearray(5)
    request = ep.recv(got, tag=3)
    before = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(Interrupted):
            request.wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    ep.send(b"later", me, 3)
    request.wait()
    assert got == b"later"


def test_put_get_and_atomics(ep, me):
    memory = bytearray(noise(1 << 20, 1))
    with ep.expose(memory) as exposure, \
            ep.remote(me, exposure.key) as remote:
        got = bytearray(70_000)
        remote.get(got, offset=123).wait()
        assert got == noise(1 << 20, 1)[123:70_123]
        ep.put(remote, noise(70_000, 2), 4096).wait()
        me.fence()
        me.flush().wait()
        assert memory[4096:74_096] == noise(70_000, 2)
        memory[:8] = (41).to_bytes(8, "little")
        assert remote.fetch_add(0, 1) == 41
        assert remote.swap(0, 7) == 42
        assert remote.compare_swap(0, 7, 9) == 7
        assert remote.fetch_add(0, -1) == 9
        assert memory[:8] == (8).to_bytes(8, "little")
        with pytest.raises(pinion.Refused):
            remote.get(got, offset=1 << 20).wait()
        with pytest.raises(pinion.InvalidError):
            remote.fetch_add(3, 1)
        for wrong in (-1, "x", 1 << 65):
            with pytest.raises((TypeError, ValueError)):
                remote.get(got, offset=wrong)
        with pytest.raises(BufferError):
            memory.append(1)
        with pytest.raises(TypeError, match="read-only"):
            remote.get(b"read-only")
    memory.append(1)
    with pytest.raises(ValueError):
        remote.get(got)


def test_a_closed_exposure_is_refused_to_its_peers(ep, me):
    exposure = ep.expose(bytearray(65536))
    remote = ep.remote(me, exposure.key)
    remote.get(bytearray(8)).wait()
    exposure.close()
    with pytest.raises(pinion.Refused):
        remote.get(bytearray(8)).wait()
    with pytest.raises(pinion.ClosedError):
        exposure.key


def test_read_only_memory_can_be_exposed_for_reading(ep, me):
    source = bytes(noise(65536, 4))
    with ep.expose(source) as exposure:
        remote = ep.remote(me, exposure.key)
        got = bytearray(65536)
        remote.get(got).wait()
        assert got == source
        with pytest.raises(pinion.Refused):
            remote.put(b"x").wait()
    with pytest.raises(TypeError):
        ep.expose(source, pinion.Access.REMOTE_WRITE)
    for wrong in (1, 1 << 30, -1):
        with pytest.raises(ValueError):
            ep.expose(bytearray(10), wrong)
    for wrong in (b"", b"\xff" * 20, b"\4\0\0\0abcd"):
        with pytest.raises((ValueError, pinion.Error)):
            ep.remote(me, wrong)


def test_a_conditional_write_waits_for_its_grant(ep, me):
    got = bytearray(100_000)
    write = ep.put_when(noise(100_000, 6), me, 4)
    assert not write.done()
    grant = ep.grant(got, me, 4)
    pinion.wait_all([write, grant], timeout=60)
    assert got == noise(100_000, 6) and grant.len == 100_000


def victim(pipe):
    ctx = pinion.Context()
    ep = ctx.endpoint()
    pipe.send_bytes(ep.address)
    peer = ep.peer(pipe.recv_bytes())
    ep.send(b"hello", peer).wait()
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_peer_that_is_killed_ends_its_requests(ep):
    here, there = SPAWN.Pipe()
    process = run(victim, there)
    peer = ep.peer(here.recv_bytes())
    here.send_bytes(ep.address)
    got = bytearray(5)
    ep.recv(got, peer).wait(timeout=60)
    with pytest.raises(pinion.PeerGone):
        ep.recv(got, peer).wait(timeout=60)
    process.join(60)


def test_a_message_is_explained(ep):
    rows = ep.explain(1 << 20, reuse=10)
    assert len(rows) >= 3
    assert sum(row.chosen for row in rows) == 1
    assert all(bool(row.reason) == row.chosen for row in rows)
    assert [r.protocol for r in ep.explain(8)] == ["eager"]
    for wrong in (-1, "x", 1 << 64):
        with pytest.raises((TypeError, ValueError)):
            ep.explain(wrong)


def test_messages_are_counted(ep, me):
    ep.send(b"12345678", me)
    ep.recv(bytearray(8)).wait()
    stats = ep.stats()
    assert stats.received == 1 and stats.sent_eager == 1
    assert stats.max_inject_bytes >= 8


def test_virtual_time_has_no_descriptor():
    with pinion.Context("sim") as ctx, ctx.endpoint() as ep:
        with pytest.raises(pinion.Error) as caught:
            ep.fileno()
        assert caught.value.errno == 95
