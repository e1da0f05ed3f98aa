# SPDX-License-Identifier: Apache-2.0
"""Deep gradient compression: nothing is lost but time, and momenta are masked where they were sent."""

import braid.hooks
import pytest
import torch
import torch.distributed as dist
from braid.compression import Rule
from hooked import make, mean_of, must_be_equal_everywhere, reduce, sum_of, train
from hosts_apart import join_apart
from ranks import Rank, run_ranks
from torch import nn

pytestmark = pytest.mark.multiprocess


def begin(rank: Rank, stages: list[float], steps_per_stage: int) -> tuple[nn.ParameterDict, braid.hooks.DGCState]:
    """Join, and make a model of a matrix and a bias, and its state, without momentum."""
    join_apart(rank)
    torch.manual_seed(rank.rank)
    model = nn.ParameterDict()
    model["w"], model["b"] = nn.Parameter(torch.zeros(200, 200)), nn.Parameter(torch.zeros(9))
    return model, braid.hooks.DGCState(model, momentum=0.0, stages=stages, steps_per_stage=steps_per_stage)


def compress_deeply(rank: Rank) -> None:
    """Nothing is lost but time: what was sent and what is left are what came in."""
    model, state = begin(rank, [0.25, 0.01], 3)
    parameters = list(model.values())
    taken, given = torch.zeros(40009), torch.zeros(40009)
    for number in range(6):
        assert state.codec == ("top_k:0.25" if number < 3 else "top_k:0.01")
        gradients = [torch.randn(200, 200), torch.randn(9)]
        given += torch.cat([gradient.reshape(-1) for gradient in gradients])
        result = reduce(state, parameters, gradients)
        assert (result[:40000] != 0).float().mean() <= rank.size * (0.25 if number < 3 else 0.01)
        taken += result
    left = torch.cat([state.state_dict()["residuals"]["w"], torch.zeros(9)])
    torch.testing.assert_close(taken + sum_of(rank, left), mean_of(rank, given), rtol=1e-3, atol=1e-3)

    # A momentum goes on where nothing was sent, and starts anew where something was.
    state = braid.hooks.DGCState(model, momentum=0.5, stages=[0.1])
    gradients = [torch.randn(200, 200), torch.randn(9)]
    reduce(state, parameters, gradients)
    told = state.state_dict()
    sent = told["residuals"]["w"] == 0
    assert sent.any()
    assert not told["momenta"]["w"][sent].any()
    assert torch.equal(told["momenta"]["w"][~sent], gradients[0].reshape(-1)[~sent])
    assert torch.equal(told["momenta"]["b"], gradients[1])
    reduce(state, parameters, [torch.zeros(200, 200), torch.zeros(9)])
    assert torch.equal(state.state_dict()["momenta"]["b"], gradients[1] / 2)

    # What is not finite shows once, in what is sent whole too, and leaves nothing behind.
    fresh = braid.hooks.DGCState(model, momentum=0.5, stages=[0.1])
    broken = [torch.zeros(200, 200), torch.zeros(9)]
    if rank.rank == 0:
        broken[0][3, 3], broken[1][5] = torch.nan, torch.inf
    assert reduce(fresh, parameters, broken).isfinite().logical_not().sum() == 2
    assert reduce(fresh, parameters, gradients).isfinite().all()
    fresh.reset()
    assert not fresh.state_dict()["momenta"]
    with pytest.raises(ValueError, match="version"):
        fresh.load_state_dict({})

    saved = state.state_dict()
    again = braid.hooks.DGCState(model, momentum=0.5, stages=[0.1])
    again.load_state_dict(saved)
    assert again.steps == 2
    assert torch.equal(reduce(again, parameters, gradients), reduce(state, parameters, gradients))
    with pytest.warns(UserWarning, match="residuals of 3 ranks are dropped"):
        again.load_state_dict({**saved, "ranks": 3})

    state = braid.hooks.DGCState(model, momentum=0.0, stages=[0.25], clip_norm=1.0, rules=[Rule("*", "exact")])
    result = reduce(state, parameters, [torch.full((200, 200), 3.0), torch.full((9,), 1e-3)])
    torch.testing.assert_close(result[:40000].norm(), torch.tensor(rank.size**-0.5), rtol=1e-3, atol=0)
    torch.testing.assert_close(result[40000:], torch.full((9,), 1e-3))

    model = make()
    model.register_comm_hook(braid.hooks.DGCState(model, 0.9, [0.25, 0.05], 20), braid.hooks.dgc)
    assert train(rank, model, 80, momentum=0.0) > 0.65
    must_be_equal_everywhere(rank, model)


