# SPDX-License-Identifier: Apache-2.0
"""Hybrid with its shards in processes of `braid serve`: the same bits, and one error for all workers."""

import os
from typing import Any

import braid
import braid.strategies as bs
import pytest
import torch
from ports import free_port
from ranks import Rank, run_ranks
from serving import LIMIT_S, said_by, serving
from torch import nn
from torch.optim import SGD

# test_serve.py has what is not long: servers alone under one other strategy.
pytestmark = [pytest.mark.long, pytest.mark.multiprocess]

STEPS = 6
GROUPS = [[0, 2], [1]]


def train(rank: Rank, servers: Any, **options: Any) -> tuple[list[float], dict[str, Any]]:
    """Return the values at the end, and what the strategy counted."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 33), nn.BatchNorm1d(33), nn.Tanh(), nn.Linear(33, 3))
    given = {"lr": 0.05, "momentum": 0.9, "mode": "sync", "groups": GROUPS, "timeout": LIMIT_S, **options}
    with bs.Hybrid(model, SGD, servers=servers, **given) as optimizer:
        for step in range(STEPS):
            data = torch.Generator().manual_seed(1000 * step + rank.rank)
            optimizer.zero_grad()
            model(torch.randn(6, 8, generator=data)).square().mean().backward()
            optimizer.step()
        counted = optimizer.stats()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()]).tolist(), counted


def compare(rank: Rank, port: int) -> tuple[list[list[float]], str]:
    rank.meet_at(port, LIMIT_S)
    speaks = rank.rank in (0, 1)
    found = []
    for servers, shards in ((None, 2), ("serve:2", 2), ("ranks+serve:2", 4), ([1, "serve:1"], 2)):
        values, counted = train(rank, servers)
        found.append(values)
        assert not speaks or len(counted["homes"]) == shards
    os.environ["BRAID_PARAMETER_SERVERS"] = "2"
    values, counted = train(rank, None)
    assert not speaks or counted["bytes"] == 0, "no shard lies in a rank"
    found.append(values)
    del os.environ["BRAID_PARAMETER_SERVERS"]
    # Processes are asked when groups are formed.
    values, counted = train(rank, "serve:1", groups="auto", measure_steps=3)
    assert rank.rank != 0 or (len(counted["homes"]) == 1 and counted["bytes"] == 0)
    with pytest.raises(braid.CommunicatorTimeoutError) as missing:
        train(rank, "serve:3", timeout=10.0)
    with pytest.raises(ValueError, match="rank 2 speaks for no group"):
        train(rank, "2+serve:1")
    return found, str(missing.value)


def test_servers_alone_compute_what_speakers_do() -> None:
    port = free_port()
    with serving(f"127.0.0.1:{port}", 2) as processes:
        results = run_ranks(compare, 3, port, join=False, timeout_s=300.0)
    for found, missing in results:
        assert all(values == found[0] for values in found[1:])
        assert "waits for 3 parameter servers, and 2 came within 10 s; start them with `braid serve" in missing
    for process in processes:
        said = said_by(process)
        assert process.returncode == 0, said
        assert "Traceback" not in said
        assert said.count(f" is over after {2 * STEPS} updates") >= 3, said
