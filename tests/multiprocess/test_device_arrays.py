# SPDX-License-Identifier: Apache-2.0
"""braid.Communicator on arrays of a GPU, with the executing driver, and on arrays of the host by DLPack."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from arrays import contribution, join, known_dtypes, ops_for, reduced, same
from fake_gpu import LEGACY, FakeArray, FakeGpu, FakeTensor, build
from ranks import Rank, run_ranks

pytestmark = pytest.mark.multiprocess

FLOAT = np.dtype(np.float32)
# Each of them makes another wait the one that is missed.
SCHEDULES = (
    {"on_default": 4000},
    {"on_made": 4000},
    {"on_default": 2000, "on_made": 2000},
    {"random": 3000, "seed": 7},
)


@pytest.fixture(scope="module", autouse=True)
def executing_driver() -> None:
    """Compile the driver before the ranks ask for it."""
    build()


def every_dtype(rank: Rank) -> None:
    """Results equal NumPy's for all dtypes, operators and sizes; the caller's array comes back."""
    n, r, gpu = rank.size, rank.rank, FakeGpu()
    with join(rank) as comm:
        for dtype in known_dtypes():
            for op in ops_for(dtype):
                x = FakeArray(gpu, contribution(r, 1003, dtype))
                assert comm.all_reduce(x, op) is x
                assert same(x.get(), reduced(op, n, 1003, dtype)), (dtype, op)
            for count in (0, 1, 1003):
                x, out = FakeArray(gpu, contribution(r, count, dtype)), FakeArray(gpu, np.zeros(count, dtype))
                assert comm.all_reduce(x, "sum", out) is out
                assert same(out.get(), reduced("sum", n, count, dtype)), (dtype, count)
                assert np.array_equal(x.get(), contribution(r, count, dtype))
        assert gpu.library.fake_unpinned_copies() > 0  # the tests' own
        before = gpu.library.fake_unpinned_copies()
        large = FakeArray(gpu, contribution(r, 1_000_003, FLOAT))
        made = gpu.library.fake_unpinned_copies() - before
        comm.all_reduce(large, "prod")
        assert gpu.library.fake_unpinned_copies() - before == made, "braid copies page-locked memory alone"
        assert same(large.get(), reduced("product", n, 1_000_003, FLOAT))


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.long), 2, 3])
def test_all_dtypes(ranks: int) -> None:
    """All dtypes, operators, and sizes with none, one and many elements."""
    run_ranks(every_dtype, ranks, join=False)


def of_ml_dtypes(rank: Rank) -> None:
    """The interface calls these dtypes by names that NumPy reads as plain bytes; the arrays know better."""
    ml_dtypes: Any = pytest.importorskip("ml_dtypes")
    n, r, gpu = rank.size, rank.rank, FakeGpu()
    with join(rank) as comm:
        for kind in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
            dtype = np.dtype(kind)
            for op in ops_for(dtype):
                x = FakeArray(gpu, contribution(r, 1003, dtype))
                assert comm.all_reduce(x, op) is x
                assert same(x.get(), reduced(op, n, 1003, dtype)), (dtype, op)
            whole = comm.all_gather(FakeArray(gpu, contribution(r, 77, dtype)))
            assert isinstance(whole, FakeArray)
            assert same(whole.get(), np.stack([contribution(each, 77, dtype) for each in range(n)])), dtype


def test_ml_dtypes() -> None:
    """bfloat16 and float8."""
    run_ranks(of_ml_dtypes, 2, join=False)


def every_call(rank: Rank) -> None:
    """Every call, under streams that are late; results are read without a wait of the caller's."""
    n, r, gpu = rank.size, rank.rank, FakeGpu()

    def on(values: Any, **options: Any) -> FakeArray:
        return FakeArray(gpu, np.asarray(values, FLOAT), **options)

    with join(rank) as comm:
        rows = np.stack([contribution(each, 501, FLOAT, salt=1) for each in range(n)])
        for number, delays in enumerate(SCHEDULES):
            gpu.delays(**delays)
            stream = (LEGACY, 2, gpu.stream(), LEGACY)[number]
            root = number % n
            x = on(rows[r], stream=stream)
            whole = comm.all_gather(x)
            assert isinstance(whole, FakeArray)
            assert same(whole.get(), rows)
            again = on(rows * 0, stream=stream)
            assert comm.all_gather(x, again) is again
            assert same(again.get(), rows)
            total = comm.reduce(x, "sum", root, on(rows[r], stream=stream) if r == root else None)
            assert total is None if r != root else same(total.get(), rows.sum(0))
            given = on(rows[r], stream=stream)
            assert comm.broadcast(given, root) is given
            assert same(given.get(), rows[root])
            gathered = comm.gather(on(rows[r], stream=stream), root)
            assert gathered is None if r != root else same(gathered.get(), rows)
            block = on(rows[0] * 0, stream=stream)
            comm.scatter(on(rows, stream=stream) if r == root else None, root, block)
            assert same(block.get(), rows[r])
            part = comm.reduce_scatter(on(rows, stream=stream))
            assert same(part.get(), rows[r] * n)
            table = np.stack([contribution(row, 77, FLOAT) for row in range(2 * n)])
            swapped = comm.all_to_all(on(table[r : r + n], stream=stream))
            assert same(swapped.get(), table[r : r + n])
            shared = FakeTensor(on(rows[r], stream=stream), versioned=number % 2 == 0)
            assert comm.all_reduce(shared) is shared
            assert same(shared.array.get(), rows.sum(0))
            assert same(comm.all_reduce(on(rows[r], stream=stream), out=np.empty(501, FLOAT)), rows.sum(0))
            back = on(rows[0] * 0, stream=stream)
            assert comm.sendrecv(on(rows[r], stream=stream), (r + 1) % n, back, (r - 1) % n) is back
            assert same(back.get(), rows[(r - 1) % n])
            old = on(rows[r], stream=stream, version=2)  # it names no stream: all work of the device counts
            comm.all_reduce(old, "max")
            assert same(old.get(), rows.max(0))
        gpu.delays()
    gpu.synchronize()


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_all_calls_with_late_streams(ranks: int) -> None:
    """A missing wait would read or leave poison."""
    run_ranks(every_call, ranks, join=False)