def test_deep_gradient_compression() -> None:
    run_ranks(compress_deeply, 2, wire="tcp", join=False)


def keep_momentum(rank: Rank) -> None:
    """On one host nothing is left out: this is SGD with momentum."""
    plain, model = make(), make()
    model.register_comm_hook(braid.hooks.DGCState(model, 0.9), braid.hooks.dgc)
    train(rank, plain, 6, momentum=0.9)
    train(rank, model, 6, momentum=0.0)
    for mine, other in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-4)


def test_dgc_on_one_host_is_momentum() -> None:
    run_ranks(keep_momentum, 2)


def use_16_bits(rank: Rank, dtype: torch.dtype) -> None:
    """Gradients of 16 bits: what accumulates is float32, and has what the rounding of the sum took away."""
    model, state = begin(rank, [0.25, 0.05], 2)
    parameters = list(model.values())
    given, taken = torch.zeros(40000), torch.zeros(40000)
    for _ in range(5):
        gradients = [torch.randn(200, 200).to(dtype), torch.randn(9).to(dtype)]
        result = reduce(state, parameters, gradients)
        assert result.dtype == dtype
        first = result.clone()
        dist.broadcast(first, 0)
        assert torch.equal(first, result)
        given += mean_of(rank, gradients[0].float())
        taken += result[:40000].float()
    left = sum_of(rank, state.state_dict()["residuals"]["w"])
    torch.testing.assert_close(taken + left, given, rtol=1e-6, atol=1e-5)

    # Momenta are masked where this rank sent, though roundings leave residuals there.
    state = braid.hooks.DGCState(model, momentum=0.5, stages=[0.1], clip_norm=100.0)
    reduce(state, parameters, gradients)
    told = state.state_dict()
    momentum = told["momenta"]["w"]
    assert {momentum.dtype, told["residuals"]["w"].dtype} == {torch.float32}
    norm = gradients[0].float().norm()
    clipped = gradients[0].float().reshape(-1) * min(1.0, 100 / rank.size**0.5 / float(norm))
    is_kept = momentum != 0
    assert is_kept.float().mean() > 0.85
    assert (~is_kept).float().mean() > 0.09
    torch.testing.assert_close(momentum[is_kept], clipped[is_kept], rtol=1e-5, atol=0)
    again = braid.hooks.DGCState(model, momentum=0.5, stages=[0.1], clip_norm=100.0)
    again.load_state_dict(told)
    assert torch.equal(reduce(again, parameters, gradients), reduce(state, parameters, gradients))

    broken = [gradient.clone() for gradient in gradients]
    if rank.rank == 0:
        broken[0][3, 3], broken[1][5] = torch.nan, torch.inf
    assert reduce(state, parameters, broken).isfinite().logical_not().sum() == 2
    told = state.state_dict()
    assert told["momenta"]["w"].isfinite().all()
    assert told["residuals"]["w"].isfinite().all()


def use_64_bits(rank: Rank) -> None:
    """Gradients of float64 are sent whole, and their momentum is of float64."""
    model, _ = begin(rank, [0.25], 2)
    model.double()
    state = braid.hooks.DGCState(model, momentum=0.5, stages=[0.1])
    momenta = [torch.zeros(200, 200, dtype=torch.float64), torch.zeros(9, dtype=torch.float64)]
    for number in range(4):
        gradients = [torch.randn(one.shape, dtype=torch.float64) for one in momenta]
        momenta = [momentum * 0.5 + gradient for momentum, gradient in zip(momenta, gradients, strict=True)]
        expected = mean_of(rank, torch.cat([momentum.reshape(-1) for momentum in momenta]))
        torch.testing.assert_close(
            reduce(state, list(model.values()), gradients), expected, rtol=1e-14, atol=1e-14
        )
        if number == 1:
            saved, state = state.state_dict(), braid.hooks.DGCState(model, momentum=0.5, stages=[0.1])
            state.load_state_dict(saved)


def test_gradients_of_64_bits() -> None:
    run_ranks(use_64_bits, 2, wire="tcp", join=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_16_bits(dtype: torch.dtype) -> None:
    run_ranks(use_16_bits, 2, dtype, wire="tcp", join=False)
