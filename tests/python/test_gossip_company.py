# SPDX-License-Identifier: Apache-2.0
"""max_steps_alone: a step waits for an exchange when the last one is too long ago, and for nothing else."""

import threading
from typing import Any

import braid.strategies as bs
import pytest
import torch
from braid import CommunicatorError
from braid.strategies.gossip import company
from braid.strategies.gossip.engine import Engine
from braid.strategies.gossip.options import MODES
from fake_cluster import Cluster, must_work
from slowness import limit
from torch import nn
from torch.optim import SGD

pytestmark = pytest.mark.unit

WAIT_S = limit(60.0)


def begin(**options: Any) -> tuple[SGD, bs.Gossip]:
    model = nn.Linear(3, 2)
    optimizer = SGD(model.parameters(), lr=0.1)
    return optimizer, bs.Gossip(model, optimizer, timeout=WAIT_S, **options)


def engine_of(strategy: bs.Gossip) -> Engine:
    assert strategy._engine is not None
    return strategy._engine


def take(optimizer: SGD, steps: int) -> None:
    for _ in range(steps):
        for parameter in optimizer.param_groups[0]["params"]:
            parameter.grad = torch.ones_like(parameter)
        optimizer.step()


def be_too_slow(strategy: bs.Gossip, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make steps so fast that the exchange of none of them ever begins."""
    monkeypatch.setattr(engine_of(strategy), "due", lambda: None)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("worker_that_steps", [0, 1])  # in mode "symmetric" worker 1 is passive
def test_a_step_makes_the_exchange_that_is_overdue(
    mode: str, worker_that_steps: int, cluster: Cluster, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(company, "_LONG_S", 0.0)
    gate = threading.Barrier(2, timeout=WAIT_S)

    def work(worker: int) -> Any:
        optimizer, strategy = begin(mode=mode, max_steps_alone=5)
        with strategy:
            be_too_slow(strategy, monkeypatch)
            found = []
            if worker == worker_that_steps:
                for steps in (4, 1, 4, 1):
                    take(optimizer, steps)
                    stats = strategy.stats()
                    found.append((stats["waits"], stats["exchanges"]))
                assert 0 < stats["waited_s"] <= 1e-6 * stats["exposed_us"]
            gate.wait()  # the other one is there, but takes no step
            return found

    assert must_work(cluster.run(work, 2))[worker_that_steps] == [(0, 0), (1, 1), (1, 1), (2, 2)]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("braid: gossip: a step has waited ")
    assert line.endswith(" s for an exchange, because the last one was 5 steps ago: max_steps_alone=5")


@pytest.mark.parametrize("mode", ["symmetric", "push_sum", "dissemination"])
def test_whoever_others_meet_does_not_wait(mode: str, cluster: Cluster, monkeypatch) -> None:
    gate = threading.Barrier(2, timeout=WAIT_S)

    def work(worker: int) -> Any:
        optimizer, strategy = begin(mode=mode, max_steps_alone=2)
        with strategy:
            be_too_slow(strategy, monkeypatch)
            for _ in range(8):
                if worker == 0:
                    engine_of(strategy).meet_now()
                gate.wait()
                take(optimizer, worker)
                gate.wait()
            return strategy.stats()["waits"]

    assert must_work(cluster.run(work, 2)) == [0, 0]


@pytest.mark.parametrize(
    "options", [{"max_steps_alone": 0}, {"probability": 1e-9, "mode": "pull", "max_steps_alone": 2}]
)
def test_no_bound_and_what_chance_leaves_out(options: dict[str, Any], cluster: Cluster, monkeypatch) -> None:
    gate = threading.Barrier(2, timeout=WAIT_S)

    def work(worker: int) -> Any:
        optimizer, strategy = begin(**options)
        with strategy:
            if "probability" not in options:
                be_too_slow(strategy, monkeypatch)
            for _ in range(12):
                take(optimizer, worker)
                engine_of(strategy).wait()
            gate.wait()
            return strategy.stats()["waits"]

    assert must_work(cluster.run(work, 2)) == [0, 0]


def test_nobody_waits_where_no_other_worker_lives(cluster: Cluster, monkeypatch) -> None:
    optimizer, strategy = begin(max_steps_alone=2)
    with strategy:
        take(optimizer, 6)
        assert strategy.stats()["waits"] == 0
    has_ended = threading.Event()

    def work(worker: int) -> Any:
        optimizer, strategy = begin(max_steps_alone=2)
        with strategy:
            if worker == 1:
                assert has_ended.wait(WAIT_S)
                be_too_slow(strategy, monkeypatch)
                take(optimizer, 6)
                return strategy.stats()["waits"]
        has_ended.set()
        return 0

    assert must_work(cluster.run(work, 2)) == [0, 0]


def test_dead_workers_delay_one_step(cluster: Cluster, monkeypatch) -> None:
    gate = threading.Barrier(3, timeout=WAIT_S)

    def lose(*about: Any) -> None:
        raise CommunicatorError("no parameter server is left: the server of member 1 is lost")

    def work(worker: int) -> Any:
        optimizer, strategy = begin(mode="pull", max_steps_alone=2)
        with strategy:
            be_too_slow(strategy, monkeypatch)
            if worker == 0:
                monkeypatch.setattr(engine_of(strategy).exchange, "send", lose)
                take(optimizer, 8)
                stats = strategy.stats()
                assert stats["peers"] == []
                assert (stats["waits"], stats["lost_exchanges"], stats["steps"]) == (1, 2, 8)
            gate.wait()

    must_work(cluster.run(work, 3))


def test_who_is_lost_is_told_in_short(cluster: Cluster, capsys) -> None:
    gate = threading.Barrier(2, timeout=WAIT_S)

    def work(worker: int) -> None:
        _, strategy = begin()
        members = engine_of(strategy)._members
        gate.wait()
        if worker == 1:
            members.own.close()
        gate.wait()
        if worker == 0:
            peer = members.vector(1)
            assert peer is not None
            assert engine_of(strategy).meet(peer) is None
            assert members.vector(1) is None
        gate.wait()
        strategy.close(wait=False)

    must_work(cluster.run(work, 2))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("braid: gossip goes on without worker 1: ")
    assert "no parameter server is left" not in line
    assert len(line) > len("braid: gossip goes on without worker 1: ")
