# SPDX-License-Identifier: Apache-2.0
"""Fragments with two periods: hosts take means often, and all workers exchange one fragment at a time seldom."""

import copy
import os
import signal
from typing import Any

import braid
import braid.strategies as bs
import pytest
import torch
import torch.distributed as dist
from hosts_apart import join_apart
from ranks import Rank, run_ranks
from test_local_steps import backward, centre_of, nesterov, network, take_steps, values
from torch import Tensor, nn
from torch.optim import SGD, AdamW

pytestmark = pytest.mark.multiprocess

RUN_S = 200.0
STEPS = 23
GROUPS = [[0, 1], [2, 3]]


# ---- a replay in one process


def give(model: nn.Module, own: Tensor) -> None:
    nn.utils.vector_to_parameters(own.clone(), model.parameters())  # which become views of the vector


def replay(
    every: tuple[int, int], fragments: int, groups: list[list[int]], keep: float = 0.0, warm: int = 0
) -> tuple[list[Tensor], Tensor]:
    """Return all workers' values and the centre after streaming DiLoCo with two periods, written down plainly."""
    workers = sum(len(ranks) for ranks in groups)
    models = [network() for _ in range(workers)]
    optimizers = [AdamW(model.parameters(), lr=0.01) for model in models]
    centre = values(models[0])
    ends = [len(centre) * place // fragments for place in range(fragments + 1)]
    parts = [slice(*ends[place : place + 2]) for place in range(fragments)]
    moved = [nn.Parameter(centre[part].clone()) for part in parts]
    outers = [nesterov([parameter]) for parameter in moved]
    inner, outer = every[0], every[1] // fragments
    for step in range(1, STEPS + 1):
        for worker, model in enumerate(models):
            backward(model, worker, step - 1)
            optimizers[worker].step()
        if step <= warm:
            centre = torch.stack([values(model) for model in models]).mean(0)
            for parameter, part in zip(moved, parts, strict=True):
                parameter.data.copy_(centre[part])
            for model in models:
                give(model, centre)
            continue
        passed = step - warm
        if passed % inner == 0:
            for ranks in groups:
                mean = torch.stack([values(models[rank]) for rank in ranks]).mean(0)
                for rank in ranks:
                    give(models[rank], mean)
        if passed % outer == 0:
            turn = (passed // outer - 1) % fragments
            part = parts[turn]
            moved[turn].grad = centre[part] - torch.stack([values(model)[part] for model in models]).mean(0)
            outers[turn].step()
            centre[part] = moved[turn].detach()
            for model in models:
                own = values(model)
                own[part] = keep * own[part] + (1 - keep) * centre[part]
                give(model, own)
    return [values(model) for model in models], centre


CASES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"every": (1, 2), "fragments": 2}, {}),
    ({"every": (2, 8), "fragments": 2}, {}),
    ({"every": (2, 8), "fragments": 4}, {}),
    ({"every": (2, 8), "fragments": 2, "keep": 0.5}, {"fragment_update_alpha": 0.5}),
    ({"every": (3, 6), "fragments": 2, "warm": 4}, {"warmup_steps": 4}),
    ({"every": (2, 4), "fragments": 2, "groups": [[0, 2, 3], [1]]}, {"groups": [[0, 2, 3], [1]]}),
]


def of_all_cases(rank: Rank) -> list[tuple[Tensor, Tensor]]:
    join_apart(rank, per_host=2)
    found = []
    for case, options in CASES:
        model = network()
        optimizer = AdamW(model.parameters(), lr=0.01)
        options = {"sync_every": case["every"], "num_fragments": case["fragments"], **options}
        with bs.DiLoCo(model, optimizer, **options) as strategy:
            take_steps(model, optimizer, rank.rank, range(STEPS))
            found.append((values(model), centre_of(strategy, model)))
    return found


def test_what_fragments_with_two_periods_compute() -> None:
    """Four ranks on two hosts against a replay; groups are the hosts, where no case says others."""
    results = run_ranks(of_all_cases, 4, wire="shm,tcp", join=False, timeout_s=RUN_S)
    for number, (case, _) in enumerate(CASES):
        workers, centre = replay(**{"groups": GROUPS, **case})
        for worker, found in enumerate(results):
            own, ours = found[number]
            torch.testing.assert_close(ours, centre, rtol=1e-4, atol=1e-6)
            torch.testing.assert_close(own, workers[worker], rtol=1e-4, atol=1e-6)
            assert torch.equal(ours, results[0][number][1]), "the centre differs among workers"


