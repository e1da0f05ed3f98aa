# SPDX-License-Identifier: Apache-2.0
"""A process of `braid serve` that comes while a strategy of torch trains."""

import signal
import time
from typing import Any

import braid.strategies as bs
import pytest
import torch
import torch.distributed as dist
from ports import free_port
from ranks import Rank, run_ranks
from serving import LIMIT_S, said_by, serving, start
from torch import nn
from torch.nn.functional import mse_loss
from torch.optim import SGD

# test_late_servers.py has what is not long.
pytestmark = [pytest.mark.long, pytest.mark.multiprocess]

WIDTH = 1024  # 4 MiB of weights; one server has several shards of 1 MiB
LATE = 1  # its place
AFTER = 30


def attach(kind: str, model: nn.Module) -> tuple[Any, Any]:
    """Return the strategy and the optimizer whose step() a script calls."""
    options: dict[str, Any] = {"servers": "serve:1", "timeout": LIMIT_S}
    if kind == "ParameterServer":
        strategy = bs.ParameterServer(model, SGD, lr=2.0, momentum=0.5, **options)
        return strategy, strategy
    if kind == "Hybrid":
        strategy = bs.Hybrid(model, SGD, lr=2.0, momentum=0.5, groups=[[0], [1]], **options)
        return strategy, strategy
    optimizer = SGD(model.parameters(), lr=2.0)
    if kind == "ElasticAverage":
        return bs.ElasticAverage(model, optimizer, sync_every=2, schedule="first_come", **options), optimizer
    return bs.DiLoCo(model, optimizer, sync_every=2, asynchronous=True, **options), optimizer


def train(rank: Rank, port: int, kind: str) -> dict[str, Any]:
    """Train; let a server come; train on; return the losses and what the server said."""
    rank.meet_at(port, LIMIT_S)
    torch.manual_seed(0)
    model = nn.Linear(WIDTH, WIDTH)
    inputs, targets = torch.randn(64, WIDTH), torch.randn(64, WIDTH)
    strategy, optimizer = attach(kind, model)

    def step() -> None:
        optimizer.zero_grad()
        mse_loss(model(inputs), targets).backward()
        optimizer.step()

    with strategy:
        first = mse_loss(model(inputs), targets).item()
        step()
        late = start(f"127.0.0.1:{port}", name="late") if rank.rank == 0 else None
        deadline = time.monotonic() + LIMIT_S
        while LATE not in strategy.stats()["homes"]:
            assert time.monotonic() < deadline, strategy.stats()
            step()
        dist.barrier()
        half = mse_loss(model(inputs), targets).item()
        for _ in range(AFTER):
            step()
        strategy.settle()
        dist.barrier()
        with strategy.centre():
            last = mse_loss(model(inputs), targets).item()
        lost = strategy.stats()["lost_parts"]
        dist.barrier()
    said = ""
    if late is not None:  # it would wait for this job's next strategy
        late.send_signal(signal.SIGINT)
        late.wait(LIMIT_S)
        said = said_by(late)
    return {"losses": (first, half, last), "lost": lost, "said": said}


@pytest.mark.parametrize("kind", ["ParameterServer", "Hybrid", "ElasticAverage", "DiLoCo"])
def test_a_late_server_takes_shards(kind: str) -> None:
    port = free_port()
    with serving(f"127.0.0.1:{port}", 1) as processes:
        found = run_ranks(train, 2, port, kind, join=False, timeout_s=300.0)
    half = max(told["losses"][1] for told in found)  # one may have trained less than the other by then
    for told in found:
        first, _, last = told["losses"]
        assert last < first, told
        assert last < 1.5 * half, told
        assert told["lost"] == 0
    assert "has come late to strategy" in found[0]["said"], found[0]["said"]
    assert "Traceback" not in found[0]["said"]
    assert processes[0].returncode == 0, said_by(processes[0])
