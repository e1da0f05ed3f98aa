# SPDX-License-Identifier: Apache-2.0
"""Gossip: workers that leave and come, what is saved, what is refused, and unusual models."""

import threading
import time
from collections.abc import Callable
from typing import Any

import braid
import braid.strategies as bs
import numpy as np
import pytest
import torch
from braid.strategies.gossip.choice import Choice
from braid.strategies.gossip.exchanges import Seen
from braid.strategies.gossip.graphs import Neighbours
from braid.strategies.gossip.options import GossipOptions
from braid.strategies.text import read
from fake_cluster import Cluster, must_work
from slowness import limit
from torch import nn
from torch.optim import LBFGS, SGD
from waiting import eventually

pytestmark = pytest.mark.unit

WAIT_S = limit(60.0)


def linear(**options: Any) -> nn.Module:
    model = nn.Linear(3, 2, **options)
    with torch.no_grad():  # threads share torch's random numbers
        model.weight.copy_(torch.linspace(-0.5, 0.5, 6).view(2, 3))
    return model


def gossip(model: nn.Module | None = None, kind: type = SGD, **options: Any) -> bs.Gossip:
    model = linear() if model is None else model
    return bs.Gossip(model, kind(model.parameters()), timeout=WAIT_S, **options)


# ---- graphs


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("graph", ["ring", "exponential", "random", "bipartite", "auto", "edges"])
def test_graphs_connect_whoever_lives(graph: str, symmetric: bool) -> None:
    for workers in (1, 2, 3, 4, 5, 8, 9):
        chain = tuple((rank, rank + 1) for rank in range(workers - 1))
        for living in ([*range(workers)], [*range(0, workers, 2)], [*range(workers), workers, workers + 2]):
            around = {
                me: Neighbours(chain if graph == "edges" else graph, living, me, workers, symmetric=symmetric)
                for me in living
            }
            reached, ahead = set(), [living[0]]
            while ahead:
                me = ahead.pop()
                reached.add(me)
                ahead += [other for other in around[me].members if other not in reached]
                # Who begins an exchange in one direction only is still a neighbour of the other.
                ahead += [other for other in living if me in around[other].members and other not in reached]
            assert reached == set(living), (graph, living)
            for me, mine in around.items():
                assert me not in mine.members
                for other in mine.members if symmetric else ():
                    assert mine.is_active != around[other].is_active
                    assert me in around[other].members


def test_auto_prefers_whoever_is_fast() -> None:
    choice = Choice(GossipOptions(graph="auto", mode="pull"), 0, 4)
    choice.learn(1, 0.001, Seen(step_s=0.01))
    choice.learn(2, 0.001, Seen(step_s=0.05))  # slow steps
    choice.learn(3, 0.1, Seen(step_s=0.01))  # a slow link
    assert choice.weights([1, 2, 3]) == pytest.approx([1.0, 0.2, 0.1])
    turns = [choice.next([0, 1, 2, 3], turn) for turn in range(2000)]
    assert 4 < turns.count(1) / turns.count(2) < 6
    assert 7.5 < turns.count(1) / turns.count(3) < 13


def test_a_probability_leaves_exchanges_out() -> None:
    choice = Choice(GossipOptions(mode="pull", probability=0.25), 0, 2)
    assert 1400 < sum(choice.leaves_out([0, 1]) for _ in range(2000)) < 1600
    assert not choice.leaves_out([0])


# ---- workers that leave and come


