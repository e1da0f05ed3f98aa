# SPDX-License-Identifier: Apache-2.0
"""Hybrid with workers as threads: what it refuses, who hears of it, and its text form."""

from typing import Any

import braid
import braid.strategies as bs
import pytest
import torch
from braid.strategies.text import read
from fake_cluster import Cluster
from fake_members import Rooms
from fake_service import FakeService
from torch import nn
from torch.optim import SGD

pytestmark = pytest.mark.unit


@pytest.fixture
def rooms(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Rooms:
    return Rooms(cluster, monkeypatch)


def test_who_looks_must_not_look_alone(cluster: Cluster, rooms: Rooms) -> None:
    def train(worker: int) -> None:
        model = nn.Linear(1, 1)
        with bs.Hybrid(model, SGD, lr=0.1, groups=[[0, 1], [2]]) as optimizer:
            optimizer.step()
            if worker == 0:
                with optimizer.centre():
                    pass
            optimizer.step()

    first, second, third = cluster.run(train, 3)
    assert third is None
    for result in (first, second):
        with pytest.raises(RuntimeError, match=r"in the group of ranks 0 and 1 1 of 2 workers want the servers'"):
            raise result


@pytest.mark.parametrize("delay", [0, 1])
def test_members_hear_why_their_speaker_failed(
    delay: int, cluster: Cluster, rooms: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = FakeService.push_pull

    def push_pull(self: FakeService, *args: Any) -> Any:
        if self.member == 1 and len(FakeService.pushed) > 6:
            raise braid.CommunicatorError("the last server is lost")
        return original(self, *args)

    monkeypatch.setattr(FakeService, "push_pull", push_pull)

    def train(worker: int) -> int:
        model = nn.Linear(1, 1)
        with bs.Hybrid(model, SGD, lr=0.1, groups=[[0], [1, 2]], delay=delay) as optimizer:
            for _ in range(20):
                model.weight.grad = torch.ones(1, 1)
                optimizer.step()
            return optimizer.stats()["steps"]

    first, speaker, member = cluster.run(train, 3)
    assert first == 20
    assert isinstance(speaker, braid.CommunicatorError)
    assert str(speaker) == "the last server is lost"
    assert isinstance(member, braid.CommunicatorError)
    assert member.rank == 1
    assert str(member) == "the group of ranks 1 and 2 ends, its speaker failed: the last server is lost"


def test_after_an_error_nobody_of_the_group_waits(cluster: Cluster, rooms: Rooms) -> None:
    def train(worker: int) -> None:
        model = nn.Linear(1, 1)
        with bs.Hybrid(model, SGD, lr=0.1, groups=[[0, 1], [2]]) as optimizer:
            for step in range(4):
                if worker == 1 and step == 2:
                    raise KeyError("the user's own")
                optimizer.step()

    first, second, third = cluster.run(train, 3)
    assert isinstance(first, braid.CommunicatorError)
    assert isinstance(second, KeyError)
    assert third is None


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"groups": [[0, 1], [1, 2]]}, "rank 1 is there twice"),
        ({"groups": "hots"}, "say 'auto', 'host', or lists of ranks"),
        ({"rate_rule": "cubic"}, "there are linear, sqrt, none"),
        ({"groups": [[0, 1, 2]], "servers": [2]}, "rank 2 speaks for no group"),
        ({"mode": "fast"}, "there is none of that name"),
        ({"join": "node0:29500"}, "join= is not for Hybrid: its groups are fixed when it begins"),
    ],
)
def test_all_hear_what_one_has_wrong(options: dict[str, Any], why: str, cluster: Cluster, rooms: Rooms) -> None:
    def begin(worker: int) -> None:
        given = {"groups": [[0, 1, 2]], **(options if worker == 1 else {})}
        bs.Hybrid(nn.Linear(3, 2), SGD, lr=0.1, **given)

    if "join" in options:  # before it meets anybody if there is no process group
        with pytest.raises(ValueError, match=why):
            begin(1)
        return
    results = cluster.run(begin, 3)
    assert all(isinstance(result, ValueError) for result in results), results
    assert why in str(results[1])
    assert str(results[0]) == f"worker 1 cannot begin: {results[1]}" == str(results[2])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"groups": [[0], [1, 2]]}, r"has 'groups=0/1\+2', but worker 0 has 'groups=0\+1\+2'"),
        ({"delay": 1}, "has 'delay=1', but worker 0 has 'delay=0'"),
        ({"rate_rule": "sqrt"}, "has 'rate_rule=sqrt', but worker 0 has 'rate_rule=linear'"),
        ({"mode": "ssp"}, "has 'mode=ssp'"),
    ],
)
def test_workers_that_differ(options: dict[str, Any], why: str, cluster: Cluster, rooms: Rooms) -> None:
    def begin(worker: int) -> None:
        given = {"groups": [[0, 1, 2]], **(options if worker == 2 else {})}
        bs.Hybrid(nn.Linear(3, 2), SGD, lr=0.1, **given)

    results = cluster.run(begin, 3)
    assert len({str(result) for result in results}) == 1
    with pytest.raises(ValueError, match=f"worker 2 {why}"):
        raise results[0]


def test_text() -> None:
    text = "hybrid:groups=0+1/2+3,rate_rule=sqrt,warmup_steps=5,mode=ssp,servers=0+2,base_workers=2"
    assert read(text) == (
        bs.Hybrid,
        {
            **{"groups": [[0, 1], [2, 3]], "rate_rule": "sqrt", "warmup_steps": 5, "mode": "ssp"},
            **{"servers": [0, 2], "base_workers": 2},
        },
    )
    assert read("hybrid:groups=host")[1] == {"groups": "host"}
    with pytest.raises(ValueError, match="hybrid has no option 'group'; did you mean groups"):
        read("hybrid:group=host")
    with pytest.raises(ValueError, match="groups=0\\+x"):
        read("hybrid:groups=0+x")


def test_from_text(cluster: Cluster, rooms: Rooms) -> None:
    cluster.alone()
    model = nn.Linear(1, 1)
    with bs.from_text("hybrid:groups=host", model, SGD(model.parameters(), lr=0.1)) as optimizer:
        assert optimizer.stats()["strategy"] == "hybrid"
        assert optimizer.stats()["groups"] == [[0]]
