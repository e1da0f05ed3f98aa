# SPDX-License-Identifier: Apache-2.0
"""``braid.take_over()``: one line at the top of a script, in place of a launcher's option."""

import os
import re
from typing import Any

import braid
import pytest
import torch
import torch.distributed as dist
from ranks import Rank, run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.multiprocess


def carried_by() -> str:
    return type(dist.group.WORLD._get_backend(torch.device("cpu"))).__module__


def make_group(rank: Rank, backend: str | None) -> None:
    rank.store = dist.FileStore(str(rank.folder / "store"))
    dist.init_process_group(backend, store=rank.store, rank=rank.rank, world_size=rank.size)


def train(rank: Rank, backend: str | None, asked: dict[str, str]) -> dict[str, Any]:
    braid.take_over(**asked)
    make_group(rank, backend)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(400, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    torch.manual_seed(1 + rank.rank)
    apart = []
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 400)).square().mean().backward()
        optimizer.step()
        mine = next(model.parameters()).detach().clone()
        dist.broadcast(mine, 0)
        apart.append(not torch.equal(mine, next(model.parameters())))
    found = {"module": carried_by(), "name": dist.get_backend(), "apart": apart, "settings": dict(os.environ)}
    dist.destroy_process_group()
    return found


@pytest.mark.parametrize(
    ("backend", "asked", "module", "apart"),
    [
        ("gloo", {}, "braid._c10d", [False] * 4),
        pytest.param("gloo", {"backends": "nccl"}, "torch.", [False] * 4, marks=pytest.mark.long),
        ("gloo", {"backends": "gloo", "strategy": "local:sync_every=2"}, "braid._c10d", [True, False] * 2),
        pytest.param(None, {}, "braid._c10d", [False] * 4, marks=pytest.mark.long),
        pytest.param("gloo", {"compression": "int8"}, "braid._c10d", [False] * 4, marks=pytest.mark.long),
    ],
)
def test_the_scripts_own_backend_is_braid(
    backend: str | None, asked: dict[str, str], module: str, apart: list[bool]
) -> None:
    results = run_ranks(train, 2, backend, asked, join=False, rival=True)
    assert results[1]["apart"] == apart  # rank 0 compares with itself
    for found in results:
        assert found["module"].startswith(module)
        assert found["name"] == (backend or found["name"])
        assert found["settings"]["BRAID_STRATEGY" if "strategy" in asked else "BRAID_TAKEOVER"]


def refuse(rank: Rank) -> None:
    for wrong, says in (
        ({"backends": " "}, "name a backend"),
        ({"backends": "glo"}, "glo"),
        ({"compression": "int7"}, "int7"),
        ({"strategy": "gossipp"}, "did you mean gossip?"),
        ({"strategy": "gossip:x=1"}, "no option 'x'"),
    ):
        with pytest.raises(ValueError, match=re.escape(says)):
            braid.take_over(**wrong)
    assert "BRAID_TAKEOVER" not in os.environ  # nothing was begun
    os.environ["BRAID_TAKEOVER"] = "gloo,mpi"
    with pytest.raises(RuntimeError, match="BRAID_TAKEOVER is 'gloo,mpi' already"):
        braid.take_over("gloo,nccl")
    braid.take_over("gloo")  # a part of what the launcher has asked for
    make_group(rank, "gloo")
    with pytest.raises(RuntimeError, match="a process group exists already"):
        braid.take_over("gloo")
    assert carried_by() == "braid._c10d"
    dist.destroy_process_group()


def test_what_is_refused() -> None:
    run_ranks(refuse, 1, join=False)