@pytest.mark.parametrize(
    "mode",
    ["push_sum", "pull", *(pytest.param(mode, marks=pytest.mark.long) for mode in ("symmetric", "dissemination"))],
)
def test_others_go_on(mode: str, cluster: Cluster) -> None:
    gates = [threading.Barrier(count, timeout=WAIT_S) for count in (4, 3, 4, 4)]
    begun: list[threading.Thread] = []
    late: list[Any] = []

    def train(strategy: bs.Gossip, steps: int) -> None:
        model = strategy._prepared.together
        for _ in range(steps):
            for entry in model.entries:
                entry.tensor.grad = torch.ones_like(entry.tensor) * 1e-3
            strategy._optimizer.step()
            time.sleep(1e-3)

    def join() -> None:
        cluster.join_late(cluster.name, cluster.store)
        with gossip(mode=mode) as strategy:
            late.append(strategy.state_dict())
            train(strategy, 20)
            strategy.settle()
            gates[2].wait()  # no exchange is under way from here on
            late.append(strategy.stats())
            gates[3].wait()

    def work(worker: int) -> Any:
        with gossip(mode=mode) as strategy:
            train(strategy, 20)
            gates[0].wait()
            if worker == 3:
                return None
            train(strategy, 20)
            eventually(lambda: strategy.stats()["peers"] == [other for other in range(3) if other != worker])
            gates[1].wait()
            if worker == 0:
                begun.append(threading.Thread(target=join))
                begun[0].start()
            eventually(lambda: 4 in strategy.stats()["peers"])
            train(strategy, 20)
            strategy.settle()
            gates[2].wait()
            stats, state = strategy.stats(), strategy.state_dict()
            gates[3].wait()
            return stats, state

    results = must_work(cluster.run(work, 4))
    begun[0].join(WAIT_S)
    first = linear().weight.detach().flatten()
    # The late worker began at the mean of the others, who had taken 40 steps of 1e-3 times the rate.
    np.testing.assert_allclose(late[0]["values"][:6], first - 40 * 1e-6, atol=3e-5)
    assert late[1]["peers"] == [0, 1, 2]
    for worker in range(3):
        stats, state = results[worker]
        assert stats["peers"] == [other for other in (0, 1, 2, 4) if other != worker]
        assert stats["steps"] == 60
        assert state["values"].isfinite().all()
    weights = sum(results[worker][0]["weight"] for worker in range(3)) + late[1]["weight"]
    if mode == "push_sum":  # worker 3 has taken its weight along, and the late one has brought 1
        assert weights < 5
    else:
        assert weights == 4


def test_who_has_left_after_an_error_counts_for_nobody(cluster: Cluster) -> None:
    """Its vector may still answer for a moment: then some would count it, and others not."""
    over = threading.Barrier(3, timeout=WAIT_S)

    def work(worker: int) -> Any:
        model = linear()
        with gossip(model, sync_every=1000) as strategy:
            for parameter in model.parameters():
                parameter.grad = torch.full_like(parameter, 100.0 * (worker + 1))
            strategy._optimizer.step()
            if worker == 2:
                strategy._everyone.leave()
            else:
                strategy.settle(everyone=True)
            found = model.weight.detach().clone()
            over.wait()
        return found

    first, second, alone = must_work(cluster.run(work, 3))
    assert torch.equal(first, second)
    torch.testing.assert_close(first, linear().weight - 0.15)
    torch.testing.assert_close(alone, linear().weight - 0.3)


def test_what_is_saved(cluster: Cluster) -> None:
    saved: dict[int, Any] = {}
    gate = threading.Barrier(3, timeout=WAIT_S)

    def save(worker: int) -> None:
        with gossip(mode="push_sum") as strategy:
            strategy._local.install(torch.full((8,), float(worker)), weight=0.5 + worker)
            strategy._steps = 10 + worker
            saved[worker] = strategy.state_dict()
            gate.wait()

    must_work(cluster.run(save, 3))
    assert [saved[worker]["weight"] for worker in range(3)] == [0.5, 1.5, 2.5]

    def load(worker: int, count: int) -> Any:
        with gossip(mode="push_sum") as strategy:
            strategy.load_state_dict(saved.get(worker))
            weight = strategy.stats()["weight"]
            with strategy.centre():
                centre = strategy._prepared.together.tensors[0].flatten()[0].item()
            gates[count].wait()
            return strategy._prepared.together.tensors[0].flatten()[0].item(), weight, strategy._steps, centre

    gates = {count: threading.Barrier(count, timeout=WAIT_S) for count in (2, 5)}
    mean = (1 * 1.5 + 2 * 2.5) / 4.5
    results = must_work(cluster.run(load, 2, 2))
    assert [row[:3] for row in results] == [(0.0, 0.5, 10), (1.0, 1.5, 11)]
    assert results[0][3] == results[1][3] == pytest.approx(0.75)
    results = must_work(cluster.run(load, 5, 5))
    assert results[2][:3] == (2.0, 2.5, 12)
    for worker in (3, 4):
        assert results[worker][0] == pytest.approx(mean)
        assert results[worker][1:3] == (1.0, 12)

    def load_wrong(worker: int) -> None:
        with gossip(mode="push_sum") as strategy:
            strategy.load_state_dict({"strategy": "elastic_average"} if worker == 1 else saved[0])

    for result in cluster.run(load_wrong, 2):
        assert isinstance(result, ValueError)
        assert str(result) == (
            "worker 1 cannot load its state: this is a state of the strategy 'elastic_average', not of 'gossip'"
        )
    (result,) = cluster.run(lambda worker: gossip().load_state_dict(None), 1)
    assert "no worker has a state to load" in str(result)


