# SPDX-License-Identifier: Apache-2.0
"""DDP with compressing hooks: training, the error feedback that steps leave, and equal replicas."""

import copy
import pickle
from contextlib import nullcontext

import braid.hooks
import pytest
import torch
import torch.distributed as dist
from hooked import (
    attach,
    batch,
    make,
    mean_of,
    must_be_equal_everywhere,
    reduce,
    state_of,
    step,
    stored_by,
    sum_of,
    train,
)
from hosts_apart import join_apart
from ranks import Rank, run_ranks
from torch import nn

pytestmark = pytest.mark.multiprocess


def train_each(rank: Rank, texts: list[str]) -> None:
    join_apart(rank)
    exact = train(rank, make())
    assert exact > 0.7
    for text in texts:
        model = make()
        state = attach(model, text + ",warmup:2")
        reached = train(rank, model)
        must_be_equal_everywhere(rank, model)
        rows = {row.parameter: row for row in state.report()}
        assert rows.keys() == {name for name, _ in model.module.named_parameters()}
        assert rows["norm.weight"].codec == "exact"
        assert rows["second.weight"].codec != "exact", text
        assert rows["second.weight"].sent_bytes < rows["second.weight"].exact_bytes
        assert reached > exact - 0.05, text


@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.long)])
def test_trains_as_exact(size: int) -> None:
    run_ranks(train_each, size, ["int8", "auto,trial:0", "power_sgd:2,f*=int4"], wire="tcp", join=False)


def stay_exact(rank: Rank) -> None:
    """On one host nothing is gained, and nothing is lost: what DDP does without a hook, bit for bit."""
    plain, model = make(), make()
    state = attach(model, "int8,warmup:1")
    for each in (plain, model):
        train(rank, each, 5)
    for mine, other in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, other)
    plain, low = make(), make()
    factors = attach(low, "power_sgd:2,warmup:1")
    for each in (plain, low):
        train(rank, each, 3)
    assert torch.equal(low.module.second.weight, plain.module.second.weight)
    assert {row.codec for row in factors.report()} == {row.codec for row in state.report()} == {"exact"}
    assert {row.reason for row in state.report()} >= {"all ranks are on one host"}
    assert state.predict().planned_s == state.predict().exact_s > 0
    with pytest.raises(RuntimeError, match="needs a group on braid"):
        braid.hooks.AutoState(plain, "int8", dist.new_group(backend="gloo"))
    with pytest.raises(TypeError, match="a policy is text or"):
        braid.hooks.AutoState(plain, {"default": "int8"})
    with pytest.warns(UserWarning, match=r"no parameter falls under heads\.\*$"):
        braid.hooks.AutoState(plain, "heads.*=bf16,last.*=bf16")
    dist.barrier()  # nobody leaves while another still forms its group on Gloo


def test_one_host_stays_exact() -> None:
    run_ranks(stay_exact, 2)


def resume(rank: Rank) -> None:
    """Training that was saved and loaded goes on bit for bit as if it had not been."""
    join_apart(rank)
    policy = "int4,branch*=power_sgd:2,warmup:2"
    model = make()
    state = attach(model, policy)
    train(rank, model, 6, momentum=0)
    saved, weights = state.state_dict(), copy.deepcopy(model.module.state_dict())
    assert saved["residuals"]["second.weight"].any()
    assert saved["residuals"].keys() == {"second.weight"}
    assert saved["errors"]["branch.weight"].any()
    ends = []
    for load in (True, False):
        again = make()
        again.module.load_state_dict(weights)
        fresh = attach(again, policy)
        if load:
            fresh.load_state_dict(copy.deepcopy(saved))
            assert fresh.steps == 6
        train(rank, again, 3, momentum=0)
        ends.append(again.module)
    train(rank, model, 3, momentum=0)
    for name in ("second", "branch"):
        weight = getattr(model.module, name).weight
        assert torch.equal(weight, getattr(ends[0], name).weight)
        assert not torch.equal(weight, getattr(ends[1], name).weight)

    with pytest.warns(UserWarning, match="residuals of 5 ranks are dropped"):
        state.load_state_dict({**saved, "ranks": 5})
    with pytest.warns(UserWarning, match=r"other shapes are dropped: gone, second\.weight"):
        state.load_state_dict({**saved, "residuals": {"gone": torch.ones(2), "second.weight": torch.ones(2)}})
    with pytest.raises(ValueError, match="version"):
        state.load_state_dict({**saved, "version": 0})
    state.load_state_dict(saved)
    state.reset()
    assert not state.state_dict()["residuals"]


