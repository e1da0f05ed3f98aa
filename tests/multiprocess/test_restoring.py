# SPDX-License-Identifier: Apache-2.0
"""A state is restored while no worker pushes: nothing that a worker did before may come after it."""

import os
import signal
from collections.abc import Callable
from typing import Any

import braid.strategies as bs
import numpy as np
import pytest
import torch.distributed as dist
from braid import CommunicatorError
from local_groups import RATE, Point, take_steps
from ranks import Rank, run_ranks
from slowness import limit
from torch.optim import SGD

pytestmark = pytest.mark.multiprocess

SOON_S = limit(60.0)
RUN_S = 300.0


def diloco(model: Point) -> tuple[Any, Any]:
    optimizer = SGD(model.parameters(), lr=RATE)
    return bs.DiLoCo(model, optimizer, sync_every=2, asynchronous=True, servers=[0], timeout=SOON_S), optimizer


def groups(model: Point) -> tuple[Any, Any]:
    optimizer = SGD(model.parameters(), lr=RATE)
    options = {"sync_every": (1, 2), "groups": [[0], [1], [2]], "asynchronous": True}
    return bs.DiLoCo(model, optimizer, timeout=SOON_S, fragment_sync_delay=1, **options), optimizer


def elastic(model: Point) -> tuple[Any, Any]:
    optimizer = SGD(model.parameters(), lr=RATE)
    return bs.ElasticAverage(model, optimizer, sync_every=2, servers=[0], timeout=SOON_S), optimizer


def parameter_server(model: Point) -> tuple[Any, Any]:
    optimizer = bs.ParameterServer(model, SGD, lr=RATE, delay=1, servers=[0], timeout=SOON_S)
    return optimizer, optimizer


Make = Callable[[Point], tuple[Any, Any]]


def saved_by(strategy: Any) -> Any:
    return strategy.service_state() if isinstance(strategy, bs.ParameterServer) else strategy.state_dict()


def load(strategy: Any, state: Any) -> None:
    if isinstance(strategy, bs.ParameterServer):
        strategy.load_service_state(state)
    else:
        strategy.load_state_dict(state)


def centre_of(strategy: Any, model: Point) -> np.ndarray:
    with strategy.centre():
        return np.array(model.weight.tolist())


def come_late(rank: Rank, make: Make) -> None:
    """The other workers train on while worker 0 already loads."""
    model = Point()
    strategy, optimizer = make(model)
    with strategy:
        take_steps(model, optimizer, rank.rank, range(4))
        strategy.settle()
        dist.barrier()
        saved = centre_of(strategy, model)
        state = saved_by(strategy) if rank.rank == 0 else None
        dist.barrier()
        if rank.rank == 0:
            rank.mark("loading")
        else:
            rank.wait_for("loading", 0, SOON_S)
            take_steps(model, optimizer, rank.rank, range(4, 4 + 20 * rank.rank))
        load(strategy, state)
        dist.barrier()
        np.testing.assert_array_equal(centre_of(strategy, model), saved)
        dist.barrier()


@pytest.mark.parametrize("make", [diloco, groups, elastic, parameter_server])
def test_late_pushes_come_before_the_state(make: Make) -> None:
    run_ranks(come_late, 3, make, timeout_s=RUN_S)


def lose(rank: Rank, make: Make) -> None:
    """Worker 1 dies before the others load."""
    model = Point()
    strategy, optimizer = make(model)
    take_steps(model, optimizer, rank.rank, range(4))
    strategy.settle()
    state = saved_by(strategy) if rank.rank == 0 else None
    rank.meet("settled", timeout_s=RUN_S)
    if rank.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    load(strategy, state)
    rank.meet("loaded", (0, 2), SOON_S)
    strategy.close()


@pytest.mark.parametrize("make", [diloco, elastic, parameter_server])
def test_the_dead_need_not_load(make: Make) -> None:
    run_ranks(lose, 3, make, killed=[1], timeout_s=RUN_S)


def stay_away(rank: Rank) -> str:
    model = Point()
    strategy, optimizer = diloco(model)
    strategy._timeout_s = 3.0
    heard = ""
    with strategy:
        take_steps(model, optimizer, rank.rank, range(4))
        if rank.rank == 0:
            with pytest.raises(CommunicatorError) as caught:
                strategy.load_state_dict(strategy.state_dict())
            heard = str(caught.value)
        dist.barrier()
    return heard


@pytest.mark.long
def test_one_does_not_load() -> None:
    assert "worker 1 did not come to load the state within 3 s" in run_ranks(stay_away, 2, timeout_s=RUN_S)[0]
