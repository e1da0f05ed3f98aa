# SPDX-License-Identifier: Apache-2.0
"""The ranks of ``braid bench ddp`` on real backends."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from braid._bench.ddp.models import Layer, Model, Parameter
from braid._bench.ddp.rank import DdpRank
from ranks import Rank, RanksFailedError, run_ranks

pytestmark = pytest.mark.multiprocess

KINDS = ("full", "compute", "communication", "bare")


def linear(name: str, fan_in: int, fan_out: int) -> Layer:
    parameters = (Parameter(f"{name}.weight", (fan_out, fan_in)), Parameter(f"{name}.bias", (fan_out,)))
    return Layer(name, parameters, (1, fan_in, fan_out))


TINY = Model("tiny", "nothing", 3, tuple(linear(f"layer{i}", 100, 100) for i in range(4)))
TABLES = [Layer(f"table{rows}", (Parameter("weight", (rows, 8)),), rows_per_sample=2) for rows in (2, 500)]
SPARSE = Model("sparse", "nothing", 5, (linear("bottom", 13, 8), *TABLES, linear("top", 8, 1)))


def steps(rank: Rank, backend: str, model: Model, settings: dict[str, Any]) -> dict[str, Any]:
    bench = DdpRank(
        rank=rank.rank, size=rank.size, folder=str(rank.folder), backend=backend, model=model, **settings
    )
    checks = [bench.check()]
    times_s = {kind: bench.step(kind) for kind in KINDS}
    checks.append(bench.check())
    found = {"wrong": checks, "facts": bench.facts(), "times_s": times_s}
    bench.close()
    return found


def lie(rank: Rank) -> int:
    """One rank's second layer has a gradient of its own, which every rank must notice, in the average."""
    bench = DdpRank(
        rank=rank.rank, size=rank.size, folder=str(rank.folder), backend="gloo", model=TINY, compute_ms=0.0
    )
    if rank.rank == 1:
        weight = bench._step._leaves[1][0].detach()
        weight[3, 5:8] += 1
    return bench.check()


def average_nothing(rank: Rank) -> int:
    """A backend that does nothing, as far as DistributedDataParallel can see."""
    bench = DdpRank(
        rank=rank.rank, size=rank.size, folder=str(rank.folder), backend="gloo", model=TINY, compute_ms=0.0
    )
    bench._ddp.register_comm_hook(None, lambda state, bucket: done(bucket.buffer()))
    return bench.check()


def done(value: Any) -> Any:
    future = torch.futures.Future()
    future.set_result(value)
    return future


@pytest.mark.parametrize("backend", ["gloo", "braid"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_steps_average_all_gradients(backend: str, size: int) -> None:
    for found in run_ranks(steps, size, backend, TINY, {"compute_ms": 20.0}, join=False):
        assert found["wrong"] == [0, 0]
        assert found["facts"]["parameters"] == TINY.elements
        assert found["facts"]["gradient_bytes"] == 4 * TINY.elements
        assert found["facts"]["bucket_bytes"] == [4 * TINY.elements]
        assert min(found["times_s"]["full"], found["times_s"]["compute"]) >= 0.02
        assert min(found["times_s"].values()) > 0


@pytest.mark.parametrize("backend", ["gloo", "braid"])
def test_sparse_gradients(backend: str) -> None:
    for found in run_ranks(steps, 2, backend, SPARSE, {}, join=False):
        assert found["wrong"] == [0, 0]
        dense = 4 * (13 * 8 + 8 + 8 + 1)
        assert sorted(found["facts"]["bucket_bytes"]) == [2 * 8 * 4, dense, 500 * 8 * 4]


def test_buckets_follow_the_order_of_the_gradients() -> None:
    found = run_ranks(steps, 2, "gloo", TINY, {"bucket_cap_mb": 0.05}, join=False)[0]
    # Full once it has reached its size. By the order of the parameters, biases would come before weights.
    assert found["facts"]["bucket_bytes"] == [
        4 * (10_000 + 100 + 10_000),
        4 * (100 + 10_000 + 100 + 10_000),
        4 * 100,
    ]


def test_a_wrong_gradient_is_counted_on_every_rank() -> None:
    assert run_ranks(lie, 2, join=False) == [3, 3]


def test_gradients_that_were_not_averaged_are_all_wrong() -> None:
    assert run_ranks(average_nothing, 2, join=False) == [TINY.elements] * 2


def make(rank: Rank, backend: str, model: str) -> None:
    try:
        DdpRank(rank=rank.rank, size=rank.size, folder=str(rank.folder), backend=backend, model=model)
    finally:
        assert not dist.is_initialized()


@pytest.mark.parametrize(
    ("backend", "model", "complaint"),
    [("gloo", "alexnet", "no such model: 'alexnet'"), ("nccl", "resnet50", "nccl carries those on GPUs")],
)
def test_what_cannot_be_says_why(backend: str, model: str, complaint: str) -> None:
    with pytest.raises(RanksFailedError, match=complaint):
        run_ranks(make, 1, backend, model, join=False)