def started(rank: Rank) -> None:
    """Several operations under way; the caller queues other work on the same streams."""
    n, r, gpu = rank.size, rank.rank, FakeGpu()
    with join(rank) as comm:
        gpu.delays(on_default=2000, on_made=1000)
        inputs = [FakeArray(gpu, contribution(r, 300, FLOAT, salt)) for salt in range(4)]
        outs = [FakeArray(gpu, np.zeros(300, FLOAT)) for _ in inputs]
        requests = [comm.iall_reduce(x, "sum", out) for x, out in zip(inputs, outs, strict=True)]
        for x in inputs:  # the inputs may be changed: they have been copied
            x.fill_later(np.full(300, 99, FLOAT))
        for salt, (request, out) in enumerate(zip(requests, outs, strict=True)):
            assert request.wait() is out
            assert same(out.get(), reduced("sum", n, 300, FLOAT, salt))
        # What was queued on the stream of an output comes before the result.
        out = FakeArray(gpu, np.zeros(300, FLOAT))
        out.fill_later(np.full(300, 5, FLOAT))
        comm.all_reduce(contribution(r, 300, FLOAT), out=out)
        gpu.synchronize()
        assert same(out.get(), reduced("sum", n, 300, FLOAT))
        x, residual = FakeArray(gpu, np.ones(300, FLOAT)), FakeArray(gpu, np.full(300, 1, FLOAT))
        comm.lossy_all_reduce(x, "int8", residual=residual)
        assert np.isfinite(residual.get()).all()
        assert np.isfinite(x.get()).all()
        if n > 1:
            pieces = [FakeArray(gpu, np.full(3, each, FLOAT)) for each in range(5)]
            if r == 0:
                for tag, piece in enumerate(pieces):
                    comm.send(piece, 1, tag)
            elif r == 1:
                for tag in reversed(range(5)):
                    came = FakeArray(gpu, np.zeros(3, FLOAT))
                    assert comm.recv(came, 0, tag) is came
                    assert came.get().tolist() == [tag] * 3
        gpu.delays()
    del x, residual, out, outs, inputs, requests, request
    if n == 1:
        assert gpu.library.fake_device_bytes() == 0, "no memory of the device is held"


@pytest.mark.parametrize("ranks", [1, 2])
def test_started_operations_and_messages(ranks: int) -> None:
    """Inputs are free after the call, outputs are filled by wait()."""
    run_ranks(started, ranks, join=False)


