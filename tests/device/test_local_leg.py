# SPDX-License-Identifier: Apache-2.0
"""The local leg on the simulated device: streams, futures, memory, and a peer's death.

No other backend here carries the device. So braid itself is the backend within hosts.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from ranks import SOON_S, Rank, error_of, run_ranks
from waiting import eventually

pytestmark = [pytest.mark.multiprocess]


def on_two_hosts(function: Any, environment: dict[str, str] | None = None, **more: Any) -> list[Any]:
    setting = {"BRAID_LOCAL_LEG": "sim:braid"} | (environment or {})
    return run_ranks(there, 4, function, wire="shm,tcp", join=False, environment=setting, **more)


def there(rank: Rank, function: Any) -> Any:
    sys.path.insert(0, str(Path(__file__).parent))
    os.environ["BRAID_HOST"] = f"host-{rank.rank // 2}"
    os.environ["BRAID_LINKS"] = "assume"
    import simulated
    import torch.distributed as dist

    sim = simulated.load()
    simulated.offer_flags()
    rank.join()
    try:
        return function(rank, sim)
    finally:
        dist.destroy_process_group()


def under_every_schedule(rank: Rank, sim: Any) -> int:
    """Inputs are made late, results are read on the stream alone, and works are waited for in the other order."""
    import braid
    import torch
    import torch.distributed as dist
    from schedules import SCHEDULES, delays

    sizes = (1, 3, 1000, (1 << 20) + 1)
    drawn = [[torch.arange(n).remainder(17 + each).float() for n in sizes] for each in range(rank.size)]
    for schedule in SCHEDULES:
        sim.set_delays(**delays(schedule, rank.rank))
        inputs = [each.to("sim") for each in drawn[rank.rank]]
        for each in inputs:
            each.add_(1)  # queued: the leg must wait for it
        works = [dist.all_reduce(each, async_op=True) for each in inputs]
        doubled = []
        for each, work in zip(reversed(inputs), reversed(works), strict=True):
            assert work is not None
            work.wait()
            doubled.append(each * 2)  # the caller's stream must wait for the leg
        for n, mine in enumerate(reversed(doubled)):
            want = 2 * sum(other[n] + 1 for other in drawn)
            assert torch.equal(mine.cpu(), want), (schedule, sizes[n])
        tensor = torch.full((10,), float(rank.rank), device="sim")
        future = dist.all_reduce(tensor, async_op=True).get_future()
        assert future.then(lambda done: done.value()[0].add(1)).wait().cpu().eq(7).all()
        root = torch.full((5,), float(rank.rank), device="sim")
        dist.broadcast(root, 2)
        assert root.cpu().eq(2).all()
        whole = torch.zeros(12, device="sim")
        dist.all_gather_into_tensor(whole, torch.full((3,), float(rank.rank), device="sim"))
        piece = torch.zeros(3, device="sim")
        dist.reduce_scatter_tensor(piece, whole)
        assert piece.cpu().eq(4 * rank.rank).all()
        unwaited = torch.ones(100, device="sim")
        dist.all_reduce(unwaited, async_op=True)
        dist.all_gather([torch.zeros(100, device="sim") for _ in range(4)], unwaited)  # the flat way
        dist.barrier()
    sim.set_delays()
    sim.synchronize()
    return sum(
        row["calls"] for group in braid.stats() if ":place" in group["group"] for row in group["operations"]
    )


def test_results_are_right_under_every_schedule() -> None:
    """And the leg carried them."""
    assert all(calls > 0 for calls in on_two_hosts(under_every_schedule))


def flat_after_leg(rank: Rank, sim: Any) -> None:
    """An operation on the flat way reads what the leg writes, without a wait."""
    import torch
    import torch.distributed as dist
    from schedules import SCHEDULES, delays

    for schedule in SCHEDULES:
        sim.set_delays(**delays(schedule, rank.rank))
        tensor = torch.full((100,), 1.0 + rank.rank, device="sim")
        dist.all_reduce(tensor, async_op=True)
        blocks = [torch.zeros(100, device="sim") for _ in range(4)]
        dist.all_gather(blocks, tensor)
        assert all(block.cpu().eq(10).all() for block in blocks), schedule


def test_the_flat_way_comes_after_the_leg() -> None:
    on_two_hosts(flat_after_leg)


def leg_after_flat(rank: Rank, sim: Any) -> None:
    """An operation by the leg reads, and then overwrites, what one on the flat way writes and reads."""
    import torch
    import torch.distributed as dist
    from schedules import SCHEDULES, delays

    for schedule in SCHEDULES:
        sim.set_delays(**delays(schedule, rank.rank, us=10_000))
        blocks = [torch.zeros(100, device="sim") for _ in range(4)]
        mine = torch.full((100,), 1.0 + rank.rank, device="sim")
        written = dist.all_gather(blocks, mine, async_op=True)
        works = [dist.all_reduce(block, async_op=True) for block in blocks]
        works.append(dist.all_reduce(mine, async_op=True))
        for work in works:
            assert work is not None
            work.wait()
        for each, block in enumerate(blocks):
            assert block.cpu().eq(4 * (1 + each)).all(), schedule
        assert mine.cpu().eq(10).all(), schedule
        assert written is not None
        written.wait()


@pytest.mark.parametrize("stream_waits", ["0", "1"])
def test_the_leg_comes_after_the_flat_way(stream_waits: str) -> None:
    """Without a wait, whether results come up by the courier or behind a flag."""
    on_two_hosts(leg_after_flat, environment={"BRAID_STREAM_WAITS": stream_waits})


def coded(rank: Rank, sim: Any) -> None:
    """Lossy sums whose inputs and residuals are queued, and whose results and residuals are read on the stream."""
    import braid
    import torch
    from schedules import SCHEDULES, delays

    for schedule in SCHEDULES:
        sim.set_delays(**delays(schedule, rank.rank))
        for elements in (3, 5001):
            drawn = [torch.randn(elements, generator=torch.Generator().manual_seed(r)) for r in range(rank.size)]
            mine, left = drawn[rank.rank].to("sim"), torch.ones(elements).to("sim")
            mine.mul_(2)
            left.zero_()
            work = braid.lossy_all_reduce(mine, "int8", residual=left, async_op=True)
            assert work is not None
            work.wait()
            found, lost = (mine * 1).cpu(), (left * 1).cpu()
            exact = 2 * torch.stack(drawn).mean(0)
            torch.testing.assert_close(found, exact, rtol=0.05, atol=0.1, msg=schedule)
            assert lost.count_nonzero() <= -(-elements // 2), schedule  # its shard's alone


def test_codecs_on_the_device() -> None:
    on_two_hosts(coded)


def memory(rank: Rank, sim: Any) -> None:
    """Nothing is held on the device after wait(), nor after the next call without it."""
    import torch
    import torch.distributed as dist

    def reduce(wait: bool) -> None:
        work = dist.all_reduce(torch.ones(5001, device="sim"), async_op=True)
        assert work is not None
        if wait:
            work.wait()

    reduce(wait=True)
    sim.synchronize()
    before = sim.device_bytes()
    for wait in (True, False, True):
        reduce(wait)
        sim.synchronize()
    eventually(lambda: sim.device_bytes() <= before, "the end of memory that is held", 20)


def test_no_memory_is_held() -> None:
    on_two_hosts(memory)


def train(rank: Rank, sim: Any) -> tuple[list[Any], list[Any]]:
    """DDP on the device, and the same on the CPU, which takes the flat way."""
    import torch
    from torch import nn

    trained = []
    for device in ("sim", "cpu"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 3)).to(device)
        ddp = nn.parallel.DistributedDataParallel(model)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
        for step in range(3):
            data = torch.randn(8, 20, generator=torch.Generator().manual_seed(10 * step + rank.rank)).to(device)
            optimizer.zero_grad()
            ddp(data).square().mean().backward()
            optimizer.step()
        trained.append([each.detach().cpu() for each in model.parameters()])
    return trained[0], trained[1]


def test_ddp_is_that_of_the_cpu() -> None:
    """Within rounding; replicas are equal to the bit."""
    import torch

    told = on_two_hosts(train)
    for mine, cpu in told:
        torch.testing.assert_close(mine, cpu, rtol=1e-5, atol=1e-6)
        assert all(torch.equal(a, b) for a, b in zip(mine, told[0][0], strict=True))


def dies(rank: Rank, sim: Any) -> float:
    """Rank 3 dies; the others get an error, whichever leg they are in."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(torch.ones(10, device="sim"))
    sim.synchronize()
    rank.meet("warm")
    if rank.rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    began = time.monotonic()

    def go_on() -> None:
        for _ in range(20):
            dist.all_reduce(torch.ones(1 << 20, device="sim"))

    error_of(go_on)
    return time.monotonic() - began


def test_a_death_ends_in_an_error_on_all_ranks() -> None:
    assert max(on_two_hosts(dies, killed=[3])[:3]) < SOON_S
