# SPDX-License-Identifier: Apache-2.0
"""The special cases of docs/conformance.md: numbers that go wrong elsewhere, awkward tensors, and wrong calls.

A case returns when all was right, raises WrongError when an operation reported success and had not, and lets an
operation's own error through, which counts as a refusal. Its first line is what the page says of it.
"""

from collections.abc import Callable

import torch
import torch.distributed as dist
from cells import COUNT, RANKS, WrongError, part_of, same_bits

SPECIAL: list[Callable[[int], None]] = []


def case(function: Callable[[int], None]) -> Callable[[int], None]:
    SPECIAL.append(function)
    return function


def right(condition: object, what: str) -> None:
    if not condition:
        raise WrongError(what)


def _reduced(values: list[float], dtype: torch.dtype, op: dist.ReduceOp, rank: int) -> torch.Tensor:
    # So many elements that every rank has a share of them to add up.
    mine = torch.full((1000,), values[rank]).to(dtype)
    dist.all_reduce(mine, op)
    return mine


@case
def half_average(rank: int) -> None:
    """fp16 AVG of three 40000 is 40000"""
    right((_reduced([40000.0] * 3, torch.float16, dist.ReduceOp.AVG, rank) == 40000).all(), "it is not")


@case
def half_sum(rank: int) -> None:
    """fp16 SUM of 40000, 40000, -40000 is 40000"""
    right(
        (_reduced([40000.0, 40000.0, -40000.0], torch.float16, dist.ReduceOp.SUM, rank) == 40000).all(),
        "it is not",
    )


@case
def brain_sum(rank: int) -> None:
    """bf16 SUM of 256, 1, 1 is 258: rounded once"""
    right((_reduced([256.0, 1.0, 1.0], torch.bfloat16, dist.ReduceOp.SUM, rank) == 258).all(), "it is not")


@case
def bool_sum(rank: int) -> None:
    """bool SUM of three true is 1, not 3"""
    mine = torch.ones(COUNT, dtype=torch.bool)
    dist.all_reduce(mine)
    right((mine.view(torch.uint8) == 1).all(), "it is another byte")


def _nan(op: dist.ReduceOp, rank: int) -> None:
    for place in range(RANKS):
        values = [float("nan") if other == place else 1.0 + other for other in range(RANKS)]
        for dtype in (torch.float32, torch.float16):
            right(_reduced(values, dtype, op, rank).isnan().all(), f"a NaN of rank {place} was lost")


@case
def nan_in_min(rank: int) -> None:
    """MIN is NaN whichever rank has NaN"""
    _nan(dist.ReduceOp.MIN, rank)


@case
def nan_in_max(rank: int) -> None:
    """MAX is NaN whichever rank has NaN"""
    _nan(dist.ReduceOp.MAX, rank)


@case
def same_everywhere(rank: int) -> None:
    """SUM of random fp32 has the same bits on all ranks"""
    generator = torch.Generator().manual_seed(rank)
    for count in (7, 1000, 100_003):
        mine = torch.randn(count, generator=generator)
        dist.all_reduce(mine)
        everyone = [torch.empty(count) for _ in range(RANKS)]
        dist.all_gather(everyone, mine)
        right(all(torch.equal(other, mine) for other in everyone), f"not with {count} elements")


@case
def reduce_spares_inputs(rank: int) -> None:
    """reduce leaves other ranks' tensors unchanged"""
    for count in (COUNT, 100_003):
        mine = part_of(rank, count, torch.float32)
        dist.reduce(mine, 0)
        right(rank == 0 or torch.equal(mine, part_of(rank, count, torch.float32)), "it overwrites them")


@case
def uneven_all_gather(rank: int) -> None:
    """all_gather of 1, 2, 3 elements"""
    got = [torch.zeros(source + 1) for source in range(RANKS)]
    dist.all_gather(got, part_of(rank, rank + 1, torch.float32))
    for source in range(RANKS):
        same_bits(got[source], part_of(source, source + 1, torch.float32), "block")


@case
def uneven_reduce_scatter(rank: int) -> None:
    """reduce_scatter into 1, 2, 3 elements"""
    mine = torch.zeros(rank + 1)
    dist.reduce_scatter(mine, [torch.full((target + 1,), 1.0 + rank) for target in range(RANKS)])
    same_bits(mine, torch.full((rank + 1,), 6.0), "block")


@case
def uneven_all_to_all(rank: int) -> None:
    """all_to_all_single with different splits, some empty"""
    splits = [[0, 1, 2], [3, 0, 1], [1, 2, 0]]
    mine = torch.cat([torch.full((splits[rank][target],), 10.0 * rank + target) for target in range(RANKS)])
    receives = [splits[source][rank] for source in range(RANKS)]
    got = torch.zeros(sum(receives))
    dist.all_to_all_single(got, mine, receives, splits[rank])
    wanted = [torch.full((receives[source],), 10.0 * source + rank) for source in range(RANKS)]
    same_bits(got, torch.cat(wanted), "blocks")


@case
def strided(rank: int) -> None:
    """all_reduce, broadcast, all_gather of a matrix's column"""
    column = torch.ones(COUNT, 3)[:, 1]
    dist.all_reduce(column)
    right((column == RANKS).all(), "all_reduce")
    column = torch.full((COUNT, 3), float(rank))[:, 1]
    dist.broadcast(column, 2)
    right((column == 2).all(), "broadcast")
    got = [torch.zeros(COUNT, 3)[:, 1] for _ in range(RANKS)]
    dist.all_gather(got, torch.full((COUNT, 3), float(rank))[:, 1])
    right(all((got[source] == source).all() for source in range(RANKS)), "all_gather")


@case
def different_layouts(rank: int) -> None:
    """all_reduce with channels-last on one rank"""
    mine = torch.arange(120.0).reshape(2, 3, 4, 5)
    mine = mine.contiguous(memory_format=torch.channels_last) if rank == 1 else mine
    dist.all_reduce(mine)
    right(torch.equal(mine.contiguous(), RANKS * torch.arange(120.0).reshape(2, 3, 4, 5)), "bytes were added")


@case
def empty_and_scalar(rank: int) -> None:
    """all_reduce, all_gather of no elements, of no dimensions"""
    for shape in ((0,), (3, 0), ()):
        mine = torch.ones(shape)
        dist.all_reduce(mine)
        right((mine == RANKS).all(), "all_reduce")
        got = [torch.zeros(shape) for _ in range(RANKS)]
        dist.all_gather(got, torch.full(shape, float(rank)))
        right(all((got[source] == source).all() for source in range(RANKS)), "all_gather")


@case
def gather_in_place(rank: int) -> None:
    """all_gather_into_tensor in place"""
    whole = torch.zeros(RANKS * COUNT)
    whole.chunk(RANKS)[rank].fill_(rank)
    dist.all_gather_into_tensor(whole, whole.chunk(RANKS)[rank])
    right(torch.equal(whole, torch.arange(float(RANKS)).repeat_interleave(COUNT)), "another result")


@case
def sparse(rank: int) -> None:
    """all_reduce of sparse COO tensors"""
    dense = torch.zeros(10, 4)
    dense[rank : 2 * rank + 1] = 1.0 + rank
    mine = dense.to_sparse()
    dist.all_reduce(mine)
    wanted = torch.zeros(10, 4)
    for source in range(RANKS):
        wanted[source : 2 * source + 1] += 1.0 + source
    right(torch.equal(mine.to_dense(), wanted), "another sum")
