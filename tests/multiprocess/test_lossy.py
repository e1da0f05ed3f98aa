# SPDX-License-Identifier: Apache-2.0
"""All-reduce in fewer bytes, by way of torch and on arrays, between hosts that are not there."""

import os
from typing import Any

import braid
import numpy as np
import pytest
import torch
import torch.distributed as dist
from ranks import Rank, run_ranks

pytestmark = pytest.mark.multiprocess

CODECS = ["fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4", "qsgd", "sign", "top_k:0.05", "random_k:0.1"]


def on_hosts(function: Any, ranks: int, *args: Any, per_host: int = 1) -> list[Any]:
    return run_ranks(apart, ranks, function, per_host, *args, wire="shm,tcp", join=False)


def apart(rank: Rank, function: Any, per_host: int, *args: Any) -> Any:
    os.environ["BRAID_HOST"] = f"host-{rank.rank // per_host}"
    os.environ["BRAID_LINKS"] = "assume"
    rank.join()
    try:
        return function(rank, *args)
    finally:
        dist.destroy_process_group()


def gradient(rank: int, step: int, elements: int) -> torch.Tensor:
    return torch.randn(elements, generator=torch.Generator().manual_seed(1000 * step + rank))


def average_with(rank: Rank, codec: str, elements: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    residual = torch.zeros(elements)
    results = []
    for step in range(3):
        tensor = gradient(rank.rank, step, elements)
        braid.lossy_all_reduce(tensor, codec, residual=residual)
        results.append(tensor)
    return results, residual


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_results_are_the_same_everywhere_and_lack_what_the_residuals_hold(ranks: int) -> None:
    elements = 70_001
    for codec, told in zip(CODECS, zip(*on_hosts(average_with_all, ranks, elements), strict=True), strict=True):
        for results, _ in told:
            assert all(torch.equal(a, b) for a, b in zip(results, told[0][0], strict=True)), codec
        mean = sum(gradient(rank, step, elements) for rank in range(ranks) for step in range(3)) / ranks
        lacking = mean - sum(told[0][0])
        torch.testing.assert_close(sum(residual for _, residual in told), lacking, atol=1e-5, rtol=0)


def average_with_all(rank: Rank, elements: int) -> list[Any]:
    return [average_with(rank, codec, elements) for codec in CODECS]


def average_narrow(rank: Rank, elements: int) -> list[Any]:
    told = []
    for dtype in (torch.bfloat16, torch.float16):
        for codec in ("fp8_e4m3", "int8", "sign", "top_k:0.05"):
            residual, results = torch.zeros(elements), []
            for step in range(3):
                tensor = gradient(rank.rank, step, elements).to(dtype)
                braid.lossy_all_reduce(tensor, codec, residual=residual)
                assert tensor.dtype == dtype
                results.append(tensor)
            told.append((dtype, codec, results, residual))
    return told


def test_of_16_bits_too_results_are_the_same_and_lack_what_the_residuals_hold() -> None:
    ranks, elements = 3, 40_001
    for told in zip(*on_hosts(average_narrow, ranks, elements), strict=True):
        dtype, codec, first, _ = told[0]
        for _, _, results, _ in told:
            assert all(torch.equal(a, b) for a, b in zip(results, first, strict=True)), (dtype, codec)
        steps = [gradient(rank, step, elements).to(dtype).float() for rank in range(ranks) for step in range(3)]
        lacking = sum(steps) / ranks - sum(result.float() for result in first)
        torch.testing.assert_close(sum(residual for *_, residual in told), lacking, atol=1e-5, rtol=0)


def flush_on_one(rank: Rank) -> list[bytes]:
    torch.set_flush_denormal(rank.rank == 0)
    results = []
    for codec in CODECS:
        tensor = torch.randn(5000, generator=torch.Generator().manual_seed(rank.rank)) * 1e-37
        braid.lossy_all_reduce(tensor, codec)
        results.append(tensor.numpy().tobytes())
    torch.set_flush_denormal(False)
    return results


def test_a_rank_that_flushes_subnormal_numbers_gets_the_same_bits() -> None:
    told = on_hosts(flush_on_one, 3)
    assert told == [told[0]] * 3


def scatter(rank: Rank, codec: str, each: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    residual = torch.zeros(each * rank.size)
    parts = []
    for step in range(3):
        part = torch.empty(each)
        whole = gradient(rank.rank, step, each * rank.size)
        work = braid.lossy_reduce_scatter(part, whole, codec, residual=residual, async_op=True)
        assert work is not None
        assert work.get_future().wait()[0] is part
        parts.append(part)
    return parts, residual


@pytest.mark.parametrize(("ranks", "per_host"), [(3, 1), (4, 2)])
def test_scattered_parts_lack_what_the_residuals_hold(ranks: int, per_host: int) -> None:
    each = 30_011
    for codec in ("int8", "sign"):
        told = on_hosts(scatter, ranks, codec, each, per_host=per_host)
        mean = sum(gradient(rank, step, each * ranks) for rank in range(ranks) for step in range(3)) / ranks
        lacking = mean - torch.cat([sum(parts) for parts, _ in told])
        assert lacking.abs().max() > 0
        torch.testing.assert_close(sum(residual for _, residual in told), lacking, atol=1e-5, rtol=0)


def use_futures(rank: Rank) -> list[float]:
    tensors = [torch.full((100_000,), float(rank.rank + step)) for step in range(4)]
    works = [
        braid.lossy_all_reduce(tensor, braid_codec, op=dist.ReduceOp.SUM, async_op=True)
        for tensor, braid_codec in zip(tensors, ["int8", "fp16", "bf16", "qsgd"], strict=True)
    ]
    futures = [work.get_future() for work in works if work]
    return [future.wait()[0][7].item() for future in futures]


def test_works_have_futures() -> None:
    assert on_hosts(use_futures, 2, per_host=1) == [pytest.approx([1, 3, 5, 7])] * 2


def reduce_odd_tensors(rank: Rank) -> None:
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    for tensor in (base.clone(), base.t().clone().t(), base.clone()[:, ::2], torch.tensor(7.0), torch.empty(0)):
        expected = tensor.clone()
        braid.lossy_all_reduce(tensor, "fp16")
        assert torch.equal(tensor, expected)


def test_tensors_of_any_shape() -> None:
    on_hosts(reduce_odd_tensors, 3)


def learn_nothing_is_lost(rank: Rank) -> None:
    tensor = gradient(rank.rank, 0, 5000)
    exact = tensor.clone()
    dist.all_reduce(exact, dist.ReduceOp.AVG)
    braid.lossy_all_reduce(tensor, "sign")
    assert torch.equal(tensor, exact)
    assert braid.predict_all_reduce(1 << 20, "sign") == braid.predict_all_reduce(1 << 20)


def test_one_host_loses_nothing() -> None:
    on_hosts(learn_nothing_is_lost, 3, per_host=3)


def predict(rank: Rank) -> dict[str, float]:
    told = {str(codec): braid.predict_all_reduce(1 << 24, codec) for codec in (None, "fp16", "int8", "sign")}
    told["half"] = braid.predict_all_reduce(1 << 24, dtype=torch.half)
    told["int8 of half"] = braid.predict_all_reduce(1 << 24, "int8", dtype=torch.half)
    return told


def test_predictions_are_the_same_everywhere_and_follow_the_bytes() -> None:
    told = on_hosts(predict, 3)
    assert told == [told[0]] * 3
    assert told[0]["sign"] < told[0]["int8"] < told[0]["fp16"] < told[0]["None"]
    assert told[0]["int8 of half"] < told[0]["half"] < told[0]["None"]
    # As many messages of as many bytes, in a schedule that rounds once.
    assert told[0]["int8 of half"] == pytest.approx(told[0]["int8"], rel=0.05)


def make_mistakes(rank: Rank) -> None:
    def message(call: Any, error: type[Exception]) -> str:
        with pytest.raises(error) as caught:
            call()
        return str(caught.value)

    x = torch.zeros(64)
    reduce = braid.lossy_all_reduce
    assert "there is none of that name" in message(lambda: reduce(x, "int9"), ValueError)
    assert "which part" in message(lambda: reduce(x, "top_k"), ValueError)
    assert "float64" in message(lambda: reduce(x.double(), "int8"), ValueError)
    assert "max" in message(lambda: reduce(x, "int8", op=dist.ReduceOp.MAX), ValueError)
    assert "63 elements" in message(lambda: reduce(x, "int8", residual=torch.zeros(63)), ValueError)
    assert "contiguous" in message(lambda: reduce(x, "int8", residual=torch.zeros(128)[::2]), ValueError)
    assert "overlaps" in message(lambda: reduce(x, "int8", residual=x), ValueError)
    for dtype in (torch.float64, torch.bfloat16):
        residual = torch.zeros(64, dtype=dtype)
        for of in (x, x.to(dtype)):
            assert "dtype" in message(lambda of=of, left=residual: reduce(of, "int8", residual=left), TypeError)
    assert "bf16 makes float16 no smaller" in message(lambda: reduce(x.half(), "bf16"), ValueError)
    assert "no smaller" in message(lambda: braid.predict_all_reduce(64, "fp16", dtype=torch.half), ValueError)
    parts = braid.lossy_reduce_scatter
    assert "overlaps" in message(lambda: parts(x[:32], x.clone(), "int8", residual=x), ValueError)
    assert "32 elements" in message(
        lambda: parts(torch.zeros(32), x, "int8", residual=torch.zeros(32)), ValueError
    )
    assert "int9" in message(lambda: braid.predict_all_reduce(64, "int9"), ValueError)
    reduce(x, "int8")  # nobody was harmed


def test_mistakes_are_told_and_harm_nobody() -> None:
    on_hosts(make_mistakes, 2)


def use_gloo(rank: Rank) -> None:
    gloo = dist.new_group(backend="gloo")
    dist.barrier()  # who leaves before all have formed it breaks it
    with pytest.raises(RuntimeError, match="is on gloo"):
        braid.lossy_all_reduce(torch.zeros(4), "int8", group=gloo)


def test_other_backends_are_named() -> None:
    on_hosts(use_gloo, 2)


def average_arrays(rank: Rank) -> None:
    os.environ["BRAID_HOST"] = f"host-{rank.rank}"
    os.environ["BRAID_LINKS"] = "assume"
    with braid.Communicator(f"file://{rank.folder}", rank=rank.rank, size=rank.size, timeout_s=30) as comm:
        x = np.random.default_rng(rank.rank).standard_normal(10_001).astype(np.float32)
        exact = comm.all_reduce(x.copy(), "avg")
        residual = np.zeros_like(x)
        request = comm.ilossy_all_reduce(x, "int8", residual=residual)
        assert request.wait() is x
        assert 0 < np.abs(x - exact).max() < 0.05
        np.testing.assert_allclose(comm.all_reduce(residual.copy()) + x, exact, atol=1e-5)
        strided = np.ones((50, 4), np.float32)[:, ::2]
        assert comm.lossy_all_reduce(strided, "fp16", op="sum") is strided
        assert (strided == rank.size).all()
        half = exact.astype(np.float16)
        residual[:] = 0
        comm.lossy_all_reduce(half, "int8", residual=residual)  # the same on all ranks
        np.testing.assert_allclose(half, exact, atol=0.05)
        with pytest.raises(ValueError, match="expected float32"):
            comm.lossy_all_reduce(half, "int8", residual=half.copy())
        with pytest.raises(ValueError, match="C-contiguous"):
            comm.lossy_all_reduce(x, "int8", residual=np.zeros((10_001, 2), np.float32)[:, 0])
        with pytest.raises(ValueError, match="only a sum or an average of float32"):
            comm.lossy_all_reduce(x.astype(np.float64), "int8")
        told = comm.explain("all_reduce", 1 << 24, codec="int8")
        assert told["predicted_s"] < comm.explain("all_reduce", 1 << 24)["predicted_s"] / 2


def test_arrays() -> None:
    run_ranks(average_arrays, 3, wire="shm,tcp", join=False)