# ---- uneven steps


def no_step_is_lost(rank: Rank, options: dict[str, Any]) -> list[Tensor]:
    """Workers move by known distances, each with another number of steps; return the centre, twice."""
    join_apart(rank, per_host=2)
    model = nn.Linear(6, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = SGD(model.parameters(), lr=1.0)
    found = []
    with bs.DiLoCo(model, optimizer, outer_lr=1.0, outer_momentum=0.0, **options) as strategy:
        for _ in range(2):
            for _ in range(2 + 3 * rank.rank):
                model.weight.grad = torch.full((1, 6), -1.0)
                optimizer.step()
            strategy.settle()
            assert torch.equal(values(model), centre_of(strategy, model))
            dist.barrier()  # now nobody is in a round
            found.append(values(model))
    return found


def even(every: tuple[int, int], fragments: int) -> list[float]:
    """Return each fragment's value after the first settle(): what an exchange is that counts each step once."""
    inner, outer = every[0], every[1] // fragments
    most = [2 + 3 * rank for rank in range(4)]
    centre, base = [0.0] * fragments, [[0.0] * fragments for _ in GROUPS]
    lacking = [[0.0] * fragments for _ in range(4)]  # what each has done since its base
    turn, step = 0, 0
    while True:
        step += 1
        for rank in range(4):
            if step <= most[rank]:
                lacking[rank] = [value + 1 for value in lacking[rank]]
        if step % inner:
            continue
        for group, ranks in enumerate(GROUPS):
            here = [rank for rank in ranks if step <= most[rank]]
            if here:
                mean = [sum(lacking[rank][part] for rank in here) / len(here) for part in range(fragments)]
                base[group] = [value + by for value, by in zip(base[group], mean, strict=True)]
                for rank in here:
                    lacking[rank] = [0.0] * fragments
        if step % outer:
            continue
        part = turn % fragments
        turn += 1
        brings = [
            base[group][part] - centre[part]
            for group, ranks in enumerate(GROUPS)
            for rank in ranks
            if step <= most[rank] or base[group][part] != centre[part]
        ]
        if not brings:
            break
        centre[part] += sum(brings) / len(brings)
        for values_ in base:
            values_[part] = centre[part]
    for part in range(fragments):
        brings = [
            base[group][part] + lacking[rank][part] - centre[part]
            for group, ranks in enumerate(GROUPS)
            for rank in ranks
            if base[group][part] + lacking[rank][part] != centre[part]
        ]
        centre[part] += sum(brings) / len(brings) if brings else 0.0
    return centre


@pytest.mark.parametrize(("every", "fragments"), [((2, 4), 2), ((1, 3), 3), ((1, 6), 2)])
def test_no_step_is_lost(every: tuple[int, int], fragments: int) -> None:
    options = {"sync_every": every, "num_fragments": fragments}
    results = run_ranks(no_step_is_lost, 4, options, wire="shm,tcp", join=False, timeout_s=RUN_S)
    expected = torch.tensor(even(every, fragments)).repeat_interleave(6 // fragments)
    for ours in results:
        torch.testing.assert_close(ours[0], expected)
        torch.testing.assert_close(ours[1], 2 * expected)
        for mine, first in zip(ours, results[0], strict=True):
            assert torch.equal(mine, first)


def mixed(rank: Rank) -> Tensor:
    """Buffers, codec, warm-up, half precision, and workers that end one after the other."""
    torch.manual_seed(rank.rank)
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 1)).to(torch.bfloat16)
    optimizer = SGD(model.parameters(), lr=0.05)
    options = {"sync_every": (2, 8), "num_fragments": 4, "groups": [[0, 3], [1, 2]], "warmup_steps": 3}
    with bs.DiLoCo(model, optimizer, compression="int8", outer_momentum=0.5, **options) as strategy:
        for step in range(13 + 5 * rank.rank):
            if step == 9:
                strategy.settle()
            optimizer.zero_grad()
            x = torch.randn(8, 4).to(torch.bfloat16)
            (model(x).sum(1) - x.sum(1)).square().mean().backward()
            optimizer.step()
    floats = [value for value in model.state_dict().values() if value.is_floating_point()]
    found = torch.cat([value.flatten().float() for value in floats])
    assert found.isfinite().all()
    return found


