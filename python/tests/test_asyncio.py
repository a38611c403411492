# SPDX-License-Identifier: BSD-2-Clause
"""Endpoints in asyncio."""

import asyncio
import os
import random
import signal
import struct

import pytest

import pinion
from conftest import noise


def test_messages_and_moves_are_awaited(ctx):
    async def main():
        with ctx.async_endpoint() as ep:
            me = ep.peer(ep.address)
            got = bytearray(1 << 20)
            sent, received = await asyncio.gather(
                ep.send(noise(1 << 20, 1), me, 5, data=5 << 60),
                ep.recv(got, tag=5))
            assert received.len == 1 << 20 and received.peer is me
            assert received.data == 5 << 60
            assert got == noise(1 << 20, 1) and sent.status == 0
            with ep.expose(got) as exposure, \
                    ep.remote(me, exposure.key) as remote:
                part = bytearray(1000)
                await ep.get(remote, part, 7)
                assert part == got[7:1007]
                await ep.put(remote, b"new", 9)
                assert got[9:12] == b"new"
            await asyncio.gather(ep.put_when(b"granted", me, 1),
                                 ep.grant(got, me, 1))
            assert got[:7] == b"granted"

    asyncio.run(main())


def test_messages_of_unknown_length_are_awaited(ctx):
    async def main():
        with ctx.async_endpoint() as ep:
            me = ep.peer(ep.address)
            for nbytes in (0, 13, 300_000):
                sent = ep.send(noise(nbytes, nbytes), me, 5)
                while not (found := ep.probe(tag=None)):
                    await asyncio.sleep(0)
                got = bytearray(found.message_len)
                with pytest.raises(TypeError):
                    ep.recv_unexpected(found, bytes(got))
                received = await ep.recv_unexpected(found, got)
                assert received.len == nbytes and received.tag == 5
                assert got == noise(nbytes, nbytes)
                await sent
                with pytest.raises(ValueError):
                    ep.recv_unexpected(found, got)
            assert [row for row in ep.explain(1 << 20) if row.chosen]

    asyncio.run(main())


def test_a_flush_is_awaited(ctx):
    async def main():
        with ctx.async_endpoint() as ep:
            me, memory = ep.peer(ep.address), bytearray(1 << 20)
            with ep.expose(memory) as exposure, \
                    ep.remote(me, exposure.key) as remote:
                puts = [ep.put(remote, noise(1 << 16, i), i << 16)
                        for i in range(16)]
                flushed = await ep.flush(me)
                assert flushed.status == 0
                for i in range(16):
                    assert memory[i << 16:(i + 1) << 16] == noise(1 << 16, i)
                await asyncio.gather(*puts)

    asyncio.run(main())


def test_thousands_are_awaited_together(ctx):
    async def main():
        with ctx.async_endpoint() as ep:
            me = ep.peer(ep.address)
            buffers = [bytearray(8) for _ in range(5000)]
            receives = [ep.recv(b, tag=i) for i, b in enumerate(buffers)]
            for i in reversed(range(5000)):
                await ep.send(struct.pack("Q", i), me, i)
            await asyncio.gather(*receives)
            assert all(b == struct.pack("Q", i)
                       for i, b in enumerate(buffers))

    asyncio.run(main())


def test_errors_arrive_at_the_await(ctx):
    async def main():
        with ctx.async_endpoint() as ep:
            me = ep.peer(ep.address)
            with pytest.raises(TypeError):
                await ep.recv(b"read-only")
            receive = ep.recv(bytearray(3))
            await ep.send(b"too long", me)
            with pytest.raises(pinion.Truncated):
                await receive

    asyncio.run(main())


def test_a_canceled_receive_lets_go_of_its_memory(ctx):
    async def main():
        with ctx.async_endpoint() as ep:
            memory = bytearray(100)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(ep.recv(memory, tag=77), 0.05)
            for _ in range(1000):
                if not ep._ep._users:
                    break
                await asyncio.sleep(0.01)
            assert not ep._ep._users
            memory.append(1)

    asyncio.run(main())