def test_resumes_bit_for_bit() -> None:
    run_ranks(resume, 2, wire="tcp", join=False)


def come_later(rank: Rank) -> None:
    """A rank that was not there when the others saved begins at their step."""
    join_apart(rank)
    model = make()
    for state in (attach(model, "int8,warmup:9"), braid.hooks.DGCState(model)):
        state.steps = 9 * rank.rank
        reduce(state, [model.module.second.weight], [torch.ones(200, 300)])
        assert state.steps == 10
    # Copied states and pickled states.
    copied = copy.deepcopy((model.module, attach(make(), "int8")))[1]
    assert copied.state_dict()["residuals"].keys() == set()
    other, state = copy.deepcopy((model.module, braid.hooks.AutoState(model.module, "int8,warmup:1")))
    state.steps = 1
    reduce(state, [other.second.weight], [torch.randn(200, 300)])
    loaded = pickle.loads(pickle.dumps(state))
    assert loaded.state_dict()["residuals"]["second.weight"].any()
    # A copy goes on as what it was copied of, and tells so, among ranks that have loaded nothing, too.
    gradient = torch.randn(200, 300)
    for one in (state, loaded):
        parameter = next(one for name, one in one._parameters._named.values() if name == "second.weight")
        reduce(one, [parameter], [gradient])
    ours, theirs = (one.state_dict()["residuals"]["second.weight"] for one in (loaded, state))
    assert torch.equal(ours, theirs)
    for make_state in (lambda: braid.hooks.AutoState(model, "int8,warmup:1"), lambda: braid.hooks.DGCState(model)):
        state = make_state()
        weight = model.module.second.weight
        reduce(state, [weight], [gradient])
        if rank.rank == 0:
            model_copy, state = pickle.loads(pickle.dumps((model.module, state)))
            weight = model_copy.second.weight
        else:
            state = make_state()
        reduce(state, [weight], [gradient])
        assert state.steps == 2


def test_ranks_that_come_later() -> None:
    run_ranks(come_later, 2, wire="tcp", join=False)


def force(rank: Rank) -> None:
    join_apart(rank)
    model = make()
    for make_state in (lambda: braid.hooks.AutoState(model, "int8"), lambda: braid.hooks.DGCState(model)):
        with pytest.raises(ValueError, match="doubling"):
            make_state()
    braid.hooks.AutoState(model, "power_sgd:4")


def test_a_forced_algorithm_is_refused_at_once() -> None:
    environment = {"BRAID_ALGORITHM": "all_reduce=doubling"}
    run_ranks(force, 2, wire="tcp", join=False, environment=environment)


def use_options(rank: Rank) -> None:
    join_apart(rank)
    for options in ({"gradient_as_bucket_view": True}, {"static_graph": True}, {}):
        model = make(**options)
        state = attach(model, "int8,warmup:1")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        data = torch.Generator().manual_seed(rank.rank)
        # With join() ranks run out of data at different times.
        with nullcontext() if options else model.join():
            for _ in range(4 if options else 4 + 2 * rank.rank):
                step(rank, model, optimizer, data)
        assert {row.codec for row in state.report()} == {"int8", "exact"}
        must_be_equal_everywhere(rank, model)


def test_options_of_ddp() -> None:
    run_ranks(use_options, 2, wire="tcp", join=False)


