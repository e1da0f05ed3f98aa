# SPDX-License-Identifier: Apache-2.0
"""The simulated device is asynchronous, computes what the CPU computes, and shows what goes wrong."""

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from ranks import Rank, RanksFailedError, run_ranks

pytestmark = [pytest.mark.multiprocess]


def load() -> Any:
    """Load the device into this rank."""
    sys.path.insert(0, str(Path(__file__).parent))
    import simulated

    return simulated.load()


def on_one(function: Any) -> Any:
    """Run a function in a process of its own, without a group."""
    return run_ranks(function, 1, join=False)[0]


def operators_as_on_the_cpu(rank: Rank) -> None:
    """Views, in-place, out and functional operators, results of unknown shape, and autograd."""
    load()
    import torch

    def compute(device: str) -> list[torch.Tensor]:
        torch.manual_seed(0)
        x = torch.randn(6, 4).to(device)
        w = torch.randn(4, 4).to(device).requires_grad_()
        y = (x @ w).relu().softmax(-1)
        y.square().sum().backward()
        out = torch.empty(0, device=device)
        torch.add(x.t()[1:3], 2, out=out)
        x[2:4].mul_(3)
        chosen = x[x > 0]
        torch._foreach_add_([x], 1)
        assert w.grad is not None
        return [y.detach(), w.grad, out, x, chosen, torch.cat([x, x[:1]]), torch.arange(5, device=device)]

    for mine, cpu in zip(compute("sim"), compute("cpu"), strict=True):
        assert mine.device.type == "sim"
        assert torch.equal(mine.cpu(), cpu)


def test_operators() -> None:
    """The device computes the CPU's bits."""
    on_one(operators_as_on_the_cpu)


def a_read_without_a_wait(rank: Rank) -> None:
    """A copy down that nobody waits for shows NaN; with a wait it shows the values."""
    sim = load()
    import torch

    values = torch.ones(4).to("sim")
    pinned = torch.zeros(4).pin_memory()
    sim.hold(on_default=True)
    pinned.copy_(values, non_blocking=True)
    assert pinned.isnan().all()
    event = torch.sim.Event()
    event.record()
    assert not event.query()
    sim.hold()
    event.synchronize()
    assert torch.equal(pinned, torch.ones(4))


def test_a_missing_wait_of_the_host_shows() -> None:
    """The host reads NaN where it does not wait for the copy."""
    on_one(a_read_without_a_wait)


def two_streams(rank: Rank) -> None:
    """A stream that does not wait for another sees old values; one that waits sees the new ones."""
    sim = load()
    import torch

    values = torch.zeros(4).to("sim")
    sim.synchronize()
    side = torch.sim.Stream()
    sim.hold(on_default=True)
    values.add_(1)
    with side:
        early = values.clone()
    side.synchronize()
    event = torch.sim.Event()
    event.record()
    with side:
        side.wait_event(event)
        late = values.clone()
    sim.hold()
    sim.synchronize()
    assert early.cpu().eq(0).all()
    assert late.cpu().eq(1).all()


def test_a_missing_wait_of_a_stream_shows() -> None:
    """Streams run on their own until one waits for an event of the other."""
    on_one(two_streams)


def freed_memory(rank: Rank) -> None:
    """A freed block goes to the next tensor of its stream, which it reaches poisoned, and to no other stream."""
    sim = load()
    import torch

    first = torch.ones(1000).to("sim")
    place = first.data_ptr()
    held = sim.device_bytes()
    del first
    assert sim.device_bytes() < held
    with torch.sim.Stream():
        assert torch.empty(1000, device="sim").data_ptr() != place
    again = torch.empty(1000, device="sim")
    assert again.data_ptr() == place
    assert again.isnan().all().item()


def test_the_allocator_is_ordered_by_stream() -> None:
    """Memory is given out again on its own stream alone, poisoned."""
    on_one(freed_memory)


def touches_device_memory(rank: Rank) -> None:
    """Read device memory from the host."""
    load()
    import ctypes

    import torch

    ctypes.string_at(torch.ones(4).to("sim").data_ptr(), 4)


def test_the_host_cannot_touch_device_memory() -> None:
    """A read of the host ends the process."""
    with pytest.raises(RanksFailedError, match=f"status -{int(signal.SIGSEGV)}"):
        on_one(touches_device_memory)
