# SPDX-License-Identifier: Apache-2.0
"""What auto chose is dropped where it turns out to be slower, by all ranks in the same step."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import braid
import pytest
import torch
import torch.distributed as dist
from braid.compression import low_rank, trial
from braid.compression import state as state_module
from braid.compression.policy import CompressionPolicy
from braid.compression.rule import Rule
from hooked import make, mean_of, must_be_equal_everywhere, reduce
from hooked import step as train_step
from hosts_apart import join_apart
from ranks import Rank, run_ranks
from torch import nn

pytestmark = pytest.mark.multiprocess

EXTENT = 512
STEPS = 8  # of the trial


class Clock:
    """What trials are timed by, so that nothing else on the machine has a part in the verdict."""

    def __init__(self) -> None:
        self.now_s = 0.0
        trial.time = SimpleNamespace(perf_counter=self.look)

    def look(self) -> float:
        self.now_s += 0.01
        return self.now_s

    def slowed(self, function: Any) -> Any:
        """Return the function as if it took a second more."""

        def slow(*arguments: Any) -> Any:
            self.now_s += 1
            return function(*arguments)

        return slow


def try_out(rank: Rank, is_slow: bool) -> None:
    join_apart(rank)
    torch.manual_seed(rank.rank)
    clock = Clock()
    low_rank.element_s = lambda *_: 0.0  # so that auto takes it
    if is_slow:
        low_rank.Matrices.__init__ = clock.slowed(low_rank.Matrices.__init__)
    else:
        state_module.plain = clock.slowed(state_module.plain)
    policy = CompressionPolicy(default="auto", budget=("power_sgd:2",), warmup_steps=1, trial_steps=STEPS)
    model = nn.ParameterDict({"w": nn.Parameter(torch.zeros(EXTENT, EXTENT))})
    state = braid.hooks.AutoState(model, policy)

    def step(of: Any) -> bool:
        """Make a step; tell whether it was exact."""
        gradient = torch.randn(EXTENT, EXTENT)
        mean = mean_of(rank, gradient)
        result = reduce(of, [model["w"]], [gradient])
        everywhere = [torch.empty_like(result) for _ in range(rank.size)]
        dist.all_gather(everywhere, result)
        assert all(torch.equal(other, result) for other in everywhere)
        return torch.allclose(result, mean, atol=1e-5)

    exact = [step(state) for _ in range(1 + 2 + STEPS + 4)]
    assert exact[: 2 + STEPS] == [True, False, *[False] * 4, *[True] * 4]
    assert exact[2 + STEPS :] == [is_slow] * 5
    (row,) = state.report()
    assert row.codec == ("exact" if is_slow else "power_sgd:2")
    assert ("ms with a codec" in row.reason) == is_slow
    told = state.predict()
    assert (told.planned_s == told.exact_s) == is_slow
    # It is remembered; one rank that saved is enough.
    later = braid.hooks.AutoState(model, policy)
    if rank.rank == 1:
        later.load_state_dict(state.state_dict())
    assert [step(later) for _ in range(8)] == [is_slow] * 8  # a new trial would have both
    assert bool(state.state_dict()["errors"]) != is_slow  # dropped codecs leave no errors
    # With other candidates, and in a copy of what is not over, there is a new one.
    other = braid.hooks.AutoState(model, replace(policy, budget=("power_sgd:2", "power_sgd:3")))
    other.load_state_dict(state.state_dict())
    assert other.state_dict()["trial"] is None
    # A trial that is not over begins anew.
    unfinished = braid.hooks.AutoState(model, policy)
    for _ in range(4):
        step(unfinished)
    saved = unfinished.state_dict()
    assert saved["trial"] is None
    later.load_state_dict(saved)
    assert [step(later) for _ in range(10)] == [False, *[False] * 4, *[True] * 4, is_slow]


@pytest.mark.parametrize("is_slow", [True, False])
def test_keeps_what_is_faster(is_slow: bool) -> None:
    run_ranks(try_out, 2, is_slow, wire="tcp", join=False)


def train_through_it(rank: Rank, is_slow: bool) -> None:
    """Several buckets, a rule beside auto, and ranks that run out of data at different times, one in mid-trial."""
    join_apart(rank)
    clock = Clock()
    low_rank.element_s = lambda *_: 0.0
    if is_slow:
        low_rank.Matrices.__init__ = clock.slowed(low_rank.Matrices.__init__)
    else:
        state_module.exact_mean = clock.slowed(state_module.exact_mean)
        state_module.plain = clock.slowed(state_module.plain)
    model = make()
    rules = (Rule("first.weight", "int8"),)
    policy = CompressionPolicy(
        "auto", rules, budget=("power_sgd:2",), warmup_steps=2, small_bytes=0, trial_steps=STEPS
    )
    state = braid.hooks.AutoState(model, policy)
    model.register_comm_hook(state, braid.hooks.auto)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(rank.rank)
    with model.join():
        for _ in range(6 + 14 * rank.rank):
            train_step(rank, model, optimizer, data)
    must_be_equal_everywhere(rank, model)
    told = {row.parameter: row.codec for row in state.report()}
    assert told["first.weight"] == "int8"
    assert told["second.weight"] == ("exact" if is_slow else "power_sgd:2")
    assert "first.weight" in state.state_dict()["residuals"]


@pytest.mark.parametrize("is_slow", [True, False])
def test_training_goes_through_it(is_slow: bool) -> None:
    run_ranks(train_through_it, 2, is_slow, wire="tcp", join=False)
