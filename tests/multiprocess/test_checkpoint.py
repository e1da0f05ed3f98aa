# SPDX-License-Identifier: Apache-2.0
"""Sharded checkpoints: saved in one layout, loaded into another, saved while training goes on."""

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from against_gloo import both_backends
from ranks import Rank
from slowness import limit
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

pytestmark = pytest.mark.multiprocess


def reshard(rank: Rank) -> list[torch.Tensor]:
    """Save rows, load columns, and load them whole."""
    mesh = init_device_mesh("cpu", (rank.size,))
    whole = torch.arange(35.0).reshape(7, 5)
    saved = {
        "tensor": distribute_tensor(whole, mesh, [Shard(0)]),
        "each": {f"of{rank.rank}": torch.full((3,), float(rank.rank))},
        "number": 17,
    }
    folder = rank.folder / "rows"
    dcp.save(saved, checkpoint_id=folder)
    results = []
    for layout in (Shard(1), Replicate()):
        loaded = {
            "tensor": distribute_tensor(torch.zeros(7, 5), mesh, [layout]),
            # What the next rank saved.
            "each": {f"of{(rank.rank + 1) % rank.size}": torch.zeros(3)},
            "number": 0,
        }
        dcp.load(loaded, checkpoint_id=folder)
        assert torch.equal(loaded["tensor"].full_tensor(), whole)
        assert loaded["number"] == 17
        results += [loaded["tensor"].to_local(), *loaded["each"].values()]
    return results


def make_model(rank: Rank, seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 3))
    fully_shard(model, mesh=init_device_mesh("cpu", (rank.size,)))
    return model, torch.optim.Adam(model.parameters(), lr=0.05, foreach=False)


def take_steps(rank: Rank, model: nn.Module, optimizer: torch.optim.Optimizer, first: int) -> list[torch.Tensor]:
    for step in range(first, first + 2):
        data = torch.Generator().manual_seed(100 * step + rank.rank)
        optimizer.zero_grad()
        model(torch.randn(4, 6, generator=data)).square().mean().backward()
        optimizer.step()
    return [p.full_tensor().detach() for p in model.parameters() if isinstance(p, DTensor)]


def resume(rank: Rank) -> list[torch.Tensor]:
    """Train, save in the background while training goes on, begin with another model, load, train on."""
    model, optimizer = make_model(rank, 0)
    before = take_steps(rank, model, optimizer, 0)
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    # The one that saves talks from a thread of its own, so it needs a group of its own.
    saving = dist.new_group()
    future = dcp.async_save(state, checkpoint_id=rank.folder / "training", process_group=saving)
    after = take_steps(rank, model, optimizer, 2)
    future.result(timeout=limit(60))

    model, optimizer = make_model(rank, 1)
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    dcp.load(state, checkpoint_id=rank.folder / "training")
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    loaded = [p.full_tensor().detach() for p in model.parameters() if isinstance(p, DTensor)]
    torch.testing.assert_close(loaded, before, rtol=0, atol=0)
    resumed = take_steps(rank, model, optimizer, 2)
    torch.testing.assert_close(resumed, after, rtol=0, atol=0)
    assert not torch.equal(resumed[0], before[0])
    return resumed


def take_over(rank: Rank, folder: Path) -> list[torch.Tensor]:
    """Save on braid, load on Gloo: the files are of no backend."""
    mesh = init_device_mesh("cpu", (rank.size,))
    if dist.get_backend() == "braid":
        state = {"tensor": distribute_tensor(torch.arange(21.0), mesh, [Shard(0)])}
        dcp.save(state, checkpoint_id=folder)
    else:
        state = {"tensor": distribute_tensor(torch.zeros(21), mesh, [Shard(0)])}
        dcp.load(state, checkpoint_id=folder)
    return [state["tensor"].full_tensor()]


def use_all(rank: Rank, folder: Path) -> list[list[torch.Tensor]]:
    return [reshard(rank), resume(rank), take_over(rank, folder)]


def test_checkpoints(tmp_path: Path) -> None:
    ours, theirs = both_backends(use_all, 2, tmp_path)
    torch.testing.assert_close(ours, theirs)
