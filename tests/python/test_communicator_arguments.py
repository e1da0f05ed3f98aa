# SPDX-License-Identifier: Apache-2.0
"""What a communicator refuses, what it says then, and what it takes for an array. One rank suffices."""

import sys
import weakref
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import braid
import numpy as np
import pytest
from braid._array import calls

pytestmark = pytest.mark.unit


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[braid.Communicator]:
    with braid.Communicator(f"file://{tmp_path}/meet", rank=0, size=1) as comm:
        yield comm


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("array", "advice"),
    [
        (np.ones(3).astype(">f8"), "bytes are swapped"),
        (np.array([{}, None]), "pickle"),
        (np.array(["2020-01-01"], "M8[D]"), r"view\(np.int64\)"),
        (np.array(["text"]), r"view\(np.uint8\)"),
        (np.zeros(3, "i4,f8"), r"view\(np.uint8\)"),
        (np.ones(3, np.longdouble), r"astype\(np.float64\)"),
        (np.ma.masked_array(np.ones(3)), "mask"),
        ([1.0, 2.0], "is a list, not a NumPy array"),
        (3.0, "is a float, not a NumPy array"),
        (type("OnGpu", (), {"__cuda_array_interface__": {}})(), "GPU"),
    ],
)
def test_strange_arrays(alone: braid.Communicator, array: Any, advice: str) -> None:
    for call in (alone.all_reduce, alone.iall_gather, alone.broadcast):
        with pytest.raises(TypeError, match=advice):
            call(array)


def test_read_only_outputs(alone: braid.Communicator) -> None:
    fixed = np.ones(3)
    fixed.flags.writeable = False
    for call in (lambda: alone.all_reduce(fixed), lambda: alone.all_gather(np.ones(3), out=fixed)):
        with pytest.raises(ValueError, match="read-only"):
            call()
    assert alone.all_gather(fixed).tolist() == [[1, 1, 1]]


def test_operators(alone: braid.Communicator) -> None:
    for op in ("sum", "avg", "prod", "product", "min", "max"):
        assert alone.all_reduce(np.full(2, 3.0), op).tolist() == [3, 3]
    for op in ("median", None, np.add):
        with pytest.raises(ValueError, match=r"unknown reduction .*there are avg, .*max"):
            alone.all_reduce(np.ones(2), op)
    with pytest.raises(ValueError, match="unknown reduction of type ndarray; there are avg"):
        alone.reduce_scatter(np.ones(2), np.ones(2))  # meant to be out


def test_shapes_of_results() -> None:
    def shape(call: calls.Call) -> tuple[int, ...]:
        assert call.output is not None
        return call.output.memory.shape

    block = np.ones((2, 5))
    assert shape(calls.all_gather(block, None, None, (1, 3))) == (3, 2, 5)
    assert shape(calls.all_gather(block, None, [0, 10, 1], (1, 3))) == (11,)
    assert shape(calls.scatter(np.ones((3, 4)), 0, None, None, (0, 3))) == (4,)
    assert shape(calls.reduce_scatter(np.ones(6), "sum", None, None, (0, 3))) == (2,)
    assert shape(calls.reduce_scatter(np.ones(6), "sum", None, [1, 2, 3], (2, 3))) == (3,)
    assert shape(calls.all_to_all(block, None, None, None, 5)) == (2, 5)
    assert shape(calls.all_to_all(block, None, [4, 6], [1, 2], 2)) == (3,)
    assert shape(calls.all_gather(block, np.ones((5, 6)), None, (0, 3))) == (5, 6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: calls.all_gather(np.ones(3), np.ones(8), None, (0, 3)), "out has 8 elements, expected 9"),
        (lambda: calls.all_gather(np.ones(3), np.ones(9, int), None, (0, 3)), "out has dtype int64"),
        (lambda: calls.all_gather(np.ones(3), None, [3, 3], (0, 3)), "3 numbers of elements"),
        (lambda: calls.gather(np.ones(3), 1, None, [2, 3, 3], (0, 3)), "x has 3 elements, expected 2"),
        (lambda: calls.scatter(None, 1, None, None, (0, 3)), "must give out"),
        (lambda: calls.scatter(np.ones(7), 0, None, None, (0, 3)), "not a multiple of 3"),
        (lambda: calls.reduce_scatter(np.ones(6), "sum", None, [-1, 4, 3], (0, 3)), "3 numbers"),
        (lambda: calls.all_to_all(np.ones(6), None, [3, 3], None, 2), "both"),
        (lambda: calls.reduce(np.ones(6), "sum", 0, np.ones((6, 1)), (0, 1)), "shape"),
        (lambda: calls.scatter(np.ones(6), 3, None, None, (0, 3)), "scatter: root 3 is not in a group of 3"),
        (lambda: calls.broadcast(np.ones(6), -1, (0, 3)), "broadcast: root -1 is not in a group of 3"),
        (lambda: calls.gather(np.ones(6), 2**70, None, None, (0, 3)), "is not in a group of 3"),
    ],
)
def test_counts_and_shapes(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("tcp://localhost", "a host and a port"),
        ("tcp://:29500", "a host and a port"),
        ("tcp://localhost:0", "no port"),
        ("tcp://localhost:99999", "range"),
        ("tcp://localhost:29500/path", "a host and a port"),
        ("file://folder", "three slashes"),
        ("udp://localhost:29500", "tcp://host:port"),
        ("", "tcp://host:port"),
        ("env://", "MASTER_ADDR"),
    ],
)
def test_strange_places(where: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        braid.Communicator(where, rank=0, size=1)


def test_strange_objects() -> None:
    for where in (None, 29500, {}, Path("/tmp/meet")):
        with pytest.raises(TypeError, match=f"cannot meet at a {type(where).__name__}"):
            braid.Communicator(where, rank=0, size=1)


def test_rank_and_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = f"file://{tmp_path}/meet"
    with pytest.raises(ValueError, match=r"give rank=, or set RANK: braid run, torchrun and other"):
        braid.Communicator(where)
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(ValueError, match="WORLD_SIZE"):
        braid.Communicator(where)
    monkeypatch.setenv("WORLD_SIZE", "one")
    with pytest.raises(ValueError, match="WORLD_SIZE=one is no whole number"):
        braid.Communicator(where)
    monkeypatch.setenv("WORLD_SIZE", "1")
    with braid.Communicator(where) as comm:
        assert (comm.rank, comm.size, comm.name) == (0, 1, "world")
    for rank, size in [(1, 1), (-1, 2), (0, 0)]:
        with pytest.raises(ValueError, match="does not exist"):
            braid.Communicator(where, rank=rank, size=size)
    for timeout_s in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="timeout"):
            braid.Communicator(where, timeout_s=timeout_s)
    with braid.Communicator(where, timeout_s=None) as comm:
        comm.set_timeout(float("inf"))
        comm.barrier()