def without_waits(rank: Rank) -> None:
    """Without the wait for the caller's stream, an input is poison, and an output's older work comes last."""
    from braid import _core

    gpu = FakeGpu()
    _core.CudaCopies.follow = lambda *_: None  # type: ignore[method-assign, assignment]
    with join(rank) as comm:
        gpu.hold(on_default=True)
        x = FakeArray(gpu, np.ones(300, FLOAT))
        comm.all_reduce(x)
        assert not same(x.get(), np.ones(300, FLOAT))
        gpu.hold()
        out = FakeArray(gpu, np.zeros(300, FLOAT))
        gpu.synchronize()
        gpu.hold(on_default=True)
        out.fill_later(np.full(300, 5, FLOAT))
        comm.all_reduce(np.ones(300, FLOAT), out=out)
        gpu.hold()
        gpu.synchronize()
        assert same(out.get(), np.full(300, 5, FLOAT))


def test_a_missing_wait_is_seen() -> None:
    """So the tests above would fail."""
    run_ranks(without_waits, 1, join=False)


def refused(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text) as refusal:
        call()
    assert "\n" not in str(refusal.value)


def refusals(rank: Rank) -> None:
    """Wrong use gets one sentence, and the communicator stays usable."""
    gpu = FakeGpu()

    def ones(**attributes: Any) -> FakeArray:
        array = FakeArray(gpu, np.ones((4, 4), FLOAT))
        for name, value in attributes.items():
            setattr(array, name, value)
        return array

    with join(rank) as comm:
        reduce = comm.all_reduce
        refused(lambda: reduce(ones(read_only=True)), ValueError, "all_reduce: x is read-only")
        refused(lambda: reduce(FakeTensor(ones(), read_only=True)), ValueError, "all_reduce: x is read-only")
        refused(lambda: reduce(ones(strides=(4, 16))), ValueError, "x is on a GPU and not C-contiguous")
        refused(lambda: reduce(ones(stream=0)), ValueError, "x names the stream 0; the interface asks for 1")
        refused(lambda: reduce(ones(stream=-1)), ValueError, "x names the stream -1; the interface asks for 1")
        refused(lambda: reduce(ones(stream="s")), TypeError, "x names its stream by a str")
        refused(lambda: reduce(ones(stream=0xABC0)), RuntimeError, "on stream 43968: .*INVALID_HANDLE")
        refused(lambda: reduce(ones(mask=ones())), TypeError, "x has a mask, which would be lost")
        refused(lambda: reduce(ones(dtype=np.dtype(">f4"))), TypeError, "its bytes are swapped")
        refused(lambda: reduce(ones(dtype=np.dtype("M8[s]"), shape=(8,))), TypeError, "use x.view")
        refused(lambda: reduce(FakeTensor(ones(), device=12)), TypeError, "on a device of DLPack's type 12")
        wild = ones()
        kept, wild.address = wild.address, 64
        refused(lambda: reduce(wild), ValueError, "all_reduce: x: the driver knows no such memory")
        wild.address = kept
        refused(
            lambda: reduce(ones(), out=np.ones((4, 4))), ValueError, "out has dtype float64, but x has float32"
        )
        refused(lambda: reduce(ones(), out=ones(shape=(2, 2))), ValueError, "out has shape")
        x = ones()
        gpu.library.fake_set_capturing(None, 1)
        refused(lambda: reduce(x), RuntimeError, "the stream is capturing a graph")
        gpu.library.fake_set_capturing(None, 0)
        fine = ones()
        assert same(reduce(fine).get(), np.full((4, 4), rank.size, FLOAT))


def test_refusals() -> None:
    """Read-only, strided, unknown streams, masks, dtypes, devices."""
    run_ranks(refusals, 2, join=False)


def without_driver(rank: Rank) -> None:
    """A device array without a driver."""

    class OnGpu:
        __cuda_array_interface__ = {  # noqa: RUF012
            "shape": (2,),
            "typestr": "<f4",
            "data": (64, False),
            "strides": None,
            "stream": 1,
            "version": 3,
        }

    class Other:
        __cuda_array_interface__ = {"version": 3}  # noqa: RUF012

    with join(rank) as comm:
        refused(
            lambda: comm.all_reduce(OnGpu()),
            RuntimeError,
            "x is on a GPU, which cannot be reached .* no CUDA driver",
        )
        refused(lambda: comm.all_reduce(Other()), TypeError, "cannot be used: has no 'shape'")


def has_driver() -> bool:
    import ctypes

    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


@pytest.mark.skipif(has_driver(), reason="there is a CUDA driver")
def test_without_a_driver() -> None:
    """The sentence says that there is no driver."""
    run_ranks(without_driver, 1, join=False)


