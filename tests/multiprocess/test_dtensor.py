# SPDX-License-Identifier: Apache-2.0
"""Tensors spread over a mesh: however they are laid out anew, the result must be the one Gloo gives."""

import itertools

import pytest
import torch
from against_gloo import both_backends
from ranks import Rank
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor

pytestmark = pytest.mark.multiprocess

PLACEMENTS: list[Placement] = [Replicate(), Shard(0), Shard(1), Partial("sum")]


def whole() -> torch.Tensor:
    # Whole numbers, so that sums are exact; and rows and columns that no mesh divides evenly.
    return torch.arange(35.0).reshape(7, 5) + 1


def spread(mesh: DeviceMesh, rank: Rank, placements: tuple[Placement, ...]) -> DTensor:
    """Return a tensor laid out like this; where that is a sum, every rank holds a different part of it."""
    dense = [Replicate() if placement.is_partial() else placement for placement in placements]
    tensor = distribute_tensor(whole(), mesh, dense)
    local = tensor.to_local()
    for dimension, placement in enumerate(placements):
        if placement.is_partial():
            local = local + mesh.get_local_rank(dimension)
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=(7, 5), stride=(5, 1))


def redistribute(rank: Rank, mesh_shape: tuple[int, ...]) -> list[torch.Tensor]:
    mesh = init_device_mesh("cpu", mesh_shape)
    layouts = list(itertools.product(PLACEMENTS, repeat=len(mesh_shape)))
    results = []
    for source, target in itertools.product(layouts, layouts):
        if any(placement.is_partial() for placement in target):
            continue  # torch forbids to make a sum of a whole
        tensor = spread(mesh, rank, source)
        moved = tensor.redistribute(mesh, target)
        assert moved.placements == target
        if not any(placement.is_partial() for placement in source):
            assert torch.equal(moved.full_tensor(), whole()), (source, target)
        results.append(moved.to_local())
    return results


def reduce_partial(rank: Rank) -> list[torch.Tensor]:
    """Undo every kind of partial value, to a whole tensor and to shards."""
    mesh = init_device_mesh("cpu", (rank.size,))
    mine = torch.arange(12.0).reshape(4, 3) * (-1) ** rank.rank + rank.rank
    results = []
    for name, target in itertools.product(["sum", "avg", "min", "max", "product"], [Replicate(), Shard(0)]):
        tensor = DTensor.from_local(mine, mesh, [Partial(name)]).redistribute(mesh, [target])
        assert not torch.equal(tensor.full_tensor(), mine)
        results.append(tensor.to_local())
    return results


def multiply(rank: Rank) -> list[torch.Tensor]:
    """Multiply matrices in every layout, forwards and backwards, and compare with one process."""
    mesh = init_device_mesh("cpu", (rank.size,))
    torch.manual_seed(0)
    left, right = torch.randn(6, 8), torch.randn(8, 5)
    expected = [t.requires_grad_() for t in (left.clone(), right.clone())]
    (expected[0] @ expected[1]).square().sum().backward()

    results = []
    for one, other in itertools.product([Replicate(), Shard(0), Shard(1)], repeat=2):
        factors = [
            distribute_tensor(left, mesh, [one]).requires_grad_(),
            distribute_tensor(right, mesh, [other]).requires_grad_(),
        ]
        product = factors[0] @ factors[1]
        product.full_tensor().square().sum().backward()
        gradients = [factor.grad.full_tensor() for factor in factors]
        torch.testing.assert_close(product.full_tensor(), left @ right)
        torch.testing.assert_close(gradients, [factor.grad for factor in expected])
        results += [product.full_tensor().detach(), *gradients]
    return results


def distribute(rank: Rank) -> list[torch.Tensor]:
    """Lay out what rank 0 has, whatever the others brought; take one part of a mesh for a mesh of its own."""
    mesh = init_device_mesh("cpu", (2, rank.size // 2), mesh_dim_names=("outer", "inner"))
    mine = whole() * (rank.rank + 1)
    results = [distribute_tensor(mine, mesh["inner"], [layout]).to_local() for layout in (Shard(0), Replicate())]
    results.append(distribute_tensor(mine, mesh, [Shard(0), Shard(1)]).full_tensor())
    assert torch.equal(results[-1], whole())
    flat = mesh._flatten("all")
    results.append(distribute_tensor(mine, flat, [Shard(1)]).to_local())
    return results


def lay_out(rank: Rank) -> tuple[dict[str, list[torch.Tensor]], list[torch.Tensor]]:
    """Return what must be the same to the last bit, and what may be rounded differently."""
    exact = {
        "line": redistribute(rank, (rank.size,)),
        "square": redistribute(rank, (2, rank.size // 2)),
        "partial": reduce_partial(rank),
        "distributed": distribute(rank),
    }
    return exact, multiply(rank)


def test_layouts() -> None:
    ours, theirs = both_backends(lay_out, 4)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine[0], other[0], rtol=0, atol=0)
        torch.testing.assert_close(mine[1], other[1])
    # It is not the same everywhere: the ranks hold different shards.
    assert ours[0][0]["line"][1].tolist() != ours[1][0]["line"][1].tolist()
