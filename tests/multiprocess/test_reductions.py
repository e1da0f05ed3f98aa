# SPDX-License-Identifier: Apache-2.0
"""What each operator means, where others differ or go wrong."""

import math

import pytest
import torch
import torch.distributed as dist
from ranks import Rank, run_ranks

pytestmark = pytest.mark.multiprocess

INTEGERS = [
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]


def each_way(rank: Rank, mine: torch.Tensor, op: object) -> list[torch.Tensor]:
    """The reduction of everybody's tensor by each function that reduces, as this rank sees it."""
    n = rank.size
    reduced = mine.clone()
    dist.all_reduce(reduced, op)
    results = [reduced]
    kept = mine.clone()
    dist.reduce(kept, 0, op)
    results.append(kept if rank.rank == 0 else reduced)
    shard = torch.zeros_like(mine)
    dist.reduce_scatter_tensor(shard, torch.cat([mine] * n), op)
    results.append(shard)
    listed = torch.zeros_like(mine)
    dist.reduce_scatter(listed, [mine.clone() for _ in range(n)], op)
    results.append(listed)
    return results


def bitwise(rank: Rank) -> None:
    for dtype in INTEGERS:
        values = [[5 | other, 6, 1 << (other % 7), other] for other in range(rank.size)]
        mine = torch.tensor(values[rank.rank]).to(dtype)
        for op, combine in (
            (dist.ReduceOp.BAND, lambda a, b: a & b),
            (dist.ReduceOp.BOR, lambda a, b: a | b),
            (dist.ReduceOp.BXOR, lambda a, b: a ^ b),
        ):
            expected = values[0]
            for other in values[1:]:
                expected = [combine(a, b) for a, b in zip(expected, other, strict=True)]
            for result in each_way(rank, mine, op):
                assert result.to(torch.int64).tolist() == expected, (dtype, op)
    truth = torch.tensor([True, False, rank.rank == 0])
    for op, expected in (
        (dist.ReduceOp.BAND, [True, False, rank.size == 1]),
        (dist.ReduceOp.BOR, [True, False, True]),
    ):
        for result in each_way(rank, truth, op):
            assert result.tolist() == expected


def scaled(rank: Rank) -> None:
    n, factor = rank.size, 0.5 + rank.rank
    total = sum(0.5 + other for other in range(n))
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e5m2, torch.complex64):
        mine = torch.ones(5).to(dtype)
        expected = torch.tensor([total] * 5).to(dtype).to(torch.complex64)  # 8 bits hold few numbers
        for given in (factor, torch.tensor([factor])):
            for result in each_way(rank, mine, dist._make_nccl_premul_sum(given)):
                assert torch.equal(result.to(torch.complex64), expected), (dtype, given)
        assert mine.to(torch.complex64).tolist() == [1] * 5  # an input that is only read stays as it is


def complex_numbers(rank: Rank) -> None:
    for dtype in (torch.complex64, torch.complex128):
        mine = torch.tensor([1 + 2j, rank.rank * 1j], dtype=dtype)
        total = torch.tensor([rank.size * (1 + 2j), sum(range(rank.size)) * 1j], dtype=dtype)
        for result in each_way(rank, mine, dist.ReduceOp.SUM):
            assert torch.equal(result, total)
        for result in each_way(rank, mine, dist.ReduceOp.AVG):
            torch.testing.assert_close(result, total / rank.size)
        conjugated = torch.tensor([1 + 2j, 3j], dtype=dtype).conj()
        # torch's own function refuses it, and its dispatcher would reduce a copy.
        dist.group.WORLD._get_backend(torch.device("cpu")).allreduce([conjugated]).wait()
        assert conjugated.tolist() == [rank.size * (1 - 2j), rank.size * -3j]


def narrow_floats(rank: Rank) -> None:
    # Where a partial result has no place in the dtype, the result still has.
    for dtype, value in ((torch.float16, 40000.0), (torch.float8_e4m3fn, 256.0), (torch.float8_e5m2, 40960.0)):
        mine = torch.full((100,), value).to(dtype)
        for result in each_way(rank, mine, dist.ReduceOp.AVG):
            assert result.float().tolist() == [value] * 100, dtype
    # 1 + 1/512 + ... loses every small addend when rounded to bfloat16 after each step.
    small = torch.full((7,), 1.0 if rank.rank == 0 else 1 / 256).to(torch.bfloat16)
    expected = torch.tensor(1 + (rank.size - 1) / 256).to(torch.bfloat16).item()
    for result in each_way(rank, small, dist.ReduceOp.SUM):
        assert result.tolist() == [expected] * 7


def not_a_number(rank: Rank) -> None:
    for dtype in (
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    ):
        for where in range(rank.size):
            mine = torch.tensor([math.nan if rank.rank == where else 1.0, 2.0]).to(dtype)
            for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX):
                for result in each_way(rank, mine, op):
                    assert math.isnan(result[0].item()), (dtype, op, where)
                    assert result[1].item() == 2


def truth_values(rank: Rank) -> None:
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN):
        mine = torch.tensor([True, rank.rank == 0, False])
        everyone = op in (dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN)
        for result in each_way(rank, mine, op):
            assert result.view(torch.uint8).tolist() == [1, int(not everyone or rank.size == 1), 0], op


def integer_averages(rank: Rank) -> None:
    for dtype in INTEGERS:
        mine = torch.tensor([rank.rank, 7]).to(dtype)
        for result in each_way(rank, mine, dist.ReduceOp.AVG):
            assert result.tolist() == [sum(range(rank.size)) // rank.size, 7], dtype
    negative = torch.tensor([-1 if rank.rank == 0 else 0])
    dist.all_reduce(negative, dist.ReduceOp.AVG)
    assert negative.item() == (-1 if rank.size == 1 else 0)  # toward zero


@pytest.mark.parametrize("size", [1, 2, 3, pytest.param(5, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "function",
    [bitwise, scaled, complex_numbers, narrow_floats, not_a_number, truth_values, integer_averages],
)
def test_reductions(function: object, size: int) -> None:
    run_ranks(function, size)


def test_reductions_over_tcp() -> None:
    run_ranks(narrow_floats, 3, wire="tcp")