# ---- unusual models


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["symmetric", "push_sum"])
def test_one_worker_trains_as_alone(mode: str, dtype: torch.dtype, cluster: Cluster) -> None:
    def train(strategy: bool) -> torch.Tensor:
        torch.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).to(dtype)
        optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
        attached = bs.Gossip(model, optimizer, mode=mode, sync_every=2) if strategy else None
        for _ in range(30):
            optimizer.zero_grad()
            model(torch.randn(8, 4, dtype=dtype)).square().mean().backward()
            optimizer.step()
        if attached:
            attached.close()
        return torch.cat([value.float().flatten() for value in model.state_dict().values()])

    # A step is added as a rounded difference.
    near = 1e-5 if dtype == torch.float32 else 0.1
    np.testing.assert_allclose(train(True), train(False), rtol=near, atol=near)


def test_buffers_frozen_and_tied_parameters(cluster: Cluster) -> None:
    gate = threading.Barrier(2, timeout=WAIT_S)

    def work(worker: int, buffers: str) -> Any:
        torch.manual_seed(worker)
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 2))
        model[2].weight = model[0].weight
        model[3].requires_grad_(False)
        optimizer = SGD(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        with bs.Gossip(model, optimizer, buffers=buffers, timeout=WAIT_S) as strategy:
            assert strategy._prepared.packing.elements == 16 + 4 + 4 + 4 + 4  # the tied weight once
            for step in range(10):
                optimizer.zero_grad()
                loss = model(torch.randn(8, 4) + 3 * worker).square().mean()
                scaler.scale(loss * (float("inf") if step == 3 else 1.0)).backward()
                scaler.step(optimizer)
                scaler.update()
            assert strategy.stats()["steps"] == 9
            strategy.settle()
            gate.wait()
            with strategy.centre():
                with pytest.raises(RuntimeError, match="take no step inside centre"):
                    optimizer.step()
                with pytest.raises(RuntimeError, match="leave the other centre"), strategy.centre():
                    pass
                state = {name: value.clone() for name, value in model.state_dict().items()}
            gate.wait()
        return state

    first, second = must_work(cluster.run(work, 2, "average"))
    for name, value in first.items():
        assert value.isfinite().all()
        same = not name.startswith("3.") and "num_batches" not in name
        assert torch.equal(value, second[name]) or not same, name
    first, second = must_work(cluster.run(work, 2, "local"))
    assert not torch.equal(first["1.running_mean"], second["1.running_mean"])


# ---- what is refused


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (
            lambda: gossip(mode="ad-psgd"),
            "mode 'ad-psgd': there is none of that name; there are symmetric, push_sum",
        ),
        (lambda: gossip(graph="star"), "graph 'star': there is none of that name; there are ring, exponential"),
        (lambda: gossip(graph=[(0, 3), (0, 1)]), r"edge \(0, 3\) names rank 3, but ranks go from 0 to "),
        (lambda: gossip(graph=[]), "graph: no path of edges leads from rank 0 to rank 1: all must be connected"),
        (lambda: gossip(graph=[(0, 1, 2)]), r"graph: \(0, 1, 2\) is no edge: an edge is a pair of ranks"),
        (lambda: gossip(graph=3), r"graph=3: a name, or a list of edges as \[\(0, 1\), \(1, 2\)\]"),
        (lambda: gossip(graph=["01"]), "graph: '01' is no edge"),
        (lambda: gossip(graph=[(1, 1)]), r"graph: edge \(1, 1\) leads from rank 1 to itself"),
        (lambda: gossip(graph=[(0, 1), (1, 2), (2, 0)]), "closes a circle of odd length"),
        (lambda: gossip(sync_every=0), "sync_every=0: a whole number of steps, at least 1"),
        (lambda: gossip(probability=0.0), "probability=0.0: more than 0, and at most 1"),
        (lambda: gossip(probability=float("nan")), "probability=nan: more than 0"),
        (lambda: gossip(max_steps_alone=-1), "max_steps_alone=-1: a whole number of steps, or 0 for any number"),
        (lambda: gossip(seed=-1), "seed=-1: a whole number, at least 0"),
        (lambda: gossip(buffers="broadcast"), "buffers 'broadcast': there are average and local"),
        (lambda: gossip(kind=LBFGS), "LBFGS evaluates its closure several times"),
        (lambda: gossip(linear(dtype=torch.float64)), "^weight is float64: "),
    ],
)
def test_what_does_not_fit(make: Callable[[], bs.Gossip], why: str, cluster: Cluster) -> None:
    results = cluster.run(lambda worker: make() if worker == 1 else gossip(), 3)
    assert all(isinstance(result, ValueError) for result in results), results
    assert str(results[0]) == f"worker 1 cannot begin: {results[1]}" == str(results[2])
    with pytest.raises(ValueError, match=why) as caught:
        raise results[1]
    assert "\n" not in str(caught.value)