def accumulate_and_skip(rank: Rank) -> None:
    join_apart(rank)
    model = make(find_unused_parameters=True)
    attach(model, "int8,warmup:1")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(rank.rank)
    for number in range(8):
        # First one rank uses the branch, then none, then all.
        step(rank, model, optimizer, data, use_branch=number >= 5 or (number < 3 and rank.rank == 0))
    must_be_equal_everywhere(rank, model)

    whole, halves = make(), make()
    attach(halves, "int8,warmup:1")
    train(rank, halves, 2, momentum=0)
    whole.module.load_state_dict(halves.module.state_dict())
    for each in (whole, halves):
        each.zero_grad()
        data = torch.Generator().manual_seed(rank.rank)
        (x, y), (x2, y2) = batch(data), batch(data)
        with each.no_sync():
            nn.functional.cross_entropy(each(x), y).backward()
        nn.functional.cross_entropy(each(x2), y2).backward()
    for mine, other in zip(halves.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=0.1, atol=0.02 * float(other.grad.abs().max()))


def test_accumulation_and_unused_parameters() -> None:
    run_ranks(accumulate_and_skip, 2, wire="tcp", join=False)


def feed_back(rank: Rank) -> None:
    join_apart(rank)
    torch.manual_seed(rank.rank)
    gradient = torch.randn(130, 100)
    true = mean_of(rank, gradient)
    for codec in ("sign", "top_k:0.1", "int4"):
        errors = []
        for forgets in (False, True):
            state, parameters = state_of({"w": (130, 100)}, f"*={codec}")
            total = torch.zeros_like(true)
            for _ in range(60):
                total += reduce(state, parameters, [gradient])
                if forgets:
                    state.reset()
            errors.append(float((total / 60 - true).norm() / true.norm()))
        assert errors[0] < 0.3, codec
        assert errors[1] > 2 * errors[0], codec

    # A residual belongs to its parameter, wherever its gradient lies. Other parameters' residuals do not change.
    gradients = [gradient, torch.randn(40), gradient * 2]
    state, (a, b, c) = state_of({"a": (130, 100), "b": (40,), "c": (130, 100)}, "*=int4")
    reduce(state, [a, b, c], gradients)
    before = state.state_dict()["residuals"]
    assert before.keys() == {"a", "b", "c"}
    expected = mean_of(rank, gradients[2]) + sum_of(rank, before["c"])
    result = reduce(state, [c], [gradients[2]], is_last=False)
    after = state.state_dict()["residuals"]
    torch.testing.assert_close(result + sum_of(rank, after["c"]), expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(after["a"], before["a"])

    # A gradient that is not finite shows everywhere, and is gone in the next step.
    for codec in ("int8", "power_sgd:2"):
        state, parameters = state_of({"w": (130, 100)}, f"*={codec}")
        reduce(state, parameters, [gradient])
        broken = gradient.clone()
        broken[3, 5] = torch.inf if rank.rank else 1.0
        assert not reduce(state, parameters, [broken]).isfinite().all(), codec
        assert all(lost.isfinite().all() for lost in stored_by(state)), codec
        assert reduce(state, parameters, [gradient]).isfinite().all(), codec


def test_error_feedback() -> None:
    run_ranks(feed_back, 2, wire="tcp", join=False)


def share_hosts(rank: Rank) -> None:
    """Ranks of one host add up before anything is encoded, by one of them."""
    join_apart(rank, per_host=2)
    for text in ("int8,warmup:1", "top_k:0.1,warmup:1"):
        model = make()
        attach(model, text)
        train(rank, model, 10)
        must_be_equal_everywhere(rank, model)
    model = make()
    model.register_comm_hook(braid.hooks.DGCState(model, 0.9, [0.25, 0.05], 20), braid.hooks.dgc)
    train(rank, model, 10, momentum=0.0)
    must_be_equal_everywhere(rank, model)


def test_hosts_of_several_ranks() -> None:
    run_ranks(share_hosts, 3, wire="shm,tcp", join=False)
