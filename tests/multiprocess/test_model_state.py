# SPDX-License-Identifier: Apache-2.0
"""Which tensors strategies share: models with all kinds of state, under every strategy."""

import copy
from typing import Any

import braid.strategies as bs
import pytest
import torch
import torch.distributed as dist
from odd_model import Odd
from ranks import Rank, run_ranks
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

pytestmark = pytest.mark.multiprocess

STEPS = 6
STRATEGIES = (
    "parameter_server",
    "parameter_server:buffers=broadcast",
    "parameter_server:local=true",
    "hybrid:groups=0+1",
    "hybrid:groups=0/1",
    "elastic:sync_every=2",
    "elastic:sync_every=2,schedule=sync1",
    "local:sync_every=2",
    "local:sync_every=2,quorum=2",
    "diloco:sync_every=2",
    "diloco:sync_every=2,num_fragments=2",
    "gossip",
    "gossip:mode=push_sum",
)
# The results of these do not depend on who comes first, if all workers have the same gradients.
IN_ORDER = [
    text.replace("elastic:sync_every=2", "elastic:schedule=round_robin,sync_every=2")
    for text in STRATEGIES
    if "sync1" not in text and "push_sum" not in text
]


def begun(text: str, model: nn.Module) -> tuple[Any, torch.optim.Optimizer]:
    """Return a strategy, and the optimizer whose step() to call."""
    optimizer = SGD([each for each in model.parameters() if each.requires_grad], lr=0.1)
    strategy = bs.from_text(text, model, optimizer)
    return strategy, strategy if isinstance(strategy, bs.ParameterServer) else optimizer


def state_at_end(strategy: Any, model: nn.Module) -> dict[str, Tensor]:
    """Return all tensors of the model with the centre's values, when every step counts."""
    strategy.settle()
    dist.barrier()
    strategy.settle()  # gossip takes what came before the barrier
    with strategy.centre():
        found = {name: each.detach().clone() for name, each in (*model.named_parameters(), *model.named_buffers())}
    dist.barrier()
    strategy.close()
    return found


def from_all(mine: Any, rank: Rank) -> list[Any]:
    found: list[Any] = [None] * rank.size
    dist.all_gather_object(found, mine)
    return found


def odd(rank: Rank, text: str) -> None:
    """Train, and look at each kind of state."""
    model = Odd(rank.rank)
    first = Odd(0)
    expert = model.expert.detach().clone()
    highest = -torch.inf
    mean_alone = 0.0  # of the buffer "mean", if nothing came from others
    strategy, optimizer = begun(text, model)
    for step in range(STEPS):
        x = torch.randn(5, 4, generator=torch.Generator().manual_seed(10 * step + rank.rank)) + 10 * rank.rank
        optimizer.zero_grad()
        model(x).backward()
        assert model.expert.grad is not None
        expert -= 0.1 * model.expert.grad
        highest = max(highest, x.max().item())
        mean_alone = 0.5 * mean_alone + 0.5 * x.mean().item()
        optimizer.step()
    states = from_all(state_at_end(strategy, model), rank)
    mine = states[rank.rank]
    for name in ("inside.weight", "norm.weight", "norm.running_mean", "norm.running_var", "mean"):
        assert torch.isfinite(mine[name]).all(), name
        for other in states:
            torch.testing.assert_close(mine[name], other[name], msg=f"{name} differs among ranks")
    low, high = from_all(mean_alone, rank)
    if "broadcast" not in text:
        # Both workers' batches count, whoever comes last: with push-sum each keeps a weight of 1/64 of 2 at least.
        assert low + 0.03 < mine["mean"].mean() < high - 0.03
    for name in ("frozen", "large", "table", "mask"):
        assert torch.equal(mine[name], getattr(first, name)), name
    torch.testing.assert_close(mine["expert"], expert)
    assert torch.equal(mine["mine"], torch.full((2,), float(rank.rank)))
    assert mine["highest"].item() == pytest.approx(highest)
    assert mine["unknown"].isnan()
    assert mine["count"] == STEPS


@pytest.mark.parametrize("text", STRATEGIES)
def test_every_kind_of_state(text: str) -> None:
    run_ranks(odd, 2, text)


