# SPDX-License-Identifier: Apache-2.0
"""braid.Communicator against NumPy: every call, dtype and op, in place and not, on odd and large sizes."""

import threading
from typing import Any

import numpy as np
import pytest
from arrays import contribution, join, known_dtypes, ops_for, reduced, same
from ranks import Rank, run_ranks

pytestmark = pytest.mark.multiprocess

FLOAT = np.dtype(np.float32)


def dtypes_for(ranks: int) -> list[np.dtype[Any]]:
    """All with few ranks; with more than there are cores a few will do."""
    return known_dtypes() if ranks <= 3 else [np.dtype(name) for name in ("float64", "float16", "uint8")]


def reduce_everything(rank: Rank) -> None:
    n, r = rank.size, rank.rank
    with join(rank) as comm:
        for dtype in dtypes_for(n):
            for op in ops_for(dtype):
                for count in (0, 1, 1003):
                    x = contribution(r, count, dtype)
                    out = np.empty_like(x)
                    assert comm.all_reduce(x, op, out) is out
                    assert same(out, reduced(op, n, count, dtype)), (dtype, op, count)
                    assert np.array_equal(x, contribution(r, count, dtype))
                x = contribution(r, 13 * n, dtype)
                own = reduced(op, n, 13 * n, dtype)[13 * r : 13 * (r + 1)]
                assert same(comm.reduce_scatter(x.reshape(n, 13), op), own), (dtype, op)
                whole = comm.reduce(x, op, n - 1)
                if r == n - 1:
                    assert whole is x
                    assert same(x, reduced(op, n, 13 * n, dtype))
                else:
                    assert whole is None
        large = contribution(r, 1_000_003, FLOAT)
        assert comm.all_reduce(large, "prod") is large
        assert same(large, reduced("product", n, 1_000_003, FLOAT))


def move_everything(rank: Rank) -> None:
    n, r = rank.size, rank.rank
    with join(rank) as comm:
        for dtype in dtypes_for(n):
            for count in (0, 7, 50_001 if dtype == FLOAT else 1):
                rows = np.stack([contribution(rank, count, dtype) for rank in range(n)])
                assert same(comm.all_gather(rows[r]), rows)
                root = count % n
                filled = rows[r].copy()
                assert comm.broadcast(filled, root) is filled
                assert same(filled, rows[root])
                gathered = comm.gather(rows[r], root)
                assert gathered is None if r != root else same(gathered, rows)
                block = np.empty(count, dtype)
                comm.scatter(rows if r == root else None, root, block)
                assert same(block, rows[r])
                # Block d of rank s is row (s + d) of a larger table.
                table = np.stack([contribution(row, count, dtype) for row in range(2 * n)])
                assert same(comm.all_to_all(table[r : r + n]), table[r : r + n])
        # Unequal blocks: rank r has r + 1 elements; the last one sends rank d its first d.
        counts = [each + 1 for each in range(n)]
        pieces = np.concatenate([np.full(each + 1, each) for each in range(n)])
        assert comm.all_gather(np.full(r + 1, r), counts=counts).tolist() == pieces.tolist()
        gathered = comm.gather(np.full(r + 1, r), 0, counts=counts)
        assert gathered is None if r else gathered.tolist() == pieces.tolist()
        own = comm.scatter(pieces if r == 0 else None, 0, np.empty(r + 1, int), counts=counts)
        assert own.tolist() == [r] * (r + 1)
        assert comm.reduce_scatter(pieces, counts=counts).tolist() == [r * n] * (r + 1)
        came = comm.all_to_all(pieces, send_counts=counts, recv_counts=[r + 1] * n)
        assert came.tolist() == [r] * (n * (r + 1))


def use_odd_arrays(rank: Rank) -> None:
    n, r = rank.size, rank.rank
    total = n * (n - 1) / 2
    with join(rank) as comm:
        scalar = np.array(float(r))
        comm.all_reduce(scalar)
        assert scalar.shape == ()
        assert scalar == total
        matrix = np.full((4, 6), float(r))
        comm.all_reduce(matrix[:, ::2])
        assert (matrix[:, ::2] == total).all()
        assert (matrix[:, 1::2] == r).all()
        # Elements travel in the order of their indices, not of memory: layouts may differ from rank to rank.
        table = np.arange(12.0).reshape(3, 4)
        mixed = np.asfortranarray(table) if r % 2 else table.copy()
        comm.iall_reduce(mixed).wait()
        assert (mixed == n * table).all()
        out = np.zeros((n, 8))[:, ::2]
        comm.all_gather(table.T[:, 0] + r, out=out)
        assert (out == table.T[:, 0] + np.arange(n)[:, None]).all()
        buffer = bytearray([r] * 4)
        comm.broadcast(memoryview(buffer), n - 1)
        assert buffer == bytes([n - 1] * 4)
        fixed = np.arange(3.0)
        fixed.flags.writeable = r != 0
        comm.broadcast(fixed)  # the root only reads


