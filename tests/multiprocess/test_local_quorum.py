# SPDX-License-Identifier: Apache-2.0
"""Rounds of a quorum with warm-up, codecs, fragments and groups: what they equal, and what a slow one changes."""

import os
import signal
import time
from typing import Any

import braid.strategies as bs
import numpy as np
import pytest
import torch
import torch.distributed as dist
from local_groups import ELEMENTS, RATE, RUN_S, Point, centre_of, gradient, take_steps
from quorum_replay import Push, replay_quorum
from ranks import Rank, run_ranks
from torch import nn
from torch.optim import SGD

pytestmark = pytest.mark.multiprocess

PAIRS = [[0, 1], [2, 3]]


def with_all(rank: Rank, kind: str, options: dict[str, Any], quorum: int) -> list[Any]:
    """Return what rounds of all workers give, and then what a quorum of all gives."""
    found = []
    for way in ({}, {"quorum": quorum, "grace_s": 60.0}):
        model = Point()
        optimizer = SGD(model.parameters(), lr=RATE)
        with getattr(bs, kind)(model, optimizer, **options, **way) as strategy:
            # With a delay the last round is still under way: no two ways are at one point of it.
            take_steps(model, optimizer, rank.rank, range(12 + options.get("fragment_sync_delay", 0)))
            first = (model.weight.tolist(), centre_of(strategy, model))
            dist.barrier()
            take_steps(model, optimizer, rank.rank, range(14, 15))
            strategy.settle()
            dist.barrier()
            found.append((*first, centre_of(strategy, model)))
            dist.barrier()
    return found


