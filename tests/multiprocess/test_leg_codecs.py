# SPDX-License-Identifier: Apache-2.0
"""Gloo carries lossy reductions within hosts that are not there, and braid encodes them between these hosts."""

import braid
import pytest
import torch
import torch.distributed as dist
from legs import calls_by_legs, expected, on_hosts, values
from ranks import Rank

pytestmark = pytest.mark.multiprocess


def coded(rank: Rank) -> int:
    """Lossy reductions: equal bits on all ranks, small errors, and residuals that keep all that is lost."""
    drawn = torch.Generator().manual_seed(7)
    for elements in (1, 2, 3, 1000, (2 << 20) + 5):
        for dtype, op, codec in (
            (torch.float32, "SUM", "int8"), (torch.float32, "AVG", "sign"), (torch.bfloat16, "AVG", "int8"),
        ):  # fmt: skip
            share = rank.size if op == "AVG" else 1
            inputs = [torch.randn(elements, generator=drawn).to(dtype) for _ in range(rank.size)]
            left = torch.zeros(elements)
            lost = torch.zeros(elements)  # of all ranks, in the step before
            for _ in range(2):
                mine = inputs[rank.rank].clone()
                braid.lossy_all_reduce(mine, codec, residual=left, op=getattr(dist.ReduceOp, op))
                torch.testing.assert_close(mine, same_on_all(mine), rtol=0, atol=0)
                exact = torch.stack([each.double() for each in inputs]).sum(0) / share
                now_lost = left.clone()
                dist.all_reduce(now_lost)
                rounding = (
                    {"rtol": 1e-2, "atol": 5e-2} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-4}
                )
                torch.testing.assert_close(mine.double() + now_lost, exact + lost.double(), **rounding)
                if codec == "int8":
                    torch.testing.assert_close(mine.double(), exact, rtol=0.05, atol=0.2)
                lost = now_lost
    return calls_by_legs()


def same_on_all(mine: torch.Tensor) -> torch.Tensor:
    """Return rank 0's tensor."""
    first = mine.clone()
    dist.broadcast(first, 0)
    return first


@pytest.mark.parametrize(
    "hosts",
    [
        (0, 0, 1, 1),
        *(pytest.param(of, marks=pytest.mark.long) for of in ((0, 0), (0, 1, 0, 1), (0, 0, 0, 1, 1, 1))),
    ],
)
def test_codecs(hosts: tuple[int, ...]) -> None:
    """Messages between hosts are encoded."""
    calls = on_hosts(coded, hosts)
    assert all((count > 0) == (len(set(hosts)) > 1) for count in calls)


def coded_blocks(rank: Rank) -> int:
    """Lossy reduce_scatters."""
    for elements in (1, 33, 70_001):
        inputs = [values(each, rank.size * elements, torch.float32).sub(1.3) for each in range(rank.size)]
        left = torch.zeros(rank.size * elements)
        block = slice(rank.rank * elements, (rank.rank + 1) * elements)
        lost = torch.zeros(elements)
        for _ in range(2):
            piece = torch.empty(elements)
            braid.lossy_reduce_scatter(piece, inputs[rank.rank], "int8", residual=left)
            exact = expected("AVG", inputs)[block]
            torch.testing.assert_close(piece.double(), exact, rtol=0.05, atol=0.05)
            now_lost = left.clone()
            dist.all_reduce(now_lost)
            torch.testing.assert_close(piece.double() + now_lost[block], exact + lost, rtol=1e-4, atol=1e-4)
            lost = now_lost[block]
    return calls_by_legs()


@pytest.mark.parametrize("hosts", [(0, 0, 1, 1), (0, 0, 0, 1, 1, 1)])
def test_coded_blocks(hosts: tuple[int, ...]) -> None:
    """Each rank changes the part of its residual that it lost: its place on each host."""
    assert all(count > 0 for count in on_hosts(coded_blocks, hosts))


def coded_wrongly(rank: Rank) -> None:
    """Wrong arguments are refused as without the leg, and the group works on."""
    mine = torch.ones(8)
    with pytest.raises(ValueError, match="int9"):
        braid.lossy_all_reduce(mine, "int9")
    with pytest.raises(ValueError, match="7 elements for a tensor of 8"):
        braid.lossy_all_reduce(mine, "int8", residual=torch.zeros(7))
    with pytest.raises(ValueError, match="contiguous"):
        braid.lossy_all_reduce(mine, "int8", residual=torch.zeros(16)[::2])
    with pytest.raises(ValueError, match="lossy"):
        braid.lossy_all_reduce(mine.double(), "int8")
    braid.lossy_all_reduce(mine, "int8")
    torch.testing.assert_close(mine, torch.ones(8))
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))  # type: ignore[union-attr]
    assert backend.explain("all_reduce", 4096, codec="int8")["local_leg"]


def test_wrong_codecs() -> None:
    on_hosts(coded_wrongly, (0, 0, 1, 1))
