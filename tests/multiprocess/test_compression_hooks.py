# SPDX-License-Identifier: Apache-2.0
"""DDP with compressing hooks: what is trained, what is carried over, and what the replicas agree on."""

import copy
import pickle
from contextlib import nullcontext
from typing import Any

import braid.hooks
import pytest
import torch
import torch.distributed as dist
from braid.compression import CompressionPolicy, Rule
from bucket_of import Bucket
from hosts_apart import join_apart
from ranks import Rank, run_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel

pytestmark = pytest.mark.multiprocess

STEPS = 60


class Net(nn.Module):
    """Some of everything: matrices long enough for a codec, a norm, biases, an embedding, a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 16)
        self.first = nn.Linear(16, 300)
        self.norm = nn.LayerNorm(300)
        self.second = nn.Linear(300, 200)
        self.branch = nn.Linear(200, 200)
        self.last = nn.Linear(200, 4)

    def forward(self, x: torch.Tensor, use_branch: bool = True) -> torch.Tensor:
        x = torch.tanh(self.norm(self.first(self.embed(x).mean(1))))
        x = torch.tanh(self.second(x))
        return self.last(self.branch(x) if use_branch else x)


def batch(data: torch.Generator, size: int = 32) -> tuple[torch.Tensor, torch.Tensor]:
    """Six digits each; the class is how large their sum is."""
    x = torch.randint(10, (size, 6), generator=data)
    return x, ((x.sum(1) - 17) // 7).clamp(0, 3)


def make(**options: Any) -> DistributedDataParallel:
    torch.manual_seed(0)
    return DistributedDataParallel(Net(), bucket_cap_mb=0.2, **options)


def step(rank: Rank, model: nn.Module, optimizer: Any, data: torch.Generator, **how: Any) -> None:
    optimizer.zero_grad()
    x, y = batch(data)
    nn.functional.cross_entropy(model(x, **how), y).backward()
    optimizer.step()


def train(rank: Rank, model: nn.Module, steps: int = STEPS, momentum: float = 0.9) -> float:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    data = torch.Generator().manual_seed(rank.rank)
    for _ in range(steps):
        step(rank, model, optimizer, data)
    x, y = batch(torch.Generator().manual_seed(99), 1000)
    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())


def must_be_equal_everywhere(rank: Rank, model: nn.Module) -> None:
    flat = torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])
    everywhere = [torch.empty_like(flat) for _ in range(rank.size)]
    dist.all_gather(everywhere, flat)
    for other in everywhere:
        assert torch.equal(other, flat)


def attach(model: DistributedDataParallel, text: str) -> braid.hooks.AutoState:
    state = braid.hooks.AutoState(model, text)
    model.register_comm_hook(state, braid.hooks.auto)
    return state


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


@pytest.mark.parametrize("size", [2, 3])
def test_trains_as_exact(size: int) -> None:
    run_ranks(train_each, size, ["int8", "auto", "power_sgd:2,f*=int4"], wire="tcp", join=False)


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
    # What is called by the wrong name, copied, saved whole, or cannot be carried.
    copied = copy.deepcopy((model.module, attach(make(), "int8")))[1]
    assert copied.state_dict()["residuals"].keys() == set()
    other, state = copy.deepcopy((model.module, braid.hooks.AutoState(model.module, "int8,warmup:1")))
    state.steps = 1
    reduce(state, [other.second.weight], [torch.randn(200, 300)])
    assert pickle.loads(pickle.dumps(state)).state_dict()["residuals"]["second.weight"].any()


def test_ranks_that_come_later() -> None:
    run_ranks(come_later, 2, wire="tcp", join=False)


def force(rank: Rank) -> None:
    join_apart(rank)
    model = make()
    for make_state in (lambda: braid.hooks.AutoState(model, "int8"), lambda: braid.hooks.DGCState(model)):
        with pytest.raises(ValueError, match="doubling"):
            make_state()
    braid.hooks.AutoState(model, "power_sgd:4")


def test_a_forced_family_is_refused_at_once() -> None:
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


def state_of(shapes: dict[str, tuple[int, ...]], policy: str, **how: Any) -> tuple[Any, list[torch.Tensor]]:
    model = nn.ParameterDict({name: nn.Parameter(torch.zeros(shape)) for name, shape in shapes.items()})
    state = braid.hooks.AutoState(model, CompressionPolicy.from_text(policy + ",warmup:1"), **how)
    state.steps = 1  # past the warm-up
    return state, list(model.values())


def reduce(
    state: Any, parameters: list[torch.Tensor], gradients: list[torch.Tensor], **where: Any
) -> torch.Tensor:
    return state.reduce(Bucket(parameters, gradients, **where)).wait().clone()


def sum_of(rank: Rank, values: torch.Tensor) -> torch.Tensor:
    total = values.reshape(-1).clone()
    dist.all_reduce(total)
    return total


def mean_of(rank: Rank, values: torch.Tensor) -> torch.Tensor:
    mean = values.reshape(-1).clone()
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    return mean


def carried_by(state: Any) -> list[torch.Tensor]:
    told = state.state_dict()
    return [*told["residuals"].values(), *told["errors"].values()]


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

    # What was carried belongs to the parameter, wherever it lies, and other parameters have not seen it.
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
        assert all(lost.isfinite().all() for lost in carried_by(state)), codec
        assert reduce(state, parameters, [gradient]).isfinite().all(), codec


def test_error_feedback() -> None:
    run_ranks(feed_back, 2, wire="tcp", join=False)


def low_rank(rank: Rank) -> None:
    torch.manual_seed(rank.rank)
    shapes = {"a": (60, 50), "b": (90, 40), "c": (60, 50), "d": (7,), "e": (60, 10, 5)}
    state, parameters = state_of(shapes, "*=power_sgd:4")
    ranks = 4 // rank.size  # of matrices here, so that their mean is of rank 4 at most
    for _ in range(2):
        gradients = [
            torch.randn(shape[0], ranks) @ torch.randn(ranks, parameter.numel() // shape[0])
            if len(shape) > 1
            else torch.randn(shape)
            for shape, parameter in zip(shapes.values(), parameters, strict=True)
        ]
        true = mean_of(rank, torch.cat([gradient.reshape(-1) for gradient in gradients]))
        state.reset()
        result = reduce(state, parameters, gradients)
        torch.testing.assert_close(result, true, rtol=1e-3, atol=5e-3)
    told = {row.parameter: row for row in state.report()}
    assert told["d"].codec == "exact"
    assert "no matrix" in told["d"].reason
    assert told["e"].sent_bytes == 4 * 4 * (60 + 50)

    # Full rank: what is not sent now comes later. Zeros in between leave nothing stuck.
    state, parameters = state_of({"w": (60, 50)}, "*=power_sgd:2")
    reduce(state, parameters, [torch.zeros(60, 50)])
    gradient = torch.randn(60, 50)
    true = mean_of(rank, gradient)
    total = sum(reduce(state, parameters, [gradient]) for _ in range(100))
    assert float((total / 100 - true).norm() / true.norm()) < 0.3
    # Several buckets on their way at once, the last of them exact.
    state, (a, b, c) = state_of({"a": (60, 50), "b": (50, 60), "c": (9,)}, "*=power_sgd:2")
    made = [
        Bucket([each], [torch.ones(each.shape) * (rank.rank + 1)], index, index == 2)
        for index, each in enumerate((a, b, c))
    ]
    futures = [state.reduce(bucket) for bucket in made]
    for future in futures:
        value = future.wait()
        torch.testing.assert_close(value, torch.full_like(value, (rank.size + 1) / 2), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("size", [2, 3])
def test_low_rank(size: int) -> None:
    run_ranks(low_rank, size)


def use_unlike_threads(rank: Rank) -> None:
    """However many threads a rank has, it makes the same bits of the same factors."""
    torch.manual_seed(rank.rank)
    shapes = {"wide": (700, 1100), "narrow": (3000, 300), "small": (40, 30)}  # two threads, two, one
    gradients = [[torch.randn(shape) for shape in shapes.values()] for _ in range(3)]
    ends = []
    for threads in (1, 1 + rank.rank):
        torch.set_num_threads(threads)
        state, parameters = state_of(shapes, "*=power_sgd:3")
        results = [reduce(state, parameters, each) for each in gradients]
        assert {row.codec for row in state.report()} == {"power_sgd:3"}
        ends.append(torch.cat([*results, *state.state_dict()["errors"].values()]))
        everywhere = [torch.empty_like(results[-1]) for _ in range(rank.size)]
        dist.all_gather(everywhere, results[-1])
        for other in everywhere:
            assert torch.equal(other, results[-1])
    assert torch.equal(*ends)


def test_low_rank_with_unlike_threads() -> None:
    run_ranks(use_unlike_threads, 2)


def compress_deeply(rank: Rank) -> None:
    """Nothing is lost but time: what was sent and what is left are what came in."""
    join_apart(rank)
    torch.manual_seed(rank.rank)
    model = nn.ParameterDict()
    model["w"], model["b"] = nn.Parameter(torch.zeros(200, 200)), nn.Parameter(torch.zeros(9))
    state = braid.hooks.DGCState(model, momentum=0.0, stages=[0.25, 0.01], steps_per_stage=3)
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