def test_workers_that_differ(cluster: Cluster) -> None:
    for options, why in (
        ({"mode": "pull"}, "has 'mode=pull', but worker 0 has 'mode=symmetric'"),
        ({"graph": [(0, 1), (1, 2)]}, r"has 'graph=\(\(0, 1\), \(1, 2\)\)', but worker 0 has 'graph=bipartite'"),
    ):
        results = cluster.run(lambda worker, options=options: gossip(**options if worker == 2 else {}), 3)
        assert {type(result) for result in results} == {ValueError}
        with pytest.raises(ValueError, match=why):
            raise results[0]


def test_a_closed_strategy_says_so(cluster: Cluster) -> None:
    model = linear()
    optimizer = SGD(model.parameters())
    strategy = bs.Gossip(model, optimizer)
    with pytest.raises(ValueError, match="weight belongs to another strategy already"):
        bs.Gossip(model, optimizer)
    (row,) = [row for row in braid.stats() if row["group"] == strategy._meeting.name]
    assert row["parameters"]["exchanges"] == 0
    strategy.close()
    strategy.close()
    assert all(row["group"] != strategy._meeting.name for row in braid.stats())
    for call in (strategy.stats, strategy.settle, strategy.state_dict):
        with pytest.raises(RuntimeError, match="the strategy is closed"):
            call()
    optimizer.step()  # detached


def test_as_text(cluster: Cluster) -> None:
    text = "gossip:mode=pull,graph=0-1+1-2,sync_every=2,probability=0.5,overlap=false,max_steps_alone=50"
    kind, options = read(text)
    assert kind is bs.Gossip
    assert options == {
        **{"mode": "pull", "graph": [(0, 1), (1, 2)], "sync_every": 2, "probability": 0.5, "overlap": False},
        "max_steps_alone": 50,
    }
    model = linear()
    with bs.from_text("gossip:mode=push_sum,graph=exponential", model, SGD(model.parameters())) as strategy:
        assert strategy.stats()["graph"] == "exponential"
    with pytest.raises(ValueError, match="graph=0-x: expected edges between ranks"):
        read("gossip:graph=0-x")
