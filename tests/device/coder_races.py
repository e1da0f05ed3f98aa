# SPDX-License-Identifier: Apache-2.0
"""Lossy reductions that go wrong if the device encodes too early, or frees memory too early.

What is right comes from the same operations on CPU tensors, whose bits must be the same.
"""

import time
from typing import Any

import braid
import torch
from races import COUNT, Race, check


def drawn(rank: int, elements: int, seed: int = 0) -> torch.Tensor:
    """Return the same values whenever it is called."""
    return torch.randn(elements, generator=torch.Generator().manual_seed(10 * seed + rank))


def on_device(tensor: torch.Tensor) -> torch.Tensor:
    """Move a tensor to the device; the last step of computing it is queued there."""
    return tensor.div(2).to("sim").mul_(2)


def summed(rank: int, size: int, sim: Any) -> None:
    """Two steps with a residual, whose results and residuals are used at once."""
    lost, right_lost = torch.zeros(COUNT).to("sim"), torch.zeros(COUNT)
    for step in range(2):
        tensor, right = on_device(drawn(rank, COUNT, step)), drawn(rank, COUNT, step)
        braid.lossy_all_reduce(right, "int8", residual=right_lost)
        braid.lossy_all_reduce(tensor, "int8", residual=lost)
        check(tensor.clone(), right, "a lossy average")
        check(lost.clone(), right_lost, "a residual")


def future(rank: int, size: int, sim: Any) -> None:
    """A callback uses the result on its stream."""
    tensor, right = on_device(drawn(rank, COUNT)), drawn(rank, COUNT)
    braid.lossy_all_reduce(right, "int8")
    work = braid.lossy_all_reduce(tensor, "int8", async_op=True)
    assert work is not None
    chained = work.get_future().then(lambda done: done.value()[0] * 2)
    check(chained.wait().clone(), right * 2, "what a callback gave")


def input_dropped(rank: int, size: int, sim: Any) -> None:
    """The caller drops the input at once, and its memory is wanted again before all of it is read."""
    whole, right, part = drawn(rank, size * COUNT), torch.zeros(COUNT), torch.zeros(COUNT, device="sim")
    braid.lossy_reduce_scatter(right, whole, "int8")
    given = on_device(whole)
    place = given.data_ptr()
    work = braid.lossy_reduce_scatter(part, given, "int8", async_op=True)
    del given
    limit, others = time.monotonic() + 0.02, []
    while time.monotonic() < limit:
        others.append(torch.full((size * COUNT,), 77.0, device="sim"))
        if others[-1].data_ptr() == place:
            break
    assert work is not None
    work.wait()
    check(part, right, "a lossy average of blocks")


RACES: tuple[Race, ...] = (summed, future, input_dropped)
