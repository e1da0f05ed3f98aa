# SPDX-License-Identifier: Apache-2.0
"""Uses of a local leg that go wrong if it forgets a wait, or if what is carried without it does."""

from typing import Any

import torch
import torch.distributed as dist
from cases import values
from races import COUNT, Race, check, future, late_input, to_device


def flat_after_leg(rank: int, size: int, sim: Any) -> None:
    """An operation without the leg reads a sum of the leg, which nobody has waited for."""
    summed = values(to_device, rank, 2 * COUNT)[::2]  # put back with its gaps at the very end
    expected = torch.stack([values(torch.Tensor.clone, each, 2 * COUNT)[::2] for each in range(size)]).sum(0)
    dist.all_reduce(summed, async_op=True)
    blocks = [torch.zeros(COUNT, device="sim") for _ in range(size)]
    dist.all_gather(blocks, summed)
    for block in blocks:
        check(block, expected, "a sum that was gathered at once")


def leg_after_flat(rank: int, size: int, sim: Any) -> None:
    """The leg sums what an operation without it gathers, which nobody has waited for."""
    blocks = [torch.zeros(COUNT, device="sim") for _ in range(size)]
    gathered = dist.all_gather(blocks, values(to_device, rank, COUNT), async_op=True)
    works = [dist.all_reduce(block, async_op=True) for block in blocks]
    for work in works:
        assert work is not None
        work.wait()
    for each, block in enumerate(blocks):
        check(block, size * values(torch.Tensor.clone, each, COUNT), "a sum of a gathered block")
    assert gathered is not None
    gathered.wait()


def output_dropped(rank: int, size: int, sim: Any) -> None:
    """The caller drops the output and never waits, and wants memory before the output is written."""
    whole = torch.zeros(size * COUNT, device="sim")
    dist.all_gather_into_tensor(whole, values(to_device, rank, COUNT), async_op=True)
    del whole
    others = [torch.full((size * COUNT,), 77.0, device="sim") for _ in range(8)]
    sim.synchronize()
    for other in others:
        check(other, torch.full((size * COUNT,), 77.0), "another's memory")


def several_chunks(rank: int, size: int, sim: Any) -> None:
    """Chunks of one tensor are in different legs at a time."""
    elements = (2 << 20) + 5
    tensor = torch.full((elements,), 1.0, device="sim").mul_(rank + 1)
    dist.all_reduce(tensor)
    check(tensor.clone(), torch.full((elements,), size * (size + 1) / 2), "a sum of several chunks")


RACES: tuple[Race, ...] = (
    late_input, future, output_dropped, flat_after_leg, leg_after_flat, several_chunks,
)  # fmt: skip