def keep_many_under_way(rank: Rank) -> None:
    n, r = rank.size, rank.rank
    with join(rank) as comm:
        requests = [comm.iall_reduce(np.full(1 + 5000 * (i % 4), float(i + r))) for i in range(40)]
        requests.append(comm.ireduce(np.ones(3), root=0))
        gathered = comm.iall_gather(np.array([r]))
        for i in reversed(range(40)):
            assert (requests[i].wait() == n * i + n * (n - 1) / 2).all()
            assert requests[i].done
        assert gathered.wait(10).ravel().tolist() == list(range(n))
        for _ in range(30):
            comm.iall_reduce(np.ones(100_000))  # dropped: its array must live on by itself
        comm.ibarrier().wait()
        last = comm.ibroadcast(np.full(1, r))
        while not last.test():
            pass
        assert last.wait().tolist() == [0]


def send_in_a_ring(rank: Rank) -> None:
    n, r = rank.size, rank.rank
    right, left = (r + 1) % n, (r - 1) % n
    with join(rank) as comm:
        for count in (0, 1, 300_000):
            out = np.empty(count)
            assert comm.sendrecv(np.full(count, float(r)), right, out, left, tag=3) is out
            assert (out == left).all()
        if n == 1:
            return
        columns = np.zeros((5, 2), np.int16)
        tags = [comm.irecv(columns[:, i], left, tag=i) for i in range(2)]
        for tag in (1, 0):
            comm.send(np.full(5, 10 * r + tag, np.int16), right, tag)
        for request in tags:
            request.wait()
        assert columns.tolist() == [[10 * left, 10 * left + 1]] * 5


def take_from_anybody(rank: Rank) -> None:
    n, r = rank.size, rank.rank
    with join(rank) as comm:
        if n == 1:
            with pytest.raises(ValueError, match="nobody"):
                comm.recv(np.empty(3))
            return
        if r > 0:
            comm.send(np.full(3, float(r)), 0, tag=2)
            return
        sources = []
        for _ in range(n - 1):
            request = comm.irecv(np.empty(3), tag=2)
            out = request.wait()
            assert request.source is not None
            assert out.tolist() == [request.source] * 3
            sources.append(request.source)
        assert sorted(sources) == list(range(1, n))


def split_and_go_on(rank: Rank) -> None:
    n, r = rank.size, rank.rank
    with join(rank, name="all") as comm:
        half = comm.split(r % 2, key=-r)
        assert half is not None
        members = sorted((each for each in range(n) if each % 2 == r % 2), reverse=True)
        assert (half.rank, half.size) == (members.index(r), len(members))
        assert half.all_gather(np.array(r)).tolist() == members
        none = comm.split(0 if r == 0 else None)
        assert (none is None) == (r != 0)
        comm.close()
        assert half.all_reduce(np.ones(1)) == len(members)
        half.close()


def use_threads(rank: Rank) -> None:
    comms = [join(rank, name=f"of thread {i}") for i in range(4)]
    wrong: list[int] = []

    def work(i: int) -> None:
        for step in range(25):
            x = np.full(1 + 2000 * (step % 3), float(i + step))
            if (comms[i].all_reduce(x) != rank.size * (i + step)).any():
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    for comm in comms:
        comm.close()


def make_a_hundred(rank: Rank) -> None:
    for _ in range(20):  # under one name, one after the other
        join(rank).close()
    comms = [join(rank, name=f"number {i}") for i in range(100)]
    for i, comm in enumerate(comms):
        assert comm.all_reduce(np.array([i])).item() == i * rank.size
    for comm in comms[::2]:
        comm.close()
    assert comms[1].all_reduce(np.array([1])).item() == rank.size


def tell_of_itself(rank: Rank) -> None:
    with join(rank, name="of three") as comm:
        assert repr(comm) == f"<braid.Communicator 'of three', rank {rank.rank} of 3>"
        comm.all_reduce(np.ones(10))
        (row,) = [row for row in comm.stats() if row["collective"] == "all_reduce"]
        assert (row["calls"], row["bytes"]) == (1, 80)
        wires = comm.wires()
        assert [line.split(":")[0] for line in wires] == ["rank 0", "rank 1", "rank 2"]
        assert "this process" in wires[rank.rank]


def compare_with_numpy(rank: Rank) -> None:
    reduce_everything(rank)
    move_everything(rank)


def mind_manners(rank: Rank) -> None:
    for function in (use_odd_arrays, keep_many_under_way, send_in_a_ring, take_from_anybody, split_and_go_on):
        function(rank)


@pytest.mark.parametrize("size", [1, 2, 3, *(pytest.param(n, marks=pytest.mark.long) for n in (5, 8))])
def test_against_numpy(size: int, wire: str) -> None:
    run_ranks(compare_with_numpy, size, wire=wire, join=False)


@pytest.mark.parametrize("size", [1, 3])
def test_manners(size: int, wire: str) -> None:
    run_ranks(mind_manners, size, wire=wire, join=False)


@pytest.mark.parametrize("function", [use_threads, make_a_hundred])
def test_many(function: object) -> None:
    run_ranks(function, 2, wire="shm,tcp", join=False)


def test_properties() -> None:
    run_ranks(tell_of_itself, 3, wire="shm,tcp", join=False)
