# SPDX-License-Identifier: BSD-2-Clause
"""mpi4py_all.py LEVEL -- sends, collectives and windows by mpi4py: a digest of
each, the same over every transport. LEVEL is what MPI is asked for: multiple,
serialized, ... Run by check_mpi4py."""
import array
import hashlib
import sys

import mpi4py

mpi4py.rc.thread_level = sys.argv[1]
from mpi4py import MPI  # initializes it

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
following, preceding = (rank + 1) % size, (rank - 1) % size


def section(name, data):
    """Rank 0 prints a digest of what all ranks have."""
    all_data = comm.gather(data, root=0)
    if rank == 0:
        digest = hashlib.sha256(repr(all_data).encode()).hexdigest()[:16]
        print(name, digest, flush=True)


# Objects and buffers, short and long.
got = comm.sendrecv({"from": rank, "list": list(range(1000))}, dest=following,
                    source=preceding)
assert got["from"] == preceding
section("objects", got)
for count in (1, 1000, 300000):
    out = array.array("q", range(rank, rank + count))
    into = array.array("q", bytes(8 * count))
    request = comm.Irecv([into, MPI.INT64_T], source=preceding, tag=count)
    comm.Send([out, MPI.INT64_T], dest=following, tag=count)
    request.Wait()
    assert into[-1] == preceding + count - 1
    section("send %d" % count, sum(into))

# Collectives.
section("bcast", comm.bcast(list(range(100)) if rank == 0 else None, root=0))
section("allreduce", comm.allreduce(rank + 1, op=MPI.SUM))
section("alltoall", comm.alltoall([rank * 100 + i for i in range(size)]))
section("scan", comm.scan(rank + 1))

# Windows: put, get, accumulate, tickets.
memory = array.array("q", bytes(8 * 1000))
window = MPI.Win.Create(memory, 8, comm=comm)
window.Fence()
window.Put([array.array("q", [rank] * 100), MPI.INT64_T], following, 0)
window.Fence()
assert memory[99] == preceding
into = array.array("q", bytes(8 * 100))
window.Get([into, MPI.INT64_T], following, 0)
window.Fence()
assert into[0] == rank
one, ticket = array.array("q", [1]), array.array("q", [0])
window.Lock_all()
tickets = []
for _ in range(10):
    window.Fetch_and_op([one, MPI.INT64_T], [ticket, MPI.INT64_T], 0, 500,
                        MPI.SUM)
    window.Flush(0)
    tickets.append(ticket[0])
for target in range(size):
    window.Accumulate([one, MPI.INT64_T], target, 600, op=MPI.SUM)
window.Unlock_all()
comm.Barrier()
drawn = sorted(t for part in comm.allgather(tickets) for t in part)
assert drawn == list(range(10 * size)), drawn
window.Lock(rank)
section("windows", list(memory))
window.Unlock(rank)
window.Free()
