# SPDX-License-Identifier: Apache-2.0
"""PowerSGD between ranks: what is sent, what is kept, and that all get the same bits."""

import braid
import braid.hooks
import pytest
import torch
import torch.distributed as dist
from braid.compression import CompressionPolicy
from braid.compression import low_rank as low_rank_products
from bucket_of import Bucket
from hooked import mean_of, reduce, state_of
from hosts_apart import join_apart
from ranks import Rank, run_ranks
from torch import nn

pytestmark = pytest.mark.multiprocess


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
        begin = 60 * 50 + 90 * 40 + 60 * 50  # of "d", which rides with the factors
        torch.testing.assert_close(result[begin : begin + 7], true[begin : begin + 7], rtol=1e-6, atol=1e-6)
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


def reductions() -> int:
    rows = [row for group in braid.stats() for row in group["operations"]]
    return sum(row["calls"] for row in rows if row["collective"] == "all_reduce")


def share_operations(rank: Rank, apart: bool) -> None:
    """Short factors wait for the next bucket's, long ones do not; what comes out is the same."""
    if apart:
        join_apart(rank)
    short, other, long, vector = (60, 50), (50, 60), (10_000, 40), (3,)
    for shapes, expected in (
        ([short, other], 2),
        ([short, other, vector], 3),
        ([short, vector, other], 5),
        ([long, short], 4),
        ([short, long, other], 4),
        ([short], 2),
    ):
        policy = "*=power_sgd:4,0=power_sgd:2"
        state, parameters = state_of({str(k): shape for k, shape in enumerate(shapes)}, policy)
        for step in range(4):
            made = []
            for k, parameter in enumerate(parameters):
                dtype = torch.float32 if k % 2 == 0 else torch.bfloat16
                gradient = torch.full(parameter.shape, float(rank.rank + step + k), dtype=dtype)
                if step == 2 and k == 0 and rank.rank == 1:
                    gradient[1] = torch.nan
                made.append(Bucket([parameter], [gradient], k, k == len(shapes) - 1))
            before = reductions()
            futures = [state.reduce(bucket) for bucket in made]
            values = [future.wait() for future in futures]
            assert step == 0 or reductions() - before == expected, (shapes, reductions() - before)
            for k, value in enumerate(values):
                if step == 2 and k == 0:
                    assert value.isnan().all()
                    continue
                if step == 3 and k == 0:  # but for the error of the row that was not finite, which is lost
                    value = value[2 * shapes[0][1] :]
                mean = torch.full_like(value, (rank.size - 1) / 2 + step + k)
                torch.testing.assert_close(value, mean, rtol=1e-2, atol=1e-2)
    # Of a backward pass that broke off no factors are left to send; its gradient was added to the error by then.
    state, (a, b) = state_of({"a": short, "b": other}, "*=power_sgd:4")
    state.reduce(Bucket([a], [torch.ones(short)], 0, False))
    before = reductions()
    first, second = (state.reduce(Bucket([w], [torch.ones(w.shape)], k, k == 1)) for k, w in enumerate((a, b)))
    torch.testing.assert_close(first.wait(), torch.full([3000], 2.0), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(second.wait(), torch.ones(3000), rtol=1e-3, atol=1e-3)
    assert reductions() - before == 2


@pytest.mark.parametrize("size", [2, 3])
def test_short_factors_travel_together(size: int) -> None:
    run_ranks(share_operations, size, True, wire="tcp", join=False)


def test_so_they_do_on_one_host() -> None:
    run_ranks(share_operations, 2, False)


def resume_shared(rank: Rank) -> None:
    """A state that was saved between steps goes on with the same bits, where buckets share operations, too."""
    torch.manual_seed(rank.rank)
    shapes = {"a": (60, 50), "b": (50, 60)}

    def step(state: braid.hooks.AutoState, parameters: list[nn.Parameter], gradients: list[torch.Tensor]) -> bytes:
        made = [Bucket([parameters[k]], [gradients[k]], k, k == 1) for k in range(2)]
        futures = [state.reduce(bucket) for bucket in made]
        return b"".join(future.wait().numpy().tobytes() for future in futures)

    state, parameters = state_of(shapes, "*=power_sgd:2")
    gradients = [[torch.randn(shape) for shape in shapes.values()] for _ in range(4)]
    for each in gradients[:2]:
        step(state, parameters, each)
    saved = state.state_dict()
    before = reductions()
    went_on = [step(state, parameters, each) for each in gradients[2:]]
    assert reductions() - before == 4
    again, others = state_of(shapes, "*=power_sgd:2")
    again.load_state_dict(saved)
    assert [step(again, others, each) for each in gradients[2:]] == went_on


def test_what_was_shared_resumes() -> None:
    run_ranks(resume_shared, 2)


def ask_the_slowest(rank: Rank) -> None:
    """The first rank decides for all, but not by its own processor alone."""
    join_apart(rank)
    policy = CompressionPolicy(default="auto", budget=("power_sgd:4",), warmup_steps=1)
    for seconds, codec in ((0.0, "power_sgd:4"), (1.0, "exact")):
        low_rank_products.element_s = lambda *_, own=seconds * rank.rank: own
        model = nn.ParameterDict({"w": nn.Parameter(torch.zeros(1024, 1024))})
        state = braid.hooks.AutoState(model, policy)
        reduce(state, [model["w"]], [torch.ones(1024, 1024)])
        reduce(state, [model["w"]], [torch.ones(1024, 1024)])
        assert [row.codec for row in state.report()] == [codec]
        # What was decided by is what is told.
        told = state.predict()
        assert (1.1 * told.planned_s < told.exact_s) == (codec != "exact")
        assert (told.planned_s == told.exact_s > 0) == (codec == "exact")


def test_auto_counts_the_slowest_processor() -> None:
    run_ranks(ask_the_slowest, 2, wire="tcp", join=False)


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


def use_16_bits(rank: Rank, dtype: torch.dtype) -> None:
    """What was sent and what is kept are what came in, and that is the rounding's part, too."""
    torch.manual_seed(rank.rank)
    shapes = {"a": (130, 70), "b": (90, 10, 5), "small": (16, 16), "c": (9,)}
    state, parameters = state_of(shapes, "*=power_sgd:3")
    given, taken = torch.zeros(9100 + 4500), torch.zeros(9100 + 4500)
    for number in range(5):
        gradients = [torch.randn(shape).to(dtype) for shape in shapes.values()]
        if number == 4:
            saved = state.state_dict()
        result = reduce(state, parameters, gradients)
        assert result.dtype == dtype
        everywhere = [torch.empty_like(result) for _ in range(rank.size)]
        dist.all_gather(everywhere, result)
        for other in everywhere:
            assert torch.equal(other, result)
        taken += result[: len(taken)].float()
        given += mean_of(rank, torch.cat([gradient.reshape(-1).float() for gradient in gradients]))[: len(given)]
    told = {row.parameter: row for row in state.report()}
    assert [told[name].codec for name in shapes] == ["power_sgd:3", "power_sgd:3", "exact", "exact"]
    assert told["small"].reason == "no matrix that rank 3 makes 2 times smaller"
    assert told["a"].exact_bytes == 2 * 9100
    assert told["a"].sent_bytes == 4 * 3 * 200
    errors = state.state_dict()["errors"]
    assert {error.dtype for error in errors.values()} == {torch.float32}
    left = mean_of(rank, torch.cat([errors["a"], errors["b"]]))
    torch.testing.assert_close(taken + left, given, rtol=1e-6, atol=1e-5)

    again, others = state_of(shapes, "*=power_sgd:3")
    again.load_state_dict(saved)
    assert torch.equal(reduce(again, others, gradients), result)
    # What is not finite shows everywhere, and leaves no trace.
    broken = [gradient.clone() for gradient in gradients]
    broken[0][3, 5] = torch.nan if rank.rank else 1.0
    assert reduce(state, parameters, broken)[:9100].isnan().all()
    kept = state.state_dict()["errors"]
    if rank.rank:
        errors["a"].view(130, 70)[3, 5] = 0  # what was there is lost with it
    torch.testing.assert_close(kept["a"], errors["a"], rtol=1e-6, atol=1e-5)
    assert reduce(state, parameters, gradients).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_rank_of_16_bits(dtype: torch.dtype) -> None:
    run_ranks(use_16_bits, 2, dtype)
