# SPDX-License-Identifier: Apache-2.0
"""DDP and FSDP2 with gradients of 16 bits and compressing hooks."""

import braid.hooks
import pytest
import torch
import torch.distributed as dist
from bucket_of import Bucket
from hosts_apart import join_apart
from ranks import Rank, run_ranks
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.multiprocess


def make() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 300), nn.Tanh(), nn.Linear(300, 250), nn.Tanh(), nn.Linear(250, 1))


def train(rank: Rank, model: nn.Module, steps: int = 40) -> float:
    """Learn the sign of a sum; return the share that is right."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = torch.Generator().manual_seed(rank.rank)
    dtype = next(model.parameters()).dtype
    for _ in range(steps):
        x = torch.randn(32, 20, generator=data)
        y = (x.sum(1, keepdim=True) > 0).to(dtype)
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(x.to(dtype)).to(dtype), y).backward()
        optimizer.step()
    x = torch.randn(500, 20, generator=torch.Generator().manual_seed(99))
    with torch.no_grad():
        return float(((model(x.to(dtype)) > 0) == (x.sum(1, keepdim=True) > 0)).float().mean())


def train_with_ddp(rank: Rank) -> None:
    join_apart(rank)
    model = DistributedDataParallel(make().bfloat16(), bucket_cap_mb=0.1)
    state = braid.hooks.AutoState(model, "int8,warmup:2,0.*=bf16,4.*=power_sgd:2")
    model.register_comm_hook(state, braid.hooks.auto)
    assert train(rank, model) > 0.85
    mine = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    first = mine.clone()
    dist.broadcast(first, 0)
    assert torch.equal(first, mine)
    rows = {row.parameter: row for row in state.report()}
    assert rows["2.weight"].codec == "int8"
    assert rows["2.weight"].exact_bytes == 2 * 300 * 250
    assert rows["2.weight"].sent_bytes < 0.52 * rows["2.weight"].exact_bytes
    assert {rows[name].codec for name in ("0.weight", "4.weight")} == {"exact"}
    assert rows["0.weight"].reason.endswith("is not for gradients of bfloat16")
    assert rows["4.weight"].reason.startswith("no matrix that rank 2 makes")
    residuals = state.state_dict()["residuals"]
    assert residuals["2.weight"].dtype == torch.float32
    assert residuals["2.weight"].abs().max() > 0

    model = DistributedDataParallel(make().bfloat16(), bucket_cap_mb=0.1)
    state = braid.hooks.AutoState(model, "power_sgd:4,warmup:2")
    model.register_comm_hook(state, braid.hooks.auto)
    assert train(rank, model) > 0.85
    assert {row.parameter for row in state.report() if row.codec == "power_sgd:4"} == {"2.weight"}

    for policy, codec in (("auto:16bit", "exact"), ("auto", "int8")):  # of the former, bf16 is no smaller
        weight = nn.ParameterDict({"w": nn.Parameter(torch.zeros(1000, 400))})
        one = braid.hooks.AutoState(weight, policy + ",warmup:1")
        one.steps = 1
        gradient = torch.ones(1000, 400, dtype=torch.bfloat16)
        one.reduce(Bucket(list(weight.values()), [gradient])).wait()
        assert [row.codec for row in one.report()] == [codec]


def test_ddp() -> None:
    run_ranks(train_with_ddp, 2, wire="tcp", join=False)


def train_with_fsdp(rank: Rank) -> None:
    join_apart(rank)
    model, mesh = make(), init_device_mesh("cpu", (rank.size,))
    policy = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.bfloat16)
    for layer in (model[2], model):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    assert len(braid.hooks.compress_fsdp(model, "int8")) == 2
    before = lossy_calls()
    assert train(rank, model, 20) > 0.7
    assert lossy_calls() >= before + 40


def lossy_calls() -> int:
    return sum(
        row["calls"] for group in braid.stats() for row in group["operations"] if "int8" in row["algorithm"]
    )


def test_fsdp() -> None:
    run_ranks(train_with_fsdp, 2, wire="tcp", join=False)
