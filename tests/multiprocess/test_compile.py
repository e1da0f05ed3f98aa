# SPDX-License-Identifier: Apache-2.0
"""Functional collectives, called as they are and from compiled code, in and out of autograd."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from against_gloo import both_backends
from ranks import Rank
from torch import nn
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.multiprocess


def collect(x: torch.Tensor) -> list[torch.Tensor]:
    """Call every functional collective; `x` has four times as many rows as there are ranks."""
    group = dist.group.WORLD
    n, me = dist.get_world_size(), dist.get_rank()
    # A rank gives three rows to each of the others, and keeps the rest.
    rows = [x.shape[0] - 3 * (n - 1)] + [3] * (n - 1)
    given = [rows[(other - me) % n] for other in range(n)]
    taken = [rows[(me - other) % n] for other in range(n)]
    results = [
        functional.broadcast(x, 1, group),
        *(functional.all_reduce(x, op, group) for op in ("sum", "avg", "min", "max", "product")),
        *functional.all_reduce_coalesced([x, x * 2], "sum", group),
        functional.all_gather_tensor(x, 0, group),
        functional.all_gather_tensor(x, 1, group),
        *functional.all_gather_into_tensor_coalesced([x, x[0]], group),
        functional.reduce_scatter_tensor(x, "sum", 0, group),
        functional.reduce_scatter_tensor(x, "avg", 1, group),
        *functional.reduce_scatter_tensor_coalesced([x, x.t().contiguous()], "sum", [0, 0], group),
        functional.all_to_all_single(x, None, None, group),
        functional.all_to_all_single(x, taken, given, group),
        functional.permute_tensor(x.flatten(), [*range(1, n), 0], group),
    ]
    # What is waited for in between may be computed with, and sent again.
    total = functional.all_reduce((results[0] + 1).sin(), "sum", group)
    return [*results, functional.all_gather_tensor(total * 2, 0, group)]


def shuffle(x: torch.Tensor) -> torch.Tensor:
    """Call those that autograd knows."""
    group = dist.group.WORLD
    y = functional.all_gather_tensor_autograd(x, 0, group)
    y = functional.reduce_scatter_tensor_autograd(y.cos(), "sum", 0, group)
    return functional.all_to_all_single_autograd(y * x, None, None, group)


def run(rank: Rank, compiler: str) -> list[torch.Tensor]:
    x = torch.arange(rank.size * 4 * 4.0).reshape(-1, 4) / 10 - rank.rank
    called, learning = collect, shuffle
    if compiler:
        called, learning = (torch.compile(f, backend=compiler, fullgraph=True) for f in (collect, shuffle))
    results = [value + 0 for value in called(x)]
    assert not torch.equal(results[1], x)
    leaf = x.clone().requires_grad_()
    y = learning(leaf)
    (y * (rank.rank + 1)).sum().backward()
    return [*results, y.detach() + 0, leaf.grad]


def run_each_way(rank: Rank, compiler: str) -> list[torch.Tensor]:
    """Return what compiled code yields on braid, and plain code on Gloo."""
    plain = run(rank, "")
    if dist.get_backend() == "gloo":
        return plain
    compiled = run(rank, compiler)
    torch.testing.assert_close(compiled, plain, rtol=1e-6, atol=1e-6)
    return compiled


def train_compiled(rank: Rank) -> list[torch.Tensor]:
    """Train under DDP, whose compiled form cuts the graph where its buckets end."""
    torch.manual_seed(0)
    # More than a bucket, which dynamo wants to be of a MiB at least.
    net = nn.Sequential(nn.Linear(8, 400), nn.Tanh(), nn.Linear(400, 400), nn.Tanh(), nn.Linear(400, 400))
    initial = net[0].weight.detach().clone()
    model = torch.compile(DistributedDataParallel(net, bucket_cap_mb=1), backend="aot_eager")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
    data = torch.Generator().manual_seed(rank.rank)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 8, generator=data)).square().mean().backward()
        optimizer.step()
    assert not torch.equal(net[0].weight, initial)
    return [parameter.detach() for parameter in net.parameters()]


def trace_and_train(rank: Rank) -> list[torch.Tensor]:
    return run_each_way(rank, "aot_eager") + train_compiled(rank)


def test_traced_code() -> None:
    ours, theirs = both_backends(trace_and_train, 2)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.long
def test_generated_code(tmp_path: Path) -> None:
    environment = {
        # Of its own: the test must compile, and leave nothing behind.
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # Plain C++, which needs no headers of the vector units and compiles in a fraction of the time.
        "ATEN_CPU_CAPABILITY": "default",
    }
    ours, theirs = both_backends(run_each_way, 2, "inductor", environment=environment)
    torch.testing.assert_close(ours, theirs)
    assert list(tmp_path.rglob("*.so")), "nothing was compiled"
