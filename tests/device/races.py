# SPDX-License-Identifier: Apache-2.0
"""Uses of the device that go wrong if braid forgets a wait, or frees memory too early. Each checks its result."""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from cases import values
from slowness import limit

Race = Callable[[int, int, Any], None]

COUNT = 1000
SOON_S = limit(3.0)


def to_device(tensor: torch.Tensor) -> torch.Tensor:
    """Move a tensor to the simulated device."""
    return tensor.to("sim")


def total(size: int) -> torch.Tensor:
    """Return the sum of all ranks' values."""
    return torch.stack([values(torch.Tensor.clone, each, COUNT) for each in range(size)]).sum(0)


def check(got: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Compare a tensor, of the device or not, with the right one."""
    assert torch.equal(got.cpu(), expected), f"{what} is wrong: {got.cpu()[:4]}"


def late_input(rank: int, size: int, sim: Any) -> None:
    """The caller's stream has not computed the input yet, and uses the result at once."""
    tensor = values(to_device, rank, COUNT)
    dist.all_reduce(tensor)
    check(tensor.clone(), total(size), "a sum")


def future(rank: int, size: int, sim: Any) -> None:
    """A callback uses the result on its stream, and the caller's stream uses it after the future."""
    tensor = values(to_device, rank, COUNT)
    done = dist.all_reduce(tensor, async_op=True).get_future()
    begun = time.monotonic()
    while not done.done():
        assert time.monotonic() - begun < SOON_S, "the future did not come"
        time.sleep(0.001)
    done.wait()
    check(tensor.clone(), total(size), "what a future gave")
    tensor = values(to_device, rank, COUNT)
    chained = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value()[0] * 2)
    check(chained.wait().clone(), total(size) * 2, "what a callback gave")


def input_dropped(rank: int, size: int, sim: Any) -> None:
    """The caller drops the input at once, and its memory is wanted again."""
    tensor = values(to_device, rank, COUNT)
    whole = torch.zeros(size * COUNT, device="sim")
    work = dist.all_gather_into_tensor(whole, tensor, async_op=True)
    del tensor
    others = [torch.full((COUNT,), 77.0, device="sim") for _ in range(4)]
    assert work is not None
    work.wait()
    check(whole, torch.cat([values(torch.Tensor.clone, each, COUNT) for each in range(size)]), "a gathered tensor")
    del others


def output_dropped(rank: int, size: int, sim: Any) -> None:
    """The caller drops the output and never waits, and its memory is wanted again before it is written."""
    whole = torch.zeros(size * COUNT, device="sim")
    place = whole.data_ptr()
    dist.all_gather_into_tensor(whole, values(to_device, rank, COUNT), async_op=True)
    del whole
    begun = time.monotonic()
    found = []  # kept, so that the next one is another
    while (other := torch.empty(size * COUNT, device="sim")).data_ptr() != place:
        found.append(other)
        assert time.monotonic() - begun < SOON_S, "the free memory of an output did not come"
        time.sleep(0.0005)
    other.fill_(77.0)
    sim.synchronize()
    check(other, torch.full((size * COUNT,), 77.0), "another's memory")


def pinned_again(rank: int, size: int, sim: Any) -> None:
    """The next operation wants pinned memory while the results of the last one are on their way."""
    tensors = [values(to_device, rank, COUNT) for _ in range(4)]
    for tensor in tensors:
        dist.all_reduce(tensor)
    for tensor in tensors:
        check(tensor, total(size), "a sum")


def let_odd_ranks_begin(rank: int) -> None:
    """Give an odd rank time to begin its operation on the device. An even rank goes on while its own one waits."""
    if rank % 2 == 1:
        time.sleep(0.03)


def order(rank: int, size: int, sim: Any) -> None:
    """An operation on a CPU tensor comes after one that waits for the device."""
    slow, quick = values(to_device, rank, COUNT), values(torch.Tensor.clone, rank, COUNT) * 10
    work = dist.all_reduce(slow, async_op=True)
    let_odd_ranks_begin(rank)
    dist.all_reduce(quick)
    assert work is not None
    work.wait()
    check(slow, total(size), "the first sum")
    check(quick, total(size) * 10, "the second sum")


def barrier(rank: int, size: int, sim: Any) -> None:
    """A barrier comes after an operation that waits for the device."""
    tensor = values(to_device, rank, COUNT)
    work = dist.all_reduce(tensor, async_op=True)
    let_odd_ranks_begin(rank)
    dist.barrier()
    assert work is not None
    work.wait()
    check(tensor, total(size), "a sum before a barrier")


def overlapping(rank: int, size: int, sim: Any) -> None:
    """The input lies inside the output, so that early results would be written over inputs that are still read."""
    base = values(to_device, rank, size * COUNT)
    part = slice(COUNT // 2, COUNT * 3 // 2)
    expected = torch.cat([values(torch.Tensor.clone, each, size * COUNT)[part] for each in range(size)])
    dist.all_gather_into_tensor(base, base[part])
    check(base.clone(), expected, "a gathered tensor")


RACES: tuple[Race, ...] = (
    late_input, future, input_dropped, output_dropped, pinned_again, order, barrier, overlapping,
)  # fmt: skip