def torch_on_host(rank: Rank) -> None:
    """Tensors of torch on the CPU are filled where they lie; new ones are torch's."""
    import torch

    n, r = rank.size, rank.rank
    with join(rank) as comm:
        for dtype in (torch.float64, torch.float32, torch.float16, torch.int64, torch.uint8, torch.complex64):
            x = torch.full((7, 3), r + 1).to(dtype)
            address = x.data_ptr()
            assert comm.all_reduce(x) is x
            assert x.data_ptr() == address
            assert torch.equal(x, torch.full((7, 3), n * (n + 1) // 2).to(dtype))
            rows = comm.all_gather(torch.full((5,), r).to(dtype))
            assert isinstance(rows, torch.Tensor)
            assert rows.dtype == dtype
            assert torch.equal(rows, torch.arange(n).to(dtype)[:, None].expand(n, 5))
        table = torch.arange(12.0).reshape(3, 4)
        strided = table.t()  # its columns are the table's rows
        comm.all_reduce(strided, "max")
        assert torch.equal(table, torch.arange(12.0).reshape(3, 4))
        strided = torch.full((3, 4), r + 1.0).t()
        comm.all_reduce(strided)
        assert torch.equal(strided, torch.full((4, 3), n * (n + 1) / 2))
        assert torch.equal(comm.reduce_scatter(torch.ones(n, 2)), torch.full((2,), float(n)))
        mixed = np.zeros(4, np.float32)
        assert comm.all_reduce(torch.ones(4), out=mixed) is mixed
        assert mixed.tolist() == [n] * 4
        refused(
            lambda: comm.all_reduce(torch.ones(3, requires_grad=True)), TypeError, "x cannot be shared: .*grad"
        )
        refused(lambda: comm.all_reduce(torch.ones(3).to_sparse()), TypeError, "x cannot be shared")


@pytest.mark.parametrize("ranks", [1, 2])
def test_torch_tensors_of_the_host(ranks: int) -> None:
    """Without a copy where they are contiguous."""
    run_ranks(torch_on_host, ranks, join=False)


def narrow(rank: Rank) -> None:
    """Floats of 16 and 8 bits that NumPy knows by ml_dtypes alone."""
    import torch

    n, r, gpu = rank.size, rank.rank, FakeGpu()
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with join(rank) as comm:
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            x = torch.full((33,), r + 1.0).to(getattr(torch, name))
            assert comm.all_reduce(x) is x
            assert x.float().tolist() == [n * (n + 1) / 2] * 33
            rows = comm.all_gather(torch.full((5,), r + 1.0).to(getattr(torch, name)))
            assert rows.dtype == x.dtype
            assert rows.float().tolist() == [[row + 1.0] * 5 for row in range(n)]
            there = FakeTensor(FakeArray(gpu, np.full(33, r + 1, getattr(ml_dtypes, name))))
            comm.all_reduce(there)
            assert there.array.get().astype(FLOAT).tolist() == [n * (n + 1) / 2] * 33


def test_narrow_floats() -> None:
    """Through DLPack; the other interface has no name for them."""
    run_ranks(narrow, 2, join=False)


def predictions(rank: Rank) -> None:
    gpu = FakeGpu()
    gpu.delays(on_made=3000)
    with join(rank) as comm:
        host, device = comm.explain("all_reduce", 1 << 20), comm.explain("all_reduce", 1 << 20, device=0)
        assert host["copies_s"] == 0
        assert 0.006 <= device["copies_s"] < 30
        assert device["predicted_s"] == pytest.approx(host["predicted_s"] + device["copies_s"])
        assert device["algorithm"] == host["algorithm"]
        gpu.delays()
        assert comm.explain("all_reduce", 1 << 20, device=0)["copies_s"] == device["copies_s"], "measured once"
        with pytest.raises(ValueError, match="there is no CUDA device 1, there are 1"):
            comm.explain("all_reduce", 8, device=1)


def test_predictions_have_the_copies() -> None:
    """They are measured on the device, once."""
    run_ranks(predictions, 2, join=False)


def ways(rank: Rank) -> None:
    from braid.cli.info import collect

    FakeGpu(devices=2)
    row = next(row for row in collect()["devices"] if row["device"] == "arrays on a GPU")
    assert row["path"] == "through the host"
    assert row["why"].startswith("2 CUDA devices")


def test_info_tells_of_the_driver() -> None:
    """``braid info`` has the way of arrays on a GPU."""
    run_ranks(ways, 1, join=False)