def test_numbers_that_are_none(alone: braid.Communicator) -> None:
    x = np.ones(2)
    for wrong in (1.0, "0", None, np.zeros(1), memoryview(b"0")):
        called = type(wrong).__name__
        for call in (alone.broadcast, alone.gather, alone.scatter, alone.ireduce):
            with pytest.raises(TypeError, match=f": root must be a whole number, not {called}"):
                call(x, root=wrong)
        with pytest.raises(TypeError, match=f"dest must be a whole number, not {called}"):
            alone.send(x, wrong)
        with pytest.raises(TypeError, match=f"tag must be a whole number, not {called}"):
            alone.sendrecv(x, 0, x, 0, tag=wrong)
    for wrong in (1.0, "0", np.zeros(1)):
        with pytest.raises(TypeError, match=f"key must be a whole number, not {type(wrong).__name__}"):
            alone.split(0, key=wrong)
        with pytest.raises(TypeError, match="counts must be a"):
            alone.all_gather(x, counts=wrong)
    for wrong in ("1", timedelta(seconds=1), np.ones(2)):
        with pytest.raises(TypeError, match="a timeout is a number of seconds"):
            alone.set_timeout(wrong)
    with pytest.raises(ValueError, match=r"color \d+ has more than 64 bits"):
        alone.split(2**63)
    # Of any type that is an integer.
    assert alone.broadcast(x, root=np.uint8(0)) is x
    assert alone.gather(x, root=False, counts=np.array([2])).tolist() == [1, 1]
    with alone.split(np.int64(7), key=np.array(3)) as child:
        assert child.name == "world/1.7"


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(braid.CommunicatorError, match="cannot meet in the folder"):
        braid.Communicator(f"file://{tmp_path}/file", rank=0, size=1)


def test_errors_of_a_store() -> None:
    class Broken:
        def set(self, key: str, value: bytes) -> None:
            raise ZeroDivisionError("by the store")

        def wait(self, keys: list[str], timeout: timedelta) -> None: ...

        def get(self, key: str) -> bytes:
            return b""

    with pytest.raises(ZeroDivisionError, match="by the store"):
        braid.Communicator(Broken(), rank=0, size=2)
    with pytest.raises(ZeroDivisionError):  # its name is free again
        braid.Communicator(Broken(), rank=0, size=2)


def test_closed(tmp_path: Path) -> None:
    with braid.Communicator(f"file://{tmp_path}/meet", rank=0, size=1) as comm:
        request = comm.iall_reduce(np.ones(3))
    comm.close()
    assert request.wait().tolist() == [1, 1, 1]
    with pytest.raises(braid.CommunicatorError, match="closed"):
        comm.all_reduce(np.ones(3))


def test_an_output_that_was_filled_is_the_users(alone: braid.Communicator) -> None:
    out = np.zeros((3, 4)).T
    request = alone.iall_reduce(np.ones((4, 3)), "sum", out)
    while not request.test():
        pass
    assert (out == 1).all()
    out[:] = 7
    assert request.wait() is out
    assert (out == 7).all()


def test_letting_go_of_an_array_may_come_back(alone: braid.Communicator) -> None:
    for _ in range(20):
        x, out = np.ones(1000), np.empty(1000)
        request = alone.iall_reduce(x, "sum", out)
        weakref.finalize(x, request.wait)  # runs when wait() lets go of x, which is then the last
        del x
        before = sys.getrefcount(out)
        request.wait()
        assert before - 2 <= sys.getrefcount(out) <= before


def test_bfloat16(alone: braid.Communicator) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.ones(3, ml_dtypes.bfloat16)
    assert alone.all_reduce(x) is x
    assert alone.all_gather(x).dtype == x.dtype