def take_steps(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    draw = torch.Generator().manual_seed(3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(5, 4, generator=draw)).backward()
        optimizer.step()


def alone_as_torch(rank: Rank, text: str) -> None:
    """One worker computes what its optimizer computes without a strategy."""
    plain, model = Odd(7), Odd(7)
    take_steps(plain, SGD([each for each in plain.parameters() if each.requires_grad], lr=0.1))
    strategy, optimizer = begun(text, model)
    take_steps(model, optimizer)
    expected = {**dict(plain.named_parameters()), **dict(plain.named_buffers())}
    for name, value in state_at_end(strategy, model).items():
        torch.testing.assert_close(value, expected[name].detach(), equal_nan=True, msg=name)


@pytest.mark.parametrize(
    "text", [*STRATEGIES[:3], "hybrid:groups=0", "local:sync_every=2", "gossip:mode=push_sum"]
)
def test_one_worker_computes_what_torch_computes(text: str) -> None:
    run_ranks(alone_as_torch, 1, text)


def other_dtype(rank: Rank, text: str) -> None:
    """Train with another default dtype, where all gradients are equal: the result has the same numbers."""
    found = []
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        model = nn.Sequential(nn.Linear(300, 1, dtype=torch.float32), nn.BatchNorm1d(1, dtype=torch.float32))
        with torch.no_grad():
            for place, each in enumerate(model.parameters()):
                each.copy_(torch.linspace(place + 0.1, 1, each.numel()).view_as(each))
        torch.set_default_dtype(dtype)
        try:
            strategy, optimizer = begun(text, model)
            for _ in range(STEPS):
                for each in model.parameters():
                    each.grad = torch.full_like(each, 0.3)
                optimizer.step()
                dist.barrier()
            found.append(state_at_end(strategy, model))
        finally:
            torch.set_default_dtype(torch.float32)
    for state in found[1:]:
        for name, value in state.items():
            torch.testing.assert_close(value, found[0][name], rtol=1e-4, atol=1e-4, msg=name)


@pytest.mark.parametrize(
    "text",
    [
        *IN_ORDER[::4],
        *(pytest.param(text, marks=pytest.mark.long) for text in IN_ORDER if text not in IN_ORDER[::4]),
    ],
)
def test_the_default_dtype_changes_nothing(text: str) -> None:
    run_ranks(other_dtype, 2, text)


def compiled(rank: Rank, text: str) -> None:
    """States of a compiled model fit a plain one, and the other way."""
    plain = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    inside = copy.deepcopy(plain)
    inside[0] = torch.compile(inside[0], backend="eager")  # type: ignore[call-overload]
    states = []
    for model in (plain, torch.compile(copy.deepcopy(plain), backend="eager"), inside):
        strategy, _ = begun(text, model)
        with strategy:
            saved = strategy.state_dict()
            for state in (*states, saved):
                strategy.load_state_dict(state)
            if isinstance(strategy, bs.ParameterServer):
                served = strategy.service_state()
                # As an earlier version has saved it.
                served["parameters"] = [f"_orig_mod.{line}" for line in served["parameters"]]
                strategy.load_service_state(served)
            states.append(saved)
            dist.barrier()


@pytest.mark.parametrize("text", ["parameter_server", "elastic:schedule=sync1", "local", "gossip"])
def test_states_of_compiled_models(text: str) -> None:
    run_ranks(compiled, 2, text)


def alone(rank: Rank, text: str) -> None:
    """init_sync=False leaves all other state to each worker; buffers="local" all buffers."""
    model = Odd(rank.rank)
    strategy, _ = begun(f"{text}init_sync=false", model)
    own = Odd(rank.rank)
    assert all(torch.equal(getattr(model, name), getattr(own, name)) for name in ("frozen", "table", "count"))
    assert torch.equal(model.mean, Odd(0).mean)
    strategy.close()
    model = Odd(rank.rank)
    strategy, _ = begun(f"{text}buffers=local", model)
    assert all(torch.equal(getattr(model, name), getattr(own, name)) for name in ("mean", "table", "count"))
    assert torch.equal(model.frozen, Odd(0).frozen)
    strategy.close()


@pytest.mark.parametrize(
    "text", ["parameter_server:", "elastic:schedule=sync1,", "local:sync_every=2,", "gossip:"]
)
def test_what_stays_alone(text: str) -> None:
    run_ranks(alone, 2, text)


class Unmade(SGD):
    """An optimizer that leaves out Optimizer.__init__, as some wrappers do."""

    def __init__(self, inside: SGD) -> None:
        self.param_groups, self.state, self.defaults = inside.param_groups, inside.state, inside.defaults


class Growing(nn.Linear):
    """A buffer that gets another shape."""

    def __init__(self) -> None:
        super().__init__(2, 1)
        self.register_buffer("past", torch.zeros(1))

    def grow(self) -> None:
        self.past = torch.zeros(2)


def refused(rank: Rank) -> None:
    """One sentence that names the culprit; afterwards the model can be used."""
    lazy = nn.Sequential(nn.LazyLinear(2))
    for text in STRATEGIES:
        with pytest.raises(ValueError, match=r"0\.weight has no shape yet"):
            bs.from_text(text, lazy, SGD(lazy.parameters(), lr=0.1))
    for text in ("parameter_server", "local"):
        model = nn.Linear(2, 1)
        with pytest.raises(TypeError, match=r"Unmade does not call Optimizer\.__init__"):
            bs.from_text(text, model, Unmade(SGD(model.parameters(), lr=0.1)))
        bs.from_text(text, model, SGD(model.parameters(), lr=0.1)).close()
        wrapped = torch.compile(DistributedDataParallel(nn.Linear(2, 1)), backend="eager")
        with pytest.raises(ValueError, match=r"give the model inside"):
            bs.from_text(text, wrapped, SGD(wrapped.parameters(), lr=0.1))
        sizes = nn.Linear(2, 1)
        sizes.extra = nn.Parameter(torch.zeros(1 + rank.rank), requires_grad=False)
        with pytest.raises(ValueError, match=r"state extra"):
            bs.from_text(text, sizes, SGD([sizes.weight, sizes.bias], lr=0.1))
    growing = Growing()
    strategy, optimizer = begun("local:sync_every=1", growing)
    growing.grow()
    with pytest.raises(RuntimeError, match=r"buffer past was \(1,\) float32 .* and is \(2,\) float32 now"):
        optimizer.step()
    strategy.close(wait=False)


def test_refusals() -> None:
    run_ranks(refused, 2)