def test_buffers_codecs_and_half_precision() -> None:
    results = run_ranks(mixed, 4, timeout_s=RUN_S)
    for found in results[1:]:
        assert torch.equal(found, results[0])


# ---- bytes, errors, resumption


def count_bytes(rank: Rank) -> dict[int, int]:
    found = {}
    for fragments in (1, 2, 4):
        model = nn.Linear(100_000, 1, bias=False)
        optimizer = SGD(model.parameters(), lr=0.1)
        options = {"sync_every": (2, 8), "groups": [[0], [1]], "num_fragments": fragments}
        with bs.DiLoCo(model, optimizer, **options) as strategy:
            sent = []
            for _ in range(16):
                model.weight.grad = torch.ones(1, 100_000)
                optimizer.step()
                sent.append(strategy.stats()["sent_bytes"])
            # A group of one sends nothing: these are the rounds of all.
            rounds = [after - before for before, after in zip([0, *sent], sent, strict=False) if after > before]
            assert len(rounds) == 2 * fragments
            assert max(rounds) == pytest.approx(400_000 / fragments, rel=0.01)
            found[fragments] = sent[-1]
    return found


def test_each_fragment_travels_once_in_a_long_period() -> None:
    for found in run_ranks(count_bytes, 2, timeout_s=RUN_S):
        assert found[2] == pytest.approx(found[1], rel=0.01)
        assert found[4] == pytest.approx(found[1], rel=0.01)


def fail(rank: Rank, dies: bool) -> str:
    model = network()
    optimizer = SGD(model.parameters(), lr=0.05)
    try:
        with bs.DiLoCo(model, optimizer, sync_every=(1, 4), num_fragments=2, groups=GROUPS):
            take_steps(model, optimizer, rank.rank, range(7))  # the second fragment is next
            if rank.rank == 1:
                if dies:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise KeyError("the user's own")
            take_steps(model, optimizer, rank.rank, range(7, 60))
    except (KeyError, braid.CommunicatorError) as error:
        if not dies:
            for other in range(rank.size):
                rank.mark("heard")
                rank.wait_for("heard", other)
        return type(error).__name__ + str(error)
    return "all is well"


def test_the_others_hear_of_an_error() -> None:
    texts = run_ranks(fail, 4, False, timeout_s=RUN_S)
    assert texts.pop(1).startswith("KeyError")
    for text in texts:
        assert "another worker has left local steps after an error: its output says why" in text


def test_rounds_end_when_a_worker_dies() -> None:
    texts = run_ranks(fail, 4, True, killed=[1], timeout_s=RUN_S)
    texts.pop(1)
    for text in texts:
        assert "a round of local steps failed" in text or "another worker has left" in text, text


def resume(rank: Rank) -> None:
    options = {"sync_every": (2, 8), "num_fragments": 2, "groups": GROUPS, "compression": "int8"}

    def train(steps: range, saved: list[Any] | None) -> tuple[list[Any], Tensor, Tensor]:
        model = network()
        optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
        with bs.DiLoCo(model, optimizer, **options) as strategy:
            if saved:
                model.load_state_dict(saved[1])
                optimizer.load_state_dict(saved[2])
                strategy.load_state_dict(saved[0])
            states = []
            for step in steps:
                take_steps(model, optimizer, rank.rank, range(step, step + 1))
                if step in (6, 9):  # in the middle of a group's period; after the first and the second fragment
                    state = [strategy.state_dict(), model.state_dict(), optimizer.state_dict()]
                    states.append(copy.deepcopy(state))
            return states, values(model), centre_of(strategy, model)

    states, *expected = train(range(20), None)
    for begin, saved in zip((7, 10), states, strict=True):
        _, *found = train(range(begin, 20), saved)
        for mine, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)


def test_resume() -> None:
    run_ranks(resume, 4, timeout_s=RUN_S)