@pytest.mark.parametrize(
    ("ranks", "kind", "options", "over"),
    [
        (2, "LocalSGD", {"sync_every": 3, "warmup_steps": 3}, "shm"),
        (3, "DiLoCo", {"sync_every": 4, "warmup_steps": 4}, "tcp"),
        (2, "DiLoCo", {"sync_every": 4, "num_fragments": 2}, "tcp"),
        (3, "DiLoCo", {"sync_every": 6, "num_fragments": 3, "fragment_sync_delay": 1}, "shm"),
        (2, "DiLoCo", {"sync_every": 4, "num_fragments": 2, "fragment_update_alpha": 0.5}, "shm"),
        (3, "DiLoCo", {"sync_every": 4, "num_fragments": 2, "warmup_steps": 4}, "shm"),
        (4, "LocalSGD", {"sync_every": (2, 4), "groups": PAIRS}, "shm"),
        (4, "DiLoCo", {"sync_every": (2, 4), "groups": PAIRS}, "tcp"),
        (4, "DiLoCo", {"sync_every": (2, 4), "groups": PAIRS, "warmup_steps": 4}, "shm"),
    ],
)
def test_a_quorum_of_all_is_rounds_of_all(ranks: int, kind: str, options: dict[str, Any], over: str) -> None:
    quorum = 2 if "groups" in options else ranks
    for rounds, servers in run_ranks(with_all, ranks, kind, options, quorum, wire=over, timeout_s=RUN_S):
        for one, other in zip(rounds, servers, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def through_a_codec(rank: Rank, options: dict[str, Any]) -> list[Any]:
    found = []
    for codec in ("off", "int8"):
        model = Point()
        model.weight = nn.Parameter(torch.ones(4096))  # some blocks of the codec
        optimizer = SGD(model.parameters(), lr=RATE)
        # The server is in rank 0, so what the others send travels.
        way = {"compression": codec, "quorum": 2, "grace_s": 60.0, "servers": [0]}
        with bs.DiLoCo(model, optimizer, **options, **way) as strategy:
            take_steps(model, optimizer, rank.rank, range(24))
            dist.barrier()
            sent = strategy.stats()["sent_bytes"]  # with groups those of the group's rounds
            found.append((centre_of(strategy, model), sent if isinstance(sent, int) else sum(sent)))
            dist.barrier()
    return found


@pytest.mark.parametrize(
    "options",
    [
        {"sync_every": 3},
        {"sync_every": 4, "num_fragments": 2, "warmup_steps": 3},
        {"sync_every": (2, 4), "groups": [[0], [1]]},
    ],
)
def test_a_codec_sends_less_and_loses_nothing(options: dict[str, Any]) -> None:
    results = run_ranks(through_a_codec, 2, options, wire="tcp", timeout_s=RUN_S)
    for (exact, _), (coded, _) in results:
        difference = np.abs(np.array(exact) - coded).max()
        assert 0 < difference < 0.02  # a step of int8 is a 127th of the greatest move, and errors come again
    if "groups" not in options:
        assert results[1][1][1] < 0.5 * results[1][0][1]


# ---- who is slow


def record(rank: Rank, options: dict[str, Any]) -> tuple[list[list[Push]], list[float], list[int]]:
    """Train with one server; return what was pushed after each step, the centre, and its versions."""
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    with bs.DiLoCo(model, optimizer, servers=[0], outer_lr=0.5, outer_momentum=0.6, **options) as strategy:
        parts = strategy._exchange.parts
        meant: dict[int, int] = {}
        for number, part in enumerate(parts):

            def begin(round_: int | None, number: int = number, part: Any = part, begin: Any = part.begin) -> None:
                meant[number] = part.rounds if round_ is None else round_
                begin(round_)

            part.begin = begin
        dist.barrier()
        log = []
        for step in range(24):
            meant.clear()
            time.sleep((0.001, 0.003, 0.02)[rank.rank])
            take_steps(model, optimizer, rank.rank, range(step, step + 1))
            vectors = [(number, parts[number].vector, base) for number, base in meant.items()]
            log.append([Push(number, base + one.staleness + 1, one.versions[0]) for number, one, base in vectors])
        for part in parts:
            part.vector.rest()
        dist.barrier()
        centre = centre_of(strategy, model)
        versions = [part.rounds for part in parts]
        dist.barrier()
        return log, centre, versions


@pytest.mark.parametrize(
    ("options", "over"),
    [
        ({"sync_every": 3, "quorum": 2}, "shm"),
        ({"sync_every": 2, "quorum": 2, "warmup_steps": 8}, "tcp"),
        ({"sync_every": 4, "num_fragments": 2, "quorum": 2, "grace_s": 0.002}, "tcp"),
        ({"sync_every": 3, "num_fragments": 3, "quorum": 1}, "shm"),
        ({"sync_every": 4, "num_fragments": 2, "quorum": 2, "warmup_steps": 6}, "shm"),
    ],
)
def test_who_came_when_explains_the_centre(options: dict[str, Any], over: str) -> None:
    results = run_ranks(record, 3, options, wire=over, timeout_s=RUN_S)
    count = options.get("num_fragments", 1)
    ends = [ELEMENTS * (number + 1) // count for number in range(count)]
    values = replay_quorum(
        *([log for log, _, _ in results], np.ones(ELEMENTS), ends, gradient),
        rate=RATE,
        outer_rate=0.5,
        outer_momentum=0.6,
        means=options.get("warmup_steps", 0),
    )
    pushes = [push for log, _, _ in results for step in log for push in step]
    assert {push.fragment for push in pushes} == set(range(count))
    if options["quorum"] == 2:
        slow = [push for step in results[2][0] for push in step]
        assert max(push.counted for push in pushes) > len(slow) / count, "rounds did not wait for the slow one"
    for _, centre, versions in results:
        expected = np.concatenate([of[version] for of, version in zip(values, versions, strict=True)])
        np.testing.assert_allclose(centre, expected, rtol=1e-4, atol=1e-5)


def survive(rank: Rank, options: dict[str, Any]) -> dict[str, Any]:
    """Of four workers one is slow, and one is killed in the middle of a turn."""
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    rank.join()
    # With less momentum the centre comes to 3 without going past it, in few rounds as in many.
    given = {"quorum": 2, "grace_s": 0.01, "timeout": 60.0, "outer_lr": 0.5, "outer_momentum": 0.5, **options}
    with bs.DiLoCo(model, optimizer, **given) as strategy:
        rank.meet("begun", timeout_s=60.0)  # else nobody may be left who has the dead one's values
        for step in range(40):
            if rank.rank == 2 and step == 13:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.03 if rank.rank == 3 else 0.001)
            take_steps(model, optimizer, 3, range(step, step + 1))  # all pull at 3
        rounds = strategy.stats()["rounds"]
        rank.wait_for_death(2, "begun")
        strategy.settle()
        rank.mark("trained")
        for other in (0, 1, 3):
            rank.wait_for("trained", other, 60.0)
        centre = centre_of(strategy, model)
        rank.mark("looked")
        for other in (0, 1, 3):
            rank.wait_for("looked", other, 60.0)
    return {"rounds": rounds, "centre": centre}


@pytest.mark.parametrize(
    "options",
    [
        {"sync_every": 4, "num_fragments": 2, "warmup_steps": 3},
        {"sync_every": 4, "num_fragments": 4, "compression": "int8", "fragment_sync_delay": 0},
        {"sync_every": (1, 2), "groups": [[0], [1], [2], [3]]},
    ],
)
def test_a_death_stops_nobody(options: dict[str, Any]) -> None:
    results = run_ranks(survive, 4, options, join=False, killed=[2], timeout_s=RUN_S)
    living = [results[rank] for rank in (0, 1, 3)]
    for found in living:
        assert np.abs(np.array(found["centre"]) - 3).mean() < 0.3
        if "compression" not in options:  # a codec gives each worker its own view of the centre
            assert found["centre"] == living[0]["centre"]


# ---- saving


def save_and_go_on(rank: Rank, path: str, options: dict[str, Any]) -> None:
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    with bs.DiLoCo(model, optimizer, **options) as strategy:
        take_steps(model, optimizer, rank.rank, range(4))  # in the middle of the warm-up
        dist.barrier()
        torch.save([strategy.state_dict(), model.state_dict()], f"{path}.{rank.rank}")
        dist.barrier()
        take_steps(model, optimizer, rank.rank, range(4, 16))
        dist.barrier()
        expected = centre_of(strategy, model)
        dist.barrier()
    state, of_model = torch.load(f"{path}.{rank.rank}", weights_only=True)
    model = Point()
    optimizer = SGD(model.parameters(), lr=RATE)
    with bs.DiLoCo(model, optimizer, **options) as strategy:
        model.load_state_dict(of_model)
        strategy.load_state_dict(state)
        dist.barrier()
        take_steps(model, optimizer, rank.rank, range(4, 16))
        dist.barrier()
        np.testing.assert_allclose(centre_of(strategy, model), expected, rtol=1e-6)
        dist.barrier()


@pytest.mark.parametrize(
    "options",
    [
        {"sync_every": 4, "num_fragments": 2, "warmup_steps": 6, "quorum": 2},
        {"sync_every": (2, 4), "groups": [[0], [1]], "warmup_steps": 6, "quorum": 2},
    ],
)
def test_resume(options: dict[str, Any], tmp_path: Any) -> None:
    run_ranks(save_and_go_on, 2, str(tmp_path / "state"), options, timeout_s=RUN_S)