def test_closing_cancels_what_is_awaited(ctx):
    async def main():
        ep = ctx.async_endpoint()
        waiting = ep.recv(bytearray(10))
        ep.close()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())


def test_closing_the_context_stops_watching_the_descriptor():
    async def main():
        ctx = pinion.Context()
        ep = ctx.async_endpoint()
        waiting = ep.recv(bytearray(10))
        ctx.close()
        assert ep.closed
        reader, writer = os.pipe()  # may have the number of the descriptor
        asyncio.get_running_loop().add_reader(reader, lambda: None)
        asyncio.get_running_loop().remove_reader(reader)
        os.close(reader)
        os.close(writer)
        with pytest.raises(asyncio.CancelledError):
            await waiting
        with pytest.raises(pinion.ClosedError):
            ep.recv(bytearray(10))

    asyncio.run(main())


def test_an_endpoint_needs_a_running_loop(ctx):
    with pytest.raises(RuntimeError):
        ctx.async_endpoint()


CLIENTS, QUESTIONS, KILLED = 100, 20, 15


def client(server, number, doomed):
    """Asks, and checks the answers; some are killed in the middle."""
    try:
        with pinion.Context() as ctx, ctx.endpoint() as ep:
            peer = ep.peer(server)
            answer = bytearray(10_000)
            for i in range(QUESTIONS):
                question = struct.pack("QQ", number, i)
                request = ep.recv(answer, peer, tag=1)
                ep.send(question, peer, tag=2).wait()
                if doomed and i == QUESTIONS // 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                got = request.wait(timeout=240)
                size = 100 + (number * 97 + i * 31) % 9000
                assert got.len == size, (got.len, size)
                assert answer[:size] == noise(size, number + i)
        code = 0
    except BaseException as error:
        print(f"client {number}: {error!r}", flush=True)
        code = 1
    os._exit(code)


async def serve(ep, answered):
    """Answers until it is canceled."""
    async def answer(peer, number, i):
        size = 100 + (number * 97 + i * 31) % 9000
        try:
            await ep.send(noise(size, number + i), peer, tag=1)
            answered.append(number)
        except (pinion.PeerGone, pinion.Error):
            pass  # killed

    tasks = set()
    question = bytearray(16)
    while True:
        got = await ep.recv(question, tag=2)
        number, i = struct.unpack("QQ", question)
        task = asyncio.ensure_future(answer(got.peer, number, i))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def test_a_server_has_a_hundred_clients_and_some_are_killed():
    """The clients are forked before anything of pinion is open here: a hundred
    interpreters would take the machine's memory."""
    seed = int(os.environ.get("PINION_TEST_SEED", random.randrange(10**6)))
    print("PINION_TEST_SEED", seed)
    doomed = set(random.Random(seed).sample(range(CLIENTS), KILLED))
    gates = [os.pipe() for _ in range(CLIENTS)]
    clients = []
    for number in range(CLIENTS):
        pid = os.fork()
        if not pid:
            for k, (_, write_end) in enumerate(gates):
                os.close(write_end)
            address = os.read(gates[number][0], 4096)
            client(address, number, number in doomed)
        clients.append(pid)
    answered = []

    async def main():
        with pinion.Context() as ctx, ctx.async_endpoint() as ep:
            server = asyncio.ensure_future(serve(ep, answered))
            for read_end, write_end in gates:
                os.write(write_end, ep.address)
                os.close(write_end)
                os.close(read_end)
            codes = await asyncio.get_running_loop().run_in_executor(
                None, lambda: [os.waitpid(pid, 0)[1] for pid in clients])
            assert not server.done(), server
            server.cancel()
            return codes

    codes = asyncio.run(asyncio.wait_for(main(), 500))
    for number, code in enumerate(codes):
        assert code == (signal.SIGKILL if number in doomed else 0), number
    for number in set(range(CLIENTS)) - doomed:
        assert answered.count(number) == QUESTIONS
