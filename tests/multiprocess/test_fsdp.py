# SPDX-License-Identifier: Apache-2.0
"""Fully sharded training, on one mesh dimension and on two (FSDP2, HSDP): the model must come out as on Gloo."""

import math
from collections.abc import Iterator

import pytest
import torch
from against_gloo import both_backends
from ranks import Rank
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

pytestmark = pytest.mark.multiprocess

STEPS = 3
# Parameters and gradients travel in this type; the results then agree this well.
TOLERANCES = {None: 1e-5, torch.bfloat16: 2e-2}


def make_model() -> nn.Sequential:
    torch.manual_seed(0)
    # Seven rows on two or four ranks: the shards are of different lengths.
    return nn.Sequential(nn.Linear(13, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 7))


def full_values(model: nn.Module) -> Iterator[torch.Tensor]:
    for parameter in model.parameters():
        assert isinstance(parameter, DTensor)
        yield parameter.full_tensor().detach()


def train(rank: Rank, mesh_shape: tuple[int, ...], precision: torch.dtype | None) -> list[torch.Tensor]:
    """Return the trained parameters, whole, the last gradients' norm and the last loss."""
    mesh = init_device_mesh("cpu", mesh_shape, mesh_dim_names=("replicate", "shard")[-len(mesh_shape) :])
    policy = MixedPrecisionPolicy(param_dtype=precision, reduce_dtype=precision)
    model = make_model()
    for layer in (model[0], model[3]):
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    held = sum(parameter.to_local().numel() for parameter in model.parameters())
    assert held < sum(parameter.numel() for parameter in model.parameters())

    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    data = torch.Generator().manual_seed(rank.rank)
    for _ in range(STEPS):
        optimizer.zero_grad()
        y = model(torch.randn(8, 13, generator=data))
        loss = nn.functional.cross_entropy(y.float(), torch.randint(7, (8,), generator=data))
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
    assert isinstance(norm, DTensor)
    trained = [*full_values(model), norm.full_tensor()]
    for value, initial in zip(trained, make_model().parameters(), strict=False):
        assert not torch.equal(value, initial)
    return [*trained, loss.detach()]


def train_each_way(rank: Rank, mesh_shape: tuple[int, ...]) -> list[list[torch.Tensor]]:
    return [train(rank, mesh_shape, precision) for precision in TOLERANCES]


def compare(mesh_shape: tuple[int, ...], wire: str) -> None:
    ours, theirs = both_backends(train_each_way, math.prod(mesh_shape), mesh_shape, wire=wire)
    for rank, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        for way, tolerance in enumerate(TOLERANCES.values()):
            torch.testing.assert_close(mine[way], other[way], rtol=tolerance, atol=tolerance)
            # Every rank sees the same model, but had data of its own.
            torch.testing.assert_close(mine[way][:-1], ours[0][way][:-1], rtol=0, atol=0)
            assert rank == 0 or mine[way][-1] != ours[0][way][-1]


def test_fsdp(wire: str) -> None:
    compare((2,), wire)


def test_hsdp() -> None:
    compare((2, 2), "shm")
